//! The data thermometer: which objects are cold (Serviceable cold storage, section III: rules of a tenant over local
//! facts only).
//!
//! 1. A [`Rule`] names objects (bucket, prefix, tags, size) and the conditions for its temperature: the objects are old
//!    enough, unread for long enough, read often enough, or read through. All of its conditions must hold.
//! 2. If several rules hold, only the first counts. An object's temperature changes with time only when an earlier rule
//!    comes to hold, or when the object is read.
//! 3. An object for which no rule holds has the temperature [`Thermometer::default`]. That is hot, and then it never
//!    becomes cold by age alone; or it is cold, and then it moves as it would without a thermometer
//!    (`MigrationPolicy`'s ages and thresholds).
//! 4. An object that a rule calls cold is due: it moves however empty the workshop is. A hot object stays. Above the
//!    critical threshold it moves after all others, and only as far as necessary, since a full workshop takes no data.
//!
//! A rule can express everything that a lifecycle rule of S3 can (prefix, tags, sizes, days), and more; a caller that
//! reads such rules adds them to [`Thermometer::rules`].
//!
//! Invariants: a verdict follows from the facts and the current time alone. Times are milliseconds of the world's
//! clock. A time further ahead of now than a rule's span shows a clock that stepped back: the real age is unknown, and
//! the time counts as long ago, or its object would stay until the clock reaches that time again.

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// Hot data stays in the workshop, cold data may leave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Temperature {
    /// It may leave.
    #[default]
    Cold,
    /// It stays.
    Hot,
}

/// A rule. A condition that is not set holds for every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// Its name for people; may be empty.
    pub name: String,
    /// The temperature of the objects for which it holds.
    pub is: Temperature,
    /// The bucket.
    pub bucket: Option<String>,
    /// The beginning of the key.
    pub prefix: String,
    /// Tags that the object must have.
    pub tags: Vec<(String, String)>,
    /// The object has more bytes.
    pub larger_than_bytes: Option<u64>,
    /// The object has fewer bytes.
    pub smaller_than_bytes: Option<u64>,
    /// Minimum age of its bytes.
    pub older_than: Duration,
    /// Minimum time for which it was neither read nor written.
    pub unread_for: Duration,
    /// Minimum number of reads since it was staged.
    pub reads_at_least: u64,
    /// Every byte of it was read since it was staged.
    pub read_through: bool,
}

/// The facts about a staged object: local facts, as in the paper. Times are in milliseconds of the world's clock.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its bucket.
    pub bucket: &'a str,
    /// Its key.
    pub key: &'a str,
    /// Its tags.
    pub tags: &'a [(String, String)],
    /// Its length.
    pub bytes: u64,
    /// When its bytes were created; copies and moves preserve this time.
    pub created_ms: u64,
    /// When it was last read since it was staged; `None` if it was not.
    pub read_ms: Option<u64>,
    /// The number of its reads since it was staged.
    pub reads: u64,
    /// True if every byte of it was read since it was staged.
    pub is_read_through: bool,
}

/// The state of a rule for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleState {
    /// It does not hold, and time alone does not change that.
    Never,
    /// It will hold from this time on, if the object is not read before.
    From(u64),
    /// It has held since this time.
    Since(u64),
}

/// The standing of an object with the migrator, in the order in which data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A rule calls it cold.
    Due,
    /// No rule holds for it, and the default is cold: ages and thresholds decide.
    Cold,
    /// It is hot.
    Hot,
}

/// The verdict of the policy's thermometer on a staged version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heat {
    /// It is due by a rule, for this time in modelled time.
    Due(Duration),
    /// It is cold because no rule holds for it.
    #[default]
    Cold,
    /// It is hot.
    Hot,
}

/// The verdict of a thermometer on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its standing.
    pub standing: Standing,
    /// The number of the rule that decided, in their order from 0; `None` if none held.
    pub rule: Option<usize>,
    /// The time since which that rule holds; the object's creation, if none does.
    pub since_ms: u64,
    /// The next change of its standing, if the object is not read before.
    pub next: Option<Change>,
}

/// A change to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at_ms: u64,
    /// Its standing then.
    pub standing: Standing,
    /// The rule that decides then.
    pub rule: usize,
}

/// The rules, in their order. Without any, and cold by default, there is no thermometer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Thermometer {
    /// The rules; the first that holds counts.
    pub rules: Vec<Rule>,
    /// The temperature of objects for which no rule holds.
    pub default: Temperature,
}

impl Thermometer {
    /// No thermometer.
    pub const fn none() -> Self {
        Self { rules: Vec::new(), default: Temperature::Cold }
    }

    /// True if it has rules, or calls anything hot.
    pub fn is_used(&self) -> bool {
        !self.rules.is_empty() || self.default == Temperature::Hot
    }

    /// True if a rule can make an object cold.
    pub fn has_cold_rules(&self) -> bool {
        self.rules.iter().any(|rule| rule.is == Temperature::Cold)
    }

    /// True if ages, tags or reads of an object can matter. Otherwise [`Self::unruled`] is its standing.
    pub fn names(&self, bucket: &str, key: &str, bytes: u64) -> bool {
        self.rules.iter().any(|rule| rule.names(bucket, key, bytes))
    }

    /// The standing of an object for which no rule holds.
    pub fn unruled(&self) -> Standing {
        match self.default {
            Temperature::Cold => Standing::Cold,
            Temperature::Hot => Standing::Hot,
        }
    }

    /// The verdict on an object at `now_ms`.
    pub fn judge(&self, facts: &Facts, now_ms: u64) -> Verdict {
        let states: Vec<RuleState> = self.rules.iter().map(|rule| rule.state(facts, now_ms)).collect();
        let holding = states.iter().position(|state| matches!(state, RuleState::Since(_)));
        let since_ms = match holding.map(|rule| states[rule]) {
            Some(RuleState::Since(since_ms)) => since_ms,
            _ => facts.created_ms.min(now_ms),
        };
        let standing = holding.map_or(self.unruled(), |rule| self.rules[rule].standing());
        let next = self.next_change(&states[..holding.unwrap_or(states.len())], standing);
        assert!(next.is_none_or(|next| next.at_ms > now_ms), "what is to come lies ahead");
        Verdict { standing, rule: holding, since_ms, next }
    }

    /// The first change of `standing` by the rules before the one that holds, with their states.
    fn next_change(&self, before: &[RuleState], standing: Standing) -> Option<Change> {
        let mut next: Option<Change> = None;
        for (rule, state) in before.iter().enumerate() {
            let RuleState::From(at_ms) = *state else { continue };
            // An earlier rule that holds by then hides this one.
            let is_hidden =
                before[..rule].iter().any(|state| matches!(state, RuleState::From(other) if *other <= at_ms));
            let then = self.rules[rule].standing();
            if then != standing && !is_hidden && next.is_none_or(|next| at_ms < next.at_ms) {
                next = Some(Change { at_ms, standing: then, rule });
            }
        }
        next
    }
}

impl Verdict {
    /// The verdict for the migrator; `due_for` is the time for which the rule has held, in modelled time.
    pub fn heat(&self, due_for: Duration) -> Heat {
        match self.standing {
            Standing::Due => Heat::Due(due_for),
            Standing::Cold => Heat::Cold,
            Standing::Hot => Heat::Hot,
        }
    }
}

impl Rule {
    fn standing(&self) -> Standing {
        match self.is {
            Temperature::Cold => Standing::Due,
            Temperature::Hot => Standing::Hot,
        }
    }

    /// True if it names objects of this bucket, key and length.
    pub fn names(&self, bucket: &str, key: &str, bytes: u64) -> bool {
        self.bucket.as_deref().is_none_or(|named| named == bucket)
            && key.starts_with(&*self.prefix)
            && self.larger_than_bytes.is_none_or(|limit| bytes > limit)
            && self.smaller_than_bytes.is_none_or(|limit| bytes < limit)
    }

    /// Its state for an object at `now_ms`.
    pub fn state(&self, facts: &Facts, now_ms: u64) -> RuleState {
        let fits = self.names(facts.bucket, facts.key, facts.bytes)
            && self.tags.iter().all(|tag| facts.tags.contains(tag))
            && facts.reads >= self.reads_at_least
            && (facts.is_read_through || !self.read_through);
        if !fits {
            return RuleState::Never;
        }
        let touched_ms = facts.read_ms.map_or(facts.created_ms, |read_ms| read_ms.max(facts.created_ms));
        let old = reached(facts.created_ms, self.older_than, now_ms);
        let unread = reached(touched_ms, self.unread_for, now_ms);
        let from_ms = old.max(unread);
        if from_ms <= now_ms { RuleState::Since(from_ms) } else { RuleState::From(from_ms) }
    }
}

/// The time at which `span` has passed since `from_ms`; 0 if the clock has stepped back by more than `span` meanwhile.
fn reached(from_ms: u64, span: Duration, now_ms: u64) -> u64 {
    let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if from_ms > now_ms && from_ms - now_ms > span_ms { 0 } else { from_ms.saturating_add(span_ms) }
}
