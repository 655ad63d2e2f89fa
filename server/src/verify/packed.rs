//! Compares the members of a pack with the objects that live in it: the index of the pack with the catalog. Attributes
//! that may change after an object was packed (headers, metadata, tags, its ACL, its name when a repartition publishes
//! it) are not compared.

use super::PAGE;
use crate::error::ServerError;
use catalog::{Catalog, ChecksumKind, Object, Place};
use model::BlobId;
use workshop::IndexEntry;

/// The first difference between `index`, that of the pack in `blob`, and the objects of `catalog` that live there.
pub(super) async fn unlike(
    catalog: &Catalog,
    blob: BlobId,
    index: &[IndexEntry],
) -> Result<Option<String>, ServerError> {
    for entries in index.chunks(PAGE) {
        let names: Vec<(&str, &str)> = entries.iter().map(|entry| (&*entry.bucket, &*entry.key)).collect();
        let found = catalog.placed_objects(&names).await?;
        let pairs = entries.iter().zip(&found).filter_map(|(entry, placed)| Some((entry, placed.as_ref()?)));
        let living = pairs.filter(|(entry, placed)| {
            let is_here = matches!(placed.place, Place::Stored { blob: of, .. } if of == blob);
            is_here && placed.object.version == entry.object.version
        });
        for (entry, placed) in living {
            if let Some(what) = difference(entry, &placed.object) {
                return Ok(Some(format!("s3://{}/{}: {what}", entry.bucket, entry.key)));
            }
        }
    }
    Ok(None)
}

/// A difference between a member of a pack and its object.
fn difference(entry: &IndexEntry, object: &Object) -> Option<String> {
    let packed = &entry.object;
    if packed.etag != object.etag {
        return Some(format!("its ETag is {}, and was {} when it was packed", object.etag, packed.etag));
    }
    if packed.parts != object.parts {
        return Some("the lengths of its parts differ from those when it was packed".into());
    }
    if packed.created_ms != object.created_ms {
        return Some("its creation time differs from that when it was packed".into());
    }
    for checksum in &object.checksums {
        let kind = checksum.kind;
        let is_other = |of: &&catalog::Checksum| of.kind == kind && of.base64 != checksum.base64;
        if packed.checksums.iter().any(|of| is_other(&of)) {
            return Some(format!("its {} differs from that when it was packed", kind.name()));
        }
        let packed_crc = base64_simd::STANDARD.encode_to_string(entry.checksum.to_be_bytes());
        if kind == ChecksumKind::Crc64Nvme && !checksum.is_composite() && checksum.base64 != packed_crc {
            return Some("the bytes that were packed do not have its CRC-64/NVME".into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{Acl, Checksum, PartLengths, VersionId};
    use workshop::MemberAttributes;

    fn object() -> Object {
        let base64 = base64_simd::STANDARD.encode_to_string(77_u64.to_be_bytes());
        Object {
            version: VersionId(1),
            bytes: 9,
            etag: "0123".into(),
            modified_ms: 5,
            created_ms: 5,
            headers: Vec::new(),
            metadata: Vec::new(),
            checksums: vec![Checksum { kind: ChecksumKind::Crc64Nvme, base64 }],
            acl: Acl::Private,
            tags: Vec::new(),
            parts: PartLengths::default(),
        }
    }

    #[test]
    fn each_attribute_that_never_changes_is_compared_and_no_other() {
        let attributes = MemberAttributes::default();
        let (bucket, key) = ("pantry".into(), "k".into());
        let entry = IndexEntry { bucket, key, offset: 0, object: object(), attributes, checksum: 77 };
        assert_eq!(difference(&entry, &object()), None);
        let changed = Object {
            modified_ms: 6,
            tags: vec![("n".into(), "1".into())],
            headers: vec![("content-type".into(), "text/plain".into())],
            acl: Acl::PublicRead,
            ..object()
        };
        assert_eq!(difference(&entry, &changed), None);
        let none = Object { checksums: Vec::new(), ..object() };
        assert_eq!(difference(&entry, &none), None, "who has no checksum is not compared by it");
        let etag = Object { etag: "4567".into(), ..object() };
        let created = Object { created_ms: 4, ..object() };
        assert!(difference(&entry, &etag).is_some() && difference(&entry, &created).is_some());
        let bytes = IndexEntry { checksum: 78, ..entry.clone() };
        assert!(difference(&bytes, &object()).is_some_and(|what| what.contains("CRC-64")));
        let other = Checksum { kind: ChecksumKind::Crc64Nvme, base64: "other".into() };
        let packed = IndexEntry { object: Object { checksums: vec![other], ..object() }, ..entry };
        assert!(difference(&packed, &object()).is_some());
    }
}
