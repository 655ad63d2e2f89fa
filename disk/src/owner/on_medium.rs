//! The mark on a medium: read, compared, locked and written.

use super::{Claim, LockRoom, OwnerError, OwnerMark, Right};
use crate::clock::wall_ms;
use crate::drive::{DriveError, FileName};
use crate::format::{BLOCK_BYTES, FormatError};
use crate::label;
use crate::private::{FILE_MODE, close_to_others};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const FILE: &str = "larder.owner";
const BLOCKS: u64 = 2;

/// The name of the mark's file.
pub fn file_name() -> FileName {
    FileName::new(FILE).expect("the mark's name is a file name")
}

/// The lock of a medium, until it is dropped.
#[derive(Debug)]
pub struct OwnerLock {
    _locked: Option<(File, LockRoom)>,
}

impl Claim {
    /// Claims the medium in `directory`: locks it, and marks it if it may be used and is not marked by this run yet. It
    /// is closed to other users then. A medium that cannot be written, or is full and has no mark, is used without.
    /// Blocks.
    ///
    /// # Errors
    /// [`DriveError::Owner`], if it is another server's, which is remembered among the
    /// [`refused`](Claim::refused); nothing was written then. [`DriveError`], if the mark cannot be read or written.
    pub fn lay(&self, directory: &Path) -> Result<OwnerLock, DriveError> {
        let laid = self.lay_on(directory, self.runs.right != Right::Read);
        self.note(directory, laid.as_ref().err());
        laid
    }

    /// Keeps the medium in `directory`, which stays mounted, for as long as this claim lives. Blocks.
    ///
    /// # Errors
    /// As [`Claim::lay`].
    pub fn hold(&self, directory: &Path) -> Result<(), DriveError> {
        let lock = self.lay(directory)?;
        self.held.lock().push(lock);
        Ok(())
    }

    /// Whether the medium in `directory` may be used. Nothing is written there. Blocks.
    ///
    /// # Errors
    /// As [`Claim::lay`].
    pub fn look(&self, directory: &Path) -> Result<(), DriveError> {
        let looked = self.lay_on(directory, false).map(drop);
        self.note(directory, looked.as_ref().err());
        looked
    }

    /// Remembers that the medium in `directory` is another server's, or is not.
    fn note(&self, directory: &Path, error: Option<&DriveError>) {
        let mut refused = self.refused.lock();
        match error {
            Some(DriveError::Owner(why)) => drop(refused.insert(directory.to_owned(), why.clone())),
            _ => drop(refused.remove(directory)),
        }
    }

    fn lay_on(&self, directory: &Path, writes: bool) -> Result<OwnerLock, DriveError> {
        let path = directory.join(FILE);
        let failed = |doing: &str, error| DriveError::of_system(format!("{doing} {}", path.display()), error);
        let opened = open(&path, writes).map_err(|error| failed("opening", error))?;
        let Some((file, is_writable)) = opened else { return Ok(OwnerLock { _locked: None }) };
        lock(&file, writes).map_err(|error| match error {
            TryLockError::WouldBlock => OwnerError::InUse(directory.to_owned()).into(),
            TryLockError::Error(error) => failed("locking", error),
        })?;
        let found = read(&file).map_err(|error| match error {
            MarkError::Version(version) => OwnerError::OtherVersion(version).into(),
            MarkError::System(error) => failed("reading", error),
        })?;
        let mark = self.judge(found.as_ref(), wall_ms())?;
        if let Some(mark) = mark.filter(|_| is_writable) {
            close_to_others(directory);
            close_to_others(&directory.join(label::file_name().as_str()));
            match write(&file, &mark, directory) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull && found.is_none() => {
                    tracing::warn!(path = %path.display(), "a full medium is used without an owner mark");
                }
                written => written.map_err(|error| failed("writing", error))?,
            }
        }
        Ok(OwnerLock { _locked: self.lock_room().map(|room| (file, room)) })
    }
}

/// Locks the mark: alone to use the medium, with others to look at it. Where the file system has no locks, there are
/// none.
fn lock(file: &File, alone: bool) -> Result<(), TryLockError> {
    match if alone { file.try_lock() } else { file.try_lock_shared() } {
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        locked => locked,
    }
}

enum MarkError {
    Version(u32),
    System(io::Error),
}

/// The file of the mark, and whether it can be written; made if it is not there and `writes`. None if it is not there
/// and cannot be made.
fn open(path: &Path, writes: bool) -> io::Result<Option<(File, bool)>> {
    if writes {
        let made = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path);
        match made {
            Ok(file) => return Ok(Some((file, true))),
            Err(error) if matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::StorageFull) => {}
            Err(error) => return Err(error),
        }
    }
    match File::open(path) {
        Ok(file) => Ok(Some((file, false))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The newer one of the marks in `file` that can be read; none if neither can.
fn read(file: &File) -> Result<Option<OwnerMark>, MarkError> {
    let mut newest: Option<OwnerMark> = None;
    for at in 0..BLOCKS {
        let mut block = [0; BLOCK_BYTES];
        match file.read_exact_at(&mut block, at * BLOCK_BYTES as u64) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(MarkError::System(error)),
        }
        match OwnerMark::decode(&block) {
            Ok(mark) if newest.as_ref().is_none_or(|newest| newest.serial < mark.serial) => newest = Some(mark),
            Ok(_) | Err(FormatError::Blank) => {}
            Err(FormatError::Version(version)) => return Err(MarkError::Version(version)),
            Err(error) => tracing::warn!(%error, "an owner mark cannot be read; the other one counts"),
        }
    }
    Ok(newest)
}

/// Writes `mark` in place of the older one, durably.
fn write(file: &File, mark: &OwnerMark, directory: &Path) -> io::Result<()> {
    let is_new = file.metadata()?.len() < BLOCKS * BLOCK_BYTES as u64;
    if is_new {
        file.write_all_at(&[0; BLOCKS as usize * BLOCK_BYTES], 0)?;
    }
    file.write_all_at(&mark.encode(), mark.serial % BLOCKS * BLOCK_BYTES as u64)?;
    file.sync_all()?;
    if is_new { File::open(directory)?.sync_all() } else { Ok(()) }
}
