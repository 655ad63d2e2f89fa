//! Reading ahead: what else is read for a reader of many objects while the group of one of them is awake, so that the
//! order in which it asks does not decide how often groups wake.
//!
//! Who copies a tree asks for key after key, and neighbours by key lie in any group. A wake costs as much time as
//! reading some gigabytes, so that what such a reader will want of a group is better read at once, into room of the
//! spool that nobody uses.
//!
//! 1. A [`Scan`] is what is known of those who read one bucket: how many objects they asked for of late, whether in the
//!    order of the keys, and how much of what was read ahead for them they took. From that follows its *window*: how
//!    many bytes of cold objects, in key order from the one that was asked for, it is worth looking ahead
//!    ([`Scan::window_bytes`]). The window counts the objects of every group, so that each group gets its part of the
//!    spool: a tree that is larger is read in rounds of a window, with one wake of each group in a round.
//! 2. When the group of an object that was asked for gets up, the world shows the objects in the window to a [`Plan`],
//!    which picks those that lie in this group. What it picked is read in whole stripes, in the order in which it lies
//!    on the drives ([`Plan::into_reads`]).
//! 3. These are reads of clients that are worth no wake of their own ([`SubmittedWhileAwake`]): queued, charged and
//!    overtaken like any other read of that group. So the bound on how long others wait ([`crate::fair`]) is what it
//!    was.
//!
//! [`SubmittedWhileAwake`]: crate::Event::SubmittedWhileAwake
//!
//! Bounds, whatever the readers do:
//! - what was read ahead and not taken is at most [`SHARE_PERMILLE`] of the spool, and goes before anything that was
//!   asked for when a recall needs room;
//! - a plan goes on for [`PLAN_TIME_MAX`] at most, with [`READS_AT_ONCE`] reads in the queue at a time, and looks at
//!   [`PLAN_OBJECTS_MAX`] objects at most;
//! - a reader that does not take what was read for it is read less and less ahead, down to nothing.
//!
//! Moments are since any fixed one, and wall time: they are about people and their clients.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::{ControlFlow, Range};
use core::time::Duration;
use model::{BlobId, GroupId};

/// The part of the spool that may hold what was read ahead and not taken yet, in thousandths.
pub const SHARE_PERMILLE: u64 = 750;
/// The same for a scan that has asked for fewer than [`EVIDENCE`] objects: one of them may be all that it wants.
const FIRST_PERMILLE: u64 = 60;
/// A scan that has asked for so many objects within [`MEMORY`] is taken to want those that follow.
const EVIDENCE: u32 = 4;
/// So much is credited to a scan as taken before anything was, in thousandths of its share.
const CREDIT_PERMILLE: u64 = 250;
/// A scan of which nothing was heard for so long begins anew.
pub const MEMORY: Duration = Duration::from_mins(10);
/// Steps from key to key by which it is judged whether a scan follows the order of the keys.
const STEPS_MAX: u32 = 64;
/// The least of them for that.
const STEPS_MIN: u32 = 8;

/// Objects that a plan looks at.
pub const PLAN_OBJECTS_MAX: usize = 20_000;
/// How long a plan goes on reading: about what the switch has taken that brought its group up, so that reading ahead
/// in vain costs about as much as not reading ahead.
pub const PLAN_TIME_MAX: Duration = Duration::from_secs(30);
/// Reads of a plan that are queued or in service at once: the next ones are there before the group could be left, also
/// where the host takes as long to order a read as the drives take for it.
pub const READS_AT_ONCE: usize = 4;
/// Scans that are known at once; for one more, that is forgotten which was idle longest.
pub const SCANS_MAX: usize = 256;
/// Who asks for so many bytes of an object, or for all of it, is taken to want the rest, and others.
const ASK_BYTES: u64 = 1 << 20;
/// Of a spool, so much is left to others by a set that an operator wants recalled as a whole, in thousandths.
const SET_OTHERS_PERMILLE: u64 = 250;
/// The longest read of a plan. A client that asks for something else in its group waits for [`READS_AT_ONCE`] of them.
const READ_BYTES_MAX: u64 = 64 << 20;
/// The same as a part of the spool: what is read ahead is evicted in such pieces.
const READ_IN_CAPACITY: u64 = 64;

const _: () = assert!(FIRST_PERMILLE < SHARE_PERMILLE && SHARE_PERMILLE < 1_000, "some of the spool is for others");

/// What became of the bytes that were read ahead for a scan, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// Taken by clients.
    pub used_bytes: u64,
    /// Evicted before anybody took them.
    pub wasted_bytes: u64,
}

/// What is known of the readers of a bucket. See the head of this file.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    asks: u32,
    last: Duration,
    forward: u32,
    back: u32,
}

impl Scan {
    /// An object was asked for; `step` is how its key compares to that of the one before it.
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

    /// When an object was asked for last.
    pub fn last(&self) -> Duration {
        self.last
    }

    /// Whether objects before the one that was asked for are wanted as well, once those behind it are read: a reader
    /// that follows the order of the keys has had them.
    pub fn wraps(&self) -> bool {
        self.forward + self.back >= STEPS_MIN && self.back * 4 > self.forward + self.back
    }

    /// How many bytes of cold objects, wherever they lie, it is worth looking ahead in a spool of this capacity.
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
    /// What is neither held nor waits to be taken.
    pub free_bytes: u64,
    /// What was read ahead, for anybody, and not taken yet.
    pub unread_bytes: u64,
}

impl AheadSpool {
    /// What may be read ahead now.
    pub fn room_bytes(&self) -> u64 {
        permille(self.capacity_bytes, SHARE_PERMILLE).saturating_sub(self.unread_bytes).min(self.free_bytes)
    }
}

/// How large a set may be that an operator wants recalled as a whole, in a spool of which `held_bytes` are being read
/// or written.
pub fn set_bytes_max(capacity_bytes: u64, held_bytes: u64) -> u64 {
    (capacity_bytes - permille(capacity_bytes, SET_OTHERS_PERMILLE)).saturating_sub(held_bytes)
}

fn permille(bytes: u64, permille: u64) -> u64 {
    let part = u128::from(bytes) * u128::from(permille) / 1_000;
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Whether who asks for so many bytes of an object of this length may be reading through a tree: who looks at the end
/// of a long file, or at some pages of it, is not.
pub fn may_be_scan(asked_bytes: u64, object_bytes: u64) -> bool {
    asked_bytes >= object_bytes.min(ASK_BYTES)
}

/// An object of the bucket, as a plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its length.
    pub bytes: u64,
    /// Where it lies in the rack; `None` if it does not.
    pub cold: Option<ColdPlace>,
}

/// Where an object lies in the rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdPlace {
    /// The group of its blob.
    pub group: GroupId,
    /// Its blob.
    pub blob: BlobId,
    /// Where it begins in the blob's payload.
    pub offset: u64,
    /// Payload bytes of a stripe of the blob.
    pub stripe_bytes: u64,
    /// Payload bytes of the blob.
    pub payload_bytes: u64,
}

impl ColdPlace {
    /// Where the stripes begin that `bytes` bytes of the object, from its beginning on, lie in.
    pub fn stripes(&self, bytes: u64) -> impl Iterator<Item = u64> + use<> {
        let (offset, stripe_bytes) = (self.offset, self.stripe_bytes);
        assert!(stripe_bytes > 0, "a stripe has a length");
        let end = if bytes == 0 { offset } else { (offset + bytes).min(self.payload_bytes) };
        let count = if end <= offset { 0 } else { (end - 1) / stripe_bytes - offset / stripe_bytes + 1 };
        (0..count).map(move |nth| (offset / stripe_bytes + nth) * stripe_bytes)
    }
}

/// A part of a blob that is to be read ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AheadRead {
    /// The blob.
    pub blob: BlobId,
    /// Payload bytes of one of its stripes.
    pub stripe_bytes: u64,
    /// The payload bytes: whole stripes, but for the end of the blob.
    pub range: Range<u64>,
    /// How many of these are wanted.
    pub wanted_bytes: u64,
    /// How many objects begin there, of those that are wanted.
    pub objects: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    stripe_bytes: u64,
    wanted_bytes: u64,
    objects: u64,
}

/// What is read ahead for one reader while one group is awake. See the head of this file.
#[derive(Clone, Debug)]
pub struct Plan {
    group: GroupId,
    /// Bytes of the window that are left, and of the room for what is read.
    window_bytes: u64,
    room_bytes: u64,
    /// Objects that it may still be shown.
    objects: usize,
    stripes: BTreeMap<(BlobId, u64), Piece>,
}

impl Plan {
    /// A plan for `group`, for a window of so many bytes and in no more room than `room_bytes`.
    pub fn new(group: GroupId, window_bytes: u64, room_bytes: u64) -> Self {
        Self { group, window_bytes, room_bytes, objects: PLAN_OBJECTS_MAX, stripes: BTreeMap::new() }
    }

    /// A plan for all that it is shown of `group`, as an operator asks for.
    pub fn of_all(group: GroupId) -> Self {
        Self { group, window_bytes: u64::MAX, room_bytes: u64::MAX, objects: usize::MAX, stripes: BTreeMap::new() }
    }

    /// Shows it the next object. `is_here` says whether the spool has the payload byte of a blob, or is about to. It
    /// breaks where the plan is complete.
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

    /// The reads, in the order in which their bytes lie on the drives, for a spool of this capacity.
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
