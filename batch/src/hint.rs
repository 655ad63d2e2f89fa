//! Hints for values that were written without their quotes: dates, times, texts. The error shows the expression with
//! quotes.
//!
//! The hint shows double quotes, since in most shells the whole expression is in single quotes.

use crate::error::Error;
use crate::expression::{LITERAL, Parsed, in_value, read};

/// The maximum number of values that are put in quotes.
const QUOTED_MAX: usize = 64;

/// Reads all of `text`. The error shows the correct expression if only quotes around values are missing.
pub(crate) fn read_or_hint<T>(text: &str, expression: for<'a> fn(&mut &'a str) -> Parsed<T>) -> Result<T, Error> {
    read(text, expression).map_err(|error| {
        let hint = quoted(&error, |quoted| read(quoted, expression).err());
        match error {
            Error::Syntax { text, at, wanted, found, .. } => Error::Syntax { text, at, wanted, found, hint },
            error => error,
        }
    })
}

/// The expression with quotes, if `refusal` then finds no error.
fn quoted(error: &Error, refusal: impl Fn(&str) -> Option<Error>) -> Option<String> {
    let mut error = error.clone();
    for _ in 0..QUOTED_MAX {
        let Error::Syntax { text, at, wanted: LITERAL, .. } = error else { return None };
        let (begin, _) = text.char_indices().nth(at - 1)?;
        let (before, rest) = text.split_at(begin);
        let (value, behind) = rest.split_at(value_bytes(rest));
        if value.is_empty() {
            return None;
        }
        let text = format!("{before}\"{value}\"{behind}");
        match refusal(&text) {
            None => return Some(text),
            Some(next) => error = next,
        }
    }
    None
}

/// The length of the value at the beginning of `rest`, with the time of day after a date; 0 without a value.
fn value_bytes(rest: &str) -> usize {
    let word = |text: &str| text.find(|char| !in_value(char)).unwrap_or(text.len());
    let bytes = word(rest);
    let time = rest[bytes..].strip_prefix(' ').map_or("", |behind| &behind[..word(behind)]);
    if time.contains(':') { bytes + 1 + time.len() } else { bytes }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::{By, Filter};

    fn refusal<T: std::str::FromStr<Err = crate::Error>>(text: &str) -> String {
        text.parse::<T>().err().unwrap().to_string()
    }

    #[test]
    fn an_error_shows_the_expression_with_quotes() {
        for (wrong, right) in [
            ("range(day, 2020-01-01, 2021-01-01)", "range(day, \"2020-01-01\", \"2021-01-01\")"),
            ("range(day,2020-01-01)", "range(day,\"2020-01-01\")"),
            ("range(at, 2020-01-01 12:00:00, 5)", "range(at, \"2020-01-01 12:00:00\", 5)"),
            ("range(at, 2020-01-01T00:00:00Z)", "range(at, \"2020-01-01T00:00:00Z\")"),
            ("range(day, 1/2/2020, '2021-01-01')", "range(day, \"1/2/2020\", '2021-01-01')"),
            ("range(name, g, true, n)", "range(name, \"g\", true, \"n\")"),
            ("range(v, 1.2.3)", "range(v, \"1.2.3\")"),
        ] {
            let error = refusal::<By>(wrong);
            assert!(error.ends_with(&format!("stand in quotes: {right}")), "{error}");
            assert!(right.parse::<By>().is_ok(), "{right}");
        }
        for (wrong, right) in [
            ("day >= 2020-01-01 and kind = '7-a'", "day >= \"2020-01-01\" and kind = '7-a'"),
            ("note = x1", "note = \"x1\""),
            ("note = 7a or id=1or id=2", "note = \"7a\" or id=1or id=2"),
            ("note in (x1, y) and at < 2020-01-01 12:00", "note in (\"x1\", \"y\") and at < \"2020-01-01 12:00\""),
        ] {
            let error = refusal::<Filter>(wrong);
            assert!(error.ends_with(&format!("stand in quotes: {right}")), "{error}");
            assert!(right.parse::<Filter>().is_ok(), "{right}");
        }
    }

    #[test]
    fn an_error_that_quotes_do_not_cure_comes_without_a_hint() {
        for wrong in ["range(day, 2020-01-01", "hash(a b)", "range()", "range(a, ', 2020-01-01)", "", "range(a, 1) x"] {
            assert!(!refusal::<By>(wrong).contains("quotes: "), "{wrong}");
        }
        for wrong in ["year >", "year >= 2020 and", "(a = 1", "a = b c", "a = (b)"] {
            assert!(!refusal::<Filter>(wrong).contains("quotes: "), "{wrong}");
        }
    }
}
