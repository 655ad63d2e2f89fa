//! Objects that were copied from a blob back to the workshop after the last change that the catalog has.
//!
//! The blob is removed from its drives afterwards, so an older copy of the catalog knows the object in a blob that is
//! on no drive. Its bytes are in a staged file or record that names the version; a copy that an evacuation made does
//! not name the object.
//!
//! Memory: a few words for each staged file, and only if there is a blob that is on no drive.

use crate::error::ServerError;
use catalog::Object;
use std::collections::BTreeMap;
use workshop::{NamedSlot, Staging, key_hash};

/// The copies of objects in the workshop.
pub(super) struct CopiesInWorkshop<'a> {
    staging: Option<&'a Staging>,
    /// Slots of whole objects in files, by version; `None` before the first look.
    files: Option<BTreeMap<u64, (Described, u64)>>,
}

/// What a staged file says of itself.
#[derive(Clone, Copy)]
struct Described {
    version: u64,
    /// 0 if it is not known.
    key_hash: u64,
    bytes: u64,
}

impl Described {
    fn is(self, (bucket, key): (&str, &str), object: &Object) -> bool {
        let is_named = self.key_hash == 0 || self.key_hash == key_hash(bucket, key);
        is_named && (self.version, self.bytes) == (object.version.0, object.bytes)
    }
}

impl<'a> CopiesInWorkshop<'a> {
    /// Those in `staging`; none if the workshop is lost.
    pub(super) fn new(staging: Option<&'a Staging>) -> Self {
        Self { staging, files: None }
    }

    /// The slot with the bytes of `object`, the object at `(bucket, key)`.
    ///
    /// # Errors
    /// [`ServerError`] if the staged files cannot be listed. A file that cannot be read counts as missing.
    pub(super) async fn slot_of(&mut self, at: (&str, &str), object: &Object) -> Result<Option<u64>, ServerError> {
        let Some(staging) = self.staging else { return Ok(None) };
        if self.files.is_none() {
            self.files = Some(files_of(staging).await?);
        }
        let file = self.files.as_ref().and_then(|files| files.get(&object.version.0));
        if let Some((_, slot)) = file.filter(|(described, _)| described.is(at, object)) {
            return Ok(Some(*slot));
        }
        record_of(staging, at, object).await
    }
}

/// The slot of the record with the bytes of `object`. Records are sorted by the name of their object.
async fn record_of(staging: &Staging, at: (&str, &str), object: &Object) -> Result<Option<u64>, ServerError> {
    let first = NamedSlot::of(0, at.0, at.1);
    let mut from = first.clone();
    loop {
        let page = staging.records(&from).await?;
        let Some(last) = page.last().map(|record| record.at.successor()) else { return Ok(None) };
        for record in page.iter().take_while(|record| record.at.name() == first.name()) {
            if described(staging, record.at.clone()).await.is_some_and(|described| described.is(at, object)) {
                return Ok(Some(record.at.slot()));
            }
        }
        if last.name() != first.name() {
            return Ok(None);
        }
        from = last;
    }
}

async fn files_of(staging: &Staging) -> Result<BTreeMap<u64, (Described, u64)>, ServerError> {
    let (mut slots, mut files) = (Vec::new(), BTreeMap::new());
    staging.each_file(|slot| slots.push(slot)).await?;
    for slot in slots {
        if let Some(described) = described(staging, slot.into()).await {
            files.insert(described.version, (described, slot));
        }
    }
    Ok(files)
}

/// The description of the whole object that is staged at `at`; `None` if it is a part, or cannot be read.
async fn described(staging: &Staging, at: NamedSlot) -> Option<Described> {
    let reader = staging.hold(at)?.open().await.ok()?;
    let (stamp, bytes) = (reader.stamp(), reader.bytes());
    let described = Described { version: stamp.version, key_hash: stamp.key_hash, bytes };
    (stamp.version != 0 && stamp.part == 0).then_some(described)
}
