//! The owner of a medium: a data directory, and the run of its server that uses the medium.
//!
//! Two servers on one set of drives destroy each other's data: each removes stacks that its own catalog does not know.
//! This happens when a copy of a data directory is served beside the original, or a restored backup beside a newer
//! directory. So every medium (a drive of the rack, a drive of the pool, the workshop) carries an [`OwnerMark`]. Each
//! run of a server has a random number, and a data directory records the numbers of its runs.
//!
//! 1. Each mount compares the mark with the recorded runs ([`Claim`]) before anything is written to the medium. A mark
//!    of an earlier run of this directory is replaced by one of the current run; so is a missing mark.
//! 2. A mark of an unknown run belongs to another server. The medium is neither written nor used; the error names the
//!    other server and the fix.
//! 3. `larder take-over` is the operator's consent: marks written before it count as this directory's own. A server
//!    that still runs elsewhere finds the new mark at its next mount.
//! 4. A mounted directory is locked, so a second process cannot mount it.
//!
//! The mark is the file `larder.owner`. It has two blocks of 4 KiB; the older one is overwritten in place, so a crash
//! leaves the other one, and a full medium can be marked. `docs/format/drives.md` draws the bytes.
//!
//! Invariant: nothing is written to a medium with the mark of an unknown run.

mod on_medium;

pub use on_medium::{OwnerLock, file_name};

use crate::format::{BLOCK_BYTES, BlockDecoder, BlockEncoder, FormatError, other_version};
use crate::label::RackUuid;
use lineage::{Generation, OwnRuns, RunId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MAGIC: [u8; 8] = *b"LARDOWNR";
/// The maximum length of [`OwnerMark::place`] in bytes; longer names are truncated.
pub const PLACE_MAX_BYTES: usize = 1024;

/// The owner of a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerMark {
    /// The rack of the medium.
    pub rack: RackUuid,
    /// The identity of the data directory; a copy of it has the same.
    pub directory: [u8; 16],
    /// 1 for the first mark of the medium, one more for each later mark.
    pub serial: Generation,
    /// The run that uses it.
    pub run: RunId,
    /// The run of the directory before `run`.
    pub previous: Option<RunId>,
    /// Time of the mark, in milliseconds of the Unix epoch.
    pub marked_ms: u64,
    /// Host and data directory of the server, for people.
    pub place: String,
}

impl OwnerMark {
    /// The mark as a block.
    pub(crate) fn encode(&self) -> [u8; BLOCK_BYTES] {
        assert!(self.place.len() <= PLACE_MAX_BYTES, "the place was truncated");
        let mut block = [0; BLOCK_BYTES];
        let mut writer = BlockEncoder::new(&mut block, MAGIC);
        writer.put(&(self.place.len() as u32).to_le_bytes());
        writer.put(&self.rack.0);
        writer.put(&self.directory);
        for number in [self.serial.0, self.run.0, self.previous.map_or(0, |run| run.0), self.marked_ms] {
            writer.put(&number.to_le_bytes());
        }
        writer.put(self.place.as_bytes());
        writer.seal();
        block
    }

    /// Decodes a block.
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
        let serial = Generation(serial);
        Ok(Self { rack, directory, serial, run: RunId(run), previous, marked_ms, place })
    }
}

/// Why a medium is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnerError {
    /// It has the mark of an unknown run.
    #[error(
        "it is in use by another server: run {run} of {place} has marked it, which this data directory does not know. \
         Either another server uses the same drives, or this directory is a copy or was restored from a backup. Serve \
         only one of the two: stop the other one permanently, or, to continue with this one, stop it, run `larder \
         take-over --data {ours}`, and start it again"
    )]
    OtherRun {
        /// The run.
        run: RunId,
        /// Host and data directory of that server.
        place: String,
        /// This directory.
        ours: String,
    },
    /// Another process has it mounted.
    #[error(
        "another process uses {} at the moment: stop the server that does, and serve only one data \
         directory", .0.display()
    )]
    InUse(PathBuf),
    /// A newer version marked it.
    #[error("its owner mark: {}", other_version(*.0))]
    OtherVersion(u32),
}

impl OwnerError {
    /// The reason without the fix.
    pub fn short(&self) -> String {
        match self {
            Self::OtherRun { run, place, .. } => format!("another server uses it: run {run} of {place}"),
            Self::InUse(_) => "another process uses it".into(),
            Self::OtherVersion(_) => self.to_string(),
        }
    }
}

/// A data directory and its recorded runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The rack.
    pub rack: RackUuid,
    /// The identity of the directory.
    pub directory: [u8; 16],
    /// Its runs, and the run of this process if it writes to the media.
    pub own: OwnRuns,
    /// Host and path, for people.
    pub place: String,
    /// Its path, for the fix in error messages.
    pub path: String,
}

/// The claim of a process to the media of its data directory. See the module documentation.
#[derive(Debug)]
pub struct Claim {
    runs: Runs,
    /// Maximum number of locks; each takes a descriptor. Further media are marked but not locked.
    locks_max: usize,
    locks: Arc<AtomicUsize>,
    /// Refused media, with the reason.
    refused: Mutex<BTreeMap<PathBuf, OwnerError>>,
    /// The locks of media that stay mounted.
    held: Mutex<BTreeMap<PathBuf, OwnerLock>>,
}

impl Claim {
    /// A claim with the given runs and at most `locks_max` locks.
    pub fn new(mut runs: Runs, locks_max: usize) -> Self {
        let cut = (0..=PLACE_MAX_BYTES.min(runs.place.len())).rev().find(|end| runs.place.is_char_boundary(*end));
        runs.place.truncate(cut.unwrap_or(0));
        let (refused, held) = (Mutex::default(), Mutex::default());
        Self { runs, locks_max, locks: Arc::default(), refused, held }
    }

    /// The new mark for a medium with the mark `found`; `None` if that one stays.
    ///
    /// # Errors
    /// [`OwnerError::OtherRun`].
    fn new_mark(&self, found: Option<&OwnerMark>, now_ms: u64) -> Result<Option<OwnerMark>, OwnerError> {
        let Runs { rack, directory, own, place, path } = &self.runs;
        if let Some(OwnerMark { run, place, .. }) = found.filter(|found| !own.owns(found.run, found.marked_ms)) {
            return Err(OwnerError::OtherRun { run: *run, place: place.clone(), ours: path.clone() });
        }
        let Some(run) = own.current else { return Ok(None) };
        if found.is_some_and(|found| found.run == run) {
            return Ok(None);
        }
        let serial = found.map_or(Generation(0), |found| found.serial).next();
        let (rack, directory, previous, place) = (*rack, *directory, own.previous, place.clone());
        Ok(Some(OwnerMark { rack, directory, serial, run, previous, marked_ms: now_ms, place }))
    }

    /// Refused media, each with the reason.
    pub fn refused(&self) -> Vec<(PathBuf, OwnerError)> {
        self.refused.lock().iter().map(|(path, why)| (path.clone(), why.clone())).collect()
    }

    /// A slot for one more lock, if one is free.
    fn lock_slot(&self) -> Option<LockSlot> {
        let room = LockSlot(Arc::clone(&self.locks));
        let taken = room.0.fetch_add(1, Ordering::SeqCst);
        (taken < self.locks_max).then_some(room)
    }
}

/// A slot for a lock, released on drop.
#[derive(Debug)]
struct LockSlot(Arc<AtomicUsize>);

impl Drop for LockSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::DriveError;
    use std::collections::BTreeSet;
    use std::fs;

    fn runs(known: &[u64], current: Option<RunId>) -> Runs {
        let known: BTreeSet<RunId> = known.iter().copied().map(RunId).collect();
        let own = OwnRuns { previous: known.last().copied(), known, current, accepted_ms: 0 };
        let place = "nas:/srv/larder".to_owned();
        let (rack, directory) = (RackUuid([7; 16]), [9; 16]);
        Runs { rack, directory, own, place, path: "/srv/larder".into() }
    }

    fn of_run(known: &[u64], run: u64) -> Claim {
        Claim::new(runs(known, Some(RunId(run))), 8)
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
        drop(of_run(&[], 1).acquire(directory).unwrap());
        // Both directories know run 1.
        drop(of_run(&[1], 2).acquire(directory).unwrap());
        let before = fs::read(directory.join("larder.owner")).unwrap();
        let other = of_run(&[1], 3);
        let why = refusal(other.acquire(directory));
        assert!(
            matches!(&why, OwnerError::OtherRun { run: RunId(2), place, .. } if place == "nas:/srv/larder"),
            "{why}"
        );
        assert!(why.to_string().contains("larder take-over --data /srv/larder"), "{why}");
        assert_eq!(other.refused(), [(directory.to_owned(), why)]);
        assert!(refusal(Claim::new(runs(&[1], None), 8).acquire(directory)).to_string().contains("in use"));
        assert_eq!(fs::read(directory.join("larder.owner")).unwrap(), before);
        // The owner may mount it again, in this run and the next.
        drop(of_run(&[1], 2).acquire(directory).unwrap());
        drop(of_run(&[1, 2], 4).acquire(directory).unwrap());
    }

    #[test]
    fn a_mark_from_before_the_operators_word_is_taken_over_and_a_later_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        drop(of_run(&[], 1).acquire(root.path()).unwrap());
        let consented = |accepted_ms| {
            let runs = runs(&[], Some(RunId(2)));
            Runs { own: OwnRuns { accepted_ms, ..runs.own }, ..runs }
        };
        refusal(Claim::new(consented(1), 8).acquire(root.path()));
        let claim = Claim::new(consented(u64::MAX), 8);
        drop(claim.acquire(root.path()).unwrap());
        assert!(claim.refused().is_empty());
        refusal(of_run(&[1], 3).acquire(root.path()));
    }

    #[test]
    fn a_medium_that_is_mounted_is_locked_against_another_process_as_far_as_there_are_descriptors() {
        let root = tempfile::tempdir().unwrap();
        let mounted = of_run(&[], 1).acquire(root.path()).unwrap();
        assert_eq!(refusal(of_run(&[1], 2).acquire(root.path())), OwnerError::InUse(root.path().to_owned()));
        drop(mounted);
        let unlocked = Claim::new(runs(&[1], Some(RunId(2))), 0);
        let mounted = unlocked.acquire(root.path()).unwrap();
        let other = of_run(&[1, 2], 3);
        other.hold(root.path()).unwrap();
        drop(mounted);
        // Two readers do not exclude each other.
        drop(other);
        let reader = || Claim::new(runs(&[3], None), 8).acquire(root.path());
        let (one, two) = (reader().unwrap(), reader().unwrap());
        drop((one, two));
    }

    #[test]
    fn a_mark_that_is_damaged_leaves_the_one_before_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("larder.owner");
        drop(of_run(&[], 1).acquire(root.path()).unwrap());
        drop(of_run(&[1], 2).acquire(root.path()).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 2 * BLOCK_BYTES);
        bytes[100] ^= 1;
        fs::write(&path, &bytes).unwrap();
        // The first block has serial number 2, of run 2, and is damaged.
        drop(of_run(&[1], 3).acquire(root.path()).unwrap());
        // A file without a readable mark counts as unmarked.
        fs::write(&path, [0xff; 100]).unwrap();
        drop(of_run(&[], 4).acquire(root.path()).unwrap());
        refusal(of_run(&[3], 5).acquire(root.path()));
    }
}
