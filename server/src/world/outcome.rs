//! Outcomes of transfers, in the engine's words, and blobs that come to nothing.

use super::state::WorldHandle;
use crate::context::Context;
use catalog::Blob;
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

/// Gives up a blob that was written: it is dead as a whole, and goes at its group's next wake.
pub(super) async fn give_up(context: &Context, handle: &WorldHandle, blob: &Blob) {
    match context.catalog.abort_blob(blob.blob).await {
        Ok(Some(dead)) => handle.report(Event::SpaceDead { group: dead.group, bytes: dead.bytes }),
        Ok(None) => {}
        Err(error) => {
            tracing::error!(blob = %blob.blob, %error, "a failed blob could not be given up; the next start does it");
        }
    }
}
