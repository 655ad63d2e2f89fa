//! Writes results to standard output, as text or JSON, and errors as sentences.

use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use tokio::runtime::{Builder, Runtime};

/// Standard output could not be written.
#[derive(Debug)]
pub struct OutputError(io::Error);

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "standard output cannot be written: {}; free some room there, or write somewhere else", self.0)
    }
}

impl std::error::Error for OutputError {}

/// True if `error` only means that nobody reads standard output any more.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OutputError>().is_some_and(|error| error.0.kind() == io::ErrorKind::BrokenPipe)
}

/// The error and its causes, without those whose words it repeats.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&cause);
        }
    }
    text
}

/// Prints `text` as it is, and flushes.
pub fn print(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(OutputError)
}

/// Prints `value` as indented JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(print(&format!("{text}\n"))?)
}

/// Prints `value` as one line of JSON.
pub fn print_json_line(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(value)?;
    Ok(print(&format!("{text}\n"))?)
}

/// A runtime of one thread, for commands that wait for a server's answers.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
