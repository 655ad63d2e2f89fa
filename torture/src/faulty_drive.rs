//! A drive in memory that depends on its site's power and has the faults of its overlay.

use crate::journal::{Journal, Rule};
use crate::kinds::FaultKind;
use crate::overlay::{Armed, FileFaults, Overlay, SECTOR_BYTES, State};
use crate::power::Power;
use async_trait::async_trait;
use disk::label::{self, Label, LabelError, RackUuid};
use disk::{Buffer, Drive, DriveError, FileName, MemoryDrive, Space};
use model::DriveId;
use model::sabotage::{Sabotage, is_on};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The rack's UUID.
pub(crate) const RACK: RackUuid = RackUuid([8; 16]);

/// The kinds of calls that armed faults distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Read,
    Write,
    Sync,
    /// Creates or removes a file.
    Change,
    /// Queries lengths and names.
    Look,
    Command,
}

/// The wait for a silent drive is divided into steps, since its silence may never end.
const HANG_STEP: Duration = Duration::from_hours(24);

/// A drive with faults. The disks of workshop and spool come after the drives of the rack.
pub(crate) struct FaultyDrive {
    pub(crate) number: usize,
    pub(crate) overlay: Overlay,
    pub(crate) power: Power,
    pub(crate) journal: Arc<Journal>,
}

fn io_error(what: &str) -> DriveError {
    DriveError::of_system(what.to_owned(), io::Error::from_raw_os_error(5))
}

impl FaultyDrive {
    fn medium(&self) -> Arc<MemoryDrive> {
        Arc::clone(self.overlay.state().medium(self.number))
    }

    /// Waits while the drive is silent or slow. Then returns the fault that is due, if any, or an error if the drive
    /// does not do the call.
    ///
    /// A call never reaches a drive that has replaced the one that it was meant for: after a drive is pulled, the
    /// system answers its open calls with an error.
    async fn begin(&self, call: Call) -> Result<Option<FaultKind>, DriveError> {
        self.power.step().await;
        if call != Call::Command {
            self.is_the_right_one(call);
        }
        let asked = self.medium();
        self.silence_ends(&asked).await;
        let slow = {
            let (state, now) = (self.overlay.state(), self.journal.now_ms());
            let conditions = &state.drives[self.number].conditions;
            (conditions.slow_until > now).then_some(conditions.slow_by)
        };
        if let Some(slow) = slow.filter(|_| self.is_there(&asked)) {
            tokio::time::sleep(slow).await;
        }
        if self.is_there(&asked) { self.admit(call) } else { Err(io_error("the drive that was asked was pulled")) }
    }

    /// Waits while the drive is silent and no other drive has replaced `asked`.
    async fn silence_ends(&self, asked: &Arc<MemoryDrive>) {
        loop {
            let replaced = self.overlay.replaced();
            let is_replaced = replaced.notified();
            let wait = {
                let (state, now) = (self.overlay.state(), self.journal.now_ms());
                Duration::from_millis(state.drives[self.number].conditions.silent_until.saturating_sub(now))
            };
            if wait.is_zero() || !self.is_there(asked) {
                return;
            }
            tokio::select! {
                biased;
                () = is_replaced => {}
                () = tokio::time::sleep(wait.min(HANG_STEP)) => {}
            }
        }
    }

    /// True if no other drive has replaced `asked`.
    fn is_there(&self, asked: &Arc<MemoryDrive>) -> bool {
        Arc::ptr_eq(asked, self.overlay.state().medium(self.number))
    }

    /// Checks that no drive that showed another's label is used.
    fn is_the_right_one(&self, call: Call) {
        let another = self.overlay.state().drives[self.number].is_another;
        self.journal.demand(!another, Rule::Identity, || {
            format!("drive {} is used ({call:?}), and showed another's label or none", self.number)
        });
    }

    fn admit(&self, call: Call) -> Result<Option<FaultKind>, DriveError> {
        let mut state = self.overlay.state();
        let now = self.journal.now_ms();
        let faults = &mut state.drives[self.number];
        if (faults.destroyed && !faults.emptied) || faults.conditions.dead_until > now {
            let is_pulled = faults.conditions.away_until > now;
            return Err(if is_pulled {
                DriveError::Gone("an empty slot".into())
            } else {
                io_error("the drive is dead")
            });
        }
        let Some(due) = faults.due(call) else { return Ok(None) };
        if due.kind == FaultKind::FailedCall
            || due.kind == FaultKind::WorkshopFails
            || due.kind == FaultKind::SpoolFails
        {
            state.count(due.kind);
            drop(state);
            self.journal.note(|| format!("a call to drive {} fails", self.number));
            return Err(io_error("an injected fault"));
        }
        Ok(Some(due.kind))
    }

    async fn end<T>(&self, answer: Result<T, DriveError>) -> Result<T, DriveError> {
        self.power.step().await;
        answer
    }

    /// An error if the file is lost.
    fn is_here(&self, name: &FileName) -> Result<(), DriveError> {
        let state = self.overlay.state();
        let lost = state.drives[self.number].faults_of(name).is_some_and(|file| file.lost);
        if lost { Err(DriveError::NotFound(name.clone())) } else { Ok(()) }
    }

    async fn read(&self, name: &FileName, offset: u64, into: Buffer) -> Result<Buffer, DriveError> {
        self.begin(Call::Read).await?;
        self.is_here(name)?;
        let mut read = self.medium().read_at(name, offset, into).await?;
        let state = self.overlay.state();
        if let Some(faults) = state.drives[self.number].faults_of(name) {
            let end = offset + read.len() as u64;
            if faults.unreadable.iter().any(|bad| bad.start < end && offset < bad.end) {
                return Err(io_error("a sector cannot be read"));
            }
            faults.distort(offset, &mut read);
        }
        Ok(read)
    }

    fn foreign(&self, found: DriveId) -> DriveError {
        LabelError::ForeignDrive { found, expected: DriveId(self.number as u32) }.into()
    }

    /// Mounts a copy of drive `other` in this slot: checks its label against this slot like every label.
    async fn compare_with_clone(&self, other: usize) -> Result<Space, DriveError> {
        let medium = Arc::clone(self.overlay.state().medium(other));
        let expected = Label { rack: RACK, rack_name: String::new(), drive: DriveId(self.number as u32) };
        label::check(&*medium, &expected).await?;
        medium.space().await
    }

    async fn write(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError> {
        let due = self.begin(Call::Write).await?;
        self.is_here(name)?;
        let len = data.len();
        if due == Some(FaultKind::TornWrite) && len as u64 > SECTOR_BYTES {
            let half = len / 2 / SECTOR_BYTES as usize * SECTOR_BYTES as usize;
            self.medium().write_at(name, offset, Buffer::copy_of(&data[..half])).await?;
            self.written(name, &(offset..offset + half as u64));
            self.overlay.count(FaultKind::TornWrite);
            self.journal.note(|| format!("a write of {name} to drive {} fails half done", self.number));
            return Err(io_error("a write failed half done"));
        }
        let misled = due.filter(|kind| matches!(kind, FaultKind::LostWrite | FaultKind::MisdirectedWrite));
        let before = misled.and_then(|kind| Some((kind, self.medium().contents_of(name, offset, len)?)));
        let data = self.medium().write_at(name, offset, data).await?;
        let range = offset..offset + len as u64;
        match before {
            Some((kind, before)) => self.misled(name, &range, (kind, before, &data)),
            None => self.written(name, &range),
        }
        Ok(data)
    }

    fn written(&self, name: &FileName, range: &Range<u64>) {
        let mut state = self.overlay.state();
        let file = state.drives[self.number].file(name);
        file.written(range);
        file.unsynced.push(range.clone());
    }

    /// The write to `range` was lost, or went elsewhere.
    fn misled(&self, name: &FileName, range: &Range<u64>, (kind, mut before, data): (FaultKind, Vec<u8>, &[u8])) {
        let mut state = self.overlay.state();
        if !state.may_corrupt(name) {
            drop(state);
            return self.written(name, range);
        }
        let number = self.number;
        let file = state.drives[number].file(name);
        file.distort(range.start, &mut before);
        file.written(range);
        file.unsynced.push(range.clone());
        file.stale.insert(range.start, before);
        state.count(kind);
        let victim = (kind == FaultKind::MisdirectedWrite).then(|| victim(&mut state, number, data.len())).flatten();
        if let Some((victim, at)) = &victim {
            let file = state.drives[number].file(victim);
            file.written(&(*at..at + data.len() as u64));
            file.stale.insert(*at, data.to_vec());
        }
        drop(state);
        let to = victim.map_or_else(|| "nowhere".to_owned(), |(victim, at)| format!("to {victim} at {at}"));
        self.journal.note(|| format!("a write of {name} at {} on drive {number} goes {to}", range.start));
    }

    async fn remove_file(&self, name: &FileName) -> Result<(), DriveError> {
        self.begin(Call::Change).await?;
        let is_here = self.is_here(name);
        let removed = self.overlay.state().drives[self.number].files.remove(name);
        let bytes = self.medium().contents_len(name).unwrap_or(0);
        let foreign = removed.is_some_and(|file| file.shows_another(bytes));
        self.journal.demand(!foreign, Rule::Identity, || {
            format!("{name} is removed from drive {}, and is another rack's", self.number)
        });
        let removed = self.medium().remove(name).await;
        is_here.and(removed)
    }

    async fn replace_file(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        self.begin(Call::Change).await?;
        self.is_here(from)?;
        // A lost file belongs to no rack.
        let was_there = self.is_here(to).is_ok();
        let bytes = self.medium().contents_len(to).unwrap_or(0);
        let (faults, replaced) = {
            let mut state = self.overlay.state();
            let files = &mut state.drives[self.number].files;
            (files.remove(from), files.remove(to))
        };
        let foreign = was_there && replaced.is_some_and(|file| file.shows_another(bytes));
        self.journal.demand(!foreign, Rule::Identity, || {
            format!("{to} is replaced on drive {}, and is another rack's", self.number)
        });
        self.medium().replace(from, to).await?;
        if let Some(faults) = faults {
            self.overlay.state().drives[self.number].files.insert(to.clone(), faults);
        }
        Ok(())
    }

    async fn sync_file(&self, name: &FileName) -> Result<(), DriveError> {
        let due = self.begin(Call::Sync).await?;
        self.is_here(name)?;
        self.medium().sync(name).await?;
        let mut state = self.overlay.state();
        if due == Some(FaultKind::LostSync) && state.may_corrupt(name) {
            state.drives[self.number].file(name).lied = true;
            state.count(FaultKind::LostSync);
            drop(state);
            self.journal.note(|| format!("a sync of {name} on drive {} is not done", self.number));
            return Ok(());
        }
        state.drives[self.number].flushed(name);
        Ok(())
    }
}

impl crate::overlay::DriveFaults {
    /// The armed fault that is due at this call.
    fn due(&mut self, call: Call) -> Option<Armed> {
        let concerns = |kind: FaultKind| match kind {
            FaultKind::LostWrite | FaultKind::MisdirectedWrite | FaultKind::TornWrite => call == Call::Write,
            FaultKind::LostSync => call == Call::Sync,
            _ => matches!(call, Call::Read | Call::Write | Call::Sync | Call::Change),
        };
        for armed in self.armed.iter_mut().filter(|armed| concerns(armed.kind)) {
            armed.calls = armed.calls.saturating_sub(1);
        }
        let at = self.armed.iter().position(|armed| armed.calls == 0 && concerns(armed.kind))?;
        Some(self.armed.remove(at))
    }

    /// The written data of `name` is durable.
    fn flushed(&mut self, name: &FileName) {
        let file = self.file(name);
        file.lied = false;
        file.unsynced.clear();
        self.forget_if_sound(name);
    }

    /// The written data of every file is durable.
    fn flush(&mut self) {
        let lied: Vec<FileName> =
            self.files.iter().filter(|(_, file)| file.lied).map(|(name, _)| name.clone()).collect();
        for name in &lied {
            self.flushed(name);
        }
    }

    fn forget_if_sound(&mut self, name: &FileName) {
        if self.files.get(name).is_some_and(FileFaults::is_sound) {
            self.files.remove(name);
        }
    }
}

impl FileFaults {
    fn is_sound(&self) -> bool {
        let none = self.rot.is_empty() && self.unreadable.is_empty() && self.stale.is_empty();
        none && !self.lost && !self.lied && !self.foreign && !self.is_back && self.unsynced.is_empty()
    }
}

/// A place on `drive` where a misdirected write of `len` bytes may land.
fn victim(state: &mut State, drive: usize, len: usize) -> Option<(FileName, u64)> {
    let names = state.medium(drive).names();
    let name = names.get(state.below(names.len().max(1) as u64) as usize)?.clone();
    let bytes = state.medium(drive).contents_len(&name)?;
    let places = bytes.checked_sub(len as u64)? / SECTOR_BYTES + 1;
    let at = state.below(places) * SECTOR_BYTES;
    (at + len as u64 <= bytes && state.may_corrupt(&name)).then_some((name, at))
}

#[async_trait]
impl Drive for FaultyDrive {
    async fn create(&self, name: &FileName, bytes: u64) -> Result<(), DriveError> {
        let begun = self.begin(Call::Change).await;
        let is_full = {
            let (state, now) = (self.overlay.state(), self.journal.now_ms());
            state.drives[self.number].conditions.full_until > now
        };
        let made = match begun {
            Err(error) => Err(error),
            Ok(_) if is_full => Err(DriveError::Full),
            Ok(_) => {
                let medium = self.medium();
                let is_lost = self.overlay.state().drives[self.number].faults_of(name).is_some_and(|file| file.lost);
                if is_lost {
                    medium.lose_file(name);
                }
                let made = medium.create(name, bytes).await;
                // A file that already exists stays as it is.
                if made.is_ok() {
                    self.overlay.state().drives[self.number].files.remove(name);
                }
                made
            }
        };
        self.end(made).await
    }

    async fn write_at(&self, name: &FileName, offset: u64, data: Buffer) -> Result<Buffer, DriveError> {
        let written = self.write(name, offset, data).await;
        self.end(written).await
    }

    async fn read_at(&self, name: &FileName, offset: u64, into: Buffer) -> Result<Buffer, DriveError> {
        let read = self.read(name, offset, into).await;
        self.end(read).await
    }

    async fn sync(&self, name: &FileName) -> Result<(), DriveError> {
        let synced = self.sync_file(name).await;
        self.end(synced).await
    }

    async fn remove(&self, name: &FileName) -> Result<(), DriveError> {
        let removed = self.remove_file(name).await;
        self.end(removed).await
    }

    async fn replace(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        let replaced = self.replace_file(from, to).await;
        self.end(replaced).await
    }

    async fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        self.begin(Call::Look).await?;
        self.is_here(name)?;
        self.medium().len(name).await
    }

    async fn list(&self) -> Result<Vec<FileName>, DriveError> {
        self.begin(Call::Look).await?;
        let mut names = self.medium().list().await?;
        let state = self.overlay.state();
        names.retain(|name| !state.drives[self.number].faults_of(name).is_some_and(|file| file.lost));
        Ok(names)
    }

    async fn space(&self) -> Result<Space, DriveError> {
        self.begin(Call::Look).await?;
        let space = self.medium().space().await?;
        let (state, now) = (self.overlay.state(), self.journal.now_ms());
        let full = state.drives[self.number].conditions.full_until > now;
        Ok(Space { free_bytes: if full { 0 } else { space.free_bytes }, ..space })
    }

    async fn spin_up(&self) -> Result<(), DriveError> {
        self.begin(Call::Command).await?;
        let (fails, late) = {
            let (state, now) = (self.overlay.state(), self.journal.now_ms());
            let conditions = &state.drives[self.number].conditions;
            let late = (conditions.slow_start_until > now).then_some(conditions.slow_start_by);
            (conditions.no_start_until > now, late)
        };
        if let Some(late) = late {
            tokio::time::sleep(late).await;
        }
        self.end(if fails { Err(io_error("the platters do not turn")) } else { Ok(()) }).await
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        self.begin(Call::Command).await?;
        let (wrong, clone_of, emptied) = {
            let (mut state, now) = (self.overlay.state(), self.journal.now_ms());
            let drive = &mut state.drives[self.number];
            let wrong = drive.conditions.wrong_label_until > now;
            let clone_of = (drive.conditions.clone_until > now).then_some(drive.conditions.clone_of);
            drive.is_another = wrong || clone_of.is_some() || drive.emptied;
            (wrong, clone_of, drive.emptied)
        };
        let mounted = if is_on(Sabotage::DriveLabelUnchecked) || (emptied && is_on(Sabotage::MissingLabelIgnored)) {
            self.medium().space().await
        } else if emptied {
            Err(LabelError::Missing.into())
        } else if wrong {
            Err(self.foreign(DriveId(u32::MAX)))
        } else if let Some(other) = clone_of {
            self.compare_with_clone(other).await
        } else {
            self.medium().space().await
        };
        self.end(mounted).await
    }

    async fn unmount(&self) -> Result<(), DriveError> {
        self.begin(Call::Command).await?;
        // The contents of a drive's cache reach its medium before it stops.
        self.overlay.state().drives[self.number].flush();
        self.end(Ok(())).await
    }

    async fn stop(&self) -> Result<(), DriveError> {
        self.begin(Call::Command).await?;
        self.end(Ok(())).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use disk::stack::stack_name;
    use model::{BlobId, Rng};

    #[tokio::test(start_paused = true)]
    async fn a_call_that_a_drive_owes_never_reaches_the_one_that_takes_its_place() {
        let new = || Arc::new(MemoryDrive::new(1 << 20));
        let overlay = Overlay::new(vec![new()], 1, (false, Rng::new(1)));
        let drive = |overlay: &Overlay| FaultyDrive {
            number: 0,
            overlay: overlay.clone(),
            power: Power::default(),
            journal: Arc::default(),
        };
        let name = stack_name(BlobId::new(1, 2), 0);
        for (silent_until, slow_until) in [(u64::MAX, 0), (0, u64::MAX)] {
            {
                let conditions = &mut overlay.state().drives[0].conditions;
                (conditions.silent_until, conditions.slow_until) = (silent_until, slow_until);
                conditions.slow_by = Duration::from_secs(9);
            }
            let asked = drive(&overlay);
            let mut owed = asked.create(&name, 4096);
            assert!(futures::poll!(&mut owed).is_pending());
            let another = new();
            overlay.state().replace(0, Arc::clone(&another));
            let owed = tokio::time::timeout(Duration::from_secs(10), owed).await;
            assert!(owed.unwrap().is_err(), "it is answered soon, with an error");
            assert_eq!(another.names(), []);
            drive(&overlay).create(&name, 4096).await.unwrap();
        }
    }
}
