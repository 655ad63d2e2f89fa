//! The intake's own log in front of the catalog, over drives in memory whose power fails: every acknowledged change is
//! there after every crash, and nothing else is. Each reboot finds a crash image of all drives of the pool, cut at the
//! current position of their logs, shelves and merges, with any part of the unsynced bytes.

use crate::site::{BUCKET, Ended, KIB, Larder, SECOND, Site};
use catalog::PutCondition;
use intake::medium::memory::{Fault, World};
use model::Rng;
use s3::store::{ObjectStore, ServiceError};
use server::admin::Admin;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Objects below this number of bytes are in the log; some of the objects that are put are longer.
const SMALL_BELOW_BYTES: u64 = 20 * KIB;
const KEYS: u64 = 40;

/// The serial number at each key; `None` if there is no object.
type Model = BTreeMap<String, Option<u64>>;

/// The acknowledged changes, and the change whose answer is still open.
#[derive(Clone, Default)]
struct History {
    acknowledged: Model,
    pending: Option<(String, Option<u64>)>,
    serial: u64,
}

impl History {
    /// Compares everything with the server's objects, which are the known state from then on.
    async fn compare(&mut self, larder: &Larder, what: &str) {
        let listed = larder.keys().await;
        let pending = self.pending.take();
        for number in 0..KEYS {
            let key = key(number);
            let found = match larder.get_retrying(&key).await {
                Ok(serial) => Some(serial),
                Err(ServiceError::NoSuchKey) => None,
                Err(error) => panic!("{what}: {key}: {error}"),
            };
            assert_eq!(listed.contains(&key), found.is_some(), "{what}: {key} is listed if it is there");
            let known = self.acknowledged.get(&key).copied().flatten();
            let may_be = pending.as_ref().filter(|(changed, _)| *changed == key).map(|(_, after)| *after);
            assert!(
                found == known || may_be == Some(found),
                "{what}: {key} is {found:?}, and {known:?} was acknowledged"
            );
            self.acknowledged.insert(key, found);
        }
    }

    /// Makes one change as a client that may never be answered.
    async fn change(history: &RefCell<Self>, larder: &Larder, rng: &mut Rng) {
        let key = key(rng.below(KEYS));
        if rng.below(5) == 0 {
            history.borrow_mut().pending = Some((key.clone(), None));
            let deleted = larder.service.delete(BUCKET, &key, PutCondition::None).await;
            assert!(deleted.is_ok() || matches!(deleted, Err(ServiceError::NoSuchKey)), "{deleted:?}");
        } else {
            let serial = {
                let mut history = history.borrow_mut();
                history.serial += 1;
                history.pending = Some((key.clone(), Some(history.serial)));
                history.serial
            };
            let bytes = if rng.below(8) == 0 { 20 * KIB + rng.below(9 * KIB) } else { rng.below(8 * KIB) };
            larder.put(&key, serial, bytes).await.unwrap();
        }
        let mut history = history.borrow_mut();
        if let Some((key, after)) = history.pending.take() {
            history.acknowledged.insert(key, after);
        }
    }
}

fn key(number: u64) -> String {
    format!("k/{number:03}")
}

/// A site with a pool of `drives` drives.
fn pooled(drives: usize, seed: u64) -> Site {
    let mut site = Site::nas8().with_own_log(World::new(drives), seed);
    (site.seed, site.small_below_bytes) = (seed, SMALL_BELOW_BYTES);
    site
}

/// Runs several lives of random changes, each of which ends with a crash at a random step. If there is a `fault`, a
/// drive of the pool gets it at some time in each life.
fn randomised_run(drives: usize, seed: u64, fault: Option<Fault>) {
    let (mut site, mut rng) = (pooled(drives, seed), Rng::new(seed));
    let history = RefCell::new(History::default());
    for life in 0..6 {
        site.power.fail_in(40 + rng.below(400));
        let what = format!("{drives} drives, seed {seed}, life {life}");
        let pool = site.pool();
        let ended = site.boot_and(async |larder| {
            // A crash in the middle of this keeps the state known before.
            let mut compared = history.borrow().clone();
            compared.compare(larder, &what).await;
            *history.borrow_mut() = compared;
            let broken = fault.map(|fault| (rng.below(60), rng.below(drives as u64) as usize, fault));
            for turn in 0.. {
                if let Some((_, drive, fault)) = broken.filter(|(at, ..)| *at == turn) {
                    pool.set_fault(drive, fault);
                }
                History::change(&history, larder, &mut rng).await;
                if rng.below(12) == 0 {
                    tokio::time::sleep(20 * SECOND).await;
                }
            }
        });
        assert!(matches!(ended, Ended::Crashed), "{what}");
        site.lose_power(&mut rng);
    }
    site.run(async |larder| {
        let mut compared = history.borrow().clone();
        compared.compare(larder, "in the end").await;
        assert!(larder.status().status().await.unwrap().warnings.iter().all(|warning| !warning.contains("lost")));
    });
    assert!(history.borrow().acknowledged.values().flatten().count() > 5, "something was stored");
}

#[test]
fn what_was_acknowledged_survives_crashes_at_random_steps_on_one_to_seven_drives() {
    for seed in 0..14 {
        randomised_run(1 + seed as usize % 7, seed, None);
    }
}

#[test]
fn with_two_copies_nothing_is_lost_with_a_drive_that_fails_fills_or_takes_no_writes() {
    for (seed, fault) in [Fault::Broken, Fault::Full, Fault::ReadOnly].into_iter().cycle().take(9).enumerate() {
        randomised_run(6 + seed % 2, 100 + seed as u64, Some(fault));
    }
}
