//! Free space of the disks that hold emulated drives.
//!
//! A disk is asked as a file system, which wakes no drive of the rack, and only if several drives, or a drive and the
//! workshop, share it. Space that the workshop may still take on the same disk is not counted as the rack's: so the
//! rack is full before the workshop's disk is.

use crate::context::Context;
use crate::world::WorldHandle;
use disk::{DirectoryDrive, Drive};
use engine::Event;
use model::DriveId;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The interval between two measurements, in wall time.
const EVERY: Duration = Duration::from_secs(10);

/// A disk that several drives, or a drive and the workshop, share.
struct SharedDisk {
    /// A directory on it.
    path: PathBuf,
    drives: Vec<DriveId>,
    /// True if the workshop is on it as well.
    has_workshop: bool,
}

/// The disks that drives share.
pub struct HostRoom {
    hosts: Vec<SharedDisk>,
}

impl HostRoom {
    /// The shared disks below the directories of `drives` and the workshop. A missing directory counts as on the disk
    /// of its nearest existing ancestor.
    pub fn of(drives: impl IntoIterator<Item = (DriveId, PathBuf)>, workshop: &Path) -> Self {
        let device = |path: &Path| {
            let there = path.ancestors().find_map(|above| Some((above, fs::metadata(above).ok()?)));
            there.map(|(above, metadata)| (metadata.dev(), above.to_owned()))
        };
        let of_workshop = device(workshop).map(|(device, _)| device);
        let mut hosts = BTreeMap::<u64, SharedDisk>::new();
        for (drive, path) in drives {
            let Some((found, path)) = device(&path) else { continue };
            let has_workshop = of_workshop == Some(found);
            let host = hosts.entry(found).or_insert(SharedDisk { path, drives: Vec::new(), has_workshop });
            host.drives.push(drive);
        }
        let hosts = hosts.into_values().filter(|host| host.drives.len() > 1 || host.has_workshop).collect();
        Self { hosts }
    }

    /// Reports the free space to the engine, now and at intervals.
    pub async fn watch(self, context: &Context, world: &WorldHandle) {
        self.report(context, world).await;
        let (context, world) = (context.clone(), world.clone());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                self.report(&context, &world).await;
            }
        });
    }

    async fn report(&self, context: &Context, world: &WorldHandle) {
        for (host, of) in self.hosts.iter().enumerate() {
            match of.free_bytes(context).await {
                Ok(free_bytes) => {
                    let drives = of.drives.clone();
                    world.report(Event::HostMeasured { host: host as u32, drives, free_bytes });
                }
                Err(error) => tracing::warn!(%error, path = %of.path.display(), "cannot read a disk's free space"),
            }
        }
    }
}

impl SharedDisk {
    /// Bytes of it that the rack may still take.
    async fn free_bytes(&self, context: &Context) -> Result<u64, disk::DriveError> {
        let free_bytes = DirectoryDrive::open(&self.path)?.space().await?.free_bytes;
        if !self.has_workshop {
            return Ok(free_bytes);
        }
        let (staging, spool) = (context.staging.usage(), context.spool.usage());
        let staging_left = staging.capacity_bytes.saturating_sub(staging.staged_bytes);
        let spool_left = spool.capacity_bytes.saturating_sub(spool.used_bytes);
        Ok(free_bytes.saturating_sub(staging_left).saturating_sub(spool_left))
    }
}
