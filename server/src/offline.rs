//! An operator's commands about drives while no server runs: they take the data directory's lock and change its
//! catalog. The next server starts with the result.
//!
//! No drive is accessed, except the directory or the disk of a drive that is replaced.

use crate::boot;
use crate::data_dir::{DataDir, fresh_label};
use crate::error::ServerError;
use crate::exchange::{DiskChoice, DiskReplacement};
use crate::index;
use crate::intake_log::Purpose;
use crate::replace::{self, Taken};
use crate::report::{DriveReport, FailedReport, LostReport, ReplacedReport};
use crate::status_service::may_lose;
use crate::upgrade::upgrade;
use catalog::{Catalog, SqliteOptions};
use disk::clock;
use disk::label::DriveUuid;
use engine::GroupLeft;
use engine::layout::{Layout, synthesise};
use futures::future::BoxFuture;
use model::{DriveId, GroupId};
use std::path::Path;
use std::sync::Arc;

/// The reason that the catalog counts as older after a take-over.
const TAKEN_OVER: &str = "it took drives over that another server had used (larder take-over)";

/// Stacks per lookup.
const PAGE: usize = 1_024;

/// A data directory without a server.
pub struct Offline {
    dir: DataDir,
    catalog: Catalog,
    layout: Layout,
}

impl Offline {
    /// Opens the data directory at `path`.
    ///
    /// # Errors
    /// [`ServerError`], above all while a server runs.
    pub fn open(path: &Path) -> BoxFuture<'_, Result<Self, ServerError>> {
        // Boxed, so that it is compiled in this crate and not in its caller's; the same holds for those below.
        Box::pin(async move {
            let dir = DataDir::open(path)?;
            upgrade(&dir)?;
            // As at a start: batches that only the log has are taken from there, and a catalog that is lost, damaged or
            // older is made again if possible.
            let sequence_min = boot::numbers_from(clock::wall_ms());
            let options = SqliteOptions { sequence_min, retains_log: true, ..SqliteOptions::default() };
            let (store, _) = index::open(&dir, Purpose::default(), options).await?;
            let catalog = Catalog::open(Arc::new(store)).await?;
            boot::refuse_another_racks(&catalog, dir.rack_uuid()).await?;
            dir.give_what_root_made()?;
            let layout = synthesise(dir.rack())?;
            Ok(Self { dir, catalog, layout })
        })
    }

    /// Takes over the drives that other servers have marked, for the data directory at `path`. Its catalog counts as
    /// older than the rack from then on, so the server does not remove data that only another catalog knows.
    ///
    /// # Errors
    /// [`ServerError`], above all while a server runs.
    pub fn take_over(path: &Path) -> BoxFuture<'_, Result<(), ServerError>> {
        Box::pin(async move {
            DataDir::open(path)?.take_over()?;
            let offline = Self::open(path).await?;
            Ok(offline.catalog.set_found_older(Some(TAKEN_OVER)).await?)
        })
    }

    /// Records that drive `drive` failed permanently; `None` if there is no such drive. Repeating it is no error.
    ///
    /// # Errors
    /// [`ServerError`]; also if blobs may be lost by it, or too few drives would be left to rebuild, unless `force` is
    /// set.
    pub fn fail_drive(&self, drive: u32, force: bool) -> BoxFuture<'_, Result<Option<FailedReport>, ServerError>> {
        Box::pin(async move {
            let Some(drive) = self.known(drive) else { return Ok(None) };
            if !force && let Some((group, unbuilt)) = self.unbuilt(drive).await? {
                let left = self.left_without(group, drive).await?;
                let has_failed = self.catalog.failed_drives().await?.iter().any(|(failed, _)| *failed == drive);
                let too_few = || replace::leaves_too_few(group, drive, left).filter(|_| !has_failed);
                let refusal = may_lose(group, drive, &unbuilt).or_else(too_few);
                refusal.map_or(Ok(()), |refusal| Err(ServerError::Refused(refusal)))?;
            }
            let left = match self.layout.group_of(drive) {
                Some(group) => Some(self.left_without(group, drive).await?),
                None => None,
            };
            self.catalog.fail_drive(drive, clock::wall_ms()).await?;
            let lacks_drives = left.map_or(0, |left| left.lacks() as u64);
            Ok(Some(FailedReport { lacks_drives, drive: self.report(drive, "failed").await? }))
        })
    }

    /// Puts an empty directory, or the disk of this `choice`, in the place of the failed `drive`, or takes that drive
    /// itself back; `None` if there is no such drive.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn replace_drive<'a>(
        &'a self,
        drive: u32,
        choice: &'a DiskChoice,
    ) -> BoxFuture<'a, Result<Option<ReplacedReport>, ServerError>> {
        Box::pin(async move {
            let Some(drive) = self.known(drive) else { return Ok(None) };
            if !self.catalog.failed_drives().await?.iter().any(|(failed, _)| *failed == drive) {
                return Err(ServerError::Refused(replace::not_failed(drive)));
            }
            let (path, label) = self.dir.labels().swap_remove(drive.index());
            let known = self.catalog.replacements().await?.remove(&drive).map(DriveUuid);
            let taken = if replace::is_device(self.dir.rack(), drive) {
                DiskReplacement::of(&self.dir).take(drive, choice, known).map(|(taken, _)| taken)
            } else if choice.is_empty() {
                let taken = replace::take(&path, &fresh_label(label)?, known, &self.dir.claim());
                if taken.is_ok() {
                    self.dir.give_drive(&path)?;
                }
                taken
            } else {
                Err(replace::not_a_disk(drive, &path))
            };
            let taken = taken.map_err(ServerError::Refused)?;
            if matches!(taken, Taken::Another(_))
                && let Some((_, unbuilt)) = self.unbuilt(drive).await?
            {
                replace::is_needed(drive, &unbuilt).map_or(Ok(()), |refusal| Err(ServerError::Refused(refusal)))?;
            }
            taken.remember(&self.catalog, drive).await?;
            Ok(Some(taken.report(self.report(drive, "standby").await?)))
        })
    }

    /// Has the good drive `drive` emptied; `None` if there is no such drive.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn retire_drive(&self, drive: u32) -> BoxFuture<'_, Result<Option<DriveReport>, ServerError>> {
        Box::pin(async move {
            let Some(drive) = self.known(drive) else { return Ok(None) };
            let is_retiring = self.catalog.retiring_drives().await?.contains(&drive);
            if !is_retiring && self.catalog.failed_drives().await?.iter().any(|(failed, _)| *failed == drive) {
                return Err(ServerError::Refused(replace::has_failed(drive)));
            }
            self.catalog.retire_drive(drive, clock::wall_ms()).await?;
            Ok(Some(self.report(drive, "retiring").await?))
        })
    }

    /// The objects that are lost with failed drives.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn lost_objects(&self) -> BoxFuture<'_, Result<LostReport, ServerError>> {
        Box::pin(async move { Ok(LostReport::of(self.catalog.lost_objects(LostReport::NAMED_MAX).await?)) })
    }

    fn known(&self, drive: u32) -> Option<DriveId> {
        ((drive as usize) < self.dir.rack().drives.len()).then_some(DriveId(drive))
    }

    /// The other drives of the group of `drive` that failed, replaced or not, and with which living blobs have lost
    /// stacks that are not rebuilt yet, if these blobs cannot lose `drive` as well. `None` if the operator has given up
    /// `drive` before.
    async fn unbuilt(&self, drive: DriveId) -> Result<Option<(GroupId, Vec<u32>)>, ServerError> {
        let has_failed = self.catalog.failed_drives().await?.iter().any(|(failed, _)| *failed == drive);
        let is_given_up = has_failed && !self.catalog.given_up_drives().await?.contains(&drive);
        let Some(group) = self.layout.group_of(drive).filter(|_| !is_given_up) else { return Ok(None) };
        let mut unbuilt = Vec::new();
        for other in self.layout.groups[group.index()].drives.iter().filter(|other| **other != drive) {
            if self.catalog.lost_beside(*other, drive).await?.needed {
                unbuilt.push(other.0);
            }
        }
        Ok(Some((group, unbuilt)))
    }

    /// The rest of `group` without `drive`.
    async fn left_without(&self, group: GroupId, drive: DriveId) -> Result<GroupLeft, ServerError> {
        let failed: Vec<DriveId> = self.catalog.failed_drives().await?.into_iter().map(|(failed, _)| failed).collect();
        let retiring = self.catalog.retiring_drives().await?;
        let is_in_service = |member: DriveId| !failed.contains(&member) && !retiring.contains(&member);
        let members = &self.layout.groups[group.index()].drives;
        Ok(GroupLeft::without(drive, members, self.dir.rack().code, is_in_service))
    }

    async fn report(&self, drive: DriveId, state: &str) -> Result<DriveReport, ServerError> {
        let (rack, config) = (self.dir.rack(), self.dir.config()?);
        let today = boot::modelled_now(&self.catalog, clock::wall_ms(), config.time_scale).await?.day();
        let record = self.catalog.drive(drive).await?;
        let starts_total = record.as_ref().map_or(0, |record| record.starts_total);
        let record = record.filter(|record| record.day >= today);
        let capacity_bytes = rack.capacity_bytes(drive);
        Ok(DriveReport {
            drive: drive.0,
            slot: rack.drive(drive).slot,
            group: self.layout.group_of(drive).map(|group| group.0),
            state: state.into(),
            starts_today: record.map_or(0, |record| record.starts),
            starts_per_day: config.rack_policy(rack).starts_per_day,
            free_bytes: capacity_bytes.saturating_sub(self.used_bytes(drive).await?),
            capacity_bytes,
            missed_deadlines: 0,
            reason: None,
            starts_total,
            rated_starts: rack.profile.rated_starts.into(),
            health: None,
            habits: None,
        })
    }

    async fn used_bytes(&self, drive: DriveId) -> Result<u64, ServerError> {
        let (mut used_bytes, mut after) = (0_u64, None);
        loop {
            let page = self.catalog.on_drive_page(drive, after, PAGE).await?;
            for (blob, _) in &page.blobs {
                used_bytes = used_bytes.saturating_add(blob.stack_bytes);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let lost_bytes = self.catalog.lost_on_replaced().await?.get(&drive).copied().unwrap_or(0);
        Ok(used_bytes.saturating_sub(lost_bytes))
    }
}
