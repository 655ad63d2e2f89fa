//! The `[drive]` of the rack's description, with measured figures in place of estimates; and the rate of each drive.
//!
//! Only the lines of measured keys change, each in place; the rest of the file stays as it was written, comments
//! included. Invariant: the result describes the same rack, except for these figures.

use disk::measure::Figures;
use model::{DriveId, RackDraft, RackSpec};
use std::time::Duration;

/// Lines of a table, by their keys.
type Lines = Vec<(&'static str, String)>;

/// The lines of `[drive]` for `figures`.
fn lines(figures: &Figures) -> Lines {
    let Figures { bytes_per_s, zone_permille, drive_permille, .. } = *figures;
    let percent = |permille: u16| format!("{}.{} %", permille / 10, permille % 10);
    let (zone, drive) = (percent(zone_permille), percent(drive_permille));
    vec![
        ("bytes_per_s", format!("\"{bytes_per_s} B/s\"")),
        ("rate_spread", format!("{{ zone = \"{zone}\", drive = \"{drive}\" }}")),
        ("seek", span(figures.seek)),
        ("spin_up", varying(figures.spin_up)),
        ("mount", varying(figures.mount)),
        ("unmount", varying(figures.unmount)),
        ("spin_down", varying(figures.spin_down)),
    ]
}

/// A duration in microseconds, at least 1.
fn span(span: Duration) -> String {
    format!("\"{} us\"", span.as_micros().max(1))
}

fn varying((min, max): (Duration, Duration)) -> String {
    format!("{{ min = {}, max = {} }}", span(min), span(max))
}

/// The lines of the `[[drives]]` of `drive` for its own rate, if that was measured.
fn lines_of(drive: DriveId, rates: &[(DriveId, u64)]) -> Lines {
    let rate = rates.iter().find(|(measured, _)| *measured == drive);
    rate.map(|(_, rate)| ("bytes_per_s", format!("\"{rate} B/s\""))).into_iter().collect()
}

/// `text`, a description, with `figures` in its `[drive]`, and the own rate of each drive of `rates` in its
/// `[[drives]]`; `None` if these tables cannot be changed line by line.
pub(super) fn with_figures(text: &str, figures: &Figures, rates: &[(DriveId, u64)]) -> Option<String> {
    let (mut out, mut measured) = (Vec::new(), Lines::new());
    let (mut drives, mut found) = (0, false);
    for line in text.lines() {
        let bare = line.trim();
        if bare.starts_with('[') {
            flush(&mut out, &mut measured);
            measured = match bare.split('#').next().unwrap_or("").trim() {
                "[drive]" => {
                    found = true;
                    lines(figures)
                }
                "[[drives]]" => {
                    drives += 1;
                    lines_of(DriveId(drives - 1), rates)
                }
                _ => Lines::new(),
            };
        }
        let key = bare.split('=').next().unwrap_or("").trim();
        match measured.iter().position(|(known, _)| *known == key) {
            Some(at) => {
                let (key, value) = measured.remove(at);
                out.push(format!("{key} = {value} # measured"));
            }
            None => out.push(line.to_owned()),
        }
    }
    flush(&mut out, &mut measured);
    found &= rates.iter().all(|(drive, _)| drive.0 < drives);
    found.then(|| out.join("\n") + "\n")
}

/// Puts the keys that the table did not have at its end, before the blank lines and comments that follow it.
fn flush(out: &mut Vec<String>, measured: &mut Lines) {
    let is_rest = |line: &String| line.trim().is_empty() || line.trim().starts_with('#');
    let at = out.len() - out.iter().rev().take_while(|line| is_rest(line)).count();
    let lines = measured.drain(..).map(|(key, value)| format!("{key} = {value} # measured"));
    out.splice(at..at, lines);
}

/// True if `new` describes the same rack as `old`, except for the measured figures.
pub(super) fn is_same_but_for_figures(old: &RackSpec, new: &RackSpec) -> bool {
    let mut same = RackDraft::clone(new);
    let measured = &mut same.profile;
    let before = &old.profile;
    (measured.bytes_per_s, measured.rate_spread, measured.seek) = (before.bytes_per_s, before.rate_spread, before.seek);
    (measured.spin_up, measured.mount) = (before.spin_up, before.mount);
    (measured.unmount, measured.spin_down) = (before.unmount, before.spin_down);
    for (drive, before) in same.drives.iter_mut().zip(&old.drives) {
        drive.bytes_per_s = before.bytes_per_s;
    }
    same == **old
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use model::text::{SHIPPED, parse};

    fn figures() -> Figures {
        let span = |ms| (Duration::from_millis(ms), Duration::from_millis(2 * ms));
        Figures {
            bytes_per_s: 181_234_567,
            zone_permille: 301,
            drive_permille: 7,
            seek: Duration::from_micros(8123),
            spin_up: span(6000),
            mount: span(400),
            unmount: span(100),
            spin_down: (Duration::ZERO, Duration::from_millis(900)),
        }
    }

    #[test]
    fn every_shipped_description_takes_measured_figures_and_stays_what_it_is() {
        for (name, text) in SHIPPED {
            let old = parse(text, name).unwrap();
            let rates: &[(DriveId, u64)] =
                if text.contains("[[drives]]") { &[(DriveId(0), 190_000_000), (DriveId(2), 7)] } else { &[] };
            let changed = with_figures(text, &figures(), rates).unwrap();
            let new = parse(&changed, name).unwrap();
            assert!(is_same_but_for_figures(&old, &new), "{name}");
            let profile = &new.profile;
            assert_eq!((profile.bytes_per_s, profile.seek), (181_234_567, Duration::from_micros(8123)));
            assert_eq!((profile.rate_spread.zone_permille, profile.rate_spread.drive_permille), (301, 7));
            let span = |min, max| (Duration::from_micros(min), Duration::from_micros(max));
            assert_eq!((profile.spin_up.min, profile.spin_up.max), span(6_000_000, 12_000_000));
            assert_eq!((profile.mount.min, profile.mount.max), span(400_000, 800_000));
            assert_eq!((profile.spin_down.min, profile.spin_down.max), span(1, 900_000));
            for drive in &new.drives {
                let rate = rates.iter().find(|(id, _)| *id == drive.id).map(|(_, rate)| *rate);
                assert_eq!(drive.bytes_per_s, rate, "{name}");
            }
            assert_eq!(with_figures(&changed, &figures(), rates).unwrap(), changed, "again changes nothing");
            let kept = |line: &&str| line.trim().starts_with('#');
            assert!(text.lines().filter(kept).all(|line| changed.contains(line)), "comments stay");
        }
    }

    #[test]
    fn another_rack_is_not_the_same() {
        let (name, text) = SHIPPED[0];
        let other = text.replacen("rated_starts = ", "rated_starts = 1", 1);
        let (old, new) = (parse(text, name).unwrap(), parse(&other, name).unwrap());
        assert!(is_same_but_for_figures(&old, &old) && !is_same_but_for_figures(&old, &new));
        assert_eq!(with_figures("name = \"x\"\n", &figures(), &[]), None);
        assert_eq!(with_figures("[drive]\n[[drives]]\n", &figures(), &[(DriveId(1), 1)]), None, "there is no drive 1");
    }
}
