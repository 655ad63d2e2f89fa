//! A client with one operation after the other, beside one that wants another group of the class.

use super::*;
use engine::PriorityClass;

/// Reads one blob after another in the background while clients want another group of the class. Returns the number of
/// background reads per wake for them, and the clients' wait for their first read.
fn beside_clients(anticipation: Duration) -> (f64, Duration) {
    let mut world = world_of("pelican-mini", 5, |policy| {
        policy.scheduler.anticipation = anticipation;
        policy.starts_per_day = 10_000;
    });
    let blobs = with_blobs(&mut world, 400, 10 * MB);
    let layout = world.rack.layout().clone();
    let group_of: std::collections::BTreeMap<BlobId, GroupId> = world.blobs.iter().collect();
    let of = |group: GroupId| blobs.iter().copied().filter(|blob| group_of[blob] == group).collect::<Vec<_>>();
    let (theirs, ours) = (of(layout.classes[0][0]), of(layout.classes[0][1]));
    assert!(theirs.len() > 3 && ours.len() > 3, "either group has blobs");
    let wakes_before = world.rack.stats().group_wakes[PriorityClass::Background as usize];
    let (mut done, mut next, mut waited) = (0, 0, Duration::ZERO);
    let mut background = world.read_for(PriorityClass::Background, ours[0], 10 * MB).unwrap();
    world.run_for(MINUTE);
    let asked_at = world.now();
    let mut client = world.read(theirs[0], 10 * MB).unwrap();
    let end = world.now() + 60 * MINUTE;
    while world.now() < end {
        world.run_for(Duration::from_millis(500));
        let now = world.now();
        for ended in world.take_ended() {
            assert_eq!(ended.outcome, Outcome::Read);
            next += 1;
            if ended.op == background {
                done += 1;
                background = world.read_for(PriorityClass::Background, ours[next % ours.len()], 10 * MB).unwrap();
            } else if ended.op == client {
                waited = if waited.is_zero() { now.since(asked_at) } else { waited };
                client = world.read(theirs[next % theirs.len()], 10 * MB).unwrap();
            }
        }
    }
    let wakes = world.rack.stats().group_wakes[PriorityClass::Background as usize] - wakes_before;
    (f64::from(done) / wakes as f64, waited)
}

#[test]
fn one_read_after_another_does_not_cost_a_wake_each() {
    let (alone, _) = beside_clients(Duration::ZERO);
    let (gathered, waited) = beside_clients(Duration::from_secs(2));
    assert!(alone < 2.0, "without anticipation there are {alone:.1} reads for each wake");
    assert!(gathered > 10.0 * alone, "with it {gathered:.1}, without {alone:.1}");
    assert!(waited < 3 * MINUTE, "a turn ends all the same: {waited:?}");
}
