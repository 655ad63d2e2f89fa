//! Larder and other servers on the same disk, measured in turns within one run: PUT, PUT over an existing object, and
//! GET of objects of 64 MiB and of 16 KiB by 1, 16 and 64 clients at once. Only the ratios are meaningful on a machine
//! that does other work as well.
//!
//! `cargo bench -p server --bench compare`. The reference is a bare HTTP file server (`bare.rs`), which makes files as
//! durable as Larder does and does nothing else. `minio` and `versitygw` take part if they are found in `PATH`; how
//! each treats the disk is printed. The run takes some minutes and 10 GB below `target`, which it frees at its end. `--
//! small` and `-- large` run only one half; `-- alone` runs only Larder, to show where it spends its time.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the tests of the S3 front use more of it")]
#[path = "../../tests/s3/client.rs"]
mod client;

#[allow(dead_code, reason = "the other benchmark uses more of it")]
#[path = "../through_http/service.rs"]
mod service;

mod bare;
mod peer;

use peer::{Connection, Peer};
use service::ObjectService;
use std::thread;
use std::time::Instant;
use tempfile::TempDir;

const ROUNDS: usize = 3;
/// From this size on, rates are in bytes and not in objects.
const LARGE_BYTES: usize = 1 << 20;

/// The workload of one row.
struct Load {
    bytes: usize,
    clients: usize,
    /// Objects of each client.
    objects: usize,
}

const LOADS: [Load; 6] = [
    Load { bytes: 64 << 20, clients: 1, objects: 8 },
    Load { bytes: 64 << 20, clients: 16, objects: 1 },
    Load { bytes: 64 << 20, clients: 64, objects: 1 },
    Load { bytes: 16 << 10, clients: 1, objects: 200 },
    Load { bytes: 16 << 10, clients: 16, objects: 50 },
    Load { bytes: 16 << 10, clients: 64, objects: 50 },
];

#[derive(Clone, Copy)]
enum Deed {
    Put,
    Get,
}

/// Lets all clients of `load` do `deed` to their objects at once; returns the seconds that this took.
fn round(peer: &Peer, load: &Load, turn: usize, deed: Deed, source: &[u8]) -> f64 {
    let bytes = &source[..load.bytes];
    let mut connections: Vec<Connection> = (0..load.clients).map(|_| peer.connect()).collect();
    let began = Instant::now();
    thread::scope(|scope| {
        for (client, connection) in connections.iter_mut().enumerate() {
            scope.spawn(move || {
                for object in 0..load.objects {
                    let path = format!("/shelf/{}-{turn}-{client}-{object}", load.bytes);
                    match deed {
                        Deed::Put => connection.put(&path, bytes),
                        Deed::Get => connection.get(&path, bytes),
                    }
                }
            });
        }
    });
    began.elapsed().as_secs_f64()
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints a row: the median of its rounds as a rate, and the median of the rounds' ratios to the reference.
fn report(peer: &Peer, deed: &str, load: &Load, took: &[f64], reference: &[f64]) {
    let objects = (load.clients * load.objects) as f64;
    let rate = if load.bytes < LARGE_BYTES {
        format!("{:.0} objects/s", objects / median(took.iter().copied()))
    } else {
        format!("{:.0} MB/s", objects * load.bytes as f64 / 1e6 / median(took.iter().copied()))
    };
    let ratio = median(took.iter().zip(reference).map(|(took, reference)| reference / took));
    println!("{:<12} {deed:<9} {:>7} {rate:>18} {ratio:>8.2}", peer.name, load.clients);
}

/// Measures and prints the rows of one load: the servers take turns, and the first one is the reference.
fn compare(peers: &[Peer], load: &Load, source: &[u8]) {
    println!("\nobjects of {} KiB", load.bytes >> 10);
    let deeds = [("PUT", Deed::Put), ("PUT over", Deed::Put), ("GET", Deed::Get)];
    let mut took = vec![[const { Vec::new() }; 3]; peers.len()];
    for turn in 0..ROUNDS {
        for (peer, took) in peers.iter().zip(&mut took) {
            for (at, (_, deed)) in deeds.into_iter().enumerate() {
                took[at].push(round(peer, load, turn, deed, source));
            }
            forget(peer, load, turn);
        }
    }
    for (at, (deed, _)) in deeds.into_iter().enumerate() {
        for (peer, rounds) in peers.iter().zip(&took) {
            report(peer, deed, load, &rounds[at], &took[0][at]);
        }
    }
}

/// Removes a turn's objects.
fn forget(peer: &Peer, load: &Load, turn: usize) {
    let mut connection = peer.connect();
    for client in 0..load.clients {
        for object in 0..load.objects {
            connection.delete(&format!("/shelf/{}-{turn}-{client}-{object}", load.bytes));
        }
    }
}

fn main() {
    // `cargo test --benches` only checks that it can be started.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let only = |name: &str| std::env::args().any(|argument| argument == name);
    let wanted = |load: &Load| !only(if load.bytes < LARGE_BYTES { "large" } else { "small" });
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let service = ObjectService::build();
    let larder = service.serve(None);
    let mut peers = vec![Peer::larder(&larder)];
    if !only("alone") {
        peers.insert(0, Peer::bare(&root.path().join("bare")));
        peers.extend(Peer::minio(&root.path().join("minio")));
        peers.extend(Peer::versitygw(&root.path().join("versitygw")));
    }
    println!("median of {ROUNDS} rounds, ratios to the first; 1 MB is 10^6 bytes");
    for peer in &peers {
        println!("{:<12} {}", peer.name, peer.durability);
        if peer.name != "larder" {
            peer.connect().put("/shelf", &[]);
        }
    }
    println!("\n{:<12} {:<9} {:>7} {:>18} {:>8}", "", "", "clients", "rate", "ratio");
    for load in LOADS.iter().filter(|load| wanted(load)) {
        compare(&peers, load, service.source());
    }
}
