//! What drives said of their own health when they were last asked: so that it can be shown while they sleep, and so
//! that counts which rise are known to do so after a restart.
//!
//! A record for each drive that ever said something, by its number; it goes when another drive takes its place. One
//! that is damaged, or of a later version, counts as missing: the drive is asked anew, and its counts are the first
//! ones then.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{encode, value};
use crate::store::Write;
use model::{DriveId, Smart};
use serde::{Deserialize, Serialize};

/// What a drive said of its health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveHealth {
    /// Which drive.
    pub drive: u32,
    /// When it was asked, in milliseconds of the Unix epoch.
    pub read_ms: u64,
    /// The same in modelled time, in nanoseconds.
    pub read_ns: u64,
    /// Bad sectors, reallocated or pending, when it was asked first.
    pub first_bad_sectors: u64,
    /// What it said.
    pub said: Smart,
}

/// The record, by its version.
#[derive(Serialize, Deserialize)]
enum Versioned {
    V1(DriveHealth),
}

impl Catalog {
    /// Stores what a drive said, in place of what it said before; but the first count of bad sectors stays.
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

    /// What every drive said that ever said something, by their numbers.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn drive_healths(&self) -> Result<Vec<DriveHealth>, CatalogError> {
        let read = |entry: &_| Ok(value::<Versioned>(entry).ok().map(|Versioned::V1(health)| health));
        Ok(self.all_entries(&key::meta(HEALTH), read).await?.into_iter().flatten().collect())
    }

    /// Another drive takes the place of `drive`: what to write along with that, if there is something.
    pub(crate) async fn forget_health(&self, drive: DriveId) -> Result<Option<Write>, CatalogError> {
        let at = health_of(drive);
        Ok(self.store.get(&at).await?.map(|_| Write::Delete(at)))
    }
}

const HEALTH: &str = "drive-health/";

/// Where what `drive` said is.
fn health_of(drive: DriveId) -> Vec<u8> {
    key::meta(&format!("{HEALTH}{:08x}", drive.0))
}
