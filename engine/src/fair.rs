//! The queues of one class and the choice of the next operation: weighted fair queuing between clients, rebuild and
//! background work.
//!
//! Pelican, section 3, puts weighted fair queuing between its queues and does not state what is charged. Here:
//! - Shares are of the class's time. A priority class's *virtual time* is the time it was charged over its share; the
//!   priority class that is furthest behind goes next. A priority class that was idle starts level with the others:
//!   idleness is no credit (start-time fair queuing; Goyal, Vin, Cheng 1996).
//! - A *turn* lasts while the priority class's next operation is in the awake group (a batch), but no longer than a
//!   quantum, not counting switches. Priority classes alternate between turns, not between operations, so that batches
//!   stay whole.
//! - Waking a group is charged to the priority class whose operation wants it. Before a turn ends for lack of work in
//!   the awake group, other priority classes' work for that group is *piggybacked*, charged for its transfer only:
//!   within the turn's quantum, within the overtaking bound of its own queue, and by a priority class that is ahead by
//!   less than its own quantum.
//! - Within its turn, the class may wait for a short time (`anticipation`) for a priority class that has nothing
//!   queued, if no other priority class has work for the awake group: otherwise a client that sends one operation after
//!   the other would get only one per switch.
//! - A client's operation that has waited for `wait_limit` is *overdue*. While there are overdue operations, their
//!   priority class serves only these in its turns: in rounds it visits each group that has overdue operations, the one
//!   with the longest overdue operation first, and serves them for a quantum and the operation that overruns it. So the
//!   groups are still woken for batches, for any amount of overdue work. The priority class gets as many turns as
//!   without a limit. Beyond the paper.
//! - Except for that short wait, an operation is chosen whenever there is work. A share of 0 is served (and
//!   piggybacked) only while no priority class with a share has work.
//!
//! **No starvation.** Let Q be the quantum and C the longest that one operation takes, switch included. A priority
//! class of share s > 0 is at most (Q + 2 C) / s of virtual time ahead of the priority class furthest behind: at the
//! start of its turn it is not ahead at all, and a turn holds a switch, a quantum, waits included, and the one
//! operation that overruns it. So let W be the class's time that a priority class itself needs before it reaches an
//! operation: that of everything it had queued when the operation arrived, and of u more. Then the operation starts
//! within `W + (Q + 2 C) + sum over the other priority classes of (s'/s (W + Q + 2 C) + Q + 2 C)`.
//!
//! **The limit in time.** W is bounded by u, which is a weak bound in time if u is large. With a wait limit L it is at
//! most `L + V + sum over the other groups of the priority class of V + S`, with V = S + Q + 2 C a visit and S a
//! switch, if nothing of the operation's own group was queued before it: at L it is overdue; the current visit, or the
//! operation in service, ends; a round visits every group before it visits one again, and from then on first the groups
//! with operations that are overdue longer. Operations queued before it for its own group go first. Each quantum of
//! these, or part of one, costs one more round, also through groups that arrived later: its group may just have been
//! visited for the earlier operations. Other priority classes take, as above, what their shares grant of the time
//! beyond L.
//!
//! Invariants: virtual times never fall; the floor is never above that of a priority class with work; arithmetic is in
//! integers.

#[cfg(test)]
mod tests;

use crate::policy::{PriorityClass, SchedulerPolicy};
use crate::reorder::{Ahead, QueueFull, Queued, ReorderQueue};
use alloc::vec::Vec;
use core::time::Duration;
use model::{GroupId, OpId, Time};

/// Virtual time is in 2^-20 ns over one unit of share, so that dividing by a share loses nothing that adds up.
const FRACTION_BITS: u32 = 20;

const _: () = assert!(Duration::MAX.as_nanos().leading_zeros() > FRACTION_BITS, "any span is a virtual time");

/// The operation to serve next. It has left its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The number of the operation.
    pub op: OpId,
    /// The priority class in which it was queued, and to which its time is charged.
    pub priority: PriorityClass,
    /// The group it needs. If another one is awake, the class switches, and the switch is charged to `priority`.
    pub group: GroupId,
    /// Its weight, as it was admitted.
    pub weight: u64,
    /// True if it is served in another priority class's turn, because its group is awake.
    pub piggyback: bool,
}

/// A priority class's stay in the class.
#[derive(Clone, Copy)]
struct Turn {
    priority: PriorityClass,
    since: Time,
    /// Time of switches since then, which do not count against the quantum.
    switching: Duration,
}

struct PriorityState {
    queue: ReorderQueue,
    share: u32,
    virtual_time: u128,
    visits: Visits,
}

/// The round in which a priority class visits the groups that have overdue operations.
#[derive(Default)]
struct Visits {
    /// The groups that were visited in this round; the visit of the last one may still continue.
    round: Vec<GroupId>,
    /// The time at which the first operation of the visit had been served.
    since: Option<Time>,
}

impl Visits {
    /// The group whose overdue operations are served next; `None` if no operation is overdue.
    fn group(&mut self, queue: &ReorderQueue, now: Time, awake: Option<GroupId>, quantum: Duration) -> Option<GroupId> {
        if let Some(current) = self.round.last().copied().filter(|current| awake == Some(*current))
            && queue.is_overdue(current, now)
            && now.since(*self.since.get_or_insert(now)) < quantum
        {
            return Some(current);
        }
        self.since = None;
        let next = queue.overdue_group(now, &self.round).or_else(|| {
            self.round.clear();
            queue.overdue_group(now, &[])
        })?;
        assert!(!self.round.contains(&next), "a round comes to {next} once");
        assert!(queue.is_overdue(next, now), "something is overdue in {next}");
        self.round.push(next);
        Some(next)
    }
}

/// The queues of one class. See the head of this file.
pub struct FairQueues {
    priorities: [PriorityState; 3],
    turn: Option<Turn>,
    /// The virtual time from which a priority class starts after it was idle: for priority classes without a share, and
    /// for those with one.
    floors: [u128; 2],
    join_in_service: bool,
    quantum: Duration,
}

impl FairQueues {
    /// Empty queues under `policy`; its depth is that of each priority class.
    pub fn new(policy: &SchedulerPolicy) -> Self {
        let priority = |priority| PriorityState {
            queue: ReorderQueue::new(policy.queue_depth),
            share: policy.shares.of(priority),
            virtual_time: 0,
            visits: Visits::default(),
        };
        Self {
            priorities: PriorityClass::ALL.map(priority),
            turn: None,
            floors: [0; 2],
            join_in_service: policy.join_in_service,
            quantum: policy.quantum,
        }
    }

    /// Queues an operation in `priority`. Its number must not be queued already.
    ///
    /// # Errors
    /// [`QueueFull`] if the priority class has the maximum number of operations; nothing has changed then.
    pub fn push(&mut self, priority: PriorityClass, item: Queued) -> Result<(), QueueFull> {
        assert!(!self.priorities.iter().any(|state| state.queue.contains(item.op)), "{} is queued already", item.op);
        let floor = self.floors[self.tier_of(priority)];
        let state = &mut self.priorities[priority as usize];
        let idle = state.queue.is_empty();
        state.queue.push(item)?;
        if idle {
            state.virtual_time = state.virtual_time.max(floor);
        }
        assert!(state.virtual_time >= floor, "idleness is no credit");
        Ok(())
    }

    /// True if `priority` has the maximum number of operations.
    pub fn is_full(&self, priority: PriorityClass) -> bool {
        self.priorities[priority as usize].queue.is_full()
    }

    /// Chooses the operation to serve next and takes it out of its queue; `awake` is the group that needs no switch. To
    /// be called when no operation is in service, after the last one has been charged.
    pub fn next(&mut self, now: Time, awake: Option<GroupId>) -> Option<Pick> {
        let tier = self.tier_with_work()?;
        if let Some(group) = awake
            && let Some(turn) = self.turn.filter(|turn| self.lasts(turn, now))
            && let Some(pick) = self
                .visit(turn.priority, tier, now, awake)
                .or_else(|| self.go_on(turn.priority, tier, group))
                .or_else(|| self.piggyback(turn.priority, tier, group))
        {
            return Some(pick);
        }
        let priority = self.furthest_behind(tier)?;
        assert!(self.has_work(priority, tier), "the turn goes to a priority that has work");
        assert!(
            self.floors[tier] <= self.priorities[priority as usize].virtual_time,
            "no priority with work lies below the floor"
        );
        self.floors[tier] = self.priorities[priority as usize].virtual_time;
        self.turn = Some(Turn { priority, since: now, switching: Duration::ZERO });
        if let Some(pick) = self.visit(priority, tier, now, awake) {
            return Some(pick);
        }
        let joined = awake.filter(|_| self.join_in_service).and_then(|group| self.pop_of_group(priority, group));
        let item = joined.or_else(|| self.priorities[priority as usize].queue.pop())?;
        assert!(!self.priorities[priority as usize].queue.contains(item.op), "{} is no longer queued", item.op);
        Some(pick(priority, &item, false))
    }

    /// True if the priority class that has the turn has nothing queued and could continue in the group `awake` if it
    /// had, while all queued operations want other groups.
    pub fn may_be_waited_for(&self, now: Time, awake: GroupId) -> bool {
        let out_of_work =
            |turn: Turn| self.lasts(&turn, now) && self.priorities[turn.priority as usize].queue.is_empty();
        self.turn.is_some_and(out_of_work) && self.queued_for(awake) == 0
    }

    /// The time at which the first queued operation will be overdue, or became so.
    pub fn first_due(&self) -> Time {
        self.priorities.iter().map(|priority| priority.queue.first_due()).min().unwrap_or(Time::MAX)
    }

    /// All queued operations of `priority`, in the order of service.
    pub fn queued_in(&self, priority: PriorityClass) -> impl Iterator<Item = Queued> {
        self.priorities[priority as usize].queue.iter().map(|(item, _)| item)
    }

    /// Charges `priority` for the time that an operation of it took.
    pub fn charge_transfer(&mut self, priority: PriorityClass, span: Duration) {
        let state = &mut self.priorities[priority as usize];
        state.virtual_time += virtual_span(span, state.share);
    }

    /// Charges `priority` for waking a group that its operation wanted.
    pub fn charge_switch(&mut self, priority: PriorityClass, span: Duration) {
        self.charge_transfer(priority, span);
        if let Some(turn) = &mut self.turn {
            turn.switching += span;
        }
    }

    /// Removes `op` from the priority class in which it is queued.
    pub fn remove(&mut self, op: OpId) -> Option<Queued> {
        let removed = self.priorities.iter_mut().find_map(|priority| priority.queue.remove(op));
        assert!(!self.priorities.iter().any(|priority| priority.queue.contains(op)), "{op} was queued once");
        removed
    }

    /// True if nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.priorities.iter().all(|priority| priority.queue.is_empty())
    }

    /// The operation that would be served next in `priority`.
    pub fn head(&self, priority: PriorityClass) -> Option<Queued> {
        self.priorities[priority as usize].queue.head()
    }

    /// The number of operations queued in `priority`.
    pub fn queue_len(&self, priority: PriorityClass) -> usize {
        self.priorities[priority as usize].queue.len()
    }

    /// The number of operations of `group` that are queued, in all priority classes.
    pub fn queued_for(&self, group: GroupId) -> usize {
        self.priorities.iter().map(|priority| priority.queue.len_of_group(group)).sum()
    }

    /// The operations that would be before a new one in its own priority class, if it were queued there now.
    pub fn ahead_of_new(&self, priority: PriorityClass, group: GroupId, weight: u64) -> Ahead {
        self.priorities[priority as usize].queue.ahead_of_new(group, weight)
    }

    /// The priority class in which `op` is queued, and the operations before it there.
    pub fn ahead_of(&self, op: OpId) -> Option<(PriorityClass, Ahead)> {
        PriorityClass::ALL
            .into_iter()
            .find_map(|priority| Some((priority, self.priorities[priority as usize].queue.ahead_of(op)?)))
    }

    fn tier_of(&self, priority: PriorityClass) -> usize {
        usize::from(self.priorities[priority as usize].share > 0)
    }

    fn has_work(&self, priority: PriorityClass, tier: usize) -> bool {
        self.tier_of(priority) == tier && !self.priorities[priority as usize].queue.is_empty()
    }

    /// The priority classes to choose from: those with a share if one of them has work, otherwise those without.
    fn tier_with_work(&self) -> Option<usize> {
        [1, 0].into_iter().find(|tier| PriorityClass::ALL.into_iter().any(|priority| self.has_work(priority, *tier)))
    }

    fn furthest_behind(&self, tier: usize) -> Option<PriorityClass> {
        let waiting = PriorityClass::ALL.into_iter().filter(|priority| self.has_work(*priority, tier));
        waiting.min_by_key(|priority| (self.priorities[*priority as usize].virtual_time, *priority))
    }

    fn lasts(&self, turn: &Turn, now: Time) -> bool {
        assert!(turn.since <= now, "a turn has begun");
        now.since(turn.since).saturating_sub(turn.switching) < self.quantum
    }

    /// The next overdue operation of the priority class that has the turn, in any group.
    fn visit(&mut self, priority: PriorityClass, tier: usize, now: Time, awake: Option<GroupId>) -> Option<Pick> {
        if !self.has_work(priority, tier) {
            return None;
        }
        let PriorityState { queue, visits, .. } = &mut self.priorities[priority as usize];
        let group = visits.group(queue, now, awake, self.quantum)?;
        let item = queue.pop_overdue(group)?;
        assert!(item.due <= now, "{} is overdue", item.op);
        Some(pick(priority, &item, false))
    }

    /// The next operation of the priority class that has the turn, if it is in the awake group.
    fn go_on(&mut self, priority: PriorityClass, tier: usize, awake: GroupId) -> Option<Pick> {
        if !self.has_work(priority, tier) {
            return None;
        }
        let joined = if self.join_in_service { self.pop_of_group(priority, awake) } else { None };
        let queue = &mut self.priorities[priority as usize].queue;
        let item = joined.or_else(|| queue.head().filter(|head| head.group == awake).and_then(|_| queue.pop()))?;
        assert!(item.group == awake, "a turn goes on in the group that is awake");
        Some(pick(priority, &item, false))
    }

    /// Work of another priority class for the awake group, if that priority class is not too far ahead; the one
    /// furthest behind comes first.
    fn piggyback(&mut self, host: PriorityClass, tier: usize, awake: GroupId) -> Option<Pick> {
        let behind = self.priorities[self.furthest_behind(tier)? as usize].virtual_time;
        let mut others = PriorityClass::ALL;
        others.sort_unstable_by_key(|priority| (self.priorities[*priority as usize].virtual_time, *priority));
        for priority in others.into_iter().filter(|priority| *priority != host) {
            let state = &self.priorities[priority as usize];
            let lead = state.virtual_time.saturating_sub(behind);
            if self.has_work(priority, tier)
                && lead < virtual_span(self.quantum, state.share)
                && let Some(item) = self.pop_of_group(priority, awake)
            {
                assert!(item.group == awake, "only work for the group awake is piggybacked");
                return Some(pick(priority, &item, true));
            }
        }
        None
    }

    fn pop_of_group(&mut self, priority: PriorityClass, group: GroupId) -> Option<Queued> {
        self.priorities[priority as usize].queue.pop_of_group(group)
    }
}

fn pick(priority: PriorityClass, item: &Queued, piggyback: bool) -> Pick {
    Pick { op: item.op, priority, group: item.group, weight: item.weight, piggyback }
}

/// The virtual time that `span` takes in a priority class of this share. Priority classes without a share are equals
/// among themselves.
fn virtual_span(span: Duration, share: u32) -> u128 {
    (span.as_nanos() << FRACTION_BITS) / u128::from(share.max(1))
}
