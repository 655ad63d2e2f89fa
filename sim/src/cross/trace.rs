//! Cases, their traces, and the answers to a trace.
//!
//! Invariants: a trace has the times and places of all reads, so the answering side decides only how long they take;
//! the same case and seed make the same trace.

use crate::chance::poisson_gap;
use crate::experiment::pelican_policy;
use crate::links::Network;
use crate::stored::Stored;
use engine::layout::{Layout, LayoutError};
use engine::{DriveList, RackPolicy};
use model::{GroupId, RackSpec, Rng, Time};
use serde::Serialize;
use std::time::Duration;

/// The number of blobs that represent the stored ones.
const STORED_BLOBS: u32 = 24_000;

/// The time when the load begins, later than the initialisation of the last group of any rack here.
const LOAD_BEGINS: Time = Time::from_secs(900);

/// The time that a server's scheduler waits for the next read of the same client.
const ANTICIPATION: Duration = Duration::from_secs(2);

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// This number of reads, each at a random time of this span; measured until all are answered.
    Burst(u32, Duration),
    /// Reads at this mean rate per second: the unmeasured time before, and the measured time.
    Poisson(f64, Duration, Duration),
}

/// A case for both sides.
#[derive(Clone, Debug)]
pub struct Case {
    /// The rack.
    pub rack: RackSpec,
    /// The servers' network.
    pub network: Network,
    /// The load.
    pub load: Load,
    /// The length of each blob; each read takes a whole one.
    pub blob_bytes: u64,
    /// The path of the bytes from the drives to a client, on the server's side.
    pub feed: Feed,
}

/// The path of the bytes from the drives to a client, on the server's side. The simulator has only one: as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Feed {
    /// As they come, without payload.
    PayloadLeftOut,
    /// As they come, with payload that is checked.
    Direct,
    /// Through a spool of this number of bytes, in segments, like a GET.
    Spool(u64),
}

/// A read of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedRead {
    /// The time when it is issued.
    pub at: Time,
    /// The number of its blob.
    pub blob: u64,
    /// The blob's group.
    pub group: GroupId,
    /// The drive of each of the blob's stacks, in stack order.
    pub drives: DriveList,
    /// The length of the read.
    pub bytes: u64,
}

/// The reads of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In order of time.
    pub reads: Vec<TracedRead>,
    /// The beginning of the measurement.
    pub from: Time,
    /// The end of the measurement; `None` is the last answer.
    pub until: Option<Time>,
}

/// The times of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadMoments {
    /// The time when it left its queue.
    pub picked: Option<Time>,
    /// The time when its client received the first bytes.
    pub first_byte: Option<Time>,
    /// The time when it ended, if it ended before the end of the run.
    pub ended: Option<Time>,
    /// True if it was refused or failed.
    pub refused: bool,
}

/// The outcome of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// The times of each read, in the order of the trace.
    pub reads: Vec<ReadMoments>,
    /// Drive starts in the measured time.
    pub spin_ups: u64,
    /// Energy that all drives used in the measured time, in millijoules.
    pub energy_mj: u64,
    /// The end of the measurement.
    pub to: Time,
}

impl Case {
    /// The operator's settings: those of Pelican's evaluation; if reads come in segments, with a server's settings for
    /// reads that follow each other.
    pub fn policy(&self) -> RackPolicy {
        let mut policy = pelican_policy(self.rack.profile.starts_per_day());
        if matches!(self.feed, Feed::Spool(_)) {
            (policy.scheduler.join_in_service, policy.scheduler.anticipation) = (true, ANTICIPATION);
        }
        policy
    }

    /// The name of the case: rack, load and read size.
    pub fn name(&self) -> String {
        let load = match self.load {
            Load::Burst(reads, _) => format!("burst of {reads}"),
            Load::Poisson(rate, ..) if rate < 1.0 => format!("1/{} a second", rate.recip()),
            Load::Poisson(rate, ..) => format!("{rate} a second"),
        };
        let load = format!("{}, {load}, {} MB", self.rack.name, self.blob_bytes / 1_000_000);
        match self.feed {
            Feed::PayloadLeftOut => load,
            Feed::Direct => format!("{load}, with payload"),
            Feed::Spool(_) => format!("{load}, through the spool"),
        }
    }

    /// The reads of the case under `seed`.
    ///
    /// # Errors
    /// [`LayoutError`] if the rack has no layout.
    pub fn trace(&self, seed: u64) -> Result<Trace, LayoutError> {
        let layout = engine::layout::synthesise(&self.rack)?;
        let stored = self.stored(&layout, seed);
        let (from, until, moments) = self.moments(seed);
        let mut keys = Rng::for_thing(seed, u64::from_le_bytes(*b"keys    "));
        let read = |at, index: usize, bytes| {
            let (group, drives) = stored.blob(index);
            TracedRead { at, blob: index as u64, group, drives, bytes }
        };
        let load = moments.into_iter().map(|at| read(at, keys.below(stored.len() as u64) as usize, self.blob_bytes));
        Ok(Trace { reads: load.collect(), from, until })
    }

    fn stored(&self, layout: &Layout, seed: u64) -> Stored {
        let mut rng = Rng::for_thing(seed, u64::from_le_bytes(*b"stored  "));
        Stored::in_groups(&self.rack, layout, STORED_BLOBS, 1_000, &mut rng)
    }

    /// The beginning and the end of the measurement, and the times of all reads.
    fn moments(&self, seed: u64) -> (Time, Option<Time>, Vec<Time>) {
        let mut rng = Rng::for_thing(seed, u64::from_le_bytes(*b"arrivals"));
        match self.load {
            Load::Burst(reads, over) => {
                let over_ns = u64::try_from(over.as_nanos()).unwrap_or(u64::MAX);
                let any = |_| LOAD_BEGINS + Duration::from_nanos(rng.between(0, over_ns));
                let mut moments: Vec<Time> = (0..reads).map(any).collect();
                moments.sort_unstable();
                (LOAD_BEGINS, None, moments)
            }
            Load::Poisson(rate, before, span) => {
                let from = LOAD_BEGINS + before;
                let until = from + span;
                let gap = Duration::from_secs_f64(rate.recip());
                let mut next = |at: &Time| Some(*at + poisson_gap(gap, &mut rng));
                let all = std::iter::successors(Some(LOAD_BEGINS), &mut next);
                (from, Some(until), all.take_while(|at| *at < until).collect())
            }
        }
    }
}
