//! The description of a job: the places of its input, the expected places of its output, and its resources.

use super::accounting::{Accounting, Run};
use super::apportion::Expected;
use super::checkpoints::Checkpoints;
use super::choice::Choice;
use super::terms::{Alpha, Terms};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::{ClassId, GroupId, transfer_time};
use serde::{Deserialize, Serialize};

/// A class's part of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Part {
    /// The class.
    pub class: ClassId,
    /// The groups of the class that have input or get output, each once.
    pub groups: Vec<GroupId>,
    /// The input on each of the groups.
    pub input_bytes: Vec<u64>,
    /// The expected output of each of the groups, as weights; not all 0 over all parts.
    pub shares: Vec<u64>,
}

impl Part {
    /// The output expected of the class, as it is buffered. If none is expected, the shares of all groups are equal, in
    /// case there is output anyway.
    pub fn expected(&self, alpha: Alpha) -> Expected {
        let none = self.shares.iter().all(|share| *share == 0);
        let shares = if none { vec![1; self.groups.len()] } else { self.shares.clone() };
        Expected { alpha, shares }
    }
}

/// Bytes that are already offloaded when a job starts from a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Offloaded {
    /// The group that stores them.
    pub on: GroupId,
    /// Their destination group, of the same class.
    pub target: GroupId,
    /// Their number.
    pub bytes: u64,
    /// The number of pieces that hold them, none larger than the chunk limit.
    pub pieces: u64,
}

/// The sizes in which a world moves the bytes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sizes {
    /// The largest number of bytes that one write delivers, as they are buffered; above 0.
    pub object_bytes: u64,
    /// The output of a batch of input, as it is buffered; one read of a chunk takes as many batches as fit; above 0.
    pub batch_bytes: u64,
    /// The amount of input that is stored contiguously; above 0.
    pub together_bytes: u64,
}

impl Sizes {
    /// No bounds: each order moves all of its bytes.
    pub const UNBOUNDED: Self = Self { object_bytes: u64::MAX, batch_bytes: 1, together_bytes: u64::MAX };
}

/// A job, as the engine receives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobSpec {
    /// The classes' parts; at least one.
    pub parts: Vec<Part>,
    /// The memory of all classes together, for buffered output.
    pub memory_bytes: u64,
    /// The chunk limit: the largest output of a piece of input, and the largest piece of a run.
    pub chunk_bytes: u64,
    /// The sizes in which its world moves bytes.
    pub sizes: Sizes,
    /// The costs of the hardware.
    pub terms: Terms,
    /// The expected ratio of output to input, both as they are stored; [`Terms::expansion`] converts it to memory.
    pub alpha: Alpha,
    /// The strategy with which each part starts.
    pub choices: Vec<Choice>,
    /// True if the choices stay, regardless of measurements.
    pub fixed: bool,
    /// Modelled seconds per second of the host: the factor for limits on waiting for people and hosts.
    pub host_scale: u32,
    /// Runs that are already offloaded.
    pub offloaded: Vec<Offloaded>,
    /// The minimum time between two checkpoints; `Duration::MAX` turns checkpoints off.
    pub checkpoint_interval: Duration,
}

impl JobSpec {
    /// A job at the paper's terms, without bounds on pieces and without checkpoints.
    #[cfg(test)]
    pub(crate) fn plain(parts: Vec<Part>, memory_bytes: u64, chunk_bytes: u64) -> Self {
        Self {
            parts,
            memory_bytes,
            chunk_bytes,
            sizes: Sizes::UNBOUNDED,
            terms: Terms::PAPER,
            alpha: Alpha::ONE,
            choices: Vec::new(),
            fixed: false,
            host_scale: 1,
            offloaded: Vec::new(),
            checkpoint_interval: Duration::MAX,
        }
    }

    /// The least memory for a job in this number of classes. Each class needs room for the chunks that all classes may
    /// be reading at once, and the same again, so that there is something to write.
    pub fn least_memory_bytes(classes: usize, chunk_bytes: u64) -> u64 {
        let classes = classes as u64;
        2 * classes * classes * chunk_bytes
    }

    /// The same job with its strategies: `forced` in every class, to the end; otherwise in each class the one that
    /// costs least if output falls as expected. `None` if the memory is too small: see [`JobSpec::least_memory_bytes`].
    ///
    /// Simulates every candidate.
    pub fn chosen(mut self, forced: Option<Choice>) -> Option<Self> {
        if !self.has_memory() {
            return None;
        }
        self.fixed = forced.is_some();
        let cheapest = |(index, part): (usize, &Part)| {
            Choice::cheapest(&self.accounting(index), &self.terms, &part.expected(self.in_memory()))
        };
        self.choices = match forced {
            Some(forced) => vec![forced; self.parts.len()],
            None => self.parts.iter().enumerate().map(cheapest).collect(),
        };
        assert_eq!(self.choices.len(), self.parts.len(), "each part has a strategy");
        Some(self)
    }

    /// The bytes that a byte of input is expected to take in the buffer.
    pub(super) fn in_memory(&self) -> Alpha {
        self.alpha.in_memory(self.terms.expansion)
    }

    /// The schedule of checkpoints, if the job starts now.
    pub(crate) fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.checkpoint_interval, self.checkpoint_cost())
    }

    /// The longest time that a checkpoint takes: it writes all of the buffer, and reads it back later. The baseline in
    /// several classes also takes a round over the groups of each.
    fn checkpoint_cost(&self) -> Duration {
        let Terms { read_bytes_per_s, write_bytes_per_s, switch, .. } = self.terms;
        let several = self.parts.len() > 1;
        let rounds = self.parts.iter().zip(&self.choices).filter(|(_, choice)| several && **choice == Choice::Baseline);
        let switches = rounds.map(|(part, _)| part.groups.len()).max().unwrap_or(0);
        let bytes =
            transfer_time(self.memory_bytes, write_bytes_per_s) + transfer_time(self.memory_bytes, read_bytes_per_s);
        bytes + switch.saturating_mul(u32::try_from(switches).unwrap_or(u32::MAX))
    }

    /// True if the memory is enough for the job's classes.
    pub fn has_memory(&self) -> bool {
        self.memory_bytes >= Self::least_memory_bytes(self.parts.len(), self.chunk_bytes)
    }

    /// The accounting of a part before the job starts.
    pub(super) fn accounting(&self, index: usize) -> Accounting {
        let part = &self.parts[index];
        assert!(part.groups.len() == part.input_bytes.len() && part.groups.len() == part.shares.len());
        let mut accounting = Accounting::new(part.input_bytes.clone(), self.memory_of(index), self.in_memory())
            .with_chunk_limit(self.chunk_bytes);
        let number = |group| part.groups.iter().position(|known| *known == group);
        for run in &self.offloaded {
            if let (Some(on), Some(target)) = (number(run.on), number(run.target)) {
                accounting.lies_offloaded((on, target), Run { bytes: run.bytes, pieces: run.pieces });
            }
        }
        accounting
    }

    /// A part's share of the memory: the least for each class, and the rest in proportion to the output expected of the
    /// part.
    fn memory_of(&self, index: usize) -> u64 {
        let classes = self.parts.len() as u64;
        let least = Self::least_memory_bytes(self.parts.len(), self.chunk_bytes) / classes;
        assert!(self.has_memory(), "the memory is enough for its classes");
        let spare = self.memory_bytes - least * classes;
        let weight = |part: &Part| part.shares.iter().map(|share| u128::from(*share)).sum::<u128>();
        let whole: u128 = self.parts.iter().map(weight).sum();
        assert!(whole > 0, "output falls to some group");
        let share = least + (u128::from(spare) * weight(&self.parts[index]) / whole) as u64;
        assert!((least..=self.memory_bytes).contains(&share), "a part's share is a part of the memory");
        share
    }
}
