//! Regenerating one stack of a blob from the others.
//!
//! 1. The blob is read like for a client: every fragment that is used is checked against its checksum, and in the end
//!    the payload as a whole against its own.
//! 2. Each stripe gives the one fragment that is wanted: a data fragment as it is, a parity fragment by encoding the
//!    stripe. The new stack is the lost one again, byte by byte, but that its header names the drives of now.
//! 3. Fragments and checksum pages are synced; only then the footer is written, and synced.
//!
//! Invariants: the footer is written only if the whole payload was right; on a failure the new file is removed. Memory:
//! what a read and a write take.

use super::fetch::{Fetch, FetchOrder, open_named};
use super::format::{Blob, ChecksumPage, RUN_STRIPES, Shape, spare_name, stack_name};
use super::outcome::{Report, StackError, StackOutcome};
use super::read::{Policy, StackReader};
use super::write::{Lost, StackWriter, Written};
use crate::{Drive, FileName};
use std::sync::Arc;

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
    // A sink that closes is our own, and closes because its drive does not take what it is given.
    let result = result.map_err(|error| match error {
        StackError::SinkClosed => StackError::WriteFailed,
        other => other,
    });
    Report { result, outcomes: reader.outcomes().into_iter().chain(outcome).collect() }
}

/// Reads back all of the stack with index `index` and checks every fragment; its footer must be that of a blob with
/// this checksum.
pub async fn verify_stack(blob: Blob, index: u8, drive: &Arc<dyn Drive>, payload_crc64: u64) -> StackOutcome {
    verify_named(blob, (index, stack_name(blob.id, index)), drive, payload_crc64).await
}

/// The same of a stack that was regenerated beside the one that it is to replace.
pub async fn verify_spare(blob: Blob, index: u8, drive: &Arc<dyn Drive>, payload_crc64: u64) -> StackOutcome {
    verify_named(blob, (index, spare_name(blob.id, index)), drive, payload_crc64).await
}

async fn verify_named(
    blob: Blob,
    (index, name): (u8, FileName),
    drive: &Arc<dyn Drive>,
    payload_crc64: u64,
) -> StackOutcome {
    let (shape, meter) = (Shape::new(blob.code, blob.payload_bytes), Arc::default());
    let (header_crc, mut page) = match open_named(&blob, (index, &name), drive, &meter).await {
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
