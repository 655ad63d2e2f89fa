//! Where a report is written: a directory of its own.
//!
//! Invariant: nothing is ever overwritten but an earlier report; a file is there with all it is to hold, or not at all.

use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// A directory for a report.
#[derive(Debug)]
pub struct ReportDir {
    path: PathBuf,
    files: Vec<&'static str>,
}

impl ReportDir {
    /// The directory at `path`, made if it is not there, for a report of these files. One that holds an earlier report
    /// of them loses it.
    ///
    /// # Errors
    /// When it cannot be made, or holds anything else.
    pub fn make(path: &Path, files: Vec<&'static str>) -> anyhow::Result<Self> {
        let shown = path.display();
        if path.exists() && !path.is_dir() {
            bail!("{shown} is a file; write --out with a directory, which need not be there yet");
        }
        fs::create_dir_all(path).with_context(|| format!("making {shown}; write --out with a directory of yours"))?;
        let mut earlier = Vec::new();
        for entry in fs::read_dir(path).with_context(|| format!("looking into {shown}"))? {
            let entry = entry.with_context(|| format!("looking into {shown}"))?;
            let name = entry.file_name();
            if !files.iter().any(|file| name == *file) {
                bail!(
                    "{shown} holds {}, which is no report's; write --out with a directory that is new",
                    name.display()
                );
            }
            earlier.push(entry.path());
        }
        for file in earlier {
            fs::remove_file(&file).with_context(|| format!("removing {}, of an earlier report", file.display()))?;
        }
        Ok(Self { path: path.to_owned(), files })
    }

    /// The file of this name in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file of the report.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        assert!(self.files.contains(&name), "{name} is among the files of reports");
        let (path, begun) = (self.path(name), self.path.join(format!("{name}.part")));
        let told = || format!("writing {}; free some room there, or write --out elsewhere", path.display());
        let written = fs::write(&begun, text).and_then(|()| fs::rename(&begun, &path));
        if written.is_err() {
            // What was begun is of no use, and the first error is the one to tell.
            let _ = fs::remove_file(&begun);
        }
        written.with_context(told)
    }
}
