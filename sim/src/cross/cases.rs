//! The cases of the cross-validation.

use super::trace::{Case, Feed, Load};
use crate::links::Network;
use crate::reproduce::pelican::prototype;
use model::{RackSpec, SpecError};
use std::time::Duration;

/// The files of the figures of [`cases`].
pub const PELICAN_FIGURES: [&str; 2] = ["cross-bursts.svg", "cross-rates.svg"];

/// A GB of the text in bytes.
const GB: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// The cases of `rack`, which is Pelican's: bursts of 15 to 1,920 reads on its prototype, and four rates on the whole
/// rack. The smallest burst is also run with payload. The quick form has three bursts and two rates, all without
/// payload.
///
/// # Errors
/// [`SpecError`] if the prototype is not a valid rack.
pub fn cases(rack: &RackSpec, quick: bool) -> Result<Vec<Case>, SpecError> {
    let prototype = prototype(rack)?;
    let bursts: &[u32] = if quick { &[15, 240, 1_920] } else { &[15, 30, 60, 120, 240, 480, 960, 1_920] };
    // Rates, and the hours before and during the measurement: near the capacity, until queues are full.
    let rates: &[(f64, u64, u64)] =
        if quick { &[(0.0625, 0, 4), (2.0, 1, 1)] } else { &[(0.0625, 0, 12), (1.0, 1, 1), (2.0, 1, 1), (6.0, 1, 1)] };
    let burst = |reads: u32, blob_bytes, feed| Case {
        rack: prototype.clone(),
        network: Network::PROTOTYPE,
        load: Load::Burst(reads, Duration::from_mins(1)),
        blob_bytes,
        feed,
    };
    let poisson = |&(rate, before, span): &(f64, u64, u64)| Case {
        rack: rack.clone(),
        network: Network::PELICAN,
        load: Load::Poisson(rate, Duration::from_hours(before), Duration::from_hours(span)),
        blob_bytes: GB,
        feed: Feed::PayloadLeftOut,
    };
    // Payload takes processor time, so only the smallest burst has it.
    let with_payload = (!quick).then(|| burst(15, GB, Feed::Direct));
    let bursts = bursts.iter().map(|reads| burst(*reads, GB, Feed::PayloadLeftOut));
    Ok(bursts.chain(rates.iter().map(poisson)).chain(with_payload).collect())
}

/// A burst and a rate for a small rack, with reads of this number of bytes; the burst with payload as well.
pub fn small(rack: &RackSpec, blob_bytes: u64) -> [Case; 3] {
    let burst = Load::Burst(24, Duration::from_mins(1));
    let rate = Load::Poisson(0.5, Duration::from_mins(10), Duration::from_mins(30));
    [(burst, Feed::PayloadLeftOut), (rate, Feed::PayloadLeftOut), (burst, Feed::Direct)].map(|(load, feed)| Case {
        rack: rack.clone(),
        network: Network::PROTOTYPE,
        load,
        blob_bytes,
        feed,
    })
}

/// Bursts for a small rack whose reads are recalls through a spool: reads of a few segments in one operation, and reads
/// of the maximum size of an operation.
pub fn recalls(rack: &RackSpec) -> [Case; 2] {
    // An operation's first segment is a 64th of the spool, later ones are at most an eighth, and the total is a
    // quarter.
    let (whole, cut) = ((8 * MIB, 192 * MIB), (32 * MIB, 128 * MIB));
    [whole, cut].map(|(blob_bytes, spool_bytes)| Case {
        rack: rack.clone(),
        network: Network::PROTOTYPE,
        load: Load::Burst(24, Duration::from_mins(1)),
        blob_bytes,
        feed: Feed::Spool(spool_bytes),
    })
}
