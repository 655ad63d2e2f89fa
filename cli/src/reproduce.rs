//! `larder reproduce`: repeats the evaluation of a paper.

use crate::args::Evaluation;
use crate::human::table;
use crate::output;
use crate::report_dir::ReportDir;
use crate::simulate::{RunProgress, command, threads};
use sim::report::{Page, Table};
use sim::reproduce::judge::{Row, findings, others, rules};
use sim::reproduce::{Snapshot, partition, pelican, serviceable, shifting, soho};
use std::fmt::Write;

/// The files of a report, beside its figures and tables.
const FILES: [&str; 3] = ["report.html", "rows.csv", "rows.json"];
const PELICAN_TABLES: [&str; 2] = ["points.csv", "fills.csv"];
const PARTITION_TABLES: [&str; 2] = ["points.csv", "apart.csv"];
const SHIFTING_TABLES: [&str; 1] = ["points.csv"];
const SOHO_TABLES: [&str; 2] = ["points.csv", "sensitivity.csv"];
const SERVICEABLE_TABLES: [&str; 2] = ["points.csv", "sensitivity.csv"];

/// A repeated evaluation.
struct Made<'a> {
    rows: &'a [Row],
    page: Page,
    /// The table of the rows, and the tables of the other files.
    table: Table,
    tables: Vec<(&'static str, Table)>,
    /// Each figure's file, as SVG.
    figures: Vec<(&'static str, String)>,
}

/// `larder reproduce pelican`.
pub fn pelican(options: &Evaluation) -> anyhow::Result<()> {
    let (_, rack) = server::data_dir::read_rack("pelican")?;
    let dir = report_dir(options, &PELICAN_TABLES, &pelican::FIGURES)?;
    let progress = RunProgress::new("runs")?;
    let advance = |done, of| progress.reached(done, of);
    let made = pelican::Reproduction::of(pelican::Runs::new(&rack, options.quick, threads(options.threads), &advance)?);
    progress.end();
    let of = Made {
        rows: &made.rows,
        page: made.page(&asked()),
        table: made.table(),
        tables: PELICAN_TABLES.into_iter().zip([made.points(), made.fills()]).collect(),
        figures: made.figures.iter().map(|drawn| (drawn.name, drawn.figure.svg())).collect(),
    };
    give(options, dir.as_ref(), &of)
}

/// `larder reproduce pelican --calibrations [NAME]`.
pub fn calibrations(options: &Evaluation, name: &str) -> anyhow::Result<()> {
    let (_, rack) = server::data_dir::read_rack("pelican")?;
    let wanted = |one: &&pelican::Calibration| name.is_empty() || one.name == name;
    let others: Vec<&pelican::Calibration> = pelican::OTHERS.iter().filter(wanted).collect();
    if others.is_empty() {
        let known: Vec<&str> = pelican::OTHERS.iter().map(|one| one.name).collect();
        anyhow::bail!("there is no calibration {name:?}; write one of {}", known.join(", "));
    }
    let run = |calibration, like: Option<&pelican::Runs>| {
        let form = pelican::Form { quick: true, seeds: pelican::SEEDS.len(), calibration, like };
        let progress = RunProgress::new("runs")?;
        let advance = |done, of| progress.reached(done, of);
        let runs = pelican::Runs::of(&rack, form, threads(options.threads), &advance)?;
        progress.end();
        anyhow::Ok(runs)
    };
    let shipped = run(&pelican::SHIPPED, None)?;
    let mut made = vec![(&pelican::SHIPPED, pelican::rows(&shipped))];
    for other in others {
        made.push((other, pelican::rows(&run(other, Some(&shipped))?)));
    }
    output::print(&pelican::compared(&made).csv())?;
    Ok(())
}

/// `larder reproduce partition`.
pub fn partition(options: &Evaluation) -> anyhow::Result<()> {
    let dir = report_dir(options, &PARTITION_TABLES, &partition::FIGURES)?;
    let progress = RunProgress::new("jobs")?;
    let advance = |done, of| progress.reached(done, of);
    let made = partition::Reproduction::of(partition::Runs::new(options.quick, threads(options.threads), &advance)?);
    progress.end();
    let of = Made {
        rows: &made.rows,
        page: made.page(&asked()),
        table: made.table(),
        tables: PARTITION_TABLES.into_iter().zip([made.points(), made.apart()]).collect(),
        figures: made.figures.iter().map(|drawn| (drawn.name, drawn.figure.svg())).collect(),
    };
    give(options, dir.as_ref(), &of)
}

/// `larder reproduce shifting`.
pub fn shifting(options: &Evaluation) -> anyhow::Result<()> {
    let dir = report_dir(options, &SHIFTING_TABLES, &shifting::FIGURES)?;
    let progress = RunProgress::new("runs")?;
    let advance = |done, of| progress.reached(done, of);
    let made = shifting::Reproduction::of(shifting::Runs::new(options.quick, threads(options.threads), &advance));
    progress.end();
    let of = Made {
        rows: &made.rows,
        page: made.page(&asked()),
        table: made.table(),
        tables: SHIFTING_TABLES.into_iter().zip([made.points()]).collect(),
        figures: made.figures.iter().map(|drawn| (drawn.name, drawn.figure.svg())).collect(),
    };
    give(options, dir.as_ref(), &of)
}

/// `larder reproduce soho`.
pub fn soho(options: &Evaluation) -> anyhow::Result<()> {
    let dir = report_dir(options, &SOHO_TABLES, &soho::FIGURES)?;
    let progress = RunProgress::new("runs")?;
    let advance = |done, of| progress.reached(done, of);
    let made = soho::Reproduction::of(soho::Runs::new(options.quick, threads(options.threads), &advance));
    progress.end();
    let of = Made {
        rows: &made.rows,
        page: made.page(&asked()),
        table: made.table(),
        tables: SOHO_TABLES.into_iter().zip([made.points(), made.sensitivity()]).collect(),
        figures: made.figures.iter().map(|drawn| (drawn.name, drawn.figure.svg())).collect(),
    };
    give(options, dir.as_ref(), &of)
}

/// `larder reproduce serviceable`.
pub fn serviceable(options: &Evaluation) -> anyhow::Result<()> {
    let dir = report_dir(options, &SERVICEABLE_TABLES, &serviceable::FIGURES)?;
    let progress = RunProgress::new("runs")?;
    let advance = |done, of| progress.reached(done, of);
    let made = serviceable::Reproduction::of(serviceable::Runs::new(options.quick, threads(options.threads), &advance));
    progress.end();
    let of = Made {
        rows: &made.rows,
        page: made.page(&asked()),
        table: made.table(),
        tables: SERVICEABLE_TABLES.into_iter().zip([made.points(), made.sensitivity()]).collect(),
        figures: made.figures.iter().map(|drawn| (drawn.name, drawn.figure.svg())).collect(),
    };
    give(options, dir.as_ref(), &of)
}

fn report_dir(
    options: &Evaluation,
    tables: &[&'static str],
    figures: &[&'static str],
) -> anyhow::Result<Option<ReportDir>> {
    let files: Vec<&str> = FILES.iter().chain(tables).chain(figures).copied().collect();
    options.out.as_deref().map(|path| ReportDir::make(path, files)).transpose()
}

/// The command line, and the version.
pub fn asked() -> String {
    format!("{}\n(larder {})", command(), env!("CARGO_PKG_VERSION"))
}

/// Writes the report, if there is a directory for it, and prints the rows.
fn give(options: &Evaluation, dir: Option<&ReportDir>, made: &Made<'_>) -> anyhow::Result<()> {
    if let Some(dir) = dir {
        write(dir, made)?;
    }
    if options.json {
        return output::print_json(&snapshot(made.rows));
    }
    output::print(&shown(made.rows))?;
    if let Some(dir) = dir {
        output::print(&format!("\nThe report is {}\n", dir.path("report.html").display()))?;
    }
    Ok(())
}

fn snapshot(rows: &[Row]) -> Snapshot<'_> {
    Snapshot::of(rows, &command(), env!("CARGO_PKG_VERSION"))
}

fn write(dir: &ReportDir, made: &Made<'_>) -> anyhow::Result<()> {
    dir.clear()?;
    dir.write("report.html", &made.page.html())?;
    dir.write("rows.csv", &made.table.csv())?;
    dir.write("rows.json", &format!("{}\n", serde_json::to_string_pretty(&snapshot(made.rows))?))?;
    for (name, table) in &made.tables {
        dir.write(name, &table.csv())?;
    }
    for (name, svg) in &made.figures {
        dir.write(name, svg)?;
    }
    Ok(())
}

/// Maximum width of a text in a column; longer texts are shown below the table.
const WIDTH_MAX: usize = 24;

fn shown(rows: &[Row]) -> String {
    let head = ["row of the text", "paper", "ours", "deviation", "verdict"];
    let fits = |text: &str| text.chars().count() <= WIDTH_MAX;
    let cell = |text: &str| if fits(text) { text.to_owned() } else { "see below".to_owned() };
    let line = |row: &Row| {
        [row.what, &cell(&row.paper), &cell(&row.ours), &row.differs, row.verdict.words()]
            .map(ToOwned::to_owned)
            .to_vec()
    };
    let mut text = format!("{}.\n\n", findings(rows));
    text.push_str(&table(&head, &head[1..4], rows.iter().map(line)));
    text.push_str("\nTo know about them:\n");
    for row in rows {
        let long =
            [("the text: ", &row.paper), ("ours: ", &row.ours)].into_iter().filter(|(_, message)| !fits(message));
        let mut message: Vec<String> = long.map(|(whose, message)| format!("{whose}{message}")).collect();
        message.extend((!row.note.is_empty()).then(|| row.note.clone()));
        if !message.is_empty() {
            let _ = writeln!(text, "- {}: {}.", row.what, message.join("; "));
        }
    }
    text.push_str("\nHow rows are judged:\n");
    for rule in rules() {
        let _ = writeln!(text, "- {rule}");
    }
    let _ = writeln!(text, "\n{}; {}.", findings(rows), others(rows));
    text
}
