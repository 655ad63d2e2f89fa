//! Programs that touch disks, found by running processes and by units that start with the machine.

use super::configuration::{has_multipath_blacklist, has_udev_rule};
use super::finding::Finding;
use crate::discover::Tree;
use std::collections::BTreeMap;

/// The running processes, and the units that systemd starts.
pub struct Programs {
    /// Process numbers by the kernel's names of processes, which are cut to 15 bytes.
    running: BTreeMap<String, u32>,
    /// The links that enable units, by their names.
    enabled: BTreeMap<String, String>,
}

/// A program that touches disks.
struct Known {
    cause: &'static str,
    /// Names of its processes.
    processes: &'static [&'static str],
    /// Names of its units.
    units: &'static [&'static str],
    found: &'static str,
    mend: &'static str,
    /// True if it already ignores Larder's disks.
    kept_off: fn(&Tree) -> bool,
}

fn never(_: &Tree) -> bool {
    false
}

const READS_SMART: &str = "it reads SMART data or temperatures at intervals, which wakes many disks";

const KNOWN: &[Known] = &[
    Known {
        cause: "udisks2",
        processes: &["udisksd"],
        units: &["udisks2.service"],
        found: "it reads SMART data of all disks every ten minutes, and probes disks that change",
        mend: "install Larder's udev rule (packaging/udev/90-larder.rules), or stop it: \
               `systemctl mask --now udisks2.service`",
        kept_off: has_udev_rule,
    },
    Known {
        cause: "multipathd",
        processes: &["multipathd"],
        units: &["multipathd.service", "multipathd.socket"],
        found: "it checks every path every few seconds, with some checkers by reading",
        mend: "name the disks in the `blacklist` of /etc/multipath.conf (by wwid), or stop it: \
               `systemctl disable --now multipathd.service multipathd.socket`",
        kept_off: has_multipath_blacklist,
    },
    Known {
        cause: "hd-idle",
        processes: &["hd-idle"],
        units: &["hd-idle.service"],
        found: "it stops disks by a timer of its own, also while Larder uses them: each such stop costs a start",
        mend: "`systemctl disable --now hd-idle.service`, or exclude Larder's disks with `-a DISK -i 0`",
        kept_off: never,
    },
    Known {
        cause: "hddtemp",
        processes: &["hddtemp"],
        units: &["hddtemp.service"],
        found: READS_SMART,
        mend: "`systemctl disable --now hddtemp.service`",
        kept_off: never,
    },
    Known {
        cause: "SMART exporter",
        processes: &["smartctl_export", "scrutiny-collec", "prometheus-smar"],
        units: &[
            "smartctl_exporter.service",
            "prometheus-smartctl-exporter.service",
            "prometheus-node-exporter-smartmon.timer",
            "scrutiny-collector.timer",
        ],
        found: READS_SMART,
        mend: "let it call smartctl with `-n standby`, or leave Larder's disks out of it",
        kept_off: never,
    },
    Known {
        cause: "monitoring agent",
        processes: &["netdata", "collectd", "telegraf", "snmpd", "check_mk_agent", "zabbix_agentd", "zabbix_agent2"],
        units: &[],
        found: "such agents read SMART data or temperatures if a module for that is on",
        mend: "turn modules for smart, hddtemp and sensors of disks off, or let them call smartctl with `-n standby`",
        kept_off: never,
    },
    Known {
        cause: "automounter",
        processes: &["gvfs-udisks2-vo", "udiskie", "devmon"],
        units: &[],
        found: "it mounts disks that appear, and keeps them awake",
        mend: "install Larder's udev rule (packaging/udev/90-larder.rules), or end the desktop session",
        kept_off: has_udev_rule,
    },
    Known {
        cause: "laptop power management",
        processes: &[],
        units: &["tlp.service", "laptop-mode.service", "laptop-mode.timer"],
        found: "it sets timers by which disks stop, and levels of power management",
        mend: "leave Larder's disks out (DISK_DEVICES in /etc/tlp.conf, HD in /etc/laptop-mode), or disable it",
        kept_off: never,
    },
    Known {
        cause: "ZFS import",
        processes: &[],
        units: &["zfs-import-scan.service"],
        found: "at each boot it reads the labels of every disk, looking for pools",
        mend: "import by the cache file: `systemctl disable zfs-import-scan.service`, \
               `systemctl enable zfs-import-cache.service`",
        kept_off: never,
    },
];

impl Programs {
    /// Reads the running processes and the enabled units.
    pub fn read(tree: &Tree) -> Self {
        let numbers = tree.names("proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
        let running = numbers.filter_map(|pid| Some((tree.attribute(format!("proc/{pid}/comm"))?, pid))).collect();
        let mut enabled = BTreeMap::new();
        for folder in tree.names("etc/systemd/system") {
            if folder.rsplit_once('.').is_some_and(|(_, kind)| matches!(kind, "wants" | "requires")) {
                let units = tree.names(format!("etc/systemd/system/{folder}")).into_iter();
                enabled.extend(units.map(|unit| (unit.clone(), format!("/etc/systemd/system/{folder}/{unit}"))));
            }
        }
        Self { running, enabled }
    }

    /// The place of the first of these processes or units that exists, if any.
    pub fn place(&self, processes: &[&str], units: &[&str]) -> Option<String> {
        let process = |name: &&str| Some(format!("process {}, {name}", self.running.get(*name)?));
        let unit = |name: &&str| self.enabled.get(*name).cloned();
        processes.iter().find_map(process).or_else(|| units.iter().find_map(unit))
    }

    /// The known programs that exist here.
    pub fn findings(&self, tree: &Tree) -> Vec<Finding> {
        let there = |known: &Known| {
            let place = self.place(known.processes, known.units)?;
            Some(Finding::new(known.cause, place, known.found, known.mend))
        };
        KNOWN.iter().filter(|known| !(known.kept_off)(tree)).filter_map(there).collect()
    }
}
