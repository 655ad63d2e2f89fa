//! The file `runs`: the runs of a data directory's server, which identify its own media (`disk::owner`).
//!
//! Each line ends with the CRC-32C of its text. The first line, `directory`, has the random identity of the directory.
//! A line `run` has the number of a run and its start in milliseconds of the Unix epoch. A line `accepted` has the time
//! up to which marks of other runs count as this directory's own, by the operator's consent.
//!
//! Lines are appended and synced, never changed. A damaged or incomplete line is ignored: media with the mark of that
//! run are refused until the operator consents (`larder take-over`). If the file is missing, so are all marked media.

use super::error::{DataDirError, failed, refused};
use super::identity::{crc32c, random_uuid, uuid_from};
use disk::private::FILE_MODE;
use lineage::RunId;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file.
pub(super) const RUNS: &str = "runs";

/// The runs of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunsFile {
    path: PathBuf,
    /// The identity of the directory.
    pub(super) directory: [u8; 16],
    /// Its runs, the last one last.
    pub(super) runs: Vec<RunId>,
    /// Marks of other runs up to this time count as its own; 0 without consent.
    pub(super) accepted_ms: u64,
}

/// The fix for a damaged file.
const FIX: &str = "restore the file from a backup, or move it away and run `larder take-over`";

impl RunsFile {
    /// Reads the runs of the data directory `path`. If the file is missing there are none; it is created if `made`.
    ///
    /// # Errors
    /// If it cannot be read or created, or its first line is damaged.
    pub(super) fn read(path: &Path, made: bool) -> Result<Self, DataDirError> {
        let path = path.join(RUNS);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = random_uuid()?;
                if made {
                    begin(&path, &line(&format!("directory {directory}")))?;
                }
                return Ok(Self { path, directory: directory.0, runs: Vec::new(), accepted_ms: 0 });
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(refused(&path, format!("is not text; {FIX}")));
            }
            Err(error) => return Err(failed(&format!("reading {}", path.display()), error)),
        };
        let mut lines = text.split_inclusive('\n').filter_map(body);
        let directory = lines.next().and_then(|first| uuid_from(first.strip_prefix("directory ")?));
        let Some(directory) = directory else {
            return Err(refused(&path, format!("has a damaged first line; {FIX}")));
        };
        let mut file = Self { path, directory: directory.0, runs: Vec::new(), accepted_ms: 0 };
        for line in lines {
            file.take(line);
        }
        Ok(file)
    }

    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["run", run, _] => self.runs.extend(u64::from_str_radix(run, 16).ok().map(RunId)),
            ["accepted", at_ms] => self.accepted_ms = self.accepted_ms.max(at_ms.parse().unwrap_or(0)),
            _ => {}
        }
    }

    /// Records that run `run` begins at `now_ms`.
    ///
    /// # Errors
    /// If the line cannot be written.
    pub(super) fn begin_run(&mut self, run: RunId, now_ms: u64) -> Result<(), DataDirError> {
        self.append(&format!("run {run} {now_ms}"))?;
        self.runs.push(run);
        Ok(())
    }

    /// Records the operator's consent to marks up to `now_ms`.
    ///
    /// # Errors
    /// If the line cannot be written.
    pub(super) fn accept(&mut self, now_ms: u64) -> Result<(), DataDirError> {
        self.append(&format!("accepted {now_ms}"))?;
        self.accepted_ms = self.accepted_ms.max(now_ms);
        Ok(())
    }

    fn append(&self, body: &str) -> Result<(), DataDirError> {
        let append = || -> io::Result<()> {
            let whole = fs::read(&self.path)?.last().is_none_or(|last| *last == b'\n');
            let mut file = OpenOptions::new().append(true).open(&self.path)?;
            // Ends an incomplete line.
            let cut = if whole { "" } else { "\n" };
            file.write_all(format!("{cut}{}", line(body)).as_bytes())?;
            file.sync_data()
        };
        append().map_err(|error| failed(&format!("writing {}", self.path.display()), error))
    }
}

/// Creates the file with its first line.
fn begin(path: &Path, first: &str) -> Result<(), DataDirError> {
    let fresh = path.with_file_name(format!("{RUNS}.new"));
    let make = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&fresh)?;
        file.write_all(first.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    make().map_err(|error| failed(&format!("making {}", path.display()), error))
}

/// The line with the text `body` and its checksum.
fn line(body: &str) -> String {
    format!("{body} {:08x}\n", crc32c(body.as_bytes()))
}

/// The text of `line` before its checksum; `None` if the checksum does not match.
fn body(line: &str) -> Option<&str> {
    let (body, sum) = line.strip_suffix('\n')?.rsplit_once(' ')?;
    (format!("{:08x}", crc32c(body.as_bytes())) == sum).then_some(body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn runs_are_remembered_and_damaged_lines_are_not() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(RUNS);
        assert!(RunsFile::read(root.path(), false).unwrap().runs.is_empty() && !path.exists());
        let mut file = RunsFile::read(root.path(), true).unwrap();
        for run in 1..=3 {
            file.begin_run(RunId(run), 10 * run).unwrap();
        }
        file.accept(25).unwrap();
        assert_eq!(RunsFile::read(root.path(), true).unwrap(), file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("run 0000000000000002", "run 0000000000000009") + "run 00").unwrap();
        let mut damaged = RunsFile::read(root.path(), true).unwrap();
        assert_eq!((damaged.directory, &*damaged.runs), (file.directory, &[RunId(1), RunId(3)][..]));
        assert_eq!(damaged.accepted_ms, 25);
        damaged.begin_run(RunId(4), 50).unwrap();
        assert_eq!(RunsFile::read(root.path(), true).unwrap(), damaged);
        fs::write(&path, text.replacen("directory", "directorY", 1)).unwrap();
        assert!(RunsFile::read(root.path(), true).unwrap_err().to_string().contains("larder take-over"));
    }
}
