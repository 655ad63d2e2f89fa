//! PutObject: bytes into a sink, digests beside them, and a commit only when everything the client claimed holds.

use super::ask::{Ask, text};
use super::digest::{Claims, Digests, Hasher};
use super::error::{Code, Fault};
use super::get::{add_checksums, etag_value};
use super::route::{Answer, Route, empty};
use super::stall::Pace;
use super::store::{Committed, Condition, PutMeta, PutSink, StoreError};
use super::{access, tagging};
use futures::StreamExt;
use http::{HeaderMap, StatusCode};
use s3s::TrailingHeaders;
use tokio::time::Instant;

/// How much user metadata an object may have, in bytes of names and values.
const METADATA_BYTES: usize = 2048;
/// How much system headers an object may have, in bytes of names and values. With the metadata it is what AWS takes as
/// the headers of a whole PUT, and bounds what an entry of a listing takes.
const HEADERS_BYTES: usize = 8192 - METADATA_BYTES;
/// System headers that are kept and given back.
const KEPT: [&str; 6] =
    ["cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires"];

/// Stores an object.
pub(super) async fn object(route: &Route, mut ask: Ask) -> Answer {
    let claims = Claims::of(&ask.headers)?;
    let headers = kept_headers(&ask)?;
    let metadata = metadata(&ask.headers)?;
    let condition = condition(&ask)?;
    let tags = tagging::of_header(&ask)?;
    let length = length(&ask.headers)?;
    check_length(route, length)?;
    let bucket = route.owned_bucket(&ask).await?;
    let acl = access::canned(&ask, bucket.ownership)?.unwrap_or_default();
    check_early(route, &ask, &condition).await?;

    let mut sink = bucket.store.begin_put(&bucket, &ask.key, Some(length)).await?;
    let received = receive(&mut ask, &claims, claims.hasher(&route.md5), route, sink.as_mut(), length).await;
    let (sink, digests) = or_abort(sink, received).await?;
    let checksum = digests.checksum.clone();
    let meta = PutMeta {
        etag: digests.etag(),
        headers,
        metadata,
        checksums: vec![checksum.clone()],
        acl,
        tags,
        created_ms: None,
        condition,
    };
    let committed = commit(sink, meta).await?;

    let mut answer = empty(StatusCode::OK);
    answer.headers.insert(http::header::ETAG, etag_value(&committed.etag)?);
    add_checksums(&mut answer.headers, &[checksum])?;
    Ok(answer)
}

/// Refuses what one PUT may not bring.
pub(super) fn check_length(route: &Route, length: u64) -> Result<(), Fault> {
    let limit_bytes = route.limits.put_bytes;
    if length <= limit_bytes {
        return Ok(());
    }
    let message = format!("Your proposed upload exceeds the maximum allowed size of {limit_bytes} bytes (put_limit).");
    Err(Fault::new(Code::EntityTooLarge, message))
}

/// Goes on with a sink that has received what it should, and gives up any other.
pub(super) async fn or_abort<T>(
    sink: Box<dyn PutSink>,
    received: Result<T, Fault>,
) -> Result<(Box<dyn PutSink>, T), Fault> {
    match received {
        Ok(received) => Ok((sink, received)),
        Err(fault) => {
            sink.abort().await;
            Err(fault)
        }
    }
}

/// Moves the body into the sink and verifies it.
pub(super) async fn receive(
    ask: &mut Ask,
    claims: &Claims,
    mut hasher: Hasher,
    route: &Route,
    sink: &mut dyn PutSink,
    length: u64,
) -> Result<Digests, Fault> {
    let stall = route.limits.stall;
    let mut pace = Pace::new(stall, route.limits.min_bytes_per_s);
    let mut received = 0_u64;
    loop {
        let asked = Instant::now();
        let too_slow = || {
            route.traffic.too_slow();
            Fault::from(Code::RequestTimeout)
        };
        let next = tokio::time::timeout(stall, ask.body.next()).await.map_err(|_| too_slow())?;
        let Some(piece) = next else { break };
        let piece = piece.map_err(|error| Fault::of_body(&error))?;
        received += piece.len() as u64;
        if !pace.passed(piece.len() as u64, asked.elapsed()) {
            return Err(too_slow());
        }
        if received > length {
            return Err(Code::IncompleteBody.into());
        }
        hasher.feed(piece.clone()).await?;
        sink.write(piece).await?;
    }
    if received != length {
        return Err(Code::IncompleteBody.into());
    }
    let digests = hasher.finish().await?;
    let trailers = ask.trailers.as_ref().and_then(TrailingHeaders::take);
    claims.verify(trailers.as_ref(), &digests)?;
    Ok(digests)
}

/// Commits in a task of its own, so that a client that leaves now cannot cut the commit in half.
pub(super) async fn commit(sink: Box<dyn PutSink>, meta: PutMeta) -> Result<Committed, Fault> {
    match tokio::spawn(sink.commit(meta)).await {
        Ok(committed) => committed.map_err(Fault::from),
        Err(error) => Err(Fault::new(Code::InternalError, format!("the commit ended: {error}"))),
    }
}

/// Spares the client an upload that would be refused at its end. The commit decides.
pub(super) async fn check_early(route: &Route, ask: &Ask, condition: &Condition) -> Result<(), Fault> {
    if *condition == Condition::Always {
        return Ok(());
    }
    match (route.store.head(&ask.bucket, &ask.key).await, condition) {
        (Ok(_), Condition::IfAbsent) => Err(Code::PreconditionFailed.into()),
        (Ok(object), Condition::IfMatch(etag)) if object.etag != *etag => Err(Code::PreconditionFailed.into()),
        (Ok(_), _) | (Err(StoreError::NoSuchKey), Condition::IfAbsent) => Ok(()),
        (Err(error), _) => Err(error.into()),
    }
}

pub(super) fn condition(ask: &Ask) -> Result<Condition, Fault> {
    match (ask.header("if-match")?, ask.header("if-none-match")?) {
        (None, None) => Ok(Condition::Always),
        (None, Some(_)) => Ok(Condition::IfAbsent),
        (Some(etag), None) => Ok(Condition::IfMatch(etag.trim_matches('"').to_owned())),
        (Some(_), Some(_)) => Err(Fault::not_implemented("If-Match together with If-None-Match")),
    }
}

/// How many bytes the object will have.
pub(super) fn length(headers: &HeaderMap) -> Result<u64, Fault> {
    // A body in chunks says its own length; that of the request counts the framing as well.
    let streams = headers.get("x-amz-content-sha256").is_some_and(|value| value.as_bytes().starts_with(b"STREAMING-"));
    let name = if streams { "x-amz-decoded-content-length" } else { "content-length" };
    let value = headers.get(name).and_then(|value| value.to_str().ok()).ok_or(Code::MissingContentLength)?;
    value.parse().map_err(|_| Fault::new(Code::InvalidArgument, format!("{name} is not a length.")))
}

pub(super) fn kept_headers(ask: &Ask) -> Result<Vec<(String, String)>, Fault> {
    let mut kept = Vec::new();
    for name in KEPT {
        let Some(value) = ask.header(name)? else { continue };
        let value = if name == "content-encoding" { without_aws_chunked(value) } else { value.to_owned() };
        if !value.is_empty() {
            kept.push((name.to_owned(), value));
        }
    }
    if kept.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > HEADERS_BYTES {
        let message = format!("What is kept of the headers is more than {HEADERS_BYTES} bytes.");
        return Err(Fault::new(Code::MetadataTooLarge, message));
    }
    Ok(kept)
}

/// `aws-chunked` is how the request was sent, not what the object is.
fn without_aws_chunked(value: &str) -> String {
    let codings = value.split(',').map(str::trim).filter(|coding| !coding.eq_ignore_ascii_case("aws-chunked"));
    codings.filter(|coding| !coding.is_empty()).collect::<Vec<_>>().join(",")
}

pub(super) fn metadata(headers: &HeaderMap) -> Result<Vec<(String, String)>, Fault> {
    let mut metadata = Vec::new();
    for name in headers.keys() {
        let Some(end) = name.as_str().strip_prefix("x-amz-meta-") else { continue };
        let values = headers.get_all(name).iter().map(|value| text(name.as_str(), value.as_bytes()));
        metadata.push((end.to_owned(), values.collect::<Result<Vec<_>, _>>()?.join(",")));
    }
    metadata.sort();
    if metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > METADATA_BYTES {
        return Err(Code::MetadataTooLarge.into());
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_chunked_is_no_encoding_of_an_object() {
        assert_eq!(without_aws_chunked("aws-chunked"), "");
        assert_eq!(without_aws_chunked("gzip, aws-chunked"), "gzip");
        assert_eq!(without_aws_chunked("aws-chunked,gzip"), "gzip");
        assert_eq!(without_aws_chunked("zstd"), "zstd");
    }
}
