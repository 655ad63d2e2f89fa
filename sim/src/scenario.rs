//! Scenarios: a question about a rack, as a file that anyone can run again.
//!
//! A scenario is TOML: parameters, any of which may be a list of values or a range, and a plot. Its cases are the
//! product of all values, in the order of [`KEYS`], the last one changing fastest. `docs/simulator.md` is the grammar
//! for people.
//!
//! Invariants:
//! - every refusal names its place, says what is wrong, and then what to write instead;
//! - nothing here reads a file: racks and traces come from [`Sources`];
//! - the same scenario has the same cases, and each has all values that hold in it, defaults included.

mod build;
mod key;
mod measure;
mod plot;
mod read;
mod report;
#[cfg(test)]
mod tests;
mod trial;
mod value;

use model::RackSpec;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use key::{KEYS, Key};
pub use measure::{MEASURES, Measure};
pub use plot::Plot;
pub use report::{Asked, csv, page, short_table, wear};
pub use trial::{Found, Trial, TrialError};
pub use value::{Kind, Meaning, Value, Written};

/// Cases that a scenario may have.
pub const CASES_MAX: usize = 10_000;

/// Why a text is no scenario: where, what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ScenarioError {
    /// `file:line:column`, or the override.
    pub place: String,
    /// What is wrong; what to write instead.
    pub message: String,
}

/// A question about a rack. See the head of this file.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What is asked, in words.
    pub question: String,
    /// One run of every case for each.
    pub seeds: Vec<u64>,
    /// The plot, if one is described.
    pub plot: Option<Plot>,
    /// The values of every key.
    values: BTreeMap<&'static str, Vec<Value>>,
    /// Where each key is set.
    places: BTreeMap<String, String>,
    origin: String,
}

/// One combination of values: those of all keys that say something in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// By the key's name.
    pub values: BTreeMap<&'static str, Value>,
}

/// What was asked in a case, and what came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What was asked.
    pub case: Case,
    /// What came out.
    pub found: Found,
}

/// A rack, or the path of a trace that can be replayed, by its name in the scenario; or why it cannot be had.
pub type Source<'a, T> = &'a dyn Fn(&str) -> Result<T, String>;

/// Where racks and traces come from. Each is asked for once, however many cases name it.
pub struct Sources<'a> {
    rack: Source<'a, RackSpec>,
    trace: Source<'a, PathBuf>,
    racks: BTreeMap<String, RackSpec>,
    traces: BTreeMap<String, PathBuf>,
    limited: BTreeMap<Limited, RackSpec>,
}

/// A rack's name, how many of its groups may be active, and what its drives may draw, in watts.
type Limited = (String, Option<u32>, Option<u32>);

impl<'a> Sources<'a> {
    /// Asks these, each of which says what is wrong with a name and what to write instead.
    pub fn new(rack: Source<'a, RackSpec>, trace: Source<'a, PathBuf>) -> Self {
        Self { rack, trace, racks: BTreeMap::new(), traces: BTreeMap::new(), limited: BTreeMap::new() }
    }

    fn rack(&mut self, name: &str) -> Result<RackSpec, String> {
        let ask = self.rack;
        once(&mut self.racks, name, ask)
    }

    fn trace(&mut self, name: &str) -> Result<PathBuf, String> {
        let ask = self.trace;
        once(&mut self.traces, name, ask)
    }

    fn limited(&mut self, name: Limited, make: impl FnOnce() -> Result<RackSpec, String>) -> Result<RackSpec, String> {
        if let Some(found) = self.limited.get(&name) {
            return Ok(found.clone());
        }
        let made = make()?;
        self.limited.insert(name, made.clone());
        Ok(made)
    }
}

fn once<T: Clone>(known: &mut BTreeMap<String, T>, name: &str, ask: Source<'_, T>) -> Result<T, String> {
    if let Some(found) = known.get(name) {
        return Ok(found.clone());
    }
    let found = ask(name)?;
    known.insert(name.to_owned(), found.clone());
    Ok(found)
}

impl Scenario {
    /// The scenario of `text`, with each of `overrides` (`key=value`) in its place. `origin` names the text in
    /// messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, origin: &str, overrides: &[String]) -> Result<Self, ScenarioError> {
        let mut draft = read::Draft::default();
        draft.take_text(text, origin)?;
        for setting in overrides {
            draft.take_override(setting)?;
        }
        let mut values = draft.settings;
        for key in KEYS {
            if !values.contains_key(key.name)
                && let Some(default) = read::default_of(key)
            {
                values.insert(key.name, vec![default]);
            }
        }
        let mut scenario = Self {
            question: draft.question.unwrap_or_else(|| origin.to_owned()),
            seeds: draft.seeds.unwrap_or_else(|| vec![1]),
            plot: None,
            values,
            places: draft.places,
            origin: origin.to_owned(),
        };
        scenario.refuse_idle_keys()?;
        if !draft.plot.is_empty() {
            let plot = Plot::read(&draft.plot, &scenario).map_err(|(key, told)| scenario.refuse(key, &told))?;
            scenario.plot = Some(plot);
        }
        Ok(scenario)
    }

    /// Every combination of values, each once.
    ///
    /// # Errors
    /// When there are more than [`CASES_MAX`].
    pub fn cases(&self) -> Result<Vec<Case>, ScenarioError> {
        let mut cases = vec![Case { values: BTreeMap::new() }];
        for key in in_order() {
            let Some(values) = self.values.get(key.name) else { continue };
            let mut wider = Vec::with_capacity(cases.len());
            for case in cases {
                let applies = key.applies_in(&case);
                let taken = if applies { values.as_slice() } else { &[] };
                wider.extend(taken.iter().map(|value| case.with(key.name, value)));
                if !applies {
                    wider.push(case);
                }
            }
            cases = wider;
            if cases.len() > CASES_MAX {
                let told =
                    format!("the values make more than {CASES_MAX} cases; write fewer values in some of the lists");
                return Err(self.refuse(key.name, &told));
            }
        }
        Ok(cases)
    }

    /// What is run for `case`.
    ///
    /// # Errors
    /// When values do not fit together, or a rack or trace cannot be had.
    pub fn trial(&self, case: &Case, sources: &mut Sources<'_>) -> Result<Trial, ScenarioError> {
        build::trial(case, &self.seeds, sources).map_err(|(key, told)| self.refuse(key, &told))
    }

    /// The keys that have more than one value.
    pub fn varied(&self) -> Vec<&'static str> {
        let many = |key: &&Key| self.values.get(key.name).is_some_and(|values| values.len() > 1);
        KEYS.iter().filter(many).map(|key| key.name).collect()
    }

    /// Refuses keys that were set and say nothing in any case.
    fn refuse_idle_keys(&self) -> Result<(), ScenarioError> {
        for key in KEYS.iter().filter(|key| self.places.contains_key(key.name)) {
            let Some((on, wanted)) = key.when else { continue };
            if !self.may_say(key) {
                let told = format!("says nothing here; write {on} = \"{}\", or leave it out", wanted[0]);
                return Err(self.refuse(key.name, &told));
            }
        }
        Ok(())
    }

    /// Whether a key says something in some case.
    fn may_say(&self, key: &Key) -> bool {
        let Some((on, wanted)) = key.when else { return true };
        let other = Key::named(on);
        let wants = |value: &Value| matches!(&value.meaning, Meaning::Word(word) if wanted.contains(&word.as_str()));
        let says = other.is_some_and(|other| self.may_say(other))
            && self.values.get(on).is_some_and(|values| values.iter().any(wants));
        says || (wanted.contains(&key::UNSAID) && other.is_some_and(|other| self.may_be_silent(other)))
    }

    /// Whether a key says nothing in some case.
    fn may_be_silent(&self, key: &Key) -> bool {
        let Some((on, wanted)) = key.when else { return !self.values.contains_key(key.name) };
        let unwanted =
            |value: &Value| !matches!(&value.meaning, Meaning::Word(word) if wanted.contains(&word.as_str()));
        let spoken = self.values.get(on).is_some_and(|values| values.iter().any(unwanted));
        spoken || (!wanted.contains(&key::UNSAID) && Key::named(on).is_some_and(|other| self.may_be_silent(other)))
    }

    fn refuse(&self, key: &str, told: &str) -> ScenarioError {
        let place = self.places.get(key).cloned().unwrap_or_else(|| self.origin.clone());
        ScenarioError { place, message: format!("`{key}`: {told}") }
    }
}

/// The keys, each behind the one that decides whether it says something.
fn in_order() -> Vec<&'static Key> {
    let mut keys: Vec<&Key> = KEYS.iter().collect();
    keys.sort_by_key(|key| key.depth());
    keys
}

impl Key {
    fn applies_in(&self, case: &Case) -> bool {
        self.when.is_none_or(|(on, wanted)| match case.values.get(on).map(|value| &value.meaning) {
            Some(Meaning::Word(word)) => wanted.contains(&word.as_str()),
            Some(_) => false,
            None => wanted.contains(&key::UNSAID),
        })
    }
}

impl Case {
    fn with(&self, key: &'static str, value: &Value) -> Self {
        let mut values = self.values.clone();
        values.insert(key, value.clone());
        Self { values }
    }

    /// The value of `key` as it is written, if it says something in this case.
    pub fn written(&self, key: &str) -> Option<&Written> {
        self.values.get(key).map(|value| &value.written)
    }
}
