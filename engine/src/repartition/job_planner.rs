//! Plans a job: a planner for each class that stores its data, and one memory between them.
//!
//! The caller asks for an [`Order`] for each class, has it done by ordinary operations of the background priority class
//! (whose group the class scheduler wakes in its turn), and enters the result. A class has one order in hand at a time.
//! An order may be done in part; the next order continues from there.
//!
//! Visits are not ordered: an operation wakes its group, and the planner is notified of the group that is awake. When a
//! client wakes a group that has work for the job, the order in hand should be withdrawn if its operations are still
//! queued: that switch is free.
//!
//! Each class has a share of the memory, which holds the output for its own groups, from any class. So a class whose
//! share is full can always empty it without another class. A piece is read only when every share has room for all that
//! it may become (the chunk limit), in addition to the pieces that other classes are reading.
//!
//! The buffers are emptied before a checkpoint ([`JobPlanner::empty_buffers`]): bytes for the awake group are delivered
//! and the rest is offloaded to it, so no group is woken for it. The baseline never offloads. In one class it continues
//! until its buffer is empty by itself; in several classes, whose buffers would hardly ever be empty at once, it
//! delivers the buffered bytes in a round. Every strategy can continue from there.
//!
//! Invariants: no share ever exceeds its limit; a class that waits, waits for an order that is in hand.

use super::accounting::{Accounting, Run};
use super::apportion::Expected;
use super::choice::Choice;
use super::job_spec::{JobSpec, Part};
use super::planner::Planner;
use super::processor::{Processed, ProcessorMeter};
use super::strategy::Step;
use super::terms::{Alpha, Terms};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;
use model::{ClassId, GroupId};
use serde::{Deserialize, Serialize};

/// The next work in a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Read one piece of input on this group, or several if their output is at most [`JobPlanner::room_bytes`] in all.
    Read {
        /// The group that stores the input.
        group: GroupId,
        /// The most input to read; a piece that is larger is read anyway.
        bytes: u64,
    },
    /// Write the bytes that are buffered for this group to it.
    Deliver {
        /// The destination group.
        group: GroupId,
        /// The number of bytes buffered for it now.
        bytes: u64,
    },
    /// Write the bytes that are buffered for one group to another, as a separate run, in pieces of at most the chunk
    /// limit.
    Offload {
        /// The group to write to.
        on: GroupId,
        /// The destination group.
        target: GroupId,
        /// The number of bytes buffered for the target now.
        bytes: u64,
    },
    /// Read pieces of offloaded runs back into the buffer, and remove them.
    Refill {
        /// The group that stores them.
        on: GroupId,
        /// The destination group.
        target: GroupId,
        /// The most bytes to read back; at least one piece fits.
        bytes: u64,
    },
    /// Nothing can be done until an order of another class ends.
    Wait,
    /// All output for this class is delivered, and no more follows.
    Done,
}

impl Order {
    /// The group that the order is done on; none for [`Order::Wait`] and [`Order::Done`].
    pub fn group(self) -> Option<GroupId> {
        match self {
            Self::Read { group, .. } | Self::Deliver { group, .. } => Some(group),
            Self::Offload { on, .. } | Self::Refill { on, .. } => Some(on),
            Self::Wait | Self::Done => None,
        }
    }

    /// True if the order writes.
    pub fn writes(self) -> bool {
        matches!(self, Self::Deliver { .. } | Self::Offload { .. })
    }

    /// The memory that the order reserves in its own class.
    fn reserved_bytes(self, chunk_bytes: u64) -> u64 {
        match self {
            Self::Read { .. } => chunk_bytes,
            Self::Refill { bytes, .. } => bytes,
            Self::Deliver { .. } | Self::Offload { .. } | Self::Wait | Self::Done => 0,
        }
    }
}

/// A planner of all classes of a job; see the head of this file.
#[derive(Clone, Debug)]
pub struct JobPlanner {
    classes: Vec<ClassPlanner>,
    chunk_bytes: u64,
    /// True while buffers are emptied: nothing is read, and the buffered bytes are written.
    emptying: bool,
    spec: Arc<JobSpec>,
    /// The processor's rates, as measured.
    meter: ProcessorMeter,
}

#[derive(Clone, Debug)]
struct ClassPlanner {
    class: ClassId,
    groups: Vec<GroupId>,
    planner: Planner,
    in_hand: Option<Order>,
}

impl JobPlanner {
    /// The planner of a job whose strategies were [chosen](JobSpec::chosen).
    pub fn new(spec: &JobSpec) -> Self {
        assert!(!spec.parts.is_empty(), "a job lies in some class");
        assert_eq!(spec.choices.len(), spec.parts.len(), "each part has a strategy");
        assert!(spec.has_memory(), "the memory is enough for its classes");
        let groups: BTreeSet<_> = spec.parts.iter().flat_map(|part| &part.groups).collect();
        let count: usize = spec.parts.iter().map(|part| part.groups.len()).sum();
        assert_eq!(groups.len(), count, "a group is of one part, once");
        let class = |(index, part): (usize, &Part)| {
            let planner = Planner::new(spec.accounting(index), spec.terms, spec.choices[index], spec.fixed);
            ClassPlanner { class: part.class, groups: part.groups.clone(), planner, in_hand: None }
        };
        let classes = spec.parts.iter().enumerate().map(class).collect();
        let (spec, meter) = (Arc::new(spec.clone()), ProcessorMeter::default());
        Self { classes, chunk_bytes: spec.chunk_bytes, emptying: false, spec, meter }
    }

    /// Starts to empty the buffers, for a checkpoint, or stops it.
    pub fn empty_buffers(&mut self, emptying: bool) {
        self.emptying = emptying;
    }

    /// True while the buffers are being emptied.
    pub fn is_emptying(&self) -> bool {
        self.emptying
    }

    /// True if the buffer is empty from time to time without a step for that purpose: no other class fills it
    /// meanwhile.
    fn empties_by_itself(&self) -> bool {
        matches!(self.classes.as_slice(), [only] if only.planner.choice == Choice::Baseline)
    }

    /// True if nothing is buffered and no order is in hand.
    pub fn is_empty(&self) -> bool {
        let empty = |class: &ClassPlanner| class.planner.accounting.buffered_in_all() == 0 && class.in_hand.is_none();
        self.classes.iter().all(empty)
    }

    /// The classes it works in.
    pub fn classes(&self) -> impl Iterator<Item = ClassId> + '_ {
        self.classes.iter().map(|class| class.class)
    }

    /// The current strategy of a class.
    pub fn choice(&self, class: ClassId) -> Choice {
        self.of(class).planner.choice
    }

    /// The number of times strategies were changed, in all classes.
    pub fn changes(&self) -> u32 {
        self.classes.iter().map(|class| class.planner.changes).sum()
    }

    /// The accounting of a class; its groups are numbered as in its part of the job.
    pub fn accounting(&self, class: ClassId) -> &Accounting {
        &self.of(class).planner.accounting
    }

    /// The terms, with the measured rates of the processor.
    pub(super) fn terms(&self) -> Terms {
        Terms { processor: self.meter.rates(self.spec.terms.processor), ..self.spec.terms }
    }

    /// Output over input, and the groups' shares of the output: as measured, once the job has read a hundredth of the
    /// memory's worth of input; as expected until then.
    pub(super) fn measured(&self) -> Expected {
        let accountings = || self.classes.iter().map(|class| &class.planner.accounting);
        let output: u64 = accountings().flat_map(Accounting::produced).sum();
        let input: u64 = accountings().map(Accounting::read).sum();
        if output == 0 || input <= self.spec.memory_bytes / 100 {
            let shares = self.spec.parts.iter().flat_map(|part| part.shares.iter().copied()).collect();
            return Expected { alpha: self.spec.in_memory(), shares };
        }
        let shares = accountings().flat_map(|accounting| accounting.produced().iter().copied()).collect();
        Expected { alpha: Alpha { output, input }, shares }
    }

    /// Records the time that the processor took for a step's work.
    pub fn processed(&mut self, done: Processed, time: Duration) {
        self.meter.enter(done, time);
        let processor = self.terms().processor;
        for class in &mut self.classes {
            class.planner.set_processor(processor);
        }
    }

    /// The job's description.
    pub(super) fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// The classes, the groups of each, and the group of each that is awake.
    pub(super) fn places(&self) -> impl Iterator<Item = (ClassId, &[GroupId], Option<GroupId>)> + '_ {
        self.classes.iter().map(|class| {
            let awake = class.planner.accounting.awake().map(|group| class.groups[group]);
            (class.class, class.groups.as_slice(), awake)
        })
    }

    /// From now on every class keeps its strategy.
    pub(super) fn hold_choices(&mut self) {
        for class in &mut self.classes {
            class.planner.fixed = true;
        }
    }

    /// Unread input on a group of a class.
    pub(super) fn input_of(&self, class: ClassId, group: GroupId) -> u64 {
        let class = self.of(class);
        class.planner.accounting.input(class.number(group))
    }

    /// The run that is offloaded on one group of a class for another.
    pub(super) fn offloaded(&self, class: ClassId, on: GroupId, target: GroupId) -> Run {
        let class = self.of(class);
        class.planner.accounting.offloaded(class.number(on), class.number(target))
    }

    /// Bytes that are offloaded on a group of a class for others.
    pub(super) fn offloaded_on(&self, class: ClassId, group: GroupId) -> u64 {
        let class = self.of(class);
        class.planner.accounting.offloaded_on(class.number(group))
    }

    /// True if all output is delivered.
    pub fn done(&self) -> bool {
        self.classes.iter().all(|class| class.planner.accounting.done())
    }

    /// The order that a class has in hand.
    pub fn in_hand(&self, class: ClassId) -> Option<Order> {
        self.of(class).in_hand
    }

    /// Records that this group of the class is awake, or none. True if the caller should withdraw the queued operations
    /// of the order in hand, since there is work on this group. If it withdraws them, it ends the order with
    /// [`JobPlanner::withdrawn`].
    pub fn awake(&mut self, class: ClassId, group: Option<GroupId>) -> bool {
        let (chunk_bytes, emptying) = (self.chunk_bytes, self.emptying && !self.empties_by_itself());
        let class = self.of_mut(class);
        let Some(here) = group.and_then(|group| class.index(group)) else { return false };
        let Some(order) = class.in_hand else {
            class.planner.accounting.set_awake(Some(here));
            return false;
        };
        if order.group() == group {
            return false;
        }
        if emptying {
            let accounting = &class.planner.accounting;
            let offloads = class.planner.choice != Choice::Baseline && accounting.buffered_in_all() > 0;
            return offloads || accounting.buffered(here) > 0;
        }
        let step = class.planner.step_on(here, order.reserved_bytes(chunk_bytes));
        !matches!(step, Step::Visit { .. } | Step::Done)
    }

    /// Ends the order in hand without a result: it was withdrawn because the group `awake` is awake, or it was blocked.
    pub fn withdrawn(&mut self, class: ClassId, awake: Option<GroupId>) {
        self.end(class);
        let class = self.of_mut(class);
        if let Some(here) = awake.and_then(|group| class.index(group)) {
            class.planner.accounting.set_awake(Some(here));
        }
    }

    /// The next order of a class that has none in hand. A class that has to wait is asked again whenever an order of
    /// another class ends.
    pub fn next(&mut self, class: ClassId) -> Order {
        assert!(self.of(class).in_hand.is_none(), "one order in hand in a class");
        let order = match self.must_wait(class) {
            _ if self.emptying && !self.empties_by_itself() => self.of_mut(class).empty_buffer(),
            Some(order) => return order,
            None => self.of_mut(class).plan(),
        };
        let reads = matches!(order, Order::Read { .. });
        if reads && self.classes.iter().any(|other| other.planner.accounting.full()) {
            return Order::Wait;
        }
        if order.group().is_some() {
            self.of_mut(class).in_hand = Some(order);
            self.change_reservation(class, order, Accounting::reserve);
        }
        assert_eq!(self.in_hand(class).is_some(), order.group().is_some(), "what is to be done is in hand");
        order
    }

    /// Changes the reservation of an order: room for a piece in every class for a read, room in its own class for a
    /// refill.
    fn change_reservation(&mut self, class: ClassId, order: Order, change: impl Fn(&mut Accounting, u64)) {
        for each in &mut self.classes {
            if each.class == class {
                change(&mut each.planner.accounting, order.reserved_bytes(self.chunk_bytes));
            } else if matches!(order, Order::Read { .. }) {
                change(&mut each.planner.accounting, self.chunk_bytes);
            }
        }
        self.assert_reserved();
    }

    /// Asserts that memory is reserved for the orders in hand, and for nothing else.
    fn assert_reserved(&self) {
        let reads = |class: &&ClassPlanner| matches!(class.in_hand, Some(Order::Read { .. }));
        let all_reads = self.classes.iter().filter(reads).count() as u64;
        for class in &self.classes {
            let own = class.in_hand.map_or(0, |order| order.reserved_bytes(self.chunk_bytes));
            let others = self.chunk_bytes * (all_reads - u64::from(reads(&class)));
            let reserved = class.planner.accounting.reserved();
            assert_eq!(reserved, own + others, "memory is reserved for the orders in hand");
        }
    }

    /// Ends the order that the class has in hand, and returns it.
    fn end(&mut self, class: ClassId) -> Order {
        let Some(order) = self.of_mut(class).in_hand.take() else { panic!("no order is in hand") };
        self.change_reservation(class, order, Accounting::release);
        assert!(order.group().is_some(), "what was in hand was something to do");
        order
    }

    /// [`Order::Done`] if the class is done, [`Order::Wait`] if it has to wait before it can plan.
    fn must_wait(&self, class: ClassId) -> Option<Order> {
        let others_read = self.classes.iter().any(|other| {
            other.class != class
                && (other.planner.accounting.input_left() > 0 || matches!(other.in_hand, Some(Order::Read { .. })))
        });
        let accounting = self.accounting(class);
        if accounting.done() {
            return Some(if others_read { Order::Wait } else { Order::Done });
        }
        // More output arrives from other classes, and a small write gains nothing.
        let gathers = accounting.input_left() == 0 && others_read && !accounting.full();
        // There would be room without the reservations.
        let reserved_away = accounting.full() && accounting.free() + accounting.reserved() >= accounting.chunk_bytes();
        (gathers || reserved_away).then_some(Order::Wait)
    }

    /// The largest output of the read that a class has in hand: the chunk limit, which is reserved in every class; with
    /// a single class, all free memory and the reservation.
    pub fn room_bytes(&self, class: ClassId) -> u64 {
        let accounting = self.accounting(class);
        assert!(self.chunk_bytes <= accounting.memory_bytes(), "a chunk fits into each share");
        if self.classes.len() > 1 { self.chunk_bytes } else { accounting.free() + accounting.reserved() }
    }

    /// Input was read on the order's group and became this output for these groups, of any class; at most
    /// [`JobPlanner::room_bytes`] in all. Ends the order.
    pub fn was_read(&mut self, class: ClassId, input_bytes: u64, output: &[(GroupId, u64)]) {
        let Order::Read { group, .. } = self.end(class) else { panic!("no read is in hand") };
        let whole: u64 = output.iter().map(|(_, bytes)| *bytes).sum();
        assert!(whole <= self.room_bytes(class), "a piece became more than there was room for");
        let reader = self.of_mut(class);
        let here = reader.number(group);
        let none = vec![0; reader.groups.len()];
        reader.planner.accounting.was_read(here, input_bytes, &none);
        for (target, bytes) in output {
            let mut places = self.classes.iter_mut().filter_map(|class| Some((class.index(*target)?, class)));
            let (index, owner) = places.next().expect("output falls to groups of the job");
            owner.planner.accounting.arrived(index, *bytes);
        }
    }

    /// The next order of a class, if the order in hand is a write of this number of bytes and nothing happens before
    /// its end; none unless the next order is a write as well. The caller can prepare it meanwhile.
    pub fn ahead(&self, class: ClassId, bytes: u64) -> Option<Order> {
        let order = self.in_hand(class).filter(|order| order.writes())?;
        let mut planner = self.clone();
        planner.of_mut(class).planner.fixed = true;
        planner.was_written(class, bytes);
        let next = planner.next(class);
        assert_eq!(self.in_hand(class), Some(order), "what is foreseen changes nothing");
        next.writes().then_some(next)
    }

    /// Input on a group was lost before it was read. No read on this group may be in hand.
    pub fn was_lost(&mut self, class: ClassId, group: GroupId, bytes: u64) {
        let class = self.of_mut(class);
        assert!(!matches!(class.in_hand, Some(Order::Read { group: read, .. }) if read == group), "it is being read");
        let index = class.number(group);
        class.planner.accounting.was_lost(index, bytes);
    }

    /// This number of the bytes to deliver or to offload is written. Ends the order.
    pub fn was_written(&mut self, class: ClassId, bytes: u64) {
        let order = self.end(class);
        let class = self.of_mut(class);
        match order {
            Order::Deliver { group, .. } => class.planner.accounting.was_delivered(class.number(group), bytes),
            Order::Offload { on, target, .. } => {
                class.planner.accounting.was_offloaded(class.number(on), class.number(target), bytes);
            }
            _ => panic!("nothing is to be written"),
        }
    }

    /// This number of the bytes to refill is buffered, and their pieces are removed. Ends the order.
    pub fn was_refilled(&mut self, class: ClassId, bytes: u64) {
        let Order::Refill { on, target, .. } = self.end(class) else { panic!("nothing is to be refilled") };
        let class = self.of_mut(class);
        let (on, target) = (class.number(on), class.number(target));
        class.planner.accounting.was_refilled(on, target, bytes);
    }

    fn of(&self, class: ClassId) -> &ClassPlanner {
        self.classes.iter().find(|job| job.class == class).expect("a class of the job")
    }

    fn of_mut(&mut self, class: ClassId) -> &mut ClassPlanner {
        self.classes.iter_mut().find(|job| job.class == class).expect("a class of the job")
    }
}

/// Rounds over all groups that a strategy may plan before it does something: the baseline ends one and starts another.
const ROUNDS_MAX: usize = 4;

impl ClassPlanner {
    fn index(&self, group: GroupId) -> Option<usize> {
        self.groups.iter().position(|known| *known == group)
    }

    /// The number of a group of the class.
    fn number(&self, group: GroupId) -> usize {
        self.index(group).expect("a group of the job")
    }

    /// The next order that leaves less in the buffer; [`Order::Wait`] if it is empty.
    fn empty_buffer(&mut self) -> Order {
        let offloads = self.planner.choice != Choice::Baseline;
        let accounting = &mut self.planner.accounting;
        let fullest = (0..self.groups.len()).max_by_key(|group| (accounting.buffered(*group), Reverse(*group)));
        let Some(fullest) = fullest.filter(|group| accounting.buffered(*group) > 0) else { return Order::Wait };
        let at = match accounting.awake() {
            Some(awake) if accounting.buffered(awake) > 0 => awake,
            Some(awake) if offloads => {
                let (on, target) = (self.groups[awake], self.groups[fullest]);
                assert!(on != target, "nothing is offloaded to its own destination");
                return Order::Offload { on, target, bytes: accounting.buffered(fullest) };
            }
            _ => fullest,
        };
        accounting.set_awake(Some(at));
        assert!(accounting.buffered(at) > 0, "a buffer is emptied by writing something");
        Order::Deliver { group: self.groups[at], bytes: accounting.buffered(at) }
    }

    /// The planner's next step that is not a visit.
    fn plan(&mut self) -> Order {
        for _ in 0..=ROUNDS_MAX * self.groups.len() {
            let step = self.planner.next_step();
            let accounting = &self.planner.accounting;
            let on = accounting.awake().map(|group| self.groups[group]);
            match (step, on) {
                (Step::Visit { group }, _) => self.planner.accounting.set_awake(Some(group)),
                (Step::Done, _) => return if accounting.done() { Order::Done } else { Order::Wait },
                (Step::Read { bytes }, Some(group)) => return Order::Read { group, bytes },
                (Step::Deliver, Some(group)) => {
                    let bytes = accounting.awake().map_or(0, |awake| accounting.buffered(awake));
                    assert!(bytes > 0, "a strategy delivers something");
                    return Order::Deliver { group, bytes };
                }
                (Step::Offload { target }, Some(on)) => {
                    let (target, bytes) = (self.groups[target], accounting.buffered(target));
                    assert!(bytes > 0 && on != target, "a strategy offloads something, to another group");
                    return Order::Offload { on, target, bytes };
                }
                (Step::Refill { target, bytes }, Some(on)) => {
                    let target = self.groups[target];
                    assert!(bytes > 0 && on != target, "a strategy refills something, from another group");
                    return Order::Refill { on, target, bytes };
                }
                (_, None) => unreachable!("a strategy visits a group before it does something there"),
            }
        }
        unreachable!("a strategy tours for ever and does nothing")
    }
}
