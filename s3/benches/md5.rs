//! Speed of MD5 of sixteen messages side by side, and of one, against the plain crate. All on one core, in turns.
//!
//! `cargo bench -p s3 --bench md5`. Takes seconds.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, unused_imports, reason = "its tests run elsewhere")]
#[path = "../src/parallel_md5/lanes.rs"]
mod lanes;

#[allow(dead_code, unused_imports, reason = "uploads are finished, and its tests run, elsewhere")]
#[path = "../src/parallel_md5/state.rs"]
mod state;

use fearless_simd::Level;
use lanes::{LANES, Words};
use md5::{Digest, Md5};
use state::{BLOCK_BYTES, Md5State};
use std::hint::black_box;
use std::time::Instant;

const MESSAGE_BYTES: usize = 1 << 20;
const ROUNDS: usize = 15;

/// Every kind of vector that this processor has, best first.
fn levels() -> Vec<(String, Level)> {
    let best = Level::new();
    #[cfg(target_arch = "x86_64")]
    let levels = [Some(best), best.as_avx2().map(Level::Avx2), best.as_sse4_2().map(Level::Sse4_2)];
    #[cfg(not(target_arch = "x86_64"))]
    let levels = [Some(best)];
    let name = |level: &Level| format!("{level:?}").split('(').next().unwrap_or_default().to_owned();
    let mut named: Vec<_> = levels.into_iter().flatten().map(|level| (name(&level), level)).collect();
    named.dedup_by(|(one, _), (other, _)| one == other);
    named
}

type Contender<'a> = (String, Box<dyn Fn() + 'a>);

fn contenders(messages: &[Vec<u8>]) -> Vec<Contender<'_>> {
    let plain = move || {
        for message in messages {
            black_box(Md5::digest(message));
        }
    };
    let alone = move || {
        for message in messages {
            let mut state = Md5State::new();
            state.update(message);
            black_box(state.words);
        }
    };
    let mut contenders: Vec<Contender<'_>> = vec![
        ("one after another, md-5".to_owned(), Box::new(plain)),
        ("one after another, ours".to_owned(), Box::new(alone)),
    ];
    for (name, level) in levels() {
        let beside = move || {
            let mut words = Words::default();
            let runs = std::array::from_fn(|lane| messages[lane].as_chunks::<BLOCK_BYTES>().0);
            lanes::compress(level, &mut words, &runs, MESSAGE_BYTES / BLOCK_BYTES);
            black_box(words);
        };
        contenders.push((format!("side by side, {name}"), Box::new(beside)));
    }
    contenders
}

fn main() {
    // `cargo test --benches` only checks that the bench starts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let messages: Vec<Vec<u8>> = (0..LANES).map(|lane| vec![lane as u8; MESSAGE_BYTES]).collect();
    let contenders = contenders(&messages);
    let mut took = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, contender), took) in contenders.iter().zip(&mut took) {
            let began = Instant::now();
            contender();
            took.push(began.elapsed().as_secs_f64());
        }
    }
    println!("{LANES} messages of 1 MiB, one core, median of {ROUNDS} rounds");
    for rounds in &mut took {
        rounds.sort_by(f64::total_cmp);
    }
    let median = |took: &[f64]| took[took.len() / 2];
    for ((name, _), rounds) in contenders.iter().zip(&took) {
        let rate = (LANES * MESSAGE_BYTES) as f64 / 1e9 / median(rounds);
        println!("{name:<28} {rate:>6.2} GB/s {:>6.2} x the first", median(&took[0]) / median(rounds));
    }
}
