//! Outcomes of transfers, in the engine's words, and blobs that come to nothing.

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

/// The treatment of spare stacks, in the words of the stacks.
pub(super) fn policy_of(policy: ReadPolicy) -> Policy {
    match policy {
        ReadPolicy::All => Policy::All,
        ReadPolicy::K => Policy::K,
    }
}

/// The outcome of each drive, in the engine's words; repairs are counted. A drive with something bad on it is named in
/// the log: messages about stacks and fragments name files.
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
            tracing::warn!(%drive, ?outcome, "a drive did not have a stack as it was written");
        }
    }
    let results = outcomes.into_iter().map(result);
    drives.iter().zip(results).map(|(drive, result)| DriveOutcome { drive: *drive, result }).collect()
}

/// Remembers for people which drives did not take a stack that was written, and why, until they take one.
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

/// Gives up a blob that was written, and that the engine counts: it is dead as a whole, and goes at its group's next
/// wake.
pub(super) async fn give_up(context: &Context, handle: &WorldHandle, blob: &Blob) {
    if let Ok(Some(dead)) = abort(context, blob).await {
        handle.report(Event::SpaceDead { group: dead.group, bytes: dead.bytes });
    }
}

/// The same of a blob whose write has failed. The engine takes its room back when it hears of that, which is to be told
/// after this: the catalog counts its stacks from now on.
pub(super) async fn give_up_failed(context: &Context, handle: &WorldHandle, blob: &Blob) {
    let dead_bytes = match abort(context, blob).await {
        Ok(dead) => dead.map(|dead| dead.bytes),
        // A commit that failed may have been made, and nobody else makes a record of this blob.
        Err(_) => context.catalog.blob(blob.blob).await.ok().flatten().map(|found| found.payload_bytes),
    };
    let Some(bytes) = dead_bytes else { return };
    let (drives, stack_bytes) = (blob.drives.clone(), blob.stack_bytes);
    handle.report(Event::DeadStacks { drives, lost: Vec::new(), stack_bytes });
    handle.report(Event::SpaceDead { group: blob.group, bytes });
}

async fn abort(context: &Context, blob: &Blob) -> Result<Option<DeadBytes>, CatalogError> {
    context.catalog.abort_blob(blob.blob).await.inspect_err(|error| {
        tracing::error!(blob = %blob.blob, %error, "a failed blob could not be given up; the next start does it");
    })
}
