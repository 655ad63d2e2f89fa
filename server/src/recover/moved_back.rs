//! Objects that were copied from a blob back to the workshop after the last change that the catalog has.
//!
//! Such a blob is removed from its drives afterwards, so an older copy of the catalog knows the object in a blob of
//! which nothing is left. Its bytes are in a staged file or record that names the version and the object.
//!
//! Memory: a few words for each staged file, and only if there is a blob of which nothing is left.

use crate::error::ServerError;
use catalog::Object;
use std::collections::BTreeMap;
use workshop::{NamedSlot, Staging, key_hash};

/// The copies of objects in the workshop.
pub(super) struct MovedBack<'a> {
    staging: Option<&'a Staging>,
    /// Slots of whole objects in files, by version and hash of the name; `None` before the first look.
    files: Option<BTreeMap<(u64, u64), u64>>,
}

impl<'a> MovedBack<'a> {
    /// Those in `staging`; none if the workshop is lost.
    pub(super) fn new(staging: Option<&'a Staging>) -> Self {
        Self { staging, files: None }
    }

    /// The slot with the bytes of `object`, the object at `(bucket, key)`.
    ///
    /// # Errors
    /// [`ServerError`] if the staged files cannot be listed. A file that cannot be read counts as missing.
    pub(super) async fn slot_of(
        &mut self,
        (bucket, key): (&str, &str),
        object: &Object,
    ) -> Result<Option<u64>, ServerError> {
        let Some(staging) = self.staging else { return Ok(None) };
        if self.files.is_none() {
            self.files = Some(files_of(staging).await?);
        }
        let wanted = (object.version.0, key_hash(bucket, key));
        if let Some(slot) = self.files.as_ref().and_then(|files| files.get(&wanted)) {
            return Ok(Some(*slot));
        }
        // Records are sorted by the object's name.
        let first = NamedSlot::of(0, bucket, key);
        let mut from = first.clone();
        loop {
            let page = staging.records(&from).await?;
            let Some(last) = page.last().map(|record| record.at.successor()) else { return Ok(None) };
            for record in page.iter().take_while(|record| record.at.name() == first.name()) {
                if stamp_of(staging, record.at.clone()).await == Some(wanted) {
                    return Ok(Some(record.at.slot()));
                }
            }
            if last.name() != first.name() {
                return Ok(None);
            }
            from = last;
        }
    }
}

async fn files_of(staging: &Staging) -> Result<BTreeMap<(u64, u64), u64>, ServerError> {
    let (mut slots, mut files) = (Vec::new(), BTreeMap::new());
    staging.each_file(|slot| slots.push(slot)).await?;
    for slot in slots {
        if let Some(stamp) = stamp_of(staging, slot.into()).await {
            files.insert(stamp, slot);
        }
    }
    Ok(files)
}

/// The version and the hash of the name of the whole object that is staged at `at`, if they are known.
async fn stamp_of(staging: &Staging, at: NamedSlot) -> Option<(u64, u64)> {
    let stamp = staging.hold(at)?.open().await.ok()?.stamp();
    (stamp.version != 0 && stamp.key_hash != 0 && stamp.part == 0).then_some((stamp.version, stamp.key_hash))
}
