//! Reads of blobs into memory, for evacuations and repartition jobs.
//!
//! A stream orders one operation at a time, which the engine queues like any other, and takes its bytes as the drives
//! deliver them. [`engine::recall::MemoryRead`] determines the length of an operation, and what follows one that ended
//! early. The limits are those of `world/read_target.rs`; nothing is written to the workshop's disk.
//!
//! A stream that is dropped withdraws its queued operation, or ends the one in service.

use super::read_target::MemorySink;
use super::read_target::{ReadOrder, ReadTarget};
use super::state::WorldHandle;
use crate::context::Context;
use crate::holds::Hold;
use bytes::Bytes;
use catalog::Blob;
use engine::recall::{Broken, MemoryRead};
use engine::{JobClass, PriorityClass, Rejection};
use futures::stream::{BoxStream, StreamExt, try_unfold};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;

/// Reads blobs into memory. Clones are handles on the same reader.
#[derive(Clone)]
pub struct MemoryReads {
    context: Context,
    world: WorldHandle,
    job: Option<JobClass>,
    while_awake: bool,
}

impl MemoryReads {
    /// Reads through `world`.
    pub fn new(context: Context, world: WorldHandle) -> Self {
        Self { context, world, job: None, while_awake: false }
    }

    /// The same for data that is not worth a wake of its group: a stream ends with [`Rejection::Asleep`] where it would
    /// need one.
    #[must_use]
    pub fn while_awake(&self) -> Self {
        Self { while_awake: true, ..self.clone() }
    }

    /// The same, as part of the steps of a repartition job.
    #[must_use]
    pub fn for_job(&self, job: JobClass) -> Self {
        Self { job: Some(job), ..self.clone() }
    }

    /// The payload bytes `range` of `blob`, without a time limit. The stream ends after its first error, the rack's
    /// reason for not delivering them. The blob is held as long as the stream exists.
    pub fn stream(
        &self,
        blob: Blob,
        range: Range<u64>,
        priority: PriorityClass,
    ) -> BoxStream<'static, Result<Bytes, Rejection>> {
        let hold = self.context.holds.guard(blob.blob);
        let reads = self.clone();
        let reader = MemoryReader { reads, blob, priority, plan: MemoryRead::new(range), operation: None, _hold: hold };
        try_unfold(reader, |mut reader| async move { Ok(reader.next().await?.map(|bytes| (bytes, reader))) }).boxed()
    }
}

struct MemoryReader {
    reads: MemoryReads,
    blob: Blob,
    priority: PriorityClass,
    plan: MemoryRead,
    operation: Option<MemoryOperation>,
    _hold: Hold,
}

impl MemoryReader {
    async fn next(&mut self) -> Result<Option<Bytes>, Rejection> {
        loop {
            if self.operation.is_none() {
                let Some(range) = self.plan.next_operation() else { return Ok(None) };
                // The caller may have looked the blob up long ago: a job retries an object that it opened before drives
                // were given up and rebuilt.
                self.blob = self.reads.context.as_it_lies(&self.blob).await;
                self.operation = Some(self.order(range));
            }
            let Some(operation) = &mut self.operation else { continue };
            if let Some(bytes) = operation.bytes.recv().await {
                self.plan.received(bytes.len() as u64);
                return Ok(Some(bytes));
            }
            operation.ended = true;
            let refused = operation.refused.get().copied();
            self.operation = None;
            match (refused, self.plan.broken()) {
                (Some(reason), _) => return Err(reason),
                (None, Broken::OrderAnew) => {}
                // No answer: the world has ended.
                (None, Broken::GiveUp) => return Err(Rejection::Closing),
            }
        }
    }

    fn order(&self, range: Range<u64>) -> MemoryOperation {
        let (sink, bytes) = MemorySink::new();
        let refused = Arc::<OnceLock<Rejection>>::default();
        let world = self.reads.world.clone();
        world.read(ReadOrder {
            blob: self.blob.clone(),
            range,
            target: ReadTarget::Memory(sink),
            priority: self.priority,
            job: self.reads.job,
            while_awake: self.reads.while_awake,
            refused: Arc::clone(&refused),
        });
        MemoryOperation { bytes, refused, world, ended: false }
    }
}

/// An operation under way.
struct MemoryOperation {
    bytes: mpsc::Receiver<Bytes>,
    refused: Arc<OnceLock<Rejection>>,
    world: WorldHandle,
    ended: bool,
}

impl Drop for MemoryOperation {
    fn drop(&mut self) {
        if !self.ended {
            self.bytes.close();
            self.world.run(|world| world.withdraw(super::operation::Operation::is_abandoned));
        }
    }
}
