//! A drive that is not there, in the place of one that failed for good: whoever asks it for anything is told so.

use crate::{Buffer, Drive, DriveError, DriveFuture, FileName, Space};

/// A drive that is not there.
#[derive(Clone, Copy, Debug, Default)]
pub struct AbsentDrive;

fn absent<'a, T: Send + 'a>() -> DriveFuture<'a, T> {
    Box::pin(std::future::ready(Err(DriveError::NotReady("given up: it failed for good"))))
}

impl Drive for AbsentDrive {
    fn create(&self, _: &FileName, _: u64) -> DriveFuture<'_, ()> {
        absent()
    }

    fn write_at(&self, _: &FileName, _: u64, _: Buffer) -> DriveFuture<'_, Buffer> {
        absent()
    }

    fn read_at(&self, _: &FileName, _: u64, _: Buffer) -> DriveFuture<'_, Buffer> {
        absent()
    }

    fn sync(&self, _: &FileName) -> DriveFuture<'_, ()> {
        absent()
    }

    fn remove(&self, _: &FileName) -> DriveFuture<'_, ()> {
        absent()
    }

    fn len(&self, _: &FileName) -> DriveFuture<'_, u64> {
        absent()
    }

    fn list(&self) -> DriveFuture<'_, Vec<FileName>> {
        absent()
    }

    fn space(&self) -> DriveFuture<'_, Space> {
        absent()
    }

    fn spin_up(&self) -> DriveFuture<'_, ()> {
        absent()
    }

    fn mount(&self) -> DriveFuture<'_, Space> {
        absent()
    }

    fn unmount(&self) -> DriveFuture<'_, ()> {
        absent()
    }

    fn stop(&self) -> DriveFuture<'_, ()> {
        absent()
    }
}
