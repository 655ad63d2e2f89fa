//! A drive of the pool: its directory, its counters, and a thread for requests that the writer must not wait for
//! forever. If a caller drives the intake, there is no thread: a request is executed when it is started.
//!
//! A request that has not ended by its deadline counts as failed, and the drive as lost: it receives no more requests.
//! The thread and the request's resources are released when the drive answers, if it ever does.

use crate::driver::Driver;
use crate::medium::{Directory, File};
use crate::names::{DriveUuid, FileId};
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// The owner of the turn at a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Background work may use it.
    Free,
    /// It has a stage, or sleeps.
    Taken,
    /// The intake ends.
    Ended,
}

/// A drive of the pool.
#[derive(Debug)]
pub(crate) struct Drive {
    pub(crate) uuid: DriveUuid,
    pub(crate) directory: Box<dyn Directory>,
    /// Bytes written to it since it was opened.
    pub(crate) written: AtomicU64,
    /// Syncs of it since it was opened.
    pub(crate) syncs: AtomicU64,
    lost: AtomicBool,
    /// It was stopped; and a reader has started it since then.
    asleep: AtomicBool,
    roused: AtomicBool,
    /// Background work has used it.
    used: AtomicBool,
    /// Held while the drive is started or stopped, so that `asleep` agrees with the last command to it.
    power: Mutex<()>,
    turn: Mutex<Turn>,
    turned: Condvar,
    driver: Driver,
    jobs: Mutex<Option<Sender<Job>>>,
    /// The file of a dead log, for the next one.
    spare: Mutex<Option<Spare>>,
}

/// The file of a dead log, which still has its name: the drive's next log may reuse it. Shelves record that it is dead.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) file: FileId,
    pub(crate) medium: Arc<dyn File>,
    /// Its remaining readers; it is not overwritten before all of them are gone.
    pub(crate) readers: Weak<dyn Any + Send + Sync>,
}

/// A running request.
pub(crate) struct Pending<T>(Receiver<io::Result<T>>);

impl<T> Pending<T> {
    /// Its result; [`io::ErrorKind::TimedOut`] if none comes within `deadline`.
    pub(crate) fn wait(self, deadline: Duration) -> io::Result<T> {
        match self.0.recv_timeout(deadline) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the drive's thread has ended")),
        }
    }
}

impl Drive {
    pub(crate) fn new(uuid: DriveUuid, directory: Box<dyn Directory>, driver: Driver) -> Self {
        let (written, syncs) = (AtomicU64::new(0), AtomicU64::new(0));
        let (lost, jobs) = (AtomicBool::new(false), Mutex::new(None));
        let (turn, turned) = (Mutex::new(Turn::Free), Condvar::new());
        let (asleep, roused, used) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        let (power, spare) = (Mutex::new(()), Mutex::new(None));
        Self { uuid, directory, written, syncs, lost, asleep, roused, used, power, turn, turned, driver, jobs, spare }
    }

    /// Executes a piece of background work, at most some MiB, as soon as background work has its turn.
    pub(crate) fn background<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut turn = self.turn.lock();
        // If a caller drives, no other thread is at work.
        while *turn == Turn::Taken && !self.is_lost() && self.driver == Driver::Threads {
            self.turned.wait_for(&mut turn, Duration::from_secs(1));
        }
        if *turn == Turn::Ended || self.is_lost() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.used.store(true, Ordering::Release);
        work()
    }

    /// True if background work has used it since the last call.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::AcqRel)
    }

    /// Sets the turn once the current piece of work has ended; `false` if that does not end within `deadline`.
    pub(crate) fn set_turn(&self, next: Turn, deadline: Duration) -> bool {
        let Some(mut turn) = self.turn.try_lock_for(deadline) else { return false };
        if *turn != Turn::Ended {
            *turn = next;
        }
        drop(turn);
        self.turned.notify_all();
        true
    }

    /// True if it must receive no more requests.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn set_lost(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Starts it.
    pub(crate) fn wake(&self) -> io::Result<()> {
        let _power = self.power.lock();
        self.directory.wake()?;
        self.asleep.store(false, Ordering::Release);
        Ok(())
    }

    /// Stops it.
    pub(crate) fn sleep(&self) -> io::Result<()> {
        let _power = self.power.lock();
        self.asleep.store(true, Ordering::Release);
        self.directory.sleep()
    }

    /// Starts it for a reader, if it sleeps. The rotation notices that by [`Self::was_roused`].
    pub(crate) fn rouse(&self) -> io::Result<()> {
        if self.asleep.load(Ordering::Acquire) {
            self.wake()?;
            self.roused.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// True if it was stopped and not started since then.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire)
    }

    /// True if a reader has started it since the last call.
    pub(crate) fn was_roused(&self) -> bool {
        self.roused.swap(false, Ordering::AcqRel)
    }

    /// Starts `job` on the drive's thread, after all earlier jobs; without a thread it is executed at once.
    pub(crate) fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (answer, answered) = channel();
        let drive = Arc::clone(self);
        let job: Job = Box::new(move || {
            let result = job(&drive);
            // The receiver of the answer may be the last to hold the drive.
            drop(drive);
            // After the deadline no caller waits any more.
            answer.send(result).ok();
        });
        if self.driver == Driver::Caller {
            job();
            return Pending(answered);
        }
        let mut jobs = self.jobs.lock();
        if jobs.is_none() {
            *jobs = worker(self.uuid).ok();
        }
        if let Some(jobs) = jobs.as_ref() {
            jobs.send(job).ok();
        }
        Pending(answered)
    }

    /// Keeps a dead log for the next one; returns it if the drive already has one.
    pub(crate) fn keep_spare(&self, spare: Spare) -> Result<(), Spare> {
        let mut kept = self.spare.lock();
        if kept.is_some() {
            return Err(spare);
        }
        *kept = Some(spare);
        Ok(())
    }

    /// The dead log for the next one, if it has no readers any more.
    pub(crate) fn take_spare(&self) -> Option<Spare> {
        self.spare.lock().take_if(|spare| spare.readers.strong_count() == 0)
    }

    /// The dead log, for removal; its readers can continue.
    pub(crate) fn drop_spare(&self) -> Option<FileId> {
        self.spare.lock().take().map(|spare| spare.file)
    }

    /// Writes `bytes` to `file` at `offset` and makes them durable.
    pub(crate) fn append(&self, file: &dyn File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_at(bytes, offset)?;
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.sync(file)
    }

    /// Makes `file` durable.
    pub(crate) fn sync(&self, file: &dyn File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        file.sync()
    }

    /// Makes names durable.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.directory.sync()
    }
}

/// A thread that executes jobs until all senders are gone.
fn worker(uuid: DriveUuid) -> io::Result<Sender<Job>> {
    let (jobs, queue) = channel::<Job>();
    let work = move || {
        for job in queue {
            job();
        }
    };
    std::thread::Builder::new().name(format!("intake-{:04x}", uuid.0 & 0xffff)).spawn(work)?;
    Ok(jobs)
}
