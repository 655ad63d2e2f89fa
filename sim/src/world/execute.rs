//! The interpreter: each action, executed.

use super::blobs::{SimBlob, StackMove};
use super::drives::{Answer, Command};
use super::staging::StagedQuery;
use super::state::{Ended, OpenOp, Scheduled, World};
use engine::{Action, DriveDeadlines, Event, Lane, Loss, Mind, Outcome, PinnedTo, Request, Work};
use model::physics::Load;
use model::{Attempt, DriveId, GroupId, OpId};
use std::time::Duration;

impl<M: Mind> World<M> {
    pub(super) fn execute(&mut self, action: Action) {
        match action {
            // Nothing survives a run, so nothing need be persisted; and bytes are not stored here, so there is nothing
            // to copy back: living bytes of a mostly dead blob stay there.
            Action::PersistStarts { .. } | Action::Rescue { .. } => {}
            Action::SpinUp { drive, attempt } => {
                let command = self.command(drive, attempt, |deadlines| deadlines.spin_up);
                let answer = self.drives.spin_up(self.now, command);
                self.answered(drive, answer);
            }
            Action::Mount { drive, attempt } => self.mount(drive, attempt),
            Action::Unmount { drive, attempt } => {
                let command = self.command(drive, attempt, |deadlines| deadlines.unmount);
                let answer = self.drives.unmount(self.now, command);
                self.answered(drive, answer);
            }
            Action::Stop { drive, attempt } => {
                let command = self.command(drive, attempt, |deadlines| deadlines.stop);
                let answer = self.drives.stop(self.now, command);
                self.answered(drive, answer);
            }
            Action::Rejected { op, reason } => self.end(op, Outcome::Failed(reason)),
            Action::Finished { op, outcome } => self.end(op, outcome),
            Action::Transfer { op, attempt, transfer } => self.transfer(op, attempt, &transfer),
            Action::ListStaged { attempt, older_than, coldest_bytes, limit, restart } => {
                let query = StagedQuery { older_than, coldest_bytes, limit, restart };
                let (entries, more) = self.staging.page(self.now, query);
                self.plan(self.now, Event::StagedPage { attempt, entries, more }, None);
            }
            Action::Compose { op, versions, pin } => self.compose(op, versions, pin),
            Action::Recompose { op, of, pin } => match self.staging.decompose(of) {
                versions if versions.is_empty() => self.plan(self.now, Event::Cancelled { op }, None),
                versions => self.compose(op, versions, pin),
            },
            Action::ListOnDrive { drive, attempt, after, limit } => {
                let (blobs, next) = self.blobs.page_on_drive(drive, after, limit);
                self.plan(self.now, Event::OnDrivePage { drive, attempt, blobs, next }, None);
            }
            Action::MoveStack { op, attempt, blob, index, from, to } => {
                let done = self.blobs.move_stack(self.now, StackMove { blob, index, from, to });
                self.plan(self.now, Event::StackMoved { op, attempt, done }, None);
            }
            Action::ListDoomed { group, attempt, limit, restart } => {
                let (blobs, more) = self.blobs.page_dead(group, limit, restart);
                self.plan(self.now, Event::DoomedPage { group, attempt, blobs, held_bytes: 0, more }, None);
            }
        }
    }

    pub(super) fn command(&self, drive: DriveId, attempt: Attempt, of: fn(&DriveDeadlines) -> Duration) -> Command {
        Command { drive, attempt, deadline: of(&self.rack.drive_deadlines()) }
    }

    fn mount(&mut self, drive: DriveId, attempt: Attempt) {
        let load = if self.streams[self.links.server_of(drive)] > 0 { Load::Busy } else { Load::Idle };
        let free_bytes = self.rack.spec().capacity_bytes(drive).saturating_sub(self.blobs.used_bytes(drive));
        let command = self.command(drive, attempt, |deadlines| deadlines.mount);
        let answer = self.drives.mount(self.now, command, load, free_bytes);
        self.answered(drive, answer);
    }

    pub(super) fn answered(&mut self, drive: DriveId, answer: Answer) {
        match answer {
            Answer::Never => {}
            Answer::At(when, event) => self.plan(when, event, Some(drive)),
            Answer::Now(event) => self.plan(self.now, event, None),
            Answer::Tripped(trip) => {
                for drive in &trip.drives {
                    self.plan(self.now, Event::DriveLost { drive: *drive, loss: Loss::FuseTripped }, None);
                }
                self.agenda.plan(trip.reset_at, Scheduled::FuseResets(trip.drives));
            }
        }
    }

    fn compose(&mut self, op: OpId, versions: Vec<u64>, pin: PinnedTo) {
        let lane = Lane::Background;
        let bytes = self.staging.compose(op, versions);
        let stack_bytes = self.stack_bytes(bytes);
        self.open(op, OpenOp { bytes, stack_bytes, ..OpenOp::new(lane, None, self.now) });
        let work = Work::Write { bytes, stack_bytes, pin, migration: true };
        self.plan(self.now, Event::Submitted(Request { op, lane, overtake_limit: None, work }), None);
    }

    fn end(&mut self, op: OpId, outcome: Outcome) {
        let Some(open) = self.open.remove(&op) else {
            panic!("{op} ended twice, or was never begun: {outcome:?}");
        };
        match &outcome {
            Outcome::Written { group, drives } => self.written(op, &open, *group, drives),
            Outcome::Deleted => self.blobs.deleted(op),
            _ => {}
        }
        self.staging.forget(op);
        let OpenOp { lane, group, bytes, issued, picked, first_byte, .. } = open;
        self.ended.push(Ended { op, lane, group, outcome, bytes, issued, picked, first_byte, at: self.now });
    }

    fn written(&mut self, op: OpId, open: &OpenOp, group: GroupId, drives: &[DriveId]) {
        let OpenOp { bytes, stack_bytes, .. } = *open;
        assert!(drives.len() == self.rack.spec().code.stacks(), "{op} wrote {} stacks", drives.len());
        self.blobs.add(SimBlob { group, drives: drives.to_vec(), stack_bytes, bytes, dead_bytes: 0 });
        if self.staging.migrated(op) {
            self.plan(self.now, Event::StagingChanged(self.staging.usage()), None);
        }
    }
}
