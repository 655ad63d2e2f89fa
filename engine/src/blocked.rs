//! The classes that are blocked: each waits for an answer from the world, and for nothing else.
//!
//! A class that has an operation in service, or whose missing members are all on their way, can only continue when one
//! of its drives answers, its transfer ends, or its time limit expires. Most classes of a busy rack are blocked at most
//! events, and a large rack has hundreds.
//!
//! Invariant: advancing a blocked class would change nothing. An event whose class is uncertain unblocks all classes.

use alloc::vec;
use alloc::vec::Vec;
use model::{ClassId, Time};

/// The end of the blockade of a class that is not blocked.
const NOT_BLOCKED: Time = Time::ZERO;

/// The time until which each class is blocked.
pub(crate) struct Blocked {
    until: Vec<Time>,
}

impl Blocked {
    pub fn new(class_count: usize) -> Self {
        assert!(class_count > 0, "a rack has at least one class");
        Self { until: vec![NOT_BLOCKED; class_count] }
    }

    pub fn unblock(&mut self, class: ClassId) {
        self.until[class.index()] = NOT_BLOCKED;
    }

    pub fn unblock_all(&mut self) {
        self.until.fill(NOT_BLOCKED);
    }

    pub fn is_blocked(&self, class: ClassId, now: Time) -> bool {
        now < self.until[class.index()]
    }

    /// Blocks `class`, which has advanced as far as it can, until this time; `None` leaves it unblocked.
    pub fn set(&mut self, class: ClassId, until: Option<Time>) {
        assert!(until != Some(NOT_BLOCKED), "a blockade of {class} lasts");
        self.until[class.index()] = until.unwrap_or(NOT_BLOCKED);
    }

    /// The end of the blockade of `class`, if it is blocked.
    pub fn until(&self, class: ClassId) -> Option<Time> {
        Some(self.until[class.index()]).filter(|until| *until != NOT_BLOCKED)
    }
}
