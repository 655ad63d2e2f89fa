//! The warnings of a status, each with its condition and its fix.

use crate::catalog_age;
use crate::condition::{Condition, Warning};
use crate::context::Context;
use crate::report::{ClassStatus, IntakeStatus, RebuildReport, Status};
use intake::{COPIES_FROM_DRIVES, RETAINED_MAX};
use model::DriveId;
use std::sync::atomic::Ordering;

/// Objects in quarantine that a warning names; more are only counted.
const QUARANTINED_NAMED: usize = 20;

/// The objects in quarantine.
pub(super) async fn quarantine_warning(context: &Context) -> Option<Warning> {
    let (count, _) = context.catalog.unreadable_usage().await.ok()?;
    let named = context.catalog.unreadable_page(None, QUARANTINED_NAMED).await.ok()?.items;
    let name = |found: &catalog::Unreadable| format!("{}/{}", found.bucket, found.key);
    let mut names: Vec<String> = named.iter().map(name).collect();
    if count > names.len() as u64 {
        names.push(format!("and {} more, which the log names", count - names.len() as u64));
    }
    let objects = if count == 1 { "object is" } else { "objects are" };
    (count > 0).then(|| {
        Condition::Quarantined.warns(format!(
            "{count} {objects} in quarantine, since not every byte can be read: {}. Write them again or delete them, \
             or put their files back and restart the server; `larder explain` shows what is wrong",
            names.join(", ")
        ))
    })
}

/// Copies of the catalog on drives that have lost data.
pub(super) async fn lost_copies_warning(context: &Context) -> Option<Warning> {
    let copies = context.catalog.copies().await.ok()?;
    let lost = copies.iter().filter(|copy| copy.lost).count();
    (lost > 0).then(|| {
        Condition::CatalogCopyLost.warns(format!(
            "copies of the catalog on drives that are lost or damaged: {lost}. The server writes a new one when a \
             group is awake; until then `larder catalog backup` writes one to a file"
        ))
    })
}

/// The catalog's disagreements with rack and workshop.
pub(super) fn catalog_warnings(context: &Context) -> Vec<Warning> {
    let (catalog, mut warnings) = (&context.catalog, Vec::new());
    if let Some(why) = context.catalog_age.older() {
        warnings.push(Condition::CatalogOlder.warns(format!(
            "the catalog is older than the rack: {why}. Nothing is removed from the rack meanwhile; {}",
            catalog_age::FIX
        )));
    }
    if let Some(flaw) = context.catalog_age.incomplete() {
        warnings.push(Condition::CatalogIncomplete.warns(format!(
            "the catalog is not complete: {flaw}. Data that it does not list may belong to the missing records, so \
             nothing is removed from the rack meanwhile; {}",
            catalog_age::FIX
        )));
    }
    if let Some(why) = catalog.stopped() {
        warnings.push(Condition::CatalogStopped.warns(format!(
            "the catalog takes no changes, so every PUT and DELETE fails: {why}; make sure that its disk is writable, \
             and restart the server"
        )));
    }
    if context.staging.usage().is_disk_full || catalog.is_full() {
        let warning = "the disk of the workshop or of the catalog is full, and PUTs are refused: free some space \
                       there, or lower workshop.capacity in larder.toml";
        warnings.push(Condition::DiskFull.warns(warning));
    }
    if context.counters.are_copies_overdue.load(Ordering::Relaxed) {
        let warning = "the present catalog could not be copied to drives, so changes since the last copy would be lost \
                       with the disk of the catalog: the log shows why; until then `larder catalog backup` writes a \
                       copy to a file";
        warnings.push(Condition::CatalogCopyBehind.warns(warning));
    }
    warnings.extend(staged_warnings(context));
    warnings
}

/// The disagreements between staged files and the catalog.
fn staged_warnings(context: &Context) -> Vec<Warning> {
    let (counters, mut warnings) = (&context.counters, Vec::new());
    match counters.unknown_staged.load(Ordering::Relaxed) {
        0 => {}
        1 => warnings.push(unknown_staged("1 staged file is")),
        files => warnings.push(unknown_staged(&format!("{files} staged files are"))),
    }
    match counters.missing_staged.load(Ordering::Relaxed) {
        0 => {}
        files => warnings.push(Condition::StagedMissing.warns(format!(
            "staged files that were missing when the server started: {files}. GETs of their objects fail: `larder \
             verify` names them; put the files back and start again, or write the objects again or delete them"
        ))),
    }
    match counters.wrong_bodies.load(Ordering::Relaxed) {
        0 => {}
        bodies => warnings.push(Condition::WrongBytes.warns(format!(
            "GETs cut off because the bytes differed from the acknowledged object: {bodies}. The log names the \
             objects; run `larder verify --deep`, and report this"
        ))),
    }
    warnings
}

fn unknown_staged(files: &str) -> Warning {
    Condition::StagedUnknown.warns(format!(
        "{files} unknown to this catalog and kept, since a newer catalog may list them: `larder verify` names them"
    ))
}

/// Drives that other programs woke.
pub(super) fn woken_by_others(times: u64) -> Option<Warning> {
    (times > 0).then(|| {
        Condition::WokenByOthers.warns(format!(
            "sleeping drives that another program woke since the server started: {times}. The log says which and when; \
             `larder drive doctor` looks for programs that do that"
        ))
    })
}

/// Drives that woke although no program had sent them anything.
pub(super) fn woke_themselves(times: u64) -> Option<Warning> {
    (times > 0).then(|| {
        Condition::WokeThemselves.warns(format!(
            "sleeping drives that woke by themselves since the server started: {times}. `larder drive list` shows \
             which; a timer or a self-check of the drive does that: `larder drive doctor` names timers"
        ))
    })
}

/// Damaged records of the catalog.
pub(super) fn damaged_records(keys: &[String]) -> Option<Warning> {
    let (first, records) = (keys.first()?, keys.len());
    Some(Condition::CatalogRecordsDamaged.warns(format!(
        "damaged records of the catalog: {records}, the first at {first}: their objects are neither served nor moved; \
         `larder verify` names them, and writing an object again repairs its record"
    )))
}

/// Warnings that follow from the figures of a status, and from a failure of the last snapshot of the catalog.
pub(super) fn warnings(status: &Status, has_snapshot_failed: bool) -> Vec<Warning> {
    let mut warnings = scrub_warnings(status);
    let problem = status.tls.as_ref().and_then(|tls| tls.problem.as_ref());
    let unusable =
        |problem| Condition::CertificateUnusable.warns(format!("{problem}. The previous certificate stays in use"));
    warnings.extend(problem.map(unusable));
    warnings.extend(room_warnings(status));
    if status.totals.data_lost > 0 {
        warnings.push(Condition::ReadsLost.warns("reads failed because data is lost: the log names the blobs"));
    }
    warnings.extend(crowded(status));
    warnings.extend(over_budget(status));
    warnings.extend(kept_spinning(status));
    if status.power.fuse_trips > 0 {
        let warning = "fuses tripped: the rack's description allows more than the hardware does";
        warnings.push(Condition::FuseTripped.warns(warning));
    }
    for rebuild in &status.rebuilds {
        warnings.extend(rebuild_warnings(rebuild));
    }
    match status.drives.away {
        0 => {}
        1 => warnings.push(Condition::DriveAway.warns("1 drive is away: `larder drive list` shows which")),
        away => {
            let warning = format!("{away} drives are away: `larder drive list` shows which");
            warnings.push(Condition::DriveAway.warns(warning));
        }
    }
    let is_late = has_snapshot_failed || status.uptime_s > JOURNAL_PATIENCE_S;
    if status.journal.is_some_and(|journal| !journal.leads_on) && is_late {
        let warning = "the journal does not reach the present catalog, so a lost catalog could not be rebuilt from it: \
                       the log shows why no snapshot was written; free some space in workshop/journal";
        warnings.push(Condition::JournalBehind.warns(warning));
    }
    warnings.extend(status.intake.as_ref().into_iter().flat_map(intake_warnings));
    if status.totals.overruns > 0 && status.totals.overrun_s > status.uptime_s / 10.0 {
        let warning = "the disk behind the emulated drives is slower than the model: lower --time-scale";
        warnings.push(Condition::EmulationSlow.warns(warning));
    }
    warnings
}

/// The room of rack and workshop.
fn room_warnings(status: &Status) -> Vec<Warning> {
    let (workshop, mut warnings) = (&status.workshop, Vec::new());
    if status.capacity.full {
        warnings.push(Condition::RackFull.warns(
            "the rack is full: no group has room for the staged objects, and PUTs are refused. Delete objects, which \
             frees room once their groups have woken; drives cannot be added to a rack yet",
        ));
    } else if let Some(bytes) = status.capacity.unplaced_bytes {
        warnings.push(Condition::PackUnplaced.warns(format!(
            "{bytes} bytes in the workshop find no room in any group that may take them, while smaller packs do: \
             delete objects; drives cannot be added to a rack yet"
        )));
    }
    let may_migrate = !status.capacity.full && status.capacity.unplaced_bytes.is_none();
    if workshop.staged_bytes * 10 > workshop.capacity_bytes * 9 && may_migrate {
        let warning = "the workshop is nearly full: PUTs will get SlowDown until data has migrated";
        warnings.push(Condition::WorkshopFull.warns(warning));
    }
    if workshop.hot_moved_bytes > 0 {
        warnings.push(Condition::HotMoved.warns(format!(
            "{} bytes of hot objects had to move to the rack since the server started: the workshop was above its \
             critical share, and no cold ones were left. Give the workshop more capacity, or write rules that call \
             more objects cold ([workshop] and [thermometer] in larder.toml)",
            workshop.hot_moved_bytes
        )));
    }
    warnings
}

/// Blobs that the loss of one failure domain may destroy.
fn crowded(status: &Status) -> Option<Warning> {
    let blobs = Some(status.totals.crowded_placements).filter(|blobs| *blobs > 0)?;
    let (blobs, have) = (counted(blobs, "blob"), if blobs == 1 { "has" } else { "have" });
    Some(Condition::BlobsCrowded.warns(format!(
        "{blobs} written since the server started {have} more stacks in one failure domain than the code can replace: \
         the loss of that domain would lose them. If drives of other domains were away or full, bring those back, and \
         write the objects again; else the rack has too few domains, which `larder plan` shows"
    )))
}

/// Groups that keep spinning because no starts are left.
fn kept_spinning(status: &Status) -> Option<Warning> {
    let kept: Vec<String> = status.classes.iter().filter(|class| class.kept_spinning).filter_map(named).collect();
    (!kept.is_empty()).then(|| {
        Condition::KeptSpinning.warns(format!(
            "kept spinning, since no starts are left for today: {}. The next client needs no start; with more \
             starts_per_day in larder.toml, or with reads combined by `larder recall`, they sleep",
            kept.join(", ")
        ))
    })
}

/// The group of a class, for people.
fn named(class: &ClassStatus) -> Option<String> {
    class.group.map(|group| format!("group {group}"))
}

/// Seconds after the start by which a snapshot should be there.
const JOURNAL_PATIENCE_S: f64 = 300.0;

/// The number of logs kept for another catalog from which on a status warns.
const RETAINED_WARNED: u64 = RETAINED_MAX as u64 / 2;

/// The number of waiting logs from which on a pool of several drives is too slow for its input.
const BACKLOG: u64 = 2;

fn intake_warnings(intake: &IntakeStatus) -> Vec<Warning> {
    let in_state = |state: &str| -> Vec<&str> {
        intake.drives.iter().filter(|drive| drive.state == state).map(|drive| &*drive.place).collect()
    };
    let (lost, missing) = (in_state("lost"), in_state("missing"));
    let mut warnings = Vec::new();
    if intake.retained >= RETAINED_WARNED {
        warnings.push(Condition::PoolLogsKept.warns(format!(
            "{} logs of small objects are kept for another catalog, which may need their contents; with {RETAINED_MAX} \
             logs no more small objects are accepted: {}",
            intake.retained,
            catalog_age::FIX
        )));
    }
    if !missing.is_empty() {
        warnings.push(Condition::PoolDriveMissing.warns(format!(
            "drives of the pool of small objects are missing: {}. Objects stored only there cannot be read; mount \
             them, and restart the server",
            missing.join(", ")
        )));
    }
    if !lost.is_empty() {
        warnings.push(Condition::PoolDriveFailed.warns(format!(
            "drives of the pool of small objects failed: {}. The other drives continue without them; replace them, and \
             restart the server",
            lost.join(", ")
        )));
    } else if intake.incomplete && missing.is_empty() {
        let warning = if intake.copies > 1 {
            "the pool of small objects is not whole: a drive is missing, or some of its copies are not restored yet; \
             see the log of the start"
        } else {
            "the pool of small objects is not whole, and has no second copy: GETs of objects that may have been in the \
             lost part return an error until they are written again or deleted; the log of the start names the part"
        };
        warnings.push(Condition::PoolIncomplete.warns(warning));
    }
    if intake.drives.len() >= COPIES_FROM_DRIVES && intake.copies == 1 && lost.is_empty() && !intake.incomplete {
        warnings.push(Condition::PoolOneCopy.warns(format!(
            "small objects are on one of {} drives each: the pool was created with fewer than {COPIES_FROM_DRIVES} \
             drives, and keeps its number of copies",
            intake.drives.len()
        )));
    }
    if intake.losses > 0 {
        let losses = intake.losses;
        let warning = format!(
            "small objects were lost with their log, shelf or drive. Losses since the start (an object, a damaged \
             place or a file each): {losses}; the log names them. Write the objects again, or delete them"
        );
        warnings.push(Condition::PoolLost.warns(warning));
    }
    warnings.extend(intake_work(intake));
    warnings
}

/// Drives of the pool that do not start or stop, or do not keep up.
fn intake_work(intake: &IntakeStatus) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (drive, failure) in intake.drives.iter().filter_map(|drive| Some((drive, drive.power_failure.as_ref()?))) {
        let what = if drive.power.as_deref() == Some("spinning") { "stop" } else { "start" };
        let warning = format!("the drive of the pool at {} does not {what}: {failure}", drive.place);
        warnings.push(Condition::PoolDrivePower.warns(warning));
    }
    if intake.alternation.as_deref() == Some("bad") && intake.backlog >= BACKLOG && intake.drives.len() > 1 {
        warnings.push(Condition::PoolBacklog.warns(format!(
            "small objects arrive faster than their logs become shelves ({} logs wait): logs grow to four times their \
             size, then PUTs wait; give the pool more drives",
            intake.backlog
        )));
    }
    warnings
}

/// Unusable drives for which a status names the reason; `drive list` names it for all.
const ABSENCES_NAMED: usize = 5;

/// Warnings for drives that could not be used when they were last tried, or not be written to.
pub(super) fn unusable_drives(context: &Context) -> Vec<Warning> {
    let absences = context.counters.absences.all();
    let warning = |(drive, reason): (&DriveId, &String)| {
        Condition::DriveUnusable.warns(format!("drive {} cannot be used: {reason}", drive.0))
    };
    let mut warnings: Vec<Warning> = absences.iter().take(ABSENCES_NAMED).map(warning).collect();
    let refused = context.counters.refused_writes.all();
    warnings.extend(refused_writes(refused.iter().filter(|(drive, _)| !absences.contains_key(drive))));
    warnings
}

/// A warning for the drives that can be read, but did not take the last stack that was to be written to them.
fn refused_writes<'a>(refused: impl Iterator<Item = (&'a DriveId, &'a String)>) -> Option<Warning> {
    const NAMED: usize = 3;
    let refused: Vec<String> = refused.map(|(drive, reason)| format!("drive {} ({reason})", drive.0)).collect();
    let more = if refused.len() > NAMED { format!(" and {} more", refused.len() - NAMED) } else { String::new() };
    (!refused.is_empty()).then(|| {
        Condition::DriveTakesNoWrites.warns(format!(
            "drives take no writes: {}{more}. They are read, and other drives of their groups are written to; repair \
             them, or empty them with `larder drive retire`",
            refused[..refused.len().min(NAMED)].join(", ")
        ))
    })
}

/// A warning for the drives that did not answer in time; the worst ones are named.
pub(super) fn late_drives(late: &[(DriveId, u64)]) -> Option<Warning> {
    const NAMED: usize = 5;
    let mut worst = late.to_vec();
    worst.sort_by_key(|(drive, missed)| (std::cmp::Reverse(*missed), *drive));
    let named: Vec<String> =
        worst.iter().take(NAMED).map(|(drive, missed)| format!("drive {} {missed} times", drive.0)).collect();
    let more = if late.len() > NAMED { format!(" and {} more", late.len() - NAMED) } else { String::new() };
    (!late.is_empty()).then(|| {
        Condition::DriveLate.warns(format!(
            "drives did not answer in time: {}{more}. Each time, the others work without the drive for a while; check \
             cables and SMART values, and give broken drives up with `larder drive fail`",
            named.join(", ")
        ))
    })
}

/// A warning for starts beyond the budget, which clients and rebuilds may make.
fn over_budget(status: &Status) -> Option<Warning> {
    let starts = status.totals.starts_over_budget;
    let starts = counted(Some(starts).filter(|starts| *starts > 0)?, "drive start");
    Some(
        Condition::StartsOverBudget.warns(format!(
            "{starts} for clients or rebuilds went beyond the day's budget: drives wear faster than rated"
        )),
    )
}

fn rebuild_warnings(rebuild: &RebuildReport) -> Option<Warning> {
    let RebuildReport { drive, group, lost_blobs, .. } = rebuild;
    if *lost_blobs > 0 {
        let (blobs, have) = (counted(*lost_blobs, "blob"), if *lost_blobs == 1 { "has" } else { "have" });
        return Some(Condition::BlobsLost.warns(format!(
            "{blobs} with a stack on drive {drive} {have} lost more stacks than the code can replace: data is lost, \
             and GETs of it fail; `larder drive lost` names the objects"
        )));
    }
    if rebuild.retires && rebuild.away && rebuild.left_bytes > 0 {
        return Some(Condition::RebuildWaits.warns(format!(
            "drive {drive} is being retired and is away: stacks that the other drives of its group can replace still \
             move, and the rest waits for it; if it will not come back, run `larder drive fail {drive}`"
        )));
    }
    if rebuild.lacks_drives > 0 {
        let (lacks, are) = (rebuild.lacks_drives, if rebuild.lacks_drives == 1 { "drive is" } else { "drives are" });
        let what = if rebuild.retires { "emptied" } else { "rebuilt" };
        return Some(Condition::RebuildImpossible.warns(format!(
            "drive {drive} cannot be {what}: {lacks} {are} lacking in group {group}, which has fewer drives in service \
             than a blob has stacks; put another drive in the place of a failed one, and run `larder drive replace`"
        )));
    }
    what_lacks(rebuild)
}

/// The obstacles for the blobs that cannot be rebuilt yet.
fn what_lacks(rebuild: &RebuildReport) -> Option<Warning> {
    let RebuildReport { drive, group, waiting_blobs, unplaced_blobs, .. } = rebuild;
    let unread_blobs = waiting_blobs.saturating_sub(*unplaced_blobs);
    let waiting = |blobs: u64| format!("{} wait{}", counted(blobs, "blob"), if blobs == 1 { "s" } else { "" });
    let mut lacks = Vec::new();
    if unread_blobs > 0 {
        lacks.push(format!(
            "{} for drives of group {group} that are away, or cannot be read: `larder drive list` shows which",
            waiting(unread_blobs)
        ));
    }
    if *unplaced_blobs > 0 {
        lacks.push(format!(
            "{} for room: no other drive of group {group} that is there has enough; delete objects, or replace a \
             failed drive",
            waiting(*unplaced_blobs)
        ));
    }
    let warning = |lacks: String| format!("drive {drive} cannot be rebuilt yet: {lacks}");
    (!lacks.is_empty()).then(|| Condition::RebuildWaits.warns(warning(lacks.join("; "))))
}

/// `1 blob`, `2 blobs`.
fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Scrubs that are late, paused, or have findings that are not repaired.
fn scrub_warnings(status: &Status) -> Vec<Warning> {
    let scrub = &status.scrub;
    let mut warnings = Vec::new();
    if scrub.lost_blobs > 0 {
        warnings.push(Condition::ScrubLost.warns(format!(
            "scrubs have found data lost in {}: `larder scrub status` names the objects; put them again, or delete \
             them",
            counted(scrub.lost_blobs, "blob")
        )));
    }
    if scrub.unrepaired_stacks > 0 {
        warnings.push(Condition::StacksDamaged.warns(format!(
            "scrubs have found {} damaged that {} not repaired yet: `larder scrub status` names them; each is \
             regenerated where its drive has room for it, and the next pass tries again",
            counted(scrub.unrepaired_stacks, "stack"),
            if scrub.unrepaired_stacks == 1 { "is" } else { "are" }
        )));
    }
    if scrub.overdue_groups > 0 && !scrub.paused {
        warnings.push(Condition::ScrubOverdue.warns(format!(
            "the scrub of {} did not end within its period; set a longer `period`, or more `starts_per_day`, in \
             [scrub] of larder.toml",
            counted(scrub.overdue_groups, "group")
        )));
    }
    if scrub.paused {
        let warning = "scrubs are paused, so damage on drives is not detected; run `larder scrub resume`";
        warnings.push(Condition::ScrubPaused.warns(warning));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{JournalReport, PoolDriveReport};

    fn warning(waiting_blobs: u64, unplaced_blobs: u64) -> Option<String> {
        let warning = rebuild_warnings(&RebuildReport {
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
            lacks_drives: 0,
            stuck: true,
            retired: false,
        });
        warning.map(|warning| warning.message)
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
    fn conditions(change: impl FnOnce(&mut Status)) -> Vec<Condition> {
        let mut status = Status { uptime_s: 10.0, ..Status::default() };
        change(&mut status);
        warnings(&status, false).into_iter().map(|warning| warning.condition).collect()
    }

    fn pool(change: impl FnOnce(&mut IntakeStatus)) -> Vec<Condition> {
        let drive = PoolDriveReport { state: "logging".into(), ..PoolDriveReport::default() };
        let mut intake = IntakeStatus { copies: 2, drives: vec![drive; COPIES_FROM_DRIVES], ..IntakeStatus::default() };
        change(&mut intake);
        conditions(|status| status.intake = Some(intake))
    }

    #[test]
    fn figures_that_endanger_objects_are_warned_of() {
        assert_eq!(conditions(|_| ()), []);
        assert_eq!(conditions(|status| status.totals.crowded_placements = 1), [Condition::BlobsCrowded]);
        assert_eq!(conditions(|status| status.scrub.overdue_groups = 1), [Condition::ScrubOverdue]);
        let paused = |status: &mut Status| (status.scrub.overdue_groups, status.scrub.paused) = (1, true);
        assert_eq!(conditions(paused), [Condition::ScrubPaused]);
        let journal = JournalReport::default();
        assert_eq!(conditions(|status| status.journal = Some(journal)), [], "the first snapshot takes its time");
        let late = |status: &mut Status| (status.journal, status.uptime_s) = (Some(journal), 301.0);
        assert_eq!(conditions(late), [Condition::JournalBehind]);
    }

    #[test]
    fn a_pool_that_is_not_whole_is_warned_of() {
        assert_eq!(pool(|_| ()), []);
        assert_eq!(pool(|intake| intake.incomplete = true), [Condition::PoolIncomplete]);
        assert_eq!(pool(|intake| intake.copies = 1), [Condition::PoolOneCopy]);
        assert_eq!(pool(|intake| intake.retained = RETAINED_WARNED), [Condition::PoolLogsKept]);
        assert_eq!(pool(|intake| intake.losses = 1), [Condition::PoolLost]);
        let lost = |intake: &mut IntakeStatus| intake.drives[0].state = "lost".into();
        assert_eq!(pool(lost), [Condition::PoolDriveFailed]);
        let missing = |intake: &mut IntakeStatus| intake.drives[0].state = "missing".into();
        assert_eq!(pool(missing), [Condition::PoolDriveMissing]);
    }
}
