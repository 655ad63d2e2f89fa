//! `larder scrub`: the progress and the findings of scrubs; pauses, resumes, and starts them.

use crate::args::{List, ScrubCommand, ScrubStart};
use crate::human::{bytes, count, counted, percent, seconds, table};
use crate::output::{ask, print_json, show, wait_for};
use serde::Serialize;
use server::admin::{Client, ScrubChange};
use server::report::{GroupScrub, LostObject, ScrubCounts, ScrubReport, ScrubStatus};
use std::fmt::Write;

/// Lost objects that are listed as text; `--json` lists all.
const NAMED_MAX: usize = 100;

/// `larder scrub status` as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    report: &'a ScrubReport,
    lost_objects: &'a [LostObject],
}

/// `larder scrub`.
pub fn scrub(command: &ScrubCommand) -> anyhow::Result<()> {
    match command {
        ScrubCommand::Status(options) => status(options),
        ScrubCommand::Pause(options) => change(options, ScrubChange::Pause, "scrubs are paused"),
        ScrubCommand::Resume(options) => change(options, ScrubChange::Resume, "scrubs are resumed"),
        ScrubCommand::Start(ScrubStart { rest, group }) => {
            let what = match group {
                Some(group) => format!("a scrub of group {group} starts from its first blob"),
                None => "a scrub of every group starts from its first blob".to_owned(),
            };
            change(rest, ScrubChange::Start(*group), &(what + "; `larder scrub status` shows the progress"))
        }
    }
}

fn status(options: &List) -> anyhow::Result<()> {
    let client = Client::of(&options.data.data)?;
    let (report, lost) = wait_for(async {
        let report = client.scrub().await?;
        let any_lost = report.more || report.findings.iter().any(|found| found.lost_bytes > 0);
        let lost = if any_lost { client.scrub_lost().await? } else { Vec::new() };
        Ok((report, lost))
    })?;
    if options.json {
        return print_json(&Shown { report: &report, lost_objects: &lost });
    }
    show(false, &report, |report| text(report, &lost))
}

fn change(options: &List, change: ScrubChange, done: &str) -> anyhow::Result<()> {
    let report = ask(&options.data, async |client| client.change_scrub(change).await)?;
    let Some(report) = report else {
        anyhow::bail!("there is no such group; `larder scrub status` lists the groups");
    };
    show(options.json, &report, |_| format!("{done}\n"))
}

fn text(report: &ScrubReport, lost: &[LostObject]) -> String {
    let mut text = format!("{}\n", line(&report.status));
    if !report.status.groups.is_empty() {
        text.push('\n');
        text.push_str(&groups(&report.status));
    }
    for found in &report.findings {
        let mut parts: Vec<String> = found
            .damaged
            .iter()
            .map(|stack| format!("stack {} on drive {} is damaged: {}", stack.stack, stack.drive, stack.flaw))
            .collect();
        parts.extend(found.repaired.iter().map(|stack| format!("stack {stack} was repaired")));
        parts.extend((found.lost_bytes > 0).then(|| format!("{} are lost", bytes(found.lost_bytes))));
        let _ = writeln!(text, "{} in group {}: {}", found.blob, found.group, parts.join("; "));
    }
    if report.more {
        text.push_str("and more\n");
    }
    for unread in &report.unread {
        let why = "could not be read yet, since too few of its stacks are available; it will be read again";
        let _ = writeln!(text, "{} in group {}: {why}", unread.blob, unread.group);
    }
    for object in lost.iter().take(NAMED_MAX) {
        let _ =
            writeln!(text, "lost: s3://{}/{}, {}, in {}", object.bucket, object.key, bytes(object.bytes), object.blob);
    }
    if lost.len() > NAMED_MAX {
        let _ = writeln!(text, "and {} more, which --json names", count((lost.len() - NAMED_MAX) as u64));
    }
    text
}

/// The scrub in one line, for `larder status` as well.
pub fn line(scrub: &ScrubStatus) -> String {
    let Some(period) = scrub.period_s else { return "off: `period` in [scrub] of larder.toml is \"never\"".to_owned() };
    let mut sum = ScrubCounts::default();
    for group in &scrub.groups {
        sum.damaged_stacks += group.counts.damaged_stacks;
        sum.repaired_stacks += group.counts.repaired_stacks;
        sum.lost_blobs += group.counts.lost_blobs;
    }
    let mut line =
        format!("{}{}, once in {}", if scrub.paused { "paused; " } else { "" }, passes(scrub), seconds(period));
    if sum.damaged_stacks > 0 {
        let (damaged, repaired) = (counted(sum.damaged_stacks, "stack"), count(sum.repaired_stacks));
        let _ = write!(line, "; {damaged} damaged, {repaired} repaired");
    }
    let unread: u64 = scrub.groups.iter().map(|group| group.unread_blobs).sum();
    if unread > 0 {
        let _ = write!(line, "; {} could not be read yet", counted(unread, "blob"));
    }
    if sum.lost_blobs > 0 {
        let _ = write!(line, ", data lost in {}", counted(sum.lost_blobs, "blob"));
    }
    line
}

/// The progress of the groups' passes. A group in which a pass has read nothing yet does not count as up to date.
fn passes(scrub: &ScrubStatus) -> String {
    let groups = counted(scrub.groups.len() as u64, "group");
    let is_read = |group: &&GroupScrub| last_read_s(group).is_some() || group.counts.blobs > 0;
    let read = scrub.groups.iter().filter(is_read).count() as u64;
    if read == 0 {
        return format!("no blob of {groups} has been read yet");
    }
    let complete = scrub.complete_groups;
    let unread = scrub.groups.len() as u64 - read;
    let nothing_yet = if unread > 0 { format!(", {} not read yet", count(unread)) } else { String::new() };
    format!("{} of {groups} up to date{nothing_yet}", count(complete.min(read)))
}

/// The end of the last pass, if it found anything to read. The pass of an empty group ends at once.
fn last_read_s(group: &GroupScrub) -> Option<f64> {
    group.last_ended_s.filter(|_| group.last.is_none_or(|last| last.blobs > 0))
}

/// A moment of modelled time, for people: `never`, `3 min ago`.
fn ago(at_s: Option<f64>, now_s: f64) -> String {
    at_s.map_or_else(|| "never".to_owned(), |at_s| format!("{} ago", seconds(now_s - at_s)))
}

fn groups(status: &ScrubStatus) -> String {
    let row = |group: &GroupScrub| {
        let counts = &group.counts;
        vec![
            group.group.to_string(),
            group.state.clone(),
            percent(group.covered_permille, 1000),
            count(counts.blobs),
            bytes(counts.stack_bytes),
            count(counts.damaged_stacks),
            count(counts.repaired_stacks),
            count(counts.lost_blobs),
            count(counts.unread_stacks),
            ago(last_read_s(group), status.modelled_s),
        ]
    };
    let head = ["group", "pass", "covered", "blobs", "read", "damaged", "repaired", "lost", "unread", "last ended"];
    let right = ["group", "covered", "blobs", "read", "damaged", "repaired", "lost", "unread", "last ended"];
    table(&head, &right, status.groups.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::report::{DamagedStackReport, ScrubFindingReport, UnreadBlob};

    #[test]
    fn a_report_names_groups_findings_and_what_is_lost() {
        let counts = ScrubCounts { blobs: 7, stack_bytes: 12_000_000, damaged_stacks: 2, ..ScrubCounts::default() };
        let group = GroupScrub { group: 3, state: "under way".into(), counts, unread_blobs: 2, ..Default::default() };
        let unread = vec![UnreadBlob { blob: "b8".into(), group: 3 }];
        let status = ScrubStatus { period_s: Some(7_776_000.0), groups: vec![group], ..ScrubStatus::default() };
        let damaged = vec![DamagedStackReport { stack: 4, drive: 17, flaw: "no file".into() }];
        let found = ScrubFindingReport { blob: "b9".into(), group: 3, damaged, lost_bytes: 4096, ..Default::default() };
        let report = ScrubReport { status, findings: vec![found], more: false, unread };
        let lost = [LostObject { bucket: "b".into(), key: "k".into(), bytes: 5, blob: "b9".into() }];
        let text = text(&report, &lost);
        assert!(text.starts_with("0 of 1 group up to date, once in 90 d"), "{text}");
        assert!(text.contains("0 repaired; 2 blobs could not be read yet\n"), "{text}");
        assert!(
            text.contains("b8 in group 3: could not be read yet, since too few of its stacks are available"),
            "{text}"
        );
        assert!(text.contains("b9 in group 3: stack 4 on drive 17 is damaged: no file; 4.1 kB are lost\n"), "{text}");
        assert!(text.contains("lost: s3://b/k, 5 B, in b9\n"), "{text}");
        assert!(line(&ScrubStatus::default()).starts_with("off"));
    }

    #[test]
    fn a_group_that_was_never_read_is_not_up_to_date_and_moments_are_told_from_now() {
        let complete = |last_ended_s| GroupScrub { state: "complete".into(), last_ended_s, ..GroupScrub::default() };
        let status = |groups: Vec<GroupScrub>| ScrubStatus {
            period_s: Some(86_400.0),
            modelled_s: 7_380.0,
            complete_groups: groups.len() as u64,
            groups,
            ..ScrubStatus::default()
        };
        let nothing = GroupScrub { last: Some(ScrubCounts::default()), ..complete(Some(0.0)) };
        let fresh = status(vec![complete(None), nothing]);
        assert_eq!(line(&fresh), "no blob of 2 groups has been read yet, once in 1 d");
        assert!(groups(&fresh).lines().skip(1).all(|row| row.ends_with(" never")), "{}", groups(&fresh));
        let half = status(vec![complete(Some(7_200.0)), complete(None)]);
        assert_eq!(line(&half), "1 of 2 groups up to date, 1 not read yet, once in 1 d");
        assert!(groups(&half).lines().nth(1).is_some_and(|row| row.ends_with(" 3 min ago")), "{}", groups(&half));
    }
}
