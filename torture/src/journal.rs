//! The journal of a run: its history in lines for people, a hash of everything, and the first broken rule.

use engine::TraceHasher;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of lines; the oldest of more are dropped.
const LINES_MAX: usize = 20_000;

/// A rule that every run tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// An answer holds the bytes that were put, and no others.
    Bytes,
    /// A client sees a state that the key may be in.
    Model,
    /// Acknowledged bytes can be read while no blob has lost more than r stacks.
    Kept,
    /// An error states the truth: nothing is reported as lost that is not, and nothing fails without a reason.
    Honest,
    /// Limits of power, of the workshop and of the spool hold, and starts are counted.
    Budgets,
    /// No change is made with revoked rights.
    Rights,
    /// Nothing that is another's is used or removed: no drive with a wrong label, and no file except the very stack
    /// that is meant.
    Identity,
    /// `engine::check` accepts the engine's trace.
    Trace,
    /// The records agree with each other and with the media.
    Audit,
    /// After the faults stop, everything finishes.
    Live,
    /// No assertion fails.
    Assertion,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "wrong bytes",
            Self::Model => "a state that cannot be",
            Self::Kept => "acknowledged bytes cannot be read",
            Self::Honest => "an error that is not honest",
            Self::Budgets => "a budget is broken",
            Self::Rights => "a right that is gone",
            Self::Identity => "what is another's is used or removed",
            Self::Trace => "the engine asks for what it may not",
            Self::Audit => "records or media contradict each other",
            Self::Live => "something never ends",
            Self::Assertion => "an assertion failed",
        })
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The observation.
    pub seen: String,
    /// The moment, in milliseconds of the run.
    pub at_ms: u64,
}

/// A line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The moment, in milliseconds of the run.
    pub at_ms: u64,
    /// The event, as text.
    pub what: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.at_ms / 1000;
        write!(f, "{:4}:{:02}:{:02}.{:03}  {}", s / 3600, s / 60 % 60, s % 60, self.at_ms % 1000, self.what)
    }
}

/// A history as text, line by line.
pub fn history(lines: &[Line]) -> String {
    lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect()
}

/// The journal of a run.
#[derive(Default)]
pub(crate) struct Journal {
    lines: Mutex<VecDeque<Line>>,
    violation: Mutex<Option<Violation>>,
    violated: Notify,
    hash: Mutex<TraceHasher>,
    /// Milliseconds of the run before this life, and when this life began.
    before_ms: AtomicU64,
    life: Mutex<Option<Instant>>,
    answers: AtomicU64,
}

impl Journal {
    /// A life of the server begins.
    pub(crate) fn begin_life(&self, started: Instant) {
        *self.life.lock() = Some(started);
    }

    /// Ends the current life. Returns its length, in milliseconds.
    pub(crate) fn end_life(&self) -> u64 {
        let now = self.now_ms();
        *self.life.lock() = None;
        now - self.before_ms.swap(now, Ordering::Relaxed)
    }

    /// Time passes while no server runs.
    pub(crate) fn rest(&self, span: Duration) {
        self.before_ms.fetch_add(span.as_millis() as u64, Ordering::Relaxed);
    }

    /// Milliseconds of virtual time since the run began.
    pub(crate) fn now_ms(&self) -> u64 {
        let life = *self.life.lock();
        let here = life.map_or(0, |life| disk::clock::monotonic().saturating_duration_since(life).as_millis() as u64);
        self.before_ms.load(Ordering::Relaxed) + here
    }

    /// Adds a line.
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        let line = Line { at_ms: self.now_ms(), what: what() };
        self.hash_in(&(line.at_ms, &line.what));
        let mut lines = self.lines.lock();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Adds `what` to the hash, which a run of the same seed must repeat.
    pub(crate) fn hash_in(&self, what: &impl Hash) {
        what.hash(&mut *self.hash.lock());
    }

    /// A client was answered.
    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Clients' requests that were answered.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Unless `holds`, records that the rule is broken. The first broken rule counts, and ends the run.
    pub(crate) fn demand(&self, holds: bool, rule: Rule, seen: impl FnOnce() -> String) {
        if holds {
            return;
        }
        let seen = seen();
        self.note(|| format!("BROKEN: {rule}: {seen}"));
        let mut violation = self.violation.lock();
        if violation.is_none() {
            *violation = Some(Violation { rule, seen, at_ms: self.now_ms() });
        }
        drop(violation);
        self.violated.notify_one();
    }

    /// Records that the rule is broken.
    pub(crate) fn broken(&self, rule: Rule, seen: impl FnOnce() -> String) {
        self.demand(false, rule, seen);
    }

    /// True if a rule was broken.
    pub(crate) fn is_over(&self) -> bool {
        self.violation.lock().is_some()
    }

    /// Returns after a rule was broken.
    pub(crate) async fn violated(&self) {
        while !self.is_over() {
            self.violated.notified().await;
        }
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.violation.lock().clone()
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.lock().finish()
    }

    pub(crate) fn take_lines(&self) -> Vec<Line> {
        std::mem::take(&mut *self.lines.lock()).into()
    }
}
