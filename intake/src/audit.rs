//! Compares the files of a pool with its manifest, when the pool is opened.
//!
//! 1. A file that the manifest names counts, unless it is marked as dead. A file that it does not name is a draft of
//!    the last run, or a leftover of an earlier one; or its run is unknown, and the manifest is older than the pool.
//! 2. A named file that does not exist is **absent**: it is lost, and reads of its content return an error until it is
//!    back or another rotation has restored the content. A different file with its name counts as absent, too.
//! 3. A pool that lacks something which no other rotation has is not opened, unless that is accepted
//!    ([`crate::Config::accepts_losses`]). Until then nothing has been changed except drafts, which are removed.
//! 4. The new manifest names all existing files and the absent ones.
//!
//! A pool from before there were manifests is accepted as it is.

use crate::bytes::Damage;
use crate::config::Config;
use crate::drive::Drive;
use crate::error::OpenError;
use crate::lost::{Loss, LostPart};
use crate::manifest::{Entry, FileKind, Manifest, ManifestWriter, Persisted, Slots, Standing, State};
use crate::names::{DriveUuid, FileId};
use crate::record::Sequence;
use crate::shared::{CycleShared, Shared};
use crate::shelf::read::Shelf;
use crate::table::LogTable;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Findings about one rotation, besides the files that count.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Files that the manifest names and that do not exist.
    pub(crate) absent: Vec<Entry>,
    /// Its lacking parts that only another rotation can restore.
    pub(crate) lacks: Vec<Lack>,
    /// Logs that are already shelves and are retained for the caller, if they are missing or damaged.
    pub(crate) unshown: Vec<Lack>,
    /// Files of runs that are not in the manifest.
    pub(crate) strange: Vec<String>,
    /// Shelves that do not count.
    pub(crate) gone: Vec<Arc<Shelf>>,
    /// Unreadable files that do not count, and are not removed.
    pub(crate) kept: Vec<Entry>,
    /// What was lost, for readers and for people.
    pub(crate) lost: Vec<LostPart>,
    pub(crate) losses: Vec<Loss>,
}

/// The findings about one rotation, its logs, and its dead logs.
pub(crate) type Found<'a> = (&'a Findings, [&'a [Arc<LogTable>]; 2]);

/// Something that a rotation lacks, and the number up to which another rotation must be complete to replace it.
#[derive(Debug)]
pub(crate) struct Lack {
    pub(crate) what: String,
    pub(crate) last: Sequence,
}

/// The manifest to use; `None` if there has never been one, or it is given up.
pub(crate) fn manifest(
    persisted: Persisted,
    has_one: bool,
    config: &Config,
) -> Result<(Option<Manifest>, Option<String>), OpenError> {
    let is_later = matches!(persisted, Persisted::Damaged(Damage::Version(_)));
    let problem = match persisted {
        Persisted::Whole(manifest) => return Ok((Some(manifest), None)),
        // Labels mention a manifest only once it is durable, so an existing file is an unfinished first manifest.
        _ if !has_one => return Ok((None, None)),
        Persisted::None => "is missing".to_owned(),
        Persisted::Damaged(damage) => format!("is damaged: {damage}"),
    };
    // Without `needs_all` the caller knows each key and notices a missing one.
    if (config.needs_all && !config.accepts_losses) || is_later {
        return Err(OpenError::Manifest(problem));
    }
    Ok((None, Some(problem)))
}

/// The standing of a file on `drive` according to `manifest`.
pub(crate) fn standing(manifest: Option<&Manifest>, drive: &Drive, file: FileId) -> Standing {
    manifest.map_or(Standing::Alive, |manifest| manifest.standing(drive.uuid, file))
}

/// Files that are named as live, retained or lost, on `drives` that can be read, and are not among those `there`.
pub(crate) fn absent(manifest: Option<&Manifest>, drives: &[DriveUuid], there: &[FileId]) -> Vec<Entry> {
    let is_absent = |entry: &&Entry| {
        let is_wanted = match entry.state {
            State::Live | State::Lost | State::Retained => true,
            State::Replaced | State::Dead => false,
        };
        is_wanted && drives.contains(&entry.drive) && !there.contains(&entry.file)
    };
    manifest.iter().flat_map(|manifest| &manifest.files).filter(is_absent).cloned().collect()
}

/// Refuses a pool that lacks something that no other rotation has, or whose manifest is older than its files.
pub(crate) fn check(shared: &Shared, found: &[Found<'_>]) -> Result<(), OpenError> {
    if shared.config.accepts_losses {
        return Ok(());
    }
    let strange: Vec<_> = found.iter().flat_map(|(found, _)| found.strange.iter().cloned()).collect();
    if !strange.is_empty() {
        let problem = format!("is older than the files of the pool: it does not know {}", strange.join(", "));
        return Err(OpenError::Manifest(problem));
    }
    let mut lacking = Vec::new();
    for (cycle, (found, _)) in shared.cycles.iter().zip(found) {
        let is_elsewhere = |lack: &Lack| {
            let mut others = shared.cycles.iter().filter(|other| !std::ptr::eq(*other, cycle));
            others.any(|other| other.view().is_whole() && (!other.may_lag() || other.had() >= lack.last))
        };
        lacking.extend(found.lacks.iter().filter(|lack| !is_elsewhere(lack)).map(|lack| lack.what.clone()));
    }
    if lacking.is_empty() { Ok(()) } else { Err(OpenError::Incomplete(lacking)) }
}

/// The last of the changes that may be missing in the caller's replay, because no rotation has all its retained logs.
///
/// A rotation that was levelled or healed has changes in shelves that none of its logs shows.
pub(crate) fn unshown(shared: &Shared, found: &[Found<'_>]) -> Option<Sequence> {
    let shows = |lack: &Lack| {
        let covers = |table: &Arc<LogTable>| table.first <= lack.last && lack.last <= table.index.read().last;
        found.iter().zip(&shared.cycles).any(|((findings, tables), cycle)| {
            let lacks_none = findings.unshown.is_empty() && findings.lacks.is_empty() && cycle.view().is_whole();
            let has_it = !cycle.may_lag() || cycle.had() >= lack.last;
            lacks_none && has_it && tables.iter().flat_map(|tables| tables.iter()).any(covers)
        })
    };
    let lacking = found.iter().flat_map(|(findings, _)| &findings.unshown).filter(|lack| !shows(lack));
    lacking.map(|lack| lack.last).max().filter(|_| shared.config.needs_all)
}

/// Starts the manifest of this run: from `book` for drives that are away, and from the findings for the others.
pub(crate) fn begin(
    shared: &Shared,
    slots: Slots,
    book: Option<Manifest>,
    found: &[Found<'_>],
) -> Result<(), OpenError> {
    let last = Sequence(shared.last.load(Ordering::Relaxed));
    let is_first = book.is_none();
    let mut manifest = book.unwrap_or_else(|| Manifest { pool: shared.pool, ..Manifest::default() });
    for (cycle, found) in shared.cycles.iter().zip(found) {
        let (all, there) = cycle.members();
        if is_first {
            let away = all.iter().filter(|drive| !there.contains(drive));
            manifest.unknown.extend(away.map(|drive| (*drive, last)));
        }
        manifest.unknown.retain(|(drive, _)| !there.contains(drive));
        name_all(&mut manifest, cycle, *found, (&there, last));
    }
    shared.note_taken(&mut manifest);
    manifest.begin_run(shared.config.entropy as u64);
    let keeper = ManifestWriter::begin(slots, manifest).map_err(OpenError::Home)?;
    assert!(shared.keeper.set(Mutex::new(keeper)).is_ok(), "a pool is opened once");
    Ok(())
}

/// Names all files on drives of `cycle` that are `there`.
fn name_all(
    manifest: &mut Manifest,
    cycle: &CycleShared,
    (found, [logs, dead]): Found<'_>,
    (there, last): (&[DriveUuid], Sequence),
) {
    let unreadable = cycle.unreadable.lock();
    let damaged: Vec<Entry> = unreadable
        .iter()
        .map(|shelf| {
            let (kind, drive, file) = (FileKind::Shelf, shelf.drive.uuid, shelf.file);
            let unknown = Entry { kind, state: State::Live, drive, file, bytes: 0, sealed: true, last, keys: None };
            Entry { state: State::Lost, ..manifest.entry(file).cloned().unwrap_or(unknown) }
        })
        .collect();
    let old: Vec<Entry> = manifest.files.extract_if(.., |entry| there.contains(&entry.drive)).collect();
    let view = cycle.view();
    let shelves = view.shelves.iter().map(|shelf| Entry::of_shelf(shelf));
    let as_long = |table: &Arc<LogTable>| {
        let old = old.iter().find(|old| old.file == table.file);
        Entry::of_log(table, true).not_shorter_than(old)
    };
    let logs = logs.iter().map(as_long);
    let retained = dead.iter().map(|table| Entry { state: State::Retained, ..as_long(table) });
    let gone = found.gone.iter().map(|shelf| Entry { state: State::Dead, ..Entry::of_shelf(shelf) });
    let absent = found.absent.iter().map(|entry| Entry { state: State::Lost, ..entry.clone() });
    let kept = found.kept.iter().cloned();
    for entry in shelves.chain(logs).chain(retained).chain(gone).chain(kept).chain(damaged).chain(absent) {
        if there.contains(&entry.drive) {
            manifest.name(entry);
        }
    }
}

/// True if a log may have records: its header was durable before it was named, and its length is recorded later.
pub(crate) fn may_have_records(entry: &Entry) -> bool {
    matches!(entry.state, State::Live | State::Lost)
}

impl Findings {
    /// Records an absent file.
    pub(crate) fn miss(&mut self, drives: &[Option<Arc<Drive>>], entry: Entry) {
        let name = entry.kind.name(entry.file).to_string();
        let place = drives.iter().flatten().find(|drive| drive.uuid == entry.drive);
        let place = place.map(|drive| drive.directory.place()).unwrap_or_default();
        let lack = Lack { what: format!("{name} (missing in {place})"), last: entry.last };
        match entry.state {
            State::Retained => return self.unshown.push(lack),
            State::Live => self.lacks.push(lack),
            _ => {}
        }
        self.lost.push(entry.lost_part());
        self.losses.push(Loss::File { name, drive: entry.drive, problem: "it is missing".into() });
        self.absent.push(entry);
    }
}
