//! A drive of the cluster: an arm that is in one of two places, a queue, a power state.
//!
//! Objects are close together where they were written; their records are in the middle of the drive (as BlueStore lays
//! out a drive that holds both). An access takes the seek, a part of a rotation, and the transfer. Writes that wait for
//! their commit share one.
//!
//! Invariants: accesses are served in the order of arrival; a drive that does not spin serves none.

use crate::shifting::seek_time;
use core::time::Duration;
use model::physics::PowerState;
use model::{Distribution, Rng, Watts, transfer_time};
use std::collections::VecDeque;

/// The physics of a drive.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSpec {
    /// Its capacity.
    pub capacity_bytes: u64,
    /// A seek to a nearby place.
    pub shortest_seek: Duration,
    /// A seek between two places drawn evenly over the drive.
    pub average_seek: Duration,
    /// One rotation.
    pub rotation: Duration,
    /// The transfer rate in bytes/s, once the arm is in place.
    pub rate_bytes_s: u64,
    /// The time from standby until it serves, with its file system mounted.
    pub spin_up: Distribution,
    /// Power draw.
    pub watts: Watts,
}

/// The place of the arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// Over objects.
    Objects,
    /// Over their records.
    Records,
}

/// An access of a drive, for a part of the work `T`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access<T> {
    /// Read or write this number of bytes of an object, for `T`.
    Object(T, u64),
    /// Read an object's record, for `T`.
    Record(T),
    /// Commit all parts that wait for a commit.
    Commit,
}

/// A drive at work for parts `T`.
#[derive(Clone, Debug)]
pub(super) struct Device<T> {
    spec: DeviceSpec,
    state: PowerState,
    arm: Arm,
    queue: VecDeque<Access<T>>,
    served: Option<Access<T>>,
    /// Parts that wait for the next commit, and parts whose commit is being written.
    waiting: Vec<T>,
    committing: Vec<T>,
    /// Bytes of objects on the drive.
    pub used_bytes: u64,
    rng: Rng,
}

impl<T: Copy> Device<T> {
    /// Drive `number` under `seed`, spinning or in standby.
    pub fn new(spec: DeviceSpec, is_asleep: bool, seed: u64, number: u64) -> Self {
        Self {
            spec,
            state: if is_asleep { PowerState::Standby } else { PowerState::Active },
            arm: Arm::Objects,
            queue: VecDeque::new(),
            served: None,
            waiting: Vec::new(),
            committing: Vec::new(),
            used_bytes: 0,
            rng: Rng::for_thing(seed, 1_000 + number),
        }
    }

    /// The current power draw, in milliwatts.
    pub fn draw_mw(&self) -> u32 {
        self.spec.watts.in_state_mw(self.state)
    }

    /// True if the drive is in standby.
    pub fn is_asleep(&self) -> bool {
        self.state == PowerState::Standby
    }

    /// True if no access is queued or in service.
    pub fn is_idle(&self) -> bool {
        self.served.is_none() && self.queue.is_empty()
    }

    /// The number of accesses that are queued or in service.
    pub fn load(&self) -> u64 {
        self.queue.len() as u64 + u64::from(self.served.is_some())
    }

    /// Starts the drive; returns the time until it serves.
    pub fn start(&mut self) -> Duration {
        assert!(self.is_asleep(), "a drive that spins is started");
        self.state = PowerState::SpinningUp;
        self.spec.spin_up.sample(&mut self.rng)
    }

    /// The drive has started, and serves from now on.
    pub fn started(&mut self) {
        assert!(self.state == PowerState::SpinningUp, "only what was started is ready");
        self.state = PowerState::Active;
    }

    /// Stops the drive, which must be idle.
    pub fn stop(&mut self) {
        assert!(self.is_idle() && self.state == PowerState::Active, "a drive stops when it has nothing to do");
        self.state = PowerState::Standby;
    }

    /// Queues an access. Returns its service time if it is served at once.
    pub fn ask(&mut self, access: Access<T>) -> Option<Duration> {
        self.queue.push_back(access);
        self.next()
    }

    /// Queues `part` for the next commit.
    pub fn ask_commit(&mut self, part: T) -> Option<Duration> {
        self.waiting.push(part);
        if self.waiting.len() == 1 { self.ask(Access::Commit) } else { None }
    }

    /// Serves the next access, if possible; returns its service time.
    pub fn next(&mut self) -> Option<Duration> {
        if self.state != PowerState::Active || self.served.is_some() {
            return None;
        }
        let access = self.queue.pop_front()?;
        self.served = Some(access);
        if matches!(access, Access::Commit) {
            assert!(self.committing.is_empty(), "one commit after the other");
            self.committing = std::mem::take(&mut self.waiting);
        }
        Some(self.takes(access))
    }

    /// Ends the access in service; returns its part, or all parts of a commit.
    pub fn served(&mut self) -> (Option<T>, Vec<T>) {
        let Some(access) = self.served.take() else { panic!("a drive is done with nothing") };
        match access {
            Access::Object(part, _) | Access::Record(part) => (Some(part), Vec::new()),
            Access::Commit => (None, std::mem::take(&mut self.committing)),
        }
    }

    fn takes(&mut self, access: Access<T>) -> Duration {
        /// A record, or a batch of them.
        const RECORD_BYTES: u64 = 4096;
        let (place, bytes) = match access {
            Access::Object(_, bytes) => (Arm::Objects, bytes),
            Access::Record(_) | Access::Commit => (Arm::Records, RECORD_BYTES),
        };
        let spec = &self.spec;
        let from = std::mem::replace(&mut self.arm, place);
        // Half of the drive is between objects and records.
        let way = if from == place { 0.0 } else { 0.5 };
        let turn = Duration::from_nanos(self.rng.below(spec.rotation.as_nanos() as u64));
        seek_time(spec.shortest_seek, spec.average_seek, way) + turn + transfer_time(bytes, spec.rate_bytes_s)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const SPEC: DeviceSpec = DeviceSpec {
        capacity_bytes: 1 << 40,
        shortest_seek: ms(1),
        average_seek: ms(10),
        rotation: ms(10),
        rate_bytes_s: 100_000_000,
        spin_up: Distribution::constant(ms(10_000)),
        watts: Watts { standby_mw: 1, spin_up_mw: 20, active_mw: 5 },
    };

    #[test]
    fn writes_that_wait_share_a_commit() {
        let mut device: Device<u32> = Device::new(SPEC, false, 1, 0);
        assert!(device.ask_commit(1).is_some(), "an idle drive begins at once");
        assert!(device.ask_commit(2).is_none() && device.ask_commit(3).is_none());
        assert_eq!(device.served(), (None, vec![1]));
        assert!(device.next().is_some());
        assert_eq!((device.served(), device.next(), device.is_idle()), ((None, vec![2, 3]), None, true));
    }

    #[test]
    fn records_are_far_from_objects_and_what_sleeps_serves_nothing() {
        let mut device: Device<u32> = Device::new(SPEC, false, 1, 0);
        let mut mean = |access: [Access<u32>; 2]| {
            let mut sum = Duration::ZERO;
            for round in 0..2_000 {
                sum += device.ask(access[round % 2]).unwrap();
                device.served();
            }
            sum.as_secs_f64() * 1e3 / 2_000.0
        };
        let near = mean([Access::Object(0, 100_000); 2]);
        let far = mean([Access::Object(0, 100_000), Access::Record(0)]);
        assert!((near - (1.0 + 5.0 + 1.0)).abs() < 0.2, "{near}");
        assert!((far - (1.0 + 9.0 * 0.5_f64.sqrt() * 15.0 / 8.0 + 5.0 + 0.52)).abs() < 0.3, "{far}");
        let mut asleep: Device<u32> = Device::new(SPEC, true, 1, 1);
        assert_eq!((asleep.ask(Access::Object(7, 1)), asleep.draw_mw()), (None, 1));
        assert_eq!((asleep.start(), asleep.draw_mw(), asleep.next()), (ms(10_000), 20, None));
        asleep.started();
        assert!(asleep.next().is_some() && asleep.served() == (Some(7), vec![]));
    }
}
