//! Objects of blobs with too many bad stacks, listed one by one: some stripes may be intact, and an object is lost only
//! if its own stripes are not.
//!
//! Keys lead to blobs and not the other way round, so finding the objects of a blob takes a pass over all objects. One
//! pass serves all bad blobs of a group, at most [`GATHERED_MAX`](super::gathered::GATHERED_MAX) and a page, so that a
//! group is woken once. Objects come in key order, the order in packs, so most bytes are read once. Meanwhile no drive
//! is borrowed from a running server.

use super::gathered::{DiscardedPayload, LostBlob};
use super::{Finding, FindingKind, PAGE, Verification};
use crate::error::ServerError;
use catalog::{Blob, CATALOG_BUCKET, Place};
use disk::stack::{Policy, StackReader};
use model::BlobId;
use std::collections::BTreeMap;
use std::ops::Range;

/// Objects of a blob that a finding about it names.
const NAMED_MAX: usize = 5;
const ANOTHER_COPY: &str = "nothing to do while the server runs: it writes another copy; until then `larder catalog \
                            backup` writes one to a file";

impl Verification<'_> {
    /// Gathers `blob`, which cannot be read completely. Its objects are listed with those of other blobs.
    pub(super) fn lost_blob(&mut self, blob: &Blob, why: String, mend: &'static str, may_come_back: bool) {
        let names = Vec::new();
        self.lost.push(LostBlob { blob: blob.clone(), why, mend, may_come_back, lost: 0, readable: 0, names });
    }

    /// Reports every unreadable object in the gathered blobs, and then the blobs.
    pub(super) async fn tell_lost(&mut self) -> Result<(), ServerError> {
        let gathered = std::mem::take(&mut self.lost).into_iter();
        let mut blobs: BTreeMap<BlobId, LostBlob> = gathered.map(|lost| (lost.blob.blob, lost)).collect();
        let (mut open, mut after) = (None, None);
        while !blobs.is_empty() {
            self.room().await;
            let page = self.ground.catalog.sound_objects(after.as_ref(), PAGE).await?;
            for (bucket, key, placed) in page.items {
                let Place::Stored { blob, offset } = placed.place else { continue };
                let Some(lost) = blobs.get_mut(&blob) else { continue };
                if open.as_ref().is_none_or(|(of, _)| *of != blob) {
                    open = Some((blob, self.reader(&lost.blob).await));
                }
                let reader = open.as_mut().and_then(|(_, reader)| reader.as_mut());
                let bytes = placed.object.bytes;
                let range = offset..offset.saturating_add(bytes);
                let is_whole = match self.beside.lost.get(&blob) {
                    Some(ranges) => ranges.iter().all(|(from, to)| range.end <= *from || *to <= range.start),
                    None => is_readable(reader, &lost.blob, range).await,
                };
                if is_whole {
                    lost.readable += 1;
                    continue;
                }
                lost.lost += 1;
                let object = format!("s3://{bucket}/{key}");
                if lost.names.len() < NAMED_MAX {
                    lost.names.push(object.clone());
                }
                let what = format!("{bytes} bytes at byte {offset} of the blob cannot be read");
                let kind = if lost.may_come_back { FindingKind::ObjectUnavailable } else { FindingKind::ObjectLost };
                let mend = if bucket == CATALOG_BUCKET { ANOTHER_COPY } else { lost.mend };
                let found = Finding::new(kind, what, mend).object(Some(object)).blob(blob);
                self.found(found);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for lost in blobs.into_values() {
            let (kind, objects) = if lost.may_come_back {
                (FindingKind::BlobUnavailable, &mut self.report.rack.unavailable_objects)
            } else {
                (FindingKind::BlobLost, &mut self.report.rack.lost_objects)
            };
            *objects += lost.lost;
            self.found(Finding::new(kind, lost.sentence(), lost.mend).blob(lost.blob.blob));
        }
        Ok(())
    }

    /// Reads `blob` as a client's read would, if enough of its stacks can be opened and the verification is deep.
    async fn reader(&self, blob: &Blob) -> Option<StackReader> {
        if !self.options.deep || self.ground.serving.is_some() {
            return None;
        }
        let drives = blob.drives.iter().map(|drive| self.drive(*drive));
        let there = (0..=u8::MAX).zip(drives).filter_map(|(index, drive)| Some((index, drive?))).collect();
        let opened = StackReader::open(self.described(blob), there, Policy::All).await.result;
        opened.ok().map(StackReader::without_repairs)
    }
}

/// True if the payload bytes `range` of `blob` can be read; an empty range always can.
async fn is_readable(reader: Option<&mut StackReader>, blob: &Blob, range: Range<u64>) -> bool {
    let Some(reader) = reader.filter(|_| range.end <= blob.payload_bytes) else { return range.is_empty() };
    range.is_empty() || reader.read(range, &mut DiscardedPayload(0)).await.is_ok()
}
