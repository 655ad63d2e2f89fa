//! The result of a decoder's step.

use arrow_array::RecordBatch;
use std::ops::Range;

/// The next thing that a decoder needs or has.
#[derive(Debug, Clone, PartialEq)]
pub enum Need {
    /// It needs exactly these bytes of the object, by [`crate::Decoder::give`].
    Bytes(Range<u64>),
    /// It has records.
    Batch(RecordBatch),
    /// There are no more records.
    End,
}
