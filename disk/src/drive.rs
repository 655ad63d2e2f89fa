//! The interface of a drive.
//!
//! Files are named, preallocated, written by offset and never changed once they are complete (except by repairs, which
//! replace bytes in place or a whole file by another). All calls are futures, because an emulated drive completes at
//! the modelled moment; none of them blocks the caller's thread.
//!
//! Buffers are passed by value and returned, so a transfer's memory is bounded by the buffers it owns.

use crate::Buffer;
use crate::label::LabelError;
use crate::owner::OwnerError;
use crate::power::PowerError;
use async_trait::async_trait;
use futures::future::BoxFuture;
use model::Smart;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The future answer of a drive.
pub type DriveFuture<'a, T> = BoxFuture<'a, Result<T, DriveError>>;

/// The name of a file on a drive: 1 to 64 of `a-z`, `0-9`, `-`, `.`, not starting with `.`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

impl FileName {
    /// `name` as a file name, if it is a valid one.
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        let fits = (1..=64).contains(&name.len())
            && !name.starts_with('.')
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.');
        fits.then_some(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The capacity of a drive, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// In all.
    pub capacity_bytes: u64,
    /// The free part of it.
    pub free_bytes: u64,
}

/// A drive: files, and its power commands. Nothing is done before the future is polled.
#[async_trait]
pub trait Drive: Send + Sync + 'static {
    /// Creates a file of `bytes` zero bytes, preallocated. Fails with [`DriveError::Exists`] if a file of that name
    /// exists, and with [`DriveError::Full`] if it does not fit; then no file is created.
    async fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError>;
    /// As [`Drive::create`], but room on the medium may be allocated when the file is written instead of at once, and
    /// may then turn out to be missing ([`DriveError::Full`]).
    async fn create_sparse(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        self.create(name, bytes).await
    }
    /// Writes all of `data` at `offset`. Returns the buffer. Writing past the preallocated end is
    /// [`DriveError::Short`].
    async fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError>;
    /// Fills all of `into` from `offset`. Reading past the file's end is [`DriveError::Short`].
    async fn read_at(&self, name: &FileName, offset: u64, into: Buffer) -> Result<Buffer, DriveError>;
    /// The file's length in bytes, and its last `bytes` bytes (all, if it is shorter): the first read of a file that
    /// describes itself at its end. One request if the drive can.
    async fn read_end(&self, name: &FileName, bytes: u64) -> Result<(u64, Buffer), DriveError> {
        let file_bytes = self.len(name).await?;
        let end_bytes = file_bytes.min(bytes);
        let end = self.read_at(name, file_bytes - end_bytes, Buffer::zeroed(end_bytes as usize)).await?;
        Ok((file_bytes, end))
    }
    /// Takes the time of reading `bytes` bytes from `offset`, and delivers none of them.
    async fn pass(&self, name: &FileName, offset: u64, bytes: u64) -> Result<(), DriveError> {
        self.read_at(name, offset, Buffer::zeroed(bytes as usize)).await.map(drop)
    }
    /// Returns when the file's bytes and its name survive a power cut.
    async fn sync(&self, name: &FileName) -> Result<(), DriveError>;
    /// Removes the file; returns when its name is permanently gone. [`DriveError::NotFound`] if it does not exist.
    async fn remove(&self, name: &FileName) -> Result<(), DriveError>;
    /// Renames the file `from`, which is synced, to `to`, in place of any file of that name; returns when that survives
    /// a power cut. If a file `to` existed, a whole file `to` exists at every moment. [`DriveError::NotFound`] if
    /// `from` does not exist.
    async fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError>;

    /// Removes many files, each as [`Drive::remove`] does, and returns when all their names are permanently gone: with
    /// one sync for all of them if the drive can. Returns the former length in bytes of each, in the order of `names`.
    /// A crash before the return may leave any of them.
    async fn remove_many(&self, names: Vec<FileName>) -> Vec<Result<u64, DriveError>> {
        let mut removed = Vec::with_capacity(names.len());
        for name in &names {
            removed.push(match self.len(name).await {
                Ok(bytes) => self.remove(name).await.map(|()| bytes),
                Err(error) => Err(error),
            });
        }
        removed
    }
    /// The file's length in bytes.
    async fn len(&self, name: &FileName) -> Result<u64, DriveError>;
    /// All files, in the order of their names.
    async fn list(&self) -> Result<Vec<FileName>, DriveError>;
    /// Passes to `each` the name of every file, in no order. If the drive can, it does not hold all names of a large
    /// directory at once. Files that come or go meanwhile may be among them or not.
    async fn each_name(&self, each: &mut (dyn for<'n> FnMut(&'n FileName) + Send)) -> Result<(), DriveError> {
        for name in &self.list().await? {
            each(name);
        }
        Ok(())
    }
    /// Its capacity, and the free part of it.
    async fn space(&self) -> Result<Space, DriveError>;

    /// Starts the platters; returns when they are at speed.
    async fn spin_up(&self) -> Result<(), DriveError>;
    /// Mounts the file system and checks the label; returns the free space.
    async fn mount(&self) -> Result<Space, DriveError>;
    /// Unmounts the file system. Files cannot be reached until it is mounted again.
    async fn unmount(&self) -> Result<(), DriveError>;
    /// Stops the platters (STANDBY IMMEDIATE).
    async fn stop(&self) -> Result<(), DriveError>;
    /// Its health report. Only from a drive whose platters turn: none is started for it. `None` if it reports nothing.
    async fn health(&self) -> Result<Option<Smart>, DriveError> {
        Ok(None)
    }
}

/// The reason why a drive failed a call.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// No file has that name.
    #[error("no file {0}")]
    NotFound(FileName),
    /// A file of that name exists already.
    #[error("there is a file {0} already")]
    Exists(FileName),
    /// The file ends before the requested range does.
    #[error("file {0} is shorter than the requested range")]
    Short(FileName),
    /// The drive has no room for it.
    #[error("no room on the drive")]
    Full,
    /// The drive is in standby, unmounted or away: it cannot do the call.
    #[error("the drive is {0}")]
    NotReady(&'static str),
    /// The fuse of one of the drive's domains tripped.
    #[error("the fuse of {domain} tripped: the drive is gone until it resets")]
    FuseTripped {
        /// Resource and domain, for people.
        domain: String,
    },
    /// The label is missing, damaged, or another drive's.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// Another server owns the drive.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The process, or the whole system, cannot open more files. This is not the drive's fault.
    #[error(
        "no more files can be opened; raise the limit with `ulimit -n`, or LimitNOFILE in the service's unit, and \
         start the server again"
    )]
    TooManyOpenFiles,
    /// The drive did not answer in time, or has not yet answered an earlier call.
    #[error("the drive has not answered for {0:?}")]
    NoAnswer(Duration),
    /// The disk is gone.
    #[error("there is no disk {}: it was pulled, or has no power", .0.display())]
    Gone(PathBuf),
    /// The disk cannot read or write a place of its medium.
    #[error("{context}: {error}")]
    Medium {
        /// The action that failed, with the path.
        context: String,
        /// The system's error.
        error: String,
    },
    /// The file system takes no more writes: it found itself damaged, or the disk is write-protected.
    #[error("{context}: the file system is read-only")]
    ReadOnly {
        /// The action that failed, with the path.
        context: String,
    },
    /// A command of its power control failed.
    #[error(transparent)]
    Power(PowerError),
    /// An error of the operating system.
    #[error("{context}: {source}")]
    Io {
        /// The action that failed, with the path.
        context: String,
        /// The system's error.
        source: io::Error,
    },
}

impl DriveError {
    /// An error of the operating system, classified by its number.
    pub fn of_system(context: String, source: io::Error) -> Self {
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            // A disk's errors for a bad place; the block layer reports ENODATA for a medium error.
            Some(Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO) => {
                Self::Medium { context, error: source.to_string() }
            }
            Some(Errno::NODEV | Errno::NXIO) => Self::Gone(PathBuf::from(context)),
            Some(Errno::ROFS) => Self::ReadOnly { context },
            _ => Self::Io { context, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_errors_are_distinguished() {
        let of = |errno: Errno| DriveError::of_system("reading x".into(), errno.into());
        assert!(matches!(of(Errno::IO), DriveError::Medium { .. }));
        assert!(matches!(of(Errno::NODATA), DriveError::Medium { .. }));
        assert!(matches!(of(Errno::NXIO), DriveError::Gone(_)));
        assert!(matches!(of(Errno::NODEV), DriveError::Gone(_)));
        assert!(matches!(of(Errno::ROFS), DriveError::ReadOnly { .. }));
        assert!(matches!(of(Errno::PERM), DriveError::Io { .. }));
    }
}
