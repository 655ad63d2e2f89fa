//! What a batch holds of the memory.
//!
//! Invariants:
//! - A buffer counts with its whole allocation, and once in a batch, however many arrays look into it.
//! - Batches of [`crate::Partitioner::split`] share nothing with each other or with the batch they were split from, so
//!   what several of them hold is the sum, and dropping one gives back what it counts.

use crate::BATCH_BYTES_MAX;
use arrow::array::{Array, ArrayData, RecordBatch};

/// An array beside its buffers: itself, its type, counters of references, what the allocator adds. Measured as 200 to
/// 330 bytes; a test holds it against the allocator.
const ARRAY_BYTES: u64 = 400;

/// Batches on their way: pieces gathered, joined, filtered, taken, decoded again as a proof.
const BATCHES_AT_WORK: u64 = 6;
/// A page and a dictionary of a column, packed and not, while it is read and while it is written.
pub const COLUMN_BYTES: u64 = 6 << 20;

/// The bytes that are given back when this batch is dropped, if nobody else looks into its buffers: never
/// more than 5 % too few.
pub fn held_bytes(batch: &RecordBatch) -> u64 {
    let mut seen = Vec::new();
    let arrays: u64 = batch.columns().iter().map(|column| of_data(&column.to_data(), &mut seen)).sum();
    size_of::<RecordBatch>() as u64 + arrays
}

/// What decoder, partitioner and encoder hold at most beside [`held_bytes`] of batches and
/// [`crate::Decoder::held_bytes`], for batches of `columns` columns and objects of `object_bytes`: some batches on
/// their way, an object and its copy as it grows, and for each column of Parquet its pages and dictionary on both
/// sides.
pub fn working_bytes(columns: usize, object_bytes: u64) -> u64 {
    BATCHES_AT_WORK * BATCH_BYTES_MAX + 2 * object_bytes + columns as u64 * COLUMN_BYTES
}

fn of_data(data: &ArrayData, seen: &mut Vec<usize>) -> u64 {
    let nulls = data.nulls().map(arrow::buffer::NullBuffer::buffer);
    let buffers = data.buffers().iter().chain(nulls).map(|buffer| {
        let place = buffer.data_ptr().as_ptr() as usize;
        if seen.contains(&place) {
            0
        } else {
            seen.push(place);
            buffer.capacity() as u64
        }
    });
    let own: u64 = buffers.sum();
    ARRAY_BYTES + own + data.child_data().iter().map(|child| of_data(child, seen)).sum::<u64>()
}
