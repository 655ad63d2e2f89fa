//! The evaluation of Workload Shifting (section IV), reproduced: the claims of its text compared with our results.
//!
//! - `paper.rs` is the single table of the text's numbers;
//! - `runs.rs` puts the paper's records into each system, each run once;
//! - `rows.rs` compares the two, and states the text's contradictions with their arithmetic;
//! - `figures.rs` draws the paper's figures, its stage diagrams from the runs' traces.
//!
//! Two things were calibrated: the cost of a synced put on one disk (320 s of 100 KB puts, and 38.6 MB/s of 1,000 KB
//! puts), and its fixed part on a stripe (522 s). All else is prediction. Keys are random, and so is the angle of a
//! platter after each seek.

mod figures;
mod paper;
mod rows;
mod runs;

pub use figures::FIGURES;
pub use runs::{Put, Runs, SEEDS, SeedRuns, System, Variant};

#[cfg(test)]
pub(super) use paper::ALL as CLAIMS;

use super::evaluation;
use crate::report::{Cell, Column, ColumnOf, Page, Table};

/// The reproduced evaluation.
pub type Reproduction = evaluation::Reproduction<Runs>;

const ABOUT: &str = "Every number of the text of \"Workload Shifting\", section IV, beside what the simulator says: \
                     the rotation that is to serve (engine::shift), on disks of the paper's Table II. LevelDB is its \
                     levels, triggers and stalls, key by key, so that its write amplification is an outcome. Nothing \
                     was read off the paper's figures. Ours, since the text leaves it open: logs lie in the first half \
                     of what a disk holds of the 10 GB and trees in the second; a seek takes 1 ms and more with the \
                     root of the distance, so that the average is Table II's; platters turn independently; a request \
                     in the background is of 256 KiB on each disk; tables of LevelDB that were used last stay in the \
                     2 GB of memory; 8 W while a disk works, 5 W while it waits.";

impl Reproduction {
    /// The evaluation with these runs.
    pub fn of(runs: Runs) -> Self {
        Self { rows: rows::rows(&runs), figures: figures::figures(&runs), runs }
    }

    /// All runs as a table.
    pub fn points(&self) -> Table {
        let (words, numbers) = (Column::words, Column::numbers);
        let columns: &[ColumnOf<Put>] = &[
            (words("system", "system"), |put| Cell::words(put.system.words())),
            (words("variant", "variant"), |put| Cell::words(put.variant.words())),
            (numbers("value (KB)", "value_kb"), |put| Cell::number(put.value_kb as f64)),
            (numbers("seed", "seed"), |put| Cell::number(put.run.seed as f64)),
            (numbers("disks", "disks"), |put| Cell::number(f64::from(put.run.disks))),
            (numbers("log (MB)", "log_mb"), |put| Cell::number(put.run.log_bytes as f64 / 1e6)),
            (numbers("time (s)", "seconds"), |put| Cell::number(put.seconds())),
            (numbers("throughput (MB/s)", "mb_per_s"), |put| Cell::number(put.mb_per_s())),
            (numbers("bytes written a byte", "write_amplification"), |put| Cell::number(put.amplification())),
            (numbers("energy (kJ)", "kilojoules"), |put| Cell::number(put.outcome.energy_mj as f64 / 1e6)),
            (numbers("time at work (s)", "busy_seconds"), |put| Cell::number(put.outcome.busy.as_secs_f64())),
            (numbers("starts", "starts"), |put| Cell::number(f64::from(put.outcome.starts))),
            (numbers("transformations", "transformations"), |put| Cell::number(put.outcome.background.0 as f64)),
            (numbers("time of all (s)", "transforming_s"), |put| Cell::number(put.outcome.background.1.as_secs_f64())),
            (numbers("bad alternations", "bad_alternations"), |put| {
                Cell::number(put.outcome.shift.alternations[2] as f64)
            }),
        ];
        Table::of(&self.runs.puts, columns)
    }

    /// Everything on one page. `command` is the command that makes the page.
    pub fn page(&self, command: &str) -> Page {
        self.page_of("Workload Shifting, reproduced", ABOUT, command, [("All runs", self.points())])
    }
}
