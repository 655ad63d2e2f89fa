//! Moves objects of RGW, by the rules of the data thermometer, into a storage class whose pool has a hot-primary rule.
//!
//! 1. A rule that S3's lifecycle can express (prefix, tags, whole days) becomes a transition, which RGW does by itself.
//! 2. A rule that it cannot express (seconds, sizes, "unless a rule further up calls it hot") copies an object onto
//!    itself with the cold class. RGW 16.2 silently drops a filter of sizes, and the rule then holds for all objects:
//!    it must never get one.
//! 3. A rule is refused if it needs facts that RGW does not have (reads), or if its move would lose something (a copy
//!    loses tags).
//!
//! The engine decides which objects are due ([`Thermometer::judge`]), by the rules that are left after 3.
//!
//! Invariants: an object is moved only if a rule calls it cold and no rule further up can call it hot. An object for
//! which no rule holds is not moved, regardless of the default.

pub mod copy;
#[cfg(test)]
mod tests;
pub mod window;
mod xml;

use engine::thermometer::{Facts, Rule, Standing, Temperature, Thermometer};
use serde::Serialize;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);

/// The way to move the objects that a rule calls cold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// By RGW, this number of days after the object was written.
    Lifecycle {
        /// At least 1.
        days: u32,
    },
    /// By a copy onto itself.
    Copy,
    /// Never used: a rule further up holds whenever this one does.
    Hidden,
    /// Not at all.
    Refused,
}

/// The plan for a cold rule in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RulePlan {
    /// Its number in larder.toml, from 1.
    pub number: usize,
    /// Its name; may be empty.
    pub name: String,
    /// The way in which it moves objects.
    pub way: Way,
    /// The reason.
    pub reason: String,
}

/// The rules for one bucket.
#[derive(Clone, Debug)]
pub struct BucketRules {
    /// Its cold rules.
    pub plans: Vec<RulePlan>,
    rules: Vec<Rule>,
    /// The rules that count, and the number of each, from 1.
    judge: Thermometer,
    numbers: Vec<usize>,
}

impl BucketRules {
    /// The rules for `bucket`. If `lifecycle_is_taken`, its lifecycle configuration is not Larder's, and stays as it
    /// is.
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

    /// The plan of the rule that calls an object cold at `now_ms`, if any. The facts have no reads.
    pub fn due(&self, facts: &Facts, now_ms: u64) -> Option<&RulePlan> {
        let verdict = self.judge.judge(facts, now_ms);
        let number = self.numbers[verdict.rule.filter(|_| verdict.standing == Standing::Due)?];
        let plan = self.plans.iter().find(|plan| plan.number == number);
        assert!(plan.is_some(), "rule {number} is cold, and cold rules have plans");
        plan
    }

    /// True if a rule moves objects by copies.
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

/// True if the lifecycle rule of this ID is Larder's.
pub fn is_own_rule(id: &str) -> bool {
    id.starts_with(xml::ID_PREFIX)
}

/// The way of the cold `rule`, which comes after `before`, and the reason.
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

/// The fact that `rule` needs and RGW does not have.
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

/// The days of `span`, if it is a whole number of days, at least 1.
fn whole_days(span: Duration) -> Option<u32> {
    let is_whole = span >= DAY && span.subsec_nanos() == 0 && span.as_secs().is_multiple_of(DAY.as_secs());
    u32::try_from(span.as_secs() / DAY.as_secs()).ok().filter(|_| is_whole)
}

/// The smallest and the largest size that a rule allows.
fn sizes(rule: &Rule) -> (u64, u64) {
    let first = rule.larger_than_bytes.map_or(0, |limit| limit.saturating_add(1));
    (first, rule.smaller_than_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(1)))
}

/// True if both rules can hold for one object.
fn may_overlap(one: &Rule, other: &Rule) -> bool {
    let ((first, last), (other_first, other_last)) = (sizes(one), sizes(other));
    let is_apart = |(key, value): &(String, String)| other.tags.iter().any(|(k, v)| k == key && v != value);
    (one.prefix.starts_with(&*other.prefix) || other.prefix.starts_with(&*one.prefix))
        && first.max(other_first) <= last.min(other_last)
        && !one.tags.iter().any(is_apart)
}

/// True if `one`, a rule for the same bucket, holds whenever `other` does.
fn covers(one: &Rule, other: &Rule) -> bool {
    let ((first, last), (other_first, other_last)) = (sizes(one), sizes(other));
    missing_fact(one).is_none()
        && other.prefix.starts_with(&*one.prefix)
        && one.tags.iter().all(|tag| other.tags.contains(tag))
        && (first <= other_first && other_last <= last)
        && one.older_than <= other.older_than
}
