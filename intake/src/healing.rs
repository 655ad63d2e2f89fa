//! Giving a rotation back what it lost, from the other one that has everything.
//!
//! Both are walked through in key order; of each key of which the whole one has a newer version, be it that it is gone,
//! that version is written to a new shelf, and all masks with it. Then the rotation is whole again for readers. Changes
//! that come meanwhile are in its logs. It is background work ([`crate::merging`]); if it fails or is cut short, it
//! begins anew with the next occasion.
//!
//! Memory: a page of 4 MiB, and what building a shelf takes.

use crate::bytes::crc32c;
use crate::drive::Drive;
use crate::error::ReadError;
use crate::record::Record;
use crate::shared::{CycleShared, Shared};
use crate::shelf::access::Access;
use crate::shelf::build::ShelfBuilder;
use crate::transform::{discard, publish, superseded};
use crate::view::{View, Want};
use std::sync::Arc;

/// Keys of a page.
const PAGE: usize = 256;

/// Writes what `cycle` lacks of `whole` to a shelf on `to`.
pub(crate) fn heal(shared: &Shared, cycle: &CycleShared, whole: &View, to: &Arc<Drive>) -> Result<(), ReadError> {
    let view = cycle.view();
    let identity = shared.new_file(to.uuid);
    let access = Access::Background;
    let write = || {
        let mut builder = ShelfBuilder::begin(to, identity, access)?;
        copy(&mut builder, &view, whole)?;
        let records = builder.records();
        builder.finish(whole.all_masks(), superseded(cycle, &[]))?;
        let shelf = publish(to, identity, access, || Ok(()))?;
        tracing::info!(records, shelf = %identity.file, "a rotation has back what it lost");
        Ok::<_, ReadError>(shelf)
    };
    let shelf = write().inspect_err(|_| discard(to, identity.file))?;
    cycle.change(|now| {
        let mut now = now.replaced(&[], Some(shelf));
        // What was lost since is still lost.
        now.lost[0].retain(|part| !view.lost[0].contains(part));
        now
    });
    Ok(())
}

fn copy(builder: &mut ShelfBuilder<'_>, view: &View, whole: &View) -> Result<(), ReadError> {
    let mut next = Some(Vec::new());
    while let Some(from) = next.take() {
        let page = whole.page(&from, None, PAGE, Want::Raw)?;
        for (key, version) in &page.items {
            let (known, _) = view.newest(key, Want::Entry)?;
            if known.is_some_and(|known| known.stored.sequence >= version.stored.sequence) {
                continue;
            }
            let stored = &version.stored;
            let (kind, sequence) = (version.kind, stored.sequence);
            let record = Record { kind, sequence, key, entry: &stored.entry, value: &stored.value };
            builder.add(&record, crc32c(&stored.value))?;
        }
        assert!(page.next.as_ref().is_none_or(|next| *next >= from), "pages go forward");
        next = page.next;
    }
    Ok(())
}
