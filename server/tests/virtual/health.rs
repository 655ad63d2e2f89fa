//! Drives say how they are while their group is awake anyway: it is remembered, shown while they sleep, and one that
//! wears out is emptied, over a restart as well.

use crate::rebuild::{all_read, fill, fullest};
use crate::site::{HOUR, Larder, Site};
use disk::smart::Smart;
use engine::HealthPolicy;
use model::DriveId;
use server::admin::Admin;
use server::report::HealthReport;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);

fn watched(drain_above: Option<u64>) -> Site {
    let mut site = Site::new("pelican-mini");
    site.policy.health = HealthPolicy { every: Some(DAY), drain_above };
    site
}

fn wear(larder: &Larder, drive: DriveId, pending_sectors: u64) {
    let smart = Smart { pending_sectors: Some(pending_sectors), starts: Some(900), ..Smart::default() };
    larder.media[drive.index()].set_health(smart);
}

async fn health(larder: &Larder, drive: DriveId) -> Option<HealthReport> {
    larder.status().drives().await.unwrap().swap_remove(drive.index()).health
}

/// A day later every object is read, so that every group wakes that holds one.
async fn a_day_later(larder: &Larder, keys: &[String]) {
    tokio::time::sleep(DAY).await;
    all_read(larder, keys).await;
    larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
}

#[test]
fn what_a_drive_says_is_shown_while_it_sleeps_and_asked_once_in_a_span() {
    let mut site = watched(None);
    let drive = site.run(async |larder| {
        let keys = fill(larder).await;
        let drive = fullest(larder, &keys).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        assert_eq!(health(larder, drive).await, None, "it says nothing of its health");
        wear(larder, drive, 3);
        a_day_later(larder, &keys).await;
        let said = health(larder, drive).await.unwrap();
        assert_eq!((said.bad_sectors(), said.first_bad_sectors, said.starts), (3, 3, Some(900)));
        wear(larder, drive, 9);
        all_read(larder, &keys).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        assert_eq!(health(larder, drive).await.unwrap().bad_sectors(), 3, "it was asked today");
        assert!(larder.status().status().await.unwrap().warnings.iter().all(|said| !said.contains("bad sectors")));
        a_day_later(larder, &keys).await;
        drive
    });
    // A restart knows what it said, and asks nobody for it.
    site.run(async |larder| {
        let starts = larder.starts();
        let said = health(larder, drive).await.unwrap();
        assert_eq!((said.bad_sectors(), said.first_bad_sectors), (9, 3));
        let warnings = larder.status().status().await.unwrap().warnings;
        let warned = format!("drive {} has 9 bad sectors, and had 3 when it was asked first", drive.0);
        assert!(warnings.iter().any(|warning| warning.starts_with(&warned)), "{warnings:?}");
        assert_eq!(larder.starts(), starts, "no drive was started for that");
    });
}

#[test]
fn a_drive_that_wears_out_is_emptied_while_everything_reads() {
    let mut site = watched(Some(5));
    let facts = site.facts();
    let (keys, drive) = site.run(async |larder| {
        let keys = fill(larder).await;
        let drive = fullest(larder, &keys).await;
        wear(larder, drive, 0);
        a_day_later(larder, &keys).await;
        wear(larder, drive, 6);
        a_day_later(larder, &keys).await;
        assert!(larder.ask(move |rack| rack.is_retiring(drive)).await);
        (keys, drive)
    });
    site.run(async |larder| {
        assert!(larder.ask(move |rack| rack.is_retiring(drive)).await, "a restart goes on");
        larder.until("emptied", 48 * HOUR, async || larder.ask(move |rack| rack.has_failed(drive)).await).await;
        assert!(larder.context.catalog.on_drive_page(drive, None, 9).await.unwrap().blobs.is_empty());
        all_read(larder, &keys).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(&facts).await;
    });
}
