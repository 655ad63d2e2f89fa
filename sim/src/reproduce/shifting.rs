//! The evaluation of Workload Shifting (section IV), reproduced: the claims of its text beside our results.
//!
//! - `paper.rs` is the one table of the text's numbers;
//! - `runs.rs` puts the paper's records into each system, each run once;
//! - `rows.rs` compares the two, and states the text's contradictions with their arithmetic;
//! - `figures.rs` draws the paper's figures, its stage diagrams from the runs' traces.
//!
//! Two things were calibrated: the cost of a synced put on one disk (320 s of 100 KB puts, and 38.6 MB/s of 1,000 KB
//! puts), and its fixed part on a stripe (522 s). All else is prediction. Nothing is drawn, so that a row has no
//! interval.

mod figures;
mod paper;
mod rows;
mod runs;

pub use figures::FIGURES;
pub use runs::{Put, Runs, System, Variant};

#[cfg(test)]
pub(super) use paper::ALL as CLAIMS;

use super::evaluation;
use crate::report::{Cell, Column, ColumnOf, Page, Table};

/// The evaluation, reproduced.
pub type Reproduction = evaluation::Reproduction<Runs>;

const ABOUT: &str = "Every number of the text of \"Workload Shifting\", section IV, beside what the simulator says: \
                     the rotation that is to serve (engine::shift), on disks of the paper's Table II. LevelDB is its \
                     levels, triggers and stalls, so that its write amplification is an outcome. Nothing was read off \
                     the paper's figures. Ours, since the text leaves it open: a transformation reads and writes \
                     256 KiB at a time; going from a log to a tree takes 1 ms and half a rotation, since 10 GB are a \
                     hundredth of these disks; 8 W while a disk works, and 5 W while it waits.";

impl Reproduction {
    /// The evaluation by these runs.
    pub fn of(runs: Runs) -> Self {
        Self { rows: rows::rows(&runs), figures: figures::figures(&runs), runs }
    }

    /// Every run as a table.
    pub fn points(&self) -> Table {
        let (words, numbers) = (Column::words, Column::numbers);
        let columns: &[ColumnOf<Put>] = &[
            (words("system", "system"), |put| Cell::words(put.system.words())),
            (words("variant", "variant"), |put| Cell::words(put.variant.words())),
            (numbers("value (KB)", "value_kb"), |put| Cell::number(put.value_kb as f64)),
            (numbers("disks", "disks"), |put| Cell::number(f64::from(put.run.disks))),
            (numbers("log (MB)", "log_mb"), |put| Cell::number(put.run.log_bytes as f64 / 1e6)),
            (numbers("time (s)", "seconds"), |put| Cell::number(put.seconds())),
            (numbers("throughput (MB/s)", "mb_per_s"), |put| Cell::number(put.mb_per_s())),
            (numbers("bytes written a byte", "write_amplification"), |put| Cell::number(put.amplification())),
            (numbers("energy (kJ)", "kilojoules"), |put| Cell::number(put.outcome.energy_mj as f64 / 1e6)),
            (numbers("bad alternations", "bad_alternations"), |put| {
                Cell::number(put.outcome.shift.alternations[2] as f64)
            }),
        ];
        Table::of(&self.runs.puts, columns)
    }

    /// Everything on one page. `command` is what makes it again.
    pub fn page(&self, command: &str) -> Page {
        self.page_of("Workload Shifting, reproduced", ABOUT, command, [("All runs", self.points())])
    }
}
