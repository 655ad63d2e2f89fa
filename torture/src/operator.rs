//! The operator: gives up drives permanently, retires good ones, puts others in their places, and interferes with
//! scrubs.

use crate::kinds::FaultKind;
use crate::site::{RACK, Running};
use disk::MemoryDrive;
use disk::label::{self, Device, DriveLabel, DriveUuid, Label};
use engine::DrivePhase;
use model::{DriveId, Rng};
use server::admin::Admin;
use server::replace::Taken;
use server::verify::{Options, VerifyRequest};
use std::sync::Arc;
use std::time::Duration;

/// Gives up `drive` permanently, unless that would lose more than the code bears. In half of the cases the drive is
/// pulled first, otherwise when another takes its place; it is always pulled first if anything is wrong with it. The
/// rack assumes that the operator has pulled an away drive before giving it up.
pub(crate) async fn give_up(running: &Running, drive: usize) {
    let number = drive as u32;
    {
        let mut state = running.overlay.state();
        let may = state.drives[drive].destroyed || state.may_lose(drive);
        if state.drives[drive].given_up || !may {
            return;
        }
        state.drives[drive].given_up = true;
    }
    let phase = running.world.ask(move |rack, _| rack.drive_phase(DriveId(number))).await;
    let is_well = running.overlay.state().drives[drive].is_well(running.journal.now_ms())
        && !matches!(phase, None | Some(DrivePhase::Away(_)));
    if !is_well || running.journal.now_ms().is_multiple_of(2) {
        running.rack.pull(DriveId(number));
    }
    let failed = running.status.fail_drive(number, false).await;
    running.journal.note(|| format!("the operator gives up drive {number}: {:?}", failed.as_ref().map(drop)));
    match failed {
        Ok(_) => running.overlay.count(FaultKind::OperatorFailsDrive),
        // Other drives of its group are rebuilt first.
        Err(refused) if refused.to_string().contains("--force") => {
            running.overlay.state().drives[drive].given_up = false;
            running.rack.plug(DriveId(number));
        }
        // The catalog may have recorded it or not.
        Err(_) => {}
    }
}

/// Retires `drive`, if its loss would be allowed too: from now on it counts as given up, and another takes its place at
/// some time, whether it is empty or not.
pub(crate) async fn retire(running: &Running, drive: usize) {
    let number = drive as u32;
    {
        let mut state = running.overlay.state();
        if state.drives[drive].given_up || state.drives[drive].destroyed || !state.may_lose(drive) {
            return;
        }
        state.drives[drive].given_up = true;
    }
    let retired = running.status.retire_drive(number).await;
    running.journal.note(|| format!("the operator retires drive {number}: {:?}", retired.as_ref().map(drop)));
    running.overlay.count(FaultKind::OperatorFailsDrive);
}

/// Requests a scrub of a group or of all groups, or pauses or resumes scrubs.
pub(crate) async fn meddle(running: &Running, rng: &mut Rng) {
    let Some(groups) = running.world.ask(|rack, _| rack.layout().groups.len() as u64).await else { return };
    let (word, group) = (rng.below(6), rng.below(groups));
    let answer = match word {
        0 => running.status.pause_scrub(true).await.map(drop),
        1 | 2 => running.status.pause_scrub(false).await.map(drop),
        3 => running.status.start_scrub(None).await.map(drop),
        _ => running.status.start_scrub(Some(group as u32)).await.map(drop),
    };
    running.journal.note(|| format!("the operator meddles with scrubs ({word}, group {group}): {answer:?}"));
}

/// Starts a verification beside the server, and interrupts it after some time. Its findings are the effects of faults.
pub(crate) async fn verify(running: &Running, rng: &mut Rng) {
    let options = Options { drives: true, deep: rng.below(4) == 0 };
    let wakes = rng.below(2) == 0;
    let longest_ms = 1 << rng.between(6, 18);
    let span = Duration::from_millis(rng.between(1, longest_ms));
    let begun = running.status.verification(VerifyRequest::Begin { options, wakes }).await;
    running.journal.note(|| format!("the operator asks for a verification: {:?}", begun.as_ref().map(drop)));
    let Ok(Some(begun)) = begun else { return };
    tokio::time::sleep(span).await;
    let ended = running.status.verification(VerifyRequest::End(begun.number)).await;
    let phase = ended.as_ref().map(|ended| ended.as_ref().map(|ended| ended.phase));
    running.journal.note(|| format!("the operator ends it: {phase:?}"));
}

/// Gives up `drive` permanently, if it may be lost by now. True if it was given up.
pub(crate) async fn give_up_for_good(running: &Running, drive: usize, force: bool) -> bool {
    let number = drive as u32;
    running.overlay.state().drives[drive].given_up = true;
    running.rack.pull(DriveId(number));
    let mut given_up = running.status.fail_drive(number, force).await;
    // This loses nothing, and nothing of it is rebuilt before another drive is there: the operator knows that.
    if given_up.as_ref().is_err_and(|refused| refused.to_string().contains("could not be rebuilt until")) {
        given_up = running.status.fail_drive(number, true).await;
    }
    let is_given_up = given_up.is_ok();
    if !is_given_up {
        // Other drives of its group are rebuilt first, also from this drive if it is only retired.
        running.rack.plug(DriveId(number));
    }
    is_given_up
}

/// Puts a drive in the place of one that was given up: a new one, or, if it is `back` and not dead, the same drive with
/// its data. False if it is too early for that, or if blobs need the drive that was there: then it stays.
pub(crate) async fn replace(running: &Running, drive: usize, back: bool) -> bool {
    let is_sound = {
        let faults = &running.overlay.state().drives[drive];
        !faults.destroyed && !faults.is_another
    };
    if back && is_sound { put_back(running, drive).await } else { put_another(running, drive).await }
}

/// True if the rack has taken `drive` back, which it had given up: then it is in service again.
pub(crate) async fn is_taken_back(running: &Running, drive: usize) -> bool {
    let id = DriveId(drive as u32);
    let has_failed = running.world.ask(move |rack, _| rack.has_failed(id)).await.unwrap_or(true);
    let is_recorded = running.overlay.state().failed().contains(&id);
    is_taken(running, drive, !has_failed && !is_recorded)
}

/// Puts `drive` itself back in its place. It stays there also if it is not taken as its own replacement.
pub(crate) async fn put_back(running: &Running, drive: usize) -> bool {
    let id = DriveId(drive as u32);
    running.rack.pull(id);
    let known = Arc::clone(running.overlay.state().medium(drive));
    let labelled = async { label::uuid_of(&*known).await.map(Taken::Itself).map_err(|error| error.to_string()) };
    let taken = is_taken(running, drive, running.status.replace_with(id, labelled).await.is_ok());
    if !taken {
        running.rack.plug(id);
    }
    taken
}

/// Puts a new drive in the place of `drive`.
async fn put_another(running: &Running, drive: usize) -> bool {
    let id = DriveId(drive as u32);
    running.rack.pull(id);
    let medium = Arc::new(MemoryDrive::new(running.spec.capacity_bytes(id)));
    let mut before = None;
    let labelled = async {
        let uuid = {
            let mut state = running.overlay.state();
            before = Some(state.replace(drive, Arc::clone(&medium)));
            state.drives[drive].given_up = true;
            (u128::from(state.below(u64::MAX)) << 64) | u128::from(running.journal.now_ms())
        };
        let uuid = DriveUuid(uuid.to_le_bytes());
        let label = Label { rack: RACK, rack_name: running.spec.name.clone(), drive: id };
        let label = DriveLabel { label, uuid, labelled_ms: 0, device: Device::None };
        label::write(&*medium, &label).await.map_err(|error| error.to_string())?;
        Ok(Taken::Another(uuid))
    };
    let replaced = running.status.replace_with(id, labelled).await;
    let is_needed = replaced.as_ref().is_err_and(|refused| refused.to_string().contains("blobs need it"));
    if is_needed && let Some(before) = before {
        running.overlay.state().restore(drive, before);
    }
    is_taken(running, drive, replaced.is_ok())
}

/// If `taken`, a drive is in the place of `drive` again.
fn is_taken(running: &Running, drive: usize, taken: bool) -> bool {
    if taken {
        let mut state = running.overlay.state();
        let faults = &mut state.drives[drive];
        (faults.given_up, faults.abandoned) = (false, false);
    }
    taken
}
