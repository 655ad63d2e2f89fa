//! What a disk, and the kernel with it, does about its power by itself. From what the kernel learned when it found the
//! disk; the disk is not asked.

use super::identity::Identity;
use super::survey::allow_restart;
use super::tree::Tree;
use super::udev::Properties;
use crate::scsi::PowerUpInStandby;
use std::path::Path;

/// The levels of Advanced Power Management from which on a disk does not stop its platters by itself (ACS-3, 7.45.9).
pub const APM_LEVEL_STAYS: u8 = 128;

/// The habits of a disk; `None` is what it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerHabits {
    /// True if the kernel starts it by itself upon I/O while it is stopped (`allow_restart`).
    pub allow_restart: Option<bool>,
    /// Whether platters stay still when it gets its power.
    pub power_up_in_standby: Option<PowerUpInStandby>,
    /// The level of Advanced Power Management, if that is on.
    pub apm_level: Option<u8>,
    /// True if it may stop its platters by timers of its own (Extended Power Conditions).
    pub epc_enabled: Option<bool>,
}

impl PowerHabits {
    /// Those of the disk that the kernel calls `name`.
    pub fn read(tree: &Tree, name: &str) -> Self {
        let block = Path::new("sys/block").join(name);
        let ata = Identity::read(tree, &block, &Properties::read(tree, &block)).ata;
        Self {
            allow_restart: allow_restart(tree, &block),
            power_up_in_standby: ata.as_ref().map(|ata| ata.power_up_in_standby),
            apm_level: ata.as_ref().and_then(|ata| ata.apm_level),
            epc_enabled: ata.as_ref().map(|ata| ata.epc_enabled),
        }
    }
}
