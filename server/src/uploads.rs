//! Uploads in parts, behind the S3 frontend.
//!
//! A part is a staged file like any other; only the catalog knows an open upload and its parts. Parts of open uploads
//! take room in the workshop and never migrate; so that they cannot take all of it, they have a share. Completing is
//! one batch of the catalog and moves no bytes: the object is read from the files of its parts until it has migrated as
//! a whole.

use crate::context::{Context, WorldCounters, is_refusal, usage_of};
use crate::object_service::{ObjectService, Staged};
use crate::pacing::ClientHere;
use crate::store_error::{catalog_error, damaged, stage_error, workshop_full};
use bytes::Bytes;
use catalog::{CatalogError, Checksum, Object, Part, Place, PlacedObject, Upload, UploadListRequest, VersionId};
use engine::uploads::{Ends, SHARE_RETRY_AFTER, StaleWatch, open_bytes_max, recount_after};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use s3::store::{Completion, ObjectStore, PartId, PutSink, ServiceError, ServiceFuture};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use workshop::{ReadError, SlotHold, StagedReader, StagedWriter};

/// Parts per lookup.
const PAGE: usize = 1_000;
/// Uploads per lookup in the search for stale ones.
const STALE_PAGE: usize = 256;
/// The name under which the catalog stores the state of the watch for stale uploads.
const STALE_META: &str = "stale-uploads";

/// A piece of a client's read: its file, which stays, and the wanted range of it.
type Piece = (SlotHold, Range<u64>);

impl ObjectService {
    pub(crate) async fn create_upload_now(
        &self,
        bucket: &str,
        key: &str,
        upload: Upload,
    ) -> Result<VersionId, ServiceError> {
        let version = self.context.catalog.next_version_id().await.map_err(catalog_error)?;
        let upload = Upload { version, initiated_ms: (self.context.wall)(), ..upload };
        self.context.catalog.create_upload(bucket, key, &upload).await.map_err(catalog_error)?;
        Ok(version)
    }

    pub(crate) async fn begin_part_now(
        &self,
        bucket: &str,
        key: &str,
        part: PartId,
        bytes: u64,
    ) -> Result<Box<dyn PutSink>, ServiceError> {
        self.context.catalog.upload(bucket, key, part.upload).await.map_err(catalog_error)?;
        self.check_room(bytes)?;
        let here = self.context.pacing.client();
        self.context.pacing.admitted(usage_of(&self.context), bytes).await;
        let open = match self.open_part(bytes) {
            Err(error) => return Err(self.never_fits(part, bytes).await?.unwrap_or(error)),
            Ok(open) => open,
        };
        let reservation = self.context.staging.reserve_growing(bytes).map_err(|full| workshop_full(&full))?;
        let slot = self.context.catalog.next_slot().await.map_err(catalog_error)?;
        let writer = self.context.staging.create(slot, reservation).await.map_err(stage_error)?;
        let (service, bucket, key) = (self.clone(), bucket.to_owned(), key.to_owned());
        Ok(Box::new(PartSink { service, bucket, key, part, bytes, slot, writer, come_bytes: 0, open, here }))
    }

    /// Bytes of the workshop that the parts of all open uploads may take.
    fn open_bytes_max(&self) -> u64 {
        open_bytes_max(self.context.staging.usage().capacity_bytes)
    }

    /// Counts a part of `length` bytes as open, if its share of the workshop has room for it. Of its bytes, those count
    /// at first whose room is reserved before they come.
    fn open_part(&self, length: u64) -> Result<OpenPart, ServiceError> {
        let (counters, most_bytes) = (Arc::clone(&self.context.counters), self.open_bytes_max());
        let mut open = OpenPart { counters, bytes: 0, length, most_bytes };
        let before = open.counters.open_parts.bytes();
        if before.saturating_add(length) > most_bytes {
            return Err(open.share_is_full(before));
        }
        open.grow(0)?;
        Ok(open)
    }

    /// The reason that part `part` of `length` bytes will never have room beside the other parts of its upload, if so.
    async fn never_fits(&self, part: PartId, length: u64) -> Result<Option<ServiceError>, ServiceError> {
        let PartId { upload, number } = part;
        let (mut bytes, mut last) = (length, 0);
        loop {
            let page = self.context.catalog.parts_page(upload, last, PAGE).await.map_err(catalog_error)?;
            bytes += page.iter().filter(|part| part.number != number).map(|part| part.bytes).sum::<u64>();
            match page.last() {
                Some(part) => last = part.number,
                None => break,
            }
        }
        if let Err(error) = self.ever_fits_the_rack(bytes) {
            return Ok(Some(error));
        }
        let (most_bytes, capacity_bytes) = (self.open_bytes_max(), self.context.staging.usage().capacity_bytes);
        Ok((bytes > most_bytes).then(|| ServiceError::TooLarge {
            reason: format!(
                "With this part the upload has {bytes} bytes. The workshop must hold all parts of an upload at once: \
                 its capacity is {capacity_bytes} (workshop.capacity in larder.toml), and uploads may take \
                 {most_bytes} of that. Make the workshop larger to store the upload."
            ),
        }))
    }

    /// Records that parts are no longer open: they belong to an object, or to nothing.
    fn closed(&self, bytes: u64) {
        self.context.counters.open_parts.closed(bytes);
        self.report_usage();
    }

    /// Frees parts that are no longer wanted.
    fn free_parts(&self, parts: &[Part]) {
        self.closed(parts.iter().map(|part| part.bytes).sum());
        self.free(parts.iter().map(|part| part.slot.into()).collect());
    }

    /// The error of a change to parts, which are counted again unless it is certain that nothing has changed. The
    /// caller still holds `OpenParts::changing`.
    fn parts_error(&self, error: CatalogError) -> ServiceError {
        if !is_refusal(&error) && self.context.counters.open_parts.doubt() {
            let service = self.clone();
            (self.context.spawn)(Box::pin(async move { service.count_parts().await }));
        }
        catalog_error(error)
    }

    /// Counts the parts of open uploads again, until that succeeds.
    async fn count_parts(&self) {
        let Context { catalog, counters, .. } = &self.context;
        for failures in 1.. {
            let count = async { Ok::<_, CatalogError>(catalog.upload_usage().await?.bytes) };
            let counted = counters.open_parts.recount(count).await;
            self.report_usage();
            let Err(error) = counted else { return };
            tracing::warn!(%error, "could not count the parts of open uploads again; retrying");
            tokio::time::sleep(recount_after(failures)).await;
        }
    }

    pub(crate) async fn complete_now(
        &self,
        bucket: &str,
        key: &str,
        completion: Completion,
    ) -> Result<(), ServiceError> {
        let Completion { object, parts, condition } = completion;
        let modified_ms = (self.context.wall)();
        let object = Object { modified_ms, created_ms: modified_ms, ..object };
        let _until_it_is_counted = self.context.counters.open_parts.changing().await;
        let done = self.context.catalog.complete_upload((bucket, key), &object, &parts, &condition).await;
        let done = done.map_err(|error| self.parts_error(error))?;
        self.closed(object.bytes);
        self.free_parts(&done.unused);
        self.displaced(done.displaced);
        Ok(())
    }

    pub(crate) async fn abort_now(&self, bucket: &str, key: &str, upload: VersionId) -> Result<(), ServiceError> {
        let _until_it_is_counted = self.context.counters.open_parts.changing().await;
        let parts = self.context.catalog.abort_upload(bucket, key, upload).await;
        self.free_parts(&parts.map_err(|error| self.parts_error(error))?);
        Ok(())
    }

    /// Removes a bucket without objects, and the uploads into it.
    pub(crate) async fn delete_bucket_and_uploads(&self, bucket: &str) -> Result<(), ServiceError> {
        loop {
            match self.context.catalog.delete_bucket(bucket).await {
                Err(CatalogError::BucketNotEmpty) => {}
                other => return other.map_err(catalog_error),
            }
            let request = catalog::ListRequest { max_keys: 1, ..catalog::ListRequest::default() };
            let listing = self.context.catalog.list_objects(bucket, &request).await.map_err(catalog_error)?;
            if !listing.objects.is_empty() {
                return Err(ServiceError::BucketNotEmpty);
            }
            let request = UploadListRequest { max_uploads: PAGE, ..UploadListRequest::default() };
            let listing = self.context.catalog.list_uploads(bucket, &request).await.map_err(catalog_error)?;
            for (key, upload) in listing.uploads {
                match self.abort_now(bucket, &key, upload.version).await {
                    Ok(()) | Err(ServiceError::NoSuchUpload) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// A watch for uploads that are left open longer than `limit`, which continues where the last server's ended.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`].
    pub async fn stale_watch(&self, limit: Duration) -> Result<StaleWatch, ServiceError> {
        let kept = self.context.catalog.meta_get(STALE_META).await.map_err(catalog_error)?;
        // One that cannot be read starts from the beginning, which only makes uploads younger.
        Ok(StaleWatch::new(limit, kept.and_then(|kept| serde_json::from_slice(&kept).ok())))
    }

    /// Aborts the uploads that are stale for `watch`, after `watched` of watching. Returns their number.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`].
    pub async fn abort_stale(&self, watch: &mut StaleWatch, watched: Duration) -> Result<u64, ServiceError> {
        let catalog = &self.context.catalog;
        let version = catalog.next_version_id().await.map_err(catalog_error)?.0;
        let next = Ends { version, slot: catalog.next_slot().await.map_err(catalog_error)? };
        let stale = watch.look(watched, next);
        let kept = serde_json::to_vec(watch.remember()).map_err(|error| ServiceError::Internal(error.to_string()))?;
        catalog.meta_put(STALE_META, kept).await.map_err(catalog_error)?;
        match stale {
            Some(stale) => self.abort_below(stale).await,
            None => Ok(0),
        }
    }

    /// Aborts the uploads whose numbers are all below `stale`.
    async fn abort_below(&self, stale: Ends) -> Result<u64, ServiceError> {
        let mut aborted = 0;
        let mut after = None;
        loop {
            let page = self.context.catalog.uploads_page(after.as_ref(), STALE_PAGE).await.map_err(catalog_error)?;
            for (bucket, key, upload) in page.items.iter().filter(|(.., upload)| upload.version.0 < stale.version) {
                if self.has_part_from(upload.version, stale.slot).await? {
                    continue;
                }
                match self.abort_now(bucket, key, upload.version).await {
                    Ok(()) => {
                        aborted += 1;
                        tracing::info!(bucket, key, upload = upload.version.0, "aborted an upload that was left open");
                    }
                    Err(ServiceError::NoSuchUpload | ServiceError::NoSuchBucket) => {}
                    Err(error) => return Err(error),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(aborted);
            }
        }
    }

    /// True if a part of `upload` is in a slot from `slot` on.
    async fn has_part_from(&self, upload: VersionId, slot: u64) -> Result<bool, ServiceError> {
        let mut last = 0;
        loop {
            let page = self.context.catalog.parts_page(upload, last, PAGE).await.map_err(catalog_error)?;
            if page.iter().any(|part| part.slot >= slot) {
                return Ok(true);
            }
            match page.last() {
                Some(part) => last = part.number,
                None => return Ok(false),
            }
        }
    }

    /// The bytes `range` of an object that is stored in its parts, unless one of them is gone by now.
    pub(crate) async fn in_parts(
        &self,
        (bucket, key): (&str, &str),
        object: &Object,
        range: Range<u64>,
    ) -> Result<Staged, ServiceError> {
        let of = (object.version.0, bucket.to_owned(), key.to_owned());
        let Some(first) = object.parts.part_at(range.start).filter(|_| !range.is_empty()) else {
            return Ok(Staged::Here(stream::empty().boxed()));
        };
        let mut at = object.parts.range(first).map_or(0, |part| part.start);
        let mut pieces = VecDeque::new();
        let mut last = first - 1;
        while at < range.end {
            let page = self.context.catalog.parts_page(object.version, last, PAGE).await.map_err(catalog_error)?;
            if page.is_empty() {
                return Ok(Staged::Moved);
            }
            for part in page {
                let wanted = range.start.max(at) - at..range.end.min(at + part.bytes) - at;
                let Some(hold) = self.context.staging.hold(part.slot) else { return Ok(Staged::Missing(part.slot)) };
                pieces.push_back((hold, wanted));
                (at, last) = (at + part.bytes, part.number);
                if at >= range.end {
                    break;
                }
            }
        }
        assert!(!pieces.is_empty() && at >= range.end, "the parts that are held have all that is wanted");
        // Files go only after the catalog has recorded that the object is elsewhere: if it is still here, all are held
        // in time.
        let still = self.context.catalog.placed_objects(&[(bucket, key)]).await.map_err(catalog_error)?.pop().flatten();
        let is_still = |found: PlacedObject| found.object.version == object.version && found.place == Place::Parts;
        if !still.is_some_and(is_still) {
            return Ok(Staged::Moved);
        }
        let first = match pieces.pop_front() {
            Some((hold, wanted)) => match open_of(&hold, &of).await {
                Ok(reader) => reader.read(wanted).map_err(|error| damaged(&error)).boxed(),
                Err(ReadError::NotFound { slot }) => return Ok(Staged::Missing(slot)),
                Err(error) => return Err(damaged(&error)),
            },
            None => stream::empty().boxed(),
        };
        Ok(Staged::Here(first.chain(one_by_one(pieces, of)).boxed()))
    }
}

/// The bytes of `pieces`; each piece is opened when the one before it was read.
fn one_by_one(pieces: VecDeque<Piece>, of: Name) -> BoxStream<'static, Result<Bytes, ServiceError>> {
    let of = Arc::new(of);
    let opened = stream::iter(pieces).then(move |(hold, wanted)| {
        let of = Arc::clone(&of);
        async move {
            let reader = open_of(&hold, &of).await.map_err(|error| damaged(&error))?;
            Ok::<_, ServiceError>(reader.read(wanted).map_err(|error| damaged(&error)))
        }
    });
    opened.try_flatten().boxed()
}

/// A version, its bucket and its key.
type Name = (u64, String, String);

/// A reader of a part of that version.
async fn open_of(hold: &SlotHold, (version, bucket, key): &Name) -> Result<StagedReader, ReadError> {
    hold.open().await?.of_version(*version, bucket, key)
}

/// A part that counts as open while this exists or, once it is committed, until its upload ends.
struct OpenPart {
    counters: Arc<WorldCounters>,
    /// The bytes of it that count.
    bytes: u64,
    length: u64,
    most_bytes: u64,
}

impl OpenPart {
    /// Counts more of it, after `come_bytes` have come, within the share of the workshop.
    fn grow(&mut self, come_bytes: u64) -> Result<(), ServiceError> {
        let more_bytes = workshop::reserved_for(come_bytes, self.length).saturating_sub(self.bytes);
        if more_bytes == 0 {
            return Ok(());
        }
        let before = self.counters.open_parts.coming(more_bytes);
        self.bytes += more_bytes;
        assert!(self.bytes <= self.length, "no more of a part counts than was announced");
        if before.saturating_add(more_bytes) > self.most_bytes {
            return Err(self.share_is_full(before));
        }
        Ok(())
    }

    fn share_is_full(&self, held_bytes: u64) -> ServiceError {
        let most_bytes = self.most_bytes;
        let reason = format!("open uploads hold {held_bytes} bytes, and may hold {most_bytes}; complete or abort some");
        ServiceError::SlowDown { retry_after_s: SHARE_RETRY_AFTER.as_secs() as u32, reason }
    }

    fn committed(mut self) {
        self.counters.open_parts.committed(std::mem::take(&mut self.bytes));
    }
}

impl Drop for OpenPart {
    fn drop(&mut self) {
        self.counters.open_parts.gone(self.bytes);
    }
}

/// Writes the bytes of a part into a staged file.
struct PartSink {
    service: ObjectService,
    bucket: String,
    key: String,
    part: PartId,
    /// Its length.
    bytes: u64,
    slot: u64,
    writer: StagedWriter,
    come_bytes: u64,
    open: OpenPart,
    here: ClientHere,
}

impl PutSink for PartSink {
    fn write(&mut self, bytes: Bytes) -> ServiceFuture<'_, ()> {
        Box::pin(async move {
            self.come_bytes += bytes.len() as u64;
            self.open.grow(self.come_bytes)?;
            self.writer.write(&bytes).await.map_err(stage_error)
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        // Dropping the writer removes the file and releases its room.
        Box::pin(async move { drop(self) })
    }

    fn commit(self: Box<Self>, etag: String, checksums: Vec<Checksum>) -> ServiceFuture<'static, u64> {
        Box::pin(self.commit_all(etag, checksums))
    }
}

impl PartSink {
    async fn commit_all(self, etag: String, checksums: Vec<Checksum>) -> Result<u64, ServiceError> {
        let Self { service, bucket, key, part, bytes, slot, writer, open, here: _here, .. } = self;
        let PartId { upload, number } = part;
        let [checksum]: [Checksum; 1] =
            checksums.try_into().map_err(|_| ServiceError::Internal("a part has one checksum".into()))?;
        let staged = writer.finish_for(upload.0, number, &bucket, &key).await.map_err(stage_error)?;
        assert_eq!(staged.bytes, bytes, "the front commits as many bytes as it announced");
        assert_eq!(staged.slot, slot, "the file that is committed is the one that was written");
        assert_eq!(open.bytes, bytes, "all of a part counts before it is committed");
        let modified_ms = (service.context.wall)();
        let part = Part { number, slot, bytes, etag, checksum, modified_ms };
        let _until_it_is_counted = service.context.counters.open_parts.changing().await;
        match service.context.catalog.put_part(&bucket, &key, upload, &part).await {
            Ok(displaced) => {
                open.committed();
                service.free_parts(displaced.as_slice());
                Ok(modified_ms)
            }
            Err(error) => {
                if is_refusal(&error) {
                    service.free(vec![slot.into()]);
                } else {
                    open.committed(); // it may be
                }
                Err(service.parts_error(error))
            }
        }
    }
}
