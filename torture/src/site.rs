//! Everything that outlives a life of the server: media, catalog, clocks, and the knowledge about them; and the server
//! that runs on it in each life.

use crate::faulty_drive::FaultyDrive;
pub(crate) use crate::faulty_drive::RACK;
use crate::faulty_store::{FaultyStore, Log};
use crate::front::{Cut, Front};
use crate::journal::{Journal, Rule};
use crate::kinds::FaultKind;
use crate::overlay::{Overlay, Records};
use crate::plan::{ABSENT_FROM, Plan, Stream};
use crate::power::Power;
use crate::trace_judge::TraceJudge;
use catalog::{Blob, Bucket, Catalog, MemoryStore};
use disk::label::{Device, DriveLabel, DriveUuid, Label};
use disk::{Drive, EmulatedRack, MemoryDrive};
use engine::layout::Layout;
use engine::trace::Record;
use futures::FutureExt;
use model::{BlobId, DriveId, RackSpec};
use parking_lot::Mutex;
use s3::store::ObjectStore;
use server::boot;
use server::data_dir::Credentials;
use server::error::ServerError;
use server::holds::Holds;
use server::object_service::ObjectService;
use server::pacing::Pacing;
use server::processor::Processor;
use server::repartition::Repartitions;
use server::status_service::StatusService;
use server::users::Users;
use server::world::{Context, Nonce, SmallObjects, Spawn, WorldCounters, WorldHandle, nonces};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use workshop::{SmallFiles, Spool, Staging};

/// The bucket of all clients.
pub(crate) const BUCKET: &str = "shelf";

/// Maximum length of a life; a longer one counts as endless.
const LIFE_MAX: Duration = Duration::from_hours(200 * 24);

/// Capacity of the disks of workshop and spool, in bytes: enough for everything that they are given.
const DISK_BYTES: u64 = 1 << 30;

/// Objects below this number of bytes are stored in the log, where there is one; about half of the objects are.
const SMALL_BELOW_BYTES: u64 = 20_000;

/// Memory for uncommitted small objects, in bytes: little, so some become files.
const PENDING_BYTES: u64 = 60_000;

/// The earliest time that a jumping wall clock may show, in milliseconds since the Unix epoch.
const WALL_MIN_MS: i64 = 1_000_000_000_000;

/// Everything that outlives a life of the server.
pub(crate) struct Site {
    pub(crate) plan: Plan,
    pub(crate) spec: Arc<RackSpec>,
    pub(crate) layout: Layout,
    pub(crate) power: Power,
    pub(crate) catalog: MemoryStore,
    /// The newest catalog, while an older one is in its place.
    pub(crate) newest: Option<MemoryStore>,
    /// The end of the catalog's own log.
    pub(crate) log: Log,
    /// The log in front of the catalog, which stores small objects, if there is one.
    front: Mutex<Option<Front>>,
    pub(crate) overlay: Overlay,
    pub(crate) journal: Arc<Journal>,
    pub(crate) judge: Arc<Mutex<TraceJudge>>,
    /// The wall clock at the start of this life, and its jumps since then, in milliseconds.
    wall_ms: u64,
    jumped_ms: Arc<AtomicI64>,
    /// Lives so far.
    booted: u64,
}

/// A running server.
pub(crate) struct Running {
    pub(crate) service: ObjectService,
    pub(crate) world: WorldHandle,
    pub(crate) context: Context,
    pub(crate) rack: Arc<EmulatedRack>,
    pub(crate) status: StatusService,
    /// Repartition jobs, if the plan has them.
    pub(crate) jobs: Option<Repartitions>,
    /// Users besides root, if the plan has them.
    pub(crate) users: Option<Users>,
    pub(crate) overlay: Overlay,
    pub(crate) power: Power,
    pub(crate) catalog: MemoryStore,
    pub(crate) log: Log,
    pub(crate) journal: Arc<Journal>,
    pub(crate) judge: Arc<Mutex<TraceJudge>>,
    pub(crate) jumped_ms: Arc<AtomicI64>,
    pub(crate) spec: Arc<RackSpec>,
    /// Drives that lost their power because the storm tripped a fuse.
    pub(crate) trips: Arc<AtomicU64>,
}

/// The outcome of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It finished.
    Finished,
    /// The power failed, or the process was killed.
    Crashed,
    /// The server did not start.
    NotBooted,
}

impl Site {
    pub(crate) fn new(plan: Plan) -> Self {
        let spec = plan.rack.spec();
        let layout = engine::layout::synthesise(&spec).unwrap_or_else(|error| panic!("racks of runs lay out: {error}"));
        let medium = |bytes| Arc::new(MemoryDrive::new(bytes));
        let mut media: Vec<_> = spec.drives.iter().map(|drive| medium(spec.capacity_bytes(drive.id))).collect();
        if plan.seed >= ABSENT_FROM {
            media.iter().zip(&spec.drives).for_each(|(medium, drive)| label(medium, &spec, drive.id));
        }
        media.extend([medium(DISK_BYTES), medium(DISK_BYTES)]);
        let overlay = Overlay::new(media, usize::from(spec.code.parity), (plan.beyond, Stream::Media.of(plan.seed)));
        overlay.state().gives_up = plan.gives_up();
        overlay.state().groups = spec.drives.iter().map(|drive| layout.group_of(drive.id)).collect();
        let journal = Arc::new(Journal::default());
        let mut front = Front::of(&plan, (&journal, &overlay));
        Self {
            power: Power::default(),
            catalog: behind(front.as_mut(), MemoryStore::new().with_delay(plan.commit_delay), Cut::None),
            newest: None,
            log: Log::default(),
            front: Mutex::new(front),
            overlay,
            judge: Arc::new(Mutex::new(TraceJudge::default())),
            journal,
            wall_ms: 1_700_000_000_000,
            jumped_ms: Arc::default(),
            booted: 0,
            spec: Arc::new(spec),
            layout,
            plan,
        }
    }

    /// `store` with the log in front, if there is one: changes that it lacks are taken from the log.
    pub(crate) fn behind_front(&self, store: MemoryStore, cut: Cut) -> MemoryStore {
        behind(self.front.lock().as_mut(), store, cut)
    }

    /// The numbers of the workshop's and the spool's disk among the drives.
    pub(crate) fn disks(&self) -> [usize; 2] {
        [self.spec.drives.len(), self.spec.drives.len() + 1]
    }

    /// Boots the server and runs `life` until it ends, the power fails or a rule is broken.
    pub(crate) fn live(&mut self, life: impl AsyncFnOnce(&Running)) -> Ended {
        let runtime = virtual_time();
        self.booted += 1;
        let (ended, lived_ms) = runtime.block_on(async {
            let started = disk::clock::monotonic();
            self.journal.begin_life(started);
            let (power, journal) = (self.power.clone(), Arc::clone(&self.journal));
            let ended = tokio::select! {
                biased;
                () = journal.violated() => Ended::Crashed,
                () = power.failed() => Ended::Crashed,
                ended = self.boot_and(started, life) => ended,
                () = self.log_works() => Ended::Crashed,
                () = tokio::time::sleep(LIFE_MAX) => {
                    journal.broken(Rule::Live, || "a life went on for 200 days".to_owned());
                    Ended::Crashed
                }
            };
            (ended, self.journal.end_life())
        });
        drop(runtime);
        let wall = self.wall_ms.cast_signed() + self.jumped_ms.swap(0, Ordering::Relaxed) + lived_ms.cast_signed();
        self.wall_ms = wall.max(WALL_MIN_MS) as u64;
        ended
    }

    /// Runs the log's background tasks, until the life ends.
    async fn log_works(&self) {
        let own = self.front.lock().as_ref().and_then(Front::own);
        match own {
            Some((log, rng)) => log.work(rng, &self.power).await,
            None => std::future::pending().await,
        }
    }

    async fn boot_and(&self, started: Instant, life: impl AsyncFnOnce(&Running)) -> Ended {
        match self.boot(started).await {
            Ok(running) => {
                life(&running).await;
                Ended::Finished
            }
            Err(error) => {
                self.journal.note(|| format!("the server does not start: {error}"));
                let faults = self.overlay.state().faults();
                self.journal.demand(faults > 0, Rule::Honest, || format!("a start fails without a fault: {error}"));
                Ended::NotBooted
            }
        }
    }

    /// Does `work` while no server runs. Virtual time passes meanwhile.
    pub(crate) fn offline<T>(&mut self, work: impl AsyncFnOnce(&Self) -> T) -> T {
        let runtime = virtual_time();
        let (done, took_ms) = runtime.block_on(async {
            self.journal.begin_life(disk::clock::monotonic());
            let done = work(self).await;
            (done, self.journal.end_life())
        });
        self.wall_ms += took_ms;
        done
    }

    /// Applies the changes in the catalog's own log to the catalog, as a start does.
    pub(crate) async fn open_log(&self) {
        self.log.open(&self.catalog).await;
    }

    /// Drops the catalog's own log, which is lost.
    pub(crate) fn forget_log(&mut self) {
        self.log = Log::default();
    }

    /// True if there is a log in front of the catalog.
    pub(crate) fn has_front(&self) -> bool {
        self.front.lock().is_some()
    }

    /// True if that log is the server's own.
    pub(crate) fn has_own_log(&self) -> bool {
        matches!(*self.front.lock(), Some(Front::Own(_)))
    }

    /// Time passes while no server runs, and the wall clock may be set.
    pub(crate) fn rest(&mut self, span: Duration, wall_jump_ms: i64) {
        self.journal.rest(span);
        let wall = self.wall_ms.cast_signed() + span.as_millis() as i64 + wall_jump_ms;
        self.wall_ms = wall.max(WALL_MIN_MS) as u64;
    }

    pub(crate) fn faulty(&self, number: usize) -> Arc<dyn Drive> {
        let (overlay, power) = (self.overlay.clone(), self.power.clone());
        Arc::new(FaultyDrive { number, overlay, power, journal: Arc::clone(&self.journal) })
    }

    /// Starts tasks whose panics end the run.
    fn spawn(&self) -> Spawn {
        let journal = Arc::clone(&self.journal);
        Arc::new(move |task| {
            let journal = Arc::clone(&journal);
            drop(tokio::spawn(async move {
                if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                    journal.broken(Rule::Assertion, crate::panics::last);
                }
            }));
        })
    }

    fn small(&self, staged: &Arc<dyn Drive>) -> Option<SmallObjects> {
        let log = self.front.lock().as_ref()?.records()?;
        let files = Arc::new(SmallFiles::new(Arc::clone(staged), log, PENDING_BYTES));
        Some(SmallObjects { files, below_bytes: SMALL_BELOW_BYTES })
    }

    fn nonce(&self, salt: u64) -> Nonce {
        nonces(self.plan.seed ^ salt ^ self.booted << 8)
    }

    async fn boot(&self, started: Instant) -> Result<Running, ServerError> {
        let base_ms = self.wall_ms;
        self.log.open(&self.catalog).await;
        let store = FaultyStore::new(self.catalog.clone(), self.power.clone(), self.log.clone());
        let catalog = Catalog::open(Arc::new(store)).await?;
        self.show_catalog().await?;
        if !self.plan.unseen && catalog.initialised_drives().await?.is_empty() {
            let all: Vec<DriveId> = self.spec.drives.iter().map(|drive| drive.id).collect();
            catalog.note_initialised(&all, base_ms).await?;
        }
        let clock = boot::clock(&catalog, base_ms, 1).await?;
        let seed = self.plan.seed ^ self.booted;
        let rack =
            Arc::new(EmulatedRack::new(&self.spec, seed, Arc::clone(&clock), |drive| self.faulty(drive.index())));
        self.pull_what_is_away(&rack);
        let context = self.context(&catalog, (clock, started), &rack);
        let policy = self.plan.policy.clone();
        self.judge.lock().begin_life((&self.spec, &self.layout), &policy, seed, self.may_have_forgotten());
        let world = boot::boot((*self.spec).clone(), policy, seed, &context, rack.clone()).await?;
        let service = ObjectService::new(context.clone(), world.clone(), self.plan.max_wait);
        if service.head_bucket(BUCKET).await.is_err() {
            let bucket = Bucket::new(BUCKET, 0, server::users::ROOT);
            let made = service.create_bucket(bucket).await;
            made.map(drop).map_err(|error| ServerError::Refused(error.to_string()))?;
        }
        Ok(Running {
            jobs: self.jobs(&context, &world).await?,
            users: self.users(&context).await?,
            status: StatusService::new(context.clone(), world.clone(), rack.clone()),
            service,
            world,
            context,
            rack,
            overlay: self.overlay.clone(),
            power: self.power.clone(),
            catalog: self.catalog.clone(),
            log: self.log.clone(),
            journal: Arc::clone(&self.journal),
            judge: Arc::clone(&self.judge),
            jumped_ms: Arc::clone(&self.jumped_ms),
            spec: Arc::clone(&self.spec),
            trips: Arc::default(),
        })
    }

    async fn jobs(&self, context: &Context, world: &WorldHandle) -> Result<Option<Repartitions>, ServerError> {
        if !self.plan.jobs {
            return Ok(None);
        }
        Ok(Some(Repartitions::start(context.clone(), world.clone(), (*self.spec).clone()).await?))
    }

    async fn users(&self, context: &Context) -> Result<Option<Users>, ServerError> {
        if !self.plan.users {
            return Ok(None);
        }
        let root = Credentials { access_key: "LRDRROOT".to_owned(), secret_key: "secret".to_owned() };
        let opened = Users::open(context.catalog.clone(), PathBuf::new(), &root, context.wall.clone());
        Ok(Some(opened.await?))
    }

    /// True if the catalog may have forgotten data that it should have persisted.
    fn may_have_forgotten(&self) -> bool {
        let state = self.overlay.state();
        let forgetful = [
            FaultKind::CatalogFull,
            FaultKind::CatalogMisread,
            FaultKind::CommitUnsynced,
            FaultKind::CommitUnanswered,
            FaultKind::OlderCatalog,
            FaultKind::LostCatalog,
        ];
        forgetful.iter().any(|kind| state.happened.contains_key(kind))
    }

    fn pull_what_is_away(&self, rack: &EmulatedRack) {
        let (state, now) = (self.overlay.state(), self.journal.now_ms());
        for drive in &self.spec.drives {
            let faults = &state.drives[drive.id.index()];
            if faults.given_up || faults.conditions.away_until > now {
                rack.pull(drive.id);
            }
        }
    }

    /// Lets faults use the catalog as it is now, and the newest one if that is another.
    pub(crate) async fn show_catalog(&self) -> Result<(), ServerError> {
        let newest = match &self.newest {
            Some(newest) => Some(records(newest).await?),
            None => None,
        };
        self.overlay.set_catalog(records(&self.catalog).await?, newest);
        Ok(())
    }

    fn context(
        &self,
        catalog: &Catalog,
        (clock, started): (Arc<dyn disk::Clock>, Instant),
        rack: &Arc<EmulatedRack>,
    ) -> Context {
        let (base_ms, jumped) = (self.wall_ms, Arc::clone(&self.jumped_ms));
        let [staged, spooled] = self.disks().map(|disk| self.faulty(disk));
        let small = self.small(&staged);
        let staging = match &small {
            Some(small) => Staging::with_records(Arc::clone(&small.files), self.plan.workshop_bytes),
            None => Staging::new(staged, self.plan.workshop_bytes),
        };
        let file_nonce = self.nonce(2);
        let (judge, journal, power) = (Arc::clone(&self.judge), Arc::clone(&self.journal), self.power.clone());
        Context {
            clock,
            wall: Arc::new(move || {
                let wall =
                    base_ms.cast_signed() + started.elapsed().as_millis() as i64 + jumped.load(Ordering::Relaxed);
                wall.max(0) as u64
            }),
            spawn: self.spawn(),
            drives: rack.drives().into(),
            rack_uuid: RACK,
            nonce: self.nonce(1),
            processor: Processor::Modelled { bytes_per_s: 500_000_000 },
            catalog: catalog.clone(),
            staging: staging.with_nonces(move || file_nonce()),
            small,
            spool: Spool::new(spooled, self.plan.spool_bytes),
            holds: Holds::default(),
            catalog_age: Arc::default(),
            recall_order: Arc::default(),
            pacing: Pacing::default(),
            pin_of: Arc::new(|_, _| None),
            counters: Arc::new(WorldCounters::default()),
            trace: Some(Arc::new(move |record: &Record| {
                power.time_goes_on();
                judge.lock().take(record, &journal);
            })),
        }
    }
}

/// `store` with the log `front`, if there is one.
fn behind(front: Option<&mut Front>, store: MemoryStore, cut: Cut) -> MemoryStore {
    match front {
        Some(front) => front.before(store, cut),
        None => store,
    }
}

/// Looks up blobs and failed drives in the current state of a catalog, without a step of the power.
async fn records(store: &MemoryStore) -> Result<Records, ServerError> {
    let catalog = Catalog::open_read_only(Arc::new(store.clone())).await?;
    let of_drives = catalog.clone();
    let failed = move || {
        let known = of_drives.failed_drives().now_or_never().and_then(Result::ok).unwrap_or_default();
        known.into_iter().map(|(drive, _)| drive).collect()
    };
    let locate = move |blob: BlobId| located(&catalog, blob).now_or_never().flatten();
    Ok(Records { locate: Arc::new(locate), failed: Arc::new(failed) })
}

/// A blob of `catalog`, and the drives whose stack of it is lost. Returned drives are left out: the stack is looked for
/// there.
async fn located(catalog: &Catalog, blob: BlobId) -> Option<(Blob, Vec<DriveId>)> {
    let found = catalog.blob(blob).await.ok()??;
    let mut lost = catalog.lost_of(&found).await.ok()?;
    let back = catalog.returned_drives().await.ok()?;
    lost.retain(|drive| !back.contains_key(drive));
    Some((found, lost))
}

/// A runtime on this thread whose clock advances when nothing else can run.
fn virtual_time() -> Runtime {
    let built = Builder::new_current_thread().enable_time().start_paused(true).build();
    built.unwrap_or_else(|error| panic!("the system gives no runtime: {error}"))
}

/// Labels an empty drive, as `larder init` does.
fn label(medium: &MemoryDrive, spec: &RackSpec, drive: DriveId) {
    let label = Label { rack: RACK, rack_name: spec.name.clone(), drive };
    let uuid = DriveUuid(u128::from(drive.0 + 1).to_le_bytes());
    let label = DriveLabel { label, uuid, labelled_ms: 0, device: Device::None };
    let written = disk::label::write(medium, &label).now_or_never();
    assert!(matches!(written, Some(Ok(()))), "a drive in memory takes a label at once");
}
