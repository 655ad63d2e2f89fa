//! The temperature of staged objects as text: of one, for `larder explain`, and of all below a prefix, for dry runs.

use crate::args::Explain;
use crate::human::{bytes, count, counted, table};
use crate::output::{ask, show};
use anyhow::bail;
use server::report::{DryRunReport, MoveReport, ObjectTotal, RuleName, RuleReport, TemperatureReport};
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// The last moment of an HTTP date: the year 9999.
const LAST_DATE_MS: u64 = 253_402_300_799_000;

/// A moment, given in milliseconds of the Unix epoch.
pub fn date(ms: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(ms.min(LAST_DATE_MS)))
}

/// The rows about the temperature of an object, each with its name.
pub fn rows(report: &TemperatureReport) -> Vec<(String, String)> {
    let row = |name: &str, value: String| (name.to_owned(), value);
    let mut rows = vec![row("created", date(report.created_ms)), row("reads", reads(report))];
    let by = match &report.rule {
        Some(rule) => format!("{} since {}, by {}", report.temperature, date(report.since_ms), named(rule)),
        None if report.rules.is_empty() => format!("{} by default: no rule covers it", report.temperature),
        None => format!("{} by default: no rule holds for it", report.temperature),
    };
    let next = report.next.as_ref().map_or_else(String::new, |next| {
        format!("; {} from {}, by {}", next.temperature, date(next.at_ms), named(&next.rule))
    });
    rows.push(row("heat", format!("{by}{next}")));
    let others = report.rules.iter().filter(|rule| Some(&rule.rule) != report.rule.as_ref());
    rows.extend(others.map(|rule| (format!("rule {}", rule.rule.number), other_rule(rule))));
    rows.push(row("moves", moves(&report.moves)));
    rows
}

fn reads(report: &TemperatureReport) -> String {
    let last = report
        .read_ms
        .map_or_else(|| "none".to_owned(), |ms| format!("{}, the last {}", count(report.reads), date(ms)));
    let through = if report.read_through { ", every byte of it" } else { "" };
    format!("{last}{through} (counted since {})", date(report.counted_from_ms))
}

fn named(rule: &RuleName) -> String {
    if rule.name.is_empty() { format!("rule {}", rule.number) } else { format!("rule {} ({})", rule.number, rule.name) }
}

fn other_rule(rule: &RuleReport) -> String {
    let name = if rule.rule.name.is_empty() { String::new() } else { format!(" ({})", rule.rule.name) };
    let state = match (rule.holds, rule.from_ms) {
        (true, _) => "also holds, but comes later in larder.toml".to_owned(),
        (false, Some(from_ms)) => format!("will hold from {}", date(from_ms)),
        (false, None) => "does not hold: it requires other tags or reads".to_owned(),
    };
    format!("{}{name}: {state}", rule.is)
}

fn moves(moves: &MoveReport) -> String {
    let at = moves.at_ms.map(date).unwrap_or_default();
    match moves.when.as_str() {
        "moving" => "now".to_owned(),
        "due" => format!("with its pack, by {at} at the latest if the rack accepts it"),
        "later" => format!("due at {at}; earlier only if the workshop fills up"),
        "with_checks" => "when the next check of the workshop reads it".to_owned(),
        "above_regular" => "when the workshop is filled above its regular share and no client waits".to_owned(),
        "above_critical" => "only while the workshop is filled above its critical share".to_owned(),
        _ => "not before it has left quarantine".to_owned(),
    }
}

/// `larder explain --dry-run`.
pub fn dry_run(options: &Explain) -> anyhow::Result<()> {
    let (bucket, prefix) = (&options.place.bucket, &options.place.prefix);
    let rule = options.rule.as_deref();
    let Some(report) = ask(&options.data, async |client| client.dry_run(bucket, prefix, rule).await)? else {
        bail!("there is no bucket s3://{bucket}; list the buckets with `aws s3 ls`");
    };
    show(options.json, &report, text)
}

fn text(report: &DryRunReport) -> String {
    let DryRunReport { bucket, prefix, staged, due, later, too_small, .. } = report;
    let total = |total: &ObjectTotal| vec![count(total.objects), bytes(total.bytes)];
    let line = |name: String, is: &str, of: &ObjectTotal| [vec![name, is.to_owned()], total(of)].concat();
    let mut lines: Vec<Vec<String>> =
        report.rules.iter().map(|rule| line(named(&rule.rule), &rule.is, &rule.total)).collect();
    lines.push(line("no rule".to_owned(), &report.default, &report.by_default));
    let mut text = format!(
        "staged    s3://{bucket}/{prefix}: {}, {}\n\n{}\n",
        counted(staged.objects, "object"),
        bytes(staged.bytes),
        table(&["decides", "is", "objects", "bytes"], &["objects", "bytes"], lines),
    );
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<9} {value}");
    };
    row(
        "moves",
        format!(
            "{}, {}, as {}; about {} of groups and {} of drives",
            counted(due.objects, "object"),
            bytes(due.bytes),
            counted(due.blobs, "blob"),
            counted(due.wakes, "wake"),
            counted(due.starts, "start"),
        ),
    );
    if too_small.objects > 0 {
        let (objects, size) = (counted(too_small.objects, "object"), bytes(too_small.bytes));
        row("stays", format!("{objects}, {size}: cold, but smaller than migrate.min_size"));
    }
    if let Some(last_ms) = report.last_ms {
        let objects = counted(later.objects, "object");
        row("later", format!("{objects}, {}, the last of them at {}", bytes(later.bytes), date(last_ms)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::report::{ChangeReport, MoveEstimate, RuleTotal};

    fn rule(number: usize, name: &str) -> RuleName {
        RuleName { number, name: name.into() }
    }

    #[test]
    fn an_object_names_the_rule_that_decides_the_others_and_when_it_moves() {
        let other = RuleReport { rule: rule(1, ""), is: "hot".into(), holds: false, from_ms: Some(86_400_000) };
        let decides = RuleReport { rule: rule(2, "line"), is: "cold".into(), holds: true, from_ms: Some(0) };
        let report = TemperatureReport {
            temperature: "cold".into(),
            rule: Some(rule(2, "line")),
            since_ms: 0,
            next: Some(ChangeReport { at_ms: 86_400_000, temperature: "hot".into(), rule: rule(1, "") }),
            rules: vec![other, decides],
            created_ms: 0,
            reads: 3,
            read_ms: Some(60_000),
            read_through: true,
            counted_from_ms: 0,
            moves: MoveReport { when: "due".into(), at_ms: Some(3_600_000) },
        };
        let rows: Vec<String> = rows(&report).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        let lines = rows.join("\n");
        for line in [
            "reads 3, the last Thu, 01 Jan 1970 00:01:00 GMT, every byte of it (counted since",
            "heat cold since Thu, 01 Jan 1970 00:00:00 GMT, by rule 2 (line); hot from Fri, 02 Jan 1970",
            "rule 1 hot: will hold from Fri, 02 Jan 1970",
            "moves with its pack, by Thu, 01 Jan 1970 01:00:00 GMT at the latest",
        ] {
            assert!(lines.contains(line), "{line:?} is not in\n{lines}");
        }
        assert!(!lines.contains("\nrule 2"), "{lines}");
    }

    #[test]
    fn a_dry_run_says_what_each_rule_decides_and_what_the_move_would_take() {
        let of = |objects, bytes| ObjectTotal { objects, bytes };
        let report = DryRunReport {
            bucket: "b".into(),
            prefix: "p/".into(),
            staged: of(1_200, 6_000_000),
            rules: vec![RuleTotal { rule: rule(1, "line"), is: "cold".into(), total: of(1_000, 5_000_000) }],
            default: "hot".into(),
            by_default: of(200, 1_000_000),
            due: MoveEstimate { objects: 990, bytes: 4_900_000, blobs: 2, wakes: 1, starts: 24 },
            too_small: of(10, 100_000),
            later: of(3, 1_000),
            last_ms: Some(0),
        };
        let text = text(&report);
        for line in [
            "staged    s3://b/p/: 1,200 objects, 6.0 MB",
            "rule 1 (line)",
            "moves     990 objects, 4.9 MB, as 2 blobs; about 1 wake of groups and 24 starts of drives",
            "stays     10 objects",
            "later     3 objects, 1.0 kB, the last of them at Thu, 01 Jan 1970",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }
}
