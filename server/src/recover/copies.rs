//! The copies of the catalog on drives, found without the catalog: the names of stacks show which blobs may have a
//! copy, and the indexes of their packs show which. Each copy is written to a separate directory, under its name in a
//! journal, so that it is used like one; all of it is checked there again.

use super::group::{GroupDrives, Stacks};
use super::report::{Pass, Step};
use crate::data_dir::DataDir;
use crate::error::{ServerError, text};
use crate::offline_rack::OfflineRack;
use crate::pack_index::read_index;
use catalog::{CATALOG_BUCKET, CopyContent, Sequence, may_have_copy};
use crc_fast::{CrcAlgorithm, Digest};
use disk::private;
use disk::stack::{Blob, PayloadSink, Policy, SinkClosed, StackReader};
use engine::layout::synthesise;
use futures::future::BoxFuture;
use model::BlobId;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use workshop::IndexEntry;

/// The longest index of a pack with one copy.
const INDEX_BYTES_MAX: u64 = 1 << 20;

/// Writes all copies on the drives of `dir` into the new directory `into`.
pub(super) async fn gather(
    dir: &DataDir,
    rack: &mut OfflineRack,
    into: &Path,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<(), ServerError> {
    private::make_directory(into).map_err(|error| ServerError::Io(format!("making {}", into.display()), error))?;
    let order = OfflineRack::order(&synthesise(dir.rack())?);
    watch(Step::Copies(order.len() as u64));
    let (mut unusable, mut pass) = (BTreeSet::new(), Pass::of(order.len()));
    for group in &order {
        let mut drives = GroupDrives::wake((rack, dir.rack_uuid()), group, &mut unusable, watch).await;
        let found = drives.stacks(&mut unusable, watch).await;
        for (blob, stacks) in &found {
            if may_have_copy(*blob) {
                match bring(&drives, *blob, stacks, into).await {
                    Err(Failure::Copy(why)) => watch(Step::Unusable(&format!("blob {blob}: {why}"))),
                    Err(Failure::Disk(path, error)) => {
                        drives.rest(rack, watch).await;
                        return Err(ServerError::Io(format!("writing {}", path.display()), error));
                    }
                    Ok(()) => {}
                }
            }
            pass.blob(0, watch);
        }
        pass.group(drives.drives.len());
        drives.rest(rack, watch).await;
        watch(Step::Group(pass));
    }
    Ok(())
}

/// Why a copy was not brought.
enum Failure {
    /// It cannot be read.
    Copy(String),
    /// This file cannot be written.
    Disk(PathBuf, io::Error),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Copy(why)
    }
}

/// Brings the copies in the blob `id` into `into`.
async fn bring(drives: &GroupDrives, id: BlobId, stacks: &Stacks, into: &Path) -> Result<(), Failure> {
    // Without a header it was never written to its end, unless all of them are damaged.
    let Some(header) = drives.header(id, stacks).await else { return Ok(()) };
    let there = drives.with_drives(stacks);
    let index = read_index(header.blob, there.clone(), INDEX_BYTES_MAX).await?.unwrap_or_default();
    for entry in index.iter().filter(|entry| entry.bucket == CATALOG_BUCKET) {
        let Some(path) = CopyContent::of(&entry.key).map(|content| into.join(file_name(content, id))) else { continue };
        if path.exists() {
            continue; // a second attempt at the same copy
        }
        let opened = StackReader::open(header.blob, there.clone(), Policy::K).await.result;
        let reader = opened.map_err(text)?.without_repairs();
        if let Err(why) = write(reader, &header.blob, entry, &path).await {
            drop(fs::remove_file(&path));
            return Err(why);
        }
    }
    Ok(())
}

/// The name of a copy in a journal.
fn file_name(content: CopyContent, blob: BlobId) -> String {
    match content {
        CopyContent::Snapshot(Sequence(number)) => format!("{number:016x}.snapshot"),
        CopyContent::Segment(Sequence(before), _) => format!("{before:016x}-{:016x}.journal", blob.nonce),
    }
}

async fn write(mut reader: StackReader, blob: &Blob, entry: &IndexEntry, path: &Path) -> Result<(), Failure> {
    let end = entry.offset.checked_add(entry.object.bytes).filter(|end| *end <= blob.payload_bytes);
    let end = end.ok_or_else(|| "a copy of the catalog is not within it".to_owned())?;
    let mut sink = Sink::make(path.to_owned()).map_err(|error| Failure::Disk(path.to_owned(), error))?;
    let read = reader.read(entry.offset..end, &mut sink).await;
    if let Some(error) = sink.failed {
        return Err(Failure::Disk(sink.path, error));
    }
    read.map_err(text)?;
    if sink.checksum.finalize() != entry.checksum {
        return Err("a copy of the catalog is not the one that was packed".to_owned().into());
    }
    Ok(())
}

/// Writes a payload into a file.
struct Sink {
    path: PathBuf,
    file: File,
    checksum: Digest,
    failed: Option<io::Error>,
}

impl Sink {
    fn make(path: PathBuf) -> io::Result<Self> {
        // Only for the owner: a catalog has the secrets of users.
        let file = OpenOptions::new().write(true).create_new(true).mode(private::FILE_MODE).open(&path)?;
        Ok(Self { path, file, checksum: Digest::new(CrcAlgorithm::Crc64Nvme), failed: None })
    }
}

impl PayloadSink for Sink {
    fn take<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, Result<(), SinkClosed>> {
        Box::pin(async move {
            self.checksum.update(bytes);
            self.file.write_all(bytes).map_err(|error| {
                self.failed = Some(error);
                SinkClosed
            })
        })
    }
}
