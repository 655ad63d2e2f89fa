//! The health of drives: read while they are mounted anyway, recorded, and passed on to the engine.

use super::state::World;
use crate::context::Context;
use catalog::DriveHealth;
use disk::DriveError;
use engine::Event;
use model::{DriveId, Smart};

impl World {
    /// Reads the health of the mounted `drive`. Reports nothing if the drive has no health data, or is asleep by now.
    pub(super) fn read_health(&self, drive: DriveId) {
        let device = self.drive(drive);
        self.start_with(move |handle, context| async move {
            let said = match device.health().await {
                Ok(Some(said)) => said,
                // It has no health data, or its group is asleep by now; the next mount asks again.
                Ok(None) | Err(DriveError::NotReady(_)) => return,
                Err(error) => return tracing::warn!(%drive, %error, "a drive did not report its health"),
            };
            let Some(health) = remembered(&context, drive, said).await else { return };
            if let Some(bad_sectors) = health.said.bad_sectors() {
                handle.report(Event::DriveHealth { drive, bad_sectors });
            }
        });
    }

    /// Records that `drive` is to be emptied, since it wears out, and then reports that. If it cannot be recorded, the
    /// engine asks again.
    pub(super) fn retire_worn(&self, drive: DriveId) {
        self.start_with(move |handle, context| async move {
            match context.catalog.retire_drive(drive, (context.wall)()).await {
                Ok(()) => {
                    tracing::warn!(%drive, "a drive wears out; its data moves to the other drives of its group");
                    handle.report(Event::DriveRetiring { drive });
                }
                Err(error) => tracing::error!(%drive, %error, "cannot record that a drive wears out"),
            }
        });
    }
}

/// Records the health of `drive`. `None` if that fails: it is not acted upon, since it would be unknown after a
/// restart.
async fn remembered(context: &Context, drive: DriveId, said: Smart) -> Option<DriveHealth> {
    let (read_ms, read_ns) = ((context.wall)(), context.clock.now().as_nanos());
    let health = DriveHealth { drive: drive.0, read_ms, read_ns, first_bad_sectors: 0, said };
    match context.catalog.put_drive_health(health).await {
        Ok(health) => {
            let (first, bad) = (health.first_bad_sectors, health.said.bad_sectors().unwrap_or(0));
            if bad > first {
                tracing::warn!(%drive, first, bad, "a drive has more bad sectors than when it was first queried");
            }
            if health.said.predicts_failure == Some(true) {
                tracing::warn!(%drive, "a drive expects to fail");
            }
            Some(health)
        }
        Err(error) => {
            tracing::error!(%drive, %error, "cannot record the health of a drive");
            None
        }
    }
}
