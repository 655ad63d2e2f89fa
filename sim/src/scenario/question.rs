//! A scenario: its question, its values, and its plot.

use super::build;
use super::case::{Case, Values};
use super::key::{KEYS, Key};
use super::plot::Plot;
use super::read::{self, Draft, ScenarioError};
use super::sources::Sources;
use super::trial::Trial;
use std::collections::BTreeMap;

/// The highest number of cases that a scenario may have.
const CASES_MAX: usize = 10_000;

/// A question about a rack.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The question, in words.
    pub question: String,
    /// Each gives one run of every case.
    pub seeds: Vec<u64>,
    /// The plot, if one is described.
    pub plot: Option<Plot>,
    values: Values,
    /// The place at which each key is set.
    places: BTreeMap<String, String>,
    origin: String,
}

impl Scenario {
    /// The scenario of `text`, with each of `overrides` (`key=value`) in its place. `origin` names the text in
    /// messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
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

    /// Every combination of values, each once.
    ///
    /// # Errors
    /// When there are more than 10,000.
    pub fn cases(&self) -> Result<Vec<Case>, ScenarioError> {
        self.values.combinations(CASES_MAX).map_err(|key| {
            let why = format!("the values make more than {CASES_MAX} cases; write fewer values in some of the lists");
            self.refuse(key, &why)
        })
    }

    /// The trial of `case`.
    ///
    /// # Errors
    /// When values do not fit together, or a rack or trace cannot be had.
    pub fn trial(&self, case: &Case, sources: &mut Sources<'_>) -> Result<Trial, ScenarioError> {
        build::trial(case, &self.seeds, sources).map_err(|(key, why)| self.refuse(key, &why))
    }

    /// The keys that have more than one value.
    pub(super) fn varied(&self) -> Vec<&'static Key> {
        self.values.varied()
    }

    /// Refuses keys that were set and apply in no case.
    fn refuse_idle_keys(&self) -> Result<(), ScenarioError> {
        for key in KEYS.iter().filter(|key| self.places.contains_key(key.name)) {
            let Some((on, wanted)) = key.when else { continue };
            if !self.values.may_apply(key) {
                let why = format!("says nothing here; write {on} = \"{}\", or leave it out", wanted[0]);
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
