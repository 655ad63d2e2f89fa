//! Why drives could not be used when they were last tried, for status and lists.

use model::DriveId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reasons, each with its mend: at most a sentence for each drive.
#[derive(Debug, Default)]
pub struct Absences(Mutex<BTreeMap<DriveId, String>>);

impl Absences {
    /// `drive` could not be used, for this reason; or it could.
    pub fn note(&self, drive: DriveId, reason: Option<String>) {
        let mut reasons = self.reasons();
        match reason {
            Some(reason) => drop(reasons.insert(drive, reason)),
            None => drop(reasons.remove(&drive)),
        }
    }

    /// What is known of each drive of which something is.
    pub fn all(&self) -> BTreeMap<DriveId, String> {
        self.reasons().clone()
    }

    fn reasons(&self) -> MutexGuard<'_, BTreeMap<DriveId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
