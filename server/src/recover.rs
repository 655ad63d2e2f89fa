//! `larder recover`: a catalog that is lost is made again, while no server runs.
//!
//! 1. From its journal in the workshop, or a copy that the operator names, whichever is newer: the catalog as of a
//!    batch. What the log of small objects has beyond that follows on it. If the workshop is whole, that is all there
//!    is, to the last acknowledged batch.
//! 2. If the workshop has no snapshot, from the copies of it and of the journal on drives (`recover/copies.rs`), which
//!    are looked for in a pass of its own over all groups.
//! 3. From the drives, group after group: every blob that the catalog does not know, and that was begun after the last
//!    batch it has, is adopted with the objects in the index of its pack (`catalog/src/adopt.rs`). A stack that lies
//!    elsewhere than the catalog knows is counted where it is, and a stack missing from a readable drive is marked as
//!    lost, so the server rebuilds it. A blob of which nothing is left, although all of its
//!    drives are there, was removed after that batch, and its objects before.
//! 4. The workshop's mark becomes the recovered catalog's. Staged files that it does not know stay where they are.
//!
//! One group is awake at a time (`offline_rack.rs`), so that no more drives are active than any domain allows.
//!
//! The new catalog is made beside the place of the old one and gets its name at the end; where there is one, it is kept
//! under another name. Nothing else is changed: no drive is written to, and nothing is removed.

mod copies;
mod drives;
mod group;
mod report;

pub use group::Rack;
pub use report::{Base, Options, Pass, Report, Source, Step};

use crate::boot;
use crate::data_dir::{DataDir, JOURNAL};
use crate::error::ServerError;
use crate::intake_log::{IntakeLog, Purpose};
use crate::offline_rack::{OfflineRack, unless_interrupted};
use crate::users::ROOT;
use catalog::{
    Adopted, Adoption, Catalog, CommitLog, DriveRecord, JournalFiles, Loaded, Sequence, SqliteOptions, SqliteStore,
    Store, check_snapshot, load_snapshot,
};
use disk::clock::wall_ms;
use disk::{DirectoryDrive, Drive, RackUuid};
use futures::future::BoxFuture;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use workshop::{Staging, Survey};

/// Numbers of batches that the server draws from the wall clock; so does this, above all that were ever given out.
const SEQUENCE_BITS: u32 = 20;
/// The catalog while it is made, and what of two objects is the newer meanwhile.
const DRAFT: &str = "catalog.db.recovering";
const ORDER: &str = "catalog.db.recovering-order";
/// The copies that were found on drives.
const COPIES: &str = "catalog.db.recovering-copies";
/// Files of the drives that are open at once.
const OPEN_FILES: usize = 256;

/// Makes the catalog of `dir`, which no server holds, again. No drive is awake afterwards.
///
/// # Errors
/// [`ServerError`], an interruption (SIGINT, SIGTERM) among them; the data directory is as it was then, but for drafts
/// that the next try removes.
pub fn recover_directory<'a>(
    dir: &'a DataDir,
    options: &'a Options,
    watch: &'a (dyn Fn(Step<'_>) + Sync),
) -> BoxFuture<'a, Result<Report, ServerError>> {
    // Boxed, so that it is compiled in this crate and not in that of its caller.
    Box::pin(async move {
        let mut rack = OfflineRack::of(dir, OPEN_FILES);
        let done = unless_interrupted(recover(dir, &mut rack, options, watch)).await;
        rack.rest().await;
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
    if place.exists() && !options.replace {
        return Err(ServerError::Refused(format!(
            "{} is there; if it is lost all the same (`larder verify` says what is wrong with it), add --replace: it \
             is kept under another name",
            place.display()
        )));
    }
    let draft = place.with_file_name(DRAFT);
    remove_drafts(&place)?;
    let loaded = base((dir, rack), options, &draft, watch).await?;
    let based = |(Loaded { made_ms, records, batches, damaged, .. }, source)| Base {
        source,
        made_ms,
        records,
        batches,
        damaged,
    };
    let mut report = Report { base: loaded.map(based), ..Report::default() };
    watch(Step::Base(report.base));
    {
        let (catalog, known_until) = opened(dir, &draft, loaded.is_some(), &mut report).await?;
        let order = Arc::new(SqliteStore::open(place.with_file_name(ORDER))?);
        let may_be_older = report.base.is_some_and(|base| base.source != Source::Journal);
        let based = Based { catalog: &catalog, known_until, may_be_older };
        let of_rack = Rack { spec: dir.rack(), uuid: dir.rack_uuid(), drives: rack };
        reconcile(of_rack, based, order, &mut report, watch).await?;
        if report.base.is_none() && report.blobs == 0 && report.drives_unusable > 0 {
            return Err(ServerError::Refused(format!(
                "there is no copy of the catalog, and {} drives cannot be read; make them readable, or name a copy \
                 with --from: nothing was changed",
                report.drives_unusable
            )));
        }
        // A run that no file in the workshop is of.
        let run = getrandom::u64().map_err(|error| ServerError::Refused(error.to_string()))? >> 1;
        let workshop = staged_files(dir)?.map(|staged| (staged, run.max(1)));
        finish(dir.rack_uuid(), &catalog, workshop, &mut report).await?;
        count_starts(rack, &catalog).await?;
    }
    report.replaced = put_in_place(&place, &draft)?;
    dir.give_what_root_made()?;
    Ok(report)
}

/// What the recovered catalog begins with.
pub struct Based<'a> {
    /// The catalog, with all that copies of the old one and the log have.
    pub catalog: &'a Catalog,
    /// The number of the last batch of the old one that it has; 0 if it has nothing.
    pub known_until: Sequence,
    /// The old one may have had batches after that one.
    pub may_be_older: bool,
}

/// Step 3: the catalog learns what the drives have beyond it. `order` is an empty store, of no use afterwards.
///
/// # Errors
/// [`ServerError`]; the catalog is of no use then.
pub async fn reconcile(
    rack: Rack<'_>,
    Based { catalog, known_until, may_be_older }: Based<'_>,
    order: Arc<dyn Store>,
    report: &mut Report,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<(), ServerError> {
    let mut adoption = Adoption::new(catalog.clone(), order, known_until);
    drives::adopt_all(rack, catalog, (&mut adoption, may_be_older), report, watch).await?;
    let Adopted { objects, bytes, dead, buckets } = adoption.totals;
    (report.objects, report.bytes, report.dead, report.buckets) = (objects, bytes, dead, buckets);
    report.failed = catalog.failed_drives().await?.into_iter().map(|(drive, _)| drive.0).collect();
    Ok(())
}

/// The files of a catalog at `path`.
fn files_of(path: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    ["", "-wal", "-shm", "-journal", ".lock"].into_iter().map(|end| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(end);
        path.with_file_name(name)
    })
}

/// Removes what a recovery that was ended has left: nobody else makes files of these names.
fn remove_drafts(place: &Path) -> Result<(), ServerError> {
    for name in [DRAFT, ORDER] {
        for path in files_of(&place.with_file_name(name)) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("removing", &path, error));
                }
                _ => {}
            }
        }
    }
    let copies = place.with_file_name(COPIES);
    match fs::remove_dir_all(&copies) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("removing", &copies, error)),
        _ => Ok(()),
    }
}

fn io_error(what: &str, path: &Path, error: io::Error) -> ServerError {
    ServerError::Io(format!("{what} {}", path.display()), error)
}

/// Makes the draft of the newest of the snapshots that are whole, with what the journal has since, and says where that
/// snapshot was; `None` if there is none.
async fn base(
    (dir, rack): (&DataDir, &mut OfflineRack),
    options: &Options,
    draft: &Path,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Option<(Loaded, Source)>, ServerError> {
    let journal = dir.workshop().join(JOURNAL);
    let mut found = files_in(&journal)?;
    let mut whole = usable(dir, &found, Source::Journal, watch);
    if whole.is_empty() {
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
            Ok(_) => return Err(unusable(path, "it is of another rack; name this rack's")),
            Err(error) => return Err(unusable(path, &format!("{error}; name another copy"))),
        }
    }
    let segments: Vec<PathBuf> = found.segments.into_iter().map(|(_, path)| path).collect();
    let newest = whole.into_iter().max_by_key(|(checked, _, _)| checked.sequence);
    let Some((_, newest, source)) = newest else { return Ok(None) };
    let loaded = load_snapshot(&newest, &segments, draft);
    loaded.map(|loaded| Some((loaded, source))).map_err(|error| unusable(&newest, &error.to_string()))
}

fn files_in(journal: &Path) -> Result<JournalFiles, ServerError> {
    JournalFiles::list(journal).map_err(|error| io_error("listing", journal, error))
}

/// Those of the snapshots that were `found` that are whole, and of this rack.
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
            Ok(_) => watch(Step::Unusable(&format!("{}: it is of another rack", path.display()))),
            Err(error) => watch(Step::Unusable(&format!("{}: {error}", path.display()))),
        }
    }
    whole
}

fn unusable(path: &Path, why: &str) -> ServerError {
    ServerError::Refused(format!("{}: {why}", path.display()))
}

/// The draft as a catalog, with what the log in front of it has; and the number of the last batch that it knows.
async fn opened(
    dir: &DataDir,
    draft: &Path,
    has_base: bool,
    report: &mut Report,
) -> Result<(Catalog, Sequence), ServerError> {
    let options = SqliteOptions {
        sequence_min: Sequence(wall_ms() << SEQUENCE_BITS),
        accept_incomplete: true,
        ..SqliteOptions::default()
    };
    // Without a base nothing of the log can follow: it stays, for a server whose operator says which catalog counts.
    let log = if has_base { IntakeLog::of(dir, Purpose { is_given_up: true, ..Purpose::default() })? } else { None };
    let store = match log {
        Some(log) => SqliteStore::open_with_log(draft, options, log as Arc<dyn CommitLog>)?,
        None => SqliteStore::open_with(draft, options)?,
    };
    let store = Arc::new(store);
    let known_until = Store::sequence(&*store);
    let catalog = Catalog::open(store).await?;
    report.behind_log = catalog.behind_log().map(str::to_owned);
    Ok((catalog, known_until))
}

/// The disk of the staged files of `dir`, if there is one; if not, a workshop without any is made.
fn staged_files(dir: &DataDir) -> Result<Option<Arc<dyn Drive>>, ServerError> {
    let staged = dir.workshop().join("staged");
    if staged.exists() {
        return Ok(Some(Arc::new(DirectoryDrive::open(&staged)?)));
    }
    for made in [&staged, &dir.workshop().join("spool")] {
        disk::private::make_directory(made).map_err(|error| io_error("making", made, error))?;
    }
    Ok(None)
}

/// Step 4, and what a catalog has beyond its records. `workshop` is the disk of staged files, if that is not lost, and
/// the number of a run that none of these is of.
///
/// # Errors
/// [`ServerError`]; the catalog is of no use then.
pub async fn finish(
    uuid: RackUuid,
    catalog: &Catalog,
    workshop: Option<(Arc<dyn Drive>, u64)>,
    report: &mut Report,
) -> Result<(), ServerError> {
    if catalog.rack_uuid().await?.is_none() {
        catalog.set_rack_uuid(uuid.0).await?;
    }
    report.owners = catalog.owners_without_keys(ROOT).await?;
    catalog.keep_unknown().await?;
    let Some((staged, run)) = workshop else {
        report.staged = catalog.staged_usage().await?.count;
        // There is no workshop that it would have to fit.
        return Ok(catalog.set_runs(&[]).await?);
    };
    let staging = Staging::new(staged, u64::MAX);
    let Survey { slots_end, marked_runs: marked } = staging.survey().await?;
    catalog.skip_slots(slots_end).await?;
    let known = catalog.runs().await?.unwrap_or_default();
    if marked.is_empty() || known.iter().any(|run| marked.contains(run)) {
        return Ok(());
    }
    // What the catalog does not know there is nobody's garbage.
    catalog.set_runs(&[run]).await?;
    staging.mark_run(run).await?;
    Ok(staging.remove_other_marks(marked, run).await?)
}

/// Counts the starts that the recovery took: of disks, which run as fast as life.
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

/// Gives the draft the name of the catalog. Where the one that was there is now.
fn put_in_place(place: &Path, draft: &Path) -> Result<Option<String>, ServerError> {
    let mut replaced = None;
    if place.exists() {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".replaced-{}", wall_ms()));
        let aside = place.with_file_name(name);
        for (from, to) in files_of(place).zip(files_of(&aside)) {
            if from.exists() {
                fs::rename(&from, &to).map_err(|error| io_error("moving", &from, error))?;
            }
        }
        replaced = Some(aside.display().to_string());
    }
    for (from, to) in files_of(draft).zip(files_of(place)) {
        if from.exists() {
            fs::rename(&from, &to).map_err(|error| io_error("naming", &from, error))?;
        }
    }
    remove_drafts(place)?;
    let dir = place.parent().unwrap_or(place);
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| io_error("syncing", dir, error))?;
    Ok(replaced)
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
