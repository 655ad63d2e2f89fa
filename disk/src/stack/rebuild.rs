//! Regenerating one stack of a blob from the others.
//!
//! 1. The blob is read like for a client: every fragment that is used is checked against its checksum, and in the end
//!    the payload as a whole against its own.
//! 2. Each stripe gives the one fragment that is wanted: a data fragment as it is, a parity fragment by encoding the
//!    stripe. The new stack is the lost one again, byte by byte, but that its header names the drives of now.
//! 3. Fragments and checksum pages are synced; only then the footer is written, and synced.
//!
//! Invariants: the footer is written only if the whole payload was right; on a failure the new file is removed. Memory:
//! what a read takes, and one stripe and one request more.

use super::fetch::{Fetch, FetchOrder, open};
use super::format::{
    Blob, ChecksumPage, Footer, Header, Provenance, RUN_STRIPES, Shape, StripeBatch, fragment_sum, stack_name, stack_of,
};
use super::outcome::{Report, StackError, StackOutcome};
use super::read::{PayloadSink, Policy, SinkClosed, StackReader};
use super::remove::remove_own;
use super::write::Written;
use crate::code::Codec;
use crate::format::{BLOCK_BYTES, seal_of};
use crate::{Buffer, Drive, DriveError, FileName};
use futures::future::BoxFuture;
use model::DriveId;
use std::sync::Arc;

/// The stack that is to be regenerated.
#[derive(Clone)]
pub struct Lost {
    /// Its index.
    pub index: u8,
    /// The drive of each of the blob's k + r stacks from now on, in stack order.
    pub drives: Vec<DriveId>,
    /// The drive that it goes to, which has none of the blob.
    pub target: Arc<dyn Drive>,
}

/// Regenerates a stack of `blob` from `stacks`, each given by its index and drive, and syncs it. A file that an earlier
/// attempt has left on the target is replaced. The target's outcome comes last.
pub async fn rebuild(blob: Blob, stacks: Vec<(u8, Arc<dyn Drive>)>, policy: Policy, lost: Lost) -> Report<Written> {
    assert!(stacks.iter().all(|(index, _)| *index != lost.index), "a lost stack is not read");
    let opened = StackReader::open(blob, stacks, policy).await;
    let mut reader = match opened.result {
        Ok(reader) => reader,
        Err(error) => {
            let outcomes = opened.outcomes.into_iter().chain([StackOutcome::Unused]).collect();
            return Report { result: Err(error), outcomes };
        }
    };
    let mut writer = OneStack::new(blob, reader.provenance(), lost);
    let mut result = writer.begin().await;
    if result.is_ok() {
        result = reader.read(0..blob.payload_bytes, &mut writer).await;
    }
    if result.is_ok() {
        result = writer.finish(reader.payload_crc64()).await;
    }
    if result.is_err() {
        writer.remove().await;
    }
    let written = Written { payload_crc64: reader.payload_crc64(), stack_bytes: writer.shape.stack_bytes() };
    // A sink that closes is our own, and closes because its drive does not take what it is given.
    let result = result.map(|()| written).map_err(|error| match error {
        StackError::SinkClosed => StackError::WriteFailed,
        other => other,
    });
    Report { result, outcomes: reader.outcomes().into_iter().chain([writer.outcome]).collect() }
}

/// Reads back all of the stack with index `index` and checks every fragment; its footer must be that of a blob with
/// this checksum.
pub async fn verify_stack(blob: Blob, index: u8, drive: &Arc<dyn Drive>, payload_crc64: u64) -> StackOutcome {
    let (shape, name, meter) = (Shape::new(blob.code, blob.payload_bytes), stack_name(blob.id, index), Arc::default());
    let (header_crc, mut page) = match open(&blob, index, drive, &meter).await {
        Ok(ends) if ends.footer.payload_crc64 != payload_crc64 => return StackOutcome::StackBad,
        Ok(ends) => (ends.footer.header_crc, ends.page),
        Err(error) => return StackOutcome::of(&error),
    };
    let (mut first, mut buffer) = (0, None);
    while first < shape.stripes() {
        let batch = shape.batch(first, shape.stripes());
        let of_run = page.take().filter(|page: &Arc<ChecksumPage>| page.first_stripe == batch.run() * RUN_STRIPES);
        let (drive, name, meter) = (Arc::clone(drive), name.clone(), Arc::clone(&meter));
        let order = FetchOrder { blob, shape, index, drive, name, batch, header_crc, page: of_run, buffer, meter };
        let fetched = order.fetch().await;
        match fetched.fetch {
            Fetch::Read { buffer: back, good } if good.iter().all(|good| *good) => buffer = Some(back),
            Fetch::Read { .. } | Fetch::NoChecksums(_) => return StackOutcome::StackBad,
            Fetch::Failed(error) => return StackOutcome::of(&error),
        }
        page = fetched.page;
        first = batch.end();
    }
    StackOutcome::Fine
}

/// A sink that takes a payload and writes one stack of it.
struct OneStack {
    blob: Blob,
    provenance: Provenance,
    shape: Shape,
    codec: Codec,
    lost: Lost,
    name: FileName,
    created: bool,
    /// Set once header, fragments and checksum pages are on the medium; only then the footer is written.
    body_synced: bool,
    /// The checksum of the header, once that is written.
    header_crc: u32,
    /// The fragments of the stripe that is being filled: k of data, r of parity.
    stripe: Vec<Vec<u8>>,
    /// Payload bytes taken so far.
    taken_bytes: u64,
    /// The batch that is written with the next request.
    batch: StripeBatch,
    buffer: Buffer,
    sums: Vec<u32>,
    outcome: StackOutcome,
}

impl OneStack {
    fn new(blob: Blob, provenance: Provenance, lost: Lost) -> Self {
        let shape = Shape::new(blob.code, blob.payload_bytes);
        Self {
            blob,
            provenance,
            shape,
            codec: Codec::new(blob.code),
            name: stack_name(blob.id, lost.index),
            lost,
            created: false,
            body_synced: false,
            header_crc: 0,
            stripe: vec![Vec::new(); blob.code.stacks()],
            taken_bytes: 0,
            batch: shape.batch(0, shape.stripes()),
            buffer: Buffer::zeroed(shape.batch_bytes() + BLOCK_BYTES),
            sums: Vec::new(),
            outcome: StackOutcome::Fine,
        }
    }

    async fn begin(&mut self) -> Result<(), StackError> {
        let made = self.create().await;
        self.note(made)?;
        assert!(self.created && self.taken_bytes == 0, "a header begins a new file");
        self.clear_stripe(0);
        let Self { blob, provenance, lost: Lost { index, ref drives, .. }, .. } = *self;
        let header = Header { blob, index, provenance, drives: drives.clone() };
        let mut header_crc = 0;
        let encode = |block: &mut [u8]| {
            header.encode(block);
            header_crc = seal_of(block);
        };
        self.write_block(0, encode).await?;
        self.header_crc = header_crc;
        Ok(())
    }

    async fn create(&mut self) -> Result<(), DriveError> {
        let (drive, bytes) = (&self.lost.target, self.shape.stack_bytes());
        let made = match drive.create(&self.name, bytes).await {
            Err(DriveError::Exists(name)) => {
                if !remove_own(&**drive, self.blob.rack, self.blob.id, self.lost.index).await? {
                    return Err(DriveError::Exists(name));
                }
                drive.create(&self.name, bytes).await
            }
            other => other,
        };
        self.created = made.is_ok();
        made
    }

    /// Room for the data of `stripe`, all zeros: what the payload does not fill stays so.
    fn clear_stripe(&mut self, stripe: u64) {
        let bytes = self.shape.fragment_bytes(stripe);
        for fragment in &mut self.stripe {
            fragment.clear();
            fragment.resize(bytes, 0);
        }
    }

    fn current(&self) -> u64 {
        self.taken_bytes / self.blob.code.stripe_bytes()
    }

    /// Takes as much of `bytes` as the current fragment has room for.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let in_stripe = (self.taken_bytes % self.blob.code.stripe_bytes()) as usize;
        let fragment_bytes = self.stripe[0].len();
        let (fragment, at) = (in_stripe / fragment_bytes, in_stripe % fragment_bytes);
        let taken = bytes.len().min(fragment_bytes - at);
        assert!(fragment < usize::from(self.blob.code.data) && taken > 0, "payload goes into the data fragments");
        self.stripe[fragment][at..at + taken].copy_from_slice(&bytes[..taken]);
        self.taken_bytes += taken as u64;
        taken
    }

    /// Adds the wanted fragment of a full stripe to the buffer, and writes the buffer once it is full.
    async fn add_fragment(&mut self, stripe: u64) -> Result<(), StackError> {
        let index = usize::from(self.lost.index);
        if index >= usize::from(self.blob.code.data) {
            let (data, parity) = self.stripe.split_at_mut(self.blob.code.data.into());
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            self.codec.encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        }
        let range = self.shape.within(self.batch, stripe);
        assert_eq!(range.len(), self.stripe[index].len(), "a fragment has the length that follows from its stripe");
        assert!(stripe < self.batch.end(), "a batch is written before the next one begins");
        self.buffer.set_len(self.shape.len(self.batch) + BLOCK_BYTES);
        self.buffer[range].copy_from_slice(&self.stripe[index]);
        self.sums.push(fragment_sum(&self.blob, self.lost.index, stripe, &self.stripe[index]));
        if stripe + 1 == self.batch.end() {
            self.flush().await?;
        }
        if stripe + 1 < self.shape.stripes() {
            self.clear_stripe(stripe + 1);
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), StackError> {
        let mut bytes = self.shape.len(self.batch);
        if self.batch.end() == self.shape.run_end(self.batch.run()) {
            let first_stripe = self.batch.run() * RUN_STRIPES;
            let Blob { rack, id, .. } = self.blob;
            let (index, header_crc, sums) = (self.lost.index, self.header_crc, std::mem::take(&mut self.sums));
            assert_eq!(first_stripe + sums.len() as u64, self.batch.end(), "a page has the checksums of its whole run");
            let page = ChecksumPage { rack, id, index, first_stripe, header_crc, sums };
            page.encode(&mut self.buffer[bytes..bytes + BLOCK_BYTES]);
            bytes += BLOCK_BYTES;
        }
        self.buffer.set_len(bytes);
        assert!(!self.body_synced, "no fragment is written behind the sync");
        self.write(self.shape.fragment_offset(self.batch.first)).await?;
        if self.batch.end() < self.shape.stripes() {
            self.batch = self.shape.batch(self.batch.end(), self.shape.stripes());
        }
        Ok(())
    }

    async fn finish(&mut self, payload_crc64: u64) -> Result<(), StackError> {
        assert_eq!(self.taken_bytes, self.blob.payload_bytes, "a stack is finished when the whole payload was read");
        assert!(self.sums.is_empty(), "every checksum is in its page");
        let synced = self.lost.target.sync(&self.name).await;
        self.note(synced)?;
        self.body_synced = true;
        let (blob, index, header_crc) = (self.blob, self.lost.index, self.header_crc);
        let footer = Footer { blob, index, payload_crc64, header_crc };
        assert!(self.body_synced, "a footer proves that everything before it is on the medium");
        self.write_block(self.shape.footer_offset(), |block| footer.encode(block)).await?;
        let synced = self.lost.target.sync(&self.name).await;
        self.note(synced)
    }

    async fn write_block(&mut self, offset: u64, encode: impl FnOnce(&mut [u8])) -> Result<(), StackError> {
        self.buffer.set_len(BLOCK_BYTES);
        encode(&mut self.buffer);
        self.write(offset).await
    }

    /// Writes the buffer.
    async fn write(&mut self, offset: u64) -> Result<(), StackError> {
        let buffer = std::mem::replace(&mut self.buffer, Buffer::zeroed(0));
        let written = self.lost.target.write_at(&self.name, offset, buffer).await;
        let written = written.map(|back| self.buffer = back);
        self.note(written)
    }

    fn note(&mut self, result: Result<(), DriveError>) -> Result<(), StackError> {
        result.map_err(|error| {
            tracing::warn!(stack = %self.name, %error, "a stack could not be rebuilt");
            self.outcome = StackOutcome::of(&error);
            StackError::WriteFailed
        })
    }

    async fn remove(&mut self) {
        let own = (self.blob.id, self.lost.index);
        assert_eq!(stack_of(&self.name), Some(own), "only the stack that was being rebuilt is removed");
        if self.created
            && let Err(error) = self.lost.target.remove(&self.name).await
        {
            tracing::warn!(stack = %self.name, %error, "an incomplete stack is left behind");
        }
    }
}

impl PayloadSink for OneStack {
    fn take<'a>(&'a mut self, mut bytes: &'a [u8]) -> BoxFuture<'a, Result<(), SinkClosed>> {
        Box::pin(async move {
            while !bytes.is_empty() {
                let stripe = self.current();
                let taken = self.fill(bytes);
                bytes = &bytes[taken..];
                if self.taken_bytes == self.shape.payload_of(stripe).end {
                    self.add_fragment(stripe).await.map_err(|_| SinkClosed)?;
                }
            }
            Ok(())
        })
    }
}
