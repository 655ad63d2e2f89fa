//! Damaged records: each is left out, named once in the log and counted; nothing else suffers from it.
//!
//! An object without a sound record is neither served nor moved, and never taken for deleted: a file that only a
//! damaged record could have named stays where it is.

use crate::error::readable;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Keys that are remembered. Further ones are named in the log each time they are met.
const NAMED_MAX: usize = 1_000;

/// The damaged records that were met since the catalog was opened.
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
            tracing::error!(record = readable(at), why, "a record of the catalog is damaged and is left out");
        }
    }

    /// The keys of the records in it, readable for people.
    pub(crate) fn names(&self) -> Vec<String> {
        self.named.lock().iter().map(|at| readable(at)).collect()
    }
}
