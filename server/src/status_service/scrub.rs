//! Scrubs: their progress, their findings, and the operator's commands.

use super::StatusService;
use super::snapshot::scrub_status;
use crate::admin::AdminError;
use crate::report::{DamagedStackReport, LostObject, ScrubFindingReport, ScrubReport, UnreadBlob};
use catalog::{CATALOG_BUCKET, DamagedStack, Place, ScrubFinding};
use engine::{Event, Rack};
use model::{BlobId, GroupId};
use std::collections::BTreeMap;

/// Findings in one report.
const FINDINGS_MAX: usize = 1_000;
/// Blobs named in one report that could not be read yet.
const UNREAD_MAX: usize = 100;
/// Blobs whose objects are searched for.
const LOST_BLOBS_MAX: usize = 10_000;
/// Records per read.
const PAGE: usize = 1_024;

impl StatusService {
    /// The scrub of each group, and the first findings.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn scrub_report(&self) -> Result<ScrubReport, AdminError> {
        let (mut status, unread) = self.look(|rack, now| (scrub_status(rack, now), unread_of(rack))).await?;
        (status.lost_blobs, status.unrepaired_stacks) = self.damage_found().await?;
        let page = self.context.catalog.scrub_findings(None, FINDINGS_MAX).await?;
        let findings = page.items.iter().map(finding_report).collect();
        Ok(ScrubReport { status, findings, more: page.next.is_some(), unread })
    }

    /// The number of blobs in which scrubs found data lost, and of stacks that they found damaged and that are not
    /// repaired yet; of the first [`LOST_BLOBS_MAX`] findings.
    pub(super) async fn damage_found(&self) -> Result<(u64, u64), AdminError> {
        let (mut lost_blobs, mut unrepaired_stacks, mut seen, mut after) = (0, 0, 0, None);
        loop {
            let page = self.context.catalog.scrub_findings(after.as_ref(), PAGE).await?;
            for found in &page.items {
                // A blob that is no longer wanted is no loss; it is removed when its group wakes.
                if !self.context.catalog.is_blob_living(found.blob).await? {
                    continue;
                }
                let is_unrepaired = |stack: &&DamagedStack| !found.repaired.contains(&stack.index);
                unrepaired_stacks += found.damaged.iter().filter(is_unrepaired).count() as u64;
                lost_blobs += u64::from(!found.lost.is_empty());
            }
            (seen, after) = (seen + page.items.len(), page.next);
            if after.is_none() || seen >= LOST_BLOBS_MAX {
                return Ok((lost_blobs, unrepaired_stacks));
            }
        }
    }

    /// Pauses scrubs, or resumes them; recorded first, so that it outlives a restart.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn pause_scrub(&self, paused: bool) -> Result<ScrubReport, AdminError> {
        self.is_on().await?;
        self.context.catalog.pause_scrub(paused).await?;
        self.world.report(Event::ScrubPaused { paused });
        self.scrub_report().await
    }

    /// Starts a pass of `group`, or of all groups, at once; `None` if there is no such group.
    ///
    /// # Errors
    /// [`AdminError`], if scrubs are paused or switched off.
    pub async fn start_scrub(&self, group: Option<u32>) -> Result<Option<ScrubReport>, AdminError> {
        self.is_on().await?;
        let (groups, paused) = self.look(|rack, _| (rack.layout().groups.len(), rack.is_scrub_paused())).await?;
        if group.is_some_and(|group| group as usize >= groups) {
            return Ok(None);
        }
        if paused {
            return Err(AdminError::Because("scrubs are paused; run `larder scrub resume` first".into()));
        }
        self.world.report(Event::ScrubRequested { group: group.map(GroupId) });
        self.scrub_report().await.map(Some)
    }

    pub(super) async fn is_on(&self) -> Result<(), AdminError> {
        if self.look(|rack, _| rack.policy().scrub.period.is_some()).await? {
            return Ok(());
        }
        Err(AdminError::Because(
            "blobs are not scrubbed: `period` in [scrub] of larder.toml is \"never\"; set it and start the server again"
                .into(),
        ))
    }

    /// The objects with bytes that scrubs found lost, by name, except copies of the catalog. Reads the records of all
    /// objects if any blob is lost.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn scrub_lost(&self) -> Result<Vec<LostObject>, AdminError> {
        let lost = self.lost_blobs().await?;
        let (mut objects, mut after) = (Vec::new(), None);
        while !lost.is_empty() {
            let page = self.context.catalog.sound_objects(after.as_ref(), PAGE).await?;
            for (bucket, key, placed) in page.items.into_iter().filter(|(bucket, ..)| bucket != CATALOG_BUCKET) {
                let Place::Stored { blob, offset } = placed.place else { continue };
                let Some(ranges) = lost.get(&blob) else { continue };
                let (bytes, end) = (placed.object.bytes, offset.saturating_add(placed.object.bytes));
                if ranges.iter().any(|(from, to)| offset < *to && *from < end) {
                    objects.push(LostObject { bucket, key, bytes, blob: blob.to_string() });
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(objects)
    }

    async fn lost_blobs(&self) -> Result<BTreeMap<BlobId, Vec<(u64, u64)>>, AdminError> {
        let (mut lost, mut after) = (BTreeMap::new(), None);
        loop {
            let page = self.context.catalog.scrub_findings(after.as_ref(), PAGE).await?;
            for found in page.items.into_iter().filter(|found| !found.lost.is_empty()) {
                lost.insert(found.blob, found.lost);
            }
            after = page.next;
            if after.is_none() || lost.len() >= LOST_BLOBS_MAX {
                return Ok(lost);
            }
        }
    }
}

fn unread_of(rack: &Rack) -> Vec<UnreadBlob> {
    let named = rack.scrubs_put_off().take(UNREAD_MAX);
    named.map(|(group, blob)| UnreadBlob { blob: blob.to_string(), group: group.0 }).collect()
}

fn finding_report(found: &ScrubFinding) -> ScrubFindingReport {
    let damaged = found.damaged.iter().map(|stack| DamagedStackReport {
        stack: stack.index,
        drive: stack.drive.0,
        flaw: stack.flaw.clone(),
    });
    ScrubFindingReport {
        blob: found.blob.to_string(),
        group: found.group.0,
        found_ms: found.found_ms,
        damaged: damaged.collect(),
        repaired: found.repaired.clone(),
        lost_bytes: found.lost.iter().map(|(from, to)| to - from).sum(),
    }
}
