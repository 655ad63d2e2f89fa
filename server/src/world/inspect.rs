//! Inspections of the drives of a group, for a verification. The engine keeps an inspection in service while the caller
//! holds the drives; nothing else changes the group meanwhile.

use super::operation::{InspectAnswer, InspectedDrives, Operation};
use super::state::{World, WorldHandle};
use engine::{DriveOutcome, DriveResult, Event, Outcome, PriorityClass, Rejection, Request, Work};
use model::{Attempt, DriveId, GroupId, OpId};
use tokio::sync::oneshot;

/// An inspection that the caller waits for.
struct Waiting {
    world: WorldHandle,
    answered: oneshot::Receiver<Result<InspectedDrives, Rejection>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.answered.close();
        self.world.run(|world| world.withdraw(Operation::is_abandoned));
    }
}

impl WorldHandle {
    /// The drives of `group`, when it is their turn. Without `wakes`, only while the group is awake anyway.
    ///
    /// # Errors
    /// [`Rejection`].
    pub async fn inspect(&self, group: GroupId, wakes: bool) -> Result<InspectedDrives, Rejection> {
        let (answer, answered) = oneshot::channel();
        self.run(move |world| world.order_inspection(group, wakes, answer));
        let mut waiting = Waiting { world: self.clone(), answered };
        // No answer: the world has ended.
        (&mut waiting.answered).await.unwrap_or(Err(Rejection::Closing))
    }
}

impl World {
    fn order_inspection(&mut self, group: GroupId, wakes: bool, answer: InspectAnswer) {
        let op = self.next_op();
        let before = self.operations.insert(op, Operation::Inspect(Some(answer)));
        assert!(before.is_none(), "{op} is one operation");
        let work = Work::Inspect { group };
        let request = Box::new(Request { op, priority: PriorityClass::Background, overtake_limit: None, work });
        self.apply(if wakes { Event::Submitted(request) } else { Event::SubmittedWhileAwake(request) });
    }

    pub(super) fn inspect(&mut self, op: OpId, attempt: Attempt, drives: Vec<DriveId>) {
        let Some(Operation::Inspect(answer)) = self.operations.get_mut(&op) else {
            panic!("{op} looks at drives, and is no look");
        };
        let answer = answer.take();
        let (held, let_go) = oneshot::channel();
        let lent = drives.iter().map(|drive| (*drive, self.drive(*drive))).collect();
        if let Some(answer) = answer {
            // A caller that has stopped waiting releases the drives at once.
            let _ = answer.send(Ok(InspectedDrives::new(lent, held)));
        }
        self.start_with(move |handle, _| async move {
            let _ = let_go.await;
            let fine = |drive: DriveId| DriveOutcome { drive, result: DriveResult::Fine };
            let outcomes = drives.into_iter().map(fine).collect();
            handle.report(Event::TransferEnded { op, attempt, done: true, outcomes });
        });
    }

    /// Ends an inspection; a caller that still waits gets the reason.
    pub(super) fn inspection_ended(answer: Option<InspectAnswer>, outcome: &Outcome) {
        let reason = match outcome {
            Outcome::Failed(reason) => *reason,
            // Withdrawn: no caller waits.
            _ => Rejection::QueueFull,
        };
        if let Some(answer) = answer {
            let _ = answer.send(Err(reason));
        }
    }
}
