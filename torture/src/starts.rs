//! The starts of drives, counted outside the server: the rack must remember at least this number.
//!
//! The rack persists a start before it makes it. So every start of a drive on some day is counted on that day, both
//! when the next start is persisted and when a booting server reports the counts. A server may count more starts than
//! were made: it may crash between the two steps. Nothing is checked if the catalog itself failed or was restored from
//! a backup: then starts may be forgotten, and the server reports that.

use engine::{Action, Event};
use model::DriveId;
use std::collections::BTreeMap;

/// Starts that were made on the last day with a start.
#[derive(Clone, Copy, Default)]
struct Turned {
    day: u32,
    starts: u32,
}

/// The count.
#[derive(Default)]
pub(crate) struct Starts {
    turned: BTreeMap<DriveId, Turned>,
    /// The day of the last requested start of each drive.
    asked: BTreeMap<DriveId, u32>,
    /// The persisted starts of a drive that are not requested yet: the day, and the number.
    remembered: BTreeMap<DriveId, (u32, u32)>,
}

impl Starts {
    /// A server boots: starts that were requested and not made will never be made.
    pub(crate) fn begin_life(&mut self) {
        self.asked.clear();
        self.remembered.clear();
    }

    /// Records an action; an error if a start is requested and the persisted number is too small.
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

    /// Records an event; an error if a booting server reports fewer starts than were made. If `forgiven`, because the
    /// catalog failed, the server's number replaces the counted one.
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
