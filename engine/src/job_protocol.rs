//! The protocol between a rack and its world about repartition jobs.
//!
//! ```text
//! world   Queued            Planned(spec)        StepEnded ...          Closed
//!            |                  |                   |                     |
//! rack       `--> Plan (turn)   `--> Step, Step ... `--> Step | Ended     `--> the next job's turn
//! ```
//!
//! One job works at a time, since each takes the memory it was given; the others wait their turn in the order in which
//! they were queued. A [`JobAction::Step`] is an order for one class. The world carries it out by operations of the
//! background priority class, each submitted by `Event::SubmittedForJob`, and reports what came of it in one
//! [`JobEvent::StepEnded`]. It neither waits nor tries again: an operation that is refused ends its step.
//!
//! From time to time, when nothing is buffered and no step is in hand, a [`JobAction::Checkpoint`] is asked for: the
//! world makes durable how far the job is, so that it goes on from there if the world ends.

use crate::repartition::{JobSpec, Order, Processed};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use model::{Attempt, ClassId, GroupId};
use serde::{Deserialize, Serialize};

/// The number of a job, given by the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.0)
    }
}

/// A class of a job, on whose behalf an operation is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobClass {
    /// The job.
    pub job: JobId,
    /// The class.
    pub class: ClassId,
}

/// A fact about a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEvent {
    /// It is asked for, and waits its turn.
    Queued,
    /// Its input was surveyed. Answers [`JobAction::Plan`].
    Planned(Box<JobSpec>),
    /// Nothing more is to be begun for it; what is in service comes to its end. One that waits its turn loses it.
    Paused,
    /// It is to go on, or to wait its turn again.
    Resumed,
    /// Nobody wants its output any more.
    Cancelled,
    /// A step is over. Answers [`JobAction::Step`].
    StepEnded {
        /// The class.
        class: ClassId,
        /// The attempt this answers.
        attempt: Attempt,
        /// Its result.
        result: StepResult,
    },
    /// The processor has worked on records for one of its classes.
    Processed {
        /// The kind of work, and its bytes.
        done: Processed,
        /// The modelled time that took.
        time: Duration,
    },
    /// How far the job is has been made durable, or could not be. Answers [`JobAction::Checkpoint`].
    CheckpointEnded {
        /// The attempt this answers.
        attempt: Attempt,
        /// Whether it is durable.
        done: bool,
    },
    /// The world is through with it: its output is published, or rolled back, or it could not be planned.
    Closed,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// Input was read and is buffered; perhaps not all that was ordered.
    Read {
        /// The input that was read, in bytes.
        input_bytes: u64,
        /// Input of the group that was gone before it could be read, in bytes.
        lost_bytes: u64,
        /// The output it became, by destination group.
        output: Vec<(GroupId, u64)>,
    },
    /// So many buffered bytes were written where they were ordered.
    Written {
        /// Their number.
        bytes: u64,
    },
    /// So many offloaded bytes are buffered again, and their pieces removed.
    Refilled {
        /// Their number.
        bytes: u64,
    },
    /// Nothing was done: an operation of the step was refused, failed or was withdrawn.
    Refused,
    /// Nothing was done: the world has no room for it at the moment.
    NoRoom,
    /// Nothing was done, and never can be: the records are not what they should be, or the catalog fails.
    Failed,
}

/// An action for one job: what the engine asks of the world that carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// Its turn has come: survey its input. Answered by [`JobEvent::Planned`], or by [`JobEvent::Closed`] if that
    /// cannot be done.
    Plan,
    /// Carry out an order. Answered by [`JobEvent::StepEnded`].
    Step {
        /// The class.
        class: ClassId,
        /// To be given back in the answer.
        attempt: Attempt,
        /// The order.
        order: Order,
        /// For a read, the most that its input may become, in bytes.
        room_bytes: u64,
    },
    /// Make durable how far the job is: nothing is buffered, and no step is in hand. What lay offloaded at the last
    /// checkpoint may only be removed now. Answered by [`JobEvent::CheckpointEnded`].
    Checkpoint {
        /// To be given back in the answer.
        attempt: Attempt,
    },
    /// It is over, and none of its steps is in hand. Answered by [`JobEvent::Closed`], once the output is published or
    /// rolled back.
    Ended {
        /// How it ended.
        end: JobEnd,
    },
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    /// All output is delivered.
    Done,
    /// It was cancelled.
    Cancelled,
    /// The rack is about to close; the job may go on from its last checkpoint with the next one, or begin anew.
    Closing,
    /// A step failed in a way that does not pass.
    Failed {
        /// The class of the step.
        class: ClassId,
    },
    /// Something stood in the way of a class for too long.
    GaveUp {
        /// The class.
        class: ClassId,
        /// The reason.
        reason: BlockReason,
    },
}

/// The reason why a class of a job cannot go on for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockReason {
    /// The queue is full, or somebody else is served first.
    Queue,
    /// No room, in a group or in the workshop.
    Room,
    /// Drives that are away, or fail.
    Drives,
    /// The drives' starts of the day are used up.
    Starts,
}

impl BlockReason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Queue, Self::Room, Self::Drives, Self::Starts];

    /// How long it may stand there, in time of the host; `None` is without bound.
    ///
    /// A job is the work of hours or days, so it does not end for what somebody may mend meanwhile: drives that are
    /// away are waited for until the next day, and starts as long as it takes, since the next day comes. Room is
    /// another matter: dead bytes are reclaimed within minutes, and if that does not do, only its owner can make more.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Self::Queue | Self::Starts => None,
            Self::Room => Some(Duration::from_mins(10)),
            Self::Drives => Some(Duration::from_hours(24)),
        }
    }
}

/// The time that a job took, added up over its classes, in modelled time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTimes {
    /// Its reads were in service.
    pub reading: Duration,
    /// Its writes were in service.
    pub writing: Duration,
    /// Its writes were read back.
    pub verifying: Duration,
    /// A class that worked had no group ready.
    pub switching: Duration,
    /// Something stood in the way of a class.
    pub waiting: Duration,
    /// The processor worked on records, whatever else was done meanwhile.
    pub processing: Duration,
}
