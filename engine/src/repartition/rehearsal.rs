//! Rehearsals: a strategy run against what is expected, as a fluid, to tell what it would cost.
//!
//! Input turns into output by alpha, and output falls to the groups by fixed shares, to the byte: this is what the
//! paper simulates (section V), at the grain of a buffer rather than of a record. Heads are moved once for whatever is
//! read or written in one piece, and once more to remove a piece that was offloaded, as the rack does it. Unlike the
//! paper, a rehearsal counts how often drives are started: a visit starts all drives of its group, and when their
//! starts of the day are used up ([`Terms::starts_per_day`]), everything waits for the next day, as [`crate::budget`]
//! has it.

use super::{Alpha, Books, Step, Strategy, Terms};
use ::model::transfer_time;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// What is expected of the input that is still to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Output over input.
    pub alpha: Alpha,
    /// How output falls to the groups, as weights; not all 0.
    pub shares: Vec<u64>,
}

impl Expected {
    /// Output that falls to all groups alike.
    pub fn uniform(groups: usize, alpha: Alpha) -> Self {
        Self { alpha, shares: vec![1; groups] }
    }
}

/// The day on which a job begins: what is left of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day {
    /// The part of it that is gone; less than a day.
    pub gone: Duration,
    /// How often each group's drives were started on it; none, for groups that are not told of.
    pub starts: Vec<u32>,
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// From the first step to the last, but for [`Cost::waiting`].
    pub time: Duration,
    /// The part of it in which groups were woken.
    pub switching: Duration,
    /// The part of it in which heads were moved.
    pub seeking: Duration,
    /// How often another group was woken; the first one counts.
    pub switches: u64,
    /// Bytes read: input, and runs read back.
    pub bytes_read: u64,
    /// Bytes written: home, and offloaded.
    pub bytes_written: u64,
    /// The most that lay offloaded on any one group.
    pub peak_offloaded_bytes: u64,
    /// How often the drives are started whose group is woken most often.
    pub starts: u64,
    /// How long is waited for the next day, because the starts of one are used up.
    pub waiting: Duration,
}

impl Cost {
    /// From the first step to the last, waiting included.
    pub fn total(&self) -> Duration {
        self.time + self.waiting
    }
}

/// Runs `strategy` from `books` to the end, if input turns into output as expected.
///
/// Takes time in proportion to how often the buffer is filled.
pub fn rehearse(strategy: &mut dyn Strategy, books: Books, terms: &Terms, expected: &Expected) -> Cost {
    rehearse_on(&Day::default(), strategy, books, terms, expected)
}

/// [`rehearse`] from a certain moment of a day on.
pub(super) fn rehearse_on(
    day: &Day,
    strategy: &mut dyn Strategy,
    books: Books,
    terms: &Terms,
    expected: &Expected,
) -> Cost {
    run(strategy, books, terms, (expected, day), |_| {}).1
}

/// [`rehearse`], with somebody else who may wake groups before each step; tells how the books stand at the end.
pub(super) fn run(
    strategy: &mut dyn Strategy,
    books: Books,
    terms: &Terms,
    (expected, day): (&Expected, &Day),
    mut meddle: impl FnMut(&mut Books),
) -> (Books, Cost) {
    assert_eq!(expected.shares.len(), books.groups(), "a share for every group");
    let mut books = books.for_rehearsal(expected.alpha);
    let mut fluid = Fluid::new(expected, books.memory_bytes(), day);
    let mut cost = Cost::default();
    loop {
        meddle(&mut books);
        let step = strategy.next(&books, terms);
        if step == Step::Done {
            assert!(books.done(), "a strategy ended before everything was home");
            cost.time += cost.switching + cost.seeking;
            return (books, cost);
        }
        fluid.perform(step, &mut books, terms, &mut cost);
    }
}

/// A planner in a world where output falls as `expected`, whatever it was told.
#[cfg(test)]
pub(super) fn run_planner(planner: &mut super::Planner, terms: &Terms, expected: &Expected) -> Cost {
    let mut fluid = Fluid::new(expected, planner.books().memory_bytes(), &Day::default());
    let mut cost = Cost::default();
    loop {
        let step = planner.next_step();
        if step == Step::Done {
            assert!(planner.books().done(), "a planner ended before everything was home");
            cost.time += cost.switching + cost.seeking;
            return cost;
        }
        fluid.perform(step, planner.books_mut(), terms, &mut cost);
    }
}

/// What becomes of the input, to the byte: alpha and the shares hold over all that was read so far, as closely as whole
/// bytes can.
#[derive(Clone, Debug)]
pub struct Deal {
    alpha: Alpha,
    shares: Vec<u64>,
    whole: u128,
    input: u64,
    turn: usize,
    given: Vec<u64>,
}

impl Deal {
    /// Nothing was read yet.
    pub fn new(expected: &Expected) -> Self {
        let whole: u128 = expected.shares.iter().map(|share| u128::from(*share)).sum();
        assert!(whole > 0, "output falls to some group");
        let groups = expected.shares.len();
        let (alpha, shares) = (expected.alpha, expected.shares.clone());
        Self { alpha, shares, whole, input: 0, turn: 0, given: vec![0; groups] }
    }

    /// The most input whose output fits into so many bytes.
    pub fn input_for(&self, output_bytes: u64) -> u64 {
        self.alpha.input_for(output_bytes)
    }

    /// What so many more bytes of input become, for each group. What rounding leaves goes to one target after the
    /// other.
    pub fn deal(&mut self, bytes: u64) -> &[u64] {
        let before = self.alpha.output_of(self.input);
        self.input += bytes;
        let output = self.alpha.output_of(self.input) - before;
        let mut left = output;
        for (given, share) in self.given.iter_mut().zip(&self.shares) {
            *given = (u128::from(output) * u128::from(*share) / self.whole) as u64;
            left -= *given;
        }
        while left > 0 {
            self.turn = (self.turn + 1) % self.shares.len();
            if self.shares[self.turn] > 0 {
                self.given[self.turn] += 1;
                left -= 1;
            }
        }
        &self.given
    }
}

const DAY: Duration = Duration::from_hours(24);

/// What becomes of the input, and how often drives were started.
struct Fluid {
    deal: Deal,
    /// What was gone of the day on which it begins.
    gone: Duration,
    /// The day it is now; 0 is the one on which it begins.
    today: u64,
    /// Starts of each group's drives since it began.
    starts: Vec<u64>,
    /// Those of today.
    starts_today: Vec<u32>,
}

impl Fluid {
    /// A byte of input becomes no more than fits into the memory, whatever is expected.
    fn new(expected: &Expected, memory_bytes: u64, day: &Day) -> Self {
        let mut deal = Deal::new(expected);
        let most = u128::from(memory_bytes) * u128::from(expected.alpha.input);
        deal.alpha.output = u64::try_from(most).unwrap_or(u64::MAX).min(expected.alpha.output);
        let groups = expected.shares.len();
        let mut starts_today = day.starts.clone();
        starts_today.resize(groups, 0);
        Self { deal, gone: day.gone, today: 0, starts: vec![0; groups], starts_today }
    }

    fn perform(&mut self, step: Step, books: &mut Books, terms: &Terms, cost: &mut Cost) {
        let awake = books.awake();
        match (step, awake) {
            (Step::Visit { group }, _) => {
                if awake != Some(group) {
                    self.start(group, terms, cost);
                    cost.switches += 1;
                    cost.switching += terms.switch;
                }
                books.woke(group);
            }
            (Step::Read { bytes }, Some(group)) => self.read(group, bytes, books, terms, cost),
            (Step::BringHome, Some(group)) => {
                let bytes = books.buffered(group);
                write(bytes, terms, cost);
                books.was_brought_home(group, bytes);
            }
            (Step::Offload { target }, Some(on)) => {
                let bytes = books.buffered(target);
                write(bytes, terms, cost);
                books.was_offloaded(on, target, bytes);
                cost.peak_offloaded_bytes = cost.peak_offloaded_bytes.max(books.offloaded_on(on));
            }
            (Step::Refill { target, bytes }, Some(on)) => {
                let pieces = books.was_refilled(on, target, bytes);
                cost.seeking += terms.seek * u32::try_from(2 * pieces).unwrap_or(u32::MAX);
                cost.time += transfer_time(bytes, terms.read_bytes_per_s);
                cost.bytes_read += bytes;
            }
            (Step::Read { .. } | Step::BringHome | Step::Offload { .. } | Step::Refill { .. } | Step::Done, _) => {
                unreachable!("no group is awake to do this on")
            }
        }
    }

    /// Starts the drives of a group, tomorrow if they have had their starts of today. Where there are none at all, one
    /// a day is counted: what never ends has no length.
    fn start(&mut self, group: usize, terms: &Terms, cost: &mut Cost) {
        let gone = self.gone + cost.time + cost.switching + cost.seeking + cost.waiting;
        self.enter((gone.as_secs() / DAY.as_secs()).max(self.today));
        if self.starts_today[group] >= terms.starts_per_day.max(1) {
            let tomorrow = DAY.saturating_mul(u32::try_from(self.today + 1).unwrap_or(u32::MAX));
            cost.waiting += tomorrow.saturating_sub(gone);
            self.enter(self.today + 1);
        }
        self.starts_today[group] += 1;
        self.starts[group] += 1;
        cost.starts = cost.starts.max(self.starts[group]);
    }

    fn enter(&mut self, day: u64) {
        if day > self.today {
            self.today = day;
            self.starts_today.fill(0);
        }
    }

    /// Reads until as much is read as was asked, or the buffer is full.
    fn read(&mut self, group: usize, bytes: u64, books: &mut Books, terms: &Terms, cost: &mut Cost) {
        let fits = self.deal.input_for(books.free());
        let bytes = bytes.min(books.input(group)).min(fits);
        assert!(bytes > 0, "a read that moves nothing would be asked for again for ever");
        books.was_read(group, bytes, self.deal.deal(bytes));
        cost.seeking += terms.seek;
        cost.time += transfer_time(bytes, terms.read_bytes_per_s);
        cost.bytes_read += bytes;
    }
}

fn write(bytes: u64, terms: &Terms, cost: &mut Cost) {
    cost.seeking += terms.seek;
    cost.time += transfer_time(bytes, terms.write_bytes_per_s);
    cost.bytes_written += bytes;
}
