//! Sleeping drives stay asleep during client requests that do not need them.

use crate::site::{BUCKET, HOUR, KIB, SECOND, Site};
use s3::store::ObjectStore;
use server::admin::Admin;
use server::metrics;
use std::time::Duration;

#[test]
fn a_day_of_listings_heads_and_status_touches_no_drive_that_sleeps() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        let keys = larder.put_many("cold", 12, 200 * KIB).await;
        larder.settle().await;
        larder.until("asleep", 3 * HOUR, async || larder.is_asleep().await).await;
        let starts = larder.starts();
        facts.media.iter().for_each(|drive| drive.record_calls());
        let (status, until) = (larder.status(), larder.elapsed() + 24 * HOUR);
        while larder.elapsed() < until {
            assert_eq!(larder.keys().await, keys);
            for key in &keys {
                larder.service.head(BUCKET, key).await.unwrap();
            }
            status.status().await.unwrap();
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        for (number, drive) in facts.media.iter().enumerate() {
            assert_eq!(drive.recorded_calls(), [], "drive {number}");
        }
        assert_eq!(larder.starts(), starts, "and none was started");
        // Counter-check: a GET does touch them.
        larder.get_retrying(&keys[0]).await.unwrap();
        tokio::time::sleep(SECOND).await;
        assert!(larder.starts() > starts);
        assert!(facts.media.iter().any(|drive| !drive.recorded_calls().is_empty()));
    });
}

#[test]
fn a_thousand_scrapes_touch_no_drive_that_sleeps_and_know_its_state() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        let keys = larder.put_many("cold", 12, 200 * KIB).await;
        larder.settle().await;
        larder.until("asleep", 3 * HOUR, async || larder.is_asleep().await).await;
        let starts = larder.starts();
        facts.media.iter().for_each(|drive| drive.record_calls());
        let status = larder.status();
        for _ in 0..1000 {
            let text = metrics::scrape(&status).await.unwrap();
            for drive in 0..facts.media.len() {
                let line = format!("larder_drive_state{{drive=\"{drive}\",state=\"standby\"}} 1.0\n");
                assert!(text.contains(&line), "{line} in {text}");
            }
            assert!(text.contains("\nlarder_active_drives 0.0\n"), "{text}");
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        for (number, drive) in facts.media.iter().enumerate() {
            assert_eq!(drive.recorded_calls(), [], "drive {number}");
        }
        assert_eq!(larder.starts(), starts, "and none was started");
        // Counter-check: a GET does touch them, and the scrape shows it.
        larder.get_retrying(&keys[0]).await.unwrap();
        let text = metrics::scrape(&status).await.unwrap();
        assert!(larder.starts() > starts && !text.contains("\nlarder_active_drives 0.0\n"), "{text}");
    });
}
