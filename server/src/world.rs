//! The server's world: executes each [`engine::Action`] on real drives, catalog and workshop.
//!
//! One task owns the [`engine::Rack`]. It takes a step, reports the event to the engine, and executes the actions that
//! follow. Anything that takes time runs in its own task and returns as another step. So the engine needs no lock, and
//! nothing is decided here: a branch in this file chooses how to do something, never whether to do it.
//!
//! Clock, drives, catalog, workshop and the spawning of tasks are arguments ([`Context`]), so the same interpreter also
//! runs in virtual time on one thread.
//!
//! Invariants:
//! - a blob's intent is durable before its first stack is created, its stacks are synced and read back before the
//!   catalog knows it, and staged files are freed only after that commit (`migration.rs`);
//! - every action that expects an answer gets one, even after a failure; a hanging drive is answered for at its
//!   deadline;
//! - memory is bounded by operations in service and by pages.

pub(crate) mod checks;
mod evacuate;
mod freeing;
mod health;
mod inspect;
mod job_steps;
mod listing;
mod making;
mod memory_read;
mod migration;
mod newer;
mod operation;
mod outcome;
pub(crate) mod packed;
pub(crate) mod pool;
mod power;
pub(crate) mod quarantine;
mod read;
mod read_target;
mod rebuild;
mod reclaim;
mod returned;
pub(crate) mod scrub;
mod spool_sink;
mod state;
mod transfer;
mod up;

pub use crate::context::{
    Context, Nonce, PinOf, Reasons, SmallObjects, Spawn, Tracer, WallClock, WorldCounters, nonces,
};
pub use job_steps::JobActions;
pub use memory_read::MemoryReads;
pub use operation::{InspectedDrives, MakeError, WriteOrder};
pub use read_target::{MemorySink, ReadOrder, ReadTarget, TimedClient};
pub use spool_sink::{SegmentFollower, SpoolSegment, SpoolSink};
pub use state::{World, WorldHandle};

use engine::trace::{Record, TraceMessage};
use engine::{Action, Event, Outcome};
use model::{OpId, Time};
use operation::{Operation, Origin};
use state::Step;
use std::sync::atomic::Ordering;

impl World {
    /// Runs until it is closed or every handle is dropped.
    pub async fn run(mut self) {
        loop {
            let deadline = self.context.clock.sleep_until(self.rack.next_deadline());
            let step = tokio::select! {
                // In a fixed order, so that the same history has the same outcome. Every event lets deadlines take
                // effect.
                biased;
                step = self.steps.recv() => step,
                () = deadline => Some(Box::new(|world: &mut Self| world.apply(Event::DeadlineReached)) as Step),
            };
            let Some(step) = step else { return };
            step(&mut self);
            if self.rack.is_closed() && self.operations.is_empty() && self.committing == 0 {
                if let Some(done) = self.closing.take() {
                    let _ = done.send(());
                }
                return;
            }
        }
    }

    /// Applies the event in the engine, and executes the actions that follow.
    fn apply(&mut self, event: Event) {
        if matches!(event, Event::DriveLost { loss: engine::Loss::FuseTripped, .. }) {
            self.context.counters.fuse_trips.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(event, Event::DriveBack { .. } | Event::DriveReplaced { .. } | Event::DriveReturned { .. }) {
            self.context.counters.refusals.forget_all();
        }
        self.assert_in_order(&event);
        let now = self.context.clock.now();
        self.trace(now, || TraceMessage::Event(event.clone()));
        let mut actions = Vec::new();
        self.rack.apply(now, event, &mut actions);
        for action in &actions {
            self.trace(now, || TraceMessage::Action(action.clone()));
        }
        self.context.counters.rack_full.store(self.rack.is_full(), Ordering::Relaxed);
        self.store_queue_fills();
        self.persist_starts(&mut actions);
        for action in actions {
            self.execute(action);
        }
    }

    /// The engine accepts one of the world's own operations as new only if its number is higher than the last. An
    /// operation that was numbered and then had to wait would never be answered.
    fn assert_in_order(&self, event: &Event) {
        let (Event::Submitted(request) | Event::SubmittedWhileAwake(request) | Event::SubmittedForJob { request, .. }) =
            event
        else {
            return;
        };
        let OpId(number) = request.op;
        // The migrator's numbers are above the world's own.
        assert!(number + 1 >= self.next_op, "operations are submitted in the order of their numbers");
    }

    fn trace(&self, now: Time, message: impl FnOnce() -> TraceMessage) {
        if let Some(trace) = &self.context.trace {
            trace(&Record { now, message: message() });
        }
    }

    fn execute(&mut self, action: Action) {
        match action {
            // Gathered by `persist_starts`, for which the spin-ups that follow wait.
            Action::PersistStarts { .. } => {}
            Action::PersistInitialised { group, drives } => self.persist_initialised(group, drives),
            Action::SpinUp { drive, attempt } => {
                self.note_start(drive);
                self.spin_up(drive, attempt);
            }
            Action::Mount { drive, attempt } => self.mount(drive, attempt),
            Action::Unmount { drive, attempt } => self.unmount(drive, attempt),
            Action::Stop { drive, attempt } => self.stop(drive, attempt),
            Action::PoolDrive { drive, action } => self.act_on_pool_drive(drive, action),
            Action::Rejected { op, reason } => self.ended(op, &Outcome::Failed(reason)),
            Action::Finished { op, outcome } => self.ended(op, &outcome),
            Action::Transfer { op, attempt, transfer } => self.transfer(op, attempt, transfer),
            Action::ListStaged { attempt, older_than, order, coldest_bytes, hot_bytes, min_bytes, limit, restart } => {
                let query = listing::StagedScan { older_than, order, coldest_bytes, hot_bytes, min_bytes, limit };
                self.list_staged(attempt, query, restart);
            }
            Action::Compose { op, versions, pin } => self.compose(Some(op), versions, pin),
            Action::Recompose { op, of, pin } => self.recompose(op, of, pin),
            Action::ListDead { group, attempt, limit, restart } => {
                self.list_dead(group, attempt, limit, restart);
            }
            Action::Evacuate { blob } => self.evacuate(blob),
            Action::ListOnDrive { drive, attempt, after, limit } => self.list_on_drive(drive, attempt, after, limit),
            Action::MoveStack { op, attempt, blob, index, from, to, removes } => {
                self.move_stack((op, attempt), (blob, index), [from, to], removes);
            }
            Action::ListToScrub { group, attempt, after, end, limit } => {
                self.list_to_scrub((group, attempt), (after, end), limit);
            }
            Action::PersistScrub { group, pass, unread } => self.persist_scrub(group, pass, unread),
            Action::GiveUp { drive, retired } => self.give_up_drive(drive, retired),
            Action::TakeBack { drive } => self.take_back_drive(drive),
            Action::Job { job, action } => self.act_for_job(job, action),
            Action::MeasureLoad { attempt } => self.measure_load(attempt),
            Action::CheckStaged { attempt, take, limit, bytes_max, load_limit_permille, restart } => {
                let scan = checks::CheckScan { take, limit, bytes_max, load_limit_permille };
                self.check_staged(attempt, scan, restart);
            }
            Action::ReleaseChecked => self.in_memory.clear(),
            Action::PersistChecks { progress } => self.persist_checks(progress),
            Action::ReadHealth { drive } => self.read_health(drive),
            Action::Retire { drive } => self.retire_worn(drive),
        }
    }

    /// Withdraws the queued operations that match. Operations in service are not affected.
    fn withdraw(&mut self, is_meant: impl Fn(&Operation) -> bool) {
        let ops: Vec<OpId> = self.operations.iter().filter(|(_, job)| is_meant(job)).map(|(op, _)| *op).collect();
        for op in ops {
            self.apply(Event::Cancelled { op });
        }
    }

    /// Ends an operation: completes its job, and forgets it.
    fn ended(&mut self, op: OpId, outcome: &Outcome) {
        match self.operations.remove(&op) {
            Some(Operation::Read { blob, progress, refused, .. }) => {
                let progress = progress.unwrap_or_else(|| panic!("{op} ended, and is being read"));
                self.read_ended(&blob, *progress, &refused, outcome);
            }
            Some(Operation::Write { pack, of: Origin::Workshop(versions), written }) => {
                self.write_ended(pack, versions, written, outcome);
            }
            Some(Operation::Write { pack, of: Origin::Memory(making), written }) => {
                self.made(&pack, *making, written, outcome);
            }
            Some(Operation::Rebuild(_)) => {}
            Some(Operation::Scrub(scrubbed)) => self.scrubbed(scrubbed, outcome),
            Some(Operation::Inspect(answer)) => Self::inspection_ended(answer, outcome),
            None if matches!(outcome, Outcome::Deleted) => self.blob_deleted(op),
            None => {
                self.deleting.remove(&op);
            }
        }
    }
}
