//! The state of the intake, as the admin API gives it.

use crate::report::{IntakeStatus, PoolDriveReport};
use engine::shift::Alternation;
use intake::{CycleStatus, DriveStatus, Status};

pub(super) fn intake_status(status: &Status) -> IntakeStatus {
    let drives = status.cycles.iter().flat_map(|cycle| cycle.drives.iter().map(drive_report));
    let worst = status.cycles.iter().filter_map(|cycle| cycle.alternation).max();
    IntakeStatus {
        copies: status.copies as u64,
        drives: drives.collect(),
        alternation: worst.map(|worst| name(worst).to_owned()),
        backlog: status.cycles.iter().map(|cycle: &CycleStatus| cycle.backlog as u64).sum(),
        queued_bytes: status.queued_bytes as u64,
        accepted: status.accepted,
        accepted_bytes: status.accepted_bytes,
        write_amplification: status.write_amplification(),
        losses: status.losses,
        incomplete: status.cycles.iter().any(|cycle| cycle.incomplete),
    }
}

fn drive_report(drive: &DriveStatus) -> PoolDriveReport {
    let stages = drive.stages;
    let state = match (drive.lost, drive.asleep) {
        (true, _) => "lost",
        (_, true) => "asleep",
        _ if stages.logs => "logging",
        _ if stages.transforms() => "transforming",
        _ => "idle",
    };
    let (shelf_bytes, written_bytes) = (drive.shelf_bytes, drive.written);
    PoolDriveReport { place: drive.place.clone(), state: state.into(), shelf_bytes, written_bytes }
}

fn name(alternation: Alternation) -> &'static str {
    match alternation {
        Alternation::Ideal => "ideal",
        Alternation::Acceptable => "acceptable",
        Alternation::Bad => "bad",
    }
}
