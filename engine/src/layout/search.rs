//! Tries numbers of classes, with and without keeping soft domains and servers whole, and keeps the best plan.

use super::assignment;
use super::classes::{self, Share};
use super::constraints::{Constraints, Domain, Plan};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use model::RackSpec;

/// Approximate number of drives assigned in all attempts together; it bounds the number of attempts on large racks.
const ASSIGNED_MAX: usize = 400_000;
/// Exchanges tried in an attempt.
const EXCHANGES_MAX: usize = 1_000_000;

/// The quality of a plan, most important first: active groups times groups, groups, kept soft domains, kept spread.
type Worth = (u64, u64, Reverse<u32>, Reverse<u32>);

/// The worth of `plan`.
fn worth_of(plan: &Plan, constraints: &Constraints) -> Worth {
    let (active, groups) = (plan.len() as u64, plan.iter().map(|c| c.len() as u64).sum::<u64>());
    let soft = constraints.soft_breaches(plan).values().sum();
    let spread = constraints.spread_shortfalls(plan).values().sum();
    (active * groups, groups, Reverse(soft), Reverse(spread))
}

/// The best plan found for the whole rack. Empty if no group was found.
pub(super) fn best(spec: &RackSpec, constraints: &Constraints) -> Plan {
    let whole = vec![constraints.usable.clone()];
    let mut divisions: Vec<Vec<Vec<u32>>> = by_server(spec, constraints).into_iter().collect();
    divisions.push(whole);
    let perfect = perfect(constraints);
    let mut best: Option<(Worth, Plan)> = None;
    for soft in [true, false] {
        for parts in &divisions {
            let plan: Plan = parts.iter().flat_map(|part| of_part(constraints, part, soft)).collect();
            let worth = worth_of(&plan, constraints);
            if best.as_ref().is_none_or(|(least, _)| worth > *least) {
                best = Some((worth, plan));
            }
            if best.as_ref().is_some_and(|(most, _)| *most >= perfect) {
                return best.map_or_else(Plan::default, |(_, plan)| plan);
            }
        }
    }
    best.map(|(_, plan)| plan).filter(|plan| !plan.is_empty()).unwrap_or_else(|| single(constraints))
}

/// One group found by a search for drives that fit, where assignment found none. Looks at a limited number of partial
/// choices.
fn single(constraints: &Constraints) -> Plan {
    const CHOICES_MAX: u32 = 200_000;
    let mut choice = GroupSearch { constraints, drives: Vec::new(), counts: BTreeMap::new(), budget: CHOICES_MAX };
    let found = choice.extend(0);
    assert!(!found || choice.drives.len() == constraints.group_drives, "what is found is a whole group");
    if found { vec![vec![choice.drives]] } else { Vec::new() }
}

/// A group that is built drive by drive.
struct GroupSearch<'a> {
    constraints: &'a Constraints,
    drives: Vec<u32>,
    counts: BTreeMap<u32, u32>,
    budget: u32,
}

impl GroupSearch<'_> {
    /// True if usable drives at or after `next` complete the group.
    fn extend(&mut self, next: usize) -> bool {
        let constraints = self.constraints;
        assert!(self.drives.len() <= constraints.group_drives, "a group has at most g drives");
        if self.drives.len() == constraints.group_drives {
            return true;
        }
        for (place, drive) in constraints.usable.iter().enumerate().skip(next) {
            if self.budget == 0 {
                return false;
            }
            self.budget -= 1;
            let row = constraints.of_drive(*drive);
            let full = |number: &u32| {
                let domain = constraints.domain(*number);
                domain.hard() && self.counts.get(number).copied().unwrap_or(0) >= domain.limit
            };
            if row.iter().any(full) {
                continue;
            }
            for number in row {
                *self.counts.entry(*number).or_insert(0) += 1;
            }
            self.drives.push(*drive);
            if self.extend(place + 1) {
                return true;
            }
            self.drives.pop();
            for number in row {
                *self.counts.entry(*number).or_insert(1) -= 1;
            }
        }
        false
    }
}

/// The worth that no plan can exceed.
fn perfect(constraints: &Constraints) -> Worth {
    worth_bound(constraints, &constraints.usable)
}

fn worth_bound(constraints: &Constraints, drives: &[u32]) -> Worth {
    let groups = (drives.len() / constraints.group_drives) as u64;
    let active = constraints.awake_max(drives).0 / constraints.group_drives as u64;
    assert!(active <= groups, "no more groups are active than there are");
    (active * groups, groups, Reverse(0), Reverse(0))
}

/// The usable drives by server, which is the first kind of failure domain that loses no media; none if a hard limit
/// spans two servers. Classes within one server can be served, and taken over, as a whole.
fn by_server(spec: &RackSpec, constraints: &Constraints) -> Option<Vec<Vec<u32>>> {
    let kind = spec.failure_domains.iter().position(|kind| !kind.loses_media)?;
    let mut parts: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut owner: BTreeMap<u32, u32> = BTreeMap::new();
    for drive in &constraints.usable {
        let server = spec.drives[*drive as usize].failure_domains[kind].0;
        parts.entry(server).or_default().push(*drive);
        for number in constraints.of_drive(*drive) {
            if constraints.domain(*number).hard() && *owner.entry(*number).or_insert(server) != server {
                return None;
            }
        }
    }
    assert!(parts.values().map(Vec::len).sum::<usize>() == constraints.usable.len(), "every drive has one server");
    (parts.len() > 1).then(|| parts.into_values().collect())
}

/// The best plan found for drives whose hard domains hold no others.
fn of_part(constraints: &Constraints, drives: &[u32], soft: bool) -> Plan {
    let bound = (constraints.awake_max(drives).0 as usize) / constraints.group_drives;
    let perfect = worth_bound(constraints, drives);
    let mut best = Plan::default();
    let mut worth = worth_of(&best, constraints);
    for count in counts(bound, drives.len()) {
        if (count as u64) * perfect.1 < worth.0 {
            break;
        }
        let plan = attempt(constraints, drives, count, soft);
        let found = worth_of(&plan, constraints);
        if found > worth {
            (best, worth) = (plan, found);
        }
        if worth >= perfect {
            break;
        }
    }
    best
}

/// Numbers of classes to try: the bound, then each at most an eighth fewer, down to 1; bounded in number.
fn counts(bound: usize, drives: usize) -> Vec<usize> {
    let most = (ASSIGNED_MAX / drives.max(1)).clamp(3, 48);
    let mut counts = Vec::new();
    let mut count = bound;
    while count > 0 && counts.len() + 1 < most {
        counts.push(count);
        count -= (count / 8).max(1);
    }
    if bound > 0 && counts.last() != Some(&1) {
        counts.push(1);
    }
    assert!(counts.is_sorted_by(|more, fewer| more > fewer), "fewer classes are tried each time");
    assert!(counts.len() <= most, "the number of attempts is bounded");
    counts
}

/// A plan of at most `count` classes, which keeps every hard limit.
fn attempt(constraints: &Constraints, drives: &[u32], count: usize, soft: bool) -> Plan {
    let shares = classes::divide(constraints, drives, count, soft);
    let mut planned: Vec<BTreeMap<u32, u32>> = shares.iter().map(|share| even_needs(constraints, share)).collect();
    let mut taken = vec![0_u32; constraints.domains.len()];
    planned.iter().flatten().for_each(|(number, need)| taken[*number as usize] += need);
    let mut plan = Plan::default();
    for (share, needs) in shares.iter().zip(&mut planned) {
        for (number, need) in needs.iter() {
            assert!(taken[*number as usize] >= *need, "the need of a class was planned");
            taken[*number as usize] -= need;
        }
        let class = assignment::assign(constraints, share, &taken, EXCHANGES_MAX / shares.len());
        constraints.needs(&class).iter().for_each(|(number, need)| taken[*number as usize] += need);
        if !class.is_empty() {
            plan.push(class);
        }
    }
    let plan = split_off(constraints, plan, &mut taken);
    let kept = |(domain, taken): (&Domain, &u32)| !domain.hard() || *taken <= domain.limit;
    assert!(constraints.domains.iter().zip(&taken).all(kept), "one group of each class keeps every hard limit");
    plan
}

/// The need of a class in each domain if its drives are assigned evenly.
fn even_needs(constraints: &Constraints, share: &Share) -> BTreeMap<u32, u32> {
    let counts = constraints.counts(&share.drives);
    counts.into_iter().map(|(number, count)| (number, count.div_ceil(share.groups as u32))).collect()
}

/// Moves every group that can be awake beside all classes as they are into its own class.
fn split_off(constraints: &Constraints, plan: Plan, taken: &mut [u32]) -> Plan {
    let groups: usize = plan.iter().map(Vec::len).sum();
    let mut classes: Vec<Vec<Vec<u32>>> = Vec::new();
    for mut class in plan {
        let mut alone = Vec::new();
        while class.len() > 1 {
            let free = class.iter().position(|group| {
                let mut counts = constraints.counts(group).into_iter();
                counts.all(|(number, count)| {
                    let domain = constraints.domain(number);
                    domain.media() || taken[number as usize] + count <= domain.limit
                })
            });
            let Some(place) = free else { break };
            let group = class.remove(place);
            constraints.counts(&group).iter().for_each(|(number, count)| taken[*number as usize] += count);
            alone.push(vec![group]);
        }
        classes.push(class);
        classes.extend(alone);
    }
    assert!(classes.iter().map(Vec::len).sum::<usize>() == groups, "no group is lost");
    classes
}
