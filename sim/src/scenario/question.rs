//! A scenario: its question, its values, and its plot.

use super::build;
use super::case::{Case, Values};
use super::key::{KEYS, Key};
use super::plot::Plot;
use super::read::{self, Draft, ScenarioError};
use super::sources::Sources;
use super::trial::Trial;
use std::collections::BTreeMap;

/// The maximum number of cases of a scenario.
const CASES_MAX: usize = 10_000;

/// A question about a rack.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The question, in words.
    pub question: String,
    /// The seeds; each gives one run of every case.
    pub seeds: Vec<u64>,
    /// The plot, if the scenario describes one.
    pub plot: Option<Plot>,
    values: Values,
    /// The place in the text where each key is set.
    places: BTreeMap<String, String>,
    origin: String,
}

impl Scenario {
    /// The scenario of `text`, in which each of `overrides` (`key=value`) replaces a key. `origin` names the text in
    /// messages.
    ///
    /// # Errors
    /// The first error in the text, with its place.
    pub fn parse(text: &str, origin: &str, overrides: &[String]) -> Result<Self, ScenarioError> {
        let mut draft = Draft::default();
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
            values: Values(values),
            places: draft.places,
            origin: origin.to_owned(),
        };
        scenario.refuse_idle_keys()?;
        if !draft.plot.is_empty() {
            let plot = Plot::read(&draft.plot, &scenario.values);
            scenario.plot = Some(plot.map_err(|(key, why)| scenario.refuse(key, &why))?);
        }
        Ok(scenario)
    }

    /// All combinations of values, each once.
    ///
    /// # Errors
    /// An error if there are more than 10,000.
    pub fn cases(&self) -> Result<Vec<Case>, ScenarioError> {
        self.values.combinations(CASES_MAX).map_err(|key| {
            let why = format!("the values make more than {CASES_MAX} cases; write fewer values in some of the lists");
            self.refuse(key, &why)
        })
    }

    /// The trial of `case`.
    ///
    /// # Errors
    /// An error if values do not fit together, or if a rack or trace is not available.
    pub fn trial(&self, case: &Case, sources: &mut Sources<'_>) -> Result<Trial, ScenarioError> {
        build::trial(case, &self.seeds, sources).map_err(|(key, why)| self.refuse(key, &why))
    }

    /// The keys with more than one value.
    pub(super) fn varied(&self) -> Vec<&'static Key> {
        self.values.varied()
    }

    /// Rejects keys that were set but apply in no case.
    fn refuse_idle_keys(&self) -> Result<(), ScenarioError> {
        for key in KEYS.iter().filter(|key| self.places.contains_key(key.name)) {
            let Some((on, wanted)) = key.when else { continue };
            if !self.values.may_apply(key) {
                let why = format!("has no effect here; write {on} = \"{}\", or leave it out", wanted[0]);
                return Err(self.refuse(key.name, &why));
            }
        }
        Ok(())
    }

    fn refuse(&self, key: &str, why: &str) -> ScenarioError {
        let place = self.places.get(key).cloned().unwrap_or_else(|| self.origin.clone());
        ScenarioError { place, message: format!("`{key}`: {why}") }
    }
}
