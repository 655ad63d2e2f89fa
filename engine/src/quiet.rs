//! Which classes need not be looked at: those that wait for an answer of the world, and for nothing else.
//!
//! A class that has an operation in service, or all of whose members that are not there yet are on their way, can only
//! go on when a drive of its own answers, its operation's transfer ends, or its patience does. Most classes of a busy
//! rack are like that at most events, and a large rack has hundreds.
//!
//! Invariant: to look at a quiet class would change nothing. Every event but those named here disturbs all classes, so
//! that a new kind of event need not be known here to be safe.

use crate::event::Event;
use crate::rack::{ClassPhase, DrivePhase, Rack};
use model::{ClassId, DriveId, Time};

/// Until when a class is quiet that is not.
const NOT_QUIET: Time = Time::ZERO;

impl Rack {
    /// Has every class looked at with the next event, quiet or not. That changes nothing but the time it takes, which
    /// is what this is for: to hold the invariant to it.
    pub fn look_everywhere(&mut self) {
        self.quiet_until.fill(NOT_QUIET);
    }

    /// Remembers which classes `event`, which is about to be taken note of, may concern.
    pub(crate) fn disturb(&mut self, event: &Event) {
        let concerned = match event {
            // To be queued disturbs nobody who waits for drives.
            Event::Submitted(_) | Event::SubmittedForJob { .. } => return,
            Event::SpunUp { drive, .. }
            | Event::Mounted { drive, .. }
            | Event::Unmounted { drive, .. }
            | Event::Stopped { drive, .. } => self.layout.group_of(*drive).map(|group| self.class_of(group)),
            Event::TransferEnded { op, .. } | Event::SourceUnreadable { op, .. } => self.ops.get(op).map(|op| op.class),
            _ => None,
        };
        match concerned {
            Some(class) => self.quiet_until[class.index()] = NOT_QUIET,
            None => self.look_everywhere(),
        }
    }

    pub(crate) fn is_quiet(&self, class: ClassId, now: Time) -> bool {
        now < self.quiet_until[class.index()]
    }

    /// Remembers whether `class`, which has gone on as far as it can, is quiet from now on.
    pub(crate) fn note_quiet(&mut self, class: ClassId) {
        let state = &self.classes[class.index()];
        let phase_of = |drive: &DriveId| self.drives[drive.index()].phase;
        self.quiet_until[class.index()] = match state.phase {
            ClassPhase::Awake { .. } if state.in_service.is_some() => Time::MAX,
            ClassPhase::Waking { group, until } if !self.closing && self.is_getting_ready(group) => until,
            ClassPhase::Resting { group, until } => {
                let mut members = self.layout.groups[group.index()].drives.iter().map(phase_of);
                let moving = members.any(|phase| matches!(phase, DrivePhase::Unmounting | DrivePhase::Stopping));
                if moving { until } else { NOT_QUIET }
            }
            _ => NOT_QUIET,
        };
    }

    /// When the classes want to be looked at, if nothing happens before.
    pub(crate) fn classes_deadline(&self) -> Time {
        let classes = self.classes.iter().zip(&self.quiet_until);
        let deadline =
            |(class, quiet): (_, &Time)| if *quiet == NOT_QUIET { self.class_deadline(class) } else { *quiet };
        classes.map(deadline).min().unwrap_or(Time::MAX)
    }
}
