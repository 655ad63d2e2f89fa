//! Answers of the admin API, and the errors in them.

use crate::repartition::JobError;
use crate::set_recall::SetError;
use crate::users::UserError;
use bytes::Bytes;
use catalog::CatalogError;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use serde::{Deserialize, Serialize};

/// The message of a server that is about to end and can no longer answer.
pub(super) const STOPPING: &str = "the server is stopping";

/// The reason that the server cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The server's world has ended, and the server is about to end.
    #[error("{STOPPING}")]
    Stopping,
    /// Anything else, as a message for people.
    #[error("{0}")]
    Because(String),
}

impl From<CatalogError> for AdminError {
    fn from(error: CatalogError) -> Self {
        Self::Because(error.to_string())
    }
}

/// The body of every error.
#[derive(Serialize, Deserialize)]
pub(super) struct ErrorBody {
    pub(super) error: String,
}

/// JSON, or the refusal.
pub(super) type Body = Result<Vec<u8>, Refusal>;

/// A request that is refused: the status, and the reason.
pub(super) struct Refusal(StatusCode, String);

impl From<AdminError> for Refusal {
    fn from(error: AdminError) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<UserError> for Refusal {
    fn from(error: UserError) -> Self {
        let status = match &error {
            UserError::BadName(_) => StatusCode::BAD_REQUEST,
            UserError::Exists(_) | UserError::Root | UserError::OwnsBuckets { .. } | UserError::TooMany => {
                StatusCode::CONFLICT
            }
            UserError::Unknown(_) => StatusCode::UNPROCESSABLE_ENTITY,
            UserError::Catalog(_) | UserError::Credentials(_) => {
                tracing::error!(%error, "the users could not be changed");
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self(status, error.to_string())
    }
}

impl From<JobError> for Refusal {
    fn from(error: JobError) -> Self {
        let status = match &error {
            JobError::Unknown(_) => StatusCode::NOT_FOUND,
            JobError::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            JobError::Catalog(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

impl From<SetError> for Refusal {
    fn from(error: SetError) -> Self {
        let status = match &error {
            SetError::Refused(_) | SetError::Catalog(CatalogError::NoSuchBucket) => StatusCode::UNPROCESSABLE_ENTITY,
            SetError::Catalog(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

pub(super) fn refuse(status: StatusCode, message: impl Into<String>) -> Body {
    Err(Refusal(status, message.into()))
}

pub(super) fn json(value: &impl Serialize) -> Body {
    serde_json::to_vec(value).or_else(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

pub(super) fn response(body: Body) -> Response<Full<Bytes>> {
    let (status, body) = match body {
        Ok(body) => (StatusCode::OK, body),
        // A message is a string, which JSON always has.
        Err(Refusal(status, error)) => (status, serde_json::to_vec(&ErrorBody { error }).unwrap_or_default()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The value of a parameter in the query; `None` without it.
pub(super) fn parameter<B>(request: &Request<B>, name: &str) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The answer of a change that runs in a separate task: once started it finishes, even if the client has disconnected.
pub(super) async fn uninterrupted(change: impl Future<Output = Body> + Send + 'static) -> Body {
    let done = tokio::spawn(change).await;
    done.unwrap_or_else(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}
