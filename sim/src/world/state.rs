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

/// The end of an operation, and its moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The operation.
    pub op: OpId,
    /// The class of work that it was charged to.
    pub priority: PriorityClass,
    /// The group it was for, where the request named one.
    pub group: Option<GroupId>,
    /// Its outcome.
    pub outcome: Outcome,
    /// Payload bytes that it was to move.
    pub bytes: u64,
    /// When it was requested.
    pub issued: Time,
    /// When it was taken out of its queue, if it ever was in service.
    pub picked: Option<Time>,
    /// When its first stripe had been moved, if it got that far.
    pub first_byte: Option<Time>,
    /// When it ended.
    pub at: Time,
}

/// Takes the records of a trace.
pub type Recorder = Box<dyn FnMut(Record)>;

/// The parameters of a world, beside its rack and a seed.
#[derive(Default)]
pub struct Setting {
    /// The servers' network; unbounded unless it is given.
    pub network: Option<Network>,
    /// The bytes stored on each drive already; none if it is empty.
    pub used_bytes: Vec<u64>,
    /// Whether nobody has ever seen the drives, so that every group is to be initialised.
    pub first_boot: bool,
    /// Whether a transfer takes one seek, as papers count; else as many as a server's.
    pub one_seek: bool,
    /// How long it takes to list what lay on a drive, page by page, and to compose a pack.
    pub look_up: Duration,
    /// Takes every record of the trace.
    pub recorder: Option<Recorder>,
    /// Judges the trace as it comes into being. A violation ends the run with a panic.
    pub judge: Option<TraceCheck>,
}

/// Something that is going to happen.
#[derive(Clone, Debug)]
pub(super) enum Scheduled {
    /// A report to the engine, unless its drive has been lost since there were so many losses.
    Report(Event, Option<(DriveId, u64)>),
    /// The heads are in place: bytes of the transfer at this place begin to move.
    Begin(u32),
    /// The transfer at this place, which moves no bytes, is over.
    Over(u32),
    /// A fuse resets.
    FuseResets(Vec<DriveId>),
}

/// The counters of a world; all of them only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Events reported to the engine.
    pub events: u64,
    /// Drives started.
    pub spin_ups: u64,
    /// Bytes that drives have read or written, redundancy included.
    pub drive_bytes: u64,
    /// Payload bytes that left by the network.
    pub sent_bytes: u64,
    /// Fuses that tripped.
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
    /// [`Time::MAX`] until then, as is the next: thousands of these wait at once.
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
    /// When the engine wants to be woken.
    deadline: Time,
    /// How long drives may take to answer.
    pub(super) deadlines: DriveDeadlines,
    pub(super) agenda: Agenda<Scheduled>,
    pub(super) drives: Drives,
    /// The blobs in the rack that were written here.
    pub blobs: Blobs,
    /// The versions in the workshop.
    pub staging: Staging,
    /// What is checked of them.
    pub(super) checking: Checking,
    /// The load by clients' operations.
    pub(super) load: LoadMeter,
    pub(super) links: Links,
    /// Whether a transfer takes one seek, whatever it does.
    pub(super) one_seek: bool,
    /// How long a page of what lay on a drive takes, and a pack to be composed.
    pub(super) look_up: Duration,
    /// Under way, or about to be.
    pub(super) transfers: Places<Moving>,
    /// Those of them that move bytes now, by their places.
    pub(super) flows: Flows<u32>,
    /// The streams under way on each server, those of drives that failed in them included.
    pub(super) servers: Servers,
    pub(super) counted: Counted,
    pub(super) open: OpenOps<OpenOp>,
    next_op: u64,
    pub(super) ended: Vec<Ended>,
    /// Actions for repartition jobs that are not taken yet.
    pub(super) job_actions: VecDeque<(JobId, JobAction)>,
    /// Reused by every event.
    actions: Vec<Action>,
    trace: TraceHasher,
    recorder: Option<Recorder>,
    judge: Option<TraceCheck>,
}

impl<M: Controller> World<M> {
    /// A world around `rack`, with every drive reported and booted. `seed` is for physics and faults.
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

    /// The current moment.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The operations that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// The same, one by one.
    pub(crate) fn drain_ended(&mut self) -> impl Iterator<Item = Ended> {
        self.ended.drain(..)
    }

    /// Operations that have not ended yet.
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

    /// A number that is the same for two runs in which the same happened.
    pub fn trace_hash(&self) -> u64 {
        self.trace.finish()
    }

    /// The number that the next blob written here will have.
    pub fn next_blob(&self) -> BlobId {
        self.blobs.next()
    }

    /// Blobs are numbered from `first` on; the numbers below are left to reads of blobs that the world does not know.
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

    /// Requests a read of `bytes` of a blob that was written here.
    pub fn read(&mut self, blob: BlobId, bytes: u64) -> Option<OpId> {
        self.read_for(PriorityClass::Client, blob, bytes)
    }

    /// The same, in any class of work.
    pub fn read_for(&mut self, priority: PriorityClass, blob: BlobId, bytes: u64) -> Option<OpId> {
        let found = self.blobs.get(blob)?;
        let work = Work::Read { blob, group: found.group, drives: found.drives.as_slice().into(), bytes };
        Some(self.ask(priority, work))
    }

    /// Requests a read of `bytes` of a blob that lies on these drives.
    pub fn read_at(&mut self, blob: BlobId, group: GroupId, drives: impl Into<DriveList>, bytes: u64) -> OpId {
        self.ask(PriorityClass::Client, Work::Read { blob, group, drives: drives.into(), bytes })
    }

    /// The same, of what is worth no wake of its group.
    pub fn read_while_awake(&mut self, blob: BlobId, group: GroupId, drives: impl Into<DriveList>, bytes: u64) -> OpId {
        let work = Work::Read { blob, group, drives: drives.into(), bytes };
        let request = Box::new(self.request(PriorityClass::Client, work));
        let op = request.op;
        self.report(Event::SubmittedWhileAwake(request));
        op
    }

    /// Requests a look at the drives of a group, for a verification; with `while_awake` one that wakes nobody.
    pub fn inspect(&mut self, group: GroupId, while_awake: bool) -> OpId {
        if !while_awake {
            return self.ask(PriorityClass::Background, Work::Inspect { group });
        }
        let request = Box::new(self.request(PriorityClass::Background, Work::Inspect { group }));
        let op = request.op;
        self.report(Event::SubmittedWhileAwake(request));
        op
    }

    /// Requests a write by a client, past the workshop.
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

    /// Reports what happened to a repartition job.
    pub fn report_job(&mut self, job: JobId, event: JobEvent) {
        self.report(Event::Job { job, event });
    }

    /// The next thing to do for a repartition job, if there is one.
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

    /// Requests any operation, in any class of work.
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

    /// The operator asks for a scrub of `group`, or of all groups.
    pub fn scrub(&mut self, group: Option<GroupId>) {
        self.report(Event::ScrubRequested { group });
    }

    /// The operator has scrubs paused, or has them go on.
    pub fn pause_scrub(&mut self, paused: bool) {
        self.report(Event::ScrubPaused { paused });
    }

    /// Closes the rack.
    pub fn close(&mut self) {
        self.report(Event::Closing);
    }

    /// Lets everything happen that happens until `until`.
    pub fn run_until(&mut self, until: Time) {
        while self.step_until(until) {}
        self.now = until.max(self.now);
    }

    /// Lets `span` pass.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    /// Lets the next thing happen, whenever that is; false if nothing will.
    pub fn step(&mut self) -> bool {
        self.step_until(Time::MAX)
    }

    /// Lets the next thing happen, if it does so by `until`; false if nothing does, and no time passes then.
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

    /// Reports an event to the engine, and executes the actions that it answers with.
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

    /// What is moved is moved for an operation that is open, or that the engine begins by itself. To be asked first:
    /// what is known of an operation that has waited is far away in memory, and comes while the action is judged.
    fn assert_open(&self, action: &Action) {
        if let Action::Transfer { op, transfer: Transfer::Read { .. } | Transfer::Write { .. }, .. } = action {
            assert!(self.open.contains(*op), "{op} is open while bytes move for it");
        }
    }

    /// Schedules a report, unless `drive` is lost before.
    pub(super) fn plan(&mut self, when: Time, event: Event, drive: Option<DriveId>) {
        assert!(when >= self.now, "{event:?} is scheduled for the past");
        let about = drive.map(|drive| (drive, self.drives.losses()));
        self.agenda.plan(when, Scheduled::Report(event, about));
    }
}
