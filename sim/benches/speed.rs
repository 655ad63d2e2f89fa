//! How fast the simulator is: 24 hours of Pelican's rack at 8 reads a second, in events a second, against a bare binary
//! heap in the same run that only plans and takes as many moments, with as many waiting as the simulator has.
//!
//! `cargo bench -p sim --bench speed`. Both run on one thread. The judge of traces runs along, as it does in every
//! experiment.

#![allow(clippy::unwrap_used)]

use model::{Rng, Time};
use sim::{Agenda, Arrivals, Experiment};
use std::time::{Duration, Instant};

/// Moments that wait at once: the drives of four groups that wake or rest.
const WAITING: u64 = 96;

fn pelican(hours: u64) -> Experiment {
    let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
    let mut experiment = Experiment::pelican(model::text::parse(text, name).unwrap());
    experiment.workload.arrivals = Arrivals::poisson(8.0);
    experiment.seeds = vec![1];
    experiment.stored_blobs = 4_800;
    experiment.warm_up = Duration::ZERO;
    experiment.duration = Duration::from_hours(hours);
    experiment
}

fn heap_events_per_s(events: u64) -> f64 {
    let mut agenda = Agenda::default();
    let mut rng = Rng::new(1);
    for number in 0..WAITING {
        agenda.plan(Time::from_nanos(rng.below(1_000_000_000)), number);
    }
    let begun = Instant::now();
    for _ in 0..events {
        let (now, number) = agenda.pop().unwrap();
        agenda.plan(now + Duration::from_nanos(rng.below(1_000_000_000)), number);
    }
    events as f64 / begun.elapsed().as_secs_f64()
}

fn main() {
    let experiment = pelican(24);
    let begun = Instant::now();
    let point = sim::run(&experiment).unwrap();
    let took_s = begun.elapsed().as_secs_f64();
    let rate = point.events as f64 / took_s;
    let heap = heap_events_per_s(point.events);
    println!("24 rack-hours at 8 reads/s: {took_s:.2} s, {} events, {rate:.0} events/s", point.events);
    println!("bare heap: {heap:.0} events/s; the simulator has {:.3} of that", rate / heap);
}
