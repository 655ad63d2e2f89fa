//! A multiset checksum of records, which depends neither on their order nor on their layout in memory.
//!
//! Invariants:
//! - The checksum of a union is the sum of the checksums.
//! - It detects accidental loss, duplication and change (it misses one in about 2^64), but not deliberate change.

use crate::error::Error;
use crate::hash::hash_rows;
use arrow_array::RecordBatch;
use std::ops::{Add, AddAssign, Sub};

/// The number of records, and the sum of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MultisetChecksum {
    /// The number of records.
    pub rows: u64,
    /// The sum of [`crate::hash_rows`] of all columns in order.
    pub sum: u128,
}

impl Add for MultisetChecksum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        // The sum of up to 2^64 hashes below 2^64 is below 2^128.
        Self { rows: self.rows + other.rows, sum: self.sum + other.sum }
    }
}

impl Sub for MultisetChecksum {
    type Output = Self;

    /// The checksum of the records that remain without `other`, whose records are all among them.
    fn sub(self, other: Self) -> Self {
        assert!(self.rows >= other.rows && self.sum >= other.sum, "what is taken away was there");
        Self { rows: self.rows - other.rows, sum: self.sum - other.sum }
    }
}

impl AddAssign for MultisetChecksum {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for MultisetChecksum {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Add::add)
    }
}

/// The multiset checksum of a batch.
///
/// # Errors
/// [`Error::NotAKey`] if it has a column of a type without a hash.
pub fn multiset_checksum(batch: &RecordBatch) -> Result<MultisetChecksum, Error> {
    let hashes = hash_rows(batch.columns(), batch.num_rows())?;
    Ok(MultisetChecksum { rows: hashes.len() as u64, sum: hashes.into_iter().map(u128::from).sum() })
}
