//! The other end of the admin API, for the command line.
//!
//! A server may go while it is asked: it closes the connection before its answer or in the middle of it, says that it
//! is stopping, or answers no more. Whoever asks is then told what he would be told a moment later, that no server
//! runs; if he asked for a change, also that it may have been made. What a repartition is asked for may take minutes,
//! to look through millions of objects: that is waited for as long as the server answers other questions meanwhile.

use super::{ErrorBody, STOPPING, socket};
use crate::data_dir::{DataDir, DataDirError};
use crate::repartition;
use crate::report::{DriveReport, Explanation, NewKeys, Status, UserReport};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// How long a server may take to answer; it waits for no drive, so this is long.
const ANSWER_LIMIT: Duration = Duration::from_secs(25);
/// How long a server that closed a connection may take to be gone. One that is there after that is not going.
const GOING_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether it is gone.
const GOING_STEP: Duration = Duration::from_millis(50);

/// Asks the server of one data directory.
#[derive(Debug)]
pub struct Client {
    dir: PathBuf,
    place: socket::Place,
}

/// Why a server's answer did not come.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// Nobody listens.
    #[error("no server runs on {dir}; start it with `larder serve --data {dir}`", dir = .0.display())]
    NoServer(PathBuf),
    /// It went while it was asked for a change.
    #[error(
        "no server runs on {dir} any more: it ended before it answered; start it with `larder serve --data {dir}`, and \
         look whether what was asked is done",
        dir = .0.display()
    )]
    Unfinished(PathBuf),
    /// The socket is somebody else's.
    #[error("the server on {} belongs to another user; ask as the user who started it", .0.display())]
    NotYours(PathBuf),
    /// It listens, but does not answer.
    #[error("the server on {} does not answer ({reason}); look into its log", .dir.display())]
    NoAnswer {
        /// The data directory.
        dir: PathBuf,
        /// What happened.
        reason: String,
    },
    /// It answers with an error.
    #[error("{0}")]
    Refused(String),
}

/// How long an answer is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// [`ANSWER_LIMIT`].
    Briefly,
    /// As long as the server answers others.
    WhileItWorks,
}

/// Why a try came to nothing.
enum Missed {
    /// The server seems to be going.
    Going(String),
    /// Anything else.
    Error(ClientError),
}

impl From<ClientError> for Missed {
    fn from(error: ClientError) -> Self {
        Self::Error(error)
    }
}

impl Client {
    /// A client of the server on the data directory `dir`. Connects to nothing yet.
    ///
    /// # Errors
    /// When there is no data directory.
    pub fn of(dir: &Path) -> Result<Self, ClientError> {
        if !DataDir::exists(dir) {
            return Err(DataDirError::Missing(dir.to_owned()).into());
        }
        let place = socket::Place::in_dir(dir)
            .map_err(|error| ClientError::NoAnswer { dir: dir.to_owned(), reason: error.to_string() })?;
        Ok(Self { dir: dir.to_owned(), place })
    }

    /// How it goes.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/status").await?.ok_or_else(|| self.silent("it knows no /status"))
    }

    /// Where an object lies, if there is such an object.
    ///
    /// # Errors
    /// When no server answers, or it cannot tell.
    pub async fn explain(&self, bucket: &str, key: &str) -> Result<Option<Explanation>, ClientError> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("bucket", bucket)
            .append_pair("key", key)
            .finish();
        self.get(&format!("/explain?{query}")).await
    }

    /// The drives, by number.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn drives(&self) -> Result<Vec<DriveReport>, ClientError> {
        self.get("/drives").await?.ok_or_else(|| self.silent("it knows no /drives"))
    }

    /// The users, root first and then by name.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn users(&self) -> Result<Vec<UserReport>, ClientError> {
        self.get("/users").await?.ok_or_else(|| self.silent("it knows no /users"))
    }

    /// Makes a user.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn add_user(&self, name: &str) -> Result<NewKeys, ClientError> {
        self.of_user(Method::POST, "/users", name).await
    }

    /// Gives a user other keys.
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

    /// Plans a repartition or begins one.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn repartition(&self, request: &repartition::Request) -> Result<repartition::JobReport, ClientError> {
        let asked = serde_json::to_string(request).map_err(|error| ClientError::Refused(error.to_string()))?;
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("request", &asked).finish();
        let answer = self.ask_at_length(Method::POST, &format!("/repartition?{query}"), Wait::WhileItWorks).await?;
        answer.ok_or_else(|| self.silent("it knows no /repartition"))
    }

    /// The repartition jobs, by number.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn repartitions(&self) -> Result<Vec<repartition::JobReport>, ClientError> {
        self.get("/repartition").await?.ok_or_else(|| self.silent("it knows no /repartition"))
    }

    /// A repartition job, if there is one of that number.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn repartition_job(&self, job: u64) -> Result<Option<repartition::JobReport>, ClientError> {
        self.get(&format!("/repartition?job={job}")).await
    }

    /// Has a repartition job `pause`, `resume` or `cancel`, if there is one of that number.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn tell_repartition(&self, job: u64, what: &str) -> Result<Option<repartition::JobReport>, ClientError> {
        self.ask_at_length(Method::POST, &format!("/repartition/{what}?job={job}"), Wait::WhileItWorks).await
    }

    async fn of_user<T: DeserializeOwned>(&self, method: Method, path: &str, name: &str) -> Result<T, ClientError> {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("name", name).finish();
        let answer = self.ask(method, &format!("{path}?{query}")).await?;
        answer.ok_or_else(|| self.silent("it knows no /users"))
    }

    /// Says that drive `drive` failed for good. Nothing if there is no such drive.
    ///
    /// # Errors
    /// When no server answers, it cannot remember it, or it may lose blobs by it and `force` is not set.
    pub async fn fail_drive(&self, drive: u32, force: bool) -> Result<Option<DriveReport>, ClientError> {
        self.ask(Method::POST, &format!("/drives/fail?drive={drive}&force={force}")).await
    }

    /// Has an empty directory in the place of drive `drive`, which failed, become that drive. Nothing if there is no
    /// such drive.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub async fn replace_drive(&self, drive: u32) -> Result<Option<DriveReport>, ClientError> {
        self.ask(Method::POST, &format!("/drives/replace?drive={drive}")).await
    }

    async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<Option<T>, ClientError> {
        self.ask(Method::GET, target).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, target: &str) -> Result<Option<T>, ClientError> {
        self.ask_at_length(method, target, Wait::Briefly).await
    }

    /// The answer to a request; nothing for 404. A server that goes meanwhile is waited for until it is gone; a GET is
    /// asked again, since another one may have come instead.
    async fn ask_at_length<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        wait: Wait,
    ) -> Result<Option<T>, ClientError> {
        let mut missed = match self.answer(&method, target, wait).await {
            Err(Missed::Going(reason)) => reason,
            Err(Missed::Error(error)) => return Err(error),
            Ok(answer) => return Ok(answer),
        };
        let end = Instant::now() + GOING_LIMIT;
        while Instant::now() < end {
            tokio::time::sleep(GOING_STEP).await;
            if method != Method::GET {
                // Not asked again: the change may have been made.
                if let Err(ClientError::NoServer(dir)) = self.connect().await {
                    return Err(ClientError::Unfinished(dir));
                }
                continue;
            }
            match self.answer(&method, target, wait).await {
                Err(Missed::Going(reason)) => missed = reason,
                Err(Missed::Error(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
        Err(self.silent(missed))
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        method: &Method,
        target: &str,
        wait: Wait,
    ) -> Result<Option<T>, Missed> {
        let stream = self.connect().await?;
        let exchange = self.exchange(stream, method, target);
        tokio::pin!(exchange);
        let (status, body) = loop {
            match tokio::time::timeout(ANSWER_LIMIT, &mut exchange).await {
                Ok(answer) => break answer?,
                Err(_) if wait == Wait::WhileItWorks && self.answers().await => {}
                Err(_) => return Err(self.too_late(method).await.into()),
            }
        };
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if status != StatusCode::OK {
            return Err(match serde_json::from_slice::<ErrorBody>(&body) {
                Ok(ErrorBody { error }) if error == STOPPING => Missed::Going(error),
                Ok(ErrorBody { error }) => ClientError::Refused(error).into(),
                Err(_) => self.silent(status).into(),
            });
        }
        serde_json::from_slice(&body).map(Some).map_err(|error| self.silent(error).into())
    }

    /// Whether the server answers another question.
    async fn answers(&self) -> bool {
        let Ok(stream) = self.connect().await else { return false };
        let status = self.exchange(stream, &Method::GET, "/status");
        matches!(tokio::time::timeout(ANSWER_LIMIT, status).await, Ok(Ok(_)))
    }

    /// What it means that no answer came in time.
    async fn too_late(&self, method: &Method) -> ClientError {
        match self.connect().await {
            Err(ClientError::NoServer(dir)) if method != Method::GET => ClientError::Unfinished(dir),
            Err(error) => error,
            Ok(_) => self.silent("it took too long"),
        }
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        self.place.connect().await.map_err(|error| match error.kind() {
            // What a killed server leaves refuses; what a stopped one leaves is nothing.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoServer(self.dir.clone()),
            io::ErrorKind::PermissionDenied => ClientError::NotYours(self.dir.clone()),
            _ => self.silent(error),
        })
    }

    async fn exchange(&self, stream: UnixStream, method: &Method, target: &str) -> Result<(StatusCode, Bytes), Missed> {
        let broken = |error: hyper::Error| {
            if error.is_parse() {
                return Missed::Error(self.silent(error));
            }
            Missed::Going(format!("it closed the connection: {error}"))
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, "larder")
            .body(Empty::<Bytes>::new())
            .map_err(|error| self.silent(error))?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        // The connection only has to be driven until the answer is complete.
        tokio::pin!(answer);
        tokio::select! {
            answer = &mut answer => answer.map_err(broken),
            ended = connection => match ended {
                Ok(()) => answer.await.map_err(broken),
                Err(error) => Err(broken(error)),
            },
        }
    }

    fn silent(&self, reason: impl fmt::Display) -> ClientError {
        ClientError::NoAnswer { dir: self.dir.clone(), reason: format!("{reason}") }
    }
}
