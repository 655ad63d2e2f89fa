//! The log of Workload Shifting in the simulator: executes the decisions of [`engine::shift`].

use super::ArrayRun;
use super::power::PoolPower;
use super::task::{Requests, Task};
use engine::shift::{LogId, Model, Overrun, PoolDrive, Shift, ShiftAction, ShiftEvent, ShiftPolicy, TransformOutcome};
use model::{Attempt, Time};

/// A rotation with its log on duty.
pub(super) struct Rotation {
    shift: Shift,
    /// The log on duty, its drive, and its bytes.
    open: Option<(LogId, PoolDrive, u64)>,
    admits: bool,
    transform: bool,
    requests: Requests,
    sealed_bytes: Vec<(LogId, u64)>,
    /// The times at which disks came on duty.
    pub duties: Vec<(Time, usize)>,
    /// The power states of the disks.
    pub power: PoolPower,
    /// Started disks, with the times at which they will be at speed; for the agenda.
    pub starting: Vec<(Time, PoolDrive)>,
}

/// A requested transformation.
pub(super) struct Asked {
    pub log: LogId,
    pub attempt: Attempt,
    pub task: Task,
}

impl Rotation {
    pub fn new(run: &ArrayRun, (model, overrun): (Model, Overrun)) -> Self {
        let policy = ShiftPolicy { model, log_bytes: run.log_bytes, overrun, idle_timeout: run.idle_timeout };
        Self {
            shift: Shift::new(policy, run.disks),
            open: None,
            admits: false,
            transform: run.transform,
            requests: run.requests,
            sealed_bytes: Vec::new(),
            duties: Vec::new(),
            power: PoolPower::new(run.disk.power, run.disks),
            starting: Vec::new(),
        }
    }

    pub fn shift(&self) -> &Shift {
        &self.shift
    }

    /// The disk that takes the next put, unless clients must wait.
    pub fn duty(&self) -> Option<usize> {
        self.open.filter(|_| self.admits).map(|(_, drive, _)| drive.0 as usize)
    }

    /// Starts the rotation.
    pub fn boot(&mut self, now: Time) -> Vec<Asked> {
        self.apply(now, ShiftEvent::Booted)
    }

    /// Records that a put of `bytes` is in the log on duty.
    pub fn appended(&mut self, now: Time, bytes: u64) -> Vec<Asked> {
        let Some((log, _, length)) = self.open.as_mut() else { return Vec::new() };
        *length += bytes;
        let event = ShiftEvent::Appended { log: *log, bytes: *length };
        self.apply(now, event)
    }

    /// Records that a transformation ended.
    pub fn transformed(&mut self, now: Time, (log, attempt): (LogId, Attempt)) -> Vec<Asked> {
        self.apply(now, ShiftEvent::TransformEnded { log, attempt, outcome: TransformOutcome::Done })
    }

    /// Records that a started disk is at speed.
    pub fn awoke(&mut self, now: Time, drive: PoolDrive) -> Vec<Asked> {
        self.starting.extend(self.power.awoke(now, drive));
        self.apply(now, ShiftEvent::Awoke(drive))
    }

    /// Reports that the rotation's deadline was reached.
    pub fn deadline_reached(&mut self, now: Time) -> Vec<Asked> {
        self.apply(now, ShiftEvent::DeadlineReached)
    }

    fn apply(&mut self, now: Time, event: ShiftEvent) -> Vec<Asked> {
        let (mut asked, mut events) = (Vec::new(), vec![event]);
        while let Some(event) = events.pop() {
            let mut actions = Vec::new();
            self.shift.apply(now, event, &mut actions);
            for action in actions {
                match action {
                    ShiftAction::OpenLog { log, drive } => self.opened(now, log, drive),
                    ShiftAction::Transform { log, attempt, .. } if !self.transform => {
                        // Without transformation a log is finished when it goes off duty.
                        events.push(ShiftEvent::TransformEnded { log, attempt, outcome: TransformOutcome::Done });
                    }
                    ShiftAction::Transform { log, from, to, attempt } => {
                        asked.push(self.transforming((log, attempt), (from, to)));
                    }
                    ShiftAction::RemoveLog { log, .. } => self.sealed_bytes.retain(|(sealed, _)| *sealed != log),
                    ShiftAction::Admit(admits) => self.admits = admits,
                    ShiftAction::Wake(drive) => self.starting.extend(self.power.wake(now, drive)),
                    ShiftAction::Sleep(drive) => self.power.sleep(now, drive),
                    ShiftAction::LogLost { log, .. } => unreachable!("no disk of a run fails, and {log:?} is there"),
                }
            }
        }
        asked
    }

    fn opened(&mut self, now: Time, log: LogId, drive: PoolDrive) {
        if let Some((old, _, bytes)) = self.open.replace((log, drive, 0)) {
            self.sealed_bytes.push((old, bytes));
        }
        self.duties.push((now, drive.0 as usize));
    }

    fn transforming(&self, (log, attempt): (LogId, Attempt), (from, to): (PoolDrive, PoolDrive)) -> Asked {
        let bytes = self.sealed_bytes.iter().find(|(sealed, _)| *sealed == log).map_or(0, |(_, bytes)| *bytes);
        let (from, to) = (from.0 as usize, to.0 as usize);
        let task = Task {
            from: from..from + 1,
            to: to..to + 1,
            read_left: bytes,
            write_left: bytes,
            merges: false,
            wrote: false,
            requests: self.requests,
        };
        Asked { log, attempt, task }
    }
}
