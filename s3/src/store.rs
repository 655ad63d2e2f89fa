//! The service behind the S3 front.
//!
//! The front speaks HTTP, signatures, XML and digests; an [`ObjectStore`] stores buckets and objects, in the catalog's
//! types, and knows nothing of S3's spelling. The front looks a bucket up with its owner, and refuses everybody else,
//! before it asks for anything in it.
//!
//! Invariants: nothing of a put is visible before [`PutSink::commit`], and nothing is left of a sink that was dropped.
//! A future that is dropped before it resolved (its client went away) leaves the store as if it had never been called,
//! except for [`PutSink::commit`], which the front always awaits.

use bytes::Bytes;
use catalog::{
    Authority, Bucket, BucketChange, Checksum, ChosenPart, ListRequest, Listing, MetadataChange, Object, ObjectChange,
    Part, PlacedObject, PutCondition, Upload, UploadListRequest, UploadListing, VersionId,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Times a read locates an object before it gives up on one that is overwritten again and again.
pub(crate) const LOOKUPS_MAX: usize = 8;

/// The bytes of an object, or of a range of it, exactly as many as were asked for. An error must break the connection,
/// so that no client takes a part for the whole.
pub type ObjectBytes = BoxStream<'static, Result<Bytes, ServiceError>>;

/// The bytes of a read. While they are awaited, nothing of them is in memory.
pub enum ReadBytes {
    /// They are at hand.
    Here(ObjectBytes),
    /// They are not: the object is cold. Resolves when they are.
    Awaited(ServiceFuture<'static, ReadyBytes>),
}

/// Bytes that are at hand and still to be opened. Resolves when the first of them are in memory.
pub type ReadyBytes = ServiceFuture<'static, ObjectBytes>;

impl ReadBytes {
    /// What `change` makes of the bytes.
    #[must_use]
    pub fn map(self, change: impl FnOnce(ObjectBytes) -> ObjectBytes + Send + 'static) -> Self {
        let awaited = match self {
            Self::Here(bytes) => return Self::Here(change(bytes)),
            Self::Awaited(awaited) => awaited,
        };
        Self::Awaited(Box::pin(async move {
            let ready = awaited.await?;
            Ok(Box::pin(async move { Ok(change(ready.await?)) }) as ReadyBytes)
        }))
    }

    /// The bytes, once they are at hand, for callers that may wait as they like.
    ///
    /// # Errors
    /// Those of the read.
    pub async fn open(self) -> Result<ObjectBytes, ServiceError> {
        match self {
            Self::Here(bytes) => Ok(bytes),
            Self::Awaited(awaited) => awaited.await?.await,
        }
    }
}

/// The outcome of a call, when it is done.
pub type ServiceFuture<'a, T> = BoxFuture<'a, Result<T, ServiceError>>;

/// Buckets and objects, in the catalog's own types.
pub trait ObjectStore: Send + Sync + 'static {
    /// The same store, for changes by the right of `authority` alone: each of them fails, and does nothing, once that
    /// right is gone ([`catalog::Catalog::authorised`]).
    fn authorised(&self, authority: Authority) -> Arc<dyn ObjectStore>;

    /// Makes `bucket`, created now. [`ServiceError::BucketExists`] if anybody has one of that name.
    fn create_bucket(&self, bucket: Bucket) -> ServiceFuture<'_, Bucket>;

    /// Changes a bucket and returns it as changed.
    fn change_bucket<'a>(&'a self, name: &'a str, change: BucketChange) -> ServiceFuture<'a, Bucket>;

    /// The bucket of that name, whoever owns it, or [`ServiceError::NoSuchBucket`].
    fn head_bucket<'a>(&'a self, name: &'a str) -> ServiceFuture<'a, Bucket>;

    /// The buckets of `owner`, in byte order of their names.
    fn list_buckets<'a>(&'a self, owner: &'a str) -> ServiceFuture<'a, Vec<Bucket>>;

    /// Removes a bucket and the open uploads into it. [`ServiceError::BucketNotEmpty`] if it holds any object.
    fn delete_bucket<'a>(&'a self, name: &'a str) -> ServiceFuture<'a, ()>;

    /// Opens a sink for the `object.bytes` bytes of an object. `object` also has its headers, metadata, ACL and tags,
    /// and the creation time of its bytes if they are older than this request (0 otherwise); its other fields are set
    /// when it is committed. `condition` is checked by the commit.
    ///
    /// Refuses at once what there is no room for ([`ServiceError::SlowDown`], [`ServiceError::TooLarge`],
    /// [`ServiceError::NoRoom`]).
    fn begin_put<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        object: Object,
        condition: PutCondition,
    ) -> ServiceFuture<'a, Box<dyn PutSink>>;

    /// Refuses an object of that many bytes if no amount of waiting would make room for it. For callers with expensive
    /// work to do before [`Self::begin_put`].
    ///
    /// # Errors
    /// [`ServiceError::TooLarge`] or [`ServiceError::NoRoom`].
    fn check_room(&self, bytes: u64) -> Result<(), ServiceError>;

    /// The metadata of an object, or [`ServiceError::NoSuchKey`]. Never touches a drive.
    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> ServiceFuture<'a, Object>;

    /// The object at `key` along with its bucket, in one read of the catalog. Never touches a drive.
    fn locate<'a>(&'a self, bucket: &'a str, key: &'a str) -> ServiceFuture<'a, Located>;

    /// The bytes `range` of an object that was located, which must lie within it. Those of a cold object are
    /// [`ReadBytes::Awaited`], which takes a while; [`ServiceError::SlowDown`] if it takes longer than the store lets a
    /// client wait. `None` if it is not there any more: a reader who still wants it locates it again.
    fn read<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        located: &'a PlacedObject,
        range: Range<u64>,
    ) -> ServiceFuture<'a, Option<ReadBytes>>;

    /// The time that a read of an object that was located is expected to wait for its bytes (wall time); `None` if they
    /// are at hand. Never touches a drive.
    fn recall_forecast<'a>(&'a self, located: &'a PlacedObject) -> ServiceFuture<'a, Option<Duration>>;

    /// The bytes `range` of the current version (all of it without one), as [`Self::locate`] and [`Self::read`] give
    /// them. The returned object is the version the bytes belong to.
    fn get<'a>(&'a self, bucket: &'a str, key: &'a str, range: Option<Range<u64>>) -> ServiceFuture<'a, GetBody> {
        Box::pin(async move {
            for _ in 0..LOOKUPS_MAX {
                let placed = self.locate(bucket, key).await?.object?;
                let bytes = placed.object.bytes;
                // A caller who asked for bytes of an older, longer version learns it from the version of the answer.
                let range = range.clone().map_or(0..bytes, |range| range.start.min(bytes)..range.end.min(bytes));
                let bytes = match self.read(bucket, key, &placed, range).await? {
                    Some(read) => Some(read.open().await?),
                    None => None,
                };
                if let Some(bytes) = bytes {
                    return Ok(GetBody { object: placed.object, bytes });
                }
            }
            Err(ServiceError::overwritten())
        })
    }

    /// Changes an object's ACL or tags and returns it as changed. Never touches a drive.
    fn change<'a>(&'a self, bucket: &'a str, key: &'a str, change: ObjectChange) -> ServiceFuture<'a, Object>;

    /// Removes an object if `condition` holds; succeeds if there is none and the condition allows that. Otherwise
    /// [`ServiceError::PreconditionFailed`] or [`ServiceError::NoSuchKey`].
    fn delete<'a>(&'a self, bucket: &'a str, key: &'a str, condition: PutCondition) -> ServiceFuture<'a, ()>;

    /// A page of the objects of a bucket. Never touches a drive.
    fn list<'a>(&'a self, bucket: &'a str, request: ListRequest) -> ServiceFuture<'a, Listing>;

    /// Replaces the metadata of the version that `metadata` names; its time of change is now, whatever `metadata`
    /// says. Bytes are not touched. Returns `None`, and changes nothing, if another version is current by then.
    fn replace_metadata<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        metadata: MetadataChange,
        condition: PutCondition,
    ) -> ServiceFuture<'a, Option<Object>>;

    /// Begins an upload in parts and returns its number; number and time in `upload` are ignored.
    fn create_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: Upload) -> ServiceFuture<'a, VersionId>;

    /// An upload that is neither completed nor aborted, or [`ServiceError::NoSuchUpload`].
    fn upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> ServiceFuture<'a, Upload>;

    /// Opens a sink for part `number`, of `bytes` bytes. Its commit puts the part into the upload, in place of an
    /// earlier one of that number, and takes exactly one checksum, of the upload's kind.
    fn begin_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        part: PartId,
        bytes: u64,
    ) -> ServiceFuture<'a, Box<dyn PutSink>>;

    /// Makes an object of an upload's parts. [`ServiceError::NoSuchUpload`] if it is not open any more,
    /// [`ServiceError::NoSuchPart`] if a part is not as `completion` says. The caller must wait for the outcome, as for
    /// [`PutSink::commit`].
    fn complete_upload<'a>(&'a self, bucket: &'a str, key: &'a str, completion: Completion) -> ServiceFuture<'a, ()>;

    /// Aborts an upload and frees its parts.
    fn abort_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> ServiceFuture<'a, ()>;

    /// A page of the uploads of a bucket.
    fn list_uploads<'a>(&'a self, bucket: &'a str, request: UploadListRequest) -> ServiceFuture<'a, UploadListing>;

    /// At most `limit` parts with numbers above `after`, of an open upload or of the object made of it. None for any
    /// other version.
    fn parts(&self, upload: VersionId, after: u32, limit: usize) -> ServiceFuture<'_, Vec<Part>>;
}

/// Receives the bytes of one object or part. Dropping it discards them.
pub trait PutSink: Send {
    /// Appends `bytes`. Pieces come as the network cuts them, from one byte to some hundred KiB.
    fn write(&mut self, bytes: Bytes) -> ServiceFuture<'_, ()>;

    /// Discards what was written; its room is free when this returns.
    fn abort(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Makes what was written, which has this ETag (without quotes) and these checksums, the current version or the
    /// part: durable and visible when it returns, and not at all if it fails. The condition of the put is checked in
    /// the same step ([`ServiceError::PreconditionFailed`], or [`ServiceError::NoSuchKey`] for an `IfMatch` on
    /// nothing). Returns the time of change, in milliseconds of the Unix epoch. Dropped half-way it may or may not have
    /// happened: the front gives it a task of its own.
    fn commit(self: Box<Self>, etag: String, checksums: Vec<Checksum>) -> ServiceFuture<'static, u64>;
}

/// A part of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartId {
    /// The upload's number.
    pub upload: VersionId,
    /// The part's number, from 1 to [`catalog::PARTS_MAX`].
    pub number: u32,
}

/// An upload in parts as its client completes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The object, whose version is the upload's number; its times are set by the store.
    pub object: Object,
    /// Its parts, in ascending order of their numbers.
    pub parts: Vec<ChosenPart>,
    /// The condition on the version that is replaced.
    pub condition: PutCondition,
}

/// An object with its bytes, or those of a range.
pub struct GetBody {
    /// The version they belong to.
    pub object: Object,
    /// The bytes.
    pub bytes: ObjectBytes,
}

/// An object along with its bucket.
pub struct Located {
    /// The bucket.
    pub bucket: Bucket,
    /// The object, and where its bytes lie; [`ServiceError::NoSuchKey`] if there is none.
    pub object: Result<PlacedObject, ServiceError>,
}

/// Why a call to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// No bucket of that name exists.
    #[error("no such bucket")]
    NoSuchBucket,
    /// No object of that key exists.
    #[error("no such key")]
    NoSuchKey,
    /// No such upload is open: it was completed or aborted, or never begun.
    #[error("no such upload")]
    NoSuchUpload,
    /// An upload lacks this part, or has another one of that number.
    #[error("no such part {0}")]
    NoSuchPart(u32),
    /// A bucket of that name exists already.
    #[error("the bucket exists")]
    BucketExists {
        /// True if it belongs to the caller.
        owned_by_you: bool,
    },
    /// The access key that signed the request has been revoked.
    #[error("no such access key")]
    NoSuchAccessKey,
    /// The bucket cannot be removed: it holds objects.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// The condition of a put or a delete does not hold; nothing was changed.
    #[error("the precondition does not hold")]
    PreconditionFailed,
    /// Not now: the workshop is full, a recall would take longer than clients may wait, a queue is full.
    #[error("not now: {reason}")]
    SlowDown {
        /// Seconds to wait before the next attempt.
        retry_after_s: u32,
        /// The reason to wait; shown to the client.
        reason: String,
    },
    /// More bytes than one object may ever have here.
    #[error("{reason}")]
    TooLarge {
        /// The limit and how to raise it; shown to the client.
        reason: String,
    },
    /// No room is left, and waiting makes none.
    #[error("no room: {reason}")]
    NoRoom {
        /// The full resource; shown to the client.
        reason: String,
    },
    /// A part of the store does not answer; a later attempt may succeed.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// Which part; for the log.
        reason: String,
    },
    /// Acknowledged bytes cannot be read back any more.
    #[error("data lost: {what}")]
    DataLost {
        /// Which bytes; for the log.
        what: String,
    },
    /// A staged file or a record of the catalog is damaged or missing. For the log.
    #[error("damaged: {0}")]
    Damaged(String),
    /// Any other failure; for the log.
    #[error("internal: {0}")]
    Internal(String),
}

impl ServiceError {
    /// An object is overwritten faster than it can be read.
    pub(crate) fn overwritten() -> Self {
        Self::SlowDown { retry_after_s: 1, reason: "The object is being replaced faster than it can be read.".into() }
    }
}
