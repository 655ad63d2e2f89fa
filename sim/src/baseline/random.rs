//! Random layout, which the paper compares with: stacks on random drives, one queue, no groups. It answers reads and
//! rejects all other requests.
//!
//! A request does without drives that are away, as long as k are left. A drive that died may still spin, and keeps its
//! permits until it is back; requests do without drives that cannot start because of those permits. A drive that fails
//! to start or mount is stopped and retried; after three failures in a row it counts as away.
//!
//! Invariant: when a request leaves the queue, requests and lost drives together hold no more than every hard limit
//! allows. If a drive is lost later, the waiting requests in its domain do without each other's drives, so no two
//! requests wait for one another. The controller has no clock: a drive that never answers holds its request forever.

use engine::ledger::{Ledger, PowerState};
use engine::{
    Action, Controller, Deadlines, DriveDeadlines, DriveList, DrivePhase, Event, Loss, OpMap, Outcome, ReadPolicy,
    Rejection, Request, Transfer, Waking, Work,
};
use model::{Attempt, BlobId, DomainLimit, DriveId, OpId, RackSpec, Rng, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Draws k + r drives for a blob, one after the other; a drawn drive that would break a hard limit together with those
/// drawn before it is dropped. `None` if all drives were drawn and too few are left.
pub fn random_stacks(spec: &RackSpec, rng: &mut Rng) -> Option<Vec<DriveId>> {
    let mut left: Vec<DriveId> = spec.drives.iter().map(|drive| drive.id).collect();
    let mut taken = Claims::new(spec);
    let mut drawn = Vec::with_capacity(spec.code.stacks());
    while drawn.len() < spec.code.stacks() {
        if left.is_empty() {
            return None;
        }
        let drive = left.swap_remove(rng.below(left.len() as u64) as usize);
        if taken.fits(spec, &[drive]) {
            taken.add(spec, drive);
            drawn.push(drive);
        }
    }
    drawn.sort_unstable();
    Some(drawn)
}

/// Drives that requests hold, by domain of each hard resource.
struct Claims {
    /// The resource, the maximum number of awake drives in a domain, and the number claimed in each domain.
    held: Vec<(usize, u64, Vec<u64>)>,
}

impl Claims {
    fn new(spec: &RackSpec) -> Self {
        let watts = spec.profile.watts;
        let each_mw = u64::from(watts.spin_up_mw.max(watts.active_mw).saturating_sub(watts.standby_mw));
        let hard = spec.resources_by_id().filter(|(_, resource)| resource.hard);
        let held = hard.filter_map(|(id, resource)| {
            let domains = spec.domain_count(id);
            let most = match resource.limit {
                DomainLimit::ActiveDrives(limit) => u64::from(limit),
                DomainLimit::Watts(limit) => {
                    let asleep_mw = (spec.drives.len() / domains) as u64 * u64::from(watts.standby_mw);
                    (u64::from(limit) * 1_000).saturating_sub(asleep_mw) / each_mw.max(1)
                }
                // Drives that may not start together start one after the other; the ledger enforces that.
                DomainLimit::StartingDrives(_) | DomainLimit::BytesPerS(_) => return None,
            };
            Some((id.index(), most, vec![0; domains]))
        });
        Self { held: held.collect() }
    }

    /// The counts of the domains of `drive`.
    fn counts(&mut self, spec: &RackSpec, drive: DriveId) -> impl Iterator<Item = &mut u64> {
        let domains = &spec.drive(drive).resource_domains;
        self.held.iter_mut().map(|(resource, _, counts)| &mut counts[domains[*resource].index()])
    }

    fn add(&mut self, spec: &RackSpec, drive: DriveId) {
        self.counts(spec, drive).for_each(|count| *count += 1);
    }

    fn remove(&mut self, spec: &RackSpec, drive: DriveId) {
        for count in self.counts(spec, drive) {
            assert!(*count > 0, "{drive} gives back what it does not hold");
            *count -= 1;
        }
    }

    /// True if the domains of `drive` hold no more than their limits.
    fn holds(&self, spec: &RackSpec, drive: DriveId) -> bool {
        let domain = |resource: usize| spec.drive(drive).resource_domains[resource].index();
        self.held.iter().all(|(resource, most, counts)| counts[domain(*resource)] <= *most)
    }

    /// True if these drives fit beside those held. No two of them are in the same domain of limit 1.
    fn fits(&self, spec: &RackSpec, drives: &[DriveId]) -> bool {
        self.held.iter().all(|(resource, most, counts)| {
            let domain = |drive: &DriveId| spec.drive(*drive).resource_domains[*resource].index();
            drives.iter().all(|drive| {
                let own = drives.iter().filter(|other| domain(other) == domain(drive)).count() as u64;
                counts[domain(drive)] + own <= *most
            })
        })
    }
}

/// An unanswered request.
struct OpenRequest {
    blob: BlobId,
    drives: DriveList,
    /// The drives that it claimed when it left the queue.
    claimed: Vec<DriveId>,
    /// The time when it left the queue.
    picked: Option<Time>,
    /// The attempt number of its transfer, if the transfer has begun.
    attempt: Option<Attempt>,
}

#[derive(Clone, Copy)]
struct Drive {
    phase: DrivePhase,
    attempt: Attempt,
    owner: Option<OpId>,
    /// True if the drive is away, holds permits, and no request has claimed it.
    holds_permits: bool,
    /// Failed commands since it last mounted.
    failures: u32,
}

/// Failed commands in a row before a drive is left alone until it is back.
const FAILURES_MAX: u32 = 3;

/// The controller of random layout. See the head of the module.
pub struct RandomLayout {
    spec: RackSpec,
    depth: usize,
    read_policy: ReadPolicy,
    drives: Vec<Drive>,
    ledger: Ledger,
    /// The drives that requests and lost drives hold.
    claims: Claims,
    /// The drives that lost drives hold.
    lost_claims: Claims,
    queue: VecDeque<OpId>,
    /// Requests that left the queue and wait for their drives.
    waking: Vec<OpId>,
    ops: OpMap<OpenRequest>,
    last_op: OpId,
    wake_time: Duration,
}

impl RandomLayout {
    /// A controller with a queue for `depth` requests, in a rack with all drives in standby.
    pub fn new(spec: RackSpec, depth: u32, read_policy: ReadPolicy) -> Self {
        let drive =
            Drive { phase: DrivePhase::Standby, attempt: Attempt(0), owner: None, holds_permits: false, failures: 0 };
        Self {
            depth: depth as usize,
            read_policy,
            drives: vec![drive; spec.drives.len()],
            ledger: Ledger::new(&spec),
            claims: Claims::new(&spec),
            lost_claims: Claims::new(&spec),
            queue: VecDeque::new(),
            waking: Vec::new(),
            ops: OpMap::default(),
            last_op: OpId(0),
            wake_time: Duration::ZERO,
            spec,
        }
    }

    fn submitted(&mut self, request: Request, actions: &mut Vec<Action>) {
        let op = request.op;
        if op <= self.last_op {
            return;
        }
        self.last_op = op;
        let reason = match request.work {
            Work::Read { blob, drives, .. } if self.queue.len() < self.depth => {
                self.ops.insert(op, OpenRequest { blob, drives, claimed: Vec::new(), picked: None, attempt: None });
                self.queue.push_back(op);
                return;
            }
            Work::Read { .. } => Rejection::QueueFull,
            _ => Rejection::Malformed,
        };
        actions.push(Action::Rejected { op, reason });
    }

    fn cancelled(&mut self, op: OpId, actions: &mut Vec<Action>) {
        if let Some(at) = self.queue.iter().position(|queued| *queued == op) {
            self.queue.remove(at);
            self.ops.remove(op);
            actions.push(Action::Finished { op, outcome: Outcome::Cancelled });
        }
    }

    fn command(&mut self, drive: DriveId, phase: DrivePhase) -> Attempt {
        let state = &mut self.drives[drive.index()];
        state.attempt = Attempt(state.attempt.0.wrapping_add(1));
        state.phase = phase;
        state.attempt
    }

    /// True if the event answers the drive's last command.
    fn answers(&self, drive: DriveId, attempt: Attempt, phase: DrivePhase) -> bool {
        let state = &self.drives[drive.index()];
        state.attempt == attempt && state.phase == phase
    }

    fn drive_event(&mut self, event: &Event, actions: &mut Vec<Action>) {
        match *event {
            Event::SpunUp { drive, attempt } if self.answers(drive, attempt, DrivePhase::SpinningUp) => {
                self.ledger.spun_up(drive);
                let attempt = self.command(drive, DrivePhase::Mounting);
                actions.push(Action::Mount { drive, attempt });
            }
            Event::Mounted { drive, attempt, .. } if self.answers(drive, attempt, DrivePhase::Mounting) => {
                let state = &mut self.drives[drive.index()];
                (state.phase, state.failures) = (DrivePhase::Ready, 0);
            }
            Event::Unmounted { drive, attempt } if self.answers(drive, attempt, DrivePhase::Unmounting) => {
                let attempt = self.command(drive, DrivePhase::Stopping);
                actions.push(Action::Stop { drive, attempt });
            }
            Event::Stopped { drive, attempt } if self.answers(drive, attempt, DrivePhase::Stopping) => {
                let given_up = self.drives[drive.index()].failures >= FAILURES_MAX;
                self.still(drive, if given_up { DrivePhase::Away(Loss::Died) } else { DrivePhase::Standby });
            }
            Event::DriveCommandFailed { drive, attempt, loss } if self.drives[drive.index()].attempt == attempt => {
                self.command_failed(drive, loss, actions);
            }
            Event::DriveLost { drive, loss } => self.lose(drive, loss),
            Event::DriveBack { drive } if matches!(self.drives[drive.index()].phase, DrivePhase::Away(_)) => {
                self.drives[drive.index()].failures = 0;
                self.still(drive, DrivePhase::Standby);
            }
            _ => {}
        }
    }

    fn command_failed(&mut self, drive: DriveId, loss: Loss, actions: &mut Vec<Action>) {
        match self.drives[drive.index()].phase {
            DrivePhase::SpinningUp | DrivePhase::Mounting | DrivePhase::Unmounting if loss != Loss::FuseTripped => {
                self.drives[drive.index()].failures += 1;
                let attempt = self.command(drive, DrivePhase::Stopping);
                actions.push(Action::Stop { drive, attempt });
            }
            DrivePhase::Away(_) | DrivePhase::Standby => {}
            _ => self.lose(drive, loss),
        }
    }

    /// `drive` does not answer any more. It has certainly stopped only if its fuse tripped.
    fn lose(&mut self, drive: DriveId, loss: Loss) {
        if loss == Loss::FuseTripped {
            self.still(drive, DrivePhase::Away(loss));
        } else {
            self.command(drive, DrivePhase::Away(loss));
            self.hold_while_away(drive);
        }
    }

    /// Counts the permits of `drive` while it is away, unless a request has claimed it.
    fn hold_while_away(&mut self, drive: DriveId) {
        let state = &mut self.drives[drive.index()];
        let held = self.ledger.state(drive) != PowerState::Standby;
        if matches!(state.phase, DrivePhase::Away(_)) && held && state.owner.is_none() && !state.holds_permits {
            state.holds_permits = true;
            self.claims.add(&self.spec, drive);
            self.lost_claims.add(&self.spec, drive);
        }
    }

    /// `drive` has stopped; releases its permits.
    fn still(&mut self, drive: DriveId, phase: DrivePhase) {
        self.command(drive, phase);
        if core::mem::take(&mut self.drives[drive.index()].holds_permits) {
            self.claims.remove(&self.spec, drive);
            self.lost_claims.remove(&self.spec, drive);
        }
        if self.ledger.state(drive) != PowerState::Standby {
            self.ledger.released(drive);
        }
    }

    fn transfer_ended(&mut self, op: OpId, attempt: Attempt, done: bool, actions: &mut Vec<Action>) {
        if self.ops.get(op).is_some_and(|state| state.attempt == Some(attempt)) {
            let outcome = if done { Outcome::Read } else { Outcome::Failed(Rejection::TooManyDrivesAway) };
            self.finish(op, outcome, actions);
        }
    }

    fn finish(&mut self, op: OpId, outcome: Outcome, actions: &mut Vec<Action>) {
        let Some(state) = self.ops.remove(op) else { return };
        for drive in state.claimed {
            assert!(self.drives[drive.index()].owner == Some(op), "{drive} is claimed by {op}, which does not own it");
            self.drives[drive.index()].owner = None;
            self.claims.remove(&self.spec, drive);
            self.hold_while_away(drive);
        }
        actions.push(Action::Finished { op, outcome });
    }

    /// Takes requests from the queue in order, each when its drives fit beside those of the requests that left before
    /// it.
    fn leave_queue(&mut self, now: Time, actions: &mut Vec<Action>) {
        while let Some(op) = self.queue.front().copied() {
            let of_blob = self.ops[op].drives.iter().copied();
            let drives: Vec<DriveId> = of_blob.filter(|drive| self.is_of_use(*drive)).collect();
            if drives.len() < usize::from(self.spec.code.data) {
                self.queue.pop_front();
                self.finish(op, Outcome::Failed(Rejection::TooManyDrivesAway), actions);
                continue;
            }
            let free = drives.iter().all(|drive| self.drives[drive.index()].owner.is_none());
            if !free || !self.claims.fits(&self.spec, &drives) {
                return;
            }
            self.queue.pop_front();
            for drive in &drives {
                self.drives[drive.index()].owner = Some(op);
                self.claims.add(&self.spec, *drive);
                assert!(self.claims.holds(&self.spec, *drive), "{op} claims {drive} beyond a limit");
            }
            if let Some(state) = self.ops.get_mut(op) {
                state.picked = Some(now);
                state.claimed.clone_from(&drives);
            }
            self.waking.push(op);
            self.make_way(&drives, actions);
        }
    }

    /// True if `drive` is present, and no lost drive keeps it from starting.
    fn is_of_use(&self, drive: DriveId) -> bool {
        match self.drives[drive.index()].phase {
            DrivePhase::Away(_) => false,
            DrivePhase::Ready => true,
            _ => self.lost_claims.fits(&self.spec, &[drive]),
        }
    }

    /// The drives in standby among `drives`.
    fn asleep(&self, drives: &[DriveId]) -> Vec<DriveId> {
        drives.iter().copied().filter(|drive| self.drives[drive.index()].phase == DrivePhase::Standby).collect()
    }

    /// Puts ready drives to sleep that no request owns and that share a hard domain with a sleeping drive of `drives`.
    fn make_way(&mut self, drives: &[DriveId], actions: &mut Vec<Action>) {
        let hard: Vec<usize> = self.claims.held.iter().map(|(resource, ..)| *resource).collect();
        let domains = |drive: DriveId| hard.iter().map(move |resource| (*resource, drive));
        let spec = &self.spec;
        let asleep = self.asleep(drives);
        if asleep.is_empty() {
            return;
        }
        let hinders = |idle: DriveId| {
            let same = |(resource, drive): (usize, DriveId)| {
                spec.drive(drive).resource_domains[resource] == spec.drive(idle).resource_domains[resource]
            };
            asleep.iter().any(|drive| domains(*drive).any(same))
        };
        let idle = (0..self.drives.len()).map(|drive| DriveId(drive as u32)).filter(|drive| {
            let state = &self.drives[drive.index()];
            state.owner.is_none() && state.phase == DrivePhase::Ready && hinders(*drive)
        });
        for drive in idle.collect::<Vec<_>>() {
            let attempt = self.command(drive, DrivePhase::Unmounting);
            actions.push(Action::Unmount { drive, attempt });
        }
    }

    fn wake(&mut self, now: Time, actions: &mut Vec<Action>) {
        for op in self.waking.clone() {
            let drives = self.ops[op].claimed.clone();
            for drive in self.ledger.request(&self.asleep(&drives)) {
                let attempt = self.command(drive, DrivePhase::SpinningUp);
                actions.push(Action::SpinUp { drive, attempt });
            }
            self.make_way(&drives, actions);
            let settled = |drive: &DriveId| match self.drives[drive.index()].phase {
                DrivePhase::Ready | DrivePhase::Away(_) => true,
                // More is claimed than allowed since a drive was lost: a drive that has not started need not wait for
                // the others.
                DrivePhase::Standby => !self.claims.holds(&self.spec, *drive),
                _ => false,
            };
            if drives.iter().all(settled) {
                self.waking.retain(|waking| *waking != op);
                self.begin(now, op, actions);
            }
        }
    }

    fn begin(&mut self, now: Time, op: OpId, actions: &mut Vec<Action>) {
        let need = self.spec.code.data;
        let Some(state) = self.ops.get_mut(op) else { return };
        let ready = state.drives.iter().enumerate().map(|(index, drive)| (index as u8, *drive));
        let can = |drive: DriveId| {
            let Drive { phase, owner, .. } = self.drives[drive.index()];
            phase == DrivePhase::Ready && owner == Some(op)
        };
        let stacks: Vec<_> = ready.filter(|(_, drive)| can(*drive)).collect();
        self.wake_time += now.since(state.picked.unwrap_or(now));
        if stacks.len() < usize::from(need) {
            return self.finish(op, Outcome::Failed(Rejection::TooManyDrivesAway), actions);
        }
        let attempt = Attempt(1);
        state.attempt = Some(attempt);
        let transfer = Transfer::Read { blob: state.blob, stacks, need, policy: self.read_policy };
        actions.push(Action::Transfer { op, attempt, transfer });
    }
}

impl Controller for RandomLayout {
    fn apply(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Submitted(request) => self.submitted(*request, actions),
            Event::Cancelled { op } => self.cancelled(op, actions),
            Event::TransferEnded { op, attempt, done, .. } => self.transfer_ended(op, attempt, done, actions),
            other => self.drive_event(&other, actions),
        }
        self.leave_queue(now, actions);
        self.wake(now, actions);
    }

    fn next_deadline(&self) -> Time {
        Time::MAX
    }

    fn spec(&self) -> &RackSpec {
        &self.spec
    }

    fn drive_deadlines(&self) -> DriveDeadlines {
        DriveDeadlines::new(&self.spec.profile, Deadlines::default(), Duration::ZERO)
    }

    fn picked_at(&self, op: OpId) -> Option<Time> {
        self.ops.get(op)?.picked
    }

    fn queue_fill_permille(&self, _drive: DriveId) -> u32 {
        u32::try_from(self.queue.len() * 1_000 / self.depth.max(1)).unwrap_or(u32::MAX)
    }

    fn waking(&self) -> Waking {
        Waking { time: self.wake_time, schedulers: 1 }
    }
}
