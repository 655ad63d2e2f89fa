//! The manifest: the list of the files of a pool, stored apart from them, in the home of the intake.
//!
//! A directory does not show what is missing from it. The manifest names each log and each shelf, with its length and
//! the bounds of its content, so that a file that is missing, emptied, cut short, older than it was or replaced by
//! another is noticed when the pool is opened, and the loss has bounds.
//!
//! **Invariants**
//! - A file is named before it is the only one with acknowledged records, and until its removal may begin.
//! - The recorded synced length of a log is at most [`EXTENT_AGE`] old while the log grows, and exact once it is left
//!   or the intake is closed. A crash followed by a cut may remove this much from its end unnoticed, and no more.
//! - Changes that belong together are one change of the manifest: a shelf that replaces files is named as they are
//!   given up. Until then it is a draft, under any name.
//!
//! **On the medium** are two slots with the same contents: a generation, and a checksum of everything. A change is
//! written to both, one after the other, each synced; a change that only extends lengths is written to one of them, in
//! turn. The valid slot with the higher generation counts, so a damaged or torn slot costs nothing.

use crate::bytes::{Damage, Fields, crc32c, put_text};
use crate::lost::LostPart;
use crate::medium::{Directory, File};
use crate::names::{DriveUuid, FileId, Name, PoolUuid};
use crate::record::Sequence;
use crate::shelf::read::Shelf;
use crate::table::LogTable;
use lineage::Generation;
use std::io;
use std::time::Duration;

/// Maximum age of recorded lengths while a log grows.
pub(crate) const EXTENT_AGE: Duration = Duration::from_millis(500);

/// The format version that is written. Older ones are read as well: version 1 does not say what rotations had, and
/// versions 1 and 2 do not say which of them lag.
const VERSION: u32 = 3;

const MAGIC: [u8; 8] = *b"LARDMNFT";

/// Bytes before the checksummed rest: magic, version, length.
const FRONT_BYTES: usize = 8 + 4 + 4;

/// Number of runs that are remembered. A file of any other run does not belong to this manifest.
const RUNS_MAX: usize = 256;

/// Bytes by which a slot grows, so that it seldom needs room.
const SLOT_STEP: usize = 64 << 10;

/// The role of a file in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its content may be nowhere else.
    Live,
    /// A log that is already a shelf, retained for a caller that has not caught up.
    Retained,
    /// Its drive was away, and its rotation is complete without it: the file is dead, wherever it is.
    Replaced,
    /// It was missing, and its content is known to be lost. It counts if it exists again.
    Lost,
    /// Its removal may have begun.
    Dead,
}

impl State {
    const ALL: [Self; 5] = [Self::Live, Self::Retained, Self::Replaced, Self::Lost, Self::Dead];
}

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Log,
    Shelf,
}

impl FileKind {
    /// The name of a file of this kind.
    pub(crate) fn name(self, file: FileId) -> Name {
        match self {
            Self::Log => Name::Log(file),
            Self::Shelf => Name::Shelf(file),
        }
    }
}

/// A file of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: FileKind,
    pub(crate) state: State,
    pub(crate) drive: DriveUuid,
    pub(crate) file: FileId,
    /// Its length; for an open log, the length that is known to be synced.
    pub(crate) bytes: u64,
    /// True if it grows no more.
    pub(crate) sealed: bool,
    /// The largest number in it, or hidden by it.
    pub(crate) last: Sequence,
    /// The first and the last key of its possible losses; `None` means any key.
    pub(crate) keys: Option<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// A log that is read and written, with its durable length.
    pub(crate) fn of_log(table: &LogTable, sealed: bool) -> Self {
        let index = table.index.read();
        let ends = index.keys.first_key_value().zip(index.keys.last_key_value());
        let keys = ends.map(|((first, _), (last, _))| (first.to_vec(), last.to_vec()));
        Self {
            kind: FileKind::Log,
            state: State::Live,
            drive: table.drive.uuid,
            file: table.file,
            bytes: index.bytes,
            sealed,
            last: index.last,
            keys: keys.filter(|_| sealed && index.masks.is_empty() && index.lost.is_empty()),
        }
    }

    /// A shelf.
    pub(crate) fn of_shelf(shelf: &Shelf) -> Self {
        let keys = shelf.keys().map(|(first, last)| (first.to_vec(), last.to_vec()));
        Self {
            kind: FileKind::Shelf,
            state: State::Live,
            drive: shelf.drive.uuid,
            file: shelf.file,
            bytes: shelf.bytes,
            sealed: true,
            last: shelf.last(),
            keys: keys.filter(|_| shelf.masks().is_empty() && shelf.lost().is_empty()),
        }
    }

    /// A file with the name of a shelf that counts no more, and cannot be read as one.
    pub(crate) fn of_dead_shelf(drive: DriveUuid, file: FileId) -> Self {
        let (kind, state) = (FileKind::Shelf, State::Dead);
        Self { kind, state, drive, file, bytes: 0, sealed: true, last: Sequence(0), keys: None }
    }

    /// The same log, as long as it was once: an end that it has lost is lost as long as it is a log.
    pub(crate) fn not_shorter_than(self, old: Option<&Self>) -> Self {
        let Some(old) = old.filter(|old| old.bytes > self.bytes) else { return self };
        Self { bytes: old.bytes, last: self.last.max(old.last), keys: None, ..self }
    }

    /// The part that is lost with it.
    pub(crate) fn lost_part(&self) -> LostPart {
        LostPart { keys: self.keys.clone(), max: self.last }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let state = State::ALL.iter().position(|state| *state == self.state).unwrap_or_default();
        out.push(u8::from(self.kind == FileKind::Shelf));
        out.push(state as u8);
        out.push(u8::from(self.sealed));
        out.push(u8::from(self.keys.is_some()));
        out.extend_from_slice(&self.drive.0.to_le_bytes());
        self.file.put(out);
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.last.0.to_le_bytes());
        if let Some((first, last)) = &self.keys {
            put_text(out, first);
            put_text(out, last);
        }
    }

    fn take(fields: &mut Fields<'_>) -> Result<Self, Damage> {
        let kind = if fields.u8()? == 0 { FileKind::Log } else { FileKind::Shelf };
        let state = State::ALL.get(usize::from(fields.u8()?)).copied().ok_or(Damage::Field("state of a file"))?;
        let (sealed, has_keys) = (fields.u8()? != 0, fields.u8()? != 0);
        let (drive, file) = (DriveUuid(fields.u128()?), FileId::take(fields)?);
        let (bytes, last) = (fields.u64()?, Sequence(fields.u64()?));
        let keys = if has_keys { Some((fields.text()?.to_vec(), fields.text()?.to_vec())) } else { None };
        Ok(Self { kind, state, drive, file, bytes, sealed, last, keys })
    }
}

/// The standing of an existing file in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It counts.
    Alive,
    /// It no longer counts. A log may be retained.
    Dead,
    /// It is not named: the last run made it, and it was not yet in use.
    Draft,
    /// It is not named: an earlier run made it, and it is dead.
    Left,
    /// It is not named, and its run is unknown: the manifest is older.
    Strange,
}

/// The contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) pool: PoolUuid,
    /// Counts the changes.
    pub(crate) generation: Generation,
    /// The nonces of the runs that made files, the latest last.
    pub(crate) runs: Vec<u64>,
    /// Drives that were missing when the manifest was made, and the last number at that time: their files are unknown.
    pub(crate) unknown: Vec<(DriveUuid, Sequence)>,
    /// For each rotation the last change that it is known to have taken, with all before; none in version 1. Its files
    /// may not show that number: a change that forgets leaves no record in a shelf.
    pub(crate) had: Vec<Sequence>,
    /// For each rotation, true if it may lack changes that were acknowledged; none before version 3.
    pub(crate) lagging: Vec<bool>,
    pub(crate) files: Vec<Entry>,
}

impl Manifest {
    pub(crate) fn entry(&self, file: FileId) -> Option<&Entry> {
        self.files.iter().find(|entry| entry.file == file)
    }

    /// True if `rotation` may lack changes that were acknowledged.
    pub(crate) fn may_lag(&self, rotation: usize) -> bool {
        self.lagging.get(rotation).copied().unwrap_or(true)
    }

    /// Removes the entry of `file`.
    pub(crate) fn drop(&mut self, file: FileId) {
        self.files.retain(|entry| entry.file != file);
    }

    /// Adds `entry`, in place of one for the same file.
    pub(crate) fn name(&mut self, entry: Entry) {
        self.drop(entry.file);
        self.files.push(entry);
    }

    /// Updates the entries of these logs, which have grown.
    pub(crate) fn extend(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            let old = self.files.iter_mut().find(|old| old.file == entry.file && old.state == State::Live);
            if let Some(old) = old {
                *old = entry.not_shorter_than(Some(old));
            }
        }
    }

    /// Gives these files up: logs for a caller that may need them, shelves permanently.
    pub(crate) fn give_up(&mut self, files: &[FileId]) {
        for entry in self.files.iter_mut().filter(|entry| files.contains(&entry.file)) {
            entry.state = match (entry.kind, entry.state) {
                (_, State::Dead) | (FileKind::Shelf, _) => State::Dead,
                (FileKind::Log, _) => State::Retained,
            };
        }
    }

    /// Allows the removal of these files from now on.
    pub(crate) fn bury(&mut self, files: &[FileId]) {
        self.files.iter_mut().filter(|entry| files.contains(&entry.file)).for_each(|entry| entry.state = State::Dead);
    }

    /// Notes that the rotation of these `drives` is complete again; some of them are `there`.
    pub(crate) fn heal(&mut self, drives: &[DriveUuid], there: &[DriveUuid]) {
        self.files.retain(|entry| entry.state != State::Lost || !drives.contains(&entry.drive));
        let is_away = |entry: &Entry| drives.contains(&entry.drive) && !there.contains(&entry.drive);
        for entry in self.files.iter_mut().filter(|entry| entry.state == State::Live && is_away(entry)) {
            entry.state = State::Replaced;
        }
    }

    /// Starts a run, whose files have this nonce.
    pub(crate) fn begin_run(&mut self, nonce: u64) {
        let kept = self.runs.len().saturating_sub(RUNS_MAX - 1);
        self.runs.drain(..kept);
        self.runs.push(nonce);
    }

    /// The standing of a file that is on `drive`.
    pub(crate) fn standing(&self, drive: DriveUuid, file: FileId) -> Standing {
        if let Some(entry) = self.entry(file) {
            return match entry.state {
                State::Live | State::Lost => Standing::Alive,
                // Newer files may not show on that drive that a key is deleted.
                State::Replaced | State::Retained | State::Dead => Standing::Dead,
            };
        }
        let is_unknown = self.unknown.iter().any(|(unknown, _)| *unknown == drive);
        match self.runs.iter().rposition(|run| *run == file.nonce) {
            _ if is_unknown => Standing::Alive,
            Some(run) if run + 1 == self.runs.len() => Standing::Draft,
            Some(_) => Standing::Left,
            None => Standing::Strange,
        }
    }

    /// The last number in any file.
    pub(crate) fn last(&self) -> Sequence {
        self.files.iter().map(|entry| entry.last).max().unwrap_or_default()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.pool.0.to_le_bytes());
        out.extend_from_slice(&self.generation.0.to_le_bytes());
        out.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.unknown.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.files.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.had.len() as u32).to_le_bytes());
        self.runs.iter().for_each(|run| out.extend_from_slice(&run.to_le_bytes()));
        for (drive, last) in &self.unknown {
            out.extend_from_slice(&drive.0.to_le_bytes());
            out.extend_from_slice(&last.0.to_le_bytes());
        }
        assert_eq!(self.had.len(), self.lagging.len(), "both are of all rotations");
        self.had.iter().for_each(|had| out.extend_from_slice(&had.0.to_le_bytes()));
        self.lagging.iter().for_each(|lags| out.push(u8::from(*lags)));
        self.files.iter().for_each(|entry| entry.put(&mut out));
        let length = out.len() as u32 + 4;
        out[12..FRONT_BYTES].copy_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut fields = Fields(bytes);
        if fields.take(MAGIC.len())? != MAGIC {
            return Err(Damage::Magic);
        }
        let (version, length) = (fields.u32()?, fields.u32()? as usize);
        let whole = bytes.get(..length).filter(|whole| whole.len() >= FRONT_BYTES + 4).ok_or(Damage::Short)?;
        let (body, seal) = whole.split_at(length - 4);
        if seal != crc32c(body).to_le_bytes() {
            return Err(Damage::Checksum);
        }
        if !(1..=VERSION).contains(&version) {
            return Err(Damage::Version(version));
        }
        let mut fields = Fields(&body[FRONT_BYTES..]);
        let mut manifest =
            Self { pool: PoolUuid(fields.u128()?), generation: Generation(fields.u64()?), ..Self::default() };
        let (runs, unknown, files) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let rotations = if version == 1 { 0 } else { fields.u32()? };
        for _ in 0..runs {
            manifest.runs.push(fields.u64()?);
        }
        for _ in 0..unknown {
            manifest.unknown.push((DriveUuid(fields.u128()?), Sequence(fields.u64()?)));
        }
        for _ in 0..rotations {
            manifest.had.push(Sequence(fields.u64()?));
        }
        for _ in 0..if version < 3 { 0 } else { rotations } {
            manifest.lagging.push(fields.u8()? != 0);
        }
        for _ in 0..files {
            manifest.files.push(Entry::take(&mut fields)?);
        }
        fields.end()?;
        Ok(manifest)
    }
}

/// The result of looking for a manifest.
#[derive(Debug)]
pub(crate) enum Persisted {
    /// It was found.
    Whole(Manifest),
    /// No slot exists.
    None,
    /// Both slots are damaged, or one is and the other is missing.
    Damaged(Damage),
}

/// The two slots of a pool's manifest.
#[derive(Debug)]
pub(crate) struct Slots {
    home: Box<dyn Directory>,
    pool: PoolUuid,
    files: [Option<Box<dyn File>>; 2],
    /// The slot for the next change of lengths.
    next: usize,
    /// True if nothing is written.
    is_look: bool,
}

impl Slots {
    /// The slots of `pool` in `home`, and their content.
    pub(crate) fn open(home: Box<dyn Directory>, pool: PoolUuid, is_look: bool) -> io::Result<(Self, Persisted)> {
        let mut slots = Self { home, pool, files: [None, None], next: 0, is_look };
        let (mut newest, mut damage): (Option<Manifest>, _) = (None, None);
        for slot in 0..2 {
            let found = slots.read(slot)?;
            match found {
                Some(Ok(manifest)) if manifest.generation.is_after(newest.as_ref().map(|best| best.generation)) => {
                    newest = Some(manifest);
                    slots.next = 1 - slot;
                }
                Some(Err(error)) => damage = Some(error),
                _ => {}
            }
        }
        let kept = newest.map(Persisted::Whole).or(damage.map(Persisted::Damaged)).unwrap_or(Persisted::None);
        Ok((slots, kept))
    }

    fn place(&self, slot: usize) -> String {
        format!("intake-{:032x}.manifest-{slot}", self.pool.0)
    }

    fn read(&mut self, slot: usize) -> io::Result<Option<Result<Manifest, Damage>>> {
        let name = self.place(slot);
        let opened = if self.is_look { self.home.open_to_read(&name) } else { self.home.open(&name) };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; file.bytes()? as usize];
        let read = file.read_at(&mut bytes, 0).map(|()| Manifest::decode(&bytes));
        self.files[slot] = Some(file);
        let found = match read {
            Ok(Ok(manifest)) if manifest.pool != self.pool => Err(Damage::Elsewhere),
            Ok(found) => found,
            // The other slot exists for the case of an unreadable sector.
            Err(_) => Err(Damage::Short),
        };
        Ok(Some(found))
    }

    fn write(&mut self, slot: usize, bytes: &[u8]) -> io::Result<()> {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(SLOT_STEP), 0);
        if let Some(file) = &self.files[slot] {
            let is_long = file.bytes().is_ok_and(|length| length >= padded.len() as u64);
            file.write_at(if is_long { bytes } else { &padded }, 0)?;
            return file.sync();
        }
        let file = self.home.create(&self.place(slot))?;
        file.write_at(&padded, 0)?;
        file.sync()?;
        self.home.sync()?;
        self.files[slot] = Some(file);
        Ok(())
    }
}

/// The manifest of an open pool.
#[derive(Debug)]
pub(crate) struct ManifestWriter {
    manifest: Manifest,
    slots: Slots,
    /// A write failed, so the contents of a slot are unknown.
    is_uncertain: bool,
}

impl ManifestWriter {
    /// Stores `manifest` in `slots` from now on.
    pub(crate) fn begin(slots: Slots, manifest: Manifest) -> io::Result<Self> {
        let mut keeper = Self { manifest, slots, is_uncertain: true };
        keeper.change(|_| ())?;
        Ok(keeper)
    }

    /// Its content.
    #[cfg(test)]
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Makes a change, which is durable when this returns. After an error it is not made; as long as the manifest is
    /// [uncertain](Self::is_uncertain), a crash may nevertheless show it.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Manifest)) -> io::Result<()> {
        let before = self.manifest.clone();
        let mut changed = before.clone();
        change(&mut changed);
        self.write(changed, &[0, 1]).inspect_err(|_| {
            // Restores the former content.
            self.write(before, &[0, 1]).ok();
        })
    }

    /// The same for lengths of open logs. Only one slot receives them, so the newest may be lost with it.
    pub(crate) fn extend(&mut self, change: impl FnOnce(&mut Manifest)) -> io::Result<()> {
        let mut changed = self.manifest.clone();
        change(&mut changed);
        let known = (&self.manifest.files, &self.manifest.had, &self.manifest.lagging);
        if (&changed.files, &changed.had, &changed.lagging) == known {
            return Ok(());
        }
        let slots: &[usize] = if self.is_uncertain { &[0, 1] } else { &[self.slots.next] };
        self.write(changed, slots)
    }

    /// True if a failed change may be in a slot.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.is_uncertain
    }

    fn write(&mut self, mut changed: Manifest, slots: &[usize]) -> io::Result<()> {
        // The number of a failed change is never used again: a slot may have it.
        self.manifest.generation = self.manifest.generation.next();
        changed.generation = self.manifest.generation;
        if !self.slots.is_look {
            let (bytes, was_uncertain) = (changed.encode(), self.is_uncertain);
            self.is_uncertain = true;
            for slot in slots {
                self.slots.write(*slot, &bytes)?;
                self.slots.next = 1 - slot;
            }
            self.is_uncertain = was_uncertain && slots.len() < 2;
        }
        self.manifest = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::memory::World;

    fn manifest() -> Manifest {
        let file = |count| FileId { nonce: 5, count };
        let entry = |count, kind, state| Entry {
            kind,
            state,
            drive: DriveUuid(9),
            file: file(count),
            bytes: 4096 + count,
            sealed: count > 1,
            last: Sequence(count * 10),
            keys: (kind == FileKind::Shelf).then(|| (b"a".to_vec(), b"z".to_vec())),
        };
        let mut manifest =
            Manifest { pool: PoolUuid(3), unknown: vec![(DriveUuid(8), Sequence(2))], ..Manifest::default() };
        (manifest.had, manifest.lagging) = (vec![Sequence(40), Sequence(30)], vec![false, true]);
        manifest.begin_run(4);
        manifest.begin_run(5);
        manifest.name(entry(1, FileKind::Log, State::Live));
        manifest.name(entry(2, FileKind::Log, State::Retained));
        manifest.name(entry(3, FileKind::Shelf, State::Live));
        manifest.name(entry(4, FileKind::Shelf, State::Replaced));
        manifest
    }

    fn kept(world: &World) -> Persisted {
        Slots::open(world.home(), PoolUuid(3), false).expect("the home works").1
    }

    fn begun(world: &World) -> ManifestWriter {
        let (slots, kept) = Slots::open(world.home(), PoolUuid(3), false).expect("the home works");
        assert!(matches!(kept, Persisted::None));
        ManifestWriter::begin(slots, manifest()).expect("there is room")
    }

    #[test]
    fn a_slot_that_is_damaged_in_any_way_costs_nothing() {
        let world = World::new(1);
        let mut keeper = begun(&world);
        keeper.change(|manifest| manifest.give_up(&[FileId { nonce: 5, count: 3 }])).expect("there is room");
        let expected = keeper.manifest().clone();
        let names: Vec<String> = world.home().list().expect("it works");
        assert_eq!(names.len(), 2);
        let length = expected.encode().len();
        for name in &names {
            for at in (0..length).step_by(3) {
                world.corrupt(world.home_drive(), name, |bytes| bytes[at] ^= 4);
                assert!(matches!(kept(&world), Persisted::Whole(found) if found == expected), "byte {at}");
                world.corrupt(world.home_drive(), name, |bytes| bytes[at] ^= 4);
            }
        }
        for name in &names {
            world.corrupt(world.home_drive(), name, |bytes| bytes.truncate(40));
        }
        assert!(matches!(kept(&world), Persisted::Damaged(_)));
    }

    #[test]
    fn lengths_are_written_to_one_slot_and_a_crash_leaves_one_of_the_last_two() {
        let world = World::new(1);
        let mut keeper = begun(&world);
        for bytes in [5_000, 6_000, 7_000] {
            let extend = |manifest: &mut Manifest| {
                manifest.files[0].bytes = bytes;
            };
            keeper.extend(extend).expect("there is room");
            let Persisted::Whole(found) = kept(&world) else { panic!("it is there") };
            assert_eq!(&found, keeper.manifest());
        }
        let before = world.position();
        keeper.extend(|manifest| manifest.files[0].bytes = 8_000).expect("there is room");
        for position in before..=world.position() {
            let left = world.crash(position, &mut model::Rng::new(position as u64));
            let Persisted::Whole(found) = kept(&left) else { panic!("one slot is whole") };
            assert!([7_000, 8_000].contains(&found.files[0].bytes));
        }
    }

    #[test]
    fn a_file_that_is_not_named_is_a_draft_of_the_last_run_or_left_by_one_before_or_strange() {
        let manifest = manifest();
        let unnamed = |nonce| manifest.standing(DriveUuid(9), FileId { nonce, count: 99 });
        assert_eq!([5, 4, 3].map(unnamed), [Standing::Draft, Standing::Left, Standing::Strange]);
        let on_unknown = manifest.standing(DriveUuid(8), FileId { nonce: 3, count: 99 });
        assert_eq!(on_unknown, Standing::Alive);
    }
}
