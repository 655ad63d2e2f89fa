//! A drive in a directory: a file system on a device, or any directory at all.
//!
//! Blocking calls run on tokio's threads for blocking work, one per call. Files stay open in a small cache. With
//! [`IoMode::Direct`] aligned transfers pass the page cache by (O_DIRECT), which costs a third of the CPU; where the
//! file system refuses that, and with [`IoMode::Buffered`], the page cache is told to forget a file once it is synced,
//! so that a verification reads the medium and not the memory. Those who want the directory synced at the same time
//! share a sync ([`shared_sync`]).
//!
//! Invariants: a file that could not be created whole is not there; `sync` returns after fdatasync of the file and a
//! sync of the directory since it was created; nothing reaches outside the directory, since names cannot hold a `/`.

mod shared_sync;

use crate::buffer::ALIGNMENT_BYTES;
use crate::label::{self, Label};
use crate::{Buffer, Drive, DriveError, DriveFuture, FileName, Space};
use rustix::fs::{Advice, FallocateFlags, OFlags};
use shared_sync::SharedSync;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files that stay open, unless told otherwise. A drive serves one transfer at a time, and repairs or removals beside
/// it.
const OPEN_FILES: usize = 4;

/// How bytes reach the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// Past the page cache where alignment and file system allow it.
    #[default]
    Direct,
    /// Through the page cache, which forgets a file when it is synced.
    Buffered,
}

struct OpenFile {
    name: FileName,
    bytes: u64,
    buffered: File,
    direct: Option<File>,
}

struct Shared {
    root: PathBuf,
    capacity_bytes: Option<u64>,
    mode: IoMode,
    open_files_max: usize,
    /// Most recently used last.
    open: Mutex<VecDeque<Arc<OpenFile>>>,
    /// Bytes of all files; counted when first asked for, and before any comes or goes.
    used_bytes: Mutex<Option<u64>>,
    directory_sync: SharedSync,
}

/// A drive in a directory. Always ready; of the power commands only `mount` does anything: it checks the label.
pub struct DirectoryDrive {
    shared: Arc<Shared>,
    label: Option<Label>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DirectoryDrive {
    /// The drive in directory `path`, which must be there.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DriveError> {
        let root = path.into();
        let missing = |source| DriveError::Io { context: format!("opening directory {}", root.display()), source };
        if !fs::metadata(&root).map_err(missing)?.is_dir() {
            return Err(missing(io::ErrorKind::NotADirectory.into()));
        }
        let shared = Shared {
            root,
            capacity_bytes: None,
            mode: IoMode::default(),
            open_files_max: OPEN_FILES,
            open: Mutex::default(),
            used_bytes: Mutex::default(),
            directory_sync: SharedSync::default(),
        };
        Ok(Self { shared: Arc::new(shared), label: None })
    }

    fn shared_mut(&mut self) -> &mut Shared {
        Arc::get_mut(&mut self.shared).expect("a drive is set up before it is used")
    }

    /// Holds at most `capacity_bytes`, whatever the file system has room for.
    #[must_use]
    pub fn with_capacity(mut self, capacity_bytes: u64) -> Self {
        self.shared_mut().capacity_bytes = Some(capacity_bytes);
        self
    }

    /// Moves bytes as `mode` says.
    #[must_use]
    pub fn with_mode(mut self, mode: IoMode) -> Self {
        self.shared_mut().mode = mode;
        self
    }

    /// Keeps up to so many files open, at least 1: as many as are used at once. Each takes two of the process's
    /// descriptors.
    #[must_use]
    pub fn with_open_files(mut self, files: usize) -> Self {
        assert!(files > 0, "the file in use stays open");
        self.shared_mut().open_files_max = files;
        self
    }

    /// Refuses to mount unless the drive carries `label`.
    #[must_use]
    pub fn with_label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// Runs `work` where it may block.
    fn run<T, F>(&self, work: F) -> DriveFuture<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> Result<T, DriveError> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || work(&shared)).await {
                Ok(answer) => answer,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(DriveError::NotReady("shutting down")),
                },
            }
        })
    }
}

impl Shared {
    fn path(&self, name: &FileName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// What the operating system said, as a drive says it.
    fn error(&self, doing: &str, name: &FileName, source: io::Error) -> DriveError {
        match source.kind() {
            io::ErrorKind::NotFound => DriveError::NotFound(name.clone()),
            io::ErrorKind::AlreadyExists => DriveError::Exists(name.clone()),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DriveError::Full,
            io::ErrorKind::UnexpectedEof => DriveError::Short(name.clone()),
            _ => DriveError::Io { context: format!("{doing} {}", self.path(name).display()), source },
        }
    }

    /// The open file `name`, from the cache if it is there.
    fn file(&self, name: &FileName) -> Result<Arc<OpenFile>, DriveError> {
        let mut open = lock(&self.open);
        let file = match open.iter().position(|file| file.name == *name) {
            Some(at) => open.remove(at).expect("the place was just found"),
            None => Arc::new(self.open_file(name).map_err(|source| self.error("opening", name, source))?),
        };
        self.keep_open(&mut open, Arc::clone(&file));
        Ok(file)
    }

    fn keep_open(&self, open: &mut VecDeque<Arc<OpenFile>>, file: Arc<OpenFile>) {
        if open.len() == self.open_files_max {
            open.pop_front();
        }
        open.push_back(file);
    }

    fn open_file(&self, name: &FileName) -> io::Result<OpenFile> {
        let path = self.path(name);
        let buffered = OpenOptions::new().read(true).write(true).open(&path)?;
        let bytes = buffered.metadata()?.len();
        self.opened(name, buffered, bytes)
    }

    /// The file `name` of `bytes` bytes, of which one handle is open.
    fn opened(&self, name: &FileName, buffered: File, bytes: u64) -> io::Result<OpenFile> {
        let direct = match self.mode {
            IoMode::Direct => open_direct(&self.path(name))?,
            IoMode::Buffered => None,
        };
        Ok(OpenFile { name: name.clone(), bytes, buffered, direct })
    }

    fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let exists = self.path(name).try_exists().map_err(|source| self.error("creating", name, source))?;
        if exists {
            return Err(DriveError::Exists(name.clone()));
        }
        {
            let mut used = lock(&self.used_bytes);
            let already = self.counted(&mut used)?;
            if self.capacity_bytes.is_some_and(|capacity| bytes > capacity.saturating_sub(already)) {
                return Err(DriveError::Full);
            }
            *used = Some(already + bytes);
        }
        self.create_file(name, bytes).inspect_err(|_| self.uncount(bytes))
    }

    /// Creates a file whose room is counted already.
    fn create_file(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let path = self.path(name);
        // For the owner alone: what lies here is somebody's data.
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|source| self.error("creating", name, source))?;
        let opened = preallocate(&file, bytes)
            .map_err(|source| self.error("preallocating", name, source))
            .and_then(|()| self.opened(name, file, bytes).map_err(|source| self.error("opening", name, source)));
        match opened {
            Ok(opened) => self.keep_open(&mut lock(&self.open), Arc::new(opened)),
            Err(error) => {
                // The error stands; a file that cannot even be removed is found by the next listing.
                let _ = fs::remove_file(&path);
                return Err(error);
            }
        }
        Ok(())
    }

    fn uncount(&self, bytes: u64) {
        let mut used = lock(&self.used_bytes);
        *used = used.map(|used| used.saturating_sub(bytes));
    }

    /// Bytes of all files, counted once and kept up to date from then on.
    fn counted(&self, used: &mut Option<u64>) -> Result<u64, DriveError> {
        if let Some(used) = *used {
            return Ok(used);
        }
        let mut sum = 0;
        for name in self.list()? {
            sum += fs::metadata(self.path(&name)).map_err(|source| self.error("measuring", &name, source))?.len();
        }
        *used = Some(sum);
        Ok(sum)
    }

    fn list(&self) -> Result<Vec<FileName>, DriveError> {
        let failed = |source| DriveError::Io { context: format!("listing {}", self.root.display()), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_file = entry.file_type().map_err(failed)?.is_file();
            names.extend(entry.file_name().into_string().ok().and_then(FileName::new).filter(|_| is_file));
        }
        names.sort();
        Ok(names)
    }

    fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        let failed = |source| self.error("syncing", name, source);
        let file = self.file(name)?;
        file.buffered.sync_data().map_err(failed)?;
        self.sync_directory().map_err(failed)?;
        if file.direct.is_none() {
            // A cache that remembers is no error; the verification then proves less.
            let _ = rustix::fs::fadvise(&file.buffered, 0, None, Advice::DontNeed);
        }
        Ok(())
    }

    fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        let failed = |source| self.error("removing", name, source);
        self.counted(&mut lock(&self.used_bytes))?;
        let path = self.path(name);
        let bytes = fs::metadata(&path).map_err(failed)?.len();
        fs::remove_file(&path).map_err(failed)?;
        lock(&self.open).retain(|file| file.name != *name);
        self.uncount(bytes);
        self.sync_directory().map_err(failed)
    }

    /// The length of a file, which is not opened for that.
    fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        let open = lock(&self.open).iter().find(|file| file.name == *name).map(|file| file.bytes);
        match open {
            Some(bytes) => Ok(bytes),
            None => fs::metadata(self.path(name))
                .map(|metadata| metadata.len())
                .map_err(|source| self.error("measuring", name, source)),
        }
    }

    /// Returns when what came and went before is durable.
    fn sync_directory(&self) -> io::Result<()> {
        self.directory_sync.run(|| File::open(&self.root)?.sync_all())
    }

    fn space(&self) -> Result<Space, DriveError> {
        let failed = |source| DriveError::Io { context: format!("measuring {}", self.root.display()), source };
        let real = rustix::fs::statvfs(&self.root).map_err(|errno| failed(errno.into()))?;
        let real_free_bytes = real.f_bavail * real.f_frsize;
        let Some(capacity_bytes) = self.capacity_bytes else {
            return Ok(Space { capacity_bytes: real.f_blocks * real.f_frsize, free_bytes: real_free_bytes });
        };
        let used_bytes = self.counted(&mut lock(&self.used_bytes))?;
        let free_bytes = capacity_bytes.saturating_sub(used_bytes).min(real_free_bytes);
        Ok(Space { capacity_bytes, free_bytes })
    }
}

/// `path` opened past the page cache; `None` where the file system cannot.
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
        // Some file systems cannot promise the room; writing then finds out.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
        other => Ok(other?),
    }
}

impl OpenFile {
    /// The handle for a transfer of `data` at `offset`, if it lies within the file.
    fn handle(&self, offset: u64, data: &Buffer) -> Result<&File, DriveError> {
        let len = data.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            return Err(DriveError::Short(self.name.clone()));
        }
        let aligned = (offset | len).is_multiple_of(ALIGNMENT_BYTES as u64);
        Ok(self.direct.as_ref().filter(|_| aligned).unwrap_or(&self.buffered))
    }
}

impl Drive for DirectoryDrive {
    fn create(&self, name: &FileName, bytes: u64) -> DriveFuture<'_, ()> {
        let name = name.clone();
        self.run(move |shared| shared.create(&name, bytes))
    }

    fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> DriveFuture<'_, Buffer> {
        let name = name.clone();
        self.run(move |shared| {
            let file = shared.file(&name)?;
            let written = file.handle(offset, &data)?.write_all_at(&data, offset);
            written.map(|()| data).map_err(|source| shared.error("writing", &name, source))
        })
    }

    fn read_at(&self, name: &FileName, offset: u64, mut into: Buffer) -> DriveFuture<'_, Buffer> {
        let name = name.clone();
        self.run(move |shared| {
            let file = shared.file(&name)?;
            let read = file.handle(offset, &into)?.read_exact_at(&mut into, offset);
            read.map(|()| into).map_err(|source| shared.error("reading", &name, source))
        })
    }

    fn sync(&self, name: &FileName) -> DriveFuture<'_, ()> {
        let name = name.clone();
        self.run(move |shared| shared.sync(&name))
    }

    fn remove(&self, name: &FileName) -> DriveFuture<'_, ()> {
        let name = name.clone();
        self.run(move |shared| shared.remove(&name))
    }

    fn len(&self, name: &FileName) -> DriveFuture<'_, u64> {
        let name = name.clone();
        self.run(move |shared| shared.len(&name))
    }

    fn list(&self) -> DriveFuture<'_, Vec<FileName>> {
        self.run(Shared::list)
    }

    fn space(&self) -> DriveFuture<'_, Space> {
        self.run(Shared::space)
    }

    fn spin_up(&self) -> DriveFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn mount(&self) -> DriveFuture<'_, Space> {
        Box::pin(async move {
            if let Some(label) = &self.label {
                label::check(self, label).await?;
            }
            self.space().await
        })
    }

    fn unmount(&self) -> DriveFuture<'_, ()> {
        lock(&self.shared.open).clear();
        Box::pin(std::future::ready(Ok(())))
    }

    fn stop(&self) -> DriveFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
