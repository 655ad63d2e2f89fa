//! A file that is only looked at, and what only the log in front of it has: replayed as at a start, into memory.
//!
//! Memory: the records that the log changes, which are bounded by
//! [`SqliteOptions::cover_after_bytes`](super::SqliteOptions) of the server that wrote it.

use super::failure::store_error;
use super::pool::Pool;
use super::statements::Statements;
use crate::committer::{Failure, Records, State};
use crate::error::StoreError;
use crate::key_digest::KeyDigest;
use crate::look::read_only;
use crate::seal::{Sealed, Sequence};
use crate::store::{Batch, Entry, KeyRange, Write};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// The records that are other than in the file; `None` are gone.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Sealed>>;

/// The records of a file that are changed in memory alone.
pub(super) struct Looked<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: Arc<Path>,
    pub(super) changes: Changes,
}

impl Looked<'_> {
    fn read<T>(&self, read: impl FnOnce(&Statements<'_>) -> rusqlite::Result<T>) -> Result<T, Failure> {
        let read = read(&Statements::new(self.connection));
        read.map_err(|error| Failure::Fatal(store_error(&self.path, &error)))
    }

    fn set(&mut self, key: Vec<u8>, value: Option<Sealed>, keys: &mut KeyDigest) -> Result<(), Failure> {
        let was_there = match self.changes.get(&key) {
            Some(changed) => changed.is_some(),
            None => self.read(|file| file.get(&key))?.is_some(),
        };
        match (was_there, value.is_some()) {
            (false, true) => keys.add(&key),
            (true, false) => keys.remove(&key),
            _ => {}
        }
        self.changes.insert(key, value);
        Ok(())
    }
}

impl Records for Looked<'_> {
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn failed_check(&self, _: &Batch) -> Result<Option<usize>, Failure> {
        Err(Failure::Harmless(read_only()))
    }

    fn write(&mut self, write: &Write, sequence: Sequence, keys: &mut KeyDigest) -> Result<(), Failure> {
        match write {
            Write::Put(key, body) => self.set(key.clone(), Some(Sealed::seal(key, body.clone(), sequence)), keys),
            Write::Delete(key) => self.set(key.clone(), None, keys),
            Write::DeleteRange(range) => {
                let in_file = self.read(|file| file.scan(range.clone(), usize::MAX))?;
                let removed = with_changes(&self.changes, range.clone(), in_file);
                removed.into_iter().try_for_each(|entry| self.set(entry.key, None, keys))
            }
        }
    }

    fn set_state(&mut self, _: State) -> Result<(), Failure> {
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn make_durable(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn is_due(&self) -> Result<bool, Failure> {
        Ok(false)
    }
}

/// The entries of `range`, of which the file has `in_file`.
fn with_changes(changes: &Changes, range: KeyRange, in_file: Vec<Entry>) -> Vec<Entry> {
    let (start, end) = range.half_open();
    let mut merged: BTreeMap<Vec<u8>, Sealed> = in_file.into_iter().map(|entry| (entry.key, entry.value)).collect();
    let is_in = |key: &[u8]| end.as_deref().is_none_or(|end| key < end);
    for (key, value) in changes.range(start..).take_while(|(key, _)| is_in(key)) {
        match value {
            Some(value) => drop(merged.insert(key.clone(), value.clone())),
            None => drop(merged.remove(key)),
        }
    }
    merged.into_iter().map(|(key, value)| Entry { key, value }).collect()
}

/// The first `limit` entries of `range` in the file of `pool`, with `changes`.
pub(super) async fn scan(
    pool: Pool,
    changes: Arc<Changes>,
    mut range: KeyRange,
    limit: usize,
) -> Result<Vec<Entry>, StoreError> {
    let mut found = Vec::new();
    loop {
        let asked = range.clone();
        let page = pool.read(move |reader| reader.scan(asked, limit)).await?;
        // Where the file may have more, changes behind the last one belong to the next page.
        let Some(last) = page.last().filter(|_| page.len() == limit).map(|last| last.key.clone()) else {
            found.extend(with_changes(&changes, range, page));
            found.truncate(limit);
            return Ok(found);
        };
        let part = KeyRange { start: range.start, end: Bound::Included(last.clone()) };
        found.extend(with_changes(&changes, part, page));
        if found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
        range.start = Bound::Excluded(last);
    }
}
