//! How long a client's read would wait: a range, from what is known now and what may still come.
//!
//! The least is that of a rack in which everything goes as fast as it can, and nothing more comes. The most counts what
//! may be served before the read although it comes later: by joining the group in service, or the last operation of its
//! own group. With a limit in time ([`crate::fair`], "The limit in time") that ends when the read is overdue, and what
//! is left is the round that comes to its group.
//!
//! A read that is submitted at the same moment begins within the range, provided that
//! - drives wake, rest and move bytes as their profile says, need not wait for power, and none fails;
//! - nothing that is queued is cancelled, and no operation comes that is longer than the longest there is now, the read
//!   itself included;
//! - no other lane gets work that has none now, and clients have a share;
//! - there is a limit in time, or nothing can overtake the read. Without a limit, what may overtake it by its bytes is
//!   counted at the drives' rate, without the seeks of however many operations they come in.

use crate::event::Work;
use crate::policy::{Lane, Weighing};
use crate::rack::{ClassPhase, ClassState, Rack};
use alloc::vec::Vec;
use core::time::Duration;
use model::{GroupId, OpId, Time};
use serde::Serialize;

/// How long a read may have to wait for its first byte, in modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// If everything goes as fast as it can, and nothing else comes between.
    pub min: Duration,
    /// If all that may come between does.
    pub max: Duration,
}

/// What clients have queued in a class, as somebody sees it who wants one of its groups.
struct Ahead {
    /// What is queued for his own group takes so long.
    own: Duration,
    /// Groups that others want.
    others: u32,
    /// The longest operation of the class, known or wanted.
    longest: Duration,
}

impl Rack {
    /// How long a client's read in `group` would wait for its first byte if it were submitted now.
    pub fn forecast(&self, group: GroupId, now: Time) -> Forecast {
        let state = &self.classes[self.class_of(group).index()];
        let min = self.soonest(state, group, now) + self.spec.profile.seek;
        let max = self.latest(state, group, now).saturating_add(self.transfer_estimate(self.first_stripe_bytes()));
        Forecast { min, max: max.max(min) }
    }

    fn first_stripe_bytes(&self) -> u64 {
        u64::from(self.spec.code.data) * u64::from(self.spec.code.fragment_bytes)
    }

    /// How long an operation is in service at most: what is written is read back as well.
    fn longest_service(&self, work: &Work) -> Duration {
        let once = self.transfer_estimate(work.transfer_bytes());
        if matches!(work, Work::Write { .. } | Work::Rebuild { .. }) { once * 2 } else { once }
    }

    fn service_of(&self, op: OpId) -> Duration {
        self.ops.get(&op).map_or(Duration::ZERO, |op| self.longest_service(&op.request.work))
    }

    /// The longest that waking a group takes, and that putting one to sleep does.
    fn longest_switch(&self) -> (Duration, Duration) {
        let profile = &self.spec.profile;
        let wake = profile.spin_up.max + profile.mount.max.max(profile.mount_busy.max);
        (wake, profile.unmount.max + profile.spin_down.max)
    }

    /// Nothing more comes, and everything goes as fast as it can.
    fn soonest(&self, state: &ClassState, group: GroupId, now: Time) -> Duration {
        let profile = &self.spec.profile;
        let wake = profile.spin_up.min + profile.mount.min;
        let rest = profile.unmount.min + profile.spin_down.min;
        let woken_for = state.switch.map_or(Duration::ZERO, |(since, _)| now.since(since));
        let until_ready = match state.phase {
            ClassPhase::Awake { group: awake, .. } if awake == group => Duration::ZERO,
            ClassPhase::Waking { group: waking, .. } if waking == group => wake.saturating_sub(woken_for),
            ClassPhase::Asleep | ClassPhase::Resting { .. } => wake,
            ClassPhase::Waking { .. } => wake.saturating_sub(woken_for) + rest + wake,
            ClassPhase::Awake { .. } => rest + wake,
        };
        let in_service = state.in_service.map_or(Duration::ZERO, |service| {
            let bytes = self.ops.get(&service.op).map_or(0, |op| op.request.work.transfer_bytes());
            self.transfer_estimate(bytes).saturating_sub(now.since(service.since))
        });
        // Of clients, what is queued for its own group goes first in any case. What is queued for others may be passed
        // if the group is awake, or wakes for another lane, or the read is overdue.
        let once = |op: OpId| self.ops.get(&op).map_or(0, |op| op.request.work.transfer_bytes());
        let queued = state.queues.queued_in(Lane::Client).filter(|item| item.group == group);
        let own: Duration = queued.map(|item| self.transfer_estimate(once(item.op))).sum();
        let pending = state.pending.as_ref().map_or(Duration::ZERO, |pick| self.transfer_estimate(once(pick.op)));
        until_ready + in_service + pending + own
    }

    /// What is queued by clients, for one who wants `group`.
    fn ahead(&self, state: &ClassState, group: GroupId) -> Ahead {
        let known = [state.in_service.map(|service| service.op), state.pending.as_ref().map(|pick| pick.op)];
        let longest = known.into_iter().flatten().map(|op| self.service_of(op)).max().unwrap_or_default();
        let mut ahead = Ahead { own: Duration::ZERO, others: 0, longest };
        let mut others: Vec<GroupId> = Vec::new();
        for item in Lane::ALL.into_iter().flat_map(|lane| state.queues.queued_in(lane)) {
            ahead.longest = ahead.longest.max(self.service_of(item.op));
        }
        for item in state.queues.queued_in(Lane::Client) {
            if item.group == group {
                ahead.own += self.service_of(item.op);
            } else if !others.contains(&item.group) {
                others.push(item.group);
            }
        }
        ahead.others = others.len() as u32;
        ahead
    }

    /// All that may come between does.
    fn latest(&self, state: &ClassState, group: GroupId, now: Time) -> Duration {
        let (wake, rest) = self.longest_switch();
        let switch = wake + rest;
        let ahead = self.ahead(state, group);
        let reclaims = self.layout.groups.iter().zip(&self.doomed).any(|(of, doomed)| {
            *doomed > 0 && self.classes.get(of.class.index()).is_some_and(|class| core::ptr::eq(class, state))
        });
        let reclaiming = if reclaims { self.policy.scheduler.quantum + ahead.longest } else { Duration::ZERO };
        let overtakable = ahead.others > 0 || self.may_be_joined(state, group);
        // From rest, the first switch is a wake.
        let at_rest = state.pending.is_none() && Self::group_up(state).is_none();
        let in_order = self
            .under_way(state, now)
            .saturating_add(self.in_order(state, group))
            .saturating_add((switch + reclaiming).saturating_mul(self.switches_ahead(state, group)))
            .saturating_sub(if at_rest { rest } else { Duration::ZERO });
        let alone = match self.policy.scheduler.wait_limit {
            _ if !overtakable => in_order,
            None => in_order.saturating_add(self.overtaking(&ahead)),
            Some(limit) => limit.saturating_add(self.overdue(&ahead, switch, reclaiming)),
        };
        self.beside_others(state, alone, ahead.longest + switch)
    }

    /// What is under way comes to its end.
    fn under_way(&self, state: &ClassState, now: Time) -> Duration {
        let (wake, rest) = self.longest_switch();
        let switching = match state.phase {
            ClassPhase::Waking { .. } => wake,
            ClassPhase::Resting { .. } => rest,
            ClassPhase::Asleep | ClassPhase::Awake { .. } => Duration::ZERO,
        };
        let pending = state.pending.as_ref().map_or(Duration::ZERO, |pick| self.service_of(pick.op));
        // A pending operation whose group is not up yet waits for a switch of its own.
        let up = matches!(state.phase, ClassPhase::Waking { group, .. } | ClassPhase::Awake { group, .. }
            if state.pending.as_ref().is_none_or(|pick| pick.group == group));
        let for_pending = if state.pending.is_some() && !up { rest + wake } else { Duration::ZERO };
        let in_service = state
            .in_service
            .map_or(Duration::ZERO, |service| self.service_of(service.op).saturating_sub(now.since(service.since)));
        switching + for_pending + pending + in_service
    }

    /// What lies before a new operation of `group` takes so long, switches aside.
    fn in_order(&self, state: &ClassState, group: GroupId) -> Duration {
        let ahead = state.queues.ahead_of_new(Lane::Client, group, 0, self.policy.scheduler.overtake_limit);
        state.queues.queued_in(Lane::Client).take(ahead.operations).map(|item| self.service_of(item.op)).sum()
    }

    /// Switches from the group that is up, or is about to be, to `group`, as things are queued now.
    fn switches_ahead(&self, state: &ClassState, group: GroupId) -> u32 {
        let ahead = state.queues.ahead_of_new(Lane::Client, group, 0, self.policy.scheduler.overtake_limit);
        let first = if ahead.operations > 0 { state.queues.head(Lane::Client).map(|head| head.group) } else { None };
        let leaves = Self::group_up(state) != Some(first.unwrap_or(group));
        u32::try_from(ahead.group_switches).unwrap_or(u32::MAX).saturating_add(u32::from(leaves))
    }

    /// The group that is up, or is going to be.
    fn group_up(state: &ClassState) -> Option<GroupId> {
        let pending = state.pending.as_ref().map(|pick| pick.group);
        pending.or(match state.phase {
            ClassPhase::Waking { group, .. } | ClassPhase::Awake { group, .. } => Some(group),
            ClassPhase::Resting { .. } | ClassPhase::Asleep => None,
        })
    }

    /// Whether an operation that comes later may join a group that is up already, and is not `group`.
    fn may_be_joined(&self, state: &ClassState, group: GroupId) -> bool {
        let busy = state.in_service.is_some() || state.pending.is_some() || !state.queues.is_empty();
        self.policy.scheduler.join_in_service && busy && Self::group_up(state).is_some_and(|up| up != group)
    }

    /// What may overtake it by u.
    fn overtaking(&self, ahead: &Ahead) -> Duration {
        let u = self.policy.scheduler.overtake_limit;
        match self.policy.scheduler.weighing {
            Weighing::Bytes => self.transfer_estimate(u),
            Weighing::Time => Duration::from_millis(u),
            Weighing::Operations => ahead.longest.saturating_mul(u32::try_from(u).unwrap_or(u32::MAX)),
        }
    }

    /// How long it still takes from the moment at which it is overdue.
    fn overdue(&self, ahead: &Ahead, switch: Duration, reclaiming: Duration) -> Duration {
        let quantum = self.policy.scheduler.quantum;
        let visit = (switch + quantum + ahead.longest * 2).saturating_add(reclaiming);
        let round = visit.saturating_mul(1 + ahead.others);
        let rounds = u32::try_from(ahead.own.as_nanos() / quantum.as_nanos().max(1)).unwrap_or(u32::MAX);
        round.saturating_mul(rounds.saturating_add(1)).saturating_add(switch + reclaiming).saturating_add(ahead.own)
    }

    /// What takes the clients so long takes longer beside other lanes that have work (see [`crate::fair`], "No
    /// starvation").
    fn beside_others(&self, state: &ClassState, alone: Duration, longest: Duration) -> Duration {
        let shares = self.policy.scheduler.shares;
        let lead = self.policy.scheduler.quantum + longest * 2;
        let busy = |lane: &Lane| *lane != Lane::Client && state.queues.lane_len(*lane) > 0;
        let others = Lane::ALL.into_iter().filter(busy).map(|lane| {
            let own = alone.saturating_add(lead).saturating_mul(shares.of(lane)) / shares.client.max(1);
            own.saturating_add(lead)
        });
        let others: Duration = others.fold(Duration::ZERO, Duration::saturating_add);
        if others.is_zero() { alone } else { alone.saturating_add(lead).saturating_add(others) }
    }
}
