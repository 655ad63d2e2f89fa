//! Cost simulation: runs a strategy against the expected input and output, as a fluid, to find its cost.
//!
//! Alpha and expansion turn input into buffered output, which fixed shares distribute over the groups, to the byte: the
//! paper's simulation (section V), in steps of a buffer rather than of a record. Each piece that is read or written
//! takes the seeks that the terms state, and the removal of an offloaded piece takes one more, as in the rack. The
//! processor works while drives read and write, and after they have read a run. Unlike the paper, the simulation counts
//! drive starts: a visit starts all drives of its group. When their starts of the day are used up
//! ([`Terms::starts_per_day`]), everything waits for the next day, as in `crate::budget`.

use super::accounting::Accounting;
use super::apportion::{Apportion, Expected};
use super::strategy::Step;
use super::terms::Terms;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::transfer_time;
use serde::{Deserialize, Serialize};

/// The day on which a job starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day {
    /// The elapsed part of the day; less than a day.
    pub gone: Duration,
    /// Starts of each group's drives so far on this day; 0 for groups that have no entry.
    pub starts: Vec<u32>,
}

/// The cost of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Time from the first step to the last, without [`Cost::waiting`].
    pub time: Duration,
    /// The part of it spent on waking groups.
    pub switching: Duration,
    /// The part of it spent on seeks.
    pub seeking: Duration,
    /// Wakes of another group, the first one included.
    pub switches: u64,
    /// Bytes read: input, and offloaded runs.
    pub bytes_read: u64,
    /// Bytes written: output as it is stored, and offloaded runs.
    pub bytes_written: u64,
    /// The offloaded part of the bytes written.
    pub bytes_offloaded: u64,
    /// The largest number of bytes offloaded on one group at a time.
    pub peak_offloaded_bytes: u64,
    /// Drive starts in the group that is woken most often.
    pub starts: u64,
    /// Time spent waiting for the next day, because the starts of the day were used up.
    pub waiting: Duration,
}

impl Cost {
    /// Time from the first step to the last, waiting included.
    pub fn total(&self) -> Duration {
        self.time + self.waiting
    }
}

pub(super) const DAY: Duration = Duration::from_hours(24);

/// A run: the current accounting, and the cost so far.
pub(super) struct Simulation<'a> {
    accounting: Accounting,
    terms: &'a Terms,
    apportion: Apportion,
    cost: Cost,
    /// The elapsed part of the first day.
    gone: Duration,
    /// The current day; the run starts on day 0.
    today: u64,
    /// Starts of each group's drives since the run started.
    starts: Vec<u64>,
    /// Starts of each group's drives today.
    starts_today: Vec<u32>,
}

impl<'a> Simulation<'a> {
    /// A run before its first step. The output of one byte of input is limited to the memory, however much is expected.
    pub fn new(accounting: Accounting, terms: &'a Terms, expected: &Expected, day: &Day) -> Self {
        let groups = accounting.groups();
        assert_eq!(expected.shares.len(), groups, "a share for every group");
        assert!(day.gone < DAY, "a day ends");
        let accounting = accounting.for_simulation(expected.alpha);
        let apportion = Apportion::new(expected).with_output_at_most(accounting.memory_bytes());
        let mut starts_today = day.starts.clone();
        starts_today.resize(groups, 0);
        let (cost, starts) = (Cost::default(), vec![0; groups]);
        Self { accounting, terms, apportion, cost, gone: day.gone, today: 0, starts, starts_today }
    }

    /// Takes steps of `next` until it returns [`Step::Done`].
    pub fn run(&mut self, mut next: impl FnMut(&mut Accounting) -> Step) -> Cost {
        loop {
            match next(&mut self.accounting) {
                Step::Done => break,
                step => self.perform(step),
            }
        }
        assert!(self.accounting.done(), "a strategy ended before all output was delivered");
        self.cost.time += self.cost.switching + self.cost.seeking;
        assert!(self.cost.starts <= self.cost.switches, "drives start when their group is woken");
        assert!(self.cost.bytes_offloaded <= self.cost.bytes_written, "what is offloaded is written");
        self.cost
    }

    /// The current accounting.
    #[cfg(test)]
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    fn perform(&mut self, step: Step) {
        let awake = self.accounting.awake();
        match (step, awake) {
            (Step::Visit { group }, _) => {
                if awake != Some(group) {
                    self.start(group);
                    self.cost.switches += 1;
                    self.cost.switching += self.terms.switch;
                }
                self.accounting.set_awake(Some(group));
            }
            (Step::Read { bytes }, Some(group)) => self.read(group, bytes),
            (Step::Deliver, Some(group)) => {
                let bytes = self.accounting.buffered(group);
                self.write(self.terms.expansion.stored_of(bytes), self.terms.processor.encode(bytes));
                self.accounting.was_delivered(group, bytes);
            }
            (Step::Offload { target }, Some(on)) => {
                let bytes = self.accounting.buffered(target);
                self.write(bytes, self.terms.processor.run(bytes));
                self.cost.bytes_offloaded += bytes;
                self.accounting.was_offloaded(on, target, bytes);
                let lies = self.accounting.offloaded_on(on);
                self.cost.peak_offloaded_bytes = self.cost.peak_offloaded_bytes.max(lies);
            }
            (Step::Refill { target, bytes }, Some(on)) => {
                let pieces = self.accounting.was_refilled(on, target, bytes);
                let seeks = pieces.saturating_mul(u64::from(self.terms.read_seeks) + 1);
                self.cost.seeking += self.terms.seek * u32::try_from(seeks).unwrap_or(u32::MAX);
                self.cost.time += transfer_time(bytes, self.terms.read_bytes_per_s) + self.terms.processor.run(bytes);
                self.cost.bytes_read += bytes;
            }
            (Step::Read { .. } | Step::Deliver | Step::Offload { .. } | Step::Refill { .. } | Step::Done, _) => {
                unreachable!("no group is awake to do this on")
            }
        }
    }

    /// Starts the drives of a group; on the next day if their starts of today are used up. A limit of 0 starts a day
    /// counts as 1: a job that never ends has no cost.
    fn start(&mut self, group: usize) {
        let cost = &self.cost;
        let gone = self.gone + cost.time + cost.switching + cost.seeking + cost.waiting;
        self.enter((gone.as_secs() / DAY.as_secs()).max(self.today));
        if self.starts_today[group] >= self.terms.starts_per_day.max(1) {
            let tomorrow = DAY.saturating_mul(u32::try_from(self.today + 1).unwrap_or(u32::MAX));
            self.cost.waiting += tomorrow.saturating_sub(gone);
            self.enter(self.today + 1);
        }
        assert!(self.starts_today[group] < self.terms.starts_per_day.max(1), "no drive starts more often in a day");
        self.starts_today[group] += 1;
        self.starts[group] += 1;
        self.cost.starts = self.cost.starts.max(self.starts[group]);
    }

    fn enter(&mut self, day: u64) {
        assert!(day >= self.today, "days do not come again");
        if day > self.today {
            self.today = day;
            self.starts_today.fill(0);
        }
    }

    /// Reads until the requested bytes are read, the group's input ends or the buffer is full.
    fn read(&mut self, group: usize, bytes: u64) {
        let fits = self.apportion.input_for(self.accounting.free());
        let bytes = bytes.min(self.accounting.input(group)).min(fits);
        assert!(bytes > 0, "a read that moves nothing would be asked for again for ever");
        self.accounting.was_read(group, bytes, self.apportion.output_of(bytes));
        self.cost.seeking += self.terms.seek * self.terms.read_seeks;
        let read = transfer_time(bytes, self.terms.read_bytes_per_s);
        self.cost.time += read.max(self.terms.processor.split(bytes));
        self.cost.bytes_read += bytes;
    }

    /// Writes bytes that take the processor this time.
    fn write(&mut self, bytes: u64, processing: Duration) {
        assert!(bytes > 0, "a strategy writes something");
        self.cost.seeking += self.terms.seek * self.terms.write_seeks;
        self.cost.time += transfer_time(bytes, self.terms.write_bytes_per_s).max(processing);
        self.cost.bytes_written += bytes;
    }
}
