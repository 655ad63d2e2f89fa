//! The figures of the paper, numbered as there. Stage diagrams (7 and 8) are drawn from the traces of the runs.

use super::runs::{ARRAYS, DISKS, LOG_MB, LOGS_MB, Put, Runs, SIZES_KB, System, Variant};
use crate::report::{Axis, Figure, Panel, Series, Style};
use crate::reproduce::evaluation::NamedFigure;
use crate::shifting::Stage;
use System::{LevelDb, LogRaid0, Shifting};
use Variant::{Alone, Both, Sequential, Unsynced};

/// The names of the files of all figures.
pub const FIGURES: [&str; 7] = [
    "figure-3-leveldb.svg",
    "figure-7-8-stages.svg",
    "figure-9-without-sync.svg",
    "figure-10-throughput.svg",
    "figure-11-impact.svg",
    "figure-disks.svg",
    "figure-log-size.svg",
];

/// All figures.
pub fn figures(runs: &Runs) -> Vec<NamedFigure> {
    let figures =
        [leveldb(runs), stages(runs), unsynced(runs), throughput(runs), impact(runs), disks(runs), logs(runs)];
    FIGURES.into_iter().zip(figures).map(|(name, figure)| NamedFigure { name, figure }).collect()
}

fn by_size(runs: &Runs, system: System, variant: Variant, name: &str) -> Series {
    Series::line(name, SIZES_KB.into_iter().rev().map(|kb| (kb as f64, runs.of(system, variant, kb).mb_per_s())))
}

fn one(title: &str, x: Axis, y: Axis, series: Vec<Series>) -> Figure {
    Figure::new(title, 1, vec![Panel::new("", x, y, series)])
}

fn leveldb(runs: &Runs) -> Figure {
    let series =
        vec![by_size(runs, LevelDb, Both, "random keys"), by_size(runs, LevelDb, Sequential, "sequential keys")];
    one("Figure 3: LevelDB over RAID0", Axis::log("value (KB)"), Axis::linear("throughput (MB/s)"), series)
}

fn throughput(runs: &Runs) -> Figure {
    let series = [Shifting, LevelDb, LogRaid0].map(|system| by_size(runs, system, Both, system.words())).into();
    one("Figure 10: random keys", Axis::log("value (KB)"), Axis::log("throughput (MB/s)"), series)
}

/// The stages of the first seconds of a run: a row for each disk, and for each stage a level within it.
fn diagram(title: &str, put: &Put, seconds: f64) -> Panel {
    let kinds =
        [(Stage::Log, "Log", 0.0), (Stage::ReadLog, "Read log", 0.12), (Stage::WriteTree, "Write B+tree", 0.24)];
    let series = kinds.map(|(stage, name, level)| {
        let of_it = put.outcome.stages.iter().filter(|span| span.stage == stage);
        let mut spans: Vec<_> = of_it.filter(|span| span.from.as_secs_f64() < seconds).collect();
        spans.sort_by_key(|span| (span.disk, span.from));
        let ends = spans.into_iter().flat_map(|span| {
            let y = span.disk as f64 + 1.0 + level;
            let (from, to) = (span.from.as_secs_f64(), span.to.as_secs_f64().min(seconds));
            [(from * 1e3, y), (to * 1e3, y), (to * 1e3, f64::NAN)]
        });
        Series::styled(name, Style::Steps, ends)
    });
    let disks = Axis::linear("disk").range(0.5, f64::from(put.run.disks) + 0.7);
    Panel::new(title, Axis::linear("time (ms)"), disks, series.into())
}

fn stages(runs: &Runs) -> Figure {
    let acceptable = diagram("acceptable: each put is synced", runs.of(Shifting, Both, 100), 1.2);
    let bad = diagram("bad: no put is synced", runs.of(Shifting, Unsynced, 100), 0.4);
    Figure::new("Figures 7 and 8: the stages of four disks", 1, vec![acceptable, bad])
}

fn unsynced(runs: &Runs) -> Figure {
    let at = |log_mb| runs.at(Shifting, Unsynced, 100, (DISKS, log_mb));
    let logging = LOGS_MB.map(|log_mb| {
        let put = at(log_mb);
        (log_mb as f64, put.seconds() * put.run.log_bytes as f64 / put.outcome.put_bytes as f64)
    });
    let transforming = LOGS_MB.map(|log_mb| {
        let (count, time) = at(log_mb).outcome.background;
        (log_mb as f64, time.as_secs_f64() / count.max(1) as f64)
    });
    let series = vec![Series::line("logging", logging), Series::line("transformation", transforming)];
    one("Figure 9: a log without sync, 100 KB values", Axis::log("log (MB)"), Axis::log("time (s)"), series)
}

fn impact(runs: &Runs) -> Figure {
    let series = [(Shifting, Alone), (Shifting, Both), (LogRaid0, Alone), (LogRaid0, Both)].map(|(system, variant)| {
        let points = SIZES_KB.into_iter().rev().map(|kb| (kb as f64, runs.of(system, variant, kb).seconds()));
        let name = format!("{}, {}", system.words(), variant.words());
        if variant == Alone { Series::reference(name, points) } else { Series::line(name, points) }
    });
    let title = "Figures 2, 11 and 12: 10 GB with and without transformation";
    one(title, Axis::log("value (KB)"), Axis::log("time (s)"), series.into())
}

fn disks(runs: &Runs) -> Figure {
    let at = |system: System| {
        let points = ARRAYS.map(|disks| (f64::from(disks), runs.at(system, Both, 100, (disks, LOG_MB)).seconds()));
        Series::line(system.words(), points)
    };
    let title = "Disks: 10 GB of 100 KB values, with transformation";
    one(title, Axis::linear("disks"), Axis::log("time (s)"), [Shifting, LogRaid0, LevelDb].map(at).into())
}

fn logs(runs: &Runs) -> Figure {
    let at = |system: System| {
        let points = LOGS_MB.map(|log_mb| (log_mb as f64, runs.at(system, Both, 100, (DISKS, log_mb)).seconds()));
        Series::line(system.words(), points)
    };
    let title = "Log size: 10 GB of 100 KB values, with transformation";
    one(title, Axis::log("log (MB)"), Axis::linear("time (s)"), [Shifting, LogRaid0].map(at).into())
}
