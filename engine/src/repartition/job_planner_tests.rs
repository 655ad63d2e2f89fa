//! Jobs in worlds that do orders in any sequence and in parts, while clients wake any group.

#![allow(clippy::unwrap_used)]

use super::{Alpha, Choice, JobPlanner, JobSpec, Order, Part};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{ClassId, GroupId, Rng};
use proptest::prelude::*;

const CHUNK: u64 = 1_000;

/// Parts of classes with one to `most` groups. Some groups have little or no input, or get no output.
fn hostile_parts(classes: usize, most: u64, rng: &mut Rng) -> Vec<Part> {
    let mut groups_so_far = 0;
    let mut part = |class: usize| {
        let groups = 1 + rng.below(most);
        let first = groups_so_far;
        groups_so_far += groups;
        let without_input = rng.below(3) == 0;
        let mut input = || if without_input || rng.below(3) == 0 { 0 } else { rng.below(8) * rng.below(1_000) };
        let input_bytes = (0..groups).map(|_| input()).collect();
        let shares = (0..groups).map(|_| if class == 0 { 1 } else { rng.below(3) }).collect();
        let groups = (first..first + groups).map(|group| GroupId(group as u32)).collect();
        Part { class: ClassId(class as u32), groups, input_bytes, shares }
    };
    (0..classes).map(&mut part).collect()
}

fn planner(
    parts: &[Part],
    memory_bytes: u64,
    chunk_bytes: u64,
    alpha: Alpha,
    forced: Option<Choice>,
) -> Option<JobPlanner> {
    let spec = JobSpec { alpha, ..JobSpec::plain(parts.to_vec(), memory_bytes, chunk_bytes) };
    spec.chosen(forced).map(|spec| JobPlanner::new(&spec))
}

/// A world that stores no bytes, only their numbers.
struct Bytes {
    job: JobPlanner,
    groups: Vec<GroupId>,
    class_of: BTreeMap<GroupId, ClassId>,
    /// By the group that stores the input.
    input: BTreeMap<GroupId, u64>,
    home: BTreeMap<GroupId, u64>,
    /// The pieces, by the group that stores them and their destination group.
    runs: BTreeMap<(GroupId, GroupId), Vec<u64>>,
    produced: BTreeMap<GroupId, u64>,
    orders: u64,
    /// True if pieces become any output that fits, input is lost, and orders are withdrawn for no reason.
    hostile: bool,
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
    fn of(job: Option<JobPlanner>, parts: &[Part], rng: Rng) -> Self {
        let job = job.unwrap();
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
            hostile: false,
            rng,
        }
    }

    /// Runs to the end. Every class that can continue is asked; then one order ends, chosen at random.
    ///
    /// `look` sees the job before every step.
    fn run(&mut self, mut look: impl FnMut(&JobPlanner)) {
        let classes: Vec<ClassId> = self.job.classes().collect();
        let mut done = BTreeSet::new();
        loop {
            for class in &classes {
                // A class that is done is not asked again.
                if self.job.in_hand(*class).is_none() && !done.contains(class) {
                    done.extend((self.job.next(*class) == Order::Done).then_some(*class));
                }
            }
            if done.len() == classes.len() {
                break;
            }
            look(&self.job);
            let busy: Vec<ClassId> =
                classes.iter().copied().filter(|class| self.job.in_hand(*class).is_some()).collect();
            if self.checkpoints(busy.is_empty()) {
                continue;
            }
            assert!(!busy.is_empty(), "everybody waits and nobody works");
            let class = busy[self.rng.below(busy.len() as u64) as usize];
            let comes_to_nothing = (self.hostile && self.disturbs(class)) || self.somebody_wakes_another(class);
            if !comes_to_nothing {
                self.perform(class);
            }
        }
        assert!(self.job.done());
    }

    /// Empties the buffers for a checkpoint from time to time; true if one was taken because they are empty.
    fn checkpoints(&mut self, at_rest: bool) -> bool {
        if !self.job.is_emptying() {
            let begins = self.hostile && self.rng.below(40) == 0;
            self.job.empty_buffers(begins);
            return false;
        }
        assert!(!at_rest || self.job.is_empty(), "who empties buffers waits for nobody");
        if at_rest {
            self.job.empty_buffers(false);
        }
        at_rest
    }

    /// A client may wake a group, and the job may ask for its operation to be withdrawn.
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

    /// An unexpected event happens, and may end the order in hand without a result.
    fn disturbs(&mut self, class: ClassId) -> bool {
        let group = self.groups[self.rng.below(self.groups.len() as u64) as usize];
        match self.rng.below(12) {
            0 => self.job.withdrawn(class, None),
            1 => self.job.withdrawn(class, Some(group)),
            2 => {
                assert!(!self.job.awake(class, None), "nothing is awake");
                return false;
            }
            3 => {
                let owner = self.class_of[&group];
                let read = matches!(self.job.in_hand(owner), Some(Order::Read { group: read, .. }) if read == group);
                let left = self.input.get_mut(&group).unwrap();
                if !read && *left > 0 {
                    let lost = 1 + self.rng.below(*left);
                    *left -= lost;
                    self.job.was_lost(owner, group, lost);
                }
                return false;
            }
            _ => return false,
        }
        true
    }

    fn perform(&mut self, class: ClassId) {
        self.orders += 1;
        assert!(self.orders < 1_000_000, "it goes on for ever");
        match self.job.in_hand(class).unwrap() {
            Order::Read { group, bytes } => self.read(class, group, bytes),
            Order::Deliver { group, bytes } => {
                let bytes = self.some_of(bytes);
                *self.home.entry(group).or_default() += bytes;
                self.job.was_written(class, bytes);
            }
            Order::Offload { on, target, bytes } => {
                let bytes = self.some_of(bytes).min(CHUNK);
                self.runs.entry((on, target)).or_default().push(bytes);
                self.job.was_written(class, bytes);
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

    /// All of the bytes, or a part.
    fn some_of(&mut self, bytes: u64) -> u64 {
        if self.rng.below(3) == 0 { 1 + self.rng.below(bytes) } else { bytes }
    }

    /// A piece, with any output up to the chunk limit. In a hostile world several pieces, with any output up to the
    /// available room, even if the pieces are small.
    fn read(&mut self, class: ClassId, group: GroupId, bytes: u64) {
        let left = self.input.get_mut(&group).unwrap();
        let most = if self.hostile { bytes } else { CHUNK };
        let piece = (1 + self.rng.below(most.max(1))).min(bytes.max(1)).min(*left);
        *left -= piece;
        let mut room = if self.hostile { self.rng.below(self.job.room_bytes(class) + 1) } else { CHUNK };
        let share = if self.hostile { room } else { 2 * piece / self.groups.len() as u64 };
        let mut output = Vec::new();
        for target in &self.groups {
            let bytes = self.rng.below(1 + share).min(room);
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
        let memory = JobSpec::least_memory_bytes(classes, CHUNK) + more * 1_000;
        let mut rng = Rng::new(seed);
        let parts = parts(classes, groups, &mut rng);
        let job = planner(&parts, memory, CHUNK, Alpha::ONE, forced);
        let mut world = Bytes::of(job, &parts, rng);
        world.run(|_| {});
        world.assert_complete();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Classes and groups without input, output of any size from any input to any group, a wrong alpha,
    /// input that is lost, orders that are withdrawn, forecasts in between, buffers that are emptied for checkpoints.
    #[test]
    fn everything_that_came_out_comes_home_in_a_hostile_world(
        classes in 1_usize..4, most in 1_u64..6, more in 0_u64..40_000, alpha in (0_u64..3_000, 1_u64..4),
        forced in a_choice(), seed: u64
    ) {
        let memory = JobSpec::least_memory_bytes(classes, CHUNK) + more;
        let mut rng = Rng::new(seed);
        let parts = hostile_parts(classes, most, &mut rng);
        let alpha = Alpha { output: alpha.0, input: alpha.1 };
        let job = planner(&parts, memory, CHUNK, alpha, forced);
        let mut world = Bytes { hostile: true, ..Bytes::of(job, &parts, rng) };
        let mut looks = 0_u32;
        world.run(|job| {
            looks += 1;
            if looks.is_multiple_of(16) {
                job.forecast();
            }
        });
        world.assert_complete();
    }
}

#[test]
fn a_forecast_is_given_whatever_is_in_hand() {
    // All of a class's memory is reserved for a refill while the forecast plans the rest of another class.
    let mut rng = Rng::new(7);
    let parts = parts(2, 3, &mut rng);
    let memory = JobSpec::least_memory_bytes(2, CHUNK) + 8_000;
    let mut world = Bytes::of(planner(&parts, memory, CHUNK, Alpha::ONE, Some(Choice::Offpack)), &parts, rng);
    let mut refills = 0;
    world.run(|job| {
        let refilled = job.classes().any(|class| matches!(job.in_hand(class), Some(Order::Refill { .. })));
        refills += usize::from(refilled);
        assert!(job.forecast().time > Duration::ZERO || !refilled);
    });
    world.assert_complete();
    assert!(refills > 0, "something is refilled");
}

#[test]
fn several_classes_held_to_the_baseline_empty_their_buffers_in_a_round_and_read_nothing_meanwhile() {
    let (classes, groups) = (3, 4);
    let mut rng = Rng::new(11);
    let parts = parts(classes, groups, &mut rng);
    let memory = JobSpec::least_memory_bytes(classes, CHUNK) + 8_000;
    let job = planner(&parts, memory, CHUNK, Alpha::ONE, Some(Choice::Baseline));
    let mut world = Bytes::of(job, &parts, rng);
    let classes: Vec<ClassId> = world.job.classes().collect();
    for moment in 0..40 {
        for order in 0..50 {
            if world.job.is_empty() && order > 0 {
                break;
            }
            assert!(order < 49, "the buffers of moment {moment} are never empty at once");
            world.job.empty_buffers(true);
            for class in &classes {
                if world.job.in_hand(*class).is_none() {
                    let next = world.job.next(*class);
                    assert!(matches!(next, Order::Deliver { .. } | Order::Wait), "{next:?} is not the baseline's");
                }
            }
            for class in &classes {
                if world.job.in_hand(*class).is_some() {
                    world.perform(*class);
                }
            }
        }
        world.job.empty_buffers(false);
        for _ in 0..moment % 7 {
            for class in &classes {
                if world.job.in_hand(*class).is_none() {
                    world.job.next(*class);
                }
            }
            for class in &classes {
                if world.job.in_hand(*class).is_some() {
                    world.perform(*class);
                }
            }
        }
    }
    world.run(|_| {});
    world.assert_complete();
}

#[test]
fn one_class_reads_more_than_the_grain_at_once_and_no_more_than_is_free() {
    let part = Part { class: ClassId(0), groups: vec![GroupId(0)], input_bytes: vec![50_000], shares: vec![1] };
    let job = || planner(core::slice::from_ref(&part), 10_000, CHUNK, Alpha::ONE, None).unwrap();
    let read = |bytes: u64| {
        let mut job = job();
        assert_eq!(job.next(ClassId(0)), Order::Read { group: GroupId(0), bytes: 10_000 });
        assert_eq!(job.room_bytes(ClassId(0)), 10_000);
        job.was_read(ClassId(0), 10_000, &[(GroupId(0), bytes)]);
        job.accounting(ClassId(0)).free()
    };
    assert_eq!(read(10_000), 0);
    assert!(std::panic::catch_unwind(|| read(10_001)).is_err(), "there was no room");
}

#[test]
fn nothing_to_read_is_done_at_once() {
    for forced in [None, Some(Choice::Baseline), Some(Choice::Offpack), Some(Choice::Tourpack { window: 3 })] {
        let part = Part { class: ClassId(2), groups: vec![GroupId(1)], input_bytes: vec![0], shares: vec![1] };
        let mut job = planner(&[part], 10_000, CHUNK, Alpha::ONE, forced).unwrap();
        assert_eq!(job.next(ClassId(2)), Order::Done);
        assert_eq!(job.forecast().switches, 0);
    }
}

#[test]
fn too_little_memory_is_told() {
    let part = Part { class: ClassId(0), groups: vec![GroupId(3)], input_bytes: vec![10], shares: vec![1] };
    let job = |memory| planner(core::slice::from_ref(&part), memory, 100, Alpha::ONE, None);
    assert!(job(199).is_none());
    let mut job = job(200).unwrap();
    assert_eq!(job.next(ClassId(0)), Order::Read { group: GroupId(3), bytes: 10 });
}

#[test]
fn a_group_that_a_client_woke_is_used() {
    let groups = vec![GroupId(0), GroupId(1), GroupId(2)];
    let part = Part { class: ClassId(0), groups, input_bytes: vec![5_000; 3], shares: vec![1; 3] };
    let mut job = planner(&[part], 100_000, CHUNK, Alpha::ONE, Some(Choice::Buffpack)).unwrap();
    let class = ClassId(0);
    let first = job.next(class).group().unwrap();
    let other = GroupId((first.0 + 1) % 3);
    assert!(!job.awake(class, Some(first)), "its own group");
    assert!(!job.awake(class, None));
    assert!(job.awake(class, Some(other)));
    job.withdrawn(class, Some(other));
    assert_eq!(job.next(class), Order::Read { group: other, bytes: 5_000 });
}
