//! Objects of 64 MiB through the whole server, by HTTP with signatures: PUT, GET from sleeping drives, and GET of
//! recalled objects, each against a plain copy or a plain read of files on the same disk, in turns within one run. Only
//! the ratios are meaningful on a machine that does other work as well.
//!
//! `cargo bench -p server --bench through_http`. The rack is the Pelican at a thousand times its speed, so that the
//! benchmark measures this program and not the hardware it models; what remains of the hardware's waits is printed
//! beside the results. The run takes a minute or two and 3 GB below `target`, which it frees at its end.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the tests of the S3 front use more of it")]
#[path = "../../tests/s3/client.rs"]
mod client;

#[allow(dead_code, reason = "the comparison with other servers uses more of it")]
mod service;

use rustix::fs::{Advice, fadvise};
use s3s::crypto::{Checksum as _, Md5};
use service::{OBJECT_BYTES, OBJECTS, ObjectService, TIME_SCALE, name_of};
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const CLIENTS: [usize; 2] = [1, 4];
/// Seconds that each round of a row took.
type Took = Vec<f64>;

/// Does `work` for `count` objects from `first` on, with one thread per object; returns the time that this took.
fn at_once(first: usize, count: usize, work: &(impl Fn(usize) + Sync)) -> Duration {
    let began = Instant::now();
    thread::scope(|scope| {
        for object in first..first + count {
            scope.spawn(move || work(object));
        }
    });
    began.elapsed()
}

/// Does `work` for all objects, `clients` at a time, and `before` before each batch; returns the seconds that `work`
/// took.
fn round(clients: usize, before: &dyn Fn(), work: &(impl Fn(usize) + Sync)) -> f64 {
    let once = |first| {
        before();
        at_once(first, clients, work).as_secs_f64()
    };
    (0..OBJECTS).step_by(clients).map(once).sum()
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints a row: its median rate, and the median of the rounds' ratios to the reference of the same round.
fn report(name: &str, clients: usize, took: &Took, reference: &Took) {
    let mb = OBJECTS as f64 * OBJECT_BYTES as f64 / 1e6;
    let rate = mb / median(took.iter().copied());
    let ratio = median(took.iter().zip(reference).map(|(took, reference)| reference / took));
    println!("{name:<42} {clients:>7} {rate:>9.0} {ratio:>9.2}");
}

/// The counterpart of PUT: copies the file and syncs it to the disk.
fn copy(source: &Path, to: &Path) {
    std::fs::copy(source, to).unwrap();
    File::open(to).unwrap().sync_all().unwrap();
    File::open(to.parent().unwrap()).unwrap().sync_all().unwrap();
}

/// The counterpart of GET: reads the file from the disk, not from the page cache.
fn read(file: &Path, expected: &[u8]) {
    let mut file = File::open(file).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for expected in expected.chunks(buffer.len()) {
        file.read_exact(&mut buffer[..expected.len()]).unwrap();
        assert!(buffer[..expected.len()] == *expected, "a plain copy differs");
    }
}

/// The part that every PUT needs: S3's ETag is an MD5, and one core computes an MD5.
fn md5(bytes: &[u8]) {
    let mut hasher = Md5::new();
    hasher.update(bytes);
    black_box(hasher.finalize());
}

fn forget(file: &Path) {
    fadvise(File::open(file).unwrap(), 0, None, Advice::DontNeed).unwrap();
}

fn puts(service: &mut ObjectService, clients: usize) {
    let server = service.serve(None);
    let (mut put, mut staged, mut copied, mut hashed) = (Took::new(), Took::new(), Took::new(), Took::new());
    for _ in 0..ROUNDS {
        copied.push(round(clients, &|| {}, &|object| copy(&service.source_file(), &service.plain_file(object))));
        hashed.push(round(clients, &|| {}, &|_| md5(service.source())));
        put.push(round(clients, &|| {}, &|object| server.put(&name_of(object))));
        staged.push(round(clients, &|| {}, &|object| {
            server.get(&name_of(object));
        }));
    }
    report("plain copy, synced", clients, &copied, &copied);
    report("MD5 of the same bytes, nothing else", clients, &hashed, &copied);
    report("PUT", clients, &put, &copied);
    report("GET of what is staged", clients, &staged, &copied);
}

/// Returns the times that the first bytes of the cold GETs took.
fn gets(service: &mut ObjectService, clients: usize) -> Vec<f64> {
    let (mut cold, mut warm, mut plain) = (Took::new(), Took::new(), Took::new());
    let waits = Mutex::new(Vec::new());
    for _ in 0..ROUNDS {
        // A server forgets all recalls when it starts.
        let server = service.serve(None);
        let forget_all = || (0..OBJECTS).for_each(|object| forget(&service.plain_file(object)));
        plain.push(round(clients, &forget_all, &|object| read(&service.plain_file(object), service.source())));
        cold.push(round(clients, &|| server.wait_until_asleep(), &|object| {
            let wait = server.get(&name_of(object));
            waits.lock().unwrap().push(wait.as_secs_f64());
        }));
        warm.push(round(clients, &|| {}, &|object| {
            server.get(&name_of(object));
        }));
    }
    report("plain read from the disk", clients, &plain, &plain);
    report("GET from sleeping drives", clients, &cold, &plain);
    report("GET of what was recalled", clients, &warm, &plain);
    waits.into_inner().unwrap()
}

fn migrate(service: &mut ObjectService) {
    let server = service.serve(Some(Duration::ZERO));
    let began = Instant::now();
    server.wait_until_migrated();
    let mb = OBJECTS as f64 * OBJECT_BYTES as f64 / 1e6;
    let took = began.elapsed().as_secs_f64();
    println!("\nmigrated, read back and put to sleep in {took:.1} s ({:.0} MB/s, waits included)", mb / took);
    server.wait_until_asleep();
    let (least, most) = server.forecast(&name_of(0));
    println!(
        "a sleeping group takes {:.1} to {:.1} modelled s to wake, {:.0} to {:.0} ms here\n",
        least * f64::from(TIME_SCALE),
        most * f64::from(TIME_SCALE),
        least * 1e3,
        most * 1e3,
    );
}

fn main() {
    // `cargo test --benches` only checks that it can be started.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let mut service = ObjectService::build();
    println!("{OBJECTS} objects of 64 MiB a round, median of {ROUNDS} rounds; 1 MB is 10^6 bytes\n");
    println!("{:<42} {:>7} {:>9} {:>9}", "", "clients", "MB/s", "ratio");
    for clients in CLIENTS {
        puts(&mut service, clients);
    }
    migrate(&mut service);
    for clients in CLIENTS {
        let waits = gets(&mut service, clients);
        println!("    first bytes of a cold GET after {:.0} ms (median)", 1e3 * median(waits));
    }
}
