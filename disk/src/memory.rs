//! A drive in memory, for tests and for racks in virtual time.
//!
//! It executes each call when the future is first polled, on the caller's thread. Bytes that are not synced are lost by
//! [`MemoryDrive::crash`]; faults are injected on demand, including calls that hang ([`MemoryDrive::hang`]).
//!
//! The model of a crash: a file remembers the bytes that each unsynced write replaced, and whether its name was ever
//! synced. Invariant: undoing those writes backwards gives the bytes of the last sync. Synced bytes are stored once.

use crate::{Buffer, Drive, DriveError, FileName, Space};
use async_trait::async_trait;
use model::{Rng, Smart};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The unit that a torn crash preserves or loses as a whole.
const SECTOR_BYTES: usize = 4096;

/// One unsynced write: its place, and the bytes before it; `None` means zeros, as in a file that was never synced.
struct Undo {
    range: Range<usize>,
    before: Option<Vec<u8>>,
}

impl Undo {
    /// Undoes the sectors that did not reach the medium.
    fn apply(&self, bytes: &mut [u8], survives: &mut impl FnMut() -> bool) {
        for at in self.range.clone().step_by(SECTOR_BYTES) {
            let sector = at..self.range.end.min(at + SECTOR_BYTES);
            if survives() {
                continue;
            }
            match &self.before {
                Some(before) => {
                    let old = sector.start - self.range.start..sector.end - self.range.start;
                    bytes[sector].copy_from_slice(&before[old]);
                }
                None => bytes[sector].fill(0),
            }
        }
    }
}

#[derive(Default)]
struct File {
    bytes: Vec<u8>,
    undo: Vec<Undo>,
    name_is_durable: bool,
}

/// A call, for the record and for choosing faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryCall {
    /// `create`: the file.
    Create(FileName),
    /// `write_at`: the file, offset, length.
    Write(FileName, u64, u64),
    /// `read_at`: the file, offset, length.
    Read(FileName, u64, u64),
    /// `sync`: the file.
    Sync(FileName),
    /// `remove`: the file.
    Remove(FileName),
    /// `replace`: the file, and its new name.
    Replace(FileName, FileName),
    /// `remove_many`: the number of files.
    RemoveMany(usize),
    /// `len`: the file.
    Len(FileName),
    /// `list`, `space` or `health`.
    Look,
    /// `spin_up`.
    SpinUp,
    /// `mount`.
    Mount,
    /// `unmount`.
    Unmount,
    /// `stop`.
    Stop,
}

impl MemoryCall {
    /// True for calls that move bytes or change a file: these are recorded, and fail on demand.
    fn is_transfer(&self) -> bool {
        let changes = matches!(self, Self::Create(_) | Self::Write(..) | Self::Remove(_) | Self::RemoveMany(_));
        changes || matches!(self, Self::Replace(..) | Self::Read(..) | Self::Sync(_))
    }
}

/// Returns the time for which a call hangs, if it does.
type Hang = Arc<dyn Fn(&MemoryCall) -> Option<Duration> + Send + Sync>;

#[derive(Default)]
struct Medium {
    capacity_bytes: u64,
    files: BTreeMap<FileName, File>,
    /// Calls until one fails: 1 is the next one.
    fail_in: Option<u64>,
    dead: bool,
    /// File and byte ranges that cannot be read until they are written again.
    unreadable: Vec<(FileName, u64, u64)>,
    calls: Option<Vec<MemoryCall>>,
    hang: Option<Hang>,
    health: Option<Smart>,
}

/// A drive in memory. Always ready; the power commands do nothing.
#[derive(Default)]
pub struct MemoryDrive {
    state: Mutex<Medium>,
}

fn medium_error(what: &str) -> DriveError {
    DriveError::of_system(what.to_owned(), io::Error::from_raw_os_error(5))
}

impl MemoryDrive {
    /// An empty drive of `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        Self { state: Mutex::new(Medium { capacity_bytes, ..Medium::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, Medium> {
        self.state.lock()
    }

    /// The power fails: everything that was not synced is lost, including names.
    pub fn crash(&self) {
        self.crash_with(|| false);
    }

    /// The power fails, and a random part of the unsynced sectors reached the medium.
    pub fn crash_torn(&self, rng: &mut Rng) {
        self.crash_with(|| rng.below(2) == 0);
    }

    fn crash_with(&self, mut survives: impl FnMut() -> bool) {
        self.state().files.retain(|_, file| {
            for undo in file.undo.drain(..).rev() {
                undo.apply(&mut file.bytes, &mut survives);
            }
            file.name_is_durable = file.name_is_durable || survives();
            file.name_is_durable
        });
    }

    /// The `n`th call from now on fails, once: 1 is the next. Only calls that move bytes or change files count.
    pub fn fail_call(&self, n: u64) {
        assert!(n > 0, "calls are counted from 1");
        self.state().fail_in = Some(n);
    }

    /// Makes every call fail from now on, or none any more.
    pub fn set_dead(&self, dead: bool) {
        self.state().dead = dead;
    }

    /// From now on, calls for which `hang` returns a time do nothing for that time. They then need tokio's clock.
    pub fn hang(&self, hang: impl Fn(&MemoryCall) -> Option<Duration> + Send + Sync + 'static) {
        self.state().hang = Some(Arc::new(hang));
    }

    /// Makes no call hang from now on.
    pub fn stop_hanging(&self) {
        self.state().hang = None;
    }

    /// Sets its health report.
    pub fn set_health(&self, health: Smart) {
        self.state().health = Some(health);
    }

    /// Changes the capacity of the drive, down to making it full.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.state().capacity_bytes = capacity_bytes;
    }

    /// Flips the bits of `mask` in one byte of a file, unnoticed. The byte must exist.
    pub fn flip_bit(&self, name: &FileName, offset: u64, mask: u8) {
        let mut state = self.state();
        let file = state.files.get_mut(name).expect("a bit is flipped in a file that is there");
        file.bytes[offset as usize] ^= mask;
    }

    /// Makes bytes of a file unreadable until they are written again, like a bad sector.
    pub fn make_unreadable(&self, name: &FileName, offset: u64, bytes: u64) {
        self.state().unreadable.push((name.clone(), offset, bytes));
    }

    /// Cuts a file to `bytes`, unnoticed. It must have been longer.
    pub fn cut_file(&self, name: &FileName, bytes: u64) {
        let mut state = self.state();
        let file = state.files.get_mut(name).expect("a file is cut that is there");
        assert!(bytes < file.bytes.len() as u64, "a file is cut shorter");
        file.bytes.truncate(bytes as usize);
    }

    /// Loses a file, unnoticed. False if it did not exist.
    pub fn lose_file(&self, name: &FileName) -> bool {
        self.state().files.remove(name).is_some()
    }

    /// A file's bytes, as a reader would find them.
    pub fn contents(&self, name: &FileName) -> Option<Vec<u8>> {
        self.state().files.get(name).map(|file| file.bytes.clone())
    }

    /// A part of a file's bytes; `None` if the file has no such part.
    pub fn contents_of(&self, name: &FileName, offset: u64, len: usize) -> Option<Vec<u8>> {
        let state = self.state();
        let file = state.files.get(name)?;
        Some(file.bytes[part(name, file, offset, len).ok()?].to_vec())
    }

    /// A file's length in bytes.
    pub fn contents_len(&self, name: &FileName) -> Option<u64> {
        self.state().files.get(name).map(|file| file.bytes.len() as u64)
    }

    /// The names of all files, in order.
    pub fn names(&self) -> Vec<FileName> {
        self.state().files.keys().cloned().collect()
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.state().files.values().map(|file| file.bytes.len() as u64).sum()
    }

    /// Starts a list of calls.
    pub fn record_calls(&self) {
        self.state().calls = Some(Vec::new());
    }

    /// The calls since [`record_calls`](Self::record_calls); starts a new list.
    pub fn recorded_calls(&self) -> Vec<MemoryCall> {
        self.state().calls.replace(Vec::new()).unwrap_or_default()
    }

    /// The medium, after `call` has hung for its time, unless another fault is due.
    async fn begin(&self, call: MemoryCall) -> Result<MutexGuard<'_, Medium>, DriveError> {
        let hang = self.state().hang.clone();
        if let Some(span) = hang.and_then(|hang| hang(&call)) {
            tokio::time::sleep(span).await;
        }
        let mut state = self.state();
        if call.is_transfer() {
            state.admit(call)?;
        }
        Ok(state)
    }
}

impl Medium {
    fn admit(&mut self, call: MemoryCall) -> Result<(), DriveError> {
        if let Some(calls) = &mut self.calls {
            calls.push(call);
        }
        if self.dead {
            return Err(medium_error("the drive is dead"));
        }
        if let Some(left) = &mut self.fail_in {
            *left -= 1;
            if *left == 0 {
                self.fail_in = None;
                return Err(medium_error("an injected fault"));
            }
        }
        Ok(())
    }

    fn space(&self) -> Space {
        let used_bytes: u64 = self.files.values().map(|file| file.bytes.len() as u64).sum();
        Space { capacity_bytes: self.capacity_bytes, free_bytes: self.capacity_bytes.saturating_sub(used_bytes) }
    }

    fn file(&mut self, name: &FileName) -> Result<&mut File, DriveError> {
        self.files.get_mut(name).ok_or_else(|| DriveError::NotFound(name.clone()))
    }

    fn is_unreadable(&self, name: &FileName, offset: u64, bytes: u64) -> bool {
        self.unreadable.iter().any(|(file, at, len)| file == name && *at < offset + bytes && offset < at + len)
    }
}

/// The range of a transfer within a file, if the file is long enough.
fn part(name: &FileName, file: &File, offset: u64, len: usize) -> Result<Range<usize>, DriveError> {
    let end = offset.checked_add(len as u64).filter(|end| *end <= file.bytes.len() as u64);
    end.map(|end| offset as usize..end as usize).ok_or_else(|| DriveError::Short(name.clone()))
}

#[async_trait]
impl Drive for MemoryDrive {
    async fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let mut state = self.begin(MemoryCall::Create(name.clone())).await?;
        if state.files.contains_key(name) {
            return Err(DriveError::Exists(name.clone()));
        }
        if bytes > state.space().free_bytes {
            return Err(DriveError::Full);
        }
        let file = File { bytes: vec![0; bytes as usize], ..File::default() };
        state.files.insert(name.clone(), file);
        Ok(())
    }

    async fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError> {
        let len = data.len() as u64;
        let mut state = self.begin(MemoryCall::Write(name.clone(), offset, len)).await?;
        let file = state.file(name)?;
        let range = part(name, file, offset, data.len())?;
        let before = file.name_is_durable.then(|| file.bytes[range.clone()].to_vec());
        file.undo.push(Undo { range: range.clone(), before });
        file.bytes[range].copy_from_slice(&data);
        let covered = |at: u64, bytes: u64| offset <= at && at + bytes <= offset + len;
        state.unreadable.retain(|(file, at, bytes)| file != name || !covered(*at, *bytes));
        Ok(data)
    }

    async fn read_at(&self, name: &FileName, offset: u64, mut into: Buffer) -> Result<Buffer, DriveError> {
        let len = into.len() as u64;
        let mut state = self.begin(MemoryCall::Read(name.clone(), offset, len)).await?;
        let file = state.file(name)?;
        let range = part(name, file, offset, into.len())?;
        into.copy_from_slice(&file.bytes[range]);
        if state.is_unreadable(name, offset, len) {
            return Err(medium_error("a sector cannot be read"));
        }
        Ok(into)
    }

    async fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        let mut state = self.begin(MemoryCall::Sync(name.clone())).await?;
        let file = state.file(name)?;
        file.undo.clear();
        file.name_is_durable = true;
        Ok(())
    }

    async fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        let mut state = self.begin(MemoryCall::Remove(name.clone())).await?;
        state.files.remove(name).map(drop).ok_or_else(|| DriveError::NotFound(name.clone()))
    }

    async fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        let mut state = self.begin(MemoryCall::Replace(from.clone(), to.clone())).await?;
        let mut file = state.files.remove(from).ok_or_else(|| DriveError::NotFound(from.clone()))?;
        file.name_is_durable = true;
        state.files.insert(to.clone(), file);
        state.unreadable.retain(|(file, ..)| file != to);
        state.unreadable.iter_mut().filter(|(file, ..)| file == from).for_each(|(file, ..)| *file = to.clone());
        Ok(())
    }

    async fn remove_many(&self, names: Vec<FileName>) -> Vec<Result<u64, DriveError>> {
        let mut state = match self.begin(MemoryCall::RemoveMany(names.len())).await {
            Ok(state) => state,
            Err(error) => {
                let text = error.to_string();
                return names.iter().map(|_| Err(medium_error(&text))).collect();
            }
        };
        let mut gone = |name: FileName| state.files.remove(&name).ok_or(DriveError::NotFound(name));
        names.into_iter().map(|name| gone(name).map(|file| file.bytes.len() as u64)).collect()
    }

    async fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        Ok(self.begin(MemoryCall::Len(name.clone())).await?.file(name)?.bytes.len() as u64)
    }

    async fn list(&self) -> Result<Vec<FileName>, DriveError> {
        Ok(self.begin(MemoryCall::Look).await?.files.keys().cloned().collect())
    }

    async fn space(&self) -> Result<Space, DriveError> {
        Ok(self.begin(MemoryCall::Look).await?.space())
    }

    async fn health(&self) -> Result<Option<Smart>, DriveError> {
        Ok(self.begin(MemoryCall::Look).await?.health)
    }

    async fn spin_up(&self) -> Result<(), DriveError> {
        self.begin(MemoryCall::SpinUp).await.map(drop)
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        Ok(self.begin(MemoryCall::Mount).await?.space())
    }

    async fn unmount(&self) -> Result<(), DriveError> {
        self.begin(MemoryCall::Unmount).await.map(drop)
    }

    async fn stop(&self) -> Result<(), DriveError> {
        self.begin(MemoryCall::Stop).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn name(name: &str) -> FileName {
        FileName::new(name).unwrap()
    }

    #[tokio::test]
    async fn a_crash_loses_what_was_not_synced_and_nothing_else() {
        let drive = MemoryDrive::new(1 << 20);
        for file in ["synced", "lost"] {
            drive.create(&name(file), 8).await.unwrap();
            drive.write_at(&name(file), 0, Buffer::copy_of(b"12345678")).await.unwrap();
        }
        drive.sync(&name("synced")).await.unwrap();
        drive.write_at(&name("synced"), 0, Buffer::copy_of(b"ab")).await.unwrap();
        drive.write_at(&name("synced"), 1, Buffer::copy_of(b"cd")).await.unwrap();
        drive.crash();
        assert_eq!(drive.contents(&name("synced")).unwrap(), b"12345678");
        assert_eq!(drive.contents(&name("lost")), None);
    }

    #[tokio::test]
    async fn a_torn_crash_preserves_or_loses_whole_sectors() {
        let drive = MemoryDrive::new(1 << 20);
        drive.create(&name("torn"), 64 * 4096).await.unwrap();
        drive.sync(&name("torn")).await.unwrap();
        drive.write_at(&name("torn"), 0, Buffer::copy_of(&vec![1; 64 * 4096])).await.unwrap();
        drive.crash_torn(&mut Rng::new(3));
        let left = drive.contents(&name("torn")).unwrap();
        let written = left.chunks(4096).filter(|sector| sector.iter().all(|b| *b == 1)).count();
        let lost = left.chunks(4096).filter(|sector| sector.iter().all(|b| *b == 0)).count();
        assert_eq!(written + lost, 64);
        assert!(written > 0 && lost > 0);
    }

    #[tokio::test]
    async fn injected_faults_come_when_they_are_due() {
        let drive = MemoryDrive::new(1 << 20);
        drive.fail_call(2);
        drive.create(&name("a"), 4096).await.unwrap();
        assert!(matches!(drive.sync(&name("a")).await, Err(DriveError::Medium { .. })));
        drive.sync(&name("a")).await.unwrap();
        drive.make_unreadable(&name("a"), 10, 1);
        assert!(drive.read_at(&name("a"), 0, Buffer::zeroed(11)).await.is_err());
        assert!(drive.read_at(&name("a"), 11, Buffer::zeroed(100)).await.is_ok());
        drive.write_at(&name("a"), 0, Buffer::zeroed(4096)).await.unwrap();
        assert!(drive.read_at(&name("a"), 0, Buffer::zeroed(4096)).await.is_ok());
        drive.set_dead(true);
        assert!(drive.create(&name("b"), 1).await.is_err());
    }
}
