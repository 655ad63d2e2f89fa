//! Who touches a disk that sleeps, and disks that come and go.

use super::DeviceState;
use crate::counters::{IoCounters, Touch};
use crate::power::PowerMode;

/// What is known of a disk while it sleeps.
#[derive(Default)]
pub(super) struct Sleep {
    /// The kernel's counters when it was last seen asleep, and the commands sent from here until then; `None` while it
    /// is not supposed to sleep.
    asleep: Option<(IoCounters, u64)>,
    /// It was not there when it was last looked for.
    gone: bool,
}

impl Sleep {
    /// It was just seen asleep, with these counters.
    pub fn begins(&mut self, counters: Option<(IoCounters, u64)>) {
        self.asleep = counters;
    }

    /// It is about to be started.
    pub fn ends(&mut self) {
        self.asleep = None;
    }
}

/// Something that nobody here caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Gone,
    /// It is back, and says that it sleeps, or does not.
    Back {
        asleep: bool,
    },
    /// Others woke it; what the counters show.
    Woken(Touch),
}

impl DeviceState {
    /// Asks the disk for its state, whatever is believed of it: whether it is asleep; `None` if it is not there.
    pub(super) fn ask(&self) -> Option<bool> {
        let before = self.disk.counters();
        let mode = self.disk.mode().ok();
        let asleep = mode.map(|mode| {
            if let PowerMode::Unknown(error) = &mode {
                tracing::warn!(disk = %self.disk.id().display(), %error, "nobody knows whether a disk spins");
            }
            mode == PowerMode::Standby
        });
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
    use crate::device::DeviceDrive;
    use crate::label::{Label, RackUuid};
    use model::DriveId;

    #[test]
    fn a_disk_that_is_not_there_is_reported_once() {
        let label = Label { rack: RackUuid([7; 16]), rack_name: "r".into(), drive: DriveId(0) };
        let drive = DeviceDrive::new("/dev/disk/by-id/no-such-disk", "/nowhere", label);
        assert_eq!(drive.state.look(), Some(Seen::Gone));
        assert_eq!(drive.state.look(), None);
        assert_eq!(drive.state.ask(), None);
    }
}
