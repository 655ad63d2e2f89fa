//! The workshop against the catalog: every staged version has its file, every file its version.

use super::{Finding, FindingKind, PAGE, RESTORE, Step, Verification};
use crate::catalog_age;
use crate::error::ServerError;
use catalog::{Place, StagedSlot};
use futures::StreamExt;
use lineage::{RunStamp, Sequence, is_newer_than};
use std::collections::BTreeSet;
use workshop::{FormatError, Inventory, NamedSlot, ReadError, staged_file_name};

/// Staged files opened at once.
const AT_ONCE: usize = 8;

const LOST: &str = "the object's bytes are lost: put it again, or delete it";
const UNMOUNTED: &str = "a drive of the pool of small objects is missing: mount it, and verify again; if it is lost, \
                         put the object again, or delete it";
const UNLISTED: &str = "put the objects that are named as damaged again, or delete them; once nothing is staged, stop \
                        the server, move workshop/intake away, and start the server again: it creates a new one";
const UNKNOWN: &str = "keep it: it may belong to a newer catalog; if there is none, remove it";
const STRANGER: &str = "move it away: Larder did not make it and never reads it";

/// The result of checking a staged file.
enum StagedFinding {
    /// The file is good. It takes `charged_bytes`, and `checked_bytes` of its payload were compared.
    Good {
        charged_bytes: u64,
        checked_bytes: u64,
    },
    Missing,
    Damaged(String),
}

impl Verification<'_> {
    pub(super) async fn workshop(&mut self) -> Result<(), ServerError> {
        let inventory = self.ground.staging.inventory().await?;
        (self.watch)(Step::Workshop { files: inventory.slots.len() as u64 });
        if let Some(why) = &inventory.unlisted {
            let what = format!("small objects in workshop/intake cannot all be listed: {why}");
            self.found(Finding::new(FindingKind::StagedDamaged, what, UNLISTED));
        }
        let mut referred = vec![false; inventory.slots.len()];
        for parts in [false, true] {
            let mut after = None;
            loop {
                let page = if parts {
                    self.ground.catalog.sound_part_slots(after.as_ref(), PAGE).await?
                } else {
                    self.ground.catalog.sound_slots(after.as_ref(), PAGE).await?
                };
                for staged in &page.items {
                    if let Ok(at) = inventory.slots.binary_search(&staged.slot) {
                        referred[at] = true;
                    }
                }
                let gone = self.unlinked(&inventory, &page.items).await?;
                self.slots(page.items, &gone).await;
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        let unreferred = inventory.slots.iter().zip(referred).filter(|(_, referred)| !referred);
        let unreferred: Vec<u64> = unreferred.map(|(slot, _)| *slot).collect();
        let unreferred =
            if unreferred.is_empty() { Vec::new() } else { self.ground.staging.named(&unreferred).await? };
        self.unreferred(unreferred).await?;
        for name in &inventory.strangers {
            let what = format!("{name} in the workshop is not a staged file");
            self.found(Finding::new(FindingKind::Stranger, what, STRANGER).file(name));
        }
        if let Some(spool) = &self.ground.spool {
            self.report.leftovers.spool_files = spool.list().await?.len() as u64;
        }
        Ok(())
    }

    /// Slots of `page` whose file is gone, although a running server still has it open.
    async fn unlinked(&self, inventory: &Inventory, page: &[StagedSlot]) -> Result<BTreeSet<u64>, ServerError> {
        let is_known = self.ground.serving.is_some() && inventory.unlisted.is_none();
        let Some(last) = inventory.slots.last().filter(|_| is_known) else {
            return Ok(BTreeSet::new());
        };
        // Slots beyond the last were staged since.
        let missing = |slot: &u64| slot <= last && inventory.slots.binary_search(slot).is_err();
        let missing: BTreeSet<u64> = page.iter().map(|staged| staged.slot).filter(missing).collect();
        if missing.is_empty() {
            return Ok(missing);
        }
        let slots: Vec<u64> = missing.iter().copied().collect();
        let there: BTreeSet<u64> = self.ground.staging.named(&slots).await?.iter().map(NamedSlot::slot).collect();
        Ok(missing.difference(&there).copied().collect())
    }

    async fn slots(&mut self, page: Vec<StagedSlot>, gone: &BTreeSet<u64>) {
        self.room().await;
        let lacks_drive = self.ground.small.as_ref().is_some_and(|small| small.records().lacks_drive());
        let mend = if lacks_drive { UNMOUNTED } else { LOST };
        let this = &*self;
        let looked = futures::stream::iter(page).map(|staged| async move {
            let found = this.staged_file(&staged).await;
            (this.watch)(Step::Done);
            (staged, found)
        });
        let looked: Vec<_> = looked.buffered(AT_ONCE).collect().await;
        for (staged, found) in looked {
            let found = if gone.contains(&staged.slot) { StagedFinding::Missing } else { found };
            let name = staged_file_name(staged.slot);
            if !matches!(found, StagedFinding::Good { .. }) && !self.lies_there(&staged).await {
                continue;
            }
            let (kind, what) = match found {
                StagedFinding::Good { charged_bytes, checked_bytes } => {
                    self.report.workshop.files += 1;
                    self.report.workshop.file_bytes += charged_bytes;
                    self.report.workshop.checked_bytes += checked_bytes;
                    continue;
                }
                StagedFinding::Missing => (FindingKind::StagedMissing, format!("the staged file {name} is missing")),
                StagedFinding::Damaged(what) => (FindingKind::StagedDamaged, what),
            };
            let object = self.object_of(staged.version).await;
            self.found(Finding::new(kind, what, mend).object(object).file(&name));
        }
    }

    /// True if the present catalog still has this slot for that version.
    async fn lies_there(&self, staged: &StagedSlot) -> bool {
        if self.ground.serving.is_none() {
            return true;
        }
        let (catalog, version) = (&self.ground.catalog, staged.version);
        let at = (&*staged.bucket, &*staged.key);
        let placed = catalog.placed_objects(&[at]).await.ok().and_then(|mut placed| placed.pop().flatten());
        match placed.filter(|placed| placed.object.version == version).map(|placed| placed.place) {
            Some(Place::Staged { slot }) => slot == staged.slot,
            Some(Place::Stored { .. }) => false,
            // A part of this object, or of an upload.
            Some(Place::Parts) | None => {
                catalog.slots_of(version, Place::Parts).await.is_ok_and(|slots| slots.contains(&staged.slot))
            }
        }
    }

    async fn staged_file(&self, staged: &StagedSlot) -> StagedFinding {
        let at = NamedSlot::of(staged.slot, &staged.bucket, &staged.key);
        let reader = match self.ground.staging.open(at.clone()).await {
            Ok(reader) if ![0, staged.version.0].contains(&reader.stamp().version) => {
                let error = ReadError::AnotherVersion { slot: staged.slot };
                return StagedFinding::Damaged(error.to_string());
            }
            Ok(reader) => reader,
            Err(ReadError::NotFound { .. }) => return StagedFinding::Missing,
            Err(error) => return StagedFinding::Damaged(error.to_string()),
        };
        if reader.bytes() != staged.bytes {
            let (name, bytes) = (staged_file_name(staged.slot), reader.bytes());
            return StagedFinding::Damaged(format!("{name} holds {bytes} bytes, and its record says {}", staged.bytes));
        }
        let mut checked_bytes = 0;
        if self.options.deep {
            let mut blocks = reader.read(0..reader.bytes());
            while let Some(block) = blocks.next().await {
                match block {
                    Ok(block) => checked_bytes += block.len() as u64,
                    Err(error) => return StagedFinding::Damaged(error.to_string()),
                }
            }
        }
        match self.ground.staging.charged_bytes(at).await {
            Ok(charged_bytes) => StagedFinding::Good { charged_bytes, checked_bytes },
            Err(error) => StagedFinding::Damaged(error.to_string()),
        }
    }

    /// The newest batch of the catalog. It is read after the stamp: beside a server both advance.
    fn newest_sequence(&self) -> Sequence {
        match self.ground.serving {
            Some(_) => self.ground.catalog.sequence(),
            None => self.ground.catalog.sequence_at_open(),
        }
    }

    /// Checks files without a version: leftovers of a crash, unless the catalog cannot have known them.
    async fn unreferred(&mut self, slots: Vec<NamedSlot>) -> Result<(), ServerError> {
        let marked = self.ground.staging.marked_runs().await?;
        let evidence = catalog_age::evidence(&self.ground.catalog, marked).await?;
        self.is_newest = evidence.is_used_last();
        let runs = evidence.runs.unwrap_or_default();
        if !self.is_newest {
            let what = "the workshop was last used with a newer catalog than this";
            self.found(Finding::new(FindingKind::ForeignCatalog, what, RESTORE));
        }
        for at in slots {
            let slot = at.slot();
            let (stamp, is_finished) = match self.ground.staging.open(at.clone()).await {
                Ok(reader) => (Some(reader.stamp()), true),
                Err(ReadError::NotFound { .. }) if self.ground.serving.is_some() => continue, // it was freed meanwhile
                Err(ReadError::Unusable { source: FormatError::Magic | FormatError::Length, .. }) => (None, false),
                Err(_) => (None, true),
            };
            let writer = stamp.map(|stamp| (RunStamp::from_bits(stamp.run), stamp.sequence));
            if writer.is_some_and(|(run, sequence)| is_newer_than(run, sequence, self.newest_sequence())) {
                let name = staged_file_name(slot);
                let what = format!("{name} was staged after the newest record of the catalog, which is older than it");
                self.found(Finding::new(FindingKind::ForeignCatalog, what, RESTORE).file(&name));
                continue;
            }
            // Files of a run that this catalog remembers, and unfinished ones, are removed at a start; see `lineage`.
            let is_ours = self.is_newest && stamp.is_some_and(|stamp| runs.contains(&stamp.run));
            if !is_ours && is_finished {
                let name = staged_file_name(slot);
                let what = format!("{name} was finished, and is unknown to this catalog");
                self.found(Finding::new(FindingKind::Unknown, what, UNKNOWN).file(&name));
                continue;
            }
            if self.ground.serving.is_some() {
                continue; // it is being written or freed, or the next start removes it
            }
            self.report.leftovers.staged_files += 1;
            let bytes = self.ground.staging.charged_bytes(at).await?;
            self.report.leftovers.staged_bytes += bytes;
        }
        Ok(())
    }
}
