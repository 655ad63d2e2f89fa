//! `larder verify`: checks catalog, workshop and drives against each other.

use crate::args::Verify;
use crate::human::{bytes, count, counted};
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use server::admin::{Client, ClientError};
use server::data_dir::DataDir;
use server::verify::{
    ASLEEP, Finding, Options, Report, Step, VerifyPhase, VerifyProgress as Progress, VerifyRequest, verify_directory,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Something is wrong.
const FINDINGS: u8 = 1;
/// The check could not run.
const CANNOT: u8 = 2;
/// Maximum number of groups that are named for one reason.
const SKIPPED_NAMED: usize = 8;
/// Interval of the requests for the progress of a running server.
const POLL: Duration = Duration::from_millis(200);

/// `larder verify`.
pub fn verify(options: &Verify) -> ExitCode {
    match verified(options) {
        Ok(report) if report.clean => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FINDINGS),
        Err(error) if output::reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larder: {}", output::sentence(&error));
            ExitCode::from(CANNOT)
        }
    }
}

fn verified(options: &Verify) -> anyhow::Result<Report> {
    let progress = VerifyProgress::new();
    let how = Options { drives: !options.no_drives, deep: options.deep };
    let printer = Printer::new(options);
    let watch = |step: Step<'_>| match step {
        Step::Found(finding) => progress.around(|| printer.print(finding)),
        step => progress.step(step),
    };
    let report = Runtime::new()?.block_on(async {
        let client = Client::of(&options.data.data)?;
        match client.verification(VerifyRequest::Begin { options: how, wakes: options.wake || options.deep }).await {
            Err(ClientError::NoServer(_)) => {
                let dir = DataDir::open(&options.data.data)?;
                Ok(verify_directory(&dir, how, &watch).await?)
            }
            begun => beside_server(&client, begun?, &watch).await,
        }
    });
    progress.end();
    printer.end(report?)
}

/// Waits for the verification `begun` of a running server.
async fn beside_server(
    client: &Client,
    begun: Option<Progress>,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> anyhow::Result<Report> {
    let (mut now, mut shown) = (begun, Shown::default());
    loop {
        let Some(progress) = now else { anyhow::bail!("the verification was interrupted, or the server restarted") };
        for finding in &progress.findings {
            watch(Step::Found(finding));
        }
        shown.follow(progress.phase, watch);
        match (progress.report, progress.error) {
            (Some(report), _) => return Ok(report),
            (None, Some(error)) => anyhow::bail!("the verification did not finish: {error}"),
            (None, None) => tokio::time::sleep(POLL).await,
        }
        now = client.verification(VerifyRequest::Look(progress.number)).await?;
    }
}

/// The progress of a server's verification that is shown.
#[derive(Default)]
struct Shown {
    in_workshop: bool,
    in_rack: bool,
    done: u64,
}

impl Shown {
    /// Reports the steps that lead to `phase`.
    fn follow(&mut self, phase: VerifyPhase, watch: &(dyn Fn(Step<'_>) + Sync)) {
        let (begins, first, now) = match phase {
            VerifyPhase::Catalog => return watch(Step::Catalog),
            VerifyPhase::Workshop { done, files } => (&mut self.in_workshop, Step::Workshop { files }, done),
            VerifyPhase::Rack { done, blobs, groups } | VerifyPhase::Scrub { done, blobs, groups, .. } => {
                (&mut self.in_rack, Step::Rack { blobs, groups }, done)
            }
        };
        if !std::mem::replace(begins, true) {
            watch(first);
            self.done = 0;
        }
        for _ in self.done..now {
            watch(Step::Done);
        }
        self.done = now.max(self.done);
        if let VerifyPhase::Scrub { permille, .. } = phase {
            watch(Step::Scrubbing { permille });
        }
    }
}

/// Prints findings as they come, if all are requested: in JSON, and with `--all`. Findings are not stored.
struct Printer {
    json: bool,
    all: bool,
    /// The number of findings printed, and the error that ended the printing.
    printed: Mutex<(u64, Result<(), output::OutputError>)>,
}

impl Printer {
    fn new(options: &Verify) -> Self {
        Self { json: options.json, all: options.all, printed: Mutex::new((0, Ok(()))) }
    }

    fn print(&self, finding: &Finding) {
        if !self.json && !self.all {
            return;
        }
        let mut printed = self.printed.lock();
        if printed.1.is_err() {
            return;
        }
        printed.1 = match serde_json::to_string(finding) {
            Ok(json) if self.json => {
                let before = if printed.0 == 0 { "{\n  \"findings\": [\n    " } else { ",\n    " };
                output::print(&format!("{before}{json}"))
            }
            _ => output::print(&line(finding)),
        };
        printed.0 += 1;
    }

    /// Prints the rest of the report after the last finding.
    fn end(self, report: Report) -> anyhow::Result<Report> {
        let (count, done) = self.printed.into_inner();
        done?;
        if self.json {
            output::print(&json(&report, count)?)?;
        } else {
            let findings = if self.all { String::new() } else { findings(&report) };
            output::print(&format!("{findings}{}", summary(&report)))?;
        }
        Ok(report)
    }
}

/// The end of the JSON that starts with `printed` findings.
fn json(report: &Report, printed: u64) -> anyhow::Result<String> {
    let mut rest = serde_json::to_value(report)?;
    if let Some(fields) = rest.as_object_mut() {
        fields.remove("findings");
    }
    let rest = serde_json::to_string_pretty(&rest)?;
    let rest = rest.strip_prefix('{').unwrap_or_default();
    let begun = if printed == 0 { "{\n  \"findings\": []" } else { "\n  ]" };
    Ok(format!("{begun},{rest}\n"))
}

/// A bar on standard error, if that is a terminal.
struct VerifyProgress {
    bar: Mutex<ProgressBar>,
}

impl VerifyProgress {
    fn new() -> Self {
        Self { bar: Mutex::new(ProgressBar::new_spinner()) }
    }

    /// Runs `what` while the bar is hidden.
    fn around(&self, what: impl FnOnce()) {
        self.bar.lock().suspend(what);
    }

    fn step(&self, step: Step<'_>) {
        let mut bar = self.bar.lock();
        match step {
            Step::Catalog => {
                bar.set_message("comparing the records of the catalog");
                bar.enable_steady_tick(Duration::from_millis(100));
            }
            Step::Workshop { files } => begin(&mut bar, "workshop, files", files),
            Step::Rack { blobs, .. } => {
                begin(&mut bar, "drives, blobs", blobs);
            }
            Step::Scrubbing { permille } => bar.set_message(format!("scrubbing, {} %", permille / 10)),
            Step::Done => bar.inc(1),
            Step::Found(_) => {}
        }
    }

    fn end(&self) {
        self.bar.lock().finish_and_clear();
    }
}

fn begin(bar: &mut ProgressBar, what: &'static str, total: u64) {
    bar.finish_and_clear();
    let style = ProgressStyle::with_template("{msg:16} {bar:40} {human_pos} of {human_len}, {eta} to go");
    *bar = ProgressBar::new(total);
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what);
}

/// The first findings. Lost objects are named with their blobs.
fn findings(report: &Report) -> String {
    let mut text: String = report.findings.iter().map(line).collect();
    let shown = report.findings.len() as u64 + report.rack.lost_objects + report.rack.unavailable_objects;
    if report.finding_count > shown {
        let _ = writeln!(text, "... and {} more; --all lists them", count(report.finding_count - shown));
    }
    text
}

/// Everything that was checked, and the verdict.
fn summary(report: &Report) -> String {
    let mut text = String::new();
    let row = |text: &mut String, name: &str, value: String| {
        let _ = writeln!(text, "{name:<9} {value}");
    };
    let (catalog, workshop, rack) = (&report.catalog, &report.workshop, &report.rack);
    let dead = bytes(catalog.dead_bytes);
    row(
        &mut text,
        "catalog",
        format!(
            "{}; {} of {} in the workshop, {} of {} in the rack in {}, {dead} dead there",
            counted(catalog.objects, "object"),
            count(catalog.staged),
            bytes(catalog.staged_bytes),
            count(catalog.stored),
            bytes(catalog.stored_bytes),
            counted(catalog.blobs, "blob"),
        ),
    );
    let files = counted(workshop.files, "staged file");
    row(&mut text, "workshop", format!("{files} of {}{}", bytes(workshop.file_bytes), read(workshop.checked_bytes)));
    let drives = if rack.drives_read {
        let stacks = counted(rack.stacks, "stack");
        let rebuild = match rack.stacks_to_rebuild {
            0 => String::new(),
            stacks => format!(", {} to be rebuilt", count(stacks)),
        };
        let (of, read) = (bytes(rack.stack_bytes), read(rack.checked_bytes));
        format!("{stacks} of {of} in {}{read}{rebuild}", counted(rack.groups, "group"))
    } else {
        format!("not checked; that would wake {}", counted(rack.groups, "group"))
    };
    row(&mut text, "drives", drives);
    if rack.lost_objects > 0 {
        row(&mut text, "lost", format!("{}; --all names them", counted(rack.lost_objects, "object")));
    }
    if rack.unavailable_objects > 0 {
        let objects = counted(rack.unavailable_objects, "object");
        row(
            &mut text,
            "away",
            format!("{objects}, which can be read again when their drives are back; --all names them"),
        );
    }
    for skipped in skipped(report) {
        row(&mut text, "skipped", skipped);
    }
    if let Some(left) = left(report) {
        row(&mut text, "left over", left);
    }
    let verdict = match report.finding_count {
        0 if rack.stacks_to_rebuild > 0 => {
            format!("readable, but degraded: {} are to be rebuilt", counted(rack.stacks_to_rebuild, "stack"))
        }
        0 if report.rack.skipped.is_empty() => "all agree".to_owned(),
        0 => "all that was checked agrees".to_owned(),
        1 => "1 thing is wrong".to_owned(),
        more => format!("{} things are wrong", count(more)),
    };
    row(&mut text, "verdict", verdict);
    text
}

/// The groups that were not looked at, by reason.
fn skipped(report: &Report) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for skipped in &report.rack.skipped {
        by_reason.entry(&skipped.why).or_default().insert(skipped.group);
    }
    let line = |(why, groups): (&str, BTreeSet<u32>)| {
        let named: Vec<String> = groups.iter().take(SKIPPED_NAMED).map(u32::to_string).collect();
        let more = if groups.len() > SKIPPED_NAMED { ", ..." } else { "" };
        let (count, named) = (counted(groups.len() as u64, "group"), named.join(", "));
        let mend = if why == ASLEEP { "; --wake wakes each group once" } else { "" };
        format!("{count} ({named}{more}): {why}{mend}")
    };
    by_reason.into_iter().map(line).collect()
}

fn read(checked_bytes: u64) -> String {
    if checked_bytes == 0 { String::new() } else { format!(", {} read and compared", bytes(checked_bytes)) }
}

/// The files that a crash left, if any.
fn left(report: &Report) -> Option<String> {
    let left = &report.leftovers;
    let parts =
        [(left.staged_files, "staged file"), (left.spool_files, "recall"), (left.unfinished_blobs, "unfinished blob")];
    let parts: Vec<String> =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, what)| counted(*number, what)).collect();
    (!parts.is_empty()).then(|| format!("{}: the next starts of the server remove them", parts.join(", ")))
}

/// A finding, and its remedy below.
fn line(finding: &Finding) -> String {
    let about = finding.object.as_ref().map(|object| format!(" of {object}")).unwrap_or_default();
    let blob = finding.blob.as_ref().map(|blob| format!(" (blob {blob})")).unwrap_or_default();
    // Most sentences name the drive already.
    let named = |drive: &u32| finding.what.contains(&format!("drive d{drive}"));
    let drive = finding.drive.filter(|drive| !named(drive)).map(|drive| format!(" (drive {drive})"));
    let drive = drive.unwrap_or_default();
    format!("{}{about}{blob}{drive}\n    {}\n", finding.what, finding.mend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::verify::{FindingKind, SkippedGroup};

    fn finding() -> Finding {
        Finding {
            kind: FindingKind::StagedMissing,
            what: "the staged file s-1 is missing".into(),
            mend: "put it again".into(),
            object: Some("s3://b/k".into()),
            blob: None,
            drive: None,
            file: None,
        }
    }

    fn text(report: &Report) -> String {
        findings(report) + &summary(report)
    }

    #[test]
    fn findings_printed_as_they_come_form_one_json_with_the_rest() {
        let report = Report { finding_count: 2, findings: vec![finding()], ..Report::default() };
        let one = serde_json::to_string(&finding()).unwrap_or_default();
        for (message, begun) in [(0, String::new()), (2, format!("{{\n  \"findings\": [\n    {one},\n    {one}"))] {
            let whole = format!("{begun}{}", json(&report, message).unwrap_or_default());
            let value: serde_json::Value = serde_json::from_str(&whole).unwrap_or_default();
            assert_eq!(value["findings"].as_array().map(|all| all.len() as u64), Some(message), "{whole}");
            assert_eq!(value["finding_count"], 2);
        }
    }

    #[test]
    fn each_finding_names_its_object_and_what_to_do() {
        let report = Report { finding_count: 3, findings: vec![finding()], ..Report::default() };
        let message = text(&report);
        assert!(message.starts_with(
            "the staged file s-1 is missing of s3://b/k\n    put it again\n... and 2 more; --all lists them\n"
        ));
        assert!(message.ends_with("verdict   3 things are wrong\n"), "{message}");
    }

    #[test]
    fn groups_that_were_not_looked_at_are_named_with_the_reason() {
        let mut report = Report { clean: true, ..Report::default() };
        report.rack.drives_read = true;
        let skip = |(group, why): (u32, &str)| SkippedGroup { group, why: why.into() };
        report.rack.skipped = [(3, ASLEEP), (1, ASLEEP), (1, ASLEEP), (2, "its drives are away")].map(skip).into();
        let message = text(&report);
        assert!(message.contains("skipped   2 groups (1, 3): asleep; --wake wakes each group once\n"), "{message}");
        assert!(message.contains("skipped   1 group (2): its drives are away\n"), "{message}");
        assert!(message.ends_with("verdict   all that was checked agrees\n"), "{message}");
    }

    #[test]
    fn leftovers_of_a_crash_are_not_among_the_findings() {
        let mut report = Report { clean: true, ..Report::default() };
        assert!(!text(&report).contains("left over"));
        report.rack.stacks_to_rebuild = 10;
        let degraded = "verdict   readable, but degraded: 10 stacks are to be rebuilt\n";
        assert!(text(&report).ends_with(degraded), "{}", text(&report));
        report.rack.stacks_to_rebuild = 0;
        report.leftovers.staged_files = 2;
        let message = text(&report);
        assert!(message.contains("left over 2 staged files: the next starts of the server remove them\n"), "{message}");
        assert!(message.ends_with("verdict   all agree\n"), "{message}");
    }
}
