//! Writing: partitions as objects, runs as what they are, each blob in the group it is wanted in.
//!
//! Batches are encoded where they keep nobody waiting, and read back from what was encoded; the bytes then become a
//! pack in memory, which the world writes, reads back and commits. Until that is done everything that was taken counts
//! as buffered, and goes back there if the write comes to nothing.

use super::buffer::Taken;
use super::plan::KEY_BYTES_MAX;
use super::reader::{Records, heavy};
use super::report::Place;
use crate::s3;
use crate::world::{MakeError, Means, Ticket, WorldHandle, WriteOrder};
use arrow::array::RecordBatch;
use batch::{Encoded, Encoder, Format, Tally};
use bytes::Bytes;
use catalog::{Acl, Blob, Checksum, ChecksumKind, HIDDEN_BUCKET, Object, PartLengths, VersionId};
use model::GroupId;
use std::sync::Arc;
use tokio::sync::oneshot;
use workshop::{PackMember, PackPlan};

/// A run that lies offloaded.
#[derive(Debug)]
pub(super) struct Run {
    pub blob: Blob,
    /// Its members: partition, key in the hidden bucket, where in the blob.
    pub members: Vec<(usize, String, std::ops::Range<u64>)>,
    /// What the plan knows of it.
    pub counted: u64,
}

/// Objects that are written.
#[derive(Debug, Default)]
pub(super) struct Wrote {
    pub bytes: u64,
    pub tally: Tally,
    /// How many objects of each partition.
    pub objects: Vec<(usize, u64)>,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteFault {
    /// It could not be encoded.
    #[error(transparent)]
    Records(#[from] batch::Error),
    /// It could not be written.
    #[error("writing to group {group}: {source}")]
    Make {
        /// Where.
        group: GroupId,
        /// Why.
        source: MakeError,
    },
    /// The catalog gives no numbers, or there is no pack of this.
    #[error("{0}")]
    Other(String),
}

/// An object that is to be written.
struct Draft {
    partition: usize,
    /// Its key in the hidden bucket.
    hidden: String,
    /// Where it shall be; of a run, in the hidden bucket as well.
    bucket: String,
    key: String,
    content_type: &'static str,
    bytes: Bytes,
}

/// Writes for one class.
#[derive(Clone)]
pub(super) struct Writer {
    pub means: Means,
    pub world: WorldHandle,
    pub ticket: Arc<Ticket>,
    pub records: Arc<Records>,
    pub job: u64,
    pub to: Place,
    pub object_bytes: u64,
    /// What a job like this reads row groups into.
    pub decoder_bytes: u64,
}

impl Writer {
    /// Writes what was taken to its home as objects; `numbers` tells the number of a partition's next object.
    pub async fn bring_home(
        &self,
        group: GroupId,
        taken: &[Taken],
        numbers: impl Fn(usize) -> u64,
    ) -> Result<Wrote, WriteFault> {
        let format = self.records.spec.output;
        let (object_bytes, decoder_bytes) = (self.object_bytes, self.decoder_bytes);
        let mut wrote = Wrote::default();
        let mut drafts = Vec::new();
        for Taken { partition, batches, .. } in taken {
            let encoded = self.encode(batches.clone(), move |schema, batches| {
                Encoder::objects(format, schema, batches, object_bytes).readable_within(decoder_bytes).collect()
            });
            let name = self.records.name(*partition);
            let directory = if name.contains('=') { name } else { format!("part-{name}") };
            let first = numbers(*partition);
            let encoded = encoded.await?;
            wrote.objects.push((*partition, encoded.len() as u64));
            for (number, Encoded { bytes, tally, .. }) in (first..).zip(encoded) {
                wrote.bytes += bytes.len() as u64;
                wrote.tally += tally;
                let rest = format!("{directory}/{number:05}.{}", format.extension());
                drafts.push(Draft {
                    partition: *partition,
                    hidden: format!("{}{rest}", out_prefix(self.job)),
                    bucket: self.to.bucket.clone(),
                    key: format!("{}{rest}", self.to.prefix),
                    content_type: content_type(format),
                    bytes,
                });
            }
        }
        if let Some(long) = drafts.iter().find(|draft| draft.key.len() > KEY_BYTES_MAX) {
            let (key, bytes) = (&long.key, long.key.len());
            return Err(WriteFault::Other(format!(
                "{key} would be a key of {bytes} bytes, and {KEY_BYTES_MAX} are allowed; write to a shorter prefix"
            )));
        }
        self.make(group, drafts).await?;
        Ok(wrote)
    }

    /// Writes what was taken as a run; `number` tells it from the job's others.
    pub async fn offload(&self, on: GroupId, taken: &[Taken], number: u64, counted: u64) -> Result<Run, WriteFault> {
        let mut drafts = Vec::new();
        for Taken { partition, batches, .. } in taken {
            let encoded =
                self.encode(batches.clone(), |schema, batches| batch::encode_run(schema, batches, u64::MAX)).await?;
            for (part, Encoded { bytes, .. }) in encoded.into_iter().enumerate() {
                let hidden = format!("{}{number:08}/{partition:05}.{part}", run_prefix(self.job));
                drafts.push(Draft {
                    partition: *partition,
                    key: hidden.clone(),
                    hidden,
                    bucket: HIDDEN_BUCKET.into(),
                    content_type: "application/vnd.apache.arrow.stream",
                    bytes,
                });
            }
        }
        let told: Vec<_> =
            drafts.iter().map(|draft| (draft.partition, draft.hidden.clone(), draft.bytes.len())).collect();
        let blob = self.make(on, drafts).await?;
        let mut at = 0;
        let member = |(partition, key, bytes): (usize, String, usize)| {
            let range = at..at + bytes as u64;
            at = range.end;
            (partition, key, range)
        };
        Ok(Run { blob, members: told.into_iter().map(member).collect(), counted })
    }

    async fn encode(
        &self,
        batches: Vec<RecordBatch>,
        encode: impl FnOnce(&arrow::datatypes::SchemaRef, Vec<RecordBatch>) -> Result<Vec<Encoded>, batch::Error>
        + Send
        + 'static,
    ) -> Result<Vec<Encoded>, batch::Error> {
        let Some(schema) = batches.first().map(RecordBatch::schema) else { return Ok(Vec::new()) };
        heavy(move || encode(&schema, batches)).await
    }

    async fn make(&self, group: GroupId, drafts: Vec<Draft>) -> Result<Blob, WriteFault> {
        let (mut members, mut keys, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for draft in drafts {
            let version = self.means.catalog.next_version_id().await;
            let version = version.map_err(|error| WriteFault::Other(format!("catalog: {error}")))?;
            let (modified_ms, body) = ((self.means.wall)(), draft.bytes.clone());
            let object = heavy(move || object(version, modified_ms, draft.content_type, &body)).await;
            members.push(PackMember { bucket: draft.bucket, key: draft.key, object, slots: Vec::new() });
            keys.push(draft.hidden);
            bytes.push(draft.bytes);
        }
        let plan = PackPlan::new(members).map_err(|error| WriteFault::Other(error.to_string()))?;
        let (answer, answered) = oneshot::channel();
        let ticket = Arc::clone(&self.ticket);
        self.world.write(WriteOrder { pack: Arc::new(plan.of_memory(bytes)), group, keys, ticket, answer });
        let closing = || MakeError::Refused(engine::Rejection::Closing);
        let made = answered.await.unwrap_or_else(|_| Err(closing()));
        made.map_err(|source| WriteFault::Make { group, source })
    }
}

/// What is written of a job, in the hidden bucket.
pub(super) fn prefix(job: u64) -> String {
    format!("{job:010}/")
}

/// Its output.
pub(super) fn out_prefix(job: u64) -> String {
    format!("{}out/", prefix(job))
}

fn run_prefix(job: u64) -> String {
    format!("{}run/", prefix(job))
}

/// What S3 knows of an object of these bytes, as if it had been put.
fn object(version: VersionId, modified_ms: u64, content_type: &str, bytes: &Bytes) -> Object {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
    let base64 = base64_simd::STANDARD.encode_to_string(crc.to_be_bytes());
    Object {
        version,
        bytes: bytes.len() as u64,
        etag: s3::etag_of(bytes),
        modified_ms,
        headers: vec![("content-type".into(), content_type.into())],
        metadata: Vec::new(),
        checksums: vec![Checksum { kind: ChecksumKind::Crc64Nvme, base64 }],
        acl: Acl::Private,
        tags: Vec::new(),
        parts: PartLengths::default(),
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
