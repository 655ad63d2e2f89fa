//! Drives that go away, bits that rot, tripped fuses, and start budgets that are used up.

use crate::site::{HOUR, KIB, Larder, MIB, MINUTE, SECOND, Site, retry_after_s};
use catalog::{Blob, Place};
use disk::stack::stack_name;
use engine::{DrivePhase, GroupState, TRY_AFTER};
use model::DriveId;
use model::physics::PowerState;
use s3::store::ServiceError;
use server::admin::Admin;
use std::sync::atomic::Ordering;
use std::time::Duration;

async fn blob_of(larder: &Larder, key: &str) -> Blob {
    let Place::Stored { blob, .. } = larder.place(key).await else { panic!("{key} is staged") };
    larder.context.catalog.blob(blob).await.unwrap().unwrap()
}

#[test]
fn r_lost_drives_cost_nothing_and_one_more_is_refused_until_it_is_back() {
    for (rack, r) in [("nas8", 1), ("pelican-mini", 2)] {
        Site::new(rack).run(async |larder| {
            larder.put("o", 1, 3 * MIB).await.unwrap();
            larder.put("p", 1, 5 * MIB).await.unwrap();
            larder.settle().await;
            let blob = blob_of(larder, "o").await;
            for drive in &blob.drives[..r] {
                larder.rack.pull(*drive);
            }
            assert_eq!(larder.get("o").await.unwrap(), 1);
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
            let other = blob_of(larder, "p").await;
            for drive in &other.drives[..=r] {
                larder.rack.pull(*drive);
            }
            assert!(matches!(larder.get("p").await, Err(ServiceError::Unavailable { .. })));
            for drive in other.drives.iter().chain(&blob.drives) {
                larder.rack.plug(*drive);
            }
            tokio::time::sleep(SECOND).await;
            assert_eq!(larder.get("p").await.unwrap(), 1);
        });
    }
}

#[test]
fn a_drive_that_is_back_is_tried_though_nobody_reads_or_writes_for_one_start_of_its_group() {
    for after in [None, Some(24 * HOUR)] {
        let mut site = Site::nas8();
        site.policy.give_up_after = after;
        let media = site.facts().media;
        site.run(async |larder| {
            larder.put("o", 1, 60 * MIB).await.unwrap();
            larder.settle().await;
            let blob = blob_of(larder, "o").await;
            let (gone, other) = (blob.drives[0], blob.drives[1]);
            media[gone.index()].set_dead(true);
            assert_eq!(larder.get("o").await.unwrap(), 1);
            larder.settle().await;
            let absences = async || larder.ask(|rack| rack.absences().len()).await;
            let starts = || larder.rack.starts(other);
            let (before, since) = (starts(), larder.elapsed());
            assert_eq!(absences().await, 1, "a read has found it away");
            // No report tells the server that the drive answers again.
            media[gone.index()].set_dead(false);
            larder.until("found again", 12 * HOUR, async || absences().await == 0).await;
            let took = larder.elapsed().saturating_sub(since);
            assert!(took <= TRY_AFTER + HOUR / 2, "{took:?}");
            larder.settle().await;
            tokio::time::sleep(24 * HOUR).await;
            assert_eq!(starts() - before, 1, "its group was started once for that");
        });
    }
}

#[test]
fn a_drive_with_bad_sectors_at_the_ends_of_stacks_stays_in_service() {
    for from_end in [false, true] {
        let mut site = Site::nas8();
        let media = site.facts().media;
        site.run(async |larder| {
            let spoil = |blob: &Blob, drive: DriveId| {
                let Some(index) = blob.drives.iter().position(|of| *of == drive) else { return };
                let (name, medium) = (stack_name(blob.blob, index as u8), &media[drive.index()]);
                let at = if from_end { medium.contents_len(&name).unwrap() - 100 } else { 386 };
                medium.make_unreadable(&name, at, 1);
            };
            let (mut keys, mut drive) = (Vec::new(), None);
            while keys.len() < 4 {
                let key = format!("o{}", larder.keys().await.len());
                larder.put(&key, 1, 20 * MIB).await.unwrap();
                larder.settle().await;
                let blob = blob_of(larder, &key).await;
                let drive = *drive.get_or_insert(blob.drives[0]);
                if blob.drives.contains(&drive) {
                    spoil(&blob, drive);
                    keys.push(key);
                }
            }
            // Three failures of a drive would take it out of service.
            for key in &keys {
                assert_eq!(larder.get(key).await.unwrap(), 1);
                assert_eq!(larder.ask(|rack| rack.absences().len()).await, 0, "the drive answers");
            }
            larder.put("lost", 1, 20 * MIB).await.unwrap();
            larder.settle().await;
            let blob = blob_of(larder, "lost").await;
            for drive in &blob.drives[..=usize::from(blob.code_parity)] {
                spoil(&blob, *drive);
            }
            assert!(matches!(larder.get("lost").await, Err(ServiceError::DataLost { .. })));
            assert_eq!(larder.ask(|rack| rack.absences().len()).await, 0, "the drives answer");
        });
    }
}

#[test]
fn a_drive_may_go_at_any_moment_of_a_read() {
    for ms in [1_u64, 5_000, 11_900, 13_000, 16_000, 17_000, 17_500, 18_000, 18_200, 18_400, 18_600, 18_800, 19_000] {
        Site::nas8().run(async |larder| {
            larder.put("o", 1, 60 * MIB).await.unwrap();
            larder.settle().await;
            let drive = blob_of(larder, "o").await.drives[(ms % 3) as usize];
            let (got, ()) = tokio::join!(larder.get_retrying("o"), async {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                larder.rack.pull(drive);
            });
            assert_eq!(got.unwrap(), 1, "{ms} ms");
            larder.rack.plug(drive);
            larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        });
    }
}

#[test]
fn a_start_that_was_given_up_is_not_made_later() {
    let mut site = Site::nas8();
    // Longer than the engine waits for a group to wake.
    site.catalog = site.catalog.clone().with_delay(5 * MINUTE);
    site.run(async |larder| {
        larder.put("o", 1, 3 * MIB).await.unwrap();
        let drives = 0..larder.context.drives.len() as u32;
        let mut asleep = 0;
        for _ in 0..1000 {
            tokio::time::sleep(10 * SECOND).await;
            let idle = larder.is_asleep().await;
            asleep += u32::from(idle);
            let states: Vec<_> = drives.clone().map(|drive| larder.rack.state(DriveId(drive))).collect();
            let all_stand = states.iter().all(|state| *state == PowerState::Standby);
            assert!(all_stand || !idle, "nobody is awake, and yet {states:?}");
        }
        assert!(asleep > 10, "{asleep}");
    });
}

/// The drive is stopped when it is back and holds no permit; others may have the permit that it had.
#[test]
fn a_start_is_not_made_of_a_drive_that_was_away_while_it_was_remembered() {
    let mut site = Site::nas8();
    site.catalog = site.catalog.clone().with_delay(20 * SECOND);
    site.run(async |larder| {
        larder.put("o", 1, 3 * MIB).await.unwrap();
        let phase = async |drive| larder.ask(move |rack| rack.drive_phase(drive)).await;
        let all: Vec<DriveId> = (0..larder.context.drives.len() as u32).map(DriveId).collect();
        let mut started = None;
        larder
            .until("a start is asked for", HOUR, async || {
                for drive in &all {
                    let is_started = phase(*drive).await == DrivePhase::SpinningUp;
                    started = started.or(Some(*drive).filter(|_| is_started));
                }
                started.is_some()
            })
            .await;
        let drive = started.unwrap();
        assert_eq!(larder.rack.state(drive), PowerState::Standby, "the start is still being remembered");
        larder.rack.pull(drive);
        tokio::time::sleep(SECOND).await;
        larder.rack.plug(drive);
        for _ in 0..600 {
            tokio::time::sleep(SECOND).await;
            let (state, phase) = (larder.rack.state(drive), phase(drive).await);
            assert!(state == PowerState::Standby || phase != DrivePhase::Standby, "nobody wants it: {state:?}");
        }
    });
}

#[test]
fn a_host_that_is_slower_than_its_drives_loses_none_of_them() {
    let mut site = Site::nas8();
    // A start is recorded in the catalog before it is made, and that takes longer than a start.
    site.catalog = site.catalog.clone().with_delay(5 * MINUTE);
    site.policy.host_slack = 20 * MINUTE;
    site.run(async |larder| {
        larder.put("o", 1, 3 * MIB).await.unwrap();
        let stored = async || matches!(larder.place("o").await, Place::Stored { .. });
        larder.until("in the rack", 12 * HOUR, stored).await;
        let drives = larder.context.drives.len() as u32;
        let phases = larder.ask(move |rack| (0..drives).map(|drive| rack.drive_phase(DriveId(drive))).collect()).await;
        let phases: Vec<DrivePhase> = phases;
        assert!(!phases.iter().any(|phase| matches!(phase, DrivePhase::Away(_))), "{phases:?}");
    });
}

#[test]
fn bits_that_rot_are_repaired_by_the_next_read() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        larder.put("o", 1, 3 * MIB).await.unwrap();
        larder.settle().await;
    });
    for stack in facts.stacks().iter().filter(|stack| stack.index == 1) {
        facts.media[stack.drive].flip_bit(&stack.name, 300_000, 16);
    }
    for repaired in [1, 0] {
        // The spool forgets at every boot, so each of these reads the drives.
        site.run(async |larder| {
            assert_eq!(larder.get("o").await.unwrap(), 1);
            tokio::time::sleep(SECOND).await; // the transfer ends a little after its last bytes
            assert_eq!(larder.context.counters.repaired_fragments.load(Ordering::Relaxed), repaired);
        });
    }
}

#[test]
fn more_rot_than_the_code_makes_up_for_is_said_loudly() {
    let mut site = Site::nas8();
    let facts = site.facts();
    site.run(async |larder| {
        larder.put("o", 1, 3 * MIB).await.unwrap();
        larder.settle().await;
    });
    for stack in facts.stacks().iter().filter(|stack| stack.index < 2) {
        facts.media[stack.drive].flip_bit(&stack.name, 10_000, 16);
    }
    site.run(async |larder| {
        assert!(matches!(larder.get("o").await, Err(ServiceError::DataLost { .. })));
        assert_eq!(larder.ask(|rack| rack.stats().data_lost).await, 1);
    });
}

#[test]
fn a_rack_recovers_from_a_fuse_that_tripped_behind_the_ledgers_back() {
    let mut site = Site::nas8();
    site.policy.idle_timeout = engine::IdleTimeout::After(HOUR);
    site.run(async |larder| {
        larder.put("o", 1, 3 * MIB).await.unwrap();
        larder.settle().await;
        let group = larder.group_of("o").await;
        larder.get_range("o", Some(0..10)).await.unwrap();
        assert_eq!(larder.state(group).await, GroupState::Idle);
        let members = larder.ask(move |rack| rack.layout().groups[group.index()].drives.clone()).await;
        let stranger = (0..8).map(DriveId).find(|drive| !members.contains(drive)).unwrap();
        let _ = larder.rack.drive(stranger).spin_up().await;
        tokio::time::sleep(SECOND).await;
        assert!(larder.context.counters.fuse_trips.load(Ordering::Relaxed) >= 4, "all that drew current are gone");
        let mut seen = Vec::new();
        larder
            .until("served again", HOUR, async || {
                let got = larder.get("o").await;
                seen.push(format!("{got:?}"));
                got.is_ok()
            })
            .await;
        larder.put("n", 1, MIB).await.unwrap();
        larder.settle().await;
    });
}

#[test]
fn work_that_nobody_waits_for_stays_within_the_starts_of_a_day() {
    let mut site = Site::nas8();
    site.policy.starts_per_day = 2;
    site.policy.idle_timeout = engine::IdleTimeout::After(MINUTE);
    site.run(async |larder| {
        for n in 0..40 {
            larder.put(&format!("k{n:02}"), 1, 100 * KIB).await.unwrap();
            tokio::time::sleep(10 * MINUTE).await;
        }
        let most = (0..8).map(|drive| larder.rack.starts(DriveId(drive))).max().unwrap();
        assert_eq!(most, 2, "in less than seven hours of one day");
        larder.settle().await;
        assert!(larder.elapsed() >= 24 * HOUR, "the rest waited for the next day");
    });
}

#[test]
fn clients_go_beyond_the_starts_of_a_day() {
    let mut site = Site::nas8();
    site.policy.starts_per_day = 1;
    site.run(async |larder| {
        larder.put("o", 1, 100 * KIB).await.unwrap();
        larder.settle().await;
        assert_eq!(larder.get("o").await.unwrap(), 1);
        assert!(larder.elapsed() < HOUR);
        assert_eq!((0..8).map(|drive| larder.rack.starts(DriveId(drive))).max(), Some(2));
    });
}

#[test]
fn starts_of_the_day_are_remembered_over_a_crash() {
    let mut site = Site::nas8();
    site.policy.starts_per_day = 1;
    for n in 0..4 {
        site.boot_and(async |larder| {
            larder.put(&format!("k{n}"), 1, 100 * KIB).await.unwrap();
            tokio::time::sleep(HOUR).await;
            let today: u32 = (0..8).map(|drive| larder.rack.starts(DriveId(drive))).sum();
            assert!(if n < 2 { today == 4 } else { today == 0 }, "boot {n}: {today}");
        });
        site.lose_power(&mut model::Rng::new(n));
    }
}

/// Puts objects of a MiB until one is refused, from number `from` on; returns the number of that object.
async fn put_until_full(larder: &Larder, from: usize) -> usize {
    for number in from..from + 1000 {
        match larder.put(&format!("k{number:04}"), 1, MIB).await {
            Ok(()) => {}
            Err(error) => {
                assert!(retry_after_s(&error).is_some(), "{error}");
                return number;
            }
        }
    }
    panic!("the workshop is never full");
}

#[test]
fn a_workshop_that_runs_full_while_drives_fail_loses_nothing_and_drains_when_they_are_back() {
    let mut site = Site::new("pelican-mini");
    site.workshop_bytes = 20 * MIB;
    (site.policy.migration.due_age, site.policy.migration.pack_bytes) = (None, MIB);
    let (facts, r) = (site.facts(), usize::from(site.spec.code.parity));
    site.run(async |larder| {
        let groups = larder.ask(|rack| rack.layout().groups.clone()).await;
        let staged = async || larder.context.catalog.staged_usage().await.unwrap().count;
        let full = put_until_full(larder, 0).await;
        let before = staged().await;
        // In the middle of the drain, r drives of each group go away.
        larder.until("the drain began", HOUR, async || staged().await < before).await;
        groups.iter().flat_map(|group| &group.drives[..r]).for_each(|drive| larder.rack.pull(*drive));
        larder.until("it goes on", HOUR, async || larder.put(&format!("k{full:04}"), 1, MIB).await.is_ok()).await;
        // Then one more goes: nothing can be written any more.
        for group in &groups {
            larder.rack.pull(group.drives[r]);
        }
        tokio::time::sleep(10 * MINUTE).await;
        let full = put_until_full(larder, full + 1).await;
        let before = staged().await;
        tokio::time::sleep(6 * HOUR).await;
        assert_eq!(staged().await, before, "what cannot be written stays where it is");
        assert!(retry_after_s(&larder.put("no-room", 1, MIB).await.unwrap_err()).is_some());
        groups.iter().flat_map(|group| &group.drives[..=r]).for_each(|drive| larder.rack.plug(*drive));
        let drained = async || larder.context.staging.usage().staged_bytes <= 20 * MIB * 3 / 10;
        larder.until("drained", 24 * HOUR, drained).await;
        larder.put("again", 1, MIB).await.unwrap();
        for number in 0..full {
            assert_eq!(larder.get_retrying(&format!("k{number:04}")).await.unwrap(), 1, "{number} of {full}");
        }
        larder.until("asleep", HOUR, async || larder.is_asleep().await).await;
        larder.audit(&facts).await;
    });
}

#[test]
fn starts_beyond_the_budget_are_said_to_be_for_clients_or_rebuilds() {
    let mut site = Site::nas8();
    site.policy.starts_per_day = 1;
    site.run(async |larder| {
        larder.put("o", 1, 100 * KIB).await.unwrap();
        larder.settle().await;
        let warnings = larder.status().status().await.unwrap().warnings;
        assert!(!warnings.iter().any(|warning| warning.contains("budget")), "{warnings:?}");
        assert_eq!(larder.get("o").await.unwrap(), 1);
        let warnings = larder.status().status().await.unwrap().warnings;
        let wanted =
            "4 drive starts for clients or rebuilds went beyond the day's budget: drives wear faster than rated";
        assert!(warnings.iter().any(|warning| warning == wanted), "{warnings:?}");
    });
}

#[test]
fn a_group_that_is_kept_spinning_is_named_with_what_helps() {
    let mut site = Site::nas8();
    site.policy.starts_per_day = 1;
    site.policy.spin_down.keeps_exhausted = true;
    site.run(async |larder| {
        larder.put("o", 1, 100 * KIB).await.unwrap();
        larder.settle_but_for_readers().await;
        let kept = async || {
            let warnings = larder.status().status().await.unwrap().warnings;
            warnings.into_iter().find(|warning| warning.starts_with("kept spinning"))
        };
        assert_eq!(kept().await, None, "it is not idle for long enough yet");
        tokio::time::sleep(10 * MINUTE).await;
        let group = larder.group_of("o").await.index();
        let said = kept().await.expect("a warning");
        let begins = format!("kept spinning, since no starts are left for today: group {group}");
        assert!(said.starts_with(&begins), "{said}");
        assert!(said.contains("starts_per_day in larder.toml") && said.ends_with("they sleep"), "{said}");
        tokio::time::sleep(24 * HOUR).await;
        assert_eq!(kept().await, None, "a new day");
    });
}
