//! The power habits of drives: what the drives report and what was observed.
//!
//! One record for each drive that is a device, by its number; it is deleted when another drive takes its place. A
//! record that is damaged or of a later version counts as missing.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{encode, value};
use crate::store::Write;
use model::{DriveId, PowerHabits, UnaskedWake};
use serde::{Deserialize, Serialize};

/// The power habits of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveHabits {
    /// The drive's number.
    pub drive: u32,
    /// The reports of the drive and the kernel.
    pub said: PowerHabits,
    /// Number of times that it was found awake although no program had sent it anything.
    pub woke_itself: u64,
    /// Number of times that it was found awake because another program woke it.
    pub woken_by_others: u64,
    /// The last of those wakes.
    pub last_wake: Option<UnaskedWake>,
}

/// The record, by its version.
#[derive(Serialize, Deserialize)]
enum Versioned {
    V1(DriveHabits),
}

impl Catalog {
    /// Stores the report of `drive`; the observations stay. One task calls this and notes wakes.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn put_drive_habits(&self, drive: DriveId, said: PowerHabits) -> Result<(), CatalogError> {
        let before = self.drive_habits_of(drive).await?;
        let now = DriveHabits { drive: drive.0, said, ..before.clone().unwrap_or_default() };
        if before.as_ref() == Some(&now) { Ok(()) } else { self.store_habits(now).await }
    }

    /// Records that `drive` was found awake. Repeating the same wake changes nothing.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub async fn note_unasked_wake(&self, drive: DriveId, wake: UnaskedWake) -> Result<(), CatalogError> {
        let mut habits = self.drive_habits_of(drive).await?.unwrap_or_default();
        if habits.last_wake.as_ref() == Some(&wake) {
            return Ok(());
        }
        habits.drive = drive.0;
        *(if wake.by_itself { &mut habits.woke_itself } else { &mut habits.woken_by_others }) += 1;
        habits.last_wake = Some(wake);
        self.store_habits(habits).await
    }

    /// The habits of every drive that has a record, by number.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn drive_habits(&self) -> Result<Vec<DriveHabits>, CatalogError> {
        let read = |entry: &_| Ok(value::<Versioned>(entry).ok().map(|Versioned::V1(habits)| habits));
        Ok(self.all_entries(&key::meta(HABITS), read).await?.into_iter().flatten().collect())
    }

    /// The deletion to commit when another drive takes the place of `drive`, if there is a record.
    pub(crate) async fn forget_habits(&self, drive: DriveId) -> Result<Option<Write>, CatalogError> {
        let at = habits_of(drive);
        Ok(self.store.get(&at).await?.map(|_| Write::Delete(at)))
    }

    async fn drive_habits_of(&self, drive: DriveId) -> Result<Option<DriveHabits>, CatalogError> {
        let found: Option<Versioned> = self.look_up_one(&habits_of(drive)).await?;
        Ok(found.map(|Versioned::V1(habits)| habits))
    }

    async fn store_habits(&self, habits: DriveHabits) -> Result<(), CatalogError> {
        self.put(habits_of(DriveId(habits.drive)), encode(&Versioned::V1(habits))).await
    }
}

const HABITS: &str = "drive-habits/";

/// Key of the habits of `drive`.
fn habits_of(drive: DriveId) -> Vec<u8> {
    key::meta(&format!("{HABITS}{:08x}", drive.0))
}
