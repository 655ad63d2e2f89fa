//! The harness: a site whose media survive, and the server that runs on them from one boot to the next crash.
//!
//! An object's bytes are a function of its key and a serial number. Its ETag contains the serial number and the length;
//! so every answer can be checked without a copy of the data.

use crate::steps::{OwnRecords, Power, Powered, PoweredRecords, PoweredStore, Silence, StoreFaults};
use bytes::Bytes;
use catalog::{Bucket, Catalog, ListRequest, MemoryLog, MemoryStore, Object, Place, PutCondition, Store};
use disk::label::RackUuid;
use disk::{Drive, EmulatedRack, FileName, MemoryDrive};
use engine::staging::checks::CheckPolicy;
use engine::{
    GroupChoice, GroupState, IdleTimeout, MigrationPolicy, Rack, RackPolicy, ReadPolicy, SchedulerPolicy, Shares,
    SpinDownPolicy, Weighing,
};
use futures::{FutureExt, StreamExt};
use intake::medium::memory::World;
use model::physics::PowerState;
use model::{BlobId, ClassId, DriveId, GroupId, RackSpec, Rng};
use s3::store::{GetBody, ObjectStore, ServiceError};
use server::boot;
use server::holds::Holds;
use server::intake_log::IntakeLog;
use server::object_service::ObjectService;
use server::pacing::Pacing;
use server::processor::Processor;
use server::status_service::StatusService;
use server::world::{Context, SmallObjects, Spawn, Tracer, WorldCounters, WorldHandle};
use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use workshop::{SmallFiles, SmallRecords, Spool, Staging};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_mins(1);
pub const HOUR: Duration = Duration::from_hours(1);

/// The bucket of every test.
pub const BUCKET: &str = "shelf";

/// Everything that is still there after a crash, and the settings.
pub struct Site {
    /// Takes the engine's trace.
    pub trace: Option<Tracer>,
    pub spec: RackSpec,
    pub policy: RackPolicy,
    pub max_wait: Duration,
    pub workshop_bytes: u64,
    pub spool_bytes: u64,
    /// True if reads also read ahead.
    pub read_ahead: bool,
    pub seed: u64,
    pub power: Power,
    pub catalog: MemoryStore,
    pub store_faults: StoreFaults,
    /// The log in front of the catalog.
    pub log: MemoryLog,
    /// The intake's own log on drives of a pool in memory, which replaces `log`.
    own_log: Option<OwnLog>,
    /// Objects below this number of bytes are in the log.
    pub small_below_bytes: u64,
    /// True if the drives are new at the first boot, so that every group is initialised.
    pub unseen: bool,
    pub staged: Arc<MemoryDrive>,
    pub spooled: Arc<MemoryDrive>,
    pub media: Vec<Arc<MemoryDrive>>,
    /// The silences of `media`, in the same order.
    pub silences: Vec<Silence>,
    /// Keys with this prefix are pinned to this class.
    pub pin: Option<(&'static str, ClassId)>,
    /// The processor that works on the records of jobs; the host takes no time here.
    pub processor: Processor,
    wall_ms: u64,
    /// Bytes that were written to the spool's disk and read from it.
    spooled_bytes: Arc<AtomicU64>,
    /// The same for the workshop's disk.
    pub staged_bytes_moved: Arc<AtomicU64>,
    /// Bytes per second that the workshop's disk takes; `None` is unlimited.
    pub staged_bytes_s: Option<u64>,
    /// Tasks of the world that panicked.
    panics: Arc<AtomicU64>,
}

/// The intake's own log, and the drives that it is on.
struct OwnLog {
    pool: World,
    records: Arc<dyn SmallRecords>,
}

/// A size at which logs become shelves all the time.
const LOG_BYTES: u64 = 48 * KIB;

impl OwnLog {
    /// Opens the log on `pool`, and puts it in front of `catalog`.
    fn open(pool: World, catalog: MemoryStore, entropy: u128) -> (Self, MemoryStore) {
        let log = IntakeLog::over(pool.home(), pool.directories(), entropy, |config| {
            (config.log_bytes, config.fan_in) = (LOG_BYTES, 3);
        });
        let log = Arc::new(log.unwrap());
        let catalog = catalog.with_log(log.clone()).unwrap();
        assert_eq!(catalog.behind_log(), None, "the log has everything that the catalog lacks");
        (Self { pool, records: Arc::new(OwnRecords(log)) }, catalog)
    }
}

/// A file on a drive of the rack.
pub struct Stack {
    pub drive: usize,
    pub blob: BlobId,
    pub index: usize,
    pub name: FileName,
}

/// A running server.
pub struct Larder {
    pub service: ObjectService,
    pub world: WorldHandle,
    pub context: Context,
    pub rack: Arc<EmulatedRack>,
    started: Instant,
    spooled_bytes: Arc<AtomicU64>,
}

/// The end of a history.
pub enum Ended<T> {
    Finished(T),
    /// The power failed first.
    Crashed,
}

fn shipped(name: &str) -> RackSpec {
    let (_, text) = model::text::SHIPPED.into_iter().find(|(shipped, _)| *shipped == name).unwrap();
    model::text::parse(text, name).unwrap()
}

fn policy(spec: &RackSpec) -> RackPolicy {
    RackPolicy {
        scheduler: SchedulerPolicy {
            queue_depth: 1000,
            overtake_limit: 500_000_000_000,
            weighing: Weighing::Bytes,
            wait_limit: Some(2 * MINUTE),
            join_in_service: true,
            anticipation: Duration::from_secs(1),
            overload: engine::OverloadPolicy::default(),
            shares: Shares { client: 60, rebuild: 30, background: 10 },
            quantum: MINUTE,
        },
        group_choice: GroupChoice::Random,
        idle_timeout: IdleTimeout::After(5 * MINUTE),
        read_policy: ReadPolicy::All,
        starts_per_day: spec.profile.starts_per_day(),
        spin_down: SpinDownPolicy::default(),
        host_slack: Duration::from_secs(30),
        deadlines: engine::Deadlines::default(),
        migration: MigrationPolicy {
            due_age: Some(30 * SECOND),
            min_age: 10 * SECOND,
            min_bytes: 0,
            regular_permille: 300,
            critical_permille: 800,
            drained_permille: None,
            order: engine::MoveOrder::default(),
            pack_bytes: 4 * MIB,
            pack_members: 1000,
            linger: Duration::ZERO,
            window: 16,
            scan_interval: 5 * SECOND,
            thermometer: engine::thermometer::Thermometer::none(),
            due_with_checks: false,
        },
        checks: CheckPolicy::default(),
        evacuate_permille: 1000,
        give_up_after: None,
        tries_given_up: false,
        rebuild_read_back: true,
        write_read_back: true,
        checkpoint_interval: HOUR,
        scrub: engine::ScrubPolicy::default(),
        health: engine::HealthPolicy::default(),
        classes: Vec::new(),
    }
}

impl Site {
    pub fn new(rack: &str) -> Self {
        let spec = shipped(rack);
        let medium = || Arc::new(MemoryDrive::new(1 << 30));
        let log = MemoryLog::new();
        Self {
            trace: None,
            policy: policy(&spec),
            max_wait: 45 * SECOND,
            workshop_bytes: 256 * MIB,
            spool_bytes: 64 * MIB,
            read_ahead: true,
            seed: 1,
            power: Power::default(),
            store_faults: StoreFaults::default(),
            catalog: MemoryStore::new().with_log(Arc::new(log.clone())).unwrap(),
            log,
            own_log: None,
            small_below_bytes: 0,
            unseen: false,
            staged: medium(),
            spooled: medium(),
            media: spec.drives.iter().map(|_| medium()).collect(),
            silences: spec.drives.iter().map(|_| Silence::default()).collect(),
            pin: None,
            processor: Processor::Host,
            wall_ms: 1_700_000_000_000,
            spooled_bytes: Arc::default(),
            staged_bytes_moved: Arc::default(),
            staged_bytes_s: None,
            panics: Arc::default(),
            spec,
        }
    }

    pub fn nas8() -> Self {
        Self::new("nas8")
    }

    /// The same site, with the intake's own log on `pool` in front of its catalog.
    #[must_use]
    pub fn with_own_log(mut self, pool: World, seed: u64) -> Self {
        let (log, catalog) = OwnLog::open(pool, MemoryStore::new(), u128::from(seed) << 64 | 1);
        (self.own_log, self.catalog) = (Some(log), catalog);
        self
    }

    /// The drives of the intake's own log as they are until the next crash.
    pub fn pool(&self) -> World {
        self.own_log.as_ref().unwrap().pool.clone()
    }

    /// Boots, does `history` and closes. A history that never ends is a deadlock, which is detected.
    pub fn run<T>(&mut self, history: impl AsyncFnOnce(&Larder) -> T) -> T {
        match self.boot_and(async |larder| {
            let done = history(larder).await;
            larder.close().await;
            done
        }) {
            Ended::Finished(done) => done,
            Ended::Crashed => panic!("the power failed, and nobody had asked for it"),
        }
    }

    /// Boots and does `history`, until it ends or the power fails. All other work under way then ends as in a crash.
    pub fn boot_and<T>(&mut self, history: impl AsyncFnOnce(&Larder) -> T) -> Ended<T> {
        let runtime = virtual_time();
        let (ended, wall_ms) = runtime.block_on(async {
            let started = Instant::now();
            let power = self.power.clone();
            let ended = tokio::select! {
                biased;
                () = power.failed() => Ended::Crashed,
                done = async { history(&self.boot(started).await).await } => Ended::Finished(done),
                () = tokio::time::sleep(120 * 24 * HOUR) => panic!("a history went on for four months"),
            };
            (ended, self.wall_ms + started.elapsed().as_millis() as u64)
        });
        self.wall_ms = wall_ms;
        drop(runtime);
        assert_eq!(self.panics.load(Ordering::Relaxed), 0, "no task of the world panics");
        ended
    }

    /// Sets the wall clock forward by `ahead` for the next boot.
    pub fn set_wall_clock(&mut self, ahead: Duration) {
        self.wall_ms += ahead.as_millis() as u64;
    }

    /// Sets the wall clock back by `by` for the next boot.
    pub fn set_wall_clock_back(&mut self, by: Duration) {
        self.wall_ms = self.wall_ms.checked_sub(by.as_millis() as u64).expect("a moment after the epoch");
    }

    /// Loses bytes that were not synced, on all media at once.
    pub fn lose_power(&mut self, torn: &mut Rng) {
        let lost = torn.below(self.catalog.unsynced() as u64 + 1) as usize;
        self.catalog = match self.own_log.take() {
            None => self.catalog.restarted(lost).unwrap(),
            Some(OwnLog { pool, .. }) => {
                let left = pool.crash(pool.position(), torn);
                let entropy = u128::from(torn.next_u64()) << 64 | u128::from(torn.next_u64());
                let (log, catalog) = OwnLog::open(left, self.catalog.crash_losing(lost), entropy);
                self.own_log = Some(log);
                catalog
            }
        };
        for drive in self.media.iter().chain([&self.staged, &self.spooled]) {
            if torn.below(2) == 0 { drive.crash() } else { drive.crash_torn(torn) }
        }
        self.power.restore();
    }

    /// The media, for inspection while the server runs.
    pub fn facts(&self) -> Facts {
        let (media, silences) = (self.media.clone(), self.silences.clone());
        Facts { media, staged: Arc::clone(&self.staged), log: self.log.clone(), silences }
    }

    fn powered(&self, drive: &Arc<MemoryDrive>, silence: Silence, moved_bytes: &Arc<AtomicU64>) -> Arc<dyn Drive> {
        let moved_bytes = Arc::clone(moved_bytes);
        let (drive, power) = (Arc::clone(drive), self.power.clone());
        let bytes_s = self.staged_bytes_s.filter(|_| Arc::ptr_eq(&drive, &self.staged));
        Arc::new(Powered { drive, power, silence, moved_bytes, bytes_s })
    }

    /// A spawner that counts the panics of its tasks.
    fn watched_spawn(&self) -> Spawn {
        let panics = Arc::clone(&self.panics);
        Arc::new(move |task| {
            let panics = Arc::clone(&panics);
            drop(tokio::spawn(async move {
                if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                    panics.fetch_add(1, Ordering::Relaxed);
                }
            }));
        })
    }

    async fn boot(&self, started: Instant) -> Larder {
        let base_ms = self.wall_ms;
        let (power, faults) = (self.power.clone(), self.store_faults.clone());
        let store = PoweredStore { store: self.catalog.clone(), power, reads: Arc::default(), faults };
        let uncounted = Arc::default();
        let catalog = Catalog::open(Arc::new(store)).await.unwrap();
        if !self.unseen && catalog.initialised_drives().await.unwrap().is_empty() {
            let all: Vec<DriveId> = self.spec.drives.iter().map(|drive| drive.id).collect();
            catalog.note_initialised(&all, base_ms).await.unwrap();
        }
        let clock = boot::clock(&catalog, base_ms, 1).await.unwrap();
        let inner =
            |drive: DriveId| self.powered(&self.media[drive.index()], self.silences[drive.index()].clone(), &uncounted);
        let rack = Arc::new(EmulatedRack::new(&self.spec, self.seed, Arc::clone(&clock), inner));
        let pin = self.pin;
        let staged = self.powered(&self.staged, Silence::default(), &self.staged_bytes_moved);
        let records: Arc<dyn SmallRecords> = match &self.own_log {
            Some(log) => Arc::clone(&log.records),
            None => Arc::new(self.log.clone()),
        };
        let records = PoweredRecords { records, power: self.power.clone() };
        let files = Arc::new(SmallFiles::new(staged, Arc::new(records), MIB));
        let context = Context {
            clock,
            wall: Arc::new(move || base_ms + started.elapsed().as_millis() as u64),
            spawn: self.watched_spawn(),
            drives: rack.drives().into(),
            rack_uuid: RackUuid([8; 16]),
            nonce: server::world::nonces(self.seed ^ base_ms),
            catalog,
            staging: Staging::with_records(Arc::clone(&files), self.workshop_bytes).with_nonces({
                let nonce = server::world::nonces(!self.seed ^ base_ms);
                move || nonce()
            }),
            small: Some(SmallObjects { files, below_bytes: self.small_below_bytes }),
            spool: Spool::new(self.powered(&self.spooled, Silence::default(), &self.spooled_bytes), self.spool_bytes),
            holds: Holds::default(),
            catalog_age: Arc::default(),
            recall_order: Arc::default(),
            pacing: Pacing::default(),
            pin_of: Arc::new(move |_, key| pin.filter(|(prefix, _)| key.starts_with(prefix)).map(|(_, class)| class)),
            counters: Arc::new(WorldCounters::default()),
            processor: self.processor,
            trace: self.trace.clone(),
        };
        let (spec, policy) = (self.spec.clone(), self.policy.clone());
        let world = boot::boot(spec, policy, self.seed, &context, rack.clone()).await.unwrap();
        let service =
            ObjectService::new(context.clone(), world.clone(), self.max_wait).with_read_ahead(self.read_ahead);
        if service.head_bucket(BUCKET).await.is_err() {
            service.create_bucket(Bucket::new(BUCKET, 0, server::users::ROOT)).await.unwrap();
        }
        Larder { service, world, context, rack, started, spooled_bytes: Arc::clone(&self.spooled_bytes) }
    }
}

/// The media themselves, independent of the catalog.
pub struct Facts {
    pub media: Vec<Arc<MemoryDrive>>,
    pub staged: Arc<MemoryDrive>,
    pub log: MemoryLog,
    pub silences: Vec<Silence>,
}

impl Facts {
    /// Bytes of all files on all drives of the rack.
    pub fn media_bytes(&self) -> u64 {
        self.stacks().into_iter().map(|stack| self.media[stack.drive].contents(&stack.name).unwrap().len() as u64).sum()
    }

    /// Every stack on a drive of the rack.
    pub fn stacks(&self) -> Vec<Stack> {
        let mut stacks = Vec::new();
        for (drive, medium) in self.media.iter().enumerate() {
            let names = medium.list().now_or_never().unwrap().unwrap();
            for name in names.into_iter().filter(|name| *name != disk::label::file_name()) {
                let (blob, rest) = name.as_str().split_once('.').unwrap();
                let (number, nonce) = blob.split_once('-').unwrap();
                let hex = |digits| u64::from_str_radix(digits, 16).unwrap();
                let blob = BlobId::new(hex(number), hex(nonce));
                let index = rest.split_once('.').unwrap().0.parse().unwrap();
                stacks.push(Stack { drive, blob, index, name });
            }
        }
        stacks
    }

    /// The number of staged files, records of the log included.
    pub fn staged_files(&self) -> u64 {
        let names = self.staged.list().now_or_never().unwrap().unwrap();
        let files = names.iter().filter(|name| name.as_str().starts_with("s-")).count();
        (files + self.log.slots().len()) as u64
    }
}

/// A runtime on this thread whose clock advances when no task can run.
fn virtual_time() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// The bytes of the object that was put as number `serial` at `key`.
pub fn content(key: &str, serial: u64, bytes: u64) -> Vec<u8> {
    let salt = key.bytes().fold(serial, |salt, byte| salt.wrapping_mul(257).wrapping_add(u64::from(byte)));
    let mut rng = Rng::for_thing(0x1a2d_e200, salt);
    let mut content = Vec::with_capacity(bytes as usize + 8);
    while content.len() < bytes as usize {
        content.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    content.truncate(bytes as usize);
    content
}

/// Serial number and length, as in its ETag.
pub fn identity(object: &Object) -> (u64, u64) {
    let (serial, bytes) = object.etag.split_once('-').unwrap();
    assert_eq!(bytes.parse(), Ok(object.bytes), "an object's length is that of what was put");
    (serial.parse().unwrap(), object.bytes)
}

pub fn retry_after_s(error: &ServiceError) -> Option<u32> {
    if let ServiceError::SlowDown { retry_after_s, .. } = error { Some(*retry_after_s) } else { None }
}

impl Larder {
    pub async fn put(&self, key: &str, serial: u64, bytes: u64) -> Result<(), ServiceError> {
        let bucket = self.service.head_bucket(BUCKET).await?;
        let object = Object { bytes, ..Object::default() };
        let mut sink = self.service.begin_put(&bucket, key, object, PutCondition::None).await?;
        let content = Bytes::from(content(key, serial, bytes));
        let piece = 1 + content.len() / 3;
        for at in (0..content.len()).step_by(piece) {
            sink.write(content.slice(at..content.len().min(at + piece))).await?;
        }
        sink.commit(format!("{serial}-{bytes}"), Vec::new()).await.map(drop)
    }

    /// Puts `count` objects of `bytes` bytes each: `prefix` and a number, with serial number 1.
    pub async fn put_many(&self, prefix: &str, count: u64, bytes: u64) -> Vec<String> {
        let keys: Vec<_> = (0..count).map(|n| format!("{prefix}{n:04}")).collect();
        for key in &keys {
            self.put(key, 1, bytes).await.unwrap();
        }
        keys
    }

    /// Puts ten objects into one blob and deletes all but the first two; returns all keys, and the blob.
    pub async fn mostly_dead_blob(&self) -> (Vec<String>, BlobId) {
        let keys = self.put_many("k", 10, 300 * KIB).await;
        self.settle().await;
        let Place::Stored { blob, .. } = self.place("k0000").await else { panic!("it lies in the rack") };
        for key in &keys[2..] {
            self.delete(key).await;
        }
        (keys, blob)
    }

    /// The serial number of the object at `key`, which is checked byte by byte.
    pub async fn get(&self, key: &str) -> Result<u64, ServiceError> {
        self.get_range(key, None).await
    }

    pub async fn get_range(&self, key: &str, range: Option<Range<u64>>) -> Result<u64, ServiceError> {
        let body = self.service.get(BUCKET, key, range.clone()).await?;
        read_out(key, body, range).await
    }

    /// Like [`get`](Self::get), but retries as long as the answer is SlowDown.
    pub async fn get_retrying(&self, key: &str) -> Result<u64, ServiceError> {
        loop {
            match self.get(key).await {
                Err(ServiceError::SlowDown { retry_after_s, .. }) => {
                    tokio::time::sleep(SECOND * retry_after_s).await;
                }
                other => return other,
            }
        }
    }

    pub async fn delete(&self, key: &str) {
        self.service.delete(BUCKET, key, PutCondition::None).await.unwrap();
    }

    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let request = ListRequest { start_after: keys.last().cloned(), max_keys: 7, ..ListRequest::default() };
            let page = self.service.list(BUCKET, request).await.unwrap();
            keys.extend(page.objects.into_iter().map(|(key, _)| key));
            if !page.truncated {
                return keys;
            }
        }
    }

    pub async fn place(&self, key: &str) -> Place {
        self.context.catalog.get_object(BUCKET, key).await.unwrap().1
    }

    /// The group of a stored object.
    pub async fn group_of(&self, key: &str) -> GroupId {
        let Place::Stored { blob, .. } = self.place(key).await else { panic!("{key} is not in the rack") };
        self.context.catalog.blob(blob).await.unwrap().unwrap().group
    }

    pub async fn ask<T: Send + 'static>(&self, look: impl FnOnce(&Rack) -> T + Send + 'static) -> T {
        self.world.ask(move |rack, _| look(rack)).await.expect("the world runs")
    }

    pub async fn state(&self, group: GroupId) -> GroupState {
        self.ask(move |rack| rack.group_state(group)).await
    }

    pub async fn is_asleep(&self) -> bool {
        self.ask(|rack| {
            rack.ledger().active_drives() == 0
                && (0..rack.layout().groups.len()).all(|g| rack.group_state(GroupId(g as u32)) == GroupState::Asleep)
        })
        .await
    }

    /// The number of starts of all drives.
    pub fn starts(&self) -> u32 {
        (0..self.context.drives.len()).map(|drive| self.rack.starts(DriveId(drive as u32))).sum()
    }

    /// Waits for `done`, looking once in a second, for at most `limit`.
    pub async fn until(&self, what: &str, limit: Duration, mut done: impl AsyncFnMut() -> bool) {
        let begun = Instant::now();
        while !done().await {
            assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
            tokio::time::sleep(SECOND).await;
        }
    }

    /// Waits until no live object is staged.
    pub async fn settle_but_for_readers(&self) {
        self.until("all migrated", 40 * 24 * HOUR, async || {
            self.context.catalog.staged_usage().await.unwrap().count == 0
        })
        .await;
    }

    /// Waits until nothing is staged and every group sleeps.
    pub async fn settle(&self) {
        self.until("all migrated and asleep", 40 * 24 * HOUR, async || {
            self.context.catalog.staged_usage().await.unwrap().count == 0
                && self.context.staging.usage().staged_bytes == 0
                && self.is_asleep().await
        })
        .await;
    }

    /// Asserts that records do not contradict each other, and that staged files and stacks do not contradict the
    /// records.
    pub async fn audit(&self, site: &Facts) {
        self.files_are_removed().await;
        let audit = self.context.catalog.audit().await.unwrap();
        assert_eq!((audit.contradictions, audit.findings), (0, Vec::new()));
        // Unknown files that were complete at a crash are kept until the start after the next.
        let left = self.context.counters.left_staged.load(Ordering::Relaxed);
        assert_eq!(site.staged_files(), self.known_files().await + left + self.unknown_files());
        let failed = self.failed().await;
        for stack in site.stacks().into_iter().filter(|stack| !failed.contains(&stack.drive)) {
            let blob = self.context.catalog.blob(stack.blob).await.unwrap();
            let blob = blob.unwrap_or_else(|| panic!("nobody knows {} on drive {}", stack.name, stack.drive));
            assert_eq!(blob.drives[stack.index].index(), stack.drive, "{} lies where it belongs", stack.name);
        }
        self.audit_living(site).await;
    }

    /// The number of files that are kept in the workshop since they may belong to a newer catalog.
    fn unknown_files(&self) -> u64 {
        self.context.counters.unknown_staged.load(Ordering::Relaxed)
    }

    /// The drives that failed permanently. Audits ignore the stacks on them.
    async fn failed(&self) -> BTreeSet<usize> {
        let failed = self.context.catalog.failed_drives().await.unwrap();
        failed.into_iter().map(|(drive, _)| drive.index()).collect()
    }

    /// Returns once files that are removed in the background are gone: time does not advance before.
    pub async fn files_are_removed(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// The number of files in the workshop according to the catalog.
    async fn known_files(&self) -> u64 {
        let whole = self.context.catalog.staged_slots(None, usize::MAX).await.unwrap().items.len();
        let (mut parts, mut after) = (0, None);
        loop {
            let page = self.context.catalog.part_slots(after.as_ref()).await.unwrap();
            parts += page.items.len();
            after = page.next;
            if after.is_none() {
                return (whole + parts) as u64;
            }
        }
    }

    /// Asserts that every stack of a blob with a live object is there.
    async fn audit_living(&self, site: &Facts) {
        let failed = self.failed().await;
        let stacks = site.stacks().into_iter().filter(|stack| !failed.contains(&stack.drive));
        let here: BTreeSet<_> = stacks.map(|stack| (stack.blob, stack.index)).collect();
        for key in self.keys().await {
            if let Place::Stored { blob, .. } = self.place(&key).await {
                let stacks = self.context.catalog.blob(blob).await.unwrap().unwrap().drives.len();
                assert!((0..stacks).all(|index| here.contains(&(blob, index))), "{key}: {blob} lacks a stack");
            }
        }
    }

    pub async fn close(&self) {
        tokio::time::timeout(HOUR, self.world.close()).await.expect("the world closes");
        for drive in 0..self.context.drives.len() as u32 {
            let state = self.rack.state(DriveId(drive));
            assert!(
                matches!(state, PowerState::Standby | PowerState::Away),
                "drive {drive} is {state:?} after closing"
            );
        }
    }

    /// Bytes that were written to the spool's disk and read from it so far.
    pub fn spooled_bytes(&self) -> u64 {
        self.spooled_bytes.load(Ordering::Relaxed)
    }

    /// The service that answers the operator.
    pub fn status(&self) -> StatusService {
        StatusService::new(self.context.clone(), self.world.clone(), self.rack.clone())
    }

    /// Time since boot.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Reads a body to its end and checks every byte of it; returns the serial number.
pub async fn read_out(key: &str, body: GetBody, range: Option<Range<u64>>) -> Result<u64, ServiceError> {
    let GetBody { object, mut bytes } = body;
    let (serial, length) = identity(&object);
    let mut all = Vec::new();
    while let Some(piece) = bytes.next().await {
        all.extend_from_slice(&piece?);
    }
    let Range { start, end } = range.unwrap_or(0..length);
    let wanted = content(key, serial, length);
    assert!(all == wanted[start as usize..end as usize], "{key} number {serial} is not what was put");
    Ok(serial)
}
