//! Finds the values of some keys in lines of JSON; the rest of a line is skipped.
//!
//! If an object has a key twice, the last value counts.

use crate::error::Error;
use crate::format::Format;
use arrow_array::builder::BinaryBuilder;
use arrow_array::builder::StringBuilder;
use arrow_array::{Array, ArrayRef, BinaryArray};
use parking_lot::Mutex;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The values of `names` in each record, as texts.
pub(super) fn fields(records: &BinaryArray, names: &[String], seen: &Mutex<Seen>) -> Result<Vec<ArrayRef>, Error> {
    let mut met = Seen::none_of(names.len());
    let mut columns: Vec<_> = names.iter().map(|_| StringBuilder::with_capacity(records.len(), 0)).collect();
    let mut found = vec![None; names.len()];
    for row in 0..records.len() {
        pick(records, row, names, &mut found)?;
        met.look(records.value(row), &found);
        for ((column, name), value) in columns.iter_mut().zip(names).zip(&found) {
            column.append_option(value.map(|value| text(value, name)).transpose()?.flatten());
        }
    }
    seen.lock().add(met);
    Ok(columns.into_iter().map(|mut column| Arc::new(column.finish()) as ArrayRef).collect())
}

/// Each record with these keys alone, in this order, and the values as written in it.
pub(super) fn chosen(records: &BinaryArray, names: &[String], seen: &Mutex<Seen>) -> Result<BinaryArray, Error> {
    let mut met = Seen::none_of(names.len());
    let keys: Vec<String> = names.iter().map(|name| serde_json::Value::from(name.as_str()).to_string()).collect();
    let mut chosen = BinaryBuilder::with_capacity(records.len(), records.values().len());
    let mut found = vec![None; names.len()];
    let mut line = String::new();
    for row in 0..records.len() {
        pick(records, row, names, &mut found)?;
        met.look(records.value(row), &found);
        line.clear();
        line.push('{');
        for (key, value) in keys.iter().zip(&found) {
            if let Some(value) = value {
                let comma = if line.len() > 1 { "," } else { "" };
                line.extend([comma, key, ":", value.get()]);
            }
        }
        line.push('}');
        chosen.append_value(&line);
    }
    seen.lock().add(met);
    Ok(chosen.finish())
}

/// The keys found so far, in their persisted form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownKeys {
    keys: Vec<bool>,
    first: Option<Vec<String>>,
}

/// The keys found in any record so far, with any value.
#[derive(Debug)]
pub(crate) struct Seen {
    keys: Vec<bool>,
    /// The keys of the first record, to find the nearest name among them.
    first: Option<Vec<String>>,
}

impl Seen {
    pub(crate) fn none_of(keys: usize) -> Self {
        Self { keys: vec![false; keys], first: None }
    }

    pub(crate) fn known(&self) -> KnownKeys {
        KnownKeys { keys: self.keys.clone(), first: self.first.clone() }
    }

    pub(crate) fn know(&mut self, known: &KnownKeys) {
        self.first.clone_from(&known.first);
        self.keys.iter_mut().zip(&known.keys).for_each(|(seen, found)| *seen |= found);
    }

    fn look(&mut self, record: &[u8], found: &[Option<&RawValue>]) {
        assert_eq!(self.keys.len(), found.len(), "every key was looked for");
        self.first.get_or_insert_with(|| {
            let keys: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(record).unwrap_or_default();
            keys.into_iter().map(|(key, _)| key).collect()
        });
        self.keys.iter_mut().zip(found).for_each(|(seen, found)| *seen |= found.is_some());
    }

    /// Adds the keys found in other records.
    fn add(&mut self, other: Self) {
        self.first = self.first.take().or(other.first);
        self.keys.iter_mut().zip(other.keys).for_each(|(seen, found)| *seen |= found);
    }

    /// Refuses a key that no record had, unless there were no records.
    pub(crate) fn all(&self, names: &[String]) -> Result<(), Error> {
        let Some(first) = &self.first else { return Ok(()) };
        match self.keys.iter().position(|seen| !seen) {
            Some(absent) => Err(Error::missing(&names[absent], first.iter().map(String::as_str))),
            None => Ok(()),
        }
    }
}

/// Finds the raw values of `names` in a record.
fn pick<'a>(
    records: &'a BinaryArray,
    row: usize,
    names: &[String],
    found: &mut [Option<&'a RawValue>],
) -> Result<(), Error> {
    found.fill(None);
    let mut json = serde_json::Deserializer::from_slice(records.value(row));
    let picked = FieldPick { names, found }.deserialize(&mut json).and_then(|()| json.end());
    picked.map_err(|error| Error::Malformed {
        record: row as u64 + 1,
        format: Format::Ndjson,
        reason: error.to_string(),
    })
}

struct FieldPick<'n, 'f, 'de> {
    names: &'n [String],
    found: &'f mut [Option<&'de RawValue>],
}

impl<'de> DeserializeSeed<'de> for FieldPick<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldPick<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object on a line")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<JsonKey<'de>>()? {
            match self.names.iter().position(|name| *name == key.0) {
                Some(index) => self.found[index] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// A key, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct JsonKey<'a>(#[serde(borrow)] Cow<'a, str>);

/// A value as text; `None` for null.
fn text<'a>(value: &'a RawValue, name: &str) -> Result<Option<Cow<'a, str>>, Error> {
    let raw = value.get();
    match raw.as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'"') => {
            let JsonKey(text) = serde_json::from_str(raw)
                .map_err(|error| Error::Columns { doing: "reading a text", reason: error.to_string() })?;
            Ok(Some(text))
        }
        Some(b'{' | b'[') => {
            Err(Error::NotAKey { column: name.to_owned(), kind: String::from("list or an object in an object") })
        }
        _ => Ok(Some(Cow::Borrowed(raw))),
    }
}
