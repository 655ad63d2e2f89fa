//! The conformance suite of drives, run over every kind of drive; and the further behaviour of an emulated rack.

#![allow(clippy::unwrap_used)]

use disk::device::{DeviceDrive, DiskHandle};
use disk::power::{PowerError, PowerMode};
use disk::{
    Buffer, Clock, DeadlineDrive, Deadlines, DirectoryDrive, Drive, DriveError, DriveEventKind, EmulatedRack,
    FUSE_RESET, FileName, IoMode, Label, LabelError, MemoryCall, MemoryDrive, OpenFiles, RackUuid, TokioClock, label,
    stack,
};
use model::physics::{PowerState, READ_SEEKS, READ_SEEKS_MAX, REMOVE_SEEKS, WRITE_SEEKS};
use model::{
    BlobId, ClassId, Code, Distribution, DomainId, DomainLimit, DriveId, DriveProfile, DriveSpec, GroupId, HeavyLoad,
    RackDraft, RackSpec, RateSpread, Resource, Time, Watts,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CAPACITY_BYTES: u64 = 8 << 20;

fn name(name: &str) -> FileName {
    FileName::new(name).unwrap()
}

/// Everything that holds for every drive. `drive` is empty and ready, and holds 8 MiB.
mod every_drive {
    use super::*;

    pub async fn keeps_what_it_is_given(drive: &dyn Drive) {
        let file = name("a.stack");
        drive.create(&file, 1 << 20).await.unwrap();
        let zeros = drive.read_at(&file, 4096, Buffer::zeroed(8192)).await.unwrap();
        assert!(zeros.iter().all(|byte| *byte == 0), "a preallocated file reads as zeros");
        for (offset, len) in [(0, 4096), (8192, 1 << 18), (1 << 19, 100), ((1 << 20) - 7, 7), (4095, 2)] {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 + offset as usize) as u8).collect();
            drive.write_at(&file, offset, Buffer::copy_of(&data)).await.unwrap();
            drive.sync(&file).await.unwrap();
            let back = drive.read_at(&file, offset, Buffer::zeroed(len)).await.unwrap();
            assert_eq!(&back[..], &data[..]);
        }
        assert_eq!(drive.len(&file).await.unwrap(), 1 << 20);
        drive.remove(&file).await.unwrap();
    }

    pub async fn knows_its_files(drive: &dyn Drive) {
        for file in ["b", "a", "c.stack"] {
            drive.create(&name(file), 0).await.unwrap();
        }
        assert!(matches!(drive.create(&name("a"), 10).await, Err(DriveError::Exists(file)) if file == name("a")));
        assert_eq!(drive.list().await.unwrap(), ["a", "b", "c.stack"].map(name));
        for file in ["b", "a", "c.stack"] {
            drive.remove(&name(file)).await.unwrap();
        }
        assert!(drive.list().await.unwrap().is_empty());
    }

    pub async fn says_what_is_missing(drive: &dyn Drive) {
        let missing = name("missing");
        let is_missing = |error: DriveError| matches!(error, DriveError::NotFound(file) if file == missing);
        assert!(is_missing(drive.read_at(&missing, 0, Buffer::zeroed(1)).await.unwrap_err()));
        assert!(is_missing(drive.write_at(&missing, 0, Buffer::zeroed(1)).await.unwrap_err()));
        assert!(is_missing(drive.sync(&missing).await.unwrap_err()));
        assert!(is_missing(drive.remove(&missing).await.unwrap_err()));
        assert!(is_missing(drive.len(&missing).await.unwrap_err()));
    }

    pub async fn keeps_to_the_ends_of_files(drive: &dyn Drive) {
        let file = name("short");
        drive.create(&file, 8192).await.unwrap();
        for (offset, len) in [(8192, 1), (4096, 8192), (0, 8193), (u64::MAX, 1), (u64::MAX - 4095, 4096)] {
            let read = drive.read_at(&file, offset, Buffer::zeroed(len)).await;
            assert!(matches!(read, Err(DriveError::Short(_))), "read {len} at {offset}");
            let written = drive.write_at(&file, offset, Buffer::zeroed(len)).await;
            assert!(matches!(written, Err(DriveError::Short(_))), "write {len} at {offset}");
        }
        assert_eq!(drive.len(&file).await.unwrap(), 8192);
        drive.remove(&file).await.unwrap();
    }

    pub async fn counts_its_room(drive: &dyn Drive) {
        let empty = drive.space().await.unwrap();
        assert_eq!((empty.capacity_bytes, empty.free_bytes), (CAPACITY_BYTES, CAPACITY_BYTES));
        drive.create(&name("big"), 6 << 20).await.unwrap();
        assert_eq!(drive.space().await.unwrap().free_bytes, 2 << 20);
        assert!(matches!(drive.create(&name("more"), 3 << 20).await, Err(DriveError::Full)));
        assert_eq!(drive.list().await.unwrap(), [name("big")], "nothing is left of what did not fit");
        assert!(matches!(drive.create(&name("big"), 3 << 20).await, Err(DriveError::Exists(_))));
        drive.create(&name("rest"), 2 << 20).await.unwrap();
        assert_eq!(drive.space().await.unwrap().free_bytes, 0);
        drive.remove(&name("big")).await.unwrap();
        drive.remove(&name("rest")).await.unwrap();
        assert_eq!(drive.space().await.unwrap(), empty);
    }

    pub async fn serves_many_at_once(drive: &dyn Drive) {
        let file = name("shared");
        drive.create(&file, 16 * 4096).await.unwrap();
        let file = &file;
        let each = |i: u8| async move {
            let at = u64::from(i) * 4096;
            drive.write_at(file, at, Buffer::copy_of(&[i; 4096])).await.unwrap();
            let back = drive.read_at(file, at, Buffer::zeroed(4096)).await.unwrap();
            assert!(back.iter().all(|byte| *byte == i));
        };
        futures::future::join_all((0..16).map(each)).await;
        drive.remove(file).await.unwrap();
    }
}

async fn conforms(drive: &dyn Drive) {
    conforms_but_for_room(drive).await;
    every_drive::counts_its_room(drive).await;
}

/// A directory has the room of its file system, which others may use, too.
async fn conforms_but_for_room(drive: &dyn Drive) {
    every_drive::keeps_what_it_is_given(drive).await;
    every_drive::knows_its_files(drive).await;
    every_drive::says_what_is_missing(drive).await;
    every_drive::keeps_to_the_ends_of_files(drive).await;
    every_drive::serves_many_at_once(drive).await;
}

#[tokio::test]
async fn a_directory_is_a_drive_in_both_modes() {
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let drive = || DirectoryDrive::open(directory.path()).unwrap().with_mode(mode);
        conforms_but_for_room(&drive()).await;
        // And with its own room, which it has below an emulated drive.
        let (rack, _) = emulated_over(1000, |_| Arc::new(drive()));
        wake(&*rack.drive(DriveId(0))).await;
        conforms(&*rack.drive(DriveId(0))).await;
    }
}

#[tokio::test]
async fn files_in_a_directory_are_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    DirectoryDrive::open(directory.path()).unwrap().create(&name("a.stack"), 4096).await.unwrap();
    assert_eq!(directory.path().join("a.stack").metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_directory_opened_again_holds_what_it_held() {
    let directory = tempfile::tempdir().unwrap();
    let open = || DirectoryDrive::open(directory.path()).unwrap();
    let first = open();
    first.create(&name("synced"), 4096).await.unwrap();
    first.write_at(&name("synced"), 0, Buffer::copy_of(&[9; 4096])).await.unwrap();
    first.sync(&name("synced")).await.unwrap();
    let (rack, _) = emulated_over(1000, |_| Arc::new(open()));
    let second = rack.drive(DriveId(0));
    wake(&*second).await;
    assert_eq!(second.space().await.unwrap().free_bytes, CAPACITY_BYTES - 4096);
    assert_eq!(second.read_at(&name("synced"), 0, Buffer::zeroed(1)).await.unwrap()[0], 9);
    assert!(DirectoryDrive::open(directory.path().join("nowhere")).is_err());
}

#[tokio::test]
async fn a_drive_of_another_rack_is_not_mounted() {
    let directory = tempfile::tempdir().unwrap();
    let label = Label { rack: RackUuid([1; 16]), rack_name: "here".into(), drive: DriveId(0) };
    let (uuid, labelled_ms, device) = (disk::DriveUuid([3; 16]), 0, disk::Device::None);
    let on_drive = disk::DriveLabel { label: label.clone(), uuid, labelled_ms, device };
    label::write_directories(&[(directory.path().to_owned(), on_drive)]).unwrap();
    let ours = DirectoryDrive::open(directory.path()).unwrap().with_label(label.clone());
    ours.mount().await.unwrap();
    let other = Label { rack: RackUuid([2; 16]), ..label };
    let theirs = DirectoryDrive::open(directory.path()).unwrap().with_label(other);
    assert!(matches!(theirs.mount().await, Err(DriveError::Label(LabelError::ForeignRack { .. }))));
}

#[tokio::test]
async fn a_drive_that_is_not_there_is_found_out_at_the_mount_and_may_come_later() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("0000");
    let label = Label { rack: RackUuid([1; 16]), rack_name: "here".into(), drive: DriveId(0) };
    let drive = DirectoryDrive::at(&place).with_label(label.clone());
    assert!(matches!(drive.mount().await, Err(DriveError::Label(LabelError::NoDirectory(path))) if path == place));
    assert!(!place.exists(), "no directory is made");
    std::fs::create_dir(&place).unwrap();
    assert!(matches!(drive.mount().await, Err(DriveError::Label(LabelError::Missing))));
    // The wrong label first, which is not remembered when the right one has come.
    let other = Label { drive: DriveId(1), ..label.clone() };
    let on_drive = |label| {
        let (uuid, device) = (disk::DriveUuid([3; 16]), disk::Device::None);
        disk::DriveLabel { label, uuid, labelled_ms: 5, device }
    };
    label::write_directories(&[(place.clone(), on_drive(other))]).unwrap();
    assert!(matches!(drive.mount().await, Err(DriveError::Label(LabelError::ForeignDrive { .. }))));
    std::fs::remove_file(place.join("larder.label")).unwrap();
    label::write_directories(&[(place, on_drive(label))]).unwrap();
    drive.mount().await.unwrap();
}

#[tokio::test]
async fn memory_is_a_drive() {
    conforms(&MemoryDrive::new(CAPACITY_BYTES)).await;
}

#[tokio::test]
async fn a_drive_that_is_held_to_deadlines_is_a_drive() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Time::ZERO, 1));
    let span = Duration::from_secs(30);
    let deadlines =
        Deadlines { read: span, write: span, sync: span, spin_up: span, mount: span, unmount: span, stop: span };
    conforms(&DeadlineDrive::new(Arc::new(MemoryDrive::new(CAPACITY_BYTES)), Arc::clone(&clock), deadlines)).await;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let inner = DirectoryDrive::open(directory.path()).unwrap();
    conforms_but_for_room(&DeadlineDrive::new(Arc::new(inner), clock, deadlines)).await;
}

/// All that is on the disk is lost. With `LARDER_TEST_DEVICE_STOPS=no` it is one that accepts a stop and spins on, as
/// QEMU's do.
#[tokio::test]
#[ignore = "needs a disk of its own, LARDER_TEST_DEVICE=/dev/disk/by-id/...; `./test --only vm` runs it"]
async fn a_disk_is_a_drive() {
    let device = std::env::var("LARDER_TEST_DEVICE").expect("LARDER_TEST_DEVICE names a disk below /dev/disk/by-id");
    let stops = std::env::var("LARDER_TEST_DEVICE_STOPS").as_deref() != Ok("no");
    let root = tempfile::tempdir().unwrap();
    let disk = || DiskHandle::new(&device, None);
    let of_label = |label| Arc::new(DeviceDrive::new(disk(), root.path().join("mounted"), label));
    let label = Label { rack: RackUuid([1; 16]), rack_name: "here".into(), drive: DriveId(0) };
    let drive = of_label(label.clone());
    let (uuid, labelled_ms) = (disk::DriveUuid([3; 16]), 0);
    let on_drive = disk::DriveLabel { label: label.clone(), uuid, labelled_ms, device: disk::Device::None };
    let made = drive.make(&on_drive, None);
    assert!(stops || matches!(made, Err(DriveError::Power(PowerError::StopIgnored))), "{made:?}");
    let stop = async || {
        if stops {
            drive.stop().await.unwrap();
            assert_eq!(disk().mode().unwrap(), PowerMode::Standby);
        }
    };

    wake(&*drive).await;
    assert_eq!(drive.list().await.unwrap(), [label::file_name()]);
    drive.remove(&label::file_name()).await.unwrap();
    conforms_but_for_room(&*drive).await;
    let (clock, span) = (Arc::new(TokioClock::starting_at(Time::ZERO, 1)), Duration::from_mins(1));
    let deadlines =
        Deadlines { read: span, write: span, sync: span, spin_up: span, mount: span, unmount: span, stop: span };
    conforms_but_for_room(&DeadlineDrive::new(Arc::clone(&drive) as Arc<dyn Drive>, clock, deadlines)).await;
    // XFS frees what was removed in the background, and all of it before it is mounted again.
    label::write(&*drive, &on_drive).await.unwrap();
    drive.unmount().await.unwrap();
    drive.mount().await.unwrap();
    let (empty, file) = (drive.space().await.unwrap(), name("a.stack"));
    drive.create(&file, CAPACITY_BYTES).await.unwrap();
    let used = empty.free_bytes - drive.space().await.unwrap().free_bytes;
    assert!((CAPACITY_BYTES..CAPACITY_BYTES + (1 << 20)).contains(&used), "{used}");
    drive.write_at(&file, 4096, Buffer::copy_of(&[9; 8192])).await.unwrap();
    drive.sync(&file).await.unwrap();

    drive.unmount().await.unwrap();
    assert!(drive.read_at(&file, 4096, Buffer::zeroed(1)).await.is_err(), "nothing is reached that is not mounted");
    assert!(drive.create(&name("b"), 4096).await.is_err(), "nothing is written below a mount point");
    stop().await;
    wake(&*drive).await;
    let back = drive.read_at(&file, 4095, Buffer::zeroed(8194)).await.unwrap();
    assert_eq!((back[0], &back[1..8193], back[8193]), (0, &[9; 8192][..], 0));
    drive.unmount().await.unwrap();

    let other = of_label(Label { drive: DriveId(1), ..label });
    // An unmount sends a flush, which carries nothing.
    let written = || disk().counters().unwrap().0.written_bytes;
    let before = written();
    assert!(matches!(other.mount().await, Err(DriveError::Label(LabelError::ForeignDrive { .. }))));
    assert!(other.list().await.is_err(), "another place's drive does not stay mounted");
    assert_eq!(written(), before, "nothing is written to it, not even by its file system");
    stop().await;
}

/// A caller opens files ahead and polls none of them while it waits for one more.
#[tokio::test]
async fn calls_that_nobody_polls_keep_no_place_from_others() {
    let root = tempfile::tempdir().unwrap();
    let drive = DirectoryDrive::open(root.path()).unwrap().with_open_files(&OpenFiles::new(2));
    let names: Vec<FileName> = (0..8).map(|at| FileName::new(format!("f{at}")).unwrap()).collect();
    for name in &names {
        drive.create(name, 4096).await.unwrap();
    }
    let call = |name| Box::pin(futures::future::maybe_done(drive.len(name)));
    let mut ahead: Vec<_> = names.iter().map(call).collect();
    for call in &mut ahead {
        let _ = futures::poll!(call.as_mut());
    }
    let one_more = tokio::time::timeout(Duration::from_mins(1), drive.len(&names[0])).await;
    assert_eq!(one_more.expect("an idle caller blocks no other one").unwrap(), 4096);
    for mut call in ahead {
        call.as_mut().await;
        assert_eq!(call.as_mut().take_output().unwrap().unwrap(), 4096);
    }
}

#[tokio::test]
async fn drives_that_share_open_files_never_have_more_open_than_they_may() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = OpenFiles::new(3);
    let drives: Vec<_> = (0..8)
        .map(|i| {
            let path = root.path().join(format!("{i}"));
            std::fs::create_dir(&path).unwrap();
            DirectoryDrive::open(path).unwrap().with_open_files(&files)
        })
        .collect();
    // Each alone, and then all at once: those that find no place wait for one.
    for drive in &drives {
        conforms_but_for_room(drive).await;
        assert!(files.open_count() <= 3, "{}", files.open_count());
    }
    let most = std::sync::atomic::AtomicUsize::new(0);
    let each = async |drive: &DirectoryDrive| {
        for round in 0..20_u8 {
            for file in ["a", "b"].map(name) {
                if round == 0 {
                    drive.create(&file, 4096).await.unwrap();
                }
                drive.write_at(&file, 0, Buffer::copy_of(&[round; 4096])).await.unwrap();
                drive.sync(&file).await.unwrap();
                let back = drive.read_at(&file, 1, Buffer::zeroed(9)).await.unwrap();
                assert_eq!(back[..], [round; 9]);
                most.fetch_max(files.open_count(), Ordering::Relaxed);
            }
        }
    };
    futures::future::join_all(drives.iter().map(each)).await;
    assert_eq!(most.into_inner(), 3);
    for drive in &drives {
        drive.unmount().await.unwrap();
    }
    assert_eq!(files.open_count(), 0, "a drive that sleeps has no file open");
}

/// Four drives; two of drives 0 and 1 may not spin together.
fn four_drives() -> RackSpec {
    let seconds = |min, max| Distribution {
        min: Duration::from_secs(min),
        max: Duration::from_secs(max),
        draws: 4,
        stragglers: None,
    };
    let profile = DriveProfile {
        capacity_bytes: CAPACITY_BYTES,
        bytes_per_s: 1 << 20,
        rate_spread: RateSpread::default(),
        seek: Duration::from_millis(4),
        spin_up: seconds(8, 12),
        mount: seconds(2, 3),
        mount_busy: seconds(20, 30),
        heavy_load: HeavyLoad::default(),
        unmount: seconds(1, 2),
        spin_down: seconds(2, 3),
        watts: Watts { standby_mw: 1_560, spin_up_mw: 21_530, active_mw: 9_420 },
        rated_starts: 30_000,
        life_years: 8,
    };
    let one = |i: u32| DriveSpec {
        id: DriveId(i),
        slot: [i as u16, 0, 0],
        resource_domains: vec![DomainId(i / 2)],
        failure_domains: vec![],
        capacity_bytes: None,
        bytes_per_s: None,
        path: None,
        power: model::DrivePower::Own,
    };
    let power = Resource { name: "power".into(), limit: DomainLimit::ActiveDrives(1), hard: true };
    RackSpec::validated(RackDraft {
        name: "four".into(),
        code: Code { data: 1, parity: 0, fragment_bytes: 4096 },
        group_drives: 1,
        pack_bytes: 1 << 20,
        resources: vec![power],
        failure_domains: vec![],
        drives: (0..4).map(one).collect(),
        pool: Vec::new(),
        profile,
    })
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_drive_whose_use_is_known_asks_no_file_for_its_length_when_it_is_mounted() {
    let measured = |known: Option<u64>| async move {
        let medium = Arc::new(MemoryDrive::new(1 << 30));
        for number in 0..50 {
            medium.create(&name(&format!("f{number}")), 4096).await.unwrap();
        }
        let (lengths, counted) = (Arc::new(AtomicU64::new(0)), Arc::clone(&medium));
        let count = Arc::clone(&lengths);
        medium.hang(move |call| {
            count.fetch_add(u64::from(matches!(call, MemoryCall::Len(_))), Ordering::Relaxed);
            None
        });
        let (rack, _) = emulated_over(1000, move |_| counted.clone());
        if let Some(bytes) = known {
            rack.assume_used(DriveId(0), bytes);
        }
        let drive = rack.drive(DriveId(0));
        wake(&*drive).await;
        let free_bytes = drive.space().await.unwrap().free_bytes;
        (lengths.load(Ordering::Relaxed), CAPACITY_BYTES - free_bytes)
    };
    assert_eq!(measured(None).await, (50, 50 * 4096));
    assert_eq!(measured(Some(50 * 4096)).await, (0, 50 * 4096));
}

fn emulated(scale: u32) -> (EmulatedRack, Arc<dyn Clock>) {
    emulated_over(scale, |_| Arc::new(MemoryDrive::new(1 << 30)))
}

fn emulated_over(scale: u32, inner: impl Fn(DriveId) -> Arc<dyn Drive>) -> (EmulatedRack, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Time::from_secs(5), scale));
    (EmulatedRack::new(&four_drives(), 1, Arc::clone(&clock), inner), clock)
}

async fn wake(drive: &dyn Drive) {
    drive.spin_up().await.unwrap();
    drive.mount().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_emulated_drive_is_a_drive() {
    let (rack, _) = emulated(1);
    let drive = rack.drive(DriveId(0));
    wake(&*drive).await;
    conforms(&*drive).await;
    drive.unmount().await.unwrap();
    drive.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_from_a_drive_that_sleeps() {
    let (rack, _) = emulated(1);
    let drive = rack.drive(DriveId(0));
    let refusal = |error| match error {
        DriveError::NotReady(why) => why,
        other => panic!("{other}"),
    };
    let file = name("a");
    let read = || drive.read_at(&file, 0, Buffer::zeroed(1));
    assert_eq!(refusal(read().await.unwrap_err()), "in standby");
    assert_eq!(refusal(drive.mount().await.unwrap_err()), "in standby");
    drive.spin_up().await.unwrap();
    assert_eq!(refusal(read().await.unwrap_err()), "not mounted");
    drive.mount().await.unwrap();
    assert_eq!(refusal(drive.stop().await.unwrap_err()), "still mounted");
    assert_eq!(rack.starts(DriveId(0)), 1);
}

#[tokio::test(start_paused = true)]
async fn a_label_is_looked_at_when_the_mount_has_taken_its_time_and_never_before() {
    let root = tempfile::tempdir().unwrap();
    let here = Label { rack: RackUuid([1; 16]), rack_name: "here".into(), drive: DriveId(0) };
    let (rack, clock) =
        emulated_over(1, |_| Arc::new(DirectoryDrive::at(root.path()).with_label(here.clone())) as Arc<dyn Drive>);
    let drive = rack.drive(DriveId(0));
    assert!(matches!(drive.mount().await, Err(DriveError::NotReady("in standby"))), "nobody looked");
    drive.spin_up().await.unwrap();
    let began = clock.now();
    assert!(matches!(drive.mount().await, Err(DriveError::Label(LabelError::Missing))));
    let took = clock.now().since(began);
    assert!((2..=3).contains(&took.as_secs()), "{took:?} is not `mount`");
    let read = drive.read_at(&label::file_name(), 0, Buffer::zeroed(1)).await;
    assert!(matches!(read, Err(DriveError::NotReady("not mounted"))), "nothing of it is reached");
    drive.unmount().await.unwrap();
    drive.stop().await.unwrap();
    let on_drive =
        disk::DriveLabel { label: here, uuid: disk::DriveUuid([3; 16]), labelled_ms: 5, device: disk::Device::None };
    label::write_directories(&[(root.path().to_owned(), on_drive)]).unwrap();
    wake(&*drive).await;
}

#[tokio::test(start_paused = true)]
async fn a_gigabyte_takes_its_modelled_time_and_hours_pass_in_no_time() {
    for scale in [1, 7, 3600] {
        let (rack, clock) = emulated(scale);
        let drive = rack.drive(DriveId(0));
        wake(&*drive).await;
        drive.create(&name("a"), 4 << 20).await.unwrap();
        let (wall, began) = (std::time::Instant::now(), clock.now());
        for i in 0..1024 {
            drive.write_at(&name("a"), (i % 4) << 20, Buffer::zeroed(1 << 20)).await.unwrap();
        }
        let seconds = clock.now().since(began).as_secs();
        assert!((1022..=1035).contains(&seconds), "1 GiB at 1 MiB/s took {seconds} s at scale {scale}");
        assert!(wall.elapsed() < Duration::from_secs(5));
        assert_eq!(rack.overrun().requests, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_moments() {
    let mut moments = Vec::new();
    for _ in 0..2 {
        let (rack, clock) = emulated(1);
        let mut seen = Vec::new();
        for i in [0, 2] {
            wake(&*rack.drive(DriveId(i))).await;
            seen.push((clock.now(), rack.energy(), rack.draw_mw()));
        }
        moments.push(seen);
    }
    assert_eq!(moments[0], moments[1]);
}

#[tokio::test(start_paused = true)]
async fn a_fuse_takes_its_drives_away_and_gives_them_back_in_standby() {
    let (rack, clock) = emulated(1);
    let (first, second) = (rack.drive(DriveId(0)), rack.drive(DriveId(1)));
    wake(&*first).await;
    first.create(&name("a"), 1 << 20).await.unwrap();
    let tripped = |error: &DriveError| matches!(error, DriveError::FuseTripped { domain } if domain == "power 0");
    let file = name("a");
    let (cut_short, refused) = tokio::join!(first.write_at(&file, 0, Buffer::zeroed(1 << 20)), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        second.spin_up().await
    });
    assert!(tripped(&cut_short.unwrap_err()), "the write it was in the middle of is lost");
    assert!(tripped(&refused.unwrap_err()));
    assert!(tripped(&first.spin_up().await.unwrap_err()));
    let trip = clock.now();
    for drive in [0, 1] {
        let news = rack.news().await;
        assert_eq!((news.drive, news.news), (DriveId(drive), DriveEventKind::FuseTripped { domain: "power 0".into() }));
        assert_eq!(rack.state(DriveId(drive)), PowerState::Away);
    }
    for drive in [0, 1] {
        let news = rack.news().await;
        assert_eq!((news.drive, news.news), (DriveId(drive), DriveEventKind::Back));
        assert_eq!(rack.state(DriveId(drive)), PowerState::Standby);
    }
    assert!(clock.now().since(trip) <= FUSE_RESET);
    wake(&*first).await;
    assert_eq!(first.len(&name("a")).await.unwrap(), 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_is_pulled_is_away_until_it_is_plugged_in() {
    let (rack, _) = emulated(1);
    let drive = rack.drive(DriveId(3));
    wake(&*drive).await;
    rack.pull(DriveId(3));
    assert_eq!(rack.news().await.news, DriveEventKind::Pulled);
    assert!(matches!(drive.space().await, Err(DriveError::Gone(_))));
    assert!(matches!(drive.spin_up().await, Err(DriveError::Gone(_))));
    rack.plug(DriveId(3));
    assert_eq!(rack.news().await.news, DriveEventKind::Back);
    wake(&*drive).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_inner_drive_is_an_overrun() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Time::ZERO, 10));
    let rack = EmulatedRack::new(&four_drives(), 1, Arc::clone(&clock), |_| {
        let slow = EmulatedRack::new(&four_drives(), 2, Arc::new(TokioClock::starting_at(Time::ZERO, 1)), |_| {
            Arc::new(MemoryDrive::new(1 << 30))
        });
        slow.drive(DriveId(0))
    });
    let drive = rack.drive(DriveId(0));
    drive.spin_up().await.unwrap();
    drive.mount().await.unwrap();
    drive.create(&name("a"), 1 << 20).await.unwrap();
    drive.write_at(&name("a"), 0, Buffer::zeroed(1 << 20)).await.unwrap();
    let overrun = rack.overrun();
    assert!(overrun.requests >= 1);
    // A second of wall time is ten of modelled time; one of these was modelled.
    assert!((8..11).contains(&overrun.total.as_secs()), "{overrun:?}");
}

/// Four drives that are awake, with nothing that binds but what `change` adds.
async fn four_awake(scale: u32, change: impl FnOnce(&mut RackDraft)) -> (EmulatedRack, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Time::ZERO, scale));
    let mut draft = (*four_drives()).clone();
    draft.resources.clear();
    draft.drives.iter_mut().for_each(|drive| drive.resource_domains.clear());
    draft.profile.capacity_bytes = 1 << 30;
    draft.profile.bytes_per_s = 100_000_000;
    change(&mut draft);
    let rack = EmulatedRack::new(&RackSpec::validated(draft).unwrap(), 1, Arc::clone(&clock), |_| {
        Arc::new(MemoryDrive::new(1 << 30))
    });
    futures::future::join_all(rack.drives().iter().map(|drive| wake(&**drive))).await;
    (rack, clock)
}

/// A blob of 2+2, written to all four drives.
async fn written(rack: &EmulatedRack, fragment_bytes: u32, payload_bytes: u64) -> (stack::Blob, u64) {
    let code = Code { data: 2, parity: 2, fragment_bytes };
    let provenance = stack::Provenance { sequence: 0, run: 0, written_ms: 0, group: GroupId(0), class: ClassId(0) };
    let blob = stack::Blob { rack: RackUuid([0; 16]), id: BlobId::numbered(payload_bytes), code, payload_bytes };
    let numbered: Vec<_> = rack.drives().into_iter().enumerate().map(|(i, drive)| (DriveId(i as u32), drive)).collect();
    let mut writer = stack::StackWriter::create(blob, provenance, &numbered).await.result.unwrap();
    let piece = vec![3; 1_000_000];
    for at in (0..payload_bytes).step_by(piece.len()) {
        writer.write(&piece[..piece.len().min((payload_bytes - at) as usize)]).await.unwrap();
    }
    (blob, writer.finish().await.result.unwrap().payload_crc64)
}

fn numbered(rack: &EmulatedRack) -> Vec<(u8, Arc<dyn Drive>)> {
    (0..).zip(rack.drives()).collect()
}

#[tokio::test(start_paused = true)]
async fn heads_move_as_often_as_the_model_says() {
    // Apart from a seek of this length nothing takes any time.
    let (rack, clock) = four_awake(1, |draft| {
        draft.profile.seek = Duration::from_secs(10);
        draft.profile.bytes_per_s = 1_000_000_000;
    })
    .await;
    let seeks = async |began: Time| (clock.now().since(began).as_secs_f64() / 10.0).round() as u64;
    let read = async |blob: stack::Blob, range: std::ops::Range<u64>| {
        let began = clock.now();
        let mut reader = stack::StackReader::open(blob, numbered(&rack), stack::Policy::All).await.result.unwrap();
        reader.read(range, &mut Vec::new()).await.unwrap();
        seeks(began).await
    };
    let began = clock.now();
    let (one_run, _) = written(&rack, 4096, 4_000_000).await;
    assert_eq!(seeks(began).await, u64::from(WRITE_SEEKS));
    assert_eq!(read(one_run, 0..4_000_000).await, u64::from(READ_SEEKS));
    // Another file is between: heads at the end of a blob's fragments are before its footer.
    let (two_runs, _) = written(&rack, 4096, 12_000_000).await;
    assert_eq!(read(one_run, 2_000_000..4_000_000).await, 3);
    assert_eq!(read(two_runs, 2_000_000..4_000_000).await, u64::from(READ_SEEKS_MAX));
    let began = clock.now();
    stack::remove(one_run.rack, one_run.id, &numbered(&rack)).await;
    assert_eq!(seeks(began).await, u64::from(REMOVE_SEEKS));
}

#[tokio::test(start_paused = true)]
async fn drives_share_the_link_that_they_hang_on() {
    let half = DomainLimit::BytesPerS(200_000_000);
    let (rack, clock) = four_awake(1, |draft| {
        draft.resources = vec![Resource { name: "link".into(), limit: half, hard: false }];
        draft.drives.iter_mut().for_each(|drive| drive.resource_domains = vec![DomainId(drive.id.0 / 3)]);
    })
    .await;
    let began = clock.now();
    let (blob, crc) = written(&rack, 128 << 10, 40_000_000).await;
    let write_s = clock.now().since(began).as_secs_f64();
    // 20 MB to each: three drives at 100 MB/s hang on a link of 200 MB/s.
    assert!((0.30..0.34).contains(&write_s), "{write_s} s");
    let began = clock.now();
    stack::verify(blob, &rack.drives(), crc).await.result.unwrap();
    let read_s = clock.now().since(began).as_secs_f64();
    assert!((0.30..0.34).contains(&read_s), "{read_s} s");
}

/// The seconds that it takes to write a blob to four drives (2+2) and to read it back from all of them.
async fn write_and_read(scale: u32) -> (f64, f64) {
    let (rack, clock) = four_awake(scale, |_| {}).await;
    let began = clock.now();
    let (blob, crc) = written(&rack, 128 << 10, 200_000_000).await;
    let write_s = clock.now().since(began).as_secs_f64();
    let began = clock.now();
    stack::verify(blob, &rack.drives(), crc).await.result.unwrap();
    (write_s, clock.now().since(began).as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn blobs_move_at_the_speed_of_the_modelled_drives_whatever_the_time_scale() {
    for scale in [1, 20, 200] {
        let (write_s, read_s) = write_and_read(scale).await;
        // 100 MB on each drive at 100 MB/s and a few seeks of 4 ms, to within 1 ms of the wall.
        let timer = 0.001 * f64::from(scale);
        let range = 1.0 - timer..1.1 + timer;
        assert!(range.contains(&write_s), "writing took {write_s} s at scale {scale}");
        assert!(range.contains(&read_s), "reading took {read_s} s at scale {scale}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drive_mounts_slowly_while_the_server_moves_payload_for_another_and_quickly_after() {
    let (rack, clock) = emulated(1);
    let (working, woken, later) = (rack.drive(DriveId(0)), rack.drive(DriveId(2)), rack.drive(DriveId(3)));
    wake(&*working).await;
    working.create(&name("a"), 4 << 20).await.unwrap();
    woken.spin_up().await.unwrap();
    let file = name("a");
    let streaming = async {
        for i in 0..60 {
            working.write_at(&file, (i % 4) << 20, Buffer::zeroed(1 << 20)).await.unwrap();
        }
    };
    let mounting = async {
        clock.sleep_until(clock.now() + Duration::from_millis(500)).await;
        let began = clock.now();
        woken.mount().await.unwrap();
        clock.now().since(began)
    };
    let ((), loaded) = tokio::join!(streaming, mounting);
    assert!((20..=30).contains(&loaded.as_secs()), "{loaded:?} is not `mount_busy`");
    woken.unmount().await.unwrap();
    woken.stop().await.unwrap();
    later.spin_up().await.unwrap();
    // A read of less than a fragment, for example a label, is no stream.
    working.read_at(&file, 0, Buffer::zeroed(4095)).await.unwrap();
    let began = clock.now();
    later.mount().await.unwrap();
    let idle = clock.now().since(began);
    assert!((2..=3).contains(&idle.as_secs()), "{idle:?} is not `mount`");
}
