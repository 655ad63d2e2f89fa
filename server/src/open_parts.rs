//! The bytes of the parts of open uploads: those that the catalog knows, and those that are coming.
//!
//! They take room in the workshop and cannot migrate, so the engine must not count them. The effect of a commit without
//! an answer is not known: then the count is in doubt, and they are counted again, from the catalog, until that
//! succeeds. A task that changes the catalog's parts holds `OpenParts::changing` until the change is counted here as
//! well, so a count is of one moment.

use parking_lot::Mutex;
use tokio::sync::{RwLock, RwLockReadGuard};

/// Counts the parts of open uploads. See the head of this file.
#[derive(Debug, Default)]
pub struct OpenParts {
    count: Mutex<Count>,
    changes: RwLock<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    coming_bytes: u64,
    known_bytes: u64,
    /// The catalog may know a different number, and a task counts it again.
    in_doubt: bool,
}

impl Count {
    fn all_bytes(self) -> u64 {
        self.coming_bytes.saturating_add(self.known_bytes)
    }
}

impl OpenParts {
    /// All bytes: the part of the workshop that cannot migrate.
    pub fn bytes(&self) -> u64 {
        self.count.lock().all_bytes()
    }

    /// Staged bytes of parts: those that the catalog knows. A part that is still coming has only reserved room.
    pub(crate) fn staged_bytes(&self) -> u64 {
        self.count.lock().known_bytes
    }

    /// Counts `bytes` more that are coming; returns all bytes before that.
    pub(crate) fn coming(&self, bytes: u64) -> u64 {
        let mut count = self.count.lock();
        let before = count.all_bytes();
        count.coming_bytes += bytes;
        before
    }

    /// Records that `bytes` that were coming will not come.
    pub(crate) fn gone(&self, bytes: u64) {
        let mut count = self.count.lock();
        assert!(bytes <= count.coming_bytes, "what goes had come before");
        count.coming_bytes -= bytes;
    }

    /// Records that `bytes` that were coming are known to the catalog, or may be.
    pub(crate) fn committed(&self, bytes: u64) {
        let mut count = self.count.lock();
        assert!(bytes <= count.coming_bytes, "what is committed had come before");
        count.coming_bytes -= bytes;
        count.known_bytes = count.known_bytes.saturating_add(bytes);
    }

    /// Records that `bytes` that the catalog knew are no longer of an open upload.
    pub(crate) fn closed(&self, bytes: u64) {
        let mut count = self.count.lock();
        // The next start corrects a count that a misread record left too small.
        count.known_bytes = count.known_bytes.saturating_sub(bytes);
    }

    /// Marks the catalog's count as in doubt, after a change without an answer that still holds `changing`. True if no
    /// task counts it again yet: then the caller has to, until that succeeds.
    #[must_use]
    pub(crate) fn doubt(&self) -> bool {
        !std::mem::replace(&mut self.count.lock().in_doubt, true)
    }

    /// Held while the catalog's parts change, until the change is counted.
    pub(crate) async fn changing(&self) -> RwLockReadGuard<'_, ()> {
        self.changes.read().await
    }

    /// Sets the catalog's bytes to those that `count` finds, which ends every doubt. No part is committed or closed
    /// meanwhile.
    pub(crate) async fn recount<E>(&self, count: impl Future<Output = Result<u64, E>>) -> Result<(), E> {
        let _nothing_changes = self.changes.write().await;
        let known_bytes = count.await?;
        let mut known = self.count.lock();
        (known.known_bytes, known.in_doubt) = (known_bytes, false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn one_counts_anew_until_a_count_succeeds() {
        let open = OpenParts::default();
        open.coming(7);
        open.committed(7);
        assert!(open.doubt(), "nobody counts yet");
        assert!(!open.doubt(), "somebody does");
        let failed = open.recount(async { Err(()) }).now_or_never();
        assert_eq!((failed, open.bytes(), open.doubt()), (Some(Err(())), 7, false), "and goes on");
        let counted = open.recount(async { Ok::<_, ()>(3) }).now_or_never();
        assert_eq!((counted, open.bytes(), open.doubt()), (Some(Ok(())), 3, true));
    }
}
