//! The SQL: point reads, range reads, checks and writes over the one table.

use crate::store::{Batch, Check, Entry, KeyRange, Write};
use rusqlite::{Connection, OptionalExtension, params};

/// A connection that reads.
pub(super) struct Reader<'a> {
    connection: &'a Connection,
}

impl<'a> Reader<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self { connection }
    }

    pub(super) fn get(&self, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
        let mut select = self.connection.prepare_cached("SELECT v FROM kv WHERE k = ?1")?;
        select.query_row([key], |row| row.get(0)).optional()
    }

    /// One transaction, so that all values are of one moment.
    pub(super) fn get_many(&self, keys: &[Vec<u8>]) -> rusqlite::Result<Vec<Option<Vec<u8>>>> {
        let transaction = self.connection.unchecked_transaction()?;
        let values = keys.iter().map(|key| self.get(key)).collect::<Result<_, _>>()?;
        transaction.commit()?;
        Ok(values)
    }

    /// What is wrong with the file's pages, `limit` faults at most. Nothing, if nothing is.
    pub(super) fn check_pages(&self, limit: u32) -> rusqlite::Result<Vec<String>> {
        let mut check = self.connection.prepare(&format!("PRAGMA integrity_check({limit})"))?;
        let found = check.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        Ok(found.into_iter().filter(|line| line != "ok").collect())
    }

    pub(super) fn scan(&self, range: KeyRange, limit: usize) -> rusqlite::Result<Vec<Entry>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let entry = |row: &rusqlite::Row<'_>| Ok(Entry { key: row.get(0)?, value: row.get(1)? });
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
    let reader = Reader::new(connection);
    Ok(match check {
        Check::Absent(key) => !is_there(connection, key)?,
        Check::Present(key) => is_there(connection, key)?,
        Check::Is(key, value) => reader.get(key)?.as_ref() == Some(value),
        Check::Empty(range) => reader.scan(range.clone(), 1)?.is_empty(),
    })
}

fn is_there(connection: &Connection, key: &[u8]) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM kv WHERE k = ?1")?.exists([key])
}

pub(super) fn write(connection: &Connection, write: &Write) -> rusqlite::Result<()> {
    match write {
        Write::Put(key, value) => connection
            .prepare_cached("INSERT INTO kv (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v")?
            .execute(params![key, value])?,
        Write::Delete(key) => connection.prepare_cached("DELETE FROM kv WHERE k = ?1")?.execute([key])?,
        Write::DeleteRange(range) => match range.clone().half_open() {
            (start, Some(end)) => {
                connection.prepare_cached("DELETE FROM kv WHERE k >= ?1 AND k < ?2")?.execute(params![start, end])?
            }
            (start, None) => connection.prepare_cached("DELETE FROM kv WHERE k >= ?1")?.execute([start])?,
        },
    };
    Ok(())
}
