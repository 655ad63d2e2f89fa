//! The assignment of the drives of a class to its groups.
//!
//! The drives are sorted by their tightest domain and assigned in rounds of one drive a group. Each round is a rotation
//! of the groups if that breaks nothing: on Pelican a round is a cooling column, and the chosen rotations are the
//! paper's construction (one drive a column, at most one a tray, two a height row, four a chassis). Where no rotation
//! fits, the round is an assignment of least cost. A bounded number of exchanges then places the drives that are left
//! over.

use super::classes::Share;
use super::constraints::{Constraints, Role};
use super::hungarian;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A hard limit would break: never allowed.
const BANNED: i64 = 1 << 40;
/// A soft limit would break.
const SOFT: i64 = 1 << 24;
/// A failure domain would hold more than r drives of the group.
const SPREAD: i64 = 1 << 14;
/// Rounds up to this many groups may be solved as an assignment; larger ones are rotations and exchanges.
const ASSIGNED_MAX: usize = 64;
/// Rotations tried for a round.
const ROTATIONS_MAX: usize = 64;

const _: () = assert!(SPREAD < SOFT && SOFT < BANNED, "limits come before spread, hard ones before soft ones");
const _: () = assert!(BANNED < 1 << 50, "every cost fits into the assignment of least cost");

/// A group that is being filled.
#[derive(Clone, Default)]
struct PartialGroup {
    drives: Vec<u32>,
    counts: BTreeMap<u32, u32>,
}

/// The class that is being divided into groups. `taken` is the need of other classes in each domain.
struct SearchState<'a> {
    constraints: &'a Constraints,
    taken: &'a [u32],
    groups: Vec<PartialGroup>,
    left: Vec<u32>,
}

/// The groups of a class, each of exactly g drives, within the part of every hard limit that `taken` leaves. At most
/// `exchanges` are tried for the drives that rounds leave over.
pub(super) fn assign(constraints: &Constraints, share: &Share, taken: &[u32], exchanges: usize) -> Vec<Vec<u32>> {
    let mut state =
        SearchState { constraints, taken, groups: vec![PartialGroup::default(); share.groups], left: Vec::new() };
    let mut uses = vec![0_u32; share.groups];
    for round in sorted(constraints, share).chunks(share.groups) {
        state.assign_round(round, &mut uses);
    }
    state.fit_in(exchanges);
    let whole = |drives: &Vec<u32>| drives.len() == constraints.group_drives;
    let groups: Vec<Vec<u32>> = state.groups.into_iter().map(|group| group.drives).filter(whole).collect();
    assert!(groups.len() * constraints.group_drives <= share.drives.len(), "a drive is in one group");
    groups
}

/// The drives, sorted by domain of the tightest hard resource, and within that by failure domains, larger ones first.
fn sorted(constraints: &Constraints, share: &Share) -> Vec<u32> {
    let counts = constraints.counts(&share.drives);
    let width = constraints.of_drive(share.drives[0]).len();
    let tightness = |column: &usize| {
        let number = constraints.of_drive(share.drives[0])[*column];
        let domain = constraints.domain(number);
        match domain.role {
            // Drives per drive that may be awake: the more, the tighter.
            Role::Hard(_) => (0, u64::MAX - u64::from(counts[&number]) * 1000 / u64::from(domain.limit)),
            Role::Media(_) => (1, u64::MAX - u64::from(domain.size)),
            Role::Soft(_) => (2, 0),
        }
    };
    let mut columns: Vec<usize> = (0..width).collect();
    columns.sort_by_key(tightness);
    let pivot = columns.first().copied();
    columns.retain(|c| {
        Some(*c) == pivot
            || matches!(constraints.domain(constraints.of_drive(share.drives[0])[*c]).role, Role::Media(_))
    });
    let mut drives = share.drives.clone();
    drives.sort_by_cached_key(|drive| {
        let row = constraints.of_drive(*drive);
        (columns.iter().map(|c| row[*c]).collect::<Vec<u32>>(), *drive)
    });
    drives
}

impl SearchState<'_> {
    /// The cost of adding `drive` to `group`; `BANNED` or more if that is not allowed.
    fn cost(&self, drive: u32, group: &PartialGroup) -> i64 {
        if group.drives.len() >= self.constraints.group_drives {
            return BANNED;
        }
        self.constraints.of_drive(drive).iter().map(|number| self.cost_in(*number, group)).sum()
    }

    fn cost_in(&self, number: u32, group: &PartialGroup) -> i64 {
        let domain = self.constraints.domain(number);
        let count = group.counts.get(&number).copied().unwrap_or(0);
        let room = domain.limit.saturating_sub(self.taken[number as usize]);
        let even = i64::from(2 * count + 1);
        match domain.role {
            Role::Hard(_) if count >= room => BANNED,
            Role::Soft(_) if count >= room => SOFT,
            Role::Soft(_) => 0,
            Role::Media(_) if count >= domain.limit => SPREAD + even,
            Role::Hard(_) | Role::Media(_) => even,
        }
    }

    fn give(&mut self, drive: u32, group: usize) {
        let group = &mut self.groups[group];
        assert!(group.drives.len() < self.constraints.group_drives, "a group has at most g drives");
        group.drives.push(drive);
        for number in self.constraints.of_drive(drive) {
            *group.counts.entry(*number).or_insert(0) += 1;
        }
    }

    fn take(&mut self, place: usize, group: usize) -> u32 {
        let group = &mut self.groups[group];
        let drive = group.drives.swap_remove(place);
        for number in self.constraints.of_drive(drive) {
            if let Some(count) = group.counts.get_mut(number) {
                assert!(*count > 0, "what is taken was counted");
                *count -= 1;
            }
        }
        drive
    }

    /// Assigns one drive to each group, or leaves it over where that is banned. `uses` counts the rotations used so
    /// far, so that equal choices alternate: on Pelican this results in two drives a height row.
    fn assign_round(&mut self, round: &[u32], uses: &mut [u32]) {
        let groups = self.groups.len();
        assert!(round.len() <= groups && groups == uses.len(), "a round has one drive for each group at most");
        let step = groups.div_ceil(ROTATIONS_MAX);
        let rotated = |shift: usize| (0..round.len()).map(move |rank| (rank + shift) % groups);
        let price = |places: &mut dyn Iterator<Item = usize>| -> i64 {
            round.iter().zip(places).map(|(drive, group)| self.cost(*drive, &self.groups[group])).sum()
        };
        let best = (0..groups).step_by(step).map(|shift| (price(&mut rotated(shift)), uses[shift], shift)).min();
        let (cost, _, shift) = best.unwrap_or((i64::MAX, 0, 0));
        let mut places: Vec<usize> = rotated(shift).collect();
        if cost >= SPREAD && groups <= ASSIGNED_MAX {
            let assigned =
                hungarian::cheapest(round.len(), groups, |row, group| self.cost(round[row], &self.groups[group]));
            if price(&mut assigned.iter().copied()) < cost {
                places = assigned;
            }
        }
        uses[shift] += 1;
        for (drive, group) in round.iter().zip(places) {
            if self.cost(*drive, &self.groups[group]) < BANNED {
                self.give(*drive, group);
            } else {
                self.left.push(*drive);
            }
        }
    }

    /// Places the leftover drives in groups that are not full. Then dissolves the emptiest of these groups and repeats,
    /// as long as there are any.
    fn fit_in(&mut self, mut budget: usize) {
        loop {
            let left = core::mem::take(&mut self.left);
            for drive in left {
                if !self.fit(drive, &mut budget) {
                    self.left.push(drive);
                }
            }
            let open =
                |group: &PartialGroup| !group.drives.is_empty() && group.drives.len() < self.constraints.group_drives;
            let emptiest =
                (0..self.groups.len()).filter(|i| open(&self.groups[*i])).min_by_key(|i| self.groups[*i].drives.len());
            let Some(emptiest) = emptiest else { return };
            let group = core::mem::take(&mut self.groups[emptiest]);
            self.groups.remove(emptiest);
            self.left.extend(group.drives);
        }
    }

    /// Places `drive` in a group with room, or in exchange for a drive that fits into one.
    fn fit(&mut self, drive: u32, budget: &mut usize) -> bool {
        let open: Vec<usize> =
            (0..self.groups.len()).filter(|i| self.groups[*i].drives.len() < self.constraints.group_drives).collect();
        *budget = budget.saturating_sub(open.len());
        let direct =
            open.iter().map(|i| (self.cost(drive, &self.groups[*i]), *i)).min().filter(|(cost, _)| *cost < BANNED);
        if let Some((_, group)) = direct {
            self.give(drive, group);
            return true;
        }
        for target in open {
            for from in (0..self.groups.len()).filter(|from| *from != target) {
                for place in 0..self.groups[from].drives.len() {
                    if *budget == 0 {
                        return false;
                    }
                    *budget -= 1;
                    if self.exchange(drive, from, place, target) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Moves the drive at `place` of `from` to `target` and `drive` to its place, if neither is banned.
    fn exchange(&mut self, drive: u32, from: usize, place: usize, target: usize) -> bool {
        assert!(from != target, "an exchange is between two groups");
        let moved = self.groups[from].drives[place];
        if self.cost(moved, &self.groups[target]) >= BANNED {
            return false;
        }
        self.take(place, from);
        if self.cost(drive, &self.groups[from]) >= BANNED {
            self.give(moved, from);
            return false;
        }
        self.give(drive, from);
        self.give(moved, target);
        true
    }
}
