//! A drive that was given up and is taken back with everything on it: sound stacks count again, others are rebuilt, and
//! those that the catalog does not count are removed, over crashes at any step.

use crate::rebuild::{all_read, blobs, fail, fullest, left_bytes};
use crate::site::{Ended, Facts, HOUR, KIB, Larder, MIB, Site};
use disk::label::{self, Device, DriveLabel, DriveUuid, Label};
use disk::stack::stack_name;
use disk::{Buffer, Drive};
use engine::Event;
use model::{BlobId, DriveId, Rng};
use server::admin::Admin;
use server::replace::Taken;
use std::sync::Arc;

/// Labels all drives as `larder init` does; without a label no drive could be recognised again.
async fn label_all(larder: &Larder, facts: &Facts) {
    let rack_name = larder.ask(|rack| rack.spec().name.clone()).await;
    for (number, medium) in (0..).zip(&facts.media) {
        let label = Label { rack: larder.context.rack_uuid, rack_name: rack_name.clone(), drive: DriveId(number) };
        let uuid = DriveUuid([number as u8 + 1; 16]);
        let label = DriveLabel { label, uuid, labelled_ms: 0, device: Device::None };
        label::write(&**medium, &label).await.unwrap();
    }
}

/// A small rack whose packs hold a few objects each.
fn of_small_packs() -> Site {
    let mut site = Site::nas8();
    site.policy.migration.pack_bytes = MIB;
    site
}

/// Labels the drives, puts objects, waits until all have moved to the rack, and returns their keys.
async fn filled(larder: &Larder, facts: &Facts) -> Vec<String> {
    label_all(larder, facts).await;
    let keys = larder.put_many("k", 8, 300 * KIB).await;
    larder.settle().await;
    keys
}

/// Takes back the drive that failed, as `larder drive replace` does, retrying until that succeeds.
async fn take_back(larder: &Larder, drive: DriveId, facts: &Facts) {
    let taken = async || {
        let medium = Arc::clone(&facts.media[drive.index()]);
        let labelled =
            async move { label::uuid_of(&*medium).await.map(Taken::Itself).map_err(|error| error.to_string()) };
        !larder.ask(move |rack| rack.has_failed(drive)).await
            || larder.status().replace_with(drive, labelled).await.is_ok()
    };
    larder.until("taken back", 48 * HOUR, taken).await;
    larder.until("looked for", 48 * HOUR, async || left_bytes(larder, drive).await == 0).await;
}

#[test]
fn a_crash_at_any_step_of_taking_a_drive_back_loses_nothing_and_the_next_start_goes_on() {
    let (torn, mut crashed) = (&mut Rng::new(9), 0);
    let mut step = 1;
    loop {
        let mut site = of_small_packs();
        let facts = site.facts();
        let (keys, drive) = site.run(async |larder| {
            let keys = filled(larder, &facts).await;
            let drive = fullest(larder, &keys).await;
            let blob = blobs(larder, &keys).await.into_iter().find(|blob| blob.drives.contains(&drive)).unwrap();
            let index = blob.drives.iter().position(|other| *other == drive).unwrap();
            fail(larder, drive).await;
            // One stack that is still there is damaged.
            facts.media[drive.index()].flip_bit(&stack_name(blob.blob, index as u8), 5_000, 4);
            (keys, drive)
        });
        site.power.fail_in(step);
        let ended = site.boot_and(async |larder| take_back(larder, drive, &facts).await);
        if matches!(ended, Ended::Finished(())) {
            break;
        }
        crashed += 1;
        site.lose_power(torn);
        site.run(async |larder| {
            all_read(larder, &keys).await;
            take_back(larder, drive, &facts).await; // it may not have been recorded before the crash
            all_read(larder, &keys).await;
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
            let lost = larder.context.catalog.lost_page(drive, None, 9).await.unwrap();
            assert!(lost.blobs.is_empty(), "nothing is to be looked for any more");
            larder.audit(&facts).await;
        });
        step += 7;
    }
    println!("{crashed} crashes");
    assert!(crashed > 10, "{crashed} crashes");
}

#[test]
fn what_lies_on_a_drive_that_is_back_and_does_not_answer_yet_is_not_written_over() {
    let mut site = of_small_packs();
    let facts = site.facts();
    site.run(async |larder| {
        let keys = filled(larder, &facts).await;
        let drive = fullest(larder, &keys).await;
        let medium = &facts.media[drive.index()];
        // Another stack of each blob on that drive has rotted: without the drive nothing can be rebuilt.
        for blob in blobs(larder, &keys).await.iter().filter(|blob| blob.drives.contains(&drive)) {
            let other = blob.drives.iter().position(|other| *other != drive).unwrap();
            facts.media[blob.drives[other].index()].flip_bit(&stack_name(blob.blob, other as u8), 100, 4);
        }
        fail(larder, drive).await;
        let uuid = label::uuid_of(&**medium).await.unwrap();
        medium.set_dead(true);
        larder.status().replace_with(drive, async move { Ok(Taken::Itself(uuid)) }).await.unwrap();
        tokio::time::sleep(48 * HOUR).await;
        medium.set_dead(false);
        larder.until("looked for", 48 * HOUR, async || left_bytes(larder, drive).await == 0).await;
        all_read(larder, &keys).await;
    });
}

#[test]
fn what_nobody_counts_stays_until_its_header_shows_that_no_newer_catalog_wrote_it() {
    let mut site = of_small_packs();
    let facts = site.facts();
    site.run(async |larder| {
        let keys = filled(larder, &facts).await;
        let drive = fullest(larder, &keys).await;
        let all = blobs(larder, &keys).await;
        let dead = all.iter().find(|blob| blob.drives.contains(&drive)).unwrap();
        let index = dead.drives.iter().position(|other| *other == drive).unwrap();
        let (medium, name) = (&facts.media[drive.index()], stack_name(dead.blob, index as u8));
        fail(larder, drive).await;
        for (key, _) in keys.iter().zip(&all).filter(|(_, blob)| blob.blob == dead.blob) {
            larder.delete(key).await;
        }
        larder.until("rebuilt", 48 * HOUR, async || left_bytes(larder, drive).await == 0).await;
        let catalog = &larder.context.catalog;
        larder.until("forgotten", HOUR, async || catalog.blob(dead.blob).await.unwrap().is_none()).await;
        medium.make_unreadable(&name, 0, 4096);
        take_back(larder, drive, &facts).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        let is_back = async || catalog.returned_drives().await.unwrap().contains_key(&drive);
        assert!(medium.contents(&name).is_some(), "who wrote it cannot be read");
        assert!(is_back().await, "it is looked through again");
        let header = medium.contents_of(&name, 0, 4096).unwrap();
        medium.write_at(&name, 0, Buffer::copy_of(&header)).await.unwrap();
        // Its group wakes for one of these writes.
        larder
            .until("looked through", 48 * HOUR, async || {
                larder.put_many("more", 4, 300 * KIB).await;
                larder.settle().await;
                !is_back().await
            })
            .await;
        assert!(medium.contents(&name).is_none(), "nobody counts it");
    });
}

/// The key of the record of `blob` in the catalog (`catalog/src/key.rs`).
fn blob_record(blob: BlobId) -> Vec<u8> {
    [b"L", &blob.number.to_be_bytes()[..], &blob.nonce.to_be_bytes()[..]].concat()
}

#[test]
fn a_drive_that_is_back_is_looked_through_again_if_the_record_of_a_blob_cannot_be_read() {
    let mut site = of_small_packs();
    let (facts, records) = (site.facts(), site.catalog.clone());
    site.run(async |larder| {
        let keys = filled(larder, &facts).await;
        let drive = fullest(larder, &keys).await;
        let blob = blobs(larder, &keys).await.into_iter().find(|blob| blob.drives.contains(&drive)).unwrap();
        let index = blob.drives.iter().position(|other| *other == drive).unwrap();
        let (medium, name) = (&facts.media[drive.index()], stack_name(blob.blob, index as u8));
        fail(larder, drive).await;
        larder.until("rebuilt", 48 * HOUR, async || left_bytes(larder, drive).await == 0).await;
        let flip = || records.corrupt(&blob_record(blob.blob), |bytes| bytes[0] ^= 1);
        flip();
        take_back(larder, drive, &facts).await;
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        flip();
        let catalog = &larder.context.catalog;
        assert!(medium.contents(&name).is_some(), "nobody knew whether it counts");
        assert!(catalog.returned_drives().await.unwrap().contains_key(&drive), "it is looked through again");
    });
}

/// Two drives that share a blob, which tolerates the loss of one.
async fn sharing(larder: &Larder, keys: &[String]) -> [DriveId; 2] {
    let blob = blobs(larder, keys).await.swap_remove(0);
    [blob.drives[0], blob.drives[1]]
}

#[test]
fn another_drive_is_refused_in_the_place_of_one_that_the_rack_gave_up_and_blobs_need() {
    let mut site = of_small_packs();
    let facts = site.facts();
    site.run(async |larder| {
        let keys = filled(larder, &facts).await;
        let [given_up, failed] = sharing(larder, &keys).await;
        larder.context.catalog.give_up_drive(given_up, 1).await.unwrap();
        larder.world.report(Event::DriveFailed { drive: given_up, pulled: false });
        fail(larder, failed).await;
        let replaced = async |taken| larder.status().replace_with(given_up, async move { Ok(taken) }).await;
        let refused = replaced(Taken::Another(DriveUuid([77; 16]))).await.unwrap_err().to_string();
        assert!(refused.contains("blobs need it"), "{refused}");
        let word = larder.status().fail_drive(given_up.0, false).await.unwrap_err().to_string();
        assert!(word.contains("--force"), "{word}");
        let uuid = label::uuid_of(&*facts.media[given_up.index()]).await.unwrap();
        replaced(Taken::Itself(uuid)).await.unwrap();
        all_read(larder, &keys).await;
    });
}
