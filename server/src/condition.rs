//! The conditions that a status warns of. Each has a name, which `larder status --json` and `larder_warnings` of the
//! metrics show, and a risk for objects. `docs/runbook/warnings.md` has a row for each, which a test compares with this
//! list.
//!
//! Invariant: a warning has a condition. A condition may have several warnings, for example one for each drive.

use serde::{Deserialize, Serialize};

/// The risk of a condition for objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Risk {
    /// Some objects cannot be read, or not as a whole.
    Lost,
    /// All objects can be read, and one more failure may lose some of them.
    Endangered,
    /// No object is in danger: something is slower, refused, or wears faster than it should.
    None,
}

impl Risk {
    /// The name in the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Endangered => "endangered",
            Self::None => "none",
        }
    }
}

/// Defines the conditions, each with its name and its risk.
macro_rules! conditions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $risk:ident;)*) => {
        /// A condition that an operator should know and fix.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Condition {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Condition {
            /// All of them; those that lose objects come first.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name, in JSON and metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Its risk for objects.
            pub const fn risk(self) -> Risk {
                match self {
                    $(Self::$variant => Risk::$risk,)*
                }
            }
        }
    };
}

conditions! {
    /// Staged files that the catalog knows were missing at the start.
    StagedMissing = "staged_missing", Lost;
    /// Staged objects have bytes that cannot be read.
    Quarantined = "quarantined", Lost;
    /// Objects were read whose bytes are not those that were acknowledged.
    WrongBytes = "wrong_bytes", Lost;
    /// Blobs have lost more stacks with failed drives than the code makes up for.
    BlobsLost = "blobs_lost", Lost;
    /// Reads found too few good fragments.
    ReadsLost = "reads_lost", Lost;
    /// Scrubs found too few good fragments.
    ScrubLost = "scrub_lost", Lost;
    /// Small objects were on a lost drive of the pool, and nowhere else.
    PoolLost = "pool_lost", Lost;
    /// A drive of the pool was missing at the start.
    PoolDriveMissing = "pool_drive_missing", Lost;
    /// Records of the catalog are damaged.
    CatalogRecordsDamaged = "catalog_records_damaged", Lost;
    /// The catalog is older than the rack.
    CatalogOlder = "catalog_older", Endangered;
    /// Records of the catalog are missing.
    CatalogIncomplete = "catalog_incomplete", Endangered;
    /// The catalog takes no changes until the next start.
    CatalogStopped = "catalog_stopped", Endangered;
    /// Staged files that only a newer catalog may know.
    StagedUnknown = "staged_unknown", Endangered;
    /// The catalog has no journal.
    JournalMissing = "journal_missing", Endangered;
    /// The journal does not lead to the catalog as it is.
    JournalBehind = "journal_behind", Endangered;
    /// The drives have no copy of the catalog as it is, though one was due.
    CatalogCopyBehind = "catalog_copy_behind", Endangered;
    /// Copies of the catalog on drives are lost.
    CatalogCopyLost = "catalog_copy_lost", Endangered;
    /// Too few drives are left in a group to rebuild what one of them held.
    RebuildImpossible = "rebuild_impossible", Endangered;
    /// A rebuild waits for drives or for room.
    RebuildWaits = "rebuild_waits", Endangered;
    /// Scrubs found stacks damaged that are not repaired yet.
    StacksDamaged = "stacks_damaged", Endangered;
    /// Blobs have more stacks in one failure domain than they can lose.
    BlobsCrowded = "blobs_crowded", Endangered;
    /// A drive is away.
    DriveAway = "drive_away", Endangered;
    /// A drive has been away for long, and is given up or not.
    DriveStaysAway = "drive_stays_away", Endangered;
    /// A drive could not be used when it was tried.
    DriveUnusable = "drive_unusable", Endangered;
    /// A drive is read and takes no writes.
    DriveTakesNoWrites = "drive_takes_no_writes", Endangered;
    /// A drive did not answer in time.
    DriveLate = "drive_late", Endangered;
    /// A drive has more bad sectors than when it was first asked.
    DriveWorn = "drive_worn", Endangered;
    /// A drive expects to fail.
    DrivePredictsFailure = "drive_predicts_failure", Endangered;
    /// Another server owns a medium.
    MediumForeign = "medium_foreign", Endangered;
    /// A drive of the pool failed.
    PoolDriveFailed = "pool_drive_failed", Endangered;
    /// A drive of the pool lacks copies.
    PoolIncomplete = "pool_incomplete", Endangered;
    /// Small objects have one copy on several drives.
    PoolOneCopy = "pool_one_copy", Endangered;
    /// Logs are kept for another catalog.
    PoolLogsKept = "pool_logs_kept", Endangered;
    /// New objects stay on one disk.
    StagedStays = "staged_stays", Endangered;
    /// Scrubs did not end within their period.
    ScrubOverdue = "scrub_overdue", Endangered;
    /// Scrubs are paused.
    ScrubPaused = "scrub_paused", Endangered;
    /// S3 is open to the network without TLS.
    NetworkOpen = "network_open", None;
    /// The certificate files cannot be used.
    CertificateUnusable = "certificate_unusable", None;
    /// The disk of the workshop or the catalog is full.
    DiskFull = "disk_full", None;
    /// No group has room.
    RackFull = "rack_full", None;
    /// A pack finds no room, while smaller ones do.
    PackUnplaced = "pack_unplaced", None;
    /// The workshop is nearly full.
    WorkshopFull = "workshop_full", None;
    /// Hot objects had to move to the rack.
    HotMoved = "hot_moved", None;
    /// Small objects arrive faster than their logs become shelves.
    PoolBacklog = "pool_backlog", None;
    /// A drive of the pool does not start or stop.
    PoolDrivePower = "pool_drive_power", None;
    /// A drive would not stop.
    DriveUnstopped = "drive_unstopped", None;
    /// Drives were started more often than their budget allows.
    StartsOverBudget = "starts_over_budget", None;
    /// A group keeps spinning because it has no starts left.
    KeptSpinning = "kept_spinning", None;
    /// A fuse tripped.
    FuseTripped = "fuse_tripped", None;
    /// Another program woke drives.
    WokenByOthers = "woken_by_others", None;
    /// Drives woke by themselves.
    WokeThemselves = "woke_themselves", None;
    /// The disk below emulated drives is too slow.
    EmulationSlow = "emulation_slow", None;
}

/// A warning: a condition that holds, and a sentence with its fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub condition: Condition,
    pub message: String,
}

impl Condition {
    /// A warning that this condition holds.
    pub(crate) fn warns(self, message: impl Into<String>) -> Warning {
        Warning { condition: self, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// The cells of each row of `docs/runbook/warnings.md` about a condition.
    fn rows() -> Vec<Vec<String>> {
        let page = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbook/warnings.md"));
        let page = fs::read_to_string(page).unwrap();
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
        rows.map(cells).collect()
    }

    #[test]
    fn the_documentation_has_a_row_for_each_condition_in_order() {
        let documented: Vec<(String, String)> =
            rows().iter().map(|cells| (cells[0].trim_matches('`').to_owned(), cells[1].clone())).collect();
        let known: Vec<(String, String)> =
            Condition::ALL.iter().map(|known| (known.name().to_owned(), known.risk().name().to_owned())).collect();
        assert_eq!(documented, known);
    }

    #[test]
    fn every_condition_that_costs_objects_names_a_test_that_creates_it() {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for cells in rows() {
            let [name, risk, words, _, test] = &cells[..] else { panic!("five cells: {cells:?}") };
            assert!(!words.is_empty(), "{name} says what it warns of");
            if risk == "none" && test == "-" {
                continue;
            }
            let name = name.trim_matches('`');
            let variant = format!("{:?}", Condition::ALL.iter().find(|known| known.name() == name).unwrap());
            for path in test.split(", ").map(|path| path.trim_matches('`')) {
                let text =
                    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{name}: {path}: {error}"));
                let is_there = text.contains(&format!("\"{name}\"")) || text.contains(&format!("Condition::{variant}"));
                assert!(is_there, "{path} creates {name}");
            }
        }
    }

    #[test]
    fn json_has_the_names() {
        for condition in Condition::ALL {
            assert_eq!(serde_json::to_value(condition).unwrap(), condition.name());
        }
    }
}
