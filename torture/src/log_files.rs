//! Damage to whole files of the log's drives while no server runs: a file is removed, emptied, cut off, older, longer
//! or there twice; or all files of a drive are gone or older.
//!
//! Damage that a start does not notice must do no harm: all acknowledged data is read as before. A kill may have left
//! up to half a second of changes at the end of a log, and no other file names them; so files are cut off, emptied,
//! made longer or older only if the log was closed in order.
//!
//! Other damage loses nothing, and a start must find everything ([`spoil`]): damage to one edge of a shelf, and, where
//! there are two copies, damage to a place in one of them.

use intake::medium::memory::{Fault, World};
use model::Rng;
use std::collections::BTreeMap;

/// The files of each drive, and last those of the home.
pub(crate) type Files = Vec<BTreeMap<String, Vec<u8>>>;

/// With six drives there are two rotations. The one with the first three is damaged, the other never. They stay in it:
/// one that was emptied joins the rotation that lost it.
const OF_ONE_ROTATION: usize = 3;

/// Bytes of a sector.
const SECTOR_BYTES: usize = 4096;

/// The files of `world`.
pub(crate) fn files(world: &World) -> Files {
    (0..=world.home_drive()).map(|drive| world.files(drive).into_iter().collect()).collect()
}

/// Damages files of `world` and describes the damage; `older` are the files at an earlier time. `None` if there is
/// nothing to damage.
pub(crate) fn damage(world: &World, older: &Files, is_closed: bool, rng: &mut Rng) -> Option<String> {
    let drives = world.home_drive();
    let reach = if drives == 2 * OF_ONE_ROTATION { OF_ONE_ROTATION } else { drives };
    let drive = if rng.below(4) == 0 { drives } else { rng.below(reach as u64) as usize };
    let now: BTreeMap<String, Vec<u8>> = world.files(drive).into_iter().collect();
    let kinds = if is_closed { 8 } else { 3 };
    let kind = rng.below(kinds);
    let (name, bytes) = now.iter().nth(rng.below(now.len().max(1) as u64) as usize)?;
    let length = bytes.len() as u64;
    let what = match kind {
        0 => {
            world.put_file(drive, name, None);
            "is removed".to_owned()
        }
        1 => {
            let twin = twin(name, rng);
            world.put_file(drive, &twin, Some(bytes.clone()));
            format!("is there as {twin}, too")
        }
        2 => {
            empty(world, drive, &now);
            return Some(format!("drive {drive} of the log is emptied"));
        }
        3 => {
            world.put_file(drive, name, Some(Vec::new()));
            "is emptied".to_owned()
        }
        4 => {
            let left = rng.below(length + 1);
            world.put_file(drive, name, Some(bytes[..left as usize].to_vec()));
            format!("is cut off after {left} of {length} bytes")
        }
        5 => {
            let before = older.get(drive)?.get(name).filter(|before| *before != bytes)?;
            world.put_file(drive, name, Some(before.clone()));
            "is as it was".to_owned()
        }
        6 => {
            let before = older.get(drive).filter(|before| !before.is_empty())?;
            empty(world, drive, &now);
            for (name, bytes) in before {
                world.put_file(drive, name, Some(bytes.clone()));
            }
            return Some(format!("drive {drive} of the log is as it was"));
        }
        _ => {
            let mut grown = bytes.clone();
            grown.extend((0..rng.between(1, 9_000)).map(|_| rng.next_u64() as u8));
            world.put_file(drive, name, Some(grown));
            "has garbage after it".to_owned()
        }
    };
    Some(format!("{name} on drive {drive} of the log {what}"))
}

/// Damages a place of a file of `world` so that nothing is lost, and describes the damage. `None` if there is nothing
/// to damage.
pub(crate) fn spoil(world: &World, rng: &mut Rng) -> Option<String> {
    let drives = world.home_drive();
    let has_two_copies = drives == 2 * OF_ONE_ROTATION;
    let drive = rng.below(if has_two_copies { OF_ONE_ROTATION } else { drives } as u64) as usize;
    let is_edge = !has_two_copies || rng.below(3) == 0;
    let is_kind = |name: &str, kind| name.rsplit_once('.').is_some_and(|(_, ending)| ending == kind);
    let is_chosen = |name: &str| is_kind(name, "shelf") || (!is_edge && is_kind(name, "log"));
    let files: Vec<_> = world.files(drive).into_iter().filter(|(name, _)| is_chosen(name)).collect();
    let (name, bytes) = files.get(rng.below(files.len().max(1) as u64) as usize)?;
    let sectors = bytes.len() / SECTOR_BYTES;
    let sector = match (is_edge, rng.below(2)) {
        (true, 0) => 0,
        (true, _) => sectors.checked_sub(1)?,
        (false, _) => rng.below(sectors.max(1) as u64) as usize,
    };
    // The last sector of a shelf is one of its two footers, but the shelf may end in the middle of a sector of the
    // drive.
    let begin = if is_edge && sector > 0 { bytes.len() - SECTOR_BYTES } else { sector * SECTOR_BYTES };
    let end = (begin + SECTOR_BYTES).min(bytes.len());
    let what = match rng.below(3) {
        0 if begin % SECTOR_BYTES == 0 => {
            world.spoil(drive, name, sector as u64);
            "a sector that cannot be read"
        }
        1 => {
            world.corrupt(drive, name, |bytes| bytes[begin..end].fill_with(|| rng.next_u64() as u8));
            "garbage"
        }
        _ => {
            let (at, bit) = (begin + rng.below((end - begin).max(1) as u64) as usize, rng.below(8));
            world.corrupt(drive, name, |bytes| bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit));
            "a wrong bit"
        }
    };
    Some(format!("{name} on drive {drive} of the log has {what} after byte {begin}"))
}

/// Makes a drive of one of two copies fail, and describes the fault. `None` if there is only one copy.
pub(crate) fn fail(world: &World, rng: &mut Rng) -> Option<String> {
    if world.home_drive() != 2 * OF_ONE_ROTATION {
        return None;
    }
    let drive = rng.below(OF_ONE_ROTATION as u64) as usize;
    let fault = if rng.below(2) == 0 { Fault::Broken } else { Fault::ReadOnly };
    world.set_fault(drive, fault);
    Some(format!("drive {drive} of the log fails: {fault:?}"))
}

/// Removes all `files` of a drive.
fn empty(world: &World, drive: usize, files: &BTreeMap<String, Vec<u8>>) {
    for name in files.keys() {
        world.put_file(drive, name, None);
    }
}

/// A name like this one, with another number.
fn twin(name: &str, rng: &mut Rng) -> String {
    let digit = char::from_digit(rng.below(10) as u32, 10).unwrap_or('0');
    let at = name.rfind('.').unwrap_or(name.len());
    let end = name[..at].char_indices().next_back().map_or(0, |(at, _)| at);
    format!("{}{digit}{}", &name[..end], &name[at..])
}
