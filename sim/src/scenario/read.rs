//! From TOML to settings, each with its place for messages.

use super::key::{KEYS, Key, known};
use super::value::{Kind, RangeOf, Value, Written};
use model::text::{line_and_column, nearest};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The maximum number of values of one key in a list or range.
const VALUES_MAX: u64 = 1_000;

/// The reason why a text is not a scenario: the place, the error, and the correct form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ScenarioError {
    /// `file:line:column`, or the override.
    pub place: String,
    /// The error, and the correct form.
    pub message: String,
}

/// The content of a text and its overrides.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    /// The values of each key that is set.
    pub settings: BTreeMap<&'static str, Vec<Value>>,
    /// The question.
    pub question: Option<String>,
    /// The seeds.
    pub seeds: Option<Vec<u64>>,
    /// The keys of the table `plot`, each with one or more words.
    pub plot: BTreeMap<String, Vec<String>>,
    /// The place of each of these.
    pub places: BTreeMap<String, String>,
}

/// A text with its name.
struct NamedText<'a> {
    label: &'a str,
    /// The text in which lines are counted; `None` for a text of one line.
    text: Option<&'a str>,
}

impl NamedText<'_> {
    fn place(&self, span: &Range<usize>) -> String {
        let Some(text) = self.text else { return self.label.to_owned() };
        let (line, column) = line_and_column(text, span.start);
        format!("{}:{line}:{column}", self.label)
    }

    fn refuse(&self, span: &Range<usize>, message: impl Into<String>) -> ScenarioError {
        ScenarioError { place: self.place(span), message: message.into() }
    }
}

impl Draft {
    /// Reads `text`. `label` names it in messages.
    pub fn take_text(&mut self, text: &str, label: &str) -> Result<(), ScenarioError> {
        let source = NamedText { label, text: Some(text) };
        let root = DeTable::parse(text).map_err(|error| {
            let what = error.message().replace('\n', ", ");
            let why = format!("this is not TOML: {what}; write key = value, with text in \"quotes\"");
            source.refuse(&error.span().unwrap_or(0..0), why)
        })?;
        self.take_table("", root.get_ref(), &source)
    }

    /// Reads an override, `key=value`. A value that is not TOML is read as text, so quotes may be omitted.
    pub fn take_override(&mut self, setting: &str) -> Result<(), ScenarioError> {
        let label = format!("--set {setting}");
        let refused = |message: String| ScenarioError { place: label.clone(), message };
        let Some((name, value)) = setting.split_once('=').map(|(name, value)| (name.trim(), value.trim())) else {
            return Err(refused("this sets nothing; write --set key=value".to_owned()));
        };
        if !known().iter().any(|known| *known == name || known.starts_with(&format!("{name}."))) {
            return Err(refused(unknown(name, "")));
        }
        let as_it_is = format!("{name} = {value}");
        let as_text = format!("{name} = {value:?}");
        let one = |text: &str| DeTable::parse(text).is_ok_and(|root| root.get_ref().len() == 1) && !text.contains('\n');
        let text = if one(&as_it_is) { &as_it_is } else { &as_text };
        let source = NamedText { label: &label, text: None };
        let root =
            DeTable::parse(text).map_err(|_| refused("this cannot be read; write --set key=value".to_owned()))?;
        self.take_table("", root.get_ref(), &source)
    }

    fn take_table(&mut self, prefix: &str, table: &DeTable<'_>, source: &NamedText<'_>) -> Result<(), ScenarioError> {
        let mut items: Vec<_> = table.iter().collect();
        items.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in items {
            let name = format!("{prefix}{}", key.get_ref());
            let inner = format!("{name}.");
            if let Some(known) = Key::named(&name) {
                let values = values(known, value, source)?;
                self.settings.insert(known.name, values);
            } else if let Some(inside) = value.get_ref().as_table()
                && known().iter().any(|known| known.starts_with(&inner))
            {
                self.take_table(&inner, inside, source)?;
            } else if !known().contains(&name.as_str()) {
                return Err(source.refuse(&key.span(), unknown(&name, prefix)));
            } else {
                self.take_other(&name, value, source)?;
            }
            self.places.insert(name, source.place(&value.span()));
        }
        Ok(())
    }

    /// Reads a key that is not a parameter of a point.
    fn take_other(
        &mut self,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        source: &NamedText<'_>,
    ) -> Result<(), ScenarioError> {
        let refuse = |message: &str| Err(source.refuse(&value.span(), message));
        match name {
            "question" => match value.get_ref().as_str() {
                Some(text) => self.question = Some(text.to_owned()),
                None => return refuse("a question is text; write it in \"quotes\""),
            },
            "seeds" => match seeds(value.get_ref()) {
                Some(seeds) => self.seeds = Some(seeds),
                None => return refuse("these are not seeds; write a number, such as 3, or a list such as [1, 2, 3]"),
            },
            _ => match words(value.get_ref()) {
                Some(words) if !words.is_empty() => drop(self.plot.insert(name.to_owned(), words)),
                _ => return refuse("a plot is described in words; write a name in \"quotes\", or a list of them"),
            },
        }
        Ok(())
    }
}

/// The message about an unknown key. `prefix` is the key's table in the text.
fn unknown(name: &str, prefix: &str) -> String {
    let own = name.strip_prefix(prefix).unwrap_or(name);
    let elsewhere = KEYS.iter().find(|key| key.name.rsplit('.').next() == Some(own));
    let mut here: Vec<&str> = Vec::new();
    for known in known() {
        let Some(rest) = known.strip_prefix(prefix) else { continue };
        // A dotted name, as in overrides, is compared as a whole.
        let shown = if own.contains('.') { rest } else { rest.split('.').next().unwrap_or(rest) };
        if !here.contains(&shown) {
            here.push(shown);
        }
    }
    let cut: String = own.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
    let near = elsewhere.map(|key| key.name).or_else(|| nearest(own, &here)).unwrap_or_default();
    format!("unknown key `{cut}`; write `{near}`, or leave it out (known here: {})", here.join(", "))
}

fn values(key: &Key, value: &Spanned<DeValue<'_>>, source: &NamedText<'_>) -> Result<Vec<Value>, ScenarioError> {
    let refuse = |span: &Range<usize>, why: String| source.refuse(span, format!("`{}`: {why}", key.name));
    let read = |value: &Spanned<DeValue<'_>>| {
        let scalar = written(value.get_ref());
        let refused = |why| refuse(&value.span(), why);
        let scalar = scalar.ok_or_else(|| refused(format!("this is not a value; write {}", key.kind.example())))?;
        key.kind.read(scalar).map_err(refused)
    };
    match value.get_ref() {
        DeValue::Array(list) if list.is_empty() => {
            Err(refuse(&value.span(), format!("an empty list has no values; write {}", key.kind.example())))
        }
        DeValue::Array(list) if list.len() as u64 > VALUES_MAX => {
            Err(refuse(&value.span(), format!("too many values; write at most {VALUES_MAX}")))
        }
        DeValue::Array(list) => list.iter().map(read).collect(),
        DeValue::Table(table) => {
            let range = range(table).map_err(|why| refuse(&value.span(), why))?;
            range.values(key.kind).map_err(|why| refuse(&value.span(), why))
        }
        _ => Ok(vec![read(value)?]),
    }
}

const RANGE_EXAMPLE: &str = "{ from = 1, to = 8, steps = 4, scale = \"log\" }";

fn range(table: &DeTable<'_>) -> Result<RangeOf, String> {
    const PARTS: [&str; 4] = ["from", "to", "steps", "scale"];
    if let Some((wrong, _)) = table.iter().find(|(name, _)| !PARTS.contains(&name.get_ref().as_ref())) {
        let near = nearest(wrong.get_ref(), &PARTS).unwrap_or_default();
        return Err(format!("a range has no `{}`; write `{near}`, as in {RANGE_EXAMPLE}", wrong.get_ref()));
    }
    let part = |name: &str| table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value.get_ref());
    let end = |name: &str| {
        part(name)
            .and_then(written)
            .ok_or_else(|| format!("the range has no `{name}`; write one as in {RANGE_EXAMPLE}"))
    };
    let steps = match part("steps").and_then(written) {
        Some(Written::Whole(steps)) if (2..=VALUES_MAX.cast_signed()).contains(&steps) => steps as u64,
        _ => return Err(format!("the range needs `steps` from 2 to {VALUES_MAX}; write one as in {RANGE_EXAMPLE}")),
    };
    let log = match part("scale").map(DeValue::as_str) {
        None | Some(Some("linear")) => false,
        Some(Some("log")) => true,
        Some(_) => return Err("a range's scale is \"log\" or \"linear\"; write one of them".to_owned()),
    };
    Ok(RangeOf { from: end("from")?, to: end("to")?, steps, log })
}

fn written(value: &DeValue<'_>) -> Option<Written> {
    if let Some(flag) = value.as_bool() {
        return Some(Written::Flag(flag));
    }
    if let Some(integer) = value.as_integer() {
        return i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(Written::Whole);
    }
    if let Some(float) = value.as_float() {
        return float.as_str().parse().ok().filter(|number: &f64| number.is_finite()).map(Written::Number);
    }
    value.as_str().map(|text| Written::Text(text.to_owned()))
}

fn seeds(value: &DeValue<'_>) -> Option<Vec<u64>> {
    if let Some(Written::Whole(count)) = written(value) {
        return (1..=VALUES_MAX.cast_signed()).contains(&count).then(|| (1..=count as u64).collect());
    }
    let list = value.as_array().filter(|list| !list.is_empty() && list.len() as u64 <= VALUES_MAX)?;
    let seed = |value: &Spanned<DeValue<'_>>| match written(value.get_ref()) {
        Some(Written::Whole(seed)) => u64::try_from(seed).ok(),
        _ => None,
    };
    list.iter().map(seed).collect()
}

fn words(value: &DeValue<'_>) -> Option<Vec<String>> {
    if let Some(word) = value.as_str() {
        return Some(vec![word.to_owned()]);
    }
    value.as_array()?.iter().map(|word| word.get_ref().as_str().map(str::to_owned)).collect()
}

/// Reads the default of a key, which is TOML.
pub(super) fn default_of(key: &Key) -> Option<Value> {
    let text = format!("value = {}", key.default?);
    let root = DeTable::parse(&text).unwrap_or_else(|error| panic!("the default of {} is TOML: {error}", key.name));
    let value = root.get_ref().iter().find_map(|(_, value)| written(value.get_ref()));
    let read = |written| Kind::read(key.kind, written);
    Some(value.map_or_else(|| Err("a table".to_owned()), read).unwrap_or_else(|why| panic!("{}: {why}", key.name)))
}
