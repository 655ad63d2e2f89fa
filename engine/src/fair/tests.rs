//! A class in a simulation with time: switches and transfers of random length, charged as the rack charges them.

#![allow(clippy::unwrap_used)]

use super::{FairQueues, Pick};
use crate::policy::{PriorityClass, SchedulerPolicy, Shares, Weighing};
use crate::reorder::Queued;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use model::{GroupId, OpId, Rng, Time};
use proptest::prelude::*;

const SWITCH_S: [u64; 2] = [8, 14];
const TRANSFER_MS: [u64; 2] = [1, 5_000];
/// C: the longest that one operation takes.
const LONGEST: Duration = Duration::from_secs(SWITCH_S[1] + TRANSFER_MS[1] / 1_000);

fn policy(shares: [u32; 3], quantum_s: u64, overtake_limit: u64, join_in_service: bool) -> SchedulerPolicy {
    let [client, rebuild, background] = shares;
    SchedulerPolicy {
        queue_depth: 1_000,
        overtake_limit,
        weighing: Weighing::Operations,
        wait_limit: None,
        join_in_service,
        shares: Shares { client, rebuild, background },
        quantum: Duration::from_secs(quantum_s),
        anticipation: Duration::ZERO,
        overload: crate::OverloadPolicy::default(),
    }
}

/// A class with one operation in service at a time.
struct Class {
    queues: FairQueues,
    policy: SchedulerPolicy,
    rng: Rng,
    now: Time,
    awake: Option<GroupId>,
    charged: [Duration; 3],
    ops: u64,
}

impl Class {
    fn new(policy: SchedulerPolicy, seed: u64) -> Self {
        let queues = FairQueues::new(&policy);
        Self { queues, policy, rng: Rng::new(seed), now: Time::ZERO, awake: None, charged: Default::default(), ops: 0 }
    }

    fn push(&mut self, priority: PriorityClass, group: u32) -> OpId {
        let op = OpId(self.ops);
        self.ops += 1;
        let due = match self.policy.wait_limit {
            Some(limit) if priority == PriorityClass::Client => self.now + limit,
            _ => Time::MAX,
        };
        let item = Queued {
            op,
            group: GroupId(group),
            weight: 1,
            switch_weight: 0,
            overtake_limit: self.policy.overtake_limit,
            due,
        };
        self.queues.push(priority, item).unwrap();
        op
    }

    fn push_random(&mut self, priority: PriorityClass) -> OpId {
        let group = self.rng.below(6) as u32;
        self.push(priority, group)
    }

    /// Serves one operation; returns it, and the time when its switch began.
    fn serve(&mut self) -> Option<(Pick, Time)> {
        let pick = self.queues.next(self.now, self.awake)?;
        let begun = self.now;
        if self.awake != Some(pick.group) {
            assert!(!pick.piggyback, "piggybacking needs no switch");
            self.awake = Some(pick.group);
            let span = Duration::from_secs(self.rng.between(SWITCH_S[0], SWITCH_S[1]));
            self.queues.charge_switch(pick.priority, span);
            self.pass(pick.priority, span);
        }
        let span = Duration::from_millis(self.rng.between(TRANSFER_MS[0], TRANSFER_MS[1]));
        self.queues.charge_transfer(pick.priority, span);
        self.pass(pick.priority, span);
        Some((pick, begun))
    }

    fn pass(&mut self, priority: PriorityClass, span: Duration) {
        self.now += span;
        self.charged[priority as usize] += span;
    }

    fn keep_backlogged(&mut self, priorities: &[PriorityClass]) {
        for priority in priorities {
            while self.queues.queue_len(*priority) < 30 {
                self.push_random(*priority);
            }
        }
    }

    fn serve_backlogged(&mut self, priorities: &[PriorityClass], operations: u32) {
        for _ in 0..operations {
            self.keep_backlogged(priorities);
            self.serve().unwrap();
        }
    }

    /// Q + 2 C.
    fn lead(&self) -> Duration {
        self.policy.quantum + 2 * LONGEST
    }

    /// The bound at the head of the module: an operation of `priority` that finds `queued` others there waits no
    /// longer.
    fn longest_wait(&self, priority: PriorityClass, queued: usize) -> Duration {
        let own = LONGEST * (queued as u32 + self.policy.overtake_limit as u32);
        let share = self.policy.shares.of(priority);
        let others =
            PriorityClass::ALL.into_iter().filter(|other| *other != priority).map(|other| self.policy.shares.of(other));
        let foreign = others.map(|other| (own + self.lead()) * other / share + self.lead());
        own + self.lead() + foreign.sum::<Duration>()
    }
}

impl Class {
    /// The bound of "The limit in time" at the head of the module, for an operation of a client that arrives now.
    fn limited_wait(&self, group: u32, groups: u32, beside_others: bool) -> Duration {
        let switch = Duration::from_secs(SWITCH_S[1]);
        let one = Duration::from_millis(TRANSFER_MS[1]);
        let visit = switch + self.policy.quantum + 2 * one;
        let mut others: Vec<GroupId> = self.queues.queued_in(PriorityClass::Client).map(|item| item.group).collect();
        others.retain(|other| other.0 != group);
        others.sort_unstable();
        others.dedup();
        let before = self.queues.queued_for(GroupId(group)) as u32;
        let own = one * before;
        // Its group may just have been visited for earlier operations, and be visited again only after all others.
        let more_rounds = own.as_nanos().div_ceil(self.policy.quantum.as_nanos()) as u32;
        let alone = visit * (1 + others.len() as u32 + groups * more_rounds) + switch + own;
        let mut bound = self.policy.wait_limit.unwrap() + alone;
        if beside_others {
            let share = self.policy.shares.of(PriorityClass::Background);
            bound += self.lead() + (alone + self.lead()) * share / self.policy.shares.client + self.lead();
        }
        bound
    }
}

fn assert_near(part: Duration, whole: Duration, share: u32, shares: u32) {
    let (is, should) = (part.as_secs_f64() / whole.as_secs_f64(), f64::from(share) / f64::from(shares));
    assert!((is - should).abs() < 0.02, "{is} of the time instead of {should}");
}

fn total(class: &Class) -> Duration {
    class.charged.iter().sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lanes_with_work_get_their_shares_of_time(
        shares in prop::array::uniform3(1..8_u32), quantum_s in 0..40_u64, u in 0..40_u64, join: bool, seed: u64,
    ) {
        let mut class = Class::new(policy(shares, quantum_s, u, join), seed);
        class.serve_backlogged(&PriorityClass::ALL, 4_000);
        for priority in PriorityClass::ALL {
            let (charged, share) = (class.charged[priority as usize], shares[priority as usize]);
            assert_near(charged, total(&class), share, shares.iter().sum());
        }
        prop_assert_eq!(class.now.since(Time::ZERO), total(&class));
    }

    #[test]
    fn an_idle_lanes_time_goes_to_the_others_and_is_no_credit_to_it(
        shares in prop::array::uniform3(1..8_u32), quantum_s in 0..40_u64, idle in 0..3_usize, seed: u64,
    ) {
        let mut class = Class::new(policy(shares, quantum_s, 20, false), seed);
        let idle = PriorityClass::ALL[idle];
        let busy: Vec<_> = PriorityClass::ALL.into_iter().filter(|priority| *priority != idle).collect();
        class.serve_backlogged(&busy, 2_000);
        let all: u32 = busy.iter().map(|priority| shares[*priority as usize]).sum();
        for priority in busy {
            assert_near(class.charged[priority as usize], total(&class), shares[priority as usize], all);
        }
        let before = class.now;
        class.serve_backlogged(&PriorityClass::ALL, 500);
        let fair = class.now.since(before) * shares[idle as usize] / shares.iter().sum();
        prop_assert!(class.charged[idle as usize] <= fair + 2 * class.lead());
    }

    #[test]
    fn something_is_served_whenever_something_waits(
        shares in prop::array::uniform3(0..3_u32), quantum_s in 0..40_u64, u in 0..10_u64, join: bool, seed: u64,
        steps in prop::collection::vec(0..8_usize, 0..200),
    ) {
        let mut class = Class::new(policy(shares, quantum_s, u, join), seed);
        for step in steps {
            match step {
                0..=2 => {
                    class.push_random(PriorityClass::ALL[step]);
                }
                3 => {
                    let op = OpId(class.rng.below(class.ops + 1));
                    let held = class.queues.ahead_of(op).is_some();
                    prop_assert_eq!(class.queues.remove(op).is_some(), held);
                }
                4 => class.awake = None,
                _ => {
                    let len = |priority| class.queues.queue_len(priority);
                    let waiting: usize = PriorityClass::ALL.into_iter().map(len).sum();
                    prop_assert_eq!(class.queues.is_empty(), waiting == 0);
                    prop_assert_eq!(class.serve().is_some(), waiting > 0);
                }
            }
        }
    }

    #[test]
    fn every_operation_of_a_lane_with_a_share_is_begun_within_the_bound(
        shares in prop::array::uniform3(0..6_u32), quantum_s in 0..60_u64, u in 0..20_u64, join: bool, seed: u64,
    ) {
        let mut class = Class::new(policy(shares, quantum_s, u, join), seed);
        let mut due = BTreeMap::new();
        for _ in 0..600 {
            for priority in PriorityClass::ALL {
                for _ in 0..class.rng.below(3) * class.rng.below(2) {
                    let queued = class.queues.queue_len(priority);
                    if queued < 25 && shares[priority as usize] > 0 {
                        let (at, wait) = (class.now, class.longest_wait(priority, queued));
                        due.insert(class.push_random(priority), at + wait);
                    } else if queued < 25 {
                        class.push_random(priority);
                    }
                }
            }
            if let Some((pick, begun)) = class.serve() {
                let due = due.remove(&pick.op).unwrap_or(Time::MAX);
                prop_assert!(begun <= due, "{pick:?} was begun at {begun}, due by {due}");
            }
            prop_assert!(due.values().all(|due| class.now <= *due + LONGEST), "something waits beyond its bound");
        }
    }

    #[test]
    fn with_a_limit_in_time_every_operation_is_begun_within_its_bound_whatever_u_is(
        quantum_s in 1..60_u64, limit_s in 0..300_u64, join: bool, groups in 2..6_u32, hot in 1..5_u64, seed: u64,
        others: bool,
    ) {
        let mut class = Class::new(policy([4, 2, 1], quantum_s, u64::MAX, join), seed);
        class.policy.wait_limit = Some(Duration::from_secs(limit_s));
        let mut due = BTreeMap::new();
        for _ in 0..600 {
            // Always an operation for group 0, which is awake; from time to time one for another group.
            for _ in 0..hot {
                if class.queues.queue_len(PriorityClass::Client) < 300 {
                    let group = if class.rng.below(12) == 0 { class.rng.below(groups.into()) as u32 } else { 0 };
                    let bound = class.limited_wait(group, groups, others);
                    let at = class.now;
                    due.insert(class.push(PriorityClass::Client, group), at + bound);
                }
            }
            if others && class.queues.queue_len(PriorityClass::Background) < 5 {
                class.push_random(PriorityClass::Background);
            }
            if let Some((pick, begun)) = class.serve() {
                let due = due.remove(&pick.op).unwrap_or(Time::MAX);
                prop_assert!(begun <= due, "{pick:?} was begun at {begun}, due by {due}");
            }
            prop_assert!(due.values().all(|due| class.now <= *due + LONGEST), "something waits beyond its bound");
        }
    }

    #[test]
    fn what_is_overdue_comes_in_batches_and_before_all_that_is_not(limit_s in 1..100_u64, seed: u64) {
        let mut class = Class::new(policy([1, 0, 0], 60, u64::MAX, true), seed);
        class.policy.wait_limit = Some(Duration::from_secs(limit_s));
        let mut since = BTreeMap::new();
        for _ in 0..200 {
            let at = class.now;
            since.insert(class.push_random(PriorityClass::Client), at);
        }
        class.now += Duration::from_secs(limit_s);
        for _ in 0..200 {
            let at = class.now;
            since.insert(class.push_random(PriorityClass::Client), at);
        }
        let mut picks = Vec::new();
        for _ in 0..200 {
            let (pick, begun) = class.serve().unwrap();
            let waited = begun.since(since[&pick.op]);
            prop_assert!(waited >= Duration::from_secs(limit_s), "{pick:?} was not overdue, after {waited:?}");
            picks.push(pick.group);
        }
        let switches = picks.windows(2).filter(|pair| pair[0] != pair[1]).count();
        prop_assert!(switches < 60, "{switches} switches for 200 operations of 6 groups");
    }

    #[test]
    fn a_lane_keeps_the_class_no_longer_than_a_quantum_while_another_waits(quantum_s in 1..60_u64, seed: u64) {
        let mut class = Class::new(policy([1, 1, 1], quantum_s, u64::from(u32::MAX), false), seed);
        for _ in 0..900 {
            class.push(PriorityClass::Client, 0);
            class.push(PriorityClass::Background, 0);
        }
        class.serve().unwrap();
        let (since, awaited) = (class.now, class.push(PriorityClass::Rebuild, 1));
        let begun = core::iter::from_fn(|| class.serve()).find(|(pick, _)| pick.op == awaited).unwrap().1;
        let longest = class.policy.quantum + Duration::from_millis(TRANSFER_MS[1]);
        prop_assert!(begun.since(since) <= longest, "it waited for {:?}", begun.since(since));
    }
}

#[test]
fn a_lane_without_share_is_served_only_when_nobody_else_waits() {
    let mut class = Class::new(policy([1, 1, 0], 30, 0, false), 1);
    class.push(PriorityClass::Background, 0);
    assert_eq!(class.serve().unwrap().0.priority, PriorityClass::Background);
    for _ in 0..20 {
        class.push(PriorityClass::Background, 0);
        class.push(PriorityClass::Client, 0);
        class.push(PriorityClass::Rebuild, 1);
    }
    let priorities: Vec<_> = core::iter::from_fn(|| class.serve()).map(|(pick, _)| pick.priority).collect();
    assert!(priorities[..40].iter().all(|priority| *priority != PriorityClass::Background));
    assert!(priorities[40..].iter().all(|priority| *priority == PriorityClass::Background) && priorities.len() == 60);
}

#[test]
fn work_for_the_group_awake_rides_along_and_pays_for_its_transfer_only() {
    let mut class = Class::new(policy([1, 1, 1], 60, 100, false), 1);
    class.push(PriorityClass::Client, 1);
    class.push(PriorityClass::Client, 2);
    class.push(PriorityClass::Rebuild, 3);
    class.push(PriorityClass::Rebuild, 1);
    let picks: Vec<_> = core::iter::from_fn(|| class.serve()).map(|(pick, _)| pick).collect();
    let seen: Vec<_> = picks.iter().map(|pick| (pick.priority, pick.group.0, pick.piggyback)).collect();
    assert_eq!(seen[..2], [(PriorityClass::Client, 1, false), (PriorityClass::Rebuild, 1, true)]);
    assert_eq!(seen.iter().filter(|(_, group, _)| *group == 1).count(), 2);
    let switches = picks.windows(2).filter(|pair| pair[0].group != pair[1].group).count();
    assert_eq!(switches, 2, "three groups are awake once each");
}

#[test]
fn joining_the_group_in_service_is_an_option_within_the_same_bound() {
    let order = |join, u| {
        let mut class = Class::new(policy([1, 0, 0], 60, u, join), 1);
        class.push(PriorityClass::Client, 1);
        class.serve().unwrap();
        class.push(PriorityClass::Client, 2);
        class.push(PriorityClass::Client, 1);
        core::iter::from_fn(move || class.serve()).map(|(pick, _)| pick.group.0).collect::<Vec<_>>()
    };
    assert_eq!(order(false, 10), [2, 1]);
    assert_eq!(order(true, 10), [1, 2]);
    assert_eq!(order(true, 0), [2, 1]);
}

#[test]
fn queries_see_all_lanes() {
    let mut class = Class::new(policy([1, 1, 1], 30, 100, false), 1);
    class.push(PriorityClass::Client, 1);
    class.push(PriorityClass::Rebuild, 1);
    assert_eq!((class.queues.queued_for(GroupId(1)), class.queues.queued_for(GroupId(2))), (2, 0));
    let op = class.push(PriorityClass::Client, 2);
    assert_eq!(class.queues.queued_for(GroupId(2)), 1);
    assert_eq!(class.queues.queued_for(GroupId(1)), 2);
    let (priority, ahead) = class.queues.ahead_of(op).unwrap();
    assert_eq!((priority, ahead.operations, ahead.group_switches), (PriorityClass::Client, 1, 1));
    assert_eq!(class.queues.ahead_of_new(PriorityClass::Client, GroupId(1), 1).operations, 1);
    assert_eq!(class.queues.ahead_of_new(PriorityClass::Background, GroupId(1), 1).operations, 0);
}
