//! The description of a rack: drives, the resources they share, and what fails together.
//!
//! A [`RackDraft`] is what a description says; [`RackSpec::validated`] turns it into what everything else relies on.
//! Invariants of a [`RackSpec`]:
//! - every drive is in exactly one domain of each resource and of each kind of failure domain (Pelican, section 2);
//! - drive ids are 0, 1, 2, ...; domain ids of a resource are 0, 1, 2, ... and none is empty;
//! - k >= 1, r >= 0, k + r <= 255, group size >= k + r, fragments are a multiple of 4 KiB;
//! - rates and capacities are above 0; every distribution has min <= max.

mod validate;

#[cfg(feature = "toml")]
pub(crate) use validate::DRIVES_MAX;

use crate::{DomainId, DriveId, ResourceId, Rng};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The erasure code of a rack: k data fragments and r of redundancy make a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// k: fragments that hold the data itself. At least 1.
    pub data: u8,
    /// r: fragments of redundancy. Any k of the k + r rebuild a stripe.
    pub parity: u8,
    /// Bytes of a full fragment, a multiple of 4096. Pelican: 128 KiB.
    pub fragment_bytes: u32,
}

impl Code {
    /// k + r: the stacks of a blob, and the drives it lies on.
    pub const fn stacks(self) -> usize {
        self.data as usize + self.parity as usize
    }

    /// Payload bytes of a full stripe: k fragments.
    pub const fn stripe_bytes(self) -> u64 {
        self.data as u64 * self.fragment_bytes as u64
    }
}

/// How much of a resource one domain supplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainLimit {
    /// So many drives may be spinning or spinning up at once.
    ActiveDrives(u32),
    /// So many drives may be spinning up at once, whatever else spins. Never a reason to keep a drive asleep for long:
    /// it starts after the others. (Pelican's prototype carries one drive that spins and one that spins up in a tray,
    /// not two that spin up: this limit beside [`DomainLimit::ActiveDrives`].)
    StartingDrives(u32),
    /// The drives of the domain may draw so many watts together (those asleep included).
    Watts(u32),
    /// The drives of the domain share so many bytes/s. Never a reason to keep a drive asleep.
    BytesPerS(u64),
}

impl DomainLimit {
    /// Whether it may keep one drive asleep for as long as another one is awake. A layout has to heed these alone.
    pub const fn limits_awake(self) -> bool {
        matches!(self, Self::ActiveDrives(_) | Self::Watts(_))
    }
}

/// A resource that drives share, such as power, cooling, vibration or a PCIe link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// What the description calls it.
    pub name: String,
    /// What each of its domains supplies.
    pub limit: DomainLimit,
    /// Breaking a hard limit takes the domain's drives away (a fuse trips); breaking a soft one costs speed.
    pub hard: bool,
}

/// A way in which drives fail together, such as `tray`, `chassis` or `server`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureDomains {
    /// What the description calls it.
    pub name: String,
    /// Whether losing such a domain loses what is on its drives. A server's loss does not: its drives are re-attached.
    pub loses_media: bool,
}

/// One drive: where it is and what it shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveSpec {
    /// Its number.
    pub id: DriveId,
    /// Where it is: [width, depth, height], each from 0.
    pub slot: [u16; 3],
    /// Its domain of each resource, in the order of [`RackDraft::resources`].
    pub resource_domains: Vec<DomainId>,
    /// Its domain of each kind of failure domain, in the order of [`RackDraft::failure_domains`].
    pub failure_domains: Vec<DomainId>,
    /// What it holds, where it differs from the profile.
    pub capacity_bytes: Option<u64>,
    /// The directory or device that stands behind it, for racks described drive by drive.
    pub path: Option<String>,
}

/// How a duration varies. Sampled in whole nanoseconds, so that a seed means the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// How many uniform draws are averaged (Bates distribution): 1 is uniform, 4 is bell-shaped. From 1 to 16.
    pub draws: u8,
}

impl Distribution {
    /// Always `span`.
    pub const fn constant(span: Duration) -> Self {
        Self { min: span, max: span, draws: 1 }
    }

    /// One duration of this distribution, between `min` and `max`.
    pub fn sample(&self, rng: &mut Rng) -> Duration {
        let (min, max) = (self.min.as_nanos() as u64, self.max.as_nanos() as u64);
        assert!(min <= max && self.draws >= 1, "a distribution of a validated rack is not empty");
        let sum: u128 = (0..self.draws).map(|_| u128::from(rng.between(min, max))).sum();
        Duration::from_nanos((sum / u128::from(self.draws)) as u64)
    }

    /// The mean: half-way between `min` and `max`.
    pub fn mean(&self) -> Duration {
        (self.min + self.max) / 2
    }
}

/// What a drive draws in each state, in milliwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watts {
    /// Platters stopped, electronics on.
    pub standby_mw: u32,
    /// While spinning up.
    pub spin_up_mw: u32,
    /// While spinning, whether or not it transfers.
    pub active_mw: u32,
}

/// What a drive of this rack is like: the engine's estimate, and an emulated drive's truth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveProfile {
    /// What it holds, in bytes.
    pub capacity_bytes: u64,
    /// Sequential transfer rate, in bytes/s.
    pub bytes_per_s: u64,
    /// The average seek, before a transfer that does not go on where the last one ended.
    pub seek: Duration,
    /// Standby to ready.
    pub spin_up: Distribution,
    /// Mounting its file system on an idle server.
    pub mount: Distribution,
    /// Mounting its file system on a server under load (Pelican's second load regime).
    pub mount_busy: Distribution,
    /// Unmounting its file system.
    pub unmount: Distribution,
    /// STANDBY IMMEDIATE to platters stopped.
    pub spin_down: Distribution,
    /// Power in each state.
    pub watts: Watts,
    /// Start-stop cycles it is rated for over its life.
    pub rated_starts: u32,
    /// The years those cycles must last. The daily start budget is `rated_starts` / (`life_years` x 365).
    pub life_years: u32,
}

impl DriveProfile {
    /// Starts a drive may use on one day (Serviceable cold storage): 30,000 over 8 years is 10. At least 1.
    pub fn starts_per_day(&self) -> u32 {
        (self.rated_starts / (self.life_years * 365)).max(1)
    }

    /// How long a group takes to get ready from standby, by the means: spin-up and mount.
    pub fn wake_estimate(&self) -> Duration {
        self.spin_up.mean() + self.mount.mean()
    }

    /// How long a group takes to let go, by the means: unmount and stop.
    pub fn rest_estimate(&self) -> Duration {
        self.unmount.mean() + self.spin_down.mean()
    }
}

/// What a description says, before it is known to make sense. Fields mean what they mean in [`RackSpec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RackDraft {
    /// Its name: letters, digits, `-`, `_` or `.`, at most 63.
    pub name: String,
    /// The erasure code.
    pub code: Code,
    /// g: drives a group.
    pub group_drives: u32,
    /// The size that packs of small objects grow to, and the floor of an object that is a blob of its own.
    pub pack_bytes: u64,
    /// What drives share.
    pub resources: Vec<Resource>,
    /// What fails together.
    pub failure_domains: Vec<FailureDomains>,
    /// The drives.
    pub drives: Vec<DriveSpec>,
    /// What a drive is like.
    pub profile: DriveProfile,
}

/// A rack that makes sense. See the invariants at the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RackDraft")]
pub struct RackSpec {
    draft: RackDraft,
}

impl Serialize for RackSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.draft.serialize(serializer)
    }
}

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
        &self.draft
    }
}

/// Why a draft is no rack: which part of it, what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The key it is about, as a description spells it, such as `code.fragment_bytes`.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl core::error::Error for SpecError {}

impl RackSpec {
    /// The rack that `draft` describes, if it keeps every invariant stated at the head of this file.
    ///
    /// # Errors
    /// The first invariant that is broken: the key it is about, what is wrong, and what to write instead.
    pub fn validated(draft: RackDraft) -> Result<Self, SpecError> {
        validate::check(&draft)?;
        Ok(Self { draft })
    }

    /// The drive numbered `id`, which must be of this rack.
    #[inline]
    pub fn drive(&self, id: DriveId) -> &DriveSpec {
        &self.draft.drives[id.index()]
    }

    /// What drive `id` holds, in bytes.
    #[inline]
    pub fn capacity_bytes(&self, id: DriveId) -> u64 {
        self.drive(id).capacity_bytes.unwrap_or(self.draft.profile.capacity_bytes)
    }

    /// The domain of `resource` that drive `id` is in.
    #[inline]
    pub fn domain_of(&self, id: DriveId, resource: ResourceId) -> DomainId {
        self.drive(id).resource_domains[resource.index()]
    }

    /// Every resource with its id.
    pub fn resources_by_id(&self) -> impl Iterator<Item = (ResourceId, &Resource)> {
        self.draft.resources.iter().enumerate().map(|(i, r)| (ResourceId(i as u32), r))
    }

    /// The most of some drives, `most` in all, that hard limits let spin up at once. `in_domain` says how many of them
    /// each domain of a resource has at most.
    ///
    /// Exact where one resource limits starts. Where several do, permits may allow fewer, and never more.
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

    /// How many domains `resource` has.
    pub fn domain_count(&self, resource: ResourceId) -> usize {
        self.draft.drives.iter().map(|d| d.resource_domains[resource.index()].index() + 1).max().unwrap_or(0)
    }
}
