//! What becomes of a shelf that turns out to be damaged.
//!
//! 1. Whoever meets the damage makes the shelf suspect, and gets an error. If it is not too long, it is surveyed at
//!    once ([`survey`]), and read again; else by the thread that merges. From then on it is read by what the survey
//!    found, and what is lost is lost in the view: it is answered with an error, and never with an older version.
//! 2. It is written anew as background work, like a merge of one shelf: with all that can be read, and with what was
//!    lost, so that this is still known after a restart. Only then is the damaged one removed.
//! 3. If it lost something, and the other rotation has everything, that one gives it back instead
//!    ([`crate::healing`]), and nothing is lost.
//!
//! A shelf with records out of their order stays as it is instead: a survey leaves out what does not follow, and that
//! may be most of it.
//!
//! A pool that is only looked at is surveyed, and nothing is written.

use crate::lost::LostPart;
use crate::record::Sequence;
use crate::shared::{CycleShared, Shared};
use crate::shelf::access::Access;
use crate::shelf::read::Shelf;
use crate::view::View;
use std::sync::Arc;

/// Bytes of a shelf that a reader waits for to be surveyed.
const AT_ONCE_BYTES: u64 = 256 << 20;

/// Surveys what a reader met that is damaged; `false` if there is nothing that is read otherwise since.
pub(crate) fn survey_at_once(shared: &Shared) -> bool {
    let surveyed: Vec<bool> =
        shared.cycles.iter().map(|cycle| survey(shared, cycle, Access::Direct, AT_ONCE_BYTES)).collect();
    surveyed.contains(&true)
}

/// Surveys the shelves of `cycle` that are suspect, if they are no longer than this; `false` if there are none.
pub(crate) fn survey(shared: &Shared, cycle: &CycleShared, access: Access, bytes_max: u64) -> bool {
    if !suspects(cycle).any(|shelf| shelf.bytes <= bytes_max) {
        return false;
    }
    // Background work waits for its turn at the drive, and no reader waits for that. A shelf that is surveyed twice
    // is replaced once.
    let _one_at_a_time = (access == Access::Direct).then(|| cycle.surveying.lock());
    // Somebody else may have done it.
    let suspects: Vec<_> = suspects(cycle).filter(|shelf| shelf.bytes <= bytes_max).collect();
    for shelf in &suspects {
        match shelf.surveyed(access) {
            Ok(surveyed) => replace(shared, cycle, shelf, surveyed),
            Err(error) => {
                tracing::error!(%error, shelf = %shelf.file, "a damaged shelf cannot be read through");
                cycle.damaged.lock().insert(shelf.file);
            }
        }
    }
    true
}

/// The shelves that are suspect, and can be surveyed.
pub(crate) fn suspects(cycle: &CycleShared) -> impl Iterator<Item = Arc<Shelf>> {
    let (view, damaged) = (cycle.view(), cycle.damaged.lock().clone());
    let suspects: Vec<_> = view.shelves.iter().filter(|shelf| shelf.is_suspect()).cloned().collect();
    suspects.into_iter().filter(move |shelf| !damaged.contains(&shelf.file) && !shelf.drive.is_lost())
}

/// From now on readers read `shelf` as it was `surveyed`.
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

/// Notes what shelves that were opened have lost. `last` is the last number that was ever given.
pub(crate) fn note_opened(shared: &Shared, last: Sequence) {
    let has_others = shared.cycles.len() > 1;
    for cycle in &shared.cycles {
        cycle.view().shelves.iter().for_each(|shelf| shelf.bound(last));
        cycle.change(|view| {
            let mut view = view.clone();
            let shelves = view.shelves.clone();
            view.note_losses(shelves.iter());
            // What it forgot is known to the other rotation, and to nobody else.
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

/// Whether what `shelf` has is to be given back by another rotation.
pub(crate) fn is_lossy(shelf: &Shelf) -> bool {
    shelf.is_blind() || !shelf.lost().is_empty()
}

/// The shelves of `cycle` that are to be written anew for they are damaged, unless another rotation gives back what
/// they held.
pub(crate) fn worn(shared: &Shared, cycle: &CycleShared, view: &View) -> Vec<Arc<Shelf>> {
    let (is_elsewhere, damaged) = (shared.is_elsewhere(cycle), cycle.damaged.lock().clone());
    let is_worn = |shelf: &&Arc<Shelf>| {
        let is_given_back = is_elsewhere && is_lossy(shelf);
        shelf.is_worn() && !is_given_back && !damaged.contains(&shelf.file) && !shelf.drive.is_lost()
    };
    view.shelves.iter().filter(is_worn).cloned().collect()
}
