//! Reads of whole stripes into the spool that no GET waits for: reading ahead, and sets that an operator recalls.
//!
//! Invariant: a blob is held before it is found to live, so its stacks stay while it is read.

use crate::context::Context;
use crate::world::{ReadOrder, ReadTarget, SpoolSink, WorldHandle};
use catalog::{Blob, CatalogError, Place, PlacedObject};
use engine::readahead::{AheadRead, Candidate, ColdPlace};
use engine::recall::{RecallOperation, SpoolShape};
use engine::{PriorityClass, Rejection};
use model::BlobId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, OnceLock};
use workshop::{Purpose, ReserveError, SpoolReader};

/// Blobs that were looked up for one plan; `None` for a blob that is gone.
#[derive(Default)]
pub(crate) struct Blobs(BTreeMap<BlobId, Option<Blob>>);

impl Blobs {
    /// The blob with that number, if it was looked up and exists.
    pub(crate) fn get(&self, blob: BlobId) -> Option<&Blob> {
        self.0.get(&blob)?.as_ref()
    }

    /// An object as a candidate for a plan.
    pub(crate) async fn candidate(
        &mut self,
        context: &Context,
        placed: &PlacedObject,
    ) -> Result<Candidate, CatalogError> {
        let bytes = placed.object.bytes;
        let Place::Stored { blob, offset } = placed.place else { return Ok(Candidate { bytes, cold: None }) };
        if let Entry::Vacant(unknown) = self.0.entry(blob) {
            unknown.insert(context.catalog.blob(blob).await?);
        }
        let lies_at = |blob: &Blob| ColdPlace {
            group: blob.group,
            blob: blob.blob,
            offset,
            stripe_bytes: blob.code().stripe_bytes(),
            payload_bytes: blob.payload_bytes,
        };
        Ok(Candidate { bytes, cold: self.get(blob).map(lies_at) })
    }
}

/// A read that was ordered.
pub(crate) struct Ordered {
    /// Follows the read, and keeps the bytes that it brings.
    pub(crate) reader: SpoolReader,
    /// Set if the rack rejects the read.
    pub(crate) refused: Arc<OnceLock<Rejection>>,
}

/// The reason that a read was not ordered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    /// The spool has no room, or fails.
    #[error(transparent)]
    Spool(#[from] ReserveError),
    /// The catalog cannot tell if the blob lives.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// Orders `read` of `blob`; `None` if the spool already holds its beginning, or if nothing of the blob lives any more.
pub(crate) async fn order(
    (context, world): (&Context, &WorldHandle),
    blob: &Blob,
    read: &AheadRead,
    purpose: Purpose,
    while_awake: bool,
) -> Result<Option<Ordered>, OrderError> {
    // One task at a time looks and orders, so that the same bytes are ordered once.
    let _turn = context.recall_order.lock().await;
    let _hold = context.holds.guard(blob.blob);
    if context.spool.holds(read.blob, read.range.start) || !context.catalog.is_blob_living(blob.blob).await? {
        return Ok(None);
    }
    let blob = context.as_it_lies(blob).await;
    let spool = &context.spool;
    let shape = SpoolShape { capacity_bytes: spool.usage().capacity_bytes, segment_bytes: spool.segment_bytes() };
    let operation = (RecallOperation::ahead(read, shape), purpose);
    let (sink, reader) = SpoolSink::reserve_for(spool, blob.blob, operation, Box::new(|_| {})).await?;
    let refused = Arc::<OnceLock<Rejection>>::default();
    world.read(ReadOrder {
        blob,
        range: read.range.clone(),
        target: ReadTarget::Spool(Box::new(sink)),
        priority: PriorityClass::Client,
        job: None,
        while_awake,
        refused: Arc::clone(&refused),
    });
    Ok(reader.map(|reader| Ordered { reader, refused }))
}
