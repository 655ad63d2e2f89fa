//! Measures the cost of migration to clients of staged data: `cargo bench -p larder --bench beside_migration`. Four
//! clients put and get small objects that stay in the workshop, over HTTP on the loopback, a fixed number of requests a
//! second each, so a slow answer does not hide the ones after it. Servers in turns: nothing moves; objects of 8 MB move
//! meanwhile, paced in blocks of several sizes; unpaced, which is in one block; and paced above the critical threshold,
//! where moving takes more of the time and PUTs are delayed. The emulated drives are on the same disk, and their work
//! takes the same processor: this is the whole cost of migration here, not only pacing's part.
//!
//! `-- ROUNDS SECONDS` are 3 and 20 by default.
#![allow(clippy::unwrap_used)]

mod client;

use client::{Client, Server};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 4;
/// Time between two requests of a client.
const INTERVAL: Duration = Duration::from_millis(20);
const SMALL_BYTES: usize = 64 << 10;
const LARGE_BYTES: usize = 8 << 20;
const LARGE: u64 = 96;
/// Memory of the process: see `docs/reference/limits.md`, "Memory in all".
const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// A case: its name, the settings of the workshop, and those of migration.
type Kind = (&'static str, &'static str, &'static str);
/// A workshop that never fills up to its thresholds.
const ROOMY: &str = "capacity = \"4 GB\"\nregular = 1.0\ncritical = 1.0\n";
/// The objects that are to move fill more than its critical share.
const TIGHT: &str = "capacity = \"1 GB\"\nregular = 0.03\ncritical = 0.5\n";
const KINDS: [Kind; 7] = [
    ("nothing moves", ROOMY, ""),
    ("blocks of 256 kB", ROOMY, "older_than = \"0 s\"\nlinger = \"0 s\"\nblock_size = \"256 kB\"\n"),
    ("blocks of 1 MB", ROOMY, "older_than = \"0 s\"\nlinger = \"0 s\"\nblock_size = \"1 MB\"\n"),
    ("blocks of 4 MB", ROOMY, "older_than = \"0 s\"\nlinger = \"0 s\"\nblock_size = \"4 MB\"\n"),
    ("blocks of 16 MB", ROOMY, "older_than = \"0 s\"\nlinger = \"0 s\"\nblock_size = \"16 MB\"\n"),
    ("unpaced", ROOMY, "older_than = \"0 s\"\nlinger = \"0 s\"\nblock_size = \"1 TB\"\n"),
    ("4 MB, above critical", TIGHT, "block_size = \"4 MB\"\n"),
];

/// The settings of a server: small objects stay, large ones move if `moves` says so.
fn settings(workshop: &str, moves: &str) -> String {
    format!(
        "time_scale = 100\nidle_timeout = \"20 s\"\nstarts_per_day = 10000\n[workshop]\nspool = \"100 MB\"\n{workshop}\
         [migrate]\nmin_size = \"1 MB\"\npack_size = \"64 MB\"\nwindow = 4\nscan_interval = \"100 ms\"\n{moves}"
    )
}

/// The latencies of PUTs and of GETs.
#[derive(Default)]
struct Latencies([Vec<Duration>; 2]);

impl Latencies {
    fn extend(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, more)| mine.extend(more));
    }

    fn print(&mut self, what: &str, took: Duration) {
        print!("{what:<22} {:>5.1} s", took.as_secs_f64());
        for (of, name) in self.0.iter_mut().zip(["PUT", "GET"]) {
            of.sort_unstable();
            let at = |permille: usize| of[(of.len() - 1) * permille / 1000].as_secs_f64() * 1e3;
            print!("   {name} p50 {:>6.1} ms  p99 {:>6.1} ms  p99.9 {:>6.1} ms", at(500), at(990), at(999));
        }
        println!();
    }
}

/// A client that puts and gets in turn, until `ended`.
fn ask(server: &Server, number: u64, ended: &AtomicBool) -> Latencies {
    let (mut client, mut found) = (Client::of(server), Latencies::default());
    let body = vec![number as u8; SMALL_BYTES];
    let began = Instant::now();
    for turn in 0_u32.. {
        let due = began + INTERVAL * turn;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if ended.load(Ordering::Relaxed) {
            break;
        }
        let path = format!("/shelf/small-{number}-{}", turn / 2 % 50);
        if turn % 2 == 0 {
            client.ask("PUT", &path, &body, 200);
        } else {
            assert!(client.ask("GET", &path, b"", 200) == &body[..], "{path} has other bytes");
        }
        // Counted from the due time: a request after a slow answer waits as well.
        found.0[turn as usize % 2].push(due.elapsed());
    }
    found
}

/// The latencies on a server of this kind, the length of the run, which is at most `longest`, and the number of moved
/// bytes.
fn run(data: &Path, (_, workshop, moves): Kind, longest: Duration) -> (Latencies, Duration, u64) {
    let server = Server::start(data, &settings(ROOMY, ""));
    let mut client = Client::of(&server);
    client.ask("PUT", "/shelf", b"", 200);
    for number in 0..LARGE {
        let body: Vec<u8> = (0..LARGE_BYTES as u64).map(|at| (at * 31 + number) as u8).collect();
        client.ask("PUT", &format!("/shelf/large-{number}"), &body, 200);
    }
    drop(client);
    server.stop();
    let server = Server::start(data, &settings(workshop, moves));
    let (ended, began) = (AtomicBool::new(false), Instant::now());
    let large_bytes = LARGE * LARGE_BYTES as u64;
    let latencies = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn({
                    let (server, ended) = (&server, &ended);
                    move || ask(server, number, ended)
                })
            })
            .collect();
        while began.elapsed() < longest && server.status("staged_bytes") > large_bytes / 20 {
            thread::sleep(Duration::from_millis(500));
        }
        ended.store(true, Ordering::Relaxed);
        let mut all = Latencies::default();
        for client in clients {
            all.extend(client.join().unwrap());
        }
        all
    });
    let (took, moved) = (began.elapsed(), large_bytes.saturating_sub(server.status("staged_bytes")));
    assert!(server.peak_bytes() < MEMORY_BYTES_MAX, "{} MB", server.peak_bytes() >> 20);
    server.stop();
    (latencies, took, moved)
}

fn main() {
    // `cargo test --benches` only checks that it starts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let rounds = numbers.first().copied().unwrap_or(3);
    let longest = Duration::from_secs(numbers.get(1).copied().unwrap_or(20));
    let mut all: [(Latencies, Duration, u64); KINDS.len()] = Default::default();
    for _ in 0..rounds {
        for (kind, (latencies, took, moved)) in KINDS.into_iter().zip(&mut all) {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let (found, lasted, bytes) = run(&dir.path().join("data"), kind, longest);
            latencies.extend(found);
            (*took, *moved) = (*took + lasted, *moved + bytes);
        }
    }
    println!("{CLIENTS} clients, a request each {} ms, {} MB to move", INTERVAL.as_millis(), LARGE * 8);
    for ((name, ..), (mut latencies, took, moved)) in KINDS.into_iter().zip(all) {
        latencies.print(name, took);
        println!("{:22} {:>5.1} MB/s moved", "", moved as f64 / 1e6 / took.as_secs_f64());
    }
}
