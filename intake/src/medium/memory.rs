//! Drives in memory that can crash: every write, sync and change of a name is recorded in one journal, and
//! [`World::crash`] builds a possible content of the drives after a power failure at any entry of it.
//!
//! A crash is as harsh as [`crate::medium`] allows. Each write that was not synced lasts, is lost, or lasts up to any
//! byte, independently of the others; of the changes of names that were not synced a prefix lasts, in order. Faults
//! ([`Fault`]) are set for each drive.

use crate::medium::{Directory, File, SECTOR_BYTES};
use model::Rng;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The fault of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// It works.
    #[default]
    None,
    /// Every request fails.
    Broken,
    /// Writes and syncs fail; reads work.
    ReadOnly,
    /// Writes find no room.
    Full,
    /// Requests wait until the fault changes.
    Hang,
}

/// Drives that share a journal. Clones refer to the same drives.
#[derive(Clone, Debug, Default)]
pub struct World(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    fault_changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    journal: Vec<Entry>,
    drives: Vec<DriveState>,
    files: Vec<Vec<u8>>,
    /// Unreadable sectors of files.
    bad: BTreeSet<(usize, u64)>,
}

#[derive(Clone, Debug, Default)]
struct DriveState {
    names: BTreeMap<String, usize>,
    fault: Fault,
    awake: bool,
    wakes: u64,
}

#[derive(Clone, Debug)]
enum Entry {
    Names(usize, Names),
    SyncNames(usize),
    Data(usize, Data),
    Sync(usize),
}

#[derive(Clone, Debug)]
enum Names {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Clone, Debug)]
enum Data {
    Write(u64, Arc<[u8]>),
    Truncate(u64),
}

impl World {
    /// `drives` empty drives, which are awake, and a home.
    pub fn new(drives: usize) -> Self {
        let world = Self::default();
        world.0.state.lock().drives = vec![DriveState { awake: true, ..DriveState::default() }; drives + 1];
        world
    }

    /// A drive. `drive` must be below the number of drives, or the home.
    pub fn directory(&self, drive: usize) -> Box<dyn Directory> {
        assert!(drive < self.0.state.lock().drives.len(), "drive {drive} is there");
        Box::new(MemoryDirectory { world: self.clone(), drive })
    }

    /// All drives, without the home.
    pub fn directories(&self) -> Vec<Box<dyn Directory>> {
        (0..self.home_drive()).map(|drive| self.directory(drive)).collect()
    }

    /// The home of an intake, where its manifest is stored.
    pub fn home(&self) -> Box<dyn Directory> {
        self.directory(self.home_drive())
    }

    /// The number of the home, for faults and files.
    pub fn home_drive(&self) -> usize {
        self.0.state.lock().drives.len() - 1
    }

    /// Entries of the journal so far.
    pub fn position(&self) -> usize {
        self.0.state.lock().journal.len()
    }

    /// Sets the fault of `drive`.
    pub fn set_fault(&self, drive: usize, fault: Fault) {
        self.0.state.lock().drives[drive].fault = fault;
        self.0.fault_changed.notify_all();
    }

    /// True if `drive` is awake, and the number of times that it was started.
    pub fn power(&self, drive: usize) -> (bool, u64) {
        let state = self.0.state.lock();
        (state.drives[drive].awake, state.drives[drive].wakes)
    }

    /// The names and bytes of all files of `drive`.
    pub fn files(&self, drive: usize) -> Vec<(String, Vec<u8>)> {
        let state = self.0.state.lock();
        state.drives[drive].names.iter().map(|(name, file)| (name.clone(), state.files[*file].clone())).collect()
    }

    /// Number of files created on `drive` with names that end with `ending`, without renamed ones.
    pub fn made(&self, drive: usize, ending: &str) -> usize {
        let state = self.0.state.lock();
        let made = state.journal.iter().filter(|entry| match entry {
            Entry::Names(at, Names::Create(name, _)) => *at == drive && name.ends_with(ending),
            _ => false,
        });
        made.count()
    }

    /// Changes bytes of a file durably and unnoticed, as rot does. The file must exist.
    pub fn corrupt(&self, drive: usize, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.state.lock();
        let file = state.drives[drive].names[name];
        change(&mut state.files[file]);
        let bytes = state.files[file].as_slice().into();
        state.journal.extend([Data::Truncate(0), Data::Write(0, bytes)].map(|change| Entry::Data(file, change)));
        state.journal.push(Entry::Sync(file));
    }

    /// Makes a sector of 4,096 bytes of a file unreadable, until the file is removed. The file must exist.
    pub fn spoil(&self, drive: usize, name: &str, sector: u64) {
        let mut state = self.0.state.lock();
        let file = state.drives[drive].names[name];
        state.bad.insert((file, sector));
    }

    /// Replaces the file of that name, if any, by a file with these bytes, or removes it, durably and unnoticed.
    pub fn put_file(&self, drive: usize, name: &str, bytes: Option<Vec<u8>>) {
        let mut state = self.0.state.lock();
        let mut changes = Vec::new();
        if state.drives[drive].names.contains_key(name) {
            changes.push(Names::Remove(name.into()));
        }
        if let Some(bytes) = bytes {
            let file = state.files.len();
            state.journal.push(Entry::Data(file, Data::Write(0, bytes.as_slice().into())));
            state.journal.push(Entry::Sync(file));
            state.files.push(bytes);
            changes.push(Names::Create(name.into(), file));
        }
        for change in changes {
            apply_names(&mut state.drives[drive].names, &change);
            state.journal.push(Entry::Names(drive, change));
        }
        state.journal.push(Entry::SyncNames(drive));
    }

    /// A possible state after a power failure that follows the first `position` entries of the journal. `position` is
    /// at most [`Self::position`]. Faults are gone.
    #[must_use]
    pub fn crash(&self, position: usize, rng: &mut Rng) -> Self {
        self.left(position, |crash| crash.end(rng))
    }

    /// As [`Self::crash`], if only the process dies: all written data lasts.
    #[must_use]
    pub fn kill(&self, position: usize) -> Self {
        self.left(position, Crash::end_whole)
    }

    fn left(&self, position: usize, end: impl FnOnce(Crash) -> State) -> Self {
        let state = self.0.state.lock();
        let mut crash = Crash::new(state.drives.len(), state.files.len());
        for entry in &state.journal[..position] {
            crash.note(entry);
        }
        let after = end(crash);
        Self(Arc::new(Shared { state: Mutex::new(after), fault_changed: Condvar::new() }))
    }

    /// The state, once `drive` answers. Writes are refused if its fault demands it.
    fn request(&self, drive: usize, writes: bool) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.0.state.lock();
        loop {
            match state.drives[drive].fault {
                Fault::Hang => self.0.fault_changed.wait(&mut state),
                Fault::Broken => return Err(io::Error::other("the drive is broken")),
                Fault::ReadOnly if writes => return Err(io::Error::other("the drive takes no writes")),
                _ => return Ok(state),
            }
        }
    }
}

/// The durable content, and the changes that are not durable yet.
struct Crash {
    names: Vec<BTreeMap<String, usize>>,
    unsynced_names: Vec<Vec<Names>>,
    files: Vec<Vec<u8>>,
    unsynced: Vec<Vec<Data>>,
}

impl Crash {
    fn new(drives: usize, files: usize) -> Self {
        let (names, unsynced_names) = (vec![BTreeMap::new(); drives], vec![Vec::new(); drives]);
        Self { names, unsynced_names, files: vec![Vec::new(); files], unsynced: vec![Vec::new(); files] }
    }

    fn note(&mut self, entry: &Entry) {
        match entry {
            Entry::Names(drive, change) => self.unsynced_names[*drive].push(change.clone()),
            Entry::SyncNames(drive) => {
                for change in self.unsynced_names[*drive].drain(..) {
                    apply_names(&mut self.names[*drive], &change);
                }
            }
            Entry::Data(file, change) => self.unsynced[*file].push(change.clone()),
            Entry::Sync(file) => {
                for change in self.unsynced[*file].drain(..) {
                    apply_data(&mut self.files[*file], &change, usize::MAX);
                }
            }
        }
    }

    fn end(mut self, rng: &mut Rng) -> State {
        for (names, changes) in self.names.iter_mut().zip(&self.unsynced_names) {
            let lasting = rng.below(changes.len() as u64 + 1) as usize;
            for change in &changes[..lasting] {
                apply_names(names, change);
            }
        }
        for (bytes, changes) in self.files.iter_mut().zip(&self.unsynced) {
            for change in changes {
                match rng.below(4) {
                    0 => {}
                    1 => apply_data(bytes, change, rng.below(1 << 16) as usize),
                    _ => apply_data(bytes, change, usize::MAX),
                }
            }
        }
        self.state()
    }

    /// Everything lasts.
    fn end_whole(mut self) -> State {
        for (names, changes) in self.names.iter_mut().zip(&self.unsynced_names) {
            for change in changes {
                apply_names(names, change);
            }
        }
        for (bytes, changes) in self.files.iter_mut().zip(&self.unsynced) {
            for change in changes {
                apply_data(bytes, change, usize::MAX);
            }
        }
        self.state()
    }

    fn state(self) -> State {
        let mut state = State { files: self.files, ..State::default() };
        for names in self.names {
            state.drives.push(DriveState { names, awake: true, ..DriveState::default() });
        }
        state.start_journal();
        state
    }
}

impl State {
    /// Records the present content as durable, so that the world can crash again.
    fn start_journal(&mut self) {
        for (drive, state) in self.drives.iter().enumerate() {
            for (name, file) in &state.names {
                self.journal.push(Entry::Names(drive, Names::Create(name.clone(), *file)));
                self.journal.push(Entry::Data(*file, Data::Write(0, self.files[*file].as_slice().into())));
                self.journal.push(Entry::Sync(*file));
            }
            self.journal.push(Entry::SyncNames(drive));
        }
    }
}

fn apply_names(names: &mut BTreeMap<String, usize>, change: &Names) {
    match change {
        Names::Create(name, file) => {
            names.insert(name.clone(), *file);
        }
        Names::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Names::Remove(name) => {
            names.remove(name);
        }
    }
}

/// Applies the first `most` bytes of a change.
fn apply_data(bytes: &mut Vec<u8>, change: &Data, most: usize) {
    match change {
        Data::Write(offset, written) => {
            let written = &written[..written.len().min(most)];
            let end = *offset as usize + written.len();
            if bytes.len() < end && !written.is_empty() {
                bytes.resize(end, 0);
            }
            if !written.is_empty() {
                bytes[*offset as usize..end].copy_from_slice(written);
            }
        }
        Data::Truncate(length) => bytes.resize(*length as usize, 0),
    }
}

#[derive(Debug)]
struct MemoryDirectory {
    world: World,
    drive: usize,
}

impl MemoryDirectory {
    fn change(&self, change: Names) -> io::Result<()> {
        let mut state = self.world.request(self.drive, true)?;
        apply_names(&mut state.drives[self.drive].names, &change);
        state.journal.push(Entry::Names(self.drive, change));
        Ok(())
    }

    fn file(&self, file: usize) -> Box<dyn File> {
        Box::new(MemoryFile { world: self.world.clone(), drive: self.drive, file })
    }
}

impl Directory for MemoryDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.world.request(self.drive, false)?;
        Ok(state.drives[self.drive].names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        let mut state = self.world.request(self.drive, true)?;
        if state.drives[self.drive].fault == Fault::Full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.drives[self.drive].names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(Vec::new());
        drop(state);
        self.change(Names::Create(name.into(), file))?;
        Ok(self.file(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let state = self.world.request(self.drive, false)?;
        let file = state.drives[self.drive].names.get(name).copied();
        file.map(|file| self.file(file)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(Names::Rename(from.into(), to.into()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(Names::Remove(name.into()))
    }

    fn sync(&self) -> io::Result<()> {
        self.world.request(self.drive, true)?.journal.push(Entry::SyncNames(self.drive));
        Ok(())
    }

    fn can_sleep(&self) -> bool {
        true
    }

    fn wake(&self) -> io::Result<()> {
        let mut state = self.world.request(self.drive, false)?;
        let drive = &mut state.drives[self.drive];
        if !drive.awake {
            (drive.awake, drive.wakes) = (true, drive.wakes + 1);
        }
        Ok(())
    }

    fn sleep(&self) -> io::Result<()> {
        self.world.request(self.drive, false)?.drives[self.drive].awake = false;
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    world: World,
    drive: usize,
    file: usize,
}

impl MemoryFile {
    fn change(&self, change: Data) -> io::Result<()> {
        let mut state = self.world.request(self.drive, true)?;
        if state.drives[self.drive].fault == Fault::Full && matches!(change, Data::Write(..)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        apply_data(&mut state.files[self.file], &change, usize::MAX);
        state.journal.push(Entry::Data(self.file, change));
        Ok(())
    }
}

impl File for MemoryFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.world.request(self.drive, false)?.files[self.file].len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.world.request(self.drive, false)?;
        let end = (offset + buffer.len() as u64).div_ceil(SECTOR_BYTES);
        if state.bad.range((self.file, offset / SECTOR_BYTES)..(self.file, end)).next().is_some() {
            return Err(Errno::IO.into());
        }
        let from = state.files[self.file].get(offset as usize..).unwrap_or_default();
        let from = from.get(..buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(Data::Write(offset, bytes.into()))
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.change(Data::Truncate(bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.world.request(self.drive, true)?.journal.push(Entry::Sync(self.file));
        Ok(())
    }
}
