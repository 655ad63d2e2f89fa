//! A verification beside the server that uses the verified data.
//!
//! - Records are compared with each other in a view of the catalog at one moment.
//! - Files are compared with the present catalog: a file is checked first, and the catalog is asked again about an
//!   apparent fault. Bytes are freed only after the catalog has released them, and written only after it has recorded
//!   them, so a fault that both lookups show is real.
//! - Drives are inspected group by group, when the engine has an inspection in service, a few blobs at a time.
//! - The deep form has the engine scrub every group now. The findings of the scrub are the faults of the stacks; it
//!   repairs what it can.

use super::beside::{ASLEEP, DRIVE, GroupDrives};
use super::report::SkippedGroup;
use super::{Finding, FindingKind, Step, Verification};
use crate::error::ServerError;
use catalog::{Blob, ScrubFinding};
use disk::stack;
use engine::Rejection;
use engine::scrub::ScrubView;
use model::{DriveId, GroupId};
use std::time::Duration;

/// Records read at once.
const PAGE: usize = 1_024;
/// The interval for checking the progress of scrubs.
const LOOK: Duration = Duration::from_millis(200);

const AGAIN: &str = "it is being regenerated; `larder scrub status` shows when it is good again";
const REPAIRED: &str = "nothing to do: it is repaired";

impl Verification<'_> {
    /// True if the present catalog has the stacks of `blob` where they were looked for, and an object lives in it.
    pub(super) async fn is_still_so(&self, blob: &Blob) -> Result<bool, ServerError> {
        if self.ground.serving.is_none() {
            return Ok(true);
        }
        let there = self.ground.catalog.blob(blob.blob).await?.is_some_and(|found| found.drives == blob.drives);
        Ok(there && self.ground.catalog.is_blob_living(blob.blob).await?)
    }

    /// Waits until there is room for findings, if a client fetches them.
    pub(super) async fn room(&self) {
        if let Some(serving) = &self.ground.serving {
            serving.findings.room().await;
        }
    }

    /// Borrows the drives of `group` for a moment. False if that is not possible now, which the report records.
    pub(super) async fn borrow(&mut self, group: &GroupDrives) -> Result<bool, ServerError> {
        let Some(serving) = &self.ground.serving else { return Ok(true) };
        self.room().await;
        let Some(id) = group.group else { return Ok(false) };
        match serving.world.inspect(id, serving.wakes || self.options.deep).await {
            Ok(lent) => {
                self.beside.lent = Some(lent);
                for &drive in &group.drives {
                    self.note_absence(drive);
                }
                Ok(true)
            }
            Err(Rejection::Closing) => Err(ServerError::Refused("the server is stopping".into())),
            Err(reason) => {
                if reason == Rejection::TooManyDrivesAway {
                    for drive in &group.drives {
                        self.note_absence(*drive);
                    }
                }
                let why = if reason == Rejection::Asleep { ASLEEP.into() } else { reason.to_string() };
                self.report.rack.skipped.push(SkippedGroup { group: id.0, why });
                Ok(false)
            }
        }
    }

    /// Returns the drives, so that others can use them.
    pub(super) fn give_back(&mut self) {
        self.beside.lent = None;
    }

    fn note_absence(&mut self, drive: DriveId) {
        let Some(serving) = &self.ground.serving else { return };
        let is_there = self.beside.lent.as_ref().is_some_and(|lent| lent.get(drive).is_some());
        if is_there || self.failed.contains(&drive) || !self.beside.absent.insert(drive) {
            return;
        }
        let reason = serving.context.counters.absences.all().remove(&drive);
        let reason = reason.unwrap_or_else(|| "it does not answer".into());
        self.found(Finding::new(FindingKind::DriveUnusable, format!("drive {drive}: {reason}"), DRIVE).drive(drive));
    }

    /// Requests a scrub of every group, beside a server and in the deep form.
    pub(super) async fn begin_scrub(&mut self) -> Result<(), ServerError> {
        let Some(serving) = self.ground.serving.as_ref().filter(|_| self.options.deep) else { return Ok(()) };
        let now = serving.world.ask(|_, now| now).await.ok_or_else(stopping)?;
        self.beside.asked = Some(now);
        serving.world.report(engine::Event::ScrubRequested { group: None });
        Ok(())
    }

    /// The next group of `left` to inspect: the first, or the first that is scrubbed. `None` if none is left.
    pub(super) async fn next_group(&mut self, left: &mut Vec<GroupDrives>) -> Result<Option<GroupDrives>, ServerError> {
        let Some((serving, asked)) = self.ground.serving.as_ref().zip(self.beside.asked) else {
            return Ok(if left.is_empty() { None } else { Some(left.remove(0)) });
        };
        // Spares have no data to read, and no group that could be awake.
        left.retain(|group| group.group.is_some());
        while !left.is_empty() {
            let views: Vec<ScrubView> =
                serving.world.ask(|rack, now| rack.scrubs(now).collect()).await.ok_or_else(stopping)?;
            let is_done = |group: &GroupDrives| {
                let view = views.iter().find(|view| Some(view.group) == group.group);
                // A group of another server is scrubbed by that server.
                view.is_none_or(|view| view.pass.complete && view.pass.began >= asked)
            };
            if let Some(at) = left.iter().position(is_done) {
                let group = left.remove(at);
                if let Some(id) = group.group {
                    self.scrubbed(id).await?;
                }
                return Ok(Some(group));
            }
            let covered = views.iter().map(|view| view.pass.covered_permille()).sum::<u64>();
            (self.watch)(Step::Scrubbing { permille: covered / (views.len() as u64).max(1) });
            tokio::time::sleep(LOOK).await;
        }
        Ok(None)
    }

    /// Records the findings of the scrub of `group`.
    async fn scrubbed(&mut self, group: GroupId) -> Result<(), ServerError> {
        let mut after = None;
        loop {
            let page = self.ground.catalog.scrub_findings(after.as_ref(), PAGE).await?;
            for found in page.items.into_iter().filter(|found| found.group == group) {
                self.scrub_found(found).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn scrub_found(&mut self, found: ScrubFinding) -> Result<(), ServerError> {
        let id = found.blob;
        let Some(blob) = self.ground.catalog.blob(id).await? else { return Ok(()) };
        if !self.ground.catalog.is_blob_living(id).await? {
            return Ok(());
        }
        for damaged in found.damaged {
            let name = stack::stack_name(id, damaged.index);
            let what = format!("stack {name} on drive {}: {}", damaged.drive, damaged.flaw);
            self.beside.scrubbed.insert((id, damaged.index));
            let finding = Finding::new(FindingKind::StackBad, what, AGAIN).blob(id).drive(damaged.drive).file(&name);
            self.found(finding);
        }
        for index in found.repaired {
            let Some(&drive) = blob.drives.get(usize::from(index)) else { continue };
            let name = stack::stack_name(id, index);
            let what = format!("stack {name} on drive {drive} was damaged");
            self.found(Finding::new(FindingKind::StackBad, what, REPAIRED).blob(id).drive(drive).file(&name));
        }
        if !found.lost.is_empty() {
            self.beside.lost.insert(id, found.lost);
        }
        Ok(())
    }
}

fn stopping() -> ServerError {
    ServerError::Refused("the server is stopping".into())
}
