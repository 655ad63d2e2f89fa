//! The range of an axis, and the labels along it.

use super::figure::{Axis, Scale};

/// An axis with its layout: positions are values on a linear axis and their logarithms on a logarithmic one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Laid {
    pub from: f64,
    pub to: f64,
    pub ticks: Vec<Tick>,
    scale: Scale,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub at: f64,
    pub label: String,
}

impl Laid {
    /// Lays out `axis` for these values in this space.
    pub fn new(axis: &Axis, values: impl Iterator<Item = f64> + Clone, room: LabelRoom) -> Self {
        let (low, high) = axis.range.unwrap_or_else(|| found(axis.scale, values));
        let at = |value| position(axis.scale, value).unwrap_or(0.0);
        let (mut from, mut to) = (at(low), at(high));
        if to <= from {
            to = from + 1.0;
        }
        if axis.range.is_none() {
            let spare = (to - from) * 0.04;
            to += spare;
            if room.margin || axis.scale == Scale::Log || from > 0.0 {
                from -= spare;
            }
        }
        assert!(from < to, "an axis goes from {from} to {to}");
        let values = if axis.ticks.is_empty() { suited(axis.scale, low, high) } else { axis.ticks.clone() };
        let label = |value: f64| axis.names.get(value as usize).cloned().unwrap_or_else(|| short(value));
        let tick = |value: f64| Some(Tick { at: position(axis.scale, value)?, label: label(value) });
        let mut ticks: Vec<Tick> = values.into_iter().filter_map(tick).collect();
        ticks.retain(|tick| tick.at >= from - 1e-9 && tick.at <= to + 1e-9);
        let mut laid = Self { from, to, ticks, scale: axis.scale };
        laid.thin(room);
        laid
    }

    /// The position of `value`, if it is on the axis.
    pub fn at(&self, value: f64) -> Option<f64> {
        let at = position(self.scale, value)?;
        let slack = (self.to - self.from) * 1e-6;
        (at >= self.from - slack && at <= self.to + slack).then_some(at)
    }

    /// Drops labels that would overlap the label before.
    fn thin(&mut self, room: LabelRoom) {
        let pixels = |at: f64| (at - self.from) / (self.to - self.from) * room.pixels;
        let mut end = f64::NEG_INFINITY;
        self.ticks.retain(|tick| {
            let half = room.half(&tick.label);
            let fits = pixels(tick.at) - half > end;
            if fits {
                end = pixels(tick.at) + half + 6.0;
            }
            fits
        });
    }
}

/// The space for labels along an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelRoom {
    /// The length of the axis.
    pub pixels: f64,
    /// True if labels are side by side, so their length counts; false if one is above the other.
    pub side_by_side: bool,
    /// True if the first value needs a margin to the beginning of the axis.
    pub margin: bool,
}

impl LabelRoom {
    fn half(self, label: &str) -> f64 {
        if self.side_by_side { label.chars().count() as f64 * 3.5 } else { 6.0 }
    }
}

fn position(scale: Scale, value: f64) -> Option<f64> {
    match scale {
        Scale::Linear => value.is_finite().then_some(value),
        Scale::Log => (value > 0.0 && value.is_finite()).then(|| value.log10()),
    }
}

/// The least value of a linear axis that does not begin at 0, as a share of the greatest: values this close to each
/// other would look equal.
const NEAR_EACH_OTHER: f64 = 0.6;

/// The range of the values that can be shown; a linear axis begins at 0 unless a value is negative, or all values are
/// close to each other and far from 0.
fn found(scale: Scale, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = range(values.filter(|value| position(scale, *value).is_some()));
    if low > high {
        return if scale == Scale::Log { (1.0, 10.0) } else { (0.0, 1.0) };
    }
    match scale {
        Scale::Log if high / low < 1.001 => (low / 2.0, high * 2.0),
        Scale::Linear if low > high * NEAR_EACH_OTHER && low < high => (low, high),
        Scale::Linear if low >= 0.0 => (0.0, if high > 0.0 { high } else { 1.0 }),
        Scale::Log | Scale::Linear => (low, high),
    }
}

/// The least and the greatest value of `values`.
pub(crate) fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    values.into_iter().fold(ends, |(least, most), value| (least.min(value), most.max(value)))
}

fn suited(scale: Scale, low: f64, high: f64) -> Vec<f64> {
    match scale {
        Scale::Log if high / low >= 3.0 => suited_log(low, high),
        _ => suited_linear(low, high),
    }
}

/// Multiples of 1, 2 or 5 times a power of ten, about six values.
fn suited_linear(low: f64, high: f64) -> Vec<f64> {
    let rough = ((high - low) / 6.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough);
    let step = step.unwrap_or(power * 10.0);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last.min(first + 20)).map(|times| times as f64 * step).collect()
}

/// Powers of ten; a short range has some of their multiples, too.
fn suited_log(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let every = usize::try_from((last - first) / 8 + 1).unwrap_or(1);
    let between: &[f64] = match high / low {
        ..30.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        ..=1000.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let decades = (first..=last).step_by(every);
    decades.flat_map(|power| between.iter().map(move |times| times * 10_f64.powi(power))).collect()
}

/// A short form of a number: `0.0625`, `1.5`, `24,000`, `3e-7`.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "-".to_owned();
    }
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{value:e}");
    }
    let decimals = match size {
        _ if size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 1.0 => 2,
        _ => 4,
    };
    let fixed = format!("{value:.decimals$}");
    let trimmed = if fixed.contains('.') { fixed.trim_end_matches('0').trim_end_matches('.') } else { &fixed };
    let (whole, fraction) = trimmed.split_once('.').map_or((trimmed, None), |(whole, part)| (whole, Some(part)));
    let digits = whole.trim_start_matches('-');
    let mut grouped = String::from(if whole.starts_with('-') { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        Some(part) => format!("{grouped}.{part}"),
        None => grouped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: LabelRoom = LabelRoom { pixels: 400.0, side_by_side: true, margin: true };

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        Laid::new(axis, values.iter().copied(), WIDE).ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn numbers_are_short() {
        for (value, shown) in [
            (0.0, "0"),
            (0.0625, "0.0625"),
            (1.0, "1"),
            (1.5, "1.5"),
            (14.234, "14.2"),
            (-1234.5, "-1,234"),
            (24_000.0, "24,000"),
            (1_234_567.0, "1,234,567"),
            (3e-7, "3e-7"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(short(value), shown);
        }
    }

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(labels(&Axis::linear("x"), &[0.3, 8.0]), ["0", "2", "4", "6", "8"]);
        assert_eq!(labels(&Axis::linear("x"), &[29.0, 32.0]), ["29", "29.5", "30", "30.5", "31", "31.5", "32"]);
        assert_eq!(
            labels(&Axis::log("x"), &[0.1, 100.0]),
            ["0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50", "100"]
        );
        assert_eq!(labels(&Axis::log("x"), &[1.0, 1e5]), ["1", "10", "100", "1,000", "10,000", "100,000"]);
        assert_eq!(labels(&Axis::log("x").ticks([0.0625, 1.0, 8.0]), &[0.0625, 8.0]), ["0.0625", "1", "8"]);
    }

    #[test]
    fn labels_never_run_into_each_other() {
        let crowded: Vec<f64> = (1..=400).map(f64::from).collect();
        let laid = Laid::new(&Axis::linear("x").ticks(crowded.clone()), crowded.iter().copied(), WIDE);
        assert!(laid.ticks.len() > 5 && laid.ticks.len() < 30, "{}", laid.ticks.len());
    }

    #[test]
    fn what_cannot_be_shown_has_no_place() {
        let laid = Laid::new(&Axis::log("x"), [0.0, 1.0, 10.0].into_iter(), WIDE);
        assert_eq!((laid.at(0.0), laid.at(f64::NAN), laid.at(1e9)), (None, None, None));
        assert_eq!(laid.at(10.0), Some(1.0));
        let nothing = Laid::new(&Axis::linear("x"), std::iter::empty(), WIDE);
        assert!(nothing.from < nothing.to && !nothing.ticks.is_empty());
        let same = Laid::new(&Axis::log("x"), [5.0].into_iter(), WIDE);
        assert!(same.from < same.to);
    }
}
