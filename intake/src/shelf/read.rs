//! Reading a shelf: one key, or keys in order.

use crate::bytes::{Damage, crc32c};
use crate::drive::Drive;
use crate::error::ReadError;
use crate::mask::Mask;
use crate::medium::File;
use crate::names::{FileId, Identity, Name};
use crate::record::{Head, Record, Sequence, decode};
use crate::shelf::access::Access;
use crate::shelf::format::{Child, EDGE_BYTES, Extent, Footer, Tail, check_header, decode_node};
use std::cell::Cell;
use std::io;
use std::sync::Arc;

/// Bytes of a node that are believed: a leaf of one record with the longest key, entry and value.
const NODE_BYTES_MAX: u32 = 1 << 30;

/// A shelf that is whole.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) file: FileId,
    pub(crate) drive: Arc<Drive>,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    medium: Box<dyn File>,
    footer: Footer,
    tail: Tail,
}

impl Shelf {
    /// Opens a shelf: three reads.
    pub(crate) fn open(drive: &Arc<Drive>, medium: Box<dyn File>, identity: Identity) -> Result<Self, ReadError> {
        let bytes = medium.bytes()?;
        if bytes < 2 * EDGE_BYTES {
            return Err(Damage::Short.into());
        }
        let mut edge = [0; EDGE_BYTES as usize];
        medium.read_at(&mut edge, 0)?;
        check_header(&edge, identity)?;
        medium.read_at(&mut edge, bytes - EDGE_BYTES)?;
        let footer = Footer::decode(&edge, identity, bytes)?;
        let mut tail = vec![0; footer.tail.bytes as usize];
        medium.read_at(&mut tail, footer.tail.offset)?;
        if crc32c(&tail) != footer.tail_crc {
            return Err(Damage::Checksum.into());
        }
        let tail = Tail::decode(&tail)?;
        Ok(Self { file: identity.file, drive: Arc::clone(drive), bytes, medium, footer, tail })
    }

    /// Opens a shelf that is complete but has not its name yet.
    pub(crate) fn open_unfinished(drive: &Arc<Drive>, identity: Identity) -> Result<Self, ReadError> {
        let medium = drive.directory.open(&Name::Unfinished(identity.file).to_string())?;
        Self::open(drive, medium, identity)
    }

    /// Reads all of it, as a proof that it can be read. `step` is called for each record.
    pub(crate) fn verify(self: &Arc<Self>, access: Access, step: impl Fn() -> io::Result<()>) -> Result<(), ReadError> {
        let mut cursor = self.cursor(&[], access)?;
        let mut records = 0;
        while cursor.record()?.is_some() {
            records += 1;
            step()?;
            cursor.advance()?;
        }
        if records == self.footer.records { Ok(()) } else { Err(Damage::Field("number of records").into()) }
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
        (self.footer.records > 0).then_some((self.tail.keys.0.as_slice(), self.tail.keys.1.as_slice()))
    }

    /// Its smallest and its largest number.
    pub(crate) fn sequences(&self) -> (Sequence, Sequence) {
        self.footer.sequences
    }

    pub(crate) fn records(&self) -> u64 {
        self.footer.records
    }

    /// Whether `key` lies between its first and its last key, and ends as its keys do.
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

    /// The same, for all that follows to be read.
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

    /// Bytes of leaves that lie wholly in the range of `mask`, which is more than what it hides if there are newer
    /// versions among them. Reads inner nodes only, as background work.
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
            // Keys below a child end before the next one begins.
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

    fn node(&self, window: &mut Window, extent: Extent, level: u8) -> Result<Vec<Child>, ReadError> {
        Ok(decode_node(self.read(window, extent)?, level, self.file.stamp())?)
    }

    fn read<'a>(&self, window: &'a mut Window, extent: Extent) -> Result<&'a [u8], ReadError> {
        let end = extent.offset.checked_add(extent.bytes.into()).filter(|end| *end <= self.footer.tail.offset);
        let Some(end) = end.filter(|_| extent.bytes <= NODE_BYTES_MAX) else {
            return Err(Damage::Field("place of a node").into());
        };
        if window.begin > extent.offset || window.begin + (window.bytes.len() as u64) < end {
            let ahead = extent.offset + u64::from(window.access.read_bytes());
            let length = end.max(ahead.min(self.footer.tail.offset)) - extent.offset;
            window.begin = extent.offset;
            // Only what it grows by is cleared: all of it is overwritten.
            window.bytes.resize(length as usize, 0);
            let read = window.access.run(&self.drive, || self.medium.read_at(&mut window.bytes, extent.offset));
            if let Err(error) = read {
                window.bytes.clear();
                return Err(error.into());
            }
        }
        let from = (extent.offset - window.begin) as usize;
        Ok(&window.bytes[from..from + extent.bytes as usize])
    }
}

/// The piece of a shelf that was read last.
struct Window {
    access: Access,
    begin: u64,
    bytes: Vec<u8>,
}

/// A place in a shelf. Memory: two leaves, or a MiB if so much is read at once, and an inner node for each level.
pub(crate) struct Cursor {
    shelf: Arc<Shelf>,
    window: Window,
    /// The inner nodes above the leaf from the root down, and the next child of each.
    path: Vec<(Vec<Child>, usize)>,
    leaf: Vec<u8>,
    at: usize,
    /// The head of the record at this place, once that was verified.
    head: Cell<Option<Head>>,
}

impl Cursor {
    /// The record at this place; `None` at the end.
    pub(crate) fn record(&self) -> Result<Option<Record<'_>>, ReadError> {
        Ok(self.head_and_record()?.map(|(_, record)| record))
    }

    /// The same, and its head.
    pub(crate) fn head_and_record(&self) -> Result<Option<(Head, Record<'_>)>, ReadError> {
        let Some(bytes) = self.leaf.get(self.at..).filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        if let Some(head) = self.head.get() {
            return Ok(Some((head, head.verified(bytes)?)));
        }
        let (head, record) = decode(bytes, self.shelf.file.stamp())?;
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

    /// Goes from the node at `extent` down to the leaf that may have `key`.
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
