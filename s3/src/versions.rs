//! Versions, as far as there are any: every object has one, which S3 calls `null`, since no bucket ever had versioning
//! switched on.

use super::ask::Ask;
use super::error::{Code, Fault};
use super::list::Terms;
use super::route::{Answer, Route, xml};
use catalog::{Bucket, Object};
use s3s::dto::{ListObjectVersionsOutput, ObjectVersion, ObjectVersionStorageClass};

/// The one version an object has.
pub(super) const NULL: &str = "null";
/// How long the version ids of S3 are.
const ID_BYTES: usize = 32;

/// Whether the version a request names is the one there is; well if it names none.
///
/// # Errors
/// `NoSuchVersion` for any other, `InvalidArgument` for what is no version id.
pub(super) fn check(ask: &Ask) -> Result<(), Fault> {
    ask.query("versionId").map_or(Ok(()), check_id)
}

/// As [`check`], of one id.
pub(super) fn check_id(id: &str) -> Result<(), Fault> {
    let well_formed =
        id.len() == ID_BYTES && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    match id {
        NULL => Ok(()),
        "" => Err(Fault::new(Code::InvalidArgument, "Version id cannot be the empty string")),
        _ if well_formed => Err(Code::NoSuchVersion.into()),
        _ => Err(Fault::new(Code::InvalidArgument, "Invalid version id specified")),
    }
}

/// Lists the versions of all objects: the one of each.
pub(super) async fn list(route: &Route, ask: &Ask) -> Answer {
    let mut terms = Terms::of(ask)?;
    let key_marker = ask.query("key-marker").unwrap_or_default();
    let version_marker = ask.query("version-id-marker");
    match version_marker {
        Some(_) if key_marker.is_empty() => {
            let message = "A version-id marker cannot be specified without a key marker.";
            return Err(Fault::new(Code::InvalidArgument, message));
        }
        Some("") => return Err(Fault::new(Code::InvalidArgument, "A version-id marker cannot be empty.")),
        // Behind any version of a key lies the next key, since each has only one.
        Some(id) => {
            check_id(id).or_else(|fault| if fault.code == Code::NoSuchVersion { Ok(()) } else { Err(fault) })?;
        }
        None => {}
    }
    let bucket = route.listable_bucket(ask).await?;
    let after = Some(key_marker.to_owned()).filter(|marker| !marker.is_empty());
    let page = terms.page_with_end(route, ask, after).await?;
    let next = page.last().filter(|_| page.truncated);
    let ends_with_key = page.objects.last().map(|(key, _)| key.as_str()) == next;
    xml(&ListObjectVersionsOutput {
        name: Some(bucket.name.clone()),
        prefix: Some(terms.spell(terms.prefix)),
        key_marker: Some(terms.spell(key_marker)),
        version_id_marker: Some(version_marker.unwrap_or_default().to_owned()),
        max_keys: i32::try_from(terms.max_keys).ok(),
        is_truncated: Some(page.truncated),
        versions: Some(page.objects.iter().map(|(key, object)| told(&terms, &bucket, key, object)).collect()),
        delete_markers: None,
        common_prefixes: Some(terms.prefixes(&page)),
        delimiter: terms.delimiter.map(|delimiter| terms.spell(delimiter)),
        next_key_marker: next.map(|entry| terms.spell(entry)),
        next_version_id_marker: next.filter(|_| ends_with_key).map(|_| NULL.to_owned()),
        encoding_type: terms.encoding(),
        request_charged: None,
    })
}

fn told(terms: &Terms<'_>, bucket: &Bucket, key: &str, object: &Object) -> ObjectVersion {
    let listed = terms.told(key, object, Some(&bucket.owner));
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
        let code = |id: &str| check_id(id).err().map(|fault| fault.code);
        assert_eq!(code("null"), None);
        assert_eq!(code("3HL4kqtJlcpXroDTDmJ.rmSpXd3dIbrH"), Some(Code::NoSuchVersion));
        for id in ["", "1", "Null", "3HL4kqtJlcpXroDTDmJ rmSpXd3dIbrH"] {
            assert_eq!(code(id), Some(Code::InvalidArgument), "{id}");
        }
    }
}
