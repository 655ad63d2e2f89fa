//! The array: a client that puts one record after the other, and the background work of its system.

use super::levels::{Admission, Compaction, Levels};
use super::log::{Asked, Rotation};
use super::spindle::{Disk, Place};
use super::task::Task;
use super::{ArrayRun, ArraySystem, KeyOrder};
use crate::agenda::Agenda;
use core::time::Duration;
use engine::shift::{LogId, ShiftStats};
use model::{Attempt, Time};

/// A stage of a disk (the paper's Table I); a disk in none of them is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It takes the puts.
    Log,
    /// A log is read from it.
    ReadLog,
    /// A tree is written to it.
    WriteTree,
}

/// A stage of a disk, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSpan {
    /// Which disk.
    pub disk: usize,
    /// Which stage.
    pub stage: Stage,
    /// Its beginning.
    pub from: Time,
    /// Its end.
    pub to: Time,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct ArrayOutcome {
    /// The time of the puts, until the last is durable.
    pub took: Duration,
    /// Bytes that were put.
    pub put_bytes: u64,
    /// Bytes that were written to disks, by puts and background work together.
    pub written_bytes: u64,
    /// Energy of all disks in that time, in millijoules.
    pub energy_mj: u64,
    /// Background work that ended, and its time.
    pub background: (u64, Duration),
    /// What the rotation counted; zeros for other systems.
    pub shift: ShiftStats,
    /// The stages of the disks in the first minute, for Workload Shifting: for pictures.
    pub stages: Vec<StageSpan>,
}

/// Stages that begin later are not kept.
const PICTURED: Time = Time::from_secs(60);

enum Event {
    /// The put that was under way is durable.
    Put,
    /// A chunk of the background work of this place has moved.
    Chunk(usize),
}

enum Owner {
    Log(LogId, Attempt),
    Striped,
    Levels(Compaction),
}

struct Work {
    task: Task,
    owner: Owner,
    since: Time,
}

enum State {
    Shifting(Box<Rotation>),
    Striped { log: u64, waiting: Vec<u64> },
    Levels(Levels),
}

struct Array<'a> {
    run: &'a ArrayRun,
    now: Time,
    agenda: Agenda<Event>,
    disks: Vec<Disk>,
    state: State,
    work: Vec<Option<Work>>,
    puts_left: u64,
    /// The client waits for background work.
    blocked: bool,
    outcome: ArrayOutcome,
}

/// Runs `run`; it ends when the last put is durable.
pub fn run(run: &ArrayRun) -> ArrayOutcome {
    assert!(run.disks > 0 && run.puts > 0 && run.put_bytes > 0, "something is put somewhere");
    let mut array = Array::new(run);
    if let State::Shifting(rotation) = &mut array.state {
        let asked = rotation.boot(Time::ZERO);
        array.begin_all(asked);
    }
    array.put();
    while array.puts_left > 0 {
        let Some((now, event)) = array.agenda.pop() else { panic!("a client that is blocked waits for something") };
        array.now = now;
        match event {
            Event::Put => array.is_put(),
            Event::Chunk(place) => array.step(place),
        }
    }
    array.ended()
}

impl<'a> Array<'a> {
    fn new(run: &'a ArrayRun) -> Self {
        let state = match run.system {
            ArraySystem::WorkloadShifting { model, overrun } => {
                // A log in order is a tree already.
                let run = ArrayRun { transform: run.transform && run.keys == KeyOrder::Random, ..run.clone() };
                State::Shifting(Box::new(Rotation::new(&run, (model, overrun))))
            }
            ArraySystem::LogRaid0 => State::Striped { log: 0, waiting: Vec::new() },
            ArraySystem::LevelDb => State::Levels(Levels::new(run.keys)),
        };
        let outcome = ArrayOutcome {
            took: Duration::ZERO,
            put_bytes: 0,
            written_bytes: 0,
            energy_mj: 0,
            background: (0, Duration::ZERO),
            shift: ShiftStats::default(),
            stages: Vec::new(),
        };
        Self {
            run,
            now: Time::ZERO,
            agenda: Agenda::default(),
            disks: vec![Disk::new(run.disk); run.disks as usize],
            state,
            work: Vec::new(),
            puts_left: run.puts,
            blocked: false,
            outcome,
        }
    }

    /// The client puts, if it may.
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
            State::Shifting(rotation) => {
                let asked = rotation.appended(self.now, bytes);
                self.begin_all(asked);
            }
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
                levels.put(bytes);
                self.begin_compaction();
            }
        }
        if self.puts_left > 0 {
            self.put();
        }
    }

    fn begin_all(&mut self, asked: Vec<Asked>) {
        for Asked { log, attempt, task } in asked {
            self.begin(task, Owner::Log(log, attempt));
        }
    }

    /// The stripe transforms one log after the other.
    fn begin_striped(&mut self) {
        let (all, is_busy) = (self.disks.len(), self.is_busy());
        let State::Striped { waiting, .. } = &mut self.state else { return };
        if is_busy || waiting.is_empty() {
            return;
        }
        let bytes = waiting.remove(0);
        let task = Task { from: 0..all, to: 0..all, read_left: bytes, write_left: bytes, merges: false, wrote: false };
        self.begin(task, Owner::Striped);
    }

    /// LevelDB has one thread for background work.
    fn begin_compaction(&mut self) {
        let (all, is_busy) = (self.disks.len(), self.is_busy());
        let State::Levels(levels) = &mut self.state else { return };
        if is_busy {
            return;
        }
        let Some(compaction) = levels.next() else { return };
        let (read_left, write_left) = (compaction.read_bytes, compaction.write_bytes);
        let task = Task { from: 0..all, to: 0..all, read_left, write_left, merges: true, wrote: true };
        self.begin(task, Owner::Levels(compaction));
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

    /// The next chunk of the work at `place`, or its end.
    fn step(&mut self, place: usize) {
        let Some(work) = self.work[place].as_mut() else { return };
        let read_before = work.task.read_left;
        if let Some(end) = work.task.step(&mut self.disks, &self.run.disk, self.now) {
            if read_before == 0 && !work.task.merges {
                // Sorted, and written from here on.
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
            (Owner::Log(log, attempt), State::Shifting(rotation)) => {
                let asked = rotation.transformed(self.now, (log, attempt));
                self.begin_all(asked);
            }
            (Owner::Levels(compaction), State::Levels(levels)) => {
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
        for disk in &self.disks {
            let busy = disk.busy().min(self.outcome.took);
            let idle = self.outcome.took - busy;
            let mj = |span: Duration, mw: u64| (span.as_nanos() * u128::from(mw) / 1_000_000_000) as u64;
            self.outcome.energy_mj += mj(busy, self.run.disk.active_mw) + mj(idle, self.run.disk.idle_mw);
        }
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

/// Notes a stage; one that goes on where the last of its disk ended is the same.
fn note(stages: &mut Vec<StageSpan>, disk: usize, stage: Stage, from: Time, to: Time) {
    let last = stages.iter_mut().rev().find(|span| span.disk == disk);
    if let Some(span) = last.filter(|span| span.stage == stage && span.to == from) {
        span.to = to;
    } else if from < PICTURED {
        stages.push(StageSpan { disk, stage, from, to });
    }
}
