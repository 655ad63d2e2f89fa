//! Repartition jobs on a failing rack: drives that die, go away or stop answering in the middle, groups that fill up,
//! start budgets that are used up, clients that want the same groups.

use crate::repartition::{asleep_and_sound, assert_input, assert_partitioned, fill, hidden, is_over, jobs, request};
use crate::site::{Facts, HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site};
use model::physics::ServerLoad;
use model::{DriveId, GroupId, Rng};
use server::repartition::{JobReport, Request};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

const FILES: u64 = 8;
const ROWS: u64 = 4_000;

/// A fault of a drive.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It is pulled out of its slot.
    Away,
    /// It answers everything with an error.
    Dead,
    /// It answers nothing.
    Silent,
}

impl Fault {
    fn befalls(self, drive: DriveId, larder: &Larder, facts: &Facts) {
        match self {
            Self::Away => larder.rack.pull(drive),
            Self::Dead => facts.media[drive.index()].set_dead(true),
            Self::Silent => facts.silences[drive.index()].set(true),
        }
    }

    fn ends(self, drive: DriveId, larder: &Larder, facts: &Facts) {
        match self {
            Self::Away => larder.rack.plug(drive),
            Self::Dead => facts.media[drive.index()].set_dead(false),
            Self::Silent => facts.silences[drive.index()].set(false),
        }
    }
}

/// A rack with little memory for its jobs, so that they switch between groups often.
fn site(seed: u64) -> (Site, Request) {
    let (rack, memory_bytes) = if seed.is_multiple_of(2) { ("nas8", MIB) } else { ("pelican-mini", 4 * MIB) };
    let mut site = Site::new(rack);
    site.seed = seed;
    site.policy.starts_per_day = 100_000;
    site.policy.migration.pack_bytes = 400 * KIB;
    let strategy = ["baseline", "buffpack", "offpack", "fillpack", "tourpack"][(seed / 2 % 5) as usize];
    let request = Request {
        strategy: Some(strategy.into()),
        memory_bytes,
        object_bytes: Some(200 * KIB),
        ..request("hash(name)", 4)
    };
    (site, request)
}

/// The number of power steps that a job takes if nothing happens.
fn steps(seed: u64) -> u64 {
    let (mut site, request) = site(seed);
    let power = site.power.clone();
    site.run(async |larder| {
        fill(larder, FILES, ROWS).await;
        let before = power.steps();
        let jobs = jobs(larder).await;
        let job = jobs.ask(request).await.unwrap().job;
        let report = is_over(&jobs, job).await;
        assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
        power.steps() - before
    })
}

/// Picks `count` drives of one group; the same for the same seed.
async fn victims(larder: &Larder, rng: &mut Rng, count: usize) -> Vec<DriveId> {
    let mut groups = larder.ask(|rack| rack.layout().groups.iter().map(|g| g.drives.clone()).collect::<Vec<_>>()).await;
    let mut drives = groups.swap_remove(rng.below(groups.len() as u64) as usize);
    while drives.len() > count {
        drives.swap_remove(rng.below(drives.len() as u64) as usize);
    }
    drives
}

/// Applies `fault` to `count` drives of a group at a random step of a job, for `span`, or until the job is over.
fn befallen(seed: u64, fault: Fault, count: usize, span: Option<Duration>) -> JobReport {
    let steps = steps(seed);
    let mut rng = Rng::for_thing(seed, 501);
    let (mut site, request) = site(seed);
    let (power, facts) = (site.power.clone(), site.facts());
    site.run(async |larder| {
        let rows = fill(larder, FILES, ROWS).await;
        let jobs = jobs(larder).await;
        let at = rng.between(1, steps);
        let drives = victims(larder, &mut rng, count).await;
        println!("seed {seed}: {fault:?} of {drives:?} at step {at} of {steps} for {span:?}");
        let job = jobs.ask(request).await.unwrap().job;
        let over = is_over(&jobs, job);
        tokio::pin!(over);
        tokio::select! {
            biased;
            _ = &mut over => panic!("seed {seed}: the job was over before step {at}"),
            () = power.after(at) => {}
        }
        for drive in &drives {
            fault.befalls(*drive, larder, &facts);
        }
        let report = match span {
            Some(span) => {
                tokio::join!(&mut over, async {
                    tokio::time::sleep(span).await;
                    for drive in &drives {
                        fault.ends(*drive, larder, &facts);
                    }
                })
                .0
            }
            None => over.await,
        };
        for drive in &drives {
            fault.ends(*drive, larder, &facts);
        }
        assert_eq!(hidden(larder).await, 0);
        if report.state == "done" {
            assert_partitioned(larder, &rows, 4).await;
        } else {
            assert!(larder.keys().await.iter().all(|key| key.starts_with("in/")), "no output of a job that failed");
        }
        assert_input(larder, FILES, ROWS).await;
        tokio::time::sleep(24 * HOUR).await; // drives that were given up are tried again within a day
        asleep_and_sound(larder, &facts).await;
        report
    })
}

fn seeds(fewest: u64) -> u64 {
    std::env::var("LARDER_SEEDS").map_or(fewest, |seeds| seeds.parse().unwrap())
}

fn is_done(report: &JobReport) {
    assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
    assert_eq!(report.outcome.as_ref().unwrap().rows, FILES * ROWS);
}

#[test]
fn a_drive_that_goes_away_in_the_middle_costs_no_record() {
    for seed in 0..seeds(8) {
        let span = [Some(SECOND), Some(MINUTE), Some(HOUR), None][(seed / 2 % 4) as usize];
        is_done(&befallen(seed, Fault::Away, 1, span));
    }
}

#[test]
fn a_drive_that_dies_in_the_middle_costs_no_record() {
    for seed in 0..seeds(8) {
        let span = [None, Some(MINUTE), None, Some(HOUR)][(seed / 2 % 4) as usize];
        is_done(&befallen(100 + seed, Fault::Dead, 1, span));
    }
}

#[test]
fn a_drive_that_falls_silent_in_the_middle_costs_no_record() {
    for seed in 0..seeds(8) {
        let span = [SECOND, MINUTE, 10 * MINUTE, HOUR][(seed / 2 % 4) as usize];
        is_done(&befallen(200 + seed, Fault::Silent, 1, Some(span)));
    }
}

#[test]
fn more_drives_than_the_code_makes_up_for_are_waited_for() {
    for seed in 0..seeds(8) {
        let span = [MINUTE, 10 * MINUTE, 3 * HOUR, 20 * HOUR][(seed / 2 % 4) as usize];
        let fault = if seed % 3 == 0 { Fault::Dead } else { Fault::Away };
        is_done(&befallen(300 + seed, fault, 4, Some(span)));
    }
}

#[test]
fn drives_that_do_not_come_back_end_a_job_that_needs_them() {
    let mut ended = 0;
    for seed in 0..seeds(4) {
        let report = befallen(400 + seed, Fault::Away, 4, None);
        if report.state == "failed" {
            ended += 1;
            assert!(report.reason.contains("drives of its group are away"), "{}", report.reason);
            assert!(report.reason.contains("waited for 1440 minutes"), "{}", report.reason);
        }
    }
    assert!(ended > 0, "no job needed the group");
}

/// A rack whose drives hold very little.
fn tight(seed: u64) -> (Site, Request) {
    let (mut site, request) = site(2 * seed);
    let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "nas8").unwrap();
    let text = text.replace("capacity = \"12 TB\"", "capacity = \"1200 kB\"").replace("\"200 MB\"", "\"400 kB\"");
    site.spec = model::text::parse(&text, name).unwrap();
    (site, request)
}

#[test]
fn groups_that_fill_up_in_the_middle_end_a_job_that_leaves_nothing() {
    let mut full = 0;
    for seed in 0..seeds(8) {
        let (mut site, request) = tight(seed);
        let (facts, power) = (site.facts(), site.power.clone());
        let mut rng = Rng::for_thing(seed, 502);
        let (state, rows, used) = site.run(async |larder| {
            let rows = fill(larder, FILES, ROWS).await;
            let used = facts.media_bytes();
            let jobs = jobs(larder).await;
            let job = jobs.ask(request).await.unwrap().job;
            power.after(rng.between(1, 100)).await;
            larder.put_many("hog/", 45, 200_000).await;
            let report = is_over(&jobs, job).await;
            println!("seed {seed}: {} {}", report.state, report.reason);
            if report.state == "failed" {
                full += 1;
                for says in ["writing to group", "no group has room", "remove objects there", "waited for 10 minutes"] {
                    assert!(report.reason.contains(says), "{}", report.reason);
                }
                assert!(larder.keys().await.iter().all(|key| !key.starts_with("out/")));
            }
            assert_eq!(hidden(larder).await, 0);
            for key in larder.keys().await.iter().filter(|key| key.starts_with("hog/")) {
                larder.delete(key).await;
            }
            larder.settle().await;
            (report.state, rows, used)
        });
        // A restart forgets the spool, so that reading wakes the groups, and space that was given up is reclaimed
        // there.
        site.run(async |larder| {
            assert_input(larder, FILES, ROWS).await;
            if state == "done" {
                assert_partitioned(larder, &rows, 4).await;
            } else {
                larder.until("reclaimed", HOUR, async || facts.media_bytes() == used).await;
            }
            asleep_and_sound(larder, &facts).await;
        });
    }
    assert!(full > 0, "no group was full in time");
}

#[test]
fn a_job_whose_starts_are_used_up_ends_on_the_day_that_was_forecast() {
    for strategy in ["baseline", "buffpack", "offpack", "fillpack", "tourpack"] {
        let mut site = Site::nas8();
        site.policy.starts_per_day = 1;
        let facts = site.facts();
        site.run(async |larder| {
            let rows = fill(larder, 12, 8_000).await;
            let jobs = jobs(larder).await;
            let request = Request { strategy: Some(strategy.into()), memory_bytes: MIB, ..request("hash(name)", 4) };
            let job = jobs.ask(request).await.unwrap().job;
            // Paused and resumed on the way: it does not repeat its requests for what it waits for.
            tokio::time::sleep(10 * SECOND).await;
            jobs.pause(job).await.unwrap();
            jobs.resume(job).await.unwrap();
            let mut waited = BTreeSet::new();
            let report = loop {
                let report = jobs.show(job).await.unwrap();
                waited.extend(report.progress.iter().map(|progress| progress.waits.clone()));
                if report.ended_ms.is_some() {
                    break report;
                }
                tokio::time::sleep(MINUTE).await;
            };
            assert_eq!((report.state.as_str(), report.reason.as_str()), ("done", ""));
            assert!(waited.iter().any(|waits| waits.contains("starts of the day are used up")), "{waited:?}");
            let (plan, outcome) = (report.plan.unwrap(), report.outcome.unwrap());
            assert_eq!(plan.starts_per_day, 1);
            let forecast = plan.forecasts.iter().find(|forecast| forecast.strategy == plan.chosen).unwrap();
            let (hours_forecast, took) = (forecast.hours_with_budget, outcome.hours);
            println!(
                "{strategy}: {took:.1} h of {hours_forecast:.1} h, {} of {} switches",
                outcome.switches, forecast.switches
            );
            assert!(
                hours_forecast > 24.0 && hours_forecast > forecast.hours && forecast.starts_per_drive > 1,
                "{forecast:?}"
            );
            assert!((took / hours_forecast - 1.0).abs() < 0.34, "{took:.1} h, forecast {hours_forecast:.1} h");
            assert!(outcome.waiting_hours > 0.8 * took && outcome.switching_hours < 1.0, "{outcome:?}");
            assert_partitioned(larder, &rows, 4).await;
            asleep_and_sound(larder, &facts).await;
        });
    }
}

#[test]
fn a_client_waits_no_longer_beside_a_job_than_its_share_says() {
    for strategy in ["buffpack", "tourpack"] {
        let mut site = Site::nas8();
        site.policy.starts_per_day = 100_000;
        site.policy.migration.pack_bytes = MIB;
        let profile = site.spec.profile.clone();
        let drives = site.spec.group_drives as usize;
        let switch = profile.wake_estimate(drives, ServerLoad::Busy) + profile.rest_estimate(drives);
        // The operation under way may end its quantum, and a group that is waking is awaited; drives take at most one
        // and a half times their average time.
        let bound = site.policy.scheduler.quantum + 3 * switch;
        site.run(async |larder| {
            let rows = fill(larder, 12, 8_000).await;
            let others = larder.put_many("other/", 24, 600 * KIB).await;
            larder.settle().await;
            let groups: BTreeSet<GroupId> = group_of_each(larder, &others).await;
            assert_eq!(groups.len(), 2, "they lie in both groups");
            let jobs = jobs(larder).await;
            let request = Request { strategy: Some(strategy.into()), memory_bytes: MIB, ..request("hash(name)", 4) };
            let job = jobs.ask(request).await.unwrap().job;
            let (mut worst, mut beside) = (Duration::ZERO, 0);
            for key in &others {
                let asked = Instant::now();
                assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
                worst = worst.max(asked.elapsed());
                beside += u32::from(jobs.show(job).await.unwrap().ended_ms.is_none());
            }
            println!("{strategy}: {beside} of {} beside the job, the longest wait was {worst:?}", others.len());
            assert!(beside > 3, "{beside} were asked for beside the job");
            assert!(worst < bound, "{worst:?}, and not {bound:?} at most");
            assert_eq!(is_over(&jobs, job).await.state, "done");
            assert_partitioned(larder, &rows, 4).await;
        });
    }
}

async fn group_of_each(larder: &Larder, keys: &[String]) -> BTreeSet<GroupId> {
    let mut groups = BTreeSet::new();
    for key in keys {
        groups.insert(larder.group_of(key).await);
    }
    groups
}
