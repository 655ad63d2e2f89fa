//! Reading back a blob that was just written.

use super::format::Blob;
use super::outcome::{Report, StackError, StackOutcome};
use super::read::{PayloadSink, Policy, SinkClosed, StackReader};
use crate::Drive;
use futures::future::BoxFuture;
use std::sync::Arc;

/// Discards a payload.
pub(super) struct Discard;

impl PayloadSink for Discard {
    fn take<'a>(&'a mut self, _: &'a [u8]) -> BoxFuture<'a, Result<(), SinkClosed>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Reads back all k + r stacks of `blob`, given in stack order, checks every fragment and the payload's checksum.
/// Repairs nothing: new data must be good. An error unless every stack is.
pub async fn verify(blob: Blob, drives: &[Arc<dyn Drive>], payload_crc64: u64) -> Report<()> {
    assert_eq!(drives.len(), blob.code.stacks(), "a blob lies on k + r drives");
    let stacks = drives.iter().enumerate().map(|(index, drive)| (index as u8, Arc::clone(drive))).collect();
    let opened = StackReader::open(blob, stacks, Policy::All).await;
    let mut reader = match opened.result {
        Ok(reader) => reader.without_repairs(),
        Err(error) => return Report { result: Err(error), outcomes: opened.outcomes },
    };
    let result = reader.read(0..blob.payload_bytes, &mut Discard).await;
    let outcomes = reader.outcomes();
    assert_eq!(outcomes.len(), blob.code.stacks(), "every stack was read back");
    let found = reader.payload_crc64();
    let result = result.and_then(|()| {
        if found != payload_crc64 {
            Err(StackError::WrongPayload { expected: payload_crc64, found })
        } else if outcomes.iter().any(|outcome| *outcome != StackOutcome::Fine) {
            Err(StackError::Unsound)
        } else {
            Ok(())
        }
    });
    Report { result, outcomes }
}
