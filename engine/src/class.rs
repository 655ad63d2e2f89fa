//! A class: the group that is up, the operations queued for its groups, and the one operation in service.
//!
//! ```text
//!            work                permits, spin-up, mount of the slowest
//!   Asleep --------> Waking ------------------------------------------> Awake
//!     ^                                                                   | another group is wanted,
//!     |                    unmount, stop                                  | or idle for long enough
//!     +---------------- Resting <-----------------------------------------+
//! ```
//! A class leaves Awake only when nothing is in service, which is the drain.
//!
//! Invariants:
//! - one operation in service, and only while a group is awake;
//! - one group is out of Asleep at a time;
//! - a switch is charged once, to the priority class whose operation wanted it.

use crate::fair::{FairQueues, Pick};
use crate::overload::Overload;
use crate::policy::{IdleTimeout, PriorityClass, SchedulerPolicy};
use crate::reorder::{QueueFull, Queued};
use core::time::Duration;
use model::{GroupId, OpId, Time};
use serde::Serialize;

/// The phase of a class. One group of it is out of [`ClassPhase::Asleep`] at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassPhase {
    /// All its groups sleep.
    Asleep,
    /// A group gets ready: permits, spin-up, mount of its slowest member.
    Waking {
        /// Which group.
        group: GroupId,
        /// The group gets ready without members that are not ready by then.
        until: Time,
    },
    /// A group is ready.
    Awake {
        /// Which group.
        group: GroupId,
        /// The time since which it has had no work; `None` while it has work.
        idle_since: Option<Time>,
    },
    /// A group unmounts and stops.
    Resting {
        /// Which group.
        group: GroupId,
        /// The class gives up on members that have not answered by then.
        until: Time,
    },
}

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// Platters stopped.
    Asleep,
    /// Getting ready.
    Waking,
    /// Ready and serving.
    Busy,
    /// Ready, without work.
    Idle,
    /// Unmounting and stopping.
    Resting,
}

impl GroupState {
    /// Its name, for people and for programs that read the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Asleep => "asleep",
            Self::Waking => "waking",
            Self::Busy => "busy",
            Self::Idle => "idle",
            Self::Resting => "resting",
        }
    }
}

/// A class at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassView {
    /// Its phase.
    pub phase: ClassPhase,
    /// The operation in service.
    pub in_service: Option<OpId>,
    /// Operations queued in each priority class, in the order of [`PriorityClass::ALL`].
    pub queued: [usize; 3],
}

/// The operation that moves bytes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InService {
    pub op: OpId,
    pub priority: PriorityClass,
    pub since: Time,
}

/// A switch to another group: its beginning, and the priority class that it is charged to.
#[derive(Clone, Copy)]
pub(crate) struct Switch {
    pub since: Time,
    pub priority: PriorityClass,
}

/// One class. See the head of this file.
pub(crate) struct Class {
    /// Other modules only read this and the other fields; they are changed here alone.
    pub phase: ClassPhase,
    pub queues: FairQueues,
    overload: Overload,
    /// Dequeued; its group is being woken for it.
    pub pending: Option<Pick>,
    /// When the last operation was dequeued.
    pub picked_at: Time,
    /// When the last operation left service.
    served_until: Time,
    /// Set while operations of other groups wait: until then at most, the class stays with its group for more of its
    /// work.
    anticipates_until: Option<Time>,
    pub in_service: Option<InService>,
    /// Members of the group that wakes or is awake were lost and came back; they do not spin.
    pub returned: bool,
    /// The switch under way.
    pub switch: Option<Switch>,
    /// When the wake or rest under way began, if the whole group wakes or rests.
    pub moving_since: Option<Time>,
    /// When the awake group became ready.
    pub ready_at: Time,
    /// The awake group does not go to sleep before then for idleness alone.
    stays_until: Time,
    /// Another group waits for permits that the idle group holds.
    pub is_hastened: bool,
}

impl Class {
    pub fn new(policy: &SchedulerPolicy) -> Self {
        Self {
            phase: ClassPhase::Asleep,
            queues: FairQueues::new(policy),
            overload: Overload::new(policy),
            pending: None,
            picked_at: Time::ZERO,
            served_until: Time::ZERO,
            anticipates_until: None,
            in_service: None,
            returned: false,
            switch: None,
            moving_since: None,
            ready_at: Time::ZERO,
            stays_until: Time::ZERO,
            is_hastened: false,
        }
    }

    /// The service of `op`; `None` if it is not in service.
    pub fn serves(&self, op: OpId) -> Option<InService> {
        self.in_service.filter(|service| service.op == op)
    }

    /// The group that is awake.
    pub fn awake(&self) -> Option<GroupId> {
        if let ClassPhase::Awake { group, .. } = self.phase { Some(group) } else { None }
    }

    /// The group that is awake, or on its way to be.
    pub fn up(&self) -> Option<GroupId> {
        match self.phase {
            ClassPhase::Waking { group, .. } | ClassPhase::Awake { group, .. } => Some(group),
            ClassPhase::Asleep | ClassPhase::Resting { .. } => None,
        }
    }

    pub fn view(&self) -> ClassView {
        // A pending operation is dequeued while its group still wakes; the view shows it as queued.
        assert!(self.in_service.is_none() || self.awake().is_some(), "only a group that is awake serves");
        let waits_for_wake = |priority| self.pending.as_ref().is_some_and(|pick| pick.priority == priority);
        ClassView {
            phase: self.phase,
            in_service: self.in_service.map(|service| service.op),
            queued: PriorityClass::ALL
                .map(|priority| self.queues.queue_len(priority) + usize::from(waits_for_wake(priority))),
        }
    }

    /// The state of `group`, one of this class.
    pub fn group_state(&self, group: GroupId) -> GroupState {
        match self.phase {
            ClassPhase::Waking { group: waking, .. } if waking == group => GroupState::Waking,
            ClassPhase::Awake { group: awake, idle_since } if awake == group => {
                let busy = idle_since.is_none() || self.in_service.is_some();
                if busy { GroupState::Busy } else { GroupState::Idle }
            }
            ClassPhase::Resting { group: resting, .. } if resting == group => GroupState::Resting,
            _ => GroupState::Asleep,
        }
    }

    /// True if an operation is queued, waits for its group, or is in service.
    pub fn has_work(&self) -> bool {
        self.in_service.is_some() || self.pending.is_some() || !self.queues.is_empty()
    }

    /// True if a client's operation is queued, waits for its group, or is in service.
    pub fn has_client(&self) -> bool {
        self.queues.queue_len(PriorityClass::Client) > 0
            || self.pending.as_ref().is_some_and(|pick| pick.priority == PriorityClass::Client)
            || self.in_service.is_some_and(|service| service.priority == PriorityClass::Client)
    }

    /// When the class is to be advanced if nothing happens before; [`Time::MAX`] is never.
    pub fn deadline(&self, idle_timeout: IdleTimeout) -> Time {
        match self.phase {
            ClassPhase::Asleep => Time::MAX,
            ClassPhase::Waking { until, .. } | ClassPhase::Resting { until, .. } => until,
            ClassPhase::Awake { .. } if let Some(until) = self.anticipates_until => until,
            ClassPhase::Awake { idle_since, .. } => match (idle_since, idle_timeout) {
                (Some(since), IdleTimeout::After(timeout)) if self.in_service.is_none() => {
                    (since + timeout).max(self.stays_until)
                }
                _ => Time::MAX,
            },
        }
    }

    /// Queues an operation.
    pub fn push(&mut self, priority: PriorityClass, mut item: Queued) -> Result<(), QueueFull> {
        if priority == PriorityClass::Client {
            item = self.overload.admit(item, self.queues.queue_len(priority))?;
        }
        self.queues.push(priority, item)
    }

    /// Takes `op` out of its queue, if it is queued.
    pub fn remove(&mut self, op: OpId) -> bool {
        self.queues.remove(op).is_some()
    }

    /// Removes an operation that is not in service: the pending one or a queued one. False if it is neither.
    pub fn give_up(&mut self, op: OpId) -> bool {
        if self.pending.is_some_and(|pick| pick.op == op) {
            return self.give_up_pending().is_some();
        }
        self.remove(op)
    }

    /// The group and priority class of the operation to serve next: of the pending one, or else of one that is dequeued
    /// now and becomes pending.
    pub fn pick(&mut self, now: Time, awake: Option<GroupId>) -> Option<(GroupId, PriorityClass)> {
        assert!(self.in_service.is_none(), "nothing is in service when the next operation is chosen");
        if self.pending.is_none() {
            self.pending = self.queues.next(now, awake);
            self.picked_at = now;
        }
        self.pending.as_ref().map(|pick| (pick.group, pick.priority))
    }

    /// Takes the pending operation, to serve it or to give it up.
    pub fn take_pending(&mut self) -> Option<Pick> {
        self.pending.take()
    }

    /// Gives up the pending operation. Its switch is cancelled, so no priority class is charged for it.
    pub fn give_up_pending(&mut self) -> Option<Pick> {
        assert!(self.in_service.is_none(), "nothing is in service while an operation is pending");
        self.switch = None;
        self.pending.take()
    }

    /// True if the class stays with `group` for a moment although others wait, since the client that was served last
    /// may send another request.
    pub fn anticipates(&mut self, group: GroupId, now: Time, anticipation: Duration) -> bool {
        assert!(self.in_service.is_none(), "a class that serves need not wait for more");
        assert!(self.served_until <= now, "what was served is over");
        let until = (self.served_until + anticipation).min(self.queues.first_due());
        let others_wait = self.pending.is_none() && !self.queues.is_empty();
        let anticipates = others_wait && now < until && self.queues.may_be_waited_for(now, group);
        self.anticipates_until = anticipates.then_some(until);
        anticipates
    }

    /// A switch begins, unless one is under way.
    pub fn begin_switch(&mut self, priority: PriorityClass, now: Time) {
        assert!(self.in_service.is_none(), "a class drains before it switches");
        assert!(self.switch.is_none_or(|switch| switch.since <= now), "a switch under way has begun");
        self.switch.get_or_insert(Switch { since: now, priority });
    }

    /// `group` begins to wake, or to wake members that came back.
    pub fn begin_waking(&mut self, group: GroupId, now: Time, until: Time) {
        assert!(self.in_service.is_none(), "nothing is in service while a group wakes");
        assert!(self.switch.is_some(), "a wake is charged to somebody");
        let up = match self.phase {
            ClassPhase::Asleep => None,
            ClassPhase::Waking { group, .. } | ClassPhase::Awake { group, .. } | ClassPhase::Resting { group, .. } => {
                Some(group)
            }
        };
        assert!(up.is_none_or(|up| up == group), "one group of a class is awake at a time");
        self.moving_since = up.is_none().then_some(now);
        self.phase = ClassPhase::Waking { group, until };
        self.returned = false;
    }

    /// `group` is ready. The switch is charged. Returns it, if there was one, and the time that the wake took, if the
    /// whole group woke.
    pub fn ready(&mut self, group: GroupId, now: Time) -> (Option<Switch>, Option<Duration>) {
        assert!(
            matches!(self.phase, ClassPhase::Waking { group: waking, .. } if waking == group),
            "{group} was waking"
        );
        assert!(self.in_service.is_none(), "nothing is in service before {group} is ready");
        let switch = self.switch.take();
        if let Some(Switch { since, priority }) = switch {
            self.queues.charge_switch(priority, now.since(since));
        }
        (self.ready_at, self.stays_until) = (now, Time::ZERO);
        self.phase = ClassPhase::Awake { group, idle_since: None };
        (switch, self.moving_since.take().map(|since| now.since(since)))
    }

    /// The awake group has had no work since `idle_since`; `None` if it has work.
    pub fn set_idle(&mut self, idle_since: Option<Time>) {
        assert!(self.in_service.is_none(), "a class that serves is neither idle nor about to serve");
        self.is_hastened &= idle_since.is_some();
        if let ClassPhase::Awake { group, .. } = self.phase {
            self.phase = ClassPhase::Awake { group, idle_since };
        }
    }

    /// The idle group does not go to sleep before `until`.
    pub fn stay_until(&mut self, until: Time) {
        assert!(self.in_service.is_none(), "a class that serves is not idle");
        self.stays_until = until;
    }

    /// The time since which the awake group has had no work.
    pub fn idle_since(&self) -> Option<Time> {
        if let ClassPhase::Awake { idle_since, .. } = self.phase { idle_since } else { None }
    }

    /// An idle group counts as idle since `since` at the latest, so it goes to sleep sooner.
    pub fn hasten_sleep(&mut self, since: Time) {
        if let ClassPhase::Awake { idle_since: Some(idle_since), .. } = &mut self.phase {
            *idle_since = (*idle_since).min(since);
            (self.is_hastened, self.stays_until) = (true, Time::ZERO);
        }
    }

    /// `group` begins to go to sleep.
    pub fn begin_resting(&mut self, group: GroupId, now: Time, until: Time) {
        assert!(self.in_service.is_none(), "a group that serves does not go to sleep");
        assert!(self.awake().is_none_or(|awake| awake == group), "the group that is awake goes to sleep");
        self.moving_since = self.awake().is_some().then_some(now);
        self.phase = ClassPhase::Resting { group, until };
    }

    /// The group that was resting sleeps. Returns the time that the rest took, if the whole group rested.
    pub fn fall_asleep(&mut self, now: Time) -> Option<Duration> {
        assert!(matches!(self.phase, ClassPhase::Resting { .. }), "a group rests before it sleeps");
        assert!(self.in_service.is_none(), "a group that sleeps serves nothing");
        self.phase = ClassPhase::Asleep;
        self.moving_since.take().map(|since| now.since(since))
    }

    /// A drive of `group` stands by. If that group is up without it, the drive is to be started as well.
    pub fn note_standby(&mut self, group: GroupId) {
        self.returned |= self.up() == Some(group);
    }

    /// `op` enters service; if it is in service already, it begins its next request to the world.
    pub fn serve(&mut self, op: OpId, priority: PriorityClass, now: Time) {
        assert!(self.in_service.is_none_or(|service| service.op == op), "one operation in service per class");
        assert!(self.awake().is_some(), "{op} is served by a group that is awake");
        self.in_service = Some(InService { op, priority, since: now });
    }

    /// The operation leaves service. The time since its last request to the world is charged.
    pub fn leave_service(&mut self, service: InService, now: Time) {
        assert!(self.in_service == Some(service), "{} leaves service, and was in it", service.op);
        assert!(service.since <= now, "{} was begun before it ended", service.op);
        self.queues.charge_transfer(service.priority, now.since(service.since));
        self.in_service = None;
        self.served_until = now;
    }
}
