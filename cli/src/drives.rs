//! `larder drive list`: the drives, one row each. `larder drive fail`: gives up a drive that failed permanently.
//! `larder drive retire`: empties a good one. `larder drive replace`: uses another one in its place.
//! `larder drive lost`: the objects that are lost. All but the first need no server.

use crate::args::List;
use crate::drive_args::{ChosenDrive, Fail, Replace};
use crate::human::{self, bytes, counted};
use crate::output::{ask, show, wait_for};
use crate::temperature::date;
use server::admin::{Client, ClientError};
use server::exchange::DiskChoice;
use server::offline::Offline;
use server::report::{DriveReport, FailedReport, LostObjectReport, LostReport, ReplacedReport};
use std::time::Duration;

/// A command that waits reports that after this time.
const WAIT_SHOWN: Duration = Duration::from_secs(2);

/// `larder drive list`.
pub fn list(options: &List) -> anyhow::Result<()> {
    let drives = ask(&options.data, async |client| client.drives().await)?;
    show(options.json, &drives, |drives| table(drives) + &reasons(drives))
}

/// `larder drive fail`: through the running server, or in the data directory if no server runs.
pub fn fail(options: &Fail) -> anyhow::Result<()> {
    let Fail { chosen: ChosenDrive { data, drive, json }, force } = options;
    let (report, running) = wait_for(async {
        match Client::of(&data.data)?.fail_drive(*drive, *force).await {
            Err(ClientError::NoServer(dir)) => {
                anyhow::Ok((Offline::open(&dir).await?.fail_drive(*drive, *force).await?, false))
            }
            answer => Ok((answer?, true)),
        }
    })?;
    let report = known(report, *drive)?;
    show(*json, &report, |report| format!("drive {drive} is marked as failed: {}\n", what_follows(report, running)))
}

/// The consequences for the data of a drive that was given up.
fn what_follows(report: &FailedReport, running: bool) -> String {
    let FailedReport { lacks_drives, drive } = report;
    match drive.group {
        Some(group) if *lacks_drives > 0 => format!(
            "its data cannot be rebuilt before `larder drive replace`, since group {group} lacks {} for the stacks of \
             a blob",
            counted(*lacks_drives, "drive")
        ),
        Some(group) if running => {
            format!("its data is rebuilt in group {group}; `larder status` shows the progress")
        }
        Some(group) => format!("its data is rebuilt in group {group} after the next start"),
        None => "it is a spare, and held nothing".to_owned(),
    }
}

/// `larder drive retire`: through the running server, or in the data directory if no server runs.
pub fn retire(options: &ChosenDrive) -> anyhow::Result<()> {
    let ChosenDrive { data, drive, json } = options;
    let (report, running) = wait_for(async {
        match Client::of(&data.data)?.retire_drive(*drive).await {
            Err(ClientError::NoServer(dir)) => {
                anyhow::Ok((Offline::open(&dir).await?.retire_drive(*drive).await?, false))
            }
            answer => Ok((answer?, true)),
        }
    })?;
    let report = known(report, *drive)?;
    let rest = match report.group {
        Some(_) if report.state == "retired" => "it is empty and may be pulled".to_owned(),
        Some(group) if running => format!(
            "its data moves to the other drives of group {group}; it may be pulled when `larder drive list` shows it \
             as retired"
        ),
        Some(group) => format!("its data moves to the other drives of group {group} after the next start"),
        None => "it is a spare, and holds nothing".to_owned(),
    };
    show(*json, &report, |_| format!("drive {drive} is retired: {rest}\n"))
}

/// `larder drive lost`: by the running server's catalog, or by that of the data directory if no server runs.
pub fn lost(options: &List) -> anyhow::Result<()> {
    let List { data, json } = options;
    let report = wait_for(async {
        match Client::of(&data.data)?.lost_objects().await {
            Err(ClientError::NoServer(dir)) => anyhow::Ok(Offline::open(&dir).await?.lost_objects().await?),
            answer => Ok(answer?),
        }
    })?;
    show(*json, &report, names_of_lost)
}

/// A line for each lost object, and their number.
fn names_of_lost(lost: &LostReport) -> String {
    let line = |object: &LostObjectReport| {
        let LostObjectReport { bucket, key, bytes: size, blob, drives } = object;
        format!("s3://{bucket}/{key}  {}, blob {blob}, lost with drives {drives:?}\n", bytes(*size))
    };
    let mut text: String = lost.objects.iter().map(line).collect();
    let (objects, blobs) = (counted(lost.count, "object"), counted(lost.blobs, "blob"));
    let ending = match lost.count {
        0 => "failed drives have cost no object\n".to_owned(),
        count if count > lost.objects.len() as u64 => format!("and more: in all {objects} of {blobs} are lost\n"),
        _ => format!("{objects} of {blobs} lost; no others are\n"),
    };
    text.push_str(&ending);
    if lost.cut {
        text += "more blobs have lost objects: delete the objects above, and run this command again\n";
    }
    text
}

/// `larder drive replace`: through the running server, or in the data directory if no server runs.
pub fn replace(options: &Replace) -> anyhow::Result<()> {
    let Replace { chosen: ChosenDrive { data, drive, json }, path, wipe, wait } = options;
    let choice = DiskChoice { path: path.clone(), wipe: wipe.clone() };
    let replaced = async {
        match Client::of(&data.data)?.replace_drive(*drive, &choice, *wait).await {
            Err(ClientError::NoServer(dir)) => {
                anyhow::Ok(Offline::open(&dir).await?.replace_drive(*drive, &choice).await?)
            }
            answer => Ok(answer?),
        }
    };
    let report = wait_for(async {
        tokio::pin!(replaced);
        let Ok(report) = tokio::time::timeout(WAIT_SHOWN, &mut replaced).await else {
            let longest = human::seconds(wait.as_secs_f64());
            eprintln!("waiting until drive {drive} is no longer in use, at most {longest} (--wait)");
            return replaced.await;
        };
        report
    })?;
    let report = known(report, *drive)?;
    show(*json, &report, |report| format!("drive {drive} {}\n", what_was_taken(report)))
}

/// The drive in the place of a replaced one, and the consequences.
fn what_was_taken(report: &ReplacedReport) -> String {
    match (report.taken.as_str(), report.drive.group) {
        ("itself", Some(group)) => format!(
            "is back, the same drive that failed: its stacks are checked, and missing ones are rebuilt in group {group}"
        ),
        ("itself", None) => "is back, the same drive that failed, and is a spare".to_owned(),
        (_, Some(group)) => format!(
            "is now a different, empty drive, and belongs to group {group}; missing stacks are rebuilt on it and on \
             the other drives"
        ),
        (_, None) => "is now a different, empty drive, and a spare".to_owned(),
    }
}

fn known<T>(report: Option<T>, drive: u32) -> anyhow::Result<T> {
    report.ok_or_else(|| anyhow::anyhow!("there is no drive {drive}; `larder drive list` lists the drives"))
}

/// The reasons why drives cannot be used, and the wakes that the server did not cause, a line each.
fn reasons(drives: &[DriveReport]) -> String {
    let line = |drive: &DriveReport| Some(format!("drive {}: {}\n", drive.drive, drive.reason.as_ref()?));
    let wake = |drive: &DriveReport| {
        let wake = drive.habits.as_ref()?.last_unasked_wake.as_ref()?;
        let who = if wake.by_itself { "it woke by itself" } else { "another program woke it" };
        Some(format!("drive {}: at {} {who}: {}\n", drive.drive, date(wake.found_ms), wake.cause))
    };
    drives.iter().filter_map(line).chain(drives.iter().filter_map(wake)).collect()
}

/// A row for each of `drives`; missed deadlines and bad sectors have a column only if a drive has any.
pub fn table(drives: &[DriveReport]) -> String {
    let any_late = drives.iter().any(|drive| drive.missed_deadlines > 0);
    let bad_sectors =
        |drive: &DriveReport| drive.health.as_ref().and_then(|health| health.said.bad_sectors()).unwrap_or(0);
    let any_bad = drives.iter().any(|drive| bad_sectors(drive) > 0);
    let row = |drive: &DriveReport| {
        let [width, depth, height] = drive.slot;
        let mut row = vec![
            drive.drive.to_string(),
            format!("{width},{depth},{height}"),
            drive.group.map_or_else(|| "spare".to_owned(), |group| group.to_string()),
            drive.state.clone(),
            format!("{} of {}", drive.starts_today, drive.starts_per_day),
            bytes(drive.free_bytes),
            bytes(drive.capacity_bytes),
        ];
        if any_late {
            row.push(drive.missed_deadlines.to_string());
        }
        if any_bad {
            row.push(bad_sectors(drive).to_string());
        }
        row
    };
    let mut head = vec!["drive", "slot", "group", "state", "starts today", "free", "capacity"];
    head.extend(any_late.then_some("missed deadlines"));
    head.extend(any_bad.then_some("bad sectors"));
    human::table(
        &head,
        &["drive", "group", "starts today", "free", "capacity", "missed deadlines", "bad sectors"],
        drives.iter().map(row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Smart, UnaskedWake};
    use server::report::{HabitsReport, HealthReport};

    #[test]
    fn each_drive_has_a_row() {
        let mut drive = DriveReport {
            missed_deadlines: 0,
            drive: 3,
            slot: [5, 15, 11],
            group: None,
            state: "ready".into(),
            starts_today: 2,
            starts_per_day: 10,
            free_bytes: 1_000_000,
            capacity_bytes: 4_550_000_000_000,
            reason: None,
            starts_total: 0,
            rated_starts: 0,
            health: None,
            habits: None,
        };
        let text = table(std::slice::from_ref(&drive));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["3", "5,15,11", "spare", "ready", "2", "of", "10", "1.0", "MB", "4.5", "TB"]);
        assert_eq!(reasons(std::slice::from_ref(&drive)), "");
        let away = DriveReport { reason: Some("it has no label; put it back".into()), ..drive.clone() };
        assert_eq!(reasons(std::slice::from_ref(&away)), "drive 3: it has no label; put it back\n");
        let wake = UnaskedWake { found_ms: 0, by_itself: true, cause: "no command was sent to it".into() };
        let said = Smart { pending_sectors: Some(12), ..Smart::default() };
        let woken = DriveReport {
            habits: Some(HabitsReport { last_unasked_wake: Some(wake), ..HabitsReport::default() }),
            health: Some(HealthReport { said, ..HealthReport::default() }),
            ..drive.clone()
        };
        assert!(
            table(std::slice::from_ref(&woken))
                .lines()
                .all(|line| line.contains(" bad sectors") || line.trim_end().ends_with(" 12"))
        );
        let said = "drive 3: at Thu, 01 Jan 1970 00:00:00 GMT it woke by itself: no command was sent to it\n";
        assert_eq!(reasons(&[woken]), said);
        drive.missed_deadlines = 7;
        let text = table(&[drive]);
        assert!(!text.contains("bad sectors"), "{text}");
        assert!(
            text.lines().all(|line| line.trim_end().ends_with("deadlines") || line.trim_end().ends_with(" 7")),
            "{text}"
        );
    }
}
