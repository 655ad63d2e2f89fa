//! Opening a pool: reads what its drives hold, after any failure.
//!
//! 1. Labels show which drives belong together, and which are missing.
//! 2. Shelves with their final name are opened; unfinished ones are removed.
//! 3. Every shelf lists the files that are dead because it is whole. Dead shelves are removed; dead logs as soon as the
//!    caller knows their changes.
//! 4. Logs are read, torn tails cut, rot reported. Readers use their indexes until they are shelves.
//!
//! Memory and time are bounded by the logs (one image at a time, and all indexes) and by the number of shelves, not by
//! the content of the shelves.

use crate::audit::{self, Findings, Lack, may_have_records};
use crate::bytes::Damage;
use crate::config::Config;
use crate::drive::Drive;
use crate::error::{OpenError, ReadError};
use crate::log::{self, Known, LogHeader, Previous, RECORDS_OFFSET, Rot};
use crate::lost::{Loss, LostPart};
use crate::manifest::{Entry, Manifest, Slots, Standing, State};
use crate::medium::{Directory, File, read_past_bad_sectors};
use crate::names::{DriveUuid, FileId, Identity, Name};
use crate::pool::{self, Pool};
use crate::record::{HEAD_BYTES, Sequence, decode};
use crate::repairing::note_opened;
use crate::shared::{CycleShared, Shared, Unreadable};
use crate::shelf::read::Shelf;
use crate::table::{Index, LogTable};
use crate::transform::remove;
use crate::view::View;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A log as described by its header.
struct FoundLog {
    drive: Arc<Drive>,
    medium: Box<dyn File>,
    /// `None` if the header is damaged.
    header: Option<LogHeader>,
    file: FileId,
}

/// The content of the drives of one rotation.
#[derive(Default)]
struct Found {
    logs: Vec<FoundLog>,
    shelves: Vec<Arc<Shelf>>,
    /// Wholly unreadable files with the name of a shelf, and the damage.
    unreadable: Vec<(Unreadable, Damage)>,
    /// Files with the name of a log and the header of another.
    misnamed: Vec<(Arc<Drive>, FileId)>,
    /// True if a file cannot be read.
    lost_file: bool,
    losses: Vec<Loss>,
}

/// The drives and the contents of one rotation.
#[derive(Default)]
pub(crate) struct OpenedCycle {
    /// By position; `None` for a missing drive.
    pub(crate) drives: Vec<Option<Arc<Drive>>>,
    /// Oldest first.
    pub(crate) logs: Vec<Arc<LogTable>>,
    /// Logs that are already shelves.
    pub(crate) dead: Vec<Arc<LogTable>>,
    /// The log that was on duty last.
    pub(crate) previous: Option<Previous>,
    /// Bytes of torn tails.
    pub(crate) torn: u64,
    pub(crate) missing: Vec<DriveUuid>,
    /// True if a file cannot be read, so its content is unknown.
    lost_file: bool,
    pub(crate) findings: Findings,
    /// Dead shelves that are wholly unreadable.
    unread: Vec<Unreadable>,
}

/// Opens the pool in `directories`, whose manifest is in `home`.
pub(crate) fn open(
    home: Box<dyn Directory>,
    directories: Vec<Box<dyn Directory>>,
    config: Config,
) -> Result<(Arc<Shared>, Vec<OpenedCycle>), OpenError> {
    let pool = pool::open(&directories, config.entropy)?;
    let (slots, kept) = Slots::open(home, pool.uuid, config.is_look).map_err(OpenError::Home)?;
    let (manifest, problem) = audit::manifest(kept, pool.has_manifest(), &config)?;
    let Pool { uuid, members, drives, unwritable, .. } = &pool;
    let cycles = members.iter().map(|member| usize::from(member.cycle) + 1).max().unwrap_or(1);
    let shared = Arc::new(Shared::new(config, *uuid, cycles));
    for (number, cycle) in shared.cycles.iter().enumerate() {
        cycle.set_may_lag(manifest.as_ref().is_none_or(|manifest| manifest.may_lag(number)));
    }
    let mut there = BTreeMap::new();
    for (at, (directory, uuid)) in directories.into_iter().zip(drives).enumerate() {
        let drive = Arc::new(Drive::new(*uuid, directory, shared.config.driver));
        if unwritable.contains(&at) {
            drive.set_lost();
        }
        there.insert(*uuid, drive);
    }
    let lacks_one = |number: usize| {
        let mut members = members.iter().filter(|member| usize::from(member.cycle) == number);
        members.any(|member| there.get(&member.uuid).is_none_or(|drive| drive.directory.list().is_err()))
    };
    if shared.config.needs_all && (0..cycles).all(lacks_one) {
        return Err(OpenError::LacksDrives);
    }
    let mut opened = Vec::new();
    for number in 0..cycles {
        let members = members.iter().filter(|member| usize::from(member.cycle) == number);
        let drives: Vec<_> = members.map(|member| (member.uuid, there.get(&member.uuid).cloned())).collect();
        let missing = drives.iter().filter(|(_, drive)| drive.is_none()).map(|(uuid, _)| *uuid).collect();
        opened.push(OpenedCycle { missing, ..open_cycle(&shared, number, drives, manifest.as_ref())? });
    }
    // Everything until now may have been on a missing drive.
    let max = Sequence(shared.last.load(Ordering::Relaxed));
    for (cycle, opened) in shared.cycles.iter().zip(&opened) {
        if opened.lost_file || cycle.view().missing {
            cycle.change(|view| view.without([LostPart { keys: None, max }]));
        }
    }
    note_opened(&shared, max);
    let lags = note_what_others_lost(&shared);
    if shared.config.needs_all && (0..cycles).all(|number| lacks_one(number) || lags[number]) {
        return Err(OpenError::LacksDrives);
    }
    let found: Vec<_> =
        opened.iter().map(|cycle| (&cycle.findings, [cycle.logs.as_slice(), cycle.dead.as_slice()])).collect();
    audit::check(&shared, &found)?;
    audit::begin(&shared, slots, manifest, &found)?;
    if !shared.config.is_look {
        pool.note_manifest(there.values());
    }
    if let Some(problem) = problem {
        tracing::error!("the manifest of the pool {problem}; it is rebuilt from the files that exist");
    }
    for (cycle, opened) in shared.cycles.iter().zip(&mut opened) {
        opened.clear_away(cycle);
    }
    // Only now is it known what each rotation has.
    for (cycle, opened) in shared.cycles.iter().zip(&mut opened) {
        opened.findings.losses.drain(..).for_each(|loss| shared.lose_unless_elsewhere(cycle, loss));
    }
    Ok((shared, opened))
}

/// Records changes after a rotation's last number that the other rotation has lost: no rotation can restore them, so
/// they are lost to both. For each rotation, true if this applies. A rotation that does not lag lacks only changes that
/// were not acknowledged.
fn note_what_others_lost(shared: &Shared) -> Vec<bool> {
    let views: Vec<_> = shared.cycles.iter().map(CycleShared::view).collect();
    let mut lags = Vec::new();
    for (number, cycle) in shared.cycles.iter().enumerate() {
        let others = views.iter().enumerate().filter(|(other, _)| *other != number && !views[number].missing);
        let had = cycle.had();
        let lost = others.flat_map(|(_, other)| &other.lost[0]).filter(|part| cycle.may_lag() && part.max > had);
        let lost: Vec<LostPart> = lost.cloned().collect();
        lags.push(!lost.is_empty());
        if !lost.is_empty() {
            cycle.change(|view| view.without(lost));
        }
    }
    lags
}

fn open_cycle(
    shared: &Shared,
    number: usize,
    members: Vec<(DriveUuid, Option<Arc<Drive>>)>,
    manifest: Option<&Manifest>,
) -> Result<OpenedCycle, OpenError> {
    let drives: Vec<_> = members.iter().map(|(_, drive)| drive.clone()).collect();
    let mut found = Found::default();
    for (at, drive) in drives.iter().enumerate() {
        let Some(drive) = drive else { continue };
        if let Err(error) = look(shared, drive, &mut found) {
            tracing::error!(%error, drive = %drive.uuid, "a drive of the pool cannot be read");
            drive.set_lost();
            if drives.len() == 1 {
                return Err(OpenError::Drive { drive: at, error });
            }
        }
    }
    let cycle = &shared.cycles[number];
    assert!(cycle.drives.set(members).is_ok(), "a rotation is opened once");
    let missing = drives.iter().any(|drive| drive.as_ref().is_none_or(|drive| drive.is_lost()));
    let lost_file = found.lost_file;
    let mut opened = OpenedCycle { drives, lost_file, ..Default::default() };
    opened.findings.losses.append(&mut found.losses);
    let (shelves, dead, drafts_count) = opened.sort_out(cycle, &mut found, manifest);
    cycle.undeleted.lock().extend(&dead);
    let kept = opened.give_up(cycle, found.unreadable, (&dead, drafts_count), manifest);
    opened.look_at_misnamed(found.misnamed, &dead, manifest);
    // Numbers that a mask hides, and those of losses, were also given out, though the records are gone: a lower number
    // is never given again.
    let last = shelves.iter().map(|shelf| shelf.last()).max().unwrap_or_default();
    read_logs(shared, found.logs, &dead, manifest, &mut opened);
    if !missing {
        // Dead files that do not exist are permanently gone.
        let there: BTreeSet<FileId> = opened.dead.iter().map(|table| table.file).chain(kept).collect();
        cycle.undeleted.lock().retain(|file| there.contains(file));
    }
    let tables = || opened.logs.iter().chain(&opened.dead);
    let in_logs = tables().map(|table| table.index.read().last).max().unwrap_or_default();
    // A shelf without an entry was not in use yet.
    let was_used = |shelf: &&Arc<Shelf>| manifest.is_none_or(|manifest| manifest.entry(shelf.file).is_some());
    let gone = opened.findings.gone.iter().filter(was_used);
    let in_shelves = gone.map(|shelf| shelf.last()).fold(last, Sequence::max);
    let known = manifest.and_then(|manifest| manifest.had.get(number)).copied().unwrap_or_default();
    cycle.has_taken(in_logs.max(in_shelves).max(known));
    let logs = tables().map(|table| table.index.read().last.max(before(table.first)));
    let named = manifest.map(Manifest::last).unwrap_or_default();
    let last = logs.max().unwrap_or_default().max(last).max(named).max(known);
    shared.last.fetch_max(last.0, Ordering::Relaxed);
    cycle.change(|_| {
        let mut view = View { logs: opened.logs.clone(), shelves, missing, ..View::default() };
        view.lost[0].append(&mut opened.findings.lost);
        view.settle();
        view
    });
    Ok(opened)
}

impl OpenedCycle {
    /// The shelves that count, the dead files, and whether drafts count. Also records absent files.
    fn sort_out(
        &mut self,
        cycle: &CycleShared,
        found: &mut Found,
        manifest: Option<&Manifest>,
    ) -> (Vec<Arc<Shelf>>, BTreeSet<FileId>, bool) {
        let standing = |drive: &Drive, file| audit::standing(manifest, drive, file);
        let logs = found.logs.iter().map(|log| log.file).chain(found.misnamed.iter().map(|(_, file)| *file));
        let shelves = found.shelves.iter().map(|shelf| shelf.file);
        let unreadable = found.unreadable.iter().map(|(shelf, _)| shelf.file);
        let there: Vec<FileId> = logs.chain(shelves).chain(unreadable).collect();
        let absent = audit::absent(manifest, &cycle.members().1, &there);
        let (mut shelves, mut drafts) = (Vec::new(), Vec::new());
        for shelf in found.shelves.drain(..) {
            match standing(&shelf.drive, shelf.file) {
                Standing::Alive => shelves.push(shelf),
                Standing::Dead => self.findings.gone.push(shelf),
                Standing::Draft | Standing::Left => drafts.push(shelf),
                Standing::Strange => {
                    self.findings.strange.push(Name::Shelf(shelf.file).to_string());
                    shelves.push(shelf);
                }
            }
        }
        // If a needed file is absent, its records may be in drafts.
        let drafts_count = absent.iter().any(|entry| entry.state != State::Retained);
        if drafts_count {
            shelves.append(&mut drafts);
        } else {
            self.findings.gone.append(&mut drafts);
        }
        let mut dead: BTreeSet<FileId> = shelves.iter().flat_map(|shelf| shelf.superseded()).copied().collect();
        for log in &found.logs {
            match standing(&log.drive, log.file) {
                Standing::Dead | Standing::Left => drop(dead.insert(log.file)),
                Standing::Strange => self.findings.strange.push(Name::Log(log.file).to_string()),
                Standing::Alive | Standing::Draft => {}
            }
        }
        let (superseded, shelves) = shelves.into_iter().partition::<Vec<_>, _>(|shelf| dead.contains(&shelf.file));
        self.findings.gone.extend(superseded);
        let drives = self.drives.clone();
        absent
            .into_iter()
            .filter(|entry| entry.state == State::Retained || !dead.contains(&entry.file))
            .for_each(|entry| self.findings.miss(&drives, entry));
        (shelves, dead, drafts_count)
    }

    /// Records the unreadable shelves. Returns the dead ones that stay.
    fn give_up(
        &mut self,
        cycle: &CycleShared,
        unreadable: Vec<(Unreadable, Damage)>,
        (dead, drafts_count): (&BTreeSet<FileId>, bool),
        manifest: Option<&Manifest>,
    ) -> Vec<FileId> {
        let mut kept = Vec::new();
        for (shelf, damage) in unreadable {
            let entry = manifest.and_then(|manifest| manifest.entry(shelf.file));
            // Nothing that was acknowledged is in a file that is not named, unless a named one is absent.
            let counts = match audit::standing(manifest, &shelf.drive, shelf.file) {
                Standing::Alive | Standing::Strange => !dead.contains(&shelf.file),
                Standing::Draft | Standing::Left => drafts_count && !dead.contains(&shelf.file),
                Standing::Dead => false,
            };
            match (counts, shelf.is_kept) {
                (false, true) => {
                    kept.push(shelf.file);
                    self.findings.kept.push(Entry::of_dead_shelf(shelf.drive.uuid, shelf.file));
                }
                (false, false) => self.unread.push(shelf),
                (true, _) => {
                    self.lose(&shelf.drive, Name::Shelf(shelf.file).to_string(), damage.to_string(), entry);
                    cycle.unreadable.lock().push(shelf);
                }
            }
        }
        kept
    }

    /// Handles files with the name of a log and the header of another: the room of a dead log, or a loss.
    fn look_at_misnamed(
        &mut self,
        misnamed: Vec<(Arc<Drive>, FileId)>,
        dead: &BTreeSet<FileId>,
        manifest: Option<&Manifest>,
    ) {
        for (drive, file) in misnamed {
            let name = Name::Log(file).to_string();
            let entry = manifest.and_then(|manifest| manifest.entry(file)).filter(|entry| may_have_records(entry));
            match is_room(&drive, &name, dead) {
                Ok(true) if entry.is_none() => drop(drive.directory.remove(&name)),
                Ok(_) => self.lose(&drive, name, Damage::Elsewhere.to_string(), entry),
                Err(error) => self.lose(&drive, name, error.to_string(), entry),
            }
            self.findings.absent.extend(entry.cloned());
        }
    }

    /// Removes the files that do not count.
    fn clear_away(&mut self, cycle: &CycleShared) {
        for shelf in self.findings.gone.drain(..) {
            remove(cycle, &shelf.drive, Name::Shelf(shelf.file));
        }
        for shelf in self.unread.drain(..) {
            remove(cycle, &shelf.drive, Name::Shelf(shelf.file));
        }
    }

    /// Records an unreadable file. `entry` is its entry in the manifest.
    fn lose(&mut self, drive: &Drive, name: String, problem: String, entry: Option<&Entry>) {
        match entry {
            Some(entry) => {
                self.findings.lost.push(entry.lost_part());
                if entry.state == State::Live {
                    let what = format!("{name} (in {}: {problem})", drive.directory.place());
                    self.findings.lacks.push(Lack { what, last: entry.last });
                }
            }
            None => self.lost_file = true,
        }
        self.findings.losses.push(Loss::File { name, drive: drive.uuid, problem });
    }
}

fn before(sequence: Sequence) -> Sequence {
    Sequence(sequence.0.saturating_sub(1))
}

/// Collects what lies on a drive.
fn look(shared: &Shared, drive: &Arc<Drive>, found: &mut Found) -> Result<(), ReadError> {
    drive.directory.wake()?;
    for name in drive.directory.list()? {
        let (pool, uuid) = (shared.pool, drive.uuid);
        let identity = |file| Identity { pool, drive: uuid, file };
        let problem = match Name::parse(&name) {
            None => continue,
            Some(Name::Unfinished(_)) => {
                // It was never more than this drive's own draft.
                drive.directory.remove(&name)?;
                continue;
            }
            Some(Name::Shelf(file)) => {
                let medium = drive.directory.open(&name)?;
                match Shelf::open(drive, medium, identity(file)) {
                    Ok(shelf) => {
                        found.shelves.push(Arc::new(shelf));
                        continue;
                    }
                    Err(ReadError::Damaged(damage)) => {
                        let is_kept = matches!(damage, Damage::Elsewhere | Damage::Version(_));
                        found.unreadable.push((Unreadable { drive: Arc::clone(drive), file, is_kept }, damage));
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            Some(Name::Log(file)) => match found_log(drive, &name, identity(file))? {
                Ok(log) => {
                    found.logs.push(log);
                    continue;
                }
                Err(Damage::Elsewhere) => {
                    found.misnamed.push((Arc::clone(drive), file));
                    continue;
                }
                Err(damage) => damage,
            },
        };
        found.lost_file = true;
        found.losses.push(Loss::File { name, drive: drive.uuid, problem: problem.to_string() });
    }
    Ok(())
}

/// A log, or the reason why the file is not a log of this drive.
fn found_log(drive: &Arc<Drive>, name: &str, identity: Identity) -> Result<Result<FoundLog, Damage>, ReadError> {
    let medium = drive.directory.open(name)?;
    let mut bytes = vec![0; medium.bytes()?.min(RECORDS_OFFSET) as usize];
    read_past_bad_sectors(medium.as_ref(), &mut bytes, 0)?;
    let header = match LogHeader::decode(&bytes, identity) {
        Ok(header) => Some(header),
        Err(damage @ (Damage::Elsewhere | Damage::Version(_))) => return Ok(Err(damage)),
        Err(_) => None,
    };
    Ok(Ok(FoundLog { drive: Arc::clone(drive), medium, header, file: identity.file }))
}

/// True if a file with the name of a log is the room of a dead log, in which no log was started.
fn is_room(drive: &Drive, name: &str, dead: &BTreeSet<FileId>) -> Result<bool, ReadError> {
    let medium = drive.directory.open_to_read(name)?;
    let mut bytes = vec![0; medium.bytes()?.min(RECORDS_OFFSET + HEAD_BYTES as u64) as usize];
    read_past_bad_sectors(medium.as_ref(), &mut bytes, 0)?;
    Ok(log::is_room(&bytes, dead.iter().copied()))
}

/// True if a log without a header, whose length is in no later log, never had a record: records come only after the
/// header is durable. Its header may also have been torn while it overwrote that of a dead log.
fn was_never_begun(log: &FoundLog, name: &str, dead: &BTreeSet<FileId>) -> bool {
    let is_empty = log.medium.bytes().is_ok_and(|bytes| bytes <= RECORDS_OFFSET);
    is_empty || is_room(&log.drive, name, dead).unwrap_or(false)
}

/// Reads logs, oldest first.
fn read_logs(
    shared: &Shared,
    mut found: Vec<FoundLog>,
    dead: &BTreeSet<FileId>,
    manifest: Option<&Manifest>,
    opened: &mut OpenedCycle,
) {
    found.sort_by_key(|log| (log.header.map(|header| header.first), log.file));
    let sealed: BTreeMap<FileId, u64> =
        found.iter().filter_map(|log| log.header?.previous).map(|previous| (previous.file, previous.bytes)).collect();
    // Where a number is not known, it is none that was given after the last log was begun.
    let given = before(found.iter().filter_map(|log| log.header).map(|header| header.first).max().unwrap_or_default());
    for log in found {
        let entry = manifest.and_then(|manifest| manifest.entry(log.file));
        let known = known(sealed.get(&log.file).copied(), entry);
        let is_dead = dead.contains(&log.file);
        let name = Name::Log(log.file).to_string();
        let may_be_empty = known.sealed.is_none() && entry.is_none_or(|entry| !may_have_records(entry));
        if log.header.is_none() && may_be_empty && was_never_begun(&log, &name, dead) {
            drop(log.drive.directory.remove(&name));
            continue;
        }
        let alive = entry.filter(|entry| may_have_records(entry));
        let is_short = shared.config.needs_all && known.sealed.is_none();
        if alive.is_some() && is_short && log.medium.bytes().is_ok_and(|bytes| bytes < RECORDS_OFFSET) {
            opened.lose(&log.drive, name, "it is cut off within its header".into(), alive);
            opened.findings.absent.extend(alive.cloned());
            continue;
        }
        match read_log(&log, known) {
            Ok((table, torn, rot)) => {
                opened.torn += torn;
                // If only the value is lost, the shelf has it, and the change counts.
                let is_cut = rot.iter().any(|rot| rot.record.is_none());
                if let Some(entry) = entry.filter(|entry| entry.state == State::Retained && is_cut) {
                    let what = format!("a part of {name} (damaged in {})", log.drive.directory.place());
                    opened.findings.unshown.push(Lack { what, last: entry.last });
                }
                // The records of a dead log are in a shelf, which was made when the log was whole.
                for rot in rot.into_iter().filter(|_| !is_dead) {
                    let given = entry.map_or(given, |entry| entry.last);
                    if shared.config.needs_all && rot.record.is_none() {
                        let place = log.drive.directory.place();
                        let what = format!("a part of {name} (in {place}, at byte {})", rot.offset);
                        opened.findings.lacks.push(Lack { what, last: given.max(table.index.read().last) });
                    }
                    let part = lost_part(&table, &rot, given);
                    table.index.write().lost.push(part.clone());
                    opened.findings.lost.push(part);
                    opened.findings.losses.push(Loss::Place { file: log.file, drive: log.drive.uuid, rot });
                }
                opened.previous = Some(Previous { file: table.file, bytes: table.index.read().bytes });
                let tables = if is_dead { &mut opened.dead } else { &mut opened.logs };
                tables.push(Arc::new(table));
            }
            // Its content is in shelves; but it cannot be shown to a caller that may need it.
            Err(error) if is_dead => {
                let what = format!("{name} (in {}: {error})", log.drive.directory.place());
                let retained = entry.filter(|entry| entry.state == State::Retained);
                opened.findings.unshown.extend(retained.map(|entry| Lack { what, last: entry.last }));
            }
            // It stays named, so it counts once it can be read.
            Err(error) => {
                opened.lose(&log.drive, name, error.to_string(), entry);
                opened.findings.absent.extend(entry.cloned());
            }
        }
    }
}

/// The known length of a log, from a later log and from its entry in the manifest.
fn known(sealed: Option<u64>, entry: Option<&Entry>) -> Known {
    let synced = entry.map_or(0, |entry| entry.bytes);
    let sealed = sealed.max(entry.filter(|entry| entry.sealed).map(|entry| entry.bytes));
    Known { sealed, synced }
}

/// The part that rot destroyed. If its number is unknown, it is at most `given` or the last one in its log.
fn lost_part(table: &LogTable, rot: &Rot, given: Sequence) -> LostPart {
    match &rot.record {
        Some((key, sequence)) => LostPart { keys: Some((key.clone(), key.clone())), max: *sequence },
        None => LostPart { keys: None, max: table.index.read().last.max(given) },
    }
}

/// The index of a log, bytes of its torn tail, and its rot.
fn read_log(log: &FoundLog, known: Known) -> Result<(LogTable, u64, Vec<Rot>), ReadError> {
    let image = image(log.medium.as_ref())?;
    let stamp = log.file.stamp();
    let room = log.header.map_or(0, |header| header.room);
    let contents = log::read(&image, stamp, known, room);
    let mut index = Index { bytes: contents.bytes, ..Index::default() };
    for (offset, head) in contents.records {
        let (_, record) = decode(&image[offset as usize..], stamp)?;
        index.insert(offset, head, &record);
    }
    let first = index.keys.values().map(|slot| slot.head.sequence).min();
    let first = log.header.map(|header| header.first).or(first).unwrap_or_default();
    let medium = log.drive.directory.open(&Name::Log(log.file).to_string())?.into();
    let table = LogTable { file: log.file, drive: Arc::clone(&log.drive), medium, first, index: RwLock::new(index) };
    Ok((table, contents.torn, contents.rot))
}

/// All bytes of a file.
pub(crate) fn image(medium: &dyn File) -> Result<Vec<u8>, ReadError> {
    let mut image = vec![0; medium.bytes()? as usize];
    for (at, part) in image.chunks_mut(1 << 20).enumerate() {
        read_past_bad_sectors(medium, part, (at as u64) << 20)?;
    }
    Ok(image)
}
