//! Migration beside clients: executes the decisions of [`engine::staging::pacing`].
//!
//! A task that copies a block of a migration write, or reads one for a check, waits for its turn (`Pacing::turn`,
//! `Pacing::turn_to_check`); a PUT waits for its delay (`Pacing::admitted`). Time is the host's, because the host's
//! disk is shared.

use engine::Usage;
use engine::staging::pacing::{Admission, Pacer, PacingPolicy};
use model::Time;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// The time after a client's request in which the workshop counts as in use: requests come in bursts.
const IDLE_AFTER: Duration = Duration::from_millis(100);
/// The share of the time for moves beside clients, in thousandths: a quarter.
const BUSY_PERMILLE: u32 = 250;

/// Paces migration. Clones share it.
#[derive(Clone)]
pub struct Pacing(Arc<Shared>);

struct Shared {
    pacer: Mutex<Pacer>,
    /// Notified when a client's request was answered.
    left: Notify,
    origin: Instant,
}

impl Default for Pacing {
    /// The values of a server without a configuration.
    fn default() -> Self {
        Self::new(4_000_000, 800)
    }
}

impl Pacing {
    /// Blocks of `block_bytes` beside clients, with the workshop's critical threshold.
    pub fn new(block_bytes: u64, critical_permille: u32) -> Self {
        let (idle_after, busy_permille, awaits_idle) = (IDLE_AFTER, BUSY_PERMILLE, false);
        let policy = PacingPolicy { block_bytes, idle_after, busy_permille, critical_permille, awaits_idle };
        let pacer = Mutex::new(Pacer::new(policy));
        Self(Arc::new(Shared { pacer, left: Notify::new(), origin: disk::clock::monotonic() }))
    }

    fn now(&self) -> Time {
        Time::ZERO + disk::clock::monotonic().duration_since(self.0.origin)
    }

    /// Marks a client's request as present until the returned value is dropped.
    pub(crate) fn client(&self) -> ClientHere {
        self.0.pacer.lock().client_came(self.now());
        ClientHere(self.clone())
    }

    /// The load that the engine's checks use.
    pub(crate) fn load_permille(&self) -> u32 {
        self.0.pacer.lock().load_permille(self.now())
    }

    /// Waits for the delay of a write of `bytes` at this `usage` of the workshop. If there is no room, the reservation
    /// fails.
    pub(crate) async fn admitted(&self, usage: Usage, bytes: u64) {
        let admission = self.0.pacer.lock().admission(usage, bytes);
        match admission {
            Admission::After(Duration::ZERO) | Admission::Stopped => {}
            Admission::After(delay) => sleep(delay).await,
        }
    }

    /// The same for a block that is read for a check and frees nothing.
    pub(crate) async fn turn_to_check(&self, usage: impl Fn() -> Usage) -> Turn {
        Turn { is_check: true, ..self.turn(usage).await }
    }

    /// Waits for the moment at which the next block may be copied, at the `usage` of the workshop.
    pub(crate) async fn turn(&self, usage: impl Fn() -> Usage) -> Turn {
        let mut bytes_max = 0;
        loop {
            let left = self.0.left.notified();
            let now = self.now();
            let at = {
                let pacer = self.0.pacer.lock();
                bytes_max = pacer.block_bytes().max(bytes_max);
                pacer.next_block(now, usage())
            };
            if at <= now {
                return Turn { pacing: self.clone(), began: now, bytes_max, bytes: 0, is_check: false };
            }
            if at == Time::MAX {
                left.await;
                continue;
            }
            tokio::select! {
                () = left => {}
                () = sleep_until(self.0.origin + at.since(Time::ZERO)) => {}
            }
        }
    }
}

/// A client's request that is present.
pub(crate) struct ClientHere(Pacing);

impl Drop for ClientHere {
    fn drop(&mut self) {
        let Pacing(shared) = &self.0;
        shared.pacer.lock().client_left(self.0.now());
        shared.left.notify_waiters();
    }
}

/// The turn of a block.
pub(crate) struct Turn {
    pacing: Pacing,
    began: Time,
    bytes_max: u64,
    bytes: u64,
    is_check: bool,
}

impl Turn {
    /// Records that `bytes` of the block were copied or checked. Returns the next turn, once the whole block was.
    pub(crate) async fn copied(mut self, bytes: u64, usage: impl Fn() -> Usage) -> Self {
        self.bytes += bytes;
        if self.bytes < self.bytes_max {
            return self;
        }
        let (pacing, is_check) = (self.pacing.clone(), self.is_check);
        self.ended();
        if is_check { pacing.turn_to_check(usage).await } else { pacing.turn(usage).await }
    }

    /// Ends the turn without further bytes: the bytes so far count as the whole block would.
    pub(crate) fn ended(self) {
        let Self { pacing, began, bytes, is_check, .. } = self;
        let (now, mut pacer) = (pacing.now(), pacing.0.pacer.lock());
        match bytes {
            0 => {}
            _ if is_check => pacer.checked(now, began),
            _ => pacer.copied(now, began, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_move_that_ends_within_a_block_tells_the_pacer_its_rate() {
        let pacing = Pacing::new(1 << 40, 0);
        let usage = Usage { staged_bytes: 900, capacity_bytes: 1000 };
        let admission = || pacing.0.pacer.lock().admission(usage, 10);
        let turn = pacing.turn(|| usage).await.copied(100, || usage).await;
        assert_eq!(admission(), Admission::After(Duration::ZERO), "nothing is known of a rate");
        turn.ended();
        assert_ne!(admission(), Admission::After(Duration::ZERO), "the last block was shorter, and was moved as well");
    }
}
