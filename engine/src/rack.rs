//! The rack: one state machine over all classes this instance owns.
//!
//! `apply` takes a fact, updates belief, and lets every class it concerns go on as far as it can. Nothing in it fails:
//! what makes no sense is rejected in an action, what comes late is ignored.
//!
//! The parts: [`crate::fair`] orders operations, [`crate::ledger`] permits spin-ups, [`crate::budget`] counts them,
//! [`crate::placement`] chooses drives, [`crate::staging`] migrates; `switch.rs` moves groups between sleep and
//! service, `recover.rs` tries drives again that were given up on, and `service.rs` takes one operation at a time
//! through a class.

use crate::action::{Action, Outcome, Rejection};
use crate::budget::StartBudget;
use crate::deadlines::Punctuality;
use crate::event::{DoomedBlob, DriveReport, Event, Loss, Request, Work};
use crate::fair::{FairQueues, Pick};
use crate::jobs::Jobs;
use crate::layout::Layout;
use crate::ledger::Ledger;
use crate::numbered::OpMap;
use crate::placement::Placement;
use crate::policy::{Lane, RackPolicy};
use crate::rebuild::Rebuilder;
use crate::recover::Comeback;
use crate::room::Unplaced;
use crate::staging::Migrator;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, ClassId, DriveId, GroupId, OpId, RackSpec, Rng, Time};

/// What a drive is doing, as far as the engine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrivePhase {
    /// Platters stopped.
    Standby,
    /// Its group is waking; it waits for its permits.
    AwaitingPermit,
    /// Told to start.
    SpinningUp,
    /// Told to mount.
    Mounting,
    /// Mounted: files can be read and written.
    Ready,
    /// Told to unmount.
    Unmounting,
    /// Told to stop.
    Stopping,
    /// Not there.
    Away(Loss),
}

#[derive(Clone, Debug)]
pub(crate) struct DriveState {
    pub(crate) phase: DrivePhase,
    /// The number of the last command; an answer to another one is late.
    pub(crate) attempt: Attempt,
    /// Transfers that failed on it since it last mounted.
    pub(crate) errors: u32,
    /// Commands that failed since it last mounted.
    pub(crate) strikes: u32,
    /// Whether it holds permits of the ledger.
    pub(crate) permitted: bool,
    /// It was lost with them.
    pub(crate) lost_permitted: bool,
    /// It failed for good, says the operator.
    pub(crate) failed: bool,
    /// When and whether it is tried again, should it be away.
    pub(crate) comeback: Comeback,
    /// Whether it answers in time.
    pub(crate) punctuality: Punctuality,
}

/// What a class is doing. One group of it is out of [`ClassPhase::Asleep`] at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassPhase {
    /// All its groups sleep.
    Asleep,
    /// A group gets ready: permits, spin-up, mount of its slowest member.
    Waking {
        /// Which group.
        group: GroupId,
        /// Members that are not ready by then are done without.
        until: Time,
    },
    /// A group is ready.
    Awake {
        /// Which group.
        group: GroupId,
        /// Since when it has had nothing to do; `None` while it has.
        idle_since: Option<Time>,
    },
    /// A group unmounts and stops.
    Resting {
        /// Which group.
        group: GroupId,
        /// Members that have not answered by then are given up on.
        until: Time,
    },
}

pub(crate) struct ClassState {
    pub(crate) phase: ClassPhase,
    pub(crate) queues: FairQueues,
    /// Dequeued; its group is being woken for it.
    pub(crate) pending: Option<Pick>,
    /// When an operation was dequeued last.
    pub(crate) picked_at: Time,
    /// When the last operation left service.
    pub(crate) served_until: Time,
    /// Others wait, and it stays with its group until then at most, for more of the same.
    pub(crate) anticipates_until: Option<Time>,
    /// In service: the one operation that moves bytes now.
    pub(crate) in_service: Option<InService>,
    /// Members of the group that wakes or is awake came back after they were lost; they do not turn.
    pub(crate) returned: bool,
    /// When the switch under way began, and whom it is charged to.
    pub(crate) switch: Option<(Time, Lane)>,
    /// What is to be reclaimed on the group that is awake.
    pub(crate) reclaim: Reclaim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InService {
    pub(crate) op: OpId,
    pub(crate) lane: Lane,
    pub(crate) since: Time,
}

/// Blobs of the awake group whose stacks are to be removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reclaim {
    /// A page is awaited.
    pub(crate) awaiting: Option<Attempt>,
    pub(crate) blobs: VecDeque<DoomedBlob>,
    /// There are more behind the last page.
    pub(crate) more: bool,
    /// Doomed bytes of the group when the listing began, as they were believed to be.
    pub(crate) believed: u64,
    /// Doomed bytes that the listing has shown so far.
    pub(crate) shown: u64,
    /// Since somebody waits for another group: when he has waited long enough.
    pub(crate) gives_way: Option<Time>,
}

#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) request: Request,
    pub(crate) weight: u64,
    pub(crate) class: ClassId,
    pub(crate) group: GroupId,
    pub(crate) attempt: Attempt,
    pub(crate) tries: u32,
    /// For a write: the drives whose space is reserved; for a rebuild in service, its target.
    pub(crate) drives: Vec<DriveId>,
    /// For a write: groups that failed it.
    pub(crate) excluded: Vec<GroupId>,
    /// For a write or a rebuild: what it wrote is being read back.
    pub(crate) verifying: bool,
    /// For a rebuild: the catalog is asked to count the new stack.
    pub(crate) moving: bool,
    /// For a rebuild: drives that it could not be written to.
    pub(crate) shunned: Vec<DriveId>,
}

impl Op {
    pub(crate) fn new(request: Request, weight: u64, class: ClassId, group: GroupId, drives: Vec<DriveId>) -> Self {
        Self {
            request,
            weight,
            class,
            group,
            attempt: Attempt(0),
            tries: 0,
            drives,
            excluded: Vec::new(),
            verifying: false,
            moving: false,
            shunned: Vec::new(),
        }
    }
}

/// What has happened since boot, for status and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Drive starts that were asked for.
    pub drive_starts: u64,
    /// Group wakes, by the lane that caused them (in the order of [`Lane::ALL`]).
    pub group_wakes: [u64; 3],
    /// Time from the wish for another group to its being ready, over all classes.
    pub switching: Duration,
    /// Payload bytes of finished reads.
    pub read_bytes: u64,
    /// Payload bytes of finished writes.
    pub written_bytes: u64,
    /// Of those, by migration.
    pub migrated_bytes: u64,
    /// Payload bytes given back by reclaimed blobs.
    pub reclaimed_bytes: u64,
    /// Bytes of stacks that were rebuilt.
    pub rebuilt_bytes: u64,
    /// Operations that were rejected or failed.
    pub refused: u64,
    /// Reads that could not be answered because data is lost.
    pub data_lost: u64,
    /// Deadlines that drives missed.
    pub missed_deadlines: u64,
}

/// A rack's mind. See the head of this file.
pub struct Rack {
    pub(crate) spec: RackSpec,
    pub(crate) layout: Layout,
    pub(crate) policy: RackPolicy,
    pub(crate) drives: Vec<DriveState>,
    pub(crate) classes: Vec<ClassState>,
    /// Until when each class need not be looked at ([`crate::quiet`]).
    pub(crate) quiet_until: Vec<Time>,
    pub(crate) ledger: Ledger,
    /// Drives whose permits lost drives hold: they cannot be written to before one of those gives its own back.
    pub(crate) unpermitted: Vec<DriveId>,
    /// Drives that were given up on, and when each is tried again ([`crate::recover`]).
    pub(crate) tries: BTreeSet<(Time, DriveId)>,
    pub(crate) budget: StartBudget,
    pub(crate) placement: Placement,
    pub(crate) migrator: Migrator,
    /// The last write from the workshop that found no room in any group, until one has room for it.
    pub(crate) unplaced: Option<Unplaced>,
    pub(crate) ops: OpMap<Op>,
    pub(crate) rebuilder: Rebuilder,
    /// Repartition jobs.
    pub(crate) jobs: Jobs,
    /// Doomed payload bytes by group.
    pub(crate) doomed: Vec<u64>,
    /// Those of them that the last listing showed and that could not be given back: a visit would not either.
    pub(crate) stuck: Vec<u64>,
    pub(crate) rng: Rng,
    /// The highest number the world has given an operation.
    pub(crate) last_op: OpId,
    pub(crate) next_op: u64,
    pub(crate) stats: Stats,
    pub(crate) booted: bool,
    pub(crate) closing: bool,
}

/// Operations of the engine's own that are not migration writes are numbered from here.
const OWN_OPS: u64 = crate::staging::ENGINE_OPS | 1 << 62;

impl Rack {
    /// A rack of which nothing is known yet: every drive is away until it is reported.
    pub fn new(spec: RackSpec, layout: Layout, policy: RackPolicy, seed: u64) -> Self {
        let groups: Vec<Vec<DriveId>> = layout.groups.iter().map(|group| group.drives.clone()).collect();
        let class_of: Vec<ClassId> = layout.groups.iter().map(|group| group.class).collect();
        let drive = DriveState {
            phase: DrivePhase::Away(Loss::Died),
            attempt: Attempt(0),
            errors: 0,
            strikes: 0,
            permitted: false,
            lost_permitted: false,
            failed: false,
            comeback: Comeback::default(),
            punctuality: Punctuality::default(),
        };
        let class = |_| ClassState {
            phase: ClassPhase::Asleep,
            queues: FairQueues::new(&policy.scheduler),
            pending: None,
            picked_at: Time::ZERO,
            served_until: Time::ZERO,
            anticipates_until: None,
            returned: false,
            in_service: None,
            switch: None,
            reclaim: Reclaim::default(),
        };
        Self {
            drives: vec![drive; spec.drives.len()],
            classes: (0..layout.classes.len()).map(class).collect(),
            quiet_until: vec![Time::ZERO; layout.classes.len()],
            ledger: Ledger::new(&spec),
            unpermitted: Vec::new(),
            tries: BTreeSet::new(),
            budget: StartBudget::new(spec.drives.len(), policy.starts_per_day),
            placement: Placement::new(&spec, &groups, &class_of),
            migrator: Migrator::new(policy.migration.clone()),
            unplaced: None,
            ops: OpMap::default(),
            rebuilder: Rebuilder::default(),
            jobs: Jobs::default(),
            doomed: vec![0; layout.groups.len()],
            stuck: vec![0; layout.groups.len()],
            rng: Rng::new(seed),
            last_op: OpId(0),
            next_op: OWN_OPS,
            stats: Stats::default(),
            booted: false,
            closing: false,
            spec,
            layout,
            policy,
        }
    }

    /// Takes note of `event` and appends to `actions` what is to be done about it. `now` never goes back.
    pub fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        self.disturb(&event);
        match event {
            Event::DriveReported(report) => self.drive_reported(&report),
            Event::Booted => self.booted = true,
            Event::HostMeasured { host, drives, free_bytes } => {
                self.placement.set_host_free(host as usize, &drives, free_bytes);
            }
            Event::SpunUp { drive, attempt } => self.spun_up(drive, attempt, actions),
            Event::Mounted { drive, attempt, free_bytes } => self.mounted(drive, attempt, free_bytes),
            Event::Unmounted { drive, attempt } => self.unmounted(drive, attempt, actions),
            Event::Stopped { drive, attempt } => self.stopped(drive, attempt, now),
            Event::DriveCommandFailed { drive, attempt, loss } => {
                self.command_failed(drive, attempt, loss, now, actions);
            }
            Event::DriveLost { drive, loss } => self.drive_lost(drive, loss),
            Event::DriveBack { drive } => self.drive_back(drive),
            Event::DriveFailed { drive } => self.drive_failed(now, drive),
            Event::DriveReplaced { drive, lost_bytes } => self.drive_replaced(now, drive, lost_bytes),
            Event::OnDrivePage { drive, attempt, blobs, next } => self.on_drive_page(drive, attempt, blobs, next),
            Event::StackMoved { op, attempt, done } => self.stack_moved(now, op, attempt, done, actions),
            Event::Submitted(request) => self.submitted(now, request, actions),
            Event::Cancelled { op } => self.cancelled(now, op, actions),
            Event::TransferEnded { op, attempt, done, outcomes } => {
                self.transfer_ended(now, op, attempt, done, &outcomes, actions);
            }
            Event::SourceUnreadable { op, attempt, versions, outcomes } => {
                self.source_unreadable(now, op, attempt, &versions, &outcomes, actions);
            }
            Event::StagingChanged(usage) => self.migrator.usage_changed(usage),
            Event::StagedPage { attempt, entries, more } => self.migrator.page(now, attempt, &entries, more, actions),
            Event::SpaceDoomed { group, bytes } => {
                self.space_doomed(group, bytes);
                self.reclaim_if_full(now, actions);
            }
            Event::DoomedPage { group, attempt, blobs, held_bytes, more } => {
                self.doomed_page(group, attempt, blobs, held_bytes, actions);
                self.doomed_page_end(group, attempt, more);
            }
            Event::Job { job, event } => self.jobs.apply(now, job, event, actions),
            Event::SubmittedForJob { of, request } => self.submitted_for_job(now, of, request, actions),
            Event::Closing => self.close(now, actions),
            Event::DeadlineReached => {}
        }
        if self.booted {
            self.go_on(now, actions);
        }
    }

    /// When to send [`Event::DeadlineReached`], if nothing happens before; [`Time::MAX`] is never.
    pub fn next_deadline(&self) -> Time {
        if !self.booted {
            return Time::MAX;
        }
        let others = self.migrator.deadline().min(self.rebuild_deadline()).min(self.tries_deadline());
        let others = others.min(self.jobs.deadline());
        self.classes_deadline().min(if self.closing { Time::MAX } else { others })
    }

    /// Every class goes on as far as it can, then the migrator has its say. Rebuilds that are queued in the place of
    /// those that ended may go on at once; each round uses up some of a page, so this comes to an end.
    fn go_on(&mut self, now: Time, actions: &mut Vec<Action>) {
        if !self.closing {
            self.try_again(now, actions);
        }
        loop {
            for index in 0..self.classes.len() {
                let class = ClassId(index as u32);
                if !self.is_quiet(class, now) {
                    self.advance_class(class, now, actions);
                    self.note_quiet(class);
                }
            }
            let queues_changed = self.go_on_with_jobs(now, actions);
            if self.closing || !(self.go_on_rebuilding(now, actions) || queues_changed) {
                break;
            }
        }
        self.look_for_room();
        if !self.closing {
            let clients_wait = self.clients_wait();
            self.migrator.poll(now, clients_wait, actions);
        }
    }

    /// Refuses everything that is queued. What is in service ends; the classes then put their groups to sleep.
    fn close(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.closing = true;
        let in_service: Vec<OpId> = self.classes.iter().filter_map(|class| Some(class.in_service?.op)).collect();
        let queued = self.ops.numbers().into_iter().filter(|op| !in_service.contains(op));
        for op in queued {
            if let Some(state) = self.ops.get(&op).cloned() {
                self.classes[state.class.index()].queues.remove(op);
                self.release_space(&state.request.work, &state.drives);
            }
            self.finish(now, op, Outcome::Failed(Rejection::Closing), actions);
        }
        for class in &mut self.classes {
            class.pending = None;
        }
    }

    /// Whether the rack was told to close and every group sleeps.
    pub fn is_closed(&self) -> bool {
        self.closing && self.classes.iter().all(|class| class.phase == ClassPhase::Asleep)
    }

    fn clients_wait(&self) -> bool {
        self.classes.iter().any(|class| {
            class.queues.lane_len(Lane::Client) > 0
                || class.pending.as_ref().is_some_and(|pick| pick.lane == Lane::Client)
                || class.in_service.is_some_and(|service| service.lane == Lane::Client)
        })
    }

    fn drive_reported(&mut self, report: &DriveReport) {
        let index = report.drive.index();
        assert!(index < self.drives.len(), "{} is not of this rack", report.drive);
        assert!(!self.booted, "drives are reported before the rack boots");
        self.placement.restate(report.drive, report.capacity_bytes, report.used_bytes);
        self.placement.set_away(report.drive, !report.present);
        self.budget.restore(report.drive, report.day, report.starts);
        self.drives[index].phase = if report.present { DrivePhase::Standby } else { DrivePhase::Away(Loss::Died) };
    }

    fn space_doomed(&mut self, group: GroupId, bytes: u64) {
        if let Some(doomed) = self.doomed.get_mut(group.index()) {
            *doomed += bytes;
        }
    }

    pub(crate) fn class_of(&self, group: GroupId) -> ClassId {
        self.layout.groups[group.index()].class
    }

    pub(crate) fn owns(&self, class: ClassId) -> bool {
        self.policy.classes.is_empty() || self.policy.classes.contains(&class)
    }

    /// Makes sure that `group` is visited, so that what is doomed there is reclaimed.
    pub(crate) fn visit(&mut self, now: Time, group: GroupId, actions: &mut Vec<Action>) {
        let visiting = self.ops.any(|op| op.group == group && matches!(op.request.work, Work::Visit { .. }));
        if visiting {
            return;
        }
        let op = self.own_op();
        let request = Request { op, lane: Lane::Background, overtake_limit: None, work: Work::Visit { group } };
        self.submitted(now, request, actions);
    }

    /// A number for an operation of the engine's own.
    pub(crate) fn own_op(&mut self) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        op
    }

    /// Forgets `op` and says how it ended. Nobody waits for a visit, or knows of a rebuild that never was in service.
    pub(crate) fn finish(&mut self, now: Time, op: OpId, outcome: Outcome, actions: &mut Vec<Action>) {
        let ended = self.ops.remove(&op);
        self.jobs.operation_ended(op, &outcome);
        if let Some(rebuild) = ended.as_ref().filter(|op| matches!(op.request.work, Work::Rebuild { .. })) {
            self.rebuild_ended(rebuild, &outcome);
            if rebuild.attempt != Attempt(0) {
                actions.push(Action::Finished { op, outcome });
            }
            return;
        }
        let visit = ended.is_some_and(|op| matches!(op.request.work, Work::Visit { .. }));
        self.migrator.ended(now, op, matches!(outcome, Outcome::Written { .. }));
        if let Outcome::Failed(reason) = &outcome {
            self.stats.refused += 1;
            self.stats.data_lost += u64::from(*reason == Rejection::DataLost);
        }
        if !visit {
            actions.push(Action::Finished { op, outcome });
        }
    }

    /// Refuses an operation that was never taken in.
    pub(crate) fn reject(&mut self, now: Time, request: &Request, reason: Rejection, actions: &mut Vec<Action>) {
        self.migrator.ended(now, request.op, false);
        self.jobs.operation_ended(request.op, &Outcome::Failed(reason));
        self.stats.refused += 1;
        if !matches!(request.work, Work::Visit { .. }) {
            actions.push(Action::Rejected { op: request.op, reason });
        }
    }
}
