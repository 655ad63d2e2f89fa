//! The storage below: a directory of files for each drive of the pool, behind two small traits.
//!
//! Nothing above asks more of a drive than this, so that real files ([`files`]) and files in memory that can crash at
//! any write ([`memory`]) are the same to it. What is assumed of both: a sync that succeeded lasts, of writes that were
//! not synced any part may last, and a name lasts once its directory was synced.

pub mod files;
pub mod memory;
pub mod overlay;

use std::fmt::Debug;
use std::io;

/// The files of one drive.
pub trait Directory: Debug + Send + Sync + 'static {
    /// Where it is, for people; empty if that has no name.
    fn place(&self) -> String {
        String::new()
    }

    /// The names of all files.
    ///
    /// # Errors
    /// Those of the drive.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A new, empty file.
    ///
    /// # Errors
    /// Those of the drive, and [`io::ErrorKind::AlreadyExists`].
    fn create(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// An existing file.
    ///
    /// # Errors
    /// Those of the drive, and [`io::ErrorKind::NotFound`].
    fn open(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// The same, which is only read.
    ///
    /// # Errors
    /// Those of [`Directory::open`].
    fn open_to_read(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.open(name)
    }

    /// Gives a file another name; a file of that name is replaced.
    ///
    /// # Errors
    /// Those of the drive.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Those who have it open read on.
    ///
    /// # Errors
    /// Those of the drive.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// Those of the drive.
    fn sync(&self) -> io::Result<()>;

    /// Whether anybody controls its power: one of whose nobody does never sleeps.
    fn can_sleep(&self) -> bool {
        false
    }

    /// Starts the drive, and returns once it can be used. May be asked of a drive that is awake.
    ///
    /// # Errors
    /// Those of the drive: it is taken out of the rotation.
    fn wake(&self) -> io::Result<()> {
        Ok(())
    }

    /// Stops the drive.
    ///
    /// # Errors
    /// Those of the drive; they are logged.
    fn sleep(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An open file.
pub trait File: Debug + Send + Sync + 'static {
    /// Its length in bytes.
    ///
    /// # Errors
    /// Those of the drive.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// Those of the drive, and [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` from `offset` on.
    ///
    /// # Errors
    /// Those of the drive; any part may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file to `bytes`.
    ///
    /// # Errors
    /// Those of the drive.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// Those of the drive. Then nothing is known of what was written, and a second sync proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// What was synced is read from the drive from here on, and not from memory. A medium that cannot do so reads as
    /// before: a verification then proves less.
    fn drop_cached(&self) {}
}

/// Whether the drive has no room, as opposed to being broken.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
