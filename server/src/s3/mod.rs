//! The S3 front: HTTP, signatures, digests and XML before an [`ObjectStore`].
//!
//! `s3s` verifies signatures, takes `aws-chunked` bodies apart and knows S3's XML; it stays behind this module. Every
//! request goes through one `route`, which knows the operations, headers and query parameters we honour. What it does
//! not know is answered with `NotImplemented`: a client never gets a success that means something else than it asked
//! for.
//!
//! ```text
//! serve -> gate (limits, request ids, error bodies) -> s3s (signature) -> route
//!       -> bucket | put | get | list | delete | copy | upload | access | tagging | ... -> ObjectStore
//! ```

mod access;
mod ask;
mod attributes;
mod bucket;
mod complete;
mod configuration;
mod copy;
mod delete;
mod digest;
mod error;
mod framing;
mod gate;
mod get;
mod honour;
mod host;
mod list;
mod md5;
mod parts;
mod precondition;
mod put;
mod route;
mod serve;
mod stall;
pub mod store;
mod tagging;
mod upload;
mod versions;
mod xml;

pub use host::Domain;
pub use serve::serve;

pub use store::{
    Committed, Completion, Condition, GetBody, ListPage, ListQuery, ObjectStore, PutMeta, PutSink, Restatement,
    StoreError, StoreFuture, UploadMeta, UploadPage, UploadQuery,
};

use std::time::Duration;

/// The one region this store says it is in.
pub const REGION: &str = "us-east-1";

/// The ETag of an object of these bytes that was put in one piece.
pub(crate) fn etag_of(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(md5::digest(bytes), hex_simd::AsciiCase::Lower)
}

/// Whose requests are taken.
pub trait Keys: Send + Sync + 'static {
    /// The secret of `access_key`, or nothing if nobody has that key.
    fn secret(&self, access_key: &str) -> Option<String>;

    /// The name of who has `access_key`: the owner of buckets.
    fn user(&self, access_key: &str) -> Option<String>;
}

/// How much the front takes on.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests at once, those whose answer is still being sent included; more are told to slow down.
    pub requests: usize,
    /// Connections at once; more wait to be accepted.
    pub connections: usize,
    /// The largest object of one PUT, in bytes.
    pub put_bytes: u64,
    /// How long a client may take to send a request's head, or the next piece of its body, or to take the next piece of
    /// an answer.
    pub stall: Duration,
    /// How long requests in flight may go on after shutdown was asked for.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 256,
            connections: 1024,
            put_bytes: 5 << 30,
            stall: Duration::from_mins(1),
            grace: Duration::from_secs(30),
        }
    }
}
