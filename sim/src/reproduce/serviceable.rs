//! The evaluation of Serviceable cold storage (section IV), reproduced: the claims of its text compared with our
//! results.
//!
//! - `paper.rs` is the single table of the text's numbers;
//! - `runs.rs` puts the text's loads onto its three clusters, each run once;
//! - `rows.rs` compares the two, and states the text's contradictions with their arithmetic;
//! - `figures.rs` draws the paper's figures.
//!
//! Four numbers are calibrated: the watts of a spinning drive (vanilla) and of a stopped one (cold-12), and from
//! vanilla's times the processor time of a request (the rate that the cluster sustains) and the time for which the
//! groups of a failed OSD do not answer (its longest request). All others are predictions. Choices for the gaps in the
//! text are in `runs.rs`, which also changes them one at a time; [`Reproduction::sensitivity`] shows their effects.

mod figures;
mod paper;
mod rows;
mod runs;

pub use figures::FIGURES;
pub use runs::{Case, Kind, Made, Runs, SEEDS, Scene, SeedRuns, Variant};

#[cfg(test)]
pub(super) use paper::ALL as CLAIMS;

use super::evaluation;
use crate::report::{Cell, Column, ColumnOf, Page, Table};
use runs::{BOUNDS, MOST_THREADS};

/// The reproduced evaluation.
pub type Reproduction = evaluation::Reproduction<Runs>;

const ABOUT: &str = "Every number of the text of \"Change Your Cluster to Cold\" (Park, Jo, Lee and Kang), section \
                     IV, beside what the simulator says: three hosts of eight drives, three replicas. What is cold \
                     is decided by the server's thermometer (engine::thermometer), when a drive stops by the \
                     server's spin-down rule and budget (engine::spin_down). Nothing was read off the paper's \
                     figures. Calibrated: the watts of vanilla and cold-12; of vanilla's times, what a request \
                     takes of a processor (26 ms: 600 requests a second below 100 ms, 700 not reached) and how long \
                     a failed OSD's groups do not answer (2.2 s). Ours, since the text leaves it open: a write in \
                     five requests; objects of 2 to 170 KB, 60 KB on average; 8 processors of a host; drives of \
                     5,400 turns a minute, seeks of 10 ms on average, records in the middle of the drive, commits \
                     shared by all that wait for one; starts of 9.5 to 10.5 s at 10 W; 1,024 placement groups; the \
                     oldest 92 % have been through a scrub when a run begins, the newest 8 % have not; a cold OSD \
                     fails, and its drives keep their power; it counts as out after 600 s; recovery copies ten \
                     objects a second to each OSD, Ceph's default for drives; an object takes 5 ms of a processor \
                     in recovery or scrub.";

impl Reproduction {
    /// The evaluation with these runs.
    pub fn of(runs: Runs) -> Self {
        Self { rows: rows::rows(&runs), figures: figures::figures(&runs), runs }
    }

    /// Vanilla's rate and the times that cold OSDs add, with the first seed, for each changed choice of ours.
    pub fn sensitivity(&self) -> Table {
        let of = self.runs.first();
        let number = Column::numbers;
        let held = |variant| of.at(Kind::Vanilla, Scene::Load(BOUNDS[1], MOST_THREADS), variant).throughput();
        let mean = |kind, variant| of.at(kind, Scene::Normal, variant).latency.mean_s().unwrap_or(f64::NAN) * 1e3;
        let all = Variant::LATENCY.map(|variant| {
            let numbers = [
                held(variant),
                mean(Kind::Vanilla, variant),
                of.added_ms(Kind::Cold6, variant),
                of.added_ms(Kind::Cold12, variant),
                mean(Kind::Cold12, variant),
            ];
            (variant, numbers)
        });
        let columns: &[ColumnOf<(Variant, [f64; 5])>] = &[
            (Column::words("choice", "choice"), |(variant, _)| Cell::words(variant.words())),
            (number("vanilla holds (/s)", "vanilla_per_s"), |(_, numbers)| Cell::number(numbers[0])),
            (number("vanilla's mean (ms)", "vanilla_mean_ms"), |(_, numbers)| Cell::number(numbers[1])),
            (number("cold-6 adds (ms)", "added_cold6_ms"), |(_, numbers)| Cell::number(numbers[2])),
            (number("cold-12 adds (ms)", "added_cold12_ms"), |(_, numbers)| Cell::number(numbers[3])),
            (number("cold-12's mean (ms)", "cold12_mean_ms"), |(_, numbers)| Cell::number(numbers[4])),
        ];
        Table::of(&all, columns)
    }

    /// All runs as a table.
    pub fn points(&self) -> Table {
        let (words, number) = (Column::words, Column::numbers);
        let columns: &[ColumnOf<Made>] = &[
            (words("cluster", "cluster"), |made| Cell::words(made.case.kind.words())),
            (words("course", "course"), |made| Cell::words(made.case.scene.words())),
            (words("choice", "choice"), |made| Cell::words(made.case.variant.words())),
            (number("seed", "seed"), |made| Cell::number(made.seed as f64)),
            (number("time (s)", "seconds"), |made| Cell::number(made.outcome.span.as_secs_f64())),
            (number("requests", "requests"), |made| Cell::number(made.outcome.latency.count() as f64)),
            (number("a second", "per_s"), |made| Cell::number(made.outcome.throughput())),
            (number("mean (ms)", "mean_ms"), |made| milliseconds(made.outcome.latency.mean_s())),
            (number("median of means (ms)", "median_mean_ms"), |made| Cell::number(made.outcome.median_mean_ms())),
            (number("p99 (ms)", "p99_ms"), |made| milliseconds(made.outcome.latency.quantile_s(0.99))),
            (number("p99.99 (ms)", "p9999_ms"), |made| milliseconds(made.outcome.latency.quantile_s(0.9999))),
            (number("longest (ms)", "max_ms"), |made| milliseconds(made.outcome.latency.max_s())),
            (number("power (W)", "watts"), |made| Cell::number(made.outcome.draw_mw as f64 / 1e3)),
            (number("load of a host", "load"), |made| Cell::number(made.outcome.load)),
            (number("cold accesses", "cold_accesses"), |made| Cell::number(made.outcome.cold_accesses as f64)),
            (number("starts", "starts"), |made| Cell::number(made.outcome.starts as f64)),
            (number("cold drives woken", "woken"), |made| Cell::number(made.outcome.woken as f64)),
            (number("redirected", "redirected"), |made| Cell::number(made.outcome.redirected as f64)),
            (number("objects recovered", "copied"), |made| Cell::number(made.outcome.copied as f64)),
            (number("copies migrated", "migrated"), |made| Cell::number(made.outcome.scrub.migrated as f64)),
        ];
        Table::of(&self.runs.made, columns)
    }

    /// Everything on one page. `command` is the command that makes the page.
    pub fn page(&self, command: &str) -> Page {
        let tables = [("What depends on choices of ours", self.sensitivity()), ("All runs", self.points())];
        self.page_of("Serviceable cold storage, reproduced", ABOUT, command, tables)
    }
}

fn milliseconds(seconds: Option<f64>) -> Cell {
    seconds.map_or_else(|| Cell::words(""), |seconds| Cell::number(seconds * 1e3))
}
