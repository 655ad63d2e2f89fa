//! Rows of Pelican's evaluation that a short run can show; `examples/pelican.rs` has all of them, at full length.
//! Each test prints what the text says and what comes out.

#![allow(clippy::unwrap_used, missing_docs)]

use sim::{Arrivals, Experiment, Network, Point, System};
use std::time::Duration;

fn pelican(system: System, network: Network, reads_per_s: f64) -> Experiment {
    let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
    let mut experiment = Experiment::pelican(model::text::parse(text, name).unwrap());
    experiment.system = system;
    experiment.network = network;
    experiment.workload.arrivals = Arrivals::poisson(reads_per_s);
    experiment.seeds = vec![1];
    experiment.warm_up = Duration::from_hours(1);
    experiment.duration = Duration::from_hours(3);
    experiment
}

fn gbit(point: &Point) -> f64 {
    point.throughput_bytes_per_s * 8e-9
}

#[test]
fn an_idle_rack_gives_its_first_byte_after_14_2_s() {
    let mut experiment = pelican(System::Engine, Network::PELICAN, 1.0 / 16.0);
    experiment.duration = Duration::from_hours(24);
    experiment.seeds = vec![1, 2, 3, 4];
    let point = sim::run(&experiment).unwrap();
    let (mean, sure) = (point.ttfb_s.mean.unwrap(), point.ci95.ttfb_mean_s.unwrap());
    println!("TTFB, idle: paper 14.2 s, ours {mean:.2} +- {sure:.2} s; boot {:.0} s, paper below 180 s", point.boot_s);
    assert!((mean - 14.2).abs() < 0.2, "{mean}");
    assert!(point.boot_s < 180.0);
    assert_eq!(point.refused, 0);
}

#[test]
fn up_to_4_reads_a_second_pelican_sends_as_much_as_a_fully_provisioned_rack() {
    for rate in [1.0, 3.0, 4.0] {
        let ours = sim::run(&pelican(System::Engine, Network::PELICAN, rate)).unwrap();
        let fp = sim::run(&pelican(System::FullyProvisioned, Network::PELICAN, rate)).unwrap();
        let below = 1.0 - ours.throughput_bytes_per_s / fp.throughput_bytes_per_s;
        println!("{rate}/s: {:.2} Gb/s, FP {:.2} Gb/s: {:.2} % below", gbit(&ours), gbit(&fp), below * 100.0);
        assert!(below < 0.2);
        println!(
            "refused: {:.1} % and {:.1} %; the paper: none below 5/s",
            ours.reject_rate * 100.0,
            fp.reject_rate * 100.0
        );
        assert_eq!(fp.refused, 0);
        // At 4/s it is on the edge: 21 % of rejects at 5/s leave 3.95 reads a second, the network apart.
        assert!(ours.refused == 0 || rate > 3.95);
        assert!(fp.ttfb_s.max.unwrap() * 10.0 < ours.ttfb_s.mean.unwrap());
    }
}

#[test]
fn a_fully_provisioned_rack_is_held_back_by_its_pcie_roots_alone() {
    let mut experiment = pelican(System::FullyProvisioned, Network::UNBOUNDED, 16.0);
    experiment.duration = Duration::from_mins(30);
    let point = sim::run(&experiment).unwrap();
    println!("FP, no limit to the network: paper 106 Gb/s, ours {:.1} Gb/s", gbit(&point));
    assert!((gbit(&point) - 106.0).abs() < 1.06);
    assert!((point.power_w.mean - 10_851.84).abs() < 0.01, "1,152 drives at 9.42 W");
}

#[test]
fn the_straw_man_never_sends_more_than_0_7_gbit() {
    for rate in [0.25, 8.0] {
        let point = sim::run(&pelican(System::RandomLayout, Network::PELICAN, rate)).unwrap();
        println!("random layout at {rate}/s: paper at most 0.7 Gb/s, ours {:.2} Gb/s", gbit(&point));
        assert!(gbit(&point) <= 0.7);
    }
}

#[test]
fn overload_refuses_the_21_percent_that_the_busy_mounts_are_calibrated_on() {
    let mut experiment = pelican(System::Engine, Network::UNBOUNDED, 5.0);
    experiment.warm_up = Duration::from_hours(4);
    experiment.duration = Duration::from_hours(8);
    let unbounded = sim::run(&experiment).unwrap();
    experiment.network = Network::PELICAN;
    let bounded = sim::run(&experiment).unwrap();
    println!(
        "rejects at 5/s: unbounded paper 21 %, ours {:.1} % (waking {:.1} % of the time, paper ~38 %); \
         40 Gb/s paper 35 %, ours {:.1} %",
        unbounded.reject_rate * 100.0,
        unbounded.wake_time_fraction * 100.0,
        bounded.reject_rate * 100.0
    );
    assert!((unbounded.reject_rate - 0.21).abs() < 0.01, "{}", unbounded.reject_rate);
}

#[test]
fn ninety_six_drives_that_wake_at_once_draw_the_papers_peak() {
    let point = sim::run(&pelican(System::Engine, Network::PELICAN, 0.5)).unwrap();
    println!("at 0.5/s: mean {:.0} W (paper 3.3 kW), peak {:.0} W (3.7 kW)", point.power_w.mean, point.power_w.peak);
    assert!((point.power_w.peak - 3_714.24).abs() < 0.01, "96 x 21.53 W and 1,056 x 1.56 W");
}
