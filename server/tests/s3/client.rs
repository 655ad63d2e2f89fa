//! A small S3 client that can also do what no well-behaved client does: signature version 4 in headers, URLs and
//! chunks, over a plain socket.

use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::SystemTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const SCOPE: &str = "us-east-1/s3/aws4_request";

/// The way in which a request proves its sender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Signed {
    /// Not at all.
    Not,
    /// In headers, the body's hash included.
    Headers,
    /// In headers, the body left out.
    Unsigned,
    /// In the URL.
    Url,
    /// In headers and in every chunk of the body, and in the trailer if there is one.
    Chunks,
    /// In headers, the body in unsigned chunks with a trailer.
    UnsignedChunks,
}

/// A request that is not yet sent.
#[derive(Clone)]
pub struct Call {
    method: &'static str,
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    late_headers: Vec<(String, String)>,
    body: Vec<u8>,
    trailer: Option<(String, String)>,
    chunk_bytes: usize,
    signed: Signed,
    user: (&'static str, &'static str),
    host: Option<String>,
    date: Option<String>,
    expires_s: u64,
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text of all elements of that name.
    pub fn all(&self, element: &str) -> Vec<String> {
        let text = self.text();
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        let parts = text.split(open.as_str()).skip(1);
        parts.filter_map(|part| Some(part.split_once(close.as_str())?.0.to_owned())).collect()
    }

    pub fn code(&self) -> String {
        self.all("Code").pop().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(bytes, hex_simd::AsciiCase::Lower)
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// `20261121T083000Z`, from the date in HTTP's form.
pub fn amz_date(time: SystemTime) -> String {
    let date = httpdate::fmt_http_date(time);
    let parts: Vec<&str> = date.split(' ').collect();
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == parts[2]).unwrap() + 1;
    format!("{}{month:02}{}T{}Z", parts[3], parts[1], parts[4].replace(':', ""))
}

impl Call {
    pub fn new(method: &'static str, path: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            query: BTreeMap::new(),
            headers: BTreeMap::new(),
            late_headers: Vec::new(),
            body: Vec::new(),
            trailer: None,
            chunk_bytes: 8192,
            signed: Signed::Headers,
            user: ("ALICE", "alices secret"),
            host: None,
            date: None,
            expires_s: 60,
        }
    }

    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.insert(name.into(), value.into());
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// A header that is added after signing.
    pub fn late_header(mut self, name: &str, value: &str) -> Self {
        self.late_headers.push((name.into(), value.into()));
        self
    }

    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// With a checksum of its body, for an operation that needs one.
    pub fn digested(self) -> Self {
        let sum = base64_simd::STANDARD.encode_to_string(Sha256::digest(&self.body));
        self.header("x-amz-checksum-sha256", &sum)
    }

    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailer = Some((name.into(), value.into()));
        self
    }

    pub fn chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    pub fn signed(mut self, signed: Signed) -> Self {
        self.signed = signed;
        self
    }

    pub fn user(mut self, key: &'static str, secret: &'static str) -> Self {
        self.user = (key, secret);
        self
    }

    /// By Bob.
    pub fn bobs(self) -> Self {
        self.user("BOB", "bobs secret")
    }

    /// Without a signature.
    pub fn unsigned(self) -> Self {
        self.signed(Signed::Not)
    }

    /// Sent to a host of this name.
    pub fn host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    /// Signed at that time rather than now.
    pub fn date(mut self, date: &str) -> Self {
        self.date = Some(date.to_owned());
        self
    }

    /// Sets the time in seconds for which a presigned URL is valid.
    pub fn expires_s(mut self, seconds: u64) -> Self {
        self.expires_s = seconds;
        self
    }

    fn key(&self, date: &str) -> Vec<u8> {
        let mut key = hmac(format!("AWS4{}", self.user.1).as_bytes(), &date[..8]);
        for part in SCOPE.split('/') {
            key = hmac(&key, part);
        }
        key
    }

    fn query_text(&self) -> String {
        let encode = |text: &str| utf8_percent_encode(text, PLAIN).to_string();
        let pairs = self.query.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        pairs.collect::<Vec<_>>().join("&")
    }

    fn signature(&self, date: &str, payload: &str, signed_names: &str) -> String {
        let signed = self.headers.iter().filter(|(name, _)| signed_names.split(';').any(|signed| signed == *name));
        let headers: Vec<String> = signed.map(|(name, value)| format!("{name}:{value}\n")).collect();
        let request = format!(
            "{}\n{}\n{}\n{}\n{signed_names}\n{payload}",
            self.method,
            self.path,
            self.query_text(),
            headers.concat()
        );
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{}/{SCOPE}\n{}", &date[..8], sha256_hex(request.as_bytes()));
        hex(&hmac(&self.key(date), &text))
    }

    fn payload(&self) -> String {
        match (self.signed, &self.trailer) {
            (Signed::Not | Signed::Headers, _) => sha256_hex(&self.body),
            (Signed::Unsigned | Signed::Url, _) => "UNSIGNED-PAYLOAD".into(),
            (Signed::Chunks, None) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".into(),
            (Signed::Chunks, Some(_)) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER".into(),
            (Signed::UnsignedChunks, _) => "STREAMING-UNSIGNED-PAYLOAD-TRAILER".into(),
        }
    }

    /// The body in chunks.
    fn chunked(&self, date: &str, seed: String) -> Vec<u8> {
        let signs = self.signed == Signed::Chunks;
        let key = self.key(date);
        let sign = |kind: &str, before: &str, rest: &str| {
            let text = format!("AWS4-HMAC-SHA256-{kind}\n{date}\n{}/{SCOPE}\n{before}\n{rest}", &date[..8]);
            hex(&hmac(&key, &text))
        };
        let mut before = seed;
        let mut sent = Vec::new();
        for chunk in self.body.chunks(self.chunk_bytes).chain([&[][..]]) {
            sent.extend_from_slice(format!("{:x}", chunk.len()).as_bytes());
            if signs {
                before = sign("PAYLOAD", &before, &format!("{}\n{}", sha256_hex(b""), sha256_hex(chunk)));
                sent.extend_from_slice(format!(";chunk-signature={before}").as_bytes());
            }
            sent.extend_from_slice(b"\r\n");
            sent.extend_from_slice(chunk);
            if !chunk.is_empty() {
                sent.extend_from_slice(b"\r\n");
            }
        }
        if let Some((name, value)) = &self.trailer {
            sent.extend_from_slice(format!("{name}:{value}\r\n").as_bytes());
            if signs {
                let signature = sign("TRAILER", &before, &sha256_hex(format!("{name}:{value}\n").as_bytes()));
                sent.extend_from_slice(format!("x-amz-trailer-signature:{signature}\r\n").as_bytes());
            }
        }
        sent.extend_from_slice(b"\r\n");
        sent
    }

    /// The request's head and body, as they go over the wire.
    pub fn wire(mut self, address: SocketAddr) -> (Vec<u8>, Vec<u8>) {
        let date = self.date.clone().unwrap_or_else(|| amz_date(SystemTime::now()));
        self.headers.insert("host".into(), self.host.clone().unwrap_or_else(|| address.to_string()));
        let mut body = self.body.clone();
        let payload = self.payload();
        let credential = format!("{}/{}/{SCOPE}", self.user.0, &date[..8]);
        match self.signed {
            Signed::Not => {}
            Signed::Url => {
                let names = self.headers.keys().cloned().collect::<Vec<_>>().join(";");
                for (name, value) in [
                    ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
                    ("X-Amz-Credential", &credential),
                    ("X-Amz-Date", &date),
                    ("X-Amz-Expires", &self.expires_s.to_string()),
                    ("X-Amz-SignedHeaders", &names),
                ] {
                    self.query.insert(name.into(), value.into());
                }
                let signature = self.signature(&date, &payload, &names);
                self.query.insert("X-Amz-Signature".into(), signature);
            }
            _ => {
                self.headers.insert("x-amz-date".into(), date.clone());
                self.headers.insert("x-amz-content-sha256".into(), payload.clone());
                if payload.starts_with("STREAMING") {
                    self.headers.insert("content-encoding".into(), "aws-chunked".into());
                    self.headers.insert("x-amz-decoded-content-length".into(), body.len().to_string());
                    if let Some((name, _)) = &self.trailer {
                        self.headers.insert("x-amz-trailer".into(), name.clone());
                    }
                }
                let names = self.headers.keys().cloned().collect::<Vec<_>>().join(";");
                let signature = self.signature(&date, &payload, &names);
                if payload.starts_with("STREAMING") {
                    body = self.chunked(&date, signature.clone());
                }
                let value =
                    format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}");
                self.headers.insert("authorization".into(), value);
            }
        }
        let query = self.query_text();
        let mark = if query.is_empty() { "" } else { "?" };
        let mut head = format!("{} {}{mark}{query} HTTP/1.1\r\nconnection: close\r\n", self.method, self.path);
        let has_length = self.late_headers.iter().any(|(name, _)| name == "content-length");
        if !has_length && (!body.is_empty() || matches!(self.method, "PUT" | "POST")) {
            self.late_headers.push(("content-length".into(), body.len().to_string()));
        }
        let late = self.late_headers.iter().map(|(name, value)| (name, value));
        for (name, value) in self.headers.iter().chain(late) {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        (head.into_bytes(), body)
    }

    /// Sends it and reads the answer to its end.
    pub async fn send(self, address: SocketAddr) -> Reply {
        let (head, body) = self.wire(address);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&head).await.unwrap();
        // A server may answer before it has read everything.
        let _ = stream.write_all(&body).await;
        read_reply(&mut stream).await
    }
}

/// Reads an answer to the end of its connection.
pub async fn read_reply(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(bytes.len());
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    let headers =
        lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_lowercase(), v.to_owned())).collect();
    Reply { status, headers, body: bytes.get(end + 4..).unwrap_or_default().to_vec() }
}
