//! A request as the operations see it, after its signature was verified.

use super::digest::Claims;
use super::error::{Code, Fault};
use super::{Domain, Keys, configuration, honour};
use bytes::Bytes;
use catalog::Bucket;
use http::{HeaderMap, Method};
use s3s::path::{ParseS3PathError, S3Path, parse_virtual_hosted_style};
use s3s::xml::{Deserialize, Deserializer};
use s3s::{Body, S3Request, TrailingHeaders};
use std::time::Duration;

/// The largest body of a request that is not an object, in bytes (AWS takes 1,000 keys of 1,024 bytes to delete at
/// once, and 10,000 parts with a checksum each to complete).
const SMALL_BODY_BYTES: usize = 4 << 20;
/// How long such a body may take to come.
const SMALL_BODY_TIME: Duration = Duration::from_mins(2);

/// The operations there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    ListBuckets,
    CreateBucket,
    HeadBucket,
    GetBucketLocation,
    DeleteBucket,
    ListObjects,
    ListObjectsV2,
    DeleteObjects,
    PutObject,
    GetObject,
    HeadObject,
    DeleteObject,
    GetBucketAcl,
    PutBucketAcl,
    GetBucketTagging,
    PutBucketTagging,
    DeleteBucketTagging,
    GetBucketOwnershipControls,
    PutBucketOwnershipControls,
    DeleteBucketOwnershipControls,
    /// Any configuration of a bucket that is never there.
    GetConfiguration,
    DeleteConfiguration,
    ListObjectVersions,
    GetObjectAcl,
    PutObjectAcl,
    GetObjectTagging,
    PutObjectTagging,
    DeleteObjectTagging,
    GetObjectAttributes,
    CopyObject,
    CreateMultipartUpload,
    UploadPart,
    UploadPartCopy,
    CompleteMultipartUpload,
    AbortMultipartUpload,
    ListMultipartUploads,
    ListParts,
}

impl Operation {
    /// What it is if its bytes come from another object.
    fn of_copies(self) -> Self {
        match self {
            Self::PutObject => Self::CopyObject,
            Self::UploadPart => Self::UploadPartCopy,
            other => other,
        }
    }
}

/// What a bucket has besides its objects: method, query parameter, operation.
const OF_BUCKET: [(&str, &str, Operation); 13] = [
    ("GET", "acl", Operation::GetBucketAcl),
    ("PUT", "acl", Operation::PutBucketAcl),
    ("GET", "tagging", Operation::GetBucketTagging),
    ("PUT", "tagging", Operation::PutBucketTagging),
    ("DELETE", "tagging", Operation::DeleteBucketTagging),
    ("GET", "ownershipControls", Operation::GetBucketOwnershipControls),
    ("PUT", "ownershipControls", Operation::PutBucketOwnershipControls),
    ("DELETE", "ownershipControls", Operation::DeleteBucketOwnershipControls),
    ("GET", "versions", Operation::ListObjectVersions),
    ("GET", "location", Operation::GetBucketLocation),
    ("POST", "delete", Operation::DeleteObjects),
    ("GET", "uploads", Operation::ListMultipartUploads),
    ("GET", "list-type", Operation::ListObjectsV2),
];

/// What an object has besides its bytes.
const OF_OBJECT: [(&str, &str, Operation); 11] = [
    ("GET", "acl", Operation::GetObjectAcl),
    ("PUT", "acl", Operation::PutObjectAcl),
    ("GET", "tagging", Operation::GetObjectTagging),
    ("PUT", "tagging", Operation::PutObjectTagging),
    ("DELETE", "tagging", Operation::DeleteObjectTagging),
    ("GET", "attributes", Operation::GetObjectAttributes),
    ("POST", "uploads", Operation::CreateMultipartUpload),
    ("POST", "uploadId", Operation::CompleteMultipartUpload),
    ("PUT", "uploadId", Operation::UploadPart),
    ("GET", "uploadId", Operation::ListParts),
    ("DELETE", "uploadId", Operation::AbortMultipartUpload),
];

/// A request for an operation there is, all of whose headers and parameters are honoured.
pub(super) struct Ask {
    pub operation: Operation,
    /// Who asks; nobody knows of a request that is not signed.
    user: Option<String>,
    /// The key that signed it.
    pub access_key: Option<String>,
    /// The bucket; empty where the operation has none.
    pub bucket: String,
    /// The key; empty where the operation has none.
    pub key: String,
    pub headers: HeaderMap,
    query: Vec<(String, String)>,
    pub body: Body,
    pub trailers: Option<TrailingHeaders>,
}

impl Ask {
    /// Reads a request.
    ///
    /// # Errors
    /// `NotImplemented` for all we do not do, and what is wrong with a path or a signature.
    pub fn of(request: S3Request<Body>, keys: &dyn Keys, domain: Option<&Domain>) -> Result<Self, Fault> {
        let user = match &request.credentials {
            Some(credentials) => Some(keys.user(&credentials.access_key).ok_or(Code::InvalidAccessKeyId)?),
            None => None,
        };
        if user.is_some() && request.service.as_deref() != Some("s3") {
            return Err(Fault::new(Code::AccessDenied, "The request is signed for another service."));
        }
        let host = request.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        let path = decode_path(request.uri.path(), domain.and_then(|domain| domain.bucket(host)).as_deref())?;
        let query: Vec<(String, String)> =
            form_urlencoded::parse(request.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let copies = request.headers.contains_key("x-amz-copy-source");
        let operation = resolve(&request.method, &path, &query)
            .map(|operation| if copies { operation.of_copies() } else { operation })
            .ok_or_else(|| Fault::not_implemented(&described(&request.method, &query)))?;
        honour::check(operation, user.is_some(), &query, &request.headers)?;
        let bucket = path.get_bucket_name().unwrap_or_default().to_owned();
        let key = path.get_object_key().unwrap_or_default().to_owned();
        let (headers, body, trailers) = (request.headers, request.input, request.trailing_headers);
        let access_key = request.credentials.as_ref().map(|credentials| credentials.access_key.clone());
        Ok(Self { operation, user, access_key, bucket, key, headers, query, body, trailers })
    }

    /// Who asks.
    ///
    /// # Errors
    /// `AccessDenied` if nobody signed the request.
    pub fn user(&self) -> Result<&str, Fault> {
        self.user.as_deref().ok_or(Code::AccessDenied.into())
    }

    /// Whether who asks owns `bucket`.
    pub fn owns(&self, bucket: &Bucket) -> bool {
        self.user.as_ref() == Some(&bucket.owner)
    }

    /// The value of a query parameter; the first, if it is there more than once.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
    }

    /// The value of a header, if it is there and text.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that is not UTF-8.
    pub fn header(&self, name: &str) -> Result<Option<&str>, Fault> {
        self.headers.get(name).map(|value| text(name, value.as_bytes())).transpose()
    }

    /// The whole body of a request that is not an object, its digests verified, as XML; nothing if it is empty.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub async fn small_body<T: for<'xml> Deserialize<'xml>>(&mut self) -> Result<Option<T>, Fault> {
        let claims = Claims::of(&self.headers)?;
        parsed(&self.small_body_bytes(&claims).await?)
    }

    /// The bytes of such a body, about which the request claims `claims`.
    ///
    /// # Errors
    /// What is wrong with them, and `RequestTimeout` for a client that takes too long.
    pub async fn small_body_bytes(&mut self, claims: &Claims) -> Result<Bytes, Fault> {
        // Whoever sends a part of it and goes silent must not keep a request's place.
        let read = tokio::time::timeout(SMALL_BODY_TIME, self.body.store_all_limited(SMALL_BODY_BYTES)).await;
        let bytes = read.map_err(|_| Fault::from(Code::RequestTimeout))?.map_err(|error| {
            if error.to_string().contains("limit") {
                Code::MaxMessageLengthExceeded.into()
            } else {
                Fault::of_body(&error)
            }
        })?;
        let trailers = self.trailers.as_ref().and_then(TrailingHeaders::take);
        claims.verify(trailers.as_ref(), &claims.digests(&bytes))?;
        Ok(bytes)
    }
}

/// A body as XML; nothing if it is empty.
///
/// # Errors
/// `MalformedXML`.
pub(super) fn parsed<T: for<'xml> Deserialize<'xml>>(bytes: &Bytes) -> Result<Option<T>, Fault> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut reader = Deserializer::new(bytes);
    let value = T::deserialize(&mut reader).and_then(|value| reader.expect_eof().map(|()| value));
    value.map(Some).map_err(|_| Code::MalformedXml.into())
}

/// `value` as text.
///
/// # Errors
/// `InvalidArgument` if it is not UTF-8.
pub(super) fn text<'a>(name: &str, value: &'a [u8]) -> Result<&'a str, Fault> {
    std::str::from_utf8(value).map_err(|_| {
        Fault::new(Code::InvalidArgument, format!("Header {name} must be UTF-8 without control characters."))
    })
}

/// What a path is of, below the bucket that the host names, if it does.
fn decode_path(path: &str, bucket: Option<&str>) -> Result<S3Path, Fault> {
    let decoded =
        percent_encoding::percent_decode_str(path).decode_utf8().map_err(|_| Fault::from(Code::InvalidUri))?;
    parse_virtual_hosted_style(bucket, &decoded).map_err(|error| match error {
        ParseS3PathError::InvalidPath => Code::InvalidUri.into(),
        ParseS3PathError::InvalidBucketName => Code::InvalidBucketName.into(),
        ParseS3PathError::KeyTooLong => Code::KeyTooLongError.into(),
    })
}

fn described(method: &Method, query: &[(String, String)]) -> String {
    match query.first() {
        Some((name, _)) => format!("The method {method} with the query parameter {name}"),
        None => format!("The method {method} on this path"),
    }
}

/// Which operation a request asks for. Sub-resources we do not have are refused afterwards, by their parameters.
fn resolve(method: &Method, path: &S3Path, query: &[(String, String)]) -> Option<Operation> {
    let has = |name: &str| query.iter().any(|pair| pair.0 == name);
    let asked = |method: &Method, resources: &[(&str, &str, Operation)]| {
        resources.iter().find(|(of, name, _)| *of == method.as_str() && has(name)).map(|row| row.2)
    };
    let configures = |is_known: fn(&str) -> bool| query.iter().any(|pair| is_known(&pair.0));
    Some(match (path, method.as_str()) {
        (S3Path::Root, "GET") => Operation::ListBuckets,
        (S3Path::Bucket { .. }, "HEAD") => Operation::HeadBucket,
        (S3Path::Bucket { .. }, name) => match (asked(method, &OF_BUCKET), name) {
            // There are a first and a second form of listing, and no others.
            (Some(Operation::ListObjectsV2), _) if !query.iter().any(|(n, v)| n == "list-type" && v == "2") => {
                return None;
            }
            (Some(operation), _) => operation,
            (None, "GET") if configures(configuration::can_be_read) => Operation::GetConfiguration,
            (None, "DELETE") if configures(configuration::can_be_deleted) => Operation::DeleteConfiguration,
            (None, "GET") => Operation::ListObjects,
            (None, "PUT") => Operation::CreateBucket,
            (None, "DELETE") => Operation::DeleteBucket,
            (None, _) => return None,
        },
        (S3Path::Object { .. }, "HEAD") => Operation::HeadObject,
        (S3Path::Object { .. }, name) => match (asked(method, &OF_OBJECT), name) {
            (Some(operation), _) => operation,
            (None, "GET") => Operation::GetObject,
            (None, "PUT") => Operation::PutObject,
            (None, "DELETE") => Operation::DeleteObject,
            (None, _) => return None,
        },
        (S3Path::Root, _) => return None,
    })
}
