//! The owner of a medium: the data directory whose server uses it, and the run of that server.
//!
//! Two servers on one set of drives cost each other their data: each removes what its own catalog does not know. That
//! happens where a data directory was copied, or put back from a backup, and both are served. So every medium (a drive
//! of the rack, a drive of the pool, the workshop) carries an [`OwnerMark`]. Each run of a server has a random number,
//! and a data directory knows the numbers of its own runs.
//!
//! 1. At each mount, before anything else is written there, the mark is compared with the runs that the directory knows
//!    ([`Claim`]). It is replaced by one of this run if it names an earlier run of the directory, or if there is none.
//! 2. A mark of a run that the directory does not know is another server's. The medium is left untouched then, and not
//!    used: the error names the place of the other server and the mend.
//! 3. The operator may say that this directory is the one that goes on (`larder take-over`): marks from before that
//!    moment count as its own. A server that still runs elsewhere finds the new mark when it mounts the medium next.
//! 4. While a directory is mounted its mark is locked, so that no second process mounts it meanwhile.
//!
//! The mark is the file `larder.owner`: two blocks of 4 KiB, of which the older one is written over in place, so that a
//! crash leaves the other, and a full medium can be marked. `docs/format.md` draws the bytes.
//!
//! Invariant: nothing is written to a medium whose mark names a run that the directory does not know.

mod on_medium;

pub use on_medium::{OwnerLock, file_name};

use crate::format::{BLOCK_BYTES, BlockDecoder, BlockEncoder, FormatError, other_version};
use crate::label::RackUuid;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MAGIC: [u8; 8] = *b"LARDOWNR";
/// The longest name of the place of a server, in bytes; a longer one is cut off.
pub const PLACE_MAX_BYTES: usize = 1024;

/// The number of a run of a server: random, and never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Who uses a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerMark {
    /// The rack that the medium serves.
    pub rack: RackUuid,
    /// The identity of the data directory; a copy of it has the same.
    pub directory: [u8; 16],
    /// Grows by one with each mark of the medium.
    pub serial: u64,
    /// The run that uses it.
    pub run: RunId,
    /// The run of the directory before that one, if there was one.
    pub previous: Option<RunId>,
    /// When it was marked, in milliseconds of the Unix epoch.
    pub marked_ms: u64,
    /// Where the server is, for people: its host, and the path of its data directory.
    pub place: String,
}

impl OwnerMark {
    /// The mark as a block.
    pub(crate) fn encode(&self) -> [u8; BLOCK_BYTES] {
        assert!(self.place.len() <= PLACE_MAX_BYTES, "the name of a place was cut off");
        let mut block = [0; BLOCK_BYTES];
        let mut writer = BlockEncoder::new(&mut block, MAGIC);
        writer.put(&(self.place.len() as u32).to_le_bytes());
        writer.put(&self.rack.0);
        writer.put(&self.directory);
        for number in [self.serial, self.run.0, self.previous.map_or(0, |run| run.0), self.marked_ms] {
            writer.put(&number.to_le_bytes());
        }
        writer.put(self.place.as_bytes());
        writer.seal();
        block
    }

    /// The mark that `block` is.
    pub(crate) fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut reader = BlockDecoder::open(block, MAGIC, "owner mark")?;
        let place_bytes = reader.u32() as usize;
        if place_bytes > PLACE_MAX_BYTES {
            return Err(FormatError::Field("place"));
        }
        let (rack, directory) = (RackUuid(reader.take()), reader.take());
        let (serial, run, previous, marked_ms) = (reader.u64(), reader.u64(), reader.u64(), reader.u64());
        let place = str::from_utf8(reader.slice(place_bytes)).map_err(|_| FormatError::Field("place"))?.to_owned();
        reader.finish()?;
        let previous = Some(RunId(previous)).filter(|run| run.0 != 0);
        Ok(Self { rack, directory, serial, run: RunId(run), previous, marked_ms, place })
    }
}

/// The reason why a medium is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnerError {
    /// A run that the directory does not know has marked it.
    #[error(
        "it is in use by another server: run {run} of {place} has marked it, which this data directory does not know. \
         Either another server uses the same drives, or this directory is a copy or was put back from a backup. Serve \
         one of the two alone: stop the other one for good, or, if this one is to go on, stop it, run `larder \
         take-over --data {ours}`, and start it again"
    )]
    OtherRun {
        /// The run.
        run: RunId,
        /// Where that server is, or was.
        place: String,
        /// This directory.
        ours: String,
    },
    /// Another process has it mounted.
    #[error(
        "another process uses {} just now: end the server that does, and serve one data directory alone", .0.display()
    )]
    InUse(PathBuf),
    /// A newer version marked it.
    #[error("its owner mark: {}", other_version(*.0))]
    OtherVersion(u32),
}

impl OwnerError {
    /// The same without the mend.
    pub fn short(&self) -> String {
        match self {
            Self::OtherRun { run, place, .. } => format!("another server uses it: run {run} of {place}"),
            Self::InUse(_) => "another process uses it".into(),
            Self::OtherVersion(_) => self.to_string(),
        }
    }
}

/// What a process may do with the media of its data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Right {
    /// Look at them.
    #[default]
    Read,
    /// Use them, in this run.
    Use(RunId),
}

/// What a process knows of the runs of its data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The rack.
    pub rack: RackUuid,
    /// The identity of the directory.
    pub directory: [u8; 16],
    /// Its runs; not the one of this process.
    pub known: BTreeSet<RunId>,
    /// The last of them.
    pub previous: Option<RunId>,
    /// Marks from before then count as its own, in milliseconds of the Unix epoch: 0 if the operator has not said so.
    pub accepted_ms: u64,
    /// What the process may do.
    pub right: Right,
    /// Where the directory is, for people.
    pub place: String,
    /// Its path, for the mend.
    pub path: String,
}

/// The claim of a process to the media of its data directory. See the head of this file.
#[derive(Debug)]
pub struct Claim {
    runs: Runs,
    /// Locks that may be held at once: each takes a descriptor. Beyond that media are marked alone.
    locks_max: usize,
    locks: Arc<AtomicUsize>,
    /// The media that are not used, and why.
    refused: Mutex<BTreeMap<PathBuf, OwnerError>>,
    /// The locks of media that stay mounted.
    held: Mutex<Vec<OwnerLock>>,
}

impl Claim {
    /// The claim of a process that knows `runs`. At most `locks_max` locks are held at once.
    pub fn new(mut runs: Runs, locks_max: usize) -> Self {
        let cut = (0..=PLACE_MAX_BYTES.min(runs.place.len())).rev().find(|end| runs.place.is_char_boundary(*end));
        runs.place.truncate(cut.unwrap_or(0));
        let (refused, held) = (Mutex::default(), Mutex::default());
        Self { runs, locks_max, locks: Arc::default(), refused, held }
    }

    /// The mark to be written on a medium that carries `found`; none if that one stays.
    ///
    /// # Errors
    /// [`OwnerError::OtherRun`].
    fn judge(&self, found: Option<&OwnerMark>, now_ms: u64) -> Result<Option<OwnerMark>, OwnerError> {
        let Runs { rack, directory, known, previous, accepted_ms, right, place, path } = &self.runs;
        let is_ours = |found: &OwnerMark| {
            known.contains(&found.run) || *right == Right::Use(found.run) || found.marked_ms <= *accepted_ms
        };
        if let Some(OwnerMark { run, place, .. }) = found.filter(|found| !is_ours(found)) {
            return Err(OwnerError::OtherRun { run: *run, place: place.clone(), ours: path.clone() });
        }
        let Right::Use(run) = *right else { return Ok(None) };
        if found.is_some_and(|found| found.run == run) {
            return Ok(None);
        }
        let serial = found.map_or(0, |found| found.serial) + 1;
        let (rack, directory, previous, place) = (*rack, *directory, *previous, place.clone());
        Ok(Some(OwnerMark { rack, directory, serial, run, previous, marked_ms: now_ms, place }))
    }

    /// The media that are not used, each with the reason.
    pub fn refused(&self) -> Vec<(PathBuf, OwnerError)> {
        self.refused.lock().iter().map(|(path, why)| (path.clone(), why.clone())).collect()
    }

    /// Room for one more lock, if there is some.
    fn lock_room(&self) -> Option<LockRoom> {
        let room = LockRoom(Arc::clone(&self.locks));
        let taken = room.0.fetch_add(1, Ordering::SeqCst);
        (taken < self.locks_max).then_some(room)
    }
}

/// Room for a lock, until it is dropped.
#[derive(Debug)]
struct LockRoom(Arc<AtomicUsize>);

impl Drop for LockRoom {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::DriveError;
    use std::fs;

    fn runs(known: &[u64], right: Right) -> Runs {
        let known: BTreeSet<RunId> = known.iter().copied().map(RunId).collect();
        let previous = known.last().copied();
        let place = "nas:/srv/larder".to_owned();
        let (rack, directory) = (RackUuid([7; 16]), [9; 16]);
        Runs { rack, directory, known, previous, accepted_ms: 0, right, place, path: "/srv/larder".into() }
    }

    fn of_run(known: &[u64], run: u64) -> Claim {
        Claim::new(runs(known, Right::Use(RunId(run))), 8)
    }

    fn refusal(answer: Result<OwnerLock, DriveError>) -> OwnerError {
        match answer {
            Err(DriveError::Owner(why)) => why,
            other => panic!("{other:?} is no refusal"),
        }
    }

    #[test]
    fn each_medium_belongs_to_the_copy_that_mounts_it_first_and_the_other_leaves_it_untouched() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path();
        drop(of_run(&[], 1).lay(directory).unwrap());
        // Both know the run before them.
        drop(of_run(&[1], 2).lay(directory).unwrap());
        let before = fs::read(directory.join("larder.owner")).unwrap();
        let other = of_run(&[1], 3);
        let why = refusal(other.lay(directory));
        assert!(
            matches!(&why, OwnerError::OtherRun { run: RunId(2), place, .. } if place == "nas:/srv/larder"),
            "{why}"
        );
        assert!(why.to_string().contains("larder take-over --data /srv/larder"), "{why}");
        assert_eq!(other.refused(), [(directory.to_owned(), why)]);
        assert!(refusal(Claim::new(runs(&[1], Right::Read), 8).lay(directory)).to_string().contains("in use"));
        assert_eq!(fs::read(directory.join("larder.owner")).unwrap(), before);
        // The first one may come again, in this run and the next.
        drop(of_run(&[1], 2).lay(directory).unwrap());
        drop(of_run(&[1, 2], 4).lay(directory).unwrap());
    }

    #[test]
    fn a_mark_from_before_the_operators_word_is_taken_over_and_a_later_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        drop(of_run(&[], 1).lay(root.path()).unwrap());
        let consented = |accepted_ms| Runs { accepted_ms, ..runs(&[], Right::Use(RunId(2))) };
        refusal(Claim::new(consented(1), 8).lay(root.path()));
        let claim = Claim::new(consented(u64::MAX), 8);
        drop(claim.lay(root.path()).unwrap());
        assert!(claim.refused().is_empty());
        refusal(of_run(&[1], 3).lay(root.path()));
    }

    #[test]
    fn a_medium_that_is_mounted_is_locked_against_another_process_as_far_as_there_are_descriptors() {
        let root = tempfile::tempdir().unwrap();
        let mounted = of_run(&[], 1).lay(root.path()).unwrap();
        assert_eq!(refusal(of_run(&[1], 2).lay(root.path())), OwnerError::InUse(root.path().to_owned()));
        drop(mounted);
        let unlocked = Claim::new(runs(&[1], Right::Use(RunId(2))), 0);
        let mounted = unlocked.lay(root.path()).unwrap();
        let other = of_run(&[1, 2], 3);
        other.hold(root.path()).unwrap();
        drop(mounted);
        // Two who only look do not keep each other from it.
        drop(other);
        let reader = || Claim::new(runs(&[3], Right::Read), 8).lay(root.path());
        let (one, two) = (reader().unwrap(), reader().unwrap());
        drop((one, two));
    }

    #[test]
    fn a_mark_that_is_damaged_leaves_the_one_before_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("larder.owner");
        drop(of_run(&[], 1).lay(root.path()).unwrap());
        drop(of_run(&[1], 2).lay(root.path()).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 2 * BLOCK_BYTES);
        bytes[100] ^= 1;
        fs::write(&path, &bytes).unwrap();
        // Serial 2, of run 2, is in the first block, and torn.
        drop(of_run(&[1], 3).lay(root.path()).unwrap());
        // Nothing that can be read is no mark.
        fs::write(&path, [0xff; 100]).unwrap();
        drop(of_run(&[], 4).lay(root.path()).unwrap());
        refusal(of_run(&[3], 5).lay(root.path()));
    }
}
