//! A cluster as planning and conversion need it: OSDs, pools, CRUSH rules, placement groups. Plain values that a test
//! can construct.

use model::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The number of an OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OsdId(pub u32);

impl fmt::Display for OsdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "osd.{}", self.0)
    }
}

/// The `reweight` of an OSD that gets all that its CRUSH weight gives it.
pub const REWEIGHT_WHOLE: u32 = 65_536;

/// One OSD.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, as Ceph has it")]
#[derive(Clone, Debug, PartialEq)]
pub struct Osd {
    /// Its number, which survives its re-creation.
    pub id: OsdId,
    /// Its identity, which does not.
    pub uuid: String,
    /// True if its daemon runs.
    pub is_up: bool,
    /// True if CRUSH may choose it.
    pub is_in: bool,
    /// True if it was destroyed, and its number waits for a new one.
    pub is_destroyed: bool,
    /// True if it was announced (`ceph osd new`) and has never run since; the other fields then describe its
    /// predecessor.
    pub is_new: bool,
    /// Its share of what its CRUSH weight gives it (`ceph osd reweight`), in parts of [`REWEIGHT_WHOLE`]; 0 if it is
    /// out.
    pub reweight: u32,
    /// True if it is known to be encrypted (dmcrypt). A directory of dumps does not show that.
    pub is_encrypted: bool,
    /// Its device class.
    pub class: Option<String>,
    /// Its primary affinity, in thousandths.
    pub affinity_permille: u32,
    /// Its CRUSH weight, 65,536 for each TiB.
    pub weight: u64,
    /// Bytes of its devices; 0 if it never ran.
    pub capacity_bytes: u64,
    /// Bytes in use of them.
    pub used_bytes: u64,
    /// True if its metadata is on a separate device (`block.db`).
    pub has_db: bool,
    /// Bytes of that device; 0 without one, or if unknown.
    pub db_bytes: u64,
    /// True if that device spins; `None` without one.
    pub db_spins: Option<bool>,
    /// Its object store: `bluestore`.
    pub objectstore: String,
    /// The machine that it runs on.
    pub hostname: String,
    /// The kernel's names of its devices.
    pub devices: Vec<String>,
    /// The kernel's names of its data devices only.
    pub data_devices: Vec<String>,
    /// True if its data is in a file of a file system, and not on a device.
    pub is_in_file: bool,
    /// The CRUSH buckets above it, nearest first: type and name.
    pub places: Vec<(String, String)>,
}

impl Osd {
    /// The CRUSH bucket of type `domain` above it.
    pub fn place(&self, domain: &str) -> Option<&str> {
        self.places.iter().find(|(kind, _)| kind == domain).map(|(_, name)| name.as_str())
    }

    /// True if it is below the CRUSH bucket `root`.
    pub fn is_below(&self, root: &str) -> bool {
        self.places.iter().any(|(_, name)| name == root)
    }
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// True if it stores whole copies; false for an erasure code.
    pub is_replicated: bool,
    /// Copies of each object, or shards of the code.
    pub size: u32,
    /// Its placement groups.
    pub pg_count: u32,
    /// The number of its CRUSH rule.
    pub rule: u32,
    /// True if it is, or has, a cache tier.
    pub is_tiered: bool,
    /// Its applications: `rgw`, `rbd`, `mgr_devicehealth`.
    pub applications: Vec<String>,
    /// Its flags, as Ceph names them.
    pub flags: Vec<String>,
    /// Time of its creation, if known.
    pub created: Option<Time>,
}

/// A step of a CRUSH rule that chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The bucket from which it takes, without the device class.
    pub root: String,
    /// The device class to which it is limited.
    pub class: Option<String>,
    /// The number of OSDs. 0: as many as the pool has copies; negative: this number fewer.
    pub count: i64,
    /// The type of bucket; each bucket of it gives at most one OSD.
    pub domain: String,
}

/// One CRUSH rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its steps, if it consists only of `take`, one `chooseleaf` or `choose`, `emit`.
    pub takes: Option<Vec<Take>>,
}

impl Rule {
    /// True if it may choose `osd`, as far as known: rules of other kinds may choose any.
    pub fn may_choose(&self, osd: &Osd) -> bool {
        let Some(takes) = &self.takes else { return true };
        takes.iter().any(|take| osd.is_below(&take.root) && (take.class.is_none() || take.class == osd.class))
    }
}

/// One placement group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pg {
    /// Its name: pool and number, `2.1f`.
    pub name: String,
    /// Its pool.
    pub pool: u64,
    /// Its state, as Ceph names it.
    pub state: String,
    /// Bytes of its objects, counted once.
    pub bytes: u64,
    /// Writes that clients have requested since it was created.
    pub writes: u64,
    /// The OSDs that serve it, the primary first; vacant places are left out.
    pub acting: Vec<OsdId>,
    /// End of its last deep scrub, as Ceph writes it.
    pub deep_scrubbed: String,
}

impl Pg {
    /// True if all its copies exist and are in place. A running scrub does not change that.
    pub fn is_clean(&self) -> bool {
        self.state.split('+').all(|word| matches!(word, "active" | "clean" | "scrubbing" | "deep"))
            && self.state.contains("active")
            && self.state.contains("clean")
    }
}

/// A whole cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Its identity.
    pub fsid: String,
    /// The version of its CRUSH map.
    pub crush_version: u64,
    /// Fill level of an OSD, in thousandths, from which Ceph warns that it is nearly full.
    pub nearfull_permille: u64,
    /// Time of this state of its placement groups, if known.
    pub seen_at: Option<Time>,
    /// Its OSDs.
    pub osds: BTreeMap<OsdId, Osd>,
    /// Its pools by number.
    pub pools: BTreeMap<u64, Pool>,
    /// Its CRUSH rules by number.
    pub rules: BTreeMap<u32, Rule>,
    /// Its placement groups; none while no manager has reported them.
    pub pgs: Vec<Pg>,
}

impl Cluster {
    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.values().find(|pool| pool.name == name)
    }

    /// The rule of that name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.values().find(|rule| rule.name == name)
    }

    /// The rule of `pool`.
    pub fn rule_of(&self, pool: &Pool) -> Option<&Rule> {
        self.rules.get(&pool.rule)
    }

    /// Bytes of the objects of `pool`, counted once.
    pub fn stored_bytes(&self, pool: u64) -> u64 {
        self.pgs.iter().filter(|pg| pg.pool == pool).map(|pg| pg.bytes).sum()
    }

    /// Placement groups that are not active+clean.
    pub fn unclean_count(&self) -> usize {
        self.pgs.iter().filter(|pg| !pg.is_clean()).count()
    }

    /// True if every placement group is known to be active+clean.
    pub fn is_clean(&self) -> bool {
        let expected: u32 = self.pools.values().map(|pool| pool.pg_count).sum();
        self.pgs.len() == expected as usize && self.unclean_count() == 0
    }

    /// Number of placement groups with a copy on `osd`.
    pub fn pgs_on(&self, osd: OsdId) -> usize {
        self.pgs.iter().filter(|pg| pg.acting.contains(&osd)).count()
    }
}
