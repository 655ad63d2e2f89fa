//! Traces of requests: `time,operation,key,bytes`, one request per line.
//!
//! Time is in seconds with up to nine decimals and never goes back; the operation is `read` or `write`; a key is any
//! text without a comma. A first line that begins with `time` is a heading; empty lines and lines that begin with `#`
//! are skipped. If the trace has successfully written a key before, a read of the key reads that blob; any other key
//! represents one of the stored blobs, always the same one.
//!
//! Invariant: a trace is read while it is replayed; only one line and the keys that it has written are in memory.

use crate::measure::Measuring;
use crate::stored::Stored;
use crate::world::World;
use engine::{Controller, Outcome, PinnedTo};
use model::{BlobId, OpId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A line of at least this length is not a request.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceOperation {
    /// Read the key's blob.
    Read,
    /// Write a new blob under the key.
    Write,
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its time since the beginning of the trace.
    pub after: Duration,
    /// Its operation.
    pub operation: TraceOperation,
    /// Its key.
    pub key: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The reason why a trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("trace {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: String,
    },
    /// A line is not a request.
    #[error("line {line}: {error}")]
    Line {
        /// The line number, from 1.
        line: u64,
        /// The error, and the expected content.
        error: String,
    },
}

/// Reads the requests of a trace one by one. Ends at the first line that is not a request, or whose time goes back.
#[derive(Debug)]
pub struct Rows<R> {
    input: R,
    text: String,
    line: u64,
    last: Duration,
    ended: bool,
}

/// The requests of a file.
pub type FileRows = Rows<BufReader<File>>;

/// Opens the trace in this file.
///
/// # Errors
/// [`TraceError::Unreadable`].
pub fn open(path: &Path) -> Result<FileRows, TraceError> {
    let file = File::open(path);
    let file = file.map_err(|error| TraceError::Unreadable { path: path.to_owned(), error: error.to_string() })?;
    Ok(Rows::new(BufReader::new(file)))
}

/// Reads the trace in this file from beginning to end, and counts its requests.
///
/// # Errors
/// The first error in it.
pub fn check(path: &Path) -> Result<u64, TraceError> {
    open(path)?.try_fold(0, |count, row| row.map(|_| count + 1))
}

impl<R: BufRead> Rows<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> Self {
        Self { input, text: String::new(), line: 0, last: Duration::ZERO, ended: false }
    }

    /// The next request; `None` after the last one.
    fn read(&mut self) -> Result<Option<Row>, String> {
        loop {
            self.text.clear();
            self.line += 1;
            let read = self.input.by_ref().take(LINE_BYTES_MAX).read_line(&mut self.text);
            if read.map_err(|error| error.to_string())? == 0 {
                return Ok(None);
            }
            if self.text.len() as u64 == LINE_BYTES_MAX {
                return Err(format!("longer than {LINE_BYTES_MAX} bytes; a request is four fields"));
            }
            let text = self.text.trim();
            if text.is_empty() || text.starts_with('#') || (self.line == 1 && text.starts_with("time")) {
                continue;
            }
            let row = parse_row(text)?;
            if row.after < self.last {
                return Err("time goes back; sort the lines by time".to_owned());
            }
            self.last = row.after;
            return Ok(Some(row));
        }
    }
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = Result<Row, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let row = self.read().map_err(|error| TraceError::Line { line: self.line, error }).transpose();
        self.ended = !matches!(row, Some(Ok(_)));
        row
    }
}

fn parse_row(line: &str) -> Result<Row, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, operation, key, bytes] = fields[..] else {
        return Err(format!("{} fields where time,operation,key,bytes are expected", fields.len()));
    };
    let operation = match operation {
        "read" => TraceOperation::Read,
        "write" => TraceOperation::Write,
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

/// Makes the requests of a trace, each at its time.
///
/// # Errors
/// The first error in the trace. The requests before it have been made.
pub(crate) fn play<M: Controller>(
    rows: FileRows,
    world: &mut World<M>,
    stored: &Stored,
    measuring: &mut Measuring,
) -> Result<(), TraceError> {
    let from = world.now();
    let mut keys = Keys::default();
    for row in rows {
        let Row { after, operation, key, bytes } = row?;
        keys.run_and_note(world, from + after, measuring);
        match operation {
            TraceOperation::Write => {
                keys.writing.insert(world.write(bytes, PinnedTo::Anywhere), key);
            }
            TraceOperation::Read => {
                let known = keys.written.get(&key).and_then(|blob| world.read(*blob, bytes));
                if known.is_none() {
                    let index = (stable_hash(&key) % stored.len() as u64) as usize;
                    let (group, drives) = stored.blob(index);
                    world.read_at(BlobId::numbered(index as u64), group, drives, bytes);
                }
            }
        }
    }
    Ok(())
}

/// The keys that a trace writes.
#[derive(Default)]
struct Keys {
    written: BTreeMap<String, BlobId>,
    writing: BTreeMap<OpId, String>,
}

impl Keys {
    /// Runs until `until`, and records the keys that were written meanwhile: the world numbers blobs in the order of
    /// writing.
    fn run_and_note<M: Controller>(&mut self, world: &mut World<M>, until: Time, measuring: &mut Measuring) {
        let mut next_blob = world.next_blob();
        world.run_until(until);
        for ended in world.take_ended() {
            let key = self.writing.remove(&ended.op);
            if let Outcome::Written { .. } = ended.outcome {
                self.written.extend(key.map(|key| (key, next_blob)));
                next_blob = next_blob.next_number();
            }
            measuring.ended(&ended);
        }
    }
}

fn stable_hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(csv: &str) -> Result<Vec<Row>, TraceError> {
        Rows::new(csv.as_bytes()).collect()
    }

    #[test]
    fn a_trace_is_read_line_by_line() {
        let rows = read("time,operation,key,bytes\n0.5,read,a/b,1000\n# later\n\n2,write, c ,7").unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].after, Duration::from_millis(500));
        assert_eq!((rows[1].operation, rows[1].key.as_str(), rows[1].bytes), (TraceOperation::Write, "c", 7));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let what = |csv: &str| read(csv).unwrap_err().to_string();
        assert_eq!(what("1,read,a"), "line 1: 3 fields where time,operation,key,bytes are expected");
        assert_eq!(what("1,read,a,1\n0,read,a,1"), "line 2: time goes back; sort the lines by time");
        assert!(what("1,list,a,1").contains("`list`"));
        assert!(what("-1,read,a,1").contains("`-1`"));
        assert!(what("1,read,a,many").contains("`many`"));
        assert!(what(&"x".repeat(100_000)).starts_with("line 1: longer than"));
    }

    #[test]
    fn nothing_is_read_behind_the_first_line_that_is_wrong() {
        let mut rows = Rows::new("1,read,a,1\nnonsense\n2,read,a,1\n".as_bytes());
        assert!(rows.next().unwrap().is_ok());
        assert!(rows.next().unwrap().is_err());
        assert_eq!(rows.next(), None);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = check(Path::new("no-such-trace.csv")).unwrap_err();
        assert!(error.to_string().contains("no-such-trace.csv"), "{error}");
    }
}
