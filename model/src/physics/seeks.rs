//! How often the heads of a drive move for its part in a transfer: it follows from the format of stacks
//! (`docs/format.md`), and each move takes the profile's seek. The emulated rack makes these seeks, a test of `disk`
//! holds them against these numbers, and simulator and forecasts count them.

/// Of a read from the beginning of a blob: to the end of the stack, and to its header, behind which the fragments lie.
/// A blob of several runs has more, each of which is a small part of the time that its run takes.
pub const READ_SEEKS: u32 = 2;

/// Of a read of a part in the middle of a blob: also to the checksums of its run, and to its fragments.
pub const READ_SEEKS_MAX: u32 = 4;

/// Of a write: the file is made, its fragments are written and synced, and so is the footer.
pub const WRITE_SEEKS: u32 = 5;

/// Of a removal: to the header, which says whose the file is, and of the removal itself.
pub const REMOVE_SEEKS: u32 = 2;
