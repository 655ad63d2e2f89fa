//! Dry runs: the forecast of a whole job. The planner that plans the job is asked for one order after the other, in all
//! classes, and each order takes the time that the terms state.
//!
//! A dry run includes what a [`Simulation`](super::simulation) of one class leaves out: classes work in parallel, fill
//! one memory and wait for one another; input arrives a chunk at a time, in whole batches, and is delivered an object
//! at a time; a new stream of reads starts where input is not contiguous; buffers are emptied for checkpoints.
//!
//! The time of an order consists of
//! - a switch, if another group is awake, and a wait for the next day if the drives have used up their starts of this
//!   one;
//! - for a read: seeks where a stream starts, and the longer of moving the bytes and splitting them;
//! - for a write: seeks, moving the bytes, and the part of encoding them that did not fit beside the write before it;
//! - for a refill: seeks to read a piece and to remove it, moving it, and decoding it.
//!
//! Invariants: the simulated planner is a copy; output is as expected, to the byte.

use super::apportion::{Apportion, Expected};
use super::checkpoints::Checkpoints;
use super::choice::Choice;
use super::job_planner::{JobPlanner, Order};
use super::job_spec::{JobSpec, Sizes};
use super::simulation::{Cost, DAY, Day};
use super::terms::Terms;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, ClassId, GroupId, Time, transfer_time};

impl JobSpec {
    /// The cost in each class if all follow `choice` to the end and output falls as expected; `None` if the memory is
    /// too small. `days` has a day for each part; parts without one start at the start of a day.
    ///
    /// Plans every order of the job once.
    pub fn dry_run(&self, choice: Choice, days: &[Day]) -> Option<Vec<Cost>> {
        let spec = self.clone().chosen(Some(choice))?;
        let shares = self.parts.iter().flat_map(|part| part.shares.iter().copied()).collect();
        let expected = Expected { alpha: self.in_memory(), shares };
        Some(DryRun::new(JobPlanner::new(&spec), self.terms, &expected, days).run())
    }
}

impl JobPlanner {
    /// The cost of the rest if input and output continue as measured, in the class for which it takes longest.
    ///
    /// Plans every remaining order once.
    pub fn forecast(&self) -> Cost {
        let mut planner = self.clone();
        let classes: Vec<ClassId> = self.classes().filter(|class| self.in_hand(*class).is_some()).collect();
        for class in classes {
            planner.withdrawn(class, None);
        }
        let costs = DryRun::new(planner, self.terms(), &self.measured(), &[]).run();
        costs.into_iter().max_by_key(Cost::total).unwrap_or_default()
    }
}

/// A simulated job.
pub(super) struct DryRun {
    planner: JobPlanner,
    terms: Terms,
    sizes: Sizes,
    /// The largest output of one read.
    read_bytes: u64,
    apportion: Apportion,
    /// The groups of all classes, in the order of the apportioned shares.
    groups: Vec<GroupId>,
    classes: Vec<ClassRun>,
    checkpoints: Checkpoints,
    now: Duration,
}

/// A class of the simulated job.
struct ClassRun {
    class: ClassId,
    at: Option<GroupId>,
    /// The time at which the order in hand ends.
    ends: Option<Duration>,
    /// True if the planner may return another order than the last time.
    asks: bool,
    done: bool,
    /// The group that has an open stream of reads.
    reads: Option<GroupId>,
    /// The time of the previous write, in which the next batch was encoded.
    ahead: Duration,
    cost: Cost,
    /// Input that was read, by group.
    read: BTreeMap<GroupId, u64>,
    starts: Starts,
}

/// Starts of the drives of a class's groups.
struct Starts {
    /// The elapsed part of the first day.
    gone: Duration,
    /// The day of the last start of a group, counted from the first day.
    today: u64,
    /// Starts of each group on that day, and in total.
    of: BTreeMap<GroupId, (u32, u64)>,
}

impl DryRun {
    /// The dry run of the rest of the job of `planner`, which must have no order in hand, if output falls as `expected`
    /// to the groups of all its classes. `days` has a day for each class; classes without one start at the start of a
    /// day.
    pub fn new(mut planner: JobPlanner, terms: Terms, expected: &Expected, days: &[Day]) -> Self {
        assert!(planner.classes().all(|class| planner.in_hand(class).is_none()), "no order is in hand yet");
        planner.hold_choices();
        planner.empty_buffers(false);
        let (sizes, chunk_bytes) = (planner.spec().sizes, planner.spec().chunk_bytes);
        let batch = sizes.batch_bytes.clamp(1, chunk_bytes);
        let class = |(index, (class, groups, at)): (usize, (ClassId, &[GroupId], Option<GroupId>))| {
            let day = days.get(index).cloned().unwrap_or_default();
            assert!(day.gone < DAY, "a day ends");
            let starts = groups.iter().zip(day.starts.iter().copied().chain(core::iter::repeat(0)));
            let of = starts.map(|(group, starts)| (*group, (starts, 0))).collect();
            ClassRun {
                class,
                at,
                ends: None,
                asks: true,
                done: false,
                reads: None,
                ahead: Duration::ZERO,
                cost: Cost::default(),
                read: BTreeMap::new(),
                starts: Starts { gone: day.gone, today: 0, of },
            }
        };
        let classes: Vec<ClassRun> = planner.places().enumerate().map(class).collect();
        let groups: Vec<GroupId> = planner.places().flat_map(|(_, groups, _)| groups.to_vec()).collect();
        assert_eq!(expected.shares.len(), groups.len(), "a share for every group");
        Self {
            terms,
            sizes,
            read_bytes: chunk_bytes / batch * batch,
            apportion: Apportion::new(expected).with_output_at_most(chunk_bytes),
            groups,
            classes,
            checkpoints: planner.spec().checkpoints(),
            now: Duration::ZERO,
            planner,
        }
    }

    /// Simulates to the end; returns the cost in each class. A class's time ends with its last order.
    pub fn run(mut self) -> Vec<Cost> {
        loop {
            self.checkpoint();
            for index in 0..self.classes.len() {
                self.begin(index);
            }
            self.checkpoint();
            let in_hand = self.classes.iter().enumerate().filter_map(|(index, class)| Some((class.ends?, index)));
            match in_hand.min() {
                Some((ends, index)) => self.end(index, ends),
                None if self.classes.iter().all(|class| class.done) => break,
                None => assert!(self.classes.iter().any(|class| class.asks), "a job that goes on has something to do"),
            }
        }
        assert!(self.planner.done(), "a dry run ends when all output is delivered");
        self.classes.into_iter().map(|class| class.cost).collect()
    }

    /// Starts and ends checkpoints, as an active job does; making one durable takes no time.
    fn checkpoint(&mut self) {
        let now = Time::ZERO + self.now;
        let waiting: Duration = self.classes.iter().map(|class| class.cost.waiting).sum();
        let waited = waiting / u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        if !self.planner.done() && self.checkpoints.begins(now, waited) {
            self.planner.empty_buffers(true);
            self.ask_all();
        }
        if self.checkpoints.is_emptying() && self.planner.is_empty() {
            self.checkpoints.take(Attempt(0));
            assert!(self.checkpoints.ended(now, Attempt(0), true), "it was asked for");
            self.planner.empty_buffers(false);
            self.ask_all();
        }
    }

    fn ask_all(&mut self) {
        for class in &mut self.classes {
            class.asks = true;
        }
    }

    /// Starts the next order of a class, unless it has one in hand, is done or has to wait.
    fn begin(&mut self, index: usize) {
        let class = &mut self.classes[index];
        if class.ends.is_some() || class.done || !class.asks {
            return;
        }
        class.asks = false;
        self.planner.awake(class.class, class.at);
        let order = self.planner.next(class.class);
        class.done = order == Order::Done;
        let Some(group) = order.group() else { return };
        let waited = class.wake(group, self.now, &self.terms);
        let moved = self.moved(index, order);
        assert!(moved > 0, "an order that moves nothing would be given again for ever");
        let class = &mut self.classes[index];
        let taken = class.take(order, moved, &self.terms, self.sizes.together_bytes);
        class.ends = Some(self.now + waited + taken);
    }

    /// The bytes that an order moves: input as it is stored, all other bytes as they are buffered.
    fn moved(&self, index: usize, order: Order) -> u64 {
        let accounting = self.planner.accounting(self.classes[index].class);
        match order {
            Order::Read { group, bytes } => {
                let fits = self.apportion.input_for(self.read_bytes).max(1);
                bytes.min(fits).min(self.planner.input_of(self.classes[index].class, group))
            }
            Order::Deliver { bytes, .. } => bytes.min(self.sizes.object_bytes),
            Order::Offload { bytes, .. } => bytes.min(accounting.chunk_bytes()),
            Order::Refill { on, target, bytes } => {
                let run = self.planner.offloaded(self.classes[index].class, on, target);
                bytes.min(run.bytes.div_ceil(run.pieces.max(1)))
            }
            Order::Wait | Order::Done => unreachable!("that is no step"),
        }
    }

    /// The order in hand of a class ends.
    fn end(&mut self, index: usize, ends: Duration) {
        assert!(ends >= self.now, "time goes on");
        self.now = ends;
        let class = self.classes[index].class;
        let Some(order) = self.planner.in_hand(class) else { unreachable!("an order ends that was in hand") };
        let moved = self.moved(index, order);
        match order {
            Order::Read { .. } => {
                let output = self.groups.iter().copied().zip(self.apportion.output_of(moved).iter().copied());
                let output: Vec<(GroupId, u64)> = output.filter(|(_, bytes)| *bytes > 0).collect();
                self.planner.was_read(class, moved, &output);
            }
            Order::Refill { .. } => self.planner.was_refilled(class, moved),
            _ => self.planner.was_written(class, moved),
        }
        let class_run = &mut self.classes[index];
        if let Order::Offload { on, .. } = order {
            let lies = self.planner.offloaded_on(class, on);
            class_run.cost.peak_offloaded_bytes = class_run.cost.peak_offloaded_bytes.max(lies);
        }
        class_run.ends = None;
        let Cost { starts, switches, bytes_offloaded, bytes_written, waiting, .. } = class_run.cost;
        assert!(starts <= switches, "drives start when their group is woken");
        assert!(bytes_offloaded <= bytes_written, "what is offloaded is written");
        assert!(waiting <= ends, "nobody waits for longer than it takes");
        class_run.cost.time = ends.saturating_sub(class_run.cost.waiting);
        self.checkpoints.changed();
        self.ask_all();
    }
}

impl ClassRun {
    /// Wakes a group, unless it is awake; returns the time that takes.
    fn wake(&mut self, group: GroupId, now: Duration, terms: &Terms) -> Duration {
        if self.at == Some(group) {
            return Duration::ZERO;
        }
        (self.at, self.reads, self.ahead) = (Some(group), None, Duration::ZERO);
        let waited = self.starts.start(group, now, terms.starts_per_day);
        self.cost.waiting += waited;
        self.cost.starts = self.cost.starts.max(self.starts.of.get(&group).map_or(0, |(_, starts)| *starts));
        self.cost.switches += 1;
        self.cost.switching += terms.switch;
        waited + terms.switch
    }

    /// The time of an order that moves this number of bytes.
    fn take(&mut self, order: Order, bytes: u64, terms: &Terms, together_bytes: u64) -> Duration {
        assert!(self.at == order.group(), "an order is done on the group that is awake");
        let goes_on = matches!(order, Order::Read { group, .. } if self.reads == Some(group));
        self.reads = None;
        let (streams, moving) = match order {
            Order::Read { group, .. } => {
                self.reads = Some(group);
                let moving = transfer_time(bytes, terms.read_bytes_per_s).max(terms.processor.split(bytes));
                (self.streams(group, goes_on, bytes, together_bytes), moving)
            }
            Order::Refill { .. } => (1, transfer_time(bytes, terms.read_bytes_per_s) + terms.processor.run(bytes)),
            Order::Deliver { .. } | Order::Offload { .. } => return self.write(order, bytes, terms),
            Order::Wait | Order::Done => unreachable!("that is no step"),
        };
        let removes = u64::from(matches!(order, Order::Refill { .. }));
        let seeks = streams.saturating_mul(u64::from(terms.read_seeks)) + removes;
        let seeking = terms.seek * u32::try_from(seeks).unwrap_or(u32::MAX);
        self.ahead = Duration::ZERO;
        self.cost.bytes_read += bytes;
        self.cost.seeking += seeking;
        seeking + moving
    }

    /// The streams that start when this number of further bytes of a group's input is read.
    fn streams(&mut self, group: GroupId, goes_on: bool, bytes: u64, together_bytes: u64) -> u64 {
        assert!(bytes > 0, "a read that moves nothing would be asked for again for ever");
        let read = self.read.entry(group).or_default();
        let before = *read;
        *read += bytes;
        let first = if goes_on { before.saturating_sub(1) / together_bytes + 1 } else { before / together_bytes };
        let begun = ((*read - 1) / together_bytes + 1).saturating_sub(first);
        assert!(begun <= bytes / together_bytes + 2, "a stream begins where input does not lie together");
        begun
    }

    /// The time of a write, minus the encoding that was done during the write before it.
    fn write(&mut self, order: Order, bytes: u64, terms: &Terms) -> Duration {
        let (stored, encoding) = if matches!(order, Order::Offload { .. }) {
            self.cost.bytes_offloaded += bytes;
            (bytes, terms.processor.run(bytes))
        } else {
            (terms.expansion.stored_of(bytes), terms.processor.encode(bytes))
        };
        let seeking = terms.seek * terms.write_seeks;
        self.cost.bytes_written += stored;
        self.cost.seeking += seeking;
        let written = seeking + transfer_time(stored, terms.write_bytes_per_s);
        encoding.saturating_sub(core::mem::replace(&mut self.ahead, written)) + written
    }
}

impl Starts {
    /// Starts the drives of a group; returns the time to wait first, if they have used up their starts of the day. A
    /// limit of 0 starts a day counts as 1.
    fn start(&mut self, group: GroupId, now: Duration, per_day: u32) -> Duration {
        let gone = self.gone + now;
        let mut waited = Duration::ZERO;
        self.enter(gone.as_secs() / DAY.as_secs());
        let today = self.of.get(&group).map_or(0, |(today, _)| *today);
        if today >= per_day.max(1) {
            let tomorrow = DAY.saturating_mul(u32::try_from(self.today + 1).unwrap_or(u32::MAX));
            waited = tomorrow.saturating_sub(gone);
            assert!(waited <= DAY, "the next day begins within one");
            self.enter(self.today + 1);
        }
        let (today, in_all) = self.of.entry(group).or_default();
        assert!(*today < per_day.max(1), "no drive starts more often in a day");
        (*today, *in_all) = (*today + 1, *in_all + 1);
        waited
    }

    fn enter(&mut self, day: u64) {
        assert!(day >= self.today, "days do not come again");
        if day > self.today {
            self.today = day;
            self.of.values_mut().for_each(|(today, _)| *today = 0);
        }
    }
}
