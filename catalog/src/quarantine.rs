//! Records that are damaged: each is left out, named once in the log, and counted; nothing else suffers from it.
//!
//! What has no sound record is neither served nor moved, and never taken for deleted: a file that only a damaged record
//! could have named stays where it is.

use crate::catalog::Catalog;
use crate::error::readable;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Keys that are remembered; more are only counted, and named again in the log when they are met again.
const NAMED_MAX: usize = 1_000;

/// The damaged records that were met since the catalog was opened.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    named: Mutex<BTreeSet<Vec<u8>>>,
}

impl Catalog {
    /// The record at `at` is not to be used, because of `why`.
    pub(crate) fn quarantine(&self, at: &[u8], why: &str) {
        let mut named = self.quarantine.named.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = if named.len() < NAMED_MAX { named.insert(at.to_vec()) } else { !named.contains(at) };
        drop(named);
        if is_new {
            tracing::error!(record = readable(at), why, "a record of the catalog is damaged and is left out");
        }
    }

    /// The damaged records that were met since the catalog was opened, by key, for people; 1,000 at most.
    pub fn quarantined(&self) -> Vec<String> {
        let named = self.quarantine.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.iter().map(|at| readable(at)).collect()
    }
}
