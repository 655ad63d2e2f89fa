//! Recognises a server that never ends: after the faults have stopped it serves the same operations repeatedly, without
//! progress.
//!
//! Messages are compared as words, so numbers of operations and attempts, which grow with every cycle, do not hide that
//! the rest is the same. A message repeats the one a period earlier if each of its words differs from the word there by
//! as much as that one differs from the word two periods earlier. Objects of random lengths do not produce this
//! pattern.
//!
//! Messages about the background work of an idle server (checks, scrubs, deadlines) are left out: they repeat as long
//! as it lives. A client that is refused until the next day also repeats; so a cycle counts only if it serves an
//! operation.

use engine::trace::TraceMessage;
use engine::{Action, Event, Transfer, Work};
use model::OpId;
use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

/// Number of repeated cycles after which no progress is expected. It exceeds the tries of a job that tries once a
/// minute, for a day, to read data that may come back.
const CYCLES: usize = 2_000;

/// The longest cycle that is recognised, in messages.
const PERIOD_MAX: usize = 256;

/// The words of a message, in the order in which it hashes them.
type Words = Vec<u64>;

/// Watches the messages of a server.
#[derive(Default)]
pub(crate) struct Repetition {
    /// The last messages, newest at the back: at most twice the longest cycle.
    recent: VecDeque<Words>,
    /// The cycle that the newest messages repeat, in messages; 0 if they repeat none.
    period: usize,
    /// Consecutive messages that repeat it.
    run: usize,
    /// Messages among these that serve an operation.
    served: usize,
    /// Operations of scrubs.
    scrubs: BTreeSet<OpId>,
}

impl Repetition {
    /// Takes the next message. Returns the length of the cycle, in messages, when it has been repeated too often.
    pub(crate) fn take(&mut self, message: &TraceMessage) -> Option<usize> {
        if !self.is_of_work(message) {
            return None;
        }
        let words = words_of(message);
        if self.period == 0 || !self.repeats(&words, self.period) {
            self.period = (1..=PERIOD_MAX).find(|period| self.repeats(&words, *period)).unwrap_or(0);
            (self.run, self.served) = (0, 0);
        }
        self.recent.push_back(words);
        if self.recent.len() > 2 * PERIOD_MAX {
            self.recent.pop_front();
        }
        self.run += 1;
        self.served += usize::from(matches!(message, TraceMessage::Action(Action::Transfer { .. })));
        let is_endless = self.period > 0 && self.served > 0 && self.run >= CYCLES * self.period;
        is_endless.then_some(self.period)
    }

    /// True if `words` continue a cycle of `period` messages.
    fn repeats(&self, words: &Words, period: usize) -> bool {
        let back = |messages: usize| self.recent.len().checked_sub(messages).map(|at| &self.recent[at]);
        let (Some(one), Some(two)) = (back(period), back(2 * period)) else { return false };
        one.len() == words.len()
            && two.len() == words.len()
            && words.iter().zip(one).zip(two).all(|((new, one), two)| new.wrapping_sub(*one) == one.wrapping_sub(*two))
    }

    /// True if the message is about an operation that is not a scrub's.
    fn is_of_work(&mut self, message: &TraceMessage) -> bool {
        let op = match message {
            TraceMessage::Event(event) => op_of_event(event),
            TraceMessage::Action(action) => op_of_action(action),
        };
        if let TraceMessage::Action(Action::Transfer { op, transfer: Transfer::Scrub { .. }, .. }) = message {
            self.scrubs.insert(*op);
        }
        let is_over = matches!(message, TraceMessage::Action(Action::Finished { .. }));
        let Some(op) = op else { return false };
        let is_scrub = if is_over { self.scrubs.remove(&op) } else { self.scrubs.contains(&op) };
        !is_scrub
            && !matches!(message, TraceMessage::Action(Action::Finished { outcome: engine::Outcome::Scrubbed(_), .. }))
    }
}

fn op_of_event(event: &Event) -> Option<OpId> {
    match event {
        Event::Submitted(request) | Event::SubmittedWhileAwake(request) | Event::SubmittedForJob { request, .. } => {
            (!matches!(request.work, Work::ScrubWake { .. })).then_some(request.op)
        }
        Event::TransferEnded { op, .. }
        | Event::ReadCutShort { op, .. }
        | Event::SourceUnreadable { op, .. }
        | Event::StackMoved { op, .. }
        | Event::Cancelled { op } => Some(*op),
        _ => None,
    }
}

fn op_of_action(action: &Action) -> Option<OpId> {
    match action {
        Action::Transfer { op, .. }
        | Action::Rejected { op, .. }
        | Action::Finished { op, .. }
        | Action::Compose { op, .. }
        | Action::Recompose { op, .. }
        | Action::MoveStack { op, .. } => Some(*op),
        _ => None,
    }
}

fn words_of(message: &TraceMessage) -> Words {
    let mut words = Recorder::default();
    match message {
        TraceMessage::Event(event) => event.hash(&mut words),
        TraceMessage::Action(action) => action.hash(&mut words),
    }
    words.0
}

/// Records the hashed words.
#[derive(Default)]
struct Recorder(Words);

impl Hasher for Recorder {
    fn finish(&self) -> u64 {
        self.0.len() as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0.push(u64::from_le_bytes(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Outcome, PriorityClass, ReadPolicy, Rejection, Request};
    use model::{Attempt, BlobId, DriveId, GroupId, Rng};

    fn read(op: u64, bytes: u64) -> TraceMessage {
        let work = Work::Read { blob: BlobId::numbered(3), group: GroupId(0), drives: vec![DriveId(1)].into(), bytes };
        let request = Request { op: OpId(op), priority: PriorityClass::Client, overtake_limit: None, work };
        TraceMessage::Event(Event::Submitted(Box::new(request)))
    }

    fn served(op: u64) -> TraceMessage {
        let stacks = vec![(0, DriveId(1))];
        let transfer = Transfer::Read { blob: BlobId::numbered(3), stacks, need: 1, policy: ReadPolicy::K };
        TraceMessage::Action(Action::Transfer { op: OpId(op), attempt: Attempt(op as u32), transfer })
    }

    fn failed(op: u64) -> TraceMessage {
        let outcome = Outcome::Failed(Rejection::TooManyDrivesAway);
        TraceMessage::Action(Action::Finished { op: OpId(op), outcome })
    }

    /// The number of cycles after which the messages of `cycle` are recognised, out of five times the necessary number.
    fn recognised(mut cycle: impl FnMut(u64) -> Vec<TraceMessage>) -> Option<u64> {
        let mut repetition = Repetition::default();
        (0..5 * CYCLES as u64).find(|at| cycle(*at).iter().any(|message| repetition.take(message).is_some()))
    }

    #[test]
    fn an_operation_that_fails_again_and_again_is_recognised_whatever_its_number() {
        let cycle = |at| vec![read(7 + 2 * at, 100), served(7 + 2 * at), failed(7 + 2 * at)];
        let cycles = recognised(cycle).expect("a cycle is recognised");
        assert!(cycles as usize <= CYCLES + 3, "{cycles} cycles are more than it takes");
    }

    #[test]
    fn operations_of_different_lengths_get_somewhere() {
        let mut rng = Rng::for_thing(1, 1);
        assert_eq!(recognised(|at| vec![read(at, rng.below(1_000)), served(at), failed(at)]), None);
    }

    #[test]
    fn a_client_that_is_refused_until_the_next_day_is_no_cycle() {
        let refused = |op| TraceMessage::Action(Action::Rejected { op, reason: Rejection::StartBudgetSpent });
        assert_eq!(recognised(|at| vec![read(at, 100), refused(OpId(at))]), None);
    }

    #[test]
    fn scrubs_repeat_for_as_long_as_a_server_lives() {
        let scrub = |op| {
            let (drives, stacks) = (vec![DriveId(1)], vec![(0, DriveId(1))]);
            let transfer = Transfer::Scrub {
                blob: BlobId::numbered(3),
                group: GroupId(0),
                drives,
                stacks,
                need: 1,
                from: 0,
                to: 9,
            };
            TraceMessage::Action(Action::Transfer { op: OpId(op), attempt: Attempt(1), transfer })
        };
        assert_eq!(recognised(|at| vec![scrub(at), failed(at)]), None);
    }
}
