//! One stack's part of a batch: opening it, reading its checksums and fragments, checking each fragment.
//!
//! Invariant: nothing here outlives its request; all results go to the reader, which alone decides.

use super::flaw::Flaw;
use super::format::{
    Blob, ChecksumPage, Footer, Header, Provenance, RUN_STRIPES, Shape, StripeBatch, fragment_sum, stack_name,
};
use crate::format::{BLOCK_BYTES, seal_of};
use crate::{Buffer, Drive, DriveError, FileName, Meter};
use model::sabotage::{Sabotage, is_on};
use std::sync::Arc;

/// A batch to be fetched from one stack.
pub(super) struct FetchOrder {
    pub(super) blob: Blob,
    pub(super) shape: Shape,
    pub(super) index: u8,
    pub(super) drive: Arc<dyn Drive>,
    pub(super) name: FileName,
    pub(super) batch: StripeBatch,
    /// The checksum of the stack's header, which its pages must have.
    pub(super) header_crc: u32,
    /// The checksums of the batch's run, if they are already known.
    pub(super) page: Option<Arc<ChecksumPage>>,
    /// The buffer for the fragments; created when it is needed, if `None`: creating a buffer takes time, and a whole
    /// set of them keeps a thread busy for longer than a drive takes to answer.
    pub(super) buffer: Option<Buffer>,
    pub(super) meter: Arc<Meter>,
}

/// The result of a [`FetchOrder`].
pub(super) struct Fetched {
    /// The checksums of the batch's run, if they are good.
    pub(super) page: Option<Arc<ChecksumPage>>,
    pub(super) fetch: Fetch,
}

pub(super) enum Fetch {
    /// The fragments, each with true if it is good.
    Read { buffer: Buffer, good: Vec<bool> },
    /// The checksum page is bad, so the fragments cannot be checked. A given buffer was not used.
    NoChecksums(Option<Buffer>),
    /// The drive does not answer.
    Failed(DriveError),
}

/// Opens the stack with index `index`: its footer, its header, and its last checksum page if that is good.
/// A stack that is not the expected one is reported as [`DriveError::NotFound`]. So is a stack with an unreadable
/// header or footer if the drive returns other blocks of it: a bad sector is no reason to give up the drive.
pub(super) async fn open(
    blob: &Blob,
    index: u8,
    drive: &Arc<dyn Drive>,
    meter: &Arc<Meter>,
) -> Result<StackEnds, DriveError> {
    open_named(blob, (index, &stack_name(blob.id, index)), drive, meter).await
}

/// The same for a stack under another name.
pub(super) async fn open_named(
    blob: &Blob,
    (index, name): (u8, &FileName),
    drive: &Arc<dyn Drive>,
    meter: &Arc<Meter>,
) -> Result<StackEnds, DriveError> {
    let mut probed = probe_named(blob, (index, name), drive, meter).await;
    if matches!(&probed, Err(Flaw::Drive(error)) if is_local(error)) {
        // A single call may fail once; a bad sector fails each time.
        probed = probe_named(blob, (index, name), drive, meter).await;
    }
    match probed {
        Ok(ends) => Ok(ends),
        Err(Flaw::Drive(error)) if !is_local(&error) || !answers(blob, name, drive).await => Err(error),
        Err(flaw) => {
            tracing::warn!(stack = %name, why = %flaw, "a stack is damaged, or does not match its blob");
            Err(DriveError::NotFound(name.clone()))
        }
    }
}

/// The blocks at both ends of a stack.
pub(super) struct StackEnds {
    /// The last checksum page, if it is good.
    pub(super) page: Option<Arc<ChecksumPage>>,
    pub(super) footer: Footer,
    pub(super) provenance: Provenance,
}

/// Reads the ends of the stack with index `index`, and compares them with the expected ones.
pub(super) async fn probe(
    blob: &Blob,
    index: u8,
    drive: &Arc<dyn Drive>,
    meter: &Arc<Meter>,
) -> Result<StackEnds, Flaw> {
    probe_named(blob, (index, &stack_name(blob.id, index)), drive, meter).await
}

async fn probe_named(
    blob: &Blob,
    (index, name): (u8, &FileName),
    drive: &Arc<dyn Drive>,
    meter: &Arc<Meter>,
) -> Result<StackEnds, Flaw> {
    let shape = Shape::new(blob.code, blob.payload_bytes);
    let (expected_bytes, bytes) = (shape.stack_bytes(), drive.len(name).await?);
    if bytes != expected_bytes {
        return Err(Flaw::Length { bytes, expected_bytes });
    }
    // The end first: the header is just before the first fragment, so reading it costs no extra seek.
    let last_run = shape.runs() - 1;
    let tail = drive.read_at(name, shape.page_offset(last_run), meter.zeroed(2 * BLOCK_BYTES)).await?;
    let footer = Footer::decode(&tail[BLOCK_BYTES..]).map_err(Flaw::Footer)?;
    if footer.blob != *blob || footer.index != index {
        return Err(Flaw::ForeignFooter);
    }
    let page = right_page(blob, index, last_run, footer.header_crc, &tail[..BLOCK_BYTES]);
    let head = drive.read_at(name, 0, meter.zeroed(BLOCK_BYTES)).await?;
    let header = Header::decode(&head).map_err(Flaw::Header)?;
    if header.blob != *blob || header.index != index {
        return Err(Flaw::ForeignHeader);
    }
    if seal_of(&head) != footer.header_crc {
        return Err(Flaw::Unbound);
    }
    Ok(StackEnds { page, footer, provenance: header.provenance })
}

/// The checksum page in `block`, if it belongs to this run and was written with the header of that checksum.
fn right_page(blob: &Blob, index: u8, run: u64, header_crc: u32, block: &[u8]) -> Option<Arc<ChecksumPage>> {
    let page = ChecksumPage::decode(block).ok()?;
    let first_stripe = run * RUN_STRIPES;
    let is_right = page.rack == blob.rack
        && page.id == blob.id
        && page.index == index
        && page.header_crc == header_crc
        && page.first_stripe == first_stripe
        && page.sums.len() as u64 == Shape::new(blob.code, blob.payload_bytes).run_end(run) - first_stripe;
    is_right.then(|| Arc::new(page))
}

/// True for an error that concerns some bytes and not the whole drive.
pub(super) fn is_local(error: &DriveError) -> bool {
    matches!(error, DriveError::Medium { .. } | DriveError::Io { .. })
}

/// True if some block of the stack in the file `name` can be read, so that an error elsewhere in it is the stack's and
/// not the drive's. Blocks that are rarely bad come first: a bad one takes a drive seconds. The smallest stack has four
/// blocks, and each of them is read.
pub(super) async fn answers(blob: &Blob, name: &FileName, drive: &Arc<dyn Drive>) -> bool {
    let (block, footer_at) = (BLOCK_BYTES as u64, Shape::new(blob.code, blob.payload_bytes).footer_offset());
    for offset in [footer_at / 2 / block * block, block, footer_at - block, footer_at, 0] {
        if drive.read_at(name, offset, Buffer::zeroed(BLOCK_BYTES)).await.is_ok() {
            return true;
        }
    }
    false
}

impl FetchOrder {
    /// Reads and checks the ordered batch.
    pub(super) async fn fetch(mut self) -> Fetched {
        if self.page.is_none() {
            match self.read_page().await {
                Ok(page) => self.page = page,
                Err(error) => return Fetched { page: None, fetch: Fetch::Failed(error) },
            }
        }
        let Some(page) = self.page.clone() else {
            return Fetched { page: None, fetch: Fetch::NoChecksums(self.buffer) };
        };
        let fetch = self.read_fragments(&page).await;
        Fetched { page: Some(page), fetch }
    }

    async fn read_page(&self) -> Result<Option<Arc<ChecksumPage>>, DriveError> {
        let offset = self.shape.page_offset(self.batch.run());
        match self.drive.read_at(&self.name, offset, self.meter.zeroed(BLOCK_BYTES)).await {
            Ok(block) => {
                let run = self.batch.run();
                Ok(right_page(&self.blob, self.index, run, self.header_crc, &block))
            }
            Err(error) if is_local(&error) => {
                tracing::warn!(stack = %self.name, %error, "a checksum page cannot be read");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn read_fragments(mut self, page: &ChecksumPage) -> Fetch {
        let offset = self.shape.fragment_offset(self.batch.first);
        let mut buffer = self.buffer.take().unwrap_or_else(|| self.meter.zeroed(self.shape.batch_bytes()));
        buffer.set_len(self.shape.len(self.batch));
        match self.drive.read_at(&self.name, offset, buffer).await {
            Ok(buffer) => {
                let sum = |stripe| {
                    let fragment = &buffer[self.shape.within(self.batch, stripe)];
                    fragment_sum(&self.blob, self.index, stripe, fragment)
                };
                let is_good = |stripe| sum(stripe) == page.sums[(stripe % RUN_STRIPES) as usize];
                let good = (self.batch.first..self.batch.end())
                    .map(|stripe| is_good(stripe) || is_on(Sabotage::FragmentChecksumIgnored))
                    .collect();
                Fetch::Read { buffer, good }
            }
            Err(error) if is_local(&error) => self.read_one_by_one(page, error).await,
            Err(error) => Fetch::Failed(error),
        }
    }

    /// After an error of the medium: reads each fragment separately, so that a bad sector costs one fragment and not
    /// the batch. Takes the memory of one fragment more than the bound, for this stack alone.
    async fn read_one_by_one(self, page: &ChecksumPage, first_error: DriveError) -> Fetch {
        let mut buffer = self.meter.zeroed(self.shape.batch_bytes());
        buffer.set_len(self.shape.len(self.batch));
        let mut good = vec![false; self.batch.stripes as usize];
        let mut answered = false;
        for (stripe, good) in (self.batch.first..self.batch.end()).zip(&mut good) {
            let range = self.shape.within(self.batch, stripe);
            let piece = self.meter.zeroed(range.len());
            match self.drive.read_at(&self.name, self.shape.fragment_offset(stripe), piece).await {
                Ok(piece) => {
                    answered = true;
                    let sum = fragment_sum(&self.blob, self.index, stripe, &piece);
                    *good = sum == page.sums[(stripe % RUN_STRIPES) as usize];
                    buffer[range].copy_from_slice(&piece);
                }
                Err(error) if is_local(&error) => {
                    tracing::warn!(stack = %self.name, stripe, %error, "a fragment cannot be read");
                }
                Err(error) => return Fetch::Failed(error),
            }
        }
        // If not one fragment can be read, the cause may be their sectors or the drive: another block of the stack
        // shows which. If that block can be read, only these fragments are bad: other stripes may need the rest of the
        // stack.
        if answered || answers(&self.blob, &self.name, &self.drive).await {
            Fetch::Read { buffer, good }
        } else {
            Fetch::Failed(first_error)
        }
    }
}
