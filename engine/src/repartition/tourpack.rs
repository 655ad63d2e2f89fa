//! TourPack: carry output that will be delivered soon, offload the rest. Ours; not in the paper.
//!
//! The groups that still have input are toured in a fixed order. Output for the next `window` groups of the tour stays
//! in the buffer until they are reached; output for all others is offloaded at once, and delivered at the end as in
//! FillPack. A byte that stays for h hops keeps memory from h hops' worth of other bytes, which costs `h T_sw / S_M`. A
//! byte that is offloaded is written and read once more and stays for one hop, which costs `1/w + 1/r + T_sw / S_M`. So
//! bytes for a group that is h hops away are carried if `(h - 1) T_sw / S_M` is below `1/w + 1/r`;
//! [`TourPack::fitting`] derives the window from that. With a window of 0 this is FillPack, with one of K - 1 it is
//! BuffPack on a tour.
//!
//! [`lower_bound_s`](super::formulas::lower_bound_s) shows how little room for improvement is left.

use super::accounting::Accounting;
use super::fillpack::transfer_phase;
use super::offpack::visit_input;
use super::strategy::{Step, Strategy};
use super::terms::Terms;
use model::transfer_time;

/// Carries output for the next groups of a tour, offloads the rest.
#[derive(Clone, Copy, Debug)]
pub struct TourPack {
    window: usize,
    /// True while a buffer that was full is being written out, except for carried output.
    emptying: bool,
    /// The current visit.
    stay: Option<Stay>,
}

/// A visit, and its yield so far.
#[derive(Clone, Copy, Debug)]
struct Stay {
    group: usize,
    /// The group's input when it was entered.
    input: u64,
    /// The number of times that the buffer was filled and written out since.
    fills: u32,
}

impl TourPack {
    /// Carries for the next `window` groups of the tour.
    pub fn new(window: usize) -> Self {
        Self { window, emptying: false, stay: None }
    }

    /// The window that suits these terms and this much memory; at most K - 1.
    pub fn fitting(terms: &Terms, memory_bytes: u64, groups: usize) -> Self {
        let twice =
            transfer_time(memory_bytes, terms.write_bytes_per_s) + transfer_time(memory_bytes, terms.read_bytes_per_s);
        let hops = twice.as_nanos().checked_div(terms.switch.as_nanos()).unwrap_or(u128::MAX);
        let window = usize::try_from(hops).unwrap_or(usize::MAX).saturating_add(1);
        let window = window.min(groups.saturating_sub(1));
        assert!(window < groups.max(1), "it carries for other groups only");
        Self::new(window)
    }

    /// The number of groups whose output is carried.
    pub fn window(self) -> usize {
        self.window
    }
}

impl Strategy for TourPack {
    fn next(&mut self, accounting: &Accounting, terms: &Terms) -> Step {
        if accounting.input_left() == 0 {
            return transfer_phase(accounting);
        }
        let Some(awake) = accounting.awake() else { return visit_input(accounting, 0) };
        if self.stay.is_none_or(|stay| stay.group != awake) {
            self.stay = Some(Stay { group: awake, input: accounting.input(awake), fills: 0 });
        }
        if self.emptying {
            if let Some(step) = self.empty(accounting, awake) {
                return step;
            }
            self.emptying = false;
            return self.stay_or_go(accounting, awake, terms);
        }
        if accounting.full() {
            self.emptying = true;
            return self.next(accounting, terms);
        }
        match accounting.readable(awake, accounting.free()) {
            0 => leave(accounting, awake),
            bytes => Step::Read { bytes },
        }
    }
}

impl TourPack {
    /// Writes output that is not to be carried; none if all buffered output is to be carried.
    fn empty(self, accounting: &Accounting, awake: usize) -> Option<Step> {
        if accounting.buffered(awake) > 0 {
            return Some(Step::Deliver);
        }
        let mut targets = (0..accounting.groups()).filter(|target| accounting.buffered(*target) > 0);
        let target = targets.find(|target| !self.carries(accounting, awake, *target))?;
        Some(Step::Offload { target })
    }

    /// True if `target` is among the next groups of the tour.
    fn carries(self, accounting: &Accounting, awake: usize, target: usize) -> bool {
        let groups = accounting.groups();
        assert_ne!(awake, target, "what is for this group is delivered");
        let distance = (target + groups - awake) % groups;
        let between = (1..distance).filter(|step| accounting.input((awake + step) % groups) > 0).count();
        accounting.input(target) > 0 && between < self.window
    }

    /// Decides whether to read more here, after the buffer was written out. Carried output stays in it, so each fill of
    /// a visit is smaller than the one before and costs as many seeks. One more is worth it while a byte of it costs
    /// less than a byte of the visit so far, switch included, or if it is the last that can be read here.
    fn stay_or_go(&mut self, accounting: &Accounting, awake: usize, terms: &Terms) -> Step {
        let bytes = accounting.readable(awake, accounting.free());
        let next = accounting.next_input(awake + 1).filter(|next| *next != awake);
        let Some(next) = next else { return Step::Read { bytes } };
        let Some(stay) = &mut self.stay else { return Step::Visit { group: next } };
        assert!(stay.group == awake && stay.input >= accounting.input(awake), "input does not grow in a visit");
        let read = stay.input - accounting.input(awake);
        stay.fills += 1;
        let fills = u128::from(stay.fills);
        let seeks = self.seeks_of_a_fill(accounting, awake) * terms.seek.as_nanos();
        let so_far = terms.switch.as_nanos() + fills * seeks;
        let worth = u128::from(bytes) * so_far >= u128::from(read) * seeks || bytes == accounting.input(awake);
        if bytes > 0 && worth { Step::Read { bytes } } else { Step::Visit { group: next } }
    }

    /// Seeks for a fill: one to read, one to deliver, and three for each piece that is offloaded, read back and
    /// removed.
    fn seeks_of_a_fill(self, accounting: &Accounting, awake: usize) -> u128 {
        let offloads = |target: &usize| {
            *target != awake && accounting.produced()[*target] > 0 && !self.carries(accounting, awake, *target)
        };
        2 + 3 * (0..accounting.groups()).filter(offloads).count() as u128
    }
}

/// Leaves a group that has no input left: the bytes buffered for it are written first.
fn leave(accounting: &Accounting, awake: usize) -> Step {
    if accounting.buffered(awake) > 0 { Step::Deliver } else { visit_input(accounting, awake) }
}
