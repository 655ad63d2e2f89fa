//! `larder catalog backup` and `larder recover`: a copy of the catalog, and the catalog made again.

use crate::args::{Backup, Recover};
use crate::human::{bytes, count, counted, seconds};
use crate::output::{self, wait_for};
use crate::recover_args::BasePlace;
use crate::temperature::date;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use server::admin::Client;
use server::clock::monotonic;
use server::data_dir::DataDir;
use server::recover::{Base, BaseChoice, Options, Pass, Report, Source, Step, recover_directory};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::time::Instant;

/// `larder catalog backup`.
pub fn backup(options: &Backup) -> anyhow::Result<()> {
    let path = std::path::absolute(&options.file).context("cannot find the working directory")?;
    wait_for(async {
        let report = Client::of(&options.data.data)?.backup(&path).await?;
        if options.json {
            return output::print_json(&report);
        }
        let (records, size) = (counted(report.records, "record"), bytes(report.bytes));
        Ok(output::print(&format!("copied {records} of the catalog to {}, {size}\n", report.path))?)
    })
}

/// `larder recover`.
pub fn recover(options: &Recover) -> anyhow::Result<()> {
    let dir = DataDir::open_to_recover(&options.data.data)?;
    let base = options.how.base.map(|place| match place {
        BasePlace::Journal => BaseChoice::Journal,
        BasePlace::Drives => BaseChoice::Drives,
    });
    let how = Options { from: options.how.from.clone(), replace: options.how.replace, base };
    let progress = Progress::new();
    let report = wait_for(async { Ok(recover_directory(&dir, &how, &|step| progress.step(&step)).await?) });
    progress.bar.finish_and_clear();
    let report = report?;
    if options.json { output::print_json(&report) } else { Ok(output::print(&text(&report))?) }
}

/// The progress on standard error: a bar on a terminal, otherwise a line for each group and for every few thousand
/// blobs of a large one.
struct Progress {
    bar: ProgressBar,
    began: Mutex<Instant>,
}

impl Progress {
    fn new() -> Self {
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {msg}") {
            bar.set_style(style);
        }
        Self { bar, began: Mutex::new(monotonic()) }
    }

    fn step(&self, step: &Step<'_>) {
        match step {
            Step::Base(base) => {
                self.bar.suspend(|| tracing::info!("rebuilding the catalog from {}", described(*base)));
            }
            Step::Copies(groups) => {
                let what = "searching the drives for copies of the catalog";
                self.bar.suspend(|| tracing::info!("{what}"));
                self.begin(*groups);
            }
            Step::Groups(groups) => self.begin(*groups),
            Step::Awake(_) | Step::Asleep => {}
            Step::Blobs(pass) | Step::Group(pass) => {
                let line = line(*pass, self.began.lock().elapsed());
                self.bar.set_position(pass.groups_done);
                self.bar.set_message(line.clone());
                if self.bar.is_hidden() {
                    eprintln!("{line}");
                }
            }
            Step::Unusable(what) => self.bar.suspend(|| tracing::warn!("{what}")),
        }
    }

    fn begin(&self, groups: u64) {
        *self.began.lock() = monotonic();
        self.bar.set_position(0);
        self.bar.set_length(groups);
    }
}

/// The progress of a pass that started `elapsed` ago. The remaining groups are assumed to take as long as the earlier
/// ones.
fn line(pass: Pass, elapsed: Duration) -> String {
    let Pass { groups, groups_done, drives, blobs, bytes: size } = pass;
    let left = groups - groups_done;
    let to_go = match groups_done {
        _ if left == 0 => String::new(),
        0 => ", remaining time unknown".to_owned(),
        done => format!(", about {} left", seconds(elapsed.as_secs_f64() / done as f64 * left as f64)),
    };
    let (drives, blobs, size) = (counted(drives, "drive"), counted(blobs, "blob"), bytes(size));
    format!("{groups_done} of {}: {drives}, {blobs} of {size}{to_go}", counted(groups, "group"))
}

/// The base of a recovery, before the drives are looked at.
fn described(base: Option<Base>) -> String {
    let Some(Base { source, made_ms, records, batches, damaged }) = base else {
        return "only the packs on drives: there is no journal, no copy of it on drives, and none was given with --from"
            .into();
    };
    let place = match source {
        Source::Journal => "the journal",
        Source::Drives => "the copy on drives",
        Source::Copy => "the copy given with --from",
    };
    let damage = match damaged {
        0 => String::new(),
        _ => format!("; {} in it, as before", counted(damaged, "damaged record")),
    };
    let (records, made) = (counted(records, "record"), date(made_ms));
    format!("{place}: {records} of {made}, and {} changes since{damage}", count(batches))
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<9} {value}");
    };
    row("base", described(report.base));
    if let Some(behind) = &report.behind_log {
        row("log", format!("is newer than the catalog: {behind}; the next start shows how to fix that"));
    }
    if report.lacks_log {
        row("log", "lost or incomplete: the last acknowledged changes may be missing".into());
    }
    if let Some(flaw) = &report.incomplete {
        row("lacks", format!("{flaw}: they count as deleted from now on"));
    }
    row(
        "drives",
        format!("{} found, {} of them missing from the catalog", counted(report.blobs, "blob"), count(report.adopted)),
    );
    if report.adopted > 0 {
        let (objects, size) = (counted(report.objects, "object"), bytes(report.bytes));
        row(
            "found",
            format!("{objects} of {size}, in {} new buckets; {} dead", count(report.buckets), count(report.dead)),
        );
    }
    if report.moved > 0 {
        row(
            "moved",
            format!("{} were on other drives than recorded; the catalog is corrected", counted(report.moved, "stack")),
        );
    }
    if report.missing > 0 {
        row("rebuilds", format!("{} are missing; the server rebuilds them", counted(report.missing, "stack")));
    }
    if report.removed > 0 {
        let objects = counted(report.removed, "object");
        row("removed", format!("{objects}, whose data had been removed from all drives after this base was written"));
    }
    if report.moved_back > 0 {
        let objects = counted(report.moved_back, "object");
        row(
            "moved back",
            format!("{objects}, which had moved from the rack to the workshop after this base was written"),
        );
    }
    if report.staged > 0 {
        let objects = counted(report.staged, "object");
        row("lost", format!("{objects} that were stored only in the workshop: they are listed, and GETs of them fail"));
    }
    if report.unreadable > 0 || report.drives_unusable > 0 {
        let (blobs, drives) = (counted(report.unreadable, "blob"), counted(report.drives_unusable, "drive"));
        row("missing", format!("{blobs} and {drives} could not be read"));
    }
    if !report.failed.is_empty() {
        let numbers: Vec<String> = report.failed.iter().map(u32::to_string).collect();
        let fix = "if one was replaced or repaired later, run `larder drive replace N`";
        let drives = if let [_] = report.failed[..] { "drive" } else { "drives" };
        row("failed", format!("this base records {drives} {} as failed; {fix}", numbers.join(", ")));
    }
    if !report.owners.is_empty() {
        let owners = report.owners.join(", ");
        row("owners", format!("{owners}: no longer users; `larder user add NAME` creates keys for one"));
    }
    if let Some(replaced) = &report.replaced {
        row("before", format!("the former catalog is kept as {replaced}"));
    }
    row("next", "compare the catalog with workshop and drives with `larder verify`; then start the server".into());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is_and_how_long_the_rest_takes() {
        let mut pass = Pass { groups: 12, groups_done: 3, drives: 17, blobs: 1_204, bytes: 12_300_000_000 };
        let shown = line(pass, Duration::from_mins(1));
        assert_eq!(shown, "3 of 12 groups: 17 drives, 1,204 blobs of 12.3 GB, about 3 min left");
        pass.groups_done = 12;
        assert_eq!(line(pass, Duration::from_mins(4)), "12 of 12 groups: 17 drives, 1,204 blobs of 12.3 GB");
        pass.groups_done = 0;
        assert!(line(pass, Duration::ZERO).ends_with("remaining time unknown"));
    }
}
