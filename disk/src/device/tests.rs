//! Whole drives over made-up disks: what disks, translators and bridges answer, one answer after another, at the
//! boundary of SG_IO. Pauses take no time: a disk that answers 200 times that it is becoming ready took 200 pauses,
//! 40 s.
#![allow(clippy::unwrap_used, clippy::unnecessary_wraps)] // answers are wrapped as a `Replay` takes them

use super::handle::DiskHandle;
use super::*;
use crate::discover::Tree;
use crate::label::{RackUuid, volume_name};
use crate::power::PowerError;
use crate::scsi::{Command, Recorded, Replay, Reply, ScsiTransport, TransportError};
use crate::{DriveEventKind, Hardware, LabelError};
use model::{DriveId, PoolDriveId, PowerCommand};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs;
use std::iter::{once, repeat_n};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Where a disk of each kind is below /sys/devices, and its vendor.
const SAS: (&str, &str) = ("pci0000:00/host0/port-0:1/end_device-0:1/target0:0:1/0:0:1:0", "SEAGATE");
const SATA: (&str, &str) = ("pci0000:00/ata3/host2/target2:0:0/2:0:0:0", "ATA");
const USB: (&str, &str) = ("pci0000:00/usb2/2-1/host5/target5:0:0/5:0:0:0", "Generic");
const SIZE_BYTES: u64 = 8 << 20;
const RACK: RackUuid = RackUuid([7; 16]);

type Disks = Arc<Mutex<HashMap<PathBuf, (Arc<Replay>, PathBuf)>>>;

/// A made-up machine: its files, and what its disks answer.
struct Machine {
    folder: TempDir,
    disks: Disks,
}

/// The way to a disk. The kernel counts each command.
struct Wire(Arc<Replay>, PathBuf);

impl ScsiTransport for Wire {
    fn execute(&self, command: &Command) -> Result<Reply, TransportError> {
        let text = fs::read_to_string(&self.1).unwrap();
        let count = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap();
        fs::write(&self.1, format!("{:#x}\n", count + 1)).unwrap();
        self.0.execute(command)
    }
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for directory in ["sys/block", "dev/disk/by-id"] {
            fs::create_dir_all(folder.path().join(directory)).unwrap();
        }
        Self { folder, disks: Disks::default() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Plugs in a disk that the kernel calls `name`. Counters restart; its content stays.
    fn plug(&self, name: &str, kind: (&str, &str), replay: Replay) -> Arc<Replay> {
        let block = self.path(&format!("sys/devices/{}/block/{name}", kind.0));
        fs::create_dir_all(&block).unwrap();
        if !block.join("device").exists() {
            symlink("../..", block.join("device")).unwrap();
        }
        symlink(format!("../devices/{}/block/{name}", kind.0), self.path(&format!("sys/block/{name}"))).unwrap();
        symlink(format!("../../{name}"), self.path(&format!("dev/disk/by-id/{name}"))).unwrap();
        fs::write(block.join("device/vendor"), kind.1).unwrap();
        fs::write(block.join("size"), format!("{}\n", SIZE_BYTES / 512)).unwrap();
        fs::write(block.join("stat"), "0 0 0 0 0 0 0 0 0 0 0\n").unwrap();
        fs::write(block.join("device/iorequest_cnt"), "0x0\n").unwrap();
        let node = self.path(&format!("dev/{name}"));
        fs::OpenOptions::new().create(true).append(true).open(&node).unwrap().set_len(SIZE_BYTES).unwrap();
        let replay = Arc::new(replay);
        let node = fs::canonicalize(node).unwrap();
        self.disks.lock().insert(node, (Arc::clone(&replay), block.join("device/iorequest_cnt")));
        replay
    }

    fn pull(&self, name: &str) {
        for path in [format!("sys/block/{name}"), format!("dev/disk/by-id/{name}")] {
            fs::remove_file(self.path(&path)).unwrap();
        }
        self.disks.lock().remove(&fs::canonicalize(self.path(&format!("dev/{name}"))).unwrap());
    }

    /// Sets the number of reads by another program since the kernel found it.
    fn reads(&self, name: &str, reads: u64) {
        let stat = format!("{reads} 0 {} 0 0 0 0 0 0 0 0\n", 8 * reads);
        fs::write(self.path(&format!("sys/block/{name}/stat")), stat).unwrap();
    }

    /// The drive on the disk that the kernel calls `name`.
    fn drive(&self, name: &str) -> DeviceDrive {
        self.drive_commanded_by(name, None)
    }

    fn power_of(&self, name: &str, command: Option<PowerCommand>) -> PoweredDisk {
        let id = PathBuf::from(format!("/dev/disk/by-id/{name}"));
        let disks = Arc::clone(&self.disks);
        let open = move |node: &Path| {
            let disks = disks.lock();
            let (replay, count) = disks.get(node).ok_or(TransportError::Gone)?;
            Ok(Box::new(Wire(Arc::clone(replay), count.clone())) as Box<dyn ScsiTransport>)
        };
        let disk = DiskHandle::within(id, Tree::below(self.folder.path()), Arc::new(open)).commanded_by(command);
        let mut power = PoweredDisk::new(disk);
        power.pause = |_| {};
        power
    }

    /// A disk of the pool, on which the operator mounted the directory `pool`, if `is_there`.
    fn mounted(&self, name: &str, is_there: bool) -> MountedDisk {
        let directory = self.path("pool");
        fs::create_dir_all(&directory).unwrap();
        let device = fs::metadata(&directory).unwrap().dev();
        let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        fs::create_dir_all(self.path("sys/dev/block")).unwrap();
        if is_there {
            symlink(format!("../../block/{name}"), self.path("sys/dev/block").join(numbers)).unwrap();
        }
        let quiesce = |directory: &Path| fs::write(directory.join("quiesced"), "");
        MountedDisk::within(self.power_of(name, None), directory, Tree::below(self.folder.path()), quiesce)
    }

    fn drive_commanded_by(&self, name: &str, command: Option<PowerCommand>) -> DeviceDrive {
        let label = Label { rack: RACK, rack_name: "here".into(), drive: DriveId(0) };
        let mount_point = self.path("mounts").join(name);
        let power = self.power_of(name, command);
        let state = DeviceState::new(power, mount_point, label.clone());
        let files = DirectoryDrive::at(state.directory()).with_label(label);
        DeviceDrive { state: Arc::new(state), files }
    }

    fn rack(&self, names: &[&str]) -> DeviceRack {
        DeviceRack::new(names.iter().map(|name| RackDrive::Device(self.drive(name))))
    }
}

fn good() -> Recorded {
    Ok(Reply::default())
}

fn check(key: u8, asc: u8, ascq: u8) -> Recorded {
    Ok(Reply::check_fixed(key, asc, ascq))
}

/// The data of an answer to REQUEST SENSE.
fn state(key: u8, asc: u8, ascq: u8) -> Recorded {
    Ok(Reply::good(&Reply::check_fixed(key, asc, ascq).sense))
}

/// libata's answer to a pass-through with CK_COND, with this count.
fn registers(count: u8) -> Recorded {
    Ok(Reply::check(&[0x72, 1, 0, 0x1d, 0, 0, 0, 14, 9, 12, 0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0x40, 0x50]))
}

/// A SAS disk that obeys, with these states one after another.
fn sas(states: impl IntoIterator<Item = Recorded>) -> Replay {
    Replay::default()
        .with(Command::start(), [good()])
        .with(Command::stop(), [good()])
        .with(Command::test_unit_ready(), [good()])
        .with(Command::request_sense(), states)
}

const STARTING: (u8, u8, u8) = (2, 4, 1);
const STANDBY: (u8, u8, u8) = (2, 4, 2);
const TURNING: (u8, u8, u8) = (0, 0, 0);

fn is(mode: (u8, u8, u8)) -> Recorded {
    state(mode.0, mode.1, mode.2)
}

/// A SATA disk that obeys, with these power modes one after another.
fn sata(modes: impl IntoIterator<Item = u8>, ready: impl IntoIterator<Item = Recorded>) -> Replay {
    Replay::default()
        .with(Command::start(), [good()])
        .with(Command::ata_standby_immediate(), [registers(0)])
        .with(Command::test_unit_ready(), ready)
        .with(Command::ata_check_power_mode(), modes.into_iter().map(registers))
}

fn sent(replay: &Replay, command: Command) -> usize {
    replay.asked().iter().filter(|asked| **asked == command).count()
}

#[tokio::test]
async fn a_start_that_takes_40_s_is_waited_for() {
    let machine = Machine::new();
    let disk = machine.plug("sda", SAS, sas(repeat_n(is(STARTING), 200).chain(once(is(TURNING)))));
    machine.drive("sda").spin_up().await.unwrap();
    assert_eq!((sent(&disk, Command::start()), sent(&disk, Command::request_sense())), (1, 201));
    // Its translator answers FFh from the moment on at which the platters move.
    let ready = repeat_n(check(2, 4, 1), 200).chain(once(good()));
    let disk = machine.plug("sdb", SATA, sata([0xff], ready));
    machine.drive("sdb").spin_up().await.unwrap();
    assert_eq!((sent(&disk, Command::start()), sent(&disk, Command::test_unit_ready())), (1, 201));
}

#[tokio::test]
async fn a_start_that_never_ends_is_given_up() {
    let machine = Machine::new();
    machine.plug("sda", SAS, sas([is(STARTING)]));
    machine.plug("sdb", SATA, sata([0], [good()]));
    for name in ["sda", "sdb"] {
        let error = machine.drive(name).spin_up().await.unwrap_err();
        assert!(matches!(error, DriveError::NoAnswer(after) if after == Duration::from_mins(2)), "{error}");
    }
    // A disk that refuses reports it at once: it needs an enclosure that lets it start, or is defective.
    let disk = machine.plug("sdc", SAS, Replay::default().with(Command::start(), [check(4, 0x3e, 1)]));
    let refused = PowerError::Refused { key: 4, asc: 0x3e, ascq: 1 };
    let error = machine.drive("sdc").spin_up().await.unwrap_err();
    assert!(matches!(error, DriveError::Power(error) if error == refused));
    assert_eq!(disk.asked(), [Command::start()]);
}

#[tokio::test]
async fn a_disk_that_goes_in_the_middle_of_a_start_is_gone() {
    let machine = Machine::new();
    let no_connect = Ok(Reply { host_status: crate::scsi::HOST_NO_CONNECT, ..Reply::default() });
    for (name, end) in [("sda", Err(TransportError::Gone)), ("sdb", no_connect)] {
        machine.plug(name, SAS, sas(repeat_n(is(STARTING), 50).chain(once(end))));
        let error = machine.drive(name).spin_up().await.unwrap_err();
        assert!(matches!(&error, DriveError::Gone(id) if id.ends_with(name)), "{error}");
        machine.pull(name);
        let error = machine.drive(name).spin_up().await.unwrap_err();
        assert!(matches!(error, DriveError::Gone(_)), "{error}");
    }
}

#[tokio::test]
async fn a_stop_is_over_when_the_disk_says_so() {
    let machine = Machine::new();
    let stopping = repeat_n(is(TURNING), 20).chain(once(is(STANDBY)));
    let disk = machine.plug("sda", SAS, sas(stopping));
    machine.drive("sda").stop().await.unwrap();
    assert_eq!((sent(&disk, Command::stop()), sent(&disk, Command::request_sense())), (1, 21));
    machine.plug("sdb", SATA, sata(repeat_n(0xff, 20).chain(once(0)), [good()]));
    machine.drive("sdb").stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_ignores_a_stop_counts_as_spinning() {
    let machine = Machine::new();
    machine.plug("sda", SATA, sata([0xff], [good()]));
    // A bridge that swallows what it does not know, and answers GOOD.
    let swallows = Replay::default()
        .with(Command::start(), [good()])
        .with(Command::ata_standby_immediate(), [good()])
        .with(Command::ata_check_power_mode(), [good()]);
    machine.plug("sdb", USB, swallows);
    // One that translates a stop by itself, answers for the disk and rejects what would prove it.
    let answers = Replay::default()
        .with(Command::stop(), [good()])
        .with(Command::request_sense(), [is(STANDBY)])
        .with(Command::ata_check_power_mode(), [check(5, 0x24, 0)]);
    machine.plug("sdc", USB, answers);
    machine.plug("sdd", SAS, sas([is(STANDBY)]));
    let rack = machine.rack(&["sda", "sdb", "sdc", "sdd"]);
    let drives = rack.drives();
    let mut errors = Vec::new();
    for drive in &drives[..3] {
        errors.push(match drive.stop().await.unwrap_err() {
            DriveError::Power(error) => error,
            other => panic!("{other}"),
        });
    }
    let rejected = PowerError::Refused { key: 5, asc: 0x20, ascq: 0 };
    assert_eq!(errors, [PowerError::StopIgnored, PowerError::NoAtaStatus, rejected]);
    drives[3].stop().await.unwrap();
    assert_eq!(rack.spinning().await, [0, 1, 2].map(DriveId));
    let started = drives[1].spin_up().await.unwrap_err();
    assert!(matches!(started, DriveError::Power(PowerError::NoAtaStatus)), "{started}");
    // They are not supposed to sleep, so nothing that happens to them is news.
    for name in ["sda", "sdb", "sdc"] {
        machine.reads(name, 5);
    }
    assert_eq!(news(&rack).await, None);
}

/// The news within a minute. It ends between two looks: a look that is not awaited loses its news.
async fn news(rack: &DeviceRack) -> Option<(u32, DriveEventKind)> {
    let event = tokio::time::timeout(Duration::from_secs(59), rack.news()).await;
    event.ok().map(|event| (event.drive.0, event.news))
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_disk_is_left_alone_until_somebody_touches_it() {
    let machine = Machine::new();
    // Asleep after the stop and when it is asked; then awake, and asleep again after the next stop.
    let states = [STANDBY, STANDBY, TURNING, STANDBY, STANDBY];
    let disk = machine.plug("sda", SAS, sas(states.map(is)));
    let rack = machine.rack(&["sda"]);
    rack.drives()[0].stop().await.unwrap();
    let asked = disk.asked().len();
    assert_eq!(news(&rack).await, None);
    assert_eq!(disk.asked().len(), asked, "no command was sent to it");
    // Another program queries it, which does not wake it: it is queried once from here, and nothing is reported.
    let count = machine.path("sys/block/sda/device/iorequest_cnt");
    fs::write(&count, "0x40\n").unwrap();
    assert_eq!(news(&rack).await, None);
    assert_eq!((disk.asked().len(), rack.woken_by_others()), (asked + 1, 0));
    // Another program reads it.
    machine.reads("sda", 2);
    assert_eq!(news(&rack).await, Some((0, DriveEventKind::Spins)));
    assert_eq!(rack.woken_by_others(), 1);
    assert_eq!(news(&rack).await, None, "it is reported once");
    rack.drives()[0].stop().await.unwrap();
    assert_eq!(news(&rack).await, None, "what it did while awake is no touch");
    // A read that it served from its cache.
    machine.reads("sda", 3);
    assert_eq!(news(&rack).await, None);
    assert_eq!(rack.woken_by_others(), 1);
}

#[test]
fn a_command_of_the_operators_is_not_run_to_ask_a_disk_that_nobody_touched() {
    let machine = Machine::new();
    machine.plug("sda", SATA, Replay::default());
    let (script, calls) = (machine.path("relay"), machine.path("calls"));
    fs::write(&script, format!("echo $1 >>{}; echo standby", calls.display())).unwrap();
    let argv = vec!["/bin/sh".into(), script.display().to_string()];
    let drive = machine.drive_commanded_by("sda", Some(PowerCommand { argv, timeout: Duration::from_secs(30) }));
    drive.state.stop().unwrap();
    let called = || fs::read_to_string(&calls).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(called(), ["stop", "state"]);
    for _ in 0..3 {
        assert_eq!((drive.state.power.look(), drive.state.power.check()), (None, None));
    }
    assert_eq!(called().len(), 2, "nobody asks");
    machine.reads("sda", 3);
    assert_eq!(drive.state.power.look(), None, "it says that it stands still");
    assert_eq!(called(), ["stop", "state", "state"], "somebody touched it");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_started_from_here_is_not_woken_by_others() {
    let machine = Machine::new();
    machine.plug("sda", SAS, sas([STANDBY, TURNING].map(is)));
    let rack = machine.rack(&["sda"]);
    let drive = &rack.drives()[0];
    drive.stop().await.unwrap();
    drive.spin_up().await.unwrap();
    machine.reads("sda", 100);
    assert_eq!(news(&rack).await, None);
    assert_eq!(rack.woken_by_others(), 0);
}

/// The answer of a disk that is queried because it was touched arrives after it was started from here.
#[tokio::test(start_paused = true)]
async fn a_start_in_the_middle_of_a_question_is_no_wake_by_others() {
    let machine = Machine::new();
    machine.plug("sda", SAS, sas([STANDBY, STANDBY, TURNING].map(is)));
    let drive = machine.drive("sda");
    drive.stop().await.unwrap();
    let starts = drive.state.power.sleep.lock().starts;
    drive.state.power.sleep.lock().ends();
    assert_eq!(drive.state.power.ask_since(starts), (Some(true), false));
    assert!(drive.state.power.sleep.lock().asleep.is_none(), "what it answered before the start is forgotten");
    machine.reads("sda", 100);
    assert_eq!(drive.state.power.look(), None);
}

#[tokio::test(start_paused = true)]
async fn disks_that_go_and_come_back_are_asked_for_their_state() {
    let machine = Machine::new();
    let plugged = |state| machine.plug("sda", SAS, sas([is(state)]));
    plugged(STANDBY);
    let rack = machine.rack(&["sda"]);
    assert_eq!(rack.spinning().await, []);
    for (state, kind) in [(STANDBY, DriveEventKind::Back), (TURNING, DriveEventKind::Spins)] {
        machine.pull("sda");
        assert_eq!(news(&rack).await, Some((0, DriveEventKind::Pulled)));
        assert_eq!(news(&rack).await, None, "it is reported once");
        let disk = plugged(state);
        assert_eq!(news(&rack).await, Some((0, kind)));
        assert_eq!(news(&rack).await, None);
        assert_eq!(sent(&disk, Command::start()) + sent(&disk, Command::stop()), 0, "it is only asked");
    }
    // Not there when the server starts.
    machine.pull("sda");
    assert_eq!(rack.spinning().await, []);
    assert_eq!(news(&rack).await, Some((0, DriveEventKind::Pulled)));
    assert_eq!(rack.woken_by_others(), 0, "whoever pulls a disk does not wake it");
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_disk_that_is_counted_anew_is_asked() {
    let machine = Machine::new();
    machine.plug("sda", SAS, sas([is(STANDBY)]));
    let rack = machine.rack(&["sda"]);
    rack.drives()[0].stop().await.unwrap();
    // Another cable, between two looks: as far as the looks show, it was there all the time.
    for (state, kind) in [(STANDBY, None), (TURNING, Some((0, DriveEventKind::Spins)))] {
        machine.reads("sda", 50);
        assert_eq!(news(&rack).await, None, "it sleeps on");
        machine.pull("sda");
        let disk = machine.plug("sda", SAS, sas([is(state)]));
        assert_eq!(news(&rack).await, kind);
        assert_eq!(sent(&disk, Command::request_sense()), 1);
    }
}

#[tokio::test]
async fn a_disk_that_took_anothers_place_is_not_mounted_and_not_written() {
    let machine = Machine::new();
    machine.plug("sda", SAS, sas([is(TURNING)]));
    let drive = machine.drive("sda");
    let node = machine.path("dev/sda");
    let mount_of = async |name: Option<&str>| {
        let mut bytes = vec![0; SIZE_BYTES as usize];
        if let Some(name) = name {
            bytes[..4].copy_from_slice(b"XFSB");
            bytes[108..108 + name.len()].copy_from_slice(name.as_bytes());
        }
        fs::write(&node, &bytes).unwrap();
        let error = drive.mount().await.unwrap_err();
        assert!(fs::read(&node).unwrap() == bytes, "nothing was written");
        assert!(!machine.path("mounts").exists(), "nothing was mounted");
        error
    };
    assert!(matches!(mount_of(None).await, DriveError::Label(LabelError::Missing)));
    let other = volume_name(RackUuid([8; 16]));
    let error = mount_of(Some(&other)).await;
    let expected = volume_name(RACK);
    assert!(
        matches!(&error, DriveError::Label(LabelError::OtherVolume { found, expected: wanted })
            if *found == other && *wanted == expected),
        "{error}"
    );
}

#[test]
fn a_mounted_disk_is_quiesced_and_stops() {
    let machine = Machine::new();
    let disk = machine.plug("sda", SAS, sas([STANDBY, TURNING].map(is)));
    let mounted = machine.mounted("sda", true);
    mounted.stop().unwrap();
    assert!(machine.path("pool/quiesced").exists());
    assert_eq!(sent(&disk, Command::stop()), 1);
    mounted.start().unwrap();
    assert_eq!(sent(&disk, Command::start()), 1);
}

#[test]
fn a_disk_on_which_the_directory_is_not_is_left_alone() {
    let machine = Machine::new();
    let disk = machine.plug("sda", SAS, sas([is(STANDBY)]));
    let error = machine.mounted("sda", false).stop().unwrap_err();
    assert!(error.to_string().contains("is not on /dev/disk/by-id/sda, but on no disk of its own"), "{error}");
    machine.plug("sdb", SAS, sas([is(STANDBY)]));
    machine.mounted("sdb", true);
    let error = machine.mounted("sda", false).stop().unwrap_err();
    assert!(error.to_string().contains("is not on /dev/disk/by-id/sda, but on sdb"), "{error}");
    assert_eq!((sent(&disk, Command::stop()), machine.path("pool/quiesced").exists()), (0, false));
}

#[test]
fn a_disk_that_the_kernel_would_not_start_or_that_others_use_stays_awake() {
    let machine = Machine::new();
    let disk = machine.plug("sda", SAS, sas([is(STANDBY)]));
    let mounted = machine.mounted("sda", true);
    let restart = machine.path("sys/block/sda/device/scsi_disk/0:0:0:0");
    fs::create_dir_all(&restart).unwrap();
    fs::write(restart.join("allow_restart"), "0\n").unwrap();
    let error = mounted.stop().unwrap_err();
    assert!(error.to_string().contains("write 1 to /sys/block/sda/device/scsi_disk"), "{error}");
    fs::write(restart.join("allow_restart"), "1\n").unwrap();
    fs::create_dir(machine.path("sys/block/sda/sda1")).unwrap();
    let error = mounted.stop().unwrap_err();
    assert!(error.to_string().contains("has other partitions besides sda"), "{error}");
    assert_eq!(sent(&disk, Command::stop()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_the_pool_that_others_wake_is_found_and_one_that_fails_says_why() {
    let machine = Machine::new();
    machine.plug("sda", SAS, sas([STANDBY, TURNING].map(is)));
    let drive = PoolDriveId(3);
    let pool = PoolDisks::new([(drive, machine.mounted("sda", true))]);
    pool.stop(drive).await.unwrap();
    let untouched = tokio::time::timeout(Duration::from_secs(59), pool.found_spinning()).await;
    assert!(untouched.is_err(), "nobody touches it");
    machine.reads("sda", 3);
    let found = tokio::time::timeout(Duration::from_secs(59), pool.found_spinning()).await;
    assert_eq!((found.ok(), pool.woken_by_others(), pool.failure(drive)), (Some(drive), 1, None));
    machine.pull("sda");
    pool.stop(drive).await.unwrap_err();
    assert!(pool.failure(drive).unwrap().contains("there is no disk"), "{:?}", pool.failure(drive));
}
