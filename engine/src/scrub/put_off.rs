//! Blobs of a group that a pass could not read because too few of their drives were present.
//!
//! A pass does not wait for them: it counts their stacks as unread and continues, and is complete without them. Each is
//! retried, beside that pass or the next one, when its group is awake and idle and a pause has passed, which doubles
//! with each try from ten minutes to nearly a day. For the first `WAKES_MAX` tries, about six days, the group is woken
//! for it if necessary; after that it rides along. It stays listed until it was read, it is gone, or too many of its
//! drives have failed.
//!
//! Invariant: memory is at most [`PUT_OFF_MAX`] blobs; the others are left to the next pass.

use crate::event::BlobOnDrive;
use crate::ops::StackMove;
use alloc::vec::Vec;
use core::time::Duration;
use model::{BlobId, Time};

/// The pause before the first retry of a blob that could not be read; also between two wakes of a group for its pass
/// alone, and before a failed listing is requested again.
pub(super) const PAUSE: Duration = Duration::from_mins(10);
/// Maximum number of put-off blobs of a group.
pub(crate) const PUT_OFF_MAX: usize = 256;
/// Tries of a blob for which its group is woken, including the first one.
const WAKES_MAX: u32 = 14;
/// The pause before the next try doubles at most this many times.
const DOUBLINGS_MAX: u32 = 7;

/// A blob to be retried.
#[derive(Clone)]
struct Waiting {
    blob: BlobOnDrive,
    /// Number of times that it could not be read.
    tries: u32,
    /// The earliest time of the next try.
    until: Time,
    /// Its stacks that the current pass has counted as unread.
    counted: u64,
}

impl Waiting {
    fn tried(&mut self, now: Time) {
        self.until = now + PAUSE * (1 << self.tries.min(DOUBLINGS_MAX));
        self.tries = self.tries.saturating_add(1);
    }
}

/// The put-off blobs of a group. See the head of this file.
#[derive(Clone, Default)]
pub(crate) struct PutOff {
    waiting: Vec<Waiting>,
}

impl PutOff {
    /// The current pass could not read `blob`, and has counted this number of its stacks as unread. False if there is
    /// no room for it.
    pub fn add(&mut self, blob: BlobOnDrive, counted: u64, now: Time) -> bool {
        self.waiting.retain(|known| known.blob.blob != blob.blob);
        if self.waiting.len() >= PUT_OFF_MAX {
            return false;
        }
        let mut waiting = Waiting { blob, tries: 0, until: now, counted };
        waiting.tried(now);
        self.waiting.push(waiting);
        true
    }

    /// A retry could not read `blob`.
    pub fn tried(&mut self, blob: BlobId, now: Time) {
        self.waiting.iter_mut().filter(|waiting| waiting.blob.blob == blob).for_each(|waiting| waiting.tried(now));
    }

    /// None of the due blobs could be read: the group was not available.
    pub fn all_tried(&mut self, now: Time) {
        self.waiting.iter_mut().filter(|waiting| waiting.until <= now).for_each(|waiting| waiting.tried(now));
    }

    /// The next blob to read, if one is due.
    pub fn next(&self, now: Time) -> Option<&BlobOnDrive> {
        let due = self.waiting.iter().filter(|waiting| waiting.until <= now);
        due.min_by_key(|waiting| (waiting.until, waiting.blob.blob)).map(|waiting| &waiting.blob)
    }

    /// The time at which the group is to be woken for one of them; [`Time::MAX`] is never.
    pub fn wakes_at(&self) -> Time {
        let woken = self.waiting.iter().filter(|waiting| waiting.tries < WAKES_MAX);
        woken.map(|waiting| waiting.until).min().unwrap_or(Time::MAX)
    }

    /// `blob` was read, or is gone. Returns its stacks that the current pass has counted as unread, if it was put off.
    pub fn done(&mut self, blob: BlobId) -> u64 {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.blob.blob == blob) else { return 0 };
        self.waiting.remove(at).counted
    }

    /// A new pass starts, which has counted none of their stacks and will reach them itself.
    pub fn new_pass(&mut self) {
        self.waiting.iter_mut().for_each(|waiting| waiting.counted = 0);
    }

    pub fn follow_move(&mut self, moved: &StackMove) {
        for waiting in &mut self.waiting {
            moved.follow(waiting.blob.blob, &mut waiting.blob.drives);
        }
    }

    /// The numbers of the blobs.
    pub fn blobs(&self) -> impl ExactSizeIterator<Item = BlobId> + '_ {
        self.waiting.iter().map(|waiting| waiting.blob.blob)
    }
}
