//! The admin API: what the server tells about itself, and who its users are, as JSON over HTTP on the socket
//! `admin.sock` in the data directory.
//!
//! ```text
//! GET /status                     report::Status
//! GET /explain?bucket=B&key=K     report::Explanation, or 404
//! GET /drives                     [report::DriveReport]
//! POST /drives/fail?drive=N       report::DriveReport, or 404: drive N failed for good, rebuild what it held; with
//!                                 &force=true even if that may leave blobs with less than k stacks
//! POST /drives/replace?drive=N    report::DriveReport, or 404: an empty directory is in the place of drive N, which
//!                                 failed, and becomes it
//! GET /users                      [report::UserReport]
//! POST /users?name=N              report::NewKeys, of a new user
//! POST /users/rotate?name=N       report::NewKeys, in the place of the old ones
//! DELETE /users?name=N            null
//! GET /repartition                [repartition::JobReport]; with ?job=N that one, or 404
//! POST /repartition?request=R     repartition::JobReport, of a new job; R is a repartition::Request as JSON
//! POST /repartition/pause?job=N   repartition::JobReport; likewise /resume and /cancel
//! anything else                   404 or 405; every error is {"error": "..."}
//! ```
//!
//! Invariants:
//! - only the data directory's owner can connect: the socket is made with mode 0600 in a directory of mode 0700, and
//!   only then moved to its name, which also replaces what a killed server left;
//! - a GET reads and never changes anything; nothing waits for a drive;
//! - it ends with [`serve`]'s `stop`, and removes its socket.

mod client;
mod jobs;
mod people;
mod socket;

pub use client::{Client, ClientError};

use crate::repartition::Repartitions;
use crate::report::{DriveReport, Explanation, Status};
use crate::users::Users;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may last, so that nobody can hold one of the few for ever. Only answers about jobs may take
/// longer: those that look through the whole input, or publish or remove a whole output.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// How long answers under way may take when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// What a server says that is about to end and cannot tell any more.
const STOPPING: &str = "the server is stopping";
/// How long to wait before accepting again after the system refused (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the server does not tell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    /// Its world has ended, and it is about to.
    #[error("{STOPPING}")]
    Stopping,
    /// Something else, for people.
    #[error("{0}")]
    Because(String),
}

/// What the server knows about itself. Each may be answered with [`Untold::Stopping`].
pub trait Admin: Send + Sync + 'static {
    /// How it goes.
    fn status(&self) -> BoxFuture<'_, Result<Status, Untold>>;

    /// Where an object lies; nothing if there is no such object.
    fn explain<'a>(&'a self, bucket: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Explanation>, Untold>>;

    /// The drives, by number.
    fn drives(&self) -> BoxFuture<'_, Result<Vec<DriveReport>, Untold>>;

    /// Drive `drive` failed for good: remembers it and has rebuilt what it held. Nothing if there is no such drive, a
    /// reason if it could not be remembered, or if blobs may be lost by it and `force` does not say that this is
    /// known. Again is no error.
    fn fail_drive(&self, drive: u32, force: bool) -> BoxFuture<'_, Result<Option<DriveReport>, Untold>>;

    /// An empty directory is in the place of drive `drive`, which failed: labels it, and has it used. Nothing if there
    /// is no such drive, a reason if it did not fail, if the directory is missing or not empty, or if it could not be
    /// remembered.
    fn replace_drive(&self, drive: u32) -> BoxFuture<'_, Result<Option<DriveReport>, Untold>>;
}

/// An error as it is told.
#[derive(Debug, Serialize, Deserialize)]
struct ErrorBody {
    error: String,
}

/// The socket, bound and waiting.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    place: socket::Place,
}

impl Listener {
    /// Binds the socket of the data directory `dir`, which this process must have locked: a socket that is there is
    /// taken for a killed server's.
    ///
    /// # Errors
    /// When the system refuses the socket.
    pub fn bind(dir: &Path) -> io::Result<Self> {
        let place = socket::Place::in_dir(dir)?;
        Ok(Self { listener: place.bind()?, place })
    }
}

/// Answers until `stop`, of `jobs` only where there are any, then removes the socket and waits a moment for the answers
/// under way.
pub async fn serve(
    listener: Listener,
    admin: Arc<dyn Admin>,
    users: Arc<Users>,
    jobs: Option<Repartitions>,
    stop: impl Future<Output = ()>,
) {
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, admin.clone(), users.clone(), jobs.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin socket takes no connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    listener.place.remove();
    // Who connected and says nothing is cut off; whoever waits for an answer gets it long before.
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_GRACE, drained).await;
}

async fn converse(stream: UnixStream, admin: Arc<dyn Admin>, users: Arc<Users>, jobs: Option<Repartitions>) {
    let works = &AtomicBool::new(false);
    let service = service_fn(move |request| {
        let (admin, users, jobs) = (admin.clone(), users.clone(), jobs.clone());
        async move {
            Ok::<_, Infallible>(match &jobs {
                Some(jobs) if request.uri().path().starts_with("/repartition") => {
                    works.store(true, Ordering::Relaxed);
                    let answer = jobs::answer(jobs, &request).await;
                    works.store(false, Ordering::Relaxed);
                    answer
                }
                _ => answer(&*admin, &users, &request).await,
            })
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    // One request a connection: nobody holds one open, so that stopping never waits for an idle one.
    http.keep_alive(false);
    let talk = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(talk);
    loop {
        match tokio::time::timeout(CONNECTION_LIMIT, &mut talk).await {
            Ok(Err(error)) => return tracing::debug!(%error, "an admin connection broke"),
            Err(_) if works.load(Ordering::Relaxed) => {}
            Ok(Ok(())) | Err(_) => return,
        }
    }
}

async fn answer(admin: &dyn Admin, users: &Arc<Users>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if matches!(path, "/users" | "/users/rotate") {
        return people::answer(users, request).await;
    }
    if matches!(path, "/drives/fail" | "/drives/replace") {
        return match *request.method() {
            Method::POST => change_drive(admin, path, request.uri().query().unwrap_or_default()).await,
            _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "only POST"),
        };
    }
    if !matches!(path, "/status" | "/explain" | "/drives") {
        return refuse(
            StatusCode::NOT_FOUND,
            "there is /status, /explain?bucket=&key=, /drives, /users, POST /drives/fail?drive= and \
             /drives/replace?drive=",
        );
    }
    if request.method() != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET");
    }
    match path {
        "/status" => told(admin.status().await),
        "/drives" => told(admin.drives().await),
        _ => explain(admin, request.uri().query().unwrap_or_default()).await,
    }
}

async fn explain(admin: &dyn Admin, query: &str) -> Response<Full<Bytes>> {
    let value = |name: &str| form_urlencoded::parse(query.as_bytes()).find(|(n, _)| n == name).map(|(_, v)| v);
    let (Some(bucket), Some(key)) = (value("bucket"), value("key")) else {
        return refuse(StatusCode::BAD_REQUEST, "write /explain?bucket=B&key=K, percent-encoded");
    };
    match admin.explain(&bucket, &key).await {
        Ok(Some(explanation)) => json(StatusCode::OK, &explanation),
        Ok(None) => refuse(StatusCode::NOT_FOUND, &format!("there is no object s3://{bucket}/{key}")),
        Err(untold) => refuse(StatusCode::SERVICE_UNAVAILABLE, &untold.to_string()),
    }
}

async fn change_drive(admin: &dyn Admin, path: &str, query: &str) -> Response<Full<Bytes>> {
    let drive = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "drive");
    let Some(drive) = drive.and_then(|(_, value)| value.parse().ok()) else {
        return refuse(StatusCode::BAD_REQUEST, &format!("write {path}?drive=N, N being the number of a drive"));
    };
    let force = form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "force" && value == "true");
    let changed = match path {
        "/drives/fail" => admin.fail_drive(drive, force).await,
        _ => admin.replace_drive(drive).await,
    };
    match changed {
        Ok(Some(report)) => json(StatusCode::OK, &report),
        Ok(None) => refuse(StatusCode::NOT_FOUND, &format!("there is no drive {drive}")),
        Err(untold) => refuse(StatusCode::SERVICE_UNAVAILABLE, &untold.to_string()),
    }
}

fn told(told: Result<impl Serialize, Untold>) -> Response<Full<Bytes>> {
    match told {
        Ok(told) => json(StatusCode::OK, &told),
        Err(untold) => refuse(StatusCode::SERVICE_UNAVAILABLE, &untold.to_string()),
    }
}

fn refuse(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    json(status, &ErrorBody { error: message.to_owned() })
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{{\"error\": \"{error}\"}}").into_bytes()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
