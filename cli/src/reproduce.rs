//! `larder reproduce`: a paper's evaluation, run again.

use crate::args::Evaluation;
use crate::human::table;
use crate::output;
use crate::report_dir::ReportDir;
use crate::simulate::{Progress, command, threads};
use sim::reproduce::judge::{RULES, Row};
use sim::reproduce::pelican::{Extent, FIGURES, Reproduction};
use std::fmt::Write;

/// The files of a report, beside its figures.
const FILES: [&str; 5] = ["report.html", "rows.csv", "rows.json", "points.csv", "fills.csv"];

/// `larder reproduce pelican`.
pub fn pelican(options: &Evaluation) -> anyhow::Result<()> {
    let (_, rack) = server::data_dir::read_rack("pelican")?;
    let files = FILES.into_iter().chain(FIGURES).collect();
    let dir = options.out.as_deref().map(|path| ReportDir::make(path, files)).transpose()?;
    let extent = if options.quick { Extent::Quick } else { Extent::Full };
    let progress = Progress::new("runs")?;
    let made = Reproduction::new(rack, extent, threads(options.threads), &|done, of| progress.reached(done, of))?;
    progress.end();
    if let Some(dir) = &dir {
        write(dir, &made)?;
    }
    if options.json {
        return output::print_json(&made.rows);
    }
    output::print(&shown(&made))?;
    if let Some(dir) = &dir {
        output::print(&format!("\nThe report is {}\n", dir.path("report.html").display()))?;
    }
    Ok(())
}

fn write(dir: &ReportDir, made: &Reproduction) -> anyhow::Result<()> {
    let command = format!("{}\n(larder {})", command(), env!("CARGO_PKG_VERSION"));
    dir.clear()?;
    dir.write("report.html", &made.page(&command).html())?;
    dir.write("rows.csv", &made.table().csv())?;
    dir.write("rows.json", &format!("{}\n", serde_json::to_string_pretty(&made.rows)?))?;
    dir.write("points.csv", &made.points().csv())?;
    dir.write("fills.csv", &made.fills().csv())?;
    for drawn in &made.figures {
        dir.write(drawn.name, &drawn.plate.svg())?;
    }
    Ok(())
}

/// The longest that is shown in a column: the rest stands below the table.
const WIDTH_MAX: usize = 24;

fn shown(made: &Reproduction) -> String {
    let head = ["row of the text", "paper", "ours", "deviation", "verdict"];
    let fits = |text: &str| text.chars().count() <= WIDTH_MAX;
    let cell = |text: &str| if fits(text) { text.to_owned() } else { "see below".to_owned() };
    let line = |row: &Row| {
        [row.what, &cell(&row.paper), &cell(&row.ours), &row.differs, row.verdict.words()]
            .map(ToOwned::to_owned)
            .to_vec()
    };
    let rows: Vec<Vec<String>> = made.rows.iter().map(line).collect();
    let mut text = table(&head, &head[1..4], &rows);
    text.push_str("\nTo know about them:\n");
    for row in &made.rows {
        let long = [("the text: ", &row.paper), ("ours: ", &row.ours)].into_iter().filter(|(_, told)| !fits(told));
        let mut told: Vec<String> = long.map(|(whose, told)| format!("{whose}{told}")).collect();
        told.extend((!row.note.is_empty()).then(|| row.note.clone()));
        if !told.is_empty() {
            let _ = writeln!(text, "- {}: {}.", row.what, told.join("; "));
        }
    }
    text.push_str("\nHow rows are judged:\n");
    for rule in RULES {
        let _ = writeln!(text, "- {rule}");
    }
    let _ = writeln!(text, "\n{} rows: {}.", made.rows.len(), made.summary());
    text
}
