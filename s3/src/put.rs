//! PutObject: bytes into a sink, digested on the way, and a commit only if everything that the client claimed holds.

use crate::digest::{DigestClaims, Digests, StreamHasher};
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::request::{S3Request, text};
use crate::response::{Answer, add_checksums, empty, etag_value};
use crate::stall::MinimumPace;
use crate::store::{PutSink, ServiceError};
use crate::{access, tagging};
use catalog::{Checksum, Object, PutCondition};
use disk::clock;
use futures::StreamExt;
use http::{HeaderMap, StatusCode};
use s3s::TrailingHeaders;

/// The most user metadata of an object, in bytes of names and values.
const METADATA_BYTES: usize = 2048;
/// The most system headers of an object, in bytes of names and values. Together with the metadata this is AWS's limit
/// for the headers of a whole PUT, and bounds the size of a listing's entry.
const HEADERS_BYTES: usize = 8192 - METADATA_BYTES;
/// System headers that are stored and returned.
const STORED_HEADERS: [&str; 6] =
    ["cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires"];

/// Stores an object.
pub(crate) async fn object(front: &Frontend, mut request: S3Request) -> Answer {
    let claims = DigestClaims::of(&request.headers)?;
    let (headers, metadata) = (stored_headers(&request)?, metadata(&request.headers)?);
    let condition = condition(&request)?;
    let tags = tagging::of_header(&request)?;
    let bytes = length(&request.headers)?;
    check_length(front, bytes)?;
    let bucket = front.owned_bucket(&request).await?;
    let acl = access::canned(&request, bucket.ownership)?.unwrap_or_default();
    check_early(front, &request, &condition).await?;

    let object = Object { bytes, headers, metadata, acl, tags, ..Object::default() };
    let sink = bucket.store.begin_put(&bucket, &request.key, object, condition).await?;
    let hasher = claims.hasher(&front.md5);
    let reception = Reception { front, request: &mut request, claims: &claims, bytes };
    let (sink, digests) = reception.into_sink(sink, hasher).await?;
    let (etag, checksums) = (digests.etag(), vec![digests.checksum]);
    commit(sink, etag.clone(), checksums.clone()).await?;

    let mut answer = empty(StatusCode::OK);
    answer.headers.insert(http::header::ETAG, etag_value(&etag)?);
    add_checksums(&mut answer.headers, &checksums)?;
    Ok(answer)
}

/// Refuses more bytes than one PUT may have.
pub(crate) fn check_length(front: &Frontend, length: u64) -> Result<(), ErrorResponse> {
    let limit_bytes = front.traffic.limits().put_bytes;
    if length <= limit_bytes {
        return Ok(());
    }
    let message = format!("Your proposed upload exceeds the maximum allowed size of {limit_bytes} bytes (put_limit).");
    Err(ErrorCode::EntityTooLarge.with(message))
}

/// Returns a sink that received everything, and aborts it otherwise.
pub(crate) async fn or_abort<T>(
    sink: Box<dyn PutSink>,
    received: Result<T, ErrorResponse>,
) -> Result<(Box<dyn PutSink>, T), ErrorResponse> {
    match received {
        Ok(received) => Ok((sink, received)),
        Err(error) => {
            sink.abort().await;
            Err(error)
        }
    }
}

/// The body of a request on its way into a sink.
pub(crate) struct Reception<'a> {
    pub front: &'a Frontend,
    pub request: &'a mut S3Request,
    pub claims: &'a DigestClaims,
    /// The length of the body, as the client claims it.
    pub bytes: u64,
}

impl Reception<'_> {
    /// Moves the body into `sink` and verifies it.
    ///
    /// # Errors
    /// Errors of the body, and claims that do not hold; the sink is then aborted.
    pub async fn into_sink(
        mut self,
        mut sink: Box<dyn PutSink>,
        hasher: StreamHasher,
    ) -> Result<(Box<dyn PutSink>, Digests), ErrorResponse> {
        let received = self.receive(sink.as_mut(), hasher).await;
        or_abort(sink, received).await
    }

    async fn receive(&mut self, sink: &mut dyn PutSink, mut hasher: StreamHasher) -> Result<Digests, ErrorResponse> {
        let limits = self.front.traffic.limits();
        let mut pace = MinimumPace::new(limits.stall, limits.min_bytes_per_s);
        let mut received = 0_u64;
        loop {
            let waiting_since = clock::monotonic();
            let next = tokio::time::timeout(limits.stall, self.request.body.next()).await;
            let Some(piece) = next.map_err(|_| self.too_slow())? else { break };
            let piece = piece.map_err(|error| ErrorResponse::of_body(&error))?;
            received += piece.len() as u64;
            if !pace.passed(piece.len() as u64, waiting_since.elapsed()) {
                return Err(self.too_slow());
            }
            if received > self.bytes {
                return Err(ErrorCode::IncompleteBody.into());
            }
            assert!(received <= self.bytes, "no more is staged than room was reserved for");
            hasher.feed(piece.clone()).await?;
            sink.write(piece).await?;
        }
        if received != self.bytes {
            return Err(ErrorCode::IncompleteBody.into());
        }
        let digests = hasher.finish().await?;
        let trailers = self.request.trailers.as_ref().and_then(TrailingHeaders::take);
        self.claims.verify(trailers.as_ref(), &digests)?;
        Ok(digests)
    }

    fn too_slow(&self) -> ErrorResponse {
        self.front.traffic.too_slow();
        ErrorCode::RequestTimeout.into()
    }
}

/// Commits in a separate task, so a client that disconnects now cannot cut the commit in half. Returns the time of
/// change.
pub(crate) async fn commit(
    sink: Box<dyn PutSink>,
    etag: String,
    checksums: Vec<Checksum>,
) -> Result<u64, ErrorResponse> {
    assert!(!etag.is_empty() && !checksums.is_empty(), "an object is committed with its ETag and a checksum");
    match tokio::spawn(sink.commit(etag, checksums)).await {
        Ok(committed) => committed.map_err(ErrorResponse::from),
        Err(error) => Err(ErrorCode::InternalError.with(format!("the commit ended: {error}"))),
    }
}

/// Refuses early an upload that would be refused at its end. The commit decides.
pub(crate) async fn check_early(
    front: &Frontend,
    request: &S3Request,
    condition: &PutCondition,
) -> Result<(), ErrorResponse> {
    if *condition == PutCondition::None {
        return Ok(());
    }
    match (front.store.head(&request.bucket, &request.key).await, condition) {
        (Ok(_), PutCondition::IfNoneMatchAny) => Err(ErrorCode::PreconditionFailed.into()),
        (Ok(object), PutCondition::IfMatch(etag)) if object.etag != *etag => Err(ErrorCode::PreconditionFailed.into()),
        (Ok(_), _) | (Err(ServiceError::NoSuchKey), PutCondition::IfNoneMatchAny) => Ok(()),
        (Err(error), _) => Err(error.into()),
    }
}

/// The condition of a request that creates an object.
pub(crate) fn condition(request: &S3Request) -> Result<PutCondition, ErrorResponse> {
    match (request.header("if-match")?, request.header("if-none-match")?) {
        (None, None) => Ok(PutCondition::None),
        (None, Some(_)) => Ok(PutCondition::IfNoneMatchAny),
        (Some(etag), None) => Ok(PutCondition::IfMatch(etag.trim_matches('"').to_owned())),
        (Some(_), Some(_)) => Err(ErrorResponse::not_implemented("If-Match together with If-None-Match")),
    }
}

/// The length of the object, in bytes, as the client claims it.
pub(crate) fn length(headers: &HeaderMap) -> Result<u64, ErrorResponse> {
    // A chunked body has its own length; that of the request counts the framing as well.
    let streams = headers.get("x-amz-content-sha256").is_some_and(|value| value.as_bytes().starts_with(b"STREAMING-"));
    let name = if streams { "x-amz-decoded-content-length" } else { "content-length" };
    let value = headers.get(name).and_then(|value| value.to_str().ok()).ok_or(ErrorCode::MissingContentLength)?;
    value.parse().map_err(|_| ErrorCode::InvalidArgument.with(format!("{name} is not a length.")))
}

pub(crate) fn stored_headers(request: &S3Request) -> Result<Vec<(String, String)>, ErrorResponse> {
    let mut stored = Vec::new();
    for name in STORED_HEADERS {
        let Some(value) = request.header(name)? else { continue };
        let value = if name == "content-encoding" { without_aws_chunked(value) } else { value.to_owned() };
        if !value.is_empty() {
            stored.push((name.to_owned(), value));
        }
    }
    if stored.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > HEADERS_BYTES {
        let message = format!("What is kept of the headers is more than {HEADERS_BYTES} bytes.");
        return Err(ErrorCode::MetadataTooLarge.with(message));
    }
    Ok(stored)
}

/// Removes `aws-chunked`, which describes the transfer and not the object. All else is unchanged.
fn without_aws_chunked(value: &str) -> String {
    let codings = value.split(',').filter(|coding| !coding.trim().eq_ignore_ascii_case("aws-chunked"));
    codings.collect::<Vec<_>>().join(",").trim().to_owned()
}

pub(crate) fn metadata(headers: &HeaderMap) -> Result<Vec<(String, String)>, ErrorResponse> {
    let mut metadata = Vec::new();
    for name in headers.keys() {
        let Some(end) = name.as_str().strip_prefix("x-amz-meta-") else { continue };
        let values = headers.get_all(name).iter().map(|value| text(name.as_str(), value.as_bytes()));
        metadata.push((end.to_owned(), values.collect::<Result<Vec<_>, _>>()?.join(",")));
    }
    metadata.sort();
    if metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > METADATA_BYTES {
        return Err(ErrorCode::MetadataTooLarge.into());
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
        assert_eq!(without_aws_chunked("deflate, gzip"), "deflate, gzip");
        assert_eq!(without_aws_chunked("aws-chunked, deflate, gzip"), "deflate, gzip");
    }
}
