//! Puts of 4 KB by 64 writers, compared with a bare file with one sync for 64 writes of the same size, in turns in the
//! same run.
//!
//! `cargo bench -p intake --bench puts -- DIRECTORY`. Output: the rate of each, their ratio, changes for each sync, and
//! the bytes written for each byte, once all logs are shelves and merged.

use intake::medium::files::DirectoryOfFiles;
use intake::{Config, Intake};
use model::{Rng, Time};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

const WRITERS: u64 = 64;
const VALUE_BYTES: usize = 4096;
const ROUNDS: u64 = 5;
const PUTS: u64 = 16_384;

/// A put's bytes with its head, key and entry, rounded up to 8: the appended bytes for each put.
const RECORD_BYTES: usize = 56 + 16 + 64 + VALUE_BYTES;

/// Puts a second into a bare file.
fn bare(path: &Path) -> std::io::Result<f64> {
    let mut file = File::create(path)?;
    let batch = vec![7; RECORD_BYTES * WRITERS as usize];
    let began = Instant::now();
    for _ in 0..PUTS / WRITERS {
        file.write_all(&batch)?;
        file.sync_data()?;
    }
    Ok(PUTS as f64 / began.elapsed().as_secs_f64())
}

/// Puts a second into the intake, by threads that wait for each answer.
fn put(intake: &Intake, round: u64) -> f64 {
    let began = Instant::now();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut rng = Rng::for_thing(round, writer);
                let value = vec![writer as u8; VALUE_BYTES];
                for _ in 0..PUTS / WRITERS {
                    let key = format!("{:016x}", rng.next_u64());
                    intake.put(key.as_bytes(), &[1; 64], &value).expect("the disk has room");
                }
            });
        }
    });
    PUTS as f64 / began.elapsed().as_secs_f64()
}

fn main() {
    let root = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let root = root.map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(root).expect("the directory can be used");
    let began = Instant::now();
    let clock = move || Time::from_nanos(began.elapsed().as_nanos() as u64);
    let open = |name| Box::new(DirectoryOfFiles::open(&folder.path().join(name)).expect("it is new"));
    let (intake, _) = Intake::open(open("manifest"), vec![open("intake")], Config::new(1, clock)).expect("it is new");
    let (mut rates, mut bares) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        bares.push(bare(&folder.path().join("bare")).expect("the disk has room"));
        rates.push(put(&intake, round));
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (intake_rate, bare_rate) = (median(&mut rates), median(&mut bares));
    let per_sync = intake.status().accepted as f64 / intake.status().batches as f64;
    intake.flush().expect("the disk has room");
    let written = intake.status().write_amplification();
    println!("bare file, 64 writes a sync  {bare_rate:>8.0} puts/s  ({bares:.0?})");
    println!("intake, 64 writers           {intake_rate:>8.0} puts/s  ({rates:.0?})");
    println!("ratio {:.2} (goal: 0.5); {per_sync:.1} puts a sync", intake_rate / bare_rate);
    println!("{written:.2} bytes written for each byte, log and shelves");
}
