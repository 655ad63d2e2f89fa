//! What every request passes before and after the protocol library: a request id, its place among those at once, the
//! rest of a refused body, and error bodies that say what they should.
//!
//! A request takes its place once its signature is verified ([`Entry`]) and keeps it until its answer was sent. One
//! that is refused gives it back before the rest of its body is read, of which only so much is as a client needs to
//! read the answer, and of few clients at once.

use super::error::{Code, Fault, renamed, usual_message};
use super::framing::Framing;
use super::traffic::{Busy, Connected, Party, Place, Traffic};
use super::xml;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use s3s::service::S3Service;
use s3s::{Body, HttpError, S3Error, StdError};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

/// How much of a refused request's body is still read, in bytes, so that its client reads the answer rather than a
/// reset: of a user, and of one who is not known.
const DRAIN_BYTES: u64 = 8 << 20;
const DRAIN_BYTES_UNKNOWN: u64 = 1 << 20;
/// How long that may take in all, and how long a client may let it wait.
const DRAIN_TIME: Duration = Duration::from_secs(5);
const DRAIN_STALL: Duration = Duration::from_millis(500);
/// After how many seconds a client that was too many may come again.
const RETRY_AFTER_S: u32 = 1;

/// What all requests of a listener share.
pub(super) struct Gate {
    service: S3Service,
    traffic: Arc<Traffic>,
    started_s: u64,
    count: AtomicU64,
}

impl Gate {
    /// A gate before `service` that lets in what `traffic` has room for.
    pub fn new(service: S3Service, traffic: Arc<Traffic>) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { service, traffic, started_s: since.as_secs(), count: AtomicU64::new(0) }
    }

    /// What the front has under way.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Serves a request that came on the connection `connected`.
    ///
    /// # Errors
    /// Only what the protocol library cannot turn into an answer; the connection is closed then.
    pub async fn serve(
        &self,
        request: Request<Incoming>,
        connected: &Arc<Connected>,
    ) -> Result<Response<Guarded>, HttpError> {
        let busy = connected.busy();
        let entry = Arc::new(Entry { peer: connected.peer(), known: AtomicBool::new(false), place: Mutex::default() });
        let id = format!("{:08X}{:08X}", self.started_s, self.count.fetch_add(1, Ordering::Relaxed));
        let waits_for_continue = request.headers().contains_key("expect");
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let is_empty = body.is_end_stream();
        let shared = Shared(Arc::new(Mutex::new(body)));
        let response = if let Some(fault) = refusal(&parts.method, &parts.headers) {
            answer(fault)?
        } else {
            parts.extensions.insert(Arc::clone(&entry));
            let body = Body::http_body(Framing::of(&parts.headers, shared.clone()));
            self.service.call(Request::from_parts(parts, body)).await?
        };
        let place = entry.take();
        let failed = response.status().is_client_error() || response.status().is_server_error();
        let mut response = if failed { mended(response, &path, &id) } else { response };
        // What was refused needs no place: its answer is short, and its client may take as long as it likes.
        let place = place.filter(|_| !failed);
        let mut cut_off = false;
        if failed && !waits_for_continue && !shared.is_end_stream() {
            let most_bytes = if entry.is_known() { DRAIN_BYTES } else { DRAIN_BYTES_UNKNOWN };
            cut_off = match self.traffic.drain() {
                Some(_draining) => !shared.drain(most_bytes).await,
                None => true,
            };
        }
        if let Ok(value) = HeaderValue::try_from(id) {
            response.headers_mut().insert("x-amz-request-id", value);
        }
        response.headers_mut().insert("server", HeaderValue::from_static("Larder"));
        if cut_off || waits_for_continue && (is_empty || failed) {
            // No `100 Continue` may have gone before this answer (there is none for an empty body, though some clients
            // ask for it). botocore then misreads the next answer on the same connection and waits for its end forever.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response.map(|body| Guarded { body, _place: place, _busy: busy }))
    }
}

/// A request on its way to its place.
pub(super) struct Entry {
    peer: IpAddr,
    /// Whether its signature is a user's.
    known: AtomicBool,
    place: Mutex<Option<Place>>,
}

impl Entry {
    /// Takes a place for a request of `user`, or of nobody who is known.
    ///
    /// # Errors
    /// `SlowDown` if there is none.
    pub fn admit(&self, traffic: &Arc<Traffic>, user: Option<&str>) -> Result<(), Fault> {
        self.known.store(user.is_some(), Ordering::Relaxed);
        let party = user.map_or(Party::Peer(self.peer), |user| Party::User(user.to_owned()));
        let place = traffic.admit(party).map_err(|refusal| Fault::slow_down(RETRY_AFTER_S, refusal))?;
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
        Ok(())
    }

    fn take(&self) -> Option<Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }
}

/// What is refused unread: forms, which would be held in memory before their signature is known, and what the protocol
/// library would take for no signature at all.
fn refusal(method: &Method, headers: &HeaderMap) -> Option<Fault> {
    let kind = headers.get("content-type").map(HeaderValue::as_bytes).unwrap_or_default();
    let form = kind.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/"));
    if method == Method::POST && form {
        return Some(Fault::not_implemented("POST of a form"));
    }
    let mut authorizations = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    let known = |value: &[u8]| value.starts_with(b"AWS4-HMAC-SHA256") || value.starts_with(b"AWS ");
    let unsupported = authorizations.next().is_some_and(|value| !known(value)) || authorizations.next().is_some();
    if unsupported {
        return Some(Fault::new(Code::InvalidArgument, "Unsupported Authorization Type"));
    }
    // The library would read a body for another service's signature before it verifies it.
    let scope = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_for_sts = scope.windows(5).any(|part| part == b"/sts/");
    is_for_sts.then(|| Fault::new(Code::AccessDenied, "The request is signed for another service."))
}

fn answer(fault: Fault) -> Result<Response<Body>, HttpError> {
    S3Error::from(fault).to_http_response().map_err(|error| HttpError::new(Box::new(error)))
}

/// Adds to an error's XML what the protocol library leaves out, and gives what it says of signatures S3's names.
fn mended(response: Response<Body>, path: &str, id: &str) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let Some(bytes) = body.bytes() else { return Response::from_parts(parts, body) };
    let text = String::from_utf8_lossy(&bytes);
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
    };
    let Some(code) = element("Code") else { return Response::from_parts(parts, body) };
    let renamed = element("Message").and_then(renamed);
    let code = renamed.map_or(code, |(code, _)| code.as_str());
    let message = renamed.map(|(_, message)| message).or(element("Message")).unwrap_or_else(|| usual_message(code));
    if let Some((code, _)) = renamed {
        parts.status = code.status();
    }
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let mended = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message>\
         <Resource>{}</Resource><RequestId>{id}</RequestId></Error>",
        xml::escaped(&path)
    );
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(Bytes::from(xml::carried(mended.into_bytes()))))
}

/// A request's body that can still be read when the protocol library has let go of it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Incoming>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is left, up to `left` bytes. Whether that was all.
    async fn drain(mut self, mut left: u64) -> bool {
        let read = async {
            while let Ok(Some(Ok(frame))) = tokio::time::timeout(DRAIN_STALL, self.frame()).await {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(rest) = left.checked_sub(bytes) else { break };
                left = rest;
            }
            self.is_end_stream()
        };
        // A client that is slower than this is left to its reset.
        tokio::time::timeout(DRAIN_TIME, read).await.unwrap_or(false)
    }
}

impl HttpBody for Shared {
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

/// An answer's body that keeps its request's place, and its connection, until it was sent or dropped.
pub(super) struct Guarded {
    body: Body,
    _place: Option<Place>,
    _busy: Busy,
}

impl HttpBody for Guarded {
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
