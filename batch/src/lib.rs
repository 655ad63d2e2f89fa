//! Records in columns: how objects become batches, batches partitions, and partitions objects again.
//!
//! ```text
//! object's bytes -> Decoder -> batch -> Partitioner -> pieces by partition -> Encoder -> objects' bytes
//!                                                        |                       ^
//!                                                        +--> runs (Arrow IPC) --+   what is set aside meanwhile
//! ```
//!
//! There is no I/O: whoever uses it brings bytes, and decides what is held when. Nothing is known of racks.
//!
//! Records of CSV, NDJSON, lines and fixed records are carried as the bytes they came in. Only the fields that a
//! partitioner or filter asks for are read, as texts: no type is inferred that a later record could contradict, no
//! number is written in another way than it came, and no key of a JSON object is lost because the first one did not
//! have it.
//!
//! Invariants:
//! - Every record that the filter keeps is in exactly one partition, and in its objects once. [`Partitioner::tally`] is
//!   taken before rows are moved, [`Encoded::tally`] from the bytes that are handed out.
//! - The partition of a record depends on its values alone, and is the same in every version; of `value(column)` its
//!   name does, and its number on which values were met before.
//! - Held at once are: the batches that the user keeps, each counted by [`held_bytes`]; [`Decoder::held_bytes`]; and
//!   [`working_bytes`] beside them.

mod by;
mod compare;
mod csv;
mod decoder;
mod encode;
mod error;
mod fields;
mod filter;
mod format;
mod hash;
mod held;
mod number;
mod partitioner;
mod quotes;
mod sizes;
mod tally;
mod values;
mod words;

pub use by::{By, PARTITIONS_MAX, Spec, same_columns};
pub use decoder::{BATCH_BYTES_MAX, BATCH_BYTES_MIN, BATCH_ROWS_MAX, Decoder, Need};
pub use encode::{Encoded, Encoder, decode_run, encode, encode_run, read_back};
pub use error::Error;
pub use filter::Filter;
pub use format::{FIXED_RECORD_BYTES_MAX, Format};
pub use hash::{hash_rows, partition_of};
pub use held::{COLUMN_BYTES, held_bytes, working_bytes};
pub use partitioner::Partitioner;
pub use tally::{Tally, tally_of};
pub use words::Literal;

/// The guarded value. A panic elsewhere leaves sums and tables whole, so a poisoned lock is used on.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The column of CSV, NDJSON and fixed records that has them as they came.
const RECORD: &str = "record";
/// The column of plain lines.
const LINE: &str = "line";
/// The key of a schema's metadata with the header of a CSV.
const HEADER: &str = "larder.header";
/// The key of a schema's metadata with the compression of a Parquet file.
const CODEC: &str = "larder.codec";
