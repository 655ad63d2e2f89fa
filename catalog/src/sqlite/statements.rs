//! The SQL: point reads, range reads, checks and writes over the one table.

use crate::key_digest::{ExpectedKeys, KeyDigest};
use crate::seal::Sealed;
use crate::store::{Batch, Check, Entry, KeyRange, Write};
use lineage::Sequence;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;

/// Records that differ from the file; `None` means deleted.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Sealed>>;

/// A connection that reads.
pub(super) struct Statements<'a> {
    connection: &'a Connection,
}

impl<'a> Statements<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self { connection }
    }

    pub(super) fn get(&self, key: &[u8]) -> rusqlite::Result<Option<Sealed>> {
        let mut select = self.connection.prepare_cached("SELECT v FROM kv WHERE k = ?1")?;
        select.query_row([key], |row| row.get(0).map(Sealed::from_bytes)).optional()
    }

    /// Reads in one transaction, so that all values are of one moment.
    pub(super) fn get_many(&self, keys: &[&[u8]]) -> rusqlite::Result<Vec<Option<Sealed>>> {
        if keys.len() == 1 || !self.connection.is_autocommit() {
            return keys.iter().map(|key| self.get(key)).collect(); // a view is one transaction as a whole
        }
        let transaction = self.connection.unchecked_transaction()?;
        let values = keys.iter().map(|key| self.get(key)).collect::<Result<_, _>>()?;
        transaction.commit()?;
        Ok(values)
    }

    /// The last key that begins with the byte `first`.
    pub(super) fn last_beginning_with(&self, first: u8) -> rusqlite::Result<Option<Vec<u8>>> {
        let end = [first.saturating_add(1)];
        let mut select = match first {
            u8::MAX => self.connection.prepare_cached("SELECT k FROM kv WHERE k >= ?1 ORDER BY k DESC LIMIT 1")?,
            _ => self.connection.prepare_cached("SELECT k FROM kv WHERE k < ?1 ORDER BY k DESC LIMIT 1")?,
        };
        let last: Option<Vec<u8>> = select.query_row([end], |row| row.get(0)).optional()?;
        Ok(last.filter(|key| key.first() == Some(&first)))
    }

    /// True if `key` has a value.
    pub(super) fn is_there(&self, key: &[u8]) -> rusqlite::Result<bool> {
        is_there(self.connection, key)
    }

    /// The faults of the file's pages, at most `limit`.
    pub(super) fn check_pages(&self, limit: u32) -> rusqlite::Result<Vec<String>> {
        let mut check = self.connection.prepare(&format!("PRAGMA integrity_check({limit})"))?;
        let found = check.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        Ok(found.into_iter().filter(|line| line != "ok").collect())
    }

    pub(super) fn scan(&self, range: KeyRange, limit: usize) -> rusqlite::Result<Vec<Entry>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let entry = |row: &rusqlite::Row<'_>| Ok(Entry { key: row.get(0)?, value: Sealed::from_bytes(row.get(1)?) });
        match range.half_open() {
            (start, Some(end)) => self
                .connection
                .prepare_cached("SELECT k, v FROM kv WHERE k >= ?1 AND k < ?2 ORDER BY k LIMIT ?3")?
                .query_map(params![start, end, limit], entry)?
                .collect(),
            (start, None) => self
                .connection
                .prepare_cached("SELECT k, v FROM kv WHERE k >= ?1 ORDER BY k LIMIT ?2")?
                .query_map(params![start, limit], entry)?
                .collect(),
        }
    }
}

/// The first check of `batch` that does not hold.
pub(super) fn failed_check(connection: &Connection, batch: &Batch) -> rusqlite::Result<Option<usize>> {
    for (index, check) in batch.checks.iter().enumerate() {
        if !holds(connection, check)? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

fn holds(connection: &Connection, check: &Check) -> rusqlite::Result<bool> {
    let reader = Statements::new(connection);
    Ok(match check {
        Check::Absent(key) => !is_there(connection, key)?,
        Check::Present(key) => is_there(connection, key)?,
        Check::Is(key, body) => reader.get(key)?.is_some_and(|value| value.has_body(body)),
        Check::Empty(range) => reader.scan(range.clone(), 1)?.is_empty(),
    })
}

fn is_there(connection: &Connection, key: &[u8]) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM kv WHERE k = ?1")?.exists([key])
}

/// Applies one write, and updates `digest`, the digest of all keys.
pub(super) fn write(
    connection: &Connection,
    write: &Write,
    sequence: Sequence,
    digest: &mut KeyDigest,
) -> rusqlite::Result<()> {
    match write {
        Write::Put(key, body) => {
            assert!(sequence.0 > 0, "a record is sealed with the number of its batch");
            put(connection, key, &Sealed::seal(key, body.clone(), sequence), digest)?;
        }
        Write::Delete(key) => {
            if connection.prepare_cached("DELETE FROM kv WHERE k = ?1")?.execute([key])? > 0 {
                digest.remove(key);
            }
        }
        Write::DeleteRange(range) => {
            let removed: Vec<Vec<u8>> = match range.clone().half_open() {
                (start, Some(end)) => connection
                    .prepare_cached("DELETE FROM kv WHERE k >= ?1 AND k < ?2 RETURNING k")?
                    .query_map(params![start, end], |row| row.get(0))?
                    .collect::<Result<_, _>>()?,
                (start, None) => connection
                    .prepare_cached("DELETE FROM kv WHERE k >= ?1 RETURNING k")?
                    .query_map([start], |row| row.get(0))?
                    .collect::<Result<_, _>>()?,
            };
            for key in removed {
                digest.remove(&key);
            }
        }
    }
    Ok(())
}

/// True if there is a record at `key`.
pub(super) fn has(connection: &Connection, key: &[u8]) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM kv WHERE k = ?1")?.exists([key])
}

/// Stores `value` at `key` as it is, and updates `digest`, the digest of all keys.
pub(super) fn put(connection: &Connection, key: &[u8], value: &Sealed, digest: &mut KeyDigest) -> rusqlite::Result<()> {
    let row = params![key, value.as_bytes()];
    if connection.prepare_cached("INSERT OR IGNORE INTO kv (k, v) VALUES (?1, ?2)")?.execute(row)? > 0 {
        digest.add(key);
    } else {
        connection.prepare_cached("UPDATE kv SET v = ?2 WHERE k = ?1")?.execute(row)?;
    }
    Ok(())
}

/// Applies all of `changes`, in the order of their keys.
pub(super) fn fold(connection: &Connection, changes: &Changes) -> rusqlite::Result<()> {
    const PUT: &str = "INSERT INTO kv (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v";
    let mut put = connection.prepare_cached(PUT)?;
    let mut delete = connection.prepare_cached("DELETE FROM kv WHERE k = ?1")?;
    for (key, value) in changes {
        match value {
            Some(value) => put.execute(params![key, value.as_bytes()])?,
            None => delete.execute([key])?,
        };
    }
    Ok(())
}

/// The key that the seal of the sequence number is bound to. No record has it, since the number is in a separate table.
const SEQUENCE_KEY: &[u8] = b"sequence";

/// The number of the last batch; `None` if it is damaged.
pub(super) fn read_sequence(connection: &Connection) -> rusqlite::Result<Option<Sequence>> {
    let Some(sealed) = sealed_sequence(connection)? else { return Ok(Some(Sequence::default())) };
    Ok(sealed.open(SEQUENCE_KEY).ok().map(|(_, sequence)| sequence))
}

/// The records that the file should hold after the last transaction; `None` if this value is damaged.
pub(super) fn read_expected(connection: &Connection) -> rusqlite::Result<Option<ExpectedKeys>> {
    let Some(sealed) = sealed_sequence(connection)? else { return Ok(Some(ExpectedKeys::default())) };
    Ok(sealed.open(SEQUENCE_KEY).ok().and_then(|(body, _)| ExpectedKeys::from_bytes(body)))
}

fn sealed_sequence(connection: &Connection) -> rusqlite::Result<Option<Sealed>> {
    let select = connection.query_row("SELECT v FROM sequence", [], |row| row.get(0));
    Ok(select.optional()?.map(Sealed::from_bytes))
}

/// Stores the number of the last batch, and the digest of the records that the file should hold.
pub(super) fn write_sequence(
    connection: &Connection,
    sequence: Sequence,
    expected: ExpectedKeys,
) -> rusqlite::Result<()> {
    let sealed = Sealed::seal(SEQUENCE_KEY, expected.to_bytes(), sequence);
    connection
        .prepare_cached("INSERT INTO sequence (one, v) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET v = excluded.v")?
        .execute([sealed.as_bytes()])
        .map(drop)
}

/// The highest sequence number in any whole seal: for a file whose stored number is damaged.
pub(super) fn highest_sequence(connection: &Connection) -> rusqlite::Result<Sequence> {
    let mut select = connection.prepare("SELECT k, v FROM kv")?;
    let mut rows = select.query([])?;
    let mut highest = Sequence::default();
    while let Some(row) = rows.next()? {
        let (key, value): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
        if let Ok((_, sequence)) = Sealed::from_bytes(value).open(&key) {
            highest = highest.max(sequence);
        }
    }
    Ok(highest)
}
