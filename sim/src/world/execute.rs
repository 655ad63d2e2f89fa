//! The interpreter, which executes each action.

use super::blobs::{SimBlob, StackMove};
use super::checks::{CHECK_BYTES_S, CheckQuery};
use super::drives::{Answer, Command, CommandKind};
use super::staging::StagedQuery;
use super::state::{Ended, OpenOp, Scheduled, World};
use engine::{Action, Controller, Event, Loss, Outcome, PinnedTo, PriorityClass, Request, Work};
use model::{Attempt, DriveId, GroupId, OpId, Time, transfer_time};

impl<M: Controller> World<M> {
    pub(super) fn execute(&mut self, action: Action) {
        match action {
            // No state survives a run, so there is nothing to persist. Bytes are not stored here, so there is nothing
            // to copy back: live bytes of a mostly dead blob stay there.
            Action::PersistStarts { .. }
            | Action::PersistInitialised { .. }
            | Action::PersistChecks { .. }
            | Action::PersistScrub { .. }
            | Action::Evacuate { .. } => {}
            Action::SpinUp { drive, attempt } => self.command(drive, attempt, CommandKind::SpinUp),
            Action::Mount { drive, attempt } => {
                let load = self.load_for(drive);
                let free_bytes = self.drives.capacity_bytes(drive).saturating_sub(self.blobs.used_bytes(drive));
                self.command(drive, attempt, CommandKind::Mount { load, free_bytes });
            }
            Action::Unmount { drive, attempt } => self.command(drive, attempt, CommandKind::Unmount),
            Action::Stop { drive, attempt } => self.command(drive, attempt, CommandKind::Stop),
            Action::Rejected { op, reason } => self.end(op, Outcome::Failed(reason)),
            Action::Finished { op, outcome } => self.end(op, outcome),
            Action::Transfer { op, attempt, transfer } => self.transfer(op, attempt, &transfer),
            Action::ListStaged { attempt, older_than, order, coldest_bytes, hot_bytes, min_bytes, limit, restart } => {
                let query = StagedQuery { older_than, order, coldest_bytes, hot_bytes, min_bytes, limit, restart };
                let (entries, more) = self.staging.page(self.now, self.rack.thermometer(), query);
                self.plan(self.now, Event::StagedPage { attempt, entries, more }, None);
            }
            Action::Compose { op, versions, pin } => self.compose(op, versions, pin),
            Action::Recompose { op, of, pin } => match self.staging.decompose(of) {
                versions if versions.is_empty() => self.plan(self.now, Event::Cancelled { op }, None),
                versions => self.compose(op, versions, pin),
            },
            Action::ListOnDrive { drive, attempt, after, limit } => {
                let (blobs, next) = self.blobs.page_on_drive(drive, after, limit);
                self.plan(self.now + self.look_up, Event::OnDrivePage { drive, attempt, blobs, next }, None);
            }
            Action::ListToScrub { group, attempt, after, end, limit } => {
                let page = self.blobs.page_to_scrub(group, (after, end), limit);
                self.plan(self.now, Event::ScrubPage { group, attempt, page }, None);
            }
            Action::TakeBack { drive } => {
                let lost_bytes = self.blobs.take_back(drive);
                self.plan(self.now, Event::DriveReturned { drive, lost_bytes }, None);
            }
            Action::GiveUp { drive, .. } => {
                self.blobs.fail(drive);
                self.plan(self.now, Event::DriveFailed { drive, pulled: false }, None);
            }
            Action::MoveStack { op, attempt, blob, index, from, to, removes: _ } => {
                self.move_stack((op, attempt), StackMove { blob, index, from, to });
            }
            Action::ListDead { group, attempt, limit, restart } => {
                let (blobs, more) = self.blobs.page_dead(group, limit, restart);
                self.plan(self.now, Event::DeadPage { group, attempt, blobs, held_bytes: 0, more }, None);
            }
            Action::Job { job, action } => self.job_actions.push_back((job, action)),
            Action::MeasureLoad { attempt } => {
                let load_permille = self.load.permille(self.now);
                self.plan(self.now, Event::LoadMeasured { attempt, load_permille }, None);
            }
            Action::CheckStaged { attempt, take, limit, bytes_max, restart, .. } => {
                self.check_staged(attempt, CheckQuery { take, limit, bytes_max, restart });
            }
            Action::ReleaseChecked => self.checking.release(),
            Action::ReadHealth { drive } => self.read_health(drive),
            Action::Retire { drive } => self.retire_worn(drive),
            Action::PoolDrive { drive, .. } => unreachable!("{drive} is of an intake, and none is simulated"),
        }
    }

    fn check_staged(&mut self, attempt: Attempt, query: CheckQuery) {
        let judged = (self.now, self.rack.thermometer());
        let page = self.checking.page(&mut self.staging, judged, query);
        let over = self.now + transfer_time(page.read_bytes, CHECK_BYTES_S);
        let (entries, more, load_permille) = (page.entries, page.more, self.load.permille(self.now));
        self.plan(over, Event::StagedChecked { attempt, entries, more, load_permille }, None);
    }

    fn read_health(&mut self, drive: DriveId) {
        if let Some(bad_sectors) = self.drives.bad_sectors(drive) {
            self.plan(self.now, Event::DriveHealth { drive, bad_sectors }, Some(drive));
        }
    }

    fn retire_worn(&mut self, drive: DriveId) {
        self.blobs.retire(drive);
        self.plan(self.now, Event::DriveRetiring { drive }, None);
    }

    /// Records the new place of a moved stack; nothing else about it is stored.
    fn move_stack(&mut self, (op, attempt): (OpId, Attempt), moved: StackMove) {
        let done = if moved.from == moved.to {
            self.blobs.repair(self.now, moved.blob, moved.to)
        } else {
            self.blobs.move_stack(self.now, moved)
        };
        self.plan(self.now, Event::StackMoved { op, attempt, done }, None);
    }

    pub(super) fn command(&mut self, drive: DriveId, attempt: Attempt, kind: CommandKind) {
        let deadline = match kind {
            CommandKind::SpinUp => self.deadlines.spin_up,
            CommandKind::Mount { .. } => self.deadlines.mount,
            CommandKind::Unmount => self.deadlines.unmount,
            CommandKind::Stop => self.deadlines.stop,
        };
        match self.drives.execute(self.now, Command { drive, attempt, deadline, kind }) {
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
        let priority = PriorityClass::Background;
        self.checking.compose(op, &versions, &self.staging);
        let bytes = self.staging.compose(op, versions);
        let stack_bytes = self.stack_bytes(bytes);
        self.open(op, OpenOp { bytes, stack_bytes, ..OpenOp::new(priority, None, self.now) });
        let work = Work::Write { bytes, stack_bytes, pin, migration: true };
        let request = Box::new(Request { op, priority, overtake_limit: None, work });
        self.plan(self.now + self.look_up, Event::Submitted(request), None);
    }

    fn end(&mut self, op: OpId, outcome: Outcome) {
        let Some(open) = self.open.remove(op) else {
            panic!("{op} ended twice, or was never begun: {outcome:?}");
        };
        if open.priority == PriorityClass::Client {
            self.load.left(self.now);
        }
        match &outcome {
            Outcome::Written { group, drives } => self.written(op, &open, *group, drives),
            Outcome::Deleted => self.blobs.deleted(op),
            _ => {}
        }
        self.staging.forget(op);
        self.checking.forget(op);
        let OpenOp { priority, group, bytes, issued, picked, first_byte, .. } = open;
        let [picked, first_byte] = [picked, first_byte].map(|at| Some(at).filter(|at| *at != Time::MAX));
        assert!(issued.max(picked.unwrap_or(issued)) <= self.now, "{op} ended before it began");
        self.ended.push(Ended { op, priority, group, outcome, bytes, issued, picked, first_byte, at: self.now });
    }

    fn written(&mut self, op: OpId, open: &OpenOp, group: GroupId, drives: &[DriveId]) {
        let OpenOp { bytes, stack_bytes, .. } = *open;
        assert!(drives.len() == self.rack.spec().code.stacks(), "{op} wrote {} stacks", drives.len());
        assert!(self.stack_bytes(bytes) <= stack_bytes, "{op} wrote {bytes} bytes into stacks of {stack_bytes}");
        self.blobs.add(SimBlob { group, drives: drives.to_vec(), stack_bytes, bytes, dead_bytes: 0 });
        if self.staging.migrated(op) {
            self.checking.migrated(op);
            self.plan(self.now, Event::StagingChanged(self.staging.usage()), None);
        }
    }
}
