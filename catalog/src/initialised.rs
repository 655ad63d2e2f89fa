//! The drives that their group was initialised with: started and mounted for the first time, and their labels checked.
//!
//! They are remembered so that a start of the server wakes no group for what was found out before. A drive that takes
//! the place of one that failed is forgotten along with that. One record names them all; if it is damaged, nothing is
//! known of any, and every group is initialised once more, which does no harm.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::store::{Batch, Check, Write};
use model::DriveId;
use std::collections::{BTreeMap, BTreeSet};

/// By the number of its place, when the group of each drive was initialised with it, in milliseconds of the Unix epoch.
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

    /// A change of what is remembered, for a batch, with the check that nobody else has changed it meanwhile.
    pub(crate) async fn change_of_initialised(
        &self,
        change: impl FnOnce(&mut Initialised),
    ) -> Result<(Check, Write), CatalogError> {
        self.change_of(initialised(), change).await
    }
}

/// Where the drives are named that their groups were initialised with.
fn initialised() -> Vec<u8> {
    key::meta("initialised-drives")
}
