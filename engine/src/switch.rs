//! How a class moves between its groups: drain, unmount, stop, spin up, mount.
//!
//! ```text
//!            work                permits, spin-up, mount of the slowest
//!   Asleep --------> Waking ------------------------------------------> Awake
//!     ^                                                                   | another group is wanted,
//!     |                    unmount, stop                                  | or idle for long enough
//!     +---------------- Resting <-----------------------------------------+
//! ```
//! A class leaves Awake only when nothing is in service, which is the drain. All drives of a group start together;
//! where a budget of watts does not allow it, the rest follows as the first come up to speed. A member that does not
//! answer in time is done without: a blob needs k of its k + r stacks.
//!
//! Invariant: `SpinUp` is pushed only for a drive that the ledger has just granted; a permit is given back only when
//! the drive says it stands still, or is known to have no power.

use crate::action::Action;
use crate::event::Loss;
use crate::policy::{IdleTimeout, Lane};
use crate::rack::{ClassPhase, ClassState, DrivePhase, Rack};
use crate::recover::STRIKES_MAX;
use crate::service::TRIES_MAX;
use alloc::vec::Vec;
use core::time::Duration;
use model::{Attempt, ClassId, DriveId, DriveSpec, GroupId, Time};

/// Turns of [`Rack::advance_class`] that an operation may take at once.
const TURNS_PER_OP: usize = 5 * TRIES_MAX as usize + 1;

/// Transfers that may fail on a drive between two mounts before it is taken out of service.
const DRIVE_ERRORS_MAX: u32 = 3;

impl Rack {
    /// Lets `class` go on until it waits for the world.
    pub(crate) fn advance_class(&mut self, class: ClassId, now: Time, actions: &mut Vec<Action>) {
        // Each turn of the loop changes the phase, or puts an operation into service or ends it. Where every member of
        // the groups that are wanted is away, nothing is waited for, and all operations may come to their end here,
        // each after all its tries, and each on another group than the one before: four phases and a turn for every
        // try.
        for _ in 0..(self.ops.len() + 4) * TURNS_PER_OP {
            let moved = match self.classes[class.index()].phase {
                ClassPhase::Asleep => self.leave_sleep(class, now, actions),
                ClassPhase::Waking { group, until } => self.go_on_waking(class, group, until, now, actions),
                ClassPhase::Awake { group, idle_since } => self.serve(class, group, idle_since, now, actions),
                ClassPhase::Resting { group, until } => self.go_on_resting(class, group, until, now),
            };
            if !moved {
                return;
            }
        }
        panic!("a class went round without end");
    }

    pub(crate) fn class_deadline(&self, class: &ClassState) -> Time {
        match class.phase {
            ClassPhase::Asleep => Time::MAX,
            ClassPhase::Waking { until, .. } | ClassPhase::Resting { until, .. } => until,
            ClassPhase::Awake { .. } if let Some(until) = class.anticipates_until => until,
            ClassPhase::Awake { idle_since, .. } => match (idle_since, self.policy.idle_timeout) {
                (Some(since), IdleTimeout::After(timeout)) if class.in_service.is_none() => since + timeout,
                _ => Time::MAX,
            },
        }
    }

    /// Longer than any wake or rest should take: three times the slowest, and what the host may take.
    pub(crate) fn patience_with_drives(&self) -> Duration {
        let profile = &self.spec.profile;
        let slowest = profile.spin_up.max
            + profile.mount_busy.max.max(profile.mount.max)
            + profile.unmount.max
            + profile.spin_down.max;
        slowest * 3 + self.policy.host_slack
    }

    fn leave_sleep(&mut self, class: ClassId, now: Time, actions: &mut Vec<Action>) -> bool {
        let state = &mut self.classes[class.index()];
        if state.pending.is_none() {
            state.pending = state.queues.next(now, None);
            state.picked_at = now;
        }
        let Some((group, lane)) = state.pending.as_ref().map(|pick| (pick.group, pick.lane)) else {
            return false;
        };
        if !self.may_start(group, lane, now) {
            self.give_up_for_budget(class, now, actions);
            return true;
        }
        self.classes[class.index()].switch.get_or_insert((now, lane));
        if self.recover(class, group, now, actions) {
            return true;
        }
        self.begin_waking(class, group, lane, now);
        true
    }

    /// Starts the members that came back after their group had got ready, before it serves anything else: with too few
    /// of them it would refuse everything, and yet never be idle for long enough to go to sleep and wake as a whole.
    pub(crate) fn wake_returned(&mut self, class: ClassId, group: GroupId, lane: Lane, now: Time) -> bool {
        if !self.classes[class.index()].returned || !self.may_start(group, lane, now) {
            return false;
        }
        self.begin_waking(class, group, lane, now);
        true
    }

    fn begin_waking(&mut self, class: ClassId, group: GroupId, lane: Lane, now: Time) {
        let until = now + self.patience_with_drives();
        let state = &mut self.classes[class.index()];
        state.switch.get_or_insert((now, lane));
        state.phase = ClassPhase::Waking { group, until };
        state.returned = false;
        state.reclaim = crate::rack::Reclaim::default();
        for drive in self.layout.groups[group.index()].drives.clone() {
            let state = &mut self.drives[drive.index()];
            if state.phase == DrivePhase::Standby {
                state.phase = DrivePhase::AwaitingPermit;
            }
        }
    }

    pub(crate) fn may_start(&self, group: GroupId, lane: Lane, now: Time) -> bool {
        self.layout.groups[group.index()].drives.iter().all(|drive| self.budget.may_start(*drive, now, lane))
    }

    fn go_on_waking(
        &mut self,
        class: ClassId,
        group: GroupId,
        until: Time,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> bool {
        if now < until && !self.closing && self.is_getting_ready(group) {
            return false;
        }
        if !self.closing {
            self.ask_for_permits(group, now, actions);
        }
        let members = self.layout.groups[group.index()].drives.clone();
        for drive in &members {
            let in_vain = self.waits_in_vain(group, *drive);
            if now >= until || in_vain {
                self.do_without(*drive, in_vain, now);
            }
        }
        self.make_room(class, &members, now);
        if self.closing && !members.iter().any(|drive| self.is_moving(*drive)) {
            self.rest(class, group, now, actions);
            return true;
        }
        let getting_ready = |drive: &DriveId| {
            matches!(
                self.drives[drive.index()].phase,
                DrivePhase::AwaitingPermit | DrivePhase::SpinningUp | DrivePhase::Mounting
            )
        };
        if members.iter().any(getting_ready) {
            return false;
        }
        self.ready(class, group, now, actions);
        true
    }

    /// Whether members of `group` are on their way, and none of them waits for a permit: there is nothing to do but
    /// wait. By far the most events find a waking class like this.
    pub(crate) fn is_getting_ready(&self, group: GroupId) -> bool {
        let mut moving = false;
        for drive in &self.layout.groups[group.index()].drives {
            match self.drives[drive.index()].phase {
                DrivePhase::AwaitingPermit => return false,
                DrivePhase::SpinningUp | DrivePhase::Mounting => moving = true,
                _ => {}
            }
        }
        moving
    }

    /// Whether `drive`, a member of `group`, waits for a permit that nobody will give back: those of some domain are
    /// held by lost drives and by other members.
    fn waits_in_vain(&self, group: GroupId, drive: DriveId) -> bool {
        if self.drives[drive.index()].phase != DrivePhase::AwaitingPermit {
            return false;
        }
        let members = &self.layout.groups[group.index()].drives;
        self.ledger.blocking(drive).any(|(resource, domain)| {
            let may_give_back = |other: &DriveSpec| {
                let state = &self.drives[other.id.index()];
                let lost = matches!(state.phase, DrivePhase::Away(_));
                // A member that has come up to speed draws less than before.
                let stays = members.contains(&other.id) && state.phase != DrivePhase::SpinningUp;
                state.permitted && !lost && !stays && self.spec.domain_of(other.id, resource) == domain
            };
            !self.spec.drives.iter().any(may_give_back)
        })
    }

    fn is_moving(&self, drive: DriveId) -> bool {
        matches!(self.drives[drive.index()].phase, DrivePhase::SpinningUp | DrivePhase::Mounting)
    }

    /// Starts as many waiting members as the ledger grants now.
    fn ask_for_permits(&mut self, group: GroupId, now: Time, actions: &mut Vec<Action>) {
        let waiting: Vec<DriveId> = self.layout.groups[group.index()]
            .drives
            .iter()
            .copied()
            .filter(|drive| self.drives[drive.index()].phase == DrivePhase::AwaitingPermit)
            .collect();
        if waiting.is_empty() {
            return;
        }
        for drive in self.ledger.request(&waiting) {
            let (day, starts) = self.budget.record(drive, now);
            actions.push(Action::PersistStarts { drive, day, starts });
            self.drives[drive.index()].permitted = true;
            self.stats.drive_starts += 1;
            let attempt = self.command(drive, DrivePhase::SpinningUp);
            actions.push(Action::SpinUp { drive, attempt });
        }
    }

    /// A class that has nothing to do does not hold on to permits that members of another one's group wait for.
    fn make_room(&mut self, waiting: ClassId, members: &[DriveId], now: Time) {
        let IdleTimeout::After(timeout) = self.policy.idle_timeout else { return };
        let awaiting = members.iter().filter(|drive| self.drives[drive.index()].phase == DrivePhase::AwaitingPermit);
        let blocking: Vec<_> = awaiting.flat_map(|drive| self.ledger.blocking(*drive)).collect();
        for (index, class) in self.classes.iter_mut().enumerate() {
            let ClassPhase::Awake { group, idle_since: Some(since) } = &mut class.phase else { continue };
            let holds = |drive: &DriveId| {
                let held = |(resource, domain): &(_, _)| self.spec.domain_of(*drive, *resource) == *domain;
                self.drives[drive.index()].permitted && blocking.iter().any(held)
            };
            if index != waiting.index() && self.layout.groups[group.index()].drives.iter().any(holds) {
                *since = (*since).min(now - timeout);
            }
        }
    }

    fn do_without(&mut self, drive: DriveId, in_vain: bool, now: Time) {
        let phase = self.drives[drive.index()].phase;
        match phase {
            DrivePhase::AwaitingPermit => {
                self.drives[drive.index()].phase = DrivePhase::Standby;
                if in_vain {
                    self.placement.set_away(drive, true);
                    self.unpermitted.retain(|other| *other != drive);
                    self.unpermitted.push(drive);
                }
            }
            DrivePhase::SpinningUp | DrivePhase::Mounting => {
                self.count_missed_deadline(drive);
                self.give_up(drive, Loss::SpinUpFailed, now);
            }
            _ => {}
        }
    }

    fn ready(&mut self, class: ClassId, group: GroupId, now: Time, actions: &mut Vec<Action>) {
        let state = &mut self.classes[class.index()];
        if let Some((since, lane)) = state.switch.take() {
            state.queues.charge_switch(lane, now.since(since));
            let index = Lane::ALL.iter().position(|l| *l == lane).unwrap_or(0);
            self.stats.group_wakes[index] += 1;
            self.stats.switching += now.since(since);
        }
        state.phase = ClassPhase::Awake { group, idle_since: None };
        self.begin_reclaim(class, group, actions);
    }

    /// Begins to put the awake group of `class` to sleep.
    pub(crate) fn rest(&mut self, class: ClassId, group: GroupId, now: Time, actions: &mut Vec<Action>) {
        let until = now + self.patience_with_drives();
        let state = &mut self.classes[class.index()];
        assert!(state.in_service.is_none(), "a group that serves does not go to sleep");
        state.phase = ClassPhase::Resting { group, until };
        state.reclaim = crate::rack::Reclaim::default();
        for drive in self.layout.groups[group.index()].drives.clone() {
            match self.drives[drive.index()].phase {
                DrivePhase::Ready => {
                    let attempt = self.command(drive, DrivePhase::Unmounting);
                    actions.push(Action::Unmount { drive, attempt });
                }
                // It may still turn: it is stopped like the others, so that its permits can be given back.
                DrivePhase::Away(_) if self.drives[drive.index()].permitted => {
                    self.forget_tries(drive);
                    let attempt = self.command(drive, DrivePhase::Unmounting);
                    actions.push(Action::Unmount { drive, attempt });
                }
                DrivePhase::AwaitingPermit => self.do_without(drive, false, now),
                _ => {}
            }
        }
    }

    fn go_on_resting(&mut self, class: ClassId, group: GroupId, until: Time, now: Time) -> bool {
        let members = &self.layout.groups[group.index()].drives;
        let moving =
            |d: &DriveId| matches!(self.drives[d.index()].phase, DrivePhase::Unmounting | DrivePhase::Stopping);
        if members.iter().any(moving) {
            if now < until {
                return false;
            }
            for drive in members.clone() {
                if moving_phase(self.drives[drive.index()].phase) {
                    self.count_missed_deadline(drive);
                    self.give_up(drive, Loss::MountFailed, now);
                }
            }
        }
        self.classes[class.index()].phase = ClassPhase::Asleep;
        true
    }

    /// Numbers a new command for `drive` and notes what it is doing from now on.
    pub(crate) fn command(&mut self, drive: DriveId, phase: DrivePhase) -> Attempt {
        let state = &mut self.drives[drive.index()];
        state.attempt = Attempt(state.attempt.0.wrapping_add(1));
        state.phase = phase;
        state.attempt
    }

    /// Whether an answer belongs to the command that `drive` was last given, and that command was of this phase.
    fn answers(&self, drive: DriveId, attempt: Attempt, phase: DrivePhase) -> bool {
        self.drives.get(drive.index()).is_some_and(|state| state.attempt == attempt && state.phase == phase)
    }

    pub(crate) fn spun_up(&mut self, drive: DriveId, attempt: Attempt, actions: &mut Vec<Action>) {
        if self.answers(drive, attempt, DrivePhase::SpinningUp) {
            self.note_answer(drive);
            self.ledger.spun_up(drive);
            let attempt = self.command(drive, DrivePhase::Mounting);
            actions.push(Action::Mount { drive, attempt });
        }
    }

    pub(crate) fn mounted(&mut self, drive: DriveId, attempt: Attempt, free_bytes: u64) {
        if self.answers(drive, attempt, DrivePhase::Mounting) {
            self.note_answer(drive);
            let state = &mut self.drives[drive.index()];
            state.phase = DrivePhase::Ready;
            state.errors = 0;
            state.strikes = 0;
            self.placement.set_away(drive, false);
            self.placement.set_free(drive, free_bytes);
        }
    }

    pub(crate) fn unmounted(&mut self, drive: DriveId, attempt: Attempt, actions: &mut Vec<Action>) {
        if self.answers(drive, attempt, DrivePhase::Unmounting) {
            self.note_answer(drive);
            let attempt = self.command(drive, DrivePhase::Stopping);
            actions.push(Action::Stop { drive, attempt });
        }
    }

    pub(crate) fn stopped(&mut self, drive: DriveId, attempt: Attempt, now: Time) {
        if !self.answers(drive, attempt, DrivePhase::Stopping) {
            return;
        }
        self.note_answer(drive);
        self.give_back_permit(drive);
        let state = &mut self.drives[drive.index()];
        state.phase = match state.strikes.max(state.punctuality.wakes_missed) {
            _ if state.failed => DrivePhase::Away(Loss::Failed),
            STRIKES_MAX.. => DrivePhase::Away(Loss::Died),
            _ => DrivePhase::Standby,
        };
        let stays_away = state.phase != DrivePhase::Standby;
        let did_well = state.strikes == 0 && state.errors == 0;
        self.placement.set_away(drive, stays_away);
        if stays_away {
            self.try_again_later(drive, now);
        } else {
            self.stands_by(drive);
        }
        if did_well {
            self.trust_again(drive);
        }
    }

    pub(crate) fn command_failed(
        &mut self,
        drive: DriveId,
        attempt: Attempt,
        loss: Loss,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        if loss != Loss::NoAnswer && drive.index() < self.drives.len() {
            self.note_answer(drive); // if a bad one
        }
        // What cannot be unmounted, perhaps because it never was mounted, is stopped all the same.
        if loss != Loss::FuseTripped && self.answers(drive, attempt, DrivePhase::Unmounting) {
            if loss == Loss::NoAnswer {
                self.note_missed_deadline(drive, now);
            }
            let attempt = self.command(drive, DrivePhase::Stopping);
            actions.push(Action::Stop { drive, attempt });
            return;
        }
        let known = self.drives.get(drive.index()).is_some_and(|state| state.attempt == attempt);
        if known && !matches!(self.drives[drive.index()].phase, DrivePhase::Away(_) | DrivePhase::Standby) {
            // A drive that is not the one it should be, or not there, does not become so by being started again.
            if loss == Loss::ForeignLabel {
                self.drives[drive.index()].strikes = STRIKES_MAX - 1;
            }
            self.give_up(drive, loss, now);
        }
    }

    pub(crate) fn drive_lost(&mut self, drive: DriveId, loss: Loss) {
        if drive.index() < self.drives.len() {
            self.set_away(drive, loss);
            self.drives[drive.index()].comeback.by_world = true;
            self.forget_tries(drive);
            // Given up by the operator, and gone: it was pulled.
            if self.drives[drive.index()].failed {
                self.give_back_permit(drive);
            }
        }
    }

    pub(crate) fn drive_back(&mut self, drive: DriveId) {
        let Some(state) = self.drives.get_mut(drive.index()) else { return };
        if !matches!(state.phase, DrivePhase::Away(_)) {
            // It was being told to stop while it was away. Whether it stands still is for it to say, or to be asked.
            state.comeback.by_world = false;
            return;
        }
        if state.failed {
            self.give_back_permit(drive); // it stands still, and stays out of service
            return;
        }
        state.strikes = 0;
        self.give_back_permit(drive);
        self.comes_back(drive);
    }

    /// A drive that was away, whose platters stand still, is in service again.
    pub(crate) fn comes_back(&mut self, drive: DriveId) {
        let state = &mut self.drives[drive.index()];
        assert!(!state.permitted && !state.failed, "{drive} holds permits or failed for good");
        state.phase = DrivePhase::Standby;
        state.attempt = Attempt(state.attempt.0.wrapping_add(1));
        self.placement.set_away(drive, false);
        self.stands_by(drive);
        if let Some(group) = self.layout.group_of(drive) {
            self.stuck[group.index()] = 0; // a blob that waited for this drive can go now
            self.rebuild_again(group);
        }
    }

    /// A drive that failed for good is out of service; one that is being stopped goes on with that.
    pub(crate) fn fail_phase(&mut self, drive: DriveId) {
        if !moving_phase(self.drives[drive.index()].phase) {
            self.set_away(drive, Loss::Failed);
        }
    }

    /// A drive is in standby: if its group is up without it, it is started as well.
    fn stands_by(&mut self, drive: DriveId) {
        self.forget_tries(drive);
        self.drives[drive.index()].comeback.by_world = false;
        let Some(home) = self.layout.group_of(drive) else { return };
        let class = self.class_of(home);
        let state = &mut self.classes[class.index()];
        let up =
            matches!(state.phase, ClassPhase::Waking { group, .. } | ClassPhase::Awake { group, .. } if group == home);
        state.returned |= up;
    }

    pub(crate) fn set_away(&mut self, drive: DriveId, loss: Loss) {
        let state = &mut self.drives[drive.index()];
        state.phase = DrivePhase::Away(if state.failed { Loss::Failed } else { loss });
        state.lost_permitted = state.permitted;
        state.attempt = Attempt(state.attempt.0.wrapping_add(1));
        self.placement.set_away(drive, true);
        // Behind a tripped fuse there is no power. Any other loss may leave the platters turning.
        if loss == Loss::FuseTripped {
            self.give_back_permit(drive);
        }
    }

    pub(crate) fn give_back_permit(&mut self, drive: DriveId) {
        if core::mem::take(&mut self.drives[drive.index()].permitted) {
            self.ledger.released(drive);
            if core::mem::take(&mut self.drives[drive.index()].lost_permitted) {
                self.try_unpermitted_again();
            }
        }
    }

    fn try_unpermitted_again(&mut self) {
        for drive in core::mem::take(&mut self.unpermitted) {
            if !matches!(self.drives[drive.index()].phase, DrivePhase::Away(_)) {
                self.placement.set_away(drive, false);
            }
        }
    }

    /// A transfer failed on `drive`. After a few failures it is taken out of service until it is back.
    pub(crate) fn note_drive_error(&mut self, drive: DriveId, now: Time) {
        let state = &mut self.drives[drive.index()];
        state.errors += 1;
        if state.errors >= DRIVE_ERRORS_MAX && state.phase == DrivePhase::Ready {
            self.set_away(drive, Loss::Died);
            self.try_again_later(drive, now);
        }
    }
}

pub(crate) fn moving_phase(phase: DrivePhase) -> bool {
    matches!(phase, DrivePhase::Unmounting | DrivePhase::Stopping)
}
