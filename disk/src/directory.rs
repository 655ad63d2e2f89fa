//! A drive in a directory: a file system on a device, or any directory at all.
//!
//! Blocking calls run on tokio's threads for blocking work, one per call. Files stay open in a cache that drives can
//! share ([`OpenFiles`]), which also bounds the running calls. With [`IoMode::Direct`] aligned transfers bypass the
//! page cache (O_DIRECT), which takes a third of the CPU time; where the file system refuses that, and with
//! [`IoMode::Buffered`], the page cache drops a file once it is synced, so that a verification reads the medium and not
//! the memory. Callers that need the directory synced at the same time share a sync ([`shared_sync`]).
//!
//! Invariants: a file that could not be created completely does not exist; `sync` returns after fdatasync of the file
//! and a sync of the directory since it was created; nothing reaches outside the directory, since names cannot hold a
//! `/`; no lock is held while a file is opened, read, written or synced, except the count of bytes while files come and
//! go.

mod open_files;
mod shared_sync;

pub use open_files::{DESCRIPTORS_PER_FILE, OpenFiles};

use crate::buffer::ALIGNMENT_BYTES;
use crate::finished;
use crate::label::{self, Label, LabelError};
use crate::owner::{Claim, OwnerLock};
use crate::private;
use crate::{Buffer, Drive, DriveError, FileName, Space};
use async_trait::async_trait;
use open_files::{DriveKey, OpenFile};
use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::Errno;
use shared_sync::SharedSync;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

/// Number of open files of a drive with its own cache. A drive serves one transfer at a time, and repairs or removals
/// beside it.
const OPEN_FILES: usize = 4;

/// Names that are held at once when all names are listed.
const NAMES_AT_ONCE: usize = 1_024;

/// The path of bytes to the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// Past the page cache where alignment and file system allow it.
    #[default]
    Direct,
    /// Through the page cache, which forgets a file when it is synced.
    Buffered,
}

/// The time at which a file is allocated on the medium.
#[derive(Clone, Copy)]
enum Allocation {
    AtOnce,
    AsWritten,
}

struct DirectoryState {
    root: PathBuf,
    mode: IoMode,
    files: OpenFiles,
    /// The key of this drive's files in the cache.
    key: DriveKey,
    /// Number of files that were removed or replaced: a file that was opened before may be gone.
    removals: AtomicU64,
    directory_sync: SharedSync,
    /// Holds the lock of the owner mark while mounted.
    owned: Mutex<Option<OwnerLock>>,
}

/// A drive in a directory. Always ready; the only power command with an effect is `mount`: it checks the label.
pub struct DirectoryDrive {
    shared: Arc<DirectoryState>,
    label: Option<Label>,
    claim: Option<Arc<Claim>>,
}

impl DirectoryDrive {
    /// The drive in directory `path`, which must exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DriveError> {
        let root = path.into();
        let missing = |source| DriveError::Io { context: format!("opening directory {}", root.display()), source };
        if !fs::metadata(&root).map_err(missing)?.is_dir() {
            return Err(missing(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self::at(root))
    }

    /// The drive in directory `path`, which is not accessed before the drive is used: a mount finds out whether it
    /// exists.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let files = OpenFiles::new(OPEN_FILES);
        let shared = DirectoryState {
            root: path.into(),
            mode: IoMode::default(),
            key: files.join(),
            files,
            removals: AtomicU64::new(0),
            directory_sync: SharedSync::default(),
            owned: Mutex::default(),
        };
        Self { shared: Arc::new(shared), label: None, claim: None }
    }

    fn shared_mut(&mut self) -> &mut DirectoryState {
        Arc::get_mut(&mut self.shared).expect("a drive is set up before it is used")
    }

    /// Transfers bytes in `mode`.
    #[must_use]
    pub fn with_mode(mut self, mode: IoMode) -> Self {
        self.shared_mut().mode = mode;
        self
    }

    /// Caches its open files in `files`, which it shares with other drives.
    #[must_use]
    pub fn with_open_files(mut self, files: &OpenFiles) -> Self {
        let shared = self.shared_mut();
        shared.key = files.join();
        shared.files = files.clone();
        self
    }

    /// Refuses to mount unless the drive has `label`.
    #[must_use]
    pub fn with_label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// Mounts acquire the drive for `claim`, and fail if another server owns it.
    #[must_use]
    pub fn with_claim(mut self, claim: Arc<Claim>) -> Self {
        self.claim = Some(claim);
        self
    }

    /// Runs `work` on a thread that may block, within the bound on concurrent calls.
    async fn run<T, F>(&self, work: F) -> Result<T, DriveError>
    where
        T: Send + 'static,
        F: FnOnce(&DirectoryState) -> Result<T, DriveError> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let call = move |place| {
            let answer = work(&shared);
            drop(place); // held until the call ends, even if the caller is gone
            answer
        };
        finished(self.shared.files.place_for(call).await).unwrap_or(Err(DriveError::NotReady("shutting down")))
    }
}

impl DirectoryState {
    fn path(&self, name: &FileName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// An error of the operating system as a drive error.
    fn error(&self, doing: &str, name: &FileName, source: io::Error) -> DriveError {
        match source.kind() {
            io::ErrorKind::NotFound => DriveError::NotFound(name.clone()),
            io::ErrorKind::AlreadyExists => DriveError::Exists(name.clone()),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DriveError::Full,
            io::ErrorKind::UnexpectedEof => DriveError::Short(name.clone()),
            _ if is_exhausted(&source) => DriveError::TooManyOpenFiles,
            _ => DriveError::of_system(format!("{doing} {}", self.path(name).display()), source),
        }
    }

    /// A drive that is pulled or not mounted takes its directory with it.
    fn must_be_there(&self) -> Result<(), DriveError> {
        match fs::metadata(&self.root) {
            Ok(found) if found.is_dir() => Ok(()),
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(DriveError::Io { context: format!("opening directory {}", self.root.display()), source })
            }
            _ => Err(LabelError::NoDirectory(self.root.clone()).into()),
        }
    }

    /// The open file `name`, from the cache if it has it.
    fn file(&self, name: &FileName) -> Result<Arc<OpenFile>, DriveError> {
        if let Some(file) = self.files.find(self.key, name) {
            return Ok(file);
        }
        let removals = self.removals.load(Ordering::SeqCst);
        let file = self.opened(|| self.open_file(name)).map_err(|source| self.error("opening", name, source))?;
        Ok(self.files.insert(self.key, file, || self.removals.load(Ordering::SeqCst) == removals))
    }

    /// The result of `open`. If no more files can be opened, closes unused ones and tries again.
    fn opened<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if is_exhausted(&error) => {
                self.files.close_unused();
                open()
            }
            other => other,
        }
    }

    fn open_file(&self, name: &FileName) -> io::Result<OpenFile> {
        let path = self.path(name);
        let open_count = self.files.make_room();
        let direct = self.open_direct(&path)?;
        let buffered = if direct.is_none() { Some(open_buffered(&path)?) } else { None };
        let Some(handle) = direct.as_ref().or(buffered.as_ref()) else { unreachable!("one of them was opened") };
        let bytes = handle.metadata()?.len();
        Ok(OpenFile::new(name.clone(), bytes, direct, buffered, open_count))
    }

    /// `path` opened past the page cache, if this drive uses that and the file system supports it.
    fn open_direct(&self, path: &Path) -> io::Result<Option<File>> {
        match self.mode {
            IoMode::Direct => open_direct(path),
            IoMode::Buffered => Ok(None),
        }
    }

    /// The handle that uses the page cache.
    fn buffered<'a>(&self, file: &'a OpenFile) -> io::Result<&'a File> {
        if let Some(handle) = file.buffered.get() {
            return Ok(handle);
        }
        let opened = open_buffered(&self.path(&file.name))?;
        Ok(file.buffered.get_or_init(|| opened))
    }

    /// The handle for a transfer of `data` at `offset`, if that is within the file.
    fn handle<'a>(&self, file: &'a OpenFile, offset: u64, data: &Buffer) -> Result<&'a File, DriveError> {
        let len = data.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > file.bytes) {
            return Err(DriveError::Short(file.name.clone()));
        }
        let aligned = (offset | len).is_multiple_of(ALIGNMENT_BYTES as u64);
        match file.direct.as_ref().filter(|_| aligned) {
            Some(direct) => Ok(direct),
            None => self.buffered(file).map_err(|source| self.error("opening", &file.name, source)),
        }
    }

    fn create(&self, name: &FileName, bytes: u64, room: Allocation) -> Result<(), DriveError> {
        let path = self.path(name);
        let removals = self.removals.load(Ordering::SeqCst);
        // For the owner only, since it holds users' data.
        let open_count = self.files.make_room();
        let make = || OpenOptions::new().read(true).write(true).create_new(true).mode(private::FILE_MODE).open(&path);
        assert!(path.parent() == Some(&self.root), "nothing reaches outside the directory");
        let file = self.opened(make).map_err(|source| self.error("creating", name, source))?;
        let sized = match room {
            Allocation::AtOnce => preallocate(&file, bytes),
            Allocation::AsWritten => file.set_len(bytes),
        };
        let opened = sized
            .map_err(|source| self.error("preallocating", name, source))
            .and_then(|()| self.open_direct(&path).map_err(|source| self.error("opening", name, source)));
        match opened {
            Ok(direct) => {
                let buffered = direct.is_none().then_some(file);
                let file = OpenFile::new(name.clone(), bytes, direct, buffered, open_count);
                self.files.insert(self.key, file, || self.removals.load(Ordering::SeqCst) == removals);
                Ok(())
            }
            Err(error) => {
                // The first error is returned; a file that cannot even be removed is found by the next listing.
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn list(&self) -> Result<Vec<FileName>, DriveError> {
        let mut names = Vec::new();
        self.each_name(|name| {
            names.push(name);
            true
        })?;
        names.sort();
        Ok(names)
    }

    /// Passes every name to `each` until it returns false. No file is accessed: the directory shows which entries are
    /// files.
    fn each_name(&self, mut each: impl FnMut(FileName) -> bool) -> Result<(), DriveError> {
        let failed = |source| match source {
            source if is_exhausted(&source) => DriveError::TooManyOpenFiles,
            source => DriveError::Io { context: format!("listing {}", self.root.display()), source },
        };
        for entry in fs::read_dir(&self.root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_file = entry.file_type().map_err(failed)?.is_file();
            let name = entry.file_name().into_string().ok().and_then(FileName::new).filter(|_| is_file);
            if name.is_some_and(|name| !each(name)) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        let failed = |source| self.error("syncing", name, source);
        let file = self.file(name)?;
        let any = match &file.direct {
            Some(direct) => direct,
            None => self.buffered(&file).map_err(failed)?,
        };
        any.sync_data().map_err(failed)?;
        self.sync_directory().map_err(failed)?;
        if file.direct.is_none() {
            // A cache that does not forget is no error; the verification then proves less.
            let _ = rustix::fs::fadvise(any, 0, None, Advice::DontNeed);
        }
        Ok(())
    }

    fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        self.unlink(name)?;
        self.sync_directory().map_err(|source| self.error("removing", name, source))
    }

    /// Several removals with one sync after them all. If that fails, none of them counts.
    fn remove_many(&self, names: &[FileName]) -> Vec<Result<u64, DriveError>> {
        let unlink = |name: &FileName| {
            let bytes = self.len(name)?;
            self.unlink(name).map(|()| bytes)
        };
        let mut removed: Vec<Result<u64, DriveError>> = names.iter().map(unlink).collect();
        if !removed.iter().any(Result::is_ok) {
            return removed;
        }
        if let Err(error) = self.sync_directory() {
            for (name, outcome) in names.iter().zip(&mut removed) {
                if outcome.is_ok() {
                    let source = io::Error::new(error.kind(), error.to_string());
                    *outcome = Err(self.error("removing", name, source));
                }
            }
        }
        removed
    }

    /// Removes the name of a file, which is permanently gone with the next sync of the directory.
    fn unlink(&self, name: &FileName) -> Result<(), DriveError> {
        let path = self.path(name);
        assert!(path.parent() == Some(&self.root), "nothing reaches outside the directory");
        fs::remove_file(&path).map_err(|source| self.error("removing", name, source))?;
        self.removals.fetch_add(1, Ordering::SeqCst);
        self.files.close(self.key, Some(name));
        Ok(())
    }

    fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        let failed = |source| self.error("replacing", to, source);
        let paths = [self.path(from), self.path(to)];
        assert!(paths.iter().all(|path| path.parent() == Some(&self.root)), "nothing reaches outside the directory");
        fs::rename(&paths[0], &paths[1]).map_err(|source| self.error("renaming", from, source))?;
        self.removals.fetch_add(1, Ordering::SeqCst);
        for name in [from, to] {
            self.files.close(self.key, Some(name));
        }
        self.sync_directory().map_err(failed)
    }

    /// The length of a file, which is not opened for that.
    fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        match self.files.bytes_of(self.key, name) {
            Some(bytes) => Ok(bytes),
            None => fs::metadata(self.path(name))
                .map(|metadata| metadata.len())
                .map_err(|source| self.error("measuring", name, source)),
        }
    }

    /// Returns when all earlier creations and removals are durable.
    fn sync_directory(&self) -> io::Result<()> {
        self.directory_sync.run(|| self.opened(|| File::open(&self.root))?.sync_all())
    }

    fn space(&self) -> Result<Space, DriveError> {
        let failed = |source| DriveError::Io { context: format!("measuring {}", self.root.display()), source };
        let found = rustix::fs::statvfs(&self.root).map_err(|errno| failed(errno.into()))?;
        let (capacity_bytes, free_bytes) = (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize);
        Ok(Space { capacity_bytes, free_bytes })
    }
}

/// True if the process, or the whole system, cannot open more files: not the drive's fault.
fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    exhausted.contains(&error.raw_os_error())
}

fn open_buffered(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// `path` opened past the page cache; `None` if the file system does not support that.
fn open_direct(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Some file systems cannot reserve the room; then a write finds out.
        Err(Errno::OPNOTSUPP) => file.set_len(bytes),
        other => Ok(other?),
    }
}

#[async_trait]
impl Drive for DirectoryDrive {
    async fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let name = name.clone();
        self.run(move |shared| shared.create(&name, bytes, Allocation::AtOnce)).await
    }

    async fn create_sparse(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let name = name.clone();
        self.run(move |shared| shared.create(&name, bytes, Allocation::AsWritten)).await
    }

    async fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError> {
        let name = name.clone();
        self.run(move |shared| {
            let file = shared.file(&name)?;
            let written = shared.handle(&file, offset, &data)?.write_all_at(&data, offset);
            written.map(|()| data).map_err(|source| shared.error("writing", &name, source))
        })
        .await
    }

    async fn read_at(&self, name: &FileName, offset: u64, mut into: Buffer) -> Result<Buffer, DriveError> {
        let name = name.clone();
        self.run(move |shared| {
            let file = shared.file(&name)?;
            let read = shared.handle(&file, offset, &into)?.read_exact_at(&mut into, offset);
            read.map(|()| into).map_err(|source| shared.error("reading", &name, source))
        })
        .await
    }

    async fn read_end(&self, name: &FileName, bytes: u64) -> Result<(u64, Buffer), DriveError> {
        let name = name.clone();
        self.run(move |shared| {
            let file = shared.file(&name)?;
            let mut end = Buffer::zeroed(file.bytes.min(bytes) as usize);
            let offset = file.bytes - end.len() as u64;
            let read = shared.handle(&file, offset, &end)?.read_exact_at(&mut end, offset);
            read.map(|()| (file.bytes, end)).map_err(|source| shared.error("reading", &name, source))
        })
        .await
    }

    async fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        let name = name.clone();
        self.run(move |shared| shared.sync(&name)).await
    }

    async fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        let name = name.clone();
        self.run(move |shared| shared.remove(&name)).await
    }

    async fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        let (from, to) = (from.clone(), to.clone());
        self.run(move |shared| shared.replace(&from, &to)).await
    }

    async fn remove_many(&self, names: Vec<FileName>) -> Vec<Result<u64, DriveError>> {
        let count = names.len();
        let failed = |error: DriveError| {
            let text = error.to_string();
            let each = || DriveError::Io { context: "removing files".into(), source: io::Error::other(text.clone()) };
            (0..count).map(|_| Err(each())).collect()
        };
        self.run(move |shared| Ok(shared.remove_many(&names))).await.unwrap_or_else(failed)
    }

    async fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        let name = name.clone();
        self.run(move |shared| shared.len(&name)).await
    }

    async fn list(&self) -> Result<Vec<FileName>, DriveError> {
        self.run(DirectoryState::list).await
    }

    async fn each_name(&self, each: &mut (dyn for<'n> FnMut(&'n FileName) + Send)) -> Result<(), DriveError> {
        let (give, mut given) = mpsc::channel(2);
        let names = self.run(move |shared| {
            let mut some = Vec::with_capacity(NAMES_AT_ONCE);
            shared.each_name(|name| {
                some.push(name);
                // If the caller is gone, the receiver is closed.
                some.len() < NAMES_AT_ONCE || give.blocking_send(std::mem::take(&mut some)).is_ok()
            })?;
            let _ = give.blocking_send(some);
            Ok(())
        });
        let take = async {
            while let Some(some) = given.recv().await {
                for name in &some {
                    each(name);
                }
            }
        };
        futures::join!(names, take).0
    }

    async fn space(&self) -> Result<Space, DriveError> {
        self.run(DirectoryState::space).await
    }

    async fn spin_up(&self) -> Result<(), DriveError> {
        Ok(())
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        if let Some(label) = &self.label {
            self.run(|shared| {
                // A wrong label may have been read through one of these.
                shared.files.close(shared.key, None);
                shared.must_be_there()
            })
            .await?;
            label::check(self, label).await?;
        }
        if let Some(claim) = self.claim.clone() {
            self.run(move |shared| {
                drop(shared.owned.lock().take());
                let lock = claim.acquire(&shared.root)?;
                *shared.owned.lock() = Some(lock);
                Ok(())
            })
            .await?;
        }
        self.space().await
    }

    async fn unmount(&self) -> Result<(), DriveError> {
        self.run(|shared| {
            shared.files.close(shared.key, None);
            *shared.owned.lock() = None;
            Ok(())
        })
        .await
    }

    async fn stop(&self) -> Result<(), DriveError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn every_name_is_given_however_many_there_are() {
        let directory = tempfile::tempdir().unwrap();
        let drive = DirectoryDrive::open(directory.path()).unwrap();
        for number in 0..2 * NAMES_AT_ONCE + 7 {
            fs::write(directory.path().join(format!("f{number}")), b"").unwrap();
        }
        fs::create_dir(directory.path().join("no-file")).unwrap();
        let mut names = Vec::new();
        drive.each_name(&mut |name| names.push(name.clone())).await.unwrap();
        names.sort();
        assert_eq!(names.len(), 2 * NAMES_AT_ONCE + 7);
        assert_eq!(names, drive.list().await.unwrap());
        let gone = DirectoryDrive::at(directory.path().join("nowhere"));
        assert!(gone.each_name(&mut |_| ()).await.is_err());
    }

    #[tokio::test]
    async fn many_files_go_with_one_sync_of_their_directory() {
        let directory = tempfile::tempdir().unwrap();
        let drive = DirectoryDrive::open(directory.path()).unwrap();
        let names: Vec<FileName> = (0..300).map(|number| FileName::new(format!("f{number}")).unwrap()).collect();
        for (at, name) in names.iter().enumerate().filter(|(at, _)| *at != 7) {
            drive.create(name, 4096 * (1 + at as u64 % 3)).await.unwrap();
        }
        let syncs = || drive.shared.directory_sync.begun();
        let before = syncs();
        let removed = drive.remove_many(names.clone()).await;
        assert_eq!(syncs() - before, 1, "one sync for {} files", names.len());
        for (at, outcome) in removed.into_iter().enumerate() {
            match outcome {
                Ok(bytes) => assert_eq!(bytes, 4096 * (1 + at as u64 % 3)),
                Err(error) => assert!(at == 7 && matches!(error, DriveError::NotFound(_)), "{at}: {error}"),
            }
        }
        assert!(drive.list().await.unwrap().is_empty());
        assert!(drive.remove_many(names).await.iter().all(Result::is_err));
        assert_eq!(syncs() - before, 1, "where nothing went nothing is synced");
    }
}
