//! The writer: a state machine that gives numbers, appends with one sync for many changes, and rotates. The driver
//! ([`crate::driver`]) decides when it makes a step.
//!
//! 1. It takes waiting changes, up to the size of a batch, in the order of arrival.
//! 2. Each change gets the next number, and its `prepare` may refuse it: it sees the earlier changes, including the
//!    pending ones of the same batch. A refused change has no number.
//! 3. The batch is appended to the log on duty, with one sync; with two rotations to both at once. If a drive fails or
//!    is full, the rotation continues with another one, to which the same batch is appended.
//! 4. Readers see it, the follower applies it, and then all callers are answered.
//!
//! Invariant: every change that was answered with a number is in a log or a shelf of every rotation that is not behind
//! ([`crate::levelling`]).

use crate::accepted::Accepted;
use crate::ack::Answerer;
use crate::bytes::crc32c;
use crate::config::{Config, ENTRY_BYTES_MAX, RETAINED_MAX};
use crate::cycle::Cycle;
use crate::drive::{Drive, Pending};
use crate::driver::Driver;
use crate::error::{PutError, ReadError};
use crate::follower::{Applied, Follower};
use crate::levelling::{Lacking, write_shelf};
use crate::manifest::EXTENT_AGE;
use crate::medium::is_full;
use crate::opening::OpenedCycle;
use crate::queue::{Draft, Message, Submission, Work};
use crate::record::{Head, Kind, Sequence};
use crate::shared::{CycleShared, Shared};
use crate::table::charged;
use ::bytes::Bytes;
use engine::shift::{LogId, Model, Overrun, Shift, ShiftEvent, ShiftPolicy};
use model::Time;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time that the writer sleeps if nothing at all is due.
const IDLE: Duration = Duration::from_mins(10);

/// Maximum delay until the writer notices that a reader has started a drive.
const ROUSED: Duration = Duration::from_secs(5);

/// The pause before the manifest is written again after an error, while a batch waits for it.
const NOTED_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The reason why a batch is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// Certainly nothing of it exists.
    NoSpace,
    Unknown,
}

/// A batch that was encoded for one rotation.
struct Encoded {
    /// The offset of each record in the file, and its head.
    places: Vec<(u64, Head)>,
    bytes: u64,
    charged: u64,
}

/// The result of a step of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    /// It did some work.
    Worked,
    /// Nothing waited that it may take.
    Idle,
    /// Nothing waits, and nothing more will come.
    End,
}

/// The state of the writer.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) cycles: Vec<Cycle>,
    pub(crate) follower: Box<dyn Follower>,
    /// Callers that wait until the logs before these, one for each rotation, are shelves.
    pub(crate) flushes: Vec<(Vec<LogId>, Answerer)>,
    /// Time at which the manifest must receive the lengths of logs that have grown.
    pub(crate) lengths_due: Option<Time>,
    /// True if the manifest says which rotations are behind.
    pub(crate) is_behind_noted: bool,
}

impl Writer {
    /// Takes one message or one batch, if one arrives within `patience`. Changes without room wait, unless `forced`:
    /// then they are refused.
    pub(crate) fn step(&mut self, patience: Duration, forced: bool) -> StepResult {
        let wanted = forced || self.admits() || self.is_stuck() || !self.may_retain();
        let result = match self.shared.queue.next(self.shared.config.batch_bytes, wanted, patience) {
            Work::Message(message) => {
                self.take(message);
                StepResult::Worked
            }
            Work::Batch(batch) => {
                self.commit(batch);
                StepResult::Worked
            }
            Work::Nothing => {
                if self.shared.config.driver == Driver::Threads {
                    self.look_around();
                }
                StepResult::Idle
            }
            Work::End => return StepResult::End,
        };
        self.answer_flushes();
        self.note_lengths();
        result
    }

    /// Leaves everything as the next start expects it.
    pub(crate) fn end(mut self) {
        self.note_last_lengths();
        self.cycles.iter_mut().for_each(Cycle::end);
        self.note_removed();
    }

    /// Records the lengths of the open logs, if they have grown for [`EXTENT_AGE`].
    fn note_lengths(&mut self) {
        let now = (self.shared.config.clock)();
        let Some(due) = self.lengths_due.filter(|due| now >= *due) else { return };
        let entries: Vec<_> = self.cycles.iter().filter_map(|cycle| cycle.open_entry(false)).collect();
        let noted = self.shared.note_lengths(|manifest| manifest.extend(entries));
        // A failure is tried again. Only a crash would show the missing lengths.
        self.lengths_due = noted.is_err().then_some(due + EXTENT_AGE);
        if let Err(error) = noted {
            tracing::warn!(%error, "the lengths of logs were not recorded");
        }
    }

    /// Removes files that are gone from the manifest.
    fn note_removed(&self) {
        if self.shared.cycles.iter().any(|cycle| !cycle.removed.lock().is_empty())
            && let Err(error) = self.shared.note(|_| ())
        {
            tracing::warn!(%error, "dead files are still in the manifest");
        }
    }

    /// As [`Self::note_lengths`], at the end: no log grows any more.
    fn note_last_lengths(&self) {
        let entries: Vec<_> = self.cycles.iter().filter_map(|cycle| cycle.open_entry(true)).collect();
        if let Err(error) = self.shared.note_lengths(|manifest| manifest.extend(entries)) {
            tracing::warn!(%error, "the lengths of logs were not recorded");
        }
    }

    /// True if a caller waits until logs are shelves.
    pub(crate) fn has_flushes(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// The time that the writer may sleep.
    pub(crate) fn patience(&self) -> Duration {
        let now = (self.shared.config.clock)();
        let deadline = |cycle: &Cycle| cycle.still_at().unwrap_or(Time::MAX).min(cycle.shift().next_deadline());
        let due = self.cycles.iter().map(|cycle| deadline(cycle).since(now)).min().unwrap_or(IDLE);
        let hangs = self.cycles.iter().any(Cycle::is_busy).then_some(self.shared.config.deadline);
        let readers = self.cycles.iter().any(Cycle::sleeps).then_some(ROUSED);
        let lengths = self.lengths_due.map(|due| due.since(now));
        [hangs, readers, lengths].into_iter().flatten().fold(due, Duration::min)
    }

    /// Handles everything that is due.
    pub(crate) fn look_around(&mut self) {
        for cycle in &mut self.cycles {
            cycle.look_for_hangs();
            cycle.handle_drives_woken_by_reads();
            cycle.handle(ShiftEvent::DeadlineReached);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Transformed { cycle, log, attempt, outcome } => {
                self.cycles[cycle].transformed(log, attempt, outcome);
            }
            Message::Merged { cycle } => self.cycles[cycle].merged(),
            Message::Damaged => self.cycles.iter_mut().for_each(Cycle::consider_merging),
            Message::Awoke { cycle, drive, awake } => self.cycles[cycle].awoke(drive, awake),
            Message::Flush(answerer) => {
                let logs = self.cycles.iter().map(Cycle::logs_end).collect();
                self.cycles.iter_mut().for_each(|cycle| cycle.handle(ShiftEvent::Flush));
                self.flushes.push((logs, answerer));
            }
            Message::Retain => self.shared.retain(),
            Message::Covered(covered) => {
                self.shared.set_covered(covered);
                self.cycles.iter_mut().for_each(|cycle| cycle.remove_covered(covered));
            }
        }
    }

    /// Answers callers that wait for logs which are shelves by now.
    fn answer_flushes(&mut self) {
        let last = Sequence(self.shared.last.load(Ordering::Relaxed));
        let mut waiting = Vec::new();
        for (logs, answerer) in self.flushes.drain(..) {
            let mut not_done = self.cycles.iter().zip(&logs).filter(|(cycle, log)| cycle.has_logs_before(**log));
            let is_done = not_done.clone().next().is_none();
            if not_done.all(|(cycle, _)| is_stuck(cycle)) {
                answerer.answer(if is_done { Ok(last) } else { Err(PutError::NoSpace) });
            } else {
                waiting.push((logs, answerer));
            }
        }
        self.flushes = waiting;
    }

    /// True if every rotation that can take writes at all does.
    fn admits(&self) -> bool {
        let mut able = self.cycles.iter().filter(|cycle| !is_stuck(cycle)).peekable();
        able.peek().is_some() && able.all(|cycle| cycle.shift().admits())
    }

    /// True if one more log may be retained. Only the caller can change this, not time, so no change waits for it.
    fn may_retain(&self) -> bool {
        self.cycles.iter().all(|cycle| cycle.retained() < RETAINED_MAX)
    }

    /// True if nothing is running that could make room.
    fn is_stuck(&self) -> bool {
        self.cycles.iter().all(is_stuck)
    }

    /// Marks rotations that did not take a batch which another one took: they take no other before they are level.
    fn fall_behind(&mut self, written: &[Result<(), Failure>]) {
        for (cycle, written) in self.cycles.iter_mut().zip(written) {
            if written.is_err() && !cycle.is_behind() {
                cycle.fall_behind();
                self.is_behind_noted = false;
            }
        }
    }

    /// Writes to the manifest which rotations are behind, unless it says so: their changes are acknowledged without
    /// them.
    fn note_behind(&mut self) -> io::Result<()> {
        if !self.is_behind_noted && self.cycles.iter().any(Cycle::is_behind) {
            self.shared.note(|_| ())?;
            self.is_behind_noted = true;
        }
        Ok(())
    }

    /// Brings rotations that are behind up to the other one, if it is time to try.
    fn catch_up(&mut self) {
        for number in 0..self.cycles.len() {
            if !self.cycles[number].tries_to_catch_up() {
                continue;
            }
            let began = (self.shared.config.clock)();
            // Changes that cannot be restored are lost to it until it is healed: all of them, if one of its drives has
            // failed.
            let lacking = if self.shared.cycles[number].view().missing {
                Ok(Lacking::all_lost(&self.shared, number))
            } else {
                Lacking::of(&self.shared, number)
            };
            match lacking.and_then(|lacking| self.level(number, &lacking)) {
                Ok(()) => {
                    self.cycles[number].caught_up();
                    self.cycles[number].consider_merging();
                }
                Err(error) => {
                    tracing::warn!(%error, cycle = number, "a rotation is still behind the other one");
                    self.cycles[number].stays_behind(began);
                }
            }
        }
    }

    fn commit(&mut self, batch: Vec<Submission>) {
        if !self.may_retain() {
            for submission in batch {
                submission.answerer.answer(Err(PutError::Retaining));
            }
            return;
        }
        let accepted = self.prepare(batch);
        if accepted.is_empty() {
            return;
        }
        self.catch_up();
        let written = self.append(&accepted, 0..self.cycles.len());
        let holders = written.iter().filter(|written| written.is_ok()).count();
        if holders == 0 {
            let is_unknown = written.contains(&Err(Failure::Unknown));
            if !is_unknown {
                // No rotation lacks what none has taken.
                let last = accepted.last().map(|change| change.sequence).unwrap_or_default();
                let level = self.cycles.iter().zip(&self.shared.cycles).filter(|(cycle, _)| !cycle.is_behind());
                level.for_each(|(_, cycle)| cycle.has_taken(last));
            }
            for change in accepted {
                change.answerer.answer(Err(if is_unknown { PutError::Unknown } else { PutError::NoSpace }));
            }
            return;
        }
        let last = accepted.last().map(|change| change.sequence).unwrap_or_default();
        let holders = self.shared.cycles.iter().zip(&written).filter(|(_, written)| written.is_ok());
        holders.for_each(|(cycle, _)| cycle.has_taken(last));
        self.fall_behind(&written);
        let noted = self.note_behind_in_time();
        // Readers see it, and the rotation that is behind receives it, regardless of the answer.
        let applied: Vec<_> = accepted.iter().map(applied).collect();
        self.follower.apply(&applied);
        if let Err(error) = noted {
            tracing::error!(%error, "nothing is acknowledged before it is noted that a rotation is behind");
            for change in accepted {
                change.answerer.answer(Err(PutError::Unnoted));
            }
            return;
        }
        if applied.iter().any(|change| change.kind == Kind::Forget) {
            self.cycles.iter_mut().for_each(Cycle::consider_merging);
        }
        self.count(&accepted);
        for change in accepted {
            change.answerer.answer(Ok(change.sequence));
        }
    }

    fn count(&self, accepted: &[Accepted]) {
        let bytes: usize = accepted.iter().map(|a| a.key.len() + a.entry.len() + a.value.len()).sum();
        let counts = &self.shared.counts;
        counts.accepted.fetch_add(accepted.len() as u64, Ordering::Relaxed);
        counts.accepted_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        counts.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives numbers. A refused change is answered at once.
    fn prepare(&self, batch: Vec<Submission>) -> Vec<Accepted> {
        let mut accepted = Vec::with_capacity(batch.len());
        let mut pending = BTreeMap::new();
        let watched = batch.iter().any(|submission| submission.prepare.is_some());
        for submission in batch {
            let Submission { kind, key, entry, value, value_crc, prepare, answerer } = submission;
            let sequence = Sequence(self.shared.last.load(Ordering::Relaxed) + 1);
            let mut draft = Draft { sequence, entry, batch: &pending };
            if let Err(refusal) = prepare.map_or(Ok(()), |prepare| prepare(&mut draft)) {
                answerer.answer(Err(PutError::Refused(refusal)));
                continue;
            }
            let entry = draft.entry;
            if entry.len() > ENTRY_BYTES_MAX {
                let (what, bytes, limit) = ("entry", entry.len(), ENTRY_BYTES_MAX);
                answerer.answer(Err(PutError::TooLong { what, bytes, limit }));
                continue;
            }
            self.shared.last.store(sequence.0, Ordering::Relaxed);
            if watched {
                pending.insert(key.clone(), (sequence, kind, entry.clone()));
            }
            accepted.push(Accepted { sequence, kind, key, entry, value, value_crc, answerer });
        }
        accepted
    }

    /// Appends to the rotations `to` at once. If a drive fails, this waits until its rotation continues with another
    /// one. Nothing becomes a shelf of one rotation before each of them has its answer ([`crate::levelling`]).
    fn append(&mut self, accepted: &[Accepted], to: Range<usize>) -> Vec<Result<(), Failure>> {
        let first = accepted.first().map(|change| change.sequence);
        self.cycles[to.clone()].iter_mut().for_each(|cycle| cycle.appends_from(first));
        let mut appends: Vec<_> =
            self.cycles[to.clone()].iter_mut().map(|cycle| Append::begin(cycle, accepted)).collect();
        let (mut later, mut has_looked) = (Vec::new(), false);
        loop {
            for (cycle, append) in self.cycles[to.clone()].iter_mut().zip(&mut appends) {
                append.go_on(cycle, accepted, self.shared.config.deadline);
            }
            if appends.iter().all(|append| append.result.is_some()) {
                break;
            }
            let is_driven = self.shared.config.driver == Driver::Caller;
            let patience = if is_driven { Duration::ZERO } else { self.patience() };
            match self.shared.queue.next_message(patience) {
                Some(message @ Message::Flush(_)) => later.push(message),
                Some(message) => self.take(message),
                None if is_driven && self.shared.tasks.run_one() => {}
                // Time stands still for a waiting caller.
                None if is_driven && has_looked => appends.iter_mut().for_each(Append::give_up),
                None => {
                    has_looked = true;
                    self.look_around();
                    self.note_lengths();
                }
            }
        }
        let now = (self.shared.config.clock)();
        self.lengths_due.get_or_insert(now + EXTENT_AGE);
        for cycle in &mut self.cycles[to] {
            cycle.appends_from(None);
            cycle.appended();
        }
        for message in later {
            self.take(message);
        }
        appends.into_iter().filter_map(|append| append.result).collect()
    }

    /// Starts the rotations: first those that lack something, which they receive durably, then the others.
    pub(crate) fn boot(&mut self, opened: Vec<OpenedCycle>, lacking: Vec<Lacking>) {
        let policy = policy(&self.shared.config);
        let mut waiting = Vec::new();
        for (number, OpenedCycle { drives, logs, dead, previous, .. }) in opened.into_iter().enumerate() {
            let shift = Shift::new(policy, drives.len() as u32);
            self.cycles.push(Cycle::new(number, Arc::clone(&self.shared), shift, drives));
            waiting.push((logs, dead, previous));
        }
        let mut waiting: Vec<_> = waiting.into_iter().zip(lacking).enumerate().collect();
        waiting.sort_by_key(|(_, (_, lacking))| lacking.is_empty());
        for (number, ((logs, dead, previous), lacking)) in waiting {
            let first = (!lacking.is_empty()).then_some(Sequence(lacking.known.0 + 1));
            self.cycles[number].levels_from(first);
            self.cycles[number].boot(logs, dead, previous);
            if first.is_some()
                && let Err(error) = self.level(number, &lacking)
            {
                tracing::error!(%error, "a rotation cannot catch up with the other one");
                self.cycles[number].fall_behind();
            }
        }
        self.note_level();
        // The replay has shown what only the other rotation has.
        if let Err(error) = self.note_behind() {
            tracing::warn!(%error, "it is not written down that a rotation is behind");
        }
    }

    /// As [`Self::note_behind`]; a failure is tried again for as long as a request may take.
    fn note_behind_in_time(&mut self) -> io::Result<()> {
        let until = (self.shared.config.clock)() + self.shared.config.deadline;
        loop {
            let noted = self.note_behind();
            let is_driven = self.shared.config.driver == Driver::Caller;
            if noted.is_ok() || is_driven || (self.shared.config.clock)() >= until {
                return noted;
            }
            std::thread::sleep(NOTED_AGAIN_AFTER);
        }
    }

    /// Notes that rotations which are not behind have all that was acknowledged.
    fn note_level(&self) {
        let level = self.cycles.iter().zip(&self.shared.cycles).filter(|(cycle, _)| !cycle.is_behind());
        let lagged: Vec<_> = level.map(|(_, cycle)| cycle).filter(|cycle| cycle.may_lag()).collect();
        for cycle in &lagged {
            cycle.set_may_lag(false);
        }
        // Without it, the next start takes them for ones that may lag.
        if !lagged.is_empty()
            && let Err(error) = self.shared.note(|_| ())
        {
            tracing::warn!(%error, "it is not written down that a rotation has everything");
        }
    }

    /// Writes to the rotation `number` what it lacks, durably.
    fn level(&mut self, number: usize, lacking: &Lacking) -> Result<(), ReadError> {
        self.cycles[number].levels_from(Some(Sequence(lacking.known.0 + 1)));
        let done = self.write_lacking(number, lacking);
        self.cycles[number].levels_from(None);
        done
    }

    fn write_lacking(&mut self, number: usize, lacking: &Lacking) -> Result<(), ReadError> {
        let no_room = || io::Error::from(io::ErrorKind::StorageFull);
        if lacking.source.is_some() || !lacking.lost.is_empty() {
            let to = self.cycles[number].drive_for_shelf().ok_or_else(no_room)?;
            write_shelf(&self.shared, &self.shared.cycles[number], lacking, &to)?;
        }
        let records = &lacking.records;
        let is_done = records.is_empty() || self.append(records, number..number + 1) == [Ok(())];
        if !is_done {
            return Err(no_room().into());
        }
        // What it was given is all that another one had.
        let had = self.shared.cycles.iter().map(CycleShared::had).max().unwrap_or_default();
        self.shared.cycles[number].has_taken(had);
        Ok(())
    }
}

/// A batch on its way into the log of a rotation.
struct Append {
    /// The write that has started.
    begun: Option<(Encoded, Pending<()>)>,
    /// True if a failed drive may nevertheless have it.
    is_unknown: bool,
    result: Option<Result<(), Failure>>,
}

impl Append {
    fn begin(cycle: &mut Cycle, accepted: &[Accepted]) -> Self {
        if cycle.is_behind() && cycle.log_from().is_none() {
            return Self { begun: None, is_unknown: false, result: Some(Err(Failure::NoSpace)) };
        }
        if !cycle.shift().admits()
            && let Some((_, drive)) = cycle.shift().on_duty()
            && cycle.drives[drive.0 as usize].as_ref().is_some_and(|drive| !drive.is_lost())
        {
            // Another program may have made room on the drive.
            cycle.handle(ShiftEvent::Back(drive));
        }
        Self { begun: begin(cycle, accepted), is_unknown: false, result: None }
    }

    /// Ends the append for lack of room.
    fn give_up(&mut self) {
        let failure = if self.is_unknown { Failure::Unknown } else { Failure::NoSpace };
        self.result.get_or_insert(Err(failure));
    }

    /// Waits for the write, and continues with another drive if it fails. Afterwards there is a result, unless the
    /// rotation has no log on duty now but will have one.
    fn go_on(&mut self, cycle: &mut Cycle, accepted: &[Accepted], deadline: Duration) {
        while self.result.is_none() {
            let Some((encoded, pending)) = self.begun.take().or_else(|| begin(cycle, accepted)) else {
                if is_stuck(cycle) {
                    let is_unknown = self.is_unknown || !cycle.lives();
                    self.result = Some(Err(if is_unknown { Failure::Unknown } else { Failure::NoSpace }));
                }
                return;
            };
            match pending.wait(deadline) {
                Ok(()) => {
                    publish(cycle, accepted, &encoded);
                    self.result = Some(Ok(()));
                }
                Err(error) => self.is_unknown |= fail(cycle, &error, deadline) == Failure::Unknown,
            }
        }
    }
}

/// True if nothing is running that could make room for the rotation.
fn is_stuck(cycle: &Cycle) -> bool {
    let shift = cycle.shift();
    (cycle.is_behind() && cycle.log_from().is_none())
        || !shift.admits() && !cycle.is_busy() && shift.next_deadline() == Time::MAX
}

/// Starts to append the batch to the log on duty; `None` if there is no such log, or its drive is full.
fn begin(cycle: &mut Cycle, accepted: &[Accepted]) -> Option<(Encoded, Pending<()>)> {
    cycle.retry_open_log();
    if !cycle.shift().admits() {
        return None;
    }
    let open = cycle.open.as_ref()?;
    let (table, begin) = (Arc::clone(&open.table), open.bytes);
    let stamp = table.file.stamp();
    let mut bytes = Vec::with_capacity(accepted.iter().map(|change| change.record().bytes()).sum());
    let mut encoded = Encoded { places: Vec::with_capacity(accepted.len()), bytes: 0, charged: 0 };
    for change in accepted {
        let record = change.record();
        let offset = bytes.len();
        record.encode(stamp, begin, change.value_crc, &mut bytes);
        let Ok(head) = Head::decode(&bytes[offset..], stamp) else { unreachable!("what is encoded decodes") };
        encoded.places.push((begin + offset as u64, head));
        encoded.charged += charged(&record);
    }
    encoded.bytes = bytes.len() as u64;
    let drive = Arc::clone(&table.drive);
    Some((encoded, drive.begin(move |drive| drive.append(table.medium.as_ref(), &bytes, begin))))
}

/// Publishes the batch, which is durable in this rotation, to readers.
fn publish(cycle: &mut Cycle, accepted: &[Accepted], encoded: &Encoded) {
    let Some(open) = cycle.open.as_ref() else { return };
    let mut index = open.table.index.write();
    for (change, (offset, head)) in accepted.iter().zip(&encoded.places) {
        index.insert(*offset, *head, &change.record());
    }
    drop(index);
    cycle.grew(encoded.bytes, encoded.charged);
}

/// Handles a failed append to the log on duty: the rotation continues with another drive, if it has one.
fn fail(cycle: &mut Cycle, error: &io::Error, deadline: Duration) -> Failure {
    let Some(open) = cycle.open.as_ref() else { return Failure::Unknown };
    let (drive, table, bytes) = (open.drive, Arc::clone(&open.table), open.bytes);
    let mut failure = Failure::Unknown;
    let mut event = cycle.write_failed(drive, error);
    if is_full(error) {
        // A partial write is cut off, so that it never looks like an accepted record.
        let cut = move |drive: &Drive| {
            table.medium.truncate(bytes)?;
            drive.sync(table.medium.as_ref())
        };
        let drive_handle = cycle.drives[drive.0 as usize].clone();
        let cut = drive_handle.map(|handle| handle.begin(cut).wait(deadline));
        match cut {
            Some(Ok(())) => failure = Failure::NoSpace,
            _ => event = ShiftEvent::Lost(drive),
        }
    }
    cycle.handle(event);
    failure
}

fn applied(change: &Accepted) -> Applied<'_> {
    let Accepted { sequence, kind, key, entry, value, .. } = change;
    Applied { sequence: *sequence, kind: *kind, key, entry, value_bytes: value.len() as u64 }
}

/// A waiting change, with the checksum of its value.
pub(crate) fn submission(kind: Kind, key: Vec<u8>, entry: Vec<u8>, value: Bytes, answerer: Answerer) -> Submission {
    let value_crc = crc32c(&value);
    Submission { kind, key, entry, value, value_crc, prepare: None, answerer }
}

fn policy(config: &Config) -> ShiftPolicy {
    ShiftPolicy {
        model: Model::Enhanced,
        log_bytes: config.log_bytes,
        overrun: Overrun::Stretch(config.stretch),
        idle_timeout: config.idle_timeout,
    }
}
