//! The spin-down manager: when drives without work may stop (Serviceable cold storage, section III-B.3).
//!
//! - [`SpinDownPolicy::stays_until`] is the rule, both for a rack's groups and for the drives of a node: never while
//!   recovery is reserved, never before the minimum gap has passed, and not today if today's starts are used up.
//! - [`SpinDownManager`] applies it to the cold drives of a node, each of which sleeps by itself. Its world reports
//!   when a drive was used, woken, or reserved for recovery, and asks at each tick if the drive may stop.
//!
//! Invariants: a drive that is asleep is never asked to stop; an idle timer is never shorter than the time that the
//! cluster waits before it recovers the data of a node, or a drive that stopped in between would be woken again.

use crate::budget::StartBudget;
use crate::policy::{PriorityClass, SpinDownPolicy};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{DriveId, Time};

/// The state of drives that spin and have no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spinning {
    /// The time since which they are ready.
    pub ready_at: Time,
    /// True if one of them has no starts left today.
    pub is_exhausted: bool,
    /// True if recovery that may need them is pending or under way.
    pub recovery_reserved: bool,
}

impl SpinDownPolicy {
    /// The time until which drives keep spinning at `now`, however long they have been idle; [`Time::MAX`] while that
    /// is unknown.
    pub fn stays_until(&self, spinning: &Spinning, now: Time) -> Time {
        if spinning.recovery_reserved {
            Time::MAX
        } else if self.keeps_exhausted && spinning.is_exhausted {
            StartBudget::next_day(now)
        } else {
            spinning.ready_at + self.min_gap
        }
    }
}

/// The rules by which the cold drives of a node stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePolicy {
    /// A drive stops after this time without work, or after the cluster's interval and grace, whichever is longer.
    pub idle_timer: Duration,
    /// The time that the cluster waits for a node that is down before it recovers its data: Ceph's down-out interval.
    pub down_out_interval: Duration,
    /// The extra time that a drive stays, since recovery does not begin at once.
    pub grace: Duration,
    /// The intended starts of a drive per day: its rated starts over the days of its life.
    pub starts_per_day: u32,
    /// The further rules that keep a drive spinning.
    pub spin_down: SpinDownPolicy,
}

impl NodePolicy {
    /// The idle timer: at least the down-out interval and the grace.
    pub fn idle_timeout(&self) -> Duration {
        self.idle_timer.max(self.down_out_interval.saturating_add(self.grace))
    }
}

/// The reason why a drive spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Recovery is pending or under way.
    Recovery,
    /// It was used not long ago.
    Used,
    /// It was woken not long ago.
    Gap,
    /// It has no starts left today.
    Exhausted,
}

#[derive(Clone, Copy, Debug)]
struct Managed {
    /// The time since which it is ready; `None` while it is asleep.
    ready_at: Option<Time>,
    idle_since: Time,
    recovery_reserved: bool,
}

/// The cold drives of a node. See the head of this file.
pub struct SpinDownManager {
    policy: NodePolicy,
    budget: StartBudget,
    drives: Vec<Managed>,
}

impl SpinDownManager {
    /// The manager of this number of drives, which spin and are idle since `now`.
    pub fn new(policy: NodePolicy, drive_count: usize, now: Time) -> Self {
        let spinning = Managed { ready_at: Some(now), idle_since: now, recovery_reserved: false };
        Self {
            policy,
            budget: StartBudget::new(drive_count, policy.starts_per_day),
            drives: vec![spinning; drive_count],
        }
    }

    /// `drive` was found asleep.
    pub fn found_asleep(&mut self, drive: DriveId) {
        self.drives[drive.index()].ready_at = None;
    }

    /// After a restart: `drive` was started this number of times on `day`.
    pub fn restore(&mut self, drive: DriveId, day: u32, starts: u32) {
        self.budget.restore(drive, day, starts);
    }

    /// `drive` is started at `now`, and will be ready at `ready_at`. Returns the record to store: the day, and the
    /// starts on it.
    pub fn started(&mut self, drive: DriveId, now: Time, ready_at: Time) -> (u32, u32) {
        assert!(ready_at >= now, "a drive is not ready before it is started");
        let managed = &mut self.drives[drive.index()];
        (managed.ready_at, managed.idle_since) = (Some(ready_at), ready_at);
        self.budget.record(drive, now)
    }

    /// `drive` was at work until `until`.
    pub fn used(&mut self, drive: DriveId, until: Time) {
        let managed = &mut self.drives[drive.index()];
        managed.idle_since = managed.idle_since.max(until);
    }

    /// `is_reserved` is true if recovery that may need `drive` is pending or under way.
    pub fn reserve_recovery(&mut self, drive: DriveId, is_reserved: bool) {
        self.drives[drive.index()].recovery_reserved = is_reserved;
    }

    /// True if `drive` is asleep.
    pub fn is_asleep(&self, drive: DriveId) -> bool {
        self.drives[drive.index()].ready_at.is_none()
    }

    /// Number of starts of `drive` on the day of `now`.
    pub fn starts_today(&self, drive: DriveId, now: Time) -> u32 {
        self.budget.starts_today(drive, now)
    }

    /// The reason why `drive`, which is not asleep, does not stop at `now`; `None` if it may.
    pub fn kept(&self, drive: DriveId, now: Time) -> Option<Kept> {
        let managed = self.drives[drive.index()];
        let ready_at = managed.ready_at?;
        let is_exhausted = !self.budget.may_start(drive, now, PriorityClass::Background);
        let spinning = Spinning { ready_at, is_exhausted, recovery_reserved: managed.recovery_reserved };
        let policy = &self.policy.spin_down;
        if managed.recovery_reserved {
            Some(Kept::Recovery)
        } else if now < managed.idle_since + self.policy.idle_timeout() {
            Some(Kept::Used)
        } else if now >= policy.stays_until(&spinning, now) {
            None
        } else if is_exhausted && policy.keeps_exhausted {
            Some(Kept::Exhausted)
        } else {
            Some(Kept::Gap)
        }
    }

    /// A tick: true if `drive` is to stop now. Then it counts as asleep from now on.
    pub fn stops(&mut self, drive: DriveId, now: Time) -> bool {
        let stops = !self.is_asleep(drive) && self.kept(drive, now).is_none();
        if stops {
            self.drives[drive.index()].ready_at = None;
        }
        stops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: NodePolicy = NodePolicy {
        idle_timer: Duration::from_secs(100),
        down_out_interval: Duration::from_mins(10),
        grace: Duration::from_mins(1),
        starts_per_day: 2,
        spin_down: SpinDownPolicy { min_gap: Duration::from_mins(15), keeps_exhausted: true },
    };
    const DRIVE: DriveId = DriveId(1);

    fn at(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    #[test]
    fn the_idle_timer_is_no_shorter_than_the_cluster_waits() {
        assert_eq!(POLICY.idle_timeout(), Duration::from_mins(11));
        let longer = NodePolicy { idle_timer: Duration::from_secs(700), ..POLICY };
        assert_eq!(longer.idle_timeout(), Duration::from_secs(700));
        let mut manager =
            SpinDownManager::new(NodePolicy { spin_down: SpinDownPolicy::default(), ..POLICY }, 2, Time::ZERO);
        manager.used(DRIVE, at(40));
        assert_eq!(manager.kept(DRIVE, at(699)), Some(Kept::Used));
        assert!(!manager.stops(DRIVE, at(699)) && manager.stops(DRIVE, at(700)) && manager.is_asleep(DRIVE));
        assert!(!manager.stops(DRIVE, at(9_000)), "what is asleep is not asked to stop");
        assert!(!manager.is_asleep(DriveId(0)), "each drive sleeps by itself");
    }

    #[test]
    fn what_was_woken_stays_for_its_gap_and_none_stops_while_recovery_is_reserved() {
        let mut manager = SpinDownManager::new(POLICY, 2, Time::ZERO);
        manager.found_asleep(DRIVE);
        assert_eq!(manager.started(DRIVE, at(1_000), at(1_010)), (0, 1));
        assert_eq!(manager.kept(DRIVE, at(1_700)), Some(Kept::Gap));
        manager.reserve_recovery(DRIVE, true);
        assert_eq!(manager.kept(DRIVE, at(50_000)), Some(Kept::Recovery));
        manager.reserve_recovery(DRIVE, false);
        assert!(manager.stops(DRIVE, at(50_000)));
    }

    #[test]
    fn a_drive_without_starts_spins_until_the_next_day() {
        let mut manager = SpinDownManager::new(POLICY, 2, Time::ZERO);
        for start in [1_000, 10_000] {
            assert!(start == 1_000 || manager.stops(DRIVE, at(start - 1)));
            manager.started(DRIVE, at(start), at(start + 10));
        }
        assert_eq!(
            (manager.starts_today(DRIVE, at(86_399)), manager.kept(DRIVE, at(86_399))),
            (2, Some(Kept::Exhausted))
        );
        assert!(manager.stops(DRIVE, at(86_400)), "with the next day comes a new budget");
        let mut restarted = SpinDownManager::new(POLICY, 2, Time::ZERO);
        restarted.restore(DRIVE, 0, 2);
        assert_eq!(restarted.kept(DRIVE, at(50_000)), Some(Kept::Exhausted));
        let best_effort = NodePolicy { spin_down: SpinDownPolicy::default(), ..POLICY };
        let mut other = SpinDownManager::new(best_effort, 2, Time::ZERO);
        other.restore(DRIVE, 0, 9);
        assert!(other.stops(DRIVE, at(660)), "a budget that keeps nothing spinning");
    }
}
