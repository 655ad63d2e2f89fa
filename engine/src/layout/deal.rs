//! Which drives of a class go to which group.
//!
//! The drives are sorted by their tightest domain and dealt in rounds of one drive a group, like cards. Each round is a
//! rotation of the groups if that breaks nothing: on Pelican a round is a cooling column, and the rotations chosen are
//! the paper's construction (one drive a column, at most one a tray, two a height row, four a chassis). Where no
//! rotation fits, the round is a cheapest assignment. What finds no place then is fitted in by exchanges, a bounded
//! number of them.

use super::assign;
use super::classes::Share;
use super::ground::{Ground, Role};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A hard limit would break: never done.
const BANNED: i64 = 1 << 40;
/// A soft limit would break.
const SOFT: i64 = 1 << 24;
/// A failure domain would hold more than r drives of the group.
const SPREAD: i64 = 1 << 14;
/// Rounds up to this many groups may be solved as an assignment; larger ones are rotations and exchanges.
const ASSIGNED_MAX: usize = 64;
/// Rotations tried for a round.
const ROTATIONS_MAX: usize = 64;

/// A group being dealt.
#[derive(Clone, Default)]
struct Hand {
    drives: Vec<u32>,
    counts: BTreeMap<u32, u32>,
}

/// A class being dealt. `taken` is what other classes need in each domain.
struct Table<'a> {
    ground: &'a Ground,
    taken: &'a [u32],
    hands: Vec<Hand>,
    left: Vec<u32>,
}

/// The groups of a class, each of exactly g drives, within what `taken` leaves of every hard limit. At most `exchanges`
/// are tried for what dealing leaves over.
pub(super) fn deal(ground: &Ground, share: &Share, taken: &[u32], exchanges: usize) -> Vec<Vec<u32>> {
    let mut table = Table { ground, taken, hands: vec![Hand::default(); share.groups], left: Vec::new() };
    let mut uses = vec![0_u32; share.groups];
    for round in sorted(ground, share).chunks(share.groups) {
        table.deal_round(round, &mut uses);
    }
    table.fit_in(exchanges);
    table.hands.into_iter().map(|hand| hand.drives).filter(|drives| drives.len() == ground.group_drives).collect()
}

/// The drives, those of one domain of the tightest hard resource together, within it by failure domains, larger ones
/// first.
fn sorted(ground: &Ground, share: &Share) -> Vec<u32> {
    let counts = ground.counts(&share.drives);
    let width = ground.of_drive(share.drives[0]).len();
    let tightness = |column: &usize| {
        let number = ground.of_drive(share.drives[0])[*column];
        let domain = ground.domain(number);
        match domain.role {
            // Drives for each that may be awake: the more, the tighter.
            Role::Hard(_) => (0, u64::MAX - u64::from(counts[&number]) * 1000 / u64::from(domain.limit)),
            Role::Media(_) => (1, u64::MAX - u64::from(domain.size)),
            Role::Soft(_) => (2, 0),
        }
    };
    let mut columns: Vec<usize> = (0..width).collect();
    columns.sort_by_key(tightness);
    let pivot = columns.first().copied();
    columns.retain(|c| {
        Some(*c) == pivot || matches!(ground.domain(ground.of_drive(share.drives[0])[*c]).role, Role::Media(_))
    });
    let mut drives = share.drives.clone();
    drives.sort_by_cached_key(|drive| {
        let row = ground.of_drive(*drive);
        (columns.iter().map(|c| row[*c]).collect::<Vec<u32>>(), *drive)
    });
    drives
}

impl Table<'_> {
    /// What giving `drive` to `hand` costs; `BANNED` or more if it must not be.
    fn cost(&self, drive: u32, hand: &Hand) -> i64 {
        if hand.drives.len() >= self.ground.group_drives {
            return BANNED;
        }
        self.ground.of_drive(drive).iter().map(|number| self.cost_in(*number, hand)).sum()
    }

    fn cost_in(&self, number: u32, hand: &Hand) -> i64 {
        let domain = self.ground.domain(number);
        let count = hand.counts.get(&number).copied().unwrap_or(0);
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

    fn give(&mut self, drive: u32, hand: usize) {
        let hand = &mut self.hands[hand];
        hand.drives.push(drive);
        for number in self.ground.of_drive(drive) {
            *hand.counts.entry(*number).or_insert(0) += 1;
        }
    }

    fn take(&mut self, place: usize, hand: usize) -> u32 {
        let hand = &mut self.hands[hand];
        let drive = hand.drives.swap_remove(place);
        for number in self.ground.of_drive(drive) {
            if let Some(count) = hand.counts.get_mut(number) {
                *count -= 1;
            }
        }
        drive
    }

    /// Deals one drive to each group, or leaves it over where that is banned. `uses` counts the rotations used so far,
    /// so that equal choices go round: on Pelican this is what makes it two a height row.
    fn deal_round(&mut self, round: &[u32], uses: &mut [u32]) {
        let hands = self.hands.len();
        let step = hands.div_ceil(ROTATIONS_MAX);
        let rotated = |shift: usize| (0..round.len()).map(move |rank| (rank + shift) % hands);
        let price = |places: &mut dyn Iterator<Item = usize>| -> i64 {
            round.iter().zip(places).map(|(drive, hand)| self.cost(*drive, &self.hands[hand])).sum()
        };
        let best = (0..hands).step_by(step).map(|shift| (price(&mut rotated(shift)), uses[shift], shift)).min();
        let (cost, _, shift) = best.unwrap_or((i64::MAX, 0, 0));
        let mut places: Vec<usize> = rotated(shift).collect();
        if cost >= SPREAD && hands <= ASSIGNED_MAX {
            let assigned = assign::cheapest(round.len(), hands, |row, hand| self.cost(round[row], &self.hands[hand]));
            if price(&mut assigned.iter().copied()) < cost {
                places = assigned;
            }
        }
        uses[shift] += 1;
        for (drive, hand) in round.iter().zip(places) {
            if self.cost(*drive, &self.hands[hand]) < BANNED {
                self.give(*drive, hand);
            } else {
                self.left.push(*drive);
            }
        }
    }

    /// Fits what is left over into groups that are not full; then gives up the emptiest of these, as often as it helps.
    fn fit_in(&mut self, mut budget: usize) {
        loop {
            let left = core::mem::take(&mut self.left);
            for drive in left {
                if !self.fit(drive, &mut budget) {
                    self.left.push(drive);
                }
            }
            let open = |hand: &Hand| !hand.drives.is_empty() && hand.drives.len() < self.ground.group_drives;
            let emptiest =
                (0..self.hands.len()).filter(|i| open(&self.hands[*i])).min_by_key(|i| self.hands[*i].drives.len());
            let Some(emptiest) = emptiest else { return };
            let hand = core::mem::take(&mut self.hands[emptiest]);
            self.hands.remove(emptiest);
            self.left.extend(hand.drives);
        }
    }

    /// Places `drive` in a group with room, or in exchange for a drive that fits into one.
    fn fit(&mut self, drive: u32, budget: &mut usize) -> bool {
        let open: Vec<usize> =
            (0..self.hands.len()).filter(|i| self.hands[*i].drives.len() < self.ground.group_drives).collect();
        *budget = budget.saturating_sub(open.len());
        let direct =
            open.iter().map(|i| (self.cost(drive, &self.hands[*i]), *i)).min().filter(|(cost, _)| *cost < BANNED);
        if let Some((_, hand)) = direct {
            self.give(drive, hand);
            return true;
        }
        for target in open {
            for from in (0..self.hands.len()).filter(|from| *from != target) {
                for place in 0..self.hands[from].drives.len() {
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

    /// Moves the drive at `place` of `from` to `target` and `drive` into its place, if neither is banned.
    fn exchange(&mut self, drive: u32, from: usize, place: usize, target: usize) -> bool {
        let moved = self.hands[from].drives[place];
        if self.cost(moved, &self.hands[target]) >= BANNED {
            return false;
        }
        self.take(place, from);
        if self.cost(drive, &self.hands[from]) >= BANNED {
            self.give(moved, from);
            return false;
        }
        self.give(drive, from);
        self.give(moved, target);
        true
    }
}
