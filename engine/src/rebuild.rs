//! Rebuilding: the stacks of a permanently failed drive are regenerated on other drives of its group.
//!
//! Pelican, section 3: rebuilds stay inside the group, whose drives all spin at once, and wait in a separate queue,
//! whose share of the class's time bounds how long redundancy is missing: x/t * 1/w for x bytes at t bytes/s.
//! 1. A rebuild starts when a drive is given up ([`Event::DriveFailed`](crate::Event::DriveFailed)), by the operator or
//!    because it stayed away ([`crate::absence`]); a drive that is merely away may come back with all of its data. A
//!    good drive that is retired is emptied in the same way, after all missing stacks and as background work.
//! 2. A *pass* lists the blobs of the failed drive page by page. Each blob becomes an operation of
//!    [`PriorityClass::Rebuild`](crate::PriorityClass::Rebuild), at most [`WINDOW`] at once; the fair queue batches
//!    them while their group is awake.
//! 3. In service, the operation names the readable stacks and a target: a drive of the group that has no stack of the
//!    blob, by the rules of placement. The written stack is read back if the policy requires it, and counts when the
//!    catalog counts it ([`Action::MoveStack`]). Until then the operation holds the class, so that no other one changes
//!    the blob.
//! 4. The most exposed blobs come first ([`exposure`]): passes over the drives of a class descend through the levels
//!    together, and restart when another drive of their group fails.
//! 5. Blobs that cannot be rebuilt now (too few drives are present, or none has room) wait for the next pass: soon
//!    after a drive of the group is back or deleted data is removed from it, or after a pause that doubles. Blobs that
//!    have lost more than r stacks count as lost; [`RebuildView`] reports them, and what the others lack.
//!
//! A drive is done when its used bytes show that no blob has a stack on it, and the last pass left nothing. So a later
//! pass finds a blob that was written to it at the last moment, and a restart needs no record except that the drive
//! failed.
//!
//! Meanwhile another drive may replace it ([`Event::DriveReplaced`](crate::Event::DriveReplaced)). New blobs are then
//! written to it, so its used bytes no longer show what is left. Instead, what is left is what a pass has listed, since
//! the catalog lists only lost stacks. A replacement is listed from time to time even if nothing seems to be left. The
//! rules of placement may return lost stacks to it: it is the emptiest drive of its group, so it is filled until the
//! group is even again.
//!
//! Or the drive that was given up comes back itself ([`Event::DriveReturned`](crate::Event::DriveReturned)). All stacks
//! still counted on it are lost until they are checked: each is read and checked in place, regardless of its blob's
//! other losses, and counts again if it is right. Stacks that are missing or wrong are rebuilt.
//!
//! The same check applies to a stack that an earlier rebuild may have left in its place uncounted: because it was not
//! read back, say, or the catalog was full. It may be the blob's last stack, if a source has become damaged since. A
//! stack is overwritten only after a check found it wrong.
//!
//! Invariants: memory is one page for each failed drive, and the window; a page counts only if it is the awaited one,
//! and each page advances, so a pass ends.

mod exposure;
mod room;
#[cfg(test)]
mod tests;

pub use exposure::Exposure;

use crate::action::{Action, Outcome, Rejection};
use crate::event::BlobOnDrive;
use crate::forecast::Forecast;
use crate::ops::StackMove;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, BlobId, ClassId, DriveId, GroupId, Time};
use serde::Serialize;

/// Rebuilds of one failed drive that may be queued or in service at once: enough to keep its group busy for a quantum.
pub(crate) const WINDOW: u32 = 128;

/// Maximum number of blobs of a failed drive on a page.
const PAGE_BLOBS: u32 = 128;

/// The pause after a pass that left something; it doubles with each pass that made no progress.
const PAUSE_MIN: Duration = Duration::from_mins(10);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_hours(24);

const _: () = assert!(PAGE_BLOBS <= WINDOW, "a page fits into the window, so that one page is enough to fill it");
const _: () = assert!(PAUSE_MIN.as_nanos() > 0 && PAUSE_MIN.as_nanos() < PAUSE_MAX.as_nanos(), "a pause can grow");

/// The occupant of a rebuilt drive's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InPlace {
    /// The drive itself, which failed, or is good and retired.
    Itself,
    /// A replacement, which may receive the lost stacks.
    Another,
    /// The drive itself, which was given up and has come back.
    Returned,
}

/// Progress of the rebuild of a failed or retired drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RebuildView {
    /// The failed or retired drive.
    pub drive: DriveId,
    /// Its group.
    pub group: GroupId,
    /// Remaining bytes of stacks on it, including those of dead blobs that wait to be reclaimed. 0 means done.
    pub left_bytes: u64,
    /// Stacks rebuilt since boot.
    pub rebuilt_stacks: u64,
    /// Their bytes.
    pub rebuilt_bytes: u64,
    /// Blobs known to have lost more than r stacks: data is lost.
    pub lost_blobs: u64,
    /// Blobs that could not be rebuilt and wait for drives or room.
    pub waiting_blobs: u64,
    /// Waiting blobs whose stacks can be read, but for which no present drive has room.
    pub unplaced_blobs: u64,
    /// Rebuilds queued or in service.
    pub under_way: u32,
    /// The drive is good, and its stacks move away because the operator retires it.
    pub retires: bool,
    /// The occupant of the drive's place.
    pub there: InPlace,
    /// Bytes of stacks that count on the occupant.
    pub used_bytes: u64,
    /// Estimated time left if every needed drive is present: alone, and at its share.
    pub forecast: Forecast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RebuildPhase {
    /// No listing before this time.
    Idle { due: Time },
    /// A page is awaited.
    Listing { attempt: Attempt, after: Option<BlobId> },
    /// The page's blobs are being rebuilt; the next page starts after `next`.
    Working { next: Option<BlobId> },
}

/// The occupant of a drive's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Itself,
    Another,
    /// It was given up and is back. While its stacks are `sought`, each is looked for in its place before any is
    /// rebuilt.
    Returned {
        sought: bool,
    },
}

/// The location of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub class: ClassId,
    pub group: GroupId,
    /// r, the number of losses that the code tolerates.
    pub parity: u8,
}

/// Counts of the blobs of a pass, by result.
#[derive(Clone, Copy, Debug, Default)]
struct PassCounts {
    rebuilt: u64,
    lost: u64,
    waiting: u64,
    /// Waiting blobs for which no drive has room.
    unplaced: u64,
}

impl PassCounts {
    /// A blob was not rebuilt, for this reason.
    fn put_off(&mut self, reason: Option<Rejection>) {
        match reason {
            Some(Rejection::DataLost) => self.lost += 1,
            reason => {
                self.waiting += 1;
                self.unplaced += u64::from(reason == Some(Rejection::NoRoom));
            }
        }
        assert!(self.unplaced <= self.waiting, "what finds no room waits for some");
    }
}

/// The passes over one failed drive.
#[derive(Clone, Debug)]
struct Passes {
    home: Home,
    /// The drive is good, and is to be emptied: its blobs lack nothing, and come last.
    retires: bool,
    there: There,
    phase: RebuildPhase,
    /// Blobs that have lost this number of stacks are rebuilt now ([`exposure`]).
    level: u8,
    /// The first listing of a pass is under way, which counts the blobs of each level from this one down.
    surveys_from: Option<u8>,
    /// The pass is cut short, and the next one starts at once.
    begins_anew: bool,
    /// The blobs that belong to this drive, by the last complete survey, and by the one under way.
    exposure: Exposure,
    surveyed: Exposure,
    pending: VecDeque<BlobOnDrive>,
    under_way: u32,
    /// The drive may hold stacks that no pass has listed: it failed since, a write that was under way at the failure
    /// counts on it, or the pass was cut short. Used bytes alone do not show that (see [`Passes::is_over`]).
    unlisted: bool,
    /// Live blobs of the last listing that are left to the pass over another drive, or to a later level.
    left_to_others: u64,
    pause: Duration,
    counts: PassCounts,
    /// Counts of the previous pass, so that nothing is hidden while the next one is under way.
    before: PassCounts,
    rebuilt_stacks: u64,
    rebuilt_bytes: u64,
    /// Set for a replacement or a returned drive: bytes of the stacks that were lost in its place and are not rebuilt.
    lost_bytes: Option<u64>,
    /// Of those, the bytes that the current pass has listed and not rebuilt yet.
    shown_bytes: u64,
}

impl Passes {
    fn new(home: Home, now: Time, lost_bytes: Option<u64>) -> Self {
        Self {
            home,
            retires: false,
            there: There::Itself,
            level: 1,
            surveys_from: None,
            begins_anew: false,
            exposure: Exposure::none(home.parity),
            surveyed: Exposure::none(home.parity),
            phase: RebuildPhase::Idle { due: now },
            pending: VecDeque::new(),
            under_way: 0,
            unlisted: true,
            left_to_others: 0,
            pause: PAUSE_MIN,
            counts: PassCounts::default(),
            before: PassCounts::default(),
            rebuilt_stacks: 0,
            rebuilt_bytes: 0,
            lost_bytes,
            shown_bytes: 0,
        }
    }

    /// Bytes of stacks left to rebuild, if blobs use `used_bytes` of the drive.
    fn left_bytes(&self, used_bytes: u64) -> u64 {
        self.lost_bytes.unwrap_or(used_bytes)
    }

    /// True if nothing is left to do and nothing can be added. Used bytes alone do not show that: they may be too low
    /// if the catalog committed without confirming it. So a blob that a pass has listed and not rebuilt is listed again
    /// regardless of them.
    fn is_over(&self, used_bytes: u64) -> bool {
        let leaves_some = self.left_to_others > 0 || self.counts.waiting > 0 || self.counts.lost > 0;
        !self.unlisted && !leaves_some && used_bytes == 0 && self.lost_bytes.is_none()
    }

    /// Starts the next pass at `due`, if none is under way, with the shortest pause after it.
    fn hasten(&mut self, due: Time) {
        self.pause = PAUSE_MIN;
        self.begin_at(due);
    }

    fn begin_at(&mut self, at: Time) {
        if let RebuildPhase::Idle { due } = &mut self.phase {
            *due = at;
        }
    }

    /// The lost and waiting blobs to report: those of the last completed pass, or of the current one if it has found
    /// more already. Zero once nothing is left.
    fn reported(&self, left_bytes: u64) -> PassCounts {
        match self.phase {
            _ if left_bytes == 0 => PassCounts::default(),
            RebuildPhase::Idle { .. } => self.counts,
            _ => PassCounts {
                rebuilt: self.counts.rebuilt,
                lost: self.counts.lost.max(self.before.lost),
                ..if self.counts.waiting > self.before.waiting { self.counts } else { self.before }
            },
        }
    }

    fn begin_pass(&mut self, level: u8) {
        assert!(matches!(self.phase, RebuildPhase::Idle { .. }), "a pass begins when none is under way");
        assert!(self.pending.is_empty() && self.under_way == 0, "one pass at a time");
        assert!(level > 0 || self.retires, "a blob that lacks nothing is not rebuilt");
        self.before = core::mem::take(&mut self.counts);
        (self.unlisted, self.left_to_others, self.shown_bytes) = (false, 0, 0);
        (self.level, self.surveys_from) = (level, Some(level));
        self.surveyed = Exposure::none(self.home.parity);
    }

    /// True if a pass is under way.
    fn is_under_way(&self) -> bool {
        !matches!(self.phase, RebuildPhase::Idle { .. })
    }

    /// True if a pass is under way that has finished its level.
    fn has_ended_level(&self) -> bool {
        self.phase == RebuildPhase::Working { next: None } && self.pending.is_empty() && self.under_way == 0
    }

    /// Ends a level and starts the next one that has blobs. False if there is none.
    fn begin_next_level(&mut self) -> bool {
        assert!(self.has_ended_level(), "a level ends when nothing of it is under way");
        let Some(level) = self.exposure.next_below(self.level).filter(|_| !self.begins_anew) else { return false };
        self.level = level;
        (self.left_to_others, self.shown_bytes) = (0, 0);
        true
    }

    /// Ends the first listing of a pass: its counts become the known ones.
    fn end_survey(&mut self) {
        if self.surveys_from.take().is_some() {
            self.exposure = self.surveyed.clone();
        }
    }

    /// True if the pages so far have reached `blob`.
    fn has_shown(&self, blob: BlobId) -> bool {
        match self.phase {
            RebuildPhase::Idle { .. } => false,
            RebuildPhase::Listing { after, .. } => after.is_some_and(|after| blob <= after),
            RebuildPhase::Working { next } => next.is_none_or(|next| blob <= next),
        }
    }

    /// Starts the next pass as soon as no operation of this one is in service.
    fn begin_anew(&mut self, now: Time) {
        (self.pause, self.surveys_from) = (PAUSE_MIN, None);
        self.pending.clear();
        match self.phase {
            RebuildPhase::Idle { .. } => return self.begin_at(now),
            _ if self.under_way == 0 => self.phase = RebuildPhase::Idle { due: now },
            _ => (self.phase, self.begins_anew) = (RebuildPhase::Working { next: None }, true),
        }
        // The interrupted pass has not listed everything.
        self.unlisted = true;
    }

    /// True if a blob that lacks its stacks on the drives `missing` is to be rebuilt now.
    fn takes(&self, drive: DriveId, missing: &[DriveId]) -> bool {
        // A retired drive that replaced another may still lack stacks of that one: they are rebuilt when the blob lacks
        // no other stack.
        if self.retires {
            return missing.iter().all(|other| *other == drive);
        }
        if self.there == (There::Returned { sought: true }) {
            return missing.contains(&drive);
        }
        let is_top = self.surveys_from == Some(self.level);
        let (level, losses) = (usize::from(self.level), missing.len());
        missing.first() == Some(&drive) && (losses == level || (is_top && losses > level))
    }

    /// The known exposure of the blobs that belong to this drive.
    fn exposure(&self) -> Exposure {
        match self.surveys_from {
            Some(_) => self.exposure.clone().at_least(&self.surveyed),
            None => self.exposure.clone(),
        }
    }

    /// Ends the pass. If it left something, the next one follows after a pause.
    fn end_pass(&mut self, now: Time, used_bytes: u64) {
        assert!(matches!(self.phase, RebuildPhase::Working { next: None }), "a pass ends after its last page");
        assert!(self.pending.is_empty() && self.under_way == 0, "a pass ends when nothing of it is under way");
        if core::mem::take(&mut self.begins_anew) {
            self.phase = RebuildPhase::Idle { due: now };
            return;
        }
        self.lost_bytes = self.lost_bytes.map(|_| self.shown_bytes);
        if self.counts.waiting == 0 && self.there == (There::Returned { sought: true }) {
            self.there = There::Returned { sought: false };
        }
        if self.is_over(used_bytes) {
            self.phase = RebuildPhase::Idle { due: Time::MAX };
            self.pause = PAUSE_MIN;
            return;
        }
        if self.counts.rebuilt > 0 {
            self.pause = PAUSE_MIN;
        }
        self.phase = RebuildPhase::Idle { due: now + self.pause };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        assert!(self.pause >= PAUSE_MIN, "passes do not follow each other without a pause");
    }
}

/// The next need of a failed drive's rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing at present.
    Nothing,
    /// The page after this blob.
    Page { after: Option<BlobId> },
    /// Queue blobs of its page.
    Queue,
    /// Nothing: the pass has ended, and what waited for it may continue.
    Ended,
}

/// The drives that are being rebuilt or emptied. See the head of this file.
#[derive(Default)]
pub(crate) struct Rebuilder {
    drives: BTreeMap<DriveId, Passes>,
    /// For each blob and drive whose stack is queued to be rebuilt or in service: the drives on which the blob lacks
    /// its stack.
    missing: BTreeMap<(BlobId, DriveId), Vec<DriveId>>,
}

impl Rebuilder {
    /// `drive` failed permanently. Blobs of its group are more exposed than before: their passes restart. If it was a
    /// replacement of a failed drive, returns the bytes that were still lost with that one; from now on everything
    /// counted in this place is left to be rebuilt.
    pub fn failed(&mut self, drive: DriveId, home: Home, now: Time) -> Option<u64> {
        let of_group = self.drives.values_mut().filter(|passes| passes.home.group == home.group);
        of_group.for_each(|passes| passes.begin_anew(now));
        let Some(passes) = self.drives.get_mut(&drive) else {
            self.drives.insert(drive, Passes::new(home, now, None));
            return None;
        };
        (passes.unlisted, passes.retires, passes.there) = (true, false, There::Itself);
        passes.lost_bytes.take()
    }

    /// The operator wants `drive`, which is good, to be empty. If it is a replacement of a failed drive, returns the
    /// bytes that were still lost with that one; from now on everything counted in this place is left to be moved.
    pub fn retires(&mut self, drive: DriveId, home: Home, now: Time) -> Option<u64> {
        let passes = self.drives.entry(drive).or_insert_with(|| Passes::new(home, now, None));
        (passes.retires, passes.unlisted, passes.there) = (true, true, There::Itself);
        passes.begin_anew(now);
        passes.lost_bytes.take()
    }

    /// True if the stacks of `drive`, which was given up and came back, are looked for in their places.
    pub fn has_returned(&self, drive: DriveId) -> bool {
        self.drives.get(&drive).is_some_and(|passes| passes.there == There::Returned { sought: true })
    }

    /// True if the stacks of `drive` move away although it is good.
    pub fn is_retiring(&self, drive: DriveId) -> bool {
        self.drives.get(&drive).is_some_and(|passes| passes.retires)
    }

    /// True if a pass over `drive`, which is being retired and has `used_bytes`, has left nothing.
    pub fn has_emptied(&self, drive: DriveId, used_bytes: u64) -> bool {
        self.drives.get(&drive).is_some_and(|passes| passes.retires && passes.is_over(used_bytes))
    }

    /// True if nothing is left to do for `drive`, which has `used_bytes`, and nothing can be added.
    pub fn is_over(&self, drive: DriveId, used_bytes: u64) -> bool {
        self.drives.get(&drive).is_none_or(|passes| !passes.is_under_way() && passes.is_over(used_bytes))
    }

    /// Bytes of stacks of `drive` left to be rebuilt, if blobs use `used_bytes` of it.
    pub fn left_bytes_of(&self, drive: DriveId, used_bytes: u64) -> u64 {
        self.drives.get(&drive).map_or(0, |passes| passes.left_bytes(used_bytes))
    }

    /// Another drive has replaced `drive`; `lost_bytes` of its stacks are not rebuilt. Its group has one more drive as
    /// a target of rebuilds.
    pub fn replaced(&mut self, drive: DriveId, home: Home, lost_bytes: u64, now: Time) {
        let passes = self.drives.entry(drive).or_insert_with(|| Passes::new(home, now, Some(lost_bytes)));
        (passes.lost_bytes, passes.there) = (Some(lost_bytes), There::Another);
        passes.hasten(now);
    }

    /// `drive` itself is back; its `lost_bytes` do not count until they are found.
    pub fn returned(&mut self, drive: DriveId, home: Home, lost_bytes: u64, now: Time) {
        self.replaced(drive, home, lost_bytes, now);
        if let Some(passes) = self.drives.get_mut(&drive) {
            passes.there = There::Returned { sought: true };
            passes.begin_anew(now);
        }
    }

    /// A blob was written that has a stack on `drive`, which failed or was retired in the meantime: it is listed again.
    pub fn written(&mut self, drive: DriveId, now: Time) {
        if let Some(passes) = self.drives.get_mut(&drive) {
            passes.unlisted = true;
            passes.begin_at(now);
        }
    }

    /// A drive is back: rebuilds of `drives` that waited for it are retried soon, as is what the current pass gave up.
    pub fn retry(&mut self, drives: &[DriveId]) {
        for drive in drives {
            if let Some(passes) = self.drives.get_mut(drive) {
                passes.hasten(Time::ZERO);
            }
        }
    }

    /// The time at which the next pass is due.
    pub fn deadline(&self, used_bytes: impl Fn(DriveId) -> u64) -> Time {
        let due = |(drive, passes): (&DriveId, &Passes)| match passes.phase {
            RebuildPhase::Idle { due } if !passes.is_over(used_bytes(*drive)) => Some(due),
            _ => None,
        };
        self.drives.iter().filter_map(due).min().unwrap_or(Time::MAX)
    }

    /// True if a pass over a drive of `group` is under way at `now`, or about to start: a page is awaited or in
    /// progress. Work that waits for a later pass does not count: drives that are away may stay away.
    pub fn is_pending(&self, group: GroupId, used_bytes: impl Fn(DriveId) -> u64, now: Time) -> bool {
        let mut of_group = self.drives.iter().filter(|(_, passes)| passes.home.group == group);
        of_group.any(|(drive, passes)| match passes.phase {
            RebuildPhase::Listing { .. } | RebuildPhase::Working { .. } => true,
            RebuildPhase::Idle { due } => due <= now && !passes.is_over(used_bytes(*drive)),
        })
    }

    /// True if there is nothing to rebuild: no drive has failed or is retired.
    pub fn is_idle(&self) -> bool {
        self.drives.is_empty()
    }

    /// The failed, replaced, returned and retired drives, by id.
    pub fn drives(&self) -> Vec<DriveId> {
        self.drives.keys().copied().collect()
    }

    /// The next need of the rebuild of `drive`. A pass that is due starts.
    pub fn need(&mut self, drive: DriveId, used_bytes: impl Fn(DriveId) -> u64, now: Time) -> Need {
        let top = self.top_level(drive, &used_bytes);
        let holds_back = self.holds_back(drive);
        let Some(passes) = self.drives.get_mut(&drive) else { return Need::Nothing };
        match passes.phase {
            RebuildPhase::Working { .. } if holds_back => Need::Nothing,
            RebuildPhase::Working { .. } => Need::Queue,
            RebuildPhase::Idle { .. } if passes.is_over(used_bytes(drive)) => Need::Nothing,
            RebuildPhase::Idle { due: Time::MAX } => {
                passes.phase = RebuildPhase::Idle { due: now + PAUSE_MIN };
                Need::Nothing
            }
            RebuildPhase::Idle { due } if due <= now => {
                passes.begin_pass(top);
                Need::Page { after: None }
            }
            RebuildPhase::Idle { .. } | RebuildPhase::Listing { .. } => Need::Nothing,
        }
    }

    /// The highest level that a blob on `drive` can have: the number of drives of its group with unrebuilt losses, at
    /// most r.
    fn top_level(&self, drive: DriveId, used_bytes: impl Fn(DriveId) -> u64) -> u8 {
        let Some(own) = self.drives.get(&drive) else { return 1 };
        if own.retires {
            return 0;
        }
        let home = own.home;
        let of_group = self.drives.iter().filter(|(_, passes)| passes.home.group == home.group && !passes.retires);
        let lossy = of_group.filter(|(id, passes)| **id == drive || passes.left_bytes(used_bytes(**id)) > 0).count();
        u8::try_from(lossy).unwrap_or(u8::MAX).min(home.parity).max(1)
    }

    /// True if `drive` waits for others of its class: they rebuild more exposed blobs, or are still at the level that
    /// this drive has finished.
    fn holds_back(&self, drive: DriveId) -> bool {
        let Some(own) = self.drives.get(&drive).filter(|own| !own.begins_anew) else { return false };
        let others = self.drives.iter().filter(|(id, passes)| **id != drive && passes.home.class == own.home.class);
        let mut under_way = others.map(|(_, passes)| passes).filter(|other| other.is_under_way() && !other.begins_anew);
        let is_through = own.has_ended_level();
        under_way.any(|other| {
            other.level > own.level || (is_through && other.level == own.level && !other.has_ended_level())
        })
    }

    /// The need after the blobs of a page were queued as far as there was room: the next page, if all were. After the
    /// last page, when nothing is under way, the next level starts or the pass ends.
    pub fn need_behind_page(&mut self, drive: DriveId, used_bytes: u64, now: Time) -> Need {
        let holds_back = self.holds_back(drive);
        let Some(passes) = self.drives.get_mut(&drive) else { return Need::Nothing };
        if passes.phase == (RebuildPhase::Working { next: None }) && passes.pending.is_empty() {
            passes.end_survey();
        }
        match passes.phase {
            RebuildPhase::Working { .. } if holds_back || !passes.pending.is_empty() => Need::Nothing,
            RebuildPhase::Working { next: Some(next) } => Need::Page { after: Some(next) },
            RebuildPhase::Working { next: None } if passes.under_way == 0 => {
                if passes.begin_next_level() {
                    return Need::Page { after: None };
                }
                passes.end_pass(now, used_bytes);
                Need::Ended
            }
            _ => Need::Nothing,
        }
    }

    /// True if a blob of the page of `drive`, which lacks its stacks on the drives `missing`, is to be rebuilt now.
    pub fn takes(&self, drive: DriveId, missing: &[DriveId]) -> bool {
        self.drives.get(&drive).is_some_and(|passes| passes.takes(drive, missing))
    }

    /// A blob of the page of `drive` was examined: the first listing of a pass counts those that belong to the drive.
    pub fn looked_at(&mut self, drive: DriveId, missing: &[DriveId]) {
        if let Some(passes) = self.drives.get_mut(&drive).filter(|passes| passes.surveys_from.is_some())
            && missing.first() == Some(&drive)
        {
            passes.surveyed.add(missing.len());
        }
    }

    /// `blob`, whose stack on `drive` is being rebuilt, now also lacks the one on `failed`.
    pub fn lacks_more(&mut self, blob: BlobId, drive: DriveId, failed: DriveId) {
        if let Some(missing) = self.missing.get_mut(&(blob, drive)).filter(|missing| !missing.contains(&failed)) {
            missing.push(failed);
            missing.sort_unstable();
        }
    }

    /// The drives on which `blob` lacks its stack, while the rebuild of the one on `drive` is queued or in service.
    pub fn missing_of(&self, blob: BlobId, drive: DriveId) -> &[DriveId] {
        self.missing.get(&(blob, drive)).map_or(&[], |missing| missing)
    }

    /// True if the listing under way is the first of its pass, which counts the losses.
    pub fn surveys(&self, drive: DriveId) -> bool {
        self.drives.get(&drive).is_some_and(|passes| passes.surveys_from.is_some())
    }

    /// The number of blobs by lost stacks, for a code that tolerates `parity` losses.
    pub fn exposure(&self, parity: u8, used_bytes: impl Fn(DriveId) -> u64) -> Exposure {
        let is_lossy = |drive: DriveId, passes: &Passes| !passes.retires && passes.left_bytes(used_bytes(drive)) > 0;
        let lossy = self.drives.iter().filter(|(drive, passes)| is_lossy(**drive, passes));
        lossy.fold(Exposure::none(parity), |sum, (_, passes)| sum.plus(&passes.exposure()))
    }

    /// Requests the blobs of `drive` after `after`.
    pub fn list(&mut self, drive: DriveId, after: Option<BlobId>, attempt: Attempt) -> Option<Action> {
        let passes = self.drives.get_mut(&drive)?;
        assert!(passes.pending.is_empty(), "one page of {drive} at a time");
        assert!(!matches!(passes.phase, RebuildPhase::Listing { .. }), "the page before was answered");
        passes.phase = RebuildPhase::Listing { attempt, after };
        Some(Action::ListOnDrive { drive, attempt, after, limit: PAGE_BLOBS })
    }

    /// A page of the blobs on `drive`; ignored if it is not the awaited one.
    pub fn page(&mut self, drive: DriveId, attempt: Attempt, blobs: Vec<BlobOnDrive>, next: Option<BlobId>) {
        let Some(passes) = self.drives.get_mut(&drive) else { return };
        let RebuildPhase::Listing { attempt: awaited, after } = passes.phase else { return };
        if awaited != attempt {
            return;
        }
        // A page that does not advance ends the pass, which would otherwise never end.
        passes.phase = RebuildPhase::Working { next: next.filter(|next| after.is_none_or(|after| *next > after)) };
        for blob in blobs.into_iter().take(PAGE_BLOBS as usize) {
            passes.shown_bytes = passes.shown_bytes.saturating_add(blob.stack_bytes);
            passes.pending.push_back(blob);
        }
        assert!(passes.pending.len() <= PAGE_BLOBS as usize, "memory is one page for each failed drive");
    }

    /// The awaited page could not be listed: the pass restarts after [`PAUSE_MIN`].
    pub fn unlisted(&mut self, drive: DriveId, attempt: Attempt, now: Time) {
        let Some(passes) = self.drives.get_mut(&drive) else { return };
        if matches!(passes.phase, RebuildPhase::Listing { attempt: awaited, .. } if awaited == attempt) {
            passes.unlisted = true;
            passes.begin_anew(now + PAUSE_MIN);
        }
    }

    /// The next blob of the page, if the window has room for its rebuild.
    pub fn next_blob(&mut self, drive: DriveId) -> Option<BlobOnDrive> {
        let passes = self.drives.get_mut(&drive).filter(|passes| passes.under_way < WINDOW)?;
        let blob = passes.pending.pop_front();
        assert!(
            blob.is_none() || matches!(passes.phase, RebuildPhase::Working { .. }),
            "blobs of {drive} come from its page"
        );
        blob
    }

    /// The queue has no room for the rebuild of this blob, which was the next one.
    pub fn put_back(&mut self, drive: DriveId, blob: BlobOnDrive) {
        if let Some(passes) = self.drives.get_mut(&drive) {
            passes.pending.push_front(blob);
            assert!(passes.pending.len() <= PAGE_BLOBS as usize, "what is put back was taken out");
        }
    }

    /// A rebuild of `blob`, which lacks its stacks on the drives `missing`, is queued for the one on `drive`.
    pub fn queued(&mut self, drive: DriveId, blob: BlobId, missing: Vec<DriveId>) {
        self.missing.insert((blob, drive), missing);
        if let Some(passes) = self.drives.get_mut(&drive) {
            assert!(
                matches!(passes.phase, RebuildPhase::Working { .. }),
                "a rebuild of {drive} is queued during a pass"
            );
            passes.under_way += 1;
            assert!(passes.under_way <= WINDOW, "no more rebuilds of {drive} than the window holds");
        }
    }

    /// A blob of the page of `drive` is left to the pass over another drive, or to a later level of this one.
    pub fn left_to_others(&mut self, drive: DriveId) {
        if let Some(passes) = self.drives.get_mut(&drive) {
            passes.left_to_others += 1;
        }
    }

    /// A blob is skipped: its rebuild cannot succeed now, or ever.
    pub fn skipped(&mut self, drive: DriveId, reason: Rejection) {
        if let Some(passes) = self.drives.get_mut(&drive) {
            assert!(matches!(passes.phase, RebuildPhase::Working { .. }), "a blob on {drive} is skipped during a pass");
            passes.counts.put_off(Some(reason));
        }
    }

    /// A rebuild of `blob`, with a stack of `stack_bytes` on `drive`, ended.
    pub fn ended(&mut self, drive: DriveId, blob: BlobId, outcome: &Outcome, stack_bytes: u64) {
        let missing = self.missing.remove(&(blob, drive)).unwrap_or_default();
        if *outcome == Outcome::Rebuilt {
            let others = self.missing.range_mut((blob, DriveId(0))..=(blob, DriveId(u32::MAX)));
            others.for_each(|(_, missing)| missing.retain(|other| *other != drive));
            self.less_exposed(drive, missing);
        }
        let Some(passes) = self.drives.get_mut(&drive) else { return };
        assert!(passes.under_way > 0, "a rebuild of {drive} ends once");
        assert!(!matches!(passes.phase, RebuildPhase::Idle { .. }), "a rebuild of {drive} ends before its pass");
        passes.under_way -= 1;
        match outcome {
            Outcome::Rebuilt => {
                passes.counts.rebuilt += 1;
                passes.rebuilt_stacks += 1;
                passes.rebuilt_bytes += stack_bytes;
                passes.shown_bytes = passes.shown_bytes.saturating_sub(stack_bytes);
                passes.lost_bytes = passes.lost_bytes.map(|lost_bytes| lost_bytes.saturating_sub(stack_bytes));
            }
            // It was withdrawn, and the pass restarts.
            Outcome::Cancelled => {}
            Outcome::Failed(reason) => passes.counts.put_off(Some(*reason)),
            _ => passes.counts.put_off(None),
        }
    }

    /// A dead blob was removed whose stack of `stack_bytes` on `drive` was lost.
    pub fn removed(&mut self, drive: DriveId, blob: BlobId, stack_bytes: u64) {
        let Some(passes) = self.drives.get_mut(&drive) else { return };
        passes.lost_bytes = passes.lost_bytes.map(|lost_bytes| lost_bytes.saturating_sub(stack_bytes));
        if passes.has_shown(blob) {
            passes.shown_bytes = passes.shown_bytes.saturating_sub(stack_bytes);
        }
    }

    /// A blob that lacked its stacks on the drives `missing` has the one of `drive` again: it is one level lower, and
    /// belongs to the first drive that is left.
    fn less_exposed(&mut self, drive: DriveId, missing: Vec<DriveId>) {
        let (before, owner) = (missing.len(), missing.first().copied());
        let left: Vec<DriveId> = missing.into_iter().filter(|other| *other != drive).collect();
        if let Some(passes) = owner.and_then(|owner| self.drives.get_mut(&owner)) {
            passes.exposure.remove(before);
            passes.surveyed.remove(before);
        }
        if let Some(passes) = left.first().and_then(|owner| self.drives.get_mut(owner)) {
            passes.exposure.add(left.len());
            passes.surveyed.add(left.len());
        }
    }

    /// Updates all records of a blob after the move of its stack.
    pub fn follow_move(&mut self, moved: &StackMove) {
        for blob in self.drives.values_mut().flat_map(|passes| &mut passes.pending) {
            moved.follow(blob.blob, &mut blob.drives);
        }
    }

    /// Bytes of stacks left to be rebuilt, for each drive.
    pub fn left_bytes(&self, used_bytes: impl Fn(DriveId) -> u64) -> impl Iterator<Item = (DriveId, u64)> {
        self.drives.iter().map(move |(drive, passes)| (*drive, passes.left_bytes(used_bytes(*drive))))
    }

    /// The progress of each drive; `outlook` returns its group and the time estimate for a number of bytes.
    pub fn views(
        &self,
        used_bytes: impl Fn(DriveId) -> u64,
        outlook: impl Fn(DriveId, u64) -> Option<(GroupId, Forecast)>,
    ) -> impl Iterator<Item = RebuildView> {
        self.drives.iter().filter_map(move |(drive, passes)| {
            let left_bytes = passes.left_bytes(used_bytes(*drive));
            let reported = passes.reported(left_bytes);
            assert!(passes.under_way <= WINDOW, "no more rebuilds of {drive} than the window holds");
            let (group, forecast) = outlook(*drive, left_bytes)?;
            Some(RebuildView {
                drive: *drive,
                group,
                left_bytes,
                rebuilt_stacks: passes.rebuilt_stacks,
                rebuilt_bytes: passes.rebuilt_bytes,
                lost_blobs: reported.lost,
                waiting_blobs: reported.waiting,
                unplaced_blobs: reported.unplaced,
                under_way: passes.under_way,
                retires: passes.retires,
                there: match passes.there {
                    There::Itself => InPlace::Itself,
                    There::Another => InPlace::Another,
                    There::Returned { .. } => InPlace::Returned,
                },
                used_bytes: used_bytes(*drive),
                forecast,
            })
        })
    }
}
