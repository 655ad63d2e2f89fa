//! The power of the pool's drives: commands in their own tasks, and callers that wait for a drive to start.
//!
//! A drive that is a whole disk gets the commands itself; the hardware emulates the power of all others.

use super::state::{World, WorldHandle};
use catalog::{Catalog, CatalogError};
use disk::device::PoolDisks;
use engine::{Event, PoolDriveAction, PoolDriveEvent};
use model::{Attempt, PoolDriveId};
use std::sync::Arc;
use std::time::Duration;

impl World {
    pub(super) fn act_on_pool_drive(&mut self, drive: PoolDriveId, action: PoolDriveAction) {
        match action {
            PoolDriveAction::Start { attempt, day, starts } => self.start_pool_drive((drive, attempt), day, starts),
            PoolDriveAction::Stop(attempt) => {
                tracing::info!(%drive, "a drive of the pool stops");
                self.pool_command((drive, attempt), false);
            }
            PoolDriveAction::Answer { awake } => {
                for answer in self.awaiting_pool.remove(&drive).unwrap_or_default() {
                    answer(awake);
                }
            }
        }
    }

    /// Starts `drive`, and records its number of starts on this day. Both run concurrently, since the record may have
    /// to be written to this very drive.
    fn start_pool_drive(&self, (drive, attempt): (PoolDriveId, Attempt), day: u32, starts: u32) {
        tracing::info!(%drive, starts, "a drive of the pool starts");
        let catalog = self.context.catalog.clone();
        self.start(async move {
            if let Err(error) = remember(&catalog, drive, day, starts).await {
                tracing::warn!(%drive, %error, "cannot record a start of a drive of the pool");
            }
        });
        self.pool_command((drive, attempt), true);
    }

    /// Sends `drive` a command, with the deadline of a drive of the rack.
    fn pool_command(&self, (drive, attempt): (PoolDriveId, Attempt), starts: bool) {
        let (clock, handle) = (Arc::clone(&self.context.clock), self.handle.clone());
        let hardware = self.hardware.clone();
        let disks = self.pool_disks.clone().filter(|disks| disks.get(drive).is_some());
        let deadlines = self.rack.drive_deadlines();
        let limit: Duration = if starts { deadlines.spin_up } else { deadlines.stop };
        self.start(async move {
            let too_late = clock.sleep_until(clock.now() + limit);
            let command = async {
                if let Some(disks) = disks {
                    let done = if starts { disks.start(drive).await } else { disks.stop(drive).await };
                    return done.map_err(|error| error.to_string());
                }
                let Some(hardware) = hardware else { return Err("its power is not controlled".to_owned()) };
                let done =
                    if starts { hardware.start_pool_drive(drive).await } else { hardware.stop_pool_drive(drive).await };
                done.map_err(|error| error.to_string())
            };
            let done = tokio::select! {
                done = command => done,
                () = too_late => Err(format!("no answer for {limit:?}")),
            };
            let event = match done {
                Ok(()) if starts => PoolDriveEvent::Started(attempt),
                Ok(()) => PoolDriveEvent::Stopped(attempt),
                Err(error) => {
                    let what = if starts { "start" } else { "stop" };
                    tracing::error!(%drive, %error, "a drive of the pool does not {what}");
                    PoolDriveEvent::Failed(attempt)
                }
            };
            handle.report(Event::PoolDrive { drive, event });
        });
    }
}

impl WorldHandle {
    /// Requests that `drive` of the pool spins. Later `answer` is called with true if it does, and false if not; it is
    /// dropped if the world ends.
    pub fn want_pool_drive(&self, drive: PoolDriveId, answer: impl FnOnce(bool) + Send + 'static) {
        self.run(move |world| {
            world.awaiting_pool.entry(drive).or_default().push(Box::new(answer));
            world.apply(Event::PoolDrive { drive, event: PoolDriveEvent::Wanted });
        });
    }

    /// From now on the world starts and stops `disks`, which are drives of the pool, and watches them while they sleep.
    pub(crate) fn control(&self, disks: Arc<PoolDisks>) {
        if disks.is_empty() {
            return;
        }
        self.run(move |world| {
            world.pool_disks = Some(Arc::clone(&disks));
            let handle = world.handle.clone();
            world.start(async move {
                loop {
                    let drive = disks.found_spinning().await;
                    handle.report(Event::PoolDrive { drive, event: PoolDriveEvent::Spins });
                }
            });
        });
    }
}

/// The key under which the catalog stores the starts of `drive` on the last day with any.
fn name(drive: PoolDriveId) -> String {
    format!("pool-starts-{}", drive.0)
}

async fn remember(catalog: &Catalog, drive: PoolDriveId, day: u32, starts: u32) -> Result<(), CatalogError> {
    catalog.meta_put(&name(drive), [day.to_le_bytes(), starts.to_le_bytes()].concat()).await
}

/// Counts a start of `drive` on `day` that happened before there was an engine to ask for it.
pub(crate) async fn count_start(catalog: &Catalog, drive: PoolDriveId, day: u32) -> Result<(), CatalogError> {
    let known = catalog.meta_get(&name(drive)).await?;
    let starts = known.as_deref().and_then(parsed).filter(|(of, _)| *of >= day).unwrap_or((day, 0));
    remember(catalog, drive, starts.0, starts.1.saturating_add(1)).await
}

/// A recorded day and its starts.
fn parsed(known: &[u8]) -> Option<(u32, u32)> {
    let (day, starts) = known.split_first_chunk()?;
    Some((u32::from_le_bytes(*day), u32::from_le_bytes(starts.try_into().ok()?)))
}

/// Events with the recorded starts of the pool's drives; `drives` is their number.
pub(crate) async fn reported(catalog: &Catalog, drives: usize) -> Result<Vec<Event>, CatalogError> {
    let mut events = Vec::new();
    for drive in (0..drives as u32).map(PoolDriveId) {
        let known = catalog.meta_get(&name(drive)).await?;
        let Some((day, starts)) = known.as_deref().and_then(parsed) else { continue };
        events.push(Event::PoolDrive { drive, event: PoolDriveEvent::Reported { day, starts } });
    }
    Ok(events)
}
