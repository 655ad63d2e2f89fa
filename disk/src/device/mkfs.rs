//! Creates the file system of a drive: XFS, or ext4 if there is no mkfs.xfs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories of file system programs that are not on every user's path.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The reason why a disk has no file system now.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// No suitable program is installed.
    #[error("there is neither mkfs.xfs nor mkfs.ext4 on this machine; install xfsprogs (or e2fsprogs)")]
    NoProgram,
    /// The program could not be run.
    #[error("{program} cannot be run: {source}")]
    NotRun {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program failed.
    #[error("{program} failed: {output}")]
    Failed {
        /// The program.
        program: String,
        /// The last line of its output.
        output: String,
    },
}

/// Creates a file system named `volume` on the device `node`. All former content is gone. Nothing is discarded, and
/// nothing is left to be initialised later, which would keep the disk awake.
pub fn make_file_system(node: &Path, volume: &str) -> Result<(), MkfsError> {
    const XFS: [&str; 4] = ["-q", "-f", "-K", "-L"];
    const EXT4: [&str; 9] =
        ["-q", "-F", "-m", "0", "-T", "largefile", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-L"];
    if let Some(program) = found("mkfs.xfs") {
        return run(&program, &XFS, volume, node);
    }
    let program = found("mkfs.ext4").ok_or(MkfsError::NoProgram)?;
    run(&program, &EXT4, volume, node)
}

fn found(name: &str) -> Option<PathBuf> {
    PLACES.iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file())
}

fn run(program: &Path, options: &[&str], volume: &str, node: &Path) -> Result<(), MkfsError> {
    let name = program.display().to_string();
    let ended = Command::new(program).args(options).arg(volume).arg(node).stdin(Stdio::null()).output();
    let ended = ended.map_err(|source| MkfsError::NotRun { program: name.clone(), source })?;
    if ended.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&ended.stderr);
    let output = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").trim().to_owned();
    Err(MkfsError::Failed { program: name, output })
}
