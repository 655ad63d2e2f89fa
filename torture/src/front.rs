//! The log in front of the catalog, which stores small objects: the server's own, over drives in memory. Runs below
//! [`crate::LOGGED_FROM`] have a model of one instead.
//!
//! The log has no thread. A change is durable before the commit returns; background tasks, for example to turn logs
//! into shelves or to merge shelves, run at times that the run draws. All calls to its drives are journaled. The end of
//! a life cuts that journal somewhere after the last acknowledged change, so in the middle of later work. A kill leaves
//! everything that was written before the cut; a power failure leaves any part of the unsynced data.

use crate::journal::{Journal, Rule};
use crate::kinds::FaultKind;
use crate::log_files::{self, Files};
use crate::overlay::Overlay;
use crate::plan::{LOGGED_FROM, Plan, SPOILED_FROM, Stream};
use crate::power::Power;
use catalog::{CommitLog, LogError, LogRecord, MemoryLog, MemoryStore, Sequence, Store};
use futures::future::BoxFuture;
use intake::medium::memory::World;
use intake::{Config, Driver, PoolUuid};
use model::{Rng, Time};
use server::intake_log::IntakeLog;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use workshop::{NamedSlot, RecordEnd, Removal, SmallRecord, SmallRecords};

/// A size at which logs become shelves very often.
const LOG_BYTES: u64 = 64 << 10;

/// Number of shelves that are merged into one.
const FAN_IN: usize = 3;

/// Maximum time between two background tasks, in milliseconds.
const TURN_MAX_MS: u64 = 20_000;

/// A drive fails after one of this number of tasks.
const DRIVE_FAILS_ONCE_IN: u64 = 32;

/// The log records its lengths this long after a change.
const LENGTHS_NOTED: Duration = Duration::from_millis(500);

/// The log in front of a catalog.
pub(crate) enum Front {
    Model(MemoryLog),
    Own(OwnLog),
}

/// The end of a life, from the view of a log's media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// No end: the log is opened again for another catalog.
    None,
    /// The server was closed in order.
    Closed,
    Kill,
    PowerLoss,
}

/// The server's own log, and its drives.
pub(crate) struct OwnLog {
    world: World,
    rng: Rng,
    journal: Arc<Journal>,
    log: Option<Arc<Acknowledged>>,
    /// The overlay that counts damage to its files, in runs that damage them.
    damaged: Option<Overlay>,
    /// Its files may also have damage that loses nothing, and its drives may fail.
    spoiled: bool,
    /// The pool with which the catalog was used.
    pool: Option<PoolUuid>,
    /// Its files at its previous opening.
    older: Files,
}

/// A log that tracks the acknowledged part of its drives' journal.
pub(crate) struct Acknowledged {
    log: IntakeLog,
    world: World,
    /// Journal entries that no cut removes.
    entries: AtomicUsize,
    /// A task may be waiting.
    tasks: Notify,
    /// Its drives may fail.
    failing: Option<(Overlay, Arc<Journal>)>,
}

impl Front {
    /// The log of `plan`, if it has one.
    pub(crate) fn of(plan: &Plan, (journal, overlay): (&Arc<Journal>, &Overlay)) -> Option<Self> {
        if !plan.has_log() {
            return None;
        }
        if plan.seed < LOGGED_FROM {
            return Some(Self::Model(MemoryLog::new()));
        }
        let mut rng = Stream::Front.of(plan.seed);
        // Half have one drive, like most servers; with six drives there are two copies.
        let drives = [1, 1, 1, 2, 4, 6][rng.below(6) as usize];
        let (world, journal) = (World::new(drives), Arc::clone(journal));
        let damaged = plan.has(FaultKind::LogFileDamaged).then(|| overlay.clone());
        let spoiled = plan.seed >= SPOILED_FROM;
        Some(Self::Own(OwnLog { world, rng, journal, log: None, damaged, spoiled, pool: None, older: Files::new() }))
    }

    /// `store` with this log in front, as a start finds it after `cut`: changes that it lacks are taken from the log.
    pub(crate) fn before(&mut self, store: MemoryStore, cut: Cut) -> MemoryStore {
        let log: Arc<dyn CommitLog> = match self {
            Self::Model(log) => Arc::new(log.clone()),
            Self::Own(own) => {
                own.cut(cut);
                if let Some(opened) = own.before_damaged(&store, cut) {
                    return opened;
                }
                own.reopened()
            }
        };
        store.with_log(log).unwrap_or_else(|error| panic!("a log in memory can be read: {error}"))
    }

    /// Its small objects.
    pub(crate) fn records(&self) -> Option<Arc<dyn SmallRecords>> {
        match self {
            Self::Model(log) => Some(Arc::new(log.clone())),
            Self::Own(own) => own.log.clone().map(|log| log as Arc<dyn SmallRecords>),
        }
    }

    /// The server's own log, for its background work.
    pub(crate) fn own(&self) -> Option<(Arc<Acknowledged>, Rng)> {
        match self {
            Self::Model(_) => None,
            Self::Own(own) => own.log.clone().map(|log| (log, own.rng.clone())),
        }
    }
}

impl OwnLog {
    /// Opens the log on the rest of its drives.
    fn reopened(&mut self) -> Arc<Acknowledged> {
        let opened = self.open(&self.world.clone());
        let log = opened.unwrap_or_else(|error| panic!("a log that no fault has met is opened: {error}"));
        self.goes_on_with(log)
    }

    fn goes_on_with(&mut self, log: IntakeLog) -> Arc<Acknowledged> {
        let pool = *self.pool.get_or_insert(log.pool());
        assert_eq!(pool, log.pool(), "a pool stays the same");
        self.older = log_files::files(&self.world);
        let entries = AtomicUsize::new(self.world.position());
        let (world, tasks) = (self.world.clone(), Notify::new());
        let failing = self.damaged.clone().filter(|_| self.spoiled).map(|overlay| (overlay, Arc::clone(&self.journal)));
        let log = Arc::new(Acknowledged { log, world, entries, tasks, failing });
        log.tasks.notify_one();
        self.log = Some(Arc::clone(&log));
        log
    }

    /// Cuts the drives' journal as `cut` demands.
    fn cut(&mut self, cut: Cut) {
        let Some(log) = self.log.take() else { return };
        let (acknowledged, end) = (log.entries.load(Ordering::Relaxed), self.world.position());
        let at = acknowledged + self.rng.below((end - acknowledged) as u64 + 1) as usize;
        self.world = match cut {
            Cut::None => self.world.kill(end),
            Cut::Closed => {
                log.log.close();
                self.world.kill(self.world.position())
            }
            Cut::Kill => self.world.kill(at),
            Cut::PowerLoss => self.world.crash(at, &mut self.rng),
        };
    }

    /// `store` with the log in front, if the log was damaged and a start finds everything anyway. If the start notices
    /// the damage, the operator restores the files.
    fn before_damaged(&mut self, store: &MemoryStore, cut: Cut) -> Option<MemoryStore> {
        let overlay = self.damaged.clone().filter(|_| cut != Cut::None && self.rng.below(2) == 0)?;
        let world = self.world.kill(self.world.position());
        let costs_nothing = self.spoiled && self.rng.below(2) == 0;
        let what = if costs_nothing {
            log_files::spoil(&world, &mut self.rng)?
        } else {
            log_files::damage(&world, &self.older, cut == Cut::Closed, &mut self.rng)?
        };
        overlay.count(FaultKind::LogFileDamaged);
        let before = self.world.clone();
        let (found, opened) = match self.opened_damaged(&world) {
            Ok(log) => {
                self.world = world;
                match store.snapshot().with_log(self.goes_on_with(log)) {
                    Ok(opened) if opened.behind_log().is_none() => {
                        ("a start finds everything".to_owned(), Some(opened))
                    }
                    Ok(_) => ("the catalog is behind what is left".to_owned(), None),
                    Err(error) => (format!("the catalog is refused: {error}"), None),
                }
            }
            Err(found) => {
                self.journal.demand(!costs_nothing, Rule::Kept, || format!("{what}: {found}"));
                (found, None)
            }
        };
        self.journal.note(|| format!("{what}: {found}"));
        if opened.is_none() {
            self.world = before;
        }
        opened
    }

    /// The log in `world`, if it is the same one and does not know of missing records.
    fn opened_damaged(&mut self, world: &World) -> Result<IntakeLog, String> {
        match self.open(world) {
            Ok(log) if self.pool != Some(log.pool()) => Err("it is another pool by now".to_owned()),
            Ok(log) if log.are_all_known() => Ok(log),
            Ok(_) => Err("a start knows that something is missing".to_owned()),
            Err(error) => Err(format!("the start is refused: {error}")),
        }
    }

    fn open(&mut self, world: &World) -> io::Result<IntakeLog> {
        let (entropy, journal) = (u128::from(self.rng.next_u64()), Arc::clone(&self.journal));
        IntakeLog::over(world.home(), world.directories(), entropy, |config| {
            *config = Config {
                driver: Driver::Caller,
                clock: Arc::new(move || Time::from_nanos(journal.now_ms() * 1_000_000)),
                log_bytes: LOG_BYTES,
                fan_in: FAN_IN,
                needs_all: true,
                ..config.clone()
            };
        })
    }
}

impl Acknowledged {
    /// Runs background tasks while the server lives.
    pub(crate) async fn work(&self, mut rng: Rng, power: &Power) {
        loop {
            self.tasks.notified().await;
            tokio::time::sleep(LENGTHS_NOTED).await;
            while self.log.work(0) {
                tokio::time::sleep(Duration::from_millis(rng.below(TURN_MAX_MS))).await;
                power.step().await;
                self.log.work(1);
                self.may_fail(&mut rng);
            }
        }
    }

    /// Makes a drive of the log fail now and then, until the server ends.
    fn may_fail(&self, rng: &mut Rng) {
        let Some((overlay, journal)) = &self.failing else { return };
        if rng.below(DRIVE_FAILS_ONCE_IN) == 0
            && let Some(what) = log_files::fail(&self.world, rng)
        {
            overlay.count(FaultKind::LogFileDamaged);
            journal.note(|| what);
        }
    }

    /// The latest change is acknowledged.
    fn acknowledge(&self) {
        self.entries.store(self.world.position(), Ordering::Relaxed);
        self.tasks.notify_one();
    }
}

impl CommitLog for Acknowledged {
    fn append(&self, records: &[LogRecord]) -> Result<(), LogError> {
        self.log.append(records)?;
        self.acknowledge();
        Ok(())
    }

    fn covered(&self, sequence: Sequence) {
        self.log.covered(sequence);
        self.tasks.notify_one();
    }

    fn retain(&self) {
        self.log.retain();
    }

    fn replay(&self, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError> {
        self.log.replay(each)
    }
}

impl SmallRecords for Acknowledged {
    fn bytes(&self, at: &NamedSlot) -> BoxFuture<'_, io::Result<Option<u64>>> {
        self.log.bytes(at)
    }

    fn read(&self, at: &NamedSlot, range: Range<u64>) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>> {
        self.log.read(at, range)
    }

    fn read_end(&self, at: &NamedSlot, bytes: u64) -> BoxFuture<'_, io::Result<Option<RecordEnd>>> {
        self.log.read_end(at, bytes)
    }

    fn remove(&self, removals: Vec<Removal>) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async {
            self.log.remove(removals).await?;
            self.acknowledge();
            Ok(())
        })
    }

    fn page(&self, from: &NamedSlot, limit: usize) -> BoxFuture<'_, io::Result<Vec<SmallRecord>>> {
        self.log.page(from, limit)
    }

    fn slots_end(&self) -> u64 {
        self.log.slots_end()
    }

    fn are_all_known(&self) -> bool {
        self.log.are_all_known()
    }

    fn lacks_drive(&self) -> bool {
        self.log.lacks_drive()
    }
}
