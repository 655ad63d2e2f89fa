//! An object store in memory, as simple as can be, that can also be told to fail.

use bytes::Bytes;
use catalog::{Bucket, BucketChange, Object, ObjectChange, VersionId};
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, StreamExt};
use server::s3::{
    Committed, Condition, GetBody, ListPage, ListQuery, ObjectStore, PutMeta, PutSink, StoreError, StoreFuture,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

type Objects = BTreeMap<String, (Object, Bytes)>;

#[derive(Default)]
struct State {
    buckets: BTreeMap<String, (Bucket, Objects)>,
    versions: u64,
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

    fn begin_put<'a>(&'a self, bucket: &'a str, key: &'a str, _: Option<u64>) -> StoreFuture<'a, Box<dyn PutSink>> {
        if let Mood::Cold(retry_after_s) = self.mood() {
            return answer(Err(StoreError::SlowDown { retry_after_s, reason: "The workshop is full.".into() }));
        }
        self.sinks.fetch_add(1, Ordering::SeqCst);
        let sink = Sink { fake: self.clone(), bucket: bucket.into(), key: key.into(), bytes: Vec::new() };
        answer(Ok(Box::new(sink) as Box<dyn PutSink>))
    }

    fn head<'a>(&'a self, bucket: &'a str, key: &'a str) -> StoreFuture<'a, Object> {
        answer(self.found(bucket, key).map(|(object, _)| object))
    }

    fn get<'a>(&'a self, bucket: &'a str, key: &'a str, range: Option<Range<u64>>) -> StoreFuture<'a, GetBody> {
        let mood = self.mood();
        if let Mood::Cold(retry_after_s) = mood {
            return answer(Err(StoreError::SlowDown { retry_after_s, reason: "The object is cold.".into() }));
        }
        answer(self.found(bucket, key).map(|(object, bytes)| {
            let range = range.unwrap_or(0..object.bytes);
            let bytes = bytes.slice(range.start as usize..range.end as usize);
            self.streams.fetch_add(1, Ordering::SeqCst);
            let open = Open(self.streams.clone());
            let first = futures::stream::iter([Ok(bytes.slice(..bytes.len().min(1)))]);
            let rest = match mood {
                Mood::Hangs => futures::stream::pending().boxed(),
                Mood::Breaks => futures::stream::iter([Err(StoreError::DataLost { what: "a test".into() })]).boxed(),
                Mood::Well | Mood::Cold(_) => futures::stream::iter([Ok(bytes.slice(bytes.len().min(1)..))]).boxed(),
            };
            let bytes = first.chain(rest).map(move |piece| {
                let _ = &open;
                piece
            });
            GetBody { object, bytes: bytes.boxed() }
        }))
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
        state.versions += 1;
        let version = VersionId(state.versions);
        let Some((_, objects)) = state.buckets.get_mut(&self.bucket) else {
            return answer(Err(StoreError::NoSuchBucket));
        };
        let refused = refusal(&meta.condition, objects.get(&self.key).map(|(object, _)| object));
        if let Some(error) = refused {
            return answer(Err(error));
        }
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        let object = Object {
            version,
            bytes: bytes.len() as u64,
            etag: meta.etag.clone(),
            modified_ms: now_ms(),
            headers: meta.headers,
            metadata: meta.metadata,
            checksums: meta.checksums,
            acl: meta.acl,
            tags: meta.tags,
        };
        objects.insert(self.key.clone(), (object, bytes));
        answer(Ok(Committed { etag: meta.etag, version }))
    }
}
