//! Reading a shelf: one key, or keys in order.
//!
//! A shelf that turns out to be damaged is marked ([`Shelf::is_suspect`]), and is replaced by one that is read
//! according to a survey ([`crate::shelf::salvage`]): [`Shelf::surveyed`]. So no reader sees a shelf with changing
//! content.

use crate::bytes::Damage;
use crate::drive::Drive;
use crate::error::ReadError;
use crate::lost::{Loss, LostPart};
use crate::mask::Mask;
use crate::medium::{File, read_past_bad_sectors};
use crate::names::{FileId, Identity, Name};
use crate::record::{Head, Record, Sequence, decode};
use crate::shelf::access::Access;
use crate::shelf::edges::{self, Edges};
use crate::shelf::format::{Child, Extent, Footer, Tail, decode_node};
use crate::shelf::salvage::{Survey, Surveyed};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum accepted bytes of a node: a leaf of one record with the longest key, entry and value.
const NODE_BYTES_MAX: u32 = 1 << 30;

/// A shelf.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) file: FileId,
    pub(crate) drive: Arc<Drive>,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    medium: Arc<dyn File>,
    identity: Identity,
    footer: Footer,
    tail: Tail,
    /// The places of its records, if its nodes are not used.
    survey: Option<Survey>,
    /// The damage to its edges.
    wear: Wear,
    /// A part of it was read and found damaged; and that was reported.
    suspect: AtomicBool,
    reported: AtomicBool,
    /// No lost number is above this one.
    bound: AtomicU64,
}

/// The amount of damage to the edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wear {
    None,
    Some,
    /// No footer can be read, so the number of records is unknown.
    Footer,
    /// No tail can be read, so the forgotten ranges are unknown.
    Tail,
}

impl Shelf {
    /// Opens a shelf: three reads, unless it is so damaged that it must be surveyed.
    pub(crate) fn open(drive: &Arc<Drive>, medium: Box<dyn File>, identity: Identity) -> Result<Self, ReadError> {
        let medium = Arc::<dyn File>::from(medium);
        let bytes = medium.bytes()?;
        let edges = edges::read(medium.as_ref(), identity, bytes)?;
        let header = edges.header;
        let mut shelf = Self::of(drive, &medium, identity, bytes, edges);
        if shelf.wear == Wear::Footer {
            if let Err(damage @ (Damage::Elsewhere | Damage::Version(_))) = header {
                return Err(damage.into());
            }
            let survey = shelf.survey(Access::Stage)?;
            match survey.footer {
                None if survey.records == 0 => return Err(header.err().unwrap_or(Damage::Field("footer")).into()),
                None => return Ok(shelf.with(survey)),
                Some(footer) => {
                    let edges = Edges::of(medium.as_ref(), identity, bytes, header, footer)?;
                    shelf = Self::of(drive, &medium, identity, bytes, edges);
                }
            }
        }
        if shelf.wear == Wear::Tail { shelf.surveyed(Access::Stage) } else { Ok(shelf) }
    }

    fn of(drive: &Arc<Drive>, medium: &Arc<dyn File>, identity: Identity, bytes: u64, edges: Edges) -> Self {
        let wear = match (&edges.footer, &edges.tail) {
            (Some(_), Some(_)) if edges.is_whole => Wear::None,
            (Some(_), Some(_)) => Wear::Some,
            (Some(_), None) => Wear::Tail,
            (None, _) => Wear::Footer,
        };
        let footer = edges.footer.unwrap_or_default();
        let bytes = edges.footer.map_or(bytes, |footer| footer.places().end);
        let (drive, medium, tail) = (Arc::clone(drive), Arc::clone(medium), edges.tail.unwrap_or_default());
        let (suspect, reported, bound) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(u64::MAX));
        let (file, survey) = (identity.file, None);
        Self { file, drive, bytes, medium, identity, footer, tail, survey, wear, suspect, reported, bound }
    }

    /// The same shelf, read without its nodes from now on: its unreadable parts are known, and lost. Reads everything.
    pub(crate) fn surveyed(&self, access: Access) -> Result<Self, ReadError> {
        let survey = self.survey(access)?;
        let Self { file, bytes, identity, footer, wear, .. } = *self;
        let (drive, medium, tail) = (Arc::clone(&self.drive), Arc::clone(&self.medium), self.tail.clone());
        let (suspect, reported) = (AtomicBool::new(false), AtomicBool::new(false));
        let bound = AtomicU64::new(self.bound.load(Ordering::Relaxed));
        let shelf =
            Self { file, drive, bytes, medium, identity, footer, tail, survey: None, wear, suspect, reported, bound };
        Ok(shelf.with(survey))
    }

    fn survey(&self, access: Access) -> Result<Survey, ReadError> {
        let Self { identity, wear, .. } = *self;
        let (drive, medium, bytes) = (self.drive.as_ref(), self.medium.as_ref(), self.medium.bytes()?);
        let footer = Some(&self.footer).filter(|_| wear != Wear::Footer);
        let tail = Some(&self.tail).filter(|_| matches!(wear, Wear::None | Wear::Some));
        Surveyed { drive, medium, identity, bytes, footer, tail, access }.survey()
    }

    /// The same shelf, read according to `survey`.
    fn with(mut self, mut survey: Survey) -> Self {
        if self.wear == Wear::Footer {
            (self.footer.sequences, self.footer.trailers) = (survey.sequences, survey.trailers);
            self.footer.tail.offset = self.bytes;
        }
        if matches!(self.wear, Wear::Footer | Wear::Tail) {
            self.tail.keys = std::mem::take(&mut survey.keys);
        }
        // All runs are children of one node that is not in the file.
        self.footer.root = Extent { offset: 0, bytes: survey.runs.len().min(1) as u32 };
        self.footer.levels = 1;
        self.survey = Some(survey);
        self
    }

    /// True if it turned out to be damaged, and is still read as before.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Acquire)
    }

    /// The same, but true only once.
    pub(crate) fn turned_suspect(&self) -> bool {
        self.is_suspect() && !self.reported.swap(true, Ordering::AcqRel)
    }

    /// True if it has damage, so that it must be rewritten.
    pub(crate) fn is_worn(&self) -> bool {
        self.wear != Wear::None || self.survey.is_some()
    }

    /// True if its survey found records out of order, and so may have left out whole ones: it is not rewritten.
    pub(crate) fn is_disordered(&self) -> bool {
        self.survey.as_ref().is_some_and(|survey| survey.is_disordered)
    }

    /// True if the ranges that it forgot are unknown.
    pub(crate) fn is_blind(&self) -> bool {
        matches!(self.wear, Wear::Footer | Wear::Tail)
    }

    /// Its lost parts, both its own and those of its sources.
    pub(crate) fn lost(&self) -> Vec<LostPart> {
        let found = self.survey.iter().flat_map(|survey| &survey.lost);
        let bound = Sequence(self.bound.load(Ordering::Relaxed));
        found.chain(&self.tail.lost).map(|part| LostPart { max: part.max.min(bound), ..part.clone() }).collect()
    }

    /// The losses that a survey found, for people.
    pub(crate) fn losses(&self) -> Vec<Loss> {
        let Some(survey) = &self.survey else { return Vec::new() };
        let (file, drive, missing) = (self.file, self.drive.uuid, survey.missing.unwrap_or(0));
        let loss = |part: &LostPart| match &part.keys {
            Some((key, last)) if key == last => Loss::Version { key: key.clone(), sequence: part.max },
            keys => {
                let (first, last) = keys.clone().unwrap_or_default();
                Loss::Shelf { file, drive, keys: (first, last, missing) }
            }
        };
        survey.lost.iter().map(loss).collect()
    }

    /// Notes that no number above `last` had been given at the time of the loss.
    pub(crate) fn bound(&self, last: Sequence) {
        self.bound.fetch_min(last.0, Ordering::Relaxed);
    }

    /// The largest number that it says was given.
    pub(crate) fn last(&self) -> Sequence {
        // A change that forgets has a number above all that it forgets.
        let masks = self.tail.masks.iter().map(|mask| Sequence(mask.up_to.0.saturating_add(1)));
        let lost = self.tail.lost.iter().map(|part| part.max);
        masks.chain(lost).fold(self.footer.sequences.1, Sequence::max)
    }

    /// Marks it as damaged.
    fn damaged(&self, damage: Damage) -> ReadError {
        self.suspect.store(true, Ordering::Release);
        damage.into()
    }

    /// Opens a complete shelf that does not have its name yet. Reads come from its drive, not from memory, if the
    /// medium can do so.
    pub(crate) fn open_unfinished(drive: &Arc<Drive>, identity: Identity) -> Result<Self, ReadError> {
        let medium = drive.directory.open(&Name::Unfinished(identity.file).to_string())?;
        medium.drop_cached();
        let shelf = Self::open(drive, medium, identity)?;
        if shelf.is_worn() { Err(Damage::Checksum.into()) } else { Ok(shelf) }
    }

    /// Reads all of it, to prove that it can be read. `step` is called for each record.
    pub(crate) fn verify(self: &Arc<Self>, access: Access, step: impl Fn() -> io::Result<()>) -> Result<(), ReadError> {
        let mut cursor = self.cursor(&[], access)?;
        let mut records = 0;
        while cursor.record()?.is_some() {
            records += 1;
            step()?;
            cursor.advance()?;
        }
        if records == self.records() { Ok(()) } else { Err(Damage::Field("number of records").into()) }
    }

    pub(crate) fn masks(&self) -> &[Mask] {
        &self.tail.masks
    }

    /// The files that are dead because this shelf is whole.
    pub(crate) fn superseded(&self) -> &[FileId] {
        &self.tail.superseded
    }

    /// Its first and last key; `None` if it has no records.
    pub(crate) fn keys(&self) -> Option<(&[u8], &[u8])> {
        (self.records() > 0).then_some((self.tail.keys.0.as_slice(), self.tail.keys.1.as_slice()))
    }

    /// Its smallest and its largest number.
    pub(crate) fn sequences(&self) -> (Sequence, Sequence) {
        self.footer.sequences
    }

    /// The number of readable records, as far as it is known: after a survey fewer than the footer's number.
    pub(crate) fn records(&self) -> u64 {
        self.survey.as_ref().map_or(self.footer.records, |survey| survey.records)
    }

    /// True if `key` is between its first and its last key, and ends as its keys do.
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        self.footer.trailers.may_have(key) && self.keys().is_some_and(|(first, last)| first <= key && key <= last)
    }

    /// One more than the largest trailer of its keys; 0 if they have none.
    pub(crate) fn trailers_end(&self) -> u64 {
        self.footer.trailers.end()
    }

    /// A cursor at the first record whose key is `key` or above.
    pub(crate) fn from(self: &Arc<Self>, key: &[u8]) -> Result<Cursor, ReadError> {
        self.cursor(key, Access::Direct)
    }

    /// As [`Self::from`], with `access`, for reading everything that follows.
    pub(crate) fn cursor(self: &Arc<Self>, key: &[u8], access: Access) -> Result<Cursor, ReadError> {
        let window = Window { access, begin: 0, bytes: Vec::new() };
        let (shelf, path, leaf, head) = (Arc::clone(self), Vec::new(), Vec::new(), Cell::default());
        let mut cursor = Cursor { shelf, window, path, leaf, at: 0, head };
        if self.footer.root.bytes > 0 {
            cursor.descend(self.footer.root, self.footer.levels, key)?;
            while let Some(record) = cursor.record()?
                && record.key < key
            {
                cursor.advance()?;
            }
        }
        Ok(cursor)
    }

    /// Bytes of leaves that are entirely in the range of `mask`; more than it hides if newer versions are among them.
    /// Reads only inner nodes, as background work.
    pub(crate) fn bytes_in(&self, mask: &Mask) -> Result<u64, ReadError> {
        let mut window = Window { access: Access::Background, begin: 0, bytes: Vec::new() };
        if self.footer.levels == 0 {
            return Ok(0);
        }
        self.bytes_below(&mut window, self.footer.root, self.footer.levels, mask)
    }

    fn bytes_below(&self, window: &mut Window, node: Extent, level: u8, mask: &Mask) -> Result<u64, ReadError> {
        let children = self.node(window, node, level)?;
        let mut bytes = 0;
        for (at, child) in children.iter().enumerate() {
            // The keys below a child end before the next child begins.
            let end = children.get(at + 1).map(|next| next.first.as_slice());
            let begins_after = mask.to.as_deref().is_some_and(|to| child.first.as_slice() >= to);
            if begins_after || end.is_some_and(|end| end <= mask.from.as_slice()) {
                continue;
            }
            if level > 1 {
                bytes += self.bytes_below(window, child.extent, level - 1, mask)?;
            } else if mask.from <= child.first && end.is_some_and(|end| mask.to.as_deref().is_none_or(|to| end <= to)) {
                bytes += u64::from(child.extent.bytes);
            }
        }
        Ok(bytes)
    }

    fn node(&self, window: &mut Window, extent: Extent, level: u8) -> Result<Arc<Vec<Child>>, ReadError> {
        if let Some(survey) = &self.survey {
            return Ok(Arc::clone(&survey.runs));
        }
        let children = decode_node(self.read(window, extent)?, level, self.file.stamp());
        children.map(Arc::new).map_err(|damage| self.damaged(damage))
    }

    fn read<'a>(&self, window: &'a mut Window, extent: Extent) -> Result<&'a [u8], ReadError> {
        let end = extent.offset.checked_add(extent.bytes.into()).filter(|end| *end <= self.footer.tail.offset);
        let Some(end) = end.filter(|_| extent.bytes <= NODE_BYTES_MAX) else {
            return Err(self.damaged(Damage::Field("place of a node")));
        };
        if window.begin > extent.offset || window.begin + (window.bytes.len() as u64) < end {
            let ahead = extent.offset + u64::from(window.access.read_bytes());
            let length = end.max(ahead.min(self.footer.tail.offset)) - extent.offset;
            window.begin = extent.offset;
            // Only the growth is cleared: all of it is overwritten.
            window.bytes.resize(length as usize, 0);
            let read = window
                .access
                .run(&self.drive, || read_past_bad_sectors(self.medium.as_ref(), &mut window.bytes, extent.offset));
            if let Err(error) = read {
                window.bytes.clear();
                let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
                return Err(if is_short { self.damaged(Damage::Short) } else { error.into() });
            }
        }
        let from = (extent.offset - window.begin) as usize;
        Ok(&window.bytes[from..from + extent.bytes as usize])
    }
}

/// The last piece of a shelf that was read.
struct Window {
    access: Access,
    begin: u64,
    bytes: Vec<u8>,
}

/// A place in a shelf. Memory: two leaves, or a MiB for reads of that size, and an inner node for each level.
pub(crate) struct Cursor {
    shelf: Arc<Shelf>,
    window: Window,
    /// The inner nodes above the leaf from the root down, and the next child of each.
    path: Vec<(Arc<Vec<Child>>, usize)>,
    leaf: Vec<u8>,
    at: usize,
    /// The head of the record at this place, once it was verified.
    head: Cell<Option<Head>>,
}

impl Cursor {
    /// The record at this place; `None` at the end.
    pub(crate) fn record(&self) -> Result<Option<Record<'_>>, ReadError> {
        Ok(self.head_and_record()?.map(|(_, record)| record))
    }

    /// The record at this place with its head.
    pub(crate) fn head_and_record(&self) -> Result<Option<(Head, Record<'_>)>, ReadError> {
        let Some(bytes) = self.leaf.get(self.at..).filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        if let Some(head) = self.head.get() {
            return Ok(Some((head, head.verified(bytes)?)));
        }
        let (head, record) = decode(bytes, self.shelf.file.stamp()).map_err(|damage| self.shelf.damaged(damage))?;
        self.head.set(Some(head));
        Ok(Some((head, record)))
    }

    /// Goes to the next record. Must not be called at the end.
    pub(crate) fn advance(&mut self) -> Result<(), ReadError> {
        assert!(self.at < self.leaf.len(), "there is a record to leave");
        let head = self.head_and_record()?.map(|(head, _)| head).ok_or(Damage::Short)?;
        self.head.set(None);
        self.at += head.bytes();
        while self.at >= self.leaf.len() {
            let Some((children, next)) = self.path.last_mut() else { return Ok(()) };
            let Some(child) = children.get(*next) else {
                self.path.pop();
                continue;
            };
            *next += 1;
            let extent = child.extent;
            let level = self.shelf.footer.levels - self.path.len() as u8;
            self.descend(extent, level, &[])?;
        }
        Ok(())
    }

    /// Descends from the node at `extent` to the leaf that may have `key`.
    fn descend(&mut self, mut extent: Extent, level: u8, key: &[u8]) -> Result<(), ReadError> {
        for level in (1..=level).rev() {
            let children = self.shelf.node(&mut self.window, extent, level)?;
            let child = children.partition_point(|child| child.first.as_slice() <= key).saturating_sub(1);
            extent = children[child].extent;
            self.path.push((children, child + 1));
        }
        self.head.set(None);
        let leaf = self.shelf.read(&mut self.window, extent)?;
        self.leaf.clear();
        self.leaf.extend_from_slice(leaf);
        self.at = 0;
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
