//! The systems that Pelican is compared with (Pelican, section 5). They are controllers like any other: the world does
//! not know the difference.
//!
//! - *FP*, the fully provisioned rack: the same drives, groups and links, without limits on spinning drives; each group
//!   has its own queue and scheduler. It is the same engine, with every group a class ([`fully_provisioned`]).
//! - *Random layout* (section 2.2.2): each blob is stored on k + r drives drawn at random, without drives that conflict
//!   with earlier draws ([`random_stacks`]). There are no groups and only one queue; its first request starts when its
//!   drives fit beside all active ones ([`RandomLayout`]).
//!
//! Invariants: both ask the same [`Ledger`](engine::ledger::Ledger) for every permit; a drive belongs to one request at
//! a time; drives stay awake until another request needs them to stop.

mod random;
#[cfg(test)]
mod tests;

pub use random::{RandomLayout, random_stacks};

use engine::layout::Layout;
use model::{ClassId, DomainLimit, GroupId, RackDraft, RackSpec, SpecError};

/// Returns the rack `spec` with all its drives allowed to spin, and `layout` with each group in its own class. With u =
/// 0 and no idle timeout this is FP: one FIFO queue per group.
///
/// # Errors
/// [`SpecError`] if the description is not valid without its limits.
pub fn fully_provisioned(spec: &RackSpec, layout: &Layout) -> Result<(RackSpec, Layout), SpecError> {
    let mut draft = RackDraft::clone(spec);
    for resource in &mut draft.resources {
        if !matches!(resource.limit, DomainLimit::BytesPerS(_)) {
            resource.hard = false;
        }
    }
    let mut layout = layout.clone();
    layout.classes = (0..layout.groups.len()).map(|group| vec![GroupId(group as u32)]).collect();
    for (index, group) in layout.groups.iter_mut().enumerate() {
        group.class = ClassId(index as u32);
    }
    Ok((RackSpec::validated(draft)?, layout))
}
