//! The forecast hours of a job against the hours that it then takes: each strategy and each format, in one class and in
//! two, and with most of the time in switches, in drives, or in the processor.

use crate::repartition::{is_over, jobs, put_bytes, request};
use crate::repartition_forecast::{CASES, Case};
use crate::site::{MIB, Site};
use model::{ClassId, RackSpec};
use server::processor::Processor;
use server::repartition::{Forecast, Outcome, Request};
use std::collections::BTreeMap;

const STRATEGIES: [&str; 5] = ["baseline", "buffpack", "offpack", "fillpack", "tourpack"];

/// The speeds of the drives and the processor of a rack of six groups or twelve.
#[derive(Clone, Copy)]
struct Hardware {
    name: &'static str,
    drive_bytes_per_s: u64,
    processor: Processor,
}

/// A large rack fills 8 GB at 1.5 GB/s in a third of the time of a switch, and its processor takes three times as long
/// for them. Here it is 3.5 MB: with drives and processor 2,000 times as slow, the ratios of switches, drives and
/// processor are the same as there.
const HARDWARE: [Hardware; 3] = [
    Hardware { name: "quick", drive_bytes_per_s: 140_000_000, processor: Processor::Host },
    Hardware { name: "drives", drive_bytes_per_s: 175_000, processor: Processor::Host },
    Hardware { name: "all", drive_bytes_per_s: 175_000, processor: Processor::Modelled { bytes_per_s: 233_000 } },
];

fn site(hardware: Hardware, one_class: bool) -> Site {
    let mut site = Site::new("pelican-mini");
    site.policy.starts_per_day = 100_000;
    let mut draft = (*site.spec).clone();
    draft.profile.bytes_per_s = hardware.drive_bytes_per_s;
    site.spec = RackSpec::validated(draft).unwrap();
    site.processor = hardware.processor;
    site.pin = one_class.then_some(("", ClassId(0)));
    site
}

/// Runs a job of twelve objects, from its plan to its end. A digit determines each object.
fn run(site: &mut Site, case: &Case, strategy: &str) -> (Forecast, Outcome) {
    let asked = Request {
        format: case.format.map(str::to_owned),
        strategy: Some(strategy.to_owned()),
        memory_bytes: 4 * MIB,
        ..request(case.by, 12)
    };
    site.run(async |larder| {
        for file in 0..12 {
            put_bytes(larder, &format!("in/{file:03}.{}", case.name), (case.object)(file % 10)).await;
        }
        larder.settle().await;
        let jobs = jobs(larder).await;
        let job = jobs.ask(asked).await.unwrap().job;
        let report = is_over(&jobs, job).await;
        assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""), "{} {strategy}", case.name);
        let (plan, outcome) = (report.plan.unwrap(), report.outcome.unwrap());
        assert_eq!(plan.processor.from, "sampled");
        let forecast = plan.forecasts.into_iter().find(|forecast| forecast.strategy == plan.chosen).unwrap();
        (forecast, outcome)
    })
}

/// The error of the forecast, as a share of the time that the job took.
fn off(hardware: Hardware, one_class: bool, case: &Case, strategy: &str) -> f64 {
    let (forecast, outcome) = run(&mut site(hardware, one_class), case, strategy);
    let off = forecast.hours / outcome.hours - 1.0;
    println!(
        "{} {:>6} {:>7} {strategy:>8}: {:+5.1} %, {:.4} h of {:.4} h, {} of {} switches; reading {:.4}, writing {:.4}, \
         reading back {:.4}, switching {:.4}, processing {:.4}",
        if one_class { "one class  " } else { "two classes" },
        hardware.name,
        case.name,
        100.0 * off,
        forecast.hours,
        outcome.hours,
        forecast.switches,
        outcome.switches,
        outcome.reading_hours,
        outcome.writing_hours,
        outcome.verifying_hours,
        outcome.switching_hours,
        outcome.processing_hours,
    );
    off
}

/// The cases of a run: a few of them, unless all are requested, or those whose names contain all the requested words.
fn chosen(hardware: usize, one_class: bool, case: usize, strategy: usize) -> bool {
    if let Ok(asked) = std::env::var("LARDER_HOURS") {
        let classes = if one_class { "one" } else { "two" };
        let names = [classes, HARDWARE[hardware].name, CASES[case].name, STRATEGIES[strategy]];
        return asked == "all" || asked.split_whitespace().all(|word| names.contains(&word));
    }
    let each_strategy = case == 0 && hardware == 2 && !one_class;
    let each_format = hardware == case % 3 && strategy == case && one_class;
    each_strategy || each_format
}

#[test]
fn hours_are_forecast_for_each_strategy_and_format() {
    let mut errors: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (nth, hardware) in HARDWARE.into_iter().enumerate() {
        for one_class in [false, true] {
            for (format, case) in CASES.iter().enumerate() {
                for (number, strategy) in STRATEGIES.into_iter().enumerate() {
                    if chosen(nth, one_class, format, number) {
                        let off = off(hardware, one_class, case, strategy).abs();
                        for name in ["all of them", hardware.name, case.name, strategy] {
                            errors.entry(name).or_default().push(off);
                        }
                    }
                }
            }
        }
    }
    let mut missed = Vec::new();
    for (name, errors) in errors {
        let (mean, most) =
            (errors.iter().sum::<f64>() / errors.len() as f64, errors.iter().copied().fold(0.0, f64::max));
        println!("{name}: {:.1} % on average, {:.1} % at most, of {}", 100.0 * mean, 100.0 * most, errors.len());
        if mean >= 0.2 || most >= 0.35 {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "20 % on average and 35 % at most are missed: {missed:?}");
}
