//! The writer: one thread that gives numbers, appends with one sync for many, and rotates.
//!
//! 1. It takes what waits, as much as fits into a batch, in the order of arrival.
//! 2. Each change gets the next number, and its `prepare` may refuse it: it sees the changes before it, the pending
//!    ones of the same batch included. What is refused has no number.
//! 3. The batch is appended to the log on duty, with one sync; with two rotations to both at once. If a drive fails
//!    or is full, the rotation goes on with another one, to which the same batch is appended.
//! 4. Readers see it, the follower applies it, and then everybody is answered.
//!
//! Invariant: whatever was answered with a number is in a log or a shelf of every rotation that takes writes.

use crate::ack::{Answerer, ack};
use crate::bytes::crc32c;
use crate::config::ENTRY_BYTES_MAX;
use crate::cycle::Cycle;
use crate::error::{PutError, ReadError};
use crate::follower::{Applied, Follower};
use crate::log;
use crate::medium::is_full;
use crate::opening::image;
use crate::queue::{Draft, Message, Submission, Work};
use crate::record::{Head, Kind, Record, Sequence};
use crate::shared::{CycleShared, Shared};
use crate::table::{LogTable, charged};
use engine::shift::{LogId, ShiftEvent};
use model::Time;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the writer sleeps if nothing at all is due.
const IDLE: Duration = Duration::from_secs(600);

/// Dead logs that are retained for a caller who does not catch up; beyond it no more is taken in.
const RETAINED_MAX: usize = 64;

/// A change that has its number.
struct Accepted {
    sequence: Sequence,
    kind: Kind,
    key: Vec<u8>,
    entry: Vec<u8>,
    value: Vec<u8>,
    value_crc: u32,
    answerer: Answerer,
}

impl Accepted {
    fn record(&self) -> Record<'_> {
        let Self { sequence, kind, key, entry, value, .. } = self;
        Record { kind: *kind, sequence: *sequence, key, entry, value }
    }
}

/// The reason why a batch is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// It is certain that nothing of it is there.
    NoSpace,
    Unknown,
}

/// A batch that was encoded for one rotation.
struct Encoded {
    /// Where each record begins in the file, and its head.
    places: Vec<(u64, Head)>,
    bytes: u64,
    charged: u64,
}

/// The state of the thread.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) cycles: Vec<Cycle>,
    pub(crate) follower: Box<dyn Follower>,
    /// Who waits until the logs before these, one for each rotation, are shelves.
    pub(crate) flushes: Vec<(Vec<LogId>, Answerer)>,
}

impl Writer {
    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        loop {
            let wanted = self.admits() || self.is_stuck();
            match self.shared.queue.next(self.shared.config.batch_bytes, wanted, self.patience()) {
                Work::Message(message) => self.take(message),
                Work::Batch(batch) => self.commit(batch),
                Work::Nothing => self.look_around(),
                Work::End => break,
            }
            self.answer_flushes();
        }
        self.cycles.iter_mut().for_each(Cycle::end);
    }

    /// How long the writer may sleep.
    fn patience(&self) -> Duration {
        let now = (self.shared.config.clock)();
        let deadline = |cycle: &Cycle| cycle.still_at().unwrap_or(Time::MAX).min(cycle.shift().next_deadline());
        let due = self.cycles.iter().map(|cycle| deadline(cycle).since(now)).min().unwrap_or(IDLE);
        let hangs = self.cycles.iter().any(Cycle::is_busy).then_some(self.shared.config.deadline);
        due.min(hangs.unwrap_or(IDLE)).min(IDLE)
    }

    fn look_around(&mut self) {
        for cycle in &mut self.cycles {
            cycle.look_for_hangs();
            cycle.handle(ShiftEvent::DeadlineReached);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Transformed { cycle, log, attempt, outcome } => {
                self.cycles[cycle].transformed(log, attempt, outcome);
            }
            Message::Merged { cycle } => self.cycles[cycle].merged(),
            Message::Awoke { cycle, drive, awake } => self.cycles[cycle].awoke(drive, awake),
            Message::Flush(answerer) => {
                let logs = self.cycles.iter().map(Cycle::logs_end).collect();
                self.cycles.iter_mut().for_each(|cycle| cycle.handle(ShiftEvent::Flush));
                self.flushes.push((logs, answerer));
            }
            Message::Covered(covered) => {
                self.shared.set_covered(covered);
                self.cycles.iter_mut().for_each(|cycle| cycle.remove_covered(covered));
            }
        }
    }

    /// Answers who waits for logs that are shelves by now.
    fn answer_flushes(&mut self) {
        let last = Sequence(self.shared.last.load(Ordering::Relaxed));
        let is_stuck = self.is_stuck();
        let mut waiting = Vec::new();
        for (logs, answerer) in self.flushes.drain(..) {
            let is_done = self.cycles.iter().zip(&logs).all(|(cycle, log)| !cycle.has_logs_before(*log));
            if is_done || is_stuck {
                answerer.answer(if is_done { Ok(last) } else { Err(PutError::NoSpace) });
            } else {
                waiting.push((logs, answerer));
            }
        }
        self.flushes = waiting;
    }

    /// Whether every rotation that can take writes at all does.
    fn admits(&self) -> bool {
        let mut able = self.cycles.iter().filter(|cycle| !is_stuck(cycle)).peekable();
        let has_room = self.cycles.iter().all(|cycle| cycle.retained() < RETAINED_MAX);
        has_room && able.peek().is_some() && able.all(|cycle| cycle.shift().admits())
    }

    /// Whether nothing is under way after which there would be room.
    fn is_stuck(&self) -> bool {
        self.cycles.iter().all(is_stuck)
    }

    fn commit(&mut self, batch: Vec<Submission>) {
        let accepted = self.prepare(batch);
        if accepted.is_empty() {
            return;
        }
        let written = self.append(&accepted);
        let holders = written.iter().filter(|written| written.is_ok()).count();
        if holders == 0 {
            let is_unknown = written.contains(&Err(Failure::Unknown));
            for change in accepted {
                change.answerer.answer(Err(if is_unknown { PutError::Unknown } else { PutError::NoSpace }));
            }
            return;
        }
        let applied: Vec<_> = accepted.iter().map(applied).collect();
        self.follower.apply(&applied);
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

    /// Gives numbers. Who is refused is answered at once.
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

    /// Appends to every rotation, at once.
    fn append(&mut self, accepted: &[Accepted]) -> Vec<Result<(), Failure>> {
        let mut results = Vec::new();
        let begun: Vec<_> = self.cycles.iter_mut().map(|cycle| begin(cycle, accepted)).collect();
        let deadline = self.shared.config.deadline;
        for (cycle, attempt) in self.cycles.iter_mut().zip(begun) {
            results.push(finish(cycle, accepted, attempt, deadline));
        }
        results
    }

    /// Brings rotations to the same end, before anything else: of the batches that a crash cut short, one may have more
    /// records than the other. What is acknowledged is in both, so this is a batch or two.
    pub(crate) fn level(&mut self) -> Result<(), ReadError> {
        let views: Vec<_> = self.shared.cycles.iter().map(CycleShared::view).collect();
        let top = views.iter().map(|view| view.last()).max().unwrap_or_default();
        for (cycle, view) in self.cycles.iter_mut().zip(&views).filter(|(_, view)| view.last() < top) {
            let mut missing = BTreeMap::new();
            for table in views.iter().flat_map(|view| &view.logs) {
                for change in records_after(table, view.last())? {
                    missing.insert(change.sequence, change);
                }
            }
            let missing: Vec<_> = missing.into_values().collect();
            let attempt = begin(cycle, &missing);
            if finish(cycle, &missing, attempt, self.shared.config.deadline).is_err() {
                tracing::error!(records = missing.len(), "a rotation cannot be brought up to the other one");
            }
        }
        Ok(())
    }
}

/// The records of a log with numbers above `known`.
fn records_after(table: &LogTable, known: Sequence) -> Result<Vec<Accepted>, ReadError> {
    if table.index.read().last <= known {
        return Ok(Vec::new());
    }
    let image = image(table.medium.as_ref())?;
    let contents = log::read(&image, table.file.stamp(), Some(table.index.read().bytes));
    let mut records = Vec::new();
    for (offset, head) in contents.records.into_iter().filter(|(_, head)| head.sequence > known) {
        let record = table.record(&image[offset as usize..])?;
        let (key, entry, value) = (record.key.to_vec(), record.entry.to_vec(), record.value.to_vec());
        let Record { kind, sequence, .. } = record;
        let value_crc = head.value_crc();
        records.push(Accepted { sequence, kind, key, entry, value, value_crc, answerer: ack().0 });
    }
    Ok(records)
}

/// Waits for an append that has begun, and goes on with another drive if it fails.
fn finish(cycle: &mut Cycle, accepted: &[Accepted], attempt: Attempt, deadline: Duration) -> Result<(), Failure> {
    let mut attempt = attempt;
    // A drive that failed may have it all the same.
    let mut is_unknown = false;
    loop {
        let Some((encoded, pending)) = attempt else {
            return Err(if is_unknown || !cycle.lives() { Failure::Unknown } else { Failure::NoSpace });
        };
        match pending.wait(deadline) {
            Ok(()) => {
                publish(cycle, accepted, &encoded);
                return Ok(());
            }
            Err(error) => is_unknown |= fail(cycle, &error, deadline) == Failure::Unknown,
        }
        attempt = begin_elsewhere(cycle, accepted);
    }
}

type Attempt = Option<(Encoded, crate::drive::Pending<()>)>;

/// Whether nothing is under way after which the rotation would have room.
fn is_stuck(cycle: &Cycle) -> bool {
    let shift = cycle.shift();
    !shift.admits() && !cycle.is_busy() && shift.next_deadline() == Time::MAX
}

/// Begins to append the batch to the log on duty; `None` if there is none, or its drive is full.
fn begin(cycle: &mut Cycle, accepted: &[Accepted]) -> Attempt {
    if !cycle.shift().admits() {
        // Somebody else may have made room on the drive.
        let duty = cycle.shift().on_duty();
        if let Some((_, drive)) = duty.filter(|(_, drive)| cycle.drives[drive.0 as usize].is_some()) {
            cycle.handle(ShiftEvent::Back(drive));
        }
    }
    begin_elsewhere(cycle, accepted)
}

fn begin_elsewhere(cycle: &mut Cycle, accepted: &[Accepted]) -> Attempt {
    cycle.open_log_again();
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

/// The batch is durable in this rotation: readers see it.
fn publish(cycle: &mut Cycle, accepted: &[Accepted], encoded: &Encoded) {
    let Some(open) = cycle.open.as_ref() else { return };
    let mut index = open.table.index.write();
    for (change, (offset, head)) in accepted.iter().zip(&encoded.places) {
        index.insert(*offset, *head, &change.record());
    }
    drop(index);
    cycle.appended(encoded.bytes, encoded.charged);
}

/// The append to the log on duty failed: the rotation goes on with another drive, if there is one.
fn fail(cycle: &mut Cycle, error: &io::Error, deadline: Duration) -> Failure {
    let Some(open) = cycle.open.as_ref() else { return Failure::Unknown };
    let (drive, table, bytes) = (open.drive, Arc::clone(&open.table), open.bytes);
    let mut failure = Failure::Unknown;
    let mut event = cycle.write_failed(drive, error);
    if is_full(error) {
        // What was written in part is taken back, so that it never looks like a record that was accepted.
        let cut = move |drive: &crate::drive::Drive| {
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

/// A change that waits, with the checksum of its value.
pub(crate) fn submission(kind: Kind, key: Vec<u8>, entry: Vec<u8>, value: Vec<u8>, answerer: Answerer) -> Submission {
    let value_crc = crc32c(&value);
    Submission { kind, key, entry, value, value_crc, prepare: None, answerer }
}
