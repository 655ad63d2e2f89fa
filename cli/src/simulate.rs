//! `larder simulate`: answers a scenario's question as a table, as JSON, and as a report with plots.

use crate::args::Simulate;
use crate::human::{counted, table};
use crate::output;
use crate::report_dir::ReportDir;
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value};
use server::clock;
use server::data_dir::read_rack;
use sim::report::{Cell, Table};
use sim::scenario::{Answer, Asked, Case, Found, Scenario, Sources, Trial, csv, page, short_table, unsettled, wear};
use std::num::NonZeroUsize;
use std::path::Path;
use tokio::time::Instant;

/// The files of a report.
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
    let trials = trials(&scenario, &cases, folder)?;
    let dir = options.out.as_deref().map(|path| ReportDir::make(path, FILES.to_vec())).transpose()?;
    let all = run(&trials, options.threads)?;
    let answers: Vec<Answer> = cases.into_iter().zip(all).map(|(case, found)| Answer { case, found }).collect();
    if let Some(dir) = &dir {
        write(dir, &scenario, &answers, text)?;
    }
    if options.json {
        return output::print_json(&json(&scenario, &answers)?);
    }
    output::print(&format!("{}\n\n{}", scenario.question, shown(&short_table(&scenario, &answers))))?;
    for warning in unsettled(&answers).into_iter().chain(wear(&answers)) {
        output::print(&format!("\n{warning}\n"))?;
    }
    if let Some(dir) = &dir {
        output::print(&format!("\nThe report is {}\n", dir.path("report.html").display()))?;
    }
    Ok(())
}

fn trials(scenario: &Scenario, cases: &[Case], folder: &Path) -> anyhow::Result<Vec<Trial>> {
    let rack = |name: &str| {
        let shipped = model::text::SHIPPED.iter().any(|(known, _)| *known == name);
        let found = read_rack(&if shipped { name.to_owned() } else { folder.join(name).display().to_string() });
        found.map(|(_, spec)| spec).map_err(|error| error.to_string())
    };
    let trace = |name: &str| {
        let path = folder.join(name);
        let message = |error| format!("{error}; write the path of a trace as seen from the scenario");
        sim::replay::check(&path).map(|_| path).map_err(message)
    };
    let mut sources = Sources::new(&rack, &trace);
    cases.iter().map(|case| Ok(scenario.trial(case, &mut sources)?)).collect()
}

/// Runs all trials, with their progress on standard error.
fn run(trials: &[Trial], asked: Option<NonZeroUsize>) -> anyhow::Result<Vec<Found>> {
    let progress = RunProgress::new("points")?;
    progress.reached(0, trials.len());
    let found = sim::run_each(trials, threads(asked), &Trial::run, &|done| progress.reached(done, trials.len()));
    progress.end();
    Ok(found?)
}

/// The requested number of threads, or as many as there are processors.
pub fn threads(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    asked.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// The progress of work on standard error: a bar on a terminal, else some lines for a log.
pub struct RunProgress {
    bar: ProgressBar,
    what: &'static str,
    begun: Instant,
}

impl RunProgress {
    /// Counts `what`.
    pub fn new(what: &'static str) -> anyhow::Result<Self> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let template = format!("{{bar:40}} {{pos}} of {{len}} {what}, {{elapsed}} passed, {{eta}} to go");
        bar.set_style(ProgressStyle::with_template(&template)?);
        Ok(Self { bar, what, begun: clock::monotonic() })
    }

    /// Shows that `done` out of `of` are done. A log has a line for each twentieth of them.
    pub fn reached(&self, done: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
        self.bar.tick();
        if self.bar.is_hidden() && is_worth_a_line(done, of) {
            eprintln!("{done} of {of} {}, {} s passed", self.what, self.begun.elapsed().as_secs());
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// True if the last one of `done` completed another twentieth of `of`.
fn is_worth_a_line(done: usize, of: usize) -> bool {
    done > 0 && done * 20 / of.max(1) > (done - 1) * 20 / of.max(1)
}

fn write(dir: &ReportDir, scenario: &Scenario, answers: &[Answer], text: String) -> anyhow::Result<()> {
    let asked = Asked { command: command(), version: env!("CARGO_PKG_VERSION").to_owned(), text };
    dir.clear()?;
    dir.write("report.html", &page(scenario, answers, &asked).html())?;
    dir.write("points.csv", &csv(answers))?;
    dir.write("points.json", &format!("{}\n", serde_json::to_string_pretty(&json(scenario, answers)?)?))?;
    if let Some(plot) = &scenario.plot {
        dir.write("plot.svg", &plot.figure(&scenario.question, answers).svg())?;
    }
    Ok(())
}

/// The command line in a form that can be entered again.
pub fn command() -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
        let bare = !word.is_empty() && word.chars().all(plain);
        if bare { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let rest = std::env::args().skip(1).map(quoted);
    std::iter::once("larder".to_owned()).chain(rest).collect::<Vec<_>>().join(" ")
}

/// Each point with its parameters, under their names in a scenario.
fn json(scenario: &Scenario, answers: &[Answer]) -> anyhow::Result<Vec<Value>> {
    let one = |answer: &Answer| {
        let Value::Object(measured) = serde_json::to_value(&answer.found)? else { bail!("a point is an object") };
        let mut parameters: Map<String, Value> = Map::new();
        for (key, value) in &answer.case.values {
            parameters.insert((*key).to_owned(), serde_json::to_value(&value.written)?);
        }
        parameters.insert("seeds".to_owned(), serde_json::to_value(&scenario.seeds)?);
        let mut point = Map::new();
        point.insert("parameters".to_owned(), Value::Object(parameters));
        let hashes: Vec<String> = answer.found.trace_hashes().iter().map(|hash| format!("{hash:016x}")).collect();
        point.extend(measured.into_iter().filter(|(name, _)| name != "parameters"));
        // Many readers of JSON keep no more than 53 bits of a number.
        point.insert("trace_hashes".to_owned(), serde_json::to_value(hashes)?);
        Ok(Value::Object(point))
    };
    answers.iter().map(one).collect()
}

/// A report's table for the terminal.
pub fn shown(report: &Table) -> String {
    format!("{}{}\n", columns(report), counted(report.rows.len() as u64, "point"))
}

/// A report's table in columns.
pub fn columns(report: &Table) -> String {
    let head: Vec<&str> = report.columns.iter().map(|column| column.name.as_str()).collect();
    let right: Vec<&str> = report.columns.iter().filter(|c| c.right).map(|column| column.name.as_str()).collect();
    let rows = report.rows.iter().map(|row| row.iter().map(Cell::shown).map(ToOwned::to_owned).collect());
    table(&head, &right, rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    const QUICK: &str = "question = \"Is it quick?\"\nrack = \"nas8\"\nstored_blobs = 50\nwarm_up = \"none\"\n\
                         duration = \"1 h\"\nseeds = 2\n[workload]\nrate = [\"20 per h\", \"60 per h\"]\n[plot]\n\
                         x = \"workload.rate\"\ny = \"ttfb_s.mean\"\n";

    fn options(file: PathBuf, out: PathBuf) -> Simulate {
        Simulate { file, out: Some(out), json: false, set: Vec::new(), seeds: None, threads: NonZeroUsize::new(2) }
    }

    #[test]
    fn a_report_has_its_four_files_and_replaces_only_a_report() {
        let root = tempfile::tempdir().unwrap();
        let (file, out) = (root.path().join("quick.toml"), root.path().join("new/report"));
        fs::write(&file, QUICK).unwrap();
        let options = options(file, out.clone());
        simulate(&options).unwrap();
        let first = fs::read_to_string(out.join("points.json")).unwrap();
        let points: Vec<Value> = serde_json::from_str(&first).unwrap();
        assert_eq!(points.len(), 2);
        let parameters = &points[1]["parameters"];
        assert_eq!((&parameters["workload.rate"], &parameters["rack"]), (&"60 per h".into(), &"nas8".into()));
        assert_eq!(parameters["seeds"], serde_json::json!([1, 2]));
        assert_eq!(points[0]["trace_hashes"].as_array().unwrap().len(), 2);
        assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("Is it quick?"));
        assert!(fs::read_to_string(out.join("plot.svg")).unwrap().starts_with("<svg"));
        assert_eq!(fs::read_to_string(out.join("points.csv")).unwrap().lines().count(), 3);
        simulate(&options).unwrap();
        assert_eq!(fs::read_to_string(out.join("points.json")).unwrap(), first, "the same again, to the last digit");
        fs::write(out.join("notes.txt"), "mine").unwrap();
        let message = simulate(&options).unwrap_err().to_string();
        assert!(
            message.contains("holds notes.txt, which is not part of a report; give --out a new directory"),
            "{message}"
        );
        assert!(out.join("report.html").exists(), "nothing is removed by what is refused");
    }

    #[test]
    fn errors_are_found_before_anything_is_run_or_made() {
        let root = tempfile::tempdir().unwrap();
        let (file, out) = (root.path().join("s.toml"), root.path().join("out"));
        let message = |text: &str, set: &[&str], out: &Path| {
            fs::write(&file, text).unwrap();
            let set = set.iter().map(|setting| (*setting).to_owned()).collect();
            format!("{:#}", simulate(&Simulate { set, ..options(file.clone(), out.to_owned()) }).unwrap_err())
        };
        let place = file.display().to_string();
        assert!(message("rak = 1", &[], &out).starts_with(&format!("{place}:1:1: unknown key `rak`; write `rack`")));
        let set = message("", &["workload.rat=1"], &out);
        assert!(set.starts_with("--set workload.rat=1: unknown key `workload.rat`; write `workload.rate`"), "{set}");
        let rack = message("rack = \"none.toml\"", &[], &out);
        assert!(rack.starts_with(&format!("{place}:1:8: `rack`: ")) && rack.contains("none.toml"), "{rack}");
        let trace = message("[workload]\narrivals = \"replay\"\ntrace = \"none.csv\"", &[], &out);
        assert!(trace.contains("none.csv") && trace.contains("write the path of a trace as seen from"), "{trace}");
        assert!(!out.exists(), "no directory is made for nothing");
        let is_file = message(QUICK, &[], &file);
        assert!(is_file.contains("is a file; give --out a directory, which need not exist yet"), "{is_file}");
        fs::remove_file(&file).unwrap();
        let none = simulate(&options(file.clone(), out)).unwrap_err().to_string();
        assert!(none.contains("name a scenario, such as scenarios/request-rate.toml"), "{none}");
    }

    #[test]
    fn a_log_of_progress_is_short_and_has_the_end() {
        for of in [1, 3, 20, 37, 1_000] {
            let lines: Vec<usize> = (0..=of).filter(|done| is_worth_a_line(*done, of)).collect();
            assert_eq!((lines.len(), lines.last()), (of.min(20), Some(&of)));
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_points() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("s.toml");
        fs::write(&file, QUICK).unwrap();
        let scenario = Scenario::parse(QUICK, "s.toml", &[]).unwrap();
        let trials = trials(&scenario, &scenario.cases().unwrap(), root.path()).unwrap();
        let [one, many] = [1, 3].map(|threads| run(&trials, NonZeroUsize::new(threads)).unwrap());
        assert_eq!(one, many);
    }
}
