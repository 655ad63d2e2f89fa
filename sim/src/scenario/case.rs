//! The values of a scenario's keys, and their combinations.

use super::key::{KEYS, Key, UNSET};
use super::value::{Meaning, Value, Written};
use std::collections::BTreeMap;
use std::time::Duration;

/// The values of every key that has values.
#[derive(Clone, Debug)]
pub(super) struct Values(pub BTreeMap<&'static str, Vec<Value>>);

impl Values {
    fn of(&self, key: &str) -> &[Value] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// The keys with more than one value.
    pub fn varied(&self) -> Vec<&'static Key> {
        KEYS.iter().filter(|key| self.of(key.name).len() > 1).collect()
    }

    /// True if every value of a key is a number along an axis.
    pub fn are_numbers(&self, key: &str) -> bool {
        self.of(key).iter().all(|value| value.meaning.along_axis().is_some())
    }

    /// All combinations of values, each once.
    ///
    /// # Errors
    /// The key whose values result in more than `most` combinations.
    pub fn combinations(&self, most: usize) -> Result<Vec<Case>, &'static str> {
        let mut cases = vec![Case { values: BTreeMap::new() }];
        for key in in_order().into_iter().filter(|key| self.0.contains_key(key.name)) {
            let mut wider = Vec::with_capacity(cases.len());
            for case in cases {
                if case.has(key) {
                    wider.extend(self.of(key.name).iter().map(|value| case.with(key.name, value)));
                } else {
                    wider.push(case);
                }
            }
            cases = wider;
            if cases.len() > most {
                return Err(key.name);
            }
        }
        Ok(cases)
    }

    /// True if a key applies in at least one case.
    pub fn may_apply(&self, key: &Key) -> bool {
        let Some((on, wanted)) = key.when else { return true };
        let other = Key::named(on);
        let applies = other.is_some_and(|other| self.may_apply(other))
            && self.of(on).iter().any(|value| value.meaning.is_word_of(wanted));
        applies || (wanted.contains(&UNSET) && other.is_some_and(|other| self.may_not_apply(other)))
    }

    /// True if a key does not apply in at least one case.
    fn may_not_apply(&self, key: &Key) -> bool {
        let Some((on, wanted)) = key.when else { return !self.0.contains_key(key.name) };
        self.of(on).iter().any(|value| !value.meaning.is_word_of(wanted))
            || (!wanted.contains(&UNSET) && Key::named(on).is_some_and(|other| self.may_not_apply(other)))
    }
}

/// The keys, each after the key that decides whether it applies.
pub(super) fn in_order() -> Vec<&'static Key> {
    let mut keys: Vec<&Key> = KEYS.iter().collect();
    keys.sort_by_key(|key| key.depth());
    keys
}

/// One combination of values, for all keys that apply in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The values by key name.
    pub values: BTreeMap<&'static str, Value>,
}

impl Case {
    /// The value of `key` as written, if the key applies in this case.
    pub fn written(&self, key: &str) -> Option<&Written> {
        self.values.get(key).map(|value| &value.written)
    }

    fn with(&self, key: &'static str, value: &Value) -> Self {
        let mut values = self.values.clone();
        values.insert(key, value.clone());
        Self { values }
    }

    /// True if `key` applies in this case.
    fn has(&self, key: &Key) -> bool {
        key.when.is_none_or(|(on, wanted)| match self.values.get(on) {
            Some(value) => value.meaning.is_word_of(wanted),
            None => wanted.contains(&UNSET),
        })
    }

    /// The meaning of the value of `key`, if the key applies in this case.
    pub(super) fn meaning_of(&self, key: &str) -> Option<&Meaning> {
        self.values.get(key).map(|value| &value.meaning)
    }

    /// The meaning of the value of a key that always applies.
    pub(super) fn meaning(&self, key: &'static str) -> &Meaning {
        self.meaning_of(key).unwrap_or_else(|| panic!("{key} has a value in every case"))
    }

    pub(super) fn word(&self, key: &'static str) -> &str {
        let Meaning::Word(word) = self.meaning(key) else { panic!("{key} is a word") };
        word
    }

    pub(super) fn whole(&self, key: &'static str) -> u64 {
        self.whole_or_word(key).unwrap_or_else(|| panic!("{key} is a whole number"))
    }

    pub(super) fn number(&self, key: &'static str) -> f64 {
        let Meaning::Number(number) = self.meaning(key) else { panic!("{key} is a number") };
        *number
    }

    pub(super) fn flag(&self, key: &'static str) -> bool {
        *self.meaning(key) == Meaning::Flag(true)
    }

    /// A whole number; `None` for the alternative word, or if the key does not apply.
    pub(super) fn whole_or_word(&self, key: &'static str) -> Option<u64> {
        if let Meaning::Whole(number) = self.meaning_of(key)? { Some(*number) } else { None }
    }

    /// A size; `None` for the alternative word.
    pub(super) fn bytes(&self, key: &'static str) -> Option<u64> {
        if let Meaning::Bytes(bytes) = self.meaning(key) { Some(*bytes) } else { None }
    }

    /// A rate; `None` for the alternative word.
    pub(super) fn bytes_per_s(&self, key: &'static str) -> Option<u64> {
        if let Meaning::BytesPerS(rate) = self.meaning(key) { Some(*rate) } else { None }
    }

    /// A duration; `None` for the alternative word, or if the key does not apply.
    pub(super) fn span(&self, key: &'static str) -> Option<Duration> {
        if let Meaning::Span(span) = self.meaning_of(key)? { Some(*span) } else { None }
    }
}
