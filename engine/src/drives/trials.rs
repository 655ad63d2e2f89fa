//! Trials of drives that were given up.
//!
//! A drive that was given up because it stayed away may come back without any report. So it has *trials*: when its
//! group wakes anyway, at least an hour after the last trial, the drive is started and mounted with the group, which
//! checks its label, and is unmounted and stopped again at once. If all of that succeeded it is
//! [`Notice::Recognised`](super::Notice::Recognised); it stays out of service throughout. A drive that the operator
//! gave up has no trials.

use super::{DrivePhase, Drives};
use crate::event::DriveOutcome;
use core::time::Duration;
use model::{DriveId, Time};

/// The pause between two trials of a drive that was given up.
const TRIED_EVERY: Duration = Duration::from_hours(1);

impl Drives {
    /// Starts a trial of those of `members` that were given up and may be back, together with the other members.
    pub fn begin_trials(&mut self, members: &[DriveId], now: Time) {
        for drive in members {
            let is_still = self.is_away(*drive) && !self.is_permitted(*drive);
            if let Some((due, mounted)) = self.trials.get_mut(drive).filter(|(due, _)| is_still && *due <= now) {
                (*due, *mounted) = (now + TRIED_EVERY, false);
                // A try that was planned before the drive was given up.
                self.backoff.forget(*drive);
                self.states[drive.index()].renumber();
                self.set_phase(*drive, DrivePhase::AwaitingPermit);
            }
        }
    }

    /// `drive` was given up and was not reported as pulled: it is tried from `due` on.
    pub fn may_return(&mut self, drive: DriveId, due: Time) {
        if self.has_failed(drive) && !self.cut_off.contains(&drive) {
            self.trials.insert(drive, (due, false));
        }
    }

    /// At boot: the rack gave `drive` up in an earlier run, so the operator has not pulled it. If it is found spinning
    /// and then lost, it may still spin.
    pub fn was_not_pulled(&mut self, drive: DriveId) {
        self.cut_off.remove(&drive);
        self.states[drive.index()].lost_by_world = false;
    }

    /// True if each of `drives` was asked or failed permanently, so that none may bring back a missing stack. A drive
    /// may be both: it failed meanwhile.
    pub fn all_asked(&self, drives: &[DriveId], outcomes: &[DriveOutcome]) -> bool {
        let was_asked = |drive: DriveId| outcomes.iter().any(|outcome| outcome.drive == drive);
        drives.iter().all(|drive| was_asked(*drive) || self.is_gone(*drive))
    }

    /// True if `drive` failed permanently. A drive that the rack gave up and tries again may return.
    pub(super) fn is_gone(&self, drive: DriveId) -> bool {
        self.has_failed(drive) && !self.trials.contains_key(&drive)
    }
}
