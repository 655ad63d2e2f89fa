//! Disks that become drives of a rack: the checks that they may, before anything is written, and making drives of them.

use super::error::{DataDirError, failed};
use disk::device::{BY_ID, DeviceDrive, DiskHandle, MountedDisk, is_device};
use disk::discover::{Disk, Excused, Tree, find, survey_with, system_transports};
use disk::label::DriveLabel;
use disk::power::{CommandPower, PowerControl};
use disk::scsi::TransportError;
use model::{DriveId, PowerCommand, RackSpec};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The disks of this machine for those drives of a rack that are devices.
pub(super) struct Chosen {
    disks: Vec<(DriveId, Disk)>,
}

/// The drives of `rack` that are devices, with their paths.
fn of(rack: &RackSpec) -> impl Iterator<Item = (DriveId, &Path)> {
    let paths = rack.drives.iter().filter_map(|drive| Some((drive.id, Path::new(drive.path.as_deref()?))));
    paths.filter(|(_, path)| is_device(path))
}

/// The disks of this machine that `rack` names. The data of a disk in `wipe`, or of a file system named `volume`, is no
/// longer needed.
///
/// # Errors
/// All objections, each with its fix.
pub(super) fn choose(rack: &RackSpec, wipe: &[String], volume: Option<&str>) -> Result<Chosen, DataDirError> {
    refuse_pool(rack)?;
    refuse_pool_disks(rack)?;
    if of(rack).next().is_none() {
        return if wipe.is_empty() { Ok(Chosen { disks: Vec::new() }) } else { Err(none_to_wipe(&wipe[0])) };
    }
    let tree = Tree::below("/");
    judge(rack, wipe, volume, &tree, &surveyed(rack, &tree))
}

/// The disks of this machine, each with the report of its power control, if that is a command in `rack`'s description.
fn surveyed(rack: &RackSpec, tree: &Tree) -> Vec<Disk> {
    let commands = rack.drives.iter().filter_map(|drive| {
        let path = Path::new(drive.path.as_deref()?);
        Some((tree.target(path)?, (drive.power_command()?, path)))
    });
    let commands: BTreeMap<PathBuf, _> = commands.collect();
    let commanded = |node: &Path| -> Option<Box<dyn PowerControl>> {
        let (command, path) = commands.get(node)?;
        Some(Box::new(CommandPower::of(command, path)))
    };
    survey_with(tree, &system_transports, &commanded)
}

fn judge(
    rack: &RackSpec,
    wipe: &[String],
    volume: Option<&str>,
    tree: &Tree,
    disks: &[Disk],
) -> Result<Chosen, DataDirError> {
    let mut complaints = Vec::new();
    let mut wiped = Vec::new();
    for named in wipe {
        match find(tree, disks, named) {
            Ok(disk) => wiped.push(disk.name.as_str()),
            Err(error) => complaints.push(format!("--wipe {named}: {error}")),
        }
    }
    let (mut chosen, mut taken) = (Vec::new(), BTreeMap::<&str, DriveId>::new());
    for drive in &rack.drives {
        let Some(path) = drive.path.as_deref() else {
            complaints.push(format!(
                "drive {} has no path; if some drives are devices, name a path for each drive",
                drive.id.0
            ));
            continue;
        };
        if !is_device(Path::new(path)) {
            continue;
        }
        let about = |what: String| format!("drive {} ({path}): {what}", drive.id.0);
        match find(tree, disks, path) {
            Err(error) => complaints.push(about(error.to_string())),
            Ok(disk) => {
                let reasons =
                    reasons(disk, path, rack.capacity_bytes(drive.id), wiped.contains(&disk.name.as_str()), volume);
                complaints.extend(reasons.into_iter().map(about));
                if let Some(other) = taken.insert(&disk.name, drive.id) {
                    complaints.push(about(format!("it is the same disk as that of drive {}; name another", other.0)));
                }
                chosen.push((drive.id, disk.clone()));
            }
        }
    }
    let unused = wiped.iter().find(|name| !taken.contains_key(*name));
    complaints
        .extend(unused.map(|name| format!("--wipe names {name}, which is not a drive of this rack; leave it out")));
    if complaints.is_empty() { Ok(Chosen { disks: chosen }) } else { Err(DataDirError::Refused(complaints.join("\n"))) }
}

/// The objections to `disk`, which is named by `path`.
fn reasons(disk: &Disk, path: &str, capacity_bytes: u64, wiped: bool, volume: Option<&str>) -> Vec<String> {
    let mut reasons = Vec::new();
    if !path.starts_with(BY_ID) {
        let instead =
            disk.by_id.as_deref().map_or("its link in /dev/disk/by-id".to_owned(), |id| id.display().to_string());
        reasons.push(format!("{path} may be another disk after the next start; name {instead}"));
    }
    reasons.extend(disk.objections(path, Excused { wiped, volume }));
    if disk.size_bytes < capacity_bytes {
        reasons.push(format!(
            "it has {} bytes, and the description says {capacity_bytes}; write `capacity` for this drive",
            disk.size_bytes
        ));
    }
    reasons
}

/// The disks of this machine. Only the disk to which `link` leads is queried, so that a sleeping rack stays asleep.
/// `command` controls its power, if given.
pub(crate) fn disks_of_machine(tree: &Tree, link: &Path, command: Option<&PowerCommand>) -> Vec<Disk> {
    let target = tree.target(link);
    let wanted = target.as_ref().map(|path| tree.real(path));
    let transports = |path: &Path| {
        if wanted.as_deref() == Some(path) { system_transports(path) } else { Err(TransportError::Unsupported) }
    };
    let commanded = |node: &Path| -> Option<Box<dyn PowerControl>> {
        let command = command.filter(|_| target.as_deref() == Some(node))?;
        Some(Box::new(CommandPower::of(command, link)))
    };
    survey_with(tree, &transports, &commanded)
}

/// The disk of this machine to which `link` leads, if it may take the place of `drive`. Its data is no longer needed if
/// `wipe` names it; a Larder file system named `volume` is no objection, because it is inspected later.
///
/// # Errors
/// All objections, each with its fix.
pub(crate) fn judge_disk(
    rack: &RackSpec,
    (drive, link): (DriveId, &str),
    wipe: Option<&str>,
    volume: &str,
    (tree, disks): (&Tree, &[Disk]),
) -> Result<Disk, String> {
    let disk = find(tree, disks, link).map_err(|error| format!("{link}: {error}"))?;
    let reasons = reasons(disk, link, rack.capacity_bytes(drive), wipe.is_some(), Some(volume));
    if !link.starts_with(BY_ID) {
        return Err(reasons.into_iter().next().unwrap_or_default());
    }
    let mut complaints = Vec::new();
    match wipe.map(|named| (named, find(tree, disks, named))) {
        Some((named, Err(error))) => complaints.push(format!("--wipe {named}: {error}")),
        Some((named, Ok(wiped))) if wiped.name != disk.name => {
            complaints.push(format!("--wipe {named} is {}, and {link} is {}; name one disk", wiped.name, disk.name));
        }
        _ => {}
    }
    for (other, path) in of(rack).filter(|(other, _)| *other != drive) {
        let theirs = find(tree, disks, &path.to_string_lossy());
        if theirs.is_ok_and(|theirs| theirs.name == disk.name) {
            complaints.push(format!("{link}: it is the disk of drive {} of this rack; name another", other.0));
        }
    }
    complaints.extend(reasons.into_iter().map(|reason| format!("{link}: {reason}")));
    if complaints.is_empty() { Ok(disk.clone()) } else { Err(complaints.join("\n")) }
}

/// Refuses a drive of the pool that is not a directory, and a drive that is a file.
fn refuse_pool(rack: &RackSpec) -> Result<(), DataDirError> {
    let paths = rack.pool.iter().filter_map(|drive| drive.path.as_deref()).map(Path::new);
    // Nor can a file hold the files of a drive.
    let files = rack.drives.iter().filter_map(|drive| drive.path.as_deref()).map(Path::new);
    let files = files.filter(|path| !is_device(path) && path.exists() && !path.is_dir());
    let wrong = paths.filter(|path| is_device(path) || (path.exists() && !path.is_dir())).chain(files).next();
    wrong.map_or(Ok(()), |path| {
        Err(DataDirError::Refused(format!(
            "the rack names {}, which is not a directory; a drive is a directory on a mounted file system, or a disk \
             below {BY_ID}; a drive of the pool is a directory, and `disk` names the disk that holds it",
            path.display()
        )))
    })
}

/// Checks that the directory of each drive of the pool that is a whole disk is on that disk.
fn refuse_pool_disks(rack: &RackSpec) -> Result<(), DataDirError> {
    let pooled = rack.pool.iter().filter_map(|drive| Some((drive.disk.as_deref()?, Path::new(drive.path.as_deref()?))));
    let complaint = |(number, (disk, path)): (usize, (&str, &Path))| {
        let why = if path.is_absolute() {
            MountedDisk::new(DiskHandle::new(disk, None), path).check().err()?.to_string()
        } else {
            format!("{} is below the data directory; name the directory in which the disk is mounted", path.display())
        };
        Some(format!("drive {number} of the pool: {why}"))
    };
    let complaints: Vec<String> = pooled.enumerate().filter_map(complaint).collect();
    if complaints.is_empty() { Ok(()) } else { Err(DataDirError::Refused(complaints.join("\n"))) }
}

fn none_to_wipe(named: &str) -> DataDirError {
    DataDirError::Refused(format!("--wipe {named}: no drive of this rack is a device; leave it out"))
}

/// Refuses a time scale for real hardware.
pub(super) fn refuse_time_scale(rack: &RackSpec, time_scale: u32) -> Result<(), DataDirError> {
    let in_pool = rack.pool.iter().any(|drive| drive.disk.is_some());
    if time_scale == 1 || (of(rack).next().is_none() && !in_pool) {
        return Ok(());
    }
    Err(DataDirError::Refused(
        "a rack of real disks cannot run faster than real time; leave --time-scale out".to_owned(),
    ))
}

impl Chosen {
    /// Makes a drive of each disk: a file system with a label, unmounted, and asleep. `drive_of` returns the drive, and
    /// its label without the disk's identity.
    ///
    /// # Errors
    /// The first disk that cannot become a drive.
    pub(super) fn make(
        self,
        owner: Option<(u32, u32)>,
        drive_of: impl Fn(DriveId) -> Result<(DeviceDrive, DriveLabel), DataDirError>,
    ) -> Result<(), DataDirError> {
        for (drive, disk) in self.disks {
            let (device, label) = drive_of(drive)?;
            let made = device.make(&DriveLabel { device: disk.identity(), ..label }, owner);
            made.map_err(|error| {
                failed(&format!("making drive {} of {}", drive.0, disk.name), io::Error::other(error))
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use disk::discover::{Bus, Contents, Protocol, Refusal, Usage};
    use disk::power::PowerMode;
    use model::text::SHIPPED;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A machine with the disks sda to sdh, each with a link by its serial number, and a rack of these.
    struct Machine {
        folder: tempfile::TempDir,
        disks: Vec<Disk>,
    }

    fn id(letter: char) -> String {
        format!("{BY_ID}/ata-TEST_{letter}")
    }

    impl Machine {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("dev/disk/by-id")).unwrap();
            let disks = ('a'..='h').map(|letter| {
                let name = format!("sd{letter}");
                fs::write(folder.path().join("dev").join(&name), "").unwrap();
                symlink(format!("../../{name}"), folder.path().join(&id(letter)[1..])).unwrap();
                disk(name, letter)
            });
            let disks = disks.collect();
            Self { folder, disks }
        }

        fn complaint(&self, rack: &RackSpec, wipe: &[&str], volume: Option<&str>) -> Option<String> {
            let wipe: Vec<String> = wipe.iter().map(|named| (*named).to_owned()).collect();
            judge(rack, &wipe, volume, &Tree::below(self.folder.path()), &self.disks)
                .err()
                .map(|error| error.to_string())
        }
    }

    fn disk(name: String, letter: char) -> Disk {
        Disk {
            path: Path::new("/dev").join(&name),
            by_id: Some(id(letter).into()),
            model: "TEST".into(),
            serial: Some(letter.to_string()),
            wwn: None,
            size_bytes: 12_000_000_000_000,
            bus: Bus::Ata,
            slot: None,
            rotational: true,
            rotation_rpm: None,
            power_up_in_standby: None,
            allow_restart: None,
            protocol: Protocol::Ata,
            mode: Some(PowerMode::Active),
            partitions: vec![],
            contents: Contents::Nothing,
            counters: None,
            refusals: vec![],
            name,
        }
    }

    fn rack(path_of: impl Fn(char) -> String) -> RackSpec {
        let (_, nas8) = SHIPPED.iter().find(|(name, _)| *name == "nas8").unwrap();
        let mut letters = 'a'..='h';
        let parts: Vec<String> = nas8.split("[[drives]]").map(str::to_owned).collect();
        let with = |part: &String| {
            let path = path_of(letters.next().unwrap());
            let power = if path.starts_with("/dev/") { "own" } else { "none" };
            format!("[[drives]]\npath = \"{path}\"\npower = \"{power}\"{part}")
        };
        let text = parts[0].clone() + &parts[1..].iter().map(with).collect::<String>();
        model::text::parse(&text, "rack.toml").unwrap()
    }

    #[test]
    fn disks_that_hold_nothing_become_drives() {
        assert_eq!(Machine::new().complaint(&rack(id), &[], None), None);
    }

    #[test]
    fn names_that_may_be_another_disks_are_refused() {
        let by_name = rack(|letter| if letter == 'b' { "/dev/sdb".to_owned() } else { id(letter) });
        let complaint = Machine::new().complaint(&by_name, &[], None).unwrap();
        assert!(
            complaint.contains("drive 1 (/dev/sdb): /dev/sdb may be another disk after the next start"),
            "{complaint}"
        );
        assert!(complaint.ends_with(&format!("name {}", id('b'))), "{complaint}");
    }

    #[test]
    fn two_links_to_one_disk_are_refused() {
        let machine = Machine::new();
        symlink("../../sda", machine.folder.path().join(&format!("{BY_ID}/wwn-0x5")[1..])).unwrap();
        let twice = rack(|letter| if letter == 'b' { format!("{BY_ID}/wwn-0x5") } else { id(letter) });
        let complaint = machine.complaint(&twice, &[], None).unwrap();
        assert!(complaint.contains("it is the same disk as that of drive 0"), "{complaint}");
    }

    #[test]
    fn partitions_and_disks_that_are_not_there_are_refused_all_at_once() {
        let mut machine = Machine::new();
        machine.disks[2].partitions = vec!["sdc1".into()];
        fs::write(machine.folder.path().join("dev/sdc1"), "").unwrap();
        symlink("../../sdc1", machine.folder.path().join(&format!("{}-part1", id('c'))[1..])).unwrap();
        let wrong = rack(|letter| match letter {
            'c' => format!("{}-part1", id('c')),
            'd' => format!("{BY_ID}/none"),
            other => id(other),
        });
        let complaint = machine.complaint(&wrong, &[], None).unwrap();
        let lines: Vec<&str> = complaint.lines().collect();
        assert!(lines[0].contains("sdc1 is a partition of sdc; a drive is a whole disk"), "{complaint}");
        assert!(lines[1].contains("drive 3") && lines[1].contains("there is no disk"), "{complaint}");
        assert_eq!(lines.len(), 2, "{complaint}");
    }

    #[test]
    fn what_lies_on_a_disk_is_lost_only_if_that_is_said() {
        let mut machine = Machine::new();
        machine.disks[4].refusals = vec![Refusal::Holds("a file system (ext4)".into())];
        machine.disks[5].refusals = vec![Refusal::LardersOwn("larderabcdef".into())];
        let complaint = machine.complaint(&rack(id), &[], None).unwrap();
        assert_eq!(complaint.lines().count(), 2, "{complaint}");
        assert!(complaint.contains(&format!("--wipe {}", id('e'))), "{complaint}");
        assert_eq!(machine.complaint(&rack(id), &["e", &id('f')], None), None);
        // The remains of a killed `init` are its own.
        assert_eq!(machine.complaint(&rack(id), &["sde"], Some("larderabcdef")), None);
        assert!(machine.complaint(&rack(id), &["sde"], Some("larderfedcba")).is_some());
    }

    impl Machine {
        /// The name of the disk that may take the place of drive 1, or the objections to it.
        fn judged(&self, link: &str, wipe: Option<&str>) -> Result<String, String> {
            // The disks sdg and sdh are none of the rack's.
            let rack = rack(|letter| if letter < 'g' { id(letter) } else { format!("directory-{letter}") });
            let tree = Tree::below(self.folder.path());
            judge_disk(&rack, (DriveId(1), link), wipe, "larderabcdef", (&tree, &self.disks)).map(|disk| disk.name)
        }
    }

    #[test]
    fn a_disk_that_holds_nothing_takes_the_place_of_another() {
        let machine = Machine::new();
        assert_eq!(machine.judged(&id('g'), None), Ok("sdg".into()));
        assert_eq!(machine.judged(&id('b'), None), Ok("sdb".into()), "the one that is there may be back");
        for (link, said) in [
            (id('c'), "it is the disk of drive 2 of this rack; name another"),
            ("/dev/sdg".to_owned(), "/dev/sdg may be another disk after the next start; name"),
            (format!("{BY_ID}/none"), "there is no disk"),
        ] {
            let why = machine.judged(&link, None).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
        assert!(machine.judged(&id('c'), Some(&id('c'))).is_err(), "no word excuses that");
    }

    #[test]
    fn what_lies_on_a_new_disk_is_lost_only_if_that_is_said() {
        let mut machine = Machine::new();
        machine.disks[6].refusals = vec![Refusal::Holds("a file system (ext4)".into())];
        machine.disks[7].refusals = vec![Refusal::LardersOwn("larderabcdef".into())];
        let why = machine.judged(&id('g'), None).unwrap_err();
        assert!(why.contains(&format!("--wipe {}", id('g'))), "{why}");
        assert_eq!(machine.judged(&id('g'), Some("sdg")), Ok("sdg".into()));
        assert!(machine.judged(&id('g'), Some("sdh")).unwrap_err().contains("name one disk"));
        assert_eq!(machine.judged(&id('h'), None), Ok("sdh".into()), "its label decides");
        machine.disks[6].refusals = vec![Refusal::NotRead("asleep")];
        assert!(machine.judged(&id('g'), Some("sdg")).unwrap_err().contains("start it with `larder drive power`"));
        machine.disks[6].refusals = vec![];
        machine.disks[6].size_bytes = 1_000_000_000;
        assert!(machine.judged(&id('g'), None).unwrap_err().contains("write `capacity` for this drive"));
    }

    #[test]
    fn disks_of_one_serial_number_are_refused_and_nothing_is_written_to_them() {
        let mut machine = Machine::new();
        for (disk, twin) in [(0, "sdb"), (1, "sda")] {
            machine.disks[disk].serial = Some("a".into());
            machine.disks[disk].refusals = vec![Refusal::SameIdentity(vec![twin.into()])];
        }
        let node = machine.folder.path().join("dev/sda");
        fs::write(&node, "as it was").unwrap();
        let complaint = machine.complaint(&rack(id), &["sda", "sdb"], None).unwrap();
        assert_eq!(complaint.lines().count(), 2, "{complaint}");
        assert!(complaint.contains("drive 0") && complaint.contains("it has the identity of sdb"), "{complaint}");
        assert_eq!(fs::read_to_string(node).unwrap(), "as it was");
        // Nor does an identity that two disks share name one of them.
        let complaint = machine.complaint(&rack(id), &["a"], None).unwrap();
        assert!(complaint.contains("a is the identity of sda and sdb; name one of them by its path"), "{complaint}");
    }

    #[test]
    fn no_word_of_the_operators_excuses_a_use() {
        let mut machine = Machine::new();
        let usage = Usage::Mounted { device: "sda".into(), at: "/home".into() };
        machine.disks[0].refusals = vec![Refusal::InUse(usage)];
        machine.disks[1].mode = None;
        machine.disks[2].size_bytes = 1_000_000_000;
        let complaint = machine.complaint(&rack(id), &["sda"], None).unwrap();
        for what in ["sda is mounted at /home", "it has no power mode", "write `capacity` for this drive"] {
            assert!(complaint.contains(what), "{complaint}");
        }
        let unused = Machine::new().complaint(&rack(id), &["sdx"], None).unwrap();
        assert!(unused.contains("--wipe sdx: there is no disk sdx"), "{unused}");
    }
}
