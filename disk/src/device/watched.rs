//! Disks that are watched while they sleep.
//!
//! Every [`WATCH_EVERY`] each is looked for, and the kernel's counters of those that sleep are read, which touches no
//! disk. Every [`CHECK_EVERY`] those that sleep are asked for their power mode as well, which starts none: one may have
//! woken by itself.

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

/// Between two looks at the devices.
pub const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Between two questions to the devices that sleep whether they still do.
pub const CHECK_EVERY: Duration = Duration::from_mins(10);

/// So long a disk may take to say what it is at: longer than the kernel tries a command again.
pub(super) const ANSWER_MAX: Duration = Duration::from_mins(2);

/// Disks by what they are called here.
pub(super) struct Watched<K> {
    disks: Vec<(K, Arc<PoweredDisk>)>,
    woken: AtomicU64,
    woke_themselves: AtomicU64,
    last_wakes: Mutex<BTreeMap<K, UnaskedWake>>,
    /// When they were last asked whether they sleep.
    checked: Mutex<Instant>,
}

impl<K: Copy + Ord + Display> Watched<K> {
    pub(super) fn new(disks: Vec<(K, Arc<PoweredDisk>)>) -> Self {
        let (woken, woke_themselves) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { disks, woken, woke_themselves, last_wakes: Mutex::default(), checked: Mutex::new(clock::monotonic()) }
    }

    /// Does `work` with each disk, all at once, on threads that may block: one that hangs is waited for no longer than
    /// [`ANSWER_MAX`], and `silence` stands for what it would have said.
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

    /// Waits until the next look is due, and looks. What it sees of wakes is counted.
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

    /// What was seen, for people.
    pub(super) fn note(&self, drive: K, seen: Seen) {
        match seen {
            Seen::Gone => tracing::error!(%drive, "a disk is gone; see to its cable, its slot and its power"),
            Seen::Back { asleep: true } => tracing::info!(%drive, "a disk is back, asleep"),
            Seen::Back { asleep: false } => {
                tracing::info!(%drive, "a disk is back, and spins or may; it is stopped");
            }
            Seen::Woken(touch) => self.note_woken(drive, touch),
        }
    }

    /// Nobody here woke `drive`.
    fn note_woken(&self, drive: K, touch: Touch) {
        let (by_itself, cause) = (touch == Touch::None, what(touch));
        let counter = if by_itself { &self.woke_themselves } else { &self.woken };
        counter.fetch_add(1, Ordering::Relaxed);
        let wake = UnaskedWake { found_ms: clock::wall_ms(), by_itself, cause: cause.clone() };
        self.last_wakes.lock().insert(drive, wake);
        if by_itself {
            tracing::warn!(
                %drive,
                "a sleeping disk woke by itself: {cause}; `larder drive doctor` says which disks do that by timers"
            );
        } else {
            tracing::warn!(
                %drive,
                "another program woke a sleeping disk: {cause}; `larder drive doctor` looks for who does that"
            );
        }
    }

    /// How often disks were found awake that another program had started.
    pub(super) fn woken_by_others(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// How often disks were found awake that nobody had started.
    pub(super) fn woke_themselves(&self) -> u64 {
        self.woke_themselves.load(Ordering::Relaxed)
    }

    /// Of each disk that was found awake and that nobody here had started, the last time.
    pub(super) fn last_wakes(&self) -> BTreeMap<K, UnaskedWake> {
        self.last_wakes.lock().clone()
    }
}

fn what(touch: Touch) -> String {
    match touch {
        Touch::Io(requests) => format!("reads, writes or flushes: {requests}"),
        Touch::Commands(commands) => format!("commands without reads or writes: {commands}"),
        Touch::None => "nobody sent it anything".to_owned(),
        Touch::Restarted => "the kernel counts it anew, as after a reset or another cable".to_owned(),
    }
}
