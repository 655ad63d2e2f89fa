//! Rows of a paper's evaluation: a claim of its text, our result, the deviation, and a verdict.
//!
//! The verdicts follow from the claim and the measurement alone, by the rules in [`RULES`]; none is written down by
//! hand, except that a row may say that the text contradicts itself (with the arithmetic), or that nothing can be
//! judged (with the reason).

use crate::report::{Cell, Column, ColumnOf, Table, short};
use serde::Serialize;

/// The largest deviation with which a number is met, as a share of the text's.
pub const NEAR: f64 = 0.05;

/// The largest deviation with which a percentage is met, in points.
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
    };
}
pub(crate) use claims;

/// The content of a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Says {
    /// A number.
    Number(f64),
    /// An upper bound.
    AtMost(f64),
    /// A lower bound.
    AtLeast(f64),
    /// A range.
    Between(f64, f64),
    /// A course along a sweep, in words.
    Course(&'static str),
}

/// The unit of a number.
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

    /// A number of ours, with the digits that suit its unit.
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

    /// A number of the text, with the digits that it has there.
    fn quoted(self, value: f64) -> String {
        format!("{value}{}", self.suffix())
    }
}

/// A claim of the text: one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Its short name, for programs and tests.
    pub id: &'static str,
    /// Its subject.
    pub what: &'static str,
    /// Its place in the text, or its derivation.
    pub place: &'static str,
    /// Its content.
    pub says: Says,
    /// The unit of its numbers.
    pub unit: Unit,
}

/// The verdict of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Our result agrees with the text.
    Met,
    /// It agrees because it was calibrated to.
    Calibrated,
    /// It agrees whatever is simulated, since it follows from the input.
    ByConstruction,
    /// It does not agree.
    Missed,
    /// The text contradicts itself here.
    Contradiction,
    /// There is nothing to judge by.
    Open,
}

impl Verdict {
    /// The verdict in words.
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
    /// Its subject.
    pub what: &'static str,
    /// Its place in the text.
    pub place: &'static str,
    /// The number of the text.
    pub paper: String,
    /// Our result.
    pub ours: String,
    /// Our result as a number, if it is one.
    pub ours_value: Option<f64>,
    /// The unit.
    pub unit: Unit,
    /// The deviation of our result: as a share of the text's number, or in points of a percentage.
    pub deviation: Option<f64>,
    /// The deviation in words.
    pub differs: String,
    /// The verdict.
    pub verdict: Verdict,
    /// A note for readers: arithmetic, reasons.
    pub note: String,
}

impl Claim {
    /// The row in which our result is `ours`.
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

    /// The row of a course that our results follow, or not; `seen` describes them.
    pub fn seen(&self, goes: bool, seen: String) -> Row {
        assert!(matches!(self.says, Says::Course(_)), "a number is measured, not seen: {}", self.id);
        self.row(seen, String::new(), if goes { Verdict::Met } else { Verdict::Missed })
    }

    /// The row of a claim that cannot be judged.
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
            Says::Number(number) => self.unit.quoted(number),
            Says::AtMost(0.0) => "none".to_owned(),
            Says::AtMost(most) => format!("at most {}", self.unit.quoted(most)),
            Says::AtLeast(least) => format!("at least {}", self.unit.quoted(least)),
            Says::Between(least, most) => format!("{least} to {}", self.unit.quoted(most)),
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

    /// The row with another verdict if it is met: one that is missed stays missed, whatever the reason to meet it.
    #[must_use]
    pub fn if_met(self, verdict: Verdict) -> Self {
        let verdict = if self.verdict == Verdict::Met { verdict } else { self.verdict };
        Self { verdict, ..self }
    }
}

/// All rows as a table.
pub fn table(rows: &[Row]) -> Table {
    let words = Column::words;
    let right = |name| Column { right: true, ..words(name, name) };
    let columns: &[ColumnOf<Row>] = &[
        (words("row of the text", "row"), |row| Cell::words(row.what)),
        (words("where", "where"), |row| Cell::words(row.place)),
        (right("paper"), |row| Cell::words(&*row.paper)),
        (right("ours"), |row| Cell::words(&*row.ours)),
        (right("deviation"), |row| Cell::words(&*row.differs)),
        (words("verdict", "verdict"), |row| match row.verdict {
            Verdict::Met | Verdict::Calibrated => Cell::verdict(true, row.verdict.words()),
            Verdict::Missed => Cell::verdict(false, row.verdict.words()),
            _ => Cell::words(row.verdict.words()),
        }),
        (words("note", "note"), |row| Cell::words(&*row.note)),
    ];
    Table::of(rows, columns)
}

/// The number of rows of each verdict: `31 met, 2 met (calibrated), 9 missed, ...`.
pub fn summary(rows: &[Row]) -> String {
    use Verdict::{ByConstruction, Calibrated, Contradiction, Met, Missed, Open};
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let kinds = [Met, Calibrated, ByConstruction, Missed, Contradiction, Open].into_iter();
    let kinds = kinds.filter(|verdict| count(*verdict) > 0);
    kinds.map(|verdict| format!("{} {}", count(verdict), verdict.words())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::{partition, pelican};

    #[test]
    fn every_claim_has_a_name_of_its_own_and_a_place() {
        for all in [partition::CLAIMS, pelican::CLAIMS] {
            for (index, claim) in all.iter().enumerate() {
                assert!(all[..index].iter().all(|other| other.id != claim.id), "{}", claim.id);
                assert!(!claim.place.is_empty() && !claim.what.is_empty());
            }
        }
    }

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
        assert_eq!(number.judge(14.3).if_met(Verdict::Calibrated).verdict, Verdict::Calibrated);
        assert_eq!(number.judge(19.0).if_met(Verdict::Calibrated).verdict, Verdict::Missed);
        assert_eq!(number.judge(14.3).if_met(Verdict::ByConstruction).verdict, Verdict::ByConstruction);
        assert_eq!(number.judge(19.0).if_met(Verdict::ByConstruction).verdict, Verdict::Missed);
    }

    #[test]
    fn the_summary_counts_every_row_once() {
        let number = claim(Says::Number(1.0), Unit::Times);
        let rows = [number.judge(1.0), number.judge(2.0), number.judge(2.0), number.open(String::new(), "why")];
        assert_eq!(summary(&rows), "1 met, 2 missed, 1 no verdict");
        assert_eq!(table(&rows).rows.len(), 4);
    }
}
