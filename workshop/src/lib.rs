//! The workshop: the server's own fast disk.
//!
//! - [`Staging`] holds staged files: a PUT is durable there before it is acknowledged (SOHO, section 3).
//! - [`PackPlan`] and [`PackSource`] make payloads for the rack out of staged files; a small object never gets its own
//!   blob.
//! - [`Spool`] holds recalls: bytes on their way from the drives of the rack to clients.
//!
//! Invariants:
//! - every access to the disk goes through [`disk::Drive`]; nothing here blocks a thread or needs more than one;
//! - capacity is counted before a file is created, so neither part ever exceeds its own; a file that does not fit is
//!   refused with [`Full`] and leaves nothing;
//! - a stream holds at most two blocks of [`BLOCK_BYTES`] and one table page of 64 KiB;
//! - every block has a checksum, and no byte is returned before its block was verified;
//! - a file is removed only when it has no readers any more.

// The errors are enums, and each variant documents its cause.
#![allow(clippy::missing_errors_doc)]

mod block;
mod checksum;
mod drain;
mod format;
mod names;
mod pack;
mod pack_format;
mod purpose;
mod recall;
mod run_mark;
mod slots;
mod small;
mod spool;
mod spool_entries;
mod spool_file;
mod staged_error;
mod staged_file;
mod staged_format;
mod staging;
#[cfg(test)]
mod testing;

pub use block::BLOCK_BYTES;
pub use checksum::{Checksummer, whole_checksum};
pub use drain::Full;
pub use format::FormatError;
pub use names::NamedSlot;
pub use pack::{CheckedBytes, HeldPack, MEMBERS_MAX, PackError, PackMember, PackPlan, PackSource, Sealed};
pub use pack_format::{
    IndexEntry, MemberAttributes, PACK_FOOTER_BYTES, PackFooter, PartDigests, Retention, RetentionMode, decode_footer,
    decode_index,
};
pub use purpose::{AheadBytes, AheadCounts, Purpose};
pub use recall::SpoolError;
pub use slots::{Leaving, Reservation, SlotHold, charged_for};
pub use small::{RecordEnd, Removal, SmallFiles, SmallRecord, SmallRecords};
pub use spool::{ReserveError, Spool, SpoolUsage, segments};
pub use spool_entries::ENTRIES_MAX;
pub use spool_file::{SpoolReader, SpoolWriter};
pub use staged_error::{ReadError, StageError};
pub use staged_file::{StagedFile, StagedReader, StagedWriter, reserved_for};
pub use staged_format::{Stamp, key_hash};
pub use staging::{Inventory, Staging, StagingUsage, Survey, UnknownFile, staged_file_name};
