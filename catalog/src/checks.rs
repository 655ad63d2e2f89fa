//! How far the checks of staged versions have come.
//!
//! One record, written as they go on. If it is damaged nothing is known of any, and a pass begins at the first version.

use crate::catalog::{Catalog, Cursor};
use crate::error::CatalogError;
use crate::key;
use crate::record::{Version, encode};
use serde::{Deserialize, Serialize};

/// How far a pass of checks has come. Moments are modelled time, in nanoseconds since the rack came into being.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksRecord {
    /// When it began.
    pub begun_ns: u64,
    /// When it ended, if it has.
    pub ended_ns: Option<u64>,
    /// When the last one ended that was read to its end.
    pub last_ended_ns: Option<u64>,
    /// Versions that were checked.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them that were damaged.
    pub damaged: u64,
    /// Behind which staged version it goes on; at the first one, if `None`.
    pub behind: Option<Cursor>,
}

impl Cursor {
    /// Behind `version` in a listing of [`Catalog::staged_page`].
    pub fn behind_staged(version: &Version) -> Self {
        Self(key::staged(&version.bucket, &version.key))
    }
}

impl Catalog {
    /// How far the last pass of checks had come, if there was one.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn checks(&self) -> Result<Option<ChecksRecord>, CatalogError> {
        self.look_up_one(&at()).await
    }

    /// Records how far a pass of checks has come.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn note_checks(&self, record: &ChecksRecord) -> Result<(), CatalogError> {
        self.put(at(), encode(record)).await
    }
}

fn at() -> Vec<u8> {
    key::meta("workshop-checks")
}
