//! Uploads in parts: beginning one, putting a part, giving one up.
//!
//! Every part has a checksum of its upload's kind, whatever the client claimed of it: the client's when it named one as
//! it began, CRC-64/NVME otherwise, as S3 does. So the checksum of the object can be made of those of its parts.

use super::ask::Ask;
use super::digest::{Claims, Digests, Hasher, kind_named, spelling};
use super::error::{Code, Fault};
use super::get::{add_checksums, etag_value};
use super::put::{check_length, commit, kept_headers, length, metadata, or_abort, receive};
use super::route::{Answer, Route, empty, xml};
use super::store::{Condition, PutMeta, UploadMeta};
use super::{access, tagging};
use catalog::{Acl, Checksum, ChecksumKind, PARTS_MAX, Upload, VersionId};
use http::header::ETAG;
use http::{HeaderValue, StatusCode};
use s3s::dto::{ChecksumType, CreateMultipartUploadOutput};

/// How clients read an upload's number: opaque to them.
pub(super) fn written(upload: VersionId) -> String {
    format!("1{:016x}", upload.0)
}

/// The upload that clients call `id`.
pub(super) fn read(id: &str) -> Option<VersionId> {
    let digits = id.strip_prefix('1').filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(VersionId).filter(|upload| written(*upload) == id)
}

/// The upload that a request is about.
///
/// # Errors
/// `NoSuchUpload` for what was never one of ours.
pub(super) fn asked(ask: &Ask) -> Result<VersionId, Fault> {
    ask.query("uploadId").and_then(read).ok_or_else(|| Code::NoSuchUpload.into())
}

/// The part that a request is about.
///
/// # Errors
/// `InvalidArgument` for what is no number of a part.
pub(super) fn part_number(ask: &Ask) -> Result<u32, Fault> {
    let number = ask.query("partNumber").and_then(|number| number.parse().ok());
    number.filter(|number| (1..=PARTS_MAX).contains(number)).ok_or_else(|| {
        let message = format!("Part number must be an integer between 1 and {PARTS_MAX}, inclusive");
        Fault::new(Code::InvalidArgument, message)
    })
}

/// What S3 calls the way in which an object of parts has its checksum.
pub(super) fn type_of(composite: bool) -> &'static str {
    if composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT }
}

/// Begins an upload.
pub(super) async fn create(route: &Route, ask: &Ask) -> Answer {
    let (headers, metadata) = (kept_headers(ask)?, metadata(&ask.headers)?);
    let (named, composite) = checksum_asked(ask)?;
    let tags = tagging::of_header(ask)?;
    let bucket = route.owned_bucket(ask).await?;
    let acl = access::canned(ask, bucket.ownership)?.unwrap_or_default();
    let checksum = named.unwrap_or(ChecksumKind::Crc64Nvme);
    let checksum_named = named.is_some();
    let meta = UploadMeta { headers, metadata, checksum, checksum_named, composite, acl, tags };
    let upload = bucket.store.create_upload(&ask.bucket, &ask.key, meta).await?;
    let mut answer = xml(&CreateMultipartUploadOutput {
        bucket: Some(ask.bucket.clone()),
        key: Some(ask.key.clone()),
        upload_id: Some(written(upload)),
        ..CreateMultipartUploadOutput::default()
    })?;
    if let Some(value) = named.and_then(|kind| HeaderValue::try_from(spelling(kind).to_uppercase()).ok()) {
        answer.headers.insert("x-amz-checksum-algorithm", value);
        answer.headers.insert("x-amz-checksum-type", HeaderValue::from_static(type_of(composite)));
    }
    Ok(answer)
}

/// The checksum that a client names as it begins, and whether the object's is to be one of its parts' checksums.
fn checksum_asked(ask: &Ask) -> Result<(Option<ChecksumKind>, bool), Fault> {
    let invalid = |message: String| Fault::new(Code::InvalidRequest, message);
    let kind = algorithm_asked(ask)?;
    let composite = match ask.header("x-amz-checksum-type")? {
        None => None,
        Some(ChecksumType::COMPOSITE) => Some(true),
        Some(ChecksumType::FULL_OBJECT) => Some(false),
        Some(_) => return Err(invalid("Value for x-amz-checksum-type header is invalid.".into())),
    };
    let Some(kind) = kind else {
        return match composite {
            None => Ok((None, false)),
            Some(_) => Err(invalid(
                "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.".into(),
            )),
        };
    };
    let (may_be_composite, may_be_full) = match kind {
        ChecksumKind::Crc64Nvme => (false, true),
        ChecksumKind::Crc32 | ChecksumKind::Crc32c => (true, true),
        ChecksumKind::Sha1 | ChecksumKind::Sha256 => (true, false),
    };
    let composite = composite.unwrap_or(may_be_composite);
    if composite && !may_be_composite || !composite && !may_be_full {
        let (form, kind) = (type_of(composite), spelling(kind));
        return Err(invalid(format!("The {form} checksum type cannot be used with the {kind} checksum algorithm.")));
    }
    Ok((Some(kind), composite))
}

/// The checksum algorithm that a request names for what it makes.
///
/// # Errors
/// `InvalidRequest` for one that there is not.
pub(super) fn algorithm_asked(ask: &Ask) -> Result<Option<ChecksumKind>, Fault> {
    let Some(name) = ask.header("x-amz-checksum-algorithm")? else { return Ok(None) };
    kind_named(name).map(Some).ok_or_else(|| {
        let message = "Checksum algorithm provided is unsupported. Please try again with any of the valid types: \
                       [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]";
        Fault::new(Code::InvalidRequest, message)
    })
}

/// Refuses a checksum of another kind than that which the upload was begun with.
pub(super) fn check_kind(upload: &Upload, claimed: Option<ChecksumKind>) -> Result<(), Fault> {
    match claimed.filter(|claimed| upload.checksum_named && *claimed != upload.checksum) {
        None => Ok(()),
        Some(claimed) => {
            let (expected, actual) = (spelling(upload.checksum), spelling(claimed));
            let message = format!(
                "Checksum Type mismatch occurred, expected checksum Type: {expected}, actual checksum Type: {actual}"
            );
            Err(Fault::new(Code::InvalidRequest, message))
        }
    }
}

/// Stores a part.
pub(super) async fn part(route: &Route, mut ask: Ask) -> Answer {
    let claims = Claims::of(&ask.headers)?;
    let (id, number, length) = (asked(&ask)?, part_number(&ask)?, length(&ask.headers)?);
    check_length(route, length)?;
    let bucket = route.owned_bucket(&ask).await?;
    let upload = route.store.upload(&ask.bucket, &ask.key, id).await?;
    check_kind(&upload, claims.kind())?;
    let hasher = Hasher::new(&route.md5, claims.kind().unwrap_or(upload.checksum)).and(upload.checksum);

    let mut sink = bucket.store.begin_part(&ask.bucket, &ask.key, id, number, length).await?;
    let received = receive(&mut ask, &claims, hasher, route, sink.as_mut(), length).await;
    let (sink, digests) = or_abort(sink, received).await?;
    let answered = digests.checksum.clone();
    let committed = commit(sink, part_meta(digests)).await?;

    let mut answer = empty(StatusCode::OK);
    answer.headers.insert(ETAG, etag_value(&committed.etag)?);
    add_checksums(&mut answer.headers, &[answered])?;
    // A part's is always of its bytes, which S3 does not say.
    answer.headers.remove("x-amz-checksum-type");
    Ok(answer)
}

/// What is told of a part with its bytes: the checksum of its upload's kind, among others.
pub(super) fn part_meta(digests: Digests) -> PutMeta {
    PutMeta {
        etag: digests.etag(),
        headers: Vec::new(),
        metadata: Vec::new(),
        checksums: vec![own_checksum(digests)],
        acl: Acl::Private,
        tags: Vec::new(),
        created_ms: None,
        condition: Condition::Always,
    }
}

fn own_checksum(digests: Digests) -> Checksum {
    digests.also.unwrap_or(digests.checksum)
}

/// Gives an upload up.
pub(super) async fn abort(route: &Route, ask: &Ask) -> Answer {
    let id = asked(ask)?;
    let bucket = route.owned_bucket(ask).await?;
    bucket.store.abort_upload(&ask.bucket, &ask.key, id).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_id_is_read_back_and_nothing_else_is_one() {
        for upload in [0, 1, 77, u64::MAX] {
            assert_eq!(read(&written(VersionId(upload))), Some(VersionId(upload)));
        }
        for id in ["", "1", "10000000000000001x", "1+000000000000001", "2000000000000000f", "1000000000000000F"] {
            assert_eq!(read(id), None, "{id}");
        }
    }
}
