//! The number of times that the heads of a drive move for its part in a transfer. It follows from the format of stacks
//! (`docs/format/drives.md`), and each move takes the profile's seek. The emulated rack makes these seeks, a test of
//! `disk` compares them with these numbers, and the simulator and forecasts count them.

/// A read from the beginning of a blob: to the end of the stack, and to its header, which the fragments follow. A blob
/// of several runs has more seeks, each a small part of the time that its run takes.
pub const READ_SEEKS: u32 = 2;

/// A read of a part in the middle of a blob: also to the checksums of its run, and to its fragments.
pub const READ_SEEKS_MAX: u32 = 4;

/// A write: the file is created, its fragments are written and synced, and so is the footer.
pub const WRITE_SEEKS: u32 = 5;

/// A removal: to the header, which identifies the owner of the file, and for the removal itself.
pub const REMOVE_SEEKS: u32 = 2;
