//! The S3 protocol over HTTP, in front of an [`ObjectStore`].
//!
//! The protocol library `s3s` verifies signatures, decodes `aws-chunked` bodies, and reads and writes S3's XML. Its own
//! dispatch is not used, because it ignores headers and query parameters that it does not know. Here a request is
//! refused if a header or parameter of S3 asks for anything that is not served. So a client never gets a success that
//! means something else than it asked for.
//!
//! ```text
//! serve -> admission (limits, request ids, error responses) -> s3s (signature)
//!       -> route -> request (+ validation by parameters)
//!       -> bucket | put | get | list | delete | copy | upload | access | tagging | ... -> ObjectStore
//! ```

mod access;
mod admission;
mod attributes;
mod bucket;
mod complete;
mod configuration;
mod copy;
mod delete;
mod digest;
mod error;
mod framing;
mod frontend;
mod get;
mod host;
mod keys;
pub mod latency;
mod limits;
mod list;
mod operation;
mod parallel_md5;
mod parameters;
mod parts;
mod places;
mod precondition;
mod put;
mod refused;
mod request;
mod response;
mod route;
mod serve;
mod stall;
pub mod store;
mod tagging;
mod tls;
mod traffic;
mod upload;
mod upload_id;
mod validation;
mod versions;
mod xml;

pub use digest::{EtagDigest, etag_of};
pub use frontend::Frontend;
pub use host::HostDomain;
pub use keys::{AccessKeys, REGION};
pub use limits::S3Limits;
pub use serve::serve;
pub use store::{
    Completion, GetBody, Located, ObjectBytes, ObjectStore, PartId, PutSink, ReadBytes, ReadyBytes, ServiceError,
    ServiceFuture,
};
pub use tls::{Tls, TlsError};
pub use traffic::{Traffic, TrafficStats};
