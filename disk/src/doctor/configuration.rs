//! Configuration files by which programs wake, stop or mount disks.

use super::finding::Finding;
use crate::discover::Tree;
use crate::label;

const UDEV_FOLDERS: [&str; 4] = ["etc/udev/rules.d", "run/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d"];
const CRON_FOLDERS: [&str; 5] =
    ["etc/cron.d", "etc/cron.hourly", "etc/cron.daily", "etc/cron.weekly", "etc/cron.monthly"];

/// The findings in the files of `tree`.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(udev(tree));
    findings.extend(hdparm(tree));
    findings.extend(mounts(tree));
    findings.extend(mdadm(tree));
    findings.extend(lvm(tree));
    findings.extend(cron(tree));
    findings
}

/// The lines of a file without comments, with their numbers.
fn lines(tree: &Tree, path: &str) -> Vec<(usize, String)> {
    let text = tree.text(path).unwrap_or_default();
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default().trim()));
    lines.filter(|(_, line)| !line.is_empty()).map(|(number, line)| (number, line.to_owned())).collect()
}

/// True if a udev rule of Larder is installed.
pub fn has_udev_rule(tree: &Tree) -> bool {
    let names = UDEV_FOLDERS.into_iter().flat_map(|folder| tree.names(folder));
    names.into_iter().any(|name| name.ends_with("-larder.rules"))
}

/// True if multipathd ignores some disks.
pub fn has_multipath_blacklist(tree: &Tree) -> bool {
    lines(tree, "etc/multipath.conf").iter().any(|(_, line)| line.starts_with("blacklist") && line.ends_with('{'))
}

fn udev(tree: &Tree) -> Option<Finding> {
    (!has_udev_rule(tree)).then(|| {
        Finding::new(
            "udev",
            "/etc/udev/rules.d",
            "Larder's rule is not installed: udev reads a disk again whenever a program that had it open for writing \
             closes it, and hands it to udisks",
            "copy packaging/udev/90-larder.rules to /etc/udev/rules.d, and run `udevadm control --reload`",
        )
    })
}

/// Timers of the disks themselves, set at boot.
fn hdparm(tree: &Tree) -> Vec<Finding> {
    let found = |file: &str, number: usize, what: &str| {
        let mend = "leave Larder's disks out of it; `hdparm -S 0 DISK` turns off a timer that is set";
        let place = format!("/{file}, line {number}");
        Finding::new(
            "hdparm",
            place,
            format!("{what}, which makes disks stop by themselves: each stop costs a start"),
            mend,
        )
    };
    let file = "etc/hdparm.conf";
    let conf = lines(tree, file).into_iter().filter_map(|(number, line)| {
        let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || c == '=').filter(|w| !w.is_empty()).collect();
        let timer = matches!(words[..], ["spindown_time", timer] if timer != "0");
        // Between `command_line {` and `}` are calls of hdparm.
        let command = words.contains(&"hdparm") && words.iter().any(|word| word.starts_with("-S"));
        (timer || command).then(|| found(file, number, "it sets a timer"))
    });
    let mut findings: Vec<Finding> = conf.collect();
    for name in tree.names("etc/udev/rules.d") {
        let file = format!("etc/udev/rules.d/{name}");
        let rules = lines(tree, &file).into_iter();
        let rules = rules.filter(|(_, line)| line.contains("hdparm") && (line.contains("-S") || line.contains("-B")));
        findings.extend(rules.map(|(number, _)| found(&file, number, "the rule sets a timer or a power level")));
    }
    findings
}

/// True if the source of a mount is a file system of Larder.
fn names_larders_volume(source: &str) -> bool {
    let source = source.trim_matches('"');
    let name = source.strip_prefix("LABEL=").or_else(|| source.strip_prefix("/dev/disk/by-label/"));
    name.is_some_and(|name| label::is_volume_name(name.trim_matches('"')))
}

/// File systems of Larder that something else mounts.
fn mounts(tree: &Tree) -> Vec<Finding> {
    let found = |place: String| {
        let found = "it mounts a drive of Larder, which keeps the drive awake and hinders the server";
        Finding::new(
            "mount",
            place,
            found,
            "remove it: the server mounts its drives itself, and unmounts them before a stop",
        )
    };
    let fstab = lines(tree, "etc/fstab").into_iter();
    let fstab = fstab.filter(|(_, line)| line.split_whitespace().next().is_some_and(names_larders_volume));
    let mut findings: Vec<Finding> = fstab.map(|(number, _)| found(format!("/etc/fstab, line {number}"))).collect();
    let units = tree.names("etc/systemd/system").into_iter();
    for unit in
        units.filter(|name| name.rsplit_once('.').is_some_and(|(_, kind)| matches!(kind, "mount" | "automount")))
    {
        let path = format!("etc/systemd/system/{unit}");
        let source = |(_, line): &(usize, String)| line.strip_prefix("What=").is_some_and(names_larders_volume);
        findings.extend(lines(tree, &path).iter().any(source).then(|| found(format!("/{path}"))));
    }
    findings
}

/// mdadm looks for members on every disk, unless it is limited.
fn mdadm(tree: &Tree) -> Option<Finding> {
    let file = ["etc/mdadm/mdadm.conf", "etc/mdadm.conf"].into_iter().find(|file| tree.exists(file))?;
    let limited = lines(tree, file).iter().any(|(_, line)| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| word.eq_ignore_ascii_case("device")) && !words.any(|word| word == "partitions")
    });
    (!limited).then(|| {
        let found =
            "each scan (at boot, by `mdadm --scan`, by checks from cron) reads every disk for members of arrays";
        Finding::new(
            "mdadm",
            format!("/{file}"),
            found,
            "limit it to the members of arrays: `DEVICE /dev/disk/by-id/...`",
        )
    })
}

/// LVM looks for volume groups on every disk, unless it has a filter or a file of devices.
fn lvm(tree: &Tree) -> Option<Finding> {
    let conf = "etc/lvm/lvm.conf";
    let limited = tree.exists("etc/lvm/devices/system.devices")
        || lines(tree, conf).iter().any(|(_, line)| line.starts_with("global_filter") || line.starts_with("filter"));
    (tree.exists(conf) && !limited).then(|| {
        let found = "each of its commands (pvs, vgs, backups that call them) reads every disk for volume groups";
        let mend = "set `global_filter` so that it accepts the disks of volume groups alone, or use `lvmdevices`";
        Finding::new("LVM", format!("/{conf}"), found, mend)
    })
}

/// Jobs that access disks.
fn cron(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in CRON_FOLDERS {
        for name in tree.names(folder) {
            let path = format!("{folder}/{name}");
            let talks = |line: &str| ["smartctl", "hddtemp", "hdparm"].into_iter().find(|tool| line.contains(tool));
            let first = lines(tree, &path).into_iter().find_map(|(number, line)| {
                talks(&line).filter(|_| !line.contains("-n standby")).map(|tool| (number, tool))
            });
            findings.extend(first.map(|(number, tool)| {
                let found = format!("it runs {tool}, which wakes many disks");
                let mend = "leave Larder's disks out, or call smartctl with `-n standby`";
                Finding::new("cron", format!("/{path}, line {number}"), found, mend)
            }));
        }
    }
    findings
}
