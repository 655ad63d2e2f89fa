//! Regenerating one stack of a blob from the others, or copying it to another drive.
//!
//! 1. The blob is read as for a client: every used fragment is checked against its checksum, and at the end the whole
//!    payload against its own.
//! 2. Each stripe yields the required fragment: a data fragment directly, a parity fragment by encoding the stripe. The
//!    new stack equals the lost one byte by byte, except that its header has the present drives. A copied stack is read
//!    alone: each fragment is checked against its checksum, and written unchanged.
//! 3. Fragments and checksum pages are synced; only then the footer is written, and synced.
//!
//! Invariants: the footer is written only if the whole payload was right; after a failure the new file is removed.
//! Memory: that of a read and a write.

use super::fetch::{Fetch, FetchOrder, StackEnds, open_named};
use super::format::{Blob, ChecksumPage, RUN_STRIPES, Shape, StripeBatch, spare_name, stack_name};
use super::outcome::{Report, StackError, StackOutcome};
use super::read::{Policy, StackReader};
use super::write::{Lost, StackWriter, Written};
use crate::{Buffer, Drive, FileName, Meter};
use std::sync::Arc;

/// Regenerates a stack of `blob` from `stacks`, each given by its index and drive, and syncs it. A file of an earlier
/// attempt on the target is replaced. The target's outcome comes last.
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
    let begun = StackWriter::create_lost(blob, reader.provenance(), lost).await;
    let Report { result, outcomes: outcome } = match begun.result {
        Err(error) => Report { result: Err(error), outcomes: begun.outcomes },
        Ok(mut writer) => {
            let read = reader.read(0..blob.payload_bytes, &mut writer).await;
            if let Err(error) = read {
                Report { result: Err(error), outcomes: writer.abort().await }
            } else {
                writer.finish().await
            }
        }
    };
    let is_right = |written: &Written| written.payload_crc64 == reader.payload_crc64();
    assert!(result.as_ref().map_or(true, is_right), "what was read and found right was written");
    // Only our own sink closes, when its drive fails a write.
    let result = result.map_err(|error| match error {
        StackError::SinkClosed => StackError::WriteFailed,
        other => other,
    });
    Report { result, outcomes: reader.outcomes().into_iter().chain(outcome).collect() }
}

/// Reads and checks all of stack `index` of `blob`, which may be on `drive` or not, and syncs it: its writer may have
/// been interrupted before the sync. The outcomes are those of the drive as source and as target: the latter is unused
/// if the stack is missing.
pub async fn look(blob: Blob, index: u8, drive: &Arc<dyn Drive>) -> Report<Written> {
    let unread = |outcome| {
        let error = StackError::TooFewStacks { need: 1, good: 0 };
        Report { result: Err(error), outcomes: vec![outcome, StackOutcome::Unused] }
    };
    let (mut batches, ends) = match Batches::open(blob, (index, stack_name(blob.id, index)), drive).await {
        Ok(opened) => opened,
        Err(outcome) => return unread(outcome),
    };
    loop {
        match batches.next().await {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(outcome) => return unread(outcome),
        }
    }
    if let Err(error) = drive.sync(&stack_name(blob.id, index)).await {
        return unread(StackOutcome::of(&error));
    }
    let stack_bytes = Shape::new(blob.code, blob.payload_bytes).stack_bytes();
    let written = Written { payload_crc64: ends.footer.payload_crc64, stack_bytes };
    Report { result: Ok(written), outcomes: vec![StackOutcome::Fine; 2] }
}

/// Copies stack `lost.index` of `blob` from `source`, where it can be read, and syncs the copy; otherwise like
/// [`rebuild`]. A wrong fragment ends it: only the other stacks can replace that. The outcomes are those of source and
/// target.
pub async fn copy(blob: Blob, source: Arc<dyn Drive>, lost: Lost) -> Report<Written> {
    assert!(!lost.beside, "a copy does not go beside a damaged stack");
    let unread = |outcome, of_target| {
        let error = StackError::TooFewStacks { need: 1, good: 0 };
        Report { result: Err(error), outcomes: [outcome].into_iter().chain(of_target).collect() }
    };
    let opened = Batches::open(blob, (lost.index, stack_name(blob.id, lost.index)), &source).await;
    let (mut batches, ends) = match opened {
        Ok(opened) => opened,
        Err(outcome) => return unread(outcome, vec![StackOutcome::Unused]),
    };
    let begun = StackWriter::create_copy(blob, ends.provenance, lost, ends.footer.payload_crc64).await;
    let with_source = |report: Report<Written>| {
        let outcomes = [StackOutcome::Fine].into_iter().chain(report.outcomes).collect();
        Report { result: report.result, outcomes }
    };
    let mut writer = match begun.result {
        Ok(writer) => writer,
        Err(error) => return with_source(Report { result: Err(error), outcomes: begun.outcomes }),
    };
    loop {
        match batches.next().await {
            Ok(None) => return with_source(writer.finish().await),
            Ok(Some((batch, fragments))) => {
                if let Err(error) = writer.write_fragments(batch, fragments).await {
                    return with_source(Report { result: Err(error), outcomes: writer.abort().await });
                }
            }
            Err(outcome) => return unread(outcome, writer.abort().await),
        }
    }
}

/// Reads back all of the stack with index `index` and checks every fragment; its footer must belong to a blob with this
/// checksum.
pub async fn verify_stack(blob: Blob, index: u8, drive: &Arc<dyn Drive>, payload_crc64: u64) -> StackOutcome {
    verify_named(blob, (index, stack_name(blob.id, index)), drive, payload_crc64).await
}

/// The same for a stack that was regenerated beside the stack that it will replace.
pub async fn verify_spare(blob: Blob, index: u8, drive: &Arc<dyn Drive>, payload_crc64: u64) -> StackOutcome {
    verify_named(blob, (index, spare_name(blob.id, index)), drive, payload_crc64).await
}

async fn verify_named(
    blob: Blob,
    (index, name): (u8, FileName),
    drive: &Arc<dyn Drive>,
    payload_crc64: u64,
) -> StackOutcome {
    let (mut batches, ends) = match Batches::open(blob, (index, name), drive).await {
        Ok(opened) => opened,
        Err(outcome) => return outcome,
    };
    if ends.footer.payload_crc64 != payload_crc64 {
        return StackOutcome::StackBad;
    }
    loop {
        match batches.next().await {
            Ok(Some(_)) => {}
            Ok(None) => return StackOutcome::Fine,
            Err(outcome) => return outcome,
        }
    }
}

/// One stack, read from its first batch to its last.
struct Batches {
    blob: Blob,
    shape: Shape,
    index: u8,
    name: FileName,
    drive: Arc<dyn Drive>,
    header_crc: u32,
    page: Option<Arc<ChecksumPage>>,
    first: u64,
    buffer: Option<Buffer>,
    meter: Arc<Meter>,
}

impl Batches {
    /// Stack `index` of `blob`, in the file `name` of `drive`, and its ends.
    async fn open(
        blob: Blob,
        (index, name): (u8, FileName),
        drive: &Arc<dyn Drive>,
    ) -> Result<(Self, StackEnds), StackOutcome> {
        let (shape, meter) = (Shape::new(blob.code, blob.payload_bytes), Arc::default());
        let opened = open_named(&blob, (index, &name), drive, &meter).await;
        let ends = opened.map_err(|error| StackOutcome::of(&error))?;
        let (header_crc, page, drive) = (ends.footer.header_crc, ends.page.clone(), Arc::clone(drive));
        Ok((Self { blob, shape, index, name, drive, header_crc, page, first: 0, buffer: None, meter }, ends))
    }

    /// The next batch and its fragments, which are all right; `None` after the last one.
    async fn next(&mut self) -> Result<Option<(StripeBatch, &[u8])>, StackOutcome> {
        let (blob, shape, index) = (self.blob, self.shape, self.index);
        if self.first == shape.stripes() {
            return Ok(None);
        }
        let batch = shape.batch(self.first, shape.stripes());
        let of_run = self.page.take().filter(|page| page.first_stripe == batch.run() * RUN_STRIPES);
        let (drive, name, meter) = (Arc::clone(&self.drive), self.name.clone(), Arc::clone(&self.meter));
        let (header_crc, buffer) = (self.header_crc, self.buffer.take());
        let order = FetchOrder { blob, shape, index, drive, name, batch, header_crc, page: of_run, buffer, meter };
        let fetched = order.fetch().await;
        self.page = fetched.page;
        self.first = batch.end();
        match fetched.fetch {
            Fetch::Read { buffer, good } if good.iter().all(|good| *good) => {
                let fragments = self.buffer.insert(buffer);
                Ok(Some((batch, &fragments[..])))
            }
            Fetch::Read { .. } | Fetch::NoChecksums(_) => Err(StackOutcome::StackBad),
            Fetch::Failed(error) => Err(StackOutcome::of(&error)),
        }
    }
}
