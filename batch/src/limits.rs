//! The sizes of batches.

/// The largest batch, in bytes.
pub const BATCH_BYTES_MAX: u64 = 4 << 20;
/// The smallest batch, and so the smallest buffer.
pub const BATCH_BYTES_MIN: u64 = 64 << 10;
/// The maximum number of rows of a batch, which bounds the data stored for each row in addition to its bytes.
pub const BATCH_ROWS_MAX: u64 = 64 << 10;

/// A length in Arrow's type for lengths.
#[allow(clippy::cast_possible_wrap)]
pub(crate) fn signed(bytes: usize) -> i32 {
    assert!(bytes < 1 << 31, "records and batches are below 2 GiB");
    bytes as i32
}
