//! One point of Pelican's evaluation, as JSON: `cargo run --release -p sim --example point -- engine 5 40`.
//! The arguments are the system (engine, fp, random), reads a second, and Gb/s of the rack's network (0 is no limit).

use sim::{Arrivals, Experiment, Network, System};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: &str| arguments.get(index).cloned().unwrap_or_else(|| default.to_owned());
    let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").ok_or("no such rack")?;
    let mut experiment = Experiment::pelican(model::text::parse(text, name)?);
    experiment.system = match argument(0, "engine").as_str() {
        "fp" => System::FullyProvisioned,
        "random" => System::RandomLayout,
        _ => System::Engine,
    };
    experiment.workload.arrivals = Arrivals::poisson(argument(1, "1").parse()?);
    let gb_per_s: u64 = argument(2, "40").parse()?;
    let bytes_per_s = (gb_per_s > 0).then_some(gb_per_s * 1_000_000_000 / 16);
    experiment.network = Network { bytes_per_s, shared: false };
    experiment.seeds = vec![1];
    if let Some(depth) = arguments.get(3) {
        experiment.policy.scheduler.queue_depth = depth.parse()?;
    }
    let begun = Instant::now();
    let point = sim::run(&experiment)?;
    println!("{}", serde_json::to_string_pretty(&point)?);
    eprintln!("{:.2} s, {} events", begun.elapsed().as_secs_f64(), point.events);
    Ok(())
}
