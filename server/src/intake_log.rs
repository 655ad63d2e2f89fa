//! The intake as the log in front of the catalog, and as the place of small objects.
//!
//! A batch of the catalog with a payload is a record whose key is the object's name and the payload's slot, whose value
//! is the payload, and whose entry is the catalog's. So payloads become shelves in key order, are read in key order
//! when they move to the rack, and are removed by ranges once they have moved. A batch without a payload is the removal
//! of a key that never exists, with its entry. A batch that is longer than an entry may be is in several consecutive
//! records. An entry begins with:
//!
//! ```text
//! | version 2, u8 | commit sequence number, u64 LE | this part, u32 LE | number of parts, u32 LE |
//! ```
//!
//! Records of version 1, whose keys were slots alone, are read and removed like others, one by one.
//!
//! The intake has its own numbers; this module remembers those that the catalog has not covered yet.

mod keys;

use crate::data_dir::DataDir;
use crate::error::ServerError;
use crate::intake_places::IntakePlaces;
use crate::pool_drives::{PoolDirectory, PoolPower};
use crate::world::{WorldHandle, pool};
use catalog::{Catalog, CatalogError, CommitLog, LogError, LogRecord, Sequence, SqliteStore};
use disk::device::PoolDisks;
use futures::future::BoxFuture;
use intake::medium::Directory;
use intake::medium::files::DirectoryOfFiles;
use intake::medium::memory::World;
use intake::medium::overlay::Overlay;
use intake::{
    Ack, Change, Config, ENTRY_BYTES_MAX, Intake, Kind, OpenError, Opened, PoolUuid, PutError, ReadError, Replay,
    Stored,
};
use keys::{PAYLOAD, PAYLOAD_1, key, old_key, slot_of};
use model::{PoolDriveId, Time};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use workshop::{NamedSlot, RecordEnd, Removal, SmallRecord, SmallRecords};

/// The version that is written. Version 1, which is also read, had only the slot in the keys of payloads.
const VERSION: u8 = 2;
const HEAD_BYTES: usize = 1 + 8 + 4 + 4;
/// Bytes that are written with one sync: more than the catalog commits at once.
const BATCH_BYTES: usize = 32 << 20;
/// Shelves that are merged into one. The number is high for two reasons: keys end with slots, which grow, so shelves
/// hardly overlap in their slots and a read asks one of them; and much data has moved to the rack before it would be
/// merged. Each shelf costs an open file: 60 up to 100 GB.
const FAN_IN: usize = 16;
/// The key of batches without a payload.
const NO_PAYLOAD: &[u8] = b"c";
/// The message if the last logged changes may be missing.
const UNSHOWN: &str = "a log of small objects that may have the catalog's last changes is missing or damaged; put it \
                       back; if it is lost, set accept_older_catalog = true in larder.toml and start again";
/// The name under which the catalog knows its pool.
const POOL: &str = "intake-pool";

/// The log in front of a catalog.
pub struct IntakeLog {
    intake: Arc<Intake>,
    /// True if there were payloads of version 1 when it was opened.
    has_version_1: bool,
    /// Its pool, and the places of the pool.
    pool: PoolUuid,
    places: String,
    /// Those of its places without a drive of the pool, which may not be mounted.
    unmounted: Vec<PathBuf>,
    /// The link to the controller of its drives' power, and the drives of the pool that it controls, by their places.
    power: PoolPower,
    powered: Vec<(String, PoolDriveId)>,
    /// Those of them that are whole disks, and those of these that had to be started to open it.
    disks: Arc<PoolDisks>,
    started: Vec<PoolDriveId>,
    state: Mutex<State>,
}

/// The purpose for which an intake is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Purpose {
    /// True if it is created when it does not exist.
    pub(crate) makes: bool,
    /// True if its missing data is given up.
    pub(crate) is_given_up: bool,
    /// The wall time without work after which a drive with controlled power sleeps; `None` is never.
    pub(crate) idle_timeout: Option<Duration>,
    /// A request to a drive of a pool of several that takes longer counts as failed; `None` is [`Config`]'s default.
    pub(crate) deadline: Option<Duration>,
}

#[derive(Default)]
struct State {
    /// The changes that were found when it was opened; taken by the replay.
    found: Option<Replay>,
    /// The changes that were found lack some up to this one.
    unshown: Option<intake::Sequence>,
    /// The last number of the intake by each number of the catalog that is not covered.
    uncovered: VecDeque<(Sequence, intake::Sequence)>,
}

/// A part of a batch.
struct Part<'a> {
    sequence: Sequence,
    index: u32,
    count: u32,
    bytes: &'a [u8],
}

impl IntakeLog {
    /// The intake of `dir`; `None` if it does not exist and is not to be created.
    ///
    /// # Errors
    /// [`ServerError`]; also if it is missing and the catalog needs it, unless it is given up.
    pub(crate) fn of(dir: &DataDir, purpose: Purpose) -> Result<Option<Arc<Self>>, ServerError> {
        let Purpose { makes: make, is_given_up, idle_timeout, deadline } = purpose;
        let places = IntakePlaces::of(dir);
        let is_missing = is_missing(dir, &places);
        if is_missing && !is_given_up {
            return Err(missing(&places));
        }
        if !make && !is_missing && !places.is_made() {
            return Ok(None);
        }
        let needs_all = !is_given_up && SqliteStore::may_need_log(dir.catalog());
        Self::at(dir, &places, |directories, entropy| {
            let home = Box::new(DirectoryOfFiles::open(&dir.manifest())?);
            let deadline = deadline.filter(|_| directories.len() > 1);
            Self::open_in(home, directories, entropy, |config| {
                (config.needs_all, config.accepts_losses) = (needs_all, is_given_up);
                config.idle_timeout = idle_timeout;
                config.deadline = deadline.unwrap_or(config.deadline);
            })
        })
        .map(Some)
    }

    /// The intake of `dir`, if it has one, opened read-only.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(crate) fn look_at(dir: &DataDir) -> Result<Option<Arc<Self>>, ServerError> {
        let places = IntakePlaces::of(dir);
        if is_missing(dir, &places) {
            return Err(missing(&places));
        }
        // A complete catalog knows each object that is missing.
        Self::looked_at(dir, &dir.manifest(), SqliteStore::may_need_log(dir.catalog()))
    }

    /// Like [`IntakeLog::look_at`]; its missing files were given up with the catalog that knew them.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(crate) fn look_at_what_is_left(dir: &DataDir) -> Result<Option<Arc<Self>>, ServerError> {
        Self::looked_at(dir, &dir.manifest(), false)
    }

    /// Like [`IntakeLog::look_at`], for a lost catalog: all that `manifest` names is needed. `None` without an intake.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(crate) fn look_at_all(dir: &DataDir, manifest: &Path) -> Result<Option<Arc<Self>>, ServerError> {
        Self::looked_at(dir, manifest, true)
    }

    /// The intake with this manifest, opened read-only. Losses are accepted unless `needs_all`.
    fn looked_at(dir: &DataDir, manifest: &Path, needs_all: bool) -> Result<Option<Arc<Self>>, ServerError> {
        let places = IntakePlaces::of(dir);
        let look = |directories, entropy| {
            Self::look(home_of_look(manifest)?, directories, entropy, |config| {
                (config.needs_all, config.accepts_losses) = (needs_all, !needs_all);
            })
        };
        if places.is_made() { Self::at(dir, &places, look).map(Some) } else { Ok(None) }
    }

    fn at(
        dir: &DataDir,
        places: &IntakePlaces,
        open: impl Fn(Vec<Box<dyn Directory>>, u128) -> io::Result<Self>,
    ) -> Result<Arc<Self>, ServerError> {
        let mut entropy = [0; 16];
        getrandom::fill(&mut entropy)
            .map_err(|error| ServerError::Io("drawing random bytes".into(), io::Error::other(error.to_string())))?;
        let shown = places.shown();
        let in_places = |error: io::Error| io::Error::new(error.kind(), format!("{shown}: {error}"));
        let (power, mut powered) = (PoolPower::default(), Vec::new());
        let open_one = |index, place: &Path| -> io::Result<Box<dyn Directory>> {
            let files = DirectoryOfFiles::open(place)?;
            let disk = Some(PoolDriveId(index as u32)).filter(|drive| places.disks().get(*drive).is_some());
            let Some(drive) = disk.or_else(|| dir.emulated_pool_drive(index)) else { return Ok(Box::new(files)) };
            powered.push((files.place(), drive));
            Ok(Box::new(PoolDirectory { files, drive, power: power.clone() }))
        };
        let opened = places.directories(open_one).and_then(|(found, unmounted)| {
            let log = open(found, u128::from_le_bytes(entropy)).map_err(in_places)?;
            let (disks, started) = (Arc::clone(places.disks()), places.started().to_vec());
            let shown = places.shown();
            Ok(Arc::new(Self { places: shown, unmounted, power: power.clone(), powered, disks, started, ..log }))
        });
        opened.map_err(|error| {
            match error.kind() {
                io::ErrorKind::NotConnected => return missing(places),
                io::ErrorKind::InvalidData => return incomplete(&error),
                io::ErrorKind::ResourceBusy => return ServerError::Refused(error.to_string()),
                _ => {}
            }
            let fix = "make sure that it is a readable and writable directory on a disk with free space";
            ServerError::Refused(format!("opening the log of small objects {error}; {fix}"))
        })
    }

    /// Opens the intake in these directories read-only. `entropy` are random bits.
    ///
    /// # Errors
    /// If it cannot be used; the message has the reason.
    fn look(
        home: Box<dyn Directory>,
        directories: Vec<Box<dyn Directory>>,
        entropy: u128,
        set: impl FnOnce(&mut Config),
    ) -> io::Result<Self> {
        let over = |directory| Box::new(Overlay::over(directory)) as Box<dyn Directory>;
        Self::open_in(over(home), directories.into_iter().map(over).collect(), entropy, |config| {
            config.is_look = true;
            set(config);
        })
    }

    /// The highest number of a batch that the replay returned and that is not covered since.
    pub(crate) fn last_replayed(&self) -> Sequence {
        let uncovered = &self.state.lock().uncovered;
        uncovered.iter().map(|(of_catalog, _)| *of_catalog).max().unwrap_or_default()
    }

    /// The state of the intake, for people.
    pub(crate) fn status(&self) -> intake::Status {
        self.intake.status()
    }

    /// The drives of the pool that are whole disks.
    pub(crate) fn disks(&self) -> &Arc<PoolDisks> {
        &self.disks
    }

    /// Counts the starts that it took to open it, on the day of `now`: before the engine learns the number of starts.
    ///
    /// # Errors
    /// Those of the catalog.
    pub(crate) async fn count_starts(&self, catalog: &Catalog, now: Time) -> Result<(), CatalogError> {
        for drive in &self.started {
            pool::count_start(catalog, *drive, now.day()).await?;
        }
        Ok(())
    }

    /// Lets `world` control the power of its drives from now on.
    pub(crate) fn follow(&self, world: WorldHandle) {
        world.control(Arc::clone(&self.disks));
        self.power.follow(world);
    }

    /// The drives of the pool with controlled power, by their places.
    pub(crate) fn powered(&self) -> &[(String, PoolDriveId)] {
        &self.powered
    }

    /// The places at which a drive of the pool is missing: it may not be mounted.
    pub(crate) fn unmounted(&self) -> &[PathBuf] {
        &self.unmounted
    }

    /// Refuses another pool than the one that `catalog` was used with, if objects are staged, because these would be
    /// missing. Otherwise, or if the missing pool `is_given_up`, the present pool belongs to this catalog from now on.
    ///
    /// # Errors
    /// [`ServerError::Refused`].
    pub(crate) async fn claim(log: Option<&Self>, catalog: &Catalog, is_given_up: bool) -> Result<(), ServerError> {
        let known = catalog.meta_get(POOL).await?;
        let found = log.map(|log| log.pool.0.to_le_bytes().to_vec());
        if known == found {
            return Ok(());
        }
        let is_needed = known.is_some() && !is_given_up && catalog.staged_usage().await?.count > 0;
        if let (false, Some(found)) = (is_needed, &found) {
            catalog.meta_put(POOL, found.clone()).await?;
        }
        if !is_needed {
            return Ok(());
        }
        let place = log.map_or("the pool of small objects", |log| log.places.as_str());
        Err(ServerError::Refused(format!(
            "{place} is missing, or is not the one that this catalog was used with, and small objects are stored \
             there; put the right one in its place, or, if it is lost, set accept_older_catalog = true in larder.toml \
             and start again"
        )))
    }

    /// The log in directories of any kind, with what `set` sets: for virtual time.
    ///
    /// # Errors
    /// If it cannot be used; the message has the reason.
    pub fn over(
        home: Box<dyn Directory>,
        directories: Vec<Box<dyn Directory>>,
        entropy: u128,
        set: impl FnOnce(&mut Config),
    ) -> io::Result<Self> {
        Self::open_in(home, directories, entropy, set)
    }

    /// Closes the log, even if there are other handles to it.
    pub fn close(&self) {
        self.intake.close();
    }

    /// The identity of its pool, which stays the same for the life of the pool.
    pub fn pool(&self) -> PoolUuid {
        self.pool
    }

    /// Runs this number of waiting tasks, for a caller that drives the intake in virtual time ([`Intake::work`]).
    pub fn work(&self, tasks: usize) -> bool {
        self.intake.work(tasks)
    }

    /// Opens or creates the intake in these directories, with what `set` sets.
    ///
    /// # Errors
    /// If it cannot be used; the message has the reason.
    fn open_in(
        home: Box<dyn Directory>,
        directories: Vec<Box<dyn Directory>>,
        entropy: u128,
        set: impl FnOnce(&mut Config),
    ) -> io::Result<Self> {
        let clock = || Time::ZERO + disk::clock::monotonic().saturating_duration_since(epoch());
        let mut config = Config::new(entropy, clock);
        config.batch_bytes = BATCH_BYTES;
        config.fan_in = FAN_IN;
        // The catalog knows by its own numbers what it has: it is shown everything that is still in logs.
        config.covered = Some(intake::Sequence(0));
        set(&mut config);
        let opened = Intake::open(home, directories, config);
        let (intake, Opened { replay, torn_bytes, pool, unshown, .. }) = opened.map_err(|error| match error {
            OpenError::LacksDrives => io::Error::new(io::ErrorKind::NotConnected, error),
            OpenError::Incomplete(_) | OpenError::Manifest(_) => io::Error::new(io::ErrorKind::InvalidData, error),
            OpenError::Drive { drive, error: ReadError::Damaged(damage) } => io::Error::other(format!(
                "its file intake.pool on drive {drive} of the pool is damaged ({damage}): restore it from a copy of \
                 the data directory; it changes only when a drive joins the pool"
            )),
            error => io::Error::other(error),
        })?;
        if torn_bytes > 0 {
            tracing::warn!(torn_bytes, "a crash cut off the end of the intake's log; no client had an answer for it");
        }
        let state = State { found: Some(replay), unshown, ..State::default() };
        let old = intake.scan_entries(&[PAYLOAD_1], Some(&[PAYLOAD_1 + 1])).next().transpose();
        let has_version_1 = old.map_err(io::Error::other)?.is_some();
        let (intake, state) = (Arc::new(intake), Mutex::new(state));
        let (places, unmounted) = (String::new(), Vec::new());
        let (power, powered, disks, started) =
            (PoolPower::default(), Vec::new(), Arc::new(PoolDisks::new([])), Vec::new());
        Ok(Self { intake, has_version_1, pool, places, unmounted, power, powered, disks, started, state })
    }

    /// The possible keys of the payload at `at`, the likeliest first.
    fn keys(&self, at: &NamedSlot) -> Vec<Vec<u8>> {
        let named = (!at.name().is_empty()).then(|| key(at));
        let old = (named.is_none() || self.has_version_1).then(|| old_key(at.slot()));
        named.into_iter().chain(old).collect()
    }

    /// Runs `read`, which may wait for the disk, where that blocks no other task.
    async fn reading<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Intake) -> Result<T, ReadError> + Send + 'static,
    ) -> io::Result<T> {
        let intake = Arc::clone(&self.intake);
        let done = if intake.has_threads() {
            tokio::task::spawn_blocking(move || read(&intake)).await.map_err(io::Error::other)?
        } else {
            read(&intake)
        };
        done.map_err(|error| match error {
            ReadError::Drive(error) => error,
            error @ ReadError::Away => io::Error::other(error),
            error @ (ReadError::Lost | ReadError::Damaged(_)) => io::Error::new(io::ErrorKind::InvalidData, error),
        })
    }
}

/// True if there is none, and what the catalog has acknowledged last may be in it alone: a catalog that cannot be read
/// does not show whether it was closed in order.
fn is_missing(dir: &DataDir, places: &IntakePlaces) -> bool {
    !places.is_made() && SqliteStore::may_need_log(dir.catalog())
}

fn missing(places: &IntakePlaces) -> ServerError {
    ServerError::Refused(format!(
        "{} is missing or lacks a drive, and may have the only copy of the last acknowledged changes; put it back, or \
         restore both it and catalog.db from one backup; if it is lost, run `larder recover --replace`, which restores \
         the changes that the journal has, or set accept_older_catalog = true in larder.toml and start again",
        places.shown()
    ))
}

/// The home of an intake that is opened read-only: it is not created.
fn home_of_look(manifest: &Path) -> io::Result<Box<dyn Directory>> {
    if manifest.exists() { Ok(Box::new(DirectoryOfFiles::open(manifest)?)) } else { Ok(World::new(0).home()) }
}

/// The refusal of a pool that lacks files of its manifest.
fn incomplete(error: &io::Error) -> ServerError {
    ServerError::Refused(format!(
        "{error}; put the missing files back, or restore the log, the directory manifest and catalog.db from one \
         backup; if they are lost, set accept_older_catalog = true in larder.toml and start again: GETs of the objects \
         in them then fail"
    ))
}

impl CommitLog for IntakeLog {
    fn append(&self, records: &[LogRecord]) -> Result<(), LogError> {
        let changes: Vec<Change> = records.iter().flat_map(changes).collect();
        let failed = |error: PutError| LogError::Failed(error.to_string());
        let acks = self.intake.submit_all(changes).map_err(failed)?;
        let answers: Vec<_> = acks.into_iter().map(Ack::wait).collect();
        if answers.iter().all(|answer| matches!(answer, Err(PutError::NoSpace | PutError::Retaining))) {
            return Err(LogError::Full);
        }
        let mut last = intake::Sequence(0);
        for answer in answers {
            last = answer.map_err(failed)?;
        }
        let sequence = records.last().map(|record| record.sequence).unwrap_or_default();
        self.state.lock().uncovered.push_back((sequence, last));
        Ok(())
    }

    fn covered(&self, sequence: Sequence) {
        let mut state = self.state.lock();
        let mut covered = None;
        while let Some((of_catalog, of_intake)) = state.uncovered.front().copied()
            && of_catalog <= sequence
        {
            covered = Some(of_intake);
            state.uncovered.pop_front();
        }
        if let Some(covered) = covered {
            self.intake.covered(covered);
        }
    }

    fn retain(&self) {
        self.intake.retain();
    }

    fn replay(&self, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), LogError> {
        let (found, mut unshown) = {
            let mut state = self.state.lock();
            (state.found.take(), state.unshown)
        };
        let Some(found) = found else {
            return Err(LogError::Failed("it was already replayed".into()));
        };
        let mut entry = Vec::new();
        let mut next = (Sequence::default(), 0);
        for change in found {
            let change = change.map_err(|error| LogError::Failed(error.to_string()))?;
            if change.kind == Kind::Forget || change.entry.is_empty() {
                continue;
            }
            let Some(Part { sequence, index, count, bytes }) = Part::decode(&change.entry) else {
                return Err(LogError::Failed("a record is of a version that this Larder does not know".into()));
            };
            if index == 0 {
                entry.clear();
                next = (sequence, 0);
            }
            if next != (sequence, index) {
                continue;
            }
            entry.extend_from_slice(bytes);
            next.1 += 1;
            if next.1 < count {
                continue;
            }
            self.state.lock().uncovered.push_back((sequence, change.sequence));
            // A later change than `unshown` settles the question: the catalog sees whether it follows the last one that
            // it has.
            unshown.take_if(|unshown| change.sequence > *unshown);
            if each(&entry).is_break() {
                return Ok(());
            }
        }
        if unshown.is_some() { Err(LogError::Failed(UNSHOWN.into())) } else { Ok(()) }
    }
}

impl SmallRecords for IntakeLog {
    fn bytes(&self, at: &NamedSlot) -> BoxFuture<'_, io::Result<Option<u64>>> {
        let keys = self.keys(at);
        Box::pin(
            self.reading(move |intake| Ok(first_of(&keys, |key| intake.head(key))?.map(|found| found.value_bytes))),
        )
    }

    fn read(&self, at: &NamedSlot, range: Range<u64>) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>> {
        let keys = self.keys(at);
        let read = move |intake: &Intake| {
            Ok(first_of(&keys, |key| intake.get_range(key, range.clone()))?.map(|found| found.value))
        };
        Box::pin(self.reading(read))
    }

    fn read_end(&self, at: &NamedSlot, bytes: u64) -> BoxFuture<'_, io::Result<Option<RecordEnd>>> {
        let keys = self.keys(at);
        let read =
            move |intake: &Intake| Ok(first_of(&keys, |key| intake.get(key))?.map(|stored| ending(stored, bytes)));
        Box::pin(self.reading(read))
    }

    fn remove(&self, removals: Vec<Removal>) -> BoxFuture<'_, io::Result<()>> {
        let change = |removal| match removal {
            Removal::One(at) => {
                self.keys(&at).into_iter().map(|key| Change::Delete { key, entry: Vec::new() }).collect()
            }
            Removal::Range { first, last, up_to } => {
                let to = [&key(&last)[..], &[0]].concat();
                vec![Change::Forget { from: key(&first), to: Some(to), up_to: intake::Sequence(up_to) }]
            }
        };
        let submitted = self.intake.submit_all(removals.into_iter().flat_map(change).collect::<Vec<Change>>());
        // A log without room refuses removals, and they are retried.
        Box::pin(async move {
            for ack in submitted.map_err(io::Error::other)? {
                ack.await.map_err(io::Error::other)?;
            }
            Ok(())
        })
    }

    fn page(&self, from: &NamedSlot, limit: usize) -> BoxFuture<'_, io::Result<Vec<SmallRecord>>> {
        // Records without a name come first.
        let old = (from.name().is_empty() && self.has_version_1).then(|| old_key(from.slot()));
        let named = key(from);
        Box::pin(self.reading(move |intake| {
            let old = old.map(|from| intake.scan_entries(&from, Some(&[PAYLOAD_1 + 1])));
            let named = intake.scan_entries(&named, Some(&[PAYLOAD + 1]));
            let record = |item: Result<(Vec<u8>, Stored), ReadError>| {
                let of = |(key, found): (Vec<u8>, Stored)| {
                    let (number, bytes) = (found.sequence.0, found.value_bytes);
                    Some(SmallRecord { at: slot_of(&key)?, number, bytes })
                };
                item.map(of).transpose()
            };
            old.into_iter().flatten().chain(named).filter_map(record).take(limit).collect()
        }))
    }

    fn slots_end(&self) -> u64 {
        self.intake.trailers_end()
    }

    fn are_all_known(&self) -> bool {
        self.intake.is_whole()
    }

    fn lacks_drive(&self) -> bool {
        self.intake.lacks_drive()
    }
}

impl<'a> Part<'a> {
    fn decode(entry: &'a [u8]) -> Option<Self> {
        let (_, rest) = entry.split_first().filter(|(version, _)| (1..=VERSION).contains(*version))?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (index, rest) = rest.split_first_chunk()?;
        let (count, bytes) = rest.split_first_chunk()?;
        let sequence = Sequence(u64::from_le_bytes(*sequence));
        let (index, count) = (u32::from_le_bytes(*index), u32::from_le_bytes(*count));
        Some(Self { sequence, index, count, bytes })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.bytes.len());
        out.push(VERSION);
        out.extend_from_slice(&self.sequence.0.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(self.bytes);
        out
    }
}

/// The changes of `record`; the one with its payload is the last.
fn changes(record: &LogRecord) -> Vec<Change> {
    let pieces = record.entry.chunks(ENTRY_BYTES_MAX - HEAD_BYTES);
    let count = pieces.len() as u32;
    let part = |(index, bytes)| Part { sequence: record.sequence, index: index as u32, count, bytes }.encode();
    let mut entries: Vec<Vec<u8>> = pieces.enumerate().map(part).collect();
    let last = record.payload.as_ref().and_then(|payload| Some((payload, entries.pop()?)));
    let without = |entry| Change::Delete { key: NO_PAYLOAD.to_vec(), entry };
    let mut changes: Vec<Change> = entries.into_iter().map(without).collect();
    changes.extend(last.map(|(payload, entry)| {
        let at = NamedSlot::new(payload.name.clone(), payload.slot);
        Change::Put { key: key(&at), entry, value: payload.bytes.clone() }
    }));
    changes
}

/// The length of the `stored` value, and its last `bytes` bytes.
fn ending(stored: Stored, bytes: u64) -> RecordEnd {
    let mut value = stored.value;
    value.drain(..value.len() - value.len().min(bytes as usize));
    (stored.value_bytes, value)
}

/// The value of the first of `keys` that exists.
fn first_of(
    keys: &[Vec<u8>],
    read: impl Fn(&[u8]) -> Result<Option<Stored>, ReadError>,
) -> Result<Option<Stored>, ReadError> {
    for key in keys {
        let found = read(key)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The moment from which the intake counts its time.
fn epoch() -> tokio::time::Instant {
    static EPOCH: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    *EPOCH.get_or_init(disk::clock::monotonic)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use catalog::{Batch, KeyRange, Payload, SqliteOptions, Store, Write};

    fn put(key: &str, body: Vec<u8>) -> Batch {
        Batch::new(Vec::new(), vec![Write::Put(key.into(), body)])
    }

    /// The name and slot of the payload in `slot`: names are not in the order of slots, and contain zero bytes.
    fn at(slot: u64) -> NamedSlot {
        NamedSlot::of(slot, "bucket", &format!("k\0{:03}", slot.wrapping_mul(37) % 101))
    }

    /// All records, as far as a scan in pages shows them.
    async fn all(log: &IntakeLog) -> Vec<SmallRecord> {
        let (mut all, mut from) = (Vec::new(), NamedSlot::default());
        loop {
            let page = log.page(&from, 7).await.unwrap();
            let Some(last) = page.last() else { return all };
            from = last.at.successor();
            all.extend(page);
        }
    }

    fn with_payload(slot: u64, bytes: Vec<u8>) -> Batch {
        let payload = Payload { slot, name: at(slot).name().to_vec(), bytes: bytes.into() };
        Batch { payload: Some(payload), ..put("slot", slot.to_string().into()) }
    }

    /// Copies the directory `from`, as a process that dies now leaves it, to `to`.
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }

    fn open(dir: &Path) -> (SqliteStore, Arc<IntakeLog>) {
        let one = |_, place: &Path| -> io::Result<Box<dyn Directory>> { Ok(Box::new(DirectoryOfFiles::open(place)?)) };
        let (directories, _) = IntakePlaces::at(dir, vec![dir.join("intake")]).directories(one).unwrap();
        let (home, entropy) = (one(0, &dir.join("manifest")).unwrap(), u128::from(getrandom::u64().unwrap()));
        let log = Arc::new(IntakeLog::open_in(home, directories, entropy, |_| ()).unwrap());
        let store = SqliteStore::open_with_log(dir.join("catalog"), SqliteOptions::default(), log.clone());
        (store.unwrap(), log)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn batches_and_payloads_are_there_after_the_death_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let (living, image) = (dir.path().join("living"), dir.path().join("image"));
        std::fs::create_dir(&living).unwrap();
        let (store, log) = open(&living);
        store.commit(put("a", b"1".to_vec())).await.unwrap();
        let waiting: Vec<_> = (1..50).map(|slot| store.commit(with_payload(slot, vec![slot as u8; 5_000]))).collect();
        for answer in futures::future::join_all(waiting).await {
            answer.unwrap();
        }
        // A batch in several parts.
        let long: Vec<u8> = (0..3_000_000_u32).map(|byte| byte as u8).collect();
        store.commit(put("long", long.clone())).await.unwrap();
        log.remove(vec![Removal::One(at(7))]).await.unwrap();
        store.commit(put("b", b"2".to_vec())).await.unwrap();
        copy(&living, &image);
        let sequence = store.sequence();
        // The file from before all this: everything comes from the log.
        for (round, file) in ["catalog", "catalog-wal"].into_iter().enumerate() {
            let fresh = dir.path().join(format!("fresh{round}"));
            copy(&image, &fresh);
            if round == 1 {
                std::fs::remove_file(fresh.join(file)).unwrap();
            }
            let (store, log) = open(&fresh);
            assert_eq!((store.behind_log(), store.sequence()), (None, sequence), "round {round}");
            let found = store.get(b"long").await.unwrap().unwrap();
            assert_eq!(found.open(b"long").unwrap().0, long);
            assert_eq!(store.scan(KeyRange::all(), 99).await.unwrap().len(), 4);
            let mut slots: Vec<NamedSlot> = (1..50).filter(|slot| *slot != 7).map(at).collect();
            slots.sort_unstable();
            assert_eq!(all(&log).await.into_iter().map(|record| record.at).collect::<Vec<_>>(), slots);
            assert_eq!(log.bytes(&at(7)).await.unwrap(), None);
            assert_eq!(log.read(&at(9), 4_990..5_100).await.unwrap(), Some(vec![9; 10]));
        }
        // A catalog that was closed in order no longer needs its log, and continues with it.
        drop((store, log));
        drop(SqliteStore::open(living.join("catalog")).unwrap());
        let (store, log) = open(&living);
        assert_eq!((store.behind_log(), store.sequence()), (None, sequence));
        assert_eq!(log.bytes(&at(49)).await.unwrap(), Some(5_000));
        store.commit(with_payload(50, vec![1; 10])).await.unwrap();
        assert_eq!(log.bytes(&at(50)).await.unwrap(), Some(10));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_range_is_forgotten_by_one_record_and_what_came_later_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (store, log) = open(dir.path());
        for slot in 1..=40 {
            store.commit(with_payload(slot, vec![slot as u8; 3_000])).await.unwrap();
        }
        let old = all(&log).await;
        let up_to = old.iter().map(|record| record.number).max().unwrap();
        // A later version of the first name, and one whose slot is larger and whose name is new.
        let later = NamedSlot::new(old[0].at.name().to_vec(), 90);
        for late in [&later, &at(91)] {
            let payload = Payload { slot: late.slot(), name: late.name().to_vec(), bytes: vec![1; 10].into() };
            store.commit(Batch { payload: Some(payload), ..put("late", Vec::new()) }).await.unwrap();
        }
        let before = log.intake.status().last;
        let (first, last) = (old[0].at.clone(), old[29].at.clone());
        log.remove(vec![Removal::Range { first, last, up_to }]).await.unwrap();
        let behind = log.intake.delete(b"behind it").unwrap();
        assert_eq!(behind.0, before.0 + 2, "one record");
        log.intake.flush().unwrap();
        let mut left: Vec<NamedSlot> =
            old[30..].iter().map(|record| record.at.clone()).chain([later, at(91)]).collect();
        left.sort_unstable();
        drop((store, log));
        let (_store, log) = open(dir.path());
        assert_eq!(all(&log).await.into_iter().map(|record| record.at).collect::<Vec<_>>(), left);
        for record in &old {
            let is_left = left.contains(&record.at);
            assert_eq!(log.bytes(&record.at).await.unwrap(), is_left.then_some(3_000), "{:?}", record.at);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn payloads_of_version_1_are_read_listed_and_removed_by_their_slots() {
        let dir = tempfile::tempdir().unwrap();
        let (store, log) = open(dir.path());
        store.commit(with_payload(3, vec![3; 30])).await.unwrap();
        let old = |slot: u64| Change::Put { key: old_key(slot), entry: Vec::new(), value: vec![slot as u8; 20].into() };
        for ack in log.intake.submit_all(vec![old(1), old(2)]).unwrap() {
            ack.wait().unwrap();
        }
        drop((store, log));
        let (_store, log) = open(dir.path());
        let slots: Vec<NamedSlot> = all(&log).await.into_iter().map(|record| record.at).collect();
        assert_eq!(slots, [1.into(), 2.into(), at(3)]);
        // The catalog knows the objects that these belong to.
        for (slot, bytes) in [(1, 20), (2, 20), (3, 30)] {
            assert_eq!(log.read(&at(slot), 0..99).await.unwrap(), Some(vec![slot as u8; bytes]));
        }
        log.remove(vec![Removal::One(at(1)), Removal::One(at(3))]).await.unwrap();
        log.intake.delete(b"behind them").unwrap();
        assert_eq!(all(&log).await.into_iter().map(|record| record.at).collect::<Vec<_>>(), [2.into()]);
    }
}
