//! The house behind the S3 front: buckets and objects over catalog, workshop and rack.
//!
//! - A PUT is a staged file that is synced, and then one batch of the catalog; both run in a task of their own, so that
//!   a client who hangs up in between leaves either nothing or a whole object.
//! - A GET of a staged object reads its file; of a stored one, a recall. A hold is taken and the object looked up once
//!   more, so that what is read cannot be reclaimed meanwhile.
//! - Lists and HEADs ask the catalog alone.

use crate::recall::{RecallError, Recalls};
use crate::s3::store::{
    Committed, Completion, Condition, GetBody, ListPage, ListQuery, ObjectStore, PutMeta, PutSink, Restatement,
    StoreError, StoreFuture, UploadMeta, UploadPage, UploadQuery,
};
use crate::users::ROOT;
use crate::whole;
use crate::world::{Means, WorldHandle, usage_of};
use bytes::Bytes;
use catalog::{
    Authority, Bucket, BucketChange, CatalogError, Displaced, ListRequest, Object, ObjectChange, Part, PartLengths,
    Place, PutCondition, Restated, Upload, VersionId,
};
use engine::{Event, Rejection};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use workshop::{StageError, StagedWriter};

/// Times a GET looks an object up before it gives up on one that is overwritten again and again.
const LOOKS: u32 = 8;

/// Answers the S3 front. A clone is another handle on the same house.
#[derive(Clone)]
pub struct House {
    pub(crate) means: Means,
    world: WorldHandle,
    recalls: Recalls,
    patience: Duration,
}

impl House {
    /// A house whose clients wait up to `patience` (wall time) for a cold object.
    pub fn new(means: Means, world: WorldHandle, patience: Duration) -> Self {
        let recalls = Recalls::new(means.clone(), world.clone());
        Self { means, world, recalls, patience }
    }

    async fn bytes_of(&self, bucket: &str, key: &str, range: Option<Range<u64>>) -> Result<GetBody, StoreError> {
        let GetBody { object, bytes } = self.unchecked_bytes_of(bucket, key, range.clone()).await?;
        let is_whole = range.is_none_or(|range| range == (0..object.bytes));
        let bytes = if is_whole { whole::checked(&self.means, bucket, key, &object, bytes) } else { bytes };
        Ok(GetBody { object, bytes })
    }

    async fn unchecked_bytes_of(
        &self,
        bucket: &str,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<GetBody, StoreError> {
        let mut missing = None;
        for _ in 0..LOOKS {
            let (object, place) = self.means.catalog.get_object(bucket, key).await.map_err(catalog_error)?;
            // Whoever asked for bytes of an older, longer version is told by the version of the answer.
            let range = range
                .clone()
                .map_or(0..object.bytes, |range| range.start.min(object.bytes)..range.end.min(object.bytes));
            match place {
                Place::Staged { .. } | Place::Parts => {
                    self.can_be_read(&object, &range).await?;
                    let slot = match self.staged((bucket, key), &object, place, range).await? {
                        Staged::Here(bytes) => return Ok(GetBody { object, bytes }),
                        Staged::Missing(slot) => slot,
                        Staged::Moved => continue,
                    };
                    // Gone because it has migrated or was overwritten, or else it should be there and is not.
                    if missing.replace(slot) == Some(slot) {
                        return Err(StoreError::Damaged(format!("the staged file of slot {slot} is missing")));
                    }
                }
                Place::Stored { blob, offset } => {
                    let _hold = self.means.holds.guard(blob);
                    let (again, same) = self.means.catalog.get_object(bucket, key).await.map_err(catalog_error)?;
                    if (again.version, same) != (object.version, place) {
                        continue;
                    }
                    let found = self.means.catalog.blob(blob).await.map_err(catalog_error)?;
                    let found = found.ok_or_else(|| StoreError::Internal(format!("{blob} is not in the catalog")))?;
                    let wanted = offset + range.start..offset + range.end;
                    let bytes = self.recalls.open(found, wanted, self.patience).await.map_err(recall_error)?;
                    return Ok(GetBody { object, bytes: bytes.map_err(recall_error).boxed() });
                }
            }
        }
        Err(StoreError::SlowDown { retry_after_s: 1, reason: "the object is being overwritten".into() })
    }

    /// Refuses what is known not to be readable as a whole, before anything is sent. A range of it is tried.
    async fn can_be_read(&self, object: &Object, range: &Range<u64>) -> Result<(), StoreError> {
        if *range != (0..object.bytes) {
            return Ok(());
        }
        match self.means.catalog.unreadable_of(object.version).await.map_err(catalog_error)? {
            Some(unreadable) => Err(StoreError::Damaged(unreadable.reason)),
            None => Ok(()),
        }
    }

    /// The bytes of a staged object, unless one of its files is gone by now.
    async fn staged(
        &self,
        at: (&str, &str),
        object: &Object,
        place: Place,
        range: Range<u64>,
    ) -> Result<Staged, StoreError> {
        if let Place::Staged { slot } = place {
            let opened = self.means.staging.open(slot).await;
            return match opened.and_then(|reader| reader.of_version(object.version.0, at.0, at.1)) {
                Ok(reader) => Ok(Staged::Here(reader.read(range).map_err(|error| damaged(&error)).boxed())),
                Err(workshop::ReadError::NotFound { .. }) => Ok(Staged::Missing(slot)),
                Err(error) => Err(damaged(&error)),
            };
        }
        self.in_parts(at, object, range).await
    }
}

/// What came of opening a staged object.
pub(crate) enum Staged {
    /// Its bytes.
    Here(BoxStream<'static, Result<Bytes, StoreError>>),
    /// The file of that slot is not there.
    Missing(u64),
    /// The object lies elsewhere by now, or was overwritten.
    Moved,
}

impl ObjectStore for House {
    fn authorised(&self, authority: Authority) -> Arc<dyn ObjectStore> {
        let mut by = self.clone();
        by.means.catalog = self.means.catalog.authorised(authority);
        Arc::new(by)
    }

    fn create_bucket(&self, bucket: Bucket) -> StoreFuture<'_, Bucket> {
        Box::pin(async move {
            let bucket = Bucket { created_ms: (self.means.wall)(), ..bucket };
            let made = if bucket.owner == ROOT {
                self.means.catalog.create_bucket(&bucket).await
            } else {
                self.means.catalog.create_users_bucket(&bucket).await
            };
            match made {
                Ok(()) => Ok(bucket),
                Err(CatalogError::BucketExists) => {
                    let found = self.means.catalog.bucket(&bucket.name).await.map_err(catalog_error)?;
                    Err(StoreError::BucketExists { owned_by_you: found.owner == bucket.owner })
                }
                Err(error) => Err(catalog_error(error)),
            }
        })
    }

    fn change_bucket<'a>(&'a self, name: &'a str, change: BucketChange) -> StoreFuture<'a, Bucket> {
        Box::pin(async move { self.means.catalog.change_bucket(name, &change).await.map_err(catalog_error) })
    }

    fn head_bucket<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Bucket> {
        Box::pin(async move { self.means.catalog.bucket(name).await.map_err(catalog_error) })
    }

    fn list_buckets<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Vec<Bucket>> {
        Box::pin(async move {
            let buckets = self.means.catalog.buckets().await.map_err(catalog_error)?;
            Ok(buckets.into_iter().filter(|bucket| bucket.owner == owner).collect())
        })
    }

    fn delete_bucket<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()> {
        let (house, name) = (self.clone(), name.to_owned());
        in_task(async move { house.delete_bucket_and_uploads(&name).await })
    }

    fn begin_put<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        length: Option<u64>,
    ) -> StoreFuture<'a, Box<dyn PutSink>> {
        Box::pin(async move {
            let Some(bytes) = length else {
                return Err(StoreError::Internal("the length of a put is not known".into()));
            };
            self.check_room(bytes)?;
            let reservation = self.means.staging.reserve_growing(bytes).map_err(|full| workshop_full(&full))?;
            let slot = self.means.catalog.next_slot().await.map_err(catalog_error)?;
            let writer = self.means.staging.create(slot, reservation).await.map_err(stage_error)?;
            let sink = Sink { house: self.clone(), bucket: bucket.clone(), key: key.into(), slot, writer };
            Ok(Box::new(sink) as Box<dyn PutSink>)
        })
    }

    fn check_room(&self, bytes: u64) -> Result<(), StoreError> {
        self.means.staging.ever_fits(bytes).map_err(|full| workshop_full(&full))?;
        self.ever_fits_the_rack(bytes)?;
        self.room_in_rack()
    }

    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> StoreFuture<'a, Object> {
        Box::pin(async move { self.means.catalog.head_object(bucket, key).await.map_err(catalog_error) })
    }

    fn get<'a>(&'a self, bucket: &'a str, key: &'a str, range: Option<Range<u64>>) -> StoreFuture<'a, GetBody> {
        Box::pin(self.bytes_of(bucket, key, range))
    }

    fn change<'a>(&'a self, bucket: &'a str, key: &'a str, change: ObjectChange) -> StoreFuture<'a, Object> {
        Box::pin(async move { self.means.catalog.change_object(bucket, key, &change).await.map_err(catalog_error) })
    }

    fn delete<'a>(&'a self, bucket: &'a str, key: &'a str, condition: Condition) -> StoreFuture<'a, ()> {
        let (house, bucket, key) = (self.clone(), bucket.to_owned(), key.to_owned());
        in_task(async move {
            let condition = catalog_condition(condition);
            let deleted = house.means.catalog.delete_object_if(&bucket, &key, &condition).await;
            let displaced = deleted.map_err(catalog_error)?;
            house.displaced(displaced);
            Ok(())
        })
    }

    fn list<'a>(&'a self, bucket: &'a str, query: ListQuery) -> StoreFuture<'a, ListPage> {
        Box::pin(async move {
            let request = ListRequest {
                prefix: query.prefix,
                delimiter: query.delimiter,
                start_after: query.after,
                max_keys: query.max_keys,
            };
            let listing = self.means.catalog.list_objects(bucket, &request).await.map_err(catalog_error)?;
            Ok(ListPage { objects: listing.objects, prefixes: listing.common_prefixes, truncated: listing.truncated })
        })
    }

    fn restate<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        version: VersionId,
        meta: Restatement,
    ) -> StoreFuture<'a, Option<Object>> {
        Box::pin(async move {
            let Restatement { headers, metadata, acl, tags, condition } = meta;
            let modified_ms = (self.means.wall)();
            let restated = Restated { version, headers, metadata, acl, tags, modified_ms };
            let done = self.means.catalog.restate_object(bucket, key, &restated, &catalog_condition(condition)).await;
            done.map_err(catalog_error)
        })
    }

    fn create_upload<'a>(&'a self, bucket: &'a str, key: &'a str, meta: UploadMeta) -> StoreFuture<'a, VersionId> {
        Box::pin(self.create_upload_now(bucket, key, meta))
    }

    fn upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> StoreFuture<'a, Upload> {
        Box::pin(async move { self.means.catalog.upload(bucket, key, upload).await.map_err(catalog_error) })
    }

    fn begin_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        upload: VersionId,
        number: u32,
        length: u64,
    ) -> StoreFuture<'a, Box<dyn PutSink>> {
        Box::pin(self.begin_part_now(bucket, key, upload, number, length))
    }

    fn complete_upload<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        completion: Completion,
    ) -> StoreFuture<'a, Committed> {
        let (house, bucket, key) = (self.clone(), bucket.to_owned(), key.to_owned());
        in_task(async move { house.complete_now(&bucket, &key, completion).await })
    }

    fn abort_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> StoreFuture<'a, ()> {
        let (house, bucket, key) = (self.clone(), bucket.to_owned(), key.to_owned());
        in_task(async move { house.abort_now(&bucket, &key, upload).await })
    }

    fn list_uploads<'a>(&'a self, bucket: &'a str, query: UploadQuery) -> StoreFuture<'a, UploadPage> {
        Box::pin(self.list_uploads_now(bucket, query))
    }

    fn parts(&self, upload: VersionId, after: u32, limit: usize) -> StoreFuture<'_, Vec<Part>> {
        Box::pin(async move { self.means.catalog.parts_page(upload, after, limit).await.map_err(catalog_error) })
    }
}

/// Runs `work` in a task of its own, which a client that hangs up does not end: what it displaces must be freed.
pub(crate) fn in_task<'a, T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> StoreFuture<'a, T> {
    let task = tokio::spawn(work);
    Box::pin(async move { task.await.unwrap_or_else(|error| Err(StoreError::Internal(error.to_string()))) })
}

impl House {
    /// What an overwrite or a delete left behind will be freed: in the workshop soon, in the rack at its group's next
    /// wake.
    pub(crate) fn displaced(&self, displaced: Displaced) {
        match displaced {
            Displaced::Nothing => {}
            Displaced::Staged { slots, .. } => self.free(slots),
            Displaced::Doomed { group, bytes, .. } => self.world.tell(Event::SpaceDoomed { group, bytes }),
        }
        self.tell_usage();
    }

    /// Refuses what the rack would never have room for, by the engine's word.
    pub(crate) fn room_in_rack(&self) -> Result<(), StoreError> {
        if !self.means.counters.rack_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let reason =
            "The rack is full: no group of drives has room for what is staged. Delete objects, or add drives; \
                      waiting makes no room."
                .to_owned();
        Err(StoreError::NoRoom { reason })
    }

    /// Refuses an object that no group of the rack could hold even if it were empty.
    pub(crate) fn ever_fits_the_rack(&self, bytes: u64) -> Result<(), StoreError> {
        let most_bytes = self.means.counters.object_bytes_max.load(Ordering::Relaxed);
        if most_bytes == 0 || bytes <= most_bytes {
            return Ok(());
        }
        Err(StoreError::TooLarge {
            reason: format!(
                "The object has {bytes} bytes, and no group of drives of this rack holds more than {most_bytes} of one \
                 object. It can be stored in parts of its own, as several objects."
            ),
        })
    }

    pub(crate) fn tell_usage(&self) {
        self.world.tell(Event::StagingChanged(usage_of(&self.means)));
    }

    /// Frees staged files beside all else, since nobody wants to wait for that. Until a file is gone its room counts as
    /// taken, which bounds how many there can be; after a crash the next start removes it.
    pub(crate) fn free(&self, slots: Vec<u64>) {
        if slots.is_empty() {
            return;
        }
        let house = self.clone();
        (self.means.spawn)(Box::pin(async move {
            if let Err(error) = house.means.staging.free_all(&slots).await {
                tracing::warn!(%error, "a staged file could not be removed yet");
            }
            house.tell_usage();
        }));
    }
}

/// Takes the bytes of one object into a staged file.
struct Sink {
    house: House,
    bucket: Bucket,
    key: String,
    slot: u64,
    writer: StagedWriter,
}

impl PutSink for Sink {
    fn write(&mut self, bytes: Bytes) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.writer.write(&bytes).await.map_err(stage_error) })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        // Dropping the writer removes the file and gives its room back.
        Box::pin(async move { drop(self) })
    }

    fn commit(self: Box<Self>, meta: PutMeta) -> StoreFuture<'static, Committed> {
        in_task(self.commit_all(meta))
    }
}

impl Sink {
    async fn commit_all(self, meta: PutMeta) -> Result<Committed, StoreError> {
        let Self { house, bucket, key, slot, writer } = self;
        // Before the file is finished: if it fails, the writer still takes its file away.
        let version = house.means.catalog.next_version_id().await.map_err(catalog_error)?;
        let modified_ms = (house.means.wall)();
        let staged = writer.finish_for(version.0, 0, &bucket.name, &key).await.map_err(stage_error)?;
        let object = Object {
            version,
            bytes: staged.bytes,
            etag: meta.etag.clone(),
            modified_ms,
            created_ms: meta.created_ms.unwrap_or(modified_ms),
            headers: meta.headers,
            metadata: meta.metadata,
            checksums: meta.checksums,
            acl: meta.acl,
            tags: meta.tags,
            parts: PartLengths::default(),
        };
        let condition = catalog_condition(meta.condition);
        match house.means.catalog.put_object(&bucket, &key, &object, slot, &condition).await {
            Ok(displaced) => {
                house.displaced(displaced);
                Ok(Committed { etag: meta.etag, version, modified_ms: object.modified_ms })
            }
            Err(error) => {
                if is_refusal(&error) {
                    house.free(vec![slot]);
                }
                Err(catalog_error(error))
            }
        }
    }
}

/// Whether the catalog surely changed nothing. After any other error the change may be durable all the same, and a file
/// that it refers to must stay; one that nobody refers to goes at the next start.
pub(crate) fn is_refusal(error: &CatalogError) -> bool {
    matches!(
        error,
        CatalogError::NoSuchBucket
            | CatalogError::NoSuchKey
            | CatalogError::NoSuchUpload
            | CatalogError::NoSuchPart(_)
            | CatalogError::PreconditionFailed
            | CatalogError::Conflict
            | CatalogError::Store(catalog::StoreError::Full)
    )
}

pub(crate) fn catalog_condition(condition: Condition) -> PutCondition {
    match condition {
        Condition::Always => PutCondition::None,
        Condition::IfPresent => PutCondition::IfMatchAny,
        Condition::IfAbsent => PutCondition::IfNoneMatchAny,
        Condition::IfMatch(etag) => PutCondition::IfMatch(etag),
    }
}

pub(crate) fn catalog_error(error: CatalogError) -> StoreError {
    match error {
        CatalogError::NoSuchBucket => StoreError::NoSuchBucket,
        CatalogError::NoSuchKey => StoreError::NoSuchKey,
        CatalogError::NoSuchUpload => StoreError::NoSuchUpload,
        CatalogError::NoSuchPart(number) => StoreError::NoSuchPart(number),
        CatalogError::BucketExists => StoreError::BucketExists { owned_by_you: false },
        CatalogError::BucketNotEmpty => StoreError::BucketNotEmpty,
        CatalogError::PreconditionFailed => StoreError::PreconditionFailed,
        CatalogError::Conflict => {
            StoreError::SlowDown { retry_after_s: 1, reason: "too many writers of the same key".into() }
        }
        CatalogError::NoSuchAccessKey => StoreError::NoSuchAccessKey,
        CatalogError::Damaged(_) => StoreError::Damaged(error.to_string()),
        error => StoreError::Unavailable { reason: error.to_string() },
    }
}

/// Seconds to wait before trying again.
fn retry_after_s(wait: Duration) -> u32 {
    wait.as_secs_f64().ceil().clamp(1.0, 3600.0) as u32
}

pub(crate) fn workshop_full(full: &workshop::Full) -> StoreError {
    let workshop::Full { wanted_bytes, capacity_bytes, .. } = *full;
    match full.retry_after {
        Some(wait) => {
            StoreError::SlowDown { retry_after_s: retry_after_s(wait), reason: "the workshop is full".into() }
        }
        None => StoreError::TooLarge {
            reason: format!(
                "The object takes {wanted_bytes} bytes of the workshop, which holds {capacity_bytes} \
                 (workshop.capacity in larder.toml). It can be stored when the workshop is made larger."
            ),
        },
    }
}

pub(crate) fn stage_error(error: StageError) -> StoreError {
    match error {
        StageError::Full(full) => workshop_full(&full),
        error => StoreError::Unavailable { reason: error.to_string() },
    }
}

pub(crate) fn damaged(error: &workshop::ReadError) -> StoreError {
    match error.slot() {
        Some(_) => StoreError::Damaged(error.to_string()),
        None => StoreError::Unavailable { reason: error.to_string() },
    }
}

fn recall_error(error: RecallError) -> StoreError {
    match error {
        RecallError::TooLong(wait) => StoreError::SlowDown {
            retry_after_s: retry_after_s(wait),
            reason: "the object is cold and is being recalled".into(),
        },
        RecallError::SpoolFull(full) => StoreError::SlowDown {
            retry_after_s: full.retry_after.map_or(3600, retry_after_s),
            reason: "too many recalls at once".into(),
        },
        RecallError::Refused(Rejection::DataLost) => StoreError::DataLost { what: Rejection::DataLost.text().into() },
        RecallError::Refused(reason) => match reason.retry_after() {
            Some(wait) => StoreError::SlowDown { retry_after_s: retry_after_s(wait), reason: reason.text().into() },
            None => StoreError::Unavailable { reason: reason.text().into() },
        },
        RecallError::Spool(reason) => StoreError::Unavailable { reason },
    }
}
