//! Drives say how they are while their group is awake anyway; it is remembered, and shown while they sleep, over a
//! restart as well.

use crate::rebuild::{all_read, fill, fullest};
use crate::site::{Facts, HOUR, Larder, Site};
use disk::smart::Smart;
use engine::HealthPolicy;
use model::DriveId;
use server::admin::Admin;
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
        assert_eq!((said.bad_sectors(), said.first_bad_sectors, said.starts), (3, 3, Some(900)));
        wear(&facts, drive, 9);
        drive
    });
    site.run(async |larder| {
        let said = health(larder, drive).await.unwrap();
        assert_eq!((said.bad_sectors(), said.first_bad_sectors), (3, 3), "what it said last, asked of nobody");
    });
}
