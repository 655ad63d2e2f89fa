//! A disk of this machine, as found by a survey.

use super::contents::Contents;
use super::enclosures::Slot;
use super::refusal::{Excused, Refusal};
use super::tree::{Tree, device_path};
use crate::counters::IoCounters;
use crate::label::Device;
use crate::power::{AtaPower, NoPower, PowerControl, PowerMode, ScsiPower};
use crate::scsi::{ScsiTransport, SgDevice, TransportError};
use model::PowerUpInStandby;
use std::fmt;
use std::path::{Path, PathBuf};

/// Opens a transport for commands to the disk at a path.
pub type Transports<'a> = dyn Fn(&Path) -> Result<Box<dyn ScsiTransport>, TransportError> + 'a;

/// The transports of this machine.
pub fn system_transports(path: &Path) -> Result<Box<dyn ScsiTransport>, TransportError> {
    Ok(Box::new(SgDevice::open(path)?))
}

/// The bus between host and disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// SATA or PATA, at a port of the host.
    Ata,
    /// At a SAS port. The disk itself may be SATA.
    Sas,
    /// With a USB bridge in between.
    Usb,
    /// A virtual machine's own bus.
    Virtio,
    /// NVMe.
    Nvme,
    /// Other SCSI: iSCSI, Fibre Channel, virtual adapters.
    Scsi,
    /// Another bus.
    Other,
}

impl Bus {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ata => "ata",
            Self::Sas => "sas",
            Self::Usb => "usb",
            Self::Virtio => "virtio",
            Self::Nvme => "nvme",
            Self::Scsi => "scsi",
            Self::Other => "other",
        }
    }
}

/// The commands by which a disk's power is controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// ATA, inside SCSI.
    Ata,
    /// SCSI.
    Scsi,
    /// None: it has no platters, or takes no commands.
    None,
}

/// A disk of this machine.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The kernel's name, for example `sda`, which may belong to another disk after the next boot.
    pub name: String,
    /// Its device node.
    pub path: PathBuf,
    /// Its most descriptive name below /dev/disk/by-id, if udev made one.
    pub by_id: Option<PathBuf>,
    /// Vendor and model.
    pub model: String,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its World Wide Name, in udev's notation: `0x5000c500a1b2c3d4`.
    pub wwn: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// The bus between host and disk.
    pub bus: Bus,
    /// Its slot in an enclosure.
    pub slot: Option<Slot>,
    /// True if it has platters, as far as the kernel knows.
    pub rotational: bool,
    /// Its rotation rate, if it reports one.
    pub rotation_rpm: Option<u16>,
    /// The state of its feature Power-Up In Standby (the platters wait for a start), if it reports one.
    pub power_up_in_standby: Option<PowerUpInStandby>,
    /// True if the kernel by itself starts the stopped disk for I/O (`allow_restart`).
    pub allow_restart: Option<bool>,
    /// The commands that control its power.
    pub protocol: Protocol,
    /// Its power mode; `None` if it has none.
    pub mode: Option<PowerMode>,
    /// Its partitions.
    pub partitions: Vec<String>,
    /// Its contents.
    pub contents: Contents,
    /// The kernel's counters at the survey, before the disk was asked or read.
    pub counters: Option<IoCounters>,
    /// The reasons why it cannot be used; usable if there is no reason.
    pub refusals: Vec<Refusal>,
}

impl Disk {
    /// All objections to it as a drive that stops and starts, except those that are `excused`, each with its remedy.
    /// `link` is the name with which the operator would excuse its contents.
    pub fn objections(&self, link: &str, excused: Excused<'_>) -> Vec<String> {
        let said = |refusal: &Refusal| {
            let wipes = refusal.is_for_contents();
            let more =
                if wipes { format!(". Or give `--wipe {link}`: everything on it is lost then") } else { String::new() };
            format!("{refusal}{more}")
        };
        let refusals = self.refusals.iter().filter(|refusal| !refusal.is_excused(excused));
        let no_power = self.mode.is_none().then(|| {
            "it has no power mode, so it never sleeps; mount a file system on it yourself, and name the directory with \
             power = \"none\", or control its power by a command (`power` in the rack's description)"
                .to_owned()
        });
        refusals.map(said).chain(no_power).collect()
    }

    /// Its identity, by which it is found again: the World Wide Name, or else the serial number.
    pub fn identity(&self) -> Device {
        match (&self.wwn, &self.serial) {
            (Some(wwn), _) => Device::Wwn(wwn.clone()),
            (None, Some(serial)) => Device::Serial(serial.clone()),
            (None, None) => Device::None,
        }
    }

    /// Its power control, over the transport that `transports` opens.
    pub fn power_control(&self, tree: &Tree, transports: &Transports) -> Result<Box<dyn PowerControl>, TransportError> {
        let transport = || transports(&tree.real(&self.path));
        Ok(match self.protocol {
            Protocol::Ata => Box::new(AtaPower::new(transport()?)),
            Protocol::Scsi => Box::new(ScsiPower::new(transport()?)),
            Protocol::None => Box::new(NoPower::new("it does not accept SCSI commands, like virtual and NVMe disks")),
        })
    }

    /// The uses of the disk, if any.
    pub fn uses(&self) -> impl Iterator<Item = &Refusal> {
        self.refusals.iter().filter(|refusal| matches!(refusal, Refusal::InUse(_)))
    }
}

/// The reason why a name refers to no disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotADisk {
    /// It is a partition of this disk.
    Partition {
        /// The partition.
        partition: String,
        /// The disk.
        disk: String,
    },
    /// No disk has this name.
    Unknown(String),
    /// Several disks have this identity.
    Ambiguous(String, Vec<String>),
}

impl fmt::Display for NotADisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition { partition, disk } => {
                write!(f, "{partition} is a partition of {disk}; a drive is a whole disk: name {disk}")
            }
            Self::Unknown(named) => write!(f, "there is no disk {named}; `larder drive discover` lists the disks"),
            Self::Ambiguous(named, names) => {
                write!(f, "{named} is the identity of {}; name one of them by its path", names.join(" and "))
            }
        }
    }
}

impl std::error::Error for NotADisk {}

/// The disk called `named`: the kernel's name, a path that leads to it, its serial number or World Wide Name.
pub fn find<'a>(tree: &Tree, disks: &'a [Disk], named: &str) -> Result<&'a Disk, NotADisk> {
    let target = tree.target(named);
    let is_named = |name: &str| name == named || target.as_deref() == Some(&device_path(name));
    if let Some(disk) = disks.iter().find(|disk| is_named(&disk.name)) {
        return Ok(disk);
    }
    if let Some((disk, partition)) =
        disks.iter().find_map(|disk| Some((disk, disk.partitions.iter().find(|name| is_named(name))?)))
    {
        return Err(NotADisk::Partition { partition: partition.clone(), disk: disk.name.clone() });
    }
    let identified = |disk: &&Disk| [&disk.serial, &disk.wwn].into_iter().flatten().any(|identity| identity == named);
    match disks.iter().filter(identified).collect::<Vec<_>>()[..] {
        [] => Err(NotADisk::Unknown(named.to_owned())),
        [disk] => Ok(disk),
        ref several => {
            Err(NotADisk::Ambiguous(named.to_owned(), several.iter().map(|disk| disk.name.clone()).collect()))
        }
    }
}
