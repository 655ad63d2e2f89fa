//! Puts records into an intake and prints the cost as one line of JSON: the contender of `tests/bench/stores.py`, which
//! lists the options.
//!
//! ```console
//! $ cargo build --release -p intake --example store
//! $ STORE=target/release/examples/store
//! $ tests/bench/stores.py --contender intake=$STORE --contender intake-log=$STORE
//! ```
//!
//! A store whose name ends in `-log` never leaves its log: the difference is the cost of transformation. The size of a
//! log (`--log-bytes`, 32 MiB by default), whose index is in memory, limits the memory; `--buffer-bytes` and
//! `--cache-bytes` have no meaning here.

use intake::medium::Directory;
use intake::medium::files::DirectoryOfFiles;
use intake::{Config, Intake};
use model::{Rng, Time};
use std::path::Path;
use std::thread;
use std::time::Instant;

struct Settings {
    store: String,
    dirs: Vec<String>,
    random_keys: bool,
    value_bytes: usize,
    puts: u64,
    writers: u64,
    seed: u64,
    log_bytes: u64,
}

impl Settings {
    fn parsed() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let all = |name: &str| words.chunks(2).filter(|pair| pair[0] == name).map(|pair| pair[1].clone()).collect();
        let last = |name: &str| -> Option<String> { Vec::pop(&mut all(name)) };
        let number = |name: &str, otherwise: u64| last(name).map_or(otherwise, |word| word.parse().expect("a number"));
        assert!(words.len().is_multiple_of(2), "each option has a value");
        assert!(number("--sync", 1) == 1, "whoever is answered here, is so after a sync");
        let store = last("--store").unwrap_or_else(|| "intake".into());
        let log_bytes = if store.ends_with("-log") { 1 << 50 } else { number("--log-bytes", 32 << 20) };
        Self {
            store,
            dirs: all("--dir"),
            random_keys: last("--keys").is_none_or(|keys| keys == "random"),
            value_bytes: number("--value-bytes", 100_000) as usize,
            puts: number("--puts", 1_000),
            writers: number("--writers", 1),
            seed: number("--seed", 1),
            log_bytes,
        }
    }

    fn key(&self, put: u64) -> String {
        let number = if self.random_keys { Rng::for_thing(self.seed, put).next_u64() } else { put };
        format!("{number:016x}")
    }
}

/// Every writer takes every n-th put; the milliseconds that each put took, sorted.
fn put_all(settings: &Settings, intake: &Intake) -> Vec<f64> {
    let write = |writer: u64| {
        let mut rng = Rng::for_thing(writer, 0);
        // A slice of random bytes, a different one for each put.
        let bytes: Vec<u8> = (0..settings.value_bytes + 4096).map(|_| rng.next_u64() as u8).collect();
        let mut took = Vec::new();
        for put in (writer..settings.puts).step_by(settings.writers as usize) {
            let from = rng.below(4096) as usize;
            let (key, value) = (settings.key(put), &bytes[from..from + settings.value_bytes]);
            let began = Instant::now();
            intake.put(key.as_bytes(), b"", value).expect("the disks have room");
            took.push(began.elapsed().as_secs_f64() * 1e3);
        }
        took
    };
    let mut took: Vec<f64> = thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..settings.writers).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().flat_map(|writer| writer.join().expect("a writer ends")).collect()
    });
    took.sort_by(f64::total_cmp);
    took
}

fn main() {
    let settings = Settings::parsed();
    let opened = |dir: &String, name: &str| -> Box<dyn Directory> {
        Box::new(DirectoryOfFiles::open(&Path::new(dir).join(name)).expect("the directory can be used"))
    };
    let directories: Vec<_> = settings.dirs.iter().map(|dir| opened(dir, "intake")).collect();
    let home = opened(&settings.dirs[0], "manifest");
    let started = Instant::now();
    let clock = move || Time::from_nanos(started.elapsed().as_nanos() as u64);
    let config = Config { log_bytes: settings.log_bytes, ..Config::new(u128::from(settings.seed) + 1, clock) };
    let (intake, _) = Intake::open(home, directories, config).expect("the directories are new");
    let began = Instant::now();
    let took = put_all(&settings, &intake);
    let seconds = began.elapsed().as_secs_f64();
    let quantile = |share: f64| took[(share * (took.len() - 1) as f64) as usize];
    let (p50_ms, p99_ms, max_ms) = (quantile(0.5), quantile(0.99), quantile(1.0));
    let Settings { store, dirs, random_keys, value_bytes, puts, writers, .. } = &settings;
    let written = intake.status().write_amplification();
    println!(
        "{{\"store\": \"{store}\", \"keys\": \"{}\", \"sync\": true, \"dirs\": {}, \"writers\": {writers}, \
         \"value_bytes\": {value_bytes}, \"puts\": {puts}, \"put_bytes\": {}, \"seconds\": {seconds:.6}, \
         \"p50_ms\": {p50_ms:.4}, \"p99_ms\": {p99_ms:.4}, \"max_ms\": {max_ms:.4}, \
         \"written_per_byte_after_puts\": {written:.3}}}",
        if *random_keys { "random" } else { "sequential" },
        dirs.len(),
        puts * (*value_bytes as u64 + 16),
    );
}
