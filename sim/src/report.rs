//! Reports: self-contained figures, tables and pages.
//!
//! - a [`Figure`] is one or more [`Panel`]s that share a legend; [`Figure::svg`] draws it;
//! - a [`Table`] is rows of [`Cell`]s, which [`Table::csv`] writes with every digit and [`Page::html`] in readable
//!   form;
//! - [`rack_picture`] draws a rack with its groups and classes, [`waking_picture`] one that is asleep and then wakes a
//!   group;
//! - a [`Page`] is a document of both, one HTML file without external content.
//!
//! Invariants: the same input gives the same bytes; every text is escaped; a picture has its own background and is
//! readable on light and dark pages; no information is in a colour alone, without a marker or a word.

mod axis;
mod draw;
mod escape;
mod figure;
mod page;
mod palette;
mod rack;
mod table;
mod waking;

pub(crate) use axis::range;
pub use axis::short;
pub use figure::{Axis, Figure, Mark, Panel, Scale, Series, Style};
pub use page::{Page, Section};
pub use palette::Tone;
pub use rack::rack_picture;
pub use table::{Cell, Column, ColumnOf, Table};
pub use waking::waking_picture;
