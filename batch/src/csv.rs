//! Records and fields of CSV as RFC 4180 has them, with commas.
//!
//! A field that begins with a quote goes on to the next quote that is not doubled, and then, as any other, to a comma
//! or line feed. Most records have no quotes; of those the ends are found by looking for bytes alone.
//!
//! A carriage return outside of quotes stands before a line feed or at the end of all, or the record is refused: what
//! ends its lines with carriage returns alone would otherwise be one header without records.
//!
//! Invariants:
//! - A record cut out by [`record`] has the fields that [`split`] finds, wherever the bytes were cut before.

use memchr::{memchr, memchr_iter, memchr2, memchr3};
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

/// Why there is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A quote that is never closed.
    Unclosed,
    /// A carriage return, outside of quotes, that no line feed follows.
    BareReturn,
}

/// The record at the beginning of `bytes`, if it ends there, or wherever it ends if they are the `last`.
pub(crate) fn record(bytes: &[u8], last: bool) -> Result<Option<Record>, Flaw> {
    let feed = memchr(b'\n', bytes);
    let (line, next) = feed.map_or((bytes, bytes.len()), |feed| (&bytes[..feed], feed + 1));
    let line = match memchr2(b'"', b'\r', line) {
        None => Some(line),
        Some(at) if line[at] == b'"' => None,
        Some(at) if at + 1 == line.len() => Some(&line[..at]),
        Some(_) => return Err(Flaw::BareReturn),
    };
    if let Some(line) = line {
        let whole = feed.is_some() || last;
        let record = || Record { bytes: line.len(), next, fields: memchr_iter(b',', line).count() + 1 };
        return Ok(whole.then(record));
    }
    let Some((ends, next)) = quoted_ends(bytes, last)? else { return Ok(None) };
    let bytes = ends.last().copied().unwrap_or(0);
    Ok(Some(Record { bytes, next, fields: ends.len() }))
}

/// Where each field of the record at the beginning of `bytes` ends, and where the next record begins.
fn quoted_ends(bytes: &[u8], last: bool) -> Result<Option<(Vec<usize>, usize)>, Flaw> {
    let (mut ends, mut at) = (Vec::new(), 0);
    loop {
        if bytes.get(at) == Some(&b'"') {
            match closed(bytes, at + 1) {
                Some(close) => at = close + 1,
                None => return if last { Err(Flaw::Unclosed) } else { Ok(None) },
            }
        }
        let end = memchr3(b',', b'\n', b'\r', &bytes[at..]).map_or(bytes.len(), |length| at + length);
        let next = match &bytes[end..] {
            [b',', ..] => {
                ends.push(end);
                at = end + 1;
                continue;
            }
            [b'\n', ..] => end + 1,
            [b'\r', b'\n', ..] => end + 2,
            [] | [b'\r'] if last => bytes.len(),
            [] | [b'\r'] => return Ok(None),
            _ => return Err(Flaw::BareReturn),
        };
        ends.push(end);
        return Ok(Some((ends, next)));
    }
}

/// Where the quote is that closes a field, behind those that stand for one.
fn closed(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let quote = at + memchr(b'"', &bytes[at..])?;
        if bytes.get(quote + 1) != Some(&b'"') {
            return Some(quote);
        }
        at = quote + 2;
    }
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

/// One field of a record, as it stands in it; nothing behind its last.
pub(crate) fn field(record: &[u8], index: usize) -> Range<usize> {
    if memchr(b'"', record).is_some() {
        return split(record).into_iter().nth(index).unwrap_or_default();
    }
    let mut commas = memchr_iter(b',', record);
    let begin = index.checked_sub(1).map_or(Some(0), |before| commas.nth(before).map(|comma| comma + 1));
    begin.map_or(0..0, |begin| begin..commas.next().unwrap_or(record.len()))
}

/// The text of a field, without its quotes.
pub(crate) fn unquoted(field: &[u8]) -> Cow<'_, [u8]> {
    let Some(close) = field.starts_with(b"\"").then(|| closed(field, 1)).flatten() else { return Cow::Borrowed(field) };
    let (inner, rest) = (&field[1..close], &field[close + 1..]);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use csv_core::{ReadFieldResult, Reader};
    use proptest::prelude::*;

    /// Records as `csv-core` reads them, without those of empty lines.
    fn judged(bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let (mut reader, mut at) = (Reader::new(), 0);
        let (mut records, mut fields, mut field, mut text) = (Vec::new(), Vec::new(), Vec::new(), vec![0; 1000]);
        loop {
            let (result, read, written) = reader.read_field(&bytes[at..], &mut text);
            at += read;
            field.extend_from_slice(&text[..written]);
            match result {
                ReadFieldResult::Field { record_end } => {
                    fields.push(std::mem::take(&mut field));
                    if record_end {
                        records.push(std::mem::take(&mut fields));
                    }
                }
                ReadFieldResult::End => return records,
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
            }
        }
    }

    fn ours(bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let (mut records, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let found = record(&bytes[at..], true).unwrap().unwrap();
            let line = &bytes[at..at + found.bytes];
            at += found.next;
            if !line.is_empty() {
                let fields = split(line);
                assert_eq!(fields.len(), found.fields);
                assert!((0..fields.len()).all(|index| field(line, index) == fields[index]));
                assert!(field(line, fields.len()).is_empty());
                records.push(fields.into_iter().map(|field| unquoted(&line[field]).into_owned()).collect());
            }
        }
        records
    }

    proptest! {
        #[test]
        fn records_and_fields_are_those_that_another_reader_finds(
            rows in prop::collection::vec(prop::collection::vec("[a\",\n\u{e9} ]{0,4}", 1..4), 0..5),
            quote_all in any::<bool>(),
        ) {
            let field = |text: &String| {
                if quote_all || text.contains(['"', ',', '\n']) {
                    format!("\"{}\"", text.replace('"', "\"\""))
                } else {
                    text.clone()
                }
            };
            let lines = rows.iter().map(|row| row.iter().map(field).collect::<Vec<_>>().join(","));
            let text = lines.collect::<Vec<_>>().join("\n");
            prop_assert_eq!(ours(text.as_bytes()), judged(text.as_bytes()));
        }

        #[test]
        fn a_record_is_the_same_wherever_the_bytes_are_cut(text in "[a\",\n\r]{0,12}", cut in 0_usize..12) {
            let bytes = text.as_bytes();
            let cut = &bytes[..cut.min(bytes.len())];
            if let Ok(Some(found)) = record(cut, false) {
                prop_assert_eq!(record(bytes, true), Ok(Some(found)));
            }
        }
    }
}
