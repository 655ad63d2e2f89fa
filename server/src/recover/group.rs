//! The drives of one group, as a recovery reads them: opened when it is that group's turn, and let go before the next.
//!
//! The drives of a group may all be active at once, whatever they share (`engine/src/layout.rs`), and no other one is:
//! so no domain has more of them active than it allows.

use super::report::Step;
use crate::data_dir::DataDir;
use crate::error::text;
use disk::stack::{self, Header};
use disk::{Buffer, DirectoryDrive, Drive, OpenFiles, RackUuid, label};
use model::{BlobId, DriveId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Files of the drives that are open at once.
const OPEN_FILES: usize = 256;
/// The first block of a stack.
const BLOCK_BYTES: usize = 4096;

/// The stacks of a blob that are there: their index, and the drive.
pub(super) type Stacks = Vec<(u8, DriveId)>;

/// Those of some drives that can be used.
pub(super) struct GroupDrives {
    rack: RackUuid,
    pub(super) drives: BTreeMap<DriveId, Arc<dyn Drive>>,
}

impl GroupDrives {
    /// Opens `drives`; those that cannot be used are reported, and added to `unusable`.
    pub(super) async fn open(
        dir: &DataDir,
        drives: &[DriveId],
        unusable: &mut BTreeSet<DriveId>,
        watch: &(dyn Fn(Step<'_>) + Sync),
    ) -> Self {
        let files = OpenFiles::new(OPEN_FILES);
        let mut found = BTreeMap::new();
        for (path, place) in dir.labels().into_iter().filter(|(_, place)| drives.contains(&place.drive)) {
            let opened = DirectoryDrive::open(&path).map(|drive| drive.with_open_files(&files));
            let checked = match opened {
                Ok(drive) => label::check(&drive, &place).await.map(|_| drive),
                Err(error) => Err(error),
            };
            match checked {
                Ok(drive) => drop(found.insert(place.drive, Arc::new(drive) as Arc<dyn Drive>)),
                Err(error) => {
                    if unusable.insert(place.drive) {
                        watch(Step::Unusable(&format!("drive {}: {error}", place.drive)));
                    }
                }
            }
        }
        Self { rack: dir.rack_uuid(), drives: found }
    }

    /// The blobs of which stacks are there. A drive that cannot be listed counts as unusable from then on.
    pub(super) async fn stacks(
        &mut self,
        unusable: &mut BTreeSet<DriveId>,
        watch: &(dyn Fn(Step<'_>) + Sync),
    ) -> BTreeMap<BlobId, Stacks> {
        let mut found: BTreeMap<BlobId, Stacks> = BTreeMap::new();
        for (id, drive) in std::mem::take(&mut self.drives) {
            match drive.list().await {
                Ok(names) => {
                    for (blob, index) in names.iter().filter_map(stack::stack_of) {
                        found.entry(blob).or_default().push((index, id));
                    }
                    self.drives.insert(id, drive);
                }
                Err(error) => {
                    unusable.insert(id);
                    watch(Step::Unusable(&format!("drive {id} cannot be listed: {error}")));
                }
            }
        }
        found
    }

    /// The header of a stack of blob `id`: the first that can be read, and is of this rack.
    pub(super) async fn header(&self, id: BlobId, stacks: &Stacks) -> Option<Header> {
        for (index, drive) in stacks {
            let Some(drive) = self.drives.get(drive) else { continue };
            let name = stack::stack_name(id, *index);
            let read = drive.read_at(&name, 0, Buffer::zeroed(BLOCK_BYTES)).await.map_err(text);
            let header = read.and_then(|block| Header::decode(&block).map_err(text));
            if let Ok(header) = header
                && (header.blob.rack, header.blob.id, header.index) == (self.rack, id, *index)
            {
                return Some(header);
            }
        }
        None
    }

    /// Each of `stacks` with its drive, and each index once.
    pub(super) fn with_drives(&self, stacks: &Stacks) -> Vec<(u8, Arc<dyn Drive>)> {
        let mut seen = BTreeSet::new();
        let there = stacks.iter().filter_map(|(index, drive)| Some((*index, Arc::clone(self.drives.get(drive)?))));
        there.filter(|(index, _)| seen.insert(*index)).collect()
    }
}
