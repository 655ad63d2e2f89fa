//! Removing the stacks of a blob, and nothing else.
//!
//! A name alone is no proof: before a file is removed, its header is read and must show the intended rack, blob and
//! index. Where a crash or a bad sector left no header that can be read, the footer decides. A file with
//! neither was never complete, and bears the number and the nonce of this blob in its name: it is what an attempt at
//! this very stack has left.
//!
//! Invariant: a file that shows itself to be another's is left where it is, and reported.

use super::format::{Blob, Footer, Header, stack_name, stack_of};
use super::outcome::StackOutcome;
use crate::format::BLOCK_BYTES;
use crate::label::RackUuid;
use crate::{Buffer, Drive, DriveError, FileName};
use futures::future::join_all;
use model::BlobId;
use model::sabotage::{Sabotage, is_on};
use std::sync::Arc;

/// Removes the stacks of blob `id` of `rack` from their drives, each given by its index and drive. One that is not
/// there counts as removed, and so does one in whose place another's file lies.
pub async fn remove(rack: RackUuid, id: BlobId, stacks: &[(u8, Arc<dyn Drive>)]) -> Vec<StackOutcome> {
    let removed = join_all(stacks.iter().map(|(index, drive)| remove_own(&**drive, rack, id, *index)));
    let outcome = |result| match result {
        Ok(_) => StackOutcome::Fine,
        Err(error) => StackOutcome::of(&error),
    };
    removed.await.into_iter().map(outcome).collect()
}

/// Removes stack `index` of blob `id` if it is there. False if the file of that name is another's, which is left.
pub(super) async fn remove_own(drive: &dyn Drive, rack: RackUuid, id: BlobId, index: u8) -> Result<bool, DriveError> {
    let name = stack_name(id, index);
    assert_eq!(stack_of(&name), Some((id, index)), "a name leads back to its stack");
    let is_meant = |blob: Blob, found: u8| blob.rack == rack && blob.id == id && found == index;
    let removed = match shown(drive, &name).await {
        Ok(Some((blob, found))) if !is_meant(blob, found) && !is_on(Sabotage::StackIdentityUnchecked) => {
            tracing::error!(
                stack = %name, found = %blob.id, rack = %blob.rack, index = found,
                "a file bears the name of a stack and shows itself to be another's; it is left where it is, look at it"
            );
            return Ok(false);
        }
        Ok(_) => drive.remove(&name).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) | Err(DriveError::NotFound(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The blob and the index that a file shows; `None` for a file that was never completed and shows neither.
async fn shown(drive: &dyn Drive, name: &FileName) -> Result<Option<(Blob, u8)>, DriveError> {
    if let Some(header) = block(drive, name, 0).await?.and_then(|block| Header::decode(&block).ok()) {
        return Ok(Some((header.blob, header.index)));
    }
    let Some(offset) = drive.len(name).await?.checked_sub(BLOCK_BYTES as u64) else { return Ok(None) };
    let footer = block(drive, name, offset).await?.and_then(|block| Footer::decode(&block).ok());
    Ok(footer.map(|footer| (footer.blob, footer.index)))
}

/// The block at `offset`; `None` if the file is too short for it or it cannot be read.
async fn block(drive: &dyn Drive, name: &FileName, offset: u64) -> Result<Option<Buffer>, DriveError> {
    match drive.read_at(name, offset, Buffer::zeroed(BLOCK_BYTES)).await {
        Ok(block) => Ok(Some(block)),
        Err(DriveError::Short(_) | DriveError::Io { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
