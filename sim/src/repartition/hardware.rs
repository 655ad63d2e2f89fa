//! Synthetic groups of a scenario: one class of K equal groups; one group is awake at a time.
//!
//! For the paper of BuffPack and OffPack, a rack is only K, T_sw, T_sk and the rate of a group. This is the smallest
//! rack with these: two data drives and one redundancy drive per group, under one hard limit that allows one awake
//! group. A switch is the spin-up alone; everything else that takes time in a described rack takes none.

use model::{
    Code, Distribution, DomainId, DomainLimit, DriveId, DriveProfile, DriveSpec, FailureDomains, HeavyLoad, RackDraft,
    RackSpec, RateSpread, Resource, SpecError, Watts,
};
use std::time::Duration;

/// The groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// K: the number of groups; above 0.
    pub groups: u32,
    /// T_sw: the time to switch from one group to another.
    pub switch: Duration,
    /// The maximum deviation of a drive's start from that time, in thousandths of it; the last drive of a group ends
    /// the switch.
    pub spread_permille: u32,
    /// T_sk: the seek time before each transfer.
    pub seek: Duration,
    /// The rate of a group, in payload bytes/s.
    pub bytes_per_s: u64,
}

const DATA: u8 = 2;
const PARITY: u8 = 1;
/// The maximum size of a drive in a rack: no synthetic group is ever full.
const CAPACITY_BYTES: u64 = 1_000_000_000_000_000;

impl Groups {
    /// The paper's Table III: 12 groups, 10 s, 10 ms, 1 GB/s.
    pub const PAPER: Self = Self {
        groups: 12,
        switch: Duration::from_secs(10),
        spread_permille: 0,
        seek: Duration::from_millis(10),
        bytes_per_s: 1_000_000_000,
    };

    /// The rack of these groups.
    ///
    /// # Errors
    /// [`SpecError`] if there is no valid rack: the rate is too small to divide, or a span takes days.
    pub fn rack(&self) -> Result<RackSpec, SpecError> {
        let each = u32::from(DATA + PARITY);
        let drive = |index: u32| DriveSpec {
            id: DriveId(index),
            slot: [(index % each) as u16, 0, (index / each) as u16],
            resource_domains: vec![DomainId(0)],
            failure_domains: vec![DomainId(index)],
            capacity_bytes: None,
            bytes_per_s: None,
            path: None,
            power: model::DrivePower::Own,
        };
        RackSpec::validated(RackDraft {
            name: format!("groups-{}", self.groups),
            code: Code { data: DATA, parity: PARITY, fragment_bytes: 128 * 1024 },
            group_drives: each,
            pack_bytes: 1_000_000_000,
            resources: vec![Resource { name: "power".to_owned(), limit: DomainLimit::ActiveDrives(each), hard: true }],
            failure_domains: vec![FailureDomains { name: "drive".to_owned(), loses_media: true }],
            drives: (0..self.groups * each).map(drive).collect(),
            pool: Vec::new(),
            profile: self.profile(),
        })
    }

    fn profile(&self) -> DriveProfile {
        let off = self.switch * self.spread_permille / 1_000;
        let nothing = Distribution::constant(Duration::ZERO);
        let spin_up =
            Distribution { min: self.switch.saturating_sub(off), max: self.switch + off, draws: 4, stragglers: None };
        DriveProfile {
            capacity_bytes: CAPACITY_BYTES,
            bytes_per_s: self.bytes_per_s / u64::from(DATA),
            rate_spread: RateSpread::default(),
            seek: self.seek,
            spin_up,
            mount: nothing,
            mount_busy: nothing,
            heavy_load: HeavyLoad::default(),
            unmount: nothing,
            spin_down: nothing,
            watts: Watts { standby_mw: 1_560, spin_up_mw: 21_530, active_mw: 9_420 },
            // An unlimited number of starts: the paper counts none.
            rated_starts: u32::MAX,
            life_years: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_groups_are_one_class_of_which_one_is_awake() {
        for groups in [1, 2, 12, 100] {
            let rack = Groups { groups, ..Groups::PAPER }.rack().unwrap();
            let layout = engine::layout::synthesise(&rack).unwrap();
            assert_eq!((layout.classes.len(), layout.groups.len()), (1, groups as usize));
            assert_eq!(layout.active_groups_max(), 1);
        }
    }
}
