//! What the S3 front asks of the house behind it.
//!
//! The front speaks HTTP, signatures, XML and digests; an [`ObjectStore`] keeps buckets and objects and knows nothing
//! of S3's spelling. Buckets are looked up with their owner, and the front refuses everybody else before it asks
//! further.
//!
//! Invariants: nothing of a put is visible before [`PutSink::commit`], and nothing is left of a sink that was dropped.
//! A future that is dropped before it answered (its client went away) leaves the store as if it had never been asked,
//! but for [`PutSink::commit`], which the front always waits out.

use bytes::Bytes;
use catalog::{
    Acl, Bucket, BucketChange, Checksum, ChecksumKind, ChosenPart, Object, ObjectChange, Part, PartLengths,
    PlacedObject, Upload, VersionId,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::ops::Range;

/// Times a read locates an object before it gives up on one that is overwritten again and again.
pub(super) const LOOKUPS_MAX: usize = 8;

/// The bytes of an object, or of a range of it, exactly as many as were asked for. An error breaks the connection, so
/// that no client takes a part for the whole.
pub type ObjectBytes = BoxStream<'static, Result<Bytes, StoreError>>;

/// The answer of an object store, some time later.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Buckets and objects.
pub trait ObjectStore: Send + Sync + 'static {
    /// The same store, for changes by the right of `authority` alone: each of them fails, and does nothing, once that
    /// right is gone ([`catalog::Catalog::authorised`]).
    fn authorised(&self, authority: catalog::Authority) -> std::sync::Arc<dyn ObjectStore>;

    /// Makes `bucket`, but for its time, which is now. [`StoreError::BucketExists`] if anybody has one of that name.
    fn create_bucket(&self, bucket: Bucket) -> StoreFuture<'_, Bucket>;

    /// Changes a bucket and answers what it is now.
    fn change_bucket<'a>(&'a self, name: &'a str, change: BucketChange) -> StoreFuture<'a, Bucket>;

    /// The bucket of that name, whoever owns it, or [`StoreError::NoSuchBucket`].
    fn head_bucket<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Bucket>;

    /// The buckets of `owner`, in byte order of their names.
    fn list_buckets<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Vec<Bucket>>;

    /// Removes a bucket. [`StoreError::BucketNotEmpty`] if it holds any object.
    fn delete_bucket<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()>;

    /// Opens a sink for the bytes of an object to be. `length`, if the client said it, is in bytes and lets the store
    /// refuse at once what it has no room for ([`StoreError::SlowDown`], [`StoreError::TooLarge`]).
    fn begin_put<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        length: Option<u64>,
    ) -> StoreFuture<'a, Box<dyn PutSink>>;

    /// Refuses what the store will not have room for, however long it is waited for. For those who would do much before
    /// they begin a put of so many bytes.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] or [`StoreError::NoRoom`].
    fn check_room(&self, bytes: u64) -> Result<(), StoreError> {
        let _ = bytes;
        Ok(())
    }

    /// What is known of an object, or [`StoreError::NoSuchKey`]. Never touches a drive.
    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> StoreFuture<'a, Object>;

    /// The object at `key` along with its bucket, in one read of the catalog. Never touches a drive.
    fn locate<'a>(&'a self, bucket: &'a str, key: &'a str) -> StoreFuture<'a, Located>;

    /// The bytes `range` of an object that was located, which lies within it. Resolves when the first bytes are
    /// available, which takes a while for a cold object; [`StoreError::SlowDown`] when that would be longer than the
    /// store lets a client wait. `None` if it is not there any more: whoever wants it locates it again.
    fn read<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        located: &'a PlacedObject,
        range: Range<u64>,
    ) -> StoreFuture<'a, Option<ObjectBytes>>;

    /// The bytes `range` of the current version (all of it without one), as [`Self::locate`] and [`Self::read`] give
    /// them. The object in the answer is the version the bytes are of.
    fn get<'a>(&'a self, bucket: &'a str, key: &'a str, range: Option<Range<u64>>) -> StoreFuture<'a, GetBody> {
        Box::pin(async move {
            for _ in 0..LOOKUPS_MAX {
                let placed = self.locate(bucket, key).await?.object?;
                let bytes = placed.object.bytes;
                // Whoever asked for bytes of an older, longer version is told by the version of the answer.
                let range = range.clone().map_or(0..bytes, |range| range.start.min(bytes)..range.end.min(bytes));
                if let Some(bytes) = self.read(bucket, key, &placed, range).await? {
                    return Ok(GetBody { object: placed.object, bytes });
                }
            }
            Err(StoreError::overwritten())
        })
    }

    /// Changes an object but for its bytes, and answers what it is now. Never touches a drive.
    fn change<'a>(&'a self, bucket: &'a str, key: &'a str, change: ObjectChange) -> StoreFuture<'a, Object>;

    /// Removes an object if `condition` holds. Without a condition, well if there is none; with one,
    /// [`StoreError::PreconditionFailed`], or [`StoreError::NoSuchKey`] if there is none.
    fn delete<'a>(&'a self, bucket: &'a str, key: &'a str, condition: Condition) -> StoreFuture<'a, ()>;

    /// A page of the objects of a bucket. Never touches a drive.
    fn list<'a>(&'a self, bucket: &'a str, query: ListQuery) -> StoreFuture<'a, ListPage>;

    /// Gives the version `version` of an object other headers, metadata and a new time of change, and leaves its bytes
    /// where they are. Whether it still was that version; if not, nothing was changed.
    fn restate<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        version: VersionId,
        meta: Restatement,
    ) -> StoreFuture<'a, Option<Object>>;

    /// Begins an upload in parts and gives its number.
    fn create_upload<'a>(&'a self, bucket: &'a str, key: &'a str, meta: UploadMeta) -> StoreFuture<'a, VersionId>;

    /// What is known of an upload that is neither completed nor aborted, or [`StoreError::NoSuchUpload`].
    fn upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> StoreFuture<'a, Upload>;

    /// Opens a sink for the `length` bytes of part `number`. Committing it puts the part into the upload, in the place
    /// of the one of that number; of its [`PutMeta`] only the ETag and the first checksum count, which is of the
    /// upload's kind.
    fn begin_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        upload: VersionId,
        number: u32,
        length: u64,
    ) -> StoreFuture<'a, Box<dyn PutSink>>;

    /// Makes an object of an upload's parts. [`StoreError::NoSuchUpload`] if it is not open any more,
    /// [`StoreError::NoSuchPart`] if a part is not as `completion` says. The front waits it out, as a commit.
    fn complete_upload<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        completion: Completion,
    ) -> StoreFuture<'a, Committed>;

    /// Gives an upload up, and what its parts took.
    fn abort_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> StoreFuture<'a, ()>;

    /// A page of the uploads of a bucket.
    fn list_uploads<'a>(&'a self, bucket: &'a str, query: UploadQuery) -> StoreFuture<'a, UploadPage>;

    /// At most `limit` parts with numbers above `after`, of an open upload, or of an object that became of one. None of
    /// what is neither.
    fn parts(&self, upload: VersionId, after: u32, limit: usize) -> StoreFuture<'_, Vec<Part>>;
}

/// Takes the bytes of one object to be. Dropping it forgets them.
pub trait PutSink: Send {
    /// Appends `bytes`. Pieces come as the network cuts them, from one byte to some hundred KiB.
    fn write(&mut self, bytes: Bytes) -> StoreFuture<'_, ()>;

    /// Forgets what was written and gives its room back before it answers.
    fn abort(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Makes what was written the object's current version: durable and visible when it answers, and not at all if it
    /// fails. `meta.condition` is checked in the same step ([`StoreError::PreconditionFailed`], or
    /// [`StoreError::NoSuchKey`] for an `IfMatch` on nothing).
    fn commit(self: Box<Self>, meta: PutMeta) -> StoreFuture<'static, Committed>;
}

/// What is told of an object when its bytes are complete and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutMeta {
    /// Hex MD5 of the bytes, without quotes.
    pub etag: String,
    /// System headers to give back as they came, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// User metadata, by lower-case name without `x-amz-meta-`.
    pub metadata: Vec<(String, String)>,
    /// Checksums that were verified, or computed where the client sent none.
    pub checksums: Vec<Checksum>,
    /// Who may read it.
    pub acl: Acl,
    /// Its tags, by key.
    pub tags: Vec<(String, String)>,
    /// When its bytes came into being, in milliseconds of the Unix epoch; now, if there is nothing here. A copy keeps
    /// what its source has.
    pub created_ms: Option<u64>,
    /// What must hold of the version that is replaced.
    pub condition: Condition,
}

/// What an object is to be described as from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restatement {
    /// System headers to give back as they came, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// User metadata, by lower-case name without `x-amz-meta-`.
    pub metadata: Vec<(String, String)>,
    /// Who may read it.
    pub acl: Acl,
    /// Its tags; as they are, if there are none here.
    pub tags: Option<Vec<(String, String)>>,
    /// What must hold of the current version.
    pub condition: Condition,
}

/// What an upload in parts begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadMeta {
    /// System headers to give back as they came, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// User metadata, by lower-case name without `x-amz-meta-`.
    pub metadata: Vec<(String, String)>,
    /// The checksum that each part will have.
    pub checksum: ChecksumKind,
    /// Whether the client named it.
    pub checksum_named: bool,
    /// Whether the object's will be one of the parts' checksums.
    pub composite: bool,
    /// Who may read the object.
    pub acl: Acl,
    /// Its tags.
    pub tags: Vec<(String, String)>,
}

/// What an upload in parts ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which upload.
    pub upload: VersionId,
    /// The parts, in ascending order of their numbers.
    pub parts: Vec<ChosenPart>,
    /// The lengths of those.
    pub lengths: PartLengths,
    /// The object's ETag, without quotes.
    pub etag: String,
    /// The object's checksums.
    pub checksums: Vec<Checksum>,
    /// What must hold of the version that is replaced.
    pub condition: Condition,
}

/// Which uploads of a bucket to list. As [`ListQuery`], with uploads in the place of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadQuery {
    /// Only to keys that begin with this.
    pub prefix: String,
    /// Fold keys at this string; never empty.
    pub delimiter: Option<String>,
    /// Only behind all uploads to this key, or behind that one of them.
    pub after: Option<(String, Option<VersionId>)>,
    /// At most this many entries, 1 to 1,000.
    pub max_uploads: usize,
}

/// A part of a listing of uploads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadPage {
    /// Uploads with their keys, by key and then by age, oldest first.
    pub uploads: Vec<(String, Upload)>,
    /// Common prefixes, in byte order.
    pub prefixes: Vec<String>,
    /// Whether there are more entries behind the last of this page.
    pub truncated: bool,
}

/// What must hold of an object's current version for a put to replace it, or a delete to remove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is one.
    IfPresent,
    /// There is none.
    IfAbsent,
    /// It has this ETag (without quotes).
    IfMatch(String),
}

/// A version that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its ETag, without quotes.
    pub etag: String,
    /// Its number.
    pub version: VersionId,
    /// When it was made, in milliseconds of the Unix epoch.
    pub modified_ms: u64,
}

/// An object with its bytes, or those of a range.
pub struct GetBody {
    /// The version they are of.
    pub object: Object,
    /// The bytes.
    pub bytes: ObjectBytes,
}

/// An object along with its bucket.
pub struct Located {
    /// The bucket.
    pub bucket: Bucket,
    /// The object, and where its bytes lie; [`StoreError::NoSuchKey`] if there is none.
    pub object: Result<PlacedObject, StoreError>,
}

/// Which part of a bucket to list.
///
/// Entries are keys and, with a delimiter, common prefixes: what of a key reaches from its beginning to the end of the
/// first delimiter behind `prefix`. All keys with the same common prefix are one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only keys that begin with this.
    pub prefix: String,
    /// Fold keys at this string; never empty.
    pub delimiter: Option<String>,
    /// Only keys behind this one in byte order. If it is itself a common prefix of this listing, all keys that begin
    /// with it are left out. The last entry of a page, given here, continues the listing.
    pub after: Option<String>,
    /// At most this many entries, 1 to 1,000.
    pub max_keys: usize,
}

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Keys and their objects, in byte order.
    pub objects: Vec<(String, Object)>,
    /// Common prefixes, in byte order.
    pub prefixes: Vec<String>,
    /// Whether there are more entries behind the last of this page.
    pub truncated: bool,
}

impl ListPage {
    /// The last entry of the page, key or common prefix: where the next page goes on.
    pub fn last(&self) -> Option<&str> {
        let key = self.objects.last().map(|(key, _)| key.as_str());
        key.max(self.prefixes.last().map(String::as_str))
    }
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no bucket of that name.
    #[error("no such bucket")]
    NoSuchBucket,
    /// There is no object of that key.
    #[error("no such key")]
    NoSuchKey,
    /// There is no such upload: it was completed or aborted, or never begun.
    #[error("no such upload")]
    NoSuchUpload,
    /// An upload has no such part, or another one of that number.
    #[error("no such part {0}")]
    NoSuchPart(u32),
    /// There is a bucket of that name already.
    #[error("the bucket exists")]
    BucketExists {
        /// Whether it belongs to who asked.
        owned_by_you: bool,
    },
    /// The access key that signed the request is nobody's any more.
    #[error("no such access key")]
    NoSuchAccessKey,
    /// The bucket to be removed holds objects.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// The condition of a put or a delete does not hold; nothing was changed.
    #[error("the precondition does not hold")]
    PreconditionFailed,
    /// Not now: the workshop is full, the object is cold beyond the client's patience, a queue is full.
    #[error("not now: {reason}")]
    SlowDown {
        /// When to come again, in seconds from now.
        retry_after_s: u32,
        /// What it waits for, for the client to read.
        reason: String,
    },
    /// More bytes than this store ever takes in one object.
    #[error("{reason}")]
    TooLarge {
        /// How many it takes and what can be done about that, for the client to read.
        reason: String,
    },
    /// There is no room left at all, and waiting makes none.
    #[error("no room: {reason}")]
    NoRoom {
        /// What is full, for the client to read.
        reason: String,
    },
    /// Something the store needs does not answer; asking again later may help.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// What, for the log.
        reason: String,
    },
    /// Bytes that were accepted cannot be read back any more.
    #[error("data lost: {what}")]
    DataLost {
        /// Of what and how much, for the log.
        what: String,
    },
    /// What is there cannot be read, or not be found any more: a staged file or a record of the catalog is damaged. For
    /// the log.
    #[error("damaged: {0}")]
    Damaged(String),
    /// Anything else; for the log.
    #[error("internal: {0}")]
    Internal(String),
}

impl StoreError {
    /// An object is overwritten faster than it can be read.
    pub(super) fn overwritten() -> Self {
        Self::SlowDown { retry_after_s: 1, reason: "The object is being replaced faster than it can be read.".into() }
    }
}
