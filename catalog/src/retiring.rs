//! Good drives that the operator wants to empty, or that were emptied.
//!
//! Each is remembered until another drive takes its place. One that has also failed was emptied before, or failed on
//! the way. One record has all drives; if it is damaged, none are known, and the operator repeats the request.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::failed::OnDrive;
use crate::key;
use crate::store::{Batch, Check, Write};
use model::{BlobId, DriveId};
use std::collections::BTreeMap;

/// Time of the operator's request, in milliseconds of the Unix epoch, by the number of the drive's place.
type Retiring = BTreeMap<u32, u64>;

impl Catalog {
    /// Records that `drive` must be emptied since `now_ms`, in milliseconds of the Unix epoch. Repeating changes
    /// nothing.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Conflict`].
    pub async fn retire_drive(&self, drive: DriveId, now_ms: u64) -> Result<(), CatalogError> {
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let note = |known: &mut Retiring| {
                known.entry(drive.0).or_insert(now_ms);
            };
            let (check, write) = self.change_of_retiring(note).await?;
            if self.apply(Batch::new(vec![check], vec![write])).await? {
                return Ok(());
            }
        }
    }

    /// The drives that must be emptied or were, and that no other drive has replaced.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn retiring_drives(&self) -> Result<Vec<DriveId>, CatalogError> {
        let known: Retiring = self.look_up_one(&retiring()).await?.unwrap_or_default();
        Ok(known.into_keys().map(DriveId).collect())
    }

    /// A page of the blobs whose stack on `drive` is lost ([`Catalog::lost_page`]); if the drive must be emptied, of
    /// all blobs with a stack there.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn leaving_page(
        &self,
        drive: DriveId,
        after: Option<BlobId>,
        limit: usize,
    ) -> Result<OnDrive, CatalogError> {
        if self.retiring_drives().await?.contains(&drive) {
            return self.on_drive_page(drive, after, limit).await;
        }
        self.lost_page(drive, after, limit).await
    }

    /// A change of this record, for a batch, with a check that no other change has come first.
    pub(crate) async fn change_of_retiring(
        &self,
        change: impl FnOnce(&mut Retiring),
    ) -> Result<(Check, Write), CatalogError> {
        self.change_of(retiring(), change).await
    }
}

/// Key of the record of these drives.
fn retiring() -> Vec<u8> {
    key::meta("retiring-drives")
}
