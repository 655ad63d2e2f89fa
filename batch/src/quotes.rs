//! Values that were written without their quotes: dates, times, texts. The refusal shows the expression with them.
//!
//! Double quotes are shown, since who writes in a shell has the whole expression in single ones.

use crate::Error;

/// The refusal with the expression as it should be written, if there is a way that `reads`.
pub(crate) fn advised(error: Error, reads: impl Fn(&str) -> bool) -> Error {
    match error {
        Error::Syntax { text, at, wanted, found, mend: None } => {
            let mend = [range(&text), Some(dates(&text))].into_iter().flatten();
            let mend = mend.filter(|quoted| *quoted != text).find(|quoted| reads(quoted));
            Error::Syntax { text, at, wanted, found, mend }
        }
        error => error,
    }
}

/// What a refusal says of the expression with quotes.
pub(crate) fn written(mend: Option<&str>) -> String {
    mend.map_or_else(String::new, |mend| format!("; dates, times and texts stand in quotes: {mend}"))
}

/// A range each of whose bounds that is no value as it stands is in quotes.
fn range(text: &str) -> Option<String> {
    let (head, rest) = text.split_once('(')?;
    let bounds = rest.trim_end().strip_suffix(')')?;
    if !head.trim().eq_ignore_ascii_case("range") || bounds.contains(['"', '\'', '`', '(', ')']) {
        return None;
    }
    let (column, bounds) = bounds.split_once(',')?;
    let bounds: Vec<String> = bounds.split(',').map(|bound| quoted_unless(is_value, bound.trim())).collect();
    Some(format!("{}({}, {})", head.trim(), column.trim(), bounds.join(", ")))
}

fn is_value(word: &str) -> bool {
    word.parse::<f64>().is_ok_and(f64::is_finite) || ["true", "false"].contains(&word.to_ascii_lowercase().as_str())
}

/// The text with everything in quotes that begins with a digit, is no number, and stands outside of quotes.
fn dates(text: &str) -> String {
    let belongs = |char: char| char.is_ascii_alphanumeric() || "-+:./_".contains(char);
    let (mut shown, mut rest, mut inside) = (String::new(), text, None);
    while let Some(first) = rest.chars().next() {
        let run = rest.find(|char| !belongs(char)).unwrap_or(rest.len());
        let (word, bytes) = if inside.is_none() && run > 0 {
            let word = &rest[..run];
            let date = first.is_ascii_digit();
            (if date { quoted_unless(is_value, word) } else { word.to_owned() }, run)
        } else {
            inside = match inside {
                None if ['"', '\'', '`'].contains(&first) => Some(first),
                Some(quote) if quote == first => None,
                other => other,
            };
            (first.to_string(), first.len_utf8())
        };
        shown.push_str(&word);
        rest = &rest[bytes..];
    }
    shown
}

fn quoted_unless(plain: impl Fn(&str) -> bool, word: &str) -> String {
    if plain(word) { word.to_owned() } else { format!("\"{word}\"") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::{By, Filter};

    fn refusal<T: std::str::FromStr<Err = crate::Error>>(text: &str) -> String {
        text.parse::<T>().err().unwrap().to_string()
    }

    #[test]
    fn a_refusal_shows_the_expression_with_quotes() {
        for (wrong, right) in [
            ("range(day, 2020-01-01, 2021-01-01)", "range(day, \"2020-01-01\", \"2021-01-01\")"),
            ("range(day,2020-01-01)", "range(day, \"2020-01-01\")"),
            ("range(at, 2020-01-01 12:00:00, 5)", "range(at, \"2020-01-01 12:00:00\", 5)"),
            ("range(at, 2020-01-01T00:00:00Z)", "range(at, \"2020-01-01T00:00:00Z\")"),
            ("range(day, 1/2/2020, '2021-01-01')", "range(day, \"1/2/2020\", '2021-01-01')"),
            ("range(name, g, true, n)", "range(name, \"g\", true, \"n\")"),
            ("range(v, 1.2.3)", "range(v, \"1.2.3\")"),
        ] {
            let told = refusal::<By>(wrong);
            assert!(told.ends_with(&format!("stand in quotes: {right}")), "{told}");
            assert!(right.parse::<By>().is_ok(), "{right}");
        }
        let told = refusal::<Filter>("day >= 2020-01-01 and kind = '7-a'");
        assert!(told.ends_with("stand in quotes: day >= \"2020-01-01\" and kind = '7-a'"), "{told}");
    }

    #[test]
    fn what_quotes_do_not_mend_is_refused_without_them() {
        for wrong in ["range(day, 2020-01-01", "hash(a b)", "range()", "range(a, ', 2020-01-01)", "", "range(a, 1) x"] {
            assert!(!refusal::<By>(wrong).contains("quotes: "), "{wrong}");
        }
        for wrong in ["year >", "year >= 2020 and", "(a = 1"] {
            assert!(!refusal::<Filter>(wrong).contains("quotes: "), "{wrong}");
        }
    }
}
