//! The description of a rack: drives, the resources they share, and the drives that fail together.
//!
//! A [`RackDraft`] is a description as given; [`RackSpec::validated`] turns it into one that all other code relies on.
//! Invariants of a [`RackSpec`]:
//! - every drive is in exactly one domain of each resource and of each kind of failure domain (Pelican, section 2);
//! - drive ids are 0, 1, 2, ...; domain ids of a resource are 0, 1, 2, ... and none is empty;
//! - k >= 1, r >= 0, k + r <= 255, group size >= k + r, fragments are a multiple of 4 KiB;
//! - rates and capacities are above 0; every distribution has min <= max.

mod draft;
mod validate;

pub use draft::{
    Code, Distribution, DomainLimit, DrivePower, DriveProfile, DriveSpec, FailureDomains, HeavyLoad, PoolDriveSpec,
    PowerCommand, RackDraft, RateSpread, Resource, SpecError, Stragglers, Watts, starts_per_day,
};
#[cfg(feature = "toml")]
pub(crate) use validate::{COMMAND_TIMEOUT_MAX, DRIVES_MAX, POOL_DRIVES_MAX};

use crate::id::{DomainId, DriveId, ResourceId};
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A valid rack. See the invariants at the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RackDraft")]
pub struct RackSpec(RackDraft);

impl TryFrom<RackDraft> for RackSpec {
    type Error = SpecError;

    fn try_from(draft: RackDraft) -> Result<Self, SpecError> {
        Self::validated(draft)
    }
}

impl core::ops::Deref for RackSpec {
    type Target = RackDraft;

    #[inline]
    fn deref(&self) -> &RackDraft {
        &self.0
    }
}

impl RackSpec {
    /// The rack that `draft` describes, if it satisfies every invariant at the head of this file.
    ///
    /// # Errors
    /// The first invariant that is violated: its key, what is wrong, and what to write instead.
    pub fn validated(draft: RackDraft) -> Result<Self, SpecError> {
        validate::check(&draft)?;
        Ok(Self(draft))
    }

    /// The drive numbered `id`, which must be of this rack.
    #[inline]
    pub fn drive(&self, id: DriveId) -> &DriveSpec {
        &self.0.drives[id.index()]
    }

    /// The capacity of drive `id`, in bytes.
    #[inline]
    pub fn capacity_bytes(&self, id: DriveId) -> u64 {
        self.drive(id).capacity_bytes.unwrap_or(self.0.profile.capacity_bytes)
    }

    /// The domain of `resource` that drive `id` is in.
    #[inline]
    pub fn domain_of(&self, id: DriveId, resource: ResourceId) -> DomainId {
        self.drive(id).resource_domains[resource.index()]
    }

    /// Every resource with its id.
    pub fn resources_by_id(&self) -> impl Iterator<Item = (ResourceId, &Resource)> {
        self.0.resources.iter().enumerate().map(|(i, r)| (ResourceId(i as u32), r))
    }

    /// The number of drives, out of `most`, that hard limits let spin up at once. `in_domain` gives, for a resource,
    /// the most of those drives that each of its domains has.
    ///
    /// Exact if one resource limits starts. If several do, permits may allow fewer, and never more.
    pub fn starts_max(&self, most: u64, in_domain: impl Fn(ResourceId) -> Vec<u64>) -> u64 {
        let limited = self.resources_by_id().filter(|(_, resource)| resource.hard);
        let of_one = limited.filter_map(|(id, resource)| match resource.limit {
            DomainLimit::StartingDrives(starts) => {
                Some(in_domain(id).into_iter().map(|drives| drives.min(starts.into())).sum())
            }
            _ => None,
        });
        of_one.fold(most, u64::min)
    }

    /// True if drive `id` has no power control: it counts as active at all times.
    #[inline]
    pub fn is_always_on(&self, id: DriveId) -> bool {
        self.drive(id).power == DrivePower::None
    }

    /// The number of drives that count as active at all times: those without power control, and those of the pool.
    pub fn always_on_drives(&self) -> u64 {
        let drives = self.0.drives.iter().filter(|drive| drive.power == DrivePower::None).count();
        (drives + self.0.pool.len()) as u64
    }

    /// The drives in each domain of `resource` that count as active there at all times: those without power control,
    /// and those of the pool.
    pub fn always_on_in(&self, resource: ResourceId) -> Vec<u64> {
        let mut counts = vec![0; self.domain_count(resource)];
        for domain in self.0.always_on_domains(resource.index()) {
            counts[domain.index()] += 1;
        }
        counts
    }

    /// The power that is counted for a drive that may spin, or start, at any moment, in milliwatts.
    pub fn always_on_mw(&self) -> u64 {
        let Watts { spin_up_mw, active_mw, .. } = self.0.profile.watts;
        u64::from(spin_up_mw.max(active_mw))
    }

    /// The number of domains of `resource`.
    pub fn domain_count(&self, resource: ResourceId) -> usize {
        self.0.drives.iter().map(|d| d.resource_domains[resource.index()].index() + 1).max().unwrap_or(0)
    }
}
