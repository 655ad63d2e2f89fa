//! The drives: every blob that the catalog does not know, and was to, is adopted. Group after group, so that each has
//! to be awake once; memory holds the names on the drives of one group, and the index of one pack.

use super::report::{Report, Step};
use crate::data_dir::DataDir;
use crate::error::{ServerError, text};
use crate::pack_index::read_index;
use catalog::{Adoption, Blob, Catalog, FoundMember, Known, Part, Sequence};
use disk::stack::{self, Header};
use disk::{Buffer, DirectoryDrive, Drive, OpenFiles, label};
use engine::layout::synthesise;
use model::{BlobId, DriveId};
use std::collections::BTreeMap;
use std::sync::Arc;
use workshop::IndexEntry;

/// Files of the drives that are open at once.
const OPEN_FILES: usize = 256;
/// Blobs that are looked up at once.
const PAGE: usize = 1_024;
/// The first block of a stack.
const BLOCK_BYTES: usize = 4096;
/// The slot of a part that lies in the rack.
const NO_SLOT: u64 = 0;

/// The stacks of a blob that are there: their index, and the drive.
type Stacks = Vec<(u8, DriveId)>;

/// Adopts what the drives of `dir` have and the catalog was to know.
pub(super) async fn adopt_all(
    dir: &DataDir,
    catalog: &Catalog,
    adoption: &mut Adoption,
    report: &mut Report,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> Result<(), ServerError> {
    let layout = synthesise(dir.rack())?;
    let drives = drives_of(dir, report, watch).await;
    watch(Step::Groups(layout.groups.len() as u64));
    let mut recovery = Recovery { dir, catalog, drives, adoption, report, watch };
    for group in &layout.groups {
        recovery.group(&group.drives).await?;
        watch(Step::Group);
    }
    recovery.group(&layout.spares).await
}

/// The drives that can be used, by number.
async fn drives_of(
    dir: &DataDir,
    report: &mut Report,
    watch: &(dyn Fn(Step<'_>) + Sync),
) -> BTreeMap<DriveId, Arc<dyn Drive>> {
    let files = OpenFiles::new(OPEN_FILES);
    let mut drives = BTreeMap::new();
    for (path, place) in dir.labels() {
        let opened = DirectoryDrive::open(&path).map(|drive| drive.with_open_files(&files));
        let checked = match opened {
            Ok(drive) => label::check(&drive, &place).await.map(|_| drive),
            Err(error) => Err(error),
        };
        match checked {
            Ok(drive) => drop(drives.insert(place.drive, Arc::new(drive) as Arc<dyn Drive>)),
            Err(error) => {
                report.drives_unusable += 1;
                watch(Step::Unusable(&format!("drive {}: {error}", place.drive)));
            }
        }
    }
    drives
}

struct Recovery<'a> {
    dir: &'a DataDir,
    catalog: &'a Catalog,
    drives: BTreeMap<DriveId, Arc<dyn Drive>>,
    adoption: &'a mut Adoption,
    report: &'a mut Report,
    watch: &'a (dyn Fn(Step<'_>) + Sync),
}

impl Recovery<'_> {
    async fn group(&mut self, drives: &[DriveId]) -> Result<(), ServerError> {
        let found = self.stacks_on(drives).await;
        let blobs: Vec<(BlobId, Stacks)> = found.into_iter().collect();
        for page in blobs.chunks(PAGE) {
            let ids: Vec<BlobId> = page.iter().map(|(blob, _)| *blob).collect();
            let known = self.catalog.known_blobs(&ids).await?;
            for ((blob, stacks), known) in page.iter().zip(known) {
                self.report.blobs += 1;
                // A blob that was begun when the catalog was lost may have come to its end since.
                if matches!(known, Known::Nothing | Known::Begun(_)) {
                    self.blob(*blob, stacks, matches!(known, Known::Begun(_)), drives).await?;
                }
            }
        }
        Ok(())
    }

    /// The blobs of which stacks lie on `drives`.
    async fn stacks_on(&self, drives: &[DriveId]) -> BTreeMap<BlobId, Stacks> {
        let mut found: BTreeMap<BlobId, Stacks> = BTreeMap::new();
        for id in drives {
            let Some(drive) = self.drives.get(id) else { continue };
            match drive.list().await {
                Ok(names) => {
                    for (blob, index) in names.iter().filter_map(stack::stack_of) {
                        found.entry(blob).or_default().push((index, *id));
                    }
                }
                Err(error) => (self.watch)(Step::Unusable(&format!("drive {id} cannot be listed: {error}"))),
            }
        }
        found
    }

    async fn blob(
        &mut self,
        id: BlobId,
        stacks: &Stacks,
        was_begun: bool,
        group: &[DriveId],
    ) -> Result<(), ServerError> {
        let Some(header) = self.header(id, stacks).await else {
            // Without a header it was never written to its end, unless all of them are damaged.
            return Ok(());
        };
        let begun = Sequence(header.provenance.sequence);
        if !was_begun && !self.adoption.may_lack(begun) {
            return Ok(());
        }
        let there = stacks.iter().filter_map(|(index, drive)| Some((*index, Arc::clone(self.drives.get(drive)?))));
        let index = match read_index(header.blob, there.collect(), u64::MAX).await {
            Ok(index) => index.unwrap_or_default(),
            Err(why) => {
                self.report.unreadable += 1;
                (self.watch)(Step::Unusable(&format!("blob {id}: {why}")));
                return Ok(());
            }
        };
        let record = record(&header, stacks, group, index.len());
        let members = index.into_iter().map(member).collect();
        self.adoption.adopt(&record, begun, members).await?;
        self.report.adopted += 1;
        Ok(())
    }

    /// The header of a stack of blob `id`: the first that can be read, and is of this rack.
    async fn header(&self, id: BlobId, stacks: &Stacks) -> Option<Header> {
        for (index, drive) in stacks {
            let Some(drive) = self.drives.get(drive) else { continue };
            let name = stack::stack_name(id, *index);
            let read = drive.read_at(&name, 0, Buffer::zeroed(BLOCK_BYTES)).await.map_err(text);
            let header = read.and_then(|block| Header::decode(&block).map_err(text));
            if let Ok(header) = header
                && (header.blob.rack, header.blob.id, header.index) == (self.dir.rack_uuid(), id, *index)
            {
                return Some(header);
            }
        }
        None
    }
}

/// The record of the blob of `header`, of which `stacks` are there, in the group of `drives`.
fn record(header: &Header, stacks: &Stacks, drives: &[DriveId], members: usize) -> Blob {
    let (blob, from) = (header.blob, header.provenance);
    let found: BTreeMap<u8, DriveId> = stacks.iter().copied().collect();
    let mut places: Vec<Option<DriveId>> =
        (0..header.drives.len()).map(|index| found.get(&(index as u8)).copied()).collect();
    for index in 0..places.len() {
        if places[index].is_none() {
            // Where it was when the others were written, or, if there is another by now, on one that has none.
            let mut free = [header.drives[index]].into_iter().chain(drives.iter().copied());
            places[index] = free.find(|drive| !places.contains(&Some(*drive)));
        }
    }
    Blob {
        blob: blob.id,
        group: from.group,
        class: from.class,
        drives: places.into_iter().zip(&header.drives).map(|(found, was)| found.unwrap_or(*was)).collect(),
        code_data: blob.code.data,
        code_parity: blob.code.parity,
        fragment_bytes: blob.code.fragment_bytes,
        payload_bytes: blob.payload_bytes,
        stack_bytes: stack::stack_bytes(blob.code, blob.payload_bytes),
        members: members as u32,
        written_ms: from.written_ms,
    }
}

fn member(entry: IndexEntry) -> FoundMember {
    let IndexEntry { bucket, key, offset, object, attributes, .. } = entry;
    let lengths = object.parts.runs().iter().flat_map(|(count, bytes)| std::iter::repeat_n(*bytes, *count as usize));
    let parts = attributes.parts.into_iter().zip(lengths).zip(1..);
    let parts = parts.map(|((digests, bytes), number)| Part {
        number,
        slot: NO_SLOT,
        bytes,
        etag: hex(digests.md5),
        checksum: digests.checksum,
        modified_ms: object.modified_ms,
    });
    FoundMember {
        parts: parts.collect(),
        bucket,
        key,
        offset,
        sequence: Sequence(attributes.sequence),
        bucket_created_ms: attributes.bucket_created_ms,
        owner: attributes.owner,
        object,
    }
}

fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}
