//! The drives that remain in a group for its blobs once one of them is given up.
//!
//! A lost stack is rebuilt on a drive of its group that has no other stack of its blob. A blob has k + r stacks, so a
//! group needs k + r drives in service: with fewer, a blob that lost a stack stays without it until another drive takes
//! the place of a failed one. Drives that are away count as in service: they may come back with all their data.

use model::{Code, DriveId};

/// The drives that remain for the blobs of a group, and the number that a blob needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLeft {
    /// Drives in service.
    pub left: usize,
    /// Stacks of a blob, k + r.
    pub needed: usize,
}

impl GroupLeft {
    /// The drives that remain in the group `members` without `drive`. `is_in_service` is true for drives that have
    /// neither failed nor are being emptied.
    pub fn without(drive: DriveId, members: &[DriveId], code: Code, is_in_service: impl Fn(DriveId) -> bool) -> Self {
        let left = members.iter().filter(|member| **member != drive && is_in_service(**member)).count();
        Self { left, needed: code.stacks() }
    }

    /// The number of missing drives.
    pub fn lacks(self) -> usize {
        self.needed.saturating_sub(self.left)
    }

    /// True if every lost stack finds a drive, provided that the drives have room.
    pub fn is_enough(self) -> bool {
        self.lacks() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_needs_a_drive_for_each_stack_of_a_blob() {
        let members: alloc::vec::Vec<DriveId> = (4..8).map(DriveId).collect();
        let code = Code { data: 2, parity: 1, fragment_bytes: 4096 };
        let without = |drive, gone: &[u32]| {
            GroupLeft::without(DriveId(drive), &members, code, |member| !gone.contains(&member.0))
        };
        assert_eq!(without(5, &[]), GroupLeft { left: 3, needed: 3 });
        assert!(without(5, &[]).is_enough());
        assert!(without(5, &[5]).is_enough(), "it is not counted twice");
        assert!(!without(5, &[6]).is_enough());
        assert!(without(5, &[9]).is_enough(), "a drive of another group is none of this one");
    }
}
