//! The rack: makes all decisions, for all classes that this instance owns.
//!
//! `apply` takes an event, updates the state, and advances every affected class as far as possible. It never fails: it
//! rejects invalid requests in an action and ignores late answers.
//!
//! Each part has its own state and does not know the others; the rack asks them in turn and passes on the consequences:
//! - [`crate::drives`]: the phase of each drive, with [`crate::ledger`] (permits) and [`crate::budget`] (starts);
//! - [`crate::class`]: the awake group of a class, its queues ([`crate::fair`]) and the operation in service;
//! - [`crate::ops`]: open operations; [`crate::placement`]: space; [`crate::room`]: whether the rack is full;
//! - [`crate::absence`]: drives that are away, and when the rack gives one up; [`crate::health`]: drives that wear out;
//! - [`crate::initialisation`]: groups that were never woken; [`crate::reclaim`]: dead bytes; [`crate::rebuild`]:
//!   failed drives; [`crate::scrub`]: scrubs; [`crate::staging`]: migration; [`crate::jobs`]: repartition jobs;
//! - [`crate::pool_power`]: sleep of the drives in the pool of small records;
//! - [`crate::blocked`]: classes that need not be looked at.
//!
//! `admission.rs` admits and ends operations, `switching.rs` switches a class between its groups, `service.rs` serves
//! one operation of a class at a time. `reclaiming.rs`, `rebuilding.rs` and `scrubbing.rs` serve dead blobs, lost
//! stacks and scrubs, and `jobs.rs` the steps of repartition jobs. `initialising.rs` wakes groups that were never
//! woken, `health.rs` empties drives that wear out, `view.rs` and `cost.rs` answer questions.
//!
//! Invariants: every admitted operation is answered once; nothing is admitted after `Closing`; the notices that a part
//! has for others are passed on before `apply` returns.

mod absent;
mod admission;
mod checking;
mod cost;
mod health;
mod initialising;
mod jobs;
mod rebuilding;
mod reclaiming;
mod scrubbing;
mod service;
mod switching;
mod view;

pub use cost::{GroupReads, ReadCost};

use crate::absence::Absences;
use crate::action::{Action, Outcome, Rejection};
use crate::blocked::Blocked;
use crate::class::{Class, ClassPhase};
use crate::drives::{Drives, Notice};
use crate::estimates::Estimates;
use crate::event::{DriveReport, Event};
use crate::health::Health;
use crate::initialisation::Initialisation;
use crate::jobs::Jobs;
use crate::layout::Layout;
use crate::ops::{Answer, Ops};
use crate::placement::Placement;
use crate::policy::RackPolicy;
use crate::pool_power::PoolPower;
use crate::pool_protocol::PoolDriveEvent;
use crate::rebuild::Rebuilder;
use crate::reclaim::Reclaim;
use crate::room::Room;
use crate::scrub::Scrubber;
use crate::setup::Setup;
use crate::staging::Migrator;
use crate::staging::checks::{CheckedPage, Checker};
use crate::step::Step;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, ClassId, DriveId, GroupId, OpId, RackSpec, Rng, Time};

/// Counters since boot, for status and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Drive starts that were requested.
    pub drive_starts: u64,
    /// Group wakes, by the priority class that caused them (in the order of
    /// [`PriorityClass::ALL`](crate::PriorityClass::ALL)).
    pub group_wakes: [u64; 3],
    /// The background wakes that were only for an initialisation.
    pub initialisation_wakes: u64,
    /// The background wakes that were only for a scrub.
    pub scrub_wakes: u64,
    /// Time from the decision to switch to another group until it was ready, over all classes.
    pub switching: Duration,
    /// Payload bytes of finished reads.
    pub read_bytes: u64,
    /// Payload bytes of finished writes.
    pub written_bytes: u64,
    /// The part of the written bytes that migration wrote.
    pub migrated_bytes: u64,
    /// Payload bytes freed by reclaimed blobs.
    pub reclaimed_bytes: u64,
    /// Bytes of stacks that were rebuilt, or regenerated in place.
    pub rebuilt_bytes: u64,
    /// Payload bytes that scrubs have read.
    pub scrubbed_bytes: u64,
    /// Operations that were rejected or failed.
    pub refused: u64,
    /// Reads that could not be answered because data is lost.
    pub data_lost: u64,
    /// Deadlines that drives missed.
    pub missed_deadlines: u64,
}

/// All decisions about a rack. See the head of this file.
pub struct Rack {
    setup: Setup,
    drives: Drives,
    pool: PoolPower,
    classes: Vec<Class>,
    blocked: Blocked,
    placement: Placement,
    migrator: Migrator,
    checker: Checker,
    room: Room,
    ops: Ops,
    initialisation: Initialisation,
    rebuilder: Rebuilder,
    scrubber: Scrubber,
    absences: Absences,
    health: Health,
    /// Drives that are being retired, or have been.
    retiring: BTreeSet<DriveId>,
    /// Drives that the rack itself gave up: it is not known that they draw no power.
    gave_up: BTreeSet<DriveId>,
    /// Drives in `gave_up` that answered when they were tried, and that the world has not been asked to take back yet.
    recognised: Vec<DriveId>,
    jobs: Jobs,
    reclaim: Reclaim,
    rng: Rng,
    stats: Stats,
    estimates: Estimates,
    now: Time,
    booted: bool,
    closing: bool,
}

impl Rack {
    /// A rack in an unknown state: every drive is away until it is reported.
    pub fn new(spec: RackSpec, layout: Layout, policy: RackPolicy, seed: u64) -> Self {
        let groups: Vec<Vec<DriveId>> = layout.groups.iter().map(|group| group.drives.clone()).collect();
        let class_of: Vec<ClassId> = layout.groups.iter().map(|group| group.class).collect();
        let setup = Setup::new(spec, layout, policy);
        let class_count = setup.layout.classes.len();
        Self {
            drives: Drives::new(&setup),
            pool: PoolPower::new(&setup.spec, setup.policy.starts_per_day, setup.policy.spin_down),
            classes: (0..class_count).map(|_| Class::new(&setup.policy.scheduler)).collect(),
            blocked: Blocked::new(class_count),
            placement: Placement::new(&setup.spec, &groups, &class_of),
            migrator: Migrator::new(setup.policy.migration.clone()).awaiting_idleness(),
            checker: Checker::new(setup.policy.checks, setup.policy.migration.scan_interval),
            room: Room::default(),
            ops: Ops::new(),
            initialisation: Initialisation::new(&setup.layout.classes, setup.spec.drives.len()),
            rebuilder: Rebuilder::default(),
            scrubber: Scrubber::new(setup.policy.scrub, groups.len(), class_count),
            absences: Absences::new(setup.policy.give_up_after),
            health: Health::new(setup.policy.health),
            retiring: BTreeSet::new(),
            gave_up: BTreeSet::new(),
            recognised: Vec::new(),
            jobs: Jobs::default(),
            reclaim: Reclaim::new(groups.len(), class_count),
            rng: Rng::new(seed),
            stats: Stats::default(),
            estimates: Estimates::new(&setup),
            now: Time::ZERO,
            booted: false,
            closing: false,
            setup,
        }
    }

    /// Applies `event` and appends the resulting actions to `actions`. `now` never decreases.
    pub fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        assert!(now >= self.now, "time goes back from {} to {now}", self.now);
        self.now = now;
        let mut step = Step { now, actions };
        self.unblock(&event);
        self.take_note(event, &mut step);
        self.follow_drives();
        if self.booted {
            self.go_on(&mut step);
        }
        assert!(self.drives.next_notice().is_none(), "what changed about drives was passed on");
    }

    fn take_note(&mut self, event: Event, step: &mut Step) {
        match event {
            Event::DriveReported(report) => self.drive_reported(&report),
            Event::Booted => self.booted(step.now),
            Event::HostMeasured { host, drives, free_bytes } => {
                self.placement.set_host_free(host as usize, &drives, free_bytes);
            }
            Event::SpunUp { drive, attempt } => self.drives.spun_up(drive, attempt, step),
            Event::Mounted { drive, attempt, free_bytes } => self.mounted((drive, attempt), free_bytes, step),
            Event::Unmounted { drive, attempt } => self.drives.unmounted(drive, attempt, step),
            Event::Stopped { drive, attempt } => self.drives.stopped(drive, attempt, step.now),
            Event::DriveCommandFailed { drive, attempt, loss } => {
                self.drives.command_failed(drive, attempt, loss, step);
            }
            Event::DriveLost { drive, loss } => self.drives.lost(drive, loss),
            Event::DriveBack { drive } => self.drive_back(drive),
            Event::DriveSpins { drive } => self.drive_spins(drive, step),
            Event::DriveFailed { drive, pulled } => self.drive_failed(drive, pulled, step),
            Event::DriveReplaced { drive, lost_bytes } => self.drive_replaced(drive, lost_bytes, false, step.now),
            Event::DriveReturned { drive, lost_bytes } => self.drive_replaced(drive, lost_bytes, true, step.now),
            Event::DriveMayReturn { drive } => self.drive_may_return(drive, step.now),
            Event::DriveRetiring { drive } => self.drive_retiring(drive, step.now),
            Event::OnDrivePage { drive, attempt, blobs, next } => self.rebuilder.page(drive, attempt, blobs, next),
            Event::OnDriveUnlisted { drive, attempt } => self.rebuilder.unlisted(drive, attempt, step.now),
            Event::StackMoved { op, attempt, done } => self.stack_moved(op, attempt, done, step),
            Event::PoolDrive { drive, event } => self.pool.take_note(drive, event, &mut self.drives.ledger, step),
            Event::Submitted(request) => self.submitted(request, step),
            Event::SubmittedWhileAwake(request) => self.submitted_while_awake(request, step),
            Event::Cancelled { op } => self.cancelled(op, step),
            Event::TransferEnded { op, attempt, done, outcomes } => {
                self.transfer_ended(&Answer { op, attempt, outcomes: &outcomes }, done, step);
            }
            Event::ReadCutShort { op, attempt, bytes } => self.read_cut_short(op, attempt, bytes),
            Event::SourceUnreadable { op, attempt, versions, outcomes } => {
                self.source_unreadable(&Answer { op, attempt, outcomes: &outcomes }, &versions, step);
            }
            Event::StagingChanged(usage) => self.migrator.usage = usage,
            Event::StagedPage { attempt, entries, more } => {
                self.migrator.page(step.now, attempt, (&entries, more), step.actions);
            }
            Event::SpaceDead { group, bytes } => self.space_dead(group, bytes, step),
            Event::DeadKept { group, bytes } => self.reclaim.keep_dead(group, bytes),
            Event::DeadStacks { drives, lost, stack_bytes } => self.dead_stacks(&drives, &lost, stack_bytes),
            Event::DeadPage { group, attempt, blobs, held_bytes, more } => {
                self.dead_page((group, attempt), blobs, (held_bytes, more), step);
            }
            Event::DeadUnlisted { group, attempt } => self.dead_unlisted(group, attempt),
            Event::ScrubReported { group, pass } => self.scrubber.report(group, pass),
            Event::ScrubUnread { group, blob } => self.scrubber.report_unread(group, blob, step.now),
            Event::ScrubPaused { paused } => self.scrubber.pause(paused),
            Event::ScrubRequested { group } => self.scrub_requested(group, step),
            Event::ScrubPage { group, attempt, page } => self.scrub_page((group, attempt), page, step),
            Event::ScrubUnlisted { group, attempt } => self.scrub_unlisted(group, attempt, step.now),
            Event::Job { job, event } => self.jobs.apply(job, event, step),
            Event::SubmittedForJob { of, request } => self.submitted_for_job(of, request, step),
            Event::Closing => self.close(step),
            Event::DeadlineReached => {}
            Event::ChecksReported(progress) => self.checks_reported(progress),
            Event::LoadMeasured { attempt, load_permille } => self.load_measured(attempt, load_permille),
            Event::StagedChecked { attempt, entries, more, load_permille } => {
                self.staged_checked(&CheckedPage { attempt, entries: &entries, more, load_permille }, step);
            }
            Event::StagedUnchecked { attempt } => self.checker.unchecked(step.now, attempt),
            Event::DriveHealth { drive, bad_sectors } => self.health_read(drive, bad_sectors),
            Event::DriveHealthReported(known) => self.health.report(&known),
        }
    }

    fn read_cut_short(&mut self, op: OpId, attempt: Attempt, bytes: u64) {
        if let Some(read) = self.ops.get_mut(op).filter(|read| read.awaits_transfer(attempt)) {
            read.cut_short(bytes);
        }
    }

    /// The time to send [`Event::DeadlineReached`] if no other event comes before; [`Time::MAX`] is never.
    pub fn next_deadline(&self) -> Time {
        if !self.booted {
            return Time::MAX;
        }
        let classes = self.classes_deadline();
        if self.closing {
            // Drives of the log start until the end.
            return classes.min(self.drives.found_deadline()).min(self.pool.found_deadline());
        }
        let rebuilds = self.rebuilder.deadline(|drive| self.placement.used_bytes(drive));
        let staging = self.migrator.deadline().min(self.checker.deadline());
        let others = staging.min(rebuilds).min(self.drives.retry_deadline());
        let others = others.min(self.scrubber.deadline(self.now)).min(self.pool.deadline(self.now));
        let others = others.min(self.absences.deadline(self.now)).min(self.health.deadline());
        classes.min(others).min(self.jobs.deadline()).min(self.initialisation.deadline(self.now))
    }

    /// Advances every class as far as possible, then polls the migrator. When rebuilds end, queued ones may start at
    /// once. Each round uses up some of a page, a pass, or a group that is to be initialised, so the loop terminates.
    fn go_on(&mut self, step: &mut Step) {
        self.drives.end_found_starts(step.now);
        // Before any group asks for permits, since clients wait for these drives.
        self.pool.go_on(&mut self.drives.ledger, self.closing, step);
        if !self.closing {
            self.drives.retry(step);
            self.follow_drives();
        }
        self.go_on_with_classes(step);
        self.take_back_recognised(step);
        self.room.look(&self.setup, &self.placement, self.migrator.usage.staged_bytes);
        if !self.closing {
            self.retire_worn(step);
            let clients_wait = || self.classes.iter().any(Class::has_client);
            self.checker.poll(step.now, clients_wait, &mut self.migrator, step.actions);
            self.migrator.poll(step.now, clients_wait, step.actions);
        }
    }

    fn go_on_with_classes(&mut self, step: &mut Step) {
        loop {
            for index in 0..self.classes.len() {
                let class = ClassId(index as u32);
                if !self.blocked.is_blocked(class, step.now) {
                    self.advance_class(class, step);
                    let until = self.blocked_until(class);
                    assert!(
                        until.is_none_or(|until| until > step.now),
                        "{class} is blocked for some time or not at all"
                    );
                    self.blocked.set(class, until);
                }
            }
            let queues_changed = self.go_on_with_jobs(step);
            if self.closing {
                break;
            }
            let others_queued = self.queue_initialisations(step) | self.queue_scrubs(step) | self.give_up_absent(step);
            if !(self.queue_rebuilds(step) || others_queued || queues_changed) {
                break;
            }
        }
    }

    /// Passes on the notices of drives.
    fn follow_drives(&mut self) {
        while let Some(notice) = self.drives.next_notice() {
            match notice {
                Notice::Unwritable(drive) => {
                    self.placement.set_away(drive, true);
                    if self.drives.is_missing(drive) && self.booted {
                        self.absences.absent(drive, self.now);
                    }
                }
                Notice::Writable(drive) => {
                    self.placement.set_away(drive, false);
                    if self.drives.is_ready(drive) {
                        self.absences.settled(drive);
                    }
                }
                Notice::Standby(drive) => {
                    if let Some(group) = self.setup.layout.group_of(drive) {
                        self.class_mut(group).note_standby(group);
                    }
                }
                Notice::Recognised(drive) => self.recognised.push(drive),
                Notice::Returned(drive) => {
                    assert!(!self.drives.has_failed(drive), "{drive} is back in service");
                    if let Some(group) = self.setup.layout.group_of(drive) {
                        self.reclaim.unstick(group);
                        self.rebuilder.retry(self.setup.members(group));
                    }
                }
            }
        }
    }

    /// Refuses all queued operations. Operations in service end; the classes then put their groups to sleep.
    fn close(&mut self, step: &mut Step) {
        self.closing = true;
        let in_service: Vec<OpId> = self.classes.iter().filter_map(|class| Some(class.in_service?.op)).collect();
        let queued = self.ops.numbers().into_iter().filter(|op| !in_service.contains(op));
        for op in queued {
            if let Some(state) = self.ops.get(op) {
                self.classes[state.class.index()].remove(op);
            }
            self.release_space(op);
            self.finish(op, Outcome::Failed(Rejection::Closing), step);
        }
        for class in &mut self.classes {
            class.take_pending();
        }
        assert!(self.classes.iter().all(|class| class.queues.is_empty()), "nothing is queued once the rack closes");
        assert!(self.ops.len() <= self.classes.len(), "one operation in service per class is left");
    }

    fn mounted(&mut self, (drive, attempt): (DriveId, Attempt), free_bytes: u64, step: &mut Step) {
        if self.drives.mounted(drive, attempt, step) {
            self.placement.set_free(drive, free_bytes);
            self.ask_health(drive, step);
        }
    }

    fn drive_back(&mut self, drive: DriveId) {
        self.drives.back(drive);
        self.absences.settled(drive);
        self.migrator.hasten(self.now);
    }

    fn drive_reported(&mut self, report: &DriveReport) {
        if self.booted || !self.drives.knows(report.drive) {
            return; // drives are reported before the rack boots
        }
        self.placement.restate(report.drive, report.capacity_bytes, report.used_bytes);
        self.drives.report(report);
        self.initialisation.report(report.drive, report.initialised);
    }

    fn drive_spins(&mut self, drive: DriveId, step: &mut Step) {
        self.drives.spins(drive, step);
        if self.drives.knows(drive) && !self.drives.is_missing(drive) {
            self.absences.settled(drive);
        }
    }

    fn class(&self, group: GroupId) -> &Class {
        &self.classes[self.setup.class_of(group).index()]
    }

    fn class_mut(&mut self, group: GroupId) -> &mut Class {
        &mut self.classes[self.setup.class_of(group).index()]
    }

    /// Unblocks the classes that `event`, which is applied next, may affect. Kinds of events that are not listed here
    /// affect all classes, so a new kind is safe without being listed.
    fn unblock(&mut self, event: &Event) {
        let concerned = match event {
            // A class that waits for drives is not affected by an operation that is queued or by a check of staged
            // data. A read that was cut short ends with its next event.
            Event::Submitted(_)
            | Event::SubmittedWhileAwake(_)
            | Event::SubmittedForJob { .. }
            | Event::ReadCutShort { .. }
            | Event::ChecksReported(_)
            | Event::LoadMeasured { .. }
            | Event::StagedChecked { .. }
            | Event::StagedUnchecked { .. }
            | Event::PoolDrive {
                event: PoolDriveEvent::Reported { .. } | PoolDriveEvent::Wanted | PoolDriveEvent::Idle,
                ..
            } => return,
            Event::SpunUp { drive, .. }
            | Event::Mounted { drive, .. }
            | Event::Unmounted { drive, .. }
            | Event::Stopped { drive, .. } => {
                self.setup.layout.group_of(*drive).map(|group| self.setup.class_of(group))
            }
            Event::TransferEnded { op, .. } | Event::SourceUnreadable { op, .. } => {
                self.ops.get(*op).map(|op| op.class)
            }
            _ => None,
        };
        match concerned {
            Some(class) => self.blocked.unblock(class),
            None => self.blocked.unblock_all(),
        }
    }

    /// The time until which `class` is blocked after it advanced as far as possible; `None` if it is not blocked.
    fn blocked_until(&self, class: ClassId) -> Option<Time> {
        let state = &self.classes[class.index()];
        match state.phase {
            ClassPhase::Awake { .. } => state.in_service.map(|_| Time::MAX),
            ClassPhase::Waking { group, until } => {
                let starting = !self.closing && self.drives.on_the_way(group).only_starts();
                starting.then_some(until)
            }
            ClassPhase::Resting { group, until } => self.drives.on_the_way(group).is_stopping().then_some(until),
            ClassPhase::Asleep => None,
        }
    }

    fn classes_deadline(&self) -> Time {
        let deadline = |(index, class): (usize, &Class)| {
            let blocked = self.blocked.until(ClassId(index as u32));
            blocked.unwrap_or_else(|| class.deadline(self.setup.policy.idle_timeout))
        };
        self.classes.iter().enumerate().map(deadline).min().unwrap_or(Time::MAX)
    }
}
