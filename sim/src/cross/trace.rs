//! Cases, their traces, and the answers to a trace.
//!
//! Invariants: a trace has the moments and places of all reads, so that nothing is left to whoever answers it but how
//! long that takes; the same case and seed make the same trace.

use crate::chance::poisson_gap;
use crate::experiment::pelican_policy;
use crate::links::Network;
use crate::stored::Stored;
use engine::layout::{Layout, LayoutError};
use engine::{DriveList, RackPolicy};
use model::{GroupId, RackSpec, Rng, Time};
use serde::Serialize;
use std::time::Duration;

/// The blobs that stand for those that are stored.
const STORED_BLOBS: u32 = 24_000;

/// When the load begins: later than the last group of any rack here is initialised.
const LOAD_BEGINS: Time = Time::from_secs(900);

/// How long a server's scheduler waits for who may ask again.
const ANTICIPATION: Duration = Duration::from_secs(2);

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many reads, each at a random moment of this span; measured until all are answered.
    Burst(u32, Duration),
    /// Reads at this mean rate a second: for so long before, and for so long while it is measured.
    Poisson(f64, Duration, Duration),
}

/// A question to both sides.
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
    /// The way of the bytes from the drives to a client, on the server's side.
    pub feed: Feed,
}

/// The way of the bytes from the drives to a client, on the server's side. The simulator knows one: as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Feed {
    /// As they come; payload is left out.
    PayloadLeftOut,
    /// As they come, and checked.
    Direct,
    /// By way of a spool of so many bytes, in segments, as a GET's.
    Spool(u64),
}

/// A read of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedRead {
    /// When it is issued.
    pub at: Time,
    /// The number of its blob.
    pub blob: u64,
    /// The blob's group.
    pub group: GroupId,
    /// The drive of each of the blob's stacks, in stack order.
    pub drives: DriveList,
    /// Bytes.
    pub bytes: u64,
}

/// The reads of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In the order of their moments.
    pub reads: Vec<TracedRead>,
    /// The beginning of what is measured.
    pub from: Time,
    /// Its end; `None` is the last answer.
    pub until: Option<Time>,
}

/// The moments of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadMoments {
    /// When it was taken out of its queue.
    pub picked: Option<Time>,
    /// When its client had the first bytes.
    pub first_byte: Option<Time>,
    /// When it was over, if it was before the end.
    pub ended: Option<Time>,
    /// True if it was refused or failed.
    pub refused: bool,
}

/// The outcome of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// The moments of each read, in the order of the trace.
    pub reads: Vec<ReadMoments>,
    /// Drives started in the time measured.
    pub spin_ups: u64,
    /// Energy that all drives used in the time measured, in millijoules.
    pub energy_mj: u64,
    /// The end of what was measured.
    pub to: Time,
}

impl Case {
    /// The operator's settings: those of Pelican's evaluation; and where reads come in segments, a server's for those
    /// that follow each other.
    pub fn policy(&self) -> RackPolicy {
        let mut policy = pelican_policy(self.rack.profile.starts_per_day());
        if matches!(self.feed, Feed::Spool(_)) {
            (policy.scheduler.join_in_service, policy.scheduler.anticipation) = (true, ANTICIPATION);
        }
        policy
    }

    /// Its name: rack, load and the size of reads.
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

    /// Its reads under `seed`.
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

    /// The beginning and the end of what is measured, and the moments of all reads.
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
