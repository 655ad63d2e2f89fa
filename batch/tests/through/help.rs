//! Drives the crate as a job would, over bytes in memory.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use batch::{Decoder, Encoded, Encoder, Error, Format, MultisetChecksum, Need, Partitioner, Spec};
use bytes::Bytes;
use std::collections::BTreeMap;

pub(crate) const BUFFER_BYTES: u64 = 64 << 20;

pub(crate) fn spec(format: Format, by: &str, partitions: usize) -> Spec {
    Spec { format, by: by.parse().unwrap(), partitions, columns: None, filter: None, output: format }
}

pub(crate) fn filtered(spec: Spec, filter: &str) -> Spec {
    Spec { filter: Some(filter.parse().unwrap()), ..spec }
}

pub(crate) fn projected(spec: Spec, columns: &[&str]) -> Spec {
    Spec { columns: Some(columns.iter().map(|name| (*name).to_owned()).collect()), ..spec }
}

pub(crate) fn decode(spec: &Spec, object: &[u8], buffer_bytes: u64) -> Result<Vec<RecordBatch>, Error> {
    let object = Bytes::copy_from_slice(object);
    let mut decoder = Decoder::open(spec, object.len() as u64, buffer_bytes);
    let mut batches = Vec::new();
    loop {
        match decoder.next()? {
            Need::Bytes(range) => decoder.give(&range, object.slice(range.start as usize..range.end as usize)),
            Need::Batch(batch) => batches.push(batch),
            Need::End => return Ok(batches),
        }
    }
}

/// The partitions and checksum of some objects.
pub(crate) struct Parted {
    pub names: BTreeMap<usize, String>,
    pub pieces: BTreeMap<usize, Vec<RecordBatch>>,
    pub schema: Option<SchemaRef>,
    pub tally: MultisetChecksum,
}

impl Parted {
    pub(crate) fn encoded(&self, format: Format, partition: usize, object_bytes: u64) -> Vec<Encoded> {
        Encoder::objects(format, self.schema.as_ref().unwrap(), self.pieces[&partition].clone(), object_bytes)
            .collect::<Result<Vec<_>, _>>()
            .unwrap()
    }

    /// All objects of each partition as text, one after another.
    pub(crate) fn texts(&self, format: Format) -> BTreeMap<String, String> {
        let text = |partition| {
            let objects = self.encoded(format, partition, 1 << 20);
            objects.iter().map(|object| String::from_utf8(object.bytes.to_vec()).unwrap()).collect::<String>()
        };
        self.names.iter().map(|(partition, name)| (name.clone(), text(*partition))).collect()
    }
}

pub(crate) fn part(spec: &Spec, objects: &[&[u8]], buffer_bytes: u64) -> Result<Parted, Error> {
    let mut partitioner: Option<Partitioner> = None;
    let mut pieces: BTreeMap<usize, Vec<RecordBatch>> = BTreeMap::new();
    let mut schema = None;
    for object in objects {
        for batch in decode(spec, object, buffer_bytes)? {
            let partitioner = match &mut partitioner {
                Some(partitioner) => partitioner,
                none => none.insert(Partitioner::new(spec, &batch.schema())?),
            };
            for (partition, piece) in partitioner.split(&batch)? {
                schema = Some(piece.schema());
                pieces.entry(partition).or_default().push(piece);
            }
        }
    }
    let Some(partitioner) = partitioner else {
        return Ok(Parted { names: BTreeMap::new(), pieces, schema, tally: MultisetChecksum::default() });
    };
    partitioner.finish()?;
    let names = pieces.keys().map(|partition| (*partition, partitioner.name(*partition))).collect();
    Ok(Parted { names, pieces, schema, tally: partitioner.tally() })
}
