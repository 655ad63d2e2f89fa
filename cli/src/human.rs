//! Formats numbers and tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// `3 drives`, `1 drive`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `12.3 MB`, in decimal units.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if number < 1000 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1000.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    format!("{value:.1} {unit}")
}

/// `128 KiB` if it is a whole number of binary units, `12.3 MB` otherwise.
pub fn binary_bytes(number: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| number >= *size && number.is_multiple_of(*size)) {
        Some((unit, size)) => format!("{} {unit}", number / size),
        None => bytes(number),
    }
}

/// `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`.
pub fn seconds(span: f64) -> String {
    if span < 9.95 {
        return format!("{:.1} s", span.max(0.0));
    }
    let whole = span.round() as u64;
    let (minutes, hours, days) = (whole / 60, whole / 3600, whole / 86_400);
    let two = |big: u64, big_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{big} {big_unit}"),
        _ => format!("{big} {big_unit} {small} {small_unit}"),
    };
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => two(minutes, "min", whole % 60, "s"),
        3600..86_400 => two(hours, "h", minutes % 60, "min"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

/// `58.2 W`, `940 W`, `3.7 kW`.
pub fn watts(watts: f64) -> String {
    match watts {
        w if w < 99.95 => format!("{w:.1} W"),
        w if w < 999.5 => format!("{w:.0} W"),
        w => format!("{:.2} kW", w / 1000.0),
    }
}

/// `17 %`; 0 % of an empty whole.
pub fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 };
    if share > 0.0 && share < 1.0 { "< 1 %".to_owned() } else { format!("{share:.0} %") }
}

/// A table without lines; the columns named in `right` are aligned to the right.
pub fn table(head: &[&str], right: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head).add_rows(rows);
    for (column, name) in table.column_iter_mut().zip(head) {
        column.set_padding((0, 2));
        if right.contains(name) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{}\n", table.trim_fmt())
}

/// Numbers as runs: `0-3, 7, 9-11`.
pub fn runs(numbers: &[u32]) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let length = rest.iter().zip(first..).take_while(|&(&number, expected)| number == expected).count();
        let last = rest[length - 1];
        shown.push(if length == 1 { first.to_string() } else { format!("{first}-{last}") });
        rest = &rest[length..];
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_carry_their_unit() {
        assert_eq!((count(0), count(1234), count(1_234_567)), ("0".into(), "1,234".into(), "1,234,567".into()));
        assert_eq!((counted(1, "drive"), counted(1152, "drive")), ("1 drive".into(), "1,152 drives".into()));
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(999_999), "1.0 MB", "rounding up moves on to the next unit");
        assert_eq!(bytes(4_550_000_000_000), "4.5 TB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!((binary_bytes(131_072), binary_bytes(131_073)), ("128 KiB".into(), "131.1 kB".into()));
        assert_eq!((watts(1.5), watts(999.4), watts(3_712.0)), ("1.5 W".into(), "999 W".into(), "3.71 kW".into()));
        assert_eq!((percent(0, 0), percent(1, 1000), percent(1, 3)), ("0 %".into(), "< 1 %".into(), "33 %".into()));
    }

    #[test]
    fn spans_have_at_most_two_units() {
        for (span, shown) in [
            (0.04, "0.0 s"),
            (9.9, "9.9 s"),
            (9.96, "10 s"),
            (59.9, "1 min"),
            (185.0, "3 min 5 s"),
            (7200.0, "2 h"),
            (7800.0, "2 h 10 min"),
            (273_600.0, "3 d 4 h"),
        ] {
            assert_eq!(seconds(span), shown);
        }
    }

    #[test]
    fn tables_line_up() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["bcd".to_owned(), "1,000".to_owned()]];
        assert_eq!(table(&["name", "n"], &["n"], rows), "name      n\na         1\nbcd   1,000\n");
    }

    #[test]
    fn runs_of_numbers_are_folded() {
        assert_eq!(runs(&[]), "");
        assert_eq!(runs(&[0, 1, 2, 3, 7, 9, 10]), "0-3, 7, 9-10");
    }
}
