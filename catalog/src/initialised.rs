//! The drives that were part of their group's initialisation: started and mounted for the first time, with checked
//! labels.
//!
//! They are recorded so that a start of the server wakes no group again for it. When another drive takes the place of
//! one that failed, its entry is removed in the same batch. One record has all drives; if it is damaged, none are
//! known, and every group is initialised once more, which does no harm.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::store::{Batch, Check, Write};
use model::DriveId;
use std::collections::{BTreeMap, BTreeSet};

/// Time at which a drive's group was initialised with it, in milliseconds of the Unix epoch, by the number of its
/// place.
pub(crate) type Initialised = BTreeMap<u32, u64>;

impl Catalog {
    /// Records that the group of `drives` was initialised with them at `now_ms`, in milliseconds of the Unix epoch.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Conflict`].
    pub async fn note_initialised(&self, drives: &[DriveId], now_ms: u64) -> Result<(), CatalogError> {
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let note = |known: &mut Initialised| known.extend(drives.iter().map(|drive| (drive.0, now_ms)));
            let (check, write) = self.change_of_initialised(note).await?;
            if self.apply(Batch::new(vec![check], vec![write])).await? {
                return Ok(());
            }
        }
    }

    /// The drives whose group was initialised with them, and that were not replaced since.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn initialised_drives(&self) -> Result<BTreeSet<DriveId>, CatalogError> {
        let known: Initialised = self.look_up_one(&initialised()).await?.unwrap_or_default();
        Ok(known.into_keys().map(DriveId).collect())
    }

    /// A change of this record, for a batch, with a check that no other change has come first.
    pub(crate) async fn change_of_initialised(
        &self,
        change: impl FnOnce(&mut Initialised),
    ) -> Result<(Check, Write), CatalogError> {
        self.change_of(initialised(), change).await
    }
}

/// Key of the record of the initialised drives.
fn initialised() -> Vec<u8> {
    key::meta("initialised-drives")
}
