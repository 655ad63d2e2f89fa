//! What drives do about their power by themselves is written down: what the kernel knows of them, and how often each
//! was found awake that nobody here had started. No drive is asked.

use crate::context::Context;
use catalog::{DriveHabits, UnaskedWake};
use disk::Hardware;
use disk::scsi::PowerUpInStandby;
use model::DriveId;
use std::sync::Arc;

/// Remembers the habits of all drives of `hardware` that are devices.
pub async fn remember(context: Context, hardware: Arc<dyn Hardware>) {
    for (drive, habits) in hardware.habits() {
        let said = DriveHabits {
            drive: drive.0,
            allow_restart: habits.allow_restart,
            power_up_in_standby: habits.power_up_in_standby.map(|puis| PowerUpInStandby::name(puis).to_owned()),
            apm_level: habits.apm_level,
            epc_enabled: habits.epc_enabled,
            ..DriveHabits::default()
        };
        if let Err(error) = context.catalog.put_drive_habits(said).await {
            tracing::warn!(%drive, %error, "what a drive does about its power could not be remembered");
        }
    }
}

/// `drive` was found spinning: if that is a wake that nobody here asked for, it is remembered.
pub async fn note_wake(context: &Context, hardware: &dyn Hardware, drive: DriveId) {
    let Some(wake) = hardware.last_wakes().remove(&drive) else { return };
    let wake = UnaskedWake { found_ms: wake.found_ms, by_itself: wake.by_itself, cause: wake.cause };
    if let Err(error) = context.catalog.note_unasked_wake(drive, wake).await {
        tracing::warn!(%drive, %error, "a wake could not be remembered");
    }
}
