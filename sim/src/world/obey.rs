//! The interpreter: what each action makes the world do.

use super::{Happening, World};
use engine::{Action, Event, Loss, Mind, Outcome, Rack};
use model::physics::{Load, Refused};
use model::{Attempt, DriveId, Time};
use std::time::Duration;

impl World<Rack> {
    /// Starts a drive behind the engine's back: what a broken ledger would do.
    pub fn spin_up_without_permit(&mut self, drive: DriveId) {
        self.spin_up(drive, Attempt(u32::MAX));
    }
}

impl<M: Mind> World<M> {
    pub(super) fn obey(&mut self, action: Action) {
        match action {
            // Nothing survives a run, so nothing need be remembered; and bytes are not kept here, so there is nothing
            // to copy back: what lives in a mostly doomed blob stays there.
            Action::PersistStarts { .. } | Action::Rescue { .. } => {}
            Action::SpinUp { drive, attempt } => self.spin_up(drive, attempt),
            Action::Mount { drive, attempt } => self.mount(drive, attempt),
            Action::Unmount { drive, attempt } => {
                if self.is_hung(drive, attempt) {
                    return;
                }
                let done = self.physics[drive.index()].unmount(self.now);
                self.answer(drive, attempt, done, Event::Unmounted { drive, attempt });
            }
            Action::Stop { drive, attempt } => {
                if self.is_hung(drive, attempt) {
                    return;
                }
                let done = self.physics[drive.index()].stop(self.now);
                if let Ok(still) = done {
                    self.fuses.stop(drive, still);
                    self.look_at_meter(drive);
                }
                self.answer(drive, attempt, done, Event::Stopped { drive, attempt });
            }
            Action::Rejected { op, reason } => self.end(op, Outcome::Failed(reason)),
            Action::Finished { op, outcome } => self.end(op, outcome),
            Action::Transfer { op, attempt, transfer } => self.transfer(op, attempt, &transfer),
            Action::ListStaged { attempt, older_than, coldest_bytes, limit, restart } => {
                self.list_staged(attempt, older_than, coldest_bytes, limit, restart);
            }
            Action::Compose { op, versions, pin } => self.compose(op, versions, pin),
            Action::Recompose { op, of, pin } => self.recompose(op, of, pin),
            Action::ListOnDrive { drive, attempt, after, limit } => self.list_on_drive(drive, attempt, after, limit),
            Action::MoveStack { op, attempt, blob, index, from, to } => {
                self.move_stack(op, attempt, blob, index, [from, to]);
            }
            Action::ListDoomed { group, attempt, limit, restart } => self.list_doomed(group, attempt, limit, restart),
            Action::Job { job, action } => self.job_actions.push_back((job, action)),
        }
    }

    /// Whether `drive` is known to hang: nothing reaches it, and that is answered at once.
    fn is_hung(&mut self, drive: DriveId, attempt: Attempt) -> bool {
        let hangs = self.hung.get(&drive).is_some_and(|(until, known)| *known && self.now < *until);
        if hangs {
            self.plan(self.now, Event::DriveCommandFailed { drive, attempt, loss: Loss::NoAnswer }, None);
        }
        hangs
    }

    /// The deadline of the command that `event` answers.
    fn deadline_of(&self, event: &Event) -> Duration {
        let deadlines = self.rack.drive_deadlines();
        match event {
            Event::SpunUp { .. } => deadlines.spin_up,
            Event::Mounted { .. } => deadlines.mount,
            Event::Unmounted { .. } => deadlines.unmount,
            _ => deadlines.stop,
        }
    }

    fn answer(&mut self, drive: DriveId, attempt: Attempt, done: Result<Time, Refused>, event: Event) {
        match done {
            Ok(_) if self.unlucky(self.faults.mute_permille) => {}
            Ok(when) => match self.hangs(drive, self.deadline_of(&event)) {
                None => self.plan(when, event, Some(drive)),
                Some(waited) => {
                    let late = Event::DriveCommandFailed { drive, attempt, loss: Loss::NoAnswer };
                    self.plan(self.now + waited, late, Some(drive));
                }
            },
            Err(_) => self.plan(self.now, Event::DriveCommandFailed { drive, attempt, loss: Loss::MountFailed }, None),
        }
    }

    fn spin_up(&mut self, drive: DriveId, attempt: Attempt) {
        if self.is_hung(drive, attempt) {
            return;
        }
        if self.unlucky(self.faults.command_permille) {
            let when = self.now + Duration::from_secs(20);
            self.plan(when, Event::DriveCommandFailed { drive, attempt, loss: Loss::SpinUpFailed }, Some(drive));
            return;
        }
        let starts = self.physics[drive.index()].starts();
        let done = self.physics[drive.index()].spin_up(self.now);
        self.counted.spin_ups += u64::from(self.physics[drive.index()].starts() - starts);
        self.look_at_meter(drive);
        let Ok(at_speed) = done else {
            return self.answer(drive, attempt, done, Event::SpunUp { drive, attempt });
        };
        let Some(trip) = self.fuses.spin_up(self.now, drive, at_speed) else {
            return self.answer(drive, attempt, done, Event::SpunUp { drive, attempt });
        };
        self.counted.trips += 1;
        for drive in &trip.drives {
            self.physics[drive.index()].lose(self.now);
            self.look_at_meter(*drive);
            self.away.insert(*drive);
            self.plan(self.now, Event::DriveLost { drive: *drive, loss: Loss::FuseTripped }, None);
        }
        self.agenda.plan(trip.reset_at, Happening::FuseResets(trip.drives));
    }

    /// A server that moves bytes for another group mounts slowly (Pelican, section 5: two load regimes).
    fn mount(&mut self, drive: DriveId, attempt: Attempt) {
        if self.is_hung(drive, attempt) {
            return;
        }
        if self.unlucky(self.faults.command_permille) {
            self.plan(self.now, Event::DriveCommandFailed { drive, attempt, loss: Loss::MountFailed }, Some(drive));
            return;
        }
        let load = if self.streams[self.links.server_of(drive)] > 0 { Load::Busy } else { Load::Idle };
        let done = self.physics[drive.index()].mount(self.now, load);
        let capacity_bytes = self.rack.spec().capacity_bytes(drive);
        let free_bytes = capacity_bytes.saturating_sub(self.used_bytes[drive.index()]);
        self.answer(drive, attempt, done, Event::Mounted { drive, attempt, free_bytes });
    }
}
