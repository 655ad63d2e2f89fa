//! The figures of the paper, numbered as in the paper; with one seed.

use super::runs::{INTERVAL, Kind, RATES, Runs, SWEPT_THREADS, Scene, Variant};
use crate::cluster::{ClusterOutcome, Interval};
use crate::report::{Axis, Figure, Panel, Series, Style};
use crate::reproduce::evaluation::NamedFigure;
use crate::reproduce::sweep::most;

/// The file names of all figures.
pub const FIGURES: [&str; 5] = [
    "figure-4-vanilla.svg",
    "figure-5-normal.svg",
    "figure-6-failure.svg",
    "figure-7-migration.svg",
    "figure-tails.svg",
];

/// All figures.
pub fn figures(runs: &Runs) -> Vec<NamedFigure> {
    let figures = [vanilla(runs), normal(runs), failure(runs), migration(runs), variants(runs)];
    FIGURES.into_iter().zip(figures).map(|(name, figure)| NamedFigure { name, figure }).collect()
}

/// The maximum number of points of a curve.
const POINTS: usize = 120;

fn per_second(one: &Interval) -> f64 {
    one.ended as f64 / INTERVAL.as_secs_f64()
}

fn watts(one: &Interval) -> f64 {
    one.draw_mw as f64 / 1e3
}

/// A number of each interval over time; if several intervals share a point, their mean.
fn course(name: &str, outcome: &ClusterOutcome, of: fn(&Interval) -> f64) -> Series {
    let each = outcome.intervals.len().div_ceil(POINTS).max(1);
    let chunks = outcome.intervals.chunks(each).enumerate();
    let points = chunks.map(|(at, chunk)| {
        let values: Vec<f64> = chunk.iter().map(of).filter(|value| value.is_finite()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        ((at * each) as f64 * INTERVAL.as_secs_f64(), mean)
    });
    Series::styled(name, Style::Steps, points)
}

fn over_time(runs: &Runs, scene: Scene, y: &str, of: fn(&Interval) -> f64) -> Panel {
    let series = Kind::ALL.map(|kind| course(kind.words(), runs.first().of(kind, scene), of));
    let top = most(series.iter().flat_map(|series| &series.marks).map(|mark| mark.y));
    Panel::new("", Axis::linear("time (s)"), Axis::linear(y).range(0.0, top * 1.05), series.into())
}

/// The labels of the axis of a tail: 0, 90, 99 % and so on.
const NINES: [&str; 7] = ["0", "90", "99", "99.9", "99.99", "99.999", "99.9999"];

fn tail(name: String, outcome: &ClusterOutcome) -> Series {
    const STEPS: u32 = 10;
    let last = (NINES.len() as u32 - 1) * STEPS;
    let points = (1..=last).map(|step| {
        let nines = f64::from(step) / f64::from(STEPS);
        let seconds = outcome.latency.quantile_s(1.0 - 10_f64.powf(-nines));
        (nines, seconds.unwrap_or(f64::NAN))
    });
    Series::styled(name, Style::Steps, points)
}

fn tails(series: Vec<Series>) -> Panel {
    let last = NINES.len() as f64 - 1.0;
    let x = Axis::named("requests that took no longer (%)", NINES.map(ToOwned::to_owned)).range(0.0, last);
    Panel::new("", x, Axis::log("time of a request (s)"), series)
}

fn tails_of(runs: &Runs, scene: Scene) -> Panel {
    tails(Kind::ALL.map(|kind| tail(kind.words().to_owned(), runs.first().of(kind, scene))).into())
}

fn vanilla(runs: &Runs) -> Figure {
    let swept = |y: &str, of: fn(&ClusterOutcome) -> f64| {
        let line = |threads: u32| {
            let rates = RATES.into_iter().filter_map(|rate| runs.swept(rate, threads));
            Series::line(format!("{threads} threads"), rates.map(|outcome| (outcome.throughput(), of(outcome))))
        };
        let x = Axis::linear("requests served a second").range(0.0, 700.0).ticks([200.0, 400.0, 600.0]);
        Panel::new("", x, Axis::linear(y), SWEPT_THREADS.map(line).into())
    };
    let mean = swept("mean time (ms)", |outcome| outcome.latency.mean_s().unwrap_or(f64::NAN) * 1e3);
    let load = swept("load of a server", |outcome| outcome.load);
    Figure::new("Figure 4: vanilla, aiming at 100 to 700 requests a second", 2, vec![mean, load])
}

fn normal(runs: &Runs) -> Figure {
    let panels = vec![
        over_time(runs, Scene::Normal, "requests a second", per_second),
        over_time(runs, Scene::Normal, "mean time (ms)", Interval::mean_ms),
        tails_of(runs, Scene::Normal),
        over_time(runs, Scene::Normal, "power of the drives (W)", watts),
    ];
    Figure::new("Figure 5: normal load, nothing fails", 2, panels)
}

fn failure(runs: &Runs) -> Figure {
    let panels = vec![
        over_time(runs, Scene::Failure, "requests a second", per_second),
        over_time(runs, Scene::Failure, "mean time (ms)", Interval::mean_ms),
        tails_of(runs, Scene::Failure),
        over_time(runs, Scene::Failure, "power of the drives (W)", watts),
    ];
    Figure::new("Figure 6: normal load, an OSD fails at 300 s, counts as out at 900 s", 2, panels)
}

fn migration(runs: &Runs) -> Figure {
    let panels = vec![
        over_time(runs, Scene::Scrub, "requests a second", per_second),
        over_time(runs, Scene::Scrub, "mean time (ms)", Interval::mean_ms),
    ];
    Figure::new("Figure 7: all groups are scrubbed at full load, and what is cold migrates", 2, panels)
}

fn variants(runs: &Runs) -> Figure {
    let panels = [Kind::Cold6, Kind::Cold12].map(|kind| {
        let names = [
            (Variant::Chosen, "the newest 8 % have not moved"),
            (Variant::AllMoved, "all that may has moved"),
            (Variant::SecondHot, "the second replica is hot"),
        ];
        let of =
            |(variant, name): (Variant, &str)| tail(name.to_owned(), runs.first().at(kind, Scene::Failure, variant));
        Panel { title: kind.words().to_owned(), ..tails(names.map(of).into()) }
    });
    Figure::new("Tails when an OSD fails, by what has moved", 2, panels.into())
}
