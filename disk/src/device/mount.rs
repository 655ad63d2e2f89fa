//! Mounts and unmounts, with the kernel's system calls.

use crate::drive::DriveError;
use crate::private;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CStr;
use std::path::Path;
use std::time::Duration;

/// Number of tries for an unmount whose file system is still used by calls that end at any moment, and the pause
/// between two tries.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Mounts the file system of kind `system` on the device `node` at `point`, which is created if necessary. Programs on
/// it are not executed, devices on it do not work, and reads change nothing.
pub(super) fn mount(node: &Path, point: &Path, system: &str) -> Result<(), DriveError> {
    mount_with(node, (point, system), MountFlags::empty(), None)
}

/// As [`mount`], but nothing at all is written to the device, not even the content of its journal. (XFS writes even if
/// it is mounted read-only: it clears the part of its log that it will use next.)
pub(super) fn mount_untouched(node: &Path, point: &Path, system: &str) -> Result<(), DriveError> {
    mount_with(node, (point, system), MountFlags::RDONLY, Some(c"norecovery"))
}

fn mount_with(
    node: &Path,
    (point, system): (&Path, &str),
    more: MountFlags,
    options: Option<&CStr>,
) -> Result<(), DriveError> {
    let made = private::make_directory(point);
    made.map_err(|source| DriveError::Io { context: format!("making {}", point.display()), source })?;
    let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | more;
    let failed = |errno: Errno| DriveError::of_system(format!("mounting {}", node.display()), errno.into());
    rustix::mount::mount(node, point, system, flags, options).map_err(failed)
}

/// True if something is mounted at `point`. Accesses no file system.
pub(super) fn is_mounted(point: &Path) -> bool {
    let listed = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    is_listed(&listed, point)
}

/// True if `point` is a mount point in this text of mountinfo.
fn is_listed(mountinfo: &str, point: &Path) -> bool {
    let escape = |c: char| match c {
        ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", c as u32),
        other => other.to_string(),
    };
    let point: String = point.to_string_lossy().chars().map(escape).collect();
    mountinfo.lines().any(|line| line.split(' ').nth(4) == Some(&point))
}

/// Unmounts the file system at `point`, if any; afterwards all written data is on the medium.
pub(super) fn unmount(point: &Path) -> Result<(), DriveError> {
    for tries_left in (0..TRIES).rev() {
        match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) if tries_left > 0 => std::thread::sleep(PAUSE),
            Err(errno) => {
                return Err(DriveError::of_system(format!("unmounting {}", point.display()), errno.into()));
            }
        }
    }
    unreachable!("the last try returns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_found_whatever_their_names() {
        let listed =
            "36 35 98:0 / /data/mounts/0000 rw - xfs /dev/sda rw\n37 35 98:0 / /my\\040data/m\\134 rw - xfs x rw\n";
        assert!(is_listed(listed, Path::new("/data/mounts/0000")) && is_listed(listed, Path::new("/my data/m\\")));
        assert!(!is_listed(listed, Path::new("/data/mounts")) && !is_listed("", Path::new("/")));
        assert!(is_mounted(Path::new("/proc")) && !is_mounted(Path::new("/proc/self")));
    }
}
