//! A disk whose platters are started and stopped from here, and the knowledge about its sleep. Calls block.

use super::handle::DiskHandle;
use super::sleep::Sleep;
use crate::DriveError;
use crate::power::{PowerError, PowerMode, trial};
use crate::scsi::TransportError;
use model::Smart;
use parking_lot::Mutex;
use std::path::Path;
use std::time::Duration;

/// Pause between two queries whether a disk is at speed, or has stopped.
const POLL: Duration = Duration::from_millis(200);
/// Maximum wait for either. The drive's caller has separate deadlines.
const SPIN_MAX: Duration = Duration::from_mins(2);

/// A disk under control.
pub(super) struct PoweredDisk {
    pub(super) disk: DiskHandle,
    pub(super) sleep: Mutex<Sleep>,
    /// Waits between two queries.
    pub(super) pause: fn(Duration),
    /// Held while it is started or stopped, or asked for its health, which could start it again.
    commanded: Mutex<()>,
}

impl PoweredDisk {
    pub(super) fn new(disk: DiskHandle) -> Self {
        Self { disk, sleep: Mutex::default(), pause: std::thread::sleep, commanded: Mutex::default() }
    }

    /// Starts it; returns when it is at speed.
    pub(super) fn start(&self) -> Result<(), DriveError> {
        let _commanded = self.commanded.lock();
        self.sleep.lock().ends();
        let control = self.disk.control()?;
        control.start().map_err(|error| self.power_error(error))?;
        match trial::wait_for(&*control, (POLL, SPIN_MAX), &PowerMode::Active, &mut |pause| (self.pause)(pause)) {
            Ok(Some(_)) => self.await_disk(),
            Ok(None) => Err(DriveError::NoAnswer(SPIN_MAX)),
            Err(error) => Err(self.power_error(error)),
        }
    }

    /// Waits until the kernel has found a disk whose power a command controls.
    fn await_disk(&self) -> Result<(), DriveError> {
        let mut waited = Duration::ZERO;
        while self.disk.is_commanded() && self.disk.name().is_err() {
            if waited >= SPIN_MAX {
                return Err(DriveError::Gone(self.disk.id()));
            }
            (self.pause)(POLL);
            waited += POLL;
        }
        Ok(())
    }

    /// Runs `quiesce`, after which nothing here writes to it, and stops it; returns when it reports standby.
    pub(super) fn stop<E: From<DriveError>>(&self, quiesce: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _commanded = self.commanded.lock();
        quiesce()?;
        let control = self.disk.control()?;
        control.stop().map_err(|error| self.power_error(error))?;
        match trial::wait_for(&*control, (POLL, SPIN_MAX), &PowerMode::Standby, &mut |pause| (self.pause)(pause)) {
            Ok(Some(_)) => {
                self.sleep.lock().begins(self.disk.counters());
                Ok(())
            }
            Ok(None) => Err(DriveError::Power(PowerError::StopIgnored).into()),
            Err(error) => Err(self.power_error(error).into()),
        }
    }

    /// The drive error for an error of power control: a disk may have gone in the middle of a start.
    fn power_error(&self, error: PowerError) -> DriveError {
        match error {
            PowerError::Transport(TransportError::Gone) => DriveError::Gone(self.disk.id()),
            error => DriveError::Power(error),
        }
    }

    /// Notes that another disk is in its place: the one that the link `id` refers to.
    pub(super) fn becomes(&self, id: &Path) {
        self.disk.lead_to(id);
        {
            let mut sleep = self.sleep.lock();
            // Answers of the previous disk no longer count.
            *sleep = Sleep { starts: sleep.starts + 1, ..Sleep::default() };
        }
        self.ask();
    }

    /// Its health report, if its platters turn.
    pub(super) fn health(&self) -> Result<Option<Smart>, DriveError> {
        let _commanded = self.commanded.lock();
        self.disk.health()
    }
}
