//! The warnings of a status, each with its mend.

use crate::context::Context;
use crate::lineage;
use crate::report::{ClassStatus, IntakeStatus, RebuildReport, Status};
use intake::{COPIES_FROM_DRIVES, RETAINED_MAX};
use model::DriveId;
use std::sync::atomic::Ordering;

/// Objects in quarantine that a warning names; more are only counted.
const QUARANTINED_NAMED: usize = 20;

/// The objects in quarantine.
pub(super) async fn quarantine_warning(context: &Context) -> Option<String> {
    let (count, _) = context.catalog.unreadable_usage().await.ok()?;
    let named = context.catalog.unreadable_page(None, QUARANTINED_NAMED).await.ok()?.items;
    let name = |found: &catalog::Unreadable| format!("{}/{}", found.bucket, found.key);
    let mut names: Vec<String> = named.iter().map(name).collect();
    if count > names.len() as u64 {
        names.push(format!("and {} more, which the log names", count - names.len() as u64));
    }
    let objects = if count == 1 { "object is" } else { "objects are" };
    (count > 0).then(|| {
        format!(
            "{count} {objects} in quarantine, since not every byte can be read: {}. Write them again or delete \
             them, or put their files back and restart the server; `larder explain` says what is wrong",
            names.join(", ")
        )
    })
}

/// Copies of the catalog on drives of which data is lost.
pub(super) async fn lost_copies_warning(context: &Context) -> Option<String> {
    let copies = context.catalog.copies().await.ok()?;
    let lost = copies.iter().filter(|copy| copy.lost).count();
    (lost > 0).then(|| {
        format!(
            "copies of the catalog on drives that are lost with drives or damaged: {lost}. A new one is written by \
             itself when a group is awake; until then `larder catalog backup` makes one in a file"
        )
    })
}

/// The catalog's disagreements with rack and workshop.
pub(super) fn catalog_warnings(context: &Context) -> Vec<String> {
    let counters = &context.counters;
    let mut warnings = Vec::new();
    if let Some(why) = context.lineage.older() {
        warnings.push(format!(
            "the catalog is older than the rack: {why}. Nothing is removed from the rack meanwhile; {}",
            lineage::MEND
        ));
    }
    if let Some(flaw) = context.lineage.incomplete() {
        warnings.push(format!(
            "the catalog is not complete: {flaw}. What it does not find may be what is missing, so nothing is \
             removed from the rack meanwhile; {}",
            lineage::MEND
        ));
    }
    match counters.unknown_staged.load(Ordering::Relaxed) {
        0 => {}
        1 => warnings.push(unknown_staged("1 staged file is")),
        files => warnings.push(unknown_staged(&format!("{files} staged files are"))),
    }
    match counters.missing_staged.load(Ordering::Relaxed) {
        0 => {}
        files => warnings.push(format!(
            "staged files that were missing when the server started: {files}. GETs of their objects fail: `larder \
             verify` names them; put the files back and start again, or write the objects again or delete them"
        )),
    }
    match counters.wrong_bodies.load(Ordering::Relaxed) {
        0 => {}
        bodies => warnings.push(format!(
            "GETs cut off because the bytes were not those that the object was acknowledged with: {bodies}. The \
             log names the objects; run `larder verify --deep`, and report this"
        )),
    }
    warnings
}

fn unknown_staged(files: &str) -> String {
    format!("{files} unknown to this catalog and kept, since a newer one may know more: `larder verify` names them")
}

/// Drives that others woke.
pub(super) fn woken_by_others(times: u64) -> Option<String> {
    (times > 0).then(|| {
        format!(
            "sleeping drives that another program woke since the server started: {times}. The log says which and when; \
             `larder drive doctor` looks for programs that do that"
        )
    })
}

/// Drives that woke although nobody had sent them anything.
pub(super) fn woke_themselves(times: u64) -> Option<String> {
    (times > 0).then(|| {
        format!(
            "sleeping drives that woke by themselves since the server started: {times}. `larder drive list` says \
             which; a timer of the drive's own does that, or a check of its firmware's: `larder drive doctor` names \
             timers"
        )
    })
}

/// Damaged records of the catalog.
pub(super) fn damaged_records(keys: &[String]) -> Option<String> {
    let (first, records) = (keys.first()?, keys.len());
    Some(format!(
        "damaged records of the catalog: {records}, the first at {first}: what they name is neither served nor moved; \
         `larder verify` names it all, and writing an object again mends it"
    ))
}

/// Warnings that follow from the figures of a status.
pub(super) fn warnings(status: &Status) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(scrub_warnings(status));
    let problem = status.tls.as_ref().and_then(|tls| tls.problem.as_ref());
    warnings.extend(problem.map(|problem| format!("{problem}. The certificate of before stays in use")));
    let workshop = &status.workshop;
    if status.capacity.full {
        warnings.push(
            "the rack is full: no group has room for what is staged, and PUTs are refused. Delete objects, whose room \
             comes back when their groups have woken, or add drives"
                .into(),
        );
    } else if let Some(bytes) = status.capacity.unplaced_bytes {
        warnings.push(format!(
            "{bytes} bytes in the workshop find no room in any group that may take them, while smaller packs do: \
             delete objects, or add drives"
        ));
    }
    let may_migrate = !status.capacity.full && status.capacity.unplaced_bytes.is_none();
    if workshop.staged_bytes * 10 > workshop.capacity_bytes * 9 && may_migrate {
        warnings.push("the workshop is nearly full: PUTs will get SlowDown until data has migrated".into());
    }
    if workshop.hot_moved_bytes > 0 {
        warnings.push(format!(
            "{} bytes of hot objects had to move to the rack since the server started: the workshop was above its \
             critical share, and no cold ones were left. Give it more capacity, or write rules that call more of it \
             cold ([workshop] and [thermometer] in larder.toml)",
            workshop.hot_moved_bytes
        ));
    }
    if status.totals.data_lost > 0 {
        warnings.push("reads failed because data is lost: the log names the blobs".into());
    }
    warnings.extend(over_budget(status));
    let kept: Vec<String> = status.classes.iter().filter(|class| class.kept_spinning).filter_map(named).collect();
    if !kept.is_empty() {
        warnings.push(format!(
            "kept spinning, since no starts are left for today: {}. The next client costs none; with more \
             starts_per_day in larder.toml, or fewer reads one after the other (`larder recall`), they sleep",
            kept.join(", ")
        ));
    }
    if status.power.fuse_trips > 0 {
        warnings.push("fuses tripped: the rack's description allows more than the hardware does".into());
    }
    for rebuild in &status.rebuilds {
        warnings.extend(rebuild_warnings(rebuild));
    }
    match status.drives.away {
        0 => {}
        1 => warnings.push("1 drive is away: `larder drive list` shows which".to_owned()),
        away => warnings.push(format!("{away} drives are away: `larder drive list` shows which")),
    }
    if status.journal.is_some_and(|journal| !journal.leads_on) && status.uptime_s > JOURNAL_PATIENCE_S {
        warnings.push(
            "the journal does not lead on to the catalog as it is, so that a lost one could not be made again: the log \
             says why no snapshot was written; free some room in workshop/journal"
                .into(),
        );
    }
    warnings.extend(status.intake.as_ref().into_iter().flat_map(intake_warnings));
    if status.totals.overruns > 0 && status.totals.overrun_s > status.uptime_s / 10.0 {
        warnings.push("the disk behind the emulated drives is slower than the model: lower --time-scale".into());
    }
    warnings
}

/// The group of a class, for people.
fn named(class: &ClassStatus) -> Option<String> {
    class.group.map(|group| format!("group {group}"))
}

/// A snapshot should be there by then, in seconds after the start.
const JOURNAL_PATIENCE_S: f64 = 300.0;

/// From so many logs on that are kept for another catalog, it is time to say so.
const RETAINED_WARNED: u64 = RETAINED_MAX as u64 / 2;

/// From so many logs that wait on, a pool of several drives is too slow for what arrives.
const BACKLOG: u64 = 2;

fn intake_warnings(intake: &IntakeStatus) -> Vec<String> {
    let in_state = |state: &str| -> Vec<&str> {
        intake.drives.iter().filter(|drive| drive.state == state).map(|drive| &*drive.place).collect()
    };
    let (lost, missing) = (in_state("lost"), in_state("missing"));
    let mut warnings = Vec::new();
    if intake.retained >= RETAINED_WARNED {
        warnings.push(format!(
            "{} logs of small objects are kept for another catalog, which may need what is in them; with \
             {RETAINED_MAX} nothing more is taken in: {}",
            intake.retained,
            lineage::MEND
        ));
    }
    if !missing.is_empty() {
        warnings.push(format!(
            "drives of the pool of small objects are missing: {}. What is on them alone cannot be read; mount them, \
             and restart the server",
            missing.join(", ")
        ));
    }
    if !lost.is_empty() {
        warnings.push(format!(
            "drives of the pool of small objects failed: {}. The others go on without them; replace them, and restart \
             the server",
            lost.join(", ")
        ));
    } else if intake.incomplete && missing.is_empty() {
        warnings.push(
            "the pool of small objects is not whole: a drive is missing, or its copies are not all back yet; the log \
             of the start says more"
                .into(),
        );
    }
    for (drive, failure) in intake.drives.iter().filter_map(|drive| Some((drive, drive.power_failure.as_ref()?))) {
        let what = if drive.power.as_deref() == Some("spinning") { "stop" } else { "start" };
        warnings.push(format!("the drive of the pool at {} does not {what}: {failure}", drive.place));
    }
    if intake.drives.len() >= COPIES_FROM_DRIVES && intake.copies == 1 && lost.is_empty() && !intake.incomplete {
        warnings.push(format!(
            "small objects are on one of {} drives each: the pool was made with fewer than {COPIES_FROM_DRIVES}, and \
             keeps its number of copies",
            intake.drives.len()
        ));
    }
    if intake.losses > 0 {
        let losses = intake.losses;
        warnings.push(format!("small objects lost with a drive of their pool: {losses}; the log names them"));
    }
    if intake.alternation.as_deref() == Some("bad") && intake.backlog >= BACKLOG && intake.drives.len() > 1 {
        warnings.push(format!(
            "small objects arrive faster than their logs become shelves ({} logs wait): logs grow to four times their \
             size, then PUTs wait; give the pool more drives",
            intake.backlog
        ));
    }
    warnings
}

/// A warning for the drives that can be read, and did not take the last stack that was to be written to them.
pub(super) fn refused_writes<'a>(refused: impl Iterator<Item = (&'a DriveId, &'a String)>) -> Option<String> {
    const NAMED: usize = 3;
    let refused: Vec<String> = refused.map(|(drive, reason)| format!("drive {} ({reason})", drive.0)).collect();
    let more = if refused.len() > NAMED { format!(" and {} more", refused.len() - NAMED) } else { String::new() };
    (!refused.is_empty()).then(|| {
        format!(
            "drives take no writes: {}{more}. They are read, and others of their groups are written to; mend them, or \
             empty them with `larder drive retire`",
            refused[..refused.len().min(NAMED)].join(", ")
        )
    })
}

/// A warning for the drives that did not answer in time, the worst ones named.
pub(super) fn late_drives(late: &[(DriveId, u64)]) -> Option<String> {
    const NAMED: usize = 5;
    let mut worst = late.to_vec();
    worst.sort_by_key(|(drive, missed)| (std::cmp::Reverse(*missed), *drive));
    let named: Vec<String> =
        worst.iter().take(NAMED).map(|(drive, missed)| format!("drive {} {missed} times", drive.0)).collect();
    let more = if late.len() > NAMED { format!(" and {} more", late.len() - NAMED) } else { String::new() };
    (!late.is_empty()).then(|| {
        format!(
            "drives did not answer in time: {}{more}. They are done without for a while each time; look at their \
             cables and their SMART values, and give up what is broken with `larder drive fail`",
            named.join(", ")
        )
    })
}

/// Clients and rebuilds may start drives beyond the budget; that is said.
fn over_budget(status: &Status) -> Option<String> {
    let starts = status.totals.starts_over_budget;
    let starts = counted(Some(starts).filter(|starts| *starts > 0)?, "drive start");
    Some(format!("{starts} for clients or rebuilds went beyond the day's budget: drives wear faster than rated"))
}

fn rebuild_warnings(rebuild: &RebuildReport) -> Option<String> {
    let RebuildReport { drive, lost_blobs, .. } = rebuild;
    if *lost_blobs > 0 {
        let (blobs, have) = (counted(*lost_blobs, "blob"), if *lost_blobs == 1 { "has" } else { "have" });
        return Some(format!(
            "{blobs} with a stack on drive {drive} {have} lost more than the code makes up for: data is lost, and GETs \
             of it fail; `larder verify` names the objects"
        ));
    }
    if rebuild.retires && rebuild.away && rebuild.left_bytes > 0 {
        return Some(format!(
            "drive {drive} is being retired and is away: what the others of its group make up for moves on, and the \
             rest waits for it; if it will not come back, say `larder drive fail {drive}`"
        ));
    }
    what_lacks(rebuild)
}

/// What the blobs lack that cannot be rebuilt yet.
fn what_lacks(rebuild: &RebuildReport) -> Option<String> {
    let RebuildReport { drive, group, waiting_blobs, unplaced_blobs, .. } = rebuild;
    let unread_blobs = waiting_blobs.saturating_sub(*unplaced_blobs);
    let waiting = |blobs: u64| format!("{} wait{}", counted(blobs, "blob"), if blobs == 1 { "s" } else { "" });
    let mut lacks = Vec::new();
    if unread_blobs > 0 {
        lacks.push(format!(
            "{} for drives of group {group} that are away, or do not give what they hold: `larder drive list` shows \
             which",
            waiting(unread_blobs)
        ));
    }
    if *unplaced_blobs > 0 {
        lacks.push(format!(
            "{} for room: no other drive of group {group} that is there has enough; delete objects, or put a drive in \
             the place of one that failed",
            waiting(*unplaced_blobs)
        ));
    }
    (!lacks.is_empty()).then(|| format!("drive {drive} cannot be rebuilt yet: {}", lacks.join("; ")))
}

/// `1 blob`, `2 blobs`.
fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Scrubs that are late, paused, or have found what cannot be repaired.
fn scrub_warnings(status: &Status) -> Vec<String> {
    let scrub = &status.scrub;
    let mut warnings = Vec::new();
    let lost: u64 = scrub.groups.iter().map(|group| group.counts.lost_blobs).sum();
    if lost > 0 {
        warnings.push(format!(
            "scrubs have found data lost in {lost} blobs: `larder scrub status` names the objects; put them again, or \
             delete them"
        ));
    }
    if scrub.overdue_groups > 0 && !scrub.paused {
        warnings.push(format!(
            "the scrub of {} groups did not end within its period; set a longer `period`, or more `starts_per_day`, in \
             [scrub] of larder.toml",
            scrub.overdue_groups
        ));
    }
    if scrub.paused {
        warnings.push("scrubs are paused: rot on drives is not looked for; say `larder scrub resume`".into());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(waiting_blobs: u64, unplaced_blobs: u64) -> Option<String> {
        rebuild_warnings(&RebuildReport {
            drive: 7,
            group: 2,
            left_bytes: 1,
            rebuilt_bytes: 0,
            rebuilt_stacks: 0,
            lost_blobs: 0,
            waiting_blobs,
            unplaced_blobs,
            retires: false,
            there: "itself".to_owned(),
            used_bytes: 0,
            away: false,
            left_min_s: 0.0,
            left_max_s: 0.0,
        })
    }

    #[test]
    fn a_rebuild_that_waits_says_what_it_lacks() {
        assert_eq!(warning(0, 0), None);
        let says = |waiting, unplaced, wanted: &[&str]| {
            let warning = warning(waiting, unplaced).unwrap_or_default();
            assert!(warning.starts_with("drive 7 cannot be rebuilt yet: "), "{warning}");
            assert!(wanted.iter().all(|wanted| warning.contains(wanted)), "{warning}");
            assert_eq!(warning.matches(" wait").count(), wanted.len(), "{warning}");
        };
        says(1, 0, &["1 blob waits for drives of group 2 that are away"]);
        says(2, 2, &["2 blobs wait for room"]);
        says(5, 2, &["3 blobs wait for drives", "2 blobs wait for room"]);
    }
}
