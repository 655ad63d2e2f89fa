//! The network cards of the servers in virtual time: each sends one piece after another at its rate.
//!
//! The payload of a read leaves by the cards of the servers to which its drives are attached, in proportion to its
//! streams. Every read has one piece under way, so reads that share a card get equal parts of it.
//!
//! Invariant: a card never sends more than its rate times the time that has passed, except for the lateness of a timer
//! of a millisecond.

use disk::Clock;
use model::physics::Servers;
use model::{DriveId, RackSpec, Time, transfer_time};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The granularity of timers: shorter waits are left to the next piece.
const TIMER: Duration = Duration::from_millis(1);

/// The network cards of a rack's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardSpec {
    /// Bytes/s of each; `None` is no limit.
    pub bytes_per_s: Option<u64>,
    /// True if all servers share one card.
    pub shared: bool,
}

/// The cards that send a read, each with the number of the read's streams that it sends.
pub(super) type Path = Vec<(usize, u64)>;

/// The network cards.
pub(super) struct Cards {
    spec: CardSpec,
    clock: Arc<dyn Clock>,
    servers: Servers,
    /// The time when each has sent everything that it was given.
    free_at: Mutex<Vec<Time>>,
}

impl Cards {
    pub(super) fn new(spec: &RackSpec, cards: CardSpec, clock: Arc<dyn Clock>) -> Self {
        let servers = Servers::new(spec);
        let free_at = Mutex::new(vec![Time::ZERO; servers.count()]);
        Self { spec: cards, clock, servers, free_at }
    }

    /// The cards by which payload from `drives` leaves.
    pub(super) fn path(&self, drives: &[DriveId]) -> Path {
        let mut path = Path::new();
        for drive in drives {
            let card = if self.spec.shared { 0 } else { self.servers.of(*drive) };
            match path.iter_mut().find(|(found, _)| *found == card) {
                Some((_, streams)) => *streams += 1,
                None => path.push((card, 1)),
            }
        }
        path
    }

    /// Sends `bytes` bytes by `path`; returns when the last of them has left.
    pub(super) async fn send(&self, path: &Path, bytes: u64) {
        let Some(bytes_per_s) = self.spec.bytes_per_s else { return };
        let now = self.clock.now();
        let done = self.reserve(path, bytes, (bytes_per_s, now));
        if done.since(now) >= TIMER {
            self.clock.sleep_until(done).await;
        }
    }
    /// Reserves the cards of `path` for `bytes` bytes, after all that they send already; returns the time when all have
    /// left.
    fn reserve(&self, path: &Path, bytes: u64, (bytes_per_s, now): (u64, Time)) -> Time {
        let streams = path.iter().map(|(_, streams)| streams).sum::<u64>();
        let mut free_at = self.free_at.lock();
        let mut done = now;
        for (card, part) in path {
            let begins = free_at[*card].max(now - TIMER);
            free_at[*card] = begins + transfer_time((bytes * part).div_ceil(streams), bytes_per_s);
            done = done.max(free_at[*card]);
        }
        done
    }
}
