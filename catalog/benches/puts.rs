//! PUTs of small objects by 64 writers, as the catalog sees them, with and without a log in front, in turns within one
//! run: `cargo bench -p catalog --bench puts`.
//!
//! Three ways to make an object of 16 KiB durable:
//! - **file**: its bytes in a separate file, synced, and its name; then a batch of the catalog, synced (the names are
//!   not shared between writers here, as a workshop shares them: this is an upper bound of the cost of files);
//! - **batch**: only the batch of the catalog, synced: the bytes are stored nowhere;
//! - **log**: bytes and batch in the log, with one sync for all waiting writers; the catalog follows without a sync.
//!
//! The log is the simplest possible one: a file that grows.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use catalog::{
    Acl, Bucket, Catalog, CommitLog, LogError, LogRecord, Object, PartLengths, PutCondition, Sequence, SqliteOptions,
    SqliteStore,
};
use std::fs::File;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WRITERS: u64 = 64;
const OBJECT_BYTES: usize = 16 << 10;
const TURNS: usize = 5;
const TURN: Duration = Duration::from_secs(3);

/// A log in one file.
struct FileLog(Mutex<File>);

impl CommitLog for FileLog {
    fn append(&self, records: &[LogRecord]) -> Result<(), LogError> {
        let mut bytes = Vec::new();
        for record in records {
            bytes.extend_from_slice(&record.entry);
            bytes.extend(record.payload.iter().flat_map(|payload| &payload.bytes));
        }
        let mut file = self.0.lock().unwrap();
        let written = file.write_all(&bytes).and_then(|()| file.sync_data());
        written.map_err(|error| LogError::Failed(error.to_string()))
    }

    fn covered(&self, _: Sequence) {}

    fn retain(&self) {}

    fn replay(&self, _: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError> {
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    File,
    Batch,
    Log,
}

/// A separate catalog for each way, in `dir`.
async fn site(way: Way, dir: &Path) -> (Arc<SqliteStore>, Catalog, PathBuf) {
    let path = dir.join(format!("{way:?}"));
    let files = dir.join(format!("{way:?}.files"));
    std::fs::create_dir(&files).unwrap();
    let options = SqliteOptions::default();
    let log = || Arc::new(FileLog(Mutex::new(File::create(dir.join("the.log")).unwrap())));
    let store = match way {
        Way::Log => SqliteStore::open_with_log(path, options, log()),
        _ => SqliteStore::open_with(path, options),
    };
    let store = Arc::new(store.unwrap());
    let catalog = Catalog::open(store.clone()).await.unwrap();
    catalog.create_bucket(&Bucket::new("b", 1, "me")).await.unwrap();
    (store, catalog, files)
}

fn staged(files: &Path, slot: u64, bytes: &Bytes) {
    let mut file = File::create(files.join(slot.to_string())).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_data().unwrap();
    File::open(files).unwrap().sync_all().unwrap();
}

/// One writer's PUTs until `end`; returns their number.
async fn write(way: Way, catalog: Catalog, files: PathBuf, writer: u64, end: Instant) -> u64 {
    let (bucket, bytes) = (Bucket::new("b", 1, "me"), Bytes::from(vec![writer as u8; OBJECT_BYTES]));
    let mut puts = 0;
    while Instant::now() < end {
        let (version, slot) = (catalog.next_version_id().await.unwrap(), catalog.next_slot().await.unwrap());
        let key = format!("{:016x}", version.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let object = Object {
            version,
            bytes: OBJECT_BYTES as u64,
            etag: "d41d8cd98f00b204e9800998ecf8427e".into(),
            modified_ms: version.0,
            created_ms: version.0,
            headers: vec![("content-type".into(), "application/octet-stream".into())],
            metadata: Vec::new(),
            checksums: Vec::new(),
            acl: Acl::Private,
            tags: Vec::new(),
            parts: PartLengths::default(),
        };
        let at = (&bucket, key.as_str());
        if way == Way::File {
            let (files, bytes) = (files.clone(), bytes.clone());
            tokio::task::spawn_blocking(move || staged(&files, slot, &bytes)).await.unwrap();
        }
        let done = match way {
            Way::Log => catalog.put_logged_object(at, &object, (slot, bytes.clone()), &PutCondition::None).await,
            _ => catalog.put_object(at, &object, slot, &PutCondition::None).await,
        };
        done.unwrap();
        puts += 1;
    }
    puts
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ways = [Way::File, Way::Batch, Way::Log];
    let mut sites = Vec::new();
    for way in ways {
        sites.push(site(way, dir.path()).await);
    }
    let mut rates = vec![Vec::new(); ways.len()];
    for _ in 0..TURNS {
        for (number, way) in ways.into_iter().enumerate() {
            let (_, catalog, files) = &sites[number];
            let (begin, end) = (Instant::now(), Instant::now() + TURN);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| tokio::spawn(write(way, catalog.clone(), files.clone(), writer, end)))
                .collect();
            let mut puts = 0;
            for writer in writers {
                puts += writer.await.unwrap();
            }
            rates[number].push(puts as f64 / begin.elapsed().as_secs_f64());
        }
    }
    println!("PUTs of 16 KiB by {WRITERS} writers, {TURNS} turns of {} s, median:", TURN.as_secs());
    let medians: Vec<f64> = rates.iter_mut().map(|rates| median(rates)).collect();
    for (number, way) in ways.into_iter().enumerate() {
        let stats = sites[number].0.stats();
        let group = stats.batches as f64 / stats.transactions.max(1) as f64;
        println!(
            "{:>6}: {:>8.0} /s   {:>5.2} of batch   {group:.1} batches a sync, made durable {} times",
            format!("{way:?}").to_lowercase(),
            medians[number],
            medians[number] / medians[1],
            stats.covers
        );
    }
    println!("log over file: {:.2}", medians[2] / medians[0]);
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
