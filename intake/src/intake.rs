//! The handle of an intake, which callers use. See the header of the crate.

use crate::ack::{Ack, ack};
use crate::audit;
use crate::config::{Config, ENTRY_BYTES_MAX};
use crate::cycle::Cycle;
use crate::driven::Driven;
use crate::error::{OpenError, PutError, ReadError};
use crate::follower::{Follower, NoFollower};
use crate::levelling::Lacking;
use crate::lost::Loss;
use crate::medium::Directory;
use crate::names::{DriveUuid, PoolUuid};
use crate::opening::{self, OpenedCycle};
use crate::queue::{Message, Prepare, Submission};
use crate::record::{KEY_BYTES_MAX, Kind, Sequence};
use crate::replay::Replay;
use crate::scan::Scan;
use crate::shared::Shared;
use crate::status::Status;
use crate::view::{Stored, Want};
use crate::writer::{Writer, submission};
use ::bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// A change of the contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this entry and value from now on.
    Put {
        /// At most [`KEY_BYTES_MAX`] bytes, not empty.
        key: Vec<u8>,
        /// The caller's metadata: at most [`ENTRY_BYTES_MAX`] bytes.
        entry: Vec<u8>,
        /// At most [`Config::value_bytes_max`] bytes.
        value: Bytes,
    },
    /// The key is removed, whether it existed or not.
    Delete {
        /// The key.
        key: Vec<u8>,
        /// The caller's metadata, for followers of the log: it cannot be read afterwards.
        entry: Vec<u8>,
    },
    /// All versions of the keys from `from` on and before `to`, with numbers up to `up_to`, are removed.
    Forget {
        /// The first key.
        from: Vec<u8>,
        /// The end, which is not in the range; `None` means all keys from `from` on.
        to: Option<Vec<u8>>,
        /// The last forgotten number.
        up_to: Sequence,
    },
}

/// The findings when an intake was opened.
#[derive(Debug, Default)]
pub struct Opened {
    /// The changes above [`Config::covered`]; none if that is `None`.
    pub replay: Replay,
    /// The last number that was given.
    pub last: Sequence,
    /// Number of copies of each record in the pool.
    pub copies: usize,
    /// Members of the pool that were not among the directories.
    pub missing: Vec<DriveUuid>,
    /// The pool's identity, which never changes.
    pub pool: PoolUuid,
    /// Bytes of torn tails, which were never acknowledged.
    pub torn_bytes: u64,
    /// With [`Config::needs_all`]: changes up to this one may be missing in the replay, since a log that is already a
    /// shelf is gone or damaged. A caller that has a later change has them all.
    pub unshown: Option<Sequence>,
}

/// A store of small records. Many threads can use clones of an `Arc` of it at once.
pub struct Intake {
    shared: Arc<Shared>,
    writer: Driven,
}

impl Intake {
    /// Opens the pool in `directories`, one for each drive, in any order; creates it if they are empty. Its manifest is
    /// in `home`, which is not one of them, and is best not on one of their disks.
    ///
    /// # Errors
    /// If drives do not belong together, none can be used, something in the manifest is missing, or a log that the
    /// caller needs cannot be read.
    pub fn open(
        home: Box<dyn Directory>,
        directories: Vec<Box<dyn Directory>>,
        config: Config,
    ) -> Result<(Self, Opened), OpenError> {
        Self::open_with(home, directories, config, |_| Ok(NoFollower))
    }

    /// As [`Self::open`], with a follower that `catch_up` creates, and that first receives the found changes.
    ///
    /// # Errors
    /// As [`Self::open`]; also the errors of `catch_up`.
    pub fn open_with<F: Follower>(
        home: Box<dyn Directory>,
        directories: Vec<Box<dyn Directory>>,
        config: Config,
        catch_up: impl FnOnce(&mut Replay) -> Result<F, ReadError>,
    ) -> Result<(Self, Opened), OpenError> {
        config.check();
        let (shared, cycles) = opening::open(home, directories, config)?;
        let mut opened = opened(&shared, &cycles).map_err(|error| OpenError::Drive { drive: 0, error })?;
        let follower = catch_up(&mut opened.replay).map_err(|error| OpenError::Drive { drive: 0, error })?;
        let lacking = Lacking::of_all(&shared).map_err(|error| OpenError::Drive { drive: 0, error })?;
        let mut writer = Writer {
            shared: Arc::clone(&shared),
            cycles: Vec::new(),
            follower: Box::new(follower),
            flushes: Vec::new(),
            lengths_due: None,
            is_behind_noted: false,
        };
        writer.boot(cycles, lacking);
        if !writer.cycles.iter().any(Cycle::lives) {
            return Err(OpenError::NoDrive);
        }
        let writer = Driven::begin(shared.config.driver, writer).map_err(OpenError::Thread)?;
        Ok((Self { shared, writer }, opened))
    }

    /// Takes in a change. `prepare` runs when the change gets its number, and may refuse it (see [`crate::Draft`]). The
    /// answer comes once the change is durable; changes take effect in the order of their numbers.
    ///
    /// # Errors
    /// [`PutError::TooLong`], and [`PutError::Busy`] if too much already waits: [`Self::pace`] is the delay that avoids
    /// that.
    pub fn submit(&self, change: Change, prepare: Option<Prepare>) -> Result<Ack, PutError> {
        let (submission, ack) = self.submission(change, prepare)?;
        self.shared.queue.try_push(submission).map_err(|_| PutError::Busy)?;
        self.work(0);
        Ok(ack)
    }

    /// Takes in changes that get consecutive numbers, from a thread that may wait for room; with one sync, if they fit
    /// into a batch ([`Config::batch_bytes`]). Returns their answers in order. They may exceed the bound on waiting
    /// bytes.
    ///
    /// # Errors
    /// [`PutError::TooLong`]; then none is taken in.
    pub fn submit_all(&self, changes: Vec<Change>) -> Result<Vec<Ack>, PutError> {
        let submissions = changes.into_iter().map(|change| self.submission(change, None));
        let (submissions, acks) = submissions.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        self.shared.queue.push_all(submissions);
        self.work(0);
        Ok(acks)
    }

    /// If the caller drives the intake ([`Config::driver`]): runs this number of the waiting tasks (turning logs into
    /// shelves, merges). True if tasks still wait. With threads it does nothing.
    pub fn work(&self, tasks: usize) -> bool {
        self.writer.work(&self.shared, tasks)
    }

    /// Writes the waiting changes, and ends: nothing more is taken in. Running transformations end by themselves.
    /// Dropping an intake closes it.
    pub fn close(&self) {
        self.writer.end(&self.shared);
    }

    /// True if it has separate threads, so that another thread may wait for a read.
    pub fn has_threads(&self) -> bool {
        matches!(self.writer, Driven::Thread(_))
    }

    /// As [`Self::submit`], from a thread that may wait for room and for the answer.
    ///
    /// # Errors
    /// The errors of the change.
    pub fn submit_and_wait(&self, change: Change, prepare: Option<Prepare>) -> Result<Sequence, PutError> {
        let (submission, ack) = self.submission(change, prepare)?;
        let pace = self.pace();
        if pace > Duration::ZERO {
            thread::sleep(pace);
        }
        self.shared.queue.push(submission);
        self.work(0);
        ack.wait()
    }

    /// The time that a caller should wait before the next change, so that other callers are not refused.
    pub fn pace(&self) -> Duration {
        self.shared.queue.pace()
    }

    /// Writes a key, and waits until it is durable.
    ///
    /// # Errors
    /// The errors of the change.
    pub fn put(&self, key: &[u8], entry: &[u8], value: &[u8]) -> Result<Sequence, PutError> {
        let change = Change::Put { key: key.to_vec(), entry: entry.to_vec(), value: Bytes::copy_from_slice(value) };
        self.submit_and_wait(change, None)
    }

    /// Removes a key, and waits until that is durable.
    ///
    /// # Errors
    /// The errors of the change.
    pub fn delete(&self, key: &[u8]) -> Result<Sequence, PutError> {
        self.submit_and_wait(Change::Delete { key: key.to_vec(), entry: Vec::new() }, None)
    }

    /// Removes all versions of a range of keys with numbers up to `up_to` in one operation, and waits until that is
    /// durable.
    ///
    /// # Errors
    /// The errors of the change.
    pub fn forget(&self, from: &[u8], to: Option<&[u8]>, up_to: Sequence) -> Result<Sequence, PutError> {
        let change = Change::Forget { from: from.to_vec(), to: to.map(<[u8]>::to_vec), up_to };
        self.submit_and_wait(change, None)
    }

    /// The newest version of `key`, with its whole value. After a loss it may be an older one: [`Stored::certain`].
    ///
    /// # Errors
    /// If the drive fails, its content is damaged, or a missing key may have been lost.
    pub fn get(&self, key: &[u8]) -> Result<Option<Stored>, ReadError> {
        self.read(key, Want::Range(0, u64::MAX))
    }

    /// As [`Self::get`], with the bytes `range` of the value, as far as it has them.
    ///
    /// # Errors
    /// If the drive fails, or its content is damaged.
    pub fn get_range(&self, key: &[u8], range: Range<u64>) -> Result<Option<Stored>, ReadError> {
        self.read(key, Want::Range(range.start, range.end.saturating_sub(range.start)))
    }

    /// As [`Self::get`], without the value.
    ///
    /// # Errors
    /// If the drive fails, or its content is damaged.
    pub fn head(&self, key: &[u8]) -> Result<Option<Stored>, ReadError> {
        self.read(key, Want::Entry)
    }

    fn read(&self, key: &[u8], want: Want) -> Result<Option<Stored>, ReadError> {
        self.shared.read(|view| view.get(key, want))
    }

    /// The keys from `from` on and before `to` (`None` means to the end), in order, with their values.
    pub fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Scan {
        let want = Want::Range(0, u64::MAX);
        Scan::new(Arc::clone(&self.shared), from.to_vec(), to.map(<[u8]>::to_vec), want)
    }

    /// As [`Self::scan`], without the values.
    pub fn scan_entries(&self, from: &[u8], to: Option<&[u8]>) -> Scan {
        Scan::new(Arc::clone(&self.shared), from.to_vec(), to.map(<[u8]>::to_vec), Want::Entry)
    }

    /// One more than the largest trailer of any key that exists or existed: the last 8 bytes of a key, as a big-endian
    /// number. 0 without any key, and the largest possible number if the answer would need reading everything. Reads
    /// nothing.
    pub fn trailers_end(&self) -> u64 {
        self.shared.cycles.iter().map(|cycle| cycle.view().trailers_end()).max().unwrap_or(0)
    }

    /// Leaves the log on duty. The answer comes once this log and all earlier ones are shelves.
    pub fn rotate(&self) -> Ack {
        let (answerer, ack) = ack();
        self.shared.queue.send(Message::Flush(answerer));
        self.work(0);
        ack
    }

    /// Leaves the log on duty, and waits until all logs are shelves. Acknowledged changes are durable without it.
    ///
    /// # Errors
    /// [`PutError::NoSpace`] if no drive has room for shelves.
    pub fn flush(&self) -> Result<(), PutError> {
        self.rotate().wait().map(|_| ())
    }

    /// Reports that the caller knows all changes up to `sequence`: logs that exist only for it can be removed.
    pub fn covered(&self, sequence: Sequence) {
        self.shared.queue.send(Message::Covered(sequence));
        self.work(0);
    }

    /// Retains the logs with changes that were accepted until now as long as the intake is open, although the caller
    /// knows them: another copy of the caller may not. At most 64; beyond that nothing is taken in.
    pub fn retain(&self) {
        self.shared.queue.send(Message::Retain);
        self.work(0);
    }

    /// The losses since the last call: at most 65,536; [`Status::losses`] counts all.
    pub fn take_losses(&self) -> Vec<Loss> {
        std::mem::take(&mut self.shared.losses.lock().latest)
    }

    /// The state. Sends no request to a drive.
    pub fn status(&self) -> Status {
        let cycles: Vec<_> = self.shared.cycles.iter().map(|cycle| cycle.status.lock().clone()).collect();
        let counts = &self.shared.counts;
        Status {
            copies: cycles.iter().filter(|cycle| cycle.admits).count(),
            cycles,
            last: Sequence(self.shared.last.load(Ordering::Relaxed)),
            queued_bytes: self.shared.queue.bytes(),
            accepted_bytes: counts.accepted_bytes.load(Ordering::Relaxed),
            batches: counts.batches.load(Ordering::Relaxed),
            accepted: counts.accepted.load(Ordering::Relaxed),
            losses: self.shared.losses.lock().total,
        }
    }

    /// True if one rotation has everything that was ever taken in, so that a scan leaves nothing out.
    pub fn is_whole(&self) -> bool {
        self.shared.cycles.iter().any(|cycle| cycle.view().is_whole())
    }

    /// True if a drive is missing or has failed, so that unreadable data may be on it.
    pub fn lacks_drive(&self) -> bool {
        self.shared.cycles.iter().any(|cycle| cycle.view().missing)
    }

    fn submission(&self, change: Change, prepare: Option<Prepare>) -> Result<(Submission, Ack), PutError> {
        let (kind, key, entry, value) = match change {
            Change::Put { key, entry, value } => (Kind::Put, key, entry, value),
            Change::Delete { key, entry } => (Kind::Delete, key, entry, Bytes::new()),
            Change::Forget { from, to, up_to } => {
                (Kind::Forget, from, up_to.0.to_le_bytes().to_vec(), to.unwrap_or_default().into())
            }
        };
        let value_limit = if kind == Kind::Forget { KEY_BYTES_MAX } else { self.shared.config.value_bytes_max };
        for (what, bytes, limit) in [
            ("key", key.len(), KEY_BYTES_MAX),
            ("entry", entry.len(), ENTRY_BYTES_MAX),
            ("value", value.len(), value_limit),
        ] {
            if bytes > limit {
                return Err(PutError::TooLong { what, bytes, limit });
            }
        }
        let (answerer, ack) = ack();
        Ok((Submission { prepare, ..submission(kind, key, entry, value, answerer) }, ack))
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.close();
    }
}

fn opened(shared: &Shared, cycles: &[OpenedCycle]) -> Result<Opened, ReadError> {
    let logs: Vec<_> = cycles.iter().flat_map(|cycle| cycle.dead.iter().chain(&cycle.logs)).cloned().collect();
    let replay = shared.config.covered.map(|covered| Replay::of(&logs, covered)).transpose()?;
    let found: Vec<_> =
        cycles.iter().map(|cycle| (&cycle.findings, [cycle.logs.as_slice(), cycle.dead.as_slice()])).collect();
    Ok(Opened {
        replay: replay.unwrap_or_default(),
        last: Sequence(shared.last.load(Ordering::Relaxed)),
        copies: cycles.len(),
        missing: cycles.iter().flat_map(|cycle| &cycle.missing).copied().collect(),
        pool: shared.pool,
        torn_bytes: cycles.iter().map(|cycle| cycle.torn).sum(),
        unshown: audit::unshown(shared, &found),
    })
}
