//! One drive: its states, the time it takes to change them, and the energy it draws.
//!
//! ```text
//!               spin_up                (time passes)
//!   Standby ---------------> SpinningUp ------------> Active --- mount / unmount / transfer
//!      ^                                                 |
//!      |  (time passes)                                  | stop
//!      +------------------- SpinningDown <---------------+          any state --lose--> Away --come_back--> Standby
//! ```
//!
//! A [`DrivePhysics`] takes each command with its time, and returns the time at which it completes; the caller waits.
//!
//! Invariants:
//! - Time never runs backwards for a drive; a time before the last one counts as the last one.
//! - A drive draws its durations from its own random stream, independent of other drives.
//! - Energy is counted in whole picojoules (milliwatts x nanoseconds), so the result does not depend on the number of
//!   queries.

#[cfg(test)]
pub(super) mod tests;

use super::servers::ServerLoad;
use crate::id::DriveId;
use crate::rack::{DriveProfile, Watts};
use crate::random::Rng;
use crate::time::{Time, transfer_time};
use alloc::sync::Arc;
use core::time::Duration;

/// The state of a drive's platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// They stand still; the electronics are on.
    Standby,
    /// They are spinning up.
    SpinningUp,
    /// They turn at speed.
    Active,
    /// They are spinning down.
    SpinningDown,
    /// The drive has no power, or has died: it does not answer.
    Away,
}

/// A command that the drive cannot execute in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The state of its platters.
    pub state: PowerState,
    /// True if its file system was mounted.
    pub mounted: bool,
}

/// Energy drawn so far, in millijoules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Energy {
    /// While the platters stand still.
    pub standby_mj: u64,
    /// While spinning up.
    pub spin_up_mj: u64,
    /// While turning, and while spinning down.
    pub active_mj: u64,
}

impl core::ops::AddAssign for Energy {
    fn add_assign(&mut self, other: Self) {
        self.standby_mj += other.standby_mj;
        self.spin_up_mj += other.spin_up_mj;
        self.active_mj += other.active_mj;
    }
}

impl Watts {
    /// The power a drive draws in `state`, in milliwatts.
    pub fn in_state_mw(&self, state: PowerState) -> u32 {
        match state {
            PowerState::Standby => self.standby_mw,
            PowerState::SpinningUp => self.spin_up_mw,
            PowerState::Active | PowerState::SpinningDown => self.active_mw,
            PowerState::Away => 0,
        }
    }
}

/// Milliwatts x nanoseconds in a millijoule.
const PICOJOULES_PER_MJ: u128 = 1_000_000_000;

/// Keeps the random draws of rates apart from those of durations.
const RATES: u64 = u64::from_le_bytes(*b"rates   ");

/// The truth of one drive.
#[derive(Clone, Debug)]
pub struct DrivePhysics {
    /// Shared by all drives of a rack.
    profile: Arc<DriveProfile>,
    rng: Rng,
    /// The rate of this drive in its middle zone, in bytes/s.
    bytes_per_s: u64,
    /// Determines the zone of each file.
    zones: u64,
    state: PowerState,
    /// When `state` ends by itself; [`Time::MAX`] if it does not.
    state_ends: Time,
    mounted: bool,
    /// Energy is counted up to here.
    counted_to: Time,
    standby_pj: u128,
    spin_up_pj: u128,
    active_pj: u128,
    /// When the heads are free again.
    busy_until: Time,
    /// The position of the heads then: (file, offset).
    position: Option<(u64, u64)>,
    starts: u32,
    losses: u32,
    /// It has no power control: its platters turn whenever it has power.
    always_on: bool,
}

impl DrivePhysics {
    /// Drive `drive` of a rack under `seed`: in standby since [`Time::ZERO`], unmounted.
    pub fn new(profile: Arc<DriveProfile>, seed: u64, drive: DriveId) -> Self {
        let mut rates = Rng::for_thing(seed ^ RATES, u64::from(drive.0));
        let spread = u64::from(profile.rate_spread.drive_permille);
        let permille = 1_000 - spread + if spread == 0 { 0 } else { rates.between(0, 2 * spread) };
        Self {
            rng: Rng::for_thing(seed, u64::from(drive.0)),
            bytes_per_s: (profile.bytes_per_s.saturating_mul(permille) / 1_000).max(1),
            zones: rates.next_u64(),
            profile,
            state: PowerState::Standby,
            state_ends: Time::MAX,
            mounted: false,
            counted_to: Time::ZERO,
            standby_pj: 0,
            spin_up_pj: 0,
            active_pj: 0,
            busy_until: Time::ZERO,
            position: None,
            starts: 0,
            losses: 0,
            always_on: false,
        }
    }

    /// The same drive with its measured rate, if it has one.
    #[must_use]
    pub fn at_rate(mut self, bytes_per_s: Option<u64>) -> Self {
        self.bytes_per_s = bytes_per_s.unwrap_or(self.bytes_per_s).max(1);
        self
    }

    /// The same drive without power control: it turns, and a stop changes nothing.
    #[must_use]
    pub fn always_on(mut self) -> Self {
        assert!(self.state == PowerState::Standby && self.starts == 0, "it turns from the beginning");
        (self.always_on, self.state) = (true, PowerState::Active);
        self
    }

    /// The same drive, turning already.
    #[must_use]
    pub fn turning(mut self) -> Self {
        assert!(self.state == PowerState::Standby && self.starts == 0, "it turns from the beginning");
        self.state = PowerState::Active;
        self
    }

    /// Counts energy from `now` rather than from [`Time::ZERO`], for a drive that is added later.
    #[must_use]
    pub fn from(mut self, now: Time) -> Self {
        assert!(self.starts == 0 && self.counted_to == Time::ZERO, "energy is counted from one moment on");
        self.counted_to = now;
        self
    }

    /// Lets time pass until `now`: counts energy, and ends states that end by themselves.
    #[inline]
    fn settle(&mut self, now: Time) {
        if self.state_ends <= now {
            self.draw_until(self.state_ends);
            self.state = match self.state {
                PowerState::SpinningUp => PowerState::Active,
                PowerState::SpinningDown => PowerState::Standby,
                other => other,
            };
            self.state_ends = Time::MAX;
        }
        self.draw_until(now);
    }

    fn draw_until(&mut self, until: Time) {
        if until <= self.counted_to {
            return;
        }
        let drawn_mw = self.profile.watts.in_state_mw(self.state);
        let drawn_pj = u128::from(until.nanos_since(self.counted_to)) * u128::from(drawn_mw);
        match self.state {
            PowerState::Standby => self.standby_pj += drawn_pj,
            PowerState::SpinningUp => self.spin_up_pj += drawn_pj,
            PowerState::Active | PowerState::SpinningDown => self.active_pj += drawn_pj,
            PowerState::Away => {}
        }
        self.counted_to = until;
    }

    /// Enters a state that ends by itself.
    fn enter(&mut self, state: PowerState, ends: Time) -> Time {
        assert!(ends >= self.counted_to, "a drive's time never runs backwards");
        self.state = state;
        self.state_ends = ends;
        ends
    }

    fn refused(&self) -> Refused {
        Refused { state: self.state, mounted: self.mounted }
    }

    /// The time at which the heads are free, `now` or later.
    fn free_at(&self, now: Time) -> Time {
        now.max(self.counted_to).max(self.busy_until)
    }

    /// The state of the platters at `now`.
    #[inline]
    pub fn state(&mut self, now: Time) -> PowerState {
        self.settle(now);
        self.state
    }

    /// Succeeds if the platters turn at speed at `now`.
    fn at_speed(&mut self, now: Time) -> Result<(), Refused> {
        if self.state(now) == PowerState::Active { Ok(()) } else { Err(self.refused()) }
    }

    /// Succeeds if files can be reached at `now`.
    ///
    /// # Errors
    /// [`Refused`] if the platters do not turn at speed, or nothing is mounted.
    pub fn ready(&mut self, now: Time) -> Result<(), Refused> {
        self.at_speed(now)?;
        if self.mounted { Ok(()) } else { Err(self.refused()) }
    }

    /// True if files could be reached when the last command was given: a mounted drive turns.
    #[inline]
    pub fn is_ready(&self) -> bool {
        assert!(!self.mounted || self.state == PowerState::Active, "what is mounted turns at speed");
        self.mounted
    }

    /// Starts the platters; returns when they will turn at speed, which is `now` if they do already.
    ///
    /// # Errors
    /// [`Refused`] if the platters are on their way to a standstill, or the drive is away.
    pub fn spin_up(&mut self, now: Time) -> Result<Time, Refused> {
        self.settle(now);
        match self.state {
            PowerState::Active => Ok(now),
            PowerState::SpinningUp => Ok(self.state_ends),
            PowerState::Standby => {
                self.starts += 1;
                self.position = None;
                let at_speed = now.max(self.counted_to) + self.profile.spin_up.sample(&mut self.rng);
                Ok(self.enter(PowerState::SpinningUp, at_speed))
            }
            PowerState::SpinningDown | PowerState::Away => Err(self.refused()),
        }
    }

    /// Stops the platters; returns when they will stand still: `now` if they do already or never do. The file system
    /// must be unmounted. A drive that is spinning up spins down again.
    ///
    /// # Errors
    /// [`Refused`] if the file system is mounted, or the drive is away.
    pub fn stop(&mut self, now: Time) -> Result<Time, Refused> {
        self.settle(now);
        match self.state {
            PowerState::Standby => Ok(now),
            PowerState::Active if self.always_on && !self.mounted => Ok(self.free_at(now)),
            PowerState::SpinningDown => Ok(self.state_ends),
            PowerState::Active | PowerState::SpinningUp if !self.mounted => {
                let still = self.free_at(now) + self.profile.spin_down.sample(&mut self.rng);
                Ok(self.enter(PowerState::SpinningDown, still))
            }
            _ => Err(self.refused()),
        }
    }

    /// Mounts the file system; returns when it will be mounted. It counts as mounted from now on, and the heads are
    /// busy until then.
    ///
    /// # Errors
    /// [`Refused`] if the platters do not turn at speed.
    pub fn mount(&mut self, now: Time, load: ServerLoad) -> Result<Time, Refused> {
        self.at_speed(now)?;
        if !self.mounted {
            let span = self.profile.mount_under(load).sample(&mut self.rng);
            self.busy_until = self.free_at(now) + span;
            self.position = None;
            self.mounted = true;
        }
        Ok(self.free_at(now))
    }

    /// Unmounts the file system; returns when it will be unmounted. No file can be reached from now on.
    ///
    /// # Errors
    /// [`Refused`] if the platters do not turn at speed.
    pub fn unmount(&mut self, now: Time) -> Result<Time, Refused> {
        self.at_speed(now)?;
        if self.mounted {
            self.busy_until = self.free_at(now) + self.profile.unmount.sample(&mut self.rng);
            self.mounted = false;
        }
        Ok(self.free_at(now))
    }

    /// The rate at which this drive transfers the file numbered `file`, in bytes/s. Files are spread evenly over all
    /// zones: the zone is drawn from the drive and the file's number.
    #[inline]
    pub fn bytes_per_s(&self, file: u64) -> u64 {
        let zone = u64::from(self.profile.rate_spread.zone_permille);
        if zone == 0 {
            return self.bytes_per_s;
        }
        let permille = 1_000 - zone + Rng::for_thing(self.zones, file).between(0, 2 * zone);
        (self.bytes_per_s.saturating_mul(permille) / 1_000).max(1)
    }

    /// Transfers `bytes` bytes at `offset` of the file numbered `file`; returns when that will be done. Transfers run
    /// one after another; one that does not continue at the end of the last one starts with a seek.
    ///
    /// # Errors
    /// [`Refused`] if the drive is not [`ready`](Self::ready).
    pub fn transfer(&mut self, now: Time, file: u64, offset: u64, bytes: u64) -> Result<Time, Refused> {
        self.ready(now)?;
        let seek = if self.position == Some((file, offset)) { Duration::ZERO } else { self.profile.seek };
        let start = self.free_at(now);
        self.busy_until = start + seek + transfer_time(bytes, self.bytes_per_s(file));
        self.position = Some((file, offset.saturating_add(bytes)));
        Ok(self.busy_until)
    }

    /// Changes the file system itself (a name, a sync): a seek, after which the heads are elsewhere.
    ///
    /// # Errors
    /// [`Refused`] if the drive is not [`ready`](Self::ready).
    pub fn touch(&mut self, now: Time) -> Result<Time, Refused> {
        self.ready(now)?;
        self.busy_until = self.free_at(now) + self.profile.seek;
        self.position = None;
        Ok(self.busy_until)
    }

    /// The drive loses its power, or dies: it no longer answers.
    pub fn lose(&mut self, now: Time) {
        self.settle(now);
        if self.state != PowerState::Away {
            self.losses += 1;
        }
        self.enter(PowerState::Away, Time::MAX);
        self.mounted = false;
        self.busy_until = now;
        self.position = None;
    }

    /// The drive answers again, in standby if it has power control. Does nothing to a drive that is not away.
    pub fn come_back(&mut self, now: Time) {
        self.settle(now);
        if self.state == PowerState::Away {
            self.state = if self.always_on { PowerState::Active } else { PowerState::Standby };
        }
    }

    /// True if it has no power control.
    #[inline]
    pub fn is_always_on(&self) -> bool {
        self.always_on
    }

    /// Starts of the platters so far.
    pub fn starts(&self) -> u32 {
        self.starts
    }

    /// Times the drive went away so far. By it, a waiting caller notices that the drive was away in between.
    #[inline]
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// The power drawn at `now`, in milliwatts.
    #[inline]
    pub fn draw_mw(&mut self, now: Time) -> u32 {
        self.settle(now);
        self.profile.watts.in_state_mw(self.state)
    }

    /// The energy drawn until `now`.
    pub fn energy(&mut self, now: Time) -> Energy {
        self.settle(now);
        let mj = |pj: u128| u64::try_from(pj / PICOJOULES_PER_MJ).unwrap_or(u64::MAX);
        Energy { standby_mj: mj(self.standby_pj), spin_up_mj: mj(self.spin_up_pj), active_mj: mj(self.active_pj) }
    }
}
