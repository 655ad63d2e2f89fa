//! A disk as a subject for measurements.

use super::state::DeviceState;
use crate::DriveError;
use crate::measure::{Medium, Subject};
use std::sync::Arc;

/// The disk of a drive that is not used otherwise.
pub(super) struct MeasuredDisk(pub(super) Arc<DeviceState>);

impl Subject for MeasuredDisk {
    fn start(&mut self) -> Result<(), DriveError> {
        self.0.power.start()
    }

    fn mount(&mut self) -> Result<(), DriveError> {
        self.0.mount()
    }

    fn unmount(&mut self) -> Result<(), DriveError> {
        self.0.unmount()
    }

    fn stop(&mut self) -> Result<(), DriveError> {
        self.0.stop()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        let name = self.0.power.disk.name()?;
        let opened = Medium::open(&self.0.power.disk.node(&name), self.0.power.disk.bytes(&name));
        opened.map_err(|error| DriveError::of_system(format!("opening {name}"), error))
    }
}
