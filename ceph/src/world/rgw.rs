//! A client of RGW's S3 for migration: one request after the other, on a persistent connection.

pub mod answers;
pub mod signing;

use answers::{Acl, BucketList, Entry, Failure, Lifecycle, Listing, Versioning};
use bytes::Bytes;
use disk::clock;
use http::header::{HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use signing::Keys;
use std::time::{Duration, UNIX_EPOCH};
use tokio::net::TcpStream;

/// Maximum size of an answer, in bytes; a page of a listing has 1,000 keys.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Maximum time of an answer; a copy of 5 GiB is answered when it is done.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Reasons why a request to RGW failed.
#[derive(Debug, thiserror::Error)]
pub enum RgwError {
    /// The address is invalid.
    #[error("`{0}` is no address of RGW; write http://HOST:PORT (RGW behind TLS alone was not tried and is refused)")]
    Endpoint(String),
    /// It cannot be reached, or did not answer in time.
    #[error("RGW on {host} does not answer: {reason}")]
    Unreachable {
        /// Host and port.
        host: String,
        /// The reason.
        reason: String,
    },
    /// It refused.
    #[error("{what}: RGW answers {status} {code}")]
    Refused {
        /// The request.
        what: String,
        /// The status.
        status: StatusCode,
        /// The code of S3.
        code: String,
    },
    /// Its answer is not S3's, or the request cannot be made.
    #[error("{what}: {reason}")]
    Answer {
        /// The request.
        what: String,
        /// The reason.
        reason: String,
    },
}

impl RgwError {
    /// The status of a refusal.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// A request to be signed.
struct Call {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: String,
}

impl Call {
    fn new(method: Method, path: &str, query: &[(&str, &str)]) -> Self {
        let mut target = signing::path(path);
        if !query.is_empty() {
            target = format!("{target}?{}", signing::query(query));
        }
        Self { method, target, headers: HeaderMap::new(), body: String::new() }
    }

    fn what(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// The client.
pub struct Rgw {
    host: String,
    keys: Keys,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Rgw {
    /// A client of the RGW on `endpoint`, `http://host:port`.
    pub fn new(endpoint: &str, keys: Keys) -> Result<Self, RgwError> {
        let wrong = || RgwError::Endpoint(endpoint.to_owned());
        let host = endpoint.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
        if host.is_empty() || host.contains(['/', '@', '?']) || HeaderValue::from_str(host).is_err() {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), keys, connection: None })
    }

    /// The buckets of the user, and the user.
    pub async fn buckets(&mut self) -> Result<BucketList, RgwError> {
        self.xml("/", &[]).await
    }

    /// The objects of `bucket` after the key `after`, at most 1,000, with decoded keys; and true if more follow.
    pub async fn list(&mut self, bucket: &str, after: &str) -> Result<(Vec<Entry>, bool), RgwError> {
        let query = [("list-type", "2"), ("encoding-type", "url"), ("start-after", after)];
        let query = if after.is_empty() { &query[..2] } else { &query[..] };
        let mut page: Listing = self.xml(&format!("/{bucket}"), query).await?;
        for entry in &mut page.contents {
            let wrong = || RgwError::Answer { what: entry.key.clone(), reason: "the key is no UTF-8".to_owned() };
            entry.key = percent_decode_str(&entry.key).decode_utf8().map_err(|_| wrong())?.into_owned();
        }
        Ok((page.contents, page.is_truncated))
    }

    /// The headers of an object.
    pub async fn head(&mut self, path: &str) -> Result<HeaderMap, RgwError> {
        Ok(self.request(Call::new(Method::HEAD, path, &[])).await?.0)
    }

    /// The access control list of an object.
    pub async fn acl(&mut self, path: &str) -> Result<Acl, RgwError> {
        self.xml(path, &[("acl", "")]).await
    }

    /// True if `bucket` keeps versions, or did.
    pub async fn is_versioned(&mut self, bucket: &str) -> Result<bool, RgwError> {
        let versioning: Versioning = self.xml(&format!("/{bucket}"), &[("versioning", "")]).await?;
        Ok(versioning.status.is_some_and(|status| !status.is_empty()))
    }

    /// The IDs of the rules of `bucket`'s lifecycle configuration; none if it has none.
    pub async fn lifecycle(&mut self, bucket: &str) -> Result<Vec<String>, RgwError> {
        match self.xml::<Lifecycle>(&format!("/{bucket}"), &[("lifecycle", "")]).await {
            Ok(lifecycle) => Ok(lifecycle.rule.into_iter().map(|rule| rule.id).collect()),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the lifecycle configuration of `bucket`; removes it for `None`.
    pub async fn set_lifecycle(&mut self, bucket: &str, xml: Option<String>) -> Result<(), RgwError> {
        let method = if xml.is_some() { Method::PUT } else { Method::DELETE };
        let call = Call::new(method, &format!("/{bucket}"), &[("lifecycle", "")]);
        self.request(Call { body: xml.unwrap_or_default(), ..call }).await.map(drop)
    }

    /// `CopyObject` with these headers. A copy may fail after its status is sent; S3 then reports that in the body.
    pub async fn copy(&mut self, path: &str, headers: HeaderMap) -> Result<(), RgwError> {
        let (_, body) = self.request(Call { headers, ..Call::new(Method::PUT, path, &[]) }).await?;
        match answers::decode::<Failure>(&body) {
            Ok(Failure { code }) if !code.is_empty() => Err(refused(&format!("PUT {path}"), StatusCode::OK, code)),
            _ => Ok(()),
        }
    }

    async fn xml<T: serde::de::DeserializeOwned>(&mut self, path: &str, query: &[(&str, &str)]) -> Result<T, RgwError> {
        let (_, body) = self.request(Call::new(Method::GET, path, query)).await?;
        let reason = |reason| RgwError::Answer { what: format!("GET {path}"), reason };
        answers::decode(&body).map_err(reason)
    }

    /// Sends one request; a persistent connection that is gone is opened again.
    async fn request(&mut self, call: Call) -> Result<(HeaderMap, Bytes), RgwError> {
        let what = call.what();
        let request = self.signed(call).map_err(|reason| RgwError::Answer { what: what.clone(), reason })?;
        let host = self.host.clone();
        let unreachable = |reason: String| RgwError::Unreachable { host: host.clone(), reason };
        let answered = tokio::time::timeout(TIMEOUT, self.send(request));
        let answer = answered.await.map_err(|_| unreachable(format!("no answer in {TIMEOUT:?}")))?;
        let (status, headers, body) = answer.map_err(&unreachable)?;
        if status.is_success() {
            return Ok((headers, body));
        }
        let code = answers::decode::<Failure>(&body).map(|failure| failure.code).unwrap_or_default();
        Err(refused(&what, status, code))
    }

    fn signed(&self, call: Call) -> Result<Request<Full<Bytes>>, String> {
        let Call { method, target, mut headers, body } = call;
        let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        headers.insert(http::header::HOST, value(&self.host)?);
        headers.insert("x-amz-date", value(&amz_date(clock::since_epoch()))?);
        headers.insert("x-amz-content-sha256", value(&signing::digest(body.as_bytes()))?);
        let authorization = signing::authorization(&self.keys, method.as_str(), &target, &headers);
        headers.insert(http::header::AUTHORIZATION, value(&authorization)?);
        let request = Request::builder().method(method).uri(target).body(Full::new(Bytes::from(body)));
        let mut request = request.map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, HeaderMap, Bytes), String> {
        let mut connection = match self.connection.take() {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        if connection.ready().await.is_err() {
            connection = self.connect().await?;
        }
        let answer = connection.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
        self.connection = Some(connection);
        Ok((head.status, head.headers, body.to_bytes()))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream = TcpStream::connect(&self.host).await.map_err(|error| error.to_string())?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to RGW ended");
            }
        });
        Ok(sender)
    }
}

fn refused(what: &str, status: StatusCode, code: String) -> RgwError {
    RgwError::Refused { what: what.to_owned(), status, code }
}

/// `20261121T083000Z`, from the date in HTTP's form.
fn amz_date(since_epoch: Duration) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let date = httpdate::fmt_http_date(UNIX_EPOCH + since_epoch);
    let parts: Vec<&str> = date.split(' ').collect();
    let month = 1 + MONTHS.iter().position(|month| *month == parts[2]).unwrap_or_default();
    format!("{}{month:02}{}T{}Z", parts[3], parts[1], parts[4].replace(':', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_as_the_signature_wants_it() {
        assert_eq!(amz_date(Duration::from_hours(380_376)), "20130524T000000Z");
        assert_eq!(amz_date(Duration::from_secs(1_709_251_199)), "20240229T235959Z");
    }

    #[test]
    fn other_addresses_are_refused() {
        let keys = || Keys { access: String::new(), secret: String::new(), region: String::new() };
        for wrong in ["https://a", "localhost:80", "http://", "http://a/b", "http://u@a"] {
            assert!(Rgw::new(wrong, keys()).is_err(), "{wrong}");
        }
        assert!(Rgw::new("http://127.0.0.1:7480/", keys()).is_ok());
    }
}
