//! The directory of a report.
//!
//! Invariants:
//! - Only an earlier report is ever overwritten.
//! - A file is complete, or does not exist.

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
    /// The directory at `path`, created if it does not exist, for a report of these files. It may contain an earlier
    /// one.
    ///
    /// # Errors
    /// When it cannot be made, or holds anything else.
    pub fn make(path: &Path, files: Vec<&'static str>) -> anyhow::Result<Self> {
        let dir = Self { path: path.to_owned(), files };
        let shown = path.display();
        if path.exists() && !path.is_dir() {
            bail!("{shown} is a file; give --out a directory, which need not exist yet");
        }
        fs::create_dir_all(path)
            .with_context(|| format!("creating {shown}; give --out a directory that you can write to"))?;
        for entry in fs::read_dir(path).with_context(|| format!("reading the directory {shown}"))? {
            let name = entry.with_context(|| format!("reading the directory {shown}"))?.file_name();
            if !dir.own_files().any(|file| name == *file) {
                bail!("{shown} holds {}, which is not part of a report; give --out a new directory", name.display());
            }
        }
        Ok(dir)
    }

    /// Removes an earlier report, so nothing of it remains beside the new one.
    ///
    /// # Errors
    /// When a file of it cannot be removed.
    pub fn clear(&self) -> anyhow::Result<()> {
        for path in self.own_files().map(|file| self.path(&file)).filter(|path| path.exists()) {
            fs::remove_file(&path).with_context(|| format!("removing {}, of an earlier report", path.display()))?;
        }
        Ok(())
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
        let (path, begun) = (self.path(name), self.path(&begun(name)));
        let context = || format!("writing {}; free some space there, or give --out another directory", path.display());
        let written = fs::write(&begun, text).and_then(|()| fs::rename(&begun, &path));
        if written.is_err() {
            // An incomplete file is of no use. The error to report is the first one.
            let _ = fs::remove_file(&begun);
        }
        written.with_context(context)
    }

    /// All files of this kind of report, including those of an interrupted one.
    fn own_files(&self) -> impl Iterator<Item = String> {
        self.files.iter().flat_map(|name| [(*name).to_owned(), begun(name)])
    }
}

/// The name of a file while it is being written.
fn begun(name: &str) -> String {
    format!("{name}.part")
}
