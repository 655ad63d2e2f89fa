//! Repartition jobs under their users' commands: pause, resume and cancel in every state, over restarts, and outputs
//! that cannot be published.

use crate::repartition::{
    asleep_and_sound, assert_input, assert_partitioned, fill, hidden, is_over, jobs, put_bytes, request,
};
use crate::site::{HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site};
use model::Rng;
use server::repartition::{Repartitions, Request};
use std::collections::BTreeSet;

const FILES: u64 = 6;
const ROWS: u64 = 4_000;

async fn out_keys(larder: &Larder) -> Vec<String> {
    larder.keys().await.into_iter().filter(|key| key.starts_with("out/")).collect()
}

/// A job whose output cannot be published, since another object is in its way.
async fn obstructed(larder: &Larder, request: Request) -> (Repartitions, u64) {
    let jobs = jobs(larder).await;
    let job = jobs.ask(request).await.unwrap().job;
    put_bytes(larder, "out/part-00001/00000.csv", b"mine".to_vec()).await;
    let report = is_over(&jobs, job).await;
    assert_eq!((report.state.as_str(), report.ended_ms), ("publishing", None));
    for says in ["not published to s3://shelf/out/", "resume 1", "cancel 1"] {
        assert!(report.reason.contains(says), "{}", report.reason);
    }
    assert_eq!(out_keys(larder).await, ["out/part-00001/00000.csv"], "nothing of it is visible");
    (jobs, job)
}

#[test]
fn what_stands_in_the_way_of_an_output_is_removed_and_then_it_is_published() {
    for (restarts, remove_input) in [(false, false), (true, false), (true, true)] {
        let mut site = Site::nas8();
        let facts = site.facts();
        let request = Request { remove_input, ..request("hash(name)", 3) };
        let rows = site.run(async |larder| {
            let rows = fill(larder, FILES, ROWS).await;
            let (jobs, job) = obstructed(larder, request.clone()).await;
            let again = jobs.resume(job).await.unwrap();
            assert!(again.state == "publishing" && !again.reason.is_empty(), "still in the way: {}", again.reason);
            assert!(jobs.pause(job).await.unwrap_err().to_string().contains("is publishing"));
            if !restarts {
                larder.delete("out/part-00001/00000.csv").await;
                assert_eq!(jobs.resume(job).await.unwrap().state, "done");
            }
            rows
        });
        if restarts {
            site.boot_and(async |larder| {
                let jobs = jobs(larder).await;
                assert_eq!(jobs.show(1).await.unwrap().state, "publishing", "a restart tries, and goes on without");
                assert_input(larder, FILES, ROWS).await;
            });
            site.lose_power(&mut Rng::new(7));
        }
        site.run(async |larder| {
            if restarts {
                larder.delete("out/part-00001/00000.csv").await;
            }
            let jobs = jobs(larder).await;
            let report = is_over(&jobs, 1).await;
            assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
            assert_partitioned(larder, &rows, 3).await;
            assert_eq!(hidden(larder).await, 0);
            if remove_input {
                assert_eq!(out_keys(larder).await, larder.keys().await);
            } else {
                assert_input(larder, FILES, ROWS).await;
            }
            asleep_and_sound(larder, &facts).await;
        });
    }
}

#[test]
fn an_output_that_cannot_be_published_can_be_given_up() {
    let mut site = Site::nas8();
    site.policy.migration.pack_bytes = 400 * KIB; // the input is in both groups
    let facts = site.facts();
    let before = site.run(async |larder| {
        fill(larder, FILES, ROWS).await;
        let before = facts.media_bytes();
        let (jobs, job) = obstructed(larder, request("hash(name)", 3)).await;
        assert_eq!(jobs.cancel(job).await.unwrap().state, "cancelled");
        assert!(jobs.resume(job).await.unwrap_err().to_string().contains("is cancelled"));
        assert_eq!((hidden(larder).await, out_keys(larder).await.len()), (0, 1));
        larder.delete("out/part-00001/00000.csv").await;
        before
    });
    // A restart forgets the spool, so that reading wakes the groups.
    site.run(async |larder| {
        assert_input(larder, FILES, ROWS).await;
        larder.until("what was written is given back", HOUR, async || facts.media_bytes() == before).await;
        asleep_and_sound(larder, &facts).await;
    });
}

/// Power fails at any step while an output is discarded: it is whole or gone.
fn given_up_and_crashed(seed: u64) {
    let mut rng = Rng::for_thing(seed, 601);
    let mut site = Site::nas8();
    let facts = site.facts();
    let rows = site.run(async |larder| {
        let rows = fill(larder, 3, 2_000).await;
        obstructed(larder, request("hash(name)", 3)).await;
        rows
    });
    site.power.fail_in(rng.between(1, 30));
    site.boot_and(async |larder| {
        let jobs = jobs(larder).await;
        let _ = jobs.cancel(1).await;
        tokio::time::sleep(SECOND).await;
    });
    site.lose_power(&mut rng);
    site.run(async |larder| {
        larder.delete("out/part-00001/00000.csv").await;
        let jobs = jobs(larder).await;
        tokio::time::sleep(SECOND).await; // a rollback runs in the background
        let state = jobs.show(1).await.unwrap().state;
        println!("seed {seed}: {state}");
        match state.as_str() {
            "done" => assert_partitioned(larder, &rows, 3).await,
            "paused" => assert_eq!(jobs.cancel(1).await.unwrap().state, "cancelled"),
            state => assert_eq!(state, "cancelled"),
        }
        assert_eq!(hidden(larder).await, 0);
        assert_input(larder, 3, 2_000).await;
        asleep_and_sound(larder, &facts).await;
    });
}

#[test]
fn a_crash_while_an_output_is_given_up_leaves_it_whole_or_gone() {
    let seeds = std::env::var("LARDER_SEEDS").map_or(16, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        given_up_and_crashed(seed);
    }
}

#[test]
fn a_job_stays_paused_over_a_crash_and_goes_on_when_it_is_told_to() {
    let mut site = Site::nas8();
    let facts = site.facts();
    let mut rows = BTreeSet::new();
    site.boot_and(async |larder| {
        rows = fill(larder, FILES, ROWS).await;
        let jobs = jobs(larder).await;
        let job = jobs.ask(Request { memory_bytes: MIB, ..request("hash(name)", 3) }).await.unwrap().job;
        larder.until("something is written", HOUR, async || hidden(larder).await > 0).await;
        assert_eq!(jobs.pause(job).await.unwrap().state, "paused");
        tokio::time::sleep(HOUR).await;
        assert!(hidden(larder).await > 0, "it had written something");
    });
    site.lose_power(&mut Rng::new(3));
    site.run(async |larder| {
        let jobs = jobs(larder).await;
        tokio::time::sleep(SECOND).await;
        assert_eq!((jobs.show(1).await.unwrap().state.as_str(), hidden(larder).await), ("paused", 0));
        let other = jobs.ask(Request { to: place("other"), ..request("hash(name)", 2) }).await.unwrap().job;
        assert_eq!(is_over(&jobs, other).await.state, "done", "a paused job that has nothing holds up nobody");
        assert_eq!(jobs.show(1).await.unwrap().state, "paused");
        jobs.resume(1).await.unwrap();
        let report = is_over(&jobs, 1).await;
        assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
        assert_partitioned(larder, &rows, 3).await;
        assert_input(larder, FILES, ROWS).await;
        asleep_and_sound(larder, &facts).await;
    });
}

fn place(prefix: &str) -> server::repartition::Place {
    server::repartition::Place { bucket: crate::site::BUCKET.into(), prefix: prefix.into() }
}

#[test]
fn a_job_is_cancelled_in_every_state_before_it_is_published() {
    let mut site = Site::nas8();
    let (facts, power) = (site.facts(), site.power.clone());
    site.run(async |larder| {
        fill(larder, FILES, ROWS).await;
        let jobs = jobs(larder).await;
        let ask = async |prefix: &str| {
            let request = Request { to: place(prefix), memory_bytes: MIB, ..request("hash(name)", 3) };
            jobs.ask(request).await.unwrap().job
        };
        let (works, waits) = (ask("out").await, ask("waits").await);
        power.after(150).await;
        assert_eq!(jobs.show(works).await.unwrap().state, "running");
        assert_eq!(jobs.cancel(waits).await.unwrap().state, "cancelling");
        assert_eq!(is_over(&jobs, waits).await.state, "cancelled");
        assert!(jobs.pause(waits).await.unwrap_err().to_string().contains("is cancelled"));
        assert_eq!(jobs.cancel(works).await.unwrap().state, "cancelling");
        assert_eq!(is_over(&jobs, works).await.state, "cancelled");
        let paused = ask("out").await;
        power.after(150).await;
        jobs.pause(paused).await.unwrap();
        tokio::time::sleep(HOUR).await;
        jobs.cancel(paused).await.unwrap();
        assert_eq!(is_over(&jobs, paused).await.state, "cancelled");
        let never_begun = ask("out").await;
        jobs.cancel(never_begun).await.unwrap();
        assert_eq!(is_over(&jobs, never_begun).await.state, "cancelled");
        assert_eq!((hidden(larder).await, out_keys(larder).await.len()), (0, 0));
        assert_input(larder, FILES, ROWS).await;
        asleep_and_sound(larder, &facts).await;
    });
}

#[test]
fn a_job_that_was_cancelled_is_not_begun_anew_by_a_crash() {
    for seed in 0..6 {
        let mut site = Site::nas8();
        let power = site.power.clone();
        site.boot_and(async |larder| {
            fill(larder, FILES, ROWS).await;
            let jobs = jobs(larder).await;
            let job = jobs.ask(Request { memory_bytes: MIB, ..request("hash(name)", 3) }).await.unwrap().job;
            power.after(150).await;
            jobs.cancel(job).await.unwrap();
            tokio::select! {
                () = power.after(1 + seed * 3) => {}
                () = tokio::time::sleep(MINUTE) => {}
            }
        });
        site.lose_power(&mut Rng::new(seed));
        site.run(async |larder| {
            let jobs = jobs(larder).await;
            tokio::time::sleep(SECOND).await;
            let state = jobs.show(1).await.unwrap().state;
            assert!(state == "paused" || state == "cancelled", "seed {seed}: {state}");
            assert_eq!(hidden(larder).await, 0);
        });
    }
}
