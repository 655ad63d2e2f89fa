//! `larder simulate`: the answers to a scenario's question, as a table, as JSON, and as a report with plots.

use crate::args::Simulate;
use crate::human::{counted, table};
use crate::output;
use crate::report_dir::ReportDir;
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value};
use server::data_dir::read_rack;
use sim::report::{Cell, Table};
use sim::scenario::{Answer, Asked, Case, Scenario, Sources, csv, page, short_table};
use std::num::NonZeroUsize;
use std::path::Path;

/// What a report consists of.
const FILES: [&str; 4] = ["report.html", "points.csv", "points.json", "plot.svg"];

/// `larder simulate`.
pub fn simulate(options: &Simulate) -> anyhow::Result<()> {
    let origin = options.file.display().to_string();
    let text = std::fs::read_to_string(&options.file)
        .with_context(|| format!("reading {origin}; name a scenario, such as scenarios/request-rate.toml"))?;
    let mut overrides = options.set.clone();
    overrides.extend(options.seeds.map(|count| format!("seeds={count}")));
    let scenario = Scenario::parse(&text, &origin, &overrides)?;
    let cases = scenario.cases()?;
    let folder = options.file.parent().unwrap_or(Path::new("."));
    let experiments = experiments(&scenario, &cases, folder)?;
    let dir = options.out.as_deref().map(|path| ReportDir::make(path, FILES.to_vec())).transpose()?;
    let points = run(&experiments, options.threads)?;
    let answers: Vec<Answer> = cases.into_iter().zip(points).map(|(case, point)| Answer { case, point }).collect();
    if let Some(dir) = &dir {
        write(dir, &scenario, &answers, text)?;
    }
    if options.json {
        return output::print_json(&json(&scenario, &answers)?);
    }
    output::print(&format!("{}\n\n{}", scenario.question, shown(&short_table(&scenario, &answers))))?;
    if let Some(dir) = &dir {
        output::print(&format!("\nThe report is {}\n", dir.path("report.html").display()))?;
    }
    Ok(())
}

fn experiments(scenario: &Scenario, cases: &[Case], folder: &Path) -> anyhow::Result<Vec<sim::Experiment>> {
    let rack = |name: &str| {
        let shipped = model::text::SHIPPED.iter().any(|(known, _)| *known == name);
        let found = read_rack(&if shipped { name.to_owned() } else { folder.join(name).display().to_string() });
        found.map(|(_, spec)| spec).map_err(|error| error.to_string())
    };
    let trace = |name: &str| {
        let path = folder.join(name);
        let told = |error| format!("{error}; write the path of a trace as seen from the scenario");
        sim::replay::check(&path).map(|_| path).map_err(told)
    };
    let mut sources = Sources::new(&rack, &trace);
    cases.iter().map(|case| Ok(scenario.experiment(case, &mut sources)?)).collect()
}

/// Runs all experiments, with a bar that shows how far they are where somebody looks.
pub fn run(experiments: &[sim::Experiment], asked: Option<NonZeroUsize>) -> anyhow::Result<Vec<sim::Point>> {
    let bar = progress("points")?;
    bar.set_length(experiments.len() as u64);
    bar.tick();
    let points = sim::run_all(experiments, threads(asked), &|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    Ok(points?)
}

/// As many threads as were asked for, or as there are processors.
pub fn threads(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    asked.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// A bar that counts `what`.
pub fn progress(what: &str) -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let template = format!("{{bar:40}} {{pos}} of {{len}} {what}, {{elapsed}} passed, {{eta}} to go");
    bar.set_style(ProgressStyle::with_template(&template)?);
    Ok(bar)
}

fn write(dir: &ReportDir, scenario: &Scenario, answers: &[Answer], text: String) -> anyhow::Result<()> {
    let asked = Asked { command: command(), version: env!("CARGO_PKG_VERSION").to_owned(), text };
    dir.write("report.html", &page(scenario, answers, &asked).html())?;
    dir.write("points.csv", &csv(answers))?;
    dir.write("points.json", &format!("{}\n", serde_json::to_string_pretty(&json(scenario, answers)?)?))?;
    if let Some(plot) = &scenario.plot {
        dir.write("plot.svg", &plot.plate(&scenario.question, answers).svg())?;
    }
    Ok(())
}

/// The command as it can be given again.
pub fn command() -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
        let bare = !word.is_empty() && word.chars().all(plain);
        if bare { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let rest = std::env::args().skip(1).map(quoted);
    std::iter::once("larder".to_owned()).chain(rest).collect::<Vec<_>>().join(" ")
}

/// Each point with its parameters, by the names that a scenario has for them.
fn json(scenario: &Scenario, answers: &[Answer]) -> anyhow::Result<Vec<Value>> {
    let one = |answer: &Answer| {
        let Value::Object(measured) = serde_json::to_value(&answer.point)? else { bail!("a point is an object") };
        let mut parameters: Map<String, Value> = Map::new();
        for (key, value) in &answer.case.values {
            parameters.insert((*key).to_owned(), serde_json::to_value(&value.written)?);
        }
        parameters.insert("seeds".to_owned(), serde_json::to_value(&scenario.seeds)?);
        let mut point = Map::new();
        point.insert("parameters".to_owned(), Value::Object(parameters));
        let hashes: Vec<String> = answer.point.trace_hashes.iter().map(|hash| format!("{hash:016x}")).collect();
        point.extend(measured.into_iter().filter(|(name, _)| name != "parameters"));
        // Many readers of JSON keep no more than 53 bits of a number.
        point.insert("trace_hashes".to_owned(), serde_json::to_value(hashes)?);
        Ok(Value::Object(point))
    };
    answers.iter().map(one).collect()
}

/// A report's table for the terminal.
pub fn shown(report: &Table) -> String {
    let head: Vec<&str> = report.columns.iter().map(|column| column.name.as_str()).collect();
    let right: Vec<&str> = report.columns.iter().filter(|c| c.right).map(|column| column.name.as_str()).collect();
    let rows: Vec<Vec<String>> =
        report.rows.iter().map(|row| row.iter().map(Cell::shown).map(ToOwned::to_owned).collect()).collect();
    format!("{}{}\n", table(&head, &right, &rows), counted(rows.len() as u64, "point"))
}
