//! Limits a host to one conversion and one agent at a time; and finds commands that a killed conversion left running.
//!
//! The lock is a kernel lock on an empty file, and ends with the process that has it. Commands run in their own process
//! groups and outlive it: the next conversion must look for them.

use crate::record::RecordError;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

/// The file that a conversion locks, in the folder of records.
pub const CONVERSION: &str = "conversion.lock";

/// The file that an agent locks.
pub const AGENT: &str = "agent.lock";

/// A lock; released when it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock `name` in `folder`, which is made if it is missing; `None` if another process has it.
    pub fn take(folder: &Path, name: &str) -> Result<Option<Self>, RecordError> {
        let path = folder.join(name);
        let failed = |error: io::Error| RecordError::Io { path: path.clone(), error };
        fs::create_dir_all(folder).map_err(failed)?;
        let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// True if a process has the lock `name` in `folder`.
    pub fn is_taken(folder: &Path, name: &str) -> bool {
        let file = File::options().append(true).open(folder.join(name));
        file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }
}

/// The number and the command of a process of this machine that runs one of `commands`.
pub fn at_work(commands: &[Vec<String>]) -> Option<(u32, String)> {
    let processes = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(|pid| *pid != std::process::id()).find_map(|pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<&str> = text.trim_end_matches('\0').split('\0').collect();
        let command = commands.iter().find(|command| runs(&words, command))?;
        Some((pid, command.join(" ")))
    })
}

/// True if the process with that command line runs `command`, as a program or through an interpreter.
fn runs(words: &[&str], command: &[String]) -> bool {
    let Some((program, arguments)) = command.split_first() else { return false };
    let Some(at) = words.len().checked_sub(command.len()) else { return false };
    let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
    // The options of a shell or an interpreter may come before the program.
    at <= 2 && name(words[at]) == name(program) && words[at + 1..].iter().eq(arguments)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::world::tools::words;

    #[test]
    fn a_lock_is_had_by_one_and_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below");
        assert!(!Lock::is_taken(&path, AGENT));
        let lock = Lock::take(&path, AGENT).unwrap().unwrap();
        assert!(Lock::take(&path, AGENT).unwrap().is_none() && Lock::is_taken(&path, AGENT));
        assert!(!Lock::is_taken(&path, CONVERSION));
        drop(lock);
        assert!(!Lock::is_taken(&path, AGENT) && Lock::take(&path, AGENT).unwrap().is_some());
    }

    #[test]
    fn a_command_is_known_by_its_words() {
        let create = words(&["ceph-volume", "lvm", "create", "--osd-id", "3"]);
        assert!(runs(&["ceph-volume", "lvm", "create", "--osd-id", "3"], &create));
        assert!(runs(&["/usr/bin/python3", "/usr/sbin/ceph-volume", "lvm", "create", "--osd-id", "3"], &create));
        assert!(!runs(&["ceph-volume", "lvm", "create", "--osd-id", "33"], &create));
        assert!(!runs(&["ceph-volume", "lvm", "zap", "--osd-id", "3"], &create));
        assert!(!runs(&["grep", "-r", "x", "ceph-volume", "lvm", "create", "--osd-id", "3"], &create));
        assert!(!runs(&[""], &create) && !runs(&["ceph-volume"], &[]));
    }
}
