//! The assignment of drives to classes.
//!
//! Only one class may touch a domain of limit 1, so drives that share one form an *atom*, which goes to one class
//! whole. Each atom is assigned to the class where it does the least harm: first, the sum of the classes' needs in a
//! domain must not exceed its limit; then, domains are spread evenly over the classes that share them.

use super::constraints::{Constraints, Role};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Limit on looked-up counts. Above it, an atom considers a few classes instead of all: the next ones in turn, and
/// those that already share one of its domains.
const LOOKUPS_MAX: usize = 4_000_000;
const WINDOW: usize = 8;
const SHARERS_MAX: usize = 32;

/// Drives that must be in one class.
struct Atom {
    drives: Vec<u32>,
    counts: BTreeMap<u32, u32>,
}

/// A class that is being filled.
struct Bin {
    drives: Vec<u32>,
    counts: BTreeMap<u32, u32>,
    /// The number of groups that it is to have.
    groups: usize,
}

/// A future class: its drives, and the number of groups to make of them.
pub(super) struct Share {
    pub(super) drives: Vec<u32>,
    pub(super) groups: usize,
}

impl Bin {
    /// The largest number of drives that a group of the class will have in a domain with `count` of its drives, if they
    /// are assigned evenly.
    fn need(&self, count: u32) -> u32 {
        assert!(self.groups > 0, "a class has groups");
        count.div_ceil(self.groups as u32)
    }
}

/// Divides `drives` into at most `count` classes. With `soft`, soft domains of limit 1 are kept whole as well.
pub(super) fn divide(constraints: &Constraints, drives: &[u32], count: usize, soft: bool) -> Vec<Share> {
    let groups = drives.len() / constraints.group_drives;
    let count = count.min(groups);
    if count == 0 {
        return Vec::new();
    }
    let mut bins: Vec<Bin> = (0..count)
        .map(|i| Bin {
            drives: vec![],
            counts: BTreeMap::new(),
            groups: groups / count + usize::from(i < groups % count),
        })
        .collect();
    let atoms = if count == 1 { vec![atom(constraints, drives.to_vec())] } else { atoms(constraints, drives, soft) };
    let lookups: usize = atoms.iter().map(|a| a.counts.len()).sum::<usize>() * count;
    let window = if lookups > LOOKUPS_MAX { WINDOW } else { count };
    let mut planned = vec![0_u32; constraints.domains.len()];
    let mut sharers: Vec<Vec<usize>> = vec![vec![]; constraints.domains.len()];
    for (turn, atom) in atoms.into_iter().enumerate() {
        let next = (0..window).map(|i| if window == count { i } else { (turn + i) % count });
        let sharing = atom.counts.keys().flat_map(|n| &sharers[*n as usize]).copied().take(SHARERS_MAX);
        let chosen = next.chain(sharing).min_by_key(|i| harm(constraints, &bins[*i], &atom, &planned, *i)).unwrap_or(0);
        for number in atom.counts.keys().filter(|n| constraints.domain(**n).hard()) {
            let sharers = &mut sharers[*number as usize];
            if sharers.last() != Some(&chosen) && sharers.len() < WINDOW {
                sharers.push(chosen);
            }
        }
        add(&mut bins[chosen], atom, &mut planned);
    }
    let assigned: usize = bins.iter().map(|bin| bin.drives.len()).sum();
    assert!(assigned == drives.len(), "every drive is assigned to one class");
    let share = |bin: Bin| Share { groups: bin.drives.len() / constraints.group_drives, drives: bin.drives };
    bins.into_iter().map(share).filter(|s| s.groups > 0).collect()
}

fn atom(constraints: &Constraints, drives: Vec<u32>) -> Atom {
    Atom { counts: constraints.counts(&drives), drives }
}

/// The cost of adding `atom` to `bin`, most important first.
fn harm(
    constraints: &Constraints,
    bin: &Bin,
    atom: &Atom,
    planned: &[u32],
    index: usize,
) -> (bool, u64, u64, usize, usize) {
    let (mut over, mut crowding) = (0_u64, 0_u64);
    for (number, added) in &atom.counts {
        let domain = constraints.domain(*number);
        let count = bin.counts.get(number).copied().unwrap_or(0);
        if !matches!(domain.role, Role::Media(_)) {
            let total = planned[*number as usize] - bin.need(count) + bin.need(count + added);
            let weight = if matches!(domain.role, Role::Hard(_)) { 1000 } else { 1 };
            over += weight * u64::from(total.saturating_sub(domain.limit.max(planned[*number as usize])));
        }
        crowding += u64::from(*added) * u64::from(2 * count + added);
    }
    let full = bin.drives.len() + atom.drives.len() > bin.groups * constraints.group_drives;
    (full, over, crowding, bin.drives.len(), index)
}

fn add(bin: &mut Bin, atom: Atom, planned: &mut [u32]) {
    for (number, added) in atom.counts {
        let count = bin.counts.get(&number).copied().unwrap_or(0);
        assert!(bin.need(count + added) >= bin.need(count), "more drives need no less");
        planned[number as usize] += bin.need(count + added) - bin.need(count);
        bin.counts.insert(number, count + added);
    }
    bin.drives.extend(atom.drives);
}

/// The atoms of `drives`, each with its drives ascending, in the order of their first drive.
fn atoms(constraints: &Constraints, drives: &[u32], soft: bool) -> Vec<Atom> {
    let mut parents: Vec<usize> = (0..drives.len()).collect();
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    for (place, drive) in drives.iter().enumerate() {
        for number in constraints.of_drive(*drive).iter().filter(|n| binds(constraints, **n, soft)) {
            let other = *seen.entry(*number).or_insert(place);
            let (a, b) = (root(&mut parents, place), root(&mut parents, other));
            parents[a.max(b)] = a.min(b);
        }
    }
    let mut sets: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for (place, drive) in drives.iter().enumerate() {
        sets.entry(root(&mut parents, place)).or_default().push(*drive);
    }
    assert!(sets.values().map(Vec::len).sum::<usize>() == drives.len(), "every drive is in one atom");
    sets.into_values().map(|drives| atom(constraints, drives)).collect()
}

fn binds(constraints: &Constraints, number: u32, soft: bool) -> bool {
    let domain = constraints.domain(number);
    domain.limit == 1
        && match domain.role {
            Role::Hard(_) => true,
            Role::Soft(_) => soft,
            Role::Media(_) => false,
        }
}

fn root(parents: &mut [usize], mut place: usize) -> usize {
    while parents[place] != place {
        parents[place] = parents[parents[place]];
        place = parents[place];
    }
    place
}
