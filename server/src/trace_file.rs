//! Writing the engine's trace to a file, line by line of JSON: first the header with everything a replay needs, then
//! the records.
//!
//! A trace is for later inspection. A disk that does not take it is reported once, and the server continues without it.

use crate::context::Tracer;
use disk::private::FILE_MODE;
use engine::trace::{Header, Record};
use parking_lot::Mutex;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// A trace in the file `path`, which is created or overwritten, with its first line written.
///
/// # Errors
/// The system's error.
pub fn create(path: &Path, header: &Header) -> io::Result<Tracer> {
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).clone();
    let mut file = BufWriter::new(options.open(path)?);
    line(&mut file, header)?;
    let file = Mutex::new(Some(file));
    Ok(Arc::new(move |record: &Record| {
        let mut file = file.lock();
        let written = file.as_mut().map(|file| line(file, record));
        if let Some(Err(error)) = written {
            tracing::error!(%error, "can no longer write the trace; it ends here");
            *file = None;
        }
    }))
}

/// Flushes each line, so that the trace of a killed server is complete except for its last line.
fn line(file: &mut BufWriter<File>, what: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, what)?;
    file.write_all(b"\n")?;
    file.flush()
}
