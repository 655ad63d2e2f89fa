//! The drives of this host's cold OSDs: the kernel's counters and their power.

use crate::agent::{DriveSeen, Mode};
use crate::cluster::{Cluster, Osd, OsdId};
use disk::IoCounters;
use disk::discover::{Tree, find, survey, system_transports};
use disk::power::{PowerControl, PowerError, PowerMode};
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Reasons why a drive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The OSD's data is in a file.
    #[error(
        "the data of {0} lie in a file, whose touches the kernel does not count; put it on a device of its own, a loop \
             device for one (`losetup --find --show FILE`)"
    )]
    InFile(OsdId),
    /// Other OSDs use the drive as well, and would wake it, or sleep with it.
    #[error("{device} of {osd} also serves {others:?}; a drive that sleeps serves the data of one OSD alone")]
    Shared {
        /// The device.
        device: String,
        /// Its OSD.
        osd: OsdId,
        /// The others.
        others: Vec<OsdId>,
    },
    /// The OSD's data is on no device, or on several.
    #[error("the data of {osd} lie on {devices:?}, and one drive is expected; see `ceph osd metadata {osd}`")]
    NotOne {
        /// The OSD.
        osd: OsdId,
        /// The devices by Ceph's report.
        devices: Vec<String>,
    },
    /// The held-back writes would spill over to the drive.
    #[error(
        "block.db of {osd} has {has} bytes, and --hold wants {wanted}: what is held back lies there, and what finds no \
             room is written to the drive; allow less, or give it a larger one"
    )]
    HoldNoRoom {
        /// The OSD.
        osd: OsdId,
        /// Bytes of its `block.db`; 0 without one.
        has: u64,
        /// Bytes that are needed.
        wanted: u64,
    },
    /// The kernel does not know it.
    #[error("the kernel has no counters of {0} of {1}; is this its host?")]
    Unknown(String, OsdId),
    /// Its power cannot be controlled.
    #[error(
        "{device} of {osd} cannot be put to sleep ({reason}); with --emulated, accesses that would wake it are counted \
         instead"
    )]
    NoPower {
        /// The device.
        device: String,
        /// Its OSD.
        osd: OsdId,
        /// The reason.
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
    /// The drive of `osd` of `cluster` on this machine.
    pub fn of(osd: &Osd, cluster: &Cluster, is_emulated: bool) -> Result<Self, DriveError> {
        let device = only_device(osd, cluster)?;
        let block = PathBuf::from("/sys/block").join(device);
        if IoCounters::read(&block).is_none() {
            return Err(DriveError::Unknown(device.to_owned(), osd.id));
        }
        if is_emulated {
            return Ok(Self::emulated(osd.id, device, block));
        }
        let no_power = |reason| DriveError::NoPower { device: device.to_owned(), osd: osd.id, reason };
        let power = real_power(device).map_err(no_power)?;
        Ok(Self { osd: osd.id, device: device.to_owned(), block, power })
    }

    /// The drive whose directory in sysfs is `block`; it does not really sleep.
    pub(super) fn emulated(osd: OsdId, device: &str, block: PathBuf) -> Self {
        let power = Box::new(EmulatedPower { block: block.clone(), asleep: Mutex::new(None) });
        Self { osd, device: device.to_owned(), block, power }
    }

    /// Observes it. Never touches its platters.
    pub fn seen(&self) -> DriveSeen {
        let mode = match self.power.mode() {
            PowerMode::Standby => Mode::Standby,
            PowerMode::Active => Mode::Active,
            PowerMode::Starting | PowerMode::Unknown(_) => Mode::Unknown,
        };
        let cache = fs::read_to_string(self.block.join("queue/write_cache"));
        let is_write_through = cache.is_ok_and(|cache| cache.trim() == "write through");
        DriveSeen { counters: IoCounters::read(&self.block), mode, is_write_through }
    }

    /// Sends it to standby, after its cache is written.
    pub fn sleep(&self) -> Result<(), PowerError> {
        self.power.stop()
    }

    /// Starts it.
    pub fn start(&self) -> Result<(), PowerError> {
        self.power.start()
    }
}

/// The one device of the data of `osd`, which serves nothing else in `cluster`.
fn only_device<'a>(osd: &'a Osd, cluster: &Cluster) -> Result<&'a str, DriveError> {
    if osd.is_in_file {
        return Err(DriveError::InFile(osd.id));
    }
    let [device] = osd.data_devices.as_slice() else {
        return Err(DriveError::NotOne { osd: osd.id, devices: osd.data_devices.clone() });
    };
    let others = cluster.osds.values().filter(|other| other.id != osd.id && other.hostname == osd.hostname);
    let others: Vec<OsdId> =
        others.filter(|other| other.is_up && other.devices.contains(device)).map(|other| other.id).collect();
    match others.as_slice() {
        [] => Ok(device),
        _ => Err(DriveError::Shared { device: device.clone(), osd: osd.id, others }),
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

/// A device that cannot sleep, for example a loop device: "asleep" means that the next touch is a wake.
struct EmulatedPower {
    block: PathBuf,
    /// The counters at the time when it fell asleep.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::tests::converted;

    fn refused(change: impl FnOnce(&mut Cluster)) -> String {
        let mut cluster = converted();
        change(&mut cluster);
        only_device(&cluster.osds[&OsdId(3)], &cluster).unwrap_err().to_string()
    }

    #[test]
    fn a_drive_of_one_osd_is_known() {
        let cluster = converted();
        assert_eq!(only_device(&cluster.osds[&OsdId(3)], &cluster).unwrap(), "loop0");
    }

    #[test]
    fn files_several_drives_and_drives_of_others_are_refused_with_their_reason() {
        fn osd(cluster: &mut Cluster, id: u32) -> &mut Osd {
            cluster.osds.get_mut(&OsdId(id)).unwrap()
        }
        assert!(refused(|cluster| osd(cluster, 3).is_in_file = true).contains("lie in a file"));
        assert!(refused(|cluster| osd(cluster, 3).data_devices.clear()).contains("one drive is expected"));
        let shares = |cluster: &mut Cluster| {
            // The `block.db` of another OSD of the host.
            let host = osd(cluster, 3).hostname.clone();
            (osd(cluster, 4).hostname, osd(cluster, 4).devices) = (host, vec!["loop1".to_owned(), "loop0".to_owned()]);
        };
        assert!(refused(shares).contains("loop0 of osd.3 also serves"));
    }

    #[test]
    fn a_touch_ends_the_sleep_of_a_device_that_only_counts() {
        let folder = tempfile::tempdir().unwrap();
        let stat = |reads: u32| {
            fs::write(folder.path().join("stat"), format!("{reads} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0")).unwrap();
        };
        stat(1);
        let drive = HostDrive::emulated(OsdId(3), "sdx", folder.path().to_owned());
        assert_eq!(drive.seen().mode, Mode::Active);
        drive.sleep().unwrap();
        assert_eq!(drive.seen().mode, Mode::Standby);
        stat(2);
        assert_eq!(drive.seen().mode, Mode::Active);
        assert!(!drive.seen().is_write_through);
        fs::create_dir(folder.path().join("queue")).unwrap();
        fs::write(folder.path().join("queue/write_cache"), "write through\n").unwrap();
        assert!(drive.seen().is_write_through);
    }
}
