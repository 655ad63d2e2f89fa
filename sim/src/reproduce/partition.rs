//! The evaluation of BuffPack and OffPack (section V), reproduced: what its text says beside what the simulator says.
//!
//! - `paper.rs` is the one table of the text's numbers;
//! - `runs.rs` simulates what rows and figures need, each job once, on the rack that serves;
//! - `rows.rs` holds them against each other, and states the text's contradictions with their arithmetic;
//! - `apart.rs` says where formulas and simulation differ, and why;
//! - `figures.rs` draws the paper's figures.
//!
//! Nothing was calibrated: Table III is all that goes in. What is ours and not the paper's is called so.

mod apart;
mod figures;
mod paper;
mod rows;
mod runs;

pub use apart::{Apart, apart};
pub use figures::FIGURES;
pub use runs::{Job, Runs, RunsError, Sweep};

use crate::report::{Cell, Column, Page, Table};
use std::num::NonZeroUsize;

/// The evaluation, reproduced.
pub type Reproduction = super::Reproduction<Runs>;

const ABOUT: &str = "Every number of the text of \"BuffPack and OffPack\", section V, beside what the simulator says: \
                     the planner that serves, on the rack's own scheduler, which counts the switches. Each write is \
                     counted once, as in the paper; a server reads back what it has written. Nothing was read off \
                     the paper's figures. TourPack, the better models and the lower bound are ours.";

impl Reproduction {
    /// Simulates the evaluation on so many threads; `quick` is with 10 TB instead of 100 wherever something else than
    /// the data is varied, and fewer values. `done` is told how many of how many jobs are done.
    ///
    /// # Errors
    /// [`RunsError`].
    pub fn new(quick: bool, threads: NonZeroUsize, done: &(dyn Fn(usize, usize) + Sync)) -> Result<Self, RunsError> {
        let runs = Runs::new(quick, threads, done)?;
        Ok(Self { rows: rows::rows(&runs), figures: figures::figures(&runs), runs })
    }

    /// Where the paper's formulas are more than 5 % off, and why.
    pub fn apart(&self) -> Table {
        apart::table(&self.runs)
    }

    /// Every job as a table.
    pub fn points(&self) -> Table {
        points(&self.runs)
    }

    /// Everything on one page. `command` is what makes it.
    pub fn page(&self, command: &str) -> Page {
        let tables =
            [("Where the paper's formulas are more than 5 % off", self.apart()), ("All points", self.points())];
        self.page_of("BuffPack and OffPack, reproduced", ABOUT, command, tables)
    }
}

fn points(runs: &Runs) -> Table {
    let (words, numbers) = (Column::words, Column::numbers);
    let mut table = Table::new(vec![
        words("varied", "varied"),
        numbers("value", "value"),
        words("strategy", "strategy"),
        numbers("time (h)", "hours"),
        numbers("the paper's model (h)", "model_hours"),
        numbers("off by (%)", "model_off_percent"),
        numbers("better model (h)", "better_model_hours"),
        numbers("off by (%)", "better_model_off_percent"),
        numbers("rehearsed (h)", "rehearsed_hours"),
        numbers("lower bound (h)", "bound_hours"),
        numbers("switching (h)", "switching_hours"),
        numbers("switches", "switches"),
        numbers("read (TB)", "read_tb"),
        numbers("written (TB)", "written_tb"),
        numbers("most offloaded on a group (TB)", "peak_offloaded_tb"),
    ]);
    for job in &runs.jobs {
        let point = &job.point;
        let tb = |bytes: u64| Cell::number(bytes as f64 / 1e12);
        let off = |model: Option<f64>| Some((point.hours / model? - 1.0) * 100.0);
        table.push(vec![
            Cell::words(job.sweep.words()),
            Cell::number(job.x),
            Cell::words(point.strategy.to_string()),
            Cell::number(point.hours),
            Cell::maybe(point.model_hours),
            Cell::maybe(off(point.model_hours)),
            Cell::maybe(point.better_model_hours),
            Cell::maybe(off(point.better_model_hours)),
            Cell::number(point.rehearsed_hours),
            Cell::maybe(point.bound_hours),
            Cell::number(point.switching_hours),
            Cell::number(point.switches),
            tb(point.bytes_read),
            tb(point.bytes_written),
            tb(point.peak_offloaded_bytes),
        ]);
    }
    table
}
