//! The values of a scenario: their text, their meaning, and ranges of them.
//!
//! Invariants: the text of a value is preserved, so a report repeats it; a value between the ends of a range is rounded
//! to three digits, so that users can write it in a scenario again.

use model::text;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A value as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Written {
    /// true or false.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// Another number.
    Number(f64),
    /// Quoted text.
    Text(String),
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Whole(number) => number.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// The meaning of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// true or false.
    Flag(bool),
    /// A number without unit.
    Whole(u64),
    /// A number without unit.
    Number(f64),
    /// One of a few words, or a name.
    Word(String),
    /// Bytes.
    Bytes(u64),
    /// A span of modelled time.
    Span(Duration),
    /// Bytes/s.
    BytesPerS(u64),
    /// A frequency, in events per second.
    PerS(f64),
}

/// A value with its text and its meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The value as written.
    pub written: Written,
    /// Its meaning.
    pub meaning: Meaning,
}

/// The kind of a key's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// One of these words.
    Word(&'static [&'static str]),
    /// The name or path of this kind of thing.
    Name(&'static str),
    /// true or false.
    Flag,
    /// A whole number in this range, both ends included.
    Whole(u64, u64),
    /// A whole number of at least 1, or this word.
    WholeOr(&'static str),
    /// A number from 0 to this one.
    Number(f64),
    /// A size above 0.
    Size,
    /// A size above 0, or this word.
    SizeOr(&'static str),
    /// A duration above 0.
    Span,
    /// A duration, or this word.
    SpanOr(&'static str),
    /// Bytes/s above 0.
    Rate,
    /// Bytes/s above 0, or this word.
    RateOr(&'static str),
    /// A frequency above 0, in events per second.
    Frequency,
    /// An overtaking limit: a size, a number of operations or a duration.
    Limit,
}

impl Kind {
    /// Finds the meaning of `written`.
    ///
    /// # Errors
    /// A message with the error and the correct form.
    pub fn read(self, written: Written) -> Result<Value, String> {
        let meaning = self.meaning(&written)?;
        Ok(Value { written, meaning })
    }

    fn meaning(self, written: &Written) -> Result<Meaning, String> {
        match (self, written) {
            (Self::Word(words), Written::Text(text)) if words.contains(&text.as_str()) => {
                Ok(Meaning::Word(text.clone()))
            }
            (Self::Word(words), Written::Text(text)) => {
                let near = text::nearest(text, words).unwrap_or_default();
                Err(format!("{text:?} is none of {}; write \"{near}\"", quoted(words)))
            }
            (
                Self::WholeOr(word) | Self::SizeOr(word) | Self::SpanOr(word) | Self::RateOr(word),
                Written::Text(text),
            ) if text == word => Ok(Meaning::Word(text.clone())),
            (Self::Name(_), Written::Text(text)) if !text.is_empty() => Ok(Meaning::Word(text.clone())),
            (Self::Flag, Written::Flag(flag)) => Ok(Meaning::Flag(*flag)),
            (Self::Whole(min, max), Written::Whole(number)) => whole(*number, min, max),
            (Self::WholeOr(_), Written::Whole(number)) => whole(*number, 1, u64::from(u32::MAX)),
            (Self::Number(max), Written::Number(_) | Written::Whole(_)) => number(written, max),
            (Self::Size | Self::SizeOr(_), Written::Text(text)) => above_zero(text::size(text)?).map(Meaning::Bytes),
            (Self::Span, Written::Text(text)) => {
                let span = text::duration(text)?;
                above_zero(span.as_nanos()).map(|_| Meaning::Span(span))
            }
            (Self::SpanOr(word), Written::Text(text)) => {
                text::duration(text).map(Meaning::Span).map_err(|why| format!("{why}, or \"{word}\""))
            }
            (Self::Rate, Written::Text(text)) => above_zero(text::rate(text)?).map(Meaning::BytesPerS),
            (Self::RateOr(word), Written::Text(text)) => {
                let rate = text::rate(text).map_err(|why| format!("{why}, or \"{word}\""))?;
                above_zero(rate).map(Meaning::BytesPerS)
            }
            (Self::Frequency, written) => frequency(written),
            (Self::Limit, Written::Whole(number)) => whole(*number, 0, i64::MAX as u64),
            (Self::Limit, Written::Text(text)) => text::size(text)
                .map(Meaning::Bytes)
                .or_else(|_| text::duration(text).map(Meaning::Span))
                .map_err(|_| format!("{text:?} is not a limit; write {}", self.example())),
            _ => Err(format!("{} is not allowed here; write {}", shown(written), self.example())),
        }
    }

    /// A description of the kind, with an example.
    pub fn example(self) -> String {
        match self {
            Self::Word(words) => format!("one of {}", quoted(words)),
            Self::Name(what) => format!("{what} in \"quotes\""),
            Self::Flag => "true or false".to_owned(),
            Self::Whole(min, max) => format!("a whole number from {min} to {max}"),
            Self::WholeOr(word) => format!("a whole number from 1, or \"{word}\""),
            Self::Number(max) => format!("a number from 0 to {max}"),
            Self::Size => "a size such as \"1 GB\"".to_owned(),
            Self::SizeOr(word) => format!("a size such as \"1 GB\", or \"{word}\""),
            Self::Span => "a duration such as \"24 h\"".to_owned(),
            Self::SpanOr(word) => format!("a duration such as \"5 min\", or \"{word}\""),
            Self::Rate => "a rate such as \"1 GB/s\"".to_owned(),
            Self::RateOr(word) => format!("a rate such as \"20 Gb/s\", or \"{word}\""),
            Self::Frequency => "a number per second such as 0.5, or \"30 per min\"".to_owned(),
            Self::Limit => {
                "a size such as \"500 GB\", a number of operations such as 500, or a duration such as \"5 min\"".into()
            }
        }
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

fn shown(written: &Written) -> String {
    match written {
        Written::Text(text) => format!("{:?}", text.chars().take(32).collect::<String>()),
        other => other.to_string(),
    }
}

fn whole(number: i64, min: u64, max: u64) -> Result<Meaning, String> {
    let fits = u64::try_from(number).ok().filter(|number| (min..=max).contains(number));
    fits.map(Meaning::Whole)
        .ok_or_else(|| format!("{number} is out of range; write a whole number from {min} to {max}"))
}

fn number(written: &Written, max: f64) -> Result<Meaning, String> {
    let value = plain(written).unwrap_or(f64::NAN);
    if (0.0..=max).contains(&value) {
        return Ok(Meaning::Number(value));
    }
    Err(format!("{written} is out of range; write a number from 0 to {max}"))
}

fn above_zero<T: Default + PartialEq>(number: T) -> Result<T, String> {
    if number == T::default() { Err("must be above 0; write more".to_owned()) } else { Ok(number) }
}

fn plain(written: &Written) -> Option<f64> {
    match written {
        Written::Whole(number) => Some(*number as f64),
        Written::Number(number) => Some(*number),
        _ => None,
    }
}

/// `0.5`, `"5 per s"`, `"30 per min"`.
fn frequency(written: &Written) -> Result<Meaning, String> {
    let per_s = match written {
        Written::Text(text) => text.split_once("per").and_then(|(number, unit)| {
            let span = text::duration(&format!("1 {}", unit.trim())).ok()?;
            Some(number.trim().parse::<f64>().ok()? / span.as_secs_f64())
        }),
        other => plain(other),
    };
    let sensible = per_s.filter(|per_s| per_s.is_finite() && (1e-9..=1e6).contains(per_s));
    sensible
        .map(Meaning::PerS)
        .ok_or_else(|| format!("{} is not a rate above 0; write {}", shown(written), Kind::Frequency.example()))
}

impl Meaning {
    /// True if the value is one of these words.
    pub(super) fn is_word_of(&self, words: &[&str]) -> bool {
        matches!(self, Self::Word(word) if words.contains(&word.as_str()))
    }

    /// The value as a number for an axis, with its unit there; `None` if it is not a number.
    pub fn along_axis(&self) -> Option<(f64, &'static str)> {
        match self {
            Self::Whole(number) => Some((*number as f64, "")),
            Self::Number(number) => Some((*number, "")),
            Self::Bytes(bytes) => Some((*bytes as f64 / 1e9, "GB")),
            Self::Span(span) => Some((span.as_secs_f64(), "s")),
            Self::BytesPerS(rate) => Some((*rate as f64 * 8.0 / 1e9, "Gb/s")),
            Self::PerS(rate) => Some((*rate, "1/s")),
            Self::Flag(_) | Self::Word(_) => None,
        }
    }

    /// The value in the smallest unit of its kind, for interpolation.
    fn smallest(&self) -> Option<f64> {
        match self {
            Self::Span(span) => Some(span.as_nanos() as f64),
            Self::Whole(number) | Self::Bytes(number) | Self::BytesPerS(number) => Some(*number as f64),
            Self::Number(number) | Self::PerS(number) => Some(*number),
            Self::Flag(_) | Self::Word(_) => None,
        }
    }

    /// A value of the same kind, as written.
    fn written_as(&self, smallest: f64) -> Written {
        let units: &[(&str, f64)] = match self {
            Self::Bytes(_) => &[("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)],
            Self::BytesPerS(_) => &[("Gb/s", 1.25e8), ("Mb/s", 1.25e5), ("B/s", 1.0)],
            Self::Span(_) => &[("h", 3.6e12), ("min", 6e10), ("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)],
            Self::Whole(_) => return Written::Whole(smallest.round() as i64),
            _ => return Written::Number(three_digits(smallest)),
        };
        let fitting = units.iter().find(|(_, unit)| smallest >= *unit).or(units.last());
        let (name, unit) = fitting.copied().unwrap_or(("", 1.0));
        Written::Text(format!("{} {name}", three_digits(smallest / unit)))
    }
}

fn three_digits(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let decimals = 2 - value.abs().log10().floor() as i32;
    // Through text, so that 0.1 is 0.1 and not the next number.
    if decimals >= 0 {
        format!("{value:.*}", decimals as usize).parse().unwrap_or(value)
    } else {
        let unit = 10_f64.powi(-decimals);
        (value / unit).round() * unit
    }
}

/// A range as written: `{ from, to, steps, scale }`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RangeOf {
    pub from: Written,
    pub to: Written,
    pub steps: u64,
    pub log: bool,
}

impl RangeOf {
    /// The values; the first and the last are as written.
    pub(super) fn values(self, kind: Kind) -> Result<Vec<Value>, String> {
        let (from, to) = (kind.read(self.from)?, kind.read(self.to)?);
        let (Some(low), Some(high)) = (from.meaning.smallest(), to.meaning.smallest()) else {
            return Err(format!("a range goes from a number to a number; write a list of {}", kind.example()));
        };
        if std::mem::discriminant(&from.meaning) != std::mem::discriminant(&to.meaning) {
            return Err("`from` and `to` are of different kinds; write both with like units".to_owned());
        }
        if self.log && (low <= 0.0 || high <= 0.0) {
            return Err("a logarithmic range begins above 0; write `from` larger, or scale = \"linear\"".to_owned());
        }
        let between = |step: u64| {
            let share = step as f64 / (self.steps - 1) as f64;
            if self.log { low * (high / low).powf(share) } else { low + (high - low) * share }
        };
        let mut values = vec![from.clone()];
        for step in 1..self.steps - 1 {
            values.push(kind.read(from.meaning.written_as(between(step)))?);
        }
        values.push(to);
        assert!(values.len() as u64 == self.steps, "a range of {} has {} values", self.steps, values.len());
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(text: &str) -> Written {
        Written::Text(text.to_owned())
    }

    fn range(from: Written, to: Written, steps: u64, log: bool, kind: Kind) -> Vec<String> {
        let values = RangeOf { from, to, steps, log }.values(kind).unwrap();
        values.into_iter().map(|value| value.written.to_string()).collect()
    }

    #[test]
    fn ranges_keep_their_ends_and_are_round_in_between() {
        let sizes = range(text("50 GB"), text("1 TB"), 5, true, Kind::Size);
        assert_eq!(sizes, ["50 GB", "106 GB", "224 GB", "473 GB", "1 TB"]);
        assert_eq!(range(Written::Whole(1), Written::Whole(4), 4, false, Kind::Whole(1, 9)), ["1", "2", "3", "4"]);
        let rates = range(Written::Number(0.0625), Written::Whole(8), 8, true, Kind::Frequency);
        assert_eq!(rates, ["0.0625", "0.125", "0.25", "0.5", "1", "2", "4", "8"]);
        assert_eq!(range(text("30 s"), text("2 min"), 4, false, Kind::Span), ["30 s", "1 min", "1.5 min", "2 min"]);
        let rate = range(text("10 Gb/s"), text("20 Gb/s"), 3, false, Kind::RateOr("unbounded"));
        assert_eq!(rate, ["10 Gb/s", "15 Gb/s", "20 Gb/s"]);
    }

    #[test]
    fn ranges_that_are_none_are_refused() {
        let refusal = |from, to, log, kind| RangeOf { from, to, steps: 3, log }.values(kind).unwrap_err();
        let number = |number| Written::Whole(number);
        assert!(refusal(number(0), number(5), true, Kind::Whole(0, 9)).contains("a logarithmic range begins above 0"));
        let words = refusal(text("a"), text("b"), false, Kind::Word(&["a", "b"]));
        assert_eq!(words, "a range goes from a number to a number; write a list of one of \"a\", \"b\"");
        let kinds = refusal(text("1 GB"), text("5 min"), false, Kind::Limit);
        assert_eq!(kinds, "`from` and `to` are of different kinds; write both with like units");
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_write() {
        for (kind, written, refusal) in [
            (Kind::Word(&["all", "k"]), text("al"), "\"al\" is none of \"all\", \"k\"; write \"all\""),
            (Kind::Word(&["all", "k"]), Written::Whole(3), "3 is not allowed here; write one of \"all\", \"k\""),
            (Kind::Whole(1, 9), Written::Whole(-1), "-1 is out of range; write a whole number from 1 to 9"),
            (Kind::Whole(1, 9), text("x"), "\"x\" is not allowed here; write a whole number from 1 to 9"),
            (Kind::Number(1.0), Written::Number(1.5), "1.5 is out of range; write a number from 0 to 1"),
            (Kind::Size, text("0 GB"), "must be above 0; write more"),
            (Kind::Span, Written::Whole(5), "5 is not allowed here; write a duration such as \"24 h\""),
            (
                Kind::Frequency,
                text("5 per parsec"),
                "\"5 per parsec\" is not a rate above 0; write a number per second such as 0.5, or \"30 per min\"",
            ),
            (Kind::Frequency, Written::Whole(0), "0 is not a rate above 0; write a number per second such as 0.5"),
            (
                Kind::Limit,
                text("5 apples"),
                "\"5 apples\" is not a limit; write a size such as \"500 GB\", a number of",
            ),
            (Kind::Flag, Written::Whole(1), "1 is not allowed here; write true or false"),
            (Kind::Name("a rack"), text(""), "\"\" is not allowed here; write a rack in \"quotes\""),
        ] {
            let found = kind.read(written).unwrap_err();
            assert!(found.starts_with(refusal), "{found}");
        }
        assert!(Kind::SpanOr("never").read(text("x")).unwrap_err().ends_with("or \"never\""));
        assert!(Kind::RateOr("unbounded").read(text("x")).unwrap_err().ends_with("or \"unbounded\""));
    }

    #[test]
    fn frequencies_have_a_unit_or_are_per_second() {
        for (written, per_s) in [(text("30 per min"), 0.5), (text("5 per s"), 5.0), (Written::Number(0.25), 0.25)] {
            assert_eq!(Kind::Frequency.read(written).unwrap().meaning, Meaning::PerS(per_s));
        }
    }
}
