//! Records and fields of CSV as RFC 4180 has them, with commas.
//!
//! Most records have no quotes, and their ends are found by looking for bytes. Those with quotes go through the state
//! machine of `csv-core`.
//!
//! Invariants:
//! - A record cut out by [`record`] has the fields that [`split`] finds, wherever the bytes were cut before.

use csv_core::{ReadFieldResult, ReaderBuilder, Terminator};
use memchr::{memchr, memchr_iter, memrchr};
use std::borrow::Cow;
use std::ops::Range;

/// A record at the beginning of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its length without what ends it; 0 for an empty line.
    pub bytes: usize,
    /// Where the next one begins.
    pub next: usize,
    /// How many fields it has.
    pub fields: usize,
}

/// A quote that is never closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unclosed;

/// The record at the beginning of `bytes`, if it ends there, or wherever it ends if they are the `last`.
pub(crate) fn record(bytes: &[u8], last: bool) -> Result<Option<Record>, Unclosed> {
    let (line, next) = match memchr(b'\n', bytes) {
        Some(feed) => (&bytes[..feed], feed + 1),
        None if last => (bytes, bytes.len()),
        None => return Ok(None),
    };
    if memchr(b'"', line).is_none() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        return Ok(Some(Record { bytes: line.len(), next, fields: memchr_iter(b',', line).count() + 1 }));
    }
    let Some((ends, next)) = quoted_ends(bytes, last)? else { return Ok(None) };
    let bytes = ends.last().copied().unwrap_or(0);
    Ok(Some(Record { bytes, next, fields: ends.len() }))
}

/// Where each field of the record at the beginning of `bytes` ends, and where the next record begins.
fn quoted_ends(bytes: &[u8], last: bool) -> Result<Option<(Vec<usize>, usize)>, Unclosed> {
    let mut reader = ReaderBuilder::new().terminator(Terminator::Any(b'\n')).build();
    let mut text = [0; 512];
    let (mut ends, mut at) = (Vec::new(), 0);
    let returned = |end: usize| end - usize::from(bytes[..end].ends_with(b"\r"));
    while at < bytes.len() {
        let (result, read, _) = reader.read_field(&bytes[at..], &mut text);
        at += read;
        match result {
            ReadFieldResult::Field { record_end: false } => ends.push(at - 1),
            ReadFieldResult::Field { record_end: true } => {
                ends.push(returned(at - 1));
                return Ok(Some((ends, at)));
            }
            ReadFieldResult::OutputFull | ReadFieldResult::InputEmpty => {}
            ReadFieldResult::End => return Ok(None),
        }
    }
    if !last {
        return Ok(None);
    }
    loop {
        match reader.read_field(b"\n", &mut text).0 {
            ReadFieldResult::OutputFull => {}
            ReadFieldResult::Field { .. } => break,
            ReadFieldResult::InputEmpty | ReadFieldResult::End => return Err(Unclosed),
        }
    }
    ends.push(returned(bytes.len()));
    Ok(Some((ends, bytes.len())))
}

/// The fields of one record, as they stand in it.
pub(crate) fn split(record: &[u8]) -> Vec<Range<usize>> {
    let ends = if memchr(b'"', record).is_none() {
        memchr_iter(b',', record).chain([record.len()]).collect()
    } else {
        quoted_ends(record, true).ok().flatten().map_or_else(|| vec![record.len()], |(ends, _)| ends)
    };
    let begins = std::iter::once(0).chain(ends.iter().map(|end| end + 1));
    begins.zip(&ends).map(|(begin, end)| begin..*end).collect()
}

/// The text of a field, without its quotes.
pub(crate) fn unquoted(field: &[u8]) -> Cow<'_, [u8]> {
    let Some(inner) = field.strip_prefix(b"\"") else { return Cow::Borrowed(field) };
    let (inner, rest) = match memrchr(b'"', inner) {
        Some(close) => (&inner[..close], &inner[close + 1..]),
        None => (inner, &inner[..0]),
    };
    if memchr(b'"', inner).is_none() && rest.is_empty() {
        return Cow::Borrowed(inner);
    }
    let mut text = Vec::with_capacity(inner.len());
    let mut doubled = false;
    for byte in inner {
        doubled = *byte == b'"' && !doubled;
        if !doubled {
            text.push(*byte);
        }
    }
    text.extend_from_slice(rest);
    Cow::Owned(text)
}
