//! What a picture shows, before it is drawn.

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equally wide.
    #[default]
    Linear,
    /// Equal factors are equally wide; values of 0 or less are not shown.
    Log,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What is along it, with its unit: `throughput (Gb/s)`.
    pub label: String,
    /// How.
    pub scale: Scale,
    /// From where to where; `None` is wherever there are values, and from 0 on for a linear axis.
    pub range: Option<(f64, f64)>,
    /// The values that are written along it; empty is what suits the range.
    pub ticks: Vec<f64>,
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

    /// The same with these values written along it.
    #[must_use]
    pub fn ticks(self, ticks: impl Into<Vec<f64>>) -> Self {
        Self { ticks: ticks.into(), ..self }
    }

    /// The same from `from` to `to`.
    #[must_use]
    pub fn range(self, from: f64, to: f64) -> Self {
        Self { range: Some((from, to)), ..self }
    }
}

/// A value, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Where along the x axis.
    pub x: f64,
    /// Where along the y axis; what is not finite is a gap in the line.
    pub y: f64,
    /// From where to where it may lie, such as its confidence interval.
    pub spread: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Mark {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, spread: None }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Marks joined by a line: what was measured.
    #[default]
    Line,
    /// Hollow marks joined by dashes: what it is compared with.
    Reference,
    /// A line that goes on level until the next value, without marks: a distribution.
    Steps,
    /// Marks alone.
    Marks,
}

/// Values that belong together. A name that occurs in several figures of a plate has the same colour in all.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// As the legend has it.
    pub name: String,
    /// The values, in the order in which they are joined.
    pub marks: Vec<Mark>,
    /// How they are drawn.
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

    /// `points`, drawn as `style` says.
    pub fn styled(name: impl Into<String>, style: Style, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.into(), marks: points.into_iter().map(Mark::from).collect(), style }
    }
}

/// One picture with two axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Above it.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From the bottom up.
    pub y: Axis,
    /// What it shows.
    pub series: Vec<Series>,
}

/// One or more figures under one title and one legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Plate {
    /// Above all of them.
    pub title: String,
    /// The figures, row by row.
    pub figures: Vec<Figure>,
    /// How many there are in a row; at least 1.
    pub columns: usize,
}

impl Plate {
    /// A plate of one figure, under its title.
    pub fn single(figure: Figure) -> Self {
        let title = figure.title.clone();
        Self { title, figures: vec![Figure { title: String::new(), ..figure }], columns: 1 }
    }

    /// A plate of several figures.
    pub fn new(title: impl Into<String>, columns: usize, figures: Vec<Figure>) -> Self {
        Self { title: title.into(), figures, columns }
    }

    /// The picture as SVG, with nothing from elsewhere in it.
    pub fn svg(&self) -> String {
        super::draw::plate(self)
    }

    /// The names of all series, each once, in the order in which they first occur; with the style they first have.
    pub(super) fn legend(&self) -> Vec<(&str, Style)> {
        let mut names: Vec<(&str, Style)> = Vec::new();
        for series in self.figures.iter().flat_map(|figure| &figure.series) {
            if !names.iter().any(|(name, _)| *name == series.name) {
                names.push((&series.name, series.style));
            }
        }
        names
    }
}
