//! The survey of a shelf: finds the places of its whole records by reading it from front to back.
//!
//! Records describe themselves: they have the stamp of their file, their key, their length and their checksums. So a
//! shelf can be read without its nodes, its tail or its footer, and damage costs only the damaged parts:
//!
//! 1. A record with a damaged value and a whole key is one lost version of that key.
//! 2. Bytes between two whole records that are not an inner node are a **gap**: keys between theirs may be lost.
//! 3. If a footer has the number of records, and all of them were found, a gap was an inner node.
//!
//! A whole record is never lost to a gap, and a damaged one always counts as lost.
//!
//! **The information that is only in tails is not found.** If both tails are damaged, forgotten ranges may show again:
//! for a caller with a catalog these are unreferenced records. And dead files that were not removed yet may count
//! again.
//!
//! Memory: one record, a MiB, at most 65,536 runs of records, and 1,024 lost parts; if there are more, neighbours are
//! combined.

use crate::drive::Drive;
use crate::error::ReadError;
use crate::lost::LostPart;
use crate::medium::File;
use crate::names::Identity;
use crate::record::{HEAD_BYTES, Head, KEY_BYTES_MAX, Kind, Sequence, successor};
use crate::shelf::access::Access;
use crate::shelf::edges::{footer_at, piece};
use crate::shelf::format::{Child, EDGE_BYTES, Extent, Footer, NODE_BYTES, Tail, Trailers, node_bytes};
use std::sync::Arc;

/// Bytes per read.
const PIECE_BYTES: u64 = 1 << 20;

/// Maximum number of runs of records.
const RUNS_MAX: u64 = 65_536;

/// Maximum number of lost parts.
const LOST_MAX: usize = 1024;

/// The result of a survey.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// Runs of whole records, like leaves. They have nothing else in them.
    pub(super) runs: Arc<Vec<Child>>,
    pub(super) lost: Vec<LostPart>,
    pub(super) records: u64,
    /// The number of lost records, if it is known.
    pub(super) missing: Option<u64>,
    /// The smallest and the largest number of a record.
    pub(super) sequences: (Sequence, Sequence),
    pub(super) trailers: Trailers,
    /// The first and the last key.
    pub(super) keys: (Vec<u8>, Vec<u8>),
    /// A footer that was found on the way.
    pub(super) footer: Option<Footer>,
    /// True if a key was not above all earlier ones: something was written to a wrong place.
    pub(super) is_disordered: bool,
}

/// A shelf in a survey.
pub(super) struct Surveyed<'a> {
    pub(super) drive: &'a Drive,
    pub(super) medium: &'a dyn File,
    pub(super) identity: Identity,
    /// Bytes of the file.
    pub(super) bytes: u64,
    pub(super) footer: Option<&'a Footer>,
    pub(super) tail: Option<&'a Tail>,
    pub(super) access: Access,
}

/// The content of a place.
enum Found {
    /// A whole record of this key.
    Record(Head, Vec<u8>),
    /// A record of this key whose value is damaged.
    Value(Head, Vec<u8>),
    /// This number of bytes of an inner node.
    Node(u64),
    /// This number of meaningless bytes.
    Nothing(u64),
}

impl Surveyed<'_> {
    /// Surveys the shelf.
    pub(super) fn survey(&self) -> Result<Survey, ReadError> {
        let end = self.footer.map_or(self.bytes, |footer| footer.tail.offset.min(self.bytes));
        let run_bytes = (self.bytes / RUNS_MAX).max(NODE_BYTES as u64);
        let mut survey = Survey::default();
        let mut walk = Walk { of: self, end, begin: 0, piece: Vec::new(), footer: None };
        let mut lines = Lines { run_bytes, ..Lines::default() };
        let mut at = EDGE_BYTES;
        while at < end {
            let found = walk.look(at)?;
            at += lines.take(&mut survey, at, found, self);
        }
        // If the end of the records is unknown, there may have been more.
        let is_cut = self.footer.is_none_or(|footer| footer.tail.offset > self.bytes);
        lines.is_gap |= is_cut;
        let last = self.tail.map_or_else(|| vec![0xff; KEY_BYTES_MAX], |tail| tail.keys.1.clone());
        lines.end_gap(&mut survey, &last, self);
        survey.runs = Arc::new(lines.runs);
        survey.footer = walk.footer;
        survey.missing = self.footer.map(|footer| footer.records.saturating_sub(survey.records));
        let missing = survey.missing.is_none_or(|missing| missing > lines.described);
        if !missing {
            // All records are accounted for, so the gaps had none.
            survey.lost.clear();
        } else if lines.is_disordered || (survey.lost.is_empty() && survey.missing.is_some()) {
            // The places of the other records are unknown.
            survey.lost = vec![LostPart { keys: self.tail.map(|tail| tail.keys.clone()), max: self.max() }];
        }
        survey.lost.append(&mut lines.known);
        survey.is_disordered = lines.is_disordered;
        Ok(survey)
    }

    /// The largest number that a lost record may have.
    fn max(&self) -> Sequence {
        self.footer.map_or(Sequence(u64::MAX), |footer| footer.sequences.1)
    }
}

/// The state of a survey besides its findings.
#[derive(Default)]
struct Lines {
    /// Lost versions of keys.
    known: Vec<LostPart>,
    runs: Vec<Child>,
    run_bytes: u64,
    /// True if something since the last key was neither a record nor a node.
    is_gap: bool,
    /// True if a key was not above all earlier ones.
    is_disordered: bool,
    /// Records with a damaged value and a whole key.
    described: u64,
}

impl Lines {
    /// Records the content of the place `at`, and returns its length.
    fn take(&mut self, survey: &mut Survey, at: u64, found: Found, of: &Surveyed<'_>) -> u64 {
        match found {
            Found::Record(head, key) if survey.is_next(&key) => {
                self.end_gap(survey, &predecessor(&key), of);
                self.add(survey, at, &head, key);
                head.bytes() as u64
            }
            Found::Value(head, key) if survey.is_next(&key) => {
                self.end_gap(survey, &predecessor(&key), of);
                let part = LostPart { keys: Some((key.clone(), key.clone())), max: head.sequence };
                push(&mut self.known, part);
                self.described += 1;
                // It ends a run, and the next gap begins after it.
                survey.note_key(key);
                head.bytes() as u64
            }
            // Keys come in order, so this one strayed.
            Found::Record(..) | Found::Value(..) => {
                (self.is_gap, self.is_disordered) = (true, true);
                8
            }
            Found::Node(bytes) => bytes,
            Found::Nothing(bytes) => {
                self.is_gap = true;
                bytes
            }
        }
    }

    fn add(&mut self, survey: &mut Survey, at: u64, head: &Head, key: Vec<u8>) {
        let bytes = head.bytes() as u64;
        let is_behind = |run: &&mut Child| {
            let end = run.extent.offset + u64::from(run.extent.bytes);
            end == at && u64::from(run.extent.bytes) + bytes <= self.run_bytes
        };
        match self.runs.last_mut().filter(is_behind) {
            Some(run) => run.extent.bytes += bytes as u32,
            None => self.runs.push(Child { first: key.clone(), extent: Extent { offset: at, bytes: bytes as u32 } }),
        }
        let (min, max) = survey.sequences;
        let is_first = survey.records == 0;
        let min = if is_first { head.sequence } else { min.min(head.sequence) };
        survey.sequences = (min, max.max(head.sequence));
        survey.records += 1;
        survey.trailers.add(&key);
        survey.note_key(key);
    }

    /// Ends the current gap, if any. `last` is the largest key that may have been in it.
    fn end_gap(&mut self, survey: &mut Survey, last: &[u8], of: &Surveyed<'_>) {
        if !std::mem::take(&mut self.is_gap) {
            return;
        }
        let first = match of.tail {
            Some(tail) if survey.keys.1.is_empty() => tail.keys.0.clone(),
            _ => successor(&survey.keys.1),
        };
        if first.as_slice() <= last {
            push(&mut survey.lost, LostPart { keys: Some((first, last.to_vec())), max: of.max() });
        }
    }
}

impl Survey {
    /// True if `key` is above all earlier ones.
    fn is_next(&self, key: &[u8]) -> bool {
        self.keys.1.as_slice() < key
    }

    fn note_key(&mut self, key: Vec<u8>) {
        if self.keys.0.is_empty() {
            self.keys.0.clone_from(&key);
        }
        self.keys.1 = key;
    }
}

/// Adds a part; if there are too many, extends the last one instead.
fn push(lost: &mut Vec<LostPart>, part: LostPart) {
    let is_full = lost.len() >= LOST_MAX;
    match lost.last_mut() {
        Some(LostPart { keys: Some(keys), max }) if is_full => {
            keys.1 = part.keys.map_or_else(|| vec![0xff; KEY_BYTES_MAX], |(_, last)| last);
            *max = part.max.max(*max);
        }
        _ => lost.push(part),
    }
}

/// The largest key below `key`, which is not empty.
fn predecessor(key: &[u8]) -> Vec<u8> {
    let mut before = key.to_vec();
    match before.pop() {
        None | Some(0) => {}
        Some(last) => {
            before.push(last - 1);
            before.resize(KEY_BYTES_MAX, 0xff);
        }
    }
    before
}

/// A file that is read from front to back.
struct Walk<'a> {
    of: &'a Surveyed<'a>,
    end: u64,
    begin: u64,
    piece: Vec<u8>,
    footer: Option<Footer>,
}

impl Walk<'_> {
    /// At least `length` bytes at `at`, or all up to the end.
    fn bytes(&mut self, at: u64, length: u64) -> Result<&[u8], ReadError> {
        let end = (at + length).min(self.end);
        if self.begin > at || self.begin + (self.piece.len() as u64) < end {
            let length = length.max(PIECE_BYTES).min(self.end - at);
            let Surveyed { drive, medium, access, .. } = *self.of;
            self.piece.clear();
            let read = || {
                piece(medium, at, length).map_err(|error| match error {
                    ReadError::Drive(error) => error,
                    other => std::io::Error::new(std::io::ErrorKind::UnexpectedEof, other),
                })
            };
            (self.piece, self.begin) = (access.run(drive, read)?, at);
        }
        Ok(&self.piece[(at - self.begin) as usize..])
    }

    fn look(&mut self, at: u64) -> Result<Found, ReadError> {
        let stamp = self.of.identity.file.stamp();
        let bytes = self.bytes(at, HEAD_BYTES as u64)?;
        if let Some(bytes) = node_bytes(bytes, stamp) {
            return Ok(Found::Node(bytes));
        }
        let Ok(head) = Head::decode(bytes, stamp) else {
            return Ok(Found::Nothing(self.next(at)?));
        };
        let bytes = self.bytes(at, head.bytes() as u64)?;
        Ok(match (head.kind, head.record(bytes), head.key(bytes)) {
            (Kind::Put | Kind::Delete, Ok(record), _) => Found::Record(head, record.key.to_vec()),
            (Kind::Put | Kind::Delete, Err(_), Ok(key)) => Found::Value(head, key.to_vec()),
            _ => Found::Nothing(head.bytes() as u64),
        })
    }

    /// The distance from `at` to the next record or inner node, or to the end.
    fn next(&mut self, at: u64) -> Result<u64, ReadError> {
        let (stamp, identity, end) = (self.of.identity.file.stamp(), self.of.identity, self.end);
        let mut place = at + 8;
        while place < end {
            let bytes = self.bytes(place, EDGE_BYTES)?;
            if node_bytes(bytes, stamp).is_some() || Head::decode(bytes, stamp).is_ok() {
                return Ok(place - at);
            }
            if let Some(footer) = footer_at(bytes, identity, place) {
                self.footer = Some(footer);
            }
            place += 8;
        }
        Ok(end - at)
    }
}
