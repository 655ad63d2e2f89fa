//! The signs of a newer catalog, in all their combinations.

use super::*;
use alloc::format;
use std::string::ToString;

const START: RunStart = RunStart { nonce: 9, blobs_end: 30, slots_end: 20, sequence: 100 };

const STARTS: [PastRun; 2] =
    [PastRun { run: 7, sequence: 40, blobs_end: 10 }, PastRun { run: 8, sequence: 70, blobs_end: 20 }];
/// The start above, as it is remembered.
const THIS: PastRun = PastRun { run: 9, sequence: 100, blobs_end: 30 };

fn stamp(run: u64) -> RunStamp {
    RunStamp { run, is_aside: false }
}

fn used_last() -> Evidence {
    Evidence { runs: Some(vec![7, 8]), starts: STARTS.to_vec(), marked: [8].into(), ..Evidence::default() }
}

/// Every combination of signs, with the expected result: true if the catalog is older by them.
fn cases() -> Vec<(Evidence, bool)> {
    let mut all = Vec::new();
    for bits in 0..32_u32 {
        let is = |bit: u32| bits & (1 << bit) != 0;
        let evidence = Evidence {
            flaw: None,
            behind_log: is(0).then(|| "behind".to_string()),
            found_before: is(1).then(|| "found".to_string()),
            runs: (!is(2)).then(|| vec![7, 8]),
            starts: STARTS.to_vec(),
            adopted: if is(3) { vec![5] } else { Vec::new() },
            marked: if is(4) { [5].into() } else { [8].into() },
        };
        // The mark of an unknown run shows nothing where the record of runs is damaged, or the mark was adopted.
        let by_mark = is(4) && !is(2) && !is(3);
        all.push((evidence, is(0) || is(1) || by_mark));
    }
    all
}

#[test]
fn each_sign_of_a_newer_catalog_counts_unless_the_operator_consents() {
    for (evidence, is_older) in cases() {
        let mut lineage = Lineage::new(false);
        assert_eq!(lineage.is_newest(&evidence), !is_older, "{evidence:?}");
        let orders = lineage.begin(evidence.clone(), START);
        assert_eq!((lineage.older().is_some(), lineage.may_remove()), (is_older, !is_older), "{evidence:?}");
        let is_marked = orders.iter().any(|order| matches!(order, Order::MarkWorkshop(_)));
        assert_eq!(is_marked, !is_older, "the mark of the newer one stays: {evidence:?}");
        assert_eq!(orders.contains(&Order::LogAside(true)), is_older, "{evidence:?}");
        assert_eq!(lineage.stamp().is_aside, is_older);

        let mut accepted = Lineage::new(true);
        assert!(accepted.is_newest(&evidence));
        let orders = accepted.begin(evidence.clone(), START);
        assert!(accepted.older().is_none() && accepted.may_remove());
        assert_eq!(orders.contains(&Order::RememberOlder(None)), is_older, "{evidence:?}");
        assert_eq!(orders.last(), Some(&Order::MarkWorkshop(9)));
        assert!(orders.contains(&Order::RememberStarts(vec![THIS])), "{evidence:?}");
        // It may lack some of its earlier runs or records: nothing that those runs staged is garbage.
        assert!(orders.contains(&Order::RememberRuns(vec![9])), "{evidence:?}");
    }
}

#[test]
fn a_catalog_knows_a_run_before_the_workshop_is_marked_by_it() {
    let orders = Lineage::new(false).begin(used_last(), START);
    let starts = Order::RememberStarts([&STARTS[..], &[THIS]].concat());
    assert_eq!(orders, [starts, Order::RememberRuns(vec![7, 8, 9]), Order::MarkWorkshop(9)]);
    let many: Vec<u64> = (1..=RUNS_MAX as u64).collect();
    let [Order::KeepIntents, _, Order::RememberRuns(kept), _] = &Lineage::new(false)
        .begin(Evidence { runs: Some(many), ..Evidence::default() }, RunStart { nonce: 1000, ..START })[..]
    else {
        panic!("a new workshop is marked");
    };
    assert_eq!((kept.len(), kept[0], kept.last()), (RUNS_MAX, 2, Some(&1000)));
}

#[test]
fn what_is_begun_stays_unless_the_workshop_was_last_used_with_this_catalog() {
    let orders = |accepted, evidence| Lineage::new(accepted).begin(evidence, START);
    assert!(!orders(false, used_last()).contains(&Order::KeepIntents));
    let unproven = [
        Evidence { marked: BTreeSet::new(), ..used_last() },
        Evidence { runs: None, ..used_last() },
        Evidence { runs: Some(Vec::new()), adopted: vec![8], ..used_last() },
        Evidence { flaw: Some("a record is missing".into()), ..used_last() },
        Evidence { behind_log: Some("behind".into()), ..used_last() },
        Evidence { found_before: Some("found".into()), ..used_last() },
        Evidence { marked: [5].into(), ..used_last() },
    ];
    let consented = (true, Evidence { found_before: Some("found".into()), ..used_last() });
    for (accepted, evidence) in unproven.map(|evidence| (false, evidence)).into_iter().chain([consented]) {
        let orders = orders(accepted, evidence.clone());
        let at = |is: fn(&Order) -> bool| orders.iter().position(is);
        let kept = at(|order| matches!(order, Order::KeepIntents));
        let remembered = at(|order| matches!(order, Order::RememberOlder(None) | Order::RememberRuns(_)));
        assert!(kept.is_some() && kept < remembered, "before a crash leaves a proof: {evidence:?}, {orders:?}");
    }
}

#[test]
fn a_log_is_retained_for_a_catalog_with_missing_records() {
    let mut lineage = Lineage::new(false);
    let orders = lineage.begin(Evidence { flaw: Some("3 records are missing".into()), ..used_last() }, START);
    assert_eq!(orders[..2], [Order::RetainLog, Order::ReleaseLog]);
    assert!(!lineage.may_remove() && lineage.incomplete().is_some() && lineage.older().is_none());
    assert!(!Lineage::new(true).is_newest(&Evidence { flaw: Some(String::new()), ..used_last() }));
}

#[test]
fn what_is_found_later_is_remembered_once_and_marked_by_its_writer() {
    let mut lineage = Lineage::new(false);
    lineage.begin(used_last(), START);
    let why = format!("stack {} is newer", 3);
    let orders = lineage.found_newer(stamp(77), why.clone());
    let remember = Order::RememberOlder(Some(why.clone()));
    assert_eq!(orders, [Order::LogAside(true), Order::ReleaseLog, remember, Order::MarkWorkshop(77)]);
    assert_eq!((lineage.older(), lineage.may_remove()), (Some(&*why), false));
    assert!(lineage.found_newer(stamp(78), "another".into()).is_empty());
    let mut accepted = Lineage::new(true);
    accepted.begin(used_last(), START);
    assert!(accepted.found_newer(stamp(77), why).is_empty() && accepted.may_remove());
}

#[test]
fn only_what_a_later_batch_of_another_run_wrote_is_a_sign() {
    let mut lineage = Lineage::new(false);
    lineage.begin(used_last(), START);
    assert!(lineage.is_newer(stamp(77), 101));
    assert!(!lineage.is_newer(stamp(77), 100), "the catalog was further");
    assert!(!lineage.is_newer(stamp(9), 101), "this run's own");
    assert!(!lineage.is_newer(RunStamp { is_aside: true, ..stamp(77) }, 101));
}

#[test]
fn a_run_wrote_nothing_after_the_next_one_began_unless_the_server_was_set_back() {
    let mut lineage = Lineage::new(false);
    lineage.begin(used_last(), START);
    assert!(!lineage.is_newer(stamp(7), 70) && !lineage.is_newer(stamp(8), 100));
    // The next run began at 70: the catalog in which run 7 got to 71 is not this one.
    assert!(lineage.is_newer(stamp(7), 71) && lineage.is_newer(stamp(8), 101));
    assert!(!lineage.is_newer(RunStamp { is_aside: true, ..stamp(7) }, 71));
    assert_eq!(lineage.blobs_compared_from(), 10);
    // After the operator's consent nothing of the earlier runs is a sign.
    let mut accepted = Lineage::new(true);
    accepted.begin(used_last(), START);
    assert!(!accepted.is_newer(stamp(7), 71));
    assert_eq!(accepted.blobs_compared_from(), 30);
}

#[test]
fn only_what_a_run_before_the_last_left_is_garbage() {
    let mut lineage = Lineage::new(false);
    lineage.begin(used_last(), START);
    for (run, garbage) in [(1, true), (2, true), (3, false), (4, false)] {
        assert_eq!(lineage.is_garbage(Some(stamp(run)), &[1, 2, 3]), garbage, "run {run}");
    }
    assert!(!lineage.is_garbage(Some(stamp(1)), &[]) && !lineage.is_garbage(None, &[1, 2, 3]));
    assert!(lineage.may_free(1));
    lineage.found_newer(stamp(77), "a test".into());
    assert!(!lineage.is_garbage(Some(stamp(1)), &[1, 2, 3]));
    assert!(!lineage.may_free(19) && lineage.may_free(20), "what this run staged is its own");
}

#[test]
fn drives_are_looked_at_once_and_not_before_a_run_begins() {
    let mut lineage = Lineage::new(false);
    assert!(!lineage.is_first_look(DriveId(1)));
    lineage.begin(used_last(), START);
    assert!(lineage.is_first_look(DriveId(1)) && !lineage.is_first_look(DriveId(1)));
    lineage.look_again(DriveId(1));
    assert!(lineage.is_first_look(DriveId(1)));
}
