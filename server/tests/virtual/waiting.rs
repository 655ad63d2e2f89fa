//! How long a client waits for a group of a class whose other group always has requests.

use crate::site::BUCKET;
use crate::site::{HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site, retry_after_s};
use crate::steps::PoweredStore;
use catalog::{Catalog, Place};
use model::{ClassId, GroupId, RackSpec};
use s3::store::ObjectStore;
use server::object_service::ObjectService;
use server::world::Context;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A site whose drives move a MiB in seconds, so that a few MiB take as long as 1.5 GB do, with objects in at least two
/// groups of one class.
fn slow_site(wait_limit: Option<Duration>) -> Site {
    let mut site = Site::nas8();
    let mut draft = (*site.spec).clone();
    draft.profile.bytes_per_s = 700_000;
    site.spec = RackSpec::validated(draft).unwrap();
    site.policy.scheduler.wait_limit = wait_limit;
    site.policy.migration.pack_bytes = MIB;
    site.policy.starts_per_day = 10_000;
    site.spool_bytes = 16 * MIB;
    site
}

/// Two groups of one class, with the keys in each.
async fn two_groups(larder: &Larder) -> [Vec<String>; 2] {
    let mut keys: BTreeMap<(ClassId, GroupId), Vec<String>> = BTreeMap::new();
    for key in larder.keys().await {
        let group = larder.group_of(&key).await;
        let class = larder.ask(move |rack| rack.layout().class_of(group)).await;
        keys.entry((class, group)).or_default().push(key);
    }
    let mut sorted: Vec<_> = keys.into_iter().collect();
    sorted.sort_by_key(|((class, _), keys)| (*class, std::cmp::Reverse(keys.len())));
    let pair = sorted.windows(2).find(|pair| pair[0].0.0 == pair[1].0.0).expect("two groups of a class");
    [pair[0].1.clone(), pair[1].1.clone()]
}

/// The time that a client waits for a small object while four readers loop over the other group of the class, and the
/// forecast range.
fn beside_four_readers(wait_limit: Option<Duration>) -> (Duration, [Duration; 2]) {
    slow_site(wait_limit).run(async |larder| {
        larder.put_many("k", 24, 3 * MIB).await;
        larder.put_many("s", 6, 16 * KIB).await;
        larder.settle().await;
        let [many, few] = two_groups(larder).await;
        assert!(many.len() >= 3, "there is enough to loop over");
        let wanted = few[0].clone();
        let loops = (0..4_usize).map(|reader| {
            let many = &many;
            async move {
                for n in reader.. {
                    let _ = larder.get_retrying(&many[n % many.len()]).await;
                }
            }
        });
        let waits = async {
            tokio::time::sleep(2 * MINUTE).await;
            let group = larder.group_of(&wanted).await;
            let said = larder.world.ask(move |rack, now| rack.forecast(group, now)).await.unwrap();
            let asked_at = Instant::now();
            loop {
                match larder.get(&wanted).await {
                    Ok(_) => return (asked_at.elapsed(), [said.min, said.max]),
                    Err(error) => assert!(retry_after_s(&error).is_some(), "{error}"),
                }
                if asked_at.elapsed() > HOUR {
                    return (HOUR, [said.min, said.max]);
                }
                tokio::time::sleep(SECOND).await;
            }
        };
        tokio::select! {
            _ = futures::future::join_all(loops) => unreachable!("the readers never stop"),
            waited = waits => waited,
        }
    })
}

#[test]
fn a_small_read_does_not_starve_beside_four_readers_and_explain_says_so() {
    let (limited, [min, max]) = beside_four_readers(Some(2 * MINUTE));
    assert!(limited < 3 * MINUTE, "with one of 2 min it waits {limited:?}");
    assert!((min..=max).contains(&limited), "{min:?} to {max:?} was said of {limited:?}");
}

#[test]
fn a_get_asks_the_catalog_twice_wherever_the_object_lies() {
    let mut site = Site::nas8();
    let reads = Arc::new(AtomicU64::new(0));
    // A separate handle: the world asks the catalog as well, while groups wake.
    let (store, power, faults) = (site.catalog.clone(), site.power.clone(), site.store_faults.clone());
    let store = PoweredStore { store, power, reads: Arc::clone(&reads), faults };
    site.run(async |larder| {
        let catalog = Catalog::open(Arc::new(store)).await.unwrap();
        let context = Context { catalog, ..larder.context.clone() };
        let service = ObjectService::new(context, larder.world.clone(), HOUR).with_read_ahead(false);
        larder.put("o", 1, 3 * MIB).await.unwrap();
        let get = async || {
            let before = reads.load(Ordering::Relaxed);
            let body = service.get(BUCKET, "o", None).await.unwrap();
            assert_eq!(crate::site::read_out("o", body, None).await.unwrap(), 1);
            reads.load(Ordering::Relaxed) - before
        };
        assert_eq!(get().await, 2, "staged: where it lies, and whether it is known to be unreadable");
        larder.settle().await;
        assert!(matches!(larder.place("o").await, Place::Stored { .. }));
        assert_eq!(get().await, 2, "cold: where it lies, and whether it still does when its blob is held");
        assert_eq!(get().await, 2, "in the spool");
    });
}
