//! The content of a figure before drawing.

/// The scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps have equal widths.
    #[default]
    Linear,
    /// Equal factors have equal widths; values of 0 or less are not shown.
    Log,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The quantity along it, with its unit: `throughput (Gb/s)`.
    pub label: String,
    /// Its scale.
    pub scale: Scale,
    /// The range; `None` is the range of the values, from 0 for a linear axis.
    pub range: Option<(f64, f64)>,
    /// The labelled values; if empty, values that suit the range.
    pub ticks: Vec<f64>,
    /// The names of the values 0, 1, and so on, which are shown instead of the values.
    pub names: Vec<String>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log, ..Self::default() }
    }

    /// An axis of named things, at 0, 1, and so on.
    pub fn named(label: impl Into<String>, names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<String> = names.into_iter().collect();
        let last = names.len() as f64 - 1.0;
        let ticks = (0..names.len()).map(|at| at as f64).collect();
        Self { label: label.into(), range: Some((-0.5, last + 0.5)), ticks, names, ..Self::default() }
    }

    /// The axis with labels at these values.
    #[must_use]
    pub fn ticks(self, ticks: impl Into<Vec<f64>>) -> Self {
        Self { ticks: ticks.into(), ..self }
    }

    /// The axis with the range from `from` to `to`.
    #[must_use]
    pub fn range(self, from: f64, to: f64) -> Self {
        Self { range: Some((from, to)), ..self }
    }
}

/// A value with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// The position along the x axis.
    pub x: f64,
    /// The position along the y axis; a value that is not finite is a gap in the line.
    pub y: f64,
    /// The ends of an interval that contains the value.
    pub spread: Option<(f64, f64)>,
    /// True if the value depends on the time of its measurement; it is drawn hollow.
    pub unsettled: bool,
}

impl From<(f64, f64)> for Mark {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, spread: None, unsettled: false }
    }
}

/// The style of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Marks joined by a line, for measurements.
    #[default]
    Line,
    /// Hollow marks joined by dashes, for values to compare with.
    Reference,
    /// A line that stays level until the next value, without marks, for a distribution.
    Steps,
    /// Separate crosses, for single numbers to compare with.
    Crosses,
    /// Bars from 0 up for named things; the width is in hundredths of the axis' unit.
    Bars(u8),
}

/// Values that belong together. A name that occurs in several panels of a figure has the same colour in all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The values, in the order of the line.
    pub marks: Vec<Mark>,
    /// Their style.
    pub style: Style,
}

impl Series {
    /// A line through `points`.
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::styled(name, Style::Line, points)
    }

    /// A reference through `points`.
    pub fn reference(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::styled(name, Style::Reference, points)
    }

    /// Groups of bars side by side on an axis of named things: each series has a value for each thing.
    pub fn bars<const N: usize>(series: [(String, Vec<Mark>); N]) -> Vec<Self> {
        const GROUP: f64 = 0.8;
        let width = GROUP / N as f64;
        let placed = |(index, (name, marks)): (usize, (String, Vec<Mark>))| {
            let aside = (index as f64 + 0.5) * width - GROUP / 2.0;
            let marks = marks.into_iter().map(|mark| Mark { x: mark.x + aside, ..mark }).collect();
            Self { name, marks, style: Style::Bars((width * 90.0) as u8) }
        };
        series.into_iter().enumerate().map(placed).collect()
    }

    /// `points` in this style.
    pub fn styled(name: impl Into<String>, style: Style, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.into(), marks: points.into_iter().map(Mark::from).collect(), style }
    }
}

/// One plot with two axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// The title above it.
    pub title: String,
    /// The axis from left to right.
    pub x: Axis,
    /// The axis from the bottom up.
    pub y: Axis,
    /// The series in the plot.
    pub series: Vec<Series>,
}

impl Panel {
    /// A panel of these axes and series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { title: title.into(), x, y, series }
    }
}

/// One or more panels under one title and one legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The title above all panels.
    pub title: String,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// The number of panels in a row; at least 1.
    pub columns: usize,
}

impl Figure {
    /// A figure of these panels.
    pub fn new(title: impl Into<String>, columns: usize, panels: Vec<Panel>) -> Self {
        Self { title: title.into(), panels, columns }
    }

    /// True if one of its values had not settled.
    pub(super) fn has_unsettled(&self) -> bool {
        let series = self.panels.iter().flat_map(|panel| &panel.series);
        series.flat_map(|series| &series.marks).any(|mark| mark.unsettled)
    }

    /// The names of all series, each once, in the order of first occurrence, with the style of that occurrence.
    pub(super) fn legend(&self) -> Vec<(&str, Style)> {
        let mut names: Vec<(&str, Style)> = Vec::new();
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            if !names.iter().any(|(name, _)| *name == series.name) {
                names.push((&series.name, series.style));
            }
        }
        names
    }
}
