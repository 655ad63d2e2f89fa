//! Writing a blob.
//!
//! 1. Every drive preallocates its file and takes the header.
//! 2. Payload is copied into the data fragments of a batch of stripes; a full batch is encoded and checksummed, and
//!    written to all drives at once while the next one is being filled. At the end of a run its checksum page goes
//!    along with it.
//! 3. When all is written it is synced; then the footers are written and synced. So a footer on the medium proves that
//!    everything before it is there too.
//!
//! Invariants: two batches of buffers, whatever the blob's size; the write fails as a whole if one stack cannot be
//! written, and removes what it has made; success is reported only after the second sync.

use super::format::{
    Blob, ChecksumPage, Footer, Header, Provenance, RUN_STRIPES, Shape, StripeBatch, fragment_sum, stack_name, stack_of,
};
use super::outcome::{Report, StackError, StackOutcome};
use crate::code::Codec;
use crate::format::{BLOCK_BYTES, seal_of};
use crate::{Buffer, Drive, DriveError, FileName, Meter};
use crc_fast::{CrcAlgorithm, Digest};
use futures::future::{BoxFuture, join_all};
use model::DriveId;
use std::sync::Arc;
use tokio::task::JoinSet;

/// A blob that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// CRC-64/NVME of the payload.
    pub payload_crc64: u64,
    /// The length of each stack, in bytes.
    pub stack_bytes: u64,
}

/// Writes one blob. Dropped without [`finish`](Self::finish) or [`abort`](Self::abort) it leaves incomplete stacks
/// behind, which are recognised as such.
pub struct StackWriter {
    blob: Blob,
    shape: Shape,
    codec: Codec,
    stacks: Vec<NewStack>,
    /// The batch that is being filled, its buffers, and the payload bytes in it.
    batch: StripeBatch,
    buffers: Vec<Buffer>,
    filled_bytes: u64,
    /// Set once fragments, checksum pages and headers are on the media; only then footers are written.
    bodies_synced: bool,
    /// The batch that is being written: one task, which gives the buffers back.
    in_flight: JoinSet<Vec<Result<Buffer, DriveError>>>,
    /// Checksums of the current run, for each stack.
    sums: Vec<Vec<u32>>,
    accepted_bytes: u64,
    payload_crc: Digest,
    meter: Arc<Meter>,
}

struct NewStack {
    drive: Arc<dyn Drive>,
    name: FileName,
    created: bool,
    /// The checksum of its header, once that is written.
    header_crc: u32,
    outcome: StackOutcome,
}

impl NewStack {
    fn note(&mut self, result: Result<(), DriveError>) {
        if let Err(error) = result {
            tracing::warn!(stack = %self.name, %error, "a stack could not be written");
            if self.outcome == StackOutcome::Fine {
                self.outcome = StackOutcome::of(&error);
            }
        }
    }
}

impl StackWriter {
    /// Makes the files of `blob`, one on each of its k + r `drives` in stack order, and writes their headers. A file of
    /// that name is never touched: ids are never drawn twice, so it belongs to another blob.
    pub async fn create(blob: Blob, provenance: Provenance, drives: &[(DriveId, Arc<dyn Drive>)]) -> Report<Self> {
        assert_eq!(drives.len(), blob.code.stacks(), "a blob lies on k + r drives");
        let shape = Shape::new(blob.code, blob.payload_bytes);
        let meter = Arc::new(Meter::default());
        let buffer_bytes = shape.batch_bytes() + BLOCK_BYTES;
        let stack = |(index, (_, drive)): (usize, &(DriveId, Arc<dyn Drive>))| NewStack {
            drive: Arc::clone(drive),
            name: stack_name(blob.id, index as u8),
            created: false,
            header_crc: 0,
            outcome: StackOutcome::Fine,
        };
        let mut writer = Self {
            blob,
            shape,
            codec: Codec::new(blob.code),
            stacks: drives.iter().enumerate().map(stack).collect(),
            batch: shape.batch(0, shape.stripes()),
            buffers: drives.iter().map(|_| meter.zeroed(buffer_bytes)).collect(),
            filled_bytes: 0,
            bodies_synced: false,
            in_flight: JoinSet::new(),
            sums: vec![Vec::new(); drives.len()],
            accepted_bytes: 0,
            payload_crc: Digest::new(CrcAlgorithm::Crc64Nvme),
            meter,
        };
        match writer.begin(provenance, drives.iter().map(|(id, _)| *id).collect()).await {
            Ok(()) => Report { result: Ok(writer), outcomes: vec![StackOutcome::Fine; drives.len()] },
            Err(error) => Report { result: Err(error), outcomes: writer.abort().await },
        }
    }

    /// Adds `bytes` to the payload. After an error there is nothing left but to [`abort`](Self::abort).
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), StackError> {
        let got = self.accepted_bytes + bytes.len() as u64;
        if got > self.blob.payload_bytes {
            return Err(StackError::WrongLength { announced: self.blob.payload_bytes, got });
        }
        self.payload_crc.update(bytes);
        while !bytes.is_empty() {
            let taken = self.fill(bytes);
            bytes = &bytes[taken..];
            let batch_end = self.shape.payload_of(self.batch.end() - 1).end;
            assert!(taken > 0 && self.accepted_bytes <= batch_end, "a batch takes what it has room for");
            if self.accepted_bytes == batch_end {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Completes the stacks; returns when they are on the media. On an error their files are removed.
    pub async fn finish(mut self) -> Report<Written> {
        match self.complete().await {
            Ok(written) => {
                Report { result: Ok(written), outcomes: self.stacks.into_iter().map(|stack| stack.outcome).collect() }
            }
            Err(error) => Report { result: Err(error), outcomes: self.abort().await },
        }
    }

    /// Aborts the write: removes the files as far as their drives allow. The outcome of each stack.
    pub async fn abort(mut self) -> Vec<StackOutcome> {
        while self.in_flight.join_next().await.is_some() {}
        let is_own = |(index, stack): (usize, &NewStack)| stack_of(&stack.name) == Some((self.blob.id, index as u8));
        assert!(self.stacks.iter().enumerate().all(is_own), "only stacks of the very blob are removed");
        let created = self.stacks.iter().filter(|stack| stack.created);
        for (name, removed) in
            join_all(created.map(|stack| async { (&stack.name, stack.drive.remove(&stack.name).await) })).await
        {
            if let Err(error) = removed {
                tracing::warn!(stack = %name, %error, "an incomplete stack is left behind");
            }
        }
        self.stacks.into_iter().map(|stack| stack.outcome).collect()
    }

    /// The most bytes that the buffers of this transfer ever held at once.
    pub fn peak_buffer_bytes(&self) -> usize {
        self.meter.peak_bytes()
    }

    async fn begin(&mut self, provenance: Provenance, drives: Vec<DriveId>) -> Result<(), StackError> {
        let (blob, bytes) = (self.blob, self.shape.stack_bytes());
        let created = join_all(self.stacks.iter().map(|stack| stack.drive.create(&stack.name, bytes))).await;
        for (stack, result) in self.stacks.iter_mut().zip(created) {
            stack.created = result.is_ok();
            stack.note(result);
        }
        self.check()?;
        assert!(self.stacks.iter().all(|stack| stack.created), "a header goes into a file that this write made");
        let header = |index: usize| Header { blob, index: index as u8, provenance, drives: drives.clone() };
        let mut crcs = vec![0; self.stacks.len()];
        let encode = |index: usize, block: &mut [u8]| {
            header(index).encode(block);
            crcs[index] = seal_of(block);
        };
        self.write_blocks(0, encode).await?;
        for (stack, crc) in self.stacks.iter_mut().zip(crcs) {
            stack.header_crc = crc;
        }
        Ok(())
    }

    /// Writes a block at `offset` of every stack.
    async fn write_blocks(&mut self, offset: u64, mut encode: impl FnMut(usize, &mut [u8])) -> Result<(), StackError> {
        assert!(self.in_flight.is_empty(), "blocks of their own are written while no batch is");
        assert!(offset.is_multiple_of(BLOCK_BYTES as u64), "blocks lie at multiples of their length");
        let mut writes = Vec::with_capacity(self.stacks.len());
        for (index, stack) in self.stacks.iter().enumerate() {
            let mut buffer = std::mem::replace(&mut self.buffers[index], Buffer::zeroed(0));
            buffer.set_len(BLOCK_BYTES);
            encode(index, &mut buffer);
            writes.push(stack.drive.write_at(&stack.name, offset, buffer));
        }
        let written = join_all(writes).await;
        self.take_back(written)
    }

    /// Records the results of writes, and takes their buffers for the next batch.
    fn take_back(&mut self, written: Vec<Result<Buffer, DriveError>>) -> Result<(), StackError> {
        assert_eq!(written.len(), self.stacks.len(), "every stack has its answer");
        let stacks = self.stacks.iter_mut().zip(&mut self.buffers);
        for ((stack, buffer), result) in stacks.zip(written) {
            stack.note(result.map(|back| *buffer = back));
        }
        self.check()
    }

    fn check(&self) -> Result<(), StackError> {
        let fine = self.stacks.iter().all(|stack| stack.outcome == StackOutcome::Fine);
        if fine { Ok(()) } else { Err(StackError::WriteFailed) }
    }

    /// Copies as much of `bytes` as fits into the current data fragment.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        if self.filled_bytes == 0 {
            let batch_bytes = self.shape.len(self.batch) + BLOCK_BYTES;
            self.buffers.iter_mut().for_each(|buffer| buffer.set_len(batch_bytes));
        }
        let stripe = self.batch.first + self.filled_bytes / self.blob.code.stripe_bytes();
        let range = self.shape.within(self.batch, stripe);
        let in_stripe = (self.filled_bytes % self.blob.code.stripe_bytes()) as usize;
        let (fragment, at) = (in_stripe / range.len(), in_stripe % range.len());
        let taken = bytes.len().min(range.len() - at);
        self.buffers[fragment][range.start + at..][..taken].copy_from_slice(&bytes[..taken]);
        self.filled_bytes += taken as u64;
        self.accepted_bytes += taken as u64;
        taken
    }

    /// Encodes the batch and starts to write it, once the one before is written.
    async fn flush(&mut self) -> Result<(), StackError> {
        let payload = self.shape.payload_of(self.batch.first).start..self.shape.payload_of(self.batch.end() - 1).end;
        assert_eq!(self.filled_bytes, payload.end - payload.start, "a batch is full when it is written");
        assert!(!self.bodies_synced, "no fragment is written behind the sync");
        self.pad();
        for stripe in self.batch.first..self.batch.end() {
            self.encode(stripe);
        }
        let mut bytes = self.shape.len(self.batch);
        if self.batch.end() == self.shape.run_end(self.batch.run()) {
            self.add_pages(bytes);
            bytes += BLOCK_BYTES;
        }
        let spare = self.landed().await?;
        let full = std::mem::replace(&mut self.buffers, spare);
        let offset = self.shape.fragment_offset(self.batch.first);
        assert!(offset + bytes as u64 <= self.shape.footer_offset(), "a batch ends before the footer");
        let writes: Vec<BoxFuture<'static, _>> = std::iter::zip(&self.stacks, full)
            .map(|(stack, mut buffer)| {
                buffer.set_len(bytes);
                let (drive, name) = (Arc::clone(&stack.drive), stack.name.clone());
                Box::pin(async move { drive.write_at(&name, offset, buffer).await }) as BoxFuture<'static, _>
            })
            .collect();
        self.in_flight.spawn(join_all(writes));
        self.filled_bytes = 0;
        if self.batch.end() < self.shape.stripes() {
            self.batch = self.shape.batch(self.batch.end(), self.shape.stripes());
        }
        Ok(())
    }

    /// Waits for the batch that is being written; answers the buffers of the next one.
    async fn landed(&mut self) -> Result<Vec<Buffer>, StackError> {
        let buffer_bytes = self.shape.batch_bytes() + BLOCK_BYTES;
        match self.in_flight.join_next().await {
            None => Ok(self.stacks.iter().map(|_| self.meter.zeroed(buffer_bytes)).collect()),
            Some(Ok(written)) => {
                let filled = std::mem::take(&mut self.buffers);
                self.buffers = filled.iter().map(|_| Buffer::zeroed(0)).collect();
                self.take_back(written)?;
                Ok(std::mem::replace(&mut self.buffers, filled))
            }
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(StackError::WriteFailed),
            },
        }
    }

    /// Zeros behind the payload's end: the data fragments of the last stripe are filled up with them.
    fn pad(&mut self) {
        if self.accepted_bytes < self.blob.payload_bytes {
            return;
        }
        let stripe = self.batch.end() - 1;
        let range = self.shape.within(self.batch, stripe);
        let payload = self.shape.payload_of(stripe);
        let in_stripe = (payload.end - payload.start) as usize;
        for fragment in in_stripe / range.len()..usize::from(self.blob.code.data) {
            let from = in_stripe.saturating_sub(fragment * range.len());
            self.buffers[fragment][range.start + from..range.end].fill(0);
        }
    }

    /// Fills in the parity of `stripe` and adds its checksums to the run's.
    fn encode(&mut self, stripe: u64) {
        let range = self.shape.within(self.batch, stripe);
        let (data, parity) = self.buffers.split_at_mut(usize::from(self.blob.code.data));
        let data: Vec<&[u8]> = data.iter().map(|buffer| &buffer[range.clone()]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[range.clone()]).collect();
        self.codec.encode(&data, &mut parity);
        for (index, (buffer, sums)) in self.buffers.iter().zip(&mut self.sums).enumerate() {
            sums.push(fragment_sum(&self.blob, index as u8, stripe, &buffer[range.clone()]));
        }
    }

    /// Puts each stack's checksum page behind the last fragment of the run, and begins the next run.
    fn add_pages(&mut self, offset: usize) {
        let Blob { rack, id, .. } = self.blob;
        let first_stripe = self.batch.run() * RUN_STRIPES;
        let headers = self.stacks.iter().map(|stack| stack.header_crc);
        for (index, ((buffer, sums), header_crc)) in
            self.buffers.iter_mut().zip(&mut self.sums).zip(headers).enumerate()
        {
            let sums = std::mem::take(sums);
            assert_eq!(first_stripe + sums.len() as u64, self.batch.end(), "a page has the checksums of its whole run");
            let page = ChecksumPage { rack, id, index: index as u8, first_stripe, header_crc, sums };
            page.encode(&mut buffer[offset..offset + BLOCK_BYTES]);
        }
    }

    async fn complete(&mut self) -> Result<Written, StackError> {
        let (announced, got) = (self.blob.payload_bytes, self.accepted_bytes);
        if got != announced {
            return Err(StackError::WrongLength { announced, got });
        }
        self.check()?;
        self.buffers = self.landed().await?;
        assert!(self.sums.iter().all(Vec::is_empty), "every checksum is in its page");
        self.sync().await?;
        self.bodies_synced = true;
        let payload_crc64 = self.payload_crc.finalize();
        let blob = self.blob;
        let header_crcs: Vec<u32> = self.stacks.iter().map(|stack| stack.header_crc).collect();
        let encode = |index: usize, block: &mut [u8]| {
            Footer { blob, index: index as u8, payload_crc64, header_crc: header_crcs[index] }.encode(block);
        };
        assert!(self.bodies_synced, "a footer proves that everything before it is on the medium");
        self.write_blocks(self.shape.footer_offset(), encode).await?;
        self.sync().await?;
        let fine = self.stacks.iter().all(|stack| stack.created && stack.outcome == StackOutcome::Fine);
        assert!(fine, "a blob is written only if each of its stacks is");
        Ok(Written { payload_crc64, stack_bytes: self.shape.stack_bytes() })
    }

    async fn sync(&mut self) -> Result<(), StackError> {
        let synced = join_all(self.stacks.iter().map(|stack| stack.drive.sync(&stack.name))).await;
        for (stack, result) in self.stacks.iter_mut().zip(synced) {
            stack.note(result);
        }
        self.check()
    }
}
