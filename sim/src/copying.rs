//! A tree copied out of the rack beside other clients: the cost of the request order for the copy and for the others.
//!
//! One client requests the objects of a tree, a fixed number at a time, in the order of their keys, and takes each as
//! soon as it arrives. The objects are in random groups, as neighbours by key are. Other clients read other objects at
//! random times, and are measured while the copy runs. As in the server, [`engine::readahead`] decides what is read
//! ahead. The spool is modelled as the bytes that were read ahead and not requested yet: a client without delay leaves
//! nothing else in it.
//!
//! Invariants: each object is taken once; the same seed gives the same run.

use crate::chance::{PoissonGaps, Popular, Popularity};
use crate::experiment::ExperimentError;
use crate::histogram::Histogram;
use crate::links::Network;
use crate::stored::Stored;
use crate::world::{Ended, Setting, World};
use engine::check::TraceCheck;
use engine::layout::Layout;
use engine::readahead::{AheadSpool, Candidate, ColdPlace, Feedback, PLAN_TIME_MAX, Plan, READS_AT_ONCE, Scan};
use engine::{GroupState, Outcome, Rack, RackPolicy};
use model::{BlobId, GroupId, OpId, RackSpec, Rng, Time};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Objects that the other clients read.
const OTHERS: u32 = 10_000;

/// A question about a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copying {
    /// The rack.
    pub rack: RackSpec,
    /// The operator's settings.
    pub policy: RackPolicy,
    /// The servers' network.
    pub network: Network,
    /// The objects of the tree.
    pub objects: u32,
    /// The length of each.
    pub object_bytes: u64,
    /// The number of objects requested at once.
    pub at_once: u32,
    /// True if objects are requested group by group instead of key by key.
    pub by_place: bool,
    /// The capacity of the spool.
    pub spool_bytes: u64,
    /// True if the server reads ahead.
    pub read_ahead: bool,
    /// The mean time between two reads of the other clients; zero for no reads.
    pub others_gap: Duration,
    /// The length of the objects that they read.
    pub others_bytes: u64,
    /// The seeds of the runs, at least one.
    pub seeds: Vec<u64>,
}

/// The results of a copy: counts and times are means over the seeds, the waits of others are of all seeds together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CopyPoint {
    /// The duration in seconds.
    pub seconds: f64,
    /// Group wakes during the copy, including those for others.
    pub wakes: f64,
    /// Drive starts during the copy.
    pub starts: f64,
    /// Bytes read ahead.
    pub ahead_bytes: f64,
    /// Reads of the other clients during the copy.
    pub others: f64,
    /// Their times to the first byte, in seconds: the mean.
    pub others_mean_s: Option<f64>,
    /// The 99th percentile.
    pub others_p99_s: Option<f64>,
    /// The longest.
    pub others_max_s: Option<f64>,
    /// The trace hash of each seed's run.
    pub trace_hashes: Vec<u64>,
}

/// Copies with every seed.
///
/// # Errors
/// [`ExperimentError`] if there is no seed, the rack has no layout, or nothing can be stored in it.
pub fn run_copy(copying: &Copying) -> Result<CopyPoint, ExperimentError> {
    if copying.seeds.is_empty() {
        return Err(ExperimentError::NoSeed);
    }
    let layout = engine::layout::synthesise(&copying.rack)?;
    let mut point = CopyPoint {
        seconds: 0.0,
        wakes: 0.0,
        starts: 0.0,
        ahead_bytes: 0.0,
        others: 0.0,
        others_mean_s: None,
        others_p99_s: None,
        others_max_s: None,
        trace_hashes: Vec::new(),
    };
    let (mut waits, runs) = (Histogram::default(), copying.seeds.len() as f64);
    for seed in &copying.seeds {
        let run = CopyRun::new(copying, &layout, *seed)?.measure();
        point.seconds += run.span.as_secs_f64() / runs;
        point.wakes += run.wakes as f64 / runs;
        point.starts += run.starts as f64 / runs;
        point.ahead_bytes += run.ahead_bytes as f64 / runs;
        point.others += run.waits.count() as f64 / runs;
        point.trace_hashes.push(run.trace_hash);
        waits.merge(&run.waits);
    }
    (point.others_mean_s, point.others_max_s) = (waits.mean_s(), waits.max_s());
    point.others_p99_s = waits.quantile_s(0.99);
    Ok(point)
}

struct Measured {
    span: Duration,
    wakes: u64,
    starts: u64,
    ahead_bytes: u64,
    waits: Histogram,
    trace_hash: u64,
}

/// The state of an object of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Stored in the rack only.
    Cold,
    /// Being read for the client.
    Wanted,
    /// Being read ahead; `wanted` if the client has requested it since.
    Ahead { wanted: bool },
    /// Read ahead, not requested yet.
    Here,
    /// Taken by the client.
    Taken,
}

/// The reads ahead of one group while it is awake.
struct GroupPlan {
    left: VecDeque<usize>,
    under_way: usize,
    began: Option<Time>,
}

/// One run under way.
struct CopyRun<'a> {
    copying: &'a Copying,
    world: World<Rack>,
    stored: Stored,
    /// The objects in request order, as numbers in key order.
    order: Vec<usize>,
    states: Vec<State>,
    /// The number of objects requested so far; `waiting` counts those that have not arrived.
    asked: usize,
    waiting: usize,
    scan: Scan,
    last_key: Option<usize>,
    /// For each group, the first object that was requested since the group's last plan.
    asks: BTreeMap<GroupId, usize>,
    plans: BTreeMap<GroupId, GroupPlan>,
    ops: BTreeMap<OpId, usize>,
    used_bytes: u64,
    ahead_bytes: u64,
    waits: Histogram,
}

impl<'a> CopyRun<'a> {
    fn new(copying: &'a Copying, layout: &Layout, seed: u64) -> Result<Self, ExperimentError> {
        let mut rng = Rng::for_thing(seed, u64::from_le_bytes(*b"stored  "));
        let count = copying.objects + OTHERS;
        let stored = Stored::in_groups(&copying.rack, layout, count, 500, &mut rng);
        if stored.len() < count as usize {
            return Err(ExperimentError::NothingStored);
        }
        let judge = Some(TraceCheck::new(&copying.rack, layout, &copying.policy));
        let used_bytes = stored.used_bytes.clone();
        let setting = Setting { network: Some(copying.network), used_bytes, judge, ..Setting::default() };
        let rack = Rack::new(copying.rack.clone(), layout.clone(), copying.policy.clone(), seed);
        let mut order: Vec<usize> = (0..copying.objects as usize).collect();
        if copying.by_place {
            order.sort_by_key(|object| (stored.blob(*object).0, *object));
        }
        Ok(Self {
            copying,
            world: World::with(rack, seed, setting),
            states: vec![State::Cold; order.len()],
            stored,
            order,
            asked: 0,
            waiting: 0,
            scan: Scan::default(),
            last_key: None,
            asks: BTreeMap::new(),
            plans: BTreeMap::new(),
            ops: BTreeMap::new(),
            used_bytes: 0,
            ahead_bytes: 0,
            waits: Histogram::default(),
        })
    }

    fn measure(mut self) -> Measured {
        let mut others = Others::new(self.copying, self.world.now());
        let begun = self.world.now();
        let (wakes, starts) = (self.wakes(), self.world.counted().spin_ups);
        loop {
            self.collect();
            self.ask_more();
            self.read_ahead();
            if self.asked == self.order.len() && self.waiting == 0 {
                break;
            }
            if !self.world.step_until(others.next) {
                assert!(others.next < Time::MAX, "a copy comes to its end");
                self.world.run_until(others.next);
                let (group, drives) = self.stored.blob(others.draw());
                self.world.read_at(BlobId::numbered(u64::from(u32::MAX)), group, drives, self.copying.others_bytes);
            }
        }
        let span = self.world.now().since(begun);
        let (wakes, starts) = (self.wakes() - wakes, self.world.counted().spin_ups - starts);
        // The other clients that asked meanwhile are answered.
        while self.world.open_ops() > 0 {
            assert!(self.world.step(), "every operation is answered");
            self.collect();
        }
        assert!(self.states.iter().all(|state| *state == State::Taken), "all of it was taken");
        let (ahead_bytes, trace_hash) = (self.ahead_bytes, self.world.trace_hash());
        Measured { span, wakes, starts, ahead_bytes, waits: self.waits, trace_hash }
    }

    fn wakes(&self) -> u64 {
        self.world.rack.stats().group_wakes.iter().sum()
    }

    /// Collects all operations that have ended.
    fn collect(&mut self) {
        for ended in self.world.take_ended() {
            match self.ops.remove(&ended.op) {
                Some(object) => self.object_ended(object, &ended.outcome),
                None => self.other_ended(&ended),
            }
        }
    }

    fn other_ended(&mut self, ended: &Ended) {
        let first = ended.first_byte.unwrap_or(ended.at);
        assert!(ended.outcome == Outcome::Read, "nobody is refused: {ended:?}");
        self.waits.add(first.since(ended.issued));
    }

    fn object_ended(&mut self, object: usize, outcome: &Outcome) {
        let is_read = *outcome == Outcome::Read;
        let was = self.states[object];
        if let State::Ahead { .. } = was {
            self.ahead_bytes += if is_read { self.copying.object_bytes } else { 0 };
            if let Some(plan) = self.plans.get_mut(&self.group_of(object)) {
                plan.under_way = plan.under_way.saturating_sub(1);
                plan.began.get_or_insert(self.world.now());
            }
        }
        match was {
            State::Wanted | State::Ahead { wanted: true } if is_read => {
                self.states[object] = State::Taken;
                self.waiting -= 1;
                self.used_bytes += if was == State::Wanted { 0 } else { self.copying.object_bytes };
            }
            State::Ahead { wanted: true } => self.order(object),
            State::Ahead { wanted: false } => self.states[object] = if is_read { State::Here } else { State::Cold },
            _ => panic!("object {object} is {was:?}, and ended with {outcome:?}"),
        }
    }

    /// Lets the client request more, as long as it waits for fewer than `at_once`.
    fn ask_more(&mut self) {
        while self.waiting < self.copying.at_once as usize && self.asked < self.order.len() {
            let object = self.order[self.asked];
            self.asked += 1;
            let step = self.last_key.map_or(Ordering::Greater, |last| object.cmp(&last));
            self.last_key = Some(object);
            self.scan.asked(Duration::from_nanos(self.world.now().nanos_since(Time::ZERO)), step);
            match self.states[object] {
                State::Here => {
                    self.states[object] = State::Taken;
                    self.used_bytes += self.copying.object_bytes;
                }
                State::Ahead { wanted: false } => {
                    self.states[object] = State::Ahead { wanted: true };
                    self.waiting += 1;
                }
                State::Cold => {
                    self.waiting += 1;
                    let group = self.group_of(object);
                    self.asks.entry(group).or_insert(object);
                    self.order(object);
                }
                state => panic!("object {object} is asked for once, and is {state:?}"),
            }
        }
    }

    fn order(&mut self, object: usize) {
        let (group, drives) = self.stored.blob(object);
        let bytes = self.copying.object_bytes;
        let op = self.world.read_at(BlobId::numbered(object as u64), group, drives, bytes);
        self.states[object] = State::Wanted;
        self.ops.insert(op, object);
    }

    fn group_of(&self, object: usize) -> GroupId {
        self.stored.blob(object).0
    }

    /// Reads ahead in every awake group, as the engine decides.
    fn read_ahead(&mut self) {
        if !self.copying.read_ahead {
            return;
        }
        let groups: Vec<GroupId> = self.asks.keys().chain(self.plans.keys()).copied().collect();
        for group in groups {
            let state = self.world.rack.group_state(group);
            if !matches!(state, GroupState::Waking | GroupState::Busy | GroupState::Idle) {
                self.plans.remove(&group);
                continue;
            }
            if !self.plans.contains_key(&group)
                && let Some(object) = self.asks.remove(&group)
            {
                let left = self.plan(group, object);
                self.plans.insert(group, GroupPlan { left, under_way: 0, began: None });
            }
            while self.read_next(group) {}
            if self.plans.get(&group).is_some_and(|plan| plan.left.is_empty() && plan.under_way == 0) {
                self.plans.remove(&group);
            }
        }
    }

    /// Issues the next read of the plan for `group`, if the plan has one and may continue.
    fn read_next(&mut self, group: GroupId) -> bool {
        let (now, room_bytes) = (self.world.now(), self.spool().room_bytes());
        let Some(plan) = self.plans.get_mut(&group) else { return false };
        if plan.began.is_some_and(|began| now.since(began) > PLAN_TIME_MAX) || room_bytes < self.copying.object_bytes {
            plan.left.clear();
        }
        if plan.under_way >= READS_AT_ONCE {
            return false;
        }
        let Some(object) = plan.left.pop_front() else { return false };
        if self.states[object] == State::Cold {
            plan.under_way += 1;
            let (group, drives) = self.stored.blob(object);
            let blob = BlobId::numbered(object as u64);
            let op = self.world.read_while_awake(blob, group, drives, self.copying.object_bytes);
            self.states[object] = State::Ahead { wanted: false };
            self.ops.insert(op, object);
        }
        true
    }

    /// The objects to read ahead in `group` for the requested one.
    fn plan(&self, group: GroupId, object: usize) -> VecDeque<usize> {
        let spool = self.spool();
        let feedback = Feedback { used_bytes: self.used_bytes, wasted_bytes: 0 };
        let window_bytes = self.scan.window_bytes(spool.capacity_bytes, feedback);
        let mut plan = Plan::new(group, window_bytes, spool.room_bytes());
        let bytes = self.copying.object_bytes;
        for next in object + 1..self.states.len() {
            // Each object is its own blob, and read as a whole.
            let cold = ColdPlace {
                group: self.group_of(next),
                blob: BlobId::numbered(next as u64),
                offset: 0,
                stripe_bytes: bytes,
                payload_bytes: bytes,
            };
            let candidate = Candidate { bytes, cold: Some(cold) };
            if plan.offer(&candidate, |_, _| self.states[next] != State::Cold).is_break() {
                break;
            }
        }
        let reads = plan.into_reads(spool.capacity_bytes);
        let object_of =
            |blob: BlobId| (object + 1..self.states.len()).find(|next| BlobId::numbered(*next as u64) == blob);
        reads.into_iter().filter_map(|read| object_of(read.blob)).collect()
    }

    fn spool(&self) -> AheadSpool {
        let waits = |state: &&State| matches!(state, State::Here | State::Ahead { .. });
        let unread = self.states.iter().filter(waits).count() as u64;
        let unread_bytes = unread * self.copying.object_bytes;
        let held_bytes = self.waiting as u64 * self.copying.object_bytes;
        let capacity_bytes = self.copying.spool_bytes;
        let free_bytes = capacity_bytes.saturating_sub(unread_bytes + held_bytes);
        AheadSpool { capacity_bytes, free_bytes, unread_bytes }
    }
}

/// The other clients.
struct Others {
    gaps: Option<PoissonGaps>,
    next: Time,
    popular: Popular,
    keys: Rng,
    first: usize,
}

impl Others {
    fn new(copying: &Copying, now: Time) -> Self {
        let rng = |thing: &[u8; 8]| Rng::for_thing(copying.seeds[0], u64::from_le_bytes(*thing));
        let gap = Some(copying.others_gap).filter(|gap| !gap.is_zero());
        let mut gaps = gap.map(|gap| PoissonGaps::new(gap, rng(b"arrivals")));
        let next = gaps.as_mut().map_or(Time::MAX, |gaps| now + gaps.draw());
        let popular = Popular::new(Popularity::Uniform, OTHERS as usize);
        Self { gaps, next, popular, keys: rng(b"keys    "), first: copying.objects as usize }
    }

    /// The object that is read now; also draws the time of the next read.
    fn draw(&mut self) -> usize {
        if let Some(gaps) = &mut self.gaps {
            self.next += gaps.draw();
        }
        self.first + self.popular.draw(&mut self.keys)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Experiment;
    use engine::IdleTimeout;

    fn copying() -> Copying {
        let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican-mini").unwrap();
        let experiment = Experiment::pelican(model::text::parse(text, "pelican-mini").unwrap());
        let mut policy = experiment.policy;
        policy.scheduler.join_in_service = true;
        policy.scheduler.wait_limit = Some(Duration::from_mins(2));
        policy.idle_timeout = IdleTimeout::After(Duration::from_mins(5));
        Copying {
            rack: experiment.rack,
            policy,
            network: experiment.network,
            objects: 600,
            object_bytes: 10_000_000,
            at_once: 10,
            by_place: false,
            spool_bytes: 12_000_000_000,
            read_ahead: true,
            others_gap: Duration::ZERO,
            others_bytes: 10_000_000,
            seeds: vec![1],
        }
    }

    #[test]
    fn reading_ahead_is_worth_the_order_of_place() {
        let ahead = run_copy(&copying()).unwrap();
        let plain = run_copy(&Copying { read_ahead: false, ..copying() }).unwrap();
        let sorted = run_copy(&Copying { read_ahead: false, by_place: true, ..copying() }).unwrap();
        assert!(ahead.wakes <= 3.0 * sorted.wakes && ahead.seconds <= 3.0 * sorted.seconds, "{ahead:?} {sorted:?}");
        assert!(plain.wakes > 3.0 * sorted.wakes, "{plain:?} {sorted:?}");
        assert!(ahead.ahead_bytes > 0.0 && plain.ahead_bytes == 0.0);
    }

    #[test]
    fn a_larger_tree_is_copied_in_rounds() {
        let small = Copying { spool_bytes: 1_500_000_000, ..copying() };
        let ahead = run_copy(&small).unwrap();
        assert!(ahead.wakes <= 3.0 * 12.0 * 4.0, "it fills the spool four times: {ahead:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_run_and_others_are_answered() {
        let busy = Copying { others_gap: Duration::from_secs(5), ..copying() };
        let (one, two) = (run_copy(&busy).unwrap(), run_copy(&busy).unwrap());
        assert_eq!(one, two);
        assert!(one.others > 5.0 && one.others_p99_s.unwrap() > 0.0, "{one:?}");
        assert_ne!(run_copy(&Copying { seeds: vec![2], ..busy }).unwrap().trace_hashes, one.trace_hashes);
    }
}
