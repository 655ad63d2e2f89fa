//! Drives that failed for good: that they did, what still counts on them, and where it goes instead.

use crate::catalog::{Catalog, Cursor};
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::record::{Blob, decode, encode};
use crate::store::{Batch, Check, KeyRange, Write};
use model::{BlobId, DriveId};

/// A page of blobs that have a stack on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDrive {
    /// The blobs by number, each with whether a version lives in it.
    pub blobs: Vec<(Blob, bool)>,
    /// Behind which blob to go on; `None` if there are no more.
    pub next: Option<BlobId>,
}

impl Catalog {
    /// Remembers that `drive` failed for good at `now_ms`, in milliseconds of the Unix epoch. Again changes nothing;
    /// the answer is whether this was the first time.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn fail_drive(&self, drive: DriveId, now_ms: u64) -> Result<bool, CatalogError> {
        let at = key::failed(drive);
        self.apply(Batch { checks: vec![Check::Absent(at.clone())], writes: vec![Write::Put(at, encode(&now_ms))] })
            .await
    }

    /// The drives that failed for good, by number, and when, in milliseconds of the Unix epoch; 0 where that is not
    /// known any more.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn failed_drives(&self) -> Result<Vec<(DriveId, u64)>, CatalogError> {
        // A drive whose record is damaged failed all the same: its key says so, and to believe in it could lose data.
        self.all_entries(&key::all(Tag::Failed), |entry| {
            let [drive] = key::numbers(&entry.key)?;
            let at_ms = decode(&entry.key, &entry.value).unwrap_or_else(|error| {
                self.quarantine(&entry.key, &error.to_string());
                0
            });
            Ok((DriveId(drive as u32), at_ms))
        })
        .await
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
        let ids = page
            .items
            .iter()
            .map(|entry| key::numbers(&entry.key).map(|[_, number, nonce]| BlobId::new(number, nonce)));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        let next = page.next.and(ids.last().copied());
        let mut blobs = Vec::with_capacity(ids.len());
        // One that is forgotten between the two reads is no longer there.
        for blob in self.blobs(&ids).await?.into_iter().flatten() {
            let living = !self.store.scan(KeyRange::prefix(&key::members(blob.blob)), 1).await?.is_empty();
            blobs.push((blob, living));
        }
        Ok(OnDrive { blobs, next })
    }

    /// Stack `index` of `blob`, which is written and synced on `to`, lies there from now on, and no longer on `from`.
    /// False if the blob is gone or has no such stack there; nothing is changed then.
    ///
    /// # Errors
    /// [`CatalogError::Store`], after which it may be so or not; [`CatalogError::Conflict`].
    ///
    /// # Panics
    /// If the blob has a stack on `to` already.
    pub async fn move_stack(&self, blob: BlobId, index: u8, from: DriveId, to: DriveId) -> Result<bool, CatalogError> {
        let at = key::blob(blob);
        let mut turns = self.turns();
        loop {
            let _turn = turns.next().await?;
            let Some((mut found, raw)) = self.read_raw::<Blob>(&at).await? else { return Ok(false) };
            assert!(!found.drives.contains(&to), "no two stacks of {blob} are on {to}");
            match found.drives.get_mut(usize::from(index)) {
                Some(drive) if *drive == from => *drive = to,
                _ => return Ok(false),
            }
            let writes = vec![
                Write::Put(at.clone(), encode(&found)),
                Write::Delete(key::on_drive(from, blob)),
                Write::Put(key::on_drive(to, blob), Vec::new()),
            ];
            if self.apply(Batch { checks: vec![Check::Is(at.clone(), raw)], writes }).await? {
                return Ok(true);
            }
        }
    }
}
