//! One process at a time in a data directory.
//!
//! The lock is the operating system's, on an open file: it ends when its process ends, for any reason. The process id
//! in the file is only for the message.

use super::error::{DataDirError, failed, refused};
use disk::private::FILE_MODE;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The locked file.
pub(super) const LOCK: &str = "lock";

/// Locks the data directory `path` until the file is dropped.
pub(super) fn take(path: &Path) -> Result<File, DataDirError> {
    let name = path.join(LOCK);
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(&name);
    let mut file = open.map_err(|e| failed(&format!("opening {}", name.display()), e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let other = format!("is in use by process {}", holder(&name));
            return Err(refused(path, format!("{other}; stop that server first, or choose another directory")));
        }
        Err(TryLockError::Error(e)) => return Err(failed(&format!("locking {}", name.display()), e)),
    }
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(|e| failed(&format!("writing {}", name.display()), e))?;
    Ok(file)
}

fn holder(name: &Path) -> String {
    let text = fs::read_to_string(name).unwrap_or_default();
    match text.trim() {
        "" => "of unknown number".to_owned(),
        pid => pid.to_owned(),
    }
}
