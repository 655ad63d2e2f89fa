//! Outcomes of transfers in the engine's terms, and blobs whose writes fail.

use super::state::WorldHandle;
use crate::context::Context;
use catalog::{Blob, CatalogError, DeadBytes};
use disk::stack::{self, Policy, StackOutcome};
use engine::{DriveOutcome, DriveResult, Event, ReadPolicy};
use model::DriveId;
use std::sync::atomic::Ordering;

pub(super) fn described(context: &Context, blob: &Blob) -> stack::Blob {
    stack::Blob { rack: context.rack_uuid, id: blob.blob, code: blob.code(), payload_bytes: blob.payload_bytes }
}

/// The treatment of spare stacks, in the terms of the stack code.
pub(super) fn policy_of(policy: ReadPolicy) -> Policy {
    match policy {
        ReadPolicy::All => Policy::All,
        ReadPolicy::K => Policy::K,
    }
}

/// The outcome of each drive, in the engine's terms; repairs are counted. A drive with a bad stack is named in the log,
/// since messages about stacks and fragments name only files.
pub(super) fn drive_outcomes(context: &Context, drives: &[DriveId], outcomes: Vec<StackOutcome>) -> Vec<DriveOutcome> {
    let result = |outcome| match outcome {
        StackOutcome::Fine => DriveResult::Fine,
        StackOutcome::Unused => DriveResult::Unused,
        StackOutcome::Repaired { fragments } => {
            context.counters.repaired_fragments.fetch_add(u64::from(fragments), Ordering::Relaxed);
            DriveResult::Repaired { fragments }
        }
        StackOutcome::StackBad => DriveResult::StackBad,
        StackOutcome::Full => DriveResult::Full,
        StackOutcome::Failed(_) => DriveResult::Failed,
        StackOutcome::NoAnswer => DriveResult::MissedDeadline,
        StackOutcome::NotAsked => DriveResult::NotAsked,
    };
    for (drive, outcome) in drives.iter().zip(&outcomes) {
        if matches!(outcome, StackOutcome::Repaired { .. } | StackOutcome::StackBad | StackOutcome::Failed(_)) {
            tracing::warn!(%drive, ?outcome, "a drive does not have a stack as it was written");
        }
    }
    let results = outcomes.into_iter().map(result);
    drives.iter().zip(results).map(|(drive, result)| DriveOutcome { drive: *drive, result }).collect()
}

/// Records for people which drives refused a stack, and why, until they accept one.
pub(super) fn note_refused(context: &Context, drives: &[DriveId], outcomes: &[StackOutcome]) {
    for (drive, outcome) in drives.iter().zip(outcomes) {
        let reason = match outcome {
            StackOutcome::Fine => None,
            StackOutcome::Full => Some("it has no room".to_owned()),
            StackOutcome::Failed(error) => Some(error.clone()),
            _ => continue,
        };
        context.counters.refused_writes.note(*drive, reason);
    }
}

/// Gives up a blob that was written and that the engine counts: it is dead as a whole, and is removed at its group's
/// next wake.
pub(super) async fn give_up(context: &Context, handle: &WorldHandle, blob: &Blob) {
    if let Ok(Some(dead)) = abort(context, blob).await {
        handle.report(Event::SpaceDead { group: dead.group, bytes: dead.bytes });
    }
}

/// The same for a blob whose write failed. The engine releases its room when the failure is reported, which must follow
/// this call: from now on the catalog counts its stacks.
pub(super) async fn give_up_failed(context: &Context, handle: &WorldHandle, blob: &Blob) {
    let dead_bytes = match abort(context, blob).await {
        Ok(dead) => dead.map(|dead| dead.bytes),
        // The failed commit may have taken effect, and nothing else makes a record of this blob.
        Err(_) => context.catalog.blob(blob.blob).await.ok().flatten().map(|found| found.payload_bytes),
    };
    let Some(bytes) = dead_bytes else { return };
    let (drives, stack_bytes) = (blob.drives.clone(), blob.stack_bytes);
    handle.report(Event::DeadStacks { drives, lost: Vec::new(), stack_bytes });
    handle.report(Event::SpaceDead { group: blob.group, bytes });
}

async fn abort(context: &Context, blob: &Blob) -> Result<Option<DeadBytes>, CatalogError> {
    context.catalog.abort_blob(blob.blob).await.inspect_err(|error| {
        tracing::error!(blob = %blob.blob, %error, "cannot discard a failed blob; the next start does that");
    })
}
