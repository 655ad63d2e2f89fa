//! Pages, passes and answers of a rebuild, made by hand; whole lives are in `sim/tests/rack/rebuild.rs`.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::action::Transfer;
use crate::drives::DrivePhase;
use crate::event::{BlobWithDead, DriveOutcome, DriveReport, DriveResult, Event, Loss, Request, Work};
use crate::policy::{IdleTimeout, PinnedTo, PriorityClass, RackPolicy};
use crate::rack::Rack;
use crate::testing::quiet_policy;
use alloc::vec;
use model::{OpId, transfer_time};

const FAILED: DriveId = DriveId(0);

/// A box of eight in two groups of four, k = 2, r = 1; each drive stores `used_bytes`.
fn booted(used_bytes: u64, queue_depth: u32) -> Rack {
    booted_of("nas8", used_bytes, queue_depth)
}

fn booted_of(rack: &str, used_bytes: u64, queue_depth: u32) -> Rack {
    let mut policy = quiet_policy();
    policy.scheduler.queue_depth = queue_depth;
    booted_with(rack, used_bytes, policy)
}

fn booted_with(rack: &str, used_bytes: u64, policy: RackPolicy) -> Rack {
    let (_, text) = model::text::SHIPPED.into_iter().find(|(shipped, _)| *shipped == rack).unwrap();
    let spec = model::text::parse(text, rack).unwrap();
    let layout = crate::layout::synthesise(&spec).unwrap();
    let mut rack = Rack::new(spec.clone(), layout, policy, 1);
    let mut actions = Vec::new();
    for drive in &spec.drives {
        let (drive, capacity_bytes) = (drive.id, spec.capacity_bytes(drive.id));
        let report =
            DriveReport { drive, capacity_bytes, used_bytes, day: 0, starts: 0, present: true, initialised: true };
        rack.apply(Time::ZERO, Event::DriveReported(report), &mut actions);
    }
    rack.apply(Time::ZERO, Event::Booted, &mut actions);
    assert!(actions.is_empty());
    rack
}

fn notify(rack: &mut Rack, now_s: u64, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    rack.apply(Time::from_secs(now_s), event, &mut actions);
    actions
}

/// The requested page of the failed drive among `actions`.
fn asked(actions: &[Action]) -> Option<(Attempt, Option<BlobId>)> {
    asked_of(actions, FAILED)
}

fn asked_of(actions: &[Action], of: DriveId) -> Option<(Attempt, Option<BlobId>)> {
    actions.iter().find_map(|action| match action {
        Action::ListOnDrive { drive, attempt, after, .. } if *drive == of => Some((*attempt, *after)),
        _ => None,
    })
}

/// Blobs on three drives of the failed drive's group, the failed one first.
fn blobs(rack: &Rack, numbers: core::ops::Range<u64>) -> Vec<BlobOnDrive> {
    let group = rack.layout().group_of(FAILED).unwrap();
    let members = &rack.layout().groups[group.index()].drives;
    let others = members.iter().filter(|drive| **drive != FAILED).take(2);
    let drives: Vec<DriveId> = [FAILED].iter().chain(others).copied().collect();
    numbers
        .map(|blob| BlobOnDrive {
            blob: BlobId::numbered(blob),
            drives: drives.clone(),
            lost: Vec::new(),
            stack_bytes: 100,
            bytes: 200,
            living: true,
            left_there: false,
        })
        .collect()
}

fn page(attempt: Attempt, blobs: Vec<BlobOnDrive>, next: Option<u64>) -> Event {
    Event::OnDrivePage { drive: FAILED, attempt, blobs, next: next.map(BlobId::numbered) }
}

fn view(rack: &Rack) -> RebuildView {
    rack.rebuilds().next().unwrap()
}

#[test]
fn late_and_repeated_pages_change_nothing_and_a_page_that_leads_nowhere_ends_the_pass() {
    let mut rack = booted(1_000, 1000);
    let (attempt, after) = asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true })).unwrap();
    assert_eq!(after, None);
    assert!(asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true })).is_none(), "said twice");
    let two = blobs(&rack, 1..3);
    notify(&mut rack, 2, page(Attempt(attempt.0 + 7), two.clone(), None));
    assert_eq!(view(&rack).under_way, 0, "not the page that was asked for");
    let next = asked(&notify(&mut rack, 2, page(attempt, two.clone(), Some(2)))).unwrap();
    assert_eq!((view(&rack).under_way, next.1), (2, Some(BlobId::numbered(2))));
    notify(&mut rack, 2, page(attempt, two, Some(2)));
    assert_eq!(view(&rack).under_way, 2, "reported twice");
    let more = blobs(&rack, 3..4);
    assert!(asked(&notify(&mut rack, 3, page(next.0, more, Some(2)))).is_none(), "2 does not lie behind 2");
    assert_eq!(view(&rack).under_way, 3);
}

#[test]
fn no_more_than_the_window_or_the_queue_is_queued_whatever_a_page_holds() {
    for (depth, most) in [(1000, WINDOW), (5, 6)] {
        let mut rack = booted(1_000_000, depth);
        let (attempt, _) = asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true })).unwrap();
        let many = blobs(&rack, 1..2_000);
        notify(&mut rack, 2, page(attempt, many, Some(1_999)));
        // One more than the queue holds: it is out of it, and its group wakes for it.
        assert_eq!(view(&rack).under_way, most, "depth {depth}");
        assert!(rack.open_operations() <= WINDOW as usize);
    }
}

#[test]
fn what_is_dead_or_lost_or_has_no_room_wakes_nobody_and_the_next_pass_waits_ever_longer() {
    let mut rack = booted(1_000, 1000);
    let second = blobs(&rack, 1..2)[0].drives[1];
    notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true });
    let mut asked_last = notify(&mut rack, 1, Event::DriveFailed { drive: second, pulled: true });
    let mut listed = blobs(&rack, 1..3);
    listed[1].living = false;
    let mut now_s = 2;
    for pause_mins in [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440] {
        let [attempt, other] = [FAILED, second].map(|drive| asked_of(&asked_last, drive).unwrap().0);
        notify(&mut rack, now_s, page(attempt, listed.clone(), None));
        let of_second = Event::OnDrivePage { drive: second, attempt: other, blobs: listed.clone(), next: None };
        let actions = notify(&mut rack, now_s, of_second);
        assert!(!actions.iter().any(|action| matches!(action, Action::SpinUp { .. })), "{actions:?}");
        assert_eq!((view(&rack).lost_blobs, view(&rack).under_way), (1, 0));
        now_s += 60 * pause_mins;
        assert!(asked(&notify(&mut rack, now_s - 1, Event::DeadlineReached)).is_none(), "a pause of {pause_mins} min");
        asked_last = notify(&mut rack, now_s, Event::DeadlineReached);
    }
}

/// Used bytes may be counted too high: one look at the drive's blobs shows it.
#[test]
fn a_drive_that_holds_nothing_is_through_after_one_look() {
    let mut rack = booted(0, 1000);
    let (attempt, _) = asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true })).unwrap();
    assert!(notify(&mut rack, 2, page(attempt, Vec::new(), None)).is_empty());
    assert_eq!((view(&rack).left_bytes, rack.next_deadline()), (0, Time::MAX));
    assert!(rack.has_failed(FAILED));
}

#[test]
fn the_forecast_is_x_over_t_and_at_most_that_over_w() {
    let mut rack = booted(105_000_000_000, 1000);
    notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true });
    let t = rack.spec().profile.bytes_per_s;
    let x_over_t = transfer_time(105_000_000_000, t);
    assert_eq!(view(&rack).forecast, Forecast { min: x_over_t, expected: x_over_t, max: x_over_t * 3 });
}

#[test]
fn a_replacement_is_empty_at_once_and_what_was_lost_is_what_the_next_pass_shows() {
    let mut rack = booted(1_000, 1000);
    assert!(
        notify(&mut rack, 1, Event::DriveReplaced { drive: FAILED, lost_bytes: 7 }).is_empty(),
        "it has not failed"
    );
    let (attempt, _) = asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true })).unwrap();
    notify(&mut rack, 2, page(attempt, Vec::new(), None));
    assert!(rack.may_be_replaced(FAILED));
    let (attempt, _) = asked(&notify(&mut rack, 3, Event::DriveReplaced { drive: FAILED, lost_bytes: 1_000 })).unwrap();
    assert!(!rack.has_failed(FAILED) && !rack.may_be_replaced(FAILED));
    assert_eq!((rack.drive_phase(FAILED), view(&rack).left_bytes), (DrivePhase::Standby, 1_000));
    assert_eq!(rack.placement().free_bytes(FAILED), rack.spec().capacity_bytes(FAILED));
    let listed = blobs(&rack, 1..4);
    notify(&mut rack, 4, page(attempt, listed, None));
    assert_eq!(view(&rack).under_way, 3, "what it held is rebuilt elsewhere");
    // It fails once more: all that was ever lost in this place is what is left.
    notify(&mut rack, 5, Event::DriveFailed { drive: FAILED, pulled: true });
    assert_eq!((view(&rack).left_bytes, view(&rack).under_way), (1_000, 1), "what was queued is withdrawn");
}

#[test]
fn a_replaced_drive_is_listed_now_and_then_even_if_nothing_seems_to_be_left() {
    let mut rack = booted(1_000, 1000);
    let (attempt, _) = asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true })).unwrap();
    notify(&mut rack, 1, page(attempt, Vec::new(), None));
    let (attempt, _) = asked(&notify(&mut rack, 2, Event::DriveReplaced { drive: FAILED, lost_bytes: 500 })).unwrap();
    notify(&mut rack, 2, page(attempt, Vec::new(), None));
    assert_eq!(view(&rack).left_bytes, 0, "nothing was listed");
    let (attempt, _) = asked(&notify(&mut rack, 2 + 600, Event::DeadlineReached)).unwrap();
    let listed = blobs(&rack, 1..2);
    notify(&mut rack, 2 + 600, page(attempt, listed, None));
    assert_eq!(view(&rack).under_way, 1, "an answer that was wrong is made up for");
}

/// The actions that `event` causes, after drives have executed their commands.
fn obeyed(rack: &mut Rack, now_s: u64, event: Event) -> Vec<Action> {
    let (mut asked, mut events) = (Vec::new(), vec![event]);
    while let Some(event) = events.pop() {
        for action in notify(rack, now_s, event) {
            match action {
                Action::SpinUp { drive, attempt } => events.push(Event::SpunUp { drive, attempt }),
                Action::Mount { drive, attempt } => {
                    events.push(Event::Mounted { drive, attempt, free_bytes: 1 << 40 });
                }
                other => asked.push(other),
            }
        }
    }
    asked
}

/// The transfer among `actions`.
fn transfer(actions: &[Action]) -> (OpId, Attempt, Transfer) {
    let found = actions.iter().find_map(|action| match action {
        Action::Transfer { op, attempt, transfer } => Some((*op, *attempt, transfer.clone())),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("a transfer is among {actions:?}"))
}

/// The answer to a transfer that failed, with these results.
fn failed((op, attempt): (OpId, Attempt), results: &[(DriveId, DriveResult)]) -> Event {
    let outcomes = results.iter().map(|(drive, result)| DriveOutcome { drive: *drive, result: *result }).collect();
    Event::TransferEnded { op, attempt, done: false, outcomes }
}

/// A rack whose drive failed, which held nothing then, and the page that is asked for after `event`.
fn followed_by(event: Event) -> (Rack, Attempt) {
    let mut rack = booted(1_000, 1000);
    let (attempt, _) = asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true })).unwrap();
    notify(&mut rack, 1, page(attempt, Vec::new(), None));
    let (attempt, _) = asked(&notify(&mut rack, 2, event)).unwrap();
    (rack, attempt)
}

/// Another drive took the place of the one that failed. A blob lost its stack there, which an earlier rebuild may have
/// left: the first transfer of its rebuild, and the blob.
fn replaced_with_leftover() -> (Rack, (OpId, Attempt, Transfer), BlobOnDrive) {
    let (mut rack, attempt) = followed_by(Event::DriveReplaced { drive: FAILED, lost_bytes: 100 });
    let mut blob = blobs(&rack, 1..2).swap_remove(0);
    (blob.lost, blob.left_there) = (vec![FAILED], true);
    let actions = obeyed(&mut rack, 2, page(attempt, vec![blob.clone()], None));
    let first = transfer(&actions);
    (rack, first, blob)
}

fn target_of(transfer: &Transfer) -> DriveId {
    let Transfer::Rebuild { target, .. } = transfer else { panic!("{transfer:?} is no rebuild") };
    *target
}

#[test]
fn what_an_earlier_rebuild_may_have_left_in_its_place_is_looked_for_and_counts_if_it_is_right() {
    let (mut rack, (op, attempt, look), blob) = replaced_with_leftover();
    assert_eq!((look.itself(), target_of(&look)), (Some(FAILED), FAILED), "nothing is written");
    let fine = |drive| DriveOutcome { drive, result: DriveResult::Fine };
    let outcomes = vec![fine(FAILED), fine(FAILED)];
    let actions = notify(&mut rack, 3, Event::TransferEnded { op, attempt, done: true, outcomes });
    let moves = |action: &Action| match action {
        Action::MoveStack { blob, index, from, to, .. } => Some((*blob, *index, *from, *to)),
        _ => None,
    };
    assert_eq!(actions.iter().find_map(moves), Some((blob.blob, 0, FAILED, FAILED)));
}

#[test]
fn a_stack_in_its_place_is_written_over_only_if_it_is_known_to_be_wrong() {
    let looked = |result| [(FAILED, result), (FAILED, DriveResult::Unused)];
    for result in [DriveResult::StackBad, DriveResult::Failed] {
        let (mut rack, (op, attempt, _), blob) = replaced_with_leftover();
        let actions = notify(&mut rack, 3, failed((op, attempt), &looked(result)));
        let (op, attempt, rebuilt) = transfer(&actions);
        assert_eq!(rebuilt.itself(), None, "the others make up for it");
        if result == DriveResult::StackBad {
            continue;
        }
        assert!(!blob.drives.contains(&target_of(&rebuilt)), "{rebuilt:?}");
        // A source is damaged: a stack that may be in its place is not lost yet.
        let bad = [(blob.drives[1], DriveResult::StackBad), (blob.drives[2], DriveResult::Fine)];
        notify(&mut rack, 4, failed((op, attempt), &bad));
        assert_eq!((view(&rack).lost_blobs, view(&rack).waiting_blobs), (0, 1));
    }
}

#[test]
fn a_stack_that_may_be_in_its_place_is_looked_for_whatever_else_its_blob_has_lost() {
    let mut rack = booted(1_000, 1000);
    let other = blobs(&rack, 1..2)[0].drives[1];
    let (attempt, _) = asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true })).unwrap();
    notify(&mut rack, 1, page(attempt, Vec::new(), None));
    let (attempt, _) = asked(&notify(&mut rack, 2, Event::DriveReplaced { drive: FAILED, lost_bytes: 100 })).unwrap();
    let mut blob = blobs(&rack, 1..2).swap_remove(0);
    (blob.lost, blob.left_there) = (vec![FAILED, other], true);
    let actions = obeyed(&mut rack, 2, page(attempt, vec![blob], None));
    assert_eq!(transfer(&actions).2.itself(), Some(FAILED));
}

/// Its drive is back and away once more, and others that its blob needs are gone.
#[test]
fn a_stack_that_is_still_to_be_looked_for_is_not_lost_while_its_drive_is_away() {
    for lost in [2, 3] {
        let (mut rack, attempt) = followed_by(Event::DriveReturned { drive: FAILED, lost_bytes: 100 });
        notify(&mut rack, 2, Event::DriveBack { drive: FAILED });
        notify(&mut rack, 2, Event::DriveLost { drive: FAILED, loss: Loss::Died });
        let mut blob = blobs(&rack, 1..2).swap_remove(0);
        blob.lost = blob.drives[..lost].to_vec();
        notify(&mut rack, 3, page(attempt, vec![blob.clone()], None));
        assert_eq!((view(&rack).lost_blobs, view(&rack).waiting_blobs), (0, 1), "{lost} stacks are missing");
        let (attempt, _) = asked(&notify(&mut rack, 4, Event::DriveBack { drive: FAILED })).unwrap();
        notify(&mut rack, 4, page(attempt, vec![blob], None));
        assert_eq!(view(&rack).under_way, 1, "it is looked for");
    }
}

/// Its drive is back and does not start when its group wakes, and another one that its blob needs is gone.
#[test]
fn a_stack_that_is_still_to_be_looked_for_is_not_lost_while_its_drive_does_not_start() {
    let mut rack = booted(0, 1000);
    let mut blob = blobs(&rack, 1..2).swap_remove(0);
    blob.lost = vec![FAILED];
    notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true });
    let mut woken = notify(&mut rack, 2, Event::DriveReturned { drive: FAILED, lost_bytes: 100 });
    woken.extend(notify(&mut rack, 2, Event::DriveBack { drive: FAILED }));
    woken.extend(notify(&mut rack, 3, Event::DriveFailed { drive: blob.drives[1], pulled: true }));
    let (attempt, _) = woken.iter().rev().find_map(|action| asked(core::slice::from_ref(action))).unwrap();
    woken.extend(notify(&mut rack, 4, page(attempt, vec![blob], None)));
    assert_eq!(view(&rack).under_way, 1, "its group wakes to look for it");
    for action in woken {
        let Action::SpinUp { drive, attempt } = action else { continue };
        let failure = Event::DriveCommandFailed { drive, attempt, loss: Loss::SpinUpFailed };
        obeyed(&mut rack, 5, if drive == FAILED { failure } else { Event::SpunUp { drive, attempt } });
    }
    assert_eq!((view(&rack).lost_blobs, view(&rack).waiting_blobs), (0, 1));
}

fn gives_up(actions: &[Action]) -> bool {
    actions.contains(&Action::GiveUp { drive: FAILED, retired: true })
}

/// Its blob lacks another stack, which is rebuilt first. Used bytes may be too low: here none count on it.
#[test]
fn a_retired_drive_is_not_empty_while_a_blob_on_it_lacks_another_stack() {
    let mut rack = booted(0, 1000);
    let blob = blobs(&rack, 1..2).swap_remove(0);
    let (lost, away) = (blob.drives[1], blob.drives[2]);
    notify(&mut rack, 1, Event::DriveLost { drive: away, loss: Loss::Died });
    let failed = notify(&mut rack, 1, Event::DriveFailed { drive: lost, pulled: true });
    let (attempt, _) = asked_of(&failed, lost).unwrap();
    notify(&mut rack, 1, Event::OnDrivePage { drive: lost, attempt, blobs: vec![blob.clone()], next: None });
    let (attempt, _) = asked(&notify(&mut rack, 2, Event::DriveRetiring { drive: FAILED })).unwrap();
    assert!(!gives_up(&notify(&mut rack, 2, page(attempt, vec![blob], None))), "its stack is there still");
    let due = notify(&mut rack, 700, Event::DeadlineReached);
    let (attempt, _) = asked_of(&due, lost).unwrap();
    notify(&mut rack, 700, Event::OnDrivePage { drive: lost, attempt, blobs: Vec::new(), next: None });
    assert!(gives_up(&notify(&mut rack, 700, page(asked(&due).unwrap().0, Vec::new(), None))), "it has moved");
}

#[test]
fn a_drive_that_fails_while_it_is_retired_may_not_be_pulled_before_nothing_needs_it() {
    let mut rack = booted(0, 1000);
    let blob = blobs(&rack, 1..2).swap_remove(0);
    notify(&mut rack, 1, Event::DriveRetiring { drive: FAILED });
    notify(&mut rack, 1, Event::DriveLost { drive: blob.drives[1], loss: Loss::Died });
    notify(&mut rack, 1, Event::DriveLost { drive: blob.drives[2], loss: Loss::Died });
    let failed = notify(&mut rack, 3, Event::DriveFailed { drive: FAILED, pulled: false });
    assert!(rack.is_retiring(FAILED) && rack.has_failed(FAILED) && !rack.is_retired(FAILED), "nobody has listed it");
    notify(&mut rack, 4, page(asked(&failed).unwrap().0, vec![blob], None));
    assert!(!rack.is_retired(FAILED), "a blob lacks its stack there");
    let due = notify(&mut rack, 9_000, Event::DeadlineReached);
    notify(&mut rack, 9_000, page(asked(&due).unwrap().0, Vec::new(), None));
    assert!(rack.is_retired(FAILED), "no blob needs it");
}

#[test]
fn a_retired_drive_is_not_empty_because_a_pass_over_it_was_cut_short() {
    let mut rack = booted(0, 1000);
    let (attempt, _) = asked(&notify(&mut rack, 1, Event::DriveRetiring { drive: FAILED })).unwrap();
    let two = blobs(&rack, 1..3);
    let copies = obeyed(&mut rack, 1, page(attempt, two.clone(), None));
    assert_eq!(view(&rack).under_way, 2);
    notify(&mut rack, 2, Event::DriveFailed { drive: two[0].drives[1], pulled: true });
    assert_eq!(view(&rack).under_way, 1, "what is queued waits for the other drive's");
    let (op, attempt, _) = transfer(&copies);
    let written = notify(&mut rack, 3, done((op, attempt), &copies));
    let moves = |action: &Action| match action {
        Action::MoveStack { op, attempt, .. } => Some((*op, *attempt)),
        _ => None,
    };
    let (op, attempt) = written.iter().find_map(moves).unwrap();
    let actions = notify(&mut rack, 3, Event::StackMoved { op, attempt, done: true });
    assert!(!gives_up(&actions) && asked(&actions).is_some(), "it is listed anew: {actions:?}");
}

#[test]
fn a_listing_that_fails_shows_nothing_and_is_asked_for_again() {
    let (mut rack, attempt) = followed_by(Event::DriveReturned { drive: FAILED, lost_bytes: 100 });
    assert!(asked(&notify(&mut rack, 2, Event::OnDriveUnlisted { drive: FAILED, attempt })).is_none(), "not at once");
    assert_eq!(view(&rack).left_bytes, 100, "nothing was shown");
    let (attempt, after) = asked(&notify(&mut rack, 602, Event::DeadlineReached)).unwrap();
    assert_eq!(after, None);
    let mut blob = blobs(&rack, 1..2).swap_remove(0);
    blob.lost = vec![FAILED, blob.drives[1]];
    notify(&mut rack, 602, page(attempt, vec![blob], None));
    assert_eq!(view(&rack).under_way, 1, "its stack is looked for");
}

#[test]
fn a_dead_blob_that_is_removed_is_not_left_to_be_rebuilt() {
    let (mut rack, attempt) = followed_by(Event::DriveReplaced { drive: FAILED, lost_bytes: 100 });
    let group = rack.layout().group_of(FAILED).unwrap();
    let BlobOnDrive { blob, drives, stack_bytes, bytes, .. } = blobs(&rack, 1..2).swap_remove(0);
    let lost = vec![FAILED];
    let of_pass = BlobOnDrive { living: false, lost: lost.clone(), ..blobs(&rack, 1..2).swap_remove(0) };
    notify(&mut rack, 2, page(attempt, vec![of_pass], None));
    assert_eq!(view(&rack).left_bytes, 100);
    notify(&mut rack, 3, Event::SpaceDead { group, bytes });
    let read = Work::Read { blob: BlobId::numbered(9), group, drives: drives.clone().into(), bytes };
    let request = Request { op: OpId(1), priority: PriorityClass::Client, overtake_limit: None, work: read };
    let woken = obeyed(&mut rack, 4, Event::Submitted(request.into()));
    let listed = woken.iter().find_map(|action| match action {
        Action::ListDead { attempt, .. } => Some(*attempt),
        _ => None,
    });
    let dead =
        BlobWithDead { blob, drives, lost, stack_bytes, bytes, dead_bytes: bytes, living: false, readable: true };
    let dead = Event::DeadPage { group, attempt: listed.unwrap(), blobs: vec![dead], held_bytes: 0, more: false };
    notify(&mut rack, 5, dead);
    let (op, attempt, _) = transfer(&woken);
    let removal = notify(&mut rack, 6, done((op, attempt), &woken));
    let (op, attempt, _) = transfer(&removal);
    notify(&mut rack, 7, done((op, attempt), &removal));
    assert_eq!(view(&rack).left_bytes, 0);
}

/// The stacks that a restart would count are counted, and subtracted once: those that a failed write has left, and
/// those that were removed and could not be forgotten. On a failed drive they are left until then.
#[test]
fn the_stacks_of_a_dead_blob_are_used_until_they_are_removed_and_taken_off_once() {
    for fails in [false, true] {
        let mut rack = booted_with("nas8", 1_000, RackPolicy { write_read_back: false, ..quiet_policy() });
        let group = rack.layout().group_of(FAILED).unwrap();
        let (bytes, stack_bytes) = (200, 100);
        let submitted = |op, work| {
            let request = Request { op: OpId(op), priority: PriorityClass::Background, overtake_limit: None, work };
            Event::Submitted(request.into())
        };
        let work = Work::Write { bytes, stack_bytes, pin: PinnedTo::Group(group), migration: false };
        let woken = obeyed(&mut rack, 1, submitted(1, work));
        let (op, attempt, first) = transfer(&woken);
        let drives: Vec<DriveId> = first.drives().collect();
        if fails {
            notify(&mut rack, 2, Event::DriveFailed { drive: drives[0], pulled: true });
        }
        // It is given up, and written again to the same group.
        let counted = Event::DeadStacks { drives: drives.clone(), lost: Vec::new(), stack_bytes };
        notify(&mut rack, 3, counted.clone());
        notify(&mut rack, 3, Event::SpaceDead { group, bytes });
        let anew = notify(&mut rack, 3, failed((op, attempt), &[]));
        let (op, attempt, second) = transfer(&anew);
        let others: Vec<DriveId> = second.drives().collect();
        notify(&mut rack, 4, done((op, attempt), &anew));
        // Without the blob that was written again.
        let used = |rack: &Rack| -> Vec<u64> {
            let anew_on = |drive: &DriveId| if others.contains(drive) { stack_bytes } else { 0 };
            drives.iter().map(|drive| rack.placement().used_bytes(*drive) - anew_on(drive)).collect()
        };
        for op in [2, 3] {
            assert_eq!(used(&rack), [1_100; 3], "drive {} fails: {fails}", drives[0]);
            let visited = notify(&mut rack, 5, submitted(op, Work::Visit { group }));
            let listed = visited.iter().find_map(|action| match action {
                Action::ListDead { attempt, .. } => Some(*attempt),
                _ => None,
            });
            let dead = BlobWithDead {
                blob: BlobId::numbered(1),
                drives: drives.clone(),
                lost: Vec::new(),
                stack_bytes,
                bytes,
                dead_bytes: bytes,
                living: false,
                readable: true,
            };
            let attempt = listed.unwrap();
            let page = Event::DeadPage { group, attempt, blobs: vec![dead], held_bytes: 0, more: false };
            let removal = notify(&mut rack, 5, page);
            let (op, attempt, _) = transfer(&removal);
            notify(&mut rack, 5, done((op, attempt), &removal));
            assert_eq!(used(&rack), [1_000; 3], "drive {} fails: {fails}", drives[0]);
            // The catalog could not forget it.
            notify(&mut rack, 5, counted.clone());
            notify(&mut rack, 5, Event::DeadKept { group, bytes });
        }
    }
}

/// The answer to the transfer among `actions`: all went well.
fn done((op, attempt): (OpId, Attempt), actions: &[Action]) -> Event {
    let fine = |drive: DriveId| DriveOutcome { drive, result: DriveResult::Fine };
    let outcomes = transfer(actions).2.drives().map(fine).collect();
    Event::TransferEnded { op, attempt, done: true, outcomes }
}

#[test]
fn what_lies_on_drives_that_are_tried_again_is_away_and_lost_once_the_operator_gives_them_up() {
    let mut rack = booted_with("nas8", 1_000, RackPolicy { tries_given_up: true, ..quiet_policy() });
    let drives = blobs(&rack, 1..2)[0].drives.clone();
    for (pulled, reason) in [(false, Rejection::TooManyDrivesAway), (true, Rejection::DataLost)] {
        for drive in &drives[..2] {
            notify(&mut rack, 1, Event::DriveFailed { drive: *drive, pulled });
        }
        assert_eq!(rack.enough_drives(&drives), Err(reason));
    }
}

/// A rack that has given a drive up, and what wakes its group: the drive is tried with it.
fn before_a_trial() -> (Rack, Event) {
    let mut rack = booted_with("nas8", 1_000, RackPolicy { tries_given_up: true, ..quiet_policy() });
    let (attempt, _) = asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: false })).unwrap();
    let lost = blobs(&rack, 1..2);
    (rack, page(attempt, lost, None))
}

/// It was pulled, so that no answer will ever say that it stands still.
#[test]
fn a_drive_that_the_operator_gives_up_while_it_is_tried_gives_its_permits_back() {
    let (mut rack, wakes) = before_a_trial();
    let woken = notify(&mut rack, 700, wakes);
    let is_tried = |action: &Action| matches!(action, Action::SpinUp { drive: FAILED, .. });
    assert!(woken.iter().any(is_tried), "it is tried with its group: {woken:?}");
    assert!(!rack.may_be_replaced(FAILED), "it may spin");
    notify(&mut rack, 701, Event::DriveFailed { drive: FAILED, pulled: true });
    assert!(rack.may_be_replaced(FAILED));
}

#[test]
fn a_drive_that_the_operator_gives_up_at_the_end_of_a_trial_gives_its_permits_back() {
    let (mut rack, wakes) = before_a_trial();
    let tried = obeyed(&mut rack, 700, wakes);
    let unmounts = |action: &Action| match action {
        Action::Unmount { drive: FAILED, attempt } => Some(*attempt),
        _ => None,
    };
    let attempt = tried.iter().find_map(unmounts).unwrap_or_else(|| panic!("its trial ends: {tried:?}"));
    notify(&mut rack, 701, Event::DriveFailed { drive: FAILED, pulled: true });
    let gone = |attempt| Event::DriveCommandFailed { drive: FAILED, attempt, loss: Loss::Died };
    let stopped = notify(&mut rack, 702, gone(attempt));
    let stops = |action: &Action| match action {
        Action::Stop { drive: FAILED, attempt } => Some(*attempt),
        _ => None,
    };
    let attempt = stopped.iter().find_map(stops).unwrap();
    assert!(!rack.may_be_replaced(FAILED), "it may spin");
    notify(&mut rack, 703, gone(attempt));
    assert!(rack.may_be_replaced(FAILED));
}

/// Applies `event` and its consequences: drives execute their commands, but the failed drive does not start, and its
/// other commands fail with `loss`.
fn all_but_one_obey(rack: &mut Rack, now_s: u64, event: Event, loss: Loss) {
    let mut events = vec![event];
    while let Some(event) = events.pop() {
        for action in notify(rack, now_s, event) {
            events.extend(match action {
                Action::SpinUp { drive: FAILED, .. } => None,
                Action::Unmount { drive: drive @ FAILED, attempt }
                | Action::Stop { drive: drive @ FAILED, attempt } => {
                    Some(Event::DriveCommandFailed { drive, attempt, loss })
                }
                Action::SpinUp { drive, attempt } => Some(Event::SpunUp { drive, attempt }),
                Action::Mount { drive, attempt } => Some(Event::Mounted { drive, attempt, free_bytes: 1 << 40 }),
                Action::Unmount { drive, attempt } => Some(Event::Unmounted { drive, attempt }),
                Action::Stop { drive, attempt } => Some(Event::Stopped { drive, attempt }),
                Action::Transfer { op, attempt, .. } => {
                    Some(Event::TransferEnded { op, attempt, done: true, outcomes: Vec::new() })
                }
                Action::ListOnDrive { attempt, .. } => Some(page(attempt, Vec::new(), None)),
                _ => None,
            });
        }
    }
}

/// It was pulled, and its start was not made yet, so that nothing but its commands shows that it is gone.
#[test]
fn a_drive_that_the_operator_gives_up_while_it_starts_gives_its_permits_back_when_it_is_gone() {
    for (loss, is_gone) in
        [(Loss::Died, true), (Loss::ForeignLabel, true), (Loss::MountFailed, false), (Loss::NoAnswer, false)]
    {
        let idle_timeout = IdleTimeout::After(Duration::from_mins(1));
        let mut rack = booted_with("nas8", 1_000, RackPolicy { idle_timeout, ..quiet_policy() });
        let read = blobs(&rack, 1..2).swap_remove(0);
        let group = rack.layout().group_of(FAILED).unwrap();
        let work = Work::Read { blob: read.blob, group, drives: read.drives.into(), bytes: 200 };
        let request = Request { op: OpId(1), priority: PriorityClass::Client, overtake_limit: None, work };
        all_but_one_obey(&mut rack, 1, Event::Submitted(request.into()), loss);
        assert_eq!(rack.drive_phase(FAILED), DrivePhase::SpinningUp);
        all_but_one_obey(&mut rack, 2, Event::DriveFailed { drive: FAILED, pulled: true }, loss);
        assert!(!rack.may_be_replaced(FAILED), "it may spin");
        for now_s in (10..10_000).step_by(10) {
            all_but_one_obey(&mut rack, now_s, Event::DeadlineReached, loss);
        }
        assert_eq!(rack.may_be_replaced(FAILED), is_gone, "{loss:?}");
        let unmount = notify(&mut rack, 100_000, Event::DeadlineReached).into_iter().find_map(|action| match action {
            Action::Unmount { drive: FAILED, attempt } => Some(attempt),
            _ => None,
        });
        assert_eq!(unmount.is_some(), !is_gone, "it is asked once more to stop only if it may spin");
    }
}

/// A drive may be asked, and fail before the answer arrives: it is still one drive.
#[test]
fn nothing_is_lost_while_a_source_that_was_not_asked_may_bring_its_stack_back() {
    let mut rack = booted_of("pelican-mini", 1_000, 1000); // k = 4, r = 2
    let group = rack.layout().group_of(FAILED).unwrap();
    let members = &rack.layout().groups[group.index()].drives;
    let drives: Vec<DriveId> =
        [FAILED].into_iter().chain(members.iter().copied().filter(|drive| *drive != FAILED)).take(6).collect();
    let blob = BlobOnDrive { drives: drives.clone(), ..blobs(&rack, 1..2).swap_remove(0) };
    let (bad, away) = (drives[1], drives[5]);
    notify(&mut rack, 1, Event::DriveLost { drive: away, loss: Loss::Died });
    let (attempt, _) = asked(&notify(&mut rack, 1, Event::DriveFailed { drive: FAILED, pulled: true })).unwrap();
    let (op, attempt, first) = transfer(&obeyed(&mut rack, 2, page(attempt, vec![blob], None)));
    let target = target_of(&first);
    assert_eq!(first.drives().collect::<Vec<_>>(), [&drives[1..5], &[target]].concat());
    notify(&mut rack, 3, Event::DriveFailed { drive: bad, pulled: true });
    let result = |drive| if drive == bad { DriveResult::StackBad } else { DriveResult::Fine };
    let results: Vec<_> = first.drives().map(|drive| (drive, result(drive))).collect();
    notify(&mut rack, 4, failed((op, attempt), &results));
    assert_eq!(view(&rack).lost_blobs, 0, "{away} may come back");
}

/// Nothing else may wake the group: no client writes to it or reads from it.
#[test]
fn deleted_data_is_reclaimed_for_a_rebuild_that_finds_no_room_and_the_rebuild_is_retried() {
    for dead_first in [false, true] {
        let mut rack = booted(12_000_000_000_000, 1000);
        let group = rack.layout().group_of(FAILED).unwrap();
        let dead = || Event::SpaceDead { group, bytes: 200 };
        let is_woken = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::SpinUp { .. }));
        if dead_first {
            assert!(!is_woken(&notify(&mut rack, 1, dead())), "no group wakes for it alone");
        }
        let failed = notify(&mut rack, 2, Event::DriveFailed { drive: FAILED, pulled: true });
        let listed = blobs(&rack, 1..3);
        let mut actions = obeyed(&mut rack, 3, page(asked(&failed).unwrap().0, listed.clone(), None));
        assert_eq!(view(&rack).unplaced_blobs, 2);
        if !dead_first {
            actions = obeyed(&mut rack, 4, dead());
        }
        let listing = actions.iter().find_map(|action| match action {
            Action::ListDead { attempt, .. } => Some(*attempt),
            _ => None,
        });
        let BlobOnDrive { drives, lost, stack_bytes, bytes, .. } = listed[0].clone();
        let blob = BlobId::numbered(9);
        let dead =
            BlobWithDead { blob, drives, lost, stack_bytes, bytes, dead_bytes: bytes, living: false, readable: true };
        let attempt = listing.unwrap();
        let dead = Event::DeadPage { group, attempt, blobs: vec![dead], held_bytes: 0, more: false };
        let removal = obeyed(&mut rack, 5, dead);
        let (op, attempt, transfer) = transfer(&removal);
        let outcomes = transfer.drives().map(|drive| DriveOutcome { drive, result: DriveResult::Fine }).collect();
        notify(&mut rack, 6, Event::TransferEnded { op, attempt, done: true, outcomes });
        assert!(asked(&notify(&mut rack, 65, Event::DeadlineReached)).is_none(), "more may be removed");
        assert!(asked(&notify(&mut rack, 66, Event::DeadlineReached)).is_some(), "ten minutes were due");
    }
}

#[test]
fn what_cannot_be_rebuilt_yet_says_what_it_lacks() {
    let fill = |used_bytes, away: Option<usize>| {
        let mut rack = booted(used_bytes, 1000);
        let all = blobs(&rack, 1..4);
        if let Some(holder) = away {
            notify(&mut rack, 1, Event::DriveLost { drive: all[0].drives[holder], loss: Loss::Died });
        }
        let failed = notify(&mut rack, 2, Event::DriveFailed { drive: FAILED, pulled: true });
        notify(&mut rack, 3, page(asked(&failed).unwrap().0, all, None));
        let RebuildView { waiting_blobs, unplaced_blobs, lost_blobs, .. } = view(&rack);
        (waiting_blobs, unplaced_blobs, lost_blobs)
    };
    assert_eq!(fill(12_000_000_000_000, None), (3, 3, 0), "no drive has room");
    assert_eq!(fill(1_000, Some(1)), (3, 0, 0), "one of the two that it takes is away");
    assert_eq!(fill(1_000, None), (0, 0, 0));
}
