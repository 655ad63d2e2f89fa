//! Scrubbing: every blob of a rack is read completely once per period, so that damage is found while it can still be
//! repaired from the other stacks.
//!
//! Time is divided into *periods*. In each period each group has a *pass* over the blobs that it held when the pass
//! started, by number. (Blobs written later were read back when they were written.) A pass consists of *steps*, each of
//! which reads at most [`ScrubPolicy::step_bytes`] of one blob from all of its stacks.
//! 1. A step starts only in a group that is awake and has nothing else to do. Queued work goes first, and a group goes
//!    to sleep for others of its class as if there were no scrub.
//! 2. In a group that is awake for other work, a pass *rides along*: steps start until [`ScrubPolicy::ride_along`]
//!    after the last other work. Steps do not count as work, so the group goes to sleep at its idle timeout, or when
//!    the time to ride along is over and the current step has ended, whichever is later.
//! 3. From a moment in the second half of the period, different for each group, a pass that is late is *due*: it has
//!    covered a smaller share of its bytes than has passed of the period. For a due pass the group is woken, as
//!    background work, when its class has nothing else to do, or at the latest when the period has ended; at most
//!    [`ScrubPolicy::starts_per_day`] times a day, and within the budgets of its drives. In its own wake a pass
//!    continues to its end, unless another group of the class is wanted: clients get the class at once, or within a
//!    quantum if the pass is overdue; other work gets it within a quantum.
//! 4. A blob with fragments that were repaired in place is read again, to read those back. A stack that cannot be
//!    repaired in place is regenerated as an operation of [`PriorityClass::Rebuild`](crate::PriorityClass::Rebuild). A
//!    blob with too few good fragments is also read again before it counts as lost.
//! 5. A blob that cannot be read now, because too few of its drives are present, is *put off* (`scrub/put_off.rs`): the
//!    pass continues without it, and later retries it without waiting for it.
//! 6. At the end of the list the pass is complete. The next one starts with the next period, not earlier.
//!
//! The position of a pass and its put-off blobs are persisted after each page ([`Action::PersistScrub`]); after a
//! crash, the work since the last time is repeated.
//!
//! Invariants: memory is a page for each class, and a record and some blobs for each group; a page counts only if it is
//! the awaited one, and each page advances, so a pass ends; nothing is scrubbed while scrubbing is paused.

mod put_off;
#[cfg(test)]
mod tests;

use self::put_off::{PAUSE, PutOff};
use crate::action::Action;
use crate::event::BlobOnDrive;
pub use crate::event::ScrubPage;
use crate::ops::StackMove;
use crate::policy::ScrubPolicy;
pub use crate::scrub_pass::{ScrubCounts, ScrubPass, Scrubbed, ScrubbedPass};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, BlobId, ClassId, GroupId, OpId, Time};

/// Maximum number of blobs on a page.
const PAGE_BLOBS: u32 = 32;

/// Progress of the scrub of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubView {
    /// The group.
    pub group: GroupId,
    /// Its pass.
    pub pass: ScrubPass,
    /// The end of its period.
    pub period_ends: Time,
    /// True if the pass has not ended within its period.
    pub overdue: bool,
    /// Blobs that a pass could not read, and that are retried.
    pub put_off_blobs: u64,
}

/// The current blob of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtBlob {
    pub blob: BlobOnDrive,
    /// Payload bytes read in this round.
    pub from: u64,
    /// Stacks that are damaged and cannot be repaired in place.
    pub bad: BTreeSet<u8>,
    /// Stacks with fragments that were repaired in this round.
    pub repaired: BTreeSet<u8>,
    /// The same for the previous round.
    pub before: BTreeSet<u8>,
    /// Stacks that could not be read.
    pub unread: BTreeSet<u8>,
    /// A stripe had too few good fragments.
    pub lost: bool,
    /// True if this is the second round.
    pub again: bool,
}

impl AtBlob {
    fn new(blob: BlobOnDrive) -> Self {
        let none = BTreeSet::new;
        let (bad, repaired, before, unread) = (none(), none(), none(), none());
        Self { blob, from: 0, bad, repaired, before, unread, lost: false, again: false }
    }

    /// Ends a round, in which all of the blob was read. True if it is to be read again.
    pub fn ends_round(&mut self) -> bool {
        if self.again {
            // A stack that was repaired and is bad again cannot be repaired in place.
            self.bad.append(&mut self.repaired);
            return false;
        }
        if !self.lost && self.repaired.is_empty() {
            return false;
        }
        self.before = core::mem::take(&mut self.repaired);
        (self.from, self.again, self.lost) = (0, true, false);
        true
    }
}

/// The page of a class.
#[derive(Default)]
struct Page {
    /// Its group; no other group's page is in memory.
    of: Option<GroupId>,
    awaiting: Option<Attempt>,
    /// It starts after this blob.
    after: Option<BlobId>,
    blobs: VecDeque<BlobOnDrive>,
    /// The next page starts after this blob.
    next: Option<BlobId>,
    /// It was received, and the list ends with it.
    is_last: bool,
    at: Option<AtBlob>,
    /// The put-off blob that is being retried, and its group.
    again: Option<(GroupId, AtBlob)>,
    /// A step is in service.
    stepping: bool,
    /// The wake that is queued or under way only to scrub in this class.
    queued: Option<(OpId, GroupId)>,
    /// The awake group was woken for its pass, or its pass is due.
    own: bool,
}

/// The pass of a group.
#[derive(Clone, Default)]
struct GroupScrub {
    pass: ScrubPass,
    /// It was reported, or was started since.
    known: bool,
    /// There is something to persist.
    dirty: bool,
    /// The time at which it needs attention, unless another event comes first.
    due: Time,
    put_off: PutOff,
}

/// The next thing to do in a group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A page is awaited.
    Wait,
    /// Request the page after this blob.
    Page,
    /// Continue to read the current blob of the class.
    Step,
    /// Nothing at present.
    Done,
}

/// The need of a pass that is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A page, to know if anything is left.
    Page,
    /// A wake of its group.
    Wake,
}

/// The passes of a rack. See the head of this file.
pub(crate) struct Scrubber {
    policy: ScrubPolicy,
    groups: Vec<GroupScrub>,
    pages: Vec<Page>,
    pub paused: bool,
}

impl Scrubber {
    pub fn new(policy: ScrubPolicy, group_count: usize, class_count: usize) -> Self {
        assert!(policy.step_bytes > 0, "a step reads something");
        let groups = vec![GroupScrub::default(); group_count];
        Self { policy, groups, pages: (0..class_count).map(|_| Page::default()).collect(), paused: false }
    }

    fn period(&self) -> Option<Duration> {
        self.policy.period.filter(|_| !self.paused)
    }

    /// True if nothing is scrubbed: scrubbing is off, or paused.
    pub fn is_off(&self) -> bool {
        self.period().is_none()
    }

    /// At boot: records the reported position of the pass of `group`.
    pub fn report(&mut self, group: GroupId, pass: ScrubPass) {
        if let Some(state) = self.groups.get_mut(group.index()) {
            *state = GroupScrub { pass, known: true, dirty: false, due: Time::ZERO, put_off: PutOff::default() };
        }
    }

    /// At boot: `blob` of `group` was put off; the group's pass was reported before.
    pub fn report_unread(&mut self, group: GroupId, blob: BlobOnDrive, now: Time) {
        if let Some(state) = self.groups.get_mut(group.index()).filter(|state| state.known) {
            state.put_off.add(blob, 0, now);
        }
    }

    /// Starts the first pass of a group without one, over stacks of `used_bytes`. Replaces a pass that was completed in
    /// an earlier period by the next one.
    pub fn begin_due(&mut self, group: GroupId, used_bytes: u64, now: Time) {
        let Some(period) = self.period() else { return };
        let state = &mut self.groups[group.index()];
        let over = state.pass.complete && now >= state.pass.began + period;
        if state.known && !over {
            return;
        }
        let periods = if state.known { now.nanos_since(state.pass.began) / period.as_nanos().max(1) as u64 } else { 0 };
        let began = if state.known { state.pass.began + times(period, periods) } else { now };
        self.begin(group, began, used_bytes, false);
    }

    /// The operator requests a pass of `group` now.
    pub fn request(&mut self, class: ClassId, group: GroupId, used_bytes: u64, now: Time) {
        if self.period().is_none() {
            return;
        }
        if self.pages[class.index()].of == Some(group) {
            self.forget_page(class);
        }
        self.begin(group, now, used_bytes, true);
    }

    fn begin(&mut self, group: GroupId, began: Time, total_bytes: u64, requested: bool) {
        let state = &mut self.groups[group.index()];
        let ScrubPass { serial, last, own_wakes, .. } = state.pass;
        let pass = ScrubPass { serial, began, total_bytes, last, own_wakes, requested, ..ScrubPass::default() };
        let mut put_off = core::mem::take(&mut state.put_off);
        put_off.new_pass();
        *state = GroupScrub { pass, known: true, dirty: true, due: Time::ZERO, put_off };
    }

    /// Requests that the position of the pass of `group` be persisted, if it has changed.
    pub fn persist(&mut self, group: GroupId) -> Option<Action> {
        let state = &mut self.groups[group.index()];
        if !core::mem::take(&mut state.dirty) {
            return None;
        }
        state.pass.serial += 1;
        Some(Action::PersistScrub { group, pass: state.pass, unread: state.put_off.blobs().collect() })
    }

    /// The next time after `now` at which a pass needs attention.
    pub fn deadline(&self, now: Time) -> Time {
        if self.is_off() {
            return Time::MAX;
        }
        let due = self.groups.iter().filter(|state| state.known).map(|state| state.due);
        due.filter(|due| *due > now).min().unwrap_or(Time::MAX)
    }

    /// The time at which `group` next needs attention, for its pass or for put-off blobs.
    fn next_look(&self, group: GroupId, now: Time) -> Time {
        self.next_of_pass(group, now).min(self.groups[group.index()].put_off.wakes_at())
    }

    /// The same for its pass alone: the next period if it is complete; otherwise the time from which it may be due.
    fn next_of_pass(&self, group: GroupId, now: Time) -> Time {
        let Some(period) = self.period() else { return Time::MAX };
        let pass = &self.groups[group.index()].pass;
        if pass.complete {
            return pass.began + period;
        }
        if pass.requested {
            return now;
        }
        let (index, count) = (group.index() as u64 + 1, self.groups.len() as u64 + 1);
        // Each group has its own moment in the second half of the period.
        let share = 500 + 500 * index / count;
        let covered = pass.covered_permille();
        pass.began + times(period, share.max(covered)) / 1000
    }

    /// True if `group` has something to do now: its pass is due, or a put-off blob is to be retried.
    pub fn is_due(&self, group: GroupId, now: Time) -> bool {
        let state = &self.groups[group.index()];
        let again = !self.is_off() && state.known && now >= state.put_off.wakes_at();
        now >= state.due && (again || self.is_pass_due(group, now))
    }

    /// True if the pass of `group` is due: it is late, and the group's moment has come.
    pub fn is_pass_due(&self, group: GroupId, now: Time) -> bool {
        let state = &self.groups[group.index()];
        let open = !self.is_off() && state.known && !state.pass.complete;
        open && now >= self.next_of_pass(group, now)
    }

    /// True if the period of the pass of `group` has ended, and the pass has not.
    pub fn is_overdue(&self, group: GroupId, now: Time) -> bool {
        let pass = &self.groups[group.index()].pass;
        self.policy.period.is_some_and(|period| !pass.complete && now >= pass.began + period)
    }

    /// True if the end of the blobs in the pass of `group` is known.
    pub fn knows_its_end(&self, group: GroupId) -> bool {
        self.groups[group.index()].pass.end.is_some()
    }

    /// True if the operator has requested the current pass of `group`.
    pub fn is_requested(&self, group: GroupId) -> bool {
        self.groups[group.index()].pass.requested
    }

    /// The groups that need attention now, in the order in which they became due.
    pub fn to_look_at(&self, now: Time) -> Vec<GroupId> {
        if self.is_off() {
            return Vec::new();
        }
        let due = |(_, state): &(usize, &GroupScrub)| state.due <= now || !state.known;
        let mut groups: Vec<(Time, GroupId)> =
            self.groups.iter().enumerate().filter(due).map(|(id, state)| (state.due, GroupId(id as u32))).collect();
        groups.sort_unstable();
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// `group` needs no attention before `at`.
    pub fn look_again(&mut self, group: GroupId, at: Time) {
        self.groups[group.index()].due = at;
    }

    /// Nothing is due in `group`: plans the next time at which something may be.
    pub fn not_due(&mut self, group: GroupId, now: Time) {
        self.groups[group.index()].due = self.next_look(group, now).max(now);
    }

    /// The need of the pass of `group`, which is due and whose group sleeps. `None` while a page of its class is
    /// awaited, a wake is queued or a step is in service, or if the current page belongs to another pass that is due.
    pub fn need(&self, class: ClassId, group: GroupId, now: Time) -> Option<Need> {
        let page = &self.pages[class.index()];
        if page.queued.is_some() || page.awaiting.is_some() || page.stepping {
            return None;
        }
        let has_blobs = page.at.is_some() || !page.blobs.is_empty();
        match page.of.filter(|_| has_blobs) {
            Some(of) if of == group => Some(Need::Wake),
            Some(of) if self.is_due(of, now) && self.is_pass_due(of, now) => None,
            _ => Some(Need::Page),
        }
    }

    /// True if a wake may be queued for put-off blobs of a group of `class`.
    pub fn may_read_again(&self, class: ClassId) -> bool {
        let page = &self.pages[class.index()];
        page.queued.is_none() && page.awaiting.is_none() && !page.stepping
    }

    /// True if the scrub's own budget allows waking the group for its pass on this day.
    pub fn may_wake(&self, group: GroupId, now: Time) -> bool {
        let pass = &self.groups[group.index()].pass;
        let (day, wakes) = pass.own_wakes;
        pass.requested || day < now.day() || wakes < self.policy.starts_per_day
    }

    /// `op`, which wakes `group` for its pass, is queued.
    pub fn queued(&mut self, class: ClassId, group: GroupId, op: OpId) {
        let before = self.pages[class.index()].queued.replace((op, group));
        assert!(before.is_none(), "one wake of a class is queued at a time");
    }

    /// The group is awake, and was woken for its pass.
    pub fn woken(&mut self, group: GroupId, now: Time) {
        let state = &mut self.groups[group.index()];
        let (day, wakes) = state.pass.own_wakes;
        state.pass.own_wakes = if day < now.day() { (now.day(), 1) } else { (day, wakes.saturating_add(1)) };
        state.dirty = true;
    }

    /// True if `op` wakes a group for its pass.
    pub fn is_own_wake(&self, class: ClassId, op: OpId) -> bool {
        self.pages[class.index()].queued.is_some_and(|(queued, _)| queued == op)
    }

    /// The wake of `group` for its pass ended: the group is up, or could not be woken. It needs attention next at
    /// `again`.
    pub fn wake_ended(&mut self, class: ClassId, group: GroupId, (up, again): (bool, Time), now: Time) {
        let own = up && self.is_pass_due(group, now);
        let page = &mut self.pages[class.index()];
        assert!(page.queued.is_some_and(|(_, queued)| queued == group), "a wake of {group} was queued");
        (page.queued, page.own) = (None, own);
        if !up {
            self.groups[group.index()].put_off.all_tried(now);
        }
        self.groups[group.index()].due = again;
    }

    /// `group` is awake, but too few of its drives are present to read any of its blobs.
    pub fn none_is_there(&mut self, group: GroupId, now: Time) {
        self.groups[group.index()].put_off.all_tried(now);
    }

    /// The time of the next attention for a group that was woken for its pass and did not reach its end.
    pub fn pause_from(now: Time) -> Time {
        now + PAUSE
    }

    /// Something is due in `group`, which is awake: if its pass is, the pass continues to its end.
    pub fn own(&mut self, class: ClassId, group: GroupId, now: Time) {
        let own = self.is_pass_due(group, now);
        self.pages[class.index()].own |= own;
    }

    /// True if the awake group of `class` is awake for its pass.
    pub fn is_own(&self, class: ClassId) -> bool {
        self.pages[class.index()].own
    }

    /// True if a step may start in `group`, which has had no other work since `idle_since`.
    pub fn may_begin(&self, class: ClassId, group: GroupId, idle_since: Time, now: Time) -> bool {
        let state = &self.groups[group.index()];
        let again = !self.is_off() && state.known && state.put_off.next(now).is_some();
        again || self.may_go_on(class, group, idle_since, now)
    }

    /// The same for a step of its pass.
    pub fn may_go_on(&self, class: ClassId, group: GroupId, idle_since: Time, now: Time) -> bool {
        let state = &self.groups[group.index()];
        let open = !self.is_off() && state.known && !state.pass.complete;
        open && (self.pages[class.index()].own || now < idle_since + self.policy.ride_along)
    }

    /// The awake group of `class` goes to sleep. Its page and its position in a blob are kept.
    pub fn rest(&mut self, class: ClassId) {
        self.pages[class.index()].own = false;
    }

    fn forget_page(&mut self, class: ClassId) {
        let Page { queued, own, stepping, again, .. } = core::mem::take(&mut self.pages[class.index()]);
        self.pages[class.index()] = Page { again, stepping, queued, own, ..Page::default() };
    }

    /// The next thing to do in `group`: for a put-off blob, or for its pass if that `may_go_on`.
    pub fn next(&mut self, class: ClassId, group: GroupId, may_go_on: bool, now: Time) -> Next {
        let page = &mut self.pages[class.index()];
        page.again.take_if(|(of, _)| *of != group);
        let is_within = may_go_on && page.of == Some(group) && page.at.is_some();
        if page.again.is_none() && !is_within {
            let due = self.groups[group.index()].put_off.next(now);
            page.again = due.map(|blob| (group, AtBlob::new(blob.clone())));
        }
        match page.again {
            Some(_) => Next::Step,
            None if may_go_on => self.next_in_pass(class, group),
            None => Next::Done,
        }
    }

    fn next_in_pass(&mut self, class: ClassId, group: GroupId) -> Next {
        if self.groups[group.index()].pass.complete {
            return Next::Done;
        }
        let page = &mut self.pages[class.index()];
        if page.of != Some(group) {
            if page.awaiting.is_some() {
                return Next::Done; // another group's page is awaited; there is one at a time
            }
            self.forget_page(class);
            return Next::Page;
        }
        if page.awaiting.is_some() {
            return Next::Wait;
        }
        if page.at.is_none() {
            page.at = page.blobs.pop_front().map(AtBlob::new);
        }
        if page.at.is_some() { Next::Step } else { Next::Page }
    }

    /// Requests the next page of `group`. `None` after the last page: the pass is complete.
    pub fn list(&mut self, class: ClassId, group: GroupId, attempt: Attempt, now: Time) -> Option<Action> {
        let pass = self.groups[group.index()].pass;
        if self.pages[class.index()].of != Some(group) {
            self.forget_page(class);
        }
        let page = &mut self.pages[class.index()];
        assert!(page.awaiting.is_none() && page.blobs.is_empty() && page.at.is_none(), "one page at a time");
        if page.of == Some(group) && page.is_last {
            self.complete(class, group, now);
            return None;
        }
        let after = if page.of == Some(group) { page.next.max(pass.done) } else { pass.done };
        (page.of, page.awaiting) = (Some(group), Some(attempt));
        (page.after, page.next, page.is_last) = (after, None, false);
        Some(Action::ListToScrub { group, attempt, after, end: pass.end, limit: PAGE_BLOBS })
    }

    fn complete(&mut self, class: ClassId, group: GroupId, now: Time) {
        self.forget_page(class);
        self.pages[class.index()].own = false;
        let state = &mut self.groups[group.index()];
        state.pass.complete = true;
        state.pass.requested = false;
        state.pass.last = Some(ScrubbedPass { ended: now, counts: state.pass.counts });
        state.dirty = true;
        self.groups[group.index()].due = self.next_look(group, now);
    }

    /// A page of the live blobs of `group`, with numbers below `end`; ignored if it is not the awaited one.
    pub fn page(&mut self, class: ClassId, (group, attempt): (GroupId, Attempt), answer: ScrubPage, now: Time) {
        let page = &mut self.pages[class.index()];
        if page.of != Some(group) || page.awaiting != Some(attempt) {
            return;
        }
        page.awaiting = None;
        let state = &mut self.groups[group.index()];
        let ScrubPage { blobs, next, end } = answer;
        if state.pass.end.is_none() {
            (state.pass.end, state.dirty) = (Some(end), true);
        }
        // A page that does not advance ends the pass, which would otherwise never end.
        page.next = next.filter(|next| page.after.is_none_or(|after| *next > after));
        page.is_last = page.next.is_none();
        page.blobs.extend(blobs.into_iter().take(PAGE_BLOBS as usize));
        state.due = now;
        if page.blobs.is_empty() && page.is_last {
            self.complete(class, group, now);
        }
    }

    /// The awaited page of `group` could not be listed.
    pub fn unlisted(&mut self, class: ClassId, group: GroupId, attempt: Attempt, now: Time) {
        let page = &self.pages[class.index()];
        if page.of == Some(group) && page.awaiting == Some(attempt) {
            self.forget_page(class);
            self.pages[class.index()].own = false;
            self.groups[group.index()].due = now + PAUSE;
        }
    }

    /// A step of `class` started or ended.
    pub fn set_stepping(&mut self, class: ClassId, stepping: bool) {
        let before = core::mem::replace(&mut self.pages[class.index()].stepping, stepping);
        assert!(before != stepping, "one step of a class is in service at a time");
    }

    /// The current blob of the class.
    pub fn at(&mut self, class: ClassId) -> Option<&mut AtBlob> {
        let page = &mut self.pages[class.index()];
        page.again.as_mut().map(|(_, at)| at).or(page.at.as_mut())
    }

    /// `group` has finished the current blob of its class.
    pub fn done(&mut self, class: ClassId, group: GroupId) -> Option<AtBlob> {
        let (at, is_again) = self.take_at(class, group)?;
        let state = &mut self.groups[group.index()];
        let was_unread = state.put_off.done(at.blob.blob);
        let counts = &mut state.pass.counts;
        counts.damaged_stacks += at.bad.union(&at.before).count() as u64;
        counts.repaired_stacks += at.before.difference(&at.bad).count() as u64;
        counts.lost_blobs += u64::from(at.lost);
        counts.unread_stacks = counts.unread_stacks.saturating_sub(was_unread) + at.unread.len() as u64;
        state.through_with(&at.blob, is_again);
        Some(at)
    }

    /// The current blob of the class, of `group`, cannot be read now: it is retried later, and the pass continues.
    pub fn put_off(&mut self, class: ClassId, group: GroupId, now: Time) {
        let Some((at, is_again)) = self.take_at(class, group) else { return };
        let state = &mut self.groups[group.index()];
        if is_again {
            state.put_off.tried(at.blob.blob, now);
        } else {
            let stacks = at.blob.drives.len() as u64;
            state.pass.counts.unread_stacks += stacks;
            state.put_off.add(at.blob.clone(), stacks, now);
        }
        state.through_with(&at.blob, is_again);
        state.due = state.due.min(state.put_off.wakes_at());
    }

    /// Takes the current blob of the class, of `group`; the flag is true if the blob was put off.
    fn take_at(&mut self, class: ClassId, group: GroupId) -> Option<(AtBlob, bool)> {
        let page = &mut self.pages[class.index()];
        if let Some((of, at)) = page.again.take() {
            assert!(of == group, "{} is of {group}", at.blob.blob);
            return Some((at, true));
        }
        let at = page.at.take()?;
        assert!(page.of == Some(group), "{} is of the page of {group}", at.blob.blob);
        Some((at, false))
    }

    /// True if the page of `class` is finished, so that the position of its pass is to be persisted.
    pub fn page_is_done(&self, class: ClassId) -> bool {
        self.pages[class.index()].blobs.is_empty()
    }

    /// A stack of a blob of `group` was regenerated in its place.
    pub fn repaired(&mut self, group: GroupId) {
        let state = &mut self.groups[group.index()];
        state.pass.counts.repaired_stacks += 1;
        state.dirty = true;
    }

    /// Pauses or resumes scrubbing.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        for state in &mut self.groups {
            state.due = Time::ZERO; // every group needs attention
        }
    }

    /// Updates all records of a blob after the move of its stack.
    pub fn follow_move(&mut self, moved: &StackMove) {
        for page in &mut self.pages {
            let again = page.again.iter_mut().map(|(_, at)| &mut at.blob);
            let at = page.at.iter_mut().map(|at| &mut at.blob);
            for blob in page.blobs.iter_mut().chain(at).chain(again) {
                moved.follow(blob.blob, &mut blob.drives);
            }
        }
        self.groups.iter_mut().for_each(|state| state.put_off.follow_move(moved));
    }

    /// The payload byte at which a step that starts at `from` ends, for a blob of `bytes` and stripes of
    /// `stripe_bytes`.
    pub fn step_end(&self, from: u64, bytes: u64, stripe_bytes: u64) -> u64 {
        let stripes = (self.policy.step_bytes / stripe_bytes).max(1);
        from.saturating_add(stripes.saturating_mul(stripe_bytes)).min(bytes)
    }

    /// The progress of each group.
    pub fn views(&self, now: Time) -> impl Iterator<Item = ScrubView> + '_ {
        let period = self.policy.period;
        let known = self.groups.iter().enumerate().filter(move |(_, state)| period.is_some() && state.known);
        known.map(move |(id, state)| ScrubView {
            group: GroupId(id as u32),
            pass: state.pass,
            period_ends: state.pass.began + period.unwrap_or_default(),
            overdue: self.is_overdue(GroupId(id as u32), now),
            put_off_blobs: state.put_off.blobs().len() as u64,
        })
    }

    /// The put-off blobs, by group.
    pub fn all_put_off(&self) -> impl Iterator<Item = (GroupId, BlobId)> + '_ {
        let groups = self.groups.iter().enumerate();
        groups.flat_map(|(id, state)| state.put_off.blobs().map(move |blob| (GroupId(id as u32), blob)))
    }
}

impl GroupScrub {
    /// The pass has finished `blob`, or had passed it before and has read it `again`.
    fn through_with(&mut self, blob: &BlobOnDrive, again: bool) {
        self.dirty = true;
        let pass = &mut self.pass;
        if !again {
            assert!(pass.done.is_none_or(|done| blob.blob > done), "a pass goes by the numbers of blobs");
            pass.done = Some(blob.blob);
            pass.counts.blobs += 1;
            pass.counts.stack_bytes += blob.stack_bytes.saturating_mul(blob.drives.len() as u64);
        } else if pass.complete {
            pass.last = pass.last.map(|last| ScrubbedPass { counts: pass.counts, ..last });
        }
    }
}

/// `span` times `count`, capped at the longest time.
fn times(span: Duration, count: u64) -> Duration {
    let nanos = span.as_nanos().saturating_mul(u128::from(count));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
