//! Blobs made of bytes in memory: written by an ordinary operation of the background lane into a certain group, read
//! back, and then committed together with the objects that lie in them.
//!
//! The order is that of a migration: intent, stacks, sync, read back, commit. Whatever fails before the commit leaves
//! the stacks doomed and nothing known; there is nothing to free after it.

use super::{Job, Message, Origin, World, Written};
use catalog::{Blob, Made};
use disk::stack;
use engine::{Event, Lane, Outcome, PinnedTo, Rejection, Request, Work};
use model::{GroupId, OpId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use workshop::HeldPack;

/// What stands for the operations of one customer of the world: by it they are withdrawn, and it knows how long their
/// transfers took, in modelled time.
#[derive(Debug, Default)]
#[allow(clippy::struct_field_names)] // units last, as everywhere
pub struct Ticket {
    reading_ns: AtomicU64,
    writing_ns: AtomicU64,
    verifying_ns: AtomicU64,
}

impl Ticket {
    pub(super) fn read_for(&self, span: Duration) {
        self.reading_ns.fetch_add(span.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn wrote_for(&self, span: Duration) {
        self.writing_ns.fetch_add(span.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn verified_for(&self, span: Duration) {
        self.verifying_ns.fetch_add(span.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How long its reads were in service.
    pub fn reading(&self) -> Duration {
        Duration::from_nanos(self.reading_ns.load(Ordering::Relaxed))
    }

    /// How long its writes were in service, reading back not included.
    pub fn writing(&self) -> Duration {
        Duration::from_nanos(self.writing_ns.load(Ordering::Relaxed))
    }

    /// How long what it wrote was read back.
    pub fn verifying(&self) -> Duration {
        Duration::from_nanos(self.verifying_ns.load(Ordering::Relaxed))
    }
}

/// A blob that is to be written.
pub struct WriteOrder {
    /// Its bytes.
    pub pack: Arc<HeldPack>,
    /// The group it must lie in.
    pub group: GroupId,
    /// The keys of the pack's members in the hidden bucket, in the pack's order.
    pub keys: Vec<String>,
    /// Whose it is.
    pub ticket: Arc<Ticket>,
    /// Told what came of it.
    pub answer: oneshot::Sender<Result<Blob, MakeError>>,
}

/// Why a blob was not made. Nothing of it is known then.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// It was withdrawn before it was begun.
    #[error("it was withdrawn")]
    Withdrawn,
    /// The rack refused it, or could not write it.
    #[error("{0}")]
    Refused(Rejection),
    /// It is written, and the catalog does not take it.
    #[error("the catalog does not take it: {0}")]
    Catalog(String),
}

/// What is to be told to whom when the blob is written.
pub(super) struct Making {
    keys: Vec<String>,
    pub(super) ticket: Arc<Ticket>,
    answer: oneshot::Sender<Result<Blob, MakeError>>,
}

impl World {
    pub(super) fn order_write(&mut self, order: WriteOrder) {
        let WriteOrder { pack, group, keys, ticket, answer } = order;
        assert_eq!(keys.len(), pack.plan().members().len(), "each member has a key");
        let op = OpId(self.next_op);
        self.next_op += 1;
        let bytes = pack.plan().payload_bytes();
        let stack_bytes = stack::stack_bytes(self.rack.spec().code, bytes);
        let work = Work::Write { bytes, stack_bytes, pin: PinnedTo::Group(group), migration: false };
        let of = Origin::Memory(Box::new(Making { keys, ticket, answer }));
        self.jobs.insert(op, Job::Write { pack, of, written: None });
        self.apply(Event::Submitted(Request { op, lane: Lane::Background, overtake_limit: None, work }));
    }

    /// A blob of bytes in memory is written, or was given up.
    pub(super) fn made(&mut self, pack: &HeldPack, making: Making, written: Option<Written>, outcome: &Outcome) {
        let Making { keys, answer, .. } = making;
        let (Outcome::Written { .. }, Some(written)) = (outcome, written) else {
            let error = match outcome {
                Outcome::Failed(reason) => MakeError::Refused(*reason),
                Outcome::Cancelled => MakeError::Withdrawn,
                _ => MakeError::Refused(Rejection::WriteFailed),
            };
            let _ = answer.send(Err(error));
            return;
        };
        self.committing += 1;
        let placed = pack.plan().members().iter().zip(pack.plan().offsets()).zip(keys);
        let made: Vec<Made> = placed
            .map(|((member, offset), key)| Made { key, object: member.object.clone(), offset: *offset })
            .collect();
        let (handle, means) = (self.handle.clone(), self.means.clone());
        self.start(async move {
            let blob = written.blob;
            let committed = means.catalog.commit_made_blob(&blob, &made).await;
            let told = match committed {
                Ok(()) => Ok(blob),
                Err(error) => {
                    super::transfer::give_up(&means, &handle, &blob).await;
                    Err(MakeError::Catalog(error.to_string()))
                }
            };
            let _ = answer.send(told);
            handle.send(Message::Committed { versions: Vec::new() });
        });
    }
}
