//! The forecast of a client's read: how long it would wait, as a range and an expected value, from the work that is
//! known now and the work that may still come.
//!
//! The expected wait is the time of the work under way, of the work queued before the read, and of the switches
//! between, each as measured ([`crate::estimates`]), extended by the shares of other priority classes that have work.
//! Clients act on it. The range shows how far it may be off:
//!
//! The minimum assumes that everything takes its shortest time and no more work comes. The maximum counts the later
//! operations that may be served before the read: those that join the group in service, or the last operation of their
//! own group. With a limit in time ([`crate::fair`], "The limit in time") this ends when the read is overdue; only the
//! round that comes to its group remains then.
//!
//! A read that is submitted at the same moment begins within the range, provided that
//! - drives wake, rest and move bytes as their profile says, need not wait for power, and do not fail;
//! - no queued operation is cancelled, and no operation comes that is longer than the longest one now, the read itself
//!   included;
//! - no other priority class that has no work now gets any, and clients have a share;
//! - there is a limit in time, or nothing can overtake the read. Without a limit, the bytes that may overtake it are
//!   counted at the drives' rate, without the seeks of the operations that move them.

use crate::class::{Class, ClassPhase};
use crate::estimates::{Estimates, SwitchEstimate};
use crate::event::Work;
use crate::ops::Ops;
use crate::policy::{PriorityClass, SchedulerPolicy, Weighing};
use crate::setup::Setup;
use alloc::vec::Vec;
use core::time::Duration;
use model::physics::{READ_SEEKS, ServerLoad};
use model::{GroupId, OpId, Time, transfer_time};
use serde::Serialize;

/// The time that a read may have to wait for its first byte, in modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// The wait if everything takes its shortest time and nothing else comes first.
    pub min: Duration,
    /// The wait if everything takes as long as it has recently and nothing else comes first. Within the range.
    pub expected: Duration,
    /// The wait if everything that may come first does.
    pub max: Duration,
}

impl Forecast {
    /// No wait.
    pub const NONE: Self = Self { min: Duration::ZERO, expected: Duration::ZERO, max: Duration::ZERO };
}

/// The clients' queue of a class, from the view of a read of one of its groups.
struct Ahead {
    /// The service time of the operations queued for the read's own group.
    own: Duration,
    /// The number of other groups with queued operations.
    others: u32,
    /// The longest service time of an operation of the class: in service, pending or queued.
    longest: Duration,
}

/// The state that a forecast is made from.
pub(crate) struct Forecaster<'a> {
    pub setup: &'a Setup,
    pub estimates: &'a Estimates,
    /// The load of the rack beside the class.
    pub load: ServerLoad,
    pub ops: &'a Ops,
    /// The class of the read's group.
    pub class: &'a Class,
    /// Some group of the class has dead bytes, so a wake may be spent on reclaiming.
    pub reclaims: bool,
    pub now: Time,
}

/// The time to rebuild `bytes`, alone: x/t; and at the rebuilds' share, with `class_bytes` to be rebuilt in the class:
/// x/t * 1/w (Pelican, section 3). Twice that if rebuilt data is read back.
pub(crate) fn rebuild_forecast(setup: &Setup, bytes: u64, class_bytes: u64) -> Forecast {
    assert!(bytes <= class_bytes, "what a drive has left is part of what its class has left");
    let times = if setup.policy.rebuild_read_back { 2 } else { 1 };
    let span = |bytes| transfer_time(bytes, setup.spec.profile.bytes_per_s).saturating_mul(times);
    let shares = setup.policy.scheduler.shares;
    let sum = PriorityClass::ALL.into_iter().fold(0_u32, |sum, priority| sum.saturating_add(shares.of(priority)));
    let (min, max) = (span(bytes), span(class_bytes).saturating_mul(sum) / shares.rebuild.max(1));
    Forecast { min, expected: span(class_bytes).clamp(min, max), max }
}

/// The number of times that the bytes of an operation are moved: written bytes are read back as well.
fn passes(work: &Work) -> u32 {
    if matches!(work, Work::Write { .. } | Work::Rebuild { .. }) { 2 } else { 1 }
}

impl Forecaster<'_> {
    /// The wait for the first byte of a client's read in `group`, if it were submitted now.
    pub fn read(&self, group: GroupId) -> Forecast {
        let spec = &self.setup.spec;
        let first_stripe_bytes = u64::from(spec.code.data) * u64::from(spec.code.fragment_bytes);
        let min = self.soonest(group) + spec.profile.seek * READ_SEEKS;
        let max = self.latest(group).saturating_add(self.setup.transfer_max(first_stripe_bytes));
        let max = max.max(min);
        Forecast {
            min,
            expected: (self.expected(group) + self.setup.transfer_estimate(first_stripe_bytes)).clamp(min, max),
            max,
        }
    }

    /// The wait if everything takes as long as it has recently, and no more work comes.
    fn expected(&self, group: GroupId) -> Duration {
        let switch = self.estimates.switch(self.load);
        let change = |up: Option<GroupId>| if up.is_some() { switch.total() } else { switch.wake };
        let (mut wait, mut up) = self.expected_under_way(switch);
        if let Some(pick) = self.class.pending {
            wait += if up == Some(pick.group) { Duration::ZERO } else { change(up) };
            wait += self.expected_of(pick.op);
            up = Some(pick.group);
        }
        let joins = self.scheduler().join_in_service && up == Some(group);
        let queued = self.class.queues.queued_in(PriorityClass::Client);
        if joins {
            let own: Duration = queued.filter(|item| item.group == group).map(|item| self.expected_of(item.op)).sum();
            return self.expected_beside_others(wait + own);
        }
        let ahead = self.class.queues.ahead_of_new(PriorityClass::Client, group, 0);
        let before: Duration = queued.take(ahead.operations).map(|item| self.expected_of(item.op)).sum();
        let switches = self.switches_ahead(group);
        let first = if switches > 0 { change(up) } else { Duration::ZERO };
        let others = switch.total().saturating_mul(switches.saturating_sub(1));
        self.expected_beside_others(wait + before + first + others)
    }

    /// The expected time until the work under way has ended, and the group that is up then.
    fn expected_under_way(&self, switch: SwitchEstimate) -> (Duration, Option<GroupId>) {
        let moving = self.class.moving_since.map_or(Duration::ZERO, |since| self.now.since(since));
        match self.class.phase {
            ClassPhase::Asleep => (Duration::ZERO, None),
            ClassPhase::Resting { .. } => (switch.rest.saturating_sub(moving), None),
            ClassPhase::Waking { group, .. } => (switch.wake.saturating_sub(moving), Some(group)),
            ClassPhase::Awake { group, .. } => {
                let in_service = self.class.in_service.map_or(Duration::ZERO, |service| {
                    self.expected_of(service.op).saturating_sub(self.now.since(service.since))
                });
                (in_service, Some(group))
            }
        }
    }

    /// The expected service time of an operation; written bytes are read back as well.
    fn expected_of(&self, op: OpId) -> Duration {
        let known = self.ops.get(op).map(|op| &op.request.work);
        let alone = known.map_or(Duration::ZERO, |work| {
            self.setup.transfer_estimate(work.transfer_bytes()).saturating_mul(passes(work))
        });
        self.estimates.transfer(self.load, alone)
    }

    /// The expected time beside other priority classes that have work: each takes its share of the time, and the one in
    /// service now is assumed to be halfway through its quantum.
    fn expected_beside_others(&self, alone: Duration) -> Duration {
        let shares = self.scheduler().shares;
        let serving = self.class.in_service.map(|service| service.priority);
        let others = PriorityClass::ALL.into_iter().filter(|priority| *priority != PriorityClass::Client);
        let others = others.filter(|priority| self.class.queues.queue_len(*priority) > 0).map(|priority| {
            let turn = if serving == Some(priority) { self.scheduler().quantum / 2 } else { Duration::ZERO };
            alone.saturating_mul(shares.of(priority)) / shares.client.max(1) + turn
        });
        let beside = others.fold(alone, Duration::saturating_add);
        assert!(beside >= alone, "beside others it is expected to take no less than alone");
        beside
    }

    fn scheduler(&self) -> &SchedulerPolicy {
        &self.setup.policy.scheduler
    }

    /// The longest service time of an operation; written bytes are read back as well.
    fn longest_service(&self, work: &Work) -> Duration {
        self.setup.transfer_max(work.transfer_bytes()).saturating_mul(passes(work))
    }

    /// The estimated time to transfer the bytes of an operation once.
    fn transfer_of(&self, op: OpId) -> Duration {
        self.setup.transfer_estimate(self.ops.get(op).map_or(0, |op| op.request.work.transfer_bytes()))
    }

    fn service_of(&self, op: OpId) -> Duration {
        self.ops.get(op).map_or(Duration::ZERO, |op| self.longest_service(&op.request.work))
    }

    /// The wait if no more work comes and everything takes its shortest time.
    fn soonest(&self, group: GroupId) -> Duration {
        let profile = &self.setup.spec.profile;
        let wake = profile.spin_up.min + profile.mount.min;
        let rest = profile.unmount.min + profile.spin_down.min;
        let woken_for = self.class.switch.map_or(Duration::ZERO, |switch| self.now.since(switch.since));
        let until_ready = match self.class.phase {
            ClassPhase::Awake { group: awake, .. } if awake == group => Duration::ZERO,
            ClassPhase::Waking { group: waking, .. } if waking == group => wake.saturating_sub(woken_for),
            ClassPhase::Asleep | ClassPhase::Resting { .. } => wake,
            ClassPhase::Waking { .. } => wake.saturating_sub(woken_for) + rest + wake,
            ClassPhase::Awake { .. } => rest + wake,
        };
        let in_service = self.class.in_service.map_or(Duration::ZERO, |service| {
            self.transfer_of(service.op).saturating_sub(self.now.since(service.since))
        });
        // Clients' operations that are queued for the read's own group go first in any case. Those for other groups may
        // be overtaken if the group is awake, or wakes for another priority class, or the read is overdue.
        let queued = self.class.queues.queued_in(PriorityClass::Client).filter(|item| item.group == group);
        let own: Duration = queued.map(|item| self.transfer_of(item.op)).sum();
        let pending = self.class.pending.map_or(Duration::ZERO, |pick| self.transfer_of(pick.op));
        until_ready + in_service + pending + own
    }

    /// The clients' queue, from the view of a read of `group`.
    fn ahead(&self, group: GroupId) -> Ahead {
        let known = [self.class.in_service.map(|service| service.op), self.class.pending.map(|pick| pick.op)];
        let longest = known.into_iter().flatten().map(|op| self.service_of(op)).max().unwrap_or_default();
        let mut ahead = Ahead { own: Duration::ZERO, others: 0, longest };
        let mut others: Vec<GroupId> = Vec::new();
        for item in PriorityClass::ALL.into_iter().flat_map(|priority| self.class.queues.queued_in(priority)) {
            ahead.longest = ahead.longest.max(self.service_of(item.op));
        }
        for item in self.class.queues.queued_in(PriorityClass::Client) {
            if item.group == group {
                ahead.own += self.service_of(item.op);
            } else if !others.contains(&item.group) {
                others.push(item.group);
            }
        }
        ahead.others = others.len() as u32;
        assert!(
            others.len() <= self.class.queues.queue_len(PriorityClass::Client),
            "a group that is wanted has work queued"
        );
        ahead
    }

    /// The wait if everything that may come first does.
    fn latest(&self, group: GroupId) -> Duration {
        let (wake, rest) = self.setup.switch_max();
        let switch = wake + rest;
        let ahead = self.ahead(group);
        let reclaiming = if self.reclaims { self.scheduler().quantum + ahead.longest } else { Duration::ZERO };
        let overtakable = ahead.others > 0 || self.may_be_joined(group);
        // If no group is up, the first switch is only a wake.
        let at_rest = self.class.pending.is_none() && self.group_up().is_none();
        let in_order = self
            .under_way()
            .saturating_add(self.in_order(group))
            .saturating_add((switch + reclaiming).saturating_mul(self.switches_ahead(group)))
            .saturating_sub(if at_rest { rest } else { Duration::ZERO });
        let alone = match self.scheduler().wait_limit {
            _ if !overtakable => in_order,
            None => in_order.saturating_add(self.overtaking(&ahead)),
            Some(limit) => limit.saturating_add(self.overdue(&ahead, switch, reclaiming)),
        };
        self.beside_others(alone, ahead.longest + switch)
    }

    /// The time until everything under way has ended.
    fn under_way(&self) -> Duration {
        let (wake, rest) = self.setup.switch_max();
        let switching = match self.class.phase {
            ClassPhase::Waking { .. } => wake,
            ClassPhase::Resting { .. } => rest,
            ClassPhase::Asleep | ClassPhase::Awake { .. } => Duration::ZERO,
        };
        let pending = self.class.pending.map_or(Duration::ZERO, |pick| self.service_of(pick.op));
        // A pending operation whose group is not up yet waits for its own switch.
        let up = matches!(self.class.phase, ClassPhase::Waking { group, .. } | ClassPhase::Awake { group, .. }
            if self.class.pending.is_none_or(|pick| pick.group == group));
        let for_pending = if self.class.pending.is_some() && !up { rest + wake } else { Duration::ZERO };
        let in_service = self.class.in_service.map_or(Duration::ZERO, |service| {
            self.service_of(service.op).saturating_sub(self.now.since(service.since))
        });
        switching + for_pending + pending + in_service
    }

    /// The service time of all operations before a new operation of `group`, without switches.
    fn in_order(&self, group: GroupId) -> Duration {
        let ahead = self.class.queues.ahead_of_new(PriorityClass::Client, group, 0);
        assert!(
            ahead.operations <= self.class.queues.queue_len(PriorityClass::Client),
            "only what is queued lies before it"
        );
        self.class
            .queues
            .queued_in(PriorityClass::Client)
            .take(ahead.operations)
            .map(|item| self.service_of(item.op))
            .sum()
    }

    /// The number of switches from the group that is up, or is about to be, to `group`, as the operations are queued
    /// now.
    fn switches_ahead(&self, group: GroupId) -> u32 {
        let ahead = self.class.queues.ahead_of_new(PriorityClass::Client, group, 0);
        assert!(ahead.group_switches <= ahead.operations, "a switch has an operation before it");
        let head = self.class.queues.head(PriorityClass::Client).filter(|_| ahead.operations > 0);
        let leaves = self.group_up() != Some(head.map_or(group, |head| head.group));
        u32::try_from(ahead.group_switches).unwrap_or(u32::MAX).saturating_add(u32::from(leaves))
    }

    /// The group that is up, or is going to be.
    fn group_up(&self) -> Option<GroupId> {
        let pending = self.class.pending.map(|pick| pick.group);
        pending.or(match self.class.phase {
            ClassPhase::Waking { group, .. } | ClassPhase::Awake { group, .. } => Some(group),
            ClassPhase::Resting { .. } | ClassPhase::Asleep => None,
        })
    }

    /// True if a later operation may join a group that is up already and is not `group`.
    fn may_be_joined(&self, group: GroupId) -> bool {
        let busy = self.class.in_service.is_some() || self.class.pending.is_some() || !self.class.queues.is_empty();
        self.scheduler().join_in_service && busy && self.group_up().is_some_and(|up| up != group)
    }

    /// The service time of the operations that may overtake the read by u.
    fn overtaking(&self, ahead: &Ahead) -> Duration {
        let u = self.scheduler().overtake_limit_max();
        match self.scheduler().weighing {
            Weighing::Bytes => self.setup.transfer_estimate(u),
            Weighing::Time => Duration::from_millis(u),
            // In order of arrival, each operation may need a switch.
            Weighing::ServiceTime => {
                let queued = self.class.queues.queue_len(PriorityClass::Client) as u32;
                Duration::from_millis(u).saturating_add(self.setup.switch_estimate().saturating_mul(queued + 1))
            }
            Weighing::Operations => ahead.longest.saturating_mul(u32::try_from(u).unwrap_or(u32::MAX)),
        }
    }

    /// The rest of the wait from the moment at which the read is overdue.
    fn overdue(&self, ahead: &Ahead, switch: Duration, reclaiming: Duration) -> Duration {
        let quantum = self.scheduler().quantum;
        let visit = (switch + quantum + ahead.longest * 2).saturating_add(reclaiming);
        let round = visit.saturating_mul(1 + ahead.others);
        let rounds = u32::try_from(ahead.own.as_nanos() / quantum.as_nanos().max(1)).unwrap_or(u32::MAX);
        round.saturating_mul(rounds.saturating_add(1)).saturating_add(switch + reclaiming).saturating_add(ahead.own)
    }

    /// The time that the read takes beside other priority classes that have work (see [`crate::fair`], "No
    /// starvation").
    fn beside_others(&self, alone: Duration, longest: Duration) -> Duration {
        let shares = self.scheduler().shares;
        let lead = self.scheduler().quantum + longest * 2;
        let busy =
            |priority: &PriorityClass| *priority != PriorityClass::Client && self.class.queues.queue_len(*priority) > 0;
        let others = PriorityClass::ALL.into_iter().filter(busy).map(|priority| {
            let own = alone.saturating_add(lead).saturating_mul(shares.of(priority)) / shares.client.max(1);
            own.saturating_add(lead)
        });
        let others: Duration = others.fold(Duration::ZERO, Duration::saturating_add);
        let beside = if others.is_zero() { alone } else { alone.saturating_add(lead).saturating_add(others) };
        assert!(beside >= alone, "beside others it takes no less than alone");
        beside
    }
}
