//! The output of input that is simulated as a fluid: each group's bytes of it, to the byte.

use super::terms::Alpha;
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The output to expect of input that is still to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Output over input.
    pub alpha: Alpha,
    /// The groups' shares of the output, as weights; not all 0.
    pub shares: Vec<u64>,
}

impl Expected {
    /// Output with the same share for each group.
    pub fn uniform(groups: usize, alpha: Alpha) -> Self {
        Self { alpha, shares: vec![1; groups] }
    }
}

/// Apportions output to groups: alpha and the shares hold for all input read so far, as closely as whole bytes can.
#[derive(Clone, Debug)]
pub struct Apportion {
    alpha: Alpha,
    shares: Vec<u64>,
    whole: u128,
    input: u64,
    /// The target of the last byte left over by rounding.
    turn: usize,
    given: Vec<u64>,
}

impl Apportion {
    /// The apportioning before any input is read.
    pub fn new(expected: &Expected) -> Self {
        let whole: u128 = expected.shares.iter().map(|share| u128::from(*share)).sum();
        assert!(whole > 0, "output falls to some group");
        let groups = expected.shares.len();
        let (alpha, shares) = (expected.alpha, expected.shares.clone());
        Self { alpha, shares, whole, input: 0, turn: 0, given: vec![0; groups] }
    }

    /// The same with at most `most_bytes` of output from any byte of input.
    #[must_use]
    pub(super) fn with_output_at_most(mut self, most_bytes: u64) -> Self {
        let most = u128::from(most_bytes) * u128::from(self.alpha.input);
        self.alpha.output = u64::try_from(most).unwrap_or(u64::MAX).min(self.alpha.output);
        self
    }

    /// The most input whose output fits into this number of bytes.
    pub fn input_for(&self, output_bytes: u64) -> u64 {
        self.alpha.input_for(output_bytes)
    }

    /// The output of this number of additional bytes of input, by group. Bytes left over by rounding go to one target
    /// after the other.
    pub fn output_of(&mut self, input_bytes: u64) -> &[u64] {
        let before = self.alpha.output_of(self.input);
        self.input += input_bytes;
        let output = self.alpha.output_of(self.input) - before;
        let mut left = output;
        for (given, share) in self.given.iter_mut().zip(&self.shares) {
            *given = (u128::from(output) * u128::from(*share) / self.whole) as u64;
            left -= *given;
        }
        assert!(left <= self.shares.len() as u64, "rounding leaves less than a byte a group");
        while left > 0 {
            self.turn = (self.turn + 1) % self.shares.len();
            if self.shares[self.turn] > 0 {
                self.given[self.turn] += 1;
                left -= 1;
            }
        }
        assert_eq!(self.given.iter().sum::<u64>(), output, "output is apportioned to the byte");
        &self.given
    }
}
