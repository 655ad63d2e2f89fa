//! The description of a rack, its groups and classes, and its operator's settings.
//!
//! Invariant: it does not change while the rack runs, so every part may read it and none stores a copy.

use crate::deadlines::DriveDeadlines;
use crate::event::{Request, Work};
use crate::layout::Layout;
use crate::policy::{PinnedTo, PriorityClass, RackPolicy, Weighing};
use core::time::Duration;
use model::physics::{READ_SEEKS, READ_SEEKS_MAX, ServerLoad, WRITE_SEEKS};
use model::{ClassId, DriveId, GroupId, RackSpec, Time, transfer_time};

const _: () = assert!(READ_SEEKS <= READ_SEEKS_MAX, "a transfer is not expected to take longer than it may");

/// A rack's description, layout and policy.
pub(crate) struct Setup {
    pub spec: RackSpec,
    pub layout: Layout,
    pub policy: RackPolicy,
    /// The expected time of a switch beside other work, by the profile.
    switch: Duration,
}

impl Setup {
    pub fn new(spec: RackSpec, layout: Layout, policy: RackPolicy) -> Self {
        assert!(!layout.groups.is_empty(), "a rack has at least one group");
        assert!(layout.groups.iter().all(|group| group.class.index() < layout.classes.len()), "a group has a class");
        let known = |drive: &DriveId| drive.index() < spec.drives.len();
        assert!(layout.groups.iter().flat_map(|group| &group.drives).all(known), "a group's drives are the rack's");
        let placed = |(id, drives): (usize, &alloc::vec::Vec<DriveId>)| {
            drives.iter().all(|drive| layout.group_of(*drive) == Some(GroupId(id as u32)))
        };
        let groups = layout.groups.iter().map(|group| &group.drives);
        assert!(groups.clone().enumerate().all(placed), "a drive is in one group");
        assert!(groups.clone().all(|drives| drives.len() >= spec.code.stacks()), "a blob fits into any group");
        assert!(spec.code.data > 0, "a blob has at least one data stack");
        let (profile, drives) = (&spec.profile, spec.group_drives as usize);
        let switch = profile.rest_estimate(drives) + profile.wake_estimate(drives, ServerLoad::Busy);
        Self { spec, layout, policy, switch }
    }

    /// k: stacks that suffice to read a blob.
    pub fn data_stacks(&self) -> usize {
        usize::from(self.spec.code.data)
    }

    /// All groups, by id.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.layout.groups.len()).map(|group| GroupId(group as u32))
    }

    /// The groups of this instance's classes that may store data pinned to `pin`.
    pub fn groups_for(&self, pin: PinnedTo) -> impl Iterator<Item = GroupId> + '_ {
        self.groups().filter(move |group| self.owns(*group) && pin.allows(*group, self.class_of(*group)))
    }

    pub fn members(&self, group: GroupId) -> &[DriveId] {
        &self.layout.groups[group.index()].drives
    }

    pub fn class_of(&self, group: GroupId) -> ClassId {
        self.layout.groups[group.index()].class
    }

    /// True if the class of `group` is one of this instance's.
    pub fn owns(&self, group: GroupId) -> bool {
        let classes = &self.policy.classes;
        classes.is_empty() || classes.contains(&self.class_of(group))
    }

    /// The group of `drive`, if this instance owns its class.
    pub fn own_group_of(&self, drive: DriveId) -> Option<GroupId> {
        self.layout.group_of(drive).filter(|group| self.owns(*group))
    }

    /// The deadlines of all requests to a drive.
    pub fn drive_deadlines(&self) -> DriveDeadlines {
        DriveDeadlines::new(&self.spec.profile, self.policy.deadlines, self.policy.host_slack)
    }

    /// A time longer than any wake or rest of a group should take: three times the slowest of both, and the host's
    /// slack.
    pub fn switch_timeout(&self) -> Duration {
        let (wake, rest) = self.switch_max();
        (wake + rest) * 3 + self.policy.host_slack
    }

    /// The longest times that waking a group takes, and that putting one to sleep takes.
    pub fn switch_max(&self) -> (Duration, Duration) {
        let profile = &self.spec.profile;
        let wake = profile.spin_up.longest() + profile.mount.longest().max(profile.mount_busy.longest());
        let rest = profile.unmount.longest() + profile.spin_down.longest();
        assert!(
            wake >= profile.spin_up.min && rest >= profile.spin_down.min,
            "the slowest is no faster than the fastest"
        );
        (wake, rest)
    }

    /// The time to move payload bytes over k drives at the profile's rate, with the seeks of a read.
    pub fn transfer_estimate(&self, bytes: u64) -> Duration {
        self.transfer_with(READ_SEEKS, bytes)
    }

    /// The same with as many seeks as any transfer makes.
    pub fn transfer_max(&self, bytes: u64) -> Duration {
        self.transfer_with(READ_SEEKS_MAX.max(WRITE_SEEKS), bytes)
    }

    fn transfer_with(&self, seeks: u32, bytes: u64) -> Duration {
        let each = bytes.div_ceil(u64::from(self.spec.code.data));
        self.spec.profile.seek * seeks + transfer_time(each, self.spec.profile.bytes_per_s)
    }

    /// The weight of an operation when a queue is reordered.
    pub fn weight(&self, work: &Work) -> u64 {
        let bytes = work.transfer_bytes();
        match self.policy.scheduler.weighing {
            Weighing::Operations => 1,
            Weighing::Bytes => bytes,
            Weighing::Time | Weighing::ServiceTime => self.transfer_estimate(bytes).as_millis() as u64,
        }
    }

    /// The weight of a switch from one group to another when a queue is reordered: its expected time in milliseconds,
    /// or 0 if switches do not count.
    pub fn switch_weight(&self) -> u64 {
        match self.policy.scheduler.weighing {
            Weighing::Operations | Weighing::Bytes | Weighing::Time => 0,
            Weighing::ServiceTime => self.switch.as_millis() as u64,
        }
    }

    /// The expected time of a switch while queues are long, by the profile: one group rests, and another wakes beside
    /// other work. It does not change while the rack runs, so a weight stays valid.
    pub fn switch_estimate(&self) -> Duration {
        self.switch
    }

    /// When a request that is queued now will be overdue.
    pub fn due(&self, request: &Request, now: Time) -> Time {
        match self.policy.scheduler.wait_limit {
            Some(limit) if request.priority == PriorityClass::Client => now + limit,
            _ => Time::MAX,
        }
    }
}
