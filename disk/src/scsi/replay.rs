//! A disk with recorded answers of another disk, or answers from a standard: for tests, and for reports of disks that
//! behave oddly.
//!
//! Each kind of command has its own answers, returned in turn; the last one repeats. A command without recorded answers
//! is rejected as a disk would reject it: INVALID COMMAND OPERATION CODE.

use super::{Command, Reply, STATUS_CHECK_CONDITION, ScsiTransport, TransportError};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// One recorded answer.
pub type Recorded = Result<Reply, TransportError>;

#[derive(Default)]
struct Answers {
    rest: VecDeque<Recorded>,
    last: Option<Recorded>,
}

/// A disk of recorded answers, which records the commands it receives.
#[derive(Default)]
pub struct Replay {
    answers: Mutex<Vec<(Command, Answers)>>,
    asked: Mutex<Vec<Command>>,
}

impl Replay {
    /// Answers `command` with `answers`, in this order, and with the last of them from then on.
    #[must_use]
    pub fn with(self, command: Command, answers: impl IntoIterator<Item = Recorded>) -> Self {
        let rest: VecDeque<Recorded> = answers.into_iter().collect();
        assert!(!rest.is_empty(), "a command with recorded answers has one");
        self.answers.lock().push((command, Answers { rest, last: None }));
        self
    }

    /// The commands that were sent so far, in order.
    pub fn asked(&self) -> Vec<Command> {
        self.asked.lock().clone()
    }
}

impl ScsiTransport for Replay {
    fn execute(&self, command: &Command) -> Result<Reply, TransportError> {
        self.asked.lock().push(*command);
        let mut all = self.answers.lock();
        let Some((_, answers)) = all.iter_mut().find(|(recorded, _)| recorded == command) else {
            return Ok(Reply::rejected());
        };
        if let Some(next) = answers.rest.pop_front() {
            answers.last = Some(next);
        }
        answers.last.clone().unwrap_or_else(|| Ok(Reply::rejected()))
    }
}

impl Reply {
    /// Status GOOD with `data`.
    pub fn good(data: &[u8]) -> Self {
        Self { data: data.to_vec(), ..Self::default() }
    }

    /// CHECK CONDITION with these sense data.
    pub fn check(sense: &[u8]) -> Self {
        Self { status: STATUS_CHECK_CONDITION, sense: sense.to_vec(), ..Self::default() }
    }

    /// CHECK CONDITION with sense data of fixed format.
    pub fn check_fixed(key: u8, asc: u8, ascq: u8) -> Self {
        Self::check(&[0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0])
    }

    /// INVALID COMMAND OPERATION CODE.
    fn rejected() -> Self {
        Self::check_fixed(super::sense::ILLEGAL_REQUEST, 0x20, 0x00)
    }
}
