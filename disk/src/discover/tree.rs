//! The files below /sys, /proc, /dev, /run and /etc, with any root, so that made-up machines can be examined like this
//! one.
//!
//! A missing or unreadable file counts as absent: these files come and go with devices.

use std::fs;
use std::path::{Path, PathBuf};

/// A tree of these files. Paths are given without the root.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree below `root`; `/` is this machine.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { root: fs::canonicalize(&root).unwrap_or(root) }
    }

    /// The path for the operating system of `path` (with or without a leading `/`).
    pub fn real(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The bytes of a file.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        fs::read(self.real(path)).ok()
    }

    /// The text of a file; bytes that are not text are replaced.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        self.bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The text of an attribute, without surrounding spaces; `None` if it is empty.
    pub fn attribute(&self, path: impl AsRef<Path>) -> Option<String> {
        self.text(path).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// An attribute that is a decimal number.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.attribute(path)?.parse().ok()
    }

    /// An attribute as a flag: false if it is 0.
    pub fn flag(&self, path: impl AsRef<Path>) -> Option<bool> {
        self.number(path).map(|number| number != 0)
    }

    /// True if something has that name; follows links.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.real(path).exists()
    }

    /// The names in a directory, sorted.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.real(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// The final target of links from `path`, without the root. Links must be relative, or lead below the root.
    pub fn target(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let target = fs::canonicalize(self.real(path)).ok()?;
        target.strip_prefix(&self.root).ok().map(|path| Path::new("/").join(path))
    }
}

/// The device node of the block device `name`. A directory separator below /dev is a `!` in the name.
pub fn device_path(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}
