//! Writes results to standard output, as text or JSON, and errors as sentences.

use crate::args::Data;
use serde::Serialize;
use server::admin::{Client, ClientError};
use std::fmt;
use std::io::{self, Write};
use tokio::runtime::Builder;

/// Standard output could not be written.
#[derive(Debug)]
pub struct OutputError(io::Error);

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write to standard output: {}; free some space there, or write to another place", self.0)
    }
}

impl std::error::Error for OutputError {}

/// True if `error` only means that the reader of standard output has gone.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OutputError>().is_some_and(|error| error.0.kind() == io::ErrorKind::BrokenPipe)
}

/// The error and its causes, without the causes whose text it repeats.
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

/// Prints `value` as JSON, or its text.
pub fn show<T: Serialize>(json: bool, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
    if json { print_json(value) } else { Ok(print(&text(value))?) }
}

/// Runs `asks`, which waits for a server's answers, on one thread.
pub fn wait_for<T>(asks: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    Builder::new_current_thread().enable_all().build()?.block_on(asks)
}

/// Asks the server on the data directory `data`.
pub fn ask<T>(data: &Data, asks: impl AsyncFnOnce(&Client) -> Result<T, ClientError>) -> anyhow::Result<T> {
    let client = Client::of(&data.data)?;
    wait_for(async { Ok(asks(&client).await?) })
}
