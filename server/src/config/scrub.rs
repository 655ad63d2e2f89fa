//! `[scrub]` of `larder.toml`.

use super::text;
use engine::ScrubPolicy;
use serde::Deserialize;
use std::time::Duration;

/// The scrub of the rack. Times are modelled.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScrubConfig {
    /// The time in which every blob is read once; `None` is never.
    #[serde(deserialize_with = "text::positive_duration_or_never")]
    pub period: Option<Duration>,
    /// The time after other work in an awake group for which a scrub continues there.
    #[serde(deserialize_with = "text::duration")]
    pub ride_along: Duration,
    /// The most wakes of a group on a day for its scrub alone; with 0, scrubs only piggyback.
    pub starts_per_day: u32,
}

impl Default for ScrubConfig {
    fn default() -> Self {
        let ScrubPolicy { ride_along, starts_per_day, .. } = ScrubPolicy::default();
        Self { period: Some(Duration::from_hours(90 * 24)), ride_along, starts_per_day }
    }
}

impl ScrubConfig {
    /// The engine's policy.
    pub(super) fn policy(&self) -> ScrubPolicy {
        let Self { period, ride_along, starts_per_day } = *self;
        ScrubPolicy { period, ride_along, starts_per_day, ..ScrubPolicy::default() }
    }
}
