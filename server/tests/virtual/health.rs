//! Drives report their health while their group is awake anyway; it is remembered, and shown while they sleep and after
//! a restart. A drive that wears out is emptied before it dies if that is configured, and only reported otherwise.

use crate::rebuild::{all_read, fill, fullest};
use crate::site::{Facts, HOUR, Larder, MIB, Site};
use engine::HealthPolicy;
use model::{DriveId, Smart};
use server::admin::Admin;
use server::condition::Condition;
use server::metrics;
use server::report::HealthReport;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);

fn wear(facts: &Facts, drive: DriveId, pending_sectors: u64) {
    let smart = Smart { pending_sectors: Some(pending_sectors), starts: Some(900), ..Smart::default() };
    facts.media[drive.index()].set_health(smart);
}

async fn health(larder: &Larder, drive: DriveId) -> Option<HealthReport> {
    larder.status().drives().await.unwrap().swap_remove(drive.index()).health
}

#[test]
fn what_a_drive_says_is_shown_while_it_sleeps_and_after_a_restart() {
    let mut site = Site::new("pelican-mini");
    site.policy.health = HealthPolicy { every: Some(DAY), drain_above: None };
    site.spool_bytes = 6 * MIB;
    let facts = site.facts();
    let drive = site.run(async |larder| {
        let keys = fill(larder).await;
        let drive = fullest(larder, &keys).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        assert_eq!(health(larder, drive).await, None, "it says nothing of its health");
        wear(&facts, drive, 3);
        tokio::time::sleep(DAY).await;
        assert_eq!(health(larder, drive).await, None, "nobody wakes it to ask");
        all_read(larder, &keys).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        let said = health(larder, drive).await.unwrap();
        assert_eq!((said.said.bad_sectors(), said.first_bad_sectors, said.said.starts), (Some(3), 3, Some(900)));
        assert!(!warned(larder, Condition::DrivePredictsFailure, "expects to fail").await);
        facts.media[drive.index()].set_health(Smart { predicts_failure: Some(true), ..said.said });
        read_after_a_day(larder, &keys).await;
        let words = format!("drive {} expects to fail", drive.0);
        assert!(warned(larder, Condition::DrivePredictsFailure, &words).await);
        wear(&facts, drive, 9);
        drive
    });
    site.run(async |larder| {
        let said = health(larder, drive).await.unwrap();
        assert_eq!(
            (said.said.bad_sectors(), said.first_bad_sectors),
            (Some(3), 3),
            "what it said last, asked of nobody"
        );
    });
}

/// Reads all objects a day later. The spool holds a few of them at most, so every group that holds some wakes for a
/// while, and its drives are asked.
async fn read_after_a_day(larder: &Larder, keys: &[String]) {
    tokio::time::sleep(DAY).await;
    all_read(larder, keys).await;
    larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
}

/// True if there is a warning of this condition with these words. Status, JSON and metrics agree about the condition.
async fn warned(larder: &Larder, condition: Condition, words: &str) -> bool {
    let status = larder.status().status().await.unwrap();
    let holds = status.conditions.contains(&condition);
    let name = serde_json::to_value(condition).unwrap();
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["conditions"].as_array().unwrap().contains(&name), holds, "{name}: {json}");
    let scraped = metrics::scrape(&larder.status()).await.unwrap();
    let none = format!("larder_warnings{{condition={name},risk=\"endangered\"}} 0.0\n");
    assert_eq!(!scraped.contains(&none), holds, "{name}: {scraped}");
    let mut found = status.conditions.iter().zip(&status.warnings);
    found.any(|(found, warning)| *found == condition && warning.contains(words))
}

/// Puts objects into the rack, and finds the drive that most of them depend on. It came with three bad sectors.
async fn with_a_drive_of_three_bad_sectors(larder: &Larder, facts: &Facts) -> (Vec<String>, DriveId) {
    let keys = fill(larder).await;
    let drive = fullest(larder, &keys).await;
    wear(facts, drive, 3);
    read_after_a_day(larder, &keys).await;
    assert_eq!(health(larder, drive).await.unwrap().first_bad_sectors, 3);
    assert!(!warned(larder, Condition::DriveWorn, "bad sectors").await, "it may keep them for years");
    (keys, drive)
}

async fn state(larder: &Larder, drive: DriveId) -> String {
    larder.status().drives().await.unwrap().swap_remove(drive.index()).state
}

fn stacks_on(facts: &Facts, drive: DriveId) -> usize {
    facts.stacks().iter().filter(|stack| stack.drive == drive.index()).count()
}

#[test]
fn a_drive_that_wears_out_is_emptied_before_it_dies() {
    for name in ["nas8", "pelican-mini"] {
        let mut site = Site::new(name);
        site.policy.health = HealthPolicy { every: Some(DAY / 2), drain_above: Some(10) };
        site.spool_bytes = 6 * MIB;
        let facts = site.facts();
        let (keys, drive) = site.run(async |larder| {
            let (keys, drive) = with_a_drive_of_three_bad_sectors(larder, &facts).await;
            wear(&facts, drive, 10);
            read_after_a_day(larder, &keys).await;
            assert!(
                warned(larder, Condition::DriveWorn, &format!("drive {} has 10 bad sectors, and had 3", drive.0)).await
            );
            assert_eq!((state(larder, drive).await.as_str(), stacks_on(&facts, drive) > 0), ("standby", true));
            wear(&facts, drive, 11);
            read_after_a_day(larder, &keys).await;
            larder.until("emptied", 2 * DAY, async || state(larder, drive).await == "retired").await;
            let held = larder.context.catalog.on_drive_page(drive, None, 9).await.unwrap();
            assert_eq!((held.blobs.len(), stacks_on(&facts, drive)), (0, 0), "{name}");
            (keys, drive)
        });
        site.run(async |larder| {
            larder.until("a restart knows", HOUR, async || state(larder, drive).await == "retired").await;
            larder.rack.pull(drive);
            all_read(larder, &keys).await;
            let status = larder.status().status().await.unwrap();
            assert!(status.exposed.blobs.iter().all(|blobs| *blobs == 0), "it died, and nothing is missing");
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
            larder.audit(&facts).await;
        });
    }
}

#[test]
fn a_drive_that_wears_out_is_only_reported_where_draining_is_not_configured() {
    let mut site = Site::nas8();
    site.policy.health = HealthPolicy { every: Some(DAY / 2), drain_above: None };
    site.spool_bytes = 6 * MIB;
    let facts = site.facts();
    site.run(async |larder| {
        let (keys, drive) = with_a_drive_of_three_bad_sectors(larder, &facts).await;
        let held = stacks_on(&facts, drive);
        wear(&facts, drive, 5000);
        for _ in 0..3 {
            read_after_a_day(larder, &keys).await;
            assert!(
                warned(larder, Condition::DriveWorn, &format!("drive {} has 5000 bad sectors, and had 3", drive.0))
                    .await
            );
            assert_eq!((state(larder, drive).await.as_str(), stacks_on(&facts, drive)), ("standby", held));
        }
    });
}
