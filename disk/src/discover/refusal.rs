//! The reasons why a disk cannot be used, each with its remedy.

use super::usage::Usage;
use crate::power::PowerError;
use std::fmt;

/// A reason why a disk cannot become a drive of a rack, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no medium in it.
    NoMedium,
    /// It can only be read.
    ReadOnly,
    /// Its zones must be written in order, which file systems on whole disks do not support.
    HostManagedZones,
    /// It is in use.
    InUse(Usage),
    /// It has partitions.
    Partitioned(Vec<String>),
    /// It has other contents.
    Holds(String),
    /// It is a drive that Larder made, with this volume name, which identifies the rack.
    LardersOwn(String),
    /// Its contents were not read, since it is not known to be awake.
    NotRead(&'static str),
    /// It could not be read.
    Unreadable(String),
    /// It cannot be distinguished from other disks after the next boot.
    NoIdentity,
    /// Other disks have the same identity.
    SameIdentity(Vec<String>),
    /// Its bridge swallows or rejects power commands.
    BridgeSwallowsCommands(PowerError),
    /// Its power mode cannot be determined.
    PowerUnknown(PowerError),
}

/// The contents of a disk that are excused because they are no longer needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excused<'a> {
    /// Everything: the operator has named the disk.
    pub wiped: bool,
    /// The file system of this name.
    pub volume: Option<&'a str>,
}

impl Refusal {
    /// True if it concerns the contents of the disk, which can be wiped.
    pub(super) fn is_for_contents(&self) -> bool {
        matches!(self, Self::LardersOwn(_) | Self::Holds(_))
    }

    pub(super) fn is_excused(&self, excused: Excused<'_>) -> bool {
        let is_known = matches!(self, Self::LardersOwn(found) if Some(found.as_str()) == excused.volume);
        is_known || (excused.wiped && self.is_for_contents())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMedium => f.write_str("it has no medium; insert one, or leave it out"),
            Self::ReadOnly => {
                f.write_str("it is write-protected; lift the protection (a switch, or `blockdev --setrw`)")
            }
            Self::HostManagedZones => {
                f.write_str("it is a host-managed zoned disk, which cannot have a file system; leave it out")
            }
            Self::InUse(usage) => usage.fmt(f),
            Self::Partitioned(names) => write!(
                f,
                "it has partitions ({}); if nothing on them is needed any more, remove them with `wipefs --all`",
                names.join(", ")
            ),
            Self::Holds(what) => write!(
                f,
                "it holds {what}; if that is not needed any more, remove it with `wipefs --all`, or overwrite its \
                 first and last MiB"
            ),
            Self::LardersOwn(volume) => write!(
                f,
                "it is a drive of a rack already (volume {volume}); serve that rack, or if it is given up, remove the \
                 file system with `wipefs --all`"
            ),
            Self::NotRead(state) => write!(
                f,
                "it is {state}, so its contents were not examined; start it with `larder drive power`, and discover \
                 again"
            ),
            Self::Unreadable(error) => {
                write!(f, "it cannot be read ({error}); run as root, or replace it if it is damaged")
            }
            Self::NoIdentity => f.write_str(
                "it has neither a serial number nor a World Wide Name, so it could not be found again; connect it to \
                 another port or bridge",
            ),
            Self::SameIdentity(others) => write!(
                f,
                "it has the identity of {}: either they are two paths to one disk (leave one out, or use \
                 dm-multipath), or their bridges make up serial numbers (connect them to other ports)",
                others.join(", ")
            ),
            Self::BridgeSwallowsCommands(error) => write!(
                f,
                "its USB bridge does not carry power commands to it ({error}); connect it to a SATA or SAS port, use \
                 another bridge, or control its power by a command (`power` in the rack's description)"
            ),
            Self::PowerUnknown(error) => write!(
                f,
                "its power mode cannot be known: {error}. If that cannot be fixed, control its power by a command \
                 (`power` in the rack's description)"
            ),
        }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { device, at } => write!(
                f,
                "{device} is mounted at {at}; unmount it and take it out of /etc/fstab if the disk is meant for Larder"
            ),
            Self::Swap { device } => write!(
                f,
                "{device} is swap space; turn it off with `swapoff`, and take it out of /etc/fstab, if the disk is \
                 meant for Larder"
            ),
            Self::Holder { device, holder } => write!(
                f,
                "{device} is part of {holder}; stop that array, volume group or mapping if the disk is meant for Larder"
            ),
        }
    }
}
