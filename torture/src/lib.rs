//! Torture: the server's own logic in virtual time, on one thread, with every fault there is a model of.
//!
//! What runs is what the server runs, from [`server::boot`] to the object service behind the S3 front; only clock,
//! drives, catalog and workshop are others. A seed decides everything ([`Plan`]): a rack, settings, several lives of a
//! server, clients whose operations are drawn at random, and a storm of faults over them. Then the faults stop.
//!
//! - *Safety*, all the while: every answer is one that the reference model allows and holds the right bytes; errors are
//!   honest; budgets hold; the engine's trace is sound to `engine::check`.
//! - *Liveness*, once the faults have stopped: everything acknowledged is read, what failed is rebuilt, everything
//!   staged has migrated, every group sleeps, every operation was answered.
//!
//! Faults of media are an overlay over pristine bytes ([`FaultKind`]), so that it is known what may be lost: no blob
//! loses more than r stacks, but in runs that mean it. Those expect honest errors, never wrong bytes.
//!
//! The same seed gives the same trace hash. A run that breaks a [`Rule`] is shrunk ([`shrink`]) and
//! printed as a history.

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
