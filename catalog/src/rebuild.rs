//! Rebuild targets. A lost stack is rebuilt on another drive, or on the drive that replaced its old one; a damaged
//! stack is rebuilt beside itself.
//!
//! Before the first byte of it is written, the catalog records where it will be: the *target*. This note is deleted in
//! the batch that counts the stack there, or once the file is removed. So a crash or a full catalog leaves no unknown
//! stack, and no blob is forgotten while a stack of it may be where it is not counted.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::record::{Blob, encode};
use crate::store::{Batch, Check, Entry, KeyRange, Write};
use model::{BlobId, DriveId};
use std::collections::BTreeSet;

/// A stack that a rebuild may have left on a drive where the blob does not count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildTarget {
    /// The drive.
    pub drive: DriveId,
    /// The stack's index.
    pub index: u8,
    /// True if the blob counts that stack there: then a spare beside it may be left.
    pub spare: bool,
}

impl RebuildTarget {
    fn key(self, blob: BlobId) -> Vec<u8> {
        if self.spare {
            key::spare_target(blob, self.drive, self.index)
        } else {
            key::rebuild_target(blob, self.drive, self.index)
        }
    }
}

impl Catalog {
    /// Records, before it is written, that stack `index` of `blob` may be on `target` from now on. False if the blob is
    /// gone or has moved; nothing is changed then.
    ///
    /// # Errors
    /// [`CatalogError::Store`], after which the target may be recorded or not; [`CatalogError::Conflict`].
    ///
    /// # Panics
    /// If the blob has a stack on `target` already.
    pub async fn begin_rebuild(&self, blob: &Blob, index: u8, target: DriveId) -> Result<bool, CatalogError> {
        assert!(!blob.drives.contains(&target), "no two stacks of {} are on {target}", blob.blob);
        self.note_target(blob, RebuildTarget { drive: target, index, spare: false }).await
    }

    /// Records, before it is written, that a spare may be beside stack `index` of `blob` from now on. False if the blob
    /// is gone or has moved; nothing is changed then.
    ///
    /// # Errors
    /// As [`begin_rebuild`](Self::begin_rebuild).
    pub async fn begin_repair(&self, blob: &Blob, index: u8) -> Result<bool, CatalogError> {
        let drive = blob.drives[usize::from(index)];
        self.note_target(blob, RebuildTarget { drive, index, spare: true }).await
    }

    /// Records that stack `index` of `blob`, which was lost with a drive, may be in its place from now on. The caller
    /// looks for it or writes it there afterwards. False if the blob is gone or has moved, or if the stack counts;
    /// nothing is changed then.
    ///
    /// # Errors
    /// As [`begin_rebuild`](Self::begin_rebuild).
    pub async fn begin_return(&self, blob: &Blob, index: u8) -> Result<bool, CatalogError> {
        let drive = blob.drives[usize::from(index)];
        self.note_target(blob, RebuildTarget { drive, index, spare: false }).await
    }

    /// Records that stack `index` of `blob`, which is elsewhere, was left on `drive` and must be removed. False if the
    /// blob is gone, or if the stack may be needed there: it is being rebuilt there, or counts there, lost or not.
    ///
    /// # Errors
    /// As [`begin_rebuild`](Self::begin_rebuild).
    pub async fn note_left_over(&self, blob: BlobId, drive: DriveId, index: u8) -> Result<bool, CatalogError> {
        let (at, target) = (key::blob(blob), RebuildTarget { drive, index, spare: false });
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let Some((found, raw)) = self.read_raw::<Blob>(&at).await? else { return Ok(false) };
            if found.drives.get(usize::from(index)).is_none_or(|there| *there == drive) {
                return Ok(false);
            }
            let checks = vec![Check::Is(at.clone(), raw), Check::Absent(target.key(blob))];
            if self.apply(Batch::new(checks, vec![Write::Put(target.key(blob), Vec::new())])).await? {
                return Ok(true);
            }
            if self.rebuild_targets(blob).await?.contains(&target) {
                return Ok(false);
            }
        }
    }

    async fn note_target(&self, blob: &Blob, target: RebuildTarget) -> Result<bool, CatalogError> {
        let at = key::blob(blob.blob);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let found = self.read_raw::<Blob>(&at).await?.filter(|(found, _)| found.drives == blob.drives);
            let Some((_, raw)) = found else { return Ok(false) };
            let mut checks = vec![Check::Is(at.clone(), raw)];
            if blob.drives.contains(&target.drive) && !target.spare {
                // Nothing is written in the place of a counted stack.
                let Some(lost) = self.check_of_lost(target.drive, blob.blob).await? else { return Ok(false) };
                checks.push(lost);
            }
            let note = Write::Put(target.key(blob.blob), Vec::new());
            if self.apply(Batch::new(checks, vec![note])).await? {
                return Ok(true);
            }
        }
    }

    /// Counts stack `index` of `blob`, which was lost with a drive, again: it is in its place on `drive`, and is right.
    /// False if the blob is gone or has no such stack there; nothing is changed then.
    ///
    /// # Errors
    /// [`CatalogError::Store`], after which the stack may be counted or not; [`CatalogError::Conflict`].
    pub async fn count_returned(&self, blob: BlobId, index: u8, drive: DriveId) -> Result<bool, CatalogError> {
        let at = key::blob(blob);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let found = self.read_raw::<Blob>(&at).await?;
            let lies_there = |found: &Blob| found.drives.get(usize::from(index)) == Some(&drive);
            let Some((_, raw)) = found.filter(|(found, _)| lies_there(found)) else { return Ok(false) };
            let Some(lost) = self.check_of_lost(drive, blob).await? else { return Ok(true) };
            let writes = vec![
                Write::Put(key::on_drive(drive, blob), Vec::new()),
                Write::Delete(key::rebuild_target(blob, drive, index)),
            ];
            if self.apply(Batch::new(vec![Check::Is(at.clone(), raw), lost], writes)).await? {
                return Ok(true);
            }
        }
    }

    /// The places where rebuilds of `blob` may have left stacks that it does not count.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn rebuild_targets(&self, blob: BlobId) -> Result<Vec<RebuildTarget>, CatalogError> {
        self.all_entries(&key::rebuild_targets(blob), |entry| target_of(entry).map(|(_, target)| target)).await
    }

    /// Confirms by a commit that `blob` still is as it was read, and that `left` are all left over. False if not.
    ///
    /// A commit that was not answered may have counted a stack, and takes effect only at the next start. A later commit
    /// that finds the blob unchanged proves that it did not: without this proof no stack that a rebuild has left may be
    /// removed.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn confirm_left_over(&self, blob: &Blob, left: &[RebuildTarget]) -> Result<bool, CatalogError> {
        let (at, notes) = (key::blob(blob.blob), || left.iter().map(|target| target.key(blob.blob)));
        let found = self.read_raw::<Blob>(&at).await?.filter(|(found, _)| found.drives == blob.drives);
        let Some((_, raw)) = found else { return Ok(false) };
        let mut checks = vec![Check::Is(at, raw)];
        checks.extend(notes().map(|note| Check::Is(note, Vec::new())));
        self.apply(Batch::new(checks, notes().map(|note| Write::Put(note, Vec::new())).collect())).await
    }

    /// Forgets these targets, at which all stacks that rebuilds of `blob` may have left are removed.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn forget_rebuild_targets(&self, blob: BlobId, removed: &[RebuildTarget]) -> Result<(), CatalogError> {
        let forget = |at: &RebuildTarget| Write::Delete(at.key(blob));
        self.write(removed.iter().map(forget).collect()).await
    }

    /// Moves stack `index` of `blob`, which is written and synced on `to`, from `from` to `to`. False if the blob is
    /// gone or has no such stack there; nothing is changed then. The same batch records what may be left on `from`,
    /// until it is removed: the stack of a good drive that is emptied, or a counted stack that seemed lost because its
    /// record could not be read once.
    ///
    /// # Errors
    /// [`CatalogError::Store`], after which the stack may be moved or not; [`CatalogError::Conflict`].
    ///
    /// # Panics
    /// If the blob has a stack on `to` already.
    pub async fn move_stack(&self, blob: BlobId, index: u8, [from, to]: [DriveId; 2]) -> Result<bool, CatalogError> {
        let at = key::blob(blob);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let Some((mut found, raw)) = self.read_raw::<Blob>(&at).await? else { return Ok(false) };
            assert!(!found.drives.contains(&to), "no two stacks of {blob} are on {to}");
            match found.drives.get_mut(usize::from(index)) {
                Some(drive) if *drive == from => *drive = to,
                _ => return Ok(false),
            }
            assert!(!found.drives.contains(&from), "no other stack of {blob} was on {from}");
            let mut writes = vec![
                Write::Put(at.clone(), encode(&found)),
                Write::Delete(key::on_drive(from, blob)),
                Write::Put(key::on_drive(to, blob), Vec::new()),
                Write::Delete(key::rebuild_target(blob, to, index)),
            ];
            if self.may_be_left(from, blob).await? {
                writes.push(Write::Put(key::rebuild_target(blob, from, index), Vec::new()));
            }
            if self.apply(Batch::new(vec![Check::Is(at.clone(), raw)], writes)).await? {
                return Ok(true);
            }
        }
    }

    /// Sets the drives of the stacks of `blob`, in their order: a recovery has found them on `drives`.
    ///
    /// # Errors
    /// [`CatalogError::Store`]; [`CatalogError::Conflict`] if the record has changed by now.
    ///
    /// # Panics
    /// If there is not one drive for each stack.
    pub async fn relocate(&self, blob: &Blob, drives: Vec<DriveId>) -> Result<(), CatalogError> {
        let distinct: BTreeSet<DriveId> = drives.iter().copied().collect();
        assert!(drives.len() == blob.drives.len() && distinct.len() == drives.len(), "each stack has its drive");
        let (id, at) = (blob.blob, key::blob(blob.blob));
        let mut writes = Vec::new();
        for (index, (from, to)) in blob.drives.iter().zip(&drives).enumerate() {
            if !distinct.contains(from) {
                writes.push(Write::Delete(key::on_drive(*from, id)));
            }
            if !blob.drives.contains(to) {
                writes.push(Write::Put(key::on_drive(*to, id), Vec::new()));
                writes.push(Write::Delete(key::rebuild_target(id, *to, index as u8)));
            }
        }
        let moved = Blob { drives, ..blob.clone() };
        writes.push(Write::Put(at.clone(), encode(&moved)));
        self.apply_or(Batch::new(vec![Check::Is(at, encode(blob))], writes), CatalogError::Conflict).await
    }

    /// A check that the blob has no rebuild targets.
    pub(crate) fn no_rebuild_target(blob: BlobId) -> Check {
        Check::Empty(KeyRange::prefix(&key::rebuild_targets(blob)))
    }
}

/// The blob and the place of a rebuild target.
pub(crate) fn target_of(entry: &Entry) -> Result<(BlobId, RebuildTarget), CatalogError> {
    assert!(entry.key.first() == Some(&(Tag::RebuildTarget as u8)), "what is parsed is a rebuild target");
    let [number, nonce, drive, index] = key::numbers(&entry.key)?;
    let spare = index >= key::SPARE;
    let index = u8::try_from(if spare { index - key::SPARE } else { index });
    let (Ok(drive), Ok(index)) = (u32::try_from(drive), index) else {
        return Err(CatalogError::damaged(&entry.key, "its key names no drive and stack"));
    };
    Ok((BlobId::new(number, nonce), RebuildTarget { drive: DriveId(drive), index, spare }))
}
