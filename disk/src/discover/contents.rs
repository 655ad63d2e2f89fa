//! The contents of a disk: read from it if it is awake, otherwise udev's last findings.

use super::signatures::{HEAD_BYTES, Role, Signature, TAIL_BYTES, signatures};
use super::udev::Properties;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The contents of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing: its beginning and end are zero, and have no magic number.
    Nothing,
    /// These signatures, read just now.
    Read(Vec<Signature>),
    /// Not read; these are udev's last findings, which are empty or outdated if the disk was written since.
    SeenByUdev(Vec<Signature>),
    /// It could not be read.
    Unreadable(String),
}

impl Contents {
    /// Reads the beginning and the end of the disk at `path`, which has `size_bytes` and is awake.
    pub fn read(path: &Path, size_bytes: u64) -> Self {
        match ends(path, size_bytes) {
            Ok((head, tail)) => match signatures(&head, &tail, size_bytes) {
                found if found.is_empty() => Self::Nothing,
                found => Self::Read(found),
            },
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }

    /// The contents according to udev.
    pub fn seen_by_udev(properties: &Properties) -> Self {
        let label = properties.get("ID_FS_LABEL").map(str::to_owned);
        let system = properties.get("ID_FS_TYPE").map(|name| {
            let role = match properties.get("ID_FS_USAGE") {
                Some("raid") => Role::Member,
                Some("crypto") => Role::Encrypted,
                _ if name == "swap" => Role::Swap,
                _ => Role::FileSystem,
            };
            Signature { name: name.to_owned(), role, label }
        });
        let table = properties.get("ID_PART_TABLE_TYPE").map(|name| Signature {
            name: name.to_owned(),
            role: Role::PartitionTable,
            label: None,
        });
        Self::SeenByUdev(table.into_iter().chain(system).collect())
    }

    /// All known signatures on it.
    pub fn signatures(&self) -> &[Signature] {
        match self {
            Self::Read(found) | Self::SeenByUdev(found) => found,
            Self::Nothing | Self::Unreadable(_) => &[],
        }
    }
}

/// The first and the last bytes of the disk.
fn ends(path: &Path, size_bytes: u64) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let file = File::open(path)?;
    let part = |bytes: usize| vec![0; size_bytes.min(bytes as u64) as usize];
    let (mut head, mut tail) = (part(HEAD_BYTES), part(TAIL_BYTES));
    let tail_from = size_bytes - tail.len() as u64;
    file.read_exact_at(&mut head, 0)?;
    file.read_exact_at(&mut tail, tail_from)?;
    Ok((head, tail))
}
