//! A disk by its name in /dev/disk/by-id: its present place, its power control, its counters, its file system.

use crate::counters::IoCounters;
use crate::discover::{Contents, Protocol, Role, Tree, habits_of, identity_of, protocol_of, system_transports};
use crate::drive::DriveError;
use crate::label::{Device, LabelError};
use crate::power::{AtaPower, CommandPower, NoPower, PowerControl, PowerMode, ScsiPower};
use crate::scsi::{Command, Reply, ScsiTransport, TransportError};
use crate::smart::{self, SmartError};
use model::{PowerCommand, PowerHabits, Smart};
use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The supported file systems.
pub(super) const FILE_SYSTEMS: [&str; 2] = ["xfs", "ext4"];
/// The kernel's size of a sector in /sys.
const SECTOR_BYTES: u64 = 512;

/// Opens a transport for commands to the disk whose device node is at a path.
pub(super) type Transports = dyn Fn(&Path) -> Result<Box<dyn ScsiTransport>, TransportError> + Send + Sync;

/// A disk by its name in /dev/disk/by-id, present or not.
pub struct DiskHandle {
    id: RwLock<PathBuf>,
    /// The operator's command that controls its power, if any.
    command: Option<PowerCommand>,
    tree: Tree,
    transports: Arc<Transports>,
    /// Number of commands sent to it from here.
    commands: Arc<AtomicU64>,
}

impl DiskHandle {
    /// The disk that the link `id` refers to. Its power is controlled by `command`, or else by the disk itself.
    pub fn new(id: impl Into<PathBuf>, command: Option<PowerCommand>) -> Self {
        Self::within(id.into(), Tree::below("/"), Arc::new(system_transports)).commanded_by(command)
    }

    /// The same disk, with `command` as its power control, if given.
    pub(super) fn commanded_by(self, command: Option<PowerCommand>) -> Self {
        Self { command, ..self }
    }

    /// The disk that the link `id` refers to in `tree`, with commands sent through `transports`.
    pub(super) fn within(id: PathBuf, tree: Tree, transports: Arc<Transports>) -> Self {
        Self { id: RwLock::new(id), command: None, tree, transports, commands: Arc::default() }
    }

    /// True if an operator's command controls its power. Then the disk may be gone while it sleeps: a relay cuts its
    /// power.
    pub fn is_commanded(&self) -> bool {
        self.command.is_some()
    }

    /// The disk's link.
    pub fn id(&self) -> PathBuf {
        self.id.read().clone()
    }

    /// Makes it the disk that the link `id` refers to.
    pub(super) fn lead_to(&self, id: &Path) {
        id.clone_into(&mut self.id.write());
    }

    /// Its present kernel name.
    ///
    /// # Errors
    /// [`DriveError::Gone`] if it is not present.
    pub fn name(&self) -> Result<String, DriveError> {
        let target = self.tree.target(self.id());
        let name = target.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()).map(str::to_owned);
        let there = |name: &String| self.tree.exists(Path::new("sys/block").join(name));
        name.filter(there).ok_or_else(|| DriveError::Gone(self.id()))
    }

    /// The device node of the disk that the kernel calls `name`.
    pub fn node(&self, name: &str) -> PathBuf {
        self.tree.real(Path::new("dev").join(name))
    }

    /// Its power control.
    ///
    /// # Errors
    /// If it is gone, or may not be sent commands. An operator's command is available even if the disk is not.
    pub fn control(&self) -> Result<Box<dyn PowerControl>, DriveError> {
        if let Some(command) = &self.command {
            return Ok(Box::new(CommandPower::of(command, &self.id())));
        }
        let name = self.name()?;
        Ok(match protocol_of(&self.tree, &name) {
            Protocol::Ata => Box::new(AtaPower::new(self.transport(&name)?)),
            Protocol::Scsi => Box::new(ScsiPower::new(self.transport(&name)?)),
            Protocol::None => Box::new(NoPower::new("it does not accept SCSI commands")),
        })
    }

    /// The size of the disk that the kernel calls `name`.
    pub(super) fn bytes(&self, name: &str) -> u64 {
        self.tree.number(Path::new("sys/block").join(name).join("size")).unwrap_or(0) * SECTOR_BYTES
    }

    fn transport(&self, name: &str) -> Result<Counted, DriveError> {
        let transport = (self.transports)(&self.node(name)).map_err(|error| match error {
            TransportError::Gone => DriveError::Gone(self.id()),
            error => DriveError::Power(error.into()),
        })?;
        Ok(Counted { transport, commands: Arc::clone(&self.commands) })
    }

    /// Its health report, if its platters turn. Does not start it.
    ///
    /// # Errors
    /// As [`DiskHandle::control`].
    pub fn health(&self) -> Result<Option<Smart>, DriveError> {
        let name = self.name()?;
        let read = match protocol_of(&self.tree, &name) {
            Protocol::Ata => smart::read_ata(&self.transport(&name)?, &AtaPower::new(self.transport(&name)?)),
            Protocol::Scsi => smart::read_scsi(&self.transport(&name)?, &ScsiPower::new(self.transport(&name)?)),
            Protocol::None => return Ok(None),
        };
        match read {
            Ok(smart) => Ok(Some(smart)),
            Err(SmartError::NotAwake(_) | SmartError::Nothing) => Ok(None),
            Err(SmartError::Transport(error)) => Err(DriveError::Power(error.into())),
        }
    }

    /// Its power habits; `None` if it is gone. The disk itself is not asked.
    pub fn habits(&self) -> Option<PowerHabits> {
        Some(habits_of(&self.tree, &self.name().ok()?))
    }

    /// Its power mode. Does not start it.
    ///
    /// # Errors
    /// As [`DiskHandle::control`].
    pub fn mode(&self) -> Result<PowerMode, DriveError> {
        Ok(self.control()?.mode())
    }

    /// An identity other than `made_on`, the one that its label was written for: its volume was copied, or it is behind
    /// a bridge with a different name. `None` if it is the same, or unknown.
    pub(super) fn other_than(&self, made_on: &Device) -> Option<String> {
        let (wwn, serial) = identity_of(&self.tree, &self.name().ok()?);
        match made_on {
            Device::None => None,
            Device::Wwn(made_on) => wwn.filter(|wwn| wwn != made_on),
            Device::Serial(made_on) => serial.filter(|serial| serial != made_on),
        }
    }

    /// The kernel's counters of it, and the number of commands sent from here when they were read; `None` if it is
    /// gone.
    pub fn counters(&self) -> Option<(IoCounters, u64)> {
        let sent = self.commands.load(Ordering::SeqCst);
        let block = self.tree.real(Path::new("sys/block").join(self.name().ok()?));
        Some((IoCounters::read(&block)?, sent))
    }

    /// The kind of the file system on it, which must have the name `volume`. Reads its beginning and its end, and so
    /// wakes it if it sleeps.
    ///
    /// # Errors
    /// [`DriveError::Label`] if it holds something else.
    pub(super) fn file_system(&self, name: &str, volume: &str) -> Result<&'static str, DriveError> {
        let contents = Contents::read(&self.node(name), self.bytes(name));
        if let Contents::Unreadable(error) = &contents {
            return Err(DriveError::Medium { context: format!("reading {name}"), error: error.clone() });
        }
        let systems = contents.signatures().iter().filter(|found| found.role == Role::FileSystem);
        let found = systems.map(|found| (found.name.clone(), found.label.clone().unwrap_or_default())).next();
        let Some((kind, label)) = found else { return Err(LabelError::Missing.into()) };
        if label != volume {
            return Err(LabelError::OtherVolume { found: label, expected: volume.to_owned() }.into());
        }
        let known = FILE_SYSTEMS.into_iter().find(|known| *known == kind);
        known.ok_or_else(|| LabelError::OtherVolume { found: kind, expected: FILE_SYSTEMS.join(" or ") }.into())
    }
}

/// A transport that counts its commands, so that the commands of others can be derived from the kernel's total.
struct Counted {
    transport: Box<dyn ScsiTransport>,
    commands: Arc<AtomicU64>,
}

impl ScsiTransport for Counted {
    fn execute(&self, command: &Command) -> Result<Reply, TransportError> {
        self.commands.fetch_add(1, Ordering::SeqCst);
        self.transport.execute(command)
    }
}
