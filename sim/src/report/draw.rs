//! Draws figures with `plotters`, as SVG.
//!
//! A figure is a title, a legend with wrapping rows, and its panels in a grid. All sizes are in pixels; the picture
//! scales.

use super::axis::{LabelRoom, Laid};
use super::escape::escaped;
use super::figure::{Axis, Figure, Panel, Series, Style};
use super::palette::{Tone, dark_twins};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn<T> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

/// The width and height of a single panel; panels in a row are narrower.
const ALONE: (u32, u32) = (820, 440);
const IN_ROW: (u32, u32) = (540, 350);
const TITLE_HEIGHT: u32 = 36;
/// The margin above a legend without a title.
const HEAD_MARGIN: u32 = 6;
const LEGEND_ROW_HEIGHT: u32 = 22;
/// The approximate width of a character that is 13 pixels high.
const CHARACTER_WIDTH: f64 = 7.0;
const FONT: &str = "system-ui, sans-serif";

/// The library divides text sizes by this number when it writes SVG.
const TEXT_SCALE: f64 = 1.24;

pub(super) fn color(tone: Tone) -> RGBColor {
    let [red, green, blue] = tone.light;
    RGBColor(red, green, blue)
}

pub(super) fn words(pixels: f64, tone: Tone, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    (FONT, pixels * TEXT_SCALE).into_font().color(&color(tone)).pos(Pos::new(horizontal, vertical))
}

impl Figure {
    /// The figure as SVG without external references.
    pub fn svg(&self) -> String {
        let columns = self.columns.max(1);
        let panel_size = if columns == 1 { ALONE } else { IN_ROW };
        let width = panel_size.0 * columns as u32;
        let legend = Legend::new(self, f64::from(width));
        let head = legend.top + legend.rows() * LEGEND_ROW_HEIGHT;
        let height = head + panel_size.1 * self.panels.len().div_ceil(columns) as u32;
        picture(&self.title, (width, height), |root| self.draw(&legend, root, head, panel_size))
    }

    fn draw(&self, legend: &Legend<'_>, root: &Area<'_>, head: u32, (width, height): (u32, u32)) -> Drawn<()> {
        root.fill(&color(Tone::PAPER))?;
        let title = words(17.0, Tone::INK, HPos::Left, VPos::Top).transform(FontTransform::None);
        root.draw_text(&self.title, &title, (14, 10))?;
        legend.draw(root)?;
        let columns = self.columns.max(1);
        for (index, panel) in self.panels.iter().enumerate() {
            let (row, column) = ((index / columns) as u32, (index % columns) as u32);
            let corner = ((column * width).cast_signed(), (head + row * height).cast_signed());
            let area = root.clone().shrink(corner, (width, height));
            Chart { root, legend, panel }.draw(&area)?;
        }
        root.present()
    }
}

/// A picture of this size as SVG, with a title for screen readers and its colours for dark pages.
pub(super) fn picture(title: &str, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn<()>) -> String {
    let mut svg = String::new();
    let drawn = draw(&SVGBackend::with_string(&mut svg, size).into_drawing_area());
    assert!(drawn.is_ok(), "a picture of this layout can be drawn into memory: {drawn:?}");
    let (opening, rest) = svg.split_once('>').unwrap_or((&svg, ""));
    let title = escaped(title);
    format!("{opening} role=\"img\"><title>{title}</title><style>{}</style>{rest}", dark_twins())
}

/// The legend of hollow marks.
const UNSETTLED: &str = "hollow: had not settled";

/// The names of all series, with their places.
struct Legend<'a> {
    entries: Vec<LegendEntry<'a>>,
    /// The place of the note on hollow marks, if the figure has hollow marks.
    unsettled: Option<(i32, u32)>,
    /// The top edge of the legend, below the title.
    top: u32,
}

struct LegendEntry<'a> {
    name: &'a str,
    style: Style,
    x: i32,
    row: u32,
}

impl<'a> Legend<'a> {
    fn new(figure: &'a Figure, width: f64) -> Self {
        let (mut x, mut row) = (14.0, 0);
        let mut place = |name: &str| {
            let needs = 46.0 + name.chars().count() as f64 * CHARACTER_WIDTH;
            if x + needs > width && x > 14.0 {
                (x, row) = (14.0, row + 1);
            }
            let place = (x as i32, row);
            x += needs;
            place
        };
        let mut entries = Vec::new();
        for (name, style) in figure.legend() {
            let (x, row) = place(name);
            entries.push(LegendEntry { name, style, x, row });
        }
        let unsettled = figure.has_unsettled().then(|| place(UNSETTLED));
        let top = if figure.title.is_empty() { HEAD_MARGIN } else { TITLE_HEIGHT };
        Self { entries, unsettled, top }
    }

    /// The number of rows. A single series needs no legend: the axis has its name.
    fn rows(&self) -> u32 {
        let named = self.entries.last().filter(|_| self.entries.len() > 1 || self.unsettled.is_some());
        self.unsettled.map(|(_, row)| row).or(named.map(|entry| entry.row)).map_or(0, |row| row + 1)
    }

    fn index(&self, name: &str) -> usize {
        self.entries.iter().position(|entry| entry.name == name).unwrap_or(0)
    }

    fn draw(&self, root: &Area<'_>) -> Drawn<()> {
        if self.rows() == 0 {
            return Ok(());
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let y = self.middle(entry.row);
            let pen = Pen::new(index, entry.style);
            pen.join(root, &[(entry.x, y), (entry.x + 26, y)])?;
            pen.mark(root, (entry.x + 13, y), false)?;
            Self::name(root, entry.name, (entry.x, y))?;
        }
        if let Some((x, row)) = self.unsettled {
            let faint = Pen { index: 0, color: color(Tone::FAINT), style: Style::Line };
            faint.mark(root, (x + 13, self.middle(row)), true)?;
            Self::name(root, UNSETTLED, (x, self.middle(row)))?;
        }
        Ok(())
    }

    /// The vertical middle of a row.
    fn middle(&self, row: u32) -> i32 {
        (self.top + row * LEGEND_ROW_HEIGHT + LEGEND_ROW_HEIGHT / 2).cast_signed()
    }

    fn name(root: &Area<'_>, name: &str, (x, y): (i32, i32)) -> Drawn<()> {
        root.draw_text(name, &words(13.0, Tone::INK, HPos::Left, VPos::Center), (x + 32, y))
    }
}

/// The look of one series.
#[derive(Clone, Copy)]
struct Pen {
    index: usize,
    color: RGBColor,
    style: Style,
}

impl Pen {
    fn new(index: usize, style: Style) -> Self {
        Self { index, color: color(Tone::of_series(index)), style }
    }

    fn join(self, root: &Area<'_>, points: &[(i32, i32)]) -> Drawn<()> {
        let line = self.color.stroke_width(2);
        match self.style {
            Style::Line | Style::Steps => root.draw(&PathElement::new(points.to_vec(), line)),
            Style::Reference => {
                for (from, to) in dashes(points) {
                    root.draw(&PathElement::new(vec![from, to], line))?;
                }
                Ok(())
            }
            Style::Crosses | Style::Bars(_) => Ok(()),
        }
    }

    fn mark(self, root: &Area<'_>, (x, y): (i32, i32), hollow: bool) -> Drawn<()> {
        match self.style {
            Style::Steps => return Ok(()),
            Style::Crosses => return self.cross(root, (x, y)),
            // This is for the legend; bars in a plot have their own length.
            Style::Bars(_) => return self.bar(root, (x - 9, x + 9), (y - 6, y + 6)),
            Style::Line | Style::Reference => {}
        }
        let hollow = hollow || self.style == Style::Reference;
        let shape: &[(i32, i32)] = match self.index % 5 {
            0 => return self.disc(root, (x, y), hollow),
            1 => &[(0, -5), (5, 4), (-5, 4)],
            2 => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
            3 => &[(0, -6), (5, 0), (0, 6), (-5, 0)],
            _ => &[(0, 5), (5, -4), (-5, -4)],
        };
        let corners: Vec<(i32, i32)> = shape.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        let fill = if hollow { color(Tone::PAPER) } else { self.color };
        root.draw(&Polygon::new(corners.clone(), fill.filled()))?;
        let closed = corners.iter().chain(corners.first()).copied().collect::<Vec<_>>();
        root.draw(&PathElement::new(closed, self.color.stroke_width(1)))
    }

    fn bar(self, root: &Area<'_>, (left, right): (i32, i32), (top, bottom): (i32, i32)) -> Drawn<()> {
        root.draw(&Rectangle::new([(left, top), (right, bottom)], self.color.filled()))
    }

    /// The ends of an interval in ink, which stands out from both bar and paper.
    fn whisker_on_bar(self, root: &Area<'_>, x: i32, low: i32, high: i32) -> Drawn<()> {
        Self { color: color(Tone::INK), ..self }.whisker(root, x, low, high)
    }

    fn cross(self, root: &Area<'_>, (x, y): (i32, i32)) -> Drawn<()> {
        let line = self.color.stroke_width(2);
        root.draw(&PathElement::new(vec![(x - 5, y - 5), (x + 5, y + 5)], line))?;
        root.draw(&PathElement::new(vec![(x - 5, y + 5), (x + 5, y - 5)], line))
    }

    fn disc(self, root: &Area<'_>, center: (i32, i32), hollow: bool) -> Drawn<()> {
        if !hollow {
            return root.draw(&Circle::new(center, 4, self.color.filled()));
        }
        root.draw(&Circle::new(center, 4, color(Tone::PAPER).filled()))?;
        root.draw(&Circle::new(center, 4, self.color.stroke_width(1)))
    }

    fn whisker(self, root: &Area<'_>, x: i32, low: i32, high: i32) -> Drawn<()> {
        let line = self.color.stroke_width(1);
        root.draw(&PathElement::new(vec![(x, low), (x, high)], line))?;
        root.draw(&PathElement::new(vec![(x - 3, low), (x + 3, low)], line))?;
        root.draw(&PathElement::new(vec![(x - 3, high), (x + 3, high)], line))
    }
}

/// Pieces of 6 pixels with 4 between them, along `points`.
fn dashes(points: &[(i32, i32)]) -> Vec<((i32, i32), (i32, i32))> {
    const PERIOD: f64 = 10.0;
    const DASH: f64 = 6.0;
    let (mut pieces, mut phase) = (Vec::new(), 0.0_f64);
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let (dx, dy) = (f64::from(x1 - x0), f64::from(y1 - y0));
        let length = dx.hypot(dy);
        let at = |way: f64| {
            let share = (way / length).clamp(0.0, 1.0);
            (x0 + (dx * share).round() as i32, y0 + (dy * share).round() as i32)
        };
        let mut way = -phase;
        while length > 0.0 && way < length {
            if way + DASH > 0.0 {
                pieces.push((at(way), at(way + DASH)));
            }
            way += PERIOD;
        }
        phase = (phase + length) % PERIOD;
    }
    pieces
}

/// An axis for the library: a range with given ticks.
impl Ranged for Laid {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|tick| tick.at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Laid {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|tick| (tick.at - value).abs() < 1e-12);
        tick.map(|tick| tick.label.clone()).unwrap_or_default()
    }
}

/// A panel to draw into its area. Marks are drawn on the root, in pixels.
struct Chart<'a, 'b> {
    root: &'a Area<'b>,
    legend: &'a Legend<'a>,
    panel: &'a Panel,
}

impl<'b> Chart<'_, 'b> {
    fn draw(&self, area: &Area<'b>) -> Drawn<()> {
        let (width, height) = area.dim_in_pixel();
        let (x, y) = self.axes(f64::from(width), f64::from(height));
        let widest = y.ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(1);
        let mut builder = ChartBuilder::on(area);
        // The last label is centred on the end of its axis, or close to it.
        let last = x.ticks.last().map_or(0, |tick| tick.label.chars().count());
        builder
            .margin_right(14 + (last as f64 * CHARACTER_WIDTH / 2.0) as u32)
            .margin_bottom(6)
            .margin_left(6)
            .margin_top(8);
        builder.x_label_area_size(46).y_label_area_size(30 + (widest as f64 * CHARACTER_WIDTH) as u32);
        if !self.panel.title.is_empty() {
            builder.caption(&self.panel.title, words(14.0, Tone::INK, HPos::Left, VPos::Top));
        }
        let mut chart = builder.build_cartesian_2d(x.clone(), y.clone())?;
        chart
            .configure_mesh()
            .bold_line_style(color(Tone::GRID))
            .light_line_style(color(Tone::GRID))
            .axis_style(color(Tone::FAINT))
            .label_style(words(12.0, Tone::INK, HPos::Center, VPos::Center))
            .axis_desc_style(words(13.0, Tone::INK, HPos::Center, VPos::Center))
            .x_desc(&self.panel.x.label)
            .y_desc(&self.panel.y.label)
            .draw()?;
        let plot = chart.plotting_area();
        for series in &self.panel.series {
            self.series(series, plot, &x, &y)?;
        }
        Ok(())
    }

    fn axes(&self, width: f64, height: f64) -> (Laid, Laid) {
        let marks = self.panel.series.iter().flat_map(|series| &series.marks);
        let across = LabelRoom { pixels: width - 90.0, side_by_side: true, margin: true };
        let x = Laid::new(&with_own_ticks(&self.panel.x, self.panel), marks.clone().map(|mark| mark.x), across);
        let ends = marks.flat_map(|mark| [Some(mark.y), mark.spread.map(|s| s.0), mark.spread.map(|s| s.1)]);
        let up = LabelRoom { pixels: height - 80.0, side_by_side: false, margin: false };
        (x, Laid::new(&self.panel.y, ends.flatten(), up))
    }

    fn series(
        &self,
        series: &Series,
        plot: &DrawingArea<SVGBackend<'b>, Cartesian2d<Laid, Laid>>,
        x: &Laid,
        y: &Laid,
    ) -> Drawn<()> {
        let pen = Pen::new(self.legend.index(&series.name), series.style);
        let pixel = |at_x: f64, at_y: f64| Some(plot.map_coordinate(&(x.at(at_x)?, y.at(at_y)?)));
        let points: Vec<Option<(i32, i32)>> = series.marks.iter().map(|mark| pixel(mark.x, mark.y)).collect();
        for run in points.split(Option::is_none) {
            let run: Vec<(i32, i32)> = run.iter().copied().flatten().collect();
            if run.len() > 1 {
                pen.join(self.root, &if series.style == Style::Steps { stairs(&run) } else { run })?;
            }
        }
        if let Style::Bars(width) = series.style {
            let half = f64::from(width) / 200.0;
            let floor = plot.map_coordinate(&(x.from, y.from)).1;
            for (mark, point) in series.marks.iter().zip(&points) {
                let (Some(top), Some(from), Some(to)) =
                    (*point, pixel(mark.x - half, mark.y), pixel(mark.x + half, mark.y))
                else {
                    continue;
                };
                pen.bar(self.root, (from.0, to.0), (top.1, floor))?;
                let ends = mark.spread.and_then(|(low, high)| Some((pixel(mark.x, low)?, pixel(mark.x, high)?)));
                if let Some((low, high)) = ends.filter(|(low, high)| low.1 - high.1 > 3) {
                    pen.whisker_on_bar(self.root, top.0, low.1, high.1)?;
                }
            }
            return Ok(());
        }
        for (mark, point) in series.marks.iter().zip(&points) {
            let Some(point) = *point else { continue };
            if let Some((low, high)) = mark.spread
                && let (Some(low), Some(high)) = (pixel(mark.x, low), pixel(mark.x, high))
                && low.1 - high.1 > 8
            {
                pen.whisker(self.root, point.0, low.1, high.1)?;
            }
            pen.mark(self.root, point, mark.unsettled)?;
        }
        Ok(())
    }
}

/// The axis labelled with the panel's x values, if they are few.
fn with_own_ticks(axis: &Axis, panel: &Panel) -> Axis {
    let mut values: Vec<f64> = panel.series.iter().flat_map(|series| series.marks.iter().map(|mark| mark.x)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let few = (2..=10).contains(&values.len());
    if axis.ticks.is_empty() && few { axis.clone().ticks(values) } else { axis.clone() }
}

/// A line that reaches each point at the level of the point before.
fn stairs(points: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let first = points.first().copied();
    let rest = points.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    first.into_iter().chain(rest).collect()
}
