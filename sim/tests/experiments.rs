//! Experiments as a whole: they repeat to the bit, and small ones come out as arithmetic says.

#![allow(clippy::unwrap_used, missing_docs)]

mod racks;

use racks::shipped;
use sim::{Arrivals, Experiment, Network, Popularity, Sizes, System};
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn pelican() -> Experiment {
    let mut experiment = Experiment::pelican(shipped("pelican"));
    experiment.seeds = vec![1];
    experiment.stored_blobs = 4_800;
    experiment.warm_up = Duration::from_mins(30);
    experiment.duration = Duration::from_hours(1);
    experiment
}

#[test]
fn the_same_experiment_gives_the_same_point_and_another_seed_another_trace() {
    let mut experiment = pelican();
    experiment.seeds = vec![1, 2];
    let once = sim::run(&experiment).unwrap();
    assert_eq!(once, sim::run(&experiment).unwrap());
    assert_ne!(once.trace_hashes[0], once.trace_hashes[1]);
    assert!(once.ci95.throughput_bytes_per_s.is_some());
    let written = serde_json::to_string(&once).unwrap();
    assert_eq!(serde_json::from_str::<sim::Point>(&written).unwrap().answered, once.answered);
    let written = serde_json::to_string(&experiment).unwrap();
    assert_eq!(serde_json::from_str::<Experiment>(&written).unwrap(), experiment);
}

#[test]
fn points_come_in_their_order_and_are_the_same_for_any_number_of_threads() {
    let rates = [0.1, 2.0, 0.2, 1.0];
    let experiments = rates.map(|rate| {
        let mut experiment = pelican();
        experiment.workload.arrivals = Arrivals::poisson(rate);
        experiment
    });
    let done = AtomicUsize::new(0);
    let progress = |count| {
        done.fetch_max(count, Ordering::Relaxed);
    };
    let points = sim::run_each(&experiments, NonZeroUsize::new(3).unwrap(), &sim::run, &progress).unwrap();
    assert_eq!(done.into_inner(), rates.len());
    let one_by_one: Vec<_> = experiments.iter().map(|experiment| sim::run(experiment).unwrap()).collect();
    assert_eq!(points, one_by_one);
    let rate = |point: &sim::Point| (point.parameters.reads_per_s.unwrap() * 1e3).round() / 1e3;
    assert_eq!(points.iter().map(rate).collect::<Vec<_>>(), rates);
}

#[test]
fn an_experiment_that_cannot_be_run_ends_the_batch() {
    let mut none = pelican();
    none.seeds.clear();
    let result = sim::run_each(&[none, pelican()], NonZeroUsize::MIN, &sim::run, &|_| {});
    assert_eq!(result, Err(sim::ExperimentError::NoSeed));
}

#[test]
fn queues_that_fill_have_a_beginning_and_a_run_that_ends_before_they_are_full_says_so() {
    let mut experiment = pelican();
    experiment.workload.arrivals = Arrivals::poisson(8.0);
    experiment.duration = Duration::from_hours(5);
    // 8 per second come, 3.6 are served: 4,000 places are taken after a quarter of an hour.
    let after = sim::run(&experiment).unwrap().steady_after_s.unwrap();
    assert!((300.0..3_600.0).contains(&after), "{after} s");
    experiment.warm_up = Duration::ZERO;
    experiment.duration = Duration::from_mins(10);
    assert_eq!(sim::run(&experiment).unwrap().steady_after_s, None);
}

#[test]
fn a_burst_is_answered_whole_by_every_system() {
    for system in [System::Engine, System::FullyProvisioned, System::RandomLayout] {
        let mut experiment = pelican();
        experiment.system = system;
        experiment.network = Network::PROTOTYPE;
        experiment.workload.arrivals = Arrivals::Burst { reads: 120, over: Duration::from_mins(1) };
        let point = sim::run(&experiment).unwrap();
        assert_eq!((point.answered, point.refused), (120, 0), "{system:?}");
        assert!(point.throughput_bytes_per_s <= 1_062_500_000.0, "{system:?}: one card of 8.5 Gb/s");
        assert!(point.completion_s.max >= point.ttfb_s.max);
    }
}

#[test]
fn one_read_of_an_awake_rack_takes_two_seeks_and_its_share_of_the_drives_rate() {
    let mut experiment = pelican();
    experiment.system = System::FullyProvisioned;
    experiment.workload.arrivals = Arrivals::Burst { reads: 1, over: Duration::ZERO };
    let point = sim::run(&experiment).unwrap();
    // 8.4 ms, and 1 GB over 15 drives at 105 MB/s: the paper's lower bound of about 0.65 s.
    assert!((point.service_s.mean.unwrap() - 0.643_3).abs() < 0.000_1, "{:?}", point.service_s);
    // 8.4 ms, and the first fragment of 128 KiB.
    assert!((point.ttfb_s.mean.unwrap() - 0.009_65).abs() < 0.000_01, "{:?}", point.ttfb_s);
}

#[test]
fn a_popular_few_are_served_with_fewer_wakes() {
    let mut experiment = pelican();
    experiment.workload.arrivals = Arrivals::poisson(0.5);
    let uniform = sim::run(&experiment).unwrap();
    experiment.workload.popularity = Popularity::Zipf { exponent_permille: 1_500 };
    let few = sim::run(&experiment).unwrap();
    assert!(few.spin_ups_per_drive_year < uniform.spin_ups_per_drive_year);
    assert!(few.ttfb_s.mean < uniform.ttfb_s.mean);
}

#[test]
fn larger_blobs_take_longer() {
    let mut experiment = pelican();
    experiment.workload.arrivals = Arrivals::poisson(0.1);
    let fixed = sim::run(&experiment).unwrap();
    experiment.workload.sizes = Sizes::VHD;
    let images = sim::run(&experiment).unwrap();
    assert!(images.service_s.mean > fixed.service_s.mean);
    assert_eq!((fixed.refused, images.refused), (0, 0));
}

#[test]
fn a_trace_is_replayed_and_what_it_wrote_is_read_again() {
    let mut experiment = pelican();
    let mut csv = String::from("time,operation,key,bytes\n");
    for second in 0..50 {
        writeln!(csv, "{second}.5,write,new-{second},200000000").unwrap();
    }
    for second in 2_000..2_050 {
        writeln!(csv, "{second},read,new-{},200000000\n{second},read,old-{second},1000", second - 2_000).unwrap();
    }
    experiment.stored_permille = 900;
    let trace = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trace.path(), &csv).unwrap();
    experiment.workload.arrivals = Arrivals::Replay(trace.path().to_owned());
    let point = sim::run(&experiment).unwrap();
    assert_eq!((point.answered, point.refused), (150, 0));
    std::fs::write(trace.path(), csv + "9999,read,a,many\n").unwrap();
    assert!(sim::run(&experiment).unwrap_err().to_string().starts_with("line 152: bytes `many`"));
}
