//! Ceph's notation of a moment: `2026-11-24T03:43:43.550204+0000`.

use model::Time;

/// The moment in `stamp`, since the Unix epoch; `None` if it is not a moment. Fractions of a second are dropped. Ceph
/// writes UTC.
pub fn parse(stamp: &str) -> Option<Time> {
    let (date, time) = stamp.split_once(['T', ' '])?;
    let number = |text: &str| text.parse::<u64>().ok();
    let [year, month, day] = date.split('-').map(number).collect::<Option<Vec<_>>>()?[..] else { return None };
    let whole = time.get(..8)?;
    let [hour, minute, second] = whole.split(':').map(number).collect::<Option<Vec<_>>>()?[..] else { return None };
    let in_range = (1970..2500).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let of_day = hour * 3600 + minute * 60 + second;
    Some(Time::from_secs(days_since_epoch(year, month, day) * 86_400 + of_day))
}

/// Days since 1970-01-01, counted in years that begin with March, so the leap day is the last one.
fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year / 4 - year / 100 + year / 400;
    // The number of days from 0000-03-01 to 1970-01-01.
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments_are_read() {
        let secs = |stamp: &str| parse(stamp).map(|time| time.as_nanos() / 1_000_000_000);
        assert_eq!(secs("1970-01-01T00:00:00.000000+0000"), Some(0));
        assert_eq!(secs("2024-02-29T12:00:00.5+0000"), Some(1_709_208_000));
        assert_eq!(secs("2024-03-01 00:00:00.5"), Some(1_709_251_200));
        assert_eq!(secs("2026-11-24T03:43:43.550204+0000"), Some(1_795_491_823));
        for wrong in ["", "0.000000", "2026-13-01T00:00:00", "2026-11-24T03:43", "x-y-zT00:00:00"] {
            assert_eq!(secs(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(stamp in "[0-9T: .+-]{0,40}|\\PC{0,20}") {
            parse(&stamp);
        }
    }
}
