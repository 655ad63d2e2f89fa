//! The shelf compared with redb: the same records in key order, into one file, made durable. Bytes written per byte of
//! keys and values, the time, and whether reading everything detects a changed byte.
//!
//! `cargo run --release --manifest-path intake/benches/shelves/Cargo.toml -- DIRECTORY [MIB]`, where MIB is redb's
//! cache in MiB (32).

use intake::medium::{Directory, files::DirectoryOfFiles};
use intake::{Config, Intake};
use model::{Rng, Time};
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// A file that counts the bytes written to it.
#[derive(Debug)]
struct Counting(File, Arc<AtomicU64>);

impl StorageBackend for Counting {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.1.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.0.write_all_at(data, offset)
    }
}

fn records(name: &str, rng: &mut Rng) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut bytes = 64 << 20;
    let mut records = Vec::new();
    while bytes > 0 {
        let length = match name {
            "100 KB" => 100_000,
            "4 KB" => 4096,
            // Log-uniform: as many below twice a length as below that length.
            _ => {
                let least = 512 << rng.below(5);
                (least + rng.below(least)) as usize
            }
        };
        bytes -= length as i64;
        let key = format!("{:016x}", rng.next_u64()).into_bytes();
        records.push((key, (0..length.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(length).collect()));
    }
    records.sort();
    records
}

fn redb(path: &Path, cache: usize, records: &[(Vec<u8>, Vec<u8>)]) -> Result<(u64, f64), Box<dyn Error>> {
    let written = Arc::new(AtomicU64::new(0));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    let began = Instant::now();
    let mut builder = Database::builder();
    builder.set_cache_size(cache << 20);
    let database = builder.create_with_backend(Counting(file, Arc::clone(&written)))?;
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in records {
            table.insert(key.as_slice(), value.as_slice())?;
        }
    }
    transaction.commit()?;
    drop(database);
    Ok((written.load(Ordering::Relaxed), began.elapsed().as_secs_f64()))
}

/// Changes a byte in the middle, and reads everything; true if the change comes through as data.
fn redb_serves_damage(path: &Path, records: &[(Vec<u8>, Vec<u8>)]) -> Result<bool, Box<dyn Error>> {
    let file = File::options().read(true).write(true).open(path)?;
    let bytes = file.metadata()?.len();
    for at in (bytes / 4..bytes / 2).step_by(1_000_003) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[byte[0] ^ 1], at)?;
    }
    let database = Database::builder().create(path)?;
    let table = database.begin_read()?.open_table(TABLE)?;
    for (found, (key, value)) in table.iter()?.zip(records) {
        let (found_key, found_value) = found?;
        if found_key.value() != key.as_slice() || found_value.value() != value.as_slice() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes and seconds of the transformation alone.
fn shelf(path: &Path, records: &[(Vec<u8>, Vec<u8>)]) -> Result<(u64, f64), Box<dyn Error>> {
    let began = Instant::now();
    let clock = move || Time::from_nanos(began.elapsed().as_nanos() as u64);
    let open = |name| DirectoryOfFiles::open(&path.join(name));
    let (home, drive) = (Box::new(open("manifest")?), Box::new(open("intake")?) as Box<dyn Directory>);
    let config = Config { log_bytes: 1 << 30, queue_bytes: 1 << 30, ..Config::new(7, clock) };
    let (intake, _) = Intake::open(home, vec![drive], config)?;
    let acks: Result<Vec<_>, _> = records
        .iter()
        .map(|(key, value)| {
            let change = intake::Change::Put { key: key.clone(), entry: Vec::new(), value: value.clone().into() };
            intake.submit(change, None)
        })
        .collect();
    for ack in acks? {
        ack.wait()?;
    }
    let written = || intake.status().cycles[0].drives[0].written;
    drop(intake.rotate());
    let (log, began) = (written(), Instant::now());
    intake.flush()?;
    Ok((written().saturating_sub(log), began.elapsed().as_secs_f64()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args().nth(1).ok_or("name a directory")?;
    let cache = std::env::args().nth(2).map_or(Ok(32), |mib| mib.parse())?;
    println!(
        "{:>10} {:>8} {:>22} {:>22} {:>9}  a changed byte",
        "values", "MB", "redb", "shelf (log read, too)", "ratio"
    );
    for name in ["100 KB", "4 KB", "0.5-16 KB"] {
        let records = records(name, &mut Rng::for_thing(1, 1));
        let bytes: usize = records.iter().map(|(key, value)| key.len() + value.len()).sum();
        let path = Path::new(&root).join(name.replace(' ', "-"));
        std::fs::create_dir_all(&path)?;
        let file = path.join("redb");
        let (redb_bytes, redb_s) = redb(&file, cache, &records)?;
        let served = if redb_serves_damage(&file, &records).unwrap_or(false) { "is served by redb" } else { "-" };
        let (shelf_bytes, shelf_s) = shelf(&path.join("intake"), &records)?;
        let (of_redb, of_shelf) = (redb_bytes as f64 / bytes as f64, shelf_bytes as f64 / bytes as f64);
        let redb = format!("{of_redb:.2} per byte {redb_s:.2} s");
        let shelf = format!("{of_shelf:.2} per byte {shelf_s:.2} s");
        let (megabytes, ratio) = (bytes as f64 / 1e6, redb_s / shelf_s);
        println!("{name:>10} {megabytes:>8.1} {redb:>22} {shelf:>22} {ratio:>8.2}x  {served}");
    }
    Ok(())
}
