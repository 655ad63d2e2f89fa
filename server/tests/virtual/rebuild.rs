//! Drives that fail permanently: their stacks are rebuilt while everything stays readable, over crashes as well, and
//! afterwards the same number of drives may die as before.

use crate::site::{BUCKET, Ended, Facts, HOUR, KIB, Larder, MIB, SECOND, Site, content};
use crate::steps::next_step;
use catalog::{Blob, Member, Place};
use disk::label::{self, Device, DriveLabel, DriveUuid, Label};
use disk::stack::{stack_name, stack_of};
use disk::{Drive, MemoryCall};
use engine::{DrivePhase, PriorityClass};
use futures::TryStreamExt;
use model::{ClassId, DriveId, GroupId, Rng};
use server::admin::Admin;
use server::condition::Condition;
use server::replace::Taken;
use server::world::MemoryReads;

/// The same as `larder drive fail`.
pub(crate) async fn fail(larder: &Larder, drive: DriveId) {
    let report = larder.status().fail_drive(drive.0, true).await.unwrap().unwrap();
    assert_eq!((report.drive.drive, report.drive.state.as_str()), (drive.0, "failed"));
}

#[test]
fn a_drive_that_was_just_given_up_is_not_said_to_stay_awake() {
    Site::new("pelican-mini").run(async |larder| {
        let keys = fill(larder).await;
        let drive = fullest(larder, &keys).await;
        let held = blobs(larder, &keys).await.iter().position(|blob| blob.drives.contains(&drive)).unwrap();
        all_read(larder, &keys[held..=held]).await;
        assert_eq!(larder.ask(move |rack| rack.drive_phase(drive)).await, DrivePhase::Ready, "its group was woken");
        fail(larder, drive).await;
        assert_eq!(larder.ask(engine::Rack::unstopped_count).await, 1, "it is stopped with its group");
        let status = larder.status().status().await.unwrap();
        assert!(!status.conditions.contains(&Condition::DriveUnstopped), "{:?}", status.warnings);
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        assert_eq!(larder.ask(engine::Rack::unstopped_count).await, 0);
    });
}

pub(crate) async fn blobs(larder: &Larder, keys: &[String]) -> Vec<Blob> {
    let mut blobs = Vec::new();
    for key in keys {
        let Place::Stored { blob, .. } = larder.place(key).await else { panic!("{key} is staged") };
        blobs.push(larder.context.catalog.blob(blob).await.unwrap().unwrap());
    }
    blobs
}

/// The drive that most of the objects depend on.
pub(crate) async fn fullest(larder: &Larder, keys: &[String]) -> DriveId {
    let blobs = blobs(larder, keys).await;
    let on = |drive: DriveId| blobs.iter().filter(|blob| blob.drives.contains(&drive)).count();
    (0..larder.context.drives.len() as u32).map(DriveId).max_by_key(|drive| on(*drive)).unwrap()
}

pub(crate) async fn left_bytes(larder: &Larder, drive: DriveId) -> u64 {
    larder.ask(move |rack| rack.rebuilds().find(|view| view.drive == drive).map_or(0, |view| view.left_bytes)).await
}

async fn rebuilt(larder: &Larder, drive: DriveId) {
    larder.until("rebuilt", 48 * HOUR, async || left_bytes(larder, drive).await == 0).await;
    let on_drive = larder.context.catalog.on_drive_page(drive, None, 9).await.unwrap();
    assert!(on_drive.blobs.is_empty(), "the catalog counts nothing on it");
}

pub(crate) async fn all_read(larder: &Larder, keys: &[String]) {
    for key in keys {
        assert_eq!(larder.get_retrying(key).await.unwrap(), 1, "{key}");
    }
}

/// Puts objects of several packs, and waits until all are in the rack.
pub(crate) async fn fill(larder: &Larder) -> Vec<String> {
    let mut keys = larder.put_many("small", 20, 200 * KIB).await;
    keys.extend(larder.put_many("large", 6, 3 * MIB + 77).await);
    larder.settle().await;
    keys
}

#[test]
fn everything_reads_before_during_and_after_a_rebuild_and_when_r_more_drives_die() {
    for (name, r, pulled) in [("nas8", 1, true), ("nas8", 1, false), ("pelican-mini", 2, true)] {
        let mut site = Site::new(name);
        let facts = site.facts();
        site.run(async |larder| {
            let keys = fill(larder).await;
            all_read(larder, &keys).await;
            let drive = fullest(larder, &keys).await;
            if pulled {
                larder.rack.pull(drive);
            }
            fail(larder, drive).await;
            assert!(left_bytes(larder, drive).await > 0);
            all_read(larder, &keys).await;
            rebuilt(larder, drive).await;
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
            larder.audit(&facts).await;
        });
        // The spool forgets at a boot, so that what is read comes from the drives.
        site.run(async |larder| {
            let keys = larder.keys().await;
            assert!(larder.context.catalog.failed_drives().await.unwrap().len() == 1, "a restart knows");
            let first = blobs(larder, &keys).await.swap_remove(0);
            for drive in &first.drives[..r] {
                larder.rack.pull(*drive);
            }
            all_read(larder, &keys).await;
        });
    }
}

/// The blocks of a stack that are no header, page or footer: those name the header, which names the drives.
fn fragments(stack: &[u8]) -> impl Iterator<Item = &[u8]> {
    let magics: [&[u8]; 3] = [b"LARDSTCK", b"LARDSUMS", b"LARDFOOT"];
    stack.chunks(4096).filter(move |block| !magics.contains(&&block[..8]))
}

#[test]
fn a_rebuilt_stack_is_the_lost_one_but_for_the_blocks_that_say_where_it_lies() {
    for name in ["nas8", "pelican-mini"] {
        let mut site = Site::new(name);
        let facts = site.facts();
        site.run(async |larder| {
            let keys = fill(larder).await;
            let before = blobs(larder, &keys).await;
            let drive = fullest(larder, &keys).await;
            fail(larder, drive).await;
            rebuilt(larder, drive).await;
            let after = blobs(larder, &keys).await;
            for (was, is) in before.iter().zip(&after).filter(|(was, _)| was.drives.contains(&drive)) {
                let index = was.drives.iter().position(|other| *other == drive).unwrap();
                let contents =
                    |drive: DriveId| facts.media[drive.index()].contents(&stack_name(was.blob, index as u8)).unwrap();
                let (lost, new) = (contents(drive), contents(is.drives[index]));
                assert_eq!(lost.len(), new.len());
                assert!(fragments(&lost).eq(fragments(&new)), "{} of {index}", was.blob);
            }
        });
    }
}

#[test]
fn a_survivor_whose_bits_rot_is_made_up_for_and_what_no_code_can_repair_is_said() {
    let mut site = Site::new("pelican-mini");
    let facts = site.facts();
    let (drive, keys) = site.run(async |larder| {
        let keys = fill(larder).await;
        (fullest(larder, &keys).await, keys)
    });
    // k = 4, r = 2: with one stack lost, one more bad one can be made up for, and two cannot.
    let blob = site.run(async |larder| {
        let all = blobs(larder, &keys).await;
        all.into_iter().find(|blob| blob.drives.contains(&drive)).unwrap()
    });
    let survivors: Vec<usize> = (0..6).filter(|index| blob.drives[*index] != drive).collect();
    let rot = |index: usize| {
        facts.media[blob.drives[index].index()].flip_bit(&stack_name(blob.blob, index as u8), 10_000, 4);
    };
    rot(survivors[0]);
    rot(survivors[1]);
    site.run(async |larder| {
        fail(larder, drive).await;
        larder
            .until("through with what can be rebuilt", 48 * HOUR, async || {
                let view = larder.ask(move |rack| rack.rebuilds().find(|view| view.drive == drive)).await.unwrap();
                view.lost_blobs == 1 && view.under_way == 0
            })
            .await;
        assert_eq!(left_bytes(larder, drive).await, blob.stack_bytes, "all but that blob");
    });
    // With one of the two restored, the blob can be rebuilt again.
    rot(survivors[1]);
    site.run(async |larder| {
        rebuilt(larder, drive).await;
        all_read(larder, &keys).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(&facts).await;
    });
}

#[test]
fn a_crash_at_any_step_of_a_rebuild_loses_nothing_and_the_next_start_goes_on() {
    let torn = &mut Rng::new(5);
    let mut crashed = 0;
    for (name, stride) in [("nas8", 5), ("pelican-mini", 17)] {
        let mut step = 1;
        loop {
            let mut site = Site::new(name);
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
                fail(larder, drive).await;
                rebuilt(larder, drive).await;
            });
            if matches!(ended, Ended::Finished(())) {
                break;
            }
            crashed += 1;
            site.lose_power(torn);
            goes_on(&mut site, &facts, drive, &keys);
            step = next_step(step, stride);
        }
    }
    println!("{crashed} crashes");
    assert!(crashed > 20, "{crashed} crashes");
}

/// Asserts after a crash that everything reads, that the rebuild ends, and that nothing is left over.
fn goes_on(site: &mut Site, facts: &Facts, drive: DriveId, keys: &[String]) {
    site.run(async |larder| {
        all_read(larder, keys).await;
        fail(larder, drive).await; // it may not have been recorded before the crash
        rebuilt(larder, drive).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(facts).await;
    });
    site.run(async |larder| {
        let dead = blobs(larder, keys).await[0].drives[0];
        larder.rack.pull(dead);
        all_read(larder, keys).await;
    });
}

#[test]
fn objects_may_be_written_overwritten_and_deleted_while_a_drive_is_rebuilt() {
    let mut site = Site::new("pelican-mini");
    site.policy.evacuate_permille = 500;
    let facts = site.facts();
    site.run(async |larder| {
        let keys = larder.put_many("k", 40, MIB).await;
        larder.settle().await;
        let drive = fullest(larder, &keys).await;
        fail(larder, drive).await;
        for (n, key) in keys.iter().enumerate() {
            match n % 3 {
                0 => larder.put(key, 2, 500 * KIB).await.unwrap(),
                1 => larder.delete(key).await,
                _ => assert_eq!(larder.get_retrying(key).await.unwrap(), 1),
            }
            tokio::time::sleep(3 * SECOND).await;
        }
        larder.settle().await;
        rebuilt(larder, drive).await;
        larder.settle().await;
        larder.audit(&facts).await;
        for (n, key) in keys.iter().enumerate().filter(|(n, _)| n % 3 != 1) {
            assert_eq!(larder.get_retrying(key).await.unwrap(), if n % 3 == 0 { 2 } else { 1 });
        }
    });
}

/// Puts another drive, with nothing on it, in the place of `drive`, which failed.
async fn replace(larder: &Larder, drive: DriveId, facts: &Facts) {
    let medium = &facts.media[drive.index()];
    for name in medium.list().await.unwrap() {
        medium.remove(&name).await.unwrap();
    }
    let uuid = DriveUuid([9 + drive.0 as u8; 16]);
    let label = Label { rack: larder.context.rack_uuid, rack_name: "nas8".to_owned(), drive };
    label::write(&**medium, &DriveLabel { label, uuid, labelled_ms: 0, device: Device::None }).await.unwrap();
    let replaced = async || {
        let labelled = async { Ok(Taken::Another(uuid)) };
        larder.status().replace_with(drive, labelled).await.is_ok()
    };
    larder.until("replaced", 48 * HOUR, replaced).await;
}

/// It may be the last one that is left: its blob is read from it even if the catalog does not count it.
#[test]
fn a_stack_that_a_rebuild_left_in_its_place_is_looked_for_before_anything_is_written_over_it() {
    let mut site = Site::nas8();
    let (facts, catalog) = (site.facts(), site.catalog.clone());
    let (drive, other) = site.run(async |larder| {
        let keys = larder.put_many("k", 1, 300 * KIB).await;
        larder.settle().await;
        let blob = blobs(larder, &keys).await.swap_remove(0);
        let [drive, other] = [blob.drives[0], blob.drives[1]];
        let members = larder.ask(move |rack| rack.layout().groups[blob.group.index()].drives.clone()).await;
        // Its own place is the only one for it.
        members.iter().filter(|member| !blob.drives.contains(member)).for_each(|member| larder.rack.pull(*member));
        fail(larder, drive).await;
        replace(larder, drive, &facts).await;
        // It is written, and cannot be counted.
        let (name, full) = (stack_name(blob.blob, 0), catalog.clone());
        let medium = &facts.media[drive.index()];
        let written = MemoryCall::Sync(name.clone());
        medium.hang(move |call| {
            if *call == written {
                full.set_full(true);
            }
            None
        });
        larder.until("written", 48 * HOUR, async || medium.contents(&name).is_some()).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        medium.stop_hanging();
        assert!(left_bytes(larder, drive).await > 0, "it does not count");
        assert!(facts.media[other.index()].lose_file(&stack_name(blob.blob, 1)));
        (drive, other)
    });
    catalog.set_full(false);
    site.run(async |larder| {
        larder.until("counted", 48 * HOUR, async || left_bytes(larder, drive).await == 0).await;
        let lost = larder.context.catalog.lost_page(drive, None, 9).await.unwrap();
        assert!(lost.blobs.is_empty());
        all_read(larder, &larder.keys().await).await;
        let names = facts.media[other.index()].list().await.unwrap();
        assert!(!names.iter().any(|name| stack_of(name).is_some()), "it was read without the stack that is lost");
    });
}

/// A job opens an object and may read it much later: it was paused, or waited for drives that were away.
#[test]
fn background_work_reads_a_blob_where_it_lies_by_then() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        larder.put("input", 1, 300 * KIB).await.unwrap();
        larder.settle().await;
        let Place::Stored { offset, .. } = larder.place("input").await else { panic!("it is in the rack") };
        let before = blobs(larder, &["input".to_owned()]).await.swap_remove(0);
        for drive in &before.drives[..2] {
            fail(larder, *drive).await;
            rebuilt(larder, *drive).await;
            replace(larder, *drive, &facts).await;
        }
        let after = larder.context.catalog.blob(before.blob).await.unwrap().unwrap();
        assert!((0..2).all(|index| before.drives[index] != after.drives[index]), "two of three stacks have moved");
        let reads = MemoryReads::new(larder.context.clone(), larder.world.clone());
        let range = offset..offset + 300 * KIB;
        let pieces: Vec<_> = reads.stream(before, range, PriorityClass::Background).try_collect().await.unwrap();
        assert!(pieces.concat() == content("input", 1, 300 * KIB), "all of it, as it was put");
    });
}

/// The engine may count too few bytes on a drive: here it does not know the blob at all.
#[test]
fn a_drive_is_not_given_up_where_only_the_catalog_knows_what_another_one_has_lost() {
    Site::nas8().run(async |larder| {
        larder.put("o", 1, 30 * KIB).await.unwrap();
        let catalog = &larder.context.catalog;
        let (object, _) = catalog.get_object(BUCKET, "o").await.unwrap();
        let (group, spec) = (GroupId(0), larder.ask(|rack| rack.spec().clone()).await);
        let drives = larder.ask(move |rack| rack.layout().groups[group.index()].drives[..3].to_vec()).await;
        let blob = Blob {
            blob: catalog.next_blob_id(1).await.unwrap(),
            group,
            class: ClassId(0),
            drives: drives.clone(),
            code_data: spec.code.data,
            code_parity: spec.code.parity,
            fragment_bytes: spec.code.fragment_bytes,
            payload_bytes: 30 * KIB,
            stack_bytes: 28 * KIB,
            members: 1,
            written_ms: 1,
        };
        catalog.begin_blob(&blob).await.unwrap();
        let member = Member { version: object.version, offset: 0, bytes: 30 * KIB };
        catalog.commit_blob(&blob, &[member]).await.unwrap();
        fail(larder, drives[0]).await;
        assert_eq!(left_bytes(larder, drives[0]).await, 0);
        let refused = larder.status().fail_drive(drives[1].0, false).await.unwrap_err().to_string();
        assert!(refused.contains("blobs would be lost"), "{refused}");
    });
}
