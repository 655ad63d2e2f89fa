//! Rebuilding: what a drive that failed for good held is regenerated on other drives of its group.
//!
//! Pelican, section 3: rebuilds stay inside the group, whose drives all spin at once, and wait in a queue of their own,
//! whose share of the class's time bounds how long redundancy is missing: x/t * 1/w for x bytes at t bytes/s.
//! 1. Only the operator's word starts it ([`Event::DriveFailed`](crate::Event::DriveFailed)); a drive that merely went
//!    away may come back with everything on it.
//! 2. A *pass* lists the blobs of the failed drive page by page. Each becomes an operation of [`Lane::Rebuild`], at
//!    most [`WINDOW`] at once; the fair queue lets them ride together while their group is awake.
//! 3. In service, the stacks that can be read are named, and a target: a drive of the group that has none of the blob,
//!    by the rules of placement. What is written is read back if the policy says so, and counts when the catalog says
//!    so ([`Action::MoveStack`]). Until then the class stays with it, so that nothing else touches the blob.
//! 4. What cannot be rebuilt now (too few drives are there, or none has room) waits for the next pass: soon after a
//!    drive of the group is back, or after a pause that doubles. What has lost more than r stacks is counted as lost,
//!    and said in [`RebuildView`].
//!
//! A drive is through when no blob has a stack on it, which is what its used bytes say, and the last pass left nothing;
//! so a blob that was written to it at the last moment is found by a later pass, and a restart needs no record but that
//! the drive failed.
//!
//! Another drive may come into its place meanwhile ([`Event::DriveReplaced`](crate::Event::DriveReplaced)). New blobs
//! are then written to it, so that used bytes say nothing any more: what is left is what a pass has listed, since the
//! catalog lists only what was lost. Such a drive is listed now and then even when nothing seems to be left.
//!
//! Invariants: memory is one page for each failed drive and the window; a stack is never read from a drive that failed,
//! nor from the lost index, nor written in its place; nothing is freed on the strength of a write alone.

#[cfg(test)]
mod tests;

use crate::action::{Action, Outcome, Rejection, Transfer};
use crate::event::{BlobOnDrive, DriveOutcome, DriveResult, Request, Work};
use crate::fair::Pick;
use crate::forecast::Forecast;
use crate::policy::Lane;
use crate::rack::{DrivePhase, InService, Op, Rack};
use crate::reorder::Queued;
use crate::service::TRIES_MAX;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, BlobId, DriveId, GroupId, OpId, Time, transfer_time};
use serde::Serialize;

/// Rebuilds of one failed drive that may be queued or in service at once: enough to keep its group busy for a quantum.
pub(crate) const WINDOW: u32 = 128;

/// Blobs of a failed drive asked for at once.
const PAGE_BLOBS: u32 = 128;

/// How long after a pass that left something the next one begins; it doubles with each that got nowhere.
const PAUSE_MIN: Duration = Duration::from_mins(10);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_hours(24);

/// How far a failed drive has been rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RebuildView {
    /// The drive that failed.
    pub drive: DriveId,
    /// Its group.
    pub group: GroupId,
    /// What blobs still have on it, in bytes of stacks; what is doomed and waits to be reclaimed included. 0 is done.
    pub left_bytes: u64,
    /// Stacks that were rebuilt since boot.
    pub rebuilt_stacks: u64,
    /// Their bytes.
    pub rebuilt_bytes: u64,
    /// Blobs that have lost more than r stacks, as far as is known: data is lost.
    pub lost_blobs: u64,
    /// Blobs that could not be rebuilt and wait for drives or room.
    pub waiting_blobs: u64,
    /// Rebuilds that are queued or in service.
    pub under_way: u32,
    /// How long it may still take, if every drive that is needed is there: alone, and at its share.
    pub forecast: Forecast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is listed before then.
    Idle { due: Time },
    /// A page is awaited.
    Listing { attempt: Attempt, after: Option<BlobId> },
    /// The page's blobs are being rebuilt; behind which blob the next page begins.
    Working { next: Option<BlobId> },
}

/// What became of the blobs of a pass.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    rebuilt: u64,
    lost: u64,
    waiting: u64,
}

#[derive(Clone, Debug)]
struct Job {
    phase: Phase,
    pending: VecDeque<BlobOnDrive>,
    under_way: u32,
    /// Something may be on the drive that no pass has listed: it failed since, or a write that was under way when it
    /// failed counts on it. What is believed to be used does not tell (see [`Job::is_through`]).
    unlisted: bool,
    pause: Duration,
    tally: Tally,
    /// Of the pass before, so that nothing is hidden while the next one is under way.
    before: Tally,
    rebuilt_stacks: u64,
    rebuilt_bytes: u64,
    /// Another drive is in its place: what blobs had on the one that failed, in bytes of stacks.
    lost_bytes: Option<u64>,
    /// Of that, what the pass under way has shown and not rebuilt yet.
    shown_bytes: u64,
}

/// The drives that are being rebuilt. See the head of this file.
#[derive(Default)]
pub(crate) struct Rebuilder {
    jobs: BTreeMap<DriveId, Job>,
}

impl Job {
    fn new(now: Time, lost_bytes: Option<u64>) -> Self {
        Self {
            phase: Phase::Idle { due: now },
            pending: VecDeque::new(),
            under_way: 0,
            unlisted: true,
            pause: PAUSE_MIN,
            tally: Tally::default(),
            before: Tally::default(),
            rebuilt_stacks: 0,
            rebuilt_bytes: 0,
            lost_bytes,
            shown_bytes: 0,
        }
    }

    /// What is left to be rebuilt of its drive, of which blobs use so many bytes.
    fn left_bytes(&self, used_bytes: u64) -> u64 {
        self.lost_bytes.unwrap_or(used_bytes)
    }

    /// Whether nothing is left to be done, and nothing can come to be.
    fn is_over(&self, used_bytes: u64) -> bool {
        self.lost_bytes.is_none() && self.is_through(used_bytes)
    }

    /// Whether nothing is left to be done. Used bytes alone do not tell: a write that failed is not among them, and is
    /// taken off them when it is reclaimed, so what a pass could not rebuild is asked for again whatever they say.
    fn is_through(&self, used_bytes: u64) -> bool {
        !self.unlisted && used_bytes == 0 && self.tally.waiting == 0 && self.tally.lost == 0
    }

    /// What is to be told of lost and waiting blobs: those of the last pass that was completed, or of the one under way
    /// if it has found more already. Nothing once nothing is left.
    fn told(&self, left_bytes: u64) -> Tally {
        match self.phase {
            _ if left_bytes == 0 => Tally::default(),
            Phase::Idle { .. } => self.tally,
            _ => Tally {
                rebuilt: self.tally.rebuilt,
                lost: self.tally.lost.max(self.before.lost),
                waiting: self.tally.waiting.max(self.before.waiting),
            },
        }
    }
}

/// What became of an attempt to queue a rebuild.
enum Fed {
    Queued,
    Skipped,
    QueueFull,
}

impl Rebuilder {
    /// Whether the page is the one that is awaited; if so, it is taken.
    fn page(&mut self, drive: DriveId, attempt: Attempt, blobs: Vec<BlobOnDrive>, next: Option<BlobId>) {
        let Some(job) = self.jobs.get_mut(&drive) else { return };
        let Phase::Listing { attempt: awaited, after } = job.phase else { return };
        if awaited == attempt {
            // A page that does not lead on ends the pass, or it would never end.
            job.phase = Phase::Working { next: next.filter(|next| after.is_none_or(|after| *next > after)) };
            let blobs = blobs.into_iter().take(PAGE_BLOBS as usize);
            for blob in blobs {
                job.shown_bytes = job.shown_bytes.saturating_add(blob.stack_bytes);
                job.pending.push_back(blob);
            }
        }
    }

    fn ended(&mut self, drive: DriveId, outcome: &Outcome, stack_bytes: u64) {
        let Some(job) = self.jobs.get_mut(&drive) else { return };
        job.under_way -= 1;
        match outcome {
            Outcome::Rebuilt => {
                job.tally.rebuilt += 1;
                job.rebuilt_stacks += 1;
                job.rebuilt_bytes += stack_bytes;
                job.shown_bytes = job.shown_bytes.saturating_sub(stack_bytes);
                job.lost_bytes = job.lost_bytes.map(|lost_bytes| lost_bytes.saturating_sub(stack_bytes));
            }
            Outcome::Failed(Rejection::DataLost) => job.tally.lost += 1,
            _ => job.tally.waiting += 1,
        }
    }
}

impl Rack {
    pub(crate) fn drive_failed(&mut self, now: Time, drive: DriveId) {
        if drive.index() >= self.drives.len() {
            return;
        }
        if self.is_away(drive) {
            self.give_back_permit(drive);
        }
        if self.drives[drive.index()].failed {
            return;
        }
        self.drives[drive.index()].failed = true;
        self.placement.retire(drive);
        self.fail_phase(drive);
        let Some(group) = self.layout.group_of(drive).filter(|group| self.owns(self.class_of(*group))) else { return };
        self.stuck[group.index()] = 0; // a blob that waited for this drive can go now
        match self.rebuilder.jobs.get_mut(&drive) {
            // A replacement fails as well: what is left is all that any drive in this place held.
            Some(job) => {
                if let Some(lost_bytes) = job.lost_bytes.take() {
                    self.placement.lose_more(drive, lost_bytes);
                }
                job.unlisted = true;
                job.pause = PAUSE_MIN;
                if let Phase::Idle { due } = &mut job.phase {
                    *due = now;
                }
            }
            None => drop(self.rebuilder.jobs.insert(drive, Job::new(now, None))),
        }
    }

    /// Whether another drive may take the place of `drive`: it failed, stands still as far as anybody knows, and no
    /// operation that began before it failed still counts on it.
    pub fn may_be_replaced(&self, drive: DriveId) -> bool {
        let Some(state) = self.drives.get(drive.index()) else { return false };
        let counted_on = || self.ops.any(|op| op.drives.contains(&drive));
        state.failed && !state.permitted && matches!(state.phase, DrivePhase::Away(_)) && !counted_on()
    }

    pub(crate) fn drive_replaced(&mut self, now: Time, drive: DriveId, lost_bytes: u64) {
        if drive.index() >= self.drives.len() {
            return;
        }
        if self.booted {
            if !self.may_be_replaced(drive) {
                return;
            }
            let state = &mut self.drives[drive.index()];
            (state.failed, state.errors, state.strikes) = (false, 0, 0);
            self.placement.replace(drive);
            self.comes_back(drive);
        }
        let group = self.layout.group_of(drive).filter(|group| self.owns(self.class_of(*group)));
        if group.is_none() {
            return;
        }
        let job = self.rebuilder.jobs.entry(drive).or_insert_with(|| Job::new(now, Some(lost_bytes)));
        job.lost_bytes = Some(lost_bytes);
        job.pause = PAUSE_MIN;
        if let Phase::Idle { due } = &mut job.phase {
            *due = now; // its group has one more drive to rebuild upon
        }
    }

    /// A blob was written to `drives`. Those that failed meanwhile have a stack of it to be rebuilt.
    pub(crate) fn rebuild_written(&mut self, drives: &[DriveId], now: Time) {
        for drive in drives.iter().filter(|drive| self.drives[drive.index()].failed) {
            if let Some(job) = self.rebuilder.jobs.get_mut(drive) {
                job.unlisted = true;
                if let Phase::Idle { due } = &mut job.phase {
                    *due = now;
                }
            }
        }
    }

    /// When a pass is due that is not under way.
    pub(crate) fn rebuild_deadline(&self) -> Time {
        let due = |(drive, job): (&DriveId, &Job)| match job.phase {
            Phase::Idle { due } if !job.is_over(self.placement.used_bytes(*drive)) => Some(due),
            _ => None,
        };
        self.rebuilder.jobs.iter().filter_map(due).min().unwrap_or(Time::MAX)
    }

    /// A drive of `group` is back: what waited for it is tried again.
    pub(crate) fn rebuild_again(&mut self, group: GroupId) {
        for (drive, job) in &mut self.rebuilder.jobs {
            if self.layout.group_of(*drive) != Some(group) {
                continue;
            }
            job.pause = PAUSE_MIN; // of a pass under way, too: what it gave up before is tried again soon
            if let Phase::Idle { due } = &mut job.phase {
                *due = Time::ZERO;
            }
        }
    }

    pub(crate) fn on_drive_page(
        &mut self,
        drive: DriveId,
        attempt: Attempt,
        blobs: Vec<BlobOnDrive>,
        next: Option<BlobId>,
    ) {
        self.rebuilder.page(drive, attempt, blobs, next);
    }

    /// Every failed drive's rebuild goes on as far as it can. True if something was queued.
    pub(crate) fn go_on_rebuilding(&mut self, now: Time, actions: &mut Vec<Action>) -> bool {
        let drives: Vec<DriveId> = self.rebuilder.jobs.keys().copied().collect();
        let mut queued = false;
        for drive in drives {
            queued |= self.go_on_with(drive, now, actions);
        }
        queued
    }

    fn go_on_with(&mut self, drive: DriveId, now: Time, actions: &mut Vec<Action>) -> bool {
        let used_bytes = self.placement.used_bytes(drive);
        let Some(job) = self.rebuilder.jobs.get_mut(&drive) else { return false };
        match job.phase {
            Phase::Listing { .. } => false,
            Phase::Idle { .. } if job.is_over(used_bytes) => false,
            Phase::Idle { due: Time::MAX } => {
                job.phase = Phase::Idle { due: now + PAUSE_MIN };
                false
            }
            Phase::Idle { due } => {
                if due <= now {
                    job.before = core::mem::take(&mut job.tally);
                    job.unlisted = false;
                    job.shown_bytes = 0;
                    self.list_on_drive(drive, None, actions);
                }
                false
            }
            Phase::Working { next } => {
                let queued = self.feed(drive);
                let Some(job) = self.rebuilder.jobs.get_mut(&drive).filter(|job| job.pending.is_empty()) else {
                    return queued;
                };
                if next.is_some() {
                    self.list_on_drive(drive, next, actions);
                } else if job.under_way == 0 {
                    end_pass(job, now, used_bytes);
                }
                queued
            }
        }
    }

    fn list_on_drive(&mut self, drive: DriveId, after: Option<BlobId>, actions: &mut Vec<Action>) {
        let attempt = Attempt(self.own_op().0 as u32);
        if let Some(job) = self.rebuilder.jobs.get_mut(&drive) {
            job.phase = Phase::Listing { attempt, after };
            actions.push(Action::ListOnDrive { drive, attempt, after, limit: PAGE_BLOBS });
        }
    }

    /// Queues what the page has, as far as the window and the queue have room.
    fn feed(&mut self, drive: DriveId) -> bool {
        let mut queued = false;
        let due = |job: &&mut Job| job.under_way < WINDOW;
        while let Some(blob) = self.rebuilder.jobs.get_mut(&drive).filter(due).and_then(|job| job.pending.pop_front()) {
            match self.queue_rebuild(drive, &blob) {
                Fed::Queued => queued = true,
                Fed::Skipped => {}
                Fed::QueueFull => {
                    if let Some(job) = self.rebuilder.jobs.get_mut(&drive) {
                        job.pending.push_front(blob);
                    }
                    break;
                }
            }
        }
        queued
    }

    /// Queues the rebuild of what `blob` had on `drive`, unless it can be told now that it would be in vain: nobody
    /// wakes a group for that.
    fn queue_rebuild(&mut self, drive: DriveId, blob: &BlobOnDrive) -> Fed {
        let lost = blob.drives.iter().position(|other| *other == drive);
        let Some((lost, group)) = lost.zip(self.layout.group_of(drive)).filter(|_| blob.living) else {
            return Fed::Skipped; // rebuilt already, or doomed
        };
        if let Err(reason) = self.can_rebuild(group, blob, lost) {
            if let Some(job) = self.rebuilder.jobs.get_mut(&drive) {
                let lost = reason == Rejection::DataLost;
                *(if lost { &mut job.tally.lost } else { &mut job.tally.waiting }) += 1;
            }
            return Fed::Skipped;
        }
        let (blob, drives, stack_bytes, bytes) = (blob.blob, blob.drives.clone(), blob.stack_bytes, blob.bytes);
        let work = Work::Rebuild { blob, group, drives, lost: lost as u8, stack_bytes, bytes };
        let class = self.class_of(group);
        let (op, weight) = (self.own_op(), self.weight(&work));
        let queued = Queued { op, group, weight, overtake_limit: self.policy.scheduler.overtake_limit, due: Time::MAX };
        if self.classes[class.index()].queues.push(Lane::Rebuild, queued).is_err() {
            return Fed::QueueFull;
        }
        let request = Request { op, lane: Lane::Rebuild, overtake_limit: None, work };
        self.ops.insert(op, Op::new(request, weight, class, group, Vec::new()));
        if let Some(job) = self.rebuilder.jobs.get_mut(&drive) {
            job.under_way += 1;
        }
        Fed::Queued
    }

    fn can_rebuild(&self, group: GroupId, blob: &BlobOnDrive, lost: usize) -> Result<(), Rejection> {
        let members = &self.layout.groups[group.index()].drives;
        let fits = blob.drives.len() == self.spec.code.stacks() && blob.drives.iter().all(|d| members.contains(d));
        if !fits {
            return Err(Rejection::Malformed);
        }
        let others = without(&blob.drives, lost);
        self.enough_left(&others)?;
        let target = self.placement.choose_another(group, &others, &[blob.drives[lost]], blob.stack_bytes);
        target.map(|_| ()).ok_or(Rejection::NoRoom)
    }

    /// Whether k stacks on these drives are there, or may be soon; if not, whether they can ever be again.
    pub(crate) fn enough_left(&self, drives: &[DriveId]) -> Result<(), Rejection> {
        let need = usize::from(self.spec.code.data);
        let failed = drives.iter().filter(|drive| self.drives[drive.index()].failed).count();
        if drives.len() - failed < need {
            return Err(Rejection::DataLost);
        }
        let there = drives.iter().filter(|drive| !self.is_away(**drive) || self.may_recover(**drive)).count();
        if there < need { Err(Rejection::TooManyDrivesAway) } else { Ok(()) }
    }

    /// Puts a rebuild into service, for the first time or again. True if it ended at once.
    pub(crate) fn start_rebuild(&mut self, pick: &Pick, now: Time, actions: &mut Vec<Action>) -> bool {
        let Some(op) = self.ops.get(&pick.op) else { return true };
        let Work::Rebuild { blob, group, drives, lost, stack_bytes, .. } = op.request.work.clone() else { return true };
        let need = self.spec.code.data;
        let (from, others) = (drives[usize::from(lost)], without(&drives, usize::from(lost)));
        let mut stacks = self.ready_stacks(&drives);
        stacks.retain(|(index, _)| *index != lost);
        if stacks.len() < usize::from(need) {
            let reason = self.why_too_few(pick.op);
            self.finish(now, pick.op, Outcome::Failed(reason), actions);
            return true;
        }
        let members = &self.layout.groups[group.index()].drives;
        let unready = members.iter().filter(|drive| self.drives[drive.index()].phase != DrivePhase::Ready);
        let unfit: Vec<DriveId> = unready.chain(&op.shunned).chain([&from]).copied().collect();
        let Some(target) = self.placement.choose_another(group, &others, &unfit, stack_bytes) else {
            self.finish(now, pick.op, Outcome::Failed(Rejection::NoRoom), actions);
            return true;
        };
        self.placement.reserve_another(&others, target, stack_bytes);
        if let Some(op) = self.ops.get_mut(&pick.op) {
            (op.drives, op.verifying) = (vec![target], false);
        }
        let policy = self.policy.read_policy;
        let transfer = Transfer::Rebuild { blob, group, drives, lost, stacks, need, policy, target };
        self.begin_transfer(pick.op, pick.lane, transfer, now, actions);
        false
    }

    /// A transfer of a rebuild is over: on to reading back, to the catalog, or to another attempt.
    pub(crate) fn rebuild_moved(
        &mut self,
        now: Time,
        service: InService,
        done: bool,
        outcomes: &[DriveOutcome],
        actions: &mut Vec<Action>,
    ) {
        let Some(op) = self.ops.get_mut(&service.op) else { return };
        let Some(to) = op.drives.first().copied() else { return };
        let Work::Rebuild { blob, drives, lost, .. } = &op.request.work else { return };
        if !done {
            self.rebuild_failed(now, service, to, outcomes, actions);
            return;
        }
        if self.policy.rebuild_read_back && !op.verifying {
            op.verifying = true;
            self.begin_transfer(service.op, service.lane, Transfer::Verify { drives: vec![to] }, now, actions);
            return;
        }
        let (blob, index, from) = (*blob, *lost, drives[usize::from(*lost)]);
        op.moving = true;
        let op = service.op;
        let attempt = self.serve_next(op, service.lane, now);
        actions.push(Action::MoveStack { op, attempt, blob, index, from, to });
    }

    fn rebuild_failed(
        &mut self,
        now: Time,
        service: InService,
        target: DriveId,
        outcomes: &[DriveOutcome],
        actions: &mut Vec<Action>,
    ) {
        self.give_back_target(service.op);
        let Some(op) = self.ops.get_mut(&service.op) else { return };
        let Work::Rebuild { drives, lost, .. } = &op.request.work else { return };
        op.tries += 1;
        let fine = |result| matches!(result, DriveResult::Fine | DriveResult::Unused);
        let target_fine = outcomes.iter().all(|outcome| outcome.drive != target || fine(outcome.result));
        if !target_fine {
            op.shunned.push(target);
        }
        let sources: Vec<&DriveOutcome> = outcomes.iter().filter(|outcome| outcome.drive != target).collect();
        let some_failed = sources.iter().any(|outcome| outcome.result.may_do_better());
        let others = without(drives, usize::from(*lost));
        let left = others.iter().filter(|drive| !self.drives[drive.index()].failed).count();
        if target_fine && !some_failed && sources.len() == left {
            self.finish(now, service.op, Outcome::Failed(Rejection::DataLost), actions);
        } else if self.closing || op.tries >= TRIES_MAX || (target_fine && !some_failed) {
            self.finish(now, service.op, Outcome::Failed(Rejection::TooManyDrivesAway), actions);
        } else {
            let (group, weight) = (op.group, op.weight);
            let pick = Pick { op: service.op, lane: service.lane, group, weight, ride_along: false };
            self.start_rebuild(&pick, now, actions);
        }
    }

    /// The space that was reserved for a rebuilt stack is spare again.
    fn give_back_target(&mut self, op: OpId) {
        let Some(op) = self.ops.get_mut(&op) else { return };
        let targets = core::mem::take(&mut op.drives);
        if let Work::Rebuild { stack_bytes, .. } = op.request.work {
            self.placement.release(&targets, stack_bytes);
        }
    }

    pub(crate) fn stack_moved(&mut self, now: Time, op: OpId, attempt: Attempt, done: bool, actions: &mut Vec<Action>) {
        let Some(state) = self.ops.get(&op).filter(|state| state.attempt == attempt) else { return };
        let Work::Rebuild { blob, ref drives, lost, stack_bytes, .. } = state.request.work else { return };
        let (class, from, to) = (state.class, drives[usize::from(lost)], state.drives.first().copied());
        let Some(service) = self.classes[class.index()].in_service.filter(|service| service.op == op) else { return };
        let Some(to) = to.filter(|_| state.moving) else { return };
        self.leave_service(now, class, service);
        if !done {
            self.give_back_target(op);
            self.finish(now, op, Outcome::Failed(Rejection::WriteFailed), actions);
            return;
        }
        self.placement.settle(&[to], stack_bytes, stack_bytes);
        // Of one that was replaced, what was lost is not among the used bytes.
        if self.has_failed(from) {
            self.placement.freed(from, stack_bytes);
        }
        self.stats.rebuilt_bytes += stack_bytes;
        self.finish(now, op, Outcome::Rebuilt, actions);
        self.note_move(blob, lost, from, to);
    }

    /// Everything that is known of `blob` follows the move of its stack.
    fn note_move(&mut self, blob: BlobId, index: u8, from: DriveId, to: DriveId) {
        let follow = |other: BlobId, drives: &mut Vec<DriveId>| {
            if let Some(drive) = drives.get_mut(usize::from(index)).filter(|drive| other == blob && **drive == from) {
                *drive = to;
            }
        };
        self.ops.change_each(|op| match &mut op.request.work {
            Work::Read { blob, drives, .. }
            | Work::Delete { blob, drives, .. }
            | Work::Rebuild { blob, drives, .. } => follow(*blob, drives),
            Work::Write { .. } | Work::Visit { .. } => {}
        });
        for pending in self.rebuilder.jobs.values_mut().flat_map(|job| &mut job.pending) {
            follow(pending.blob, &mut pending.drives);
        }
        for doomed in self.classes.iter_mut().flat_map(|class| &mut class.reclaim.blobs) {
            follow(doomed.blob, &mut doomed.drives);
        }
    }

    /// A rebuild has come to its end. Nobody but the job of its drive knows of one that never was in service.
    pub(crate) fn rebuild_ended(&mut self, op: &Op, outcome: &Outcome) {
        if let Work::Rebuild { drives, lost, stack_bytes, .. } = &op.request.work {
            self.rebuilder.ended(drives[usize::from(*lost)], outcome, *stack_bytes);
        }
    }

    /// How far each failed drive has been rebuilt.
    pub fn rebuilds(&self) -> impl Iterator<Item = RebuildView> + '_ {
        self.rebuilder.jobs.iter().filter_map(|(drive, job)| {
            let group = self.layout.group_of(*drive)?;
            let left_bytes = job.left_bytes(self.placement.used_bytes(*drive));
            let told = job.told(left_bytes);
            Some(RebuildView {
                drive: *drive,
                group,
                left_bytes,
                rebuilt_stacks: job.rebuilt_stacks,
                rebuilt_bytes: job.rebuilt_bytes,
                lost_blobs: told.lost,
                waiting_blobs: told.waiting,
                under_way: job.under_way,
                forecast: self.rebuild_forecast(group, left_bytes),
            })
        })
    }

    /// Whether the operator said that `drive` failed for good.
    pub fn has_failed(&self, drive: DriveId) -> bool {
        self.drives[drive.index()].failed
    }

    /// x/t, and x/t * 1/w with all that is to be rebuilt in the class as x (Pelican, section 3); twice that where what
    /// is written is read back.
    fn rebuild_forecast(&self, group: GroupId, bytes: u64) -> Forecast {
        let class = self.class_of(group);
        let of_class = |drive: &&DriveId| self.layout.group_of(**drive).is_some_and(|g| self.class_of(g) == class);
        let left = |(drive, job): (&DriveId, &Job)| job.left_bytes(self.placement.used_bytes(*drive));
        let all: u64 = self.rebuilder.jobs.iter().filter(|(drive, _)| of_class(drive)).map(left).sum();
        let times = if self.policy.rebuild_read_back { 2 } else { 1 };
        let span = |bytes| transfer_time(bytes, self.spec.profile.bytes_per_s).saturating_mul(times);
        let shares = self.policy.scheduler.shares;
        let sum = Lane::ALL.into_iter().fold(0_u32, |sum, lane| sum.saturating_add(shares.of(lane)));
        Forecast { min: span(bytes), max: span(all).saturating_mul(sum) / shares.rebuild.max(1) }
    }
}

/// `drives` but for the one at `index`.
pub(crate) fn without(drives: &[DriveId], index: usize) -> Vec<DriveId> {
    let others = drives.iter().enumerate().filter(|(other, _)| *other != index);
    others.map(|(_, drive)| *drive).collect()
}

/// A pass is over. If it left something, the next one follows after a pause.
fn end_pass(job: &mut Job, now: Time, used_bytes: u64) {
    job.lost_bytes = job.lost_bytes.map(|_| job.shown_bytes);
    if job.is_over(used_bytes) {
        job.phase = Phase::Idle { due: Time::MAX };
        job.pause = PAUSE_MIN;
        return;
    }
    if job.tally.rebuilt > 0 {
        job.pause = PAUSE_MIN;
    }
    job.phase = Phase::Idle { due: now + job.pause };
    job.pause = (job.pause * 2).min(PAUSE_MAX);
}
