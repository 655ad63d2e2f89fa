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
mod traffic;
mod upload;
mod versions;
mod xml;

pub use host::Domain;
pub use serve::serve;
pub use traffic::{Traffic, TrafficSeen};

pub use store::{
    Committed, Completion, Condition, GetBody, ListPage, ListQuery, Located, ObjectBytes, ObjectStore, PutMeta,
    PutSink, Restatement, StoreError, StoreFuture, UploadMeta, UploadPage, UploadQuery,
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
    /// Of those, requests of one user.
    pub user_requests: usize,
    /// Of those, unsigned requests from one address.
    pub peer_requests: usize,
    /// Of those, unsigned requests from all addresses.
    pub unsigned_requests: usize,
    /// Connections at once. For one more the longest idle one is closed; if none is idle, it waits to be accepted.
    pub connections: usize,
    /// Of those, connections from one address. For one more its longest idle one is closed, or else the new one.
    pub peer_connections: usize,
    /// The longest head of a request, in bytes.
    pub head_bytes: usize,
    /// The least that a client must send or take while it is waited for, in bytes per second, on average over `stall`.
    pub min_bytes_per_s: u64,
    /// The largest object of one PUT, in bytes.
    pub put_bytes: u64,
    /// How long a client may take to send a request's head, or the next piece of its body, or to take the next piece of
    /// an answer.
    pub stall: Duration,
    /// How long requests in flight may go on after shutdown was asked for.
    pub grace: Duration,
}

/// What a usual client of many threads takes. With fewer, it would be cut off again and again where a low limit of open
/// files leaves few connections in all; there, idle ones that make room for others have to do.
const PEER_CONNECTIONS_MIN: usize = 32;

impl Limits {
    /// Limits with the shares of `requests` and `connections` that nobody said otherwise about: three quarters of the
    /// requests for one user, a quarter for one address without a signature, half for all of those; half of the
    /// connections for one address, but no fewer than 32 as long as there are so many.
    #[must_use]
    pub fn of(requests: usize, connections: usize) -> Self {
        let share = |whole: usize, quarters: usize| (whole * quarters).div_ceil(4).max(1);
        Self {
            requests,
            user_requests: share(requests, 3),
            peer_requests: share(requests, 1),
            unsigned_requests: share(requests, 2),
            connections,
            peer_connections: share(connections, 2).max(connections.min(PEER_CONNECTIONS_MIN)),
            head_bytes: 64 << 10,
            min_bytes_per_s: 1 << 10,
            put_bytes: 5 << 30,
            stall: Duration::from_mins(1),
            grace: Duration::from_secs(30),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(256, 1024)
    }
}
