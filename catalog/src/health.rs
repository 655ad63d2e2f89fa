//! The last health reports of drives. They can be shown while the drives sleep, and rising counts are recognised after
//! a restart.
//!
//! One record for each drive that ever reported, by its number; it is deleted when another drive takes its place. A
//! record that is damaged or of a later version counts as missing: the drive is asked again, and the counts of that
//! report then count as the first ones.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{encode, value};
use crate::store::Write;
use model::{DriveId, Smart};
use serde::{Deserialize, Serialize};

/// The health of a drive, as the drive reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveHealth {
    /// The drive's number.
    pub drive: u32,
    /// Time of the report, in milliseconds of the Unix epoch.
    pub read_ms: u64,
    /// The same in modelled time, in nanoseconds.
    pub read_ns: u64,
    /// Bad sectors, reallocated or pending, in its first report.
    pub first_bad_sectors: u64,
    /// The report.
    pub said: Smart,
}

/// The record, by its version.
#[derive(Serialize, Deserialize)]
enum Versioned {
    V1(DriveHealth),
}

impl Catalog {
    /// Stores a drive's report in place of the last one; the first count of bad sectors stays.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn put_drive_health(&self, mut health: DriveHealth) -> Result<DriveHealth, CatalogError> {
        let at = health_of(DriveId(health.drive));
        let before: Option<Versioned> = self.look_up_one(&at).await?;
        let first =
            before.and_then(|Versioned::V1(before)| before.said.bad_sectors().map(|_| before.first_bad_sectors));
        health.first_bad_sectors = first.or(health.said.bad_sectors()).unwrap_or(0);
        self.put(at, encode(&Versioned::V1(health.clone()))).await?;
        Ok(health)
    }

    /// The last report of every drive that ever reported, by number.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn drive_healths(&self) -> Result<Vec<DriveHealth>, CatalogError> {
        let read = |entry: &_| Ok(value::<Versioned>(entry).ok().map(|Versioned::V1(health)| health));
        Ok(self.all_entries(&key::meta(HEALTH), read).await?.into_iter().flatten().collect())
    }

    /// The deletion to commit when another drive takes the place of `drive`, if there is a record.
    pub(crate) async fn forget_health(&self, drive: DriveId) -> Result<Option<Write>, CatalogError> {
        let at = health_of(drive);
        Ok(self.store.get(&at).await?.map(|_| Write::Delete(at)))
    }
}

const HEALTH: &str = "drive-health/";

/// Key of the health of `drive`.
fn health_of(drive: DriveId) -> Vec<u8> {
    key::meta(&format!("{HEALTH}{:08x}", drive.0))
}
