//! The cost of reading a set in the best order: every group that has some of it wakes once, and the classes work in
//! parallel.

use super::Rack;
use crate::class::GroupState;
use core::time::Duration;
use model::physics::ServerLoad;
use model::{ClassId, GroupId};

/// The reads of a set in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupReads {
    /// The group.
    pub group: GroupId,
    /// The number of reads.
    pub reads: u64,
    /// Payload bytes of all reads.
    pub bytes: u64,
}

/// The expected cost of reading a set, without other load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// Groups that wake for the reads.
    pub wakes: u64,
    /// Drives that start.
    pub starts: u64,
    /// Modelled time until the last byte.
    pub time: Duration,
    /// Energy that the drives draw beyond standby while they read and switch between groups, in millijoules.
    pub energy_mj: u64,
}

impl Rack {
    /// The cost of reading a set that names each group once.
    pub fn read_cost(&self, set: &[GroupReads]) -> ReadCost {
        let mut cost = ReadCost::default();
        for class in 0..self.classes.len() {
            let class = ClassId(class as u32);
            let of_class = set.iter().filter(|reads| self.setup.class_of(reads.group) == class);
            let time = of_class.fold(Duration::ZERO, |time, reads| time + self.add_group(reads, &mut cost));
            cost.time = cost.time.max(time);
        }
        cost
    }

    /// Adds the cost of one group; returns the time that its class spends on it.
    fn add_group(&self, reads: &GroupReads, cost: &mut ReadCost) -> Duration {
        let load = ServerLoad::Idle;
        let each = reads.bytes / reads.reads.max(1);
        let alone = self.setup.transfer_estimate(each).saturating_mul(u32::try_from(reads.reads).unwrap_or(u32::MAX));
        let transfer = self.estimates.transfer(load, alone);
        let members = self.setup.members(reads.group);
        let drives = members.iter().filter(|drive| !self.drives.has_failed(**drive)).count() as u64;
        let profile = &self.setup.spec.profile;
        let watts = &profile.watts;
        let spinning_mw = u64::from(watts.active_mw.saturating_sub(watts.standby_mw));
        let up = matches!(self.group_state(reads.group), GroupState::Waking | GroupState::Busy | GroupState::Idle);
        let mut busy = transfer;
        if !up {
            let switch = self.estimates.switch(load);
            busy += switch.total();
            cost.wakes += 1;
            cost.starts += drives;
            let starting_mw = u64::from(watts.spin_up_mw.saturating_sub(watts.active_mw));
            cost.energy_mj += drives * millijoules(starting_mw, profile.spin_up.mean());
        }
        cost.energy_mj += drives * millijoules(spinning_mw, busy);
        busy
    }
}

fn millijoules(power_mw: u64, span: Duration) -> u64 {
    u64::try_from(u128::from(power_mw) * span.as_millis() / 1_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::quiet_policy;
    use model::RackSpec;

    fn rack() -> Rack {
        let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican-mini").unwrap();
        let spec: RackSpec = model::text::parse(text, "pelican-mini").unwrap();
        let layout = crate::layout::synthesise(&spec).unwrap();
        Rack::new(spec, layout, quiet_policy(), 1)
    }

    fn reads(group: GroupId, bytes: u64) -> GroupReads {
        GroupReads { group, reads: 1, bytes }
    }

    #[test]
    fn classes_work_side_by_side_and_groups_of_one_after_the_other() {
        let rack = rack();
        let classes = rack.layout().classes.clone();
        let (one, two, other) = (classes[0][0], classes[0][1], classes[1][0]);
        let of = |set: &[GroupId]| {
            rack.read_cost(&set.iter().map(|group| reads(*group, 1 << 30)).collect::<alloc::vec::Vec<_>>())
        };
        let (single, beside, after) = (of(&[one]), of(&[one, other]), of(&[one, two]));
        assert_eq!((single.wakes, beside.wakes, after.wakes), (1, 2, 2));
        assert_eq!((single.starts, beside.starts), (8, 16));
        assert_eq!((beside.time, after.time), (single.time, single.time * 2));
        assert_eq!(beside.energy_mj, single.energy_mj * 2);
        assert_eq!(of(&[]), ReadCost::default());
    }

    #[test]
    fn a_set_takes_what_its_bytes_take_and_a_switch() {
        let rack = rack();
        let group = rack.layout().classes[0][0];
        let (empty, full) = (rack.read_cost(&[reads(group, 0)]), rack.read_cost(&[reads(group, 4 * 140_000_000)]));
        assert_eq!(full.time, empty.time + Duration::from_secs(1), "k drives of 140 MB/s");
        let watts = rack.spec().profile.watts;
        let more = u64::from(watts.active_mw - watts.standby_mw) * 8;
        assert!((full.energy_mj - empty.energy_mj).abs_diff(more) <= 8, "{full:?} {empty:?}");
    }
}
