//! What stands in a job's way and may pass, and how long it is waited for.
//!
//! A job is the work of hours or days, so it does not end for what somebody may mend while he is there: drives that are
//! away are waited for until the next day, and starts that are used up as long as it takes, since the next day comes.
//! Room is another matter: what was given up is reclaimed within minutes, and if that does not do, only its owner can
//! make more.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Something that stands in the way and passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// Nothing: what was waiting was withdrawn, so that something else is done first.
    None,
    /// Others wait as well, and the queue is full.
    Turn,
    /// No room, in a group or in the workshop.
    Room,
    /// Drives that are away, or fail.
    Drives,
    /// The drives' starts of the day are used up.
    Starts,
}

impl Obstacle {
    /// How long it is waited before the next try, in wall time.
    pub fn pause(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Turn => Duration::from_millis(20),
            Self::Room | Self::Drives => Duration::from_secs(5),
            Self::Starts => Duration::from_mins(1),
        }
    }

    /// How long it may stand there, in wall time; as long as it likes, if nothing is said.
    fn limit(self) -> Option<Duration> {
        match self {
            Self::None | Self::Turn | Self::Starts => None,
            Self::Room => Some(Duration::from_mins(10)),
            Self::Drives => Some(Duration::from_hours(24)),
        }
    }
}

/// The patience of one class of a job.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// What stands in the way, and since when.
    now: Option<(Obstacle, Instant)>,
    /// How long each has stood there since something was done: waiting for one wears out no patience with another.
    stood: BTreeMap<Obstacle, Duration>,
}

impl Patience {
    /// Something was done: what is to be told of waiting, if that has changed.
    pub fn went_on(&mut self) -> Option<String> {
        self.stood.clear();
        self.now.take().map(|_| String::new())
    }

    /// Nothing could be done, for this reason: what is to be told of waiting, if that has changed.
    ///
    /// # Errors
    /// The reason, when it was waited for long enough.
    pub fn stands_before(&mut self, obstacle: Obstacle, reason: String) -> Result<Option<String>, String> {
        if matches!(obstacle, Obstacle::None | Obstacle::Turn) {
            return Ok(None);
        }
        if let Some((before, since)) = self.now.replace((obstacle, Instant::now())) {
            *self.stood.entry(before).or_default() += since.elapsed();
        }
        let stood = self.stood.get(&obstacle).copied().unwrap_or_default();
        match obstacle.limit() {
            Some(limit) if stood >= limit => {
                Err(format!("{reason}; it was waited for {} minutes", limit.as_secs() / 60))
            }
            _ => Ok(Some(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn starts_are_waited_for_without_end_and_room_is_not() {
        for (obstacle, limit_s) in [(Obstacle::Starts, u64::MAX), (Obstacle::Drives, 86_400), (Obstacle::Room, 600)] {
            let mut patience = Patience::default();
            let mut waited_s = 0;
            while waited_s < 200_000 && patience.stands_before(obstacle, "why".into()).is_ok() {
                tokio::time::advance(obstacle.pause()).await;
                waited_s += obstacle.pause().as_secs();
            }
            assert_eq!(waited_s >= 200_000, limit_s > 200_000, "{obstacle:?}: {waited_s} s");
            assert!(waited_s >= limit_s.min(200_000), "{obstacle:?}: {waited_s} s");
            assert_eq!(patience.went_on(), Some(String::new()));
            assert_eq!(
                (patience.went_on(), patience.stands_before(obstacle, "x".into())),
                (None, Ok(Some("x".into())))
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_one_thing_wears_out_no_patience_with_another() {
        let mut patience = Patience::default();
        for obstacle in [Obstacle::Starts, Obstacle::Room, Obstacle::Drives, Obstacle::Room] {
            assert_eq!(patience.stands_before(obstacle, "why".into()), Ok(Some("why".into())), "{obstacle:?}");
            let waits = if obstacle == Obstacle::Room { 301 } else { 30_000 };
            tokio::time::advance(Duration::from_secs(waits)).await;
        }
        assert!(patience.stands_before(Obstacle::Room, "why".into()).is_err(), "602 s of room's own");
    }
}
