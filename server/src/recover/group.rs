//! The sources of a recovery: the catalog that it begins with, and the drives of one group, awake when it is that
//! group's turn, and at rest before the next one's (`offline_rack.rs`).

use super::report::Step;
use crate::error::text;
use crate::offline_rack::OfflineRack;
use catalog::{Catalog, Sequence};
use disk::stack::{self, Header};
use disk::{Buffer, Drive, DriveUuid, RackUuid, label};
use model::{BlobId, DriveId, RackSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use workshop::Staging;

/// The first block of a stack.
const BLOCK_BYTES: usize = 4096;

/// What the recovered catalog begins with.
pub struct Based<'a> {
    /// The catalog, with all that copies of the old one and the log have.
    pub catalog: &'a Catalog,
    /// The number of the last batch of the old one that it has; 0 if it has nothing.
    pub known_until: Sequence,
    /// The old one may have had batches after that one.
    pub may_be_older: bool,
    /// The workshop, unless that is lost.
    pub staging: Option<&'a Staging>,
}

/// A rack whose catalog is recovered.
pub struct Rack<'a> {
    /// Its description.
    pub spec: &'a RackSpec,
    /// Its UUID, which identifies its stacks.
    pub uuid: RackUuid,
    /// Its drives; no server has any of them.
    pub drives: &'a mut OfflineRack,
}

/// The stacks of a blob that were found: their index, and the drive.
pub(super) type Stacks = Vec<(u8, DriveId)>;

/// The usable drives of a group.
pub(super) struct GroupDrives {
    rack: RackUuid,
    pub(super) drives: BTreeMap<DriveId, Arc<dyn Drive>>,
}

impl GroupDrives {
    /// Wakes `drives` of the rack `uuid`; unusable ones are reported, and added to `unusable`.
    pub(super) async fn wake(
        (rack, uuid): (&mut OfflineRack, RackUuid),
        drives: &[DriveId],
        unusable: &mut BTreeSet<DriveId>,
        watch: &(dyn Fn(Step<'_>) + Sync),
    ) -> Self {
        let mut found = BTreeMap::new();
        watch(Step::Awake(drives));
        for (id, answer) in rack.wake(drives).await {
            match answer {
                Ok(drive) => drop(found.insert(id, drive)),
                Err(error) => {
                    if unusable.insert(id) {
                        watch(Step::Unusable(&format!("drive {id}: {error}")));
                    }
                }
            }
        }
        Self { rack: uuid, drives: found }
    }

    /// Puts the drives to rest.
    pub(super) async fn rest(self, rack: &mut OfflineRack, watch: &(dyn Fn(Step<'_>) + Sync)) {
        drop(self);
        rack.rest().await;
        watch(Step::Asleep);
    }

    /// The blobs with stacks on the drives. A drive that cannot be listed counts as unusable from then on.
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

    /// The header of a stack of blob `id`: the first one that is readable and of this rack.
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

    /// Makes `stacks` of `blob` durable: a server that was killed may not have synced them, and from then on an adopted
    /// object is stored nowhere else. An error if too few can be synced.
    pub(super) async fn sync(&self, blob: stack::Blob, stacks: &Stacks) -> Result<(), String> {
        let mut synced = BTreeSet::new();
        let mut error = String::new();
        for (index, drive) in self.with_drives(stacks) {
            match drive.sync(&stack::stack_name(blob.id, index)).await {
                Ok(()) => drop(synced.insert(index)),
                Err(why) => error = text(why),
            }
        }
        let enough = synced.len() >= usize::from(blob.code.data);
        if enough { Ok(()) } else { Err(format!("too few of its stacks can be synced: {error}")) }
    }

    /// Makes stack `index` of `blob` on `drive` durable. False if that fails.
    pub(super) async fn is_synced(&self, drive: DriveId, blob: BlobId, index: u8) -> bool {
        let Some(drive) = self.drives.get(&drive) else { return false };
        drive.sync(&stack::stack_name(blob, index)).await.is_ok()
    }

    /// The UUID on the label of `drive`; `None` if the drive cannot be read.
    pub(super) async fn uuid(&self, drive: DriveId) -> Option<DriveUuid> {
        label::uuid_of(&**self.drives.get(&drive)?).await.ok()
    }

    /// Each of `stacks` with its drive; each index once.
    pub(super) fn with_drives(&self, stacks: &Stacks) -> Vec<(u8, Arc<dyn Drive>)> {
        let mut seen = BTreeSet::new();
        let there = stacks.iter().filter_map(|(index, drive)| Some((*index, Arc::clone(self.drives.get(drive)?))));
        there.filter(|(index, _)| seen.insert(*index)).collect()
    }
}
