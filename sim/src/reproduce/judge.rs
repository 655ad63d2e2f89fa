//! Rows of a paper's evaluation: what its text says, what comes out here, by how much it differs, and a verdict.
//!
//! The verdicts follow from the claim and the measurement alone, by the rules in [`RULES`]; none is written down by
//! hand, except that a row may say that the text contradicts itself (with the arithmetic), or that nothing can be
//! judged (with the reason).

use crate::report::{Cell, Column, Table, short};
use serde::Serialize;

/// How far a number may be off and be met, as a share of the text's.
pub const NEAR: f64 = 0.05;

/// How many points a percentage may be off at most and be met.
pub const NEAR_POINTS: f64 = 2.0;

/// The rules of the verdicts, for readers.
pub const RULES: [&str; 7] = [
    "A number is met if ours is within 5 % of the text's; a percentage, if it is within 2 points, and within half of \
     what it is away from 0 and from 100 %. Otherwise the row is missed, by what stands under deviation.",
    "A bound is met if ours keeps it, without allowance. The deviation is how far beyond or within the bound ours is.",
    "A course (rises, falls) is met if every step of the sweep goes that way; steps of less than 1 % go no way. What \
     stays (a plateau, constant, no impact) may differ by 5 % between its least and greatest; throughput, by 2 %.",
    "A row that was used to calibrate says so: it is met because of it, and predicts nothing.",
    "A row that holds by construction says so: it is arithmetic on what was put in, and no simulation could miss it.",
    "Where the text contradicts itself, the row has the arithmetic and no other verdict. Rows that follow from one of \
     the two sides are still met or missed, and name the contradiction.",
    "No verdict: the text's number depends on a distribution that did not survive, or its figure has no number in \
     words.",
];

/// A paper's claims as constants by name, and all of them in the order of its text for tests.
macro_rules! claims {
    ($($name:ident: $what:literal, $place:literal, $says:expr, $unit:expr;)*) => {
        $(
            #[doc = $what]
            pub const $name: $crate::reproduce::judge::Claim = $crate::reproduce::judge::Claim {
                id: stringify!($name),
                what: $what,
                place: $place,
                says: $says,
                unit: $unit,
            };
        )*

        /// All of them, in the order of the text.
        #[cfg(test)]
        pub const ALL: &[$crate::reproduce::judge::Claim] = &[$($name),*];

        #[cfg(test)]
        mod tests {
            #[test]
            fn every_claim_has_a_name_of_its_own_and_a_place() {
                for (index, claim) in super::ALL.iter().enumerate() {
                    assert!(super::ALL[..index].iter().all(|other| other.id != claim.id), "{}", claim.id);
                    assert!(!claim.place.is_empty() && !claim.what.is_empty());
                }
            }
        }
    };
}
pub(crate) use claims;

/// What the text says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Says {
    /// It is this.
    Number(f64),
    /// It is no more than this.
    AtMost(f64),
    /// It is no less than this.
    AtLeast(f64),
    /// It is from this to that.
    Between(f64, f64),
    /// It goes this way.
    Course(&'static str),
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Hundredths: differences are in points.
    Percent,
    /// Seconds.
    Seconds,
    /// Hours.
    Hours,
    /// 10^9 bits a second.
    Gbit,
    /// Requests a second.
    PerSecond,
    /// 10^9 bytes.
    Gigabytes,
    /// 10^12 bytes.
    Terabytes,
    /// Kilowatts.
    Kilowatts,
    /// A ratio.
    Times,
    /// Things that are counted.
    Count,
}

impl Unit {
    fn suffix(self) -> &'static str {
        match self {
            Self::Percent => " %",
            Self::Seconds => " s",
            Self::Hours => " h",
            Self::Gbit => " Gb/s",
            Self::PerSecond => "/s",
            Self::Gigabytes => " GB",
            Self::Terabytes => " TB",
            Self::Kilowatts => " kW",
            Self::Times => "x",
            Self::Count => "",
        }
    }

    /// A number of ours, in as many digits as its unit needs.
    fn shown(self, value: f64) -> String {
        let number = match self {
            // As many digits as the text has: 99.998 %.
            Self::Percent if value > 90.0 && value < 100.0 => format!("{value:.3}"),
            Self::Percent if value > 0.0 => format!("{value:.1}"),
            Self::Kilowatts | Self::Times => format!("{value:.2}"),
            Self::Gbit | Self::Seconds | Self::Hours | Self::Terabytes if value >= 10.0 => format!("{value:.1}"),
            _ => short(value),
        };
        number + self.suffix()
    }

    /// A number of the text, in the digits that it has there.
    fn told(self, value: f64) -> String {
        format!("{value}{}", self.suffix())
    }
}

/// A claim of the text: one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Its short name, for programs and tests.
    pub id: &'static str,
    /// What it is about.
    pub what: &'static str,
    /// Where the text says it, or what it is derived from.
    pub place: &'static str,
    /// What it says.
    pub says: Says,
    /// What its numbers count.
    pub unit: Unit,
}

/// How a row ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Ours is as the text says.
    Met,
    /// It is so because it was calibrated to be.
    Calibrated,
    /// It is so whatever is simulated: it follows from what was put in.
    ByConstruction,
    /// It is not.
    Missed,
    /// The text contradicts itself here.
    Contradiction,
    /// Nothing can be judged.
    Open,
}

impl Verdict {
    /// As people read it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Calibrated => "met (calibrated)",
            Self::ByConstruction => "by construction",
            Self::Missed => "missed",
            Self::Contradiction => "the text contradicts itself",
            Self::Open => "no verdict",
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its short name.
    pub id: &'static str,
    /// What it is about.
    pub what: &'static str,
    /// Where the text says it.
    pub place: &'static str,
    /// What the text says.
    pub paper: String,
    /// What comes out here.
    pub ours: String,
    /// The number of it, if it is one.
    pub ours_value: Option<f64>,
    /// What it counts.
    pub unit: Unit,
    /// By how much ours differs: as a share of the text's number, or in points of a percentage.
    pub deviation: Option<f64>,
    /// The same for people.
    pub differs: String,
    /// How it ends.
    pub verdict: Verdict,
    /// What a reader should know: arithmetic, reasons.
    pub note: String,
}

impl Claim {
    /// The row in which ours is `ours`.
    pub fn judge(&self, ours: f64) -> Row {
        let off = |from: f64| match self.unit {
            Unit::Percent => ours - from,
            _ => ours / from - 1.0,
        };
        let near = |number: f64| match self.unit {
            // Further from it would be as near to none or to all.
            Unit::Percent => NEAR_POINTS.min(number.abs() / 2.0).min((100.0 - number).abs() / 2.0),
            _ => NEAR,
        };
        let (deviation, met) = match self.says {
            Says::Number(number) => (Some(off(number)), off(number).abs() <= near(number)),
            Says::AtMost(most) => (Some(off(most)), ours <= most),
            Says::AtLeast(least) => (Some(off(least)), ours >= least),
            Says::Between(least, _) if ours < least => (Some(off(least)), false),
            Says::Between(_, most) if ours > most => (Some(off(most)), false),
            Says::Between(..) => (Some(0.0), true),
            Says::Course(_) => (None, false),
        };
        assert!(!matches!(self.says, Says::Course(_)), "a course is seen, not measured: {}", self.id);
        let deviation = deviation.filter(|deviation| deviation.is_finite());
        let verdict = if met { Verdict::Met } else { Verdict::Missed };
        Row { ours_value: Some(ours), deviation, ..self.row(self.unit.shown(ours), self.differs(deviation), verdict) }
    }

    /// The row of a course that was seen to go that way, or not; `seen` says how.
    pub fn seen(&self, goes: bool, seen: String) -> Row {
        assert!(matches!(self.says, Says::Course(_)), "a number is measured, not seen: {}", self.id);
        self.row(seen, String::new(), if goes { Verdict::Met } else { Verdict::Missed })
    }

    /// The row of something about which nothing can be judged.
    pub fn open(&self, ours: String, why: &str) -> Row {
        self.row(ours, String::new(), Verdict::Open).noted(why)
    }

    /// The row of a contradiction, with its arithmetic.
    pub fn contradiction(&self, ours: String, arithmetic: String) -> Row {
        Row { note: arithmetic, ..self.row(ours, String::new(), Verdict::Contradiction) }
    }

    fn row(&self, ours: String, differs: String, verdict: Verdict) -> Row {
        Row {
            id: self.id,
            what: self.what,
            place: self.place,
            paper: self.paper(),
            ours,
            ours_value: None,
            unit: self.unit,
            deviation: None,
            differs,
            verdict,
            note: String::new(),
        }
    }

    fn paper(&self) -> String {
        match self.says {
            Says::Number(number) => self.unit.told(number),
            Says::AtMost(0.0) => "none".to_owned(),
            Says::AtMost(most) => format!("at most {}", self.unit.told(most)),
            Says::AtLeast(least) => format!("at least {}", self.unit.told(least)),
            Says::Between(least, most) => format!("{least} to {}", self.unit.told(most)),
            Says::Course(words) => words.to_owned(),
        }
    }

    fn differs(&self, deviation: Option<f64>) -> String {
        match (deviation, self.unit) {
            (None, _) => String::new(),
            (Some(points), Unit::Percent) => format!("{points:+.1} points"),
            (Some(share), _) => format!("{:+.1} %", share * 100.0),
        }
    }
}

impl Row {
    /// The row with a note.
    #[must_use]
    pub fn noted(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// The row of what follows from what was put in; one that is missed all the same stays missed.
    #[must_use]
    pub fn by_construction(self) -> Self {
        let verdict = if self.verdict == Verdict::Met { Verdict::ByConstruction } else { self.verdict };
        Self { verdict, ..self }
    }

    /// The row of what was calibrated; one that is missed all the same stays missed.
    #[must_use]
    pub fn calibrated(self) -> Self {
        let verdict = if self.verdict == Verdict::Met { Verdict::Calibrated } else { self.verdict };
        Self { verdict, ..self }
    }
}

/// All rows as a table.
pub fn table(rows: &[Row]) -> Table {
    let words = Column::words;
    let mut table = Table::new(vec![
        words("row of the text", "row"),
        words("where", "where"),
        Column { right: true, ..words("paper", "paper") },
        Column { right: true, ..words("ours", "ours") },
        Column { right: true, ..words("deviation", "deviation") },
        words("verdict", "verdict"),
        words("note", "note"),
    ]);
    for row in rows {
        let verdict = match row.verdict {
            Verdict::Met | Verdict::Calibrated => Cell::verdict(true, row.verdict.words()),
            Verdict::Missed => Cell::verdict(false, row.verdict.words()),
            _ => Cell::words(row.verdict.words()),
        };
        let cells = [row.what, row.place, &row.paper, &row.ours, &row.differs].map(Cell::words);
        table.push(cells.into_iter().chain([verdict, Cell::words(&*row.note)]).collect());
    }
    table
}

/// How many rows end how: `31 met, 2 met (calibrated), 9 missed, ...`.
pub fn summary(rows: &[Row]) -> String {
    use Verdict::{ByConstruction, Calibrated, Contradiction, Met, Missed, Open};
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let kinds = [Met, Calibrated, ByConstruction, Missed, Contradiction, Open].into_iter();
    let told =
        kinds.filter(|verdict| count(*verdict) > 0).map(|verdict| format!("{} {}", count(verdict), verdict.words()));
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn claim(says: Says, unit: Unit) -> Claim {
        Claim { id: "id", what: "what", place: "5", says, unit }
    }

    #[test]
    fn numbers_are_met_within_five_percent_and_percentages_within_two_points() {
        let number = claim(Says::Number(100.0), Unit::Gbit);
        assert_eq!(number.judge(104.9).verdict, Verdict::Met);
        let missed = number.judge(94.0);
        assert_eq!((missed.verdict, &*missed.differs), (Verdict::Missed, "-6.0 %"));
        let share = claim(Says::Number(21.0), Unit::Percent);
        assert_eq!(share.judge(22.9).verdict, Verdict::Met);
        let missed = share.judge(27.5);
        assert_eq!((missed.verdict, &*missed.differs), (Verdict::Missed, "+6.5 points"));
    }

    #[test]
    fn a_percentage_near_its_end_is_not_met_by_the_end_itself() {
        let marginally = claim(Says::Number(1.0), Unit::Percent);
        assert_eq!(
            [0.0, 0.6, 1.4, 2.9].map(|ours| marginally.judge(ours).verdict == Verdict::Met),
            [false, true, true, false]
        );
        let nearly_all = claim(Says::Number(99.998), Unit::Percent);
        assert_eq!(
            [98.5, 99.9975, 100.0].map(|ours| nearly_all.judge(ours).verdict == Verdict::Met),
            [false, true, false]
        );
    }

    #[test]
    fn bounds_have_no_allowance() {
        assert_eq!(claim(Says::AtMost(0.7), Unit::Gbit).judge(0.701).verdict, Verdict::Missed);
        assert_eq!(claim(Says::AtMost(0.0), Unit::Percent).judge(0.0).verdict, Verdict::Met);
        assert_eq!(claim(Says::AtLeast(10.0), Unit::Times).judge(9.9).verdict, Verdict::Missed);
        let between = claim(Says::Between(3.6, 4.1), Unit::Times);
        assert_eq!(between.judge(3.27).verdict, Verdict::Missed);
        assert_eq!(between.judge(3.27).differs, "-9.2 %");
        assert_eq!(between.judge(4.0).verdict, Verdict::Met);
    }

    #[test]
    fn calibrating_saves_no_row_that_is_missed() {
        let number = claim(Says::Number(14.2), Unit::Seconds);
        assert_eq!(number.judge(14.3).calibrated().verdict, Verdict::Calibrated);
        assert_eq!(number.judge(19.0).calibrated().verdict, Verdict::Missed);
        assert_eq!(number.judge(14.3).by_construction().verdict, Verdict::ByConstruction);
        assert_eq!(number.judge(19.0).by_construction().verdict, Verdict::Missed);
    }

    #[test]
    fn the_summary_counts_every_row_once() {
        let number = claim(Says::Number(1.0), Unit::Times);
        let rows = [number.judge(1.0), number.judge(2.0), number.judge(2.0), number.open(String::new(), "why")];
        assert_eq!(summary(&rows), "1 met, 2 missed, 1 no verdict");
        assert_eq!(table(&rows).rows.len(), 4);
    }
}
