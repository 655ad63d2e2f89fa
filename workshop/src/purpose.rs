//! What an entry of the spool is for, and what became of the bytes of those that were read ahead.

use parking_lot::Mutex;
use std::sync::Arc;

/// What became of bytes that were read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AheadBytes {
    /// Read from the rack.
    pub read_bytes: u64,
    /// Of those that were wanted, taken by clients.
    pub used_bytes: u64,
    /// Of those, evicted before anybody took them.
    pub wasted_bytes: u64,
}

/// What an entry is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// A client asked for so many of its bytes, and is to take them.
    Asked {
        /// So many.
        wanted_bytes: u64,
    },
    /// It is read ahead, since so many of its bytes may be asked for.
    Ahead {
        /// So many.
        wanted_bytes: u64,
        /// Counts what becomes of them.
        counts: Arc<AheadCounts>,
    },
}

/// Counts what becomes of the bytes that are read ahead for somebody.
#[derive(Debug, Default)]
pub struct AheadCounts(Mutex<AheadBytes>);

impl AheadCounts {
    /// The counts so far.
    pub fn get(&self) -> AheadBytes {
        *self.0.lock()
    }

    pub(crate) fn add(&self, more: AheadBytes) {
        let mut all = self.0.lock();
        all.read_bytes += more.read_bytes;
        all.used_bytes += more.used_bytes;
        all.wasted_bytes += more.wasted_bytes;
    }
}
