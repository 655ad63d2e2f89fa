//! GetObject and HeadObject.

use crate::admission::PendingRequest;
use crate::digest::type_of;
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::precondition::{ConditionOutcome, RequestedRange, evaluate, requested_range};
use crate::request::S3Request;
use crate::response::{Answer, add_checksums, empty, set, validators};
use crate::store::{LOOKUPS_MAX, ObjectBytes, ServiceError};
use crate::versions;
use catalog::{Bucket, Checksum, Object};
use futures::StreamExt;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::{Body, S3Response, StdError};

/// S3's content type for bytes of no stated type.
const NO_TYPE: &str = "binary/octet-stream";

/// Headers of an answer that the query of a signed request may replace.
const REPLACEABLE: [(&str, &str); 6] = [
    ("response-cache-control", "cache-control"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-encoding", "content-encoding"),
    ("response-content-language", "content-language"),
    ("response-content-type", "content-type"),
    ("response-expires", "expires"),
];

/// Larder's own headers in the response to a HEAD of a cold object: that it is cold, and the expected seconds until the
/// first byte of a GET. S3 has no header for this: its storage classes mark objects that must be restored first, and no
/// object here must be.
const TEMPERATURE: HeaderName = HeaderName::from_static("x-larder-temperature");
const RECALL_FORECAST_S: HeaderName = HeaderName::from_static("x-larder-recall-forecast-s");

/// HeadObject: an object without its bytes. It wakes nothing.
pub(crate) async fn head(front: &Frontend, request: &S3Request) -> Answer {
    let (bucket, located) = front.located(request).await?;
    let object = &located.object;
    versions::check(request)?;
    let mut answer = match outcome(request, object)? {
        ReadOutcome::NotModified(answer) => return Ok(answer),
        ReadOutcome::Send(range) => {
            let checksums = checksums(front, request, object, &range).await?;
            ObjectResponse { request, bucket: &bucket, object, range, checksums }.with_body(Body::empty())?
        }
    };
    if let Some(forecast) = front.store.recall_forecast(&located).await? {
        answer.headers.insert(TEMPERATURE, HeaderValue::from_static("cold"));
        answer.headers.insert(RECALL_FORECAST_S, HeaderValue::from(forecast.as_secs_f64().ceil() as u64));
    }
    Ok(answer)
}

/// GetObject: an object, or a range of it. It is located once, and read if it is still in the same place: two queries
/// of the catalog.
pub(crate) async fn object(front: &Frontend, request: &S3Request, pending: &PendingRequest) -> Answer {
    for _ in 0..LOOKUPS_MAX {
        let (bucket, located) = front.located(request).await?;
        let object = &located.object;
        versions::check(request)?;
        let range = match outcome(request, object)? {
            ReadOutcome::NotModified(answer) => return Ok(answer),
            ReadOutcome::Send(range) => range,
        };
        let checksums = checksums(front, request, object, &range).await?;
        let wanted = if let RequestedRange::Bytes(bytes) = &range { bytes.clone() } else { 0..object.bytes };
        if let Some(read) = front.store.read(&request.bucket, &request.key, &located, wanted).await? {
            let bytes = pending.bytes(&front.traffic, read).await?;
            let response = ObjectResponse { request, bucket: &bucket, object, range, checksums };
            return response.with_body(body_of(bytes, request));
        }
    }
    Err(ServiceError::overwritten().into())
}

/// The outcome of a read's conditions and range.
enum ReadOutcome {
    NotModified(S3Response<Body>),
    Send(RequestedRange),
}

fn outcome(request: &S3Request, object: &Object) -> Result<ReadOutcome, ErrorResponse> {
    match evaluate(&request.headers, &object.etag, object.modified_ms) {
        ConditionOutcome::Failed => return Err(ErrorCode::PreconditionFailed.into()),
        ConditionOutcome::NotModified => {
            let mut answer = empty(StatusCode::NOT_MODIFIED);
            answer.headers = validators(object)?;
            return Ok(ReadOutcome::NotModified(answer));
        }
        ConditionOutcome::Proceed => {}
    }
    if request.query("partNumber").is_some() {
        return Ok(ReadOutcome::Send(part_of_upload(request, object)?));
    }
    match requested_range(&request.headers, &object.etag, object.modified_ms, object.bytes) {
        RequestedRange::Unsatisfiable => Err(ErrorResponse::invalid_range(request.header("range")?, object.bytes)),
        part => Ok(ReadOutcome::Send(part)),
    }
}

/// The range of the part that a read requests; an object that was uploaded in one piece is its own part 1.
fn part_of_upload(request: &S3Request, object: &Object) -> Result<RequestedRange, ErrorResponse> {
    if request.headers.contains_key("range") {
        let message = "Cannot specify both Range header and partNumber query parameter";
        return Err(ErrorCode::InvalidRequest.with(message));
    }
    let number = request.part_number()?;
    let whole = Some(0..object.bytes).filter(|_| object.parts.is_empty() && number == 1);
    let range = object.parts.range(number).or(whole).ok_or(ErrorCode::InvalidPartNumber)?;
    if !range.is_empty() {
        return Ok(RequestedRange::Bytes(range));
    }
    if object.bytes == 0 { Ok(RequestedRange::Whole) } else { Err(ErrorResponse::invalid_range(None, object.bytes)) }
}

/// The checksums of the bytes that are sent, if the client wants them: of the whole object, or of a part of an upload.
/// Other ranges get none, because a client would compare it with the bytes of the range.
async fn checksums(
    front: &Frontend,
    request: &S3Request,
    object: &Object,
    range: &RequestedRange,
) -> Result<Vec<Checksum>, ErrorResponse> {
    if !request.headers.contains_key("x-amz-checksum-mode") {
        return Ok(Vec::new());
    }
    match range {
        RequestedRange::Whole | RequestedRange::Unsatisfiable => Ok(object.checksums.clone()),
        RequestedRange::Bytes(_) if request.query("partNumber").is_none() => Ok(Vec::new()),
        RequestedRange::Bytes(_) if object.parts.is_empty() => Ok(object.checksums.clone()),
        RequestedRange::Bytes(_) => {
            let number = request.part_number()?;
            let found = front.store.parts(object.version, number - 1, 1).await?;
            Ok(found.into_iter().filter(|part| part.number == number).map(|part| part.checksum).collect())
        }
    }
}

/// The bytes as a body. An error while they are sent can only break the connection, so it is logged here.
fn body_of(bytes: ObjectBytes, request: &S3Request) -> Body {
    let path = format!("/{}/{}", request.bucket, request.key);
    let frames = bytes.map(move |piece| {
        piece.map(Frame::data).map_err(|error| {
            let message = error.to_string();
            ErrorResponse::from(error).log("GetObject, underway", &path);
            StdError::from(message)
        })
    });
    Body::http_body_unsync(StreamBody::new(frames))
}

/// The response to a read.
struct ObjectResponse<'a> {
    request: &'a S3Request,
    bucket: &'a Bucket,
    object: &'a Object,
    range: RequestedRange,
    checksums: Vec<Checksum>,
}

impl ObjectResponse<'_> {
    fn with_body(self, body: Body) -> Answer {
        let Self { request, bucket, object, range, checksums } = self;
        let mut answer = S3Response::new(body);
        let headers = &mut answer.headers;
        *headers = validators(object)?;
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(NO_TYPE));
        for (name, value) in &object.headers {
            set(headers, name, value)?;
        }
        for (name, value) in &object.metadata {
            set(headers, &format!("x-amz-meta-{name}"), value)?;
        }
        if request.owns(bucket) && !object.tags.is_empty() {
            headers.insert("x-amz-tagging-count", HeaderValue::from(object.tags.len()));
        }
        replace_headers(request, headers)?;
        match range {
            RequestedRange::Bytes(range) => {
                assert!(!range.is_empty(), "a part that is sent has a byte");
                answer.status = Some(StatusCode::PARTIAL_CONTENT);
                let value = format!("bytes {}-{}/{}", range.start, range.end - 1, object.bytes);
                set(headers, "content-range", &value)?;
                headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
            }
            RequestedRange::Whole | RequestedRange::Unsatisfiable => {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(object.bytes));
            }
        }
        add_checksums(headers, &checksums)?;
        if !checksums.is_empty() {
            // A part's checksum is of the part's bytes; the type states how the object's own checksum is made.
            headers.insert("x-amz-checksum-type", HeaderValue::from_static(type_of(&object.checksums)));
        }
        if request.query("partNumber").is_some() && !object.parts.is_empty() {
            headers.insert("x-amz-mp-parts-count", HeaderValue::from(object.parts.count()));
        }
        Ok(answer)
    }
}

fn replace_headers(request: &S3Request, headers: &mut HeaderMap) -> Result<(), ErrorResponse> {
    for (parameter, name) in REPLACEABLE {
        let Some(value) = request.query(parameter) else { continue };
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| ErrorCode::InvalidArgument.with(format!("{parameter} cannot be a header.")))?;
        headers.insert(name, value);
    }
    Ok(())
}
