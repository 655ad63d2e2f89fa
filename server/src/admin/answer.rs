//! Answers of the admin API, and the errors in them.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The message of a server that is about to end and cannot answer any more.
pub(super) const STOPPING: &str = "the server is stopping";

/// The body of every error.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ErrorBody {
    pub(super) error: String,
}

pub(super) type Answer = Response<Full<Bytes>>;

pub(super) fn refuse(status: StatusCode, message: &str) -> Answer {
    json(status, &ErrorBody { error: message.to_owned() })
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{{\"error\": \"{error}\"}}").into_bytes()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The value of a parameter in the query, if it is there.
pub(super) fn parameter<'a, B>(request: &'a Request<B>, name: &str) -> Option<Cow<'a, str>> {
    let query = request.uri().query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The answer of a change that runs in a task of its own: once begun it ends, whether or not the client still listens.
pub(super) async fn uninterrupted(change: impl Future<Output = Answer> + Send + 'static) -> Answer {
    let done = tokio::spawn(change).await;
    done.unwrap_or_else(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))
}
