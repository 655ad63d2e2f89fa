//! The object service behind the S3 frontend: buckets and objects over catalog, workshop and rack.
//!
//! - A PUT is a staged file that is synced, and then one batch of the catalog; both run in a separate task, so a client
//!   that disconnects in between leaves either nothing or a whole object.
//! - A GET asks the catalog twice: for the object's place, and, when its blob is held, whether the object is still
//!   there, so the bytes that are read cannot be reclaimed meanwhile. A staged object is read from its file, a stored
//!   one by a recall.
//! - Lists and HEADs ask the catalog alone.

use crate::context::{Context, is_refusal, usage_of};
use crate::holds::Hold;
use crate::pacing::ClientHere;
use crate::read_ahead::ReadAhead;
use crate::recall::Recalls;
use crate::store_error::{catalog_error, damaged, recall_error, stage_error, workshop_full};
use crate::users::ROOT;
use crate::whole;
use crate::world::WorldHandle;
use bytes::Bytes;
use catalog::{
    AgedVersion, Authority, Blob, Bucket, BucketChange, CatalogError, Checksum, Displaced, ListRequest, Listing,
    MetadataChange, Object, ObjectChange, Part, Place, PlacedObject, PutCondition, Upload, UploadListRequest,
    UploadListing, VersionId,
};
use engine::Event;
use engine::recall::SOON;
use futures::future::BoxFuture;
use futures::stream::{StreamExt, TryStreamExt};
use model::BlobId;
use s3::store::{
    Completion, Located, ObjectBytes, ObjectStore, PartId, PutSink, ReadBytes, ReadyBytes, ServiceError, ServiceFuture,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use workshop::{NamedSlot, StagedWriter};

/// Serves the S3 frontend. A clone is another handle on the same service.
#[derive(Clone)]
pub struct ObjectService {
    pub(crate) context: Context,
    world: WorldHandle,
    recalls: Recalls,
    /// `None` if only requested bytes are read.
    ahead: Option<ReadAhead>,
    max_wait: Duration,
}

impl ObjectService {
    /// A service whose clients wait up to `max_wait` (wall time) for a cold object.
    pub fn new(context: Context, world: WorldHandle, max_wait: Duration) -> Self {
        let recalls = Recalls::new(context.clone(), world.clone());
        let ahead = Some(ReadAhead::new(context.clone(), world.clone()));
        Self { context, world, recalls, ahead, max_wait }
    }

    /// The same; without `read_ahead` only requested bytes are read.
    #[must_use]
    pub fn with_read_ahead(self, read_ahead: bool) -> Self {
        Self { ahead: self.ahead.filter(|_| read_ahead), ..self }
    }

    /// The bytes `range` of a located object; `None` if it is no longer there.
    async fn bytes_of(
        &self,
        at: (&str, &str),
        placed: &PlacedObject,
        range: Range<u64>,
    ) -> Result<Option<ReadBytes>, ServiceError> {
        assert!(range.end <= placed.object.bytes, "the front asks for bytes that the object has");
        let is_whole = range == (0..placed.object.bytes);
        let read = match placed.place {
            Place::Stored { blob, offset } => self.stored(at, placed, (blob, offset), range.clone()).await?,
            place => self.staged(at, &placed.object, place, range.clone()).await?.map(ReadBytes::Here),
        };
        let Some(read) = read else { return Ok(None) };
        let (service, bucket, key, placed) = (self.clone(), at.0.to_owned(), at.1.to_owned(), placed.clone());
        Ok(Some(read.map(move |bytes| {
            let context = &service.context;
            let bytes = if is_whole { whole::checked(context, &bucket, &key, &placed.object, bytes) } else { bytes };
            let is_staged = !matches!(placed.place, Place::Stored { .. });
            if is_staged { counted(context, &placed, range, bytes) } else { bytes }
        })))
    }

    /// The bytes of an object in the rack; `None` if it is elsewhere by now. It is looked up once more when its blob is
    /// held, so any later step that takes it away sees the hold.
    async fn stored(
        &self,
        at: (&str, &str),
        placed: &PlacedObject,
        (blob, offset): (BlobId, u64),
        range: Range<u64>,
    ) -> Result<Option<ReadBytes>, ServiceError> {
        let hold = self.context.holds.guard(blob);
        let (again, found) = self.context.catalog.object_and_blob(at.0, at.1, blob).await.map_err(catalog_error)?;
        if again.is_none_or(|again| (again.object.version, again.place) != (placed.object.version, placed.place)) {
            return Ok(None);
        }
        let found = found.ok_or_else(|| ServiceError::Internal(format!("{blob} is not in the catalog")))?;
        assert!(self.context.holds.is_held(blob), "a blob is held before its object is looked up once more");
        let wanted = offset + range.start..offset + range.end;
        if wanted.end > found.payload_bytes {
            return Err(ServiceError::Damaged(format!("the object is not within {blob}, which should hold it")));
        }
        let is_here = self.recalls.is_here(&found, &wanted);
        if let Some(ahead) = &self.ahead {
            ahead.asked(at, placed, &found, (range, is_here));
        }
        let mut awaited = self.awaited(hold, found, wanted);
        // Bytes that are not in the spool are awaited from the beginning, so that many clients that come at once take
        // no place from others. Bytes that are may be evicted at this moment.
        let soon = if is_here { tokio::time::timeout(SOON, awaited.as_mut()).await.ok() } else { None };
        Ok(Some(match soon {
            Some(ready) => ReadBytes::Here(ready?.await?),
            None => ReadBytes::Awaited(awaited),
        }))
    }

    /// The payload bytes `wanted` of `blob`, which `hold` holds, once they are in the spool.
    fn awaited(&self, hold: Hold, blob: Blob, wanted: Range<u64>) -> ServiceFuture<'static, ReadyBytes> {
        let (recalls, max_wait) = (self.recalls.clone(), self.max_wait);
        Box::pin(async move {
            let ready = recalls.ready(blob, wanted, max_wait).await.map_err(recall_error)?;
            Ok(Box::pin(async move {
                let _hold = hold;
                let bytes = ready.open().await.map_err(recall_error)?;
                Ok(bytes.map_err(recall_error).boxed())
            }) as ReadyBytes)
        })
    }

    /// The expected wait of a read of a located object; `None` if its bytes are available.
    async fn forecast(&self, located: &PlacedObject) -> Result<Option<Duration>, ServiceError> {
        let Place::Stored { blob, offset } = located.place else { return Ok(None) };
        // A blob that is gone by now was evacuated to the workshop, or is no longer wanted.
        let Some(blob) = self.context.catalog.blob(blob).await.map_err(catalog_error)? else { return Ok(None) };
        if self.recalls.is_here(&blob, &(offset..offset + located.object.bytes)) {
            return Ok(None);
        }
        Ok(Some(self.recalls.forecast(blob.group).await))
    }

    /// Refuses an object in quarantine before anything is sent. Ranges of it are still tried.
    async fn can_be_read(&self, object: &Object, range: &Range<u64>) -> Result<(), ServiceError> {
        if *range != (0..object.bytes) {
            return Ok(());
        }
        match self.context.catalog.unreadable_of(object.version).await.map_err(catalog_error)? {
            Some(unreadable) => Err(ServiceError::Damaged(unreadable.reason)),
            None => Ok(()),
        }
    }

    /// The bytes of a staged object; `None` if it is elsewhere by now.
    async fn staged(
        &self,
        at: (&str, &str),
        object: &Object,
        place: Place,
        range: Range<u64>,
    ) -> Result<Option<ObjectBytes>, ServiceError> {
        self.can_be_read(object, &range).await?;
        let opened = match place {
            Place::Staged { slot } => self.in_file(at, object, slot, range).await?,
            _ => self.in_parts(at, object, range).await?,
        };
        let slot = match opened {
            Staged::Here(bytes) => return Ok(Some(bytes)),
            Staged::Moved => return Ok(None),
            Staged::Missing(slot) => slot,
        };
        // It has migrated or was overwritten; otherwise its file is missing.
        let again = self.context.catalog.placed_objects(&[at]).await.map_err(catalog_error)?.pop().flatten();
        if again.is_some_and(|again| (again.object.version, again.place) == (object.version, place)) {
            return Err(ServiceError::Damaged(format!("the staged file of slot {slot} is missing")));
        }
        Ok(None)
    }

    async fn in_file(
        &self,
        (bucket, key): (&str, &str),
        object: &Object,
        slot: u64,
        range: Range<u64>,
    ) -> Result<Staged, ServiceError> {
        let opened = self.context.staging.open(NamedSlot::of(slot, bucket, key)).await;
        match opened.and_then(|reader| reader.of_version(object.version.0, bucket, key)) {
            Ok(reader) => {
                let here = self.context.pacing.client();
                let read = reader.read(range).map_err(move |error| {
                    let _here = &here;
                    damaged(&error)
                });
                Ok(Staged::Here(read.boxed()))
            }
            Err(workshop::ReadError::NotFound { .. }) => Ok(Staged::Missing(slot)),
            Err(error) => Err(damaged(&error)),
        }
    }
}

/// `bytes`, the `range` of the staged object `placed` on its way to a client. Counts the begin of a read, and its end
/// with the last byte.
fn counted(context: &Context, placed: &PlacedObject, range: Range<u64>, bytes: ObjectBytes) -> ObjectBytes {
    let (counters, of, length) = (Arc::clone(&context.counters), AgedVersion::of(placed), placed.object.bytes);
    if counters.reads.begun(of, (context.wall)()) {
        let (counters, catalog) = (Arc::clone(&counters), context.catalog.clone());
        (context.spawn)(Box::pin(async move { counters.reads.write_or_warn(&catalog).await }));
    }
    if range.is_empty() {
        counters.reads.ended(of, length, range);
        return bytes;
    }
    let mut left_bytes = range.end - range.start;
    bytes
        .inspect_ok(move |chunk| {
            let last = left_bytes > 0 && chunk.len() as u64 >= left_bytes;
            left_bytes = left_bytes.saturating_sub(chunk.len() as u64);
            if last {
                counters.reads.ended(of, length, range.clone());
            }
        })
        .boxed()
}

/// The outcome of opening a staged object.
pub(crate) enum Staged {
    /// Its bytes.
    Here(ObjectBytes),
    /// The file of this slot is missing.
    Missing(u64),
    /// The object is elsewhere by now, or was overwritten.
    Moved,
}

impl ObjectStore for ObjectService {
    fn authorised(&self, authority: Authority) -> Arc<dyn ObjectStore> {
        let mut by = self.clone();
        by.context.catalog = self.context.catalog.authorised(authority);
        Arc::new(by)
    }

    fn create_bucket(&self, bucket: Bucket) -> ServiceFuture<'_, Bucket> {
        Box::pin(async move {
            let bucket = Bucket { created_ms: (self.context.wall)(), ..bucket };
            let made = if bucket.owner == ROOT {
                self.context.catalog.create_bucket(&bucket).await
            } else {
                self.context.catalog.create_users_bucket(&bucket).await
            };
            match made {
                Ok(()) => Ok(bucket),
                Err(CatalogError::BucketExists) => {
                    let found = self.context.catalog.bucket(&bucket.name).await.map_err(catalog_error)?;
                    Err(ServiceError::BucketExists { owned_by_you: found.owner == bucket.owner })
                }
                Err(error) => Err(catalog_error(error)),
            }
        })
    }

    fn change_bucket<'a>(&'a self, name: &'a str, change: BucketChange) -> ServiceFuture<'a, Bucket> {
        Box::pin(async move { self.context.catalog.change_bucket(name, &change).await.map_err(catalog_error) })
    }

    fn head_bucket<'a>(&'a self, name: &'a str) -> ServiceFuture<'a, Bucket> {
        Box::pin(async move { self.context.catalog.bucket(name).await.map_err(catalog_error) })
    }

    fn list_buckets<'a>(&'a self, owner: &'a str) -> ServiceFuture<'a, Vec<Bucket>> {
        Box::pin(async move {
            let buckets = self.context.catalog.buckets().await.map_err(catalog_error)?;
            Ok(buckets.into_iter().filter(|bucket| bucket.owner == owner).collect())
        })
    }

    fn delete_bucket<'a>(&'a self, name: &'a str) -> ServiceFuture<'a, ()> {
        let (service, name) = (self.clone(), name.to_owned());
        in_task(async move { service.delete_bucket_and_uploads(&name).await })
    }

    fn begin_put<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        object: Object,
        condition: PutCondition,
    ) -> ServiceFuture<'a, Box<dyn PutSink>> {
        Box::pin(async move {
            self.check_room(object.bytes)?;
            let here = self.context.pacing.client();
            self.context.pacing.admitted(usage_of(&self.context), object.bytes).await;
            let reservation =
                self.context.staging.reserve_growing(object.bytes).map_err(|full| workshop_full(&full))?;
            let slot = self.context.catalog.next_slot().await.map_err(catalog_error)?;
            if let Some(small) = &self.context.small {
                small.admit(&self.context.catalog, slot, object.bytes);
            }
            let created = self.context.staging.create(slot, reservation).await;
            let writer = created.map_err(|error| {
                self.context.small.iter().for_each(|small| small.files.settled(slot));
                stage_error(error)
            })?;
            let (service, bucket, key) = (self.clone(), bucket.clone(), key.to_owned());
            Ok(Box::new(Sink { service, bucket, key, object, condition, slot, writer, here }) as Box<dyn PutSink>)
        })
    }

    fn check_room(&self, bytes: u64) -> Result<(), ServiceError> {
        self.context.staging.ever_fits(bytes).map_err(|full| workshop_full(&full))?;
        self.ever_fits_the_rack(bytes)?;
        self.room_in_rack()
    }

    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> ServiceFuture<'a, Object> {
        Box::pin(async move { self.context.catalog.head_object(bucket, key).await.map_err(catalog_error) })
    }

    fn locate<'a>(&'a self, bucket: &'a str, key: &'a str) -> ServiceFuture<'a, Located> {
        Box::pin(async move {
            let catalog::Located { bucket, object } =
                self.context.catalog.locate(bucket, key).await.map_err(catalog_error)?;
            Ok(Located { bucket, object: object.map_err(catalog_error) })
        })
    }

    fn read<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        located: &'a PlacedObject,
        range: Range<u64>,
    ) -> ServiceFuture<'a, Option<ReadBytes>> {
        Box::pin(self.bytes_of((bucket, key), located, range))
    }

    fn recall_forecast<'a>(&'a self, located: &'a PlacedObject) -> ServiceFuture<'a, Option<Duration>> {
        Box::pin(self.forecast(located))
    }

    fn change<'a>(&'a self, bucket: &'a str, key: &'a str, change: ObjectChange) -> ServiceFuture<'a, Object> {
        Box::pin(async move { self.context.catalog.change_object(bucket, key, &change).await.map_err(catalog_error) })
    }

    fn delete<'a>(&'a self, bucket: &'a str, key: &'a str, condition: PutCondition) -> ServiceFuture<'a, ()> {
        let (service, bucket, key) = (self.clone(), bucket.to_owned(), key.to_owned());
        in_task(async move {
            let deleted = service.context.catalog.delete_object_if(&bucket, &key, &condition).await;
            service.displaced(deleted.map_err(catalog_error)?);
            Ok(())
        })
    }

    fn list<'a>(&'a self, bucket: &'a str, request: ListRequest) -> ServiceFuture<'a, Listing> {
        if let Some(ahead) = &self.ahead {
            ahead.listed(bucket, &request.prefix);
        }
        Box::pin(async move { self.context.catalog.list_objects(bucket, &request).await.map_err(catalog_error) })
    }

    fn replace_metadata<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        metadata: MetadataChange,
        condition: PutCondition,
    ) -> ServiceFuture<'a, Option<Object>> {
        Box::pin(async move {
            let replaced = MetadataChange { modified_ms: (self.context.wall)(), ..metadata };
            self.context.catalog.replace_metadata(bucket, key, &replaced, &condition).await.map_err(catalog_error)
        })
    }

    fn create_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: Upload) -> ServiceFuture<'a, VersionId> {
        Box::pin(self.create_upload_now(bucket, key, upload))
    }

    fn upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> ServiceFuture<'a, Upload> {
        Box::pin(async move { self.context.catalog.upload(bucket, key, upload).await.map_err(catalog_error) })
    }

    fn begin_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        part: PartId,
        bytes: u64,
    ) -> ServiceFuture<'a, Box<dyn PutSink>> {
        Box::pin(self.begin_part_now(bucket, key, part, bytes))
    }

    fn complete_upload<'a>(&'a self, bucket: &'a str, key: &'a str, completion: Completion) -> ServiceFuture<'a, ()> {
        let (service, bucket, key) = (self.clone(), bucket.to_owned(), key.to_owned());
        in_task(async move { service.complete_now(&bucket, &key, completion).await })
    }

    fn abort_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> ServiceFuture<'a, ()> {
        let (service, bucket, key) = (self.clone(), bucket.to_owned(), key.to_owned());
        in_task(async move { service.abort_now(&bucket, &key, upload).await })
    }

    fn list_uploads<'a>(&'a self, bucket: &'a str, request: UploadListRequest) -> ServiceFuture<'a, UploadListing> {
        Box::pin(async move { self.context.catalog.list_uploads(bucket, &request).await.map_err(catalog_error) })
    }

    fn parts(&self, upload: VersionId, after: u32, limit: usize) -> ServiceFuture<'_, Vec<Part>> {
        Box::pin(async move { self.context.catalog.parts_page(upload, after, limit).await.map_err(catalog_error) })
    }
}

/// Runs `work` in a separate task, which does not end when the client disconnects: what it displaces must be freed.
pub(crate) fn in_task<'a, T: Send + 'static>(
    work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
) -> ServiceFuture<'a, T> {
    let task = tokio::spawn(work);
    Box::pin(async move { task.await.unwrap_or_else(|error| Err(ServiceError::Internal(error.to_string()))) })
}

impl ObjectService {
    /// Frees the space of a version that was replaced: in the workshop soon, in the rack when its group wakes next.
    pub(crate) fn displaced(&self, displaced: Displaced) {
        match displaced {
            Displaced::Nothing => {}
            Displaced::Staged { bucket, key, slots, .. } => {
                self.free(slots.into_iter().map(|slot| NamedSlot::of(slot, &bucket, &key)).collect());
            }
            Displaced::Dead { group, bytes, .. } => self.world.report(Event::SpaceDead { group, bytes }),
        }
        self.report_usage();
    }

    /// Refuses writes while the engine reports the rack as full.
    pub(crate) fn room_in_rack(&self) -> Result<(), ServiceError> {
        if !self.context.counters.rack_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let reason =
            "The rack is full: no group of drives has room for the staged objects. Delete objects; waiting does not \
             help, and drives cannot be added to a rack yet."
                .to_owned();
        Err(ServiceError::NoRoom { reason })
    }

    /// Refuses an object that no group of the rack could hold even if the group were empty.
    pub(crate) fn ever_fits_the_rack(&self, bytes: u64) -> Result<(), ServiceError> {
        let most_bytes = self.context.counters.object_bytes_max.load(Ordering::Relaxed);
        if most_bytes == 0 || bytes <= most_bytes {
            return Ok(());
        }
        Err(ServiceError::TooLarge {
            reason: format!(
                "The object has {bytes} bytes, and no group of drives of this rack holds more than {most_bytes} of one \
                 object. Store it as several objects."
            ),
        })
    }

    pub(crate) fn report_usage(&self) {
        self.world.report(Event::StagingChanged(usage_of(&self.context)));
    }

    /// Makes `object` visible, whose staged file is in `slot`: already durable, or durable with its batch.
    async fn put_staged(
        &self,
        at: (&Bucket, &str),
        object: &Object,
        slot: u64,
        condition: &PutCondition,
    ) -> Result<Displaced, CatalogError> {
        let catalog = &self.context.catalog;
        let small = self.context.small.as_ref().and_then(|small| Some((small, small.files.payload(slot)?)));
        let Some((small, bytes)) = small else { return catalog.put_object(at, object, slot, condition).await };
        let put = catalog.put_logged_object(at, object, (slot, bytes), condition).await;
        small.settle(slot, &put);
        put
    }

    /// Frees staged files in the background, because no caller needs to wait for that. Until a file is gone its room
    /// counts as taken, which bounds their number; after a crash the next start removes them.
    pub(crate) fn free(&self, slots: Vec<NamedSlot>) {
        let slots = self.context.catalog_age.removable(slots);
        if slots.is_empty() {
            return;
        }
        let service = self.clone();
        (self.context.spawn)(Box::pin(async move {
            if let Err(error) = service.context.staging.free_all(&slots).await {
                tracing::warn!(%error, "a staged file could not be removed yet");
            }
            service.report_usage();
        }));
    }
}

/// Writes the bytes of one object into a staged file.
struct Sink {
    service: ObjectService,
    bucket: Bucket,
    key: String,
    /// The object as it is known before its bytes arrive.
    object: Object,
    condition: PutCondition,
    slot: u64,
    writer: StagedWriter,
    here: ClientHere,
}

impl PutSink for Sink {
    fn write(&mut self, bytes: Bytes) -> ServiceFuture<'_, ()> {
        Box::pin(async move { self.writer.write(&bytes).await.map_err(stage_error) })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        // Dropping the writer removes the file and releases its room.
        Box::pin(async move { drop(self) })
    }

    fn commit(self: Box<Self>, etag: String, checksums: Vec<Checksum>) -> ServiceFuture<'static, u64> {
        Box::pin(self.commit_all(etag, checksums))
    }
}

impl Sink {
    async fn commit_all(self, etag: String, checksums: Vec<Checksum>) -> Result<u64, ServiceError> {
        let Self { service, bucket, key, object, condition, slot, writer, here: _here } = self;
        // Before the file is finished: if it fails, the writer still removes its file.
        let version = service.context.catalog.next_version_id().await.map_err(catalog_error)?;
        let modified_ms = (service.context.wall)();
        let staged = writer.finish_for(version.0, 0, &bucket.name, &key).await.map_err(stage_error)?;
        assert_eq!(staged.bytes, object.bytes, "the front commits as many bytes as it announced");
        assert_eq!(staged.slot, slot, "the file that is committed is the one that was written");
        let created_ms = if object.created_ms == 0 { modified_ms } else { object.created_ms };
        let object = Object { version, etag, checksums, modified_ms, created_ms, ..object };
        match service.put_staged((&bucket, &key), &object, slot, &condition).await {
            Ok(displaced) => {
                service.displaced(displaced);
                Ok(modified_ms)
            }
            Err(error) => {
                if is_refusal(&error) {
                    service.free(vec![slot.into()]);
                } else {
                    service.report_usage(); // it may be staged
                }
                Err(catalog_error(error))
            }
        }
    }
}
