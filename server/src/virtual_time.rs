//! The server's interpreter in virtual time: a trace of reads through [`World`](crate::world::World) over an emulated
//! rack, on one thread, below HTTP.
//!
//! Everything between the trace and the drives' physics is the shipped code: boot, the engine, the interpreter,
//! deadlines, the emulated rack. The drives hold synthetic blobs ([`SyntheticDrive`]), the catalog is in memory, and
//! tokio's paused clock jumps to the next event. Clients take their bytes through modelled network cards (`cards.rs`).
//! There are two ways for bytes from the drives to the clients ([`Feed`]):
//!
//! 1. Each read is one operation, and is fed to its client as it comes from the drives, as in Pelican's prototype. Its
//!    payload is left out below the stack reader, for which there is a stand-in, or it is made, read, checked and
//!    compared. Both take the same modelled time.
//! 2. Each read is a recall, like a GET of a cold object: in segments, through the spool.
//!
//! Invariants: the same run gives the same outcome; modelled time begins at 0 with every drive asleep.

mod cards;
mod client;

pub use cards::CardSpec;
pub use client::ReadMoments;

use crate::boot;
use crate::clock::monotonic;
use crate::context::{Context, Spawn, WorldCounters, nonces};
use crate::error::ServerError;
use crate::holds::Holds;
use crate::pacing::Pacing;
use crate::processor::Processor;
use crate::recall::Recalls;
use crate::world::{ReadOrder, ReadTarget, TimedClient, WorldHandle};
use cards::Cards;
use catalog::{Blob, Catalog, MemoryStore};
use client::{Client, ReadRecords};
use disk::label::RackUuid;
use disk::stack::{self, SyntheticBlobs, SyntheticDrive};
use disk::{Clock, Drive, EmulatedRack, MemoryDrive};
use engine::{PriorityClass, RackPolicy, Rejection};
use futures::future::FutureExt;
use futures::stream::StreamExt;
use model::{BlobId, ClassId, DriveId, GroupId, RackSpec, Time};
use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tracing::subscriber::NoSubscriber;
use workshop::{Spool, Staging};

/// The rack's UUID; nothing else has one here.
const RACK: RackUuid = RackUuid([7; 16]);
/// Bytes of the disks of staged files, and of a spool that no read of a trace uses.
const WORKSHOP_BYTES: u64 = 1 << 30;
/// The maximum wait of a client of a recall: longer than any recall takes.
const WAIT_MAX: Duration = Duration::from_hours(24);

/// A read of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualRead {
    /// The moment when it is ordered.
    pub at: Time,
    /// The number of its blob.
    pub blob: u64,
    /// The blob's group.
    pub group: GroupId,
    /// The drive of each of the blob's stacks, in stack order.
    pub drives: Vec<DriveId>,
    /// Bytes, from the beginning of the blob.
    pub bytes: u64,
}

/// The way of the bytes from the drives to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// As they come, with the payload left out.
    PayloadLeftOut,
    /// As they come.
    Direct,
    /// Through a spool of this number of bytes, in memory.
    Spool(u64),
}

/// A trace, and the rack that serves it.
#[derive(Clone, Debug)]
pub struct VirtualRun {
    /// The rack.
    pub spec: RackSpec,
    /// The operator's settings.
    pub policy: RackPolicy,
    /// The seed for the engine's choices and the drives' physics.
    pub seed: u64,
    /// The servers' network cards.
    pub cards: CardSpec,
    /// The length of each blob.
    pub blob_bytes: u64,
    /// The way of the bytes to clients.
    pub feed: Feed,
    /// The reads, in the order of their moments.
    pub reads: Vec<VirtualRead>,
    /// The start of the measured time.
    pub from: Time,
    /// Its end; `None` is the last answer.
    pub until: Option<Time>,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualOutcome {
    /// The moments of each read, in the order of the trace.
    pub reads: Vec<ReadMoments>,
    /// Drives started in the measured time.
    pub spin_ups: u64,
    /// Energy that all drives used in the measured time, in millijoules.
    pub energy_mj: u64,
    /// The end of the measured time.
    pub to: Time,
}

/// Runs `run` on this thread, in virtual time.
///
/// # Errors
/// [`ServerError`] if the rack has no layout, or the system no runtime.
pub fn run(run: &VirtualRun) -> Result<VirtualOutcome, ServerError> {
    assert!(run.reads.is_sorted_by_key(|read| read.at), "a trace is in the order of its moments");
    // The log would name each refused read; the outcome has them.
    let _unlogged = tracing::subscriber::set_default(NoSubscriber::default());
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|source| ServerError::Io("starting virtual time".into(), source))?;
    runtime.block_on(async {
        let (spawn, mut panicked) = watched_spawn();
        tokio::select! {
            biased;
            Some(panic) = panicked.recv() => resume_unwind(panic),
            outcome = Site::boot(run, spawn).then(|site| async { Ok(site?.play(run).await) }) => outcome,
        }
    })
}

type Panic = Box<dyn Any + Send>;

/// Starts tasks whose panics end the run.
fn watched_spawn() -> (Spawn, mpsc::UnboundedReceiver<Panic>) {
    let (sender, panicked) = mpsc::unbounded_channel();
    let spawn: Spawn = Arc::new(move |task| {
        let sender = sender.clone();
        drop(tokio::spawn(async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let _ = sender.send(panic);
            }
        }));
    });
    (spawn, panicked)
}

/// Starts and energy of all drives so far.
#[derive(Clone, Copy)]
struct DrivesUsed {
    starts: u64,
    energy_mj: u64,
}

/// A server that runs in virtual time.
struct Site {
    world: WorldHandle,
    context: Context,
    clock: Arc<dyn Clock>,
    rack: Arc<EmulatedRack>,
    cards: Arc<Cards>,
    drives: usize,
}

impl Site {
    async fn boot(run: &VirtualRun, spawn: Spawn) -> Result<Self, ServerError> {
        let started = monotonic();
        let catalog = Catalog::open(Arc::new(MemoryStore::new())).await?;
        let clock = boot::clock(&catalog, 0, 1).await?;
        let blobs = SyntheticBlobs::new(RACK, run.spec.code, run.blob_bytes);
        let rack = Arc::new(EmulatedRack::new(&run.spec, run.seed, Arc::clone(&clock), |drive| {
            Arc::new(SyntheticDrive::new(&blobs, run.spec.capacity_bytes(drive))) as Arc<dyn Drive>
        }));
        let disk = |bytes| Arc::new(MemoryDrive::new(bytes)) as Arc<dyn Drive>;
        let spool_bytes = if let Feed::Spool(bytes) = run.feed { bytes } else { WORKSHOP_BYTES };
        let context = Context {
            clock: Arc::clone(&clock),
            wall: Arc::new(move || started.elapsed().as_millis() as u64),
            spawn,
            drives: rack.drives().into(),
            rack_uuid: RACK,
            nonce: nonces(run.seed),
            catalog,
            staging: Staging::new(disk(WORKSHOP_BYTES), WORKSHOP_BYTES),
            small: None,
            spool: Spool::new(disk(spool_bytes * 2), spool_bytes),
            holds: Holds::default(),
            catalog_age: Arc::default(),
            recall_order: Arc::default(),
            pacing: Pacing::default(),
            pin_of: Arc::new(|_, _| None),
            counters: Arc::new(WorldCounters::default()),
            processor: Processor::Host,
            trace: None,
        };
        let (spec, policy) = (run.spec.clone(), run.policy.clone());
        let world = boot::boot(spec, policy, run.seed, &context, rack.clone()).await?;
        let cards = Arc::new(Cards::new(&run.spec, run.cards, Arc::clone(&clock)));
        Ok(Self { world, context, clock, rack, cards, drives: run.spec.drives.len() })
    }

    /// Orders the reads of the trace when they are due, and waits for the end.
    async fn play(self, run: &VirtualRun) -> VirtualOutcome {
        let records = Arc::new(ReadRecords::new(run.reads.len()));
        let mut before = None;
        for (index, read) in run.reads.iter().enumerate() {
            if read.at >= run.from && before.is_none() {
                self.clock.sleep_until(run.from).await;
                before = Some(self.used());
            }
            self.clock.sleep_until(read.at).await;
            self.order(run, index, &records);
        }
        match run.until {
            Some(until) => self.clock.sleep_until(until).await,
            None => records.all_ended().await,
        }
        let (before, after) = (before.unwrap_or_else(|| self.used()), self.used());
        VirtualOutcome {
            reads: records.take(),
            spin_ups: after.starts - before.starts,
            energy_mj: after.energy_mj - before.energy_mj,
            to: self.clock.now(),
        }
    }

    fn order(&self, run: &VirtualRun, index: usize, records: &Arc<ReadRecords>) {
        let read = &run.reads[index];
        let blob = described(run, read);
        let client = Client {
            records: Arc::clone(records),
            index,
            with_payload: run.feed != Feed::PayloadLeftOut,
            blob: blob.blob,
            clock: Arc::clone(&self.clock),
            cards: Arc::clone(&self.cards),
            path: self.cards.path(&read.drives),
            taken: 0,
        };
        if matches!(run.feed, Feed::Spool(_)) {
            let recalls = Recalls::new(self.context.clone(), self.world.clone());
            return (self.context.spawn)(Box::pin(recall(recalls, blob, read.bytes, client)));
        }
        self.world.read(ReadOrder {
            blob,
            range: 0..read.bytes,
            target: ReadTarget::Timed(Box::new(client)),
            priority: PriorityClass::Client,
            job: None,
            while_awake: false,
            refused: Arc::default(),
        });
    }

    fn used(&self) -> DrivesUsed {
        let starts = (0..self.drives as u32).map(|drive| u64::from(self.rack.starts(DriveId(drive)))).sum();
        let energy = self.rack.energy();
        DrivesUsed { starts, energy_mj: energy.standby_mj + energy.spin_up_mj + energy.active_mj }
    }
}

/// Takes `bytes` bytes of `blob` through the spool.
async fn recall(recalls: Recalls, blob: Blob, bytes: u64, mut client: Client) {
    let mut failed = false;
    match recalls.open(blob, 0..bytes, WAIT_MAX).await {
        Ok(mut pieces) => {
            while let Some(piece) = pieces.next().await {
                let Ok(piece) = piece else {
                    failed = true;
                    break;
                };
                failed |= client.take(piece.len() as u64, Some(&piece)).await.is_err();
            }
        }
        Err(error) => {
            tracing::debug!(%error, "a recall of a trace was refused");
            failed = true;
        }
    }
    Box::new(client).ended(failed.then_some(Rejection::QueueFull));
}

/// The blob of `read`, as in a catalog.
fn described(run: &VirtualRun, read: &VirtualRead) -> Blob {
    let code = run.spec.code;
    Blob {
        blob: BlobId::numbered(read.blob),
        group: read.group,
        class: ClassId(0),
        drives: read.drives.clone(),
        code_data: code.data,
        code_parity: code.parity,
        fragment_bytes: code.fragment_bytes,
        payload_bytes: run.blob_bytes,
        stack_bytes: stack::stack_bytes(code, run.blob_bytes),
        members: 1,
        written_ms: 0,
    }
}
