//! Removing the stacks of a blob, or putting a regenerated one in its place, and nothing else.
//!
//! A name alone is no proof: before a file is removed or replaced, its header is read and must show the intended rack,
//! blob and index. Where a crash or a bad sector left no header that can be read, the footer decides. A file with
//! neither was never complete, and bears the number and the nonce of this blob in its name: it is what an attempt at
//! this very stack has left.
//!
//! Invariant: a file that shows itself to be another's is left where it is, and reported.

use super::format::{Blob, Footer, Header, spare_name, spare_of, stack_name, stack_of};
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
    let name = |index: &u8| stack_name(id, *index);
    let removed = join_all(
        stacks.iter().map(|(index, drive)| async move { remove_own(&**drive, rack, (id, *index), &name(index)).await }),
    );
    let outcome = |result| match result {
        Ok(_) => StackOutcome::Fine,
        Err(error) => StackOutcome::of(&error),
    };
    removed.await.into_iter().map(outcome).collect()
}

/// Removes what a repair of stack `index` of blob `id` has left beside it on `drive`. Nothing there counts as removed.
pub async fn remove_spare(rack: RackUuid, id: BlobId, index: u8, drive: &dyn Drive) -> StackOutcome {
    match remove_own(drive, rack, (id, index), &spare_name(id, index)).await {
        Ok(_) => StackOutcome::Fine,
        Err(error) => StackOutcome::of(&error),
    }
}

/// Puts the regenerated stack `index` of blob `id`, which was read back, in the place of the one beside it, if that is
/// this very stack, shows nothing or is missing. False if another's file lies there: it is left, and nothing changes.
///
/// # Errors
/// The drive's. The stack may be in its place then, or not.
pub async fn replace_with_spare(rack: RackUuid, id: BlobId, index: u8, drive: &dyn Drive) -> Result<bool, DriveError> {
    let name = stack_name(id, index);
    match is_own(drive, rack, (id, index), &name).await {
        Ok(true) | Err(DriveError::NotFound(_)) => drive.replace(&spare_name(id, index), &name).await.map(|()| true),
        other => other,
    }
}

/// False if the file `name`, which bears the name of stack `index` of blob `id`, shows itself to be another's. Its name
/// and either its header or its footer are enough to make it this stack: a write that was to go elsewhere may have put
/// another's into the place of one of the two. But no write of this rack puts another rack's header there.
async fn is_own(
    drive: &dyn Drive,
    rack: RackUuid,
    (id, index): (BlobId, u8),
    name: &FileName,
) -> Result<bool, DriveError> {
    assert_eq!(stack_of(name).or(spare_of(name)), Some((id, index)), "a name leads back to its stack");
    let is_meant = |(blob, found): (Blob, u8)| blob.rack == rack && blob.id == id && found == index;
    let by_header = header_of(drive, name).await?;
    if by_header.is_some_and(is_meant) {
        return Ok(true);
    }
    let by_footer = footer_of(drive, name).await?;
    let is_by_footer = by_footer.is_some_and(is_meant) && by_header.is_none_or(|(blob, _)| blob.rack == rack);
    match by_header.or(by_footer) {
        Some((blob, found)) if !is_by_footer && !is_on(Sabotage::StackIdentityUnchecked) => {
            tracing::error!(
                stack = %name, found = %blob.id, rack = %blob.rack, index = found,
                "a file bears the name of a stack and shows itself to be another's; it is left where it is, look at it"
            );
            Ok(false)
        }
        _ => Ok(true),
    }
}

/// Removes the file `name` of stack `index` of blob `id` if it is there. False if it is another's, which is left.
pub(super) async fn remove_own(
    drive: &dyn Drive,
    rack: RackUuid,
    (id, index): (BlobId, u8),
    name: &FileName,
) -> Result<bool, DriveError> {
    let removed = match is_own(drive, rack, (id, index), name).await {
        Ok(true) => drive.remove(name).await,
        other => return if let Err(DriveError::NotFound(_)) = other { Ok(true) } else { other },
    };
    match removed {
        Ok(()) | Err(DriveError::NotFound(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The blob and the index that the header of a file shows; `None` if there is none, as in a file never begun.
async fn header_of(drive: &dyn Drive, name: &FileName) -> Result<Option<(Blob, u8)>, DriveError> {
    let header = block(drive, name, 0).await?.and_then(|block| Header::decode(&block).ok());
    Ok(header.map(|header| (header.blob, header.index)))
}

/// The same of its footer; `None` as well in a file that was never completed.
async fn footer_of(drive: &dyn Drive, name: &FileName) -> Result<Option<(Blob, u8)>, DriveError> {
    let Some(offset) = drive.len(name).await?.checked_sub(BLOCK_BYTES as u64) else { return Ok(None) };
    let footer = block(drive, name, offset).await?.and_then(|block| Footer::decode(&block).ok());
    Ok(footer.map(|footer| (footer.blob, footer.index)))
}

/// The block at `offset`; `None` if the file is too short for it or it cannot be read.
async fn block(drive: &dyn Drive, name: &FileName, offset: u64) -> Result<Option<Buffer>, DriveError> {
    match drive.read_at(name, offset, Buffer::zeroed(BLOCK_BYTES)).await {
        Ok(block) => Ok(Some(block)),
        Err(DriveError::Short(_) | DriveError::Medium { .. } | DriveError::Io { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
