//! How repartition jobs end when others interfere: with the place they publish to, with their turn, or with their
//! input.

use crate::repartition::request;
use crate::repartition::{asleep_and_sound, assert_input, assert_partitioned, fill, hidden, is_over, jobs, put_bytes};
use crate::site::{BUCKET, HOUR, Larder, MINUTE, SECOND, Site};
use catalog::{Bucket, Job, JobState};
use s3::store::ObjectStore;
use server::repartition::{JobReport, Place, Repartitions, Request};

fn place(bucket: &str, prefix: &str) -> Place {
    Place { bucket: bucket.into(), prefix: prefix.into() }
}

async fn below_out(larder: &Larder) -> Vec<String> {
    larder.keys().await.into_iter().filter(|key| key.starts_with("out/")).collect()
}

/// A job whose output cannot be published, since an object was put below its prefix meanwhile.
async fn blocked(larder: &Larder, jobs: &Repartitions) -> JobReport {
    let job = jobs.ask(request("hash(name)", 3)).await.unwrap().job;
    put_bytes(larder, "out/foreign", vec![7]).await;
    let report = is_over(jobs, job).await;
    assert_eq!(report.state, "publishing");
    assert!(report.reason.contains("s3://shelf/out/foreign"), "{}", report.reason);
    assert_eq!(below_out(larder).await, ["out/foreign"], "nothing of it is seen");
    report
}

#[test]
fn output_whose_place_was_taken_waits_until_the_place_is_free() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        let rows = fill(larder, 4, 3_000).await;
        let jobs = jobs(larder).await;
        let job = blocked(larder, &jobs).await.job;
        let still = jobs.resume(job).await.unwrap();
        assert_eq!((still.state.as_str(), still.reason.is_empty()), ("publishing", false));
        larder.delete("out/foreign").await;
        assert_eq!(jobs.resume(job).await.unwrap().state, "done");
        assert!(jobs.cancel(job).await.unwrap_err().to_string().contains("is over"));
        assert_partitioned(larder, &rows, 3).await;
        asleep_and_sound(larder, &facts).await;
    });
}

#[test]
fn output_of_which_nothing_is_seen_can_be_given_up() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        fill(larder, 4, 3_000).await;
        let jobs = jobs(larder).await;
        let job = blocked(larder, &jobs).await.job;
        assert_eq!(jobs.cancel(job).await.unwrap().state, "cancelled");
        assert_eq!((hidden(larder).await, below_out(larder).await), (0, vec!["out/foreign".to_owned()]));
        assert_input(larder, 4, 3_000).await;
        asleep_and_sound(larder, &facts).await;
    });
}

#[test]
fn a_bucket_that_was_made_anew_meanwhile_gets_nothing() {
    Site::nas8().run(async |larder| {
        fill(larder, 3, 2_000).await;
        let catalog = &larder.context.catalog;
        catalog.create_bucket(&Bucket::new("target", 1, "")).await.unwrap();
        let jobs = jobs(larder).await;
        let job = jobs.ask(Request { to: place("target", "out"), ..request("hash(name)", 3) }).await.unwrap().job;
        catalog.delete_bucket("target").await.unwrap();
        catalog.create_bucket(&Bucket::new("target", 2, "")).await.unwrap();
        let report = is_over(&jobs, job).await;
        assert_eq!(report.state, "publishing");
        assert!(report.reason.contains("another of that name"), "{}", report.reason);
        assert_eq!(jobs.cancel(job).await.unwrap().state, "cancelled");
        assert_eq!(hidden(larder).await, 0);
    });
}

#[test]
fn input_is_removed_only_where_all_of_it_is_in_the_output() {
    Site::nas8().run(async |larder| {
        put_bytes(larder, "in/000.csv", b"id,name,note\n".to_vec()).await;
        larder.settle().await;
        let jobs = jobs(larder).await;
        let removing = || Request { remove_input: true, ..request("hash(name)", 3) };
        let some = [
            Request { filter: Some("id < 0".into()), ..removing() },
            Request { columns: Some(vec!["id".into()]), ..removing() },
        ];
        for request in some {
            let refusal = jobs.ask(request).await.unwrap_err().to_string();
            assert!(refusal.contains("would lose the"), "{refusal}");
        }
        let job = jobs.ask(removing()).await.unwrap().job;
        assert_eq!(is_over(&jobs, job).await.state, "done");
        assert_eq!(larder.keys().await, ["in/000.csv"], "what has no records is kept");
    });
}

#[test]
fn names_that_no_client_could_say_are_refused() {
    Site::nas8().run(async |larder| {
        put_bytes(larder, "in/000.csv", format!("id,name\n1,{0}\n2,x\n", "v".repeat(400)).into_bytes()).await;
        larder.settle().await;
        let jobs = jobs(larder).await;
        let to = |bytes| Request { to: place(BUCKET, &"p".repeat(bytes)), ..request("value(name)", 0) };
        let refusal = jobs.ask(to(1_000)).await.unwrap_err().to_string();
        assert!(refusal.contains("1001 bytes"), "{refusal}");
        let report = is_over(&jobs, jobs.ask(to(900)).await.unwrap().job).await;
        assert_eq!(report.state, "failed");
        assert!(report.reason.contains("write to a shorter prefix"), "{}", report.reason);
        assert_eq!(hidden(larder).await, 0);
    });
}

#[test]
fn a_job_that_is_paused_before_its_turn_lets_others_go_first() {
    Site::nas8().run(async |larder| {
        fill(larder, 3, 2_000).await;
        let jobs = jobs(larder).await;
        let ask = async |prefix: &str| {
            jobs.ask(Request { to: place(BUCKET, prefix), ..request("hash(name)", 3) }).await.unwrap().job
        };
        let (first, second, third) = (ask("a").await, ask("b").await, ask("c").await);
        jobs.pause(second).await.unwrap();
        assert_eq!(is_over(&jobs, first).await.state, "done");
        assert_eq!(is_over(&jobs, third).await.state, "done");
        assert_eq!(jobs.show(second).await.unwrap().state, "paused");
        jobs.resume(second).await.unwrap();
        assert_eq!(is_over(&jobs, second).await.state, "done");
    });
}

#[test]
fn a_client_who_wants_what_a_job_has_queued_goes_first_and_is_not_withdrawn_with_it() {
    for seed in 0..6 {
        let mut site = Site::nas8();
        site.seed = seed;
        site.run(async |larder| {
            fill(larder, 8, 6_000).await;
            larder.until("asleep", 3 * HOUR, async || larder.is_asleep().await).await;
            let jobs = jobs(larder).await;
            let job = jobs.ask(request("hash(name)", 5)).await.unwrap().job;
            // Long enough for the first recall to be queued or on its way.
            tokio::time::sleep((seed as u32 + 1) * 20 * SECOND / 10).await;
            let bodies = (0..8).map(|file| async move {
                let body = larder.service.get(BUCKET, &format!("in/{file:03}.csv"), None).await.unwrap();
                let pieces: Vec<_> = futures::StreamExt::collect(body.bytes).await;
                pieces.into_iter().map(|piece| piece.unwrap().len()).sum::<usize>()
            });
            let read = futures::future::join_all(bodies);
            let (read, _) = futures::future::join(read, async { jobs.cancel(job).await.unwrap() }).await;
            assert!(read.iter().all(|bytes| *bytes > 100_000), "{read:?}");
            assert_eq!(is_over(&jobs, job).await.state, "cancelled");
        });
    }
}

#[test]
fn what_a_job_that_is_over_has_left_is_removed_by_the_next_start() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        fill(larder, 4, 3_000).await;
        let jobs = jobs(larder).await;
        let job = blocked(larder, &jobs).await.job;
        let found = larder.context.catalog.job(job).await.unwrap().unwrap();
        let over = Job { state: JobState::Failed, ..found.clone() };
        larder.context.catalog.change_job(&found, &over).await.unwrap();
        assert!(hidden(larder).await > 0);
    });
    site.run(async |larder| {
        let _jobs = jobs(larder).await;
        larder.until("swept", MINUTE, async || hidden(larder).await == 0).await;
        assert_input(larder, 4, 3_000).await;
        asleep_and_sound(larder, &facts).await;
    });
}

#[test]
fn a_job_that_was_cancelled_before_the_server_ended_is_cancelled_after_it() {
    let mut site = Site::nas8();
    let facts = site.facts();
    let job = site.run(async |larder| {
        fill(larder, 6, 4_000).await;
        let jobs = jobs(larder).await;
        let job = jobs.ask(request("hash(name)", 3)).await.unwrap().job;
        tokio::time::sleep(SECOND).await;
        let cancelling = jobs.cancel(job).await.unwrap();
        assert_eq!(cancelling.state, "cancelling");
        assert!(jobs.resume(job).await.unwrap_err().to_string().contains("is being cancelled"));
        job
    });
    site.run(async |larder| {
        let jobs = jobs(larder).await;
        assert_eq!(is_over(&jobs, job).await.state, "cancelled");
        assert_eq!((hidden(larder).await, below_out(larder).await.len()), (0, 0));
        assert_input(larder, 6, 4_000).await;
        asleep_and_sound(larder, &facts).await;
    });
}

#[test]
fn servers_that_were_told_to_end_are_not_counted_against_a_job() {
    let mut site = Site::nas8();
    let job = site.run(async |larder| {
        fill(larder, 6, 4_000).await;
        jobs(larder).await.ask(request("hash(name)", 3)).await.unwrap().job
    });
    for _ in 0..5 {
        site.run(async |larder| {
            let jobs = jobs(larder).await;
            tokio::time::sleep(SECOND).await;
            jobs.closing().await.unwrap();
        });
    }
    site.run(async |larder| assert_eq!(is_over(&jobs(larder).await, job).await.state, "done"));
}
