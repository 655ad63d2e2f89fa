//! The phase of a drive, as far as the engine knows. [`crate::drives`] has the diagram.

use crate::event::Loss;

/// The phase of a drive, as far as the engine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrivePhase {
    /// Platters stopped.
    Standby,
    /// Its group is waking; it waits for its permits.
    AwaitingPermit,
    /// A start was sent.
    SpinningUp,
    /// Its platters turn, and a mount was sent.
    Mounting,
    /// Mounted: files can be read and written.
    Ready,
    /// An unmount was sent.
    Unmounting,
    /// A stop was sent.
    Stopping,
    /// Not there.
    Away(Loss),
}

impl DrivePhase {
    /// Its name, for messages and for programs that read the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::AwaitingPermit => "waiting for power",
            Self::SpinningUp => "spinning up",
            Self::Mounting => "mounting",
            Self::Ready => "ready",
            Self::Unmounting => "unmounting",
            Self::Stopping => "stopping",
            Self::Away(_) => "away",
        }
    }

    pub(super) fn is_away(self) -> bool {
        matches!(self, Self::Away(_))
    }

    /// A start or a mount is under way.
    pub(crate) fn is_starting(self) -> bool {
        matches!(self, Self::SpinningUp | Self::Mounting)
    }

    /// On its way to be ready.
    pub(crate) fn is_waking(self) -> bool {
        self == Self::AwaitingPermit || self.is_starting()
    }

    /// An unmount or a stop is under way.
    pub(crate) fn is_stopping(self) -> bool {
        matches!(self, Self::Unmounting | Self::Stopping)
    }
}
