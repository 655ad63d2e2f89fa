//! The cost of a pack for the log that it leaves: freeing its members by one range of keys or one by one, and reading
//! them in key order or in the order in which they were put.
//!
//! `cargo bench -p intake --bench freeing -- DIRECTORY`. 20,000 records of 4 KB in no order of keys, in shelves; a pack
//! is 1,000 of them, next to each other in key order. In turns, medians of the rounds; each round begins with newly
//! written copies of the same records. With `tests/bench/emulated_disks.c` the reads take the time of a disk with an
//! arm.

use intake::medium::files::DirectoryOfFiles;
use intake::{Change, Config, Intake, Sequence};
use model::{Rng, Time};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const RECORDS: u64 = 20_000;
const PACK: usize = 1_000;
const VALUE_BYTES: usize = 4096;
/// Records that are put with one wait: about the number that 64 clients have in progress.
const TOGETHER: usize = 64;
const ROUNDS: u64 = 3;
/// Number of records that are read in each order: without order, an arm takes 10 ms for each.
const READ: usize = 2_000;

/// A random-looking key: consecutive puts have distant keys.
fn key(number: u64) -> Vec<u8> {
    format!("{:016x}", Rng::for_thing(7, number).next_u64()).into_bytes()
}

/// An intake with all records in shelves, in `folder`.
fn filled(folder: &Path) -> Intake {
    let began = Instant::now();
    let clock = move || Time::from_nanos(began.elapsed().as_nanos() as u64);
    let open = |name| Box::new(DirectoryOfFiles::open(&folder.join(name)).expect("it is new"));
    let (intake, _) = Intake::open(open("manifest"), vec![open("intake")], Config::new(1, clock)).expect("it is new");
    let put =
        |number| Change::Put { key: key(number), entry: vec![1; 64], value: vec![number as u8; VALUE_BYTES].into() };
    let all: Vec<u64> = (0..RECORDS).collect();
    for some in all.chunks(TOGETHER) {
        answered(&intake, some.iter().map(|number| put(*number)).collect());
    }
    intake.flush().expect("the disk has room");
    intake
}

fn answered(intake: &Intake, changes: Vec<Change>) {
    for ack in intake.submit_all(changes).expect("there is room") {
        ack.wait().expect("the disk has room");
    }
}

/// The time that `work` takes, and the bytes that it writes.
fn measured(intake: &Intake, work: impl FnOnce()) -> (Duration, u64) {
    let written = |intake: &Intake| intake.status().cycles[0].drives[0].written;
    let (before, began) = (written(intake), Instant::now());
    work();
    (began.elapsed(), written(intake) - before)
}

/// Frees all packs of `keys`, one after the other: each by one range, or by its members.
fn free(intake: &Intake, keys: &[Vec<u8>], by_range: bool) -> (Duration, u64) {
    let up_to = intake.status().last;
    let freed = measured(intake, || {
        for pack in keys.chunks(PACK) {
            if by_range {
                free_range(intake, pack, up_to);
            } else {
                let delete = |key: &Vec<u8>| Change::Delete { key: key.clone(), entry: Vec::new() };
                answered(intake, pack.iter().map(delete).collect());
            }
        }
    });
    assert!(intake.scan_entries(b"", None).next().is_none(), "nothing is left");
    freed
}

fn free_range(intake: &Intake, pack: &[Vec<u8>], up_to: Sequence) {
    let behind = pack.last().map(|last| [last.as_slice(), &[0]].concat());
    intake.forget(&pack[0], behind.as_deref(), up_to).expect("the disk has room");
}

/// Reads the records with these keys, one after the other.
fn read(intake: &Intake, keys: &[Vec<u8>]) -> Duration {
    measured(intake, || {
        for key in keys {
            let found = intake.get(key).expect("it can be read");
            assert!(found.is_some_and(|found| found.value.len() == VALUE_BYTES), "it is there");
        }
    })
    .0
}

fn median<T: Ord + Copy>(mut figures: Vec<T>) -> T {
    figures.sort_unstable();
    figures[figures.len() / 2]
}

fn main() {
    let root = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let root = root.map_or_else(std::env::temp_dir, PathBuf::from);
    let as_put: Vec<Vec<u8>> = (0..RECORDS).map(key).collect();
    let mut in_order = as_put.clone();
    in_order.sort_unstable();
    let mut reads = [Vec::new(), Vec::new()];
    let mut freed = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for turn in 0..2 {
            let by_range = (round + turn) % 2 == 0;
            let folder = tempfile::tempdir_in(&root).expect("the directory can be used");
            let intake = filled(folder.path());
            // Two packs of each kind: the records that were put first, and the first ones in the order of keys.
            reads[0].push(read(&intake, &as_put[..READ]));
            reads[1].push(read(&intake, &in_order[..READ]));
            freed[usize::from(by_range)].push(free(&intake, &in_order, by_range));
        }
    }
    let each = |took: Duration| took.as_secs_f64() * 1e6 / READ as f64;
    let [any, ordered] = reads.map(median);
    println!("{READ} of {RECORDS} records of {VALUE_BYTES} bytes, read one after the other for a pack:");
    println!("  as they were put    {:>9.1} us each", each(any));
    println!(
        "  in key order        {:>9.1} us each, {:.1} times as fast",
        each(ordered),
        any.as_secs_f64() / ordered.as_secs_f64()
    );
    let [members, ranges] = freed.map(median);
    println!("{} packs of {PACK} freed:", RECORDS / PACK as u64);
    for (what, (took, written)) in [("member by member", members), ("a range for each", ranges)] {
        println!("  {what}    {:>9.1} ms, {written} bytes written", took.as_secs_f64() * 1e3);
    }
    let (time, bytes) = (ranges.0.as_secs_f64() / members.0.as_secs_f64(), members.1 / ranges.1.max(1));
    println!("  {time:.2} of the time, and {bytes} times less is written");
}
