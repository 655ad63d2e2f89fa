//! The figures of the paper, numbered as in the paper, with its axes and series; with intervals where seeds differ.
//! Stage diagrams (6 to 8) are drawn from the traces of the runs.

use super::runs::{ARRAYS, DISKS, FEW, IDEAL_LOG_MB, LOG_MB, LOGS_MB, LONG_LOG_MB, Put, Runs, SIZES_KB};
use super::runs::{SeedRuns, System, Variant};
use crate::report::{Axis, Figure, Mark, Panel, Series, Style};
use crate::reproduce::evaluation::NamedFigure;
use crate::reproduce::judge::Sample;
use crate::shifting::Stage;
use System::{Basic, LevelDb, LogRaid0, Shifting};
use Variant::{Alone, Both, Paced, Sequential, Sleeping, Unsynced, UnsyncedAlone};

/// The file names of all figures.
pub const FIGURES: [&str; 13] = [
    "figure-2-contention.svg",
    "figure-3-leveldb.svg",
    "figure-6-8-stages.svg",
    "figure-9-without-sync.svg",
    "figure-10-throughput.svg",
    "figure-11-impact.svg",
    "figure-12-disks.svg",
    "figure-13-log-size.svg",
    "figure-14-value-size.svg",
    "figure-15-energy.svg",
    "figure-few-disks.svg",
    "figure-sync.svg",
    "figure-asleep.svg",
];

/// All figures.
pub fn figures(runs: &Runs) -> Vec<NamedFigure> {
    let figures = [
        contention(runs),
        leveldb(runs),
        stages(runs),
        unsynced(runs),
        throughput(runs),
        impact(runs),
        disks(runs),
        logs(runs),
        values(runs),
        energy(runs),
        few_disks(runs),
        sync(runs),
        asleep(runs),
    ];
    FIGURES.into_iter().zip(figures).map(|(name, figure)| NamedFigure { name, figure }).collect()
}

fn mark(x: f64, sample: &Sample) -> Mark {
    let spread = sample.half_width().map(|_| sample.interval());
    Mark { x, y: sample.mean(), spread, unsettled: false }
}

/// A line through the samples at each of `xs`.
fn line<X: Copy>(
    runs: &Runs,
    name: &str,
    xs: &[X],
    (x, y): (impl Fn(X) -> f64, impl Fn(SeedRuns<'_>, X) -> f64),
) -> Series {
    let marks = xs.iter().map(|at| mark(x(*at), &runs.sample(|of| y(of, *at)))).collect();
    Series { name: name.to_owned(), marks, style: Style::Line }
}

/// One bar for each of `things`.
fn bars<X: Copy>(runs: &Runs, name: &str, things: &[X], y: impl Fn(SeedRuns<'_>, X) -> f64) -> (String, Vec<Mark>) {
    let marks = things.iter().enumerate().map(|(at, thing)| mark(at as f64, &runs.sample(|of| y(of, *thing))));
    (name.to_owned(), marks.collect())
}

fn one(title: &str, x: Axis, y: Axis, series: Vec<Series>) -> Figure {
    Figure::new(title, 1, vec![Panel::new("", x, y, series)])
}

fn names<X: Copy>(things: &[X], name: impl Fn(X) -> String) -> Vec<String> {
    things.iter().map(|thing| name(*thing)).collect()
}

fn kilobytes(kb: u64) -> String {
    format!("{kb} KB")
}

fn seconds(of: SeedRuns<'_>, system: System, variant: Variant) -> f64 {
    of.of(system, variant, 100).seconds()
}

fn contention(runs: &Runs) -> Figure {
    let variants = [Alone, Both];
    let x = Axis::named("", names(&variants, |variant| variant.words().to_owned()));
    let bars = bars(runs, LogRaid0.words(), &variants, |of, variant| seconds(of, LogRaid0, variant));
    let title = "Figure 2: 10 GB of 100 KB values on Log+RAID0, four disks";
    one(title, x, Axis::linear("time of data injection (s)"), Series::bars([bars]))
}

fn leveldb(runs: &Runs) -> Figure {
    let x = Axis::named("value size", names(&SIZES_KB, kilobytes));
    let of_keys =
        |name: &str, variant| bars(runs, name, &SIZES_KB, move |of, kb| of.of(LevelDb, variant, kb).mb_per_s());
    let series = Series::bars([of_keys("sequential keys", Sequential), of_keys("random keys", Both)]);
    one("Figure 3: LevelDB on RAID0, four disks", x, Axis::linear("throughput (MB/s)"), series)
}

fn throughput(runs: &Runs) -> Figure {
    let x = Axis::named("value size", names(&SIZES_KB, kilobytes));
    let of = |system: System| bars(runs, system.words(), &SIZES_KB, move |of, kb| of.of(system, Both, kb).mb_per_s());
    let series = Series::bars([of(LevelDb), of(Shifting)]);
    one("Figure 10: random keys, four disks", x, Axis::linear("throughput (MB/s)"), series)
}

/// The stages of a few seconds of a run: a row for each disk, and within it a level for each stage.
fn diagram(title: &str, put: &Put, (begin, end): (f64, f64)) -> Panel {
    let kinds =
        [(Stage::Log, "Log", 0.0), (Stage::ReadLog, "Read log", 0.12), (Stage::WriteTree, "Write B+tree", 0.24)];
    let series = kinds.map(|(stage, name, level)| {
        let of_it = put.outcome.stages.iter().filter(|span| span.stage == stage);
        let shown = |from: f64, to: f64| from < end && to > begin;
        let mut spans: Vec<_> = of_it.filter(|span| shown(span.from.as_secs_f64(), span.to.as_secs_f64())).collect();
        spans.sort_by_key(|span| (span.disk, span.from));
        let ends = spans.into_iter().flat_map(|span| {
            let y = span.disk as f64 + 1.0 + level;
            let (from, to) = (span.from.as_secs_f64().max(begin), span.to.as_secs_f64().min(end));
            [((from - begin) * 1e3, y), ((to - begin) * 1e3, y), ((to - begin) * 1e3, f64::NAN)]
        });
        Series::styled(name, Style::Steps, ends)
    });
    let disks = Axis::linear("disk").range(0.5, f64::from(put.run.disks) + 0.7);
    Panel::new(title, Axis::linear("time (ms)").range(0.0, (end - begin) * 1e3), disks, series.into())
}

fn stages(runs: &Runs) -> Figure {
    let of = runs.first();
    let ideal = of.at(Shifting, Paced, 100, (DISKS, IDEAL_LOG_MB));
    let panels = vec![
        diagram("6, ideal: a log of 50 MB fills as fast as it is transformed", ideal, (3.0, 11.0)),
        diagram("7, acceptable: each put is synced", of.of(Shifting, Both, 100), (1.0, 2.2)),
        diagram("8, bad: no put is synced", of.of(Shifting, Unsynced, 100), (1.0, 1.5)),
    ];
    Figure::new("Figures 6 to 8: the stages of four disks", 1, panels)
}

/// The time of a log and of its transformation, by log size, for each value size.
fn unsynced(runs: &Runs) -> Figure {
    let at = |of: SeedRuns<'_>, kb, log_mb| of.at(Shifting, Unsynced, kb, (DISKS, log_mb)).outcome.clone();
    let panels = runs.first().unsynced_kb().iter().map(|kb| {
        let logging = |of: SeedRuns<'_>, log_mb: u64| {
            let put = at(of, *kb, log_mb);
            put.took.as_secs_f64() * log_mb as f64 * 1e6 / put.put_bytes as f64
        };
        let transforming = |of: SeedRuns<'_>, log_mb: u64| {
            let (count, time) = at(of, *kb, log_mb).background;
            time.as_secs_f64() / count.max(1) as f64
        };
        let x = Axis::named("data", names(&LOGS_MB, |mb| format!("{mb} MB")));
        let series = Series::bars([
            bars(runs, "data injection (no sync)", &LOGS_MB, logging),
            bars(runs, "data transformation", &LOGS_MB, transforming),
        ]);
        Panel::new(format!("values of {kb} KB"), x, Axis::linear("time (s)"), series)
    });
    Figure::new("Figure 9: data injection without sync, and data transformation", 2, panels.collect())
}

fn impact(runs: &Runs) -> Figure {
    let systems = [LogRaid0, Shifting];
    let x = Axis::named("", names(&systems, |system| system.words().to_owned()));
    let of = |variant: Variant| bars(runs, variant.words(), &systems, move |of, system| seconds(of, system, variant));
    let title = "Figure 11: 10 GB of 100 KB values, four disks";
    one(title, x, Axis::linear("execution time (s)"), Series::bars([of(Alone), of(Both)]))
}

fn disks(runs: &Runs) -> Figure {
    let x = || Axis::linear("disks").range(3.5, 10.5).ticks([4.0, 6.0, 8.0, 10.0]);
    let time = |system: System| {
        let y = move |of: SeedRuns<'_>, disks| of.at(system, Both, 100, (disks, LOG_MB)).seconds();
        line(runs, system.words(), &ARRAYS, (f64::from, y))
    };
    let rise = |system: System| {
        let y = move |of: SeedRuns<'_>, disks| of.rise(system, 100, (disks, LOG_MB)) * 100.0;
        line(runs, system.words(), &ARRAYS, (f64::from, y))
    };
    let panels = vec![
        Panel::new("(a)", x(), Axis::log("execution time (s)"), [Shifting, LogRaid0, LevelDb].map(time).into()),
        Panel::new("(b)", x(), Axis::linear("rate of increase (%)"), [Shifting, LogRaid0].map(rise).into()),
    ];
    Figure::new("Figure 12: the number of disks, 10 GB of 100 KB values", 2, panels)
}

fn logs(runs: &Runs) -> Figure {
    let x = || Axis::log("log (MB)");
    let rise = |system: System| {
        let y = move |of: SeedRuns<'_>, log_mb| of.rise(system, 100, (DISKS, log_mb)) * 100.0;
        line(runs, system.words(), &LOGS_MB, (|mb| mb as f64, y))
    };
    let time = |system: System| {
        let y = move |of: SeedRuns<'_>, log_mb| of.at(system, Both, 100, (DISKS, log_mb)).seconds();
        line(runs, system.words(), &LOGS_MB, (|mb| mb as f64, y))
    };
    let panels = vec![
        Panel::new("", x(), Axis::linear("rate of increase (%)"), [Shifting, LogRaid0].map(rise).into()),
        Panel::new("in the text", x(), Axis::linear("execution time (s)"), [Shifting, LogRaid0].map(time).into()),
    ];
    Figure::new("Figure 13: the size of logs, 10 GB of 100 KB values, four disks", 2, panels)
}

fn values(runs: &Runs) -> Figure {
    let sizes = runs.first().values_kb();
    let x = || Axis::log("value size (KB)");
    let time = |system: System| {
        let y = move |of: SeedRuns<'_>, kb| of.of(system, Both, kb).seconds();
        line(runs, system.words(), &sizes, (|kb| kb as f64, y))
    };
    let rise = |system: System| {
        let y = move |of: SeedRuns<'_>, kb| of.rise(system, kb, (DISKS, LOG_MB)) * 100.0;
        line(runs, system.words(), &sizes, (|kb| kb as f64, y))
    };
    let panels = vec![
        Panel::new("", x(), Axis::log("execution time (s)"), [Shifting, LogRaid0, LevelDb].map(time).into()),
        Panel::new("in the text", x(), Axis::linear("rate of increase (%)"), [Shifting, LogRaid0].map(rise).into()),
    ];
    Figure::new("Figure 14: the size of values, 10 GB, four disks", 2, panels)
}

fn energy(runs: &Runs) -> Figure {
    let systems = [LogRaid0, Shifting];
    let x = || Axis::named("", names(&systems, |system| system.words().to_owned()));
    let time = bars(runs, "with transformation", &systems, |of, system| seconds(of, system, Both));
    let by_text = bars(runs, "a disk at work W, an idle one nothing (the text)", &systems, |of, system| {
        if system == LogRaid0 {
            // All disks of the stripe are active all the time.
            return of.rise(LogRaid0, 100, (DISKS, LOG_MB)) * 100.0;
        }
        let busy = |variant| of.of(system, variant, 100).outcome.busy.as_secs_f64();
        (busy(Both) / busy(Alone) - 1.0) * 100.0
    });
    let by_watts = bars(runs, "8 W at work, 5 W idle", &systems, |of, system| {
        let joules = |variant| of.of(system, variant, 100).outcome.energy_mj as f64;
        (joules(Both) / joules(Alone) - 1.0) * 100.0
    });
    let panels = vec![
        Panel::new("(a)", x(), Axis::linear("execution time (s)"), Series::bars([time])),
        Panel::new("(b)", x(), Axis::linear("more energy (%)"), Series::bars([by_text, by_watts])),
    ];
    Figure::new("Figure 15: energy, and what transformation adds to it", 2, panels)
}

fn few_disks(runs: &Runs) -> Figure {
    let x = || Axis::named("disks", names(&FEW, |disks| disks.to_string()));
    let of = |system: System, name: &str, variant| {
        bars(runs, name, &FEW, move |of, disks| of.at(system, variant, 100, (disks, LOG_MB)).seconds())
    };
    let synced = Series::bars([of(Basic, "basic model", Both), of(Shifting, "enhanced model", Both)]);
    let unsynced = Series::bars([of(Basic, "basic model", Unsynced), of(Shifting, "enhanced model", Unsynced)]);
    let y = || Axis::linear("execution time (s)");
    let panels =
        vec![Panel::new("each put is synced", x(), y(), synced), Panel::new("no put is synced", x(), y(), unsynced)];
    Figure::new("Fewer disks than four, 10 GB of 100 KB values", 2, panels)
}

/// Both systems with and without transformation and sync.
fn sync(runs: &Runs) -> Figure {
    let variants = [
        (Alone, ", synced, alone"),
        (Both, ", synced, with transformation"),
        (UnsyncedAlone, ", not synced, alone"),
        (Unsynced, ", not synced, with transformation"),
    ];
    let all =
        || [Shifting, LogRaid0].into_iter().flat_map(|system| variants.map(|(variant, name)| (system, variant, name)));
    let by_disks = all().map(|(system, variant, name)| {
        let y = move |of: SeedRuns<'_>, disks| of.at(system, variant, 100, (disks, LOG_MB)).seconds();
        line(runs, &format!("{}{name}", system.words()), &ARRAYS, (f64::from, y))
    });
    let by_log = all().map(|(system, variant, name)| {
        let y = move |of: SeedRuns<'_>, log_mb| of.at(system, variant, 100, (DISKS, log_mb)).seconds();
        line(runs, &format!("{}{name}", system.words()), &LOGS_MB, (|mb| mb as f64, y))
    });
    let disks = Axis::linear("disks").range(3.5, 10.5).ticks([4.0, 6.0, 8.0, 10.0]);
    let panels = vec![
        Panel::new("", disks, Axis::log("execution time (s)"), by_disks.collect()),
        Panel::new("", Axis::log("log (MB)"), Axis::log("execution time (s)"), by_log.collect()),
    ];
    Figure::new("With and without transformation and sync, 10 GB of 100 KB values", 2, panels)
}

fn asleep(runs: &Runs) -> Figure {
    let x = || Axis::linear("disks").range(3.5, 10.5).ticks([4.0, 6.0, 8.0, 10.0]);
    let of = |name: &str, variant| {
        let y = move |of: SeedRuns<'_>, disks| {
            of.at(Shifting, variant, 100, (disks, LONG_LOG_MB)).outcome.energy_mj as f64 / 1e6
        };
        line(runs, name, &ARRAYS, (f64::from, y))
    };
    let starts =
        |of: SeedRuns<'_>, disks| f64::from(of.at(Shifting, Sleeping, 100, (disks, LONG_LOG_MB)).outcome.starts);
    let energy = vec![of("all turn", Both), of("idle disks sleep after 10 s", Sleeping)];
    let starts = vec![line(runs, "idle disks sleep after 10 s", &ARRAYS, (f64::from, starts))];
    let panels = vec![
        Panel::new("", x(), Axis::linear("energy (kJ)").range(0.0, 20.0), energy),
        Panel::new("", x(), Axis::linear("starts"), starts),
    ];
    Figure::new("Idle disks asleep: Workload Shifting, logs of 1 GB", 2, panels)
}
