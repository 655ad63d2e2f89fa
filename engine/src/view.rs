//! Looking at a rack: states for people, and forecasts. All of it is `&self`; nothing here changes anything.

use crate::action::Rejection;
use crate::event::Usage;
use crate::layout::Layout;
use crate::policy::{Lane, RackPolicy};
use crate::rack::{ClassPhase, DrivePhase, Rack, Stats};
use model::{ClassId, DomainId, DriveId, GroupId, OpId, RackSpec, ResourceId, Time};
use serde::Serialize;

/// What a group is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// Platters stopped.
    Asleep,
    /// Getting ready.
    Waking,
    /// Ready and serving.
    Busy,
    /// Ready, without work.
    Idle,
    /// Unmounting and stopping.
    Resting,
}

/// A class at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassView {
    /// What it is doing.
    pub phase: ClassPhase,
    /// The operation in service.
    pub in_service: Option<OpId>,
    /// Operations queued in each lane, in the order of [`Lane::ALL`].
    pub queued: [usize; 3],
}

impl Rack {
    /// The rack's description.
    pub fn spec(&self) -> &RackSpec {
        &self.spec
    }

    /// Its groups and classes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its settings.
    pub fn policy(&self) -> &RackPolicy {
        &self.policy
    }

    /// What has happened since boot.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// What drive `drive` is doing.
    pub fn drive_phase(&self, drive: DriveId) -> DrivePhase {
        self.drives[drive.index()].phase
    }

    /// Starts of `drive` on the day of `now`, and how many it may use for work nobody waits for.
    pub fn starts_today(&self, drive: DriveId, now: Time) -> (u32, u32) {
        (self.budget.starts_today(drive, now), self.policy.starts_per_day)
    }

    /// Starts for clients and rebuilds beyond the drives' budgets of their days.
    pub fn starts_over_budget(&self) -> u64 {
        self.budget.exceeded_total()
    }

    /// Writes and rebuilt stacks that were placed with more than r stacks in a domain that can be lost, because members
    /// were away or full.
    pub fn crowded_placements(&self) -> u64 {
        self.placement.relaxed_total()
    }

    /// Permits that were granted beyond a soft limit.
    pub fn soft_overruns(&self) -> u64 {
        self.ledger.soft_overruns()
    }

    /// What `drive` can still take, in bytes, as far as the engine knows.
    pub fn drive_free_bytes(&self, drive: DriveId) -> u64 {
        self.placement.free_bytes(drive)
    }

    /// What class `class` is doing.
    pub fn class_view(&self, class: ClassId) -> ClassView {
        let state = &self.classes[class.index()];
        // Dequeued, but its group still wakes: whoever looks sees somebody wait.
        let waits_for_wake = |lane| state.pending.as_ref().is_some_and(|pick| pick.lane == lane);
        ClassView {
            phase: state.phase,
            in_service: state.in_service.map(|service| service.op),
            queued: Lane::ALL.map(|lane| state.queues.lane_len(lane) + usize::from(waits_for_wake(lane))),
        }
    }

    /// What group `group` is doing.
    pub fn group_state(&self, group: GroupId) -> GroupState {
        let state = &self.classes[self.class_of(group).index()];
        match state.phase {
            ClassPhase::Waking { group: g, .. } if g == group => GroupState::Waking,
            ClassPhase::Awake { group: g, idle_since: None } if g == group => GroupState::Busy,
            ClassPhase::Awake { group: g, idle_since: Some(_) } if g == group && state.in_service.is_some() => {
                GroupState::Busy
            }
            ClassPhase::Awake { group: g, .. } if g == group => GroupState::Idle,
            ClassPhase::Resting { group: g, .. } if g == group => GroupState::Resting,
            _ => GroupState::Asleep,
        }
    }

    /// Operations queued for `group`.
    pub fn queued_for(&self, group: GroupId) -> usize {
        self.classes[self.class_of(group).index()].queues.queued_for(group)
    }

    /// Payload bytes given up by deletes and overwrites that wait in `group` to be reclaimed.
    pub fn doomed_bytes(&self, group: GroupId) -> u64 {
        self.doomed[group.index()]
    }

    /// What the drives draw now by the ledger, in milliwatts.
    pub fn watts_mw(&self) -> u64 {
        self.ledger.watts_mw()
    }

    /// Drives that spin or spin up.
    pub fn active_drives(&self) -> usize {
        self.ledger.active_drives()
    }

    /// Domains in use: resource, domain, how much of it, of how much.
    pub fn domain_usage(&self) -> impl Iterator<Item = (ResourceId, DomainId, u64, u64)> + '_ {
        self.ledger.usage()
    }

    /// How full the workshop is, by the last event.
    pub fn staging(&self) -> Usage {
        self.migrator.usage()
    }

    /// Migration writes from composing to their end.
    pub fn migrations_under_way(&self) -> usize {
        self.migrator.writes_under_way()
    }

    /// Operations known: queued, waiting for their group, or in service.
    pub fn ops_len(&self) -> usize {
        self.ops.len()
    }

    /// Whether enough of the drives that a blob lies on are there, or may be soon, to read it.
    ///
    /// # Errors
    /// [`Rejection::DataLost`] if too many of them failed for good, [`Rejection::TooManyDrivesAway`] if too many are
    /// away.
    pub fn enough_drives(&self, drives: &[DriveId]) -> Result<(), Rejection> {
        self.enough_left(drives)
    }
}
