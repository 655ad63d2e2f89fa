//! A store for small records: a log that rotates over drives, and B+tree shelves after it (Pan, Yue and Xiong, Workload
//! Shifting). Usable alone: a key-value store for values of some bytes to some MiB that are written much and read
//! seldom.
//!
//! ```
//! # use intake::medium::memory::World;
//! # use intake::{Change, Config, Intake, Kind};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (world, clock) = (World::new(1), || model::Time::ZERO);
//! // One directory for each drive, and one for the manifest: `medium::files::DirectoryOfFiles::open(path)`. The bits
//! // are random.
//! let (intake, _) = Intake::open(world.home(), world.directories(), Config::new(0x5eed, clock))?;
//! intake.put(b"key", b"the caller's metadata", b"value")?;
//!
//! // A condition, checked in the order of numbers; and the answer as a future, or by waiting.
//! let change = Change::Delete { key: b"key".to_vec(), entry: Vec::new() };
//! let ack = intake.submit(change, Some(Box::new(|draft| match draft.pending(b"key") {
//!     Some((_, Kind::Put, _)) => Err("it has just been written".into()),
//!     _ => Ok(()),
//! })))?;
//! ack.wait()?;
//! assert_eq!(intake.get(b"key")?, None);
//! # Ok(())
//! # }
//! ```
//!
//! **Promises.**
//! - A change that was answered with a number is durable: in the log of each rotation that takes writes, synced.
//!   Changes take effect in the order of their numbers, and readers see a change before it is answered.
//! - A change that was not answered, or was answered with [`PutError::Unknown`], may exist after a restart; of the
//!   changes that waited with it, all up to some number exist then, and none after it.
//! - A crash at any moment leaves either a log or its shelf, and the same contents. A torn tail is cut off and
//!   reported; rot is distinguished from it and reported separately ([`Loss`]).
//! - Nothing is removed before its replacement is durable, and nothing only because of its name.
//!
//! **Rotation.** `engine::shift` decides which drive logs, which is read and which is written; with four drives or more
//! no drive does two of these at once. One to three drives do it as well as they can. From six drives on there are two
//! parallel rotations, each of at least three drives, and every record is in both ([`Opened::copies`]).
//!
//! **A catalog that follows** is a [`Follower`]: it receives each batch after the sync and before any caller is
//! answered, so one sync covers data and metadata. `prepare` (see [`Draft`]) checks conditions in the writer's thread,
//! against the catalog's tables and the pending changes of the batch. The catalog reports by [`Intake::covered`] which
//! changes it has made durable; after a crash it receives everything above [`Config::covered`] again, in order, from
//! [`Opened::replay`]. The amount of that is bounded by logs, not by the number of records.
//!
//! **Bounds**, for each rotation of n drives, with L = `log_bytes` x `stretch` + one batch:
//! - memory: indexes of at most n + 1 logs, each at most L (a record counts with its index entry if that is more), one
//!   image of a log for each running transformation (at most n / 2), 2 MiB for each shelf that is being written; for
//!   the whole intake `queue_bytes` and two batches; for a scan one page (4 MiB and a leaf for each shelf);
//! - disk: at most n + 1 logs, 64 more while a follower does not catch up (beyond that nothing is taken in), and
//!   shelves; each record is written once to a log, once to a shelf, and once for each tier of shelves that it is
//!   merged into;
//! - open files: one for each log and each shelf;
//! - start: three reads for each shelf, and reading all logs, and those shelves with two damaged ends.
mod accepted;
mod ack;
mod audit;
mod bytes;
mod config;
mod cycle;
mod drive;
mod driven;
mod driver;
mod error;
mod follower;
mod healing;
mod intake;
mod levelling;
mod log;
mod lost;
mod manifest;
mod mask;
pub mod medium;
mod merging;
mod names;
mod opening;
mod pool;
mod queue;
mod reading;
mod record;
mod repairing;
mod replay;
mod scan;
mod shared;
mod shelf;
mod status;
mod table;
mod transform;
mod view;
mod writer;

pub use ack::{Ack, Answer};
pub use bytes::Damage;
pub use config::{COPIES_FROM_DRIVES, Clock, Config, DRIVES_MAX, ENTRY_BYTES_MAX, RETAINED_MAX};
pub use driver::Driver;
pub use error::{OpenError, PutError, ReadError, Refusal};
pub use follower::{Applied, Follower, NoFollower};
pub use intake::{Change, Intake, Opened};
pub use log::Rot;
pub use lost::Loss;
pub use names::{DriveUuid, FileId, PoolUuid};
pub use pool::LABEL;
pub use queue::{Draft, Prepare};
pub use record::{KEY_BYTES_MAX, Kind, Sequence};
pub use replay::{Replay, Replayed};
pub use scan::Scan;
pub use status::{CycleStatus, DriveStatus, Status};
pub use view::Stored;
