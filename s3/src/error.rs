//! S3's error responses: code, status, message and headers, all in this one place.
//!
//! Invariant: a client receives the errors that it can act on. An error that only the operator can act on goes to the
//! log, once, in [`ErrorResponse::log`]; the client reads `InternalError` or `ServiceUnavailable`.

use crate::keys::REGION;
use crate::store::ServiceError;
use crate::xml;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use s3s::xml::{DeError, DeResult, Deserialize, Deserializer, SerResult, Serialize, Serializer};
use s3s::{Body, S3Error, S3ErrorCode, StdError};
use std::borrow::Cow;
use std::io::Write;

/// Defines the codes, each with its status, AWS's message, and its spelling if that is not its name.
macro_rules! error_codes {
    ($($code:ident $(= $spelling:literal)? $status:literal $message:literal;)*) => {
        /// S3's codes that this frontend uses or that the protocol library answers with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ErrorCode { $($code),* }

        const SPELLING: &[(ErrorCode, &str, u16, &str)] =
            &[$((ErrorCode::$code, error_codes!(@ $code $($spelling)?), $status, $message)),*];
    };
    (@ $code:ident) => { stringify!($code) };
    (@ $code:ident $spelling:literal) => { $spelling };
}

error_codes! {
    AccessControlListNotSupported 400 "The bucket does not allow ACLs";
    AccessDenied 403 "Access Denied";
    AuthorizationHeaderMalformed 400 "The authorization header you provided is invalid.";
    AuthorizationQueryParametersError 400 "The authorization query parameters that you provided are not valid.";
    BadDigest 400 "The Content-MD5 or checksum value that you specified did not match what the server received.";
    BadRequest 400 "Bad Request";
    BucketAlreadyExists 409
        "The requested bucket name is not available. The bucket namespace is shared by all users of the system. \
         Please select a different name and try again.";
    BucketAlreadyOwnedByYou 409 "Your previous request to create the named bucket succeeded and you already own it.";
    BucketNotEmpty 409 "The bucket you tried to delete is not empty";
    EntityTooLarge 400 "Your proposed upload exceeds the maximum allowed size";
    EntityTooSmall 400 "Your proposed upload is smaller than the minimum allowed size";
    IllegalLocationConstraintException 400
        "The location constraint is incompatible for the region specific endpoint this request was sent to.";
    IncompleteBody 400 "You did not provide the number of bytes specified by the Content-Length HTTP header.";
    // Not a code of AWS, which is never full. SDKs retry 500, 502, 503 and 504, but not this.
    InsufficientStorage 507 "There is no room left in the rack.";
    InternalError 500 "We encountered an internal error. Please try again.";
    InvalidAccessKeyId 403 "The AWS Access Key Id you provided does not exist in our records.";
    InvalidArgument 400 "Invalid Argument";
    InvalidBucketAclWithObjectOwnership 400
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    InvalidBucketName 400 "The specified bucket is not valid.";
    InvalidDigest 400 "The Content-MD5 you specified is not valid.";
    InvalidLocationConstraint 400 "The specified location-constraint is not valid";
    InvalidPart 400
        "One or more of the specified parts could not be found.  The part may not have been uploaded, or the \
         specified entity tag may not match the part's entity tag.";
    InvalidPartNumber 416 "The requested partnumber is not satisfiable";
    InvalidPartOrder 400 "The list of parts was not in ascending order. Parts must be ordered by part number.";
    InvalidRange 416 "The requested range is not satisfiable";
    InvalidRequest 400 "Invalid Request";
    InvalidStorageClass 400 "The storage class you specified is not valid";
    InvalidTag 400 "The tag provided was not a valid tag.";
    InvalidToken 400 "The provided token is malformed or otherwise not valid.";
    InvalidUri = "InvalidURI" 400 "Couldn't parse the specified URI.";
    KeyTooLongError 400 "Your key is too long";
    MalformedAclError = "MalformedACLError" 400
        "The XML you provided was not well-formed or did not validate against our published schema";
    MalformedTrailerError 400
        "The request contained trailing data that was not well-formed or did not conform to our published schema.";
    MalformedXml = "MalformedXML" 400
        "The XML you provided was not well-formed or did not validate against our published schema";
    MaxMessageLengthExceeded 400 "Your request was too big.";
    MetadataTooLarge 400 "Your metadata headers exceed the maximum allowed metadata size";
    MethodNotAllowed 405 "The specified method is not allowed against this resource.";
    MissingContentLength 411 "You must provide the Content-Length HTTP header.";
    MissingSecurityHeader 400 "Your request was missing a required header";
    NoSuchBucket 404 "The specified bucket does not exist";
    NoSuchBucketPolicy 404 "The bucket policy does not exist";
    NoSuchConfiguration 404 "The specified configuration does not exist.";
    NoSuchCorsConfiguration = "NoSuchCORSConfiguration" 404 "The CORS configuration does not exist";
    NoSuchKey 404 "The specified key does not exist.";
    NoSuchLifecycleConfiguration 404 "The lifecycle configuration does not exist";
    NoSuchPublicAccessBlockConfiguration 404 "The public access block configuration was not found";
    NoSuchTagSet 404 "The TagSet does not exist";
    NoSuchUpload 404
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or \
         completed.";
    NoSuchVersion 404 "The specified version does not exist.";
    NoSuchWebsiteConfiguration 404 "The specified bucket does not have a website configuration";
    NotImplemented 501 "A header or query you provided implies functionality that is not implemented";
    ObjectLockConfigurationNotFoundError 404 "Object Lock configuration does not exist for this bucket";
    OwnershipControlsNotFoundError 404 "The bucket ownership controls were not found";
    PreconditionFailed 412 "At least one of the pre-conditions you specified did not hold";
    ReplicationConfigurationNotFoundError 404 "The replication configuration was not found";
    RequestTimeTooSkewed 403 "The difference between the request time and the current time is too large.";
    RequestTimeout 400
        "Your socket connection to the server was not read from or written to within the timeout period.";
    ServerSideEncryptionConfigurationNotFoundError 404 "The server side encryption configuration was not found";
    ServiceUnavailable 503 "Service is unable to handle request. Please try again.";
    SignatureDoesNotMatch 403
        "The request signature we calculated does not match the signature you provided. Check your key and signing \
         method.";
    SlowDown 503 "Please reduce your request rate.";
    UnexpectedContent 400 "This request does not support content";
    XAmzContentSha256Mismatch = "XAmzContentSHA256Mismatch" 400
        "The provided 'x-amz-content-sha256' header does not match what was computed.";
}

impl ErrorCode {
    fn row(self) -> &'static (Self, &'static str, u16, &'static str) {
        let row = &SPELLING[self as usize];
        assert!(row.0 == self, "each code stands in its own row");
        row
    }

    /// The status of a response with this code.
    fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().2).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// S3's spelling.
    pub(crate) fn as_str(self) -> &'static str {
        self.row().1
    }

    /// An error of this code with its own message.
    pub(crate) fn with(self, message: impl Into<Cow<'static, str>>) -> ErrorResponse {
        ErrorResponse { code: self, message: message.into(), headers: Vec::new(), elements: Vec::new(), cause: None }
    }
}

/// The message for a lost object. S3 has no code for that. Stores like it answer InternalError, which no client takes
/// for a missing object. Only the message can say that a retry does not help.
const LOST: &str = "The data of this object is lost: more of its stacks are damaged, or on failed drives, than its \
                    code makes up for. Trying again does not help; request whoever runs this server.";

/// The message for data that is damaged on the server's own disk.
const DAMAGED: &str = "What the server holds of this on its own disk is damaged. Trying again does not help; request \
                       whoever runs this server.";

/// S3's code and message instead of the protocol library's `message`, for a request whose signature the library cannot
/// verify.
fn renamed(message: &str) -> Option<(ErrorCode, &'static str)> {
    Some(match message {
        "invalid header: authorization" => {
            (ErrorCode::AuthorizationHeaderMalformed, "The authorization header is malformed.")
        }
        "missing presigned url v4 fields" => (
            ErrorCode::AuthorizationQueryParametersError,
            "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, \
             X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
        ),
        "missing header: x-amz-date" => {
            (ErrorCode::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header")
        }
        "missing header: x-amz-content-sha256" => {
            (ErrorCode::InvalidRequest, "Missing required header for this request: x-amz-content-sha256")
        }
        "invalid header: x-amz-content-sha256" => (
            ErrorCode::InvalidArgument,
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
             STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.",
        ),
        _ => return None,
    })
}

/// An error on its way to the client.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    /// Its code.
    pub code: ErrorCode,
    message: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Elements of the document besides the common ones.
    elements: Vec<(&'static str, String)>,
    cause: Option<ServiceError>,
}

impl ErrorResponse {
    /// The client asks for `what`, which is not implemented.
    pub fn not_implemented(what: &str) -> Self {
        ErrorCode::NotImplemented.with(format!("{what} implies functionality that is not implemented."))
    }

    /// The requested range is outside an object of `bytes` bytes; `requested` is the header that named it, if any.
    /// Clients built on AWS's C library recognise an empty object by these elements.
    pub fn invalid_range(requested: Option<&str>, bytes: u64) -> Self {
        let mut error = Self::from(ErrorCode::InvalidRange);
        error.elements.extend(requested.map(|range| ("RangeRequested", range.to_owned())));
        error.elements.push(("ActualObjectSize", bytes.to_string()));
        if let Ok(value) = HeaderValue::try_from(format!("bytes */{bytes}")) {
            error.headers.push((CONTENT_RANGE, value));
        }
        error
    }

    /// `SlowDown`, with a Retry-After in seconds.
    pub fn slow_down(seconds: u32, message: impl Into<Cow<'static, str>>) -> Self {
        let mut error = ErrorCode::SlowDown.with(message);
        error.headers.push((RETRY_AFTER, HeaderValue::from(seconds)));
        error
    }

    /// An error while a request's body was read.
    ///
    /// The protocol library does not export the types of these errors, so only their names distinguish them.
    pub fn of_body(error: &StdError) -> Self {
        let name = error.to_string();
        let code = if name.contains("Sha256Mismatch") {
            ErrorCode::XAmzContentSha256Mismatch
        } else if name.contains("SignatureMismatch") {
            ErrorCode::SignatureDoesNotMatch
        } else if name.contains("Trailer") {
            ErrorCode::MalformedTrailerError
        } else if name.contains("FormatError") || name.contains("TooLarge") {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::IncompleteBody
        };
        match code {
            ErrorCode::InvalidRequest => code.with(format!("The chunked body is not well-formed ({name}).")),
            ErrorCode::IncompleteBody if name.starts_with("Incomplete:") => {
                code.with("The request body terminated unexpectedly")
            }
            _ => code.into(),
        }
    }

    /// The response to the request `request_id` for `resource`.
    pub fn into_http(mut self, resource: &str, request_id: &str) -> Response<Body> {
        let document = xml::write(&ErrorDocument { error: &self, resource, request_id });
        let mut response = Response::new(document.map_or_else(|_| Body::empty(), Body::from));
        *response.status_mut() = self.code.status();
        response.headers_mut().extend(self.headers.drain(..));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        response.extensions_mut().insert(Complete(self.code));
        response
    }

    /// The message the client reads.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Logs the error; as a warning or an error if only the operator can fix its cause.
    pub fn log(&self, operation: &str, path: &str) {
        match &self.cause {
            Some(ServiceError::DataLost { what }) => tracing::error!(operation, path, what, "DATA LOST"),
            Some(cause @ (ServiceError::Internal(_) | ServiceError::Damaged(_))) => {
                tracing::error!(operation, path, %cause, "request failed");
            }
            Some(cause @ ServiceError::Unavailable { .. }) => tracing::warn!(operation, path, %cause, "request failed"),
            _ if self.code == ErrorCode::InternalError => {
                tracing::error!(operation, path, message = self.message(), "request failed");
            }
            _ => tracing::debug!(operation, path, code = self.code.as_str(), message = self.message(), "refused"),
        }
    }
}

impl From<ErrorCode> for ErrorResponse {
    fn from(code: ErrorCode) -> Self {
        code.with(code.row().3)
    }
}

impl From<ServiceError> for ErrorResponse {
    fn from(error: ServiceError) -> Self {
        let mut response: Self = match &error {
            ServiceError::NoSuchBucket => ErrorCode::NoSuchBucket.into(),
            ServiceError::NoSuchKey => ErrorCode::NoSuchKey.into(),
            ServiceError::NoSuchUpload => ErrorCode::NoSuchUpload.into(),
            ServiceError::NoSuchPart(_) => ErrorCode::InvalidPart.into(),
            ServiceError::BucketExists { owned_by_you: true } => ErrorCode::BucketAlreadyOwnedByYou.into(),
            ServiceError::BucketExists { owned_by_you: false } => ErrorCode::BucketAlreadyExists.into(),
            ServiceError::NoSuchAccessKey => ErrorCode::InvalidAccessKeyId.into(),
            ServiceError::BucketNotEmpty => ErrorCode::BucketNotEmpty.into(),
            ServiceError::PreconditionFailed => ErrorCode::PreconditionFailed.into(),
            ServiceError::SlowDown { retry_after_s, reason } => Self::slow_down(*retry_after_s, reason.clone()),
            ServiceError::TooLarge { reason } => ErrorCode::EntityTooLarge.with(reason.clone()),
            ServiceError::NoRoom { reason } => ErrorCode::InsufficientStorage.with(reason.clone()),
            ServiceError::Unavailable { .. } => ErrorCode::ServiceUnavailable.into(),
            ServiceError::DataLost { .. } => ErrorCode::InternalError.with(LOST),
            ServiceError::Damaged(_) => ErrorCode::InternalError.with(DAMAGED),
            ServiceError::Internal(_) => ErrorCode::InternalError.into(),
        };
        response.cause = Some(error);
        response
    }
}

impl From<ErrorResponse> for S3Error {
    fn from(error: ErrorResponse) -> Self {
        let (spelling, status) = (error.code.as_str(), error.code.status());
        let code = S3ErrorCode::from_bytes(spelling.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
        let mut library = Self::with_message(code, error.message);
        library.set_status_code(status);
        library
    }
}

/// Marks a response made from an [`ErrorResponse`] with this code.
#[derive(Clone, Copy)]
struct Complete(ErrorCode);

/// The error code of a refused request that is not logged on its own.
pub(crate) fn refusal_of<B>(response: &Response<B>) -> Option<&'static str> {
    let Complete(code) = *response.extensions().get()?;
    (response.status().is_client_error() || code == ErrorCode::SlowDown).then(|| code.as_str())
}

/// S3's document of an error.
struct ErrorDocument<'a> {
    error: &'a ErrorResponse,
    resource: &'a str,
    request_id: &'a str,
}

impl Serialize for ErrorDocument<'_> {
    fn serialize<W: Write>(&self, writer: &mut Serializer<W>) -> SerResult {
        writer.element("Error", |writer| {
            writer.content("Code", self.error.code.as_str())?;
            writer.content("Message", self.error.message())?;
            for (name, value) in &self.error.elements {
                writer.content(name, value.as_str())?;
            }
            writer.content("Resource", self.resource)?;
            writer.content("RequestId", self.request_id)
        })
    }
}

/// The document of an error that the protocol library answers with.
struct LibraryError {
    code: String,
    message: Option<String>,
}

impl<'xml> Deserialize<'xml> for LibraryError {
    fn deserialize(reader: &mut Deserializer<'xml>) -> DeResult<Self> {
        let (mut code, mut message) = (None, None);
        reader.named_element("Error", |reader| {
            reader.for_each_element(|reader, name| {
                let text: String = reader.content()?;
                match name {
                    b"Code" => code = Some(text),
                    b"Message" => message = Some(text),
                    _ => {}
                }
                Ok(())
            })
        })?;
        Ok(Self { code: code.ok_or(DeError::MissingField)?, message })
    }
}

impl LibraryError {
    /// The same error as an [`ErrorResponse`], with S3's code and message where the library has others.
    fn translated(self, status: StatusCode) -> ErrorResponse {
        if let Some((code, message)) = self.message.as_deref().and_then(renamed) {
            return code.with(message);
        }
        // After it has verified the signature, the library accepts only the names of AWS's regions.
        if self.message.as_deref().is_some_and(|message| message.starts_with("invalid credential region")) {
            let message = format!("The authorization header is malformed; the region is wrong; expecting '{REGION}'");
            let mut error = ErrorCode::AuthorizationHeaderMalformed.with(message);
            error.elements.push(("Region", REGION.to_owned()));
            // The response to a HEAD has no body, so a header names the region as well.
            error.headers.push((HeaderName::from_static("x-amz-bucket-region"), HeaderValue::from_static(REGION)));
            return error;
        }
        let unknown = if status.is_server_error() { ErrorCode::InternalError } else { ErrorCode::InvalidRequest };
        let code = SPELLING.iter().find(|row| row.1 == self.code).map_or(unknown, |row| row.0);
        self.message.map_or_else(|| code.into(), |message| code.with(message))
    }
}

/// `response` unchanged, unless the protocol library itself refused the request: then with S3's code and message, and
/// with the resource and the request id, which the library's document lacks.
pub(crate) fn completed(response: Response<Body>, resource: &str, request_id: &str) -> Response<Body> {
    let failed = response.status().is_client_error() || response.status().is_server_error();
    if !failed || response.extensions().get::<Complete>().is_some() {
        return response;
    }
    match response.body().bytes().and_then(|document| xml::read::<LibraryError>(&document)) {
        Some(error) => error.translated(response.status()).into_http(resource, request_id),
        None => response,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_code_of_the_table_is_there_once_and_keeps_its_spelling() {
        assert_eq!(SPELLING.len(), ErrorCode::XAmzContentSha256Mismatch as usize + 1);
        for (at, (code, spelling, status, message)) in SPELLING.iter().enumerate() {
            assert_eq!(*code as usize, at, "the table is in the order of the enum");
            assert!(!message.is_empty());
            let error = S3Error::from(ErrorResponse::from(*code));
            assert_eq!(error.code().as_str(), *spelling);
            assert_eq!(error.status_code().unwrap().as_u16(), *status);
            let response = ErrorResponse::from(*code).into_http("/shelf/k", "1");
            assert_eq!(response.status().as_u16(), *status);
        }
    }

    fn answer(error: ServiceError) -> (Response<Body>, LibraryError) {
        let response = ErrorResponse::from(error).into_http("/shelf/k", "1");
        let document = xml::read(&response.body().bytes().unwrap()).unwrap();
        (response, document)
    }

    #[test]
    fn a_lost_object_is_said_to_be_so() {
        let (response, document) = answer(ServiceError::DataLost { what: "stripe 7".into() });
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!((document.code.as_str(), document.message.as_deref()), ("InternalError", Some(LOST)));
    }

    #[test]
    fn slow_down_says_when_to_come_again_and_why() {
        let (response, document) = answer(ServiceError::SlowDown { retry_after_s: 17, reason: "waking".into() });
        assert_eq!(response.headers()[RETRY_AFTER], "17");
        assert_eq!((document.code.as_str(), document.message.as_deref()), ("SlowDown", Some("waking")));
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn errors_of_the_library_become_complete_and_ours_stay_as_they_are() {
        let of_library = |code, message| S3Error::with_message(code, message).to_http_response().unwrap();
        let document = |response: Response<Body>| {
            let bytes = response.body().bytes().unwrap();
            String::from_utf8(bytes.to_vec()).unwrap().split_once("<Error>").unwrap().1.to_owned()
        };
        let response = completed(of_library(S3ErrorCode::InvalidRequest, "missing header: x-amz-date"), "/b&c", "7");
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(
            document(response),
            "<Code>AccessDenied</Code><Message>AWS authentication requires a valid Date or x-amz-date header</Message>\
             <Resource>/b&amp;c</Resource><RequestId>7</RequestId></Error>"
        );
        let response = completed(of_library(S3ErrorCode::RequestTimeTooSkewed, "too <late>"), "/", "7");
        assert!(document(response).contains("<Message>too &lt;late&gt;</Message>"));
        let ours = ErrorResponse::from(ErrorCode::NoSuchKey).into_http("/k", "1");
        assert!(document(completed(ours, "/other", "2")).contains("<Resource>/k</Resource><RequestId>1</RequestId>"));
    }
}
