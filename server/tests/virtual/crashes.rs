//! Crash torture: random histories, power that fails at a random step, and the server's own boot; safety first, then
//! liveness.

use crate::history::{Book, Weather, live};
use crate::site::{Ended, KIB, MIB, MINUTE, SECOND, Site};
use engine::IdleTimeout;
use model::Rng;
use std::time::Duration;

/// Seeds of a run of the tests, unless `LARDER_SEEDS` says how many.
const SEEDS: u64 = 160;

/// Crashes in one history.
const CRASHES: u64 = 4;

/// The traces of a history, to be compared with another one of the same seed.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    steps: u64,
    states: Vec<(String, Option<u64>)>,
    stacks: Vec<(usize, String)>,
}

fn site(rng: &mut Rng) -> Site {
    let mut site = Site::new(if rng.below(4) == 0 { "pelican-mini" } else { "nas8" });
    site.seed = rng.next_u64();
    site.max_wait = SECOND * [1, 20, 45][rng.below(3) as usize];
    site.workshop_bytes = [6 * MIB, 32 * MIB][rng.below(2) as usize];
    site.spool_bytes = [2 * MIB, 8 * MIB, 64 * MIB][rng.below(3) as usize];
    site.policy.idle_timeout = IdleTimeout::After(SECOND * rng.between(5, 300) as u32);
    site.policy.evacuate_permille = [300, 600, 1000][rng.below(3) as usize];
    site.policy.starts_per_day = 1000;
    let migration = &mut site.policy.migration;
    migration.pack_bytes = [200 * KIB, MIB, 4 * MIB][rng.below(3) as usize];
    migration.due_age = Some(SECOND * rng.between(5, 120) as u32);
    migration.min_age = SECOND * rng.below(5) as u32;
    site.unseen = rng.below(2) == 0;
    site.catalog = site.catalog.clone().with_delay(Duration::from_millis([0, 4, 40][rng.below(3) as usize]));
    site
}

fn torture(seed: u64) -> Left {
    println!("seed {seed}");
    let mut rng = Rng::for_thing(seed, 0);
    let mut site = site(&mut rng);
    let book = Book::default();
    let weather = if rng.below(2) == 0 { Weather::Fair } else { Weather::Foul };
    for round in 0..CRASHES {
        site.power.fail_in(rng.between(1, 6000));
        let history_seed = rng.next_u64();
        let facts = site.facts();
        let ended = site.boot_and(async |larder| {
            live(larder, (&facts, &book), history_seed, 40, weather).await;
        });
        if matches!(ended, Ended::Finished(())) && rng.below(2) == 0 {
            println!("round {round}: killed, not crashed");
            site.power.restore();
        } else {
            site.lose_power(&mut rng);
        }
        facts.heal();
        // Right after the boot, before anything else has had time to happen.
        if round % 2 == 0 {
            site.boot_and(async |larder| larder.audit(&facts).await);
        }
        site.run(async |larder| {
            book.complete_uploads(larder).await;
            book.hold_against(larder).await;
        });
    }
    let facts = site.facts();
    site.run(async |larder| {
        let mut watch = engine::uploads::StaleWatch::new(Duration::ZERO, None);
        larder.service.abort_stale(&mut watch, Duration::ZERO).await.unwrap();
        larder.settle().await;
        larder.audit(&facts).await;
        book.hold_against(larder).await;
        larder.until("asleep", 60 * MINUTE, async || larder.is_asleep().await).await;
    });
    let stacks = facts.stacks().into_iter().map(|stack| (stack.drive, stack.name.to_string())).collect();
    Left { steps: site.power.steps(), states: book.states(), stacks }
}

fn every(part: u64) {
    let seeds = std::env::var("LARDER_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    for seed in (0..seeds).filter(|seed| seed % 4 == part) {
        torture(seed);
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_crashes_1() {
    every(0);
}

#[test]
fn nothing_acknowledged_is_lost_by_crashes_2() {
    every(1);
}

#[test]
fn nothing_acknowledged_is_lost_by_crashes_3() {
    every(2);
}

#[test]
fn nothing_acknowledged_is_lost_by_crashes_4() {
    every(3);
}

#[test]
fn the_same_seed_has_the_same_outcome() {
    assert_eq!(torture(7), torture(7));
}
