//! Content digests: those that a client claims for its bytes, and those that the bytes have.
//!
//! MD5 (the `ETag`) is by far the slowest and runs in parallel, in [`crate::parallel_md5`]. The others keep pace with a
//! socket and are computed as the bytes pass.

use crate::error::{ErrorCode, ErrorResponse};
use crate::parallel_md5::{self, HashingEnded, Md5, Md5InPlace, Md5Workers};
use bytes::Bytes;
use catalog::{Checksum, ChecksumKind};
use crc_fast::CrcAlgorithm;
use http::{HeaderMap, HeaderValue};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::dto::ChecksumType;

const PREFIX: &str = "x-amz-checksum-";

/// The name of a kind as in headers, in lower case.
pub(crate) fn spelling(kind: ChecksumKind) -> String {
    kind.name().to_ascii_lowercase()
}

/// The kind of the header `name`, if it is one of a checksum.
pub(crate) fn kind_of_header(name: &str) -> Option<ChecksumKind> {
    kind_named(name.strip_prefix(PREFIX)?)
}

/// The location of a claimed checksum.
#[derive(Debug, PartialEq, Eq)]
enum ChecksumClaim {
    /// In a header; already read, as canonical base64.
    Header(ChecksumKind, String),
    /// In the trailer, after the body.
    Trailer(ChecksumKind),
}

/// The digests that a client claims for the bytes it sends.
#[derive(Debug, Default)]
pub(crate) struct DigestClaims {
    md5: Option<[u8; 16]>,
    checksum: Option<ChecksumClaim>,
}

impl DigestClaims {
    /// The claims of a request's headers.
    ///
    /// # Errors
    /// Claims that cannot be read, contradict each other, or are of a kind that cannot be verified.
    pub fn of(headers: &HeaderMap) -> Result<Self, ErrorResponse> {
        let md5 = headers.get("content-md5").map(parse_md5).transpose()?;
        let mut checksum = None;
        for (name, value) in headers {
            let claim = match kind_of_header(name.as_str()) {
                Some(kind) => ChecksumClaim::Header(kind, parse_checksum(kind, value)?),
                None if name == "x-amz-trailer" && !value.is_empty() => {
                    ChecksumClaim::Trailer(parse_trailer_name(value)?)
                }
                None => continue,
            };
            if checksum.replace(claim).is_some() {
                let message = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
                return Err(ErrorCode::InvalidRequest.with(message));
            }
        }
        let claims = Self { md5, checksum };
        claims.check_announced(headers)?;
        Ok(claims)
    }

    /// The claims of a request whose checksum headers are about something other than its body.
    ///
    /// # Errors
    /// `InvalidDigest` for a malformed MD5.
    pub fn of_md5(headers: &HeaderMap) -> Result<Self, ErrorResponse> {
        Ok(Self { md5: headers.get("content-md5").map(parse_md5).transpose()?, checksum: None })
    }

    /// A client that names its algorithm must send a checksum of it.
    fn check_announced(&self, headers: &HeaderMap) -> Result<(), ErrorResponse> {
        let Some(announced) = headers.get("x-amz-sdk-checksum-algorithm") else { return Ok(()) };
        let announced = announced.to_str().unwrap_or_default();
        match self.kind() {
            Some(kind) if spelling(kind).eq_ignore_ascii_case(announced) => Ok(()),
            Some(_) => {
                let message = "Value for x-amz-sdk-checksum-algorithm header is invalid.";
                Err(ErrorCode::InvalidRequest.with(message))
            }
            None => {
                let message = "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or \
                               x-amz-trailer headers were found.";
                Err(ErrorCode::InvalidRequest.with(message))
            }
        }
    }

    /// True if nothing is claimed.
    pub fn is_empty(&self) -> bool {
        self.md5.is_none() && self.checksum.is_none()
    }

    /// The kind of the claimed checksum; `None` without one.
    pub fn kind(&self) -> Option<ChecksumKind> {
        match self.checksum {
            Some(ChecksumClaim::Header(kind, _) | ChecksumClaim::Trailer(kind)) => Some(kind),
            None => None,
        }
    }

    /// A hasher for everything that is claimed. Without a claimed checksum it computes CRC-64/NVME, as S3 does, so
    /// every object has a checksum.
    pub fn hasher(&self, workers: &Md5Workers) -> StreamHasher {
        StreamHasher::new(workers, self.kind().unwrap_or(ChecksumKind::Crc64Nvme))
    }

    /// The same digests of `bytes`, computed at once. For short input.
    pub fn digests(&self, bytes: &[u8]) -> Digests {
        let mut checksum = KindHasher::new(self.kind().unwrap_or(ChecksumKind::Crc64Nvme));
        checksum.sums.update(bytes);
        Digests { md5: parallel_md5::digest(bytes), checksum: checksum.finish(), also: None }
    }

    /// Verifies the claims against the digests of the bytes.
    ///
    /// # Errors
    /// `BadDigest` for a wrong claim; `MalformedTrailerError` if an announced trailer did not come, or another one did.
    pub fn verify(&self, trailers: Option<&HeaderMap>, digests: &Digests) -> Result<(), ErrorResponse> {
        self.check_trailers(trailers)?;
        if self.md5.is_some_and(|md5| md5 != digests.md5) {
            return Err(ErrorCode::BadDigest.with("The Content-MD5 you specified did not match what we received."));
        }
        let claimed = match &self.checksum {
            None => None,
            Some(ChecksumClaim::Header(_, base64)) => Some(base64.clone()),
            Some(ChecksumClaim::Trailer(kind)) => Some(from_trailer(*kind, trailers)?),
        };
        if claimed.is_some_and(|claimed| claimed != digests.checksum.base64) {
            let kind = digests.checksum.kind.name();
            let message = format!("The {kind} you specified did not match the calculated checksum.");
            return Err(ErrorCode::BadDigest.with(message));
        }
        Ok(())
    }

    /// Refuses a trailer that was not announced: it would not be verified, but its sender would think so.
    fn check_trailers(&self, trailers: Option<&HeaderMap>) -> Result<(), ErrorResponse> {
        let announced = match self.checksum {
            Some(ChecksumClaim::Trailer(kind)) => Some(trailer_name(kind)),
            _ => None,
        };
        let names = trailers.into_iter().flat_map(|trailers| trailers.iter().map(|(name, _)| name.as_str()));
        let names: Vec<&str> = names.collect();
        match names.as_slice() {
            [] => Ok(()),
            [name] if announced.as_deref() == Some(*name) => Ok(()),
            _ => Err(ErrorCode::MalformedTrailerError.into()),
        }
    }
}

fn trailer_name(kind: ChecksumKind) -> String {
    format!("{PREFIX}{}", spelling(kind))
}

fn parse_md5(value: &HeaderValue) -> Result<[u8; 16], ErrorResponse> {
    let bytes = base64_simd::STANDARD.decode_to_vec(value.as_bytes()).unwrap_or_default();
    bytes.try_into().map_err(|_| ErrorResponse::from(ErrorCode::InvalidDigest))
}

fn parse_checksum(kind: ChecksumKind, value: &HeaderValue) -> Result<String, ErrorResponse> {
    match base64_simd::STANDARD.decode_to_vec(value.as_bytes()) {
        Ok(decoded) if decoded.len() == kind.digest_bytes() => Ok(base64_simd::STANDARD.encode_to_string(decoded)),
        _ => Err(ErrorCode::InvalidRequest.with(format!("Value for {PREFIX}{} header is invalid.", spelling(kind)))),
    }
}

fn parse_trailer_name(value: &HeaderValue) -> Result<ChecksumKind, ErrorResponse> {
    let name = value.to_str().unwrap_or_default().trim().to_ascii_lowercase();
    kind_of_header(&name).ok_or_else(|| {
        ErrorCode::InvalidRequest.with("The value specified in the x-amz-trailer header is not supported")
    })
}

fn from_trailer(kind: ChecksumKind, trailers: Option<&HeaderMap>) -> Result<String, ErrorResponse> {
    let value =
        trailers.and_then(|trailers| trailers.get(trailer_name(kind))).ok_or(ErrorCode::MalformedTrailerError)?;
    parse_checksum(kind, value)
}

/// The digests of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    /// MD5.
    pub md5: [u8; 16],
    /// Checksum of the kind that the hasher was made for.
    pub checksum: Checksum,
    /// Another checksum, if the caller asked for one.
    pub also: Option<Checksum>,
}

impl Digests {
    /// The ETag of an object of these bytes, without quotes.
    pub fn etag(&self) -> String {
        hex_simd::encode_to_string(self.md5, hex_simd::AsciiCase::Lower)
    }
}

/// Computes a checksum of one kind.
struct KindHasher {
    kind: ChecksumKind,
    sums: ChecksumHasher,
}

impl KindHasher {
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

/// Digests a stream of bytes in parallel to its other uses.
pub(crate) struct StreamHasher {
    md5: Md5,
    checksum: KindHasher,
    also: Option<KindHasher>,
}

impl StreamHasher {
    /// A hasher that also computes a checksum of kind `kind`.
    pub fn new(workers: &Md5Workers, kind: ChecksumKind) -> Self {
        Self { md5: workers.upload(), checksum: KindHasher::new(kind), also: None }
    }

    /// The same hasher, which also computes a checksum of kind `kind` if that is another kind.
    pub fn and(mut self, kind: ChecksumKind) -> Self {
        self.also = (self.checksum.kind != kind).then(|| KindHasher::new(kind));
        self
    }

    /// Takes the next bytes; waits only if MD5 is two batches behind.
    ///
    /// # Errors
    /// `InternalError` if the runtime ended the hashing.
    pub async fn feed(&mut self, piece: Bytes) -> Result<(), ErrorResponse> {
        self.checksum.sums.update(&piece);
        if let Some(also) = &mut self.also {
            also.sums.update(&piece);
        }
        self.md5.feed(piece).await.map_err(ended)
    }

    /// The digests of all bytes that were fed.
    ///
    /// # Errors
    /// `InternalError` if the runtime ended the hashing.
    pub async fn finish(self) -> Result<Digests, ErrorResponse> {
        let (checksum, also) = (self.checksum.finish(), self.also.map(KindHasher::finish));
        Ok(Digests { md5: self.md5.finish().await.map_err(ended)?, checksum, also })
    }
}

/// The composite checksum of kind `kind`, of the checksums of parts, as S3 spells it.
///
/// # Errors
/// `InternalError` if one of them is malformed.
pub(crate) fn composite(kind: ChecksumKind, parts: &[Checksum]) -> Result<Checksum, ErrorResponse> {
    let mut sums = KindHasher::new(kind);
    for part in parts {
        sums.sums.update(&raw(part)?);
    }
    let Checksum { kind, base64 } = sums.finish();
    Ok(Checksum { kind, base64: format!("{base64}-{}", parts.len()) })
}

/// The CRC of the concatenated parts, from the CRC and the length of each. `None` for a kind that is no CRC, which
/// cannot be computed from those of its parts.
///
/// # Errors
/// `InternalError` if one of them is malformed.
pub(crate) fn combined(kind: ChecksumKind, parts: &[(Checksum, u64)]) -> Result<Option<Checksum>, ErrorResponse> {
    let algorithm = match kind {
        ChecksumKind::Crc32 => CrcAlgorithm::Crc32IsoHdlc,
        ChecksumKind::Crc32c => CrcAlgorithm::Crc32Iscsi,
        ChecksumKind::Crc64Nvme => CrcAlgorithm::Crc64Nvme,
        ChecksumKind::Sha1 | ChecksumKind::Sha256 => return Ok(None),
    };
    let number = |checksum: &Checksum| {
        let bytes = raw(checksum)?.into_iter();
        Ok::<u64, ErrorResponse>(bytes.fold(0, |number, byte| number << 8 | u64::from(byte)))
    };
    let mut whole = None;
    for (checksum, bytes) in parts {
        let next = number(checksum)?;
        whole = Some(whole.map_or(next, |whole| crc_fast::checksum_combine(algorithm, whole, next, *bytes)));
    }
    let bytes = whole.unwrap_or_default().to_be_bytes();
    let base64 = base64_simd::STANDARD.encode_to_string(&bytes[bytes.len() - kind.digest_bytes()..]);
    Ok(Some(Checksum { kind, base64 }))
}

fn raw(checksum: &Checksum) -> Result<Vec<u8>, ErrorResponse> {
    let bytes = base64_simd::STANDARD.decode_to_vec(checksum.base64.as_bytes()).unwrap_or_default();
    if bytes.len() == checksum.kind.digest_bytes() {
        return Ok(bytes);
    }
    Err(ErrorCode::InternalError.with(format!("{} is no checksum", checksum.base64)))
}

/// The ETag, without quotes, of an object of these bytes that was put in one piece.
pub fn etag_of(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(parallel_md5::digest(bytes), hex_simd::AsciiCase::Lower)
}

/// The ETag of bytes that the server itself puts, piece by piece.
#[derive(Default)]
pub struct EtagDigest(Md5InPlace);

impl EtagDigest {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The ETag of all of them, without quotes.
    pub fn finish(self) -> String {
        hex_simd::encode_to_string(self.0.finish(), hex_simd::AsciiCase::Lower)
    }
}

/// The ETag that S3 makes of the MD5s of parts.
pub(crate) fn etag_of_parts(md5s: &[[u8; 16]]) -> String {
    format!("{}-{}", etag_of(md5s.as_flattened()), md5s.len())
}

/// The MD5 that is the ETag of bytes in one piece; `None` for other ETags.
pub(crate) fn md5_of_etag(etag: &str) -> Option<[u8; 16]> {
    hex_simd::decode_to_vec(etag.as_bytes()).ok()?.try_into().ok()
}

/// S3's name for the way an object's checksums are made.
pub(crate) fn type_of(checksums: &[Checksum]) -> &'static str {
    if checksums.iter().any(Checksum::is_composite) { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT }
}

/// The kind of checksum that S3 calls `name`; case is ignored.
pub(crate) fn kind_named(name: &str) -> Option<ChecksumKind> {
    ChecksumKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
}

fn ended(error: HashingEnded) -> ErrorResponse {
    ErrorCode::InternalError.with(error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn claiming(kind: ChecksumKind) -> DigestClaims {
        DigestClaims { md5: None, checksum: Some(ChecksumClaim::Trailer(kind)) }
    }

    #[tokio::test]
    async fn pieces_hash_as_the_whole_does() {
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|i| (i * 7 / 3) as u8).collect();
        for kind in ChecksumKind::ALL {
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
        for (kind, published) in ChecksumKind::ALL.into_iter().zip(published) {
            let digests = claiming(kind).digests(b"123456789");
            assert_eq!(digests.etag(), "25f9e794323b453885f5181f1b624d0b");
            assert_eq!(digests.checksum.base64, published);
        }
    }

    #[test]
    fn checksums_of_parts_make_that_of_the_whole() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i * 7 / 3) as u8).collect();
        for kind in ChecksumKind::ALL {
            let of = |bytes: &[u8]| claiming(kind).digests(bytes).checksum;
            for cuts in [&[100_000][..], &[1, 99_999], &[0, 50_000, 50_000, 0], &[33_333, 33_333, 33_334]] {
                let mut rest = &bytes[..];
                let parts: Vec<_> =
                    cuts.iter().map(|bytes| (of(rest.split_off(..*bytes).unwrap()), *bytes as u64)).collect();
                let is_crc = !matches!(kind, ChecksumKind::Sha1 | ChecksumKind::Sha256);
                assert_eq!(combined(kind, &parts).unwrap(), is_crc.then(|| of(&bytes)), "{kind:?} {cuts:?}");
            }
        }
    }

    #[test]
    fn checksums_and_etags_of_parts_are_spelled_as_s3_spells_them() {
        let sha = |bytes: &[u8]| claiming(ChecksumKind::Sha256).digests(bytes).checksum;
        let (one, two) = (sha(b"one"), sha(b"two"));
        let both = [raw(&one).unwrap(), raw(&two).unwrap()].concat();
        let whole = composite(ChecksumKind::Sha256, &[one, two]).unwrap();
        assert_eq!(whole.base64, format!("{}-2", sha(&both).base64));
        assert!(whole.is_composite());
        let empty = md5_of_etag("d41d8cd98f00b204e9800998ecf8427e").unwrap();
        let expected =
            hex_simd::encode_to_string(parallel_md5::digest(&[empty, empty].concat()), hex_simd::AsciiCase::Lower);
        assert_eq!(etag_of_parts(&[empty, empty]), format!("{expected}-2"));
        assert_eq!((md5_of_etag("d41d8cd98f00b204e9800998ecf8427e-2"), md5_of_etag("x")), (None, None));
    }

    #[test]
    fn a_trailer_is_the_announced_one_alone() {
        let crc = ("x-amz-checksum-crc32", "AAAAAA==");
        let digests = claiming(ChecksumKind::Crc32).digests(b"");
        let code = |claims: &DigestClaims, trailers: &[(&'static str, &str)]| {
            claims.verify(Some(&headers(trailers)), &digests).err().map(|error| error.code)
        };
        let (announced, plain) = (claiming(ChecksumKind::Crc32), DigestClaims::default());
        assert_eq!((code(&announced, &[crc]), code(&plain, &[])), (None, None));
        let malformed = Some(ErrorCode::MalformedTrailerError);
        for trailers in [&[][..], &[crc, crc], &[("x-amz-checksum-sha1", "AAAA")], &[crc, ("x-amz-meta-a", "1")]] {
            assert_eq!(code(&announced, trailers), malformed, "{trailers:?}");
        }
        assert_eq!(code(&plain, &[crc]), malformed, "it would not be verified");
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).try_into().unwrap(), (*value).try_into().unwrap())).collect()
    }

    #[test]
    fn claims_that_cannot_be_verified_are_refused() {
        let refused = |pairs: &[(&'static str, &str)]| DigestClaims::of(&headers(pairs)).unwrap_err().code;
        assert_eq!(refused(&[("content-md5", "bm90IDE2IGJ5dGVz")]), ErrorCode::InvalidDigest);
        assert_eq!(refused(&[("content-md5", "!")]), ErrorCode::InvalidDigest);
        assert_eq!(refused(&[("x-amz-checksum-crc32", "AAAA")]), ErrorCode::InvalidRequest);
        assert_eq!(refused(&[("x-amz-trailer", "x-amz-meta-late")]), ErrorCode::InvalidRequest);
        assert_eq!(refused(&[("x-amz-sdk-checksum-algorithm", "CRC32")]), ErrorCode::InvalidRequest);
        let two = [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-crc32c", "AAAAAA==")];
        assert_eq!(refused(&two), ErrorCode::InvalidRequest);
        let other = [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-sdk-checksum-algorithm", "SHA256")];
        assert_eq!(refused(&other), ErrorCode::InvalidRequest);
    }
}
