//! GetObject and HeadObject.

use super::ask::Ask;
use super::digest;
use super::error::{Code, Fault};
use super::precondition::{Part, Verdict, judge, part, seconds};
use super::route::{Answer, Route, empty};
use super::store::{LOOKUPS_MAX, ObjectBytes, StoreError};
use super::upload::part_number;
use super::versions;
use catalog::{Bucket, Checksum, Object, PlacedObject};
use futures::StreamExt;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::{Body, S3Response, StdError};

/// What S3 calls bytes of no stated type.
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

/// Answers an object without its bytes.
pub(super) async fn head(route: &Route, ask: &Ask) -> Answer {
    let (bucket, PlacedObject { object, .. }) = route.located(ask).await?;
    versions::check(ask)?;
    match weigh(ask, &object)? {
        Weighed::NotModified(answer) => Ok(answer),
        Weighed::Send(part) => {
            let checksums = checksums(route, ask, &object, &part).await?;
            describe(ask, &bucket, &object, &checksums, &part, Body::empty())
        }
    }
}

/// Answers an object, or a part of it. It is located once, and read if it still is where it was then: two questions to
/// the catalog.
pub(super) async fn object(route: &Route, ask: &Ask) -> Answer {
    for _ in 0..LOOKUPS_MAX {
        let (bucket, located) = route.located(ask).await?;
        let object = &located.object;
        versions::check(ask)?;
        let part = match weigh(ask, object)? {
            Weighed::NotModified(answer) => return Ok(answer),
            Weighed::Send(part) => part,
        };
        let range = if let Part::Bytes(range) = &part { range.clone() } else { 0..object.bytes };
        let checksums = checksums(route, ask, object, &part).await?;
        if let Some(bytes) = route.store.read(&ask.bucket, &ask.key, &located, range).await? {
            return describe(ask, &bucket, object, &checksums, &part, body_of(bytes, ask));
        }
    }
    Err(StoreError::overwritten().into())
}

enum Weighed {
    NotModified(S3Response<Body>),
    Send(Part),
}

fn weigh(ask: &Ask, object: &Object) -> Result<Weighed, Fault> {
    match judge(&ask.headers, &object.etag, object.modified_ms) {
        Verdict::Failed => return Err(Code::PreconditionFailed.into()),
        Verdict::NotModified => {
            let mut answer = empty(StatusCode::NOT_MODIFIED);
            answer.headers = validators(object)?;
            return Ok(Weighed::NotModified(answer));
        }
        Verdict::Proceed => {}
    }
    if ask.query("partNumber").is_some() {
        return Ok(Weighed::Send(part_of_upload(ask, object)?));
    }
    match part(&ask.headers, &object.etag, object.modified_ms, object.bytes) {
        Part::Unsatisfiable => Err(Fault::invalid_range(object.bytes)),
        part => Ok(Weighed::Send(part)),
    }
}

/// The part of an upload that a read is for; all of what came in one piece is its part 1.
fn part_of_upload(ask: &Ask, object: &Object) -> Result<Part, Fault> {
    if ask.headers.contains_key("range") {
        let message = "Cannot specify both Range header and partNumber query parameter";
        return Err(Fault::new(Code::InvalidRequest, message));
    }
    let number = part_number(ask)?;
    let whole = Some(0..object.bytes).filter(|_| object.parts.is_empty() && number == 1);
    let range = object.parts.range(number).or(whole).ok_or(Code::InvalidPartNumber)?;
    if !range.is_empty() {
        return Ok(Part::Bytes(range));
    }
    if object.bytes == 0 { Ok(Part::Whole) } else { Err(Fault::invalid_range(object.bytes)) }
}

/// The checksums of what is answered, if they are asked for: of the whole, or of a part of an upload. Of another part
/// there are none, and a client would hold those of the whole against it.
async fn checksums(route: &Route, ask: &Ask, object: &Object, part: &Part) -> Result<Vec<Checksum>, Fault> {
    if !ask.headers.contains_key("x-amz-checksum-mode") {
        return Ok(Vec::new());
    }
    match part {
        Part::Whole | Part::Unsatisfiable => Ok(object.checksums.clone()),
        Part::Bytes(_) if ask.query("partNumber").is_none() => Ok(Vec::new()),
        Part::Bytes(_) if object.parts.is_empty() => Ok(object.checksums.clone()),
        Part::Bytes(_) => {
            let number = part_number(ask)?;
            let found = route.store.parts(object.version, number - 1, 1).await?;
            Ok(found.into_iter().filter(|part| part.number == number).map(|part| part.checksum).collect())
        }
    }
}

/// The bytes as a body. What goes wrong on the way can only break the connection, so it is logged here.
fn body_of(bytes: ObjectBytes, ask: &Ask) -> Body {
    let path = format!("/{}/{}", ask.bucket, ask.key);
    let frames = bytes.map(move |piece| {
        piece.map(Frame::data).map_err(|error| {
            let message = error.to_string();
            Fault::from(error).log("GetObject, underway", &path);
            StdError::from(message)
        })
    });
    Body::http_body_unsync(StreamBody::new(frames))
}

fn describe(ask: &Ask, bucket: &Bucket, object: &Object, checksums: &[Checksum], part: &Part, body: Body) -> Answer {
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
    if ask.owns(bucket) && !object.tags.is_empty() {
        headers.insert("x-amz-tagging-count", HeaderValue::from(object.tags.len()));
    }
    replace_headers(ask, headers)?;
    match part {
        Part::Bytes(range) => {
            answer.status = Some(StatusCode::PARTIAL_CONTENT);
            let value = format!("bytes {}-{}/{}", range.start, range.end - 1, object.bytes);
            set(headers, "content-range", &value)?;
            headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        }
        Part::Whole | Part::Unsatisfiable => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(object.bytes));
        }
    }
    add_checksums(headers, checksums)?;
    if ask.query("partNumber").is_some() && !object.parts.is_empty() {
        headers.insert("x-amz-mp-parts-count", HeaderValue::from(object.parts.count()));
    }
    Ok(answer)
}

fn replace_headers(ask: &Ask, headers: &mut HeaderMap) -> Result<(), Fault> {
    for (parameter, name) in REPLACEABLE {
        let Some(value) = ask.query(parameter) else { continue };
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| Fault::new(Code::InvalidArgument, format!("{parameter} cannot be a header.")))?;
        headers.insert(name, value);
    }
    Ok(())
}

/// ETag and time of an object.
pub(super) fn validators(object: &Object) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(ETAG, etag_value(&object.etag)?);
    let modified = httpdate::fmt_http_date(seconds(object.modified_ms));
    set(&mut headers, "last-modified", &modified)?;
    Ok(headers)
}

fn set(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Fault> {
    let pair = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value.as_bytes()).ok());
    let (name, value) =
        pair.ok_or_else(|| Fault::new(Code::InternalError, format!("header {name} cannot be given back")))?;
    headers.insert(name, value);
    Ok(())
}

/// An ETag as a header spells it.
pub(super) fn etag_value(etag: &str) -> Result<HeaderValue, Fault> {
    HeaderValue::try_from(format!("\"{etag}\""))
        .map_err(|_| Fault::new(Code::InternalError, "an ETag cannot be given back"))
}

/// Adds checksums of a whole object to an answer.
pub(super) fn add_checksums(headers: &mut HeaderMap, checksums: &[Checksum]) -> Result<(), Fault> {
    for checksum in checksums {
        set(headers, &format!("x-amz-checksum-{}", digest::spelling(checksum.kind)), &checksum.base64)?;
        headers.insert("x-amz-checksum-type", HeaderValue::from_static(digest::type_of(checksums)));
    }
    Ok(())
}
