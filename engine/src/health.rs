//! The health of drives: when they are asked for their bad sectors, and which drives are emptied before they die.
//!
//! 1. A drive that was mounted and was not asked within [`HealthPolicy::every`] is asked
//!    ([`Action::ReadHealth`](crate::Action::ReadHealth)). No drive is woken for it.
//! 2. Its *bad sectors* are those that were reallocated and those that wait to be. They *rise* if there are more than
//!    in the first answer: a drive may be delivered with some, and stay at that number for years.
//! 3. A drive whose bad sectors rise above [`HealthPolicy::drain_above`] is *worn*. It is retired, like a drive that
//!    the operator wants emptied, once its group can do without it (`rack/health.rs`): the worst drive first, and one
//!    at a time.
//!
//! Invariant: a drive that failed, is retired or was replaced is not worn.

use crate::event::HealthRecord;
use crate::policy::HealthPolicy;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;
use model::{DriveId, Time};

/// Time after which the world is asked again to retire a drive, if it has not done so.
const ASKED_AGAIN: Duration = Duration::from_hours(1);

/// The known bad sectors of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthView {
    /// Sectors that are reallocated or wait to be.
    pub bad_sectors: u64,
    /// Their number in the drive's first answer.
    pub first_bad_sectors: u64,
    /// The drive is to be retired for them, and waits until its group can do without it.
    pub waits_for_drain: bool,
}

#[derive(Clone, Copy)]
struct Known {
    first: u64,
    last: u64,
}

/// The reports of a rack's drives. See the head of this file.
#[derive(Default)]
pub(crate) struct Health {
    policy: HealthPolicy,
    known: BTreeMap<DriveId, Known>,
    asked: BTreeMap<DriveId, Time>,
    worn: BTreeSet<DriveId>,
    /// The drive that the world was asked to retire, and the time at which it is asked again.
    retiring: Option<(DriveId, Time)>,
}

impl Health {
    pub fn new(policy: HealthPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// `drive` was mounted. True if it is to be asked now.
    pub fn is_due(&mut self, drive: DriveId, now: Time) -> bool {
        let Some(every) = self.policy.every else { return false };
        if self.asked.get(&drive).is_some_and(|asked| now < *asked + every) {
            return false;
        }
        // Recorded whether or not the drive answers: many report nothing.
        self.asked.insert(drive, now);
        true
    }

    /// At boot: the last report of a drive, from an earlier run.
    pub fn report(&mut self, record: &HealthRecord) {
        let HealthRecord { drive, first_bad_sectors: first, bad_sectors: last, asked } = *record;
        self.asked.insert(drive, asked);
        self.know(drive, Known { first, last });
    }

    /// `drive` has this number of bad sectors.
    pub fn read(&mut self, drive: DriveId, bad_sectors: u64) {
        let first = self.known.get(&drive).map_or(bad_sectors, |known| known.first);
        self.know(drive, Known { first, last: bad_sectors });
    }

    fn know(&mut self, drive: DriveId, known: Known) {
        self.known.insert(drive, known);
        let is_worn = known.last > known.first && self.policy.drain_above.is_some_and(|above| known.last > above);
        if is_worn {
            self.worn.insert(drive)
        } else {
            self.worn.remove(&drive)
        };
    }

    /// `drive` failed or is retired: it needs no more attention.
    pub fn settled(&mut self, drive: DriveId) {
        self.worn.remove(&drive);
        self.retiring = self.retiring.filter(|(asked, _)| *asked != drive);
    }

    /// Another drive is in the place of `drive`.
    pub fn replaced(&mut self, drive: DriveId) {
        self.settled(drive);
        self.known.remove(&drive);
        self.asked.remove(&drive);
    }

    /// The worst of the worn drives that `may_go`, which the world is to be asked to retire now.
    pub fn next_to_retire(&mut self, now: Time, may_go: impl Fn(DriveId) -> bool) -> Option<DriveId> {
        if self.worn.is_empty() || self.retiring.is_some_and(|(_, again)| now < again) {
            return None;
        }
        self.retiring = None;
        let bad_sectors = |drive: &DriveId| self.known.get(drive).map_or(0, |known| known.last);
        let fit = self.worn.iter().copied().filter(|drive| may_go(*drive));
        let worst = fit.max_by_key(|drive| (bad_sectors(drive), core::cmp::Reverse(*drive)))?;
        self.retiring = Some((worst, now + ASKED_AGAIN));
        Some(worst)
    }

    /// When the world is asked again to retire a drive; [`Time::MAX`] is never.
    pub fn deadline(&self) -> Time {
        self.retiring.map_or(Time::MAX, |(_, again)| again)
    }

    pub fn view(&self, drive: DriveId) -> Option<HealthView> {
        let Known { first, last } = *self.known.get(&drive)?;
        let waits_for_drain = self.worn.contains(&drive);
        Some(HealthView { bad_sectors: last, first_bad_sectors: first, waits_for_drain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(hours: u32) -> Time {
        Time::ZERO + HOUR * hours
    }

    fn health(drain_above: Option<u64>) -> Health {
        Health::new(HealthPolicy { every: Some(HOUR * 24), drain_above })
    }

    fn record(drive: u32, first_bad_sectors: u64, bad_sectors: u64, asked: Time) -> HealthRecord {
        HealthRecord { drive: DriveId(drive), first_bad_sectors, bad_sectors, asked }
    }

    #[test]
    fn a_drive_is_asked_at_its_first_mount_and_then_once_in_a_span() {
        let (mut health, drive) = (health(None), DriveId(3));
        let due: Vec<u32> = (0..72).filter(|hour| health.is_due(drive, at(*hour))).collect();
        assert_eq!(due, [0, 24, 48]);
        health.report(&record(4, 0, 0, at(60)));
        assert!(!health.is_due(DriveId(4), at(83)), "it was asked before the start");
        assert!(health.is_due(DriveId(4), at(84)));
        assert!(!Health::new(HealthPolicy::default()).is_due(drive, at(0)), "nobody wants to know");
    }

    #[test]
    fn a_drive_is_worn_if_its_bad_sectors_rise_above_the_limit() {
        let any = |_| true;
        for (said, above, worn) in [
            (&[200_u64, 200][..], 10, false),
            (&[0, 10], 10, false),
            (&[0, 11], 10, true),
            (&[200, 201], 10, true),
            (&[0, 11, 0], 10, false),
            (&[0, 1], 0, true),
        ] {
            let mut health = health(Some(above));
            for bad in said {
                health.read(DriveId(1), *bad);
            }
            assert_eq!(health.next_to_retire(at(0), any), worn.then_some(DriveId(1)), "{said:?} above {above}");
        }
        let mut warned = health(None);
        for bad in [0, 1000] {
            warned.read(DriveId(1), bad);
        }
        assert_eq!(warned.next_to_retire(at(0), any), None);
        let view = HealthView { bad_sectors: 1000, first_bad_sectors: 0, waits_for_drain: false };
        assert_eq!(warned.view(DriveId(1)), Some(view));
    }

    #[test]
    fn the_worst_goes_first_and_is_asked_for_once_in_an_hour_until_it_is_done() {
        let mut health = health(Some(0));
        health.report(&record(1, 0, 5, at(0)));
        health.report(&record(2, 0, 9, at(0)));
        health.report(&record(3, 1, 7, at(0)));
        assert_eq!(health.next_to_retire(at(1), |drive| drive != DriveId(2)), Some(DriveId(3)));
        assert_eq!((health.next_to_retire(at(1), |_| true), health.deadline()), (None, at(2)));
        assert_eq!(health.next_to_retire(at(2), |_| true), Some(DriveId(2)));
        health.settled(DriveId(2));
        assert_eq!((health.deadline(), health.next_to_retire(at(2), |_| true)), (Time::MAX, Some(DriveId(3))));
        health.replaced(DriveId(3));
        assert_eq!(health.view(DriveId(3)), None);
        assert_eq!(health.next_to_retire(at(2), |_| false), None);
    }
}
