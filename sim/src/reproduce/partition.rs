//! The evaluation of BuffPack and OffPack (section V), reproduced: the claims of its text compared with our results.
//!
//! - `paper.rs` is the single table of the text's numbers;
//! - `runs.rs` simulates the runs for rows and figures, each job once, with the same planner as the server;
//! - `rows.rs` compares the two, and states the text's contradictions with their arithmetic;
//! - `apart.rs` explains differences between formulas and simulation;
//! - `figures.rs` draws the paper's figures.
//!
//! Nothing was calibrated: Table III is the whole input. Nothing is random either, so a row has no interval: another
//! seed gives the same result to the byte (a test). Our own additions to the paper are marked as ours, and are not
//! judged.

mod apart;
mod figures;
mod paper;
mod rows;
mod runs;

pub use apart::{Apart, apart};
pub use figures::FIGURES;
pub use runs::{Job, Runs, Sweep};

#[cfg(test)]
pub(super) use paper::ALL as CLAIMS;

use super::evaluation;
use crate::report::{Cell, Column, ColumnOf, Page, Table};

/// The reproduced evaluation.
pub type Reproduction = evaluation::Reproduction<Runs>;

const ABOUT: &str = "Every number of the text of \"BuffPack and OffPack\", section V, beside what the simulator says: \
                     the planner that serves, on the rack's own scheduler, which counts the switches. Each write is \
                     counted once, as in the paper; a server reads back what it has written. Nothing was read off \
                     the paper's figures. FillPack, TourPack, the better models and the lower bound are ours.";

impl Reproduction {
    /// The evaluation with these runs.
    pub fn of(runs: Runs) -> Self {
        Self { rows: rows::rows(&runs), figures: figures::figures(&runs), runs }
    }

    /// The points at which the paper's formulas deviate by more than 5 %, and the reasons.
    pub fn apart(&self) -> Table {
        apart::table(&self.runs)
    }

    /// Every job as a table.
    pub fn points(&self) -> Table {
        let (words, numbers) = (Column::words, Column::numbers);
        let columns: &[ColumnOf<Job>] = &[
            (words("varied", "varied"), |job| Cell::words(job.sweep.words())),
            (numbers("value", "value"), |job| Cell::number(job.x)),
            (words("strategy", "strategy"), |job| Cell::words(job.point.strategy.to_string())),
            (numbers("time (h)", "hours"), |job| Cell::number(job.point.hours)),
            (numbers("the paper's model (h)", "model_hours"), |job| Cell::maybe(job.point.model_hours)),
            (numbers("off by (%)", "model_off_percent"), |job| Cell::maybe(percent_off(job, job.point.model_hours))),
            (numbers("better model (h)", "better_model_hours"), |job| Cell::maybe(job.point.better_model_hours)),
            (numbers("off by (%)", "better_model_off_percent"), |job| {
                Cell::maybe(percent_off(job, job.point.better_model_hours))
            }),
            (numbers("dry run (h)", "simulated_hours"), |job| Cell::number(job.point.simulated_hours)),
            (numbers("lower bound (h)", "bound_hours"), |job| Cell::maybe(job.point.bound_hours)),
            (numbers("switching (h)", "switching_hours"), |job| Cell::number(job.point.switching_hours)),
            (numbers("switches", "switches"), |job| Cell::number(job.point.switches)),
            (numbers("read (TB)", "read_tb"), |job| terabytes(job.point.bytes_read)),
            (numbers("written (TB)", "written_tb"), |job| terabytes(job.point.bytes_written)),
            (numbers("most offloaded on a group (TB)", "peak_offloaded_tb"), |job| {
                terabytes(job.point.peak_offloaded_bytes)
            }),
        ];
        Table::of(&self.runs.jobs, columns)
    }

    /// Everything on one page. `command` is the command that makes the page.
    pub fn page(&self, command: &str) -> Page {
        let tables =
            [("Where the paper's formulas are more than 5 % off", self.apart()), ("All points", self.points())];
        self.page_of("BuffPack and OffPack, reproduced", ABOUT, command, tables)
    }
}

fn percent_off(job: &Job, model_hours: Option<f64>) -> Option<f64> {
    Some((job.point.hours / model_hours? - 1.0) * 100.0)
}

fn terabytes(bytes: u64) -> Cell {
    Cell::number(bytes as f64 / 1e12)
}
