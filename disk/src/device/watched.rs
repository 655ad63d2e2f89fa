//! Disks that are watched while they sleep.
//!
//! Every [`WATCH_EVERY`] each disk is looked for, and the kernel's counters of the sleeping ones are read, which
//! touches no disk. Every [`CHECK_EVERY`] the sleeping ones are also asked for their power mode, which starts none: one
//! may have woken by itself.

use super::powered::PoweredDisk;
use super::watch::Seen;
use crate::clock;
use crate::counters::Touch;
use model::UnaskedWake;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Interval between two looks at the devices.
pub const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Interval between two power mode queries to the sleeping devices.
pub const CHECK_EVERY: Duration = Duration::from_mins(10);

/// Maximum time for a disk's answer to a query: longer than the kernel retries a command.
pub(super) const ANSWER_MAX: Duration = Duration::from_mins(2);

/// Disks by their keys.
pub(super) struct Watched<K> {
    disks: Vec<(K, Arc<PoweredDisk>)>,
    woken: AtomicU64,
    woke_themselves: AtomicU64,
    last_wakes: Mutex<BTreeMap<K, UnaskedWake>>,
    /// Time of the last power mode queries.
    checked: Mutex<Instant>,
}

impl<K: Copy + Ord + Display> Watched<K> {
    pub(super) fn new(disks: Vec<(K, Arc<PoweredDisk>)>) -> Self {
        let (woken, woke_themselves) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { disks, woken, woke_themselves, last_wakes: Mutex::default(), checked: Mutex::new(clock::monotonic()) }
    }

    /// Runs `work` with each disk, all at once, on threads that may block. A hanging disk is waited for at most
    /// [`ANSWER_MAX`], and `silence` is used as its answer.
    pub(super) async fn each<T: Send + Clone + 'static>(&self, work: fn(&PoweredDisk) -> T, silence: T) -> Vec<(K, T)> {
        let one = |(drive, disk): &(K, Arc<PoweredDisk>)| {
            let (drive, disk, silence) = (*drive, Arc::clone(disk), silence.clone());
            let asked = tokio::time::timeout(ANSWER_MAX, tokio::task::spawn_blocking(move || work(&disk)));
            async move {
                let answer = asked.await;
                if answer.is_err() {
                    tracing::warn!(%drive, "a disk has not answered for {ANSWER_MAX:?}");
                }
                (drive, answer.ok().and_then(Result::ok).unwrap_or(silence))
            }
        };
        futures::future::join_all(self.disks.iter().map(one)).await
    }

    /// Waits until the next look is due, and looks. Counts the wakes that it sees.
    pub(super) async fn look(&self) -> Vec<(K, Seen)> {
        tokio::time::sleep(WATCH_EVERY).await;
        let mut seen = self.each(PoweredDisk::look, None).await;
        if self.checked.lock().elapsed() >= CHECK_EVERY {
            seen.extend(self.each(PoweredDisk::check, None).await);
            *self.checked.lock() = clock::monotonic();
        }
        let seen: Vec<(K, Seen)> = seen.into_iter().filter_map(|(drive, seen)| Some((drive, seen?))).collect();
        for (drive, seen) in &seen {
            self.note(*drive, *seen);
        }
        seen
    }

    /// Logs an observation.
    pub(super) fn note(&self, drive: K, seen: Seen) {
        match seen {
            Seen::Gone => tracing::error!(%drive, "a disk is gone; check its cable, its slot and its power"),
            Seen::Back { asleep: true } => tracing::info!(%drive, "a disk is back, asleep"),
            Seen::Back { asleep: false } => {
                tracing::info!(%drive, "a disk is back, and may be spinning; it is stopped");
            }
            Seen::Woken(touch) => self.note_woken(drive, touch),
        }
    }

    /// Counts a wake of `drive` that was not caused from here.
    fn note_woken(&self, drive: K, touch: Touch) {
        let (by_itself, cause) = (touch == Touch::None, what(touch));
        let counter = if by_itself { &self.woke_themselves } else { &self.woken };
        counter.fetch_add(1, Ordering::Relaxed);
        let wake = UnaskedWake { found_ms: clock::wall_ms(), by_itself, cause: cause.clone() };
        self.last_wakes.lock().insert(drive, wake);
        if by_itself {
            tracing::warn!(
                %drive,
                "a sleeping disk woke by itself: {cause}. Its own timers may do that; `larder drive \
                 doctor` names disks with timers"
            );
        } else {
            tracing::warn!(
                %drive,
                "another program woke a sleeping disk: {cause}; `larder drive doctor` looks for the program"
            );
        }
    }

    /// Number of times that disks were found awake because another program had started them.
    pub(super) fn woken_by_others(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// Number of times that disks were found awake that no program had started.
    pub(super) fn woke_themselves(&self) -> u64 {
        self.woke_themselves.load(Ordering::Relaxed)
    }

    /// The last wake of each disk that was found awake without a start from here.
    pub(super) fn last_wakes(&self) -> BTreeMap<K, UnaskedWake> {
        self.last_wakes.lock().clone()
    }
}

fn what(touch: Touch) -> String {
    match touch {
        Touch::Io(requests) => format!("reads, writes or flushes: {requests}"),
        Touch::Commands(commands) => format!("commands without reads or writes: {commands}"),
        Touch::None => "no command was sent to it".to_owned(),
        Touch::Restarted => "the kernel has restarted its counts, as after a reset or a new cable".to_owned(),
    }
}
