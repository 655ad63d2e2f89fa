//! The queue in front of the writer: waiting changes, bounded in bytes, and messages from all other threads.
//!
//! Admission slows before it stops. From half of the bound on, [`Queue::pace`] returns the time that a caller should
//! wait before it adds more, up to [`PACE_MAX`]; at the bound there is no room.

use crate::ack::Answerer;
use crate::error::Refusal;
use crate::record::{Kind, Sequence};
use ::bytes::Bytes;
use engine::shift::{LogId, PoolDrive, TransformOutcome};
use model::Attempt;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The longest pause of a caller that the queue slows.
pub(crate) const PACE_MAX: Duration = Duration::from_millis(20);

/// A change that has its number, and can still be refused.
pub struct Draft<'a> {
    /// The number that it will have if it is not refused.
    pub sequence: Sequence,
    /// The caller's metadata, which may be completed here: at most [`crate::ENTRY_BYTES_MAX`] bytes.
    pub entry: Vec<u8>,
    pub(crate) batch: &'a BTreeMap<Vec<u8>, (Sequence, Kind, Vec<u8>)>,
}

impl Draft<'_> {
    /// The newest change of `key` among those that precede this one and were not applied yet: its number, its kind and
    /// its entry. All earlier changes have passed [`crate::Follower::apply`].
    pub fn pending(&self, key: &[u8]) -> Option<(Sequence, Kind, &[u8])> {
        self.batch.get(key).map(|(sequence, kind, entry)| (*sequence, *kind, entry.as_slice()))
    }
}

/// Runs in the writer's thread, in the order of numbers, and checks preconditions and rights. It must be quick.
pub type Prepare = Box<dyn FnOnce(&mut Draft<'_>) -> Result<(), Refusal> + Send>;

/// A waiting change.
pub(crate) struct Submission {
    pub(crate) kind: Kind,
    pub(crate) key: Vec<u8>,
    pub(crate) entry: Vec<u8>,
    pub(crate) value: Bytes,
    pub(crate) value_crc: u32,
    pub(crate) prepare: Option<Prepare>,
    pub(crate) answerer: Answerer,
}

impl Submission {
    /// Its size in the queue.
    fn bytes(&self) -> usize {
        crate::record::HEAD_BYTES + self.key.len() + self.entry.len() + self.value.len()
    }
}

/// A message to the writer.
pub(crate) enum Message {
    /// A transformation ended.
    Transformed { cycle: usize, log: LogId, attempt: Attempt, outcome: TransformOutcome },
    /// Nothing more is left to merge.
    Merged { cycle: usize },
    /// A shelf was found damaged.
    Damaged,
    /// A drive has woken, or failed to wake.
    Awoke { cycle: usize, drive: PoolDrive, awake: bool },
    /// Leaves the log on duty; answered once this log and all earlier ones are shelves.
    Flush(Answerer),
    /// The caller knows all changes up to this one.
    Covered(Sequence),
    /// Retains everything that exists now, even if the caller knows it.
    Retain,
}

#[derive(Default)]
struct State {
    submissions: VecDeque<Submission>,
    bytes: usize,
    messages: VecDeque<Message>,
    closed: bool,
}

/// The queue.
pub(crate) struct Queue {
    limit: usize,
    state: Mutex<State>,
    /// Signals work for the writer.
    filled: Condvar,
    /// Signals room.
    drained: Condvar,
}

/// Work for the writer.
pub(crate) enum Work {
    Message(Message),
    Batch(Vec<Submission>),
    /// The time limit has passed.
    Nothing,
    /// The queue is closed and empty.
    End,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default(), filled: Condvar::new(), drained: Condvar::new() }
    }

    /// Adds a change, or returns it if there is no room. A single change always has room.
    pub(crate) fn try_push(&self, submission: Submission) -> Result<(), Submission> {
        let mut state = self.state.lock();
        let bytes = submission.bytes();
        if state.bytes > 0 && state.bytes + bytes > self.limit {
            return Err(submission);
        }
        Self::add(&mut state, submission);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Adds changes one after the other, so that they are written with one sync as far as a batch allows. Waits for
    /// room first.
    pub(crate) fn push_all(&self, submissions: Vec<Submission>) {
        let mut state = self.state.lock();
        while state.bytes >= self.limit && !state.closed {
            self.drained.wait(&mut state);
        }
        for submission in submissions {
            Self::add(&mut state, submission);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Adds a change as soon as there is room.
    pub(crate) fn push(&self, submission: Submission) {
        let mut state = self.state.lock();
        let bytes = submission.bytes();
        while state.bytes > 0 && state.bytes + bytes > self.limit && !state.closed {
            self.drained.wait(&mut state);
        }
        Self::add(&mut state, submission);
        drop(state);
        self.filled.notify_one();
    }

    fn add(state: &mut State, submission: Submission) {
        // A dropped submission answers that the intake is closed.
        if !state.closed {
            state.bytes += submission.bytes();
            state.submissions.push_back(submission);
        }
    }

    /// The time that a caller should wait before it adds more.
    pub(crate) fn pace(&self) -> Duration {
        let half = self.limit / 2;
        let over = self.state.lock().bytes.saturating_sub(half).min(half);
        if half == 0 { Duration::ZERO } else { PACE_MAX.mul_f64(over as f64 / half as f64) }
    }

    pub(crate) fn send(&self, message: Message) {
        let mut state = self.state.lock();
        // No messages are read after the end.
        if !state.closed || !matches!(message, Message::Flush(_)) {
            state.messages.push_back(message);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// No more changes are taken in.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
        self.drained.notify_all();
    }

    /// Answers everything that waits with [`crate::PutError::Closed`]; nothing more is taken in.
    pub(crate) fn abort(&self) {
        self.close();
        let mut state = self.state.lock();
        let (submissions, messages) = (std::mem::take(&mut state.submissions), std::mem::take(&mut state.messages));
        state.bytes = 0;
        drop(state);
        // Their answers run code of callers.
        drop((submissions, messages));
    }

    /// Bytes of waiting changes.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// The next message, if one arrives in time.
    pub(crate) fn next_message(&self, patience: Duration) -> Option<Message> {
        let mut state = self.state.lock();
        if state.messages.is_empty() {
            self.filled.wait_for(&mut state, patience);
        }
        state.messages.pop_front()
    }

    /// The next work: messages first, then changes of up to `most` bytes, if they are `wanted`.
    pub(crate) fn next(&self, most: usize, wanted: bool, patience: Duration) -> Work {
        let mut state = self.state.lock();
        loop {
            if let Some(message) = state.messages.pop_front() {
                return Work::Message(message);
            }
            if wanted && !state.submissions.is_empty() {
                return Work::Batch(self.batch(&mut state, most));
            }
            if state.closed && (state.submissions.is_empty() || !wanted) {
                return Work::End;
            }
            if self.filled.wait_for(&mut state, patience).timed_out() {
                return Work::Nothing;
            }
        }
    }

    fn batch(&self, state: &mut State, most: usize) -> Vec<Submission> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(next) = state.submissions.front() {
            if bytes > 0 && bytes + next.bytes() > most {
                break;
            }
            bytes += next.bytes();
            batch.extend(state.submissions.pop_front());
        }
        state.bytes -= bytes;
        self.drained.notify_all();
        batch
    }
}
