//! The world as the simulator has it: the second interpreter of [`engine::Action`], over `model`'s physics and no bytes
//! at all.
//!
//! What the catalog and the workshop would remember is kept here in its smallest form: which blob lies on which drives,
//! which versions are staged, what is doomed. Faults are drawn from streams of their own and can be switched off again,
//! so that a run can first be made unsafe and must then come to rest.
//!
//! Invariants:
//! - every operation ends exactly once (asserted);
//! - a staged version leaves the workshop only when a blob that holds it was written and read back (asserted);
//! - what the engine asks for is judged by `engine::check` where a judge is given (asserted);
//! - a drive that was lost answers nothing until it is back;
//! - bytes move as flows over the links of the rack ([`crate::flow`]), which hold nobody else up;
//! - memory grows with drives, open operations and what is stored, not with time.
//!
//! `obey.rs` interprets the actions, `transfer.rs` moves bytes, `keep.rs` is the smallest catalog and workshop.

mod keep;
mod obey;
mod transfer;

use crate::agenda::Agenda;
use crate::flow::Flows;
use crate::links::{Links, Network};
use crate::meter::Meter;
use crate::trace_hash::TraceHasher;
use engine::check::TraceCheck;
use engine::trace::{Record, Told};
use engine::{
    Action, DriveReport, Event, JobAction, JobClass, JobEvent, JobId, Lane, Loss, Mind, OpMap, Outcome, PinnedTo, Rack,
    Request, Work,
};
use keep::SimBlob;
use model::physics::{DrivePhysics, Fuses, PowerState};
use model::{BlobId, DriveId, GroupId, OpId, ResourceId, Rng, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;
use transfer::{Begin, Moving};

pub use keep::StagedVersion;

/// How long after it tripped a fuse resets.
const FUSE_RESETS_AFTER: Duration = Duration::from_secs(30);

/// How often things go wrong, in thousandths of the commands given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Starts and mounts that fail.
    pub command_permille: u64,
    /// Drives that fail in a transfer.
    pub transfer_permille: u64,
    /// Events that are told twice.
    pub twice_permille: u64,
    /// Commands that a drive obeys and never answers.
    pub mute_permille: u64,
    /// Commands, and drives in a transfer, that hang: for [`HANG`] the drive answers nothing at all.
    pub hang_permille: u64,
}

/// How long a drive hangs that does.
pub const HANG: Duration = Duration::from_secs(100);

/// How an operation ended, and its moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which operation.
    pub op: OpId,
    /// Whose share it was charged to.
    pub lane: Lane,
    /// The group it was for, where whoever asked for it said so.
    pub group: Option<GroupId>,
    /// How.
    pub outcome: Outcome,
    /// Payload bytes that it was to move.
    pub bytes: u64,
    /// When it was asked for.
    pub issued: Time,
    /// When it was taken out of its queue, if it ever was in service.
    pub picked: Option<Time>,
    /// When the first stripe of it had been moved, if it came to that.
    pub first_byte: Option<Time>,
    /// When it ended.
    pub at: Time,
}

/// Takes the records of a trace.
pub type Recorder = Box<dyn FnMut(Record)>;

/// What a world is made with, beside a mind and a seed.
#[derive(Default)]
pub struct Setting {
    /// What the servers can send; no limit unless it is given.
    pub network: Option<Network>,
    /// What is stored already on each drive, in bytes; nothing if it is empty.
    pub used_bytes: Vec<u64>,
    /// Takes every record of the trace.
    pub recorder: Option<Recorder>,
    /// Judges the trace as it comes into being. What it finds ends the run with a panic.
    pub judge: Option<TraceCheck>,
}

/// What is going to happen.
#[derive(Clone, Debug)]
enum Happening {
    /// A fact for the engine, unless the drive it is about was lost since (its losses are counted).
    Tell(Event, Option<(DriveId, u32)>),
    /// The heads are in place: bytes begin to move.
    Begin(Begin),
    /// A transfer that moves no bytes is over.
    Over(Moving),
    /// A fuse resets.
    FuseResets(Vec<DriveId>),
}

/// What the world counts; all of it only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Events told to the engine.
    pub events: u64,
    /// Drives started.
    pub spin_ups: u64,
    /// Bytes that drives have read or written, redundancy included.
    pub drive_bytes: u64,
    /// Payload bytes that left by the network.
    pub sent_bytes: u64,
    /// Fuses that tripped.
    pub trips: u64,
    /// Stacks that were regenerated after their drive had failed for good.
    pub rebuilt_stacks: u64,
}

/// What the world knows of an operation that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenOp {
    lane: Lane,
    group: Option<GroupId>,
    bytes: u64,
    /// For a write, what each of its stacks takes.
    stack_bytes: u64,
    issued: Time,
    picked: Option<Time>,
    first_byte: Option<Time>,
}

/// The simulator's world. See the head of this file.
pub struct World<M = Rack> {
    /// The engine.
    pub rack: M,
    now: Time,
    /// When the engine wants to be woken.
    deadline: Time,
    agenda: Agenda<Happening>,
    physics: Vec<DrivePhysics>,
    fuses: Fuses,
    links: Links,
    flows: Flows<Moving>,
    /// Streams under way on each server, of drives that take part and of those that were asked to.
    streams: Vec<u32>,
    meter: Meter,
    counted: Counted,
    away: BTreeSet<DriveId>,
    /// Drives that hang, until when, and whether it is known: the first who asks waits for the deadline.
    hung: BTreeMap<DriveId, (Time, bool)>,
    faults: Faults,
    faults_rng: Rng,
    staged: BTreeMap<u64, StagedVersion>,
    /// The same, those that have lain there longest first.
    staged_by_age: BTreeSet<(Time, u64)>,
    staged_bytes: u64,
    staged_capacity_bytes: u64,
    staged_after: Option<u64>,
    packs: BTreeMap<OpId, Vec<u64>>,
    /// Staged versions that cannot be read, and those of them that were found out.
    unreadable: BTreeSet<u64>,
    quarantined: BTreeSet<u64>,
    blobs: BTreeMap<BlobId, SimBlob>,
    /// What blobs take of each drive, in bytes.
    used_bytes: Vec<u64>,
    /// Drives that failed for good, and how many blobs still have a stack on each.
    failed: BTreeMap<DriveId, u64>,
    /// When a stack was rebuilt last.
    rebuilt_at: Time,
    deleting: BTreeMap<OpId, BlobId>,
    /// Blobs of each group with doomed bytes.
    doomed: BTreeMap<GroupId, BTreeSet<BlobId>>,
    doomed_after: BTreeMap<GroupId, BlobId>,
    spoilt: BTreeSet<(BlobId, DriveId)>,
    /// Stacks that were on a drive that failed, of which another one has taken the place.
    lost: BTreeSet<(DriveId, BlobId)>,
    next_blob: u64,
    open: OpMap<OpenOp>,
    next_op: u64,
    ended: Vec<Ended>,
    /// What is to be done for repartition jobs.
    job_actions: VecDeque<(JobId, JobAction)>,
    /// Kept between events, so that each need not make its own.
    actions: Vec<Action>,
    trace: TraceHasher,
    recorder: Option<Recorder>,
    judge: Option<TraceCheck>,
}

impl World {
    /// A world around `rack`, with every drive reported and booted. `seed` is for physics and faults.
    pub fn new(rack: Rack, seed: u64) -> Self {
        Self::with(rack, seed, Setting::default())
    }

    /// Like [`World::new`], with every record of the trace given to `recorder`.
    pub fn traced(rack: Rack, seed: u64, recorder: Option<Recorder>) -> Self {
        Self::with(rack, seed, Setting { recorder, ..Setting::default() })
    }

    /// Puts an empty drive into the place of one that failed; false if the rack does not take it yet.
    pub fn replace(&mut self, drive: DriveId) -> bool {
        if !self.rack.may_be_replaced(drive) {
            return false;
        }
        self.failed.remove(&drive);
        self.away.remove(&drive);
        if self.physics[drive.index()].state(self.now) == PowerState::Away {
            self.physics[drive.index()].come_back(self.now);
            self.look_at_meter(drive);
        }
        let held = self.blobs.iter().filter(|(_, blob)| blob.drives.contains(&drive));
        let held: Vec<(BlobId, u64)> = held.map(|(id, blob)| (*id, blob.stack_bytes)).collect();
        self.lost.extend(held.iter().map(|(blob, _)| (drive, *blob)));
        self.spoilt.extend(held.iter().map(|(blob, _)| (*blob, drive)));
        self.used_bytes[drive.index()] = 0;
        let lost_bytes = held.iter().map(|(_, stack_bytes)| stack_bytes).sum();
        self.tell(Event::DriveReplaced { drive, lost_bytes });
        true
    }
}

impl<M: Mind> World<M> {
    /// A world around `rack`, with every drive reported and booted. `seed` is for physics and faults.
    pub fn with(rack: M, seed: u64, setting: Setting) -> Self {
        let spec = rack.spec().clone();
        let physics = spec.drives.iter().map(|drive| DrivePhysics::new(spec.profile.clone(), seed, drive.id)).collect();
        let links = Links::new(&spec, setting.network.unwrap_or(Network::UNBOUNDED));
        let mut used_bytes = setting.used_bytes;
        used_bytes.resize(spec.drives.len(), 0);
        let mut world = Self {
            rack,
            now: Time::ZERO,
            deadline: Time::MAX,
            agenda: Agenda::default(),
            physics,
            fuses: Fuses::new(&spec, FUSE_RESETS_AFTER),
            flows: Flows::new(links.capacities().to_vec()),
            streams: vec![0; links.servers()],
            links,
            meter: Meter::new(spec.drives.len(), spec.profile.watts.standby_mw),
            counted: Counted::default(),
            away: BTreeSet::new(),
            hung: BTreeMap::new(),
            faults: Faults::default(),
            faults_rng: Rng::for_thing(seed, u64::from_le_bytes(*b"faults  ")),
            staged: BTreeMap::new(),
            staged_by_age: BTreeSet::new(),
            staged_bytes: 0,
            staged_capacity_bytes: 0,
            staged_after: None,
            packs: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            quarantined: BTreeSet::new(),
            blobs: BTreeMap::new(),
            used_bytes,
            failed: BTreeMap::new(),
            rebuilt_at: Time::ZERO,
            deleting: BTreeMap::new(),
            doomed: BTreeMap::new(),
            doomed_after: BTreeMap::new(),
            spoilt: BTreeSet::new(),
            lost: BTreeSet::new(),
            next_blob: 1,
            open: OpMap::default(),
            next_op: 1,
            ended: Vec::new(),
            job_actions: VecDeque::new(),
            actions: Vec::new(),
            trace: TraceHasher::default(),
            recorder: setting.recorder,
            judge: setting.judge,
        };
        for drive in &spec.drives {
            let capacity_bytes = spec.capacity_bytes(drive.id);
            let used_bytes = world.used_bytes[drive.id.index()];
            let report = DriveReport { drive: drive.id, capacity_bytes, used_bytes, day: 0, starts: 0, present: true };
            world.tell(Event::DriveReported(report));
        }
        world.tell(Event::Booted);
        world
    }

    /// The moment it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// From now on, so much goes wrong.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// How operations ended since the last call.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Gives out how operations ended since the last call, in their order.
    pub fn drain_ended(&mut self, take: impl FnMut(Ended)) {
        self.ended.drain(..).for_each(take);
    }

    /// The number that the next blob written here will have.
    pub fn next_blob(&self) -> BlobId {
        BlobId::numbered(self.next_blob)
    }

    /// Operations that have not ended yet.
    pub fn open_ops(&self) -> usize {
        self.open.len()
    }

    /// Fuses that tripped.
    pub fn trips(&self) -> u64 {
        self.counted.trips
    }

    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// The rack's watt meter.
    pub fn meter(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// A number that is the same for two runs in which the same happened.
    pub fn trace_hash(&self) -> u64 {
        self.trace.finish()
    }

    /// The versions in the workshop.
    pub fn staged(&self) -> &BTreeMap<u64, StagedVersion> {
        &self.staged
    }

    /// The drive of each stack of a blob that was written here.
    pub fn drives_of(&self, blob: BlobId) -> &[DriveId] {
        &self.blobs[&blob].drives
    }

    /// The blobs in the rack that were written here.
    pub fn blobs(&self) -> impl Iterator<Item = (BlobId, GroupId)> + '_ {
        self.blobs.iter().map(|(id, blob)| (*id, blob.group))
    }

    /// Asks for a read of `bytes` of a blob that was written here.
    pub fn read(&mut self, blob: BlobId, bytes: u64) -> Option<OpId> {
        self.read_for(Lane::Client, blob, bytes)
    }

    /// The same, for whoever it is.
    pub fn read_for(&mut self, lane: Lane, blob: BlobId, bytes: u64) -> Option<OpId> {
        let found = self.blobs.get(&blob)?;
        let work = Work::Read { blob, group: found.group, drives: found.drives.clone(), bytes };
        Some(self.ask(lane, work))
    }

    /// Asks for a read of `bytes` of a blob that lies there.
    pub fn read_at(&mut self, blob: BlobId, group: GroupId, drives: Vec<DriveId>, bytes: u64) -> OpId {
        self.ask(Lane::Client, Work::Read { blob, group, drives, bytes })
    }

    /// Asks for a write by a client, past the workshop.
    pub fn write(&mut self, bytes: u64, pin: PinnedTo) -> OpId {
        let stack_bytes = bytes.div_ceil(u64::from(self.rack.spec().code.data));
        self.ask(Lane::Client, Work::Write { bytes, stack_bytes, pin, migration: false })
    }

    /// Cancels an operation, if it is still queued.
    pub fn cancel(&mut self, op: OpId) {
        self.tell(Event::Cancelled { op });
    }

    /// Reports what happened to a repartition job.
    pub fn report_job(&mut self, job: JobId, event: JobEvent) {
        self.tell(Event::Job { job, event });
    }

    /// The next thing to do for a repartition job, if there is one.
    pub fn take_job_action(&mut self) -> Option<(JobId, JobAction)> {
        self.job_actions.pop_front()
    }

    /// Asks for an operation of a step of a repartition job.
    pub fn ask_for_job(&mut self, of: JobClass, work: Work) -> OpId {
        let request = self.request(Lane::Background, work);
        let op = request.op;
        self.tell(Event::SubmittedForJob { of, request });
        op
    }

    /// Asks for any operation, for whoever it is.
    pub fn ask(&mut self, lane: Lane, work: Work) -> OpId {
        let request = self.request(lane, work);
        let op = request.op;
        self.tell(Event::Submitted(request));
        op
    }

    fn request(&mut self, lane: Lane, work: Work) -> Request {
        let op = OpId(self.next_op);
        self.next_op += 1;
        let (group, stack_bytes) = match &work {
            Work::Read { group, .. } => (Some(*group), 0),
            Work::Write { stack_bytes, .. } => (None, *stack_bytes),
            _ => (None, 0),
        };
        self.opened(op, lane, group, work.transfer_bytes(), stack_bytes);
        Request { op, lane, overtake_limit: None, work }
    }

    fn opened(&mut self, op: OpId, lane: Lane, group: Option<GroupId>, bytes: u64, stack_bytes: u64) {
        let open = OpenOp { lane, group, bytes, stack_bytes, issued: self.now, picked: None, first_byte: None };
        self.open.insert(op, open);
    }

    /// Takes a drive away, as if its electronics had died.
    pub fn kill(&mut self, drive: DriveId) {
        if self.away.insert(drive) {
            self.physics[drive.index()].lose(self.now);
            self.look_at_meter(drive);
            self.fuses.lose(drive);
            self.tell(Event::DriveLost { drive, loss: Loss::Died });
        }
    }

    /// From now on, and for [`HANG`], a drive answers nothing.
    pub fn hang(&mut self, drive: DriveId) {
        self.hung.insert(drive, (self.now + HANG, false));
    }

    /// Takes a drive away for good: it died, and the operator says that it will not come back.
    pub fn fail(&mut self, drive: DriveId) {
        self.kill(drive);
        let blobs = self.blobs.values().filter(|blob| blob.drives.contains(&drive)).count() as u64;
        self.failed.insert(drive, blobs);
        let again: Vec<BlobId> = self.lost.iter().filter(|(of, _)| *of == drive).map(|(_, blob)| *blob).collect();
        for blob in again {
            self.lost.remove(&(drive, blob));
            self.used_bytes[drive.index()] += self.blobs[&blob].stack_bytes;
        }
        self.tell(Event::DriveFailed { drive });
    }

    /// How many blobs that the world knows still have a stack on a drive that failed for good, or had it on the one
    /// before that was replaced.
    pub fn left_on(&self, drive: DriveId) -> u64 {
        let lost = || self.lost.iter().filter(|(of, _)| *of == drive).count() as u64;
        self.failed.get(&drive).copied().unwrap_or_else(lost)
    }

    /// Whether the stack of `blob` was on the drive that failed before this one took its place.
    pub fn is_lost(&self, blob: BlobId, drive: DriveId) -> bool {
        self.lost.contains(&(drive, blob))
    }

    /// When a stack was rebuilt last.
    pub fn rebuilt_at(&self) -> Time {
        self.rebuilt_at
    }

    /// Gives a drive back.
    pub fn revive(&mut self, drive: DriveId) {
        if self.away.remove(&drive) {
            self.physics[drive.index()].come_back(self.now);
            self.look_at_meter(drive);
            self.tell(Event::DriveBack { drive });
        }
    }

    /// Makes the stack of `blob` on `drive` unreadable; the drive itself is well.
    pub fn spoil(&mut self, blob: BlobId, drive: DriveId) {
        self.spoilt.insert((blob, drive));
    }

    /// Trips the fuse of the domain of `resource` that `drive` is in, for no fault of the engine's. It resets by
    /// itself.
    pub fn trip(&mut self, resource: ResourceId, drive: DriveId) {
        let spec = self.rack.spec();
        let domain = spec.domain_of(drive, resource);
        let of_domain = spec.drives.iter().map(|drive| drive.id).filter(|id| spec.domain_of(*id, resource) == domain);
        let drives: Vec<DriveId> = of_domain.filter(|drive| !self.away.contains(drive)).collect();
        for drive in &drives {
            self.away.insert(*drive);
            self.physics[drive.index()].lose(self.now);
            self.look_at_meter(*drive);
            self.fuses.lose(*drive);
        }
        for drive in &drives {
            self.tell(Event::DriveLost { drive: *drive, loss: Loss::FuseTripped });
        }
        self.agenda.plan(self.now + FUSE_RESETS_AFTER, Happening::FuseResets(drives));
    }

    /// Tells the rack to close.
    pub fn close(&mut self) {
        self.tell(Event::Closing);
    }

    /// Lets everything happen that happens until `until`.
    pub fn run_until(&mut self, until: Time) {
        while self.step_until(until) {}
        self.now = until.max(self.now);
    }

    /// Lets the next thing happen, whenever that is; false if nothing will.
    pub fn step(&mut self) -> bool {
        self.step_until(Time::MAX)
    }

    /// Lets the next thing happen, if it does so by `until`; false if nothing does. It stays as late as it is then.
    pub(crate) fn step_until(&mut self, until: Time) -> bool {
        let planned = self.agenda.next_moment().unwrap_or(Time::MAX);
        let flows = self.flows.next_end();
        let next = planned.min(flows).min(self.deadline);
        if next > until || next == Time::MAX {
            return false;
        }
        self.now = next.max(self.now);
        if planned <= self.now {
            self.happen();
        } else if flows <= self.now {
            self.flow_ended();
        } else {
            self.tell(Event::DeadlineReached);
        }
        true
    }

    /// Lets `span` pass.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    fn happen(&mut self) {
        let Some((_, what)) = self.agenda.pop() else { return };
        match what {
            Happening::Tell(event, about) => {
                if let Some((drive, losses)) = about {
                    if self.physics[drive.index()].losses() != losses {
                        return;
                    }
                    self.look_at_meter(drive);
                }
                self.tell_perhaps_twice(event);
            }
            Happening::Begin(begin) => self.begin_flow(begin),
            Happening::Over(moving) => self.transfer_over(&moving),
            Happening::FuseResets(drives) => drives.into_iter().for_each(|drive| self.revive(drive)),
        }
    }

    fn look_at_meter(&mut self, drive: DriveId) {
        let draw_mw = self.physics[drive.index()].draw_mw(self.now);
        self.meter.set(self.now, drive, draw_mw);
    }

    fn unlucky(&mut self, permille: u64) -> bool {
        permille > 0 && self.faults_rng.below(1000) < permille
    }

    /// Whether `drive` hangs, or begins to. For how long it is waited for, too: not at all if it is known to hang.
    fn hangs(&mut self, drive: DriveId, deadline: Duration) -> Option<Duration> {
        if let Some((until, known)) = self.hung.get_mut(&drive)
            && self.now < *until
        {
            return Some(if std::mem::replace(known, true) { Duration::ZERO } else { deadline });
        }
        self.hung.remove(&drive);
        if !self.unlucky(self.faults.hang_permille) {
            return None;
        }
        self.hung.insert(drive, (self.now + HANG, true));
        Some(deadline)
    }

    fn tell_perhaps_twice(&mut self, event: Event) {
        if self.unlucky(self.faults.twice_permille) {
            self.tell(event.clone());
        }
        self.tell(event);
    }

    fn tell(&mut self, event: Event) {
        self.counted.events += 1;
        (self.now, &event).hash(&mut self.trace);
        if let Some(recorder) = &mut self.recorder {
            recorder(Record { now: self.now, told: Told::Event(event.clone()) });
        }
        if let Some(judge) = &mut self.judge {
            judge.event(self.now, &event).unwrap_or_else(|fault| panic!("at {}, before {event:?}: {fault}", self.now));
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.rack.apply(self.now, event, &mut actions);
        self.deadline = self.rack.next_deadline();
        for action in &actions {
            action.hash(&mut self.trace);
            if let Some(judge) = &mut self.judge {
                judge.action(action).unwrap_or_else(|fault| panic!("at {}, {action:?}: {fault}", self.now));
            }
            if let Some(recorder) = &mut self.recorder {
                recorder(Record { now: self.now, told: Told::Action(action.clone()) });
            }
        }
        for action in actions.drain(..) {
            self.obey(action);
        }
        self.actions = actions;
    }

    fn plan(&mut self, when: Time, event: Event, drive: Option<DriveId>) {
        let about = drive.map(|drive| (drive, self.physics[drive.index()].losses()));
        self.agenda.plan(when, Happening::Tell(event, about));
    }
}
