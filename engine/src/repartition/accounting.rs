//! The bytes of a job in one class: unread input, and output that is buffered, offloaded, or delivered to its
//! destination group.
//!
//! The buffer counts as full when less than the chunk limit is free: the most output that the smallest readable piece
//! of input may become, and the largest piece in which a run is read back.
//!
//! Invariants: buffered and reserved bytes never exceed the memory; all output is buffered, offloaded or delivered, and
//! counted once.

use super::terms::Alpha;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes that are offloaded on one group for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Their number.
    pub bytes: u64,
    /// The number of pieces that hold them; reading all of them takes as many seeks.
    pub pieces: u64,
}

/// The accounting of a job in one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accounting {
    memory_bytes: u64,
    chunk_bytes: u64,
    /// Free memory that is reserved for orders in hand.
    reserved: u64,
    prior: Alpha,
    awake: Option<usize>,
    input: Vec<u64>,
    input_left: u64,
    buffered: Vec<u64>,
    buffered_in_all: u64,
    /// `offloaded[on][target]`: the run stored on one group for another.
    offloaded: Vec<Vec<Run>>,
    /// Sums of the offloaded bytes, by the group that stores them.
    offloaded_on: Vec<u64>,
    offloaded_in_all: u64,
    delivered: Vec<u64>,
    delivered_in_all: u64,
    read: u64,
    produced: Vec<u64>,
    produced_in_all: u64,
}

impl Accounting {
    /// The accounting of a job before its first step, with the input on each group, the memory, and the alpha to expect
    /// until enough is measured. There must be a group, and memory.
    pub fn new(input: Vec<u64>, memory_bytes: u64, prior: Alpha) -> Self {
        assert!(!input.is_empty(), "a job needs a group");
        assert!(memory_bytes > 0, "a job needs memory");
        assert!(prior.input > 0, "alpha is output over some input");
        let groups = input.len();
        Self {
            memory_bytes,
            chunk_bytes: memory_bytes.div_ceil(1_000),
            reserved: 0,
            prior,
            awake: None,
            input_left: input.iter().sum(),
            input,
            buffered: vec![0; groups],
            buffered_in_all: 0,
            offloaded: vec![vec![Run::default(); groups]; groups],
            offloaded_on: vec![0; groups],
            offloaded_in_all: 0,
            delivered: vec![0; groups],
            delivered_in_all: 0,
            read: 0,
            produced: vec![0; groups],
            produced_in_all: 0,
        }
    }

    /// The same with this chunk limit, at most the memory and above 0; the default is a thousandth of the memory.
    #[must_use]
    pub fn with_chunk_limit(self, chunk_bytes: u64) -> Self {
        assert!((1..=self.memory_bytes).contains(&chunk_bytes), "a chunk fits into the memory");
        Self { chunk_bytes, ..self }
    }

    /// Records, before the job starts, output that an earlier run left offloaded on one group for another.
    pub(super) fn lies_offloaded(&mut self, (on, target): (usize, usize), run: Run) {
        assert_ne!(on, target, "that is its destination");
        assert!(self.read == 0 && run.pieces > 0 && run.bytes > 0, "it lies there before anything is read");
        self.produced[target] += run.bytes;
        self.produced_in_all += run.bytes;
        self.offloaded_in_all += run.bytes;
        self.offloaded_on[on] += run.bytes;
        let lies = &mut self.offloaded[on][target];
        lies.bytes += run.bytes;
        lies.pieces += run.pieces;
        self.assert_counted_once();
    }

    /// The chunk limit.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// K: the number of groups.
    pub fn groups(&self) -> usize {
        self.input.len()
    }

    /// S_M: the memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Memory that is neither filled nor reserved.
    pub fn free(&self) -> u64 {
        self.assert_fits();
        self.memory_bytes - self.buffered_in_all - self.reserved
    }

    /// Reserved memory.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Reserves memory; it must be free.
    pub fn reserve(&mut self, bytes: u64) {
        assert!(bytes <= self.free(), "no more is reserved than is free");
        self.reserved += bytes;
    }

    /// Releases reserved memory, which is free again or about to be filled.
    pub fn release(&mut self, bytes: u64) {
        assert!(bytes <= self.reserved, "no more is released than was reserved");
        self.reserved -= bytes;
    }

    /// The same accounting for a cost simulation: nothing is reserved, and a byte of input, the smallest piece there
    /// is, becomes at most a chunk.
    pub(super) fn for_simulation(self, alpha: Alpha) -> Self {
        assert!(alpha.input > 0, "alpha is output over some input");
        let byte_becomes = alpha.output.div_ceil(alpha.input).min(self.memory_bytes);
        Self { reserved: 0, chunk_bytes: self.chunk_bytes.max(byte_becomes), ..self }
    }

    /// The group that is awake, if one is.
    pub fn awake(&self) -> Option<usize> {
        self.awake
    }

    /// Unread input on a group.
    pub fn input(&self, group: usize) -> u64 {
        self.input[group]
    }

    /// Unread input on all groups.
    pub fn input_left(&self) -> u64 {
        self.input_left
    }

    /// The first group with input at or after `start`, counted around.
    pub(super) fn next_input(&self, start: usize) -> Option<usize> {
        assert!(start <= self.groups(), "it is counted around once");
        let around = (0..self.groups()).map(|step| (start + step) % self.groups());
        around.into_iter().find(|group| self.input[*group] > 0)
    }

    /// Output that is buffered for a group.
    pub fn buffered(&self, target: usize) -> u64 {
        self.buffered[target]
    }

    /// Output that is buffered for all groups.
    pub fn buffered_in_all(&self) -> u64 {
        self.buffered_in_all
    }

    /// The run that is offloaded on one group for another.
    pub fn offloaded(&self, on: usize, target: usize) -> Run {
        self.offloaded[on][target]
    }

    /// Bytes that are offloaded on a group for others.
    pub fn offloaded_on(&self, on: usize) -> u64 {
        self.offloaded_on[on]
    }

    /// Bytes that are offloaded on any group.
    pub fn offloaded_in_all(&self) -> u64 {
        self.offloaded_in_all
    }

    /// Output that was delivered to a group.
    pub fn delivered(&self, group: usize) -> u64 {
        self.delivered[group]
    }

    /// True if all input is read and all output is delivered.
    pub fn done(&self) -> bool {
        let done = self.input_left == 0 && self.buffered_in_all == 0 && self.offloaded_in_all == 0;
        assert!(!done || self.delivered_in_all == self.produced_in_all, "a job ends with all output delivered");
        done
    }

    /// Output over input: as measured, once a hundredth of the memory's worth is read; as expected until then.
    pub fn alpha(&self) -> Alpha {
        if self.read > self.memory_bytes / 100 && self.read > 0 {
            Alpha { output: self.produced_in_all, input: self.read }
        } else {
            self.prior
        }
    }

    /// All output so far, by destination group.
    pub fn produced(&self) -> &[u64] {
        &self.produced
    }

    /// Input read so far.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Input that can be read on a group until `free` bytes of memory are full. At least 1 byte if there is input and
    /// room for a chunk.
    pub fn readable(&self, group: usize, free: u64) -> u64 {
        assert!(free <= self.memory_bytes, "no more is free than there is");
        if free < self.chunk_bytes {
            return 0;
        }
        self.input[group].min(self.alpha().input_for(free).max(1))
    }

    /// True if there is no room for the output of a read.
    pub fn full(&self) -> bool {
        self.free() < self.chunk_bytes
    }

    /// Bytes of a run that can be read back now; 0 unless a piece fits.
    pub fn refillable(&self, on: usize, target: usize) -> u64 {
        let run = self.offloaded[on][target].bytes;
        if self.free() < run.min(self.chunk_bytes) { 0 } else { run.min(self.free()) }
    }

    /// Records the group that is awake, for any reason, or none.
    pub fn set_awake(&mut self, group: Option<usize>) {
        assert!(group.is_none_or(|group| group < self.groups()), "no such group");
        self.awake = group;
    }

    /// Input was read on a group and became this output for each group.
    pub fn was_read(&mut self, group: usize, bytes: u64, output: &[u64]) {
        assert!(bytes <= self.input[group], "more was read than there is");
        assert_eq!(output.len(), self.groups(), "output is stated for every group");
        self.input[group] -= bytes;
        self.input_left -= bytes;
        self.read += bytes;
        for (target, bytes) in output.iter().enumerate() {
            self.arrived(target, *bytes);
        }
    }

    /// Output for a group was buffered; its input may have been read on any group.
    pub fn arrived(&mut self, target: usize, bytes: u64) {
        self.buffered[target] += bytes;
        self.produced[target] += bytes;
        self.buffered_in_all += bytes;
        self.produced_in_all += bytes;
        self.assert_fits();
    }

    fn assert_fits(&self) {
        assert!(self.buffered_in_all + self.reserved <= self.memory_bytes, "the buffer holds more than it may");
    }

    /// Asserts that all output is in exactly one place.
    fn assert_counted_once(&self) {
        let placed = self.buffered_in_all + self.offloaded_in_all + self.delivered_in_all;
        assert_eq!(placed, self.produced_in_all, "output is buffered, offloaded or delivered, and counted once");
    }

    /// Input on a group was lost before it was read: it becomes no output, and does not count for alpha.
    pub fn was_lost(&mut self, group: usize, bytes: u64) {
        assert!(bytes <= self.input[group], "more is gone than there was");
        self.input[group] -= bytes;
        self.input_left -= bytes;
    }

    /// Bytes that were buffered for a group were written to it.
    pub fn was_delivered(&mut self, group: usize, bytes: u64) {
        assert!(bytes <= self.buffered[group], "more was written than was buffered");
        self.buffered[group] -= bytes;
        self.buffered_in_all -= bytes;
        self.delivered[group] += bytes;
        self.delivered_in_all += bytes;
        self.assert_counted_once();
    }

    /// Bytes that were buffered for a target were written to another group, in one piece.
    pub fn was_offloaded(&mut self, on: usize, target: usize, bytes: u64) {
        assert_ne!(on, target, "that is its destination");
        assert!(bytes <= self.buffered[target], "more was written than was buffered");
        if bytes == 0 {
            return;
        }
        self.buffered[target] -= bytes;
        self.buffered_in_all -= bytes;
        self.offloaded_in_all += bytes;
        self.offloaded_on[on] += bytes;
        let run = &mut self.offloaded[on][target];
        run.bytes += bytes;
        run.pieces += 1;
        self.assert_counted_once();
    }

    /// Bytes of a run are buffered again; returns the number of pieces that held them.
    pub fn was_refilled(&mut self, on: usize, target: usize, bytes: u64) -> u64 {
        let run = &mut self.offloaded[on][target];
        assert!(bytes <= run.bytes, "more was read back than was offloaded");
        let pieces = if bytes == run.bytes { run.pieces } else { pieces_of(*run, bytes) };
        run.bytes -= bytes;
        run.pieces -= pieces.min(run.pieces);
        if run.bytes > 0 {
            run.pieces = run.pieces.max(1);
        }
        self.offloaded_in_all -= bytes;
        self.offloaded_on[on] -= bytes;
        self.buffered[target] += bytes;
        self.buffered_in_all += bytes;
        self.assert_fits();
        self.assert_counted_once();
        pieces.max(1)
    }
}

/// The number of pieces that hold the first `bytes` of a run, if all its pieces have one size.
fn pieces_of(run: Run, bytes: u64) -> u64 {
    assert!(bytes <= run.bytes, "a part is no more than the whole");
    let pieces = (u128::from(bytes) * u128::from(run.pieces)).div_ceil(u128::from(run.bytes));
    pieces as u64
}
