//! The rack as the demo draws it: a row for each group, a mark for each drive, the watts of the last seconds.
//!
//! Invariants: no line is wider than [`COLUMNS`]; a frame has the same number of lines as the frame before it, so that
//! it replaces that one.

use crate::human::{count, counted, seconds, watts};
use console::Style;
use engine::layout::Layout;
use server::report::{DriveReport, Status};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

/// The widest line.
pub(super) const COLUMNS: usize = 78;
/// The number of samples of the power that are drawn.
const SAMPLES: usize = 40;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The state of a drive in the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Asleep,
    Moving,
    Spinning,
    Away,
}

impl Mark {
    /// Of the state in a [`DriveReport`].
    fn of(state: &str) -> Self {
        match state {
            "standby" | "waiting for power" => Self::Asleep,
            "ready" | "always on" => Self::Spinning,
            "away" | "failed" | "retired" => Self::Away,
            _ => Self::Moving,
        }
    }

    fn drawn(self, styled: bool) -> String {
        let (mark, style) = match self {
            Self::Asleep => ('·', Style::new().dim()),
            Self::Moving => ('◐', Style::new().yellow()),
            Self::Spinning => ('●', Style::new().green().bold()),
            Self::Away => ('x', Style::new().red()),
        };
        if styled { style.apply_to(mark).to_string() } else { mark.to_string() }
    }
}

/// Draws frames of one rack.
pub(super) struct Drawing {
    title: String,
    /// The groups of each class.
    classes: Vec<Vec<u32>>,
    /// The number of objects that the demo stores.
    objects: u64,
    power: VecDeque<f64>,
    styled: bool,
}

impl Drawing {
    pub(super) fn new(title: String, layout: &Layout, objects: u64, styled: bool) -> Self {
        let classes = layout.classes.iter().map(|groups| groups.iter().map(|group| group.0).collect()).collect();
        Self { title, classes, objects, power: VecDeque::new(), styled }
    }

    /// The frame of this moment.
    pub(super) fn frame(&mut self, status: &Status, drives: &[DriveReport], stored: u64) -> String {
        self.power.push_back(status.power.watts);
        if self.power.len() > SAMPLES {
            self.power.pop_front();
        }
        let mut text = format!("  {}\n\n", self.title);
        self.draw_groups(&mut text, drives);
        let marks = [(Mark::Asleep, "asleep"), (Mark::Moving, "starting or stopping"), (Mark::Spinning, "spinning")];
        let legend: Vec<String> = marks.map(|(mark, word)| format!("{} {word}", mark.drawn(self.styled))).into();
        let _ = writeln!(text, "\n  {}\n", legend.join("   "));
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<8}{value}");
        };
        let power = &status.power;
        let asleep = status.drives.standby;
        let most = count(power.active_drives_max);
        row("drives", format!("{} asleep, {} awake of at most {most}", count(asleep), count(power.active_drives)));
        row("power", format!("{:<8}{}", watts(power.watts), self.bars(power.standby_watts)));
        let moved = stored.saturating_sub(status.workshop.staged_count);
        let staged = count(stored - moved);
        row("files", format!("{staged} in the workshop, {} of {} on drives", count(moved), count(self.objects)));
        let (wall, modelled) = (seconds(status.uptime_s), seconds(status.modelled_s));
        row("time", format!("{wall}, {modelled} of the hardware's"));
        text
    }

    /// A column for each class, a row for each of its groups.
    fn draw_groups(&self, text: &mut String, drives: &[DriveReport]) {
        let mut groups: BTreeMap<u32, Vec<Mark>> = BTreeMap::new();
        for drive in drives {
            groups.entry(drive.group.unwrap_or(u32::MAX)).or_default().push(Mark::of(&drive.state));
        }
        let longest = self.classes.iter().map(Vec::len).max().unwrap_or(0);
        for row in 0..longest {
            let mut line = String::new();
            for group in self.classes.iter().filter_map(|groups| groups.get(row)) {
                let marks = groups.get(group).map_or(&[][..], Vec::as_slice);
                let marks: Vec<String> = marks.iter().map(|mark| mark.drawn(self.styled)).collect();
                let _ = write!(line, "  group {group:>2}  {}     ", marks.join(" "));
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }

    /// The power of the last moments as bars, from that of a sleeping rack on.
    fn bars(&self, least: f64) -> String {
        let most = self.power.iter().copied().fold(least + 1.0, f64::max);
        let bar = |watts: &f64| {
            let share = (watts - least).max(0.0) / (most - least);
            BARS[((share * (BARS.len() - 1) as f64).round() as usize).min(BARS.len() - 1)]
        };
        self.power.iter().map(bar).collect()
    }
}

/// `text` in lines of at most [`COLUMNS`], after a mark that each step has.
pub(super) fn step(number: usize, text: &str) -> String {
    let first = format!("  {number}  ");
    let rest = " ".repeat(first.len());
    let options = textwrap::Options::new(COLUMNS).initial_indent(&first).subsequent_indent(&rest);
    textwrap::fill(text, options) + "\n"
}

/// The number of drives that are awake, as words.
pub(super) fn drives(number: u64) -> String {
    counted(number, "drive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::layout::synthesise;
    use server::data_dir::read_rack;

    fn drive(group: u32, state: &str) -> DriveReport {
        DriveReport { group: Some(group), state: state.into(), ..DriveReport::default() }
    }

    #[test]
    fn a_frame_has_a_row_for_each_group_and_replaces_the_one_before() {
        let (_, spec) = read_rack("nas8").expect("it is shipped");
        let layout = synthesise(&spec).expect("it has a layout");
        let mut drawing = Drawing::new("nas8".into(), &layout, 100, false);
        let mut drives = vec![drive(0, "standby"); 4];
        drives.extend(vec![drive(1, "standby"); 4]);
        let mut status = Status::default();
        (status.power.watts, status.power.standby_watts, status.workshop.staged_count) = (6.4, 6.4, 70);
        let asleep = drawing.frame(&status, &drives, 70);
        assert!(asleep.contains("\n  group  0  · · · ·\n  group  1  · · · ·\n"), "{asleep}");
        assert!(
            asleep.contains("6.4 W   ▁\n") && asleep.contains("70 in the workshop, 0 of 100 on drives"),
            "{asleep}"
        );
        for (at, state) in ["ready", "spinning up", "away"].into_iter().enumerate() {
            drives[4 + at].state = state.into();
        }
        (status.power.watts, status.workshop.staged_count) = (60.0, 20);
        let awake = drawing.frame(&status, &drives, 70);
        assert!(awake.contains("\n  group  1  ● ◐ x ·\n") && awake.contains("60.0 W  ▁█\n"), "{awake}");
        assert!(awake.contains("20 in the workshop, 50 of 100 on drives"), "{awake}");
        assert_eq!(asleep.lines().count(), awake.lines().count());
        assert!(awake.lines().all(|line| line.chars().count() <= COLUMNS), "{awake}");
    }

    #[test]
    fn a_step_is_wrapped_below_its_beginning() {
        let text = step(3, &"word ".repeat(30));
        assert!(text.starts_with("  3  word") && text.lines().nth(1).is_some_and(|line| line.starts_with("     word")));
        assert!(text.lines().all(|line| line.len() <= COLUMNS));
    }
}
