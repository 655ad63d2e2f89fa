//! The engine's trace of a run, judged as it comes: `engine::check` holds it against the rules, a replay of it through
//! a second rack must ask for the same, and which event met which state is counted.

use crate::coverage::{Coverage, Meetings};
use crate::journal::{Journal, Rule};
use crate::repetition::Repetition;
use crate::starts::Starts;
use engine::check::TraceCheck;
use engine::layout::Layout;
use engine::trace::{Record, Replay, TraceMessage};
use engine::{Action, Rack, RackPolicy};
use model::{RackSpec, Time};

/// A run has fewer records than this: some ten thousand, and some hundred thousand in lives of months.
const RECORDS_MAX: u64 = 5_000_000;

/// Records of one moment at most: a start reports every drive, and one group after another ends its work.
const RECORDS_OF_A_MOMENT_MAX: u64 = 20_000;

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
    /// The moment of the last record, and how many records it has.
    moment: (Time, u64),
}

impl TraceJudge {
    /// A server boots with this rack. `forgetful`, if the catalog has failed or is older.
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
        self.moment = (Time::ZERO, 0);
        if self.repetition.is_some() {
            self.repetition = Some(Repetition::default());
        }
    }

    /// From here on there are no faults: nothing may be tried again and again in vain.
    pub(crate) fn faults_are_over(&mut self) {
        self.repetition = Some(Repetition::default());
    }

    /// Operations that were asked for and are not answered.
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
                *self.coverage.entry(self.meetings.meet(event, replay.rack())).or_default() += 1;
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
            TraceMessage::Event(event) => self.starts.event(event, self.forgetful),
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

    /// The server gets somewhere.
    fn comes_to_an_end(&mut self, record: &Record, journal: &Journal) {
        if self.records == RECORDS_MAX {
            journal.broken(Rule::Live, || format!("{RECORDS_MAX} records of the trace, and no end"));
        }
        let (moment, records) = &mut self.moment;
        *records = if *moment == record.now { *records + 1 } else { 1 };
        *moment = record.now;
        if *records == RECORDS_OF_A_MOMENT_MAX {
            journal.broken(Rule::Live, || format!("{RECORDS_OF_A_MOMENT_MAX} records of one moment, and no end"));
        }
        let cycle = self.repetition.as_mut().and_then(|repetition| repetition.take(&record.message));
        if let Some(period) = cycle {
            journal.broken(Rule::Live, || {
                format!("the same {period} messages again and again, the last of them {:?}", record.message)
            });
        }
    }
}
