//! The array: a client that puts one record after the other, and the background work of its system.

use super::levels::{Admission, Compaction, Levels};
use super::log::{Asked, Rotation};
use super::power::PoolPower;
use super::spindle::{Disk, Distances, Place};
use super::task::Task;
use super::{ArrayRun, ArraySystem, KeyOrder};
use crate::agenda::Agenda;
use core::time::Duration;
use engine::shift::{LogId, PoolDrive, ShiftStats};
use model::{Attempt, Rng, Time};

/// A stage of a disk (the paper's Table I); a disk without a stage is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The disk takes the puts.
    Log,
    /// A log is read from the disk.
    ReadLog,
    /// A tree is written to the disk.
    WriteTree,
}

/// A stage of a disk, with its beginning and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSpan {
    /// The disk.
    pub disk: usize,
    /// The stage.
    pub stage: Stage,
    /// The beginning.
    pub from: Time,
    /// The end.
    pub to: Time,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct ArrayOutcome {
    /// The time of all puts, until the last one is durable.
    pub took: Duration,
    /// Bytes put.
    pub put_bytes: u64,
    /// Bytes written to disks, by puts and background work together.
    pub written_bytes: u64,
    /// Energy of all disks in that time, in millijoules.
    pub energy_mj: u64,
    /// The time for which each disk served requests, summed over all disks.
    pub busy: Duration,
    /// Starts of sleeping disks.
    pub starts: u32,
    /// The number of finished background tasks, and their total time.
    pub background: (u64, Duration),
    /// The counters of the rotation; zeros for other systems.
    pub shift: ShiftStats,
    /// The stages of the disks in the first minute, for pictures; only for Workload Shifting.
    pub stages: Vec<StageSpan>,
}

/// Stages that begin later are not recorded.
const PICTURED: Time = Time::from_secs(60);

enum Event {
    /// The put in progress is durable.
    Put,
    /// A chunk of the background work in this place has moved.
    Chunk(usize),
    /// The client may put again.
    Client,
    /// A started disk is at speed.
    Awoke(PoolDrive),
    /// The rotation's deadline.
    Deadline,
}

enum Owner {
    Log(LogId, Attempt),
    Striped,
    Flush(Compaction),
    Levels(Compaction),
}

/// Separates the random stream of keys from those of platters.
const KEYS: u64 = u64::from_le_bytes(*b"put keys");

struct Work {
    task: Task,
    owner: Owner,
    since: Time,
}

enum State {
    Shifting(Box<Rotation>),
    Striped { log: u64, waiting: Vec<u64> },
    Levels(Box<Levels>),
}

struct Array<'a> {
    run: &'a ArrayRun,
    now: Time,
    agenda: Agenda<Event>,
    disks: Vec<Disk>,
    state: State,
    work: Vec<Option<Work>>,
    puts_left: u64,
    /// True if the client waits for background work.
    blocked: bool,
    /// The time when the current or last put began.
    put_began: Time,
    /// A compaction that waits until a memtable is written.
    paused: Option<usize>,
    /// The deadline in the agenda.
    deadline: Time,
    keys: Rng,
    outcome: ArrayOutcome,
}

/// Runs `run`; it ends when the last put is durable.
pub fn run(run: &ArrayRun) -> ArrayOutcome {
    assert!(run.disks > 0 && run.puts > 0 && run.put_bytes > 0, "something is put somewhere");
    let mut array = Array::new(run);
    array.rotated(Rotation::boot);
    array.put();
    while array.puts_left > 0 {
        let Some((now, event)) = array.agenda.pop() else { panic!("a client that is blocked waits for something") };
        array.now = now;
        match event {
            Event::Put => array.is_put(),
            Event::Chunk(place) => array.step(place),
            Event::Client => array.put(),
            Event::Awoke(drive) => array.rotated(|rotation, now| rotation.awoke(now, drive)),
            Event::Deadline => array.rotated(Rotation::deadline_reached),
        }
    }
    array.ended()
}

impl<'a> Array<'a> {
    fn new(run: &'a ArrayRun) -> Self {
        let state = match run.system {
            ArraySystem::WorkloadShifting { model, overrun } => {
                // A log in key order is already a tree.
                let run = ArrayRun { transform: run.transform && run.keys == KeyOrder::Random, ..run.clone() };
                State::Shifting(Box::new(Rotation::new(&run, (model, overrun))))
            }
            ArraySystem::LogRaid0 => State::Striped { log: 0, waiting: Vec::new() },
            ArraySystem::LevelDb => State::Levels(Box::new(Levels::new(run.put_bytes, run.cache_bytes))),
        };
        let outcome = ArrayOutcome {
            took: Duration::ZERO,
            put_bytes: 0,
            written_bytes: 0,
            energy_mj: 0,
            busy: Duration::ZERO,
            starts: 0,
            background: (0, Duration::ZERO),
            shift: ShiftStats::default(),
            stages: Vec::new(),
        };
        let disk = |number| Disk::new(&run.disk, distances(run), run.seed, number);
        Self {
            run,
            now: Time::ZERO,
            agenda: Agenda::default(),
            disks: (0..u64::from(run.disks)).map(disk).collect(),
            state,
            work: Vec::new(),
            puts_left: run.puts,
            blocked: false,
            put_began: Time::ZERO,
            paused: None,
            deadline: Time::MAX,
            keys: Rng::new(run.seed ^ KEYS),
            outcome,
        }
    }

    /// Lets the client put, if the system admits it.
    fn put(&mut self) {
        self.blocked = false;
        let admission = match &self.state {
            State::Shifting(rotation) if rotation.duty().is_none() => Admission::Blocked,
            State::Levels(levels) => levels.admits(),
            _ => Admission::Now,
        };
        match admission {
            Admission::Now => self.write(),
            Admission::After(pause) => {
                let at = self.now;
                self.now = at + pause;
                self.write();
                self.now = at;
            }
            Admission::Blocked => self.blocked = true,
        }
    }

    fn write(&mut self) {
        let (all, now) = (self.disks.len(), self.now);
        self.put_began = now;
        let (over, cost) = match &self.state {
            State::Shifting(rotation) => {
                let Some(disk) = rotation.duty() else { unreachable!("a put was admitted") };
                (disk..disk + 1, self.run.alone)
            }
            _ => (0..all, self.run.striped),
        };
        let share = self.run.put_bytes.div_ceil(over.len() as u64);
        let takes = if self.run.sync { cost.of(share) } else { self.run.disk.transfer(share) };
        let ends = self.disks[over].iter_mut().map(|disk| disk.serve(now, Place::Log, takes));
        let end = ends.max().unwrap_or(now);
        self.agenda.plan(end, Event::Put);
    }

    fn is_put(&mut self) {
        self.puts_left -= 1;
        let bytes = self.run.put_bytes;
        self.outcome.put_bytes += bytes;
        self.outcome.written_bytes += bytes;
        match &mut self.state {
            State::Shifting(_) => self.rotated(|rotation, now| rotation.appended(now, bytes)),
            State::Striped { log, waiting } => {
                *log += bytes;
                if *log >= self.run.log_bytes {
                    let full = std::mem::take(log);
                    if self.run.transform && self.run.keys == KeyOrder::Random {
                        waiting.push(full);
                    }
                }
                self.begin_striped();
            }
            State::Levels(levels) => {
                let key = match self.run.keys {
                    KeyOrder::Random => self.keys.next_u64(),
                    KeyOrder::Sequential => self.run.puts - self.puts_left,
                };
                levels.put(key);
                self.begin_compaction();
            }
        }
        if self.puts_left > 0 {
            self.put_next();
        }
    }

    /// Issues the next put as soon as its client is ready.
    fn put_next(&mut self) {
        let at = self.run.pace.map_or(self.now, |pace| self.put_began + pace);
        if at > self.now { self.agenda.plan(at, Event::Client) } else { self.put() }
    }

    /// Reports an event to the rotation, if the system has one; begins the tasks that the rotation requests.
    fn rotated(&mut self, happens: impl FnOnce(&mut Rotation, Time) -> Vec<Asked>) {
        let State::Shifting(rotation) = &mut self.state else { return };
        let asked = happens(rotation, self.now);
        for (at, drive) in rotation.starting.drain(..) {
            self.agenda.plan(at, Event::Awoke(drive));
        }
        let deadline = rotation.shift().next_deadline();
        if deadline != self.deadline && deadline < Time::MAX {
            self.agenda.plan(deadline.max(self.now), Event::Deadline);
        }
        self.deadline = deadline;
        for Asked { log, attempt, task } in asked {
            self.begin(task, Owner::Log(log, attempt));
        }
    }

    /// Begins the next transformation on the stripe, which transforms one log after the other.
    fn begin_striped(&mut self) {
        let requests = self.run.requests;
        let (all, is_busy) = (self.disks.len(), self.is_busy());
        let State::Striped { waiting, .. } = &mut self.state else { return };
        if is_busy || waiting.is_empty() {
            return;
        }
        let bytes = waiting.remove(0);
        let task = Task {
            from: 0..all,
            to: 0..all,
            read_left: bytes,
            write_left: bytes,
            merges: false,
            wrote: false,
            requests,
        };
        self.begin(task, Owner::Striped);
    }

    /// Begins the next background work of LevelDB. Its single thread writes a full memtable before it continues a
    /// compaction.
    fn begin_compaction(&mut self) {
        let (all, requests) = (self.disks.len(), self.run.requests);
        let is_flushing = self.work.iter().flatten().any(|work| matches!(work.owner, Owner::Flush(_)));
        let is_busy = self.is_busy();
        let State::Levels(levels) = &mut self.state else { return };
        let task = |of: &Compaction| {
            let (read_left, write_left) = (of.read_bytes, of.write_bytes);
            Task { from: 0..all, to: 0..all, read_left, write_left, merges: true, wrote: true, requests }
        };
        if is_flushing {
            return;
        }
        if let Some(flush) = levels.flush() {
            self.begin(task(&flush), Owner::Flush(flush));
        } else if let Some(paused) = self.paused.take() {
            self.step(paused);
        } else if !is_busy && let Some(compaction) = levels.compact() {
            self.begin(task(&compaction), Owner::Levels(compaction));
        }
    }

    /// True if the compaction at `place` must wait for a memtable.
    fn is_to_pause(&self, place: usize) -> bool {
        let owner = |at: &Option<Work>| {
            at.as_ref().map(|work| &work.owner).is_some_and(|owner| matches!(owner, Owner::Flush(_)))
        };
        matches!(self.work[place], Some(Work { owner: Owner::Levels(_), .. })) && self.work.iter().any(owner)
    }

    fn is_busy(&self) -> bool {
        self.work.iter().any(Option::is_some)
    }

    fn begin(&mut self, task: Task, owner: Owner) {
        self.outcome.written_bytes += task.write_left;
        let work = Some(Work { task, owner, since: self.now });
        let place = self.work.iter().position(Option::is_none).unwrap_or(self.work.len());
        if place == self.work.len() {
            self.work.push(work);
        } else {
            self.work[place] = work;
        }
        self.step(place);
    }

    /// Executes the next chunk of the work at `place`, or ends the work.
    fn step(&mut self, place: usize) {
        if self.is_to_pause(place) {
            self.paused = Some(place);
            return;
        }
        let Some(work) = self.work[place].as_mut() else { return };
        let read_before = work.task.read_left;
        if let Some(end) = work.task.step(&mut self.disks, &self.run.disk, self.now) {
            if read_before == 0 && !work.task.merges {
                // The log is sorted; from here on its tree is written.
                note(&mut self.outcome.stages, work.task.to.start, Stage::WriteTree, self.now, end);
            } else if !work.task.merges {
                note(&mut self.outcome.stages, work.task.from.start, Stage::ReadLog, self.now, end);
            }
            self.agenda.plan(end, Event::Chunk(place));
            return;
        }
        let Some(Work { owner, since, .. }) = self.work[place].take() else { return };
        self.outcome.background.0 += 1;
        self.outcome.background.1 += self.now.since(since);
        match (owner, &mut self.state) {
            (Owner::Log(log, attempt), State::Shifting(_)) => {
                self.rotated(|rotation, now| rotation.transformed(now, (log, attempt)));
            }
            (Owner::Flush(compaction) | Owner::Levels(compaction), State::Levels(levels)) => {
                levels.apply(compaction);
                self.begin_compaction();
            }
            _ => self.begin_striped(),
        }
        if self.blocked {
            self.put();
        }
    }

    fn ended(mut self) -> ArrayOutcome {
        self.outcome.took = self.now.since(Time::ZERO);
        self.outcome.busy = self.disks.iter().map(|disk| disk.busy().min(self.outcome.took)).sum();
        let awake = PoolPower::new(self.run.disk.power, self.run.disks);
        let power = if let State::Shifting(rotation) = &self.state { &rotation.power } else { &awake };
        self.outcome.starts = power.starts();
        let energy = |(at, disk)| power.energy_mj(self.now, at, disk);
        self.outcome.energy_mj = self.disks.iter().enumerate().map(energy).sum();
        if let State::Shifting(rotation) = &self.state {
            self.outcome.shift = rotation.shift().stats();
            let duties = &rotation.duties;
            let ends = duties.iter().skip(1).map(|(at, _)| *at).chain([self.now]);
            for ((from, disk), to) in duties.iter().zip(ends) {
                note(&mut self.outcome.stages, *disk, Stage::Log, *from, to);
            }
        }
        self.outcome
    }
}

/// The distances between the places of a disk. See the head of `shifting.rs`.
fn distances(run: &ArrayRun) -> Distances {
    let region = (run.puts * run.put_bytes) / u64::from(run.disks);
    match run.system {
        ArraySystem::LevelDb => {
            // The mean distance of places drawn evenly.
            let among = run.disk.seek(region / 3);
            Distances { logs: among, tree: among }
        }
        ArraySystem::LogRaid0 => {
            let logs = run.disk.seek(run.log_bytes / u64::from(run.disks));
            Distances { logs, tree: run.disk.seek(region) }
        }
        ArraySystem::WorkloadShifting { .. } => {
            Distances { logs: run.disk.seek(run.log_bytes), tree: run.disk.seek(region) }
        }
    }
}

/// Records a stage; merges it with the last stage of its disk if that is the same stage and ended just then.
fn note(stages: &mut Vec<StageSpan>, disk: usize, stage: Stage, from: Time, to: Time) {
    let last = stages.iter_mut().rev().find(|span| span.disk == disk);
    if let Some(span) = last.filter(|span| span.stage == stage && span.to == from) {
        span.to = to;
    } else if from < PICTURED {
        stages.push(StageSpan { disk, stage, from, to });
    }
}
