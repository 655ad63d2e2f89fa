//! Objects and runs with bytes changed, cut or doubled. They are refused, or read as some records that all come out as
//! they were read; and nothing panics.

#![allow(clippy::unwrap_used)]

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use batch::{
    Decoder, Encoder, Error, Format, MultisetChecksum, Need, Partitioner, Spec, decode_run, multiset_checksum,
};
use bytes::Bytes;
use model::Rng;
use std::sync::Arc;

const ROUNDS: usize = 1500;

fn spec(format: Format) -> Spec {
    let by = if matches!(format, Format::Fixed { .. }) { "hash(record)" } else { "hash(id)" };
    let filter = (format == Format::Csv).then(|| "id >= 10".parse().unwrap());
    Spec { format, by: by.parse().unwrap(), partitions: 3, columns: None, filter, output: format }
}

/// Reads and writes everything, as a job does, up to the first refusal. Returns the tally of the output.
fn through(spec: &Spec, object: &Bytes) -> Result<MultisetChecksum, Error> {
    let mut decoder = Decoder::open(spec, object.len() as u64, 8 << 20);
    let mut partitioner: Option<Partitioner> = None;
    let mut written = MultisetChecksum::default();
    loop {
        match decoder.next()? {
            Need::Bytes(range) => decoder.give(&range, object.slice(range.start as usize..range.end as usize)),
            Need::End => {
                let tally = partitioner.map(|partitioner| partitioner.tally()).unwrap_or_default();
                assert_eq!(written, tally, "what was read is what was written");
                return Ok(written);
            }
            Need::Batch(batch) => {
                let partitioner = match &mut partitioner {
                    Some(known) => known,
                    none => none.insert(Partitioner::new(spec, &batch.schema())?),
                };
                for (_, piece) in partitioner.split(&batch)? {
                    let schema = piece.schema();
                    let objects =
                        Encoder::objects(spec.output, &schema, vec![piece], 1 << 20).collect::<Result<Vec<_>, _>>()?;
                    written += objects.iter().map(|object| object.tally).sum();
                }
            }
        }
    }
}

fn mutated(bytes: &[u8], rng: &mut Rng) -> Bytes {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(8) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, b'"'),
            2 => bytes[at] = 0xff,
            3 => bytes[at] = b'\n',
            // Footers and messages are at the ends, where a change does the most harm.
            4 => {
                let last = bytes.len() - 1;
                bytes[last.saturating_sub(at % 64)] ^= 1 << rng.below(8);
            }
            _ => bytes[at] ^= 1 << rng.below(8),
        }
    }
    bytes.into()
}

fn rows() -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..500));
    let texts: ArrayRef =
        Arc::new((0..500).map(|row| (row % 3 > 0).then(|| format!("text {row}"))).collect::<StringArray>());
    RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap()
}

#[test]
fn mutated_objects_are_refused_or_read_and_never_panic() {
    let csv: String = (0..200).flat_map(|row| [row.to_string(), format!(",\"a, {row}\",x\n")]).collect();
    let json: String =
        (0..200).map(|row| format!("{{\"id\":{row},\"v\":[{row},null,\"\\u00e9\"]}}\n")).collect::<Vec<_>>().concat();
    let parquet = Encoder::objects(Format::Parquet, &rows().schema(), vec![rows()], 1 << 20)
        .collect::<Result<Vec<_>, _>>()
        .unwrap()
        .remove(0)
        .bytes;
    let fixed = Format::Fixed { record_bytes: 8 };
    let objects = [
        (Format::Csv, Bytes::from(format!("id,t,x\n{csv}"))),
        (Format::Ndjson, Bytes::from(json)),
        (fixed, Bytes::from(vec![b'r'; 800])),
        (Format::Parquet, parquet),
    ];
    let mut rng = Rng::for_thing(7, 0);
    for (format, object) in objects {
        let spec = spec(format);
        assert!(through(&spec, &object).unwrap().rows > 0, "{format} is sound to begin with");
        let refused = (0..ROUNDS).filter(|_| through(&spec, &mutated(&object, &mut rng)).is_err()).count();
        assert!(refused > ROUNDS / 20 && refused < ROUNDS, "{format}: {refused} were refused");
    }
}

#[test]
fn mutated_runs_are_refused_or_read_and_never_panic() {
    let run =
        Encoder::runs(&rows().schema(), vec![rows()], 1 << 20).collect::<Result<Vec<_>, _>>().unwrap().remove(0).bytes;
    let mut rng = Rng::for_thing(8, 0);
    let again = |pieces: Vec<RecordBatch>| {
        // The mutated run can be written again, or is refused.
        let tally: MultisetChecksum = pieces.iter().map(|piece| multiset_checksum(piece).unwrap()).sum();
        let Some(schema) = pieces.first().map(RecordBatch::schema) else { return };
        if let Ok(runs) = Encoder::runs(&schema, pieces, u64::MAX).collect::<Result<Vec<_>, _>>() {
            assert_eq!(runs.iter().map(|run| run.tally).sum::<MultisetChecksum>(), tally);
        }
    };
    let refused = (0..ROUNDS).filter(|_| decode_run(&mutated(&run, &mut rng)).map(again).is_err()).count();
    assert!(refused > ROUNDS / 20, "{refused} were refused");
}
