//! The drives of a simulated rack: their physics, their fuses, their power draw, and their faults.
//!
//! Invariants:
//! - a lost drive answers nothing until it is back;
//! - a hanging drive answers nothing; the first command waits for the deadline, all others fail at once;
//! - faults have their own random stream, which is not used for rates of 0.

use crate::meter::Meter;
use engine::{Event, Loss};
use model::physics::{DrivePhysics, Fuses, PowerState, Refused, ServerLoad, Trip};
use model::{Attempt, DriveId, RackSpec, Rng, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The time after which a tripped fuse resets.
pub(super) const FUSE_RESETS_AFTER: Duration = Duration::from_secs(30);

/// The time after which a command fails if its drive does not spin up.
const SPIN_UP_FAILS_AFTER: Duration = Duration::from_secs(20);

/// The time for which a hanging drive does not answer.
pub const HANG: Duration = Duration::from_secs(100);

/// The rates of faults, in thousandths of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Failing starts and mounts.
    pub command_permille: u64,
    /// Drives that fail in a transfer.
    pub transfer_permille: u64,
    /// Events that are reported twice.
    pub twice_permille: u64,
    /// Commands that a drive executes but never answers.
    pub mute_permille: u64,
    /// Commands and drives in a transfer that hang: for [`HANG`] the drive answers nothing at all.
    pub hang_permille: u64,
}

/// A command to a drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub drive: DriveId,
    pub attempt: Attempt,
    /// The maximum time that the rack waits for the answer.
    pub deadline: Duration,
    pub kind: CommandKind,
}

/// The kinds of commands.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommandKind {
    SpinUp,
    /// Mounts are slow on a server that moves bytes for another group (Pelican, section 5: two load regimes).
    Mount {
        load: ServerLoad,
        free_bytes: u64,
    },
    Unmount,
    Stop,
}

/// The answer to a command.
pub(super) enum Answer {
    Never,
    /// An event, which is dropped if the drive is lost before.
    At(Time, Event),
    /// An event, even if the drive is lost.
    Now(Event),
    /// The command tripped a fuse.
    Tripped(Trip),
}

/// A hanging drive.
#[derive(Clone, Copy, Debug)]
struct Hang {
    until: Time,
    /// True if an earlier command has waited for it, so later ones do not.
    known: bool,
}

/// The drives of a rack.
pub(super) struct Drives {
    physics: Vec<DrivePhysics>,
    capacity_bytes: Vec<u64>,
    fuses: Fuses,
    pub meter: Meter,
    away: BTreeSet<DriveId>,
    hung: BTreeMap<DriveId, Hang>,
    /// Bad sectors of the drives that report their number.
    bad_sectors: BTreeMap<DriveId, u64>,
    pub faults: Faults,
    faults_rng: Rng,
    /// Drive starts.
    pub spin_ups: u64,
    /// Tripped fuses.
    pub trips: u64,
    /// The number of losses of all drives together.
    losses: u64,
    /// The value of `losses` after the last loss of each drive.
    lost_at: Vec<u64>,
}

impl Drives {
    /// The drives of a rack, in standby except those that are always on.
    pub fn new(spec: &RackSpec, seed: u64) -> Self {
        let profile = Arc::new(spec.profile.clone());
        let one = |drive: DriveId| {
            let physics = DrivePhysics::new(Arc::clone(&profile), seed, drive).at_rate(spec.drive(drive).bytes_per_s);
            if spec.is_always_on(drive) { physics.always_on() } else { physics }
        };
        let mut drives = Self {
            physics: spec.drives.iter().map(|drive| one(drive.id)).collect(),
            capacity_bytes: spec.drives.iter().map(|drive| spec.capacity_bytes(drive.id)).collect(),
            fuses: Fuses::new(spec, FUSE_RESETS_AFTER),
            meter: Meter::new(spec.drives.len(), spec.profile.watts.standby_mw),
            away: BTreeSet::new(),
            hung: BTreeMap::new(),
            bad_sectors: BTreeMap::new(),
            faults: Faults::default(),
            faults_rng: Rng::for_thing(seed, u64::from_le_bytes(*b"faults  ")),
            spin_ups: 0,
            trips: 0,
            losses: 0,
            lost_at: vec![0; spec.drives.len()],
        };
        spec.drives.iter().for_each(|drive| drives.update_draw(Time::ZERO, drive.id));
        drives
    }

    /// The number of losses of all drives together so far.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// True if `drive` was lost since the number of losses was `losses`.
    pub fn lost_since(&self, drive: DriveId, losses: u64) -> bool {
        assert!(self.losses >= losses, "losses are forgotten");
        self.lost_at[drive.index()] > losses
    }

    pub fn capacity_bytes(&self, drive: DriveId) -> u64 {
        self.capacity_bytes[drive.index()]
    }

    /// The rate at which a drive transfers the file numbered `file`, in bytes/s.
    #[inline]
    pub fn bytes_per_s(&self, drive: DriveId, file: u64) -> u64 {
        self.physics[drive.index()].bytes_per_s(file)
    }

    pub fn is_away(&self, drive: DriveId) -> bool {
        self.away.contains(&drive)
    }

    /// True if `drive`, which must be present, is in standby.
    pub fn stands_still(&mut self, now: Time, drive: DriveId) -> bool {
        self.physics[drive.index()].state(now) == PowerState::Standby
    }

    /// Draws whether a fault of this rate happens now.
    #[inline]
    pub fn unlucky(&mut self, permille: u64) -> bool {
        assert!(permille <= 1_000, "{permille} of 1,000 fail");
        permille > 0 && self.faults_rng.below(1000) < permille
    }

    /// Draws whether a drive fails at the beginning of a transfer; a drive that is not ready always fails.
    #[inline]
    pub fn fails_transfer(&mut self, drive: DriveId) -> bool {
        self.unlucky(self.faults.transfer_permille) || !self.physics[drive.index()].is_ready()
    }

    /// Updates the meter for a drive whose power draw may have changed.
    pub fn update_draw(&mut self, now: Time, drive: DriveId) {
        let draw_mw = self.physics[drive.index()].draw_mw(now);
        self.meter.set(now, drive, draw_mw);
    }

    /// Takes a drive away.
    pub fn lose(&mut self, now: Time, drive: DriveId) {
        if self.away.insert(drive) {
            self.losses += 1;
            self.lost_at[drive.index()] = self.losses;
        }
        self.physics[drive.index()].lose(now);
        self.update_draw(now, drive);
        self.fuses.lose(drive);
    }

    /// Brings a drive back; false if it was not away.
    pub fn come_back(&mut self, now: Time, drive: DriveId) -> bool {
        let was_away = self.away.remove(&drive);
        if was_away {
            assert!(self.physics[drive.index()].state(now) == PowerState::Away, "{drive} answered while it was away");
            self.physics[drive.index()].come_back(now);
            self.update_draw(now, drive);
        }
        was_away
    }

    /// The bad sectors of `drive`, if it reports their number and is ready.
    pub fn bad_sectors(&self, drive: DriveId) -> Option<u64> {
        self.bad_sectors.get(&drive).copied().filter(|_| self.physics[drive.index()].is_ready())
    }

    /// Sets the number of bad sectors of `drive`.
    pub fn set_bad_sectors(&mut self, drive: DriveId, bad_sectors: u64) {
        self.bad_sectors.insert(drive, bad_sectors);
    }

    /// Makes a drive hang: it answers nothing for [`HANG`].
    pub fn hang(&mut self, now: Time, drive: DriveId) {
        self.hung.insert(drive, Hang { until: now + HANG, known: false });
    }

    /// The time to wait for `drive` if it hangs or begins to hang, zero if it is known to hang; `None` if it does not
    /// hang.
    #[inline]
    pub fn hangs(&mut self, now: Time, drive: DriveId, deadline: Duration) -> Option<Duration> {
        let some_may = !self.hung.is_empty() || self.faults.hang_permille > 0;
        if some_may { self.may_hang(now, drive, deadline) } else { None }
    }

    fn may_hang(&mut self, now: Time, drive: DriveId, deadline: Duration) -> Option<Duration> {
        if let Some(hang) = self.hung.get_mut(&drive)
            && now < hang.until
        {
            return Some(if std::mem::replace(&mut hang.known, true) { Duration::ZERO } else { deadline });
        }
        self.hung.remove(&drive);
        if !self.unlucky(self.faults.hang_permille) {
            return None;
        }
        self.hung.insert(drive, Hang { until: now + HANG, known: true });
        Some(deadline)
    }

    /// Executes a command, and determines its answer.
    pub fn execute(&mut self, now: Time, command: Command) -> Answer {
        let Command { drive, attempt, deadline, kind } = command;
        let failed = |loss| Event::DriveCommandFailed { drive, attempt, loss };
        if self.hung.get(&drive).is_some_and(|hang| hang.known && now < hang.until) {
            return Answer::Now(failed(Loss::NoAnswer));
        }
        let (done, event) = match kind {
            CommandKind::SpinUp if self.unlucky(self.faults.command_permille) => {
                return Answer::At(now + SPIN_UP_FAILS_AFTER, failed(Loss::SpinUpFailed));
            }
            CommandKind::Mount { .. } if self.unlucky(self.faults.command_permille) => {
                return Answer::At(now, failed(Loss::MountFailed));
            }
            CommandKind::SpinUp => match self.spin_up(now, drive) {
                (_, Some(trip)) => return Answer::Tripped(trip),
                (done, None) => (done, Event::SpunUp { drive, attempt }),
            },
            CommandKind::Mount { load, free_bytes } => {
                let done = self.physics[drive.index()].mount(now, load);
                (done, Event::Mounted { drive, attempt, free_bytes })
            }
            CommandKind::Unmount => (self.physics[drive.index()].unmount(now), Event::Unmounted { drive, attempt }),
            CommandKind::Stop => (self.stop(now, drive), Event::Stopped { drive, attempt }),
        };
        let Ok(when) = done else { return Answer::Now(failed(Loss::MountFailed)) };
        assert!(when >= now, "{event:?} is answered before it was asked for");
        let state = self.physics[drive.index()].state(now);
        let never_stops = self.physics[drive.index()].is_always_on();
        let fits = match kind {
            CommandKind::SpinUp => matches!(state, PowerState::SpinningUp | PowerState::Active),
            CommandKind::Mount { .. } | CommandKind::Unmount => state == PowerState::Active,
            CommandKind::Stop if never_stops => state == PowerState::Active,
            CommandKind::Stop => matches!(state, PowerState::SpinningDown | PowerState::Standby),
        };
        assert!(fits && !self.is_away(drive), "{drive} is {state:?}, and was sent {kind:?}");
        if self.unlucky(self.faults.mute_permille) {
            return Answer::Never;
        }
        match self.hangs(now, drive, deadline) {
            None => Answer::At(when, event),
            Some(waited) => Answer::At(now + waited, failed(Loss::NoAnswer)),
        }
    }

    /// Starts a drive; returns the time when it is at speed, and the fuse that it trips, if any.
    fn spin_up(&mut self, now: Time, drive: DriveId) -> (Result<Time, Refused>, Option<Trip>) {
        let physics = &mut self.physics[drive.index()];
        let starts = physics.starts();
        let done = physics.spin_up(now);
        self.spin_ups += u64::from(physics.starts() - starts);
        self.update_draw(now, drive);
        let trip = done.as_ref().ok().and_then(|at_speed| self.fuses.spin_up(now, drive, *at_speed));
        if let Some(trip) = &trip {
            self.trips += 1;
            assert!(trip.drives.contains(&drive), "a fuse that {drive} trips is its own");
            trip.drives.iter().for_each(|drive| self.lose(now, *drive));
            assert!(self.is_away(drive), "{drive} turns behind a fuse that tripped");
        }
        (done, trip)
    }

    fn stop(&mut self, now: Time, drive: DriveId) -> Result<Time, Refused> {
        let still = self.physics[drive.index()].stop(now)?;
        self.fuses.stop(drive, still);
        self.update_draw(now, drive);
        Ok(still)
    }
}
