//! The operator's commands about drives: one is given up permanently, another takes its place.

use super::StatusService;
use super::snapshot::drive_report;
use crate::admin::AdminError;
use crate::data_dir::fresh_label;
use crate::error::text;
use crate::exchange::DiskChoice;
use crate::replace::{self, Taken};
use crate::report::{DriveReport, FailedReport, LostReport, ReplacedReport};
use disk::clock;
use disk::label::DriveUuid;
use engine::{Event, Rack, RebuildView};
use model::{DriveId, GroupId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The interval of checks whether a drive may be replaced, in wall time.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl StatusService {
    /// Gives up `drive` permanently, unless blobs may be lost by that and `force` is not set.
    pub(super) async fn fail(&self, drive: DriveId, force: bool) -> Result<Option<FailedReport>, AdminError> {
        if drive.index() >= self.context.drives.len() {
            return Ok(None);
        }
        if !force && let Some((group, unbuilt)) = self.unbuilt(drive).await? {
            let left = move |rack: &Rack, _| rack.left_without(drive).filter(|_| !rack.has_failed(drive));
            let left = self.look(left).await?;
            let too_few = || left.and_then(|left| replace::leaves_too_few(group, drive, left));
            let refusal = may_lose(group, drive, &unbuilt).or_else(too_few);
            refusal.map_or(Ok(()), |refusal| Err(AdminError::Because(refusal)))?;
        }
        // Recorded first: what the rack acts upon must hold after a crash as well.
        let now_ms = (self.context.wall)();
        self.context.catalog.fail_drive(drive, now_ms).await?;
        // One at a time, so that it is reported once: to the engine, a second report means that the drive was pulled
        // and takes no power any more. The catalog's answer is not enough for that: it may have recorded the failure
        // without an answer.
        let _turn = self.replacing.lock().await;
        // A drive that the rack gave up by itself may still spin: the operator's command means that it was pulled.
        if self.look(move |rack, _| !rack.has_failed(drive) || rack.gave_up(drive)).await? {
            tracing::warn!(%drive, "the operator declared a drive permanently failed; its data is rebuilt");
            self.world.report(Event::DriveFailed { drive, pulled: true });
            self.context.counters.forget_reasons(drive);
        }
        let report = move |rack: &Rack, now| FailedReport {
            lacks_drives: rack.left_without(drive).map_or(0, |left| left.lacks() as u64),
            drive: drive_report(rack, drive, now, &BTreeMap::new()),
        };
        self.look(report).await.map(Some)
    }

    /// The other drives of the group of `drive` on which blobs lack stacks that cannot lose `drive` as well, by engine
    /// and catalog: blobs that are dead, or have no stack on `drive`, do not count. `None` if the operator has given up
    /// `drive` before.
    async fn unbuilt(&self, drive: DriveId) -> Result<Option<(GroupId, Vec<u32>)>, AdminError> {
        let found = self.look(move |rack, _| {
            let is_given_up = rack.has_failed(drive) && !rack.gave_up(drive);
            let group = rack.layout().group_of(drive).filter(|_| !is_given_up)?;
            let others = rack.rebuilds().filter(|view| view.group == group && view.drive != drive);
            // The engine may count too few bytes on a drive that failed: only the catalog knows that nothing is left.
            let may_lack = |view: &RebuildView| view.left_bytes > 0 || rack.has_failed(view.drive);
            // The stacks of a good drive that retires are not lost, even if it is away just now.
            let left = others.filter(may_lack).map(|view| (view.drive, view.left_bytes, view.retires));
            let left: Vec<_> = left.collect();
            Some((rack.spec().code, group, left))
        });
        let Some((code, group, left)) = found.await? else { return Ok(None) };
        let (mut needing, mut unknown) = (Vec::new(), Vec::new());
        for (other, left_bytes, retires) in left {
            let lost = self.context.catalog.lost_beside(other, drive).await?;
            if lost.needed {
                needing.push(other.0);
            } else if lost.bytes < left_bytes && !retires {
                unknown.push(other.0); // the catalog does not know its stacks yet: they are being written
            }
        }
        let too_many = unknown.len() >= usize::from(code.parity);
        needing.extend(unknown.into_iter().filter(|_| too_many));
        Ok(Some((group, needing)))
    }

    /// Has the good drive `drive` emptied.
    pub(super) async fn retire(&self, drive: DriveId) -> Result<Option<DriveReport>, AdminError> {
        if drive.index() >= self.context.drives.len() {
            return Ok(None);
        }
        let _turn = self.replacing.lock().await;
        if self.look(move |rack, _| rack.has_failed(drive) && !rack.is_retiring(drive)).await? {
            return Err(AdminError::Because(replace::has_failed(drive)));
        }
        // Recorded first: what the rack acts upon must hold after a crash as well.
        self.context.catalog.retire_drive(drive, (self.context.wall)()).await?;
        tracing::info!(%drive, "the operator retires a drive; its data moves to the other drives of its group");
        self.world.report(Event::DriveRetiring { drive });
        self.context.counters.refused_writes.note(drive, None);
        self.look(move |rack, now| drive_report(rack, drive, now, &BTreeMap::new())).await.map(Some)
    }

    /// The objects that are lost.
    pub(super) async fn lost(&self) -> Result<LostReport, AdminError> {
        Ok(LostReport::of(self.context.catalog.lost_objects(LostReport::NAMED_MAX).await?))
    }

    /// Takes the empty directory in the place of the failed `drive`, or the chosen disk, or that drive itself if it is
    /// back.
    pub(super) async fn replace(
        &self,
        drive: DriveId,
        choice: DiskChoice,
    ) -> Result<Option<ReplacedReport>, AdminError> {
        let Some((path, label)) = self.places.get(drive.index()).cloned() else { return Ok(None) };
        if self.look(move |rack, _| replace::is_device(rack.spec(), drive)).await? {
            return self.replace_with(drive, self.disk_taken(drive, choice)).await.map(Some);
        }
        if !choice.is_empty() {
            return Err(AdminError::Because(replace::not_a_disk(drive, &path)));
        }
        let labelled = async {
            let known = self.context.catalog.replacements().await.map_err(text)?.remove(&drive).map(DriveUuid);
            let claim = self.notices.claim.clone().ok_or("this server has no data directory")?;
            let take = move || replace::take(&path, &fresh_label(label).map_err(text)?, known, &claim);
            tokio::task::spawn_blocking(take).await.unwrap_or_else(|error| Err(error.to_string()))
        };
        self.replace_with(drive, labelled).await.map(Some)
    }

    /// Waits until no work that started on `drive` before it failed is under way, so that another drive may take its
    /// place; for `wait` at most, of wall time. Returns at once for a drive that has not failed.
    pub(super) async fn await_end_of_work(&self, drive: DriveId, wait: Duration) -> Result<(), AdminError> {
        let end = clock::monotonic() + wait;
        while self.look(move |rack, _| rack.has_failed(drive)).await?
            && !self.world.may_be_replaced(drive).await
            && clock::monotonic() < end
        {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Makes the chosen disk `drive`.
    async fn disk_taken(&self, drive: DriveId, choice: DiskChoice) -> Result<Taken, String> {
        let exchange = self.exchange.clone().ok_or("this server has no disks")?;
        let known = self.context.catalog.replacements().await.map_err(text)?.remove(&drive).map(DriveUuid);
        let take = move || exchange.take(drive, &choice, known);
        let done = tokio::task::spawn_blocking(take).await.unwrap_or_else(|error| Err(error.to_string()));
        let (taken, link) = done?;
        self.hardware.use_disk(drive, &link).await;
        Ok(taken)
    }

    /// Takes the drive that is in the place of the failed `drive`, once `labelled` has found out which one that is, and
    /// has made a drive of it.
    ///
    /// # Errors
    /// [`AdminError`], with the objections.
    pub async fn replace_with(
        &self,
        drive: DriveId,
        labelled: impl Future<Output = Result<Taken, String>>,
    ) -> Result<ReplacedReport, AdminError> {
        let number = drive.0;
        // One at a time, so that no command writes where another has just looked.
        let _turn = self.replacing.lock().await;
        if !self.look(move |rack, _| rack.has_failed(drive)).await? {
            return Err(AdminError::Because(replace::not_failed(drive)));
        }
        if !self.world.may_be_replaced(drive).await {
            return Err(AdminError::Because(format!(
                "drive {number} is still in use: its group has not stopped since it failed. Run this again when its \
                 group sleeps, which `larder status` shows, or with a longer --wait"
            )));
        }
        let taken = labelled.await.map_err(AdminError::Because)?;
        if matches!(taken, Taken::Another(_))
            && let Some((_, unbuilt)) = self.unbuilt(drive).await?
        {
            replace::is_needed(drive, &unbuilt).map_or(Ok(()), |refusal| Err(AdminError::Because(refusal)))?;
        }
        // Recorded first: what the rack acts upon must hold after a crash as well.
        let Some(lost_bytes) = taken.remember(&self.context.catalog, drive).await? else {
            return Err(AdminError::Because(replace::not_failed(drive)));
        };
        self.context.counters.forget_reasons(drive);
        self.hardware.replace(drive);
        self.world.report(match taken {
            Taken::Another(_) => {
                tracing::info!(%drive, "another drive replaced a failed one");
                Event::DriveReplaced { drive, lost_bytes }
            }
            Taken::Itself(_) => {
                tracing::info!(%drive, "a failed drive is back; it is searched for stacks that are still needed");
                Event::DriveReturned { drive, lost_bytes }
            }
        });
        let report = self.look(move |rack, now| drive_report(rack, drive, now, &BTreeMap::new())).await?;
        Ok(taken.report(report))
    }
}

/// The refusal to give up `drive`, because blobs may be lost: they have lost stacks with other drives of its group
/// (`unbuilt`) that are not rebuilt, and cannot lose one more. A failed drive is never read again, not even where
/// nothing else is left.
pub(crate) fn may_lose(group: GroupId, drive: DriveId, unbuilt: &[u32]) -> Option<String> {
    (!unbuilt.is_empty()).then(|| {
        format!(
            "drives {unbuilt:?} of group {group} failed as well and are not rebuilt yet: without drive {drive}, blobs \
             would be lost. Wait until `larder status` shows no rebuild in the group, or use --force if \
             drive {drive} cannot be read"
        )
    })
}
