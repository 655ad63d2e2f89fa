//! The cost of partitioning compared with DuckDB and Polars: the same records from files to files on the same disk, by
//! hash into twelve, decoding and encoding included; medians of alternating rounds, on as many threads.
//!
//! Larder also reads back each encoded object, and takes checksums before, between and after. That part is also
//! measured separately. The others are measured if the Python that `LARDER_PYTHON` names (or `python3`) can import
//! them. Files are read from the page cache if they fit, and not synced. Processor time is that of all threads,
//! including the kernel's.
//!
//! `cargo bench -p batch --bench partition [-- parquet csv ndjson lines] [million rows]`

#![allow(clippy::unwrap_used, clippy::cast_possible_wrap)]

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use batch::{
    Decoder, Encoder, Format, MultisetChecksum, Need, Partitioner, Spec, held_bytes, multiset_checksum, read_back,
};
use bytes::Bytes;
use model::Rng;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tempfile::TempDir;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PARTITIONS: usize = 12;
const OBJECTS: u64 = 8;
const ROUNDS: usize = 3;
const BUFFER_BYTES: u64 = 4 << 30;
const OBJECT_BYTES: u64 = 64 << 20;
const BATCH_ROWS: u64 = 20_000;
const KINDS: [&str; 5] = ["view", "click", "purchase", "return", "review"];

const OTHERS: &str = r#"
import sys, time, os, glob
who, form, source, target, threads = sys.argv[1:6]
os.environ["POLARS_MAX_THREADS"] = threads
if who == "duckdb":
    import duckdb
    db = duckdb.connect()
    db.execute(f"SET threads={threads}")
    db.execute("SET preserve_insertion_order=false")
    db.execute("SET enable_progress_bar=false")
    reader = {"parquet": "read_parquet", "csv": "read_csv", "ndjson": "read_json"}[form]
    options = {"parquet": "FORMAT parquet, COMPRESSION snappy", "csv": "FORMAT csv, HEADER",
               "ndjson": "FORMAT json"}[form]
    begun, worked = time.monotonic(), time.process_time()
    db.execute(f"COPY (SELECT *, hash(user_id) % 12 AS part FROM {reader}('{source}/*')) TO '{target}' "
               f"({options}, PARTITION_BY (part))")
else:
    import polars as pl
    scan = {"parquet": pl.scan_parquet, "csv": pl.scan_csv, "ndjson": pl.scan_ndjson}[form]
    begun, worked = time.monotonic(), time.process_time()
    rows = scan(f"{source}/*").with_columns(part=pl.col("user_id").hash() % 12)
    to = pl.PartitionBy(target, key="part", include_key=False)
    if form == "parquet":
        rows.sink_parquet(to, compression="snappy", mkdir=True)
    elif form == "csv":
        rows.sink_csv(to, mkdir=True)
    else:
        rows.sink_ndjson(to, mkdir=True)
print(time.monotonic() - begun, time.process_time() - worked)
"#;

fn rows(from: u64, rng: &mut Rng) -> RecordBatch {
    let ids = || from..from + BATCH_ROWS;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(ids().map(|id| id as i64)))),
        ("user_id", Arc::new(Int64Array::from_iter_values(ids().map(|_| rng.below(1_000_000) as i64)))),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(
                ids().map(|id| 1_700_000_000_000_000 + id as i64 * 1500),
            )),
        ),
        ("kind", Arc::new(StringArray::from_iter_values(ids().map(|_| KINDS[rng.below(5) as usize])))),
        ("price", Arc::new(Float64Array::from_iter_values(ids().map(|_| rng.below(1_000_000) as f64 / 100.0)))),
        (
            "text",
            Arc::new(StringArray::from_iter_values(
                ids().map(|_| format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64())),
            )),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}
fn text(format: Format, from: u64, rng: &mut Rng, out: &mut String) {
    for id in from..from + BATCH_ROWS {
        let (user, kind, cents) = (rng.below(1_000_000), KINDS[rng.below(5) as usize], rng.below(1_000_000));
        let (price, text) = (cents as f64 / 100.0, format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64()));
        if format == Format::Ndjson {
            writeln!(
                out,
                "{{\"id\":{id},\"user_id\":{user},\"kind\":\"{kind}\",\"price\":{price},\"text\":\"{text}\"}}"
            )
            .unwrap();
        } else {
            writeln!(out, "{id},{user},{kind},{price},{text}").unwrap();
        }
    }
}

/// Writes the records of a benchmark. Returns their bytes as columns in memory or as text.
fn make(format: Format, folder: &Path, rows_count: u64) -> u64 {
    let mut rng = Rng::for_thing(12, 0);
    let mut bytes = 0;
    let each = rows_count / OBJECTS;
    for object in 0..OBJECTS {
        let path = folder.join(format!("{object:03}.{}", format.extension()));
        let from = (object * each..(object + 1) * each).step_by(BATCH_ROWS as usize);
        if format == Format::Parquet {
            let batches: Vec<_> = from.map(|from| rows(from, &mut rng)).collect();
            bytes += batches.iter().map(held_bytes).sum::<u64>();
            let schema = batches[0].schema();
            fs::write(
                path,
                &Encoder::objects(format, &schema, batches, u64::MAX).collect::<Result<Vec<_>, _>>().unwrap()[0].bytes,
            )
            .unwrap();
        } else {
            let mut out = String::new();
            if format == Format::Csv {
                out.push_str("id,user_id,kind,price,text\n");
            }
            from.for_each(|from| text(format, from, &mut rng, &mut out));
            bytes += out.len() as u64;
            fs::write(path, out).unwrap();
        }
    }
    bytes
}

/// Elapsed time in seconds.
#[derive(Clone, Copy)]
struct Took {
    wall_s: f64,
    /// Processor time of all threads.
    worked_s: f64,
}

/// Processor time of this process so far, in seconds.
fn worked_s() -> f64 {
    // Fields 14 and 15 of proc(5), in hundredths; the second may have blanks, and ends in a parenthesis.
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

type Pieces = Mutex<BTreeMap<usize, Vec<RecordBatch>>>;

fn read_one(spec: &Spec, path: &Path, pieces: &Pieces) -> MultisetChecksum {
    let mut file = fs::File::open(path).unwrap();
    let mut decoder = Decoder::open(spec, file.metadata().unwrap().len(), BUFFER_BYTES);
    let mut partitioner = None;
    loop {
        match decoder.next().unwrap() {
            Need::Bytes(range) => {
                let length = range.end - range.start;
                let mut bytes = Vec::with_capacity(length as usize);
                file.seek(SeekFrom::Start(range.start)).unwrap();
                file.by_ref().take(length).read_to_end(&mut bytes).unwrap();
                decoder.give(&range, Bytes::from(bytes));
            }
            Need::Batch(batch) => {
                let partitioner = partitioner.get_or_insert_with(|| Partitioner::new(spec, &batch.schema()).unwrap());
                let split = partitioner.split(&batch).unwrap();
                let mut pieces = pieces.lock().unwrap();
                for (partition, piece) in split {
                    pieces.entry(partition).or_default().push(piece);
                }
            }
            Need::End => return partitioner.map(|partitioner| partitioner.tally()).unwrap_or_default(),
        }
    }
}

fn write_one(spec: &Spec, partition: usize, pieces: Vec<RecordBatch>, folder: &Path) -> MultisetChecksum {
    let folder = folder.join(format!("{partition:05}"));
    fs::create_dir_all(&folder).unwrap();
    let schema = pieces[0].schema();
    let mut tally = MultisetChecksum::default();
    for (index, object) in Encoder::objects(spec.output, &schema, pieces, OBJECT_BYTES).enumerate() {
        let object = object.unwrap();
        tally += object.tally;
        fs::write(folder.join(format!("{index:03}.{}", spec.output.extension())), &object.bytes).unwrap();
    }
    tally
}

/// Partitions the files of a folder. Returns the seconds of reading and of everything.
fn ours(spec: &Spec, source: &Path, target: &Path, threads: usize) -> (f64, Took) {
    let mut paths: Vec<PathBuf> = fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let pieces = Pieces::default();
    let (begun, worked) = (Instant::now(), worked_s());
    let tally_in = on_threads(threads, paths.len(), |index| read_one(spec, &paths[index], &pieces));
    let read_s = begun.elapsed().as_secs_f64();
    let pieces: Vec<_> = pieces.into_inner().unwrap().into_iter().map(|pair| Mutex::new(Some(pair))).collect();
    let tally_out = on_threads(threads, pieces.len(), |index| {
        let (partition, pieces) = pieces[index].lock().unwrap().take().unwrap();
        write_one(spec, partition, pieces, target)
    });
    assert_eq!(tally_in, tally_out, "all that came in went out");
    (read_s, Took { wall_s: begun.elapsed().as_secs_f64(), worked_s: worked_s() - worked })
}

/// The time of the checksums alone: of all batches before and after they are split, and of objects as they are decoded.
fn proof(spec: &Spec, target: &Path, threads: usize) -> Took {
    let folders = fs::read_dir(target).unwrap().map(|entry| entry.unwrap().path());
    let paths = folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    let objects: Vec<_> = paths
        .map(|path| {
            let object = Bytes::from(fs::read(path).unwrap());
            let batches = decoded(spec, &object);
            (object, batches)
        })
        .collect();
    let (begun, worked) = (Instant::now(), worked_s());
    on_threads(threads, objects.len(), |index| {
        let (object, batches) = &objects[index];
        let tally = || batches.iter().map(|batch| multiset_checksum(batch).unwrap()).sum::<MultisetChecksum>();
        let (before, between) = (tally(), tally());
        let after = read_back(spec.output, &batches[0].schema(), object).unwrap();
        assert!(before == between && between == after, "they are the same records");
        after
    });
    Took { wall_s: begun.elapsed().as_secs_f64(), worked_s: worked_s() - worked }
}

fn decoded(spec: &Spec, object: &Bytes) -> Vec<RecordBatch> {
    let mut decoder = Decoder::open(spec, object.len() as u64, BUFFER_BYTES);
    let mut batches = Vec::new();
    loop {
        match decoder.next().unwrap() {
            Need::Bytes(range) => decoder.give(&range, object.slice(range.start as usize..range.end as usize)),
            Need::Batch(batch) => batches.push(batch),
            Need::End => return batches,
        }
    }
}

fn on_threads(threads: usize, count: usize, work: impl Fn(usize) -> MultisetChecksum + Sync) -> MultisetChecksum {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let one = || {
            let mut tally = MultisetChecksum::default();
            loop {
                match next.fetch_add(1, Ordering::Relaxed) {
                    index if index < count => tally += work(index),
                    _ => return tally,
                }
            }
        };
        let named = || std::thread::Builder::new().name(String::from("partitioning")).spawn_scoped(scope, one).unwrap();
        let workers: Vec<_> = (0..threads).map(|_| named()).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

fn other(who: &str, format: Format, source: &Path, target: &Path, threads: usize) -> Option<Took> {
    let python = std::env::var("LARDER_PYTHON").unwrap_or_else(|_| String::from("python3"));
    let arguments = [who, &format.to_string(), source.to_str()?, target.to_str()?, &threads.to_string()];
    let done = Command::new(python).args(["-c", OTHERS]).args(arguments).output().ok()?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        println!("  {who} does not take part: {}", said.lines().last().unwrap_or("without a reason"));
        return None;
    }
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let (wall_s, worked_s) = said.lines().last()?.trim().split_once(' ')?;
    Some(Took { wall_s: wall_s.parse().ok()?, worked_s: worked_s.parse().ok()? })
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The stages of Larder on one thread, each alone.
fn stages(spec: &Spec, source: &Path) {
    let path = fs::read_dir(source).unwrap().next().unwrap().unwrap().path();
    let object = Bytes::from(fs::read(path).unwrap());
    let mut pieces = BTreeMap::<usize, Vec<RecordBatch>>::new();
    let begun = Instant::now();
    let batches = decoded(spec, &object);
    let decode_s = begun.elapsed().as_secs_f64();
    let bytes: u64 = batches.iter().map(held_bytes).sum();
    let partitioner = Partitioner::new(spec, &batches[0].schema()).unwrap();
    let begun = Instant::now();
    for batch in &batches {
        for (partition, piece) in partitioner.split(batch).unwrap() {
            pieces.entry(partition).or_default().push(piece);
        }
    }
    let split_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let tally: MultisetChecksum = batches.iter().map(|batch| multiset_checksum(batch).unwrap()).sum();
    let tally_s = begun.elapsed().as_secs_f64();
    assert_eq!(tally, partitioner.tally());
    let begun = Instant::now();
    for pieces in pieces.into_values() {
        Encoder::objects(spec.output, &pieces[0].schema(), pieces, OBJECT_BYTES)
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
    }
    let encode_s = begun.elapsed().as_secs_f64();
    let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
    println!(
        "  one thread, GB/s of {} MB in columns: decode {:.2}, split {:.2} (of which the tally {:.2}), \
         encode and read back {:.2}",
        bytes / 1_000_000,
        rate(decode_s),
        rate(split_s),
        rate(tally_s),
        rate(encode_s)
    );
}

fn compare(format: Format, million_rows: u64) {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = root.path().join("in");
    fs::create_dir(&source).unwrap();
    let bytes = make(format, &source, million_rows * 1_000_000);
    let by = if format == Format::Lines { "hash(line)" } else { "hash(user_id)" };
    let spec =
        Spec { format, by: by.parse().unwrap(), partitions: PARTITIONS, columns: None, filter: None, output: format };
    let threads = std::thread::available_parallelism().unwrap().get();
    println!(
        "{format}: {million_rows} million records, {} MB, {PARTITIONS} partitions, {threads} threads",
        bytes / 1_000_000
    );
    stages(&spec, &source);
    let mut times: BTreeMap<&str, Vec<Took>> = BTreeMap::new();
    let (mut parts, mut proofs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for who in ["larder", "duckdb", "polars"] {
            let target = root.path().join("out");
            let seconds = match who {
                "larder" => {
                    let (read_s, took) = ours(&spec, &source, &target, threads);
                    parts.push(read_s / took.wall_s);
                    proofs.push(proof(&spec, &target, threads));
                    Some(took)
                }
                _ if format == Format::Lines => None,
                _ => other(who, format, &source, &target, threads),
            };
            times.entry(who).or_default().extend(seconds);
            let _ = fs::remove_dir_all(&target);
        }
    }
    let medians = |times: &[Took]| {
        let of = |of: fn(&Took) -> f64| median(&mut times.iter().map(of).collect::<Vec<_>>());
        Took { wall_s: of(|took| took.wall_s), worked_s: of(|took| took.worked_s) }
    };
    let first = medians(&times["larder"]);
    for (who, times) in times.iter().filter(|(_, times)| !times.is_empty()) {
        let Took { wall_s, worked_s } = medians(times);
        println!(
            "  {who:<8} {wall_s:>7.2} s {:>6.0} MB/s {:>5.2} x; {worked_s:>6.2} s of processors {:>5.2} x",
            bytes as f64 / wall_s / 1e6,
            first.wall_s / wall_s,
            first.worked_s / worked_s
        );
    }
    let Took { wall_s, worked_s } = medians(&proofs);
    println!(
        "  the proof alone takes {wall_s:.2} s, {worked_s:.2} s of processors; without it larder would take {:.2} s of \
         them",
        first.worked_s - worked_s
    );
    println!("  larder spent {:.0} % of its time before the first object was encoded", 100.0 * median(&mut parts));
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let million_rows = wanted.iter().find_map(|word| word.parse().ok()).unwrap_or(8);
    let formats: Vec<Format> = wanted.iter().filter_map(|word| word.parse().ok()).collect();
    let all = vec![Format::Parquet, Format::Csv, Format::Ndjson, Format::Lines];
    for format in if formats.is_empty() { all } else { formats } {
        compare(format, million_rows);
    }
}
