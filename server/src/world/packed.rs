//! Attributes of a pack's members beyond S3's own: their bucket's owner, and everything that is needed to rebuild a
//! catalog from the drives.

use crate::context::Context;
use catalog::{Bucket, CatalogError, Object, Sequence};
use std::collections::BTreeMap;
use workshop::{MemberAttributes, PartDigests};

/// Parts looked up at once.
const PAGE: usize = 1_000;

/// Buckets looked up for the members of one pack, by name; `None` for one that is gone.
#[derive(Default)]
pub(crate) struct Buckets(BTreeMap<String, Option<Bucket>>);

impl Buckets {
    async fn get(&mut self, context: &Context, name: &str) -> Result<Option<&Bucket>, CatalogError> {
        if !self.0.contains_key(name) {
            let found = match context.catalog.bucket(name).await {
                Ok(bucket) => Some(bucket),
                Err(CatalogError::NoSuchBucket) => None,
                Err(error) => return Err(error),
            };
            self.0.insert(name.to_owned(), found);
        }
        Ok(self.0.get(name).and_then(Option::as_ref))
    }
}

/// The present attributes of `object` in `bucket`; `sequence` is that of its record.
///
/// # Errors
/// [`CatalogError`].
pub(crate) async fn attributes(
    context: &Context,
    buckets: &mut Buckets,
    bucket: &str,
    object: &Object,
    sequence: Sequence,
) -> Result<MemberAttributes, CatalogError> {
    let parts = part_digests(context, object).await?;
    let bucket = buckets.get(context, bucket).await?;
    Ok(MemberAttributes {
        bucket_created_ms: bucket.map_or(0, |bucket| bucket.created_ms),
        owner: bucket.map_or_else(String::new, |bucket| bucket.owner.clone()),
        sequence: sequence.0,
        parts,
        // Versioning, object lock and storage classes do not exist yet.
        ..MemberAttributes::default()
    })
}

/// The digests of the parts of `object`; empty if it was put in one piece, or the catalog lacks some of them.
async fn part_digests(context: &Context, object: &Object) -> Result<Vec<PartDigests>, CatalogError> {
    let count = object.parts.count() as usize;
    let mut digests = Vec::with_capacity(count);
    let mut last = 0;
    while digests.len() < count {
        let page = context.catalog.parts_page(object.version, last, PAGE).await?;
        let Some(part) = page.last() else { return Ok(Vec::new()) };
        last = part.number;
        for part in page {
            let md5 = hex_simd::decode_to_vec(part.etag.as_bytes()).unwrap_or_default();
            let Ok(md5) = md5.try_into() else { return Ok(Vec::new()) };
            digests.push(PartDigests { md5, checksum: part.checksum });
        }
    }
    Ok(digests)
}
