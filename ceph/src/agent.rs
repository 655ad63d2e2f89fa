//! Decides when a cold drive sleeps and when it is woken: the spin-down manager of Serviceable cold storage (algorithm
//! 2), beside an OSD that does not know of it. Pure: [`Agent::tick`] takes the time and the observations, and returns
//! actions.
//!
//! ```text
//!            idle long enough, nothing reserved, clean,            flushed, and no I/O
//!            a start left today, nothing to scrub: Flush            since for `settle`: Sleep
//! Spinning ------------------------------------------> Flushing ----------------------> Stopping
//!    ^  ^                                                  |                                |
//!    |  '------- writes continue, or no flush is seen -----'                                v
//!    '--- it turns: woken by others, or by Start when a deep scrub is due -------------- Asleep
//! ```
//!
//! The engine decides if the drive may sleep, by the time since its last I/O and its last start, and by its budget of
//! starts: each drive has its own [`SpinDownManager`], the same as in the simulator. One wake serves flush and deep
//! scrub together: while a drive turns anyway, every placement group whose deep scrub is older than half the period is
//! scrubbed, and the drive is woken when one is older than the whole period.
//!
//! In hold mode an OSD whose drive sleeps keeps its writes on `block.db`, and the drive is woken when these reach the
//! allowed cost. A drive that turns, for any reason, gets them at once ([`Action::Drain`]).
//!
//! Invariants: no drive is put to sleep while the cluster was not seen (`None`), or before the kernel has counted a
//! flush of the drive's cache, unless the drive writes through; a drive whose budget is used up spins until the next
//! day; a wake is counted once, regardless of its cause; writes are held back only from a drive that sleeps or is about
//! to.

pub mod stamp;
#[cfg(test)]
mod tests;

use crate::cluster::{OsdId, Pg};
use crate::record::Record;
use disk::{IoCounters, Touch};
use engine::spin_down::{NodePolicy, SpinDownManager};
use model::{DriveId, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The engine's policy: idle timer, budget of starts (the paper, section III-B).
    pub node: NodePolicy,
    /// Period in which every placement group is deep-scrubbed once.
    pub deep_scrub_every: Duration,
    /// Time without I/O after the flush before the drive is stopped.
    pub settle: Duration,
    /// Maximum time for which a drive is kept spinning for deep scrubs that do not end.
    pub window_max: Duration,
    /// Maximum cost of the writes that are held back from a sleeping drive; `None` if none are held back.
    pub hold_max: Option<u64>,
}

/// Minimum time for which a drive turns beyond the cluster's down-out interval: an OSD that fails is noticed within
/// seconds, and its recovery is reserved within seconds after it is out. `larder reproduce serviceable` has the same
/// value.
pub const RECOVERY_GRACE: Duration = Duration::from_mins(1);

/// Maximum time in which a drive stops or reaches its speed.
const TRANSITION_MAX: Duration = Duration::from_mins(2);

/// Time after which a deep scrub may be requested again.
const ASK_AGAIN: Duration = Duration::from_mins(30);

/// Number of looks after which the flush of a drive that does not settle is given up. Looks are counted instead of
/// time: one may take longer than `settle` where many OSDs are asked, or the machine is busy.
const FLUSHING_LOOKS_MAX: u32 = 10;

/// State of a drive's platters, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They stand still.
    Standby,
    /// They turn.
    Active,
    /// They are starting or stopping, or their state is unknown.
    Unknown,
}

/// Observation of a drive.
#[derive(Clone, Copy, Debug)]
pub struct DriveSeen {
    /// The kernel's counters; `None` if the drive is gone.
    pub counters: Option<IoCounters>,
    /// Its mode.
    pub mode: Mode,
    /// True if it has no cache that must be flushed; the kernel sends no flushes to this kind of drive.
    pub is_write_through: bool,
}

/// The writes that an OSD holds back from its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Their cost, as the OSD counts it: their bytes, and some for each write.
    pub cost: u64,
    /// True if the OSD was asked to hold them back, and not to write them within seconds.
    pub is_on: bool,
}

/// Observation of an OSD in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdSeen {
    /// Its placement groups.
    pub pgs: Vec<Pg>,
    /// True if a recovery or backfill is reserved on it.
    pub is_reserved: bool,
    /// The writes that it holds back; `None` without hold mode.
    pub held: Option<Held>,
}

/// Observation of an OSD and its drive; without the OSD while the monitors or its daemon cannot be reached.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The drive.
    pub drive: DriveSeen,
    /// The OSD.
    pub osd: Option<OsdSeen>,
}

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The OSD's deferred writes go to its drive, and the drive's cache is flushed.
    Flush(OsdId),
    /// The OSD holds back writes from its drive from now on.
    Hold(OsdId),
    /// The OSD no longer holds back writes, and the held ones go to the drive.
    Drain(OsdId),
    /// The drive is sent to standby.
    Sleep(OsdId),
    /// The drive is started.
    Start(OsdId),
    /// Deep scrubs of these placement groups are requested.
    DeepScrub(OsdId, Vec<String>),
    /// The drive turns: other work that waited for it may be done (its health is read).
    Window(OsdId),
}

/// Phase of a drive, as far as the agent knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It turns.
    Spinning,
    /// It turns, and was flushed in order to sleep.
    Flushing,
    /// It was sent to standby.
    Stopping,
    /// It sleeps.
    Asleep,
    /// It was started.
    Starting,
}

/// One drive.
struct Drive {
    osd: OsdId,
    manager: SpinDownManager,
    phase: Phase,
    /// Start of the phase.
    since: Time,
    /// The last I/O that was seen.
    touched_at: Time,
    counters: Option<IoCounters>,
    /// Flushes that the kernel had counted when the last one was requested.
    flushes_before: u64,
    /// Looks since then.
    flushing_looks: u32,
    asked_at: Option<Time>,
    held_cost: u64,
    /// It was asked to write the held-back writes, and was not flushed since.
    is_drained: bool,
    account: Account,
}

/// Counts of a drive, persisted over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The day of its last start, of the Unix epoch.
    pub day: u32,
    /// Its starts on that day.
    pub starts: u32,
    /// Number of times that it was sent to sleep.
    pub sleeps: u64,
    /// Number of times that the agent woke it.
    pub own_wakes: u64,
    /// Number of times that others woke it.
    pub other_wakes: u64,
}

/// State of an agent that it persists and shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// The cluster's identity.
    pub fsid: String,
    /// The drives, by OSD.
    pub drives: Vec<DriveRecord>,
}

/// One drive in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRecord {
    /// The OSD.
    pub osd: OsdId,
    /// Phase of the drive.
    pub phase: Phase,
    /// Start of the phase, in seconds of the Unix epoch.
    pub since_s: u64,
    /// The cost of the writes that are held back from it, as its OSD counts it.
    #[serde(default)]
    pub held_cost: u64,
    /// Its counts.
    #[serde(flatten)]
    pub account: Account,
}

impl Record for AgentRecord {
    const KIND: &'static str = "agent";
}

/// The agent of a host.
pub struct Agent {
    settings: Settings,
    drives: Vec<Drive>,
}

/// The id of the drive in a manager that has one.
const ALONE: DriveId = DriveId(0);

impl Agent {
    /// An agent for the drives of `osds`, in their observed states. `remembered` is the record of an earlier agent.
    pub fn new(settings: Settings, osds: &[(OsdId, DriveSeen)], remembered: Option<&AgentRecord>, now: Time) -> Self {
        let known = |osd| remembered.and_then(|record| record.drives.iter().find(|drive| drive.osd == osd));
        let drive = |(osd, seen): &(OsdId, DriveSeen)| {
            Drive::new(&settings, *osd, seen, known(*osd).map(|drive| drive.account).unwrap_or_default(), now)
        };
        let drives = osds.iter().map(drive).collect();
        Self { settings, drives }
    }

    /// Replaces its drives by those of `osds`, in that order. It keeps the state of the drives that it had.
    pub fn renew(&mut self, osds: &[(OsdId, DriveSeen)], now: Time) {
        let mut had = std::mem::take(&mut self.drives);
        for (osd, seen) in osds {
            let drive = match had.iter().position(|drive| drive.osd == *osd) {
                Some(at) => had.swap_remove(at),
                None => Drive::new(&self.settings, *osd, seen, Account::default(), now),
            };
            self.drives.push(drive);
        }
    }

    /// The requested flush of `osd` has failed: its drive continues to turn, and is flushed after it was idle again.
    pub fn flush_failed(&mut self, osd: OsdId, now: Time) {
        let is_flushing = |drive: &&mut Drive| drive.osd == osd && drive.phase == Phase::Flushing;
        if let Some(drive) = self.drives.iter_mut().find(is_flushing) {
            drive.enter(Phase::Spinning, now);
        }
    }

    /// Returns the actions, given what was `seen` of each drive, in the order of [`Agent::new`].
    pub fn tick(&mut self, now: Time, seen: &[Seen]) -> Vec<Action> {
        assert_eq!(seen.len(), self.drives.len(), "every drive is looked at");
        let mut actions = Vec::new();
        for (drive, seen) in self.drives.iter_mut().zip(seen) {
            let mut tick = Tick { settings: &self.settings, now, actions: &mut actions };
            tick.drive(drive, seen);
        }
        actions
    }

    /// The state to persist, for the cluster `fsid`.
    pub fn record(&self, fsid: &str) -> AgentRecord {
        let drive = |drive: &Drive| DriveRecord {
            osd: drive.osd,
            phase: drive.phase,
            since_s: drive.since.as_nanos() / 1_000_000_000,
            held_cost: drive.held_cost,
            account: drive.account,
        };
        AgentRecord { fsid: fsid.to_owned(), drives: self.drives.iter().map(drive).collect() }
    }
}

impl Drive {
    fn new(settings: &Settings, osd: OsdId, seen: &DriveSeen, account: Account, now: Time) -> Self {
        let mut manager = SpinDownManager::new(settings.node, 1, now);
        manager.restore(ALONE, account.day, account.starts);
        let phase = if seen.mode == Mode::Standby { Phase::Asleep } else { Phase::Spinning };
        if phase == Phase::Asleep {
            manager.found_asleep(ALONE);
        }
        let counters = seen.counters;
        Self {
            osd,
            manager,
            phase,
            since: now,
            touched_at: now,
            counters,
            flushes_before: 0,
            flushing_looks: 0,
            asked_at: None,
            held_cost: 0,
            is_drained: false,
            account,
        }
    }

    fn enter(&mut self, phase: Phase, now: Time) {
        (self.phase, self.since) = (phase, now);
        match phase {
            Phase::Spinning => self.manager.used(ALONE, now),
            Phase::Asleep => self.manager.found_asleep(ALONE),
            Phase::Flushing | Phase::Stopping | Phase::Starting => {}
        }
    }

    fn count_start(&mut self, now: Time) {
        (self.account.day, self.account.starts) = self.manager.started(ALONE, now, now);
    }

    /// True if the kernel has counted a flush since one was requested, or the drive writes through.
    fn is_flushed(&self, seen: &DriveSeen) -> bool {
        seen.is_write_through || seen.counters.is_some_and(|counters| counters.flushes > self.flushes_before)
    }
}

/// One look at a drive.
struct Tick<'a> {
    settings: &'a Settings,
    now: Time,
    actions: &'a mut Vec<Action>,
}

impl Tick<'_> {
    fn drive(&mut self, drive: &mut Drive, seen: &Seen) {
        let was_touched = self.note_touch(drive, seen.drive.counters);
        if let Some(osd) = &seen.osd {
            drive.manager.reserve_recovery(ALONE, osd.is_reserved);
            drive.held_cost = osd.held.map_or(0, |held| held.cost);
        }
        let mode = seen.drive.mode;
        let in_phase = self.now.since(drive.since);
        match drive.phase {
            Phase::Spinning => self.spinning(drive, seen.osd.as_ref()),
            Phase::Flushing => self.flushing(drive, seen, was_touched),
            Phase::Stopping if mode == Mode::Standby => drive.enter(Phase::Asleep, self.now),
            Phase::Stopping if mode == Mode::Active && was_touched => self.woken(drive),
            Phase::Asleep if mode == Mode::Active => self.woken(drive),
            Phase::Asleep => self.asleep(drive, seen.osd.as_ref()),
            Phase::Starting if mode == Mode::Active => self.turns(drive),
            Phase::Stopping | Phase::Starting if in_phase >= TRANSITION_MAX => drive.enter(Phase::Spinning, self.now),
            Phase::Stopping | Phase::Starting => {}
        }
        self.hold(drive, seen.osd.as_ref().and_then(|osd| osd.held));
    }

    /// An OSD holds back writes while its drive sleeps, and not while it turns. An OSD that was restarted, or was not
    /// reachable before, is asked again. Data that the drive got stays in the OSD's memory, twice, until it is flushed.
    fn hold(&mut self, drive: &mut Drive, held: Option<Held>) {
        let Some(held) = held else { return };
        match drive.phase {
            Phase::Spinning if held.is_on => {
                drive.is_drained = true;
                self.actions.push(Action::Drain(drive.osd));
            }
            Phase::Spinning if drive.is_drained && held.cost == 0 => {
                drive.is_drained = false;
                self.actions.push(Action::Flush(drive.osd));
            }
            Phase::Asleep if !held.is_on => self.actions.push(Action::Hold(drive.osd)),
            _ => {}
        }
    }

    /// True if data moved since the last look. A drive that is gone, or was gone, counts as touched.
    fn note_touch(&mut self, drive: &mut Drive, counters: Option<IoCounters>) -> bool {
        let was_touched = match (counters, &drive.counters) {
            (Some(now), Some(before)) => matches!(now.since(before, 0), Touch::Io(_) | Touch::Restarted),
            _ => true,
        };
        drive.counters = counters;
        if was_touched {
            drive.touched_at = self.now;
        }
        // The flush is I/O, too, but no use of the drive.
        if was_touched && drive.phase != Phase::Flushing {
            drive.manager.used(ALONE, self.now);
        }
        was_touched
    }

    /// Another program made it turn.
    fn woken(&mut self, drive: &mut Drive) {
        drive.account.other_wakes += 1;
        drive.count_start(self.now);
        self.turns(drive);
    }

    fn turns(&mut self, drive: &mut Drive) {
        drive.enter(Phase::Spinning, self.now);
        drive.asked_at = None;
        self.actions.push(Action::Window(drive.osd));
    }

    /// The names of its placement groups whose deep scrub is older than `age`.
    fn due(&self, osd: &OsdSeen, age: Duration) -> Vec<String> {
        let is_due = |pg: &&Pg| stamp::parse(&pg.deep_scrubbed).is_none_or(|scrubbed| self.now.since(scrubbed) >= age);
        osd.pgs.iter().filter(is_due).map(|pg| pg.name.clone()).collect()
    }

    /// Requests deep scrubs while the drive turns. True while it is kept spinning for them.
    fn scrubs(&mut self, drive: &mut Drive, osd: &OsdSeen) -> bool {
        if self.now.since(drive.since) >= self.settings.window_max {
            return false;
        }
        let due = self.due(osd, self.settings.deep_scrub_every / 2);
        let may_ask = drive.asked_at.is_none_or(|asked| self.now.since(asked) >= ASK_AGAIN);
        if !due.is_empty() && may_ask {
            drive.asked_at = Some(self.now);
            self.actions.push(Action::DeepScrub(drive.osd, due));
            return true;
        }
        !due.is_empty() || osd.pgs.iter().any(|pg| pg.state.contains("scrubbing"))
    }

    /// True if nothing in the cluster prevents its sleep (algorithm 2: no recovery work reserved for the OSD).
    fn may_sleep(osd: &OsdSeen) -> bool {
        !osd.is_reserved && osd.pgs.iter().all(Pg::is_clean)
    }

    fn spinning(&mut self, drive: &mut Drive, osd: Option<&OsdSeen>) {
        let Some(osd) = osd.filter(|osd| Self::may_sleep(osd)) else { return };
        // Held-back writes would be missing on the drive that is scrubbed, and would come after the flush.
        if osd.held.is_some_and(|held| held.is_on) {
            return;
        }
        let is_drained = osd.held.is_none_or(|held| held.cost == 0);
        let is_kept = self.scrubs(drive, osd);
        if !is_kept && is_drained && drive.manager.kept(ALONE, self.now).is_none() {
            drive.enter(Phase::Flushing, self.now);
            drive.flushes_before = drive.counters.map_or(u64::MAX, |counters| counters.flushes);
            drive.flushing_looks = 0;
            self.actions.push(Action::Flush(drive.osd));
        }
    }

    fn flushing(&mut self, drive: &mut Drive, seen: &Seen, was_touched: bool) {
        let may_sleep = seen.osd.as_ref().is_some_and(Self::may_sleep);
        let is_settled = !was_touched && self.now.since(drive.touched_at) >= self.settings.settle;
        drive.flushing_looks += 1;
        if !may_sleep || drive.flushing_looks > FLUSHING_LOOKS_MAX {
            drive.enter(Phase::Spinning, self.now);
        } else if is_settled && drive.is_flushed(&seen.drive) && drive.manager.kept(ALONE, self.now).is_none() {
            drive.enter(Phase::Stopping, self.now);
            drive.account.sleeps += 1;
            if seen.osd.as_ref().is_some_and(|osd| osd.held.is_some()) {
                self.actions.push(Action::Hold(drive.osd));
            }
            self.actions.push(Action::Sleep(drive.osd));
        }
    }

    fn asleep(&mut self, drive: &mut Drive, osd: Option<&OsdSeen>) {
        let Some(osd) = osd else { return };
        let is_full = self.settings.hold_max.is_some_and(|max| drive.held_cost >= max);
        let is_due = || Self::may_sleep(osd) && !self.due(osd, self.settings.deep_scrub_every).is_empty();
        if (is_full || is_due()) && drive.manager.starts_today(ALONE, self.now) < self.settings.node.starts_per_day {
            drive.account.own_wakes += 1;
            drive.count_start(self.now);
            drive.enter(Phase::Starting, self.now);
            self.actions.push(Action::Start(drive.osd));
        }
    }
}
