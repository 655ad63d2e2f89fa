//! Jobs in worlds that do orders in any order, by parts, while clients wake what they like.

#![allow(clippy::unwrap_used)]

use super::{Alpha, Choice, Job, Order, Part, Terms};
use ::model::{ClassId, GroupId, Rng};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const GRAIN: u64 = 1_000;

/// A world that keeps no bytes, only how many there are.
struct Bytes {
    job: Job,
    groups: Vec<GroupId>,
    class_of: BTreeMap<GroupId, ClassId>,
    /// By the group they lie on.
    input: BTreeMap<GroupId, u64>,
    home: BTreeMap<GroupId, u64>,
    /// By where they lie and whom they are for: the pieces.
    runs: BTreeMap<(GroupId, GroupId), Vec<u64>>,
    produced: BTreeMap<GroupId, u64>,
    orders: u64,
    rng: Rng,
}

fn parts(classes: usize, groups: usize, rng: &mut Rng) -> Vec<Part> {
    let group = |class: usize, index: usize| GroupId((class * groups + index) as u32);
    let part = |class: usize| Part {
        class: ClassId(class as u32),
        groups: (0..groups).map(|index| group(class, index)).collect(),
        input_bytes: (0..groups).map(|_| rng.below(60) * 1_000).collect(),
        shares: vec![1; groups],
    };
    (0..classes).map(part).collect()
}

impl Bytes {
    fn new(classes: usize, groups: usize, memory: u64, forced: Option<Choice>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let parts = parts(classes, groups, &mut rng);
        let job = Job::new(&parts, memory, GRAIN, Terms::PAPER, Alpha::ONE, forced).unwrap();
        let class_of = parts.iter().flat_map(|part| part.groups.iter().map(|group| (*group, part.class))).collect();
        let input = parts.iter().flat_map(|part| part.groups.iter().copied().zip(part.input_bytes.clone())).collect();
        let groups = parts.iter().flat_map(|part| part.groups.clone()).collect();
        Self {
            job,
            groups,
            class_of,
            input,
            home: BTreeMap::new(),
            runs: BTreeMap::new(),
            produced: BTreeMap::new(),
            orders: 0,
            rng,
        }
    }

    /// Runs to the end. Every class that may go on is asked; then one order ends, whichever.
    fn run(&mut self) {
        let classes: Vec<ClassId> = self.job.classes().collect();
        loop {
            let mut done = 0;
            for class in &classes {
                if self.job.in_hand(*class).is_none() {
                    done += usize::from(self.job.next(*class) == Order::Done);
                }
            }
            if done == classes.len() {
                break;
            }
            let busy: Vec<ClassId> =
                classes.iter().copied().filter(|class| self.job.in_hand(*class).is_some()).collect();
            assert!(!busy.is_empty(), "everybody waits and nobody works");
            let class = busy[self.rng.below(busy.len() as u64) as usize];
            if !self.somebody_wakes_another(class) {
                self.perform(class);
            }
        }
        assert!(self.job.done());
    }

    /// A client may wake a group, and the job may ask for its operation back.
    fn somebody_wakes_another(&mut self, class: ClassId) -> bool {
        if self.rng.below(4) > 0 {
            return false;
        }
        let group = self.groups[self.rng.below(self.groups.len() as u64) as usize];
        let withdraw = self.class_of[&group] == class && self.job.awake(class, Some(group));
        if withdraw {
            self.job.withdrawn(class, Some(group));
            let order = self.job.next(class);
            assert!(order.group().is_none() || order.group() == Some(group), "it was asked for, for this group");
            return true;
        }
        false
    }

    fn perform(&mut self, class: ClassId) {
        self.orders += 1;
        assert!(self.orders < 1_000_000, "it goes on for ever");
        match self.job.in_hand(class).unwrap() {
            Order::Read { group, bytes } => self.read(class, group, bytes),
            Order::BringHome { group, bytes } => {
                let bytes = self.some_of(bytes);
                *self.home.entry(group).or_default() += bytes;
                self.job.was_brought_home(class, bytes);
            }
            Order::Offload { on, target, bytes } => {
                let bytes = self.some_of(bytes).min(GRAIN);
                self.runs.entry((on, target)).or_default().push(bytes);
                self.job.was_offloaded(class, bytes);
            }
            Order::Refill { on, target, bytes } => {
                let pieces = self.runs.get_mut(&(on, target)).unwrap();
                let mut refilled = 0;
                while pieces.last().is_some_and(|piece| refilled + piece <= bytes) {
                    refilled += pieces.pop().unwrap();
                }
                assert!(refilled > 0, "a piece fits");
                self.job.was_refilled(class, refilled);
            }
            Order::Wait | Order::Done => unreachable!(),
        }
    }

    /// All of it, or a part.
    fn some_of(&mut self, bytes: u64) -> u64 {
        if self.rng.below(3) == 0 { 1 + self.rng.below(bytes) } else { bytes }
    }

    /// A piece, which becomes anything up to the grain.
    fn read(&mut self, class: ClassId, group: GroupId, bytes: u64) {
        let left = self.input.get_mut(&group).unwrap();
        let piece = (1 + self.rng.below(GRAIN)).min(bytes.max(1)).min(*left);
        *left -= piece;
        let mut room = GRAIN;
        let mut output = Vec::new();
        for target in &self.groups {
            let bytes = self.rng.below(1 + 2 * piece / self.groups.len() as u64).min(room);
            room -= bytes;
            *self.produced.entry(*target).or_default() += bytes;
            output.push((*target, bytes));
        }
        self.job.was_read(class, piece, &output);
    }

    fn assert_complete(&self) {
        assert!(self.input.values().all(|left| *left == 0), "everything is read");
        assert!(self.runs.values().all(Vec::is_empty), "nothing is left offloaded");
        for group in &self.groups {
            let amount = |of: &BTreeMap<GroupId, u64>| of.get(group).copied().unwrap_or(0);
            assert_eq!(amount(&self.home), amount(&self.produced), "everything of {group} is home");
        }
    }
}

fn a_choice() -> impl Strategy<Value = Option<Choice>> {
    prop_oneof![
        Just(None),
        Just(Some(Choice::Baseline)),
        Just(Some(Choice::Buffpack)),
        Just(Some(Choice::Offpack)),
        (0_usize..6).prop_map(|window| Some(Choice::Tourpack { window })),
    ]
}

proptest! {
    #[test]
    fn everything_comes_home_whatever_order_things_end_in(
        classes in 1_usize..4, groups in 1_usize..6, more in 0_u64..40, forced in a_choice(), seed: u64
    ) {
        let memory = Job::least_memory_bytes(classes, GRAIN) + more * 1_000;
        let mut world = Bytes::new(classes, groups, memory, forced, seed);
        world.run();
        world.assert_complete();
    }
}

#[test]
fn too_little_memory_is_told() {
    let part = Part { class: ClassId(0), groups: vec![GroupId(3)], input_bytes: vec![10], shares: vec![1] };
    let job = |memory| Job::new(core::slice::from_ref(&part), memory, 100, Terms::PAPER, Alpha::ONE, None);
    assert!(job(199).is_none());
    let mut job = job(200).unwrap();
    assert_eq!(job.next(ClassId(0)), Order::Read { group: GroupId(3), bytes: 10 });
}

#[test]
fn a_group_that_a_client_woke_is_used() {
    let groups = vec![GroupId(0), GroupId(1), GroupId(2)];
    let part = Part { class: ClassId(0), groups, input_bytes: vec![5_000; 3], shares: vec![1; 3] };
    let mut job = Job::new(&[part], 100_000, GRAIN, Terms::PAPER, Alpha::ONE, Some(Choice::Buffpack)).unwrap();
    let class = ClassId(0);
    let first = job.next(class).group().unwrap();
    let other = GroupId((first.0 + 1) % 3);
    assert!(!job.awake(class, Some(first)), "its own group");
    assert!(!job.awake(class, None));
    assert!(job.awake(class, Some(other)));
    job.withdrawn(class, Some(other));
    assert_eq!(job.next(class), Order::Read { group: other, bytes: 5_000 });
}
