//! The world as the server has it: the interpreter of [`engine::Action`] over real drives, catalog and workshop.
//!
//! One task owns the [`Rack`]. It takes a message, tells the engine what happened, and does what the engine asks for;
//! whatever takes time runs in a task of its own and comes back as a message. So there is no lock around the engine,
//! and no decision here: a branch in this file asks only how, never whether.
//!
//! Clock, drives, catalog, workshop and the spawning of tasks are arguments ([`Means`]). Given tokio's paused clock,
//! drives and a catalog in memory, this same interpreter runs in virtual time on one thread.
//!
//! Invariants:
//! - a blob's intent is durable before its first stack is made, its stacks are synced and read back before the catalog
//!   knows it, and staged files are freed only after that commit (`migration.rs`);
//! - every action that expects an answer gets one, whatever fails; a drive that hangs is answered for at its deadline;
//! - memory is bounded by operations in service and by pages.

mod absences;
mod evacuate;
mod job_steps;
mod making;
mod memory_read;
mod migration;
mod newer;
pub(crate) mod packed;
mod power;
pub(crate) mod quarantine;
mod read;
mod rebuild;
mod reclaim;
mod transfer;

pub use absences::Absences;
pub use job_steps::JobActions;
pub use making::{MakeError, WriteOrder};
pub use memory_read::MemoryReads;
pub use read::{MemorySink, ReadOrder, ReadTarget};

use crate::holds::Holds;
use crate::lineage::Lineage;
use crate::losses::Losses;
use crate::recall;
use catalog::{Blob, Catalog, Cursor, VersionId};
use disk::label::RackUuid;
use disk::{Clock, DeadlineDrive, Deadlines, Drive};
use engine::trace::{Record, Told};
use engine::{Action, Event, JobAction, JobId, Outcome, PinnedTo, Rack, Rejection, Usage};
use futures::future::{BoxFuture, FutureExt};
use model::{Attempt, BlobId, ClassId, DriveId, GroupId, OpId, Rng, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::{mpsc, oneshot};
use workshop::{HeldPack, Sealed, Spool, Staging};

/// Starts a task that nobody waits for.
pub type Spawn = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// Tells the wall clock: milliseconds of the Unix epoch. For S3's dates and the ages of objects, never for physics.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Draws the nonce of a blob's id.
pub type Nonce = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Nonces from one stream of random numbers. Never 0, which is for worlds without media.
pub fn nonces(seed: u64) -> Nonce {
    let stream = Mutex::new(Rng::for_thing(seed, NONCE_SALT));
    Arc::new(move || stream.lock().unwrap_or_else(PoisonError::into_inner).next_u64().max(1))
}

/// What tells the stream of nonces from others of the same seed.
const NONCE_SALT: u64 = 0x6e6f_6e63_6500;

/// Tells the class that a key of a bucket is pinned to.
pub type PinOf = Arc<dyn Fn(&str, &str) -> Option<ClassId> + Send + Sync>;

/// Takes the records of the engine's trace.
pub type Tracer = Arc<dyn Fn(&Record) + Send + Sync>;

/// Everything the world does its work with.
#[derive(Clone)]
pub struct Means {
    /// Modelled time.
    pub clock: Arc<dyn Clock>,
    /// The wall clock.
    pub wall: WallClock,
    /// How tasks are started.
    pub spawn: Spawn,
    /// The drives, by their number. Shared, since there are many, and every request has means of its own.
    pub drives: Arc<[Arc<dyn Drive>]>,
    /// The rack's number, on every label and stack.
    pub rack_uuid: RackUuid,
    /// Draws the nonce of a new blob.
    pub nonce: Nonce,
    /// What is remembered.
    pub catalog: Catalog,
    /// Staged files.
    pub staging: Staging,
    /// Recalls.
    pub spool: Spool,
    /// Blobs that somebody reads.
    pub holds: Holds,
    /// Whether the catalog is the newest.
    pub lineage: Arc<Lineage>,
    /// One at a time orders recalls.
    pub ordering: recall::Ordering,
    /// Pins of buckets and prefixes.
    pub pin_of: PinOf,
    /// Counters that the engine does not keep.
    pub counters: Arc<Counters>,
    /// Takes the engine's trace, if one is kept.
    pub trace: Option<Tracer>,
}

/// Counters of what only the world sees.
#[derive(Debug, Default)]
pub struct Counters {
    /// Fragments that were bad and were repaired.
    pub repaired_fragments: AtomicU64,
    /// Fuses that tripped.
    pub fuse_trips: AtomicU64,
    /// Objects whose bytes were not those that they were acknowledged with when they were served.
    pub wrong_bodies: AtomicU64,
    /// Staged files that this catalog does not know, and that may be a newer catalog's.
    pub unknown_staged: AtomicU64,
    /// Staged files that the last run has left, and that the next start removes.
    pub left_staged: AtomicU64,
    /// Bytes of the parts of open uploads, those included that are being received: what of the workshop cannot migrate.
    pub open_part_bytes: AtomicU64,
    /// What reads have found to be lost.
    pub losses: Losses,
    /// Whether the engine says that the rack has no room for what is staged.
    pub rack_full: AtomicBool,
    /// What a group of the rack can hold of one object at most, in bytes; 0 before that is known.
    pub object_bytes_max: AtomicU64,
    /// Why drives could not be used when they were last tried.
    pub absences: Absences,
}

/// A look at the engine between two events.
type Look = Box<dyn FnOnce(&Rack, Time) + Send>;

/// What the world's task is told.
pub(crate) enum Message {
    /// A fact for the engine.
    Event(Event),
    /// A recall is wanted.
    Read(Box<ReadOrder>),
    /// A blob of bytes in memory is to be written.
    Write(Box<WriteOrder>),
    /// A repartition job waits its turn; what is to be done for it goes there.
    QueueJob(JobId, mpsc::UnboundedSender<JobAction>),
    /// A consumer in memory is gone: what is queued for it is not wanted any more.
    ReadAbandoned,
    /// A look at the engine.
    Ask(Look),
    /// What was composed for a migration write; `None` if nothing of it was left.
    Composed { op: OpId, versions: Vec<VersionId>, pack: Option<Arc<HeldPack>>, pin: PinnedTo },
    /// A transfer that reads is over; its target comes back, so that other drives can go on.
    ReadEnded { event: Event, op: OpId, progress: Box<read::Progress> },
    /// A write, or its verification, is over.
    WriteEnded { event: Event, op: OpId, written: Option<Written> },
    /// A stack was rebuilt, or was not: its blob as it lies then, and the checksum of its payload.
    Rebuilt { event: Event, op: OpId, written: Option<(Blob, u64)> },
    /// The catalog knows (or refused) a blob that was made of these versions of the workshop, if of any.
    Committed { versions: Vec<VersionId> },
    /// A page of staged versions, before those already on their way are left out.
    Staged { attempt: Attempt, entries: Vec<engine::StagedEntry>, next: Option<migration::StagedCursor> },
    /// A page of doomed blobs, before those still held are left out.
    Doomed { group: GroupId, attempt: Attempt, page: reclaim::DoomedPage },
    /// Whether a version belongs to a write under way.
    IsMigrating { version: VersionId, answer: oneshot::Sender<bool> },
    /// Whether another drive may take the place of one: nothing that began before it failed counts on it.
    MayBeReplaced { drive: DriveId, answer: oneshot::Sender<bool> },
    /// An evacuation has come to its end.
    Evacuated(BlobId),
    /// Take in nothing more, put every group to sleep, and say so.
    Close(oneshot::Sender<()>),
}

/// A blob whose stacks are written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) blob: Blob,
    pub(crate) sealed: Sealed,
}

/// What the world keeps of an operation.
enum Job {
    Read {
        blob: Blob,
        /// Here while no transfer has it.
        progress: Option<Box<read::Progress>>,
        refused: Arc<OnceLock<Rejection>>,
    },
    Write {
        pack: Arc<HeldPack>,
        of: Origin,
        /// Set when the stacks are written and synced.
        written: Option<Written>,
    },
    Rebuild(rebuild::Rebuild),
}

impl Job {
    /// Whether it reads into memory for somebody who is gone.
    fn is_abandoned(&self) -> bool {
        matches!(self, Self::Read { progress: Some(progress), .. } if progress.is_abandoned())
    }
}

/// What a blob is made of.
enum Origin {
    /// These versions of the workshop.
    Workshop(Vec<VersionId>),
    /// What somebody has in memory.
    Memory(Box<making::Making>),
}

/// How everybody else talks to the world.
#[derive(Clone)]
pub struct WorldHandle {
    messages: mpsc::UnboundedSender<Message>,
}

impl WorldHandle {
    /// Orders a read. Its outcome shows at its target.
    pub fn read(&self, order: ReadOrder) {
        self.send(Message::Read(Box::new(order)));
    }

    /// Asks for a blob of bytes in memory. What becomes of it is answered.
    pub fn write(&self, order: WriteOrder) {
        self.send(Message::Write(Box::new(order)));
    }

    /// Tells the engine a fact.
    pub fn tell(&self, event: Event) {
        self.send(Message::Event(event));
    }

    /// Looks at the engine, between two events. `None` if the world has ended.
    pub async fn ask<T: Send + 'static>(&self, look: impl FnOnce(&Rack, Time) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Ask(Box::new(move |rack, now| {
            let _ = answer.send(look(rack, now));
        })));
        answered.await.ok()
    }

    /// Whether `version` belongs to a pack that is being written.
    pub async fn is_migrating(&self, version: VersionId) -> bool {
        let (answer, answered) = oneshot::channel();
        self.send(Message::IsMigrating { version, answer });
        answered.await.unwrap_or(false)
    }

    /// Whether another drive may take the place of `drive`, which failed: no blob can come to be counted on it any
    /// more.
    pub async fn may_be_replaced(&self, drive: DriveId) -> bool {
        let (answer, answered) = oneshot::channel();
        self.send(Message::MayBeReplaced { drive, answer });
        answered.await.unwrap_or(false)
    }

    /// Takes in nothing more, lets what is in service end, and puts every group to sleep.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        self.send(Message::Close(done));
        let _ = closed.await;
    }

    pub(crate) fn send(&self, message: Message) {
        // A world that has ended hears nothing, and nobody is left to act on it.
        let _ = self.messages.send(message);
    }
}

/// The interpreter. See the head of this file.
pub struct World {
    rack: Rack,
    means: Means,
    /// The drives, held to the engine's deadlines.
    drives: Vec<Arc<dyn Drive>>,
    handle: WorldHandle,
    messages: mpsc::UnboundedReceiver<Message>,
    jobs: BTreeMap<OpId, Job>,
    next_op: u64,
    /// Versions that belong to a write under way.
    migrating: BTreeSet<VersionId>,
    staged_cursor: Option<migration::StagedCursor>,
    doomed_cursors: BTreeMap<GroupId, Cursor>,
    deleting: BTreeMap<OpId, BlobId>,
    evacuating: BTreeSet<BlobId>,
    /// Blobs that are being committed to the catalog.
    committing: usize,
    starts_persisted: power::StartsPersisted,
    last_commands: power::LastCommands,
    closing: Option<oneshot::Sender<()>>,
    /// Where the actions of each repartition job go.
    job_actions: BTreeMap<JobId, mpsc::UnboundedSender<JobAction>>,
}

impl Counters {
    /// Parts of so many bytes are open no more.
    pub(crate) fn parts_closed(&self, bytes: u64) {
        let less = |open: u64| Some(open.saturating_sub(bytes));
        let _ = self.open_part_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

impl World {
    /// A world around `rack`, which has not been told of any drive yet.
    pub fn new(rack: Rack, means: Means) -> (Self, WorldHandle) {
        assert_eq!(means.drives.len(), rack.spec().drives.len(), "every drive of the rack is there to be commanded");
        let (sender, messages) = mpsc::unbounded_channel();
        let handle = WorldHandle { messages: sender };
        let drives = in_time(&rack, &means);
        let last_commands = means.drives.iter().map(|_| AtomicU32::new(0)).collect();
        let world = Self {
            rack,
            means,
            drives,
            handle: handle.clone(),
            messages,
            jobs: BTreeMap::new(),
            next_op: 1,
            migrating: BTreeSet::new(),
            staged_cursor: None,
            doomed_cursors: BTreeMap::new(),
            deleting: BTreeMap::new(),
            evacuating: BTreeSet::new(),
            committing: 0,
            starts_persisted: futures::future::ready(()).boxed().shared(),
            last_commands,
            closing: None,
            job_actions: BTreeMap::new(),
        };
        (world, handle)
    }

    /// Runs until it is closed or every handle is gone.
    pub async fn run(mut self) {
        loop {
            let deadline = self.means.clock.sleep_until(self.rack.next_deadline());
            let message = tokio::select! {
                // In a fixed order, so that the same history has the same outcome. Every event lets deadlines take
                // effect.
                biased;
                message = self.messages.recv() => message,
                () = deadline => Some(Message::Event(Event::DeadlineReached)),
            };
            let Some(message) = message else { return };
            self.take(message);
            if self.rack.is_closed() && self.jobs.is_empty() && self.committing == 0 {
                if let Some(done) = self.closing.take() {
                    let _ = done.send(());
                }
                return;
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Event(event) => self.apply(event),
            Message::Read(order) => self.order_read(*order),
            Message::Write(order) => self.order_write(*order),
            Message::QueueJob(job, actions) => self.queue_job(job, actions),
            Message::ReadAbandoned => self.withdraw(Job::is_abandoned),
            Message::Ask(look) => look(&self.rack, self.means.clock.now()),
            Message::Composed { op, versions, pack, pin } => self.composed(op, versions, pack, pin),
            Message::ReadEnded { event, op, progress } => self.transfer_read(op, progress, event),
            Message::WriteEnded { event, op, written } => {
                if let Some(Job::Write { written: place, .. }) = self.jobs.get_mut(&op) {
                    *place = written;
                }
                self.apply(event);
            }
            Message::Rebuilt { event, op, written } => {
                if let Some(Job::Rebuild(rebuild)) = self.jobs.get_mut(&op) {
                    rebuild.written = written;
                }
                self.apply(event);
            }
            Message::Committed { versions } => self.committed(&versions),
            Message::Staged { attempt, entries, next } => self.staged_page(attempt, entries, next),
            Message::Doomed { group, attempt, page } => self.doomed_page(group, attempt, page),
            Message::IsMigrating { version, answer } => {
                let _ = answer.send(self.migrating.contains(&version));
            }
            Message::MayBeReplaced { drive, answer } => {
                let _ = answer.send(self.rack.may_be_replaced(drive) && self.committing == 0);
            }
            Message::Evacuated(blob) => {
                self.evacuating.remove(&blob);
            }
            Message::Close(done) => {
                self.closing = Some(done);
                self.apply(Event::Closing);
            }
        }
    }

    /// Tells the engine, and does what it asks for.
    fn apply(&mut self, event: Event) {
        if matches!(event, Event::DriveLost { loss: engine::Loss::FuseTripped, .. }) {
            self.means.counters.fuse_trips.fetch_add(1, Ordering::Relaxed);
        }
        let now = self.means.clock.now();
        self.trace(now, || Told::Event(event.clone()));
        let mut actions = Vec::new();
        self.rack.apply(now, event, &mut actions);
        for action in &actions {
            self.trace(now, || Told::Action(action.clone()));
        }
        self.means.counters.rack_full.store(self.rack.is_full(), Ordering::Relaxed);
        self.persist_starts(&mut actions);
        for action in actions {
            self.obey(action);
        }
    }

    fn trace(&self, now: Time, told: impl FnOnce() -> Told) {
        if let Some(trace) = &self.means.trace {
            trace(&Record { now, told: told() });
        }
    }

    fn obey(&mut self, action: Action) {
        match action {
            // Gathered by `persist_starts`, which hands them to the spin-ups that follow.
            Action::PersistStarts { .. } => {}
            Action::SpinUp { drive, attempt } => self.spin_up(drive, attempt),
            Action::Mount { drive, attempt } => self.mount(drive, attempt),
            Action::Unmount { drive, attempt } => self.unmount(drive, attempt),
            Action::Stop { drive, attempt } => self.stop(drive, attempt),
            Action::Rejected { op, reason } => self.ended(op, &Outcome::Failed(reason)),
            Action::Finished { op, outcome } => self.ended(op, &outcome),
            Action::Transfer { op, attempt, transfer } => self.transfer(op, attempt, transfer),
            Action::ListStaged { attempt, older_than, coldest_bytes, limit, restart } => {
                self.list_staged(attempt, older_than, coldest_bytes, limit, restart);
            }
            Action::Compose { op, versions, pin } => self.compose(op, versions, pin),
            Action::Recompose { op, of, pin } => self.recompose(op, of, pin),
            Action::ListDoomed { group, attempt, limit, restart } => {
                self.list_doomed(group, attempt, limit, restart);
            }
            Action::Rescue { blob } => self.evacuate(blob),
            Action::ListOnDrive { drive, attempt, after, limit } => self.list_on_drive(drive, attempt, after, limit),
            Action::MoveStack { op, attempt, blob, index, from, to } => {
                self.move_stack(op, attempt, blob, index, [from, to]);
            }
            Action::Job { job, action } => self.act_for_job(job, action),
        }
    }

    /// The number of the next operation that is the world's own.
    fn next_op(&mut self) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        op
    }

    /// Takes back such jobs as are queued. What is in service is not touched by that.
    fn withdraw(&mut self, is_meant: impl Fn(&Job) -> bool) {
        let ops: Vec<OpId> = self.jobs.iter().filter(|(_, job)| is_meant(job)).map(|(op, _)| *op).collect();
        for op in ops {
            self.apply(Event::Cancelled { op });
        }
    }

    /// An operation is over: its job is brought to its end and forgotten.
    fn ended(&mut self, op: OpId, outcome: &Outcome) {
        match self.jobs.remove(&op) {
            Some(Job::Read { blob, progress, refused, .. }) => {
                let progress = progress.unwrap_or_else(|| panic!("{op} ended, and is being read"));
                self.read_ended(&blob, *progress, &refused, outcome);
            }
            Some(Job::Write { pack, of: Origin::Workshop(versions), written }) => {
                self.write_ended(pack, versions, written, outcome);
            }
            Some(Job::Write { pack, of: Origin::Memory(making), written }) => {
                self.made(&pack, *making, written, outcome);
            }
            Some(Job::Rebuild(_)) => {}
            None if matches!(outcome, Outcome::Deleted) => self.blob_deleted(op),
            None => {
                self.deleting.remove(&op);
            }
        }
    }

    fn drive(&self, drive: DriveId) -> Arc<dyn Drive> {
        Arc::clone(&self.drives[drive.index()])
    }

    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        (self.means.spawn)(Box::pin(task));
    }
}

/// The drives of `means`, each of which answers within the engine's deadlines.
fn in_time(rack: &Rack, means: &Means) -> Vec<Arc<dyn Drive>> {
    let decided = rack.drive_deadlines();
    let deadlines = Deadlines {
        read: decided.requests.read,
        write: decided.requests.write,
        sync: decided.requests.sync,
        spin_up: decided.spin_up,
        mount: decided.mount,
        unmount: decided.unmount,
        stop: decided.stop,
    };
    let held = |drive: &Arc<dyn Drive>| {
        Arc::new(DeadlineDrive::new(Arc::clone(drive), Arc::clone(&means.clock), deadlines)) as Arc<dyn Drive>
    };
    means.drives.iter().map(held).collect()
}

/// What the engine is told of the workshop's fill: of what may migrate, and of the room that there is for it. Parts of
/// open uploads may not, and migrating all else in haste would make no room for them.
pub(crate) fn usage_of(means: &Means) -> Usage {
    let usage = means.staging.usage();
    let open_bytes = means.counters.open_part_bytes.load(Ordering::Relaxed);
    Usage {
        staged_bytes: usage.staged_bytes.saturating_sub(open_bytes),
        capacity_bytes: usage.capacity_bytes.saturating_sub(open_bytes),
    }
}
