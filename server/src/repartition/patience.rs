//! What stands in a job's way and may pass, and how long it is waited for.
//!
//! A job is the work of hours or days, so it does not end for what somebody may mend while he is there: drives that are
//! away are waited for until the next day, and starts that are used up as long as it takes, since the next day comes.
//! Room is another matter: what was given up is reclaimed within minutes, and if that does not do, only its owner can
//! make more.

use std::time::Duration;
use tokio::time::Instant;

/// Something that stands in the way and passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Since when nothing was done.
    since: Option<Instant>,
}

impl Patience {
    /// Something was done: what is to be told of waiting, if that has changed.
    pub fn went_on(&mut self) -> Option<String> {
        self.since.take().map(|_| String::new())
    }

    /// Nothing could be done, for this reason: what is to be told of waiting, if that has changed.
    ///
    /// # Errors
    /// The reason, when it was waited for long enough.
    pub fn stands_before(&mut self, obstacle: Obstacle, reason: String) -> Result<Option<String>, String> {
        if matches!(obstacle, Obstacle::None | Obstacle::Turn) {
            return Ok(None);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        match obstacle.limit() {
            Some(limit) if since.elapsed() >= limit => {
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
}
