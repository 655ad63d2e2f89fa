//! The changes that the caller did not know yet when the intake was opened, in the order of their numbers. A change
//! with rot only in its value is included: reading its value fails, and later changes still follow it.
//!
//! Memory: the heads of all logs, and the key and entry of one change.

use crate::error::ReadError;
use crate::log::{self, Known};
use crate::medium::read_past_bad_sectors;
use crate::opening::image;
use crate::record::{HEAD_BYTES, Head, Kind, Sequence};
use crate::table::LogTable;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change that the caller did not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Its number.
    pub sequence: Sequence,
    /// Its kind.
    pub kind: Kind,
    /// Its key; for a forgotten range, its first key.
    pub key: Vec<u8>,
    /// Its entry.
    pub entry: Vec<u8>,
    /// The length of its value.
    pub value_bytes: u64,
}

/// The changes, in order.
#[derive(Debug, Default)]
pub struct Replay {
    changes: std::collections::btree_map::IntoIter<Sequence, (Arc<LogTable>, u64, Head)>,
}

impl Replay {
    /// The changes above `covered` in `logs`. A change that is in two logs, because the first log failed or because
    /// there are two copies, is returned once.
    pub(crate) fn of(logs: &[Arc<LogTable>], covered: Sequence) -> Result<Self, ReadError> {
        let mut changes = BTreeMap::new();
        for table in logs {
            let (last, bytes) = (table.index.read().last, table.index.read().bytes);
            if last <= covered {
                continue;
            }
            let image = image(table.medium.as_ref())?;
            let contents = log::read(&image, table.file.stamp(), Known::sealed(bytes), 0);
            for (offset, head) in contents.records.into_iter().chain(contents.described) {
                if head.sequence > covered {
                    changes.insert(head.sequence, (Arc::clone(table), offset, head));
                }
            }
        }
        Ok(Self { changes: changes.into_iter() })
    }
}

impl Iterator for Replay {
    type Item = Result<Replayed, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (sequence, (table, offset, head)) = self.changes.next()?;
        let read = || {
            let mut bytes = vec![0; HEAD_BYTES + head.key_bytes as usize + head.entry_bytes as usize];
            read_past_bad_sectors(table.medium.as_ref(), &mut bytes, offset)?;
            let key = head.key(&bytes)?.to_vec();
            let entry = bytes[HEAD_BYTES + key.len()..].to_vec();
            Ok(Replayed { sequence, kind: head.kind, key, entry, value_bytes: head.value_bytes.into() })
        };
        Some(read())
    }
}
