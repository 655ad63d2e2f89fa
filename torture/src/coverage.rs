//! The states that the engine's events met, those that they never met, and those that they cannot meet.
//!
//! The state is that of the event's subject: the phase of its drive, the state of its group, or else the state of the
//! rack as a whole. A write has no group before it is in service; until then it meets the state of the rack.
//!
//! Invariant: every pair that is counted is one of [`pairs`].

use engine::{DrivePhase, Event, GroupState, Loss, Rack, Work};
use model::{DriveId, GroupId, OpId};
use std::collections::BTreeMap;

/// The names of an event and of the state that it meets.
pub type Pair = (&'static str, &'static str);

/// The number of times that each event met each state.
pub type Coverage = BTreeMap<Pair, u64>;

/// The subject of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Drive,
    Group,
    Rack,
}

/// Every kind of event.
const EVENTS: [(&str, About); 51] = [
    ("DriveReported", About::Rack),
    ("Booted", About::Rack),
    ("HostMeasured", About::Rack),
    ("SpunUp", About::Drive),
    ("Mounted", About::Drive),
    ("Unmounted", About::Drive),
    ("Stopped", About::Drive),
    ("DriveCommandFailed", About::Drive),
    ("DriveLost", About::Drive),
    ("DriveBack", About::Drive),
    ("DriveSpins", About::Drive),
    ("DriveFailed", About::Drive),
    ("DriveReplaced", About::Drive),
    ("DriveReturned", About::Drive),
    ("DriveMayReturn", About::Rack),
    ("DriveRetiring", About::Drive),
    ("OnDrivePage", About::Drive),
    ("OnDriveUnlisted", About::Drive),
    ("StackMoved", About::Group),
    ("Submitted", About::Group),
    ("SubmittedWhileAwake", About::Group),
    (WRITE_SUBMITTED, About::Rack),
    ("SubmittedForJob", About::Group),
    (WRITE_SUBMITTED_FOR_JOB, About::Rack),
    ("Cancelled", About::Group),
    (WRITE_CANCELLED, About::Rack),
    ("TransferEnded", About::Group),
    ("ReadCutShort", About::Group),
    ("SourceUnreadable", About::Group),
    ("StagingChanged", About::Rack),
    ("StagedPage", About::Rack),
    ("SpaceDead", About::Group),
    ("DeadKept", About::Group),
    ("DeadStacks", About::Rack),
    ("DeadPage", About::Group),
    ("DeadUnlisted", About::Group),
    ("ScrubReported", About::Rack),
    ("ScrubUnread", About::Rack),
    ("ScrubPaused", About::Rack),
    ("ScrubRequested", About::Rack),
    ("ScrubPage", About::Group),
    ("ScrubUnlisted", About::Group),
    ("Job", About::Rack),
    ("Closing", About::Rack),
    ("DeadlineReached", About::Rack),
    ("ChecksReported", About::Rack),
    ("LoadMeasured", About::Rack),
    ("StagedChecked", About::Rack),
    ("StagedUnchecked", About::Rack),
    ("DriveHealth", About::Drive),
    ("DriveHealthReported", About::Rack),
];

const WRITE_SUBMITTED: &str = "Submitted (write)";
const WRITE_SUBMITTED_FOR_JOB: &str = "SubmittedForJob (write)";
const WRITE_CANCELLED: &str = "Cancelled (write)";

/// The states of a rack.
const RACK_STATES: [&str; 4] = ["booting", "serving", "full", "closing"];

fn states(about: About) -> Vec<&'static str> {
    match about {
        About::Drive => [
            DrivePhase::Standby,
            DrivePhase::AwaitingPermit,
            DrivePhase::SpinningUp,
            DrivePhase::Mounting,
            DrivePhase::Ready,
            DrivePhase::Unmounting,
            DrivePhase::Stopping,
            DrivePhase::Away(Loss::Died),
        ]
        .map(DrivePhase::name)
        .to_vec(),
        About::Group => {
            [GroupState::Asleep, GroupState::Waking, GroupState::Busy, GroupState::Idle, GroupState::Resting]
                .map(GroupState::name)
                .to_vec()
        }
        About::Rack => RACK_STATES.to_vec(),
    }
}

/// Impossible pairs: events, states that none of them can meet, and the reason.
type Cannot = (&'static [&'static str], &'static [&'static str], &'static str);

/// All impossible pairs.
const CANNOT: [Cannot; 7] = [
    (
        &["DriveReported", "DriveMayReturn", "ScrubReported", "ScrubUnread", "Booted", "ChecksReported"],
        &["serving", "full", "closing"],
        "a start says them before anything else happens",
    ),
    (
        &[
            WRITE_SUBMITTED,
            WRITE_SUBMITTED_FOR_JOB,
            WRITE_CANCELLED,
            "StagedPage",
            "LoadMeasured",
            "StagedChecked",
            "StagedUnchecked",
            "DeadStacks",
            "Job",
            "Closing",
            "DeadlineReached",
            "ScrubRequested",
        ],
        &["booting"],
        "nothing is asked of a rack, nor by it, before it has booted",
    ),
    (&["Closing"], &["closing"], "a server closes once"),
    (
        &["DriveReplaced", "DriveReturned"],
        &["waiting for power", "spinning up", "mounting", "ready", "unmounting", "stopping"],
        "a drive is replaced once it failed and stands still, and one that failed is not started",
    ),
    (
        &["DriveHealth"],
        &["standby", "waiting for power", "spinning up", "mounting", "ready", "unmounting", "stopping", "away"],
        "the drives of a run are in memory, and have no sectors",
    ),
    (&["DriveHealthReported"], &RACK_STATES, "nothing is remembered of what no drive says"),
    (&["HostMeasured"], &RACK_STATES, "the drives of a run are in memory, and share no file system"),
];

/// The reason why an event cannot meet a state; `None` if it can.
pub fn cannot((event, state): Pair) -> Option<&'static str> {
    let found = CANNOT.iter().find(|(events, states, _)| events.contains(&event) && states.contains(&state));
    found.map(|(_, _, why)| *why)
}

/// Every event with every state of its subject.
pub fn pairs() -> impl Iterator<Item = Pair> {
    EVENTS.into_iter().flat_map(|(event, about)| states(about).into_iter().map(move |state| (event, state)))
}

/// Counts the pairs in a life of a server.
#[derive(Default)]
pub(crate) struct Meetings {
    /// The group of each operation that has one.
    groups: BTreeMap<OpId, GroupId>,
    booted: bool,
    closing: bool,
}

impl Meetings {
    /// An operation is in service on drives of `group`.
    pub(crate) fn in_service(&mut self, op: OpId, group: GroupId) {
        self.groups.insert(op, group);
    }

    /// The pair of `event` and the state of `rack` before it. `None` if its operation has no known group: it removes
    /// stacks from no drive, or it ended earlier.
    pub(crate) fn meet(&mut self, event: &Event, rack: &Rack) -> Option<Pair> {
        use Event::{Submitted, SubmittedForJob, SubmittedWhileAwake};
        let of_rack = match (self.booted, self.closing) {
            (false, _) => "booting",
            (true, true) => "closing",
            (true, false) if rack.is_full() => "full",
            (true, false) => "serving",
        };
        self.booted |= matches!(event, Event::Booted);
        self.closing |= matches!(event, Event::Closing);
        let name = name(event);
        if let Some(drive) = drive_of(event) {
            return Some((name, rack.drive_phase(drive).name()));
        }
        if let Submitted(request) | SubmittedWhileAwake(request) | SubmittedForJob { request, .. } = event
            && let Some(group) = group_of(&request.work)
        {
            self.groups.insert(request.op, group);
        }
        match self.group(event) {
            Some(group) => Some((name, rack.group_state(group).name())),
            None if is_about_a_group(name) => of_a_write(event).map(|name| (name, of_rack)),
            None => Some((name, of_rack)),
        }
    }

    fn group(&self, event: &Event) -> Option<GroupId> {
        match event {
            Event::StackMoved { op, .. }
            | Event::Cancelled { op }
            | Event::ReadCutShort { op, .. }
            | Event::TransferEnded { op, .. }
            | Event::SourceUnreadable { op, .. } => self.groups.get(op).copied(),
            Event::Submitted(request)
            | Event::SubmittedWhileAwake(request)
            | Event::SubmittedForJob { request, .. } => group_of(&request.work),
            Event::SpaceDead { group, .. }
            | Event::DeadKept { group, .. }
            | Event::DeadPage { group, .. }
            | Event::DeadUnlisted { group, .. }
            | Event::ScrubPage { group, .. }
            | Event::ScrubUnlisted { group, .. } => Some(*group),
            _ => None,
        }
    }
}

fn drive_of(event: &Event) -> Option<DriveId> {
    match event {
        Event::SpunUp { drive, .. }
        | Event::Mounted { drive, .. }
        | Event::Unmounted { drive, .. }
        | Event::Stopped { drive, .. }
        | Event::DriveCommandFailed { drive, .. }
        | Event::DriveLost { drive, .. }
        | Event::DriveBack { drive }
        | Event::DriveSpins { drive }
        | Event::DriveFailed { drive, .. }
        | Event::DriveReplaced { drive, .. }
        | Event::DriveReturned { drive, .. }
        | Event::DriveRetiring { drive }
        | Event::DriveHealth { drive, .. }
        | Event::OnDriveUnlisted { drive, .. }
        | Event::OnDrivePage { drive, .. } => Some(*drive),
        _ => None,
    }
}

fn group_of(work: &Work) -> Option<GroupId> {
    match work {
        Work::Read { group, .. }
        | Work::Delete { group, .. }
        | Work::Rebuild { group, .. }
        | Work::Scrub { group, .. }
        | Work::ScrubWake { group }
        | Work::Visit { group }
        | Work::Initialise { group }
        | Work::Inspect { group } => Some(*group),
        Work::Write { .. } => None,
    }
}

fn is_about_a_group(name: &str) -> bool {
    EVENTS.iter().any(|(event, about)| *event == name && *about == About::Group)
}

/// The name of an event that is about a write without a group.
fn of_a_write(event: &Event) -> Option<&'static str> {
    match event {
        Event::Submitted(_) => Some(WRITE_SUBMITTED),
        Event::SubmittedForJob { .. } => Some(WRITE_SUBMITTED_FOR_JOB),
        Event::Cancelled { .. } => Some(WRITE_CANCELLED),
        _ => None,
    }
}

fn name(event: &Event) -> &'static str {
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
        Event::DriveSpins { .. } => "DriveSpins",
        Event::DriveFailed { .. } => "DriveFailed",
        Event::DriveReplaced { .. } => "DriveReplaced",
        Event::DriveReturned { .. } => "DriveReturned",
        Event::DriveMayReturn { .. } => "DriveMayReturn",
        Event::DriveRetiring { .. } => "DriveRetiring",
        Event::DriveHealth { .. } => "DriveHealth",
        Event::DriveHealthReported(_) => "DriveHealthReported",
        Event::OnDrivePage { .. } => "OnDrivePage",
        Event::OnDriveUnlisted { .. } => "OnDriveUnlisted",
        Event::StackMoved { .. } => "StackMoved",
        Event::ReadCutShort { .. } => "ReadCutShort",
        Event::Submitted(_) => "Submitted",
        Event::SubmittedWhileAwake(_) => "SubmittedWhileAwake",
        Event::Cancelled { .. } => "Cancelled",
        Event::TransferEnded { .. } => "TransferEnded",
        Event::SourceUnreadable { .. } => "SourceUnreadable",
        Event::StagingChanged(_) => "StagingChanged",
        Event::StagedPage { .. } => "StagedPage",
        Event::SpaceDead { .. } => "SpaceDead",
        Event::DeadKept { .. } => "DeadKept",
        Event::DeadStacks { .. } => "DeadStacks",
        Event::DeadPage { .. } => "DeadPage",
        Event::DeadUnlisted { .. } => "DeadUnlisted",
        Event::ScrubReported { .. } => "ScrubReported",
        Event::ScrubUnread { .. } => "ScrubUnread",
        // No rack of a run has a pool.
        Event::PoolDrive { .. } => "PoolDrive",
        Event::ScrubPaused { .. } => "ScrubPaused",
        Event::ScrubRequested { .. } => "ScrubRequested",
        Event::ScrubPage { .. } => "ScrubPage",
        Event::ScrubUnlisted { .. } => "ScrubUnlisted",
        Event::Job { .. } => "Job",
        Event::SubmittedForJob { .. } => "SubmittedForJob",
        Event::Closing => "Closing",
        Event::DeadlineReached => "DeadlineReached",
        Event::ChecksReported(_) => "ChecksReported",
        Event::LoadMeasured { .. } => "LoadMeasured",
        Event::StagedChecked { .. } => "StagedChecked",
        Event::StagedUnchecked { .. } => "StagedUnchecked",
    }
}
