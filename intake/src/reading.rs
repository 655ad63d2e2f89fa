//! Reading a pool: from a rotation that has everything, or from all rotations together.

use crate::error::ReadError;
use crate::queue::Message;
use crate::repairing::survey_at_once;
use crate::shared::{CycleShared, Shared};
use crate::view::View;
use std::sync::Arc;

/// Maximum number of times that a read is repeated because it found damage.
const SURVEYS_MAX: usize = 8;

impl Shared {
    /// Reads from a rotation that has everything, or from the next one if that fails; if none has everything, from all
    /// of them together. Damaged shelves are surveyed, and the read is repeated.
    pub(crate) fn read<T>(&self, read: impl Fn(&View) -> Result<T, ReadError>) -> Result<T, ReadError> {
        for _ in 0..SURVEYS_MAX {
            let views: Vec<_> = self.cycles.iter().map(CycleShared::view).collect();
            let found = self.read_once(&views, &read);
            if !matches!(found, Err(ReadError::Damaged(_))) {
                return found;
            }
            // Another thread may have surveyed it meanwhile.
            let is_same = |(cycle, view): (&CycleShared, &Arc<View>)| Arc::ptr_eq(&cycle.view(), view);
            if !survey_at_once(self) && self.cycles.iter().zip(&views).all(is_same) {
                return found;
            }
        }
        self.read_once(&self.cycles.iter().map(CycleShared::view).collect::<Vec<_>>(), &read)
    }

    fn read_once<T>(&self, views: &[Arc<View>], read: &impl Fn(&View) -> Result<T, ReadError>) -> Result<T, ReadError> {
        let mut failed = None;
        for view in views.iter().filter(|view| view.is_whole()) {
            match read(view) {
                Ok(found) => return Ok(found),
                Err(error) => {
                    tracing::warn!(%error, "a read failed");
                    self.report_suspects(view);
                    failed = Some(error);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let union = View::union(views);
        read(&union).inspect_err(|_| self.report_suspects(&union))
    }

    /// Requests the repair of shelves that turned out to be damaged.
    fn report_suspects(&self, view: &View) {
        if view.shelves.iter().filter(|shelf| shelf.turned_suspect()).count() > 0 {
            self.queue.send(Message::Damaged);
        }
    }
}
