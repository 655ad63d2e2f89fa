//! `larder status`: the state of the server, once or every second.

use crate::args::Status as Options;
use crate::human::{bytes, count, counted, percent, seconds, table, watts};
use crate::output;
use crate::scrub;
use crate::window::Window;
use server::admin::Client;
use server::report::{
    ChecksStatus, DriveCounts, ExposureReport, FrontStatus, GroupCounts, IntakeStatus, ReadAheadStatus, RebuildReport,
    Status, Totals,
};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// The interval of `--watch`.
const EVERY: Duration = Duration::from_secs(1);

/// `larder status`.
pub fn status(options: &Options) -> anyhow::Result<()> {
    if options.watch {
        return output::wait_for(watch(&Client::of(&options.data.data)?, options.json));
    }
    let status = output::ask(&options.data, async |client| client.status().await)?;
    output::show(options.json, &status, text)
}

/// Prints the status every second until interrupted, or until the server is gone.
async fn watch(client: &Client, json: bool) -> anyhow::Result<()> {
    let in_place = std::io::stdout().is_terminal() && !json;
    let mut ticks = tokio::time::interval(EVERY);
    let mut drawn_lines = None;
    loop {
        ticks.tick().await;
        let status = client.status().await?;
        if json {
            output::print_json_line(&status)?;
            continue;
        }
        let text = text(&status);
        // Read each time: the window may have another size by now.
        let text = Window::of_stdout()
            .filter(|_| in_place)
            .map_or(text.clone(), |window| window.fit(&text, "`larder status` prints all"));
        let shown = match drawn_lines {
            // The terminal wraps no lines, so the number of lines leads back to the first one.
            None if in_place => format!("\x1b[?7l{text}\x1b[?7h"),
            Some(lines) if in_place => format!("\x1b[{lines}F\x1b[J\x1b[?7l{text}\x1b[?7h"),
            None => text.clone(),
            Some(_) => format!("\n{text}"),
        };
        output::print(&shown)?;
        drawn_lines = Some(text.lines().count());
    }
}

fn text(status: &Status) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<9} {value}");
    };
    let uptime = seconds(status.uptime_s);
    row("rack", format!("{}, up {uptime}, {}", status.rack, times(status)));
    row("workshop", workshop(status));
    if status.workshop.uploads > 0 {
        let (uploads, held) = (counted(status.workshop.uploads, "upload"), bytes(status.workshop.upload_bytes));
        row("open", format!("{uploads} in parts, which hold {held} of the staged bytes"));
    }
    if status.checks.every_s > 0.0 {
        row("checks", checks(&status.checks));
    }
    if let Some(intake) = &status.intake {
        row("intake", small_objects(intake));
    }
    row("spool", format!("{} of {}", bytes(status.workshop.spool_bytes), bytes(status.workshop.spool_capacity_bytes)));
    if status.read_ahead.read_bytes > 0 {
        row("ahead", read_ahead(&status.read_ahead));
    }
    let room = &status.capacity;
    let full = if room.full { ", full" } else { "" };
    row("room", format!("{} free of {}{full}", bytes(room.free_bytes), bytes(room.total_bytes)));
    row("clients", clients(&status.front));
    let power = &status.power;
    row("power", format!("{}, including {} of standby", watts(power.watts), watts(power.standby_watts)));
    row("active", format!("{} of at most {}", counted(power.active_drives, "drive"), count(power.active_drives_max)));
    row("drives", drives(&status.drives));
    let switch = &status.switch;
    let (wake, busy, rest) = (seconds(switch.wake_s), seconds(switch.wake_busy_s), seconds(switch.rest_s));
    row("switch", format!("a group wakes in about {wake}, or {busy} while others work, and falls asleep in {rest}"));
    let GroupCounts { total, initialised } = status.groups;
    if initialised < total {
        let left = counted(total - initialised, "group");
        row(
            "boot",
            format!("{left} of {} are not initialised yet; each is woken once, one after the other", count(total)),
        );
    }
    for rebuild in &status.rebuilds {
        row("rebuild", progress(rebuild));
    }
    row("scrub", scrub::line(&status.scrub));
    if let Some(exposed) = exposed(&status.exposed) {
        row("exposed", exposed);
    }
    for (name, value) in totals(&status.totals) {
        row(name, value);
    }
    for note in &status.notes {
        row("note", note.clone());
    }
    for warning in &status.warnings {
        row("warning", warning.clone());
    }
    text.push('\n');
    text.push_str(&classes(status));
    text
}

/// Drives by state; the rarer states only if a drive is in them.
fn drives(drives: &DriveCounts) -> String {
    let some =
        |number: u64, state: &str| if number > 0 { format!(", {} {state}", count(number)) } else { String::new() };
    format!(
        "{} asleep{}, {} moving, {} ready, {} away{}{}",
        count(drives.standby),
        some(drives.always_on, "always on"),
        count(drives.moving),
        count(drives.ready),
        count(drives.away),
        some(drives.failed, "failed"),
        some(drives.retired, "retired"),
    )
}

/// The bytes read ahead, and their use.
fn read_ahead(ahead: &ReadAheadStatus) -> String {
    format!(
        "{} of {} read ahead: {} used, {} evicted unused, {} waiting",
        counted(ahead.objects, "object"),
        bytes(ahead.read_bytes),
        bytes(ahead.used_bytes),
        bytes(ahead.wasted_bytes),
        bytes(ahead.waiting_bytes),
    )
}

/// The checks of the workshop: the progress of the pass, the findings, and the reads that it has saved.
fn checks(checks: &ChecksStatus) -> String {
    let mut text = if let Some(next) = checks.next_in_s {
        format!("next in {}", seconds(next))
    } else {
        let (done, left) = (counted(checks.pass_objects, "object"), bytes(checks.left_bytes));
        format!("{}: {done} of {} checked, {left} left", checks.state, bytes(checks.pass_bytes))
    };
    if let Some(ago) = checks.completed_s_ago {
        let _ = write!(text, "; last completed {} ago", seconds(ago));
    }
    if checks.damaged > 0 {
        let _ = write!(text, "; {} damaged", counted(checks.damaged, "object"));
    }
    if checks.saved_reads > 0 {
        let (objects, saved) = (counted(checks.saved_reads, "object"), bytes(checks.saved_read_bytes));
        let _ = write!(text, "; {objects} of {saved} moved to the rack from memory");
    }
    text
}

/// The intake: the accepted bytes, and the states of its drives.
fn small_objects(intake: &IntakeStatus) -> String {
    let drives = match intake.drives.as_slice() {
        [_] => "1 directory".to_owned(),
        drives => {
            let doing = |state: &str| drives.iter().filter(|drive| drive.state == state).count() as u64;
            let states =
                ["logging", "transforming", "idle", "asleep", "lost", "missing"].map(|state| (state, doing(state)));
            let some = states.into_iter().filter(|(_, drives)| *drives > 0);
            let named: Vec<String> = some.map(|(state, drives)| format!("{} {state}", count(drives))).collect();
            format!("{} drives ({}), {}", drives.len(), named.join(", "), copies(intake.copies))
        }
    };
    let shelves = intake.drives.iter().map(|drive| drive.shelf_bytes).sum();
    let (taken, waiting) = (bytes(intake.accepted_bytes), counted(intake.backlog, "log"));
    format!("{drives}; {taken} accepted, {} in shelves, {waiting} to become shelves", bytes(shelves))
}

fn copies(copies: u64) -> String {
    if copies == 1 { "1 copy of each".to_owned() } else { format!("{} copies of each", count(copies)) }
}

/// The progress of rebuilding a failed drive.
fn progress(rebuild: &RebuildReport) -> String {
    let RebuildReport { drive, group, rebuilt_stacks, rebuilt_bytes, left_bytes, .. } = rebuild;
    let done = format!("{} of {}", counted(*rebuilt_stacks, "stack"), bytes(*rebuilt_bytes));
    if rebuild.retires {
        let left = bytes(*left_bytes);
        return format!("drive {drive} is being retired; {done} have moved within group {group}, {left} left");
    }
    let (soonest, latest) = (seconds(rebuild.left_min_s), seconds(rebuild.left_max_s));
    let left = match *left_bytes {
        0 => "nothing left".to_owned(),
        left_bytes if rebuild.stuck => format!("{} left, which cannot be rebuilt now", bytes(left_bytes)),
        left_bytes => format!("{} left, done in {soonest} to {latest}", bytes(left_bytes)),
    };
    let used = bytes(rebuild.used_bytes);
    match rebuild.there.as_str() {
        "itself" if rebuild.retired && *left_bytes == 0 => {
            return format!("drive {drive} is retired and may be pulled; {done} have moved within group {group}");
        }
        "returned" if *left_bytes == 0 => {
            return format!("drive {drive} is back, and all of its stacks are complete; it holds {used}");
        }
        "another" => {
            return format!(
                "drive {drive} was replaced; {done} are rebuilt in group {group}, {left}; the new drive holds {used}"
            );
        }
        "returned" => {
            return format!(
                "drive {drive} is back; {done} were found on it or rebuilt in group {group}, {left}; it holds {used}"
            );
        }
        _ => {}
    }
    if *left_bytes == 0 {
        return format!("drive {drive} failed, and its data is rebuilt in group {group}: {done}, nothing left");
    }
    format!("drive {drive} failed; {done} are rebuilt in group {group}, {left}")
}

/// The blobs that have lost stacks, the most exposed ones first; `None` if none has.
fn exposed(exposed: &ExposureReport) -> Option<String> {
    let bears = exposed.blobs.len() as u64;
    let by_losses = exposed.blobs.iter().rev().zip((1..=bears).rev()).filter(|(blobs, _)| **blobs > 0);
    let mut parts: Vec<String> = by_losses
        .map(|(blobs, losses)| {
            let lacks = if *blobs == 1 { "lacks" } else { "lack" };
            format!("{} {lacks} {} of at most {bears}", counted(*blobs, "blob"), counted(losses, "stack"))
        })
        .collect();
    if exposed.lost_blobs > 0 {
        parts.insert(0, format!("{} with lost data", counted(exposed.lost_blobs, "blob")));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn times(status: &Status) -> String {
    match status.time_scale {
        1 => "in real time".to_owned(),
        scale => format!("{} times real time, {} modelled", count(u64::from(scale)), seconds(status.modelled_s)),
    }
}

fn workshop(status: &Status) -> String {
    let workshop = &status.workshop;
    let whose = match (workshop.staged_count, workshop.uploads) {
        // The bytes of PUTs under way, or of objects that were just moved or deleted.
        (0, 0) if workshop.staged_bytes > 0 => "in open PUTs, or objects just moved or deleted".to_owned(),
        (0, 0) => "in 0 objects".to_owned(),
        (objects, 0) => format!("in {}", counted(objects, "object")),
        (0, uploads) => format!("in {} in parts", counted(uploads, "upload")),
        (objects, uploads) => format!("in {} and {} in parts", counted(objects, "object"), counted(uploads, "upload")),
    };
    format!(
        "{} staged {whose}, {} of {}, {} on the way to the rack",
        bytes(workshop.staged_bytes),
        percent(workshop.staged_bytes, workshop.capacity_bytes),
        bytes(workshop.capacity_bytes),
        counted(workshop.migrations_under_way, "pack"),
    )
}

/// Connections and requests, and the refused ones.
fn clients(front: &FrontStatus) -> String {
    let mut text = format!(
        "{} of at most {}, {} of at most {}",
        counted(front.requests, "request"),
        count(front.request_limit),
        counted(front.connections, "connection"),
        count(front.connection_limit),
    );
    for (number, what) in [
        (front.waiting_requests, "waiting for cold objects"),
        (front.refused_requests, "requests refused"),
        (front.refused_connections, "connections refused"),
        (front.evicted_connections, "idle connections closed to make room"),
        (front.slow_clients, "cut off as too slow"),
    ] {
        if number > 0 {
            let _ = write!(text, ", {} {what}", count(number));
        }
    }
    text
}

/// Counts since the start. A kind of trouble has a row only if it occurred.
fn totals(totals: &Totals) -> Vec<(&'static str, String)> {
    let [client, rebuild, background] = totals.group_wakes;
    let initialising = match totals.initialisation_wakes {
        0 => String::new(),
        wakes => format!(" ({} of them to initialise groups)", count(wakes)),
    };
    let mut wakes = format!(
        "{} for clients, {} for rebuilds, {} for background work{}, {} of drives",
        count(client),
        count(rebuild),
        count(background),
        initialising,
        counted(totals.drive_starts, "start"),
    );
    if let Some(per_gb) = totals.wakes_per_gb_migrated {
        let _ = write!(wakes, ", {per_gb:.2} per migrated GB");
    }
    let moved = format!("{} to the rack, {} read from it", bytes(totals.migrated_bytes), bytes(totals.read_bytes));
    let mut rows = vec![("wakes", wakes), ("moved", moved)];
    if totals.waiting_reclaim_bytes > 0 || totals.reclaimed_bytes > 0 {
        let (given, waiting) = (bytes(totals.reclaimed_bytes), bytes(totals.waiting_reclaim_bytes));
        rows.push(("deleted", format!("{given} freed, {waiting} waiting for their group to wake")));
    }
    if totals.refused > 0 {
        rows.push(("refused", counted(totals.refused, "operation")));
    }
    if totals.repaired_fragments > 0 {
        rows.push(("repaired", counted(totals.repaired_fragments, "fragment")));
    }
    if totals.data_lost > 0 {
        rows.push(("lost", format!("{} failed because data is lost; see the log", counted(totals.data_lost, "read"))));
    }
    if totals.overruns > 0 {
        let (calls, late) = (counted(totals.overruns, "call"), seconds(totals.overrun_s));
        rows.push(("overrun", format!("{calls} slower than the emulated drive, by {late} in all")));
    }
    rows
}

fn classes(status: &Status) -> String {
    let rows = status.classes.iter().map(|class| {
        let group = class.group.map_or_else(|| "-".to_owned(), |group| group.to_string());
        let mut row = vec![class.class.to_string(), group, class.state.clone()];
        row.extend(class.queued.iter().map(|queued| count(*queued)));
        row
    });
    let head = ["class", "group", "state", "client", "rebuild", "background"];
    table(&head, &["class", "group", "client", "rebuild", "background"], rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use server::condition::Condition;
    use server::report::{CapacityStatus, ClassStatus, PoolDriveReport, PowerStatus, SwitchStatus, WorkshopStatus};

    fn sample() -> Status {
        Status {
            tls: None,
            read_ahead: ReadAheadStatus {
                objects: 250,
                hits: 240,
                read_bytes: 300_000_000,
                used_bytes: 240_000_000,
                wasted_bytes: 10_000_000,
                waiting_bytes: 50_000_000,
            },
            rack: "pelican".into(),
            modelled_s: 7200.0,
            wall_ms: 1_750_000_000_000,
            time_scale: 10,
            uptime_s: 720.0,
            workshop: WorkshopStatus {
                staged_bytes: 1_500_000,
                hot_moved_bytes: 0,
                staged_count: 1200,
                uploads: 2,
                upload_bytes: 3_000_000,
                capacity_bytes: 10_000_000_000,
                spool_bytes: 0,
                spool_capacity_bytes: 2_500_000_000,
                migrations_under_way: 1,
            },
            checks: ChecksStatus::default(),
            intake: None,
            journal: None,
            scrub: server::report::ScrubStatus { period_s: Some(86_400.0), ..Default::default() },
            power: PowerStatus {
                watts: 1797.1,
                standby_watts: 1797.1,
                active_drives: 0,
                active_drives_max: 96,
                fuse_trips: 0,
                unstopped_drives: 0,
            },
            drives: DriveCounts { standby: 1152, ..DriveCounts::default() },
            groups: GroupCounts { total: 48, initialised: 48 },
            rebuilds: vec![],
            exposed: ExposureReport::default(),
            classes: vec![
                ClassStatus {
                    class: 0,
                    group: Some(11),
                    state: "waking".into(),
                    queued: [1, 0, 12],
                    kept_spinning: false,
                },
                ClassStatus { class: 1, group: None, state: "asleep".into(), queued: [0, 0, 0], kept_spinning: false },
            ],
            totals: Totals { wakes_per_gb_migrated: Some(0.125), ..Totals::default() },
            capacity: CapacityStatus {
                total_bytes: 5_000_000_000_000_000,
                free_bytes: 4_000_000_000_000_000,
                ..CapacityStatus::default()
            },
            switch: SwitchStatus { wake_s: 1.35, wake_busy_s: 2.1, rest_s: 0.12 },
            front: FrontStatus { connection_limit: 1024, request_limit: 256, ..FrontStatus::default() },
            warnings: vec!["drive 3 is away; look for its cable".into()],
            conditions: vec![Condition::DriveAway],
            notes: vec!["objects lie on one disk".into()],
        }
    }

    #[test]
    fn checks_say_where_they_stand_and_what_they_found_and_saved() {
        let waiting =
            ChecksStatus { next_in_s: Some(90_000.0), completed_s_ago: Some(60.0), ..ChecksStatus::default() };
        assert_eq!(checks(&waiting), format!("next in {}; last completed {} ago", seconds(90_000.0), seconds(60.0)));
        let running = ChecksStatus {
            state: "paused for clients".into(),
            pass_objects: 3,
            pass_bytes: 5_000_000,
            left_bytes: 2_000_000,
            damaged: 1,
            saved_reads: 2,
            saved_read_bytes: 4_000_000,
            ..ChecksStatus::default()
        };
        let text = "paused for clients: 3 objects of 5.0 MB checked, 2.0 MB left; 1 object damaged; 2 objects of 4.0 \
                    MB moved to the rack from memory";
        assert_eq!(checks(&running), text);
    }

    #[test]
    fn the_table_tells_everything_calmly() {
        let text = text(&sample());
        for line in [
            "rack      pelican, up 12 min, 10 times real time, 2 h modelled",
            "workshop  1.5 MB staged in 1,200 objects and 2 uploads in parts, < 1 % of 10.0 GB, 1 pack on the way to \
             the rack",
            "active    0 drives of at most 96",
            "switch    a group wakes in about 1.4 s, or 2.1 s while others work, and falls asleep in 0.1 s",
            "wakes     0 for clients, 0 for rebuilds, 0 for background work, 0 starts of drives, 0.12 per migrated GB",
            "note      objects lie on one disk",
            "warning   drive 3 is away; look for its cable",
            "class  group  state   client  rebuild  background",
            "    0     11  waking       1        0          12",
            "    1      -  asleep       0        0           0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is not in\n{text}");
        }
        for absent in ["lost", "overrun", "refused", "repaired", "deleted", "boot"] {
            assert!(!text.contains(absent), "nothing about {absent}");
        }
    }

    #[test]
    fn a_boot_has_a_row_until_it_is_through() {
        let status = Status { groups: GroupCounts { total: 48, initialised: 12 }, ..sample() };
        let row = "boot      36 groups of 48 are not initialised yet; each is woken once, one after the other";
        assert!(text(&status).lines().any(|line| line == row), "{}", text(&status));
    }

    #[test]
    fn the_intake_says_what_its_drives_do() {
        let drive = |state: &str| PoolDriveReport { state: state.into(), shelf_bytes: 2_000_000, ..Default::default() };
        let one = IntakeStatus { copies: 1, drives: vec![drive("logging")], accepted_bytes: 500, ..Default::default() };
        assert_eq!(small_objects(&one), "1 directory; 500 B accepted, 2.0 MB in shelves, 0 logs to become shelves");
        let drives = ["logging", "idle", "lost", "idle", "logging", "transforming"].map(drive).to_vec();
        let six = IntakeStatus { copies: 2, drives, backlog: 1, ..one };
        let row = "intake    6 drives (2 logging, 1 transforming, 2 idle, 1 lost), 2 copies of each; 500 B accepted, \
                   12.0 MB in shelves, 1 log to become shelves";
        let text = text(&Status { intake: Some(six), ..sample() });
        assert!(text.lines().any(|line| line == row), "{text}");
    }

    #[test]
    fn what_is_staged_is_told_by_whose_it_is() {
        let mut status = sample();
        for (objects, uploads, message) in [
            (1, 0, "1.5 MB staged in 1 object, "),
            (0, 1, "1.5 MB staged in 1 upload in parts, "),
            (0, 0, "1.5 MB staged in open PUTs, or objects just moved or deleted, "),
        ] {
            (status.workshop.staged_count, status.workshop.uploads) = (objects, uploads);
            assert!(workshop(&status).starts_with(message), "{}", workshop(&status));
        }
    }

    #[test]
    fn a_rebuild_has_a_row_for_each_drive_that_failed() {
        let mut status = sample();
        let rebuild = RebuildReport {
            drive: 7,
            group: 2,
            left_bytes: 5_000_000_000,
            rebuilt_bytes: 1_000_000_000,
            rebuilt_stacks: 40,
            lost_blobs: 0,
            waiting_blobs: 0,
            unplaced_blobs: 0,
            retires: false,
            there: "itself".to_owned(),
            used_bytes: 0,
            away: false,
            left_min_s: 60.0,
            left_max_s: 7200.0,
            lacks_drives: 0,
            stuck: false,
            retired: false,
        };
        let in_place = |drive, there: &str| RebuildReport {
            drive,
            there: there.to_owned(),
            used_bytes: 2_000_000_000,
            ..rebuild.clone()
        };
        let gone = RebuildReport { drive: 8, left_bytes: 0, ..rebuild.clone() };
        let stuck = RebuildReport { drive: 11, stuck: true, lacks_drives: 1, ..rebuild.clone() };
        let retired = RebuildReport { drive: 12, left_bytes: 0, retired: true, ..rebuild.clone() };
        let whole = RebuildReport { left_bytes: 0, ..in_place(13, "returned") };
        let there = [in_place(9, "another"), in_place(10, "returned")];
        status.rebuilds = [rebuild.clone(), gone, stuck, retired, whole].into_iter().chain(there).collect();
        status.drives.retired = 1;
        status.drives.failed = 2;
        status.exposed = ExposureReport { blobs: vec![1_200, 1, 0], lost_blobs: 0 };
        let text = text(&status);
        for line in [
            "drives    1,152 asleep, 0 moving, 0 ready, 0 away, 2 failed, 1 retired",
            "rebuild   drive 11 failed; 40 stacks of 1.0 GB are rebuilt in group 2, 5.0 GB left, which cannot be \
             rebuilt now",
            "rebuild   drive 12 is retired and may be pulled; 40 stacks of 1.0 GB have moved within group 2",
            "rebuild   drive 13 is back, and all of its stacks are complete; it holds 2.0 GB",
            "rebuild   drive 7 failed; 40 stacks of 1.0 GB are rebuilt in group 2, 5.0 GB left, done in 1 min to 2 h",
            "rebuild   drive 8 failed, and its data is rebuilt in group 2: 40 stacks of 1.0 GB, nothing left",
            "rebuild   drive 9 was replaced; 40 stacks of 1.0 GB are rebuilt in group 2, 5.0 GB left, done in 1 min to \
             2 h; the new drive holds 2.0 GB",
            "rebuild   drive 10 is back; 40 stacks of 1.0 GB were found on it or rebuilt in group 2, 5.0 GB left, done \
             in 1 min to 2 h; it holds 2.0 GB",
            "exposed   1 blob lacks 2 stacks of at most 3, 1,200 blobs lack 1 stack of at most 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn trouble_is_told_where_there_is_some() {
        let mut status = sample();
        status.totals = Totals {
            data_lost: 1,
            overruns: 2,
            woken_by_others: 0,
            overrun_s: 0.5,
            refused: 3,
            repaired_fragments: 4,
            waiting_reclaim_bytes: 5000,
            ..Totals::default()
        };
        let text = text(&status);
        for message in ["1 read failed", "2 calls slower", "3 operations", "4 fragments", "5.0 kB waiting"] {
            assert!(text.contains(message), "{message} is not in\n{text}");
        }
    }
}
