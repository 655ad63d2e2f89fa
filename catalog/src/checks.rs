//! The progress of the checks of staged versions.
//!
//! One record, written while the checks run. If it is damaged, no progress is known, and a pass begins at the first
//! version.

use crate::catalog::{Catalog, Cursor};
use crate::error::CatalogError;
use crate::key;
use crate::record::{Version, encode};
use serde::{Deserialize, Serialize};

/// The progress of a pass of checks. Times are modelled time, in nanoseconds since the rack was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksRecord {
    /// Start of the pass.
    pub begun_ns: u64,
    /// End of the pass, if it has ended.
    pub ended_ns: Option<u64>,
    /// End of the last pass that reached its end.
    pub last_ended_ns: Option<u64>,
    /// Versions checked.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Damaged versions.
    pub damaged: u64,
    /// The staged version after which the pass resumes; `None` for the first one.
    pub behind: Option<Cursor>,
}

impl Cursor {
    /// The position after `version` in a listing of [`Catalog::staged_page`].
    pub fn behind_staged(version: &Version) -> Self {
        Self(key::staged(&version.bucket, &version.key))
    }
}

impl Catalog {
    /// The progress of the last pass of checks, if there was a pass.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn checks(&self) -> Result<Option<ChecksRecord>, CatalogError> {
        self.look_up_one(&at()).await
    }

    /// Records the progress of a pass of checks.
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
