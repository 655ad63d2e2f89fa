//! Pacing: when the next block of a move is copied, and how fast new data is admitted in the meantime.
//!
//! SOHO blocks its storage while a move runs. Here a move is a sequence of blocks, and clients wait for at most one
//! block:
//!
//! 1. The workshop is idle after [`PacingPolicy::idle_after`] without a client request. While it is idle, blocks follow
//!    each other without pauses.
//! 2. Between the thresholds, and while the workshop is not idle, the next block waits until it is
//!    ([`PacingPolicy::awaits_idle`]). Exception: if the target drives spin meanwhile and keep other drives from
//!    spinning (DESIGN.md, section 2; SOHO has one disk), the blocks continue beside clients, with the least share of
//!    step 3, and the listing before the move waits instead ([`super::idleness`]).
//! 3. Above the critical threshold blocks continue beside clients, for a share of the time: after a block that took t
//!    the next one waits t (1 - share) / share. The share grows from `busy_permille` at the critical threshold to all
//!    of the time when the workshop is full.
//! 4. Above the critical threshold each write is delayed: by the time that moving its bytes takes, times f / (1 - f),
//!    where f is the workshop's position between critical (0) and full (1). So clients that write faster than moving
//!    frees space are held at its rate half way between the two. Admission slows long before it stops, which it does
//!    when there is no room.
//!
//! Invariant: nothing here is counted in objects; time is an argument. No delay exceeds [`DELAY_MAX`].
//!
//! Reads of checks ([`super::checks`]) are paced in the same way.
//!
//! Run by the reproduction of SOHO (`sim/src/soho/`), and by the server (`server/src/pacing.rs`) before each block that
//! a migration write reads from the workshop, and at each PUT.

use super::load::LoadMeter;
use crate::event::Usage;
use core::time::Duration;
use model::{Time, transfer_time};

/// The longest delay of a write; if that is too short, admission stops.
pub const DELAY_MAX: Duration = Duration::from_secs(1);

/// How moves are paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacingPolicy {
    /// Bytes per block: a client waits for at most one block, and the warehouse seeks once per block.
    pub block_bytes: u64,
    /// The workshop is idle after this long without a client request.
    pub idle_after: Duration,
    /// The share of the time (in thousandths, above 0) that a move takes beside clients at the critical threshold.
    pub busy_permille: u32,
    /// The threshold above which blocks are copied beside clients and writes are delayed, in thousandths.
    pub critical_permille: u32,
    /// Between the thresholds blocks wait for an idle workshop.
    pub awaits_idle: bool,
}

/// The time at which a write may be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// After this delay, which may be zero.
    After(Duration),
    /// Not before there is room.
    Stopped,
}

/// The last copied block: its end, and its duration.
#[derive(Clone, Copy, Debug)]
struct Copied {
    end: Time,
    took: Duration,
}

/// Decides when the next block is copied and when a write is admitted. See the head of this file.
#[derive(Clone, Debug)]
pub struct Pacer {
    policy: PacingPolicy,
    /// The present client requests and the recent load.
    load: LoadMeter,
    /// The time at which the last request was answered.
    left: Time,
    last: Option<Copied>,
    /// Moving rate in bytes per second, pauses included; a moving average in which the newest block has a weight of
    /// 1/16.
    drain_bytes_s: u64,
}

const WHOLE: u64 = 1000;

impl Pacer {
    /// A pacer of an unused workshop.
    pub fn new(policy: PacingPolicy) -> Self {
        assert!(policy.block_bytes > 0, "a block holds something");
        assert!((1..=1000).contains(&policy.busy_permille), "a move beside clients goes on");
        assert!(policy.critical_permille <= 1000, "no threshold lies above full");
        Self { policy, load: LoadMeter::default(), left: Time::ZERO, last: None, drain_bytes_s: 0 }
    }

    /// A client request has arrived.
    pub fn client_came(&mut self, now: Time) {
        self.load.came(now);
    }

    /// A client request was answered.
    pub fn client_left(&mut self, now: Time) {
        self.load.left(now);
        self.left = now;
    }

    /// The recent share of the time in which a client request was present, in thousandths.
    pub fn load_permille(&self, now: Time) -> u32 {
        self.load.permille(now)
    }

    /// True if the workshop is idle.
    pub fn is_idle(&self, now: Time) -> bool {
        self.idle_from() <= now
    }

    /// The start of the idle time, past or future, if no request arrives before; [`Time::MAX`] while one is present.
    pub fn idle_from(&self) -> Time {
        if self.load.clients() > 0 { Time::MAX } else { self.left + self.policy.idle_after }
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u64 {
        self.policy.block_bytes
    }

    /// The earliest time for the next block; [`Time::MAX`] means not before a request is answered. Valid until a
    /// request arrives or is answered, or the workshop's usage changes.
    pub fn next_block(&self, now: Time, usage: Usage) -> Time {
        if self.is_idle(now) {
            return now;
        }
        let (above, span) = self.above_critical(usage);
        if above == 0 && self.policy.awaits_idle {
            return self.idle_from();
        }
        let Some(Copied { end, took }) = self.last else { return now };
        let busy = u64::from(self.policy.busy_permille);
        let more = u128::from(WHOLE - busy) * above / span;
        let share = u128::from(busy) + more;
        assert!(share <= u128::from(WHOLE), "a share lies between the least and all");
        let rest = took.as_nanos() * (u128::from(WHOLE) - share) / share;
        (end + Duration::from_nanos(rest as u64)).min(self.idle_from()).max(now)
    }

    /// A block of `bytes`, which was started at `began`, is copied.
    pub fn copied(&mut self, now: Time, began: Time, bytes: u64) {
        let took = now.since(began);
        // Beside clients the pause before a block counts as part of it; the time before a move started does not.
        let since = self.last.map_or(began, |last| last.end).max(began - 16 * took);
        let rate = u128::from(bytes) * 1_000_000_000 / now.since(since).as_nanos().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        self.drain_bytes_s = match self.drain_bytes_s {
            0 => rate,
            known => known - known / 16 + rate / 16,
        };
        self.last = Some(Copied { end: now, took });
    }

    /// A block that was started at `began` is read for a check: it uses the disk like a copied block, and frees
    /// nothing.
    pub fn checked(&mut self, now: Time, began: Time) {
        self.last = Some(Copied { end: now, took: now.since(began) });
    }

    /// The time at which a write of `bytes` may be admitted.
    pub fn admission(&self, usage: Usage, bytes: u64) -> Admission {
        if usage.staged_bytes.saturating_add(bytes) > usage.capacity_bytes {
            return Admission::Stopped;
        }
        let (above, span) = self.above_critical(usage);
        if above == 0 || self.drain_bytes_s == 0 {
            return Admission::After(Duration::ZERO);
        }
        let moved = transfer_time(bytes, self.drain_bytes_s).as_nanos();
        let left = (span - above).max(1);
        let nanos = moved.saturating_mul(above) / left;
        Admission::After(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(DELAY_MAX))
    }

    /// The bytes above the critical threshold, and the bytes from there to full.
    fn above_critical(&self, usage: Usage) -> (u128, u128) {
        let critical = u128::from(usage.capacity_bytes) * u128::from(self.policy.critical_permille) / u128::from(WHOLE);
        let span = (u128::from(usage.capacity_bytes) - critical).max(1);
        (u128::from(usage.staged_bytes).saturating_sub(critical).min(span), span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const POLICY: PacingPolicy = PacingPolicy {
        block_bytes: 400_000,
        idle_after: Duration::from_secs(1),
        busy_permille: 250,
        critical_permille: 800,
        awaits_idle: true,
    };

    fn at(ms: u32) -> Time {
        Time::ZERO + MS * ms
    }

    fn full(permille: u64) -> Usage {
        Usage { staged_bytes: permille * 1_000_000, capacity_bytes: 1_000_000_000 }
    }

    #[test]
    fn between_the_thresholds_blocks_wait_for_idleness() {
        let mut pacer = Pacer::new(POLICY);
        pacer.client_came(Time::ZERO);
        assert_eq!(pacer.next_block(at(5_000), full(500)), Time::MAX);
        pacer.client_left(at(6_000));
        assert_eq!(pacer.next_block(at(6_500), full(500)), at(7_000));
        assert!(!pacer.is_idle(at(6_999)) && pacer.is_idle(at(7_000)));
        pacer.copied(at(7_010), at(7_000), 400_000);
        assert_eq!(pacer.next_block(at(7_010), full(500)), at(7_010), "an idle workshop is not spared");
    }

    #[test]
    fn above_critical_blocks_go_on_beside_clients_and_the_more_the_fuller_it_is() {
        let mut pacer = Pacer::new(POLICY);
        pacer.client_came(Time::ZERO);
        assert_eq!(pacer.next_block(at(2_000), full(900)), at(2_000));
        pacer.copied(at(2_010), at(2_000), 400_000);
        let next = |permille| pacer.next_block(at(2_010), full(permille));
        assert_eq!(next(800), Time::MAX, "not above it");
        // A quarter of the time just above critical, five eighths half way, all of it where nothing fits any more.
        assert!(next(801) > at(2_039) && next(801) < at(2_040));
        assert_eq!(next(900), at(2_016));
        assert_eq!(next(1_000), at(2_010));
    }

    #[test]
    fn drives_that_spin_get_the_least_share_at_least() {
        let mut pacer = Pacer::new(PacingPolicy { awaits_idle: false, ..POLICY });
        pacer.client_came(Time::ZERO);
        assert_eq!(pacer.next_block(at(2_000), full(100)), at(2_000));
        pacer.copied(at(2_010), at(2_000), 400_000);
        assert_eq!(pacer.next_block(at(2_010), full(100)), at(2_040));
        assert_eq!(pacer.next_block(at(2_010), full(900)), at(2_016));
        pacer.client_left(at(2_011));
        assert_eq!(pacer.next_block(at(3_011), full(100)), at(3_011), "an idle workshop is not spared");
    }

    #[test]
    fn admission_slows_before_it_stops() {
        let mut pacer = Pacer::new(POLICY);
        let delay = |pacer: &Pacer, permille| match pacer.admission(full(permille), 40_000) {
            Admission::After(delay) => delay,
            Admission::Stopped => Duration::MAX,
        };
        assert_eq!(delay(&pacer, 900), Duration::ZERO, "nothing is known of moving yet");
        pacer.copied(at(2_010), at(2_000), 400_000);
        // 40 MB/s: 40 KB take a millisecond.
        let delays = [700, 800, 900, 980, 999].map(|permille| delay(&pacer, permille));
        assert_eq!(delays, [Duration::ZERO, Duration::ZERO, MS, 9 * MS, 199 * MS]);
        assert_eq!(pacer.admission(full(1_000), 1), Admission::Stopped);
        assert_eq!(pacer.admission(full(999), 2_000_000), Admission::Stopped);
    }

    /// Clients that write as fast as admitted are held at the rate of moving, half way from critical to full.
    #[test]
    fn a_workshop_under_pressure_settles_half_way() {
        let mut pacer = Pacer::new(PacingPolicy { busy_permille: 1000, ..POLICY });
        let (mut staged, mut now, mut write_at) = (800_000_000_u64, Time::ZERO, Time::ZERO);
        pacer.client_came(Time::ZERO);
        for _ in 0..200_000 {
            // A block of 400 KB each 10 ms; writes of 40 KB that are taken in after their delay, 0.1 ms each.
            pacer.copied(now + 10 * MS, now, 400_000);
            now += 10 * MS;
            staged -= 400_000;
            while write_at < now {
                let usage = Usage { staged_bytes: staged, capacity_bytes: 1_000_000_000 };
                let Admission::After(delay) = pacer.admission(usage, 40_000) else { panic!("it never stops") };
                write_at += delay + MS / 10;
                staged += 40_000;
            }
        }
        assert!((880_000_000..=900_000_000).contains(&staged), "{staged}");
    }

    #[test]
    fn no_delay_is_longer_than_the_longest() {
        let mut pacer = Pacer::new(POLICY);
        pacer.copied(at(1_000), at(0), 1);
        assert_eq!(pacer.admission(full(990), 1_000_000), Admission::After(DELAY_MAX));
    }
}
