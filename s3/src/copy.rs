//! CopyObject and UploadPartCopy: bytes of one object into another, without the client.
//!
//! They go through the server as those of a GET and of a PUT do, digests beside them, so a copy takes bounded memory
//! and a cold source is recalled with the same patience. An object that is copied onto itself with other metadata keeps
//! its bytes where they are.

use super::access::{self, Owned, is_public};
use super::ask::Ask;
use super::digest::{Digests, Hasher, md5_of_etag};
use super::error::{Code, Fault};
use super::precondition::{Verdict, judge, seconds};
use super::put::{check_early, commit, condition, kept_headers, metadata, or_abort};
use super::route::{Answer, Route, xml};
use super::store::{Condition, GetBody, PutMeta, PutSink, Restatement, StoreError};
use super::upload::{algorithm_asked, asked, part_meta, part_number};
use super::{tagging, versions};
use catalog::{Acl, Bucket, Checksum, ChecksumKind, Object};
use futures::StreamExt;
use http::HeaderMap;
use s3s::dto::{ChecksumType, CopyObjectResult, CopyPartResult, CopySource, ETag};
use std::ops::Range;

/// How much one copy may be of, in bytes.
const COPY_BYTES_MAX: u64 = 5 << 30;
/// How often a copy begins again because its source was replaced between looking at it and opening it.
const TRIES: usize = 4;
/// The conditions on a source, and what they are called in a read of it.
const CONDITIONS: [(&str, &str); 4] = [
    ("x-amz-copy-source-if-match", "if-match"),
    ("x-amz-copy-source-if-none-match", "if-none-match"),
    ("x-amz-copy-source-if-modified-since", "if-modified-since"),
    ("x-amz-copy-source-if-unmodified-since", "if-unmodified-since"),
];

/// Where a copy comes from.
struct Source {
    bucket: String,
    key: String,
}

impl Source {
    /// The source that a request names.
    fn of(ask: &Ask) -> Result<Self, Fault> {
        let named = ask.header("x-amz-copy-source")?.unwrap_or_default();
        match CopySource::parse(named) {
            Ok(CopySource::Bucket { bucket, key, version_id }) => {
                version_id.map_or(Ok(()), |id| versions::check_id(&id))?;
                Ok(Self { bucket: bucket.into(), key: key.into() })
            }
            Ok(_) => Err(Fault::not_implemented("A copy source that is an access point")),
            Err(_) => Err(Fault::new(
                Code::InvalidArgument,
                "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
            )),
        }
    }

    /// The object there, if who asks may read it and it is as the request demands.
    async fn look(&self, route: &Route, ask: &Ask) -> Result<Object, Fault> {
        let bucket = route.store.head_bucket(&self.bucket).await?;
        let expected = ask.header("x-amz-source-expected-bucket-owner")?;
        if expected.is_some_and(|expected| expected != bucket.owner) {
            return Err(Code::AccessDenied.into());
        }
        let object = match route.store.head(&self.bucket, &self.key).await {
            found if ask.owns(&bucket) => found?,
            Ok(object) if is_public(&bucket, object.acl) => object,
            Err(StoreError::NoSuchKey) if is_public(&bucket, bucket.acl) => return Err(Code::NoSuchKey.into()),
            Ok(_) | Err(StoreError::NoSuchKey) => return Err(Code::AccessDenied.into()),
            Err(error) => return Err(error.into()),
        };
        let mut demands = HeaderMap::new();
        for (name, plain) in CONDITIONS {
            if let Some(value) = ask.headers.get(name) {
                demands.insert(plain, value.clone());
            }
        }
        match judge(&demands, &object.etag, object.modified_ms) {
            Verdict::Proceed => Ok(object),
            Verdict::NotModified | Verdict::Failed => Err(Code::PreconditionFailed.into()),
        }
    }

    /// The bytes `range` of `object`; nothing if it is not that version any more.
    async fn open(&self, route: &Route, object: &Object, range: Range<u64>) -> Result<Option<GetBody>, Fault> {
        let got = route.store.get(&self.bucket, &self.key, Some(range)).await?;
        Ok(Some(got).filter(|got| got.object.version == object.version))
    }
}

fn too_fast() -> Fault {
    Fault::slow_down(1, "The copy source is being replaced faster than it can be read.")
}

fn too_large() -> Fault {
    let message = format!(
        "The specified copy source is larger than the maximum allowable size for a copy source: {COPY_BYTES_MAX}"
    );
    Fault::new(Code::InvalidRequest, message)
}

/// Moves the bytes of a source into a sink.
async fn pump(got: GetBody, sink: &mut dyn PutSink, mut hasher: Hasher) -> Result<Digests, Fault> {
    let mut bytes = got.bytes;
    while let Some(piece) = bytes.next().await {
        let piece = piece?;
        hasher.feed(piece.clone()).await?;
        sink.write(piece).await?;
    }
    hasher.finish().await
}

/// Whether a directive says to take from the request rather than from the source.
fn replaces(ask: &Ask, name: &str) -> Result<bool, Fault> {
    match ask.header(name)? {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(_) => Err(Fault::new(Code::InvalidArgument, format!("Unknown directive in {name}."))),
    }
}

/// What a copy is to be described as.
struct Described {
    headers: Vec<(String, String)>,
    metadata: Vec<(String, String)>,
    /// As the source's, if there are none here.
    tags: Option<Vec<(String, String)>>,
    acl: Acl,
    replaced: bool,
    kind: Option<ChecksumKind>,
    condition: Condition,
}

impl Described {
    fn of(ask: &Ask, bucket: &Bucket) -> Result<Self, Fault> {
        let replaced = replaces(ask, "x-amz-metadata-directive")?;
        let tags = replaces(ask, "x-amz-tagging-directive")?.then(|| tagging::of_header(ask)).transpose()?;
        let acl = access::canned(ask, bucket.ownership)?.unwrap_or_default();
        let (headers, metadata) =
            if replaced { (kept_headers(ask)?, metadata(&ask.headers)?) } else { (Vec::new(), Vec::new()) };
        Ok(Self { headers, metadata, tags, acl, replaced, kind: algorithm_asked(ask)?, condition: condition(ask)? })
    }
}

/// Copies an object.
pub(super) async fn object(route: &Route, ask: Ask) -> Answer {
    let source = Source::of(&ask)?;
    let bucket = route.owned_bucket(&ask).await?;
    let described = Described::of(&ask, &bucket)?;
    check_early(route, &ask, &described.condition).await?;
    let onto_itself = source.bucket == ask.bucket && source.key == ask.key;
    for _ in 0..TRIES {
        let object = source.look(route, &ask).await?;
        if object.bytes > COPY_BYTES_MAX {
            return Err(too_large());
        }
        let another_kind = described.kind.is_some_and(|kind| object.checksums.iter().all(|sum| sum.kind != kind));
        if onto_itself && !another_kind {
            if !described.replaced && described.tags.is_none() {
                return Err(unchanged());
            }
            match restate(&bucket, &ask, &object, &described).await? {
                Some(object) => return told(&object.etag, object.modified_ms, &object.checksums),
                None => continue,
            }
        }
        if let Some(answer) = copied(route, &ask, &bucket, &source, &object, &described).await? {
            return Ok(answer);
        }
    }
    Err(too_fast())
}

fn unchanged() -> Fault {
    let message = "This copy request is illegal because it is trying to copy an object to itself without changing the \
                   object's metadata, storage class, website redirect location or encryption attributes.";
    Fault::new(Code::InvalidRequest, message)
}

/// Describes an object anew that is copied onto itself; nothing if it is another version by now.
async fn restate(bucket: &Owned, ask: &Ask, object: &Object, described: &Described) -> Result<Option<Object>, Fault> {
    let from = |asked: &Vec<(String, String)>, own: &Vec<(String, String)>| {
        if described.replaced { asked.clone() } else { own.clone() }
    };
    let meta = Restatement {
        headers: from(&described.headers, &object.headers),
        metadata: from(&described.metadata, &object.metadata),
        acl: described.acl,
        tags: described.tags.clone(),
        condition: described.condition.clone(),
    };
    Ok(bucket.store.restate(&ask.bucket, &ask.key, object.version, meta).await?)
}

/// Copies the bytes of `object`; nothing if it is another version by now.
async fn copied(
    route: &Route,
    ask: &Ask,
    bucket: &Owned,
    source: &Source,
    object: &Object,
    described: &Described,
) -> Result<Option<s3s::S3Response<s3s::Body>>, Fault> {
    route.store.check_room(object.bytes)?;
    // A source that is cold beyond patience is refused before anything is reserved for it.
    let Some(got) = source.open(route, object, 0..object.bytes).await? else { return Ok(None) };
    let kind = described.kind.or(object.checksums.first().map(|sum| sum.kind)).unwrap_or(ChecksumKind::Crc64Nvme);
    let mut sink = bucket.store.begin_put(bucket, &ask.key, Some(object.bytes)).await?;
    let pumped = pump(got, sink.as_mut(), Hasher::new(&route.md5, kind)).await;
    let pumped = pumped.and_then(|digests| check_copy(object, digests));
    let (sink, digests) = or_abort(sink, pumped).await?;
    let (headers, metadata) = if described.replaced {
        (described.headers.clone(), described.metadata.clone())
    } else {
        (object.headers.clone(), object.metadata.clone())
    };
    let meta = PutMeta {
        etag: digests.etag(),
        headers,
        metadata,
        checksums: vec![digests.checksum.clone()],
        acl: described.acl,
        tags: described.tags.clone().unwrap_or_else(|| object.tags.clone()),
        created_ms: Some(object.created_ms),
        condition: described.condition.clone(),
    };
    let committed = commit(sink, meta).await?;
    told(&committed.etag, committed.modified_ms, &[digests.checksum]).map(Some)
}

/// The bytes of a source must be what was stored: its MD5 says so, if it came in one piece.
fn check_copy(object: &Object, digests: Digests) -> Result<Digests, Fault> {
    match md5_of_etag(&object.etag) {
        Some(md5) if md5 != digests.md5 => Err(Fault::new(Code::InternalError, "the copy is not what was stored")),
        _ => Ok(digests),
    }
}

fn told(etag: &str, modified_ms: u64, checksums: &[Checksum]) -> Answer {
    let of = |kind| checksums.iter().find(|sum| sum.kind == kind).map(|sum| sum.base64.clone());
    xml(&CopyObjectResult {
        checksum_crc32: of(ChecksumKind::Crc32),
        checksum_crc32c: of(ChecksumKind::Crc32c),
        checksum_crc64nvme: of(ChecksumKind::Crc64Nvme),
        checksum_sha1: of(ChecksumKind::Sha1),
        checksum_sha256: of(ChecksumKind::Sha256),
        checksum_type: Some(ChecksumType::from_static(super::digest::type_of(checksums))),
        e_tag: Some(ETag::Strong(etag.to_owned())),
        last_modified: Some(seconds(modified_ms).into()),
    })
}

/// Makes a part of an upload of bytes of an object.
pub(super) async fn part(route: &Route, ask: Ask) -> Answer {
    let source = Source::of(&ask)?;
    let (id, number) = (asked(&ask)?, part_number(&ask)?);
    let bucket = route.owned_bucket(&ask).await?;
    let upload = route.store.upload(&ask.bucket, &ask.key, id).await?;
    for _ in 0..TRIES {
        let object = source.look(route, &ask).await?;
        let range = range(&ask, object.bytes)?;
        let bytes = range.end - range.start;
        if bytes > COPY_BYTES_MAX {
            return Err(too_large());
        }
        route.store.check_room(bytes)?;
        let Some(got) = source.open(route, &object, range).await? else { continue };
        let mut sink = bucket.store.begin_part(&ask.bucket, &ask.key, id, number, bytes).await?;
        let pumped = pump(got, sink.as_mut(), Hasher::new(&route.md5, upload.checksum)).await;
        let (sink, digests) = or_abort(sink, pumped).await?;
        let checksum = digests.checksum.clone();
        let committed = commit(sink, part_meta(digests)).await?;
        return part_told(&committed.etag, committed.modified_ms, &checksum);
    }
    Err(too_fast())
}

fn part_told(etag: &str, modified_ms: u64, checksum: &Checksum) -> Answer {
    let of = |kind| (checksum.kind == kind).then(|| checksum.base64.clone());
    xml(&CopyPartResult {
        checksum_crc32: of(ChecksumKind::Crc32),
        checksum_crc32c: of(ChecksumKind::Crc32c),
        checksum_crc64nvme: of(ChecksumKind::Crc64Nvme),
        checksum_sha1: of(ChecksumKind::Sha1),
        checksum_sha256: of(ChecksumKind::Sha256),
        e_tag: Some(ETag::Strong(etag.to_owned())),
        last_modified: Some(seconds(modified_ms).into()),
    })
}

/// Which of the `bytes` bytes of a source are meant. Unlike a read's, the range must lie within them.
fn range(ask: &Ask, bytes: u64) -> Result<Range<u64>, Fault> {
    let Some(asked) = ask.header("x-amz-copy-source-range")? else { return Ok(0..bytes) };
    let number = |digits: &str| digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    let parsed = asked.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let parsed = parsed.and_then(|(first, last)| number(first).zip(number(last))).filter(|(first, last)| first <= last);
    let (first, last) = parsed.ok_or_else(|| {
        let message = "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are \
                       the zero-based offsets of the first and last bytes to copy";
        Fault::new(Code::InvalidArgument, message)
    })?;
    if last >= bytes {
        let message = format!("Range specified is not valid for source object of size: {bytes}");
        return Err(Fault::new(Code::InvalidArgument, message));
    }
    Ok(first..last + 1)
}
