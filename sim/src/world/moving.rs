//! Transfers in progress, and the drives that take part in them.

use engine::{DriveOutcome, DriveResult, ReadPolicy, Transfer};
use model::physics::{READ_SEEKS, REMOVE_SEEKS, WRITE_SEEKS};
use model::{Attempt, BlobId, DriveId, OpId};
use std::time::Duration;

/// A transfer that is in progress, or will begin soon.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    pub op: OpId,
    pub attempt: Attempt,
    /// The number of drives, in addition to the target, that must succeed for the transfer to succeed.
    pub need: usize,
    /// A drive that must also succeed: the one that a rebuilt stack is written to.
    pub target: Option<DriveId>,
    /// The result of each drive if it is not lost during the transfer, in the order of the action.
    pub outcomes: Vec<DriveOutcome>,
    /// The number of drives that take part.
    pub streams: u64,
    /// True if the transfer succeeds, provided that no drive is lost during it.
    pub done: bool,
    /// The number of losses when it began ([`Drives::losses`](super::drives::Drives::losses)).
    pub losses: u64,
    /// Bytes of each stream.
    pub stream_bytes: u64,
    /// The rate of the slowest participating drive, in bytes/s: stripes are moved whole, so it sets the pace for all
    /// drives.
    pub stream_bytes_per_s: u64,
    /// Payload bytes that leave through the network, which are those that clients read. A server's own reads stay
    /// there.
    pub sent_bytes: u64,
    /// The number of streams with this amount of payload.
    pub sent_streams: u64,
    /// The time for which the other drives waited for hanging drives.
    pub waited: Duration,
    /// The number of head movements.
    pub seeks: u32,
}

impl Moving {
    /// All drives that were asked, including those that failed in the transfer.
    pub fn drives(&self) -> impl Iterator<Item = DriveId> {
        self.outcomes.iter().map(|outcome| outcome.drive)
    }

    /// The drives that take part.
    pub fn fine(&self) -> impl Iterator<Item = DriveId> {
        self.outcomes.iter().filter(|outcome| outcome.result == DriveResult::Fine).map(|outcome| outcome.drive)
    }

    /// True if enough drives succeeded for the transfer to succeed.
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
    /// The number of drives that are to take part, out of those that can.
    pub streams: usize,
    /// The blob to read.
    pub read: Option<BlobId>,
    /// The drive that is written in addition to those that are read.
    pub target: Option<DriveId>,
    /// True if the bytes read may leave through the network.
    pub sent: bool,
    pub moves: bool,
    pub writes: bool,
    /// The number of head movements of a drive.
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
            // All present stacks are read, and k of them suffice.
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
