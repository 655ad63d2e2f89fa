//! Repartition jobs on whole worlds: their output, what is left after a power failure, and what clients see meanwhile.

use crate::site::{BUCKET, Ended, Facts, HOUR, Larder, MIB, MINUTE, SECOND, Site};
use bytes::Bytes;
use catalog::{HIDDEN_BUCKET, ListRequest, Object, Place, PutCondition, VersionId};
use futures::StreamExt;
use model::Rng;
use s3::store::ObjectStore;
use server::repartition::{self, JobReport, Repartitions, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const MEMORY: u64 = 4 * MIB;

pub(crate) async fn jobs(larder: &Larder) -> Repartitions {
    let spec = larder.ask(|rack| rack.spec().clone()).await;
    Repartitions::start(larder.context.clone(), larder.world.clone(), spec).await.unwrap()
}

pub(crate) async fn put_bytes(larder: &Larder, key: &str, bytes: Vec<u8>) {
    let bucket = larder.service.head_bucket(BUCKET).await.unwrap();
    let object = Object { bytes: bytes.len() as u64, ..Object::default() };
    let mut sink = larder.service.begin_put(&bucket, key, object, PutCondition::None).await.unwrap();
    let etag = format!("0-{}", bytes.len());
    sink.write(Bytes::from(bytes)).await.unwrap();
    sink.commit(etag, Vec::new()).await.unwrap();
}

/// A CSV with the `rows` rows of file `file`.
fn csv(file: u64, rows: u64) -> String {
    let mut text = String::from("id,name,note\n");
    for row in 0..rows {
        let id = file * 1_000_000 + row;
        writeln!(text, "{id},u{},{}", id % 997, "x".repeat((id % 90) as usize)).unwrap();
    }
    text
}

/// Puts `files` CSVs below in/ and waits until they are migrated.
pub(crate) async fn fill(larder: &Larder, files: u64, rows: u64) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for file in 0..files {
        let text = csv(file, rows);
        all.extend(text.lines().skip(1).map(str::to_owned));
        put_bytes(larder, &format!("in/{file:03}.csv"), text.into_bytes()).await;
    }
    larder.settle().await;
    all
}

pub(crate) fn request(by: &str, partitions: u64) -> Request {
    let place = |prefix: &str| repartition::Place { bucket: BUCKET.into(), prefix: prefix.into() };
    Request {
        from: place("in"),
        to: place("out"),
        by: by.into(),
        partitions: Some(partitions).filter(|partitions| *partitions > 0),
        memory_bytes: MEMORY,
        object_bytes: Some(MIB),
        ..Request::default()
    }
}

pub(crate) async fn is_over(jobs: &Repartitions, job: u64) -> JobReport {
    loop {
        let report = jobs.show(job).await.unwrap();
        if report.ended_ms.is_some() || !report.reason.is_empty() {
            return report;
        }
        tokio::time::sleep(SECOND).await;
    }
}

async fn text(larder: &Larder, key: &str) -> String {
    loop {
        match larder.service.get(BUCKET, key, None).await {
            Ok(body) => {
                let mut all = Vec::new();
                let mut bytes = body.bytes;
                while let Some(piece) = bytes.next().await {
                    all.extend_from_slice(&piece.unwrap());
                }
                return String::from_utf8(all).unwrap();
            }
            Err(_) => tokio::time::sleep(10 * SECOND).await,
        }
    }
}

/// The output below out/: the rows of each partition, and the groups that hold it.
async fn output(larder: &Larder) -> BTreeMap<String, (BTreeSet<String>, BTreeSet<u32>)> {
    let mut partitions: BTreeMap<String, (BTreeSet<String>, BTreeSet<u32>)> = BTreeMap::new();
    for key in larder.keys().await.into_iter().filter(|key| key.starts_with("out/")) {
        let partition = key.split('/').nth(1).unwrap().to_owned();
        let group = larder.group_of(&key).await;
        let all = text(larder, &key).await;
        let (rows, groups) = partitions.entry(partition).or_default();
        groups.insert(group.0);
        for row in all.lines().skip(1) {
            assert!(rows.insert(row.to_owned()), "{row} is there once");
        }
    }
    partitions
}

pub(crate) async fn hidden_versions(larder: &Larder) -> BTreeSet<VersionId> {
    let all = ListRequest { max_keys: 1000, ..ListRequest::default() };
    let listing = larder.context.catalog.list_objects(HIDDEN_BUCKET, &all).await.unwrap_or_default();
    listing.objects.into_iter().map(|(_, object)| object.version).collect()
}

pub(crate) async fn hidden(larder: &Larder) -> usize {
    hidden_versions(larder).await.len()
}

/// Asserts that every row is in one partition, and that each partition is in one group.
pub(crate) async fn assert_partitioned(larder: &Larder, rows: &BTreeSet<String>, partitions: usize) {
    let found = output(larder).await;
    assert_eq!(found.len(), partitions);
    let all: BTreeSet<String> = found.values().flat_map(|(rows, _)| rows.clone()).collect();
    assert_eq!(all.len(), found.values().map(|(rows, _)| rows.len()).sum::<usize>());
    assert!(all == *rows, "{} rows of {}", all.len(), rows.len());
    for (partition, (_, groups)) in &found {
        assert_eq!(groups.len(), 1, "{partition} lies in one group");
    }
    let names = |rows: &BTreeSet<String>| -> BTreeSet<String> {
        rows.iter().map(|row| row.split(',').nth(1).unwrap().to_owned()).collect()
    };
    let per_partition: Vec<BTreeSet<String>> = found.values().map(|(rows, _)| names(rows)).collect();
    let distinct: BTreeSet<_> = per_partition.iter().flatten().collect();
    assert_eq!(distinct.len(), per_partition.iter().map(BTreeSet::len).sum::<usize>(), "a name is in one partition");
}

/// Asserts that the input is as it was put.
pub(crate) async fn assert_input(larder: &Larder, files: u64, rows: u64) {
    for file in 0..files {
        assert_eq!(text(larder, &format!("in/{file:03}.csv")).await, csv(file, rows));
    }
}

/// Asserts that the input is as it was put if `there`, and removed otherwise.
pub(crate) async fn assert_input_is(there: bool, larder: &Larder, files: u64, rows: u64) {
    if there {
        assert_input(larder, files, rows).await;
    } else {
        assert!(larder.keys().await.iter().all(|key| key.starts_with("out/")));
    }
}

pub(crate) async fn asleep_and_sound(larder: &Larder, facts: &Facts) {
    larder.settle().await;
    larder.audit(facts).await;
    larder.until("asleep", 3 * HOUR, async || larder.is_asleep().await).await;
}

#[test]
fn records_are_brought_where_their_partition_is_at_home() {
    for strategy in [None, Some("buffpack"), Some("offpack"), Some("fillpack"), Some("tourpack"), Some("baseline")] {
        let mut site = Site::new("pelican-mini");
        let facts = site.facts();
        site.run(async |larder| {
            let rows = fill(larder, 12, 8_000).await;
            let jobs = jobs(larder).await;
            let request = Request { strategy: strategy.map(str::to_owned), ..request("hash(name)", 7) };
            let report = jobs.ask(request).await.unwrap();
            let report = is_over(&jobs, report.job).await;
            assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
            let outcome = report.outcome.unwrap();
            println!("{strategy:?}: {outcome:?}");
            assert_eq!(outcome.rows, rows.len() as u64);
            assert!(outcome.peak_buffered_bytes <= MEMORY, "{outcome:?}");
            assert!(outcome.reading_hours > 0.0 && outcome.writing_hours > 0.0 && outcome.switches > 0);
            assert_eq!(hidden(larder).await, 0);
            assert_partitioned(larder, &rows, 7).await;
            assert_input(larder, 12, 8_000).await;
            asleep_and_sound(larder, &facts).await;
        });
    }
}

#[test]
fn a_plan_forecasts_every_strategy_and_wakes_one_group_at_most() {
    Site::nas8().run(async |larder| {
        fill(larder, 3, 2_000).await;
        let starts = larder.starts();
        let report = jobs(larder).await.ask(Request { dry_run: true, ..request("hash(id)", 4) }).await.unwrap();
        let plan = report.plan.unwrap();
        assert_eq!((report.job, report.state.as_str(), plan.forecasts.len()), (0, "planned", 5));
        for forecast in &plan.forecasts {
            assert!(forecast.hours > 0.0 && forecast.kwh > 0.0 && forecast.fits, "{forecast:?}");
            assert!(forecast.bytes_read >= plan.input_bytes && forecast.peak_extra_bytes > 0, "{forecast:?}");
        }
        assert!(jobs(larder).await.list().await.unwrap().is_empty());
        assert!(larder.starts() - starts <= 4, "one object was looked at");
    });
}

#[test]
fn a_wrong_request_is_refused_with_its_fix() {
    Site::nas8().run(async |larder| {
        fill(larder, 2, 100).await;
        put_bytes(larder, "full/x", vec![1]).await;
        let jobs = jobs(larder).await;
        let place = |bucket: &str, prefix: &str| repartition::Place { bucket: bucket.into(), prefix: prefix.into() };
        let ask = |change: fn(&mut Request)| {
            let mut request = request("hash(id)", 4);
            change(&mut request);
            request
        };
        let to = |prefix: &'static str| Request { to: place(BUCKET, prefix), ..request("hash(id)", 4) };
        for (wrong, says) in [
            (to("in/deeper"), "overlaps with the input"),
            (to("full"), "holds objects already, such as s3://shelf/full/x"),
            (Request { to: place("none", "x"), ..request("hash(id)", 4) }, "there is no bucket `none` to write to"),
            (Request { from: place(BUCKET, "none"), ..request("hash(id)", 4) }, "no objects below s3://shelf/none/"),
            (Request { from: place(HIDDEN_BUCKET, ""), ..request("hash(id)", 4) }, "there is no bucket"),
            (Request { from: place(BUCKET, "full"), ..request("hash(id)", 4) }, "give it with --format"),
            (ask(|r| r.by = "hash(id".into()), "a closing parenthesis"),
            (ask(|r| r.partitions = Some(1)), "makes one partition of everything"),
            (ask(|r| r.memory_bytes = 7), "too little"),
            (
                ask(|r| r.strategy = Some("best".into())),
                "write one of baseline, buffpack, offpack, fillpack and tourpack",
            ),
            (ask(|r| r.filter = Some("id >".into())), "expected"),
        ] {
            let refusal = jobs.ask(wrong).await.unwrap_err().to_string();
            assert!(refusal.contains(says), "{refusal}");
        }
        assert!(jobs.list().await.unwrap().is_empty());
    });
}

#[test]
fn bad_records_end_in_one_sentence_and_leave_nothing() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        fill(larder, 2, 3_000).await;
        put_bytes(larder, "in/900.csv", b"id,name,note\n1,2\n".to_vec()).await;
        larder.settle().await;
        let jobs = jobs(larder).await;
        let report = jobs.ask(request("hash(id)", 4)).await.unwrap();
        let report = is_over(&jobs, report.job).await;
        assert_eq!(report.state, "failed");
        assert!(report.reason.contains("in/900.csv") && report.reason.contains("2 fields"), "{}", report.reason);
        let missing = jobs.ask(request("hash(nme)", 4)).await.unwrap();
        let missing = is_over(&jobs, missing.job).await;
        assert!(missing.reason.contains("the nearest name is `name`"), "{}", missing.reason);
        assert_eq!(hidden(larder).await, 0);
        assert!(larder.keys().await.iter().all(|key| !key.starts_with("out/")));
        asleep_and_sound(larder, &facts).await;
    });
}

#[test]
fn what_is_deleted_meanwhile_is_left_out_and_told() {
    Site::nas8().run(async |larder| {
        fill(larder, 6, 4_000).await;
        let jobs = jobs(larder).await;
        let job = jobs.ask(request("hash(name)", 3)).await.unwrap().job;
        larder.delete("in/005.csv").await;
        let report = is_over(&jobs, job).await;
        assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
        let outcome = report.outcome.unwrap();
        assert_eq!((outcome.lost_objects, outcome.input_objects, outcome.rows), (1, 5, 20_000));
    });
}

#[test]
fn a_job_is_paused_resumed_and_cancelled() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        let rows = fill(larder, 6, 4_000).await;
        let jobs = jobs(larder).await;
        let job = jobs.ask(request("hash(name)", 3)).await.unwrap().job;
        assert_eq!(jobs.pause(job).await.unwrap().state, "paused");
        tokio::time::sleep(HOUR).await;
        assert_eq!(jobs.show(job).await.unwrap().state, "paused");
        assert!(jobs.pause(job).await.unwrap_err().to_string().contains("is paused"));
        jobs.resume(job).await.unwrap();
        tokio::time::sleep(20 * SECOND).await;
        jobs.cancel(job).await.unwrap();
        assert_eq!(is_over(&jobs, job).await.state, "cancelled");
        assert_eq!(hidden(larder).await, 0);
        assert!(jobs.cancel(job).await.unwrap_err().to_string().contains("is over"));
        let again = jobs.ask(Request { remove_input: true, ..request("hash(name)", 3) }).await.unwrap().job;
        assert_eq!(is_over(&jobs, again).await.state, "done");
        assert_partitioned(larder, &rows, 3).await;
        assert!(larder.keys().await.iter().all(|key| key.starts_with("out/")), "the input is removed");
        asleep_and_sound(larder, &facts).await;
    });
}

#[test]
fn clients_are_served_beside_a_job() {
    Site::nas8().run(async |larder| {
        let rows = fill(larder, 8, 6_000).await;
        let other = larder.put_many("other/", 4, 300_000).await;
        larder.settle().await;
        let jobs = jobs(larder).await;
        let job = jobs.ask(request("hash(name)", 5)).await.unwrap().job;
        for key in &other {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        assert_eq!(is_over(&jobs, job).await.state, "done");
        assert_partitioned(larder, &rows, 5).await;
    });
}

/// Requests a job if it does not exist yet, and waits until all jobs are over, unless the power fails before.
pub(crate) async fn work_off(larder: &Larder, asked: Option<&Request>) {
    let jobs = jobs(larder).await;
    if let Some(asked) = asked {
        let _ = jobs.ask(asked.clone()).await;
    }
    for job in jobs.list().await.unwrap() {
        is_over(&jobs, job.job).await;
    }
    tokio::time::sleep(MINUTE).await;
}

/// Requests the job if it is given, waits until it is done, asserts that nothing is left over, and returns its report.
pub(crate) async fn finished(larder: &Larder, asked: Option<Request>, seed: u64) -> JobReport {
    let jobs = jobs(larder).await;
    if let Some(asked) = asked {
        jobs.ask(asked).await.unwrap();
    }
    let job = jobs.list().await.unwrap().pop().unwrap();
    println!("seed {seed}: {} after the crashes", job.state);
    if job.state == "paused" {
        // Power failed often enough that the job might be the cause.
        assert!(job.reason.contains("the server crashed 4 times"), "{}", job.reason);
        jobs.resume(job.job).await.unwrap();
    }
    let report = is_over(&jobs, job.job).await;
    assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""), "seed {seed}");
    assert_eq!(hidden(larder).await, 0, "seed {seed}");
    report
}

/// Power fails at any step: the input stays, the output is whole or absent, nothing is left over.
fn crash(seed: u64) {
    let mut rng = Rng::for_thing(seed, 77);
    let mut site = Site::new(if rng.below(3) == 0 { "pelican-mini" } else { "nas8" });
    site.seed = seed;
    site.policy.starts_per_day = 1000;
    let strategy = [None, Some("buffpack"), Some("offpack")][rng.below(3) as usize].map(str::to_owned);
    let facts = site.facts();
    let (files, count) = (5, 3_000);
    let rows = site.run(async |larder| fill(larder, files, count).await);
    let remove_input = rng.below(2) == 0;
    let asked = Request { strategy, remove_input, ..request("hash(name)", 4) };
    let mut asked = Some(asked);
    for _ in 0..3 {
        site.power.fail_in(rng.between(1, 400));
        let ended = site.boot_and(async |larder| work_off(larder, asked.as_ref()).await);
        println!("seed {seed}: {}", if matches!(ended, Ended::Finished(())) { "finished" } else { "crashed" });
        if matches!(ended, Ended::Finished(())) {
            site.power.restore();
        }
        site.lose_power(&mut rng);
        // Before anything else has had time to happen.
        site.boot_and(async |larder| {
            let all = larder.context.catalog.jobs().await.unwrap();
            if all.is_empty() {
                return;
            }
            asked = None;
            let left = hidden_versions(larder).await;
            let _jobs = jobs(larder).await;
            let gone = async || hidden_versions(larder).await.is_disjoint(&left);
            larder.until("rolled back", 10 * MINUTE, gone).await;
        });
    }
    site.run(async |larder| {
        Box::pin(finished(larder, asked, seed)).await;
        assert_partitioned(larder, &rows, 4).await;
        assert_input_is(!remove_input, larder, files, count).await;
        asleep_and_sound(larder, &facts).await;
    });
}

#[test]
fn a_crash_at_any_step_leaves_the_input_and_a_whole_output_or_none() {
    let seeds = std::env::var("LARDER_SEEDS").map_or(24, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        crash(seed);
    }
}

#[test]
fn what_lies_in_the_workshop_is_read_there() {
    let mut site = Site::nas8();
    site.policy.migration.due_age = None;
    site.run(async |larder| {
        let mut rows = BTreeSet::new();
        for file in 0..3 {
            let text = csv(file, 2_000);
            rows.extend(text.lines().skip(1).map(str::to_owned));
            put_bytes(larder, &format!("in/{file:03}.csv"), text.into_bytes()).await;
        }
        assert!(matches!(larder.place("in/000.csv").await, Place::Staged { .. }));
        let jobs = jobs(larder).await;
        let job = jobs.ask(request("hash(name)", 3)).await.unwrap().job;
        let report = is_over(&jobs, job).await;
        assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
        assert_partitioned(larder, &rows, 3).await;
    });
}
