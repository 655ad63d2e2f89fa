//! Injected faults: drives die, fail, hang, wear out, come back and are replaced; stacks are corrupted.

use super::blobs::SimBlob;
use super::drives::{CommandKind, FUSE_RESETS_AFTER, Faults};
use super::state::{Scheduled, World};
use engine::{Controller, Event, Loss, Rack};
use model::{Attempt, BlobId, DriveId, GroupId, ResourceId};

impl World<Rack> {
    /// Replaces a failed drive with an empty one; false if the rack does not accept it yet.
    pub fn replace(&mut self, drive: DriveId) -> bool {
        if !self.rack.may_be_replaced(drive) {
            return false;
        }
        self.drives.come_back(self.now, drive);
        let lost_bytes = self.blobs.replace(drive);
        self.report(Event::DriveReplaced { drive, lost_bytes });
        true
    }

    /// Plugs a given-up drive in again, so that the rack takes it back; false if the rack does not accept it yet.
    pub fn take_back(&mut self, drive: DriveId) -> bool {
        if !self.rack.may_be_replaced(drive) {
            return false;
        }
        self.drives.come_back(self.now, drive);
        let lost_bytes = self.blobs.take_back(drive);
        self.report(Event::DriveReturned { drive, lost_bytes });
        true
    }

    /// Starts a drive without the engine's knowledge, as a broken ledger would.
    pub fn spin_up_without_permit(&mut self, drive: DriveId) {
        self.command(drive, Attempt(u32::MAX), CommandKind::SpinUp);
    }
}

impl<M: Controller> World<M> {
    /// Another program starts a drive in standby, and the rack notices.
    pub fn wake_by_others(&mut self, drive: DriveId) {
        if self.drives.stands_still(self.now, drive) {
            self.command(drive, Attempt(u32::MAX), CommandKind::SpinUp);
            if !self.drives.is_away(drive) {
                self.report(Event::DriveSpins { drive });
            }
        }
    }

    /// Sets the rates of faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.drives.faults = faults;
    }

    /// Takes a drive away, as if its electronics had died.
    pub fn kill(&mut self, drive: DriveId) {
        if !self.drives.is_away(drive) {
            self.drives.lose(self.now, drive);
            self.report(Event::DriveLost { drive, loss: Loss::Died });
        }
    }

    /// Makes a drive hang: it answers nothing for [`HANG`](super::HANG).
    pub fn hang(&mut self, drive: DriveId) {
        self.drives.hang(self.now, drive);
    }

    /// Sets the number of bad sectors of a drive, which it reports on request.
    pub fn wear(&mut self, drive: DriveId, bad_sectors: u64) {
        self.drives.set_bad_sectors(drive, bad_sectors);
    }

    /// Takes a drive away permanently: it died, and the operator declares that it will not come back.
    pub fn fail(&mut self, drive: DriveId) {
        self.kill(drive);
        assert!(self.drives.is_away(drive), "{drive} answers, and is declared to have failed");
        self.blobs.fail(drive);
        self.report(Event::DriveFailed { drive, pulled: true });
    }

    /// The operator wants a working drive to be emptied.
    pub fn retire(&mut self, drive: DriveId) {
        self.blobs.retire(drive);
        self.report(Event::DriveRetiring { drive });
    }

    /// Brings back a drive that was away.
    pub fn revive(&mut self, drive: DriveId) {
        if self.drives.come_back(self.now, drive) {
            self.report(Event::DriveBack { drive });
        }
    }

    /// Trips the fuse of the domain of `resource` that contains `drive`, without a fault of the engine. It resets by
    /// itself.
    pub fn trip(&mut self, resource: ResourceId, drive: DriveId) {
        let spec = self.rack.spec();
        let domain = spec.domain_of(drive, resource);
        let of_domain = spec.drives.iter().map(|drive| drive.id).filter(|id| spec.domain_of(*id, resource) == domain);
        let drives: Vec<DriveId> = of_domain.filter(|drive| !self.drives.is_away(*drive)).collect();
        for drive in &drives {
            self.drives.lose(self.now, *drive);
        }
        for drive in &drives {
            self.report(Event::DriveLost { drive: *drive, loss: Loss::FuseTripped });
        }
        self.agenda.plan(self.now + FUSE_RESETS_AFTER, Scheduled::FuseResets(drives));
    }

    /// Adds a blob under a new number without writing it, as if it had existed when the run began. Its space is already
    /// counted ([`Setting`](super::Setting)).
    pub fn place(&mut self, group: GroupId, drives: Vec<DriveId>, stack_bytes: u64) -> BlobId {
        let bytes = stack_bytes * u64::from(self.rack.spec().code.data);
        assert!(drives.len() == self.rack.spec().code.stacks(), "a blob of {} stacks", drives.len());
        self.blobs.place(SimBlob { group, drives, stack_bytes, bytes, dead_bytes: 0 })
    }
}
