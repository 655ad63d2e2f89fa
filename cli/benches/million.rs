//! Small objects by the million, through HTTP on the loopback: put, listed, read, scanned in key order, packed and
//! deleted, of 0.5 to 16 KB (log-uniform): `cargo bench -p larder --bench million`. 100,000 of them; `-- 1000000` is
//! another number, and `-- 1000000 DIRECTORY` puts the data there. Every byte that is read is compared.
//!
//! Each rate is printed with the peak memory of the process so far, and the bound of `docs/reference/limits.md`, which
//! does not depend on the number of objects. Disk: 2.4 times the objects, which have 4.6 KB on average; a workshop of
//! 16 GB, where each takes 10 KB. The clients share the processor with the server.
#![allow(clippy::unwrap_used)]

mod client;

use client::{Client, Server};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const COUNT: u64 = 100_000;
const CLIENTS: u64 = 32;
/// Memory of the process: see `docs/reference/limits.md`, "Memory in all".
const MEMORY_BYTES_MAX: u64 = 1 << 30;

const MIN_BYTES: f64 = 512.0;
const MAX_BYTES: f64 = 16_384.0;

/// Settings under which nothing moves by itself; and settings under which everything does.
const STAYING: &str = "time_scale = 100
[workshop]
capacity = \"16 GB\"
spool = \"200 MB\"
regular = 1.0
critical = 1.0
";
const MOVING: &str = "time_scale = 100
idle_timeout = \"20 s\"
starts_per_day = 10000
[workshop]
capacity = \"16 GB\"
spool = \"200 MB\"
[migrate]
older_than = \"0 s\"
linger = \"0 s\"
scan_interval = \"200 ms\"
";

/// Bits that depend on `number` alone and look random.
fn mixed(number: u64) -> u64 {
    let first = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let second = (first ^ first >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    second ^ second >> 33
}

/// The key of an object: objects that are put one after another have distant keys.
fn path(number: u64) -> String {
    format!("/shelf/{:016x}", mixed(number))
}

/// Fills `into` with the bytes of an object, and returns their number.
fn fill(number: u64, into: &mut Vec<u8>) -> u64 {
    let uniform = (mixed(number + 1) >> 11) as f64 / (1_u64 << 53) as f64;
    let bytes = (MIN_BYTES * (MAX_BYTES / MIN_BYTES).powf(uniform)) as usize;
    into.clear();
    let mut state = mixed(number) | 1;
    while into.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        into.extend_from_slice(&state.to_le_bytes());
    }
    into.truncate(bytes);
    bytes as u64
}

/// Prints the work, its duration, and the memory that the process has needed for it.
fn report(server: &Server, what: &str, (count, bytes): (u64, u64), took: Duration) {
    let peak_bytes = server.peak_bytes();
    let (rate, mb) = (count as f64 / took.as_secs_f64(), bytes as f64 / 1e6 / took.as_secs_f64());
    println!(
        "{what:<28} {rate:>9.0} /s {mb:>8.1} MB/s {:>8.1} s   peak {:>5} MB",
        took.as_secs_f64(),
        peak_bytes >> 20
    );
    assert!(peak_bytes <= MEMORY_BYTES_MAX, "the process has had more than {} MB", MEMORY_BYTES_MAX >> 20);
}

/// Lets clients call `each` in parallel, for every number below `count`. Returns the sum of its results, and the
/// duration.
fn by_all(server: &Server, count: u64, each: impl Fn(&mut Client, &mut Vec<u8>, u64) -> u64 + Sync) -> (u64, Duration) {
    let (next, bytes, began) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let (mut client, mut buffer) = (Client::of(server), Vec::new());
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    bytes.fetch_add(each(&mut client, &mut buffer, number), Ordering::Relaxed);
                }
            });
        }
    });
    (bytes.into_inner(), began.elapsed())
}

fn get(client: &mut Client, buffer: &mut Vec<u8>, number: u64) -> u64 {
    let bytes = fill(number, buffer);
    assert!(client.ask("GET", &path(number), b"", 200) == &buffer[..], "object {number} has other bytes");
    bytes
}

/// Lists everything, page by page, and checks the order. Returns the number of keys, and the duration.
fn list(server: &Server) -> (u64, Duration) {
    let (mut client, began, mut count, mut last) = (Client::of(server), Instant::now(), 0, String::new());
    loop {
        let target = format!("/shelf?list-type=2&start-after={last}");
        let page = String::from_utf8(client.ask("GET", &target, b"", 200).to_vec()).unwrap();
        let keys = page.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap());
        for key in keys {
            assert!(*key > *last, "{key} after {last}");
            key.clone_into(&mut last);
            count += 1;
        }
        if page.contains("<IsTruncated>false") {
            return (count, began.elapsed());
        }
    }
}

fn until_packed(server: &Server) {
    while server.status("staged_count") > 0 {
        thread::sleep(Duration::from_secs(1));
    }
}

/// The phases, with a server that is stopped in order and another one after it.
fn run(count: u64, data: &Path) {
    let server = Server::start(data, STAYING);
    Client::of(&server).ask("PUT", "/shelf", b"", 200);
    let (bytes, took) = by_all(&server, count, |client, buffer, number| {
        let bytes = fill(number, buffer);
        client.ask("PUT", &path(number), buffer, 200);
        bytes
    });
    report(&server, "put", (count, bytes), took);
    let (listed, took) = list(&server);
    assert_eq!(listed, count);
    report(&server, "listed", (listed, 0), took);
    let some = count.min(100_000);
    let (read, took) = by_all(&server, some, |client, buffer, number| get(client, buffer, mixed(number) % count));
    report(&server, "read, in any order", (some, read), took);
    let mut in_order: Vec<u64> = (0..count).collect();
    in_order.sort_unstable_by_key(|number| mixed(*number));
    let (read, took) = by_all(&server, count, |client, buffer, at| get(client, buffer, in_order[at as usize]));
    assert_eq!(read, bytes);
    report(&server, "scanned, in key order", (count, read), took);
    server.stop();

    let began = Instant::now();
    let server = Server::start(data, MOVING);
    report(&server, "started with all of them", (count, bytes), began.elapsed());
    until_packed(&server);
    report(&server, "packed", (count, bytes), began.elapsed());
    let cold = count.min(200);
    let (read, took) = by_all(&server, cold, |client, buffer, at| get(client, buffer, in_order[at as usize]));
    report(&server, "read from the rack, in order", (cold, read), took);
    let (_, took) = by_all(&server, count, |client, _, number| {
        client.ask("DELETE", &path(number), b"", 204);
        0
    });
    report(&server, "deleted", (count, bytes), took);
    assert_eq!(list(&server).0, 0);
    server.stop();
}

fn main() {
    // `cargo test --benches` only checks that it starts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let count = words.first().map_or(COUNT, |word| word.parse().expect("how many objects"));
    let parent = words.get(1).map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let dir = tempfile::tempdir_in(parent).unwrap();
    println!("{count} objects of 0.5 to 16 KB, {CLIENTS} clients; at most {} MB of memory", MEMORY_BYTES_MAX >> 20);
    run(count, &dir.path().join("data"));
}
