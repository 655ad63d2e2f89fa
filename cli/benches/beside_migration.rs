//! What migration costs clients of staged data: `cargo bench -p larder --bench beside_migration`. Four clients put and
//! get small objects that stay in the workshop, over HTTP on the loopback, a fixed number of requests a second each, so
//! that a slow answer does not hide the ones behind it. Three servers in turns: nothing moves; objects of 8 MB move
//! meanwhile, paced; the same unpaced, which is in one block. The emulated drives lie on the same disk, and what they
//! do takes the same processor: this is the whole of what migration costs here, not pacing's part alone.
#![allow(clippy::unwrap_used)]

mod client;

use client::{Client, Server};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const CLIENTS: u64 = 4;
/// Each client asks so often.
const INTERVAL: Duration = Duration::from_millis(20);
const SMALL_BYTES: usize = 64 << 10;
const LARGE_BYTES: usize = 8 << 20;
const LARGE: u64 = 96;
/// Memory of the process: see `docs/limits.md`, "Memory in all".
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Clients ask for so long where nothing moves, and no longer where something does.
const LONGEST: Duration = Duration::from_secs(20);

/// The settings of a server: small objects stay, large ones move if `moves` says so.
fn settings(moves: &str) -> String {
    format!(
        "time_scale = 100\nidle_timeout = \"20 s\"\nstarts_per_day = 10000\n[workshop]\ncapacity = \"4 GB\"\n\
         spool = \"100 MB\"\nregular = 1.0\ncritical = 1.0\n[migrate]\nmin_size = \"1 MB\"\npack_size = \"64 MB\"\n\
         window = 4\nscan_interval = \"100 ms\"\n{moves}"
    )
}

const MOVING: &str = "older_than = \"0 s\"\nlinger = \"0 s\"\n";

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

/// A client that puts and gets in turns, until `ended`.
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
        // From when it was due: what waits behind a slow answer waits as well.
        found.0[turn as usize % 2].push(due.elapsed());
    }
    found
}

/// The latencies on a server with `moves`, and how long it was looked at.
fn run(data: &Path, moves: &str) -> (Latencies, Duration) {
    let server = Server::start(data, &settings(""));
    let mut client = Client::of(&server);
    client.ask("PUT", "/shelf", b"", 200);
    for number in 0..LARGE {
        let body: Vec<u8> = (0..LARGE_BYTES as u64).map(|at| (at * 31 + number) as u8).collect();
        client.ask("PUT", &format!("/shelf/large-{number}"), &body, 200);
    }
    drop(client);
    server.stop();
    let server = Server::start(data, &settings(moves));
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
        while began.elapsed() < LONGEST && server.status("staged_bytes") > large_bytes / 20 {
            thread::sleep(Duration::from_millis(500));
        }
        ended.store(true, Ordering::Relaxed);
        let mut all = Latencies::default();
        for client in clients {
            all.extend(client.join().unwrap());
        }
        all
    });
    let took = began.elapsed();
    assert!(server.peak_bytes() < MEMORY_BYTES_MAX, "{} MB", server.peak_bytes() >> 20);
    server.stop();
    (latencies, took)
}

fn main() {
    // `cargo test --benches` only wants to know that it can be started.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let unpaced = format!("{MOVING}block_size = \"1 TB\"\n");
    let kinds = [("nothing moves", ""), ("paced", MOVING), ("unpaced", &unpaced)];
    let mut all: [(Latencies, Duration); 3] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, moves), (latencies, took)) in kinds.iter().zip(&mut all) {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let (found, lasted) = run(&dir.path().join("data"), moves);
            latencies.extend(found);
            *took += lasted;
        }
    }
    println!("{CLIENTS} clients, a request each {} ms, {} MB to move", INTERVAL.as_millis(), LARGE * 8);
    for ((name, _), (mut latencies, took)) in kinds.into_iter().zip(all) {
        latencies.print(name, took);
    }
}
