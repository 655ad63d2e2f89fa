//! Reading ahead: the additional bytes that are read for a reader of many objects while the group of one of them is
//! awake, so that the order of its requests does not decide how often groups wake.
//!
//! A client that copies a tree requests key after key, and neighbouring keys may be in any group. A wake takes as long
//! as reading some gigabytes. So the bytes of a group that the client will want are better read together, into room of
//! the spool that is otherwise unused.
//!
//! 1. A [`Scan`] describes the readers of one bucket: the number of recent requests, whether they follow the order of
//!    the keys, and how much of the bytes read ahead for them they took. From that follows its *window*: the number of
//!    bytes of cold objects, in key order from the requested one, that it is worth looking ahead
//!    ([`Scan::window_bytes`]). The window counts the objects of every group, so that each group gets its part of the
//!    spool: a larger tree is read in rounds of a window, with one wake of each group per round.
//! 2. When the group of a requested object becomes ready, the world shows the objects in the window to a [`Plan`],
//!    which selects those of this group. They are read in whole stripes, in their order on the drives
//!    ([`Plan::into_reads`]).
//! 3. These reads belong to the client class but do not justify a wake ([`SubmittedWhileAwake`]). They are queued,
//!    charged and overtaken like any other read of that group, so the bound on the waiting time of others
//!    ([`crate::fair`]) does not change.
//!
//! [`SubmittedWhileAwake`]: crate::Event::SubmittedWhileAwake
//!
//! Bounds, for any behaviour of the readers:
//! - unread bytes that were read ahead are at most [`SHARE_PERMILLE`] of the spool, and are evicted before requested
//!   bytes when a recall needs room;
//! - a plan lasts for at most [`PLAN_TIME_MAX`], has at most [`READS_AT_ONCE`] reads in the queue at a time, and
//!   examines at most [`PLAN_OBJECTS_MAX`] objects;
//! - if a reader does not take what was read for it, ever less is read ahead for it, down to nothing.
//!
//! Times are relative to any fixed moment, in wall time: they concern people and their clients.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::{ControlFlow, Range};
use core::time::Duration;
use model::{BlobId, GroupId};

/// The part of the spool that unread bytes that were read ahead may use, in thousandths.
pub const SHARE_PERMILLE: u64 = 750;
/// The same for a scan with fewer than [`EVIDENCE`] requested objects: one of them may be all that it wants.
const FIRST_PERMILLE: u64 = 60;
/// A scan that requested this number of objects, without a pause of [`MEMORY`], is expected to want the following ones.
const EVIDENCE: u32 = 4;
/// Initial credit of a scan: bytes that count as taken before any were, in thousandths of its share.
const CREDIT_PERMILLE: u64 = 250;
/// A scan restarts after this time without a request.
pub const MEMORY: Duration = Duration::from_mins(10);
/// Number of steps from key to key at which older steps are halved, when the order of a scan is judged.
const STEPS_MAX: u32 = 64;
/// Minimum number of steps for that judgement.
const STEPS_MIN: u32 = 8;

/// Maximum number of objects that a plan examines.
pub const PLAN_OBJECTS_MAX: usize = 20_000;
/// Maximum reading time of a plan: about as long as the switch that woke its group, so that useless reading ahead costs
/// about as much as none.
pub const PLAN_TIME_MAX: Duration = Duration::from_secs(30);
/// Reads of a plan that are queued or in service at once: the next ones arrive before the group could be left, even if
/// the host needs as long to order a read as the drives need to execute it.
pub const READS_AT_ONCE: usize = 4;
/// Maximum number of known scans; for another one, the scan that was idle longest is forgotten.
pub const SCANS_MAX: usize = 256;
/// A client that requests this number of bytes of an object, or all of it, is expected to want the rest, and other
/// objects.
const ASK_BYTES: u64 = 1 << 20;
/// The part of a spool that a set leaves to others if an operator wants it recalled as a whole, in thousandths.
const SET_OTHERS_PERMILLE: u64 = 250;
/// The longest read of a plan. A client that requests something else of its group waits for [`READS_AT_ONCE`] of them.
const READ_BYTES_MAX: u64 = 64 << 20;
/// The same as a part of the spool: bytes read ahead are evicted in such pieces.
const READ_IN_CAPACITY: u64 = 64;

const _: () = assert!(FIRST_PERMILLE < SHARE_PERMILLE && SHARE_PERMILLE < 1_000, "some of the spool is for others");

/// The use of the bytes that were read ahead for a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// Taken by clients.
    pub used_bytes: u64,
    /// Evicted unread.
    pub wasted_bytes: u64,
}

/// The known behaviour of the readers of a bucket. See the head of this file.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    asks: u32,
    last: Duration,
    forward: u32,
    back: u32,
}

impl Scan {
    /// An object was requested; `step` compares its key with the one before it.
    pub fn asked(&mut self, now: Duration, step: Ordering) {
        if now.saturating_sub(self.last) > MEMORY {
            *self = Self::default();
        }
        self.last = now.max(self.last);
        match step {
            // Another range of the same object.
            Ordering::Equal if self.asks > 0 => return,
            Ordering::Less => self.back += 1,
            Ordering::Equal | Ordering::Greater => self.forward += 1,
        }
        self.asks = self.asks.saturating_add(1);
        if self.forward + self.back >= STEPS_MAX {
            (self.forward, self.back) = (self.forward / 2, self.back / 2);
        }
        assert!(self.forward + self.back < STEPS_MAX, "old steps count less and less");
    }

    /// The time of the last request.
    pub fn last(&self) -> Duration {
        self.last
    }

    /// True if objects before the requested one are wanted as well, once those after it are read: a reader that follows
    /// the order of the keys has already read them.
    pub fn wraps(&self) -> bool {
        self.forward + self.back >= STEPS_MIN && self.back * 4 > self.forward + self.back
    }

    /// The bytes of cold objects, in any place, that it is worth looking ahead in a spool of this capacity.
    pub fn window_bytes(&self, capacity_bytes: u64, feedback: Feedback) -> u64 {
        let share = permille(capacity_bytes, SHARE_PERMILLE);
        if self.asks < EVIDENCE {
            return permille(capacity_bytes, FIRST_PERMILLE);
        }
        let taken = u128::from(feedback.used_bytes) + u128::from(permille(share, CREDIT_PERMILLE)) + 1;
        let read = taken + u128::from(feedback.wasted_bytes);
        let window = u64::try_from(u128::from(share) * taken / read).unwrap_or(share);
        assert!(window <= share, "no scan is worth more than the share of all");
        window
    }
}

/// The state of the spool, as far as reading ahead needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadSpool {
    /// Its capacity.
    pub capacity_bytes: u64,
    /// Bytes that are neither held nor wait to be taken.
    pub free_bytes: u64,
    /// Unread bytes that were read ahead, for any reader.
    pub unread_bytes: u64,
}

impl AheadSpool {
    /// Bytes that may be read ahead now.
    pub fn room_bytes(&self) -> u64 {
        permille(self.capacity_bytes, SHARE_PERMILLE).saturating_sub(self.unread_bytes).min(self.free_bytes)
    }
}

/// Maximum size of a set that an operator wants recalled as a whole, in a spool in which `held_bytes` are being read or
/// written.
pub fn set_bytes_max(capacity_bytes: u64, held_bytes: u64) -> u64 {
    (capacity_bytes - permille(capacity_bytes, SET_OTHERS_PERMILLE)).saturating_sub(held_bytes)
}

fn permille(bytes: u64, permille: u64) -> u64 {
    let part = u128::from(bytes) * u128::from(permille) / 1_000;
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// True if a client that requests this number of bytes of an object of this length may be reading through a tree; false
/// if it looks at the end of a long file, or at some pages of it.
pub fn may_be_scan(asked_bytes: u64, object_bytes: u64) -> bool {
    asked_bytes >= object_bytes.min(ASK_BYTES)
}

/// An object of the bucket, as input of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its length.
    pub bytes: u64,
    /// Its location in the rack; `None` if it is not there.
    pub cold: Option<ColdPlace>,
}

/// The location of an object in the rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdPlace {
    /// The group of its blob.
    pub group: GroupId,
    /// Its blob.
    pub blob: BlobId,
    /// Its start in the blob's payload.
    pub offset: u64,
    /// Payload bytes of a stripe of the blob.
    pub stripe_bytes: u64,
    /// Payload bytes of the blob.
    pub payload_bytes: u64,
}

impl ColdPlace {
    /// The starts of the stripes that store the first `bytes` bytes of the object.
    pub fn stripes(&self, bytes: u64) -> impl Iterator<Item = u64> + use<> {
        let (offset, stripe_bytes) = (self.offset, self.stripe_bytes);
        assert!(stripe_bytes > 0, "a stripe has a length");
        let end = if bytes == 0 { offset } else { (offset + bytes).min(self.payload_bytes) };
        let count = if end <= offset { 0 } else { (end - 1) / stripe_bytes - offset / stripe_bytes + 1 };
        (0..count).map(move |nth| (offset / stripe_bytes + nth) * stripe_bytes)
    }
}

/// A part of a blob to read ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AheadRead {
    /// The blob.
    pub blob: BlobId,
    /// Payload bytes of a stripe of the blob.
    pub stripe_bytes: u64,
    /// The payload bytes: whole stripes, except at the end of the blob.
    pub range: Range<u64>,
    /// Wanted bytes among these.
    pub wanted_bytes: u64,
    /// Number of wanted objects that start there.
    pub objects: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    stripe_bytes: u64,
    wanted_bytes: u64,
    objects: u64,
}

/// The reads ahead for one reader while one group is awake. See the head of this file.
#[derive(Clone, Debug)]
pub struct Plan {
    group: GroupId,
    /// The remaining bytes of the window, and the remaining room for the reads.
    window_bytes: u64,
    room_bytes: u64,
    /// Number of objects that it may still be shown.
    objects: usize,
    stripes: BTreeMap<(BlobId, u64), Piece>,
}

impl Plan {
    /// A plan for `group`, with a window of `window_bytes` and at most `room_bytes` of room.
    pub fn new(group: GroupId, window_bytes: u64, room_bytes: u64) -> Self {
        Self { group, window_bytes, room_bytes, objects: PLAN_OBJECTS_MAX, stripes: BTreeMap::new() }
    }

    /// A plan for all shown objects of `group`, as an operator requests it.
    pub fn of_all(group: GroupId) -> Self {
        Self { group, window_bytes: u64::MAX, room_bytes: u64::MAX, objects: usize::MAX, stripes: BTreeMap::new() }
    }

    /// Shows it the next object. `is_here` returns true if the spool has the payload byte of a blob, or is about to
    /// have it. Breaks once the plan is complete.
    pub fn offer(&mut self, candidate: &Candidate, mut is_here: impl FnMut(BlobId, u64) -> bool) -> ControlFlow<()> {
        let Some(objects) = self.objects.checked_sub(1) else { return ControlFlow::Break(()) };
        self.objects = objects;
        let Some(cold) = candidate.cold.filter(|_| candidate.bytes > 0) else { return ControlFlow::Continue(()) };
        let Some(left) = self.window_bytes.checked_sub(candidate.bytes) else { return ControlFlow::Break(()) };
        self.window_bytes = left;
        if cold.group != self.group {
            return ControlFlow::Continue(());
        }
        self.pick(&cold, candidate.bytes, &mut is_here)
    }

    fn pick(&mut self, cold: &ColdPlace, bytes: u64, is_here: &mut impl FnMut(BlobId, u64) -> bool) -> ControlFlow<()> {
        let end = (cold.offset + bytes).min(cold.payload_bytes);
        for start in cold.stripes(bytes) {
            let (at, is_first) = (start.max(cold.offset), start <= cold.offset);
            let stripe_end = start.saturating_add(cold.stripe_bytes).min(cold.payload_bytes);
            let wanted = end.min(stripe_end) - at;
            if let Some(known) = self.stripes.get_mut(&(cold.blob, start)) {
                known.wanted_bytes = (known.wanted_bytes + wanted).min(known.end - start);
                known.objects += u64::from(is_first);
            } else if !is_here(cold.blob, at) {
                let Some(left) = self.room_bytes.checked_sub(stripe_end - start) else {
                    return ControlFlow::Break(());
                };
                self.room_bytes = left;
                let stripe = Piece {
                    end: stripe_end,
                    stripe_bytes: cold.stripe_bytes,
                    wanted_bytes: wanted,
                    objects: u64::from(is_first),
                };
                self.stripes.insert((cold.blob, start), stripe);
            }
        }
        ControlFlow::Continue(())
    }

    /// The reads, in the order of their bytes on the drives, for a spool of this capacity.
    pub fn into_reads(self, capacity_bytes: u64) -> Vec<AheadRead> {
        let most = READ_BYTES_MAX.min(capacity_bytes / READ_IN_CAPACITY);
        let mut reads: Vec<AheadRead> = Vec::new();
        for ((blob, start), stripe) in self.stripes {
            if let Some(last) = reads.last_mut()
                && last.blob == blob
                && last.range.end == start
                && stripe.end - last.range.start <= most
            {
                last.range.end = stripe.end;
                last.wanted_bytes += stripe.wanted_bytes;
                last.objects += stripe.objects;
                continue;
            }
            let Piece { end, stripe_bytes, wanted_bytes, objects } = stripe;
            reads.push(AheadRead { blob, stripe_bytes, range: start..end, wanted_bytes, objects });
        }
        assert!(
            reads.iter().all(|read| 0 < read.wanted_bytes && read.wanted_bytes <= read.range.end - read.range.start),
            "nothing is read of which nothing is wanted"
        );
        reads
    }
}

#[cfg(test)]
mod tests;
