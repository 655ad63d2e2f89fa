//! A request as the operations see it, after its signature was verified.

use crate::digest::DigestClaims;
use crate::error::{ErrorCode, ErrorResponse};
use crate::host::HostDomain;
use crate::keys::AccessKeys;
use crate::operation::Operation;
use crate::{upload_id, validation, xml};
use bytes::Bytes;
use catalog::{Bucket, PARTS_MAX, VersionId};
use http::HeaderMap;
use s3s::path::{ParseS3PathError, S3Path, parse_virtual_hosted_style};
use s3s::xml::Deserialize;
use s3s::{Body, TrailingHeaders};
use std::time::Duration;

/// The largest body of a request that is not an object, in bytes. AWS accepts 1,000 keys of 1,024 bytes to delete at
/// once, and 10,000 parts with a checksum each to complete.
const SMALL_BODY_BYTES: usize = 4 << 20;
/// The time for a client to send that body.
const SMALL_BODY_TIME: Duration = Duration::from_mins(2);

/// A valid request for an operation that is served.
pub(crate) struct S3Request {
    pub operation: Operation,
    /// The user who signed it; `None` if it is unsigned.
    user: Option<String>,
    /// The access key that signed it.
    pub access_key: Option<String>,
    /// The bucket; empty if the operation has none.
    pub bucket: String,
    /// The key; empty if the operation has none.
    pub key: String,
    pub headers: HeaderMap,
    query: Vec<(String, String)>,
    pub body: Body,
    pub trailers: Option<TrailingHeaders>,
}

impl S3Request {
    /// Parses and validates a request whose signature the protocol library has verified. The library has parsed host
    /// and path as well, but does not pass them to custom routes.
    ///
    /// # Errors
    /// `NotImplemented` for everything that is not served, and errors of paths and signatures.
    pub fn parse(
        request: s3s::S3Request<Body>,
        keys: &dyn AccessKeys,
        domain: Option<&HostDomain>,
    ) -> Result<Self, ErrorResponse> {
        let user = match &request.credentials {
            Some(credentials) => Some(keys.user(&credentials.access_key).ok_or(ErrorCode::InvalidAccessKeyId)?),
            None => None,
        };
        if user.is_some() && request.service.as_deref() != Some("s3") {
            return Err(ErrorCode::AccessDenied.with("The request is signed for another service."));
        }
        let host = request.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        let path = decode_path(request.uri.path(), domain.and_then(|domain| domain.bucket(host)).as_deref())?;
        let query: Vec<(String, String)> =
            form_urlencoded::parse(request.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let operation = Operation::of(&request.method, &path, &query, &request.headers)?;
        validation::check(operation, user.is_some(), &query, &request.headers)?;
        let bucket = path.get_bucket_name().unwrap_or_default().to_owned();
        let key = path.get_object_key().unwrap_or_default().to_owned();
        let (headers, body, trailers) = (request.headers, request.input, request.trailing_headers);
        let access_key = request.credentials.as_ref().map(|credentials| credentials.access_key.clone());
        Ok(Self { operation, user, access_key, bucket, key, headers, query, body, trailers })
    }

    /// The user who signed it.
    ///
    /// # Errors
    /// `AccessDenied` for an unsigned request.
    pub fn user(&self) -> Result<&str, ErrorResponse> {
        self.user.as_deref().ok_or(ErrorCode::AccessDenied.into())
    }

    /// True if the user of the request owns `bucket`.
    pub fn owns(&self, bucket: &Bucket) -> bool {
        self.user.as_ref() == Some(&bucket.owner)
    }

    /// The value of a query parameter; the first one, if it has several.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
    }

    /// The upload that the request names.
    ///
    /// # Errors
    /// `NoSuchUpload` for a missing or malformed id.
    pub fn upload_id(&self) -> Result<VersionId, ErrorResponse> {
        self.query("uploadId").and_then(upload_id::parse).ok_or_else(|| ErrorCode::NoSuchUpload.into())
    }

    /// The part number that the request names.
    ///
    /// # Errors
    /// `InvalidArgument` for any other number than 1 to [`PARTS_MAX`].
    pub fn part_number(&self) -> Result<u32, ErrorResponse> {
        let number = self.query("partNumber").and_then(|number| number.parse().ok());
        number.filter(|number| (1..=PARTS_MAX).contains(number)).ok_or_else(part_number_out_of_range)
    }

    /// The value of a header; `None` without it.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that is not UTF-8.
    pub fn header(&self, name: &str) -> Result<Option<&str>, ErrorResponse> {
        self.headers.get(name).map(|value| text(name, value.as_bytes())).transpose()
    }

    /// The whole body, as XML, of a request that is not an object, with verified digests; `None` if it is empty.
    ///
    /// # Errors
    /// Errors of the body, and those of [`Self::parsed`].
    pub async fn small_body<T: for<'xml> Deserialize<'xml>>(&mut self) -> Result<Option<T>, ErrorResponse> {
        let claims = DigestClaims::of(&self.headers)?;
        let body = self.small_body_bytes(&claims).await?;
        self.parsed(&body)
    }

    /// A body as XML; `None` if it is empty.
    ///
    /// # Errors
    /// `MalformedXML`, and errors of elements that the operation does not accept.
    pub fn parsed<T: for<'xml> Deserialize<'xml>>(&self, body: &[u8]) -> Result<Option<T>, ErrorResponse> {
        if body.is_empty() {
            return Ok(None);
        }
        validation::check_body(self.operation, body)?;
        xml::read(body).map(Some).ok_or_else(|| ErrorCode::MalformedXml.into())
    }

    /// The bytes of a body that is not an object, verified against `claims`.
    ///
    /// # Errors
    /// Errors of the body, and `RequestTimeout` for a client that takes too long.
    pub async fn small_body_bytes(&mut self, claims: &DigestClaims) -> Result<Bytes, ErrorResponse> {
        // A client that sends a part of the body and stops must not keep its permit.
        let read = tokio::time::timeout(SMALL_BODY_TIME, self.body.store_all_limited(SMALL_BODY_BYTES)).await;
        let bytes = read.map_err(|_| ErrorCode::RequestTimeout)?.map_err(|error| {
            if error.to_string().contains("limit") {
                ErrorCode::MaxMessageLengthExceeded.into()
            } else {
                ErrorResponse::of_body(&error)
            }
        })?;
        let trailers = self.trailers.as_ref().and_then(TrailingHeaders::take);
        claims.verify(trailers.as_ref(), &claims.digests(&bytes))?;
        Ok(bytes)
    }
}

/// `value` as text.
///
/// # Errors
/// `InvalidArgument` if it is not UTF-8.
pub(crate) fn text<'a>(name: &str, value: &'a [u8]) -> Result<&'a str, ErrorResponse> {
    std::str::from_utf8(value).map_err(|_| {
        ErrorCode::InvalidArgument.with(format!("Header {name} must be UTF-8 without control characters."))
    })
}

/// The error for a part number outside of 1 to [`PARTS_MAX`].
pub(crate) fn part_number_out_of_range() -> ErrorResponse {
    let message = format!("Part number must be an integer between 1 and {PARTS_MAX}, inclusive");
    ErrorCode::InvalidArgument.with(message)
}

/// Bucket and key of a path, which is below `bucket` if the host names one.
fn decode_path(path: &str, bucket: Option<&str>) -> Result<S3Path, ErrorResponse> {
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8().map_err(|_| ErrorCode::InvalidUri)?;
    parse_virtual_hosted_style(bucket, &decoded).map_err(|error| match error {
        ParseS3PathError::InvalidPath => ErrorCode::InvalidUri.into(),
        ParseS3PathError::InvalidBucketName => ErrorCode::InvalidBucketName.into(),
        ParseS3PathError::KeyTooLong => ErrorCode::KeyTooLongError.into(),
    })
}
