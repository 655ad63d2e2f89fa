//! The engine's trace of a run, judged as it is written: `engine::check` checks it against the rules, a replay of it
//! through a second rack must request the same actions, and the states that each event met are counted.

use crate::coverage::{Coverage, Meetings};
use crate::journal::{Journal, Rule};
use crate::repetition::Repetition;
use crate::starts::Starts;
use engine::check::TraceCheck;
use engine::layout::Layout;
use engine::trace::{Record, Replay, TraceMessage};
use engine::{Action, Event, Rack, RackPolicy};
use model::{RackSpec, Rng};
use std::collections::VecDeque;

/// A run has fewer records than this: tens of thousands, or hundreds of thousands in lives of months.
const RECORDS_MAX: u64 = 5_000_000;

/// Number of latest answers that may come a second time.
const ANSWERS_MAX: usize = 256;

/// The judge of a run's trace.
#[derive(Default)]
pub(crate) struct TraceJudge {
    check: Option<TraceCheck>,
    replay: Option<Replay>,
    meetings: Meetings,
    pub(crate) coverage: Coverage,
    pub(crate) records: u64,
    starts: Starts,
    /// The catalog may have forgotten starts.
    forgetful: bool,
    /// Watches for cycles, once there are no faults.
    repetition: Option<Repetition>,
    /// The last answers to attempts in this life, the newest at the back.
    answers: VecDeque<Event>,
}

impl TraceJudge {
    /// A server boots with this rack. `forgetful` if the catalog has failed or is older.
    pub(crate) fn begin_life(
        &mut self,
        (spec, layout): (&RackSpec, &Layout),
        policy: &RackPolicy,
        seed: u64,
        forgetful: bool,
    ) {
        self.starts.begin_life();
        self.forgetful = forgetful;
        self.check = Some(TraceCheck::new(spec, layout, policy));
        self.replay = Some(Replay::new(Rack::new(spec.clone(), layout.clone(), policy.clone(), seed)));
        self.meetings = Meetings::default();
        self.answers.clear();
        if self.repetition.is_some() {
            self.repetition = Some(Repetition::default());
        }
    }

    /// From here on there are no faults: nothing may be retried repeatedly without success.
    pub(crate) fn faults_are_over(&mut self) {
        self.repetition = Some(Repetition::default());
    }

    /// Number of operations without an answer.
    pub(crate) fn open_ops(&self) -> usize {
        self.check.as_ref().map_or(0, TraceCheck::open_ops)
    }

    /// Takes the next record.
    pub(crate) fn take(&mut self, record: &Record, journal: &Journal) {
        journal.hash_in(&record.now);
        self.records += 1;
        self.comes_to_an_end(record, journal);
        let (Some(check), Some(replay)) = (&mut self.check, &mut self.replay) else { return };
        let judged = match &record.message {
            TraceMessage::Event(event) => {
                journal.hash_in(event);
                if let Some(pair) = self.meetings.meet(event, replay.rack()) {
                    *self.coverage.entry(pair).or_default() += 1;
                }
                check.event(record.now, event)
            }
            TraceMessage::Action(action) => {
                journal.hash_in(action);
                if let Action::Transfer { op, transfer, .. } = action
                    && let Some(group) = transfer.drives().next().and_then(|d| replay.rack().layout().group_of(d))
                {
                    self.meetings.in_service(*op, group);
                }
                check.action(action)
            }
        };
        let counted = match &record.message {
            TraceMessage::Event(event) => {
                remember(&mut self.answers, event);
                self.starts.event(event, self.forgetful)
            }
            TraceMessage::Action(action) => self.starts.action(action),
        };
        if let Err(fault) = counted {
            journal.broken(Rule::Budgets, || fault);
        }
        if let Err(fault) = judged {
            journal.broken(Rule::Trace, || fault.to_string());
        }
        if let Err(parted) = replay.take(record) {
            journal.broken(Rule::Trace, || format!("a replay does otherwise: {parted}"));
        }
    }

    /// One of the last answers.
    pub(crate) fn an_answer(&self, rng: &mut Rng) -> Option<Event> {
        let at = rng.below(self.answers.len().max(1) as u64) as usize;
        self.answers.get(at).cloned()
    }

    /// Checks that the server makes progress.
    fn comes_to_an_end(&mut self, record: &Record, journal: &Journal) {
        if self.records == RECORDS_MAX {
            journal.broken(Rule::Live, || format!("{RECORDS_MAX} records of the trace, and no end"));
        }
        let cycle = self.repetition.as_mut().and_then(|repetition| repetition.take(&record.message));
        if let Some(period) = cycle {
            journal.broken(Rule::Live, || {
                format!("the same {period} messages again and again, the last of them {:?}", record.message)
            });
        }
    }
}

fn remember(answers: &mut VecDeque<Event>, event: &Event) {
    if answers_an_attempt(event) {
        if answers.len() == ANSWERS_MAX {
            answers.pop_front();
        }
        answers.push_back(event.clone());
    }
}

/// True for an answer that carries the attempt that it answers, so a second one does no harm.
fn answers_an_attempt(event: &Event) -> bool {
    matches!(
        event,
        Event::SpunUp { .. }
            | Event::Mounted { .. }
            | Event::Unmounted { .. }
            | Event::Stopped { .. }
            | Event::DriveCommandFailed { .. }
            | Event::OnDrivePage { .. }
            | Event::StackMoved { .. }
            | Event::TransferEnded { .. }
            | Event::ReadCutShort { .. }
            | Event::SourceUnreadable { .. }
            | Event::StagedPage { .. }
            | Event::DeadPage { .. }
            | Event::DeadUnlisted { .. }
            | Event::OnDriveUnlisted { .. }
            | Event::ScrubPage { .. }
            | Event::ScrubUnlisted { .. }
            | Event::LoadMeasured { .. }
            | Event::StagedChecked { .. }
            | Event::StagedUnchecked { .. }
    )
}
