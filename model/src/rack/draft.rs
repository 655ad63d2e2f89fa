//! A rack as described, before any check.

use crate::id::{DomainId, DriveId};
use crate::random::Rng;
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
    /// k + r: the number of a blob's stacks, and of the drives that store it.
    pub const fn stacks(self) -> usize {
        self.data as usize + self.parity as usize
    }

    /// Payload bytes of a full stripe: k fragments.
    pub const fn stripe_bytes(self) -> u64 {
        self.data as u64 * self.fragment_bytes as u64
    }
}

/// The amount of a resource that one domain supplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainLimit {
    /// Drives that may be spinning or spinning up at once.
    ActiveDrives(u32),
    /// Drives that may be spinning up at once, however many spin already. It never keeps a drive asleep for long: the
    /// drive starts after the others. (A tray of Pelican's prototype supplies one drive that spins and one that spins
    /// up, but not two that spin up: it has this limit beside [`DomainLimit::ActiveDrives`].)
    StartingDrives(u32),
    /// Watts that the drives of the domain may draw together, sleeping ones included.
    Watts(u32),
    /// Bytes/s that the drives of the domain share. It never keeps a drive asleep.
    BytesPerS(u64),
}

impl DomainLimit {
    /// True if it may keep one drive asleep for as long as another one is awake. Only these limits concern a layout.
    pub const fn limits_awake(self) -> bool {
        matches!(self, Self::ActiveDrives(_) | Self::Watts(_))
    }
}

/// A resource that drives share, for example power, cooling, vibration or a PCIe link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Its name in the description.
    pub name: String,
    /// The limit of each of its domains.
    pub limit: DomainLimit,
    /// Exceeding a hard limit takes the domain's drives away (a fuse trips); exceeding a soft one costs speed.
    pub hard: bool,
}

/// A way in which drives fail together, for example `tray`, `chassis` or `server`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureDomains {
    /// Its name in the description.
    pub name: String,
    /// True if losing such a domain loses the data on its drives. Losing a server does not: its drives are re-attached.
    pub loses_media: bool,
}

/// One drive: its place and its domains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveSpec {
    /// Its number.
    pub id: DriveId,
    /// Its place: [width, depth, height], each from 0.
    pub slot: [u16; 3],
    /// Its domain of each resource, in the order of [`RackDraft::resources`].
    pub resource_domains: Vec<DomainId>,
    /// Its domain of each kind of failure domain, in the order of [`RackDraft::failure_domains`].
    pub failure_domains: Vec<DomainId>,
    /// Its capacity, if it differs from the profile's.
    pub capacity_bytes: Option<u64>,
    /// Its measured mean rate, in bytes/s. Without a measurement, the rate is drawn around the profile's.
    #[serde(default)]
    pub bytes_per_s: Option<u64>,
    /// Its directory or device, for racks described drive by drive.
    pub path: Option<String>,
    /// The control of its power.
    #[serde(default)]
    pub power: DrivePower,
}

impl DriveSpec {
    /// True if it is a whole disk, rather than a directory.
    pub fn is_device(&self) -> bool {
        self.path.as_deref().is_some_and(|path| path.starts_with("/dev/"))
    }

    /// The operator's command that controls its power, if there is such a command.
    pub fn power_command(&self) -> Option<&PowerCommand> {
        match &self.power {
            DrivePower::Command(command) => Some(command),
            DrivePower::Own | DrivePower::None => None,
        }
    }
}

/// The control of a drive's power: the part that starts and stops its platters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrivePower {
    /// The drive itself, at Larder's commands.
    #[default]
    Own,
    /// No part that Larder knows of. The drive may spin at any moment, so it counts as spinning at all times.
    None,
    /// A command of the operator.
    Command(PowerCommand),
}

/// A command of the operator that controls the power of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerCommand {
    /// The program, by its absolute path, and its first arguments.
    pub argv: Vec<String>,
    /// The time it has for each action.
    pub timeout: Duration,
}

/// A drive of the pool of small records (Workload Shifting), beside the rack's own drives. It is in no group, and the
/// rack's engine only starts and stops it. Its rotation may wake it at any moment, so the power for that is always
/// reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDriveSpec {
    /// Its place, like that of a drive of the rack; `None` if it is outside and shares nothing with the rack.
    pub slot: Option<[u16; 3]>,
    /// Its domain of each resource, in the order of [`RackDraft::resources`]; `None` if no drive of the rack is in it.
    pub resource_domains: Vec<Option<DomainId>>,
    /// Its directory, if that is outside of the data directory.
    pub path: Option<String>,
    /// The whole disk that holds that directory, if Larder controls its power; `None` if it does not.
    #[serde(default)]
    pub disk: Option<String>,
}

/// The distribution of a duration. Sampled in whole nanoseconds, so that a seed gives the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// The number of uniform draws averaged (Bates distribution), 1 to 16: 1 is uniform, 4 is bell-shaped.
    pub draws: u8,
    /// The values above `max`, if there are any.
    #[serde(default)]
    pub stragglers: Option<Stragglers>,
}

/// The tail of a distribution: most drives are quick, a few are slow (Pelican, section 5: "the probability that at
/// least one disk in a group is a straggler").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stragglers {
    /// Stragglers per thousand, 1 to 1,000.
    pub permille: u16,
    /// The longest straggler; stragglers are spread evenly between the distribution's `max` and this.
    pub max: Duration,
}

impl Distribution {
    /// Always `span`.
    pub const fn constant(span: Duration) -> Self {
        Self { min: span, max: span, draws: 1, stragglers: None }
    }

    /// One duration of this distribution, between `min` and [`longest`](Self::longest).
    pub fn sample(&self, rng: &mut Rng) -> Duration {
        if let Some(stragglers) = self.stragglers
            && rng.below(1_000) < u64::from(stragglers.permille)
        {
            return Duration::from_nanos(rng.between(self.max.as_nanos() as u64, stragglers.max.as_nanos() as u64));
        }
        let (min, max) = (self.min.as_nanos() as u64, self.max.as_nanos() as u64);
        assert!(min <= max && self.draws >= 1, "a distribution of a validated rack is not empty");
        let sum: u128 = (0..self.draws).map(|_| u128::from(rng.between(min, max))).sum();
        let nanos = (sum / u128::from(self.draws)) as u64;
        assert!((min..=max).contains(&nanos), "an average lies between the ends");
        Duration::from_nanos(nanos)
    }

    /// The mean: half-way between `min` and `max` without stragglers.
    pub fn mean(&self) -> Duration {
        let quick = (self.min + self.max) / 2;
        let Some(Stragglers { permille, max }) = self.stragglers else { return quick };
        let slow = (self.max + max) / 2;
        (quick * u32::from(1_000 - permille) + slow * u32::from(permille)) / 1_000
    }

    /// The longest possible value.
    pub fn longest(&self) -> Duration {
        self.stragglers.map_or(self.max, |stragglers| stragglers.max)
    }
}

/// The power a drive draws in each state, in milliwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watts {
    /// Platters stopped, electronics on.
    pub standby_mw: u32,
    /// While spinning up.
    pub spin_up_mw: u32,
    /// While spinning, whether or not it transfers.
    pub active_mw: u32,
}

/// The spread of rates by zone and by drive, in thousandths of the mean rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateSpread {
    /// The amount by which the outermost zone is faster, and the innermost slower. Files are spread evenly over all
    /// zones.
    pub zone_permille: u16,
    /// The largest amount by which a drive as a whole is faster or slower than the mean drive.
    pub drive_permille: u16,
}

/// The definition of heavy load on a server, under which mounts take the profile's `mount_busy`. The paper has two load
/// regimes and does not define them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeavyLoad {
    /// It moves payload from or to one of its drives.
    #[default]
    StreamOnServer,
    /// At least this number of drives in the whole rack move payload.
    StreamsInRack(u32),
    /// At least this number of clients' requests wait for the class of the drive that mounts, in thousandths of the
    /// capacity of its queue.
    QueueFill(u16),
}

/// The properties of the rack's drives: the engine's first estimates, and an emulated drive's truth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveProfile {
    /// Capacity, in bytes.
    pub capacity_bytes: u64,
    /// The mean sequential transfer rate, in bytes/s.
    pub bytes_per_s: u64,
    /// The spread of rates around it.
    #[serde(default)]
    pub rate_spread: RateSpread,
    /// The average seek, before a transfer that does not continue where the last one ended.
    pub seek: Duration,
    /// Standby to ready.
    pub spin_up: Distribution,
    /// Mounting its file system on an idle server.
    pub mount: Distribution,
    /// Mounting its file system on a server under heavy load (Pelican's second load regime).
    pub mount_busy: Distribution,
    /// The definition of heavy load on a server.
    #[serde(default)]
    pub heavy_load: HeavyLoad,
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
        assert!(self.life_years > 0, "the profile of a validated rack has a life of a year or more");
        starts_per_day(self.rated_starts, self.life_years)
    }
}

/// Starts that a drive may use on one day, if it is rated for `rated_starts` and must last `life_years`, above 0.
pub fn starts_per_day(rated_starts: u32, life_years: u32) -> u32 {
    (rated_starts / (life_years * 365)).max(1)
}

/// A rack as described, not yet validated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RackDraft {
    /// Its name: letters, digits, `-`, `_` or `.`, at most 63.
    pub name: String,
    /// The erasure code.
    pub code: Code,
    /// g: drives per group.
    pub group_drives: u32,
    /// The size to which packs of small objects grow, and the minimum size of an object with its own blob.
    pub pack_bytes: u64,
    /// The resources that drives share.
    pub resources: Vec<Resource>,
    /// The kinds of failure domains.
    pub failure_domains: Vec<FailureDomains>,
    /// The drives.
    pub drives: Vec<DriveSpec>,
    /// The drives of the pool of small records; empty if these records go to the workshop's disk.
    #[serde(default)]
    pub pool: Vec<PoolDriveSpec>,
    /// The properties of each drive.
    pub profile: DriveProfile,
}

impl RackDraft {
    /// The domains of the resource in `column` of all drives that count as active at all times: those without power
    /// control, and the pool's drives inside the rack.
    pub(super) fn always_on_domains(&self, column: usize) -> impl Iterator<Item = DomainId> + '_ {
        let uncontrolled = self.drives.iter().filter(|drive| drive.power == DrivePower::None);
        let of_drives = uncontrolled.map(move |drive| drive.resource_domains[column]);
        of_drives.chain(self.pool.iter().filter_map(move |drive| drive.resource_domains[column]))
    }
}

/// The reason why a draft is not a valid rack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Its key as in a description, for example `code.fragment_bytes`.
    pub key: String,
    /// The fault, and the text to write instead.
    pub message: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl core::error::Error for SpecError {}
