//! Removing the stacks of a blob, or putting a regenerated one in its place, and nothing else.
//!
//! A name alone is no proof: before a file is removed or replaced, its header is read and must show the intended rack,
//! blob and index. If there is no header, or another stack's, the footer decides, and without a footer, the checksum
//! page before it. That page also decides if there is no header, and another stack's footer. A file with none of the
//! three was never complete; since its name has the number and the nonce of this blob, it was left by an attempt at
//! exactly this stack.
//!
//! Invariants: a file whose blocks show another stack is left in place, and reported. An unreadable block does not
//! count as one that was never written: if two of the three are unreadable, the drive may be failing and not the
//! sectors. Then it is unknown which stack the file is, and it is left, too.

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

/// Removes the stacks of blob `id` of `rack` from their drives, each given by its index and drive. A missing stack
/// counts as removed, and so does one whose place is taken by another file.
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

/// Removes the spare that a repair of stack `index` of blob `id` left beside it on `drive`. A missing one counts as
/// removed.
pub async fn remove_spare(rack: RackUuid, id: BlobId, index: u8, drive: &dyn Drive) -> StackOutcome {
    match remove_own(drive, rack, (id, index), &spare_name(id, index)).await {
        Ok(_) => StackOutcome::Fine,
        Err(error) => StackOutcome::of(&error),
    }
}

/// Puts the regenerated stack `index` of blob `id`, which was read back, in the place of the stack beside it, if that
/// is exactly this stack, shows nothing or is missing. False if another file is there: it is left, and nothing changes.
///
/// # Errors
/// The drive's error. The stack may be in its place then, or not.
pub async fn replace_with_spare(rack: RackUuid, id: BlobId, index: u8, drive: &dyn Drive) -> Result<bool, DriveError> {
    let name = stack_name(id, index);
    match is_own(drive, rack, (id, index), &name).await {
        Ok(true) | Err(DriveError::NotFound(_)) => drive.replace(&spare_name(id, index), &name).await.map(|()| true),
        other => other,
    }
}

/// False if the file `name`, which has the name of stack `index` of blob `id`, shows another stack. An error if too
/// little of it can be read to decide.
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
        "a file has the name of a stack but belongs to another one; it is kept: examine it"
    );
    Ok(false)
}

/// Removes the file `name` of stack `index` of blob `id` if it exists. False if it is another stack, which is left.
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

/// The stack that a block shows as its own: rack, blob and index.
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

/// The blocks of a file that show which stack it is.
struct Witnesses<'a> {
    drive: &'a dyn Drive,
    name: &'a FileName,
    /// The errors of unreadable blocks.
    unread: Vec<DriveError>,
}

impl Witnesses<'_> {
    /// The stack that the file is; `None` if it shows none, since it was never complete. Its name together with its
    /// header, its footer, or (if one of these shows nothing) its checksum page is enough to identify it as the stack
    /// `meant`: a misdirected write may have put another stack's block in the place of one of them. But no write of
    /// this rack puts another rack's block there.
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

    /// The stack that the block at `offset` shows; `None` if the file is too short for the block, if the block shows
    /// nothing, as in a file that was never complete, or if it cannot be read.
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
