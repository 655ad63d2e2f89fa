//! What every request passes before and after the protocol library: the limit on requests at once, a request id, the
//! rest of a refused body, and error bodies that say what they should.

use super::error::{Code, Fault, renamed, usual_message};
use super::framing::Framing;
use super::xml;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use s3s::service::S3Service;
use s3s::{Body, HttpError, S3Error, StdError};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much of a refused request's body is still read, in bytes, so that its client reads the answer rather than a
/// reset.
const DRAIN_BYTES: u64 = 8 << 20;
/// How long that may take in all, and how long a client may let it wait.
const DRAIN_TIME: Duration = Duration::from_secs(5);
const DRAIN_STALL: Duration = Duration::from_millis(500);
/// After how many seconds a client that was too many may come again.
const RETRY_AFTER_S: u32 = 1;

/// What all requests of a listener share.
pub(super) struct Gate {
    service: S3Service,
    room: Arc<Semaphore>,
    started_s: u64,
    count: AtomicU64,
}

impl Gate {
    /// A gate that lets `requests` requests in at once.
    pub fn new(service: S3Service, requests: usize) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let room = Arc::new(Semaphore::new(requests));
        Self { service, room, started_s: since.as_secs(), count: AtomicU64::new(0) }
    }

    /// Serves a request.
    ///
    /// # Errors
    /// Only what the protocol library cannot turn into an answer; the connection is closed then.
    pub async fn serve(&self, request: Request<Incoming>) -> Result<Response<Guarded>, HttpError> {
        let id = format!("{:08X}{:08X}", self.started_s, self.count.fetch_add(1, Ordering::Relaxed));
        let waits_for_continue = request.headers().contains_key("expect");
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let is_empty = body.is_end_stream();
        let shared = Shared(Arc::new(Mutex::new(body)));
        let refusal = refusal(&parts.method, &parts.headers);
        let room = self.room.clone().try_acquire_owned();
        let (response, permit) = match (refusal, room) {
            (Some(fault), _) => (answer(fault)?, None),
            (None, Err(_)) => (answer(Fault::slow_down(RETRY_AFTER_S, "Too many requests at once."))?, None),
            (None, Ok(permit)) => {
                let body = Body::http_body(Framing::of(&parts.headers, shared.clone()));
                (self.service.call(Request::from_parts(parts, body)).await?, Some(permit))
            }
        };
        let failed = response.status().is_client_error() || response.status().is_server_error();
        let mut response = if failed { mended(response, &path, &id) } else { response };
        if failed && !waits_for_continue {
            shared.drain().await;
        }
        if let Ok(value) = HeaderValue::try_from(id) {
            response.headers_mut().insert("x-amz-request-id", value);
        }
        response.headers_mut().insert("server", HeaderValue::from_static("Larder"));
        if waits_for_continue && (is_empty || failed) {
            // No `100 Continue` may have gone before this answer (there is none for an empty body, though some clients
            // ask for it). botocore then misreads the next answer on the same connection and waits for its end forever.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response.map(|body| Guarded { body, _permit: permit }))
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
    unsupported.then(|| Fault::new(Code::InvalidArgument, "Unsupported Authorization Type"))
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

    /// Reads what is left, up to a limit.
    async fn drain(mut self) {
        let mut left = DRAIN_BYTES;
        let read = async {
            while let Ok(Some(Ok(frame))) = tokio::time::timeout(DRAIN_STALL, self.frame()).await {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(rest) = left.checked_sub(bytes) else { break };
                left = rest;
            }
        };
        // A client that is slower than this is left to its reset.
        let _ = tokio::time::timeout(DRAIN_TIME, read).await;
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

/// An answer's body that keeps its request's place until it was sent or dropped.
pub(super) struct Guarded {
    body: Body,
    _permit: Option<OwnedSemaphorePermit>,
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
