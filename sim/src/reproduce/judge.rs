//! Rows of a paper's evaluation: a claim of its text, our result, the deviation, and a verdict.
//!
//! The verdicts follow only from the claim, its [`Basis`] and the measurement, by the [`rules`]. None is written by
//! hand, with two exceptions: a row may state that the text contradicts itself (with the arithmetic), or that it cannot
//! be judged (with the reason).
//!
//! Invariants: a claim that cannot miss is never a finding; the rules for readers take their numbers from the constants
//! in the code.

mod sample;

pub use sample::{Followed, Sample};

use crate::report::{Cell, Column, ColumnOf, Table, short};
use crate::reproduce::sweep::STEP;
use serde::Serialize;

/// The largest deviation at which a number is met, as a share of the text's number.
pub const NEAR: f64 = 0.05;

/// The largest deviation at which a percentage is met, in points.
pub const NEAR_POINTS: f64 = 2.0;

/// The largest excess of the greatest value over the least in a level sweep, as a share.
pub const LEVEL: f64 = 0.05;

/// The same for throughput, which is an average over many requests.
pub const LEVEL_THROUGHPUT: f64 = 0.02;

/// The rules of the verdicts, for readers.
pub fn rules() -> [String; 9] {
    let [near, level, level_throughput, step] =
        [NEAR, LEVEL, LEVEL_THROUGHPUT, STEP].map(|share| format!("{} %", short(share * 100.0)));
    [
        "A finding is a row that could have come out otherwise. Only findings are counted on top.".to_owned(),
        format!(
            "A number is met if ours is within {near} of the text's; a percentage, if it is within {NEAR_POINTS} \
             points, and within half of what it is away from 0 and from 100 %. The deviation is that of our mean."
        ),
        "Ours is a mean over the seeds with its 95 % confidence interval (Student's t). The row is met if the whole \
         interval is within what the text allows, missed if all of it is beyond, and undecided if it reaches across. A \
         row without randomness has no interval; nor has the quick form, which has one seed."
            .to_owned(),
        "A bound is met if the whole interval is within it, without allowance. \"None\" is missed if any run has any. \
         The deviation is the distance of ours from the bound, beyond or within it."
            .to_owned(),
        format!(
            "A course (rises, falls) is met if every step of the sweep goes that way; steps of less than {step} count \
             as level. A value that stays (a plateau, constant, no impact, linear) may differ by {level} between its \
             least and greatest; throughput, by {level_throughput}. It is met if it goes so with every seed, missed if \
             with none, and undecided otherwise."
        ),
        "By construction: arithmetic on what was put in or on another row, a cap that was configured, a reading that \
         ends the command instead of missing. No simulation could miss it."
            .to_owned(),
        "Calibrated: it was used to set what the text leaves open, or is arithmetic on what was. It predicts nothing."
            .to_owned(),
        "Open: the text's number depends on a distribution that did not survive, or its figure has no number in \
         words; it is a second reading of a row that missed; or it is no claim of the paper."
            .to_owned(),
        "Where the text contradicts itself, the row has the arithmetic and no other verdict. Rows that follow from \
         one of the two sides are still met or missed, and name the contradiction."
            .to_owned(),
    ]
}

/// A paper's claims as constants by name, and for tests all of them in the order of its text. A claim without a stated
/// basis is a finding.
macro_rules! claims {
    (@basis) => { $crate::reproduce::judge::Basis::Finding };
    (@basis $basis:expr) => { $basis };
    ($($name:ident: $what:literal, $place:literal, $says:expr, $unit:expr $(, $basis:expr)?;)*) => {
        $(
            #[doc = $what]
            pub const $name: $crate::reproduce::judge::Claim = $crate::reproduce::judge::Claim {
                id: stringify!($name),
                what: $what,
                place: $place,
                says: $says,
                unit: $unit,
                basis: $crate::reproduce::judge::claims!(@basis $($basis)?),
            };
        )*

        /// All claims, in the order of the text.
        #[cfg(test)]
        pub const ALL: &[$crate::reproduce::judge::Claim] = &[$($name),*];
    };
}
pub(crate) use claims;

/// The content of a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClaimContent {
    /// A number.
    Number(f64),
    /// An upper bound.
    AtMost(f64),
    /// A lower bound.
    AtLeast(f64),
    /// A range.
    Between(f64, f64),
    /// A trend along a sweep, in words.
    Course(&'static str),
}

/// The weight of a row that agrees with its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// It could have missed.
    Finding,
    /// It could not miss, for this reason.
    Constructed(&'static str),
    /// It was calibrated to, or follows from something that was; this explains how.
    Calibrated(&'static str),
    /// It is not judged, for this reason.
    Unjudged(&'static str),
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Percent: differences are in points.
    Percent,
    /// Seconds.
    Seconds,
    /// Hours.
    Hours,
    /// 10^6 bytes/s.
    Mbytes,
    /// 10^9 bits/s.
    Gbit,
    /// Requests per second.
    PerSecond,
    /// 10^9 bytes.
    Gigabytes,
    /// 10^12 bytes.
    Terabytes,
    /// Kilowatts.
    Kilowatts,
    /// Watts.
    Watts,
    /// Milliseconds.
    Milliseconds,
    /// A ratio.
    Times,
    /// A number of things.
    Count,
}

impl Unit {
    fn suffix(self) -> &'static str {
        match self {
            Self::Percent => " %",
            Self::Seconds => " s",
            Self::Hours => " h",
            Self::Mbytes => " MB/s",
            Self::Gbit => " Gb/s",
            Self::PerSecond => "/s",
            Self::Gigabytes => " GB",
            Self::Terabytes => " TB",
            Self::Kilowatts => " kW",
            Self::Watts => " W",
            Self::Milliseconds => " ms",
            Self::Times => "x",
            Self::Count => "",
        }
    }

    /// A number of ours with the digits that suit its unit, and with half the width of its interval.
    fn shown(self, value: f64, half: Option<f64>) -> String {
        let number = match self {
            // The same number of digits as in the text: 99.998 %.
            Self::Percent if value > 90.0 && value < 100.0 => format!("{value:.3}"),
            Self::Percent if value > 0.0 => format!("{value:.1}"),
            Self::Kilowatts | Self::Times => format!("{value:.2}"),
            Self::Mbytes | Self::Gbit | Self::Seconds | Self::Hours | Self::Terabytes | Self::Watts
                if value >= 10.0 =>
            {
                format!("{value:.1}")
            }
            _ => short(value),
        };
        number + &half.map(|half| format!(" ± {}", two_digits(half))).unwrap_or_default() + self.suffix()
    }

    /// A number of the text, with its digits there.
    fn quoted(self, value: f64) -> String {
        format!("{value}{}", self.suffix())
    }
}

/// Two significant digits, enough for the width of an interval.
fn two_digits(value: f64) -> String {
    let decimals = if value > 0.0 { 1 - value.log10().floor() as i32 } else { 0 };
    let decimals = usize::try_from(decimals).unwrap_or(0).min(6);
    if value >= 100.0 { short(value) } else { format!("{value:.decimals$}") }
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
    pub says: ClaimContent,
    /// The unit of its numbers.
    pub unit: Unit,
    /// The weight of an agreement.
    pub basis: Basis,
}

/// The verdict of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A finding: our result agrees with the text, and could have disagreed.
    Met,
    /// A finding: our result does not agree.
    Missed,
    /// A finding: the seeds do not decide.
    Undecided,
    /// It agrees because it was calibrated to.
    Calibrated,
    /// It agrees for any simulation result.
    ByConstruction,
    /// Nothing to judge by.
    Open,
    /// The text contradicts itself here.
    Contradiction,
}

impl Verdict {
    /// The verdicts of findings.
    pub const FINDINGS: [Self; 3] = [Self::Met, Self::Missed, Self::Undecided];
    /// The verdicts of all other rows.
    pub const OTHERS: [Self; 4] = [Self::Calibrated, Self::ByConstruction, Self::Open, Self::Contradiction];

    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
            Self::Calibrated => "calibrated",
            Self::ByConstruction => "by construction",
            Self::Open => "open",
            Self::Contradiction => "contradicted",
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
    /// Our result as a number, if it is a number: the mean over the seeds.
    pub ours_value: Option<f64>,
    /// Half the width of its 95 % confidence interval, if there are several seeds.
    pub ours_ci95: Option<f64>,
    /// The number of seeds; 1 if nothing is random.
    pub seeds: usize,
    /// The unit.
    pub unit: Unit,
    /// The deviation of our result, as a share of the text's number; for percentages, in points.
    pub deviation: Option<f64>,
    /// The deviation in words.
    pub differs: String,
    /// The verdict.
    pub verdict: Verdict,
    /// A note for readers: arithmetic, reasons.
    pub note: String,
}

impl Claim {
    /// The row for our result `ours`.
    pub fn judge(&self, ours: impl Into<Sample>) -> Row {
        let ours = ours.into();
        assert!(!ours.is_empty(), "{} was not measured", self.id);
        let (mean, half) = (ours.mean(), ours.half_width());
        let deviation = Some(self.deviation(mean)).filter(|deviation| deviation.is_finite());
        let row = self.row(self.unit.shown(mean, half), self.differs(deviation), self.verdict(&ours));
        Row { ours_value: Some(mean), ours_ci95: half, seeds: ours.len(), deviation, ..row }
    }

    /// The deviation of `ours` from the text's number, or from the nearer end of its range.
    fn deviation(&self, ours: f64) -> f64 {
        let off = |from: f64| match self.unit {
            Unit::Percent => ours - from,
            _ => ours / from - 1.0,
        };
        match self.says {
            ClaimContent::Number(number) => off(number),
            ClaimContent::AtMost(bound) | ClaimContent::AtLeast(bound) => off(bound),
            ClaimContent::Between(least, _) if ours < least => off(least),
            ClaimContent::Between(_, most) if ours > most => off(most),
            ClaimContent::Between(..) => 0.0,
            ClaimContent::Course(_) => panic!("a course is seen, not measured: {}", self.id),
        }
    }

    /// The range of results for which the claim is met.
    fn allowed(&self) -> (f64, f64) {
        match self.says {
            ClaimContent::Number(number) => {
                let near = match self.unit {
                    // A larger allowance would be as close to 0 or 100 %.
                    Unit::Percent => NEAR_POINTS.min(number.abs() / 2.0).min((100.0 - number).abs() / 2.0),
                    _ => number.abs() * NEAR,
                };
                (number - near, number + near)
            }
            ClaimContent::AtMost(most) => (f64::NEG_INFINITY, most),
            ClaimContent::AtLeast(least) => (least, f64::INFINITY),
            ClaimContent::Between(least, most) => (least, most),
            ClaimContent::Course(_) => panic!("a course is seen, not measured: {}", self.id),
        }
    }

    fn verdict(&self, ours: &Sample) -> Verdict {
        let ((low, high), (least, most)) = (ours.interval(), self.allowed());
        let none = self.says == ClaimContent::AtMost(0.0);
        if none && ours.values().iter().any(|value| *value > 0.0) || low.is_nan() {
            return Verdict::Missed;
        }
        self.worth(match (least <= low && high <= most, high < least || most < low) {
            (true, _) => Verdict::Met,
            (_, true) => Verdict::Missed,
            _ => Verdict::Undecided,
        })
    }

    /// The verdict of a row that would have the verdict `found` as a finding: a missed row stays missed, for every
    /// basis that is judged.
    fn worth(&self, found: Verdict) -> Verdict {
        match (self.basis, found) {
            (Basis::Unjudged(_), _) => Verdict::Open,
            (Basis::Finding, found) | (_, found @ Verdict::Missed) => found,
            (Basis::Constructed(_), _) => Verdict::ByConstruction,
            (Basis::Calibrated(_), _) => Verdict::Calibrated,
        }
    }

    /// The row of a trend that our results follow or not; `seen` describes them.
    pub fn seen(&self, goes: impl Into<Followed>, seen: String) -> Row {
        assert!(matches!(self.says, ClaimContent::Course(_)), "a number is measured, not seen: {}", self.id);
        let Followed { with, of } = goes.into();
        assert!(with <= of && of > 0, "{} was not simulated", self.id);
        let found = match with {
            _ if with == of => Verdict::Met,
            0 => Verdict::Missed,
            _ => Verdict::Undecided,
        };
        let row = Row { seeds: of, ..self.row(seen, String::new(), self.worth(found)) };
        if found == Verdict::Undecided { row.noted(format!("so with {with} of {of} seeds")) } else { row }
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
        let (Basis::Constructed(why) | Basis::Calibrated(why) | Basis::Unjudged(why)) = self.basis else {
            return self.bare_row(ours, differs, verdict);
        };
        self.bare_row(ours, differs, verdict).noted(why)
    }

    fn bare_row(&self, ours: String, differs: String, verdict: Verdict) -> Row {
        Row {
            id: self.id,
            what: self.what,
            place: self.place,
            paper: self.paper(),
            ours,
            ours_value: None,
            ours_ci95: None,
            seeds: 1,
            unit: self.unit,
            deviation: None,
            differs,
            verdict,
            note: String::new(),
        }
    }

    fn paper(&self) -> String {
        match self.says {
            ClaimContent::Number(number) => self.unit.quoted(number),
            ClaimContent::AtMost(0.0) => "none".to_owned(),
            ClaimContent::AtMost(most) => format!("at most {}", self.unit.quoted(most)),
            ClaimContent::AtLeast(least) => format!("at least {}", self.unit.quoted(least)),
            ClaimContent::Between(least, most) => format!("{least} to {}", self.unit.quoted(most)),
            ClaimContent::Course(words) => words.to_owned(),
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
    /// The row with one more note.
    #[must_use]
    pub fn noted(self, note: impl Into<String>) -> Self {
        let notes = [self.note, note.into()].into_iter().filter(|note| !note.is_empty());
        Self { note: notes.collect::<Vec<_>>().join("; "), ..self }
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
            Verdict::Met => Cell::verdict(true, row.verdict.words()),
            Verdict::Missed => Cell::verdict(false, row.verdict.words()),
            _ => Cell::words(row.verdict.words()),
        }),
        (words("note", "note"), |row| Cell::words(&*row.note)),
    ];
    Table::of(rows, columns)
}

/// The number of rows with each of these verdicts, without zeros: `14 met, 12 missed`.
fn counted(rows: &[Row], verdicts: &[Verdict]) -> (usize, String) {
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let counts = verdicts.iter().map(|verdict| (count(*verdict), verdict.words()));
    let shown = counts.clone().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}"));
    (counts.map(|(count, _)| count).sum(), shown.collect::<Vec<_>>().join(", "))
}

/// The findings: `31 findings: 14 met, 15 missed, 2 undecided`.
pub fn findings(rows: &[Row]) -> String {
    let (count, shown) = counted(rows, &Verdict::FINDINGS);
    format!("{count} findings: {shown}")
}

/// All other rows: `38 other rows: 5 calibrated, ...`.
pub fn others(rows: &[Row]) -> String {
    let (count, shown) = counted(rows, &Verdict::OTHERS);
    format!("{count} other rows: {shown}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::{partition, pelican, serviceable, shifting, soho};

    #[test]
    fn every_claim_has_a_name_of_its_own_and_a_place() {
        for all in [partition::CLAIMS, pelican::CLAIMS, shifting::CLAIMS, soho::CLAIMS, serviceable::CLAIMS] {
            for (index, claim) in all.iter().enumerate() {
                assert!(all[..index].iter().all(|other| other.id != claim.id), "{}", claim.id);
                assert!(!claim.place.is_empty() && !claim.what.is_empty());
            }
        }
    }

    const fn claim(says: ClaimContent, unit: Unit) -> Claim {
        Claim { id: "id", what: "what", place: "5", says, unit, basis: Basis::Finding }
    }

    #[test]
    fn numbers_are_met_within_five_percent_and_percentages_within_two_points() {
        let number = claim(ClaimContent::Number(100.0), Unit::Gbit);
        assert_eq!(number.judge(104.9).verdict, Verdict::Met);
        let missed = number.judge(94.0);
        assert_eq!((missed.verdict, &*missed.differs), (Verdict::Missed, "-6.0 %"));
        let share = claim(ClaimContent::Number(21.0), Unit::Percent);
        assert_eq!(share.judge(22.9).verdict, Verdict::Met);
        let missed = share.judge(27.5);
        assert_eq!((missed.verdict, &*missed.differs), (Verdict::Missed, "+6.5 points"));
    }

    #[test]
    fn an_interval_that_reaches_across_decides_nothing() {
        let number = claim(ClaimContent::Number(100.0), Unit::Gbit);
        let row = number.judge(Sample::of([103.0, 104.0, 105.0]));
        assert_eq!((row.verdict, row.seeds, &*row.ours), (Verdict::Undecided, 3, "104.0 ± 2.5 Gb/s"));
        assert_eq!(number.judge(Sample::of([101.0, 102.0, 103.0])).verdict, Verdict::Met);
        assert_eq!(number.judge(Sample::of([108.0, 109.0, 110.0])).verdict, Verdict::Missed);
        let bound = claim(ClaimContent::AtMost(20.0), Unit::Percent);
        assert_eq!(bound.judge(Sample::of([18.0, 19.0, 20.0])).verdict, Verdict::Undecided);
        assert_eq!(bound.judge(Sample::of([24.0, 25.0, 26.0])).verdict, Verdict::Missed);
        let none = claim(ClaimContent::AtMost(0.0), Unit::Percent);
        assert_eq!(none.judge(Sample::of([0.0, 0.0, 0.1])).verdict, Verdict::Missed, "none is none in any run");
        let course = claim(ClaimContent::Course("rises"), Unit::Count);
        let seen = |goes: [bool; 3]| course.seen(goes.into_iter().collect::<Followed>(), String::new());
        assert_eq!(
            [[true; 3], [false; 3], [true, true, false]].map(|goes| seen(goes).verdict),
            [Verdict::Met, Verdict::Missed, Verdict::Undecided]
        );
        assert_eq!(seen([true, true, false]).note, "so with 2 of 3 seeds");
    }

    #[test]
    fn a_percentage_near_its_end_is_not_met_by_the_end_itself() {
        let marginally = claim(ClaimContent::Number(1.0), Unit::Percent);
        assert_eq!(
            [0.0, 0.6, 1.4, 2.9].map(|ours| marginally.judge(ours).verdict == Verdict::Met),
            [false, true, true, false]
        );
        let nearly_all = claim(ClaimContent::Number(99.998), Unit::Percent);
        assert_eq!(
            [98.5, 99.9975, 100.0].map(|ours| nearly_all.judge(ours).verdict == Verdict::Met),
            [false, true, false]
        );
    }

    #[test]
    fn bounds_have_no_allowance() {
        assert_eq!(claim(ClaimContent::AtMost(0.7), Unit::Gbit).judge(0.701).verdict, Verdict::Missed);
        assert_eq!(claim(ClaimContent::AtMost(0.0), Unit::Percent).judge(0.0).verdict, Verdict::Met);
        assert_eq!(claim(ClaimContent::AtLeast(10.0), Unit::Times).judge(9.9).verdict, Verdict::Missed);
        let between = claim(ClaimContent::Between(3.6, 4.1), Unit::Times);
        assert_eq!(between.judge(3.27).verdict, Verdict::Missed);
        assert_eq!(between.judge(3.27).differs, "-9.2 %");
        assert_eq!(between.judge(4.0).verdict, Verdict::Met);
        assert_eq!(between.judge(f64::NAN).verdict, Verdict::Missed);
    }

    #[test]
    fn what_cannot_miss_is_no_finding_and_what_misses_all_the_same_is_missed() {
        let on = |basis| Claim { basis, ..claim(ClaimContent::Number(14.2), Unit::Seconds) };
        for (basis, near, far) in [
            (Basis::Calibrated("why"), Verdict::Calibrated, Verdict::Missed),
            (Basis::Constructed("why"), Verdict::ByConstruction, Verdict::Missed),
            (Basis::Unjudged("why"), Verdict::Open, Verdict::Open),
        ] {
            assert_eq!((on(basis).judge(14.3).verdict, on(basis).judge(19.0).verdict), (near, far));
            assert_eq!(on(basis).judge(14.3).noted("more").note, "why; more");
        }
    }

    #[test]
    fn findings_and_other_rows_are_counted_apart() {
        let number = claim(ClaimContent::Number(1.0), Unit::Times);
        let constructed = Claim { basis: Basis::Constructed("why"), ..number };
        let rows = [
            number.judge(1.0),
            number.judge(2.0),
            number.judge(2.0),
            number.open(String::new(), "why"),
            constructed.judge(1.0),
        ];
        assert_eq!(findings(&rows), "3 findings: 1 met, 2 missed");
        assert_eq!(others(&rows), "2 other rows: 1 by construction, 1 open");
        assert_eq!(table(&rows).rows.len(), 5);
    }

    #[test]
    fn the_rules_say_what_the_code_does() {
        let rules = rules().join(" ");
        for words in
            ["within 5 % of the text's", "within 2 points", "less than 1 % count as level", "throughput, by 2 %"]
        {
            assert!(rules.contains(words), "{words}: {rules}");
        }
    }
}
