//! The first boot of a rack: the engine wakes each group once, records that, and wakes nothing at the next start,
//! however the first one ended.

use crate::site::{Ended, HOUR, KIB, Larder, MINUTE, SECOND, Site};
use engine::trace::{Record, TraceMessage};
use engine::{Action, GroupState, Rack};
use model::{DriveId, GroupId, Rng};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

fn unseen(rack: &str) -> Site {
    let mut site = Site::new(rack);
    site.unseen = true;
    site
}

/// The drives that were started since this was last asked.
fn started(site: &mut Site) -> impl FnMut() -> Vec<DriveId> + use<> {
    let drives = Arc::new(Mutex::new(Vec::new()));
    let traced = Arc::clone(&drives);
    site.trace = Some(Arc::new(move |record: &Record| {
        if let TraceMessage::Action(Action::SpinUp { drive, .. }) = record.message {
            traced.lock().unwrap().push(drive);
        }
    }));
    move || {
        let mut drives = std::mem::take(&mut *drives.lock().unwrap());
        drives.sort_unstable();
        drives
    }
}

/// The number of groups that are still to be initialised.
async fn left(larder: &Larder) -> usize {
    larder.ask(Rack::uninitialised_groups).await
}

async fn booted(larder: &Larder) {
    larder.until("initialised", HOUR, async || left(larder).await == 0).await;
}

fn all_drives(site: &Site) -> Vec<DriveId> {
    site.spec.drives.iter().map(|drive| drive.id).collect()
}

#[test]
fn the_first_start_wakes_each_group_once_and_the_second_none() {
    for rack in ["nas8", "pelican-mini"] {
        let mut site = unseen(rack);
        let mut started = started(&mut site);
        let all = all_drives(&site);
        site.run(async |larder| {
            assert!(left(larder).await > 0, "it takes time");
            booted(larder).await;
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
            assert_eq!(larder.context.catalog.initialised_drives().await.unwrap(), all.iter().copied().collect());
        });
        assert_eq!(started(), all, "every drive is started, and once");
        site.run(async |larder| {
            assert_eq!(left(larder).await, 0);
            tokio::time::sleep(24 * HOUR).await;
            assert!(larder.is_asleep().await);
        });
        assert_eq!(started(), []);
    }
}

#[test]
fn a_start_that_a_crash_cuts_short_is_gone_on_with() {
    let mut site = unseen("pelican-mini");
    let mut started = started(&mut site);
    let all: BTreeSet<DriveId> = all_drives(&site).into_iter().collect();
    let mut seen = BTreeSet::new();
    let ended = site.boot_and(async |larder| {
        larder
            .until("some", HOUR, async || !larder.context.catalog.initialised_drives().await.unwrap().is_empty())
            .await;
        larder.context.catalog.initialised_drives().await.unwrap()
    });
    if let Ended::Finished(known) = ended {
        seen = known;
    }
    site.lose_power(&mut Rng::new(1));
    assert!(!seen.is_empty() && seen.len() < all.len(), "{} of {} drives", seen.len(), all.len());
    started();
    site.run(async |larder| {
        booted(larder).await;
    });
    let woken: BTreeSet<DriveId> = started().into_iter().collect();
    assert_eq!(woken, all.difference(&seen).copied().collect(), "what was remembered is left asleep");
}

#[test]
fn clients_put_and_get_while_the_rack_is_being_initialised() {
    let mut site = unseen("nas8");
    site.policy.migration.due_age = Some(SECOND);
    site.policy.migration.min_age = SECOND;
    site.run(async |larder| {
        larder.put("early", 1, 300 * KIB).await.unwrap();
        assert!(left(larder).await > 0);
        assert_eq!(larder.get("early").await.unwrap(), 1, "from the workshop");
        larder.settle().await;
        assert_eq!(larder.get_retrying("early").await.unwrap(), 1, "from the rack");
        assert_eq!(left(larder).await, 0);
    });
}

#[test]
fn a_silent_drive_is_done_without_and_wakes_nothing_at_the_next_start() {
    let mut site = unseen("nas8");
    let mut started = started(&mut site);
    let facts = site.facts();
    facts.silences[0].set(true);
    site.run(async |larder| {
        booted(larder).await;
        assert!(larder.ask(|rack| rack.stats().missed_deadlines).await > 0);
        facts.silences[0].set(false);
        larder.until("asleep", 3 * HOUR, async || larder.is_asleep().await).await;
    });
    started();
    site.run(async |larder| {
        tokio::time::sleep(HOUR).await;
        assert!(larder.is_asleep().await);
        for group in 0..larder.ask(|rack| rack.layout().groups.len()).await {
            assert_eq!(larder.state(GroupId(group as u32)).await, GroupState::Asleep);
        }
    });
    assert_eq!(started(), []);
}

#[test]
fn a_drive_that_takes_anothers_place_is_not_known() {
    let mut site = unseen("nas8");
    site.run(async |larder| {
        booted(larder).await;
        tokio::time::sleep(MINUTE).await;
        let catalog = &larder.context.catalog;
        catalog.fail_drive(DriveId(2), 1).await.unwrap();
        assert_eq!(catalog.replace_drive(DriveId(2), [5; 16]).await.unwrap(), Some(0));
        assert!(!catalog.initialised_drives().await.unwrap().contains(&DriveId(2)));
        assert_eq!(catalog.initialised_drives().await.unwrap().len(), 7);
    });
}
