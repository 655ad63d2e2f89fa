//! Disks that the kernel itself stops, starts or queries at intervals.

use super::finding::Finding;
use crate::discover::Tree;

/// The findings in the attributes of disks.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for disk in tree.names("sys/block") {
        findings.extend(runtime_power_management(tree, &disk));
        findings.extend(polling(tree, &disk));
    }
    findings
}

/// Runtime power management that stops disks after a delay, and starts them on any access.
fn runtime_power_management(tree: &Tree, disk: &str) -> Option<Finding> {
    let class = format!("sys/block/{disk}/device/scsi_disk");
    let address = tree.names(&class).into_iter().next()?;
    let names = ["manage_runtime_start_stop", "manage_start_stop"];
    let managed = names.into_iter().find_map(|name| tree.flag(format!("{class}/{address}/{name}")));
    let control = format!("sys/block/{disk}/device/power/control");
    let automatic = tree.attribute(&control).as_deref() == Some("auto");
    (managed == Some(true) && automatic).then(|| {
        let found = "the kernel stops the disk by a timer of its own and starts it upon any access, SMART included";
        Finding::new(
            "kernel",
            format!("/{control}"),
            found,
            format!("`echo on > /{control}`, in a udev rule to keep it"),
        )
    })
}

/// Queries about the medium at intervals.
fn polling(tree: &Tree, disk: &str) -> Option<Finding> {
    let file = format!("sys/block/{disk}/events_poll_msecs");
    let own: i64 = tree.attribute(&file)?.parse().ok()?;
    let default = tree.number("sys/module/block/parameters/events_dfl_poll_msecs").unwrap_or(0);
    let events = tree.attribute(format!("sys/block/{disk}/events")).is_some();
    let rotational = tree.flag(format!("sys/block/{disk}/queue/rotational")) == Some(true);
    // Optical drives are also queried, and hold no data of Larder.
    let is_disk = tree.number(format!("sys/block/{disk}/device/type")).is_none_or(|kind| kind == 0);
    (events && is_disk && rotational && (own > 0 || own < 0 && default > 0)).then(|| {
        let found = "the kernel polls the disk for its medium at intervals, and some bridges wake the disk for that";
        Finding::new("kernel", format!("/{file}"), found, format!("`echo 0 > /{file}`, in a udev rule to keep it"))
    })
}
