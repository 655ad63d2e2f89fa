//! Numbers that are never given out twice.
//!
//! A block of numbers is reserved durably before the first one is used. A crash loses the rest of a block, and never
//! reuses it.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key;
use crate::record::{VersionId, decode, encode};
use crate::store::{Batch, Check, Write};
use model::BlobId;
use std::ops::Range;
use tokio::sync::Mutex;

/// Numbers per reservation.
const BLOCK: u64 = 1_024;

/// The copies of each counter: one damaged record must not stop everything.
pub(crate) const COPIES: [u8; 2] = [0, 1];

impl Catalog {
    /// A version number that was never given out, above every earlier one. At least 1.
    pub async fn next_version_id(&self) -> Result<VersionId, CatalogError> {
        self.next_id("version", &self.ids.versions).await.map(VersionId)
    }

    /// A workshop slot that was never given out. At least 1.
    pub async fn next_slot(&self) -> Result<u64, CatalogError> {
        self.next_id("slot", &self.ids.slots).await
    }

    /// Every slot that was ever given out is below this.
    pub async fn slots_end(&self) -> Result<u64, CatalogError> {
        Ok(self.counter("slot").await?.0)
    }

    /// A blob id with a number that this catalog never gave out, at least 1, and with `nonce`, which is random: an
    /// older catalog that was restored gives out numbers again.
    pub async fn next_blob_id(&self, nonce: u64) -> Result<BlobId, CatalogError> {
        self.next_id("blob", &self.ids.blobs).await.map(|number| BlobId::new(number, nonce))
    }

    /// Every blob number that was ever given out is below this.
    pub async fn blobs_end(&self) -> Result<u64, CatalogError> {
        Ok(self.counter("blob").await?.0)
    }

    /// Gives out no slot below `end` from now on. Only for boot, before any slot is given out.
    pub async fn skip_slots(&self, end: u64) -> Result<(), CatalogError> {
        self.advance("slot", |start| start.max(end)).await.map(drop)
    }

    /// Gives out no version below `end` from now on. Only before any version is given out.
    pub(crate) async fn skip_versions(&self, end: u64) -> Result<(), CatalogError> {
        self.advance("version", |start| start.max(end)).await.map(drop)
    }

    /// Gives out no blob number below `end` from now on. Only before any number is given out.
    pub(crate) async fn skip_blobs(&self, end: u64) -> Result<(), CatalogError> {
        self.advance("blob", |start| start.max(end)).await.map(drop)
    }

    async fn next_id(&self, name: &str, block: &Mutex<Range<u64>>) -> Result<u64, CatalogError> {
        let mut block = block.lock().await;
        if block.is_empty() {
            *block = self.advance(name, |start| start + BLOCK).await?;
        }
        let id = block.start;
        assert!(id > 0 && id < block.end, "a number comes from a block that is reserved");
        block.start += 1;
        Ok(id)
    }

    /// Raises the counter `name` from its start to `end(start)`, and returns the numbers between.
    async fn advance(&self, name: &str, end: impl Fn(u64) -> u64) -> Result<Range<u64>, CatalogError> {
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let (start, checks) = self.counter(name).await?;
            let end = end(start);
            let writes = COPIES.map(|copy| Write::Put(key::counter(name, copy), encode(&end))).into();
            assert!(start <= end && checks.len() == COPIES.len(), "a counter only grows, from what every copy says");
            if start == end || self.apply(Batch::new(checks, writes)).await? {
                return Ok(start..end);
            }
        }
    }

    /// The first number that was not given out, with checks that none was reserved since.
    ///
    /// # Errors
    /// [`CatalogError::Damaged`] if both copies are damaged: giving out a number twice would do more harm than an
    /// error.
    async fn counter(&self, name: &str) -> Result<(u64, Vec<Check>), CatalogError> {
        let (mut start, mut damaged, mut checks) = (None, None, Vec::new());
        for copy in COPIES {
            let at = key::counter(name, copy);
            let Some(value) = self.store.get(&at).await? else {
                checks.push(Check::Absent(at));
                continue;
            };
            match decode::<u64>(&at, &value) {
                Ok(end) => start = start.max(Some(end)),
                Err(error) => {
                    self.quarantine(&at, "its other copy counts");
                    damaged = Some(error);
                }
            }
            checks.push(Check::Is(at, value.unproven_body().to_vec()));
        }
        match (start, damaged) {
            (Some(start), _) => Ok((start, checks)),
            (None, None) => Ok((1, checks)),
            (None, Some(error)) => Err(error),
        }
    }
}
