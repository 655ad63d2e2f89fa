//! Dry run of a move: the packs that the migrator would compose of the data that a rule calls cold, and the cost of
//! writing them to the rack. Nothing moves.
//!
//! The packs are the migrator's own. Partly filled packs at the end of a listing count as written, since they are
//! written once they have waited for `linger`. The number of wakes is an estimate, as if all packs were written in one
//! go and nothing else were running: with [`GroupChoice::Batch`] one group per batch of bytes; with
//! [`GroupChoice::Random`], for each window of packs, the number of groups or the number of its packs, if that is
//! lower. Each wake starts all drives of its group.

use super::{Migrator, Reason, Scan};
use crate::action::Action;
use crate::event::{StagedEntry, Usage};
use crate::policy::{GroupChoice, MigrationPolicy, PinnedTo};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use model::{Attempt, Time};

/// The estimated result of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Objects that would move.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The blobs that they would become.
    pub blobs: u64,
    /// Wakes of groups.
    pub wakes: u64,
    /// Starts of drives.
    pub starts: u64,
}

/// A dry run in progress. See the head of this file.
#[derive(Clone, Debug)]
pub struct DryRun {
    migrator: Migrator,
    scan: Scan,
    estimate: Estimate,
    /// Blobs and bytes by pin.
    of_pin: BTreeMap<PinnedTo, (u64, u64)>,
}

impl DryRun {
    /// A dry run of `policy`, still empty.
    pub fn new(policy: &MigrationPolicy) -> Self {
        let mut migrator = Migrator::new(policy.clone());
        migrator.usage = Usage { staged_bytes: 0, capacity_bytes: u64::MAX };
        let scan = Scan { reason: Reason::Due, attempt: Attempt(0), paused: false, open: BTreeMap::new(), ride: None };
        Self { migrator, scan, estimate: Estimate::default(), of_pin: BTreeMap::new() }
    }

    /// Adds the next object that would move, in key order.
    pub fn add(&mut self, entry: &StagedEntry) {
        let mut actions = Vec::new();
        self.migrator.gather(&mut self.scan, (entry, 0), &mut actions);
        self.count(actions);
    }

    fn count(&mut self, actions: Vec<Action>) {
        for action in actions {
            let Action::Compose { op, versions, pin } = action else { continue };
            let bytes = self.migrator.under_way.get(&op).map_or(0, |write| write.bytes);
            self.migrator.ended(Time::ZERO, op, true);
            self.estimate.objects += versions.len() as u64;
            self.estimate.bytes = self.estimate.bytes.saturating_add(bytes);
            self.estimate.blobs += 1;
            let (blobs, sum) = self.of_pin.entry(pin).or_default();
            (*blobs, *sum) = (*blobs + 1, sum.saturating_add(bytes));
        }
    }

    /// Ends the dry run. `groups` returns the number of groups that a pin allows; each has at most `group_drives`
    /// drives.
    pub fn finish(mut self, choice: GroupChoice, groups: impl Fn(PinnedTo) -> u64, group_drives: u64) -> Estimate {
        let scan = Scan { reason: Reason::Critical, ..self.scan.clone() };
        let mut actions = Vec::new();
        self.migrator.close(scan, &mut actions);
        self.count(actions);
        let window = u64::from(self.migrator.policy.window);
        let wakes = self.of_pin.iter().map(|(pin, (blobs, bytes))| match choice {
            GroupChoice::Batch { bytes: batch } => bytes.div_ceil(batch.max(1)).clamp(1, *blobs),
            GroupChoice::Random => {
                let of = |blobs: u64| blobs.min(groups(*pin));
                (blobs / window) * of(window) + of(blobs % window)
            }
        });
        let wakes = wakes.sum();
        assert!(wakes <= self.estimate.blobs, "no group wakes but for a blob");
        Estimate { wakes, starts: wakes * group_drives, ..self.estimate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::thermometer::Heat;
    use core::time::Duration;

    fn run(choice: GroupChoice, sizes: &[u64]) -> Estimate {
        let policy = MigrationPolicy {
            pack_bytes: 100,
            pack_members: 9,
            min_bytes: 5,
            window: 4,
            ..testing::quiet_policy().migration
        };
        let mut run = DryRun::new(&policy);
        for (version, bytes) in (1..).zip(sizes) {
            let (age, pin, heat) = (Duration::ZERO, PinnedTo::Anywhere, Heat::Due(Duration::ZERO));
            run.add(&StagedEntry { version, bytes: *bytes, age, pin, heat });
        }
        run.finish(choice, |_| 3, 8)
    }

    #[test]
    fn packs_are_the_migrators_and_groups_wake_for_them() {
        // A blob by itself, a pack of two, the rest; one is too small to move without a threshold.
        let sizes = [60, 40, 250, 30, 4];
        let batch = run(GroupChoice::Batch { bytes: 200 }, &sizes);
        assert_eq!(batch, Estimate { objects: 4, bytes: 380, blobs: 3, wakes: 2, starts: 16 });
        let random = run(GroupChoice::Random, &[100; 10]);
        assert_eq!(random, Estimate { objects: 10, bytes: 1_000, blobs: 10, wakes: 3 + 3 + 2, starts: 64 });
        assert_eq!(run(GroupChoice::Random, &[]), Estimate::default());
    }
}
