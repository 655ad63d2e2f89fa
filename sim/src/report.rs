//! Reports: figures, tables and pages that carry everything they need in themselves.
//!
//! - a [`Plate`] is one or more [`Figure`]s that share a legend; [`Plate::svg`] draws it;
//! - a [`Table`] is rows of [`Cell`]s, which [`Table::csv`] writes with every digit and [`Page::html`] as people read
//!   them;
//! - [`rack_picture`] draws a rack with its groups and classes;
//! - a [`Page`] is a document of both, one file of HTML without anything from elsewhere.
//!
//! Invariants: the same input gives the same bytes; every text is escaped; a picture has its own background and is
//! readable on light and on dark ones; a colour never says anything that a marker or a word does not say as well.

mod axis;
mod draw;
mod figure;
mod page;
mod palette;
mod rack;
mod table;

pub use axis::short;
pub use figure::{Axis, Figure, Mark, Plate, Scale, Series, Style};
pub use page::{Page, Section};
pub use palette::Tone;
pub use rack::rack_picture;
pub use table::{Cell, Column, Table};

/// `text` for the inside of an element or attribute of HTML or SVG; control characters, which XML cannot carry, become
/// question marks.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(character),
            other if other.is_control() => out.push('?'),
            other => out.push(other),
        }
    }
    out
}
