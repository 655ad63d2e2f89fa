//! A judge of traces: given the events, was a rack allowed to request its actions?
//!
//! It receives every event before it is applied, and every action after it, and stores only open state: for each drive,
//! each domain and each operation that has not ended. Everything is recounted from the trace and the description;
//! nothing is read from the rack. The judge checks:
//! - *power*: a drive turns from its `SpinUp` action until `Stopped`, a tripped fuse, its return, or the operator's
//!   report that it failed and is pulled; a drive without power control always turns. No hard domain ever has more
//!   drives turning, or draws more power, than its limit, except for drives that the rack has not started; a drive
//!   without power control never counts as started. A drive of the pool starts from the action until the answer, and is
//!   started only while it is stopped.
//! - *labels*: no transfer names a drive that was not mounted, which checks its label, since its last start; and
//!   initialisation is persisted only for drives of the group, once for each;
//! - *answers*: every operation that was submitted, composed or started is answered once, and nothing else is answered;
//! - *service*: one transfer at a time in each class;
//! - *rebuilds*: failed stacks are regenerated from the remaining ones, within their group, and no drive gets two
//!   stacks of a blob;
//! - *fairness*: for every read that is served, the weight that arrived later and was served before it, less the weight
//!   that arrived earlier and is served after it, is at most u (Pelican, section 3: o - t <= u, seen from outside). If
//!   switches have a weight, each operation that was already waiting, and the read itself, may have caused one in the
//!   order of arrival.
//!
//! Facts that are not visible from outside are decided in the rack's favour: the class of a write before it is served,
//! and the overtaking of a cancelled operation, may have lowered an operation's o - t, and are added to its bound.
//! Operations that are served after the wait limit count as cancelled. The number of switches that batches saved is not
//! recounted.
//!
//! This needs no list of waiting reads: a read that arrived when a weight S of its queue had been served and a weight W
//! was waiting has its turn when S + W have been served; any weight beyond that, served before the read, has overtaken
//! it. If some of W is cancelled, its turn comes sooner and its bound is higher by the same weight, so the result does
//! not change.

mod rebuild;
#[cfg(test)]
mod tests;

pub use rebuild::RebuildFault;

use crate::action::{Action, Outcome, Transfer};
use crate::event::{Event, Loss, Request, Work};
use crate::layout::Layout;
use crate::numbered::OpenOps;
use crate::policy::{PriorityClass, RackPolicy, Weighing};
use crate::pool_protocol::{PoolDriveAction, PoolDriveEvent};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use model::physics::{READ_SEEKS, ServerLoad};
use model::{
    Attempt, ClassId, DomainId, DomainLimit, DriveId, DrivePower, GroupId, OpId, PoolDriveId, RackSpec, ResourceId,
    Time,
};
use rebuild::Rebuilds;

/// A rule that a rack broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceFault {
    /// Time went back.
    #[error("time went back to {0}")]
    Clock(Time),
    /// Too many drives turn or start in a domain of a hard limit, or draw too much power.
    #[error("{domain} of {resource} carries {limit}, and {taken} is taken")]
    HardLimit {
        /// The resource.
        resource: ResourceId,
        /// The domain.
        domain: DomainId,
        /// Drives that turn or start, or milliwatts that they draw.
        taken: u64,
        /// The limit, in the same unit.
        limit: u64,
    },
    /// A drive of the pool is started while not stopped, is stopped while not turning, or owes an answer.
    #[error("{0} is given a command that it does not take in its state")]
    PoolDrive(PoolDriveId),
    /// A transfer names a drive whose label was not checked since it was started.
    #[error("{op} uses {drive}, which is not mounted")]
    NotMounted {
        /// The operation.
        op: OpId,
        /// The drive.
        drive: DriveId,
    },
    /// A group's initialisation is persisted for a drive that is not its own, or for which it was persisted before.
    #[error("{0} is initialised with {1}, which is another group's or was remembered before")]
    Initialised(GroupId, DriveId),
    /// The operation was answered, and was not open: never requested, or answered before.
    #[error("{0} was answered and was not open")]
    NotOpen(OpId),
    /// A transfer was started while another one of the class was under way.
    #[error("{second} was begun in {class} during {first}")]
    TwoInService {
        /// The class.
        class: ClassId,
        /// The one under way.
        first: OpId,
        /// The other one.
        second: OpId,
    },
    /// The operation is a rebuild that breaks a rule.
    #[error("{op} rebuilds wrongly: {fault}")]
    Rebuild {
        /// The operation.
        op: OpId,
        /// The rule that it breaks.
        fault: RebuildFault,
    },
    /// Blobs of a drive are listed for a rebuild, but it has not failed and is neither replaced nor retiring.
    #[error("{0} is rebuilt, and has not failed")]
    Listed(DriveId),
    /// A retired drive is given up, but a blob that was listed on it has not moved away.
    #[error("{0} is given up as empty, and holds a blob")]
    NotEmpty(DriveId),
    /// The operation was overtaken by more than its limit.
    #[error("{op} was overtaken by {by}, and may be by {limit}")]
    Overtaken {
        /// The operation.
        op: OpId,
        /// The weight that overtook it, less the weight that it overtook itself.
        by: u64,
        /// Its u.
        limit: u64,
    },
}

/// The counted state of a drive's platters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turning {
    No,
    Starting,
    Yes,
}

/// A resource with a hard limit on what turns.
struct Limited {
    resource: ResourceId,
    limit: DomainLimit,
    domain_of: Vec<DomainId>,
    pool_domain_of: Vec<Option<DomainId>>,
    turning: Vec<u64>,
    starting: Vec<u64>,
    draw_mw: Vec<u64>,
}

/// An operation that has not been answered.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // independent facts of an operation
struct OpenOp {
    priority: PriorityClass,
    weight: u64,
    /// The class in whose queue it waits, if that is visible.
    class: Option<ClassId>,
    /// True for a write that has not been served: its class is not visible from outside.
    unplaced: bool,
    /// True for any write, which is queued again if it fails.
    write: bool,
    /// True if it is being composed, and was not submitted yet.
    composed: bool,
    /// True while it waits in the line of that class, until it is served.
    waits: bool,
    wait: Wait,
    /// The last attempt that the rack requested, if any.
    attempt: Option<Attempt>,
}

impl OpenOp {
    /// An operation without weight in any queue.
    fn weightless(priority: PriorityClass) -> Self {
        let (unplaced, write, composed, waits) = (false, false, false, false);
        let (wait, attempt) = (Wait::default(), None);
        Self { priority, weight: 0, class: None, unplaced, write, composed, waits, wait, attempt }
    }
}

/// The reads that wait in one class and one priority class.
#[derive(Clone, Copy, Default)]
struct Line {
    count: u64,
    weight: u128,
    /// The total weight ever served in it.
    served_weight: u128,
}

/// The wait of a read: its arrival, and its turn in the order of admission (see the head of this file).
#[derive(Clone, Copy, Default)]
struct Wait {
    since: Time,
    limit: u64,
    /// The weight that its line will have served by its turn.
    turn: u64,
    /// Weight that may have lowered its o - t without being visible.
    slack: u64,
}

impl Line {
    /// An operation of this weight stops waiting.
    fn leave(&mut self, weight: u128) {
        assert!(self.count > 0 && self.weight >= weight, "who leaves the line was counted");
        self.count -= 1;
        self.weight -= weight;
    }
}

/// The judge of one trace. See the head of this file.
pub struct TraceCheck {
    now: Time,
    booted: bool,
    watts: model::Watts,
    limited: Vec<Limited>,
    turning: Vec<Turning>,
    /// Drives that the operator reported as pulled; each counts as pulled once it is away.
    cut_off: Vec<bool>,
    /// The attempt of the last command to each drive, if any.
    commanded: Vec<Option<Attempt>>,
    /// The attempt of the last stop of each drive, if any.
    stopping: Vec<Option<Attempt>>,
    /// The drives of the pool, each with its last command if that is unanswered.
    pool: Vec<(Turning, Option<Attempt>)>,
    /// Drives that always turn, regardless of commands, and never need a permit.
    always_on: Vec<bool>,
    mounted: Vec<bool>,
    /// Drives with which their group was initialised.
    initialised: Vec<bool>,
    group_of: Vec<Option<GroupId>>,
    open: OpenOps<OpenOp>,
    /// The highest number of an operation that the world submitted.
    last_op: OpId,
    class_of_group: Vec<ClassId>,
    in_service: Vec<Option<OpId>>,
    /// Reads that wait, by class and priority class.
    lines: Vec<[Line; 3]>,
    /// Weight of writes that wait in an unknown class, by priority class, each with a switch.
    unplaced: [u64; 3],
    /// The weight of a switch.
    switch_weight: u64,
    overtake_limit: u64,
    wait_limit: Option<Duration>,
    weighing: Weighing,
    transfer: model::DriveProfile,
    data: u64,
    rebuilds: Rebuilds,
}

impl TraceCheck {
    /// A judge for a rack with this description, layout and policy, with all drives in standby. With `join_in_service`,
    /// which charges the operations it passes, reads overtake beyond the insertion rule, but never beyond u; where full
    /// queues widen u, they overtake beyond it, but never beyond the widened bound.
    pub fn new(spec: &RackSpec, layout: &Layout, policy: &RackPolicy) -> Self {
        Self {
            class_of_group: layout.groups.iter().map(|group| group.class).collect(),
            in_service: vec![None; layout.classes.len()],
            lines: layout.classes.iter().map(|_| Default::default()).collect(),
            overtake_limit: policy.scheduler.overtake_limit_max(),
            wait_limit: policy.scheduler.wait_limit,
            weighing: policy.scheduler.weighing,
            switch_weight: switch_weight(spec, policy.scheduler.weighing),
            rebuilds: Rebuilds::of(layout, policy.rebuild_read_back),
            group_of: spec.drives.iter().map(|drive| layout.group_of(drive.id)).collect(),
            ..Self::without_classes(spec)
        }
    }

    /// A judge of power and answers only, for a controller without classes.
    pub fn without_classes(spec: &RackSpec) -> Self {
        let hard = spec.resources_by_id().filter(|(_, resource)| resource.hard);
        let standby_mw = u64::from(spec.profile.watts.standby_mw);
        let limited = hard.filter(|(_, resource)| !matches!(resource.limit, DomainLimit::BytesPerS(_)));
        let limited = limited.map(|(id, resource)| {
            let domain_of: Vec<DomainId> = spec.drives.iter().map(|drive| spec.domain_of(drive.id, id)).collect();
            let mut turning: Vec<u64> = vec![0; spec.domain_count(id)];
            let mut draw_mw = turning.clone();
            let of_drives = spec.drives.iter().zip(&domain_of);
            of_drives.clone().filter(|(drive, _)| drive.power != DrivePower::None).for_each(|(_, domain)| {
                draw_mw[domain.index()] += standby_mw;
            });
            let of_drives = of_drives.filter(|(drive, _)| drive.power == DrivePower::None).map(|(_, domain)| *domain);
            for domain in of_drives.chain(spec.pool.iter().filter_map(|drive| drive.resource_domains[id.index()])) {
                turning[domain.index()] += 1;
                draw_mw[domain.index()] += spec.always_on_mw();
            }
            let starting = vec![0; draw_mw.len()];
            let pool_domain_of = spec.pool.iter().map(|drive| drive.resource_domains[id.index()]).collect();
            Limited { resource: id, limit: resource.limit, domain_of, pool_domain_of, turning, starting, draw_mw }
        });
        Self {
            now: Time::ZERO,
            booted: false,
            watts: spec.profile.watts,
            limited: limited.collect(),
            turning: vec![Turning::No; spec.drives.len()],
            cut_off: vec![false; spec.drives.len()],
            commanded: vec![None; spec.drives.len()],
            stopping: vec![None; spec.drives.len()],
            pool: vec![(Turning::Yes, None); spec.pool.len()],
            always_on: spec.drives.iter().map(|drive| drive.power == DrivePower::None).collect(),
            mounted: vec![false; spec.drives.len()],
            initialised: vec![false; spec.drives.len()],
            group_of: vec![None; spec.drives.len()],
            open: OpenOps::default(),
            last_op: OpId(0),
            class_of_group: Vec::new(),
            in_service: Vec::new(),
            lines: Vec::new(),
            unplaced: [0; 3],
            switch_weight: 0,
            overtake_limit: u64::MAX,
            wait_limit: None,
            weighing: Weighing::Operations,
            transfer: spec.profile.clone(),
            data: u64::from(spec.code.data),
            rebuilds: Rebuilds::default(),
        }
    }

    /// Records an event that is about to be applied.
    ///
    /// # Errors
    /// The first violation.
    pub fn event(&mut self, now: Time, event: &Event) -> Result<(), TraceFault> {
        if now < self.now {
            return Err(TraceFault::Clock(now));
        }
        self.now = now;
        if self.is_late(event) {
            return Ok(());
        }
        match event {
            Event::SpunUp { drive, .. } if self.turning[drive.index()] == Turning::Starting => {
                self.turn(*drive, Turning::Yes)?;
            }
            Event::Stopped { drive, .. }
            | Event::DriveBack { drive }
            | Event::DriveLost { drive, loss: Loss::FuseTripped }
            | Event::DriveCommandFailed { drive, loss: Loss::FuseTripped, .. } => self.turn(*drive, Turning::No)?,
            // The operator declared it failed, and it is absent when it is to stop: it has been pulled.
            Event::DriveCommandFailed { drive, attempt, loss }
                if self.stopping[drive.index()] == Some(*attempt)
                    && self.cut_off[drive.index()]
                    && matches!(loss, Loss::Died | Loss::ForeignLabel) =>
            {
                self.turn(*drive, Turning::No)?;
            }
            // The rack did not request that: the limits apply when it starts more drives.
            Event::DriveSpins { drive } if self.turning[drive.index()] == Turning::No => {
                self.turn(*drive, Turning::Yes)?;
            }
            Event::PoolDrive { drive, event } => self.pool_event(*drive, *event),
            Event::Submitted(request)
            | Event::SubmittedWhileAwake(request)
            | Event::SubmittedForJob { request, .. } => self.submitted(request),
            Event::TransferEnded { op, done, .. } => self.transfer_ended(*op, *done),
            // A pack that failed to compose was never submitted, and is not answered.
            Event::Cancelled { op } if self.open.get(*op).is_some_and(|open| open.composed) => {
                if let Some(open) = self.open.remove(*op).filter(|open| open.unplaced) {
                    self.unplaced[open.priority as usize] -= open.weight + self.switch_weight;
                }
            }
            Event::DriveFailed { drive, pulled } => {
                self.rebuilds.drive_failed(*drive);
                // A drive that the rack gave up may still turn; if a pulled drive was away is the rack's assumption.
                if *pulled {
                    self.turn(*drive, Turning::No)?;
                }
                self.cut_off[drive.index()] |= *pulled;
            }
            // It was present when the operator declared it failed, and has been pulled now.
            Event::DriveLost { drive, .. } if self.cut_off[drive.index()] => self.turn(*drive, Turning::No)?,
            Event::DriveMayReturn { drive } => self.cut_off[drive.index()] = false,
            Event::DriveRetiring { drive } => self.rebuilds.drive_retiring(*drive),
            Event::OnDrivePage { drive, attempt, blobs, .. } => self.rebuilds.listed(*drive, *attempt, blobs),
            Event::DriveReplaced { drive, .. } => self.taken_in(*drive, false),
            Event::DriveReturned { drive, .. } => self.taken_in(*drive, true),
            Event::Booted => self.booted = true,
            Event::Mounted { drive, .. } => self.mounted[drive.index()] = true,
            Event::DriveReported(report) => self.initialised[report.drive.index()] = report.initialised,
            Event::StackMoved { op, done, .. } => {
                if *done {
                    self.rebuilds.moved(*op);
                }
                self.out_of_service(*op);
            }
            Event::SourceUnreadable { op, .. } => self.out_of_service(*op),
            _ => {}
        }
        Ok(())
    }

    /// A drive is in service in the place of a failed one: another drive, or the failed one itself, which is `back`. At
    /// boot this is sent for drives that were taken in earlier: it shows their lost stacks, and the rest was already
    /// reported in its present state.
    fn taken_in(&mut self, drive: DriveId, back: bool) {
        self.rebuilds.drive_lacks(drive, back);
        if self.booted {
            self.rebuilds.drive_taken_in(drive);
            self.cut_off[drive.index()] = false;
            self.initialised[drive.index()] = false;
        }
    }

    /// True for an answer to an older attempt than the last one, and for an answer that is repeated after a newer
    /// request: neither concerns the newer request. A tripped fuse is a fact whenever it is reported.
    fn is_late(&self, event: &Event) -> bool {
        let (last, attempt) = match event {
            Event::SpunUp { drive, attempt }
            | Event::Mounted { drive, attempt, .. }
            | Event::Unmounted { drive, attempt }
            | Event::Stopped { drive, attempt } => (self.commanded[drive.index()], attempt),
            Event::TransferEnded { op, attempt, .. }
            | Event::StackMoved { op, attempt, .. }
            | Event::SourceUnreadable { op, attempt, .. } => {
                (self.open.get(*op).and_then(|open| open.attempt), attempt)
            }
            _ => return false,
        };
        last.is_some_and(|last| last != *attempt)
    }

    /// Records the attempt of an action, for its operation or command.
    fn asked(&mut self, action: &Action) {
        if let Action::Stop { drive, attempt } = action {
            self.stopping[drive.index()] = Some(*attempt);
        }
        match action {
            Action::SpinUp { drive, attempt }
            | Action::Mount { drive, attempt }
            | Action::Unmount { drive, attempt }
            | Action::Stop { drive, attempt } => self.commanded[drive.index()] = Some(*attempt),
            Action::Transfer { op, attempt, .. } | Action::MoveStack { op, attempt, .. } => {
                if let Some(open) = self.open.get_mut(*op) {
                    open.attempt = Some(*attempt);
                }
            }
            _ => {}
        }
    }

    /// Records an action that the rack requested.
    ///
    /// # Errors
    /// The first violation.
    pub fn action(&mut self, action: &Action) -> Result<(), TraceFault> {
        self.judge_action(action)?;
        self.asked(action);
        Ok(())
    }

    fn judge_action(&mut self, action: &Action) -> Result<(), TraceFault> {
        match action {
            Action::ListOnDrive { drive, .. } if !self.rebuilds.may_have_lost(*drive) => {
                Err(TraceFault::Listed(*drive))
            }
            Action::ListOnDrive { drive, attempt, after, .. } => {
                self.rebuilds.lists(*drive, *attempt, after.is_none());
                Ok(())
            }
            Action::GiveUp { drive, retired: true } if self.rebuilds.holds_some(*drive) => {
                Err(TraceFault::NotEmpty(*drive))
            }
            Action::MoveStack { op, .. } => {
                self.rebuilds.may_move(action).map_err(|fault| TraceFault::Rebuild { op: *op, fault })?;
                self.serves(self.rebuilds.group(*op), *op)
            }
            Action::SpinUp { drive, .. } => {
                self.mounted[drive.index()] = false;
                self.turn(*drive, Turning::Starting)
            }
            Action::PoolDrive { drive, action } => self.pool_action(*drive, *action),
            Action::PersistInitialised { group, drives } => self.remembered(*group, drives),
            Action::Compose { op, .. } | Action::Recompose { op, .. } => {
                let opened = OpenOp { write: true, composed: true, ..OpenOp::weightless(PriorityClass::Background) };
                self.opened(*op, 0, opened);
                Ok(())
            }
            Action::Transfer { op, transfer, .. } => self.begun(*op, transfer),
            Action::Rejected { op, .. } => self.answered(*op, None),
            Action::Finished { op, outcome } => self.answered(*op, Some(outcome)),
            _ => Ok(()),
        }
    }

    fn pool_event(&mut self, drive: PoolDriveId, event: PoolDriveEvent) {
        match event {
            PoolDriveEvent::Started(attempt) => self.pool_answered(drive, attempt, Turning::Yes),
            PoolDriveEvent::Stopped(attempt) => self.pool_answered(drive, attempt, Turning::No),
            PoolDriveEvent::Failed(attempt) => {
                let was_started = self.pool[drive.index()].0 == Turning::Starting;
                self.pool_answered(drive, attempt, if was_started { Turning::No } else { Turning::Yes });
            }
            // The rack did not request that.
            PoolDriveEvent::Spins => {
                let one = &mut self.pool[drive.index()];
                if *one == (Turning::No, None) {
                    one.0 = Turning::Yes;
                }
            }
            PoolDriveEvent::Reported { .. } | PoolDriveEvent::Wanted | PoolDriveEvent::Idle => {}
        }
    }

    fn pool_action(&mut self, drive: PoolDriveId, action: PoolDriveAction) -> Result<(), TraceFault> {
        match action {
            PoolDriveAction::Start { attempt, .. } => self.pool_starts(drive, attempt),
            PoolDriveAction::Stop(attempt) => self.pool_commanded((drive, attempt), Turning::Yes, Turning::Yes),
            PoolDriveAction::Answer { .. } => Ok(()),
        }
    }

    /// A drive of the pool gets a command, which it accepts only in the state `from` and without an unanswered command.
    fn pool_commanded(
        &mut self,
        (drive, attempt): (PoolDriveId, Attempt),
        from: Turning,
        to: Turning,
    ) -> Result<(), TraceFault> {
        let one = &mut self.pool[drive.index()];
        if *one != (from, None) {
            return Err(TraceFault::PoolDrive(drive));
        }
        *one = (to, Some(attempt));
        Ok(())
    }

    /// A drive of the pool is started. Its power draw and its turning always count.
    fn pool_starts(&mut self, drive: PoolDriveId, attempt: Attempt) -> Result<(), TraceFault> {
        self.pool_commanded((drive, attempt), Turning::No, Turning::Starting)?;
        for limited in &mut self.limited {
            let (Some(domain), DomainLimit::StartingDrives(limit)) =
                (limited.pool_domain_of[drive.index()], limited.limit)
            else {
                continue;
            };
            let starting = &mut limited.starting[domain.index()];
            *starting += 1;
            if *starting > u64::from(limit) {
                let (taken, limit) = (*starting, u64::from(limit));
                return Err(TraceFault::HardLimit { resource: limited.resource, domain, taken, limit });
            }
        }
        Ok(())
    }

    /// A drive of the pool executed the command of `attempt`, or failed to.
    fn pool_answered(&mut self, drive: PoolDriveId, attempt: Attempt, now: Turning) {
        let one = &mut self.pool[drive.index()];
        if one.1 != Some(attempt) {
            return;
        }
        let started = core::mem::replace(one, (now, None)).0 == Turning::Starting;
        for limited in self.limited.iter_mut().filter(|_| started) {
            let starts = matches!(limited.limit, DomainLimit::StartingDrives(_));
            if let Some(domain) = limited.pool_domain_of[drive.index()].filter(|_| starts) {
                assert!(limited.starting[domain.index()] > 0, "the start of {drive} was counted");
                limited.starting[domain.index()] -= 1;
            }
        }
    }

    fn remembered(&mut self, group: GroupId, drives: &[DriveId]) -> Result<(), TraceFault> {
        for drive in drives {
            let again = core::mem::replace(&mut self.initialised[drive.index()], true);
            if again || self.group_of[drive.index()] != Some(group) {
                return Err(TraceFault::Initialised(group, *drive));
            }
        }
        Ok(())
    }

    /// Operations that were requested and are not answered yet.
    pub fn open_ops(&self) -> usize {
        self.open.len()
    }

    fn draw_mw(&self, turning: Turning) -> u64 {
        u64::from(match turning {
            Turning::No => self.watts.standby_mw,
            Turning::Starting => self.watts.spin_up_mw.max(self.watts.active_mw),
            Turning::Yes => self.watts.active_mw,
        })
    }

    fn turn(&mut self, drive: DriveId, turning: Turning) -> Result<(), TraceFault> {
        let old = core::mem::replace(&mut self.turning[drive.index()], turning);
        if self.always_on[drive.index()] {
            return Ok(());
        }
        let (less_mw, more_mw) = (self.draw_mw(old), self.draw_mw(turning));
        let count = |turning| u64::from(turning != Turning::No);
        let starts = |turning| u64::from(turning == Turning::Starting);
        for limited in &mut self.limited {
            let domain = limited.domain_of[drive.index()];
            let turns = &mut limited.turning[domain.index()];
            assert!(*turns >= count(old), "{drive} was counted");
            *turns = *turns - count(old) + count(turning);
            let starting = &mut limited.starting[domain.index()];
            assert!(*starting >= starts(old), "the start of {drive} was counted");
            *starting = *starting - starts(old) + starts(turning);
            let draw_mw = &mut limited.draw_mw[domain.index()];
            assert!(*draw_mw >= less_mw, "the draw of {drive} was counted");
            *draw_mw = *draw_mw - less_mw + more_mw;
            let (taken, limit) = match limited.limit {
                DomainLimit::ActiveDrives(limit) => (*turns, u64::from(limit)),
                DomainLimit::StartingDrives(limit) => (*starting, u64::from(limit)),
                DomainLimit::Watts(limit) => (*draw_mw, u64::from(limit) * 1_000),
                DomainLimit::BytesPerS(_) => continue,
            };
            if taken > limit && turning == Turning::Starting {
                return Err(TraceFault::HardLimit { resource: limited.resource, domain, taken, limit });
            }
        }
        Ok(())
    }

    fn weight(&self, work: &Work) -> u64 {
        let bytes = work.transfer_bytes();
        let weight = match self.weighing {
            Weighing::Operations => 1,
            Weighing::Bytes => bytes,
            Weighing::Time | Weighing::ServiceTime => {
                let each = model::transfer_time(bytes.div_ceil(self.data), self.transfer.bytes_per_s);
                (self.transfer.seek * READ_SEEKS + each).as_millis() as u64
            }
        };
        weight.max(1)
    }

    fn submitted(&mut self, request: &Request) {
        let composed = matches!(request.work, Work::Write { migration: true, .. });
        if composed && let Some(open) = self.open.get_mut(request.op) {
            open.composed = false;
        }
        if composed || request.op <= self.last_op {
            return; // opened when it was composed, or sent twice
        }
        self.last_op = request.op;
        let limit = request.overtake_limit.unwrap_or(self.overtake_limit);
        let weight = self.weight(&request.work);
        let write = matches!(request.work, Work::Write { .. });
        let class = match &request.work {
            Work::Read { group, .. } => self.class_of_group.get(group.index()).copied(),
            _ => None,
        };
        let opened = OpenOp { weight, class, write, ..OpenOp::weightless(request.priority) };
        self.opened(request.op, limit, opened);
    }

    fn opened(&mut self, op: OpId, limit: u64, opened: OpenOp) {
        let (priority, weight) = (opened.priority as usize, opened.weight);
        let wait = opened.class.map(|class| {
            let line = &mut self.lines[class.index()][priority];
            let slack = self.unplaced[priority] + self.switch_weight * (line.count + 1);
            let turn = u64::try_from(line.served_weight + line.weight).unwrap_or(u64::MAX);
            line.count += 1;
            line.weight += u128::from(weight);
            Wait { since: self.now, limit, turn, slack }
        });
        let unplaced = opened.class.is_none();
        self.unplaced[priority] += if unplaced { weight + self.switch_weight } else { 0 };
        let (waits, wait) = (wait.is_some(), wait.unwrap_or_default());
        self.open.insert(op, OpenOp { unplaced, waits, wait, ..opened });
    }

    fn begun(&mut self, op: OpId, transfer: &Transfer) -> Result<(), TraceFault> {
        if let Some(drive) = transfer.drives().find(|drive| !self.mounted[drive.index()]) {
            return Err(TraceFault::NotMounted { op, drive });
        }
        if matches!(transfer, Transfer::Delete { .. } | Transfer::Scrub { .. }) && !self.open.contains(op) {
            self.opened(op, 0, OpenOp::weightless(PriorityClass::Background));
        }
        if matches!(transfer, Transfer::Rebuild { .. }) && !self.open.contains(op) {
            self.opened(op, 0, OpenOp::weightless(PriorityClass::Rebuild));
        }
        self.rebuilds.begun(op, transfer).map_err(|fault| TraceFault::Rebuild { op, fault })?;
        match transfer {
            Transfer::Write { group, .. }
            | Transfer::Rebuild { group, .. }
            | Transfer::Scrub { group, .. }
            | Transfer::Inspect { group, .. } => {
                self.serves(Some(*group), op)?;
            }
            Transfer::Read { .. } => self.class_serves(self.open.get(op).and_then(|open| open.class), op)?,
            Transfer::Verify { .. } => self.serves(self.rebuilds.group(op), op)?,
            Transfer::Delete { .. } => {}
        }
        self.leave_line(op)
    }

    /// `op` is served in `group`, if the group is known.
    fn serves(&mut self, group: Option<GroupId>, op: OpId) -> Result<(), TraceFault> {
        self.class_serves(group.and_then(|group| self.class_of_group.get(group.index()).copied()), op)
    }

    fn class_serves(&mut self, class: Option<ClassId>, op: OpId) -> Result<(), TraceFault> {
        let Some(class) = class else { return Ok(()) };
        let under_way = &mut self.in_service[class.index()];
        if let Some(first) = under_way.filter(|first| *first != op) {
            return Err(TraceFault::TwoInService { class, first, second: op });
        }
        *under_way = Some(op);
        Ok(())
    }

    fn out_of_service(&mut self, op: OpId) {
        for under_way in &mut self.in_service {
            if *under_way == Some(op) {
                *under_way = None;
            }
        }
    }

    /// The operation is served and stops waiting.
    fn leave_line(&mut self, op: OpId) -> Result<(), TraceFault> {
        let Some(open) = self.open.get_mut(op) else { return Ok(()) };
        let priority = open.priority as usize;
        if core::mem::take(&mut open.unplaced) {
            self.unplaced[priority] -= open.weight + self.switch_weight;
        }
        let (Some(class), Some(served)) = (open.class, core::mem::take(&mut open.waits).then_some(open.wait)) else {
            return Ok(());
        };
        assert!(served.since <= self.now, "{op} waited before it was served");
        let client = open.priority == PriorityClass::Client;
        let weight = u128::from(open.weight);
        let line = &mut self.lines[class.index()][priority];
        line.leave(weight);
        // An overdue operation may be served before its turn, which u does not count: treat it as leaving unserved.
        if self.wait_limit.is_some_and(|limit| client && self.now.since(served.since) >= limit) {
            return Ok(());
        }
        let overtaken_by = line.served_weight.saturating_sub(u128::from(served.turn));
        line.served_weight += weight;
        if overtaken_by > u128::from(served.limit) + u128::from(served.slack) {
            let by = u64::try_from(overtaken_by).unwrap_or(u64::MAX);
            return Err(TraceFault::Overtaken { op, by, limit: served.limit });
        }
        Ok(())
    }

    fn transfer_ended(&mut self, op: OpId, done: bool) {
        self.out_of_service(op);
        self.rebuilds.transfer_ended(op, done);
        if !done && let Some(open) = self.open.get_mut(op).filter(|open| open.write && !open.unplaced) {
            open.unplaced = true; // it will be queued again, in some class
            self.unplaced[open.priority as usize] += open.weight + self.switch_weight;
        }
    }

    fn answered(&mut self, op: OpId, outcome: Option<&Outcome>) -> Result<(), TraceFault> {
        self.rebuilds.answered(op, outcome);
        let Some(open) = self.open.remove(op) else { return Err(TraceFault::NotOpen(op)) };
        let priority = open.priority as usize;
        if let Some(class) = open.class.filter(|_| open.waits) {
            self.lines[class.index()][priority].leave(u128::from(open.weight));
        }
        if open.unplaced {
            let weight = open.weight + self.switch_weight;
            assert!(self.unplaced[priority] >= weight, "the weight of {op} was counted");
            self.unplaced[priority] -= weight;
        }
        Ok(())
    }
}

/// The weight of a switch: the profile's mean times, in milliseconds, if operations are weighed by service time;
/// otherwise 0.
fn switch_weight(spec: &RackSpec, weighing: Weighing) -> u64 {
    if weighing != Weighing::ServiceTime {
        return 0;
    }
    let (profile, drives) = (&spec.profile, spec.group_drives as usize);
    (profile.wake_estimate(drives, ServerLoad::Busy) + profile.rest_estimate(drives)).as_millis() as u64
}
