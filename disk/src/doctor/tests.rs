//! Examinations of made-up machines.
#![allow(clippy::unwrap_used)]

use super::examine;
use crate::discover::Tree;
use std::fs;

/// Causes and places on a machine with these files, which has Larder's udev rule.
fn found(files: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let folder = tempfile::tempdir().unwrap();
    let rule = [("etc/udev/rules.d/90-larder.rules", "")];
    for (path, text) in files.iter().chain(&rule) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let findings = examine(&Tree::below(folder.path()));
    assert!(findings.iter().all(|finding| !finding.found.is_empty() && !finding.mend.is_empty()));
    findings.into_iter().map(|finding| (finding.cause, finding.place)).collect()
}

fn one(cause: &'static str, place: &str) -> Vec<(&'static str, String)> {
    vec![(cause, place.to_owned())]
}

#[test]
fn a_quiet_machine_has_no_findings_but_the_missing_rule() {
    assert_eq!(found(&[("proc/1/comm", "systemd\n"), ("etc/fstab", "UUID=1 / ext4 defaults 0 1\n")]), []);
    let empty = tempfile::tempdir().unwrap();
    let causes: Vec<&str> = examine(&Tree::below(empty.path())).iter().map(|finding| finding.cause).collect();
    assert_eq!(causes, ["udev"]);
}

#[test]
fn programs_are_found_by_process_and_by_unit() {
    assert_eq!(found(&[("proc/812/comm", "hd-idle\n")]), one("hd-idle", "process 812, hd-idle"));
    let wants = "etc/systemd/system/multi-user.target.wants";
    let unit = format!("{wants}/multipathd.service");
    assert_eq!(found(&[(&unit, "")]), one("multipathd", &format!("/{unit}")));
    let blacklist = ("etc/multipath.conf", "blacklist {\n  wwid 35000c500a1b2c3d4\n}\n");
    assert_eq!(found(&[(&unit, ""), blacklist]), []);
    let unit = "etc/systemd/system/zfs-import.target.wants/zfs-import-scan.service";
    assert_eq!(found(&[(unit, "")]), one("ZFS import", &format!("/{unit}")));
    assert_eq!(found(&[("proc/9/comm", "udisksd\n")]), [], "the rule keeps it off");
}

#[test]
fn smartd_is_judged_by_its_lines() {
    let runs = ("proc/7/comm", "smartd\n");
    assert_eq!(found(&[runs]), one("smartd", "process 7, smartd"));
    assert_eq!(found(&[runs, ("etc/smartd.conf", "DEVICESCAN -n standby,q\n")]), []);
    let waking = ("etc/smartd.conf", "# sleep\n/dev/sda -a\n");
    assert_eq!(found(&[runs, waking]), one("smartd", "/etc/smartd.conf, line 2"));
    assert_eq!(found(&[waking]), [], "it does not run");
}

#[test]
fn timers_of_disks_are_found() {
    let conf = "quiet\n/dev/sda {\n  spindown_time = 24\n}\n/dev/sdb {\n spindown_time = 0\n}\n";
    assert_eq!(found(&[("etc/hdparm.conf", conf)]), one("hdparm", "/etc/hdparm.conf, line 3"));
    let conf = "command_line {\n hdparm -S 60 /dev/sda\n}\n#spindown_time = 2\n";
    assert_eq!(found(&[("etc/hdparm.conf", conf)]), one("hdparm", "/etc/hdparm.conf, line 2"));
    let rule = ("etc/udev/rules.d/69-hdparm.rules", "KERNEL==\"sd*\", RUN+=\"/usr/bin/hdparm -B 127 /dev/%k\"\n");
    assert_eq!(found(&[rule]), one("hdparm", "/etc/udev/rules.d/69-hdparm.rules, line 1"));
}

#[test]
fn mounts_of_larders_volumes_are_found_and_others_are_not() {
    let fstab = "LABEL=backup /b ext4 defaults 0 2\nLABEL=larderabcdef /mnt/x xfs noauto 0 0\n";
    assert_eq!(found(&[("etc/fstab", fstab)]), one("mount", "/etc/fstab, line 2"));
    let unit = ("etc/systemd/system/mnt-x.mount", "[Mount]\nWhat=/dev/disk/by-label/larderabcdef\nWhere=/mnt/x\n");
    assert_eq!(found(&[unit]), one("mount", "/etc/systemd/system/mnt-x.mount"));
}

#[test]
fn scans_of_every_disk_are_found_unless_they_are_limited() {
    let wide = ("etc/mdadm/mdadm.conf", "#DEVICE partitions\nHOMEHOST <system>\n");
    assert_eq!(found(&[wide]), one("mdadm", "/etc/mdadm/mdadm.conf"));
    assert_eq!(found(&[("etc/mdadm.conf", "DEVICE partitions\n")]), one("mdadm", "/etc/mdadm.conf"));
    assert_eq!(found(&[("etc/mdadm.conf", "DEVICE /dev/disk/by-id/ata-A /dev/disk/by-id/ata-B\n")]), []);
    assert_eq!(
        found(&[("etc/lvm/lvm.conf", "devices {\n # global_filter = []\n}\n")]),
        one("LVM", "/etc/lvm/lvm.conf")
    );
    assert_eq!(found(&[("etc/lvm/lvm.conf", "devices {\n global_filter = [ \"r|.*|\" ]\n}\n")]), []);
    assert_eq!(found(&[("etc/lvm/lvm.conf", ""), ("etc/lvm/devices/system.devices", "")]), []);
}

#[test]
fn jobs_that_talk_to_disks_are_found() {
    let job = ("etc/cron.d/temperatures", "# every ten minutes\n*/10 * * * * root smartctl -A /dev/sda\n");
    assert_eq!(found(&[job]), one("cron", "/etc/cron.d/temperatures, line 2"));
    assert_eq!(found(&[("etc/cron.d/t", "*/10 * * * * root smartctl -n standby -A /dev/sda\n")]), []);
}

#[test]
fn disks_that_the_kernel_itself_touches_are_found() {
    let managed = [
        ("sys/block/sda/device/scsi_disk/0:0:0:0/manage_runtime_start_stop", "1\n"),
        ("sys/block/sda/device/power/control", "auto\n"),
    ];
    assert_eq!(found(&managed), one("kernel", "/sys/block/sda/device/power/control"));
    assert_eq!(found(&[managed[0], ("sys/block/sda/device/power/control", "on\n")]), []);
    let polled = [
        ("sys/block/sda/queue/rotational", "1\n"),
        ("sys/block/sda/events", "media_change\n"),
        ("sys/block/sda/events_poll_msecs", "-1\n"),
        ("sys/module/block/parameters/events_dfl_poll_msecs", "2000\n"),
    ];
    assert_eq!(found(&polled), one("kernel", "/sys/block/sda/events_poll_msecs"));
    assert_eq!(found(&polled[..3]), []);
}
