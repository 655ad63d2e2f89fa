//! The points at which the paper's formulas and the simulation differ by more than 5 %, and the reasons: switches,
//! bytes moved, or costs that the formulas leave out. All of it is computed from the runs.

use super::runs::{Job, PAPERS, Runs, Sweep};
use crate::repartition::paper_s;
use crate::report::{Cell, Column, ColumnOf, Table};
use engine::repartition::formulas::Question;
use std::time::Duration;

/// The smallest difference of a formula that is explained.
pub const APART: f64 = 0.05;

/// A job and its formula, in hours.
#[derive(Clone, Copy, Debug)]
pub struct Apart<'a> {
    /// The job.
    pub job: &'a Job,
    /// The time by the paper's formula, in hours.
    pub model_hours: f64,
    /// The part of the difference that comes from more switches than in the formula.
    pub by_switches: f64,
    /// The part that comes from more bytes read and written.
    pub by_bytes: f64,
    /// The rest: seeks, and the removal of delivered runs.
    pub by_rest: f64,
}

impl<'a> Apart<'a> {
    /// The deviation of the formula, as a share of itself.
    pub fn off(&self) -> f64 {
        self.job.point.hours / self.model_hours - 1.0
    }

    /// The deviation of the better formula, if the job has one.
    pub fn better_off(&self) -> Option<f64> {
        better_off(self.job)
    }

    /// The main reason for the difference.
    pub fn because(&self) -> &'static str {
        let parts = [
            (self.by_switches, ["more switches", "fewer switches"]),
            (self.by_bytes, ["more bytes moved", "fewer bytes moved"]),
            (self.by_rest, ["seeks, and runs removed", "less than counted"]),
        ];
        let most = parts.into_iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        most.map_or("", |(hours, [more, fewer])| if hours < 0.0 { fewer } else { more })
    }

    fn of(job: &'a Job) -> Option<Self> {
        const HOUR_S: f64 = 3_600.0;
        let (what, point) = (&job.what, &job.point);
        let groups = what.rack.drives.len() / what.rack.group_drives as usize;
        let mut question: Question = what.question(groups);
        let terms = question.terms;
        let model_hours = point.model_hours?;
        question.terms.switch = Duration::ZERO;
        let model_transfer = paper_s(point.strategy, &question)? / HOUR_S;
        let read_s = point.bytes_read as f64 / terms.read_bytes_per_s as f64;
        let transfer = (read_s + point.bytes_written as f64 / terms.write_bytes_per_s as f64) / HOUR_S;
        Some(Self {
            job,
            model_hours,
            by_switches: point.switching_hours - (model_hours - model_transfer),
            by_bytes: transfer - model_transfer,
            by_rest: point.hours - point.switching_hours - transfer,
        })
    }
}

/// All jobs of the paper's methods, with their formulas.
pub fn beside(runs: &Runs) -> impl Iterator<Item = Apart<'_>> + Clone {
    let papers = |job: &&Job| PAPERS.contains(&job.what.method) && job.sweep != Sweep::Disks;
    runs.jobs.iter().filter(papers).filter_map(Apart::of)
}

/// The deviation of the formula with skew, as a share of itself; `None` for a strategy without a better formula.
pub fn better_off(job: &Job) -> Option<f64> {
    Some(job.point.hours / job.point.better_model_hours? - 1.0)
}

/// The jobs that differ by more than 5 %.
pub fn apart(runs: &Runs) -> Vec<Apart<'_>> {
    beside(runs).filter(|one| one.off().abs() > APART).collect()
}

/// The jobs that differ by more than 5 %, as a table.
pub fn table(runs: &Runs) -> Table {
    let (words, numbers) = (Column::words, Column::numbers);
    let columns: &[ColumnOf<Apart<'_>>] = &[
        (words("varied", "varied"), |one| Cell::words(one.job.sweep.words())),
        (numbers("value", "value"), |one| Cell::number(one.job.x)),
        (words("strategy", "strategy"), |one| Cell::words(one.job.what.method.word())),
        (numbers("simulated (h)", "hours"), |one| Cell::number(one.job.point.hours)),
        (numbers("the paper's model (h)", "model_hours"), |one| Cell::number(one.model_hours)),
        (numbers("off by (%)", "model_off_percent"), |one| Cell::number(one.off() * 100.0)),
        (words("mostly because of", "because"), |one| Cell::words(one.because())),
        (numbers("of it switches (h)", "by_switches_hours"), |one| Cell::number(one.by_switches)),
        (numbers("bytes (h)", "by_bytes_hours"), |one| Cell::number(one.by_bytes)),
        (numbers("the rest (h)", "by_rest_hours"), |one| Cell::number(one.by_rest)),
        (numbers("better model (h)", "better_model_hours"), |one| Cell::maybe(one.job.point.better_model_hours)),
        (numbers("off by (%)", "better_model_off_percent"), |one| Cell::maybe(one.better_off().map(|off| off * 100.0))),
    ];
    Table::of(&apart(runs), columns)
}
