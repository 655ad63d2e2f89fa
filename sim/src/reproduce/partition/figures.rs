//! The figures of the evaluation, numbered as there: simulated on the left, by the paper's formulas on the right.

use super::runs::{Job, METHODS, PAPERS, Runs, Sweep};
use crate::repartition::{Method, Repartitioned};
use crate::report::{Axis, Figure, Plate, Series};
use crate::reproduce::Drawn;

/// The names of the files of all figures.
pub const FIGURES: [&str; 5] = [
    "figure-4-data-size.svg",
    "figure-5-buffer.svg",
    "figure-6-groups.svg",
    "figure-7-switch-latency.svg",
    "figure-8-skew.svg",
];

const DISKS: &str = "HDD cluster without switches";
const BOUND: &str = "lower bound (ours)";

fn name(method: Method) -> &'static str {
    match method {
        Method::Planner => "planner (ours)",
        Method::Baseline => "Baseline",
        Method::Buffpack => "BuffPack",
        Method::Offpack => "OffPack",
        Method::Tourpack => "TourPack (ours)",
    }
}

/// All figures.
pub fn figures(runs: &Runs) -> Vec<Drawn> {
    let memory = Axis::log("buffer (GB)");
    let groups = Axis::log("groups");
    let plates = [
        even(runs, Sweep::Data, "Figure 4: data size", &Axis::linear("data (TB)"), &Axis::linear("time (h)")),
        with_switching(runs, even(runs, Sweep::Memory, "Figure 5: buffer size", &memory, &Axis::log("time (h)"))),
        even(runs, Sweep::Groups, "Figure 6: number of groups", &groups, &Axis::log("time (h)")),
        even(runs, Sweep::Switch, "Figure 7: switch latency", &Axis::linear("switch (s)"), &Axis::linear("time (h)")),
        skewed(runs),
    ];
    FIGURES.into_iter().zip(plates).map(|(name, plate)| Drawn { name, plate }).collect()
}

fn curve(runs: &Runs, sweep: Sweep, method: Method, of: impl Fn(&Repartitioned) -> f64) -> Series {
    Series::line(name(method), runs.of(sweep, method).map(|job| (job.x, of(&job.point))))
}

fn reference(runs: &Runs, sweep: Sweep, name: &str, of: impl Fn(&Job) -> f64) -> Series {
    Series::reference(name, runs.of(sweep, Method::Baseline).map(|job| (job.x, of(job))))
}

fn simulated(runs: &Runs, sweep: Sweep, title: &str, x: &Axis, y: &Axis) -> Figure {
    let mut series: Vec<Series> =
        METHODS.iter().map(|method| curve(runs, sweep, *method, |point| point.hours)).collect();
    series.push(reference(runs, sweep, DISKS, |job| runs.disks_hours(&job.what)));
    if sweep != Sweep::OutputSkew {
        series.push(reference(runs, sweep, BOUND, |job| job.point.bound_hours.unwrap_or(f64::NAN)));
    }
    Figure { title: title.to_owned(), x: x.clone(), y: y.clone(), series }
}

fn even(runs: &Runs, sweep: Sweep, title: &str, x: &Axis, y: &Axis) -> Plate {
    let model = |method| curve(runs, sweep, method, |point| point.model_hours.unwrap_or(f64::NAN));
    let by_model = Figure {
        title: "by the paper's formulas".to_owned(),
        x: x.clone(),
        y: y.clone(),
        series: PAPERS.map(model).to_vec(),
    };
    Plate::new(title, 2, vec![simulated(runs, sweep, "simulated", x, y), by_model])
}

/// Figure 5 shows the time that is spent switching as well.
fn with_switching(runs: &Runs, mut plate: Plate) -> Plate {
    plate.figures.push(Figure {
        title: "simulated, switching alone".to_owned(),
        x: Axis::log("buffer (GB)"),
        y: Axis::log("switching (h)"),
        series: METHODS.map(|method| curve(runs, Sweep::Memory, method, |point| point.switching_hours)).to_vec(),
    });
    plate
}

fn skewed(runs: &Runs) -> Plate {
    let y = Axis::linear("time (h)");
    let of = |sweep, what: &str| {
        let mut figure = simulated(runs, sweep, &format!("skew of the {what}"), &Axis::linear("s"), &y);
        for method in [Method::Buffpack, Method::Offpack] {
            let better = runs.of(sweep, method).map(|job| (job.x, job.point.better_model_hours.unwrap_or(f64::NAN)));
            figure.series.push(Series::reference(format!("{}, better model (ours)", name(method)), better));
        }
        figure
    };
    Plate::new("Figure 8: skew", 2, vec![of(Sweep::InputSkew, "input"), of(Sweep::OutputSkew, "output")])
}
