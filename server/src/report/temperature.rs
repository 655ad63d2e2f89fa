//! Reports about hot and cold objects: of one object, and of a dry run.

use serde::{Deserialize, Serialize};

/// The thermometer's verdict on an object in the workshop, the facts behind the verdict, and the move of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemperatureReport {
    /// `cold` or `hot`.
    pub temperature: String,
    /// The rule that decides; `None` if no rule holds and the default decides.
    pub rule: Option<RuleName>,
    /// The time since when that rule holds, in milliseconds of the Unix epoch; the object's creation without a rule.
    pub since_ms: u64,
    /// The next change of that, if no client reads the object before.
    pub next: Option<ChangeReport>,
    /// All rules that are about objects of its bucket, key and size, in their order.
    pub rules: Vec<RuleReport>,
    /// The creation of its bytes, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// Number of reads since it was staged, as far as they were counted.
    pub reads: u64,
    /// The time of the last read, in milliseconds of the Unix epoch.
    pub read_ms: Option<u64>,
    /// True if every byte of it was read.
    pub read_through: bool,
    /// Reads before this moment may not have been counted: it counts as read then, in milliseconds of the Unix epoch.
    pub counted_from_ms: u64,
    /// The move of the object to the rack.
    pub moves: MoveReport,
}

/// A rule, by number and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleName {
    /// Its number in `larder.toml`, from 1 on.
    pub number: usize,
    /// Its name; may be empty.
    pub name: String,
}

/// A change of temperature to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// The time of the change, in milliseconds of the Unix epoch.
    pub at_ms: u64,
    /// `cold` or `hot`.
    pub temperature: String,
    /// The rule that decides then.
    pub rule: RuleName,
}

/// A rule about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// The rule.
    pub rule: RuleName,
    /// `cold` or `hot`.
    pub is: String,
    /// True if it holds now.
    pub holds: bool,
    /// The time since when it holds, or from when on it will, in milliseconds of the Unix epoch; `None` if time alone
    /// does not make it hold.
    pub from_ms: Option<u64>,
}

/// The move of an object in the workshop to the rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    /// `moving` (under way), `due` (with its pack, by `at_ms` at the latest), `later` (is due at `at_ms`),
    /// `with_checks` (with the next pass of checks), `above_regular` and `above_critical` (only when the workshop is
    /// filled above that share), `stays` (it is in quarantine). An object that moves later also moves above a share, if
    /// that comes first.
    pub when: String,
    /// The time, in milliseconds of the Unix epoch.
    pub at_ms: Option<u64>,
}

/// A total of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTotal {
    /// The number of objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl ObjectTotal {
    /// Counts one more object of `bytes` bytes.
    pub fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// `larder explain --dry-run`: the decisions of rules about the objects in the workshop below a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRunReport {
    /// The bucket.
    pub bucket: String,
    /// The prefix of the keys.
    pub prefix: String,
    /// Objects in the workshop there, except those in quarantine.
    pub staged: ObjectTotal,
    /// The objects for which each rule decides.
    pub rules: Vec<RuleTotal>,
    /// `cold` or `hot`: the temperature of objects for which no rule holds.
    pub default: String,
    /// The objects for which no rule holds.
    pub by_default: ObjectTotal,
    /// Cold objects that would move: their number, their bytes, and the cost of writing them.
    pub due: MoveEstimate,
    /// Cold objects that are smaller than `migrate.min_size` and stay.
    pub too_small: ObjectTotal,
    /// Objects that a rule will call cold later, if no client reads them before.
    pub later: ObjectTotal,
    /// The last time at which one of those becomes cold, in milliseconds of the Unix epoch.
    pub last_ms: Option<u64>,
}

/// The objects for which a rule decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleTotal {
    /// The rule.
    pub rule: RuleName,
    /// `cold` or `hot`.
    pub is: String,
    /// The objects.
    pub total: ObjectTotal,
}

/// The extent of a move. Wakes and starts are an estimate, as if everything were written at once.
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
