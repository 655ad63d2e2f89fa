//! The survey of a machine's disks.

use super::contents::Contents;
use super::disk::{Bus, Disk, Protocol, Transports};
use super::enclosures::Enclosures;
use super::identity::Identity;
use super::refusal::Refusal;
use super::signatures::Role;
use super::tree::{Tree, device_path};
use super::udev::Properties;
use super::usage::Mounts;
use crate::counters::IoCounters;
use crate::label::Device;
use crate::power::{PowerControl, PowerError, PowerMode};
use std::path::{Path, PathBuf};

/// The kernel's sector size in /sys, for disks with any sector size.
const SECTOR_BYTES: u64 = 512;
/// SCSI device types of disks: direct access, and host-managed zoned.
const DISK_TYPES: [u64; 2] = [0, 0x14];

/// Returns the power control of a disk that does not control its own power.
pub type Commanded<'a> = dyn Fn(&Path) -> Option<Box<dyn PowerControl>> + 'a;

/// All disks of the machine whose files are in `tree`, by kernel name, with commands through `transports`. Starts no
/// disk, and reads none that may be asleep.
pub fn survey(tree: &Tree, transports: &Transports) -> Vec<Disk> {
    survey_with(tree, transports, &|_| None)
}

/// The same. `commanded` returns the power control of disks that do not control their own power, by device node.
pub fn survey_with(tree: &Tree, transports: &Transports, commanded: &Commanded) -> Vec<Disk> {
    let (mounts, enclosures) = (Mounts::read(tree), Enclosures::read(tree));
    let names = tree.names("sys/block").into_iter().filter(|name| is_disk(tree, name));
    let mut disks: Vec<Disk> = names.map(|name| describe(tree, transports, (&enclosures, commanded), name)).collect();
    for disk in &mut disks {
        disk.refusals = refusals(tree, &mounts, disk);
    }
    refuse_twins(&mut disks);
    disks
}

fn block_of(name: &str) -> PathBuf {
    Path::new("sys/block").join(name)
}

/// True if the block device is a disk, and not one built on others or on files, or an optical drive.
fn is_disk(tree: &Tree, name: &str) -> bool {
    let device = block_of(name).join("device");
    tree.exists(&device) && tree.number(device.join("type")).is_none_or(|kind| DISK_TYPES.contains(&kind))
}

fn describe(
    tree: &Tree,
    transports: &Transports,
    (enclosures, commanded): (&Enclosures, &Commanded),
    name: String,
) -> Disk {
    let block = block_of(&name);
    let properties = Properties::read(tree, &block);
    let identity = Identity::read(tree, &block, &properties);
    let path = device_path(&name);
    let mut disk = Disk {
        by_id: by_id(tree, &path),
        path,
        model: identity.model,
        serial: identity.serial,
        wwn: identity.wwn,
        size_bytes: tree.number(block.join("size")).unwrap_or(0).saturating_mul(SECTOR_BYTES),
        bus: identity.bus,
        slot: tree.target(block.join("device")).and_then(|device| enclosures.of(&device)),
        rotational: tree.flag(block.join("queue/rotational")).unwrap_or(true),
        rotation_rpm: identity.rotation_rpm,
        power_up_in_standby: identity.ata.map(|ata| ata.power_up_in_standby),
        allow_restart: allow_restart(tree, &block),
        protocol: identity.protocol,
        mode: None,
        partitions: partitions(tree, &block),
        contents: Contents::Nothing,
        counters: IoCounters::read(&tree.real(&block)),
        refusals: Vec::new(),
        name,
    };
    disk.mode = match commanded(&disk.path) {
        Some(control) => Some(control.mode()),
        None => mode(tree, transports, &disk),
    };
    disk.contents = if matches!(disk.mode, None | Some(PowerMode::Active)) {
        Contents::read(&tree.real(&disk.path), disk.size_bytes)
    } else {
        Contents::seen_by_udev(&properties)
    };
    disk
}

/// Its power mode, if it takes commands that query it.
fn mode(tree: &Tree, transports: &Transports, disk: &Disk) -> Option<PowerMode> {
    if disk.protocol == Protocol::None {
        return None;
    }
    Some(match disk.power_control(tree, transports) {
        Ok(control) => control.mode(),
        Err(error) => PowerMode::Unknown(PowerError::Transport(error)),
    })
}

/// `allow_restart` of a SCSI disk.
pub(super) fn allow_restart(tree: &Tree, block: &Path) -> Option<bool> {
    let class = block.join("device/scsi_disk");
    let address = tree.names(&class).into_iter().next()?;
    tree.flag(class.join(address).join("allow_restart"))
}

fn partitions(tree: &Tree, block: &Path) -> Vec<String> {
    let names = tree.names(block).into_iter();
    names.filter(|name| tree.exists(block.join(name).join("partition"))).collect()
}

/// The most descriptive name below /dev/disk/by-id of the disk at `path`: the model and serial number in preference to
/// a number alone.
fn by_id(tree: &Tree, path: &Path) -> Option<PathBuf> {
    const ORDER: [&str; 6] = ["ata-", "scsi-S", "nvme-", "usb-", "virtio-", "wwn-"];
    let folder = Path::new("/dev/disk/by-id");
    let rank = |name: &String| ORDER.iter().position(|prefix| name.starts_with(prefix)).unwrap_or(ORDER.len());
    let names = tree.names(folder).into_iter().filter(|name| tree.target(folder.join(name)).as_deref() == Some(path));
    names.min_by_key(|name| (rank(name), name.clone())).map(|name| folder.join(name))
}

/// The commands that control the power of the disk that the kernel calls `name`. Touches no disk.
pub fn protocol_of(tree: &Tree, name: &str) -> Protocol {
    let block = block_of(name);
    Identity::read(tree, &block, &Properties::read(tree, &block)).protocol
}

/// The World Wide Name and the serial number of the disk that the kernel calls `name`. Touches no disk.
pub fn identity_of(tree: &Tree, name: &str) -> (Option<String>, Option<String>) {
    let block = block_of(name);
    let identity = Identity::read(tree, &block, &Properties::read(tree, &block));
    (identity.wwn, identity.serial)
}

/// All reasons against using `disk`, except those that involve other disks.
fn refusals(tree: &Tree, mounts: &Mounts, disk: &Disk) -> Vec<Refusal> {
    let block = block_of(&disk.name);
    let mut refusals = Vec::new();
    if disk.size_bytes == 0 {
        return vec![Refusal::NoMedium];
    }
    if tree.flag(block.join("ro")) == Some(true) {
        refusals.push(Refusal::ReadOnly);
    }
    if tree.attribute(block.join("queue/zoned")).as_deref() == Some("host-managed") {
        refusals.push(Refusal::HostManagedZones);
    }
    let parts = disk.partitions.iter().map(|name| (block.join(name), name));
    let uses = [(block.clone(), &disk.name)].into_iter().chain(parts);
    refusals.extend(uses.flat_map(|(block, name)| mounts.of(tree, &block, name)).map(Refusal::InUse));
    if !disk.partitions.is_empty() {
        refusals.push(Refusal::Partitioned(disk.partitions.clone()));
    }
    refusals.extend(held(disk));
    if disk.identity() == Device::None {
        refusals.push(Refusal::NoIdentity);
    }
    refusals.extend(power(disk));
    refusals
}

/// Contents that no other refusal covers.
fn held(disk: &Disk) -> Vec<Refusal> {
    if let Contents::Unreadable(error) = &disk.contents {
        return vec![Refusal::Unreadable(error.clone())];
    }
    let partitioned = !disk.partitions.is_empty();
    let said = |role: Role| role == Role::PartitionTable && partitioned;
    let all = disk.contents.signatures().iter().filter(|signature| !said(signature.role));
    all.map(|signature| {
        let label = signature.label.clone().unwrap_or_default();
        let labelled = if label.is_empty() { String::new() } else { format!(" named {label}") };
        let name = &signature.name;
        match signature.role {
            Role::FileSystem if signature.is_larders() => Refusal::LardersOwn(label),
            Role::FileSystem => Refusal::Holds(format!("a file system ({name}){labelled}")),
            Role::PartitionTable => Refusal::Holds(format!("a partition table ({name})")),
            Role::Member => Refusal::Holds(format!("part of an array, a pool or a volume group ({name})")),
            Role::Swap => Refusal::Holds("swap space".to_owned()),
            Role::Encrypted => Refusal::Holds(format!("an encrypted volume ({name})")),
            Role::Unrecognised => Refusal::Holds(name.clone()),
        }
    })
    .collect()
}

/// The objection of its power mode, if any.
fn power(disk: &Disk) -> Option<Refusal> {
    match disk.mode.as_ref()? {
        PowerMode::Active => None,
        PowerMode::Standby => Some(Refusal::NotRead("asleep")),
        PowerMode::Starting => Some(Refusal::NotRead("starting")),
        PowerMode::Unknown(error @ PowerError::Transport(_)) => Some(Refusal::PowerUnknown(error.clone())),
        PowerMode::Unknown(error) if disk.bus == Bus::Usb => Some(Refusal::BridgeSwallowsCommands(error.clone())),
        PowerMode::Unknown(error) => Some(Refusal::PowerUnknown(error.clone())),
    }
}

/// Refuses disks with the same identity.
fn refuse_twins(disks: &mut [Disk]) {
    let all: Vec<(String, Device)> = disks.iter().map(|disk| (disk.name.clone(), disk.identity())).collect();
    for disk in disks {
        let identity = disk.identity();
        let twin = |(name, other): &&(String, Device)| *name != disk.name && *other == identity;
        let twins: Vec<String> = all.iter().filter(twin).map(|(name, _)| name.clone()).collect();
        if identity != Device::None && !twins.is_empty() {
            disk.refusals.push(Refusal::SameIdentity(twins));
        }
    }
}
