//! Drives that stay away, in runs in which the rack gives up such drives itself and may recognise them when they
//! return.
//!
//! The run does not know in advance which drives a rack will give up, or when. So a drive that may be away counts as
//! lost for all other faults, from before it goes until the rack has seen that it is back: no blob loses more than r
//! stacks by the rack's decisions, and any data that the rack then reports as lost is a mistake of the rack.

use crate::kinds::FaultKind;
use crate::overlay::fails_calls;
use crate::site::Running;
use model::DriveId;
use std::collections::BTreeSet;

/// Records the drives that the rack has given up itself, those that it has taken back, and those that it knows to be
/// present.
pub(crate) async fn look(running: &Running) {
    if !running.overlay.state().gives_up {
        return;
    }
    let known = running.world.ask(|rack, _| {
        let drives = 0..rack.spec().drives.len() as u32;
        let failed: BTreeSet<DriveId> = drives.map(DriveId).filter(|drive| rack.has_failed(*drive)).collect();
        let away: BTreeSet<DriveId> = rack.absences().into_iter().map(|view| view.drive).collect();
        (failed, away)
    });
    let Some((failed, away)) = known.await else { return };
    let now = running.journal.now_ms();
    let mut state = running.overlay.state();
    let recorded = state.failed();
    let mut news = Vec::new();
    for index in 0..state.rack_drives() {
        let (drive, faults) = (DriveId(index as u32), &mut state.drives[index]);
        let is_failed = failed.contains(&drive) || recorded.contains(&drive);
        let is_abandoned = is_failed && !faults.given_up;
        if is_abandoned != faults.abandoned {
            news.push((drive, is_abandoned, faults.given_up));
        }
        faults.abandoned = is_abandoned;
        // The log may yet show that it was given up, when the log is read again.
        let may_be_recorded = faults.may_be_missed && running.log.is_stopped();
        let may_be_away = faults.may_stay_away(now) || faults.armed.iter().any(|armed| fails_calls(armed.kind));
        faults.may_be_missed = away.contains(&drive) || is_failed || may_be_away || may_be_recorded;
    }
    let given_up = news.iter().filter(|(_, is_abandoned, _)| *is_abandoned).count();
    (0..given_up).for_each(|_| state.count(FaultKind::GivenUpByRack));
    drop(state);
    for (drive, is_abandoned, by_operator) in news {
        running.journal.note(|| match (is_abandoned, by_operator) {
            (true, _) => format!("the rack has given up drive {}", drive.0),
            (false, true) => format!("drive {} is the operator's, whom the rack forestalled", drive.0),
            (false, false) => format!("the rack has taken drive {} back", drive.0),
        });
    }
}

/// The operator takes charge of `drive`, and replaces it. True if the rack had given it up.
pub(crate) fn take_charge(running: &Running, drive: usize) -> bool {
    let mut state = running.overlay.state();
    let faults = &mut state.drives[drive];
    faults.given_up = true;
    std::mem::take(&mut faults.abandoned)
}

/// The operator leaves `drive`, which the rack has given up, unchanged: nothing else took its place.
pub(crate) fn leave_charge(running: &Running, drive: usize) {
    let mut state = running.overlay.state();
    let faults = &mut state.drives[drive];
    (faults.given_up, faults.abandoned) = (false, true);
    if faults.conditions.away_until == 0 {
        drop(state);
        running.rack.plug(DriveId(drive as u32));
    }
}
