//! Reads the control of a drive's power from a description.

use super::fault::Fault;
use super::tree::{Item, Table};
use crate::rack::{COMMAND_TIMEOUT_MAX, DrivePower, DriveSpec, PowerCommand};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

const EXAMPLE: &str = "power = \"none\", power = \"own\" or power = { command = [\"/usr/local/sbin/relay\"] }";
/// The timeout of a command that states none.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

const _: () = assert!(COMMAND_TIMEOUT.as_nanos() <= COMMAND_TIMEOUT_MAX.as_nanos(), "it is one that may be written");

/// The power control in `[drive]`, for the drives that state none themselves.
pub(super) fn default(root: &Table<'_>) -> Result<DrivePower, Fault> {
    let Some(profile) = root.find("drive") else { return Ok(DrivePower::Own) };
    profile.table()?.find("power").map_or(Ok(DrivePower::Own), |power| read(&power))
}

/// The power control of `drive`: the one that it states itself, or the default if that fits. A default of none fits
/// directories, and a default command fits whole disks.
pub(super) fn of(drive: &DriveSpec, own: Option<DrivePower>, default: &DrivePower) -> DrivePower {
    let fits = match default {
        DrivePower::Own => true,
        DrivePower::None => !drive.is_device(),
        DrivePower::Command(_) => drive.is_device(),
    };
    own.unwrap_or_else(|| if fits { default.clone() } else { DrivePower::Own })
}

/// `"none"`, `"own"`, or a table with a command.
pub(super) fn read(item: &Item<'_>) -> Result<DrivePower, Fault> {
    match item.as_str() {
        Some("none") => return Ok(DrivePower::None),
        Some("own") => return Ok(DrivePower::Own),
        Some(_) => return Err(item.refuse(format!("this power control is unknown; write {EXAMPLE}"))),
        None => {}
    }
    let table = item.table().map_err(|_| item.refuse(format!("this is not a power control; write {EXAMPLE}")))?;
    table.only(&["command", "timeout"])?;
    let words =
        table.need("command", "[\"/usr/local/sbin/relay\"]")?.elements("command = [\"/usr/local/sbin/relay\"]")?;
    let argv: Result<Vec<String>, Fault> = words.iter().map(|word| Ok(word.string("\"7\"")?.to_string())).collect();
    let timeout = table.find("timeout").map_or(Ok(COMMAND_TIMEOUT), |timeout| timeout.duration())?;
    Ok(DrivePower::Command(PowerCommand { argv: argv?, timeout }))
}
