//! `larder recall`: brings a set of objects from the rack into the spool, each group in one wake. The server does the
//! work; this command prints the cost, starts the recall, and follows it.

use crate::args::Recall;
use crate::human::{bytes, count, counted, seconds};
use crate::output::{self, wait_for};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use server::admin::Client;
use server::set_recall::{SetReport, SetRequest};
use std::fmt::Write;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

/// Interval of the requests for the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// `larder recall`.
pub fn recall(options: &Recall) -> anyhow::Result<()> {
    let keys = options.keys.as_deref().map(keys_in).transpose()?;
    if keys.is_some() && !options.set.prefix.is_empty() {
        anyhow::bail!("with --keys, name only the bucket, as s3://{}: the file lists full keys", options.set.bucket);
    }
    let request = SetRequest {
        bucket: options.set.bucket.clone(),
        prefix: options.set.prefix.clone(),
        keys,
        dry_run: options.dry_run,
    };
    wait_for(begin(options, &request))
}

/// The keys in a file, one a line.
fn keys_in(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.with_context(|| format!("cannot read the keys in {}", path.display()))?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

async fn begin(options: &Recall, request: &SetRequest) -> anyhow::Result<()> {
    let client = Client::of(&options.data.data)?;
    let report = client.recall_set(request).await?;
    if report.objects == 0 {
        let SetRequest { bucket, prefix, .. } = request;
        anyhow::bail!(
            "there is no object with this prefix or these keys; list the objects with `aws s3 ls \
             s3://{bucket}/{prefix} --recursive`"
        );
    }
    if options.dry_run && options.json {
        return output::print_json(&report);
    }
    if !options.json {
        output::print(&planned(&report))?;
    }
    if options.dry_run {
        return Ok(());
    }
    let report = follow(&client, report).await?;
    if options.json {
        output::print_json(&report)?;
    }
    if report.state != "done" {
        anyhow::bail!(
            "{} of {} could not be read: {}; run the command again for the rest",
            bytes(report.failed_bytes),
            bytes(report.read_bytes),
            report.reason
        );
    }
    if !options.json {
        output::print(&match report.read_bytes {
            0 => "done: everything was in the workshop already\n".to_owned(),
            _ => format!("done: {} are in the spool\n", bytes(report.done_bytes)),
        })?;
    }
    Ok(())
}

/// Waits for the end, with a progress bar if standard error is a terminal.
async fn follow(client: &Client, begun: SetReport) -> anyhow::Result<SetReport> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(begun.read_bytes) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} % {bytes} of {total_bytes}") {
        bar.set_style(style);
    }
    let job = begun.job;
    loop {
        let goes_on = "the recall continues while the server runs; run the command again to resume it";
        let report = client.set_recall(job).await.context(goes_on)?;
        let Some(report) = report else {
            anyhow::bail!("the server has restarted in the meantime; run the command again to recall the rest");
        };
        bar.set_position(report.done_bytes);
        if report.state != "running" {
            bar.finish_and_clear();
            return Ok(report);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The cost of a recall.
fn planned(report: &SetReport) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<9} {value}");
    };
    let missing = if report.missing > 0 {
        format!(", and {} without an object", counted(report.missing, "key"))
    } else {
        String::new()
    };
    row("set", format!("{} of {}{missing}", counted(report.objects, "object"), bytes(report.bytes)));
    row("here", format!("{} in the workshop already", count(report.here)));
    row("read", format!("{} from {}", bytes(report.read_bytes), counted(report.groups, "group")));
    row("room", format!("{} in the spool{}", bytes(report.room_bytes), if report.fits { "" } else { ": too little" }));
    row("starts", format!("{} for {}", counted(report.starts, "drive start"), counted(report.wakes, "wake")));
    row("time", format!("about {}, without other work", seconds(report.minutes * 60.0)));
    row("energy", format!("{:.3} kWh in addition to standby", report.kwh));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_it_costs_and_whether_it_fits() {
        let report = SetReport {
            objects: 3_000,
            bytes: 3_000_000_000,
            missing: 1,
            here: 12,
            read_bytes: 3_100_000_000,
            room_bytes: 2_000_000_000,
            groups: 12,
            wakes: 11,
            starts: 88,
            minutes: 1.0,
            kwh: 0.0421,
            ..SetReport::default()
        };
        let expected = "set       3,000 objects of 3.0 GB, and 1 key without an object\n\
                        here      12 in the workshop already\n\
                        read      3.1 GB from 12 groups\n\
                        room      2.0 GB in the spool: too little\n\
                        starts    88 drive starts for 11 wakes\n\
                        time      about 1 min, without other work\n\
                        energy    0.042 kWh in addition to standby\n";
        assert_eq!(planned(&report), expected);
    }
}
