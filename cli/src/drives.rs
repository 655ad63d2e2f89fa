//! `larder drive list`: the drives, one row each. `larder drive fail`: one that failed for good.

use crate::args::{Fail, List};
use crate::human::{self, bytes};
use crate::output;
use server::admin::Client;
use server::report::DriveReport;
use tokio::runtime::Builder;

/// `larder drive list`.
pub fn list(options: &List) -> anyhow::Result<()> {
    let client = Client::of(&options.data.data)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let drives = runtime.block_on(client.drives())?;
    if options.json { output::print_json(&drives) } else { Ok(output::print(&table(&drives))?) }
}

/// `larder drive fail`.
pub fn fail(options: &Fail) -> anyhow::Result<()> {
    let client = Client::of(&options.data.data)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let Some(report) = runtime.block_on(client.fail_drive(options.drive, options.force))? else {
        anyhow::bail!("there is no drive {}; `larder drive list` shows which there are", options.drive);
    };
    if options.json {
        return output::print_json(&report);
    }
    let drive = report.drive;
    let rest = match report.group {
        Some(group) => format!("what it held is rebuilt in group {group}; `larder status` shows how far it is"),
        None => "it is a spare, and held nothing".to_owned(),
    };
    Ok(output::print(&format!("drive {drive} is given up: {rest}\n"))?)
}

/// A row for each of `drives`; with the deadlines they missed, if any did.
pub fn table(drives: &[DriveReport]) -> String {
    let any_late = drives.iter().any(|drive| drive.missed_deadlines > 0);
    let rows: Vec<Vec<String>> = drives
        .iter()
        .map(|drive| {
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
            row
        })
        .collect();
    let head = ["drive", "slot", "group", "state", "starts today", "free", "capacity", "missed deadlines"];
    let shown = if any_late { &head[..] } else { &head[..7] };
    human::table(shown, &["drive", "group", "starts today", "free", "capacity", "missed deadlines"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        };
        let text = table(std::slice::from_ref(&drive));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["3", "5,15,11", "spare", "ready", "2", "of", "10", "1.0", "MB", "4.5", "TB"]);
        drive.missed_deadlines = 7;
        let text = table(&[drive]);
        assert!(
            text.lines().all(|line| line.trim_end().ends_with("deadlines") || line.trim_end().ends_with(" 7")),
            "{text}"
        );
    }
}
