//! Objects with lost data, as far as the catalog knows: more than r stacks of their blob were on drives that failed.
//! Copies of the catalog are no user's objects and are not included.
//!
//! A key leads to its blob, but a blob does not lead to keys, so naming the objects takes a pass over all objects. One
//! pass serves many blobs.

use crate::catalog::{Catalog, STEP};
use crate::copies::CATALOG_BUCKET;
use crate::error::CatalogError;
use crate::record::{Blob, Place};
use model::{BlobId, DriveId};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of blobs per pass.
const BLOBS_MAX: usize = 1_024;

/// A lost object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostObject {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub bytes: u64,
    /// The blob that stores it.
    pub blob: BlobId,
    /// The drives that have lost stacks of that blob, by number.
    pub drives: Vec<DriveId>,
}

/// The lost objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostObjects {
    /// The first of them, by key.
    pub objects: Vec<LostObject>,
    /// The number of lost objects.
    pub count: u64,
    /// The number of blobs that store them.
    pub blobs: u64,
    /// True if there are more such blobs than were examined.
    pub cut: bool,
}

impl Catalog {
    /// The lost objects, with the first `limit` of them by name. Reads every stack that is lost on some drive and, if
    /// any blob is lost, every object.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn lost_objects(&self, limit: usize) -> Result<LostObjects, CatalogError> {
        let (blobs, cut) = self.lost_blobs().await?;
        let (mut lost, mut copies) = (LostObjects { cut, ..LostObjects::default() }, BTreeSet::new());
        let mut after = None;
        while !blobs.is_empty() {
            let page = self.sound_objects(after.as_ref(), STEP).await?;
            for (bucket, key, placed) in page.items {
                let Place::Stored { blob, .. } = placed.place else { continue };
                let Some(drives) = blobs.get(&blob).filter(|_| placed.object.bytes > 0) else { continue };
                if bucket == CATALOG_BUCKET {
                    copies.insert(blob);
                    continue;
                }
                lost.count += 1;
                if lost.objects.len() < limit {
                    let (bytes, drives) = (placed.object.bytes, drives.clone());
                    lost.objects.push(LostObject { bucket, key, bytes, blob, drives });
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        lost.blobs = (blobs.len() - copies.len()) as u64;
        Ok(lost)
    }

    /// True if data of `id` is known to be lost: a scrub found this, more than r of its stacks were on failed drives,
    /// or the catalog has no record of its drives.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn is_blob_lost(&self, id: BlobId) -> Result<bool, CatalogError> {
        let Some(blob) = self.blob(id).await? else { return Ok(true) };
        if self.scrub_finding(id).await?.is_some_and(|found| !found.lost.is_empty()) {
            return Ok(true);
        }
        let failed: Vec<DriveId> = self.failed_drives().await?.into_iter().map(|(drive, _)| drive).collect();
        Ok(self.lost_drives_of(&blob, &failed).await?.len() > usize::from(blob.code_parity))
    }

    /// The blobs with living versions that have lost more than r stacks, each with the drives of these stacks; and true
    /// if there are more such blobs.
    async fn lost_blobs(&self) -> Result<(BTreeMap<BlobId, Vec<DriveId>>, bool), CatalogError> {
        let failed: Vec<DriveId> = self.failed_drives().await?.into_iter().map(|(drive, _)| drive).collect();
        let drives: BTreeSet<DriveId> = failed.iter().copied().chain(self.replacements().await?.into_keys()).collect();
        let mut blobs = BTreeMap::new();
        for drive in drives {
            let mut after = None;
            loop {
                let page = self.lost_page(drive, after, STEP).await?;
                for (blob, _) in page.blobs.iter().filter(|(_, living)| *living) {
                    let lost = self.lost_drives_of(blob, &failed).await?;
                    if lost.len() > usize::from(blob.code_parity) {
                        blobs.insert(blob.blob, lost);
                    }
                    if blobs.len() > BLOBS_MAX {
                        blobs.remove(&blob.blob);
                        return Ok((blobs, true));
                    }
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok((blobs, false))
    }

    /// The drives of `blob` on which its stack is lost, by number.
    async fn lost_drives_of(&self, blob: &Blob, failed: &[DriveId]) -> Result<Vec<DriveId>, CatalogError> {
        let mut lost = self.lost_of(blob).await?;
        lost.extend(blob.drives.iter().filter(|drive| failed.contains(drive)));
        lost.sort_unstable();
        lost.dedup();
        Ok(lost)
    }
}
