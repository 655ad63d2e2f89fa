//! Finds the drives under the device that an operator names for `block.db`: none of them may be a drive that is to
//! sleep.

use crate::cluster::{Cluster, Osd, OsdId};
use disk::discover::Tree;
use std::collections::BTreeSet;
use std::path::Path;

/// Bytes of a unit of the kernel's `size`.
const SECTOR_BYTES: u64 = 512;

/// Maximum depth of devices below one another: partitions, logical volumes, encryption.
const DEPTH_MAX: usize = 16;

/// Reasons why a device cannot hold `block.db`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DbError {
    /// It does not exist.
    #[error("--db {0} is no block device of this host; name a partition, or a logical volume as VG/LV or its path")]
    NotADevice(String),
    /// It is on a drive that sleeps, or will.
    #[error("--db {db} lies on {disk}, the drive of {osd}, which is to sleep; reads of metadata would wake it")]
    Sleeps {
        /// The device that was named.
        db: String,
        /// The drive.
        disk: String,
        /// The OSD whose data is on it.
        osd: OsdId,
    },
}

/// A device for `block.db`.
#[derive(Debug, PartialEq, Eq)]
pub struct DbDevice {
    /// The drives that store it.
    pub disks: BTreeSet<String>,
    /// Its size, in bytes; 0 if the kernel does not report it.
    pub bytes: u64,
}

/// Checks the device `db` for `osd`, on its host. `is_cold` is true for the OSDs whose drives sleep or will.
pub fn check(
    tree: &Tree,
    db: &str,
    osd: &Osd,
    cluster: &Cluster,
    is_cold: impl Fn(OsdId) -> bool,
) -> Result<DbDevice, DbError> {
    let path = if db.starts_with('/') { db.to_owned() } else { format!("/dev/{db}") };
    let name = tree.target(&path).and_then(|target| kernel_name(&target));
    let block = |name: &str| format!("/sys/class/block/{name}");
    let Some(name) = name.filter(|name| tree.exists(block(name))) else {
        return Err(DbError::NotADevice(db.to_owned()));
    };
    let mut disks = BTreeSet::new();
    add_disks(tree, &name, DEPTH_MAX, &mut disks);
    let of_host = cluster.osds.values().filter(|other| other.hostname == osd.hostname);
    for other in of_host.filter(|other| other.id == osd.id || is_cold(other.id)) {
        if let Some(disk) = other.data_devices.iter().find(|disk| disks.contains(*disk)) {
            return Err(DbError::Sleeps { db: db.to_owned(), disk: disk.clone(), osd: other.id });
        }
    }
    let sectors = tree.number(format!("{}/size", block(&name))).unwrap_or(0);
    Ok(DbDevice { disks, bytes: sectors.saturating_mul(SECTOR_BYTES) })
}

/// The kernel's name of a device node. For a node in a directory below /dev it has a `!` instead of the slash.
fn kernel_name(node: &Path) -> Option<String> {
    Some(node.strip_prefix("/dev").ok()?.to_str()?.replace('/', "!")).filter(|name| !name.is_empty())
}

/// Adds the drives under the block device `name`.
fn add_disks(tree: &Tree, name: &str, depth: usize, disks: &mut BTreeSet<String>) {
    let block = format!("/sys/class/block/{name}");
    let below = tree.names(format!("{block}/slaves"));
    if depth > 0 && !below.is_empty() {
        return below.iter().for_each(|name| add_disks(tree, name, depth - 1, disks));
    }
    // A partition's directory is in that of its drive.
    let whole = || Some(tree.target(&block)?.parent()?.file_name()?.to_str()?.to_owned());
    let is_partition = tree.exists(format!("{block}/partition"));
    disks.insert(if is_partition { whole() } else { None }.unwrap_or_else(|| name.to_owned()));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::tests::converted;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A machine with drives sda and nvme0n1, each with a partition, and a logical volume on sda1.
    fn machine() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("dev/vg")).unwrap();
        fs::create_dir_all(at("sys/class/block")).unwrap();
        for (name, parent) in [("sda", ""), ("sda1", "sda/"), ("nvme0n1", ""), ("nvme0n1p3", "nvme0n1/"), ("dm-0", "")]
        {
            let device = format!("sys/devices/{parent}{name}");
            fs::create_dir_all(at(&device)).unwrap();
            fs::write(at(&format!("{device}/size")), "2097152\n").unwrap();
            if !parent.is_empty() {
                fs::write(at(&format!("{device}/partition")), "1\n").unwrap();
            }
            symlink(format!("../../devices/{parent}{name}"), at(&format!("sys/class/block/{name}"))).unwrap();
            fs::write(at(&format!("dev/{name}")), "").unwrap();
        }
        fs::create_dir_all(at("sys/devices/dm-0/slaves/sda1")).unwrap();
        symlink("../dm-0", at("dev/vg/db")).unwrap();
        let tree = Tree::below(folder.path());
        (folder, tree)
    }

    fn checked(db: &str) -> Result<DbDevice, DbError> {
        let mut cluster = converted();
        for (osd, device) in [(3, "sda"), (4, "sdb")] {
            let osd = cluster.osds.get_mut(&OsdId(osd)).unwrap();
            (osd.hostname, osd.data_devices) = ("host".to_owned(), vec![device.to_owned()]);
        }
        let (_folder, tree) = machine();
        check(&tree, db, &cluster.osds[&OsdId(4)], &cluster, |osd| osd == OsdId(3))
    }

    #[test]
    fn a_device_of_a_drive_that_sleeps_is_refused() {
        let ok = DbDevice { disks: BTreeSet::from(["nvme0n1".to_owned()]), bytes: 1 << 30 };
        assert_eq!(checked("/dev/nvme0n1p3"), Ok(ok));
        for db in ["/dev/sda", "/dev/sda1", "/dev/vg/db", "vg/db"] {
            let sleeps = DbError::Sleeps { db: db.to_owned(), disk: "sda".to_owned(), osd: OsdId(3) };
            assert_eq!(checked(db), Err(sleeps));
        }
        assert_eq!(checked("268435456"), Err(DbError::NotADevice("268435456".to_owned())));
    }
}
