//! A change that has its number and is on its way into the logs.

use crate::ack::{Answerer, ack};
use crate::record::{Head, Kind, Record, Sequence};
use ::bytes::Bytes;

/// A change that has its number.
pub(crate) struct Accepted {
    pub(crate) sequence: Sequence,
    pub(crate) kind: Kind,
    pub(crate) key: Vec<u8>,
    pub(crate) entry: Vec<u8>,
    pub(crate) value: Bytes,
    pub(crate) value_crc: u32,
    pub(crate) answerer: Answerer,
}

impl Accepted {
    /// A change that a log already has: no caller waits for it.
    pub(crate) fn again(record: &Record<'_>, head: Head) -> Self {
        let Record { kind, sequence, key, entry, value } = *record;
        let (key, entry, value) = (key.to_vec(), entry.to_vec(), Bytes::copy_from_slice(value));
        Self { sequence, kind, key, entry, value, value_crc: head.value_crc(), answerer: ack().0 }
    }

    pub(crate) fn record(&self) -> Record<'_> {
        let Self { sequence, kind, key, entry, value, .. } = self;
        Record { kind: *kind, sequence: *sequence, key, entry, value }
    }
}
