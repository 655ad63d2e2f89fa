//! Blocks: the unit in which the workshop writes, checks and reads its files.
//!
//! [`BlockWriter`] fills one block while the one before it is on its way to the drive, so a stream holds two. Writes
//! run in separate tasks: if a caller is dropped during a write, the write completes and keeps its buffer.
//!
//! Invariant: the checksum of a block is in the table before the block is reported as written.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use disk::{Buffer, Drive, DriveError, FileName};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Length of a block, except a file's last: the unit that has one checksum and is read and written at once. 1 MiB; this
/// crate's own tests use a small one, so that files of many blocks and tables of many pages are cheap.
pub const BLOCK_BYTES: usize = if cfg!(test) { 4 << 10 } else { 1 << 20 };

/// A file takes whole pages of the drive.
const PAGE_BYTES: u64 = 4096;

/// The file of a block. Every block's checksum begins with it, so a block of another file, or of an earlier one of that
/// number, counts as wrong bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    /// The file's number: a slot, or that of a recall.
    pub number: u64,
    /// Distinguishes it from other files of that number.
    pub nonce: u64,
}

/// The checksum of block `block` of a file: CRC-32C of the file's identity, the block's number and the block's bytes.
pub(crate) fn block_sum(file: FileIdentity, block: u64, bytes: &[u8]) -> u32 {
    let mut identity = [0; 24];
    identity[..8].copy_from_slice(&file.number.to_le_bytes());
    identity[8..16].copy_from_slice(&file.nonce.to_le_bytes());
    identity[16..].copy_from_slice(&block.to_le_bytes());
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&identity);
    digest.update(bytes);
    digest.finalize() as u32
}

/// Called after each block with the number of bytes of the file that are written.
pub(crate) type OnWritten = Arc<dyn Fn(u64) + Send + Sync>;

/// The room of a file of `file_bytes` bytes, in whole pages; more than any drive has if that number is too large.
pub(crate) fn charge(file_bytes: u64) -> u64 {
    file_bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX)
}

/// Runs `work` in a separate task and waits for it; the task continues if the caller is dropped.
pub(crate) async fn detached<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<DriveError> + Send + 'static,
{
    joined(&mut tokio::spawn(work)).await
}

/// The result of the task of `handle`. A panic of the task resumes here.
pub(crate) async fn joined<T, E: From<DriveError>>(handle: &mut JoinHandle<Result<T, E>>) -> Result<T, E> {
    match handle.await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(DriveError::NotReady("going down").into()),
    }
}

/// A block to be read: its number, length and checksum.
pub(crate) struct BlockRef {
    pub(crate) block: u64,
    pub(crate) bytes: usize,
    pub(crate) crc: u32,
}

/// The block `of` a file; `None` if its checksum does not match.
pub(crate) async fn read_block(
    drive: &dyn Drive,
    name: &FileName,
    file: FileIdentity,
    of: BlockRef,
) -> Result<Option<Bytes>, DriveError> {
    let data = read_bytes(drive, name, of.block * BLOCK_BYTES as u64, of.bytes).await?;
    Ok((block_sum(file, of.block, &data) == of.crc).then_some(data))
}

/// `bytes` bytes of the file at `offset`, not verified.
pub(crate) async fn read_bytes(
    drive: &dyn Drive,
    name: &FileName,
    offset: u64,
    bytes: usize,
) -> Result<Bytes, DriveError> {
    let buffer = drive.read_at(name, offset, Buffer::zeroed(bytes)).await?;
    Ok(Bytes::from_owner(buffer))
}

/// Writes a file from its beginning, block by block.
pub(crate) struct BlockWriter {
    drive: Arc<dyn Drive>,
    name: FileName,
    file: FileIdentity,
    /// Blocks whose checksum is in the table.
    blocks: u64,
    buffer: Buffer,
    /// Bytes of `buffer` that are filled.
    filled: usize,
    buffer_bytes: usize,
    /// The offset of `buffer` in the file.
    start: u64,
    table: Arc<Mutex<Vec<u32>>>,
    written: OnWritten,
    under_way: Option<JoinHandle<Result<Buffer, DriveError>>>,
    /// Set while a call is under way: a call that was dropped in the middle leaves it set, and the file unusable.
    torn: bool,
}

impl BlockWriter {
    /// A writer of the file `name`, which is `file_bytes` long. The checksum of each block is put into `table`.
    pub(crate) fn new(
        drive: Arc<dyn Drive>,
        name: FileName,
        file: FileIdentity,
        file_bytes: u64,
        written: OnWritten,
    ) -> Self {
        let buffer_bytes = file_bytes.min(BLOCK_BYTES as u64) as usize;
        let table = Arc::default();
        Self {
            drive,
            name,
            file,
            blocks: 0,
            buffer: Buffer::zeroed(buffer_bytes),
            filled: 0,
            buffer_bytes,
            start: 0,
            table,
            written,
            under_way: None,
            torn: false,
        }
    }

    /// The checksums of the blocks so far.
    pub(crate) fn table(&self) -> &Arc<Mutex<Vec<u32>>> {
        &self.table
    }

    /// Bytes that it was given.
    pub(crate) fn bytes(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// Takes `data`. When it returns, at most one block is on its way to the drive and less than a block is in the
    /// buffer. The file must have room for `data`.
    pub(crate) async fn write(&mut self, mut data: &[u8]) -> Result<(), DriveError> {
        self.begin()?;
        while !data.is_empty() {
            let (now, later) = data.split_at(data.len().min(BLOCK_BYTES - self.filled));
            self.buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            assert!(self.filled <= self.buffer_bytes, "the file has room for what it is given");
            data = later;
            if self.filled == BLOCK_BYTES {
                self.seal(&mut |_| Vec::new(), false).await?;
            }
        }
        self.torn = false;
        Ok(())
    }

    /// Writes the rest, followed by the bytes that `tail` makes of the table.
    pub(crate) async fn finish(&mut self, tail: &mut (dyn FnMut(&[u32]) -> Vec<u8> + Send)) -> Result<(), DriveError> {
        self.begin()?;
        self.seal(tail, true).await?;
        self.settle().await?;
        self.torn = false;
        Ok(())
    }

    /// Writes `data` at `offset`, after all blocks under way.
    pub(crate) async fn write_apart(&mut self, offset: u64, data: &[u8]) -> Result<(), DriveError> {
        self.begin()?;
        self.settle().await?;
        assert!(offset >= self.start, "what is written apart lies behind the blocks");
        for (index, piece) in data.chunks(BLOCK_BYTES).enumerate() {
            let mut buffer = Buffer::zeroed(piece.len());
            buffer.copy_from_slice(piece);
            self.drive.write_at(&self.name, offset + (index * BLOCK_BYTES) as u64, buffer).await?;
        }
        self.torn = false;
        Ok(())
    }

    fn begin(&mut self) -> Result<(), DriveError> {
        if std::mem::replace(&mut self.torn, true) {
            return Err(DriveError::NotReady("asked to continue a file after a write that failed or was cancelled"));
        }
        Ok(())
    }

    /// Writes the block, with `tail` after it if that fits, and apart from it if not. No block follows the last one, so
    /// its write is awaited.
    async fn seal(
        &mut self,
        tail: &mut (dyn FnMut(&[u32]) -> Vec<u8> + Send),
        is_last: bool,
    ) -> Result<(), DriveError> {
        let spare = self.settle().await?;
        let data_end = self.bytes();
        assert!(self.under_way.is_none(), "one block is on its way at a time");
        let tail = {
            let mut table = self.table.lock();
            if self.filled > 0 {
                table.push(block_sum(self.file, self.blocks, &self.buffer[..self.filled]));
                self.blocks += 1;
            }
            tail(&table)
        };
        let tail_fits = self.filled + tail.len() <= self.buffer_bytes;
        if tail_fits {
            self.buffer[self.filled..self.filled + tail.len()].copy_from_slice(&tail);
            self.filled += tail.len();
        }
        if self.filled > 0 && is_last {
            let write = self.block_write(Buffer::zeroed(0), data_end);
            write.await?;
        } else if self.filled > 0 {
            let write = self.block_write(spare.unwrap_or_else(|| Buffer::zeroed(self.buffer_bytes)), data_end);
            self.under_way = Some(tokio::spawn(write));
            self.buffer.set_len(self.buffer_bytes);
        }
        if !tail_fits {
            self.torn = false;
            self.write_apart(data_end, &tail).await?;
        }
        Ok(())
    }

    /// The write of the buffer, which `next` replaces.
    fn block_write(
        &mut self,
        next: Buffer,
        data_end: u64,
    ) -> impl Future<Output = Result<Buffer, DriveError>> + Send + 'static {
        assert!(self.start <= data_end && data_end <= self.bytes(), "a tail follows the data of its block");
        assert_eq!(self.blocks, data_end.div_ceil(BLOCK_BYTES as u64), "the table has the checksum of every block");
        let mut buffer = std::mem::replace(&mut self.buffer, next);
        buffer.set_len(self.filled);
        let (drive, name, start) = (Arc::clone(&self.drive), self.name.clone(), self.start);
        let written = Arc::clone(&self.written);
        self.start += self.filled as u64;
        self.filled = 0;
        async move {
            let buffer = drive.write_at(&name, start, buffer).await?;
            written(data_end);
            Ok(buffer)
        }
    }

    /// Waits for the block under way, if any, and returns its buffer.
    async fn settle(&mut self) -> Result<Option<Buffer>, DriveError> {
        let Some(handle) = &mut self.under_way else { return Ok(None) };
        let result = joined(handle).await;
        self.under_way = None;
        result.map(Some)
    }
}
