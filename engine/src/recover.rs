//! Drives that were given up on, and how they come back.
//!
//! A drive that does not answer in time, or whose command fails, is done without, and gets a *strike*; three in a row
//! and it is out. Most often that passes: the host was slow, a cable was loose. A drive that the world took away
//! ([`Event::DriveLost`](crate::Event::DriveLost)) is also given back by the world; of the others nobody hears unless
//! they are tried again:
//! - one that was silent may still turn, and holds its permits, which drives of any group may wait for. It is told to
//!   stop once more: at once if its own group needs it, else after a pause. If it says so, its permits are free and it
//!   stands by;
//! - one that is out, and stands still, stands by again after a pause, with one strike left.
//!
//! The same holds for one whose transfers fail, while its group stays awake without it. The pause doubles with each try
//! until the drive has done all that was asked of it between a start and a stop, so a drive that is broken costs a
//! command, or a start, a day.
//!
//! Invariant: a permit is given back only by a drive that says that it stands still.

use crate::action::Action;
use crate::event::Loss;
use crate::rack::{DrivePhase, Rack};
use crate::switch::moving_phase;
use alloc::vec::Vec;
use core::time::Duration;
use model::{ClassId, DriveId, GroupId, Time};

/// Commands that may fail in a row before a drive is left alone for a while.
pub(crate) const STRIKES_MAX: u32 = 3;

/// The pause before a drive is tried again that was not even asked, since it owed an answer to something else. It costs
/// nobody anything to try.
const PAUSE_OWING: Duration = Duration::from_mins(1);
/// The first pause before a drive is tried again, in modelled time.
const PAUSE_MIN: Duration = Duration::from_mins(10);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_hours(24);

/// How a drive that is away may come back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comeback {
    /// The world took it away, and will say when it is back.
    pub(crate) by_world: bool,
    /// When it is tried next, if that is planned.
    at: Option<Time>,
    /// How long before that the last try was.
    pause: Duration,
}

impl Rack {
    /// A command of `drive` failed or was not answered in time.
    pub(crate) fn give_up(&mut self, drive: DriveId, loss: Loss, now: Time) {
        if loss == Loss::NoAnswer && self.note_missed_deadline(drive, now) {
            self.set_away(drive, loss);
            self.forget_tries(drive);
            self.plan_try(drive, now + PAUSE_OWING);
            return;
        }
        // What the host could not ask it is not its fault: it is done without, and that is all.
        self.drives[drive.index()].strikes += u32::from(loss != Loss::NotAsked);
        self.set_away(drive, loss);
        self.try_again_later(drive, now);
    }

    /// Plans the next try of a drive that is away, unless somebody else will say when it is back.
    pub(crate) fn try_again_later(&mut self, drive: DriveId, now: Time) {
        self.forget_tries(drive);
        let state = &mut self.drives[drive.index()];
        let told = state.failed || state.comeback.by_world || state.phase == DrivePhase::Away(Loss::FuseTripped);
        if !told {
            state.comeback.pause = (state.comeback.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            let at = now + state.comeback.pause;
            self.plan_try(drive, at);
        }
    }

    fn plan_try(&mut self, drive: DriveId, at: Time) {
        self.drives[drive.index()].comeback.at = Some(at);
        self.tries.insert((at, drive));
    }

    /// `drive` is in use again, or gone for other reasons: what was planned for it is not done.
    pub(crate) fn forget_tries(&mut self, drive: DriveId) {
        if let Some(at) = self.drives[drive.index()].comeback.at.take() {
            self.tries.remove(&(at, drive));
        }
    }

    /// `drive` did all that was asked of it from its start to its stop: if it is given up on again, it is soon tried.
    pub(crate) fn trust_again(&mut self, drive: DriveId) {
        let state = &mut self.drives[drive.index()];
        state.comeback.pause = Duration::ZERO;
        state.punctuality.wakes_missed = 0;
    }

    /// When a drive is to be tried again.
    pub(crate) fn tries_deadline(&self) -> Time {
        self.tries.first().map_or(Time::MAX, |(at, _)| *at)
    }

    /// Tries the drives whose time has come.
    pub(crate) fn try_again(&mut self, now: Time, actions: &mut Vec<Action>) {
        while let Some((_, drive)) = self.tries.first().copied().filter(|(at, _)| *at <= now) {
            self.forget_tries(drive);
            let state = &mut self.drives[drive.index()];
            match state.phase {
                // Told to stop by the last try, and silent still.
                phase if moving_phase(phase) => {
                    self.set_away(drive, Loss::MountFailed);
                    self.try_again_later(drive, now);
                }
                DrivePhase::Away(_) if state.permitted => {
                    let attempt = self.command(drive, DrivePhase::Unmounting);
                    actions.push(Action::Unmount { drive, attempt });
                    self.plan_try(drive, now + self.patience_with_drives());
                }
                DrivePhase::Away(_) if !state.failed => {
                    state.strikes = STRIKES_MAX - 1;
                    state.punctuality.wakes_missed = state.punctuality.wakes_missed.min(STRIKES_MAX - 1);
                    self.comes_back(drive);
                }
                _ => {}
            }
        }
    }

    /// Whether `drive` was given up on for want of an answer, and may yet be there: told to stop once more, it may say
    /// so.
    pub(crate) fn may_recover(&self, drive: DriveId) -> bool {
        let state = &self.drives[drive.index()];
        let silent = !state.failed && matches!(state.phase, DrivePhase::Away(loss) if loss != Loss::FuseTripped);
        silent && state.permitted && state.strikes < STRIKES_MAX
    }

    /// Before a group that is too small to be read wakes or serves, members that may recover are told to stop once
    /// more. A drive that stays silent is asked at once only so often, so this comes to an end. One that has just
    /// missed a deadline is not asked yet: what it owes an answer to may still be under way.
    pub(crate) fn recover(&mut self, class: ClassId, group: GroupId, now: Time, actions: &mut Vec<Action>) -> bool {
        let members = &self.layout.groups[group.index()].drives;
        let there = members.iter().filter(|d| !matches!(self.drives[d.index()].phase, DrivePhase::Away(_))).count();
        let may_recover = |drive: &DriveId| self.may_recover(*drive) && !self.is_owing_an_answer(*drive, now);
        if there >= usize::from(self.spec.code.data) || !members.iter().any(may_recover) {
            return false;
        }
        self.rest(class, group, now, actions);
        true
    }
}
