//! The starts of drives, counted from outside: what the rack remembers of them must be no less.
//!
//! A start that is remembered is remembered before it is made. So every drive that has turned since some day began was
//! counted on that day: when its next start is remembered, and when a server boots and says what it knows. A server may
//! count more than were made: a crash may come between. Where the catalog itself failed, or was put back from a backup,
//! nothing is demanded: then starts may be forgotten, and the server says so.

use engine::{Action, Event};
use model::DriveId;
use std::collections::BTreeMap;

/// Starts that were made on the last day on which there was one.
#[derive(Clone, Copy, Default)]
struct Turned {
    day: u32,
    starts: u32,
}

/// The count.
#[derive(Default)]
pub(crate) struct Starts {
    turned: BTreeMap<DriveId, Turned>,
    /// The day of the start that a drive was last asked for.
    asked: BTreeMap<DriveId, u32>,
    /// What was remembered of a drive's starts and has not been asked for yet: the day, and how many.
    remembered: BTreeMap<DriveId, (u32, u32)>,
}

impl Starts {
    /// A server boots: what was asked for and not made never will be.
    pub(crate) fn begin_life(&mut self) {
        self.asked.clear();
        self.remembered.clear();
    }

    /// Takes note of an action; an error if a start is asked for of which too little is remembered.
    pub(crate) fn action(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::PersistStarts { drive, day, starts } => {
                self.remembered.insert(*drive, (*day, *starts));
                Ok(())
            }
            Action::SpinUp { drive, .. } => {
                let Some((day, starts)) = self.remembered.remove(drive) else {
                    return Err(format!("{drive} is started, and nothing is remembered of it"));
                };
                self.asked.insert(*drive, day);
                let made = self.made(*drive, day);
                if starts > made {
                    Ok(())
                } else {
                    Err(format!("start {} of {drive} is remembered as {starts}", made + 1))
                }
            }
            _ => Ok(()),
        }
    }

    /// Takes note of an event; an error if a server that boots knows of less than was made. `forgiven`, where the
    /// catalog failed: then the server's word counts.
    pub(crate) fn event(&mut self, event: &Event, forgiven: bool) -> Result<(), String> {
        match event {
            Event::SpunUp { drive, .. } => {
                if let Some(day) = self.asked.remove(drive) {
                    let turned = self.turned.entry(*drive).or_default();
                    let starts = if turned.day == day { turned.starts } else { 0 };
                    *turned = Turned { day, starts: starts + 1 };
                }
                Ok(())
            }
            Event::DriveReported(report) => {
                let turned = self.turned.get(&report.drive).copied().unwrap_or_default();
                let is_less = (report.day, report.starts) < (turned.day, turned.starts);
                if is_less && !forgiven {
                    let known = format!("{} on day {}", report.starts, report.day);
                    return Err(format!(
                        "{} was started {} times on day {}, and {known} are known",
                        report.drive, turned.starts, turned.day
                    ));
                }
                self.turned.insert(report.drive, Turned { day: report.day, starts: report.starts });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn made(&self, drive: DriveId, day: u32) -> u32 {
        self.turned.get(&drive).filter(|turned| turned.day == day).map_or(0, |turned| turned.starts)
    }
}
