//! Building a shelf from records in key order.
//!
//! Memory: one buffer of 1 MiB and the record that overflows it, and an inner node for each level.

use crate::bytes::crc32c;
use crate::drive::Drive;
use crate::lost::LostPart;
use crate::mask::Mask;
use crate::medium::File;
use crate::names::{FileId, Identity, Name};
use crate::record::{Kind, Record};
use crate::shelf::access::Access;
use crate::shelf::format::{
    Child, EDGE_BYTES, Extent, FOOTER_VERSION, Footer, NODE_BYTES, Tail, encode_header, encode_node,
};
use std::io;
use std::sync::atomic::Ordering;

/// Bytes per write.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes after which background work syncs, so that no sync takes long: other requests wait for the drive meanwhile.
const SYNC_BYTES: u64 = 32 << 20;

/// A shelf that is being written.
pub(crate) struct ShelfBuilder<'a> {
    drive: &'a Drive,
    file: Box<dyn File>,
    identity: Identity,
    /// Bytes that were not written yet, and their offset.
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
    leaf: Option<Child>,
    /// The open node of each level, from the leaves' parents up.
    levels: Vec<Vec<Child>>,
    footer: Footer,
    tail: Tail,
    access: Access,
}

impl<'a> ShelfBuilder<'a> {
    /// Starts a shelf on `drive`, under the name of an unfinished one.
    pub(crate) fn begin(drive: &'a Drive, identity: Identity, access: Access) -> io::Result<Self> {
        let create = || drive.directory.create(&Name::Unfinished(identity.file).to_string());
        let file = access.run(drive, create)?;
        let footer = Footer { version: FOOTER_VERSION, ..Footer::default() };
        let (tail, levels) = (Tail::default(), Vec::new());
        let buffer = encode_header(identity);
        let (written, synced, leaf) = (0, 0, None);
        Ok(Self { drive, file, identity, buffer, written, synced, leaf, levels, footer, tail, access })
    }

    /// Adds a record with a key above all earlier ones. `value_crc` is the CRC-32C of its value.
    pub(crate) fn add(&mut self, record: &Record<'_>, value_crc: u32) -> io::Result<()> {
        assert!(record.kind != Kind::Forget, "masks belong in the tail");
        let is_first = self.footer.records == 0;
        assert!(is_first || self.tail.keys.1.as_slice() < record.key, "keys come in order");
        let length = record.bytes();
        if self.leaf.as_ref().is_some_and(|leaf| leaf.extent.bytes as usize + length > NODE_BYTES) {
            self.end_leaf()?;
        }
        let offset = self.offset();
        let new = || Child { first: record.key.to_vec(), extent: Extent { offset, bytes: 0 } };
        self.leaf.get_or_insert_with(new).extent.bytes += length as u32;
        record.encode(self.identity.file.stamp(), 0, value_crc, &mut self.buffer);
        if is_first {
            self.tail.keys.0 = record.key.to_vec();
            self.footer.sequences = (record.sequence, record.sequence);
        }
        self.tail.keys.1.clear();
        self.tail.keys.1.extend_from_slice(record.key);
        self.footer.records += 1;
        self.footer.trailers.add(record.key);
        let (min, max) = self.footer.sequences;
        self.footer.sequences = (min.min(record.sequence), max.max(record.sequence));
        self.flush(WRITE_BYTES)
    }

    /// Records so far.
    pub(crate) fn records(&self) -> u64 {
        self.footer.records
    }

    /// Records a part of its sources that can no longer be read.
    pub(crate) fn lose(&mut self, part: LostPart) {
        if !self.tail.lost.contains(&part) {
            self.tail.lost.push(part);
        }
    }

    /// Completes the shelf and makes it durable, still under the name of an unfinished one.
    pub(crate) fn finish(mut self, masks: Vec<Mask>, superseded: Vec<FileId>) -> io::Result<()> {
        self.end_leaf()?;
        self.end_levels();
        (self.tail.masks, self.tail.superseded) = (masks, superseded);
        let tail = self.tail.encode();
        self.footer.tail = Extent { offset: self.offset(), bytes: tail.len() as u32 };
        self.footer.tail_crc = crc32c(&tail);
        let footer = self.footer.encode(self.identity);
        for _ in 0..2 {
            self.buffer.extend_from_slice(&tail);
            let begin = self.offset().next_multiple_of(EDGE_BYTES);
            self.buffer.resize((begin - self.written) as usize, 0);
            self.buffer.extend_from_slice(&footer);
        }
        self.flush(1)?;
        assert!(self.written == self.footer.places().end, "footers lie where they are looked for");
        self.access.run(self.drive, || {
            self.drive.sync(self.file.as_ref())?;
            self.drive.sync_names()
        })
    }

    /// The offset of the next byte.
    fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes the buffer if it has at least `least` bytes.
    fn flush(&mut self, least: usize) -> io::Result<()> {
        if self.buffer.len() >= least {
            self.access.run(self.drive, || self.file.write_at(&self.buffer, self.written))?;
            self.drive.written.fetch_add(self.buffer.len() as u64, Ordering::Relaxed);
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        if self.access == Access::Background && self.written - self.synced >= SYNC_BYTES {
            self.access.run(self.drive, || self.drive.sync(self.file.as_ref()))?;
            self.synced = self.written;
        }
        Ok(())
    }

    fn end_leaf(&mut self) -> io::Result<()> {
        if let Some(leaf) = self.leaf.take() {
            self.add_child(0, leaf);
        }
        self.flush(WRITE_BYTES)
    }

    /// Adds a child to the open node of `level`. A full node is written and becomes a child itself.
    fn add_child(&mut self, mut level: usize, mut child: Child) {
        loop {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            let node = &mut self.levels[level];
            let bytes: usize = node.iter().map(Child::bytes).sum();
            if node.len() < 2 || bytes + child.bytes() <= NODE_BYTES {
                node.push(child);
                return;
            }
            let full = std::mem::replace(node, vec![child]);
            child = self.write_node(level, &full);
            level += 1;
        }
    }

    /// Writes the open nodes, from the leaves' parents up. The last one is the root.
    fn end_levels(&mut self) {
        let mut level = 0;
        while level < self.levels.len() {
            let children = std::mem::take(&mut self.levels[level]);
            let is_top = level + 1 == self.levels.len();
            match &children[..] {
                // A root above a single node is not needed.
                [only] if is_top => {
                    (self.footer.root, self.footer.levels) = (only.extent, level as u8);
                    return;
                }
                children => {
                    let node = self.write_node(level, children);
                    self.add_child(level + 1, node);
                }
            }
            level += 1;
        }
    }

    fn write_node(&mut self, level: usize, children: &[Child]) -> Child {
        let node = encode_node(children, level as u8 + 1, self.identity.file.stamp());
        let extent = Extent { offset: self.offset(), bytes: node.len() as u32 };
        self.buffer.extend_from_slice(&node);
        Child { first: children[0].first.clone(), extent }
    }
}
