//! Detection of a full rack: one that has no room for the staged data.
//!
//! The rack finds out by trying. A write from the workshop for which no group has room is noted, until a group has room
//! for it again or fewer than its bytes are staged. The rack is full while not even a pack of the usual size has room
//! anywhere: one object that is too large for the rest of every group does not keep others out.
//!
//! Drives that are away count as present: a user who waits for them is not helped by deleting anything. While a write
//! is noted, deleted data is reclaimed at once, since no group would wake for anything else.

use crate::event::Work;
use crate::placement::{Placement, Wanted};
use crate::policy::PinnedTo;
use crate::setup::Setup;

/// The maximum size of a payload's index: a payload may exceed the staged bytes of its objects by this.
const INDEX_BYTES_MAX: u64 = 1 << 16;

/// The last write from the workshop that found no room in any group, until one has room for it.
#[derive(Default)]
pub(crate) struct Room {
    pub unplaced: Option<Wanted<'static>>,
}

impl Room {
    /// True if no group has room for the staged data. It ends when a group has room again.
    pub fn is_full(&self, setup: &Setup, placement: &Placement) -> bool {
        self.unplaced.is_some_and(|unplaced| {
            let pack_stack_bytes = setup.policy.migration.pack_bytes.div_ceil(u64::from(setup.spec.code.data));
            let needed_bytes = unplaced.stack_bytes.min(pack_stack_bytes);
            !setup.groups_for(PinnedTo::Anywhere).any(|group| placement.has_room_away(group, needed_bytes))
        })
    }

    /// No group had room for `work`.
    pub fn note(&mut self, work: &Work) {
        if let Work::Write { bytes, stack_bytes, pin, migration: true } = *work {
            self.unplaced = Some(Wanted { pin, ..Wanted::anywhere(bytes, stack_bytes) });
        }
    }

    /// Forgets the write that found no room once it would find room, or cannot be among the `staged_bytes` any more.
    pub fn look(&mut self, setup: &Setup, placement: &Placement, staged_bytes: u64) {
        let Some(unplaced) = self.unplaced else { return };
        let is_gone = staged_bytes.saturating_add(INDEX_BYTES_MAX) < unplaced.payload_bytes;
        let has_room = |group| placement.has_room(group, unplaced.stack_bytes);
        if is_gone || setup.groups_for(unplaced.pin).any(has_room) {
            self.unplaced = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::action::{Action, Rejection};
    use crate::event::{DriveReport, Event, Request, StagedEntry, Usage, Work};
    use crate::policy::{PinnedTo, PriorityClass, RackPolicy};
    use crate::rack::Rack;
    use crate::testing::quiet_policy;
    use alloc::boxed::Box;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::time::Duration;
    use model::{DriveId, GroupId, OpId, Time};

    const MB: u64 = 1_000_000;

    fn policy() -> RackPolicy {
        let mut policy = quiet_policy();
        policy.scheduler.queue_depth = 10;
        policy.migration.due_age = Some(Duration::ZERO);
        (policy.migration.pack_bytes, policy.migration.pack_members) = (50 * MB, 1000);
        (policy.migration.window, policy.migration.scan_interval) = (4, Duration::from_secs(1));
        policy
    }

    /// A box of eight whose drives are on one disk, with 100 MB staged that is due.
    fn rack() -> Rack {
        let spec = model::text::parse(include_str!("../../racks/nas8.toml"), "nas8.toml").unwrap();
        let layout = crate::layout::synthesise(&spec).unwrap();
        let mut rack = Rack::new(spec, layout, policy(), 1);
        for drive in rack.spec().drives.clone() {
            let report = DriveReport {
                drive: drive.id,
                capacity_bytes: rack.spec().capacity_bytes(drive.id),
                used_bytes: 0,
                day: 0,
                starts: 0,
                present: true,
                initialised: true,
            };
            rack.apply(Time::ZERO, Event::DriveReported(report), &mut vec![]);
        }
        rack.apply(Time::ZERO, Event::Booted, &mut vec![]);
        rack
    }

    fn measured(rack: &mut Rack, now: Time, free_bytes: u64) {
        let drives: Vec<DriveId> = rack.spec().drives.iter().map(|drive| drive.id).collect();
        rack.apply(now, Event::HostMeasured { host: 0, drives, free_bytes }, &mut vec![]);
    }

    fn staged(rack: &mut Rack, now: Time, staged_bytes: u64) -> Vec<Action> {
        let mut actions = vec![];
        let usage = Usage { staged_bytes, capacity_bytes: 1000 * MB };
        rack.apply(now, Event::StagingChanged(usage), &mut actions);
        actions
    }

    /// Migrates an object of `bytes` bytes as far as the answer to its write.
    fn migrate(rack: &mut Rack, now: Time, bytes: u64) -> Vec<Action> {
        let mut actions = staged(rack, now, 2 * bytes);
        let asked = actions.iter().find_map(|action| match action {
            Action::ListStaged { attempt, .. } => Some(*attempt),
            _ => None,
        });
        let (age, pin, heat) = (Duration::from_mins(1), PinnedTo::Anywhere, crate::thermometer::Heat::Cold);
        let entry = StagedEntry { version: 1, bytes, age, pin, heat };
        let page = Event::StagedPage { attempt: asked.unwrap(), entries: vec![entry], more: false };
        actions.clear();
        rack.apply(now, page, &mut actions);
        let composed = actions.iter().find_map(|action| match action {
            Action::Compose { op, .. } => Some(*op),
            _ => None,
        });
        let op: OpId = composed.unwrap();
        let stack_bytes = bytes.div_ceil(u64::from(rack.spec().code.data));
        let work = Work::Write { bytes, stack_bytes, pin: PinnedTo::Anywhere, migration: true };
        actions.clear();
        rack.apply(
            now,
            Event::Submitted(Box::new(Request { op, priority: PriorityClass::Background, overtake_limit: None, work })),
            &mut actions,
        );
        actions
    }

    fn is_refused(actions: &[Action]) -> bool {
        actions.iter().any(|action| matches!(action, Action::Rejected { reason: Rejection::NoRoom, .. }))
    }

    #[test]
    fn a_disk_that_drives_share_is_counted_once() {
        let mut rack = rack();
        let modelled = rack.placement().free_total();
        measured(&mut rack, Time::ZERO, 300 * MB);
        assert!(modelled > 300 * MB);
        assert_eq!(rack.placement().free_total(), 300 * MB);
        assert!(rack.spec().drives.iter().all(|drive| rack.placement().free_bytes(drive.id) == 300 * MB));
        assert!(!is_refused(&migrate(&mut rack, Time::from_secs(1), 60 * MB)));
        let stacks = rack.spec().code.stacks() as u64;
        let stack_bytes = (60 * MB).div_ceil(u64::from(rack.spec().code.data));
        assert_eq!(
            rack.placement().free_total(),
            300 * MB - stacks * stack_bytes,
            "what is reserved counts once as well"
        );
    }

    #[test]
    fn the_rack_is_full_from_the_first_write_without_room_until_there_is_some() {
        let mut rack = rack();
        measured(&mut rack, Time::ZERO, 30 * MB);
        assert!(!rack.is_full(), "nothing was tried");
        assert!(is_refused(&migrate(&mut rack, Time::from_secs(1), 60 * MB)));
        assert!(rack.is_full());
        assert_eq!(rack.unplaced_bytes(), Some(60 * MB));
        measured(&mut rack, Time::from_secs(2), 300 * MB);
        assert!(!rack.is_full());
        assert_eq!(rack.unplaced_bytes(), None);
    }

    #[test]
    fn one_object_too_large_for_what_is_left_does_not_make_the_rack_full() {
        let mut rack = rack();
        measured(&mut rack, Time::ZERO, 300 * MB);
        assert!(is_refused(&migrate(&mut rack, Time::from_secs(1), 400 * MB)));
        assert!(!rack.is_full(), "packs of 50 MB have room");
        assert_eq!(rack.unplaced_bytes(), Some(400 * MB));
        staged(&mut rack, Time::from_secs(2), 10 * MB);
        assert_eq!(rack.unplaced_bytes(), None, "it was deleted");
    }

    #[test]
    fn what_is_deleted_of_a_full_rack_is_taken_back_at_once() {
        let mut rack = rack();
        measured(&mut rack, Time::ZERO, 30 * MB);
        let dead = Event::SpaceDead { group: GroupId(0), bytes: MB };
        let starts = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::SpinUp { .. }));
        let mut actions = vec![];
        rack.apply(Time::ZERO, dead.clone(), &mut actions);
        assert!(!starts(&actions), "it waits for the next wake while there is room");
        let mut rack = self::rack();
        measured(&mut rack, Time::ZERO, 30 * MB);
        assert!(is_refused(&migrate(&mut rack, Time::from_secs(1), 60 * MB)));
        rack.apply(Time::from_secs(2), dead, &mut actions);
        assert!(starts(&actions));
    }
}
