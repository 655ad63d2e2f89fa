//! Putting the house together: from a data directory to a server, and back to sleeping drives.
//!
//! Boot restates everything the engine believes from what is durable: used bytes from the blobs, starts of the day from the
//! drives' records, doomed bytes from the tombstones. Blobs that were being written when the last server ended are given up,
//! staged files that no object refers to are removed, recalls are forgotten.
//!
//! Shutdown goes the other way round: no new connections, requests in flight end, groups go to sleep, the catalog closes.

use crate::admin;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::holds::Holds;
use crate::house::House;
use crate::s3::{self, Keys, Limits};
use crate::tell::Teller;
use crate::world::{Counters, Means, World, WorldHandle, usage_of};
use catalog::{Catalog, CatalogError, ClockAnchor, SqliteStore, StoreError};
use disk::label::{self, Label};
use disk::{Clock, DirectoryDrive, Drive, DriveError, EmulatedRack, News, TokioClock};
use engine::layout::{Layout, LayoutError};
use engine::{DriveReport, Event, Loss, Rack};
use model::{DriveId, GroupId, RackSpec, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::watch;
use workshop::{Spool, Staging};

/// Records that are read at once at boot.
const BOOT_PAGE: usize = 1024;

/// How long groups may take to go to sleep at shutdown before the server ends all the same, in wall time.
const SLEEP_PATIENCE: Duration = Duration::from_secs(90);

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another with --port, or end what listens there")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A file or socket of the data directory cannot be used.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// The catalog cannot be opened or read.
    #[error("catalog: {0}")]
    Catalog(#[from] CatalogError),
    /// The catalog's store cannot be opened.
    #[error("catalog: {0}")]
    Store(#[from] StoreError),
    /// A drive is not the one it should be.
    #[error("drive {drive}: {source}")]
    Drive {
        /// Which.
        drive: DriveId,
        /// What is wrong.
        source: DriveError,
    },
    /// The workshop cannot be used.
    #[error("workshop: {0}")]
    Workshop(DriveError),
    /// The rack cannot be laid out.
    #[error("rack: {0}")]
    Layout(#[from] LayoutError),
    /// What is on disk and what the rack's description says do not fit.
    #[error("{0}")]
    Contradiction(String),
}

/// Serves the data directory `dir` until `shutdown`; `ready` is called with the address when requests are answered.
///
/// # Errors
/// [`RunError`], each with its mend. Nothing is changed by a start that fails.
pub async fn run(
    dir: DataDir,
    config: Config,
    ready: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), RunError> {
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|source| RunError::Listen { address: config.listen, source })?;
    let address = listener.local_addr().map_err(|source| io_error("asking for the address", source))?;
    let house = Boot { dir: &dir, config: &config }.boot().await?;
    let socket = admin::Listener::bind(dir.path()).map_err(|source| io_error("binding the admin socket", source))?;
    let (stop, stopped) = watch::channel(());
    let admin = tokio::spawn(admin::serve(socket, Arc::clone(&house.teller) as Arc<dyn admin::Admin>, over(stopped)));
    ready(address);
    let limits = Limits {
        requests: config.request_limit as usize,
        connections: config.connection_limit as usize,
        put_bytes: config.put_limit_bytes,
        ..Limits::default()
    };
    let store = Arc::new(House::new(house.means.clone(), house.world.clone(), config.patience));
    let keys = Arc::new(OneUser { access: dir.credentials().access_key.clone(), secret: dir.credentials().secret_key.clone() });
    let served = s3::serve(listener, store, keys, limits, shutdown).await;
    tracing::info!("putting the drives to sleep");
    if tokio::time::timeout(SLEEP_PATIENCE, house.world.close()).await.is_err() {
        tracing::warn!("some drives did not go to sleep in time; they are left to their own idle timers");
    }
    remember_time(&house.means).await?;
    drop(stop);
    let _ = admin.await;
    served.map_err(|source| io_error("serving", source))
}

async fn over(mut stopped: watch::Receiver<()>) {
    // Ends when the sender is dropped.
    while stopped.changed().await.is_ok() {}
}

fn io_error(what: &str, source: io::Error) -> RunError {
    RunError::Io { what: what.into(), source }
}

/// The keys of a data directory with one user.
struct OneUser {
    access: String,
    secret: String,
}

impl Keys for OneUser {
    fn secret(&self, access_key: &str) -> Option<String> {
        (access_key == self.access).then(|| self.secret.clone())
    }
}

/// A house that runs.
struct Running {
    means: Means,
    world: WorldHandle,
    teller: Arc<Teller>,
}

struct Boot<'a> {
    dir: &'a DataDir,
    config: &'a Config,
}

impl Boot<'_> {
    async fn boot(&self) -> Result<Running, RunError> {
        let spec = self.dir.rack().clone();
        let layout = engine::layout::synthesise(&spec)?;
        if let Err(violations) = engine::check::layout(&spec, &layout) {
            return Err(RunError::Contradiction(format!("the layout breaks the rack's own rules: {violations:?}")));
        }
        let catalog = self.open_catalog().await?;
        let clock = self.clock(&catalog).await?;
        let emulated = Arc::new(self.drives(&spec, &clock).await?);
        let (staging, spool) = self.workshop(&catalog).await?;
        let pins = self.config.pins.clone();
        let means = Means {
            clock,
            wall: Arc::new(wall_ms),
            spawn: Arc::new(|task| drop(tokio::spawn(task))),
            drives: emulated.drives(),
            rack_uuid: self.dir.rack_uuid(),
            catalog,
            staging,
            spool,
            holds: Holds::default(),
            ordering: Arc::default(),
            pin_of: Arc::new(move |bucket, key| {
                pins.iter().filter(|pin| pin.covers(bucket, key)).max_by_key(|pin| pin.prefix.len()).map(|pin| pin.class)
            }),
            counters: Arc::new(Counters::default()),
        };
        let rack = Rack::new(spec, layout, self.config.rack_policy(self.dir.rack()), wall_ms());
        let facts = restate(&means, &rack).await?;
        let (world, handle) = World::new(rack, means.clone());
        facts.into_iter().for_each(|fact| handle.tell(fact));
        tokio::spawn(world.run());
        tokio::spawn(pass_on_news(Arc::clone(&emulated), handle.clone()));
        let teller = Arc::new(Teller::new(means.clone(), handle.clone(), emulated));
        Ok(Running { means, world: handle, teller })
    }

    async fn open_catalog(&self) -> Result<Catalog, RunError> {
        let store = SqliteStore::open(&self.dir.catalog())?;
        let catalog = Catalog::open(Arc::new(store)).await?;
        let uuid = self.dir.rack_uuid();
        match catalog.rack_uuid().await? {
            None => catalog.set_rack_uuid(uuid.0).await?,
            Some(found) if found == uuid.0 => {}
            Some(found) => {
                return Err(RunError::Contradiction(format!(
                    "{} is the catalog of rack {}, and this directory belongs to rack {uuid}; put the right catalog back",
                    self.dir.catalog().display(),
                    label::RackUuid(found),
                )));
            }
        }
        Ok(catalog)
    }

    /// Modelled time goes on as if the rack had run all the while. A wall clock that was set back does not set it back.
    async fn clock(&self, catalog: &Catalog) -> Result<Arc<dyn Clock>, RunError> {
        let now_ms = wall_ms();
        let origin = match catalog.clock_anchor().await? {
            None => Time::ZERO,
            Some(anchor) => {
                let away = Duration::from_millis(now_ms.saturating_sub(anchor.wall_ms));
                Time::from_nanos(anchor.modelled_ns) + away.saturating_mul(self.config.time_scale)
            }
        };
        catalog.set_clock_anchor(ClockAnchor { wall_ms: now_ms, modelled_ns: origin.as_nanos() }).await?;
        Ok(Arc::new(TokioClock::starting_at(origin, self.config.time_scale)))
    }

    async fn drives(&self, spec: &RackSpec, clock: &Arc<dyn Clock>) -> Result<EmulatedRack, RunError> {
        let mut inner: Vec<(Arc<dyn Drive>, Label)> = Vec::with_capacity(spec.drives.len());
        for (path, label) in self.dir.labels() {
            let drive = label.drive;
            let directory = open_directory(&path, &label).map_err(|source| RunError::Drive { drive, source })?;
            inner.push((directory, label));
        }
        label::check_all(&inner).await.map_err(|(drive, source)| RunError::Drive { drive, source })?;
        let by_id: BTreeMap<DriveId, Arc<dyn Drive>> =
            inner.into_iter().map(|(drive, label)| (label.drive, drive)).collect();
        Ok(EmulatedRack::new(spec, self.config.emulation.seed, Arc::clone(clock), |drive| Arc::clone(&by_id[&drive])))
    }

    async fn workshop(&self, catalog: &Catalog) -> Result<(Staging, Spool), RunError> {
        let open = |name: &str| -> Result<Arc<dyn Drive>, RunError> {
            let path = self.dir.workshop().join(name);
            std::fs::create_dir_all(&path).map_err(|source| io_error(&format!("making {}", path.display()), source))?;
            Ok(Arc::new(DirectoryDrive::open(path).map_err(RunError::Workshop)?))
        };
        let (staged, recalls) = (open("staged")?, open("spool")?);
        let free_bytes = staged.space().await.map_err(RunError::Workshop)?.free_bytes;
        let usage = catalog.staged_usage().await?;
        let capacity_bytes = self.config.workshop.capacity_bytes(free_bytes, usage.bytes);
        let staging = Staging::new(staged, capacity_bytes);
        let known = known_slots(catalog).await?;
        let swept = staging.sweep(|slot| known.contains(&slot)).await.map_err(RunError::Workshop)?;
        if (swept.kept as usize) < known.len() {
            tracing::error!(missing = known.len() - swept.kept as usize, "staged files are missing; GETs of them will fail");
        }
        let spool = Spool::new(recalls, self.config.workshop.spool_bytes(capacity_bytes));
        spool.wipe().await.map_err(RunError::Workshop)?;
        Ok((staging, spool))
    }
}

fn open_directory(path: &Path, label: &Label) -> Result<Arc<dyn Drive>, DriveError> {
    Ok(Arc::new(DirectoryDrive::open(path)?.with_label(label.clone())))
}

async fn known_slots(catalog: &Catalog) -> Result<BTreeSet<u64>, CatalogError> {
    let mut known = BTreeSet::new();
    let mut after = None;
    loop {
        let page = catalog.staged_slots(after.as_ref(), BOOT_PAGE).await?;
        known.extend(page.items.iter().map(|staged| staged.slot));
        after = page.next;
        if after.is_none() {
            return Ok(known);
        }
    }
}

/// Everything the engine must be told before work begins.
async fn restate(means: &Means, rack: &Rack) -> Result<Vec<Event>, RunError> {
    for intent in means.catalog.pending_intents().await? {
        tracing::warn!(blob = %intent.blob, "a blob was being written when the last server ended; its stacks are given up");
        means.catalog.abort_blob(intent.blob).await?;
    }
    let used = used_bytes(means, rack.layout()).await?;
    let starts: BTreeMap<_, _> =
        means.catalog.drives().await?.into_iter().map(|record| (record.drive, record)).collect();
    let mut facts = Vec::new();
    for drive in &rack.spec().drives {
        let record = starts.get(&drive.id);
        facts.push(Event::DriveReported(DriveReport {
            drive: drive.id,
            capacity_bytes: rack.spec().capacity_bytes(drive.id),
            used_bytes: used.get(&drive.id).copied().unwrap_or(0),
            day: record.map_or(0, |record| record.day),
            starts: record.map_or(0, |record| record.starts),
            present: true,
        }));
    }
    for (group, bytes) in means.catalog.doomed_totals().await? {
        facts.push(Event::SpaceDoomed { group, bytes });
    }
    facts.push(Event::StagingChanged(usage_of(&means.staging)));
    facts.push(Event::Booted);
    Ok(facts)
}

/// What the blobs of the catalog take of each drive. A blob must lie within its group as the rack is laid out now.
async fn used_bytes(means: &Means, layout: &Layout) -> Result<BTreeMap<DriveId, u64>, RunError> {
    let mut used = BTreeMap::new();
    let mut after = None;
    loop {
        let page = means.catalog.blobs_page(after.as_ref(), BOOT_PAGE).await?;
        for blob in &page.items {
            let group: Option<GroupId> = blob.drives.first().and_then(|drive| layout.group_of(*drive));
            if group != Some(blob.group) || blob.drives.iter().any(|drive| layout.group_of(*drive) != group) {
                return Err(RunError::Contradiction(format!(
                    "{} lies in group {}, which the rack as described has not; put the rack.toml back that it was written with",
                    blob.blob, blob.group
                )));
            }
            for drive in &blob.drives {
                *used.entry(*drive).or_default() += blob.stack_bytes;
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(used);
        }
    }
}

/// Drives that go and come without being asked: told to the engine.
async fn pass_on_news(emulated: Arc<EmulatedRack>, world: WorldHandle) {
    loop {
        let news = emulated.news().await;
        let drive = news.drive;
        world.tell(match news.news {
            News::FuseTripped { domain } => {
                tracing::error!(%drive, domain, "a fuse tripped");
                Event::DriveLost { drive, loss: Loss::FuseTripped }
            }
            News::Pulled => Event::DriveLost { drive, loss: Loss::Died },
            News::Back => Event::DriveBack { drive },
        });
    }
}

async fn remember_time(means: &Means) -> Result<(), RunError> {
    let anchor = ClockAnchor { wall_ms: (means.wall)(), modelled_ns: means.clock.now().as_nanos() };
    Ok(means.catalog.set_clock_anchor(anchor).await?)
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
