//! Scrubbing: the progress of each group, and the findings of each blob.
//!
//! A finding is recorded when a scrub finds damage, and changes when the damage is repaired. It is deleted when the
//! next scrub finds the blob sound, or with the blob. So findings are few and describe the damage that is known now.

use crate::catalog::{Catalog, Cursor, Page};
use crate::error::CatalogError;
use crate::failed::ids_of;
use crate::key::{self, Tag};
use crate::record::{Blob, encode, value};
use crate::store::{Batch, Check, Entry, Write};
use model::{BlobId, DriveId, GroupId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The progress of the scrub of a group. Times are modelled, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPass {
    /// Grows each time that the pass is recorded.
    pub serial: u64,
    /// Start of its period.
    pub began_ns: u64,
    /// It covers the blobs with numbers below this; `None` until that is known.
    pub end: Option<u64>,
    /// The last blob that is done.
    pub done: Option<BlobId>,
    /// True if all blobs are done.
    pub complete: bool,
    /// Bytes of stacks in the group at its start.
    pub total_bytes: u64,
    /// Its counts.
    pub counts: ScrubCounts,
    /// Time at which the last pass was completed, and its counts.
    pub last: Option<(u64, ScrubCounts)>,
    /// The last day of modelled time on which the group was woken only for the scrub, and the number of these wakes.
    pub own_wakes: (u32, u32),
    /// True if the operator requested it.
    pub requested: bool,
}

/// Counts of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubCounts {
    /// Blobs that are done.
    pub blobs: u64,
    /// Bytes of their stacks.
    pub stack_bytes: u64,
    /// Stacks that were damaged.
    pub damaged_stacks: u64,
    /// Of those, repaired.
    pub repaired_stacks: u64,
    /// Blobs with lost data.
    pub lost_blobs: u64,
    /// Stacks that could not be read.
    pub unread_stacks: u64,
}

/// The findings of scrubs about a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFinding {
    /// The blob.
    pub blob: BlobId,
    /// Its group.
    pub group: GroupId,
    /// Time of the finding, in milliseconds of the Unix epoch.
    pub found_ms: u64,
    /// The stacks that are damaged.
    pub damaged: Vec<DamagedStack>,
    /// The indices of stacks that were damaged and are now repaired.
    pub repaired: Vec<u8>,
    /// Ranges of lost payload bytes, from and to: too few fragments of their stripes are good.
    pub lost: Vec<(u64, u64)>,
}

/// A stack that is damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedStack {
    /// Its index.
    pub index: u8,
    /// Its drive.
    pub drive: DriveId,
    /// The flaw, for people.
    pub flaw: String,
}

impl ScrubFinding {
    /// The combination of two findings about the same blob.
    fn with(mut self, other: &Self) -> Self {
        self.damaged.retain(|stack| other.damaged.iter().all(|also| also.index != stack.index));
        self.damaged.extend(other.damaged.iter().cloned());
        self.lost.extend(&other.lost);
        self
    }
}

impl Catalog {
    /// True if scrubs are paused.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn is_scrub_paused(&self) -> Result<bool, CatalogError> {
        Ok(self.look_up_one(&paused()).await?.unwrap_or(false))
    }

    /// Stores whether scrubs are paused.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn pause_scrub(&self, is_paused: bool) -> Result<(), CatalogError> {
        self.write(vec![Write::Put(paused(), encode(&is_paused))]).await
    }

    /// The last recorded progress of the scrub of each group.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn scrub_passes(&self) -> Result<Vec<(GroupId, ScrubPass)>, CatalogError> {
        self.all_entries(&key::all(Tag::ScrubPass), |entry| {
            let [group] = key::numbers(&entry.key)?;
            Ok((GroupId(group as u32), value(entry)?))
        })
        .await
    }

    /// The blobs of each group that a scrub could not read and must read again. A damaged record names none.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn scrubs_unread(&self) -> Result<Vec<(GroupId, Vec<BlobId>)>, CatalogError> {
        let read = |entry: &Entry| {
            let known = value::<(u32, Vec<BlobId>)>(entry);
            if let Err(error) = &known {
                self.quarantine(&entry.key, &error.to_string());
            }
            Ok(known.ok())
        };
        let known = self.all_entries(&key::meta(UNREAD), read).await?.into_iter().flatten();
        Ok(known.map(|(group, blobs)| (GroupId(group), blobs)).collect())
    }

    /// Records the progress of the scrub of `group` and the blobs that it could not read, unless a later state is
    /// already recorded.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Conflict`].
    pub async fn set_scrub_pass(
        &self,
        group: GroupId,
        pass: &ScrubPass,
        unread_blobs: &[BlobId],
    ) -> Result<(), CatalogError> {
        let at = key::scrub_pass(group);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let (known, unchanged) = match self.read_to_replace::<ScrubPass>(&at).await? {
                Some((known, raw)) => (known, Check::Is(at.clone(), raw)),
                None => (None, Check::Absent(at.clone())),
            };
            if known.is_some_and(|known| known.serial >= pass.serial) {
                return Ok(());
            }
            let mut writes = vec![Write::Put(at.clone(), encode(pass))];
            let named = unread(group);
            if !unread_blobs.is_empty() {
                writes.push(Write::Put(named, encode(&(group.0, unread_blobs))));
            } else if self.store.get(&named).await?.is_some() {
                writes.push(Write::Delete(named));
            }
            if self.apply(Batch::new(vec![unchanged], writes)).await? {
                return Ok(());
            }
        }
    }

    /// Records a finding about a blob. It replaces the known one, or is combined with it if it `adds` a finding about
    /// another part. False if the blob is gone; nothing is changed then.
    ///
    /// # Errors
    /// [`CatalogError::Store`], [`CatalogError::Conflict`].
    pub async fn note_scrub_finding(&self, finding: &ScrubFinding, adds: bool) -> Result<bool, CatalogError> {
        let at = key::scrub_finding(finding.blob);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let (known, unchanged) = match self.read_to_replace::<ScrubFinding>(&at).await? {
                Some((known, raw)) => (known, Check::Is(at.clone(), raw)),
                None => (None, Check::Absent(at.clone())),
            };
            let noted = match known.filter(|_| adds) {
                Some(known) => known.with(finding),
                None => finding.clone(),
            };
            let checks = vec![Check::Present(key::blob(finding.blob)), unchanged];
            if self.apply(Batch::new(checks, vec![Write::Put(at.clone(), encode(&noted))])).await? {
                return Ok(true);
            }
            if self.blob(finding.blob).await?.is_none() {
                return Ok(false);
            }
        }
    }

    /// Deletes the finding about `blob`, which a scrub has found sound.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn clear_scrub_finding(&self, blob: BlobId) -> Result<(), CatalogError> {
        let at = key::scrub_finding(blob);
        if self.store.get(&at).await?.is_some() {
            self.write(vec![Write::Delete(at)]).await?;
        }
        Ok(())
    }

    /// The finding about `blob`, if any.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn scrub_finding(&self, blob: BlobId) -> Result<Option<ScrubFinding>, CatalogError> {
        self.look_up_one(&key::scrub_finding(blob)).await
    }

    /// A page of findings, by blob.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn scrub_findings(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ScrubFinding>, CatalogError> {
        self.page(&key::all(Tag::ScrubFinding), after, limit, value).await
    }

    /// Records that stack `index` of `blob` on `drive` is good again: a spare was written beside it. The finding about
    /// the blob and its spare targets change with it.
    ///
    /// # Errors
    /// [`CatalogError::Store`], after which it may be recorded or not; [`CatalogError::Conflict`].
    pub async fn end_repair(&self, blob: BlobId, index: u8, drive: DriveId) -> Result<(), CatalogError> {
        let at = key::scrub_finding(blob);
        let mut retries = self.retries();
        loop {
            let _permit = retries.next().await?;
            let (mut checks, mut writes) = (Vec::new(), vec![Write::Delete(key::spare_target(blob, drive, index))]);
            if let Some((Some(mut finding), raw)) = self.read_to_replace::<ScrubFinding>(&at).await? {
                finding.damaged.retain(|stack| stack.index != index);
                if !finding.repaired.contains(&index) {
                    finding.repaired.push(index);
                }
                checks.push(Check::Is(at.clone(), raw));
                writes.push(Write::Put(at.clone(), encode(&finding)));
            }
            if self.apply(Batch::new(checks, writes)).await? {
                return Ok(());
            }
        }
    }

    /// A page of the blobs with living versions that have a stack on any of `drives`, with numbers above `after` and
    /// below `end`, and the blob after which the next page begins. If any k + r drives of a group include one of
    /// `drives`, the pages have all of these blobs of the group.
    ///
    /// # Errors
    /// [`CatalogError::Store`].
    pub async fn blobs_on_any(
        &self,
        drives: &[DriveId],
        (after, end): (Option<BlobId>, Option<u64>),
        limit: usize,
    ) -> Result<(Vec<Blob>, Option<BlobId>), CatalogError> {
        assert!(limit > 0, "a page has room for a blob");
        let (mut ids, mut known_to) = (BTreeSet::new(), None::<BlobId>);
        for drive in drives {
            let behind = after.map(|blob| Cursor(key::on_drive(*drive, blob)));
            let page = self.entries(&key::all_on_drive(*drive), behind.as_ref(), limit).await?;
            let of_drive = ids_of(&page.items)?;
            // The stacks on the drive after a full page are unknown.
            if page.next.is_some() {
                known_to = of_drive.last().copied().into_iter().chain(known_to).min();
            }
            ids.extend(of_drive);
        }
        let is_before_end = |id: &BlobId| end.is_none_or(|end| id.number < end);
        let goes_on = known_to.is_some_and(|last| is_before_end(&last));
        ids.retain(|id| known_to.is_none_or(|last| *id <= last) && is_before_end(id));
        let cut = ids.len() > limit;
        let ids: Vec<BlobId> = ids.into_iter().take(limit).collect();
        let next = ids.last().copied().filter(|_| cut || goes_on);
        let mut living = Vec::with_capacity(ids.len());
        for blob in self.blobs(&ids).await?.into_iter().flatten() {
            if self.is_blob_living(blob.blob).await? {
                living.push(blob);
            }
        }
        assert!(living.iter().all(|blob: &Blob| after.is_none_or(|after| blob.blob > after)), "a page leads on");
        Ok((living, next))
    }
}

/// Key prefix of the unread blobs of a scrub, before the number of the group.
const UNREAD: &str = "scrub-unread/";

/// Key of the record of the blobs of `group` that a scrub could not read.
fn unread(group: GroupId) -> Vec<u8> {
    key::meta(&format!("{UNREAD}{:08x}", group.0))
}

/// Key of the record that scrubs are paused.
fn paused() -> Vec<u8> {
    key::meta("scrub-paused")
}
