//! The answers of a scenario as tables and as a page.

use super::key::{KEYS, Key};
use super::measure::{MEASURES, Measure};
use super::plot::plain_name;
use super::question::Scenario;
use super::trial::{Answer, Found};
use crate::point::Point;
use crate::report::{Cell, Column, Page, Section, Table};

/// The origin of a page, from which it can be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The command.
    pub command: String,
    /// The version of Larder.
    pub version: String,
    /// The scenario's text.
    pub text: String,
}

/// A table of the varied keys and the most important measures.
pub fn short_table(scenario: &Scenario, answers: &[Answer]) -> Table {
    table(&scenario.varied(), answers, |measure| measure.short, false)
}

/// A warning that drives start more often than their rating allows, if that is true for any answer.
pub fn wear(answers: &[Answer]) -> Option<String> {
    let points = answers.iter().filter_map(|answer| match &answer.found {
        Found::Service(point) => Some(&**point),
        Found::Repartition(_) | Found::Fill(_) | Found::Copy(_) => None,
    });
    let times = |point: &Point| point.spin_ups_per_drive_year / point.rated_starts_per_drive_year;
    let beyond: Vec<&Point> = points.filter(|point| point.beyond_rating).collect();
    let worst = beyond.iter().max_by(|a, b| times(a).total_cmp(&times(b)))?;
    Some(format!(
        "WEAR: in {} of {} points drives start more often than they are rated for. At worst {:.0} times a year, where \
         {:.0} are rated: the starts of a drive's life are used up {:.1} times as fast. Less load, a larger \
         policy.overtake_limit or a longer policy.idle_timeout spares them.",
        beyond.len(),
        answers.len(),
        worst.spin_ups_per_drive_year,
        worst.rated_starts_per_drive_year,
        times(worst)
    ))
}

/// A warning that queues had not settled at the beginning of the measurement, if that is true for any answer.
pub fn unsettled(answers: &[Answer]) -> Option<String> {
    let count = answers.iter().filter(|answer| answer.found.unsettled()).count();
    (count > 0).then(|| {
        format!(
            "NOT SETTLED: in {count} of {} points the number of open requests was still changing when measuring began, \
             or never became steady (MSER-5). Their results depend on the window; their marks are hollow. A longer \
             warm_up helps, unless the rack is in one of two states, as near what it can serve at most.",
            answers.len()
        )
    })
}

/// All parameters and all measures, in the units of the measures' names, with every digit.
pub fn csv(answers: &[Answer]) -> String {
    let keys: Vec<&Key> =
        KEYS.iter().filter(|key| answers.iter().any(|a| a.case.values.contains_key(key.name))).collect();
    table(&keys, answers, |_| true, true).csv()
}

/// The keys, and the measures in `measures` that any answer has; if `exact`, in the units of the measures' names.
fn table(keys: &[&Key], answers: &[Answer], measures: impl Fn(&Measure) -> bool, exact: bool) -> Table {
    let counted = |measure: &&Measure| answers.iter().any(|answer| measure.exact(&answer.found).is_some());
    let measures: Vec<&Measure> = MEASURES.iter().filter(|measure| measures(measure)).filter(counted).collect();
    let mut columns: Vec<Column> =
        measures.iter().map(|measure| Column::numbers(measure.label, measure.name)).collect();
    if answers.iter().any(|answer| answer.found.unsettled()) {
        columns.push(Column::words("settled", "settled"));
    }
    beside(keys, answers, columns, |answer, measure| {
        if measure == measures.len() {
            return Cell::words(if answer.found.unsettled() { "no" } else { "yes" });
        }
        let (shown, value) = (measures[measure].of(&answer.found), measures[measure].exact(&answer.found));
        match Cell::maybe(shown) {
            Cell::Number { shown, .. } if exact => Cell::Number { value: value.unwrap_or(f64::NAN), shown },
            cell => cell,
        }
    })
}

/// The values of the keys as written, followed by `columns`; `cell` makes a cell from the index of its column.
fn beside(keys: &[&Key], answers: &[Answer], columns: Vec<Column>, cell: impl Fn(&Answer, usize) -> Cell) -> Table {
    let count = columns.len();
    let of_keys = keys.iter().map(|key| Column::words(plain_name(key.name), key.name));
    let mut table = Table::new(of_keys.chain(columns).collect());
    for answer in answers {
        let written = keys.iter().map(|key| answer.case.written(key.name));
        let written = written.map(|written| written.map_or(Cell::Empty, |written| Cell::words(written.to_string())));
        table.push(written.chain((0..count).map(|column| cell(answer, column))).collect());
    }
    table
}

/// The page of a scenario's answers.
pub fn page(scenario: &Scenario, answers: &[Answer], asked: &Asked) -> Page {
    let mut sections = Vec::new();
    if let Some(plot) = &scenario.plot {
        sections.push(Section::Figure(plot.figure("", answers)));
    }
    sections.push(Section::Heading("Results".to_owned()));
    sections.push(Section::Words(explained(scenario, answers)));
    sections.push(Section::Table(short_table(scenario, answers)));
    sections.extend(unsettled(answers).into_iter().chain(wear(answers)).map(Section::Words));
    sections.push(Section::Heading("All measures".to_owned()));
    let keys = scenario.varied();
    sections.push(Section::Table(table(&keys, answers, |_| true, false)));
    sections.push(Section::Heading("Parameters".to_owned()));
    sections.push(Section::Facts(constants(scenario, answers)));
    sections.push(Section::Heading("To run it again".to_owned()));
    sections.push(Section::Facts(vec![
        ("command".to_owned(), asked.command.clone()),
        ("version".to_owned(), asked.version.clone()),
        ("seeds".to_owned(), list(&scenario.seeds)),
    ]));
    sections.push(Section::Words(
        "The same scenario, seeds and version give the same numbers, on any machine and with any number of threads. \
         Runs with the same trace hash are the same, event by event."
            .to_owned(),
    ));
    sections.push(Section::Table(hashes(&keys, answers)));
    sections.push(Section::Heading("Scenario".to_owned()));
    sections.push(Section::Verbatim(asked.text.clone()));
    Page { title: scenario.question.clone(), sections }
}

fn explained(scenario: &Scenario, answers: &[Answer]) -> String {
    let runs = match scenario.seeds.len() {
        1 => "Each row is one run".to_owned(),
        seeds => format!("Each row combines {seeds} runs with different seeds"),
    };
    let bars =
        if scenario.seeds.len() > 1 { " Bars in the plots are 95 % confidence intervals over the seeds." } else { "" };
    let mut text = format!("{runs}.");
    if answers.iter().any(|answer| matches!(answer.found, Found::Service(_))) {
        text.push_str(
            " TTFB, the time to the first byte, and completion count from the moment of the request; service from the \
             moment it leaves its queue, the wake it caused included. 1 Gb/s is 125,000,000 bytes/s.",
        );
    }
    if answers.iter().any(|answer| matches!(answer.found, Found::Repartition(_))) {
        text.push_str(
            " A job's time and switches are the rack's own: each step of the planner is a background operation. The \
             paper's model is its formula (1), (6) or (7); the better one knows skew, and costs that those leave \
             out; a dry run is the strategy alone, as a fluid; no strategy is faster than the lower bound.",
        );
    }
    if answers.iter().any(|answer| matches!(answer.found, Found::Fill(_))) {
        text.push_str(
            " A rack is written to until the first write finds no group with room; all stacks count as used. Clipped \
             drives are used as if each had the least capacity that is allowed.",
        );
    }
    if answers.iter().any(|answer| matches!(answer.found, Found::Copy(_))) {
        text.push_str(
            " A client copies a tree, many objects at once, each stored in a random group; the reads of others are \
             those that began during the copy. Times, wakes and starts are means over the seeds; the waits of others \
             are pooled over all seeds.",
        );
    }
    text + bars
}

/// Parameters with the same value in all cases.
fn constants(scenario: &Scenario, answers: &[Answer]) -> Vec<(String, String)> {
    let varied = scenario.varied();
    let fixed = KEYS.iter().filter(|key| varied.iter().all(|other| other.name != key.name));
    let value = |key: &Key| answers.iter().find_map(|answer| answer.case.written(key.name)).map(ToString::to_string);
    fixed.filter_map(|key| Some((key.name.to_owned(), value(key)?))).collect()
}

fn hashes(keys: &[&Key], answers: &[Answer]) -> Table {
    let columns = vec![Column::words("trace hashes, by seed", "trace_hashes")];
    beside(keys, answers, columns, |answer, _| {
        let hashes: Vec<String> = answer.found.trace_hashes().iter().map(|hash| format!("{hash:016x}")).collect();
        Cell::words(hashes.join(" "))
    })
}

fn list(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
