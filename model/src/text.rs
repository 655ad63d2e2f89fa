//! Reads and writes rack descriptions; [`write()`] writes them. `docs/reference/racks.md` is the grammar for people.
//!
//! 1. The TOML parser builds a tree whose keys and values have their places in the text.
//! 2. `rack` makes a [`RackDraft`](crate::RackDraft) from it; unknown keys, wrong types and wrong units are errors at
//!    their place.
//! 3. [`RackSpec::validated`] checks the draft. If it fails, the place of the key in the error is looked up in the
//!    tree.
//!
//! Invariants:
//! - Every error has file, line and column, the fault, and then the text to write instead.
//! - No input makes it panic. The maximum number of drives of a rack bounds memory, regardless of the numbers in the
//!   text.

#![cfg(feature = "toml")]

mod drives;
mod fault;
mod power;
mod rack;
#[cfg(test)]
mod tests;
mod tree;
mod units;
mod write;

pub use fault::{TextError, line_and_column};
pub use tree::nearest;
pub use write::write;

use crate::rack::RackSpec;
use alloc::string::String;
use core::time::Duration;
use fault::Fault;
use toml::de::DeTable;

/// The descriptions shipped with Larder: name and text.
pub const SHIPPED: [(&str, &str); 3] = [
    ("pelican", include_str!("../../racks/pelican.toml")),
    ("pelican-mini", include_str!("../../racks/pelican-mini.toml")),
    ("nas8", include_str!("../../racks/nas8.toml")),
];

/// Returns the rack that `text` describes. `origin` names the text in messages, for example by the path of its file.
///
/// # Errors
/// The first fault, with its line and column.
pub fn parse(text: &str, origin: &str) -> Result<RackSpec, TextError> {
    parse_at(text).map_err(|fault| fault.located(text, origin))
}

/// Returns the error `message` at the value of `key` (for example `group_drives`), for a valid description that cannot
/// be used; `origin` as for [`parse`].
pub fn complaint(text: &str, origin: &str, key: &str, message: String) -> TextError {
    let span = DeTable::parse(text).map_or(0..0, |root| tree::locate(root.get_ref(), key));
    Fault { span, message }.located(text, origin)
}

fn parse_at(text: &str) -> Result<RackSpec, Fault> {
    let root = DeTable::parse(text).map_err(|error| {
        let what = error.message().replace('\n', ", ");
        Fault::new(
            error.span().unwrap_or(0..0),
            alloc::format!("this is not TOML: {what}; write key = value, with text in \"quotes\""),
        )
    })?;
    let draft = rack::draft(root.get_ref())?;
    RackSpec::validated(draft).map_err(|error| Fault::new(tree::locate(root.get_ref(), &error.key), error.message))
}

/// Reads a size in bytes, for example `"4.55 TB"`.
///
/// # Errors
/// Its fault, and the text to write instead.
pub fn size(text: &str) -> Result<u64, String> {
    units::SIZE.parse(text)
}

/// Reads a duration, for example `"13.5 s"`.
///
/// # Errors
/// Its fault, and the text to write instead.
pub fn duration(text: &str) -> Result<Duration, String> {
    units::SPAN.parse(text).map(Duration::from_nanos)
}

/// Reads a rate in bytes/s, for example `"105 MB/s"` or `"20 Gb/s"`.
///
/// # Errors
/// Its fault, and the text to write instead.
pub fn rate(text: &str) -> Result<u64, String> {
    units::RATE.parse(text)
}
