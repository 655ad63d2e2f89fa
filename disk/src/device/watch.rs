//! Watches sleeping disks for accesses, and disks that come and go.

use super::powered::PoweredDisk;
use crate::DriveError;
use crate::counters::{IoCounters, Touch};
use crate::power::PowerMode;

/// An event that was not caused from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Gone,
    /// It is back; `asleep` is its own report.
    Back {
        asleep: bool,
    },
    /// It is awake without a wake from here; with its counted activity. [`Touch::None`]: no other program woke it
    /// either, so it woke by itself.
    Woken(Touch),
}

impl PoweredDisk {
    /// Asks the disk for its state, regardless of earlier knowledge. True if it is asleep; `None` if it is gone.
    pub(super) fn ask(&self) -> Option<bool> {
        let starts = self.sleep.lock().starts;
        self.ask_since(starts).0
    }

    /// The same; the second value is true if it was started from here no more than `starts` times. Otherwise the answer
    /// may predate the last start, and is not used.
    pub(super) fn ask_since(&self, starts: u64) -> (Option<bool>, bool) {
        let before = self.disk.counters();
        let unknown = |error: &dyn std::fmt::Display| {
            tracing::warn!(disk = %self.disk.id().display(), %error, "it is unknown if a disk spins");
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
        let left_alone = sleep.starts == starts;
        if left_alone {
            sleep.stands_still = asleep == Some(true);
            // The counters from before the query, so that accesses during it are not missed.
            sleep.asleep = before.filter(|_| asleep == Some(true));
        }
        (asleep, left_alone)
    }

    /// Looks for the disk, and at the kernel's counters of it if it should sleep. Sends it a command only if it was
    /// touched.
    pub(super) fn look(&self) -> Option<Seen> {
        let there = self.disk.name().is_ok();
        if self.disk.is_commanded() && self.sleep.lock().stands_still {
            return self.look_for_power(there);
        }
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

    /// Asks the disk for its state if it should sleep, touched or not: it may have woken by itself, which no counter
    /// shows. An operator's command is not run for that: how it finds the state is unknown here, and a disk that it
    /// switches off does not start by itself.
    pub(super) fn check(&self) -> Option<Seen> {
        if self.disk.is_commanded() {
            return None;
        }
        let before = self.sleep.lock().asleep?;
        let (now, sent) = self.disk.counters()?;
        // The next look reports accesses.
        let untouched = now.since(&before.0, sent - before.1) == Touch::None;
        (untouched && self.sleep.lock().asleep == Some(before) && !self.ask()?).then_some(Seen::Woken(Touch::None))
    }

    /// The same for a disk that was stopped by a command, which may have cut its power: that it is gone is expected,
    /// and if it appears, its power was switched on by something else.
    fn look_for_power(&self, there: bool) -> Option<Seen> {
        let counters = self.disk.counters();
        let before = {
            let mut sleep = self.sleep.lock();
            if !sleep.stands_still {
                return None; // it was started from here meanwhile
            }
            sleep.gone = false;
            if there && sleep.asleep.is_none() {
                sleep.asleep = counters;
                None
            } else {
                sleep.asleep = sleep.asleep.filter(|_| there);
                Some(sleep.asleep)
            }
        };
        match before {
            Some(before) => self.touched(before?),
            None if self.ask() == Some(false) => Some(Seen::Woken(Touch::Restarted)),
            None => None,
        }
    }

    fn touched(&self, before: (IoCounters, u64)) -> Option<Seen> {
        let (now, sent) = self.disk.counters()?;
        let touch = now.since(&before.0, sent - before.1);
        if touch == Touch::None {
            return None;
        }
        let starts = {
            let sleep = self.sleep.lock();
            // It may have been started from here meanwhile.
            if sleep.asleep != Some(before) {
                return None;
            }
            sleep.starts
        };
        let (asleep, left_alone) = self.ask_since(starts);
        if asleep? || !left_alone {
            return None;
        }
        // Meanwhile the access that woke it is counted as well.
        let counted = self.disk.counters().map(|(now, sent)| now.since(&before.0, sent - before.1));
        Some(Seen::Woken(counted.filter(|counted| *counted != Touch::None).unwrap_or(touch)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::handle::DiskHandle;
    use super::*;
    use crate::DriveError;
    use model::PowerCommand;
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn a_disk_that_is_not_there_is_reported_once() {
        let disk = DiskHandle::new("/dev/disk/by-id/no-such-disk", None);
        let state = PoweredDisk::new(disk);
        assert_eq!(state.look(), Some(Seen::Gone));
        assert_eq!(state.look(), None);
        assert_eq!(state.ask(), None);
    }

    /// A relay: `start` and `stop` write its state to a file, and `state` reads it.
    fn relay(folder: &Path) -> PoweredDisk {
        let argv =
            ["/bin/sh", "-c", RELAY, "relay"].map(str::to_owned).into_iter().chain([folder.display().to_string()]);
        let command = PowerCommand { argv: argv.collect(), timeout: Duration::from_secs(20) };
        let disk = DiskHandle::new("/dev/disk/by-id/no-such-disk", Some(command));
        PoweredDisk::new(disk)
    }

    const RELAY: &str = r#"
        case "$2" in
        start) echo active > "$1/relay" ;;
        stop) echo standby > "$1/relay" ;;
        state) cat "$1/relay" ;;
        esac
    "#;

    #[test]
    fn a_disk_that_a_command_cut_off_is_not_missed_and_one_that_it_cannot_know_counts_as_spinning() {
        let folder = tempfile::tempdir().unwrap();
        let state = relay(folder.path());
        assert_eq!(state.ask(), Some(false), "the relay says nothing yet");
        state.stop(|| Ok::<_, DriveError>(())).unwrap();
        assert_eq!((state.ask(), state.look(), state.look()), (Some(true), None, None));
        // Something else switched it on, and only the query shows that.
        std::fs::write(folder.path().join("relay"), "active\n").unwrap();
        assert_eq!(state.ask(), Some(false));
        assert_eq!(state.look(), Some(Seen::Gone), "it has its power, and is not there");
    }
}
