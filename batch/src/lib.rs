//! Decodes objects into batches of records, splits batches into partitions, and encodes partitions as objects.
//!
//! ```text
//! object's bytes -> Decoder -> batch -> Partitioner -> pieces by partition -> Encoder -> objects' bytes
//!                                                        |                       ^
//!                                                        +--> runs (Arrow IPC) --+   offloaded pieces
//! ```
//!
//! There is no I/O: the caller provides bytes, and decides how many batches are held. Nothing here knows about racks.
//!
//! Records of CSV, NDJSON, lines and fixed records are carried byte for byte. Only the fields that a partitioner or
//! filter needs are read, as texts. So no type is inferred that a later record could contradict, numbers keep their
//! spelling, and no key of a JSON object is lost because the first object lacks it.
//!
//! Invariants:
//! - Every record that passes the filter is in exactly one partition, and once in its objects. The checksum
//!   [`Partitioner::tally`] is taken before rows are moved, [`Encoded::tally`] from the bytes that are returned.
//! - The partition of a record depends on its values alone, and is the same in every version. With `value(column)` this
//!   holds for the partition's name; its number depends on the order in which values are found.
//! - Memory is held for the batches that the caller stores, each counted by [`held_bytes`], for
//!   [`Decoder::held_bytes`], and for [`working_bytes`].

mod by;
mod compare;
mod conform;
mod csv;
mod decoder;
mod encode;
mod error;
mod expression;
mod fields;
mod filter;
mod format;
mod hash;
mod held;
mod hint;
mod limits;
mod notes;
mod number;
mod partitioner;
mod schema_bytes;
mod sizes;
mod tally;
mod values;

pub use by::{By, PARTITIONS_MAX, Spec, same_columns};
pub use conform::conform;
pub use decoder::{Decoder, Need, batch_bytes};
pub use encode::{Encoded, Encoder, decode_run, read_back};
pub use error::Error;
pub use expression::Literal;
pub use filter::Filter;
pub use format::{FIXED_RECORD_BYTES_MAX, Format, UnknownFormat};
pub use hash::{hash_rows, partition_of};
pub use held::{COLUMN_BYTES, held_bytes, working_bytes};
pub use limits::{BATCH_BYTES_MAX, BATCH_BYTES_MIN, BATCH_ROWS_MAX};
pub use partitioner::{Learned, Partitioner};
pub use schema_bytes::{schema_from_bytes, schema_to_bytes};
pub use tally::{MultisetChecksum, multiset_checksum};
