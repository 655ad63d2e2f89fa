//! Permits that no drive will release: a group wakes without a member that waits for one.
//!
//! Invariant: a permit that is released within a bounded time is waited for.

use super::{DrivePhase, Drives};
use model::{DriveId, RackSpec};

impl Drives {
    /// True if `drive`, one of `members`, waits for a permit that no drive will release: lost drives and other members
    /// hold all permits of one of its domains.
    pub(super) fn waits_in_vain(&self, members: &[DriveId], drive: DriveId, spec: &RackSpec) -> bool {
        if self.phase(drive) != DrivePhase::AwaitingPermit {
            return false;
        }
        self.ledger.blocking(drive).any(|(resource, domain)| {
            let may_give_back = |other: DriveId| {
                let state = &self.states[other.index()];
                // A member draws less once it is up to speed.
                let stays = members.contains(&other) && state.phase != DrivePhase::SpinningUp;
                self.is_permitted(other)
                    && !self.ledger.is_always_on(other)
                    && (self.may_be_starting(other) || !(state.phase.is_away() || stays))
                    && spec.domain_of(other, resource) == domain
            };
            !spec.drives.iter().any(|other| may_give_back(other.id)) && !self.ledger.pool_starts_in(resource, domain)
        })
    }
}
