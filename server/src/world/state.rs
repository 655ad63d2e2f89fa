//! The state of the world: the engine, the operations that are not over, and its place in listings.

use super::handle::{Message, WorldHandle};
use super::operation::{LastCommands, Operation, StagedCursor, StartsPersisted};
use crate::context::Context;
use catalog::{Cursor, VersionId};
use disk::{DeadlineDrive, Deadlines, Drive};
use engine::{JobAction, JobId, Rack};
use futures::future::FutureExt;
use model::{BlobId, DriveId, GroupId, OpId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tokio::sync::{mpsc, oneshot};

/// The interpreter of the engine's actions.
pub struct World {
    pub(super) rack: Rack,
    pub(super) context: Context,
    /// The drives, held to the engine's deadlines.
    pub(super) drives: Vec<Arc<dyn Drive>>,
    pub(super) handle: WorldHandle,
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) operations: BTreeMap<OpId, Operation>,
    pub(super) next_op: u64,
    /// Versions that belong to a write under way.
    pub(super) migrating: BTreeSet<VersionId>,
    pub(super) staged_cursor: Option<StagedCursor>,
    pub(super) dead_cursors: BTreeMap<GroupId, Cursor>,
    pub(super) deleting: BTreeMap<OpId, BlobId>,
    pub(super) evacuating: BTreeSet<BlobId>,
    /// Blobs that are being committed to the catalog.
    pub(super) committing: usize,
    pub(super) starts_persisted: StartsPersisted,
    pub(super) last_commands: LastCommands,
    pub(super) closing: Option<oneshot::Sender<()>>,
    /// Where the actions of each repartition job go.
    pub(super) job_actions: BTreeMap<JobId, mpsc::UnboundedSender<JobAction>>,
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
            operations: BTreeMap::new(),
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

    /// The number of the next operation that is the world's own.
    pub(super) fn next_op(&mut self) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        op
    }

    pub(super) fn drive(&self, drive: DriveId) -> Arc<dyn Drive> {
        Arc::clone(&self.drives[drive.index()])
    }

    pub(super) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
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
