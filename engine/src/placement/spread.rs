//! Choice of k + r drives so that the loss of one failure domain costs at most r of them.
//!
//! Candidates come in order of preference. Taking them greedily, unless a domain is full, returns the most preferred
//! drives and never fails needlessly as long as the kinds of domains are nested (a tray is in one chassis): the allowed
//! sets form a laminar matroid, for which a greedy choice is optimal. For kinds that cross, the problem is as hard as
//! matching, and a bounded search follows the greedy order. If it misses an existing choice, the rule is relaxed
//! slightly early; the room is never exceeded.
//!
//! Invariants: a choice is k + r distinct candidates, or nothing; `relaxed` finds a choice whenever there are k + r.

use alloc::vec;
use alloc::vec::Vec;
use model::{DriveId, RackSpec};

/// Steps of the search after a failed greedy choice, where kinds of domains cross.
const SEARCH_STEPS_MAX: u32 = 20_000;

/// One way in which drives fail together and lose their data.
struct FailureKind {
    /// The domain of each drive.
    domain_of: Vec<u32>,
    domain_count: usize,
}

impl FailureKind {
    fn of(spec: &RackSpec, index: usize) -> Self {
        let domain_of: Vec<u32> = spec.drives.iter().map(|drive| drive.failure_domains[index].0).collect();
        let domain_count = domain_of.iter().max().map_or(0, |last| *last as usize + 1);
        Self { domain_of, domain_count }
    }

    /// True if drives of one domain of this kind are always in one domain of `other`.
    fn lies_in(&self, other: &Self) -> bool {
        let mut seen = vec![None; self.domain_count];
        self.domain_of
            .iter()
            .zip(&other.domain_of)
            .all(|(own, theirs)| *seen[*own as usize].get_or_insert(*theirs) == *theirs)
    }
}

/// The rule of domains of one rack. See the head of this file.
pub(super) struct Spread {
    kinds: Vec<FailureKind>,
    nested: bool,
    /// k + r.
    pub stacks: usize,
    /// r: the number of stacks that one domain may hold.
    per_domain: usize,
}

impl Spread {
    pub fn new(spec: &RackSpec) -> Self {
        let losing = spec.failure_domains.iter().enumerate().filter(|(_, kind)| kind.loses_media);
        // A domain of one drive never holds more than one stack.
        let shared =
            losing.map(|(index, _)| FailureKind::of(spec, index)).filter(|kind| kind.domain_count < spec.drives.len());
        let kinds: Vec<_> = shared.collect();
        assert!(spec.code.stacks() > usize::from(spec.code.parity), "a blob has data stacks");
        let pairs = kinds.iter().enumerate().flat_map(|(i, a)| kinds[i + 1..].iter().map(move |b| (a, b)));
        let nested = pairs.into_iter().all(|(a, b)| a.lies_in(b) || b.lies_in(a));
        Self { nested, stacks: spec.code.stacks(), per_domain: usize::from(spec.code.parity), kinds }
    }

    /// The largest number of these drives in one domain beyond r. 0 without redundancy, which leaves nothing to spread.
    pub fn excess(&self, drives: &[DriveId]) -> usize {
        if self.per_domain == 0 {
            return 0;
        }
        let worst = self.kinds.iter().map(|kind| {
            let mut domains: Vec<u32> = drives.iter().map(|drive| kind.domain_of[drive.index()]).collect();
            domains.sort_unstable();
            domains.chunk_by(u32::eq).map(<[u32]>::len).max().unwrap_or(0)
        });
        worst.max().unwrap_or(0).saturating_sub(self.per_domain)
    }

    /// The number of `drives` in the domains of `drive`, summed over all kinds of domains.
    pub fn beside(&self, drives: &[DriveId], drive: DriveId) -> usize {
        let same = |kind: &FailureKind, other: DriveId| kind.domain_of[other.index()] == kind.domain_of[drive.index()];
        self.kinds.iter().map(|kind| drives.iter().filter(|other| same(kind, **other)).count()).sum()
    }

    /// k + r of the candidates, the earlier the better, with at most r in any domain.
    pub fn strict(&self, candidates: &[DriveId]) -> Option<Vec<DriveId>> {
        let cap = if self.per_domain == 0 { self.stacks } else { self.per_domain };
        let chosen = self.within(candidates, &vec![cap; self.kinds.len()])?;
        assert!(self.excess(&chosen) == 0, "losing one domain loses no blob");
        Some(chosen)
    }

    /// k + r of the candidates, the earlier the better, with as few as possible above r in any domain: first the cap of
    /// all kinds of domains is lowered as far as possible, then the cap of each kind, in the order of the description.
    pub fn relaxed(&self, candidates: &[DriveId]) -> Option<Vec<DriveId>> {
        let least = self.per_domain.max(1);
        let mut caps = vec![self.stacks; self.kinds.len()];
        let mut best = self.within(candidates, &caps)?;
        for cap in (least..self.stacks).rev() {
            let Some(drives) = self.within(candidates, &vec![cap; self.kinds.len()]) else { break };
            caps.fill(cap);
            best = drives;
        }
        for kind in 0..caps.len() {
            while caps[kind] > least {
                caps[kind] -= 1;
                let Some(drives) = self.within(candidates, &caps) else {
                    caps[kind] += 1;
                    break;
                };
                best = drives;
            }
        }
        assert!(best.len() == self.stacks, "a blob has k + r drives however crowded they are");
        Some(best)
    }

    fn within(&self, candidates: &[DriveId], caps: &[usize]) -> Option<Vec<DriveId>> {
        if candidates.len() < self.stacks {
            return None;
        }
        let room = self.kinds.iter().zip(caps).map(|(kind, cap)| vec![*cap; kind.domain_count]).collect();
        let mut search =
            Search { spread: self, candidates, room, chosen: Vec::with_capacity(self.stacks), trail: vec![] };
        assert!(search.room.len() == caps.len(), "every kind of domain has a cap");
        search.run(if self.nested { 0 } else { SEARCH_STEPS_MAX })
    }
}

/// A search over the candidates: each is taken if allowed, and on a dead end the last one taken is left out instead.
struct Search<'a> {
    spread: &'a Spread,
    candidates: &'a [DriveId],
    /// For each kind, the number of stacks that each domain may still hold.
    room: Vec<Vec<usize>>,
    chosen: Vec<DriveId>,
    /// The position of each chosen drive among the candidates.
    trail: Vec<usize>,
}

impl Search<'_> {
    fn run(&mut self, mut steps: u32) -> Option<Vec<DriveId>> {
        let mut begin = 0;
        loop {
            self.take_from(begin);
            if self.chosen.len() == self.spread.stacks {
                assert!(self.trail.is_sorted(), "a candidate is taken once");
                return Some(core::mem::take(&mut self.chosen));
            }
            if steps == 0 {
                return None;
            }
            steps -= 1;
            begin = self.leave_out()?;
        }
    }

    /// Takes all allowed candidates from candidate `at` on, until there are enough or too few are left.
    fn take_from(&mut self, mut at: usize) {
        let wanted = self.spread.stacks;
        while self.chosen.len() < wanted && self.chosen.len() + self.candidates.len() - at >= wanted {
            let drive = self.candidates[at];
            if self.fits(drive) {
                self.count(drive, -1);
                self.chosen.push(drive);
                self.trail.push(at);
            }
            at += 1;
        }
    }

    /// Returns the last drive taken to the candidates, and returns the position at which to continue.
    fn leave_out(&mut self) -> Option<usize> {
        assert!(self.chosen.len() == self.trail.len(), "every drive that was taken has its place");
        let drive = self.chosen.pop()?;
        self.count(drive, 1);
        self.trail.pop().map(|at| at + 1)
    }

    fn fits(&self, drive: DriveId) -> bool {
        self.spread.kinds.iter().zip(&self.room).all(|(kind, room)| room[kind.domain_of[drive.index()] as usize] > 0)
    }

    fn count(&mut self, drive: DriveId, by: isize) {
        for (kind, room) in self.spread.kinds.iter().zip(&mut self.room) {
            let room = &mut room[kind.domain_of[drive.index()] as usize];
            *room = room.checked_add_signed(by).expect("room is taken only where there is some");
        }
    }
}
