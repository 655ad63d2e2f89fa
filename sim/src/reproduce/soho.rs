//! The evaluation of SOHO (section IV), reproduced: the claims of its text compared with our results.
//!
//! - `paper.rs` is the single table of the text's numbers;
//! - `runs.rs` puts applications and traces into a disk, flash and SOHO, each run once;
//! - `rows.rs` compares the two, and states the text's contradictions with their arithmetic;
//! - `figures.rs` draws the paper's figures, with separate reads and writes.
//!
//! Nothing was calibrated. Choices for the gaps in the text are in `runs.rs` and `sim/src/soho/load.rs`, and are
//! changed there one at a time; [`Reproduction::sensitivity`] shows their effects.

mod figures;
mod paper;
mod rows;
mod runs;

pub use figures::FIGURES;
pub use runs::{Case, Input, Made, Runs, SEEDS, SOHO, SeedRuns, System, Variant};

#[cfg(test)]
pub(super) use paper::ALL as CLAIMS;

use super::evaluation;
use crate::report::{Cell, Column, ColumnOf, Page, Table};
use runs::CRITICAL;

/// The reproduced evaluation.
pub type Reproduction = evaluation::Reproduction<Runs>;

const ABOUT: &str = "Every number of the text of \"SOHO\", section IV, beside what the simulator says: the staging \
                     policy that the server runs (engine::staging), before flash and a disk of the paper's Table I. \
                     Nothing was read off the paper's figures, and nothing was calibrated. Ours, since the text leaves \
                     it open: a client sends one request after the other; requests of 64 KB (DSA), 83 KB (SWA) and 106 \
                     KB (GIA), half to one and a half of it; 16 GiB of raw data in spikes over two hours, read once a \
                     minute later (GIA's by a quarter); results of an eighth of what is read, of SWA 0.4 %; 25 ns a \
                     byte on a package's bus, four dies at work at once; a pure SSD of five packages; seeks of 0.4 ms \
                     and more, 4.7 ms on average; no buffer in the disk; 0.1 ms for each request on any device; moves \
                     in blocks of 400 KB, which leave nothing behind.";

/// A changed choice, with its effect on the four averages of the text.
struct Sensitivity {
    variant: Variant,
    shares: [f64; 4],
}

impl Reproduction {
    /// The evaluation with these runs.
    pub fn of(runs: Runs) -> Self {
        Self { rows: rows::rows(&runs), figures: figures::figures(&runs), runs }
    }

    /// The text's averages for each changed choice of ours, with the first seed.
    pub fn sensitivity(&self) -> Table {
        let (low, high) = (System::Blocking(CRITICAL[0]), SOHO);
        let all = Variant::ALL.map(|variant| {
            let mean = |a, b| self.runs.first().over_all((a, b), variant) * 100.0;
            let shares = [
                -mean(System::Flash, System::Disk),
                -mean(SOHO, System::Disk),
                mean(SOHO, System::Flash),
                -mean(high, low),
            ];
            Sensitivity { variant, shares }
        });
        let number = Column::numbers;
        let columns: &[ColumnOf<Sensitivity>] = &[
            (Column::words("choice", "choice"), |of| Cell::words(of.variant.words())),
            (number("SSD better than HDD (%)", "ssd_hdd_percent"), |of| Cell::number(of.shares[0])),
            (number("SOHO better than HDD (%)", "soho_hdd_percent"), |of| Cell::number(of.shares[1])),
            (number("SOHO worse than SSD (%)", "soho_ssd_percent"), |of| Cell::number(of.shares[2])),
            (number("0.8 better than 0.2 (%)", "threshold_percent"), |of| Cell::number(of.shares[3])),
        ];
        Table::of(&all, columns)
    }

    /// All runs as a table.
    pub fn points(&self) -> Table {
        let (words, numbers) = (Column::words, Column::numbers);
        let columns: &[ColumnOf<Made>] = &[
            (words("input", "input"), |made| Cell::words(made.case.input.words())),
            (words("system", "system"), |made| Cell::words(made.case.system.words())),
            (words("choice", "choice"), |made| Cell::words(made.case.variant.words())),
            (numbers("workshop (GB)", "workshop_gib"), |made| Cell::number(f64::from(made.case.ssd_gib))),
            (numbers("seed", "seed"), |made| Cell::number(made.seed as f64)),
            (numbers("time (s)", "seconds"), |made| Cell::number(made.outcome.took.as_secs_f64())),
            (numbers("reads", "reads"), |made| Cell::number(made.outcome.reads.count() as f64)),
            (numbers("mean (ms)", "read_mean_ms"), |made| milliseconds(made.outcome.reads.mean_s())),
            (numbers("p99 (ms)", "read_p99_ms"), |made| milliseconds(made.outcome.reads.quantile_s(0.99))),
            (numbers("longest (ms)", "read_max_ms"), |made| milliseconds(made.outcome.reads.max_s())),
            (numbers("writes", "writes"), |made| Cell::number(made.outcome.writes.count() as f64)),
            (numbers("mean (ms)", "write_mean_ms"), |made| milliseconds(made.outcome.writes.mean_s())),
            (numbers("p99 (ms)", "write_p99_ms"), |made| milliseconds(made.outcome.writes.quantile_s(0.99))),
            (numbers("longest (ms)", "write_max_ms"), |made| milliseconds(made.outcome.writes.max_s())),
            (numbers("moves", "moves"), |made| Cell::number(made.outcome.moves as f64)),
            (numbers("moved (GB)", "moved_gb"), |made| Cell::number(made.outcome.moved_bytes as f64 / 1e9)),
            (numbers("moving (s)", "moving_s"), |made| Cell::number(made.outcome.moving.as_secs_f64())),
            (numbers("reads from the warehouse", "warehouse_reads"), |made| {
                Cell::number(made.outcome.warehouse_reads as f64)
            }),
            (numbers("rows erased", "erased_rows"), |made| Cell::number(made.outcome.flash.erased_rows as f64)),
            (numbers("pages cleaned", "copied_pages"), |made| Cell::number(made.outcome.flash.copied_pages as f64)),
        ];
        Table::of(&self.runs.made, columns)
    }

    /// Everything on one page. `command` is the command that makes the page.
    pub fn page(&self, command: &str) -> Page {
        let tables = [("What depends on choices of ours", self.sensitivity()), ("All runs", self.points())];
        self.page_of("SOHO, reproduced", ABOUT, command, tables)
    }
}

fn milliseconds(seconds: Option<f64>) -> Cell {
    seconds.map_or_else(|| Cell::words(""), |seconds| Cell::number(seconds * 1e3))
}
