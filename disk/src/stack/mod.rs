//! Stripe stacks: the format of a blob on k + r drives (Pelican, section 3).
//!
//! - [`StackWriter`] writes a blob as k + r stacks, one to each drive, and syncs them.
//! - [`StackReader`] reads any range of it, checks every fragment it reads, rebuilds and repairs bad ones.
//! - [`rebuild`] regenerates one stack from the others, [`copy`] copies one, [`look`] finds one at its former place,
//!   [`verify_stack`] reads one back.
//! - [`verify`] reads back a blob that was just written; [`remove`] removes exactly that blob.
//! - [`pass_over`] takes the time of a read, and delivers nothing.
//! - [`SyntheticDrive`] holds every stack of blobs that are a function of their ids.
//! - [`inspect`] finds the flaws of the stacks of a blob, and changes nothing; [`scrub`] repairs what it can in place.
//! - [`replace_with_spare`] puts a stack that was regenerated beside a damaged one in its place.
//! - [`stack_bytes`] is the length that a stack will have; [`Header`], [`ChecksumPage`] and [`Footer`] are its blocks.
//!
//! Invariants: no transfer holds more than 2 x (k + r) x [`REQUEST_BYTES`](crate::REQUEST_BYTES) in buffers (for
//! fragments of up to 1 MiB; a rebuild holds a stripe and a request more); bytes are delivered only if their fragment's
//! checksum matches, or if they were rebuilt from k fragments whose checksums match; a complete stack is overwritten
//! only to repair it.

mod fetch;
mod flaw;
mod format;
mod inspect;
mod outcome;
mod pass;
mod read;
mod rebuild;
mod remove;
mod synthetic;
mod verify;
mod write;

pub use flaw::Flaw;
pub use format::{
    Blob, ChecksumPage, Footer, Header, Provenance, RUN_STRIPES, spare_name, spare_of, stack_bytes, stack_name,
    stack_of,
};
pub use inspect::{Inspection, ScrubFindings, inspect, inspect_deeply, scrub};
pub use outcome::{Report, StackError, StackOutcome};
pub use pass::{PassSink, Passage, pass_over};
pub use read::{PayloadSink, Policy, SinkClosed, StackReader};
pub use rebuild::{copy, look, rebuild, verify_spare, verify_stack};
pub use remove::{remove, remove_spare, replace_with_spare};
pub use synthetic::{SyntheticBlobs, SyntheticDrive, synthetic_payload};
pub use verify::verify;
pub use write::{Lost, StackWriter, Written};
