//! Transfers that write and remove stripe stacks. Each runs in its own task and answers with one event.
//!
//! A transfer that fails because of the workshop (a staged file that cannot be read) is not the fault of a drive: every
//! drive's outcome is reported.

use super::operation::{Operation, Origin, WrittenBlob};
use super::outcome::{described, drive_outcomes, give_up_failed, note_refused};
use super::quarantine::blames_member;
use super::rebuild::{InService, remove_left_over};
use super::state::World;
use super::state::WorldHandle;
use crate::context::{Context, usage_of};
use catalog::{Blob, CATALOG_BUCKET, copy_nonce};
use disk::Drive;
use disk::stack::{self, Provenance, StackOutcome, StackWriter};
use engine::{Event, Transfer};
use model::sabotage::{Sabotage, is_on};
use model::{Attempt, BlobId, ClassId, Code, DriveId, GroupId, OpId};
use std::collections::BTreeSet;
use std::sync::Arc;
use workshop::{HeldPack, NamedSlot, PackError, PackMember, PackSource, Sealed};

impl World {
    pub(super) fn transfer(&mut self, op: OpId, attempt: Attempt, transfer: Transfer) {
        match transfer {
            Transfer::Read { blob, stacks, policy, .. } => self.read(op, attempt, blob, (&stacks, policy)),
            Transfer::Write { group, drives } => self.write(op, attempt, group, drives),
            Transfer::Verify { drives } => self.verify(op, attempt, drives),
            Transfer::Delete { blob, stacks } => self.delete(op, attempt, blob, &stacks),
            rebuild @ Transfer::Rebuild { .. } => self.regenerate(op, attempt, rebuild),
            scrub @ Transfer::Scrub { .. } => self.scrub(op, attempt, scrub),
            Transfer::Inspect { drives, .. } => self.inspect(op, attempt, drives),
        }
    }

    pub(super) fn with_drives(&self, stacks: &[(u8, DriveId)]) -> Vec<(u8, Arc<dyn Drive>)> {
        stacks.iter().map(|(index, drive)| (*index, self.drive(*drive))).collect()
    }

    fn write(&mut self, op: OpId, attempt: Attempt, group: GroupId, drives: Vec<DriveId>) {
        let job = self.operations.get(&op);
        let Some(Operation::Write { pack, of, .. }) = job else { panic!("{op} writes, and is no write") };
        let write = BlobWrite {
            context: self.context.clone(),
            pack: Arc::clone(pack),
            code: self.rack.spec().code,
            group,
            class: self.rack.layout().class_of(group),
            is_migration: matches!(of, Origin::Workshop(_)),
            devices: drives.iter().map(|drive| (*drive, self.drive(*drive))).collect(),
        };
        self.start_with(move |handle, context| async move {
            let (written, outcomes, unreadable) = write.run(&handle).await;
            let unreadable = unreadable.filter(|_| !is_on(Sabotage::SourceErrorTriedElsewhere));
            note_refused(&context, &drives, &outcomes);
            let outcomes = drive_outcomes(&context, &drives, outcomes);
            let event = match unreadable {
                Some(versions) => Event::SourceUnreadable { op, attempt, versions, outcomes },
                None => Event::TransferEnded { op, attempt, done: written.is_some(), outcomes },
            };
            handle.run(move |world| world.write_transferred(op, written, event));
        });
    }

    fn verify(&mut self, op: OpId, attempt: Attempt, drives: Vec<DriveId>) {
        let written = match self.operations.get(&op) {
            Some(Operation::Write { written: Some(written), .. }) => written.clone(),
            Some(Operation::Rebuild(rebuild)) => return self.verify_rebuilt(op, attempt, rebuild, drives[0]),
            _ => panic!("{op} is verified, and was not written"),
        };
        let devices: Vec<Arc<dyn Drive>> = drives.iter().map(|drive| self.drive(*drive)).collect();
        self.start_with(move |handle, context| async move {
            let blob = described(&context, &written.blob);
            let report = stack::verify(blob, &devices, written.sealed.checksum).await;
            let outcomes = drive_outcomes(&context, &drives, report.outcomes);
            let done = report.result.is_ok();
            let written = match report.result {
                Ok(()) => Some(WrittenBlob { read_back: true, ..written }),
                Err(error) => {
                    tracing::error!(
                        blob = %blob.id, %error,
                        "a blob reads back differently; it is written again"
                    );
                    give_up_failed(&context, &handle, &written.blob).await;
                    None
                }
            };
            let event = Event::TransferEnded { op, attempt, done, outcomes };
            handle.run(move |world| world.write_transferred(op, written, event));
        });
    }

    /// Ends a write, or its verification.
    fn write_transferred(&mut self, op: OpId, written: Option<WrittenBlob>, event: Event) {
        if let Some(Operation::Write { written: place, .. }) = self.operations.get_mut(&op) {
            *place = written;
        }
        self.apply(event);
    }

    fn delete(&mut self, op: OpId, attempt: Attempt, blob: BlobId, stacks: &[(u8, DriveId)]) {
        let before = self.deleting.insert(op, blob);
        assert!(before.is_none_or(|before| before == blob), "{op} removes one blob");
        let devices = self.with_drives(stacks);
        let stacks = stacks.to_vec();
        let drives: Vec<DriveId> = stacks.iter().map(|(_, drive)| *drive).collect();
        let in_service = self.in_service();
        self.start_with(move |handle, context| async move {
            let stays = match context.catalog_age.may_remove() {
                false => Some("the catalog is older than the rack"),
                true if knows_no_others(&context, blob, &stacks, &in_service).await => None,
                true => Some("its stacks have moved, and it is removed at its group's next wake"),
            };
            if let Some(why) = stays {
                tracing::warn!(%blob, why, "a blob without live objects is kept");
                return handle.report(Event::TransferEnded { op, attempt, done: false, outcomes: Vec::new() });
            }
            let none_left = remove_left_over(&context, &in_service, blob, None).await.unwrap_or_else(|error| {
                tracing::error!(%blob, %error, "could not look up the leftovers of rebuilds of a dead blob");
                false
            });
            let outcomes = stack::remove(context.rack_uuid, blob, &devices).await;
            let done = none_left && outcomes.iter().all(|outcome| *outcome == StackOutcome::Fine);
            let outcomes = drive_outcomes(&context, &drives, outcomes);
            handle.report(Event::TransferEnded { op, attempt, done, outcomes });
        });
    }
}

/// True if the catalog knows no stack of `blob` except these and those on failed drives. A page of dead blobs may be
/// older than the move of a rebuilt stack, which would stay on its new drive forever if the blob were forgotten.
async fn knows_no_others(context: &Context, blob: BlobId, stacks: &[(u8, DriveId)], in_service: &InService) -> bool {
    match context.catalog.blob(blob).await {
        Ok(Some(found)) => {
            let mut lying = found.drives.iter().enumerate();
            lying.all(|(index, drive)| in_service.has_failed(*drive) || stacks.contains(&(index as u8, *drive)))
        }
        Ok(None) => true,
        Err(error) => {
            tracing::error!(%blob, %error, "a dead blob could not be looked up");
            false
        }
    }
}

/// The result of a write that succeeded, the outcome of each drive, and the versions to blame if the pack was
/// unreadable.
type Filled<T> = (Option<T>, Vec<StackOutcome>, Option<Vec<u64>>);

struct BlobWrite {
    context: Context,
    pack: Arc<HeldPack>,
    code: Code,
    group: GroupId,
    class: ClassId,
    /// It reads from the workshop, beside clients.
    is_migration: bool,
    devices: Vec<(DriveId, Arc<dyn Drive>)>,
}

impl BlobWrite {
    /// Intent, stacks, sync. A failure leaves only a dead blob.
    async fn run(&self, handle: &WorldHandle) -> Filled<WrittenBlob> {
        let unused = || self.devices.iter().map(|_| StackOutcome::Unused).collect();
        let before = self.context.catalog.sequence();
        let blob = match self.begin().await {
            Ok(blob) => blob,
            Err(error) => {
                tracing::error!(%error, "could not record a new blob in the catalog");
                return (None, unused(), None);
            }
        };
        assert!(self.context.catalog.sequence() > before, "the intent of {} is durable before its stacks", blob.blob);
        let report = StackWriter::create(described(&self.context, &blob), self.provenance(&blob), &self.devices).await;
        let (sealed, outcomes, unreadable) = match report.result {
            Err(_) => (None, report.outcomes, None),
            Ok(writer) => self.fill(writer).await,
        };
        if sealed.is_none() {
            give_up_failed(&self.context, handle, &blob).await;
        } else if is_on(Sabotage::FreeBeforeVerify) {
            let named = |member: &PackMember| {
                let at = |slot: &u64| NamedSlot::of(*slot, &member.bucket, &member.key);
                member.slots.iter().map(at).collect::<Vec<_>>()
            };
            let slots: Vec<NamedSlot> = self.pack.plan().members().iter().flat_map(named).collect();
            let _ = self.context.staging.free_all(&slots).await;
        }
        (sealed.map(|sealed| WrittenBlob { blob, sealed, read_back: false }), outcomes, unreadable)
    }

    /// Taken after the intent, so that its sequence number is above that of any catalog that does not know the blob.
    fn provenance(&self, blob: &Blob) -> Provenance {
        let sequence = self.context.catalog.sequence().0;
        let run = self.context.catalog_age.stamp().bits();
        Provenance { sequence, run, written_ms: blob.written_ms, group: blob.group, class: blob.class }
    }

    async fn begin(&self) -> Result<Blob, catalog::CatalogError> {
        assert_eq!(self.devices.len(), self.code.stacks(), "a blob has as many drives as stacks");
        let distinct: BTreeSet<DriveId> = self.devices.iter().map(|(drive, _)| *drive).collect();
        assert_eq!(distinct.len(), self.devices.len(), "each stack of a blob lies on a drive of its own");
        let payload_bytes = self.pack.plan().payload_bytes();
        let nonce = (self.context.nonce)();
        let is_copy = self.pack.plan().members().iter().all(|member| member.bucket == CATALOG_BUCKET);
        let nonce = if is_copy { copy_nonce(nonce) } else { nonce };
        let blob = Blob {
            blob: self.context.catalog.next_blob_id(nonce).await?,
            group: self.group,
            class: self.class,
            drives: self.devices.iter().map(|(drive, _)| *drive).collect(),
            code_data: self.code.data,
            code_parity: self.code.parity,
            fragment_bytes: self.code.fragment_bytes,
            payload_bytes,
            stack_bytes: stack::stack_bytes(self.code, payload_bytes),
            members: self.pack.plan().members().len() as u32,
            written_ms: (self.context.wall)(),
        };
        self.context.catalog.begin_blob(&blob).await?;
        Ok(blob)
    }

    /// Writes the pack's bytes into the stacks.
    async fn fill(&self, mut writer: StackWriter) -> Filled<Sealed> {
        let mut source = PackSource::new(Arc::clone(&self.pack));
        let usage = || usage_of(&self.context);
        let mut turn = if self.is_migration { Some(self.context.pacing.turn(usage).await) } else { None };
        loop {
            let (error, unreadable) = match source.next().await {
                Ok(Some(bytes)) => match writer.write(&bytes).await {
                    Ok(()) => {
                        if let Some(begun) = turn {
                            turn = Some(begun.copied(bytes.len() as u64, usage).await);
                        }
                        continue;
                    }
                    Err(error) => (error.to_string(), None),
                },
                Ok(None) => break,
                Err(error) => (error.to_string(), Some(self.unreadable(&error, source.reading()))),
            };
            if unreadable.as_ref().is_none_or(Vec::is_empty) {
                tracing::warn!(error, "a pack could not be written");
            }
            return (None, writer.abort().await, unreadable);
        }
        if let Some(last) = turn {
            last.ended();
        }
        let report = writer.finish().await;
        let are_fine = report.outcomes.iter().all(|outcome| *outcome == StackOutcome::Fine);
        assert!(report.result.is_err() || are_fine, "a blob is written when all of its stacks are synced");
        assert!(source.sealed().is_some(), "a pack that was given to its end is sealed");
        let sealed = source.sealed().filter(|_| report.result.is_ok());
        (sealed, report.outcomes, None)
    }

    /// The version of member `member`, at whose reading a pack failed; empty if the member is not to blame. Whether
    /// this is an error shows when the pack is composed again: an object that was deleted or overwritten meanwhile does
    /// no harm, and one that is there and unreadable is quarantined.
    fn unreadable(&self, error: &PackError, member: Option<usize>) -> Vec<u64> {
        let member = member.filter(|_| blames_member(error)).and_then(|member| self.pack.plan().members().get(member));
        let Some(member) = member else { return Vec::new() };
        tracing::debug!(bucket = %member.bucket, key = %member.key, %error, "composing a pack again without a member");
        vec![member.object.version.0]
    }
}
