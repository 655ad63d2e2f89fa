//! The state of a group's pass of the scrub ([`crate::scrub`]), and the result for one blob.

use alloc::vec::Vec;
use model::{BlobId, Time};
use serde::{Deserialize, Serialize};

/// Counts of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScrubCounts {
    /// Blobs that are done.
    pub blobs: u64,
    /// Bytes of their stacks.
    pub stack_bytes: u64,
    /// Stacks that differed from what was written.
    pub damaged_stacks: u64,
    /// Damaged stacks that are repaired.
    pub repaired_stacks: u64,
    /// Blobs with lost data: some of their stripes have too few good fragments.
    pub lost_blobs: u64,
    /// Stacks that could not be read, since their drives were away or failed.
    pub unread_stacks: u64,
}

/// A pass that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScrubbedPass {
    /// When its last blob was done.
    pub ended: Time,
    /// Its counts.
    pub counts: ScrubCounts,
}

/// The persistent state of a group's pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScrubPass {
    /// Increases each time that the state is stored.
    pub serial: u64,
    /// When its period began.
    pub began: Time,
    /// The pass covers the blobs with numbers below this; `None` until its first page.
    pub end: Option<u64>,
    /// The blobs up to this one are done.
    pub done: Option<BlobId>,
    /// True if all blobs are done.
    pub complete: bool,
    /// Bytes of stacks in the group when it began.
    pub total_bytes: u64,
    /// Its counts so far.
    pub counts: ScrubCounts,
    /// The last pass that was completed.
    pub last: Option<ScrubbedPass>,
    /// The day on which the group was last woken for its pass alone, and the number of those wakes.
    pub own_wakes: (u32, u32),
    /// The operator requested it: it is due at once, regardless of its pace and its own budget of wakes.
    pub requested: bool,
}

/// The result of scrubbing a blob, or of one step of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scrubbed {
    /// More of the blob is left to read.
    InPart,
    /// Every stack that could be read is good.
    Sound,
    /// Fragments of these stacks, by index, were rewritten in place; every stack that could be read is good.
    Repaired(Vec<u8>),
    /// These stacks are damaged, by index, and are regenerated.
    Damaged(Vec<u8>),
    /// Some of its stripes have too few good fragments: data is lost.
    Lost,
    /// It could not be read now.
    Unread,
    /// It is gone, or is stored elsewhere by now.
    Gone,
}

impl ScrubPass {
    /// The share of its bytes that the pass has covered, in thousandths.
    pub fn covered_permille(&self) -> u64 {
        let covered = u128::from(self.counts.stack_bytes) * 1000 / u128::from(self.total_bytes.max(1));
        if self.complete { 1000 } else { covered.min(999) as u64 }
    }
}
