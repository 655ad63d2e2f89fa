//! The figures of the evaluation, numbered as in the paper: simulated on the left, by the paper's formulas on the
//! right, both over the same hours; below them the errors of the formulas, and the time spent only on switching.

use super::runs::{BETTER, Job, METHODS, PAPERS, Runs, Sweep};
use crate::repartition::{Method, Repartitioned};
use crate::report::{Axis, Figure, Panel, Scale, Series, range};
use crate::reproduce::evaluation::NamedFigure;

/// The file names of all figures.
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
        Method::Fillpack => "FillPack (ours)",
        Method::Tourpack => "TourPack (ours)",
    }
}

/// All figures.
pub fn figures(runs: &Runs) -> Vec<NamedFigure> {
    let figures = [
        even(runs, Sweep::Data, "Figure 4: data size", &Axis::linear("data (TB)"), Axis::linear),
        even(runs, Sweep::Memory, "Figure 5: buffer size", &Axis::log("buffer (GB)"), Axis::log),
        even(runs, Sweep::Groups, "Figure 6: number of groups", &Axis::log("groups"), Axis::log),
        even(runs, Sweep::Switch, "Figure 7: switch latency", &Axis::linear("switch (s)"), Axis::linear),
        skewed(runs),
    ];
    FIGURES.into_iter().zip(figures).map(|(name, figure)| NamedFigure { name, figure }).collect()
}

fn curve(runs: &Runs, sweep: Sweep, method: Method, of: impl Fn(&Repartitioned) -> f64) -> Series {
    Series::line(name(method), runs.of(sweep, method).map(|job| (job.x, of(&job.point))))
}

fn reference(runs: &Runs, sweep: Sweep, name: &str, of: impl Fn(&Job) -> f64) -> Series {
    Series::reference(name, runs.of(sweep, Method::Baseline).map(|job| (job.x, of(job))))
}

fn simulated(runs: &Runs, sweep: Sweep, title: &str, x: &Axis, y: &Axis) -> Panel {
    let mut series: Vec<Series> =
        METHODS.iter().map(|method| curve(runs, sweep, *method, |point| point.hours)).collect();
    series.push(reference(runs, sweep, DISKS, |job| runs.disks_hours(&job.what)));
    if sweep != Sweep::OutputSkew {
        series.push(reference(runs, sweep, BOUND, |job| job.point.bound_hours.unwrap_or(f64::NAN)));
    }
    Panel::new(title, x.clone(), y.clone(), series)
}

/// `scale` makes the axis of the hours.
fn even(runs: &Runs, sweep: Sweep, title: &str, x: &Axis, scale: fn(&'static str) -> Axis) -> Figure {
    let y = scale("time (h)");
    let model = |method| curve(runs, sweep, method, |point| point.model_hours.unwrap_or(f64::NAN));
    let by_model = Panel::new("by the paper's formulas", x.clone(), y.clone(), PAPERS.map(model).into());
    let switching = METHODS.map(|method| curve(runs, sweep, method, |point| point.switching_hours)).into();
    let switching = Panel::new("simulated, switching alone", x.clone(), scale("switching (h)"), switching);
    let mut both = [simulated(runs, sweep, "simulated", x, &y), by_model];
    over_the_same(&mut both);
    let [simulated, by_model] = both;
    Figure::new(title, 2, vec![simulated, by_model, off(runs, sweep, x), switching])
}

/// Gives all panels the range of their combined values.
fn over_the_same(panels: &mut [Panel]) {
    let values = panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.marks).map(|mark| mark.y);
    let (least, most) = range(values.filter(|value| value.is_finite()));
    for panel in panels {
        let from = if panel.y.scale == Scale::Log { least / 1.1 } else { 0.0 };
        panel.y = panel.y.clone().range(from, most * 1.1);
    }
}

/// The errors of the paper's formulas and of the better formulas.
fn off(runs: &Runs, sweep: Sweep, x: &Axis) -> Panel {
    let over = |point: &Repartitioned, model: Option<f64>| (point.hours / model.unwrap_or(f64::NAN) - 1.0) * 100.0;
    let papers = PAPERS.map(|method| curve(runs, sweep, method, |point| over(point, point.model_hours)));
    let better = BETTER.map(|method| {
        let points = runs.of(sweep, method).map(|job| (job.x, over(&job.point, job.point.better_model_hours)));
        Series::reference(format!("{}, better model (ours)", name(method).trim_end_matches(" (ours)")), points)
    });
    let title = "simulated, over the paper's formula and over the better model";
    let series = papers.into_iter().chain(better).collect();
    Panel::new(title, x.clone(), Axis::linear("longer than the model (%)"), series)
}

fn skewed(runs: &Runs) -> Figure {
    let (x, y) = (Axis::linear("s"), Axis::linear("time (h)"));
    let sweeps = [Sweep::InputSkew, Sweep::OutputSkew];
    let mut panels: Vec<Panel> = sweeps
        .into_iter()
        .zip(["skew of the input", "skew of the output"])
        .map(|(sweep, what)| simulated(runs, sweep, what, &x, &y))
        .collect();
    panels.extend(sweeps.map(|sweep| off(runs, sweep, &x)));
    Figure::new("Figure 8: skew", 2, panels)
}
