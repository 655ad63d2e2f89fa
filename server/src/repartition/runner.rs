//! A job at work: for each class a loop that asks the planner for an order, does it by ordinary operations of the
//! background lane, and tells what came of it.
//!
//! 1. An order waits for its group like any background work. When a client wakes a group where there is something to
//!    do, the planner asks for what waits to be withdrawn: that ride is free.
//! 2. Orders are done in part. What was done is told, and the planner thinks again.
//! 3. What fails for a reason that passes (a full queue, drives that are away, starts that are used up) is tried again;
//!    what does not, ends the job.
//!
//! Invariants: a write that has begun is awaited, whatever happens, so that nothing is committed behind a rollback;
//! records are in the buffer, in a run, or home, and the tally of what went home must be that of what was read.

use super::buffer::Buffer;
use super::memory::Memory;
use super::patience::{Obstacle, Patience};
use super::plan::{ReadInput, Survey};
use super::reader::{Limits, ReadFault, Reader, Records, heavy};
use super::report::{Outcome, Progress, Request};
use super::source::{BlobReader, SourceError};
use super::writer::{Errand, Load, Run, WriteFault, Writer};
use crate::house::House;
use crate::world::{Awake, MakeError, Means, MemoryReads, Ticket, WorldHandle};
use batch::Tally;
use catalog::{Blob, HIDDEN_BUCKET};
use engine::repartition::{Job, Order};
use engine::{Lane, Rejection};
use futures::FutureExt;
use model::{ClassId, GroupId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How often it is looked, while an operation is on its way, whether the job shall go on, in wall time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Orders between two forecasts, at least. There are more between them the more orders there were: a forecast of what
/// is left goes through all of it, and a job of millions of orders must not spend its time on that.
const FORECAST_EVERY: u64 = 16;
/// The part of all orders so far that lies between two forecasts.
const FORECAST_PART: u64 = 64;

/// What a job is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Run,
    Pause,
    Cancel,
}

/// Why a job ended before its output was complete.
#[derive(Debug)]
pub(super) enum Ended {
    /// It was cancelled.
    Cancelled,
    /// The server is about to end: it begins anew with the next one.
    Closing,
    /// It cannot be done.
    Failed(String),
}

/// What all classes of a job share.
pub(super) struct Work {
    pub means: Means,
    pub world: WorldHandle,
    pub job: u64,
    pub request: Request,
    pub records: Arc<Records>,
    homes: Vec<GroupId>,
    memory: Memory,
    began: Time,
    state: Mutex<State>,
    buffer: Mutex<Buffer>,
    /// Counts orders that have ended, so that who waits asks again.
    turns: watch::Sender<u64>,
    control: watch::Receiver<Control>,
}

/// What changes with every order.
struct State {
    job: Job,
    runs: BTreeMap<(GroupId, GroupId), Vec<Run>>,
    next_run: u64,
    /// The number of each partition's next object.
    numbers: BTreeMap<usize, u64>,
    progress: Progress,
    output: Tally,
    read: Vec<ReadInput>,
    offloaded_in_all: u64,
    ended: Option<Ended>,
    orders: u64,
    /// With which order it is forecast again what the rest takes.
    forecast_at: u64,
    /// What the rest takes, as it was forecast last.
    left: Duration,
}

/// What a job leaves that is complete: its report, and what it read.
pub(super) type Complete = (Outcome, Vec<ReadInput>);

/// Reads, partitions and writes everything that `survey` found; nothing is published.
pub(super) async fn run(
    means: &Means,
    world: &WorldHandle,
    job: u64,
    request: &Request,
    survey: Survey,
    control: watch::Receiver<Control>,
    watch: impl Fn(&Progress) + Send + Sync,
) -> Result<Complete, Ended> {
    let began = means.clock.now();
    let wakes = wakes(world).await?;
    // Rehearses every strategy.
    let (survey, mind) = heavy(move || {
        let mind = survey.job();
        (survey, mind)
    })
    .await;
    let mind = mind.map_err(Ended::Failed)?;
    let planned_objects = survey.plan.objects + survey.lost_objects;
    let classes: Vec<ClassId> = mind.classes().collect();
    let memory = survey.memory;
    let limits = Limits {
        grain_bytes: memory.grain_bytes,
        decoder_bytes: memory.decoder_bytes(survey.spec.format),
        memory_bytes: request.memory_bytes,
    };
    let work = Work {
        means: means.clone(),
        world: world.clone(),
        job,
        request: request.clone(),
        records: Arc::new(Records::new(&request.from.bucket, survey.spec.clone())),
        buffer: Mutex::new(Buffer::new(survey.homes.len(), survey.home_of, survey.memory.grain_bytes)),
        homes: survey.homes.clone(),
        memory,
        began,
        state: Mutex::new(State::new(mind, survey.lost_objects)),
        turns: watch::Sender::new(0),
        control,
    };
    let mut inputs = survey.inputs;
    let (work, watch) = (&work, &watch);
    let loops = classes.into_iter().map(|class| {
        let groups = survey.parts.iter().find(|part| part.class == class).map(|part| part.groups.clone());
        let mine = groups.unwrap_or_default().into_iter().filter_map(|group| Some((group, inputs.remove(&group)?)));
        let queues = mine.map(|(group, inputs)| (group, VecDeque::from(inputs))).collect();
        ClassLoop::new(work, class, queues, limits, memory.object_bytes).run(watch)
    });
    let loops = loops.map(|class| async move {
        // A class that fails so must not take the others along: what they write is awaited.
        let spent = AssertUnwindSafe(class).catch_unwind().await;
        spent.unwrap_or_else(|_| {
            work.end(Ended::Failed("it failed in a way that must not be; please report this".into()));
            Spent::default()
        })
    });
    let spent = futures::future::join_all(loops).await;
    work.outcome(planned_objects, wakes, &spent).await
}

/// Groups that were woken for the background, and for others.
async fn wakes(world: &WorldHandle) -> Result<[u64; 2], Ended> {
    let all = world.ask(|rack, _| rack.stats().group_wakes).await.ok_or(Ended::Closing)?;
    let mut wakes = [0; 2];
    for (lane, count) in Lane::ALL.iter().zip(all) {
        wakes[usize::from(*lane != Lane::Background)] += count;
    }
    Ok(wakes)
}

impl State {
    fn new(job: Job, lost_objects: u64) -> Self {
        Self {
            job,
            runs: BTreeMap::new(),
            next_run: 0,
            numbers: BTreeMap::new(),
            progress: Progress { lost_objects, ..Progress::default() },
            output: Tally::default(),
            read: Vec::new(),
            offloaded_in_all: 0,
            ended: None,
            orders: 0,
            forecast_at: 0,
            left: Duration::ZERO,
        }
    }
}

impl Work {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn home_number(&self, group: GroupId) -> Option<usize> {
        self.homes.iter().position(|home| *home == group)
    }

    /// The most that the plan may be told of one load: a run is no more than the grain.
    fn told_at_most(&self, errand: Errand) -> u64 {
        match errand {
            Errand::Home(_) => u64::MAX,
            Errand::Run { .. } => self.memory.grain_bytes,
        }
    }

    /// Takes from the buffer what is to be carried, and encodes it; nothing if there is nothing. `before` is a load
    /// that will be written first.
    async fn load(&self, writer: &Writer, errand: Errand, before: Option<&Load>) -> Result<Option<Load>, WriteFault> {
        let home = self.home_number(errand.home()).expect("what is carried has a home");
        let most = match errand {
            Errand::Home(_) => self.memory.object_bytes,
            Errand::Run { .. } => self.memory.grain_bytes,
        };
        let taken = self.buffer().take(home, most);
        if taken.is_empty() {
            return Ok(None);
        }
        let load = match errand {
            Errand::Home(group) => {
                let numbers = self.state().numbers.clone();
                let before = |partition| before.map_or(0, |load| load.objects_of(partition));
                let number = |partition| numbers.get(&partition).copied().unwrap_or(0) + before(partition);
                writer.load_home(group, taken, number).await?
            }
            Errand::Run { .. } => {
                let number = {
                    let mut state = self.state();
                    state.next_run += 1;
                    state.next_run
                };
                writer.load_run(errand, taken, number).await?
            }
        };
        Ok(Some(load))
    }

    /// What a class carries after `load`, as far as that is certain.
    fn errand_behind(&self, class: ClassId, load: &Load) -> Option<Errand> {
        let home = self.home_number(load.errand.home()).expect("what is carried has a home");
        let told = self.buffer().told(home, load.taken_bytes(), self.told_at_most(load.errand));
        match self.state().job.ahead(class, told)? {
            Order::BringHome { group, .. } => Some(Errand::Home(group)),
            Order::Offload { on, target, .. } => Some(Errand::Run { on, target }),
            Order::Read { .. } | Order::Refill { .. } | Order::Wait | Order::Done => None,
        }
    }

    /// The job ends, if it has not already: all classes come to their end.
    fn end(&self, ended: Ended) {
        self.state().ended.get_or_insert(ended);
        self.turns.send_modify(|turns| *turns += 1);
    }

    /// A class waits for this, or for nothing any more.
    fn waits(&self, reason: Option<String>) {
        if let Some(reason) = reason {
            self.state().progress.waits = reason;
        }
    }

    /// An order has ended: what is buffered is within bounds, and who waits may ask again.
    fn turn(&self) -> Progress {
        let (held, peak) = {
            let buffer = self.buffer();
            (buffer.held_bytes(), buffer.peak_bytes())
        };
        // The eighth was set aside for runs that are back.
        let most = self.memory.buffer_bytes + self.memory.buffer_bytes / 8;
        assert!(held <= most, "{held} bytes are buffered, and {} are allowed", self.memory.buffer_bytes);
        self.turns.send_modify(|turns| *turns += 1);
        let mut state = self.state();
        if state.orders >= state.forecast_at {
            state.left = state.job.forecast().total();
            state.forecast_at = state.orders + FORECAST_EVERY.max(state.orders / FORECAST_PART);
        }
        state.orders += 1;
        let left = state.left;
        let mut choices: Vec<String> = Vec::new();
        for class in state.job.classes().collect::<Vec<_>>() {
            let choice = state.job.choice(class).to_string();
            if !choices.contains(&choice) {
                choices.push(choice);
            }
        }
        let progress = &mut state.progress;
        progress.buffered_bytes = held;
        progress.peak_buffered_bytes = peak;
        progress.strategy = choices.join(", ");
        progress.left_s = self.means.clock.to_wall(left).as_secs_f64();
        let gone = self.means.clock.now().since(self.began).as_secs_f64();
        progress.done = gone / (gone + left.as_secs_f64()).max(f64::MIN_POSITIVE);
        progress.clone()
    }

    async fn outcome(&self, planned_objects: u64, wakes_before: [u64; 2], spent: &[Spent]) -> Result<Complete, Ended> {
        if let Some(ended) = self.state().ended.take() {
            return Err(ended);
        }
        let wakes_after = wakes(&self.world).await?;
        let mut state = self.state();
        assert!(state.job.done(), "the classes are done, and not everything is home");
        self.records.finish().map_err(|error| Ended::Failed(error.to_string()))?;
        let (input, output) = (self.records.tally(), state.output);
        if input != output {
            return Err(Ended::Failed(format!(
                "{} records were read and {} written, or they are not the same; nothing is published. Please report \
                 this",
                input.rows, output.rows
            )));
        }
        let ended_objects = state.read.len() as u64 + state.progress.lost_objects;
        if ended_objects != planned_objects {
            return Err(Ended::Failed(format!(
                "{ended_objects} objects of {planned_objects} were read to their end; nothing is published. Please \
                 report this"
            )));
        }
        let hours = |span: Duration| span.as_secs_f64() / 3600.0;
        let sum = |of: fn(&Spent) -> Duration| hours(spent.iter().map(of).sum());
        let progress = &state.progress;
        let outcome = Outcome {
            strategy: progress.strategy.clone(),
            strategy_changes: state.job.changes(),
            hours: hours(self.means.clock.now().since(self.began)),
            reading_hours: sum(|spent| spent.ticket.reading()),
            writing_hours: sum(|spent| spent.ticket.writing()),
            verifying_hours: sum(|spent| spent.ticket.verifying()),
            switching_hours: sum(|spent| spent.switching),
            waiting_hours: sum(|spent| spent.waiting),
            switches: wakes_after[0] - wakes_before[0],
            other_switches: wakes_after[1] - wakes_before[1],
            input_bytes: progress.input_bytes,
            offloaded_bytes: state.offloaded_in_all,
            output_bytes: progress.output_bytes,
            output_objects: progress.output_objects,
            input_objects: state.read.len() as u64,
            lost_objects: progress.lost_objects,
            rows: output.rows,
            tally: format!("{:032x}", output.sum),
            peak_buffered_bytes: progress.peak_buffered_bytes,
        };
        Ok((outcome, std::mem::take(&mut state.read)))
    }
}

/// What a class took.
#[derive(Default)]
struct Spent {
    ticket: Arc<Ticket>,
    switching: Duration,
    waiting: Duration,
}

/// What an order came to.
enum Came {
    /// Something was done, and told.
    On,
    /// Nothing, because something is in the way that passes.
    Again(Obstacle, String),
}

/// One class of a job.
struct ClassLoop<'a> {
    work: &'a Work,
    class: ClassId,
    reader: Reader,
    writer: Writer,
    /// What is encoded and not yet with the rack.
    ahead: Option<Load>,
    reads: MemoryReads,
    ticket: Arc<Ticket>,
    awake: watch::Receiver<Awake>,
    /// Since when no group is ready.
    dark_since: Option<Time>,
    switching: Duration,
    /// How long it stood before an obstacle.
    waiting: Duration,
}

impl<'a> ClassLoop<'a> {
    fn new(
        work: &'a Work,
        class: ClassId,
        queues: BTreeMap<GroupId, VecDeque<super::plan::Input>>,
        limits: Limits,
        object_bytes: u64,
    ) -> Self {
        let ticket = Arc::<Ticket>::default();
        let reads = MemoryReads::new(work.means.clone(), work.world.clone()).with_ticket(&ticket);
        let blobs = BlobReader::new(reads.clone());
        let reader = Reader::new(work.means.clone(), Arc::clone(&work.records), blobs, queues, limits);
        let writer = Writer {
            means: work.means.clone(),
            world: work.world.clone(),
            ticket: Arc::clone(&ticket),
            records: Arc::clone(&work.records),
            job: work.job,
            to: work.request.to.clone(),
            object_bytes,
            decoder_bytes: limits.decoder_bytes,
        };
        let awake = work.world.awake();
        let (ahead, dark_since, switching, waiting) = (None, None, Duration::ZERO, Duration::ZERO);
        Self { work, class, reader, writer, ahead, reads, ticket, awake, dark_since, switching, waiting }
    }

    async fn run(mut self, watch: &(impl Fn(&Progress) + Send + Sync)) -> Spent {
        let mut turns = self.work.turns.subscribe();
        let mut patience = Patience::default();
        self.look();
        while self.may_go_on().await {
            turns.borrow_and_update();
            self.look();
            let order = self.work.state().job.next(self.class);
            match order {
                Order::Done => break,
                Order::Wait => {
                    self.reader.rest();
                    let _ = turns.changed().await;
                    continue;
                }
                order => match self.perform(order).await {
                    Ok(Came::On) => self.work.waits(patience.went_on()),
                    Ok(Came::Again(obstacle, reason)) => {
                        self.withdrawn();
                        match patience.stands_before(obstacle, reason) {
                            Ok(waits) => self.work.waits(waits),
                            Err(reason) => {
                                self.work.end(Ended::Failed(reason));
                                break;
                            }
                        }
                        watch(&self.work.turn());
                        self.pause(obstacle.pause()).await;
                    }
                    Err(ended) => {
                        self.withdrawn();
                        self.work.end(ended);
                        break;
                    }
                },
            }
            watch(&self.work.turn());
        }
        self.reader.rest();
        self.work.turns.send_modify(|turns| *turns += 1);
        self.count_dark(None);
        Spent { ticket: self.ticket, switching: self.switching, waiting: self.waiting }
    }

    /// Waits while the job is paused; whether it goes on then.
    async fn may_go_on(&mut self) -> bool {
        let mut control = self.work.control.clone();
        let mut turns = self.work.turns.subscribe();
        loop {
            if self.work.state().ended.is_some() {
                return false;
            }
            let now = *control.borrow_and_update();
            match now {
                Control::Run => return true,
                Control::Cancel => {
                    self.work.end(Ended::Cancelled);
                    return false;
                }
                Control::Pause => {
                    self.reader.rest();
                    let changed = tokio::select! {
                        changed = control.changed() => changed,
                        // Another class may have ended the job with what it had in service.
                        changed = turns.changed() => changed,
                    };
                    if changed.is_err() {
                        self.work.end(Ended::Closing);
                        return false;
                    }
                }
            }
        }
    }

    async fn pause(&mut self, pause: Duration) {
        let mut control = self.work.control.clone();
        if *control.borrow_and_update() != Control::Run {
            return;
        }
        self.count_dark(None);
        let began = self.work.means.clock.now();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = control.changed() => {}
        }
        self.waiting += self.work.means.clock.now().since(began);
    }

    /// The order in hand came to nothing.
    fn withdrawn(&mut self) {
        let awake = self.group_awake();
        let mut state = self.work.state();
        if state.job.in_hand(self.class).is_some() {
            state.job.withdrawn(self.class, awake);
        }
    }

    fn group_awake(&self) -> Option<GroupId> {
        self.awake.borrow().get(self.class.index()).copied().flatten()
    }

    /// Tells the planner which group is ready; whether what waits should be withdrawn.
    fn look(&mut self) -> bool {
        let now = self.awake.borrow_and_update().get(self.class.index()).copied().flatten();
        self.count_dark(Some(now.is_none()));
        self.work.state().job.awake(self.class, now)
    }

    /// Adds up how long no group is ready.
    fn count_dark(&mut self, dark: Option<bool>) {
        let now = self.work.means.clock.now();
        if let Some(since) = self.dark_since.take() {
            self.switching += now.since(since);
        }
        if dark == Some(true) {
            self.dark_since = Some(now);
        }
    }

    /// Does `op` while the planner watches which group is ready, and the user whether it shall go on.
    async fn riding<T>(&mut self, op: impl Future<Output = T>) -> T {
        let mut awake = self.awake.clone();
        let control = self.work.control.clone();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::pin!(op);
        loop {
            tokio::select! {
                biased;
                done = &mut op => return done,
                changed = awake.changed() => {
                    if changed.is_err() {
                        return op.await;
                    }
                    if self.look() {
                        self.work.world.withdraw(&self.ticket);
                    }
                }
                _ = looks.tick() => {
                    // Again and again: what is done by the processor just now may queue something later.
                    if *control.borrow() != Control::Run || self.work.state().ended.is_some() {
                        self.work.world.withdraw(&self.ticket);
                    }
                }
            }
        }
    }

    async fn perform(&mut self, order: Order) -> Result<Came, Ended> {
        match order {
            Order::Read { group, bytes } => self.read(group, bytes).await,
            Order::BringHome { group, .. } => self.carry(Errand::Home(group)).await,
            Order::Offload { on, target, .. } => self.carry(Errand::Run { on, target }).await,
            Order::Refill { on, target, bytes } => self.refill(on, target, bytes).await,
            Order::Wait | Order::Done => Ok(Came::On),
        }
    }

    async fn read(&mut self, group: GroupId, bytes: u64) -> Result<Came, Ended> {
        let work = self.work;
        // The reader is lent to the operation, so that the rest of the loop can watch meanwhile.
        let nothing = BlobReader::new(self.reads.clone());
        let idle =
            Reader::new(work.means.clone(), Arc::clone(&work.records), nothing, BTreeMap::new(), self.reader.limits());
        let mut reader = std::mem::replace(&mut self.reader, idle);
        let (reader, done) = self
            .riding(async move {
                let done = reader.read(group, bytes, &work.buffer).await;
                (reader, done)
            })
            .await;
        self.reader = reader;
        let fault = done.fault;
        let nothing = done.input_bytes == 0 && done.untold.bytes() == 0;
        let told = work.buffer().settle(done.untold);
        {
            let mut state = work.state();
            let progress = &mut state.progress;
            progress.input_bytes += done.input_bytes;
            progress.rows += done.rows;
            progress.lost_objects += done.lost_objects;
            state.read.extend(done.read);
            if !nothing || fault.is_none() {
                let output: Vec<(GroupId, u64)> =
                    told.iter().map(|(home, bytes)| (work.homes[*home], *bytes)).collect();
                state.job.was_read(self.class, done.input_bytes, &output);
            }
        }
        match fault {
            None => Ok(Came::On),
            Some(fault) => {
                let again = read_fault(fault)?;
                if nothing { Ok(again) } else { Ok(Came::On) }
            }
        }
    }

    /// Carries what is buffered for a home there, or elsewhere as a run. What will be carried after it is encoded
    /// meanwhile.
    async fn carry(&mut self, errand: Errand) -> Result<Came, Ended> {
        self.reader.rest();
        let (work, writer) = (self.work, self.writer.clone());
        let load = match self.ahead.take() {
            Some(load) if load.errand == errand => Some(load),
            other => {
                if let Some(Load { taken, .. }) = other {
                    work.buffer().put_back(taken);
                }
                let loaded = self.riding(work.load(&writer, errand, None)).await;
                match loaded {
                    Ok(load) => load,
                    Err(fault) => return write_fault(&fault),
                }
            }
        };
        let Some(load) = load else {
            // The plan believes in a little more than there is; it goes with the account alone.
            self.carried(errand, 0);
            return Ok(Came::On);
        };
        let next = work.errand_behind(self.class, &load);
        let ahead = async {
            match next {
                Some(next) => work.load(&writer, next, Some(&load)).await,
                None => Ok(None),
            }
        };
        // What fails in a way that must not be fails when the write has ended.
        let ahead = AssertUnwindSafe(ahead).catch_unwind();
        let (written, ahead) = self.riding(futures::future::join(writer.write(&load), ahead)).await;
        let ahead = ahead.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match written {
            Ok(blob) => {
                self.ahead = ahead.map_err(failed)?;
                self.wrote(load, blob);
                Ok(Came::On)
            }
            Err(fault) => {
                // What cannot be encoded ends the job, whatever became of the write.
                if let Some(ahead) = ahead.map_err(failed)? {
                    work.buffer().put_back(ahead.taken);
                }
                self.ahead = Some(load);
                write_fault(&fault)
            }
        }
    }

    /// A load is written: it is buffered no more.
    fn wrote(&self, mut load: Load, blob: Blob) {
        let bytes = load.taken_bytes();
        drop(std::mem::take(&mut load.taken));
        let told = self.carried(load.errand, bytes);
        let mut state = self.work.state();
        match load.errand {
            Errand::Home(_) => {
                for partition in load.partitions() {
                    *state.numbers.entry(partition).or_default() += 1;
                    state.progress.output_objects += 1;
                }
                state.progress.output_bytes += load.object_bytes();
                state.output += load.tally();
            }
            Errand::Run { on, target } => {
                state.offloaded_in_all += blob.payload_bytes;
                state.progress.offloaded_bytes += told;
                state.runs.entry((on, target)).or_default().push(load.as_run(blob, told));
            }
        }
    }

    /// Tells the planner that of what was buffered `bytes` are carried away; how much that is for the plan.
    fn carried(&self, errand: Errand, bytes: u64) -> u64 {
        let home = self.work.home_number(errand.home()).expect("what is carried has a home");
        let told = self.work.buffer().release(home, bytes, self.work.told_at_most(errand));
        let mut state = self.work.state();
        match errand {
            Errand::Home(_) => state.job.was_brought_home(self.class, told),
            Errand::Run { .. } => state.job.was_offloaded(self.class, told),
        }
        told
    }

    async fn refill(&mut self, on: GroupId, target: GroupId, bytes: u64) -> Result<Came, Ended> {
        self.reader.rest();
        let work = self.work;
        let home = work.home_number(target).expect("what was offloaded has a home");
        let run = {
            let mut state = work.state();
            let runs = state.runs.entry((on, target)).or_default();
            let fits = runs.iter().position(|run| run.counted <= bytes);
            fits.map(|index| runs.remove(index))
        };
        let Some(run) = run else {
            // What is left of the run is an account without bytes.
            work.buffer().refill(home, bytes, Vec::new()).map_err(failed)?;
            work.state().job.was_refilled(self.class, bytes);
            return Ok(Came::On);
        };
        let reads = self.reads.clone();
        // Its stacks may have been rebuilt on other drives since.
        let known = work.means.catalog.blob(run.blob.blob).await.map_err(failed)?;
        let blob = known.unwrap_or_else(|| run.blob.clone());
        let read = self.riding(read_run(reads, &run, &blob)).await;
        let pieces = match read {
            Ok(pieces) => pieces,
            Err(fault) => {
                work.state().runs.entry((on, target)).or_default().push(run);
                return read_fault(fault);
            }
        };
        work.buffer().refill(home, run.counted, pieces).map_err(failed)?;
        {
            let mut state = work.state();
            state.progress.offloaded_bytes -= run.counted;
            state.job.was_refilled(self.class, run.counted);
        }
        let house = House::new(work.means.clone(), work.world.clone(), Duration::ZERO);
        for (_, key, _) in &run.members {
            let displaced = work.means.catalog.delete_object(HIDDEN_BUCKET, key).await.map_err(failed)?;
            house.displaced(displaced);
        }
        Ok(Came::On)
    }
}

/// The pieces of a run, by partition.
async fn read_run(
    reads: MemoryReads,
    run: &Run,
    blob: &Blob,
) -> Result<Vec<(usize, arrow::array::RecordBatch)>, ReadFault> {
    let mut blobs = BlobReader::new(reads);
    let end = run.members.last().map_or(0, |(_, _, range)| range.end);
    let mut pieces = Vec::new();
    for (partition, key, range) in &run.members {
        let bytes = blobs.read(blob, range.clone(), end).await;
        let bytes = bytes.map_err(|source| ReadFault::Bytes { name: format!("run {key}"), source })?;
        let batches = heavy(move || batch::decode_run(&bytes)).await?;
        pieces.extend(batches.into_iter().map(|batch| (*partition, batch)));
    }
    Ok(pieces)
}

#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
fn failed(error: impl ToString) -> Ended {
    Ended::Failed(error.to_string())
}

/// What to do about bytes that did not come.
fn read_fault(fault: ReadFault) -> Result<Came, Ended> {
    let told = fault.to_string();
    let ReadFault::Bytes { source, .. } = fault else { return Err(Ended::Failed(told)) };
    match source {
        SourceError::Refused(reason) => refused(reason, told),
        SourceError::Moving => Ok(Came::Again(Obstacle::Room, told)),
        SourceError::Staged(_) | SourceError::Catalog(_) => Err(Ended::Failed(told)),
    }
}

/// What to do about bytes that were not written.
fn write_fault(fault: &WriteFault) -> Result<Came, Ended> {
    let told = fault.to_string();
    match fault {
        WriteFault::Make { source: MakeError::Withdrawn, .. } => Ok(Came::Again(Obstacle::None, told)),
        WriteFault::Make { source: MakeError::Refused(reason), .. } => refused(*reason, told),
        WriteFault::Make { source: MakeError::Catalog(_), .. } | WriteFault::Records(_) | WriteFault::Other(_) => {
            Err(Ended::Failed(told))
        }
    }
}

fn refused(reason: Rejection, told: String) -> Result<Came, Ended> {
    match reason {
        // Withdrawn, or there is no room in the queue just now.
        Rejection::QueueFull => Ok(Came::Again(Obstacle::Turn, told)),
        Rejection::StartBudgetSpent => Ok(Came::Again(Obstacle::Starts, told)),
        Rejection::TooManyDrivesAway | Rejection::WriteFailed => Ok(Came::Again(Obstacle::Drives, told)),
        Rejection::Closing => Err(Ended::Closing),
        // What was given up may be reclaimed meanwhile.
        Rejection::NoRoom => Ok(Came::Again(Obstacle::Room, format!("{told}; remove something there, and ask again"))),
        Rejection::DataLost | Rejection::SourceUnreadable | Rejection::Malformed => Err(Ended::Failed(told)),
    }
}
