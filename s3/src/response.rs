//! Parts of responses that many operations share.

use crate::digest;
use crate::error::{ErrorCode, ErrorResponse};
use crate::precondition::seconds;
use crate::xml;
use catalog::{Checksum, Object};
use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use s3s::dto::Owner;
use s3s::xml::Serialize;
use s3s::{Body, S3Response};

/// The outcome of an operation.
pub(crate) type Answer = Result<S3Response<Body>, ErrorResponse>;

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> S3Response<Body> {
    S3Response::with_status(Body::empty(), status)
}

/// A response in XML.
pub(crate) fn document<T: Serialize>(value: &T) -> Answer {
    let document = xml::write(value);
    let document =
        document.map_err(|error| ErrorCode::InternalError.with(format!("cannot write the answer: {error}")))?;
    let mut answer = S3Response::new(Body::from(document));
    answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    Ok(answer)
}

/// The owner of buckets and objects, as listings name it.
pub(crate) fn owner(user: &str) -> Owner {
    Owner { display_name: Some(user.to_owned()), id: Some(user.to_owned()) }
}

/// An output of the protocol library with `$checksums` in its fields for checksums, and these other fields.
macro_rules! with_checksums {
    ($output:path, $checksums:expr, { $($field:ident: $value:expr),* $(,)? } $(, ..$rest:expr)?) => {{
        use catalog::ChecksumKind;
        let base64 = |kind| $checksums.iter().find(|sum| sum.kind == kind).map(|sum| sum.base64.clone());
        $output {
            checksum_crc32: base64(ChecksumKind::Crc32),
            checksum_crc32c: base64(ChecksumKind::Crc32c),
            checksum_crc64nvme: base64(ChecksumKind::Crc64Nvme),
            checksum_sha1: base64(ChecksumKind::Sha1),
            checksum_sha256: base64(ChecksumKind::Sha256),
            $($field: $value,)*
            $(..$rest)?
        }
    }};
}
pub(crate) use with_checksums;

/// ETag and modification time of an object.
pub(crate) fn validators(object: &Object) -> Result<HeaderMap, ErrorResponse> {
    let mut headers = HeaderMap::new();
    headers.insert(ETAG, etag_value(&object.etag)?);
    let modified = httpdate::fmt_http_date(seconds(object.modified_ms));
    set(&mut headers, "last-modified", &modified)?;
    Ok(headers)
}

/// Sets a header.
///
/// # Errors
/// `InternalError` for a value that cannot be a header.
pub(crate) fn set(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), ErrorResponse> {
    let pair = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value.as_bytes()).ok());
    let (name, value) =
        pair.ok_or_else(|| ErrorCode::InternalError.with(format!("header {name} cannot be given back")))?;
    headers.insert(name, value);
    Ok(())
}

/// An ETag as a header spells it.
pub(crate) fn etag_value(etag: &str) -> Result<HeaderValue, ErrorResponse> {
    HeaderValue::try_from(format!("\"{etag}\""))
        .map_err(|_| ErrorCode::InternalError.with("an ETag cannot be given back"))
}

/// Adds checksums to a response, with their type as checksums of a whole object.
pub(crate) fn add_checksums(headers: &mut HeaderMap, checksums: &[Checksum]) -> Result<(), ErrorResponse> {
    for checksum in checksums {
        set(headers, &format!("x-amz-checksum-{}", digest::spelling(checksum.kind)), &checksum.base64)?;
        headers.insert("x-amz-checksum-type", HeaderValue::from_static(digest::type_of(checksums)));
    }
    Ok(())
}
