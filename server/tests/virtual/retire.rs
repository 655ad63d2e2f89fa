//! Good drives that are emptied, and drives that stay away and are given up: everything is readable at any moment, over
//! crashes as well, and what has moved is removed from its old place.

use crate::rebuild::{all_read, blobs, fill, fullest};
use crate::site::{Ended, Facts, HOUR, KIB, Larder, MIB, Site};
use crate::steps::next_step;
use model::{DriveId, Rng};
use server::admin::Admin;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);

async fn retire(larder: &Larder, drive: DriveId) {
    let report = larder.status().retire_drive(drive.0).await.unwrap().unwrap();
    assert!(["retiring", "retired"].contains(&report.state.as_str()), "{}", report.state);
}

async fn is_retired(larder: &Larder, drive: DriveId) -> bool {
    larder.ask(move |rack| rack.is_retired(drive)).await
}

/// Waits until the drive is retired, and asserts that no moved stack is left on it.
async fn retired(larder: &Larder, drive: DriveId, facts: &Facts) {
    larder.until("retired", 48 * HOUR, async || is_retired(larder, drive).await).await;
    assert!(larder.context.catalog.on_drive_page(drive, None, 9).await.unwrap().blobs.is_empty());
    let drives = larder.status().drives().await.unwrap();
    assert_eq!(drives[drive.index()].state, "retired");
    assert!(facts.stacks().iter().all(|stack| stack.drive != drive.index()), "what moved is removed");
}

#[test]
fn a_good_drive_is_emptied_while_everything_reads_and_a_restart_knows() {
    for name in ["nas8", "pelican-mini"] {
        let mut site = Site::new(name);
        let facts = site.facts();
        let drive = site.run(async |larder| {
            let keys = fill(larder).await;
            let drive = fullest(larder, &keys).await;
            retire(larder, drive).await;
            retire(larder, drive).await; // repeating it is no error
            all_read(larder, &keys).await;
            retired(larder, drive, &facts).await;
            let status = larder.status().status().await.unwrap();
            assert!(status.exposed.blobs.iter().all(|blobs| *blobs == 0), "nothing was missing");
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
            larder.audit(&facts).await;
            drive
        });
        site.run(async |larder| {
            larder.rack.pull(drive); // it may be away by now
            larder.until("a restart knows", HOUR, async || is_retired(larder, drive).await).await;
            let drives = larder.status().drives().await.unwrap();
            assert_eq!(drives[drive.index()].state, "retired", "{name}");
            let keys = larder.keys().await;
            all_read(larder, &keys).await;
            // The same number of drives may die as before.
            let dead = blobs(larder, &keys).await[0].drives[0];
            larder.rack.pull(dead);
            all_read(larder, &keys).await;
        });
    }
}

#[test]
fn a_crash_at_any_step_of_emptying_a_drive_loses_nothing_and_the_next_start_goes_on() {
    let (torn, mut crashed) = (&mut Rng::new(6), 0);
    let mut step = 1;
    loop {
        let mut site = Site::nas8();
        site.policy.migration.pack_bytes = MIB;
        let facts = site.facts();
        let keys = site.run(async |larder| {
            let keys = larder.put_many("k", 8, 300 * KIB).await;
            larder.settle().await;
            keys
        });
        let drive = site.run(async |larder| fullest(larder, &keys).await);
        site.power.fail_in(step);
        let ended = site.boot_and(async |larder| {
            retire(larder, drive).await;
            larder.until("retired", 48 * HOUR, async || is_retired(larder, drive).await).await;
        });
        if matches!(ended, Ended::Finished(())) {
            break;
        }
        crashed += 1;
        site.lose_power(torn);
        site.run(async |larder| {
            all_read(larder, &keys).await;
            retire(larder, drive).await; // it may not have been recorded before the crash
            larder.until("retired", 48 * HOUR, async || is_retired(larder, drive).await).await;
            all_read(larder, &keys).await;
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
            let left = blobs(larder, &keys).await;
            assert!(left.iter().all(|blob| !blob.drives.contains(&drive)));
        });
        let _ = &facts;
        step = next_step(step, 7);
    }
    println!("{crashed} crashes");
    assert!(crashed > 10, "{crashed} crashes");
}

#[test]
fn a_drive_that_stays_away_for_a_day_is_given_up_by_itself_and_a_restart_knows() {
    let mut site = Site::new("pelican-mini");
    site.policy.give_up_after = Some(DAY);
    let facts = site.facts();
    let drive = site.run(async |larder| {
        let keys = fill(larder).await;
        let drive = fullest(larder, &keys).await;
        larder.rack.pull(drive);
        tokio::time::sleep(2 * HOUR).await;
        let status = larder.status().status().await.unwrap();
        let said = status.warnings.iter().any(|warning| warning.contains("it is given up, and its data is rebuilt"));
        assert!(said && status.rebuilds.is_empty(), "{:?}", status.warnings);
        all_read(larder, &keys).await;
        let whole = async || {
            let on_drive = larder.context.catalog.on_drive_page(drive, None, 9).await.unwrap();
            larder.ask(move |rack| rack.has_failed(drive)).await && on_drive.blobs.is_empty()
        };
        larder.until("rebuilt", 2 * DAY, whole).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(&facts).await;
        drive
    });
    site.run(async |larder| {
        let drives = larder.status().drives().await.unwrap();
        assert_eq!(drives[drive.index()].state, "failed");
        all_read(larder, &larder.keys().await).await;
    });
}

#[test]
fn objects_beyond_r_losses_are_named_and_no_others() {
    let mut site = Site::nas8();
    site.run(async |larder| {
        let keys = fill(larder).await;
        let first = blobs(larder, &keys).await.swap_remove(0);
        for drive in &first.drives[..2] {
            larder.rack.pull(*drive);
            larder.status().fail_drive(drive.0, true).await.unwrap().unwrap();
        }
        let lost = larder.status().lost_objects().await.unwrap();
        let mut expected = Vec::new();
        for (key, blob) in keys.iter().zip(blobs(larder, &keys).await) {
            if first.drives[..2].iter().all(|drive| blob.drives.contains(drive)) {
                expected.push(key.clone());
            }
        }
        expected.sort();
        assert!(!expected.is_empty() && expected.len() < keys.len());
        let named: Vec<String> = lost.objects.iter().map(|object| object.key.clone()).collect();
        assert_eq!((named, lost.count), (expected.clone(), expected.len() as u64));
        for key in keys.iter().filter(|key| !expected.contains(key)) {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1, "{key}");
        }
    });
}
