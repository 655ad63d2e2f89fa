//! When a cold drive sleeps, and when it is woken: the spin-down manager of Serviceable cold storage (algorithm 2)
//! beside an OSD that knows nothing of it. Pure: [`Agent::tick`] gets the time and what was seen, and says what to do.
//!
//! ```text
//!            idle long enough, nothing reserved, clean,            no I/O since for
//!            a start left today, nothing to scrub: Flush            `settle`: Sleep
//! Spinning ------------------------------------------> Flushing ----------------------> Stopping
//!    ^  ^                                                  |                                |
//!    |  '---------------- others write on -----------------'                                v
//!    '--- it turns: woken by others, or by Start when a deep scrub is due -------------- Asleep
//! ```
//!
//! Whether the drive may sleep, how long after its start, and what its budget of starts allows, is the engine's to say:
//! [`StartBudget`] and [`SpinDownPolicy`]. One wake serves flush and deep scrub together: while a drive turns anyway,
//! every placement group whose deep scrub is older than half the period is scrubbed, and it is woken when one is older
//! than the whole.
//!
//! Invariants: nothing is put to sleep while the cluster was not seen (`None`); a drive whose budget is used up spins
//! until the next day; a wake is counted once, whoever caused it.

pub mod stamp;
#[cfg(test)]
mod tests;

use crate::cluster::{OsdId, Pg};
use crate::record::Record;
use disk::{IoCounters, Touch};
use engine::budget::StartBudget;
use engine::spin_down::Spinning;
use engine::{PriorityClass, SpinDownPolicy};
use model::{DriveId, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// So long without I/O before a drive sleeps: the cluster's down-out interval and a grace at least, so that an OSD
    /// that fails is out, and its recovery reserved, before (the paper, section III-B).
    pub idle: Duration,
    /// Starts of a drive on one day.
    pub starts_per_day: u32,
    /// The engine's policy.
    pub spin_down: SpinDownPolicy,
    /// Every placement group is deep-scrubbed once in so long.
    pub deep_scrub_every: Duration,
    /// So long without I/O after the flush before the drive is stopped.
    pub settle: Duration,
    /// So long a drive is kept spinning for deep scrubs that do not end.
    pub window_max: Duration,
}

/// So long a drive may take to stand still, or to be at speed.
const TRANSITION_MAX: Duration = Duration::from_mins(2);

/// So long after a deep scrub was asked for it may be asked for again.
const ASK_AGAIN: Duration = Duration::from_mins(30);

/// A flush is given up when others have written for so many times `settle`.
const SETTLES_MAX: u32 = 10;

/// What a drive's platters do, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They stand still.
    Standby,
    /// They turn.
    Active,
    /// They are on their way, or nobody knows.
    Unknown,
}

/// What was seen of a drive.
#[derive(Clone, Copy, Debug)]
pub struct DriveSeen {
    /// The kernel's counters; `None` if the drive is gone.
    pub counters: Option<IoCounters>,
    /// Its mode.
    pub mode: Mode,
}

/// What was seen of an OSD in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdSeen {
    /// Its placement groups.
    pub pgs: Vec<Pg>,
    /// Whether a recovery or backfill is reserved on it.
    pub is_reserved: bool,
}

/// What was seen of an OSD and its drive. Of the OSD nothing, while the monitors or its daemon cannot be reached.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The drive.
    pub drive: DriveSeen,
    /// The OSD.
    pub osd: Option<OsdSeen>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The OSD's deferred writes go to its drive, and the drive's cache is flushed.
    Flush(OsdId),
    /// The drive is sent to standby.
    Sleep(OsdId),
    /// The drive is started.
    Start(OsdId),
    /// Deep scrubs of these placement groups are asked for.
    DeepScrub(OsdId, Vec<String>),
    /// The drive turns: what else wanted it may be done (its health is read).
    Window(OsdId),
}

/// What a drive does, as far as the agent knows.
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
#[derive(Clone, Debug)]
struct Drive {
    osd: OsdId,
    id: DriveId,
    phase: Phase,
    /// When the phase began.
    since: Time,
    /// The last I/O that was seen.
    idle_since: Time,
    counters: Option<IoCounters>,
    asked_at: Option<Time>,
    account: Account,
}

/// What a drive did, as it is remembered over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The day of its last start, of the Unix epoch.
    pub day: u32,
    /// Its starts on that day.
    pub starts: u32,
    /// Times it was sent to sleep.
    pub sleeps: u64,
    /// Times the agent woke it.
    pub own_wakes: u64,
    /// Times others woke it.
    pub other_wakes: u64,
}

/// What an agent remembers, and shows.
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
    /// What the drive does.
    pub phase: Phase,
    /// Since when, in seconds of the Unix epoch.
    pub since_s: u64,
    /// What it did.
    #[serde(flatten)]
    pub account: Account,
}

impl Record for AgentRecord {
    const KIND: &'static str = "agent";
}

/// The agent of a host.
pub struct Agent {
    settings: Settings,
    budget: StartBudget,
    drives: Vec<Drive>,
}

impl Agent {
    /// An agent of the drives of `osds`, which are as `seen`. `remembered` is what an earlier one knew.
    pub fn new(settings: Settings, osds: &[(OsdId, DriveSeen)], remembered: Option<&AgentRecord>, now: Time) -> Self {
        assert!(!osds.is_empty(), "an agent has drives");
        let mut budget = StartBudget::new(osds.len(), settings.starts_per_day);
        let drive = |(index, (osd, seen)): (usize, &(OsdId, DriveSeen))| {
            let known = remembered.and_then(|record| record.drives.iter().find(|drive| drive.osd == *osd));
            let account = known.map(|drive| drive.account).unwrap_or_default();
            let id = DriveId(index as u32);
            budget.restore(id, account.day, account.starts);
            let phase = if seen.mode == Mode::Standby { Phase::Asleep } else { Phase::Spinning };
            let (counters, asked_at) = (seen.counters, None);
            Drive { osd: *osd, id, phase, since: now, idle_since: now, counters, asked_at, account }
        };
        let drives = osds.iter().enumerate().map(drive).collect();
        Self { settings, budget, drives }
    }

    /// What to do, given what was `seen` of each drive, in the order of [`Agent::new`].
    pub fn tick(&mut self, now: Time, seen: &[Seen]) -> Vec<Action> {
        assert_eq!(seen.len(), self.drives.len(), "every drive is looked at");
        let mut actions = Vec::new();
        for (drive, seen) in self.drives.iter_mut().zip(seen) {
            let mut tick = Tick { settings: &self.settings, budget: &mut self.budget, now, actions: &mut actions };
            tick.drive(drive, seen);
        }
        actions
    }

    /// What is to be remembered of `fsid`'s cluster.
    pub fn record(&self, fsid: &str) -> AgentRecord {
        let drive = |drive: &Drive| DriveRecord {
            osd: drive.osd,
            phase: drive.phase,
            since_s: drive.since.as_nanos() / 1_000_000_000,
            account: drive.account,
        };
        AgentRecord { fsid: fsid.to_owned(), drives: self.drives.iter().map(drive).collect() }
    }
}

/// One look at a drive.
struct Tick<'a> {
    settings: &'a Settings,
    budget: &'a mut StartBudget,
    now: Time,
    actions: &'a mut Vec<Action>,
}

impl Tick<'_> {
    fn drive(&mut self, drive: &mut Drive, seen: &Seen) {
        let was_touched = self.note_touch(drive, seen.drive.counters);
        let mode = seen.drive.mode;
        let in_phase = self.now.since(drive.since);
        match drive.phase {
            Phase::Spinning => self.spinning(drive, seen.osd.as_ref()),
            Phase::Flushing => self.flushing(drive, seen.osd.as_ref(), was_touched),
            Phase::Stopping if mode == Mode::Standby => self.enter(drive, Phase::Asleep),
            Phase::Stopping if mode == Mode::Active && was_touched => self.woken(drive),
            Phase::Asleep if mode == Mode::Active => self.woken(drive),
            Phase::Asleep => self.asleep(drive, seen.osd.as_ref()),
            Phase::Starting if mode == Mode::Active => self.turns(drive),
            Phase::Stopping | Phase::Starting if in_phase >= TRANSITION_MAX => self.enter(drive, Phase::Spinning),
            Phase::Stopping | Phase::Starting => {}
        }
    }

    /// Whether data moved since the last look. A drive that is gone, or was, counts as touched.
    fn note_touch(&mut self, drive: &mut Drive, counters: Option<IoCounters>) -> bool {
        let was_touched = match (counters, &drive.counters) {
            (Some(now), Some(before)) => matches!(now.since(before, 0), Touch::Io(_) | Touch::Restarted),
            _ => true,
        };
        drive.counters = counters;
        if was_touched {
            drive.idle_since = self.now;
        }
        was_touched
    }

    fn enter(&mut self, drive: &mut Drive, phase: Phase) {
        drive.phase = phase;
        drive.since = self.now;
        if phase == Phase::Spinning {
            drive.idle_since = self.now;
        }
    }

    fn count_start(&mut self, drive: &mut Drive) {
        (drive.account.day, drive.account.starts) = self.budget.record(drive.id, self.now);
    }

    /// Somebody else made it turn.
    fn woken(&mut self, drive: &mut Drive) {
        drive.account.other_wakes += 1;
        self.count_start(drive);
        self.turns(drive);
    }

    fn turns(&mut self, drive: &mut Drive) {
        self.enter(drive, Phase::Spinning);
        drive.asked_at = None;
        self.actions.push(Action::Window(drive.osd));
    }

    /// The names of its placement groups whose deep scrub is older than `age`.
    fn due(&self, osd: &OsdSeen, age: Duration) -> Vec<String> {
        let is_due = |pg: &&Pg| stamp::parse(&pg.deep_scrubbed).is_none_or(|scrubbed| self.now.since(scrubbed) >= age);
        osd.pgs.iter().filter(is_due).map(|pg| pg.name.clone()).collect()
    }

    /// Asks for deep scrubs while the drive turns. True while it is kept spinning for them.
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

    /// Whether nothing in the cluster stands against its sleep (algorithm 2: no recovery work reserved for the OSD).
    fn may_sleep(osd: &OsdSeen) -> bool {
        !osd.is_reserved && osd.pgs.iter().all(Pg::is_clean)
    }

    fn spinning(&mut self, drive: &mut Drive, osd: Option<&OsdSeen>) {
        let Some(osd) = osd.filter(|osd| Self::may_sleep(osd)) else { return };
        let is_exhausted = !self.budget.may_start(drive.id, self.now, PriorityClass::Background);
        let spinning = Spinning { ready_at: drive.since, is_exhausted, recovery_reserved: osd.is_reserved };
        let stays_until = self.settings.spin_down.stays_until(&spinning, self.now);
        let is_kept = self.scrubs(drive, osd);
        if !is_kept && self.now >= (drive.idle_since + self.settings.idle).max(stays_until) {
            self.enter(drive, Phase::Flushing);
            self.actions.push(Action::Flush(drive.osd));
        }
    }

    fn flushing(&mut self, drive: &mut Drive, osd: Option<&OsdSeen>, was_touched: bool) {
        let may_sleep = osd.is_some_and(Self::may_sleep);
        if !may_sleep || self.now.since(drive.since) > self.settings.settle * SETTLES_MAX {
            self.enter(drive, Phase::Spinning);
        } else if !was_touched && self.now.since(drive.idle_since) >= self.settings.settle {
            self.enter(drive, Phase::Stopping);
            drive.account.sleeps += 1;
            self.actions.push(Action::Sleep(drive.osd));
        }
    }

    fn asleep(&mut self, drive: &mut Drive, osd: Option<&OsdSeen>) {
        let Some(osd) = osd.filter(|osd| Self::may_sleep(osd)) else { return };
        let is_due = !self.due(osd, self.settings.deep_scrub_every).is_empty();
        if is_due && self.budget.may_start(drive.id, self.now, PriorityClass::Background) {
            drive.account.own_wakes += 1;
            self.count_start(drive);
            self.enter(drive, Phase::Starting);
            self.actions.push(Action::Start(drive.osd));
        }
    }
}
