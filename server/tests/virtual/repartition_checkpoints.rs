//! Jobs that resume from their checkpoints: power fails at any step, the input changes meanwhile, and no work that a
//! checkpoint records is done twice.

use crate::repartition::{
    asleep_and_sound, assert_input, assert_input_is, assert_partitioned, fill, finished, hidden, hidden_versions,
    is_over, jobs, request, work_off,
};
use crate::site::{BUCKET, Ended, HOUR, Larder, MIB, MINUTE, SECOND, Site};
use catalog::VersionId;
use model::Rng;
use s3::store::ObjectStore;
use serde_json::Value;
use server::repartition::Request;
use std::collections::BTreeSet;

const FILES: u64 = 8;
const ROWS: u64 = 8_000;

/// A rack whose jobs write a checkpoint every ten seconds.
fn site() -> Site {
    let mut site = Site::nas8();
    site.policy.checkpoint_interval = 10 * SECOND;
    site.policy.starts_per_day = 1_000;
    site
}

fn asked(strategy: Option<&str>) -> Request {
    Request { memory_bytes: MIB, strategy: strategy.map(str::to_owned), ..request("hash(name)", 4) }
}

/// The checkpoint of the only job, as it is in the catalog: its serial number, and its state.
async fn checkpoint(larder: &Larder) -> Option<(u64, Value)> {
    let found = larder.context.catalog.checkpoint(1).await.unwrap()?;
    Some((found.serial, serde_json::from_str(&found.state).unwrap()))
}

fn number(state: &Value, of: &str) -> u64 {
    state.pointer(of).and_then(Value::as_u64).unwrap()
}

/// Runs a job until its checkpoint counts at least `input_bytes` of input as read, and then cuts the power.
fn interrupted(site: &mut Site, asked: &Request, input_bytes: u64) -> (BTreeSet<String>, BTreeSet<VersionId>, Value) {
    let ended = site.boot_and(async |larder| {
        let rows = fill(larder, FILES, ROWS).await;
        let jobs = jobs(larder).await;
        jobs.ask(asked.clone()).await.unwrap();
        let mut last = Value::Null;
        larder
            .until("a checkpoint", HOUR, async || {
                let Some((_, state)) = checkpoint(larder).await else { return false };
                last = state;
                number(&last, "/progress/input_bytes") >= input_bytes
            })
            .await;
        (rows, hidden_versions(larder).await, last)
    });
    let Ended::Finished(found) = ended else { panic!("power did not fail") };
    site.lose_power(&mut Rng::new(5));
    found
}

#[test]
fn a_job_goes_on_from_its_checkpoint_and_reads_nothing_twice_that_it_knows() {
    for strategy in [Some("buffpack"), Some("offpack"), Some("tourpack"), None] {
        let mut site = site();
        let facts = site.facts();
        let (rows, left, state) = interrupted(&mut site, &asked(strategy), 2 * MIB);
        site.run(async |larder| {
            let jobs = jobs(larder).await;
            larder.until("it works", HOUR, async || jobs.show(1).await.unwrap().progress.is_some()).await;
            let kept = hidden_versions(larder).await;
            let below = VersionId(number(&state, "/objects_below"));
            assert!(kept.iter().any(|version| *version < below && left.contains(version)), "what it wrote is there");
            let report = is_over(&jobs, 1).await;
            assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
            let (outcome, input) = (report.outcome.unwrap(), report.plan.unwrap().input_bytes);
            let open = state["open"].as_array().unwrap().len() as u64;
            println!("{strategy:?}: {} of {input} read, {open} objects anew; {outcome:?}", outcome.input_bytes);
            // Of the input read before the checkpoint only the beginning of open objects is read again.
            assert!(outcome.input_bytes >= input, "all of it was read");
            assert!(outcome.input_bytes <= input + open * input.div_ceil(FILES), "{open} objects were open");
            assert!(open <= 2, "one in a group");
            assert!(outcome.checkpoints > 0 && outcome.rows == rows.len() as u64, "{outcome:?}");
            assert_eq!((outcome.input_objects, outcome.lost_objects), (FILES, 0));
            assert_eq!((hidden(larder).await, checkpoint(larder).await), (0, None), "nothing is left of it");
            assert_partitioned(larder, &rows, 4).await;
            assert_input(larder, FILES, ROWS).await;
            asleep_and_sound(larder, &facts).await;
        });
    }
}

#[test]
fn input_that_is_deleted_meanwhile_is_in_the_output_as_a_whole_or_not_at_all() {
    for open in [false, true] {
        let mut site = site();
        let (mut rows, _, state) = interrupted(&mut site, &asked(Some("buffpack")), 2 * MIB);
        site.run(async |larder| {
            let read = larder.context.catalog.checkpoint_inputs(1, number(&state, "/inputs_read")).await.unwrap();
            let versions: Vec<u64> = state["open"].as_array().unwrap().iter().map(|o| o[0].as_u64().unwrap()).collect();
            let mut gone = None;
            for file in 0..FILES {
                let key = format!("in/{file:03}.csv");
                let version = larder.service.head(BUCKET, &key).await.unwrap().version;
                let is_read = read.iter().any(|(known, _)| *known == version);
                if (open && versions.contains(&version.0)) || (!open && is_read) {
                    larder.delete(&key).await;
                    gone = Some(file);
                    break;
                }
            }
            let Some(gone) = gone else { panic!("no object was {}", if open { "open" } else { "read" }) };
            if open {
                rows.retain(|row| row.split(',').next().unwrap().parse::<u64>().unwrap() / 1_000_000 != gone);
            }
            let jobs = jobs(larder).await;
            let report = is_over(&jobs, 1).await;
            assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
            let outcome = report.outcome.unwrap();
            assert_eq!((outcome.rows, outcome.lost_objects), (rows.len() as u64, 0), "open {open}");
            assert_partitioned(larder, &rows, 4).await;
        });
    }
}

#[test]
fn a_paused_job_keeps_its_checkpoint_over_a_crash() {
    let mut site = site();
    let facts = site.facts();
    let mut rows = BTreeSet::new();
    site.boot_and(async |larder| {
        rows = fill(larder, FILES, ROWS).await;
        let jobs = jobs(larder).await;
        jobs.ask(asked(Some("offpack"))).await.unwrap();
        larder.until("a checkpoint", HOUR, async || checkpoint(larder).await.is_some()).await;
        jobs.pause(1).await.unwrap();
        tokio::time::sleep(MINUTE).await;
    });
    site.lose_power(&mut Rng::new(3));
    site.run(async |larder| {
        let jobs = jobs(larder).await;
        tokio::time::sleep(MINUTE).await;
        assert_eq!(jobs.show(1).await.unwrap().state, "paused");
        assert!(checkpoint(larder).await.is_some() && hidden(larder).await > 0, "what it counts on is there");
        jobs.resume(1).await.unwrap();
        assert_eq!(is_over(&jobs, 1).await.state, "done");
        assert_partitioned(larder, &rows, 4).await;
        asleep_and_sound(larder, &facts).await;
    });
    let mut site = self::site();
    let facts = site.facts();
    interrupted(&mut site, &asked(Some("offpack")), 2 * MIB);
    site.run(async |larder| {
        let jobs = jobs(larder).await;
        jobs.cancel(1).await.unwrap();
        assert_eq!(is_over(&jobs, 1).await.state, "cancelled");
        assert_eq!((hidden(larder).await, checkpoint(larder).await), (0, None));
        assert_input(larder, FILES, ROWS).await;
        asleep_and_sound(larder, &facts).await;
    });
}

/// Power fails at any step, again and again: everything that the last checkpoint refers to is still there, and in the
/// end the output is whole.
fn crash(seed: u64) -> u64 {
    let mut rng = Rng::for_thing(seed, 78);
    let large = rng.below(6) == 0;
    let mut site = if large { Site::new("pelican-mini") } else { Site::nas8() };
    site.seed = seed;
    site.policy.starts_per_day = 1_000;
    site.policy.checkpoint_interval = rng.between(1, 40) as u32 * SECOND;
    let strategies = [None, Some("buffpack"), Some("offpack"), Some("tourpack"), Some("baseline")];
    let strategy = strategies[rng.below(5) as usize];
    let (by, partitions) = [("hash(name)", 4), ("range(name, \"u3\", \"u6\", \"u8\")", 0)][rng.below(2) as usize];
    let (files, count) = if large { (12, 12_000) } else { (FILES, ROWS) };
    let memory_bytes = if large { 4 * MIB } else { MIB };
    let remove_input = rng.below(2) == 0;
    let facts = site.facts();
    let rows = site.run(async |larder| fill(larder, files, count).await);
    let strategy = strategy.map(str::to_owned);
    let mut asked = Some(Request { memory_bytes, strategy, remove_input, ..request(by, partitions) });
    for _ in 0..4 {
        site.power.fail_in(rng.between(100, 2_000));
        let ended = site.boot_and(async |larder| work_off(larder, asked.as_ref()).await);
        if matches!(ended, Ended::Finished(())) {
            site.power.restore();
        }
        site.lose_power(&mut rng);
        site.boot_and(async |larder| {
            if larder.context.catalog.jobs().await.unwrap().is_empty() {
                return;
            }
            asked = None;
            let below = checkpoint(larder).await.map_or(0, |(_, state)| number(&state, "/objects_below"));
            let behind: BTreeSet<VersionId> =
                hidden_versions(larder).await.into_iter().filter(|version| version.0 >= below).collect();
            let _jobs = jobs(larder).await;
            let gone = async || hidden_versions(larder).await.is_disjoint(&behind);
            larder.until("what lies behind the checkpoint is removed", 10 * MINUTE, gone).await;
        });
    }
    site.run(async |larder| {
        let report = Box::pin(finished(larder, asked, seed)).await;
        assert_eq!(checkpoint(larder).await, None, "seed {seed}");
        assert_partitioned(larder, &rows, 4).await;
        assert_input_is(!remove_input, larder, files, count).await;
        asleep_and_sound(larder, &facts).await;
        let outcome = report.outcome.unwrap();
        println!("seed {seed}: {} checkpoints, {} read", outcome.checkpoints, outcome.input_bytes);
        outcome.checkpoints
    })
}

#[test]
fn a_crash_at_any_step_leaves_what_the_last_checkpoint_counts_on() {
    let seeds = std::env::var("LARDER_SEEDS").map_or(12, |seeds| seeds.parse().unwrap());
    let checkpoints: u64 = (0..seeds).map(crash).sum();
    assert!(checkpoints > seeds, "{checkpoints} checkpoints in {seeds} histories");
}
