//! The drives of a rack: their phases, their permits, and their failures.
//!
//! ```text
//!            wanted            permits         spun up          mounted
//!  Standby --------> Awaiting --------> Spinning -----> Mounting -----> Ready
//!     ^              permit                up                             |
//!     |                           stopped            unmounted            | its group goes to sleep
//!     +---------------------------------- Stopping <--------- Unmounting <+
//! ```
//! In each of these phases a drive may become `Away`: it was lost, or it was given up on.
//!
//! The group wakes without a drive that does not answer in time or whose command fails; that failure is counted, and
//! after three in a row the drive is out of service. Most such failures are transient: a slow host, a loose cable. When
//! the world has taken a drive away ([`Event::DriveLost`](crate::Event::DriveLost)), the world also reports its return;
//! other drives that are away only return if they are tried again:
//! - A silent drive may still spin and holds its permits, for which drives of any group may wait. It is sent a stop
//!   again: at once if its own group needs it, otherwise after a pause. When it reports that it has stopped, its
//!   permits are released and it is in standby.
//! - A drive that is out of service and has stopped is in standby again after a pause, with one failure left.
//!
//! The same holds for a drive whose transfers fail, while its group stays awake without it.
//!
//! A drive that is found spinning without a permit, or in an unknown state
//! ([`Event::DriveSpins`](crate::Event::DriveSpins)), is charged to the ledger and goes to `Unmounting`, unless it is
//! in use or on its way. If it does not stop, it is away with its permits, as above.
//!
//! A drive that was given up may come back; it is tried with its group (`drives/trials.rs`).
//!
//! A drive whose power cannot be switched goes through the same phases, so that it is mounted only while its group is
//! awake. It never waits for a permit, never blocks another drive's permit, and its starts, which are no real starts,
//! are not counted.
//!
//! A change of a drive that other parts must follow is reported as a [`Notice`].
//!
//! Invariants:
//! - a drive is started only right after the ledger granted its permits, and its start was counted;
//! - permits are released only when a drive reports that it has stopped, or is known to have no power;
//! - a permanently failed drive is never started except for a trial, and is never ready.

mod backoff;
mod in_vain;
mod phase;
mod recovering;
mod tally;
mod trials;
mod unasked;

pub use phase::DrivePhase;

use crate::action::{Action, Rejection};
use crate::budget::StartBudget;
use crate::deadlines::Punctuality;
use crate::event::{DriveReport, Loss};
use crate::ledger::{Ledger, PowerState};
use crate::policy::PriorityClass;
use crate::setup::Setup;
use crate::step::Step;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use backoff::Backoff;
use core::time::Duration;
use model::{Attempt, DomainId, DriveId, GroupId, RackSpec, ResourceId, Time};
use tally::{OnTheWay, Tally};

/// Commands that may fail in a row before a drive is out of service for a while.
const FAILURES_MAX: u32 = 3;

/// Transfers that may fail on a drive between two mounts before it is taken out of service.
const TRANSFER_ERRORS_MAX: u32 = 3;

const _: () = assert!(FAILURES_MAX > 1, "a drive that is tried again has one failure left");

/// A change of a drive that other parts must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It gets no new stacks until it is `Writable`.
    Unwritable(DriveId),
    /// It may get new stacks.
    Writable(DriveId),
    /// Its platters have stopped, and it may be started.
    Standby(DriveId),
    /// It was away and is back in service.
    Returned(DriveId),
    /// It was given up, and was present in its trial.
    Recognised(DriveId),
}

struct Drive {
    phase: DrivePhase,
    /// The number of the last command; an answer with another number is late.
    attempt: Attempt,
    /// Transfers that failed on it since it last mounted.
    transfer_errors: u32,
    /// Commands that failed since its last mount.
    failures: u32,
    /// Failed tries since its last mount in which it was not sent its command.
    unsent: u32,
    /// It was lost together with its permits, if it holds any.
    lost_with_permits: bool,
    /// It failed permanently.
    failed: bool,
    /// The world took it away and will report its return; or the operator gave it up, and it is absent.
    lost_by_world: bool,
}

impl Drive {
    /// Numbers a new command or change, so that answers to earlier ones are late.
    fn renumber(&mut self) -> Attempt {
        self.attempt = Attempt(self.attempt.0.wrapping_add(1));
        self.attempt
    }
}

/// All drives of a rack. See the head of this file.
pub(crate) struct Drives {
    states: Vec<Drive>,
    tally: Tally,
    /// Per drive; separate from the states, which nearly every event reads.
    punctuality: Vec<Punctuality>,
    /// The permits; read-only for others.
    pub ledger: Ledger,
    /// The start budgets; read-only for others.
    pub budget: StartBudget,
    backoff: Backoff,
    /// Drives that the operator pulled or will pull; each counts as pulled once it is away.
    cut_off: BTreeSet<DriveId>,
    /// Drives that are away because their transfers failed, and that were not started and mounted since.
    untried: BTreeSet<DriveId>,
    /// Drives that were given up and may come back: the time before which the drive is not tried again, and whether it
    /// was mounted in the current trial.
    trials: BTreeMap<DriveId, (Time, bool)>,
    /// Drives that were found spinning, and the time when a start of each would be over. See `drives/unasked.rs`.
    found: BTreeSet<(Time, DriveId)>,
    /// Drives whose permits are held by lost drives: they cannot be written to before one of those releases its
    /// permits.
    unpermitted: Vec<DriveId>,
    notices: VecDeque<Notice>,
    /// A wake or rest takes at most this long.
    switch_timeout: Duration,
    /// A start takes at most this long.
    spin_up_max: Duration,
    host_slack: Duration,
    /// Starts requested since boot.
    pub starts: u64,
    /// Deadlines missed by all drives since boot.
    pub missed_deadlines: u64,
}

impl Drives {
    /// Drives in an unknown state: all are away until they are reported.
    pub fn new(setup: &Setup) -> Self {
        let (spec, policy) = (&setup.spec, &setup.policy);
        assert!(
            spec.drives.iter().enumerate().all(|(at, drive)| drive.id.index() == at),
            "drives are numbered through"
        );
        let unknown = |_| Drive {
            phase: DrivePhase::Away(Loss::Died),
            attempt: Attempt(0),
            transfer_errors: 0,
            failures: 0,
            unsent: 0,
            lost_with_permits: false,
            failed: false,
            lost_by_world: false,
        };
        Self {
            states: spec.drives.iter().map(unknown).collect(),
            tally: Tally::new(&setup.layout, spec.drives.len()),
            punctuality: vec![Punctuality::default(); spec.drives.len()],
            ledger: Ledger::new(spec),
            budget: StartBudget::new(spec.drives.len(), policy.starts_per_day),
            backoff: Backoff::new(spec.drives.len()),
            cut_off: BTreeSet::new(),
            untried: BTreeSet::new(),
            trials: BTreeMap::new(),
            found: BTreeSet::new(),
            unpermitted: Vec::new(),
            notices: VecDeque::new(),
            switch_timeout: setup.switch_timeout(),
            spin_up_max: setup.spec.profile.spin_up.longest(),
            host_slack: policy.host_slack,
            starts: 0,
            missed_deadlines: 0,
        }
    }

    /// At boot: records the reported state of a drive.
    pub fn report(&mut self, report: &DriveReport) {
        assert!(!self.is_permitted(report.drive), "{} is reported before it is started", report.drive);
        self.budget.restore(report.drive, report.day, report.starts);
        let in_service = report.present && !self.has_failed(report.drive);
        self.set_phase(report.drive, if in_service { DrivePhase::Standby } else { DrivePhase::Away(Loss::Died) });
        let notice = if in_service { Notice::Writable } else { Notice::Unwritable };
        self.notices.push_back(notice(report.drive));
    }

    /// The next change that other parts must follow.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// True if `drive` is one of this rack.
    pub fn knows(&self, drive: DriveId) -> bool {
        drive.index() < self.states.len()
    }

    /// True if `drive` may spin: it holds its permits.
    fn is_permitted(&self, drive: DriveId) -> bool {
        self.ledger.state(drive) != PowerState::Standby
    }

    fn set_phase(&mut self, drive: DriveId, phase: DrivePhase) {
        let before = core::mem::replace(&mut self.states[drive.index()].phase, phase);
        self.tally.change(drive, before, phase);
    }

    pub fn phase(&self, drive: DriveId) -> DrivePhase {
        self.states[drive.index()].phase
    }

    pub fn is_away(&self, drive: DriveId) -> bool {
        self.phase(drive).is_away()
    }

    pub fn is_ready(&self, drive: DriveId) -> bool {
        self.phase(drive) == DrivePhase::Ready
    }

    /// True if `drive` failed permanently: declared by the operator, or given up by the rack.
    pub fn has_failed(&self, drive: DriveId) -> bool {
        self.states.get(drive.index()).is_some_and(|state| state.failed)
    }

    /// True if `drive` is away and may be the cause: neither a tripped fuse nor the host is.
    pub fn is_missing(&self, drive: DriveId) -> bool {
        let excused = [DrivePhase::Away(Loss::FuseTripped), DrivePhase::Away(Loss::NotAsked)];
        self.is_away(drive) && !self.has_failed(drive) && !excused.contains(&self.phase(drive))
    }

    /// The number of `drives` that failed permanently.
    pub fn failed_count(&self, drives: &[DriveId]) -> usize {
        drives.iter().filter(|drive| self.has_failed(**drive)).count()
    }

    /// Deadlines that `drive` missed since boot.
    pub fn missed_deadlines(&self, drive: DriveId) -> u64 {
        self.punctuality[drive.index()].missed
    }

    /// True if all of `members` may be started now for work of `priority`.
    pub fn may_start(&self, members: &[DriveId], priority: PriorityClass, now: Time) -> bool {
        let may_start = |drive: DriveId| self.ledger.is_always_on(drive) || self.budget.may_start(drive, now, priority);
        members.iter().all(|drive| may_start(*drive))
    }

    /// Index and drive of the stacks whose drives can be read and written now.
    pub fn ready_stacks(&self, drives: &[DriveId]) -> Vec<(u8, DriveId)> {
        let mut stacks = Vec::with_capacity(drives.len());
        for (drive, index) in drives.iter().zip(0_u8..) {
            if self.states.get(drive.index()).is_some_and(|state| state.phase == DrivePhase::Ready) {
                stacks.push((index, *drive));
            }
        }
        stacks
    }

    /// Ok if `need` of these drives are present or may be soon; otherwise the error is about absence or data loss.
    pub fn enough_left(&self, drives: &[DriveId], need: usize) -> Result<(), Rejection> {
        assert!(need > 0, "a blob cannot be read from nothing");
        if self.tally.all_there() && drives.len() >= need {
            return Ok(());
        }
        let (mut failed, mut there) = (0, 0);
        for drive in drives {
            let state = &self.states[drive.index()];
            failed += usize::from(self.is_gone(*drive));
            there += usize::from((!state.phase.is_away() && !state.failed) || self.may_recover(*drive));
        }
        match (drives.len() - failed < need, there < need) {
            (true, _) => Err(Rejection::DataLost),
            (false, true) => Err(Rejection::TooManyDrivesAway),
            (false, false) => Ok(()),
        }
    }

    /// Requests `members` to be ready: those in standby wait for their permits from now on.
    pub fn want(&mut self, members: &[DriveId]) {
        for drive in members {
            if self.phase(*drive) == DrivePhase::Standby {
                assert!(!self.is_permitted(*drive), "{drive} stands still");
                assert!(!self.has_failed(*drive), "{drive} is in service");
                self.set_phase(*drive, DrivePhase::AwaitingPermit);
            }
        }
    }

    /// Starts all waiting members for which the ledger grants permits now.
    pub fn request_permits(&mut self, members: &[DriveId], step: &mut Step) {
        let waits = |drive: &DriveId| self.phase(*drive) == DrivePhase::AwaitingPermit;
        let waiting: Vec<DriveId> = members.iter().copied().filter(waits).collect();
        if waiting.is_empty() {
            return;
        }
        for drive in self.ledger.request(&waiting) {
            assert!(self.phase(drive) == DrivePhase::AwaitingPermit, "{drive} waits for the permit it gets");
            assert!(self.is_permitted(drive), "{drive} has its permit");
            if !self.ledger.is_always_on(drive) {
                let (day, starts) = self.budget.record(drive, step.now);
                assert!(starts > 0, "the start of {drive} is counted");
                step.ask(Action::PersistStarts { drive, day, starts });
                self.starts += 1;
            }
            self.states[drive.index()].lost_with_permits = false;
            self.command(drive, DrivePhase::SpinningUp, step);
        }
    }

    /// Continues without members that wait for a permit without success and, if their group's time is `over`, without
    /// all members that are not ready.
    pub fn give_up_waiting(&mut self, members: &[DriveId], spec: &RackSpec, over: bool, now: Time) {
        for drive in members {
            let in_vain = self.waits_in_vain(members, *drive, spec);
            if over || in_vain {
                self.do_without(*drive, in_vain, now);
            }
        }
        let waits = |drive: &DriveId| self.phase(*drive).is_waking();
        assert!(!over || !members.iter().any(waits), "nobody is waited for any longer");
    }

    /// The number of members of `group` that are on their way.
    pub fn on_the_way(&self, group: GroupId) -> OnTheWay {
        self.tally.of(group)
    }

    /// Hard domains without a permit for one of the `members` that wait.
    pub fn blocking(&self, members: &[DriveId]) -> Vec<(ResourceId, DomainId)> {
        let waiting = members.iter().filter(|drive| self.phase(**drive) == DrivePhase::AwaitingPermit);
        waiting.flat_map(|drive| self.ledger.blocking(*drive)).collect()
    }

    /// True if one of `members` holds a permit of one of these domains.
    pub fn hold_any_of(&self, members: &[DriveId], domains: &[(ResourceId, DomainId)], spec: &RackSpec) -> bool {
        assert!(!domains.is_empty(), "somebody waits for a permit");
        members.iter().any(|drive| {
            let held = |(resource, domain): &(_, _)| spec.domain_of(*drive, *resource) == *domain;
            self.is_permitted(*drive) && !self.ledger.is_always_on(*drive) && domains.iter().any(held)
        })
    }

    /// Unmounts and stops `members`. Members that wait for a permit do not start.
    pub fn rest(&mut self, members: &[DriveId], step: &mut Step) {
        for drive in members {
            match self.phase(*drive) {
                DrivePhase::Ready => self.command(*drive, DrivePhase::Unmounting, step),
                // It may still spin: it is stopped like the others, so that its permits can be released.
                DrivePhase::Away(_) if self.is_permitted(*drive) => {
                    self.backoff.forget(*drive);
                    self.command(*drive, DrivePhase::Unmounting, step);
                }
                DrivePhase::AwaitingPermit => self.do_without(*drive, false, step.now),
                _ => {}
            }
        }
    }

    /// Gives up on members that have not stopped in time.
    pub fn give_up_stopping(&mut self, members: &[DriveId], now: Time) {
        for drive in members {
            if self.phase(*drive).is_stopping() {
                self.count_missed_deadline(*drive);
                self.give_up(*drive, Loss::MountFailed, now);
            }
        }
        let stops = |drive: &DriveId| self.phase(*drive).is_stopping();
        assert!(!members.iter().any(stops), "nobody is waited for any longer");
    }

    pub fn spun_up(&mut self, drive: DriveId, attempt: Attempt, step: &mut Step) {
        if self.answers(drive, attempt, DrivePhase::SpinningUp) {
            self.ledger.spun_up(drive);
            self.command(drive, DrivePhase::Mounting, step);
        }
    }

    /// `drive` is mounted and in service. False if the answer is late, or if this is a trial.
    pub fn mounted(&mut self, drive: DriveId, attempt: Attempt, step: &mut Step) -> bool {
        let answers = self.answers(drive, attempt, DrivePhase::Mounting);
        if answers && self.has_failed(drive) {
            // A trial only establishes that the drive is present.
            self.trials.entry(drive).and_modify(|(_, mounted)| *mounted = true);
            self.command(drive, DrivePhase::Unmounting, step);
            return false;
        }
        if answers {
            let state = &mut self.states[drive.index()];
            assert!(!state.failed, "{drive} is ready, and in service");
            assert!(self.ledger.state(drive) == PowerState::Active, "{drive} is up to speed under a permit");
            (state.transfer_errors, state.failures, state.unsent) = (0, 0, 0);
            self.set_phase(drive, DrivePhase::Ready);
            self.notices.push_back(Notice::Writable(drive));
        }
        answers
    }

    pub fn unmounted(&mut self, drive: DriveId, attempt: Attempt, step: &mut Step) {
        if self.answers(drive, attempt, DrivePhase::Unmounting) {
            self.command(drive, DrivePhase::Stopping, step);
        }
    }

    pub fn stopped(&mut self, drive: DriveId, attempt: Attempt, now: Time) {
        if !self.answers(drive, attempt, DrivePhase::Stopping) {
            return;
        }
        assert!(self.is_permitted(drive), "{drive} was sent a stop under a permit");
        self.release_permit(drive);
        let state = &self.states[drive.index()];
        let did_well = state.failures == 0 && state.transfer_errors == 0;
        let phase = match state.failures.max(self.punctuality[drive.index()].wakes_missed) {
            _ if state.failed => DrivePhase::Away(Loss::Failed),
            FAILURES_MAX.. => DrivePhase::Away(Loss::Died),
            _ => DrivePhase::Standby,
        };
        self.set_phase(drive, phase);
        if phase.is_away() {
            self.notices.push_back(Notice::Unwritable(drive));
            // It has just executed a stop, so it is away because of its transfers, unless its commands failed too
            // often.
            if self.states[drive.index()].failures < FAILURES_MAX {
                self.untried.insert(drive);
            }
            self.retry_later(drive, now);
            if self.trials.get_mut(&drive).is_some_and(|(_, mounted)| core::mem::take(mounted)) {
                self.notices.push_back(Notice::Recognised(drive));
            }
        } else {
            self.notices.push_back(Notice::Writable(drive));
            self.stand_by(drive);
        }
        if did_well {
            self.backoff.reset(drive);
            self.punctuality[drive.index()].wakes_missed = 0;
        }
    }

    pub fn command_failed(&mut self, drive: DriveId, attempt: Attempt, loss: Loss, step: &mut Step) {
        let Some(state) = self.states.get_mut(drive.index()) else { return };
        if loss != Loss::NoAnswer {
            self.punctuality[drive.index()].owes_answer = false; // even if it is an error
        }
        if state.attempt != attempt {
            return;
        }
        match state.phase {
            // A drive that cannot be unmounted, perhaps because it was never mounted, is stopped anyway.
            DrivePhase::Unmounting if loss != Loss::FuseTripped => {
                if loss == Loss::NoAnswer {
                    self.note_missed_deadline(drive, step.now);
                }
                self.command(drive, DrivePhase::Stopping, step);
            }
            DrivePhase::Away(_) | DrivePhase::Standby => {}
            _ => {
                // A restart does not help if the drive is absent or is the wrong one.
                if loss == Loss::ForeignLabel {
                    state.failures = FAILURES_MAX - 1;
                }
                let is_gone = matches!(loss, Loss::Died | Loss::ForeignLabel);
                state.lost_by_world |= is_gone && state.phase.is_stopping() && self.cut_off.contains(&drive);
                self.give_up(drive, loss, step.now);
            }
        }
    }

    /// The world took `drive` away.
    pub fn lost(&mut self, drive: DriveId, loss: Loss) {
        if !self.knows(drive) {
            return;
        }
        self.states[drive.index()].lost_by_world = true;
        self.set_away(drive, loss);
        self.backoff.forget(drive);
        assert!(self.is_away(drive), "{drive} is lost");
    }

    /// `drive` was away and is now in standby.
    pub fn back(&mut self, drive: DriveId) {
        let Some(state) = self.states.get_mut(drive.index()) else { return };
        state.lost_by_world = false;
        if !state.phase.is_away() {
            return; // it was away while it was sent a stop: its answer or a later query shows if it has stopped
        }
        self.release_permit(drive);
        if self.has_failed(drive) {
            return; // it has stopped, and stays out of service
        }
        let state = &mut self.states[drive.index()];
        (state.failures, state.unsent) = (0, 0);
        self.return_to_service(drive);
    }

    /// `drive` failed permanently. If the operator declares that, it is `cut_off`: it counts as pulled if it is away,
    /// or if it is in a trial because it may be back. A drive that is being stopped is still stopped. False if the
    /// failure was known.
    pub fn fail(&mut self, drive: DriveId, cut_off: bool) -> bool {
        let was_out_of_service = self.is_away(drive) || self.has_failed(drive);
        if cut_off {
            self.cut_off.insert(drive);
            let was_mounted = self.trials.remove(&drive).is_some_and(|(_, mounted)| mounted);
            // A drive that has answered in its trial is present, and is to stop.
            let is_there = !self.is_away(drive) && (was_mounted || self.phase(drive) == DrivePhase::Mounting);
            self.states[drive.index()].lost_by_world |= was_out_of_service && !is_there;
        }
        let new = !core::mem::replace(&mut self.states[drive.index()].failed, true);
        if new {
            self.tally.fail();
        }
        let is_tried = self.phase(drive).is_waking();
        let changes = new || is_tried || (cut_off && self.is_away(drive));
        if changes && !self.phase(drive).is_stopping() {
            self.set_away(drive, Loss::Failed);
        }
        let phase = self.phase(drive);
        assert!(phase.is_away() || phase.is_stopping(), "{drive} is out of service, or about to be");
        new
    }

    /// True if `drive` may be replaced by another drive: it failed, and has stopped as far as is known.
    pub fn may_be_replaced(&self, drive: DriveId) -> bool {
        let state = self.states.get(drive.index());
        state.is_some_and(|state| state.failed && state.phase.is_away() && !self.is_permitted(drive))
    }

    /// Another drive has replaced `drive`, and is in standby.
    pub fn replace(&mut self, drive: DriveId) {
        assert!(self.may_be_replaced(drive), "{drive} failed and stands still");
        let state = &mut self.states[drive.index()];
        (state.failed, state.transfer_errors, state.failures, state.unsent) = (false, 0, 0, 0);
        self.punctuality[drive.index()].begin_anew();
        self.backoff.reset(drive);
        self.cut_off.remove(&drive);
        self.trials.remove(&drive);
        self.tally.replace();
        self.return_to_service(drive);
        assert!(self.phase(drive) == DrivePhase::Standby, "the new {drive} stands still");
    }

    /// A transfer failed on `drive`. After a few failures it is taken out of service until it is tried again.
    pub fn transfer_failed(&mut self, drive: DriveId, now: Time) {
        let state = &mut self.states[drive.index()];
        state.transfer_errors += 1;
        if state.transfer_errors >= TRANSFER_ERRORS_MAX && state.phase == DrivePhase::Ready {
            self.punctuality[drive.index()].wakes_missed += 1;
            self.set_away(drive, Loss::Died);
            self.untried.insert(drive);
            self.retry_later(drive, now);
        }
        assert!(
            !self.is_ready(drive) || self.states[drive.index()].transfer_errors < TRANSFER_ERRORS_MAX,
            "{drive} failed too often to be used"
        );
    }

    /// `drive` missed a deadline in a transfer: it is not used until the next wake of its group.
    pub fn transfer_missed_deadline(&mut self, drive: DriveId, now: Time) {
        self.note_missed_deadline(drive, now);
        let state = &mut self.states[drive.index()];
        state.transfer_errors += 1;
        if state.phase == DrivePhase::Ready {
            self.punctuality[drive.index()].count_wake();
            self.set_away(drive, Loss::NoAnswer);
            self.untried.insert(drive);
            self.retry_later(drive, now);
        }
        assert!(!self.is_ready(drive), "{drive} is done without until its group wakes next");
    }

    /// The time of the next try of a drive that was given up on, or when a start of a found drive would be over.
    pub fn retry_deadline(&self) -> Time {
        self.backoff.deadline().min(self.found_deadline())
    }

    /// Tries the drives that are due.
    pub fn retry(&mut self, step: &mut Step) {
        while let Some(drive) = self.backoff.take_due(step.now) {
            let state = &mut self.states[drive.index()];
            let given_up = state.phase.is_away() || state.phase.is_stopping();
            assert!(given_up, "{drive} was given up on, and is in use");
            match state.phase {
                // The last try sent it a stop, and it has not answered.
                phase if phase.is_stopping() => {
                    self.set_away(drive, Loss::MountFailed);
                    self.retry_later(drive, step.now);
                }
                DrivePhase::Away(_) if self.ledger.state(drive) != PowerState::Standby => {
                    self.command(drive, DrivePhase::Unmounting, step);
                    self.backoff.plan(drive, step.now + self.switch_timeout);
                }
                DrivePhase::Away(_) if !state.failed => {
                    state.failures = FAILURES_MAX - 1;
                    self.punctuality[drive.index()].leave_one_chance(FAILURES_MAX);
                    self.return_to_service(drive);
                }
                _ => {}
            }
        }
    }

    fn do_without(&mut self, drive: DriveId, in_vain: bool, now: Time) {
        match self.phase(drive) {
            DrivePhase::AwaitingPermit => {
                assert!(!self.is_permitted(drive), "{drive} waits for a permit, and has none");
                if self.has_failed(drive) {
                    self.set_phase(drive, DrivePhase::Away(Loss::Failed));
                    return;
                }
                self.set_phase(drive, DrivePhase::Standby);
                if in_vain {
                    self.notices.push_back(Notice::Unwritable(drive));
                    self.unpermitted.retain(|other| *other != drive);
                    self.unpermitted.push(drive);
                    assert!(self.unpermitted.len() <= self.states.len(), "{drive} waits once");
                }
            }
            phase if phase.is_starting() => {
                assert!(self.is_permitted(drive), "{drive} starts under a permit");
                self.count_missed_deadline(drive);
                self.give_up(drive, Loss::SpinUpFailed, now);
            }
            _ => {}
        }
    }

    /// Sends `drive` the command that leads to `phase`, under a new number.
    fn command(&mut self, drive: DriveId, phase: DrivePhase, step: &mut Step) {
        assert!(self.is_permitted(drive), "{drive} is sent a command under a permit");
        let before = self.phase(drive);
        self.set_phase(drive, phase);
        let state = &mut self.states[drive.index()];
        let attempt = state.renumber();
        step.ask(match phase {
            DrivePhase::SpinningUp => {
                assert!(before == DrivePhase::AwaitingPermit, "{drive} waited for its permits");
                let is_tried = self.trials.contains_key(&drive);
                assert!(!state.failed || is_tried, "{drive} failed for good, and is not started");
                assert!(self.ledger.state(drive) == PowerState::SpinningUp, "{drive} starts within its permits");
                Action::SpinUp { drive, attempt }
            }
            DrivePhase::Mounting => {
                assert!(self.ledger.state(drive) == PowerState::Active, "{drive} is mounted when it is up to speed");
                assert!(before == DrivePhase::SpinningUp, "{drive} was sent a start");
                Action::Mount { drive, attempt }
            }
            DrivePhase::Unmounting => {
                let found = matches!(before, DrivePhase::Standby | DrivePhase::AwaitingPermit);
                let was_tried = state.failed && before == DrivePhase::Mounting;
                let was_in_use = before == DrivePhase::Ready || before.is_away();
                assert!(found || was_tried || was_in_use, "{drive} is mounted, or may be");
                Action::Unmount { drive, attempt }
            }
            DrivePhase::Stopping => {
                assert!(before == DrivePhase::Unmounting, "{drive} is stopped after it was unmounted");
                Action::Stop { drive, attempt }
            }
            other => panic!("no command leads to {other:?}"),
        });
    }

    /// True if an answer belongs to the last command of `drive`, which led to `phase`. If so, records that it answered.
    fn answers(&mut self, drive: DriveId, attempt: Attempt, phase: DrivePhase) -> bool {
        let state = self.states.get_mut(drive.index());
        if state.is_none_or(|state| state.attempt != attempt || state.phase != phase) {
            return false;
        }
        self.punctuality[drive.index()].owes_answer = false;
        true
    }

    /// A command of `drive` failed or was not answered in time.
    fn give_up(&mut self, drive: DriveId, loss: Loss, now: Time) {
        if loss == Loss::NoAnswer && self.note_missed_deadline(drive, now) {
            self.states[drive.index()].unsent += 1;
            self.set_away(drive, loss);
            self.backoff.plan(drive, now + self.punctuality[drive.index()].pause_while_owing(now));
            return;
        }
        assert!(!self.is_away(drive), "{drive} is given up on once");
        // A drive is not to blame if the host could not send it a command: the group only continues without it.
        let state = &mut self.states[drive.index()];
        state.failures += u32::from(loss != Loss::NotAsked);
        state.unsent += u32::from(loss == Loss::NotAsked);
        self.set_away(drive, loss);
        self.retry_later(drive, now);
    }

    /// Plans the next try of a drive that is away, unless its return is reported by the world. A permanently failed
    /// drive is tried only while it may spin: it is to stop.
    fn retry_later(&mut self, drive: DriveId, now: Time) {
        self.backoff.forget(drive);
        let state = &self.states[drive.index()];
        assert!(state.phase.is_away(), "{drive} is away");
        let others_decide = state.lost_by_world || state.phase == DrivePhase::Away(Loss::FuseTripped);
        if !others_decide && (!state.failed || self.is_permitted(drive)) {
            self.backoff.plan_later(drive, now);
        }
    }

    /// A drive that was away, and has stopped, is in service again.
    fn return_to_service(&mut self, drive: DriveId) {
        let state = &mut self.states[drive.index()];
        assert!(!state.failed, "{drive} did not fail");
        state.renumber();
        self.set_phase(drive, DrivePhase::Standby);
        self.notices.push_back(Notice::Writable(drive));
        self.stand_by(drive);
        self.notices.push_back(Notice::Returned(drive));
    }

    fn stand_by(&mut self, drive: DriveId) {
        assert!(self.phase(drive) == DrivePhase::Standby && !self.is_permitted(drive), "{drive} stands still");
        self.states[drive.index()].lost_by_world = false;
        self.backoff.begin_try(drive);
        self.notices.push_back(Notice::Standby(drive));
    }

    fn set_away(&mut self, drive: DriveId, loss: Loss) {
        let state = &mut self.states[drive.index()];
        state.lost_with_permits = true;
        self.untried.remove(&drive);
        state.renumber();
        let loss_known = if state.failed { Loss::Failed } else { loss };
        self.set_phase(drive, DrivePhase::Away(loss_known));
        self.notices.push_back(Notice::Unwritable(drive));
        // A tripped fuse cuts the power; a drive that the operator gave up and that is gone was pulled. After any other
        // loss the platters may still spin.
        let state = &self.states[drive.index()];
        if loss == Loss::FuseTripped || (self.cut_off.contains(&drive) && state.lost_by_world) {
            self.release_permit(drive);
        }
        let state = &self.states[drive.index()];
        assert!(loss != Loss::FuseTripped || !self.is_permitted(drive), "{drive} has no power, and needs no permit");
        assert!(!state.failed || state.phase == DrivePhase::Away(Loss::Failed), "a failed drive stays failed");
    }

    /// Releases the permits of `drive`, which has stopped, if it holds any.
    fn release_permit(&mut self, drive: DriveId) {
        let was_lost = core::mem::take(&mut self.states[drive.index()].lost_with_permits);
        if !self.is_permitted(drive) {
            return;
        }
        self.ledger.released(drive);
        self.found.retain(|(_, other)| *other != drive);
        assert!(!self.is_permitted(drive), "{drive} has given its permits back");
        if was_lost {
            let mut unpermitted = core::mem::take(&mut self.unpermitted);
            unpermitted.retain(|drive| !self.is_away(*drive));
            let standing: Vec<DriveId> =
                unpermitted.iter().copied().filter(|drive| self.phase(*drive) == DrivePhase::Standby).collect();
            self.notices.extend(unpermitted.into_iter().map(Notice::Writable));
            // Their group may be awake, and too busy to sleep and wake as a whole.
            self.notices.extend(standing.into_iter().map(Notice::Standby));
        }
    }

    /// `drive` did not answer. True if it already owed an answer, so it was not sent its command.
    fn note_missed_deadline(&mut self, drive: DriveId, now: Time) -> bool {
        let owed_one = self.punctuality[drive.index()].note_missed(now);
        if !owed_one {
            self.count_missed_deadline(drive);
        }
        owed_one
    }

    fn count_missed_deadline(&mut self, drive: DriveId) {
        self.punctuality[drive.index()].missed += 1;
        self.missed_deadlines += 1;
        assert!(self.missed_deadlines >= self.missed_deadlines(drive), "the rack missed what {drive} missed");
    }
}
