//! Admission of requests, before and after the protocol library: request ids, permits, complete error responses, and
//! the rest of refused bodies.
//!
//! A request takes its permit once its signature is verified ([`PendingRequest`]) and keeps it until its response was
//! sent. A request that waits for a cold object has no permit meanwhile ([`PendingRequest::bytes`]). A refused request
//! releases its permit before the rest of its body is read. Of that rest only as much is read as a client needs to
//! reach the response, and for few clients at once.
//!
//! Two things are done here because the protocol library offers no hook for them. It reads forms, and bodies signed for
//! another service, before it verifies their signature, so those requests are refused unread. It gives no access to the
//! connection, on which the rest of a refused body must be drained.

use crate::error::{ErrorCode, ErrorResponse, completed, refusal_of};
use crate::framing::ChunkedBody;
use crate::places::Requester;
use crate::refused::Refused;
use crate::store::{ObjectBytes, ReadBytes};
use crate::traffic::{BusyConnection, ConnectionPermit, RequestPermit, Traffic};
use crate::validation;
use bytes::Bytes;
use disk::clock;
use http::header::{AUTHORIZATION, CONNECTION, DATE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::{Mutex, MutexGuard};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::service::S3Service;
use s3s::{Body, HttpError, StdError};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of a refused request's body that are still read, so that its client reads the response rather than a reset:
/// from a user, and from an unknown sender.
const DRAIN_BYTES: u64 = 8 << 20;
const DRAIN_BYTES_UNKNOWN: u64 = 1 << 20;
/// Time limits for draining a body: in all, and for one piece.
const DRAIN_TIME: Duration = Duration::from_secs(5);
const DRAIN_STALL: Duration = Duration::from_millis(500);
/// Retry-After for a request above a limit, in seconds.
const RETRY_AFTER_S: u32 = 1;
/// Retry-After for a request that would wait for a cold object, in seconds: about the time that a group of drives takes
/// to wake.
const WAITING_RETRY_AFTER_S: u32 = 15;

/// Admits the requests of a listener.
pub(crate) struct Admission {
    service: S3Service,
    traffic: Arc<Traffic>,
    refused: Refused,
    started_s: u64,
    count: AtomicU64,
}

impl Admission {
    /// Admits requests to `service` within the limits of `traffic`.
    pub fn new(service: S3Service, traffic: Arc<Traffic>) -> Self {
        let since = clock::since_epoch();
        let refused = Refused::default();
        Self { service, traffic, refused, started_s: since.as_secs(), count: AtomicU64::new(0) }
    }

    /// Connections and requests under way.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Counts of refused requests.
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Serves a request that came on `connection`.
    ///
    /// Only failures for which the protocol library has no response; the connection is then closed.
    pub async fn serve(
        &self,
        request: Request<Incoming>,
        connection: &Arc<ConnectionPermit>,
    ) -> Result<Response<GuardedBody>, HttpError> {
        let (busy, began) = (connection.busy(), clock::monotonic());
        let (mut parts, body) = request.into_parts();
        let pending = Arc::new(PendingRequest::new(connection.peer(), self.next_id(), parts.uri.path()));
        let waits_for_continue = parts.headers.contains_key("expect");
        let is_empty = body.is_end_stream();
        let body = SharedBody(Arc::new(Mutex::new(body)));
        let refused = refusal(&parts.method, &parts.headers).map_or_else(|| prepare(&mut parts), Err);
        let response = if let Err(error) = refused {
            error.into_http(pending.resource(), pending.id())
        } else {
            parts.extensions.insert(Arc::clone(&pending));
            let chunked = Body::http_body(ChunkedBody::of(&parts.headers, body.clone()));
            let response = self.service.call(Request::from_parts(parts, chunked)).await?;
            completed(response, pending.resource(), pending.id())
        };
        if let Some(code) = refusal_of(&response) {
            self.refused.count(code, connection.peer());
        }
        let failed = response.status().is_client_error() || response.status().is_server_error();
        // A refused request needs no permit: its response is short, and its client may read it slowly.
        let permit = pending.permit.lock().take().filter(|_| !failed);
        let is_cut_off = failed && !waits_for_continue && !self.drain(&pending, body).await;
        // No `100 Continue` may have been sent before this response (an empty body gets none, though some clients ask
        // for it). botocore then misreads the next response on the same connection and waits for its end forever.
        let closes = is_cut_off || waits_for_continue && (is_empty || failed);
        let timed = (!failed).then(|| Timed::first_byte(&self.traffic, began));
        let mut response = response.map(|body| GuardedBody { body, _permit: permit, _busy: busy, _timed: timed });
        add_headers(response.headers_mut(), pending.id(), closes);
        Ok(response)
    }

    fn next_id(&self) -> String {
        format!("{:08X}{:08X}", self.started_s, self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// Reads the rest of a refused body, within limits. True if the body was read to its end.
    async fn drain(&self, pending: &PendingRequest, body: SharedBody) -> bool {
        if body.is_end_stream() {
            return true;
        }
        let most_bytes = if pending.is_known() { DRAIN_BYTES } else { DRAIN_BYTES_UNKNOWN };
        match self.traffic.drain() {
            Some(_permit) => body.drain(most_bytes).await,
            None => false,
        }
    }
}

fn add_headers(headers: &mut HeaderMap, id: &str, closes: bool) {
    if let Ok(value) = HeaderValue::try_from(id) {
        headers.insert("x-amz-request-id", value);
    }
    headers.insert("server", HeaderValue::from_static("Larder"));
    if closes {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// A request on its way to its operation.
pub(crate) struct PendingRequest {
    peer: IpAddr,
    id: String,
    resource: String,
    /// True once its signature proved to be a user's.
    is_known: AtomicBool,
    permit: Mutex<Option<RequestPermit>>,
}

impl PendingRequest {
    fn new(peer: IpAddr, id: String, path: &str) -> Self {
        let resource = percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
        Self { peer, id, resource, is_known: AtomicBool::new(false), permit: Mutex::default() }
    }

    /// The request id, which the response and errors name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The path of the request, decoded.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Takes a permit for the request, as one of `user`, or of its address without a user.
    ///
    /// # Errors
    /// `SlowDown` if a limit is reached.
    pub fn admit(&self, traffic: &Arc<Traffic>, user: Option<&str>) -> Result<(), ErrorResponse> {
        self.is_known.store(user.is_some(), Ordering::Relaxed);
        let requester = user.map_or(Requester::Peer(self.peer), |user| Requester::User(user.to_owned()));
        let permit = traffic.admit(requester).map_err(|reason| ErrorResponse::slow_down(RETRY_AFTER_S, reason))?;
        let before = self.permit.lock().replace(permit);
        assert!(before.is_none(), "a request is admitted once");
        Ok(())
    }

    /// The bytes of `read`. While they are awaited, the request counts as waiting and not as served. Then it gets the
    /// next free permit within its shares, before any new request.
    ///
    /// # Errors
    /// `SlowDown` if too many wait, and errors of the read.
    pub async fn bytes(&self, traffic: &Arc<Traffic>, read: ReadBytes) -> Result<ObjectBytes, ErrorResponse> {
        let awaited = match read {
            ReadBytes::Here(bytes) => return Ok(bytes),
            ReadBytes::Awaited(awaited) => awaited,
        };
        let permit = self.permit.lock().take().expect("an admitted request has its permit");
        let too_many = |reason| ErrorResponse::slow_down(WAITING_RETRY_AFTER_S, reason);
        let waiting = traffic.wait(permit, self.peer).map_err(too_many)?;
        let ready = awaited.await?;
        // Only now does the request have bytes in memory.
        *self.permit.lock() = Some(waiting.resume().await);
        Ok(ready.await?)
    }

    fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }
}

/// The reason to refuse a request unread: a form, which the protocol library would hold in memory before it verifies
/// the signature; an authorization that the library would treat as missing; or a signature for another service.
fn refusal(method: &Method, headers: &HeaderMap) -> Option<ErrorResponse> {
    let kind = headers.get("content-type").map(HeaderValue::as_bytes).unwrap_or_default();
    let form = kind.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/"));
    if method == Method::POST && form {
        return Some(ErrorResponse::not_implemented("POST of a form"));
    }
    let mut authorizations = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    let known = |value: &[u8]| value.starts_with(b"AWS4-HMAC-SHA256") || value.starts_with(b"AWS ");
    let unsupported = authorizations.next().is_some_and(|value| !known(value)) || authorizations.next().is_some();
    if unsupported {
        return Some(ErrorCode::InvalidArgument.with("Unsupported Authorization Type"));
    }
    // The library would read the body of a request to STS before it verifies the signature.
    let scope = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_for_sts = scope.windows(5).any(|part| part == b"/sts/");
    is_for_sts.then(|| ErrorCode::AccessDenied.with("The request is signed for another service."))
}

/// Rewrites what AWS accepts as what the protocol library accepts: headers of S3 that are in the URL, the date of a
/// request that has it in `Date` alone, and a body that announces a trailer and names none.
fn prepare(parts: &mut Parts) -> Result<(), ErrorResponse> {
    validation::lift(&parts.uri, &mut parts.headers)?;
    let headers = &mut parts.headers;
    let signs = headers.get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS4-"));
    if signs && !headers.contains_key("x-amz-date") {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok()).and_then(amz_date);
        headers.extend(date.map(|date| (HeaderName::from_static("x-amz-date"), date)));
    }
    let kind = headers.get("x-amz-content-sha256").map(HeaderValue::as_bytes);
    if kind == Some(b"STREAMING-UNSIGNED-PAYLOAD-TRAILER") {
        headers.entry("x-amz-trailer").or_insert(HeaderValue::from_static(""));
    }
    Ok(())
}

/// The moment of a `Date` header, which may have the format of HTTP or of `x-amz-date`, in the format of `x-amz-date`.
fn amz_date(date: &str) -> Option<HeaderValue> {
    let digits = date.bytes().filter(u8::is_ascii_digit).count();
    if digits == 14 && date.len() == 16 {
        return HeaderValue::from_str(date).ok();
    }
    let mut iso = Vec::new();
    let moment = Timestamp::from(httpdate::parse_http_date(date).ok()?);
    moment.format(TimestampFormat::DateTime, &mut iso).ok()?;
    // The input is like 2026-11-28T10:00:00.000Z; the output has neither separators nor a fraction.
    let second = iso.split(|byte| *byte == b'.' || *byte == b'Z').next().unwrap_or_default();
    let basic = second.iter().copied().filter(|byte| !matches!(byte, b'-' | b':')).chain([b'Z']);
    HeaderValue::from_bytes(&basic.collect::<Vec<u8>>()).ok()
}

/// A request's body that can still be read after the protocol library has dropped it.
#[derive(Clone)]
pub(crate) struct SharedBody(Arc<Mutex<Incoming>>);

impl SharedBody {
    fn lock(&self) -> MutexGuard<'_, Incoming> {
        self.0.lock()
    }

    /// Reads the rest of it, up to `left` bytes. True if the body was read to its end.
    async fn drain(mut self, mut left: u64) -> bool {
        let read = async {
            while let Ok(Some(Ok(frame))) = tokio::time::timeout(DRAIN_STALL, self.frame()).await {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(rest) = left.checked_sub(bytes) else { break };
                left = rest;
            }
            self.is_end_stream()
        };
        // A slower client gets a reset.
        tokio::time::timeout(DRAIN_TIME, read).await.unwrap_or(false)
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        Pin::new(&mut *self.lock()).poll_frame(cx).map_err(StdError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}

/// A response's body that keeps the permit of its request, and its connection busy, until it was sent or dropped.
pub(crate) struct GuardedBody {
    body: Body,
    _permit: Option<RequestPermit>,
    _busy: BusyConnection,
    _timed: Option<Timed>,
}

/// Records the duration of a request when it is dropped.
struct Timed {
    traffic: Arc<Traffic>,
    began: Instant,
}

impl Timed {
    /// Records the time to the first byte of a request that began at `began`; its response head is ready.
    fn first_byte(traffic: &Arc<Traffic>, began: Instant) -> Self {
        traffic.latencies().first_byte.record(began.elapsed());
        Self { traffic: Arc::clone(traffic), began }
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.traffic.latencies().request.record(self.began.elapsed());
    }
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn prepared(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::get("/b/k?x-amz-meta-a=1&foo=2");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        prepare(&mut parts).unwrap();
        parts
    }

    #[test]
    fn a_signed_request_may_have_its_date_in_date_alone() {
        let signed = (AUTHORIZATION.as_str(), "AWS4-HMAC-SHA256 Credential=a");
        for date in ["Sat, 28 Nov 2026 09:05:07 GMT", "20261128T090507Z"] {
            assert_eq!(prepared(&[signed, ("date", date)]).headers["x-amz-date"], "20261128T090507Z");
        }
        assert!(!prepared(&[signed, ("date", "yesterday")]).headers.contains_key("x-amz-date"));
        assert!(!prepared(&[("date", "20261128T090507Z")]).headers.contains_key("x-amz-date"));
    }

    #[test]
    fn headers_of_s3_in_the_url_count_unless_they_are_there_as_well() {
        let parts = prepared(&[]);
        assert_eq!(parts.headers["x-amz-meta-a"], "1");
        assert_eq!(parts.headers.len(), 1);
        assert_eq!(prepared(&[("x-amz-meta-a", "2")]).headers["x-amz-meta-a"], "2");
    }
}
