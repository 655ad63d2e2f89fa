//! Staged files: writing one, and reading any range of it, verified.
//!
//! A small file costs one create, one write and one sync to stage, and one read to open, which includes its bytes.
//!
//! Invariants: `finish` returns only when bytes, table, footer and name would survive a power cut; a reader returns no
//! byte whose block it did not verify.

use crate::block::{
    BLOCK_BYTES, BlockRef, BlockWriter, FileIdentity, block_sum, charge, joined, read_block, read_bytes,
};
use crate::format::FormatError;
use crate::names::staged_name;
use crate::slots::{SlotHold, Slots};
use crate::staged_error::{ReadError, StageError};
use crate::staged_format::{FOOTER_BYTES, PAGE_BLOCKS, StagedFooter, StagedLayout, Stamp, blocks, key_hash};
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use disk::{DriveError, FileName};
use futures::stream::{self, BoxStream, StreamExt};
use model::sabotage::{Sabotage, is_on};
use std::ops::Range;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Bytes at the end of a file that are read when it is opened. A file that is no longer is read in full.
const OPEN_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 32 << 10 };

/// The initial room of a file that grows, in bytes. Small, because a client that announces much and sends nothing takes
/// it.
const FIRST_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 1 << 20 };

/// The part of `announced_bytes` that is reserved when `come_bytes` have arrived: twice that, and a minimum at first.
pub fn reserved_for(come_bytes: u64, announced_bytes: u64) -> u64 {
    announced_bytes.min(come_bytes.saturating_mul(2).max(FIRST_BYTES))
}

/// A staged file: durable, and ready to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedFile {
    /// Its slot.
    pub slot: u64,
    /// The length of its data, in bytes.
    pub bytes: u64,
    /// The room that it takes of the staging area's capacity, in bytes.
    pub charged_bytes: u64,
}

/// Writes a staged file. Dropped unfinished, it removes the file.
///
/// A call whose future is dropped half-way leaves a writer that fails every other call.
pub struct StagedWriter {
    hold: SlotHold,
    file: FileIdentity,
    layout: StagedLayout,
    blocks: BlockWriter,
    bytes: u64,
    /// Pages of the table that are already written.
    pages: u64,
    table_digest: Digest,
    finished: bool,
}

impl StagedWriter {
    pub(crate) fn new(hold: SlotHold, nonce: u64, layout: StagedLayout) -> Self {
        let drive = Arc::clone(&hold.slots.drive);
        let file = FileIdentity { number: hold.slot(), nonce };
        let blocks = BlockWriter::new(drive, staged_name(hold.slot()), file, layout.file_bytes(), Arc::new(|_| {}));
        let table_digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        Self { hold, file, layout, blocks, bytes: 0, pages: 0, table_digest, finished: false }
    }

    /// Appends `data`. Returns when all of it except the last block or two is on the disk.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), StageError> {
        // In pieces, so that the table never holds much more than a page, no matter how long `data` is.
        for piece in data.chunks(64 * BLOCK_BYTES) {
            if piece.len() as u64 > self.layout.bytes_max - self.bytes {
                return Err(StageError::TooLong { reserved_bytes: self.layout.bytes_max });
            }
            self.make_room(self.bytes + piece.len() as u64)?;
            self.blocks.write(piece).await.map_err(|error| self.explain(error))?;
            self.bytes += piece.len() as u64;
            assert_eq!(self.blocks.bytes(), self.bytes, "the blocks hold every byte that was written");
            self.write_full_pages().await.map_err(|error| self.explain(error))?;
        }
        Ok(())
    }

    /// Writes the rest, and returns when the file would survive a power cut. Its footer names `version` of `key` in
    /// `bucket`; `part` is the number of the part that the file is, or 0 for the whole version.
    pub async fn finish_for(self, version: u64, part: u32, bucket: &str, key: &str) -> Result<StagedFile, StageError> {
        let (run, sequence) = self.hold.slots.now();
        self.finish_with(Stamp { version, part, key_hash: key_hash(bucket, key), run, sequence }).await
    }

    /// Like [`StagedWriter::finish_for`], for a version whose name may change: the name is not in the file.
    pub async fn finish_for_version(self, version: u64) -> Result<StagedFile, StageError> {
        let (run, sequence) = self.hold.slots.now();
        self.finish_with(Stamp { version, run, sequence, ..Stamp::default() }).await
    }

    /// Writes the rest, and returns when the file would survive a power cut. Its footer has only `stamp`.
    pub async fn finish_with(mut self, stamp: Stamp) -> Result<StagedFile, StageError> {
        // A file counts as all bytes that it may hold.
        self.make_room(self.layout.bytes_max)?;
        self.finish_file(stamp).await.map_err(|error| self.explain(error))?;
        assert!(self.bytes <= self.layout.bytes_max, "a file holds at most what it has room for");
        self.hold.slots.finished(self.hold.slot());
        self.finished = true;
        Ok(StagedFile { slot: self.hold.slot(), bytes: self.bytes, charged_bytes: charge(self.layout.file_bytes()) })
    }

    async fn finish_file(&mut self, stamp: Stamp) -> Result<(), DriveError> {
        let (file, bytes, bytes_max) = (self.file, self.bytes, self.layout.bytes_max);
        let in_one_go = bytes == bytes_max && self.pages == 0;
        let mut digest = self.table_digest;
        let table_start = self.pages * PAGE_BLOCKS;
        let mut table_and_footer = |table: &[u32]| {
            assert_eq!(table_start + table.len() as u64, blocks(bytes), "every block has its checksum in the table");
            let mut tail = table_bytes(table);
            digest.update(&tail);
            let footer = StagedFooter { file, stamp, bytes, bytes_max, table_crc: digest.finalize() as u32 };
            tail.extend_from_slice(&footer.encode());
            tail
        };
        if in_one_go {
            self.blocks.finish(&mut table_and_footer).await?;
        } else {
            self.blocks.finish(&mut |_| Vec::new()).await?;
            let tail = table_and_footer(&self.blocks.table().lock());
            let (table, footer) = tail.split_at(tail.len() - FOOTER_BYTES as usize);
            let table_end = self.page_offset() + table.len() as u64;
            assert!(table_end <= self.layout.footer_offset(), "the table ends before the footer");
            self.blocks.write_apart(self.page_offset(), table).await?;
            self.blocks.write_apart(self.layout.footer_offset(), footer).await?;
        }
        if is_on(Sabotage::StagedSyncSkipped) {
            return Ok(());
        }
        self.hold.slots.drive.sync(&staged_name(file.number)).await
    }

    /// Writes the full pages of the table, so that it takes little memory.
    async fn write_full_pages(&mut self) -> Result<(), DriveError> {
        loop {
            let page = {
                let mut table = self.blocks.table().lock();
                if (table.len() as u64) < PAGE_BLOCKS {
                    return Ok(());
                }
                assert!(
                    self.pages < blocks(self.layout.bytes_max).div_ceil(PAGE_BLOCKS),
                    "the table has room for the page"
                );
                let later = table.split_off(PAGE_BLOCKS as usize);
                std::mem::replace(&mut *table, later)
            };
            let page = table_bytes(&page);
            self.table_digest.update(&page);
            self.blocks.write_apart(self.page_offset(), &page).await?;
            self.pages += 1;
        }
    }

    /// The offset of the next page of the table.
    fn page_offset(&self) -> u64 {
        self.layout.table_offset() + 4 * PAGE_BLOCKS * self.pages
    }

    /// Reserves room for `bytes` bytes of data, and for some of the next, unless it is already reserved.
    fn make_room(&self, bytes: u64) -> Result<(), StageError> {
        let all = charge(self.layout.file_bytes());
        let wanted = charge(reserved_for(bytes, self.layout.bytes_max));
        let wanted = if bytes == self.layout.bytes_max { all } else { wanted.min(all) };
        Ok(self.hold.slots.grow(self.hold.slot(), charge(bytes).min(wanted), wanted)?)
    }

    fn explain(&self, error: DriveError) -> StageError {
        self.hold.slots.stage_error(error, self.layout)
    }
}

impl Drop for StagedWriter {
    fn drop(&mut self) {
        if !self.finished {
            self.hold.slots.mark_dead(&self.hold.slot().into());
        }
    }
}

fn table_bytes(table: &[u32]) -> Vec<u8> {
    table.iter().flat_map(|crc| crc.to_le_bytes()).collect()
}

/// Reads a staged file. Clones read the same file; it stays as long as any of them or any of their streams.
#[derive(Clone)]
pub struct StagedReader {
    file: Arc<OpenStagedFile>,
}

struct OpenStagedFile {
    hold: SlotHold,
    name: FileName,
    footer: StagedFooter,
    /// All of its data, if it is small.
    data: Option<Bytes>,
    /// The first page of its table.
    first_page: Bytes,
}

impl SlotHold {
    /// A reader of the slot's file, even if it was freed meanwhile.
    pub async fn open(&self) -> Result<StagedReader, ReadError> {
        StagedReader::open(self.clone()).await
    }
}

impl StagedReader {
    async fn open(hold: SlotHold) -> Result<Self, ReadError> {
        let (slot, name) = (hold.slot(), staged_name(hold.slot()));
        let drive = Arc::clone(&hold.slots.drive);
        let (file_bytes, end) = drive.read_end(&name, OPEN_BYTES).await.map_err(|error| not_found(slot, error))?;
        if file_bytes < FOOTER_BYTES {
            return Err(ReadError::Unusable { slot, source: FormatError::Length });
        }
        let mut end = Bytes::from_owner(end);
        let footer = StagedFooter::decode(&end.split_off(end.len() - FOOTER_BYTES as usize), slot, file_bytes)
            .map_err(|source| ReadError::Unusable { slot, source })?;
        let first_page = check_table(&hold.slots, &name, &footer, &end).await?;
        let data = (file_bytes <= OPEN_BYTES).then(|| end.slice(..footer.bytes as usize));
        Ok(Self { file: Arc::new(OpenStagedFile { hold, name, footer, data, first_page }) })
    }

    /// The description of the file in its footer.
    pub fn stamp(&self) -> Stamp {
        self.file.footer.stamp
    }

    /// The same reader, if the file was staged for `version` of `key` in `bucket`, as far as its footer shows. Catalogs
    /// of different times may use one slot for different versions.
    pub fn of_version(self, version: u64, bucket: &str, key: &str) -> Result<Self, ReadError> {
        let Stamp { version: found, key_hash: found_hash, .. } = self.stamp();
        let is_other = (found != 0 && found != version) || (found_hash != 0 && found_hash != key_hash(bucket, key));
        if is_other { Err(ReadError::AnotherVersion { slot: self.file.hold.slot() }) } else { Ok(self) }
    }

    /// The length of the data, in bytes.
    pub fn bytes(&self) -> u64 {
        self.file.footer.bytes
    }

    /// The bytes of `range`, in chunks of at most a block each. The stream ends after its first error.
    pub fn read(&self, range: Range<u64>) -> BoxStream<'static, Result<Bytes, ReadError>> {
        if range.start > range.end || range.end > self.bytes() {
            let error = ReadError::OutOfRange { slot: self.file.hold.slot(), bytes: self.bytes() };
            return stream::once(async { Err(error) }).boxed();
        }
        let first_page = self.file.first_page.clone();
        let cursor = BlockCursor { file: Arc::clone(&self.file), rest: range, page: (0, first_page), ahead: None };
        stream::try_unfold(cursor, BlockCursor::step).boxed()
    }
}

/// Checks the table of a file whose last bytes before the footer are `end`; returns its first page.
async fn check_table(slots: &Slots, name: &FileName, footer: &StagedFooter, end: &Bytes) -> Result<Bytes, ReadError> {
    let table_bytes = 4 * blocks(footer.bytes);
    let table_start = footer.layout().table_offset();
    let end_start = footer.layout().footer_offset() - end.len() as u64;
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut first_page = Bytes::new();
    let mut done = 0;
    while done < table_bytes {
        let page_bytes = (table_bytes - done).min(4 * PAGE_BLOCKS);
        let page = match (table_start + done).checked_sub(end_start) {
            Some(at) => end.slice(at as usize..(at + page_bytes) as usize),
            None => read_bytes(&*slots.drive, name, table_start + done, page_bytes as usize).await?,
        };
        digest.update(&page);
        if done == 0 {
            first_page = page;
        }
        done += page_bytes;
    }
    if digest.finalize() as u32 != footer.table_crc {
        return Err(ReadError::Unusable { slot: footer.file.number, source: FormatError::Checksum });
    }
    Ok(first_page)
}

fn not_found(slot: u64, error: DriveError) -> ReadError {
    match error {
        DriveError::NotFound(_) => ReadError::NotFound { slot },
        other => ReadError::Drive(other),
    }
}

/// A stream's position in a file. The next block is read while the receiver works on the one before, so the drive and
/// the receiver work at the same time: a stream holds two blocks.
struct BlockCursor {
    file: Arc<OpenStagedFile>,
    rest: Range<u64>,
    /// A page of the table, and its number.
    page: TablePage,
    /// The next block.
    ahead: Option<JoinHandle<Result<(Bytes, TablePage), ReadError>>>,
}

type TablePage = (u64, Bytes);

impl BlockCursor {
    /// The next chunk.
    async fn step(mut self) -> Result<Option<(Bytes, Self)>, ReadError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let block = self.rest.start / BLOCK_BYTES as u64;
        let (data, page) = match &mut self.ahead {
            Some(ahead) => joined(ahead).await?,
            None => self.file.block(block, self.page.clone()).await?,
        };
        self.page = page;
        self.ahead = None;
        let block_start = block * BLOCK_BYTES as u64;
        let end = self.rest.end.min(block_start + data.len() as u64);
        let chunk = data.slice((self.rest.start - block_start) as usize..(end - block_start) as usize);
        self.rest.start = end;
        if !self.rest.is_empty() && self.file.data.is_none() {
            let (file, page) = (Arc::clone(&self.file), self.page.clone());
            self.ahead = Some(tokio::spawn(async move { file.block(block + 1, page).await }));
        }
        Ok(Some((chunk, self)))
    }
}

impl OpenStagedFile {
    /// The bytes of a block, verified, and the page of the table with its checksum.
    async fn block(&self, block: u64, page: TablePage) -> Result<(Bytes, TablePage), ReadError> {
        let start = block * BLOCK_BYTES as u64;
        let bytes = (self.footer.bytes - start).min(BLOCK_BYTES as u64) as usize;
        let (crc, page) = self.crc(block, page).await?;
        let checked = match &self.data {
            Some(data) => {
                let data = data.slice(start as usize..start as usize + bytes);
                Some(data).filter(|data| block_sum(self.footer.file, block, data) == crc)
            }
            None => {
                read_block(&*self.hold.slots.drive, &self.name, self.footer.file, BlockRef { block, bytes, crc })
                    .await?
            }
        };
        Ok((checked.ok_or(ReadError::Damaged { slot: self.hold.slot(), block })?, page))
    }

    /// The checksum of a block. The table was checked when the file was opened; a page that was damaged since yields a
    /// wrong checksum, which makes a good block look bad and never a bad one good.
    async fn crc(&self, block: u64, mut page: TablePage) -> Result<(u32, TablePage), ReadError> {
        let wanted = block / PAGE_BLOCKS;
        if page.0 != wanted {
            let offset = 4 * PAGE_BLOCKS * wanted;
            let bytes = (4 * blocks(self.footer.bytes) - offset).min(4 * PAGE_BLOCKS);
            let table_start = self.footer.layout().table_offset();
            let drive = &self.hold.slots.drive;
            page = (wanted, read_bytes(&**drive, &self.name, table_start + offset, bytes as usize).await?);
        }
        let at = 4 * (block % PAGE_BLOCKS) as usize;
        let entry = page.1[at..].first_chunk().expect("the page has an entry for each of its blocks");
        Ok((u32::from_le_bytes(*entry), page))
    }
}
