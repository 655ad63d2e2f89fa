//! Torture: runs the server's own logic in virtual time, on one thread, with every fault that has a model.
//!
//! A run executes the server's code, from [`server::boot`] to the object service behind the S3 front; only clock,
//! drives, catalog and workshop are replaced. A seed decides everything ([`Plan`]): a rack, settings, several lives of
//! a server, clients with random operations, and a storm of faults. Then the faults stop.
//!
//! - *Safety*, at all times: every answer is one that the reference model allows and has the right bytes; errors are
//!   honest; budgets hold; `engine::check` accepts the engine's trace.
//! - *Liveness*, after the faults have stopped: all acknowledged data is read, failed drives are rebuilt, all staged
//!   data has migrated, every group sleeps, every operation was answered.
//!
//! Faults of media are an overlay over pristine bytes ([`FaultKind`]), so the run knows which data may be lost: no blob
//! loses more than r stacks, except in runs that exceed r on purpose. Those expect honest errors, never wrong bytes.
//!
//! The same seed gives the same trace hash. A run that breaks a [`Rule`] is shrunk ([`shrink`]) and printed as a
//! history.

mod absent;
mod answers;
mod clients;
mod content;
mod coverage;
mod faulty_drive;
mod faulty_store;
mod front;
mod healing;
mod journal;
mod kinds;
mod life;
mod limits;
mod log_files;
mod operator;
mod overlay;
mod panics;
mod plan;
mod power;
mod readers;
mod records;
mod recovery;
mod reference;
mod register;
mod repetition;
mod report;
mod rights;
mod scrubs;
mod shrink;
mod site;
mod starts;
mod storm;
mod tags;
mod trace_judge;

pub use coverage::{Coverage, Pair, cannot, pairs};
pub use journal::{Line, Rule, Violation, history};
pub use kinds::FaultKind;
pub use plan::{
    ABSENT_FROM, Item, LOGGED_FROM, LOST_FROM, Left, Life, LifeEnd, MEDDLED_FROM, MONTHS_FROM, Plan, RULED_FROM,
    RackShape, SPOILED_FROM, STOPPED_FROM,
};
pub use report::{Report, Totals, run};
pub use shrink::{Shrunk, shrink};
