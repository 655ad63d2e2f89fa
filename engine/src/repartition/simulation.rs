//! Cost simulation: a strategy is run against what is expected, as a fluid, to find what it would cost.
//!
//! Input turns into buffered output by alpha and expansion, and output falls to the groups by fixed shares, to the
//! byte: the paper's simulation (section V), in steps of a buffer rather than of a record. Heads move as often as the
//! terms say for whatever is read or written in one piece, and once to remove a piece that was offloaded, as in the
//! rack. The processor works while drives read and write, and after they have read a run. Unlike the paper, the
//! simulation counts drive starts: a visit starts all drives of its group, and once their starts of the day
//! are used up ([`Terms::starts_per_day`]), everything waits for the next day, as `crate::budget` has it.

use super::accounting::Accounting;
use super::apportion::{Apportion, Expected};
use super::strategy::Step;
use super::terms::Terms;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::transfer_time;
use serde::{Deserialize, Serialize};

/// The day on which a job begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day {
    /// The part of it that has passed; less than a day.
    pub gone: Duration,
    /// Starts of each group's drives on it so far; none for groups beyond its end.
    pub starts: Vec<u32>,
}

/// The cost of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// From the first step to the last, without [`Cost::waiting`].
    pub time: Duration,
    /// The part of it in which groups were woken.
    pub switching: Duration,
    /// The part of it in which heads were moved.
    pub seeking: Duration,
    /// Wakes of another group; the first one counts.
    pub switches: u64,
    /// Bytes read: input, and runs read back.
    pub bytes_read: u64,
    /// Bytes written: delivered, as they are stored, and offloaded.
    pub bytes_written: u64,
    /// Those of them that were offloaded.
    pub bytes_offloaded: u64,
    /// The most that lay offloaded on any one group.
    pub peak_offloaded_bytes: u64,
    /// Starts of the drives whose group is woken most often.
    pub starts: u64,
    /// The time spent waiting for the next day, because the starts of one were used up.
    pub waiting: Duration,
}

impl Cost {
    /// From the first step to the last, waiting included.
    pub fn total(&self) -> Duration {
        self.time + self.waiting
    }
}

pub(super) const DAY: Duration = Duration::from_hours(24);

/// A run: the accounting as it stands, and the cost so far.
pub(super) struct Simulation<'a> {
    accounting: Accounting,
    terms: &'a Terms,
    apportion: Apportion,
    cost: Cost,
    /// The part of the first day that had passed.
    gone: Duration,
    /// The day it is now; 0 is the one on which the run begins.
    today: u64,
    /// Starts of each group's drives since it began.
    starts: Vec<u64>,
    /// Those of today.
    starts_today: Vec<u32>,
}

impl<'a> Simulation<'a> {
    /// A run that is about to begin. A byte of input becomes no more than fits into the memory, whatever is expected.
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

    /// Takes steps of `next` until it says that it is done.
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

    /// The accounting as it stands.
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

    /// Starts the drives of a group, tomorrow if they have had their starts of today. Where there are none at all, one
    /// a day is counted: what never ends has no length.
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

    /// Reads until as much is read as was asked, or the buffer is full.
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

    /// Writes bytes that the processor was at for so long.
    fn write(&mut self, bytes: u64, processing: Duration) {
        assert!(bytes > 0, "a strategy writes something");
        self.cost.seeking += self.terms.seek * self.terms.write_seeks;
        self.cost.time += transfer_time(bytes, self.terms.write_bytes_per_s).max(processing);
        self.cost.bytes_written += bytes;
    }
}
