//! The events of a drive of the pool of small records, and the actions on it.

use model::Attempt;
use serde::{Deserialize, Serialize};

/// A fact about a drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolDriveEvent {
    /// At boot, before `Booted`: its number of starts on the last day on which it was started.
    Reported {
        /// Which day.
        day: u32,
        /// Number of starts.
        starts: u32,
    },
    /// It is needed: its rotation is about to use it, or another reader needs data on it. Answered by
    /// [`PoolDriveAction::Answer`], which may answer several of these at once.
    Wanted,
    /// Its rotation has had no use for it for long enough, so it may stop.
    Idle,
    /// Its platters turn. Answers [`PoolDriveAction::Start`].
    Started(Attempt),
    /// Its platters stand still. Answers [`PoolDriveAction::Stop`].
    Stopped(Attempt),
    /// It did not start, or did not stop.
    Failed(Attempt),
    /// It was found turning although it was stopped: something else started it.
    Spins,
}

/// Something that the world must do with a drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolDriveAction {
    /// Start it, and store the number of starts that it has used on this day. The start does not wait until that is
    /// stored, since the log on this very pool may have to store it. Answered by `Started` or `Failed`.
    Start {
        /// To be returned in the answer.
        attempt: Attempt,
        /// Which day.
        day: u32,
        /// Number of starts, this one included.
        starts: u32,
    },
    /// Stop it. Answered by `Stopped` or `Failed`.
    Stop(Attempt),
    /// Notify all that wanted it that they can use it now, or, if it is not `awake`, that it did not start.
    Answer {
        /// It spins.
        awake: bool,
    },
}
