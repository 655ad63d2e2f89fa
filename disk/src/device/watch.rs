//! Who touches a disk that sleeps, and disks that come and go.

use super::state::DeviceState;
use crate::DriveError;
use crate::counters::{IoCounters, Touch};
use crate::power::PowerMode;

/// Something that nobody here caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Gone,
    /// It is back, and says that it sleeps, or does not.
    Back {
        asleep: bool,
    },
    /// It is awake, and nobody here woke it; what the counters show. [`Touch::None`]: nobody else did either, so that
    /// it woke by itself.
    Woken(Touch),
}

impl DeviceState {
    /// Asks the disk for its state, whatever is believed of it: whether it is asleep; `None` if it is not there.
    pub(super) fn ask(&self) -> Option<bool> {
        let before = self.disk.counters();
        let unknown = |error: &dyn std::fmt::Display| {
            tracing::warn!(disk = %self.disk.id().display(), %error, "nobody knows whether a disk spins");
        };
        let asleep = match self.disk.mode() {
            Err(DriveError::Gone(_)) => None,
            Err(error) => {
                unknown(&error);
                Some(false)
            }
            Ok(PowerMode::Unknown(error)) => {
                unknown(&error);
                Some(false)
            }
            Ok(mode) => Some(mode == PowerMode::Standby),
        };
        let mut sleep = self.sleep.lock();
        sleep.gone = asleep.is_none();
        // The counters from before the question: what touched it meanwhile is not missed.
        sleep.asleep = before.filter(|_| asleep == Some(true));
        asleep
    }

    /// Looks for the disk, and at the kernel's counters of it if it is supposed to sleep. Sends it a command only if it
    /// was touched.
    pub(super) fn look(&self) -> Option<Seen> {
        let there = self.disk.name().is_ok();
        let (was_gone, asleep) = {
            let mut sleep = self.sleep.lock();
            (std::mem::replace(&mut sleep.gone, !there), sleep.asleep)
        };
        match (was_gone, there) {
            (true, false) => None,
            (false, false) => {
                self.sleep.lock().asleep = None;
                Some(Seen::Gone)
            }
            (true, true) => self.ask().map(|asleep| Seen::Back { asleep }),
            (false, true) => self.touched(asleep?),
        }
    }

    /// Asks the disk for its state if it is supposed to sleep, whether or not it was touched: it may have woken by
    /// itself, which no counter shows.
    pub(super) fn check(&self) -> Option<Seen> {
        let before = self.sleep.lock().asleep?;
        let (now, sent) = self.disk.counters()?;
        // What was touched is seen by the next look.
        let untouched = now.since(&before.0, sent - before.1) == Touch::None;
        (untouched && self.sleep.lock().asleep == Some(before) && !self.ask()?).then_some(Seen::Woken(Touch::None))
    }

    fn touched(&self, before: (IoCounters, u64)) -> Option<Seen> {
        let (now, sent) = self.disk.counters()?;
        let touch = now.since(&before.0, sent - before.1);
        if touch == Touch::None {
            return None;
        }
        // It may have been started from here meanwhile.
        if self.sleep.lock().asleep != Some(before) {
            return None;
        }
        if self.ask()? {
            return None;
        }
        // Meanwhile what it was woken for is counted as well.
        let counted = self.disk.counters().map(|(now, sent)| now.since(&before.0, sent - before.1));
        Some(Seen::Woken(counted.filter(|counted| *counted != Touch::None).unwrap_or(touch)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_not_there_is_reported_once() {
        let state = DeviceState::new("/dev/disk/by-id/no-such-disk".into(), "/nowhere".into(), "larder".into());
        assert_eq!(state.look(), Some(Seen::Gone));
        assert_eq!(state.look(), None);
        assert_eq!(state.ask(), None);
    }
}
