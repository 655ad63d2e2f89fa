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
//! - a drive that was lost answers nothing until it is back.

use crate::agenda::Agenda;
use engine::trace::{Record, Told};
use engine::{
    Action, DoomedBlob, DriveOutcome, DriveReport, DriveResult, Event, Lane, Loss, Outcome, Rack, Request, StagedEntry,
    Transfer, Usage, Work,
};
use model::physics::{DrivePhysics, Fuses, Load, Refused};
use model::{Attempt, BlobId, ClassId, DriveId, GroupId, OpId, ResourceId, Rng, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

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
}

/// A blob in the rack.
#[derive(Clone, Debug)]
struct SimBlob {
    group: GroupId,
    drives: Vec<DriveId>,
    stack_bytes: u64,
    bytes: u64,
    doomed_bytes: u64,
}

/// A version in the workshop.
#[derive(Clone, Copy, Debug)]
pub struct StagedVersion {
    /// Its length.
    pub bytes: u64,
    /// When it was staged.
    pub since: Time,
    /// The class it is pinned to.
    pub pin: Option<ClassId>,
}

/// How an operation ended, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which operation.
    pub op: OpId,
    /// How.
    pub outcome: Outcome,
    /// When.
    pub at: Time,
}

/// Takes the records of a trace.
pub type Recorder = Box<dyn FnMut(Record)>;

/// What is going to happen.
#[derive(Clone, Debug)]
enum Happening {
    /// A fact for the engine, unless the drive it is about was lost since (its losses are counted).
    Tell(Event, Option<(DriveId, u32)>),
    /// A fuse resets.
    FuseResets(Vec<DriveId>),
}

/// The simulator's world. See the head of this file.
pub struct World {
    /// The engine.
    pub rack: Rack,
    now: Time,
    agenda: Agenda<Happening>,
    physics: Vec<DrivePhysics>,
    fuses: Fuses,
    away: BTreeSet<DriveId>,
    faults: Faults,
    faults_rng: Rng,
    staged: BTreeMap<u64, StagedVersion>,
    staged_capacity_bytes: u64,
    staged_after: Option<u64>,
    packs: BTreeMap<OpId, Vec<u64>>,
    blobs: BTreeMap<BlobId, SimBlob>,
    deleting: BTreeMap<OpId, BlobId>,
    doomed_after: BTreeMap<GroupId, BlobId>,
    spoilt: BTreeSet<(BlobId, DriveId)>,
    next_blob: u64,
    open: BTreeMap<OpId, Work>,
    next_op: u64,
    ended: Vec<Ended>,
    trips: u64,
    trace: DefaultHasher,
    /// Takes every record of the trace.
    recorder: Option<Recorder>,
}

impl World {
    /// A world around `rack`, with every drive reported and booted. `seed` is for physics and faults.
    pub fn new(rack: Rack, seed: u64) -> Self {
        Self::traced(rack, seed, None)
    }

    /// Like [`World::new`], with every record of the trace given to `recorder`.
    pub fn traced(rack: Rack, seed: u64, recorder: Option<Recorder>) -> Self {
        let spec = rack.spec().clone();
        let physics = spec.drives.iter().map(|drive| DrivePhysics::new(spec.profile.clone(), seed, drive.id)).collect();
        let fuses = Fuses::new(&spec, FUSE_RESETS_AFTER);
        let mut world = Self {
            rack,
            now: Time::ZERO,
            agenda: Agenda::default(),
            physics,
            fuses,
            away: BTreeSet::new(),
            faults: Faults::default(),
            faults_rng: Rng::for_thing(seed, u64::from_le_bytes(*b"faults  ")),
            staged: BTreeMap::new(),
            staged_capacity_bytes: 0,
            staged_after: None,
            packs: BTreeMap::new(),
            blobs: BTreeMap::new(),
            deleting: BTreeMap::new(),
            doomed_after: BTreeMap::new(),
            spoilt: BTreeSet::new(),
            next_blob: 1,
            open: BTreeMap::new(),
            next_op: 1,
            ended: Vec::new(),
            trips: 0,
            trace: DefaultHasher::new(),
            recorder,
        };
        for drive in &spec.drives {
            let capacity_bytes = spec.capacity_bytes(drive.id);
            let report =
                DriveReport { drive: drive.id, capacity_bytes, used_bytes: 0, day: 0, starts: 0, present: true };
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

    /// Operations that have not ended yet.
    pub fn open_ops(&self) -> usize {
        self.open.len()
    }

    /// Fuses that tripped.
    pub fn trips(&self) -> u64 {
        self.trips
    }

    /// A number that is the same for two runs in which the same happened.
    pub fn trace_hash(&self) -> u64 {
        self.trace.finish()
    }

    /// The versions in the workshop.
    pub fn staged(&self) -> &BTreeMap<u64, StagedVersion> {
        &self.staged
    }

    /// The drive of each stack of a blob.
    pub fn drives_of(&self, blob: BlobId) -> &[DriveId] {
        &self.blobs[&blob].drives
    }

    /// The blobs in the rack.
    pub fn blobs(&self) -> impl Iterator<Item = (BlobId, GroupId)> + '_ {
        self.blobs.iter().map(|(id, blob)| (*id, blob.group))
    }

    /// Asks for a read of `bytes` of a blob.
    pub fn read(&mut self, blob: BlobId, bytes: u64) -> Option<OpId> {
        self.read_for(Lane::Client, blob, bytes)
    }

    /// The same, for whoever it is.
    pub fn read_for(&mut self, lane: Lane, blob: BlobId, bytes: u64) -> Option<OpId> {
        let found = self.blobs.get(&blob)?;
        let work = Work::Read { blob, group: found.group, drives: found.drives.clone(), bytes };
        Some(self.submit(lane, work))
    }

    /// Asks for a write by a client, past the workshop.
    pub fn write(&mut self, bytes: u64, pin: Option<ClassId>) -> OpId {
        let stack_bytes = bytes.div_ceil(u64::from(self.rack.spec().code.data));
        self.submit(Lane::Client, Work::Write { bytes, stack_bytes, pin, migration: false })
    }

    /// Cancels an operation, if it is still queued.
    pub fn cancel(&mut self, op: OpId) {
        self.tell(Event::Cancelled { op });
    }

    fn submit(&mut self, lane: Lane, work: Work) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.open.insert(op, work.clone());
        self.tell(Event::Submitted(Request { op, lane, overtake_limit: None, work }));
        op
    }

    /// Gives the workshop a size.
    pub fn set_staging(&mut self, capacity_bytes: u64) {
        self.staged_capacity_bytes = capacity_bytes;
        self.staging_changed();
    }

    /// Stages a version; numbers are in key order.
    pub fn stage(&mut self, version: u64, bytes: u64, pin: Option<ClassId>) {
        self.staged.insert(version, StagedVersion { bytes, since: self.now, pin });
        self.staging_changed();
    }

    fn staging_changed(&mut self) {
        let staged_bytes = self.staged.values().map(|version| version.bytes).sum();
        self.tell(Event::StagingChanged(Usage { staged_bytes, capacity_bytes: self.staged_capacity_bytes }));
    }

    /// Dooms so many bytes of a blob.
    pub fn doom(&mut self, blob: BlobId, bytes: u64) {
        if let Some(found) = self.blobs.get_mut(&blob) {
            let bytes = bytes.min(found.bytes - found.doomed_bytes);
            found.doomed_bytes += bytes;
            let group = found.group;
            self.tell(Event::SpaceDoomed { group, bytes });
        }
    }

    /// Takes a drive away, as if its electronics had died.
    pub fn kill(&mut self, drive: DriveId) {
        if self.away.insert(drive) {
            self.physics[drive.index()].lose(self.now);
            self.fuses.lose(drive);
            self.tell(Event::DriveLost { drive, loss: Loss::Died });
        }
    }

    /// Gives a drive back.
    pub fn revive(&mut self, drive: DriveId) {
        if self.away.remove(&drive) {
            self.physics[drive.index()].come_back(self.now);
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

    /// Starts a drive behind the engine's back: what a broken ledger would do.
    pub fn spin_up_without_permit(&mut self, drive: DriveId) {
        self.spin_up(drive, Attempt(u32::MAX));
    }

    /// Lets everything happen that happens until `until`.
    pub fn run_until(&mut self, until: Time) {
        loop {
            let planned = self.agenda.next_moment().unwrap_or(Time::MAX);
            let next = planned.min(self.rack.next_deadline());
            if next > until || next == Time::MAX {
                self.now = until.max(self.now);
                return;
            }
            self.now = next.max(self.now);
            if planned <= self.now {
                self.happen();
            } else {
                self.tell(Event::DeadlineReached);
            }
        }
    }

    /// Lets `span` pass.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    fn happen(&mut self) {
        let Some((_, what)) = self.agenda.pop() else { return };
        match what {
            Happening::Tell(event, about) => {
                if about.is_some_and(|(drive, losses)| self.physics[drive.index()].losses() != losses) {
                    return;
                }
                if self.unlucky(self.faults.twice_permille) {
                    self.tell(event.clone());
                }
                self.tell(event);
            }
            Happening::FuseResets(drives) => {
                for drive in drives {
                    if self.away.remove(&drive) {
                        self.physics[drive.index()].come_back(self.now);
                        self.tell(Event::DriveBack { drive });
                    }
                }
            }
        }
    }

    fn unlucky(&mut self, permille: u64) -> bool {
        permille > 0 && self.faults_rng.below(1000) < permille
    }

    fn tell(&mut self, event: Event) {
        self.record(Told::Event(event.clone()));
        let mut actions = Vec::new();
        self.rack.apply(self.now, event, &mut actions);
        for action in &actions {
            self.record(Told::Action(action.clone()));
        }
        for action in actions {
            self.obey(action);
        }
    }

    fn record(&mut self, told: Told) {
        let record = Record { now: self.now, told };
        format!("{record:?}").hash(&mut self.trace);
        if let Some(recorder) = &mut self.recorder {
            recorder(record);
        }
    }

    fn obey(&mut self, action: Action) {
        match action {
            // Nothing survives a run, so nothing need be remembered; and bytes are not kept here, so there is nothing
            // to copy back: what lives in a mostly doomed blob stays there.
            Action::PersistStarts { .. } | Action::Rescue { .. } => {}
            Action::SpinUp { drive, attempt } => self.spin_up(drive, attempt),
            Action::Mount { drive, attempt } => self.mount(drive, attempt),
            Action::Unmount { drive, attempt } => {
                let done = self.physics[drive.index()].unmount(self.now);
                self.answer(drive, attempt, done, Event::Unmounted { drive, attempt });
            }
            Action::Stop { drive, attempt } => {
                let done = self.physics[drive.index()].stop(self.now);
                if let Ok(still) = done {
                    self.fuses.stop(drive, still);
                }
                self.answer(drive, attempt, done, Event::Stopped { drive, attempt });
            }
            Action::Rejected { op, reason } => self.end(op, Outcome::Failed(reason)),
            Action::Finished { op, outcome } => self.end(op, outcome),
            Action::Transfer { op, attempt, transfer } => self.transfer(op, attempt, &transfer),
            Action::ListStaged { attempt, older_than, coldest_bytes, limit, restart } => {
                self.list_staged(attempt, older_than, coldest_bytes, limit, restart);
            }
            Action::Compose { op, versions, pin } => self.compose(op, versions, pin),
            Action::ListDoomed { group, attempt, limit, restart } => self.list_doomed(group, attempt, limit, restart),
        }
    }

    fn plan(&mut self, when: Time, event: Event, drive: Option<DriveId>) {
        let about = drive.map(|drive| (drive, self.physics[drive.index()].losses()));
        self.agenda.plan(when, Happening::Tell(event, about));
    }

    fn answer(&mut self, drive: DriveId, attempt: Attempt, done: Result<Time, Refused>, event: Event) {
        match done {
            Ok(_) if self.unlucky(self.faults.mute_permille) => {}
            Ok(when) => self.plan(when, event, Some(drive)),
            Err(_) => self.plan(self.now, Event::DriveCommandFailed { drive, attempt, loss: Loss::MountFailed }, None),
        }
    }

    fn spin_up(&mut self, drive: DriveId, attempt: Attempt) {
        if self.unlucky(self.faults.command_permille) {
            let when = self.now + Duration::from_secs(20);
            self.plan(when, Event::DriveCommandFailed { drive, attempt, loss: Loss::SpinUpFailed }, Some(drive));
            return;
        }
        let done = self.physics[drive.index()].spin_up(self.now);
        let Ok(at_speed) = done else {
            return self.answer(drive, attempt, done, Event::SpunUp { drive, attempt });
        };
        let Some(trip) = self.fuses.spin_up(self.now, drive, at_speed) else {
            return self.answer(drive, attempt, done, Event::SpunUp { drive, attempt });
        };
        self.trips += 1;
        for drive in &trip.drives {
            self.physics[drive.index()].lose(self.now);
            self.away.insert(*drive);
            self.plan(self.now, Event::DriveLost { drive: *drive, loss: Loss::FuseTripped }, None);
        }
        self.agenda.plan(trip.reset_at, Happening::FuseResets(trip.drives));
    }

    fn mount(&mut self, drive: DriveId, attempt: Attempt) {
        if self.unlucky(self.faults.command_permille) {
            self.plan(self.now, Event::DriveCommandFailed { drive, attempt, loss: Loss::MountFailed }, Some(drive));
            return;
        }
        let done = self.physics[drive.index()].mount(self.now, Load::Idle);
        let used: u64 =
            self.blobs.values().filter(|blob| blob.drives.contains(&drive)).map(|blob| blob.stack_bytes).sum();
        let free_bytes = self.rack.spec().capacity_bytes(drive).saturating_sub(used);
        self.answer(drive, attempt, done, Event::Mounted { drive, attempt, free_bytes });
    }

    fn transfer(&mut self, op: OpId, attempt: Attempt, transfer: &Transfer) {
        if let Transfer::Delete { blob, .. } = transfer {
            // The engine's own operation: it was never asked for, but it ends like any other.
            let group = self.blobs[blob].group;
            self.deleting.insert(op, *blob);
            self.open.insert(op, Work::Visit { group });
        }
        let code = self.rack.spec().code;
        let bytes = self.open.get(&op).map_or(0, Work::transfer_bytes);
        let each = bytes.div_ceil(u64::from(code.data));
        let (drives, file, need): (Vec<DriveId>, u64, usize) = match transfer {
            Transfer::Read { blob, stacks, need, .. } => {
                (stacks.iter().map(|(_, drive)| *drive).collect(), blob.0, usize::from(*need))
            }
            Transfer::Write { drives, .. } | Transfer::Verify { drives } => (drives.clone(), op.0, drives.len()),
            Transfer::Delete { blob, stacks } => (stacks.iter().map(|(_, drive)| *drive).collect(), blob.0, 0),
        };
        let each = if matches!(transfer, Transfer::Delete { .. }) { 0 } else { each };
        let read = match transfer {
            Transfer::Read { blob, .. } => Some(*blob),
            _ => None,
        };
        let mut last = self.now;
        let mut outcomes = Vec::with_capacity(drives.len());
        for drive in drives {
            let unlucky = self.unlucky(self.faults.transfer_permille);
            let done = self.physics[drive.index()].transfer(self.now, file, 0, each);
            let spoilt = read.is_some_and(|blob| self.spoilt.contains(&(blob, drive)));
            let result = match done {
                Ok(_) if spoilt => DriveResult::StackBad,
                Ok(when) if !unlucky => {
                    last = last.max(when);
                    DriveResult::Fine
                }
                _ => DriveResult::Failed,
            };
            outcomes.push(DriveOutcome { drive, result });
        }
        let fine = outcomes.iter().filter(|outcome| outcome.result == DriveResult::Fine).count();
        self.plan(last, Event::TransferEnded { op, attempt, done: fine >= need, outcomes }, None);
    }

    fn end(&mut self, op: OpId, outcome: Outcome) {
        match &outcome {
            Outcome::Written { group, drives } => self.written(op, *group, drives),
            Outcome::Deleted => {
                if let Some(blob) = self.deleting.remove(&op) {
                    self.blobs.remove(&blob);
                }
            }
            _ => {}
        }
        self.packs.remove(&op);
        assert!(self.open.remove(&op).is_some(), "{op} ended twice, or was never begun: {outcome:?}");
        self.ended.push(Ended { op, outcome, at: self.now });
    }

    fn written(&mut self, op: OpId, group: GroupId, drives: &[DriveId]) {
        let Some(Work::Write { bytes, stack_bytes, .. }) = self.open.get(&op).cloned() else {
            panic!("{op} was written and is no write");
        };
        let blob = BlobId(self.next_blob);
        self.next_blob += 1;
        self.blobs.insert(blob, SimBlob { group, drives: drives.to_vec(), stack_bytes, bytes, doomed_bytes: 0 });
        if let Some(versions) = self.packs.remove(&op) {
            for version in versions {
                assert!(self.staged.remove(&version).is_some(), "version {version} migrated twice");
            }
            let staged_bytes = self.staged.values().map(|version| version.bytes).sum();
            let usage = Usage { staged_bytes, capacity_bytes: self.staged_capacity_bytes };
            self.plan(self.now, Event::StagingChanged(usage), None);
        }
    }

    fn list_staged(
        &mut self,
        attempt: Attempt,
        older_than: Duration,
        coldest_bytes: Option<u64>,
        limit: u32,
        restart: bool,
    ) {
        if restart {
            self.staged_after = None;
        }
        let cutoff = self.coldest_cutoff(coldest_bytes);
        let under_way: BTreeSet<u64> = self.packs.values().flatten().copied().collect();
        let from = self.staged_after.map_or(0, |after| after + 1);
        let mut entries = Vec::new();
        let mut more = false;
        for (version, staged) in self.staged.range(from..) {
            let age = self.now.since(staged.since);
            if age < older_than || staged.since > cutoff || under_way.contains(version) {
                continue;
            }
            if entries.len() == limit as usize {
                more = true;
                break;
            }
            self.staged_after = Some(*version);
            entries.push(StagedEntry { version: *version, bytes: staged.bytes, age, pin: staged.pin });
        }
        self.plan(self.now, Event::StagedPage { attempt, entries, more }, None);
    }

    fn coldest_cutoff(&self, coldest_bytes: Option<u64>) -> Time {
        let Some(wanted) = coldest_bytes else { return Time::MAX };
        let mut by_age: Vec<_> = self.staged.values().collect();
        by_age.sort_by_key(|version| version.since);
        let mut sum = 0;
        for version in by_age {
            sum += version.bytes;
            if sum >= wanted {
                return version.since;
            }
        }
        Time::MAX
    }

    fn compose(&mut self, op: OpId, versions: Vec<u64>, pin: Option<ClassId>) {
        let bytes: u64 = versions.iter().filter_map(|version| Some(self.staged.get(version)?.bytes)).sum();
        let stack_bytes = bytes.div_ceil(u64::from(self.rack.spec().code.data));
        self.packs.insert(op, versions);
        let work = Work::Write { bytes, stack_bytes, pin, migration: true };
        self.open.insert(op, work.clone());
        let request = Request { op, lane: Lane::Background, overtake_limit: None, work };
        self.plan(self.now, Event::Submitted(request), None);
    }

    fn list_doomed(&mut self, group: GroupId, attempt: Attempt, limit: u32, restart: bool) {
        if restart {
            self.doomed_after.remove(&group);
        }
        let from = self.doomed_after.get(&group).map_or(BlobId(0), |after| BlobId(after.0 + 1));
        let doomed = |(id, blob): (&BlobId, &SimBlob)| {
            (blob.group == group && blob.doomed_bytes > 0).then(|| DoomedBlob {
                blob: *id,
                drives: blob.drives.clone(),
                stack_bytes: blob.stack_bytes,
                bytes: blob.bytes,
                doomed_bytes: blob.doomed_bytes,
                living: blob.doomed_bytes < blob.bytes,
            })
        };
        let mut blobs: Vec<DoomedBlob> = self.blobs.range(from..).filter_map(doomed).take(limit as usize + 1).collect();
        let more = blobs.len() > limit as usize;
        blobs.truncate(limit as usize);
        if let Some(last) = blobs.last() {
            self.doomed_after.insert(group, last.blob);
        }
        let page = Event::DoomedPage { group, attempt, blobs, held_bytes: 0, more };
        self.plan(self.now, page, None);
    }
}
