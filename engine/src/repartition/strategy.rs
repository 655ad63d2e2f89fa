//! A strategy decides the visits of a job in one class: it derives the next step from the accounting.

use super::accounting::Accounting;
use super::terms::Terms;
use serde::{Deserialize, Serialize};

/// The next step of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Wake this group; a switch, unless another operation has already woken it.
    Visit {
        /// The group.
        group: usize,
    },
    /// Read input on the awake group and buffer its output, until this number of bytes is read, the group's input ends
    /// or the buffer is full.
    Read {
        /// The most input to read.
        bytes: u64,
    },
    /// Write the bytes that are buffered for the awake group, which is their destination.
    Deliver,
    /// Write the bytes that are buffered for another group to the awake one, as a separate run.
    Offload {
        /// The destination group of the bytes.
        target: usize,
    },
    /// Read runs that are offloaded on the awake group back into the buffer.
    Refill {
        /// The destination group of the runs.
        target: usize,
        /// The most bytes to read back.
        bytes: u64,
    },
    /// All output is delivered.
    Done,
}

/// Decides the visits of a job in one class.
pub trait Strategy {
    /// The next step. The caller asks again once the step is done and entered into the accounting.
    fn next(&mut self, accounting: &Accounting, terms: &Terms) -> Step;
}
