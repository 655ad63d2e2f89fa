//! Scrubbing: every blob of a rack is read as a whole once in a period, so that what rots is found while it can still
//! be made good from the rest.
//!
//! Time is cut into *periods*, and each group has a *pass* in each: over the blobs that it held when the pass began, by
//! number. (What is written later was read back when it was written.) A pass goes on in *steps*, each of which reads at
//! most [`ScrubPolicy::step_bytes`] of one blob from all of its stacks.
//! 1. A step begins only in a group that is awake and has nothing else to do. Whatever is queued goes first, and a
//!    group that others of its class wait for goes to sleep as if there were no scrub.
//! 2. In a group that is awake for others, a pass *rides along*: steps begin until [`ScrubPolicy::ride_along`] after
//!    the last work of others. Steps do not count as work, so the group goes to sleep at its idle timeout, or when that
//!    time is over and the step under way has ended, whichever is later.
//! 3. From the middle of the period on, each group at a moment of its own, a pass that is behind the time is *due*: it
//!    has covered a smaller share of its bytes than has passed of the period. For such a pass the group is woken, as
//!    background work, when its class has nothing else to do, or at the latest once the period is over; and not more
//!    often than [`ScrubPolicy::starts_per_day`], nor beyond the budgets of its drives. In a wake of its own a pass
//!    goes on to its end, unless others want the class: clients at once, and after a quantum if the pass is overdue.
//! 4. A blob of which fragments were repaired where they lay is read once more: that is what reads them back. A stack
//!    that cannot be made good like that is regenerated in its place, as an operation of
//!    [`PriorityClass::Rebuild`](crate::PriorityClass::Rebuild). A blob with too few good fragments is read once more,
//!    too, before it counts as lost.
//! 5. A blob that cannot be read now, since too few of its drives are there, is *put off* (`scrub/put_off.rs`): the
//!    pass goes on without it and comes back to it, but does not wait for it.
//! 6. At the end of the list the pass is complete. The next one begins with the next period, and not before.
//!
//! Where a pass is, and what is put off, is remembered durably after each page ([`Action::PersistScrub`]); what was
//! done since the last time is done again after a crash.
//!
//! Invariants: memory is a page for each class, and a record and some blobs for each group; a page counts only if it
//! is the one awaited, and each page leads on, so a pass ends; nothing is scrubbed while it is paused.

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

/// Blobs of a group asked for at once.
const PAGE_BLOBS: u32 = 32;

/// How far the scrub of a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubView {
    /// Which group.
    pub group: GroupId,
    /// Its pass.
    pub pass: ScrubPass,
    /// When its period ends.
    pub period_ends: Time,
    /// Whether the period before ended before the pass did.
    pub overdue: bool,
    /// Blobs that could not be read when a pass came to them, and are read again.
    pub put_off_blobs: u64,
}

/// The blob that a class is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtBlob {
    pub blob: BlobOnDrive,
    /// Payload bytes that are done of it in this round.
    pub from: u64,
    /// Stacks that are damaged beyond repair where they lie.
    pub bad: BTreeSet<u8>,
    /// Stacks of which fragments were repaired in this round.
    pub repaired: BTreeSet<u8>,
    /// The same in the round before.
    pub before: BTreeSet<u8>,
    /// Stacks that could not be read.
    pub unread: BTreeSet<u8>,
    /// Too few fragments of some stripe were good.
    pub lost: bool,
    /// Whether this is the round that reads again.
    pub again: bool,
}

impl AtBlob {
    fn new(blob: BlobOnDrive) -> Self {
        let none = BTreeSet::new;
        let (bad, repaired, before, unread) = (none(), none(), none(), none());
        Self { blob, from: 0, bad, repaired, before, unread, lost: false, again: false }
    }

    /// All of it was read in this round: whether it is to be read again.
    pub fn ends_round(&mut self) -> bool {
        if self.again {
            // What was repaired and is bad again cannot be repaired where it lies.
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
    /// Of which group; no other's is in memory.
    of: Option<GroupId>,
    awaiting: Option<Attempt>,
    /// Behind which blob it begins.
    after: Option<BlobId>,
    blobs: VecDeque<BlobOnDrive>,
    /// Behind which blob the list goes on after it.
    next: Option<BlobId>,
    /// It was taken, and the list ends with it.
    is_last: bool,
    at: Option<AtBlob>,
    /// The blob that was put off and is read again, and its group.
    again: Option<(GroupId, AtBlob)>,
    /// A step is in service.
    stepping: bool,
    /// The wake that is queued or under way for a pass of this class alone.
    queued: Option<(OpId, GroupId)>,
    /// The group that is awake was woken for its pass, or its pass is due.
    own: bool,
}

/// The pass of a group.
#[derive(Clone, Default)]
struct GroupScrub {
    pass: ScrubPass,
    /// It was reported, or begun since.
    known: bool,
    /// There is something to remember.
    dirty: bool,
    /// When something is to be done about it that nothing else brings about.
    due: Time,
    put_off: PutOff,
}

/// The next thing to do in a group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A page is awaited.
    Wait,
    /// Ask for the page behind this blob.
    Page,
    /// Read on in the blob that the class is at.
    Step,
    /// Nothing, now.
    Done,
}

/// The need of a pass that is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// To know whether anything is left.
    Page,
    /// Its group awake.
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

    /// Whether nothing is scrubbed: it is switched off, or paused.
    pub fn is_off(&self) -> bool {
        self.period().is_none()
    }

    /// At boot: where the pass of `group` was.
    pub fn report(&mut self, group: GroupId, pass: ScrubPass) {
        if let Some(state) = self.groups.get_mut(group.index()) {
            *state = GroupScrub { pass, known: true, dirty: false, due: Time::ZERO, put_off: PutOff::default() };
        }
    }

    /// At boot: `blob` of `group`, whose pass was reported, was put off.
    pub fn report_unread(&mut self, group: GroupId, blob: BlobOnDrive, now: Time) {
        if let Some(state) = self.groups.get_mut(group.index()).filter(|state| state.known) {
            state.put_off.add(blob, 0, now);
        }
    }

    /// A group whose pass was never begun begins with it, over stacks of `used_bytes`. A pass that was completed in an
    /// earlier period gives way to the next.
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

    /// The operator asks for a pass of `group` now.
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

    /// Asks to remember where the pass of `group` is, if that has changed.
    pub fn persist(&mut self, group: GroupId) -> Option<Action> {
        let state = &mut self.groups[group.index()];
        if !core::mem::take(&mut state.dirty) {
            return None;
        }
        state.pass.serial += 1;
        Some(Action::PersistScrub { group, pass: state.pass, unread: state.put_off.blobs().collect() })
    }

    /// When something is to be done about a pass, beyond `now`.
    pub fn deadline(&self, now: Time) -> Time {
        if self.is_off() {
            return Time::MAX;
        }
        let due = self.groups.iter().filter(|state| state.known).map(|state| state.due);
        due.filter(|due| *due > now).min().unwrap_or(Time::MAX)
    }

    /// When `group` is next looked at unless something happens before: for its pass, or for what is put off.
    fn next_look(&self, group: GroupId, now: Time) -> Time {
        self.next_of_pass(group, now).min(self.groups[group.index()].put_off.wakes_at())
    }

    /// The same for its pass alone: at the next period if it is complete; if not, when it may be due.
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
        // Each group at a moment of its own in the second half of the period.
        let share = 500 + 500 * index / count;
        let covered = pass.covered_permille();
        pass.began + times(period, share.max(covered)) / 1000
    }

    /// Whether something is to be done in `group` now: its pass is due, or what is put off is to be read again.
    pub fn is_due(&self, group: GroupId, now: Time) -> bool {
        let state = &self.groups[group.index()];
        let again = !self.is_off() && state.known && now >= state.put_off.wakes_at();
        now >= state.due && (again || self.is_pass_due(group, now))
    }

    /// Whether the pass of `group` is due: it is behind the time, and so is the group's turn.
    pub fn is_pass_due(&self, group: GroupId, now: Time) -> bool {
        let state = &self.groups[group.index()];
        let open = !self.is_off() && state.known && !state.pass.complete;
        open && now >= self.next_of_pass(group, now)
    }

    /// The period of the pass of `group` is over, and the pass is not.
    pub fn is_overdue(&self, group: GroupId, now: Time) -> bool {
        let pass = &self.groups[group.index()].pass;
        self.policy.period.is_some_and(|period| !pass.complete && now >= pass.began + period)
    }

    /// Whether it is known which blobs the pass of `group` is over.
    pub fn knows_its_end(&self, group: GroupId) -> bool {
        self.groups[group.index()].pass.end.is_some()
    }

    /// The operator has asked for the pass of `group` that is under way.
    pub fn is_requested(&self, group: GroupId) -> bool {
        self.groups[group.index()].pass.requested
    }

    /// The groups of which something is to be looked at now, the one that is due first at first.
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

    /// Nothing is to be done about `group` before `at`.
    pub fn look_again(&mut self, group: GroupId, at: Time) {
        self.groups[group.index()].due = at;
    }

    /// Nothing is due in `group`: when something may be.
    pub fn not_due(&mut self, group: GroupId, now: Time) {
        self.groups[group.index()].due = self.next_look(group, now).max(now);
    }

    /// The need of the pass of `group`, which is due and whose group sleeps. `None` while a page of its class is
    /// awaited, a wake is queued or a step is in service, or the page that is there is of another pass that is due.
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

    /// Whether a wake may be queued for what is put off in a group of `class`.
    pub fn may_read_again(&self, class: ClassId) -> bool {
        let page = &self.pages[class.index()];
        page.queued.is_none() && page.awaiting.is_none() && !page.stepping
    }

    /// Whether the group may be woken for its pass on this day, by the scrub's own budget.
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

    /// The group is up, and was woken for its pass.
    pub fn woken(&mut self, group: GroupId, now: Time) {
        let state = &mut self.groups[group.index()];
        let (day, wakes) = state.pass.own_wakes;
        state.pass.own_wakes = if day < now.day() { (now.day(), 1) } else { (day, wakes.saturating_add(1)) };
        state.dirty = true;
    }

    /// Whether `op` wakes a group for its pass.
    pub fn is_own_wake(&self, class: ClassId, op: OpId) -> bool {
        self.pages[class.index()].queued.is_some_and(|(queued, _)| queued == op)
    }

    /// The wake of `group` for its pass is over: it is up, or could not be woken before `again`.
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

    /// Too few drives of `group`, which is up, are there to read anything of it.
    pub fn none_is_there(&mut self, group: GroupId, now: Time) {
        self.groups[group.index()].put_off.all_tried(now);
    }

    /// When a group that was woken for its pass, and did not get to its end, is next.
    pub fn pause_from(now: Time) -> Time {
        now + PAUSE
    }

    /// Something is due in `group`, which is awake: if its pass is, that goes on to its end.
    pub fn own(&mut self, class: ClassId, group: GroupId, now: Time) {
        let own = self.is_pass_due(group, now);
        self.pages[class.index()].own |= own;
    }

    /// Whether the group of `class` that is awake is awake for its pass.
    pub fn is_own(&self, class: ClassId) -> bool {
        self.pages[class.index()].own
    }

    /// Whether a step may begin in `group`, which has had no work of others since then.
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

    /// The group of `class` that was up goes to sleep. Its page stays, and where it was in a blob.
    pub fn rest(&mut self, class: ClassId) {
        self.pages[class.index()].own = false;
    }

    fn forget_page(&mut self, class: ClassId) {
        let Page { queued, own, stepping, again, .. } = core::mem::take(&mut self.pages[class.index()]);
        self.pages[class.index()] = Page { again, stepping, queued, own, ..Page::default() };
    }

    /// The next thing to do in `group`: for what is put off, and for its pass if that `may_go_on`.
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
                return Next::Done; // another group's is on its way; there is one at a time
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

    /// Asks for the next page of `group`. `None` if it was the last: the pass is complete.
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

    /// A page of the blobs of `group`, of numbers below `end`; taken if it is the one awaited. Dead blobs are left out.
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
        // A page that does not lead on ends the pass, or it would never end.
        page.next = next.filter(|next| page.after.is_none_or(|after| *next > after));
        page.is_last = page.next.is_none();
        page.blobs.extend(blobs.into_iter().take(PAGE_BLOBS as usize));
        state.due = now;
        if page.blobs.is_empty() && page.is_last {
            self.complete(class, group, now);
        }
    }

    /// The page that is awaited of `group` could not be made.
    pub fn unlisted(&mut self, class: ClassId, group: GroupId, attempt: Attempt, now: Time) {
        let page = &self.pages[class.index()];
        if page.of == Some(group) && page.awaiting == Some(attempt) {
            self.forget_page(class);
            self.pages[class.index()].own = false;
            self.groups[group.index()].due = now + PAUSE;
        }
    }

    /// A step of `class` is in service, or is over.
    pub fn set_stepping(&mut self, class: ClassId, stepping: bool) {
        let before = core::mem::replace(&mut self.pages[class.index()].stepping, stepping);
        assert!(before != stepping, "one step of a class is in service at a time");
    }

    /// The blob that the class is at.
    pub fn at(&mut self, class: ClassId) -> Option<&mut AtBlob> {
        let page = &mut self.pages[class.index()];
        page.again.as_mut().map(|(_, at)| at).or(page.at.as_mut())
    }

    /// `group` is through with the blob that its class is at.
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

    /// The blob that the class is at, of `group`, cannot be read now: it is read again later, and the pass goes on.
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

    /// Leaves the blob that the class is at, of `group`, and says whether that was put off.
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

    /// Whether the page of `class` is done, so that it is time to remember where its pass is.
    pub fn page_is_done(&self, class: ClassId) -> bool {
        self.pages[class.index()].blobs.is_empty()
    }

    /// A stack of a blob of `group` was regenerated in its place.
    pub fn repaired(&mut self, group: GroupId) {
        let state = &mut self.groups[group.index()];
        state.pass.counts.repaired_stacks += 1;
        state.dirty = true;
    }

    /// It is paused, or goes on.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        for state in &mut self.groups {
            state.due = Time::ZERO; // looked at anew
        }
    }

    /// Everything that is known of a blob follows the move of its stack.
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

    /// The payload bytes at which the step of a blob of `bytes` ends that begins at `from`, with stripes of
    /// `stripe_bytes`.
    pub fn step_end(&self, from: u64, bytes: u64, stripe_bytes: u64) -> u64 {
        let stripes = (self.policy.step_bytes / stripe_bytes).max(1);
        from.saturating_add(stripes.saturating_mul(stripe_bytes)).min(bytes)
    }

    /// How far each group is.
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

    /// The blobs that are put off, by group.
    pub fn all_put_off(&self) -> impl Iterator<Item = (GroupId, BlobId)> + '_ {
        let groups = self.groups.iter().enumerate();
        groups.flat_map(|(id, state)| state.put_off.blobs().map(move |blob| (GroupId(id as u32), blob)))
    }
}

impl GroupScrub {
    /// The pass has come past `blob`, or was past it and has read it `again`.
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

/// `span`, so many times; as long as a time can be at most.
fn times(span: Duration, count: u64) -> Duration {
    let nanos = span.as_nanos().saturating_mul(u128::from(count));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
