//! The drives of this host's cold OSDs: the kernel's counters and their power.

use crate::agent::{DriveSeen, Mode};
use crate::cluster::{Osd, OsdId};
use disk::IoCounters;
use disk::discover::{Tree, find, survey, system_transports};
use disk::power::{PowerControl, PowerError, PowerMode};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Why a drive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The OSD's data lie on none, or on several.
    #[error("the data of {osd} lie on {devices:?}, and one drive is expected; see `ceph osd metadata {osd}`")]
    NotOne {
        /// The OSD.
        osd: OsdId,
        /// What Ceph says.
        devices: Vec<String>,
    },
    /// The kernel does not know it.
    #[error("the kernel has no counters of {0} of {1}; is this its host?")]
    Unknown(String, OsdId),
    /// Its power cannot be controlled.
    #[error("{device} of {osd} cannot be put to sleep ({reason}); --emulated counts touches instead")]
    NoPower {
        /// The device.
        device: String,
        /// Its OSD.
        osd: OsdId,
        /// Why.
        reason: String,
    },
}

/// A drive of a cold OSD.
pub struct HostDrive {
    /// The OSD.
    pub osd: OsdId,
    /// The kernel's name of the drive.
    pub device: String,
    block: PathBuf,
    power: Box<dyn PowerControl>,
}

impl HostDrive {
    /// The drive of `osd` on this machine.
    pub fn of(osd: &Osd, is_emulated: bool) -> Result<Self, DriveError> {
        let [device] = osd.data_devices.as_slice() else {
            return Err(DriveError::NotOne { osd: osd.id, devices: osd.data_devices.clone() });
        };
        let block = PathBuf::from("/sys/block").join(device);
        if IoCounters::read(&block).is_none() {
            return Err(DriveError::Unknown(device.clone(), osd.id));
        }
        let power: Box<dyn PowerControl> = if is_emulated {
            Box::new(EmulatedPower { block: block.clone(), asleep: Mutex::new(None) })
        } else {
            real_power(device).map_err(|reason| DriveError::NoPower { device: device.clone(), osd: osd.id, reason })?
        };
        Ok(Self { osd: osd.id, device: device.clone(), block, power })
    }

    /// What is seen of it. Never touches its platters.
    pub fn seen(&self) -> DriveSeen {
        let mode = match self.power.mode() {
            PowerMode::Standby => Mode::Standby,
            PowerMode::Active => Mode::Active,
            PowerMode::Starting | PowerMode::Unknown(_) => Mode::Unknown,
        };
        DriveSeen { counters: IoCounters::read(&self.block), mode }
    }

    /// Sends it to standby; its cache is written before.
    pub fn sleep(&self) -> Result<(), PowerError> {
        self.power.stop()
    }

    /// Starts it.
    pub fn start(&self) -> Result<(), PowerError> {
        self.power.start()
    }
}

fn real_power(device: &str) -> Result<Box<dyn PowerControl>, String> {
    let tree = Tree::below("/");
    let disks = survey(&tree, &system_transports);
    let disk = find(&tree, &disks, device).map_err(|error| error.to_string())?;
    let power = disk.power_control(&tree, &system_transports).map_err(|error| error.to_string())?;
    match power.mode() {
        PowerMode::Unknown(error) => Err(error.to_string()),
        _ => Ok(power),
    }
}

/// A device that cannot sleep, a loop device for one: "asleep" means that the next touch is a wake.
struct EmulatedPower {
    block: PathBuf,
    /// The counters when it fell asleep.
    asleep: Mutex<Option<IoCounters>>,
}

impl PowerControl for EmulatedPower {
    fn mode(&self) -> PowerMode {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if asleep.is_some() && *asleep == IoCounters::read(&self.block) {
            return PowerMode::Standby;
        }
        *asleep = None;
        PowerMode::Active
    }

    fn start(&self) -> Result<(), PowerError> {
        *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    fn stop(&self) -> Result<(), PowerError> {
        *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) = IoCounters::read(&self.block);
        Ok(())
    }
}
