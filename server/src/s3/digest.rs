//! Content digests: what a client claims of its bytes, and what they really are.
//!
//! MD5 (the `ETag`) is by far the slowest and runs beside all else, in [`super::md5`]. The others keep pace with what a
//! socket gives, and are computed where the bytes pass.

use super::error::{Code, Fault};
use super::md5::{self, HashingEnded, Md5, Md5Workers};
use bytes::Bytes;
use catalog::{Checksum, ChecksumKind};
use http::{HeaderMap, HeaderValue};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};

/// Checksums by the end of their header's name, `x-amz-checksum-`.
const KINDS: [(ChecksumKind, &str, usize); 5] = [
    (ChecksumKind::Crc32, "crc32", 4),
    (ChecksumKind::Crc32c, "crc32c", 4),
    (ChecksumKind::Crc64Nvme, "crc64nvme", 8),
    (ChecksumKind::Sha1, "sha1", 20),
    (ChecksumKind::Sha256, "sha256", 32),
];

const PREFIX: &str = "x-amz-checksum-";

/// How S3 spells a checksum's kind in headers.
pub(super) fn spelling(kind: ChecksumKind) -> &'static str {
    row(kind).1
}

fn row(kind: ChecksumKind) -> &'static (ChecksumKind, &'static str, usize) {
    KINDS.iter().find(|row| row.0 == kind).expect("every kind has its row")
}

/// The kind whose header is `name` (lower-case), if it is a checksum's.
pub(super) fn kind_of_header(name: &str) -> Option<ChecksumKind> {
    let end = name.strip_prefix(PREFIX)?;
    KINDS.iter().find(|row| row.1 == end).map(|row| row.0)
}

/// Where a claimed checksum is to be found.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    /// Already read, as canonical base64.
    Header(ChecksumKind, String),
    /// In the trailer, behind the body.
    Trailer(ChecksumKind),
}

/// What a client says of the bytes it sends.
#[derive(Debug, Default)]
pub(super) struct Claims {
    md5: Option<[u8; 16]>,
    checksum: Option<Claim>,
}

impl Claims {
    /// The claims of a request's headers.
    ///
    /// # Errors
    /// Claims that cannot be read, contradict each other, or are of a kind that cannot be verified.
    pub fn of(headers: &HeaderMap) -> Result<Self, Fault> {
        let md5 = headers.get("content-md5").map(parse_md5).transpose()?;
        let mut checksum = None;
        for (name, value) in headers {
            let claim = match kind_of_header(name.as_str()) {
                Some(kind) => Claim::Header(kind, parse_checksum(kind, value)?),
                None if name == "x-amz-trailer" => Claim::Trailer(parse_trailer_name(value)?),
                None => continue,
            };
            if checksum.replace(claim).is_some() {
                let message = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
                return Err(Fault::new(Code::InvalidRequest, message));
            }
        }
        let claims = Self { md5, checksum };
        claims.check_announced(headers)?;
        Ok(claims)
    }

    /// A client that names its algorithm must send a checksum of it.
    fn check_announced(&self, headers: &HeaderMap) -> Result<(), Fault> {
        let Some(announced) = headers.get("x-amz-sdk-checksum-algorithm") else { return Ok(()) };
        let announced = announced.to_str().unwrap_or_default();
        match self.kind() {
            Some(kind) if spelling(kind).eq_ignore_ascii_case(announced) => Ok(()),
            Some(_) => {
                let message = "Value for x-amz-sdk-checksum-algorithm header is invalid.";
                Err(Fault::new(Code::InvalidRequest, message))
            }
            None => {
                let message = "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or \
                               x-amz-trailer headers were found.";
                Err(Fault::new(Code::InvalidRequest, message))
            }
        }
    }

    fn kind(&self) -> Option<ChecksumKind> {
        match self.checksum {
            Some(Claim::Header(kind, _) | Claim::Trailer(kind)) => Some(kind),
            None => None,
        }
    }

    /// A hasher for all that these claims are about. Without a claimed checksum CRC-64/NVME is taken, as S3 does, so
    /// that every object has one.
    pub fn hasher(&self, workers: &Md5Workers) -> Hasher {
        Hasher { md5: workers.upload(), checksum: Checksummer::new(self.kind().unwrap_or(ChecksumKind::Crc64Nvme)) }
    }

    /// The same of `bytes` that are few, at once.
    pub fn digests(&self, bytes: &[u8]) -> Digests {
        let mut checksum = Checksummer::new(self.kind().unwrap_or(ChecksumKind::Crc64Nvme));
        checksum.sums.update(bytes);
        Digests { md5: md5::digest(bytes), checksum: checksum.finish() }
    }

    /// Holds the claims against what the bytes are.
    ///
    /// # Errors
    /// `BadDigest` where a claim is wrong, `MalformedTrailerError` where an announced one did not come.
    pub fn verify(&self, trailers: Option<&HeaderMap>, digests: &Digests) -> Result<(), Fault> {
        if self.md5.is_some_and(|md5| md5 != digests.md5) {
            return Err(Fault::new(Code::BadDigest, "The Content-MD5 you specified did not match what we received."));
        }
        let claimed = match &self.checksum {
            None => None,
            Some(Claim::Header(_, base64)) => Some(base64.clone()),
            Some(Claim::Trailer(kind)) => Some(from_trailer(*kind, trailers)?),
        };
        if claimed.is_some_and(|claimed| claimed != digests.checksum.base64) {
            let kind = spelling(digests.checksum.kind).to_uppercase();
            let message = format!("The {kind} you specified did not match the calculated checksum.");
            return Err(Fault::new(Code::BadDigest, message));
        }
        Ok(())
    }
}

fn parse_md5(value: &HeaderValue) -> Result<[u8; 16], Fault> {
    let bytes = base64_simd::STANDARD.decode_to_vec(value.as_bytes()).unwrap_or_default();
    bytes.try_into().map_err(|_| Fault::from(Code::InvalidDigest))
}

fn parse_checksum(kind: ChecksumKind, value: &HeaderValue) -> Result<String, Fault> {
    let (_, spelling, bytes) = row(kind);
    match base64_simd::STANDARD.decode_to_vec(value.as_bytes()) {
        Ok(decoded) if decoded.len() == *bytes => Ok(base64_simd::STANDARD.encode_to_string(decoded)),
        _ => Err(Fault::new(Code::InvalidRequest, format!("Value for {PREFIX}{spelling} header is invalid."))),
    }
}

fn parse_trailer_name(value: &HeaderValue) -> Result<ChecksumKind, Fault> {
    let name = value.to_str().unwrap_or_default().trim().to_ascii_lowercase();
    kind_of_header(&name).ok_or_else(|| {
        Fault::new(Code::InvalidRequest, "The value specified in the x-amz-trailer header is not supported")
    })
}

fn from_trailer(kind: ChecksumKind, trailers: Option<&HeaderMap>) -> Result<String, Fault> {
    let name = format!("{PREFIX}{}", spelling(kind));
    let value =
        trailers.and_then(|trailers| trailers.get(&name)).ok_or_else(|| Fault::from(Code::MalformedTrailerError))?;
    parse_checksum(kind, value)
}

/// What bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Digests {
    /// Their MD5.
    pub md5: [u8; 16],
    /// Their checksum of the kind the client claimed one of.
    pub checksum: Checksum,
}

impl Digests {
    /// The ETag of an object of these bytes, without quotes.
    pub fn etag(&self) -> String {
        hex_simd::encode_to_string(self.md5, hex_simd::AsciiCase::Lower)
    }
}

/// Computes a checksum of one kind.
struct Checksummer {
    kind: ChecksumKind,
    sums: ChecksumHasher,
}

impl Checksummer {
    fn new(kind: ChecksumKind) -> Self {
        let mut sums = ChecksumHasher::default();
        match kind {
            ChecksumKind::Crc32 => sums.crc32 = Some(Crc32::default()),
            ChecksumKind::Crc32c => sums.crc32c = Some(Crc32c::default()),
            ChecksumKind::Crc64Nvme => sums.crc64nvme = Some(Crc64Nvme::default()),
            ChecksumKind::Sha1 => sums.sha1 = Some(Sha1::default()),
            ChecksumKind::Sha256 => sums.sha256 = Some(Sha256::default()),
        }
        Self { kind, sums }
    }

    fn finish(self) -> Checksum {
        let sums = self.sums.finalize();
        let base64 = match self.kind {
            ChecksumKind::Crc32 => sums.checksum_crc32,
            ChecksumKind::Crc32c => sums.checksum_crc32c,
            ChecksumKind::Crc64Nvme => sums.checksum_crc64nvme,
            ChecksumKind::Sha1 => sums.checksum_sha1,
            ChecksumKind::Sha256 => sums.checksum_sha256,
        };
        Checksum { kind: self.kind, base64: base64.expect("the hasher was made for this kind") }
    }
}

/// Digests a stream of bytes beside whoever else handles them.
pub(super) struct Hasher {
    md5: Md5,
    checksum: Checksummer,
}

impl Hasher {
    /// Takes the next bytes; waits only if MD5 is two batches behind.
    ///
    /// # Errors
    /// `InternalError` if the runtime ended the hashing.
    pub async fn feed(&mut self, piece: Bytes) -> Result<(), Fault> {
        self.checksum.sums.update(&piece);
        self.md5.feed(piece).await.map_err(ended)
    }

    /// The digests of all that was fed.
    ///
    /// # Errors
    /// `InternalError` if the runtime ended the hashing.
    pub async fn finish(self) -> Result<Digests, Fault> {
        let checksum = self.checksum.finish();
        Ok(Digests { md5: self.md5.finish().await.map_err(ended)?, checksum })
    }
}

fn ended(error: HashingEnded) -> Fault {
    Fault::new(Code::InternalError, error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn claiming(kind: ChecksumKind) -> Claims {
        Claims { md5: None, checksum: Some(Claim::Trailer(kind)) }
    }

    #[tokio::test]
    async fn pieces_hash_as_the_whole_does() {
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|i| (i * 7 / 3) as u8).collect();
        for (kind, ..) in KINDS {
            let mut cut = claiming(kind).hasher(&Md5Workers::new());
            for piece in bytes.chunks(77_777) {
                cut.feed(Bytes::copy_from_slice(piece)).await.unwrap();
            }
            assert_eq!(cut.finish().await.unwrap(), claiming(kind).digests(&bytes));
        }
    }

    #[test]
    fn digests_are_the_published_ones() {
        let published = [
            "y/Q5Jg==",
            "4waSgw==",
            "rosUhgp5mIg=",
            "98O8HYCOBHMq32eZZczDTKeuNEE=",
            "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
        ];
        for ((kind, ..), published) in KINDS.into_iter().zip(published) {
            let digests = claiming(kind).digests(b"123456789");
            assert_eq!(digests.etag(), "25f9e794323b453885f5181f1b624d0b");
            assert_eq!(digests.checksum.base64, published);
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).try_into().unwrap(), (*value).try_into().unwrap())).collect()
    }

    #[test]
    fn claims_that_cannot_be_verified_are_refused() {
        let refused = |pairs: &[(&'static str, &str)]| Claims::of(&headers(pairs)).unwrap_err().code;
        assert_eq!(refused(&[("content-md5", "bm90IDE2IGJ5dGVz")]), Code::InvalidDigest);
        assert_eq!(refused(&[("content-md5", "!")]), Code::InvalidDigest);
        assert_eq!(refused(&[("x-amz-checksum-crc32", "AAAA")]), Code::InvalidRequest);
        assert_eq!(refused(&[("x-amz-trailer", "x-amz-meta-late")]), Code::InvalidRequest);
        assert_eq!(refused(&[("x-amz-sdk-checksum-algorithm", "CRC32")]), Code::InvalidRequest);
        let two = [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-crc32c", "AAAAAA==")];
        assert_eq!(refused(&two), Code::InvalidRequest);
        let other = [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-sdk-checksum-algorithm", "SHA256")];
        assert_eq!(refused(&other), Code::InvalidRequest);
    }
}
