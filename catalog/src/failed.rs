//! Drives that failed permanently, the stacks that still count on them, and the drives that replace them.
//!
//! Before a replacement clears the failure of a drive, every stack that is still counted on the drive is marked as
//! lost. So at any moment either all stacks on a drive are lost (it has failed), or those with the mark are. The mark
//! is removed when the stack is rebuilt, there or elsewhere, or its blob is forgotten.
//!
//! The same holds for a drive that failed and came back itself: the mark of a stack is removed when the stack was
//! looked for and is right. Other stacks on this drive are in no record, since they were rebuilt or forgotten
//! meanwhile; the drive is remembered until they are removed.

use crate::catalog::{Catalog, Cursor, STEP};
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::record::{Blob, Decode, encode, value};
use crate::store::{Batch, Check, Entry, Write};
use model::{BlobId, DriveId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Value of a stack by drive if the stack was on a drive that failed and was replaced. Otherwise the value is empty.
const LOST: u8 = 1;

/// A page of blobs that have a stack on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDrive {
    /// The blobs by number, each with true if a version lives in it.
    pub blobs: Vec<(Blob, bool)>,
    /// The blob after which the next page begins; `None` if this is the last page.
    pub next: Option<BlobId>,
}

/// The loss with one drive, for the decision whether another may be given up as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBeside {
    /// Bytes of lost stacks; if `needed`, only of those that were examined.
    pub bytes: u64,
    /// True if a blob with a living version would lack more than r stacks without the other drive.
    pub needed: bool,
}

impl Catalog {
    /// Records that `drive` failed permanently at `now_ms`, in milliseconds of the Unix epoch. Repeating the call
    /// changes nothing. True if this was the first time.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn fail_drive(&self, drive: DriveId, now_ms: u64) -> Result<bool, CatalogError> {
        let at = key::failed(drive);
        let new =
            self.apply(Batch::new(vec![Check::Absent(at.clone())], vec![Write::Put(at, encode(&now_ms))])).await?;
        if !new {
            // This report is more certain than an earlier one that the drive was away.
            self.change_record(given_up(), |known: &mut GivenUp| _ = known.remove(&drive.0)).await?;
        }
        Ok(new)
    }

    /// Records that `drive` stayed away and was given up at `now_ms`: it failed, and may come back. Repeating the call
    /// changes nothing.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Conflict`].
    pub async fn give_up_drive(&self, drive: DriveId, now_ms: u64) -> Result<(), CatalogError> {
        let at = key::failed(drive);
        let (check, write) =
            self.change_of(given_up(), |known: &mut GivenUp| _ = known.insert(drive.0, now_ms)).await?;
        let checks = vec![Check::Absent(at.clone()), check];
        if self.apply(Batch::new(checks, vec![Write::Put(at.clone(), encode(&now_ms)), write])).await?
            || self.store.get(&at).await?.is_some()
        {
            return Ok(());
        }
        Err(CatalogError::Conflict)
    }

    /// The drives that failed by staying away, without a later report that they failed.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn given_up_drives(&self) -> Result<Vec<DriveId>, CatalogError> {
        let known: GivenUp = self.look_up_one(&given_up()).await?.unwrap_or_default();
        Ok(known.into_keys().map(DriveId).collect())
    }

    /// The permanently failed drives, by number, each with its time of failure in milliseconds of the Unix epoch; 0 if
    /// the time is no longer known.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn failed_drives(&self) -> Result<Vec<(DriveId, u64)>, CatalogError> {
        // A drive whose record is damaged still counts as failed: its key proves it, and using the drive could lose
        // data.
        self.all_entries(&key::all(Tag::Failed), |entry| {
            let [drive] = key::numbers(&entry.key)?;
            let at_ms = value(entry).unwrap_or_else(|error| {
                self.quarantine(&entry.key, &error.to_string());
                0
            });
            Ok((DriveId(drive as u32), at_ms))
        })
        .await
    }

    /// Puts another, empty drive in the place of `drive`, which failed: all stacks that are counted on it are marked as
    /// lost, and the drive counts as failed no more. The new drive is known by `uuid`, which is on its label, and was
    /// never initialised. Returns the bytes of the stacks that are lost; `None` if the drive has not failed. After an
    /// error or a crash the drive still counts as failed, and the call can be repeated.
    ///
    /// Meanwhile no stack may be written to the drive, or be about to be counted on it.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Conflict`].
    pub async fn replace_drive(&self, drive: DriveId, uuid: [u8; 16]) -> Result<Option<u64>, CatalogError> {
        self.take_in(drive, uuid, None).await
    }

    /// Takes back the failed drive itself, known by `uuid`: like [`replace_drive`](Self::replace_drive), but the drive
    /// is among the [`returned_drives`](Self::returned_drives) from now on.
    ///
    /// # Errors
    /// As [`replace_drive`](Self::replace_drive).
    pub async fn take_back_drive(&self, drive: DriveId, uuid: [u8; 16]) -> Result<Option<u64>, CatalogError> {
        // Takes a new number: numbers that are only reserved are given out later.
        let blobs_end = self.next_blob_id(0).await?.number;
        self.take_in(drive, uuid, Some(blobs_end)).await
    }

    /// The drives that failed and came back, on which uncounted stacks may be: stacks of blobs with numbers below the
    /// given one, by the place of the drive. A damaged record names no drive, and the stacks on them stay.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn returned_drives(&self) -> Result<BTreeMap<DriveId, u64>, CatalogError> {
        let known: Returned = self.look_up_one(&returned()).await?.unwrap_or_default();
        Ok(known.into_iter().map(|(drive, end)| (DriveId(drive), end)).collect())
    }

    /// Marks the stacks of `blob` on these drives as lost, as for a replaced drive: a recovery read each drive, known
    /// by the UUID on its label, and did not find the stack.
    ///
    /// # Errors
    /// [`CatalogError::Store`]; [`CatalogError::Conflict`] if the blob has no stack on one of them.
    pub async fn note_missing(&self, blob: BlobId, missing: &[(DriveId, [u8; 16])]) -> Result<(), CatalogError> {
        let (check, write) = self
            .change_of::<Replacements>(replaced(), |known| {
                known.extend(missing.iter().map(|(drive, uuid)| (drive.0, *uuid)));
            })
            .await?;
        let places: Vec<Vec<u8>> = missing.iter().map(|(drive, _)| key::on_drive(*drive, blob)).collect();
        let mut batch = Batch::new(vec![check], vec![write]);
        batch.checks.extend(places.iter().cloned().map(Check::Present));
        batch.writes.extend(places.into_iter().map(|place| Write::Put(place, vec![LOST])));
        self.apply_or(batch, CatalogError::Conflict).await
    }

    /// Records that no uncounted stack is left on `drive`.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Conflict`].
    pub async fn forget_returned(&self, drive: DriveId) -> Result<(), CatalogError> {
        self.change_record(returned(), |known: &mut Returned| _ = known.remove(&drive.0)).await
    }

    /// Changes one record.
    async fn change_record<T: Default + Serialize + Decode>(
        &self,
        at: Vec<u8>,
        change: impl Fn(&mut T),
    ) -> Result<(), CatalogError> {
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let (check, write) = self.change_of(at.clone(), &change).await?;
            if self.apply(Batch::new(vec![check], vec![write])).await? {
                return Ok(());
            }
        }
    }

    /// A change of one record, for a batch, with a check that no other change has come first.
    pub(crate) async fn change_of<T: Default + Serialize + Decode>(
        &self,
        at: Vec<u8>,
        change: impl FnOnce(&mut T),
    ) -> Result<(Check, Write), CatalogError> {
        let (known, unchanged) = match self.read_to_replace::<T>(&at).await? {
            Some((known, raw)) => (known, Check::Is(at.clone(), raw)),
            None => (None, Check::Absent(at.clone())),
        };
        let mut known = known.unwrap_or_default();
        change(&mut known);
        Ok((unchanged, Write::Put(at, encode(&known))))
    }

    /// A check that the stack of `blob` on `drive`, a replaced drive, is still lost; none if it is not.
    pub(crate) async fn check_of_lost(&self, drive: DriveId, blob: BlobId) -> Result<Option<Check>, CatalogError> {
        let key = key::on_drive(drive, blob);
        let value = self.store.get(&key).await?;
        let entry = value.map(|value| Entry { key, value }).filter(is_lost);
        Ok(entry.map(|entry| Check::Is(entry.key, entry.value.unproven_body().to_vec())))
    }

    /// Puts a drive in the place of `drive`, which failed. The drive itself if `back` is given: the end of the blob
    /// numbers at its return.
    async fn take_in(&self, drive: DriveId, uuid: [u8; 16], back: Option<u64>) -> Result<Option<u64>, CatalogError> {
        let failed = key::failed(drive);
        let Some((_, raw)) = self.read_to_replace::<u64>(&failed).await? else { return Ok(None) };
        let mut lost_bytes = 0_u64;
        let mut after = None;
        loop {
            let (bytes, next) = self.mark_lost(drive, after.as_ref()).await?;
            lost_bytes = lost_bytes.saturating_add(bytes);
            after = next;
            if after.is_none() {
                break;
            }
        }
        let (mut checks, mut writes) = (vec![Check::Is(failed.clone(), raw)], vec![Write::Delete(failed)]);
        let note_back = |known: &mut Returned| match back {
            Some(end) => _ = known.insert(drive.0, end),
            None => _ = known.remove(&drive.0),
        };
        for (check, write) in [
            self.change_of::<Replacements>(replaced(), |known| _ = known.insert(drive.0, uuid)).await?,
            self.change_of::<Returned>(returned(), note_back).await?,
            self.change_of::<GivenUp>(given_up(), |known| _ = known.remove(&drive.0)).await?,
            self.change_of_initialised(|known| known.retain(|place, _| *place != drive.0)).await?,
            self.change_of_retiring(|known| _ = known.remove(&drive.0)).await?,
        ] {
            checks.push(check);
            writes.push(write);
        }
        if back.is_none() {
            writes.extend(self.forget_health(drive).await?);
            writes.extend(self.forget_habits(drive).await?);
        }
        if self.apply(Batch::new(checks, writes)).await? { Ok(Some(lost_bytes)) } else { Err(CatalogError::Conflict) }
    }

    /// Marks a page of the stacks on `drive`, those after `after`, as lost. Returns their bytes and the next cursor.
    async fn mark_lost(&self, drive: DriveId, after: Option<&Cursor>) -> Result<(u64, Option<Cursor>), CatalogError> {
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let page = self.entries(&key::all_on_drive(drive), after, STEP).await?;
            let mut batch = Batch::default();
            let bytes =
                self.blobs(&ids_of(&page.items)?).await?.into_iter().flatten().map(|blob| blob.stack_bytes).sum();
            for entry in page.items.into_iter().filter(|entry| !is_lost(entry)) {
                batch.checks.push(Check::Is(entry.key.clone(), entry.value.unproven_body().to_vec()));
                batch.writes.push(Write::Put(entry.key, vec![LOST]));
            }
            // A blob may be forgotten between the read and the commit.
            if batch.writes.is_empty() || self.apply(batch).await? {
                return Ok((bytes, page.next));
            }
        }
    }

    /// The bytes of stacks that are still lost on drives that were replaced and have not failed since. Reads every
    /// stack on such drives; meant for boot.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn lost_on_replaced(&self) -> Result<BTreeMap<DriveId, u64>, CatalogError> {
        let failed: BTreeSet<DriveId> = self.failed_drives().await?.into_iter().map(|(drive, _)| drive).collect();
        let mut lost = BTreeMap::new();
        for drive in self.replacements().await?.into_keys().filter(|drive| !failed.contains(drive)) {
            let (mut bytes, mut after) = (0_u64, None);
            loop {
                let page = self.lost_page(drive, after, STEP).await?;
                bytes = page.blobs.iter().fold(bytes, |sum, (blob, _)| sum.saturating_add(blob.stack_bytes));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            lost.extend((bytes > 0).then_some((drive, bytes)));
        }
        Ok(lost)
    }

    /// The bytes of the stacks that are lost with `lost`, and whether `drive` is needed: it is if a blob with a living
    /// version would lack more than r stacks without both. Reads up to every stack that is lost there.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn lost_beside(&self, lost: DriveId, drive: DriveId) -> Result<LostBeside, CatalogError> {
        let (mut bytes, mut after) = (0_u64, None);
        loop {
            let page = self.lost_page(lost, after, STEP).await?;
            for (blob, living) in &page.blobs {
                bytes = bytes.saturating_add(blob.stack_bytes);
                if *living && self.needs(blob, drive).await? {
                    return Ok(LostBeside { bytes, needed: true });
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(LostBeside { bytes, needed: false });
            }
        }
    }

    /// True if `blob`, which has lost a stack, would lack more than r stacks without the stack on `drive`.
    async fn needs(&self, blob: &Blob, drive: DriveId) -> Result<bool, CatalogError> {
        if !blob.drives.contains(&drive) {
            return Ok(false);
        }
        let mut lacking = 1;
        for other in blob.drives.iter().filter(|other| **other != drive) {
            lacking += u32::from(self.is_stack_lost(*other, blob.blob).await?);
        }
        Ok(lacking > u32::from(blob.code_parity))
    }

    /// True if `blob` has a stack on `drive` that is lost because the drive that had it failed, replaced or not.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn is_stack_lost(&self, drive: DriveId, blob: BlobId) -> Result<bool, CatalogError> {
        let at = key::on_drive(drive, blob);
        let mut values = self.store.get_many(vec![key::failed(drive), at.clone()]).await?;
        let (stack, failed) = (values.pop().flatten(), values.pop().flatten());
        Ok(stack.is_some_and(|value| failed.is_some() || is_lost(&Entry { key: at, value })))
    }

    /// True if the stack of `blob`, which moves away from `drive`, may still be there: not if the drive failed, nor if
    /// it replaced the drive that had the stack. A damaged record proves neither.
    pub(crate) async fn may_be_left(&self, drive: DriveId, blob: BlobId) -> Result<bool, CatalogError> {
        let at = key::on_drive(drive, blob);
        let mut values = self.store.get_many(vec![key::failed(drive), at.clone()]).await?;
        let (stack, failed) = (values.pop().flatten(), values.pop().flatten());
        let is_known_as_lost = stack.is_some_and(|value| value.open(&at).is_ok_and(|(mark, _)| !mark.is_empty()));
        Ok(failed.is_none() && !is_known_as_lost)
    }

    /// The current UUID of each drive that was replaced, or on which a recovery missed stacks.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn replacements(&self) -> Result<BTreeMap<DriveId, [u8; 16]>, CatalogError> {
        let known: Replacements = self.look_up_one(&replaced()).await?.unwrap_or_default();
        Ok(known.into_iter().map(|(drive, uuid)| (DriveId(drive), uuid)).collect())
    }

    /// Those drives of `blob` that replaced a failed drive which had its stack.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn lost_of(&self, blob: &Blob) -> Result<Vec<DriveId>, CatalogError> {
        let known = self.replacements().await?;
        let drives: Vec<DriveId> = blob.drives.iter().copied().filter(|drive| known.contains_key(drive)).collect();
        let keys: Vec<Vec<u8>> = drives.iter().map(|drive| key::on_drive(*drive, blob.blob)).collect();
        let stacks = if keys.is_empty() { Vec::new() } else { self.store.get_many(keys.clone()).await? };
        let entries = keys.into_iter().zip(stacks).map(|(key, value)| Some(Entry { key, value: value? }));
        Ok(drives.into_iter().zip(entries).filter_map(|(drive, entry)| is_lost(&entry?).then_some(drive)).collect())
    }

    /// A page of the blobs that have a stack on `drive`, with numbers above `after`.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn on_drive_page(
        &self,
        drive: DriveId,
        after: Option<BlobId>,
        limit: usize,
    ) -> Result<OnDrive, CatalogError> {
        let after = after.map(|blob| Cursor(key::on_drive(drive, blob)));
        let page = self.entries(&key::all_on_drive(drive), after.as_ref(), limit).await?;
        let ids = ids_of(&page.items)?;
        let next = page.next.and(ids.last().copied());
        self.on_drive(&ids, next).await
    }

    /// A page of the blobs whose stack on `drive` is lost, with numbers above `after`: all blobs with a stack there if
    /// the drive failed, those with a stack on its predecessor if it was replaced.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn lost_page(
        &self,
        drive: DriveId,
        after: Option<BlobId>,
        limit: usize,
    ) -> Result<OnDrive, CatalogError> {
        if self.store.get(&key::failed(drive)).await?.is_some() {
            return self.on_drive_page(drive, after, limit).await;
        }
        let mut after = after.map(|blob| Cursor(key::on_drive(drive, blob)));
        loop {
            let page = self.entries(&key::all_on_drive(drive), after.as_ref(), STEP).await?;
            let mut lost: Vec<Entry> = page.items.iter().filter(|entry| is_lost(entry)).cloned().collect();
            // The new drive may hold many pages of stacks that are not lost; the list ends only after the last page.
            if lost.is_empty() && page.next.is_some() {
                after = page.next;
                continue;
            }
            let cut = lost.len() > limit;
            lost.truncate(limit);
            let ids = ids_of(&lost)?;
            let next = if cut { ids.last().copied() } else { page.next.and(ids_of(&page.items)?.last().copied()) };
            return self.on_drive(&ids, next).await;
        }
    }

    /// The blobs of `ids` as a page. A blob that was forgotten meanwhile is left out.
    async fn on_drive(&self, ids: &[BlobId], next: Option<BlobId>) -> Result<OnDrive, CatalogError> {
        let mut blobs = Vec::with_capacity(ids.len());
        for (id, found) in ids.iter().zip(self.blobs(ids).await?) {
            // A record that was misread among many counts as missing, so it is read again by itself.
            let found = match found {
                Some(blob) => Some(blob),
                None => self.look_up_one(&key::blob(*id)).await?,
            };
            let Some(blob) = found else { continue };
            let living = self.is_blob_living(blob.blob).await?;
            blobs.push((blob, living));
        }
        Ok(OnDrive { blobs, next })
    }
}

/// UUID of each drive that replaced a failed one, by the number of its place.
type Replacements = BTreeMap<u32, [u8; 16]>;

/// Time at which a drive that stayed away was given up, in milliseconds of the Unix epoch, by the number of its place.
type GivenUp = BTreeMap<u32, u64>;

/// Key of the record of the drives that stayed away and were given up.
fn given_up() -> Vec<u8> {
    key::meta("given-up-drives")
}

/// End of the blob numbers that had been given out when a drive came back, by the number of its place.
type Returned = BTreeMap<u32, u64>;

/// Key of the record of the drives that came back.
fn returned() -> Vec<u8> {
    key::meta("returned-drives")
}

/// Key of the record of the drives that replaced failed ones.
fn replaced() -> Vec<u8> {
    key::meta("replaced-drives")
}

/// The blobs of some stacks by drive.
pub(crate) fn ids_of(stacks: &[Entry]) -> Result<Vec<BlobId>, CatalogError> {
    stacks.iter().map(|entry| key::numbers(&entry.key).map(|[_, number, nonce]| BlobId::new(number, nonce))).collect()
}

/// True for a stack that was on a drive which failed and was replaced. A stack with a damaged record counts as lost: an
/// unneeded rebuild costs less than a missing stack.
fn is_lost(stack: &Entry) -> bool {
    stack.value.open(&stack.key).map_or(true, |(mark, _)| !mark.is_empty())
}
