//! Pelican's evaluation, row by row: `cargo run --release -p sim --example pelican [hours]`. Prints what the paper's
//! text says, what comes out here, and by how much it differs. Nothing is tuned but the two calibrations that the
//! description of the rack names (idle time to first byte; rejects at 5 reads a second and unbounded network).

use model::RackSpec;
use sim::fill::{Capacities, DriveRule, clipped, fill, varied};
use sim::{Arrivals, Experiment, Network, Point, Sizes, System};
use std::error::Error;
use std::time::{Duration, Instant};

const READS_PER_S: [f64; 11] = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0];

/// The curves of the paper's figures.
struct Curves {
    pelican: Vec<Point>,
    pelican_unbounded: Vec<Point>,
    fp: Vec<Point>,
    fp_unbounded: Vec<Point>,
    random: Vec<Point>,
    by_u: Vec<Point>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let hours: u64 = std::env::args().nth(1).map_or(Ok(24), |hours| hours.parse())?;
    let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").ok_or("no such rack")?;
    let rack = model::text::parse(text, name)?;
    let begun = Instant::now();
    let curves = simulate(&rack, hours)?;
    print_curves(&curves);
    print_rows(&curves)?;
    print_utilisation(&rack)?;
    eprintln!("{:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn base(rack: &RackSpec, hours: u64) -> Experiment {
    let mut experiment = Experiment::pelican(rack.clone());
    experiment.seeds = vec![1];
    experiment.duration = Duration::from_hours(hours);
    experiment
}

fn simulate(rack: &RackSpec, hours: u64) -> Result<Curves, Box<dyn Error>> {
    let sweep = |system: System, network: Network, rates: &[f64]| {
        let points = rates.iter().map(|rate| {
            let mut experiment = base(rack, hours);
            experiment.system = system;
            experiment.network = network;
            experiment.workload.arrivals = Arrivals::poisson(*rate);
            experiment
        });
        all(&points.collect::<Vec<_>>())
    };
    let by_u = [50, 100, 150, 250, 350, 500, 750, 1_000].map(|limit_gb| {
        let mut experiment = base(rack, hours);
        experiment.workload.arrivals = Arrivals::poisson(5.0);
        experiment.policy.scheduler.overtake_limit = limit_gb * 1_000_000_000;
        experiment
    });
    Ok(Curves {
        pelican: sweep(System::Engine, Network::PELICAN, &READS_PER_S)?,
        pelican_unbounded: sweep(System::Engine, Network::UNBOUNDED, &[5.0, 8.0])?,
        fp: sweep(System::FullyProvisioned, Network::PELICAN, &READS_PER_S)?,
        fp_unbounded: sweep(System::FullyProvisioned, Network::UNBOUNDED, &[8.0, 16.0])?,
        random: sweep(System::RandomLayout, Network::PELICAN, &[0.0625, 0.25, 1.0, 8.0])?,
        by_u: all(&by_u)?,
    })
}

/// Runs all experiments, as many at once as there are processors.
fn all(experiments: &[Experiment]) -> Result<Vec<Point>, Box<dyn Error>> {
    let at_once = std::thread::available_parallelism()?.get();
    let mut points = Vec::new();
    for some in experiments.chunks(at_once) {
        let run = |experiment| move || sim::run(experiment);
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|experiment| scope.spawn(run(experiment))).collect();
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        for result in results {
            points.push(result.map_err(|_| "a run was ended by what it found")??);
        }
    }
    Ok(points)
}

fn print_curves(curves: &Curves) {
    let named = [
        ("pelican", &curves.pelican),
        ("pelican, no limit", &curves.pelican_unbounded),
        ("fp", &curves.fp),
        ("fp, no limit", &curves.fp_unbounded),
        ("random layout", &curves.random),
        ("pelican by u", &curves.by_u),
    ];
    println!(
        "{:<18} {:>6} {:>6} {:>7} {:>9} {:>9} {:>9} {:>8} {:>7} {:>6} {:>8} {:>6} {:>7} {:>7}",
        "",
        "1/s",
        "u GB",
        "Gb/s",
        "ttfb s",
        "p99",
        "max",
        "serve s",
        "reject",
        "waking",
        "starts/y",
        "TB/y",
        "W",
        "peak W"
    );
    for (name, points) in named {
        for point in points {
            println!(
                "{name:<18} {:>6.3} {:>6} {:>7.2} {:>9.2} {:>9.2} {:>9.2} {:>8.3} {:>7.3} {:>6.3} {:>8.0} {:>6.1} \
                 {:>7.0} {:>7.0}",
                point.parameters.reads_per_s.unwrap_or(0.0),
                point.parameters.overtake_limit / 1_000_000_000,
                gbit(point),
                point.ttfb_s.mean.unwrap_or(0.0),
                point.ttfb_s.p99.unwrap_or(0.0),
                point.ttfb_s.max.unwrap_or(0.0),
                point.service_s.mean.unwrap_or(0.0),
                point.reject_rate,
                point.wake_time_fraction,
                point.spin_ups_per_drive_year,
                point.tb_per_drive_year,
                point.power_w.mean,
                point.power_w.peak
            );
        }
    }
}

fn gbit(point: &Point) -> f64 {
    point.throughput_bytes_per_s * 8e-9
}

fn at(points: &[Point], reads_per_s: f64) -> Result<&Point, Box<dyn Error>> {
    let same = |point: &&Point| point.parameters.reads_per_s.is_some_and(|rate| (rate - reads_per_s).abs() < 1e-6);
    Ok(points.iter().find(same).ok_or("no such rate")?)
}

/// A row: what the text says, what comes out.
fn row(what: &str, paper: f64, ours: f64, unit: &str) {
    println!("{what:<62} {paper:>9.2} {ours:>9.2} {:>+7.1} % {unit}", (ours / paper - 1.0) * 100.0);
}

/// A row whose text gives a bound or a course.
fn claim(what: &str, holds: bool, ours: &str) {
    println!("{what:<62} {:>9} {ours}", if holds { "yes" } else { "NO" });
}

fn print_rows(curves: &Curves) -> Result<(), Box<dyn Error>> {
    println!("\n{:<62} {:>9} {:>9} {:>9}", "row of the text", "paper", "ours", "off by");
    let mean = |point: &Point| point.ttfb_s.mean.unwrap_or(0.0);
    let service = |point: &Point| point.service_s.mean.unwrap_or(0.0);
    let (pelican, fp) = (&curves.pelican, &curves.fp);
    row("TTFB of an idle rack (calibration 1)", 14.2, mean(at(pelican, 0.0625)?), "s");
    row("service time, lower bound of 1 GB", 0.65, fp[0].service_s.p50.unwrap_or(0.0), "s");
    let worst = |limit: f64| {
        let pairs = pelican.iter().zip(fp).filter(|(p, _)| p.parameters.reads_per_s.is_some_and(|rate| rate <= limit));
        pairs.map(|(p, f)| 1.0 - p.throughput_bytes_per_s / f.throughput_bytes_per_s).fold(0.0, f64::max)
    };
    claim(
        "throughput within 20 % of FP up to 4/s",
        worst(4.0) <= 0.2,
        &format!("{:.1} % below at most", worst(4.0) * 100.0),
    );
    claim(
        "throughput within 20 % of FP at any rate",
        worst(8.0) <= 0.2,
        &format!("{:.1} % below at most", worst(8.0) * 100.0),
    );
    let most = |points: &[Point]| points.iter().map(gbit).fold(0.0, f64::max);
    claim(
        "random layout never above 0.7 Gb/s",
        most(&curves.random) <= 0.7,
        &format!("{:.2} Gb/s", most(&curves.random)),
    );
    row("FP with unbounded network", 106.0, most(&curves.fp_unbounded), "Gb/s");
    let refused = |points: &[Point]| {
        points.iter().filter(|p| p.parameters.reads_per_s < Some(5.0)).map(|p| p.refused).sum::<u64>()
    };
    claim(
        "no rejects below 5/s (21 % at 5/s leave 3.95/s)",
        refused(pelican) + refused(fp) == 0,
        &format!("{} requests", refused(pelican) + refused(fp)),
    );
    row(
        "rejects at 5/s, unbounded (calibration 2)",
        21.0,
        at(&curves.pelican_unbounded, 5.0)?.reject_rate * 100.0,
        "%",
    );
    row("rejects at 5/s, 40 Gb/s", 35.0, at(pelican, 5.0)?.reject_rate * 100.0, "%");
    row("rejects of FP at 5/s", 1.0, at(fp, 5.0)?.reject_rate * 100.0, "%");
    row(
        "share of time waking at 5/s, unbounded",
        38.0,
        at(&curves.pelican_unbounded, 5.0)?.wake_time_fraction * 100.0,
        "%",
    );
    let below =
        pelican.iter().zip(fp).find(|(p, f)| service(p) < service(f)).and_then(|(p, _)| p.parameters.reads_per_s);
    row("service time below FP's from", 4.0, below.unwrap_or(0.0), "reads/s");
    let falls = pelican
        .windows(2)
        .filter(|pair| pair[0].parameters.reads_per_s >= Some(0.25))
        .all(|p| service(&p[1]) <= service(&p[0]) * 1.01);
    claim("service time falls from 0.25/s up", falls, "");
    let ratio = pelican
        .iter()
        .zip(fp)
        .filter(|(p, _)| p.parameters.reads_per_s < Some(5.0))
        .map(|(p, f)| mean(p) / f.ttfb_s.max.unwrap_or(f64::MAX));
    let ratio = ratio.fold(f64::MAX, f64::min);
    claim("FP's max TTFB 10x below Pelican's mean until 5/s", ratio >= 10.0, &format!("{ratio:.1} x at least"));
    print_rows_of_limits_and_power(curves)
}

fn print_rows_of_limits_and_power(curves: &Curves) -> Result<(), Box<dyn Error>> {
    let (pelican, fp) = (&curves.pelican, &curves.fp);
    let u = |limit_gb: u64| {
        curves.by_u.iter().find(|p| p.parameters.overtake_limit == limit_gb * 1_000_000_000).ok_or("no such u")
    };
    row("u from 50 to 350 GB: throughput grows by (nearly doubles)", 2.0, gbit(u(350)?) / gbit(u(50)?), "x");
    row("rejects at u = 50 GB", 85.0, u(50)?.reject_rate * 100.0, "%");
    row("rejects at u = 1,000 GB", 25.0, u(1_000)?.reject_rate * 100.0, "%");
    let p99 = |limit_gb: u64| -> Result<f64, Box<dyn Error>> { Ok(u(limit_gb)?.ttfb_s.p99.unwrap_or(0.0)) };
    claim("p99 TTFB falls up to u = 350 GB", p99(350)? < p99(50)?, &format!("{:.0} s to {:.0} s", p99(50)?, p99(350)?));
    claim("and rises past it", p99(1_000)? > p99(350)?, &format!("{:.0} s to {:.0} s", p99(350)?, p99(1_000)?));
    let peak = |of: fn(&Point) -> f64| {
        pelican.iter().max_by(|a, b| of(a).total_cmp(&of(b))).and_then(|p| p.parameters.reads_per_s).unwrap_or(0.0)
    };
    row("spin-ups peak at", 0.5, peak(|p| p.spin_ups_per_drive_year), "reads/s");
    row(
        "data per drive and year, at most",
        99.0,
        pelican.iter().map(|p| p.tb_per_drive_year).fold(0.0, f64::max),
        "TB",
    );
    row("mean power peaks at", 0.5, peak(|p| p.power_w.mean), "reads/s");
    row("highest mean power", 3.3, pelican.iter().map(|p| p.power_w.mean).fold(0.0, f64::max) / 1e3, "kW");
    row("mean power at 8/s", 2.6, at(pelican, 8.0)?.power_w.mean / 1e3, "kW");
    row("peak power", 3.7, pelican.iter().map(|p| p.power_w.peak).fold(0.0, f64::max) / 1e3, "kW");
    row("all drives spinning", 10.85, fp[0].power_w.mean / 1e3, "kW");
    claim("boot in less than 3 minutes", pelican[0].boot_s < 180.0, &format!("{:.0} s", pelican[0].boot_s));
    Ok(())
}

/// Figure 9(c), with the sensitivity to the shape of the drives' sizes that did not survive.
fn print_utilisation(rack: &RackSpec) -> Result<(), Box<dyn Error>> {
    let layout = engine::layout::synthesise(rack)?;
    println!("\nutilisation at the first refusal (the paper: 99.386 % varying, 99.998 % equal, 107.7 % of clipping)");
    let equal = fill(rack, &layout, Sizes::VHD, DriveRule::MostSpare, 1).utilisation();
    println!("equal drives: {:.3} %", equal * 100.0);
    for draws in [1, 2, 4] {
        let unequal = varied(rack, Capacities { draws, ..Capacities::PELICAN }, 1)?;
        let ours = fill(&unequal, &layout, Sizes::VHD, DriveRule::MostSpare, 1);
        let random = fill(&unequal, &layout, Sizes::VHD, DriveRule::Random, 1);
        let least = fill(&clipped(&unequal)?, &layout, Sizes::VHD, DriveRule::MostSpare, 1);
        println!(
            "4.2 to 4.9 TB, mean of {draws} draws: {:.3} %, random choice {:.3} %, {:.1} % of clipping",
            ours.utilisation() * 100.0,
            random.utilisation() * 100.0,
            ours.payload_bytes as f64 / least.payload_bytes as f64 * 100.0
        );
    }
    Ok(())
}
