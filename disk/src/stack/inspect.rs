//! Inspecting the stacks of a blob for flaws.
//!
//! The quick form reads the ends of each stack; the deep form reads everything, compares each fragment with its
//! checksum and the parity fragments with what the data fragments make.
//!
//! Invariant: nothing is changed, whatever is found.

use super::fetch::probe;
use super::flaw::Flaw;
use super::format::Blob;
use super::outcome::{StackError, StackOutcome};
use super::read::{PayloadSink, Policy, StackReader};
use crate::{Drive, DriveError, Meter};
use futures::future::join_all;
use std::sync::Arc;

/// The findings on a blob.
#[derive(Debug)]
pub struct Inspection {
    /// The flaws by stack index. Empty if every stack is good.
    pub flaws: Vec<(u8, Flaw)>,
    /// An error if the payload cannot be read to its end or is wrong; in the quick form, as far as the ends show.
    pub payload: Result<(), StackError>,
}

/// Reads the ends of the stacks of `blob`, which should lie on `drives`, in stack order. `None` among them is a drive
/// that cannot be used. (The drives that a header names are those of when its stack was written, and not compared.)
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

/// As [`inspect`], and then reads everything and passes the payload to `sink`: each fragment is compared with its
/// checksum, the parity with the data, the payload with its checksum.
pub async fn inspect_deeply(blob: Blob, drives: &[Option<Arc<dyn Drive>>], sink: &mut dyn PayloadSink) -> Inspection {
    let mut found = inspect(blob, drives).await;
    if found.payload.is_err() {
        return found;
    }
    let usable = drives.iter().enumerate().filter_map(|(index, drive)| Some((index as u8, drive.clone()?)));
    let stacks: Vec<_> = usable.collect();
    let indices: Vec<u8> = stacks.iter().map(|(index, _)| *index).collect();
    let mut reader = match StackReader::open(blob, stacks, Policy::All).await.result {
        Ok(reader) => reader.without_repairs().with_parity_checked(),
        Err(error) => return Inspection { payload: Err(error), ..found },
    };
    found.payload = reader.read(0..blob.payload_bytes, sink).await;
    for ((index, outcome), bad) in indices.into_iter().zip(reader.outcomes()).zip(reader.bad_fragments()) {
        let known = found.flaws.iter().any(|(flawed, flaw)| *flawed == index && !matches!(flaw, Flaw::Page));
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
        found.flaws.push((index, flaw));
    }
    found.flaws.extend(reader.wrong_parity().map(|(index, stripe)| (index, Flaw::Parity { stripe })));
    found.flaws.sort_by_key(|(index, _)| *index);
    found
}
