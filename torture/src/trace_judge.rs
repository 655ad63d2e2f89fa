//! The engine's trace of a run, judged as it comes: `engine::check` holds it against the rules, a replay of it through
//! a second rack must ask for the same, and which event met which state is counted.

use crate::journal::{Journal, Rule};
use crate::starts::Starts;
use engine::check::TraceCheck;
use engine::layout::Layout;
use engine::trace::{Record, Replay, TraceMessage};
use engine::{Action, Event, Rack, RackPolicy, Work};
use model::{DriveId, GroupId, OpId, RackSpec};
use std::collections::BTreeMap;

/// How often an event met a state.
pub type Coverage = BTreeMap<(&'static str, &'static str), u64>;

/// The judge of a run's trace.
#[derive(Default)]
pub(crate) struct TraceJudge {
    check: Option<TraceCheck>,
    replay: Option<Replay>,
    /// The group of each operation whose drives were seen.
    groups: BTreeMap<OpId, GroupId>,
    pub(crate) coverage: Coverage,
    pub(crate) records: u64,
    starts: Starts,
    /// The catalog may have forgotten starts.
    forgetful: bool,
    booted: bool,
    closing: bool,
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
        self.groups.clear();
        (self.booted, self.closing) = (false, false);
    }

    /// Operations that were asked for and are not answered.
    pub(crate) fn open_ops(&self) -> usize {
        self.check.as_ref().map_or(0, TraceCheck::open_ops)
    }

    /// Takes the next record.
    pub(crate) fn take(&mut self, record: &Record, journal: &Journal) {
        journal.hash_in(&record.now);
        self.records += 1;
        let (Some(check), Some(replay)) = (&mut self.check, &mut self.replay) else { return };
        let judged = match &record.message {
            TraceMessage::Event(event) => {
                journal.hash_in(event);
                let met = (event_name(event), met(event, replay.rack(), &self.groups, (self.booted, self.closing)));
                *self.coverage.entry(met).or_default() += 1;
                self.booted |= matches!(event, Event::Booted);
                self.closing |= matches!(event, Event::Closing);
                check.event(record.now, event)
            }
            TraceMessage::Action(action) => {
                journal.hash_in(action);
                if let Action::Transfer { op, transfer, .. } = action
                    && let Some(group) = transfer.drives().next().and_then(|d| replay.rack().layout().group_of(d))
                {
                    self.groups.insert(*op, group);
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
}

/// The state that `event` meets: of its drive, its group, or else of the rack.
fn met(event: &Event, rack: &Rack, groups: &BTreeMap<OpId, GroupId>, (booted, closing): (bool, bool)) -> &'static str {
    let of_drive = |drive: &DriveId| rack.drive_phase(*drive).name();
    let of_group = |group: Option<GroupId>| group.map(|group| rack.group_state(group).name());
    let of_op = |op: &OpId| of_group(groups.get(op).copied());
    let of_rack = match (booted, closing) {
        (false, _) => "booting",
        (true, true) => "closing",
        (true, false) if rack.is_full() => "full",
        (true, false) => "serving",
    };
    match event {
        Event::SpunUp { drive, .. }
        | Event::Mounted { drive, .. }
        | Event::Unmounted { drive, .. }
        | Event::Stopped { drive, .. }
        | Event::DriveCommandFailed { drive, .. }
        | Event::DriveLost { drive, .. }
        | Event::DriveBack { drive }
        | Event::DriveFailed { drive }
        | Event::DriveReplaced { drive, .. }
        | Event::OnDrivePage { drive, .. } => of_drive(drive),
        Event::StackMoved { op, .. }
        | Event::Cancelled { op }
        | Event::ReadCutShort { op, .. }
        | Event::TransferEnded { op, .. }
        | Event::SourceUnreadable { op, .. } => of_op(op).unwrap_or(of_rack),
        Event::Submitted(request) | Event::SubmittedForJob { request, .. } => match &request.work {
            Work::Read { group, .. }
            | Work::Delete { group, .. }
            | Work::Rebuild { group, .. }
            | Work::Visit { group }
            | Work::Initialise { group } => of_group(Some(*group)).unwrap_or(of_rack),
            Work::Write { .. } => of_rack,
        },
        Event::SpaceDead { group, .. } | Event::DeadPage { group, .. } => of_group(Some(*group)).unwrap_or(of_rack),
        Event::DriveReported(_)
        | Event::Booted
        | Event::HostMeasured { .. }
        | Event::StagingChanged(_)
        | Event::StagedPage { .. }
        | Event::Job { .. }
        | Event::Closing
        | Event::DeadlineReached => of_rack,
    }
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::DriveReported(_) => "DriveReported",
        Event::Booted => "Booted",
        Event::HostMeasured { .. } => "HostMeasured",
        Event::SpunUp { .. } => "SpunUp",
        Event::Mounted { .. } => "Mounted",
        Event::Unmounted { .. } => "Unmounted",
        Event::Stopped { .. } => "Stopped",
        Event::DriveCommandFailed { .. } => "DriveCommandFailed",
        Event::DriveLost { .. } => "DriveLost",
        Event::DriveBack { .. } => "DriveBack",
        Event::DriveFailed { .. } => "DriveFailed",
        Event::DriveReplaced { .. } => "DriveReplaced",
        Event::OnDrivePage { .. } => "OnDrivePage",
        Event::StackMoved { .. } => "StackMoved",
        Event::ReadCutShort { .. } => "ReadCutShort",
        Event::Submitted(_) => "Submitted",
        Event::Cancelled { .. } => "Cancelled",
        Event::TransferEnded { .. } => "TransferEnded",
        Event::SourceUnreadable { .. } => "SourceUnreadable",
        Event::StagingChanged(_) => "StagingChanged",
        Event::StagedPage { .. } => "StagedPage",
        Event::SpaceDead { .. } => "SpaceDead",
        Event::DeadPage { .. } => "DeadPage",
        Event::Job { .. } => "Job",
        Event::SubmittedForJob { .. } => "SubmittedForJob",
        Event::Closing => "Closing",
        Event::DeadlineReached => "DeadlineReached",
    }
}
