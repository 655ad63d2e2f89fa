//! Pelican's evaluation (section 5), reproduced: what its text says beside what the simulator says.
//!
//! - `paper.rs` is the one table of the text's numbers;
//! - `runs.rs` simulates what rows and figures need, each point once;
//! - `rows.rs` holds them against each other, and states the text's contradictions with their arithmetic;
//! - `figures.rs` draws the paper's figures.
//!
//! Two numbers of the text were used to calibrate the description of the rack (docs/decisions); their rows say so. All
//! else is prediction, and what is missed is printed as missed.

mod figures;
mod paper;
mod rows;
mod runs;

pub use figures::FIGURES;
pub use runs::{Extent, FilledRack, Runs, RunsError, Series, prototype};

use crate::report::{Cell, Column, Page, Table};
use model::RackSpec;
use std::num::NonZeroUsize;

/// The evaluation, reproduced.
pub type Reproduction = super::Reproduction<Runs>;

const ABOUT: &str = "Every number of the text of Balakrishnan et al., \"Pelican: A Building Block for Exascale Cold \
                     Data Storage\" (OSDI 2014), section 5, beside what the simulator says of the same rack, by the \
                     engine that serves. Nothing was read off the paper's figures.";

impl Reproduction {
    /// Simulates the evaluation of `rack`, which is Pelican's, on so many threads. `done` is told how many of how many
    /// runs are done.
    ///
    /// # Errors
    /// [`RunsError`].
    pub fn new(
        rack: RackSpec,
        extent: Extent,
        threads: NonZeroUsize,
        done: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, RunsError> {
        let runs = Runs::new(rack, extent, threads, done)?;
        Ok(Self { rows: rows::rows(&runs), figures: figures::figures(&runs), runs })
    }

    /// Every point as a table.
    pub fn points(&self) -> Table {
        points(&self.runs)
    }

    /// How full each rack that was filled got.
    pub fn fills(&self) -> Table {
        fills(&self.runs)
    }

    /// Everything on one page. `command` is what makes it.
    pub fn page(&self, command: &str) -> Page {
        let tables = [("All points", self.points()), ("Racks that were filled", self.fills())];
        self.page_of("Pelican's evaluation, reproduced", ABOUT, command, tables)
    }
}

fn points(runs: &Runs) -> Table {
    let numbers = Column::numbers;
    let mut table = Table::new(vec![
        Column::words("series", "series"),
        numbers("requests (1/s)", "reads_per_s"),
        numbers("burst", "burst_reads"),
        numbers("u (GB)", "u_gb"),
        numbers("throughput (Gb/s)", "throughput_gbit_per_s"),
        numbers("+- 95 %", "throughput_gbit_per_s_ci95"),
        numbers("TTFB mean (s)", "ttfb_s_mean"),
        numbers("p99 (s)", "ttfb_s_p99"),
        numbers("max (s)", "ttfb_s_max"),
        numbers("completion mean (s)", "completion_s_mean"),
        numbers("service mean (s)", "service_s_mean"),
        numbers("rejects (%)", "rejects_percent"),
        numbers("waking (%)", "wake_time_percent"),
        numbers("spin-ups / drive, year", "spin_ups_per_drive_year"),
        numbers("TB / drive, year", "tb_per_drive_year"),
        numbers("power mean (W)", "power_w_mean"),
        numbers("peak (W)", "power_w_peak"),
        numbers("steady after (h)", "steady_after_h"),
    ]);
    for (series, point) in &runs.points {
        let parameters = &point.parameters;
        table.push(vec![
            Cell::words(format!("{series:?}")),
            Cell::maybe(parameters.reads_per_s),
            Cell::maybe(parameters.burst_reads.map(f64::from)),
            Cell::number((parameters.overtake_limit / runs::GB) as f64),
            Cell::number(runs::gbit(point)),
            Cell::maybe(point.ci95.throughput_bytes_per_s.map(|half| half * 8e-9)),
            Cell::maybe(point.ttfb_s.mean),
            Cell::maybe(point.ttfb_s.p99),
            Cell::maybe(point.ttfb_s.max),
            Cell::maybe(point.completion_s.mean),
            Cell::maybe(point.service_s.mean),
            Cell::number(point.reject_rate * 100.0),
            Cell::number(point.wake_time_fraction * 100.0),
            Cell::number(point.spin_ups_per_drive_year),
            Cell::number(point.tb_per_drive_year),
            Cell::number(point.power_w.mean),
            Cell::number(point.power_w.peak),
            Cell::maybe(point.steady_after_s.map(|after| after / 3_600.0)),
        ]);
    }
    table
}

fn fills(runs: &Runs) -> Table {
    let mut table = Table::new(vec![
        Column::words("drives", "drives"),
        Column::words("chosen inside a group", "rule"),
        Column::numbers("blobs", "blobs"),
        Column::numbers("utilisation (%)", "utilisation_percent"),
        Column::numbers("over clipped drives (%)", "over_clipped_percent"),
        Column::numbers("least used drive (%)", "least_used_percent"),
    ]);
    for rack in &runs.fills {
        let percent = |share: f64| Cell::Number { value: share * 100.0, shown: format!("{:.3}", share * 100.0) };
        let shape = |draws: u8| format!("vary, mean of {draws}");
        table.push(vec![
            Cell::words(rack.capacities.map_or("equal".to_owned(), |capacities| shape(capacities.draws))),
            Cell::words(if rack.random { "at random" } else { "most spare" }),
            Cell::number(rack.filled.blobs as f64),
            percent(rack.filled.utilisation()),
            percent(rack.over_clipped),
            percent(rack.filled.drive_utilisation.first().copied().unwrap_or(0.0)),
        ]);
    }
    table
}
