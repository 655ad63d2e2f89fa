//! Standard output: text or JSON, and a reader who goes away is no error.

use serde::Serialize;
use std::fmt;
use std::io::{self, Write};

/// Standard output could not be written.
#[derive(Debug)]
pub struct OutputError(io::Error);

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "standard output cannot be written: {}; free some room there, or write somewhere else", self.0)
    }
}

impl std::error::Error for OutputError {}

/// Whether `error` is only that nobody reads standard output any more.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OutputError>().is_some_and(|error| error.0.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints `text` as it is, at once.
pub fn print(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(OutputError)
}

/// Prints `value` as JSON for people and programs.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(print(&format!("{text}\n"))?)
}

/// Prints `value` as one line of JSON.
pub fn print_json_line(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(value)?;
    Ok(print(&format!("{text}\n"))?)
}
