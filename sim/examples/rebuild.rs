//! Pelican's rebuild (section 5, figure 7): a drive with 4.28 TB of 64,329 blobs fails while clients read, w = 50 %.
//! `cargo run --release -p sim --example rebuild -- 60 0.0625 1 8`: the quantum of the fair queue in seconds, and the
//! rates to try, in reads a second. Without any: 60 s, and 1/16 to 8.

use sim::{Arrivals, Experiment};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<f64> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let quantum = arguments.first().copied().unwrap_or(60.0);
    let all = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0];
    let rates = if arguments.len() > 1 { &arguments[1..] } else { &all };
    let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").ok_or("no such rack")?;
    let mut experiment = Experiment::pelican_rebuild(model::text::parse(text, name)?);
    experiment.policy.scheduler.quantum = Duration::from_secs_f64(quantum);
    experiment.seeds = vec![1];
    println!("reads/s  rebuild h  TTFB s in its class, elsewhere, without failure  ratios  refused");
    for rate in rates {
        experiment.workload.arrivals = Arrivals::poisson(*rate);
        let begun = Instant::now();
        let point = sim::run(&experiment)?;
        let without = sim::run(&Experiment { fault: None, ..experiment.clone() })?;
        let Some(rebuild) = point.rebuild else { return Err("nothing failed".into()) };
        let mean = |summary: sim::Summary| summary.mean.unwrap_or(f64::NAN);
        let (inside, outside) = (mean(rebuild.in_class.ttfb_s), mean(rebuild.elsewhere.ttfb_s));
        let plain = mean(without.ttfb_s);
        println!(
            "{rate:7}  {:9.2}  {inside:8.1} {outside:8.1} {plain:8.1}  {:5.2} {:5.2}  {:.3} {:.3} {:.3}  ({:.1} s)",
            rebuild.rebuild_s.unwrap_or(f64::NAN) / 3600.0,
            inside / plain,
            outside / plain,
            rebuild.in_class.reject_rate,
            rebuild.elsewhere.reject_rate,
            without.reject_rate,
            begun.elapsed().as_secs_f64()
        );
    }
    Ok(())
}
