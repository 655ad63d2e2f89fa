//! Transfers under way, and the drives that take part in them.

use engine::{DriveOutcome, DriveResult, ReadPolicy, Transfer};
use model::physics::{READ_SEEKS, REMOVE_SEEKS, WRITE_SEEKS};
use model::{Attempt, BlobId, DriveId, OpId};
use std::time::Duration;

/// A transfer that is under way, or about to be.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    pub op: OpId,
    pub attempt: Attempt,
    /// The number of drives, beside the target, that must succeed for the transfer to succeed.
    pub need: usize,
    /// A drive that must succeed, too: the one that a rebuilt stack is written to.
    pub target: Option<DriveId>,
    /// Each drive's result, if it is not lost on the way, in the order of the action.
    pub outcomes: Vec<DriveOutcome>,
    /// How many of them take part.
    pub streams: u64,
    /// Whether it succeeds, if no drive is lost on the way.
    pub done: bool,
    /// The drives that had been lost when it began ([`Drives::losses`](super::drives::Drives::losses)).
    pub losses: u64,
    /// Bytes of each stream.
    pub stream_bytes: u64,
    /// The rate of the slowest drive that takes part, in bytes/s: stripes are moved whole, so it sets the pace of all.
    pub stream_bytes_per_s: u64,
    /// Payload bytes that leave by the network: those that clients read. What a server reads for itself stays there.
    pub sent_bytes: u64,
    /// How many streams' worth of payload that is.
    pub sent_streams: u64,
    /// The time for which the others waited for drives that hang.
    pub waited: Duration,
    /// How often the heads move.
    pub seeks: u32,
}

impl Moving {
    /// All drives that were asked, those that failed in it included.
    pub fn drives(&self) -> impl Iterator<Item = DriveId> {
        self.outcomes.iter().map(|outcome| outcome.drive)
    }

    /// The drives that take part.
    pub fn fine(&self) -> impl Iterator<Item = DriveId> {
        self.outcomes.iter().filter(|outcome| outcome.result == DriveResult::Fine).map(|outcome| outcome.drive)
    }

    /// Whether so many drives succeeded that the transfer did.
    pub fn is_done(&self) -> bool {
        let fine = self.fine().count();
        match self.target {
            None => fine >= self.need,
            Some(target) => self.fine().any(|drive| drive == target) && fine > self.need,
        }
    }
}

/// The demands of a transfer.
pub(super) struct TransferPlan {
    pub need: usize,
    /// The number of drives that are to take part, of those that can.
    pub streams: usize,
    /// The blob that is read.
    pub read: Option<BlobId>,
    /// The drive that is written beside those that are read.
    pub target: Option<DriveId>,
    /// The bytes read may leave by the network.
    pub sent: bool,
    pub moves: bool,
    pub writes: bool,
    /// How often the heads of a drive move.
    pub seeks: u32,
}

impl TransferPlan {
    pub fn of(transfer: &Transfer) -> Self {
        let target = if let Transfer::Rebuild { target, .. } = transfer { Some(*target) } else { None };
        let others = transfer.drives().count() - usize::from(target.is_some());
        let (need, streams, seeks) = (others, others, READ_SEEKS);
        let all = Self { need, streams, read: None, target, sent: false, moves: true, writes: false, seeks };
        let plan = match transfer {
            Transfer::Read { blob, need, policy, .. } | Transfer::Rebuild { blob, need, policy, .. } => {
                let need = usize::from(*need);
                let streams = if *policy == ReadPolicy::All { others } else { need };
                let seeks = if target.is_some() { READ_SEEKS + WRITE_SEEKS } else { READ_SEEKS };
                Self { need, streams, read: Some(*blob), sent: target.is_none(), seeks, ..all }
            }
            // Every stack that is there is read, and k of them suffice.
            Transfer::Scrub { blob, need, .. } => Self { need: usize::from(*need), read: Some(*blob), ..all },
            Transfer::Write { .. } => Self { writes: true, seeks: WRITE_SEEKS, ..all },
            Transfer::Verify { .. } => all,
            Transfer::Inspect { .. } => Self { need: 0, moves: false, ..all },
            Transfer::Delete { .. } => Self { need: 0, moves: false, writes: true, seeks: REMOVE_SEEKS, ..all },
        };
        assert!(plan.need <= plan.streams && plan.streams <= others, "{transfer:?} needs more drives than it has");
        plan
    }
}
