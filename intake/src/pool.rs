//! The pool: a label on each drive shows which drives belong together.
//!
//! Every label lists all members in their order, so a missing drive is known to be missing. A drive without a label
//! joins the pool: the list grows, and gets the next version. The highest version counts. A kill while a drive joins,
//! and a start without that drive, may leave two lists of the same version: members of either are members of the pool.
//! A missing drive stays a member. Until it is back, nothing is dropped that may be needed to hide parts of its
//! content.
//!
//! The format version of a label shows whether the pool has a manifest ([`crate::manifest`]), so a manifest that is
//! missing later is known to be missing. Software without manifests refuses a label of this version.

use crate::bytes::{BLOCK_BYTES, Damage, block, open_block_of};
use crate::config::{COPIES_FROM_DRIVES, DRIVES_MAX};
use crate::drive::Drive;
use crate::error::{OpenError, ReadError};
use crate::medium::Directory;
use crate::names::{DriveUuid, PoolUuid};
use engine::shift::rotations;
use std::io;
use std::sync::Arc;

/// The format version of labels of a pool with a manifest.
const VERSION: u32 = 2;

/// The format version of labels before a manifest exists. All other fields are the same.
const BEFORE_MANIFEST: u32 = 1;

const MAGIC: [u8; 8] = *b"LARDPOOL";

/// The name of the file with a drive's label.
pub const LABEL: &str = "intake.pool";
/// The name of the label file while it is written.
const NEW_LABEL: &str = "intake.pool-new";

/// The version of labels of a pool that is being created. Nothing was ever stored in it.
const MAKING: u64 = 0;

/// A member of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) uuid: DriveUuid,
    /// The number of its rotation.
    pub(crate) cycle: u8,
}

/// A label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Label {
    pool: PoolUuid,
    drive: DriveUuid,
    version: u64,
    members: Vec<Member>,
    has_manifest: bool,
}

impl Label {
    fn encode(&self) -> Vec<u8> {
        let version = if self.has_manifest { VERSION } else { BEFORE_MANIFEST };
        block(MAGIC, version, |out| {
            out.extend_from_slice(&self.pool.0.to_le_bytes());
            out.extend_from_slice(&self.drive.0.to_le_bytes());
            out.extend_from_slice(&self.version.to_le_bytes());
            out.extend_from_slice(&(self.members.len() as u32).to_le_bytes());
            for member in &self.members {
                out.extend_from_slice(&member.uuid.0.to_le_bytes());
                out.push(member.cycle);
            }
        })
    }

    fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let (format, mut fields) = open_block_of(bytes, MAGIC)?;
        if ![BEFORE_MANIFEST, VERSION].contains(&format) {
            return Err(Damage::Version(format));
        }
        let (pool, drive, version) = (PoolUuid(fields.u128()?), DriveUuid(fields.u128()?), fields.u64()?);
        let count = fields.u32()? as usize;
        if count == 0 || count > DRIVES_MAX {
            return Err(Damage::Field("number of members"));
        }
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(Member { uuid: DriveUuid(fields.u128()?), cycle: fields.u8()? });
        }
        fields.end()?;
        let is_member = members.iter().any(|member| member.uuid == drive);
        if !is_member || members.iter().any(|member| member.cycle > 1) {
            return Err(Damage::Field("list of members"));
        }
        Ok(Self { pool, drive, version, members, has_manifest: format == VERSION })
    }
}

/// The label on a drive; `None` if it has none.
fn read(directory: &dyn Directory) -> Result<Option<Label>, ReadError> {
    let file = match directory.open(LABEL) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = [0; BLOCK_BYTES];
    match file.read_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Damage::Short.into()),
        read => read?,
    }
    Ok(Some(Label::decode(&bytes)?))
}

fn write(directory: &dyn Directory, label: &Label) -> io::Result<()> {
    if directory.list()?.iter().any(|name| name == NEW_LABEL) {
        directory.remove(NEW_LABEL)?;
    }
    let file = directory.create(NEW_LABEL)?;
    file.write_at(&label.encode(), 0)?;
    file.sync()?;
    directory.rename(NEW_LABEL, LABEL)?;
    directory.sync()
}

/// A pool whose labels were read and written.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) uuid: PoolUuid,
    pub(crate) members: Vec<Member>,
    /// The member that each directory is.
    pub(crate) drives: Vec<DriveUuid>,
    /// Directories whose labels could not be written; they take no writes.
    pub(crate) unwritable: Vec<usize>,
    /// The newest label.
    label: Label,
}

impl Pool {
    /// True if a label shows that a manifest exists.
    pub(crate) fn has_manifest(&self) -> bool {
        self.label.has_manifest
    }

    /// Marks the labels of the drives that are `there` as those of a pool with a manifest, once it exists.
    pub(crate) fn note_manifest<'a>(&self, there: impl Iterator<Item = &'a Arc<Drive>>) {
        if self.label.has_manifest {
            return;
        }
        for drive in there.filter(|drive| !drive.is_lost()) {
            let label = Label { drive: drive.uuid, has_manifest: true, ..self.label.clone() };
            if let Err(error) = write(drive.directory.as_ref(), &label) {
                tracing::error!(drive = %drive.uuid, %error, "the label of a drive cannot be written");
            }
        }
    }
}

/// Reads the labels of `directories`, and writes the missing and old ones.
pub(crate) fn open(directories: &[Box<dyn Directory>], entropy: u128) -> Result<Pool, OpenError> {
    if directories.is_empty() || directories.len() > DRIVES_MAX {
        return Err(OpenError::Drives { drives: directories.len(), limit: DRIVES_MAX });
    }
    let mut labels = Vec::new();
    for (drive, directory) in directories.iter().enumerate() {
        labels.push(read(directory.as_ref()).map_err(|error| OpenError::Drive { drive, error })?);
    }
    if labels.iter().flatten().all(|label| label.version == MAKING) {
        // Labels of a pool whose creation was interrupted twice may be of two pools. Nothing is stored in either.
        labels = make(directories, entropy)?;
    }
    check(&labels)?;
    let newest = labels.iter().flatten().max_by_key(|label| label.version).cloned();
    let Some(mut newest) = newest else { unreachable!("a pool that was made has labels") };
    newest.has_manifest = labels.iter().flatten().any(|label| label.has_manifest);
    add_unlisted(&mut newest, labels.iter().flatten());
    let grown = newest.members.len() + labels.iter().filter(|label| label.is_none()).count();
    if grown > DRIVES_MAX {
        return Err(OpenError::Drives { drives: grown, limit: DRIVES_MAX });
    }
    let mut present: Vec<DriveUuid> = labels.iter().flatten().map(|label| label.drive).collect();
    let mut drives = Vec::new();
    for (drive, label) in labels.iter().enumerate() {
        let uuid = match label {
            Some(label) => label.drive,
            None => join(directories[drive].as_ref(), &mut newest, &mut present, uuid_of(entropy, drive))
                .map_err(|error| OpenError::Drive { drive, error: error.into() })?,
        };
        drives.push(uuid);
    }
    assert!(newest.members.len() <= DRIVES_MAX, "a label has room for all members");
    newest.version = newest.version.max(MAKING + 1);
    let (uuid, members, label) = (newest.pool, newest.members.clone(), newest);
    let mut pool = Pool { uuid, members, drives, unwritable: Vec::new(), label };
    for (drive, label) in labels.iter().enumerate() {
        let current = Label { drive: pool.drives[drive], ..pool.label.clone() };
        if label.as_ref() != Some(&current)
            && let Err(error) = write(directories[drive].as_ref(), &current)
        {
            tracing::error!(drive, %error, "the label of a drive cannot be written");
            pool.unwritable.push(drive);
        }
    }
    Ok(pool)
}

fn uuid_of(entropy: u128, drive: usize) -> DriveUuid {
    DriveUuid(entropy.wrapping_add((drive as u128 + 1) << 64))
}

/// Creates a pool. Until all drives have a label, each label marks it as being created, and nothing is stored.
fn make(directories: &[Box<dyn Directory>], entropy: u128) -> Result<Vec<Option<Label>>, OpenError> {
    let shares = rotations(directories.len() as u32);
    assert!((shares.len() > 1) == (directories.len() >= COPIES_FROM_DRIVES), "copies are as they are documented");
    let member = |at: usize| {
        let cycle = shares.iter().position(|share| share.contains(&(at as u32))).unwrap_or_default() as u8;
        Member { uuid: uuid_of(entropy, at), cycle }
    };
    let members: Vec<_> = (0..directories.len()).map(member).collect();
    let mut labels = Vec::new();
    for (drive, directory) in directories.iter().enumerate() {
        let (pool, drive_uuid, members) = (PoolUuid(entropy), members[drive].uuid, members.clone());
        let label = Label { pool, drive: drive_uuid, version: MAKING, members, has_manifest: false };
        write(directory.as_ref(), &label).map_err(|error| OpenError::Drive { drive, error: error.into() })?;
        labels.push(Some(label));
    }
    Ok(labels)
}

/// Adds the members that other labels list and `newest` does not, each to the rotation of its list.
fn add_unlisted<'a>(newest: &mut Label, labels: impl Iterator<Item = &'a Label>) {
    let mut is_grown = false;
    for member in labels.flat_map(|label| &label.members) {
        if newest.members.iter().all(|listed| listed.uuid != member.uuid) {
            newest.members.push(*member);
            is_grown = true;
        }
    }
    newest.version += u64::from(is_grown);
}

/// Adds a drive to the rotation with fewer `present` drives. So one that replaces a lost drive goes to the rotation
/// that lost it, unless the other one has as few. Its own label is the first to list it, so a listed drive has a label.
fn join(
    directory: &dyn Directory,
    newest: &mut Label,
    present: &mut Vec<DriveUuid>,
    uuid: DriveUuid,
) -> io::Result<DriveUuid> {
    let has_two = newest.members.iter().any(|member| member.cycle == 1);
    let is_there = |member: &&Member| present.contains(&member.uuid);
    let size = |cycle| newest.members.iter().filter(is_there).filter(|member| member.cycle == cycle).count();
    let cycle = u8::from(has_two && size(1) < size(0));
    newest.members.push(Member { uuid, cycle });
    newest.version += 1;
    present.push(uuid);
    write(directory, &Label { drive: uuid, ..newest.clone() })?;
    Ok(uuid)
}

/// Checks that all labels are of one pool, and that no drive appears twice.
fn check(labels: &[Option<Label>]) -> Result<(), OpenError> {
    for (drive, label) in labels.iter().enumerate() {
        let Some(label) = label else { continue };
        for other in labels[..drive].iter().flatten() {
            if other.pool != label.pool {
                return Err(OpenError::Mixed { drive, problem: "belongs to another pool" });
            }
            if other.drive == label.drive {
                return Err(OpenError::Mixed { drive, problem: "is a copy of another one" });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::memory::World;

    fn cycles(pool: &Pool) -> Vec<u8> {
        pool.members.iter().map(|member| member.cycle).collect()
    }

    #[test]
    fn a_pool_is_found_again_in_any_order_and_with_drives_missing() {
        let world = World::new(7);
        let made = open(&world.directories(), 77).expect("it is new");
        assert_eq!(cycles(&made), [0, 0, 0, 0, 1, 1, 1]);
        let reversed: Vec<_> = (2..7).rev().map(|drive| world.directory(drive)).collect();
        let again = open(&reversed, 78).expect("it is there");
        assert_eq!((again.uuid, &again.members), (made.uuid, &made.members));
        assert_eq!(again.drives[0], made.drives[6]);
    }

    #[test]
    fn a_drive_joins_the_smaller_rotation() {
        let world = World::new(8);
        let first: Vec<_> = (0..7).map(|drive| world.directory(drive)).collect();
        open(&first, 77).expect("it is new");
        let pool = open(&world.directories(), 78).expect("it grows");
        assert_eq!(cycles(&pool), [0, 0, 0, 0, 1, 1, 1, 1]);
        let few = World::new(6);
        let first: Vec<_> = (0..5).map(|drive| few.directory(drive)).collect();
        assert_eq!(cycles(&open(&first, 77).expect("it is new")), [0; 5]);
        assert_eq!(cycles(&open(&few.directories(), 78).expect("it grows")), [0; 6], "copies are set when it is made");
    }

    #[test]
    fn a_drive_that_replaces_a_lost_one_joins_the_rotation_that_lost_it() {
        let world = World::new(6);
        assert_eq!(cycles(&open(&world.directories(), 77).expect("it is new")), [0, 0, 0, 1, 1, 1]);
        // Emptied one after the other, without time to heal; the others of their rotations are there.
        for (entropy, (drive, cycle)) in (78..).zip([(0, 0), (1, 0), (4, 1), (0, 0), (5, 1)]) {
            for (name, _) in world.files(drive) {
                world.put_file(drive, &name, None);
            }
            let pool = open(&world.directories(), entropy).expect("it is replaced");
            assert_eq!(pool.members.last().map(|member| member.cycle), Some(cycle), "drive {drive}");
        }
    }

    #[test]
    fn two_drives_that_joined_without_each_other_are_both_members() {
        let world = World::new(8);
        let places = |drives: &[usize]| drives.iter().map(|drive| world.directory(*drive)).collect::<Vec<_>>();
        let six: Vec<usize> = (0..6).collect();
        open(&places(&six), 77).expect("it is new");
        let label =
            |drive: usize| world.files(drive).into_iter().find(|(name, _)| name == LABEL).map(|(_, bytes)| bytes);
        let before: Vec<_> = six.iter().map(|drive| label(*drive)).collect();
        open(&places(&[&six[..], &[6]].concat()), 78).expect("it grows");
        // A kill after its own label, and a start without it.
        six.iter().zip(before).for_each(|(drive, bytes)| world.put_file(*drive, LABEL, bytes));
        open(&places(&[&six[..], &[7]].concat()), 79).expect("it grows");
        for entropy in [80, 81] {
            let pool = open(&world.directories(), entropy).expect("both are there");
            assert_eq!((pool.members.len(), pool.unwritable.len()), (8, 0));
            assert!(pool.drives.iter().all(|drive| pool.members.iter().any(|member| member.uuid == *drive)));
            let second: u32 = cycles(&pool).iter().map(|cycle| u32::from(*cycle)).sum();
            assert_eq!(second, 3, "each is in the rotation that it joined");
        }
    }

    #[test]
    fn a_drive_beyond_the_maximum_is_refused_before_it_gets_a_label() {
        let world = World::new(DRIVES_MAX + 1);
        let all: Vec<_> = (0..DRIVES_MAX).map(|drive| world.directory(drive)).collect();
        open(&all, 77).expect("it is new");
        let others: Vec<_> = (1..=DRIVES_MAX).map(|drive| world.directory(drive)).collect();
        assert!(matches!(open(&others, 78), Err(OpenError::Drives { .. })));
        assert_eq!(world.files(DRIVES_MAX), []);
        open(&all, 79).expect("it is as before");
    }

    #[test]
    fn drives_of_two_pools_and_copies_of_one_are_refused() {
        let (one, other) = (World::new(2), World::new(1));
        open(&one.directories(), 1).expect("it is new");
        open(&other.directories(), 2).expect("it is new");
        let mixed = vec![one.directory(0), other.directory(0)];
        assert!(matches!(open(&mixed, 3), Err(OpenError::Mixed { drive: 1, .. })));
        let twice = vec![one.directory(0), one.directory(0)];
        assert!(matches!(open(&twice, 3), Err(OpenError::Mixed { drive: 1, .. })));
        assert!(matches!(open(&[], 3), Err(OpenError::Drives { .. })));
    }

    #[test]
    fn a_damaged_label_is_refused() {
        let world = World::new(1);
        open(&world.directories(), 1).expect("it is new");
        for at in [0, 9, 30, 60, 500, 4095] {
            world.corrupt(0, LABEL, |bytes| bytes[at] ^= 1);
            assert!(matches!(open(&world.directories(), 3), Err(OpenError::Drive { drive: 0, .. })), "byte {at}");
            world.corrupt(0, LABEL, |bytes| bytes[at] ^= 1);
        }
        for left in [4095, 0] {
            world.corrupt(0, LABEL, |bytes| bytes.truncate(left));
            let opened = open(&world.directories(), 3);
            let is_short = |error: &ReadError| matches!(error, ReadError::Damaged(Damage::Short));
            assert!(matches!(opened, Err(OpenError::Drive { drive: 0, error }) if is_short(&error)), "{left} bytes");
        }
    }
}
