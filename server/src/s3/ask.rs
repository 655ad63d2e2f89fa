//! A request as the operations see it, after its signature was verified.

use super::digest::Claims;
use super::error::{Code, Fault};
use super::honour;
use bytes::Bytes;
use http::{HeaderMap, Method};
use s3s::path::{ParseS3PathError, S3Path, parse_path_style};
use s3s::xml::{Deserialize, Deserializer};
use s3s::{Body, S3Request, TrailingHeaders};

/// The largest body of a request that is not an object, in bytes (AWS takes 1,000 keys of 1,024 bytes to delete at
/// once).
const SMALL_BODY_BYTES: usize = 4 << 20;

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
}

/// A request by a known user for an operation there is, all of whose headers and parameters are honoured.
pub(super) struct Ask {
    pub operation: Operation,
    /// The access key of who asks.
    pub user: String,
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
    /// `AccessDenied` for who is nobody, `NotImplemented` for all we do not do, and what is wrong with a path.
    pub fn of(request: S3Request<Body>) -> Result<Self, Fault> {
        let user = request.credentials.ok_or(Code::AccessDenied)?.access_key;
        if request.service.as_deref() != Some("s3") {
            return Err(Fault::new(Code::AccessDenied, "The request is signed for another service."));
        }
        let path = decode_path(request.uri.path())?;
        let query: Vec<(String, String)> =
            form_urlencoded::parse(request.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let operation = resolve(&request.method, &path, &query)
            .ok_or_else(|| Fault::not_implemented(&described(&request.method, &query)))?;
        honour::check(operation, &query, &request.headers)?;
        let bucket = path.get_bucket_name().unwrap_or_default().to_owned();
        let key = path.get_object_key().unwrap_or_default().to_owned();
        let (headers, body, trailers) = (request.headers, request.input, request.trailing_headers);
        Ok(Self { operation, user, bucket, key, headers, query, body, trailers })
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
        let bytes = self.small_body_bytes().await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut reader = Deserializer::new(&bytes);
        let value = T::deserialize(&mut reader).and_then(|value| reader.expect_eof().map(|()| value));
        value.map(Some).map_err(|_| Code::MalformedXml.into())
    }

    async fn small_body_bytes(&mut self) -> Result<Bytes, Fault> {
        let claims = Claims::of(&self.headers)?;
        let bytes = self.body.store_all_limited(SMALL_BODY_BYTES).await.map_err(|error| {
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

/// `value` as text.
///
/// # Errors
/// `InvalidArgument` if it is not UTF-8.
pub(super) fn text<'a>(name: &str, value: &'a [u8]) -> Result<&'a str, Fault> {
    std::str::from_utf8(value).map_err(|_| {
        Fault::new(Code::InvalidArgument, format!("Header {name} must be UTF-8 without control characters."))
    })
}

fn decode_path(path: &str) -> Result<S3Path, Fault> {
    let decoded =
        percent_encoding::percent_decode_str(path).decode_utf8().map_err(|_| Fault::from(Code::InvalidUri))?;
    parse_path_style(&decoded).map_err(|error| match error {
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
    let value = |name: &str| query.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str());
    Some(match (path, method.as_str()) {
        (S3Path::Root, "GET") => Operation::ListBuckets,
        (S3Path::Bucket { .. }, "PUT") => Operation::CreateBucket,
        (S3Path::Bucket { .. }, "HEAD") => Operation::HeadBucket,
        (S3Path::Bucket { .. }, "DELETE") => Operation::DeleteBucket,
        (S3Path::Bucket { .. }, "POST") if value("delete").is_some() => Operation::DeleteObjects,
        (S3Path::Bucket { .. }, "GET") if value("location").is_some() => Operation::GetBucketLocation,
        (S3Path::Bucket { .. }, "GET") => match value("list-type") {
            None => Operation::ListObjects,
            Some("2") => Operation::ListObjectsV2,
            Some(_) => return None,
        },
        (S3Path::Object { .. }, "PUT") => Operation::PutObject,
        (S3Path::Object { .. }, "GET") => Operation::GetObject,
        (S3Path::Object { .. }, "HEAD") => Operation::HeadObject,
        (S3Path::Object { .. }, "DELETE") => Operation::DeleteObject,
        _ => return None,
    })
}
