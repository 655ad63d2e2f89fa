//! The figures of the paper, numbered as in the paper. Reads and writes, which the text's means combine, are separate.
//! Intervals are shown where seeds differ.

use super::runs::{CRITICAL, Case, DEFAULT_CRITICAL, Input, MOVED_GIB, Runs, SIZES_KB, SOHO, SSDS_GIB, SeedRuns};
use super::runs::{System, Variant, share};
use crate::Histogram;
use crate::report::{Axis, Figure, Mark, Panel, Series, Style};
use crate::reproduce::evaluation::NamedFigure;
use crate::reproduce::judge::Sample;
use crate::soho::{Application, SohoOutcome};
use System::{Blocking, Disk, Flash, Paced};

/// The file names of all figures.
pub const FIGURES: [&str; 7] = [
    "figure-1-writes.svg",
    "figure-3-architectures.svg",
    "figure-4-threshold.svg",
    "figure-5-request-size.svg",
    "figure-6-block-size.svg",
    "figure-ssd-size.svg",
    "figure-pacing.svg",
];

/// All figures.
pub fn figures(runs: &Runs) -> Vec<NamedFigure> {
    let figures =
        [writes(runs), architectures(runs), thresholds(runs), requests(runs), blocks(runs), sizes(runs), pacing(runs)];
    FIGURES.into_iter().zip(figures).map(|(name, figure)| NamedFigure { name, figure }).collect()
}

/// Reads or writes.
type Side = (&'static str, fn(&SohoOutcome) -> &Histogram);
const SIDES: [Side; 2] = [("reads", |made| &made.reads), ("writes", |made| &made.writes)];

fn mean_ms(times: &Histogram) -> f64 {
    times.mean_s().unwrap_or(f64::NAN) * 1e3
}

fn mark(x: f64, sample: &Sample) -> Mark {
    let spread = sample.half_width().map(|_| sample.interval());
    Mark { x, y: sample.mean(), spread, unsettled: false }
}

fn line(runs: &Runs, name: String, xs: &[u64], y: impl Fn(SeedRuns<'_>, u64) -> f64) -> Series {
    let marks = xs.iter().map(|x| mark(*x as f64, &runs.sample(|of| y(of, *x)))).collect();
    Series { name, marks, style: Style::Line }
}

/// One bar for each application.
fn bars(runs: &Runs, name: String, y: impl Fn(SeedRuns<'_>, Application) -> f64) -> (String, Vec<Mark>) {
    let marks = Application::ALL.iter().enumerate();
    (name, marks.map(|(at, application)| mark(at as f64, &runs.sample(|of| y(of, *application)))).collect())
}

fn applications() -> Axis {
    Axis::named("", Application::ALL.map(|application| application.words().to_owned()))
}

/// Two panels, one for reads and one for writes.
fn apart(title: &str, y: &str, axis: fn() -> Axis, series: impl Fn(Side) -> Vec<Series>) -> Figure {
    let label = |name: &str| format!("{y} of {name}");
    let panels = SIDES.map(|side| Panel::new(side.0, axis(), Axis::linear(label(side.0)), series(side)));
    Figure::new(title, 2, panels.into())
}

const MEAN: &str = "mean response time (ms)";

fn writes(runs: &Runs) -> Figure {
    let span_s = runs.bucket().as_secs_f64();
    let panels = Application::ALL.map(|application| {
        let made = runs.first().app(application, Disk);
        let points = made.written_bytes.iter().enumerate().map(|(at, bytes)| (at as f64 * span_s, *bytes as f64 / 1e6));
        let series = Series::styled("written", Style::Steps, points);
        let y = Axis::linear(format!("MB in {span_s:.0} s"));
        Panel::new(application.words(), Axis::linear("time (s)"), y, vec![series])
    });
    Figure::new("Figure 1: writes of the three applications, on the pure HDD", 3, panels.into())
}

fn architectures(runs: &Runs) -> Figure {
    apart("Figure 3: three storage systems of 160 GB", MEAN, applications, |(_, side)| {
        let of = |system: System| bars(runs, system.words(), move |of, app| mean_ms(side(of.app(app, system))));
        Series::bars([Disk, Flash, SOHO].map(of))
    })
}

fn thresholds(runs: &Runs) -> Figure {
    apart("Figure 4: the critical threshold, blocked as in the text and paced", MEAN, applications, |(_, side)| {
        let of = |system: System, name: String| bars(runs, name, move |of, app| mean_ms(side(of.app(app, system))));
        let [a, b, c] = CRITICAL;
        let blocked = |critical| of(Blocking(critical), format!("{}, blocked", share(critical)));
        let paced = |critical| of(Paced(critical), format!("{}, paced", share(critical)));
        Series::bars([blocked(a), blocked(b), blocked(c), paced(a), paced(b), paced(c)])
    })
}

fn requests(runs: &Runs) -> Figure {
    let axis = || Axis::log("mean request (KB)").ticks([4.0, 40.0, 400.0]);
    let panels = SIDES.map(|(name, side)| {
        let of = |system: System| {
            line(runs, system.words(), &SIZES_KB, |of, kb| mean_ms(side(of.of(Input::Synthetic(kb), system))))
        };
        Panel::new(name, axis(), Axis::log(format!("{MEAN} of {name}")), [Disk, Flash, SOHO].map(of).into())
    });
    Figure::new("Figure 5: the size of requests, synthetic traces", 2, panels.into())
}

fn blocks(runs: &Runs) -> Figure {
    let series = SIZES_KB.map(|kb| line(runs, format!("{kb} KB"), &MOVED_GIB, |of, gib| of.moved_s(gib, kb)));
    let x = Axis::linear("data moved (GB)").range(1.0, 9.0).ticks([2.0, 4.0, 8.0]);
    let panel = Panel::new("", x, Axis::log("time of the move (s)"), series.into());
    Figure::new("Figure 6: the block of a move", 1, vec![panel])
}

fn sizes(runs: &Runs) -> Figure {
    apart("Workshops of 8, 16 and 32 GB", MEAN, applications, |(_, side)| {
        let of = |system: System, ssd_gib: u32, name: String| {
            bars(runs, name, move |of, application| {
                let input = Input::Application(application);
                mean_ms(side(of.at(Case { input, system, ssd_gib, variant: Variant::Chosen })))
            })
        };
        let [a, b, c] = SSDS_GIB;
        let blocked = |gib| of(SOHO, gib, format!("{gib} GB, blocked"));
        let paced = |gib| of(Paced(DEFAULT_CRITICAL), gib, format!("{gib} GB, paced"));
        Series::bars([blocked(a), blocked(b), blocked(c), paced(a), paced(b), paced(c)])
    })
}

fn pacing(runs: &Runs) -> Figure {
    let low = CRITICAL[0];
    let kinds = [("blocked", Blocking(low)), ("paced", Paced(low)), ("no move", SOHO)];
    let panels = SIDES.map(|(name, side)| {
        let of = |(kind, system): (&str, System)| {
            bars(runs, kind.to_owned(), move |of, app| side(of.app(app, system)).max_s().unwrap_or(f64::NAN) * 1e3)
        };
        let y = Axis::log(format!("longest response time of {name} (ms)"));
        Panel::new(name, applications(), y, Series::bars(kinds.map(of)))
    });
    Figure::new("The longest wait at a critical threshold of 0.2, blocked and paced", 2, panels.into())
}
