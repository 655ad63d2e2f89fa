//! Scrubbing: lists the blobs of a group, reads a part of a blob from all of its stacks, replaces damaged stacks by
//! regenerated ones, and records all that.
//!
//! Damage is recorded before it is reported to the engine, so that a repair that follows finds the record.

use super::operation::Operation;
use super::outcome::{described, drive_outcomes};
use super::rebuild::{InService, remove_left_over};
use super::state::World;
use crate::context::Context;
use catalog::{Blob, CatalogError, DamagedStack, ScrubFinding};
use disk::Drive;
use disk::stack::{self, ScrubFindings, StackError, StackOutcome};
use engine::scrub::{ScrubPage, ScrubPass, Scrubbed};
use engine::{BlobOnDrive, DriveOutcome, DriveResult, Event, Outcome, Transfer};
use model::{Attempt, BlobId, DriveId, GroupId, OpId};
use std::ops::Range;
use std::sync::Arc;

impl World {
    pub(super) fn list_to_scrub(
        &self,
        (group, attempt): (GroupId, Attempt),
        (after, end): (Option<BlobId>, Option<u64>),
        limit: u32,
    ) {
        let members = &self.rack.layout().groups[group.index()].drives;
        // A blob has a stack on all but `without` drives of its group, so on at least one of these `without` + 1.
        let without = members.len() - self.rack.spec().code.stacks();
        let drives = members[..=without].to_vec();
        self.start_with(move |handle, context| async move {
            let listed = async {
                let beyond = match end {
                    Some(end) => end,
                    None => context.catalog.blobs_end().await?,
                };
                let page = context.catalog.blobs_on_any(&drives, (after, Some(beyond)), limit as usize).await?;
                Ok::<_, CatalogError>((page, beyond))
            };
            handle.report(match listed.await {
                Ok(((blobs, next), end)) => {
                    let blobs = blobs.into_iter().map(to_scrub).collect();
                    Event::ScrubPage { group, attempt, page: ScrubPage { blobs, next, end } }
                }
                Err(error) => {
                    tracing::error!(%group, %error, "could not list blobs for a scrub; retrying");
                    Event::ScrubUnlisted { group, attempt }
                }
            });
        });
    }

    pub(super) fn persist_scrub(&self, group: GroupId, pass: ScrubPass, unread: Vec<BlobId>) {
        let catalog = self.context.catalog.clone();
        self.start(async move {
            if let Err(error) = catalog.set_scrub_pass(group, &crate::scrub::recorded(&pass), &unread).await {
                tracing::warn!(%group, %error, "cannot record the progress of a scrub; a restart repeats it");
            }
        });
    }

    pub(super) fn scrub(&mut self, op: OpId, attempt: Attempt, transfer: Transfer) {
        let Transfer::Scrub { blob, drives, stacks, from, to, .. } = transfer else { return };
        self.operations.insert(op, Operation::Scrub(blob));
        let in_service = self.in_service();
        let sources = self.with_drives(&stacks);
        self.start_with(move |handle, context| async move {
            let step = ScrubStep { context: &context, blob, drives: &drives, part: from..to };
            let outcomes = step.run(&in_service, sources).await;
            let (done, outcomes) = match outcomes {
                Ok(ended) => ended,
                Err(error) => {
                    tracing::error!(%blob, %error, "a blob could not be scrubbed; the next scrub tries again");
                    let unused =
                        |(_, drive): &(u8, DriveId)| DriveOutcome { drive: *drive, result: DriveResult::Unused };
                    (false, stacks.iter().map(unused).collect())
                }
            };
            handle.report(Event::TransferEnded { op, attempt, done, outcomes });
        });
    }

    /// Records that a blob, or a part of it, was scrubbed.
    pub(super) fn scrubbed(&self, blob: BlobId, outcome: &Outcome) {
        let Outcome::Scrubbed(found) = outcome else { return };
        let found = found.clone();
        let repaired = match found {
            Scrubbed::Sound => Vec::new(),
            Scrubbed::Repaired(stacks) => stacks,
            Scrubbed::Damaged(_) | Scrubbed::Lost => {
                return tracing::error!(%blob, ?outcome, "a scrub has found a blob damaged; see `larder scrub status`");
            }
            Scrubbed::InPart | Scrubbed::Unread | Scrubbed::Gone => return,
        };
        self.start_with(move |_, context| async move {
            let noted = if repaired.is_empty() {
                context.catalog.clear_scrub_finding(blob).await
            } else {
                note(&context, blob, (Vec::new(), repaired), Vec::new(), false).await
            };
            if let Err(error) = noted {
                tracing::warn!(%blob, %error, "could not record the findings of a scrub");
            }
        });
    }

    /// Replaces a damaged stack by the one that was regenerated beside it.
    pub(super) fn put_in_place(
        &self,
        (op, attempt): (OpId, Attempt),
        (blob, index): (Blob, u8),
        device: Arc<dyn Drive>,
    ) {
        self.start_with(move |handle, context| async move {
            let done = match put_in_place(&context, &blob, index, &*device).await {
                Ok(done) => done,
                Err(error) => {
                    let blob = blob.blob;
                    tracing::error!(%blob, index, error, "a damaged stack is not replaced; the next scrub tries again");
                    false
                }
            };
            handle.report(Event::StackMoved { op, attempt, done });
        });
    }
}

/// A part of a blob that is read.
struct ScrubStep<'a> {
    context: &'a Context,
    blob: BlobId,
    drives: &'a [DriveId],
    part: Range<u64>,
}

impl ScrubStep<'_> {
    /// True if the part can be read, and the outcome of each of `sources`; empty if the blob is gone or stored
    /// elsewhere.
    async fn run(
        &self,
        in_service: &InService,
        sources: Vec<(u8, Arc<dyn Drive>)>,
    ) -> Result<(bool, Vec<DriveOutcome>), CatalogError> {
        let found = self.context.catalog.blob(self.blob).await?.filter(|found| found.drives == self.drives);
        let Some(found) = found else { return Ok((false, Vec::new())) };
        // Removes leftovers of an unfinished repair; the next repair makes them again.
        if self.part.start == 0 && self.context.catalog_age.may_remove() {
            remove_left_over(self.context, in_service, self.blob, None).await?;
        }
        let mut devices: Vec<Option<Arc<dyn Drive>>> = self.drives.iter().map(|_| None).collect();
        let (mut indices, mut gone, mut unused) = (Vec::new(), Vec::new(), Vec::new());
        for (index, device) in sources {
            let drive = self.drives[usize::from(index)];
            // A stack lost with the drive that this one replaced is rebuilt, and is no damage of this drive.
            if self.context.catalog.is_stack_lost(drive, self.blob).await? {
                unused.push(DriveOutcome { drive, result: DriveResult::Unused });
                gone.push(index);
                continue;
            }
            devices[usize::from(index)] = Some(device);
            indices.push(index);
        }
        let findings = stack::scrub(described(self.context, &found), &devices, self.part.clone()).await;
        self.note(&indices, &gone, &findings).await?;
        let asked: Vec<DriveId> = indices.iter().map(|index| self.drives[usize::from(*index)]).collect();
        let outcomes = indices.iter().map(|index| findings.outcomes[usize::from(*index)].clone()).collect();
        let outcomes = drive_outcomes(self.context, &asked, outcomes).into_iter().chain(unused).collect();
        Ok((findings.payload.is_ok(), outcomes))
    }

    /// Records the damaged stacks and the lost ranges. The stacks `gone` were lost with drives.
    async fn note(&self, indices: &[u8], gone: &[u8], findings: &ScrubFindings) -> Result<(), CatalogError> {
        let is_bad = |index: &u8| findings.outcomes[usize::from(*index)] == StackOutcome::StackBad;
        let flaw_of = |index: u8| {
            let flaw = findings.flaws.iter().find(|(flawed, _)| *flawed == index);
            flaw.map_or_else(|| "it is damaged".to_owned(), |(_, flaw)| flaw.to_string())
        };
        let damaged = |index: &u8| {
            let drive = self.drives[usize::from(*index)];
            DamagedStack { index: *index, drive, flaw: flaw_of(*index) }
        };
        let damaged: Vec<DamagedStack> = indices.iter().filter(|index| is_bad(index)).map(damaged).collect();
        let mut lost: Vec<(u64, u64)> = findings.lost.iter().map(|range| (range.start, range.end)).collect();
        // If every stack was asked and reported its state, data that is unreadable or wrong is lost.
        let answered = |(index, outcome): (usize, &StackOutcome)| {
            gone.contains(&(index as u8))
                || matches!(outcome, StackOutcome::Fine | StackOutcome::Repaired { .. } | StackOutcome::StackBad)
        };
        if lost.is_empty() && findings.payload.is_err() && findings.outcomes.iter().enumerate().all(answered) {
            lost.push((self.part.start, self.part.end));
        }
        if let Err(StackError::DataLost { bad, .. }) = &findings.payload {
            for (start, _) in &lost {
                self.context.counters.losses.met(self.blob, *start, bad.clone());
            }
        }
        if damaged.is_empty() && lost.is_empty() {
            return Ok(());
        }
        note(self.context, self.blob, (damaged, Vec::new()), lost, self.part.start > 0).await
    }
}

async fn note(
    context: &Context,
    blob: BlobId,
    (damaged, repaired): (Vec<DamagedStack>, Vec<u8>),
    lost: Vec<(u64, u64)>,
    adds: bool,
) -> Result<(), CatalogError> {
    let Some(found) = context.catalog.blob(blob).await? else { return Ok(()) };
    let found_ms = (context.wall)();
    let finding = ScrubFinding { blob, group: found.group, found_ms, damaged, repaired, lost };
    context.catalog.note_scrub_finding(&finding, adds).await.map(drop)
}

/// Replaces stack `index` by its spare, and records that. False if that is not allowed.
async fn put_in_place(context: &Context, blob: &Blob, index: u8, device: &dyn Drive) -> Result<bool, String> {
    let text = |error: CatalogError| error.to_string();
    let (rack, id, drive) = (context.rack_uuid, blob.blob, blob.drives[usize::from(index)]);
    let lies_there = context.catalog.blob(id).await.map_err(text)?.is_some_and(|found| found.drives == blob.drives);
    let is_lost = context.catalog.is_stack_lost(drive, id).await.map_err(text)?;
    let replaced =
        if lies_there && !is_lost { stack::replace_with_spare(rack, id, index, device).await } else { Ok(false) };
    if !matches!(replaced, Ok(true)) {
        // Safe even after an error: a stack that was replaced has nothing beside it.
        stack::remove_spare(rack, id, index, device).await;
        return replaced.map_err(|error| error.to_string());
    }
    tracing::info!(blob = %id, index, %drive, "a damaged stack was regenerated in its place");
    context.catalog.end_repair(id, index, drive).await.map_err(text)?;
    Ok(true)
}

/// The blobs with living objects that a scrub could not read, in their present state; for boot.
pub(crate) async fn unread(context: &Context) -> Result<Vec<Event>, CatalogError> {
    let mut facts = Vec::new();
    for (group, blobs) in context.catalog.scrubs_unread().await? {
        for id in blobs {
            let Some(blob) = context.catalog.blob(id).await? else { continue };
            if context.catalog.is_blob_living(blob.blob).await? {
                facts.push(Event::ScrubUnread { group, blob: to_scrub(blob) });
            }
        }
    }
    Ok(facts)
}

fn to_scrub(blob: Blob) -> BlobOnDrive {
    BlobOnDrive {
        blob: blob.blob,
        drives: blob.drives,
        stack_bytes: blob.stack_bytes,
        bytes: blob.payload_bytes,
        living: true,
        lost: Vec::new(),
        left_there: false,
    }
}
