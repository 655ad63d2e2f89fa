//! Healing: restores what a rotation lost from the other one, which has everything.
//!
//! 1. Both are read in key order. For each key with a newer version in the whole rotation, deletions included, that
//!    version is written to a new shelf, together with all masks.
//! 2. Merges drop a deletion once no older version of its key is left. So the whole rotation may have dropped a
//!    deletion that this rotation lost, while an older version of the key is still here. A version of this rotation
//!    with a number up to the last one of the whole rotation, whose key the whole one lacks, was removed, and masks
//!    hide it.
//! 3. A damaged shelf that lost something counts as missing: all its content is restored. So is the content of an
//!    unreadable file.
//! 4. Then the rotation is whole again for readers, and these files are dead and removed.
//!
//! Changes that arrive meanwhile are in its logs. This is background work of [`crate::merging`]; if it fails or is
//! interrupted, the next run starts over.
//!
//! Memory: a page of 4 MiB, the memory for building a shelf, and a mask for each run of removed keys.

use crate::bytes::crc32c;
use crate::drive::Drive;
use crate::error::ReadError;
use crate::mask::Mask;
use crate::names::FileId;
use crate::record::{Record, Sequence, successor};
use crate::repairing::is_lossy;
use crate::shared::{CycleShared, Shared};
use crate::shelf::access::Access;
use crate::shelf::build::ShelfBuilder;
use crate::transform::{Finished, discard, remove_shelf, remove_shelf_file, superseded};
use crate::view::{View, Want};
use std::sync::Arc;

/// Keys per page.
const PAGE: usize = 256;

/// Writes what `cycle` lacks, compared with `whole`, to a shelf on `to`.
pub(crate) fn heal(shared: &Shared, cycle: &CycleShared, whole: &View, to: &Arc<Drive>) -> Result<(), ReadError> {
    let view = cycle.view();
    let lossy: Vec<_> = view.shelves.iter().filter(|shelf| is_lossy(shelf)).cloned().collect();
    let unreadable = cycle.unreadable.lock().clone();
    let unread = unreadable.iter().map(|shelf| shelf.file);
    let files: Vec<FileId> = lossy.iter().map(|shelf| shelf.file).chain(unread).collect();
    let rest = view.replaced(&files, None);
    // Up to this number the whole one has everything that was not removed. Later changes are in this rotation's own
    // logs; or it is behind, and levelling looks for all changes above its last number, so none of them is copied.
    let known = whole.last();
    let identity = shared.new_file(to.uuid);
    let access = Access::Background;
    let (drives, there) = cycle.members();
    let write = || {
        let mut builder = ShelfBuilder::begin(to, identity, access)?;
        copy(&mut builder, &rest, (whole, known))?;
        let records = builder.records();
        let mut masks = whole.all_masks();
        masks.retain(|mask| mask.up_to <= known);
        masks.extend(removed(&rest, whole, known)?);
        masks.sort_unstable();
        masks.dedup();
        builder.finish(masks, superseded(cycle, &files))?;
        let shelf = Finished { shared, drive: to, identity, access }.publish(
            || Ok(()),
            |manifest| {
                manifest.give_up(&files);
                manifest.heal(&drives, &there);
            },
        )?;
        tracing::info!(records, shelf = %identity.file, "a rotation has its lost records again");
        Ok::<_, ReadError>(shelf)
    };
    let shelf = write().inspect_err(|_| discard(to, identity.file))?;
    cycle.undeleted.lock().extend(&files);
    cycle.change(|now| {
        let mut now = now.replaced(&files, Some(shelf));
        // Parts that were lost meanwhile are still lost.
        now.lost[0].retain(|part| !view.lost[0].contains(part));
        now
    });
    cycle.unreadable.lock().retain(|shelf| !files.contains(&shelf.file));
    for shelf in &lossy {
        remove_shelf(cycle, shelf);
    }
    for shelf in unreadable.iter().filter(|shelf| !shelf.is_kept) {
        remove_shelf_file(cycle, &shelf.drive, shelf.file);
    }
    Ok(())
}

/// Masks for versions in `view` with numbers up to `known` that `whole`, which is complete up to there, lacks.
fn removed(view: &View, whole: &View, known: Sequence) -> Result<Vec<Mask>, ReadError> {
    let mut masks: Vec<Mask> = Vec::new();
    let mut next = Some(Vec::new());
    while let Some(from) = next.take() {
        let page = view.page(&from, None, PAGE, Want::Entry)?;
        for (key, version) in &page.items {
            let sequence = version.stored.sequence;
            let (found, hidden) = whole.newest(key, Want::Entry)?;
            if sequence > known || found.is_some() || hidden >= sequence {
                continue;
            }
            match masks.last_mut() {
                Some(last) if nothing_between(whole, last, key)? => {
                    (last.to, last.up_to) = (Some(successor(key)), last.up_to.max(sequence));
                }
                _ => masks.push(Mask { from: key.clone(), to: Some(successor(key)), up_to: sequence }),
            }
        }
        next = page.next;
    }
    Ok(masks)
}

/// True if `whole` has no key, not even a deleted one, from the end of `mask` on and before `key`.
fn nothing_between(whole: &View, mask: &Mask, key: &[u8]) -> Result<bool, ReadError> {
    let from = mask.to.as_deref().unwrap_or_default();
    let page = whole.page(from, Some(key), 1, Want::Raw)?;
    Ok(page.items.is_empty() && page.next.is_none())
}

/// Adds the newest versions in `whole` with numbers up to `known` that `view` lacks. The logs of `whole` may grow.
fn copy(builder: &mut ShelfBuilder<'_>, view: &View, (whole, known): (&View, Sequence)) -> Result<(), ReadError> {
    let mut next = Some(Vec::new());
    while let Some(from) = next.take() {
        let page = whole.page(&from, None, PAGE, Want::Raw)?;
        for (key, version) in &page.items {
            let sequence = version.stored.sequence;
            let (own, _) = view.newest(key, Want::Entry)?;
            if sequence > known || own.is_some_and(|own| own.stored.sequence >= sequence) {
                continue;
            }
            let stored = &version.stored;
            let kind = version.kind;
            let record = Record { kind, sequence, key, entry: &stored.entry, value: &stored.value };
            builder.add(&record, crc32c(&stored.value))?;
        }
        assert!(page.next.as_ref().is_none_or(|next| *next >= from), "pages go forward");
        next = page.next;
    }
    Ok(())
}
