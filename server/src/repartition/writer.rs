//! Writing: partitions become objects in their destination groups, offloaded batches become runs in the awake group.
//!
//! Batches are encoded outside the runtime's threads, decoded again to compare ([`WriteBatch`]), and become a pack in
//! memory, which the world writes, reads back and commits. If the next batch is known, it is encoded while the rack
//! writes. Until a pack is committed its records count as buffered; they return to the buffer if the pack fails.

use super::buffer::PartitionBatches;
use super::checkpoint::{RunNote, Tally};
use super::places::KEY_BYTES_MAX;
use super::reader::Records;
use super::report::Place;
use crate::world::packed::{self, Buckets};
use crate::world::{Context, MakeError, WorldHandle, WriteOrder};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use batch::{Encoded, Encoder, Format, MultisetChecksum};
use bytes::Bytes;
use catalog::{Acl, Blob, Checksum, ChecksumKind, HIDDEN_BUCKET, Object, PartLengths, VersionId};
use engine::JobClass;
use engine::repartition::Order;
use model::GroupId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use workshop::{PackMember, PackPlan};

/// An offloaded run.
#[derive(Debug)]
pub(super) struct OffloadedRun {
    /// Distinguishes it from the job's others.
    pub number: u64,
    pub blob: Blob,
    /// Its members: partition, key in the hidden bucket, range in the blob.
    pub members: Vec<(usize, String, std::ops::Range<u64>)>,
    /// The bytes that were reported when it was offloaded.
    pub counted: u64,
    /// The checksum of its records.
    pub tally: MultisetChecksum,
}

/// The target of buffered batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteTarget {
    /// To their destination group, as objects.
    Deliver(GroupId),
    /// To another group, as a run.
    Offload {
        /// The group to write to.
        on: GroupId,
        /// Their destination group.
        target: GroupId,
    },
}

impl WriteTarget {
    /// The target of an order, if it is one to write.
    pub fn of(order: Order) -> Option<Self> {
        match order {
            Order::Deliver { group, .. } => Some(Self::Deliver(group)),
            Order::Offload { on, target, .. } => Some(Self::Offload { on, target }),
            Order::Read { .. } | Order::Refill { .. } | Order::Wait | Order::Done => None,
        }
    }

    /// The destination group of the batches.
    pub fn destination(self) -> GroupId {
        match self {
            Self::Deliver(group) => group,
            Self::Offload { target, .. } => target,
        }
    }

    /// The group to write to.
    pub fn on(self) -> GroupId {
        match self {
            Self::Deliver(group) => group,
            Self::Offload { on, .. } => on,
        }
    }
}

/// Batches that were taken from the buffer, and the objects that they are encoded as.
pub(super) struct WriteBatch {
    pub target: WriteTarget,
    pub taken: Vec<PartitionBatches>,
    /// The number of the run; 0 if the batch is delivered.
    run: u64,
    drafts: Vec<ObjectDraft>,
    /// The time that encoding took.
    pub processing: Duration,
}

impl WriteBatch {
    /// Bytes that were taken from the buffer.
    pub fn taken_bytes(&self) -> u64 {
        self.taken.iter().map(|taken| taken.bytes).sum()
    }

    /// The length of all objects.
    pub fn object_bytes(&self) -> u64 {
        self.drafts.iter().map(|draft| draft.bytes.len() as u64).sum()
    }

    /// The checksum of all objects' records.
    pub fn tally(&self) -> MultisetChecksum {
        self.drafts.iter().map(|draft| draft.tally).sum()
    }

    /// The partition of each object.
    pub fn partitions(&self) -> impl Iterator<Item = usize> + '_ {
        self.drafts.iter().map(|draft| draft.partition)
    }

    /// Adds to each member of a run a note with everything that a resumed job needs to know about the run.
    fn note(&mut self, chunk_bytes: u64) {
        let (target, members, tally) = (self.target.destination(), self.drafts.len() as u64, Tally::from(self.tally()));
        let counted = self.taken_bytes().clamp(1, chunk_bytes);
        for draft in &mut self.drafts {
            let note = RunNote { partition: draft.partition, target, counted, members, tally: tally.clone() };
            draft.note = serde_json::to_string(&note).unwrap_or_default(); // numbers and text can be written
        }
    }

    /// Number of objects of a partition.
    pub fn objects_of(&self, partition: usize) -> u64 {
        self.partitions().filter(|of| *of == partition).count() as u64
    }

    /// The run that it has become, for which `counted` bytes were reported.
    pub fn as_run(&self, blob: Blob, counted: u64) -> OffloadedRun {
        let mut at = 0;
        let member = |draft: &ObjectDraft| {
            let range = at..at + draft.bytes.len() as u64;
            at = range.end;
            (draft.partition, draft.hidden.clone(), range)
        };
        let members = self.drafts.iter().map(member).collect();
        assert!(at <= blob.payload_bytes, "the members of a run lie in its payload");
        OffloadedRun { number: self.run, blob, members, counted, tally: self.tally() }
    }
}

/// Why a batch was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteFault {
    /// It could not be encoded.
    #[error(transparent)]
    Records(#[from] batch::Error),
    /// It could not be written.
    #[error("writing to group {group}: {source}")]
    Make {
        /// The group.
        group: GroupId,
        /// The cause.
        source: MakeError,
    },
    /// The catalog failed, a key would be too long, or no pack can be made of the objects.
    #[error("{0}")]
    Other(String),
}

/// An object to be written.
struct ObjectDraft {
    partition: usize,
    /// Its key in the hidden bucket.
    hidden: String,
    /// Its final bucket; for a run, the hidden bucket.
    bucket: String,
    key: String,
    content_type: &'static str,
    bytes: Bytes,
    tally: MultisetChecksum,
    etag: String,
    /// CRC-64/NVME, as S3 writes it.
    crc_base64: String,
    /// For a member of a run, a [`RunNote`].
    note: String,
}

/// Writes for one class.
#[derive(Clone)]
pub(super) struct PartitionWriter {
    pub context: Context,
    pub world: WorldHandle,
    pub records: Arc<Records>,
    pub job: JobClass,
    pub to: Place,
    pub object_bytes: u64,
    /// The memory in which a job like this reads row groups.
    pub decoder_bytes: u64,
    /// The most that a run counts for.
    pub chunk_bytes: u64,
}

impl PartitionWriter {
    /// Encodes batches as objects for their destination group; `numbers` returns the number of each partition's next
    /// object.
    pub async fn encode_objects(
        &self,
        group: GroupId,
        taken: Vec<PartitionBatches>,
        numbers: impl Fn(usize) -> u64,
    ) -> Result<WriteBatch, WriteFault> {
        let (format, object_bytes) = (self.records.spec.output, self.object_bytes);
        let decoder_bytes = self.decoder_bytes;
        let (mut drafts, mut processing) = (Vec::new(), Duration::ZERO);
        for PartitionBatches { partition, batches, bytes } in &taken {
            let encode = move |schema: &SchemaRef, batches| {
                Encoder::objects(format, schema, batches, object_bytes).readable_within(decoder_bytes).collect()
            };
            let (encoded, took) = self.encoded((batches, *bytes), encode).await;
            processing += took;
            let name = self.records.name(*partition);
            let directory = if name.contains('=') { name } else { format!("part-{name}") };
            for (number, encoded) in (numbers(*partition)..).zip(encoded?) {
                let rest = format!("{directory}/{number:05}.{}", format.extension());
                let hidden = format!("{}{rest}", out_prefix(self.job.job.0));
                let key = format!("{}{rest}", self.to.prefix);
                drafts.push(encoded.draft(*partition, hidden, (self.to.bucket.clone(), key), content_type(format)));
            }
        }
        if let Some(long) = drafts.iter().find(|draft| draft.key.len() > KEY_BYTES_MAX) {
            let (key, bytes) = (&long.key, long.key.len());
            return Err(WriteFault::Other(format!(
                "{key} would be a key of {bytes} bytes, and {KEY_BYTES_MAX} are allowed; write to a shorter prefix"
            )));
        }
        Ok(WriteBatch { target: WriteTarget::Deliver(group), taken, run: 0, drafts, processing })
    }

    /// Encodes batches as a run; `number` distinguishes it from the job's others.
    pub async fn encode_run(
        &self,
        target: WriteTarget,
        taken: Vec<PartitionBatches>,
        number: u64,
    ) -> Result<WriteBatch, WriteFault> {
        let (mut drafts, mut processing) = (Vec::new(), Duration::ZERO);
        for PartitionBatches { partition, batches, bytes } in &taken {
            let encode = |schema: &SchemaRef, batches| Encoder::runs(schema, batches, u64::MAX).collect();
            let (encoded, took) = self.encoded((batches, *bytes), encode).await;
            processing += took;
            for (part, encoded) in encoded?.into_iter().enumerate() {
                let hidden = format!("{}{number:08}/{partition:05}.{part}", run_prefix(self.job.job.0));
                let place = (HIDDEN_BUCKET.into(), hidden.clone());
                drafts.push(encoded.draft(*partition, hidden, place, "application/vnd.apache.arrow.stream"));
            }
        }
        let mut batch = WriteBatch { target, taken, run: number, drafts, processing };
        batch.note(self.chunk_bytes);
        Ok(batch)
    }

    /// Encodes batches of a partition, which take `bytes` of the buffer; also returns the processing time.
    async fn encoded(
        &self,
        (batches, bytes): (&[RecordBatch], u64),
        encode: impl FnOnce(&SchemaRef, Vec<RecordBatch>) -> Result<Vec<Encoded>, batch::Error> + Send + 'static,
    ) -> (Result<Vec<Summed>, batch::Error>, Duration) {
        let Some(schema) = batches.first().map(RecordBatch::schema) else { return (Ok(Vec::new()), Duration::ZERO) };
        let batches = batches.to_vec();
        let encode = move || Ok(encode(&schema, batches)?.into_iter().map(Summed::of).collect());
        let Context { processor, clock, .. } = &self.context;
        processor.work(&**clock, encode, |_| bytes).await
    }

    /// Writes a batch to its target.
    pub async fn write(&self, batch: &WriteBatch) -> Result<Blob, WriteFault> {
        let group = batch.target.on();
        let (mut members, mut keys, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let mut buckets = Buckets::default();
        // The records of the objects come with the blob; no earlier record can be newer.
        let sequence = self.context.catalog.sequence();
        for draft in &batch.drafts {
            let version = self.context.catalog.next_version_id().await;
            let version = version.map_err(|error| WriteFault::Other(format!("catalog: {error}")))?;
            let object = draft.object(version, (self.context.wall)());
            let (bucket, key) = (draft.bucket.clone(), draft.key.clone());
            let attributes = packed::attributes(&self.context, &mut buckets, &bucket, &object, sequence).await;
            let attributes = attributes.map_err(|error| WriteFault::Other(format!("catalog: {error}")))?;
            members.push(PackMember { bucket, key, object, attributes, slots: Vec::new() });
            keys.push(draft.hidden.clone());
            bytes.push(draft.bytes.clone());
        }
        assert_eq!(keys.len(), batch.drafts.len(), "each object has its key in the hidden bucket");
        let plan = PackPlan::new(members).map_err(|error| WriteFault::Other(error.to_string()))?;
        let (answer, answered) = oneshot::channel();
        self.world.write(WriteOrder { pack: Arc::new(plan.of_memory(bytes)), group, keys, job: self.job, answer });
        let closing = || MakeError::Refused(engine::Rejection::Closing);
        let made = answered.await.unwrap_or_else(|_| Err(closing()));
        made.map_err(|source| WriteFault::Make { group, source })
    }
}

/// Encoded records, and their checksums.
pub(super) struct Summed {
    encoded: Encoded,
    etag: String,
    crc_base64: String,
}

impl Summed {
    pub fn of(encoded: Encoded) -> Self {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &encoded.bytes);
        let crc_base64 = base64_simd::STANDARD.encode_to_string(crc.to_be_bytes());
        Self { etag: s3::etag_of(&encoded.bytes), crc_base64, encoded }
    }

    fn draft(
        self,
        partition: usize,
        hidden: String,
        place: (String, String),
        content_type: &'static str,
    ) -> ObjectDraft {
        let Self { encoded: Encoded { bytes, tally, .. }, etag, crc_base64 } = self;
        let (bucket, key) = place;
        ObjectDraft {
            partition,
            hidden,
            bucket,
            key,
            content_type,
            bytes,
            tally,
            etag,
            crc_base64,
            note: String::new(),
        }
    }
}

/// The prefix of a job's objects in the hidden bucket.
pub(super) fn prefix(job: u64) -> String {
    format!("{job:010}/")
}

/// The prefix of its output.
pub(super) fn out_prefix(job: u64) -> String {
    format!("{}out/", prefix(job))
}

/// The prefix of its runs.
pub(super) fn run_prefix(job: u64) -> String {
    format!("{}run/", prefix(job))
}

impl ObjectDraft {
    /// Its S3 record, as if it had been put.
    fn object(&self, version: VersionId, modified_ms: u64) -> Object {
        Object {
            version,
            bytes: self.bytes.len() as u64,
            etag: self.etag.clone(),
            modified_ms,
            created_ms: modified_ms,
            headers: vec![("content-type".into(), self.content_type.into())],
            metadata: if self.note.is_empty() { Vec::new() } else { vec![("run".into(), self.note.clone())] },
            checksums: vec![Checksum { kind: ChecksumKind::Crc64Nvme, base64: self.crc_base64.clone() }],
            acl: Acl::Private,
            tags: Vec::new(),
            parts: PartLengths::default(),
        }
    }
}

fn content_type(format: Format) -> &'static str {
    match format {
        Format::Parquet => "application/vnd.apache.parquet",
        Format::Csv => "text/csv",
        Format::Ndjson => "application/x-ndjson",
        Format::Lines => "text/plain",
        Format::Fixed { .. } => "application/octet-stream",
    }
}
