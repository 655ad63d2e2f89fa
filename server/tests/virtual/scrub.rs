//! Scrubs: what rots on drives that nobody reads is found within a period and put in order, over crashes as well; what
//! cannot be is said; and no group is woken for it more often than it may be.

use crate::site::{Ended, Facts, HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site};
use catalog::{Blob, Place};
use disk::stack::{spare_of, stack_name};
use disk::{Drive, FileName};
use engine::scrub::ScrubView;
use engine::{Event, ScrubPolicy};
use futures::FutureExt;
use model::{GroupId, Rng};
use server::verify::{self, FindingKind, Ground, Options, Report};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);

/// A site whose blobs are read once in ten days.
fn site(name: &str) -> Site {
    let mut site = Site::new(name);
    site.policy.scrub = ScrubPolicy { period: Some(10 * DAY), ..ScrubPolicy::default() };
    site.policy.migration.pack_bytes = MIB;
    site
}

/// Objects of several packs, all in the rack.
async fn fill(larder: &Larder) -> Vec<String> {
    let mut keys = larder.put_many("small", 12, 200 * KIB).await;
    keys.extend(larder.put_many("large", 3, 3 * MIB + 77).await);
    larder.settle().await;
    keys
}

async fn blobs(larder: &Larder, keys: &[String]) -> Vec<Blob> {
    let mut blobs = Vec::new();
    for key in keys {
        let Place::Stored { blob, .. } = larder.place(key).await else { panic!("{key} is staged") };
        blobs.push(larder.context.catalog.blob(blob).await.unwrap().unwrap());
    }
    blobs.dedup_by_key(|blob| blob.blob);
    blobs
}

async fn views(larder: &Larder) -> Vec<ScrubView> {
    larder.world.ask(|rack, now| rack.scrubs(now).collect()).await.unwrap()
}

/// Asks for a scrub of everything, and waits for its end.
async fn scrub(larder: &Larder) {
    larder.world.report(Event::ScrubRequested { group: None });
    larder.until("scrubbed", 20 * DAY, async || views(larder).await.iter().all(|view| view.pass.complete)).await;
    larder.until("asleep", 20 * DAY, async || larder.is_asleep().await).await;
}

/// The same as `larder verify --deep`.
async fn verify(larder: &Larder, site: &Facts) -> Report {
    let ground = Ground {
        rack: larder.ask(|rack| rack.spec().clone()).await,
        rack_uuid: larder.context.rack_uuid,
        catalog: larder.context.catalog.clone(),
        staged: Arc::clone(&site.staged) as Arc<dyn Drive>,
        small: larder.context.small.as_ref().map(|small| Arc::clone(&small.files)),
        spool: Arc::new(disk::MemoryDrive::new(MIB)),
        drives: site.media.iter().map(|drive| Ok(Arc::clone(drive) as Arc<dyn Drive>)).collect(),
    };
    verify::verify(&ground, Options { drives: true, deep: true }, &|_| {}).await.unwrap()
}

async fn is_clean(larder: &Larder, site: &Facts) {
    let report = verify(larder, site).await;
    assert_eq!((report.finding_count, report.findings), (0, Vec::new()));
    assert_eq!(spares(site), Vec::<FileName>::new());
    larder.audit(site).await;
}

fn spares(site: &Facts) -> Vec<FileName> {
    let names = site.media.iter().flat_map(|drive| drive.list().now_or_never().unwrap().unwrap());
    names.filter(|name| spare_of(name).is_some()).collect()
}

/// Ways in which a stack may be found other than it was written.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Fragment,
    ChecksumPage,
    Header,
    Footer,
    Cut,
    Gone,
}

const DAMAGES: [Damage; 6] =
    [Damage::Fragment, Damage::ChecksumPage, Damage::Header, Damage::Footer, Damage::Cut, Damage::Gone];

fn damage(site: &Facts, blob: &Blob, index: usize, how: Damage) {
    let (medium, name) = (&site.media[blob.drives[index].index()], stack_name(blob.blob, index as u8));
    let bytes = medium.contents_len(&name).unwrap();
    match how {
        Damage::Fragment => medium.flip_bit(&name, 5_000, 4),
        Damage::ChecksumPage => medium.flip_bit(&name, bytes - 8_000, 1),
        Damage::Header => medium.flip_bit(&name, 100, 1),
        Damage::Footer => medium.flip_bit(&name, bytes - 4_000, 1),
        Damage::Cut => medium.cut_file(&name, bytes / 2),
        Damage::Gone => assert!(medium.lose_file(&name)),
    }
}

#[test]
fn every_kind_of_damage_is_found_and_repaired_where_it_lies() {
    for name in ["nas8", "pelican-mini"] {
        let mut site = site(name);
        let facts = site.facts();
        site.run(async |larder| {
            let keys = fill(larder).await;
            let all = blobs(larder, &keys).await;
            let mut damaged = 0;
            for (number, blob) in all.iter().enumerate() {
                let how = DAMAGES[number % DAMAGES.len()];
                let before = facts.media.iter().map(|drive| drive.names().len()).collect::<Vec<_>>();
                damage(&facts, blob, number % blob.drives.len(), how);
                damaged += 1;
                assert!(before.len() == facts.media.len());
            }
            assert!(!verify(larder, &facts).await.clean, "the damage is seen");
            scrub(larder).await;
            let views = views(larder).await;
            let sum = |count: fn(&ScrubView) -> u64| views.iter().map(count).sum::<u64>();
            assert_eq!(sum(|view| view.pass.counts.blobs), all.len() as u64, "{name}: each blob once");
            assert_eq!(sum(|view| view.pass.counts.damaged_stacks), damaged, "{name}");
            assert_eq!(sum(|view| view.pass.counts.repaired_stacks), damaged, "{name}");
            let found = larder.context.catalog.scrub_findings(None, 1_000).await.unwrap().items;
            assert_eq!(found.len() as u64, damaged, "{name}: a record for each blob");
            assert!(found.iter().all(|found| found.damaged.is_empty() && found.repaired.len() == 1), "{found:?}");
            is_clean(larder, &facts).await;
            scrub(larder).await;
            let found = larder.context.catalog.scrub_findings(None, 1_000).await.unwrap().items;
            assert_eq!(found, [], "{name}: what was repaired is sound, and forgotten");
            for key in &keys {
                assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
            }
        });
    }
}
