//! Larder's mind: given what happened and when, what should the rack do next?
//!
//! Everything that can happen is an [`Event`]; everything that can be asked of the world is an [`Action`]. A [`Rack`]
//! takes one and gives the other: [`Rack::apply`] cannot fail, because failures are events. It has no clock, no I/O, no
//! thread and no randomness of its own: time is an argument, the seed is an argument. Payload bytes never pass through
//! it.
//!
//! The same code is run by the server (`server/src/world.rs`) and by the simulator (`sim/src/world.rs`), and by nothing
//! else.
//!
//! Invariants:
//! - no drive spins up without a permit from every domain it is in ([`ledger`]);
//! - one operation in service per class; one group of a class awake at a time;
//! - state is bounded by drives, groups and queued operations, never by objects;
//! - every action that expects an answer carries an attempt; an answer to an older attempt is ignored;
//! - iteration order is that of ids, so that a run is the same on every machine: what is hashed ([`Numbered`]) cannot
//!   be walked.

#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod action;
pub mod baseline;
pub mod budget;
pub mod check;
mod deadlines;
mod event;
pub mod fair;
mod forecast;
mod job_protocol;
mod jobs;
pub mod layout;
pub mod ledger;
mod mind;
mod numbered;
pub mod placement;
mod policy;
mod quiet;
mod rack;
mod rack_jobs;
mod rebuild;
pub mod recall;
mod recover;
pub mod reorder;
pub mod repartition;
mod room;
mod service;
mod staging;
mod switch;
#[cfg(test)]
mod testing;
pub mod trace;
mod view;

pub use action::{Action, Outcome, Rejection, Transfer};
pub use deadlines::{Deadlines, DriveDeadlines};
pub use event::{
    BlobOnDrive, DoomedBlob, DriveOutcome, DriveReport, DriveResult, Event, Loss, Request, StagedEntry, Usage, Work,
};
pub use forecast::Forecast;
pub use job_protocol::{BlockReason, JobAction, JobClass, JobEnd, JobEvent, JobId, JobTimes, StepResult};
pub use mind::{Mind, Waking};
pub use numbered::{Numbered, OpMap};
pub use policy::{
    GroupChoice, IdleTimeout, Lane, MigrationPolicy, PinnedTo, RackPolicy, ReadPolicy, SchedulerPolicy, Shares,
    Weighing,
};
pub use rack::{ClassPhase, DrivePhase, Rack, Stats};
pub use rebuild::RebuildView;
pub use view::{ClassView, GroupState};
