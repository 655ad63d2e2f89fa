//! Errors with their place in a text.

use alloc::string::{String, ToString};
use core::fmt;
use core::ops::Range;

/// The reason why a text describes no rack, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The file, as it was named to [`parse`](super::parse).
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The fault, and the text to write instead.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

impl core::error::Error for TextError {}

/// An error at these bytes of the text: the fault, and the text to write instead.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    /// The error with its line and column.
    pub(super) fn located(self, text: &str, file: &str) -> TextError {
        let (line, column) = line_and_column(text, self.span.start);
        TextError { file: file.to_string(), line, column, message: self.message }
    }
}

/// The line and the column, in characters, of the byte `at` of `text`; both from 1.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
