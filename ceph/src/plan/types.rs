//! The parts of a plan.

use crate::agent::RECOVERY_GRACE;
use crate::cluster::OsdId;
use crate::crush_rule::HotPrimary;
use serde::Serialize;
use std::time::Duration;

/// The operator's options for a plan.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device class of OSDs that always spin; by default the fastest that has room.
    pub hot_class: Option<String>,
    /// The device class that cold OSDs get.
    pub cold_class: String,
    /// The pools of which only the first copy is hot; by default the replicated ones that hold 1 % of all data or more.
    pub pools: Vec<String>,
    /// Milliwatts of a drive that spins.
    pub spinning_mw: u32,
    /// Milliwatts of a sleeping drive.
    pub standby_mw: u32,
    /// Start-stop cycles for which drives are rated.
    pub rated_starts: u32,
    /// Years over which these cycles are spread.
    pub life_years: u32,
    /// Time without I/O before a drive sleeps.
    pub idle: Duration,
}

impl Default for Options {
    /// The paper's values: 30,000 cycles over 8 years; watts by its figures, 124.7 W / 24 for a spinning drive and the
    /// remainder in cold-12 for a sleeping one.
    fn default() -> Self {
        Self {
            hot_class: None,
            cold_class: "cold".to_owned(),
            pools: Vec::new(),
            spinning_mw: 5200,
            standby_mw: 950,
            rated_starts: 30_000,
            life_years: 8,
            // Ceph's own down-out interval and the agent's grace.
            idle: Duration::from_mins(10) + RECOVERY_GRACE,
        }
    }
}

impl Options {
    /// Starts a drive may have on one day.
    pub fn starts_per_day(&self) -> u32 {
        self.rated_starts / (self.life_years * 365).max(1)
    }
}

/// The role of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolRole {
    /// Its first copy is on hot drives, the others on cold ones.
    HotPrimary,
    /// All its copies are on hot drives: it is small, or written all the time.
    HotOnly,
    /// Its rule cannot choose a cold OSD; nothing is changed.
    Untouched,
    /// It would touch cold drives, and a rule cannot prevent that.
    InTheWay,
}

/// One pool's part of the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolPlan {
    /// Its name.
    pub pool: String,
    /// Its role.
    pub role: PoolRole,
    /// The reason.
    pub reason: String,
    /// Copies of each object.
    pub size: u32,
    /// Bytes of its objects, counted once.
    pub stored_bytes: u64,
    /// Its current rule.
    pub rule: String,
    /// Its new rule; `None` if it keeps the current one.
    pub new_rule: Option<String>,
    /// Bytes that the new rule is expected to move: CRUSH draws again, so data in the right place stays only by chance.
    pub moved_bytes: u64,
}

/// The role of an OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OsdRole {
    /// It always spins, and has first copies.
    Hot,
    /// It can be converted.
    GoesCold,
    /// It was converted.
    Cold,
    /// It stays as it is.
    Stays,
}

/// One OSD's part of the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OsdPlan {
    /// The OSD.
    pub osd: OsdId,
    /// The machine that it runs on.
    pub host: String,
    /// Its device class.
    pub class: Option<String>,
    /// Its role.
    pub role: OsdRole,
    /// The reason.
    pub reason: String,
    /// Bytes in use; converting it moves them away and, as far as they still belong there, back.
    pub used_bytes: u64,
    /// For an OSD that goes cold: the `block.db` that its metadata need on a hot device, 4 % of its size, as Ceph's
    /// documentation has it for objects of RGW, and room for RocksDB's logs.
    pub db_bytes: u64,
}

/// The room of a class, and the need for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Room {
    /// OSDs.
    pub osds: usize,
    /// Failure domains that have some of them.
    pub domains: usize,
    /// Bytes up to which they may be filled before Ceph warns.
    pub room_bytes: u64,
    /// The same without their largest failure domain.
    pub room_after_loss_bytes: u64,
    /// Bytes that the plan puts there.
    pub need_bytes: u64,
}

impl Room {
    pub(super) fn fits(&self) -> bool {
        self.need_bytes <= self.room_bytes
    }

    pub(super) fn fits_after_loss(&self) -> bool {
        self.need_bytes <= self.room_after_loss_bytes
    }
}

/// The expected effect of the failure of one hot OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HotFailure {
    /// The hot OSD with the largest share of first copies.
    pub osd: OsdId,
    /// Placement groups whose reads go to a cold OSD until recovery has put their first copy elsewhere.
    pub pgs: u64,
    /// Cold OSDs that are woken.
    pub cold_osds: u64,
    /// Bytes that recovery reads from them.
    pub bytes: u64,
}

/// The expected effect of the hot-primary pools' writes on a cold drive, from their number since the pools were
/// created, if they come one by one and at random. Writes in batches wake drives less often.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Writes {
    /// Writes to those pools a day.
    pub per_day: f64,
    /// Starts of a cold drive a day by those writes.
    pub starts_per_day: f64,
    /// The share of the time in which a cold drive sleeps, in thousandths.
    pub asleep_permille: u32,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The cluster's identity.
    pub fsid: String,
    /// True if the plan can be carried out.
    pub is_suitable: bool,
    /// The reasons why not.
    pub reasons: Vec<String>,
    /// Warnings to the operator.
    pub warnings: Vec<String>,
    /// The device class of first copies.
    pub hot_class: String,
    /// The device class of cold OSDs.
    pub cold_class: String,
    /// The CRUSH root.
    pub root: String,
    /// The type of bucket over which copies are spread.
    pub domain: String,
    /// All pools.
    pub pools: Vec<PoolPlan>,
    /// All OSDs.
    pub osds: Vec<OsdPlan>,
    /// Room of hot OSDs.
    pub hot: Room,
    /// Room of cold OSDs.
    pub cold: Room,
    /// Bytes that the rules move.
    pub moved_bytes: u64,
    /// Starts that a drive may have a day.
    pub starts_per_day_max: u32,
    /// The effect of the pools' writes on a cold drive; `None` if the dumps do not say when pools were created.
    pub writes: Option<Writes>,
    /// Milliwatts that are saved while all cold drives sleep.
    pub saved_mw: u64,
    /// The effect of the failure of a hot OSD; `None` without a hot OSD.
    pub hot_failure: Option<HotFailure>,
}

impl Plan {
    /// The rule of its hot-primary pools.
    pub fn rule(&self) -> HotPrimary {
        HotPrimary {
            name: HOT_PRIMARY_RULE.to_owned(),
            root: self.root.clone(),
            hot_class: self.hot_class.clone(),
            cold_class: self.cold_class.clone(),
            domain: self.domain.clone(),
        }
    }

    /// The part of `osd`.
    pub fn osd(&self, osd: OsdId) -> Option<&OsdPlan> {
        self.osds.iter().find(|plan| plan.osd == osd)
    }

    /// The part of the pool of that name.
    pub fn pool(&self, name: &str) -> Option<&PoolPlan> {
        self.pools.iter().find(|plan| plan.pool == name)
    }
}

/// The name of the rule of hot-primary pools.
pub const HOT_PRIMARY_RULE: &str = "larder-hot-primary";

/// The name of the rule of pools whose copies are all hot.
pub const HOT_ONLY_RULE: &str = "larder-hot-only";

/// Reasons and warnings that planning collects.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) reasons: Vec<String>,
    pub(super) warnings: Vec<String>,
}

impl Notes {
    pub(super) fn reason(&mut self, text: String) {
        self.reasons.push(text);
    }

    pub(super) fn warning(&mut self, text: String) {
        self.warnings.push(text);
    }
}
