//! The files in which conversions and agents store the state that they need to resume, or to revert.
//!
//! One line with magic, version, kind and checksum, then JSON, which names the cluster and the subject. A file of
//! another version, kind or checksum is refused and not replaced; nothing is removed by name alone.

use crc_fast::{CrcAlgorithm, checksum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const MAGIC: &str = "larder-ceph";

/// The version of the files; other versions are not read.
pub const RECORD_VERSION: u32 = 1;

/// Maximum size of a file, in bytes.
const BYTES_MAX: usize = 1 << 20;

/// A type that can be stored in a record file.
pub trait Record: Serialize + DeserializeOwned {
    /// The kind of file.
    const KIND: &'static str;
}

/// Reasons why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system's error.
    #[error("{path} cannot be used: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Not a record file, or damaged.
    #[error("{path} is not what Larder wrote ({reason}); look at it, and move it away if it is not needed")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
}

fn digest(body: &str) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, body.as_bytes())
}

/// The bytes of `record`.
pub fn encode<R: Record>(record: &R) -> serde_json::Result<String> {
    let body = serde_json::to_string_pretty(record)?;
    Ok(format!("{MAGIC} {RECORD_VERSION} {} {:016x}\n{body}", R::KIND, digest(&body)))
}

/// The record of those bytes, or the error as text.
pub fn decode<R: Record>(text: &str) -> Result<R, String> {
    let (head, body) = text.split_once('\n').ok_or("it has no head")?;
    let [magic, version, kind, crc] = head.split(' ').collect::<Vec<_>>()[..] else {
        return Err("its head is not one of Larder's".to_owned());
    };
    if magic != MAGIC || kind != R::KIND {
        return Err(format!("it is a {magic} {kind}, not a {MAGIC} {}", R::KIND));
    }
    if version != RECORD_VERSION.to_string() {
        return Err(format!("it is of version {version}; this Larder reads {RECORD_VERSION}"));
    }
    if u64::from_str_radix(crc, 16) != Ok(digest(body)) {
        return Err("its checksum is wrong".to_owned());
    }
    serde_json::from_str(body).map_err(|error| error.to_string())
}

/// Reads the record in `path`; `None` if there is no file.
pub fn read<R: Record>(path: &Path) -> Result<Option<R>, RecordError> {
    let damaged = |reason: String| RecordError::Damaged { path: path.to_owned(), reason };
    let text = match fs::read(path) {
        Ok(bytes) if bytes.len() > BYTES_MAX => return Err(damaged("it is too long".to_owned())),
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| damaged("it is no text".to_owned()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RecordError::Io { path: path.to_owned(), error }),
    };
    decode(&text).map(Some).map_err(damaged)
}

/// Writes `record` to `path`: the file then has all of it, or its earlier contents. Creates the directory if it is
/// missing.
pub fn write<R: Record>(path: &Path, record: &R) -> Result<(), RecordError> {
    let failed = |error: io::Error| RecordError::Io { path: path.to_owned(), error };
    let text = encode(record).map_err(|error| failed(error.into()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let new = path.with_extension("new");
    let durable = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(folder)?.sync_all()
    };
    durable().map_err(failed)
}

/// Removes the record in `path`, if it is of this kind; a missing file is no error.
pub fn remove<R: Record>(path: &Path) -> Result<(), RecordError> {
    if read::<R>(path)?.is_some() {
        fs::remove_file(path).map_err(|error| RecordError::Io { path: path.to_owned(), error })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Note {
        fsid: String,
        step: u32,
    }

    impl Record for Note {
        const KIND: &'static str = "note";
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Other {}

    impl Record for Other {
        const KIND: &'static str = "other";
    }

    fn note() -> Note {
        Note { fsid: "378a5931".to_owned(), step: 3 }
    }

    #[test]
    fn what_is_written_is_read_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/osd.3");
        assert_eq!(read::<Note>(&path).unwrap(), None);
        write(&path, &note()).unwrap();
        write(&path, &Note { step: 4, ..note() }).unwrap();
        assert_eq!(read::<Note>(&path).unwrap(), Some(Note { step: 4, ..note() }));
        assert!(remove::<Other>(&path).unwrap_err().to_string().contains("not a larder-ceph other"));
        remove::<Note>(&path).unwrap();
        assert_eq!(read::<Note>(&path).unwrap(), None);
    }

    #[test]
    fn another_version_is_refused() {
        let text = encode(&note()).unwrap().replace("larder-ceph 1", "larder-ceph 2");
        assert!(decode::<Note>(&text).unwrap_err().contains("version 2"));
    }

    proptest! {
        #[test]
        fn damage_is_found(at in 0_usize..200, to in any::<u8>()) {
            let text = encode(&note()).unwrap();
            let mut bytes = text.clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(changed) = String::from_utf8(bytes) && changed != text {
                let decoded = decode::<Note>(&changed);
                // A digit of the checksum has the same value in both cases.
                prop_assert!(decoded.is_err() || changed.to_lowercase() == text, "{}", changed);
            }
        }

        #[test]
        fn every_truncation_is_found(length in 0_usize..200) {
            let text = encode(&note()).unwrap();
            let short = &text[..length % text.len()];
            prop_assert!(decode::<Note>(short).is_err());
        }
    }
}
