//! A directory that is opened read-only: files can be created, renamed and removed in it, and the directory below stays
//! unchanged.
//!
//! Memory: the data that is written to new files. Files of the directory below cannot be changed; a pool that is opened
//! read-only ([`crate::Config::is_look`]) never changes them.

use crate::medium::{Directory, File};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The changes over a directory.
#[derive(Debug)]
pub struct Overlay {
    below: Box<dyn Directory>,
    /// New files, and files of the directory below that were removed.
    changes: Mutex<BTreeMap<String, Option<NewFile>>>,
}

impl Overlay {
    /// `below`, which stays unchanged.
    pub fn over(below: Box<dyn Directory>) -> Self {
        Self { below, changes: Mutex::default() }
    }
}

impl Directory for Overlay {
    fn place(&self) -> String {
        self.below.place()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names: BTreeSet<String> = self.below.list()?.into_iter().collect();
        for (name, file) in &*self.changes.lock() {
            if file.is_some() {
                names.insert(name.clone())
            } else {
                names.remove(name)
            };
        }
        Ok(names.into_iter().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        if self.list()?.iter().any(|other| other == name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = NewFile::default();
        self.changes.lock().insert(name.into(), Some(file.clone()));
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        match self.changes.lock().get(name) {
            Some(Some(file)) => Ok(Box::new(file.clone())),
            Some(None) => Err(io::ErrorKind::NotFound.into()),
            None => Ok(Box::new(OldFile(self.below.open_to_read(name)?))),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut changes = self.changes.lock();
        let file = changes.get_mut(from).and_then(Option::take).ok_or(io::ErrorKind::Unsupported)?;
        changes.insert(to.into(), Some(file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.changes.lock().insert(name.into(), None);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file in memory.
#[derive(Clone, Debug, Default)]
struct NewFile(Arc<Mutex<Vec<u8>>>);

impl File for NewFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.0.lock();
        let from = bytes.get(offset as usize..).and_then(|from| from.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, written: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.0.lock();
        let end = offset as usize + written.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(written);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.lock().resize(bytes as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file of the directory below.
#[derive(Debug)]
struct OldFile(Box<dyn File>);

impl File for OldFile {
    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
