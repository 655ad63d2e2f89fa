//! Records that are repartitioned amid faults: the operator starts, pauses, resumes and cancels jobs. In the end one
//! job is done, every record is in one partition, and the input is unchanged.

use crate::answers::commit;
use crate::journal::Rule;
use crate::plan::{Life, Plan, Stream};
use crate::reference::Reference;
use crate::site::Running;
use bytes::Bytes;
use catalog::{Bucket, ListRequest, Object, PutCondition};
use futures::StreamExt;
use model::Rng;
use s3::store::{ObjectStore, ServiceError};
use server::repartition::{JobReport, Place, Repartitions, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// The bucket of the records.
const BOOKS: &str = "books";

const FILES: u64 = 4;
const ROWS: u64 = 700;
const MEMORY_BYTES: u64 = 4 << 20;

const SECOND: Duration = Duration::from_secs(1);

/// The contents of file `file`, a CSV.
fn csv(file: u64) -> String {
    let mut text = String::from("id,name,note\n");
    for row in 0..ROWS {
        let id = file * 1_000_000 + row;
        let note = "x".repeat((id % 30) as usize);
        writeln!(text, "{id},u{},{note}", id % 97).unwrap_or_default();
    }
    text
}

fn name(file: u64) -> String {
    format!("in/{file:03}.csv")
}

fn rows(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().skip(1).map(str::to_owned)
}

/// The operator's work on records in a life.
pub(crate) async fn live(running: &Running, reference: &Reference, plan: &Plan, (round, life): (u64, &Life)) {
    let Some(jobs) = &running.jobs else { return };
    let mut rng = Stream::Records { round }.of(plan.seed);
    fill(running, reference).await;
    for _ in 0..life.ops.div_ceil(4) {
        let listed = jobs.list().await.unwrap_or_default();
        let open = listed.iter().find(|job| job.ended_ms.is_none());
        match (open, rng.below(6)) {
            (None, _) => ask(running, jobs, reference, &mut rng).await,
            (Some(job), 0) => note(running, "pause", job.job, jobs.pause(job.job).await.map(drop)),
            (Some(job), 1..=2) => note(running, "resume", job.job, jobs.resume(job.job).await.map(drop)),
            (Some(job), 3) if rng.below(3) == 0 => {
                note(running, "cancel", job.job, jobs.cancel(job.job).await.map(drop));
            }
            _ => {}
        }
        tokio::time::sleep(SECOND * rng.between(1, 120) as u32).await;
    }
}

fn note<E: std::fmt::Display>(running: &Running, what: &str, job: u64, answer: Result<(), E>) {
    running.journal.note(|| match answer {
        Ok(()) => format!("{what} job {job}: done"),
        Err(error) => format!("{what} job {job}: {error}"),
    });
}

/// Puts the files that are missing.
async fn fill(running: &Running, reference: &Reference) {
    if running.service.head_bucket(BOOKS).await.is_err() {
        let _ = running.service.create_bucket(Bucket::new(BOOKS, 0, server::users::ROOT)).await;
    }
    for file in 0..FILES {
        let known = reference.records.borrow().files.contains(&file);
        if !known && put(running, &name(file), csv(file)).await.is_ok() {
            reference.records.borrow_mut().files.insert(file);
        }
    }
}

async fn put(running: &Running, key: &str, text: String) -> Result<(), ServiceError> {
    let bucket = running.service.head_bucket(BOOKS).await?;
    let object = Object { bytes: text.len() as u64, ..Object::default() };
    let mut sink = running.service.begin_put(&bucket, key, object, PutCondition::None).await?;
    let etag = format!("0-{}", text.len());
    sink.write(Bytes::from(text)).await?;
    commit(sink, etag, Vec::new()).await.map(drop)
}

async fn ask(running: &Running, jobs: &Repartitions, reference: &Reference, rng: &mut Rng) {
    if reference.records.borrow().files.len() < FILES as usize {
        return;
    }
    let number = {
        let mut records = reference.records.borrow_mut();
        records.asked += 1;
        records.asked
    };
    let place = |prefix: &str| Place { bucket: BOOKS.to_owned(), prefix: prefix.to_owned() };
    let strategies = ["baseline", "buffpack", "offpack", "fillpack", "tourpack"];
    let request = Request {
        from: place("in"),
        to: place(&format!("out{number}")),
        by: "hash(name)".to_owned(),
        partitions: Some(rng.between(2, 5)),
        memory_bytes: MEMORY_BYTES,
        object_bytes: Some(20_000),
        strategy: strategies.get(rng.below(6) as usize).map(|name| (*name).to_owned()),
        ..Request::default()
    };
    let asked = jobs.ask(request).await;
    running.journal.note(|| match &asked {
        Ok(job) => format!("job {} is asked for: {:?}", job.job, job.request.strategy),
        Err(error) => format!("job to out{number} is refused: {error}"),
    });
}

/// Brings all jobs to an end; checks that one of them is done, and its result.
pub(crate) async fn finish(running: &Running, reference: &Reference, plan: &Plan) {
    let Some(jobs) = &running.jobs else { return };
    let mut rng = Stream::Records { round: 99 }.of(plan.seed);
    fill(running, reference).await;
    if reference.records.borrow().files.len() < FILES as usize {
        return; // the rack is full
    }
    for _ in 0..3 {
        if plan.beyond {
            return;
        }
        if let Some(done) = all_over(running, jobs).await {
            return is_right(running, &done).await;
        }
        if running.journal.is_over() {
            return;
        }
        ask(running, jobs, reference, &mut rng).await;
    }
    let listed = jobs.list().await.unwrap_or_default();
    let why: Vec<_> = listed.iter().map(|job| format!("{} {}: {}", job.job, job.state, job.reason)).collect();
    let excused = plan.beyond || why.iter().any(|why| why.contains("room"));
    running.journal.demand(excused, Rule::Live, || format!("no job finishes: {}", why.join("; ")));
}

/// Waits until every job has ended. Returns the last one that is done.
async fn all_over(running: &Running, jobs: &Repartitions) -> Option<JobReport> {
    let began = disk::clock::monotonic();
    loop {
        let listed = jobs.list().await.unwrap_or_default();
        let Some(open) = listed.iter().find(|job| job.ended_ms.is_none()) else {
            return listed.into_iter().rev().find(|job| job.state == "done");
        };
        if !open.reason.is_empty() || open.state == "paused" {
            note(running, "resume", open.job, jobs.resume(open.job).await.map(drop));
        }
        if began.elapsed() > Duration::from_hours(20 * 24) {
            running.journal.broken(Rule::Live, || format!("job {} never ends: {}", open.job, open.state));
            return None;
        }
        tokio::time::sleep(SECOND * 60).await;
    }
}

/// Checks that every record is in one partition, that all records of a name are in the same one, and that the input is
/// unchanged.
async fn is_right(running: &Running, job: &JobReport) {
    let journal = &running.journal;
    let prefix = format!("{}/", job.request.to.prefix.trim_end_matches('/'));
    let mut partitions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for key in keys(running, &prefix).await {
        let Some(text) = text(running, &key).await else {
            return journal.broken(Rule::Kept, || format!("{key} of job {} cannot be read", job.job));
        };
        let partition = key.split('/').nth(1).unwrap_or_default().to_owned();
        for row in rows(&text) {
            let fresh = partitions.entry(partition.clone()).or_default().insert(row.clone());
            journal.demand(fresh, Rule::Bytes, || format!("{row} is there twice"));
        }
    }
    let all: BTreeSet<String> = (0..FILES).flat_map(|file| rows(&csv(file)).collect::<Vec<_>>()).collect();
    let found: BTreeSet<String> = partitions.values().flatten().cloned().collect();
    journal
        .demand(all == found, Rule::Bytes, || format!("job {} made {} records of {}", job.job, found.len(), all.len()));
    let names = |rows: &BTreeSet<String>| -> BTreeSet<String> {
        rows.iter().filter_map(|row| row.split(',').nth(1)).map(str::to_owned).collect()
    };
    let by_partition: Vec<BTreeSet<String>> = partitions.values().map(names).collect();
    let distinct: BTreeSet<&String> = by_partition.iter().flatten().collect();
    let counted: usize = by_partition.iter().map(BTreeSet::len).sum();
    journal.demand(distinct.len() == counted, Rule::Bytes, || format!("job {}: a name is in two partitions", job.job));
    for file in 0..FILES {
        let same = text(running, &name(file)).await.is_some_and(|text| text == csv(file));
        journal.demand(same, Rule::Kept, || format!("the input {} is not as it was", name(file)));
    }
    journal.note(|| format!("job {} made what it should: {counted} names", job.job));
}

async fn keys(running: &Running, prefix: &str) -> Vec<String> {
    let request = ListRequest { prefix: prefix.to_owned(), max_keys: 10_000, ..ListRequest::default() };
    let listed = running.service.list(BOOKS, request).await.unwrap_or_default();
    listed.objects.into_iter().map(|(key, _)| key).collect()
}

async fn text(running: &Running, key: &str) -> Option<String> {
    let began = disk::clock::monotonic();
    while began.elapsed() < Duration::from_hours(3 * 24) {
        if let Ok(mut body) = running.service.get(BOOKS, key, None).await {
            let (mut all, mut whole) = (Vec::new(), true);
            while let Some(piece) = body.bytes.next().await {
                match piece {
                    Ok(piece) => all.extend_from_slice(&piece),
                    Err(_) => whole = false,
                }
            }
            if whole {
                return String::from_utf8(all).ok();
            }
        }
        tokio::time::sleep(SECOND * 60).await;
    }
    None
}
