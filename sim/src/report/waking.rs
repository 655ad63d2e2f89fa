//! A picture of a rack at two moments: all its drives that can sleep are asleep, and a read has woken one group.

use super::draw::{Area, Drawn, color, picture, words};
use super::palette::Tone;
use super::rack::Grid;
use engine::layout::Layout;
use model::{DriveId, GroupId, RackSpec};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

const MARGIN: u32 = 16;
/// The width of one moment.
const HALF: u32 = 490;
const WIDTH: u32 = 2 * HALF + 4 * MARGIN;
const HEAD: u32 = 84;

/// The picture of `spec` in `layout` as SVG: asleep on the left, and with `group` awake on the right.
///
/// # Panics
/// If the layout has no such group.
pub fn waking_picture(spec: &RackSpec, layout: &Layout, group: GroupId) -> String {
    let always_on: Vec<DriveId> =
        spec.drives.iter().map(|drive| drive.id).filter(|id| spec.is_always_on(*id)).collect();
    let members = layout.groups[group.index()].drives.iter().copied();
    let started: Vec<DriveId> = members.filter(|drive| !spec.is_always_on(*drive)).collect();
    let awake: Vec<DriveId> = always_on.iter().chain(&started).copied().collect();
    let watts = &spec.profile.watts;
    let asleep_mw = layout.asleep_mw(spec);
    let awake_mw = asleep_mw + started.len() as u64 * u64::from(watts.active_mw.saturating_sub(watts.standby_mw));
    let grid = Grid::within(spec, HALF);
    let title = format!("{}: {} drives, asleep and while group {} is awake", spec.name, spec.drives.len(), group.0);
    let height = HEAD + grid.height() + MARGIN;
    let moments = [
        Moment { left: MARGIN, title: "Asleep".into(), fact: power(asleep_mw, always_on.len()), awake: &always_on },
        Moment {
            left: HALF + 3 * MARGIN,
            title: format!("A read wakes group {}", group.0),
            fact: power(awake_mw, awake.len()),
            awake: &awake,
        },
    ];
    picture(&title, (WIDTH, height), |root| {
        root.fill(&color(Tone::PAPER))?;
        root.draw_text(
            &format!("{}: {} drives", spec.name, spec.drives.len()),
            &words(17.0, Tone::INK, HPos::Left, VPos::Top),
            (MARGIN.cast_signed(), 10),
        )?;
        moments.iter().try_for_each(|moment| moment.draw(root, spec, &grid))?;
        root.present()
    })
}

fn power(milliwatts: u64, awake: usize) -> String {
    let spinning = match awake {
        0 => "no drive spins".to_owned(),
        1 => "1 drive spins".to_owned(),
        _ => format!("{awake} drives spin"),
    };
    let watts = format!("{:.0}", milliwatts as f64 / 1000.0);
    let watts = watts.len().checked_sub(3).filter(|at| *at > 0).map_or(watts.clone(), |at| {
        let (thousands, rest) = watts.split_at(at);
        format!("{thousands},{rest}")
    });
    format!("{spinning}, all drives draw {watts} W")
}

/// The rack at one moment.
struct Moment<'a> {
    left: u32,
    title: String,
    fact: String,
    awake: &'a [DriveId],
}

impl Moment<'_> {
    fn draw(&self, root: &Area<'_>, spec: &RackSpec, grid: &Grid) -> Drawn<()> {
        let left = self.left.cast_signed();
        root.draw_text(&self.title, &words(14.0, Tone::INK, HPos::Left, VPos::Top), (left, 40))?;
        root.draw_text(&self.fact, &words(13.0, Tone::FAINT, HPos::Left, VPos::Top), (left, 60))?;
        for drive in &spec.drives {
            let (x, y) = grid.corner(drive.slot);
            let (x, y) = (left + x.cast_signed(), (y + HEAD).cast_signed());
            let end = grid.cell().cast_signed() - 2;
            let corners = [(x, y), (x + end, y + end)];
            let is_awake = self.awake.contains(&drive.id);
            let fill = if is_awake { color(Tone::of_series(1)).mix(1.0) } else { color(Tone::FAINT).mix(0.35) };
            root.draw(&Rectangle::new(corners, fill.filled()))?;
            if is_awake {
                root.draw(&Rectangle::new(corners, color(Tone::INK).stroke_width(1)))?;
            }
        }
        Ok(())
    }
}
