//! Reports about hot and cold: of one object, and of a dry run.

use serde::{Deserialize, Serialize};

/// What the thermometer says of an object in the workshop, what it says it by, and when the object moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemperatureReport {
    /// `cold` or `hot`.
    pub temperature: String,
    /// The rule that decides; `None` if none holds and the default does.
    pub rule: Option<RuleName>,
    /// Since when that rule holds, in milliseconds of the Unix epoch; the object's creation if none does.
    pub since_ms: u64,
    /// How that changes next, if nobody reads the object before.
    pub next: Option<ChangeReport>,
    /// All rules that are about objects of its bucket, key and size, in their order.
    pub rules: Vec<RuleReport>,
    /// When its bytes came into being, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// How often it was read since it was staged, as far as that was counted.
    pub reads: u64,
    /// When it was read last, in milliseconds of the Unix epoch.
    pub read_ms: Option<u64>,
    /// True if every byte of it was read.
    pub read_through: bool,
    /// Reads before this moment may not have been counted: it counts as read then, in milliseconds of the Unix epoch.
    pub counted_from_ms: u64,
    /// When it moves.
    pub moves: MoveReport,
}

/// A rule, by number and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleName {
    /// Its place in `larder.toml`, from 1 on.
    pub number: usize,
    /// Its name; may be empty.
    pub name: String,
}

/// A change of temperature to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// When, in milliseconds of the Unix epoch.
    pub at_ms: u64,
    /// `cold` or `hot`.
    pub temperature: String,
    /// The rule that decides then.
    pub rule: RuleName,
}

/// A rule that is about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Which.
    pub rule: RuleName,
    /// `cold` or `hot`.
    pub is: String,
    /// True if it holds now.
    pub holds: bool,
    /// Since when it holds, or from when on it will, in milliseconds of the Unix epoch; `None` if time alone does not
    /// make it hold.
    pub from_ms: Option<u64>,
}

/// When an object in the workshop moves to the rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    /// `moving` (on its way), `due` (with its pack, by `at_ms` at the latest), `later` (is due at `at_ms`),
    /// `above_regular` and `above_critical` (only when the workshop is filled above that share), `stays` (it is in
    /// quarantine). What moves later also moves above a share, if that comes first.
    pub when: String,
    /// The moment, in milliseconds of the Unix epoch.
    pub at_ms: Option<u64>,
}

/// A number of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTotal {
    /// How many.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl ObjectTotal {
    /// One more.
    pub fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// `larder explain --dry-run`: what rules say of the objects that lie in the workshop below a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRunReport {
    /// The bucket.
    pub bucket: String,
    /// The beginning of the keys.
    pub prefix: String,
    /// Objects in the workshop there, those in quarantine left out.
    pub staged: ObjectTotal,
    /// The objects for which each rule decides.
    pub rules: Vec<RuleTotal>,
    /// `cold` or `hot`: the temperature of what no rule holds for.
    pub default: String,
    /// The objects for which no rule holds.
    pub by_default: ObjectTotal,
    /// What rules call cold, as far as it would move: the objects, their bytes, and what writing them would take.
    pub due: MoveEstimate,
    /// What rules call cold, but is smaller than `migrate.min_size` and stays.
    pub too_small: ObjectTotal,
    /// What a rule will call cold later, if nobody reads it before.
    pub later: ObjectTotal,
    /// When the last of those is, in milliseconds of the Unix epoch.
    pub last_ms: Option<u64>,
}

/// The objects for which a rule decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleTotal {
    /// Which rule.
    pub rule: RuleName,
    /// `cold` or `hot`.
    pub is: String,
    /// The objects.
    pub total: ObjectTotal,
}

/// What a move comes to. Wakes and starts are an estimate, as if all were written in one go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveEstimate {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blobs that they become.
    pub blobs: u64,
    /// Wakes of groups.
    pub wakes: u64,
    /// Starts of drives.
    pub starts: u64,
}
