//! The engine's part of a status, from one look at it.

use crate::condition::{Condition, Warning};
use crate::replace;
use crate::report::{
    CapacityStatus, ChecksStatus, ClassStatus, DriveCounts, DriveReport, ExposureReport, GroupCounts, GroupScrub,
    PowerStatus, RebuildReport, ScrubStatus, Status, SwitchStatus, Totals, UnusableStack, WorkshopStatus,
};
use disk::Clock;
use engine::scrub::{ScrubView, ScrubbedPass};
use engine::staging::checks::{CheckState, CheckView};
use engine::{AbsenceView, DrivePhase, GroupState, HealthView, HeldBack, InPlace, PriorityClass, Rack, RebuildView};
use model::physics::ServerLoad;
use model::{ClassId, DomainLimit, DriveId, GroupId, PoolDriveSpec, Resource, Time};
use std::collections::BTreeMap;

/// The engine's part of a status.
pub(super) fn rack_status(rack: &Rack, now: Time, clock: &dyn Clock) -> Status {
    let spec = rack.spec();
    let always_on = spec.drives.iter().filter(|drive| spec.is_always_on(drive.id)).count() as u64;
    Status {
        rack: spec.name.clone(),
        workshop: WorkshopStatus {
            migrations_under_way: rack.migrations_under_way() as u64,
            hot_moved_bytes: rack.hot_moved_bytes(),
            ..WorkshopStatus::default()
        },
        checks: checks(rack, now, clock),
        power: PowerStatus {
            watts: rack.ledger().watts_mw() as f64 / 1000.0,
            standby_watts: standby_mw(rack) as f64 / 1000.0,
            active_drives: rack.ledger().active_drives() as u64 + always_on,
            active_drives_max: rack.layout().drives_started_max(spec) + always_on,
            fuse_trips: 0,
            unstopped_drives: rack.unstopped_count() as u64,
        },
        drives: drive_counts(rack),
        groups: group_counts(rack),
        rebuilds: rack.rebuilds().map(|view| rebuild_report(rack, &view, clock)).collect(),
        exposed: exposure_report(rack),
        scrub: scrub_status(rack, now),
        classes: (0..rack.layout().classes.len()).map(|class| class_status(rack, ClassId(class as u32), now)).collect(),
        switch: switch_status(rack, clock),
        totals: totals(rack),
        capacity: capacity(rack),
        ..Status::default()
    }
}

/// The power with every drive in standby that can be. The power reserved for the pool is not the power that it draws;
/// of its drives, those in directories of the operator's never stop, unless the disk is named.
fn standby_mw(rack: &Rack) -> u64 {
    let (spec, watts) = (rack.spec(), rack.spec().profile.watts);
    let reserved = spec.pool.len() as u64 * spec.always_on_mw();
    let sleeps = |drive: &PoolDriveSpec| drive.path.is_none() || drive.disk.is_some();
    let drawn = spec.pool.iter().map(|drive| if sleeps(drive) { watts.standby_mw } else { watts.active_mw });
    rack.layout().asleep_mw(spec) - reserved + drawn.map(u64::from).sum::<u64>()
}

fn checks(rack: &Rack, now: Time, clock: &dyn Clock) -> ChecksStatus {
    let CheckView { state, progress, totals, load_permille, left_bytes } = rack.checks(now);
    let seconds = |span| clock.to_wall(span).as_secs_f64();
    let ago = |at: Time| seconds(now.since(at));
    ChecksStatus {
        state: state.name().into(),
        every_s: rack.policy().checks.every.map_or(0.0, seconds),
        load_permille,
        begun_s_ago: (progress.begun > Time::ZERO).then(|| ago(progress.begun)),
        completed_s_ago: progress.last_ended.map(ago),
        next_in_s: if let CheckState::Until(at) = state { Some(seconds(at.since(now))) } else { None },
        pass_objects: progress.objects,
        pass_bytes: progress.bytes,
        pass_damaged: progress.damaged,
        left_bytes,
        passes: totals.passes,
        objects: totals.objects,
        bytes: totals.bytes,
        damaged: totals.damaged,
        overdue_pages: totals.overdue_pages,
        ..ChecksStatus::default()
    }
}

fn drive_counts(rack: &Rack) -> DriveCounts {
    let mut counts = DriveCounts::default();
    for drive in &rack.spec().drives {
        match rack.drive_phase(drive.id) {
            _ if rack.is_retired(drive.id) => counts.retired += 1,
            _ if rack.has_failed(drive.id) => counts.failed += 1,
            DrivePhase::Standby | DrivePhase::AwaitingPermit if rack.is_always_on(drive.id) => counts.always_on += 1,
            DrivePhase::Standby | DrivePhase::AwaitingPermit => counts.standby += 1,
            DrivePhase::Ready => counts.ready += 1,
            DrivePhase::Away(_) => counts.away += 1,
            _ => counts.moving += 1,
        }
    }
    counts
}

fn group_counts(rack: &Rack) -> GroupCounts {
    let (total, left) = (rack.layout().groups.len(), rack.uninitialised_groups());
    GroupCounts { total: total as u64, initialised: (total - left) as u64 }
}

fn exposure_report(rack: &Rack) -> ExposureReport {
    let exposure = rack.exposure();
    ExposureReport { blobs: exposure.blobs, lost_blobs: exposure.lost_blobs }
}

fn rebuild_report(rack: &Rack, view: &RebuildView, clock: &dyn Clock) -> RebuildReport {
    let there = match view.there {
        InPlace::Itself => "itself",
        InPlace::Another => "another",
        InPlace::Returned => "returned",
    };
    // The rest of its group counts only while nothing else is in its place.
    let left = rack.left_without(view.drive).filter(|_| view.there == InPlace::Itself && view.left_bytes > 0);
    let lacks_drives = left.map_or(0, |left| left.lacks() as u64);
    RebuildReport {
        drive: view.drive.0,
        group: view.group.0,
        left_bytes: view.left_bytes,
        rebuilt_bytes: view.rebuilt_bytes,
        rebuilt_stacks: view.rebuilt_stacks,
        lost_blobs: view.lost_blobs,
        waiting_blobs: view.waiting_blobs,
        unplaced_blobs: view.unplaced_blobs,
        retires: view.retires,
        retired: rack.is_retired(view.drive),
        there: there.to_owned(),
        used_bytes: view.used_bytes,
        away: matches!(rack.drive_phase(view.drive), DrivePhase::Away(_)),
        lacks_drives,
        stuck: view.left_bytes > 0 && view.under_way == 0 && (lacks_drives > 0 || view.waiting_blobs > 0),
        left_min_s: clock.to_wall(view.forecast.min).as_secs_f64(),
        left_max_s: clock.to_wall(view.forecast.max).as_secs_f64(),
    }
}

/// The scrub of the rack, as the engine sees it.
pub(super) fn scrub_status(rack: &Rack, now: Time) -> ScrubStatus {
    let groups: Vec<GroupScrub> = rack.scrubs(now).map(|view| group_of(rack, &view)).collect();
    let in_state = |state: &str| groups.iter().filter(|group| group.state == state).count() as u64;
    ScrubStatus {
        period_s: rack.policy().scrub.period.map(|period| period.as_secs_f64()),
        modelled_s: now.as_secs_f64(),
        paused: rack.is_scrub_paused(),
        complete_groups: in_state("complete"),
        overdue_groups: in_state("overdue"),
        own_wakes: rack.stats().scrub_wakes,
        read_bytes: rack.stats().scrubbed_bytes,
        groups,
        ..ScrubStatus::default()
    }
}

fn group_of(rack: &Rack, view: &ScrubView) -> GroupScrub {
    let pass = &view.pass;
    let begun = pass.done.is_some();
    let state = match view {
        _ if pass.complete => "complete",
        view if view.overdue => "overdue",
        _ if begun || rack.is_scrubbing(view.group) => "under way",
        _ => "waiting",
    };
    GroupScrub {
        group: view.group.0,
        state: state.into(),
        covered_permille: pass.covered_permille(),
        began_s: pass.began.as_secs_f64(),
        period_ends_s: view.period_ends.as_secs_f64(),
        counts: pass.counts,
        unread_blobs: view.put_off_blobs,
        last_ended_s: pass.last.map(|last: ScrubbedPass| last.ended.as_secs_f64()),
        last: pass.last.map(|last| last.counts),
    }
}

fn switch_status(rack: &Rack, clock: &dyn Clock) -> SwitchStatus {
    let [idle, busy] = [ServerLoad::Idle, ServerLoad::Busy].map(|load| rack.switch_estimate(load));
    let seconds = |span| clock.to_wall(span).as_secs_f64();
    SwitchStatus { wake_s: seconds(idle.wake), wake_busy_s: seconds(busy.wake), rest_s: seconds(idle.rest) }
}

fn class_status(rack: &Rack, class: ClassId, now: Time) -> ClassStatus {
    let view = rack.class_view(class);
    let awake = rack.layout().classes[class.index()]
        .iter()
        .map(|group| (*group, rack.group_state(*group)))
        .find(|(_, state)| *state != GroupState::Asleep);
    ClassStatus {
        class: class.0,
        group: awake.map(|(group, _)| group.0),
        state: awake.map_or(GroupState::Asleep, |(_, state)| state).name().into(),
        queued: view.queued.map(|queued| queued as u64),
        kept_spinning: rack.kept_spinning(class, now).is_some(),
    }
}

fn totals(rack: &Rack) -> Totals {
    let stats = rack.stats();
    let background = stats.group_wakes[PriorityClass::Background as usize];
    let background = background - stats.initialisation_wakes - stats.scrub_wakes;
    let waiting = (0..rack.layout().groups.len()).map(|group| rack.dead_bytes(GroupId(group as u32))).sum();
    Totals {
        group_wakes: stats.group_wakes,
        initialisation_wakes: stats.initialisation_wakes,
        drive_starts: stats.drive_starts,
        read_bytes: stats.read_bytes,
        migrated_bytes: stats.migrated_bytes,
        wakes_per_gb_migrated: (stats.migrated_bytes > 0)
            .then(|| background as f64 / (stats.migrated_bytes as f64 / 1e9)),
        reclaimed_bytes: stats.reclaimed_bytes,
        waiting_reclaim_bytes: waiting,
        refused: stats.refused,
        data_lost: stats.data_lost,
        starts_over_budget: rack.starts_over_budget(),
        crowded_placements: rack.placement().relaxed_total(),
        soft_overruns: rack.ledger().soft_overruns(),
        missed_deadlines: stats.missed_deadlines,
        ..Totals::default()
    }
}

fn capacity(rack: &Rack) -> CapacityStatus {
    let drives = rack.layout().groups.iter().flat_map(|group| &group.drives);
    CapacityStatus {
        total_bytes: drives.map(|drive| rack.spec().capacity_bytes(*drive)).sum(),
        free_bytes: rack.placement().free_total(),
        full: rack.is_full(),
        unplaced_bytes: rack.unplaced_bytes(),
    }
}

/// The state of a drive in a word or two.
fn state_of(rack: &Rack, drive: DriveId) -> &'static str {
    match (rack.has_failed(drive), rack.is_retiring(drive)) {
        (true, _) if rack.is_retired(drive) => "retired",
        (true, _) => "failed",
        (false, true) => "retiring",
        // Its file system may be at rest; its platters are not.
        (false, false) if rack.is_always_on(drive) && rack.drive_phase(drive) == DrivePhase::Standby => "always on",
        (false, false) => rack.drive_phase(drive).name(),
    }
}

/// Absent drives that a status names with the time when they are given up.
const ABSENT_NAMED: usize = 5;

/// The time when absent drives are given up, and the reasons against it: a sentence for each of the first few.
pub(super) fn patience(rack: &Rack, clock: &dyn Clock, now: Time) -> Vec<Warning> {
    let sentence = |view: &AbsenceView| {
        let (drive, away) = (view.drive.0, hours(clock.to_wall(now.since(view.since))));
        let due = view.due?;
        let warning = match view.held_back {
            None if due > now => format!(
                "drive {drive} has been away for {away}: in {} it is given up, and its data is rebuilt",
                hours(clock.to_wall(due.since(now)))
            ),
            None | Some(HeldBack::Tried) => {
                format!("drive {drive} has been away for {away}: it is tried once more, and then given up")
            }
            Some(HeldBack::ManyAway) => format!(
                "drive {drive} has been away for {away}, and is not given up, since other drives of one of its failure \
                 domains are away too: check cable, fuse and enclosure; if the drive is broken, run `larder drive fail \
                 {drive}`"
            ),
            Some(HeldBack::TooManyOfGroup) => format!(
                "drive {drive} has been away for {away}, and is not given up, since as many drives of its group as the \
                 code can replace are not rebuilt yet; put it back, or run `larder drive fail {drive}`"
            ),
        };
        Some(Condition::DriveStaysAway.warns(warning))
    };
    rack.absences().iter().filter_map(sentence).take(ABSENT_NAMED).collect()
}

/// A duration of some hours, for people.
fn hours(span: std::time::Duration) -> String {
    let minutes = span.as_secs().div_ceil(60);
    match minutes {
        0..120 => format!("{minutes} min"),
        _ => format!("{} h", minutes / 60),
    }
}

pub(super) fn drive_report(rack: &Rack, drive: DriveId, now: Time, reasons: &BTreeMap<DriveId, String>) -> DriveReport {
    let (starts_today, starts_per_day) = rack.starts_today(drive, now);
    DriveReport {
        drive: drive.0,
        slot: rack.spec().drive(drive).slot,
        group: rack.layout().group_of(drive).map(|group| group.0),
        state: state_of(rack, drive).into(),
        starts_today,
        starts_per_day,
        free_bytes: rack.placement().free_bytes(drive),
        capacity_bytes: rack.spec().capacity_bytes(drive),
        missed_deadlines: rack.missed_deadlines(drive),
        reason: reasons.get(&drive).filter(|_| !rack.has_failed(drive)).cloned(),
        starts_total: 0,
        rated_starts: rack.spec().profile.rated_starts.into(),
        health: None,
        habits: None,
    }
}

/// The stacks that cannot be read: on failed drives, on drives that are away, and those known to be `damaged`.
pub(super) fn unusable(rack: &Rack, drives: &[DriveId], damaged: &[u8]) -> Vec<UnusableStack> {
    let why = |index: u8, drive: DriveId| match rack.drive_phase(drive) {
        _ if rack.has_failed(drive) => Some("failed"),
        DrivePhase::Away(_) => Some("away"),
        _ if damaged.contains(&index) => Some("damaged"),
        _ => None,
    };
    let stacks = (0..=u8::MAX).zip(drives);
    stacks
        .filter_map(|(stack, drive)| {
            why(stack, *drive).map(|why| UnusableStack { stack, drive: drive.0, why: why.into() })
        })
        .collect()
}

/// Drives that would not stop, or that do not report whether they did, and the resources that they block. A drive that
/// was given up while its group is awake is stopped with that group, and is no problem before.
pub(super) fn unstopped(rack: &Rack) -> Vec<Warning> {
    let mut drives = BTreeMap::<DriveId, Vec<String>>::new();
    let is_awake = |group| rack.group_state(group) != GroupState::Asleep;
    let awaits_stop = |drive| rack.has_failed(drive) && rack.layout().group_of(drive).is_some_and(is_awake);
    for (drive, resource, domain, used, limit) in rack.unstopped().filter(|(drive, ..)| !awaits_stop(*drive)) {
        let Resource { name, limit: kind, .. } = &rack.spec().resources[resource.index()];
        let milli = matches!(kind, DomainLimit::Watts(_));
        let (used, limit, unit) = if milli { (used / 1000, limit / 1000, " W") } else { (used, limit, "") };
        drives.entry(drive).or_default().push(format!("{name} {} ({used} of {limit}{unit} used)", domain.0));
    }
    let sentence = |(drive, domains): (DriveId, Vec<String>)| {
        let (number, domains) = (drive.0, domains.join(", "));
        let fix = if replace::is_device(rack.spec(), drive) {
            format!(
                "`larder drive power` shows its state; if it cannot be stopped, pull it and run `larder drive fail \
                 {number}`"
            )
        } else {
            format!("if it cannot be stopped, pull it and run `larder drive fail {number}`")
        };
        Condition::DriveUnstopped.warns(format!(
            "drive {number} did not stop, or its state is unknown: it counts as spinning, and other drives wait for \
             its share of {domains}. The server tries again; {fix}"
        ))
    };
    drives.into_iter().map(sentence).collect()
}

/// The drives that missed deadlines, each with their number.
pub(super) fn late(rack: &Rack) -> Vec<(DriveId, u64)> {
    let all = rack.spec().drives.iter().map(|drive| (drive.id, rack.missed_deadlines(drive.id)));
    all.filter(|(_, missed)| *missed > 0).collect()
}

/// Worn drives that a status names.
const WORN_NAMED: usize = 5;

/// Warnings about drives whose bad sectors increase: a sentence for each of the first few.
pub(super) fn worn(rack: &Rack) -> Vec<Warning> {
    let sentence = |drive: DriveId| {
        let HealthView { bad_sectors, first_bad_sectors, waits_for_drain } = rack.drive_health(drive)?;
        if bad_sectors <= first_bad_sectors || rack.has_failed(drive) {
            return None;
        }
        let rest = match (rack.is_retiring(drive), waits_for_drain) {
            (true, _) => "it is being emptied".to_owned(),
            (false, true) => "it is emptied once its group can spare it, one drive at a time".to_owned(),
            (false, false) => format!("`larder drive retire {}` empties it before it fails", drive.0),
        };
        Some(Condition::DriveWorn.warns(format!(
            "drive {} has {bad_sectors} bad sectors, and had {first_bad_sectors} when it was first queried; {rest}",
            drive.0
        )))
    };
    rack.spec().drives.iter().filter_map(|drive| sentence(drive.id)).take(WORN_NAMED).collect()
}
