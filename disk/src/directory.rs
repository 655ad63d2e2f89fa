//! A drive in a directory: a file system on a device, or any directory at all.
//!
//! Blocking calls run on tokio's threads for blocking work, one per call. Files stay open in a small cache. With
//! [`IoMode::Direct`] aligned transfers pass the page cache by (O_DIRECT), which costs a third of the CPU; where the
//! file system refuses that, and with [`IoMode::Buffered`], the page cache is told to forget a file once it is synced,
//! so that a verification reads the medium and not the memory.
//!
//! Invariants: a file that could not be created whole is not there; `sync` returns after fdatasync of the file and a
//! sync of the directory since it was created; nothing reaches outside the directory, since names cannot hold a `/`.

use crate::buffer::ALIGNMENT_BYTES;
use crate::label::{self, Label};
use crate::{Buffer, Drive, DriveError, DriveFuture, FileName, Space};
use rustix::fs::{Advice, FallocateFlags, OFlags};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files that stay open. A drive serves one transfer at a time, and repairs or removals beside it.
const OPEN_FILES_MAX: usize = 4;

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
    /// Most recently used last.
    open: Mutex<VecDeque<Arc<OpenFile>>>,
    /// Bytes of all files; counted when first asked for. Held while files come and go.
    used_bytes: Mutex<Option<u64>>,
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
        let (open, used_bytes) = (Mutex::default(), Mutex::default());
        let shared = Shared { root, capacity_bytes: None, mode: IoMode::default(), open, used_bytes };
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
        if open.len() == OPEN_FILES_MAX {
            open.pop_front();
        }
        open.push_back(Arc::clone(&file));
        Ok(file)
    }

    fn open_file(&self, name: &FileName) -> io::Result<OpenFile> {
        let path = self.path(name);
        let buffered = OpenOptions::new().read(true).write(true).open(&path)?;
        let direct = match self.mode {
            IoMode::Direct => open_direct(&path)?,
            IoMode::Buffered => None,
        };
        Ok(OpenFile { name: name.clone(), bytes: buffered.metadata()?.len(), buffered, direct })
    }

    fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let mut used = lock(&self.used_bytes);
        let already = self.counted(&mut used)?;
        let path = self.path(name);
        let exists = path.try_exists().map_err(|source| self.error("creating", name, source))?;
        if !exists && self.capacity_bytes.is_some_and(|capacity| bytes > capacity.saturating_sub(already)) {
            return Err(DriveError::Full);
        }
        // For the owner alone: what lies here is somebody's data.
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|source| self.error("creating", name, source))?;
        if let Err(source) = preallocate(&file, bytes) {
            // The error is the preallocation's; a file that cannot even be removed is found by the next listing.
            let _ = fs::remove_file(&path);
            return Err(self.error("preallocating", name, source));
        }
        *used = Some(already + bytes);
        Ok(())
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
        File::open(&self.root).and_then(|directory| directory.sync_all()).map_err(failed)?;
        if file.direct.is_none() {
            // A cache that remembers is no error; the verification then proves less.
            let _ = rustix::fs::fadvise(&file.buffered, 0, None, Advice::DontNeed);
        }
        Ok(())
    }

    fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        let failed = |source| self.error("removing", name, source);
        let mut used = lock(&self.used_bytes);
        let path = self.path(name);
        let bytes = fs::metadata(&path).map_err(failed)?.len();
        fs::remove_file(&path).map_err(failed)?;
        lock(&self.open).retain(|file| file.name != *name);
        *used = used.map(|used| used.saturating_sub(bytes));
        drop(used);
        File::open(&self.root).and_then(|directory| directory.sync_all()).map_err(failed)
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
        self.run(move |shared| Ok(shared.file(&name)?.bytes))
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
