//! Copies of the catalog on drives: snapshots and segments of the journal, as objects of a separate bucket.
//!
//! They are staged, packed, coded and checked like any object, each in its own pack. S3 cannot name their bucket,
//! [`CATALOG_BUCKET`]. Their keys give their content:
//!
//! | key | content |
//! |---|---|
//! | `snapshot/<number, 16 hexadecimal digits>` | the catalog after that batch |
//! | `segment/<before, 16>-<last, 16>` | the batches after the first number up to the second |
//!
//! They are found without a catalog: the nonce of their blobs, which is in the names of the stacks, begins with
//! [`MARK`]. That is only a hint (one of 65,536 other blobs has it by chance). The content of a blob is in its pack's
//! index, and the content of a copy is in its own header, with checksums of all of it.

use crate::catalog::Catalog;
use crate::error::CatalogError;
use crate::key::{self, Tag};
use crate::record::{Bucket, Place, PlacedObject, VersionId};
use crate::store::Write;
use lineage::Sequence;
use model::BlobId;
use std::ops::Bound;

/// The bucket of the copies. No bucket of S3 begins with a dot.
pub const CATALOG_BUCKET: &str = ".larder-catalog";

/// The first 16 bits of the nonce of a blob that has a copy.
const MARK: u64 = 0x4CA7 << 48;
const MARK_MASK: u64 = 0xFFFF << 48;
const SNAPSHOT: &str = "snapshot/";
const SEGMENT: &str = "segment/";
/// Objects per lookup.
const PAGE: usize = 1_024;

/// The content of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyContent {
    /// The catalog after this batch.
    Snapshot(Sequence),
    /// The batches after the first up to the second.
    Segment(Sequence, Sequence),
}

/// A copy of the catalog, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogCopy {
    /// Its key in [`CATALOG_BUCKET`].
    pub key: String,
    /// Its content; `None` if its key does not give it.
    pub content: Option<CopyContent>,
    /// Its version.
    pub version: VersionId,
    /// Its bytes.
    pub bytes: u64,
    /// Creation time, in milliseconds of the Unix epoch.
    pub made_ms: u64,
    /// The blob that stores it, once it is on drives.
    pub blob: Option<BlobId>,
    /// True if data of that blob is known to be lost: nothing can be recovered from it.
    pub lost: bool,
}

impl CatalogCopy {
    /// True if it is on drives and no loss of its data is known.
    pub fn is_sound(&self) -> bool {
        self.blob.is_some() && !self.lost
    }
}

/// The copies on drives that follow each other without a gap, from the newest snapshot on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyChain {
    /// The last batch of the newest snapshot, with which the chain begins.
    pub snapshot: Sequence,
    /// Bytes of the snapshot.
    pub snapshot_bytes: u64,
    /// Creation time of the snapshot, in milliseconds of the Unix epoch.
    pub snapshot_made_ms: u64,
    /// The last batch that follows the snapshot without a gap.
    pub last: Sequence,
    /// Segments that lead to it.
    pub segments: u32,
    /// Their bytes.
    pub segment_bytes: u64,
}

impl CopyContent {
    /// The key of a copy with this content.
    pub fn key(self) -> String {
        match self {
            Self::Snapshot(Sequence(number)) => format!("{SNAPSHOT}{number:016x}"),
            Self::Segment(Sequence(before), Sequence(last)) => format!("{SEGMENT}{before:016x}-{last:016x}"),
        }
    }

    /// The last batch in a copy with this content.
    pub fn last(self) -> Sequence {
        match self {
            Self::Snapshot(last) | Self::Segment(_, last) => last,
        }
    }

    /// The content of a copy with this key; `None` if it is not the key of a copy.
    pub fn of(key: &str) -> Option<Self> {
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok().map(Sequence);
        if let Some(digits) = key.strip_prefix(SNAPSHOT) {
            return number(digits).map(Self::Snapshot);
        }
        let (before, last) = key.strip_prefix(SEGMENT)?.split_once('-')?;
        Some(Self::Segment(number(before)?, number(last)?))
    }
}

/// `nonce`, marked as the nonce of a blob that has a copy.
pub fn copy_nonce(nonce: u64) -> u64 {
    nonce & !MARK_MASK | MARK
}

/// True if `blob` must be searched for a copy.
pub fn may_have_copy(blob: BlobId) -> bool {
    blob.nonce & MARK_MASK == MARK
}

/// The chain of those of `copies` that are sound on drives, if they include a snapshot.
pub fn chain_of(copies: &[CatalogCopy]) -> Option<CopyChain> {
    let stored = || copies.iter().filter(|copy| copy.is_sound());
    let snapshots = stored().filter_map(|copy| match copy.content? {
        CopyContent::Snapshot(number) => Some((number, copy)),
        CopyContent::Segment(..) => None,
    });
    let (snapshot, copy) = snapshots.max_by_key(|(number, _)| *number)?;
    let (snapshot_bytes, snapshot_made_ms) = (copy.bytes, copy.made_ms);
    let mut chain = CopyChain { snapshot, snapshot_bytes, snapshot_made_ms, last: snapshot, ..CopyChain::default() };
    let mut segments: Vec<(Sequence, Sequence, u64)> = stored()
        .filter_map(|copy| match copy.content? {
            CopyContent::Segment(before, last) => Some((before, last, copy.bytes)),
            CopyContent::Snapshot(_) => None,
        })
        .collect();
    segments.sort();
    for (before, last, bytes) in segments {
        if before <= chain.last && last > chain.last {
            chain.last = last;
            chain.segments += 1;
            chain.segment_bytes += bytes;
        }
    }
    Some(chain)
}

impl Catalog {
    /// All copies, staged or on drives.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn copies(&self) -> Result<Vec<CatalogCopy>, CatalogError> {
        let mut copies: Vec<CatalogCopy> = Vec::new();
        loop {
            let after = copies.last().map(|copy| copy.key.clone());
            let page = self.placed_page(CATALOG_BUCKET, "", after.as_deref(), PAGE).await?;
            copies.extend(page.objects.into_iter().map(|(key, placed)| copy_of(key, &placed)));
            if !page.truncated {
                break;
            }
        }
        for copy in &mut copies {
            if let Some(blob) = copy.blob {
                copy.lost = self.is_blob_lost(blob).await?;
            }
        }
        Ok(copies)
    }

    /// The bucket of the copies. Creates it if it does not exist.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Conflict`].
    pub async fn copies_bucket(&self, now_ms: u64) -> Result<Bucket, CatalogError> {
        match self.create_bucket(&Bucket::new(CATALOG_BUCKET, now_ms, "")).await {
            Ok(()) | Err(CatalogError::BucketExists) => self.bucket(CATALOG_BUCKET).await,
            Err(error) => Err(error),
        }
    }
}

fn copy_of(key: String, placed: &PlacedObject) -> CatalogCopy {
    let blob = match placed.place {
        Place::Stored { blob, .. } => Some(blob),
        Place::Staged { .. } | Place::Parts => None,
    };
    let PlacedObject { object, .. } = placed;
    CatalogCopy {
        content: CopyContent::of(&key),
        key,
        version: object.version,
        bytes: object.bytes,
        made_ms: object.modified_ms,
        blob,
        lost: false,
    }
}

/// True if one of `writes` changes what drives do not show by themselves: users, buckets, objects (with their places)
/// and jobs; not counters and other indexes, nor the copies.
pub(crate) fn matters(writes: &[Write]) -> bool {
    let own = [key::object(CATALOG_BUCKET, ""), key::bucket(CATALOG_BUCKET)];
    let tags = [Tag::User, Tag::AccessKey, Tag::Bucket, Tag::Object, Tag::Job, Tag::JobInput, Tag::Checkpoint];
    let counts = |key: &[u8]| {
        let is_tagged = tags.iter().any(|tag| key.first() == Some(&(*tag as u8)));
        is_tagged && !own.iter().any(|own| key.starts_with(own))
    };
    writes.iter().any(|write| match write {
        Write::Put(key, _) | Write::Delete(key) => counts(key),
        Write::DeleteRange(range) => match &range.start {
            Bound::Included(key) | Bound::Excluded(key) => counts(key),
            Bound::Unbounded => true,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(content: CopyContent, on_drives: bool) -> CatalogCopy {
        CatalogCopy {
            key: content.key(),
            content: CopyContent::of(&content.key()),
            version: VersionId(1),
            bytes: 10,
            made_ms: 5,
            blob: on_drives.then(|| BlobId::new(1, copy_nonce(77))),
            lost: false,
        }
    }

    #[test]
    fn a_key_says_what_a_copy_has() {
        for content in [CopyContent::Snapshot(Sequence(9)), CopyContent::Segment(Sequence(9), Sequence(u64::MAX))] {
            assert_eq!(CopyContent::of(&content.key()), Some(content));
        }
        assert!(["", "snapshot/", "segment/1", "other/1"].iter().all(|key| CopyContent::of(key).is_none()));
    }

    #[test]
    fn the_chain_leads_from_the_newest_snapshot_on_drives_as_far_as_there_is_no_gap() {
        let snapshot = |number| CopyContent::Snapshot(Sequence(number));
        let segment = |before, last| CopyContent::Segment(Sequence(before), Sequence(last));
        assert_eq!(chain_of(&[copy(snapshot(9), false), copy(segment(0, 9), true)]), None);
        let copies = [
            copy(snapshot(10), true),
            copy(snapshot(20), true),
            copy(snapshot(50), false),
            copy(segment(10, 25), true),
            copy(segment(25, 30), true),
            copy(segment(30, 40), false),
            copy(segment(40, 45), true),
        ];
        let chain = chain_of(&copies).unwrap_or_default();
        assert_eq!((chain.snapshot, chain.last), (Sequence(20), Sequence(30)));
        assert_eq!((chain.segments, chain.segment_bytes), (2, 20));
        let lost = |at: usize| {
            let mut copies = copies.clone();
            copies[at].lost = true;
            chain_of(&copies).unwrap_or_default()
        };
        assert_eq!((lost(1).snapshot, lost(1).last), (Sequence(10), Sequence(30)), "the snapshot before");
        assert_eq!((lost(4).snapshot, lost(4).last), (Sequence(20), Sequence(25)), "up to the gap");
    }

    #[test]
    fn copies_themselves_do_not_matter_and_neither_do_places() {
        let put = |key| Write::Put(key, Vec::new());
        assert!(matters(&[put(key::object("pantry", "k"))]));
        assert!(matters(&[Write::Delete(key::user("ann"))]));
        assert!(!matters(&[put(key::object(CATALOG_BUCKET, "snapshot/1")), put(key::bucket(CATALOG_BUCKET))]));
        assert!(!matters(&[put(key::blob(BlobId::new(1, 2))), put(key::meta("runs"))]));
    }

    #[test]
    fn a_nonce_shows_that_a_blob_may_have_a_copy() {
        assert!(may_have_copy(BlobId::new(1, copy_nonce(u64::MAX))) && may_have_copy(BlobId::new(1, copy_nonce(0))));
        assert!(!may_have_copy(BlobId::new(1, 0)));
        assert_ne!(copy_nonce(1), copy_nonce(2));
    }
}
