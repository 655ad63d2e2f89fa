//! Real files: a directory of a file system.

use crate::medium::{Directory, File};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file whose lock excludes a second process.
const LOCK: &str = "intake.lock";
/// The files hold users' objects.
const OWNER_ONLY: u32 = 0o600;

/// A directory of a file system, locked against other processes as long as this exists.
#[derive(Debug)]
pub struct DirectoryOfFiles {
    path: PathBuf,
    handle: fs::File,
    _lock: fs::File,
}

impl DirectoryOfFiles {
    /// The directory at `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// The errors of the file system, and [`io::ErrorKind::WouldBlock`] if another process has the directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock = fs::File::options().create(true).append(true).mode(OWNER_ONLY).open(path.join(LOCK))?;
        lock.try_lock().map_err(io::Error::from)?;
        Ok(Self { path: path.to_owned(), handle: fs::File::open(path)?, _lock: lock })
    }
}

impl Directory for DirectoryOfFiles {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for found in fs::read_dir(&self.path)? {
            // A name that is not UTF-8 does not belong to the intake.
            if let Ok(name) = found?.file_name().into_string()
                && name != LOCK
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        let file =
            fs::File::options().read(true).write(true).create_new(true).mode(OWNER_ONLY).open(self.path.join(name))?;
        Ok(Box::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        Ok(Box::new(RealFile(fs::File::options().read(true).write(true).open(self.path.join(name))?)))
    }

    fn open_to_read(&self, name: &str) -> io::Result<Box<dyn File>> {
        Ok(Box::new(RealFile(fs::File::open(self.path.join(name))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

#[derive(Debug)]
struct RealFile(fs::File);

impl File for RealFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn drop_cached(&self) {
        if let Err(error) = rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed) {
            tracing::debug!(%error, "a file that is verified may be read from memory");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Bytes that this process has had read from block devices; `None` where the kernel does not say.
    fn read_from_devices() -> Option<u64> {
        let io = fs::read_to_string("/proc/self/io").ok()?;
        io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
    }

    #[test]
    fn what_was_dropped_is_read_from_the_drive() {
        // Of file systems in memory, and where the kernel does not count, nothing can be said.
        const BYTES: usize = 4 << 20;
        let on_disk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
        fs::create_dir_all(&on_disk).unwrap();
        let root = tempfile::tempdir_in(on_disk).unwrap();
        let file = DirectoryOfFiles::open(root.path()).unwrap().create("file").unwrap();
        file.write_at(&vec![7; BYTES], 0).unwrap();
        file.sync().unwrap();
        let mut read = vec![0; BYTES];
        file.drop_cached();
        let before = read_from_devices();
        file.read_at(&mut read, 0).unwrap();
        assert_eq!(read, vec![7; BYTES]);
        if let (Some(before), Some(after)) = (before, read_from_devices()) {
            assert!(after - before >= BYTES as u64, "{} of {BYTES} bytes came from the drive", after - before);
        }
    }
}
