//! `larder verify`: compares catalog, workshop and drives with each other.
//!
//! 1. Every record of the catalog against all others about the same thing, and against the rack; all of them against
//!    the digest of keys in the catalog's file.
//! 2. Every staged version against its file; every file of the workshop against the catalog.
//! 3. Group by group, each awake once and one at a time: every blob against its stacks, every stack against the blobs.
//!
//! The quick form reads the ends of files, the deep form everything.
//!
//! Invariants: nothing is changed; memory holds pages of the catalog, the slots of the staged files, the names on a
//! drive, and the first findings (all of them are reported as they come); nothing else may change the data meanwhile,
//! except the server beside which the verification runs (`serving.rs`).

mod beside;
mod gathered;
mod lost;
mod packed;
mod rack;
mod report;
mod serving;
mod staged;

pub use beside::{ASLEEP, FindingQueue, Serving};
pub use report::{
    Finding, FindingKind, Leftovers, Options, RackCounts, Report, SkippedGroup, VerifyPhase, VerifyProgress,
    VerifyRequest, WorkshopCounts,
};

use crate::catalog_age;
use crate::data_dir::DataDir;
use crate::error::ServerError;
use crate::intake_log::IntakeLog;
use crate::offline_rack::{OfflineRack, unless_interrupted};
use beside::Beside;
use catalog::{Audit, Catalog, CommitLog, SqliteStore, Store};
use disk::label::RackUuid;
use disk::{DirectoryDrive, Drive};
use futures::future::BoxFuture;
use model::{DriveId, RackSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Mutex;
use workshop::{SmallFiles, Staging};

/// Records read at once.
const PAGE: usize = 1_024;

/// Open files on all drives together: well below the usual limit of a process.
const OPEN_FILES: usize = 64;

const RESTORE: &str = "restore the catalog from a backup that is as new as the workshop, or, while no server runs, \
                       rebuild it from its journal with `larder recover --replace`";
const REPORT: &str = "keep a copy of the data directory, restore the catalog from a backup, and report this";

/// The progress of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The catalog's records are compared. The duration is not known.
    Catalog,
    /// Staged files are checked next.
    Workshop {
        /// Their number.
        files: u64,
    },
    /// Blobs are checked next.
    Rack {
        /// The number of blobs.
        blobs: u64,
        /// The number of groups that store them; each must be awake once.
        groups: u64,
    },
    /// Beside a server: the groups are scrubbed.
    Scrubbing {
        /// The share that is done, in thousandths.
        permille: u64,
    },
    /// One file or blob was checked.
    Done,
    /// A fault was found. Every finding is reported as a step, as it comes; a report has only the first ones.
    Found(&'a Finding),
}

/// The three sides that are compared.
pub struct Ground {
    /// The rack.
    pub rack: RackSpec,
    /// Its identity.
    pub rack_uuid: RackUuid,
    /// The catalog.
    pub catalog: Catalog,
    /// The staged files.
    pub staging: Staging,
    /// The same files, if small ones are records of a log.
    pub small: Option<Arc<SmallFiles>>,
    /// The drive of the recalls; `None` beside a server, which uses it.
    pub spool: Option<Arc<dyn Drive>>,
    /// The drives of the rack. `None` beside a server, which lends its own, or if drives are not to be inspected.
    pub drives: Option<Mutex<OfflineRack>>,
    /// The server that uses all this meanwhile.
    pub serving: Option<Serving>,
}

/// Verifies the data directory `dir`, which no server holds. `watch` is called with the progress.
///
/// # Errors
/// [`ServerError`] if the verification fails. A fault in the data is not an error but a [`Finding`].
pub fn verify_directory<'a>(
    dir: &'a DataDir,
    options: Options,
    watch: &'a (dyn Fn(Step<'_>) + Sync),
) -> BoxFuture<'a, Result<Report, ServerError>> {
    // Boxed, so that it and the futures below it are compiled in this crate and not in the caller's.
    Box::pin(open_and_verify(dir, options, watch))
}

async fn open_and_verify(
    dir: &DataDir,
    options: Options,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Report, ServerError> {
    watch(Step::Catalog);
    let log = IntakeLog::look_at(dir)?;
    let store = SqliteStore::open_read_only(dir.catalog(), log.clone().map(|log| log as Arc<dyn CommitLog>))?;
    let store: Arc<dyn Store> = Arc::new(store);
    let damage = store.check_pages().await?;
    if !damage.is_empty() {
        let mut report = Report::default();
        for line in damage {
            let finding = page_fault(&line);
            watch(Step::Found(&finding));
            report.found(finding);
        }
        return Ok(report);
    }
    let open = |name: &str| -> Result<Arc<dyn Drive>, ServerError> {
        Ok(Arc::new(DirectoryDrive::open(dir.workshop().join(name))?))
    };
    // A server claims its catalog after it has made the workshop: a claimed catalog without one has lost it.
    let catalog = Catalog::open_read_only(store).await?;
    let claimed = catalog.rack_uuid().await?.is_some();
    if !claimed && catalog.incomplete().is_none() && !dir.workshop().join("staged").exists() {
        return Ok(Report { clean: true, ..Report::default() });
    }
    let staged = open("staged")?;
    let small = log.map(|log| Arc::new(SmallFiles::new(Arc::clone(&staged), log, 0)));
    let staging = match &small {
        Some(small) => Staging::with_records(Arc::clone(small), u64::MAX),
        None => Staging::new(staged, u64::MAX),
    };
    let ground = Ground {
        rack: dir.rack().clone(),
        rack_uuid: dir.rack_uuid(),
        catalog,
        staging,
        small,
        spool: Some(open("spool")?),
        drives: options.drives.then(|| Mutex::new(OfflineRack::of(dir, OPEN_FILES))),
        serving: None,
    };
    let Some(rack) = &ground.drives else { return verify(&ground, options, watch).await };
    let verified = unless_interrupted(verify(&ground, options, watch)).await;
    rack.lock().await.rest().await;
    verified
}

/// Verifies `ground`.
///
/// # Errors
/// As [`verify_directory`].
pub async fn verify(
    ground: &Ground,
    options: Options,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Report, ServerError> {
    let (failed, report) = (BTreeSet::new(), Report::default());
    let blobs_end = ground.catalog.blobs_end().await?;
    let (lost, is_newest, beside) = (Vec::new(), true, Beside::default());
    let awake = BTreeMap::new();
    let mut work = Verification { ground, options, watch, failed, awake, lost, blobs_end, is_newest, report, beside };
    if work.page_faults().await? {
        return Ok(work.report);
    }
    work.catalog().await?;
    let accounts = work.accounts().await?;
    // Releases the view, which has kept changes from being folded into the catalog's file.
    work.beside.view = None;
    work.workshop().await?;
    work.rack(accounts).await?;
    work.report.clean = work.report.finding_count == 0;
    Ok(work.report)
}

fn page_fault(line: &str) -> Finding {
    Finding::new(FindingKind::CatalogFile, format!("catalog.db: {line}"), RESTORE)
}

/// A verification under way.
struct Verification<'a> {
    ground: &'a Ground,
    options: Options,
    watch: &'a (dyn Fn(Step<'_>) + Sync),
    /// Permanently failed drives.
    failed: BTreeSet<DriveId>,
    /// Drives that are awake, while no server runs.
    awake: BTreeMap<DriveId, Arc<dyn Drive>>,
    /// Blobs whose objects are still to be listed.
    lost: Vec<gathered::LostBlob>,
    /// Every blob number that this catalog ever assigned is below this.
    blobs_end: u64,
    /// True if nothing shows that the workshop or the rack was used with a newer catalog.
    is_newest: bool,
    report: Report,
    beside: Beside,
}

impl Verification<'_> {
    async fn catalog(&mut self) -> Result<(), ServerError> {
        (self.watch)(Step::Catalog);
        if let Some(found) = self.ground.catalog.rack_uuid().await?.filter(|found| *found != self.ground.rack_uuid.0) {
            let what = format!("the catalog belongs to rack {}, not to {}", RackUuid(found), self.ground.rack_uuid);
            self.found(Finding::new(FindingKind::ForeignCatalog, what, "put this rack's own catalog back"));
        }
        if let Some(behind) = self.ground.catalog.behind_log() {
            let what = format!("catalog.db is older than its log: {behind}");
            self.found(Finding::new(FindingKind::CatalogFile, what, RESTORE));
        }
        if let Some(flaw) = self.ground.catalog.incomplete() {
            let what = format!("catalog.db is not complete: {flaw}");
            self.found(Finding::new(FindingKind::CatalogFile, what, catalog_age::FIX));
        }
        let mut audit = self.audit().await?;
        let findings = std::mem::take(&mut audit.findings);
        let (unlisted, unfinished) = (audit.contradictions - findings.len() as u64, audit.intents);
        // Beside a server they are under way.
        let left = if self.ground.serving.is_none() { unfinished } else { 0 };
        (self.report.catalog, self.report.leftovers.unfinished_blobs) = (audit, left);
        for what in findings {
            self.found(Finding::new(FindingKind::CatalogRecord, what, REPORT));
        }
        self.report.finding_count += unlisted;
        Ok(())
    }

    /// The audit of the records, as of one moment.
    async fn audit(&mut self) -> Result<Audit, ServerError> {
        if self.ground.serving.is_none() {
            return Ok(self.ground.catalog.audit().await?);
        }
        let view = self.ground.catalog.view().await?;
        self.beside.view = Some(view.clone());
        Ok(view.audit().await?)
    }

    /// True if the catalog's file itself is damaged, beside a server; without one it was checked first.
    async fn page_faults(&mut self) -> Result<bool, ServerError> {
        if self.ground.serving.is_none() {
            return Ok(false);
        }
        let faults = self.ground.catalog.check_pages().await?;
        for line in &faults {
            self.found(page_fault(line));
        }
        Ok(!faults.is_empty())
    }

    /// The catalog whose records are compared with each other.
    fn compared(&self) -> &Catalog {
        self.beside.view.as_ref().unwrap_or(&self.ground.catalog)
    }

    /// Reports a fault.
    fn found(&mut self, finding: Finding) {
        (self.watch)(Step::Found(&finding));
        if let Some(serving) = &self.ground.serving {
            serving.findings.push(&finding);
        }
        self.report.found(finding);
    }

    /// The name of the object with this version, if it is in the workshop.
    async fn object_of(&self, version: catalog::VersionId) -> Option<String> {
        let (bucket, key) = self.ground.catalog.staged_key_of(version).await.ok()??;
        Some(format!("s3://{bucket}/{key}"))
    }
}
