//! The one place that says what S3 calls a failure: code, status, message and headers.
//!
//! Invariant: a client is told what it can act on. What only the operator can act on goes to the log, once, in
//! [`Fault::log`]; the client reads `InternalError` or `ServiceUnavailable`.

use super::store::StoreError;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use s3s::{S3Error, S3ErrorCode, StdError};
use std::borrow::Cow;

/// S3's codes that this front uses or that the protocol library answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    AccessControlListNotSupported,
    AccessDenied,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    BadDigest,
    BadRequest,
    BucketAlreadyExists,
    BucketAlreadyOwnedByYou,
    BucketNotEmpty,
    EntityTooLarge,
    EntityTooSmall,
    IllegalLocationConstraintException,
    IncompleteBody,
    InsufficientStorage,
    InternalError,
    InvalidAccessKeyId,
    InvalidArgument,
    InvalidBucketAclWithObjectOwnership,
    InvalidBucketName,
    InvalidDigest,
    InvalidPart,
    InvalidPartNumber,
    InvalidPartOrder,
    InvalidRange,
    InvalidRequest,
    InvalidTag,
    InvalidToken,
    InvalidUri,
    KeyTooLongError,
    MalformedTrailerError,
    MalformedXml,
    MaxMessageLengthExceeded,
    MetadataTooLarge,
    MethodNotAllowed,
    MissingContentLength,
    MissingSecurityHeader,
    NoSuchBucket,
    NoSuchBucketPolicy,
    NoSuchCorsConfiguration,
    NoSuchKey,
    NoSuchLifecycleConfiguration,
    NoSuchPublicAccessBlockConfiguration,
    NoSuchTagSet,
    NoSuchUpload,
    NoSuchVersion,
    NoSuchWebsiteConfiguration,
    NotImplemented,
    ObjectLockConfigurationNotFoundError,
    OwnershipControlsNotFoundError,
    PreconditionFailed,
    ReplicationConfigurationNotFoundError,
    RequestTimeTooSkewed,
    RequestTimeout,
    ServerSideEncryptionConfigurationNotFoundError,
    ServiceUnavailable,
    SignatureDoesNotMatch,
    SlowDown,
    UnexpectedContent,
    XAmzContentSha256Mismatch,
}

/// Every code with its spelling, its status and what AWS says with it.
const SPELLING: &[(Code, &str, u16, &str)] = &[
    (Code::AccessControlListNotSupported, "AccessControlListNotSupported", 400, "The bucket does not allow ACLs"),
    (Code::AccessDenied, "AccessDenied", 403, "Access Denied"),
    (
        Code::AuthorizationHeaderMalformed,
        "AuthorizationHeaderMalformed",
        400,
        "The authorization header you provided is invalid.",
    ),
    (
        Code::AuthorizationQueryParametersError,
        "AuthorizationQueryParametersError",
        400,
        "The authorization query parameters that you provided are not valid.",
    ),
    (
        Code::BadDigest,
        "BadDigest",
        400,
        "The Content-MD5 or checksum value that you specified did not match what the server received.",
    ),
    (Code::BadRequest, "BadRequest", 400, "Bad Request"),
    (
        Code::BucketAlreadyExists,
        "BucketAlreadyExists",
        409,
        "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please \
         select a different name and try again.",
    ),
    (
        Code::BucketAlreadyOwnedByYou,
        "BucketAlreadyOwnedByYou",
        409,
        "Your previous request to create the named bucket succeeded and you already own it.",
    ),
    (Code::BucketNotEmpty, "BucketNotEmpty", 409, "The bucket you tried to delete is not empty"),
    (Code::EntityTooLarge, "EntityTooLarge", 400, "Your proposed upload exceeds the maximum allowed size"),
    (Code::EntityTooSmall, "EntityTooSmall", 400, "Your proposed upload is smaller than the minimum allowed size"),
    (
        Code::IllegalLocationConstraintException,
        "IllegalLocationConstraintException",
        400,
        "The location constraint is incompatible for the region specific endpoint this request was sent to.",
    ),
    (
        Code::IncompleteBody,
        "IncompleteBody",
        400,
        "You did not provide the number of bytes specified by the Content-Length HTTP header.",
    ),
    // Not one of AWS's, which is never full. SDKs try 500, 502, 503 and 504 again, and not this.
    (Code::InsufficientStorage, "InsufficientStorage", 507, "There is no room left in the rack."),
    (Code::InternalError, "InternalError", 500, "We encountered an internal error. Please try again."),
    (
        Code::InvalidAccessKeyId,
        "InvalidAccessKeyId",
        403,
        "The AWS Access Key Id you provided does not exist in our records.",
    ),
    (Code::InvalidArgument, "InvalidArgument", 400, "Invalid Argument"),
    (
        Code::InvalidBucketAclWithObjectOwnership,
        "InvalidBucketAclWithObjectOwnership",
        400,
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
    ),
    (Code::InvalidBucketName, "InvalidBucketName", 400, "The specified bucket is not valid."),
    (Code::InvalidDigest, "InvalidDigest", 400, "The Content-MD5 you specified is not valid."),
    (
        Code::InvalidPart,
        "InvalidPart",
        400,
        "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified \
         entity tag may not match the part's entity tag.",
    ),
    (Code::InvalidPartNumber, "InvalidPartNumber", 416, "The requested partnumber is not satisfiable"),
    (
        Code::InvalidPartOrder,
        "InvalidPartOrder",
        400,
        "The list of parts was not in ascending order. Parts must be ordered by part number.",
    ),
    (Code::InvalidRange, "InvalidRange", 416, "The requested range is not satisfiable"),
    (Code::InvalidRequest, "InvalidRequest", 400, "Invalid Request"),
    (Code::InvalidTag, "InvalidTag", 400, "The tag provided was not a valid tag."),
    (Code::InvalidToken, "InvalidToken", 400, "The provided token is malformed or otherwise not valid."),
    (Code::InvalidUri, "InvalidURI", 400, "Couldn't parse the specified URI."),
    (Code::KeyTooLongError, "KeyTooLongError", 400, "Your key is too long"),
    (
        Code::MalformedTrailerError,
        "MalformedTrailerError",
        400,
        "The request contained trailing data that was not well-formed or did not conform to our published schema.",
    ),
    (
        Code::MalformedXml,
        "MalformedXML",
        400,
        "The XML you provided was not well-formed or did not validate against our published schema",
    ),
    (Code::MaxMessageLengthExceeded, "MaxMessageLengthExceeded", 400, "Your request was too big."),
    (Code::MetadataTooLarge, "MetadataTooLarge", 400, "Your metadata headers exceed the maximum allowed metadata size"),
    (Code::MethodNotAllowed, "MethodNotAllowed", 405, "The specified method is not allowed against this resource."),
    (Code::MissingContentLength, "MissingContentLength", 411, "You must provide the Content-Length HTTP header."),
    (Code::MissingSecurityHeader, "MissingSecurityHeader", 400, "Your request was missing a required header"),
    (Code::NoSuchBucket, "NoSuchBucket", 404, "The specified bucket does not exist"),
    (Code::NoSuchBucketPolicy, "NoSuchBucketPolicy", 404, "The bucket policy does not exist"),
    (Code::NoSuchCorsConfiguration, "NoSuchCORSConfiguration", 404, "The CORS configuration does not exist"),
    (Code::NoSuchKey, "NoSuchKey", 404, "The specified key does not exist."),
    (
        Code::NoSuchLifecycleConfiguration,
        "NoSuchLifecycleConfiguration",
        404,
        "The lifecycle configuration does not exist",
    ),
    (
        Code::NoSuchPublicAccessBlockConfiguration,
        "NoSuchPublicAccessBlockConfiguration",
        404,
        "The public access block configuration was not found",
    ),
    (Code::NoSuchTagSet, "NoSuchTagSet", 404, "The TagSet does not exist"),
    (
        Code::NoSuchUpload,
        "NoSuchUpload",
        404,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or \
         completed.",
    ),
    (Code::NoSuchVersion, "NoSuchVersion", 404, "The specified version does not exist."),
    (
        Code::NoSuchWebsiteConfiguration,
        "NoSuchWebsiteConfiguration",
        404,
        "The specified bucket does not have a website configuration",
    ),
    (
        Code::NotImplemented,
        "NotImplemented",
        501,
        "A header or query you provided implies functionality that is not implemented",
    ),
    (
        Code::ObjectLockConfigurationNotFoundError,
        "ObjectLockConfigurationNotFoundError",
        404,
        "Object Lock configuration does not exist for this bucket",
    ),
    (
        Code::OwnershipControlsNotFoundError,
        "OwnershipControlsNotFoundError",
        404,
        "The bucket ownership controls were not found",
    ),
    (
        Code::PreconditionFailed,
        "PreconditionFailed",
        412,
        "At least one of the pre-conditions you specified did not hold",
    ),
    (
        Code::ReplicationConfigurationNotFoundError,
        "ReplicationConfigurationNotFoundError",
        404,
        "The replication configuration was not found",
    ),
    (
        Code::RequestTimeTooSkewed,
        "RequestTimeTooSkewed",
        403,
        "The difference between the request time and the current time is too large.",
    ),
    (
        Code::RequestTimeout,
        "RequestTimeout",
        400,
        "Your socket connection to the server was not read from or written to within the timeout period.",
    ),
    (
        Code::ServerSideEncryptionConfigurationNotFoundError,
        "ServerSideEncryptionConfigurationNotFoundError",
        404,
        "The server side encryption configuration was not found",
    ),
    (Code::ServiceUnavailable, "ServiceUnavailable", 503, "Service is unable to handle request. Please try again."),
    (
        Code::SignatureDoesNotMatch,
        "SignatureDoesNotMatch",
        403,
        "The request signature we calculated does not match the signature you provided. Check your key and \
             signing method.",
    ),
    (Code::SlowDown, "SlowDown", 503, "Please reduce your request rate."),
    (Code::UnexpectedContent, "UnexpectedContent", 400, "This request does not support content"),
    (
        Code::XAmzContentSha256Mismatch,
        "XAmzContentSHA256Mismatch",
        400,
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    ),
];

impl Code {
    fn row(self) -> &'static (Self, &'static str, u16, &'static str) {
        SPELLING.iter().find(|row| row.0 == self).expect("every code has its row, which a test counts")
    }

    /// The status of an answer with it.
    pub(super) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().2).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// How S3 spells it.
    pub(super) fn as_str(self) -> &'static str {
        self.row().1
    }
}

/// What AWS says with the code of this spelling, for errors that come without a message.
pub(super) fn usual_message(spelling: &str) -> &'static str {
    SPELLING.iter().find(|row| row.1 == spelling).map_or("The request could not be served.", |row| row.3)
}

/// What is said of an object that is lost. S3 has no code for that: stores like it answer InternalError, which no
/// client takes for an object that is not there; that trying again is in vain only words can say.
const LOST: &str = "The data of this object is lost: more of its stacks are damaged, or on failed drives, than its \
                    code makes up for. Trying again does not help; ask whoever runs this server.";

/// What is said where the server's own disk has damaged what it holds.
const DAMAGED: &str = "What the server holds of this on its own disk is damaged. Trying again does not help; ask \
                       whoever runs this server.";

/// What the protocol library says of a request that does not get as far as its signature, and what S3 says of it.
const RENAMED: [(&str, Code, &str); 4] = [
    ("invalid header: authorization", Code::AuthorizationHeaderMalformed, "The authorization header is malformed."),
    (
        "missing presigned url v4 fields",
        Code::AuthorizationQueryParametersError,
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, \
         X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
    ),
    ("missing header: x-amz-date", Code::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header"),
    (
        "missing header: x-amz-content-sha256",
        Code::InvalidRequest,
        "Missing required header for this request: x-amz-content-sha256",
    ),
];

/// S3's code and message in the place of this message of the protocol library's, if there is a better one.
pub(super) fn renamed(message: &str) -> Option<(Code, &'static str)> {
    RENAMED.iter().find(|row| row.0 == message).map(|row| (row.1, row.2))
}

/// A failure on its way to the client.
#[derive(Debug)]
pub(super) struct Fault {
    /// What kind.
    pub code: Code,
    message: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    cause: Option<StoreError>,
}

impl Fault {
    /// A failure with a message of its own.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), headers: Vec::new(), cause: None }
    }

    /// The client asks for `what`, which is not here.
    pub fn not_implemented(what: &str) -> Self {
        Self::new(Code::NotImplemented, format!("{what} implies functionality that is not implemented."))
    }

    /// The range asked for lies outside an object of `bytes` bytes.
    pub fn invalid_range(bytes: u64) -> Self {
        let mut fault = Self::from(Code::InvalidRange);
        if let Ok(value) = HeaderValue::try_from(format!("bytes */{bytes}")) {
            fault.headers.push((CONTENT_RANGE, value));
        }
        fault
    }

    /// Come again in `seconds`.
    pub fn slow_down(seconds: u32, message: impl Into<Cow<'static, str>>) -> Self {
        let mut fault = Self::new(Code::SlowDown, message);
        fault.headers.push((RETRY_AFTER, HeaderValue::from(seconds)));
        fault
    }

    /// What went wrong with a request's body as it was read.
    ///
    /// The protocol library keeps the types of these errors to itself, so their names are all there is to tell them by.
    pub fn of_body(error: &StdError) -> Self {
        let name = error.to_string();
        let code = if name.contains("Sha256Mismatch") {
            Code::XAmzContentSha256Mismatch
        } else if name.contains("SignatureMismatch") {
            Code::SignatureDoesNotMatch
        } else if name.contains("FormatError") || name.contains("TooLarge") || name.contains("Trailer") {
            Code::InvalidRequest
        } else {
            Code::IncompleteBody
        };
        if code == Code::InvalidRequest {
            return Self::new(code, format!("The chunked body is not well-formed ({name})."));
        }
        Self::from(code)
    }

    /// The message the client reads.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Tells the operator what only the operator can mend.
    pub fn log(&self, operation: &str, path: &str) {
        match &self.cause {
            Some(StoreError::DataLost { what }) => tracing::error!(operation, path, what, "DATA LOST"),
            Some(cause @ (StoreError::Internal(_) | StoreError::Damaged(_))) => {
                tracing::error!(operation, path, %cause, "request failed");
            }
            Some(cause @ StoreError::Unavailable { .. }) => tracing::warn!(operation, path, %cause, "request failed"),
            _ if self.code == Code::InternalError => {
                tracing::error!(operation, path, message = self.message(), "request failed");
            }
            _ => tracing::debug!(operation, path, code = self.code.as_str(), message = self.message(), "refused"),
        }
    }
}

impl From<Code> for Fault {
    fn from(code: Code) -> Self {
        Self::new(code, code.row().3)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let mut fault = match &error {
            StoreError::NoSuchBucket => Code::NoSuchBucket.into(),
            StoreError::NoSuchKey => Code::NoSuchKey.into(),
            StoreError::NoSuchUpload => Code::NoSuchUpload.into(),
            StoreError::NoSuchPart(_) => Code::InvalidPart.into(),
            StoreError::BucketExists { owned_by_you: true } => Code::BucketAlreadyOwnedByYou.into(),
            StoreError::BucketExists { owned_by_you: false } => Code::BucketAlreadyExists.into(),
            StoreError::NoSuchAccessKey => Code::InvalidAccessKeyId.into(),
            StoreError::BucketNotEmpty => Code::BucketNotEmpty.into(),
            StoreError::PreconditionFailed => Code::PreconditionFailed.into(),
            StoreError::SlowDown { retry_after_s, reason } => Self::slow_down(*retry_after_s, reason.clone()),
            StoreError::TooLarge { reason } => Self::new(Code::EntityTooLarge, reason.clone()),
            StoreError::NoRoom { reason } => Self::new(Code::InsufficientStorage, reason.clone()),
            StoreError::Unavailable { .. } => Code::ServiceUnavailable.into(),
            StoreError::DataLost { .. } => Self::new(Code::InternalError, LOST),
            StoreError::Damaged(_) => Self::new(Code::InternalError, DAMAGED),
            StoreError::Internal(_) => Code::InternalError.into(),
        };
        fault.cause = Some(error);
        fault
    }
}

impl From<Fault> for S3Error {
    fn from(fault: Fault) -> Self {
        let (spelling, status) = (fault.code.as_str(), fault.code.status());
        let code = S3ErrorCode::from_bytes(spelling.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
        let mut error = Self::with_message(code, fault.message);
        error.set_status_code(status);
        // These replace the headers the library would have set, so the content type is among them.
        let mut headers = HeaderMap::from_iter(fault.headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        error.set_headers(headers);
        error
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_code_of_the_table_is_there_once_and_keeps_its_spelling() {
        assert_eq!(SPELLING.len(), Code::XAmzContentSha256Mismatch as usize + 1);
        for (at, (code, spelling, status, message)) in SPELLING.iter().enumerate() {
            assert_eq!(*code as usize, at, "the table is in the order of the enum");
            assert!(!message.is_empty());
            let error = S3Error::from(Fault::from(*code));
            assert_eq!(error.code().as_str(), *spelling);
            assert_eq!(error.status_code().unwrap().as_u16(), *status);
        }
    }

    #[test]
    fn a_lost_object_is_said_to_be_so() {
        let error = S3Error::from(Fault::from(StoreError::DataLost { what: "stripe 7".into() }));
        assert_eq!(error.status_code(), Some(StatusCode::INTERNAL_SERVER_ERROR));
        assert_eq!((error.code().as_str(), error.message()), ("InternalError", Some(LOST)));
    }

    #[test]
    fn slow_down_says_when_to_come_again_and_why() {
        let error = S3Error::from(Fault::from(StoreError::SlowDown { retry_after_s: 17, reason: "waking".into() }));
        assert_eq!(error.headers().unwrap()[RETRY_AFTER], "17");
        assert_eq!(error.message(), Some("waking"));
        assert_eq!(error.status_code(), Some(StatusCode::SERVICE_UNAVAILABLE));
    }
}
