//! Repair of damaged shelves.
//!
//! 1. A reader that finds damage marks the shelf as suspect, and gets an error. If the shelf is not too long, it is
//!    surveyed at once ([`survey`]) and read again; otherwise the merging thread surveys it. From then on it is read
//!    according to the survey, and its lost parts are lost in the view: reading them returns an error, and never an
//!    older version.
//! 2. It is rewritten as background work, like a merge of one shelf: with all readable records, and with its lost
//!    parts, so that these are still known after a restart. Only then is the damaged shelf removed.
//! 3. If it lost something, and the other rotation has everything, that rotation restores it instead
//!    ([`crate::healing`]), and nothing is lost.
//!
//! A shelf with records out of order stays as it is: a survey leaves out records that do not follow, and that may be
//! most of them.
//!
//! A pool that is opened read-only is surveyed, and nothing is written.

use crate::lost::LostPart;
use crate::record::Sequence;
use crate::shared::{CycleShared, Shared};
use crate::shelf::access::Access;
use crate::shelf::read::Shelf;
use crate::view::View;
use std::sync::Arc;

/// Maximum bytes of a shelf for which a reader waits for the survey.
const AT_ONCE_BYTES: u64 = 256 << 20;

/// Surveys shelves in which a reader found damage; `false` if none of them is read differently since.
pub(crate) fn survey_at_once(shared: &Shared) -> bool {
    let surveyed: Vec<bool> =
        shared.cycles.iter().map(|cycle| survey(shared, cycle, Access::Direct, AT_ONCE_BYTES)).collect();
    surveyed.contains(&true)
}

/// Surveys the suspect shelves of `cycle` that are no longer than this; `false` if it has none.
pub(crate) fn survey(shared: &Shared, cycle: &CycleShared, access: Access, bytes_max: u64) -> bool {
    if !suspects(cycle).any(|shelf| shelf.bytes <= bytes_max) {
        return false;
    }
    // Readers survey one at a time. Background work, which waits for its turn at the drive, does not take this lock, so
    // no reader waits for it. A shelf that is surveyed twice is replaced once.
    let _one_at_a_time = (access == Access::Direct).then(|| cycle.surveying.lock());
    // Another thread may have done it.
    let suspects: Vec<_> = suspects(cycle).filter(|shelf| shelf.bytes <= bytes_max).collect();
    for shelf in &suspects {
        match shelf.surveyed(access) {
            Ok(surveyed) => replace(shared, cycle, shelf, surveyed),
            Err(error) => {
                tracing::error!(%error, shelf = %shelf.file, "a damaged shelf cannot be read completely");
                cycle.damaged.lock().insert(shelf.file);
            }
        }
    }
    true
}

/// The suspect shelves that can be surveyed.
pub(crate) fn suspects(cycle: &CycleShared) -> impl Iterator<Item = Arc<Shelf>> {
    let (view, damaged) = (cycle.view(), cycle.damaged.lock().clone());
    let suspects: Vec<_> = view.shelves.iter().filter(|shelf| shelf.is_suspect()).cloned().collect();
    suspects.into_iter().filter(move |shelf| !damaged.contains(&shelf.file) && !shelf.drive.is_lost())
}

/// Makes readers use the `surveyed` form of `shelf` from now on.
fn replace(shared: &Shared, cycle: &CycleShared, shelf: &Arc<Shelf>, surveyed: Shelf) {
    let (losses, mut is_there) = (surveyed.losses(), false);
    if surveyed.is_disordered() {
        cycle.damaged.lock().insert(shelf.file);
    }
    tracing::warn!(shelf = %shelf.file, losses = losses.len(), "a shelf is damaged, and is read without its nodes");
    cycle.change(|view| {
        is_there = view.shelves.iter().any(|other| Arc::ptr_eq(other, shelf));
        if is_there { view.replaced(&[shelf.file], Some(Arc::new(surveyed))) } else { view.clone() }
    });
    for loss in losses.into_iter().filter(|_| is_there) {
        shared.lose_unless_elsewhere(cycle, loss);
    }
}

/// Records the losses of opened shelves. `last` is the last number that was ever given.
pub(crate) fn note_opened(shared: &Shared, last: Sequence) {
    let has_others = shared.cycles.len() > 1;
    for cycle in &shared.cycles {
        cycle.view().shelves.iter().for_each(|shelf| shelf.bound(last));
        cycle.change(|view| {
            let mut view = view.clone();
            let shelves = view.shelves.clone();
            view.note_losses(shelves.iter());
            // Only the other rotation knows what it forgot.
            if has_others && shelves.iter().any(|shelf| shelf.is_blind()) {
                view = view.without([LostPart { keys: None, max: last }]);
            }
            view
        });
    }
    for cycle in &shared.cycles {
        let disordered = cycle.view().shelves.clone().into_iter().filter(|shelf| shelf.is_disordered());
        cycle.damaged.lock().extend(disordered.map(|shelf| shelf.file));
        for loss in cycle.view().shelves.iter().flat_map(|shelf| shelf.losses()) {
            shared.lose_unless_elsewhere(cycle, loss);
        }
    }
}

/// True if another rotation must restore the content of `shelf`.
pub(crate) fn is_lossy(shelf: &Shelf) -> bool {
    shelf.is_blind() || !shelf.lost().is_empty()
}

/// The shelves of `cycle` that must be rewritten because they are damaged, unless another rotation restores their
/// content.
pub(crate) fn worn(shared: &Shared, cycle: &CycleShared, view: &View) -> Vec<Arc<Shelf>> {
    let (is_elsewhere, damaged) = (shared.is_elsewhere(cycle), cycle.damaged.lock().clone());
    let is_worn = |shelf: &&Arc<Shelf>| {
        let is_given_back = is_elsewhere && is_lossy(shelf);
        shelf.is_worn() && !is_given_back && !damaged.contains(&shelf.file) && !shelf.drive.is_lost()
    };
    view.shelves.iter().filter(is_worn).cloned().collect()
}
