//! The purpose of an entry of the spool, and the use of bytes that were read ahead.

use parking_lot::Mutex;
use std::sync::Arc;

/// Counts of the bytes that were read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AheadBytes {
    /// Read from the rack.
    pub read_bytes: u64,
    /// Of the wanted bytes among those, taken by clients.
    pub used_bytes: u64,
    /// Of the wanted bytes among those, evicted before a client took them.
    pub wasted_bytes: u64,
}

/// The purpose of an entry.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// A client asked for some of its bytes, and is to take them.
    Asked {
        /// The number of these bytes.
        wanted_bytes: u64,
    },
    /// It is read ahead, because some of its bytes may be asked for.
    Ahead {
        /// The number of these bytes.
        wanted_bytes: u64,
        /// Counts their use.
        counts: Arc<AheadCounts>,
    },
}

/// Counts the use of bytes that are read ahead.
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
