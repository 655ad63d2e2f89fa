//! The controller of a rack: it decides the rack's next actions from each event and its time.
//!
//! Everything that can happen is an [`Event`]; everything that can be asked of the world is an [`Action`]. A [`Rack`]
//! turns events into actions: [`Rack::apply`] cannot fail, because failures are events. A rack has no clock, no I/O, no
//! thread and no source of randomness: time and seed are arguments. Payload bytes never pass through it.
//!
//! The server (`server/src/world.rs`) and the simulator (`sim/src/world.rs`) run the same code; nothing else runs it.
//!
//! Invariants:
//! - no drive spins up without a permit from every domain it is in ([`ledger`]);
//! - one operation in service per class; one group of a class awake at a time;
//! - state is bounded by drives, groups and queued operations, never by objects;
//! - every action that expects an answer carries an attempt; an answer to an older attempt is ignored;
//! - iteration order is that of ids, so a run is the same on every machine: hash tables ([`Numbered`]) are only used
//!   for look-ups and never iterated in their internal order.

#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod absence;
mod action;
mod blocked;
pub mod budget;
pub mod check;
mod class;
mod controller;
mod deadlines;
mod drive_list;
mod drives;
mod estimates;
mod event;
pub mod fair;
mod forecast;
pub mod forget;
mod group_left;
mod health;
mod initialisation;
mod job_protocol;
mod jobs;
pub mod layout;
pub mod ledger;
pub mod merge;
mod numbered;
mod ops;
mod overload;
pub mod placement;
mod policy;
mod pool_power;
mod pool_protocol;
mod rack;
pub mod readahead;
mod rebuild;
pub mod recall;
mod reclaim;
pub mod reorder;
pub mod repartition;
mod room;
pub mod scrub;
mod scrub_pass;
mod setup;
pub mod shift;
pub mod snapshots;
pub mod spin_down;
pub mod staging;
mod step;
#[cfg(test)]
mod testing;
pub mod thermometer;
pub mod trace;
mod trace_hash;
pub mod uploads;

pub use absence::{AbsenceView, HeldBack, TRY_AFTER};
pub use action::{Action, Outcome, Rejection, Taking, Transfer};
pub use class::{ClassPhase, ClassView, GroupState};
pub use controller::{Controller, Waking};
pub use deadlines::{Deadlines, DriveDeadlines};
pub use drive_list::DriveList;
pub use drives::DrivePhase;
pub use estimates::SwitchEstimate;
pub use event::{
    BlobOnDrive, BlobWithDead, CheckProgress, CheckResult, CheckedEntry, DriveOutcome, DriveReport, DriveResult, Event,
    HealthRecord, Loss, Request, StagedEntry, Usage, Work,
};
pub use forecast::Forecast;
pub use group_left::GroupLeft;
pub use health::HealthView;
pub use job_protocol::{BlockReason, JobAction, JobClass, JobEnd, JobEvent, JobId, JobTimes, StepResult};
pub use numbered::{Numbered, OpMap, OpenOps};
pub use policy::{
    CheckPolicy, GroupChoice, HealthPolicy, IdleTimeout, MigrationPolicy, MoveOrder, OverloadPolicy, PinnedTo,
    PriorityClass, RackPolicy, ReadPolicy, Relief, SchedulerPolicy, ScrubPolicy, Shares, SpinDownPolicy, Weighing,
};
pub use pool_power::{PoolDrivePhase, PoolDriveView};
pub use pool_protocol::{PoolDriveAction, PoolDriveEvent};
pub use rack::{GroupReads, Rack, ReadCost, Stats};
pub use rebuild::{Exposure, InPlace, RebuildView};
pub use thermometer::Heat;
pub use trace_hash::TraceHasher;
