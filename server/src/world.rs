//! The world as the server has it: the interpreter of [`engine::Action`] over real drives, catalog and workshop.
//!
//! One task owns the [`Rack`]. It takes a message, tells the engine what happened, and does what the engine asks for;
//! whatever takes time runs in a task of its own and comes back as a message. So there is no lock around the engine,
//! and no decision here: a branch in this file asks only how, never whether.
//!
//! Clock, drives, catalog, workshop and the spawning of tasks are arguments ([`Context`]), so that this same
//! interpreter also runs in virtual time on one thread.
//!
//! Invariants:
//! - a blob's intent is durable before its first stack is made, its stacks are synced and read back before the catalog
//!   knows it, and staged files are freed only after that commit (`migration.rs`);
//! - every action that expects an answer gets one, whatever fails; a drive that hangs is answered for at its deadline;
//! - memory is bounded by operations in service and by pages.

mod evacuate;
mod handle;
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

pub(crate) use crate::context::usage_of;
pub use crate::context::{Absences, Context, Counters, Nonce, PinOf, Spawn, Tracer, WallClock, nonces};
pub(crate) use handle::Message;
pub use handle::WorldHandle;
pub use job_steps::JobActions;
pub use making::{MakeError, WriteOrder};
pub use memory_read::MemoryReads;
pub use read::{MemorySink, ReadOrder, ReadTarget};

use catalog::{Blob, Cursor, VersionId};
use disk::{DeadlineDrive, Deadlines, Drive};
use engine::trace::{Record, TraceMessage};
use engine::{Action, Event, JobAction, JobId, Outcome, Rack, Rejection};
use futures::future::FutureExt;
use model::{BlobId, DriveId, GroupId, OpId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{mpsc, oneshot};
use transfer::Written;
use workshop::HeldPack;

/// The world's side of an operation.
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
    /// True if it reads into memory for a consumer that is gone.
    fn is_abandoned(&self) -> bool {
        matches!(self, Self::Read { progress: Some(progress), .. } if progress.is_abandoned())
    }
}

/// The source of a blob that is written.
enum Origin {
    /// These versions of the workshop.
    Workshop(Vec<VersionId>),
    /// Bytes in memory.
    Memory(Box<making::Making>),
}

/// The interpreter. See the head of this file.
pub struct World {
    rack: Rack,
    context: Context,
    /// The drives, held to the engine's deadlines.
    drives: Vec<Arc<dyn Drive>>,
    handle: WorldHandle,
    messages: mpsc::UnboundedReceiver<Message>,
    jobs: BTreeMap<OpId, Job>,
    next_op: u64,
    /// Versions that belong to a write under way.
    migrating: BTreeSet<VersionId>,
    staged_cursor: Option<migration::StagedCursor>,
    dead_cursors: BTreeMap<GroupId, Cursor>,
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

impl World {
    /// A world around `rack`, which has not been told of any drive yet.
    pub fn new(rack: Rack, context: Context) -> (Self, WorldHandle) {
        assert_eq!(context.drives.len(), rack.spec().drives.len(), "every drive of the rack is there to be commanded");
        let (sender, messages) = mpsc::unbounded_channel();
        let handle = WorldHandle::new(sender);
        let drives = with_deadlines(&rack, &context);
        let last_commands = context.drives.iter().map(|_| AtomicU32::new(0)).collect();
        let world = Self {
            rack,
            context,
            drives,
            handle: handle.clone(),
            messages,
            jobs: BTreeMap::new(),
            next_op: 1,
            migrating: BTreeSet::new(),
            staged_cursor: None,
            dead_cursors: BTreeMap::new(),
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
            let deadline = self.context.clock.sleep_until(self.rack.next_deadline());
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
            Message::Ask(look) => look(&self.rack, self.context.clock.now()),
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
            Message::DeadBlobs { group, attempt, page } => self.dead_page(group, attempt, page),
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

    /// Hands the event to the engine, and executes the actions that follow.
    fn apply(&mut self, event: Event) {
        if matches!(event, Event::DriveLost { loss: engine::Loss::FuseTripped, .. }) {
            self.context.counters.fuse_trips.fetch_add(1, Ordering::Relaxed);
        }
        let now = self.context.clock.now();
        self.trace(now, || TraceMessage::Event(event.clone()));
        let mut actions = Vec::new();
        self.rack.apply(now, event, &mut actions);
        for action in &actions {
            self.trace(now, || TraceMessage::Action(action.clone()));
        }
        self.context.counters.rack_full.store(self.rack.is_full(), Ordering::Relaxed);
        self.persist_starts(&mut actions);
        for action in actions {
            self.execute(action);
        }
    }

    fn trace(&self, now: Time, told: impl FnOnce() -> TraceMessage) {
        if let Some(trace) = &self.context.trace {
            trace(&Record { now, told: told() });
        }
    }

    fn execute(&mut self, action: Action) {
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
                self.list_staged(attempt, migration::StagedQuery { older_than, coldest_bytes, limit }, restart);
            }
            Action::Compose { op, versions, pin } => self.compose(op, versions, pin),
            Action::Recompose { op, of, pin } => self.recompose(op, of, pin),
            Action::ListDead { group, attempt, limit, restart } => {
                self.list_dead(group, attempt, limit, restart);
            }
            Action::Evacuate { blob } => self.evacuate(blob),
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
        (self.context.spawn)(Box::pin(task));
    }
}

/// The drives of `context`, each of which answers within the engine's deadlines.
fn with_deadlines(rack: &Rack, context: &Context) -> Vec<Arc<dyn Drive>> {
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
        Arc::new(DeadlineDrive::new(Arc::clone(drive), Arc::clone(&context.clock), deadlines)) as Arc<dyn Drive>
    };
    context.drives.iter().map(held).collect()
}
