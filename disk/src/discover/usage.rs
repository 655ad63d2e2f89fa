//! The present uses of a disk: mounted file systems, swap space, and devices that the kernel has built on it.

use super::tree::{Tree, device_path};
use std::path::Path;

/// All mounts and swap devices of the machine.
#[derive(Debug, Default)]
pub struct Mounts {
    /// Device numbers (`8:1`), source, and place.
    mounted: Vec<(String, String, String)>,
    /// Devices used as swap space.
    swaps: Vec<String>,
}

/// One use of a disk or of a partition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A file system is mounted.
    Mounted {
        /// The kernel's name of the disk or its partition.
        device: String,
        /// The first place where it is mounted.
        at: String,
    },
    /// It is used as swap space.
    Swap {
        /// The disk or its partition.
        device: String,
    },
    /// Another block device is built on it: an array, a volume group, a mapping.
    Holder {
        /// The disk or its partition.
        device: String,
        /// The other device: the kernel's name, followed by the device's own name if it has one.
        holder: String,
    },
}

impl Mounts {
    /// The mounts of this process and of the first one, since a container or a service may lack the latter's.
    pub fn read(tree: &Tree) -> Self {
        let texts = ["proc/self/mountinfo", "proc/1/mountinfo"].into_iter().filter_map(|path| tree.text(path));
        let mounted = texts.flat_map(|text| text.lines().filter_map(mount).collect::<Vec<_>>()).collect();
        let swaps = tree.text("proc/swaps").unwrap_or_default();
        let swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next().map(unescaped)).collect();
        Self { mounted, swaps }
    }

    /// The uses of the block device `name`, whose directory below /sys is `block`.
    pub fn of(&self, tree: &Tree, block: &Path, name: &str) -> Vec<Usage> {
        let device = || name.to_owned();
        let path = device_path(name);
        let numbers = tree.attribute(block.join("dev"));
        // File systems on several devices have separate numbers, and name one of the devices as their source.
        let mounted = self.mounted.iter().find(|(number, source, _)| {
            numbers.as_ref() == Some(number) || tree.target(source).is_some_and(|source| source == path)
        });
        let swapped = self.swaps.iter().any(|swap| tree.target(swap).is_some_and(|swap| swap == path));
        let mut uses = Vec::new();
        uses.extend(mounted.map(|(_, _, at)| Usage::Mounted { device: device(), at: at.clone() }));
        uses.extend(swapped.then(|| Usage::Swap { device: device() }));
        uses.extend(tree.names(block.join("holders")).into_iter().map(|holder| {
            let own_name = tree.attribute(format!("sys/block/{holder}/dm/name"));
            let holder = own_name.map_or_else(|| holder.clone(), |own| format!("{holder} ({own})"));
            Usage::Holder { device: device(), holder }
        }));
        uses
    }
}

/// Numbers, source and place of a line of mountinfo: `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`.
fn mount(line: &str) -> Option<(String, String, String)> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(2);
    let (numbers, _, at) = (place.next()?, place.next()?, place.next()?);
    let source = kind.split(' ').nth(1)?;
    Some((numbers.to_owned(), unescaped(source), unescaped(at)))
}

/// A path in the kernel's notation for tables, with spaces and backslashes as three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others.get(..3).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        if let (b'\\', Some(byte)) = (*first, digits) {
            bytes.push(byte);
            rest = &others[3..];
        } else {
            bytes.push(*first);
            rest = others;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(mount(line), Some(("98:0".into(), "/dev/root".into(), "/mnt 2".into())));
        let line = "36 35 0:31 / /data rw - btrfs /dev/sdb rw";
        assert_eq!(mount(line), Some(("0:31".into(), "/dev/sdb".into(), "/data".into())));
        for wrong in ["", "36 35", "36 35 98:0 / /x rw", "36 - x", "1 2 3 - "] {
            assert_eq!(mount(wrong), None, "{wrong}");
        }
        assert_eq!(unescaped("a\\134b\\9\\0\\"), "a\\b\\9\\0\\");
    }
}
