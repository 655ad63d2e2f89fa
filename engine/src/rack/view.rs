//! Views of a rack: states for people, and forecasts. Nothing here changes anything, except [`Rack::unblock_all`] and
//! the delegation of `apply`.

use super::{Rack, Stats};
use crate::action::{Action, Rejection};
use crate::class::{Class, ClassPhase, ClassView, GroupState};
use crate::controller::{Controller, Waking};
use crate::deadlines::DriveDeadlines;
use crate::drives::DrivePhase;
use crate::estimates::SwitchEstimate;
use crate::event::{Event, Usage, Work};
use crate::forecast::{Forecast, Forecaster, rebuild_forecast};
use crate::group_left::GroupLeft;
use crate::layout::Layout;
use crate::ledger::{Ledger, PowerState};
use crate::placement::Placement;
use crate::policy::{PriorityClass, RackPolicy};
use crate::pool_power::PoolDriveView;
use crate::rebuild::{Exposure, RebuildView};
use crate::scrub::ScrubView;
use crate::staging::checks::CheckView;
use crate::thermometer::Thermometer;
use alloc::vec::Vec;
use model::physics::ServerLoad;
use model::{BlobId, ClassId, DomainId, DriveId, GroupId, HeavyLoad, OpId, PoolDriveId, RackSpec, ResourceId, Time};

impl Rack {
    /// The rack's description.
    pub fn spec(&self) -> &RackSpec {
        &self.setup.spec
    }

    /// The groups and classes of the rack.
    pub fn layout(&self) -> &Layout {
        &self.setup.layout
    }

    /// The settings of the rack.
    pub fn policy(&self) -> &RackPolicy {
        &self.setup.policy
    }

    /// Counters since boot.
    pub fn stats(&self) -> Stats {
        let (drive_starts, missed_deadlines) = (self.drives.starts, self.drives.missed_deadlines);
        assert!(self.stats.migrated_bytes <= self.stats.written_bytes, "migration is part of what is written");
        assert!(self.stats.data_lost <= self.stats.refused, "who lost data was refused");
        Stats { drive_starts, missed_deadlines, ..self.stats }
    }

    /// The time limits of all commands to the drives of this rack.
    pub fn drive_deadlines(&self) -> DriveDeadlines {
        self.setup.drive_deadlines()
    }

    /// Deadlines that `drive` missed since boot.
    pub fn missed_deadlines(&self, drive: DriveId) -> u64 {
        self.drives.missed_deadlines(drive)
    }

    /// The phase of `drive`.
    pub fn drive_phase(&self, drive: DriveId) -> DrivePhase {
        let phase = self.drives.phase(drive);
        let spins = self.drives.ledger.state(drive) == PowerState::Active;
        assert!(phase != DrivePhase::Ready || spins, "{drive} is ready under a permit");
        phase
    }

    /// True if the power of `drive` is not controlled: it counts as spinning at all times.
    pub fn is_always_on(&self, drive: DriveId) -> bool {
        self.drives.ledger.is_always_on(drive)
    }

    /// Drives that did not stop, or do not report whether they did. Each counts as spinning in all its domains with
    /// hard limits. Each domain is returned with its use and its limit: drives or milliwatts, by the resource.
    pub fn unstopped(&self) -> impl Iterator<Item = (DriveId, ResourceId, DomainId, u64, u64)> + '_ {
        self.drives.unstopped().flat_map(move |drive| {
            let of_drive = move |(resource, domain, _, _): &(ResourceId, DomainId, u64, u64)| {
                self.setup.spec.domain_of(drive, *resource) == *domain
                    && self.setup.spec.resources[resource.index()].hard
            };
            let domains = self.drives.ledger.usage().filter(of_drive);
            domains.map(move |(resource, domain, used, limit)| (drive, resource, domain, used, limit))
        })
    }

    /// The number of drives that did not stop, or do not report whether they did.
    pub fn unstopped_count(&self) -> usize {
        self.drives.unstopped().count()
    }

    /// True if `drive` failed permanently: the operator reported it, or the rack gave the drive up.
    pub fn has_failed(&self, drive: DriveId) -> bool {
        self.drives.has_failed(drive)
    }

    /// Starts of `drive` on the day of `now`, and the number that it may use for background work.
    pub fn starts_today(&self, drive: DriveId, now: Time) -> (u32, u32) {
        (self.drives.budget.starts_today(drive, now), self.setup.policy.starts_per_day)
    }

    /// The power of `drive` of the pool; `None` if the rack has no such drive.
    pub fn pool_drive(&self, drive: PoolDriveId, now: Time) -> Option<PoolDriveView> {
        self.pool.view(drive, now)
    }

    /// Starts for clients and rebuilds beyond the daily budgets of the drives.
    pub fn starts_over_budget(&self) -> u64 {
        let exceeded = self.drives.budget.exceeded;
        assert!(exceeded <= self.drives.starts, "only starts exceed a budget");
        exceeded
    }

    /// The space of the rack's drives.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The power that the rack's drives draw, and the permits in use.
    pub fn ledger(&self) -> &Ledger {
        &self.drives.ledger
    }

    /// The passes of checks over the workshop.
    pub fn checks(&self, now: Time) -> CheckView {
        self.checker.view(now, self.migrator.usage.staged_bytes)
    }

    /// True while no group has room for staged data. It ends when a group has room again.
    pub fn is_full(&self) -> bool {
        let full = self.room.is_full(&self.setup, &self.placement);
        assert!(!full || self.room.unplaced.is_some(), "a rack is full for a write that found no room");
        full
    }

    /// The payload of the write from the workshop that found no room, in bytes, as long as there is no room for it.
    pub fn unplaced_bytes(&self) -> Option<u64> {
        self.room.unplaced.map(|wanted| wanted.payload_bytes)
    }

    /// True if the rack is closing and every group sleeps.
    pub fn is_closed(&self) -> bool {
        let closed = self.closing && self.classes.iter().all(|class| class.phase == ClassPhase::Asleep);
        assert!(!closed || self.ops.len() == 0, "every operation was answered before the rack closed");
        closed
    }

    /// A summary of `class`.
    pub fn class_view(&self, class: ClassId) -> ClassView {
        self.classes[class.index()].view()
    }

    /// The state of `group`.
    pub fn group_state(&self, group: GroupId) -> GroupState {
        self.class(group).group_state(group)
    }

    /// A group that is awake and has room for stacks of `stack_bytes`: a write there costs no start. Groups in
    /// `avoided` are chosen only if there are no others.
    pub fn awake_with_room(&self, stack_bytes: u64, avoided: &[GroupId]) -> Option<GroupId> {
        let is_awake = |group: &GroupId| matches!(self.group_state(*group), GroupState::Busy | GroupState::Idle);
        let fits = |group: &GroupId| self.setup.owns(*group) && self.placement.has_room(*group, stack_bytes);
        let awake = self.setup.groups().filter(is_awake).filter(fits);
        awake.min_by_key(|group| avoided.contains(group))
    }

    /// Operations queued for `group`.
    pub fn queued_for(&self, group: GroupId) -> usize {
        let queued = self.class(group).queues.queued_for(group);
        assert!(queued <= self.ops.len(), "an operation that is queued is known");
        queued
    }

    /// Payload bytes in `group` that deletes and overwrites made dead, and that are not reclaimed yet.
    pub fn dead_bytes(&self, group: GroupId) -> u64 {
        self.reclaim.dead_bytes(group)
    }

    /// The usage of the workshop, by the last event.
    pub fn staging(&self) -> Usage {
        self.migrator.usage
    }

    /// Bytes of hot versions that were moved because the workshop was above its critical threshold.
    pub fn hot_moved_bytes(&self) -> u64 {
        self.migrator.hot_moved_bytes()
    }

    /// Migration writes from composing to their end.
    pub fn migrations_under_way(&self) -> usize {
        self.migrator.writes_under_way()
    }

    /// Operations known: queued, waiting for their group, or in service.
    pub fn open_operations(&self) -> usize {
        self.ops.len()
    }

    /// The clients' requests that wait for the class of `drive`, in thousandths of the capacity of its queue; 0 for a
    /// drive without a group.
    pub fn queue_fill_permille(&self, drive: DriveId) -> u32 {
        let group = self.setup.layout.group_of(drive);
        group.map_or(0, |group| self.class_fill_permille(self.setup.class_of(group)))
    }

    /// The clients' requests that wait for `class`, in thousandths of the capacity of its queue.
    pub fn class_fill_permille(&self, class: ClassId) -> u32 {
        let waiting = self.classes[class.index()].queues.queue_len(PriorityClass::Client) as u64;
        let depth = u64::from(self.setup.policy.scheduler.queue_depth.max(1));
        u32::try_from(waiting * 1_000 / depth).unwrap_or(u32::MAX)
    }

    /// Ok if enough of the drives that store a blob are present, or may be soon, to read it.
    ///
    /// # Errors
    /// [`Rejection::DataLost`] if too many of them failed permanently, [`Rejection::TooManyDrivesAway`] if too many are
    /// away.
    pub fn enough_drives(&self, drives: &[DriveId]) -> Result<(), Rejection> {
        self.drives.enough_left(drives, self.setup.data_stacks())
    }

    /// The time that a client's read in `group` would wait for its first byte if it were submitted now.
    pub fn forecast(&self, group: GroupId, now: Time) -> Forecast {
        let class = self.setup.class_of(group);
        let groups = &self.setup.layout.classes[class.index()];
        let reclaims = groups.iter().any(|group| self.reclaim.dead_bytes(*group) > 0);
        let (load, class) = (self.load_beside(class), &self.classes[class.index()]);
        let (setup, estimates, ops) = (&self.setup, &self.estimates, &self.ops);
        let forecast = Forecaster { setup, estimates, load, ops, class, reclaims, now }.read(group);
        assert!(forecast.min <= forecast.expected && forecast.expected <= forecast.max, "a forecast lies in its range");
        forecast
    }

    /// The load on the server from work beside that of `class`. The rack's description defines what makes it heavy: the
    /// fill of the class's queue, or work in another class.
    pub(super) fn load_beside(&self, class: ClassId) -> ServerLoad {
        let other = |(index, state): (usize, &Class)| index != class.index() && state.has_work();
        let is_heavy = match self.setup.spec.profile.heavy_load {
            HeavyLoad::QueueFill(permille) => self.class_fill_permille(class) >= u32::from(permille),
            HeavyLoad::StreamOnServer | HeavyLoad::StreamsInRack(_) => self.classes.iter().enumerate().any(other),
        };
        if is_heavy { ServerLoad::Busy } else { ServerLoad::Idle }
    }

    /// The expected time of a switch of a class under this load, as measured; until there is a measurement, by the
    /// profile.
    pub fn switch_estimate(&self, load: ServerLoad) -> SwitchEstimate {
        self.estimates.switch(load)
    }

    /// The progress of the rebuild of each failed drive.
    pub fn rebuilds(&self) -> impl Iterator<Item = RebuildView> + '_ {
        let used_bytes = |drive| self.placement.used_bytes(drive);
        self.rebuilder.views(used_bytes, |drive, left_bytes| {
            let group = self.setup.layout.group_of(drive)?;
            let class_bytes = self.bytes_to_rebuild(self.setup.class_of(group));
            Some((group, rebuild_forecast(&self.setup, left_bytes, class_bytes)))
        })
    }

    /// The state of the group of `drive` without that drive; `None` for a spare.
    pub fn left_without(&self, drive: DriveId) -> Option<GroupLeft> {
        let group = self.setup.layout.group_of(drive)?;
        let is_in_service = |member| !self.drives.has_failed(member) && !self.retiring.contains(&member);
        Some(GroupLeft::without(drive, self.setup.members(group), self.setup.spec.code, is_in_service))
    }

    /// The progress of the scrub of each group; empty if blobs are not scrubbed.
    pub fn scrubs(&self, now: Time) -> impl Iterator<Item = ScrubView> + '_ {
        self.scrubber.views(now).filter(|view| self.setup.owns(view.group))
    }

    /// The blobs that a scrub could not read, and will read again, by group.
    pub fn scrubs_put_off(&self) -> impl Iterator<Item = (GroupId, BlobId)> + '_ {
        self.scrubber.all_put_off()
    }

    /// True if a step of the scrub of `group` is in service.
    pub fn is_scrubbing(&self, group: GroupId) -> bool {
        let in_service = self.class(group).in_service.and_then(|service| self.ops.get(service.op));
        in_service.is_some_and(|op| op.group == group && matches!(op.request.work, Work::Scrub { .. }))
    }

    /// True if scrubs are paused.
    pub fn is_scrub_paused(&self) -> bool {
        self.scrubber.paused
    }

    /// The number of blobs by the number of stacks that they lost to failed drives, as far as passes have found.
    pub fn exposure(&self) -> Exposure {
        let parity = self.setup.spec.code.parity;
        self.rebuilder.exposure(parity, |drive| self.placement.used_bytes(drive))
    }

    /// Bytes of stacks that are left to be rebuilt in `class`.
    fn bytes_to_rebuild(&self, class: ClassId) -> u64 {
        let in_class = |drive: DriveId| self.setup.layout.group_of(drive).map(|group| self.setup.class_of(group));
        let left = self.rebuilder.left_bytes(|drive| self.placement.used_bytes(drive));
        left.filter(|(drive, _)| in_class(*drive) == Some(class)).fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }

    /// Makes the next event look at every class, blocked or not. That changes nothing but the time it takes; it exists
    /// to test that invariant.
    pub fn unblock_all(&mut self) {
        self.blocked.unblock_all();
    }
}

impl Controller for Rack {
    fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        Self::apply(self, now, event, actions);
    }

    fn next_deadline(&self) -> Time {
        Self::next_deadline(self)
    }

    fn spec(&self) -> &RackSpec {
        Self::spec(self)
    }

    fn drive_deadlines(&self) -> DriveDeadlines {
        Self::drive_deadlines(self)
    }

    fn picked_at(&self, op: OpId) -> Option<Time> {
        let class = &self.classes[self.ops.get(op)?.class.index()];
        assert!(class.picked_at <= self.now, "{op} was dequeued before now");
        class.serves(op).map(|_| class.picked_at)
    }

    fn queue_fill_permille(&self, drive: DriveId) -> u32 {
        Self::queue_fill_permille(self, drive)
    }

    fn waking(&self) -> Waking {
        Waking { time: self.stats.switching, schedulers: self.classes.len() as u32 }
    }

    fn uninitialised_groups(&self) -> usize {
        Self::uninitialised_groups(self)
    }

    fn thermometer(&self) -> &Thermometer {
        &self.setup.policy.migration.thermometer
    }
}
