//! The state of the world: the engine, the operations under way, and its cursors of listings; and the handle by which
//! all other tasks communicate with the one task that owns this state.
//!
//! Each message to that task is a step: a function of the world, called between two events of the engine.

use super::operation::{CheckPlace, InMemory, LastCommands, Operation, StagedCursor, StartsPersisted, WriteOrder};
use super::read_target::ReadOrder;
use crate::context::Context;
use catalog::{Cursor, VersionId};
use disk::device::PoolDisks;
use disk::label::DriveUuid;
use disk::{DeadlineDrive, Deadlines, Drive, Hardware};
use engine::thermometer::Thermometer;
use engine::{Event, JobAction, JobId, Rack};
use futures::future::FutureExt;
use model::{BlobId, ClassId, DriveId, DriveSpec, GroupId, OpId, PoolDriveId, Time};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{mpsc, oneshot};

/// A step of the world's task.
pub(super) type Step = Box<dyn FnOnce(&mut World) + Send>;

/// Receives the answer: true if a drive of the pool spins, false if it did not start. Dropped without a call if the
/// world ends.
type PoolAnswer = Box<dyn FnOnce(bool) + Send>;

/// The interpreter of the engine's actions.
pub struct World {
    pub(super) rack: Rack,
    pub(super) context: Context,
    /// The drives, bound to the engine's deadlines.
    pub(super) drives: Arc<[Arc<dyn Drive>]>,
    pub(super) handle: WorldHandle,
    pub(super) steps: mpsc::UnboundedReceiver<Step>,
    pub(super) operations: BTreeMap<OpId, Operation>,
    pub(super) next_op: u64,
    /// Versions that belong to a write under way.
    pub(super) migrating: BTreeSet<VersionId>,
    pub(super) staged_cursor: Option<StagedCursor>,
    /// The point at which the pass of checks continues, and its selection of versions to take.
    pub(super) check_place: CheckPlace,
    pub(super) check_selection: Option<StagedCursor>,
    /// Checked versions that are in memory and in no pack yet.
    pub(super) in_memory: InMemory,
    /// The rules of the engine's policy.
    pub(super) thermometer: Arc<Thermometer>,
    pub(super) dead_cursors: BTreeMap<GroupId, Cursor>,
    pub(super) deleting: BTreeMap<OpId, BlobId>,
    pub(super) evacuating: BTreeSet<BlobId>,
    /// UUIDs that given-up drives have shown when they were tried.
    pub(super) recognised: Arc<Mutex<BTreeMap<DriveId, DriveUuid>>>,
    /// Held to record where a stack is written, or to remove stacks that do not count: never both at once.
    pub(super) aiming: Arc<tokio::sync::Mutex<()>>,
    /// Blobs that are being committed to the catalog.
    pub(super) committing: usize,
    pub(super) starts_persisted: StartsPersisted,
    pub(super) last_commands: LastCommands,
    pub(super) closing: Option<oneshot::Sender<()>>,
    /// Tasks that wait for a group to wake.
    pub(super) awaiting_up: BTreeMap<GroupId, Vec<oneshot::Sender<()>>>,
    /// Callers that wait for a drive of the pool to spin.
    pub(super) awaiting_pool: BTreeMap<PoolDriveId, Vec<PoolAnswer>>,
    /// The hardware, for the power of the pool's drives.
    pub(super) hardware: Option<Arc<dyn Hardware>>,
    /// The drives of the pool that are whole disks.
    pub(super) pool_disks: Option<Arc<PoolDisks>>,
    /// The channels for the actions of each repartition job.
    pub(super) job_actions: BTreeMap<JobId, mpsc::UnboundedSender<JobAction>>,
    /// The fill of each class's queue for clients, in thousandths, as of the last event.
    queue_fills: Arc<[AtomicU32]>,
}

impl World {
    /// A world around `rack`, which has no report of any drive yet.
    pub fn new(rack: Rack, context: Context) -> (Self, WorldHandle) {
        assert_eq!(context.drives.len(), rack.spec().drives.len(), "every drive of the rack is there to be commanded");
        let (sender, steps) = mpsc::unbounded_channel();
        let handle = WorldHandle { steps: sender };
        let drives = with_deadlines(&rack, &context);
        let last_commands = context.drives.iter().map(|_| AtomicU32::new(0)).collect();
        let queue_fills = rack.layout().classes.iter().map(|_| AtomicU32::new(0)).collect();
        let thermometer = Arc::new(rack.policy().migration.thermometer.clone());
        let world = Self {
            queue_fills,
            thermometer,
            rack,
            context,
            drives,
            handle: handle.clone(),
            steps,
            operations: BTreeMap::new(),
            next_op: 1,
            migrating: BTreeSet::new(),
            staged_cursor: None,
            check_place: CheckPlace::AsRecorded,
            check_selection: None,
            in_memory: InMemory::new(),
            dead_cursors: BTreeMap::new(),
            deleting: BTreeMap::new(),
            evacuating: BTreeSet::new(),
            recognised: Arc::default(),
            aiming: Arc::default(),
            committing: 0,
            starts_persisted: futures::future::ready(()).boxed().shared(),
            last_commands,
            closing: None,
            awaiting_up: BTreeMap::new(),
            awaiting_pool: BTreeMap::new(),
            hardware: None,
            pool_disks: None,
            job_actions: BTreeMap::new(),
        };
        (world, handle)
    }

    /// The same, with `hardware` that controls the power of the pool's drives.
    #[must_use]
    pub fn with_hardware(mut self, hardware: Arc<dyn Hardware>) -> Self {
        self.hardware = Some(hardware);
        self
    }

    /// A function that returns the present fill of the clients' queue of a drive's class, in thousandths.
    pub fn queue_fill(&self) -> impl Fn(DriveId) -> u32 + Send + Sync + 'static {
        let layout = self.rack.layout();
        let class_of = |drive: &DriveSpec| layout.group_of(drive.id).map(|group| layout.class_of(group));
        let classes: Vec<Option<ClassId>> = self.rack.spec().drives.iter().map(class_of).collect();
        let fills = Arc::clone(&self.queue_fills);
        move |drive| classes[drive.index()].map_or(0, |class| fills[class.index()].load(Ordering::Relaxed))
    }

    /// Stores the fill of the queues, for readers between two events.
    pub(super) fn store_queue_fills(&self) {
        for (index, fill) in self.queue_fills.iter().enumerate() {
            fill.store(self.rack.class_fill_permille(ClassId(index as u32)), Ordering::Relaxed);
        }
    }

    /// The number of the next operation of the world's own.
    pub(super) fn next_op(&mut self) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        op
    }

    pub(super) fn drive(&self, drive: DriveId) -> Arc<dyn Drive> {
        Arc::clone(&self.drives[drive.index()])
    }

    /// Starts a task that reports its result through the handle.
    pub(super) fn start_with<Task>(&self, task: impl FnOnce(WorldHandle, Context) -> Task)
    where
        Task: Future<Output = ()> + Send + 'static,
    {
        self.start(task(self.handle.clone(), self.context.clone()));
    }

    pub(super) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        (self.context.spawn)(Box::pin(task));
    }
}

/// The handle by which other tasks communicate with the world.
#[derive(Clone)]
pub struct WorldHandle {
    steps: mpsc::UnboundedSender<Step>,
}

impl WorldHandle {
    /// Orders a read. Its outcome shows at its target.
    pub fn read(&self, order: ReadOrder) {
        self.run(|world| world.order_read(order));
    }

    /// Orders a blob from bytes in memory. The outcome goes to the order's channel.
    pub fn write(&self, order: WriteOrder) {
        self.run(|world| world.order_write(order));
    }

    /// Writes the staged `version`, a copy of the catalog of length `bytes`, into its own pack: to an awake group, if
    /// one has room, and preferably to none of `avoided`.
    pub fn write_copy(&self, version: VersionId, bytes: u64, avoided: Vec<GroupId>) {
        self.run(move |world| world.write_copy(version, bytes, &avoided));
    }

    /// Reports an event to the engine.
    pub fn report(&self, event: Event) {
        self.run(|world| world.apply(event));
    }

    /// Runs `look` on the engine, between two events. `None` if the world has ended.
    pub async fn ask<T: Send + 'static>(&self, look: impl FnOnce(&Rack, Time) -> T + Send + 'static) -> Option<T> {
        self.look(|world| look(&world.rack, world.context.clock.now())).await
    }

    /// True if `version` belongs to a pack that is being written.
    pub async fn is_migrating(&self, version: VersionId) -> bool {
        self.look(move |world| world.migrating.contains(&version)).await.unwrap_or(false)
    }

    /// For each of `versions`, true if it belongs to a pack that is being written. All false if the world has ended.
    pub(super) async fn are_migrating(&self, versions: Vec<VersionId>) -> Vec<bool> {
        let count = versions.len();
        let are = move |world: &World| versions.iter().map(|version| world.migrating.contains(version)).collect();
        self.look(are).await.unwrap_or_else(|| vec![false; count])
    }

    /// True if another drive may replace `drive`, which failed: no further blob can come to count on it.
    pub async fn may_be_replaced(&self, drive: DriveId) -> bool {
        self.look(move |world| world.rack.may_be_replaced(drive) && world.committing == 0).await.unwrap_or(false)
    }

    /// Accepts nothing more, lets operations in service end, and puts every group to sleep.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        self.run(|world| {
            world.closing = Some(done);
            world.apply(Event::Closing);
        });
        let _ = closed.await;
    }

    async fn look<T: Send + 'static>(&self, look: impl FnOnce(&World) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.run(|world| {
            let _ = answer.send(look(world));
        });
        answered.await.ok()
    }

    /// Runs a step in the world's task. After the end of the world the step is dropped, since nothing is left to act
    /// on.
    pub(super) fn run(&self, step: impl FnOnce(&mut World) + Send + 'static) {
        let _ = self.steps.send(Box::new(step));
    }
}

/// The drives of `context`, each bound to the engine's deadlines.
fn with_deadlines(rack: &Rack, context: &Context) -> Arc<[Arc<dyn Drive>]> {
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
