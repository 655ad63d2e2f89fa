//! The power habits of a disk and of the kernel with it, as the kernel learned them when it found the disk; the disk is
//! not asked.

use super::identity::Identity;
use super::survey::allow_restart;
use super::tree::Tree;
use super::udev::Properties;
use model::PowerHabits;
use std::path::Path;

/// The level of Advanced Power Management from which on a disk does not stop its platters by itself (ACS-3, 7.45.9).
pub const APM_LEVEL_STAYS: u8 = 128;

/// The habits of the disk that the kernel calls `name`.
pub fn habits_of(tree: &Tree, name: &str) -> PowerHabits {
    let block = Path::new("sys/block").join(name);
    let ata = Identity::read(tree, &block, &Properties::read(tree, &block)).ata;
    PowerHabits {
        allow_restart: allow_restart(tree, &block),
        power_up_in_standby: ata.as_ref().map(|ata| ata.power_up_in_standby),
        apm_level: ata.as_ref().and_then(|ata| ata.apm_level),
        epc_enabled: ata.as_ref().map(|ata| ata.epc_enabled),
    }
}
