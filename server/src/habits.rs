//! Records the drives' own power behaviour: what the kernel knows of them, and how often each was found awake although
//! Larder had not started it. No drive is asked.

use crate::context::Context;
use disk::Hardware;
use model::DriveId;
use std::sync::Arc;

/// Records the habits of all drives of `hardware` that are devices.
pub async fn remember(context: Context, hardware: Arc<dyn Hardware>) {
    for (drive, habits) in hardware.habits() {
        if let Err(error) = context.catalog.put_drive_habits(drive, habits).await {
            tracing::warn!(%drive, %error, "cannot record how a drive handles its power");
        }
    }
}

/// Records the wake of `drive`, which was found spinning, if Larder did not request it.
pub async fn note_wake(context: &Context, hardware: &dyn Hardware, drive: DriveId) {
    let Some(wake) = hardware.last_wakes().remove(&drive) else { return };
    if let Err(error) = context.catalog.note_unasked_wake(drive, wake).await {
        tracing::warn!(%drive, %error, "cannot record a wake");
    }
}
