//! The result of synthesis, before groups and classes are numbered.

use alloc::vec::Vec;

/// Classes of groups of drives.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) classes: Vec<Vec<Vec<u32>>>,
}
