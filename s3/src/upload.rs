//! Uploads in parts: starting one, putting a part, aborting one.
//!
//! Every part has a checksum of its upload's kind, no matter what the client claims for the part: the kind that the
//! client named at the start, CRC-64/NVME otherwise, as S3 does. So the object's checksum can be made of those of its
//! parts.

use crate::digest::{DigestClaims, Digests, StreamHasher, kind_named, spelling};
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::put::{Reception, check_length, commit, length, metadata, stored_headers};
use crate::request::S3Request;
use crate::response::{Answer, add_checksums, document, empty, etag_value};
use crate::store::{PartId, PutSink};
use crate::{access, tagging, upload_id};
use catalog::{ChecksumKind, Upload, VersionId};
use http::header::ETAG;
use http::{HeaderValue, StatusCode};
use s3s::dto::{ChecksumType, CreateMultipartUploadOutput};

/// S3's name for the way in which the checksum of an object in parts is made.
pub(crate) fn checksum_type(composite: bool) -> &'static str {
    if composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT }
}

/// Starts an upload.
pub(crate) async fn create(front: &Frontend, request: &S3Request) -> Answer {
    let (headers, metadata) = (stored_headers(request)?, metadata(&request.headers)?);
    let (named, composite) = requested_checksum(request)?;
    let tags = tagging::of_header(request)?;
    let bucket = front.owned_bucket(request).await?;
    let upload = Upload {
        version: VersionId::default(),
        initiated_ms: 0,
        headers,
        metadata,
        checksum: named.unwrap_or(ChecksumKind::Crc64Nvme),
        checksum_named: named.is_some(),
        composite,
        acl: access::canned(request, bucket.ownership)?.unwrap_or_default(),
        tags,
    };
    let upload = bucket.store.create_upload(&request.bucket, &request.key, upload).await?;
    let mut answer = document(&CreateMultipartUploadOutput {
        bucket: Some(request.bucket.clone()),
        key: Some(request.key.clone()),
        upload_id: Some(upload_id::format(upload)),
        ..CreateMultipartUploadOutput::default()
    })?;
    if let Some(kind) = named {
        answer.headers.insert("x-amz-checksum-algorithm", HeaderValue::from_static(kind.name()));
        answer.headers.insert("x-amz-checksum-type", HeaderValue::from_static(checksum_type(composite)));
    }
    Ok(answer)
}

/// The kind of checksum that a client names for an upload, if any; and true if the object's checksum is one of its
/// parts' checksums.
fn requested_checksum(request: &S3Request) -> Result<(Option<ChecksumKind>, bool), ErrorResponse> {
    let invalid = |message: String| ErrorCode::InvalidRequest.with(message);
    let kind = requested_algorithm(request)?;
    let composite = match request.header("x-amz-checksum-type")? {
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
        let (form, kind) = (checksum_type(composite), spelling(kind));
        return Err(invalid(format!("The {form} checksum type cannot be used with the {kind} checksum algorithm.")));
    }
    assert!(if composite { may_be_composite } else { may_be_full }, "the kind takes this form");
    Ok((Some(kind), composite))
}

/// The checksum algorithm that a request names for the object or part that it creates.
///
/// # Errors
/// `InvalidRequest` for an unknown algorithm.
pub(crate) fn requested_algorithm(request: &S3Request) -> Result<Option<ChecksumKind>, ErrorResponse> {
    let Some(name) = request.header("x-amz-checksum-algorithm")? else { return Ok(None) };
    kind_named(name).map(Some).ok_or_else(|| {
        let message = "Checksum algorithm provided is unsupported. Please try again with any of the valid types: \
                       [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]";
        ErrorCode::InvalidRequest.with(message)
    })
}

/// Refuses a checksum of another kind than the one that the client named at the start of the upload.
pub(crate) fn check_kind(upload: &Upload, claimed: Option<ChecksumKind>) -> Result<(), ErrorResponse> {
    match claimed.filter(|claimed| upload.checksum_named && *claimed != upload.checksum) {
        None => Ok(()),
        Some(claimed) => Err(other_kind(upload, &spelling(claimed))),
    }
}

/// The same for a part's checksum, which is required if the object's is made of those of its parts.
fn check_part_kind(upload: &Upload, claimed: Option<ChecksumKind>) -> Result<(), ErrorResponse> {
    if upload.checksum_named && upload.composite && claimed.is_none() {
        return Err(other_kind(upload, "null"));
    }
    check_kind(upload, claimed)
}

fn other_kind(upload: &Upload, actual: &str) -> ErrorResponse {
    let expected = spelling(upload.checksum);
    let message =
        format!("Checksum Type mismatch occurred, expected checksum Type: {expected}, actual checksum Type: {actual}");
    ErrorCode::InvalidRequest.with(message)
}

/// Stores a part.
pub(crate) async fn part(front: &Frontend, mut request: S3Request) -> Answer {
    let claims = DigestClaims::of(&request.headers)?;
    let number = request.part_number()?;
    let bytes = length(&request.headers)?;
    check_length(front, bytes)?;
    let bucket = front.owned_bucket(&request).await?;
    let part = PartId { upload: request.upload_id()?, number };
    let upload = front.store.upload(&request.bucket, &request.key, part.upload).await?;
    check_part_kind(&upload, claims.kind())?;
    let hasher = StreamHasher::new(&front.md5, claims.kind().unwrap_or(upload.checksum)).and(upload.checksum);

    let sink = bucket.store.begin_part(&request.bucket, &request.key, part, bytes).await?;
    let reception = Reception { front, request: &mut request, claims: &claims, bytes };
    let (sink, digests) = reception.into_sink(sink, hasher).await?;
    let kept = digests.also.as_ref().unwrap_or(&digests.checksum);
    assert_eq!(kept.kind, upload.checksum, "a part is kept with a checksum of its upload's kind");
    let (etag, checksum) = (digests.etag(), digests.checksum.clone());
    commit_part(sink, digests).await?;

    let mut answer = empty(StatusCode::OK);
    answer.headers.insert(ETAG, etag_value(&etag)?);
    add_checksums(&mut answer.headers, &[checksum])?;
    // A part's checksum is always of its bytes; S3 does not state that.
    answer.headers.remove("x-amz-checksum-type");
    Ok(answer)
}

/// Commits a part with the checksum of its upload's kind. Returns its time of change.
pub(crate) async fn commit_part(sink: Box<dyn PutSink>, digests: Digests) -> Result<u64, ErrorResponse> {
    let etag = digests.etag();
    commit(sink, etag, vec![digests.also.unwrap_or(digests.checksum)]).await
}

/// Aborts an upload.
pub(crate) async fn abort(front: &Frontend, request: &S3Request) -> Answer {
    let bucket = front.owned_bucket(request).await?;
    let upload = request.upload_id()?;
    bucket.store.abort_upload(&request.bucket, &request.key, upload).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
