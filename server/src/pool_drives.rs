//! The drives of the pool whose power the engine controls: emulated ones, and whole disks.
//!
//! To the intake such drives are directories that can sleep: the decisions of its rotation go to the world, and a task
//! that needs a drive waits until the engine has had it started. The intake is opened before the world is, because the
//! catalog needs its log; until there is a world, drives spin. After the end of the world they are taken to start by
//! themselves.

use crate::world::WorldHandle;
use engine::{Event, PoolDriveEvent};
use intake::medium::files::DirectoryOfFiles;
use intake::medium::{Directory, File};
use model::PoolDriveId;
use std::fmt;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};

/// The link from the pool's drives to the world, once there is one.
#[derive(Clone, Default)]
pub(crate) struct PoolPower(Arc<OnceLock<WorldHandle>>);

impl PoolPower {
    /// Lets `world` control the power from now on. Only the first call counts.
    pub(crate) fn follow(&self, world: WorldHandle) {
        // A process has one world.
        self.0.set(world).ok();
    }

    /// Waits until `drive` spins.
    fn wake(&self, drive: PoolDriveId) -> io::Result<()> {
        let Some(world) = self.0.get() else { return Ok(()) };
        let (answer, answered) = channel();
        world.want_pool_drive(drive, move |awake| {
            // The caller waits for it.
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

/// A directory of files on a drive with controlled power.
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
