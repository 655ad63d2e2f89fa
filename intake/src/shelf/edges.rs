//! The edges of a shelf: its header, and its footer and tail, which exist twice.
//!
//! One footer and one tail are enough. A damaged header does no harm if a footer identifies the file. The footer is
//! looked for at the end of the file and, if it is not there, some way before it: a file may have grown. If any edge is
//! damaged, the shelf is worn, and is rewritten as background work.

use crate::bytes::{Damage, crc32c};
use crate::error::ReadError;
use crate::medium::{File, read_past_bad_sectors};
use crate::names::Identity;
use crate::shelf::format::{EDGE_BYTES, FOOTER, Footer, Tail, check_header};
use std::io;

/// Distance from the end in which a footer is looked for.
const SEARCH_BYTES: u64 = 8 << 20;

/// Bytes per read of a search.
const PIECE_BYTES: u64 = 1 << 20;

/// The readable edges of a shelf.
pub(super) struct Edges {
    pub(super) header: Result<(), Damage>,
    /// True if all of it is as it was written.
    pub(super) is_whole: bool,
    pub(super) footer: Option<Footer>,
    pub(super) tail: Option<Tail>,
}

/// The edges of a file of `bytes`.
pub(super) fn read(medium: &dyn File, identity: Identity, bytes: u64) -> Result<Edges, ReadError> {
    let header = check_header(&piece(medium, 0, EDGE_BYTES.min(bytes))?, identity);
    let last = bytes.saturating_sub(EDGE_BYTES);
    let found = match Footer::decode(&piece(medium, last, bytes - last)?, identity, last) {
        Ok(footer) => Some(footer),
        // A shelf of a later version is left alone. Only here: further back the bytes may belong to a value.
        Err(damage @ Damage::Version(_)) => return Err(damage.into()),
        Err(_) => find(medium, identity, bytes.saturating_sub(SEARCH_BYTES), bytes)?,
    };
    match found {
        Some(footer) => Edges::of(medium, identity, bytes, header, footer),
        None => Ok(Edges { header, is_whole: false, footer: None, tail: None }),
    }
}

impl Edges {
    /// The edges of the shelf with this `footer`.
    pub(super) fn of(
        medium: &dyn File,
        identity: Identity,
        bytes: u64,
        header: Result<(), Damage>,
        footer: Footer,
    ) -> Result<Self, ReadError> {
        let places = footer.places();
        let begin = footer.tail.offset;
        let ends = piece(medium, begin, places.end.min(bytes).saturating_sub(begin))?;
        let part = |at: u64, length: u64| ends.get((at - begin) as usize..)?.get(..length as usize);
        let is_tail = |tail: &&[u8]| crc32c(tail) == footer.tail_crc;
        let tails = places.tails.map(|at| part(at, footer.tail.bytes.into()).filter(is_tail));
        let is_footer = |at: u64| {
            part(at, EDGE_BYTES).is_some_and(|block| Footer::decode(block, identity, at).as_ref() == Ok(&footer))
        };
        let are_whole = tails.iter().all(Option::is_some) && places.footers.iter().all(|at| is_footer(*at));
        let is_whole = are_whole && header.is_ok() && bytes == places.end;
        let tail = tails.into_iter().flatten().find_map(|tail| Tail::decode(tail, footer.version).ok());
        Ok(Self { header, is_whole, footer: Some(footer), tail })
    }
}

/// The last footer of the shelf from `from` on and before `to`, at a multiple of 8.
fn find(medium: &dyn File, identity: Identity, from: u64, to: u64) -> Result<Option<Footer>, ReadError> {
    let mut end = to;
    while end > from {
        let begin = end.saturating_sub(PIECE_BYTES).max(from).next_multiple_of(8);
        let read = piece(medium, begin, (end + EDGE_BYTES).min(to).saturating_sub(begin))?;
        let mut places = (0..read.len()).step_by(8).rev();
        let found = places.find_map(|at| footer_at(&read[at..], identity, begin + at as u64));
        if found.is_some() || begin >= end {
            return Ok(found);
        }
        end = begin;
    }
    Ok(None)
}

/// The footer at the start of `bytes`, which are at `at` in the file.
pub(super) fn footer_at(bytes: &[u8], identity: Identity, at: u64) -> Option<Footer> {
    bytes.starts_with(&FOOTER).then(|| Footer::decode(bytes, identity, at).ok()).flatten()
}

/// `length` bytes of a file; unreadable sectors are zeros. A shorter file is damaged.
pub(super) fn piece(medium: &dyn File, at: u64, length: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; length as usize];
    match read_past_bad_sectors(medium, &mut bytes, at) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Damage::Short.into()),
        Err(error) => Err(error.into()),
    }
}
