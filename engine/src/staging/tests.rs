//! The migrator, decision by decision. Against a naive model: `naive_tests.rs`.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::policy::MoveOrder;
use crate::thermometer::{Rule, Thermometer};
use alloc::vec;

const MB: u64 = 1_000_000;

fn policy() -> MigrationPolicy {
    MigrationPolicy {
        due_age: Some(Duration::from_secs(30)),
        min_age: Duration::from_secs(10),
        min_bytes: 0,
        regular_permille: 300,
        critical_permille: 800,
        drained_permille: None,
        order: MoveOrder::default(),
        pack_bytes: 8 * MB,
        pack_members: 1000,
        linger: Duration::ZERO,
        window: 4,
        scan_interval: Duration::from_secs(5),
        thermometer: Thermometer::default(),
        due_with_checks: false,
    }
}

fn entry(version: u64, bytes: u64) -> StagedEntry {
    let (age, pin) = (Duration::from_secs(40), PinnedTo::Anywhere);
    StagedEntry { version, bytes, age, pin, heat: Heat::Cold }
}

fn with_usage(staged_bytes: u64) -> Migrator {
    let mut migrator = Migrator::new(policy());
    migrator.usage = Usage { staged_bytes, capacity_bytes: 100 * MB };
    migrator
}

fn composed(actions: &[Action]) -> Vec<Vec<u64>> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Compose { versions, .. } => Some(versions.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn small_objects_share_packs_and_large_ones_are_blobs_of_their_own() {
    let mut migrator = with_usage(30 * MB);
    let mut actions = vec![];
    migrator.poll(Time::from_secs(1), || false, &mut actions);
    let Action::ListStaged { attempt, restart: true, coldest_bytes: None, .. } = actions[0] else { panic!() };
    actions.clear();
    let entries = [entry(1, 3 * MB), entry(2, 4 * MB), entry(3, 9 * MB), entry(4, 2 * MB), entry(5, MB)];
    migrator.page(Time::from_secs(1), attempt, (&entries, false), &mut actions);
    assert_eq!(composed(&actions), [vec![3], vec![1, 2], vec![4, 5]]);
    assert_eq!(migrator.writes_under_way(), 3);
}

#[test]
fn of_packs_of_very_many_objects_there_are_few_at_once() {
    let mut migrator = Migrator::new(MigrationPolicy { pack_members: 2, window: 32, ..policy() });
    migrator.usage = Usage { staged_bytes: 30 * MB, capacity_bytes: 100 * MB };
    let (mut actions, mut listed) = (vec![], 0);
    migrator.poll(Time::from_secs(1), || false, &mut actions);
    let Action::ListStaged { attempt, .. } = actions[0] else { panic!() };
    while migrator.scan.as_ref().is_some_and(|scan| !scan.paused) {
        listed += 1;
        migrator.page(Time::from_secs(1), attempt, (&[entry(listed, 1000)], true), &mut actions);
    }
    // A pack is composed when the first of the next one comes.
    assert_eq!((composed(&actions).len(), listed), (4, 9));
    assert_eq!(migrator.deadline(), Time::MAX);
    migrator.ended(Time::from_secs(2), OpId(MIGRATOR_OPS), true);
    assert!(migrator.deadline() < Time::MAX, "it goes on when one has ended");
}

#[test]
fn a_late_or_second_page_changes_nothing() {
    let mut migrator = with_usage(30 * MB);
    let mut actions = vec![];
    migrator.poll(Time::from_secs(1), || false, &mut actions);
    actions.clear();
    migrator.page(Time::from_secs(1), Attempt(77), (&[entry(1, MB)], false), &mut actions);
    migrator.page(Time::from_secs(1), Attempt(1), (&[entry(1, MB)], false), &mut actions);
    migrator.page(Time::from_secs(1), Attempt(1), (&[entry(1, MB)], false), &mut actions);
    assert_eq!(composed(&actions), [vec![1]]);
}

#[test]
fn thresholds_ask_for_the_coldest_and_only_as_much_as_is_too_much() {
    let ask = |staged: u64, clients_wait| {
        let mut actions = vec![];
        with_usage(staged).poll(Time::from_secs(1), || clients_wait, &mut actions);
        match actions.as_slice() {
            [Action::ListStaged { older_than, coldest_bytes, .. }] => (older_than.as_secs(), *coldest_bytes),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(20 * MB, false), (30, None));
    assert_eq!(ask(50 * MB, false), (10, Some(20 * MB)));
    assert_eq!(ask(50 * MB, true), (30, None), "clients come before the regular threshold");
    assert_eq!(ask(90 * MB, true), (0, Some(60 * MB)), "but not before the critical one");
}

fn with_rule(staged_bytes: u64, default: Temperature) -> Migrator {
    let thermometer = Thermometer { rules: vec![Rule::default()], default };
    let mut migrator = Migrator::new(MigrationPolicy { due_age: None, thermometer, ..policy() });
    migrator.usage = Usage { staged_bytes, capacity_bytes: 100 * MB };
    migrator
}

#[test]
fn hot_data_moves_above_critical_alone_and_in_whole_packs_until_it_is_not() {
    let ask = |staged_bytes, default| {
        let mut actions = vec![];
        with_rule(staged_bytes, default).poll(Time::from_secs(1), || false, &mut actions);
        match actions.as_slice() {
            [Action::ListStaged { coldest_bytes, hot_bytes, .. }] => (*coldest_bytes, *hot_bytes),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(10 * MB, Temperature::Hot), (None, 0), "what is due, however empty the workshop is");
    assert_eq!(ask(50 * MB, Temperature::Hot), (None, 0), "nothing is cold but by a rule");
    assert_eq!(ask(50 * MB, Temperature::Cold), (Some(20 * MB), 0));
    assert_eq!(ask(81 * MB, Temperature::Hot), (Some(51 * MB), 8 * MB));
    assert_eq!(ask(90 * MB, Temperature::Cold), (Some(60 * MB), 16 * MB));
    let mut actions = vec![];
    with_usage(90 * MB).poll(Time::from_secs(1), || false, &mut actions);
    assert!(matches!(actions[..], [Action::ListStaged { hot_bytes: 0, .. }]), "without rules nothing is hot");
}

#[test]
fn a_pack_of_what_is_due_by_a_rule_waits_no_longer_than_it_lingers() {
    let composed_after = |due_for: u64| {
        let mut migrator = with_rule(10 * MB, Temperature::Hot);
        migrator.policy.linger = Duration::from_mins(1);
        let mut actions = vec![];
        migrator.poll(Time::from_secs(1), || false, &mut actions);
        actions.clear();
        // Its age in the workshop is no reason: that of the rule is.
        let heat = Heat::Due(Duration::from_secs(due_for));
        let entry = StagedEntry { heat, age: Duration::from_hours(9), ..entry(1, MB) };
        migrator.page(Time::from_secs(1), Attempt(1), (&[entry], false), &mut actions);
        composed(&actions).len()
    };
    assert_eq!((composed_after(59), composed_after(60)), (0, 1));
}

#[test]
fn hot_bytes_that_had_to_move_are_counted() {
    let mut migrator = with_rule(90 * MB, Temperature::Hot);
    let mut actions = vec![];
    migrator.poll(Time::from_secs(1), || true, &mut actions);
    let hot = StagedEntry { heat: Heat::Hot, ..entry(2, 2 * MB) };
    migrator.page(Time::from_secs(1), Attempt(1), (&[entry(1, MB), hot], false), &mut actions);
    assert_eq!(migrator.hot_moved_bytes(), 2 * MB);
}

#[test]
fn a_move_from_above_critical_ends_where_the_policy_drains_to() {
    let asked = |drained_permille, staged_bytes| {
        let mut migrator = Migrator::new(MigrationPolicy { drained_permille, due_age: None, ..policy() });
        migrator.usage = Usage { staged_bytes, capacity_bytes: 100 * MB };
        let mut actions = vec![];
        migrator.poll(Time::from_secs(1), || false, &mut actions);
        assert_eq!(migrator.is_moving(), !actions.is_empty());
        match actions.as_slice() {
            [Action::ListStaged { coldest_bytes, .. }] => *coldest_bytes,
            _ => None,
        }
    };
    assert_eq!(asked(None, 90 * MB), Some(60 * MB));
    assert_eq!(asked(Some(0), 90 * MB), Some(90 * MB));
    assert_eq!(asked(Some(0), 50 * MB), Some(20 * MB), "what moves when nobody waits ends at regular");
    assert_eq!(asked(Some(0), 30 * MB), None);
}

#[test]
fn the_window_bounds_what_is_under_way_and_a_failure_backs_off() {
    let mut migrator = with_usage(60 * MB);
    let mut actions = vec![];
    migrator.poll(Time::from_secs(1), || false, &mut actions);
    actions.clear();
    let entries: Vec<_> = (0..5).map(|v| entry(v, 9 * MB)).collect();
    migrator.page(Time::from_secs(1), Attempt(1), (&entries, true), &mut actions);
    assert_eq!(composed(&actions).len(), 5);
    assert!(!actions.iter().any(|a| matches!(a, Action::ListStaged { .. })), "the next page waits");
    assert_eq!(migrator.deadline(), Time::MAX);
    migrator.ended(Time::from_secs(2), OpId(MIGRATOR_OPS), true);
    migrator.ended(Time::from_secs(2), OpId(MIGRATOR_OPS + 1), false);
    actions.clear();
    migrator.poll(Time::from_secs(3), || false, &mut actions);
    assert!(actions.is_empty(), "after a failure the rack is left alone");
    migrator.poll(migrator.deadline(), || false, &mut actions);
    assert!(matches!(actions[..], [Action::ListStaged { restart: false, .. }]));
}

#[test]
fn what_fails_again_and_again_is_tried_less_and_less_often_and_a_success_ends_that() {
    let mut migrator = with_usage(60 * MB);
    let (mut now, mut attempt, mut op) = (Time::from_secs(1), 0, MIGRATOR_OPS);
    let mut pause_s = |migrator: &mut Migrator, outcomes: &[bool]| {
        attempt += 1;
        migrator.poll(now, || false, &mut vec![]);
        let entries: Vec<_> = (0..outcomes.len() as u64).map(|version| entry(version, 9 * MB)).collect();
        migrator.page(now, Attempt(attempt), (&entries, false), &mut vec![]);
        for well in outcomes {
            assert!(migrator.awaits(OpId(op)), "it was composed");
            migrator.ended(now, OpId(op), *well);
            op += 1;
        }
        let pause = migrator.deadline().since(now);
        now = migrator.deadline();
        pause.as_secs()
    };
    let pauses: Vec<u64> = (0..9).map(|_| pause_s(&mut migrator, &[false])).collect();
    assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600]);
    assert!(pause_s(&mut migrator, &[true]) < 30);
    assert_eq!(pause_s(&mut migrator, &[false, false, false]), 30, "they are one failure");
    assert_eq!(pause_s(&mut migrator, &[false]), 60);
    assert_eq!(pause_s(&mut migrator, &[false]), 120);
    assert_eq!(pause_s(&mut migrator, &[false]), 240);
    // A drive is there that was not.
    migrator.hasten(Time::from_secs(2));
    assert!(migrator.deadline() <= Time::from_secs(2) + policy().scan_interval);
}

#[test]
fn what_cannot_be_read_holds_nobody_up_and_is_composed_anew_a_few_times_at_most() {
    let mut migrator = with_usage(60 * MB);
    let mut actions = vec![];
    migrator.poll(Time::from_secs(1), || false, &mut actions);
    migrator.page(Time::from_secs(1), Attempt(1), (&[entry(1, 9 * MB)], false), &mut actions);
    let mut op = OpId(MIGRATOR_OPS);
    assert_eq!(migrator.group_of(op), None);
    for _ in 0..RECOMPOSED_MAX {
        let next = migrator.recompose(op, GroupId(3)).unwrap();
        assert!(!migrator.awaits(op) && migrator.awaits(next) && migrator.writes_under_way() == 1);
        assert_eq!(migrator.group_of(next), Some(GroupId(3)));
        migrator.ended(Time::from_secs(2), op, false);
        assert!(migrator.deadline() <= Time::from_secs(1) + policy().scan_interval, "nobody waits");
        op = next;
    }
    assert_eq!(migrator.recompose(op, GroupId(3)), None);
    migrator.ended(Time::from_secs(2), op, false);
    assert_eq!(migrator.deadline(), Time::from_secs(2) + BACKOFF);
}

#[test]
fn an_interval_of_nothing_still_lets_time_pass() {
    let mut migrator = Migrator::new(MigrationPolicy { scan_interval: Duration::ZERO, due_age: None, ..policy() });
    migrator.usage = Usage { staged_bytes: MB, capacity_bytes: 100 * MB };
    let now = Time::from_secs(1);
    migrator.poll(now, || false, &mut vec![]);
    assert!(migrator.deadline() > now);
}

#[test]
fn an_empty_workshop_needs_no_waking() {
    let mut migrator = with_usage(0);
    assert_eq!(migrator.deadline(), Time::MAX);
    let mut actions = vec![];
    migrator.poll(Time::from_secs(9), || false, &mut actions);
    assert!(actions.is_empty());
}
