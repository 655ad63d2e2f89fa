//! Drives that hang: for 100 s they answer no request. No caller waits for them longer than a deadline; after it they
//! hold up no other work, and the requests that they still owe are shown.

use crate::site::{Facts, HOUR, Larder, MIB, MINUTE, SECOND, Site};
use catalog::{Blob, Place};
use disk::{MemoryCall, MemoryDrive};
use engine::{DrivePhase, IdleTimeout};
use model::DriveId;
use server::admin::Admin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const HANG: Duration = Duration::from_secs(100);

/// The longest that a sound group takes to wake and to go to sleep, with a seek or two, and a margin.
const WAKE: Duration = Duration::from_mins(1);

async fn blob_of(larder: &Larder, key: &str) -> Blob {
    let Place::Stored { blob, .. } = larder.place(key).await else { panic!("{key} is staged") };
    larder.context.catalog.blob(blob).await.unwrap().unwrap()
}

async fn missed(larder: &Larder, drive: DriveId) -> u64 {
    larder.ask(move |rack| rack.missed_deadlines(drive)).await
}

async fn phase(larder: &Larder, drive: DriveId) -> DrivePhase {
    larder.ask(move |rack| rack.drive_phase(drive)).await
}

async fn asleep(larder: &Larder) {
    larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
}

fn hangs(medium: &MemoryDrive, meant: impl Fn(&MemoryCall) -> bool + Send + Sync + 'static) {
    medium.hang(move |asked| meant(asked).then_some(HANG));
}

/// True if this call belongs to this phase of a read from a sleeping drive.
fn is_of_read(phase: &str, asked: &MemoryCall) -> bool {
    match (phase, asked) {
        ("start", MemoryCall::SpinUp)
        | ("mount", MemoryCall::Mount)
        | ("open", MemoryCall::Len(_))
        | ("head", MemoryCall::Read(_, 0, _))
        | ("all", _) => true,
        ("fragments", MemoryCall::Read(_, offset, _)) => *offset == 4096,
        ("footer", MemoryCall::Read(_, offset, _)) => *offset > 4096,
        _ => false,
    }
}

/// A site with one object in the rack, whose spool forgets it at the next boot.
fn with_one_object(name: &str) -> (Site, Facts, Vec<DriveId>) {
    let mut site = Site::new(name);
    let facts = site.facts();
    let drives = site.run(async |larder| {
        larder.put("o", 1, 20 * MIB).await.unwrap();
        larder.settle().await;
        blob_of(larder, "o").await.drives
    });
    (site, facts, drives)
}

#[test]
fn a_read_waits_for_a_drive_that_hangs_until_a_deadline_and_no_longer() {
    for name in ["nas8", "pelican-mini"] {
        for of in ["start", "mount", "open", "head", "footer", "fragments", "all"] {
            let (mut site, facts, drives) = with_one_object(name);
            let drive = drives[0];
            hangs(&facts.media[drive.index()], move |asked| is_of_read(of, asked));
            site.run(async |larder| {
                let began = Instant::now();
                assert_eq!(larder.get_retrying("o").await.unwrap(), 1, "{of}");
                let longest = WAKE + site_deadline(larder, of).await;
                assert!(began.elapsed() < longest, "{name}, {of}: {:?}", began.elapsed());
                // If the spool has it all before the deadline of the drive, the deadline passes a little later.
                tokio::time::sleep(MINUTE).await;
                assert!(missed(larder, drive).await >= 1, "{name}, {of}: counted against the drive");
                for other in &drives[1..] {
                    assert_eq!(missed(larder, *other).await, 0, "{name}, {of}: and against no other");
                }
                shown(larder, drive).await;
                facts.media[drive.index()].stop_hanging();
                // The drive cannot be stopped until it has answered.
                tokio::time::sleep(HANG).await;
            });
        }
    }
}

async fn site_deadline(larder: &Larder, phase: &str) -> Duration {
    let deadlines = larder.ask(engine::Rack::drive_deadlines).await;
    match phase {
        "start" | "all" => deadlines.spin_up,
        "mount" => deadlines.mount,
        _ => deadlines.requests.read,
    }
}

/// Asserts that the status and the list of drives name the drive.
async fn shown(larder: &Larder, drive: DriveId) {
    let status_service = larder.status();
    let listed = status_service.drives().await.unwrap();
    assert!(listed[drive.index()].missed_deadlines >= 1);
    let status = status_service.status().await.unwrap();
    assert!(status.totals.missed_deadlines >= 1);
    let named = format!("drive {} ", drive.0);
    assert!(status.warnings.iter().any(|warning| warning.contains(&named)), "{:?}", status.warnings);
}

#[test]
fn a_class_works_on_while_one_of_its_drives_hangs() {
    let mut site = Site::nas8();
    let facts = site.facts();
    let keys = site.run(async |larder| {
        let keys = larder.put_many("k", 12, 4 * MIB).await;
        larder.settle().await;
        keys
    });
    site.run(async |larder| {
        // Sorted by group, so that each group wakes once.
        let mut keys_by_group = Vec::new();
        for key in &keys {
            keys_by_group.push((larder.group_of(key).await, key));
        }
        keys_by_group.sort();
        let (group, first) = keys_by_group[0];
        assert!(keys_by_group.iter().filter(|(of, _)| *of == group).count() > 2);
        // Every request to it takes 100 s.
        let drive = blob_of(larder, first).await.drives[1];
        hangs(&facts.media[drive.index()], |asked| matches!(asked, MemoryCall::Read(..)));
        let began = Instant::now();
        for (_, key) in &keys_by_group {
            assert_eq!(larder.get_retrying(key).await.unwrap(), 1);
        }
        assert!(began.elapsed() < 2 * WAKE + MINUTE, "a wake for each group: {:?}", began.elapsed());
        assert_eq!(missed(larder, drive).await, 1, "once in a wake");
        facts.media[drive.index()].stop_hanging();
        tokio::time::sleep(HANG).await;
        asleep(larder).await;
        // Once it answers again, it is an ordinary drive again.
        assert_eq!(phase(larder, drive).await, DrivePhase::Standby);
    });
}

#[test]
fn a_write_goes_to_other_drives_than_one_that_hangs() {
    for of in ["create", "header", "fragments", "sync", "footer", "read back"] {
        let mut site = Site::nas8();
        site.policy.migration.pack_bytes = 30 * MIB;
        let facts = site.facts();
        site.run(async |larder| {
            // One drive of each group, so that the write meets one of them.
            let groups: Vec<Vec<DriveId>> =
                larder.ask(|rack| rack.layout().groups.iter().map(|group| group.drives.clone()).collect()).await;
            let hung: Vec<DriveId> = groups.iter().flat_map(|drives| drives[..2].to_vec()).collect();
            let met = Arc::new(AtomicU64::new(0));
            // Only one of the two hangs: the other one is there for the write.
            for drive in &hung {
                let met = Arc::clone(&met);
                hangs(&facts.media[drive.index()], move |asked| {
                    let is_meant = match (of, asked) {
                        ("create", MemoryCall::Create(_))
                        | ("header", MemoryCall::Write(_, 0, _))
                        | ("sync", MemoryCall::Sync(_))
                        | ("read back", MemoryCall::Read(..)) => true,
                        ("fragments", MemoryCall::Write(_, offset, _)) => *offset == 4096,
                        ("footer", MemoryCall::Write(_, offset, _)) => *offset > 4096 && *offset % 131_072 != 4096,
                        _ => false,
                    };
                    is_meant && met.fetch_add(1, Ordering::Relaxed) == 0
                });
            }
            larder.put("o", 1, 20 * MIB).await.unwrap();
            let began = Instant::now();
            let stored = async || matches!(larder.place("o").await, Place::Stored { .. });
            larder.until("in the rack", HOUR, stored).await;
            assert!(met.load(Ordering::Relaxed) > 0, "{of}: a drive hung");
            let sync = larder.ask(|rack| rack.drive_deadlines().requests.sync).await;
            assert!(began.elapsed() < 2 * WAKE + sync + MINUTE, "{of}: {:?}", began.elapsed());
            let total = larder.ask(|rack| rack.stats().missed_deadlines).await;
            assert!(total >= 1, "{of}");
            // Stacks of the failed write are removed with the next wakes, from the drive that hung as well.
            tokio::time::sleep(HANG).await;
            asleep(larder).await;
            assert_eq!(larder.get_retrying("o").await.unwrap(), 1);
            for n in 0..6 {
                larder.put(&format!("n{n}"), 1, MIB).await.unwrap();
                larder.settle().await;
                tokio::time::sleep(10 * MINUTE).await;
            }
            larder.settle().await;
            larder.audit(&facts).await;
        });
    }
}

#[test]
fn blobs_are_removed_when_a_drive_that_hung_answers_again() {
    let (mut site, facts, drives) = with_one_object("nas8");
    let drive = drives[2];
    hangs(&facts.media[drive.index()], |asked| matches!(asked, MemoryCall::Remove(_)));
    site.run(async |larder| {
        larder.put("p", 1, 20 * MIB).await.unwrap();
        larder.settle().await;
        larder.delete("o").await;
        let began = Instant::now();
        for n in 0..8 {
            // Writes wake the groups, and what is deleted is reclaimed on the way.
            larder.put(&format!("n{n}"), 1, MIB).await.unwrap();
            larder
                .until("in the rack", HOUR, async || {
                    matches!(larder.place(&format!("n{n}")).await, Place::Stored { .. })
                })
                .await;
        }
        assert!(began.elapsed() < 30 * MINUTE, "{:?}", began.elapsed());
        facts.media[drive.index()].stop_hanging();
        tokio::time::sleep(HANG).await;
        let mut n = 8;
        larder
            .until("reclaimed", 48 * HOUR, async || {
                n += 1;
                larder.put(&format!("n{n}"), 1, MIB).await.unwrap();
                larder.settle().await;
                tokio::time::sleep(10 * MINUTE).await;
                larder.ask(|rack| rack.stats().reclaimed_bytes).await >= 20 * MIB
            })
            .await;
        larder.audit(&facts).await;
    });
}

#[test]
fn a_drive_that_hangs_in_three_wakes_in_a_row_is_left_alone_for_a_while() {
    let (mut site, facts, drives) = with_one_object("nas8");
    let drive = drives[0];
    site.policy.idle_timeout = IdleTimeout::After(MINUTE);
    site.spool_bytes = 8 * MIB;
    hangs(&facts.media[drive.index()], |asked| matches!(asked, MemoryCall::Read(_, offset, _) if *offset > 0));
    site.run(async |larder| {
        let mut took = Vec::new();
        for _ in 0..6 {
            let began = Instant::now();
            // The spool is too small to keep it all, so that each of these wakes the group.
            assert_eq!(larder.get_retrying("o").await.unwrap(), 1);
            took.push(began.elapsed());
            tokio::time::sleep(3 * MINUTE).await;
            asleep(larder).await;
        }
        assert_eq!(missed(larder, drive).await, 3, "{took:?}");
        assert!(matches!(phase(larder, drive).await, DrivePhase::Away(_)));
        // It answers again, and is tried again automatically.
        facts.media[drive.index()].stop_hanging();
        larder.until("tried again", 24 * HOUR, async || phase(larder, drive).await == DrivePhase::Standby).await;
        assert_eq!(larder.get_retrying("o").await.unwrap(), 1);
        asleep(larder).await;
        assert_eq!(missed(larder, drive).await, 3);
    });
}

#[test]
fn a_server_stops_in_time_whatever_hangs() {
    for of in ["read", "unmount", "stop"] {
        let (mut site, facts, drives) = with_one_object("nas8");
        for drive in &drives {
            facts.media[drive.index()].hang(move |asked| {
                let is_meant = match (of, asked) {
                    ("read", MemoryCall::Read(_, offset, _)) => *offset > 0,
                    ("unmount", MemoryCall::Unmount) | ("stop", MemoryCall::Stop) => true,
                    _ => false,
                };
                // Permanently.
                is_meant.then_some(1000 * HOUR)
            });
        }
        let ended = site.boot_and(async |larder| {
            let (got, took) = tokio::join!(larder.get("o"), async {
                tokio::time::sleep(25 * SECOND).await;
                let began = Instant::now();
                larder.world.close().await;
                began.elapsed()
            });
            drop(got);
            took
        });
        let crate::site::Ended::Finished(took) = ended else { panic!("nobody took the power") };
        assert!(took < 3 * MINUTE, "{of}: {took:?}");
    }
}

#[test]
fn when_all_drives_hang_for_a_while_nothing_is_given_up_for_good() {
    let (mut site, facts, drives) = with_one_object("nas8");
    site.run(async |larder| {
        // For example, because the disk below all of them hangs.
        let until = Instant::now() + 2 * MINUTE;
        for medium in &facts.media {
            medium.hang(move |_| Some(until.saturating_duration_since(Instant::now())));
        }
        let began = Instant::now();
        larder
            .until("served again", HOUR, async || {
                let got = larder.get_retrying("o").await;
                if got.is_err() {
                    tokio::time::sleep(5 * SECOND).await;
                }
                got.is_ok_and(|serial| serial == 1)
            })
            .await;
        assert!(began.elapsed() < 15 * MINUTE, "{:?}", began.elapsed());
        for drive in &drives {
            assert!(!matches!(phase(larder, *drive).await, DrivePhase::Away(engine::Loss::Failed)));
        }
    });
}

#[test]
fn a_rebuild_goes_on_without_a_drive_that_hangs() {
    for (of, role) in [("read", 0), ("write", 1), ("sync", 1), ("read back", 1)] {
        let mut site = Site::new("pelican-mini");
        let facts = site.facts();
        site.run(async |larder| {
            let keys = larder.put_many("k", 4, 3 * MIB).await;
            larder.settle().await;
            let blob = blob_of(larder, &keys[0]).await;
            let group = blob.group;
            let members = larder.ask(move |rack| rack.layout().groups[group.index()].drives.clone()).await;
            let failed = blob.drives[0];
            // Either a source hangs, or one of the targets, of which there are several.
            let spare: Vec<DriveId> = members.into_iter().filter(|drive| !blob.drives.contains(drive)).collect();
            let hung = if role == 0 { blob.drives[1] } else { spare[0] };
            hangs(&facts.media[hung.index()], move |asked| {
                matches!(
                    (of, asked),
                    ("read" | "read back", MemoryCall::Read(..))
                        | ("write", MemoryCall::Write(..))
                        | ("sync", MemoryCall::Sync(_))
                )
            });
            larder.status().fail_drive(failed.0, true).await.unwrap().unwrap();
            let began = Instant::now();
            let left = async || {
                let found = larder.ask(move |rack| rack.rebuilds().find(|view| view.drive == failed)).await;
                found.map_or(0, |view| view.left_bytes)
            };
            larder.until("rebuilt", 12 * HOUR, async || left().await == 0).await;
            assert!(began.elapsed() < HOUR, "{of}: {:?}", began.elapsed());
            facts.media[hung.index()].stop_hanging();
            tokio::time::sleep(HANG).await;
            for key in &keys {
                assert_eq!(larder.get_retrying(key).await.unwrap(), 1, "{of}");
            }
        });
    }
}

#[test]
fn a_group_most_of_whose_drives_hang_for_a_day_answers_and_is_not_woken_again_and_again() {
    let (mut site, facts, drives) = with_one_object("nas8");
    // A wake takes longer, as it does by default where drives start slowly.
    site.policy.host_slack = 5 * SECOND;
    site.run(async |larder| {
        asleep(larder).await;
        let until = Instant::now() + 24 * HOUR;
        let group = larder.ask(move |rack| rack.layout().group_of(drives[0]).unwrap()).await;
        let members = larder.ask(move |rack| rack.layout().groups[group.index()].drives.clone()).await;
        for hung in &members[1..] {
            facts.media[hung.index()].hang(move |_| Some(until.saturating_duration_since(Instant::now())));
        }
        let starts = async || larder.ask(|rack| rack.stats().drive_starts).await;
        let (began, before) = (Instant::now(), starts().await);
        let mut answers = 0;
        while Instant::now() < until - HOUR {
            assert!(larder.get("o").await.is_err(), "one drive of four is there");
            answers += 1;
            tokio::time::sleep(10 * MINUTE).await;
        }
        assert!(answers > 50, "{answers} answers in {:?}", began.elapsed());
        let started = starts().await - before;
        assert!(started < 200, "{started} starts for {answers} GETs in a day");
        tokio::time::sleep(2 * HOUR).await;
        assert_eq!(larder.get_retrying("o").await.unwrap(), 1, "nothing is given up for good");
    });
}
