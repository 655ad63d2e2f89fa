//! The client of the admin API, for the command line.
//!
//! A server may end during a request: it closes the connection before or within its answer, answers that it is
//! stopping, or stops answering. The client then waits until it is gone, and reports that no server runs; after a
//! change, also that the change may have been made. A request for a repartition, a recall, a replacement or a dry run
//! may take minutes: the client waits for it as long as the server answers other requests.

use super::ScrubChange;
use super::answer::{ErrorBody, STOPPING};
use super::socket;
use crate::backup::BackupReport;
use crate::data_dir::{DataDir, DataDirError};
use crate::exchange::DiskChoice;
use crate::repartition;
use crate::report::{
    DriveReport, DryRunReport, Explanation, FailedReport, LostObject, LostReport, NewKeys, ReplacedReport, ScrubReport,
    Status, UserReport,
};
use crate::set_recall::{SetReport, SetRequest};
use crate::verify::{Options, VerifyProgress, VerifyRequest};
use bytes::Bytes;
use disk::clock;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// The longest time to an answer. Generous, because the server waits for no drive.
const ANSWER_LIMIT: Duration = Duration::from_secs(25);
/// Requests that read much of the catalog, and may take longer while the server answers others.
const SLOW: [&str; 3] = ["/thermometer", "/lost", "/scrub/lost"];
/// The same, if they are sent with POST.
const SLOW_TO_POST: [&str; 4] = ["/repartition", "/recall", "/drives/replace", "/catalog/backup"];
/// The longest time that a server takes to end after it closed a connection. A server that is still there then has not
/// ended.
const GOING_LIMIT: Duration = Duration::from_secs(5);
/// The interval between checks that it is gone.
const GOING_STEP: Duration = Duration::from_millis(50);

/// A client of the server of one data directory.
#[derive(Debug)]
pub struct Client {
    dir: PathBuf,
    place: socket::SocketPlace,
}

/// The reason that there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// No process listens.
    #[error("no server runs on {dir}; start it with `larder serve --data {dir}`", dir = .0.display())]
    NoServer(PathBuf),
    /// The server ended during a change.
    #[error(
        "no server runs on {dir} any more: it ended before it answered; start it with `larder serve --data {dir}`, and \
         check if it has executed the request",
        dir = .0.display()
    )]
    Unfinished(PathBuf),
    /// The socket belongs to another user.
    #[error("the server on {} belongs to another user; run the command as the user who started it", .0.display())]
    NotYours(PathBuf),
    /// The server listens, but does not answer.
    #[error("the server on {} does not answer ({reason}); see its log", .dir.display())]
    NoAnswer {
        /// The data directory.
        dir: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The server answered with an error.
    #[error("{0}")]
    Refused(String),
}

/// A failed attempt.
enum Failure {
    /// The server seems to be ending.
    Ending(String),
    /// Any other error.
    Error(ClientError),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Error(error)
    }
}

impl Client {
    /// A client of the server on the data directory `dir`. It does not connect yet.
    ///
    /// # Errors
    /// When there is no data directory.
    pub fn of(dir: &Path) -> Result<Self, ClientError> {
        if !DataDir::exists(dir) {
            return Err(DataDirError::Missing(dir.to_owned()).into());
        }
        let place = socket::SocketPlace::in_dir(dir)
            .map_err(|error| ClientError::NoAnswer { dir: dir.to_owned(), reason: error.to_string() })?;
        Ok(Self { dir: dir.to_owned(), place })
    }

    /// The state of the server.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/status").await?.ok_or_else(|| self.no_answer("it does not know /status"))
    }

    /// The place of an object; `None` if the object does not exist.
    ///
    /// # Errors
    /// When no server answers, or it cannot determine the place.
    pub async fn explain(&self, bucket: &str, key: &str) -> Result<Option<Explanation>, ClientError> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("bucket", bucket)
            .append_pair("key", key)
            .finish();
        self.get(&format!("/explain?{query}")).await
    }

    /// The decisions of the server's rules, or of `rule` alone (as in larder.toml), about the objects staged below a
    /// prefix; `None` if there is no such bucket.
    ///
    /// # Errors
    /// When no server answers, or it refuses the rule.
    pub async fn dry_run(
        &self,
        bucket: &str,
        prefix: &str,
        rule: Option<&str>,
    ) -> Result<Option<DryRunReport>, ClientError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("bucket", bucket).append_pair("prefix", prefix);
        if let Some(rule) = rule {
            query.append_pair("rule", rule);
        }
        self.get(&format!("/thermometer?{}", query.finish())).await
    }

    /// The drives, by number.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn drives(&self) -> Result<Vec<DriveReport>, ClientError> {
        self.get("/drives").await?.ok_or_else(|| self.no_answer("it does not know /drives"))
    }

    /// The users, root first and then by name.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn users(&self) -> Result<Vec<UserReport>, ClientError> {
        self.get("/users").await?.ok_or_else(|| self.no_answer("it does not know /users"))
    }

    /// Creates a user.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn add_user(&self, name: &str) -> Result<NewKeys, ClientError> {
        self.of_user(Method::POST, "/users", name).await
    }

    /// Replaces the keys of a user.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn rotate_user(&self, name: &str) -> Result<NewKeys, ClientError> {
        self.of_user(Method::POST, "/users/rotate", name).await
    }

    /// Removes a user.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn remove_user(&self, name: &str) -> Result<(), ClientError> {
        self.of_user(Method::DELETE, "/users", name).await
    }

    /// Plans a repartition or starts one.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn repartition(&self, request: &repartition::Request) -> Result<repartition::JobReport, ClientError> {
        let asked = serde_json::to_string(request).map_err(|error| ClientError::Refused(error.to_string()))?;
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("request", &asked).finish();
        let answer = self.ask(Method::POST, &format!("/repartition?{query}")).await?;
        answer.ok_or_else(|| self.no_answer("it does not know /repartition"))
    }

    /// The repartition jobs, by number.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn repartitions(&self) -> Result<Vec<repartition::JobReport>, ClientError> {
        self.get("/repartition").await?.ok_or_else(|| self.no_answer("it does not know /repartition"))
    }

    /// A repartition job; `None` if no job has that number.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn repartition_job(&self, job: u64) -> Result<Option<repartition::JobReport>, ClientError> {
        self.get(&format!("/repartition?job={job}")).await
    }

    /// Changes a repartition job: `pause`, `resume` or `cancel`; `None` if no job has that number.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn change_repartition(
        &self,
        job: u64,
        change: &str,
    ) -> Result<Option<repartition::JobReport>, ClientError> {
        self.ask(Method::POST, &format!("/repartition/{change}?job={job}")).await
    }

    /// Returns the cost of recalling a set and, unless it is a dry run, starts the recall.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn recall_set(&self, request: &SetRequest) -> Result<SetReport, ClientError> {
        let asked = serde_json::to_vec(request).map_err(|error| ClientError::Refused(error.to_string()))?;
        let answer = self.ask_with(Method::POST, "/recall", asked.into()).await?;
        answer.ok_or_else(|| self.no_answer("it does not know /recall"))
    }

    /// The known recalls of sets, by number.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn set_recalls(&self) -> Result<Vec<SetReport>, ClientError> {
        self.get("/recall").await?.ok_or_else(|| self.no_answer("it does not know /recall"))
    }

    /// A recall of a set; `None` if no recall has that number.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn set_recall(&self, job: u64) -> Result<Option<SetReport>, ClientError> {
        self.get(&format!("/recall?job={job}")).await
    }

    /// Has a copy of the catalog written to `path`, which must be absolute and must not exist.
    ///
    /// # Errors
    /// When no server answers, or it cannot write the copy.
    pub async fn backup(&self, path: &Path) -> Result<BackupReport, ClientError> {
        let path = path.to_string_lossy();
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("path", &path).finish();
        let answer = self.ask(Method::POST, &format!("/catalog/backup?{query}")).await?;
        answer.ok_or_else(|| self.no_answer("it does not know /catalog"))
    }

    async fn of_user<T: DeserializeOwned>(&self, method: Method, path: &str, name: &str) -> Result<T, ClientError> {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("name", name).finish();
        let answer = self.ask(method, &format!("{path}?{query}")).await?;
        answer.ok_or_else(|| self.no_answer("it does not know /users"))
    }

    /// Reports that drive `drive` failed permanently; `None` if there is no such drive.
    ///
    /// # Errors
    /// When no server answers, it cannot record it, or blobs may be lost by it and `force` is not set.
    pub async fn fail_drive(&self, drive: u32, force: bool) -> Result<Option<FailedReport>, ClientError> {
        self.ask(Method::POST, &format!("/drives/fail?drive={drive}&force={force}")).await
    }

    /// Has the good drive `drive` emptied; `None` if there is no such drive.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn retire_drive(&self, drive: u32) -> Result<Option<DriveReport>, ClientError> {
        self.ask(Method::POST, &format!("/drives/retire?drive={drive}")).await
    }

    /// The objects that are lost with failed drives.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn lost_objects(&self) -> Result<LostReport, ClientError> {
        self.get("/lost").await?.ok_or_else(|| self.no_answer("it does not know /lost"))
    }

    /// Has the empty directory or the chosen disk used that replaces the failed drive `drive`; `None` if there is no
    /// such drive.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn replace_drive(
        &self,
        drive: u32,
        choice: &DiskChoice,
        wait: Duration,
    ) -> Result<Option<ReplacedReport>, ClientError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("drive", &drive.to_string()).append_pair("wait_s", &wait.as_secs().to_string());
        for (name, value) in [("path", &choice.path), ("wipe", &choice.wipe)] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        self.ask(Method::POST, &format!("/drives/replace?{}", query.finish())).await
    }

    /// The scrub of each group, and the findings.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn scrub(&self) -> Result<ScrubReport, ClientError> {
        self.get("/scrub").await?.ok_or_else(|| self.no_answer("it does not know /scrub"))
    }

    /// The objects with bytes that scrubs found lost.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn scrub_lost(&self) -> Result<Vec<LostObject>, ClientError> {
        self.get("/scrub/lost").await?.ok_or_else(|| self.no_answer("it does not know /scrub/lost"))
    }

    /// Starts a verification, returns its progress, or ends it; `None` if no verification has that number.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn verification(&self, request: VerifyRequest) -> Result<Option<VerifyProgress>, ClientError> {
        let (method, target) = match request {
            VerifyRequest::Begin { options: Options { drives, deep }, wakes } => {
                let drives = match (drives, wakes) {
                    (false, _) => "none",
                    (true, false) => "awake",
                    (true, true) => "all",
                };
                (Method::POST, format!("/verify?drives={drives}&deep={deep}"))
            }
            VerifyRequest::Look(number) => (Method::GET, format!("/verify?number={number}")),
            VerifyRequest::End(number) => (Method::DELETE, format!("/verify?number={number}")),
        };
        self.ask(method, &target).await
    }

    /// Changes the scrubs; `None` if there is no such group.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn change_scrub(&self, change: ScrubChange) -> Result<Option<ScrubReport>, ClientError> {
        let target = match change {
            ScrubChange::Pause => "/scrub/pause".to_owned(),
            ScrubChange::Resume => "/scrub/resume".to_owned(),
            ScrubChange::Start(None) => "/scrub/start".to_owned(),
            ScrubChange::Start(Some(group)) => format!("/scrub/start?group={group}"),
        };
        self.ask(Method::POST, &target).await
    }

    async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<Option<T>, ClientError> {
        self.ask(Method::GET, target).await
    }

    /// The answer to a request; `None` for 404. If the server ends meanwhile, this waits until it is gone; a GET is
    /// repeated, because another server may have taken its place.
    async fn ask<T: DeserializeOwned>(&self, method: Method, target: &str) -> Result<Option<T>, ClientError> {
        self.ask_with(method, target, Bytes::new()).await
    }

    /// The same, with a body.
    async fn ask_with<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<Option<T>, ClientError> {
        let mut reason = match self.answer(&method, target, body).await {
            Err(Failure::Ending(reason)) => reason,
            Err(Failure::Error(error)) => return Err(error),
            Ok(answer) => return Ok(answer),
        };
        let end = clock::monotonic() + GOING_LIMIT;
        while clock::monotonic() < end {
            tokio::time::sleep(GOING_STEP).await;
            if method != Method::GET {
                // Not repeated: the change may have been made.
                if let Err(ClientError::NoServer(dir)) = self.connect().await {
                    return Err(ClientError::Unfinished(dir));
                }
                continue;
            }
            match self.answer(&method, target, Bytes::new()).await {
                Err(Failure::Ending(again)) => reason = again,
                Err(Failure::Error(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
        Err(self.no_answer(reason))
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        method: &Method,
        target: &str,
        body: Bytes,
    ) -> Result<Option<T>, Failure> {
        let is_slow = |slow: &&str| target.starts_with(slow);
        let may_ponder = SLOW.iter().any(is_slow) || method == Method::POST && SLOW_TO_POST.iter().any(is_slow);
        let stream = self.connect().await?;
        let exchange = self.exchange(stream, method, target, body);
        tokio::pin!(exchange);
        let (status, body) = loop {
            match tokio::time::timeout(ANSWER_LIMIT, &mut exchange).await {
                Ok(answer) => break answer?,
                Err(_) if may_ponder && self.is_responsive().await => {}
                Err(_) => return Err(self.too_late(method).await.into()),
            }
        };
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if status != StatusCode::OK {
            return Err(match serde_json::from_slice::<ErrorBody>(&body) {
                Ok(ErrorBody { error }) if error == STOPPING => Failure::Ending(error),
                Ok(ErrorBody { error }) => ClientError::Refused(error).into(),
                Err(_) => self.no_answer(status).into(),
            });
        }
        serde_json::from_slice(&body).map(Some).map_err(|error| self.no_answer(error).into())
    }

    /// True if the server answers another request.
    async fn is_responsive(&self) -> bool {
        let Ok(stream) = self.connect().await else { return false };
        let status = self.exchange(stream, &Method::GET, "/status", Bytes::new());
        matches!(tokio::time::timeout(ANSWER_LIMIT, status).await, Ok(Ok(_)))
    }

    /// The error if no answer came in time.
    async fn too_late(&self, method: &Method) -> ClientError {
        match self.connect().await {
            Err(ClientError::NoServer(dir)) if method != Method::GET => ClientError::Unfinished(dir),
            Err(error) => error,
            Ok(_) => self.no_answer("it took too long"),
        }
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        self.place.connect().await.map_err(|error| match error.kind() {
            // The socket of a killed server refuses; a stopped server leaves none.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoServer(self.dir.clone()),
            io::ErrorKind::PermissionDenied => ClientError::NotYours(self.dir.clone()),
            _ => self.no_answer(error),
        })
    }

    async fn exchange(
        &self,
        stream: UnixStream,
        method: &Method,
        target: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let broken = |error: hyper::Error| {
            if error.is_parse() {
                return Failure::Error(self.no_answer(error));
            }
            Failure::Ending(format!("it closed the connection: {error}"))
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, "larder")
            .body(Full::new(body))
            .map_err(|error| self.no_answer(error))?;
        // It ends with the response, or when the sender is dropped.
        tokio::spawn(connection);
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        answer.await.map_err(broken)
    }

    fn no_answer(&self, reason: impl fmt::Display) -> ClientError {
        ClientError::NoAnswer { dir: self.dir.clone(), reason: format!("{reason}") }
    }
}
