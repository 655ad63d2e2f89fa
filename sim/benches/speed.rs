//! The speed of the simulator, its scaling, and its memory. Everything runs on one thread, together with the trace
//! judge, as in every experiment.
//!
//! `cargo bench -p sim --bench speed` measures
//! - 24 hours of Pelican's rack at 8 reads per second, compared with a bare binary heap in the same run: the same
//!   number of events, each pushed and popped with a payload of an event's size, while as many events wait as in the
//!   simulator;
//! - the memory of 1, 10 and 100 simulated days of a small rack;
//! - an hour of 87 such racks side by side as one: 100,224 drives.
//!
//! Times are processor times, so other programs matter less. A name (`pace`, `days`, `drives`) runs only that part.

#![allow(clippy::unwrap_used)]

#[path = "../tests/racks/mod.rs"]
mod racks;

use engine::Event;
use model::{RackSpec, Rng, Time};
use racks::{shipped, shipped_text};
use sim::{Arrivals, Experiment};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Events that wait at the same time: the drives of four groups that wake or rest.
const WAITING: u64 = 96;

/// The processor time of this thread in seconds.
fn cpu_s() -> f64 {
    let ran = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    ran.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Pelican's rack, this many times as wide.
fn pelicans(count: u32) -> RackSpec {
    let wide = shipped_text("pelican").replace("width = 6\n", &format!("width = {}\n", 6 * count));
    model::text::parse(&wide, "pelican").unwrap()
}

fn experiment(rack: RackSpec, reads_per_s: f64, duration: Duration) -> Experiment {
    let mut experiment = Experiment::pelican(rack);
    experiment.workload.arrivals = Arrivals::poisson(reads_per_s);
    experiment.seeds = vec![1];
    experiment.stored_blobs = 4_800;
    experiment.warm_up = Duration::ZERO;
    experiment.duration = duration;
    experiment
}

/// An item of the heap: a time, the number that breaks ties, and the event itself, which is not compared.
struct Planned(Time, u64, Option<Event>);

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Events per second through a bare heap, each popped once and pushed once.
fn heap_events_per_s(events: u64) -> f64 {
    let mut heap = BinaryHeap::new();
    let mut rng = Rng::new(1);
    for number in 0..WAITING {
        heap.push(Reverse(Planned(Time::from_nanos(rng.below(1_000_000_000)), number, Some(Event::DeadlineReached))));
    }
    let begun = cpu_s();
    for number in 0..events {
        let Reverse(Planned(now, _, event)) = heap.pop().unwrap();
        heap.push(Reverse(Planned(now + Duration::from_nanos(rng.below(1_000_000_000)), WAITING + number, event)));
    }
    events as f64 / (cpu_s() - begun)
}

fn pace() {
    let experiment = experiment(pelicans(1), 8.0, Duration::from_hours(24));
    let begun = cpu_s();
    let point = sim::run(&experiment).unwrap();
    let took_s = cpu_s() - begun;
    let requests = (point.answered + point.refused) as f64;
    let rate = point.events as f64 / took_s;
    let heap = heap_events_per_s(point.events);
    println!("24 rack-hours at 8 reads/s: {took_s:.2} s, {} events, {requests} requests", point.events);
    println!("  {:.2} us an event, {:.2} us a request", 1e6 / rate, took_s * 1e6 / requests);
    println!(
        "bare heap of equal items: {:.3} us an event; the simulator has {:.3} of its rate",
        1e6 / heap,
        rate / heap
    );
}

/// The peak resident memory of this process, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn days() {
    let rack = shipped("pelican-mini");
    for days in [1, 10, 100] {
        let point = sim::run(&experiment(rack.clone(), 0.05, Duration::from_hours(24 * days))).unwrap();
        println!(
            "{days:>3} days of `pelican-mini` at 0.05 reads/s: {:>8} events, {} KiB at most so far",
            point.events,
            peak_kib()
        );
    }
}

fn drives() {
    let begun = cpu_s();
    let rack = pelicans(87);
    let (count, described_s) = (rack.drives.len(), cpu_s() - begun);
    let begun = cpu_s();
    let layout = engine::layout::synthesise(&rack).unwrap();
    let (groups, classes) = (layout.groups.len(), layout.classes.len());
    println!("{count} drives: described in {described_s:.2} s; {groups} groups, {classes} classes in {:.2} s", {
        cpu_s() - begun
    });
    let mut experiment = experiment(rack, 4.0 * 87.0, Duration::from_hours(1));
    experiment.stored_blobs = 41_760;
    let begun = cpu_s();
    let measured = sim::run_once(&experiment, &layout, 1).unwrap();
    let took_s = cpu_s() - begun;
    let each_us = took_s * 1e6 / measured.events as f64;
    println!("  an hour at 348 reads/s: {took_s:.1} s, {} events, {each_us:.2} us an event", measured.events);
    println!(
        "  {} answered, {} refused, {} KiB at most",
        measured.clients.answered,
        measured.clients.refused,
        peak_kib()
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let parts: [(&str, fn()); 3] = [("pace", pace), ("days", days), ("drives", drives)];
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part();
        }
    }
}
