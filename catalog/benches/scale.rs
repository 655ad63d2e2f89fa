//! Growth of the catalog: bytes on disk for each packed object, and the time of a start, a HEAD and a page of a
//! listing, for two catalogs in the same run, in turns: `cargo bench -p catalog --bench scale`. 10,000 objects against
//! 200,000; `-- 100000 10000000 DIRECTORY` sets other numbers and the data directory.
//!
//! Objects have keys of 60 bytes and the metadata that a stock client sends (an MD5, a CRC-64/NVME, a content type). 64
//! writers put them, and they are packed by 50,000, each with a server's batches, behind a log that forgets everything,
//! so that the disk's syncs are not measured. They come in runs: directories of 1,000 files, in no order, as trees are
//! copied. With `random` after the numbers every key comes in no order, which takes the most room in a B+tree. Then a
//! snapshot of each is written, and a catalog is remade from it, as `larder recover` does: checked as a whole, loaded,
//! and opened.
#![allow(clippy::unwrap_used)]

use catalog::{
    Acl, Blob, Bucket, Catalog, Checksum, ChecksumKind, CommitLog, ListRequest, LoadFrom, LogError, LogRecord, Member,
    Object, PartLengths, PutCondition, Sequence, SqliteOptions, SqliteStore, VersionId, load_snapshot,
};
use model::{ClassId, DriveId, GroupId};
use std::fs::File;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WRITERS: u64 = 64;
const PACK: u64 = 50_000;
const RUN: u64 = 1_000;
/// Requests of each kind in each turn.
const HEADS: u64 = 20_000;
const LISTS: u64 = 500;
const TURNS: usize = 5;
const BUCKET: &str = "archive";
const KEY_BYTES: usize = 60;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const WRITTEN_MS: u64 = 1_790_000_000_000;

/// A log that has room for everything and stores nothing.
struct Forgetful;

impl CommitLog for Forgetful {
    fn append(&self, _: &[LogRecord]) -> Result<(), LogError> {
        Ok(())
    }

    fn covered(&self, _: Sequence) {}

    fn retain(&self) {}

    fn replay(&self, _: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError> {
        Ok(())
    }
}

/// Bits that are derived from `number` and look random; no two numbers have the same.
fn mixed(number: u64) -> u64 {
    let first = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let second = (first ^ first >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    second ^ second >> 33
}

/// The order of the keys.
#[derive(Clone, Copy)]
enum Order {
    Runs,
    Random,
}

impl Order {
    fn key(self, number: u64) -> String {
        let (directory, file) = match self {
            Self::Runs => (mixed(number / RUN), number % RUN),
            Self::Random => (mixed(number), 0),
        };
        let key = format!("survey/2026/plate-{directory:016x}/exposure-{file:07}.spec.fit");
        assert_eq!(key.len(), KEY_BYTES);
        key
    }
}

fn object(version: VersionId, number: u64) -> Object {
    let etag = format!("{:016x}{:016x}", mixed(number ^ 1 << 60), mixed(number ^ 1 << 61));
    // Base64 of 8 bytes: 11 significant characters; the last one has 4 bits.
    let sum = u128::from(mixed(number ^ 1 << 62)) << 2;
    let digit = |at: u32| char::from(DIGITS[(sum >> (6 * (10 - at)) & 63) as usize]);
    let base64 = (0..11).map(digit).chain(['=']).collect();
    Object {
        version,
        bytes: bytes_of(number),
        etag,
        modified_ms: WRITTEN_MS + number * 3,
        created_ms: WRITTEN_MS + number * 3,
        headers: vec![("content-type".into(), "application/octet-stream".into())],
        metadata: Vec::new(),
        checksums: vec![Checksum { kind: ChecksumKind::Crc64Nvme, base64 }],
        acl: Acl::Private,
        tags: Vec::new(),
        parts: PartLengths::default(),
    }
}

fn bytes_of(number: u64) -> u64 {
    512 + mixed(number) % 16_384
}

/// A catalog of packed objects.
struct Site {
    path: PathBuf,
    order: Order,
    count: u64,
    catalog: Catalog,
}

impl Site {
    async fn open(path: &Path) -> Catalog {
        let options = SqliteOptions::default();
        let store = SqliteStore::open_with_log(path, options, Arc::new(Forgetful)).unwrap();
        Catalog::open(Arc::new(store)).await.unwrap()
    }

    async fn make(path: PathBuf, order: Order, count: u64) -> Self {
        let began = Instant::now();
        let catalog = Self::open(&path).await;
        let bucket = Bucket::new(BUCKET, 1, "me");
        catalog.create_bucket(&bucket).await.unwrap();
        let mut from = 0;
        while from < count {
            let to = count.min(from + PACK);
            let writers = (0..WRITERS).map(|writer| {
                let (catalog, bucket) = (catalog.clone(), bucket.clone());
                tokio::spawn(async move { put(&catalog, &bucket, order, (from + writer..to).step_by(64)).await })
            });
            let mut members = Vec::new();
            for writer in writers.collect::<Vec<_>>() {
                members.extend(writer.await.unwrap());
            }
            pack(&catalog, members).await;
            from = to;
        }
        let took = began.elapsed().as_secs_f64();
        println!("{count} objects put and packed in {took:.0} s, {:.0} /s", count as f64 / took);
        Self { path, order, count, catalog }
    }

    /// Closes the catalog in order, so that all is in the file, and opens it again; returns the time of the start.
    async fn again(self) -> (Self, Duration) {
        let Self { path, order, count, catalog } = self;
        drop(catalog);
        let began = Instant::now();
        let catalog = Self::open(&path).await;
        (Self { path, order, count, catalog }, began.elapsed())
    }

    fn file_bytes(&self) -> u64 {
        std::fs::metadata(&self.path).unwrap().len()
    }

    /// Some key of it.
    fn some(&self, draw: u64) -> String {
        self.order.key(mixed(draw) % self.count)
    }
}

async fn put(catalog: &Catalog, bucket: &Bucket, order: Order, numbers: impl Iterator<Item = u64>) -> Vec<Member> {
    let mut members = Vec::new();
    for number in numbers {
        let (version, slot) = (catalog.next_version_id().await.unwrap(), catalog.next_slot().await.unwrap());
        let (key, object) = (order.key(number), object(version, number));
        let put = catalog.put_object((bucket, &key), &object, slot, &PutCondition::None);
        put.await.unwrap();
        members.push(Member { version, offset: 0, bytes: object.bytes });
    }
    members
}

/// Moves `members` into a blob on 18 drives.
async fn pack(catalog: &Catalog, mut members: Vec<Member>) {
    let mut end = 0;
    members.sort_by_key(|member| member.version);
    for member in &mut members {
        member.offset = end;
        end += member.bytes;
    }
    let id = catalog.next_blob_id(mixed(end)).await.unwrap();
    let blob = Blob {
        blob: id,
        group: GroupId(7),
        class: ClassId(3),
        drives: (0..18).map(|at| DriveId(168 + at)).collect(),
        code_data: 15,
        code_parity: 3,
        fragment_bytes: 131_072,
        payload_bytes: end,
        stack_bytes: end / 15,
        members: members.len() as u32,
        written_ms: WRITTEN_MS,
    };
    catalog.begin_blob(&blob).await.unwrap();
    let committed = catalog.commit_blob(&blob, &members).await.unwrap();
    assert_eq!(committed.moved.len(), members.len());
}

/// A snapshot of the catalog, and a catalog that is remade from it.
async fn restore(site: &Site) {
    let (snapshot, again) = (site.path.with_extension("snapshot"), site.path.with_extension("again"));
    let (count, began) = (site.count, Instant::now());
    let mut file = BufWriter::new(File::create(&snapshot).unwrap());
    let totals = site.catalog.snapshot([7; 16], WRITTEN_MS, &mut file).await.unwrap();
    file.into_inner().unwrap().sync_all().unwrap();
    let written = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let loaded =
        tokio::task::block_in_place(|| load_snapshot(LoadFrom::one(&snapshot, &[]), &again, &mut |_, _| ()).unwrap());
    let took = began.elapsed().as_secs_f64();
    assert_eq!((loaded.records, loaded.damaged), (totals.records, 0));
    let began = Instant::now();
    let restored = Site::open(&again).await;
    assert!(restored.head_object(BUCKET, &site.some(1)).await.is_ok(), "it is a catalog");
    println!(
        "{count} objects: a snapshot of {:.3} GB, {} records, written in {written:.1} s; made a catalog again in \
         {took:.1} s, {:.2} us for each object, which opens in {:.1} s",
        totals.bytes as f64 / 1e9,
        totals.records,
        took * 1e6 / count as f64,
        began.elapsed().as_secs_f64()
    );
}

/// The time of each of `count` requests, sorted, in microseconds.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn add(&mut self, began: Instant) {
        self.0.push(began.elapsed().as_secs_f64() * 1e6);
    }

    fn percentile(&mut self, of_hundred: f64) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0[((self.0.len() - 1) as f64 * of_hundred / 100.0) as usize]
    }
}

#[derive(Default)]
struct Measured {
    heads: Times,
    lists: Times,
}

/// One turn of requests, one after the other, as seen by a client that has nothing else to wait for.
async fn ask(site: &Site, turn: usize, measured: &mut Measured) {
    let base = 1_000_000_007 * (turn as u64 + 1);
    for draw in 0..HEADS {
        let key = site.some(base + draw);
        let began = Instant::now();
        site.catalog.head_object(BUCKET, &key).await.unwrap();
        measured.heads.add(began);
    }
    for draw in 0..LISTS {
        let start_after = Some(site.some(base + HEADS + draw));
        let request = ListRequest { start_after, max_keys: 1_000, ..ListRequest::default() };
        let began = Instant::now();
        site.catalog.list_objects(BUCKET, &request).await.unwrap();
        measured.lists.add(began);
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // `cargo test --benches` only checks that the bench can be started.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let order = if words.iter().any(|word| word == "random") { Order::Random } else { Order::Runs };
    words.retain(|word| word != "random");
    let number = |at: usize, else_is| words.get(at).map_or(else_is, |word| word.parse::<u64>().unwrap());
    let (few, many) = (number(0, 10_000), number(1, 200_000));
    let parent = words.get(2).map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let dir = tempfile::tempdir_in(parent).unwrap();
    let mut sites = Vec::new();
    for (name, count) in [("few", few), ("many", many)] {
        let site = Site::make(dir.path().join(name), order, count).await;
        let (site, start) = site.again().await;
        let bytes = site.file_bytes();
        let each = bytes as f64 / count as f64;
        let took = start.as_secs_f64();
        println!(
            "{count} objects: {:.3} GB, {each:.1} bytes each; opened in {took:.2} s, {:.2} us each",
            bytes as f64 / 1e9,
            took * 1e6 / count as f64
        );
        restore(&site).await;
        sites.push((site, Measured::default()));
    }
    for turn in 0..TURNS {
        for (site, measured) in &mut sites {
            ask(site, turn, measured).await;
        }
    }
    let percentiles = [50.0, 99.0];
    let of = |times: &mut Times| percentiles.map(|percent| times.percentile(percent));
    let all: Vec<_> =
        sites.iter_mut().map(|(_, measured)| (of(&mut measured.heads), of(&mut measured.lists))).collect();
    let show = |what: &str, few: [f64; 2], many: [f64; 2]| {
        println!(
            "{what}: p50 {:.0} and {:.0} us, p99 {:.0} and {:.0} us: {:.2} and {:.2} of the few",
            few[0],
            many[0],
            few[1],
            many[1],
            many[0] / few[0],
            many[1] / few[1]
        );
    };
    show("HEAD", all[0].0, all[1].0);
    show("LIST, a page of 1,000", all[0].1, all[1].1);
}
