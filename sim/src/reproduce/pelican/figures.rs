//! The figures of Pelican's evaluation, numbered as in the paper.

use super::runs::{FilledRack, GB, Runs, SEEDS, Series as Of, gbit, rate};
use crate::report::{Axis, Figure, Mark, Panel, Series, Style};
use crate::reproduce::evaluation::NamedFigure;
use crate::reproduce::judge::Sample;
use crate::{Point, SeededPoint};

/// The file names of all figures; the quick form lacks the last figure.
pub const FIGURES: [&str; 8] = [
    "figure-4-bursts.svg",
    "figure-5-6-by-rate.svg",
    "figure-7-rebuild.svg",
    "figure-8-by-u.svg",
    "figure-9a-wear.svg",
    "figure-9b-power.svg",
    "figure-9c-utilisation.svg",
    "reading-k-or-all.svg",
];

/// The sweeps by rate, with their legend names.
const BY_RATE: [(Of, &str); 5] = [
    (Of::Pelican, "Pelican, 40 Gb/s"),
    (Of::PelicanUnbounded, "Pelican, unbounded"),
    (Of::Fp, "FP, 40 Gb/s"),
    (Of::FpUnbounded, "FP, unbounded"),
    (Of::Random, "random layout"),
];

/// Points with a number in the text's words.
const IN_WORDS: &str = "number in the text";

/// All figures.
pub fn figures(runs: &Runs) -> Vec<NamedFigure> {
    let figures = [bursts, by_rate, rebuild, by_u, wear, power, utilisation, read_policy];
    let with_policy = runs.all().of(Of::ReadK).next().is_some();
    let drawn = FIGURES.into_iter().zip(figures).take(figures.len() - usize::from(!with_policy));
    drawn.map(|(name, figure)| NamedFigure { name, figure: figure(runs) }).collect()
}

fn rate_axis(from: f64, to: f64) -> Axis {
    let ticks = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0];
    // Powers of two in a wide sweep; all simulated rates in a narrow one.
    let doubling = |tick: &f64| (tick.log2() - tick.log2().round()).abs() < 1e-9 || to / from < 16.0;
    let ticks: Vec<f64> = ticks.into_iter().filter(|tick| (from..=to).contains(tick)).filter(doubling).collect();
    Axis::log("requests a second").ticks(ticks)
}

/// The mean over the seeds at `x`, with its confidence interval.
fn mark(x: f64, point: &SeededPoint, y: impl Fn(&Point) -> f64) -> Mark {
    let over = Sample::of(point.each.iter().map(y));
    let spread = over.half_width().map(|_| over.interval());
    Mark { x, y: over.mean(), spread, unsettled: point.all.settled == Some(false) }
}

/// A line through the points of a series, ordered by `x`.
fn line(runs: &Runs, of: Of, name: &str, x: impl Fn(&Point) -> f64, y: impl Fn(&Point) -> f64) -> Series {
    let points = runs.points.iter().filter(|(series, _)| *series == of);
    let mut marks: Vec<Mark> = points.map(|(_, point)| mark(x(&point.all), point, &y)).collect();
    marks.sort_unstable_by(|a, b| a.x.total_cmp(&b.x));
    Series { name: name.to_owned(), marks, style: Style::Line }
}

fn curve(runs: &Runs, of: Of, name: &str, y: impl Fn(&Point) -> f64, (from, to): (f64, f64)) -> Series {
    let mut line = line(runs, of, name, rate, y);
    line.marks.retain(|mark| (from..=to).contains(&mark.x));
    line
}

fn in_words(points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    Series::styled(IN_WORDS, Style::Crosses, points)
}

fn mean_ttfb(point: &Point) -> f64 {
    point.ttfb_s.mean.unwrap_or(f64::NAN)
}

fn longest_ttfb(point: &Point) -> f64 {
    point.ttfb_s.max.unwrap_or(f64::NAN)
}

fn mean_completion(point: &Point) -> f64 {
    point.completion_s.mean.unwrap_or(f64::NAN)
}

fn mean_service(point: &Point) -> f64 {
    point.service_s.mean.unwrap_or(f64::NAN)
}

fn reject_percent(point: &Point) -> f64 {
    point.reject_rate * 100.0
}

/// The range of rates of most panels.
const WIDE: (f64, f64) = (0.0625, 8.0);

/// A panel of the sweeps by rate.
struct ByRate<'a> {
    title: &'a str,
    y: Axis,
    curves: &'a [(Of, &'a str)],
    /// The lowest and highest rates.
    rates: (f64, f64),
    of: fn(&Point) -> f64,
    in_words: &'a [(f64, f64)],
}

impl ByRate<'_> {
    fn panel(self, runs: &Runs) -> Panel {
        let curves = self.curves.iter().map(|(series, name)| curve(runs, *series, name, self.of, self.rates));
        let words = (!self.in_words.is_empty()).then(|| in_words(self.in_words.iter().copied()));
        Panel::new(self.title, rate_axis(self.rates.0, self.rates.1), self.y, curves.chain(words).collect())
    }
}

/// The range of rates at which queues fill.
const FILLING: (f64, f64) = (3.0, 8.0);

fn by_rate(runs: &Runs) -> Figure {
    let [pelican, unbounded, fp, fp_unbounded, random] = BY_RATE;
    let all = [pelican, unbounded, fp, fp_unbounded];
    // Each system is next to those to compare it with; the random layout would dwarf the times of the others.
    let sent = [pelican, fp, unbounded, random];
    let beyond = [fp_unbounded, unbounded];
    let refusing = [pelican, unbounded, fp, fp_unbounded];
    let times = |title, y, of, in_words| ByRate { title, y, curves: &all, rates: WIDE, of, in_words };
    let rejects = Axis::linear("rejects (%)");
    let panels = [
        ByRate {
            title: "throughput",
            y: Axis::log("throughput (Gb/s)"),
            curves: &sent,
            rates: WIDE,
            of: gbit,
            in_words: &[(8.0, 40.0), (8.0, 0.7)],
        },
        ByRate {
            title: "throughput, unbounded network",
            y: Axis::linear("throughput (Gb/s)"),
            curves: &beyond,
            rates: (1.0, 16.0),
            of: gbit,
            in_words: &[(16.0, 106.0)],
        },
        times("service time, mean", Axis::log("service time (s)"), mean_service, &[(0.0625, 0.65)]),
        times("time to first byte, mean", Axis::log("TTFB (s)"), mean_ttfb, &[(0.0625, 14.2)]),
        times("time to first byte, longest", Axis::log("TTFB (s)"), longest_ttfb, &[]),
        ByRate {
            title: "rejects, where queues fill",
            y: rejects,
            curves: &refusing,
            rates: FILLING,
            of: reject_percent,
            in_words: &[(5.0, 35.0), (5.0, 21.0), (5.0, 1.0)],
        },
    ];
    Figure::new(
        "Figures 5 and 6: throughput, service time, time to first byte, rejects",
        2,
        panels.map(|panel| panel.panel(runs)).into(),
    )
}

fn bursts(runs: &Runs) -> Figure {
    let panel = |title: &str, y: Axis, of: fn(&Point) -> f64| {
        let x = Axis::log("reads of the burst").ticks([15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1_920.0]);
        let reads = |point: &Point| f64::from(point.parameters.burst_reads.unwrap_or(0));
        Panel::new(title, x, y, vec![line(runs, Of::Burst, "prototype, 8.5 Gb/s", reads, of)])
    };
    Figure::new(
        "Figure 4: the prototype under bursts of 1 GB reads over 60 s",
        2,
        vec![
            panel("throughput", Axis::linear("throughput (Gb/s)"), gbit),
            panel("completion time, mean", Axis::log("completion time (s)"), mean_completion),
            panel("time to first byte, mean", Axis::log("TTFB (s)"), mean_ttfb),
            panel("service time, mean", Axis::linear("service time (s)"), mean_service),
        ],
    )
}

fn rebuild(runs: &Runs) -> Figure {
    let curve = |series, name: &str, of: &dyn Fn(&Point) -> Option<f64>| {
        curve(runs, series, name, |point| of(point).unwrap_or(f64::NAN), WIDE)
    };
    let hours = |point: &Point| Some(point.rebuild?.rebuild_s? / 3_600.0);
    let mut took = vec![curve(Of::Rebuild, "rebuild, w = 50 %, turns of 60 s", &hours)];
    // The quick form rebuilds a twentieth of the text's data, and only in short turns.
    if !runs.quick {
        took.extend([curve(Of::RebuildInLongTurns, "turns of 300 s", &hours), in_words([(8.0, 24.0)])]);
    }
    let whole =
        if runs.quick { "until a twentieth of the blobs is whole again" } else { "until every blob is whole again" };
    let mut without = curve(Of::Pelican, "without a failure", &|point| point.ttfb_s.mean);
    without.style = Style::Reference;
    without.marks.retain(|mark| runs.all().of(Of::Rebuild).any(|other| (rate(other) - mark.x).abs() < 1e-6));
    let clients = vec![
        curve(Of::Rebuild, "in the class that rebuilds", &|point| point.rebuild?.in_class.ttfb_s.mean),
        curve(Of::Rebuild, "in the other classes", &|point| point.rebuild?.elsewhere.ttfb_s.mean),
        without,
    ];
    let axis = || rate_axis(WIDE.0, WIDE.1);
    let panels = vec![
        Panel::new(whole, axis(), Axis::linear("rebuild time (h)"), took),
        Panel::new("clients meanwhile", axis(), Axis::log("TTFB, mean (s)"), clients),
    ];
    Figure::new("Figure 7: rebuild time, and its effect on clients", 2, panels)
}

fn by_u(runs: &Runs) -> Figure {
    let panel = |title: &str, y: Axis, of: fn(&Point) -> f64, words: &[(f64, f64)]| {
        let limit = |point: &Point| (point.parameters.overtake_limit / GB) as f64;
        let mut by_limit = line(runs, Of::ByU, "Pelican, 40 Gb/s", limit, of);
        // FIFO, u = 0, would dwarf the other points.
        by_limit.marks.retain(|mark| mark.x > 0.0);
        let words = (!words.is_empty()).then(|| in_words(words.iter().copied()));
        let x = Axis::linear("u (GB)").ticks([50.0, 200.0, 350.0, 500.0, 600.0, 750.0, 1_000.0]);
        Panel::new(title, x, y, [by_limit].into_iter().chain(words).collect())
    };
    let rejects = Axis::linear("rejects (%)").range(0.0, 100.0);
    let p99 = |point: &Point| point.ttfb_s.p99.unwrap_or(f64::NAN);
    Figure::new(
        "Figure 8: the reorder limit u at 5 requests a second",
        3,
        vec![
            panel("throughput", Axis::linear("throughput (Gb/s)"), gbit, &[]),
            panel("time to first byte, p99", Axis::log("TTFB (s)"), p99, &[]),
            panel("rejects", rejects, reject_percent, &[(50.0, 85.0), (1_000.0, 25.0)]),
        ],
    )
}

fn wear(runs: &Runs) -> Figure {
    let code = runs.rack.code;
    let data = f64::from(code.data) / code.stacks() as f64;
    let curve = |name: &str, of: &dyn Fn(&Point) -> f64| curve(runs, Of::Pelican, name, of, WIDE);
    let starts = vec![curve("Pelican, 40 Gb/s", &|point| point.spin_ups_per_drive_year)];
    let read = vec![
        curve("all stacks that are read", &|point| point.tb_per_drive_year),
        curve("payload of them", &|point| point.tb_per_drive_year * data),
        in_words([(8.0, 99.0)]),
    ];
    let axis = || rate_axis(WIDE.0, WIDE.1);
    let panels = vec![
        Panel::new("spin-ups", axis(), Axis::linear("spin-ups a drive and year"), starts),
        Panel::new("data", axis(), Axis::linear("TB a drive and year"), read),
    ];
    Figure::new("Figure 9(a): wear", 2, panels)
}

fn power(runs: &Runs) -> Figure {
    let watts = runs.rack.profile.watts;
    let all =
        |each_mw: u32| [WIDE.0, WIDE.1].map(|rate| (rate, runs.rack.drives.len() as f64 * f64::from(each_mw) / 1e6));
    let mean = || curve(runs, Of::Pelican, "Pelican, mean", |point| point.power_w.mean / 1e3, WIDE);
    let peak = || curve(runs, Of::Pelican, "Pelican, peak", |point| point.power_w.peak / 1e3, WIDE);
    let together = vec![
        mean(),
        peak(),
        Series::reference("all drives active", all(watts.active_mw)),
        Series::reference("all drives in standby", all(watts.standby_mw)),
    ];
    let pelican = vec![mean(), peak(), in_words([(0.0625, 2.6), (0.5, 3.3), (0.5, 3.7), (8.0, 2.6)])];
    let axis = || rate_axis(WIDE.0, WIDE.1);
    let panels = vec![
        Panel::new("Pelican", axis(), Axis::linear("power (kW)").range(2.0, 4.0), pelican),
        Panel::new("beside racks that never switch", axis(), Axis::linear("power (kW)"), together),
    ];
    Figure::new("Figure 9(b): power of all drives", 2, panels)
}

/// The number of plotted values of a distribution.
const STEPS: usize = 200;

fn utilisation(runs: &Runs) -> Figure {
    let steps = |rack: &FilledRack| {
        let used = &rack.filled.drive_utilisation;
        let at = |step: usize| {
            let index = (step * (used.len() - 1)) / STEPS;
            (used[index] * 100.0, (index + 1) as f64 / used.len() as f64)
        };
        (0..=STEPS).map(at).collect::<Vec<_>>()
    };
    let panel = |title: &str, racks: &mut dyn Iterator<Item = (String, &FilledRack)>| {
        let x = Axis::linear("used share of a drive (%)").range(90.0, 100.0);
        let series = racks.map(|(name, rack)| Series::styled(name, Style::Steps, steps(rack))).collect();
        Panel::new(title, x, Axis::linear("share of drives").range(0.0, 1.0), series)
    };
    let draws = |rack: &FilledRack| rack.capacities.map_or(0, |capacities| capacities.draws);
    // The curves of other seeds would cover these.
    let first = |vary, random| runs.all().filled(vary, random).filter(|rack| rack.seed == SEEDS[0]);
    let two = |rack: &&FilledRack| draws(rack) == 2;
    let rules = first(true, false).filter(two).map(|rack| ("most spare, drives vary".to_owned(), rack));
    let rules = rules.chain(first(true, true).map(|rack| ("random, drives vary".to_owned(), rack)));
    let mut rules = rules.chain(first(false, false).map(|rack| ("most spare, equal drives".to_owned(), rack)));
    let shape = |rack| (format!("most spare, mean of {} draws", draws(rack)), rack);
    Figure::new(
        "Figure 9(c): how full drives are at the first reject",
        2,
        vec![
            panel("by the rule within a group (mean of 2 draws)", &mut rules),
            panel("by the distribution of sizes", &mut first(true, false).map(shape)),
        ],
    )
}

fn read_policy(runs: &Runs) -> Figure {
    let panel = |title: &str, y: Axis, of: fn(&Point) -> f64| {
        let all = curve(runs, Of::Pelican, "all 18 stacks are read", of, WIDE);
        let k = curve(runs, Of::ReadK, "15 are read, one seed", of, WIDE);
        Panel::new(title, rate_axis(WIDE.0, WIDE.1), y, vec![all, k])
    };
    Figure::new(
        "Not in the paper: reading k stacks instead of all k + r",
        3,
        vec![
            panel("throughput", Axis::log("throughput (Gb/s)"), gbit),
            panel("time to first byte, mean", Axis::log("TTFB (s)"), mean_ttfb),
            panel("data", Axis::linear("TB a drive and year"), |point| point.tb_per_drive_year),
        ],
    )
}
