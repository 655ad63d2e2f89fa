//! Reading, comparing, locking and writing the mark of a medium.

use super::{Claim, LockSlot, OwnerError, OwnerMark};
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
    _locked: Option<(File, LockSlot)>,
}

impl Claim {
    /// Acquires the medium in `directory`: locks it, and marks it with the current run unless it has that mark. Marking
    /// also takes other users' rights to the directory and its label away. A read-only medium, or a full one without a
    /// mark, is used unmarked. Blocks.
    ///
    /// # Errors
    /// [`DriveError::Owner`] if another server owns it: nothing was written, and it is listed in
    /// [`refused`](Claim::refused). Another [`DriveError`] if the mark cannot be read or written.
    pub fn acquire(&self, directory: &Path) -> Result<OwnerLock, DriveError> {
        let acquired = self.acquire_on(directory, self.runs.own.current.is_some());
        self.note(directory, acquired.as_ref().err());
        acquired
    }

    /// Acquires the medium in `directory` until this claim is dropped, for media that stay mounted. One that is held
    /// already stays so. Blocks.
    ///
    /// # Errors
    /// As [`Claim::acquire`].
    pub fn hold(&self, directory: &Path) -> Result<(), DriveError> {
        if self.held.lock().contains_key(directory) {
            return Ok(());
        }
        let lock = self.acquire(directory)?;
        self.held.lock().insert(directory.to_owned(), lock);
        Ok(())
    }

    /// Checks that the medium in `directory` may be used. Writes nothing. Blocks.
    ///
    /// # Errors
    /// As [`Claim::acquire`].
    pub fn check(&self, directory: &Path) -> Result<(), DriveError> {
        let checked = self.acquire_on(directory, false).map(drop);
        self.note(directory, checked.as_ref().err());
        checked
    }

    /// Checks that no other server owns the medium in `directory`, which this process may have locked. Writes nothing.
    /// Blocks.
    ///
    /// # Errors
    /// [`DriveError::Owner`], or another [`DriveError`] if the mark cannot be read.
    pub fn check_owner(&self, directory: &Path) -> Result<(), DriveError> {
        let path = directory.join(FILE);
        match open(&path, false).map_err(|error| failed("opening", &path, error))? {
            Some((file, _)) => {
                self.new_mark(found(&file, &path)?.as_ref(), wall_ms()).map(drop).map_err(DriveError::from)
            }
            None => Ok(()),
        }
    }

    /// Lists the medium in `directory` as refused, or no longer.
    fn note(&self, directory: &Path, error: Option<&DriveError>) {
        let mut refused = self.refused.lock();
        match error {
            Some(DriveError::Owner(why)) => drop(refused.insert(directory.to_owned(), why.clone())),
            _ => drop(refused.remove(directory)),
        }
    }

    fn acquire_on(&self, directory: &Path, writes: bool) -> Result<OwnerLock, DriveError> {
        let path = directory.join(FILE);
        let opened = open(&path, writes).map_err(|error| failed("opening", &path, error))?;
        let Some((file, is_writable)) = opened else { return Ok(OwnerLock { _locked: None }) };
        lock(&file, writes).map_err(|error| match error {
            TryLockError::WouldBlock => OwnerError::InUse(directory.to_owned()).into(),
            TryLockError::Error(error) => failed("locking", &path, error),
        })?;
        let found = found(&file, &path)?;
        let mark = self.new_mark(found.as_ref(), wall_ms())?;
        if let Some(mark) = mark.filter(|_| is_writable) {
            close_to_others(directory);
            close_to_others(&directory.join(label::file_name().as_str()));
            match write(&file, &mark, directory) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull && found.is_none() => {
                    tracing::warn!(path = %path.display(), "a full medium is used without an owner mark");
                }
                written => written.map_err(|error| failed("writing", &path, error))?,
            }
        }
        Ok(OwnerLock { _locked: self.lock_slot().map(|room| (file, room)) })
    }
}

fn failed(doing: &str, path: &Path, error: io::Error) -> DriveError {
    DriveError::of_system(format!("{doing} {}", path.display()), error)
}

/// The newest readable mark in `file`, which is at `path`.
fn found(file: &File, path: &Path) -> Result<Option<OwnerMark>, DriveError> {
    read(file).map_err(|error| match error {
        MarkError::Version(version) => OwnerError::OtherVersion(version).into(),
        MarkError::System(error) => failed("reading", path, error),
    })
}

/// Locks the mark, exclusively or shared. A file system without locks is used without.
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

/// Opens the file of the mark, and creates it if `writes`. The flag is true if it can be written. `None` if the file
/// is missing and cannot be created.
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

/// The newest readable mark in `file`; `None` if no mark can be read.
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
            Ok(mark) if mark.serial.is_after(newest.as_ref().map(|newest| newest.serial)) => newest = Some(mark),
            Ok(_) | Err(FormatError::Blank) => {}
            Err(FormatError::Version(version)) => return Err(MarkError::Version(version)),
            Err(error) => tracing::warn!(%error, "an owner mark cannot be read; using the other one"),
        }
    }
    Ok(newest)
}

/// Overwrites the older mark with `mark`, durably.
fn write(file: &File, mark: &OwnerMark, directory: &Path) -> io::Result<()> {
    let is_new = file.metadata()?.len() < BLOCKS * BLOCK_BYTES as u64;
    if is_new {
        file.write_all_at(&[0; BLOCKS as usize * BLOCK_BYTES], 0)?;
    }
    file.write_all_at(&mark.encode(), mark.serial.0 % BLOCKS * BLOCK_BYTES as u64)?;
    file.sync_all()?;
    if is_new { File::open(directory)?.sync_all() } else { Ok(()) }
}
