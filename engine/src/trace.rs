//! The trace: every event a rack was given and every action it asked for, in order.
//!
//! A world that keeps a trace writes one [`Record`] for each event before it is applied, and one for each action behind
//! it. Since the engine has no other input than its description, its policy and its seed, a trace can be
//! [replayed](Replay) through a fresh [`Rack`], which must ask for the same again: whatever happened in a server or a
//! simulation can be looked at afterwards, and a trace of one world can be judged with the tools of the other.
//!
//! Written down, a trace is lines of JSON: a [`Header`], and then `{"now":<ns>,"message":{"event":{...}}}` or
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
    /// The moment.
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

/// Feeds a trace to a rack and compares what it asks for.
pub struct Replay {
    rack: Rack,
    now: Time,
    /// Actions of the rack that the trace has not shown yet.
    expected: VecDeque<Action>,
    records: u64,
}

/// Where a replay and its trace part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {record}: the rack asks for {asked:?}, and the trace has {traced:?}")]
pub struct Divergence {
    /// Which record of the trace, counted from 0.
    pub record: u64,
    /// The action the rack asked for now; `None` is no more.
    pub asked: Option<Action>,
    /// The action it had asked for then; `None` is no more.
    pub traced: Option<Action>,
}

impl Replay {
    /// A replay through `rack`, which must be as the traced one was when its trace began.
    pub fn new(rack: Rack) -> Self {
        Self { rack, now: Time::ZERO, expected: VecDeque::new(), records: 0 }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// [`Divergence`] if the rack asks for anything else than it did.
    pub fn take(&mut self, record: &Record) -> Result<(), Box<Divergence>> {
        let at = self.records;
        self.records += 1;
        match &record.message {
            TraceMessage::Event(event) => {
                if let Some(asked) = self.expected.pop_front() {
                    return Err(Box::new(Divergence { record: at, asked: Some(asked), traced: None }));
                }
                let mut actions = Vec::new();
                self.now = self.now.max(record.now); // time never goes back for a rack, whatever a trace says
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

    /// The rack as it is by now.
    pub fn rack(&self) -> &Rack {
        &self.rack
    }
}
