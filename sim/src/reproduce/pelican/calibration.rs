//! Calibrations: possible settings for the gaps in the text; each can be compared with every row.
//!
//! The text has two regimes of mounts, but states neither their distributions nor the condition for heavy load. It also
//! does not state what u counts, how long the rebuild's turns are, or how many requests FP's queues hold. [`SHIPPED`]
//! is the calibration of `racks/pelican.toml` and of the other rows. Each of [`OTHERS`] changes one thing and is
//! calibrated again with the two numbers that calibration may use: the mean first byte of an idle rack, and the rejects
//! at 5 requests per second without a network limit.
//!
//! Invariant: calibration uses no third number of the text.

use crate::report::{Cell, Column, Table};
use crate::reproduce::judge::{self, Row, Verdict};
use model::{DriveProfile, HeavyLoad, Stragglers};
use std::time::Duration;

/// Settings for the gaps in the text.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Its name.
    pub name: &'static str,
    /// The change, in words.
    pub what: &'static str,
    /// The condition for slow mounts.
    pub heavy_load: HeavyLoad,
    /// The shortest and longest mount under heavy load, and the number of averaged draws; `None` is the rack's
    /// description.
    pub mount_busy_ms: Option<(u64, u64, u8)>,
    /// Stragglers under heavy load: their share of mounts in thousandths, and their maximum time in milliseconds.
    pub stragglers: Option<(u16, u64)>,
    /// The bytes that u counts, in thousandths of the payload.
    pub u_permille: u64,
    /// The length of a turn of rebuild and clients, in seconds.
    pub quantum_s: u64,
    /// The capacity of a queue of FP, in requests.
    pub fp_depth: u32,
}

/// The shipped calibration.
pub static SHIPPED: Calibration = BASE;

const BASE: Calibration = Calibration {
    name: "shipped",
    what: "slow while queues are half full; the mean of two even draws, 1 to 9.6 s",
    heavy_load: HALF_FULL,
    mount_busy_ms: None,
    stragglers: None,
    u_permille: 1_000,
    quantum_s: 60,
    fp_depth: 1_000,
};

/// Half of the capacity of the rack's queues.
const HALF_FULL: HeavyLoad = HeavyLoad::QueueFill(500);

/// Mounts as on an idle server; 5 % are late.
const MOSTLY_IDLE_MS: Option<(u64, u64, u8)> = Some((1_100, 1_700, 4));

/// The calibrations to compare with the shipped one.
pub static OTHERS: [Calibration; 9] = [
    Calibration {
        name: "mixture",
        what: "as shipped, but most mounts as on an idle server and 5 % up to 17.7 s",
        mount_busy_ms: MOSTLY_IDLE_MS,
        stragglers: Some((50, 17_700)),
        ..BASE
    },
    Calibration {
        name: "stream",
        what: "slow while the server moves payload for another group, 1 to 10.7 s",
        heavy_load: HeavyLoad::StreamOnServer,
        mount_busy_ms: Some((1_000, 10_700, 2)),
        ..BASE
    },
    Calibration {
        name: "stream, mixture",
        what: "the same, most mounts as on an idle server and 5 % up to 24.4 s",
        heavy_load: HeavyLoad::StreamOnServer,
        mount_busy_ms: MOSTLY_IDLE_MS,
        stragglers: Some((50, 24_400)),
        ..BASE
    },
    Calibration {
        name: "two groups",
        what: "slow while two other groups of the rack move payload, 1 to 10.5 s",
        heavy_load: HeavyLoad::StreamsInRack(19),
        mount_busy_ms: Some((1_000, 10_500, 2)),
        ..BASE
    },
    Calibration {
        name: "u of bytes read",
        what: "u counts all 18 stacks; 1 to 6.0 s",
        mount_busy_ms: Some((1_000, 6_000, 2)),
        u_permille: 833,
        ..BASE
    },
    Calibration { name: "turns of 150 s", what: "rebuild and clients take turns of 150 s", quantum_s: 150, ..BASE },
    Calibration { name: "turns of 300 s", what: "rebuild and clients take turns of 300 s", quantum_s: 300, ..BASE },
    Calibration { name: "FP of 83", what: "a queue of FP holds 83, 4,000 in all as in Pelican", fp_depth: 83, ..BASE },
    Calibration { name: "FP of 21", what: "a queue of FP holds 21, 1,000 in all", fp_depth: 21, ..BASE },
];

impl Calibration {
    /// The payload bytes that a limit of this number of bytes allows.
    pub fn u_bytes(&self, limit: u64) -> u64 {
        limit / 1_000 * self.u_permille
    }

    /// The text's u for a limit in payload bytes, the inverse of [`Self::u_bytes`] for whole megabytes.
    pub fn u_of(&self, payload_bytes: u64) -> u64 {
        payload_bytes / self.u_permille * 1_000
    }

    pub(super) fn change(&self, profile: &mut DriveProfile) {
        profile.heavy_load = self.heavy_load;
        if let Some((min, max, draws)) = self.mount_busy_ms {
            let mount = &mut profile.mount_busy;
            (mount.min, mount.max, mount.draws) = (Duration::from_millis(min), Duration::from_millis(max), draws);
        }
        if let Some((permille, max)) = self.stragglers {
            profile.mount_busy.stragglers = Some(Stragglers { permille, max: Duration::from_millis(max) });
        }
    }
}

/// Rows by calibration.
pub type ByCalibration = Vec<(&'static Calibration, Vec<Row>)>;

/// The rows that any calibration changes, with their values, and the counts of verdicts.
pub fn compared(made: &ByCalibration) -> Table {
    let words = Column::words;
    let mut table = Table::new(vec![words("row of the text", "row"), words("paper", "paper")]);
    table.columns.extend(made.iter().map(|(calibration, _)| words(calibration.name, calibration.name)));
    let Some((_, first)) = made.first() else { return table };
    for (index, row) in first.iter().enumerate() {
        let of_each: Vec<&Row> = made.iter().map(|(_, rows)| &rows[index]).collect();
        let judged = |row: &&Row| Verdict::FINDINGS.contains(&row.verdict) || row.verdict == Verdict::Calibrated;
        if of_each.iter().any(judged) && of_each.iter().any(|other| other.ours != row.ours) {
            let cells = of_each.iter().map(|row| Cell::words(format!("{}, {}", row.ours, row.verdict.words())));
            table.push([Cell::words(row.id), Cell::words(&*row.paper)].into_iter().chain(cells).collect());
        }
    }
    let counts = made.iter().map(|(_, rows)| Cell::words(judge::findings(rows)));
    table.push([Cell::words("all rows"), Cell::Empty].into_iter().chain(counts).collect());
    table
}

#[cfg(test)]
mod tests {
    use super::{OTHERS, SHIPPED};

    #[test]
    fn what_u_counts_can_be_counted_back() {
        for calibration in OTHERS.iter().chain([&SHIPPED]) {
            for u in [0, 50_000_000_000, 350_000_000_000, 1_000_000_000_000] {
                assert_eq!(calibration.u_of(calibration.u_bytes(u)), u, "{}", calibration.name);
            }
        }
    }
}
