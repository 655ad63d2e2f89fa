//! The workshop, as a recovery reads it: its staged files, their run marks, and the log of small objects. It is not
//! changed: the log is only read, and commits of the catalog are not logged meanwhile.

use super::publish::{io_error, last_manifest};
use crate::data_dir::DataDir;
use crate::error::ServerError;
use crate::intake_log::IntakeLog;
use catalog::{Catalog, CatalogError, CommitLog, LogError, LogRecord, Place, Sequence, StagedWhen, Version};
use disk::{DirectoryDrive, Drive};
use roaring::RoaringTreemap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use workshop::{NamedSlot, SmallFiles, SmallRecords, Staging};

/// Records read at once.
const PAGE: usize = 1_024;

/// The remains of a workshop.
pub(super) struct Workshop {
    /// The disk of the staged files.
    pub(super) staged: Option<Arc<dyn Drive>>,
    /// The log of small objects.
    pub(super) log: Option<Arc<IntakeLog>>,
    /// True if nothing of the log is missing.
    pub(super) is_log_whole: bool,
}

impl Workshop {
    /// The remains of the workshop of `dir`.
    ///
    /// # Errors
    /// [`ServerError`] if something is there and unreadable.
    pub(super) fn of(dir: &DataDir) -> Result<Self, ServerError> {
        let path = staged(dir);
        let staged = if path.exists() { Some(Arc::new(DirectoryDrive::open(&path)?) as Arc<dyn Drive>) } else { None };
        // The last batch of a log always stays in it, so a log without any shows nothing.
        let is_whole = |log: Option<Arc<IntakeLog>>| log.is_some_and(|log| last_of(&log) > Sequence::default());
        let is_log_whole = IntakeLog::look_at_all(dir, &last_manifest(dir)?).is_ok_and(is_whole);
        Ok(Self { staged, log: IntakeLog::look_at_what_is_left(dir)?, is_log_whole })
    }

    /// Its staged files and records, to be read; `None` if they are lost.
    pub(super) fn staging(&self) -> Option<Staging> {
        let staged = Arc::clone(self.staged.as_ref()?);
        Some(match &self.log {
            Some(log) => Staging::with_records(Arc::new(SmallFiles::new(staged, Arc::clone(log) as _, 0)), u64::MAX),
            None => Staging::new(staged, u64::MAX),
        })
    }

    /// Staged objects of `catalog` that are in neither. None is known where the small ones cannot all be listed.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(super) async fn lost(&self, catalog: &Catalog) -> Result<u64, ServerError> {
        let there = match self.slots().await? {
            Ok(there) => there,
            Err(error) => {
                tracing::warn!(%error, "small objects cannot all be listed; `larder verify` says which are lost");
                return Ok(0);
            }
        };
        let (mut lost, mut after) = (0, None);
        loop {
            let page = catalog.staged_page(after.as_ref(), StagedWhen::until(u64::MAX), PAGE).await?;
            for version in &page.items {
                lost += u64::from(!is_there(catalog, version, &there).await?);
            }
            after = page.next;
            if after.is_none() {
                return Ok(lost);
            }
        }
    }

    /// The slots that are there, or the error if those of small objects cannot be listed.
    async fn slots(&self) -> Result<std::io::Result<RoaringTreemap>, ServerError> {
        let mut there = RoaringTreemap::new();
        if let Some(staged) = &self.staged {
            let staging = Staging::new(Arc::clone(staged), u64::MAX);
            let note = |slot| {
                there.insert(slot);
            };
            staging.each_file(note).await?;
        }
        let (Some(log), mut from) = (&self.log, NamedSlot::default()) else { return Ok(Ok(there)) };
        loop {
            let page = match log.page(&from, PAGE).await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            let Some(last) = page.last() else { return Ok(Ok(there)) };
            from = last.at.successor();
            there.extend(page.iter().map(|record| record.at.slot()));
        }
    }
}

/// The highest number of a batch in `log`, as far as it can be read. A catalog that does not follow its log needs
/// higher numbers, or the log would show batches that it seems to lack.
pub(super) fn last_of(log: &IntakeLog) -> Sequence {
    if let Err(error) = log.replay(&mut |_| ControlFlow::Continue(())) {
        tracing::warn!(%error, "the log of small objects cannot be read to its end");
    }
    log.last_replayed()
}

/// Creates the directories of a workshop that a server expects, if they are lost.
///
/// # Errors
/// Errors of the file system.
pub(super) fn make_what_is_missing(dir: &DataDir) -> Result<(), ServerError> {
    for made in [staged(dir), dir.workshop().join("spool")] {
        disk::private::make_directory(&made).map_err(|error| io_error("making", &made, error))?;
    }
    Ok(())
}

fn staged(dir: &DataDir) -> PathBuf {
    dir.workshop().join("staged")
}

/// True if every file of `version` is among the slots that are there.
async fn is_there(catalog: &Catalog, version: &Version, there: &RoaringTreemap) -> Result<bool, ServerError> {
    let mut after = 0;
    match version.place {
        Place::Staged { slot } => return Ok(there.contains(slot)),
        Place::Stored { .. } => return Ok(true),
        Place::Parts => {}
    }
    loop {
        let parts = match catalog.parts_page(version.version, after, PAGE).await {
            // A GET of the object fails.
            Err(CatalogError::Damaged(_)) => return Ok(false),
            parts => parts?,
        };
        if parts.iter().any(|part| !there.contains(part.slot)) {
            return Ok(false);
        }
        let Some(last) = parts.last() else { return Ok(true) };
        after = last.number;
    }
}

/// A log that can be read, and refuses writes.
pub(super) struct ReadLog(pub(super) Arc<IntakeLog>);

impl CommitLog for ReadLog {
    fn append(&self, _: &[LogRecord]) -> Result<(), LogError> {
        Err(LogError::Failed("it is only read".into()))
    }

    fn covered(&self, _: Sequence) {}

    fn retain(&self) {}

    fn replay(&self, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError> {
        self.0.replay(each)
    }
}
