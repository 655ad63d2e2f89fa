//! A picture of a rack: the drives of each class, and those of one group.
//!
//! Drives are drawn by their slots. A rack of several widths has one panel for each width, with depth along x and
//! height along y, like a side view of the chassis. A box whose slots differ in one coordinate is a row.

use super::draw::{Area, Drawn, color, picture, words};
use super::palette::Tone;
use engine::layout::Layout;
use model::{DriveId, GroupId, RackSpec};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use std::collections::BTreeSet;

/// The approximate width of the picture.
const WIDTH: u32 = 1_040;
const MARGIN: u32 = 16;
const HEAD: u32 = 62;
const LINE: u32 = 22;
/// The space of a panel besides its cells: its name above, a gap around.
const PANEL_HEAD: u32 = 24;
const PANEL_GAP: u32 = 24;

/// The picture of `spec` in `layout` as SVG, with the drives of `group` marked.
pub fn rack_picture(spec: &RackSpec, layout: &Layout, group: GroupId) -> String {
    let grid = Grid::within(spec, WIDTH - 2 * MARGIN);
    let title = format!("{}: {} drives", spec.name, spec.drives.len());
    let legend = legend(layout, group);
    let rows = legend.len().div_ceil(3) as u32;
    let height = HEAD + rows * LINE + grid.height() + MARGIN;
    picture(&title, (WIDTH, height), |root| {
        Picture { spec, layout, group, grid, root }.draw(&title, &legend, HEAD + rows * LINE)
    })
}

/// The legend: texts, each with the look of its cell.
fn legend(layout: &Layout, group: GroupId) -> Vec<(String, CellLook)> {
    let mut lines: Vec<(String, CellLook)> = Vec::new();
    for (class, groups) in layout.classes.iter().enumerate() {
        let drives: usize = groups.iter().map(|group| layout.groups[group.index()].drives.len()).sum();
        lines.push((format!("class {class}: {} groups, {drives} drives", groups.len()), CellLook::Member(class)));
    }
    if let Some(marked) = layout.groups.get(group.index()) {
        let class = marked.class.index();
        let text = format!("group {} of class {class}: its {} drives", group.0, marked.drives.len());
        lines.push((text, CellLook::Marked(class)));
    }
    if !layout.spares.is_empty() {
        lines.push((format!("{} drives in no group", layout.spares.len()), CellLook::Spare));
    }
    lines
}

#[derive(Clone, Copy)]
enum CellLook {
    Member(usize),
    Marked(usize),
    Spare,
}

/// The slots, and their size in the picture.
pub(super) struct Grid {
    /// The distinct coordinates of each axis, ascending: panels, columns, rows.
    axes: [Vec<u16>; 3],
    /// The names of these axes, as in rack descriptions.
    names: [&'static str; 3],
    /// The slot coordinate of each of these axes.
    order: [usize; 3],
    cell: u32,
    panels_in_row: u32,
}

impl Grid {
    /// The slots of `spec` in a picture that is `usable` wide.
    pub(super) fn within(spec: &RackSpec, usable: u32) -> Self {
        let distinct = |axis: usize| {
            let values: BTreeSet<u16> = spec.drives.iter().map(|drive| drive.slot[axis]).collect();
            values.into_iter().collect::<Vec<u16>>()
        };
        let all = [distinct(0), distinct(1), distinct(2)];
        // A single row is drawn along x, for any coordinate.
        let order = match (all[1].len(), all[2].len()) {
            (1, 1) => [2, 0, 1],
            _ => [0, 1, 2],
        };
        let names = ["width", "depth", "height"];
        let axes = order.map(|axis| all[axis].clone());
        let columns = axes[1].len() as u32;
        // Up to three panels side by side, so they are wide enough to read; up to six if they are narrow.
        let panels = axes[0].len() as u32;
        let panels_in_row = panels.clamp(1, if columns <= 8 { 6 } else { 3 });
        let cell = ((usable - (panels_in_row - 1) * PANEL_GAP) / (panels_in_row * columns.max(1))).clamp(2, 72);
        Self { axes, names: order.map(|axis| names[axis]), order, cell, panels_in_row }
    }

    fn panel_height(&self) -> u32 {
        PANEL_HEAD + self.axes[2].len() as u32 * self.cell + PANEL_GAP
    }

    /// The edge of a slot's cell.
    pub(super) fn cell(&self) -> u32 {
        self.cell
    }

    pub(super) fn height(&self) -> u32 {
        (self.axes[0].len() as u32).div_ceil(self.panels_in_row) * self.panel_height()
    }

    fn panel_corner(&self, panel: u32) -> (u32, u32) {
        let width = self.axes[1].len() as u32 * self.cell + PANEL_GAP;
        (panel % self.panels_in_row * width, panel / self.panels_in_row * self.panel_height())
    }

    /// The upper left corner of a slot's cell in the grid. The highest row is at the top.
    pub(super) fn corner(&self, slot: [u16; 3]) -> (u32, u32) {
        let rank = |axis: usize| self.axes[axis].partition_point(|value| *value < slot[self.order[axis]]) as u32;
        let (x, y) = self.panel_corner(rank(0));
        let row = self.axes[2].len() as u32 - 1 - rank(2);
        (x + rank(1) * self.cell, y + PANEL_HEAD + row * self.cell)
    }
}

/// A picture to draw.
struct Picture<'a, 'b> {
    spec: &'a RackSpec,
    layout: &'a Layout,
    group: GroupId,
    grid: Grid,
    root: &'a Area<'b>,
}

impl Picture<'_, '_> {
    fn draw(&self, title: &str, legend: &[(String, CellLook)], top: u32) -> Drawn<()> {
        let left = MARGIN.cast_signed();
        self.root.fill(&color(Tone::PAPER))?;
        self.root.draw_text(title, &words(17.0, Tone::INK, HPos::Left, VPos::Top), (left, 10))?;
        let (groups, drives) = (self.layout.active_groups_max(), self.layout.drives_active_max());
        let [_, columns, rows] = self.grid.names;
        let upwards = if self.grid.axes[2].len() > 1 { format!(", {rows} upwards") } else { String::new() };
        let active = format!(
            "One group of each class may be awake: {groups} at once, {drives} drives. Drawn with {columns} from \
             left to right{upwards}."
        );
        self.root.draw_text(&active, &words(13.0, Tone::FAINT, HPos::Left, VPos::Top), (left, 36))?;
        for (index, (text, look)) in legend.iter().enumerate() {
            let x = MARGIN + (index % 3) as u32 * (WIDTH - 2 * MARGIN) / 3;
            let y = HEAD + (index / 3) as u32 * LINE;
            self.cell((x, y), 16, *look, "")?;
            let at = ((x + 24).cast_signed(), (y + 8).cast_signed());
            self.root.draw_text(text, &words(13.0, Tone::INK, HPos::Left, VPos::Center), at)?;
        }
        self.panel_names(top)?;
        for drive in &self.spec.drives {
            let (x, y) = self.grid.corner(drive.slot);
            let look = self.look(drive.id);
            self.cell((x + MARGIN, y + top), self.grid.cell, look, &self.label(drive.id, look))?;
        }
        self.root.present()
    }

    fn panel_names(&self, top: u32) -> Drawn<()> {
        if self.grid.axes[0].len() < 2 {
            return Ok(());
        }
        for (index, value) in self.grid.axes[0].iter().enumerate() {
            let (x, y) = self.grid.panel_corner(index as u32);
            let name = format!("{} {value}", self.grid.names[0]);
            let at = ((x + MARGIN).cast_signed(), (y + top + 4).cast_signed());
            self.root.draw_text(&name, &words(12.0, Tone::FAINT, HPos::Left, VPos::Top), at)?;
        }
        Ok(())
    }

    fn look(&self, drive: DriveId) -> CellLook {
        match self.layout.group_of(drive) {
            None => CellLook::Spare,
            Some(group) if group == self.group => CellLook::Marked(self.layout.groups[group.index()].class.index()),
            Some(group) => CellLook::Member(self.layout.groups[group.index()].class.index()),
        }
    }

    /// The class, if there is room for readable text; with more room also drive and group.
    fn label(&self, drive: DriveId, look: CellLook) -> String {
        match (look, self.grid.cell) {
            (CellLook::Spare, _) | (_, ..14) => String::new(),
            (CellLook::Member(class) | CellLook::Marked(class), ..56) => class.to_string(),
            (CellLook::Member(class) | CellLook::Marked(class), _) => {
                let group = self.layout.group_of(drive).map_or(0, |group| group.0);
                format!("drive {}\nclass {class}\ngroup {group}", drive.0)
            }
        }
    }

    fn cell(&self, (x, y): (u32, u32), size: u32, look: CellLook, label: &str) -> Drawn<()> {
        let gap = u32::from(size > 6);
        let (left, top) = (x.cast_signed(), y.cast_signed());
        let (right, bottom) = ((x + size - 1 - gap).cast_signed(), (y + size - 1 - gap).cast_signed());
        let corners = [(left, top), (right, bottom)];
        let (fill, ink) = match look {
            CellLook::Member(class) => (color(Tone::of_series(class)).mix(0.3), Tone::INK),
            CellLook::Marked(class) => (color(Tone::of_series(class)).mix(1.0), Tone::PAPER),
            CellLook::Spare => (color(Tone::GRID).mix(1.0), Tone::INK),
        };
        self.root.draw(&Rectangle::new(corners, fill.filled()))?;
        if let CellLook::Marked(_) = look {
            self.root.draw(&Rectangle::new(corners, color(Tone::INK).stroke_width(2)))?;
        }
        let lines: Vec<&str> = label.lines().collect();
        let middle = top + (size / 2).cast_signed();
        for (index, line) in lines.iter().enumerate() {
            let above = (lines.len() as u32 - 1) * 7;
            let at =
                (left + (size / 2).cast_signed(), middle + (index as u32 * 14).cast_signed() - above.cast_signed());
            self.root.draw_text(line, &words(10.0, ink, HPos::Center, VPos::Center), at)?;
        }
        Ok(())
    }
}
