//! The judge of traces: the faults that it must find in wrong traces, and none in right ones.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::action::Outcome;
use crate::drive_list::DriveList;
use crate::event::{BlobOnDrive, DriveReport};
use crate::policy::{RackPolicy, ReadPolicy};
use crate::testing::quiet_policy;
use alloc::boxed::Box;
use core::time::Duration;
use model::physics::{READ_SEEKS, ServerLoad};
use model::{Attempt, BlobId, GroupId};

fn pelican() -> (RackSpec, Layout) {
    let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "pelican").unwrap();
    let spec = model::text::parse(text, "pelican").unwrap();
    let layout = crate::layout::synthesise(&spec).unwrap();
    (spec, layout)
}

fn policy(overtake_limit: u64) -> RackPolicy {
    let mut policy = quiet_policy();
    policy.scheduler.overtake_limit = overtake_limit;
    (policy.migration.regular_permille, policy.migration.critical_permille) = (300, 800);
    policy.migration.scan_interval = Duration::from_secs(5);
    policy
}

/// The judge of a rack that has booted.
fn judge(overtake_limit: u64) -> TraceCheck {
    let mut judge = judge_of_boot(overtake_limit);
    judge.event(Time::ZERO, &Event::Booted).unwrap();
    judge
}

fn judge_of_boot(overtake_limit: u64) -> TraceCheck {
    let (spec, layout) = pelican();
    TraceCheck::new(&spec, &layout, &policy(overtake_limit))
}

fn submit(judge: &mut TraceCheck, op: u64, bytes: u64) {
    let work = Work::Read { blob: BlobId::numbered(op), group: GroupId(0), drives: DriveList::new(), bytes };
    let request = Request { op: OpId(op), priority: PriorityClass::Client, overtake_limit: None, work };
    judge.event(Time::ZERO, &Event::Submitted(Box::new(request))).unwrap();
}

fn serve(judge: &mut TraceCheck, op: u64) -> Result<(), TraceFault> {
    let transfer = Transfer::Read { blob: BlobId::numbered(op), stacks: Vec::new(), need: 15, policy: ReadPolicy::All };
    judge.action(&Action::Transfer { op: OpId(op), attempt: Attempt(1), transfer })?;
    let ended = Event::TransferEnded { op: OpId(op), attempt: Attempt(1), done: true, outcomes: Vec::new() };
    judge.event(Time::ZERO, &ended)?;
    judge.action(&Action::Finished { op: OpId(op), outcome: Outcome::Read })
}

#[test]
fn one_drive_more_than_a_domain_carries_is_noticed_until_another_one_stands_still() {
    let (spec, _) = pelican();
    let mut judge = judge(0);
    let cooling = spec.resources_by_id().find(|(_, resource)| resource.name == "cooling").unwrap().0;
    let column: Vec<DriveId> =
        spec.drives.iter().map(|d| d.id).filter(|d| spec.domain_of(*d, cooling) == DomainId(7)).collect();
    let attempt = Attempt(1);
    assert_eq!(judge.action(&Action::SpinUp { drive: column[0], attempt }), Ok(()));
    judge.event(Time::from_secs(10), &Event::SpunUp { drive: column[0], attempt }).unwrap();
    let too_much = TraceFault::HardLimit { resource: cooling, domain: DomainId(7), taken: 2, limit: 1 };
    assert_eq!(judge.action(&Action::SpinUp { drive: column[1], attempt }), Err(too_much));
    judge.event(Time::from_secs(20), &Event::Stopped { drive: column[0], attempt }).unwrap();
    judge.event(Time::from_secs(20), &Event::Stopped { drive: column[1], attempt }).unwrap();
    assert_eq!(judge.action(&Action::SpinUp { drive: column[2], attempt }), Ok(()));
    assert_eq!(judge.event(Time::ZERO, &Event::Booted), Err(TraceFault::Clock(Time::ZERO)));
}

#[test]
fn a_drive_that_was_given_up_and_turns_again_takes_its_share_until_it_is_pulled() {
    let (spec, _) = pelican();
    let mut judge = judge(0);
    let cooling = spec.resources_by_id().find(|(_, resource)| resource.name == "cooling").unwrap().0;
    let mut column = spec.drives.iter().map(|d| d.id).filter(|d| spec.domain_of(*d, cooling) == DomainId(7));
    let (given_up, other) = (column.next().unwrap(), column.next().unwrap());
    let mut event = |event: &Event| judge.event(Time::ZERO, event).unwrap();
    event(&Event::DriveFailed { drive: given_up, pulled: true });
    event(&Event::DriveSpins { drive: given_up });
    let start = Action::SpinUp { drive: other, attempt: Attempt(1) };
    assert!(matches!(judge.action(&start), Err(TraceFault::HardLimit { taken: 2, limit: 1, .. })));
    judge.event(Time::ZERO, &Event::Stopped { drive: other, attempt: Attempt(1) }).unwrap();
    judge.event(Time::ZERO, &Event::DriveLost { drive: given_up, loss: Loss::Died }).unwrap();
    assert_eq!(judge.action(&start), Ok(()));
}

#[test]
fn a_drive_that_was_given_up_has_no_power_if_it_is_gone_when_it_is_to_stop() {
    let (spec, _) = pelican();
    let cooling = spec.resources_by_id().find(|(_, resource)| resource.name == "cooling").unwrap().0;
    let mut column = spec.drives.iter().map(|d| d.id).filter(|d| spec.domain_of(*d, cooling) == DomainId(7));
    let (drive, other) = (column.next().unwrap(), column.next().unwrap());
    for (given_up, stops, loss, is_gone) in [
        (true, true, Loss::Died, true),
        (true, true, Loss::NoAnswer, false),
        (true, true, Loss::MountFailed, false),
        (true, true, Loss::NotAsked, false),
        (true, false, Loss::Died, false),
        (false, true, Loss::Died, false),
    ] {
        let mut judge = judge(0);
        judge.action(&Action::SpinUp { drive, attempt: Attempt(1) }).unwrap();
        if given_up {
            judge.event(Time::ZERO, &Event::DriveFailed { drive, pulled: true }).unwrap();
            judge.event(Time::ZERO, &Event::DriveSpins { drive }).unwrap();
        }
        let attempt = Attempt(2);
        let command = if stops { Action::Stop { drive, attempt } } else { Action::Unmount { drive, attempt } };
        judge.action(&command).unwrap();
        judge.event(Time::ZERO, &Event::DriveCommandFailed { drive, attempt, loss }).unwrap();
        let started = judge.action(&Action::SpinUp { drive: other, attempt: Attempt(3) });
        assert_eq!(started.is_ok(), is_gone, "{given_up} {stops} {loss:?}: {started:?}");
    }
}

#[test]
fn an_answer_to_an_older_attempt_says_nothing_of_the_newer_one() {
    let mut judge = judge(0);
    let (drive, old, new) = (DriveId(3), Attempt(1), Attempt(2));
    let (blob, stacks) = (BlobId::numbered(1), vec![(0, drive)]);
    let transfer = Transfer::Read { blob, stacks, need: 15, policy: ReadPolicy::All };
    judge.action(&Action::SpinUp { drive, attempt: old }).unwrap();
    judge.event(Time::ZERO, &Event::Mounted { drive, attempt: old, free_bytes: 0 }).unwrap();
    judge.action(&Action::SpinUp { drive, attempt: new }).unwrap();
    judge.event(Time::ZERO, &Event::Mounted { drive, attempt: old, free_bytes: 0 }).unwrap();
    submit(&mut judge, 1, 10);
    let begin = Action::Transfer { op: OpId(1), attempt: new, transfer };
    assert_eq!(judge.action(&begin), Err(TraceFault::NotMounted { op: OpId(1), drive }));
    judge.event(Time::ZERO, &Event::Mounted { drive, attempt: new, free_bytes: 0 }).unwrap();
    assert_eq!(judge.action(&begin), Ok(()));
    let ended = |attempt| Event::TransferEnded { op: OpId(1), attempt, done: true, outcomes: Vec::new() };
    judge.event(Time::ZERO, &ended(old)).unwrap();
    submit(&mut judge, 2, 10);
    let both = TraceFault::TwoInService { class: ClassId(0), first: OpId(1), second: OpId(2) };
    assert_eq!(serve(&mut judge, 2), Err(both), "the first is still served");
}

#[test]
fn a_drive_that_was_not_mounted_since_it_was_started_is_not_used() {
    let mut judge = judge(0);
    let (drive, attempt) = (DriveId(3), Attempt(1));
    let use_it = |judge: &mut TraceCheck, op| {
        submit(judge, op, 10);
        let (blob, stacks) = (BlobId::numbered(1), vec![(0, drive)]);
        let transfer = Transfer::Read { blob, stacks, need: 15, policy: ReadPolicy::All };
        judge.action(&Action::Transfer { op: OpId(op), attempt, transfer })?;
        judge.event(Time::ZERO, &Event::TransferEnded { op: OpId(op), attempt, done: true, outcomes: Vec::new() })
    };
    assert_eq!(use_it(&mut judge, 1), Err(TraceFault::NotMounted { op: OpId(1), drive }));
    judge.event(Time::ZERO, &Event::Mounted { drive, attempt, free_bytes: 0 }).unwrap();
    assert_eq!(use_it(&mut judge, 2), Ok(()));
    judge.action(&Action::SpinUp { drive, attempt }).unwrap();
    assert_eq!(use_it(&mut judge, 3), Err(TraceFault::NotMounted { op: OpId(3), drive }));
}

#[test]
fn a_group_is_remembered_as_initialised_once_with_drives_of_its_own() {
    let (_, layout) = pelican();
    let mut judge = judge(0);
    let drives = layout.groups[0].drives.clone();
    let stranger = layout.groups[1].drives[0];
    let remember = |drives: &[DriveId]| Action::PersistInitialised { group: GroupId(0), drives: drives.to_vec() };
    assert_eq!(judge.action(&remember(&drives[1..])), Ok(()));
    assert_eq!(judge.action(&remember(&drives)), Err(TraceFault::Initialised(GroupId(0), drives[1])));
    assert_eq!(judge.action(&remember(&[stranger])), Err(TraceFault::Initialised(GroupId(0), stranger)));
    judge.event(Time::ZERO, &Event::DriveReplaced { drive: drives[1], lost_bytes: 0 }).unwrap();
    assert_eq!(judge.action(&remember(&drives[1..2])), Ok(()));
}

#[test]
fn what_is_answered_was_asked_for_and_only_once() {
    let mut judge = judge(0);
    submit(&mut judge, 1, 10);
    assert_eq!(judge.open_ops(), 1);
    assert_eq!(serve(&mut judge, 1), Ok(()));
    assert_eq!(judge.open_ops(), 0);
    let again = Action::Finished { op: OpId(1), outcome: Outcome::Read };
    assert_eq!(judge.action(&again), Err(TraceFault::NotOpen(OpId(1))));
    submit(&mut judge, 1, 10);
    assert_eq!(judge.open_ops(), 0, "reported twice, it is the same");
}

#[test]
fn a_class_serves_one_at_a_time() {
    let mut judge = judge(0);
    submit(&mut judge, 1, 10);
    submit(&mut judge, 2, 10);
    let transfer = Transfer::Read { blob: BlobId::numbered(1), stacks: Vec::new(), need: 15, policy: ReadPolicy::All };
    let begin = |op| Action::Transfer { op: OpId(op), attempt: Attempt(1), transfer: transfer.clone() };
    assert_eq!(judge.action(&begin(1)), Ok(()));
    let both = TraceFault::TwoInService { class: ClassId(0), first: OpId(1), second: OpId(2) };
    assert_eq!(judge.action(&begin(2)), Err(both));
}

#[test]
fn being_overtaken_by_more_than_u_is_noticed_when_it_is_served() {
    let mut judge = judge(20);
    for (op, bytes) in [(1, 5), (2, 10), (3, 10), (4, 1)] {
        submit(&mut judge, op, bytes);
    }
    assert_eq!(serve(&mut judge, 2), Ok(()));
    assert_eq!(serve(&mut judge, 3), Ok(()));
    assert_eq!(serve(&mut judge, 4), Ok(()));
    assert_eq!(serve(&mut judge, 1), Err(TraceFault::Overtaken { op: OpId(1), by: 21, limit: 20 }));
}

#[test]
fn what_an_operation_overtook_itself_counts_for_it() {
    let mut judge = judge(20);
    for (op, bytes) in [(1, 5), (2, 10), (3, 25)] {
        submit(&mut judge, op, bytes);
    }
    assert_eq!(serve(&mut judge, 3), Ok(()), "it came last and is charged to both");
    assert_eq!(serve(&mut judge, 2), Ok(()), "25 went before it, and it before 5: 20");
    assert!(serve(&mut judge, 1).is_err());
}

/// Waiting reads as (number, weight, overtaken by, bound), in the order of admission: the rule word by word.
#[derive(Default)]
struct NaiveLine(Vec<(u64, u64, u64, u64)>);

impl NaiveLine {
    fn place_of(&self, op: u64) -> Option<usize> {
        self.0.iter().position(|waiting| waiting.0 == op)
    }

    /// True if `op` may be served now.
    fn serve(&mut self, op: u64) -> bool {
        let Some(at) = self.place_of(op) else { return true };
        let (_, weight, overtaken, bound) = self.0.remove(at);
        self.0[..at].iter_mut().for_each(|earlier| earlier.2 += weight);
        let overtook: u64 = self.0[..at].iter().map(|earlier| earlier.1).sum();
        overtaken.saturating_sub(overtook) <= bound
    }

    fn cancel(&mut self, op: u64) {
        let Some(at) = self.place_of(op) else { return };
        let (_, weight, ..) = self.0.remove(at);
        self.0[at..].iter_mut().for_each(|later| later.3 += weight);
    }
}

#[test]
fn sums_find_the_same_faults_as_a_list_of_all_that_wait() {
    let (spec, layout) = pelican();
    let mut faults = 0;
    for seed in 0..300 {
        let mut rng = model::Rng::new(seed);
        let limit = 1 << rng.below(12);
        let (mut judge, mut line) = (TraceCheck::new(&spec, &layout, &policy(limit)), NaiveLine::default());
        for op in 1..200 {
            let bytes = 1 + rng.below(20);
            submit(&mut judge, op, bytes);
            line.0.push((op, bytes, 0, limit));
            let (of, ..) = line.0[rng.below(line.0.len().min(6) as u64) as usize];
            match rng.below(10) {
                0..2 => {}
                2 => {
                    line.cancel(of);
                    judge.action(&Action::Finished { op: OpId(of), outcome: Outcome::Cancelled }).unwrap();
                }
                _ => {
                    let may_be = line.serve(of);
                    let found = serve(&mut judge, of);
                    assert_eq!(found.is_ok(), may_be, "seed {seed}: {found:?}");
                    if !may_be {
                        faults += 1;
                        break;
                    }
                }
            }
        }
    }
    assert!((50..300).contains(&faults), "{faults} runs of 300 found a fault");
}

#[test]
fn where_switches_count_each_that_was_found_may_have_taken_one_and_no_more_is_forgiven() {
    let (spec, layout) = pelican();
    let profile = &spec.profile;
    let bytes = 10_000_000_000;
    let each = profile.seek * READ_SEEKS + model::transfer_time(bytes / 15, profile.bytes_per_s);
    let each_ms = each.as_millis() as u64;
    let drives = spec.group_drives as usize;
    let switch = profile.wake_estimate(drives, ServerLoad::Busy) + profile.rest_estimate(drives);
    let switch_ms = switch.as_millis() as u64;
    let mut policy = policy(each_ms);
    policy.scheduler.weighing = Weighing::ServiceTime;
    // The read finds `found` operations, and is served after `later` operations that came after it.
    let last_of = |found: u64, later: u64| {
        let mut judge = TraceCheck::new(&spec, &layout, &policy);
        (1..=found + 1 + later).for_each(|op| submit(&mut judge, op, bytes));
        (1..=found).chain(found + 2..=found + 1 + later).for_each(|op| serve(&mut judge, op).unwrap());
        serve(&mut judge, found + 1)
    };
    for found in [0, 1, 7] {
        let bears = 1 + (found + 1) * switch_ms / each_ms;
        assert_eq!(last_of(found, bears), Ok(()));
        let by = (bears + 1) * each_ms;
        let fault = TraceFault::Overtaken { op: OpId(found + 1), by, limit: each_ms };
        assert_eq!(last_of(found, bears + 1), Err(fault), "it found {found}");
    }
}

#[test]
fn two_that_start_in_a_domain_for_one_start_are_found_and_two_that_turn_are_not() {
    let (spec, layout) = pelican();
    let mut draft = model::RackDraft::clone(&spec);
    draft.resources[0].limit = DomainLimit::StartingDrives(1);
    let spec = RackSpec::validated(draft).unwrap();
    let tray: Vec<DriveId> = spec.drives.iter().filter(|d| d.slot[0] == 0 && d.slot[2] == 0).map(|d| d.id).collect();
    let start = |drive| Action::SpinUp { drive, attempt: Attempt(1) };
    let mut judge = TraceCheck::new(&spec, &layout, &policy(0));
    judge.action(&start(tray[0])).unwrap();
    let fault = judge.action(&start(tray[1])).unwrap_err();
    assert!(matches!(fault, TraceFault::HardLimit { taken: 2, limit: 1, .. }), "{fault}");
    let mut judge = TraceCheck::new(&spec, &layout, &policy(0));
    for drive in tray.into_iter().take(3) {
        judge.action(&start(drive)).unwrap();
        judge.event(Time::from_secs(1), &Event::SpunUp { drive, attempt: Attempt(1) }).unwrap();
    }
}

/// A correct rebuild of the lost stack of a blob of group 0.
fn rebuild_of_group_0(layout: &Layout) -> Transfer {
    let members = &layout.groups[0].drives;
    let drives: Vec<DriveId> = members[..18].to_vec();
    let stacks = (1..18).map(|index| (index as u8, drives[index])).collect();
    let (blob, group, target) = (BlobId::numbered(5), GroupId(0), members[18]);
    Transfer::Rebuild { blob, group, drives, lost: 0, stacks, need: 15, policy: ReadPolicy::All, target, spare: false }
}

/// Starts a transfer on drives that are all mounted.
fn begin(judge: &mut TraceCheck, op: u64, transfer: Transfer) -> Result<(), TraceFault> {
    for drive in transfer.drives() {
        judge.event(Time::ZERO, &Event::Mounted { drive, attempt: Attempt(1), free_bytes: 0 })?;
    }
    judge.action(&Action::Transfer { op: OpId(op), attempt: Attempt(1), transfer })
}

#[test]
fn a_rebuild_that_reads_or_writes_where_it_may_not_is_noticed() {
    let (_, layout) = pelican();
    let members = &layout.groups[0].drives;
    let stranger = layout.groups[1].drives[0];
    let faults = [
        RebuildFault::ReadsLost(members[0]),
        RebuildFault::ReadsLost(stranger),
        RebuildFault::TooFew,
        RebuildFault::TwoStacks(members[1]),
        RebuildFault::OtherGroup(stranger),
        RebuildFault::ToFailed(members[18]),
    ];
    for (case, fault) in faults.into_iter().enumerate() {
        let mut judge = judge(0);
        judge.event(Time::ZERO, &Event::DriveFailed { drive: members[0], pulled: true }).unwrap();
        let mut transfer = rebuild_of_group_0(&layout);
        let Transfer::Rebuild { stacks, target, .. } = &mut transfer else { panic!("not a rebuild") };
        match case {
            0 => stacks.push((0, members[0])),
            1 => stacks[3].1 = stranger,
            2 => stacks.truncate(14),
            3 => *target = members[1],
            4 => *target = stranger,
            _ => judge.event(Time::ZERO, &Event::DriveFailed { drive: *target, pulled: true }).unwrap(),
        }
        assert_eq!(begin(&mut judge, 1, transfer), Err(TraceFault::Rebuild { op: OpId(1), fault }));
    }
    let not_failed = TraceFault::Rebuild { op: OpId(1), fault: RebuildFault::NotFailed(members[0]) };
    assert_eq!(begin(&mut judge(0), 1, rebuild_of_group_0(&layout)), Err(not_failed));
    let list = Action::ListOnDrive { drive: members[0], attempt: Attempt(1), after: None, limit: 1 };
    assert_eq!(judge(0).action(&list), Err(TraceFault::Listed(members[0])));
}

#[test]
fn a_stack_is_looked_for_in_its_place_only_where_it_may_lie() {
    let (_, layout) = pelican();
    let drive = layout.groups[0].drives[0];
    let mut look = rebuild_of_group_0(&layout);
    let Transfer::Rebuild { blob, drives, stacks, need, target, .. } = &mut look else { panic!("not a rebuild") };
    (*stacks, *need, *target) = (vec![(0, drive)], 1, drive);
    let left = BlobOnDrive {
        blob: *blob,
        drives: drives.clone(),
        lost: vec![drive],
        stack_bytes: 1,
        bytes: 1,
        living: true,
        left_there: true,
    };
    let mut judge = judge(0);
    judge.event(Time::ZERO, &Event::DriveFailed { drive, pulled: true }).unwrap();
    judge.event(Time::ZERO, &Event::DriveReplaced { drive, lost_bytes: 1 }).unwrap();
    let fault = TraceFault::Rebuild { op: OpId(1), fault: RebuildFault::ReadsLost(drive) };
    assert_eq!(begin(&mut judge, 1, look.clone()), Err(fault));
    let page = Event::OnDrivePage { drive, attempt: Attempt(1), blobs: vec![left], next: None };
    judge.event(Time::ZERO, &page).unwrap();
    assert_eq!(begin(&mut judge, 1, look), Ok(()));
}

#[test]
fn a_drive_that_was_replaced_before_it_was_retired_is_still_emptied_after_a_start() {
    let (_, layout) = pelican();
    let drive = layout.groups[0].drives[0];
    let mut copy = rebuild_of_group_0(&layout);
    let Transfer::Rebuild { stacks, need, .. } = &mut copy else { panic!("not a rebuild") };
    (*stacks, *need) = (vec![(0, drive)], 1);
    let mut judge = judge_of_boot(0);
    let mut event = |event: &Event| judge.event(Time::ZERO, event).unwrap();
    event(&Event::DriveRetiring { drive });
    event(&Event::DriveReplaced { drive, lost_bytes: 1 });
    event(&Event::Booted);
    assert_eq!(begin(&mut judge, 1, copy.clone()), Ok(()), "it holds what was written since it was replaced");
    // Now it is emptied and given up, and another drive takes its place, which is not to be emptied.
    judge.event(Time::ZERO, &Event::DriveFailed { drive, pulled: true }).unwrap();
    judge.event(Time::ZERO, &Event::DriveReplaced { drive, lost_bytes: 1 }).unwrap();
    let fault = TraceFault::Rebuild { op: OpId(2), fault: RebuildFault::ReadsLost(drive) };
    assert_eq!(begin(&mut judge, 2, copy), Err(fault));
}

#[test]
fn no_blob_is_written_to_a_drive_that_is_to_be_empty() {
    let (_, layout) = pelican();
    let group = &layout.groups[0].drives;
    let (drive, write) =
        (group[0], |drives: &[DriveId]| Transfer::Write { group: GroupId(0), drives: drives.to_vec() });
    let mut judge = judge(0);
    judge.event(Time::ZERO, &Event::DriveRetiring { drive }).unwrap();
    let fault = TraceFault::Rebuild { op: OpId(1), fault: RebuildFault::ToRetiring(drive) };
    assert_eq!(begin(&mut judge, 1, write(&group[..18])), Err(fault));
    assert_eq!(begin(&mut judge, 2, write(&group[1..19])), Ok(()));
}

#[test]
fn a_drive_that_is_given_up_as_empty_and_holds_a_blob_is_noticed() {
    let (_, layout) = pelican();
    let drive = layout.groups[0].drives[0];
    let mut copy = rebuild_of_group_0(&layout);
    let Transfer::Rebuild { blob, drives, stacks, need, target, .. } = &mut copy else { panic!("not a rebuild") };
    (*stacks, *need) = (vec![(0, drive)], 1);
    let (blob, drives, to) = (*blob, drives.clone(), *target);
    let give_up = Action::GiveUp { drive, retired: true };
    let mut judge = judge(0);
    judge.event(Time::ZERO, &Event::DriveRetiring { drive }).unwrap();
    judge.action(&Action::ListOnDrive { drive, attempt: Attempt(1), after: None, limit: 9 }).unwrap();
    let (lost, left_there) = (Vec::new(), false);
    let listed = BlobOnDrive { blob, drives, lost, stack_bytes: 1, bytes: 1, living: true, left_there };
    let page = Event::OnDrivePage { drive, attempt: Attempt(1), blobs: vec![listed], next: None };
    judge.event(Time::ZERO, &page).unwrap();
    assert_eq!(judge.action(&give_up), Err(TraceFault::NotEmpty(drive)));
    begin(&mut judge, 1, copy).unwrap();
    let (op, attempt) = (OpId(1), Attempt(1));
    judge.event(Time::ZERO, &Event::TransferEnded { op, attempt, done: true, outcomes: Vec::new() }).unwrap();
    judge.action(&Action::MoveStack { op, attempt, blob, index: 0, from: drive, to, removes: true }).unwrap();
    judge.event(Time::ZERO, &Event::StackMoved { op, attempt, done: true }).unwrap();
    judge.event(Time::ZERO, &page).unwrap(); // once more
    assert_eq!(judge.action(&give_up), Ok(()));
}

#[test]
fn what_a_start_says_of_a_drive_that_was_replaced_does_not_undo_that_its_group_was_initialised_with_it() {
    let (spec, layout) = pelican();
    let drive = layout.groups[0].drives[0];
    let mut judge = judge_of_boot(0);
    let (capacity_bytes, used_bytes, day) = (spec.capacity_bytes(drive), 0, 0);
    let report = DriveReport { drive, capacity_bytes, used_bytes, day, starts: 0, present: true, initialised: true };
    judge.event(Time::ZERO, &Event::DriveReported(report)).unwrap();
    judge.event(Time::ZERO, &Event::DriveReplaced { drive, lost_bytes: 1 }).unwrap();
    judge.event(Time::ZERO, &Event::Booted).unwrap();
    let remember = Action::PersistInitialised { group: GroupId(0), drives: vec![drive] };
    assert_eq!(judge.action(&remember), Err(TraceFault::Initialised(GroupId(0), drive)));
}

#[test]
fn a_stack_counts_only_where_it_was_written_and_the_class_stays_with_it_until_then() {
    let (_, layout) = pelican();
    let mut judge = judge(0);
    let transfer = rebuild_of_group_0(&layout);
    let Transfer::Rebuild { ref drives, target, .. } = transfer else { panic!("not a rebuild") };
    let from = drives[0];
    let move_to = |to| Action::MoveStack {
        op: OpId(1),
        attempt: Attempt(2),
        blob: BlobId::numbered(5),
        index: 0,
        from,
        to,
        removes: false,
    };
    judge.event(Time::ZERO, &Event::DriveFailed { drive: from, pulled: true }).unwrap();
    begin(&mut judge, 1, transfer.clone()).unwrap();
    let fault = |to| Err(TraceFault::Rebuild { op: OpId(1), fault: RebuildFault::NotWritten(to) });
    assert_eq!(judge.action(&move_to(target)), fault(target), "not yet");
    let ended = Event::TransferEnded { op: OpId(1), attempt: Attempt(1), done: true, outcomes: Vec::new() };
    judge.event(Time::ZERO, &ended).unwrap();
    assert_eq!(judge.action(&move_to(layout.groups[0].drives[20])), fault(layout.groups[0].drives[20]));
    assert_eq!(judge.action(&move_to(target)), Ok(()));
    let both = TraceFault::TwoInService { class: ClassId(0), first: OpId(1), second: OpId(2) };
    assert_eq!(begin(&mut judge, 2, transfer), Err(both));
    judge.event(Time::ZERO, &Event::StackMoved { op: OpId(1), attempt: Attempt(2), done: true }).unwrap();
    assert_eq!(judge.action(&Action::Finished { op: OpId(1), outcome: Outcome::Rebuilt }), Ok(()));
}

#[test]
fn a_stack_counts_only_once_it_was_read_back_from_where_it_is() {
    let (spec, layout) = pelican();
    let mut judge = TraceCheck::new(&spec, &layout, &RackPolicy { rebuild_read_back: true, ..policy(0) });
    let transfer = rebuild_of_group_0(&layout);
    let Transfer::Rebuild { ref drives, target, .. } = transfer else { panic!("not a rebuild") };
    let from = drives[0];
    let move_to = |to| Action::MoveStack {
        op: OpId(1),
        attempt: Attempt(3),
        blob: BlobId::numbered(5),
        index: 0,
        from,
        to,
        removes: false,
    };
    let ended = |done| Event::TransferEnded { op: OpId(1), attempt: Attempt(1), done, outcomes: vec![] };
    judge.event(Time::ZERO, &Event::DriveFailed { drive: from, pulled: true }).unwrap();
    let fault = |to| Err(TraceFault::Rebuild { op: OpId(1), fault: RebuildFault::NotReadBack(to) });
    begin(&mut judge, 1, transfer.clone()).unwrap();
    judge.event(Time::ZERO, &ended(true)).unwrap();
    assert_eq!(judge.action(&move_to(target)), fault(target), "nobody has looked");
    begin(&mut judge, 1, Transfer::Verify { drives: vec![target] }).unwrap();
    judge.event(Time::ZERO, &ended(false)).unwrap();
    let mut again = transfer;
    let other = layout.groups[0].drives[20];
    let Transfer::Rebuild { ref mut target, .. } = again else { panic!("not a rebuild") };
    *target = other;
    begin(&mut judge, 1, again).unwrap();
    judge.event(Time::ZERO, &ended(true)).unwrap();
    assert_eq!(judge.action(&move_to(other)), fault(other), "what was looked at is elsewhere");
    begin(&mut judge, 1, Transfer::Verify { drives: vec![other] }).unwrap();
    judge.event(Time::ZERO, &ended(true)).unwrap();
    assert_eq!(judge.action(&move_to(other)), Ok(()));
}

#[test]
fn a_start_in_the_pool_that_is_one_too_many_is_noticed_and_so_is_a_command_to_a_drive_that_has_not_answered() {
    let (_, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "nas8").unwrap();
    let starting = "[resources.start]\nstarting_drives = 1\nhard = true\n\n[failure_domains.drive]";
    let pool = "[[pool]]\nslot = [8, 0, 0]\ndomains = { power = 0, controller = 0, start = 0 }\n\n[drive]\n";
    let text = text.replace("active_drives = 4", "active_drives = 5").replace("[failure_domains.drive]", starting);
    let text = text.replace("domains = { power = 0,", "domains = { start = 0, power = 0,").replace("[drive]\n", pool);
    let spec = model::text::parse(&text, "rack.toml").unwrap();
    let start = spec.resources_by_id().find(|(_, resource)| resource.name == "start").unwrap().0;
    let mut judge = TraceCheck::without_classes(&spec);
    let (drive, now) = (PoolDriveId(0), Time::ZERO);
    let act = |action| Action::PoolDrive { drive, action };
    let stop = |attempt| act(PoolDriveAction::Stop(Attempt(attempt)));
    let begin = |attempt| act(PoolDriveAction::Start { attempt: Attempt(attempt), day: 0, starts: 1 });
    let stopped = |attempt| Event::PoolDrive { drive, event: PoolDriveEvent::Stopped(Attempt(attempt)) };
    assert_eq!(judge.action(&stop(1)), Ok(()));
    judge.event(now, &stopped(0)).unwrap();
    judge.event(now, &stopped(1)).unwrap();
    judge.action(&Action::SpinUp { drive: DriveId(3), attempt: Attempt(1) }).unwrap();
    let too_much = TraceFault::HardLimit { resource: start, domain: DomainId(0), taken: 2, limit: 1 };
    assert_eq!(judge.action(&begin(2)), Err(too_much));
    judge.event(now, &Event::PoolDrive { drive, event: PoolDriveEvent::Failed(Attempt(2)) }).unwrap();
    judge.event(now, &Event::SpunUp { drive: DriveId(3), attempt: Attempt(1) }).unwrap();
    assert_eq!(judge.action(&begin(3)), Ok(()));
    assert_eq!(judge.action(&begin(4)), Err(TraceFault::PoolDrive(drive)), "it is on its way");
    judge.event(now, &Event::PoolDrive { drive, event: PoolDriveEvent::Started(Attempt(4)) }).unwrap();
    assert_eq!(judge.action(&Action::SpinUp { drive: DriveId(4), attempt: Attempt(1) }), Err(too_much));
}
