//! Plans against a naive one, and windows.

#![allow(clippy::unwrap_used)]

use super::*;
use alloc::collections::BTreeSet;
use alloc::vec;
use model::Rng;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn scan_of(asks: u32) -> Scan {
    let mut scan = Scan::default();
    for nth in 0..asks {
        scan.asked(Duration::from_secs(u64::from(nth)), Ordering::Greater);
    }
    scan
}

fn feedback(used_bytes: u64, wasted_bytes: u64) -> Feedback {
    Feedback { used_bytes, wasted_bytes }
}

#[test]
fn one_object_is_worth_little_and_a_scan_its_share() {
    let window = |asks| scan_of(asks).window_bytes(1_000 * MIB, Feedback::default()) / MIB;
    assert_eq!((window(1), window(3), window(4), window(4_000)), (60, 60, 750, 750));
}

#[test]
fn the_same_object_again_is_no_evidence() {
    let mut scan = scan_of(1);
    for _ in 0..100 {
        scan.asked(Duration::from_secs(1), Ordering::Equal);
    }
    assert_eq!(scan.window_bytes(1_000, Feedback::default()), 60);
}

#[test]
fn a_scan_that_rested_begins_anew() {
    let mut scan = scan_of(100);
    scan.asked(scan.last() + MEMORY, Ordering::Greater);
    assert_eq!(scan.window_bytes(1_000, Feedback::default()), 750);
    scan.asked(scan.last() + MEMORY + Duration::from_secs(1), Ordering::Greater);
    assert_eq!(scan.window_bytes(1_000, Feedback::default()), 60);
}

#[test]
fn who_takes_nothing_is_read_less_and_less_and_who_takes_everything_the_share() {
    let scan = scan_of(10);
    let window = |used, wasted| scan.window_bytes(GIB, feedback(used, wasted));
    let share = window(0, 0);
    assert_eq!(window(100 * GIB, 0), share);
    assert!(window(0, GIB) < share / 4);
    assert!(window(0, 1_000 * GIB) < share / 1_000);
    assert_eq!(window(0, u64::MAX), 0);
    assert!((1..60).all(|shift| window(0, 1 << shift) >= window(0, 2 << shift)), "waste never widens it");
    assert!((1..60).all(|shift| window(1 << shift, GIB) <= window(2 << shift, GIB)), "use never narrows it");
    assert!(window(u64::MAX, u64::MAX) <= share);
}

#[test]
fn only_a_reader_out_of_order_is_given_what_lies_before() {
    let mut scan = scan_of(100);
    assert!(!scan.wraps());
    let mut rng = Rng::new(1);
    for _ in 0..100 {
        // Ten at once, in order but for their neighbours.
        let step = if rng.below(10) == 0 { Ordering::Less } else { Ordering::Greater };
        scan.asked(scan.last(), step);
    }
    assert!(!scan.wraps());
    for _ in 0..100 {
        scan.asked(scan.last(), if rng.below(2) == 0 { Ordering::Less } else { Ordering::Greater });
    }
    assert!(scan.wraps());
}

#[test]
fn the_room_is_what_nobody_uses_and_no_more_than_the_share() {
    let room = |free_bytes, unread_bytes| AheadSpool { capacity_bytes: 1_000, free_bytes, unread_bytes }.room_bytes();
    assert_eq!((room(1_000, 0), room(100, 0), room(1_000, 700), room(1_000, 800)), (750, 100, 50, 0));
}

#[test]
fn the_end_of_a_long_file_is_no_beginning_of_a_copy() {
    assert!(may_be_scan(1, 1) && may_be_scan(8 * MIB, GIB) && may_be_scan(0, 0));
    assert!(!may_be_scan(64 << 10, GIB) && !may_be_scan(1, 2));
}

/// The expected reads of a plan, stripe by stripe: all stripes of the objects in the window in the group, in key order,
/// as long as there is room.
fn naive(
    group: GroupId,
    (mut window, mut room): (u64, u64),
    candidates: &[Candidate],
    here: &BTreeSet<(BlobId, u64)>,
) -> BTreeSet<(BlobId, u64)> {
    let mut picked = BTreeSet::new();
    for candidate in candidates {
        let Some(cold) = candidate.cold.filter(|_| candidate.bytes > 0) else { continue };
        if candidate.bytes > window {
            break;
        }
        window -= candidate.bytes;
        if cold.group != group {
            continue;
        }
        let stripes = cold.offset / cold.stripe_bytes..=(cold.offset + candidate.bytes - 1) / cold.stripe_bytes;
        for start in stripes.map(|stripe| stripe * cold.stripe_bytes) {
            let bytes = cold.stripe_bytes.min(cold.payload_bytes - start);
            if picked.contains(&(cold.blob, start)) || here.contains(&(cold.blob, start)) {
                continue;
            }
            if bytes > room {
                return picked;
            }
            room -= bytes;
            picked.insert((cold.blob, start));
        }
    }
    picked
}

fn random_candidates(rng: &mut Rng) -> Vec<Candidate> {
    let blobs: Vec<(u64, u64)> = (0..6).map(|_| (1 + rng.below(40), rng.below(3))).collect();
    (0..rng.below(60))
        .map(|_| {
            let number = rng.below(6);
            let (stripe_bytes, group) = blobs[number as usize];
            let payload_bytes = 500 + number;
            let offset = rng.below(payload_bytes);
            let bytes = rng.below((payload_bytes - offset).min(90) + 1);
            let blob = BlobId::numbered(number);
            let place = ColdPlace { group: GroupId(group as u32), blob, offset, stripe_bytes, payload_bytes };
            Candidate { bytes, cold: (rng.below(5) > 0).then_some(place) }
        })
        .collect()
}

#[test]
fn a_plan_is_the_naive_one() {
    for seed in 0..2_000 {
        let mut rng = Rng::new(seed);
        let candidates = random_candidates(&mut rng);
        let (window, room) = (rng.below(3_000), rng.below(1_500));
        let cold = candidates.iter().filter_map(|candidate| candidate.cold);
        let here: BTreeSet<(BlobId, u64)> = cold
            .filter(|_| rng.below(4) == 0)
            .map(|cold| (cold.blob, cold.offset - cold.offset % cold.stripe_bytes))
            .collect();
        let stripe_of = |blob: BlobId, at: u64| {
            let place =
                candidates.iter().filter_map(|candidate| candidate.cold).find(|cold| cold.blob == blob).unwrap();
            at - at % place.stripe_bytes
        };
        let mut plan = Plan::new(GroupId(1), window, room);
        for candidate in &candidates {
            if plan.offer(candidate, |blob, at| here.contains(&(blob, stripe_of(blob, at)))).is_break() {
                break;
            }
        }
        let reads = plan.into_reads(64 * 100);
        let mut read = BTreeSet::new();
        for AheadRead { blob, stripe_bytes, range, wanted_bytes, .. } in &reads {
            assert!(*wanted_bytes > 0 && *wanted_bytes <= range.end - range.start, "seed {seed}");
            assert!(range.end - range.start <= 100.max(*stripe_bytes), "seed {seed}: {range:?} is too long");
            let mut at = range.start;
            while at < range.end {
                assert!(read.insert((*blob, at)), "seed {seed}: {at} of {blob} is read once");
                at += stripe_bytes;
            }
        }
        assert_eq!(read, naive(GroupId(1), (window, room), &candidates, &here), "seed {seed}");
        assert!(reads.windows(2).all(|pair| (pair[0].blob, pair[0].range.end) <= (pair[1].blob, pair[1].range.start)));
    }
}

#[test]
fn neighbours_are_one_read_that_counts_each_object_once() {
    let mut plan = Plan::new(GroupId(0), GIB, GIB);
    let at = |offset, bytes| Candidate {
        bytes,
        cold: Some(ColdPlace {
            group: GroupId(0),
            blob: BlobId::numbered(1),
            offset,
            stripe_bytes: MIB,
            payload_bytes: 10 * MIB,
        }),
    };
    for candidate in [at(0, 10), at(10, 3 * MIB), at(9 * MIB, MIB)] {
        assert!(plan.offer(&candidate, |_, _| false).is_continue());
    }
    let blob = BlobId::numbered(1);
    let read =
        |range: Range<u64>, wanted_bytes, objects| AheadRead { blob, stripe_bytes: MIB, range, wanted_bytes, objects };
    let expected = vec![read(0..4 * MIB, 3 * MIB + 10, 2), read(9 * MIB..10 * MIB, MIB, 1)];
    assert_eq!(plan.into_reads(GIB), expected);
}

#[test]
fn an_object_lies_in_the_stripes_that_its_bytes_touch() {
    let stripes = |offset, bytes| {
        let (group, blob) = (GroupId(0), BlobId::numbered(1));
        let place = ColdPlace { group, blob, offset, stripe_bytes: 10, payload_bytes: 95 };
        place.stripes(bytes).collect::<Vec<_>>()
    };
    assert!(stripes(5, 0).is_empty());
    assert_eq!(stripes(10, 10), [10_u64]);
    assert_eq!(stripes(19, 2), [10, 20]);
    assert_eq!(stripes(85, 1_000), [80, 90]);
}

#[test]
fn a_plan_looks_at_so_many_objects() {
    let mut plan = Plan::new(GroupId(0), GIB, GIB);
    let warm = Candidate { bytes: 1, cold: None };
    assert!((0..PLAN_OBJECTS_MAX).all(|_| plan.offer(&warm, |_, _| false).is_continue()));
    assert!(plan.offer(&warm, |_, _| false).is_break());
}
