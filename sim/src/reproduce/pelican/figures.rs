//! The figures of Pelican's evaluation, numbered as there.

use super::runs::{FilledRack, GB, Runs, Series as Of, gbit, rate};
use crate::Point;
use crate::report::{Axis, Figure, Panel, Series, Style};
use crate::reproduce::evaluation::NamedFigure;

/// The names of the files of all figures; a quick form lacks the last one.
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

/// The sweeps by rate, with their names in legends.
const BY_RATE: [(Of, &str); 5] = [
    (Of::Pelican, "Pelican, 40 Gb/s"),
    (Of::PelicanUnbounded, "Pelican, unbounded"),
    (Of::Fp, "FP, 40 Gb/s"),
    (Of::FpUnbounded, "FP, unbounded"),
    (Of::Random, "random layout"),
];

/// The random layout is not in the text's figures of service time and TTFB: it would dwarf the others.
const WITHOUT_RANDOM: usize = 4;

/// Points at which the text has a number in words.
const IN_WORDS: &str = "number in the text";

/// All figures.
pub fn figures(runs: &Runs) -> Vec<NamedFigure> {
    let figures = [bursts, by_rate, rebuild, by_u, wear, power, utilisation, read_policy];
    let with_policy = runs.of(Of::ReadK).next().is_some();
    let drawn = FIGURES.into_iter().zip(figures).take(figures.len() - usize::from(!with_policy));
    drawn.map(|(name, figure)| NamedFigure { name, figure: figure(runs) }).collect()
}

fn rate_axis(to: f64) -> Axis {
    let ticks = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
    let ticks: Vec<f64> = ticks.into_iter().filter(|tick| *tick <= to).collect();
    Axis::log("requests a second").ticks(ticks)
}

fn curve(runs: &Runs, of: Of, name: &str, y: impl Fn(&Point) -> f64, to: f64) -> Series {
    let points = runs.of(of).filter(|point| rate(point) <= to).map(|point| (rate(point), y(point)));
    let mut points: Vec<(f64, f64)> = points.collect();
    points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    Series::line(name, points)
}

/// Hollow marks, with gaps between them.
fn in_words(points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    Series::styled(IN_WORDS, Style::Reference, points.into_iter().flat_map(|(x, y)| [(x, y), (x, f64::NAN)]))
}

fn mean_ttfb(point: &Point) -> f64 {
    point.ttfb_s.mean.unwrap_or(f64::NAN)
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

/// A panel of the sweeps by rate.
struct ByRate<'a> {
    title: &'a str,
    y: Axis,
    curves: &'a [(Of, &'a str)],
    /// The highest rate.
    to: f64,
    of: fn(&Point) -> f64,
    in_words: &'a [(f64, f64)],
}

impl ByRate<'_> {
    fn panel(self, runs: &Runs) -> Panel {
        let curves = self.curves.iter().map(|(series, name)| curve(runs, *series, name, self.of, self.to));
        let words = (!self.in_words.is_empty()).then(|| in_words(self.in_words.iter().copied()));
        Panel::new(self.title, rate_axis(self.to), self.y, curves.chain(words).collect())
    }
}

fn by_rate(runs: &Runs) -> Figure {
    let all = |title, y, to, of, in_words| ByRate { title, y, curves: &BY_RATE, to, of, in_words };
    let times = |title, y, of, in_words| {
        let curves = &BY_RATE[..WITHOUT_RANDOM];
        ByRate { title, y, curves, to: 8.0, of, in_words }
    };
    let longest_ttfb = |point: &Point| point.ttfb_s.max.unwrap_or(f64::NAN);
    let rejects = Axis::linear("rejects (%)").range(0.0, 100.0);
    let panels = [
        all("throughput", Axis::linear("throughput (Gb/s)"), 16.0, gbit, &[(16.0, 106.0)]),
        times("service time, mean", Axis::linear("service time (s)"), mean_service, &[(0.0625, 0.65)]),
        times("time to first byte, mean", Axis::log("TTFB (s)"), mean_ttfb, &[(0.0625, 14.2)]),
        times("time to first byte, longest", Axis::log("TTFB (s)"), longest_ttfb, &[]),
        all("rejects", rejects, 8.0, reject_percent, &[(5.0, 35.0), (5.0, 21.0), (5.0, 1.0)]),
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
        let points = runs.of(Of::Burst).map(|point| (reads(point), of(point)));
        Panel::new(title, x, y, vec![Series::line("prototype, 8.5 Gb/s", points)])
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
    let points = |series, of: &dyn Fn(&Point) -> Option<f64>| {
        runs.of(series).map(|point| (rate(point), of(point).unwrap_or(f64::NAN))).collect::<Vec<_>>()
    };
    let hours = |point: &Point| Some(point.rebuild?.rebuild_s? / 3_600.0);
    let took = vec![
        Series::line("rebuild, w = 50 %, turns of 60 s", points(Of::Rebuild, &hours)),
        Series::line("turns of 300 s", points(Of::RebuildInLongTurns, &hours)),
        in_words([(8.0, 24.0)]),
    ];
    let without = |point: &&Point| runs.of(Of::Rebuild).any(|other| (rate(other) - rate(point)).abs() < 1e-6);
    let without = runs.of(Of::Pelican).filter(without).map(|point| (rate(point), mean_ttfb(point)));
    let clients = vec![
        Series::line("in the class that rebuilds", points(Of::Rebuild, &|point| point.rebuild?.in_class.ttfb_s.mean)),
        Series::line("in the other classes", points(Of::Rebuild, &|point| point.rebuild?.elsewhere.ttfb_s.mean)),
        Series::reference("without a failure", without),
    ];
    let panels = vec![
        Panel::new("until every blob is whole again", rate_axis(8.0), Axis::linear("rebuild time (h)"), took),
        Panel::new("clients meanwhile", rate_axis(8.0), Axis::log("TTFB, mean (s)"), clients),
    ];
    Figure::new("Figure 7: rebuild time, and its effect on clients", 2, panels)
}

fn by_u(runs: &Runs) -> Figure {
    let panel = |title: &str, y: Axis, of: fn(&Point) -> f64, words: &[(f64, f64)]| {
        let limit = |point: &Point| (point.parameters.overtake_limit / GB) as f64;
        // FIFO, u = 0, would dwarf the others.
        let points = runs.of(Of::ByU).map(|point| (limit(point), of(point))).filter(|(limit, _)| *limit > 0.0);
        let words = (!words.is_empty()).then(|| in_words(words.iter().copied()));
        let series = [Series::line("Pelican, 40 Gb/s", points)].into_iter().chain(words).collect();
        Panel::new(title, Axis::linear("u (GB)"), y, series)
    };
    let rejects = Axis::linear("rejects (%)").range(0.0, 100.0);
    Figure::new(
        "Figure 8: the reorder limit u at 5 requests a second",
        3,
        vec![
            panel("throughput", Axis::linear("throughput (Gb/s)"), gbit, &[]),
            panel("time to first byte, p99", Axis::linear("TTFB (s)"), |p| p.ttfb_s.p99.unwrap_or(f64::NAN), &[]),
            panel("rejects", rejects, reject_percent, &[(50.0, 85.0), (1_000.0, 25.0)]),
        ],
    )
}

fn wear(runs: &Runs) -> Figure {
    let code = runs.rack.code;
    let data = f64::from(code.data) / code.stacks() as f64;
    let curve = |name: &str, of: &dyn Fn(&Point) -> f64| curve(runs, Of::Pelican, name, of, 8.0);
    let starts = vec![curve("Pelican, 40 Gb/s", &|point| point.spin_ups_per_drive_year)];
    let read = vec![
        curve("all stacks that are read", &|point| point.tb_per_drive_year),
        curve("payload of them", &|point| point.tb_per_drive_year * data),
        in_words([(8.0, 99.0)]),
    ];
    let panels = vec![
        Panel::new("spin-ups", rate_axis(8.0), Axis::linear("spin-ups a drive and year"), starts),
        Panel::new("data", rate_axis(8.0), Axis::linear("TB a drive and year"), read),
    ];
    Figure::new("Figure 9(a): wear", 2, panels)
}

fn power(runs: &Runs) -> Figure {
    let watts = runs.rack.profile.watts;
    let all = |each_mw: u32| [0.0625, 8.0].map(|rate| (rate, runs.rack.drives.len() as f64 * f64::from(each_mw) / 1e6));
    let curve = |name: &str, of: &dyn Fn(&Point) -> f64| curve(runs, Of::Pelican, name, of, 8.0);
    let series = vec![
        curve("Pelican, mean", &|point| point.power_w.mean / 1e3),
        curve("Pelican, peak", &|point| point.power_w.peak / 1e3),
        Series::reference("all drives active", all(watts.active_mw)),
        Series::reference("all drives in standby", all(watts.standby_mw)),
        in_words([(0.5, 3.3), (0.5, 3.7), (8.0, 2.6)]),
    ];
    let panel = Panel::new("", rate_axis(8.0), Axis::linear("power (kW)"), series);
    Figure::new("Figure 9(b): power of all drives", 1, vec![panel])
}

/// Values of a distribution that are drawn.
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
    let two = |rack: &&FilledRack| draws(rack) == 2;
    let rules = runs.filled(true, false).filter(two).map(|rack| ("most spare, drives vary".to_owned(), rack));
    let rules = rules.chain(runs.filled(true, true).filter(two).map(|rack| ("random, drives vary".to_owned(), rack)));
    let mut rules = rules.chain(runs.filled(false, false).map(|rack| ("most spare, equal drives".to_owned(), rack)));
    let shape = |rack| (format!("most spare, mean of {} draws", draws(rack)), rack);
    Figure::new(
        "Figure 9(c): how full drives are at the first reject",
        2,
        vec![
            panel("by the rule within a group (mean of 2 draws)", &mut rules),
            panel("by the distribution of sizes", &mut runs.filled(true, false).map(shape)),
        ],
    )
}

fn read_policy(runs: &Runs) -> Figure {
    let panel = |title: &str, y: Axis, of: fn(&Point) -> f64| {
        let all = curve(runs, Of::Pelican, "all 18 stacks are read", of, 8.0);
        Panel::new(title, rate_axis(8.0), y, vec![all, curve(runs, Of::ReadK, "15 are read", of, 8.0)])
    };
    Figure::new(
        "Not in the paper: reading k stacks instead of all k + r",
        3,
        vec![
            panel("throughput", Axis::linear("throughput (Gb/s)"), gbit),
            panel("time to first byte, mean", Axis::log("TTFB (s)"), mean_ttfb),
            panel("data", Axis::linear("TB a drive and year"), |point| point.tb_per_drive_year),
        ],
    )
}
