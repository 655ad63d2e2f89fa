//! The open operations (queued, waiting for their group, or in service) and their numbers.
//!
//! The world numbers its operations upwards. The engine's own operations are numbered from [`OWN_OPS`], apart from the
//! numbers of the world and of the migrator.
//!
//! Invariants: no two operations have the same number; an answer counts only if it carries the operation's last
//! attempt.

use crate::event::{DriveOutcome, Request, Work};
use crate::numbered::OpMap;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use model::{Attempt, BlobId, ClassId, DriveId, GroupId, OpId};

/// The number of tries before an operation is given up.
pub(crate) const TRIES_MAX: u8 = 3;

/// Operations that the migrator composes are numbered from here.
pub(crate) const MIGRATOR_OPS: u64 = 1 << 63;

/// The engine's own operations that are not migration writes are numbered from here.
const OWN_OPS: u64 = MIGRATOR_OPS | 1 << 62;

const _: () = assert!(OWN_OPS > MIGRATOR_OPS, "the two kinds of numbers do not meet");
const _: () = assert!(TRIES_MAX > 0, "an operation is tried at least once");

/// One operation. Thousands of these wait at once, so it is no larger than it needs to be.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a separate fact
pub(crate) struct Op {
    pub request: Request,
    pub class: ClassId,
    pub group: GroupId,
    attempt: Attempt,
    tries: u8,
    /// The drives on which its space is reserved: those of a write, or the target of a rebuild in service.
    pub reserved: Vec<DriveId>,
    /// Boxed, because few operations fail.
    failures: Option<Box<Failures>>,
    /// The stacks that a write or rebuild has written are being read back.
    pub verifying: bool,
    /// The catalog is asked to count the stack that a rebuild has written.
    moving: bool,
    wakes: Wakes,
    /// A read that asked for every stack has found too few good fragments once.
    seemed_lost: bool,
    itself: ReadsItself,
    /// An earlier rebuild of the same stack may have left it in its place.
    left_there: bool,
}

/// A rebuild's use of the stack itself, in its present or former place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadsItself {
    /// It may use it.
    May,
    /// It uses it now.
    Now,
    /// It tried without success.
    InVain,
}

/// The groups that an operation wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wakes {
    /// Its group, if that sleeps.
    Its,
    /// None: it is not worth a wake.
    None,
}

/// The places where an operation has failed and is not tried again.
#[derive(Clone, Debug, Default)]
struct Failures {
    /// Groups in which a write has failed.
    groups: Vec<GroupId>,
    /// Drives to which a rebuild could not be written.
    drives: Vec<DriveId>,
}

impl Op {
    pub fn new(request: Request, class: ClassId, group: GroupId) -> Self {
        Self {
            request,
            class,
            group,
            attempt: Attempt(0),
            tries: 0,
            reserved: Vec::new(),
            failures: None,
            verifying: false,
            moving: false,
            wakes: Wakes::Its,
            seemed_lost: false,
            itself: ReadsItself::May,
            left_there: false,
        }
    }

    /// The same, with space reserved on `drives`.
    pub fn with_reserved(self, drives: Vec<DriveId>) -> Self {
        assert!(self.reserved.is_empty(), "{} has no space reserved yet", self.request.op);
        Self { reserved: drives, ..self }
    }

    /// The same operation, not worth a wake of its group.
    pub fn while_awake(self) -> Self {
        Self { wakes: Wakes::None, ..self }
    }

    /// The same rebuild, of a stack that an earlier rebuild may have left in its place.
    pub fn with_left_there(self, left_there: bool) -> Self {
        Self { left_there, ..self }
    }

    /// The same write in another place, since it could not be done where it was placed.
    pub fn moved_to(self, class: ClassId, group: GroupId, drives: Vec<DriveId>) -> Self {
        assert!(self.reserved.is_empty(), "{} has given its space back", self.request.op);
        assert!(!self.failed_groups().contains(&group), "{group} has failed it");
        Self { class, group, reserved: drives, verifying: false, ..self }
    }

    /// True if it has ever been in service, so the world knows it.
    pub fn was_served(&self) -> bool {
        self.attempt != Attempt(0)
    }

    /// True if an answer to `attempt` belongs to the last requested transfer.
    pub fn awaits_transfer(&self, attempt: Attempt) -> bool {
        self.attempt == attempt && !self.moving
    }

    /// True if an answer to `attempt` belongs to the last requested move of a stack.
    pub fn awaits_move(&self, attempt: Attempt) -> bool {
        self.attempt == attempt && self.moving
    }

    /// The number of the next request to the world.
    pub fn next_attempt(&mut self) -> Attempt {
        self.attempt = Attempt(self.attempt.0.wrapping_add(1));
        self.attempt
    }

    /// Counts a failed try and returns the number of failed tries so far.
    pub fn count_try(&mut self) -> u8 {
        self.tries += 1;
        assert!(self.tries <= TRIES_MAX, "{} is given up after its last try", self.request.op);
        self.tries
    }

    /// Records that a read asked for every stack and found too few good fragments. True if that has happened once
    /// before.
    pub fn seemed_lost(&mut self) -> bool {
        assert!(self.tries > 0, "a try of {} has failed", self.request.op);
        core::mem::replace(&mut self.seemed_lost, true)
    }

    /// Takes the drives on which its space was reserved, and the bytes on each; none are reserved from now on.
    pub fn take_reserved(&mut self) -> (Vec<DriveId>, u64) {
        let stack_bytes = match self.request.work {
            Work::Write { stack_bytes, .. } | Work::Rebuild { stack_bytes, .. } => stack_bytes,
            Work::Read { .. }
            | Work::Delete { .. }
            | Work::Scrub { .. }
            | Work::ScrubWake { .. }
            | Work::Visit { .. }
            | Work::Initialise { .. }
            | Work::Inspect { .. } => 0,
        };
        let writes = matches!(self.request.work, Work::Write { .. } | Work::Rebuild { .. });
        assert!(writes || self.reserved.is_empty(), "space is reserved for what is written");
        (core::mem::take(&mut self.reserved), stack_bytes)
    }

    /// A rebuild is written to `target`, on which its space is reserved. It reads the stack itself if `itself`, or else
    /// other stacks.
    pub fn aim_at(&mut self, target: DriveId, itself: bool) {
        assert!(self.reserved.is_empty(), "{} has one target", self.request.op);
        assert!(!itself || self.may_do_with_itself(), "{} gave that up", self.request.op);
        (self.reserved, self.verifying) = (vec![target], false);
        if self.may_do_with_itself() {
            self.itself = if itself { ReadsItself::Now } else { ReadsItself::May };
        }
    }

    /// True if a rebuild reads the stack itself.
    pub fn reads_itself(&self) -> bool {
        self.itself == ReadsItself::Now
    }

    /// Begins to read back the written data. False if that was done already.
    pub fn begin_verify(&mut self) -> bool {
        assert!(!self.reserved.is_empty(), "{} was written somewhere", self.request.op);
        assert!(!self.moving, "{} is read back before the catalog counts it", self.request.op);
        !core::mem::replace(&mut self.verifying, true)
    }

    /// The catalog is asked to count the rebuilt stack.
    pub fn begin_move(&mut self) {
        assert!(!self.moving && self.reserved.len() == 1, "{} has written one stack", self.request.op);
        self.moving = true;
    }

    /// True if a rebuild may try to use the stack itself.
    pub fn may_do_with_itself(&self) -> bool {
        self.itself != ReadsItself::InVain
    }

    /// True if an earlier rebuild may have left the stack in its place.
    pub fn may_be_left_there(&self) -> bool {
        self.left_there
    }

    /// True if an earlier rebuild may have left the stack intact in its place on `drive`, which did not confirm it: the
    /// drive could not be asked, or did not answer.
    pub fn may_lie_on(&self, drive: DriveId) -> bool {
        match self.itself {
            ReadsItself::May | ReadsItself::Now => self.left_there,
            ReadsItself::InVain => self.shunned().contains(&drive),
        }
    }

    /// The stack itself cannot be read in its present or former place: from now on it is regenerated from others.
    pub fn give_itself_up(&mut self) {
        assert!(self.reads_itself(), "{} gives up what it tried", self.request.op);
        self.itself = ReadsItself::InVain;
    }

    /// A rebuild could not be written to `drive`.
    pub fn shun(&mut self, drive: DriveId) {
        assert!(!self.shunned().contains(&drive), "{drive} is not chosen again");
        self.failures.get_or_insert_default().drives.push(drive);
    }

    /// Limits a read to `given` bytes.
    pub fn cut_short(&mut self, given: u64) {
        if let Work::Read { bytes, .. } = &mut self.request.work {
            *bytes = given.min(*bytes);
        }
    }

    /// A write failed in its group, and is not placed there again.
    pub fn exclude_group(&mut self) {
        assert!(!self.failed_groups().contains(&self.group), "{} is not chosen again", self.group);
        self.failures.get_or_insert_default().groups.push(self.group);
    }

    /// Groups in which a write has failed.
    pub fn failed_groups(&self) -> &[GroupId] {
        self.failures.as_ref().map_or(&[], |failures| &failures.groups)
    }

    /// Drives to which a rebuild could not be written.
    pub fn shunned(&self) -> &[DriveId] {
        self.failures.as_ref().map_or(&[], |failures| &failures.drives)
    }
}

/// The world's answer to a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub op: OpId,
    pub attempt: Attempt,
    /// Each drive's result, in the order of the action.
    pub outcomes: &'a [DriveOutcome],
}

/// All open operations.
pub(crate) struct Ops {
    open: OpMap<Op>,
    /// The operations that are not worth a wake, by group.
    while_awake: BTreeSet<(GroupId, OpId)>,
    /// The highest number that the world has assigned to an operation.
    last: OpId,
    next_own: u64,
}

impl Ops {
    pub fn new() -> Self {
        Self { open: OpMap::default(), while_awake: BTreeSet::new(), last: OpId(0), next_own: OWN_OPS }
    }

    pub fn get(&self, op: OpId) -> Option<&Op> {
        self.open.get(op)
    }

    pub fn get_mut(&mut self, op: OpId) -> Option<&mut Op> {
        self.open.get_mut(op)
    }

    pub fn insert(&mut self, op: Op) {
        let number = op.request.op;
        if op.wakes == Wakes::None {
            self.while_awake.insert((op.group, number));
        }
        let known = self.open.insert(number, op);
        assert!(known.is_none(), "{number} is one operation");
    }

    pub fn remove(&mut self, op: OpId) -> Option<Op> {
        let removed = self.open.remove(op);
        if let Some(removed) = removed.as_ref().filter(|removed| removed.wakes == Wakes::None) {
            self.while_awake.remove(&(removed.group, op));
        }
        removed
    }

    /// The operations of `group` that are not worth a wake of it, ascending.
    pub fn while_awake(&self, group: GroupId) -> Vec<OpId> {
        let all = (group, OpId(0))..=(group, OpId(u64::MAX));
        self.while_awake.range(all).map(|(_, op)| *op).collect()
    }

    pub fn contains(&self, op: OpId) -> bool {
        self.open.contains(op)
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// All numbers, ascending.
    pub fn numbers(&self) -> Vec<OpId> {
        self.open.numbers()
    }

    /// True if space is reserved on `drive` for any operation.
    pub fn count_on(&self, drive: DriveId) -> bool {
        self.open.any(|op| op.reserved.contains(&drive))
    }

    /// The rebuilds of `group`, ascending.
    pub fn rebuilds_of(&self, group: GroupId) -> Vec<OpId> {
        let is_one = |op: &OpId| {
            let found = self.open.get(*op).filter(|found| found.group == group);
            found.is_some_and(|found| matches!(found.request.work, Work::Rebuild { .. }))
        };
        self.open.numbers().into_iter().filter(is_one).collect()
    }

    /// True if a visit to `group` is under way.
    pub fn visits(&self, group: GroupId) -> bool {
        self.open.any(|op| op.group == group && matches!(op.request.work, Work::Visit { .. }))
    }

    /// Records a number that the world has assigned. False if it or a higher one was used before, or if it is not one
    /// of the world's.
    pub fn note_number(&mut self, op: OpId) -> bool {
        assert!(self.last.0 < MIGRATOR_OPS, "the world's numbers lie below the engine's");
        let new = op > self.last && op.0 < MIGRATOR_OPS;
        if new {
            self.last = op;
        }
        new
    }

    /// True if an operation may have this number: one of the world's, or one that was assigned here.
    pub fn may_be_numbered(&self, op: OpId) -> bool {
        op.0 < MIGRATOR_OPS || (OWN_OPS..self.next_own).contains(&op.0)
    }

    /// A number for one of the engine's own operations.
    pub fn own_number(&mut self) -> OpId {
        let op = OpId(self.next_own);
        assert!(!self.open.contains(op), "{op} is given out once");
        self.next_own += 1;
        op
    }

    /// A number for a page that the engine requests.
    pub fn own_attempt(&mut self) -> Attempt {
        Attempt(self.own_number().0 as u32)
    }

    /// Updates all operations on the blob for the move of its stack.
    pub fn follow_move(&mut self, moved: &StackMove) {
        assert!(moved.from != moved.to, "a stack moves to another drive");
        self.open.change_each(|op| match &mut op.request.work {
            Work::Read { blob, drives, .. } => moved.follow(*blob, drives),
            Work::Delete { blob, drives, .. }
            | Work::Rebuild { blob, drives, .. }
            | Work::Scrub { blob, drives, .. } => {
                moved.follow(*blob, drives);
            }
            Work::Write { .. }
            | Work::ScrubWake { .. }
            | Work::Visit { .. }
            | Work::Initialise { .. }
            | Work::Inspect { .. } => {}
        });
    }
}

/// A stack of a blob is on another drive than before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackMove {
    pub blob: BlobId,
    /// Which of its stacks.
    pub index: u8,
    pub from: DriveId,
    pub to: DriveId,
}

impl StackMove {
    /// Brings the drives of `blob`, in stack order, up to date if it is the blob that was moved.
    pub fn follow(&self, blob: BlobId, drives: &mut [DriveId]) {
        let moved = drives.get_mut(usize::from(self.index));
        if let Some(drive) = moved.filter(|drive| blob == self.blob && **drive == self.from) {
            *drive = self.to;
        }
    }
}
