//! Repartitioning inside the rack: bring records that lie over the groups of a class in the order in which they came
//! into the groups where another key wants them (the paper of BuffPack and OffPack, whose sections are cited here).
//!
//! One group is awake at a time and a switch to another costs seconds, so that the order of visits is what there is to
//! decide. A [`Strategy`] decides it: it looks at the [`Books`] (what is still to be read on each group, what is
//! buffered for each, what was offloaded where) and names the next [`Step`]. The world does the step and enters into
//! the books what came of it. Strategies: [`Baseline`], [`BuffPack`] and [`OffPack`] are the paper's, [`TourPack`] is
//! ours. [`rehearse`] runs a strategy against what is expected and tells what it would cost; [`model`] has the paper's
//! formulas and better ones; a [`Planner`] chooses before the job runs and again when what it measures makes another
//! strategy cheaper.
//!
//! Groups are numbered 0 to K - 1 here, in the order of the class. A partition is known by its home, the group it shall
//! lie in: any number of partitions may share one, and which partition a byte belongs to is the world's business.
//!
//! Invariants: every byte of output is buffered, offloaded or home, and is never counted twice; the buffer never holds
//! more than it may; a job ends with everything home.

mod baseline;
mod books;
mod buffpack;
mod home;
mod job;
#[cfg(test)]
mod job_tests;
pub mod model;
mod offpack;
mod planner;
mod rehearsal;
#[cfg(test)]
mod tests;
mod tourpack;

pub use baseline::Baseline;
pub use books::{Books, Run};
pub use buffpack::BuffPack;
pub use job::{Job, Order, Part};
pub use offpack::OffPack;
pub use planner::{Choice, Chosen, Planner};
pub use rehearsal::{Cost, Day, Deal, Expected, rehearse};
pub use tourpack::TourPack;

use ::model::RackSpec;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// What the class's hardware costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// T_sw: from one group to another, ready to read.
    pub switch: Duration,
    /// T_sk: before each run of bytes that lies together.
    pub seek: Duration,
    /// How fast a group is read, in payload bytes; above 0.
    pub read_bytes_per_s: u64,
    /// How fast it is written, in payload bytes; above 0.
    pub write_bytes_per_s: u64,
    /// How often a drive may be started on a day for work that nobody waits for; `u32::MAX` is as often as one likes.
    pub starts_per_day: u32,
}

impl Terms {
    /// The paper's Table III: 10 s, 10 ms, 1 GB/s.
    pub const PAPER: Self = Self {
        switch: Duration::from_secs(10),
        seek: Duration::from_millis(10),
        read_bytes_per_s: 1_000_000_000,
        write_bytes_per_s: 1_000_000_000,
        starts_per_day: u32::MAX,
    };

    /// What a rack's profile says, by its means: a switch lets one group go and wakes another, k drives move payload at
    /// once, and what is written is read back before it counts, which halves its rate. Starts are not counted: how many
    /// a day there are is a matter of policy.
    pub fn of(spec: &RackSpec) -> Self {
        let rate = spec.profile.bytes_per_s.saturating_mul(u64::from(spec.code.data));
        Self {
            switch: spec.profile.rest_estimate() + spec.profile.wake_estimate(),
            seek: spec.profile.seek,
            read_bytes_per_s: rate.max(1),
            write_bytes_per_s: (rate / 2).max(1),
            starts_per_day: u32::MAX,
        }
    }
}

/// Bytes out over bytes in (the paper's alpha): how much output a byte of input becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alpha {
    /// Bytes of output.
    pub output: u64,
    /// For so many bytes of input; above 0.
    pub input: u64,
}

impl Alpha {
    /// As much out as in.
    pub const ONE: Self = Self { output: 1, input: 1 };

    /// The output of so many bytes of input, rounded down.
    pub fn output_of(self, input_bytes: u64) -> u64 {
        let output = u128::from(input_bytes) * u128::from(self.output) / u128::from(self.input);
        u64::try_from(output).unwrap_or(u64::MAX)
    }

    /// The most input whose output fits into so many bytes: everything there is, if nothing comes out.
    pub fn input_for(self, output_bytes: u64) -> u64 {
        if self.output == 0 {
            return u64::MAX;
        }
        let input = u128::from(output_bytes) * u128::from(self.input) / u128::from(self.output);
        u64::try_from(input).unwrap_or(u64::MAX)
    }

    /// As a number, for formulas and reports.
    pub fn as_f64(self) -> f64 {
        self.output as f64 / self.input as f64
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Wake this group; a switch, unless somebody else has done it already.
    Visit {
        /// Which.
        group: usize,
    },
    /// Read input on the group that is awake and buffer what becomes of it, until so many bytes are read, the group has
    /// no more, or the buffer is full.
    Read {
        /// At most so many bytes of input.
        bytes: u64,
    },
    /// Write what is buffered for the group that is awake: it is home then.
    BringHome,
    /// Write what is buffered for another group to the one that is awake, as a run of its own: offload it.
    Offload {
        /// The group it is for.
        target: usize,
    },
    /// Read runs that lie offloaded on the group that is awake back into the buffer.
    Refill {
        /// Their target.
        target: usize,
        /// At most so many bytes.
        bytes: u64,
    },
    /// Everything is home.
    Done,
}

/// Decides the visits of a job.
pub trait Strategy {
    /// The next step. The books are in order when it is asked, and it is asked again when the step was done.
    fn next(&mut self, books: &Books, terms: &Terms) -> Step;
}
