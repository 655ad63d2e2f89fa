//! A job: a planner for each class the data lies in, and one memory between them.
//!
//! The world asks for an [`Order`] for each class, does it by ordinary operations of the background lane (whose group
//! the class scheduler wakes in its turn), and tells what came of it. A class has one order in hand at a time. An order
//! may be done in part: what was done is told, and the next one goes on from there.
//!
//! Visits are not ordered: an operation wakes its group. Instead the job is told which group is awake. When a client
//! woke one where there is something to do, the job asks to withdraw what waits for another: that ride is free.
//!
//! Each class has a share of the memory, in which lies what its own groups are to get, wherever it was read. So a class
//! whose share is full can always empty it without another's help. A piece is only read when every share has room for
//! all that it may become (the grain), those that are being read elsewhere included.
//!
//! Invariants: no share ever holds more than it may; whoever waits, waits for an order that is in hand.

use super::{Books, Choice, Cost, Expected, Planner, Step, Terms};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use model::{ClassId, GroupId};

/// A class's part of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The class.
    pub class: ClassId,
    /// Its groups that have input or get output, each once.
    pub groups: Vec<GroupId>,
    /// Input on each of them.
    pub input_bytes: Vec<u64>,
    /// What output is expected to fall to each of them, as weights; not all 0.
    pub shares: Vec<u64>,
}

/// What the world is to do next in a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read one piece of input on this group, or several if they become no more than [`Job::room_bytes`] in all.
    Read {
        /// Where.
        group: GroupId,
        /// No more than so many bytes of input are wanted; a piece that is larger is read all the same.
        bytes: u64,
    },
    /// Write to this group what is buffered for it.
    BringHome {
        /// Where.
        group: GroupId,
        /// How much that is now.
        bytes: u64,
    },
    /// Write what is buffered for one group to another, as a run of its own, in pieces of the grain at most.
    Offload {
        /// Where.
        on: GroupId,
        /// For whom.
        target: GroupId,
        /// How much that is now.
        bytes: u64,
    },
    /// Read pieces of runs that lie offloaded back into the buffer, and remove them.
    Refill {
        /// Where they lie.
        on: GroupId,
        /// For whom.
        target: GroupId,
        /// At most so many bytes, and one piece at least fits.
        bytes: u64,
    },
    /// Nothing can be done before an order of another class has ended.
    Wait,
    /// Everything of this class is home, and nothing more comes.
    Done,
}

impl Order {
    /// The group it is done on, if it is something to do.
    pub fn group(self) -> Option<GroupId> {
        match self {
            Self::Read { group, .. } | Self::BringHome { group, .. } => Some(group),
            Self::Offload { on, .. } | Self::Refill { on, .. } => Some(on),
            Self::Wait | Self::Done => None,
        }
    }
}

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Job {
    classes: Vec<ClassJob>,
    /// Each group's class and its number there.
    places: BTreeMap<GroupId, (usize, usize)>,
    grain_bytes: u64,
}

#[derive(Clone, Debug)]
struct ClassJob {
    class: ClassId,
    groups: Vec<GroupId>,
    planner: Planner,
    in_hand: Option<Order>,
}

impl Job {
    /// A job over these parts, at least one of them, with so much memory in all, of which each class gets a share in
    /// proportion to what is expected to fall to its groups, and two grains at least. `None` if the memory is too
    /// small for that: see [`Job::least_memory_bytes`].
    ///
    /// `forced` is followed by every class to the end, if it is given.
    pub fn new(
        parts: &[Part],
        memory_bytes: u64,
        grain_bytes: u64,
        terms: Terms,
        expected: super::Alpha,
        forced: Option<Choice>,
    ) -> Option<Self> {
        assert!(!parts.is_empty(), "a job lies in some class");
        if memory_bytes < Self::least_memory_bytes(parts.len(), grain_bytes) {
            return None;
        }
        let least = Self::least_memory_bytes(parts.len(), grain_bytes) / parts.len() as u64;
        let spare = memory_bytes - least * parts.len() as u64;
        let weights: Vec<u128> = parts.iter().map(|part| part.shares.iter().map(|s| u128::from(*s)).sum()).collect();
        let whole: u128 = weights.iter().sum();
        assert!(whole > 0, "output falls to some group");
        let class_job = |(part, weight): (&Part, &u128)| {
            assert!(part.groups.len() == part.input_bytes.len() && part.groups.len() == part.shares.len());
            let share = least + (u128::from(spare) * weight / whole) as u64;
            let books = Books::new(part.input_bytes.clone(), share, expected).with_grain(grain_bytes);
            let shares = if *weight == 0 { alloc::vec![1; part.groups.len()] } else { part.shares.clone() };
            let planner = Planner::new(books, terms, &Expected { alpha: expected, shares }, forced);
            ClassJob { class: part.class, groups: part.groups.clone(), planner, in_hand: None }
        };
        let places_of = |(class, part): (usize, &Part)| {
            let place = move |(number, group): (usize, &GroupId)| (*group, (class, number));
            part.groups.iter().enumerate().map(place).collect::<Vec<_>>()
        };
        let places = parts.iter().enumerate().flat_map(places_of).collect();
        Some(Self { classes: parts.iter().zip(&weights).map(class_job).collect(), places, grain_bytes })
    }

    /// The least memory for a job in so many classes: each needs room for what every class may be reading at once, and
    /// as much again, so that there is something to write.
    pub fn least_memory_bytes(classes: usize, grain_bytes: u64) -> u64 {
        let classes = classes as u64;
        2 * classes * classes * grain_bytes
    }

    /// The classes it works in.
    pub fn classes(&self) -> impl Iterator<Item = ClassId> + '_ {
        self.classes.iter().map(|class| class.class)
    }

    /// The strategy that a class follows now.
    pub fn choice(&self, class: ClassId) -> Choice {
        self.of(class).planner.choice()
    }

    /// How often strategies were changed, in all classes.
    pub fn changes(&self) -> u32 {
        self.classes.iter().map(|class| class.planner.changes()).sum()
    }

    /// The books of a class, whose groups are numbered as in its [`Part`].
    pub fn books(&self, class: ClassId) -> &Books {
        self.of(class).planner.books()
    }

    /// What the rest would cost if things go on as measured, in the class for which it takes longest.
    pub fn forecast(&self) -> Cost {
        let costs = self.classes.iter().map(|class| class.planner.forecast());
        costs.max_by_key(Cost::total).unwrap_or_default()
    }

    /// Whether everything is home.
    pub fn done(&self) -> bool {
        self.classes.iter().all(|class| class.planner.books().done())
    }

    /// The order that a class has in hand.
    pub fn in_hand(&self, class: ClassId) -> Option<Order> {
        self.of(class).in_hand
    }

    /// This group of the class is awake now, or none. True if what is queued for another group, and is not in service
    /// yet, should be withdrawn ([`Job::withdrawn`]), since there is something to do here.
    pub fn awake(&mut self, class: ClassId, group: Option<GroupId>) -> bool {
        let grain = self.grain_bytes;
        let class = self.of_mut(class);
        let Some(here) = group.and_then(|group| class.index(group)) else { return false };
        let Some(order) = class.in_hand else {
            class.planner.books_mut().woke(here);
            return false;
        };
        if order.group() == group {
            return false;
        }
        !matches!(class.planner.step_on(here, promised_here(order, grain)), Step::Visit { .. } | Step::Done)
    }

    /// The order in hand came to nothing: it was withdrawn, because `awake` is awake, or it failed and is to be thought
    /// over.
    pub fn withdrawn(&mut self, class: ClassId, awake: Option<GroupId>) {
        self.end(class);
        let class = self.of_mut(class);
        if let Some(here) = awake.and_then(|group| class.index(group)) {
            class.planner.books_mut().woke(here);
        }
    }

    /// What to do next in a class, which has no order in hand. A class that has to wait is asked again whenever an
    /// order of another class has ended.
    pub fn next(&mut self, class: ClassId) -> Order {
        assert!(self.of(class).in_hand.is_none(), "one order in hand in a class");
        if let Some(order) = self.must_wait(class) {
            return order;
        }
        let order = self.of_mut(class).plan();
        let reads = matches!(order, Order::Read { .. });
        if reads && self.classes.iter().any(|other| other.planner.books().full()) {
            return Order::Wait;
        }
        if order.group().is_some() {
            self.of_mut(class).in_hand = Some(order);
            self.promised_for(class, order, Books::promise);
        }
        order
    }

    /// Changes what is promised for an order: room for a piece in every class, or for what is refilled in its own.
    fn promised_for(&mut self, class: ClassId, order: Order, change: impl Fn(&mut Books, u64)) {
        for each in &mut self.classes {
            if each.class == class {
                change(each.planner.books_mut(), promised_here(order, self.grain_bytes));
            } else if matches!(order, Order::Read { .. }) {
                change(each.planner.books_mut(), self.grain_bytes);
            }
        }
    }

    /// The class has no order in hand any more; gives back which it was.
    fn end(&mut self, class: ClassId) -> Order {
        let Some(order) = self.of_mut(class).in_hand.take() else { panic!("no order is in hand") };
        self.promised_for(class, order, Books::redeem);
        order
    }

    /// Whether the class is done, or has to wait before it can even plan.
    fn must_wait(&self, class: ClassId) -> Option<Order> {
        let others_read = self.classes.iter().any(|other| {
            other.class != class
                && (other.planner.books().input_left() > 0 || matches!(other.in_hand, Some(Order::Read { .. })))
        });
        let books = self.books(class);
        if books.done() {
            return Some(if others_read { Order::Wait } else { Order::Done });
        }
        // More comes from others, and nothing is gained by carrying little.
        let gathers = books.input_left() == 0 && others_read && !books.full();
        // There would be room, if it were not promised.
        let promised_away = books.full() && books.free() + books.promised() >= books.grain_bytes();
        (gathers || promised_away).then_some(Order::Wait)
    }

    /// The most that what a class reads now may become: the grain, since so much was promised in every class; what is
    /// free, if there is no other class.
    pub fn room_bytes(&self, class: ClassId) -> u64 {
        let books = self.books(class);
        if self.classes.len() > 1 { self.grain_bytes } else { books.free() + books.promised() }
    }

    /// So much input was read on the order's group and became so much for each of these groups, of whatever class; no
    /// more than [`Job::room_bytes`] in all. Ends the order.
    pub fn was_read(&mut self, class: ClassId, input_bytes: u64, output: &[(GroupId, u64)]) {
        let Order::Read { group, .. } = self.end(class) else { panic!("no read is in hand") };
        let whole: u64 = output.iter().map(|(_, bytes)| *bytes).sum();
        assert!(whole <= self.room_bytes(class), "a piece became more than there was room for");
        let reader = self.of_mut(class);
        let here = reader.number(group);
        let none = alloc::vec![0; reader.groups.len()];
        reader.planner.books_mut().was_read(here, input_bytes, &none);
        for (target, bytes) in output {
            let (owner, index) = *self.places.get(target).expect("output falls to groups of the job");
            self.classes[owner].planner.books_mut().arrived(index, *bytes);
        }
    }

    /// What a class will do next, if the order in hand, a write, does so many bytes and nothing comes between: only if
    /// that is a write as well. Whoever knows can prepare it meanwhile.
    pub fn ahead(&self, class: ClassId, bytes: u64) -> Option<Order> {
        let mut job = self.clone();
        match self.in_hand(class)? {
            Order::BringHome { .. } => job.was_brought_home(class, bytes),
            Order::Offload { .. } => job.was_offloaded(class, bytes),
            Order::Read { .. } | Order::Refill { .. } | Order::Wait | Order::Done => return None,
        }
        let order = job.next(class);
        matches!(order, Order::BringHome { .. } | Order::Offload { .. }).then_some(order)
    }

    /// Input on a group is gone before it was read. No read of it may be in hand.
    pub fn was_lost(&mut self, class: ClassId, group: GroupId, bytes: u64) {
        let class = self.of_mut(class);
        assert!(!matches!(class.in_hand, Some(Order::Read { group: read, .. }) if read == group), "it is being read");
        let index = class.number(group);
        class.planner.books_mut().was_lost(index, bytes);
    }

    /// So many of the bytes that were to be brought home are written. Ends the order.
    pub fn was_brought_home(&mut self, class: ClassId, bytes: u64) {
        let Order::BringHome { group, .. } = self.end(class) else { panic!("nothing is to be brought home") };
        let class = self.of_mut(class);
        let index = class.number(group);
        class.planner.books_mut().was_brought_home(index, bytes);
    }

    /// So many of the bytes that were to be offloaded are written. Ends the order.
    pub fn was_offloaded(&mut self, class: ClassId, bytes: u64) {
        let Order::Offload { on, target, .. } = self.end(class) else { panic!("nothing is to be offloaded") };
        let class = self.of_mut(class);
        let (on, target) = (class.number(on), class.number(target));
        class.planner.books_mut().was_offloaded(on, target, bytes);
    }

    /// So many of the bytes that were to be refilled are buffered, and their pieces gone. Ends the order.
    pub fn was_refilled(&mut self, class: ClassId, bytes: u64) {
        let Order::Refill { on, target, .. } = self.end(class) else { panic!("nothing is to be refilled") };
        let class = self.of_mut(class);
        let (on, target) = (class.number(on), class.number(target));
        class.planner.books_mut().was_refilled(on, target, bytes);
    }

    fn of(&self, class: ClassId) -> &ClassJob {
        self.classes.iter().find(|job| job.class == class).expect("a class of the job")
    }

    fn of_mut(&mut self, class: ClassId) -> &mut ClassJob {
        self.classes.iter_mut().find(|job| job.class == class).expect("a class of the job")
    }
}

impl ClassJob {
    fn index(&self, group: GroupId) -> Option<usize> {
        self.groups.iter().position(|known| *known == group)
    }

    /// The number of a group that the job knows.
    fn number(&self, group: GroupId) -> usize {
        self.index(group).expect("a group of the job")
    }

    /// The planner's next step, visits left out.
    fn plan(&mut self) -> Order {
        for _ in 0..=VISITS_MAX * self.groups.len() {
            let at = |books: &Books| books.awake().map(|group| self.groups[group]);
            let step = self.planner.next_step();
            let books = self.planner.books();
            let on = at(books);
            match (step, on) {
                (Step::Visit { group }, _) => self.planner.books_mut().woke(group),
                (Step::Done, _) => return if books.done() { Order::Done } else { Order::Wait },
                (Step::Read { bytes }, Some(group)) => return Order::Read { group, bytes },
                (Step::BringHome, Some(group)) => {
                    let bytes = books.awake().map_or(0, |awake| books.buffered(awake));
                    return Order::BringHome { group, bytes };
                }
                (Step::Offload { target }, Some(on)) => {
                    return Order::Offload { on, target: self.groups[target], bytes: books.buffered(target) };
                }
                (Step::Refill { target, bytes }, Some(on)) => {
                    return Order::Refill { on, target: self.groups[target], bytes };
                }
                (_, None) => unreachable!("a strategy visits a group before it does something there"),
            }
        }
        unreachable!("a strategy tours for ever and does nothing")
    }
}

/// What is promised for an order in its own class.
fn promised_here(order: Order, grain_bytes: u64) -> u64 {
    match order {
        Order::Read { .. } => grain_bytes,
        Order::Refill { bytes, .. } => bytes,
        Order::BringHome { .. } | Order::Offload { .. } | Order::Wait | Order::Done => 0,
    }
}

/// How often a strategy may go around all groups before it does something: the baseline ends a round and begins one.
const VISITS_MAX: usize = 4;
