//! Numbers that are never given out twice.
//!
//! A block of them is reserved durably before the first is used; a crash loses what is left of a block, never reuses
//! it.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{VersionId, decode, encode};
use crate::store::{Batch, Check, Write};
use model::BlobId;
use std::ops::Range;
use tokio::sync::Mutex;

/// How many numbers are reserved at once.
const BLOCK: u64 = 1_024;

/// What is left of the reserved blocks.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    versions: Mutex<Range<u64>>,
    slots: Mutex<Range<u64>>,
    blobs: Mutex<Range<u64>>,
}

impl Catalog {
    /// A version number that was never given out; above every earlier one. At least 1.
    pub async fn next_version_id(&self) -> Result<VersionId, CatalogError> {
        self.next_id("version", &self.ids.versions).await.map(VersionId)
    }

    /// A workshop slot that was never given out. At least 1.
    pub async fn next_slot(&self) -> Result<u64, CatalogError> {
        self.next_id("slot", &self.ids.slots).await
    }

    /// Every slot that was ever given out is below this, whatever became of whoever it was given to.
    pub async fn slots_end(&self) -> Result<u64, CatalogError> {
        Ok(self.read(&key::counter("slot")).await?.unwrap_or(1))
    }

    /// A blob id of a number that this catalog never gave out, at least 1, and of `nonce`, drawn at random: an older
    /// catalog that was put back gives out numbers again.
    pub async fn next_blob_id(&self, nonce: u64) -> Result<BlobId, CatalogError> {
        self.next_id("blob", &self.ids.blobs).await.map(|number| BlobId::new(number, nonce))
    }

    async fn next_id(&self, name: &str, block: &Mutex<Range<u64>>) -> Result<u64, CatalogError> {
        let mut block = block.lock().await;
        if block.is_empty() {
            *block = self.reserve(name).await?;
        }
        let id = block.start;
        block.start += 1;
        Ok(id)
    }

    /// Another process on the same store may reserve at the same time, hence the check.
    async fn reserve(&self, name: &str) -> Result<Range<u64>, CatalogError> {
        let at = key::counter(name);
        let mut turns = self.turns();
        loop {
            let _turn = turns.next().await?;
            let raw = self.store.get(&at).await?;
            let start = raw.as_deref().map_or(Ok(1), |raw| decode::<u64>(&at, raw))?;
            let end = start + BLOCK;
            let check = raw.map_or_else(|| Check::Absent(at.clone()), |raw| Check::Is(at.clone(), raw));
            let writes = vec![Write::Put(at.clone(), encode(&end))];
            if self.apply(Batch { checks: vec![check], writes }).await? {
                return Ok(start..end);
            }
        }
    }
}
