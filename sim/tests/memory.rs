//! The memory of a run does not depend on the simulated time: the peak of allocated bytes, counted by the allocator,
//! the same on every machine.

#![allow(clippy::unwrap_used)]

mod racks;

use peak_alloc::PeakAlloc;
use racks::shipped;
use sim::{Arrivals, Experiment};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn mini() -> Experiment {
    let mut experiment = Experiment::pelican(shipped("pelican-mini"));
    experiment.seeds = vec![1];
    experiment.stored_blobs = 1_000;
    experiment.warm_up = Duration::ZERO;
    experiment
}

/// Events, and the peak of allocated bytes.
fn peak_of(experiment: &Experiment) -> (u64, usize) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let events = sim::run(experiment).unwrap().events;
    (events, ALLOCATOR.peak_usage() - before)
}

/// The extra memory of a queue that happens to be longer one day than any day before.
const FLUCTUATION_BYTES: usize = 64 << 10;

// One test, since the allocator counts what all threads do.
#[test]
fn ten_times_the_time_takes_the_same_memory() {
    let mut experiment = mini();
    experiment.workload.arrivals = Arrivals::poisson(0.08);
    experiment.duration = Duration::from_hours(12);
    let (events, peak) = peak_of(&experiment);
    experiment.duration *= 10;
    let (more_events, same_peak) = peak_of(&experiment);
    assert!(more_events > 9 * events, "{events}, {more_events}");
    assert!(same_peak <= peak + FLUCTUATION_BYTES, "{peak}, {same_peak}");

    let mut trace = tempfile::NamedTempFile::new().unwrap();
    experiment.workload.arrivals = Arrivals::Replay(trace.path().to_owned());
    write_reads(&mut trace, 0..2_000);
    let (_, peak) = peak_of(&experiment);
    write_reads(&mut trace, 2_000..20_000);
    let (_, same_peak) = peak_of(&experiment);
    assert!(trace.path().metadata().unwrap().len() as usize > 10 * FLUCTUATION_BYTES);
    assert!(same_peak <= peak + FLUCTUATION_BYTES, "{peak}, {same_peak} for a trace ten times as long");
}

fn write_reads(trace: &mut tempfile::NamedTempFile, reads: std::ops::Range<u32>) {
    let mut lines = String::new();
    for read in reads {
        writeln!(lines, "{},read,a key that takes its place {read},1000000", read * 15).unwrap();
    }
    trace.write_all(lines.as_bytes()).unwrap();
}
