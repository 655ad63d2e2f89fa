//! Versions: every object has exactly one, which S3 calls `null`, because versioning was never enabled on any bucket.

use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::list::{ListParameters, last_entry};
use crate::request::S3Request;
use crate::response::{Answer, document};
use catalog::{Bucket, Object};
use s3s::dto::{ListObjectVersionsOutput, ObjectVersion, ObjectVersionStorageClass};

/// The only version of an object.
pub(crate) const NULL: &str = "null";
/// The length of S3's version ids.
const ID_BYTES: usize = 32;

/// Checks that the version that a request names, if any, is the only one that exists.
///
/// # Errors
/// `NoSuchVersion` for any other, `InvalidArgument` for a malformed version id.
pub(crate) fn check(request: &S3Request) -> Result<(), ErrorResponse> {
    request.query("versionId").map_or(Ok(()), check_id)
}

/// Like [`check`], for one id.
pub(crate) fn check_id(id: &str) -> Result<(), ErrorResponse> {
    let well_formed =
        id.len() == ID_BYTES && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    match id {
        NULL => Ok(()),
        "" => Err(ErrorCode::InvalidArgument.with("Version id cannot be the empty string")),
        _ if well_formed => Err(ErrorCode::NoSuchVersion.into()),
        _ => Err(ErrorCode::InvalidArgument.with("Invalid version id specified")),
    }
}

/// Lists the versions of all objects: one of each.
pub(crate) async fn list(front: &Frontend, request: &S3Request) -> Answer {
    let mut terms = ListParameters::of(request)?;
    let key_marker = request.query("key-marker").unwrap_or_default();
    let version_marker = request.query("version-id-marker");
    match version_marker {
        Some(_) if key_marker.is_empty() => {
            let message = "A version-id marker cannot be specified without a key marker.";
            return Err(ErrorCode::InvalidArgument.with(message));
        }
        Some("") => return Err(ErrorCode::InvalidArgument.with("A version-id marker cannot be empty.")),
        // Each key has only one version, so the next key follows any version of this one.
        Some(id) => {
            check_id(id).or_else(|error| if error.code == ErrorCode::NoSuchVersion { Ok(()) } else { Err(error) })?;
        }
        None => {}
    }
    let bucket = front.listable_bucket(request).await?;
    let after = Some(key_marker.to_owned()).filter(|marker| !marker.is_empty());
    let page = terms.page_with_end(front, request, after).await?;
    let next = last_entry(&page).filter(|_| page.truncated);
    let ends_with_key = page.objects.last().map(|(key, _)| key.as_str()) == next;
    document(&ListObjectVersionsOutput {
        name: Some(bucket.name.clone()),
        prefix: Some(terms.spell(terms.prefix)),
        key_marker: Some(terms.spell(key_marker)),
        version_id_marker: Some(version_marker.unwrap_or_default().to_owned()),
        max_keys: i32::try_from(terms.max_keys).ok(),
        is_truncated: Some(page.truncated),
        versions: Some(page.objects.iter().map(|(key, object)| entry(&terms, &bucket, key, object)).collect()),
        delete_markers: None,
        common_prefixes: Some(terms.prefixes(&page)),
        delimiter: terms.delimiter.map(|delimiter| terms.spell(delimiter)),
        next_key_marker: next.map(|entry| terms.spell(entry)),
        next_version_id_marker: next.filter(|_| ends_with_key).map(|_| NULL.to_owned()),
        encoding_type: terms.encoding(),
        request_charged: None,
    })
}

fn entry(terms: &ListParameters<'_>, bucket: &Bucket, key: &str, object: &Object) -> ObjectVersion {
    let listed = terms.entry(key, object, Some(&bucket.owner));
    ObjectVersion {
        checksum_algorithm: listed.checksum_algorithm,
        checksum_type: listed.checksum_type,
        e_tag: listed.e_tag,
        is_latest: Some(true),
        key: listed.key,
        last_modified: listed.last_modified,
        owner: listed.owner,
        restore_status: None,
        size: listed.size,
        storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
        version_id: Some(NULL.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_version_and_the_others_are_told_apart() {
        let code = |id: &str| check_id(id).err().map(|error| error.code);
        assert_eq!(code("null"), None);
        assert_eq!(code("3HL4kqtJlcpXroDTDmJ.rmSpXd3dIbrH"), Some(ErrorCode::NoSuchVersion));
        for id in ["", "1", "Null", "3HL4kqtJlcpXroDTDmJ rmSpXd3dIbrH"] {
            assert_eq!(code(id), Some(ErrorCode::InvalidArgument), "{id}");
        }
    }
}
