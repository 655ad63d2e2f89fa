//! Repartition jobs in the simulator's world: the same engine as in the server decides, and the steps of a job are
//! ordinary background operations beside the operations of clients.
//!
//! A [`Repartition`] is a job on the groups of one class: the amount of data, its distribution over the groups, and the
//! distribution of its output. [`run`] returns a [`Repartitioned`]: the measurements by the rack's own count, beside
//! the forecasts of the models. Bytes behave like a fluid: the groups receive fixed shares of the output, to the byte
//! ([`Apportion`](engine::repartition::Apportion)).
//!
//! Invariants: the same job and seed give the same trace; every byte of output is delivered exactly once (asserted).

mod asked;
mod hardware;
mod job;
mod point;

pub use asked::{Method, Reads, Repartition, RepartitionError};
pub use hardware::Groups;
pub use point::Repartitioned;
pub(crate) use point::paper_s;

use asked::CLASS;
use std::time::Duration;

/// Runs a job with every seed; returns the combined results.
///
/// # Errors
/// [`RepartitionError`].
pub fn run(what: &Repartition) -> Result<Repartitioned, RepartitionError> {
    if what.seeds.is_empty() {
        return Err(RepartitionError::NoSeed);
    }
    let at_once = what.reads.is_some_and(|reads| reads.mean_gap == Duration::ZERO);
    if what.data_bytes == 0 || what.memory_bytes == 0 || at_once {
        return Err(RepartitionError::Nothing);
    }
    let layout = engine::layout::synthesise(&what.rack)?;
    let taken: Result<Vec<_>, _> = what.seeds.iter().map(|seed| job::run(what, &layout, *seed)).collect();
    Ok(Repartitioned::of(what, layout.classes[CLASS.index()].len(), &taken?))
}
