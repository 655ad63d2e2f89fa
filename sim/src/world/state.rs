//! The simulator's world: its clock, its requests, and the reports to the engine.

use super::blobs::Blobs;
use super::checks::Checking;
use super::drives::Drives;
use super::moving::Moving;
use super::staging::{StagedVersion, Staging};
use crate::agenda::Agenda;
use crate::flow::Flows;
use crate::links::{Links, Network};
use crate::meter::Meter;
use crate::places::Places;
use engine::check::TraceCheck;
use engine::staging::LoadMeter;
use engine::trace::{Record, TraceMessage};
use engine::{
    Action, Controller, DriveDeadlines, DriveList, DriveReport, Event, JobAction, JobClass, JobEvent, JobId, OpenOps,
    Outcome, PinnedTo, PriorityClass, Rack, Request, TraceHasher, Transfer, Work,
};
use model::physics::{ServerLoad, Servers};
use model::{BlobId, DriveId, GroupId, OpId, Time};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The end of an operation, and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The operation.
    pub op: OpId,
    /// The priority class that it was charged to.
    pub priority: PriorityClass,
    /// The group that it was for, if the request named one.
    pub group: Option<GroupId>,
    /// Its outcome.
    pub outcome: Outcome,
    /// Payload bytes that it was to move.
    pub bytes: u64,
    /// The time when it was requested.
    pub issued: Time,
    /// The time when it left its queue, if it was ever in service.
    pub picked: Option<Time>,
    /// The time when its first stripe had moved, if it got that far.
    pub first_byte: Option<Time>,
    /// The time when it ended.
    pub at: Time,
}

/// Receives the records of a trace.
pub type Recorder = Box<dyn FnMut(Record)>;

/// The parameters of a world, besides its rack and a seed.
#[derive(Default)]
pub struct Setting {
    /// The servers' network; unlimited by default.
    pub network: Option<Network>,
    /// The bytes already stored on each drive; none if empty.
    pub used_bytes: Vec<u64>,
    /// True if the drives are new, so every group needs initialisation.
    pub first_boot: bool,
    /// True if a transfer takes one seek, as in papers; otherwise it takes as many as in a server.
    pub one_seek: bool,
    /// The time to list the blobs of a drive, per page, and to compose a pack.
    pub look_up: Duration,
    /// Receives every record of the trace.
    pub recorder: Option<Recorder>,
    /// Judges the trace during the run. A violation ends the run with a panic.
    pub judge: Option<TraceCheck>,
}

/// A future event.
#[derive(Clone, Debug)]
pub(super) enum Scheduled {
    /// A report to the engine, unless its drive was lost after this number of losses.
    Report(Event, Option<(DriveId, u64)>),
    /// The heads are in place: the bytes of the transfer in this place begin to move.
    Begin(u32),
    /// The transfer in this place, which moves no bytes, ends.
    Over(u32),
    /// A fuse resets.
    FuseResets(Vec<DriveId>),
}

/// The counters of a world, which only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Events reported to the engine.
    pub events: u64,
    /// Drive starts.
    pub spin_ups: u64,
    /// Bytes that drives have read or written, including redundancy.
    pub drive_bytes: u64,
    /// Payload bytes that left through the network.
    pub sent_bytes: u64,
    /// Tripped fuses.
    pub trips: u64,
}

/// An operation that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenOp {
    pub priority: PriorityClass,
    pub group: Option<GroupId>,
    pub bytes: u64,
    /// The space of each stack of a write.
    pub stack_bytes: u64,
    pub issued: Time,
    /// [`Time::MAX`] before that, as in `first_byte`: without an `Option`, since thousands are open at the same time.
    pub picked: Time,
    pub first_byte: Time,
}

impl OpenOp {
    /// An operation that moves nothing, issued at `now`.
    pub fn new(priority: PriorityClass, group: Option<GroupId>, now: Time) -> Self {
        Self { priority, group, bytes: 0, stack_bytes: 0, issued: now, picked: Time::MAX, first_byte: Time::MAX }
    }
}

/// The simulator's world.
pub struct World<M = Rack> {
    /// The engine.
    pub rack: M,
    pub(super) now: Time,
    /// The time when the engine wants to be woken.
    deadline: Time,
    /// The maximum times for answers of drives.
    pub(super) deadlines: DriveDeadlines,
    pub(super) agenda: Agenda<Scheduled>,
    pub(super) drives: Drives,
    /// The blobs in the rack that were written in this world.
    pub blobs: Blobs,
    /// The versions in the workshop.
    pub staging: Staging,
    /// The state of their checks.
    pub(super) checking: Checking,
    /// The load by clients' operations.
    pub(super) load: LoadMeter,
    pub(super) links: Links,
    /// True if every transfer takes one seek.
    pub(super) one_seek: bool,
    /// The time to list a page of a drive's blobs, and to compose a pack.
    pub(super) look_up: Duration,
    /// Transfers in progress, or about to begin.
    pub(super) transfers: Places<Moving>,
    /// The transfers that are moving bytes, by their places.
    pub(super) flows: Flows<u32>,
    /// The streams in progress on each server, including those of drives that failed in them.
    pub(super) servers: Servers,
    pub(super) counted: Counted,
    pub(super) open: OpenOps<OpenOp>,
    next_op: u64,
    pub(super) ended: Vec<Ended>,
    /// Actions for repartition jobs that have not been taken yet.
    pub(super) job_actions: VecDeque<(JobId, JobAction)>,
    /// Reused by every event.
    actions: Vec<Action>,
    trace: TraceHasher,
    recorder: Option<Recorder>,
    judge: Option<TraceCheck>,
}

impl<M: Controller> World<M> {
    /// A world around `rack`, with every drive reported and the rack booted. `seed` is for physics and faults.
    pub fn with(rack: M, seed: u64, setting: Setting) -> Self {
        let (spec, deadlines) = (rack.spec().clone(), rack.drive_deadlines());
        let links = Links::new(&spec, setting.network.unwrap_or(Network::UNBOUNDED));
        let mut used_bytes = setting.used_bytes;
        used_bytes.resize(spec.drives.len(), 0);
        let mut world = Self {
            rack,
            now: Time::ZERO,
            deadline: Time::MAX,
            deadlines,
            agenda: Agenda::default(),
            drives: Drives::new(&spec, seed),
            blobs: Blobs::new(used_bytes),
            staging: Staging::default(),
            checking: Checking::default(),
            load: LoadMeter::default(),
            transfers: Places::default(),
            flows: Flows::new(links.capacities.clone()),
            servers: Servers::new(&spec),
            links,
            one_seek: setting.one_seek,
            look_up: setting.look_up,
            counted: Counted::default(),
            open: OpenOps::default(),
            next_op: 1,
            ended: Vec::new(),
            job_actions: VecDeque::new(),
            actions: Vec::new(),
            trace: TraceHasher::default(),
            recorder: setting.recorder,
            judge: setting.judge,
        };
        for drive in spec.drives.iter().map(|drive| drive.id) {
            let (capacity_bytes, used_bytes) = (spec.capacity_bytes(drive), world.blobs.used_bytes(drive));
            let initialised = !setting.first_boot;
            let report =
                DriveReport { drive, capacity_bytes, used_bytes, day: 0, starts: 0, present: true, initialised };
            world.report(Event::DriveReported(report));
        }
        world.report(Event::Booted);
        world
    }

    /// The load of the server that mounts `drive` now.
    pub(super) fn load_for(&mut self, drive: DriveId) -> ServerLoad {
        self.servers.set_queue_fill(self.rack.queue_fill_permille(drive));
        self.servers.load(self.now, drive)
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The operations that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// The operations that have ended since the last call, one by one.
    pub(crate) fn drain_ended(&mut self) -> impl Iterator<Item = Ended> {
        self.ended.drain(..)
    }

    /// The number of operations that have not ended yet.
    pub fn open_ops(&self) -> usize {
        self.open.len()
    }

    /// The counters.
    pub fn counted(&self) -> Counted {
        let (spin_ups, trips) = (self.drives.spin_ups, self.drives.trips);
        Counted { spin_ups, trips, ..self.counted }
    }

    /// The rack's watt meter.
    pub(crate) fn meter(&mut self) -> &mut Meter {
        &mut self.drives.meter
    }

    /// A hash of the trace: equal for two runs in which the same happened.
    pub fn trace_hash(&self) -> u64 {
        self.trace.finish()
    }

    /// The id of the next blob that is written in this world.
    pub fn next_blob(&self) -> BlobId {
        self.blobs.next()
    }

    /// Numbers new blobs from `first` on; lower numbers are for reads of blobs that are unknown to this world.
    pub fn number_blobs_from(&mut self, first: BlobId) {
        self.blobs.number_from(first);
    }

    /// Sets the size of the workshop.
    pub fn set_staging(&mut self, capacity_bytes: u64) {
        self.staging.capacity_bytes = capacity_bytes;
        self.report(Event::StagingChanged(self.staging.usage()));
    }

    /// Stages a version; numbers are in key order.
    pub fn stage(&mut self, version: u64, bytes: u64, pin: PinnedTo) {
        self.staging.stage(version, StagedVersion { bytes, since: self.now, pin, is_processed: false });
        self.report(Event::StagingChanged(self.staging.usage()));
    }

    /// Staged versions that went into packs without being read again after their check, and their bytes.
    pub fn saved_reads(&self) -> (u64, u64) {
        self.checking.saved()
    }

    /// Marks `bytes` more of a blob as dead.
    pub fn mark_dead(&mut self, blob: BlobId, bytes: u64) {
        if let Some((group, bytes)) = self.blobs.mark_dead(blob, bytes) {
            self.report(Event::SpaceDead { group, bytes });
        }
    }

    /// Requests a read of `bytes` of a blob that was written in this world.
    pub fn read(&mut self, blob: BlobId, bytes: u64) -> Option<OpId> {
        self.read_for(PriorityClass::Client, blob, bytes)
    }

    /// Requests the same read in any priority class.
    pub fn read_for(&mut self, priority: PriorityClass, blob: BlobId, bytes: u64) -> Option<OpId> {
        let found = self.blobs.get(blob)?;
        let work = Work::Read { blob, group: found.group, drives: found.drives.as_slice().into(), bytes };
        Some(self.ask(priority, work))
    }

    /// Requests a read of `bytes` of a blob that is stored on these drives.
    pub fn read_at(&mut self, blob: BlobId, group: GroupId, drives: impl Into<DriveList>, bytes: u64) -> OpId {
        self.ask(PriorityClass::Client, Work::Read { blob, group, drives: drives.into(), bytes })
    }

    /// Requests the same read, without a wake of its group.
    pub fn read_while_awake(&mut self, blob: BlobId, group: GroupId, drives: impl Into<DriveList>, bytes: u64) -> OpId {
        let work = Work::Read { blob, group, drives: drives.into(), bytes };
        let request = Box::new(self.request(PriorityClass::Client, work));
        let op = request.op;
        self.report(Event::SubmittedWhileAwake(request));
        op
    }

    /// Requests an inspection of a group's drives, for a verification; with `while_awake`, without a wake of the group.
    pub fn inspect(&mut self, group: GroupId, while_awake: bool) -> OpId {
        if !while_awake {
            return self.ask(PriorityClass::Background, Work::Inspect { group });
        }
        let request = Box::new(self.request(PriorityClass::Background, Work::Inspect { group }));
        let op = request.op;
        self.report(Event::SubmittedWhileAwake(request));
        op
    }

    /// Requests a write by a client that bypasses the workshop.
    pub fn write(&mut self, bytes: u64, pin: PinnedTo) -> OpId {
        let stack_bytes = self.stack_bytes(bytes);
        self.ask(PriorityClass::Client, Work::Write { bytes, stack_bytes, pin, migration: false })
    }

    pub(super) fn stack_bytes(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.rack.spec().code.data))
    }

    /// Cancels an operation, if it is still queued.
    pub fn cancel(&mut self, op: OpId) {
        self.report(Event::Cancelled { op });
    }

    /// Reports an event of a repartition job.
    pub fn report_job(&mut self, job: JobId, event: JobEvent) {
        self.report(Event::Job { job, event });
    }

    /// The next action for a repartition job, if any.
    pub fn take_job_action(&mut self) -> Option<(JobId, JobAction)> {
        self.job_actions.pop_front()
    }

    /// Requests an operation of a step of a repartition job.
    pub fn ask_for_job(&mut self, of: JobClass, work: Work) -> OpId {
        let request = Box::new(self.request(PriorityClass::Background, work));
        let op = request.op;
        self.report(Event::SubmittedForJob { of, request });
        op
    }

    /// Requests any operation, in any priority class.
    pub fn ask(&mut self, priority: PriorityClass, work: Work) -> OpId {
        let request = Box::new(self.request(priority, work));
        let op = request.op;
        self.report(Event::Submitted(request));
        op
    }

    fn request(&mut self, priority: PriorityClass, work: Work) -> Request {
        let op = OpId(self.next_op);
        self.next_op += 1;
        let (group, stack_bytes) = match &work {
            Work::Read { group, .. } | Work::Inspect { group } => (Some(*group), 0),
            Work::Write { stack_bytes, .. } => (None, *stack_bytes),
            _ => (None, 0),
        };
        let bytes = work.transfer_bytes();
        self.open(op, OpenOp { bytes, stack_bytes, ..OpenOp::new(priority, group, self.now) });
        Request { op, priority, overtake_limit: None, work }
    }

    pub(super) fn open(&mut self, op: OpId, open: OpenOp) {
        if open.priority == PriorityClass::Client {
            self.load.came(self.now);
        }
        let before = self.open.insert(op, open);
        assert!(before.is_none(), "{op} is open already: {before:?}");
    }

    /// The operator requests a scrub of `group`, or of all groups.
    pub fn scrub(&mut self, group: Option<GroupId>) {
        self.report(Event::ScrubRequested { group });
    }

    /// The operator pauses or resumes scrubs.
    pub fn pause_scrub(&mut self, paused: bool) {
        self.report(Event::ScrubPaused { paused });
    }

    /// Closes the rack.
    pub fn close(&mut self) {
        self.report(Event::Closing);
    }

    /// Executes everything that happens until `until`.
    pub fn run_until(&mut self, until: Time) {
        while self.step_until(until) {}
        self.now = until.max(self.now);
    }

    /// Lets `span` pass.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    /// Executes the next event, however late it is; false if there will be none.
    pub fn step(&mut self) -> bool {
        self.step_until(Time::MAX)
    }

    /// Executes the next event if it happens by `until`; otherwise returns false, and no time passes.
    pub(crate) fn step_until(&mut self, until: Time) -> bool {
        let planned = self.agenda.next_moment().unwrap_or(Time::MAX);
        let flows = self.flows.next_end();
        let next = planned.min(flows).min(self.deadline);
        if next > until || next == Time::MAX {
            return false;
        }
        assert!(planned.min(flows) >= self.now, "something should have happened before {}", self.now);
        self.now = next.max(self.now);
        if planned <= self.now {
            self.happen();
        } else if flows <= self.now {
            self.flow_ended();
        } else {
            self.report(Event::DeadlineReached);
        }
        true
    }

    fn happen(&mut self) {
        let Some((_, scheduled)) = self.agenda.pop() else { return };
        match scheduled {
            Scheduled::Report(event, about) => {
                if let Some((drive, losses)) = about {
                    if self.drives.lost_since(drive, losses) {
                        return;
                    }
                    self.drives.update_draw(self.now, drive);
                }
                self.report_perhaps_twice(event);
            }
            Scheduled::Begin(transfer) => self.begin_flow(transfer),
            Scheduled::Over(transfer) => self.transfer_over(transfer),
            Scheduled::FuseResets(drives) => drives.into_iter().for_each(|drive| self.revive(drive)),
        }
    }

    pub(super) fn report_perhaps_twice(&mut self, event: Event) {
        if self.drives.unlucky(self.drives.faults.twice_permille) {
            self.report(event.clone());
        }
        self.report(event);
    }

    /// Reports an event to the engine, and executes the resulting actions.
    pub(super) fn report(&mut self, event: Event) {
        assert!(self.actions.is_empty(), "{event:?} is reported before the actions of the last one are executed");
        self.counted.events += 1;
        (self.now, &event).hash(&mut self.trace);
        if let Some(recorder) = &mut self.recorder {
            recorder(Record { now: self.now, message: TraceMessage::Event(event.clone()) });
        }
        if let Some(judge) = &mut self.judge {
            judge.event(self.now, &event).unwrap_or_else(|fault| panic!("at {}, before {event:?}: {fault}", self.now));
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.rack.apply(self.now, event, &mut actions);
        self.deadline = self.rack.next_deadline();
        for action in &actions {
            self.assert_open(action);
            if let Some(judge) = &mut self.judge {
                judge.action(action).unwrap_or_else(|fault| panic!("at {}, {action:?}: {fault}", self.now));
            }
            if let Some(recorder) = &mut self.recorder {
                recorder(Record { now: self.now, message: TraceMessage::Action(action.clone()) });
            }
            action.hash(&mut self.trace);
        }
        for action in actions.drain(..) {
            self.execute(action);
        }
        self.actions = actions;
    }

    /// Asserts that bytes move only for an open operation. It runs before the judge: the state of an operation that has
    /// waited is not in the cache, and is loaded while the action is judged.
    fn assert_open(&self, action: &Action) {
        if let Action::Transfer { op, transfer: Transfer::Read { .. } | Transfer::Write { .. }, .. } = action {
            assert!(self.open.contains(*op), "{op} is open while bytes move for it");
        }
    }

    /// Schedules a report, which is dropped if `drive` is lost before.
    pub(super) fn plan(&mut self, when: Time, event: Event, drive: Option<DriveId>) {
        assert!(when >= self.now, "{event:?} is scheduled for the past");
        let about = drive.map(|drive| (drive, self.drives.losses()));
        self.agenda.plan(when, Scheduled::Report(event, about));
    }
}
