//! The data thermometer: which objects are cold (Serviceable cold storage, section III: rules of a tenant over local
//! facts only).
//!
//! 1. A [`Rule`] names objects (bucket, prefix, tags, size) and says since when they are as it says: once they are old
//!    enough, nobody has read them for long enough, or they were read often enough or read through. All of its
//!    conditions must hold.
//! 2. Of several rules that hold, the first counts, whatever the others say. An object's temperature changes with time
//!    only when a rule further up comes to hold, or when it is read.
//! 3. What no rule holds for is as [`Thermometer::default`] says: hot, and never cold by age alone; or cold, and then
//!    it moves as it would without a thermometer (`MigrationPolicy`'s ages and thresholds).
//! 4. What a rule calls cold is due: it moves however empty the workshop is. What is hot stays; above the critical
//!    threshold it moves after all else, and only as far as it must, since a workshop that is full takes nothing in.
//!
//! A rule says what a lifecycle rule of S3 can say (prefix, tags, sizes, days), and more; whoever reads such rules adds
//! them to [`Thermometer::rules`].
//!
//! Invariants: a verdict follows from the facts and the moment alone. Moments are milliseconds of one clock, whichever
//! the world has. A moment further ahead of now than a rule's span shows a clock that stepped back: nobody knows how
//! long ago it was, and it counts as long ago, or its object would stay until the clock is there again.

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
    /// What people call it; may be empty.
    pub name: String,
    /// The temperature of the objects for which it holds.
    pub is: Temperature,
    /// The bucket.
    pub bucket: Option<String>,
    /// The beginning of the key.
    pub prefix: String,
    /// Tags that the object must have.
    pub tags: Vec<(String, String)>,
    /// It has more bytes.
    pub larger_than_bytes: Option<u64>,
    /// It has fewer bytes.
    pub smaller_than_bytes: Option<u64>,
    /// Its bytes came into being at least so long ago.
    pub older_than: Duration,
    /// It was neither read nor written for so long.
    pub unread_for: Duration,
    /// It was read at least so often since it was staged.
    pub reads_at_least: u64,
    /// Every byte of it was read since it was staged.
    pub read_through: bool,
}

/// What is known of a staged object: local facts, as in the paper. Moments are in milliseconds of the world's clock.
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
    /// When its bytes came into being: kept by copies and moves.
    pub created_ms: u64,
    /// When it was read last, if it was since it was staged.
    pub read_ms: Option<u64>,
    /// How often it was read since it was staged.
    pub reads: u64,
    /// Whether every byte of it was read since then.
    pub is_read_through: bool,
}

/// Whether a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleState {
    /// It does not, and time alone does not change that.
    Never,
    /// It will, from this moment on, if nobody reads the object before.
    From(u64),
    /// It has since this moment.
    Since(u64),
}

/// How an object stands with the migrator, in the order in which data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A rule calls it cold.
    Due,
    /// No rule holds for it, and what no rule holds for is cold: ages and thresholds decide.
    Cold,
    /// It is hot.
    Hot,
}

/// What the policy's thermometer says of a staged version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heat {
    /// It is due by a rule, for so long in modelled time.
    Due(Duration),
    /// It is cold since no rule calls it anything.
    #[default]
    Cold,
    /// It is hot.
    Hot,
}

/// What a thermometer says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How it stands.
    pub standing: Standing,
    /// The number of the rule that decided, in their order from 0; `None` if none held.
    pub rule: Option<usize>,
    /// Since when that rule holds; its creation, if none does.
    pub since_ms: u64,
    /// How it will stand next, if nobody reads it before.
    pub next: Option<Change>,
}

/// A change to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at_ms: u64,
    /// How it stands then.
    pub standing: Standing,
    /// The rule that decides then.
    pub rule: usize,
}

/// The rules, in their order. Without any, and cold by default, there is no thermometer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Thermometer {
    /// The rules; the first that holds counts.
    pub rules: Vec<Rule>,
    /// The temperature of what no rule holds for.
    pub default: Temperature,
}

impl Thermometer {
    /// No thermometer.
    pub const fn none() -> Self {
        Self { rules: Vec::new(), default: Temperature::Cold }
    }

    /// Whether it has rules, or calls anything hot.
    pub fn is_used(&self) -> bool {
        !self.rules.is_empty() || self.default == Temperature::Hot
    }

    /// Whether a rule can make something cold.
    pub fn has_cold_rules(&self) -> bool {
        self.rules.iter().any(|rule| rule.is == Temperature::Cold)
    }

    /// Whether ages, tags or reads of an object can matter. If not, it stands as [`Self::unruled`] says.
    pub fn names(&self, bucket: &str, key: &str, bytes: u64) -> bool {
        self.rules.iter().any(|rule| rule.names(bucket, key, bytes))
    }

    /// How an object stands for which no rule holds.
    pub fn unruled(&self) -> Standing {
        match self.default {
            Temperature::Cold => Standing::Cold,
            Temperature::Hot => Standing::Hot,
        }
    }

    /// What it says of an object at `now_ms`.
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
            // A rule further up that holds by then hides this one.
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
    /// The same for the migrator; `due_for` is for how long the rule has held, in modelled time.
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

    /// Whether it is about objects of this name and length.
    pub fn names(&self, bucket: &str, key: &str, bytes: u64) -> bool {
        self.bucket.as_deref().is_none_or(|named| named == bucket)
            && key.starts_with(&*self.prefix)
            && self.larger_than_bytes.is_none_or(|limit| bytes > limit)
            && self.smaller_than_bytes.is_none_or(|limit| bytes < limit)
    }

    /// Whether it holds for an object at `now_ms`.
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

/// The moment at which `span` has passed since `from_ms`: long ago, if the clock has stepped back meanwhile.
fn reached(from_ms: u64, span: Duration, now_ms: u64) -> u64 {
    let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if from_ms > now_ms && from_ms - now_ms > span_ms { 0 } else { from_ms.saturating_add(span_ms) }
}
