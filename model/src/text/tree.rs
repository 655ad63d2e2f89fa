//! The parsed text as tables and items with their places, so that each error can point at one.

use super::fault::Fault;
use super::units::{self, Units};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with its key.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    key: &'a str,
    key_span: (usize, usize),
    value: &'a Spanned<DeValue<'a>>,
}

/// A table with the key that opens it. The root has the key "" and begins at the start of the text.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    key: &'a str,
    span: (usize, usize),
    entries: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    pub(super) fn root(entries: &'a DeTable<'a>) -> Self {
        Self { key: "", span: (0, 0), entries }
    }

    /// Its items, in the order of the text.
    pub(super) fn items(&self) -> Vec<Item<'a>> {
        let mut items: Vec<Item<'a>> = self.entries.iter().map(|(key, value)| Item::new(key, value)).collect();
        items.sort_by_key(|item| item.key_span);
        items
    }

    /// Refuses keys other than `known`, naming the nearest of them.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Fault> {
        for item in self.items() {
            if !known.contains(&item.key) {
                return Err(item.unknown(known));
            }
        }
        Ok(())
    }

    pub(super) fn find(&self, key: &str) -> Option<Item<'a>> {
        self.entries.iter().find(|(name, _)| name.get_ref() == key).map(|(name, value)| Item::new(name, value))
    }

    /// The item of `key`, or a fault that shows what to write.
    pub(super) fn need(&self, key: &str, example: &str) -> Result<Item<'a>, Fault> {
        self.find(key).ok_or_else(|| {
            let place = if self.key.is_empty() { "the rack".to_string() } else { format!("`{}`", self.key) };
            self.refuse(format!("{place} has no `{key}`; write {key} = {example}"))
        })
    }

    pub(super) fn need_table(&self, key: &str, keys: &[&str]) -> Result<Table<'a>, Fault> {
        let Some(item) = self.find(key) else {
            return Err(self.refuse(format!("the rack has no `{key}`; write a table [{key}] with {}", keys.join(", "))));
        };
        let table = item.table()?;
        table.only(keys)?;
        Ok(table)
    }

    /// A fault at the key.
    pub(super) fn refuse(&self, message: impl Into<String>) -> Fault {
        Fault::new(self.span.0..self.span.1, message)
    }
}

impl<'a> Item<'a> {
    fn new(key: &'a Spanned<toml::de::DeString<'a>>, value: &'a Spanned<DeValue<'a>>) -> Self {
        let span = key.span();
        Self { key: key.get_ref(), key_span: (span.start, span.end), value }
    }

    pub(super) fn key(&self) -> &'a str {
        self.key
    }

    /// A fault at the value.
    pub(super) fn refuse(&self, message: impl Into<String>) -> Fault {
        Fault::new(place(self.key_span, self.value), message)
    }

    /// A fault at the key, which is not among `known`.
    pub(super) fn unknown(&self, known: &[&str]) -> Fault {
        let message = match nearest(self.key, known) {
            Some(near) => {
                format!(
                    "unknown key `{}`; write `{near}`, or leave it out (known here: {})",
                    cut(self.key),
                    known.join(", ")
                )
            }
            None => format!("unknown key `{}`; leave it out", cut(self.key)),
        };
        Fault::new(self.key_span.0..self.key_span.1, message)
    }

    fn wrong_kind(&self, wanted: &str, example: &str) -> Fault {
        let found = self.value.get_ref().type_str();
        self.refuse(format!("`{}` is {} {found}, not {wanted}; write {example}", cut(self.key), article(found)))
    }

    pub(super) fn table(&self) -> Result<Table<'a>, Fault> {
        let Some(entries) = self.value.get_ref().as_table() else {
            return Err(self.wrong_kind("a table", &format!("[{}] and its keys below", cut(self.key))));
        };
        Ok(Table { key: self.key, span: self.key_span, entries })
    }

    /// The elements of an array, each as an item of the same key.
    pub(super) fn elements(&self, example: &str) -> Result<Vec<Item<'a>>, Fault> {
        let Some(array) = self.value.get_ref().as_array() else {
            return Err(self.wrong_kind("a list", example));
        };
        let item = |value: &'a Spanned<DeValue<'a>>| {
            let span = value.span();
            Item { key: self.key, key_span: (span.start, span.end), value }
        };
        Ok(array.iter().map(item).collect())
    }

    pub(super) fn as_str(&self) -> Option<&'a str> {
        self.value.get_ref().as_str()
    }

    pub(super) fn string(&self, example: &str) -> Result<&'a str, Fault> {
        self.as_str().ok_or_else(|| self.wrong_kind("text in quotes", &format!("{} = {example}", cut(self.key))))
    }

    pub(super) fn boolean(&self) -> Result<bool, Fault> {
        let value = self.value.get_ref().as_bool();
        value.ok_or_else(|| self.wrong_kind("true or false", &format!("{0} = true or {0} = false", cut(self.key))))
    }

    /// A whole number in `min..=max`.
    pub(super) fn integer(&self, min: u64, max: u64) -> Result<u64, Fault> {
        let Some(integer) = self.value.get_ref().as_integer() else {
            return Err(self.wrong_kind("a whole number", &format!("one from {min} to {max}")));
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => {
                Err(self
                    .refuse(format!("`{}` is out of range; write a whole number from {min} to {max}", cut(self.key))))
            }
        }
    }

    pub(super) fn quantity(&self, units: &Units) -> Result<u64, Fault> {
        let text = self.string(units.example())?;
        units.parse(text).map_err(|message| self.refuse(message))
    }

    pub(super) fn duration(&self) -> Result<Duration, Fault> {
        self.quantity(&units::SPAN).map(Duration::from_nanos)
    }

    /// Watts with up to three decimals, in milliwatts.
    pub(super) fn milliwatts(&self) -> Result<u32, Fault> {
        let value = self.value.get_ref();
        let digits = match (value.as_float(), value.as_integer()) {
            (Some(float), _) => float.as_str(),
            (_, Some(integer)) if integer.radix() == 10 => integer.as_str(),
            _ => return Err(self.wrong_kind("a number of watts", &format!("{} = 9.42", cut(self.key)))),
        };
        let exact = units::decimal(digits).filter(|(_, scale)| *scale <= 1000);
        let milliwatts =
            exact.and_then(|(number, scale)| u32::try_from(u128::from(number) * 1000 / u128::from(scale)).ok());
        milliwatts.ok_or_else(|| {
            self.refuse(format!(
                "`{}` cannot be read as watts; write a number with up to three decimals, such as 9.42",
                cut(self.key)
            ))
        })
    }
}

/// The place of a value; for a table, which may be spread over the text, the place of its key.
fn place(key_span: (usize, usize), value: &Spanned<DeValue<'_>>) -> Range<usize> {
    if value.get_ref().is_table() { key_span.0..key_span.1 } else { value.span() }
}

/// `name` for a message, cut if it is long.
pub(super) fn cut(name: &str) -> String {
    let mut short: String = name.chars().take(32).collect();
    if short.len() < name.len() {
        short.push_str("...");
    }
    short.replace(char::is_control, "?")
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'i']) { "an" } else { "a" }
}

/// The name in `known` with the smallest edit distance from `word`.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: String = word.chars().take(64).collect();
    known.iter().copied().min_by_key(|name| strsim::levenshtein(&word, name))
}

/// The place of a key, for example `resources.power.watts` or `drives[3].slot`; if the text does not have it, the place
/// of the innermost table around it.
pub(super) fn locate(root: &DeTable<'_>, key: &str) -> Range<usize> {
    let (mut table, mut rest, mut found) = (root, key, 0..0);
    loop {
        let next = table.iter().find_map(|(name, value)| {
            let behind = rest.strip_prefix(name.get_ref().as_ref())?;
            let ends = behind.is_empty() || behind.starts_with(['.', '[']);
            ends.then_some((name, value, behind))
        });
        let Some((name, value, behind)) = next else { return found };
        let span = name.span();
        found = place((span.start, span.end), value);
        let (value, behind) = match element(value.get_ref(), behind) {
            Some((element, behind)) => {
                found = element.span();
                (element, behind)
            }
            None => (value, behind),
        };
        let Some(inner) = value.get_ref().as_table() else { return found };
        (table, rest) = (inner, behind.trim_start_matches('.'));
    }
}

/// The list element that `[index]` at the head of `key` selects, and the rest of the key.
fn element<'a>(value: &'a DeValue<'a>, key: &'a str) -> Option<(&'a Spanned<DeValue<'a>>, &'a str)> {
    let (index, rest) = key.strip_prefix('[')?.split_once(']')?;
    let element = value.as_array()?.get(index.parse::<usize>().ok()?)?;
    Some((element, rest))
}
