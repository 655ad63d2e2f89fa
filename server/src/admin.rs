//! The admin API: status reports, drives, scrubs, users and repartition jobs as JSON over HTTP, on the socket
//! `admin.sock` in the data directory.
//!
//! ```text
//! GET /status                     report::Status
//! GET /explain?bucket=B&key=K     report::Explanation, or 404
//! GET /thermometer?bucket=B       report::DryRunReport, or 404: the rules' decisions about the staged objects of B;
//!                                 with &prefix=P those below P, with &rule=R by the rule R alone
//! GET /drives                     [report::DriveReport]
//! POST /drives/fail?drive=N       report::FailedReport, or 404: drive N failed permanently, rebuild its data; with
//!                                 &force=true even if that may leave blobs with less than k stacks
//! POST /drives/retire?drive=N     report::DriveReport, or 404: empty drive N, which is good
//! GET /lost                       report::LostReport: the objects that are lost with failed drives
//! POST /drives/replace?drive=N    report::ReplacedReport, or 404: use the empty directory that replaces the failed
//!                                 drive N; &path=P&wipe=W: the disk P, on which nothing is needed (if that is W);
//!                                 &wait_s=S waits at most S seconds while its group is not asleep
//! GET /scrub                      report::ScrubReport
//! GET /scrub/lost                 [report::LostObject]: the objects with bytes that scrubs found lost
//! POST /scrub/pause               report::ScrubReport; likewise /resume, and /start, of all groups
//! POST /scrub/start?group=N       the same of group N, or 404
//! POST /verify?drives=W&deep=D    verify::VerifyProgress, of a new verification; W is none, awake or all, D true or
//!                                 false
//! GET /verify?number=N            verify::VerifyProgress, or 404: with the findings since the last answer
//! DELETE /verify?number=N         the same, and it ends
//! GET /users                      [report::UserReport]
//! POST /users?name=N              report::NewKeys, of a new user
//! POST /users/rotate?name=N       report::NewKeys, which replace the old ones
//! DELETE /users?name=N            null
//! GET /repartition                [repartition::JobReport]; with ?job=N that one, or 404
//! POST /repartition?request=R     repartition::JobReport, of a new job; R is a repartition::Request as JSON
//! POST /repartition/pause?job=N   repartition::JobReport; likewise /resume and /cancel
//! GET /recall                     [set_recall::SetReport]; with ?job=N that one, or 404
//! POST /recall                    set_recall::SetReport, of a new recall; the body is a set_recall::SetRequest
//! POST /catalog/backup?path=P     backup::BackupReport, of a copy of the catalog in the new file P
//! anything else                   404 or 405; every error is {"error": "..."}
//! ```
//!
//! Invariants:
//! - Only the owner of the data directory can connect: the socket is made with mode 0600 in a directory of mode 0700,
//!   and only then moved to its name, where it also replaces the socket of a killed server.
//! - A GET changes nothing, except that each finding of a verification is returned once. No request waits for a drive.
//! - The server ends with [`serve`]'s `stop`, and removes its socket.

mod answer;
mod client;
mod socket;

pub use answer::AdminError;
pub use client::{Client, ClientError};

use crate::backup::{BackupError, BackupReport};
use crate::config::parse_rule;
use crate::exchange::DiskChoice;
use crate::repartition::Repartitions;
use crate::report::{
    DriveReport, DryRunReport, Explanation, FailedReport, LostObject, LostReport, ReplacedReport, ScrubReport, Status,
};
use crate::set_recall::{SetError, SetReport, SetRequest};
use crate::users::Users;
use crate::verify::{Options, VerifyProgress, VerifyRequest};
use answer::{Body, json, parameter, refuse, response, uninterrupted};
use engine::thermometer::Rule;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// Connections served at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// The longest connection, so that no client holds one of the few forever. Only slow requests may take longer: some
/// read through the whole input, or publish or remove a whole output; others copy the catalog, make a file system, or
/// look at every object or at everything that is staged.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// The longest body of a request: a list of keys.
const BODY_BYTES_MAX: usize = 256 << 20;
/// The time for answers under way when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The pause after the system refused to accept a connection (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The queries and changes that the admin API offers. Each may fail with [`AdminError::Stopping`].
pub trait Admin: Send + Sync + 'static {
    /// The state of the server.
    fn status(&self) -> impl Future<Output = Result<Status, AdminError>> + Send;

    /// The place of an object; `None` if there is no such object.
    fn explain(&self, bucket: &str, key: &str) -> impl Future<Output = Result<Option<Explanation>, AdminError>> + Send;

    /// The decisions of the configured rules, or of `rule` alone, about the objects staged below a prefix of a bucket;
    /// `None` if there is no such bucket.
    fn dry_run(
        &self,
        bucket: &str,
        prefix: &str,
        rule: Option<Rule>,
    ) -> impl Future<Output = Result<Option<DryRunReport>, AdminError>> + Send;

    /// The drives, by number.
    fn drives(&self) -> impl Future<Output = Result<Vec<DriveReport>, AdminError>> + Send;

    /// Records that drive `drive` failed permanently, and has its data rebuilt; `None` if there is no such drive.
    /// Repeating it is no error. It fails if the catalog cannot record it, and, unless `force` is set, if blobs may be
    /// lost by it, or if so few drives of its group would be left that nothing of it could be rebuilt.
    fn fail_drive(
        &self,
        drive: u32,
        force: bool,
    ) -> impl Future<Output = Result<Option<FailedReport>, AdminError>> + Send;

    /// Waits while work that started on drive `drive` before it failed is still running, for `wait` of wall time at
    /// most.
    fn until_replaceable(&self, drive: u32, wait: Duration) -> impl Future<Output = Result<(), AdminError>> + Send;

    /// Labels the empty directory, or makes a drive of the chosen disk, that replaces the failed drive `drive`, and has
    /// it used; `None` if there is no such drive. It fails if the drive did not fail, if the directory is missing or
    /// not empty, if the disk may not be used, or if the catalog cannot record it.
    fn replace_drive(
        &self,
        drive: u32,
        choice: DiskChoice,
    ) -> impl Future<Output = Result<Option<ReplacedReport>, AdminError>> + Send;

    /// The scrub of each group, and the findings.
    fn scrub(&self) -> impl Future<Output = Result<ScrubReport, AdminError>> + Send;

    /// The objects with bytes that scrubs found lost.
    fn lost(&self) -> impl Future<Output = Result<Vec<LostObject>, AdminError>> + Send;

    /// Changes the scrubs; `None` if there is no such group.
    fn change_scrub(&self, change: ScrubChange)
    -> impl Future<Output = Result<Option<ScrubReport>, AdminError>> + Send;

    /// Has the good drive `drive` emptied; `None` if there is no such drive. It fails if the drive failed, or if the
    /// catalog cannot record it.
    fn retire_drive(&self, drive: u32) -> impl Future<Output = Result<Option<DriveReport>, AdminError>> + Send;

    /// The objects that are lost with failed drives.
    fn lost_objects(&self) -> impl Future<Output = Result<LostReport, AdminError>> + Send;

    /// Starts a verification, returns its progress, or ends it; `None` if no verification has that number.
    fn verification(
        &self,
        request: VerifyRequest,
    ) -> impl Future<Output = Result<Option<VerifyProgress>, AdminError>> + Send;

    /// Returns the cost of recalling a set, and starts the recall unless it is a dry run.
    fn recall_set(&self, request: SetRequest) -> impl Future<Output = Result<SetReport, SetError>> + Send;

    /// The known recalls of sets, by number.
    fn set_recalls(&self) -> Vec<SetReport>;

    /// Writes a copy of the catalog to `path`, which must not exist.
    fn backup(&self, path: PathBuf) -> impl Future<Output = Result<BackupReport, BackupError>> + Send;
}

/// An operator's command about scrubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubChange {
    /// Nothing is scrubbed until the scrubs are resumed.
    Pause,
    /// The scrubs resume.
    Resume,
    /// A pass of this group starts at once; `None` is all groups.
    Start(Option<u32>),
}

/// The bound socket.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    place: socket::SocketPlace,
}

impl Listener {
    /// Binds the socket of the data directory `dir`, which this process must have locked: an existing socket is assumed
    /// to be a killed server's.
    ///
    /// # Errors
    /// When the system refuses the socket.
    pub fn bind(dir: &Path) -> io::Result<Self> {
        let place = socket::SocketPlace::in_dir(dir)?;
        Ok(Self { listener: place.bind()?, place })
    }
}

/// Serves until `stop`, `/repartition` only with `jobs`; then removes the socket and waits a moment for the answers
/// under way.
pub async fn serve(
    listener: Listener,
    admin: Arc<impl Admin>,
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
                    connections.spawn(serve_connection(stream, admin.clone(), users.clone(), jobs.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin socket takes no connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    listener.place.remove();
    // An idle connection is cut off; the others get their answers long before.
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_GRACE, drained).await;
}

async fn serve_connection(stream: UnixStream, admin: Arc<impl Admin>, users: Arc<Users>, jobs: Option<Repartitions>) {
    let on_job = &AtomicBool::new(false);
    let service = service_fn(move |request| {
        let (admin, users, jobs) = (admin.clone(), users.clone(), jobs.clone());
        async move {
            let body = match &jobs {
                Some(jobs) if request.uri().path().starts_with("/repartition") => {
                    on_job.store(true, Ordering::Relaxed);
                    let answer = answer_of_jobs(jobs, &request).await;
                    on_job.store(false, Ordering::Relaxed);
                    answer
                }
                _ if request.uri().path() == "/recall" => {
                    on_job.store(true, Ordering::Relaxed);
                    let answer = answer_of_sets(&admin, request).await;
                    on_job.store(false, Ordering::Relaxed);
                    answer
                }
                _ if request.uri().path() == "/catalog/backup" => {
                    on_job.store(true, Ordering::Relaxed);
                    let answer = backup(&*admin, &request).await;
                    on_job.store(false, Ordering::Relaxed);
                    answer
                }
                // Making a file system may take minutes.
                _ if request.uri().path() == "/drives/replace" => {
                    on_job.store(true, Ordering::Relaxed);
                    let answer = replace_drive(admin, &request).await;
                    on_job.store(false, Ordering::Relaxed);
                    answer
                }
                // It may look at every object.
                _ if request.uri().path() == "/lost" => {
                    on_job.store(true, Ordering::Relaxed);
                    let answer = answer(&*admin, &users, &request).await;
                    on_job.store(false, Ordering::Relaxed);
                    answer
                }
                _ if request.uri().path() == "/thermometer" => {
                    on_job.store(true, Ordering::Relaxed);
                    let answer = dry_run(&*admin, &request).await;
                    on_job.store(false, Ordering::Relaxed);
                    answer
                }
                _ if request.uri().path() == "/scrub/lost" => {
                    on_job.store(true, Ordering::Relaxed);
                    let answer = lost(&*admin, &request).await;
                    on_job.store(false, Ordering::Relaxed);
                    answer
                }
                _ => answer(&*admin, &users, &request).await,
            };
            Ok::<_, Infallible>(response(body))
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    // One request per connection, so that a stop never waits for an idle one.
    http.keep_alive(false);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    loop {
        match tokio::time::timeout(CONNECTION_LIMIT, &mut connection).await {
            Ok(Err(error)) => return tracing::debug!(%error, "an admin connection broke"),
            Err(_) if on_job.load(Ordering::Relaxed) => {}
            Ok(Ok(())) | Err(_) => return,
        }
    }
}

async fn answer(admin: &impl Admin, users: &Arc<Users>, request: &Request<Incoming>) -> Body {
    match (request.uri().path(), request.method()) {
        ("/users" | "/users/rotate", _) => answer_of_users(users, request).await,
        ("/drives/fail" | "/drives/retire", &Method::POST) => change_drive(admin, request).await,
        ("/scrub/pause" | "/scrub/resume" | "/scrub/start", &Method::POST) => change_scrub(admin, request).await,
        ("/drives/fail" | "/drives/retire" | "/scrub/pause" | "/scrub/resume" | "/scrub/start", _) => {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "only POST")
        }
        ("/lost", &Method::GET) => json(&admin.lost_objects().await?),
        ("/verify", _) => verification(admin, request).await,
        ("/scrub", &Method::GET) => json(&admin.scrub().await?),
        ("/status", &Method::GET) => json(&admin.status().await?),
        ("/drives", &Method::GET) => json(&admin.drives().await?),
        ("/explain", &Method::GET) => explain(admin, request).await,
        ("/status" | "/drives" | "/explain" | "/scrub" | "/lost", _) => {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET")
        }
        _ => refuse(
            StatusCode::NOT_FOUND,
            "there is /status, /explain?bucket=&key=, /thermometer?bucket=, /drives, /users, /recall, /scrub, /lost, \
             /scrub/lost, /verify?number=, POST /verify?drives=&deep=, POST /drives/fail?drive=, \
             /drives/retire?drive=, /drives/replace?drive=, /scrub/pause, /scrub/resume, /scrub/start",
        ),
    }
}

async fn explain(admin: &impl Admin, request: &Request<Incoming>) -> Body {
    let (Some(bucket), Some(key)) = (parameter(request, "bucket"), parameter(request, "key")) else {
        return refuse(StatusCode::BAD_REQUEST, "write /explain?bucket=B&key=K, percent-encoded");
    };
    match admin.explain(&bucket, &key).await? {
        Some(explanation) => json(&explanation),
        None => refuse(StatusCode::NOT_FOUND, format!("there is no object s3://{bucket}/{key}")),
    }
}

async fn dry_run(admin: &impl Admin, request: &Request<Incoming>) -> Body {
    let Some(bucket) = parameter(request, "bucket").filter(|_| request.method() == Method::GET) else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "write GET /thermometer?bucket=B, &prefix=P and &rule=R, percent-encoded",
        );
    };
    let rule = match parameter(request, "rule").map(|rule| parse_rule(&rule)).transpose() {
        Ok(rule) => rule,
        Err(error) => return refuse(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
    };
    let prefix = parameter(request, "prefix").unwrap_or_default();
    match admin.dry_run(&bucket, &prefix, rule).await? {
        Some(report) => json(&report),
        None => refuse(StatusCode::NOT_FOUND, format!("there is no bucket s3://{bucket}")),
    }
}

async fn backup(admin: &impl Admin, request: &Request<Incoming>) -> Body {
    let Some(path) = parameter(request, "path").filter(|_| request.method() == Method::POST) else {
        return refuse(StatusCode::BAD_REQUEST, "write POST /catalog/backup?path=P, percent-encoded");
    };
    match admin.backup(path.into()).await {
        Ok(report) => json(&report),
        Err(error) => refuse(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
    }
}

async fn change_drive(admin: &impl Admin, request: &Request<Incoming>) -> Body {
    let path = request.uri().path();
    let Some(drive) = parameter(request, "drive").and_then(|drive| drive.parse().ok()) else {
        return refuse(StatusCode::BAD_REQUEST, format!("write {path}?drive=N, N being the number of a drive"));
    };
    let is_forced = parameter(request, "force").as_deref() == Some("true");
    let changed = match path {
        "/drives/fail" => admin.fail_drive(drive, is_forced).await?.map(|report| json(&report)),
        _ => admin.retire_drive(drive).await?.map(|report| json(&report)),
    };
    changed.unwrap_or_else(|| refuse(StatusCode::NOT_FOUND, format!("there is no drive {drive}")))
}

/// The longest that a replacement waits for the drive's group, in seconds: a day.
const REPLACE_WAIT_MAX_S: u64 = 86_400;

/// A replacement that has started finishes, even if the client has disconnected: a disk is not left half made.
async fn replace_drive(admin: Arc<impl Admin>, request: &Request<Incoming>) -> Body {
    if request.method() != Method::POST {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "only POST");
    }
    let Some(drive) = parameter(request, "drive").and_then(|drive| drive.parse().ok()) else {
        let usage = "write /drives/replace?drive=N, N being the number of a drive; &path=P and &wipe=W for a disk, \
                     &wait_s=S to wait for so many seconds";
        return refuse(StatusCode::BAD_REQUEST, usage);
    };
    let wait_s: u64 = parameter(request, "wait_s").and_then(|wait_s| wait_s.parse().ok()).unwrap_or(0);
    // A client that disconnects during the wait has changed nothing.
    admin.until_replaceable(drive, Duration::from_secs(wait_s.min(REPLACE_WAIT_MAX_S))).await?;
    let choice = DiskChoice { path: parameter(request, "path"), wipe: parameter(request, "wipe") };
    uninterrupted(async move {
        match admin.replace_drive(drive, choice).await? {
            Some(report) => json(&report),
            None => refuse(StatusCode::NOT_FOUND, format!("there is no drive {drive}")),
        }
    })
    .await
}

async fn verification(admin: &impl Admin, request: &Request<Incoming>) -> Body {
    const USAGE: &str = "write POST /verify?drives=W&deep=D, W being none, awake or all, and D true or false; or \
                         GET or DELETE /verify?number=N";
    let is_deep = parameter(request, "deep").as_deref() == Some("true");
    let drives = parameter(request, "drives");
    let number = parameter(request, "number").and_then(|number| number.parse().ok());
    let wanted = match (request.method().as_str(), drives.as_deref(), number) {
        ("POST", Some(drives @ ("none" | "awake" | "all")), _) => {
            let options = Options { drives: drives != "none", deep: is_deep };
            VerifyRequest::Begin { options, wakes: drives == "all" }
        }
        ("GET", _, Some(number)) => VerifyRequest::Look(number),
        ("DELETE", _, Some(number)) => VerifyRequest::End(number),
        _ => return refuse(StatusCode::BAD_REQUEST, USAGE),
    };
    match admin.verification(wanted).await? {
        Some(progress) => json(&progress),
        None => refuse(StatusCode::NOT_FOUND, "there is no such verification; it was interrupted"),
    }
}

async fn change_scrub(admin: &impl Admin, request: &Request<Incoming>) -> Body {
    let group = match parameter(request, "group").map(|group| group.parse()) {
        Some(Err(_)) => return refuse(StatusCode::BAD_REQUEST, "write ?group=N, N being the number of a group"),
        Some(Ok(group)) => Some(group),
        None => None,
    };
    let change = match request.uri().path() {
        "/scrub/pause" => ScrubChange::Pause,
        "/scrub/resume" => ScrubChange::Resume,
        _ => ScrubChange::Start(group),
    };
    match admin.change_scrub(change).await? {
        Some(report) => json(&report),
        None => refuse(StatusCode::NOT_FOUND, format!("there is no group {}", group.unwrap_or_default())),
    }
}

async fn lost(admin: &impl Admin, request: &Request<Incoming>) -> Body {
    match request.method() {
        &Method::GET => json(&admin.lost().await?),
        _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET"),
    }
}

/// Answers a request below `/users`.
async fn answer_of_users(users: &Arc<Users>, request: &Request<Incoming>) -> Body {
    let rotates = request.uri().path() != "/users";
    if request.method() == Method::GET && !rotates {
        return json(&users.list().await?);
    }
    let Some(name) = parameter(request, "name") else {
        return refuse(StatusCode::BAD_REQUEST, "add ?name=N");
    };
    let (method, users) = (request.method().clone(), Arc::clone(users));
    uninterrupted(async move {
        match (method.as_str(), rotates) {
            ("POST", false) => json(&users.add(&name).await?),
            ("POST", true) => json(&users.rotate(&name).await?),
            ("DELETE", false) => json(&users.remove(&name).await?),
            _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "GET, POST or DELETE /users, or POST /users/rotate"),
        }
    })
    .await
}

/// Answers a request for `/recall`.
async fn answer_of_sets(admin: &Arc<impl Admin>, request: Request<Incoming>) -> Body {
    if request.method() == Method::GET {
        let known = admin.set_recalls();
        let Some(job) = parameter(&request, "job") else { return json(&known) };
        return match known.iter().find(|report| report.job.to_string() == job) {
            Some(report) => json(report),
            None => refuse(StatusCode::NOT_FOUND, format!("there is no recall {job}")),
        };
    }
    if request.method() != Method::POST {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "GET /recall[?job=N], or POST /recall with a request in JSON");
    }
    let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return refuse(StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}")),
    };
    let wanted = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}")),
    };
    let admin = Arc::clone(admin);
    uninterrupted(async move { json(&admin.recall_set(wanted).await?) }).await
}

/// Answers a request below `/repartition`.
async fn answer_of_jobs(jobs: &Repartitions, request: &Request<Incoming>) -> Body {
    let path = request.uri().path().to_owned();
    let new_job = parameter(request, "request");
    let job = parameter(request, "job").and_then(|job| job.parse().ok());
    let (method, jobs) = (request.method().clone(), jobs.clone());
    uninterrupted(async move {
        match (path.as_str(), method, new_job, job) {
            ("/repartition", Method::GET, _, None) => json(&jobs.list().await?),
            ("/repartition", Method::GET, _, Some(job)) => json(&jobs.show(job).await?),
            ("/repartition", Method::POST, Some(request), _) => match serde_json::from_str(&request) {
                Ok(request) => json(&jobs.ask(request).await?),
                Err(error) => refuse(StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}")),
            },
            ("/repartition/pause", Method::POST, _, Some(job)) => json(&jobs.pause(job).await?),
            ("/repartition/resume", Method::POST, _, Some(job)) => json(&jobs.resume(job).await?),
            ("/repartition/cancel", Method::POST, _, Some(job)) => json(&jobs.cancel(job).await?),
            _ => refuse(
                StatusCode::BAD_REQUEST,
                "GET /repartition[?job=N], POST /repartition?request=JSON, POST /repartition/pause?job=N, \
                 /repartition/resume?job=N or /repartition/cancel?job=N",
            ),
        }
    })
    .await
}

#[cfg(test)]
mod tests;
