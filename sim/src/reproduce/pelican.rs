//! Pelican's evaluation (section 5), reproduced: the claims of its text compared with our results.
//!
//! - `paper.rs` is the single table of the text's numbers;
//! - `runs.rs` simulates the runs for rows and figures, each point once;
//! - `calibration.rs` has alternatives for the text's gaps;
//! - `rows.rs` compares the two, and states the text's contradictions with their arithmetic;
//! - `figures.rs` draws the paper's figures.
//!
//! Two numbers of the text were used to calibrate the description of the rack (docs/decisions); their rows state that.
//! All others are predictions, and missed predictions are printed as missed.

mod calibration;
mod figures;
mod paper;
mod rows;
mod runs;

pub use calibration::{ByCalibration, Calibration, OTHERS, SHIPPED, compared};
pub use figures::FIGURES;
pub use rows::rows;
pub use runs::{FilledRack, Form, Runs, SEEDS, Series, View, prototype};

#[cfg(test)]
pub(super) use paper::ALL as CLAIMS;

use super::evaluation;
use crate::SeededPoint;
use crate::report::{Cell, Column, ColumnOf, Page, Table};
use runs::{GB, gbit};

/// The reproduced evaluation.
pub type Reproduction = evaluation::Reproduction<Runs>;

const ABOUT: &str = "Every number of the text of Balakrishnan et al., \"Pelican: A Building Block for Exascale Cold \
                     Data Storage\" (OSDI 2014), section 5, beside what the simulator says of the same rack, by the \
                     engine that serves. Nothing was read off the paper's figures.";

impl Reproduction {
    /// The evaluation with these runs.
    pub fn of(runs: Runs) -> Self {
        Self { rows: rows(&runs), figures: figures::figures(&runs), runs }
    }

    /// All points as a table.
    pub fn points(&self) -> Table {
        let numbers = Column::numbers;
        let columns: &[ColumnOf<(Series, SeededPoint)>] = &[
            (Column::words("series", "series"), |(series, _)| Cell::words(format!("{series:?}"))),
            (numbers("requests (1/s)", "reads_per_s"), |(_, SeededPoint { all: point, .. })| {
                Cell::maybe(point.parameters.reads_per_s)
            }),
            (numbers("burst", "burst_reads"), |(_, SeededPoint { all: point, .. })| {
                Cell::maybe(point.parameters.burst_reads.map(f64::from))
            }),
            (numbers("u (GB)", "u_gb"), |(_, SeededPoint { all: point, .. })| {
                Cell::number((point.parameters.overtake_limit / GB) as f64)
            }),
            (numbers("throughput (Gb/s)", "throughput_gbit_per_s"), |(_, SeededPoint { all: point, .. })| {
                Cell::number(gbit(point))
            }),
            (numbers("+- 95 %", "throughput_gbit_per_s_ci95"), |(_, SeededPoint { all: point, .. })| {
                Cell::maybe(point.ci95.throughput_bytes_per_s.map(|half| half * 8e-9))
            }),
            (numbers("TTFB mean (s)", "ttfb_s_mean"), |(_, SeededPoint { all: point, .. })| {
                Cell::maybe(point.ttfb_s.mean)
            }),
            (numbers("p99 (s)", "ttfb_s_p99"), |(_, SeededPoint { all: point, .. })| Cell::maybe(point.ttfb_s.p99)),
            (numbers("max (s)", "ttfb_s_max"), |(_, SeededPoint { all: point, .. })| Cell::maybe(point.ttfb_s.max)),
            (numbers("completion mean (s)", "completion_s_mean"), |(_, SeededPoint { all: point, .. })| {
                Cell::maybe(point.completion_s.mean)
            }),
            (numbers("service mean (s)", "service_s_mean"), |(_, SeededPoint { all: point, .. })| {
                Cell::maybe(point.service_s.mean)
            }),
            (numbers("rejects (%)", "rejects_percent"), |(_, SeededPoint { all: point, .. })| {
                Cell::number(point.reject_rate * 100.0)
            }),
            (numbers("waking (%)", "wake_time_percent"), |(_, SeededPoint { all: point, .. })| {
                Cell::number(point.wake_time_fraction * 100.0)
            }),
            (numbers("spin-ups / drive, year", "spin_ups_per_drive_year"), |(_, SeededPoint { all: point, .. })| {
                Cell::number(point.spin_ups_per_drive_year)
            }),
            (numbers("TB / drive, year", "tb_per_drive_year"), |(_, SeededPoint { all: point, .. })| {
                Cell::number(point.tb_per_drive_year)
            }),
            (numbers("power mean (W)", "power_w_mean"), |(_, SeededPoint { all: point, .. })| {
                Cell::number(point.power_w.mean)
            }),
            (numbers("peak (W)", "power_w_peak"), |(_, SeededPoint { all: point, .. })| {
                Cell::number(point.power_w.peak)
            }),
            (numbers("steady after (h)", "steady_after_h"), |(_, SeededPoint { all: point, .. })| {
                Cell::maybe(point.steady_after_s.map(|after| after / 3_600.0))
            }),
        ];
        Table::of(&self.runs.points, columns)
    }

    /// The utilisation of each filled rack.
    pub fn fills(&self) -> Table {
        let (words, numbers) = (Column::words, Column::numbers);
        let columns: &[ColumnOf<FilledRack>] = &[
            (words("drives", "drives"), |rack| {
                let shape = rack.capacities.map(|capacities| format!("vary, mean of {}", capacities.draws));
                Cell::words(shape.unwrap_or_else(|| "equal".to_owned()))
            }),
            (words("chosen inside a group", "rule"), |rack| {
                Cell::words(if rack.random { "at random" } else { "most spare" })
            }),
            (numbers("blobs", "blobs"), |rack| Cell::number(rack.filled.blobs as f64)),
            (numbers("utilisation (%)", "utilisation_percent"), |rack| percent(rack.filled.utilisation())),
            (numbers("over clipped drives (%)", "over_clipped_percent"), |rack| percent(rack.over_clipped)),
            (numbers("least used drive (%)", "least_used_percent"), |rack| {
                percent(rack.filled.drive_utilisation.first().copied().unwrap_or(0.0))
            }),
        ];
        Table::of(&self.runs.fills, columns)
    }

    /// Everything on one page. `command` is the command that makes the page.
    pub fn page(&self, command: &str) -> Page {
        let tables = [("All points", self.points()), ("Racks that were filled", self.fills())];
        self.page_of("Pelican's evaluation, reproduced", ABOUT, command, tables)
    }
}

fn percent(share: f64) -> Cell {
    Cell::Number { value: share * 100.0, shown: format!("{:.3}", share * 100.0) }
}
