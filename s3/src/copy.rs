//! CopyObject and UploadPartCopy: bytes of one object into another, without the client.
//!
//! The bytes pass through the server as those of a GET and of a PUT do, and are digested on the way. So a copy takes
//! bounded memory, and a cold source is recalled with the same maximum wait. An object that is copied onto itself with
//! other metadata keeps its bytes where they are.

use crate::access::{self, Owned};
use crate::admission::PendingRequest;
use crate::digest::{self, Digests, StreamHasher, md5_of_etag};
use crate::error::{ErrorCode, ErrorResponse};
use crate::frontend::Frontend;
use crate::precondition::{ConditionOutcome, evaluate, seconds};
use crate::put::{check_early, commit, condition, metadata, or_abort, stored_headers};
use crate::request::S3Request;
use crate::response::{Answer, document, with_checksums};
use crate::store::{LOOKUPS_MAX, ObjectBytes, PartId, PutSink};
use crate::upload::{commit_part, requested_algorithm};
use crate::{tagging, versions};
use catalog::{Acl, Bucket, Checksum, ChecksumKind, MetadataChange, Object, PutCondition};
use futures::StreamExt;
use http::HeaderMap;
use s3s::dto::{ChecksumType, CopyObjectResult, CopyPartResult, CopySource, ETag};
use std::ops::Range;

/// The most bytes of one copy.
const COPY_BYTES_MAX: u64 = 5 << 30;
/// Attempts at a copy whose source is replaced after it is looked up and before it is opened.
const TRIES: usize = 4;
/// The conditions on a source, and their names in a read of it.
const CONDITIONS: [(&str, &str); 4] = [
    ("x-amz-copy-source-if-match", "if-match"),
    ("x-amz-copy-source-if-none-match", "if-none-match"),
    ("x-amz-copy-source-if-modified-since", "if-modified-since"),
    ("x-amz-copy-source-if-unmodified-since", "if-unmodified-since"),
];

/// The source of a copy.
struct CopyOrigin {
    bucket: String,
    key: String,
}

impl CopyOrigin {
    /// The source that a request names.
    fn of(request: &S3Request) -> Result<Self, ErrorResponse> {
        let named = request.header("x-amz-copy-source")?.unwrap_or_default();
        match CopySource::parse(named) {
            Ok(CopySource::Bucket { bucket, key, version_id }) => {
                version_id.map_or(Ok(()), |id| versions::check_id(&id))?;
                Ok(Self { bucket: bucket.into(), key: key.into() })
            }
            Ok(_) => Err(ErrorResponse::not_implemented("A copy source that is an access point")),
            Err(_) => Err(ErrorCode::InvalidArgument
                .with("Copy Source must mention the source bucket and key: sourcebucket/sourcekey")),
        }
    }

    /// The object there, if the request's user may read it and the request's conditions hold.
    async fn look(&self, front: &Frontend, request: &S3Request) -> Result<Object, ErrorResponse> {
        let bucket = front.store.head_bucket(&self.bucket).await?;
        let expected = request.header("x-amz-source-expected-bucket-owner")?;
        if expected.is_some_and(|expected| expected != bucket.owner) {
            return Err(ErrorCode::AccessDenied.into());
        }
        let object = front.readable_object_at(request, &bucket, &self.key).await?;
        let mut conditions = HeaderMap::new();
        for (name, plain) in CONDITIONS {
            if let Some(value) = request.headers.get(name) {
                conditions.insert(plain, value.clone());
            }
        }
        match evaluate(&conditions, &object.etag, object.modified_ms) {
            ConditionOutcome::Proceed => Ok(object),
            ConditionOutcome::NotModified | ConditionOutcome::Failed => Err(ErrorCode::PreconditionFailed.into()),
        }
    }

    /// The bytes `range` of `object`, for a copy that `pending` requests; `None` if the object has another version by
    /// then.
    async fn open(
        &self,
        front: &Frontend,
        pending: &PendingRequest,
        object: &Object,
        range: Range<u64>,
    ) -> Result<Option<ObjectBytes>, ErrorResponse> {
        for _ in 0..LOOKUPS_MAX {
            let located = front.store.locate(&self.bucket, &self.key).await?.object?;
            if located.object.version != object.version {
                return Ok(None);
            }
            if let Some(read) = front.store.read(&self.bucket, &self.key, &located, range.clone()).await? {
                return pending.bytes(&front.traffic, read).await.map(Some);
            }
        }
        Err(too_fast())
    }
}

fn too_fast() -> ErrorResponse {
    ErrorResponse::slow_down(1, "The copy source is being replaced faster than it can be read.")
}

fn too_large() -> ErrorResponse {
    let message = format!(
        "The specified copy source is larger than the maximum allowable size for a copy source: {COPY_BYTES_MAX}"
    );
    ErrorCode::InvalidRequest.with(message)
}

/// Moves the bytes of a source into a sink.
async fn pump(
    mut bytes: ObjectBytes,
    sink: &mut dyn PutSink,
    mut hasher: StreamHasher,
) -> Result<Digests, ErrorResponse> {
    while let Some(piece) = bytes.next().await {
        let piece = piece?;
        hasher.feed(piece.clone()).await?;
        sink.write(piece).await?;
    }
    hasher.finish().await
}

/// True if the directive `name` takes values from the request rather than from the source.
fn replaces(request: &S3Request, name: &str) -> Result<bool, ErrorResponse> {
    match request.header(name)? {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(_) => Err(ErrorCode::InvalidArgument.with(format!("Unknown directive in {name}."))),
    }
}

type Pairs = Vec<(String, String)>;

/// The object that a copy makes, as the request describes it.
struct CopyTarget {
    /// Headers and metadata; `None` takes those of the source.
    described: Option<(Pairs, Pairs)>,
    /// Tags; `None` takes those of the source.
    tags: Option<Pairs>,
    acl: Acl,
    kind: Option<ChecksumKind>,
    condition: PutCondition,
}

impl CopyTarget {
    fn of(request: &S3Request, bucket: &Bucket) -> Result<Self, ErrorResponse> {
        let replaced = replaces(request, "x-amz-metadata-directive")?;
        let tags = replaces(request, "x-amz-tagging-directive")?.then(|| tagging::of_header(request)).transpose()?;
        let acl = access::canned(request, bucket.ownership)?.unwrap_or_default();
        let described = if replaced { Some((stored_headers(request)?, metadata(&request.headers)?)) } else { None };
        Ok(Self { described, tags, acl, kind: requested_algorithm(request)?, condition: condition(request)? })
    }

    /// Headers and metadata of a copy of `object`.
    fn description(&self, object: &Object) -> (Pairs, Pairs) {
        self.described.clone().unwrap_or_else(|| (object.headers.clone(), object.metadata.clone()))
    }

    /// True if a copy has the headers, the metadata and the tags of its source.
    fn changes_nothing(&self) -> bool {
        self.described.is_none() && self.tags.is_none()
    }
}

/// Copies an object.
pub(crate) async fn object(front: &Frontend, request: S3Request, pending: &PendingRequest) -> Answer {
    let source = CopyOrigin::of(&request)?;
    let bucket = front.owned_bucket(&request).await?;
    let target = CopyTarget::of(&request, &bucket)?;
    check_early(front, &request, &target.condition).await?;
    let onto_itself = source.bucket == request.bucket && source.key == request.key;
    let copy = Copy { front, pending, request: &request, bucket: &bucket, source: &source, target: &target };
    for _ in 0..TRIES {
        let object = source.look(front, &request).await?;
        if object.bytes > COPY_BYTES_MAX {
            return Err(too_large());
        }
        let other_kind = target.kind.is_some_and(|kind| object.checksums.iter().all(|sum| sum.kind != kind));
        let answer = if onto_itself && !other_kind {
            if target.changes_nothing() {
                return Err(unchanged());
            }
            copy.metadata_of(&object).await?
        } else {
            copy.bytes_of(&object).await?
        };
        if let Some(answer) = answer {
            return answer;
        }
    }
    Err(too_fast())
}

fn unchanged() -> ErrorResponse {
    let message = "This copy request is illegal because it is trying to copy an object to itself without changing the \
                   object's metadata, storage class, website redirect location or encryption attributes.";
    ErrorCode::InvalidRequest.with(message)
}

/// A copy of an object. Each of its methods returns `None` if the source has another version by then.
struct Copy<'a> {
    front: &'a Frontend,
    pending: &'a PendingRequest,
    request: &'a S3Request,
    bucket: &'a Owned,
    source: &'a CopyOrigin,
    target: &'a CopyTarget,
}

impl Copy<'_> {
    /// Replaces the metadata of an object that is copied onto itself.
    async fn metadata_of(&self, object: &Object) -> Result<Option<Answer>, ErrorResponse> {
        assert!(!self.target.changes_nothing(), "a copy onto itself changes something");
        let (headers, metadata) = self.target.description(object);
        let (version, acl, tags) = (object.version, self.target.acl, self.target.tags.clone());
        let replaced = MetadataChange { version, headers, metadata, acl, tags, modified_ms: 0 };
        let (key, condition) = (&self.request.key, self.target.condition.clone());
        let object = self.bucket.store.replace_metadata(&self.request.bucket, key, replaced, condition).await?;
        Ok(object.map(|object| result(&object.etag, object.modified_ms, &object.checksums)))
    }

    /// Copies the bytes of `object`.
    async fn bytes_of(&self, object: &Object) -> Result<Option<Answer>, ErrorResponse> {
        let Self { front, pending, request, bucket, source, target } = *self;
        assert!(object.bytes <= COPY_BYTES_MAX, "a source that is too large was refused");
        front.store.check_room(object.bytes)?;
        // A source that would take too long to recall is refused before anything is reserved for the copy.
        let Some(bytes) = source.open(front, pending, object, 0..object.bytes).await? else { return Ok(None) };
        let (headers, metadata) = target.description(object);
        let copy = Object {
            bytes: object.bytes,
            created_ms: object.created_ms,
            headers,
            metadata,
            acl: target.acl,
            tags: target.tags.clone().unwrap_or_else(|| object.tags.clone()),
            ..Object::default()
        };
        let kind = target.kind.or(object.checksums.first().map(|sum| sum.kind)).unwrap_or(ChecksumKind::Crc64Nvme);
        let mut sink = bucket.store.begin_put(bucket, &request.key, copy, target.condition.clone()).await?;
        let pumped = pump(bytes, sink.as_mut(), StreamHasher::new(&front.md5, kind)).await;
        let pumped = pumped.and_then(|digests| check_copy(object, digests));
        let (sink, digests) = or_abort(sink, pumped).await?;
        let (etag, checksums) = (digests.etag(), vec![digests.checksum]);
        let modified_ms = commit(sink, etag.clone(), checksums.clone()).await?;
        Ok(Some(result(&etag, modified_ms, &checksums)))
    }
}

/// Checks that the bytes of a source are those that were stored; by MD5, if the source was uploaded in one piece.
fn check_copy(object: &Object, digests: Digests) -> Result<Digests, ErrorResponse> {
    match md5_of_etag(&object.etag) {
        Some(md5) if md5 != digests.md5 => Err(ErrorCode::InternalError.with("the copy is not what was stored")),
        _ => Ok(digests),
    }
}

fn result(etag: &str, modified_ms: u64, checksums: &[Checksum]) -> Answer {
    document(&with_checksums!(CopyObjectResult, checksums, {
        checksum_type: Some(ChecksumType::from_static(digest::type_of(checksums))),
        e_tag: Some(ETag::Strong(etag.to_owned())),
        last_modified: Some(seconds(modified_ms).into()),
    }))
}

/// Makes a part of an upload from bytes of an object.
pub(crate) async fn part(front: &Frontend, request: S3Request, pending: &PendingRequest) -> Answer {
    let source = CopyOrigin::of(&request)?;
    let number = request.part_number()?;
    let bucket = front.owned_bucket(&request).await?;
    let part = PartId { upload: request.upload_id()?, number };
    let upload = front.store.upload(&request.bucket, &request.key, part.upload).await?;
    for _ in 0..TRIES {
        let object = source.look(front, &request).await?;
        let range = range(&request, object.bytes)?;
        assert!(range.start <= range.end && range.end <= object.bytes, "a range lies within its source");
        let length = range.end - range.start;
        if length > COPY_BYTES_MAX {
            return Err(too_large());
        }
        front.store.check_room(length)?;
        let Some(bytes) = source.open(front, pending, &object, range).await? else { continue };
        let mut sink = bucket.store.begin_part(&request.bucket, &request.key, part, length).await?;
        let pumped = pump(bytes, sink.as_mut(), StreamHasher::new(&front.md5, upload.checksum)).await;
        let (sink, digests) = or_abort(sink, pumped).await?;
        let (etag, checksum) = (digests.etag(), digests.checksum.clone());
        let modified_ms = commit_part(sink, digests).await?;
        return part_result(&etag, modified_ms, &[checksum]);
    }
    Err(too_fast())
}

fn part_result(etag: &str, modified_ms: u64, checksums: &[Checksum]) -> Answer {
    document(&with_checksums!(CopyPartResult, checksums, {
        e_tag: Some(ETag::Strong(etag.to_owned())),
        last_modified: Some(seconds(modified_ms).into()),
    }))
}

/// The requested range of a source of `bytes` bytes. Unlike the range of a read, it must be within the source.
fn range(request: &S3Request, bytes: u64) -> Result<Range<u64>, ErrorResponse> {
    let Some(asked) = request.header("x-amz-copy-source-range")? else { return Ok(0..bytes) };
    let number = |digits: &str| digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    let parsed = asked.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let parsed = parsed.and_then(|(first, last)| number(first).zip(number(last))).filter(|(first, last)| first <= last);
    let (first, last) = parsed.ok_or_else(|| {
        let message = "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are \
                       the zero-based offsets of the first and last bytes to copy";
        ErrorCode::InvalidArgument.with(message)
    })?;
    if last >= bytes {
        let message = format!("Range specified is not valid for source object of size: {bytes}");
        return Err(ErrorCode::InvalidArgument.with(message));
    }
    Ok(first..last + 1)
}
