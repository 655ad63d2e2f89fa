//! Workload Shifting (Pan, Yue and Xiong, section III): a log that rotates over the drives of a pool and is transformed
//! into B+trees in the background.
//!
//! 1. Records are appended to the log of one drive, which is on duty. When the log reaches its size, duty moves to the
//!    next drive in the cycle, and the log is transformed: read, and written as a B+tree.
//! 2. In the basic model a log is transformed on its own drive. In the enhanced model the tree goes to another drive:
//!    the one before the log's drive in the cycle, which is the last to be on duty again. So each drive passes through
//!    Log, Read log, Write B+tree and Idle, in that order.
//! 3. Each time a log reaches its size, the alternation of stages is judged. It is *ideal* if the transformation of the
//!    previous log took as long as the logging, *acceptable* if it took less, and *bad* if it has not ended.
//! 4. In the bad case the paper lets stages overlap ([`Overrun::Overlap`]). Our variant keeps them apart
//!    ([`Overrun::Stretch`]): the log on duty grows beyond its size until a drive is free, and at its limit clients are
//!    held back. Nothing is lost in either case.
//! 5. A drive that was idle for long enough sleeps, if its power is controlled. Work outside the rotation counts as
//!    use, but wakes no drive. The next drive on duty is woken when the log is half full. The drive on duty never
//!    sleeps.
//! 6. A drive that fails or fills leaves the cycle. The data that only a lost drive held is reported log by log.
//!
//! Invariants, with `Stretch`: a drive that logs is neither read nor written by a transformation; in the enhanced model
//! no drive is read and written by transformations at once, as long as three drives take writes. Of two drives, each
//! transforms its logs by itself while the other is on duty; a single drive does everything. A log is removed only
//! after its tree is durable, and there are never more waiting logs than drives.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;
use model::{Attempt, Time};

#[cfg(test)]
mod tests;

/// The pause after a transformation that failed without a drive's fault.
const RETRY: Duration = Duration::from_secs(30);

/// A transformation counts as long as the logging if it took at least this part of the logging period, in percent.
const IDEAL_PERCENT: u128 = 95;

const _: () = assert!(0 < IDEAL_PERCENT && IDEAL_PERCENT <= 100, "ideal is a part of the logging period");

/// A drive of the pool, by its position in the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolDrive(pub u32);

/// A log, by a number that is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u64);

/// Where a log becomes a B+tree (section III, A and B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// On its own drive.
    Basic,
    /// Read from its drive, written to another one.
    Enhanced,
}

/// The rule for logging that outruns transformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// Duty moves on anyway, and stages contend for drives, as in the paper's figure 8.
    Overlap,
    /// The log on duty grows to this many times its size, and then clients are held back.
    Stretch(u32),
}

/// The smallest number of drives for two rotations: each needs three, so that in each one drive logs, one is read and
/// one is written.
const TWO_ROTATIONS_FROM: u32 = 6;

/// The rotations of a pool of `drives` drives, at least one, by the positions of their drives. Each rotation holds a
/// copy of every record and keeps the stages of its own drives apart: one copy below six drives, two from six on.
pub fn rotations(drives: u32) -> Vec<Range<u32>> {
    assert!(drives > 0, "a pool has a drive");
    let first = if drives < TWO_ROTATIONS_FROM { drives } else { drives.div_ceil(2) };
    let shares: Vec<Range<u32>> = [0..first, first..drives].into_iter().filter(|share| !share.is_empty()).collect();
    assert!(drives < 3 || shares.iter().all(|share| share.len() >= 3), "a rotation keeps its three stages apart");
    shares
}

/// The settings of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShiftPolicy {
    /// Where a log becomes a tree.
    pub model: Model,
    /// The size at which a log is complete, in bytes. Above 0; 5 MB in the paper.
    pub log_bytes: u64,
    /// The rule for the bad case.
    pub overrun: Overrun,
    /// A drive sleeps after this time without work; `None` is never.
    pub idle_timeout: Option<Duration>,
}

/// How the stages of the drives alternate (section III C).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alternation {
    /// Transformation took as long as logging.
    Ideal,
    /// Transformation took less.
    Acceptable,
    /// A transformation had not ended when the next log was full.
    Bad,
}

impl Alternation {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Ideal, Self::Acceptable, Self::Bad];
}

/// The end of a transformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransformOutcome {
    /// The tree is durable.
    Done,
    /// The log cannot be read.
    SourceLost,
    /// The drive of the tree failed.
    TargetLost,
    /// The drive of the tree has no room.
    TargetFull,
    /// Neither drive is to blame: it may do better later.
    Failed,
}

/// Everything that can happen to a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShiftEvent {
    /// Before work begins: this log was left by an earlier run.
    Found {
        /// Which log.
        log: LogId,
        /// The drive that stores it.
        drive: PoolDrive,
    },
    /// Before work begins: this drive has no power control, so it never sleeps.
    Uncontrolled(PoolDrive),
    /// Work begins; records may come.
    Booted,
    /// The size of the log on duty has changed.
    Appended {
        /// Which log; others than the open one are ignored.
        log: LogId,
        /// Its length.
        bytes: u64,
    },
    /// The log on duty is to be completed as it is, unless it is empty.
    Flush,
    /// A transformation ended.
    TransformEnded {
        /// Which log.
        log: LogId,
        /// The number of its request; other numbers are ignored.
        attempt: Attempt,
        /// Its outcome.
        outcome: TransformOutcome,
    },
    /// The drive has woken, on request or because something else started it.
    Awoke(PoolDrive),
    /// Work outside the rotation, for example a merge of trees, has just used the drive, so it is not idle.
    Used(PoolDrive),
    /// The drive has failed, or is gone.
    Lost(PoolDrive),
    /// The drive has no room for more; its data can be read.
    Full(PoolDrive),
    /// The drive is back and awake, with room.
    Back(PoolDrive),
    /// The deadline was reached.
    DeadlineReached,
}

/// Everything that a rotation may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShiftAction {
    /// Append to this new log from now on. The one before is complete.
    OpenLog {
        /// Its number.
        log: LogId,
        /// The drive on duty.
        drive: PoolDrive,
    },
    /// Read the log and write it as a B+tree.
    Transform {
        /// Which log.
        log: LogId,
        /// Its drive.
        from: PoolDrive,
        /// The drive of the tree.
        to: PoolDrive,
        /// To be returned in the answer.
        attempt: Attempt,
    },
    /// The tree of this log is durable: remove the log.
    RemoveLog {
        /// Which log.
        log: LogId,
        /// Its drive.
        drive: PoolDrive,
    },
    /// The log was lost with its drive: report the records that only it held.
    LogLost {
        /// Which log.
        log: LogId,
        /// Its drive.
        drive: PoolDrive,
    },
    /// Let clients append, or hold them back.
    Admit(bool),
    /// Start the drive.
    Wake(PoolDrive),
    /// Stop the drive.
    Sleep(PoolDrive),
}

/// The work of a drive at one time. More than one stage at a time is contention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// It is on duty.
    pub logs: bool,
    /// Logs that are read from it.
    pub reads: u32,
    /// Trees that are written to it.
    pub writes: u32,
}

impl Stages {
    /// True if stages contend for the drive.
    pub fn contend(&self) -> bool {
        u32::from(self.logs) + self.reads + self.writes > 1
    }

    /// True if a transformation uses the drive.
    pub fn transforms(&self) -> bool {
        self.reads + self.writes > 0
    }
}

/// Counts since the rotation was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShiftStats {
    /// Logs that reached their size, by alternation, in the order of [`Alternation::ALL`].
    pub alternations: [u64; 3],
    /// Logs that became trees.
    pub transformed: u64,
    /// Total time of the transformations that succeeded.
    pub transforming: Duration,
    /// Logs that were lost with their drives.
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Awake,
    Waking,
    Asleep,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct DriveState {
    phase: Phase,
    full: bool,
    uncontrolled: bool,
    stages: Stages,
    idle_since: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct OpenLog {
    log: LogId,
    drive: PoolDrive,
    opened: Time,
    bytes: u64,
    /// It was judged when it reached its size.
    judged: bool,
}

#[derive(Clone, Copy, Debug)]
struct SealedLog {
    drive: PoolDrive,
    /// No transformation begins before then.
    not_before: Time,
    under_way: Option<Transform>,
}

#[derive(Clone, Copy, Debug)]
struct Transform {
    to: PoolDrive,
    attempt: Attempt,
    since: Time,
}

/// The rotation of a pool. See the head of this file.
#[derive(Clone, Debug)]
pub struct Shift {
    policy: ShiftPolicy,
    drives: Vec<DriveState>,
    open: Option<OpenLog>,
    /// Logs that are not trees yet, oldest first.
    sealed: BTreeMap<LogId, SealedLog>,
    /// The last drive on duty.
    duty: PoolDrive,
    next_log: LogId,
    attempts: u32,
    booted: bool,
    flush: bool,
    admits: bool,
    last_transform: Option<Duration>,
    alternation: Option<Alternation>,
    stats: ShiftStats,
}

impl Shift {
    /// A rotation over `drives` drives, at least one, all awake and empty.
    pub fn new(policy: ShiftPolicy, drives: u32) -> Self {
        assert!(drives > 0 && policy.log_bytes > 0, "a log needs a drive, and a size");
        assert!(policy.overrun != Overrun::Stretch(0), "a log may have its own size");
        let (phase, stages) = (Phase::Awake, Stages::default());
        let state = DriveState { phase, full: false, uncontrolled: false, stages, idle_since: None };
        Self {
            policy,
            drives: (0..drives).map(|_| state).collect(),
            open: None,
            sealed: BTreeMap::new(),
            duty: PoolDrive(drives - 1),
            next_log: LogId(1),
            attempts: 0,
            booted: false,
            flush: false,
            admits: false,
            last_transform: None,
            alternation: None,
            stats: ShiftStats::default(),
        }
    }

    /// Applies `event` at `now`, and appends the resulting actions.
    pub fn apply(&mut self, now: Time, event: ShiftEvent, actions: &mut Vec<ShiftAction>) {
        match event {
            ShiftEvent::Found { log, drive } => self.found(log, drive),
            ShiftEvent::Uncontrolled(drive) => self.drive_mut(drive).uncontrolled = true,
            ShiftEvent::Booted => self.booted = true,
            ShiftEvent::Appended { log, bytes } => self.appended(log, bytes, now),
            ShiftEvent::Flush => self.flush = self.open.is_some_and(|open| open.bytes > 0),
            ShiftEvent::TransformEnded { log, attempt, outcome } => self.ended(now, (log, attempt), outcome, actions),
            ShiftEvent::Awoke(drive) => self.awoke(drive),
            ShiftEvent::Used(drive) => self.drive_mut(drive).idle_since = None,
            ShiftEvent::Lost(drive) => self.lose(drive, actions),
            ShiftEvent::Full(drive) => self.drive_mut(drive).full = true,
            ShiftEvent::Back(drive) => {
                let state = self.drive_mut(drive);
                state.full = false;
                if state.phase == Phase::Lost {
                    state.phase = Phase::Awake;
                }
            }
            ShiftEvent::DeadlineReached => {}
        }
        if self.booted {
            self.go_on(now, actions);
        }
    }

    /// When to send [`ShiftEvent::DeadlineReached`]; [`Time::MAX`] is never.
    pub fn next_deadline(&self) -> Time {
        let retries = self.sealed.values().filter(|log| log.under_way.is_none()).map(|log| log.not_before);
        let timeout = self.policy.idle_timeout;
        let sleeps = self.drives.iter().filter_map(|drive| Some(drive.idle_since? + timeout?));
        retries.filter(|at| *at > Time::ZERO).chain(sleeps).min().unwrap_or(Time::MAX)
    }

    /// The current stages of `drive`.
    pub fn stages(&self, drive: PoolDrive) -> Stages {
        self.drives[drive.0 as usize].stages
    }

    /// True if `drive` is awake and in no stage, so that work outside the rotation may use it. A lone drive is free
    /// whenever it is awake, since it does everything.
    pub fn is_free(&self, drive: PoolDrive) -> bool {
        let state = self.state(drive);
        state.phase == Phase::Awake && (state.stages == Stages::default() || self.lone() == Some(drive))
    }

    /// True if `drive` sleeps.
    pub fn is_asleep(&self, drive: PoolDrive) -> bool {
        self.drives[drive.0 as usize].phase == Phase::Asleep
    }

    /// The log on duty and its drive; `None` if no log is open.
    pub fn on_duty(&self) -> Option<(LogId, PoolDrive)> {
        self.open.map(|open| (open.log, open.drive))
    }

    /// True if clients may append.
    pub fn admits(&self) -> bool {
        self.admits
    }

    /// The number of logs that are not trees yet, without the open one.
    pub fn backlog(&self) -> usize {
        self.sealed.len()
    }

    /// The alternation when a log last reached its size; `None` if none was judged yet.
    pub fn alternation(&self) -> Option<Alternation> {
        self.alternation
    }

    /// Counts since the rotation was created.
    pub fn stats(&self) -> ShiftStats {
        let logs = self.stats.transformed + self.stats.lost + self.sealed.len() as u64;
        assert!(logs <= self.next_log.0, "a log becomes a tree or is lost, and that once");
        self.stats
    }
}

/// Inputs.
impl Shift {
    fn found(&mut self, log: LogId, drive: PoolDrive) {
        assert!(!self.booted, "{log:?} is found before work begins");
        let is_new = self.sealed.insert(log, SealedLog { drive, not_before: Time::ZERO, under_way: None }).is_none();
        assert!(is_new, "{log:?} lies in one place");
        self.next_log = self.next_log.max(LogId(log.0 + 1));
    }

    fn appended(&mut self, log: LogId, bytes: u64, now: Time) {
        let Some(open) = self.open.as_mut().filter(|open| open.log == log) else { return };
        assert!(bytes >= open.bytes, "a log only grows");
        open.bytes = bytes;
        if bytes >= self.policy.log_bytes && !open.judged {
            open.judged = true;
            let period = now.since(open.opened);
            self.judge(period);
        }
    }

    /// A log reached its size after `period`.
    fn judge(&mut self, period: Duration) {
        let as_long = |took: Duration| took.as_nanos() * 100 >= period.as_nanos() * IDEAL_PERCENT;
        let judged = match self.last_transform {
            _ if !self.sealed.is_empty() => Alternation::Bad,
            Some(took) if as_long(took) => Alternation::Ideal,
            Some(_) => Alternation::Acceptable,
            None => return, // the first log has none before it
        };
        self.alternation = Some(judged);
        self.stats.alternations[judged as usize] += 1;
        assert!(self.stats.alternations.iter().sum::<u64>() < self.next_log.0, "a log is judged once");
    }

    fn ended(
        &mut self,
        now: Time,
        (log, attempt): (LogId, Attempt),
        outcome: TransformOutcome,
        actions: &mut Vec<ShiftAction>,
    ) {
        let Some(&SealedLog { drive, under_way: Some(transform), .. }) = self.sealed.get(&log) else { return };
        if transform.attempt != attempt {
            return;
        }
        match outcome {
            TransformOutcome::Done => {
                self.forget(log);
                let took = now.since(transform.since);
                self.last_transform = Some(took);
                self.stats.transformed += 1;
                self.stats.transforming += took;
                actions.push(ShiftAction::RemoveLog { log, drive });
            }
            TransformOutcome::SourceLost => self.lose_log(log, actions),
            TransformOutcome::TargetLost => self.lose(transform.to, actions),
            TransformOutcome::TargetFull => {
                self.drive_mut(transform.to).full = true;
                self.interrupt(log, now);
            }
            TransformOutcome::Failed => self.interrupt(log, now + RETRY),
        }
    }

    fn awoke(&mut self, drive: PoolDrive) {
        let state = self.drive_mut(drive);
        if matches!(state.phase, Phase::Waking | Phase::Asleep) {
            state.phase = Phase::Awake;
        }
    }

    fn lose(&mut self, drive: PoolDrive, actions: &mut Vec<ShiftAction>) {
        self.drive_mut(drive).phase = Phase::Lost;
        if let Some(open) = self.open.take_if(|open| open.drive == drive) {
            self.drive_mut(drive).stages.logs = false;
            self.stats.lost += 1;
            actions.push(ShiftAction::LogLost { log: open.log, drive });
        }
        let on_it: Vec<LogId> = self.sealed.iter().filter(|(_, log)| log.drive == drive).map(|(log, _)| *log).collect();
        for log in on_it {
            self.lose_log(log, actions);
        }
        let to_it = |log: &SealedLog| log.under_way.is_some_and(|transform| transform.to == drive);
        let to_it: Vec<LogId> = self.sealed.iter().filter(|(_, log)| to_it(log)).map(|(log, _)| *log).collect();
        for log in to_it {
            self.interrupt(log, Time::ZERO);
        }
        assert!(self.stages(drive) == Stages::default(), "nothing goes on on a drive that is lost");
        assert!(!self.has_log(drive), "no log waits on a drive that is lost");
    }

    fn lose_log(&mut self, log: LogId, actions: &mut Vec<ShiftAction>) {
        let drive = self.forget(log);
        self.stats.lost += 1;
        actions.push(ShiftAction::LogLost { log, drive });
    }

    /// Removes the log from the rotation. Returns its drive.
    fn forget(&mut self, log: LogId) -> PoolDrive {
        self.interrupt(log, Time::ZERO);
        let sealed = self.sealed.remove(&log);
        sealed.map_or_else(|| unreachable!("{log:?} is known"), |sealed| sealed.drive)
    }

    /// The transformation of `log` has ended, if one was under way; the next one waits until `not_before`.
    fn interrupt(&mut self, log: LogId, not_before: Time) {
        let Some(sealed) = self.sealed.get_mut(&log) else { return };
        sealed.not_before = not_before;
        let (from, transform) = (sealed.drive, sealed.under_way.take());
        if let Some(Transform { to, .. }) = transform {
            assert!(self.stages(from).reads > 0, "{log:?} was being read from {from:?}");
            assert!(self.stages(to).writes > 0, "the tree of {log:?} was being written to {to:?}");
            self.drive_mut(from).stages.reads -= 1;
            self.drive_mut(to).stages.writes -= 1;
        }
    }

    fn drive_mut(&mut self, drive: PoolDrive) -> &mut DriveState {
        &mut self.drives[drive.0 as usize]
    }
}

/// Decisions.
impl Shift {
    fn go_on(&mut self, now: Time, actions: &mut Vec<ShiftAction>) {
        self.rotate(now, actions);
        self.transform(now, actions);
        self.wake_ahead(actions);
        self.rest(now, actions);
        self.admit(actions);
        self.check();
    }

    /// Passes duty to the next drive, if no log is open or the open one is to be left, and a drive can take over.
    fn rotate(&mut self, now: Time, actions: &mut Vec<ShiftAction>) {
        let is_due = self
            .open
            .is_none_or(|open| open.bytes >= self.policy.log_bytes || self.flush || self.state(open.drive).full);
        let Some(next) = self.next_on_duty().filter(|_| is_due && !self.is_backed_up()) else { return };
        if !self.woken(next, actions) {
            return;
        }
        assert!(!self.state(next).full, "{next:?} has room for a log");
        let apart = self.policy.overrun != Overrun::Overlap && self.lone().is_none();
        assert!(!apart || !self.stages(next).transforms(), "{next:?} logs, and is in no other stage");
        self.leave(actions);
        let log = self.next_log;
        assert!(!self.sealed.contains_key(&log), "the number of {log:?} is used once");
        self.next_log = LogId(log.0 + 1);
        (self.duty, self.flush) = (next, false);
        self.drive_mut(next).stages.logs = true;
        self.open = Some(OpenLog { log, drive: next, opened: now, bytes: 0, judged: false });
        actions.push(ShiftAction::OpenLog { log, drive: next });
    }

    /// Completes the log on duty, if one is open.
    fn leave(&mut self, actions: &mut Vec<ShiftAction>) {
        let Some(OpenLog { log, drive, bytes, .. }) = self.open.take() else { return };
        assert!(self.stages(drive).logs, "{drive:?} was on duty for {log:?}");
        self.drive_mut(drive).stages.logs = false;
        if bytes == 0 {
            actions.push(ShiftAction::RemoveLog { log, drive });
        } else {
            let before = self.sealed.insert(log, SealedLog { drive, not_before: Time::ZERO, under_way: None });
            assert!(before.is_none(), "{log:?} is left once");
        }
        let overlaps = self.policy.overrun == Overrun::Overlap;
        assert!(overlaps || self.sealed.len() <= self.drives.len(), "no more logs wait than there are drives");
    }

    /// True if the maximum number of logs wait; the facts about them are held in memory.
    fn is_backed_up(&self) -> bool {
        self.policy.overrun != Overrun::Overlap && self.sealed.len() >= self.drives.len()
    }

    /// The drive that is on duty next: the next in the cycle that takes writes. With `Stretch` it must also be free and
    /// have no waiting log.
    fn next_on_duty(&self) -> Option<PoolDrive> {
        let lone = self.lone();
        let count = self.drives.len() as u32;
        let cycle = (1..=count).map(|ahead| PoolDrive((self.duty.0 + ahead) % count));
        cycle.filter(|drive| self.is_writable(*drive)).find(|drive| {
            let is_on_duty = self.state(*drive).stages.logs;
            match self.policy.overrun {
                _ if lone.is_some() => true,
                Overrun::Overlap => !is_on_duty,
                Overrun::Stretch(_) => !is_on_duty && !self.state(*drive).stages.transforms() && !self.has_log(*drive),
            }
        })
    }

    /// Begins all transformations that can begin, oldest log first.
    fn transform(&mut self, now: Time, actions: &mut Vec<ShiftAction>) {
        let waits = |log: &&mut SealedLog| log.under_way.is_none() && log.not_before <= now;
        for log in self.sealed.values_mut().filter(waits) {
            log.not_before = Time::ZERO;
        }
        let waits = |log: &SealedLog| log.under_way.is_none() && log.not_before == Time::ZERO;
        let waiting: Vec<_> =
            self.sealed.iter().filter(|(_, log)| waits(log)).map(|(id, log)| (*id, log.drive)).collect();
        for (log, from) in waiting {
            let Some(to) = self.target(from).filter(|_| self.may_read(from)) else { continue };
            // Both are woken at the same time.
            let (reads, writes) = (self.woken(from, actions), self.woken(to, actions));
            if !reads || !writes {
                continue;
            }
            self.begin(now, log, (from, to), actions);
        }
    }

    fn begin(&mut self, now: Time, log: LogId, (from, to): (PoolDrive, PoolDrive), actions: &mut Vec<ShiftAction>) {
        if self.policy.overrun != Overrun::Overlap && self.lone().is_none() {
            for drive in [from, to] {
                assert!(self.stages(drive) == Stages::default(), "{drive:?} does nothing else");
            }
        }
        assert!(self.is_writable(to), "{to:?} has room for the tree of {log:?}");
        self.attempts = self.attempts.wrapping_add(1);
        let attempt = Attempt(self.attempts);
        self.drive_mut(from).stages.reads += 1;
        self.drive_mut(to).stages.writes += 1;
        if let Some(sealed) = self.sealed.get_mut(&log) {
            assert!(sealed.drive == from, "{log:?} is read where it lies");
            let before = sealed.under_way.replace(Transform { to, attempt, since: now });
            assert!(before.is_none(), "{log:?} is transformed once at a time");
        }
        actions.push(ShiftAction::Transform { log, from, to, attempt });
    }

    /// True if a log may be read from `from`.
    fn may_read(&self, from: PoolDrive) -> bool {
        match self.policy.overrun {
            _ if self.lone().is_some() => true,
            Overrun::Overlap => true,
            Overrun::Stretch(_) => self.stages(from) == Stages::default(),
        }
    }

    /// The drive for the tree of a log on `from`.
    fn target(&self, from: PoolDrive) -> Option<PoolDrive> {
        let own = Some(from).filter(|drive| self.is_writable(*drive));
        if let Some(lone) = self.lone() {
            return Some(lone);
        }
        if self.policy.model == Model::Basic {
            return own;
        }
        let count = self.drives.len() as u32;
        let back = (1..count).map(|back| PoolDrive((from.0 + count - back) % count));
        let mut others = back.filter(|drive| self.is_writable(*drive) && !self.state(*drive).stages.logs);
        let free = others.clone().find(|drive| !self.state(*drive).stages.transforms());
        match self.policy.overrun {
            _ if free.is_some() => free,
            Overrun::Overlap => others.next().or(own),
            // With three drives or more, one of them will soon be free.
            Overrun::Stretch(_) if others.next().is_some() => None,
            Overrun::Stretch(_) => own,
        }
    }

    /// Starts the next drive on duty when the log is half full.
    fn wake_ahead(&mut self, actions: &mut Vec<ShiftAction>) {
        if let Some(next) = self.soon_on_duty() {
            self.woken(next, actions);
        }
    }

    /// The drive that will soon be on duty.
    fn soon_on_duty(&self) -> Option<PoolDrive> {
        let is_soon = self.open.is_none_or(|open| open.bytes >= self.policy.log_bytes / 2);
        self.next_on_duty().filter(|_| is_soon)
    }

    /// True if `drive` is awake; if it sleeps, it is started.
    fn woken(&mut self, drive: PoolDrive, actions: &mut Vec<ShiftAction>) -> bool {
        let state = self.drive_mut(drive);
        assert!(state.phase != Phase::Lost, "{drive:?} is there");
        if state.phase == Phase::Asleep {
            state.phase = Phase::Waking;
            actions.push(ShiftAction::Wake(drive));
        }
        state.phase == Phase::Awake
    }

    /// Stops drives that were idle for long enough.
    fn rest(&mut self, now: Time, actions: &mut Vec<ShiftAction>) {
        let soon = self.soon_on_duty();
        for drive in (0..self.drives.len() as u32).map(PoolDrive) {
            let waited_for = self.has_log(drive);
            let timeout = self.policy.idle_timeout;
            let state = self.drive_mut(drive);
            let is_idle = state.phase == Phase::Awake && state.stages == Stages::default() && !state.uncontrolled;
            if !is_idle || waited_for || soon == Some(drive) {
                state.idle_since = None;
                continue;
            }
            let since = *state.idle_since.get_or_insert(now);
            if timeout.is_some_and(|timeout| now >= since + timeout) {
                (state.phase, state.idle_since) = (Phase::Asleep, None);
                actions.push(ShiftAction::Sleep(drive));
            }
        }
    }

    fn admit(&mut self, actions: &mut Vec<ShiftAction>) {
        let times = match self.policy.overrun {
            Overrun::Overlap => u64::MAX,
            Overrun::Stretch(times) => u64::from(times),
        };
        let most = self.policy.log_bytes.saturating_mul(times);
        let admits = self.open.is_some_and(|open| open.bytes < most && !self.state(open.drive).full);
        if admits != self.admits {
            self.admits = admits;
            actions.push(ShiftAction::Admit(admits));
        }
    }

    /// Checks the invariants. See the head of this file.
    fn check(&self) {
        let (mut reads, mut writes) = (0, 0);
        for (position, state) in self.drives.iter().enumerate() {
            let drive = PoolDrive(position as u32);
            assert!(
                state.stages.logs == self.open.is_some_and(|open| open.drive == drive),
                "{drive:?} is on duty if its log is open"
            );
            assert!(state.phase == Phase::Awake || state.stages == Stages::default(), "{drive:?} works awake");
            (reads, writes) = (reads + state.stages.reads as usize, writes + state.stages.writes as usize);
        }
        let under_way = self.sealed.values().filter(|log| log.under_way.is_some()).count();
        assert_eq!((reads, writes), (under_way, under_way), "a transformation reads one drive and writes one");
        assert!(self.open.is_none_or(|open| open.drive == self.duty), "the open log is that of the drive on duty");
        assert!(self.open.is_none_or(|open| open.log < self.next_log), "logs are numbered upwards");
        let newer = self.open.map_or(self.next_log, |open| open.log);
        assert!(self.sealed.last_key_value().is_none_or(|(last, _)| *last < newer), "logs wait in the order of duty");
        assert!(!self.admits || self.open.is_some(), "who may append has a log to append to");
    }

    /// True if `drive` stores a log that is not a tree yet.
    fn has_log(&self, drive: PoolDrive) -> bool {
        self.sealed.values().any(|log| log.drive == drive)
    }

    fn state(&self, drive: PoolDrive) -> &DriveState {
        &self.drives[drive.0 as usize]
    }

    /// True if logs and trees can be written to `drive`.
    pub fn is_writable(&self, drive: PoolDrive) -> bool {
        let state = self.state(drive);
        state.phase != Phase::Lost && !state.full
    }

    /// The drive that takes writes, if there is exactly one: it does everything.
    fn lone(&self) -> Option<PoolDrive> {
        let mut writable = (0..self.drives.len() as u32).map(PoolDrive).filter(|drive| self.is_writable(*drive));
        writable.next().filter(|_| writable.next().is_none())
    }
}
