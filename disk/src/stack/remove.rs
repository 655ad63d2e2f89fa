//! Removing the stacks of a blob, or putting a regenerated one in its place, and nothing else.
//!
//! A name alone is no proof: before a file is removed or replaced, its header is read and must show the intended rack,
//! blob and index. Where there is no header, or another's, the footer decides, and where there is none, the checksum
//! page before it; that page decides as well where there is no header, and another's footer. A file with none of the
//! three was never complete, and bears the number and the nonce of this blob in its name: it is what an attempt at this
//! very stack has left.
//!
//! Invariants: a file that shows itself to be another's is left where it is, and reported. A block that cannot be read
//! is none that was never written: where two of the three cannot be, it may be the drive that fails and not the
//! sectors, nobody knows whose file it is, and it is left as well.

use super::format::{ChecksumPage, Footer, Header, spare_name, spare_of, stack_name, stack_of};
use super::outcome::StackOutcome;
use crate::format::BLOCK_BYTES;
use crate::label::RackUuid;
use crate::{Buffer, Drive, DriveError, FileName};
use futures::future::join_all;
use model::BlobId;
use model::sabotage::{Sabotage, is_on};
use std::sync::Arc;

const BLOCK: u64 = BLOCK_BYTES as u64;

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

/// False if the file `name`, which bears the name of stack `index` of blob `id`, shows itself to be another's. An error
/// if too little of it can be read to tell.
async fn is_own(
    drive: &dyn Drive,
    rack: RackUuid,
    (id, index): (BlobId, u8),
    name: &FileName,
) -> Result<bool, DriveError> {
    assert_eq!(stack_of(name).or(spare_of(name)), Some((id, index)), "a name leads back to its stack");
    let meant = (rack, id, index);
    let shown = Witnesses { drive, name, unread: Vec::new() }.owner(meant).await?;
    let another = shown.filter(|owner| *owner != meant && !is_on(Sabotage::StackIdentityUnchecked));
    let Some((rack, found, index)) = another else { return Ok(true) };
    tracing::error!(
        stack = %name, %found, %rack, index,
        "a file bears the name of a stack and shows itself to be another's; it is left where it is, look at it"
    );
    Ok(false)
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

/// Whose file a block shows its own to be: which rack's, of which blob, and which of its stacks.
type Owner = (RackUuid, BlobId, u8);

fn of_header(block: &[u8]) -> Option<Owner> {
    Header::decode(block).ok().map(|header| (header.blob.rack, header.blob.id, header.index))
}

fn of_footer(block: &[u8]) -> Option<Owner> {
    Footer::decode(block).ok().map(|footer| (footer.blob.rack, footer.blob.id, footer.index))
}

fn of_page(block: &[u8]) -> Option<Owner> {
    ChecksumPage::decode(block).ok().map(|page| (page.rack, page.id, page.index))
}

/// The blocks of a file that show whose it is.
struct Witnesses<'a> {
    drive: &'a dyn Drive,
    name: &'a FileName,
    /// Why some of them could not be read.
    unread: Vec<DriveError>,
}

impl Witnesses<'_> {
    /// Whose the file is; `None` if it shows nothing, since it was never complete. Its name and either its header or
    /// its footer, or its checksum page where one of the two shows nothing, are enough to make it the stack that is
    /// `meant`: a write that was to go elsewhere may have put another's into the place of one of them. But no write of
    /// this rack puts another rack's there.
    async fn owner(mut self, meant: Owner) -> Result<Option<Owner>, DriveError> {
        let header = self.ask(Some(0), of_header).await?;
        if header == Some(meant) {
            return Ok(header);
        }
        let end = self.drive.len(self.name).await?;
        let footer = self.ask(end.checked_sub(BLOCK), of_footer).await?;
        let is_of_ours = footer.is_some_and(|(rack, ..)| rack == meant.0);
        let last = match footer {
            None => self.ask(end.checked_sub(2 * BLOCK), of_page).await?,
            Some(shown) if shown != meant && header.is_none() && is_of_ours => {
                let page = self.ask(end.checked_sub(2 * BLOCK), of_page).await?;
                page.filter(|page| *page == meant).or(footer)
            }
            shown => shown,
        };
        if last == Some(meant) && header.is_none_or(|(rack, ..)| rack == meant.0) {
            return Ok(last);
        }
        let shown = header.or(last);
        if shown.is_none() && self.unread.len() > 1 { Err(self.unread.remove(0)) } else { Ok(shown) }
    }

    /// What the block at `offset` shows; `None` if the file is too short for it, if it shows nothing, as in a file that
    /// was never complete, or if it cannot be read.
    async fn ask(
        &mut self,
        offset: Option<u64>,
        shown: impl Fn(&[u8]) -> Option<Owner>,
    ) -> Result<Option<Owner>, DriveError> {
        let Some(offset) = offset else { return Ok(None) };
        match self.drive.read_at(self.name, offset, Buffer::zeroed(BLOCK_BYTES)).await {
            Ok(block) => Ok(shown(&block)),
            Err(DriveError::Short(_)) => Ok(None),
            Err(error @ (DriveError::Medium { .. } | DriveError::Io { .. })) => {
                self.unread.push(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
