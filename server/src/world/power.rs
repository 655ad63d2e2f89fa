//! Power commands: each in its own task, so that all drives of a group start together.

use super::newer;
use super::returned;
use super::state::World;
use crate::context::{Context, WorldCounters};
use catalog::{Catalog, CatalogError, DriveRecord};
use disk::label::{self, DriveUuid};
use disk::{Drive, DriveError};
use engine::{Action, DrivePhase, Event, Loss};
use futures::future::FutureExt;
use model::sabotage::{Sabotage, is_on};
use model::{Attempt, DriveId, GroupId};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl World {
    /// Persists the starts that `actions` report, all in one batch; the spin-ups wait for it.
    pub(super) fn persist_starts(&mut self, actions: &mut Vec<Action>) {
        let mut records = Vec::new();
        actions.retain(|action| match action {
            Action::PersistStarts { drive, day, starts } => {
                records.push((*drive, *day, *starts));
                false
            }
            _ => true,
        });
        if records.is_empty() || is_on(Sabotage::StartsNotRemembered) {
            return;
        }
        let (catalog, earlier) = (self.context.catalog.clone(), self.starts_persisted.clone());
        let persisted = async move {
            // A drive whose start was given up may be started again before the first start is recorded.
            earlier.await;
            let all = records.into_iter().map(|(drive, day, starts)| remember(&catalog, drive, day, starts));
            // The count protects against wear, not against loss: clients do not wait for a catalog that cannot record
            // it.
            if let Err(error) = futures::future::try_join_all(all).await {
                tracing::error!(
                    %error,
                    "cannot record starts of drives; after a restart the day's budget may be exceeded"
                );
            }
        };
        self.starts_persisted = persisted.boxed().shared();
        let waiting = self.starts_persisted.clone();
        self.start(waiting);
    }

    /// Records that `group` was initialised with `drives`. Nothing waits for it: if it is not recorded, the next start
    /// of the server wakes the group once more.
    pub(super) fn persist_initialised(&self, group: GroupId, drives: Vec<DriveId>) {
        let (catalog, now_ms) = (self.context.catalog.clone(), (self.context.wall)());
        self.start(async move {
            if let Err(error) = catalog.note_initialised(&drives, now_ms).await {
                tracing::warn!(%group, %error, "cannot record that a group was initialised");
            }
        });
    }

    pub(super) fn spin_up(&self, drive: DriveId, attempt: Attempt) {
        let (persisted, last) = (self.starts_persisted.clone(), Arc::clone(&self.last_commands));
        let handle = self.handle.clone();
        let command = PowerCommand { drive, attempt, name: "start", loss: Loss::SpinUpFailed };
        self.command(command, move |device, _| async move {
            persisted.await;
            // The engine may have given up this start, and passed on the drive's permits: then it gave the drive
            // another command, or none if the drive was away meanwhile and has stopped.
            let starts = handle.ask(move |rack, _| rack.drive_phase(drive) == DrivePhase::SpinningUp).await;
            if starts != Some(true) || last[drive.index()].load(Ordering::Relaxed) != attempt.0 {
                tracing::warn!(%drive, "a start was cancelled before it could be recorded, and is not made");
                return Ok(None);
            }
            device.spin_up().await.map(|()| Some(Event::SpunUp { drive, attempt }))
        });
    }

    pub(super) fn mount(&self, drive: DriveId, attempt: Attempt) {
        let command = PowerCommand { drive, attempt, name: "mount", loss: Loss::MountFailed };
        let aiming = Arc::clone(&self.aiming);
        // It was given up, and this mount is only a trial.
        let recognised = self.rack.has_failed(drive).then(|| Arc::clone(&self.recognised));
        self.command(command, move |device, context| async move {
            let space = device.mount().await?;
            is_not_replaced(&context, drive, &*device).await?;
            if let Some(recognised) = recognised {
                let uuid = label::uuid_of(&*device).await?;
                recognised.lock().insert(drive, uuid);
                return Ok(Some(Event::Mounted { drive, attempt, free_bytes: space.free_bytes }));
            }
            context.counters.absences.note(drive, None);
            // This comes before anything of the group can be removed.
            newer::look(&context, drive, &*device).await;
            (context.spawn.clone())(Box::pin(returned::sweep(context, aiming, drive, device)));
            Ok(Some(Event::Mounted { drive, attempt, free_bytes: space.free_bytes }))
        });
    }

    pub(super) fn unmount(&self, drive: DriveId, attempt: Attempt) {
        let command = PowerCommand { drive, attempt, name: "unmount", loss: Loss::MountFailed };
        self.command(command, move |device, _| async move {
            device.unmount().await.map(|()| Some(Event::Unmounted { drive, attempt }))
        });
    }

    pub(super) fn stop(&self, drive: DriveId, attempt: Attempt) {
        let command = PowerCommand { drive, attempt, name: "stop", loss: Loss::MountFailed };
        self.command(command, move |device, _| async move {
            device.stop().await.map(|()| Some(Event::Stopped { drive, attempt }))
        });
    }

    /// Sends a drive a command and reports its outcome, unless the command was given up meanwhile.
    fn command<Answer>(
        &self,
        command: PowerCommand,
        give: impl FnOnce(Arc<dyn Drive>, Context) -> Answer + Send + 'static,
    ) where
        Answer: Future<Output = Result<Option<Event>, DriveError>> + Send,
    {
        self.last_commands[command.drive.index()].store(command.attempt.0, Ordering::Relaxed);
        let (handle, device, context) = (self.handle.clone(), self.drive(command.drive), self.context.clone());
        self.start(async move {
            let answer = give(device, context.clone()).await;
            let event = answer.unwrap_or_else(|error| Some(failed(&context.counters, &command, &error)));
            if let Some(event) = event {
                handle.report(event);
            }
        });
    }
}

async fn remember(catalog: &Catalog, drive: DriveId, day: u32, starts: u32) -> Result<(), CatalogError> {
    let before = catalog.drive(drive).await?;
    // A start that was counted but could not be recorded still belongs to the day.
    let starts_total = (before.map_or(0, |record| record.starts_total) + 1).max(u64::from(starts));
    catalog.drive_put(&DriveRecord { drive, day, starts, starts_total }).await
}

/// Rejects a failed drive that was replaced: its stacks do not count, and it lacks those that were written since.
async fn is_not_replaced(context: &Context, drive: DriveId, device: &dyn Drive) -> Result<(), DriveError> {
    let known = context.catalog.replacements().await.map_err(|error| DriveError::Io {
        context: "asking the catalog which drive belongs here".into(),
        source: io::Error::other(error),
    })?;
    match known.get(&drive) {
        Some(uuid) => label::check_replacement(device, DriveUuid(*uuid)).await,
        None => Ok(()),
    }
}

/// A command that a drive did not carry out.
struct PowerCommand {
    drive: DriveId,
    attempt: Attempt,
    /// For the log.
    name: &'static str,
    /// The loss, if the error itself does not determine one.
    loss: Loss,
}

fn failed(counters: &WorldCounters, command: &PowerCommand, error: &DriveError) -> Event {
    let PowerCommand { drive, attempt, name, loss: otherwise } = *command;
    let (loss, fix) = match error {
        DriveError::FuseTripped { .. } => (Loss::FuseTripped, None),
        DriveError::Owner(_) => (Loss::ForeignLabel, None),
        DriveError::Label(_) => (Loss::ForeignLabel, Some("put this rack's own drive there")),
        DriveError::NoAnswer(_) => (Loss::NoAnswer, Some("check its cable, its slot and the drive itself")),
        DriveError::TooManyOpenFiles => (Loss::NotAsked, None),
        // The drive draws no power, which no other error of a stop shows.
        DriveError::Gone(_) if name == "stop" => (Loss::Died, None),
        DriveError::Gone(_) => (otherwise, Some("check its cable, its slot and its power")),
        DriveError::Medium { .. } | DriveError::ReadOnly { .. } => (otherwise, Some("check the drive itself")),
        DriveError::Power(_) => (otherwise, Some("see its state with `larder drive power`")),
        _ => (otherwise, Some("check its cable, slot and file system")),
    };
    let fix = fix.map_or_else(String::new, |fix| {
        format!("; {fix} (the next try notices a repaired drive), or give it up with `larder drive fail {}`", drive.0)
    });
    tracing::error!(%drive, "drive would not {name}: {error}{fix}");
    // A drive that cannot be unmounted was not mounted, and the log has the reason for that. A shortage of descriptors
    // is not the drive's fault.
    if matches!(name, "start" | "mount") && loss != Loss::NotAsked {
        let reason = match error {
            // The status has one warning with the fix for all these drives.
            DriveError::Owner(why) => why.short(),
            _ => format!("{error}{fix}"),
        };
        counters.absences.note(drive, Some(reason));
    }
    Event::DriveCommandFailed { drive, attempt, loss }
}
