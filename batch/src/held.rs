//! The memory that a batch holds.
//!
//! Invariants:
//! - A buffer counts with its whole allocation, and once per batch, regardless of the number of arrays that refer to
//!   it.
//! - Batches of [`crate::Partitioner::split`] share no memory with each other or with their source batch. So the memory
//!   of several batches is their sum, and dropping one frees the bytes that it counts.

use crate::limits::BATCH_BYTES_MAX;
use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;

/// The memory of an array without its buffers: itself, its type, reference counts, and the allocator's overhead. 200 to
/// 330 bytes were measured; a test compares it with the allocator's count.
const ARRAY_BYTES: u64 = 400;

/// Batches being processed: pieces that are gathered, joined, filtered, taken, and decoded again for verification.
const BATCHES_AT_WORK: u64 = 6;
/// A page and a dictionary of a column, compressed and not, during reading and during writing.
pub const COLUMN_BYTES: u64 = 6 << 20;

/// The bytes freed by dropping this batch, if nothing else refers to its buffers: at most 5 % too few.
pub fn held_bytes(batch: &RecordBatch) -> u64 {
    let mut seen = Vec::new();
    let arrays: u64 = batch.columns().iter().map(|column| of_data(&column.to_data(), &mut seen)).sum();
    size_of::<RecordBatch>() as u64 + arrays
}

/// The maximum memory of decoder, partitioner and encoder in addition to [`held_bytes`] of batches and
/// [`crate::Decoder::held_bytes`], for batches of `columns` columns and objects of `object_bytes`: some batches being
/// processed, an object and its copy as it grows, and for each column of Parquet its pages and dictionary, both while
/// reading and while writing.
pub fn working_bytes(columns: usize, object_bytes: u64) -> u64 {
    BATCHES_AT_WORK * BATCH_BYTES_MAX + 2 * object_bytes + columns as u64 * COLUMN_BYTES
}

fn of_data(data: &ArrayData, seen: &mut Vec<usize>) -> u64 {
    let nulls = data.nulls().map(arrow_buffer::NullBuffer::buffer);
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
