//! The world's messages, and the handle by which everybody else sends them.

use super::operation::{DeadPage, StagedCursor, WriteOrder, Written};
use super::read_target::{Progress, ReadOrder};
use catalog::{Blob, VersionId};
use engine::{Event, JobAction, JobId, PinnedTo, Rack, StagedEntry};
use model::{Attempt, BlobId, DriveId, GroupId, OpId, Time};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use workshop::HeldPack;

/// A look at the engine between two events.
type Look = Box<dyn FnOnce(&Rack, Time) + Send>;

/// A message to the world's task.
pub(crate) enum Message {
    /// A fact for the engine.
    Event(Event),
    /// A recall is wanted.
    Read(Box<ReadOrder>),
    /// A blob of bytes in memory is to be written.
    Write(Box<WriteOrder>),
    /// A repartition job waits its turn; its actions go there.
    QueueJob(JobId, mpsc::UnboundedSender<JobAction>),
    /// A consumer in memory is gone: operations queued for it are not wanted any more.
    ReadAbandoned,
    /// A look at the engine.
    Ask(Look),
    /// The pack of a migration write; `None` if none of its versions was left.
    Composed { op: OpId, versions: Vec<VersionId>, pack: Option<Arc<HeldPack>>, pin: PinnedTo },
    /// A transfer that reads is over; its target comes back, so that other drives can go on.
    ReadEnded { event: Event, op: OpId, progress: Box<Progress> },
    /// A write, or its verification, is over.
    WriteEnded { event: Event, op: OpId, written: Option<Written> },
    /// A stack was rebuilt, or was not: its blob as it lies then, and the checksum of its payload.
    Rebuilt { event: Event, op: OpId, written: Option<(Blob, u64)> },
    /// The catalog knows (or refused) a blob that was made of these versions of the workshop, if of any.
    Committed { versions: Vec<VersionId> },
    /// A page of staged versions, before those already on their way are left out.
    Staged { attempt: Attempt, entries: Vec<StagedEntry>, next: Option<StagedCursor> },
    /// A page of blobs with dead bytes, before those still held are left out.
    DeadBlobs { group: GroupId, attempt: Attempt, page: DeadPage },
    /// Asks if a version belongs to a write under way.
    IsMigrating { version: VersionId, answer: oneshot::Sender<bool> },
    /// Asks if another drive may take the place of one: nothing that began before it failed counts on it.
    MayBeReplaced { drive: DriveId, answer: oneshot::Sender<bool> },
    /// An evacuation has come to its end.
    Evacuated(BlobId),
    /// Take in nothing more, put every group to sleep, and say so.
    Close(oneshot::Sender<()>),
}

/// The handle by which everybody else talks to the world.
#[derive(Clone)]
pub struct WorldHandle {
    messages: mpsc::UnboundedSender<Message>,
}

impl WorldHandle {
    pub(super) fn new(messages: mpsc::UnboundedSender<Message>) -> Self {
        Self { messages }
    }

    /// Orders a read. Its outcome shows at its target.
    pub fn read(&self, order: ReadOrder) {
        self.send(Message::Read(Box::new(order)));
    }

    /// Asks for a blob of bytes in memory. What becomes of it is answered.
    pub fn write(&self, order: WriteOrder) {
        self.send(Message::Write(Box::new(order)));
    }

    /// Reports a fact to the engine.
    pub fn report(&self, event: Event) {
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

    /// True if `version` belongs to a pack that is being written.
    pub async fn is_migrating(&self, version: VersionId) -> bool {
        let (answer, answered) = oneshot::channel();
        self.send(Message::IsMigrating { version, answer });
        answered.await.unwrap_or(false)
    }

    /// True if another drive may take the place of `drive`, which failed: no blob can come to be counted on it.
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
