//! Reading in one class: from objects, in storage order, to pieces by partition.
//!
//! An order is carried out object by object and, within an object, by the requests of its decoder: a few MiB of a row
//! format, a row group of Parquet. The records of each request are split at once and go into the buffer, up to the
//! chunk limit. The rest comes first with the next order, on any group, so at most one request has records pending.
//!
//! Input counts as read when its output is in the buffer. Input of another group that is finished during an order is
//! owed, and reported with that group's next order.
//!
//! Invariants: all input of a group is reported once, and never more than exists.

use super::buffer::{PartitionBuffer, Unreported};
use super::checkpoint::{OpenInputs, RecordsLearned};
use super::input::{Input, ReadInput};
use super::source::{BlobReader, GAP_BYTES, InputSource, Opened, SourceError, open};
use crate::world::{Context, quarantine};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use batch::{Decoder, MultisetChecksum, Need, Partitioner, Spec, conform, held_bytes, multiset_checksum};
use bytes::Bytes;
use engine::Rejection;
use model::GroupId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Objects of up to this size are read at once, though their decoder may ask for their end first.
const WHOLE_BYTES: u64 = 4 << 20;

/// The records of a job, shared by its classes: how they are split, and their checksum.
pub(super) struct Records {
    /// The bucket of the input.
    pub bucket: String,
    pub spec: Spec,
    splitter: OnceLock<Splitter>,
}

/// The partitioner, and the schema and name of the first object, for which it was made.
struct Splitter {
    partitioner: Partitioner,
    schema: SchemaRef,
    first: String,
    /// The schema of the output, once there is a piece.
    output: OnceLock<SchemaRef>,
}

impl Records {
    /// Records of the objects of `bucket`.
    pub fn new(bucket: &str, spec: Spec) -> Self {
        Self { bucket: bucket.to_owned(), spec, splitter: OnceLock::new() }
    }

    /// The pieces of a batch of the object `name`.
    fn split(&self, name: &str, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>, batch::Error> {
        if self.splitter.get().is_none() {
            let schema = batch.schema();
            let partitioner = Partitioner::new(&self.spec, &schema)?;
            // Another class may have set it first; then its columns are the reference.
            let first = name.to_owned();
            let _ = self.splitter.set(Splitter { partitioner, schema, first, output: OnceLock::new() });
        }
        let known = self.splitter.get().expect("somebody has set it");
        let batch = conform((&known.first, &known.schema), (name, batch))?;
        let pieces = known.partitioner.split(&batch)?;
        let Some((_, piece)) = pieces.first() else { return Ok(pieces) };
        let output = known.output.get_or_init(|| piece.schema());
        pieces.into_iter().map(|(partition, piece)| Ok((partition, noted(piece, output)?))).collect()
    }

    /// The columns and values of the records so far, if any were split.
    pub fn learned(&self) -> Result<Option<RecordsLearned>, batch::Error> {
        let Some(known) = self.splitter.get() else { return Ok(None) };
        let text = |schema: &SchemaRef| {
            Ok::<_, batch::Error>(base64_simd::STANDARD.encode_to_string(batch::schema_to_bytes(schema)?))
        };
        let output = known.output.get().map(text).transpose()?;
        let (first, schema) = (known.first.clone(), text(&known.schema)?);
        Ok(Some(RecordsLearned { first, schema, output, learned: known.partitioner.learned() }))
    }

    /// Resumes with the knowledge about records of this checksum, which were split before a restart.
    ///
    /// # Errors
    /// If `known` does not come from [`Records::learned`].
    pub fn go_on_from(&self, known: &RecordsLearned, tally: MultisetChecksum) -> Result<(), batch::Error> {
        let schema = |text: &String| {
            let bytes = base64_simd::STANDARD.decode_to_vec(text);
            batch::schema_from_bytes(&bytes.unwrap_or_default())
        };
        let input = schema(&known.schema)?;
        let partitioner = Partitioner::new(&self.spec, &input)?;
        partitioner.go_on_from(&known.learned, tally);
        let output = OnceLock::new();
        if let Some(text) = &known.output {
            let _ = output.set(schema(text)?); // it is new
        }
        let splitter = Splitter { partitioner, schema: input, first: known.first.clone(), output };
        assert!(self.splitter.set(splitter).is_ok(), "nothing was split before");
        Ok(())
    }

    /// The checksum of all records that were split.
    pub fn tally(&self) -> MultisetChecksum {
        self.splitter.get().map(|known| known.partitioner.tally()).unwrap_or_default()
    }

    /// The name of a partition in keys.
    pub fn name(&self, partition: usize) -> String {
        self.splitter.get().map(|known| known.partitioner.name(partition)).unwrap_or_default()
    }

    /// Final check, once everything was split.
    pub fn finish(&self) -> Result<(), batch::Error> {
        self.splitter.get().map_or(Ok(()), |known| known.partitioner.finish())
    }
}

/// The piece with the schema metadata of the set's first object: batches that are joined need the same schema.
fn noted(piece: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, batch::Error> {
    if piece.schema_ref() == schema {
        return Ok(piece);
    }
    let rows = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
    let noted = RecordBatch::try_new_with_options(Arc::clone(schema), piece.columns().to_vec(), &rows);
    noted.map_err(|error| batch::Error::Columns { doing: "joining", reason: error.to_string() })
}

/// An object that is being read.
struct OpenInput {
    group: GroupId,
    input: Input,
    name: String,
    source: InputSource,
    decoder: Decoder,
    /// Bytes given to the decoder.
    given: u64,
    /// The end of the last range fetched.
    fetched_to: u64,
    /// Bytes that were reported, or are owed.
    reported: u64,
    /// True if the decoder may have more records from the bytes it was given.
    busy: bool,
    /// Pieces of a batch that did not fit into the chunk.
    pending: Vec<(usize, RecordBatch)>,
    /// Records of the batch that the pieces belong to.
    pending_records: u64,
    /// Records that were taken before a restart, and are skipped.
    skip: u64,
    /// Records taken: their output is buffered or already written.
    taken: u64,
    /// All bytes of a small object whose decoder asks for several ranges.
    whole: Option<Bytes>,
}

/// The result of a read order.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Bytes read of the input of the order's group.
    pub input_bytes: u64,
    /// Bytes of it that were gone.
    pub lost_bytes: u64,
    /// Bytes that the order put into the buffer.
    pub unreported: Unreported,
    /// Objects that were gone.
    pub lost_objects: u64,
    /// Versions read to their end.
    pub read: Vec<ReadInput>,
    /// Records read.
    pub rows: u64,
    /// Processing time of the records.
    pub processing: Duration,
    /// Why the order ended early.
    pub fault: Option<ReadFault>,
}

/// Why a read order ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadFault {
    /// The bytes could not be fetched.
    #[error("{name}: {source}")]
    Bytes {
        /// The object.
        name: String,
        /// The cause.
        source: SourceError,
    },
    /// The records are not as they should be.
    #[error(transparent)]
    Records(#[from] batch::Error),
}

/// The memory limits of reading.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_field_names)] // units last, as everywhere
pub(super) struct Limits {
    /// The most output of one order.
    pub chunk_bytes: u64,
    /// The buffer size that a decoder assumes.
    pub decoder_bytes: u64,
    /// The memory of the whole job.
    pub memory_bytes: u64,
}

/// Reads the input of one class.
pub(super) struct InputReader {
    context: Context,
    records: Arc<Records>,
    blobs: BlobReader,
    queues: BTreeMap<GroupId, VecDeque<Input>>,
    open: BTreeMap<GroupId, OpenInput>,
    owed: BTreeMap<GroupId, u64>,
    /// Objects that were open before a restart.
    open_before: OpenInputs,
    /// The group that was read last.
    last: Option<GroupId>,
    limits: Limits,
}

/// `Continue`, or `Break` if the order is done as far as is possible.
type Step = ControlFlow<()>;

impl InputReader {
    pub fn new(
        context: Context,
        records: Arc<Records>,
        blobs: BlobReader,
        (queues, open_before): (BTreeMap<GroupId, VecDeque<Input>>, OpenInputs),
        limits: Limits,
    ) -> Self {
        let (open, owed) = (BTreeMap::new(), BTreeMap::new());
        Self { context, records, blobs, queues, open, owed, open_before, last: None, limits }
    }

    /// The open objects, with the number of records taken from each, and the checksum of records that were split and
    /// not taken.
    pub fn open_inputs(&self) -> Result<(OpenInputs, MultisetChecksum), batch::Error> {
        let mut pending = MultisetChecksum::default();
        for (_, piece) in self.open.values().flat_map(|open| &open.pending) {
            pending += multiset_checksum(piece)?;
        }
        let queued = self.queues.values().flatten().map(|input| input.version);
        let mut open: OpenInputs =
            queued.filter_map(|version| Some((version, *self.open_before.get(&version)?))).collect();
        // An object that is still skipping records is where it was before.
        open.extend(self.open.values().map(|open| (open.input.version, open.taken + open.skip)));
        open.retain(|_, records| *records > 0);
        Ok((open, pending))
    }

    /// Ends its operation in service: the class does something else now, perhaps for a long time.
    pub fn rest(&mut self) {
        self.blobs.close();
    }

    /// Reads about `bytes` of input on `group` into `buffer`.
    pub async fn read(&mut self, group: GroupId, bytes: u64, buffer: &Mutex<PartitionBuffer>) -> Done {
        if self.last.replace(group) != Some(group) {
            self.blobs.close();
        }
        let mut done = Done { input_bytes: self.owed.remove(&group).unwrap_or(0), ..Done::default() };
        loop {
            match self.step(group, bytes, buffer, &mut done).await {
                Ok(Step::Continue(())) => {}
                Ok(Step::Break(())) => return done,
                Err(fault) => {
                    done.fault = Some(fault);
                    return done;
                }
            }
        }
    }

    async fn step(
        &mut self,
        group: GroupId,
        bytes: u64,
        buffer: &Mutex<PartitionBuffer>,
        done: &mut Done,
    ) -> Result<Step, ReadFault> {
        let busy = self.open.iter().find(|(_, open)| open.busy).map(|(group, _)| *group);
        if let Some(busy) = busy {
            let began = self.context.clock.now();
            let drained = self.drain(busy, group, buffer, done).await;
            done.processing += self.context.clock.now().since(began);
            return drained;
        }
        let budget = bytes.saturating_sub(done.input_bytes + done.lost_bytes);
        if budget == 0 {
            return Ok(Step::Break(()));
        }
        if !self.open.contains_key(&group) {
            return self.begin(group, done).await;
        }
        self.ask(group, budget, done).await
    }

    /// Opens the next object of the group.
    async fn begin(&mut self, group: GroupId, done: &mut Done) -> Result<Step, ReadFault> {
        let queue = self.queues.entry(group).or_default();
        let Some(input) = queue.front().cloned() else { return Ok(Step::Break(())) };
        let found = open(&self.context, &self.records.bucket, &input).await;
        let found = found.map_err(|source| ReadFault::Bytes { name: "an object of the input".into(), source })?;
        queue.pop_front();
        let Some(Opened { name, source }) = found else {
            done.lost_objects += 1;
            done.lost_bytes += input.bytes;
            return Ok(Step::Continue(()));
        };
        let decoder = Decoder::open(&self.records.spec, input.bytes, self.limits.decoder_bytes);
        let open = OpenInput {
            group,
            name,
            source,
            decoder,
            given: 0,
            fetched_to: 0,
            reported: 0,
            busy: true,
            pending: Vec::new(),
            pending_records: 0,
            skip: self.open_before.remove(&input.version).unwrap_or(0),
            taken: 0,
            input,
            whole: None,
        };
        self.open.insert(group, open);
        Ok(Step::Continue(()))
    }

    /// Gives the decoder of the group's object the bytes that it asks for.
    async fn ask(&mut self, group: GroupId, budget: u64, done: &mut Done) -> Result<Step, ReadFault> {
        let Some(open) = self.open.get_mut(&group) else { return Ok(Step::Break(())) };
        let need = open.decoder.next().map_err(|error| error.at(&open.name, open.decoder.records_before()))?;
        let Need::Bytes(range) = need else { unreachable!("a decoder that is not busy asks for bytes") };
        // The bytes given before are in the buffer now, unless they are part of a row group. A row group is read to its
        // end, so that no other object of the class takes memory meanwhile.
        assert!(open.reported <= open.given && open.given <= open.input.bytes, "no more is reported than was read");
        let finished = open.given - open.reported;
        if finished > 0 && open.decoder.held_bytes() == 0 {
            open.reported = open.given;
            done.input_bytes += finished;
            if finished >= budget {
                return Ok(Step::Break(()));
            }
        }
        let ahead = open.input.together(self.queues.get(&group).into_iter().flatten(), budget);
        let bytes = match open.fetch(&mut self.blobs, range.clone(), ahead).await {
            Ok(bytes) => bytes,
            Err(source) => {
                quarantine_source(&self.context, &self.records.bucket, &open.input, &source).await;
                return Err(ReadFault::Bytes { name: open.name.clone(), source });
            }
        };
        open.given = (open.given + bytes.len() as u64).min(open.input.bytes);
        open.decoder.give(&range, bytes);
        open.busy = true;
        Ok(Step::Continue(()))
    }

    /// Takes records from the decoder of `busy`'s object, one batch at a time, for an order on `group`.
    async fn drain(
        &mut self,
        busy: GroupId,
        group: GroupId,
        buffer: &Mutex<PartitionBuffer>,
        done: &mut Done,
    ) -> Result<Step, ReadFault> {
        let Some(mut open) = self.open.remove(&busy) else { return Ok(Step::Break(())) };
        if !open.pending.is_empty() {
            let fits = self.deposit(&mut open, buffer, done);
            self.open.insert(busy, open);
            return fits;
        }
        let records = Arc::clone(&self.records);
        let decode = move || {
            let mut decoded = 0;
            let need = open.decoder.next().and_then(|need| match need {
                Need::Batch(batch) => {
                    decoded = held_bytes(&batch);
                    let skipped = open.skip.min(batch.num_rows() as u64);
                    open.skip -= skipped;
                    open.taken += skipped;
                    let left = batch.slice(skipped as usize, batch.num_rows() - skipped as usize);
                    open.pending_records = left.num_rows() as u64;
                    open.pending = records.split(&open.name, &left)?;
                    Ok(Need::Batch(batch.slice(0, 0)))
                }
                other => Ok(other),
            });
            let need = need.map_err(|error| error.at(&open.name, open.decoder.records_before()));
            (open, need, decoded)
        };
        let Context { processor, clock, .. } = &self.context;
        let ((mut open, need, _), _) = processor.work(&**clock, decode, |(_, _, decoded)| *decoded).await;
        match need? {
            Need::Batch(_) => {
                let fits = self.deposit(&mut open, buffer, done);
                self.open.insert(busy, open);
                fits
            }
            Need::Bytes(_) => {
                open.busy = false;
                self.open.insert(busy, open);
                Ok(Step::Continue(()))
            }
            Need::End => {
                assert!(open.pending.is_empty(), "an object ends when all of it is in the buffer");
                let rest = open.input.bytes - open.reported;
                if open.group == group {
                    done.input_bytes += rest;
                } else {
                    *self.owed.entry(open.group).or_default() += rest;
                }
                done.read.push((open.input.version, Arc::clone(&open.input.key)));
                Ok(Step::Continue(()))
            }
        }
    }

    /// Puts pieces into the buffer if the chunk limit allows it; otherwise the order has done enough.
    fn deposit(
        &self,
        open: &mut OpenInput,
        buffer: &Mutex<PartitionBuffer>,
        done: &mut Done,
    ) -> Result<Step, ReadFault> {
        let bytes: u64 = open.pending.iter().map(|(_, piece)| held_bytes(piece)).sum();
        if done.unreported.bytes() + bytes > self.limits.chunk_bytes {
            if done.unreported.bytes() > 0 {
                return Ok(Step::Break(()));
            }
            let Limits { chunk_bytes, memory_bytes: buffer_bytes, .. } = self.limits;
            let needed_bytes = bytes * buffer_bytes.div_ceil(chunk_bytes);
            return Err(batch::Error::BufferTooSmall { buffer_bytes, needed_bytes }.into());
        }
        let mut buffer = buffer.lock();
        for (partition, piece) in open.pending.drain(..) {
            done.rows += piece.num_rows() as u64;
            buffer.put(partition, piece, &mut done.unreported)?;
        }
        open.taken += std::mem::take(&mut open.pending_records);
        Ok(Step::Continue(()))
    }
}

/// Quarantines an object that a retry would not make readable, so that no other job begins with it.
async fn quarantine_source(context: &Context, bucket: &str, input: &Input, error: &SourceError) {
    let reason = match error {
        SourceError::Staged(error) if quarantine::blames_file(error) => error.to_string(),
        SourceError::Refused(reason @ Rejection::DataLost) => reason.text().to_owned(),
        _ => return,
    };
    let found = context.catalog.placed_objects(&[(bucket, &input.key)]).await.ok().and_then(|mut found| found.pop()?);
    if let Some(found) = found.filter(|found| found.object.version == input.version) {
        quarantine::quarantine(context, &found.version(bucket, &input.key), &reason).await;
    }
}

impl OpenInput {
    /// The bytes `range` of the object. The bytes after it in its blob are read along up to `ahead`, if they will be
    /// asked for next: a decoder that begins at the end of its object jumps back.
    async fn fetch(&mut self, blobs: &mut BlobReader, range: Range<u64>, ahead: u64) -> Result<Bytes, SourceError> {
        let goes_on = [0, self.fetched_to].into_iter().any(|from| (from..=from + GAP_BYTES).contains(&range.start));
        let ahead = if goes_on { ahead } else { 0 };
        self.fetched_to = range.end;
        if self.whole.is_none() && self.input.bytes <= WHOLE_BYTES && range.end - range.start < self.input.bytes {
            let whole = self.source.fetch(blobs, 0..self.input.bytes, ahead).await?;
            self.whole = Some(whole);
        }
        match &self.whole {
            Some(whole) => Ok(whole.slice(range.start as usize..range.end as usize)),
            None => self.source.fetch(blobs, range, ahead).await,
        }
    }
}
