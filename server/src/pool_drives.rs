//! The drives of the pool whose power is the engine's to control: emulated ones, and whole disks.
//!
//! To the intake such a drive is a directory that can sleep: what its rotation decides goes to the world, and who needs
//! a drive waits until the engine has had it started. The intake is opened before the world is, since the catalog needs
//! its log; until there is a world, drives spin. After its end they are taken to start by themselves.

use crate::world::WorldHandle;
use engine::{Event, PoolDriveEvent};
use intake::medium::files::DirectoryOfFiles;
use intake::medium::{Directory, File};
use model::PoolDriveId;
use std::fmt;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};

/// The way from the pool's drives to the world, once there is one.
#[derive(Clone, Default)]
pub(crate) struct PoolPower(Arc<OnceLock<WorldHandle>>);

impl PoolPower {
    /// From now on `world` controls the power. The first one counts.
    pub(crate) fn follow(&self, world: WorldHandle) {
        // There is one world to a process.
        self.0.set(world).ok();
    }

    /// Waits until `drive` spins.
    fn wake(&self, drive: PoolDriveId) -> io::Result<()> {
        let Some(world) = self.0.get() else { return Ok(()) };
        let (answer, answered) = channel();
        world.want_pool_drive(drive, move |awake| {
            // Whoever asked waits for it.
            answer.send(awake).ok();
        });
        match answered.recv() {
            Ok(false) => Err(io::Error::other(format!("drive {} of the pool does not start", drive.0))),
            Ok(true) | Err(_) => Ok(()),
        }
    }

    fn sleep(&self, drive: PoolDriveId) {
        if let Some(world) = self.0.get() {
            world.report(Event::PoolDrive { drive, event: PoolDriveEvent::Idle });
        }
    }
}

impl fmt::Debug for PoolPower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolPower").field(&self.0.get().is_some()).finish()
    }
}

/// A directory of files on a drive whose power is controlled.
#[derive(Debug)]
pub(crate) struct PoolDirectory {
    pub(crate) files: DirectoryOfFiles,
    pub(crate) drive: PoolDriveId,
    pub(crate) power: PoolPower,
}

impl Directory for PoolDirectory {
    fn place(&self) -> String {
        self.files.place()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.files.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.files.open(name)
    }

    fn open_to_read(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.files.open_to_read(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync()
    }

    fn can_sleep(&self) -> bool {
        true
    }

    fn wake(&self) -> io::Result<()> {
        self.power.wake(self.drive)
    }

    fn sleep(&self) -> io::Result<()> {
        self.power.sleep(self.drive);
        Ok(())
    }
}
