//! The rate at which stripes are encoded and rebuilt: our path against the bare library in the same run, since only the
//! ratio is meaningful on a machine with other work.
//!
//! `cargo bench -p disk --bench erasure`

use disk::Codec;
use model::{Code, Rng};
use rustfs_erasure_codec::galois_8::{Field, active_backend_name};
use rustfs_erasure_codec::{CodecOptions, MatrixMode, ReedSolomon};
use std::time::{Duration, Instant};

const CODE: Code = Code { data: 15, parity: 3, fragment_bytes: 128 << 10 };
/// Stripes that are processed in turn, so that they do not stay in the cache: 8 make a request of 1 MiB per drive.
const STRIPES: usize = 8;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(100);

type Stripe = Vec<Vec<u8>>;
/// A measured operation, and its work on a stripe.
type Work<'a> = (&'a str, &'a mut dyn FnMut(&mut Stripe));
/// Fragments, each with true if it is there.
type Marked<'a> = [(&'a mut [u8], bool)];

fn stripes() -> Vec<Stripe> {
    let rng = &mut Rng::new(1);
    let mut fragment = || (0..CODE.fragment_bytes).map(|_| rng.next_u64() as u8).collect();
    (0..STRIPES).map(|_| (0..CODE.stacks()).map(|_| fragment()).collect()).collect()
}

/// Payload bytes per second of `work`, in GB/s.
fn rate(stripes: &mut [Stripe], work: &mut dyn FnMut(&mut Stripe)) -> f64 {
    let (began, mut done) = (Instant::now(), 0_u64);
    while began.elapsed() < ROUND {
        for stripe in &mut *stripes {
            work(stripe);
            done += CODE.stripe_bytes();
        }
    }
    done as f64 / began.elapsed().as_secs_f64() / 1e9
}

/// The medians of rounds that take turns, so that a disturbance hits all of them.
fn compare(stripes: &mut [Stripe], works: &mut [Work<'_>]) {
    let mut rates = vec![Vec::new(); works.len()];
    for _ in 0..ROUNDS {
        for (at, (_, work)) in works.iter_mut().enumerate() {
            rates[at].push(rate(stripes, work));
        }
    }
    let medians: Vec<f64> = rates
        .iter_mut()
        .map(|rates| {
            rates.sort_by(f64::total_cmp);
            rates[ROUNDS / 2]
        })
        .collect();
    for ((name, _), median) in works.iter().zip(&medians) {
        println!("{name:<34} {median:7.2} GB/s   {:5.2} x the first", median / medians[0]);
    }
}

fn split(stripe: &mut Stripe) -> (Vec<&[u8]>, Vec<&mut [u8]>) {
    let (data, parity) = stripe.split_at_mut(usize::from(CODE.data));
    (data.iter().map(Vec::as_slice).collect(), parity.iter_mut().map(Vec::as_mut_slice).collect())
}

fn main() {
    let options = CodecOptions::builder().matrix_mode(MatrixMode::Cauchy).max_parallel_jobs(1).build();
    let library =
        ReedSolomon::<Field>::with_options(CODE.data.into(), CODE.parity.into(), options).expect("15+3 is a code");
    let codec = Codec::new(CODE);
    let mut stripes = stripes();
    println!("15+3, fragments of 128 KiB, payload GB/s on one core, backend {}", active_backend_name());
    compare(
        &mut stripes,
        &mut [
            ("encode, library", &mut |stripe| {
                let (data, mut parity) = split(stripe);
                library.encode_sep(&data, &mut parity).expect("equal lengths");
            }),
            ("encode, ours", &mut |stripe| {
                let (data, mut parity) = split(stripe);
                codec.encode(&data, &mut parity);
            }),
            ("checksums of k + r fragments", &mut |stripe| {
                for fragment in stripe {
                    std::hint::black_box(crc_fast::crc32_iscsi(fragment));
                }
            }),
            ("copy of the payload", &mut |stripe| {
                for fragment in &mut stripe[..CODE.data.into()] {
                    std::hint::black_box(fragment.clone());
                }
            }),
        ],
    );
    for lost in 1..=usize::from(CODE.parity) {
        let with_lost = |stripe: &mut Stripe, work: &mut dyn FnMut(&mut Marked<'_>)| {
            let mut marked: Vec<(&mut [u8], bool)> = stripe
                .iter_mut()
                .enumerate()
                .map(|(i, fragment)| (fragment.as_mut_slice(), i % 5 != 0 || i / 5 >= lost))
                .collect();
            work(&mut marked);
        };
        println!("{lost} of 15 data fragments lost");
        compare(
            &mut stripes,
            &mut [
                ("rebuild, library", &mut |stripe| {
                    with_lost(stripe, &mut |marked| library.reconstruct(marked).expect("k fragments"));
                }),
                ("rebuild, ours", &mut |stripe| {
                    with_lost(stripe, &mut |marked| codec.rebuild(marked).expect("k fragments"));
                }),
            ],
        );
    }
}
