//! The places of the intake: the directories of the drives of its pool. Drives that are whole disks are awake.
//!
//! The intake is opened before there is a world that could ask for permits, and cannot be opened without its drives. So
//! disks that stand still are started here one after the other, before any drive of the rack: this breaks no limit on
//! starts that allows at least one. A disk that does not start is missing, like one that is not mounted.

use crate::data_dir::{DataDir, close_within};
use disk::DriveError;
use disk::device::{MountedError, PoolDisks};
use disk::owner::Claim;
use intake::medium::Directory;
use model::PoolDriveId;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that an operator puts into an empty directory that is to join an existing pool.
const JOIN: &str = "intake.join";

/// The directories of a pool, and the places of drives that are missing.
pub(crate) type Found = (Vec<Box<dyn Directory>>, Vec<PathBuf>);

/// The places of an intake. See the head of this file.
pub(crate) struct IntakePlaces {
    /// The data directory.
    ours: PathBuf,
    places: Vec<PathBuf>,
    disks: Arc<PoolDisks>,
    started: Vec<PoolDriveId>,
    /// For places with a disk that does not start: the reason, by number.
    dead: BTreeMap<usize, String>,
    /// Checks that no other server owns the places.
    claim: Option<Arc<Claim>>,
}

impl IntakePlaces {
    /// The places of `dir`. Disks among them are awake afterwards, if possible. Blocks.
    pub(crate) fn of(dir: &DataDir) -> Self {
        let mut these = Self::at(dir.path(), dir.intake());
        (these.disks, these.claim) = (Arc::new(PoolDisks::new(dir.pool_disks())), Some(dir.claim()));
        for drive in dir.rack().pool.iter().enumerate().map(|(index, _)| PoolDriveId(index as u32)) {
            let Some(disk) = these.disks.get(drive) else { continue };
            match disk.ready() {
                Ok(started) => these.started.extend(started.then_some(drive)),
                Err(MountedError::Drive(error)) => {
                    tracing::error!(%drive, %error, "a disk of the pool does not start");
                    these.dead.insert(drive.index(), error.to_string());
                }
                // The disk can still be used.
                Err(error) => tracing::warn!(%drive, "a disk of the pool will not sleep: {error}"),
            }
        }
        these
    }

    /// These places, in the data directory `ours` or outside of it. None of them is a disk.
    pub(crate) fn at(ours: &Path, places: Vec<PathBuf>) -> Self {
        let (disks, dead) = (Arc::new(PoolDisks::new([])), BTreeMap::new());
        Self { ours: ours.to_owned(), places, disks, started: Vec::new(), dead, claim: None }
    }

    /// The disks among them.
    pub(crate) fn disks(&self) -> &Arc<PoolDisks> {
        &self.disks
    }

    /// The disks that were started here.
    pub(crate) fn started(&self) -> &[PoolDriveId] {
        &self.started
    }

    /// The places, for people.
    pub(crate) fn shown(&self) -> String {
        self.places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// True if one of them has an intake, or if that cannot be seen.
    pub(crate) fn is_made(&self) -> bool {
        let mut alive = self.places.iter().enumerate().filter(|(index, _)| !self.dead.contains_key(index));
        alive.any(|(_, place)| has_label(place))
    }

    /// Their directories, opened with `open`, and the places that are left out. If a pool exists, a place without a
    /// label may be that of a drive that is not mounted: it is left out as a missing drive, unless the operator has
    /// marked it to join. A directory outside of the data directory is never created, and a new one is not used unless
    /// it is on the disk that is named for it.
    ///
    /// # Errors
    /// If one cannot be used.
    pub(crate) fn directories(
        &self,
        mut open: impl FnMut(usize, &Path) -> io::Result<Box<dyn Directory>>,
    ) -> io::Result<Found> {
        let (mut found, mut unmounted): Found = Default::default();
        let mut foreign = None;
        let is_pool = self.is_made();
        for (index, place) in self.places.iter().enumerate() {
            let shown = place.display();
            if let Some(why) = self.dead.get(&index) {
                tracing::warn!("a drive of the pool is missing: {shown}: {why}");
                unmounted.push(place.clone());
                continue;
            }
            let is_new = !has_label(place);
            if is_pool && is_new && !place.join(JOIN).exists() {
                tracing::warn!(
                    "a drive of the pool is missing: {shown} has no label; mount it, and start again (or, to let an \
                     empty drive join the pool, create an empty file {JOIN} there)"
                );
                unmounted.push(place.clone());
            } else if place.starts_with(&self.ours) || place.is_dir() {
                if let (true, Some(disk)) = (is_new, self.disks.get(PoolDriveId(index as u32))) {
                    disk.check().map_err(io::Error::other)?;
                }
                if let Some(why) = self.owned_by_another(place)? {
                    tracing::error!("a drive of the pool is not used: {shown}: {why}");
                    foreign.get_or_insert_with(|| format!("{shown}: {why}"));
                    unmounted.push(place.clone());
                    continue;
                }
                let opened = open(index, place);
                found.push(opened.map_err(|error| io::Error::new(error.kind(), format!("{shown}: {error}")))?);
            } else {
                let what = "does not exist, and only you can create it: check that its drive is mounted";
                return Err(io::Error::new(io::ErrorKind::NotFound, format!("{shown}: it {what}")));
            }
        }
        match foreign.filter(|_| found.is_empty()) {
            Some(why) => Err(io::Error::new(io::ErrorKind::ResourceBusy, why)),
            None => Ok((found, unmounted)),
        }
    }
}

impl IntakePlaces {
    /// Acquires the drive at `place`. If another server owns it, returns the reason and the fix.
    fn owned_by_another(&self, place: &Path) -> io::Result<Option<String>> {
        let Some(claim) = self.claim.as_ref().filter(|_| place.is_dir()) else { return Ok(None) };
        match claim.hold(place) {
            Ok(()) => {
                close_within(place);
                Ok(None)
            }
            Err(DriveError::Owner(why)) => Ok(Some(why.to_string())),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// True if `place` has a drive of a pool, or if that cannot be seen.
fn has_label(place: &Path) -> bool {
    place.join(intake::LABEL).try_exists().unwrap_or(true)
}
