//! The data directory: all persistent state of a server, except drives that have their own paths.
//!
//! ```text
//! larder.toml   the configuration               identity   marks the directory as Larder's; written last: "complete"
//! rack.toml     the rack's description           lock       held while a server or `init` works here; its process id
//! credentials   the keys, for the owner alone    admin.sock the admin API while a server runs
//! catalog.db    key -> place                     drives/0000 ... the drives of an emulated rack
//! workshop/     staged files, recalls, journal   unfinished only while `init` works, or after it was killed
//! pool/0000 ... the drives of an emulated pool
//! disks         disks that took the places of others, if any
//! runs          the runs of its server, which identify its drives
//! mounts/0000 ... mount points of drives that are whole disks, while they are awake
//! ```
//!
//! Invariants:
//! - a [`DataDir`] holds the lock, and its identity, description and credentials were read and match;
//! - a directory that is not Larder's is never changed, not even by a lock file;
//! - an `init` that was killed at any moment leaves a directory that `init` completes and nothing else opens.

mod credentials;
mod devices;
mod disks;
mod error;
mod identity;
mod lock;
mod profile;
mod rights;
mod runs;

pub use credentials::{Credentials, endpoint};
pub(crate) use devices::{disks_of_machine, judge_disk};
pub use error::DataDirError;
pub(crate) use rights::close_within;

use crate::config::{Config, ConfigError};
use catalog::SqliteStore;
use disk::clock;
use disk::device::{self, DeviceDrive, DiskHandle, MountedDisk, is_device};
use disk::label::{self, Device, DriveLabel, DriveUuid, Label, RackUuid};
use disk::measure::Figures;
use disk::owner::{Claim, Runs};
use disk::private;
use disks::{DISKS, Disks};
use engine::layout::synthesise;
use error::{being_replaced, damaged, failed, foreign, lost_part, read_part, refused};
use identity::Identity;
use lineage::{OwnRuns, RunId};
use lock::LOCK;
use model::text::SHIPPED;
use model::{DriveId, PoolDriveId, PoolDriveSpec, RackSpec};
use parking_lot::Mutex;
use runs::RunsFile;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CONFIG: &str = "larder.toml";
const RACK: &str = "rack.toml";
/// The description before the last measurement.
const RACK_BEFORE: &str = "rack.toml.before";
pub(crate) const CREDENTIALS: &str = "credentials";
const IDENTITY: &str = "identity";
const CATALOG: &str = "catalog.db";
/// The complete catalog of a recovery, until it is in its place.
pub(crate) const RECOVERED: &str = "catalog.db.recovered";
const INTAKE: &str = "intake";
const WORKSHOP: &str = "workshop";
/// In the workshop.
pub(crate) const JOURNAL: &str = "journal";
const DRIVES: &str = "drives";
const POOL: &str = "pool";
pub(crate) const MANIFEST: &str = "manifest";
const MOUNTS: &str = "mounts";
/// Holds the rack's uuid while `init` works, so that a later `init` recognises the labels that it left on drives
/// elsewhere.
const UNFINISHED: &str = "unfinished";

/// Files and directories that Larder makes; catalog and credentials remove others' access themselves.
const CLOSED: [&str; 12] =
    [CONFIG, DISKS, DRIVES, IDENTITY, LOCK, MOUNTS, POOL, RACK, RACK_BEFORE, runs::RUNS, UNFINISHED, WORKSHOP];

const NO_DIRECTORY: &str = "is not a directory; choose another path";

/// The options of a new data directory.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// The rack.
    pub rack: RackSource,
    /// Keys of `larder.toml` that do not get their default: `key` or `table.key`, and the value in TOML.
    pub settings: Vec<(&'static str, String)>,
    /// Disks of the rack (paths, serial numbers or World Wide Names) whose data is no longer needed.
    pub wipe: Vec<String>,
}

/// The source of a rack's description.
#[derive(Clone, Debug)]
pub enum RackSource {
    /// A shipped rack's name, or the path of a description.
    Named(String),
    /// The description itself.
    Text(String),
}

impl<T: Into<String>> From<T> for RackSource {
    fn from(name: T) -> Self {
        Self::Named(name.into())
    }
}

/// A Larder data directory, locked by this process.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// The rack as described.
    described: RackSpec,
    /// The same rack, with the disks that took the places of others.
    rack: RackSpec,
    rack_uuid: RackUuid,
    /// The version of its format when it was opened.
    version: u32,
    credentials: Credentials,
    /// The claim of this process to its media.
    claim: Mutex<Arc<Claim>>,
    /// Holds the lock until it is dropped.
    _lock: File,
}

impl DataDir {
    /// True if there is a complete data directory at `path`.
    pub fn exists(path: &Path) -> bool {
        path.join(IDENTITY).exists()
    }

    /// Makes a new data directory at `path`, which must be empty, absent, or left by a killed `init`. If the directory
    /// existed, its owner becomes the owner of everything made there and on disks.
    ///
    /// # Errors
    /// When it is something else, or the rack or the settings make no sense; then nothing is changed.
    pub fn init(path: &Path, options: &InitOptions) -> Result<Self, DataDirError> {
        let (text, rack) = match &options.rack {
            RackSource::Named(name) => read_rack(name)?,
            RackSource::Text(text) => usable(text.clone(), RACK)?,
        };
        let config_text = Config::template(&options.settings);
        let config = Config::parse(&path.join(CONFIG), &config_text)?;
        let listen = config.listen;
        let unfinished = unfinished(path).map(label::volume_name);
        let disks = devices::choose(&rack, &options.wipe, unfinished.as_deref())?;
        devices::refuse_time_scale(&rack, config.time_scale)?;
        let path = made(path)?;
        refuse_unless_ours_to_make(&path)?;
        let lock = lock::take(&path)?;
        // Another `init` may have finished before this one took the lock.
        refuse_unless_ours_to_make(&path)?;
        let rack_uuid = begin(&path, &rack)?;
        write_new(&path.join(RACK), text.as_bytes())?;
        write_new(&path.join(CONFIG), config_text.as_bytes())?;
        let credentials = Credentials::random()?;
        write_new(&path.join(CREDENTIALS), credentials.to_text(listen).as_bytes())?;
        private::make_directory(&path.join(WORKSHOP)).map_err(|e| failed("making the workshop", e))?;
        // Created now, so that a catalog that is missing later is known to be lost rather than new.
        drop(SqliteStore::open(path.join(CATALOG))?);
        let claim = Mutex::new(claim_of(&path, rack_uuid, None, 0)?);
        let (described, version) = (rack.clone(), identity::VERSION);
        let dir = Self { path, described, rack, rack_uuid, version, credentials, claim, _lock: lock };
        let directories = dir.labels().into_iter().filter(|(_, label)| dir.device(label.drive).is_none()).collect();
        label::write_directories(&fresh_labels(directories)?).map_err(DataDirError::Drives)?;
        let owner = owner_elsewhere(&dir.path)?;
        disks.make(owner, |drive| {
            let (_, label) = dir.labels().swap_remove(drive.index());
            let device = dir.device_drive(drive).unwrap_or_else(|| panic!("{drive} is a device"));
            Ok((device, fresh_label(label)?))
        })?;
        if let Some(owner) = owner {
            give_to(&dir.path, owner)?;
        }
        dir.finish(owner)?;
        Ok(dir)
    }

    /// Opens the data directory at `path`.
    ///
    /// # Errors
    /// When it is not complete and sound, or another process works in it.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        let dir = Self::open_to_serve(path)?;
        match dir.lost_catalog() {
            // `larder serve` does not come here; it may be able to make the catalog again.
            Some(_) if dir.path.join(RECOVERED).exists() => Err(being_replaced(&dir.catalog())),
            Some(lost) => Err(lost.or_started()),
            None => Ok(dir),
        }
    }

    /// The same, except that the catalog may be missing: it is made again from the workshop, if that has all of it.
    ///
    /// # Errors
    /// Those of [`DataDir::open`].
    pub fn open_to_serve(path: &Path) -> Result<Self, DataDirError> {
        let dir = Self::open_to_recover(path)?;
        let workshop = dir.workshop();
        if workshop.exists() { Ok(dir) } else { Err(lost_part(&workshop, "is missing")) }
    }

    /// The reason that the catalog cannot be opened, if it is missing or empty.
    pub(crate) fn lost_catalog(&self) -> Option<DataDirError> {
        let catalog = self.catalog();
        match fs::metadata(&catalog) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(lost_part(&catalog, "is missing")),
            // SQLite takes an empty file for a new one.
            Ok(file) if file.len() == 0 => Some(lost_part(&catalog, "is empty")),
            _ => None,
        }
    }

    /// The same, except that the catalog and the workshop may be missing.
    ///
    /// # Errors
    /// Those of [`DataDir::open`].
    pub fn open_to_recover(path: &Path) -> Result<Self, DataDirError> {
        refuse_unless_complete(path)?;
        let path = path.canonicalize().map_err(|e| failed(&format!("finding {}", path.display()), e))?;
        let lock = lock::take(&path)?;
        let identity = Identity::read(&path.join(IDENTITY))?;
        let rack_path = path.join(RACK);
        let text = read_part(&rack_path)?;
        let described = model::text::parse(&text, &rack_path.to_string_lossy())?;
        identity.must_fit(&described, &rack_path)?;
        let rack = Disks::read(&path, identity.rack_uuid)?.applied(&described)?;
        let credentials = Credentials::from_text(&path.join(CREDENTIALS), &read_part(&path.join(CREDENTIALS))?)?;
        if !path.join(CONFIG).exists() {
            return Err(damaged(&path.join(CONFIG), "is missing"));
        }
        let Identity { rack_uuid, version, .. } = identity;
        let claim = Mutex::new(claim_of(&path, rack_uuid, None, READERS_LOCKS)?);
        let dir = Self { path, described, rack, rack_uuid, version, credentials, claim, _lock: lock };
        // Staged files and recalls have always been private.
        rights::close(
            &dir.path,
            &CLOSED,
            &[Path::new(WORKSHOP), &Path::new(WORKSHOP).join(JOURNAL), Path::new(MANIFEST)],
        );
        Ok(dir)
    }

    /// The claim of this process to the drives and the workshop; read-only before [`DataDir::begin_run`].
    pub fn claim(&self) -> Arc<Claim> {
        Arc::clone(&self.claim.lock())
    }

    /// Begins a run of the server, which uses the drives and the workshop and holds at most `locks_max` locks.
    ///
    /// # Errors
    /// If the run cannot be recorded.
    pub fn begin_run(&self, locks_max: usize) -> Result<Arc<Claim>, DataDirError> {
        let run = RunId(u64::from_le_bytes(credentials::random()?).max(1));
        let claim = claim_of(&self.path, self.rack_uuid, Some(run), locks_max)?;
        RunsFile::read(&self.path, true)?.begin_run(run, clock::wall_ms())?;
        *self.claim.lock() = Arc::clone(&claim);
        Ok(claim)
    }

    /// Records the operator's consent: marks of other runs up to now count as this directory's own.
    ///
    /// # Errors
    /// If the consent cannot be recorded.
    pub fn take_over(&self) -> Result<(), DataDirError> {
        RunsFile::read(&self.path, true)?.accept(clock::wall_ms())
    }

    /// The register of disks that take the places of others.
    pub fn register(&self) -> DiskRegister {
        DiskRegister { path: self.path.clone(), described: self.described.clone(), rack_uuid: self.rack_uuid }
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The rack.
    pub fn rack(&self) -> &RackSpec {
        &self.rack
    }

    /// The rack's identity, which its drives carry on their labels.
    pub fn rack_uuid(&self) -> RackUuid {
        self.rack_uuid
    }

    /// The keys that clients sign with.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// The endpoint for clients in the file of keys, if it has one.
    pub fn stored_endpoint(&self) -> Option<String> {
        credentials::stored_endpoint(&fs::read_to_string(self.path.join(CREDENTIALS)).ok()?)
    }

    /// Reads the configuration.
    ///
    /// # Errors
    /// Those of [`Config::read`].
    pub fn config(&self) -> Result<Config, ConfigError> {
        Config::read(&self.path.join(CONFIG))
    }

    /// The catalog's file.
    pub fn catalog(&self) -> PathBuf {
        self.path.join(CATALOG)
    }

    /// The workshop's directory.
    pub fn workshop(&self) -> PathBuf {
        self.path.join(WORKSHOP)
    }

    /// The directories of the intake: those of the rack's pool, each as in its description (relative to the data
    /// directory) or one in `pool`; without a pool, one in the workshop. The one in the workshop stays in use once it
    /// was used.
    pub fn intake(&self) -> Vec<PathBuf> {
        let own = |(index, drive): (usize, &PoolDriveSpec)| match &drive.path {
            Some(own) => self.path.join(own),
            None => self.path.join(POOL).join(format!("{index:04}")),
        };
        let mut places: Vec<PathBuf> = self.rack.pool.iter().enumerate().map(own).collect();
        let in_workshop = self.workshop().join(INTAKE);
        if places.is_empty() || in_workshop.exists() {
            places.push(in_workshop);
        }
        places
    }

    /// The drive of the pool whose directory is at `index` of [`DataDir::intake`], if its power is emulated: a drive
    /// whose description names no directory, in a rack of emulated drives.
    pub fn emulated_pool_drive(&self, index: usize) -> Option<PoolDriveId> {
        let drive = self.rack.pool.get(index)?;
        (drive.path.is_none() && !self.has_devices()).then_some(PoolDriveId(index as u32))
    }

    /// The directory of the pool's manifest: apart from the pool, so that it is not lost with it.
    pub fn manifest(&self) -> PathBuf {
        self.path.join(MANIFEST)
    }

    /// The drives of the pool that are whole disks, each with its directory on the disk.
    pub fn pool_disks(&self) -> Vec<(PoolDriveId, MountedDisk)> {
        let drives = self.rack.pool.iter().zip(self.intake()).zip(0..);
        let disk = |((drive, place), number): ((&PoolDriveSpec, PathBuf), u32)| {
            Some((PoolDriveId(number), MountedDisk::new(DiskHandle::new(drive.disk.as_ref()?, None), place)))
        };
        drives.filter_map(disk).collect()
    }

    /// The device of `drive`; `None` if it is not a device.
    pub fn device(&self, drive: DriveId) -> Option<&Path> {
        self.rack.drive(drive).path.as_deref().map(Path::new).filter(|path| is_device(path))
    }

    /// `drive` as a device; `None` if it is not a device.
    pub fn device_drive(&self, drive: DriveId) -> Option<DeviceDrive> {
        let (_, label) = self.labels().swap_remove(drive.index());
        let handle = DiskHandle::new(self.device(drive)?, self.rack.drive(drive).power_command().cloned());
        Some(DeviceDrive::new(handle, mount_point(&self.path, drive), label).with_claim(self.claim()))
    }

    /// Writes measured figures into the rack's description, and each measured drive's own rate into its entry, in one
    /// step; the old description is kept as `rack.toml.before`.
    ///
    /// # Errors
    /// When the description cannot be changed in this way; then it is unchanged.
    pub fn put_figures(&self, figures: &Figures, rates: &[(DriveId, u64)]) -> Result<(), DataDirError> {
        let at = self.path.join(RACK);
        let old = read_part(&at)?;
        let by_line = "cannot be changed line by line; write [drive], each [[drives]], and each of their keys on its \
                       own line";
        let new = profile::with_figures(&old, figures, rates).ok_or_else(|| damaged(&at, by_line))?;
        if !profile::is_same_but_for_figures(&self.described, &model::text::parse(&new, &at.to_string_lossy())?) {
            return Err(damaged(&at, by_line));
        }
        let (fresh, before) = (self.path.join("rack.toml.new"), self.path.join(RACK_BEFORE));
        for (path, text) in [(&before, &old), (&fresh, &new)] {
            gone(fs::remove_file(path), "a file left by an earlier change")?;
            write_new(path, text.as_bytes())?;
            if let Some(owner) = owner_elsewhere(&self.path)? {
                give_to(path, owner)?;
            }
        }
        fs::rename(&fresh, &at).map_err(|e| failed("renaming the description", e))?;
        sync_directory(&self.path)
    }

    /// Makes the directory's owner the owner of everything that root has made in it and in its workshop, so that a
    /// service that is not root can use it.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub fn give_what_root_made(&self) -> Result<(), DataDirError> {
        let Some(owner) = owner_elsewhere(&self.path)? else { return Ok(()) };
        let entries = fs::read_dir(&self.path).map_err(|e| failed("searching for files that root has created", e))?;
        for entry in entries {
            let path = entry.map_err(|e| failed("searching for files that root has created", e))?.path();
            // Drives that are directories may be many, and large; root makes nothing there.
            if path.is_file() {
                give_to(&path, owner)?;
            }
        }
        give_to(&self.workshop(), owner)
    }

    /// Makes the directory's owner the owner of the drive's directory `path` and of the label in it, as far as they are
    /// root's, so that a service that is not root can use the drive.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub fn give_drive(&self, path: &Path) -> Result<(), DataDirError> {
        let Some(owner) = owner_elsewhere(&self.path)? else { return Ok(()) };
        for path in [path.to_owned(), path.join(label::file_name().as_str())] {
            // Not the link, if the drive's place is one.
            let place = fs::canonicalize(&path).map_err(|e| failed("giving a drive to its owner", e))?;
            let found = fs::metadata(&place).map_err(|e| failed("giving a drive to its owner", e))?;
            if found.uid() == 0 {
                give_one(&place, owner)?;
            }
        }
        Ok(())
    }

    /// True if some drives are devices.
    pub fn has_devices(&self) -> bool {
        self.rack.drives.iter().any(|drive| self.device(drive.id).is_some())
    }

    /// The directory of `drive`: the one in its description (relative to the data directory), or one in `drives`; for a
    /// device, one that exists only while it is mounted.
    pub fn drive(&self, drive: DriveId) -> PathBuf {
        drive_path(&self.path, &self.rack, drive)
    }

    /// The label that each drive has to carry, with the drive's directory.
    pub fn labels(&self) -> Vec<(PathBuf, Label)> {
        let label = |drive| Label { rack: self.rack_uuid, rack_name: self.rack.name.clone(), drive };
        self.rack.drives.iter().map(|drive| (self.drive(drive.id), label(drive.id))).collect()
    }

    /// Raises the identity to the version of this Larder, if it has an earlier one; returns the earlier version and the
    /// new one. If this ends early, either version is there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn raise_version(&self) -> Result<Option<(u32, u32)>, DataDirError> {
        if self.version == identity::VERSION {
            return Ok(None);
        }
        // The description may differ from the one for which the drives were laid out, in everything that does not
        // matter.
        let identity = Identity::read(&self.path.join(IDENTITY))?.raised();
        self.write_identity(&identity, owner_elsewhere(&self.path)?)?;
        Ok(Some((self.version, identity::VERSION)))
    }

    fn write_identity(&self, identity: &Identity, owner: Option<(u32, u32)>) -> Result<(), DataDirError> {
        let fresh = self.path.join("identity.new");
        // Left by a killed process.
        drop(fs::remove_file(&fresh));
        write_new(&fresh, identity.to_text().as_bytes())?;
        if let Some(owner) = owner {
            give_to(&fresh, owner)?;
        }
        sync_directory(&self.path)?;
        fs::rename(&fresh, self.path.join(IDENTITY)).map_err(|e| failed("naming the identity", e))?;
        sync_directory(&self.path)
    }

    /// Writes the identity; from then on the directory is complete.
    fn finish(&self, owner: Option<(u32, u32)>) -> Result<(), DataDirError> {
        self.write_identity(&Identity::of(self.rack_uuid, &self.rack), owner)?;
        fs::remove_file(self.path.join(UNFINISHED)).map_err(|e| failed("finishing", e))?;
        sync_directory(&self.path)?;
        self.path.parent().map_or(Ok(()), sync_directory)
    }
}

/// Maximum number of locks of a reader.
const READERS_LOCKS: usize = 64;

/// The claim of a process to the media of the data directory `path`; `current` is its run, or `None` for a reader.
fn claim_of(path: &Path, rack: RackUuid, current: Option<RunId>, locks_max: usize) -> Result<Arc<Claim>, DataDirError> {
    let RunsFile { directory, runs, accepted_ms, .. } = RunsFile::read(path, false)?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let place = format!("{}:{}", host.trim(), path.display());
    let own = OwnRuns { previous: runs.last().copied(), known: runs.into_iter().collect(), current, accepted_ms };
    Ok(Arc::new(Claim::new(Runs { rack, directory, own, place, path: path.display().to_string() }, locks_max)))
}

/// The user and group of the data directory `path`, if root works in the directory of another user.
fn owner_elsewhere(path: &Path) -> Result<Option<(u32, u32)>, DataDirError> {
    let of = |path: &Path| fs::metadata(path).map_err(|e| failed("finding its owner", e));
    let (owner, myself) = (of(path)?, of(Path::new("/proc/self"))?);
    Ok(Some((owner.uid(), owner.gid())).filter(|_| myself.uid() == 0 && owner.uid() != 0))
}

/// Gives `path` to the user and the group.
fn give_one(path: &Path, (user, group): (u32, u32)) -> Result<(), DataDirError> {
    let given = std::os::unix::fs::lchown(path, Some(user), Some(group));
    given.map_err(|e| failed(&format!("giving {} to its owner", path.display()), e))
}

/// Gives `path` and everything in it to the user and the group.
fn give_to(path: &Path, (user, group): (u32, u32)) -> Result<(), DataDirError> {
    let failed = |e| failed(&format!("giving {} to its owner", path.display()), e);
    give_one(path, (user, group))?;
    if !path.is_symlink() && path.is_dir() {
        for entry in fs::read_dir(path).map_err(failed)? {
            give_to(&entry.map_err(failed)?.path(), (user, group))?;
        }
    }
    Ok(())
}

/// The register of the disks of a data directory's rack, which others may replace.
pub struct DiskRegister {
    path: PathBuf,
    described: RackSpec,
    rack_uuid: RackUuid,
}

impl DiskRegister {
    /// The rack with its current disks.
    ///
    /// # Errors
    /// If the file of disks cannot be read.
    pub fn rack(&self) -> Result<RackSpec, DataDirError> {
        Disks::read(&self.path, self.rack_uuid)?.applied(&self.described)
    }

    /// The user and the group to which the files on a new disk belong; `None` for the user who makes it.
    ///
    /// # Errors
    /// If the data directory cannot be read.
    pub fn owner(&self) -> Result<Option<(u32, u32)>, DataDirError> {
        owner_elsewhere(&self.path)
    }

    /// The mount point of the disk that is `drive`.
    pub fn mount_point(&self, drive: DriveId) -> PathBuf {
        mount_point(&self.path, drive)
    }

    /// Records that the disk to which `link` leads is `drive` from now on.
    ///
    /// # Errors
    /// If that cannot be recorded; then nothing is changed.
    pub fn put(&self, drive: DriveId, link: &str) -> Result<(), DataDirError> {
        let described = self.described.drive(drive).path.clone().unwrap_or_default();
        let before = Disks::read(&self.path, self.rack_uuid)?;
        let mut disks = before.clone();
        disks.put(drive, link, &described);
        if disks == before {
            return Ok(());
        }
        let fresh = self.path.join("disks.new");
        gone(fs::remove_file(&fresh), "disks.new")?;
        write_new(&fresh, disks.to_text().as_bytes())?;
        fs::rename(&fresh, self.path.join(DISKS)).map_err(|e| failed("naming the file of disks", e))?;
        sync_directory(&self.path)
    }
}

/// Puts fresh keys into the `credentials` of the data directory `path`, in one step. Its other lines stay.
///
/// # Errors
/// When they cannot be written; then the old ones stay.
pub(crate) fn replace_credentials(path: &Path) -> Result<Credentials, DataDirError> {
    let credentials = Credentials::random()?;
    let fresh = path.join("credentials.new");
    gone(fs::remove_file(&fresh), "credentials.new")?;
    let old = fs::read_to_string(path.join(CREDENTIALS)).unwrap_or_default();
    write_new(&fresh, credentials.in_place_of(&old).as_bytes())?;
    fs::rename(&fresh, path.join(CREDENTIALS)).map_err(|e| failed("naming the credentials", e))?;
    sync_directory(path)?;
    Ok(credentials)
}

/// The description called `rack`: its text, and the parsed rack. A shipped name takes precedence over a file of that
/// name.
///
/// # Errors
/// When there is no such description, it makes no sense, or no group of drives can be awake in it.
pub fn read_rack(rack: &str) -> Result<(String, RackSpec), DataDirError> {
    let (text, origin) = match SHIPPED.iter().find(|(name, _)| *name == rack) {
        Some((name, text)) => ((*text).to_owned(), format!("{name}.toml")),
        None => match fs::read_to_string(rack) {
            Ok(text) => (text, rack.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let names = SHIPPED.map(|(name, _)| name).join(", ");
                return Err(DataDirError::Refused(format!(
                    "there is no rack `{rack}`; write the path of a description, or one of {names}"
                )));
            }
            Err(error) => return Err(failed(&format!("reading {rack}"), error)),
        },
    };
    usable(text, &origin)
}

/// The rack of this description from `origin`, if some group of its drives can be awake.
fn usable(text: String, origin: &str) -> Result<(String, RackSpec), DataDirError> {
    let spec = model::text::parse(&text, origin)?;
    if let Err(error) = synthesise(&spec) {
        return Err(model::text::complaint(&text, origin, "group_drives", error.to_string()).into());
    }
    Ok((text, spec))
}

fn drive_path(path: &Path, rack: &RackSpec, drive: DriveId) -> PathBuf {
    match &rack.drive(drive).path {
        Some(own) if is_device(Path::new(own)) => device::directory_in(&mount_point(path, drive)),
        Some(own) => path.join(own),
        None => path.join(DRIVES).join(format!("{:04}", drive.0)),
    }
}

fn mount_point(path: &Path, drive: DriveId) -> PathBuf {
    path.join(MOUNTS).join(format!("{:04}", drive.0))
}

/// The rack that a killed `init` left unfinished at `path`.
fn unfinished(path: &Path) -> Option<RackUuid> {
    identity::uuid_from(fs::read_to_string(path.join(UNFINISHED)).ok()?.trim())
}

/// The labels of drives that are labelled now: each gets a new UUID.
fn fresh_labels(labels: Vec<(PathBuf, Label)>) -> Result<Vec<(PathBuf, DriveLabel)>, DataDirError> {
    labels.into_iter().map(|(path, label)| Ok((path, fresh_label(label)?))).collect()
}

/// The label of a drive that takes the place `label` now.
///
/// # Errors
/// When the system has no random bytes.
pub(crate) fn fresh_label(label: Label) -> Result<DriveLabel, DataDirError> {
    let labelled_ms = clock::wall_ms();
    let uuid = DriveUuid(identity::random_uuid()?.0);
    Ok(DriveLabel { label, uuid, labelled_ms, device: Device::None })
}

/// `path` as an absolute directory, created if absent.
fn made(path: &Path) -> Result<PathBuf, DataDirError> {
    if path.exists() && !path.is_dir() {
        return Err(refused(path, NO_DIRECTORY));
    }
    let made = private::make_directory(path).and_then(|()| path.canonicalize());
    made.map_err(|e| failed(&format!("making {}", path.display()), e))
}

fn names_in(path: &Path) -> Result<Vec<String>, DataDirError> {
    let names = || -> io::Result<Vec<String>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    let mut names = names().map_err(|e| failed(&format!("looking into {}", path.display()), e))?;
    names.sort();
    Ok(names)
}

fn refuse_unless_ours_to_make(path: &Path) -> Result<(), DataDirError> {
    let names = names_in(path)?;
    let has = |name: &str| names.iter().any(|n| n == name);
    if has(IDENTITY) {
        let shown = path.display();
        return Err(refused(
            path,
            format!("is a Larder data directory already; start it with `larder serve --data {shown}`"),
        ));
    }
    // A killed `init` may have left only the lock.
    if has(UNFINISHED) || names.iter().all(|name| name == LOCK) {
        return Ok(());
    }
    Err(foreign(path, &names))
}

fn refuse_unless_complete(path: &Path) -> Result<(), DataDirError> {
    if !path.exists() {
        return Err(DataDirError::Missing(path.to_owned()));
    }
    if !path.is_dir() {
        return Err(refused(path, NO_DIRECTORY));
    }
    let names = names_in(path)?;
    let has = |name: &str| names.iter().any(|n| n == name);
    if has(IDENTITY) {
        return Ok(());
    }
    if has(UNFINISHED) {
        let complete = format!("complete it with `larder init --data {} --rack ...`", path.display());
        return Err(refused(path, format!("is an unfinished data directory; {complete}")));
    }
    if has(CATALOG) && has(RACK) {
        return Err(damaged(&path.join(IDENTITY), "is missing"));
    }
    if names.iter().all(|name| name == LOCK) {
        return Err(DataDirError::Missing(path.to_owned()));
    }
    Err(foreign(path, &names))
}

/// Removes what a killed `init` left, and marks the directory as unfinished.
fn begin(path: &Path, rack: &RackSpec) -> Result<RackUuid, DataDirError> {
    if let Some(uuid) = unfinished(path) {
        forget_labels(path, rack, uuid);
    }
    for name in [RACK, CONFIG, CREDENTIALS, CATALOG, "identity.new", UNFINISHED] {
        gone(fs::remove_file(path.join(name)), name)?;
    }
    for name in [WORKSHOP, DRIVES] {
        gone(fs::remove_dir_all(path.join(name)), name)?;
    }
    // An existing directory may be open to all; its future contents are not for all.
    fs::set_permissions(path, Permissions::from_mode(private::DIRECTORY_MODE))
        .map_err(|e| failed("removing others' access to it", e))?;
    let uuid = identity::random_uuid()?;
    write_new(&path.join(UNFINISHED), format!("{uuid}\n").as_bytes())?;
    sync_directory(path)?;
    Ok(uuid)
}

/// Removes the labels of the unfinished rack `uuid` from drives outside of the data directory. A label that cannot be
/// removed leads to a refusal when the drives are labelled.
fn forget_labels(path: &Path, rack: &RackSpec, uuid: RackUuid) {
    for drive in rack.drives.iter().filter(|drive| drive.path.is_some()) {
        let file = drive_path(path, rack, drive.id).join(label::file_name().as_str());
        let ours =
            fs::read(&file).is_ok_and(|block| DriveLabel::decode(&block).is_ok_and(|found| found.label.rack == uuid));
        if ours && let Err(error) = fs::remove_file(&file) {
            tracing::warn!(path = %file.display(), %error, "cannot take back the label of an unfinished rack");
        }
    }
}

fn gone(removed: io::Result<()>, name: &str) -> Result<(), DataDirError> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&format!("removing {name}"), error)),
        _ => Ok(()),
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), DataDirError> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(private::FILE_MODE).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|e| failed(&format!("writing {}", path.display()), e))
}

fn sync_directory(path: &Path) -> Result<(), DataDirError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|e| failed(&format!("syncing {}", path.display()), e))
}

#[cfg(test)]
mod tests;
