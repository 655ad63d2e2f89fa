//! What a job knows of its bytes: what is still to be read, what is buffered, what lies offloaded, what is home.
//!
//! The buffer counts as full when less is free than the grain: the most that the smallest piece of input the world can
//! read may become, and the largest piece that a run is read back in.
//!
//! Invariants: buffered and promised bytes never exceed the memory; what came out of the input is what is buffered,
//! offloaded and home.

use super::Alpha;
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Bytes that lie offloaded on one group for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// How many.
    pub bytes: u64,
    /// In how many pieces they lie: reading all of it seeks so often.
    pub pieces: u64,
}

/// The books of a job in one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    memory_bytes: u64,
    grain_bytes: u64,
    /// Room that is not free, since somebody is about to fill it.
    promised: u64,
    prior: Alpha,
    awake: Option<usize>,
    input: Vec<u64>,
    input_left: u64,
    buffered: Vec<u64>,
    buffered_in_all: u64,
    /// `offloaded[on][target]`.
    offloaded: Vec<Vec<Run>>,
    /// Their sums, by where they lie.
    offloaded_on: Vec<u64>,
    offloaded_in_all: u64,
    home: Vec<u64>,
    read: u64,
    produced: Vec<u64>,
    produced_in_all: u64,
}

impl Books {
    /// A job that is about to begin: so many bytes of input on each group, so much memory, and the alpha that is
    /// expected until some was measured. There must be a group, and memory.
    pub fn new(input: Vec<u64>, memory_bytes: u64, prior: Alpha) -> Self {
        assert!(!input.is_empty(), "a job needs a group");
        assert!(memory_bytes > 0, "a job needs memory");
        assert!(prior.input > 0, "alpha is output over some input");
        let groups = input.len();
        Self {
            memory_bytes,
            grain_bytes: memory_bytes.div_ceil(1_000),
            promised: 0,
            prior,
            awake: None,
            input_left: input.iter().sum(),
            input,
            buffered: vec![0; groups],
            buffered_in_all: 0,
            offloaded: vec![vec![Run::default(); groups]; groups],
            offloaded_on: vec![0; groups],
            offloaded_in_all: 0,
            home: vec![0; groups],
            read: 0,
            produced: vec![0; groups],
            produced_in_all: 0,
        }
    }

    /// The same, read in pieces that may become so many bytes; without this, in pieces of a thousandth of the memory.
    /// At most the memory, and above 0.
    #[must_use]
    pub fn with_grain(self, grain_bytes: u64) -> Self {
        assert!((1..=self.memory_bytes).contains(&grain_bytes), "a piece fits into the memory");
        Self { grain_bytes, ..self }
    }

    /// The grain.
    pub fn grain_bytes(&self) -> u64 {
        self.grain_bytes
    }

    /// K: how many groups there are.
    pub fn groups(&self) -> usize {
        self.input.len()
    }

    /// S_M: how much may be buffered.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// How much of it is free.
    pub fn free(&self) -> u64 {
        self.memory_bytes - self.buffered_in_all - self.promised
    }

    /// Room that is promised.
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// So much more room is promised. There must be so much.
    pub fn promise(&mut self, bytes: u64) {
        assert!(bytes <= self.free(), "no more is promised than is free");
        self.promised += bytes;
    }

    /// So much of what was promised is free again, or about to be filled.
    pub fn redeem(&mut self, bytes: u64) {
        assert!(bytes <= self.promised, "no more is redeemed than was promised");
        self.promised -= bytes;
    }

    /// The same books for a rehearsal: nothing is under way, and a byte of input, which is the smallest piece there,
    /// becomes a grain at most.
    pub(super) fn for_rehearsal(self, alpha: Alpha) -> Self {
        let byte_becomes = alpha.output.div_ceil(alpha.input).min(self.memory_bytes);
        Self { promised: 0, grain_bytes: self.grain_bytes.max(byte_becomes), ..self }
    }

    /// The group that is awake, if one is.
    pub fn awake(&self) -> Option<usize> {
        self.awake
    }

    /// Input that is still to be read on a group.
    pub fn input(&self, group: usize) -> u64 {
        self.input[group]
    }

    /// Input that is still to be read.
    pub fn input_left(&self) -> u64 {
        self.input_left
    }

    /// Output that is buffered for a group.
    pub fn buffered(&self, target: usize) -> u64 {
        self.buffered[target]
    }

    /// Output that is buffered.
    pub fn buffered_in_all(&self) -> u64 {
        self.buffered_in_all
    }

    /// What lies offloaded on one group for another.
    pub fn offloaded(&self, on: usize, target: usize) -> Run {
        self.offloaded[on][target]
    }

    /// Bytes that lie offloaded on a group for others.
    pub fn offloaded_on(&self, on: usize) -> u64 {
        self.offloaded_on[on]
    }

    /// Bytes that lie offloaded.
    pub fn offloaded_in_all(&self) -> u64 {
        self.offloaded_in_all
    }

    /// Output that is home on a group.
    pub fn home(&self, group: usize) -> u64 {
        self.home[group]
    }

    /// Whether everything is home.
    pub fn done(&self) -> bool {
        self.input_left == 0 && self.buffered_in_all == 0 && self.offloaded_in_all == 0
    }

    /// Output over input: as measured, once a hundredth of the buffer was read; as expected until then.
    pub fn alpha(&self) -> Alpha {
        if self.read > self.memory_bytes / 100 && self.read > 0 {
            Alpha { output: self.produced_in_all, input: self.read }
        } else {
            self.prior
        }
    }

    /// How much output there was for each group so far.
    pub fn produced(&self) -> &[u64] {
        &self.produced
    }

    /// Input that can be read on a group until the buffer is full, given so much free memory. At least 1 byte if there
    /// is input and room for a piece.
    pub fn readable(&self, group: usize, free: u64) -> u64 {
        if free < self.grain_bytes {
            return 0;
        }
        self.input[group].min(self.alpha().input_for(free).max(1))
    }

    /// Whether there is no room to read into.
    pub fn full(&self) -> bool {
        self.free() < self.grain_bytes
    }

    /// How much of what lies offloaded on a group for another can be read back now: nothing, unless a piece fits.
    pub fn refillable(&self, on: usize, target: usize) -> u64 {
        let run = self.offloaded[on][target].bytes;
        if self.free() < run.min(self.grain_bytes) { 0 } else { run.min(self.free()) }
    }

    /// A group is awake, whoever woke it.
    pub fn woke(&mut self, group: usize) {
        assert!(group < self.groups(), "no such group");
        self.awake = Some(group);
    }

    /// No group is awake.
    pub fn slept(&mut self) {
        self.awake = None;
    }

    /// So many bytes of input were read on a group, and became so many bytes for each group.
    pub fn was_read(&mut self, group: usize, bytes: u64, output: &[u64]) {
        assert!(bytes <= self.input[group], "more was read than there is");
        assert_eq!(output.len(), self.groups(), "output is told for every group");
        self.input[group] -= bytes;
        self.input_left -= bytes;
        self.read += bytes;
        for (target, bytes) in output.iter().enumerate() {
            self.arrived(target, *bytes);
        }
    }

    /// So many bytes of output for a group are buffered, wherever they were read.
    pub fn arrived(&mut self, target: usize, bytes: u64) {
        self.buffered[target] += bytes;
        self.produced[target] += bytes;
        self.buffered_in_all += bytes;
        self.produced_in_all += bytes;
        self.assert_fits();
    }

    fn assert_fits(&self) {
        assert!(self.buffered_in_all + self.promised <= self.memory_bytes, "the buffer holds more than it may");
    }

    /// So many bytes of input on a group are gone before they were read: they come to nothing.
    pub fn was_lost(&mut self, group: usize, bytes: u64) {
        assert!(bytes <= self.input[group], "more is gone than there was");
        self.input[group] -= bytes;
        self.input_left -= bytes;
    }

    /// So many of the bytes that are buffered for a group were written to it.
    pub fn was_brought_home(&mut self, group: usize, bytes: u64) {
        assert!(bytes <= self.buffered[group], "more was written than was buffered");
        self.buffered[group] -= bytes;
        self.buffered_in_all -= bytes;
        self.home[group] += bytes;
    }

    /// So many of the bytes that are buffered for a target were written to another group, in one piece.
    pub fn was_offloaded(&mut self, on: usize, target: usize, bytes: u64) {
        assert_ne!(on, target, "that is its home");
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
    }

    /// So many bytes that lay offloaded on a group for another are buffered again; tells in how many pieces they lay.
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
        pieces.max(1)
    }
}

/// In how many pieces the first `bytes` of a run lie, if all its pieces are alike.
fn pieces_of(run: Run, bytes: u64) -> u64 {
    let pieces = (u128::from(bytes) * u128::from(run.pieces)).div_ceil(u128::from(run.bytes));
    pieces as u64
}
