//! Transfers that write and remove stripe stacks. Each runs in a task of its own and answers with one event.
//!
//! A transfer that fails for a reason of the workshop's (a staged file that cannot be read) is no drive's fault: every
//! drive is reported as it fared.

use super::quarantine::blames_member;
use super::{Job, Means, Message, World, WorldHandle, Written};
use catalog::Blob;
use disk::Drive;
use disk::stack::{self, Provenance, StackOutcome, StackWriter};
use engine::{DriveOutcome, DriveResult, Event, Transfer};
use model::{Attempt, BlobId, ClassId, Code, DriveId, GroupId, OpId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use workshop::{HeldPack, PackError, PackSource, Sealed};

impl World {
    pub(super) fn transfer(&mut self, op: OpId, attempt: Attempt, transfer: Transfer) {
        match transfer {
            Transfer::Read { blob, stacks, policy, .. } => self.read(op, attempt, blob, &stacks, policy),
            Transfer::Write { group, drives } => self.write(op, attempt, group, drives),
            Transfer::Verify { drives } => self.verify(op, attempt, drives),
            Transfer::Delete { blob, stacks } => self.delete(op, attempt, blob, &stacks),
            rebuild @ Transfer::Rebuild { .. } => self.regenerate(op, attempt, rebuild),
        }
    }

    pub(super) fn with_drives(&self, stacks: &[(u8, DriveId)]) -> Vec<(u8, Arc<dyn Drive>)> {
        stacks.iter().map(|(index, drive)| (*index, self.drive(*drive))).collect()
    }

    fn write(&mut self, op: OpId, attempt: Attempt, group: GroupId, drives: Vec<DriveId>) {
        let job = self.jobs.get(&op);
        let Some(Job::Write { pack, .. }) = job else { panic!("{op} writes, and is no write") };
        let write = Write {
            means: self.means.clone(),
            pack: Arc::clone(pack),
            code: self.rack.spec().code,
            group,
            class: self.rack.layout().class_of(group),
            devices: drives.iter().map(|drive| (*drive, self.drive(*drive))).collect(),
        };
        let (handle, means) = (self.handle.clone(), self.means.clone());
        self.start(async move {
            let (written, outcomes, unreadable) = write.run(&handle).await;
            let outcomes = told(&means, &drives, outcomes);
            let event = match unreadable {
                Some(versions) => Event::SourceUnreadable { op, attempt, versions, outcomes },
                None => Event::TransferEnded { op, attempt, done: written.is_some(), outcomes },
            };
            handle.send(Message::WriteEnded { event, op, written });
        });
    }

    fn verify(&mut self, op: OpId, attempt: Attempt, drives: Vec<DriveId>) {
        let written = match self.jobs.get(&op) {
            Some(Job::Write { written: Some(written), .. }) => written.clone(),
            Some(Job::Rebuild(rebuild)) => return self.verify_rebuilt(op, attempt, rebuild, drives[0]),
            _ => panic!("{op} is verified, and was not written"),
        };
        let devices: Vec<Arc<dyn Drive>> = drives.iter().map(|drive| self.drive(*drive)).collect();
        let (handle, means) = (self.handle.clone(), self.means.clone());
        self.start(async move {
            let blob = described(&means, &written.blob);
            let report = stack::verify(blob, &devices, written.sealed.checksum).await;
            let outcomes = told(&means, &drives, report.outcomes);
            let done = report.result.is_ok();
            let written = match report.result {
                Ok(()) => Some(written),
                Err(error) => {
                    tracing::error!(
                        blob = %blob.id, %error,
                        "a blob does not read back as it was written; it is written anew"
                    );
                    give_up(&means, &handle, &written.blob).await;
                    None
                }
            };
            let event = Event::TransferEnded { op, attempt, done, outcomes };
            handle.send(Message::WriteEnded { event, op, written });
        });
    }

    fn delete(&mut self, op: OpId, attempt: Attempt, blob: BlobId, stacks: &[(u8, DriveId)]) {
        self.deleting.insert(op, blob);
        let devices = self.with_drives(stacks);
        let stacks = stacks.to_vec();
        let drives: Vec<DriveId> = stacks.iter().map(|(_, drive)| *drive).collect();
        let all = self.rack.spec().drives.iter().map(|drive| drive.id);
        let failed: BTreeSet<DriveId> = all.filter(|drive| self.rack.has_failed(*drive)).collect();
        let (handle, means) = (self.handle.clone(), self.means.clone());
        self.start(async move {
            if !means.lineage.may_remove() {
                tracing::warn!(%blob, "a blob without living objects stays: the catalog is older than the rack");
                let event = Event::TransferEnded { op, attempt, done: false, outcomes: Vec::new() };
                handle.send(Message::Event(event));
                return;
            }
            if !are_all_left(&means, blob, &stacks, &failed).await {
                tracing::warn!(%blob, "a doomed blob does not lie where it did; it goes at its group's next wake");
                let event = Event::TransferEnded { op, attempt, done: false, outcomes: Vec::new() };
                handle.send(Message::Event(event));
                return;
            }
            let outcomes = stack::remove(means.rack_uuid, blob, &devices).await;
            let done = outcomes.iter().all(|outcome| *outcome == StackOutcome::Fine);
            let outcomes = told(&means, &drives, outcomes);
            handle.send(Message::Event(Event::TransferEnded { op, attempt, done, outcomes }));
        });
    }
}

/// Whether the catalog knows no stack of `blob` but these and those on drives that failed. A page of doomed blobs may
/// be older than the move of a rebuilt stack, which would lie on its new drive for ever if the blob were forgotten.
async fn are_all_left(means: &Means, blob: BlobId, stacks: &[(u8, DriveId)], failed: &BTreeSet<DriveId>) -> bool {
    match means.catalog.blob(blob).await {
        Ok(Some(found)) => {
            let mut lying = found.drives.iter().enumerate();
            lying.all(|(index, drive)| failed.contains(drive) || stacks.contains(&(index as u8, *drive)))
        }
        Ok(None) => true,
        Err(error) => {
            tracing::error!(%blob, %error, "a doomed blob could not be looked up");
            false
        }
    }
}

pub(super) fn described(means: &Means, blob: &Blob) -> stack::Blob {
    let code = Code { data: blob.code_data, parity: blob.code_parity, fragment_bytes: blob.fragment_bytes };
    stack::Blob { rack: means.rack_uuid, id: blob.blob, code, payload_bytes: blob.payload_bytes }
}

/// What each drive did, in the engine's words; repairs are counted. A drive with something bad on it is named in the
/// log: what is said of stacks and fragments names files.
pub(super) fn told(means: &Means, drives: &[DriveId], outcomes: Vec<StackOutcome>) -> Vec<DriveOutcome> {
    let result = |outcome| match outcome {
        StackOutcome::Fine => DriveResult::Fine,
        StackOutcome::Unused => DriveResult::Unused,
        StackOutcome::Repaired { fragments } => {
            means.counters.repaired_fragments.fetch_add(u64::from(fragments), Ordering::Relaxed);
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

/// A written blob that is not to be: it is doomed as a whole, and goes at its group's next wake.
pub(super) async fn give_up(means: &Means, handle: &WorldHandle, blob: &Blob) {
    match means.catalog.abort_blob(blob.blob).await {
        Ok(Some(doomed)) => handle.tell(Event::SpaceDoomed { group: doomed.group, bytes: doomed.bytes }),
        Ok(None) => {}
        Err(error) => {
            tracing::error!(blob = %blob.blob, %error, "a failed blob could not be given up; the next start does it");
        }
    }
}

/// What came of the stacks of a blob.
struct Filled {
    sealed: Option<Sealed>,
    outcomes: Vec<StackOutcome>,
    /// If the pack could not be read: the versions that are to blame.
    unreadable: Option<Vec<u64>>,
}

struct Write {
    means: Means,
    pack: Arc<HeldPack>,
    code: Code,
    group: GroupId,
    class: ClassId,
    devices: Vec<(DriveId, Arc<dyn Drive>)>,
}

impl Write {
    /// Intent, stacks, sync. What fails leaves nothing but a doomed blob. With it, how each drive fared, and if the
    /// pack could not be read, the versions that are to blame.
    async fn run(&self, handle: &WorldHandle) -> (Option<Written>, Vec<StackOutcome>, Option<Vec<u64>>) {
        let unused = || self.devices.iter().map(|_| StackOutcome::Unused).collect();
        let blob = match self.begin().await {
            Ok(blob) => blob,
            Err(error) => {
                tracing::error!(%error, "a blob could not be begun in the catalog");
                return (None, unused(), None);
            }
        };
        let report = StackWriter::create(described(&self.means, &blob), self.provenance(&blob), &self.devices).await;
        let filled = match report.result {
            Err(_) => Filled { sealed: None, outcomes: report.outcomes, unreadable: None },
            Ok(writer) => self.fill(writer).await,
        };
        let Some(sealed) = filled.sealed else {
            give_up(&self.means, handle, &blob).await;
            return (None, filled.outcomes, filled.unreadable);
        };
        (Some(Written { blob, sealed }), filled.outcomes, None)
    }

    /// As of after the intent, so that it is above what any catalog counts that does not know the blob.
    fn provenance(&self, blob: &Blob) -> Provenance {
        let sequence = self.means.catalog.sequence().0;
        let run = self.means.lineage.run();
        Provenance { sequence, run, written_ms: blob.written_ms, group: blob.group, class: blob.class }
    }

    async fn begin(&self) -> Result<Blob, catalog::CatalogError> {
        let payload_bytes = self.pack.plan().payload_bytes();
        let blob = Blob {
            blob: self.means.catalog.next_blob_id((self.means.nonce)()).await?,
            group: self.group,
            class: self.class,
            drives: self.devices.iter().map(|(drive, _)| *drive).collect(),
            code_data: self.code.data,
            code_parity: self.code.parity,
            fragment_bytes: self.code.fragment_bytes,
            payload_bytes,
            stack_bytes: stack::stack_bytes(self.code, payload_bytes),
            members: self.pack.plan().members().len() as u32,
            written_ms: (self.means.wall)(),
        };
        self.means.catalog.begin_blob(&blob).await?;
        Ok(blob)
    }

    /// The pack's bytes into the stacks.
    async fn fill(&self, mut writer: StackWriter) -> Filled {
        let mut source = PackSource::new(Arc::clone(&self.pack));
        loop {
            let (error, unreadable) = match source.next().await {
                Ok(Some(bytes)) => match writer.write(&bytes).await {
                    Ok(()) => continue,
                    Err(error) => (error.to_string(), None),
                },
                Ok(None) => break,
                Err(error) => (error.to_string(), Some(self.unreadable(&error, source.reading()))),
            };
            tracing::warn!(error, "a pack could not be written");
            return Filled { sealed: None, outcomes: writer.abort().await, unreadable };
        }
        let report = writer.finish().await;
        let sealed = source.sealed().filter(|_| report.result.is_ok());
        Filled { sealed, outcomes: report.outcomes, unreadable: None }
    }

    /// The version that a pack failed with while member number `member` of it was read; none if it is not to blame.
    fn unreadable(&self, error: &PackError, member: Option<usize>) -> Vec<u64> {
        let member = member.filter(|_| blames_member(error)).and_then(|member| self.pack.plan().members().get(member));
        let Some(member) = member else { return Vec::new() };
        tracing::error!(bucket = %member.bucket, key = %member.key, %error, "a staged object cannot be read");
        vec![member.object.version.0]
    }
}
