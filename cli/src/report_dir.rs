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
    /// The directory at `path`, made if it is not there, for a report of these files. It may hold an earlier one.
    ///
    /// # Errors
    /// When it cannot be made, or holds anything else.
    pub fn make(path: &Path, files: Vec<&'static str>) -> anyhow::Result<Self> {
        let dir = Self { path: path.to_owned(), files };
        let shown = path.display();
        if path.exists() && !path.is_dir() {
            bail!("{shown} is a file; write --out with a directory, which need not be there yet");
        }
        fs::create_dir_all(path).with_context(|| format!("making {shown}; write --out with a directory of yours"))?;
        for entry in fs::read_dir(path).with_context(|| format!("looking into {shown}"))? {
            let name = entry.with_context(|| format!("looking into {shown}"))?.file_name();
            if !dir.own_files().any(|file| name == *file) {
                bail!(
                    "{shown} holds {}, which is no report's; write --out with a directory that is new",
                    name.display()
                );
            }
        }
        Ok(dir)
    }

    /// Removes an earlier report, so that nothing of it stands beside the new one.
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
        let told = || format!("writing {}; free some room there, or write --out elsewhere", path.display());
        let written = fs::write(&begun, text).and_then(|()| fs::rename(&begun, &path));
        if written.is_err() {
            // What was begun is of no use, and the first error is the one to tell.
            let _ = fs::remove_file(&begun);
        }
        written.with_context(told)
    }

    /// All that such a report leaves behind, also one that was interrupted.
    fn own_files(&self) -> impl Iterator<Item = String> {
        self.files.iter().flat_map(|name| [(*name).to_owned(), begun(name)])
    }
}

/// What a file is called while it is being written.
fn begun(name: &str) -> String {
    format!("{name}.part")
}
