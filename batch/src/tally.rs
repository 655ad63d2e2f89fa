//! A checksum of records that does not depend on their order, nor on how they lie in memory.
//!
//! Invariants:
//! - The tally of two sets is the sum of theirs.
//! - It shows loss, doubling and change by accident (one chance in about 2^64 to miss it), not by design.

use crate::Error;
use crate::hash::hash_rows;
use arrow::array::RecordBatch;
use std::ops::{Add, AddAssign};

/// How many records there are, and the sum of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Records.
    pub rows: u64,
    /// The sum of [`crate::hash_rows`] of all columns in order.
    pub sum: u128,
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        // 2^64 rows of hashes below 2^64 are below 2^128.
        Self { rows: self.rows + other.rows, sum: self.sum + other.sum }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Add::add)
    }
}

/// The tally of a batch.
///
/// # Errors
/// [`Error::NotAKey`] if it has a column of a type without a hash.
pub fn tally_of(batch: &RecordBatch) -> Result<Tally, Error> {
    let hashes = hash_rows(batch.columns(), batch.num_rows())?;
    Ok(Tally { rows: hashes.len() as u64, sum: hashes.into_iter().map(u128::from).sum() })
}
