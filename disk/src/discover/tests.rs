//! Surveys of made-up machines.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::label::{Device, RackUuid, volume_name};
use crate::power::{PowerError, PowerMode};
use crate::scsi::{Command, Replay, Reply, ScsiTransport, TransportError};
use model::PowerUpInStandby;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const SIZE_BYTES: u64 = 8 << 20;

/// A made-up machine: its files, and what its disks answer.
struct Machine {
    folder: TempDir,
    replays: HashMap<String, Arc<Replay>>,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap(), replays: HashMap::new() };
        machine.write("proc/self/mountinfo", b"1 0 0:1 / / rw - tmpfs tmpfs rw\n");
        machine
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn link(&self, target: &str, path: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let up = "../".repeat(path.strip_prefix(self.folder.path()).unwrap().components().count() - 1);
        symlink(format!("{up}{target}"), path).unwrap();
    }

    /// Plugs a disk in at `device` (below /sys/devices): its attributes, zeros on it, and what it answers.
    fn plug(&mut self, name: &str, device: &str, attributes: &[(&str, &[u8])], replay: Replay) {
        let block = format!("sys/devices/{device}/block/{name}");
        self.link(&format!("sys/devices/{device}"), &format!("{block}/device"));
        self.link(&block, &format!("sys/block/{name}"));
        let minor = 16 * self.replays.len();
        self.write(&format!("{block}/dev"), format!("8:{minor}\n").as_bytes());
        self.write(&format!("{block}/size"), format!("{}\n", SIZE_BYTES / 512).as_bytes());
        self.write(&format!("{block}/ro"), b"0\n");
        self.write(&format!("{block}/queue/rotational"), b"1\n");
        self.write(&format!("{block}/stat"), b"1 0 8 0 0 0 0 0 0 0 0\n");
        for (attribute, value) in attributes {
            self.write(&format!("{block}/{attribute}"), value);
        }
        self.write(&format!("dev/{name}"), b"");
        self.disk(name).set_len(SIZE_BYTES).unwrap();
        self.replays.insert(name.to_owned(), Arc::new(replay));
    }

    fn disk(&self, name: &str) -> fs::File {
        fs::OpenOptions::new().write(true).open(self.folder.path().join("dev").join(name)).unwrap()
    }

    fn put(&self, name: &str, offset: u64, bytes: &[u8]) {
        std::os::unix::fs::FileExt::write_all_at(&self.disk(name), bytes, offset).unwrap();
    }

    /// A SAS disk with a serial number.
    fn plug_sas(&mut self, name: &str, number: u8, replay: Replay) {
        let device =
            format!("pci0000:00/host0/port-0:{number}/end_device-0:{number}/target0:0:{number}/0:0:{number}:0");
        let serial = [&[0, 0x80, 0, 8][..], b"SERIAL", format!("{number:02}").as_bytes()].concat();
        // `scsi_debug` has this page, and is no ATA disk.
        let ata = [&[0, 0x89, 0x02, 0x38][..], &[0; 56], &crate::scsi::tests::identify(&[])].concat();
        let attributes: [(&str, &[u8]); 7] = [
            ("device/vpd_pg89", &ata),
            ("device/vendor", b"SEAGATE \n"),
            ("device/model", b"ST16000NM002G   \n"),
            ("device/type", b"0\n"),
            ("device/vpd_pg80", &serial),
            ("device/vpd_pgb1", &[0, 0xb1, 0, 4, 0x1c, 0x20, 0, 2]),
            ("device/scsi_disk/0:0:0:0/allow_restart", b"1\n"),
        ];
        self.plug(name, &device, &attributes, replay);
    }

    fn tree(&self) -> Tree {
        Tree::below(self.folder.path())
    }

    fn survey(&self) -> Vec<Disk> {
        let open = |path: &Path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let replay = self.replays.get(name).ok_or(TransportError::Gone)?;
            Ok(Box::new(Shared(Arc::clone(replay))) as Box<dyn ScsiTransport>)
        };
        survey(&self.tree(), &open)
    }

    fn one(&self) -> Disk {
        let mut disks = self.survey();
        assert_eq!(disks.len(), 1);
        disks.remove(0)
    }
}

struct Shared(Arc<Replay>);

impl ScsiTransport for Shared {
    fn execute(&self, command: &Command) -> Result<Reply, TransportError> {
        self.0.execute(command)
    }
}

fn awake() -> Replay {
    let awake = Reply::good(&Reply::check_fixed(0, 0, 0).sense);
    Replay::default()
        .with(Command::request_sense(), [Ok(awake)])
        .with(Command::test_unit_ready(), [Ok(Reply::default())])
}

fn asleep() -> Replay {
    Replay::default().with(Command::request_sense(), [Ok(Reply::good(&Reply::check_fixed(2, 4, 2).sense))])
}

fn said(disk: &Disk) -> String {
    disk.refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_bare_disk_in_a_shelf_can_be_used() {
    let mut machine = Machine::new();
    machine.plug_sas("sda", 3, awake());
    let device = "sys/devices/pci0000:00/host0/port-0:3/end_device-0:3/target0:0:3/0:0:3:0";
    machine.write("sys/class/enclosure/0:0:9:0/id", b"0x500304801e95413f\n");
    machine.write("sys/class/enclosure/0:0:9:0/Slot 04/slot", b"4\n");
    machine.link(device, "sys/class/enclosure/0:0:9:0/Slot 04/device");
    machine.link("dev/sda", "dev/disk/by-id/wwn-0x5000c500a1b2c3d4");
    machine.link("dev/sda", "dev/disk/by-id/scsi-SSEAGATE_ST16000NM002G_SERIAL03");
    machine.write(&format!("{device}/wwid"), b"naa.5000c500a1b2c3d4\n");
    let disk = machine.one();
    assert_eq!(said(&disk), "");
    assert_eq!((disk.name.as_str(), disk.model.as_str()), ("sda", "SEAGATE ST16000NM002G"));
    assert_eq!((disk.serial.as_deref(), disk.size_bytes), (Some("SERIAL03"), SIZE_BYTES));
    assert_eq!(disk.identity(), Device::Wwn("0x5000c500a1b2c3d4".into()));
    assert_eq!((disk.bus, disk.protocol, disk.rotation_rpm), (Bus::Sas, Protocol::Scsi, Some(7200)));
    assert_eq!(disk.slot, Some(Slot { enclosure: "0x500304801e95413f".into(), slot: "4".into() }));
    assert_eq!((disk.mode.clone(), disk.contents.clone()), (Some(PowerMode::Active), Contents::Nothing));
    assert_eq!(disk.allow_restart, Some(true));
    assert_eq!(disk.by_id.as_deref(), Some(Path::new("/dev/disk/by-id/scsi-SSEAGATE_ST16000NM002G_SERIAL03")));
    assert_eq!(disk.counters.unwrap().reads, 1);
}

#[test]
fn a_sleeping_disk_is_neither_read_nor_sent_what_may_start_it() {
    let mut machine = Machine::new();
    machine.plug_sas("sda", 1, asleep());
    // It would be refused for this, were it read.
    machine.put("sda", 0, b"XFSB");
    let disk = machine.one();
    assert_eq!((disk.mode.clone(), disk.contents.clone()), (Some(PowerMode::Standby), Contents::SeenByUdev(vec![])));
    assert_eq!(disk.refusals, [Refusal::NotRead("asleep")]);
    assert_eq!(machine.replays["sda"].asked(), [Command::request_sense()]);
    // The findings of udev while it was awake are known nonetheless.
    machine.write(
        "run/udev/data/b8:0",
        b"S:disk/by-id/x\nE:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\nE:ID_FS_LABEL=old\n",
    );
    assert!(said(&machine.one()).starts_with("it holds a file system (ext4) named old;"));
}

#[test]
fn a_disk_of_unknown_mode_is_not_read() {
    let mut machine = Machine::new();
    machine.plug_sas("sda", 1, Replay::default());
    let disk = machine.one();
    let error = PowerError::Refused { key: 5, asc: 0x20, ascq: 0 };
    assert_eq!(disk.refusals, [Refusal::PowerUnknown(error)]);
    assert_eq!(disk.contents, Contents::SeenByUdev(vec![]));
    machine.replays.clear();
    assert!(said(&machine.one()).contains("the disk is gone"));
}

#[test]
fn who_uses_a_disk_is_named() {
    let mut machine = Machine::new();
    machine.plug_sas("sda", 1, awake());
    machine.plug_sas("sdb", 2, awake());
    machine.plug_sas("sdc", 3, awake());
    let mountinfo = b"1 0 8:17 / /srv/old\\040data rw - xfs /dev/sdb1 rw\n2 0 0:40 / /pool rw - btrfs /dev/sdc rw\n";
    machine.write("proc/1/mountinfo", mountinfo);
    machine.write("proc/swaps", b"Filename Type Size Used Priority\n/dev/sda partition 1 0 -2\n");
    let sdb = "sys/block/sdb";
    machine.write(&format!("{sdb}/sdb1/partition"), b"1\n");
    machine.write(&format!("{sdb}/sdb1/dev"), b"8:17\n");
    machine.write("sys/block/sda/holders/dm-0/dm/name", b"vg0-root\n");
    machine.write("sys/block/dm-0/dm/name", b"vg0-root\n");
    let disks = machine.survey();
    assert_eq!(disks.len(), 3, "what is made of disks is none");
    assert_eq!(
        disks[0].refusals,
        [
            Refusal::InUse(Usage::Swap { device: "sda".into() }),
            Refusal::InUse(Usage::Holder { device: "sda".into(), holder: "dm-0 (vg0-root)".into() }),
        ]
    );
    assert_eq!(
        disks[1].refusals,
        [
            Refusal::InUse(Usage::Mounted { device: "sdb1".into(), at: "/srv/old data".into() }),
            Refusal::Partitioned(vec!["sdb1".into()]),
        ]
    );
    assert_eq!(disks[2].refusals, [Refusal::InUse(Usage::Mounted { device: "sdc".into(), at: "/pool".into() })]);
    assert_eq!(disks[0].uses().count(), 2);
}

#[test]
fn what_lies_on_a_disk_is_named() {
    let mut machine = Machine::new();
    machine.plug_sas("sda", 1, awake());
    machine.plug_sas("sdb", 2, awake());
    machine.put("sda", 4096, b"\xfc\x4e\x2b\xa9");
    let volume = volume_name(RackUuid([3; 16]));
    machine.put("sdb", 0, b"XFSB");
    machine.put("sdb", 108, volume.as_bytes());
    let disks = machine.survey();
    let array = "part of an array, a pool or a volume group (linux_raid_member)";
    assert_eq!(disks[0].refusals, [Refusal::Holds(array.into())]);
    assert_eq!(disks[1].refusals, [Refusal::LardersOwn(volume)]);
}

#[test]
fn disks_that_cannot_be_told_apart_are_refused() {
    let mut machine = Machine::new();
    machine.plug_sas("sda", 1, awake());
    machine.plug_sas("sdb", 2, awake());
    machine.plug_sas("sdc", 3, awake());
    let [a, b, c] = ["sda", "sdb", "sdc"].map(|name| format!("sys/block/{name}/device/vpd_pg80"));
    machine.write(&b, &machine.tree().bytes(&a).unwrap());
    fs::remove_file(machine.folder.path().join(c)).unwrap();
    let disks = machine.survey();
    assert_eq!(disks[0].refusals, [Refusal::SameIdentity(vec!["sdb".into()])]);
    assert_eq!(disks[1].refusals, [Refusal::SameIdentity(vec!["sda".into()])]);
    assert_eq!(disks[2].refusals, [Refusal::NoIdentity]);
    let tree = machine.tree();
    assert!(matches!(find(&tree, &disks, "SERIAL01"), Err(NotADisk::Ambiguous(..))));
}

#[test]
fn a_usb_bridge_that_swallows_commands_is_refused() {
    let mut machine = Machine::new();
    let device = "pci0000:00/usb2/2-1/host5/target5:0:0/5:0:0:0";
    let serial: [(&str, &[u8]); 2] = [("device/vpd_pg80", b"\0\x80\0\x03ABC"), ("device/type", b"0\n")];
    let swallows = Replay::default().with(Command::ata_check_power_mode(), [Ok(Reply::default())]);
    machine.plug("sda", device, &serial, swallows);
    let disk = machine.one();
    assert_eq!((disk.bus, disk.protocol), (Bus::Usb, Protocol::Ata));
    assert_eq!(disk.refusals, [Refusal::BridgeSwallowsCommands(PowerError::NoAtaStatus)]);
}

#[test]
fn an_ata_disk_is_known_by_what_the_kernel_was_answered() {
    let mut machine = Machine::new();
    let identify = crate::scsi::tests::identify(&[(83, 0x4020), (86, 0x0020), (217, 5980)]);
    let page = [&[0, 0x89, 0x02, 0x38][..], &[0; 56], &identify].concat();
    let attributes: [(&str, &[u8]); 3] =
        [("device/vpd_pg89", &page), ("device/vendor", b"ATA     \n"), ("device/model", b"ST4000VN008-2DR1\n")];
    let standby = Reply::check(&[0x72, 1, 0, 0x1d, 0, 0, 0, 14, 9, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x50]);
    let replay = Replay::default().with(Command::ata_check_power_mode(), [Ok(standby)]);
    machine.plug("sda", "pci0000:00/ata3/host2/target2:0:0/2:0:0:0", &attributes, replay);
    let disk = machine.one();
    assert_eq!((disk.model.as_str(), disk.serial.as_deref()), ("ST4000VN008-2DR166", Some("ZC1A0BXT")));
    assert_eq!((disk.bus, disk.rotation_rpm, disk.mode.clone()), (Bus::Ata, Some(5980), Some(PowerMode::Standby)));
    assert_eq!(disk.power_up_in_standby, Some(PowerUpInStandby::Enabled));
}

#[test]
fn what_has_no_power_mode_is_read_and_not_asked() {
    let mut machine = Machine::new();
    let serial: [(&str, &[u8]); 1] = [("serial", b"vol-1\n")];
    machine.plug("vda", "pci0000:00/virtio1", &serial, Replay::default());
    machine.put("vda", 0x438, b"\x53\xef");
    let disk = machine.one();
    assert_eq!((disk.bus, disk.mode.clone()), (Bus::Virtio, None));
    assert_eq!(disk.identity(), Device::Serial("vol-1".into()));
    assert!(said(&disk).contains("a file system (ext2)"));
    assert!(machine.replays["vda"].asked().is_empty());
}

#[test]
fn protected_zoned_and_empty_slots_are_refused() {
    let mut machine = Machine::new();
    machine.plug_sas("sda", 1, awake());
    machine.write("sys/block/sda/ro", b"1\n");
    machine.write("sys/block/sda/queue/zoned", b"host-managed\n");
    assert_eq!(machine.one().refusals, [Refusal::ReadOnly, Refusal::HostManagedZones]);
    machine.write("sys/block/sda/size", b"0\n");
    assert_eq!(machine.one().refusals, [Refusal::NoMedium]);
    machine.write("sys/block/sda/device/type", b"5\n");
    assert!(machine.survey().is_empty(), "an optical drive is no disk");
}

#[test]
fn a_disk_is_found_by_all_its_names_and_a_partition_is_none() {
    let mut machine = Machine::new();
    machine.plug_sas("sda", 1, awake());
    machine.link("dev/sda", "dev/disk/by-id/scsi-1");
    machine.write("sys/block/sda/sda1/partition", b"1\n");
    machine.write("dev/sda1", b"");
    machine.link("dev/sda1", "dev/disk/by-id/scsi-1-part1");
    let (disks, tree) = (machine.survey(), machine.tree());
    for name in ["sda", "/dev/sda", "/dev/disk/by-id/scsi-1", "SERIAL01"] {
        assert_eq!(find(&tree, &disks, name).unwrap().name, "sda", "{name}");
    }
    for name in ["sda1", "/dev/sda1", "/dev/disk/by-id/scsi-1-part1"] {
        let error = find(&tree, &disks, name).unwrap_err();
        assert_eq!(error, NotADisk::Partition { partition: "sda1".into(), disk: "sda".into() });
    }
    assert_eq!(find(&tree, &disks, "sdz").unwrap_err(), NotADisk::Unknown("sdz".into()));
}
