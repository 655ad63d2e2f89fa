//! Traces of requests: `time,operation,key,bytes`, one request a line.
//!
//! Time is in seconds with up to nine decimals and never goes back; the operation is `read` or `write`; a key is any
//! text without a comma. A first line that begins with `time` is a heading; empty lines and lines that begin with `#`
//! are skipped. A read of a key that the trace has written before, if the write has ended well, reads that blob; any
//! other key stands for one of the stored blobs, always the same.

use crate::measure::Taking;
use crate::stored::Stored;
use crate::world::World;
use engine::{Mind, Outcome};
use model::{BlobId, OpId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Read the key's blob.
    Read,
    /// Write a new blob under the key.
    Write,
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// When, since the trace began.
    pub after: Duration,
    /// What.
    pub operation: Operation,
    /// Of which key.
    pub key: String,
    /// How many bytes.
    pub bytes: u64,
}

/// Why a trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what should be there.
    pub what: String,
}

/// Reads a trace.
///
/// # Errors
/// The first line that is no request, or whose time goes back.
pub fn parse(csv: &str) -> Result<Vec<Row>, TraceError> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, line) in csv.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || (index == 0 && line.starts_with("time")) {
            continue;
        }
        let row = parse_row(line).map_err(|what| TraceError { line: index + 1, what })?;
        if rows.last().is_some_and(|last| last.after > row.after) {
            let what = "time goes back; sort the lines by time".to_owned();
            return Err(TraceError { line: index + 1, what });
        }
        rows.push(row);
    }
    Ok(rows)
}

fn parse_row(line: &str) -> Result<Row, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, operation, key, bytes] = fields[..] else {
        return Err(format!("{} fields where time,operation,key,bytes are expected", fields.len()));
    };
    let operation = match operation {
        "read" => Operation::Read,
        "write" => Operation::Write,
        other => return Err(format!("operation `{other}` is neither `read` nor `write`")),
    };
    let after = seconds(time).ok_or_else(|| format!("time `{time}` is not a number of seconds such as 12.5"))?;
    let bytes = bytes.parse().map_err(|_| format!("bytes `{bytes}` is not a whole number"))?;
    Ok(Row { after, operation, key: key.to_owned(), bytes })
}

fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.len() > 9 || !digits(fraction) || !digits(whole) {
        return None;
    }
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    Some(Duration::new(whole.parse().ok()?, nanos))
}

/// Asks for everything in a trace, at its time.
pub(crate) fn play<M: Mind>(rows: &[Row], world: &mut World<M>, stored: &Stored, taking: &mut Taking) {
    let from = world.now();
    let mut written: BTreeMap<&str, BlobId> = BTreeMap::new();
    let mut writing: BTreeMap<OpId, &str> = BTreeMap::new();
    for row in rows {
        run_and_note(world, from + row.after, taking, &mut writing, &mut written);
        match row.operation {
            Operation::Write => {
                writing.insert(world.write(row.bytes, None), &row.key);
            }
            Operation::Read => {
                let known = written.get(row.key.as_str()).and_then(|blob| world.read(*blob, row.bytes));
                if known.is_none() {
                    let index = (stable_hash(&row.key) % stored.len() as u64) as usize;
                    let (group, drives) = stored.blob(index);
                    world.read_at(BlobId(index as u64), group, drives.to_vec(), row.bytes);
                }
            }
        }
    }
}

/// Lets time pass, and notes which keys have been written meanwhile: the world numbers its blobs as they are written.
fn run_and_note<'a, M: Mind>(
    world: &mut World<M>,
    until: Time,
    taking: &mut Taking,
    writing: &mut BTreeMap<OpId, &'a str>,
    written: &mut BTreeMap<&'a str, BlobId>,
) {
    let mut next_blob = world.next_blob();
    world.run_until(until);
    world.drain_ended(|ended| {
        if let Outcome::Written { .. } = ended.outcome {
            if let Some(key) = writing.remove(&ended.op) {
                written.insert(key, next_blob);
            }
            next_blob = BlobId(next_blob.0 + 1);
        }
        taking.ended(&ended);
    });
}

fn stable_hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_trace_is_read_line_by_line() {
        let rows = parse("time,operation,key,bytes\n0.5,read,a/b,1000\n# later\n\n2,write, c ,7\n").unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].after, Duration::from_millis(500));
        assert_eq!((rows[1].operation, rows[1].key.as_str(), rows[1].bytes), (Operation::Write, "c", 7));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let what = |csv: &str| parse(csv).unwrap_err().to_string();
        assert_eq!(what("1,read,a"), "line 1: 3 fields where time,operation,key,bytes are expected");
        assert_eq!(what("1,read,a,1\n0,read,a,1"), "line 2: time goes back; sort the lines by time");
        assert!(what("1,list,a,1").contains("`list`"));
        assert!(what("-1,read,a,1").contains("`-1`"));
        assert!(what("1,read,a,many").contains("`many`"));
    }
}
