//! `[health]` of `larder.toml`.

use super::text;
use engine::HealthPolicy;
use serde::Deserialize;
use std::time::Duration;

/// The times at which drives are asked for their health, and the consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// The wall time after which a drive that is mounted anyway is asked again; `None` is never.
    #[serde(deserialize_with = "text::duration_or_never")]
    pub every: Option<Duration>,
    /// A drive with more bad sectors than this, whose number rises, is emptied; `None` empties no drive.
    pub drain_above: Option<u64>,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self { every: Some(Duration::from_hours(24)), drain_above: None }
    }
}

impl HealthConfig {
    /// The engine's policy, where modelled time runs `time_scale` times as fast.
    pub(super) fn policy(&self, time_scale: u32) -> HealthPolicy {
        let every = self.every.map(|every| every.saturating_mul(time_scale));
        HealthPolicy { every, drain_above: self.drain_above }
    }
}
