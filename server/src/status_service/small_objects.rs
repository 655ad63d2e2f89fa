//! The state of the intake for the admin API.

use crate::report::{IntakeStatus, PoolDriveReport};
use engine::shift::Alternation;
use engine::{PoolDrivePhase, PoolDriveView};
use intake::{CycleStatus, DriveStatus, Status};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The power of drives, and the reason that the last command to one failed, by their places.
pub(super) type Power = BTreeMap<String, (PoolDriveView, Option<String>)>;

/// The report of `status`. The drives of `unmounted` are missing since the start.
pub(super) fn intake_status(status: &Status, unmounted: &[PathBuf], power: &Power) -> IntakeStatus {
    let missing = |place: &PathBuf| PoolDriveReport {
        place: place.display().to_string(),
        state: "missing".into(),
        ..PoolDriveReport::default()
    };
    let drives = status.cycles.iter().flat_map(|cycle| cycle.drives.iter().map(|drive| drive_report(drive, power)));
    let drives = drives.chain(unmounted.iter().map(missing));
    let worst = status.cycles.iter().filter_map(|cycle| cycle.alternation).max();
    IntakeStatus {
        copies: status.copies as u64,
        drives: drives.collect(),
        alternation: worst.map(|worst| name(worst).to_owned()),
        backlog: status.cycles.iter().map(|cycle: &CycleStatus| cycle.backlog as u64).sum(),
        retained: status.cycles.iter().map(|cycle: &CycleStatus| cycle.retained as u64).max().unwrap_or_default(),
        queued_bytes: status.queued_bytes as u64,
        accepted: status.accepted,
        accepted_bytes: status.accepted_bytes,
        write_amplification: status.write_amplification(),
        losses: status.losses,
        incomplete: status.cycles.iter().any(|cycle| cycle.incomplete),
    }
}

fn drive_report(drive: &DriveStatus, power: &Power) -> PoolDriveReport {
    let stages = drive.stages;
    let state = match (drive.lost, drive.asleep) {
        (true, _) => "lost",
        (_, true) => "asleep",
        _ if stages.logs => "logging",
        _ if stages.transforms() => "transforming",
        _ => "idle",
    };
    let (shelf_bytes, written_bytes) = (drive.shelf_bytes, drive.written);
    let power = power.get(&drive.place);
    PoolDriveReport {
        place: drive.place.clone(),
        state: state.into(),
        power: power.map(|(power, _)| power_name(power).to_owned()),
        power_failure: power.and_then(|(_, failure)| failure.clone()),
        starts_today: power.map_or(0, |(power, _)| u64::from(power.starts_today)),
        starts: power.map_or(0, |(power, _)| power.starts),
        shelf_bytes,
        written_bytes,
    }
}

fn power_name(power: &PoolDriveView) -> &'static str {
    match power.phase {
        PoolDrivePhase::Spinning => "spinning",
        PoolDrivePhase::Stopping => "stopping",
        PoolDrivePhase::Standby if power.waits => "waiting",
        PoolDrivePhase::Standby => "standby",
        PoolDrivePhase::Starting => "starting",
    }
}

fn name(alternation: Alternation) -> &'static str {
    match alternation {
        Alternation::Ideal => "ideal",
        Alternation::Acceptable => "acceptable",
        Alternation::Bad => "bad",
    }
}
