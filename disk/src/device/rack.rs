//! The hardware of a rack some of whose drives are devices.
//!
//! Every [`WATCH_EVERY`] each device is looked for, and the kernel's counters of those that sleep are read, which
//! touches no disk. Every [`CHECK_EVERY`] those that sleep are asked for their power mode as well, which starts none:
//! one may have woken by itself. Directories among the drives come and go without being noticed until they are mounted.

use super::DeviceDrive;
use super::state::DeviceState;
use super::watch::Seen;
use crate::clock;
use crate::counters::Touch;
use crate::drive::Drive;
use crate::emulated::{DriveEvent, DriveEventKind};
use crate::hardware::Hardware;
use async_trait::async_trait;
use model::{DriveId, PowerHabits, UnaskedWake};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at the devices.
pub const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Between two questions to the devices that sleep whether they still do.
pub const CHECK_EVERY: Duration = Duration::from_mins(10);

/// So long a disk may take to say what it is at: longer than the kernel tries a command again.
const ANSWER_MAX: Duration = Duration::from_mins(2);

/// The drives of a rack, some of which are devices.
pub struct DeviceRack {
    drives: Vec<Arc<dyn Drive>>,
    devices: Vec<(DriveId, Arc<DeviceState>)>,
    unread: Mutex<VecDeque<DriveEvent>>,
    woken: AtomicU64,
    woke_themselves: AtomicU64,
    last_wakes: Mutex<BTreeMap<DriveId, UnaskedWake>>,
    /// When the drives were last asked whether they sleep.
    checked: Mutex<Instant>,
}

/// A drive of such a rack.
pub enum RackDrive {
    /// A whole disk.
    Device(DeviceDrive),
    /// Anything else, without power control.
    Other(Arc<dyn Drive>),
}

impl DeviceRack {
    /// The rack of these drives, in the order of their numbers.
    pub fn new(drives: impl IntoIterator<Item = RackDrive>) -> Self {
        let mut devices = Vec::new();
        let mut all: Vec<Arc<dyn Drive>> = Vec::new();
        for drive in drives {
            match drive {
                RackDrive::Device(device) => {
                    devices.push((DriveId(all.len() as u32), Arc::clone(&device.state)));
                    all.push(Arc::new(device));
                }
                RackDrive::Other(other) => all.push(other),
            }
        }
        Self {
            drives: all,
            devices,
            unread: Mutex::default(),
            woken: AtomicU64::new(0),
            woke_themselves: AtomicU64::new(0),
            last_wakes: Mutex::default(),
            checked: Mutex::new(clock::monotonic()),
        }
    }

    /// All drives, in the order of their numbers.
    pub fn drives(&self) -> Vec<Arc<dyn Drive>> {
        self.drives.clone()
    }

    /// Does `work` with each device, all at once, on threads that may block: one that hangs is waited for no longer
    /// than [`ANSWER_MAX`], and `silence` stands for what it would have said.
    async fn each<T: Send + Clone + 'static>(&self, work: fn(&DeviceState) -> T, silence: T) -> Vec<(DriveId, T)> {
        let one = |(drive, state): &(DriveId, Arc<DeviceState>)| {
            let (drive, state, silence) = (*drive, Arc::clone(state), silence.clone());
            let asked = tokio::time::timeout(ANSWER_MAX, tokio::task::spawn_blocking(move || work(&state)));
            async move {
                let answer = asked.await;
                if answer.is_err() {
                    tracing::warn!(%drive, "a disk has not answered for {ANSWER_MAX:?}");
                }
                (drive, answer.ok().and_then(Result::ok).unwrap_or(silence))
            }
        };
        futures::future::join_all(self.devices.iter().map(one)).await
    }

    fn event_of(&self, drive: DriveId, seen: Seen) -> DriveEvent {
        let news = match seen {
            Seen::Gone => {
                tracing::error!(%drive, "a disk is gone; see to its cable, its slot and its power");
                DriveEventKind::Pulled
            }
            Seen::Back { asleep: true } => {
                tracing::info!(%drive, "a disk is back, asleep");
                DriveEventKind::Back
            }
            Seen::Back { asleep: false } => {
                tracing::info!(%drive, "a disk is back, and spins or may; it is stopped");
                DriveEventKind::Spins
            }
            Seen::Woken(touch) => {
                self.note_woken(drive, touch);
                DriveEventKind::Spins
            }
        };
        DriveEvent { drive, news }
    }

    /// Nobody here woke `drive`.
    fn note_woken(&self, drive: DriveId, touch: Touch) {
        let (by_itself, cause) = (touch == Touch::None, what(touch));
        let counter = if by_itself { &self.woke_themselves } else { &self.woken };
        counter.fetch_add(1, Ordering::Relaxed);
        let wake = UnaskedWake { found_ms: clock::wall_ms(), by_itself, cause: cause.clone() };
        self.last_wakes.lock().insert(drive, wake);
        if by_itself {
            tracing::warn!(
                %drive,
                "a sleeping disk woke by itself: {cause}; `larder drive doctor` says which disks do that by timers"
            );
        } else {
            tracing::warn!(
                %drive,
                "another program woke a sleeping disk: {cause}; `larder drive doctor` looks for who does that"
            );
        }
    }
}

fn what(touch: Touch) -> String {
    match touch {
        Touch::Io(requests) => format!("reads, writes or flushes: {requests}"),
        Touch::Commands(commands) => format!("commands without reads or writes: {commands}"),
        Touch::None => "nobody sent it anything".to_owned(),
        Touch::Restarted => "the kernel counts it anew, as after a reset or another cable".to_owned(),
    }
}

#[async_trait]
impl Hardware for DeviceRack {
    async fn news(&self) -> DriveEvent {
        loop {
            if let Some(event) = self.unread.lock().pop_front() {
                return event;
            }
            tokio::time::sleep(WATCH_EVERY).await;
            let mut seen = self.each(DeviceState::look, None).await;
            if self.checked.lock().elapsed() >= CHECK_EVERY {
                seen.extend(self.each(DeviceState::check, None).await);
                *self.checked.lock() = clock::monotonic();
            }
            let events = seen.into_iter().filter_map(|(drive, seen)| Some(self.event_of(drive, seen?)));
            self.unread.lock().extend(events);
        }
    }

    async fn spinning(&self) -> Vec<DriveId> {
        // Of one that does not answer nobody knows whether it spins.
        let states = self.each(DeviceState::ask, Some(false)).await;
        let gone = states.iter().filter(|(_, asleep)| asleep.is_none());
        let events = gone.map(|(drive, _)| self.event_of(*drive, Seen::Gone));
        self.unread.lock().extend(events);
        let mut spinning: Vec<DriveId> =
            states.iter().filter(|(_, asleep)| *asleep == Some(false)).map(|(drive, _)| *drive).collect();
        let asleep = |drive: &DriveId| states.iter().any(|state| state == &(*drive, Some(true)));
        // One after the other: an unmount may start a disk, and nobody has booked that.
        for (drive, state) in self.devices.iter().filter(|(drive, _)| asleep(drive)) {
            let state = Arc::clone(state);
            let settling = tokio::time::timeout(ANSWER_MAX, tokio::task::spawn_blocking(move || state.settle()));
            if !matches!(settling.await, Ok(Ok(true))) {
                spinning.push(*drive);
            }
        }
        spinning
    }

    async fn use_disk(&self, drive: DriveId, id: &Path) {
        let Some((_, state)) = self.devices.iter().find(|(device, _)| *device == drive) else { return };
        let (state, id) = (Arc::clone(state), id.to_owned());
        let _ = tokio::task::spawn_blocking(move || state.becomes(&id)).await;
    }

    fn woken_by_others(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    fn woke_themselves(&self) -> u64 {
        self.woke_themselves.load(Ordering::Relaxed)
    }

    fn habits(&self) -> BTreeMap<DriveId, PowerHabits> {
        self.devices.iter().filter_map(|(drive, state)| Some((*drive, state.disk.habits()?))).collect()
    }

    fn last_wakes(&self) -> BTreeMap<DriveId, UnaskedWake> {
        self.last_wakes.lock().clone()
    }
}
