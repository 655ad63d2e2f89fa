//! Writing a blob: all of its stacks, or a single one that was lost or moves.
//!
//! 1. Every drive preallocates its file and takes the header.
//! 2. Payload is copied into the data fragments of a batch of stripes; a full batch is encoded and checksummed, and
//!    written to all drives at once while the next one is being filled. The checksum page of a run accompanies its last
//!    batch.
//! 3. When everything is written it is synced; then the footers are written and synced. So a footer on the medium
//!    proves that everything before it is there, too.
//!
//! Invariants: two batches of buffers for each written stack, and one for each other stack, for a blob of any size; the
//! write fails as a whole if one stack cannot be written, and removes its files; success is reported only after the
//! second sync.

use super::format::{
    Blob, ChecksumPage, Footer, Header, Provenance, RUN_STRIPES, Shape, StripeBatch, fragment_sum, spare_name,
    spare_of, stack_name, stack_of,
};
use super::outcome::{Report, StackError, StackOutcome};
use super::read::{PayloadSink, SinkClosed};
use super::remove::remove_own;
use crate::code::Codec;
use crate::format::{BLOCK_BYTES, seal_of};
use crate::{Buffer, Drive, DriveError, FileName, Meter, finished};
use crc_fast::{CrcAlgorithm, Digest};
use futures::future::{BoxFuture, join_all};
use model::DriveId;
use model::sabotage::{Sabotage, is_on};
use std::sync::Arc;
use tokio::task::JoinSet;

/// A blob that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// CRC-64/NVME of the payload.
    pub payload_crc64: u64,
    /// The length of each stack, in bytes.
    pub stack_bytes: u64,
}

/// The stack that must be regenerated.
#[derive(Clone)]
pub struct Lost {
    /// Its index.
    pub index: u8,
    /// The drive of each of the blob's k + r stacks from now on, in stack order.
    pub drives: Vec<DriveId>,
    /// The drive that it goes to.
    pub target: Arc<dyn Drive>,
    /// True if that drive already has the stack, damaged: the new one is written beside it, under the name of a spare.
    /// Otherwise the drive has no stack of the blob.
    pub beside: bool,
    /// True if a file there with its name that proves to be exactly this stack was left by an earlier attempt. Not so
    /// if a newer catalog may count it.
    pub replaces: bool,
}

/// Writes one blob. If it is dropped without [`finish`](Self::finish) or [`abort`](Self::abort) it leaves incomplete
/// stacks, which can be recognised.
pub struct StackWriter {
    blob: Blob,
    shape: Shape,
    codec: Codec,
    /// Those of the k + r stacks that are written.
    stacks: Vec<NewStack>,
    /// The batch that is being filled, its buffers, one for each of the k + r stacks, and the payload bytes in it.
    batch: StripeBatch,
    buffers: Vec<Buffer>,
    filled_bytes: u64,
    /// Set once fragments, checksum pages and headers are on the media; footers are written only then.
    bodies_synced: bool,
    /// The batch that is being written: one task, which returns the buffers.
    in_flight: JoinSet<Vec<Result<Buffer, DriveError>>>,
    accepted_bytes: u64,
    payload_crc: Digest,
    /// For a copy, whose payload is not seen: the checksum in the footer of its source.
    copied_crc64: Option<u64>,
    meter: Arc<Meter>,
}

struct NewStack {
    index: u8,
    drive: Arc<dyn Drive>,
    name: FileName,
    created: bool,
    /// The checksum of its header, once that is written.
    header_crc: u32,
    /// Checksums of the current run.
    sums: Vec<u32>,
    outcome: StackOutcome,
}

impl NewStack {
    /// Creates the file. An existing file of that name is touched only if this `replaces` the remains of an earlier
    /// attempt at exactly this stack: otherwise it belongs to another blob, since ids are never drawn twice.
    async fn create(&self, blob: &Blob, bytes: u64, replaces: bool) -> Result<(), DriveError> {
        let made = self.drive.create(&self.name, bytes).await;
        if replaces
            && matches!(made, Err(DriveError::Exists(_)))
            && remove_own(&*self.drive, blob.rack, (blob.id, self.index), &self.name).await?
        {
            return self.drive.create(&self.name, bytes).await;
        }
        made
    }

    fn note<T>(&mut self, result: Result<T, DriveError>) -> Option<T> {
        if let Err(error) = &result {
            tracing::warn!(stack = %self.name, %error, "a stack could not be written");
            if self.outcome == StackOutcome::Fine {
                self.outcome = StackOutcome::of(error);
            }
        }
        result.ok()
    }
}

impl StackWriter {
    /// Creates the files of `blob`, one on each of its k + r `drives` in stack order, and writes their headers.
    pub async fn create(blob: Blob, provenance: Provenance, drives: &[(DriveId, Arc<dyn Drive>)]) -> Report<Self> {
        let ids = drives.iter().map(|(id, _)| *id).collect();
        let targets = (0..).zip(drives).map(|(index, (_, drive))| (index, Arc::clone(drive))).collect();
        Self::begun(blob, provenance, ids, targets, (false, false)).await
    }

    /// Creates only the file of the `lost` stack of `blob`.
    pub(super) async fn create_lost(blob: Blob, provenance: Provenance, lost: Lost) -> Report<Self> {
        let flags = (lost.replaces, lost.beside);
        Self::begun(blob, provenance, lost.drives, vec![(lost.index, lost.target)], flags).await
    }

    /// The same for a stack whose fragments are copied ([`write_fragments`](Self::write_fragments)) from a stack with
    /// this `payload_crc64`.
    pub(super) async fn create_copy(
        blob: Blob,
        provenance: Provenance,
        lost: Lost,
        payload_crc64: u64,
    ) -> Report<Self> {
        let Report { result, outcomes } = Self::create_lost(blob, provenance, lost).await;
        let result = result.map(|writer| Self { copied_crc64: Some(payload_crc64), ..writer });
        Report { result, outcomes }
    }

    async fn begun(
        blob: Blob,
        provenance: Provenance,
        drives: Vec<DriveId>,
        targets: Vec<(u8, Arc<dyn Drive>)>,
        (replaces, beside): (bool, bool),
    ) -> Report<Self> {
        assert_eq!(drives.len(), blob.code.stacks(), "a blob lies on k + r drives");
        let shape = Shape::new(blob.code, blob.payload_bytes);
        let meter = Arc::new(Meter::default());
        let buffer_bytes = shape.batch_bytes() + BLOCK_BYTES;
        let stack = |(index, drive)| {
            let name = if beside { spare_name(blob.id, index) } else { stack_name(blob.id, index) };
            let outcome = StackOutcome::Fine;
            NewStack { index, drive, name, created: false, header_crc: 0, sums: Vec::new(), outcome }
        };
        let mut writer = Self {
            blob,
            shape,
            codec: Codec::new(blob.code),
            stacks: targets.into_iter().map(stack).collect(),
            batch: shape.batch(0, shape.stripes()),
            buffers: drives.iter().map(|_| meter.zeroed(buffer_bytes)).collect(),
            filled_bytes: 0,
            bodies_synced: false,
            in_flight: JoinSet::new(),
            accepted_bytes: 0,
            payload_crc: Digest::new(CrcAlgorithm::Crc64Nvme),
            copied_crc64: None,
            meter,
        };
        match writer.begin(provenance, drives, replaces).await {
            Ok(()) => {
                let outcomes = vec![StackOutcome::Fine; writer.stacks.len()];
                Report { result: Ok(writer), outcomes }
            }
            Err(error) => Report { result: Err(error), outcomes: writer.abort().await },
        }
    }

    /// Adds `bytes` to the payload. After an error only [`abort`](Self::abort) may follow.
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

    /// Adds the fragments of the next batch to a copy. After an error only [`abort`](Self::abort) may follow.
    pub(super) async fn write_fragments(&mut self, batch: StripeBatch, fragments: &[u8]) -> Result<(), StackError> {
        assert!(self.copied_crc64.is_some() && self.stacks.len() == 1, "the fragments of one stack are copied");
        assert_eq!(batch, self.batch, "batches follow one another");
        let bytes = self.shape.len(batch);
        let index = usize::from(self.stacks[0].index);
        self.buffers[index].set_len(bytes + BLOCK_BYTES);
        self.buffers[index][..bytes].copy_from_slice(&fragments[..bytes]);
        self.accepted_bytes = self.shape.payload_of(batch.end() - 1).end;
        for stripe in batch.first..batch.end() {
            self.add_sums(stripe);
        }
        self.write_batch().await
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

    /// Aborts the write: removes the files as far as their drives allow, unless a file was replaced by another stack
    /// while its drive was away. Returns the outcome of each stack.
    pub async fn abort(mut self) -> Vec<StackOutcome> {
        while self.in_flight.join_next().await.is_some() {}
        let shown = |name: &FileName| stack_of(name).or(spare_of(name));
        let is_own = |stack: &NewStack| shown(&stack.name) == Some((self.blob.id, stack.index));
        assert!(self.stacks.iter().all(is_own), "only stacks of the very blob are removed");
        let Blob { rack, id, .. } = self.blob;
        let created = self.stacks.iter().filter(|stack| stack.created);
        let removed = created.map(|stack| async move {
            (&stack.name, remove_own(&*stack.drive, rack, (id, stack.index), &stack.name).await)
        });
        for (name, removed) in join_all(removed).await {
            if let Err(error) = removed {
                tracing::warn!(stack = %name, %error, "an incomplete stack remains on its drive");
            }
        }
        self.stacks.into_iter().map(|stack| stack.outcome).collect()
    }

    /// The maximum number of bytes that the buffers of this transfer held at once.
    pub fn peak_buffer_bytes(&self) -> usize {
        self.meter.peak_bytes()
    }

    async fn begin(&mut self, provenance: Provenance, drives: Vec<DriveId>, replaces: bool) -> Result<(), StackError> {
        let (blob, bytes) = (self.blob, self.shape.stack_bytes());
        let created = join_all(self.stacks.iter().map(|stack| stack.create(&blob, bytes, replaces))).await;
        for (stack, result) in self.stacks.iter_mut().zip(created) {
            stack.created = stack.note(result).is_some();
        }
        self.check()?;
        assert!(self.stacks.iter().all(|stack| stack.created), "a header goes into a file that this write made");
        self.write_blocks(0, |stack, block| {
            Header { blob, index: stack.index, provenance, drives: drives.clone() }.encode(block);
            stack.header_crc = seal_of(block);
        })
        .await
    }

    /// Writes a block at `offset` of every stack.
    async fn write_blocks(&mut self, offset: u64, encode: impl Fn(&mut NewStack, &mut [u8])) -> Result<(), StackError> {
        assert!(self.in_flight.is_empty(), "blocks of their own are written while no batch is");
        assert!(offset.is_multiple_of(BLOCK_BYTES as u64), "blocks lie at multiples of their length");
        let mut writes = Vec::with_capacity(self.stacks.len());
        for stack in &mut self.stacks {
            let mut buffer = std::mem::replace(&mut self.buffers[usize::from(stack.index)], Buffer::zeroed(0));
            buffer.set_len(BLOCK_BYTES);
            encode(stack, &mut buffer);
            writes.push(stack.drive.write_at(&stack.name, offset, buffer));
        }
        let written = join_all(writes).await;
        let buffers = self.noted(written)?;
        self.swap_buffers(buffers);
        Ok(())
    }

    /// The answers of all stacks; an error if one of them failed.
    fn noted<T>(&mut self, answers: Vec<Result<T, DriveError>>) -> Result<Vec<T>, StackError> {
        assert_eq!(answers.len(), self.stacks.len(), "every stack has its answer");
        let good = self.stacks.iter_mut().zip(answers).filter_map(|(stack, answer)| stack.note(answer)).collect();
        self.check().map(|()| good)
    }

    /// Replaces the buffer of each written stack, and returns the former ones.
    fn swap_buffers(&mut self, buffers: Vec<Buffer>) -> Vec<Buffer> {
        let swap =
            |(stack, buffer): (&NewStack, _)| std::mem::replace(&mut self.buffers[usize::from(stack.index)], buffer);
        self.stacks.iter().zip(buffers).map(swap).collect()
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

    /// Encodes the batch and starts to write it, once the previous one is written.
    async fn flush(&mut self) -> Result<(), StackError> {
        let payload = self.shape.payload_of(self.batch.first).start..self.shape.payload_of(self.batch.end() - 1).end;
        assert_eq!(self.filled_bytes, payload.end - payload.start, "a batch is full when it is written");
        self.pad();
        for stripe in self.batch.first..self.batch.end() {
            self.encode(stripe);
            self.add_sums(stripe);
        }
        self.write_batch().await
    }

    /// Starts to write the complete batch, once the previous one is written.
    async fn write_batch(&mut self) -> Result<(), StackError> {
        assert!(!self.bodies_synced, "no fragment is written behind the sync");
        let mut bytes = self.shape.len(self.batch);
        if self.batch.end() == self.shape.run_end(self.batch.run()) {
            self.add_pages(bytes);
            bytes += BLOCK_BYTES;
        }
        let spare = self.landed().await?;
        let full = self.swap_buffers(spare);
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

    /// Waits for the batch that is being written, and returns a buffer for each written stack.
    async fn landed(&mut self) -> Result<Vec<Buffer>, StackError> {
        let Some(joined) = self.in_flight.join_next().await else {
            let buffer_bytes = self.shape.batch_bytes() + BLOCK_BYTES;
            return Ok(self.stacks.iter().map(|_| self.meter.zeroed(buffer_bytes)).collect());
        };
        self.noted(finished(joined).ok_or(StackError::WriteFailed)?)
    }

    /// Writes zeros after the payload's end, which fill up the data fragments of the last stripe.
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

    /// Computes the parity of `stripe`, if any of it is written.
    fn encode(&mut self, stripe: u64) {
        let range = self.shape.within(self.batch, stripe);
        if self.stacks.iter().any(|stack| stack.index >= self.blob.code.data) {
            let (data, parity) = self.buffers.split_at_mut(usize::from(self.blob.code.data));
            let data: Vec<&[u8]> = data.iter().map(|buffer| &buffer[range.clone()]).collect();
            let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[range.clone()]).collect();
            self.codec.encode(&data, &mut parity);
        }
    }

    /// Adds the checksums of `stripe` to the run's.
    fn add_sums(&mut self, stripe: u64) {
        let range = self.shape.within(self.batch, stripe);
        for stack in &mut self.stacks {
            let fragment = &self.buffers[usize::from(stack.index)][range.clone()];
            stack.sums.push(fragment_sum(&self.blob, stack.index, stripe, fragment));
        }
    }

    /// Puts each stack's checksum page after the last fragment of the run, and starts the next run.
    fn add_pages(&mut self, offset: usize) {
        let Blob { rack, id, .. } = self.blob;
        let first_stripe = self.batch.run() * RUN_STRIPES;
        for NewStack { index, header_crc, sums, .. } in &mut self.stacks {
            let (index, header_crc, sums) = (*index, *header_crc, std::mem::take(sums));
            assert_eq!(first_stripe + sums.len() as u64, self.batch.end(), "a page has the checksums of its whole run");
            let page = ChecksumPage { rack, id, index, first_stripe, header_crc, sums };
            page.encode(&mut self.buffers[usize::from(index)][offset..offset + BLOCK_BYTES]);
        }
    }

    async fn complete(&mut self) -> Result<Written, StackError> {
        let (announced, got) = (self.blob.payload_bytes, self.accepted_bytes);
        if got != announced {
            return Err(StackError::WrongLength { announced, got });
        }
        self.check()?;
        let buffers = self.landed().await?;
        self.swap_buffers(buffers);
        assert!(self.stacks.iter().all(|stack| stack.sums.is_empty()), "every checksum is in its page");
        self.sync().await?;
        self.bodies_synced = true;
        let payload_crc64 = self.copied_crc64.unwrap_or_else(|| self.payload_crc.finalize());
        let blob = self.blob;
        assert!(self.bodies_synced, "a footer proves that everything before it is on the medium");
        self.write_blocks(self.shape.footer_offset(), |stack, block| {
            Footer { blob, index: stack.index, payload_crc64, header_crc: stack.header_crc }.encode(block);
        })
        .await?;
        self.sync().await?;
        let fine = self.stacks.iter().all(|stack| stack.created && stack.outcome == StackOutcome::Fine);
        assert!(fine, "a blob is written only if each of its stacks is");
        Ok(Written { payload_crc64, stack_bytes: self.shape.stack_bytes() })
    }

    async fn sync(&mut self) -> Result<(), StackError> {
        if is_on(Sabotage::StackSyncSkipped) {
            return Ok(());
        }
        let synced = join_all(self.stacks.iter().map(|stack| stack.drive.sync(&stack.name))).await;
        self.noted(synced).map(drop)
    }
}

/// Closes when a drive fails a write.
impl PayloadSink for StackWriter {
    fn take<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, Result<(), SinkClosed>> {
        Box::pin(async move { self.write(bytes).await.map_err(|_| SinkClosed) })
    }
}
