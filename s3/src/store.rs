//! The service behind the S3 frontend.
//!
//! The frontend handles HTTP, signatures, XML and digests. An [`ObjectStore`] stores buckets and objects, in the
//! catalog's types, and knows nothing of S3's spelling. The frontend looks a bucket up with its owner, and refuses
//! requests without access to it, before it asks for anything in it.
//!
//! Invariants: nothing of a put is visible before [`PutSink::commit`], and a dropped sink leaves nothing. A future that
//! is dropped before it resolves (its client went away) leaves the store as if it had never been called, except for
//! [`PutSink::commit`], which the frontend always awaits.

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

/// Lookups of an object that is overwritten repeatedly, before a read of it gives up.
pub(crate) const LOOKUPS_MAX: usize = 8;

/// The bytes of an object, or of a range of it, exactly as many as requested. An error must break the connection, so
/// that no client takes a part for the whole.
pub type ObjectBytes = BoxStream<'static, Result<Bytes, ServiceError>>;

/// The bytes of a read. While they are awaited, none of them is in memory.
pub enum ReadBytes {
    /// Available now.
    Here(ObjectBytes),
    /// Not available yet: the object is cold. Resolves when the bytes are available.
    Awaited(ServiceFuture<'static, ReadyBytes>),
}

/// Available bytes that are still to be opened. Resolves when the first of them are in memory.
pub type ReadyBytes = ServiceFuture<'static, ObjectBytes>;

impl ReadBytes {
    /// Applies `change` to the bytes.
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

    /// The bytes, once they are available. For callers without a limit on the wait.
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

/// The outcome of a call.
pub type ServiceFuture<'a, T> = BoxFuture<'a, Result<T, ServiceError>>;

/// Buckets and objects, in the catalog's own types.
pub trait ObjectStore: Send + Sync + 'static {
    /// The same store, for changes under `authority` alone: each of them fails, and does nothing, once that authority
    /// is gone ([`catalog::Catalog::authorised`]).
    fn authorised(&self, authority: Authority) -> Arc<dyn ObjectStore>;

    /// Creates `bucket`, now. [`ServiceError::BucketExists`] if any user has a bucket of that name.
    fn create_bucket(&self, bucket: Bucket) -> ServiceFuture<'_, Bucket>;

    /// Changes a bucket and returns it as changed.
    fn change_bucket<'a>(&'a self, name: &'a str, change: BucketChange) -> ServiceFuture<'a, Bucket>;

    /// The bucket of that name, of any owner, or [`ServiceError::NoSuchBucket`].
    fn head_bucket<'a>(&'a self, name: &'a str) -> ServiceFuture<'a, Bucket>;

    /// The buckets of `owner`, in byte order of their names.
    fn list_buckets<'a>(&'a self, owner: &'a str) -> ServiceFuture<'a, Vec<Bucket>>;

    /// Removes a bucket and the open uploads into it. [`ServiceError::BucketNotEmpty`] if it holds any object.
    fn delete_bucket<'a>(&'a self, name: &'a str) -> ServiceFuture<'a, ()>;

    /// Opens a sink for the `object.bytes` bytes of an object. `object` also has its headers, metadata, ACL and tags,
    /// and the creation time of its bytes if they are older than this request (0 otherwise); its other fields are set
    /// when it is committed. `condition` is checked by the commit.
    ///
    /// Refuses at once an object for which there is no room ([`ServiceError::SlowDown`], [`ServiceError::TooLarge`],
    /// [`ServiceError::NoRoom`]).
    fn begin_put<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        object: Object,
        condition: PutCondition,
    ) -> ServiceFuture<'a, Box<dyn PutSink>>;

    /// Refuses an object of that many bytes if waiting would never make room for it. For callers with expensive work to
    /// do before [`Self::begin_put`].
    ///
    /// # Errors
    /// [`ServiceError::TooLarge`] or [`ServiceError::NoRoom`].
    fn check_room(&self, bytes: u64) -> Result<(), ServiceError>;

    /// The metadata of an object, or [`ServiceError::NoSuchKey`]. Never touches a drive.
    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> ServiceFuture<'a, Object>;

    /// The object at `key` along with its bucket, in one read of the catalog. Never touches a drive.
    fn locate<'a>(&'a self, bucket: &'a str, key: &'a str) -> ServiceFuture<'a, Located>;

    /// The bytes `range` of a located object; the range must be within it. Those of a cold object are
    /// [`ReadBytes::Awaited`], which takes a while; [`ServiceError::SlowDown`] if that takes longer than the store lets
    /// a client wait. `None` if the object is no longer there: a reader that still wants it locates it again.
    fn read<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        located: &'a PlacedObject,
        range: Range<u64>,
    ) -> ServiceFuture<'a, Option<ReadBytes>>;

    /// The time that a read of a located object is expected to wait for its bytes (wall time); `None` if they are
    /// available. Never touches a drive.
    fn recall_forecast<'a>(&'a self, located: &'a PlacedObject) -> ServiceFuture<'a, Option<Duration>>;

    /// The bytes `range` of the current version (all of it without a range), as [`Self::locate`] and [`Self::read`]
    /// return them. The returned object is the version that the bytes belong to.
    fn get<'a>(&'a self, bucket: &'a str, key: &'a str, range: Option<Range<u64>>) -> ServiceFuture<'a, GetBody> {
        Box::pin(async move {
            for _ in 0..LOOKUPS_MAX {
                let placed = self.locate(bucket, key).await?.object?;
                let bytes = placed.object.bytes;
                // A caller that wants bytes of an older, longer version can see that from the returned version.
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

    /// Removes an object if `condition` holds; succeeds without an object if the condition allows that. Otherwise
    /// [`ServiceError::PreconditionFailed`] or [`ServiceError::NoSuchKey`].
    fn delete<'a>(&'a self, bucket: &'a str, key: &'a str, condition: PutCondition) -> ServiceFuture<'a, ()>;

    /// A page of the objects of a bucket. Never touches a drive.
    fn list<'a>(&'a self, bucket: &'a str, request: ListRequest) -> ServiceFuture<'a, Listing>;

    /// Replaces the metadata of the version that `metadata` names. Its time of change is now; the one in `metadata` is
    /// ignored. Bytes are not touched. Returns `None`, and changes nothing, if another version is current by then.
    fn replace_metadata<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        metadata: MetadataChange,
        condition: PutCondition,
    ) -> ServiceFuture<'a, Option<Object>>;

    /// Starts an upload in parts and returns its number; number and time in `upload` are ignored.
    fn create_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: Upload) -> ServiceFuture<'a, VersionId>;

    /// An open upload, or [`ServiceError::NoSuchUpload`] if it was completed or aborted.
    fn upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> ServiceFuture<'a, Upload>;

    /// Opens a sink for part `number`, of `bytes` bytes. Its commit puts the part into the upload, in place of an
    /// earlier part of that number, and takes exactly one checksum, of the upload's kind.
    fn begin_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        part: PartId,
        bytes: u64,
    ) -> ServiceFuture<'a, Box<dyn PutSink>>;

    /// Makes an object of an upload's parts. [`ServiceError::NoSuchUpload`] if the upload is no longer open,
    /// [`ServiceError::NoSuchPart`] if a part is not as `completion` describes it. The caller must await the outcome,
    /// as for [`PutSink::commit`].
    fn complete_upload<'a>(&'a self, bucket: &'a str, key: &'a str, completion: Completion) -> ServiceFuture<'a, ()>;

    /// Aborts an upload and frees its parts.
    fn abort_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> ServiceFuture<'a, ()>;

    /// A page of the uploads of a bucket.
    fn list_uploads<'a>(&'a self, bucket: &'a str, request: UploadListRequest) -> ServiceFuture<'a, UploadListing>;

    /// At most `limit` parts with numbers above `after`, of an open upload or of the object made of it. Empty for any
    /// other version.
    fn parts(&self, upload: VersionId, after: u32, limit: usize) -> ServiceFuture<'_, Vec<Part>>;
}

/// Receives the bytes of one object or part. Dropping it discards them.
pub trait PutSink: Send {
    /// Appends `bytes`. Pieces have the size in which the network delivers them, from one byte to some hundred KiB.
    fn write(&mut self, bytes: Bytes) -> ServiceFuture<'_, ()>;

    /// Discards the written bytes; their room is free when this returns.
    fn abort(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Makes the written bytes, which have this ETag (without quotes) and these checksums, the current version or the
    /// part. They are durable and visible when it returns; if it fails, nothing has changed. The condition of the put
    /// is checked in the same step ([`ServiceError::PreconditionFailed`], or [`ServiceError::NoSuchKey`] for an
    /// `IfMatch` without an object). Returns the time of change, in milliseconds of the Unix epoch. A commit that is
    /// dropped half-way may or may not have happened, so the frontend runs it in a separate task.
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
    /// The version that the bytes belong to.
    pub object: Object,
    /// The bytes.
    pub bytes: ObjectBytes,
}

/// An object along with its bucket.
pub struct Located {
    /// The bucket.
    pub bucket: Bucket,
    /// The object and the place of its bytes; [`ServiceError::NoSuchKey`] if it does not exist.
    pub object: Result<PlacedObject, ServiceError>,
}

/// The reason that a call to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// No bucket of that name exists.
    #[error("no such bucket")]
    NoSuchBucket,
    /// No object of that key exists.
    #[error("no such key")]
    NoSuchKey,
    /// No such upload is open: it was completed or aborted, or never started.
    #[error("no such upload")]
    NoSuchUpload,
    /// An upload lacks this part, or has a different part of that number.
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
    /// More bytes than any object may have here.
    #[error("{reason}")]
    TooLarge {
        /// The limit and how to raise it; shown to the client.
        reason: String,
    },
    /// No room is left, and waiting does not make any.
    #[error("no room: {reason}")]
    NoRoom {
        /// The full resource; shown to the client.
        reason: String,
    },
    /// A part of the store does not answer; a later attempt may succeed.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// The part; for the log.
        reason: String,
    },
    /// Acknowledged bytes can no longer be read.
    #[error("data lost: {what}")]
    DataLost {
        /// The lost bytes; for the log.
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
