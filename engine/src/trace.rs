//! The trace: every event that a rack was given and every action that it asked for, in order.
//!
//! A world that keeps a trace writes one [`Record`] for each event before it is applied, and one for each resulting
//! action after it. Since the engine has no other input than its description, its policy and its seed, a trace can be
//! [replayed](Replay) through a fresh [`Rack`], which must ask for the same actions again. So any run of a server or a
//! simulation can be inspected afterwards, and a trace of one world can be judged with the tools of the other.
//!
//! A stored trace is lines of JSON: a [`Header`], and then `{"now":<ns>,"message":{"event":{...}}}` or
//! `{"now":<ns>,"message":{"action":{...}}}` for each record.

use crate::action::Action;
use crate::event::Event;
use crate::policy::RackPolicy;
use crate::rack::Rack;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use model::{RackSpec, Time};
use serde::{Deserialize, Serialize};

/// The version of the trace's format, of its events and its actions.
pub const TRACE_FORMAT: u32 = 7;

/// The first line of a trace: everything a rack is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`TRACE_FORMAT`]. A reader refuses others.
    pub trace: u32,
    /// The rack's description; its layout follows from it.
    pub spec: RackSpec,
    /// The operator's settings.
    pub policy: RackPolicy,
    /// The seed of its random choices.
    pub seed: u64,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its time.
    pub now: Time,
    /// The event or action.
    pub message: TraceMessage,
}

/// A message between a rack and its world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceMessage {
    /// To the rack.
    Event(Event),
    /// By the rack.
    Action(Action),
}

/// Feeds a trace to a rack and compares the actions that it asks for.
pub struct Replay {
    rack: Rack,
    now: Time,
    /// Actions of the rack that the trace has not shown yet.
    expected: VecDeque<Action>,
    records: u64,
}

/// The point at which a replay and its trace differ.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {record}: the rack asks for {asked:?}, and the trace has {traced:?}")]
pub struct Divergence {
    /// Which record of the trace, counted from 0.
    pub record: u64,
    /// The action that the rack asked for in the replay; `None` if it asked for no more.
    pub asked: Option<Action>,
    /// The action in the trace; `None` if the trace has no more.
    pub traced: Option<Action>,
}

impl Replay {
    /// A replay through `rack`, which must be in the state of the traced one at the beginning of its trace.
    pub fn new(rack: Rack) -> Self {
        Self { rack, now: Time::ZERO, expected: VecDeque::new(), records: 0 }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// [`Divergence`] if the rack asks for other actions than the trace has.
    pub fn take(&mut self, record: &Record) -> Result<(), Box<Divergence>> {
        let at = self.records;
        self.records += 1;
        match &record.message {
            TraceMessage::Event(event) => {
                if let Some(asked) = self.expected.pop_front() {
                    return Err(Box::new(Divergence { record: at, asked: Some(asked), traced: None }));
                }
                let mut actions = Vec::new();
                self.now = self.now.max(record.now); // time never goes back for a rack, even if it does in a trace
                self.rack.apply(self.now, event.clone(), &mut actions);
                self.expected.extend(actions);
                Ok(())
            }
            TraceMessage::Action(traced) => match self.expected.pop_front() {
                Some(asked) if asked == *traced => Ok(()),
                asked => Err(Box::new(Divergence { record: at, asked, traced: Some(traced.clone()) })),
            },
        }
    }

    /// The rack in its current state.
    pub fn rack(&self) -> &Rack {
        &self.rack
    }
}
