//! `[journal]` of `larder.toml`.

use super::text;
use engine::snapshots::CopyPolicy;
use serde::Deserialize;
use std::time::Duration;

/// The copies of the catalog on drives. Times are wall time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JournalConfig {
    /// The minimum time between two copies to a group that is awake for other work.
    #[serde(deserialize_with = "text::duration")]
    pub ride_after: Duration,
    /// The time for which a change waits before a group is woken for it; `None` is never.
    #[serde(deserialize_with = "text::duration_or_never")]
    pub wake_after: Option<Duration>,
    /// The age of the newest full copy at which the next copy is full.
    #[serde(deserialize_with = "text::some_time")]
    pub snapshot_period: Duration,
}

impl Default for JournalConfig {
    fn default() -> Self {
        let CopyPolicy { ride_after, wake_after, snapshot_period } = CopyPolicy::default();
        Self { ride_after, wake_after, snapshot_period }
    }
}

impl JournalConfig {
    /// The engine's policy.
    pub(crate) fn policy(&self) -> CopyPolicy {
        let Self { ride_after, wake_after, snapshot_period } = *self;
        CopyPolicy { ride_after, wake_after, snapshot_period }
    }
}
