//! Repair at open: a file with missing records, or with records where a search does not find them, is rewritten.
//!
//! Every open walks the whole file once: are the keys in order, and do they match the digest that the last transaction
//! left (`catalog/src/key_digest.rs`)? If not, all records that the walk yields are copied into a new file, which has
//! its own order; a record whose seal opens when one bit of its key is flipped back gets that key. The damaged file
//! stays beside it, under another name. The number of records that are still missing is known, but not their keys: the
//! file stays **incomplete** until an operator accepts it, and callers can refuse to treat a missing record as deleted.

use super::failure::{FIX_DAMAGED, damaged, store_error};
use super::path::{beside, sync_directory};
use super::schema::{copy_version, make_new};
use super::statements::{highest_sequence, read_expected, read_sequence, write_sequence};
use crate::error::StoreError;
use crate::key_digest::{ExpectedKeys, KeyDigest};
use crate::seal::Sealed;
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};

/// Maximum number of damaged files beside the catalog.
const DAMAGED_MAX: u32 = 100;

/// The result of a walk through a file.
pub(super) struct Walk {
    /// The records that exist.
    found: KeyDigest,
    /// The records that should exist.
    expected: ExpectedKeys,
    in_order: bool,
}

impl Walk {
    /// Walks the whole file. If the record of the expected keys is damaged, the existing ones count as expected.
    pub(super) fn through(connection: &Connection) -> rusqlite::Result<Self> {
        let (found, in_order) = digest_of_file(connection)?;
        let complete = || ExpectedKeys { keys: found, ..ExpectedKeys::default() };
        Ok(Self { found, expected: read_expected(connection)?.unwrap_or_else(complete), in_order })
    }

    /// The existing records and the expected ones, for a replay.
    pub(super) fn digests(&mut self) -> (&mut KeyDigest, &mut ExpectedKeys) {
        (&mut self.found, &mut self.expected)
    }

    /// The flaw of the file, if it has one.
    pub(super) fn flaw(&self) -> Option<String> {
        let (is, expected) = (self.found.keys, self.expected.keys.keys);
        if !self.in_order {
            return Some(format!("{is} records are not in order"));
        }
        match expected.checked_sub(is) {
            _ if self.found == self.expected.keys => None,
            Some(0) => Some(format!("one or more of {is} records have another key")),
            Some(missing) => Some(format!("{missing} of {expected} records are missing")),
            None => Some(format!("there are {is} records, and should be {expected}")),
        }
    }

    /// True if rewriting the file may repair it: not if every flaw was found before.
    pub(super) fn may_be_repaired(&self) -> bool {
        !self.in_order || self.expected.keys.minus(self.found) != self.expected.missing
    }

    /// The expected records from now on, whether missing ones are accepted or not.
    pub(super) fn expected(&self, accepted: bool) -> ExpectedKeys {
        let keys = if accepted { self.found } else { self.expected.keys };
        ExpectedKeys { keys, missing: keys.minus(self.found) }
    }
}

/// The digest of the records in the file, read in stored order, and true if that is the order of keys.
fn digest_of_file(connection: &Connection) -> rusqlite::Result<(KeyDigest, bool)> {
    let (mut digest, mut last, mut in_order) = (KeyDigest::default(), None::<Vec<u8>>, true);
    let mut walk = connection.prepare("SELECT k FROM kv")?;
    let mut rows = walk.query([])?;
    while let Some(row) = rows.next()? {
        let key = row.get_ref(0)?.as_blob()?;
        digest.add(key);
        in_order &= last.as_deref().is_none_or(|last| last < key);
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }
    Ok((digest, in_order))
}

/// Rewrites the file at `path` from all that can be read of it. `connection` is to it, and its log is folded in.
///
/// # Errors
/// [`StoreError::Damaged`] if it cannot be read to its end; then nothing was changed.
pub(super) fn rewrite(connection: Connection, path: &Path, flaw: &str) -> Result<(), StoreError> {
    let say = |error: rusqlite::Error| store_error(path, &error);
    let failed = |error: std::io::Error| StoreError::Failed(format!("{}: {error}", path.display()));
    let fresh = free_name(path, "repaired").map_err(failed)?;
    let copied = copy(&connection, &fresh);
    if let Err(error) = copied {
        let _ = std::fs::remove_file(&fresh); // created a moment ago, under a name that was free
        return Err(error);
    }
    connection.close().map_err(|(_, error)| say(error))?;
    assert!(fresh != path && fresh.parent() == path.parent(), "the new file replaces the old one by a rename");
    let damaged = free_name(path, "damaged").map_err(failed)?;
    // At every moment there is a catalog at `path`.
    std::fs::hard_link(path, &damaged).and_then(|()| std::fs::rename(&fresh, path)).map_err(failed)?;
    sync_directory(path).map_err(failed)?;
    tracing::error!(
        "THE CATALOG WAS DAMAGED: {flaw}. It was written again from its readable records; the damaged file is kept as \
         {}",
        damaged.display()
    );
    Ok(())
}

/// An unused name beside `path`.
fn free_name(path: &Path, what: &str) -> std::io::Result<PathBuf> {
    let name = |number| beside(path, &format!(".{what}-{number}"));
    let free = (1..=DAMAGED_MAX).map(name).find(|name| !name.exists());
    free.ok_or_else(|| std::io::Error::other(format!("there are {DAMAGED_MAX} files {what}; move them away")))
}

/// Copies the records in the file of `from` into a new one.
fn copy(from: &Connection, into: &Path) -> Result<(), StoreError> {
    let say = |error: rusqlite::Error| store_error(into, &error);
    let to = make_new(into)?;
    let copied = || -> rusqlite::Result<()> {
        to.execute_batch("BEGIN IMMEDIATE")?;
        let mut walk = from.prepare("SELECT k, v FROM kv")?;
        let mut insert = to.prepare("INSERT OR IGNORE INTO kv (k, v) VALUES (?1, ?2)")?;
        let (mut rows, mut found) = (walk.query([])?, KeyDigest::default());
        let mut add = |key: &[u8], value: &Sealed| -> rusqlite::Result<()> {
            if insert.execute(params![key, value.as_bytes()])? > 0 {
                found.add(key);
            }
            Ok(())
        };
        let mut moved = Vec::new();
        while let Some(row) = rows.next()? {
            let (key, value) = (row.get::<_, Vec<u8>>(0)?, Sealed::from_bytes(row.get(1)?));
            match corrected(&key, &value) {
                Some(key) => moved.push((key, value)),
                None => add(&key, &value)?,
            }
        }
        // Last: a record that was written again while it could not be found counts.
        moved.iter().try_for_each(|(key, value)| add(key, value))?;
        let sequence = read_sequence(from)?.map_or_else(|| highest_sequence(from), Ok)?;
        let keys = read_expected(from)?.map_or(found, |expected| expected.keys);
        write_sequence(&to, sequence, ExpectedKeys { keys, missing: keys.minus(found) })?;
        copy_version(from, &to)?;
        to.execute_batch("COMMIT")
    };
    copied().map_err(|error| match store_error(into, &error) {
        StoreError::Damaged(why) => damaged(into, &why, FIX_DAMAGED),
        other => other,
    })?;
    to.close().map_err(|(_, error)| say(error))
}

/// The key that `value` was written under, if it differs from `key` in exactly one bit.
pub(crate) fn corrected(key: &[u8], value: &Sealed) -> Option<Vec<u8>> {
    if value.open(key).is_ok() {
        return None;
    }
    let flipped = |bit: usize| {
        let mut key = key.to_vec();
        key[bit / 8] ^= 1 << (bit % 8);
        key
    };
    (0..key.len() * 8).map(flipped).find(|key| value.open(key).is_ok())
}
