//! Inspecting the stacks of a blob for flaws.
//!
//! The quick form reads the ends of each stack; the deep form reads everything, and compares each fragment with its
//! checksum and the parity fragments with the data fragments.
//!
//! Both change nothing, for any finding. A scrub reads a part in the deep way, and rewrites bad fragments in place.

use super::fetch::{answers, is_local, probe};
use super::flaw::Flaw;
use super::format::{Blob, stack_name};
use super::outcome::{StackError, StackOutcome};
use super::read::{PayloadSink, Policy, StackReader};
use super::verify::Discard;
use crate::{Drive, DriveError, Meter};
use futures::future::join_all;
use std::ops::Range;
use std::sync::Arc;

/// The findings on a blob.
#[derive(Debug)]
pub struct Inspection {
    /// The flaws by stack index. Empty if every stack is good.
    pub flaws: Vec<(u8, Flaw)>,
    /// An error if the payload cannot be read to its end or is wrong; in the quick form, as far as the ends show.
    pub payload: Result<(), StackError>,
}

/// Reads the ends of the stacks of `blob`, which should be on `drives`, in stack order. `None` means a drive that
/// cannot be used. (The drives in a header are those at the time of writing, and are not compared.)
pub async fn inspect(blob: Blob, drives: &[Option<Arc<dyn Drive>>]) -> Inspection {
    assert_eq!(drives.len(), blob.code.stacks(), "a blob lies on k + r drives");
    let meter = Arc::new(Meter::default());
    let probed = join_all(drives.iter().enumerate().map(async |(index, drive)| match drive {
        Some(drive) => probe(&blob, index as u8, drive, &meter).await,
        None => Err(Flaw::NoDrive),
    }))
    .await;
    let crcs: Vec<u64> = probed.iter().flatten().map(|ends| ends.footer.payload_crc64).collect();
    let payload_crc64 = super::read::most_frequent(&crcs);
    let mut good = 0;
    let mut flaws = Vec::new();
    for (index, ends) in probed.into_iter().enumerate() {
        let flaw = match ends {
            Err(flaw) => Some(flaw),
            Ok(ends) if ends.footer.payload_crc64 != payload_crc64 => Some(Flaw::OtherPayload),
            Ok(ends) => {
                good += 1;
                ends.page.is_none().then_some(Flaw::Page)
            }
        };
        flaws.extend(flaw.map(|flaw| (index as u8, flaw)));
    }
    let need = blob.code.data;
    let payload = if good >= need { Ok(()) } else { Err(StackError::TooFewStacks { need, good }) };
    Inspection { flaws, payload }
}

/// As [`inspect`], then reads everything and passes the payload to `sink`: each fragment is compared with its checksum,
/// the parity with the data, the payload with its checksum.
pub async fn inspect_deeply(blob: Blob, drives: &[Option<Arc<dyn Drive>>], sink: &mut dyn PayloadSink) -> Inspection {
    let mut found = inspect(blob, drives).await;
    if found.payload.is_err() {
        return found;
    }
    let (stacks, indices) = usable(drives);
    let mut reader = match StackReader::open(blob, stacks, Policy::All).await.result {
        Ok(reader) => reader.without_repairs().with_parity_checked(),
        Err(error) => return Inspection { payload: Err(error), ..found },
    };
    found.payload = reader.read(0..blob.payload_bytes, sink).await;
    found.add_flaws(&reader, &indices);
    found
}

/// The findings of a scrub on a part of a blob.
#[derive(Debug)]
pub struct ScrubFindings {
    /// The outcome of each stack, by index; unused for a missing drive.
    pub outcomes: Vec<StackOutcome>,
    /// The remaining flaws, by stack index.
    pub flaws: Vec<(u8, Flaw)>,
    /// An error if some stripe has too few good fragments, or if the part cannot be read to its end, or is wrong.
    pub payload: Result<(), StackError>,
    /// The payload bytes of stripes with too few good fragments; neighbours are one range.
    pub lost: Vec<Range<u64>>,
}

/// Reads the payload bytes `part` of `blob` from all available stacks, as [`inspect_deeply`] does, and rewrites bad
/// fragments in place. Continues after lost stripes. The checksum of the whole payload is compared if the part is all
/// of it.
pub async fn scrub(blob: Blob, drives: &[Option<Arc<dyn Drive>>], part: Range<u64>) -> ScrubFindings {
    let mut found = inspect(blob, drives).await;
    let mut lost = Vec::new();
    let (stacks, indices) = usable(drives);
    let mut outcomes = vec![StackOutcome::Unused; drives.len()];
    if found.payload.is_ok() {
        let opened = StackReader::open(blob, stacks, Policy::All).await;
        let (result, read) = match opened.result {
            Err(error) => (Err(error), opened.outcomes),
            Ok(reader) => {
                let mut reader = reader.with_parity_checked();
                let result = read_beyond_losses(&blob, &mut reader, part, &mut lost).await;
                found.add_flaws(&reader, &indices);
                (result, reader.outcomes())
            }
        };
        found.payload = result;
        for (index, outcome) in indices.iter().zip(read) {
            outcomes[usize::from(*index)] = outcome;
        }
    } else {
        for index in &indices {
            outcomes[usize::from(*index)] = StackOutcome::Fine;
        }
    }
    for (index, flaw) in &found.flaws {
        let outcome = &mut outcomes[usize::from(*index)];
        *outcome = match flaw {
            Flaw::NoDrive => StackOutcome::Unused,
            Flaw::Unread(_) => continue, // the reader's outcome has more detail
            Flaw::Drive(error) => match &drives[usize::from(*index)] {
                Some(drive) if is_local(error) && answers(&blob, &stack_name(blob.id, *index), drive).await => {
                    StackOutcome::StackBad
                }
                _ => StackOutcome::of(error),
            },
            _ => StackOutcome::StackBad,
        };
    }
    ScrubFindings { outcomes, flaws: found.flaws, payload: found.payload, lost }
}

/// Reads `part`, and continues after each lost stripe. Returns the first error, if any.
async fn read_beyond_losses(
    blob: &Blob,
    reader: &mut StackReader,
    part: Range<u64>,
    lost: &mut Vec<Range<u64>>,
) -> Result<(), StackError> {
    let (mut from, mut result, stripe_bytes) = (part.start, Ok(()), blob.code.stripe_bytes());
    loop {
        let error = match reader.read(from..part.end, &mut Discard).await {
            Err(error @ StackError::DataLost { .. }) => error,
            other => return result.and(other),
        };
        let StackError::DataLost { stripe, .. } = error else { return Err(error) };
        let (start, end) = (stripe * stripe_bytes, ((stripe + 1) * stripe_bytes).min(part.end));
        match lost.last_mut().filter(|last: &&mut Range<u64>| last.end >= start) {
            Some(last) => last.end = end,
            None => lost.push(start..end),
        }
        assert!(end > from, "each lost stripe lies behind the one before");
        (from, result) = (end, result.and(Err(error)));
    }
}

/// Stacks, each given by its index and drive.
type Stacks = Vec<(u8, Arc<dyn Drive>)>;

/// The drives that can be used, as stacks, and their indices.
fn usable(drives: &[Option<Arc<dyn Drive>>]) -> (Stacks, Vec<u8>) {
    let there = drives.iter().enumerate().filter_map(|(index, drive)| Some((index as u8, drive.clone()?)));
    let stacks: Stacks = there.collect();
    let indices = stacks.iter().map(|(index, _)| *index).collect();
    (stacks, indices)
}

impl Inspection {
    /// Adds the findings of `reader`, which reads the stacks `indices`.
    fn add_flaws(&mut self, reader: &StackReader, indices: &[u8]) {
        for ((&index, outcome), bad) in indices.iter().zip(reader.outcomes()).zip(reader.bad_fragments()) {
            let known = self.flaws.iter().any(|(flawed, flaw)| *flawed == index && !matches!(flaw, Flaw::Page));
            if known {
                continue;
            }
            let flaw = match outcome {
                _ if bad > 0 => Flaw::Fragments(bad),
                StackOutcome::Failed(error) => Flaw::Unread(error),
                StackOutcome::NoAnswer => Flaw::Unread("it did not answer in time".into()),
                StackOutcome::NotAsked => Flaw::Unread(DriveError::TooManyOpenFiles.to_string()),
                _ => continue,
            };
            self.flaws.push((index, flaw));
        }
        self.flaws.extend(reader.wrong_parity().map(|(index, stripe)| (index, Flaw::Parity { stripe })));
        self.flaws.sort_by_key(|(index, _)| *index);
    }
}
