//! A client of S3 for the demo: presigned requests, each on a connection of its own.

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;

/// The time for which a URL is valid.
const VALID: Duration = Duration::from_mins(5);

/// A client for one bucket.
#[derive(Clone)]
pub(super) struct S3Client {
    address: SocketAddr,
    bucket: Bucket,
    keys: Credentials,
}

impl S3Client {
    /// A client for the bucket `name` of the server at `address`.
    pub(super) fn new(address: SocketAddr, name: &str, keys: &server::data_dir::Credentials) -> anyhow::Result<Self> {
        let endpoint = format!("http://{address}").parse().context("an address makes a URL")?;
        let bucket = Bucket::new(endpoint, UrlStyle::Path, name.to_owned(), server::REGION)?;
        let keys = Credentials::new(&keys.access_key, &keys.secret_key);
        Ok(Self { address, bucket, keys })
    }

    pub(super) async fn create_bucket(&self) -> anyhow::Result<()> {
        let url = self.bucket.create_bucket(&self.keys).sign(VALID);
        self.send(Method::PUT, url.as_str(), Bytes::new()).await.map(drop)
    }

    pub(super) async fn put(&self, key: &str, body: Bytes) -> anyhow::Result<()> {
        let url = self.bucket.put_object(Some(&self.keys), key).sign(VALID);
        self.send(Method::PUT, url.as_str(), body).await.map(drop)
    }

    pub(super) async fn get(&self, key: &str) -> anyhow::Result<Bytes> {
        let url = self.bucket.get_object(Some(&self.keys), key).sign(VALID);
        self.send(Method::GET, url.as_str(), Bytes::new()).await
    }

    async fn send(&self, method: Method, url: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let stream = TcpStream::connect(self.address).await.context("connecting to the demo's server")?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with the answer.
        tokio::spawn(connection);
        let host = self.address.to_string();
        let target = url.split_once(&host).map_or(url, |(_, target)| target);
        let request = Request::builder().method(method).uri(target).header(header::HOST, &host);
        let answer = sender.send_request(request.body(Full::new(body))?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "the demo's server answered {status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}
