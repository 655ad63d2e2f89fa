//! What can happen to a drive of the pool of small records, and what can be asked of one.

use model::Attempt;
use serde::{Deserialize, Serialize};

/// A fact about a drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolDriveEvent {
    /// At boot, before `Booted`: how often it was started on the last day on which it was.
    Reported {
        /// Which day.
        day: u32,
        /// How many starts.
        starts: u32,
    },
    /// It is needed: its rotation is about to use it, or somebody reads what lies on it. Answered by
    /// [`PoolDriveAction::Answer`], which may answer several of these at once.
    Wanted,
    /// Its rotation has had no use for it for so long that it may stop.
    Idle,
    /// Its platters turn. Answers [`PoolDriveAction::Start`].
    Started(Attempt),
    /// Its platters stand still. Answers [`PoolDriveAction::Stop`].
    Stopped(Attempt),
    /// It did not start, or did not stop.
    Failed(Attempt),
    /// It was found turning though it was stopped: somebody else started it.
    Spins,
}

/// Something that the world must do with a drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolDriveAction {
    /// Start it, and remember that it has used so many starts on this day. The start does not wait for that to be
    /// remembered: it may be the log on this very pool that has to take it. Answered by `Started` or `Failed`.
    Start {
        /// To be given back in the answer.
        attempt: Attempt,
        /// Which day.
        day: u32,
        /// How many starts, this one included.
        starts: u32,
    },
    /// Stop it. Answered by `Stopped` or `Failed`.
    Stop(Attempt),
    /// Tell all who wanted it that they can use it now; if it is not `awake`, that it did not start.
    Answer {
        /// It spins.
        awake: bool,
    },
}
