//! A strategy decides the visits of a job in one class: from the accounting it derives the next step.

use super::accounting::Accounting;
use super::terms::Terms;
use serde::{Deserialize, Serialize};

/// The next step of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Wake this group; a switch, unless somebody else has done it already.
    Visit {
        /// The group.
        group: usize,
    },
    /// Read input on the group that is awake and buffer its output, until so many bytes are read, the group has no
    /// more, or the buffer is full.
    Read {
        /// The most input to read.
        bytes: u64,
    },
    /// Write what is buffered for the group that is awake: it has reached its destination then.
    Deliver,
    /// Write what is buffered for another group to the one that is awake, as a run of its own.
    Offload {
        /// The group it is for.
        target: usize,
    },
    /// Read runs that lie offloaded on the group that is awake back into the buffer.
    Refill {
        /// The group they are for.
        target: usize,
        /// The most to read back.
        bytes: u64,
    },
    /// All output is delivered.
    Done,
}

/// Decides the visits of a job in one class.
pub trait Strategy {
    /// The next step. It is asked again once the step was done and entered into the accounting.
    fn next(&mut self, accounting: &Accounting, terms: &Terms) -> Step;
}
