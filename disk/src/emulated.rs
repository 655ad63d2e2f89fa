//! Emulated drives: `model`'s physics over any inner drive.
//!
//! An [`EmulatedRack`] holds the true state of all its drives under one lock, since they share fuses. Its drives do the
//! real transfer on the inner drive and then wait for the modelled moment at which the modelled drive would have
//! finished:
//!
//! 1. Under the lock: is the request allowed (turning, mounted, powered)? When would it end? The heads are busy until
//!    then.
//! 2. The inner drive executes it.
//! 3. Wait for the modelled moment; then check whether the drive lost its power meanwhile.
//!
//! Invariants:
//! - A request never ends before its modelled moment, except for waits of less than 1 ms of wall time: they are
//!   skipped, and the next request makes up for them, because the heads stay busy until the modelled moment. A timer
//!   that fires late is compensated, too: if the next request follows at once, its time is counted from the modelled
//!   end of the previous request. So a high time scale does not suffer from the granularity of timers.
//! - If the inner drive is slower than the model, that is an [`Overrun`], which is counted and shown.
//! - The same seed and the same commands at the same moments give the same physics. Nothing here spawns a task or a
//!   thread.

use crate::{Buffer, Clock, Drive, DriveError, DriveFuture, FileName, Space};
use async_trait::async_trait;
use crc_fast::CrcAlgorithm;
use model::physics::{DrivePhysics, Energy, Fuses, LinkQueues, PowerState, Refused, ServerLoad, Servers, Trip};
use model::{DriveId, PoolDriveId, RackSpec, ResourceId, Smart, Time};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

/// The time until a tripped fuse resets, in modelled time.
pub const FUSE_RESET: Duration = Duration::from_secs(30);

/// Waits shorter than this in wall time are left to the next request.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The time by which the inner drives were slower than the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrun {
    /// Requests that ended later than modelled.
    pub requests: u64,
    /// Their total lateness, in modelled time.
    pub total: Duration,
}

/// A drive event that no command caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveEvent {
    /// The drive.
    pub drive: DriveId,
    /// The event.
    pub news: DriveEventKind,
}

/// The kind of an event of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveEventKind {
    /// The fuse of this domain tripped.
    FuseTripped {
        /// Resource and domain, for people.
        domain: String,
    },
    /// It was pulled ([`EmulatedRack::pull`]).
    Pulled,
    /// It answers again, in standby.
    Back,
    /// It spins although no start was requested, or its state is unknown. No emulated drive does that.
    Spins,
}

/// The state that all drives of a rack share.
struct RackState {
    clock: Arc<dyn Clock>,
    truth: Mutex<Truth>,
    notified: Notify,
    /// Returns how full the clients' queue of a drive's class is, in thousandths, once it is set.
    queue_fill_permille: OnceLock<Box<dyn Fn(DriveId) -> u32 + Send + Sync>>,
}

struct Truth {
    drives: Vec<DriveState>,
    /// The drives of the pool; only the power part of their physics is emulated.
    pool: Vec<DrivePhysics>,
    fuses: Fuses,
    resource_names: Vec<String>,
    servers: Servers,
    links: LinkQueues,
    /// Bytes from which on a request is part of a payload stream; smaller ones read labels and headers.
    stream_bytes: usize,
    news: VecDeque<DriveEvent>,
    /// The times at which drives get their power back.
    resets: BTreeSet<(Time, DriveId)>,
    overrun: Overrun,
}

/// The true state of one drive.
struct DriveState {
    physics: DrivePhysics,
    pulled: bool,
    /// The domain whose fuse last cut its power.
    tripped: Option<String>,
    /// The delay by which a timer let the last request end too late, and the time of that.
    lag: Duration,
    lag_seen: Time,
}

/// A rack of emulated drives.
pub struct EmulatedRack {
    shared: Arc<RackState>,
    drives: Vec<Arc<EmulatedDrive>>,
}

/// One drive of an [`EmulatedRack`].
pub struct EmulatedDrive {
    id: DriveId,
    inner: Arc<dyn Drive>,
    shared: Arc<RackState>,
    capacity_bytes: u64,
    /// Bytes of all files; counted at the first mount, unless [`EmulatedRack::assume_used`] has set it before.
    used_bytes: Mutex<Option<u64>>,
}

/// A request that has started.
struct Begun {
    done: Time,
    /// The drive's number of power losses at the start.
    losses: u32,
    /// The time by which it counts as started before its call.
    lag: Duration,
}

impl RackState {
    /// The true state at this moment: everything that was due has happened.
    fn truth(&self) -> (MutexGuard<'_, Truth>, Time) {
        let mut truth = self.truth.lock();
        let now = self.clock.now();
        if truth.reset_fuses(now) {
            self.notified.notify_waiters();
        }
        (truth, now)
    }

    /// Lets a started request of `bytes` bytes to `drive` cross the drive's links, which may make it end later, and may
    /// make it part of a stream.
    fn cross_links(&self, drive: DriveId, bytes: usize, begun: &mut Begun) {
        let mut truth = self.truth.lock();
        let crossed = truth.links.carry(self.clock.now() - begun.lag, drive, bytes as u64);
        begun.done = begun.done.max(crossed);
        if bytes >= truth.stream_bytes {
            truth.servers.request_until(drive, begun.done);
        }
    }
}

impl Truth {
    /// Restores power after fuses have reset. True if some drive came back.
    fn reset_fuses(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(&(at, drive)) = self.resets.first().filter(|(at, _)| *at <= now) {
            self.resets.remove(&(at, drive));
            any |= self.power_on(at, drive);
        }
        any
    }

    /// Restores the drive's power, unless it is away for another reason. True if it came back.
    fn power_on(&mut self, now: Time, drive: DriveId) -> bool {
        let one = &mut self.drives[drive.index()];
        let away = one.physics.state(now) == PowerState::Away;
        if !away || one.pulled || self.fuses.tripped(now, drive).is_some() {
            return false;
        }
        one.physics.come_back(now);
        self.news.push_back(DriveEvent { drive, news: DriveEventKind::Back });
        true
    }

    /// Cuts the drive's power.
    fn power_off(&mut self, now: Time, drive: DriveId, why: DriveEventKind) {
        let one = &mut self.drives[drive.index()];
        if one.physics.state(now) == PowerState::Away {
            return;
        }
        one.tripped = match &why {
            DriveEventKind::FuseTripped { domain } => Some(domain.clone()),
            DriveEventKind::Pulled | DriveEventKind::Back | DriveEventKind::Spins => None,
        };
        one.physics.lose(now);
        self.fuses.lose(drive);
        self.news.push_back(DriveEvent { drive, news: why });
    }

    /// Starts the platters of `drive`, which may be too much for a fuse.
    fn spin_up(&mut self, now: Time, drive: DriveId) -> Result<Time, Refused> {
        let ready = self.drives[drive.index()].physics.spin_up(now)?;
        if let Some(trip) = self.fuses.spin_up(now, drive, ready) {
            self.tripped(now, &trip);
        }
        Ok(ready)
    }

    /// Handles a tripped fuse: its drives are gone until it resets. Returns those that were not already gone.
    fn tripped(&mut self, now: Time, trip: &Trip) -> Vec<DriveId> {
        let domain = format!("{} {}", self.resource_names[trip.resource.index()], trip.domain.0);
        tracing::warn!(%domain, drives = trip.drives.len(), "a fuse tripped");
        let mut lost = Vec::new();
        for drive in &trip.drives {
            if self.drives[drive.index()].physics.state(now) != PowerState::Away {
                lost.push(*drive);
            }
            self.power_off(now, *drive, DriveEventKind::FuseTripped { domain: domain.clone() });
            self.resets.insert((trip.reset_at, *drive));
        }
        lost
    }

    /// The error for a command that the physics of `drive` refused.
    fn excuse(&self, drive: DriveId, refused: Refused) -> DriveError {
        match refused.state {
            PowerState::Away => self.absence(drive),
            PowerState::Standby => DriveError::NotReady("in standby"),
            PowerState::SpinningUp => DriveError::NotReady("spinning up"),
            PowerState::SpinningDown => DriveError::NotReady("spinning down"),
            PowerState::Active if refused.mounted => DriveError::NotReady("still mounted"),
            PowerState::Active => DriveError::NotReady("not mounted"),
        }
    }

    fn absence(&self, drive: DriveId) -> DriveError {
        match &self.drives[drive.index()].tripped {
            Some(domain) => DriveError::FuseTripped { domain: domain.clone() },
            None => DriveError::Gone(PathBuf::from(drive.to_string())),
        }
    }
}

impl EmulatedRack {
    /// The drives that `spec` describes, in standby and unmounted, each over the drive that `make_inner` returns for
    /// it.
    pub fn new(
        spec: &RackSpec,
        seed: u64,
        clock: Arc<dyn Clock>,
        make_inner: impl Fn(DriveId) -> Arc<dyn Drive>,
    ) -> Self {
        let (now, profile) = (clock.now(), Arc::new(spec.profile.clone()));
        let physics = |drive: DriveId| {
            let physics =
                DrivePhysics::new(Arc::clone(&profile), seed, drive).at_rate(spec.drive(drive).bytes_per_s).from(now);
            if spec.is_always_on(drive) { physics.always_on() } else { physics }
        };
        let one = |drive: DriveId| DriveState {
            physics: physics(drive),
            pulled: false,
            tripped: None,
            lag: Duration::ZERO,
            lag_seen: now,
        };
        // After those of the rack in the stream of random numbers.
        let pooled =
            |at: usize| DrivePhysics::new(Arc::clone(&profile), seed, DriveId((spec.drives.len() + at) as u32));
        let truth = Truth {
            pool: (0..spec.pool.len()).map(|at| pooled(at).turning().from(now)).collect(),
            drives: spec.drives.iter().map(|drive| one(drive.id)).collect(),
            fuses: Fuses::new(spec, FUSE_RESET),
            resource_names: spec.resources.iter().map(|resource| resource.name.clone()).collect(),
            servers: Servers::new(spec),
            links: LinkQueues::new(spec),
            stream_bytes: spec.code.fragment_bytes as usize,
            news: VecDeque::new(),
            resets: BTreeSet::new(),
            overrun: Overrun::default(),
        };
        let shared = Arc::new(RackState {
            clock,
            truth: Mutex::new(truth),
            notified: Notify::new(),
            queue_fill_permille: OnceLock::new(),
        });
        let emulated = |id: DriveId| EmulatedDrive {
            id,
            inner: make_inner(id),
            shared: Arc::clone(&shared),
            capacity_bytes: spec.capacity_bytes(id),
            used_bytes: Mutex::new(None),
        };
        let drives = spec.drives.iter().map(|drive| Arc::new(emulated(drive.id))).collect();
        Self { shared, drives }
    }

    /// Sets the bytes of the files on drive `id`, so that its first mount need not ask each file for its length. If
    /// another drive is found in its place, its files are counted.
    pub fn assume_used(&self, id: DriveId, bytes: u64) {
        *self.drives[id.index()].used() = Some(bytes);
    }

    /// Drive `id` of the rack.
    pub fn drive(&self, id: DriveId) -> Arc<dyn Drive> {
        Arc::clone(&self.drives[id.index()]) as Arc<dyn Drive>
    }

    /// All drives, in the order of their numbers.
    pub fn drives(&self) -> Vec<Arc<dyn Drive>> {
        self.drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn Drive>).collect()
    }

    /// The next event that no command caused. Each event goes to one listener.
    pub async fn news(&self) -> DriveEvent {
        loop {
            let notified = self.shared.notified.notified();
            let next_reset = {
                let (mut truth, _) = self.shared.truth();
                if let Some(news) = truth.news.pop_front() {
                    return news;
                }
                truth.resets.first().map_or(Time::MAX, |(at, _)| *at)
            };
            tokio::select! {
                () = notified => {}
                () = self.shared.clock.sleep_until(next_reset) => {}
            }
        }
    }

    /// Pulls a drive out of its slot.
    pub fn pull(&self, drive: DriveId) {
        let (mut truth, now) = self.shared.truth();
        truth.power_off(now, drive, DriveEventKind::Pulled);
        truth.drives[drive.index()].pulled = true;
        self.shared.notified.notify_waiters();
    }

    /// Puts a pulled drive back into its slot.
    pub fn plug(&self, drive: DriveId) {
        let (mut truth, now) = self.shared.truth();
        truth.drives[drive.index()].pulled = false;
        truth.power_on(now, drive);
        self.shared.notified.notify_waiters();
    }

    /// Trips the fuse of `resource` that supplies `drive`, without a reason, as fuses do. Returns the drives that are
    /// gone now.
    pub fn trip(&self, resource: ResourceId, drive: DriveId) -> Vec<DriveId> {
        let (mut truth, now) = self.shared.truth();
        let Some(trip) = truth.fuses.trip_around(now, resource, drive) else { return Vec::new() };
        let lost = truth.tripped(now, &trip);
        self.shared.notified.notify_waiters();
        lost
    }

    /// Puts another drive in the place of a failed one: it has power, and its bytes are counted again.
    pub fn replace(&self, drive: DriveId) {
        *self.drives[drive.index()].used() = None;
        self.plug(drive);
    }

    /// The state of a drive's platters. Reading it wakes nothing.
    pub fn state(&self, drive: DriveId) -> PowerState {
        let (mut truth, now) = self.shared.truth();
        truth.drives[drive.index()].physics.state(now)
    }

    /// The power that all drives draw now, in milliwatts.
    pub fn draw_mw(&self) -> u64 {
        let (mut truth, now) = self.shared.truth();
        let Truth { drives, pool, .. } = &mut *truth;
        let all = drives.iter_mut().map(|one| &mut one.physics).chain(pool);
        all.map(|physics| u64::from(physics.draw_mw(now))).sum()
    }

    /// The energy that all drives have used since the rack was created.
    pub fn energy(&self) -> Energy {
        let (mut truth, now) = self.shared.truth();
        let mut sum = Energy::default();
        let Truth { drives, pool, .. } = &mut *truth;
        for physics in drives.iter_mut().map(|one| &mut one.physics).chain(pool) {
            sum += physics.energy(now);
        }
        sum
    }

    /// Starts the platters of `drive` of the pool, which may be too much for a fuse of the drives beside it; returns
    /// when they are at speed.
    ///
    /// # Errors
    /// [`DriveError::NotReady`] while they are stopping.
    pub async fn start_pool_drive(&self, drive: PoolDriveId) -> Result<(), DriveError> {
        let at_speed = {
            let (mut truth, now) = self.shared.truth();
            let started = truth.pool[drive.index()].spin_up(now);
            let at_speed = started.map_err(|_| DriveError::NotReady("spinning down"))?;
            if let Some(trip) = truth.fuses.pool_spin_up(now, drive, at_speed) {
                truth.tripped(now, &trip);
            }
            self.shared.notified.notify_waiters();
            at_speed
        };
        self.shared.clock.sleep_until(at_speed).await;
        Ok(())
    }

    /// Stops the platters of `drive` of the pool; returns when they have stopped.
    ///
    /// # Errors
    /// [`DriveError::NotReady`] if they cannot be stopped.
    pub async fn stop_pool_drive(&self, drive: PoolDriveId) -> Result<(), DriveError> {
        let still = {
            let (mut truth, now) = self.shared.truth();
            let stopped = truth.pool[drive.index()].stop(now);
            stopped.map_err(|_| DriveError::NotReady("not to be stopped"))?
        };
        self.shared.clock.sleep_until(still).await;
        Ok(())
    }

    /// The state of the platters of `drive` of the pool, and their number of starts. Reading it wakes nothing.
    pub fn pool_state(&self, drive: PoolDriveId) -> (PowerState, u32) {
        let (mut truth, now) = self.shared.truth();
        let physics = &mut truth.pool[drive.index()];
        (physics.state(now), physics.starts())
    }

    /// Number of times that the platters of a drive were started.
    pub fn starts(&self, drive: DriveId) -> u32 {
        self.shared.truth().0.drives[drive.index()].physics.starts()
    }

    /// Sets `fill_permille`, which returns how full the clients' queue of a drive's class is. Full queues make load
    /// heavy if the description defines that ([`model::HeavyLoad`]). Before this call the queues count as empty. Only
    /// the first call has an effect.
    pub fn watch_queues(&self, fill_permille: impl Fn(DriveId) -> u32 + Send + Sync + 'static) {
        let _ = self.shared.queue_fill_permille.set(Box::new(fill_permille));
    }

    /// The time by which the inner drives were slower than the model.
    pub fn overrun(&self) -> Overrun {
        self.shared.truth().0.overrun
    }
}

impl EmulatedDrive {
    /// Starts an action whose time the physics of this drive determine.
    fn begin(
        &self,
        timing: impl FnOnce(&mut DrivePhysics, Time, ServerLoad) -> Result<Time, Refused>,
    ) -> Result<Begun, DriveError> {
        let (mut truth, now) = self.shared.truth();
        truth.servers.set_queue_fill(self.shared.queue_fill_permille.get().map_or(0, |fill| fill(self.id)));
        let load = truth.servers.load(now, self.id);
        let one = &mut truth.drives[self.id.index()];
        let follows_at_once = self.shared.clock.to_wall(now.since(one.lag_seen)) < SHORTEST_WAIT;
        let lag = if follows_at_once { one.lag } else { Duration::ZERO };
        let losses = one.physics.losses();
        match timing(&mut one.physics, now - lag, load) {
            Ok(done) => {
                assert!(done >= now - lag, "a request ends after it begins");
                Ok(Begun { done, losses, lag })
            }
            Err(refused) => Err(truth.excuse(self.id, refused)),
        }
    }

    /// An error if the drive lost its power since the request began.
    fn check_power(&self, begun: &Begun) -> Result<(), DriveError> {
        let (truth, _) = self.shared.truth();
        let kept = truth.drives[self.id.index()].physics.losses() == begun.losses;
        if kept { Ok(()) } else { Err(truth.absence(self.id)) }
    }

    /// Waits for the end of a command to the platters, even if the wait is short.
    async fn wait(&self, begun: Begun) -> Result<(), DriveError> {
        self.check_power(&begun)?;
        self.shared.truth().0.drives[self.id.index()].lag = Duration::ZERO;
        self.shared.clock.sleep_until(begun.done).await;
        self.check_power(&begun)
    }

    /// Waits for the end of a request that the inner drive has executed, and counts its lateness.
    async fn finish(&self, begun: Begun) -> Result<(), DriveError> {
        let clock = &self.shared.clock;
        let ahead = begun.done.since(clock.now());
        if clock.to_wall(ahead) >= SHORTEST_WAIT {
            clock.sleep_until(begun.done).await;
            self.settle_lateness(&begun, true);
        } else {
            self.settle_lateness(&begun, false);
        }
        self.check_power(&begun)
    }

    /// Attributes lateness to the timer (the next request makes up for it) or to the inner drive.
    fn settle_lateness(&self, begun: &Begun, slept: bool) {
        let (mut truth, now) = self.shared.truth();
        let late = now.since(begun.done);
        let timers_fault = slept || late <= begun.lag;
        if !timers_fault {
            truth.overrun.requests += 1;
            truth.overrun.total += late.saturating_sub(begun.lag);
        }
        let one = &mut truth.drives[self.id.index()];
        one.lag = if timers_fault { late } else { Duration::ZERO };
        one.lag_seen = now;
    }

    /// A change of the file system itself: a seek, and the answer of the inner drive.
    async fn touched<T>(&self, inner: DriveFuture<'_, T>) -> Result<T, DriveError> {
        let begun = self.begin(|physics, now, _| physics.touch(now))?;
        let answer = inner.await?;
        self.finish(begun).await?;
        Ok(answer)
    }

    /// A transfer of bytes, and the answer of the inner drive.
    async fn transferred<T>(
        &self,
        name: &FileName,
        offset: u64,
        bytes: usize,
        inner: DriveFuture<'_, T>,
    ) -> Result<T, DriveError> {
        let file = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, name.as_str().as_bytes());
        let mut begun = self.begin(|physics, now, _| physics.transfer(now, file, offset, bytes as u64))?;
        self.shared.cross_links(self.id, bytes, &mut begun);
        let answer = inner.await?;
        self.finish(begun).await?;
        Ok(answer)
    }

    /// An action that takes no time of the heads, but needs a mounted file system.
    async fn looked_up<T>(&self, inner: DriveFuture<'_, T>) -> Result<T, DriveError> {
        self.begin(|physics, now, _| physics.ready(now).map(|()| now))?;
        inner.await
    }

    fn used(&self) -> MutexGuard<'_, Option<u64>> {
        self.used_bytes.lock()
    }

    /// Counts the bytes on the drive, once.
    async fn count_files(&self) -> Result<(), DriveError> {
        if self.used().is_some() {
            return Ok(());
        }
        let mut sum = 0;
        for name in self.inner.list().await? {
            sum += self.inner.len(&name).await?;
        }
        *self.used() = Some(sum);
        Ok(())
    }

    /// The smaller of the room of the model and of the inner drive.
    fn bounded(&self, inner: Space) -> Space {
        let modelled_free_bytes = self.capacity_bytes.saturating_sub(self.used().unwrap_or(0));
        Space { capacity_bytes: self.capacity_bytes, free_bytes: modelled_free_bytes.min(inner.free_bytes) }
    }

    /// Takes `bytes` of the modelled room, if that is free.
    fn reserve(&self, bytes: u64) -> Result<(), DriveError> {
        let mut used = self.used();
        let after = used.unwrap_or(0).saturating_add(bytes);
        if after > self.capacity_bytes {
            return Err(DriveError::Full);
        }
        *used = Some(after);
        Ok(())
    }

    /// Releases room.
    fn release(&self, bytes: u64) {
        let mut used = self.used();
        *used = used.map(|used| used.saturating_sub(bytes));
    }
}

#[async_trait]
impl Drive for EmulatedDrive {
    async fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let begun = self.begin(|physics, now, _| physics.touch(now))?;
        let reserved = self.reserve(bytes);
        let created = match &reserved {
            Ok(()) => self.inner.create(name, bytes).await,
            // A full drive answers `Full` only if the name is free.
            Err(_) => match self.inner.len(name).await {
                Ok(_) => Err(DriveError::Exists(name.clone())),
                Err(_) => Err(DriveError::Full),
            },
        };
        if created.is_err() && reserved.is_ok() {
            self.release(bytes);
        }
        created?;
        self.finish(begun).await
    }

    async fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError> {
        let bytes = data.len();
        self.transferred(name, offset, bytes, self.inner.write_at(name, offset, data)).await
    }

    async fn read_at(&self, name: &FileName, offset: u64, into: Buffer) -> Result<Buffer, DriveError> {
        let bytes = into.len();
        self.transferred(name, offset, bytes, self.inner.read_at(name, offset, into)).await
    }

    async fn pass(&self, name: &FileName, offset: u64, bytes: u64) -> Result<(), DriveError> {
        self.transferred(name, offset, bytes as usize, self.inner.pass(name, offset, bytes)).await
    }

    async fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        self.touched(self.inner.sync(name)).await
    }

    async fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        let begun = self.begin(|physics, now, _| physics.touch(now))?;
        let bytes = self.inner.len(name).await?;
        self.inner.remove(name).await?;
        self.release(bytes);
        self.finish(begun).await
    }

    async fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        let begun = self.begin(|physics, now, _| physics.touch(now))?;
        let replaced_bytes = self.inner.len(to).await.unwrap_or(0);
        self.inner.replace(from, to).await?;
        self.release(replaced_bytes);
        self.finish(begun).await
    }

    async fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        self.looked_up(self.inner.len(name)).await
    }

    async fn list(&self) -> Result<Vec<FileName>, DriveError> {
        self.looked_up(self.inner.list()).await
    }

    async fn space(&self) -> Result<Space, DriveError> {
        Ok(self.bounded(self.looked_up(self.inner.space()).await?))
    }

    async fn health(&self) -> Result<Option<Smart>, DriveError> {
        self.touched(self.inner.health()).await
    }

    async fn spin_up(&self) -> Result<(), DriveError> {
        let begun = {
            let (mut truth, now) = self.shared.truth();
            let losses = truth.drives[self.id.index()].physics.losses();
            let done = truth.spin_up(now, self.id).map_err(|refused| truth.excuse(self.id, refused))?;
            self.shared.notified.notify_waiters();
            Begun { done, losses, lag: Duration::ZERO }
        };
        self.wait(begun).await?;
        self.inner.spin_up().await
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        let begun = self.begin(DrivePhysics::mount)?;
        self.wait(begun).await?;
        // The label can be read only now: reading it is part of the mount.
        let mounted = self.inner.mount().await;
        if mounted.is_err() {
            // The drive in its place, or its later replacement, holds other files; none of them is reached.
            *self.used() = None;
            self.begin(|physics, now, _| physics.unmount(now))?;
        }
        let space = mounted?;
        self.count_files().await?;
        Ok(self.bounded(space))
    }

    async fn unmount(&self) -> Result<(), DriveError> {
        let begun = self.begin(|physics, now, _| physics.unmount(now))?;
        self.inner.unmount().await?;
        self.wait(begun).await
    }

    async fn stop(&self) -> Result<(), DriveError> {
        let begun = self.begin(|physics, now, _| physics.stop(now))?;
        self.shared.truth().0.fuses.stop(self.id, begun.done);
        self.wait(begun).await?;
        self.inner.stop().await
    }
}
