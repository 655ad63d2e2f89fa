//! A file that is opened read-only, with the batches that only the log in front of it has: replayed into memory.
//!
//! Memory: the records that the log changes, which are bounded by
//! [`SqliteOptions::cover_after_bytes`](super::SqliteOptions) of the server that wrote it.

use super::failure::store_error;
use super::overlay::Overlay;
use super::statements::{Changes, Statements};
use crate::committer::{Failure, Records, State};
use crate::key_digest::KeyDigest;
use crate::look::read_only;
use crate::seal::Sealed;
use crate::store::{Batch, Write};
use lineage::Sequence;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;

/// The records of a file, with changes only in memory.
pub(super) struct Looked<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: Arc<Path>,
    pub(super) changes: Overlay,
}

impl Looked<'_> {
    fn read<T>(&self, read: impl FnOnce(&Statements<'_>) -> rusqlite::Result<T>) -> Result<T, Failure> {
        let read = read(&Statements::new(self.connection));
        read.map_err(|error| Failure::Fatal(store_error(&self.path, &error)))
    }

    fn set(&mut self, key: Vec<u8>, value: Option<Sealed>, keys: &mut KeyDigest) -> Result<(), Failure> {
        let was_there = self.read(|file| self.changes.get_over(file, &key))?.is_some();
        keys.turn(&key, was_there, value.is_some());
        self.changes.publish(Changes::from([(key, value)]));
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
                let removed = self.read(|file| self.changes.scan_over(file, range, usize::MAX))?;
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
