//! Initialisation: the groups of a rack that were never woken yet.
//!
//! At the first boot, the rack's description is all that is known about the drives. So the first operation of every
//! group is an *initialisation* (Pelican, section 4): its drives are started and mounted, and their labels checked.
//! Since a class wakes one group at a time, there are never more initialisations under way than classes (four in
//! `pelican`), each within the limits of any wake. Clients' work continues in between, by the shares of the priority
//! classes. It also initialises its group: a group is initialised once it is ready, for any cause of the wake.
//!
//! 1. When the rack boots, a group waits if it has drives that were reported as present and not as initialised.
//! 2. One initialisation is queued for each class, in the order of the groups' numbers; it ends when its group is
//!    ready, and the next one is queued.
//! 3. The initialisation is remembered by drive, so a later start wakes nothing. A drive that is absent, or is not the
//!    right one, counts as initialised too: it is tried whenever its group wakes, and its group is not woken for it at
//!    every start.
//!    The group of a drive that was given up and is back is woken, since the drive has to be checked.
//! 4. A group in which no drive got ready, or whose drives have no starts left today, waits until the next day, unless
//!    other work wakes it first.
//!
//! Invariants: a group is initialised once, and once more for each drive that comes back; one initialisation of a class
//! is queued at a time.

use alloc::vec;
use alloc::vec::Vec;
use model::{ClassId, DriveId, GroupId, OpId, Time};

/// The progress of a group's initialisation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupProgress {
    /// Its initialisation is to be queued from this time on; [`Time::MAX`] is never.
    Waiting { from: Time },
    /// Its initialisation is this operation, which is queued or has its group woken.
    Queued(OpId),
    /// Nothing is to be done.
    Done,
}

/// The initialisation of a rack. See the head of this file.
pub(crate) struct Initialisation {
    groups: Vec<GroupProgress>,
    /// The groups of each class that may have to be initialised.
    of_class: Vec<Vec<GroupId>>,
    /// By drive: true if it is remembered that its group was initialised with it.
    remembered: Vec<bool>,
    /// The number of groups that are not done.
    left: usize,
}

impl Initialisation {
    /// A rack of these groups, by class, and this number of drives. No group is wanted yet.
    pub fn new(of_class: &[Vec<GroupId>], drive_count: usize) -> Self {
        let group_count = of_class.iter().map(Vec::len).sum();
        Self {
            groups: vec![GroupProgress::Done; group_count],
            of_class: of_class.to_vec(),
            remembered: vec![false; drive_count],
            left: 0,
        }
    }

    /// At boot: `initialised` is true if it is remembered that the group of `drive` was initialised with it.
    pub fn report(&mut self, drive: DriveId, initialised: bool) {
        self.remembered[drive.index()] = initialised;
    }

    /// Another drive is in the place of `drive`.
    pub fn replace(&mut self, drive: DriveId) {
        self.remembered[drive.index()] = false;
    }

    /// True if it is remembered that the group of `drive` was initialised with it.
    pub fn is_remembered(&self, drive: DriveId) -> bool {
        self.remembered[drive.index()]
    }

    /// `group` is to be initialised.
    pub fn want(&mut self, group: GroupId) {
        let progress = &mut self.groups[group.index()];
        assert!(*progress == GroupProgress::Done, "{group} is wanted once");
        *progress = GroupProgress::Waiting { from: Time::ZERO };
        self.left += 1;
        assert!(self.left <= self.groups.len(), "a group is counted once");
    }

    /// A drive of `group` is back: the group is to be initialised once more, if it is done.
    pub fn want_again(&mut self, group: GroupId) {
        if self.groups[group.index()] == GroupProgress::Done {
            self.want(group);
        }
    }

    /// The number of groups that are still to be initialised.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The group of `class` whose initialisation is to be queued now; `None` if no group is due.
    pub fn next(&self, class: ClassId, now: Time) -> Option<GroupId> {
        let progress = |group: &&GroupId| self.groups[group.index()];
        let groups = &self.of_class[class.index()];
        if groups.iter().any(|group| matches!(progress(&group), GroupProgress::Queued(_))) {
            return None;
        }
        let due = |from: Time| from <= now && from < Time::MAX;
        let due = |group: &&GroupId| matches!(progress(group), GroupProgress::Waiting { from } if due(from));
        groups.iter().find(due).copied()
    }

    /// `op` is the initialisation of `group`, and is queued.
    pub fn queued(&mut self, group: GroupId, op: OpId) {
        let before = core::mem::replace(&mut self.groups[group.index()], GroupProgress::Queued(op));
        assert!(matches!(before, GroupProgress::Waiting { .. }), "{group} waits, and is queued once");
    }

    /// The queued initialisation of `group` ended at `now`. If the group is not initialised, it waits until `again`. If
    /// `again` is not after `now`, at the end of a wrong clock's range, the group waits for other work to wake it.
    pub fn ended(&mut self, group: GroupId, now: Time, again: Time) {
        let progress = &mut self.groups[group.index()];
        if matches!(progress, GroupProgress::Queued(_)) {
            *progress = GroupProgress::Waiting { from: if again > now { again } else { Time::MAX } };
        }
    }

    /// `group`, with these members, is ready, so it is initialised. Returns its initialisation, if one was queued, and
    /// the members for which this is to be stored.
    pub fn done(&mut self, group: GroupId, members: &[DriveId]) -> (Option<OpId>, Vec<DriveId>) {
        let before = core::mem::replace(&mut self.groups[group.index()], GroupProgress::Done);
        if before != GroupProgress::Done {
            assert!(self.left > 0, "{group} was left");
            self.left -= 1;
        }
        let mut fresh = Vec::new();
        for drive in members {
            if !core::mem::replace(&mut self.remembered[drive.index()], true) {
                fresh.push(*drive);
            }
        }
        let op = if let GroupProgress::Queued(op) = before { Some(op) } else { None };
        (op, fresh)
    }

    /// When the next postponed group is to be queued; [`Time::MAX`] if none is postponed beyond `now`.
    pub fn deadline(&self, now: Time) -> Time {
        if self.left == 0 {
            return Time::MAX;
        }
        let from = |progress: &GroupProgress| match progress {
            GroupProgress::Waiting { from } if *from > now => Some(*from),
            _ => None,
        };
        self.groups.iter().filter_map(from).min().unwrap_or(Time::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Time = Time::from_secs(86_400);

    fn two_classes() -> Initialisation {
        let mut all = Initialisation::new(&[vec![GroupId(0), GroupId(2)], vec![GroupId(1)]], 6);
        (0..3).for_each(|group| all.want(GroupId(group)));
        all
    }

    #[test]
    fn each_class_has_one_queued_at_a_time_and_each_group_its_turn() {
        let mut all = two_classes();
        assert_eq!(all.next(ClassId(0), Time::ZERO), Some(GroupId(0)));
        all.queued(GroupId(0), OpId(7));
        assert_eq!((all.next(ClassId(0), Time::ZERO), all.next(ClassId(1), Time::ZERO)), (None, Some(GroupId(1))));
        assert_eq!(all.done(GroupId(0), &[DriveId(0), DriveId(3)]), (Some(OpId(7)), vec![DriveId(0), DriveId(3)]));
        assert_eq!((all.next(ClassId(0), Time::ZERO), all.left()), (Some(GroupId(2)), 2));
        assert_eq!(all.done(GroupId(0), &[DriveId(0), DriveId(3)]), (None, vec![]), "once");
        assert_eq!(all.left(), 2);
    }

    #[test]
    fn a_group_that_somebody_else_woke_is_not_queued() {
        let mut all = two_classes();
        assert_eq!(all.done(GroupId(0), &[DriveId(0)]), (None, vec![DriveId(0)]));
        assert_eq!(all.next(ClassId(0), Time::ZERO), Some(GroupId(2)));
    }

    #[test]
    fn a_group_that_is_put_off_comes_again_and_lets_others_go_first() {
        let mut all = two_classes();
        all.queued(GroupId(0), OpId(7));
        all.ended(GroupId(0), Time::ZERO, LATER);
        assert_eq!((all.next(ClassId(0), Time::ZERO), all.deadline(Time::ZERO)), (Some(GroupId(2)), LATER));
        assert_eq!((all.next(ClassId(0), LATER), all.deadline(LATER)), (Some(GroupId(0)), Time::MAX));
        assert_eq!(all.left(), 3);
    }

    #[test]
    fn at_the_end_of_time_nothing_is_put_off_until_now() {
        for now in [LATER, Time::MAX] {
            let mut all = two_classes();
            all.queued(GroupId(1), OpId(7));
            all.ended(GroupId(1), now, now);
            assert_eq!((all.next(ClassId(1), now), all.left()), (None, 3), "it would go round without end");
        }
    }

    #[test]
    fn a_drive_that_took_anothers_place_is_remembered_anew() {
        let mut all = two_classes();
        all.report(DriveId(1), true);
        assert_eq!(all.done(GroupId(0), &[DriveId(0), DriveId(1)]).1, [DriveId(0)]);
        all.replace(DriveId(1));
        assert_eq!(all.done(GroupId(0), &[DriveId(0), DriveId(1)]).1, [DriveId(1)]);
    }
}
