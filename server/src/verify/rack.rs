//! The rack against the catalog: every blob has its stacks, every stack its blob, and no drive holds more than it can.
//!
//! Stacks on permanently failed drives are not expected; they wait for their rebuild. Nor are stacks that were on a
//! drive before it was replaced.
//!
//! A blob is inspected with the drive of its first stack, so each is inspected once and whole groups follow each other.

use super::beside::{DRIVE, GroupDrives};
use super::gathered::{DiscardedPayload, GATHERED_MAX};
use super::packed;
use super::{Finding, FindingKind, PAGE, REPORT, Step, Verification};
use crate::error::ServerError;
use crate::offline_rack::{OfflineRack, WakeError};
use crate::pack_index::read_index;
use catalog::{Blob, Known, Member};
use disk::label::{self, DriveUuid};
use disk::stack::{self, Flaw, Inspection};
use disk::{Drive, FileName, owner};
use engine::layout::{Layout, synthesise};
use futures::StreamExt;
use model::{BlobId, DriveId, GroupId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use workshop::IndexEntry;

/// Blobs whose stacks' ends are read at once.
const AT_ONCE: usize = 4;
/// Blobs that are inspected while the drives of a group are borrowed from a running server.
const LOOK_BLOBS: usize = 16;
/// The longest index of a pack that is compared with the catalog.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Far above what any drive holds, and low enough for all lengths computed from it.
const PAYLOAD_BYTES_END: u64 = 1 << 56;

const REWRITE: &str =
    "its objects can still be read; `larder scrub start` regenerates it, as the next scrub does by itself";
const REPAIRED: &str = "the next read of its objects repairs it";
const GONE: &str = "the objects named are lost, in part or wholly: put them again, or delete them";
const ORPHAN: &str = "remove the file: every object that was in it was deleted";
const UNKNOWN: &str = "keep it: it may belong to a newer catalog";
const STRANGER: &str = "move it away: Larder did not make it and never reads it";
const DESCRIPTION: &str = "restore the rack.toml that the blob was written with";

/// The drives' contents according to the catalog.
#[derive(Default)]
pub(super) struct Accounts {
    /// Bytes of stacks by drive.
    drives: BTreeMap<DriveId, u64>,
    groups: BTreeSet<GroupId>,
}

impl Verification<'_> {
    pub(super) async fn rack(&mut self, accounts: Accounts) -> Result<(), ServerError> {
        let layout = synthesise(&self.ground.rack)?;
        self.report.rack.groups = accounts.groups.len() as u64;
        if !self.options.drives {
            return Ok(());
        }
        self.report.rack.drives_read = true;
        self.failed = self.ground.catalog.failed_drives().await?.into_iter().map(|(drive, _)| drive).collect();
        (self.watch)(Step::Rack { blobs: self.report.catalog.blobs, groups: self.report.rack.groups });
        let with_group = |drives: Vec<DriveId>| GroupDrives {
            group: drives.first().and_then(|drive| layout.group_of(*drive)),
            drives,
        };
        let mut left: Vec<GroupDrives> = OfflineRack::order(&layout).into_iter().map(with_group).collect();
        self.begin_scrub().await?;
        while let Some(group) = self.next_group(&mut left).await? {
            self.wake(&group).await?;
            let all = self.blobs_in(&group).await?;
            if all {
                self.tell_lost().await?;
                self.files_in(&group).await?;
            }
            self.rest().await;
        }
        Ok(())
    }

    /// Wakes the drives of a group, except permanently failed ones, while no server runs.
    async fn wake(&mut self, group: &GroupDrives) -> Result<(), ServerError> {
        let Some(rack) = &self.ground.drives else { return Ok(()) };
        let replacements = self.ground.catalog.replacements().await?;
        let expected: Vec<DriveId> =
            group.drives.iter().copied().filter(|drive| !self.failed.contains(drive)).collect();
        for (id, answer) in rack.lock().await.wake(&expected).await {
            let checked = match (answer, replacements.get(&id)) {
                (Ok(drive), Some(uuid)) => {
                    let checked = label::check_replacement(&*drive, DriveUuid(*uuid)).await;
                    checked.map(|()| drive).map_err(WakeError::Drive)
                }
                (answer, _) => answer,
            };
            match checked {
                Ok(drive) => drop(self.awake.insert(id, drive)),
                Err(error) => {
                    let found = Finding::new(FindingKind::DriveUnusable, format!("drive {id}: {error}"), DRIVE);
                    self.found(found.drive(id));
                }
            }
        }
        Ok(())
    }

    /// Puts the drives to rest.
    async fn rest(&mut self) {
        self.awake.clear();
        if let Some(rack) = &self.ground.drives {
            rack.lock().await.rest().await;
        }
    }

    /// Inspects the blobs of a group. False if its drives cannot be inspected now, or not completely.
    async fn blobs_in(&mut self, group: &GroupDrives) -> Result<bool, ServerError> {
        for &drive in &group.drives {
            if !self.blobs_of(group, drive).await? {
                self.tell_lost().await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks the files on the drives of a group.
    async fn files_in(&mut self, group: &GroupDrives) -> Result<(), ServerError> {
        for &drive in &group.drives {
            if !self.files_of(group, drive).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Compares every blob's record with the rack, and adds up the space of the blobs.
    pub(super) async fn accounts(&mut self) -> Result<Accounts, ServerError> {
        let layout = synthesise(&self.ground.rack)?;
        let mut accounts = Accounts::default();
        let mut after = None;
        loop {
            let page = self.compared().sound_blobs(None, after.as_ref(), PAGE).await?;
            for blob in page.items {
                if let Some(what) = misfit(&blob, &layout) {
                    self.found(Finding::new(FindingKind::BlobMisfit, what, DESCRIPTION).blob(blob.blob));
                }
                accounts.groups.insert(blob.group);
                for drive in blob.drives {
                    *accounts.drives.entry(drive).or_default() += blob.stack_bytes;
                    self.report.rack.accounted_bytes += blob.stack_bytes;
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for (&drive, &bytes) in &accounts.drives {
            let known = drive.index() < self.ground.rack.drives.len();
            let capacity_bytes = if known { self.ground.rack.capacity_bytes(drive) } else { 0 };
            if bytes > capacity_bytes {
                let what =
                    format!("the blobs on drive {drive} take {bytes} bytes, and its capacity is {capacity_bytes}");
                self.found(Finding::new(FindingKind::Accounts, what, REPORT).drive(drive));
            }
        }
        Ok(accounts)
    }

    /// Inspects the blobs whose first stack is on `drive`. False if the drives cannot be inspected now.
    async fn blobs_of(&mut self, group: &GroupDrives, drive: DriveId) -> Result<bool, ServerError> {
        let mut after = None;
        loop {
            let page = self.ground.catalog.sound_blobs(Some(drive), after.as_ref(), PAGE).await?;
            let mut first_here = page.items;
            first_here.retain(|blob| blob.drives.first() == Some(&drive));
            while !first_here.is_empty() {
                let rest = first_here.split_off(first_here.len().min(LOOK_BLOBS));
                let some = std::mem::replace(&mut first_here, rest);
                if !self.borrow(group).await? {
                    return Ok(false);
                }
                let judged = self.blobs(some).await;
                self.give_back();
                judged?;
                if self.lost.len() >= GATHERED_MAX {
                    self.tell_lost().await?;
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    async fn blobs(&mut self, blobs: Vec<Blob>) -> Result<(), ServerError> {
        let this = &*self;
        let looked = futures::stream::iter(blobs).map(|blob| async move {
            let looked = this.look_at(&blob).await;
            (this.watch)(Step::Done);
            Ok((blob, looked?))
        });
        // A deep inspection uses all the buffers that a transfer may have.
        let at_once = if self.options.deep { 1 } else { AT_ONCE };
        let looked: Vec<Result<_, ServerError>> = looked.buffered(at_once).collect().await;
        for looked in looked {
            let (blob, looked) = looked?;
            if let Some(looked) = looked
                && (looked.is_good() && !self.beside.lost.contains_key(&blob.blob) || self.is_still_so(&blob).await?)
            {
                self.judge(&blob, looked).await?;
            }
        }
        Ok(())
    }

    /// `None` if nothing can be expected of the blob: no object lives in it, so it may be partly removed, or its record
    /// makes no sense.
    async fn look_at(&self, blob: &Blob) -> Result<Option<Looked>, ServerError> {
        if !self.ground.catalog.is_blob_living(blob.blob).await? || !makes_sense(blob) {
            return Ok(None);
        }
        let drives: Vec<Option<Arc<dyn Drive>>> = blob.drives.iter().map(|drive| self.drive(*drive)).collect();
        let described = self.described(blob);
        if !self.options.deep {
            let inspection = stack::inspect(described, &drives).await;
            return Ok(Some(Looked { inspection, checked_bytes: 0, unlike: None }));
        }
        if self.ground.serving.is_some() {
            // The scrub has read its bytes.
            let inspection = stack::inspect(described, &drives).await;
            let is_read = inspection.payload.is_ok() && !self.beside.lost.contains_key(&blob.blob);
            let unlike = if is_read { self.compare_index(blob, &drives).await? } else { None };
            let checked_bytes = if is_read { blob.payload_bytes } else { 0 };
            return Ok(Some(Looked { inspection, checked_bytes, unlike }));
        }
        let mut counted = DiscardedPayload(0);
        let inspection = stack::inspect_deeply(described, &drives, &mut counted).await;
        let unlike = match &inspection.payload {
            Ok(()) => self.compare_index(blob, &drives).await?,
            Err(_) => None,
        };
        Ok(Some(Looked { inspection, checked_bytes: counted.0, unlike }))
    }

    async fn judge(&mut self, blob: &Blob, looked: Looked) -> Result<(), ServerError> {
        let Looked { inspection: Inspection { flaws, payload }, checked_bytes, unlike } = looked;
        self.report.rack.checked_bytes += checked_bytes;
        let lost_in_scrub = self.beside.lost.get(&blob.blob).map(|ranges| {
            let bytes: u64 = ranges.iter().map(|(from, to)| to - from).sum();
            format!("{bytes} of its {} bytes are lost", blob.payload_bytes)
        });
        let lost = payload.err().map(|error| error.to_string()).or(lost_in_scrub);
        // A permanently failed drive does not come back, even if another is in its place.
        let mut gone = BTreeSet::new();
        for (index, drive) in blob.drives.iter().enumerate().filter(|_| !flaws.is_empty()) {
            if self.ground.catalog.is_stack_lost(*drive, blob.blob).await? {
                gone.insert(index as u8);
            }
        }
        let failed = |index: u8| gone.contains(&index);
        let away = flaws.iter().filter(|(index, flaw)| matches!(flaw, Flaw::NoDrive) && !failed(*index)).count();
        let may_come_back = away > 0 && blob.drives.len() - flaws.len() + away >= usize::from(blob.code_data);
        for (index, flaw) in flaws {
            let drive = blob.drives[usize::from(index)];
            if self.beside.scrubbed.contains(&(blob.blob, index)) {
                continue; // it was reported already
            }
            if lost.is_none() && failed(index) {
                self.report.rack.stacks_to_rebuild += 1;
                continue;
            }
            let name = stack::stack_name(blob.blob, index);
            let mend = match flaw {
                Flaw::NoDrive if !failed(index) => DRIVE,
                _ if lost.is_some() => GONE,
                Flaw::Fragments(_) => REPAIRED,
                _ => REWRITE,
            };
            let what = match &flaw {
                Flaw::Drive(disk::DriveError::NotFound(_)) => format!("stack {name} on drive {drive} is missing"),
                flaw => format!("stack {name} on drive {drive}: {flaw}"),
            };
            self.found(Finding::new(FindingKind::StackBad, what, mend).blob(blob.blob).drive(drive).file(&name));
        }
        if let Some(error) = lost {
            let mend = if may_come_back { DRIVE } else { GONE };
            self.lost_blob(blob, error, mend, may_come_back);
        }
        if let Some(what) = unlike {
            let what = format!("the pack in blob {} and the catalog disagree: {what}", blob.blob);
            self.found(Finding::new(FindingKind::PayloadUnlike, what, REPORT).blob(blob.blob));
        }
        Ok(())
    }

    pub(super) fn drive(&self, drive: DriveId) -> Option<Arc<dyn Drive>> {
        if self.ground.serving.is_some() {
            return self.beside.lent.as_ref()?.get(drive).filter(|_| !self.failed.contains(&drive));
        }
        self.awake.get(&drive).cloned()
    }

    pub(super) fn described(&self, blob: &Blob) -> stack::Blob {
        stack::Blob { rack: self.ground.rack_uuid, id: blob.blob, code: blob.code(), payload_bytes: blob.payload_bytes }
    }

    /// Checks the files on `drive`: each must belong to a blob with a stack there. False if the drives of its group
    /// cannot be inspected now. Between two pages of names the drives are released.
    async fn files_of(&mut self, group: &GroupDrives, id: DriveId) -> Result<bool, ServerError> {
        if !self.borrow(group).await? {
            return Ok(false);
        }
        let Some(drive) = self.drive(id) else {
            self.give_back();
            return Ok(true);
        };
        let listed = drive.list().await;
        self.give_back();
        let names = match listed {
            Ok(names) => names,
            Err(error) => {
                let what = format!("drive {id} cannot be listed: {error}");
                self.found(Finding::new(FindingKind::DriveUnusable, what, DRIVE).drive(id));
                return Ok(true);
            }
        };
        for names in names.chunks(PAGE) {
            if !self.borrow(group).await? {
                return Ok(false);
            }
            let looked = self.some_files_of((id, &*drive), names).await;
            self.give_back();
            looked?;
        }
        Ok(true)
    }

    /// Checks the files with these `names` on a drive.
    async fn some_files_of(
        &mut self,
        (id, drive): (DriveId, &dyn Drive),
        names: &[FileName],
    ) -> Result<(), ServerError> {
        let stacks: Vec<_> = names.iter().filter_map(|name| Some((name, stack::stack_of(name)?))).collect();
        let ids: Vec<_> = stacks.iter().map(|(_, (blob, _))| *blob).collect();
        let known = self.ground.catalog.known_blobs(&ids).await?;
        for ((name, stack), known) in stacks.into_iter().zip(known) {
            self.stack_file((id, drive), name, stack, known).await?;
        }
        for (name, (blob, index)) in names.iter().filter_map(|name| Some((name, stack::spare_of(name)?))) {
            self.spare_file((id, drive), name, (blob, index)).await?;
        }
        let ours = [label::file_name(), owner::file_name()];
        let is_known = |name: &FileName| stack::stack_of(name).or_else(|| stack::spare_of(name)).is_some();
        for name in names.iter().filter(|name| !is_known(name) && !ours.contains(name)) {
            let what = format!("{name} on drive {id} is not a stack");
            self.found(Finding::new(FindingKind::Stranger, what, STRANGER).drive(id).file(name));
        }
        Ok(())
    }

    /// Checks a stack that was being regenerated beside a damaged one when the server ended: the next repair or scrub
    /// of the blob removes it, if the catalog knows it.
    async fn spare_file(
        &mut self,
        (id, drive): (DriveId, &dyn Drive),
        name: &FileName,
        (blob, index): (BlobId, u8),
    ) -> Result<(), ServerError> {
        let targets = self.ground.catalog.rebuild_targets(blob).await?;
        if targets.iter().any(|target| target.spare && (target.drive, target.index) == (id, index)) {
            self.report.leftovers.rebuilt_stacks += 1;
            return Ok(());
        }
        if self.is_gone(drive, name).await {
            return Ok(());
        }
        let what =
            format!("{name} on drive {id} was to replace a damaged stack, and this catalog knows of no such repair");
        self.found(Finding::new(FindingKind::Unknown, what, UNKNOWN).drive(id).file(name).blob(blob));
        Ok(())
    }

    async fn stack_file(
        &mut self,
        (id, drive): (DriveId, &dyn Drive),
        name: &FileName,
        (blob, index): (BlobId, u8),
        known: Known,
    ) -> Result<(), ServerError> {
        let Ok(bytes) = drive.len(name).await.or_else(|error| {
            let is_gone = self.ground.serving.is_some() && matches!(error, disk::DriveError::NotFound(_));
            if is_gone { Err(()) } else { Ok(0) }
        }) else {
            return Ok(());
        };
        // Only the newest catalog shows for certain that a blob is deleted: versions never come back.
        let is_deleted = match &known {
            Known::Blob(blob) if blob.drives.get(usize::from(index)) != Some(&id) => {
                self.is_newest && !self.ground.catalog.is_blob_living(blob.blob).await?
            }
            _ => false,
        };
        let kept = match known {
            Known::Begun(_) => self.ground.catalog.kept_intents().await?,
            _ => Some(BTreeSet::new()),
        };
        let is_kept = kept.is_none_or(|kept| kept.contains(&blob));
        let why = match known {
            Known::Damaged => return Ok(()),
            Known::Begun(_) if is_kept => "to this catalog its blob was never completed",
            // The next start gives it up, and it is reclaimed like any other.
            Known::Begun(blob) if blob.drives.get(usize::from(index)) == Some(&id) => return Ok(()),
            Known::Blob(blob) if blob.drives.get(usize::from(index)) == Some(&id) => {
                self.report.rack.stacks += 1;
                self.report.rack.stack_bytes += bytes;
                return Ok(());
            }
            // A rebuild had written this when the server ended; it removes the stack before it starts again.
            Known::Blob(blob) if self.is_rebuilt(&blob, index).await => {
                self.report.leftovers.rebuilt_stacks += 1;
                return Ok(());
            }
            Known::Nothing | Known::Begun(_) | Known::Blob(_) if self.is_gone(drive, name).await => return Ok(()),
            Known::Blob(_) if is_deleted => {
                let what = format!("stack {name} on drive {id} takes {bytes} bytes, and its blob is deleted");
                self.found(Finding::new(FindingKind::Orphan, what, ORPHAN).drive(id).file(name));
                return Ok(());
            }
            Known::Nothing if self.ground.serving.is_none() && blob.number >= self.blobs_end => {
                "its blob was written under a newer catalog"
            }
            Known::Nothing => "its blob is unknown to this catalog",
            Known::Begun(_) | Known::Blob(_) => "this catalog records another place for that stack of its blob",
        };
        let what = format!("stack {name} on drive {id} takes {bytes} bytes, and {why}");
        self.found(Finding::new(FindingKind::Unknown, what, UNKNOWN).drive(id).file(name).blob(blob));
        Ok(())
    }

    /// True if a file was removed after it was listed; that is no finding beside a server.
    async fn is_gone(&self, drive: &dyn Drive, name: &FileName) -> bool {
        self.ground.serving.is_some() && matches!(drive.len(name).await, Err(disk::DriveError::NotFound(_)))
    }

    /// True if stack `index` of `blob` was on a permanently failed drive, and waits to be rebuilt elsewhere.
    async fn is_rebuilt(&self, blob: &Blob, index: u8) -> bool {
        let Some(drive) = blob.drives.get(usize::from(index)) else { return false };
        self.ground.catalog.is_stack_lost(*drive, blob.blob).await.unwrap_or(false)
    }

    /// Compares the index of the pack in `blob` with the members that live there. Returns the first difference, in
    /// words.
    async fn compare_index(
        &self,
        blob: &Blob,
        drives: &[Option<Arc<dyn Drive>>],
    ) -> Result<Option<String>, ServerError> {
        let index = match self.read_index(blob, drives).await {
            Ok(Some(index)) => index,
            Ok(None) => return Ok(None),
            Err(what) => return Ok(Some(what)),
        };
        let mut after = None;
        loop {
            let page = self.ground.catalog.blob_members(blob.blob, after.as_ref(), PAGE).await?;
            if let Some(member) = page.items.iter().find(|member| !has(&index, member)) {
                let (version, offset) = (member.version.0, member.offset);
                return Ok(Some(format!("version {version} should be at byte {offset}, and is not")));
            }
            after = page.next;
            if after.is_none() {
                return packed::unlike(&self.ground.catalog, blob.blob, &index).await;
            }
        }
    }

    /// The index of the pack in `blob`; `None` if it is too long to be compared.
    async fn read_index(
        &self,
        blob: &Blob,
        drives: &[Option<Arc<dyn Drive>>],
    ) -> Result<Option<Vec<IndexEntry>>, String> {
        let there = drives.iter().enumerate().filter_map(|(index, drive)| Some((index as u8, drive.clone()?)));
        read_index(self.described(blob), there.collect(), INDEX_BYTES_MAX).await
    }
}

/// The result of inspecting a blob.
struct Looked {
    inspection: Inspection,
    checked_bytes: u64,
    /// The first difference between the pack and the catalog.
    unlike: Option<String>,
}

impl Looked {
    /// True if nothing is wrong.
    fn is_good(&self) -> bool {
        let Inspection { flaws, payload } = &self.inspection;
        flaws.is_empty() && payload.is_ok() && self.unlike.is_none()
    }
}

/// True if `index`, which is sorted by offset, has `member` where the catalog has it.
fn has(index: &[IndexEntry], member: &Member) -> bool {
    let first = index.partition_point(|entry| entry.offset < member.offset);
    // Members of length 0 share their offset with the next one.
    let mut there = index[first..].iter().take_while(|entry| entry.offset == member.offset);
    there.any(|entry| entry.object.version == member.version && entry.object.bytes == member.bytes)
}

/// True if the lengths in the record of `blob` are possible for stacks.
fn makes_sense(blob: &Blob) -> bool {
    let code = blob.code();
    code.data >= 1
        && code.stacks() == blob.drives.len()
        && code.stacks() <= 255
        && code.fragment_bytes >= 4096
        && code.fragment_bytes.is_multiple_of(4096)
        && (1..PAYLOAD_BYTES_END).contains(&blob.payload_bytes)
        && blob.stack_bytes == stack::stack_bytes(code, blob.payload_bytes)
}

/// The contradiction between the record of `blob` and the rack; `None` if they agree.
fn misfit(blob: &Blob, layout: &Layout) -> Option<String> {
    if !makes_sense(blob) {
        return Some(format!("the record of blob {} has impossible values", blob.blob));
    }
    let distinct: BTreeSet<DriveId> = blob.drives.iter().copied().collect();
    if distinct.len() < blob.drives.len() {
        return Some(format!("the record of blob {} has two stacks on one drive", blob.blob));
    }
    let mut homes = blob.drives.iter().map(|drive| layout.group_of(*drive));
    let fits = homes.all(|home| home == Some(blob.group));
    (!fits).then(|| format!("blob {} is recorded in group {}, which has other drives", blob.blob, blob.group))
}
