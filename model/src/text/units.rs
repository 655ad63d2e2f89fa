//! Quantities with units: `"4.55 TB"`, `"128 KiB"`, `"64 Gb/s"`, `"13.5 s"`.
//!
//! Decimal fractions are exact: a quantity that is not a whole number of its smallest unit (byte, nanosecond) is
//! refused rather than rounded.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The units of one kind of quantity.
pub(super) struct Units {
    what: &'static str,
    example: &'static str,
    /// Name, and its size in the smallest unit as a fraction.
    table: &'static [(&'static str, u64, u64)],
}

/// Bytes, in decimal and binary units.
pub(super) const SIZE: Units = Units {
    what: "size",
    example: "\"128 KiB\" or \"4.55 TB\"",
    table: &[
        ("B", 1, 1),
        ("kB", 1_000, 1),
        ("MB", 1_000_000, 1),
        ("GB", 1_000_000_000, 1),
        ("TB", 1_000_000_000_000, 1),
        ("PB", 1_000_000_000_000_000, 1),
        ("KiB", 1 << 10, 1),
        ("MiB", 1 << 20, 1),
        ("GiB", 1 << 30, 1),
        ("TiB", 1 << 40, 1),
        ("PiB", 1 << 50, 1),
    ],
};

/// Bytes/s; with a small `b`, bits/s.
pub(super) const RATE: Units = Units {
    what: "rate",
    example: "\"105 MB/s\" or \"64 Gb/s\"",
    table: &[
        ("B/s", 1, 1),
        ("kB/s", 1_000, 1),
        ("MB/s", 1_000_000, 1),
        ("GB/s", 1_000_000_000, 1),
        ("KiB/s", 1 << 10, 1),
        ("MiB/s", 1 << 20, 1),
        ("GiB/s", 1 << 30, 1),
        ("kb/s", 1_000, 8),
        ("Mb/s", 1_000_000, 8),
        ("Gb/s", 1_000_000_000, 8),
    ],
};

/// Thousandths.
pub(super) const SHARE: Units =
    Units { what: "share", example: "\"5 %\" or \"0.5 %\"", table: &[("%", 10, 1), ("permille", 1, 1)] };

/// Nanoseconds.
pub(super) const SPAN: Units = Units {
    what: "duration",
    example: "\"13.5 s\" or \"4.2 ms\"",
    table: &[
        ("ns", 1, 1),
        ("us", 1_000, 1),
        ("ms", 1_000_000, 1),
        ("s", 1_000_000_000, 1),
        ("min", 60_000_000_000, 1),
        ("h", 3_600_000_000_000, 1),
        ("d", 86_400_000_000_000, 1),
    ],
};

impl Units {
    /// `text` as a number of the smallest unit, or an error message.
    pub(super) fn parse(&self, text: &str) -> Result<u64, String> {
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
        let named = self.table.iter().find(|(name, _, _)| *name == unit);
        let (Some((digits, scale)), Some((_, times, per))) = (decimal(number), named) else {
            return Err(self.not_one(text));
        };
        let (top, bottom) = (u128::from(digits) * u128::from(*times), u128::from(scale) * u128::from(*per));
        if !top.is_multiple_of(bottom) {
            let smallest = self.table[0].0;
            return Err(format!("{} is not a whole number of {smallest}; write fewer decimals", shown(text)));
        }
        u64::try_from(top / bottom).map_err(|_| format!("{} is too much; write a smaller {}", shown(text), self.what))
    }

    fn not_one(&self, text: &str) -> String {
        let names: Vec<&str> = self.table.iter().map(|(name, _, _)| *name).collect();
        format!(
            "{} is not a {}; write a number and one of {}, such as {}",
            shown(text),
            self.what,
            names.join(", "),
            self.example
        )
    }

    /// An example of this quantity, quoted as in a description.
    pub(super) fn example(&self) -> &'static str {
        self.example
    }
}

/// `text` in quotes, cut if it is long.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(24).collect();
    format!("{cut:?}")
}

/// A decimal number as an integer and the power of ten to divide it by. At most 18 digits.
pub(super) fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() > 18 {
        return None;
    }
    let scale = 10_u64.pow(fraction.len() as u32);
    Some((whole.parse::<u64>().ok()? * scale + fraction.parse::<u64>().ok()?, scale))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quantities_are_exact() {
        assert_eq!(SIZE.parse("4.55 TB"), Ok(4_550_000_000_000));
        assert_eq!(SIZE.parse("128KiB"), Ok(131_072));
        assert_eq!(SIZE.parse(" 0.5 KiB "), Ok(512));
        assert_eq!(RATE.parse("64 Gb/s"), Ok(8_000_000_000));
        assert_eq!(RATE.parse("105 MB/s"), Ok(105_000_000));
        assert_eq!(SPAN.parse("4.2ms"), Ok(4_200_000));
        assert_eq!(SPAN.parse("13.5 s"), Ok(13_500_000_000));
        assert_eq!(SPAN.parse("2 min"), Ok(120_000_000_000));
    }

    #[test]
    fn what_is_no_quantity_is_told_what_one_looks_like() {
        for wrong in
            ["", "s", "10", "10 Mb", "-3 MB", "1.2.3 MB", "1e3 MB", "1. MB", ".5 MB", "10 KB", "1000000000000000000 B"]
        {
            let message = SIZE.parse(wrong).unwrap_err();
            assert!(message.contains("is not a size; write a number and one of B, kB"), "{wrong}: {message}");
        }
        assert!(SIZE.parse("0.3 B").unwrap_err().contains("not a whole number of B; write fewer decimals"));
        assert!(SIZE.parse("99999999999 PB").unwrap_err().contains("too much; write a smaller size"));
        assert!(SPAN.parse("10 sec").unwrap_err().contains("is not a duration"));
    }
}
