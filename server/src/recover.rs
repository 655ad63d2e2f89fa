//! `larder recover`: recreates a lost catalog while no server runs.
//!
//! 1. From its journal in the workshop, or a copy that the operator names, whichever is newer: the catalog as of a
//!    batch. What the log of small objects has beyond that follows on it. If the workshop is whole, that is all there
//!    is, to the last acknowledged batch.
//! 2. If the workshop has no snapshot, from the copies of it and of the journal on drives (`recover/copies.rs`), which
//!    are looked for in a pass of its own over all groups. If the operator chooses the drives, from these copies alone.
//!    A workshop that was restored from a backup has a journal that is older than they are. Numbers do not show this
//!    once a server has used it, since it numbers its batches by the clock. So if the catalog was found to be older, or
//!    if a newer copy is on drives, the operator must choose.
//! 3. From the drives, group after group: every blob that the catalog does not know, and that was begun after the last
//!    batch it has, is adopted with the objects in the index of its pack (`catalog/src/adopt.rs`). A stack that lies
//!    elsewhere than the catalog knows is counted where it is, and a stack missing from a readable drive is marked as
//!    lost, so the server rebuilds it. A blob of which nothing is left, although all of its
//!    drives are there, was removed after that batch; its objects were deleted before, or are in the workshop.
//! 4. The recovered catalog takes the workshop's mark for its own. Staged files that it does not know stay where they
//!    are.
//!
//! One group is awake at a time (`offline_rack.rs`), so the number of active drives is within the limit of every
//! domain.
//!
//! A recovery is a function of its sources: drives, workshop, and the copy that is named. None of them is changed: the
//! log is read and not written (`recover/sources.rs`), no drive is written to, and nothing is removed. The catalog that
//! is replaced is not a source. The new one is made beside it and gets its name as the last step
//! (`recover/publish.rs`). So a recovery can be killed at any moment, and repeated at any time, with the same result.

mod copies;
mod drives;
mod group;
mod moved_back;
mod publish;
mod report;
mod sources;

pub use group::{Based, Rack};
pub use report::{Base, BaseChoice, Options, Pass, Report, Source, Step};

use crate::boot;
use crate::data_dir::{DataDir, JOURNAL};
use crate::error::ServerError;
use crate::intake_log::IntakeLog;
use crate::offline_rack::{OfflineRack, unless_interrupted};
use crate::users::ROOT;
use catalog::{
    Adopted, Adoption, Catalog, CatalogError, DriveRecord, JournalFiles, LoadFrom, Loaded, Sequence, SnapshotError,
    SqliteOptions, SqliteStore, Store, StoreError, check_snapshot, load_snapshot,
};
use disk::clock::{self, wall_ms};
use disk::{DirectoryDrive, Drive, RackUuid};
use futures::future::BoxFuture;
use model::sabotage::{Sabotage, is_on};
pub(crate) use publish::finish_publishing;
use publish::{COPIES, DRAFT, Manifest, ORDER, io_error, publish, remove_drafts, remove_store};
use sources::{ReadLog, Workshop, last_of, make_what_is_missing};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use workshop::{Staging, Survey};
/// The time between two log lines about the progress of a start that recreates the catalog.
const PROGRESS: Duration = Duration::from_secs(5);
/// Files on the drives that are open at once.
const OPEN_FILES: usize = 256;

/// Recreates the catalog of `dir`, which no server holds. No drive is awake afterwards.
///
/// # Errors
/// [`ServerError`], also after an interruption (SIGINT, SIGTERM). The data directory is then unchanged, or the next
/// start puts the new catalog in place.
pub fn recover_directory<'a>(
    dir: &'a DataDir,
    options: &'a Options,
    watch: &'a (dyn Fn(Step<'_>) + Sync),
) -> BoxFuture<'a, Result<Report, ServerError>> {
    // Boxed, so that it is compiled in this crate and not in the caller's.
    Box::pin(async move {
        let mut rack = OfflineRack::of(dir, OPEN_FILES);
        let done = unless_interrupted(recover(dir, &mut rack, options, watch)).await;
        rack.rest().await;
        if done.is_err()
            && let Err(error) = remove_drafts(&dir.catalog())
        {
            tracing::warn!(%error, "the draft of the catalog is left; the next recovery removes it");
        }
        done
    })
}

async fn recover(
    dir: &DataDir,
    rack: &mut OfflineRack,
    options: &Options,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Report, ServerError> {
    let place = dir.catalog();
    // Its catalog may be replaced: this recovery repeats one that was killed.
    let is_finished = finish_publishing(dir).await?.is_some();
    if is_finished {
        tracing::warn!("an earlier recovery was ended while it replaced the catalog; that is done now");
    }
    if place.exists() && !options.replace && !is_finished {
        return Err(ServerError::Refused(format!(
            "{} exists; if it is unusable nevertheless (`larder verify` shows why), add --replace: it is kept under \
             another name",
            place.display()
        )));
    }
    let draft = place.with_file_name(DRAFT);
    remove_drafts(&place)?;
    let (loaded, knows_copies) = base((dir, rack), options, &draft, watch).await?;
    let based = |(Loaded { made_ms, records, batches, damaged, .. }, source)| Base {
        source,
        made_ms,
        records,
        batches,
        damaged,
    };
    let mut report = Report { base: loaded.map(based), ..Report::default() };
    {
        let workshop = Workshop::of(dir)?;
        report.lacks_log = !workshop.is_log_whole;
        let log = match (&workshop.log, options.base) {
            (None, _) => BatchesOf::Nothing,
            (Some(log), Some(BaseChoice::Drives)) => BatchesOf::NumbersAbove(last_of(log)),
            (Some(log), _) => BatchesOf::Log(log),
        };
        let begun = opened(&draft, log, Missing::IsGivenUp, &mut report).await?;
        let Opened { catalog, known_until, found_older, .. } = begun;
        refuse_an_older_journal(options, report.base, found_older.as_deref())?;
        watch(Step::Base(report.base));
        let order = Arc::new(SqliteStore::open(place.with_file_name(ORDER))?);
        let may_be_older = report.base.is_some_and(|base| base.source != Source::Journal);
        let staging = workshop.staging();
        let based = Based { catalog: &catalog, known_until, may_be_older, staging: staging.as_ref() };
        let of_rack = Rack { spec: dir.rack(), uuid: dir.rack_uuid(), drives: rack };
        reconcile(of_rack, based, order, &mut report, watch).await?;
        if !knows_copies {
            refuse_an_older_base(options, &report, known_until)?;
        }
        if report.base.is_none() && report.blobs == 0 && report.drives_unusable > 0 {
            return Err(ServerError::Refused(format!(
                "there is no copy of the catalog, and {} drives cannot be read; make them readable, or name a copy \
                 with --from: nothing was changed",
                report.drives_unusable
            )));
        }
        finish(dir.rack_uuid(), &catalog, workshop.staged.clone(), &mut report).await?;
        report.staged = workshop.lost(&catalog).await?;
        count_starts(rack, &catalog).await?;
    }
    make_what_is_missing(dir)?;
    // Before, for the start that may have to finish it.
    dir.give_what_root_made()?;
    report.replaced = publish(&place, &draft, Manifest::Goes)?.replaced;
    dir.give_what_root_made()?;
    Ok(report)
}

/// The choices of an operator whose journal is older than the rack.
const CHOICES: &str = "add --base drives to rebuild the catalog from the newest copy on drives, without the changes \
                       that only this workshop has, or --base journal to use the journal nevertheless; nothing was \
                       changed";

/// Refuses the journal of a catalog that was found to be older, unless the operator has chosen it.
fn refuse_an_older_journal(options: &Options, base: Option<Base>, why: Option<&str>) -> Result<(), ServerError> {
    let is_journal = base.is_some_and(|base| base.source == Source::Journal);
    let why = why.filter(|_| is_journal && options.base.is_none());
    let refusal =
        why.map(|why| format!("the journal belongs to a catalog that is older than the rack ({why}); {CHOICES}"));
    refusal.map_or(Ok(()), |refusal| Err(ServerError::Refused(refusal)))
}

/// Refuses a base that ends before a copy of the catalog on drives, unless the operator has chosen it.
fn refuse_an_older_base(options: &Options, report: &Report, known_until: Sequence) -> Result<(), ServerError> {
    let newer = report.newest_copy.filter(|copy| *copy > known_until && options.base.is_none());
    let Some(Sequence(copy)) = newer else { return Ok(()) };
    Err(ServerError::Refused(format!(
        "a copy of the catalog on drives leads to batch {copy}, and what was found here to batch {}; {CHOICES}",
        known_until.0
    )))
}

/// Recreates the catalog of `dir` from the workshop alone, if that leads to the last acknowledged batch: from the
/// newest snapshot, the journal, and the log, which always keeps its last batch. The old catalog is kept under another
/// name, which is returned (empty without an old catalog). `None`, and nothing is changed, if the workshop lacks
/// something, or if an older catalog has been used since and has acknowledged batches that this one would lack. No
/// drive is woken.
///
/// A record that is damaged in every snapshot was damaged in the catalog, and is damaged in the new one as well.
///
/// # Errors
/// [`ServerError`]; the catalog is unchanged, or the next start puts the new one in place.
pub(crate) async fn from_workshop(dir: &DataDir) -> Result<Option<String>, ServerError> {
    let (place, draft) = (dir.catalog(), dir.catalog().with_file_name(DRAFT));
    remove_drafts(&place)?;
    let found = files_in(&dir.workshop().join(JOURNAL))?;
    let segments: Vec<PathBuf> = found.segments.into_iter().map(|(_, path)| path).collect();
    let mut best: Option<(u64, &Path)> = None;
    // If the newest is damaged, or has a damaged record, the one before it leads to the same result.
    let others: Vec<PathBuf> = found.snapshots.into_iter().map(|(_, path)| path).collect();
    let from = |snapshot| LoadFrom { snapshot, segments: &segments, others: &others };
    for snapshot in others.iter().rev() {
        match draft_of(dir, from(snapshot), &draft).await? {
            Some(0) => return published(dir).map(Some),
            Some(damaged) if best.is_none_or(|(fewest, _)| damaged < fewest) => best = Some((damaged, snapshot)),
            _ => {}
        }
        remove_drafts(&place)?;
    }
    let Some((damaged, snapshot)) = best else { return Ok(None) };
    if draft_of(dir, from(snapshot), &draft).await?.is_none() {
        remove_drafts(&place)?;
        return Ok(None);
    }
    tracing::warn!(damaged, "records of the catalog were damaged before, and stay damaged");
    published(dir).map(Some)
}

/// Renames the draft, which leads to the last acknowledged batch, to the catalog of `dir`. Returns the new name of the
/// old catalog; empty without one.
fn published(dir: &DataDir) -> Result<String, ServerError> {
    let (place, draft) = (dir.catalog(), dir.catalog().with_file_name(DRAFT));
    let published = publish(&place, &draft, Manifest::Stays)?;
    dir.give_what_root_made()?;
    Ok(published.replaced.unwrap_or_default())
}

/// Makes the draft. Returns the number of damaged records in it, if it leads to the last acknowledged batch and is
/// ready to be the catalog.
///
/// # Errors
/// [`ServerError`] if the draft cannot be written; it is removed then.
async fn draft_of(dir: &DataDir, from: LoadFrom<'_>, draft: &Path) -> Result<Option<u64>, ServerError> {
    match load_snapshot(from, draft, &mut Progress::default().shown()) {
        Ok(loaded) if loaded.rack == dir.rack_uuid().0 => Ok(is_led_to_by(dir, draft).await?.then_some(loaded.damaged)),
        Ok(_) => Ok(None),
        Err(error) if is_of_the_draft(&error) => {
            remove_drafts(&dir.catalog())?;
            Err(unusable(draft, &error.to_string()))
        }
        Err(error) => {
            tracing::warn!(%error, path = %from.snapshot.display(), "a snapshot of the catalog cannot be used");
            Ok(None)
        }
    }
}

/// True if the draft could not be written, so that the snapshot is not to blame.
fn is_of_the_draft(error: &SnapshotError) -> bool {
    matches!(error, SnapshotError::Catalog(CatalogError::Store(StoreError::Full | StoreError::Failed(_))))
}

/// How far the loading of a snapshot is, for the log of a start.
#[derive(Default)]
struct Progress {
    said: Option<Instant>,
}

impl Progress {
    /// Logs the progress every [`PROGRESS`].
    fn shown(&mut self) -> impl FnMut(u64, u64) {
        |done, records| {
            let now = clock::monotonic();
            if now.saturating_duration_since(*self.said.get_or_insert(now)) >= PROGRESS {
                self.said = Some(now);
                tracing::info!("rebuilding the catalog: {done} of {records} records");
            }
        }
    }
}

/// True if the draft, with the batches that only the log of `dir` has, is complete; it is then ready to be the catalog.
async fn is_led_to_by(dir: &DataDir, draft: &Path) -> Result<bool, ServerError> {
    let Some(log) = IntakeLog::look_at_all(dir, &dir.manifest())? else { return Ok(false) };
    let mut report = Report::default();
    let begun = opened(draft, BatchesOf::Log(&log), Missing::IsKnown, &mut report).await?;
    let Opened { catalog, is_in_use_aside, .. } = begun;
    // The last batch always stays in the log. One without any is another's, or new.
    let is_empty = log.last_replayed() == Sequence::default();
    if is_empty || is_in_use_aside || report.behind_log.is_some() || catalog.incomplete().is_some() {
        return Ok(false);
    }
    let staged = Arc::new(DirectoryDrive::open(dir.workshop().join("staged"))?) as Arc<dyn Drive>;
    finish(dir.rack_uuid(), &catalog, Some(staged), &mut report).await?;
    Ok(true)
}

/// Step 3: the catalog learns what the drives have beyond it. `order` is an empty store, of no use afterwards.
///
/// # Errors
/// [`ServerError`]; the catalog is useless then.
pub async fn reconcile(
    rack: Rack<'_>,
    based: Based<'_>,
    order: Arc<dyn Store>,
    report: &mut Report,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<(), ServerError> {
    let catalog = based.catalog;
    let mut adoption = Adoption::new(catalog.clone(), order, based.known_until);
    drives::adopt_all(rack, &based, &mut adoption, report, watch).await?;
    let Adopted { objects, bytes, dead, buckets } = adoption.totals;
    (report.objects, report.bytes, report.dead, report.buckets) = (objects, bytes, dead, buckets);
    report.failed = catalog.failed_drives().await?.into_iter().map(|(drive, _)| drive.0).collect();
    Ok(())
}

/// Makes the draft from the newest valid snapshot and the journal since then. Returns the place of that snapshot, or
/// `None` without one; and true if the copies on drives were looked at.
async fn base(
    (dir, rack): (&DataDir, &mut OfflineRack),
    options: &Options,
    draft: &Path,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<(Option<(Loaded, Source)>, bool), ServerError> {
    let mut found = match options.base {
        Some(BaseChoice::Drives) => JournalFiles::default(),
        Some(BaseChoice::Journal) | None => files_in(&dir.workshop().join(JOURNAL))?,
    };
    let mut whole = usable(dir, &found, Source::Journal, watch);
    let knows_copies = whole.is_empty() && options.base != Some(BaseChoice::Journal);
    if knows_copies {
        let copies = draft.with_file_name(COPIES);
        copies::gather(dir, rack, &copies, watch).await?;
        let on_drives = files_in(&copies)?;
        whole = usable(dir, &on_drives, Source::Drives, watch);
        found.segments.extend(on_drives.segments);
        found.segments.sort();
    }
    if let Some(path) = &options.from {
        match check_snapshot(path) {
            Ok(checked) if checked.rack == dir.rack_uuid().0 => whole.push((checked, path.clone(), Source::Copy)),
            Ok(_) => return Err(unusable(path, "it belongs to another rack; name a copy of this rack's catalog")),
            Err(error) => return Err(unusable(path, &format!("{error}; name another copy"))),
        }
    }
    if let (Some(choice), true) = (options.base, whole.is_empty()) {
        let why = match choice {
            BaseChoice::Journal => "the journal has no copy of the catalog; leave --base out",
            BaseChoice::Drives => "the drives have no copy of the catalog; use --base journal, or name one with --from",
        };
        return Err(ServerError::Refused(format!("{why}: nothing was changed")));
    }
    let segments: Vec<PathBuf> = found.segments.into_iter().map(|(_, path)| path).collect();
    whole.sort_by_key(|(checked, _, _)| Reverse(checked.sequence));
    Ok((load_best(&whole, &segments, draft)?, knows_copies))
}

/// Makes the draft from the first, newest one of `snapshots`. Its damaged records are taken from the others. If some
/// stay damaged, an older one is used that leads as far with fewer of them.
fn load_best(
    snapshots: &[(Loaded, PathBuf, Source)],
    segments: &[PathBuf],
    draft: &Path,
) -> Result<Option<(Loaded, Source)>, ServerError> {
    let others: Vec<PathBuf> = snapshots.iter().map(|(_, path, _)| path.clone()).collect();
    let load = |snapshot: &Path| -> Result<Loaded, ServerError> {
        remove_store(draft)?;
        let loaded = load_snapshot(LoadFrom { snapshot, segments, others: &others }, draft, &mut |_, _| ());
        loaded.map_err(|error| unusable(snapshot, &error.to_string()))
    };
    let (mut best, mut drafted): (Option<(Loaded, usize)>, usize) = (None, 0);
    for (at, (_, path, _)) in snapshots.iter().enumerate() {
        drafted = at;
        let loaded = match load(path) {
            Err(error) if best.is_some() => {
                tracing::warn!(%error, "an older snapshot cannot be used");
                drafted = usize::MAX;
                continue;
            }
            loaded => loaded?,
        };
        if best.is_none_or(|(best, _)| loaded.sequence >= best.sequence && loaded.damaged < best.damaged) {
            best = Some((loaded, at));
        }
        if best.is_some_and(|(best, _)| best.damaged == 0) {
            break;
        }
    }
    let Some((loaded, at)) = best else { return Ok(None) };
    let (_, path, source) = &snapshots[at];
    if at != drafted {
        load(path)?;
    }
    Ok(Some((loaded, *source)))
}

fn files_in(journal: &Path) -> Result<JournalFiles, ServerError> {
    JournalFiles::list(journal).map_err(|error| io_error("listing", journal, error))
}

/// The snapshots among `found` that are undamaged and of this rack.
fn usable(
    dir: &DataDir,
    found: &JournalFiles,
    source: Source,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Vec<(Loaded, PathBuf, Source)> {
    let mut whole = Vec::new();
    for (_, path) in &found.snapshots {
        match check_snapshot(path) {
            Ok(checked) if checked.rack == dir.rack_uuid().0 => whole.push((checked, path.clone(), source)),
            Ok(_) => watch(Step::Unusable(&format!("{}: it belongs to another rack", path.display()))),
            Err(error) => watch(Step::Unusable(&format!("{}: {error}", path.display()))),
        }
    }
    whole
}

fn unusable(path: &Path, why: &str) -> ServerError {
    ServerError::Refused(format!("{}: {why}", path.display()))
}

/// The part of the log in a catalog that is made again.
#[derive(Clone, Copy)]
enum BatchesOf<'a> {
    /// There is no log.
    Nothing,
    /// Nothing is taken from it, and new batches get numbers above its last one.
    NumbersAbove(Sequence),
    /// The batches that follow the snapshot and its segments are taken from it.
    Log(&'a Arc<IntakeLog>),
}

/// The draft, opened as a catalog.
struct Opened {
    catalog: Catalog,
    /// The number of the last batch that it knows.
    known_until: Sequence,
    /// The reason for which a server found the catalog, up to that batch, to be older than the rack.
    found_older: Option<String>,
    /// True if the log ends with batches that an older catalog has acknowledged, and this one lacks.
    is_in_use_aside: bool,
}

/// The treatment of records that a draft lacks, as its digest shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// The catalog reports that it is incomplete.
    IsKnown,
    /// It counts as complete.
    IsGivenUp,
}

/// Opens the draft as a catalog, with the batches that only `log` has. From here on nothing is logged.
async fn opened(
    draft: &Path,
    log: BatchesOf<'_>,
    missing: Missing,
    report: &mut Report,
) -> Result<Opened, ServerError> {
    let mut is_in_use_aside = false;
    let mut options = SqliteOptions { sequence_min: boot::numbers_from(wall_ms()), ..SqliteOptions::default() };
    if let BatchesOf::NumbersAbove(last) = log {
        options.sequence_min = options.sequence_min.max(last);
    }
    let first = match log {
        BatchesOf::Log(log) => {
            let store = SqliteStore::open_with_log(draft, options, Arc::new(ReadLog(Arc::clone(log))))?;
            report.behind_log = store.behind_log().map(str::to_owned);
            is_in_use_aside = store.log_ended_aside();
            options.sequence_min = options.sequence_min.max(log.last_replayed());
            store
        }
        BatchesOf::Nothing | BatchesOf::NumbersAbove(_) => SqliteStore::open_with(draft, options)?,
    };
    // Read before it is given up.
    report.incomplete = first.incomplete().map(str::to_owned);
    drop(first);
    options.accept_incomplete = missing == Missing::IsGivenUp;
    let store = Arc::new(SqliteStore::open_with(draft, options)?);
    let known_until = Store::sequence(&*store);
    let catalog = Catalog::open(store).await?;
    let found_older = catalog.found_older().await?;
    if let Some(why) = &report.behind_log {
        // Its new batches have higher numbers than those that it lacks, so the log no longer shows the gap.
        catalog.set_found_older(Some(why)).await?;
    }
    Ok(Opened { catalog, known_until, found_older, is_in_use_aside })
}

/// Step 4, and the state of a catalog beyond its records. `staged` is the disk of staged files, unless that is lost.
///
/// # Errors
/// [`ServerError`]; the catalog is useless then.
pub async fn finish(
    uuid: RackUuid,
    catalog: &Catalog,
    staged: Option<Arc<dyn Drive>>,
    report: &mut Report,
) -> Result<(), ServerError> {
    if catalog.rack_uuid().await?.is_none() {
        catalog.set_rack_uuid(uuid.0).await?;
    }
    report.owners = catalog.owners_without_keys(ROOT).await?;
    catalog.keep_unknown().await?;
    let survey = match staged {
        Some(staged) => {
            let staging = Staging::new(staged, u64::MAX);
            if is_on(Sabotage::RecoverMarksItsSource) {
                staging.mark_run(1).await?;
                staging.remove_other_marks(staging.marked_runs().await?, 1).await?;
            }
            staging.survey().await?
        }
        None => Survey::default(),
    };
    let Survey { slots_end, marked_runs: marked } = survey;
    catalog.skip_slots(slots_end).await?;
    // A copy that was made while a run went on knows that run, and not all that it staged. A missing record may be the
    // only one that named a staged file.
    let has_all = report.behind_log.is_none()
        && !report.lacks_log
        && report.incomplete.is_none()
        && report.base.is_none_or(|base| base.source == Source::Journal);
    if has_all && catalog.runs().await?.unwrap_or_default().iter().any(|run| marked.contains(run)) {
        return Ok(());
    }
    // Without its own run, no file that the catalog does not know is garbage.
    catalog.set_runs(&[]).await?;
    catalog.set_run_starts(&[]).await?;
    if !marked.is_empty() {
        catalog.set_adopted_marks(&Vec::from_iter(marked)).await?;
    }
    Ok(())
}

/// Counts the starts that the recovery took. Real disks run in real time.
async fn count_starts(rack: &OfflineRack, catalog: &Catalog) -> Result<(), ServerError> {
    let today = boot::modelled_now(catalog, wall_ms(), 1).await?.day();
    for (drive, starts) in rack.starts() {
        let before = catalog.drive(drive).await?;
        let day = before.as_ref().map_or(today, |record| record.day.max(today));
        let of_day = before.as_ref().filter(|record| record.day == day).map_or(0, |record| record.starts);
        let total = before.as_ref().map_or(0, |record| record.starts_total);
        let starts_total = total + u64::from(starts);
        catalog.drive_put(&DriveRecord { drive, day, starts: of_day + starts, starts_total }).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data_dir::InitOptions;
    use crate::offline_rack::tests::described;
    use model::DriveId;
    use parking_lot::Mutex;
    use std::collections::BTreeMap;
    use std::fs;

    #[derive(Default)]
    struct Seen {
        awake: Vec<DriveId>,
        times: BTreeMap<DriveId, u32>,
        passes: Vec<Pass>,
    }

    #[tokio::test]
    async fn one_group_is_awake_at_a_time_and_no_spare_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let (rack, path) = (root.path().join("cupboard.toml"), root.path().join("d"));
        fs::write(&rack, described(None)).unwrap();
        let options = InitOptions { rack: rack.to_str().unwrap().into(), settings: Vec::new(), wipe: Vec::new() };
        drop(DataDir::init(&path, &options).unwrap());
        fs::remove_file(path.join("catalog.db")).unwrap();
        let dir = DataDir::open_to_recover(&path).unwrap();
        let seen = Mutex::new(Seen::default());
        let watch = |step: Step<'_>| {
            let mut seen = seen.lock();
            match step {
                Step::Awake(drives) => {
                    assert!(seen.awake.is_empty(), "the group before it rests");
                    seen.awake = drives.to_vec();
                    for drive in drives {
                        *seen.times.entry(*drive).or_default() += 1;
                    }
                }
                Step::Asleep => seen.awake.clear(),
                Step::Group(pass) => {
                    assert!(seen.awake.is_empty(), "it is through when it rests");
                    seen.passes.push(pass);
                }
                Step::Unusable(what) => panic!("{what}"),
                _ => {}
            }
        };
        recover_directory(&dir, &Options::default(), &watch).await.unwrap();
        let seen = seen.into_inner();
        // Without a journal, copies of it are looked for first.
        assert_eq!(seen.times, (0..5).map(|drive| (DriveId(drive), 2)).collect());
        let done: Vec<(u64, u64, u64)> =
            seen.passes.iter().map(|pass| (pass.groups_done, pass.groups, pass.drives)).collect();
        assert_eq!(done, [(1, 3, 2), (2, 3, 4), (3, 3, 5), (1, 3, 2), (2, 3, 4), (3, 3, 5)]);
        assert!(path.join("catalog.db").exists() && seen.awake.is_empty());
    }
}
