//! Fault hooks: the real object service, made to fail, to hang or to count what is open.

use bytes::Bytes;
use catalog::{
    Authority, Bucket, BucketChange, Checksum, ListRequest, Listing, MetadataChange, Object, ObjectChange, Part,
    PlacedObject, PutCondition, Upload, UploadListRequest, UploadListing, VersionId,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use s3::{
    Completion, Located, ObjectBytes, ObjectStore, PartId, PutSink, ReadBytes, ReadyBytes, ServiceError, ServiceFuture,
};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The fault that calls meet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// Bytes can be neither read nor written; the next attempt may come after this number of seconds.
    Cold(u32),
    /// A GET breaks after the first byte.
    Breaks,
    /// A GET never sends a second byte.
    Hangs,
    /// The bytes of keys that begin with `cold` are awaited for as long as this is set.
    Awaited,
    /// No room is left, and waiting makes none.
    Full,
    /// Another client aborts an upload to `shelf/k` just before its parts are looked up.
    LosesUploads,
}

#[derive(Default)]
struct Hooks {
    fault: Mutex<Option<Fault>>,
    sinks: AtomicUsize,
    streams: AtomicUsize,
}

/// An object service with fault hooks. Clones share them.
#[derive(Clone)]
pub struct Faulty {
    service: Arc<dyn ObjectStore>,
    hooks: Arc<Hooks>,
}

impl Faulty {
    pub fn new(service: Arc<dyn ObjectStore>) -> Self {
        Self { service, hooks: Arc::default() }
    }

    pub fn set(&self, fault: Fault) {
        *self.hooks.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    /// The number of open sinks.
    pub fn sinks(&self) -> usize {
        self.hooks.sinks.load(Ordering::SeqCst)
    }

    /// The number of open streams of GETs.
    pub fn streams(&self) -> usize {
        self.hooks.streams.load(Ordering::SeqCst)
    }

    /// The bytes of an object; `None` if a GET of it is refused.
    pub async fn bytes(&self, bucket: &str, key: &str) -> Option<Vec<u8>> {
        let body = self.service.get(bucket, key, None).await.ok()?;
        let pieces: Vec<_> = body.bytes.map(|piece| piece.unwrap()).collect().await;
        Some(pieces.concat())
    }

    fn fault(&self) -> Fault {
        self.hooks.fault.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(Fault::None)
    }

    fn cold(&self) -> Result<(), ServiceError> {
        match self.fault() {
            Fault::Cold(retry_after_s) => Err(ServiceError::SlowDown { retry_after_s, reason: "It is cold.".into() }),
            _ => Ok(()),
        }
    }

    fn counted(&self, sink: Box<dyn PutSink>) -> Box<dyn PutSink> {
        Box::new(CountedSink { sink, _open: Open::count(&self.hooks, |hooks| &hooks.sinks) })
    }

    /// Waits until the fault is no longer `Awaited`, then opens `read`.
    async fn awaited(self, read: ReadBytes) -> Result<ReadyBytes, ServiceError> {
        while self.fault() == Fault::Awaited {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let read = read.map(move |bytes| self.faulty(bytes, self.fault()));
        let ready: ReadyBytes = Box::pin(read.open());
        Ok(ready)
    }

    /// `bytes` with this fault.
    fn faulty(&self, bytes: ObjectBytes, fault: Fault) -> ObjectBytes {
        let open = Open::count(&self.hooks, |hooks| &hooks.streams);
        let bytes = match fault {
            Fault::Breaks | Fault::Hangs => {
                let first = bytes.take(1).map(|piece| piece.map(|piece| piece.slice(..piece.len().min(1))));
                let lost = ServiceError::DataLost { what: "a test".into() };
                let rest = match fault {
                    Fault::Hangs => futures::stream::pending().boxed(),
                    _ => futures::stream::iter([Err(lost)]).boxed(),
                };
                first.chain(rest).boxed()
            }
            Fault::None | Fault::Cold(_) | Fault::Awaited | Fault::Full | Fault::LosesUploads => bytes,
        };
        bytes
            .inspect(move |_| {
                let _ = &open;
            })
            .boxed()
    }
}

/// Counts one open stream or sink until it is dropped.
struct Open {
    hooks: Arc<Hooks>,
    of: fn(&Hooks) -> &AtomicUsize,
}

impl Open {
    fn count(hooks: &Arc<Hooks>, of: fn(&Hooks) -> &AtomicUsize) -> Self {
        of(hooks).fetch_add(1, Ordering::SeqCst);
        Self { hooks: Arc::clone(hooks), of }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        (self.of)(&self.hooks).fetch_sub(1, Ordering::SeqCst);
    }
}

struct CountedSink {
    sink: Box<dyn PutSink>,
    _open: Open,
}

impl PutSink for CountedSink {
    fn write(&mut self, bytes: Bytes) -> ServiceFuture<'_, ()> {
        self.sink.write(bytes)
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Self { sink, _open } = *self;
            sink.abort().await;
        })
    }

    fn commit(self: Box<Self>, etag: String, checksums: Vec<Checksum>) -> ServiceFuture<'static, u64> {
        Box::pin(async move {
            let Self { sink, _open } = *self;
            sink.commit(etag, checksums).await
        })
    }
}

impl ObjectStore for Faulty {
    fn authorised(&self, authority: Authority) -> Arc<dyn ObjectStore> {
        Arc::new(Self { service: self.service.authorised(authority), hooks: Arc::clone(&self.hooks) })
    }

    fn create_bucket(&self, bucket: Bucket) -> ServiceFuture<'_, Bucket> {
        self.service.create_bucket(bucket)
    }

    fn change_bucket<'a>(&'a self, name: &'a str, change: BucketChange) -> ServiceFuture<'a, Bucket> {
        self.service.change_bucket(name, change)
    }

    fn head_bucket<'a>(&'a self, name: &'a str) -> ServiceFuture<'a, Bucket> {
        self.service.head_bucket(name)
    }

    fn list_buckets<'a>(&'a self, owner: &'a str) -> ServiceFuture<'a, Vec<Bucket>> {
        self.service.list_buckets(owner)
    }

    fn delete_bucket<'a>(&'a self, name: &'a str) -> ServiceFuture<'a, ()> {
        self.service.delete_bucket(name)
    }

    fn begin_put<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        object: Object,
        condition: PutCondition,
    ) -> ServiceFuture<'a, Box<dyn PutSink>> {
        Box::pin(async move {
            self.cold()?;
            self.check_room(object.bytes)?;
            Ok(self.counted(self.service.begin_put(bucket, key, object, condition).await?))
        })
    }

    fn check_room(&self, bytes: u64) -> Result<(), ServiceError> {
        match self.fault() {
            Fault::Full => Err(ServiceError::NoRoom { reason: "The rack is full.".into() }),
            _ => self.service.check_room(bytes),
        }
    }

    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> ServiceFuture<'a, Object> {
        self.service.head(bucket, key)
    }

    fn locate<'a>(&'a self, bucket: &'a str, key: &'a str) -> ServiceFuture<'a, Located> {
        self.service.locate(bucket, key)
    }

    fn read<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        located: &'a PlacedObject,
        range: Range<u64>,
    ) -> ServiceFuture<'a, Option<ReadBytes>> {
        Box::pin(async move {
            self.cold()?;
            let fault = self.fault();
            let read = self.service.read(bucket, key, located, range).await?;
            let is_awaited = fault == Fault::Awaited && key.starts_with("cold");
            let hooked = self.clone();
            Ok(read.map(|read| {
                if is_awaited {
                    ReadBytes::Awaited(Box::pin(hooked.awaited(read)))
                } else {
                    read.map(move |bytes| hooked.faulty(bytes, fault))
                }
            }))
        })
    }

    fn recall_forecast<'a>(&'a self, located: &'a PlacedObject) -> ServiceFuture<'a, Option<Duration>> {
        match self.fault() {
            Fault::Cold(forecast_s) => Box::pin(async move { Ok(Some(Duration::from_secs(forecast_s.into()))) }),
            _ => self.service.recall_forecast(located),
        }
    }

    fn change<'a>(&'a self, bucket: &'a str, key: &'a str, change: ObjectChange) -> ServiceFuture<'a, Object> {
        self.service.change(bucket, key, change)
    }

    fn delete<'a>(&'a self, bucket: &'a str, key: &'a str, condition: PutCondition) -> ServiceFuture<'a, ()> {
        self.service.delete(bucket, key, condition)
    }

    fn list<'a>(&'a self, bucket: &'a str, request: ListRequest) -> ServiceFuture<'a, Listing> {
        self.service.list(bucket, request)
    }

    fn replace_metadata<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        metadata: MetadataChange,
        condition: PutCondition,
    ) -> ServiceFuture<'a, Option<Object>> {
        self.service.replace_metadata(bucket, key, metadata, condition)
    }

    fn create_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: Upload) -> ServiceFuture<'a, VersionId> {
        self.service.create_upload(bucket, key, upload)
    }

    fn upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> ServiceFuture<'a, Upload> {
        self.service.upload(bucket, key, upload)
    }

    fn begin_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        part: PartId,
        bytes: u64,
    ) -> ServiceFuture<'a, Box<dyn PutSink>> {
        Box::pin(async move { Ok(self.counted(self.service.begin_part(bucket, key, part, bytes).await?)) })
    }

    fn complete_upload<'a>(&'a self, bucket: &'a str, key: &'a str, completion: Completion) -> ServiceFuture<'a, ()> {
        self.service.complete_upload(bucket, key, completion)
    }

    fn abort_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> ServiceFuture<'a, ()> {
        self.service.abort_upload(bucket, key, upload)
    }

    fn list_uploads<'a>(&'a self, bucket: &'a str, request: UploadListRequest) -> ServiceFuture<'a, UploadListing> {
        self.service.list_uploads(bucket, request)
    }

    fn parts(&self, upload: VersionId, after: u32, limit: usize) -> ServiceFuture<'_, Vec<Part>> {
        Box::pin(async move {
            if self.fault() == Fault::LosesUploads {
                self.service.abort_upload("shelf", "k", upload).await?;
            }
            self.service.parts(upload, after, limit).await
        })
    }
}
