//! Reads of staged versions: their number, the last one, and true if every byte was read.
//!
//! A record is written some time after the reads that it counts, and many records share one batch; the counting caller
//! holds the reads that are not written yet. The batch that takes a version out of the workshop deletes its record, and
//! a record is written only for a staged version, so no record outlives its version. Its key is in the order of ages,
//! like the index by age.

use crate::catalog::{Catalog, Cursor, Page, STEP};
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::record::{PlacedObject, VersionId, encode, value};
use crate::staging::aged;
use crate::store::{Batch, Check, Entry, Write};
use serde::{Deserialize, Serialize};

/// Versions per batch of recorded reads.
const RECORDED_AT_ONCE: usize = 256;

/// The reads of a version since it was staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    /// The number of reads.
    pub count: u64,
    /// Start of the last read, in milliseconds of the Unix epoch.
    pub last_ms: u64,
    /// True if every byte was read, by one read or by several.
    pub is_through: bool,
}

impl Reads {
    /// The sum of these reads and `more`.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            count: self.count.saturating_add(more.count),
            last_ms: self.last_ms.max(more.last_ms),
            is_through: self.is_through || more.is_through,
        }
    }
}

/// A staged version in the order of ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgedVersion {
    /// Time of staging, in milliseconds of the Unix epoch.
    pub staged_ms: u64,
    /// Its number.
    pub version: VersionId,
}

impl AgedVersion {
    /// The position of a version that is in the workshop.
    pub fn of(placed: &PlacedObject) -> Self {
        Self { staged_ms: placed.staged_ms, version: placed.object.version }
    }

    fn of_key(entry: &Entry) -> Result<Self, CatalogError> {
        let [staged_ms, version] = key::numbers(&entry.key)?;
        Ok(Self { staged_ms, version: VersionId(version) })
    }

    fn reads_key(self) -> Vec<u8> {
        key::reads(self.staged_ms, self.version)
    }
}

impl Catalog {
    /// Adds reads to the recorded ones. Reads of versions that are no longer staged are forgotten.
    ///
    /// # Errors
    /// [`CatalogError::Store`]; [`CatalogError::Conflict`]. Some of the reads may be recorded then.
    pub async fn record_reads(&self, reads: &[(AgedVersion, Reads)]) -> Result<(), CatalogError> {
        for some in reads.chunks(RECORDED_AT_ONCE) {
            let mut retries = self.retries();
            loop {
                let _permit = retries.next().await?;
                if self.record_some(some).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// False if one of the versions left the workshop meanwhile.
    async fn record_some(&self, reads: &[(AgedVersion, Reads)]) -> Result<bool, CatalogError> {
        let staged = |(of, _): &(AgedVersion, Reads)| key::aged(of.staged_ms, of.version);
        let are_staged = self.store.get_many(reads.iter().map(staged).collect()).await?;
        let known = self.reads_of(&reads.iter().map(|(of, _)| *of).collect::<Vec<_>>()).await?;
        let mut batch = Batch::new(Vec::new(), Vec::new());
        for ((entry, known), _) in reads.iter().zip(known).zip(are_staged).filter(|(_, staged)| staged.is_some()) {
            batch.checks.push(Check::Present(staged(entry)));
            batch.writes.push(Write::Put(entry.0.reads_key(), encode(&known.unwrap_or_default().and(entry.1))));
        }
        if batch.writes.is_empty() {
            return Ok(true);
        }
        self.apply(batch).await
    }

    /// The recorded reads of each of `versions`. If none are recorded at all, this takes a single short read.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn reads_of(&self, versions: &[AgedVersion]) -> Result<Vec<Option<Reads>>, CatalogError> {
        if self.entries(&key::all(Tag::Reads), None, 1).await?.items.is_empty() {
            return Ok(vec![None; versions.len()]);
        }
        self.look_up(versions.iter().map(|of| of.reads_key()).collect()).await
    }

    /// A page of the staged versions with reads and their lengths, oldest first.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn reads_page(&self, after: Option<&Cursor>) -> Result<Page<(AgedVersion, u64, Reads)>, CatalogError> {
        let read = |entry: &Entry| Ok((AgedVersion::of_key(entry)?, value::<Reads>(entry)?));
        let page = self.page(&key::all(Tag::Reads), after, STEP, read).await?;
        let ages = page.items.iter().map(|(of, _)| key::aged(of.staged_ms, of.version)).collect();
        let lengths = self.look_up::<u64>(ages).await?;
        let with_length =
            page.items.into_iter().zip(lengths).filter_map(|((of, reads), bytes)| Some((of, bytes?, reads)));
        Ok(Page { items: with_length.collect(), next: page.next })
    }

    /// A page of the staged versions with their lengths, oldest first.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn aged_page(&self, after: Option<&Cursor>) -> Result<Page<(AgedVersion, u64)>, CatalogError> {
        let read = |entry: &Entry| Ok((AgedVersion::of_key(entry)?, aged(entry)?.1));
        self.page(&key::all(Tag::Aged), after, STEP, read).await
    }
}
