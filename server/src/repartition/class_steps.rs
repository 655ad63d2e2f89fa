//! Carries out the steps of a job in one class: reads input, writes what is buffered, refills runs.
//!
//! A step that something interrupts is done in part, and reported as far as it was done. This code neither waits nor
//! retries: that is the engine's part.

use super::checkpoint::OpenInputs;
use super::input::Input;
use super::job_work::JobWork;
use super::reader::{InputReader, ReadFault};
use super::source::{BlobReader, SourceError};
use super::writer::{OffloadedRun, PartitionWriter, WriteBatch, WriteFault, WriteTarget};
use crate::object_service::ObjectService;
use crate::world::{Context, MakeError, MemoryReads};
use arrow_array::RecordBatch;
use batch::MultisetChecksum;
use catalog::{Blob, HIDDEN_BUCKET};
use engine::repartition::{Order, Processed};
use engine::{JobEvent, PriorityClass, Rejection, StepResult};
use futures::FutureExt;
use model::{ClassId, GroupId};
use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// One class of a job at work.
pub(super) struct ClassSteps {
    work: Arc<JobWork>,
    class: ClassId,
    reader: InputReader,
    writer: PartitionWriter,
    reads: MemoryReads,
    /// A batch that is encoded, and not yet passed to the rack.
    ahead: Option<WriteBatch>,
}

impl ClassSteps {
    /// The steps of a class with this input, by group.
    pub fn new(work: &Arc<JobWork>, class: ClassId, queues: BTreeMap<GroupId, VecDeque<Input>>) -> Self {
        let reads = MemoryReads::new(work.context.clone(), work.world.clone()).for_job(work.of(class));
        let (records, blobs) = (Arc::clone(&work.records), BlobReader::new(reads.clone(), PriorityClass::Background));
        let reader =
            InputReader::new(work.context.clone(), records, blobs, (queues, work.open_at_first.clone()), work.limits);
        let writer = PartitionWriter {
            context: work.context.clone(),
            world: work.world.clone(),
            records: Arc::clone(&work.records),
            job: work.of(class),
            to: work.request.to.clone(),
            object_bytes: work.memory.object_bytes,
            decoder_bytes: work.limits.decoder_bytes,
            chunk_bytes: work.memory.chunk_bytes,
        };
        Self { work: Arc::clone(work), class, reader, writer, reads, ahead: None }
    }

    pub fn class(&self) -> ClassId {
        self.class
    }

    /// The open objects of the input, and the checksum of their records that were split and not taken.
    pub fn open_inputs(&self) -> Result<(OpenInputs, MultisetChecksum), batch::Error> {
        self.reader.open_inputs()
    }

    /// Carries out an order as far as is possible now.
    pub async fn perform(&mut self, order: Order) -> StepResult {
        let done = match order {
            Order::Read { group, bytes } => Ok(self.read(group, bytes).await),
            Order::Deliver { group, .. } => self.write(WriteTarget::Deliver(group)).await,
            Order::Offload { on, target, .. } => self.write(WriteTarget::Offload { on, target }).await,
            Order::Refill { on, target, bytes } => self.refill(on, target, bytes).await,
            Order::Wait | Order::Done => unreachable!("that is no step"),
        };
        done.unwrap_or_else(|failed| {
            self.work.set_fault(self.class, failed);
            StepResult::Failed
        })
    }

    async fn read(&mut self, group: GroupId, bytes: u64) -> StepResult {
        let mut done = self.reader.read(group, bytes, &self.work.buffer).await;
        let nothing = done.input_bytes + done.lost_bytes + done.unreported.bytes() == 0;
        self.processed(Processed::Split(done.input_bytes), done.processing);
        let output = self.work.was_read(&mut done);
        let read = StepResult::Read { input_bytes: done.input_bytes, lost_bytes: done.lost_bytes, output };
        match done.fault.map(|fault| self.read_fault(&fault)) {
            Some(StepResult::Failed) => StepResult::Failed,
            Some(nothing_done) if nothing => nothing_done,
            _ => read,
        }
    }

    /// Writes buffered records of a destination to it, or elsewhere as a run. Encodes the next batch meanwhile.
    async fn write(&mut self, target: WriteTarget) -> Result<StepResult, String> {
        self.reader.rest();
        let (work, writer, class) = (Arc::clone(&self.work), self.writer.clone(), self.class);
        let batch = match self.take_ahead(target) {
            Some(batch) => Some(batch),
            None => encoded(&work, &writer, target, None).await.map_err(|fault| fault.to_string())?,
        };
        let Some(batch) = batch else {
            // The engine counts a little more than the buffer holds; the account alone is released.
            return Ok(StepResult::Written { bytes: work.release(target, 0) });
        };
        assert_eq!(batch.target, target, "a batch is written where the engine orders it");
        let ahead = async {
            match work.target_behind(class, &batch).await {
                Some(next) => encoded(&work, &writer, next, Some(&batch)).await,
                None => Ok(None),
            }
        };
        // A panic is raised again when the write has ended.
        let ahead = AssertUnwindSafe(ahead).catch_unwind();
        let (written, ahead) = futures::future::join(writer.write(&batch), ahead).await;
        let ahead = ahead.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // Records that cannot be encoded end the job, whether or not the write succeeded.
        let ahead = ahead.map_err(|fault| fault.to_string())?;
        match written {
            Ok(blob) => {
                self.ahead = ahead;
                let bytes = batch.taken_bytes();
                let done = match target {
                    WriteTarget::Deliver(_) => Processed::Encoded(bytes),
                    WriteTarget::Offload { .. } => Processed::Run(bytes),
                };
                self.processed(done, batch.processing);
                Ok(StepResult::Written { bytes: work.was_written(batch, blob) })
            }
            Err(fault) => {
                if let Some(ahead) = ahead {
                    work.buffer.lock().put_back(ahead.taken);
                }
                self.ahead = Some(batch);
                Ok(self.write_fault(&fault))
            }
        }
    }

    /// The batch that was encoded ahead, if it is for this target. A batch for another target returns to the buffer.
    fn take_ahead(&mut self, target: WriteTarget) -> Option<WriteBatch> {
        let batch = self.ahead.take()?;
        if batch.target == target {
            return Some(batch);
        }
        self.work.buffer.lock().put_back(batch.taken);
        None
    }

    async fn refill(&mut self, on: GroupId, target: GroupId, bytes: u64) -> Result<StepResult, String> {
        self.reader.rest();
        let work = Arc::clone(&self.work);
        let number = work.destination_number(target);
        let Some(run) = work.take_run(on, target, bytes) else {
            // The rest of the run is an account without bytes.
            work.buffer.lock().refill(number, bytes, Vec::new()).map_err(|error| error.to_string())?;
            return Ok(StepResult::Refilled { bytes });
        };
        // Its stacks may have been rebuilt on other drives since.
        let known = work.context.catalog.blob(run.blob.blob).await.map_err(|error| error.to_string())?;
        let blob = known.unwrap_or_else(|| run.blob.clone());
        let pieces = match read_run(&work.context, self.reads.clone(), &run, &blob).await {
            Ok((pieces, processing)) => {
                self.processed(Processed::Run(run.counted), processing);
                pieces
            }
            Err(fault) => {
                work.put_back(on, target, run);
                return Ok(self.read_fault(&fault));
            }
        };
        work.buffer.lock().refill(number, run.counted, pieces).map_err(|error| error.to_string())?;
        let counted = run.counted;
        let service = ObjectService::new(work.context.clone(), work.world.clone(), Duration::ZERO);
        // Runs that a checkpoint counts on are removed with the next one.
        for (_, key, _) in work.was_refilled(run).iter().flat_map(|run| &run.members) {
            let displaced = work.context.catalog.delete_object(HIDDEN_BUCKET, key).await;
            service.displaced(displaced.map_err(|error| error.to_string())?);
        }
        Ok(StepResult::Refilled { bytes: counted })
    }

    /// Reports how long the processor worked on a step.
    fn processed(&self, done: Processed, time: Duration) {
        self.work.world.report_job(self.work.job, JobEvent::Processed { done, time });
    }

    /// The result of a step whose input could not be fetched.
    fn read_fault(&self, fault: &ReadFault) -> StepResult {
        let result = match fault {
            ReadFault::Bytes { source: SourceError::Refused(reason), .. } => {
                return self.refused(*reason, fault.to_string());
            }
            ReadFault::Bytes { source: SourceError::Moving, .. } => StepResult::NoRoom,
            ReadFault::Bytes { source: SourceError::Staged(_) | SourceError::Catalog(_), .. }
            | ReadFault::Records(_) => StepResult::Failed,
        };
        self.work.set_fault(self.class, fault.to_string());
        result
    }

    /// The result of a step whose output was not written.
    fn write_fault(&self, fault: &WriteFault) -> StepResult {
        match fault {
            WriteFault::Make { source: MakeError::Withdrawn, .. } => StepResult::Refused,
            WriteFault::Make { source: MakeError::Refused(reason), .. } => self.refused(*reason, fault.to_string()),
            WriteFault::Make { source: MakeError::Catalog(_), .. } | WriteFault::Records(_) | WriteFault::Other(_) => {
                self.work.set_fault(self.class, fault.to_string());
                StepResult::Failed
            }
        }
    }

    /// The rack refused an operation of the step, for this reason; `fault` is the text for people.
    fn refused(&self, reason: Rejection, fault: String) -> StepResult {
        let fault = match reason {
            Rejection::QueueFull => return StepResult::Refused,
            Rejection::NoRoom => format!("{fault}; remove objects there, and start the job again"),
            _ => fault,
        };
        self.work.set_fault(self.class, fault);
        StepResult::Refused
    }
}

/// Takes records for `target` from the buffer and encodes them; `None` if the buffer has none. `before` is a batch that
/// will be written first.
async fn encoded(
    work: &JobWork,
    writer: &PartitionWriter,
    target: WriteTarget,
    before: Option<&WriteBatch>,
) -> Result<Option<WriteBatch>, WriteFault> {
    let most = match target {
        WriteTarget::Deliver(_) => work.memory.object_bytes,
        WriteTarget::Offload { .. } => work.memory.chunk_bytes,
    };
    let taken = work.buffer.lock().take(work.destination_number(target.destination()), most);
    if taken.is_empty() {
        return Ok(None);
    }
    let batch = match target {
        WriteTarget::Deliver(group) => {
            let before = |partition| before.map_or(0, |batch| batch.objects_of(partition));
            let number = |partition| work.number_of(partition) + before(partition);
            writer.encode_objects(group, taken, number).await?
        }
        WriteTarget::Offload { .. } => writer.encode_run(target, taken, work.next_run()).await?,
    };
    Ok(Some(batch))
}

/// The pieces of a run, by partition, and the processing time.
async fn read_run(
    context: &Context,
    reads: MemoryReads,
    run: &OffloadedRun,
    blob: &Blob,
) -> Result<(Vec<(usize, RecordBatch)>, Duration), ReadFault> {
    let mut blobs = BlobReader::new(reads, PriorityClass::Background);
    let end = run.members.last().map_or(0, |(_, _, range)| range.end);
    let (mut pieces, mut processing) = (Vec::new(), Duration::ZERO);
    for (partition, key, range) in &run.members {
        let bytes = blobs.read(blob, range.clone(), end).await;
        let bytes = bytes.map_err(|source| ReadFault::Bytes { name: format!("run {key}"), source })?;
        let length = bytes.len() as u64;
        let Context { processor, clock, .. } = context;
        let (batches, took) = processor.work(&**clock, move || batch::decode_run(&bytes), |_| length).await;
        processing += took;
        pieces.extend(batches?.into_iter().map(|batch| (*partition, batch)));
    }
    Ok((pieces, processing))
}
