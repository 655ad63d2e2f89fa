//! The protocol between a rack and its world about repartition jobs.
//!
//! ```text
//! world   Queued            Planned(spec)        StepEnded ...          Closed
//!            |                  |                   |                     |
//! rack       `--> Plan (turn)   `--> Step, Step ... `--> Step | Ended     `--> the next job's turn
//! ```
//!
//! One job works at a time, since each takes the memory that it was given; the others wait their turn in the order in
//! which they were queued. A [`JobAction::Step`] is an order for one class. The world carries it out by operations of
//! the background priority class, each submitted by `Event::SubmittedForJob`, and reports the result in one
//! [`JobEvent::StepEnded`]. It neither waits nor retries: an operation that is refused ends its step.
//!
//! From time to time, when nothing is buffered and no step is in hand, the rack asks for a [`JobAction::Checkpoint`]:
//! the world makes the job's progress durable, so that the job can resume from there after the world ends.

use crate::repartition::{JobSpec, Order, Processed};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use model::{Attempt, ClassId, GroupId};
use serde::{Deserialize, Serialize};

/// The number of a job, assigned by the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.0)
    }
}

/// A class of a job for which an operation is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobClass {
    /// The job.
    pub job: JobId,
    /// The class.
    pub class: ClassId,
}

/// An event of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEvent {
    /// The job is requested, and waits its turn.
    Queued,
    /// The input of the job was surveyed. Answers [`JobAction::Plan`].
    Planned(Box<JobSpec>),
    /// Nothing more is to be started for the job; operations in service end. A job that waits its turn loses its place.
    Paused,
    /// The job is to resume, or to wait its turn again.
    Resumed,
    /// The output of the job is no longer wanted.
    Cancelled,
    /// A step has ended. Answers [`JobAction::Step`].
    StepEnded {
        /// The class.
        class: ClassId,
        /// The attempt this answers.
        attempt: Attempt,
        /// Its result.
        result: StepResult,
    },
    /// The processor has worked on records for one of the job's classes.
    Processed {
        /// The kind of work, and its bytes.
        done: Processed,
        /// The modelled time that took.
        time: Duration,
    },
    /// The job's progress has been made durable, or could not be. Answers [`JobAction::Checkpoint`].
    CheckpointEnded {
        /// The attempt this answers.
        attempt: Attempt,
        /// True if it is durable.
        done: bool,
    },
    /// The world has finished with the job: its output is published, or rolled back, or it could not be planned.
    Closed,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// Input was read and is buffered, possibly less than was ordered.
    Read {
        /// The input that was read, in bytes.
        input_bytes: u64,
        /// Input of the group that was lost before it could be read, in bytes.
        lost_bytes: u64,
        /// The output from the input, by destination group.
        output: Vec<(GroupId, u64)>,
    },
    /// Buffered bytes were written as ordered.
    Written {
        /// Their number.
        bytes: u64,
    },
    /// Offloaded bytes are buffered again, and their pieces are removed.
    Refilled {
        /// Their number.
        bytes: u64,
    },
    /// Nothing was done: an operation of the step was refused, failed or was withdrawn.
    Refused,
    /// Nothing was done: the world has no room at the moment.
    NoRoom,
    /// Nothing was done, and no retry can succeed: the records are invalid, or the catalog fails.
    Failed,
}

/// An action for one job: a request of the engine to the world, which carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// The job has the turn: survey its input. Answered by [`JobEvent::Planned`], or by [`JobEvent::Closed`] if the
    /// survey fails.
    Plan,
    /// Carry out an order. Answered by [`JobEvent::StepEnded`].
    Step {
        /// The class.
        class: ClassId,
        /// The number to return in the answer.
        attempt: Attempt,
        /// The order.
        order: Order,
        /// For a read, the largest output that its input may become, in bytes.
        room_bytes: u64,
    },
    /// Make the job's progress durable: nothing is buffered, and no step is in hand. Only now may the runs that were
    /// offloaded at the last checkpoint be removed. Answered by [`JobEvent::CheckpointEnded`].
    Checkpoint {
        /// The number to return in the answer.
        attempt: Attempt,
    },
    /// The job has ended, and none of its steps is in hand. Answered by [`JobEvent::Closed`], once the output is
    /// published or rolled back.
    Ended {
        /// The way in which the job ended.
        end: JobEnd,
    },
}

/// The way in which a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    /// All output is delivered.
    Done,
    /// It was cancelled.
    Cancelled,
    /// The rack is about to close; the job may resume from its last checkpoint after the next start, or start again.
    Closing,
    /// A step failed permanently.
    Failed {
        /// The class of the step.
        class: ClassId,
    },
    /// A class was blocked for too long.
    GaveUp {
        /// The class.
        class: ClassId,
        /// The reason.
        reason: BlockReason,
    },
}

/// The reason why a class of a job is blocked for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockReason {
    /// The queue is full, or other operations are served first.
    Queue,
    /// No room, in a group or in the workshop.
    Room,
    /// Drives that are away, or fail.
    Drives,
    /// The drives' starts of the day are used up.
    Starts,
}

impl BlockReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Queue, Self::Room, Self::Drives, Self::Starts];

    /// The longest time that the reason may block a class, in time of the host; `None` is without bound.
    ///
    /// A job takes hours or days, so it does not end because of a problem that the operator may fix meanwhile: it waits
    /// for drives that are away for a day, and for starts without limit, since the next day comes. Room is different:
    /// dead bytes are reclaimed within minutes, and if that is not enough, only the owner of the data can make more.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Self::Queue | Self::Starts => None,
            Self::Room => Some(Duration::from_mins(10)),
            Self::Drives => Some(Duration::from_hours(24)),
        }
    }
}

/// The time that a job took, summed over its classes, in modelled time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTimes {
    /// Time in which its reads were in service.
    pub reading: Duration,
    /// Time in which its writes were in service.
    pub writing: Duration,
    /// Time in which its writes were read back.
    pub verifying: Duration,
    /// Time in which a working class had no group ready.
    pub switching: Duration,
    /// Time in which a class was blocked.
    pub waiting: Duration,
    /// Time in which the processor worked on records, in parallel to other work or not.
    pub processing: Duration,
}
