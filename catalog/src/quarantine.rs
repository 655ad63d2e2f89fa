//! Damaged records: each is left out, named once in the log and counted; other records are not affected.
//!
//! An object without a sound record is neither served nor moved, and never counts as deleted: a file that only a
//! damaged record could have named stays.

use crate::error::readable;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Number of keys that are remembered. Further keys are logged each time they are found.
const NAMED_MAX: usize = 1_000;

/// The damaged records that were found since the catalog was opened.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    named: Mutex<BTreeSet<Vec<u8>>>,
}

impl Quarantine {
    /// Adds the record at `at`, which is damaged because of `why`.
    pub(crate) fn add(&self, at: &[u8], why: &str) {
        let mut named = self.named.lock();
        let is_new = if named.len() < NAMED_MAX { named.insert(at.to_vec()) } else { !named.contains(at) };
        drop(named);
        if is_new {
            tracing::error!(record = readable(at), why, "a record of the catalog is damaged, and is ignored");
        }
    }

    /// The keys of these records, in readable form.
    pub(crate) fn names(&self) -> Vec<String> {
        self.named.lock().iter().map(|at| readable(at)).collect()
    }
}
