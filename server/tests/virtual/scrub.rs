//! Scrubs: rot on drives that no client reads is found within a period and repaired, over crashes as well; irreparable
//! damage is reported; and no group is woken for a scrub more often than allowed.

use crate::site::{Ended, Facts, HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site};
use crate::steps::next_step;
use catalog::{Blob, Place};
use disk::stack::{spare_of, stack_name};
use disk::{Buffer, Drive, FileName, MemoryDrive};
use engine::scrub::ScrubView;
use engine::{Event, ScrubPolicy};
use futures::FutureExt;
use model::Rng;
use server::offline_rack::OfflineRack;
use server::verify::{self, Ground, Options, Report};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

const DAY: Duration = Duration::from_hours(24);

/// A site whose blobs are read once in ten days.
fn site(name: &str) -> Site {
    let mut site = Site::new(name);
    site.policy.scrub = ScrubPolicy { period: Some(10 * DAY), ..ScrubPolicy::default() };
    site.policy.migration.pack_bytes = MIB;
    site
}

/// Puts objects of several packs, and waits until all are in the rack.
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

/// Requests a scrub of everything, and waits for its end.
async fn scrub(larder: &Larder) {
    larder.world.report(Event::ScrubRequested { group: None });
    larder.until("scrubbed", 20 * DAY, async || views(larder).await.iter().all(|view| view.pass.complete)).await;
    larder.until("asleep", 20 * DAY, async || larder.is_asleep().await).await;
}

/// The same as `larder verify --deep`.
async fn verify(larder: &Larder, site: &Facts) -> Report {
    let rack = larder.ask(|rack| rack.spec().clone()).await;
    let media = site.media.iter().map(|drive| Arc::clone(drive) as Arc<dyn Drive>).collect();
    let ground = Ground {
        drives: Some(Mutex::new(OfflineRack::over(&rack, None, media))),
        rack,
        rack_uuid: larder.context.rack_uuid,
        catalog: larder.context.catalog.clone(),
        staging: larder.context.staging.clone(),
        small: larder.context.small.as_ref().map(|small| Arc::clone(&small.files)),
        spool: None,
        serving: None,
    };
    verify::verify(&ground, Options { drives: true, deep: true }, &|_| {}).await.unwrap()
}

async fn is_clean(larder: &Larder, site: &Facts) {
    let report = verify(larder, site).await;
    assert_eq!((report.finding_count, report.findings), (0, Vec::new()));
    assert_eq!(spares(site), Vec::<FileName>::new());
    larder.audit(site).await;
}

/// Creates the file `name` with `bytes`.
async fn write(medium: &MemoryDrive, name: &FileName, bytes: &[u8]) {
    medium.create(name, bytes.len() as u64).await.unwrap();
    medium.write_at(name, 0, Buffer::copy_of(bytes)).await.unwrap();
    medium.sync(name).await.unwrap();
}

fn spares(site: &Facts) -> Vec<FileName> {
    let names = site.media.iter().flat_map(|drive| drive.list().now_or_never().unwrap().unwrap());
    names.filter(|name| spare_of(name).is_some()).collect()
}

#[test]
fn a_scrub_removes_what_a_rebuild_has_left_only_once_a_commit_shows_that_it_does_not_count() {
    let mut site = site("nas8");
    let (facts, catalog) = (site.facts(), site.catalog.clone());
    site.run(async |larder| {
        let keys = fill(larder).await;
        let blob = blobs(larder, &keys).await.remove(0);
        let first = blob.drives[0];
        let in_group = larder.ask(move |rack| {
            let group = rack.layout().group_of(first).unwrap();
            rack.layout().groups[group.index()].drives.clone()
        });
        let other = in_group.await.into_iter().find(|drive| !blob.drives.contains(drive)).unwrap();
        // A rebuild has written it there, and the commit that counts it there has not been answered.
        assert!(larder.context.catalog.begin_rebuild(&blob, 0, other).await.unwrap());
        let name = stack_name(blob.blob, 0);
        let stack = facts.media[first.index()].contents(&name).unwrap();
        let medium = &facts.media[other.index()];
        write(medium, &name, &stack).await;
        let left = || medium.contents_len(&name);
        catalog.set_full(true);
        scrub(larder).await;
        assert_eq!(left(), Some(stack.len() as u64), "it may count at the next start");
        catalog.set_full(false);
        scrub(larder).await;
        assert_eq!(left(), None, "it does not count");
        is_clean(larder, &facts).await;
    });
}

/// Kinds of damage to a stack.
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
                damage(&facts, blob, number % blob.drives.len(), how);
                damaged += 1;
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

#[test]
fn a_scrub_waits_for_the_repairs_that_it_asked_for_where_the_queue_takes_no_more() {
    let mut site = site("pelican-mini");
    site.policy.scheduler.queue_depth = 8;
    site.policy.migration.pack_bytes = 64 * KIB;
    let facts = site.facts();
    site.run(async |larder| {
        let keys = larder.put_many("k", 120, 40 * KIB).await;
        larder.settle().await;
        let all = blobs(larder, &keys).await;
        for blob in &all {
            damage(&facts, blob, 0, Damage::Gone);
            damage(&facts, blob, 1, Damage::Gone);
        }
        scrub(larder).await;
        is_clean(larder, &facts).await;
    });
}

#[test]
fn a_crash_at_any_step_of_a_repair_loses_nothing_and_the_next_scrub_goes_on() {
    let torn = &mut Rng::new(11);
    let mut crashed = 0;
    for (how, stride) in [(Damage::Gone, 5), (Damage::Header, 7), (Damage::Cut, 7)] {
        let mut step = 1;
        loop {
            let mut site = site("pelican-mini");
            let facts = site.facts();
            let keys = site.run(async |larder| {
                let keys = larder.put_many("k", 3, 300 * KIB).await;
                larder.settle().await;
                let all = blobs(larder, &keys).await;
                all.iter().enumerate().for_each(|(number, blob)| damage(&facts, blob, number, how));
                keys
            });
            site.power.fail_in(step);
            let ended = site.boot_and(async |larder| scrub(larder).await);
            if matches!(ended, Ended::Finished(())) {
                break;
            }
            crashed += 1;
            site.lose_power(torn);
            site.run(async |larder| {
                scrub(larder).await;
                is_clean(larder, &facts).await;
                for key in &keys {
                    assert_eq!(larder.get_retrying(key).await.unwrap(), 1, "{how:?} at step {step}");
                }
            });
            step = next_step(step, stride);
        }
    }
    println!("{crashed} crashes");
    assert!(crashed > 30, "{crashed} crashes");
}

#[test]
fn another_racks_file_under_the_name_of_a_stack_is_left_where_it_is() {
    let mut site = site("pelican-mini");
    let facts = site.facts();
    site.run(async |larder| {
        let keys = fill(larder).await;
        let all = blobs(larder, &keys).await;
        // A whole stack of another blob, which identifies itself as such.
        let (of, from) = (&all[0], &all[1]);
        let (name, other) = (stack_name(of.blob, 2), stack_name(from.blob, 3));
        let foreign = facts.media[from.drives[3].index()].contents(&other).unwrap();
        let medium = &facts.media[of.drives[2].index()];
        assert!(medium.lose_file(&name));
        write(medium, &name, &foreign).await;
        scrub(larder).await;
        assert_eq!(medium.contents(&name).unwrap(), foreign, "it is another's, and nobody touches it");
        assert_eq!(spares(&facts), Vec::<FileName>::new(), "what was written beside it is removed");
        let found = larder.context.catalog.scrub_findings(None, 9).await.unwrap().items;
        let damaged: Vec<_> = found.iter().map(|found| (found.blob, found.damaged[0].index)).collect();
        assert_eq!(damaged, [(of.blob, 2)], "it is known to be damaged");
        for key in &keys {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
    });
}

#[test]
fn a_stack_that_cannot_show_whose_it_is_stays_and_nothing_is_left_beside_it() {
    let mut site = site("pelican-mini");
    let facts = site.facts();
    site.run(async |larder| {
        let keys = fill(larder).await;
        let of = blobs(larder, &keys).await.remove(0);
        let (medium, name) = (&facts.media[of.drives[2].index()], stack_name(of.blob, 2));
        let bytes = medium.contents_len(&name).unwrap();
        // Two of the three blocks cannot be read, and the damaged third one does not identify the stack.
        medium.make_unreadable(&name, 100, 1);
        medium.make_unreadable(&name, bytes - 4_000, 1);
        damage(&facts, &of, 2, Damage::ChecksumPage);
        for _ in 0..2 {
            scrub(larder).await;
            assert_eq!(medium.contents_len(&name), Some(bytes), "nobody knows whose it is, and nobody touches it");
            assert_eq!(spares(&facts), Vec::<FileName>::new(), "what was written beside it is removed");
            let found = larder.context.catalog.scrub_findings(None, 9).await.unwrap().items;
            let damaged: Vec<_> = found.iter().map(|found| (found.blob, found.damaged[0].index)).collect();
            assert_eq!(damaged, [(of.blob, 2)], "it is known to be damaged");
        }
        for key in &keys {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
    });
}

#[test]
fn a_stack_under_the_header_of_another_is_replaced_and_under_another_footer_as_well() {
    let mut site = site("pelican-mini");
    let facts = site.facts();
    site.run(async |larder| {
        let keys = fill(larder).await;
        let all = blobs(larder, &keys).await;
        let from = &all[1];
        // A write meant for another stack lands on the header of one stack and on the footer of another; and on the
        // header of a stack whose footer has rotted, and the other way round.
        for (of, index, at_end, rots) in [
            (&all[0], 2_u8, false, false),
            (&all[0], 4, true, false),
            (&all[2], 1, false, true),
            (&all[2], 3, true, true),
        ] {
            let (name, other) = (stack_name(of.blob, index), stack_name(from.blob, 3));
            let strayed = facts.media[from.drives[3].index()].contents(&other).unwrap();
            let medium = &facts.media[of.drives[usize::from(index)].index()];
            let end = medium.contents(&name).unwrap().len();
            let (block, at) =
                if at_end { (&strayed[strayed.len() - 4096..], end - 4096) } else { (&strayed[..4096], 0) };
            medium.write_at(&name, at as u64, Buffer::copy_of(block)).await.unwrap();
            medium.sync(&name).await.unwrap();
            if rots {
                medium.flip_bit(&name, if at_end { 100 } else { end as u64 - 4_000 }, 1);
            }
        }
        scrub(larder).await;
        is_clean(larder, &facts).await;
    });
}

#[test]
fn what_no_code_can_repair_is_said_and_harms_nothing_else() {
    let mut site = site("pelican-mini");
    let facts = site.facts();
    site.run(async |larder| {
        let keys = fill(larder).await;
        let all = blobs(larder, &keys).await;
        // k = 4, r = 2: three fragments of the first stripe are gone.
        for index in [0, 2, 5] {
            damage(&facts, &all[0], index, Damage::Fragment);
        }
        damage(&facts, &all[1], 1, Damage::Gone);
        let untouched = facts.media_bytes();
        scrub(larder).await;
        assert!(facts.media_bytes() > untouched, "the stack that was gone is back");
        let found = larder.context.catalog.scrub_findings(None, 9).await.unwrap().items;
        let lost: Vec<_> = found.iter().filter(|found| !found.lost.is_empty()).collect();
        assert_eq!(lost.iter().map(|found| found.blob).collect::<Vec<_>>(), [all[0].blob]);
        let names = larder.status().scrub_lost().await.unwrap();
        let bytes = |key: &str| if key.starts_with("small") { 200 * KIB } else { 3 * MIB + 77 };
        let mut named = BTreeSet::new();
        for key in &keys {
            let read = larder.get_retrying(key).await;
            let object = server::report::LostObject {
                bucket: crate::site::BUCKET.into(),
                key: key.clone(),
                bytes: bytes(key),
                blob: all[0].blob.to_string(),
            };
            assert_eq!(read.is_err(), names.contains(&object), "{key}: what cannot be read is named, and nothing else");
            named.extend(read.is_err().then(|| key.clone()));
        }
        assert!(!named.is_empty() && named.len() < keys.len(), "{named:?}");
        let views = views(larder).await;
        assert_eq!(views.iter().map(|view| view.pass.counts.lost_blobs).sum::<u64>(), 1);
        // A repeated flip restores the fragment, and with it the blob.
        damage(&facts, &all[0], 5, Damage::Fragment);
        scrub(larder).await;
        is_clean(larder, &facts).await;
    });
}

#[test]
fn a_pause_outlives_a_restart_and_a_pass_goes_on_where_it_was() {
    let mut site = site("nas8");
    site.policy.scrub.step_bytes = 256 * KIB;
    let facts = site.facts();
    let done = site.run(async |larder| {
        larder.put_many("k", 60, 300 * KIB).await;
        larder.settle().await;
        larder.world.report(Event::ScrubRequested { group: None });
        while !views(larder).await.iter().any(|view| view.pass.counts.blobs == 2 && !view.pass.complete) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        larder.status().pause_scrub(true).await.unwrap();
        larder.until("asleep", DAY, async || larder.is_asleep().await).await;
        views(larder).await.into_iter().find(|view| view.pass.counts.blobs > 1 && !view.pass.complete).unwrap()
    });
    let now = async |larder: &Larder| views(larder).await[done.group.index()].pass;
    // The first pass, at the first boot, covered nothing.
    let last = async |larder: &Larder| now(larder).await.last.map(|last| last.counts);
    assert!((2..4).contains(&done.pass.counts.blobs), "it stopped where it was");
    site.run(async |larder| {
        assert!(larder.ask(engine::Rack::is_scrub_paused).await);
        let starts = larder.starts();
        tokio::time::sleep(30 * DAY).await;
        assert_eq!((now(larder).await.counts, larder.starts()), (done.pass.counts, starts), "nothing goes on");
        larder.status().pause_scrub(false).await.unwrap();
        larder.until("scrubbed", 20 * DAY, async || last(larder).await.is_some_and(|last| last.blobs > 0)).await;
        let last = last(larder).await.unwrap();
        let group = done.group;
        let blobs = blobs(larder, &larder.keys().await).await.iter().filter(|blob| blob.group == group).count();
        assert_eq!(last.blobs, blobs as u64, "it went on where it was, and each blob counts once");
        larder.until("asleep", DAY, async || larder.is_asleep().await).await;
        is_clean(larder, &facts).await;
    });
}

/// The completed passes of each group over `days` days, and the wakes that scrubs caused.
async fn over(larder: &Larder, days: u32, visited: &[String]) -> (Vec<u64>, u64) {
    let mut completed = vec![BTreeSet::new(); views(larder).await.len()];
    for day in 0..days {
        for view in views(larder).await {
            let last = view.pass.last.map(|last| last.ended.as_nanos());
            completed[view.group.index()].extend(last);
            assert!(!view.overdue, "day {day}: {view:?}");
        }
        for key in visited.iter().skip(day as usize % 2).step_by(2) {
            larder.get_retrying(key).await.unwrap();
        }
        tokio::time::sleep(DAY).await;
    }
    (completed.iter().map(|passes| passes.len() as u64).collect(), larder.ask(|rack| rack.stats().scrub_wakes).await)
}

#[test]
fn each_group_is_scrubbed_once_in_a_period_and_woken_for_it_once_at_most() {
    let mut site = site("pelican-mini");
    let (idle, own) = site.run(async |larder| {
        fill(larder).await;
        over(larder, 65, &[]).await
    });
    let groups = idle.len() as u64;
    // A group that holds nothing completes at once; the seventh period of the others is not over.
    assert!(idle.iter().all(|passes| (6..=7).contains(passes)), "seven periods begin: {idle:?}");
    assert!(own > 0 && own <= 6 * groups, "{own} wakes for {groups} groups in six periods");
    // Where clients wake the groups anyway, none is woken for a scrub.
    let mut site = self::site("pelican-mini");
    // The spool keeps little of what was read, so that the next read needs its group again.
    (site.spool_bytes, site.read_ahead) = (4 * MIB, false);
    let (visited, own) = site.run(async |larder| {
        let keys = fill(larder).await;
        over(larder, 65, &keys).await
    });
    assert!(visited.iter().all(|passes| (6..=7).contains(passes)), "seven periods begin: {visited:?}");
    println!("woken for scrubs alone: {own} times beside clients");
    assert!(own < groups, "groups that clients wake need no wakes of their own: {own}");
}

#[test]
fn a_drive_that_is_away_is_counted_and_the_rest_is_scrubbed() {
    let mut site = site("pelican-mini");
    let facts = site.facts();
    site.run(async |larder| {
        let keys = fill(larder).await;
        let all = blobs(larder, &keys).await;
        let away = all[0].drives[1];
        damage(&facts, &all[0], 3, Damage::Gone);
        larder.rack.pull(away);
        scrub(larder).await;
        let unread: u64 = views(larder).await.iter().map(|view| view.pass.counts.unread_stacks).sum();
        assert_eq!(unread, all.iter().filter(|blob| blob.drives.contains(&away)).count() as u64);
        larder.rack.plug(away);
        tokio::time::sleep(MINUTE + SECOND).await;
        scrub(larder).await;
        is_clean(larder, &facts).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
    });
}

#[test]
fn a_blob_of_which_too_few_drives_are_there_is_named_and_read_once_they_are_back() {
    for restarts in [false, true] {
        let mut site = site("nas8");
        let facts = site.facts();
        let all = site.run(async |larder| {
            let keys = fill(larder).await;
            let all = blobs(larder, &keys).await;
            let away = [all[0].drives[0], all[0].drives[1]];
            damage(&facts, &all[0], 2, Damage::Fragment);
            for drive in away {
                larder.rack.pull(drive);
            }
            scrub(larder).await;
            let lacks = |blob: &&Blob| away.iter().all(|drive| blob.drives.contains(drive));
            let unread: BTreeSet<String> = all.iter().filter(lacks).map(|blob| blob.blob.to_string()).collect();
            let report = larder.status().scrub_report().await.unwrap();
            let named: BTreeSet<String> = report.unread.into_iter().map(|unread| unread.blob).collect();
            assert_eq!((named, report.status.complete_groups), (unread, 2), "the passes are complete without them");
            if !restarts {
                for drive in away {
                    larder.rack.plug(drive);
                }
                is_read_again(larder, &facts, &all[0]).await;
            }
            all
        });
        if restarts {
            site.run(async |larder| {
                assert!(!larder.status().scrub_report().await.unwrap().unread.is_empty(), "a restart knows");
                is_read_again(larder, &facts, &all[0]).await;
            });
        }
    }
}

/// Asserts that blobs that were put off are read within two days, though no pass is due, and that this found `damaged`.
async fn is_read_again(larder: &Larder, facts: &Facts, damaged: &Blob) {
    let none_left = async || views(larder).await.iter().all(|view| view.put_off_blobs == 0);
    larder.until("read again", 2 * DAY, none_left).await;
    larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
    let found = larder.context.catalog.scrub_finding(damaged.blob).await.unwrap().unwrap();
    assert!(found.damaged.is_empty() && found.repaired == [2], "{found:?}");
    assert!(views(larder).await.iter().all(|view| view.pass.complete), "no pass waited for it");
    is_clean(larder, facts).await;
}
