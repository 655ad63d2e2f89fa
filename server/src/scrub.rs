//! Passes of scrubs between the engine and the catalog.

use engine::scrub::{ScrubCounts, ScrubPass, ScrubbedPass};
use model::Time;

/// A pass, as the catalog records it.
pub(crate) fn recorded(pass: &ScrubPass) -> catalog::ScrubPass {
    catalog::ScrubPass {
        serial: pass.serial,
        began_ns: pass.began.as_nanos(),
        end: pass.end,
        done: pass.done,
        complete: pass.complete,
        total_bytes: pass.total_bytes,
        counts: recorded_counts(pass.counts),
        last: pass.last.map(|last| (last.ended.as_nanos(), recorded_counts(last.counts))),
        own_wakes: pass.own_wakes,
        requested: pass.requested,
    }
}

fn recorded_counts(counts: ScrubCounts) -> catalog::ScrubCounts {
    let ScrubCounts { blobs, stack_bytes, damaged_stacks, repaired_stacks, lost_blobs, unread_stacks } = counts;
    catalog::ScrubCounts { blobs, stack_bytes, damaged_stacks, repaired_stacks, lost_blobs, unread_stacks }
}

/// The pass that the catalog has recorded.
pub(crate) fn restored(pass: &catalog::ScrubPass) -> ScrubPass {
    let last = |(ended_ns, counts)| ScrubbedPass { ended: Time::from_nanos(ended_ns), counts: restored_counts(counts) };
    ScrubPass {
        serial: pass.serial,
        began: Time::from_nanos(pass.began_ns),
        end: pass.end,
        done: pass.done,
        complete: pass.complete,
        total_bytes: pass.total_bytes,
        counts: restored_counts(pass.counts),
        last: pass.last.map(last),
        own_wakes: pass.own_wakes,
        requested: pass.requested,
    }
}

fn restored_counts(counts: catalog::ScrubCounts) -> ScrubCounts {
    let catalog::ScrubCounts { blobs, stack_bytes, damaged_stacks, repaired_stacks, lost_blobs, unread_stacks } =
        counts;
    ScrubCounts { blobs, stack_bytes, damaged_stacks, repaired_stacks, lost_blobs, unread_stacks }
}
