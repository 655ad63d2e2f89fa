//! What a drive is doing, as far as the engine knows. The picture is in [`crate::drives`].

use crate::event::Loss;

/// The phase of a drive, as far as the engine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrivePhase {
    /// Platters stopped.
    Standby,
    /// Its group is waking; it waits for its permits.
    AwaitingPermit,
    /// Told to start.
    SpinningUp,
    /// Told to mount.
    Mounting,
    /// Mounted: files can be read and written.
    Ready,
    /// Told to unmount.
    Unmounting,
    /// Told to stop.
    Stopping,
    /// Not there.
    Away(Loss),
}

impl DrivePhase {
    pub(super) fn is_away(self) -> bool {
        matches!(self, Self::Away(_))
    }

    /// Told to start or to mount.
    pub(crate) fn is_starting(self) -> bool {
        matches!(self, Self::SpinningUp | Self::Mounting)
    }

    /// On its way to be ready.
    pub(crate) fn is_waking(self) -> bool {
        self == Self::AwaitingPermit || self.is_starting()
    }

    /// Told to unmount or to stop.
    pub(crate) fn is_stopping(self) -> bool {
        matches!(self, Self::Unmounting | Self::Stopping)
    }
}
