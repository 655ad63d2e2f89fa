//! The copy of an object onto itself with another storage class: the headers that preserve everything, and the objects
//! that are left alone because a copy would lose something.
//!
//! Observed on RGW 16.2.15 (`tests/ceph/rgw.py`, docs/decisions):
//! - Metadata are replaced as a whole, so all of them are sent again. Tags are lost even if they are sent.
//! - `x-amz-copy-source-if-match` is ignored; the same header without `-source` is checked. Both are sent.
//! - A PUT, a DELETE or a change of tags that comes while the copy reads wins; the copy then does nothing and still
//!   reports success. So the object is looked at again after it.
//! - One that comes while the copy writes can lose, and its client still gets success: RGW treats the loser as one that
//!   came a moment earlier and was overwritten. No condition of the copy prevents that, and RGW's own lifecycle
//!   transitions do the same. So only objects that are written once are moved.
//! - The ETag stays, also that of a multipart upload; the parts are gone.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Has the moment at which the object's bytes were created, in milliseconds of the Unix epoch.
pub const CREATED: &str = "x-amz-meta-larder-created";

/// Larger objects are not copied by one request.
pub const COPY_BYTES_MAX: u64 = 5 << 30;

/// Headers that S3 stores with an object, besides `x-amz-meta-`.
const KEPT: [&str; 6] =
    ["content-type", "cache-control", "content-disposition", "content-encoding", "content-language", "expires"];

/// Headers that show what a copy would lose or cannot read, and the reasons to report.
const LOST: [(&str, &str); 6] = [
    ("x-amz-tagging-count", "has tags, which a copy loses"),
    ("x-amz-website-redirect-location", "redirects, which a copy may lose"),
    ("x-amz-server-side-encryption", "is encrypted"),
    ("x-amz-server-side-encryption-customer-algorithm", "is encrypted"),
    ("x-amz-object-lock-mode", "is locked"),
    ("x-amz-object-lock-legal-hold", "is locked"),
];

/// The answer to `HEAD` for an object, and the result of its ACL.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// Its length.
    pub bytes: u64,
    /// True if the requesting user owns it, and there are no grants to others.
    pub is_private: bool,
}

impl Seen {
    fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Its storage class.
    pub fn class(&self) -> &str {
        self.text("x-amz-storage-class").unwrap_or("STANDARD")
    }

    /// The time at which its bytes were created, in milliseconds of the Unix epoch: as an earlier copy noted it, or
    /// `last_modified_ms`.
    pub fn created_ms(&self, last_modified_ms: u64) -> u64 {
        let noted = self.text(CREATED).and_then(|text| text.parse().ok());
        noted.filter(|noted: &u64| *noted <= last_modified_ms).unwrap_or(last_modified_ms)
    }

    /// The reason why it is left alone, if any.
    pub fn obstacle(&self) -> Option<&'static str> {
        let lost = LOST.iter().find(|(name, _)| self.headers.contains_key(*name)).map(|(_, what)| *what);
        let is_odd = self.text("x-rgw-object-type").is_some_and(|kind| kind != "Normal");
        lost.or(is_odd.then_some("can be appended to"))
            .or((!self.is_private).then_some("is another's or has grants, which a copy loses"))
            .or((self.bytes > COPY_BYTES_MAX).then_some("is larger than 5 GiB, which one request does not copy"))
            .or((!self.headers.contains_key("etag")).then_some("has no ETag to hold a copy to"))
            .or((!self.headers.contains_key("last-modified")).then_some("has no date to hold a copy to"))
    }

    /// The headers of the copy of `source` (`/bucket/key`, percent-encoded) onto itself with `class`.
    pub fn request(&self, source: &HeaderValue, class: &HeaderValue, created_ms: u64) -> HeaderMap {
        assert!(self.obstacle().is_none(), "nothing is lost by it");
        let mut headers = HeaderMap::new();
        let kept = |name: &HeaderName| KEPT.contains(&name.as_str()) || name.as_str().starts_with("x-amz-meta-");
        for (name, value) in self.headers.iter().filter(|(name, _)| kept(name)) {
            headers.append(name.clone(), value.clone());
        }
        for (name, of) in [("match", "etag"), ("unmodified-since", "last-modified")] {
            for kind in ["x-amz-copy-source-if-", "x-amz-copy-if-"] {
                let name = HeaderName::from_bytes(format!("{kind}{name}").as_bytes());
                let name = name.unwrap_or_else(|_| unreachable!("letters and dashes are a name"));
                headers.insert(name, self.headers[of].clone());
            }
        }
        headers.insert("x-amz-copy-source", source.clone());
        headers.insert("x-amz-storage-class", class.clone());
        headers.insert("x-amz-metadata-directive", HeaderValue::from_static("REPLACE"));
        headers.insert(CREATED, HeaderValue::from(created_ms));
        headers
    }
}
