//! The hardware of a rack in which some drives are devices.
//!
//! Its devices are watched ([`super::watched`]). Directories among the drives appear and disappear unnoticed until they
//! are mounted.

use super::DeviceDrive;
use super::powered::PoweredDisk;
use super::state::DeviceState;
use super::watch::Seen;
use super::watched::{ANSWER_MAX, Watched};
use crate::drive::Drive;
use crate::emulated::{DriveEvent, DriveEventKind};
use crate::hardware::Hardware;
use async_trait::async_trait;
use model::{DriveId, PowerHabits, UnaskedWake};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

/// The drives of a rack, with devices among them.
pub struct DeviceRack {
    drives: Vec<Arc<dyn Drive>>,
    devices: Vec<(DriveId, Arc<DeviceState>)>,
    watched: Watched<DriveId>,
    unread: Mutex<VecDeque<DriveEvent>>,
}

/// A drive of a rack with devices.
pub enum RackDrive {
    /// A whole disk.
    Device(DeviceDrive),
    /// Any other drive, without power control.
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
        let watched = devices.iter().map(|(drive, state)| (*drive, Arc::clone(&state.power))).collect();
        Self { drives: all, devices, watched: Watched::new(watched), unread: Mutex::default() }
    }

    /// All drives, in the order of their numbers.
    pub fn drives(&self) -> Vec<Arc<dyn Drive>> {
        self.drives.clone()
    }
}

fn event_of(drive: DriveId, seen: Seen) -> DriveEvent {
    let news = match seen {
        Seen::Gone => DriveEventKind::Pulled,
        Seen::Back { asleep: true } => DriveEventKind::Back,
        Seen::Back { asleep: false } | Seen::Woken(_) => DriveEventKind::Spins,
    };
    DriveEvent { drive, news }
}

#[async_trait]
impl Hardware for DeviceRack {
    async fn news(&self) -> DriveEvent {
        loop {
            if let Some(event) = self.unread.lock().pop_front() {
                return event;
            }
            let seen = self.watched.look().await;
            self.unread.lock().extend(seen.into_iter().map(|(drive, seen)| event_of(drive, seen)));
        }
    }

    async fn spinning(&self) -> Vec<DriveId> {
        // A disk that does not answer counts as spinning.
        let states = self.watched.each(PoweredDisk::ask, Some(false)).await;
        for (drive, _) in states.iter().filter(|(_, asleep)| asleep.is_none()) {
            self.watched.note(*drive, Seen::Gone);
            self.unread.lock().push_back(event_of(*drive, Seen::Gone));
        }
        let mut spinning: Vec<DriveId> =
            states.iter().filter(|(_, asleep)| *asleep == Some(false)).map(|(drive, _)| *drive).collect();
        let asleep = |drive: &DriveId| states.iter().any(|state| state == &(*drive, Some(true)));
        // One after the other: an unmount may start a disk, and no power was reserved for that.
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
        let _ = tokio::task::spawn_blocking(move || state.power.becomes(&id)).await;
    }

    fn woken_by_others(&self) -> u64 {
        self.watched.woken_by_others()
    }

    fn woke_themselves(&self) -> u64 {
        self.watched.woke_themselves()
    }

    fn habits(&self) -> BTreeMap<DriveId, PowerHabits> {
        self.devices.iter().filter_map(|(drive, state)| Some((*drive, state.power.disk.habits()?))).collect()
    }

    fn last_wakes(&self) -> BTreeMap<DriveId, UnaskedWake> {
        self.watched.last_wakes()
    }
}
