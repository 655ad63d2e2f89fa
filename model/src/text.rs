//! Reads rack descriptions. `docs/racks.md` is the grammar for people.
//!
//! How a text becomes a rack:
//! 1. the TOML parser gives a tree whose every key and value knows its place in the text;
//! 2. `rack` walks it into a [`RackDraft`](crate::RackDraft): unknown keys, wrong kinds and units are refused at
//!    their place;
//! 3. [`RackSpec::validated`] judges the draft; the key it names is looked up in the tree again, for its place.
//!
//! Invariants:
//! - every error has file, line and column, says what is wrong, and then what to write instead;
//! - no input makes it panic, and memory is bounded by the most drives a rack may have, whatever numbers are
//!   written.

#![cfg(feature = "toml")]

mod drives;
mod rack;
#[cfg(test)]
mod tests;
mod tree;
mod units;

use crate::RackSpec;
use alloc::string::{String, ToString};
use core::fmt;
use core::ops::Range;
use core::time::Duration;
use toml::de::DeTable;

/// The descriptions that come with Larder: name and text.
pub const SHIPPED: [(&str, &str); 3] = [
    ("pelican", include_str!("../../racks/pelican.toml")),
    ("pelican-mini", include_str!("../../racks/pelican-mini.toml")),
    ("nas8", include_str!("../../racks/nas8.toml")),
];

/// Why a text describes no rack, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The file, as it was named to [`parse`].
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong; what to write instead.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

impl core::error::Error for TextError {}

/// What is wrong with the text at these bytes; what to write instead.
#[derive(Debug)]
struct Fault {
    span: Range<usize>,
    message: String,
}

impl Fault {
    fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    /// The fault with its place as people count it.
    fn located(self, text: &str, file: &str) -> TextError {
        let before = text.get(..self.span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        TextError {
            file: file.to_string(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: self.message,
        }
    }
}

/// The rack that `text` describes. `origin` names the text in messages, such as the path of its file.
///
/// # Errors
/// The first thing that is wrong, with its line and column.
pub fn parse(text: &str, origin: &str) -> Result<RackSpec, TextError> {
    parse_at(text).map_err(|fault| fault.located(text, origin))
}

/// What is wrong with the value of `key` (such as `group_drives`) in a `text` that is a description, but not one that
/// can be used; `origin` as for [`parse`].
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

/// The bytes that `text`, such as `"4.55 TB"`, means.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub fn size(text: &str) -> Result<u64, String> {
    units::SIZE.parse(text)
}

/// The span that `text`, such as `"13.5 s"`, means.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub fn duration(text: &str) -> Result<Duration, String> {
    units::SPAN.parse(text).map(Duration::from_nanos)
}

/// The bytes/s that `text`, such as `"105 MB/s"` or `"20 Gb/s"`, means.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub fn rate(text: &str) -> Result<u64, String> {
    units::RATE.parse(text)
}

/// The name of `known` that is fewest edits away from `word`.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    tree::nearest(word, known)
}
