//! How the rules of the data thermometer move objects of RGW into a storage class whose pool has a hot-primary rule.
//!
//! 1. What S3's lifecycle can say (prefix, tags, whole days) becomes a transition, which RGW does by itself.
//! 2. What it cannot say (seconds, sizes, "unless a rule further up calls it hot") is done by copying an object onto
//!    itself with the cold class. RGW 16.2 drops a filter of sizes without a word, and the rule then holds for all: it
//!    must never get one.
//! 3. What needs facts that RGW has not (reads), or would lose something (a copy loses tags), is refused.
//!
//! Which objects are due is the engine's to say ([`Thermometer::judge`]), by the rules that are left after 3.
//!
//! Invariants: an object is moved only if a rule calls it cold and no rule further up can call it hot. Nothing is moved
//! because no rule holds for it, whatever the default is.

pub mod copy;
#[cfg(test)]
mod tests;
pub mod window;
mod xml;

use engine::thermometer::{Facts, Rule, Standing, Temperature, Thermometer};
use serde::Serialize;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);

/// How what a rule calls cold is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// By RGW, so many days after the object was written.
    Lifecycle {
        /// 1 at least.
        days: u32,
    },
    /// By a copy onto itself.
    Copy,
    /// It never decides: a rule further up holds whenever it does.
    Hidden,
    /// Not at all.
    Refused,
}

/// What becomes of a cold rule in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RulePlan {
    /// Its number in larder.toml, from 1.
    pub number: usize,
    /// Its name; may be empty.
    pub name: String,
    /// How it moves objects.
    pub way: Way,
    /// Why.
    pub reason: String,
}

/// The rules as they are for one bucket.
#[derive(Clone, Debug)]
pub struct BucketRules {
    /// Its cold rules.
    pub plans: Vec<RulePlan>,
    rules: Vec<Rule>,
    /// The rules that count, and the number of each from 1.
    judge: Thermometer,
    numbers: Vec<usize>,
}

impl BucketRules {
    /// Those of `bucket`. If `lifecycle_is_taken`, its lifecycle configuration is another's, and stays as it is.
    pub fn of(thermometer: &Thermometer, bucket: &str, lifecycle_is_taken: bool) -> Self {
        let about = |rule: &Rule| rule.bucket.as_deref().is_none_or(|named| named == bucket);
        let rules: Vec<(usize, &Rule)> = (1..).zip(&thermometer.rules).filter(|(_, rule)| about(rule)).collect();
        let plan = |index: usize| {
            let (number, rule) = rules[index];
            let (way, reason) = way(&rules[..index], rule, lifecycle_is_taken);
            RulePlan { number, name: rule.name.clone(), way, reason }
        };
        let cold = |index: &usize| rules[*index].1.is == Temperature::Cold;
        let plans: Vec<RulePlan> = (0..rules.len()).filter(cold).map(plan).collect();
        let is_refused = |number: usize| plans.iter().any(|plan| plan.number == number && plan.way == Way::Refused);
        let counts = |(number, rule): &&(usize, &Rule)| !is_refused(*number) && missing_fact(rule).is_none();
        let (numbers, judged) = rules.iter().filter(counts).map(|(number, rule)| (*number, (*rule).clone())).unzip();
        let judge = Thermometer { rules: judged, default: Temperature::Hot };
        Self { plans, rules: thermometer.rules.clone(), judge, numbers }
    }

    /// The plan of the rule that calls an object cold at `now_ms`, if one does. Facts without reads.
    pub fn due(&self, facts: &Facts, now_ms: u64) -> Option<&RulePlan> {
        let verdict = self.judge.judge(facts, now_ms);
        let number = self.numbers[verdict.rule.filter(|_| verdict.standing == Standing::Due)?];
        let plan = self.plans.iter().find(|plan| plan.number == number);
        assert!(plan.is_some(), "rule {number} is cold, and cold rules have plans");
        plan
    }

    /// Whether a rule moves objects by copies.
    pub fn copies(&self) -> bool {
        self.plans.iter().any(|plan| plan.way == Way::Copy)
    }

    /// The lifecycle configuration that moves objects to `class`, as XML; `None` if no rule is of this way.
    pub fn lifecycle(&self, class: &str) -> Option<String> {
        let transition = |plan: &RulePlan| match plan.way {
            Way::Lifecycle { days } => Some(xml::transition(plan.number, &self.rules[plan.number - 1], days, class)),
            _ => None,
        };
        let rules: String = self.plans.iter().filter_map(transition).collect();
        (!rules.is_empty()).then(|| format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>"))
    }
}

/// Whether a lifecycle rule of this ID is Larder's.
pub fn is_own_rule(id: &str) -> bool {
    id.starts_with(xml::ID_PREFIX)
}

/// The way of the cold `rule` behind `before`, and why.
fn way(before: &[(usize, &Rule)], rule: &Rule, lifecycle_is_taken: bool) -> (Way, String) {
    if let Some(fact) = missing_fact(rule) {
        return (Way::Refused, format!("RGW does not know {fact}"));
    }
    let rivals: Vec<&(usize, &Rule)> = before.iter().filter(|(_, other)| may_overlap(other, rule)).collect();
    if let Some((number, _)) = rivals.iter().find(|(_, other)| covers(other, rule)) {
        return (Way::Hidden, format!("rule {number} comes first, and holds whenever it does"));
    }
    let mut hot = rivals.into_iter().filter(|(_, other)| other.is == Temperature::Hot);
    if let Some((number, fact)) = hot.clone().find_map(|(number, other)| Some((number, missing_fact(other)?))) {
        return (Way::Refused, format!("rule {number} comes first and may call it hot, and RGW does not know {fact}"));
    }
    let why_copy = if let Some((number, _)) = hot.next() {
        format!("lifecycle cannot leave out what rule {number} calls hot")
    } else if rule.larger_than_bytes.is_some() || rule.smaller_than_bytes.is_some() {
        "lifecycle of RGW knows no sizes".to_owned()
    } else if whole_days(rule.older_than).is_none() {
        "lifecycle knows whole days only, from 1 on".to_owned()
    } else if lifecycle_is_taken {
        "the bucket has a lifecycle of its own, which is not touched".to_owned()
    } else {
        let days = whole_days(rule.older_than).unwrap_or(1);
        return (Way::Lifecycle { days }, "lifecycle can say it".to_owned());
    };
    if rule.tags.is_empty() {
        (Way::Copy, why_copy)
    } else {
        (Way::Refused, format!("{why_copy}, and a copy would lose the tags"))
    }
}

/// The fact that `rule` needs and RGW has not.
fn missing_fact(rule: &Rule) -> Option<&'static str> {
    if rule.unread_for > Duration::ZERO {
        Some("when an object was read (`unread_for`)")
    } else if rule.reads_at_least > 0 {
        Some("how often an object was read (`reads_at_least`)")
    } else if rule.read_through {
        Some("whether an object was read through (`read_through`)")
    } else {
        None
    }
}

/// The days of `span`, if it is a number of whole ones from 1 on.
fn whole_days(span: Duration) -> Option<u32> {
    let is_whole = span >= DAY && span.subsec_nanos() == 0 && span.as_secs().is_multiple_of(DAY.as_secs());
    u32::try_from(span.as_secs() / DAY.as_secs()).ok().filter(|_| is_whole)
}

/// Sizes that a rule allows, from the first to the last.
fn sizes(rule: &Rule) -> (u64, u64) {
    let first = rule.larger_than_bytes.map_or(0, |limit| limit.saturating_add(1));
    (first, rule.smaller_than_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(1)))
}

/// Whether both rules can hold for one object.
fn may_overlap(one: &Rule, other: &Rule) -> bool {
    let ((first, last), (other_first, other_last)) = (sizes(one), sizes(other));
    let is_apart = |(key, value): &(String, String)| other.tags.iter().any(|(k, v)| k == key && v != value);
    (one.prefix.starts_with(&*other.prefix) || other.prefix.starts_with(&*one.prefix))
        && first.max(other_first) <= last.min(other_last)
        && !one.tags.iter().any(is_apart)
}

/// Whether `one`, which is of the same bucket, holds whenever `other` does.
fn covers(one: &Rule, other: &Rule) -> bool {
    let ((first, last), (other_first, other_last)) = (sizes(one), sizes(other));
    missing_fact(one).is_none()
        && other.prefix.starts_with(&*one.prefix)
        && one.tags.iter().all(|tag| other.tags.contains(tag))
        && (first <= other_first && other_last <= last)
        && one.older_than <= other.older_than
}
