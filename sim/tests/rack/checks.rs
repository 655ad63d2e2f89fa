//! Checks of the workshop with piggybacked migration in the simulator's world, by the trace of the requests.

use super::*;
use engine::staging::checks::{CheckPolicy, CheckState, LOAD_LIMIT_PERMILLE};
use engine::thermometer::{Rule, Temperature, Thermometer};
use engine::trace::{Record, TraceMessage};
use engine::{Action, CheckResult, Event};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

type Records = Rc<RefCell<Vec<Record>>>;

/// A box with a workshop of 10 GB that is checked once a day. Data older than an hour and larger than 10 KB is due, and
/// waits for a pass; all other data is hot.
fn world() -> (World, Records) {
    let spec = shipped("nas8");
    let mut policy = policy(&spec);
    let line = Rule { larger_than_bytes: Some(10_000), older_than: HOUR, ..Rule::default() };
    policy.migration.thermometer = Thermometer { rules: vec![line], default: Temperature::Hot };
    (policy.migration.due_age, policy.migration.due_with_checks) = (None, true);
    policy.checks = CheckPolicy { every: Some(DAY), memory_bytes: 256 * MB };
    let layout = engine::layout::synthesise(&spec).unwrap();
    let judge = Some(TraceCheck::new(&spec, &layout, &policy));
    let records = Records::default();
    let into = Rc::clone(&records);
    let recorder: Recorder = Box::new(move |record| into.borrow_mut().push(record));
    let setting = Setting { judge, recorder: Some(recorder), ..Setting::default() };
    let mut world = World::with(Rack::new(spec, layout, policy, 1), 1, setting);
    world.set_staging(10_000 * MB);
    (world, records)
}

/// The times at which each version was checked.
fn checked(records: &Records) -> BTreeMap<u64, Vec<Time>> {
    let mut checked: BTreeMap<u64, Vec<Time>> = BTreeMap::new();
    for record in records.borrow().iter() {
        if let TraceMessage::Event(Event::StagedChecked { entries, .. }) = &record.message {
            let read = entries.iter().filter(|entry| entry.result != CheckResult::Skipped);
            read.for_each(|read| checked.entry(read.entry.version).or_default().push(record.now));
        }
    }
    checked
}

/// Pages that were requested at or above the limit of the load, and all others; none of the former without need.
fn pages(records: &Records) -> (u32, u32) {
    let (mut load, mut pages) = (0, (0, 0));
    for record in records.borrow().iter() {
        match &record.message {
            TraceMessage::Event(
                Event::LoadMeasured { load_permille, .. } | Event::StagedChecked { load_permille, .. },
            ) => load = *load_permille,
            TraceMessage::Action(Action::CheckStaged { load_limit_permille, .. }) if load >= LOAD_LIMIT_PERMILLE => {
                assert_eq!(*load_limit_permille, None, "at {} clients come first", record.now);
                pages.0 += 1;
            }
            TraceMessage::Action(Action::CheckStaged { .. }) => pages.1 += 1,
            _ => {}
        }
    }
    pages
}

#[test]
fn every_version_is_checked_once_a_period_and_what_is_due_is_not_read_again() {
    let (mut world, records) = world();
    world.run_for(HOUR);
    for number in 0..3_000 {
        world.stage(number, if number % 3 == 0 { 10_000 } else { 400_000 }, PinnedTo::Anywhere);
    }
    world.run_for(22 * HOUR);
    assert_eq!(world.staging.versions().len(), 3_000, "what is due waits for a pass");
    world.run_for(3 * HOUR);
    assert_eq!(world.staging.versions().len(), 1_000);
    assert_eq!(world.saved_reads(), (2_000, 800 * MB), "nothing was read a second time");
    assert!(world.staging.versions().values().all(|version| version.bytes == 10_000), "what is hot stays");
    world.run_for(5 * DAY);
    for (version, times) in checked(&records) {
        let of_version = world.staging.versions().contains_key(&version);
        assert_eq!(times.len(), if of_version { 6 } else { 1 }, "version {version} at {times:?}");
        let spans = times.windows(2).map(|pair| pair[1].since(pair[0]));
        assert!(spans.map(|span| span.abs_diff(DAY)).all(|off| off < MINUTE), "{times:?}");
    }
    assert_eq!(pages(&records).0, 0);
    assert!(is_asleep(&world));
}

#[test]
fn clients_come_first_until_a_pass_is_overdue() {
    let (mut world, records) = world();
    let blob = with_blobs(&mut world, 1, 1_000 * MB)[0];
    for number in 0..100 {
        world.stage(number, MB, PinnedTo::Anywhere);
    }
    // From the end of the first period on, a client always reads.
    world.run_until(Time::ZERO + DAY - MINUTE);
    while world.now() < Time::ZERO + 2 * DAY + HOUR {
        while world.open_ops() < 20 {
            world.read(blob, 1_000 * MB);
        }
        world.run_for(Duration::from_secs(5));
        if world.now() < Time::ZERO + 2 * DAY - MINUTE {
            assert_ne!(world.rack.checks(world.now()).state, CheckState::Running);
        }
    }
    let times = checked(&records);
    assert!(times.values().all(|times| times.len() == 1 && times[0] >= Time::ZERO + 2 * DAY - MINUTE), "{times:?}");
    assert_eq!(pages(&records), (2, 1), "the overdue pass, and the first one, of nothing");
    world.run_for(DAY);
    let totals = world.rack.checks(world.now()).totals;
    assert_eq!((totals.overdue_pages, totals.passes), (2, 4), "the next two had quiet nights");
}

#[test]
fn a_damaged_version_is_found_by_the_pass_and_never_packed() {
    let (mut world, records) = world();
    world.run_for(HOUR);
    for number in 0..100 {
        world.stage(number, MB, PinnedTo::Anywhere);
    }
    for version in [3, 50] {
        world.staging.corrupt(version);
    }
    world.run_for(DAY);
    assert!(world.staging.quarantined().iter().eq([3, 50].iter()));
    assert!(world.staging.versions().keys().eq([3, 50].iter()), "all others are in the rack");
    assert_eq!(world.saved_reads(), (98, 98 * MB));
    let is_error = |record: &Record| matches!(record.message, TraceMessage::Event(Event::SourceUnreadable { .. }));
    assert!(!records.borrow().iter().any(is_error), "migration never met them");
    let progress = world.rack.checks(world.now()).progress;
    assert_eq!((progress.objects, progress.damaged), (100, 2));
}
