//! A sample of the input: some records are processed as the job would process all of them, and the results are
//! measured. So no plan is made for columns that do not exist, or for output that cannot be written.
//!
//! Choice of objects: input in the workshop, else input on a group that is awake; else one group wakes. With a filter,
//! several groups are sampled, since the records that it keeps may be stored together. Objects are evenly spaced in
//! their group, and places in their object: the first records, and then pieces that begin at the next line or record,
//! or row groups of Parquet.
//!
//! Records pass through the job's own decoder, filter, partitioner and encoder, and the time is measured. Only the
//! first place of an object is known to be whole. Elsewhere a line may begin within a quoted field, so records that
//! cannot be read there are left out.
//!
//! Memory: a batch, kept records of [`KEPT_BYTES`], their copy and their encoding; for Parquet also a row group.

use super::input::Input;
use super::report::{Pace, Sample};
use super::source::{BlobReader, InputSource, Opened, SourceError, open};
use super::writer::Summed;
use crate::world::{Context, MemoryReads, WorldHandle};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::Schema;
use arrow_select::concat::concat_batches;
use batch::{Decoder, Encoded, Encoder, Format, Need, Partitioner, Spec, held_bytes};
use bytes::{Bytes, BytesMut};
use engine::{GroupState, PriorityClass};
use model::GroupId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Objects sampled, over all groups.
const OBJECTS: usize = 8;
/// Groups sampled if there is a filter.
const GROUPS: usize = 4;
/// Places in an object.
const PLACES: usize = 4;
/// The length of a place in an object of consecutive records; for Parquet, of its records in memory.
const PLACE_BYTES: u64 = 256 << 10;
/// Objects of at most this size are sampled as a whole.
const WHOLE_BYTES: u64 = 2 * PLACES as u64 * PLACE_BYTES;
/// Memory of kept records, in bytes, before they are encoded together.
const KEPT_BYTES: u64 = 8 << 20;

/// The input to sample, and the world and priority by which to read it.
pub(super) struct Sampling<'a> {
    pub context: &'a Context,
    pub world: &'a WorldHandle,
    /// The priority of the reads.
    pub priority: PriorityClass,
    /// The bucket of the input.
    pub bucket: &'a str,
    pub spec: &'a Spec,
    /// The buffer size that a decoder assumes.
    pub decoder_bytes: u64,
    pub by_group: &'a BTreeMap<GroupId, Vec<Input>>,
    pub workshop: &'a [Input],
}

/// A sample, if any object could be read, and a warning about what it leaves open.
pub(super) type Sampled = (Option<Sample>, Option<String>);

impl Sampling<'_> {
    /// Takes the sample.
    ///
    /// # Errors
    /// Why the job would fail, in words.
    pub async fn take(&self) -> Result<Sampled, String> {
        let reads = MemoryReads::new(self.context.clone(), self.world.clone());
        let mut blobs = BlobReader::new(reads, self.priority);
        let (mut measured, mut unread) = (SampleFigures::default(), None);
        for input in self.chosen().await {
            let Ok(Some(mut opened)) = open(self.context, self.bucket, input).await else { continue };
            match self.look(input, &mut opened, &mut blobs, &mut measured).await {
                Ok(()) => {
                    measured.sample.objects += 1;
                    if measured.first.is_empty() {
                        measured.first = opened.name;
                    }
                }
                Err(SampleFault::Bytes(error)) => {
                    unread = Some(format!("{} could not be sampled: {error}", opened.name));
                }
                Err(SampleFault::Records(message)) => return Err(message),
            }
        }
        let looked_at = measured.sample.records > 0;
        let missing = measured.missing_key();
        let encoded = measured.encode(self).await;
        let sample = match encoded {
            Ok(sample) => Some(sample).filter(|_| looked_at),
            Err(error) => {
                unread = Some(format!("the input could not be sampled: {error}"));
                None
            }
        };
        Ok((sample, missing.or(unread)))
    }

    /// Samples an object, in several places.
    async fn look(
        &self,
        input: &Input,
        opened: &mut Opened,
        blobs: &mut BlobReader,
        measured: &mut SampleFigures,
    ) -> Result<(), SampleFault> {
        let is_parquet = self.spec.format == Format::Parquet;
        let places = if is_parquet || input.bytes > WHOLE_BYTES { PLACES } else { 1 };
        let mut header = Bytes::new();
        for place in 0..places {
            if place == 0 || is_parquet {
                let decoder = Decoder::open(self.spec, input.bytes, self.decoder_bytes).in_place(place, places);
                let most = if places == 1 { u64::MAX } else { PLACE_BYTES };
                let bytes = SampleSource::Object { name: &opened.name, source: &mut opened.source, blobs };
                let (decoder, read) = self.read(decoder, bytes, most, measured).await?;
                header = decoder.schema().map(|schema| header_of(self.spec.format, &schema)).unwrap_or_default();
                measured.sample.input_bytes += if place == 0 { header.len() as u64 } else { 0 };
                if !read {
                    continue;
                }
            } else {
                let piece = self.piece(input, place, &mut opened.source, blobs).await.map_err(SampleFault::Bytes)?;
                let Some(piece) = whole_records(self.spec.format, &header, &piece) else { continue };
                let decoder = Decoder::open(self.spec, piece.len() as u64, self.decoder_bytes);
                // It may begin within a field, so errors are ignored.
                let _ = self.read(decoder, SampleSource::Piece(piece), u64::MAX, measured).await;
            }
            measured.sample.places += 1;
        }
        Ok(())
    }

    /// Decodes about `most` bytes of input, or all of it; true if there were any records.
    async fn read(
        &self,
        mut decoder: Decoder,
        mut bytes: SampleSource<'_>,
        most: u64,
        measured: &mut SampleFigures,
    ) -> Result<(Decoder, bool), SampleFault> {
        let mut read = 0;
        let Context { processor, clock, .. } = self.context;
        loop {
            let decode = move || {
                let need = decoder.next();
                (decoder, need)
            };
            let decoded =
                |need: &Result<Need, _>| if let Ok(Need::Batch(batch)) = need { held_bytes(batch) } else { 0 };
            let ((back, need), took) = processor.work(&**clock, decode, |(_, need)| decoded(need)).await;
            decoder = back;
            let need = need.map_err(|error| bytes.fault(error, decoder.records_before()))?;
            if let Some(schema) = decoder.schema() {
                measured.meet(self.spec, &schema).map_err(|error| bytes.fault(error, 0))?;
            }
            match need {
                Need::Bytes(range) => {
                    decoder.give(&range, bytes.fetch(range.clone()).await.map_err(SampleFault::Bytes)?);
                }
                Need::End => return Ok((decoder, read > 0)),
                Need::Batch(batch) => {
                    let before = decoder.records_before();
                    let whole = stored_bytes(self.spec.format, &batch, decoder.row_bytes());
                    measured.sample.worked.decoded.add(whole, took);
                    let batch = self.first_of(batch, most.saturating_sub(read));
                    let stored = stored_bytes(self.spec.format, &batch, decoder.row_bytes());
                    read += if self.spec.format == Format::Parquet { held_bytes(&batch) } else { stored };
                    measured.take(self.context, batch, stored).await.map_err(|error| bytes.fault(error, before))?;
                    if measured.held_bytes > KEPT_BYTES {
                        let encoded = measured.flush(self).await;
                        encoded.map_err(|error| bytes.fault(error, before))?;
                    }
                    if read >= most {
                        return Ok((decoder, true));
                    }
                }
            }
        }
    }

    /// The first records of a batch of a row format, about `most` bytes: no place shall count for more than others
    /// because more was read there.
    fn first_of(&self, batch: RecordBatch, most: u64) -> RecordBatch {
        let stored = stored_bytes(self.spec.format, &batch, None);
        if stored <= most {
            return batch;
        }
        let rows = (batch.num_rows() as u128 * u128::from(most) / u128::from(stored)) as usize;
        batch.slice(0, rows.max(1))
    }

    /// The bytes of a place after the first.
    async fn piece(
        &self,
        input: &Input,
        place: usize,
        source: &mut InputSource,
        blobs: &mut BlobReader,
    ) -> Result<Bytes, SourceError> {
        let mut begin = (input.bytes - PLACE_BYTES) / (PLACES as u64 - 1) * place as u64;
        let mut bytes = PLACE_BYTES;
        if let Format::Fixed { record_bytes } = self.spec.format {
            let width = (record_bytes as u64).max(1);
            begin -= begin % width;
            bytes = (bytes / width).max(1) * width;
        }
        let end = (begin + bytes).min(input.bytes);
        source.fetch(blobs, begin..end, 0).await
    }

    /// The objects to sample.
    async fn chosen(&self) -> Vec<&Input> {
        let groups: Vec<GroupId> = self.by_group.keys().copied().collect();
        let wanted = groups.clone();
        let ready = self.world.ask(move |rack, _| {
            let ready = |group: &GroupId| matches!(rack.group_state(*group), GroupState::Idle | GroupState::Busy);
            wanted.into_iter().filter(ready).collect::<Vec<_>>()
        });
        let ready = ready.await.unwrap_or_default();
        let several = self.spec.filter.is_some();
        let lists: Vec<&[Input]> = match (several, self.workshop) {
            (false, [_, ..]) => vec![self.workshop],
            (false, []) => {
                let group = ready.first().or(groups.first());
                group.and_then(|group| self.by_group.get(group)).map(Vec::as_slice).into_iter().collect()
            }
            (true, workshop) => {
                let mut order = ready.clone();
                order.extend(evenly(&groups, GROUPS).filter(|group| !ready.contains(group)));
                let lists = order.iter().take(GROUPS).filter_map(|group| self.by_group.get(group));
                lists.map(Vec::as_slice).chain((!workshop.is_empty()).then_some(workshop)).collect()
            }
        };
        let each = OBJECTS / lists.len().max(1);
        lists.into_iter().flat_map(|list| evenly(list, each.max(1))).collect()
    }
}

/// At most `count` evenly spaced elements, the first and the last included.
fn evenly<T>(all: &[T], count: usize) -> impl Iterator<Item = &T> {
    let count = count.min(all.len());
    (0..count).map(move |at| &all[at * (all.len() - 1) / (count - 1).max(1)])
}

/// The source of a decoder's bytes.
enum SampleSource<'a> {
    Object { name: &'a str, source: &'a mut InputSource, blobs: &'a mut BlobReader },
    Piece(Bytes),
}

impl SampleSource<'_> {
    async fn fetch(&mut self, range: std::ops::Range<u64>) -> Result<Bytes, SourceError> {
        match self {
            Self::Object { source, blobs, .. } => source.fetch(blobs, range, 0).await,
            Self::Piece(piece) => Ok(piece.slice(range.start as usize..range.end as usize)),
        }
    }

    fn fault(&self, error: batch::Error, records_before: u64) -> SampleFault {
        let name = if let Self::Object { name, .. } = self { name } else { "a part of it" };
        SampleFault::Records(error.at(name, records_before).to_string())
    }
}

/// Why sampling of an object ended.
enum SampleFault {
    /// Its bytes could not be fetched.
    Bytes(SourceError),
    /// Its records are not as they should be, in words.
    Records(String),
}

/// The header line of a CSV, with its newline.
fn header_of(format: Format, schema: &Schema) -> Bytes {
    let lines = schema.metadata().values().filter(|_| format == Format::Csv);
    lines.flat_map(|line| [line.as_str(), "\n"]).collect::<String>().into()
}

/// The whole records of a piece of an object, after their header.
fn whole_records(format: Format, header: &Bytes, piece: &Bytes) -> Option<Bytes> {
    if matches!(format, Format::Fixed { .. }) {
        return Some(piece.clone());
    }
    let begin = piece.iter().position(|byte| *byte == b'\n')? + 1;
    let end = piece.iter().rposition(|byte| *byte == b'\n')? + 1;
    let mut whole = BytesMut::from(&header[..]);
    whole.extend_from_slice(&piece[begin..end]);
    Some(whole.freeze()).filter(|_| end > begin)
}

/// Number of stored bytes from which a batch was decoded.
fn stored_bytes(format: Format, batch: &RecordBatch, row_bytes: Option<f64>) -> u64 {
    let rows = batch.num_rows() as u64;
    match format {
        Format::Parquet => (rows as f64 * row_bytes.unwrap_or(0.0)).round() as u64,
        Format::Fixed { record_bytes } => rows * record_bytes as u64,
        Format::Csv | Format::Ndjson | Format::Lines => {
            let records = batch.column(0).as_binary_opt::<i32>();
            let values = records
                .map_or(0, |records| records.value_offsets().last().copied().unwrap_or(0) - records.value_offsets()[0]);
            u64::try_from(values).unwrap_or(0) + rows
        }
    }
}

/// The length of an object; computes its checksums, since a job does so too.
fn summed_bytes(object: Encoded) -> u64 {
    let bytes = object.bytes.len() as u64;
    drop(Summed::of(object));
    bytes
}

/// Makes a run of records, and decodes it again.
fn there_and_back(records: RecordBatch) -> Result<(), batch::Error> {
    let schema = records.schema();
    for run in Encoder::runs(&schema, vec![records], u64::MAX) {
        let run = run?;
        let bytes = run.bytes.clone();
        drop(Summed::of(run));
        batch::decode_run(&bytes)?;
    }
    Ok(())
}

impl Pace {
    fn add(&mut self, bytes: u64, took: Duration) {
        self.bytes += bytes;
        self.ns = self.ns.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// The measurements so far.
#[derive(Default)]
struct SampleFigures {
    sample: Sample,
    partitioner: Option<Arc<Partitioner>>,
    /// Kept records that are not yet encoded, by partition.
    kept: Vec<(usize, RecordBatch)>,
    held_bytes: u64,
    /// The name of the first object.
    first: String,
}

impl SampleFigures {
    /// Checks the schema of an object: it must have the columns that the job needs.
    fn meet(&mut self, spec: &Spec, schema: &Schema) -> Result<(), batch::Error> {
        if self.partitioner.is_none() {
            self.partitioner = Some(Arc::new(Partitioner::new(spec, schema)?));
        }
        Ok(())
    }

    /// Splits a batch that stands for `stored_bytes` of input.
    async fn take(&mut self, context: &Context, batch: RecordBatch, stored_bytes: u64) -> Result<(), batch::Error> {
        let Some(partitioner) = self.partitioner.clone() else { return Ok(()) };
        let rows = batch.num_rows() as u64;
        let Context { processor, clock, .. } = context;
        // The modelled processor has accounted for this in the decoding.
        let (pieces, took) = processor.work(&**clock, move || partitioner.split(&batch), |_| 0).await;
        let pieces = pieces?;
        self.sample.worked.split.add(stored_bytes, took);
        self.sample.records += rows;
        self.sample.input_bytes += stored_bytes;
        self.held_bytes += pieces.iter().map(|(_, piece)| held_bytes(piece)).sum::<u64>();
        self.kept.extend(pieces);
        Ok(())
    }

    /// Encodes the kept records, partition by partition, as one object.
    async fn flush(&mut self, sampling: &Sampling<'_>) -> Result<(), batch::Error> {
        let mut kept = std::mem::take(&mut self.kept);
        self.held_bytes = 0;
        let Some(schema) = kept.first().map(|(_, piece)| piece.schema()) else { return Ok(()) };
        kept.sort_by_key(|(partition, _)| *partition);
        let (format, decoder_bytes) = (sampling.spec.output, sampling.decoder_bytes);
        let Context { processor, clock, .. } = sampling.context;
        let join = move || {
            let joined = concat_batches(&schema, kept.iter().map(|(_, piece)| piece));
            let joined =
                joined.map_err(|error| batch::Error::Columns { doing: "joining", reason: error.to_string() })?;
            drop(kept);
            Ok::<_, batch::Error>(joined)
        };
        let joined = processor.work(&**clock, join, |_| 0).await.0?;
        let (buffered, rows, run) = (held_bytes(&joined), joined.num_rows() as u64, joined.clone());
        let encode = move || {
            let schema = joined.schema();
            let encoder = Encoder::objects(format, &schema, vec![joined], u64::MAX).readable_within(decoder_bytes);
            let lengths = encoder.map(|object| Ok::<_, batch::Error>(summed_bytes(object?)));
            lengths.sum::<Result<u64, _>>()
        };
        let (output, took) = processor.work(&**clock, encode, |_| buffered).await;
        let output = output?;
        self.sample.worked.encoded.add(buffered, took);
        let runs = processor.work(&**clock, move || there_and_back(run), |_| 2 * buffered).await;
        runs.0?;
        self.sample.worked.runs.add(2 * buffered, runs.1);
        self.sample.buffered_bytes += buffered;
        self.sample.kept_records += rows;
        self.sample.output_bytes += output;
        Ok(())
    }

    /// The sample, with all kept records encoded.
    async fn encode(mut self, sampling: &Sampling<'_>) -> Result<Sample, batch::Error> {
        self.flush(sampling).await?;
        assert!(self.sample.kept_records <= self.sample.records, "no more is kept than was looked at");
        Ok(self.sample)
    }

    /// A warning about an NDJSON key that no sampled record has; other records may have it.
    fn missing_key(&self) -> Option<String> {
        match self.partitioner.as_ref()?.finish() {
            Err(error @ batch::Error::MissingColumn { .. }) => {
                let (records, first) = (self.sample.records, &self.first);
                let more = match self.sample.objects {
                    0 | 1 => String::new(),
                    objects => format!(" and {} more objects", objects - 1),
                };
                Some(format!(
                    "in {records} records of {first}{more}, {error}; a job fails if it is in no record at all"
                ))
            }
            _ => None,
        }
    }
}
