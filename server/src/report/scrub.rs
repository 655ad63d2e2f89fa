//! Reports about scrubs. Times are modelled seconds, as `Status::modelled_s`.

pub use engine::scrub::ScrubCounts;

use serde::{Deserialize, Serialize};

/// The scrub of the rack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// The time in which every blob is read once; `None` if blobs are not scrubbed.
    pub period_s: Option<f64>,
    /// The time of this status: modelled seconds since the rack was created.
    #[serde(default)]
    pub modelled_s: f64,
    /// True if the operator has paused it.
    pub paused: bool,
    /// Groups whose pass of the present period is complete.
    pub complete_groups: u64,
    /// Groups whose period ended before their pass did.
    pub overdue_groups: u64,
    /// Blobs in which scrubs of any time found data lost that is still wanted.
    #[serde(default)]
    pub lost_blobs: u64,
    /// Stacks that scrubs found damaged, and that are not repaired yet.
    #[serde(default)]
    pub unrepaired_stacks: u64,
    /// Wakes for scrubs alone since the server started.
    pub own_wakes: u64,
    /// Payload bytes read since the server started.
    pub read_bytes: u64,
    /// One row for each group.
    pub groups: Vec<GroupScrub>,
}

/// The scrub of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupScrub {
    /// The group.
    pub group: u32,
    /// `complete`, `under way`, `waiting`, or `overdue`.
    pub state: String,
    /// The share of its bytes that the present pass has covered, in thousandths.
    pub covered_permille: u64,
    /// The begin of the period of the pass.
    pub began_s: f64,
    /// The end of that period.
    pub period_ends_s: f64,
    /// The counts of the present pass.
    pub counts: ScrubCounts,
    /// Blobs that could not be read when a pass reached them, and are read again.
    #[serde(default)]
    pub unread_blobs: u64,
    /// The end of the last complete pass.
    pub last_ended_s: Option<f64>,
    /// The counts of that pass.
    pub last: Option<ScrubCounts>,
}

/// `larder scrub status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// The groups.
    pub status: ScrubStatus,
    /// The first findings, by blob.
    pub findings: Vec<ScrubFindingReport>,
    /// True if there are more findings.
    pub more: bool,
    /// The first blobs that could not be read yet.
    #[serde(default)]
    pub unread: Vec<UnreadBlob>,
}

/// A blob that a scrub could not read yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadBlob {
    /// The blob.
    pub blob: String,
    /// Its group.
    pub group: u32,
}

/// The findings of scrubs about a blob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScrubFindingReport {
    /// The blob.
    pub blob: String,
    /// Its group.
    pub group: u32,
    /// The time of the finding, in milliseconds of the Unix epoch.
    pub found_ms: u64,
    /// The stacks that are still damaged.
    pub damaged: Vec<DamagedStackReport>,
    /// The indices of stacks that were repaired.
    pub repaired: Vec<u8>,
    /// Payload bytes that are lost.
    pub lost_bytes: u64,
}

/// A damaged stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DamagedStackReport {
    /// Its index.
    pub stack: u8,
    /// Its drive.
    pub drive: u32,
    /// Its flaw.
    pub flaw: String,
}

/// An object with lost bytes, by the findings of the last scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LostObject {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// The blob that stores it.
    pub blob: String,
}
