//! An object store in memory, as simple as can be, that can also be told to fail.

use bytes::Bytes;
use catalog::{Bucket, BucketChange, Object, ObjectChange, Part, PartLengths, Place, PlacedObject, Upload, VersionId};
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, StreamExt};
use server::s3::{
    Committed, Completion, Condition, ListPage, ListQuery, Located, ObjectBytes, ObjectStore, PutMeta, PutSink,
    Restatement, StoreError, StoreFuture, UploadMeta, UploadPage, UploadQuery,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

type Objects = BTreeMap<String, (Object, Bytes)>;

type Parts = BTreeMap<u32, (Part, Bytes)>;

#[derive(Default)]
struct State {
    buckets: BTreeMap<String, (Bucket, Objects)>,
    /// Open uploads, by bucket, key and number.
    uploads: BTreeMap<(String, String, u64), Upload>,
    /// The parts of uploads, and of what became of them.
    parts: BTreeMap<u64, Parts>,
    versions: u64,
}

impl State {
    fn check(&self, bucket: &str, key: &str, condition: &Condition) -> Result<(), StoreError> {
        let (_, objects) = self.buckets.get(bucket).ok_or(StoreError::NoSuchBucket)?;
        refusal(condition, objects.get(key).map(|(object, _)| object)).map_or(Ok(()), Err)
    }

    fn upload(&self, bucket: &str, key: &str, upload: VersionId) -> Result<Upload, StoreError> {
        let found = self.uploads.get(&(bucket.into(), key.into(), upload.0));
        found.cloned().ok_or(StoreError::NoSuchUpload)
    }

    fn complete(&mut self, bucket: &str, key: &str, completion: Completion) -> Result<Committed, StoreError> {
        let Completion { upload: version, parts: chosen, lengths, etag, checksums, condition } = completion;
        let upload = self.upload(bucket, key, version)?;
        self.check(bucket, key, &condition)?;
        let mut bytes = Vec::new();
        let mut kept = Parts::new();
        for (ordinal, wanted) in (1..).zip(chosen) {
            let found = self.parts.get(&version.0).and_then(|parts| parts.get(&wanted.number));
            let (part, data) = found.ok_or(StoreError::NoSuchPart(wanted.number))?;
            if part.etag != wanted.etag {
                return Err(StoreError::NoSuchPart(wanted.number));
            }
            bytes.extend_from_slice(data);
            kept.insert(ordinal, (Part { number: ordinal, ..part.clone() }, data.clone()));
        }
        let modified_ms = now_ms();
        let object = Object {
            version,
            bytes: bytes.len() as u64,
            etag: etag.clone(),
            modified_ms,
            created_ms: modified_ms,
            headers: upload.headers,
            metadata: upload.metadata,
            checksums,
            acl: upload.acl,
            tags: upload.tags,
            parts: lengths,
        };
        self.parts.insert(version.0, kept);
        self.uploads.remove(&(bucket.into(), key.into(), version.0));
        let (_, objects) = self.buckets.get_mut(bucket).ok_or(StoreError::NoSuchBucket)?;
        objects.insert(key.into(), (object, bytes.into()));
        Ok(Committed { etag, version, modified_ms })
    }
}

/// What a get does instead of answering.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// It answers.
    Well,
    /// It is cold: come again in so many seconds.
    Cold(u32),
    /// It breaks after the first byte.
    Breaks,
    /// It never sends a second byte.
    Hangs,
    /// Someone aborts an upload just before its parts are looked up.
    LosesUploads,
    /// It has no room left.
    Full,
    /// It never has room for more bytes than so many.
    Small(u64),
}

/// The store.
#[derive(Clone)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    /// How many sinks are open.
    pub sinks: Arc<AtomicUsize>,
    /// How many streams of gets are open.
    pub streams: Arc<AtomicUsize>,
    mood: Arc<Mutex<Mood>>,
}

impl Fake {
    pub fn new() -> Self {
        Self {
            state: Arc::default(),
            sinks: Arc::default(),
            streams: Arc::default(),
            mood: Arc::new(Mutex::new(Mood::Well)),
        }
    }

    pub fn set_mood(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// The bytes of an object, if there is one.
    pub fn bytes(&self, bucket: &str, key: &str) -> Option<Bytes> {
        self.lock().buckets.get(bucket)?.1.get(key).map(|(_, bytes)| bytes.clone())
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self, bucket: &str, key: &str) -> Result<(Object, Bytes), StoreError> {
        let state = self.lock();
        let objects = &state.buckets.get(bucket).ok_or(StoreError::NoSuchBucket)?.1;
        objects.get(key).cloned().ok_or(StoreError::NoSuchKey)
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn answer<'a, T: Send + 'a>(result: Result<T, StoreError>) -> StoreFuture<'a, T> {
    ready(result).boxed()
}

impl ObjectStore for Fake {
    /// Rights are the catalog's to hold.
    fn authorised(&self, _: catalog::Authority) -> Arc<dyn ObjectStore> {
        Arc::new(self.clone())
    }

    fn create_bucket(&self, bucket: Bucket) -> StoreFuture<'_, Bucket> {
        let mut state = self.lock();
        if let Some((there, _)) = state.buckets.get(&bucket.name) {
            return answer(Err(StoreError::BucketExists { owned_by_you: there.owner == bucket.owner }));
        }
        let bucket = Bucket { created_ms: now_ms(), ..bucket };
        state.buckets.insert(bucket.name.clone(), (bucket.clone(), Objects::new()));
        answer(Ok(bucket))
    }

    fn change_bucket<'a>(&'a self, name: &'a str, change: BucketChange) -> StoreFuture<'a, Bucket> {
        let mut state = self.lock();
        let Some((bucket, _)) = state.buckets.get_mut(name) else { return answer(Err(StoreError::NoSuchBucket)) };
        match change {
            BucketChange::Acl(acl) => bucket.acl = acl,
            BucketChange::Ownership(ownership) => bucket.ownership = ownership,
            BucketChange::Tags(tags) => bucket.tags = tags,
        }
        answer(Ok(bucket.clone()))
    }

    fn head_bucket<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Bucket> {
        answer(self.lock().buckets.get(name).map(|(bucket, _)| bucket.clone()).ok_or(StoreError::NoSuchBucket))
    }

    fn list_buckets<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Vec<Bucket>> {
        let state = self.lock();
        let buckets = state.buckets.values().map(|(bucket, _)| bucket);
        answer(Ok(buckets.filter(|bucket| bucket.owner == owner).cloned().collect()))
    }

    fn delete_bucket<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()> {
        let mut state = self.lock();
        answer(match state.buckets.get(name) {
            None => Err(StoreError::NoSuchBucket),
            Some((_, objects)) if !objects.is_empty() => Err(StoreError::BucketNotEmpty),
            Some(_) => {
                state.buckets.remove(name);
                Ok(())
            }
        })
    }

    fn check_room(&self, bytes: u64) -> Result<(), StoreError> {
        match self.mood() {
            Mood::Full => Err(StoreError::NoRoom { reason: "The rack is full.".into() }),
            Mood::Small(most) if bytes > most => {
                Err(StoreError::TooLarge { reason: format!("The workshop holds {most} bytes.") })
            }
            _ => Ok(()),
        }
    }

    fn begin_put<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        length: Option<u64>,
    ) -> StoreFuture<'a, Box<dyn PutSink>> {
        if let Mood::Cold(retry_after_s) = self.mood() {
            return answer(Err(StoreError::SlowDown { retry_after_s, reason: "The workshop is full.".into() }));
        }
        if let Err(error) = self.check_room(length.unwrap_or(0)) {
            return answer(Err(error));
        }
        self.sinks.fetch_add(1, Ordering::SeqCst);
        let bucket = bucket.name.clone();
        let sink = Sink { fake: self.clone(), bucket, key: key.into(), bytes: Vec::new(), part: None };
        answer(Ok(Box::new(sink) as Box<dyn PutSink>))
    }

    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> StoreFuture<'a, Object> {
        answer(self.found(bucket, key).map(|(object, _)| object))
    }

    fn locate<'a>(&'a self, bucket: &'a str, key: &'a str) -> StoreFuture<'a, Located> {
        let found = self.lock().buckets.get(bucket).map(|(bucket, _)| bucket.clone()).ok_or(StoreError::NoSuchBucket);
        let placed = |(object, _)| PlacedObject { object, place: Place::Parts, staged_ms: 0 };
        answer(found.map(|found| Located { bucket: found, object: self.found(bucket, key).map(placed) }))
    }

    fn read<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        located: &'a PlacedObject,
        range: Range<u64>,
    ) -> StoreFuture<'a, Option<ObjectBytes>> {
        let mood = self.mood();
        if let Mood::Cold(retry_after_s) = mood {
            return answer(Err(StoreError::SlowDown { retry_after_s, reason: "The object is cold.".into() }));
        }
        let found = self.found(bucket, key).ok().filter(|(object, _)| object.version == located.object.version);
        answer(Ok(found.map(|(_, bytes)| {
            let bytes = bytes.slice(range.start as usize..range.end as usize);
            self.streams.fetch_add(1, Ordering::SeqCst);
            let open = Open(self.streams.clone());
            let first = futures::stream::iter([Ok(bytes.slice(..bytes.len().min(1)))]);
            let rest = match mood {
                Mood::Hangs => futures::stream::pending().boxed(),
                Mood::Breaks => futures::stream::iter([Err(StoreError::DataLost { what: "a test".into() })]).boxed(),
                Mood::Well | Mood::Cold(_) | Mood::LosesUploads | Mood::Full | Mood::Small(_) => {
                    futures::stream::iter([Ok(bytes.slice(bytes.len().min(1)..))]).boxed()
                }
            };
            let bytes = first.chain(rest).map(move |piece| {
                let _ = &open;
                piece
            });
            bytes.boxed() as ObjectBytes
        })))
    }

    fn change<'a>(&'a self, bucket: &'a str, key: &'a str, change: ObjectChange) -> StoreFuture<'a, Object> {
        let mut state = self.lock();
        let Some((_, objects)) = state.buckets.get_mut(bucket) else { return answer(Err(StoreError::NoSuchBucket)) };
        let Some((object, _)) = objects.get_mut(key) else { return answer(Err(StoreError::NoSuchKey)) };
        match change {
            ObjectChange::Acl(acl) => object.acl = acl,
            ObjectChange::Tags(tags) => object.tags = tags,
        }
        answer(Ok(object.clone()))
    }

    fn delete<'a>(&'a self, bucket: &'a str, key: &'a str, condition: Condition) -> StoreFuture<'a, ()> {
        let mut state = self.lock();
        let Some((_, objects)) = state.buckets.get_mut(bucket) else { return answer(Err(StoreError::NoSuchBucket)) };
        let refused = refusal(&condition, objects.get(key).map(|(object, _)| object));
        answer(refused.map_or_else(
            || {
                objects.remove(key);
                Ok(())
            },
            Err,
        ))
    }

    fn list<'a>(&'a self, bucket: &'a str, query: ListQuery) -> StoreFuture<'a, ListPage> {
        let state = self.lock();
        let Some((_, objects)) = state.buckets.get(bucket) else { return answer(Err(StoreError::NoSuchBucket)) };
        let mut page = ListPage::default();
        for (key, (object, _)) in objects {
            let Some(rest) = key.strip_prefix(&query.prefix) else { continue };
            let folded = query.delimiter.as_ref().and_then(|delimiter| {
                let end = query.prefix.len() + rest.find(delimiter)? + delimiter.len();
                Some(key[..end].to_owned())
            });
            let passed = query.after.as_ref().is_some_and(|after| key <= after || folded.as_ref() == Some(after));
            if passed || folded.is_some() && folded.as_ref() == page.prefixes.last() {
                continue;
            }
            if page.objects.len() + page.prefixes.len() == query.max_keys {
                page.truncated = true;
                break;
            }
            match folded {
                Some(prefix) => page.prefixes.push(prefix),
                None => page.objects.push((key.clone(), object.clone())),
            }
        }
        answer(Ok(page))
    }

    fn restate<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        version: VersionId,
        meta: Restatement,
    ) -> StoreFuture<'a, Option<Object>> {
        let mut state = self.lock();
        if let Err(error) = state.check(bucket, key, &meta.condition) {
            return answer(Err(error));
        }
        let found = state.buckets.get_mut(bucket).and_then(|(_, objects)| objects.get_mut(key));
        let found = found.map(|(object, _)| object).filter(|object| object.version == version);
        answer(Ok(found.map(|object| {
            (object.headers, object.metadata, object.modified_ms) = (meta.headers, meta.metadata, now_ms());
            object.acl = meta.acl;
            object.tags = meta.tags.unwrap_or(std::mem::take(&mut object.tags));
            object.clone()
        })))
    }

    fn create_upload<'a>(&'a self, bucket: &'a str, key: &'a str, meta: UploadMeta) -> StoreFuture<'a, VersionId> {
        let mut state = self.lock();
        state.versions += 1;
        let version = VersionId(state.versions);
        let UploadMeta { headers, metadata, checksum, checksum_named, composite, acl, tags } = meta;
        let initiated_ms = now_ms();
        let upload =
            Upload { version, initiated_ms, headers, metadata, checksum, checksum_named, composite, acl, tags };
        state.uploads.insert((bucket.into(), key.into(), version.0), upload);
        answer(Ok(version))
    }

    fn upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> StoreFuture<'a, Upload> {
        answer(self.lock().upload(bucket, key, upload))
    }

    fn begin_part<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        upload: VersionId,
        number: u32,
        _: u64,
    ) -> StoreFuture<'a, Box<dyn PutSink>> {
        if let Err(error) = self.lock().upload(bucket, key, upload) {
            return answer(Err(error));
        }
        self.sinks.fetch_add(1, Ordering::SeqCst);
        let part = Some((upload, number));
        let sink = Sink { fake: self.clone(), bucket: bucket.into(), key: key.into(), bytes: Vec::new(), part };
        answer(Ok(Box::new(sink) as Box<dyn PutSink>))
    }

    fn complete_upload<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
        completion: Completion,
    ) -> StoreFuture<'a, Committed> {
        answer(self.lock().complete(bucket, key, completion))
    }

    fn abort_upload<'a>(&'a self, bucket: &'a str, key: &'a str, upload: VersionId) -> StoreFuture<'a, ()> {
        let mut state = self.lock();
        let found = state.uploads.remove(&(bucket.into(), key.into(), upload.0));
        state.parts.remove(&upload.0);
        answer(found.map(drop).ok_or(StoreError::NoSuchUpload))
    }

    fn list_uploads<'a>(&'a self, bucket: &'a str, query: UploadQuery) -> StoreFuture<'a, UploadPage> {
        let state = self.lock();
        let mut page = UploadPage::default();
        for ((_, key, number), upload) in state.uploads.iter().filter(|((home, ..), _)| home == bucket) {
            let Some(rest) = key.strip_prefix(&query.prefix) else { continue };
            let folded = query.delimiter.as_ref().and_then(|delimiter| {
                let end = query.prefix.len() + rest.find(delimiter)? + delimiter.len();
                Some(key[..end].to_owned())
            });
            let passed = query.after.as_ref().is_some_and(|(after, upload)| match upload {
                Some(upload) => (key, *number) <= (after, upload.0),
                None => key <= after || folded.as_ref() == Some(after),
            });
            if passed || folded.is_some() && folded.as_ref() == page.prefixes.last() {
                continue;
            }
            if page.uploads.len() + page.prefixes.len() == query.max_uploads {
                page.truncated = true;
                break;
            }
            match folded {
                Some(prefix) => page.prefixes.push(prefix),
                None => page.uploads.push((key.clone(), upload.clone())),
            }
        }
        answer(Ok(page))
    }

    fn parts(&self, upload: VersionId, after: u32, limit: usize) -> StoreFuture<'_, Vec<Part>> {
        let mut state = self.lock();
        if matches!(self.mood(), Mood::LosesUploads) {
            state.uploads.retain(|(_, _, open), _| *open != upload.0);
            state.parts.remove(&upload.0);
        }
        let parts = state.parts.get(&upload.0).into_iter().flat_map(|parts| parts.range(after + 1..));
        answer(Ok(parts.take(limit).map(|(_, (part, _))| part.clone()).collect()))
    }
}

/// Why `condition` does not hold of what is there.
fn refusal(condition: &Condition, current: Option<&Object>) -> Option<StoreError> {
    match (condition, current) {
        (Condition::IfAbsent, Some(_)) => Some(StoreError::PreconditionFailed),
        (Condition::IfMatch(_) | Condition::IfPresent, None) => Some(StoreError::NoSuchKey),
        (Condition::IfMatch(etag), Some(current)) if *etag != current.etag => Some(StoreError::PreconditionFailed),
        _ => None,
    }
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Sink {
    fake: Fake,
    bucket: String,
    key: String,
    bytes: Vec<u8>,
    /// The upload and number of the part that it takes, if it is not an object.
    part: Option<(VersionId, u32)>,
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.fake.sinks.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PutSink for Sink {
    fn write(&mut self, bytes: Bytes) -> StoreFuture<'_, ()> {
        self.bytes.extend_from_slice(&bytes);
        answer(Ok(()))
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    fn commit(mut self: Box<Self>, meta: PutMeta) -> StoreFuture<'static, Committed> {
        let mut state = self.fake.lock();
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        if let Some((upload, number)) = self.part {
            if let Err(error) = state.upload(&self.bucket, &self.key, upload) {
                return answer(Err(error));
            }
            let (etag, checksum) = (meta.etag.clone(), meta.checksums[0].clone());
            let part = Part { number, slot: 0, bytes: bytes.len() as u64, etag, checksum, modified_ms: now_ms() };
            state.parts.entry(upload.0).or_default().insert(number, (part, bytes));
            return answer(Ok(Committed { etag: meta.etag, version: upload, modified_ms: now_ms() }));
        }
        state.versions += 1;
        let version = VersionId(state.versions);
        if let Err(error) = state.check(&self.bucket, &self.key, &meta.condition) {
            return answer(Err(error));
        }
        let modified_ms = now_ms();
        let object = Object {
            version,
            bytes: bytes.len() as u64,
            etag: meta.etag.clone(),
            modified_ms,
            created_ms: modified_ms,
            headers: meta.headers,
            metadata: meta.metadata,
            checksums: meta.checksums,
            acl: meta.acl,
            tags: meta.tags,
            parts: PartLengths::default(),
        };
        let (_, objects) = state.buckets.get_mut(&self.bucket).expect("it was there a moment ago");
        objects.insert(self.key.clone(), (object, bytes));
        answer(Ok(Committed { etag: meta.etag, version, modified_ms }))
    }
}
