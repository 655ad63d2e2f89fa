//! Records and fields of CSV as in RFC 4180, with commas.
//!
//! Lines without quotes, which are most, are cut by searching for bytes. Records with quotes are read by `csv-core`:
//! a field that begins with a quote extends to the next quote that is not doubled, and then, like any other, to a comma
//! or line feed.
//!
//! A carriage return outside quotes must be followed by a line feed or the end of the object. Anything else is refused:
//! an object whose lines end in carriage returns alone would otherwise be one header without records.
//!
//! Invariants:
//! - A record found by [`Reader::record`] has the fields that [`Reader::texts`] and [`Reader::ranges`] find, regardless
//!   of the positions at which the bytes were cut.

use csv_core::{ReadFieldResult, ReadRecordResult};
use memchr::{memchr, memchr_iter, memchr2};
use std::ops::Range;

/// The minimum size of a buffer: bytes and fields that are read at a time.
const ROOM: usize = 256;

/// A record at the beginning of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordSpan {
    /// Its length without the line ending; 0 for an empty line.
    pub bytes: usize,
    /// The position of the next record.
    pub next: usize,
    /// The number of its fields.
    pub fields: usize,
}

/// The reason why there is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CsvFlaw {
    /// A quote that is never closed.
    Unclosed,
    /// A carriage return, outside quotes, that no line feed follows.
    BareReturn,
}

/// The texts of a record's fields.
#[derive(Debug)]
pub(crate) struct Texts<'a> {
    text: &'a [u8],
    /// The end of each field in `text`.
    ends: &'a [usize],
    /// Bytes between two fields.
    gap: usize,
}

impl<'a> Texts<'a> {
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The text of a field, without its quotes; empty beyond the last field.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        let Some(end) = self.ends.get(index) else { return &[] };
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before] + self.gap);
        &self.text[begin..*end]
    }
}

/// Reads records one by one. Between them it stores nothing but buffers.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Created at the first quote, since its creation takes time.
    quoted: Option<Box<csv_core::Reader>>,
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Reader {
    /// The record at the beginning of `bytes`; `None` if they do not contain its end and are not the `last`.
    pub(crate) fn record(&mut self, bytes: &[u8], last: bool) -> Result<Option<RecordSpan>, CsvFlaw> {
        let feed = memchr(b'\n', bytes);
        let (line, next) = feed.map_or((bytes, bytes.len()), |feed| (&bytes[..feed], feed + 1));
        let line = match memchr2(b'"', b'\r', line) {
            None => line,
            Some(at) if line[at] == b'"' => return self.quoted_record(bytes, last),
            Some(at) if at + 1 == line.len() => &line[..at],
            Some(_) => return Err(CsvFlaw::BareReturn),
        };
        let whole = feed.is_some() || last;
        Ok(whole.then(|| RecordSpan { bytes: line.len(), next, fields: memchr_iter(b',', line).count() + 1 }))
    }

    fn quoted_record(&mut self, bytes: &[u8], last: bool) -> Result<Option<RecordSpan>, CsvFlaw> {
        let reader = fresh(&mut self.quoted);
        let (text, ends) = (room(&mut self.text, 1), room(&mut self.ends, 1));
        let (mut at, mut fields) = (0, 0);
        loop {
            // A line feed after the last byte ends any record except one with an open quote.
            let rest = if at < bytes.len() { &bytes[at..] } else { b"\n" };
            let (result, read, _, found) = reader.read_record(rest, text, ends);
            (at, fields) = (at + read, fields + found);
            match result {
                ReadRecordResult::Record => break,
                ReadRecordResult::InputEmpty if !last => return Ok(None),
                ReadRecordResult::InputEmpty if at > bytes.len() => return Err(CsvFlaw::Unclosed),
                _ => {}
            }
        }
        let next = match &bytes[at - 1..] {
            [b'\r', b'\n', ..] => at + 1,
            [b'\r'] if !last => return Ok(None),
            [b'\r', _, ..] => return Err(CsvFlaw::BareReturn),
            _ => at.min(bytes.len()),
        };
        Ok(Some(RecordSpan { bytes: at - 1, next, fields }))
    }

    /// The texts of all fields of a record.
    pub(crate) fn texts<'a>(&'a mut self, record: &'a [u8]) -> Texts<'a> {
        if memchr(b'"', record).is_none() {
            self.ends.clear();
            self.ends.extend(memchr_iter(b',', record).chain([record.len()]));
            return Texts { text: record, ends: &self.ends, gap: 1 };
        }
        let reader = fresh(&mut self.quoted);
        let text = room(&mut self.text, record.len() + 1);
        let ends = room(&mut self.ends, memchr_iter(b',', record).count() + 1);
        let (_, _, written, found) = reader.read_record(record, text, ends);
        let (.., rest) = reader.read_record(b"\n", &mut text[written..], &mut ends[found..]);
        Texts { text, ends: &ends[..found + rest], gap: 0 }
    }

    /// The ranges of a record's fields, quotes included.
    pub(crate) fn ranges(&mut self, record: &[u8]) -> Vec<Range<usize>> {
        let ends = if memchr(b'"', record).is_none() {
            memchr_iter(b',', record).chain([record.len()]).collect()
        } else {
            self.quoted_ends(record)
        };
        let begins = std::iter::once(0).chain(ends.iter().map(|end| end + 1));
        begins.zip(&ends).map(|(begin, end)| begin..*end).collect()
    }

    fn quoted_ends(&mut self, record: &[u8]) -> Vec<usize> {
        let reader = fresh(&mut self.quoted);
        let (text, mut ends, mut at) = (room(&mut self.text, 1), Vec::new(), 0);
        while at <= record.len() {
            let rest = if at < record.len() { &record[at..] } else { b"\n" };
            let (result, read, _) = reader.read_field(rest, text);
            at += read;
            if matches!(result, ReadFieldResult::Field { .. }) {
                ends.push(at - 1);
            }
        }
        ends
    }
}

/// The buffer, with room for `least` values or more.
fn room<T: Clone + Default>(buffer: &mut Vec<T>, least: usize) -> &mut [T] {
    if buffer.len() < least.max(ROOM) {
        buffer.resize(least.max(ROOM), T::default());
    }
    buffer
}

/// The reader at the beginning of a record in the middle of an object, where a byte order mark is a character.
fn fresh(reader: &mut Option<Box<csv_core::Reader>>) -> &mut csv_core::Reader {
    let reader = reader.get_or_insert_with(|| Box::new(csv_core::Reader::new()));
    reader.reset();
    reader.read_record(b"\n", &mut [0], &mut [0]);
    reader
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// All records but those of empty lines, each found three ways that must agree.
    fn read(bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let (mut records, mut at, mut reader) = (Vec::new(), 0, Reader::default());
        while at < bytes.len() {
            let found = reader.record(&bytes[at..], true).unwrap().unwrap();
            let line = &bytes[at..at + found.bytes];
            at += found.next;
            if !line.is_empty() {
                let texts = reader.texts(line);
                assert!(texts.get(texts.count()).is_empty());
                let texts: Vec<Vec<u8>> = (0..texts.count()).map(|index| texts.get(index).to_vec()).collect();
                let ranges = reader.ranges(line);
                assert_eq!((texts.len(), ranges.len()), (found.fields, found.fields));
                for (range, text) in ranges.into_iter().zip(&texts) {
                    assert_eq!(reader.texts(&line[range]).get(0), text);
                }
                records.push(texts);
            }
        }
        records
    }

    fn written(rows: &[Vec<String>], quote_all: bool, line_end: &str) -> String {
        let field = |text: &String| {
            if quote_all || text.contains(['"', ',', '\n', '\r']) {
                format!("\"{}\"", text.replace('"', "\"\""))
            } else {
                text.clone()
            }
        };
        let lines = rows.iter().map(|row| row.iter().map(field).collect::<Vec<_>>().join(","));
        lines.collect::<Vec<_>>().join(line_end)
    }

    proptest! {
        #[test]
        fn records_and_fields_are_those_that_were_written(
            rows in prop::collection::vec(prop::collection::vec("[a\",\r\n\u{e9}\u{feff} ]{0,4}", 1..4), 0..5),
            quote_all in any::<bool>(),
            line_end in prop::sample::select(vec!["\n", "\r\n"]),
        ) {
            let text = written(&rows, quote_all, line_end);
            let bytes = |row: &Vec<String>| row.iter().map(|field| field.as_bytes().to_vec()).collect::<Vec<_>>();
            let lines = rows.iter().filter(|row| quote_all || row.len() > 1 || !row[0].is_empty());
            prop_assert_eq!(read(text.as_bytes()), lines.map(bytes).collect::<Vec<_>>());
        }

        #[test]
        fn a_record_is_the_same_wherever_the_bytes_are_cut(text in "[a\",\n\r]{0,12}", cut in 0_usize..12) {
            let bytes = text.as_bytes();
            let cut = &bytes[..cut.min(bytes.len())];
            let mut reader = Reader::default();
            if let Ok(Some(found)) = reader.record(cut, false) {
                prop_assert_eq!(reader.record(bytes, true), Ok(Some(found)));
            }
        }
    }

    #[test]
    fn odd_quotes_and_line_endings_are_read_as_other_readers_do_or_refused() {
        let long = format!("\"{}\"", "long, ".repeat(2000));
        for (bytes, record) in [
            ("\"a\"\"b\"c,d\"e\n", Some((11, 12, 2))),
            ("\"a\nb\",\r\nc", Some((6, 8, 2))),
            ("\"\"\n", Some((2, 3, 1))),
            ("\"a\"\r", Some((3, 4, 1))),
            ("\"a\"", Some((3, 3, 1))),
            ("\u{feff}\"a,b\"", Some((8, 8, 2))),
            (&long, Some((12002, 12002, 1))),
            ("\"a\"\rb\n", None),
            ("a\rb\n", None),
            ("\"a", None),
            ("\"a\"\"\n", None),
        ] {
            let found = Reader::default().record(bytes.as_bytes(), true).ok().flatten();
            assert_eq!(found.map(|found| (found.bytes, found.next, found.fields)), record, "{bytes:?}");
        }
        assert_eq!(Reader::default().record(b"\"a\"\"\n", true), Err(CsvFlaw::Unclosed));
        assert_eq!(Reader::default().record(b"\"a\"\rb", true), Err(CsvFlaw::BareReturn));
        for incomplete in ["\"a\"\r", "\"a\nb", "\"a\""] {
            assert_eq!(Reader::default().record(incomplete.as_bytes(), false), Ok(None), "{incomplete:?}");
        }
    }
}
