//! Whole objects on their way to a client, verified against the checksum that they were acknowledged with.
//!
//! Every block and every fragment is verified where it is read. That cannot reveal a mistake of the server itself: a
//! catalog that takes one object's bytes for another's. So a client that reads all of an object does not get its last
//! bytes before the object's own checksum has matched; if it does not, the connection is cut instead, so that no client
//! takes the wrong bytes for a whole object.
//!
//! An object that has only a checksum of its parts' checksums is verified against these, part by part. Memory: one
//! chunk beside the one that is being sent, and the checksums of a page of parts.

use crate::context::{Context, WorldCounters};
use bytes::Bytes;
use catalog::{Catalog, Checksum, Object, Part};
use futures::stream::{self, StreamExt};
use s3::store::{ObjectBytes, ServiceError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use workshop::{Checksummer, whole_checksum};

/// Parts per lookup of checksums.
const PAGE: usize = 256;

/// `bytes`, which are all of `object` in `bucket` at `key`, without the last of them if they are not the bytes that the
/// object was acknowledged with.
pub(crate) fn checked(context: &Context, bucket: &str, key: &str, object: &Object, bytes: ObjectBytes) -> ObjectBytes {
    let expected = match whole_checksum(object) {
        Some(checksum) => ExpectedSums::Whole(checksum.clone(), Checksummer::new(checksum.kind)),
        None if !object.parts.is_empty() => ExpectedSums::Parts(PartSums::of(context.catalog.clone(), object)),
        None => return bytes,
    };
    let (name, counters) = (format!("s3://{bucket}/{key}"), Arc::clone(&context.counters));
    let check = CheckedBody { bytes: bytes.fuse().boxed(), expected, held: None, name, counters };
    stream::try_unfold(check, CheckedBody::next).boxed()
}

struct CheckedBody {
    bytes: ObjectBytes,
    expected: ExpectedSums,
    /// The chunk that came last, which is sent once that is known to be safe.
    held: Option<Bytes>,
    name: String,
    counters: Arc<WorldCounters>,
}

#[allow(clippy::large_enum_variant)] // one for each GET
enum ExpectedSums {
    Whole(Checksum, Checksummer),
    Parts(PartSums),
    /// Already compared.
    Nothing,
}

impl CheckedBody {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, ServiceError> {
        while let Some(chunk) = self.bytes.next().await {
            let chunk = chunk?;
            if !self.take(&chunk).await? {
                return Err(self.wrong());
            }
            if let Some(before) = self.held.replace(chunk) {
                return Ok(Some((before, self)));
            }
        }
        if !self.is_right() {
            return Err(self.wrong());
        }
        Ok(self.held.take().map(|last| (last, self)))
    }

    /// False if a part that ends in `chunk` does not have its checksum.
    async fn take(&mut self, chunk: &[u8]) -> Result<bool, ServiceError> {
        match &mut self.expected {
            ExpectedSums::Whole(_, sum) => sum.update(chunk),
            ExpectedSums::Parts(parts) => return parts.take(chunk).await,
            ExpectedSums::Nothing => {}
        }
        Ok(true)
    }

    /// True if all that came has the expected checksum.
    fn is_right(&mut self) -> bool {
        match std::mem::replace(&mut self.expected, ExpectedSums::Nothing) {
            ExpectedSums::Whole(expected, sum) => sum.finish() == expected,
            ExpectedSums::Parts(_) | ExpectedSums::Nothing => true,
        }
    }

    fn wrong(&self) -> ServiceError {
        self.counters.wrong_bodies.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            object = self.name,
            "THE BYTES OF AN OBJECT ARE NOT THOSE THAT IT WAS ACKNOWLEDGED WITH: its checksum does not match, although \
             those of its blocks do. The client was cut off before the last of them. Keep a copy of the data \
             directory, run `larder verify --deep`, and report this"
        );
        ServiceError::Unavailable { reason: format!("the bytes of {} do not have the object's checksum", self.name) }
    }
}

/// The parts of an object, one after the other.
struct PartSums {
    catalog: Catalog,
    object: Object,
    /// The number of the part that is being taken, in the order of bytes, from 1 on.
    number: u32,
    /// Bytes of it that are still to come.
    left_bytes: u64,
    /// The expected checksum, if the catalog knows it, and that of the bytes so far.
    current: Option<(Checksum, Checksummer)>,
    /// The next parts.
    page: VecDeque<Part>,
    /// The number, in the catalog, of the last part that was looked up.
    last: u32,
}

impl PartSums {
    fn of(catalog: Catalog, object: &Object) -> Self {
        let object = object.clone();
        Self { catalog, object, number: 0, left_bytes: 0, current: None, page: VecDeque::new(), last: 0 }
    }

    /// Takes `chunk`; false if a part that ends in it does not have its checksum.
    async fn take(&mut self, mut chunk: &[u8]) -> Result<bool, ServiceError> {
        while !chunk.is_empty() {
            while self.left_bytes == 0 {
                self.begin().await?;
            }
            let now = chunk.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
            assert!(now > 0, "each turn takes some of the chunk");
            if let Some((_, sum)) = &mut self.current {
                sum.update(&chunk[..now]);
            }
            chunk = &chunk[now..];
            self.left_bytes -= now as u64;
            if self.left_bytes == 0
                && let Some((expected, sum)) = self.current.take()
                && sum.finish() != expected
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Begins the next part.
    async fn begin(&mut self) -> Result<(), ServiceError> {
        self.number += 1;
        let Some(range) = self.object.parts.range(self.number) else {
            // More bytes than all parts have: the count of them shows the mistake.
            self.left_bytes = u64::MAX;
            return Ok(());
        };
        self.left_bytes = range.end - range.start;
        if self.page.is_empty() {
            let page = self.catalog.parts_page(self.object.version, self.last, PAGE).await;
            self.page = page.map_err(crate::store_error::catalog_error)?.into();
            self.last = self.page.back().map_or(self.last, |part| part.number);
        }
        let part = self.page.pop_front().filter(|part| part.bytes == self.left_bytes);
        self.current = part.map(|part| (part.checksum.clone(), Checksummer::new(part.checksum.kind)));
        Ok(())
    }
}
