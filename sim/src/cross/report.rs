//! A cross-validation as a table, and as a page with figures.

use super::cases::PELICAN_FIGURES;
use super::columns::Measure;
use super::comparison::{Compared, Comparison, Estimate};
use super::trace::Feed;
use crate::report::{Axis, Cell, Column, ColumnOf, Figure, Mark, Page, Panel, Section, Series, Style, Table};
use crate::reproduce::NamedFigure;

const ABOUT: &str = "The same reads, at the same moments and of the same blobs, through the simulator and through the \
                     server's own interpreter over an emulated rack in virtual time, below HTTP. Both columns are \
                     measured by the same rules.";

/// The rule of the verdicts, for readers.
pub const RULE: &str = "A row agrees if the server's mean is within 5 % of the simulator's (a percentage: within 2 \
                        points), or if the 95 % confidence intervals of the two means over the seeds overlap.";

/// All rows as a table.
pub fn table(comparison: &Comparison) -> Table {
    let (words, numbers) = (Column::words, Column::numbers);
    let columns: &[ColumnOf<Compared>] = &[
        (words("load", "case"), |row| Cell::words(&*row.case)),
        (words("measure", "measure"), |row| Cell::words(row.measure.name())),
        (numbers("simulator", "simulator"), |row| Cell::number(row.simulator.mean)),
        (numbers("+- 95 %", "simulator_ci95"), |row| Cell::maybe(row.simulator.half)),
        (numbers("server", "server"), |row| Cell::number(row.server.mean)),
        (numbers("+- 95 %", "server_ci95"), |row| Cell::maybe(row.server.half)),
        (numbers("deviation", "deviation"), |row| Cell::Number { value: row.deviation, shown: row.differs() }),
        (words("verdict", "verdict"), |row| Cell::verdict(row.agrees, row.verdict())),
    ];
    Table::of(&comparison.rows, columns)
}

impl Compared {
    /// The deviation in words.
    pub fn differs(&self) -> String {
        match self.measure {
            Measure::Refused => format!("{:+.1} points", self.deviation),
            _ => format!("{:+.1} %", self.deviation * 100.0),
        }
    }

    /// The verdict in words.
    pub fn verdict(&self) -> &'static str {
        if self.agrees { "agrees" } else { "differs" }
    }
}

impl Comparison {
    /// The figures, in the order of [`PELICAN_FIGURES`]: bursts as in the paper's figure 4, and rates.
    pub fn figures(&self) -> Vec<NamedFigure> {
        let shown = [Measure::Throughput, Measure::Completion, Measure::FirstByte, Measure::Service];
        let bursts = self.figure("Bursts of reads over 60 s on the prototype", &shown, true);
        let shown = [shown.as_slice(), &[Measure::SpinUps, Measure::Power]].concat();
        let rates = self.figure("Poisson loads on the whole rack", &shown, false);
        PELICAN_FIGURES.into_iter().zip([bursts, rates]).map(|(name, figure)| NamedFigure { name, figure }).collect()
    }

    fn figure(&self, title: &str, measures: &[Measure], bursts: bool) -> Figure {
        let panel = |measure: &Measure| {
            let marks = |of: fn(&Compared) -> Estimate| {
                let rows = self.rows.iter().filter(|row| row.measure == *measure && row.is_burst == bursts);
                let mark = |row: &Compared| {
                    let found = of(row);
                    let spread = found.half.map(|half| (found.mean - half, found.mean + half));
                    Mark { spread, ..Mark::from((row.load, found.mean)) }
                };
                rows.filter(|row| row.feed == Feed::PayloadLeftOut).map(mark).collect::<Vec<_>>()
            };
            let x = Axis::log(if bursts { "reads of the burst" } else { "reads a second" });
            let loads: Vec<f64> = marks(|row| row.simulator).iter().map(|mark| mark.x).collect();
            let series = |name: &str, style, marks| Series { name: name.to_owned(), marks, style };
            let both = vec![
                series("server", Style::Line, marks(|row| row.server)),
                series("simulator", Style::Reference, marks(|row| row.simulator)),
            ];
            Panel::new(measure.name(), x.ticks(loads), Axis::linear(measure.name()), both)
        };
        Figure::new(title, 2, measures.iter().map(panel).collect())
    }
}

/// Everything on one page. `command` is the command that makes the page.
pub fn page(comparison: &Comparison, command: &str) -> Page {
    let mut sections = vec![
        Section::Words(ABOUT.to_owned()),
        Section::Verbatim(command.to_owned()),
        Section::Words(format!("{} of {} rows agree. {RULE}", comparison.agreeing(), comparison.rows.len())),
    ];
    sections.extend(comparison.figures().into_iter().map(|named| Section::Figure(named.figure)));
    sections.push(Section::Table(table(comparison)));
    Page { title: "The simulator and the server, cross-validated".to_owned(), sections }
}
