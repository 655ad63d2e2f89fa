//! Assembles the server: from a data directory to a running server, and back to sleeping drives.
//!
//! Everything particular to a data directory is here: the catalog's file, directories behind emulated drives, the admin
//! socket. [`boot`] does the rest.
//!
//! Shutdown is the reverse: no new connections, requests in flight end, groups go to sleep, the catalog closes.

use crate::admin;
use crate::boot;
use crate::catalog_age::CatalogAge;
use crate::certificate::{self, Certificate};
use crate::config::Config;
use crate::context::{Context, PinOf, SmallObjects, Tracer, WorldCounters, nonces};
use crate::data_dir::{DataDir, JOURNAL};
use crate::descriptors::Descriptors;
use crate::drive_copies::DriveCopies;
use crate::error::ServerError;
use crate::exchange::DiskReplacement;
use crate::holds::Holds;
use crate::host_room::HostRoom;
use crate::index;
use crate::intake_log::{IntakeLog, Purpose};
use crate::journal_keeper;
use crate::metrics;
use crate::notices::Notices;
use crate::object_service::ObjectService;
use crate::pacing::Pacing;
use crate::processor::Processor;
use crate::reads::WRITE_INTERVAL;
use crate::repartition::Repartitions;
use crate::service_manager::ServiceManager;
use crate::status_service::StatusService;
use crate::trace_file;
use crate::upgrade::upgrade;
use crate::users::Users;
use crate::world::WorldHandle;
use catalog::{Catalog, ClockAnchor, Journal, SqliteOptions};
use disk::clock::{self, wall_ms};
use disk::device::{DeviceRack, RackDrive};
use disk::owner::Claim;
use disk::{Clock, DirectoryDrive, Drive, EmulatedRack, Hardware, OpenFiles};
use engine::trace::{Header, TRACE_FORMAT};
use futures::future::{BoxFuture, FutureExt};
use model::{DriveId, DriveSpec, RackSpec};
use s3::Traffic;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use workshop::{SmallFiles, Spool, Staging};

/// Memory for small objects that are being received, in bytes; an object that does not fit becomes a file.
const PENDING_BYTES: u64 = 64 << 20;

/// The minimum number of stripes in the spool, so that a recall always fits while another one is read.
const SPOOL_STRIPES_MIN: u64 = 2;

/// The longest time for groups to go to sleep at shutdown, in wall time; then the server ends anyway.
const SLEEP_MAX: Duration = Duration::from_secs(90);
/// Time until the catalog is asked again for the watch of stale uploads, after it did not answer.
const STALE_RETRY: Duration = Duration::from_mins(1);

/// Called with the address once requests are answered.
pub type Ready = Box<dyn FnOnce(SocketAddr) + Send>;

/// Serves the data directory `dir` until `shutdown`; `ready` is called with the address when requests are answered.
///
/// Boxed, so that the server is compiled in this crate and not in that of its caller.
///
/// # Errors
/// [`ServerError`], each with a way to fix it. A start that fails changes nothing.
pub fn run(
    dir: DataDir,
    config: Config,
    ready: Ready,
    shutdown: BoxFuture<'static, ()>,
) -> BoxFuture<'static, Result<(), ServerError>> {
    Box::pin(serve(dir, config, ready, shutdown))
}

async fn serve(
    dir: DataDir,
    config: Config,
    ready: Ready,
    shutdown: BoxFuture<'static, ()>,
) -> Result<(), ServerError> {
    let descriptors = Descriptors::of_this_process(config.connection_limit)?;
    let manager = ServiceManager::of_environment().map(Arc::new);
    let certificate = Certificate::open(&config.tls, dir.path())?;
    let (listener, address) = listen(config.listen, "another with --port").await?;
    let scraped = match config.metrics.listen {
        Some(wanted) => Some(listen(wanted, "another `listen` under [metrics] in larder.toml").await?),
        None => None,
    };
    let notices = Notices::of(&config, address);
    let mut service =
        Boot { dir: &dir, config: &config, notices, descriptors, certificate: certificate.clone() }.boot().await?;
    let socket = admin::Listener::bind(dir.path()).map_err(|source| io_error("binding the admin socket", source))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let admin = tokio::spawn(admin::serve(
        socket,
        Arc::clone(&service.status),
        Arc::clone(&service.users),
        Some(service.jobs.clone()),
        async { drop(stopped.await) },
    ));
    let store = ObjectService::new(service.context.clone(), service.world.clone(), config.max_wait);
    let store = Arc::new(store.with_read_ahead(config.workshop.read_ahead));
    let besides = service.besides(&store, &config, scraped, manager.clone())?;
    ready(address);
    notify(manager.as_deref(), "READY=1");
    let stopping = {
        let manager = manager.clone();
        Box::pin(shutdown.inspect(move |()| notify(manager.as_deref(), "STOPPING=1")))
    };
    let front =
        s3::Frontend::new(store, Arc::clone(&service.users) as _, Arc::clone(&service.traffic), config.domain.clone());
    let served = s3::serve(listener, front, certificate.map(|certificate| certificate.tls()), stopping).await;
    drop(besides);
    service.close().await?;
    drop(stop);
    let _ = admin.await;
    served.map_err(|source| io_error("serving", source))
}

fn notify(manager: Option<&ServiceManager>, state: &str) {
    if let Some(manager) = manager {
        manager.notify(state);
    }
}

/// A listener on `wanted`, and the address that it got; `fix` names an alternative, for the error.
async fn listen(wanted: SocketAddr, fix: &str) -> Result<(TcpListener, SocketAddr), ServerError> {
    let listener = TcpListener::bind(wanted).await.map_err(|source| is_taken(wanted, &source, fix))?;
    let address = listener.local_addr().map_err(|source| io_error("asking for the address", source))?;
    Ok((listener, address))
}

/// Fails if it is impossible to listen on `wanted` now; `fix` names an alternative, for the error.
///
/// # Errors
/// [`ServerError::Refused`].
pub fn can_listen(wanted: SocketAddr, fix: &str) -> Result<(), ServerError> {
    std::net::TcpListener::bind(wanted).map(drop).map_err(|source| is_taken(wanted, &source, fix))
}

fn is_taken(wanted: SocketAddr, source: &io::Error, fix: &str) -> ServerError {
    ServerError::Refused(format!(
        "cannot listen on {wanted}: {source}; choose {fix}, or stop the program that listens there"
    ))
}

/// Random bits, which no other start has drawn.
fn random_seed() -> Result<u64, ServerError> {
    getrandom::u64().map_err(|error| io_error("drawing random bytes", io::Error::other(error.to_string())))
}

/// Aborts uploads that were open longer than `limit`, at intervals. Counts time as in `engine::uploads`, without the
/// wall clock.
async fn abort_stale(service: Arc<ObjectService>, limit: Duration) {
    let began = clock::monotonic();
    let mut watch = loop {
        match service.stale_watch(limit).await {
            Ok(watch) => break watch,
            Err(error) => tracing::warn!(%error, "cannot find out which uploads are stale; retrying"),
        }
        tokio::time::sleep(STALE_RETRY).await;
    };
    let mut ticks = tokio::time::interval(watch.interval());
    loop {
        ticks.tick().await;
        if let Err(error) = service.abort_stale(&mut watch, began.elapsed()).await {
            tracing::warn!(%error, "could not abort stale uploads; retrying");
        }
    }
}

/// Records reads of staged objects, at intervals.
async fn record_reads(context: Context) {
    loop {
        tokio::time::sleep(WRITE_INTERVAL).await;
        // In a separate task, which does not end with this one: the reads that it has taken must not be lost.
        let context = context.clone();
        let written = tokio::spawn(async move { context.counters.reads.write_or_warn(&context.catalog).await });
        let _ = written.await;
    }
}

fn io_error(what: &str, source: io::Error) -> ServerError {
    ServerError::Io(what.into(), source)
}

/// A running server.
struct RunningServer {
    context: Context,
    world: WorldHandle,
    users: Arc<Users>,
    traffic: Arc<Traffic>,
    status: Arc<StatusService>,
    jobs: Repartitions,
    journal: Option<Arc<Journal>>,
    /// The catalog was recovered, and its log is held until the journal leads to it.
    is_recovered: bool,
}

impl RunningServer {
    /// The background tasks beside the requests of S3; they end when the set is dropped.
    fn besides(
        &mut self,
        store: &Arc<ObjectService>,
        config: &Config,
        scraped: Option<(TcpListener, SocketAddr)>,
        manager: Option<Arc<ServiceManager>>,
    ) -> Result<JoinSet<()>, ServerError> {
        let mut besides = JoinSet::new();
        if let Some(age) = config.workshop.abort_uploads_after {
            besides.spawn(abort_stale(Arc::clone(store), age));
        }
        besides.spawn(record_reads(self.context.clone()));
        if let Some(journal) = self.journal.take() {
            let (store, world, anew) = (Arc::clone(store), self.world.clone(), config.accept_older_catalog);
            let copies = DriveCopies::new(store, world, Arc::clone(&journal), &config.journal, anew);
            besides.spawn(journal_keeper::keep(self.context.clone(), (journal, self.is_recovered), copies));
        }
        if let Some((listener, address)) = scraped {
            tracing::info!("serving http://{address}/metrics");
            besides.spawn(metrics::serve(listener, Arc::clone(&self.status)));
        }
        // Without a certificate and a service manager, SIGHUP means that the terminal is gone, and ends the process.
        if config.tls.files().is_some() || manager.is_some() {
            let hangups = signal(SignalKind::hangup()).map_err(|source| io_error("watching for SIGHUP", source))?;
            besides.spawn(certificate::watch(self.status.certificate.clone(), hangups));
        }
        if let Some(manager) = manager {
            let world = self.world.clone();
            besides.spawn(async move { manager.give_signs_of_life(&world).await });
        }
        Ok(besides)
    }

    /// Puts the drives to sleep, and makes durable what the next start needs.
    async fn close(&self) -> Result<(), ServerError> {
        if let Err(error) = self.jobs.closing().await {
            tracing::warn!(%error, "cannot record that the server stops as requested; repartition jobs resume anyway");
        }
        self.status.end_verification().await;
        tracing::info!("putting the drives to sleep");
        if tokio::time::timeout(SLEEP_MAX, self.world.close()).await.is_err() {
            tracing::warn!("some drives did not go to sleep in time; they are left to their own idle timers");
        }
        remember_time(&self.context).await?;
        if let Err(error) = self.context.counters.reads.end_run(&self.context.catalog).await {
            tracing::warn!(%error, "reads could not be recorded; staged objects count as read at the next start");
        }
        Ok(())
    }
}

/// A rack's hardware, and its drives by number.
type RackAndDrives = (Arc<dyn Hardware>, Vec<Arc<dyn Drive>>);

struct Boot<'a> {
    dir: &'a DataDir,
    config: &'a Config,
    notices: Notices,
    descriptors: Descriptors,
    certificate: Option<Arc<Certificate>>,
}

impl Boot<'_> {
    /// The catalog, and the log in front of it.
    async fn catalog(&self) -> Result<(Catalog, Option<Arc<IntakeLog>>), ServerError> {
        let options = SqliteOptions {
            sequence_min: boot::numbers_from(wall_ms()),
            accept_incomplete: self.config.accept_older_catalog,
            retains_log: true,
            ..SqliteOptions::default()
        };
        let (store, log) = index::open(self.dir, self.purpose(), options).await?;
        let catalog = Catalog::open(Arc::new(store)).await?;
        boot::refuse_another_racks(&catalog, self.dir.rack_uuid()).await?;
        Ok((catalog, log))
    }

    async fn boot(&self) -> Result<RunningServer, ServerError> {
        let spec = self.dir.rack().clone();
        let claim = self.claim()?;
        upgrade(self.dir)?;
        let (catalog, log) = self.catalog().await?;
        let journal = self.journal(&catalog)?;
        let (staging, small, spool) = self.workshop(&catalog, log.clone()).await?;
        let catalog_age = Arc::new(CatalogAge::new(self.config.accept_older_catalog));
        let is_ahead = log.as_ref().is_none_or(|log| catalog.sequence_at_open() > log.last_replayed());
        let (kept, now) = ((&catalog, journal.as_ref().ok()), (is_ahead, wall_ms()));
        let is_recovered = journal_keeper::lead_on(kept, &catalog_age, &staging, now).await?;
        IntakeLog::claim(log.as_deref(), &catalog, self.config.accept_older_catalog).await?;
        let clock = boot::clock(&catalog, wall_ms(), self.config.time_scale).await?;
        if let Some(log) = &log {
            log.count_starts(&catalog, clock.now()).await?;
        }
        let (hardware, drives) = self.hardware(&spec, &clock)?;
        let mut context = Context {
            clock,
            wall: Arc::new(wall_ms),
            spawn: Arc::new(supervised),
            drives: drives.into(),
            rack_uuid: self.dir.rack_uuid(),
            nonce: nonces(random_seed()?),
            catalog,
            staging,
            small,
            spool,
            holds: Holds::default(),
            catalog_age,
            recall_order: Arc::default(),
            pin_of: self.pins(),
            counters: Arc::new(WorldCounters::default()),
            pacing: Pacing::new(self.config.migrate.block_bytes, self.config.workshop.critical_permille),
            processor: Processor::Host,
            trace: None,
        };
        let policy = self.config.rack_policy(&spec);
        let seed = wall_ms();
        context.trace =
            self.trace(&Header { trace: TRACE_FORMAT, spec: spec.clone(), policy: policy.clone(), seed })?;
        let world = boot::boot(spec.clone(), policy, seed, &context, Arc::clone(&hardware)).await?;
        if let Some(log) = &log {
            log.follow(world.clone());
        }
        if let Some(most_bytes) = world.ask(|rack, _| boot::object_bytes_max(rack)).await {
            context.counters.object_bytes_max.store(most_bytes, Ordering::Relaxed);
        }
        let directories = self.dir.labels().into_iter().filter(|(_, label)| self.dir.device(label.drive).is_none());
        let drives = directories.map(|(path, label)| (label.drive, path));
        HostRoom::of(drives, &self.dir.workshop()).watch(&context, &world).await;
        let jobs = Repartitions::start(context.clone(), world.clone(), spec).await?;
        let users = self.users(&context).await?;
        let traffic = Traffic::new(&self.config.limits(self.descriptors.connections));
        let mut status = StatusService::new(context.clone(), world.clone(), hardware);
        (status.notices, status.places) = (self.notices.clone(), self.dir.labels());
        status.ours = self.ours();
        status.exchange = self.dir.has_devices().then(|| Arc::new(DiskReplacement::of(self.dir)));
        (status.traffic, status.intake) = (Some(Arc::clone(&traffic)), log);
        (status.notices.journal, status.notices.claim) = (journal.clone().err(), Some(claim));
        status.journal = journal.ok();
        status.certificate.clone_from(&self.certificate);
        let journal = status.journal.clone();
        Ok(RunningServer { context, world, users, traffic, status: Arc::new(status), jobs, journal, is_recovered })
    }

    /// Begins a run, and acquires the workshop.
    fn claim(&self) -> Result<Arc<Claim>, ServerError> {
        let claim = self.dir.begin_run(self.descriptors.locks)?;
        claim.hold(&self.dir.workshop())?;
        Ok(claim)
    }

    /// The data directory and the existing directories of drives.
    fn ours(&self) -> Vec<PathBuf> {
        let drives = self.dir.labels().into_iter().map(|(path, _)| path);
        let all = iter::once(self.dir.path().to_owned()).chain(drives);
        all.filter_map(|path| path.canonicalize().ok()).collect()
    }

    /// The file of the engine's events and actions, if the configuration names one.
    fn trace(&self, header: &Header) -> Result<Option<Tracer>, ServerError> {
        let Some(path) = &self.config.trace else { return Ok(None) };
        let failed = |source| io_error(&format!("writing the trace {}", path.display()), source);
        trace_file::create(path, header).map(Some).map_err(failed)
    }

    /// The purpose for which the intake is opened: a server always has a log in front of its catalog.
    fn purpose(&self) -> Purpose {
        let config = self.config;
        Purpose {
            makes: true,
            is_given_up: config.accept_older_catalog,
            idle_timeout: config.intake.idle_timeout.map(|modelled| modelled / config.time_scale.max(1)),
            deadline: Some(config.deadlines.write),
        }
    }

    async fn users(&self, context: &Context) -> Result<Arc<Users>, ServerError> {
        let (dir, credentials) = (self.dir.path().to_owned(), self.dir.credentials());
        let users = Users::open(context.catalog.clone(), dir, credentials, context.wall.clone());
        Ok(Arc::new(users.await?))
    }

    /// The journal of the catalog; or the reason that a server has none, which serves without it.
    fn journal(&self, catalog: &Catalog) -> Result<Result<Arc<Journal>, String>, ServerError> {
        let (dir, rack) = (self.dir.workshop().join(JOURNAL), self.dir.rack_uuid().0);
        let begun = Journal::begin(dir.clone(), rack, random_seed()?, catalog);
        Ok(begun.map_err(|error| {
            let why = format!(
                "the catalog has no journal, so it could not be rebuilt if it is lost: {}: {error}; make this a \
                 writable directory, and restart the server",
                dir.display()
            );
            tracing::warn!("{why}");
            why
        }))
    }

    /// The class that an object is pinned to: by the longest prefix.
    fn pins(&self) -> PinOf {
        let pins = self.config.pins.clone();
        Arc::new(move |bucket, key| {
            let covering = pins.iter().filter(|pin| pin.covers(bucket, key));
            covering.max_by_key(|pin| pin.prefix.len()).map(|pin| pin.class)
        })
    }

    /// The rack's hardware, and its drives: emulated, unless some are devices. No drive is accessed here: each is
    /// checked when it is mounted, so a start touches no drive. A drive that is missing or belongs to another rack is
    /// away, and the data on the others stays available.
    fn hardware(&self, spec: &RackSpec, clock: &Arc<dyn Clock>) -> Result<RackAndDrives, ServerError> {
        let (places, files) = (self.dir.labels(), OpenFiles::new(self.descriptors.rack_files));
        let directory = |drive: DriveId| {
            let (path, label) = &places[drive.index()];
            let drive = DirectoryDrive::at(path).with_label(label.clone()).with_claim(self.dir.claim());
            Arc::new(drive.with_open_files(&files)) as Arc<dyn Drive>
        };
        let has_disks = self.dir.has_devices() || !self.dir.pool_disks().is_empty();
        if has_disks && self.config.time_scale != 1 {
            return Err(ServerError::Refused(
                "a rack of real disks runs at time_scale = 1; set that in larder.toml".into(),
            ));
        }
        if !self.dir.has_devices() {
            let emulated = EmulatedRack::new(spec, self.config.emulation.seed, Arc::clone(clock), directory);
            let drives = emulated.drives();
            return Ok((Arc::new(emulated), drives));
        }
        let of_rack = |drive: &DriveSpec| match self.dir.device_drive(drive.id) {
            Some(device) => RackDrive::Device(device.with_open_files(&files)),
            None => RackDrive::Other(directory(drive.id)),
        };
        let devices = DeviceRack::new(spec.drives.iter().map(of_rack));
        let drives = devices.drives();
        Ok((Arc::new(devices), drives))
    }

    async fn workshop(
        &self,
        catalog: &Catalog,
        log: Option<Arc<IntakeLog>>,
    ) -> Result<(Staging, Option<SmallObjects>, Spool), ServerError> {
        let open = |name: &str| -> Result<Arc<dyn Drive>, ServerError> {
            let path = self.dir.workshop().join(name);
            disk::private::make_directory(&path)
                .map_err(|source| io_error(&format!("making {}", path.display()), source))?;
            let drive = DirectoryDrive::open(path)?;
            Ok(Arc::new(drive.with_open_files(&OpenFiles::new(self.descriptors.workshop_files))))
        };
        let (staged, recalls) = (open("staged")?, open("spool")?);
        let free_bytes = staged.space().await?.free_bytes;
        let staged_bytes = catalog.staged_usage().await?.bytes + catalog.upload_usage().await?.bytes;
        let capacity_bytes = self.config.workshop.capacity_bytes(free_bytes, staged_bytes);
        let below_bytes = self.config.intake.below_bytes;
        let small = log.map(|log| {
            let files = Arc::new(SmallFiles::new(Arc::clone(&staged), log, PENDING_BYTES));
            SmallObjects { files, below_bytes }
        });
        let staging = match &small {
            Some(small) => Staging::with_records(Arc::clone(&small.files), capacity_bytes),
            None => Staging::new(staged, capacity_bytes),
        };
        let staging = staging.with_nonces({
            let nonce = nonces(random_seed()?);
            move || nonce()
        });
        let spool_bytes = self.config.workshop.spool_bytes(capacity_bytes);
        let needed_bytes = SPOOL_STRIPES_MIN * self.dir.rack().code.stripe_bytes();
        if spool_bytes < needed_bytes {
            let what = format!(
                "the spool has {spool_bytes} bytes, and recalls are made in stripes of {}; set workshop.spool to at \
                 least {needed_bytes}",
                self.dir.rack().code.stripe_bytes()
            );
            return Err(ServerError::Refused(what));
        }
        Ok((staging, small, Spool::new(recalls, spool_bytes)))
    }
}

/// Starts a task of the world. A task that panics would leave the world waiting for an answer that never comes. The
/// server ends instead, which loses nothing that was acknowledged.
fn supervised(task: BoxFuture<'static, ()>) {
    drop(tokio::spawn(async move {
        if AssertUnwindSafe(task).catch_unwind().await.is_err() {
            tracing::error!("a task of the server failed unexpectedly; the server stops: start it again");
            std::process::abort();
        }
    }));
}

async fn remember_time(context: &Context) -> Result<(), ServerError> {
    let anchor = ClockAnchor { wall_ms: (context.wall)(), modelled_ns: context.clock.now().as_nanos() };
    Ok(context.catalog.set_clock_anchor(anchor).await?)
}
