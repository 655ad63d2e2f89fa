//! Drives that fail, fill and hang: nothing is lost unnoticed, and the rotation continues.

mod common;

use common::{config, put_many, wait_until};
use intake::medium::memory::{Fault, World};
use intake::{Config, Intake, Loss, OpenError, PutError, ReadError, Sequence};
use model::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

type Written = BTreeMap<Vec<u8>, Sequence>;

fn open(world: &World, seed: u64) -> Intake {
    let config = Config { deadline: Duration::from_secs(1), ..config(seed) };
    Intake::open(world.home(), world.directories(), config).expect("the pool can be opened").0
}

/// The keys whose newest version cannot be read. No other version is taken for it.
fn unreadable(intake: &Intake, written: &Written) -> Vec<Vec<u8>> {
    let mut gone = Vec::new();
    for (key, sequence) in written {
        match intake.get(key) {
            Ok(Some(stored)) if stored.sequence == *sequence => {}
            Ok(Some(stored)) => {
                assert!(!stored.certain, "an older version is not taken for the newest");
                gone.push(key.clone());
            }
            Err(ReadError::Lost | ReadError::Away) => gone.push(key.clone()),
            other => panic!("{key:?}: {other:?}"),
        }
    }
    gone
}

/// All of `gone` are named by the losses.
fn are_named(gone: &[Vec<u8>], losses: &[Loss]) {
    for key in gone {
        let is_named = losses.iter().any(|loss| match loss {
            Loss::Version { key: named, .. } => named == key,
            Loss::Shelf { keys: (first, last, _), .. } => first <= key && key <= last,
            Loss::Place { .. } | Loss::File { .. } => false,
        });
        assert!(is_named, "{key:?}");
    }
}

#[test]
fn a_drive_that_breaks_leaves_the_rotation_and_what_only_it_held_is_named() {
    for (seed, fault) in [(1, Fault::Broken), (2, Fault::ReadOnly), (3, Fault::Broken), (4, Fault::Hang)] {
        for broken in 0..4 {
            let world = World::new(4);
            let intake = open(&world, seed);
            let mut written = Written::new();
            put_many(&intake, &mut written, 0..150);
            world.set_fault(broken, fault);
            put_many(&intake, &mut written, 100..350);
            intake.flush().expect("three drives are left");
            let losses = intake.take_losses();
            let gone = unreadable(&intake, &written);
            are_named(&gone, &losses);
            assert!(gone.len() < 150, "what was written since is there");
            let status = intake.status();
            assert_eq!(status.cycles[0].drives.iter().filter(|drive| drive.lost).count(), 1);
            assert!(status.cycles[0].admits);
            world.set_fault(broken, Fault::None);
        }
    }
}

#[test]
fn with_two_copies_a_drive_that_breaks_takes_nothing() {
    for broken in 0..6 {
        let world = World::new(6);
        let intake = open(&world, 20);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..200);
        world.set_fault(broken, Fault::Broken);
        put_many(&intake, &mut written, 100..300);
        intake.flush().expect("five drives are left");
        assert_eq!(intake.take_losses(), []);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
        assert_eq!(intake.scan(b"", None).count(), 300);
        assert_eq!(intake.status().copies, 2);
        // The other rotation restores the lost records, so the next drive may break, too.
        wait_until(|| intake.status().cycles.iter().all(|cycle| !cycle.incomplete));
        let next = (broken + 3) % 6;
        world.set_fault(next, Fault::Broken);
        put_many(&intake, &mut written, 250..260);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
        assert_eq!(intake.take_losses(), []);
        drop(intake);
        world.set_fault(next, Fault::None);
        // It stays so when it is opened without that drive, and with it again.
        let there: Vec<_> = (0..6).filter(|drive| *drive != broken).map(|drive| world.directory(drive)).collect();
        let (intake, opened) = Intake::open(world.home(), there, config(21)).expect("five are there");
        assert_eq!(opened.missing.len(), 1);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
        put_many(&intake, &mut written, 50..120);
        drop(intake);
        world.set_fault(broken, Fault::None);
        let intake = open(&world, 22);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
        assert_eq!(intake.scan(b"", None).flatten().count(), 300);
    }
}

#[test]
fn a_drive_that_is_missing_is_known_to_be_and_comes_back_without_old_versions() {
    let world = World::new(4);
    let mut written = Written::new();
    let intake = open(&world, 30);
    put_many(&intake, &mut written, 0..200);
    intake.flush().expect("the drives work");
    drop(intake);
    let three: Vec<_> = (0..3).map(|drive| world.directory(drive)).collect();
    let (intake, opened) = Intake::open(world.home(), three, config(31)).expect("three are there");
    assert_eq!(opened.missing.len(), 1);
    let gone = unreadable(&intake, &written);
    assert!(!gone.is_empty());
    let deleted: Vec<_> = written.keys().filter(|key| key.ends_with(b"7")).cloned().collect();
    for key in &deleted {
        intake.delete(key).expect("three are there");
        written.remove(key);
    }
    put_many(&intake, &mut written, 90..150);
    // Merges must not drop that keys are gone, since the missing drive may hold them.
    for _ in 0..12 {
        put_many(&intake, &mut written, 1000..1010);
        intake.flush().expect("three are there");
    }
    drop(intake);
    let intake = open(&world, 32);
    assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
    for key in deleted.iter().filter(|key| !written.contains_key(*key)) {
        assert_eq!(intake.get(key).expect("all drives are there"), None);
    }
}

#[test]
fn what_is_gone_stays_gone_when_a_missing_drive_comes_back_after_merges() {
    let world = World::new(2);
    let intake = open(&world, 70);
    let mut written = Written::new();
    for key in 0..8 {
        put_many(&intake, &mut written, key..key + 1);
        intake.flush().expect("the drives work");
    }
    drop(intake);
    let binary = Config { fan_in: 2, ..config(71) };
    let (intake, opened) = Intake::open(world.home(), vec![world.directory(0)], binary).expect("one is there");
    assert_eq!(opened.missing.len(), 1);
    for key in written.keys().take(4) {
        intake.delete(key).expect("one is there");
    }
    intake.flush().expect("one is there");
    intake.forget(b"key/", None, intake.status().last).expect("one is there");
    intake.flush().expect("one is there");
    let shelves = || world.files(0).iter().filter(|(name, _)| name.contains(".shelf")).count();
    wait_until(|| shelves() == 1);
    drop(intake);
    let intake = open(&world, 72);
    assert_eq!(intake.scan(b"", None).count(), 0);
    assert!(written.keys().all(|key| matches!(intake.get(key), Ok(None))));
}

#[test]
fn a_drive_that_fills_is_left_and_one_alone_refuses_until_there_is_room() {
    let world = World::new(4);
    let intake = open(&world, 40);
    let mut written = Written::new();
    for full in 0..3 {
        put_many(&intake, &mut written, 100 * full..100 * full + 100);
        world.set_fault(full as usize, Fault::Full);
    }
    put_many(&intake, &mut written, 300..400);
    assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
    assert_eq!(intake.take_losses(), []);
    world.set_fault(3, Fault::Full);
    let refused = (0..200).find_map(|_| intake.put(b"more", b"", &[7; 1000]).err());
    assert!(matches!(refused, Some(PutError::NoSpace)), "{refused:?}");
    assert!(unreadable(&intake, &written).is_empty());
    for drive in 0..4 {
        world.set_fault(drive, Fault::None);
    }
    put_many(&intake, &mut written, 400..500);
    drop(intake);
    let intake = open(&world, 41);
    assert!(unreadable(&intake, &written).is_empty());
}

/// Opens one rotation of `world` alone, as if the drives of the other one were gone.
fn open_half(world: &World, drives: std::ops::Range<usize>, seed: u64) -> Intake {
    let drives = drives.map(|drive| world.directory(drive)).collect();
    Intake::open(world.home(), drives, config(seed)).expect("half of it is there").0
}

#[test]
fn a_rotation_that_fills_is_read_no_more_and_has_everything_once_there_is_room() {
    for first in [0, 3] {
        let world = World::new(6);
        let intake = open(&world, 80);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..60);
        (first..first + 3).for_each(|drive| world.set_fault(drive, Fault::Full));
        put_many(&intake, &mut written, 30..90);
        intake.delete(b"key/00001").expect("the other rotation takes it");
        written.remove(b"key/00001".as_slice());
        assert!(intake.status().cycles[first / 3].incomplete);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
        assert_eq!(intake.get(b"key/00001").expect("the other rotation has it"), None);
        if first == 0 {
            // The changes that only the other one took are in shelves by now, and in no log.
            intake.flush().ok();
        }
        (first..first + 3).for_each(|drive| world.set_fault(drive, Fault::None));
        wait_until(|| {
            put_many(&intake, &mut written, 90..91);
            !intake.status().cycles[first / 3].incomplete
        });
        put_many(&intake, &mut written, 85..100);
        drop(intake);
        let half = open_half(&world, first..first + 3, 81);
        assert_eq!(unreadable(&half, &written), Vec::<Vec<u8>>::new());
        assert_eq!(half.scan(b"", None).flatten().count(), written.len());
    }
}

#[test]
fn a_rotation_that_was_away_has_everything_as_soon_as_the_pool_is_open_again() {
    for flush in [false, true] {
        let world = World::new(6);
        let intake = open(&world, 90);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..60);
        (0..3).for_each(|drive| world.set_fault(drive, Fault::Broken));
        put_many(&intake, &mut written, 30..90);
        intake.delete(b"key/00001").expect("the other rotation takes it");
        written.remove(b"key/00001".as_slice());
        if flush {
            intake.flush().expect("three drives are left");
        }
        drop(intake);
        (0..3).for_each(|drive| world.set_fault(drive, Fault::None));
        drop(open(&world, 91));
        let half = open_half(&world, 0..3, 92);
        assert_eq!(unreadable(&half, &written), Vec::<Vec<u8>>::new());
        assert_eq!(half.scan(b"", None).flatten().count(), written.len());
    }
}

#[test]
fn one_drive_that_breaks_ends_everything_and_says_so() {
    let world = World::new(1);
    let intake = open(&world, 50);
    let mut written = Written::new();
    put_many(&intake, &mut written, 0..50);
    world.set_fault(0, Fault::ReadOnly);
    assert!(matches!(intake.put(b"new", b"", b"value"), Err(PutError::Unknown)));
    assert!(matches!(intake.put(b"newer", b"", b"value"), Err(PutError::Unknown)));
    assert_eq!(intake.status().copies, 0);
    drop(intake);
    world.set_fault(0, Fault::None);
    let intake = open(&world, 51);
    assert!(unreadable(&intake, &written).is_empty());
}

#[test]
fn rot_is_named_and_all_else_is_read() {
    let world = World::new(1);
    let mut written = Written::new();
    let intake = open(&world, 60);
    put_many(&intake, &mut written, 0..30);
    drop(intake);
    let name = world.files(0).into_iter().map(|(name, _)| name).find(|name| name.contains(".log"));
    let name = name.expect("there is a log");
    // In the middle, among what later batches say was synced.
    world.corrupt(0, &name, |bytes| bytes[6100] ^= 1);
    let intake = open(&world, 61);
    let losses = intake.take_losses();
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert_eq!(unreadable(&intake, &written).len(), 1);
    assert!(matches!(&losses[0], Loss::Place { rot, .. } if rot.record.is_some()));
}

#[test]
fn a_change_whose_value_has_rotted_is_replayed_all_the_same() {
    let world = World::new(1);
    let follows = |seed| Config { covered: Some(Sequence(0)), ..config(seed) };
    let (intake, _) = Intake::open(world.home(), world.directories(), follows(65)).expect("it is new");
    put_many(&intake, &mut Written::new(), 0..30);
    drop(intake);
    let name = world.files(0).into_iter().map(|(name, _)| name).find(|name| name.contains(".log"));
    world.corrupt(0, &name.expect("there is a log"), |bytes| bytes[6100] ^= 1);
    let (intake, opened) = Intake::open(world.home(), world.directories(), follows(66)).expect("it is there");
    assert_eq!(intake.take_losses().len(), 1);
    let replayed: Vec<u64> = opened.replay.map(|change| change.expect("it can be read").sequence.0).collect();
    assert_eq!(replayed, (1..=30).collect::<Vec<u64>>(), "only the value of one of them is gone");
}

/// A rotation whose drive breaks gets back what it lost from the other one, which has forgotten by then that some keys
/// are gone: its merges had no older version of them left.
#[test]
fn what_is_gone_stays_gone_when_a_rotation_gets_back_what_it_lost() {
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let world = World::new(6);
        let intake = open(&world, 100 + seed);
        let (mut written, mut gone) = (Written::new(), Vec::new());
        put_many(&intake, &mut written, 0..60);
        for round in 0..rng.below(8) + 2 {
            if rng.below(3) == 0 {
                intake.flush().expect("the drives work");
            }
            for key in (0..60).filter(|_| rng.below(8) == 0) {
                let key = format!("key/{key:05}").into_bytes();
                intake.delete(&key).expect("the drives work");
                written.remove(&key);
                gone.push(key);
            }
            put_many(&intake, &mut written, 100 + 10 * round..110 + 10 * round);
        }
        let broken = 3 + rng.below(3) as usize;
        world.set_fault(broken, Fault::Broken);
        let mut key = 300;
        wait_until(|| {
            put_many(&intake, &mut written, key..key + 10);
            key += 1;
            intake.status().cycles[1].drives.iter().any(|drive| drive.lost)
        });
        wait_until(|| intake.status().cycles.iter().all(|cycle| !cycle.incomplete));
        // From now on the rotation that was healed is all there is.
        (0..3).for_each(|drive| world.set_fault(drive, Fault::Broken));
        put_many(&intake, &mut written, 900..920);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new(), "seed {seed}");
        let back: Vec<_> = gone.iter().filter(|key| !matches!(intake.get(key), Ok(None))).collect();
        assert!(back.is_empty(), "seed {seed}, drive {broken}: {back:?}");
    }
}

/// A shelf that rots in one rotation is rewritten from the other one, as soon as a merge finds it; this is no loss.
#[test]
fn a_shelf_that_rots_is_written_anew_from_the_other_rotation() {
    for damaged in 0..6 {
        let world = World::new(6);
        let intake = open(&world, 160);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..40);
        intake.flush().expect("the drives work");
        let shelves = |world: &World, drive| {
            let files = world.files(drive).into_iter().map(|(name, _)| name);
            files.filter(|name| name.contains(".shelf")).collect::<Vec<_>>()
        };
        let found = shelves(&world, damaged);
        for name in &found {
            world.corrupt(damaged, name, |bytes| {
                let middle = bytes.len() / 3;
                bytes[middle] ^= 4;
            });
        }
        // Logs that become shelves have them merged.
        for round in 0..12 {
            put_many(&intake, &mut written, 100 + 10 * round..110 + 10 * round);
            intake.flush().expect("the drives work");
        }
        wait_until(|| !found.iter().any(|name| shelves(&world, damaged).contains(name)));
        wait_until(|| intake.status().cycles.iter().all(|cycle| !cycle.incomplete));
        assert_eq!((intake.take_losses(), intake.status().losses), (vec![], 0));
        // It no longer needs the records of the other rotation.
        let others = if damaged < 3 { 3..6 } else { 0..3 };
        others.for_each(|drive| world.set_fault(drive, Fault::Broken));
        put_many(&intake, &mut written, 300..320);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new(), "drive {damaged}");
        drop(intake);
        (0..6).for_each(|drive| world.set_fault(drive, Fault::None));
        let intake = open(&world, 161);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
        assert_eq!(intake.take_losses(), []);
    }
}

/// Changes that only another rotation took are lost with its drive, and no older version replaces them.
#[test]
fn what_only_the_rotation_with_a_missing_drive_took_is_known_to_be_lost() {
    for (missing, flushes) in [(3, false), (4, false), (5, false), (3, true), (4, true), (5, true)] {
        let world = World::new(6);
        let intake = open(&world, 100);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..60);
        (0..3).for_each(|drive| world.set_fault(drive, Fault::Full));
        put_many(&intake, &mut written, 30..120);
        if flushes {
            intake.flush().ok();
        }
        drop(intake);
        (0..3).for_each(|drive| world.set_fault(drive, Fault::None));
        let there = || (0..6).filter(|drive| *drive != missing).map(|drive| world.directory(drive)).collect();
        let wary = Config { needs_all: true, ..config(101) };
        let refused = Intake::open(world.home(), there(), wary).err();
        let (intake, _) = Intake::open(world.home(), there(), config(102)).expect("five are there");
        let gone = unreadable(&intake, &written);
        let lacks_drives = matches!(refused, Some(OpenError::LacksDrives));
        assert!(gone.is_empty() || lacks_drives, "drive {missing}: {} are gone, and {refused:?}", gone.len());
        drop(intake);
        let intake = open(&world, 103);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new(), "it is there again");
    }
}

/// A kill between the writes of two rotations leaves an unacknowledged change in one of them. No drive of that one is
/// needed to start, at this start or at a later one.
#[test]
fn a_change_that_a_kill_left_in_one_rotation_needs_no_missing_drive() {
    let mut needless = 0;
    for missing in 0..6 {
        let world = World::new(6);
        let mut written = Written::new();
        let before = {
            let intake = open(&world, 120);
            put_many(&intake, &mut written, 0..40);
            let before = world.position();
            put_many(&intake, &mut written.clone(), 40..43);
            before
        };
        for position in before..world.position() {
            let left = world.kill(position);
            let there = || (0..6).filter(|drive| *drive != missing).map(|drive| left.directory(drive)).collect();
            let wary = |seed| Config { needs_all: true, ..config(seed) };
            for seed in [121, 122] {
                let (intake, _) = Intake::open(left.home(), there(), wary(seed)).expect("the other rotation has all");
                assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new(), "drive {missing} at {position}");
            }
            needless += 1;
        }
    }
    assert!(needless > 100, "{needless}");
}

/// A change that forgets leaves no record, but its number stays known: the rotation that has all its drives lacks
/// nothing.
#[test]
fn a_number_that_forgot_something_is_missed_by_no_rotation() {
    for (missing, forgotten) in (0..6).flat_map(|missing| [(missing, 20), (missing, 60)]) {
        let world = World::new(6);
        let intake = open(&world, 105);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..60);
        intake.flush().expect("there is room");
        intake.forget(b"", None, Sequence(forgotten)).expect("there is room");
        written.retain(|_, sequence| sequence.0 > forgotten);
        intake.flush().expect("there is room");
        drop(intake);
        (106..109).for_each(|seed| open(&world, seed).flush().map(drop).expect("there is room"));
        let there = (0..6).filter(|drive| *drive != missing).map(|drive| world.directory(drive)).collect();
        let wary = Config { needs_all: true, ..config(109) };
        let (intake, _) = Intake::open(world.home(), there, wary).expect("one rotation has all its drives");
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
        assert_eq!(intake.get(b"key/00003").expect("nothing is lost"), None);
    }
}

#[test]
fn a_rotation_that_lost_a_drive_and_then_lagged_is_healed_before_it_counts() {
    let world = World::new(6);
    let intake = open(&world, 110);
    let mut written = Written::new();
    let is_whole = || intake.status().cycles.iter().all(|cycle| !cycle.incomplete);
    put_many(&intake, &mut written, 0..100);
    world.set_fault(0, Fault::Broken);
    put_many(&intake, &mut written, 100..150);
    intake.flush().expect("five drives are left");
    wait_until(is_whole);
    (1..3).for_each(|drive| world.set_fault(drive, Fault::Full));
    put_many(&intake, &mut written, 50..200);
    (1..3).for_each(|drive| world.set_fault(drive, Fault::None));
    for _ in 0..30 {
        put_many(&intake, &mut written, 200..201);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until(|| {
        put_many(&intake, &mut written, 200..201);
        is_whole()
    });
    drop(intake);
    let half = (1..3).map(|drive| world.directory(drive)).collect();
    let (half, _) = Intake::open(world.home(), half, config(111)).expect("two of them are there");
    unreadable(&half, &written);
}

#[test]
fn what_the_other_rotation_forgot_meanwhile_is_forgotten() {
    for flushes in [false, true] {
        let world = World::new(6);
        let intake = open(&world, 120);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..60);
        intake.flush().expect("the drives work");
        (0..3).for_each(|drive| world.set_fault(drive, Fault::Full));
        put_many(&intake, &mut written, 60..120);
        let last = *written.values().max().expect("some were written");
        intake.forget(b"key/", Some(b"key0"), last).expect("the other rotation takes it");
        if flushes {
            intake.flush().ok();
        }
        drop(intake);
        (0..3).for_each(|drive| world.set_fault(drive, Fault::None));
        drop(open(&world, 121));
        let half = open_half(&world, 0..3, 122);
        assert_eq!(half.scan(b"", None).flatten().count(), 0, "flushes: {flushes}");
    }
}

#[test]
fn what_was_forgotten_does_not_show_again_as_certain_when_a_drive_fails() {
    for broken in 0..4 {
        let world = World::new(4);
        let intake = open(&world, 130);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..100);
        intake.flush().expect("the drives work");
        let last = *written.values().max().expect("some were written");
        intake.forget(b"key/", Some(b"key0"), last).expect("the drives work");
        intake.flush().expect("the drives work");
        world.set_fault(broken, Fault::Broken);
        for number in 0..60_u64 {
            intake.put(format!("other/{number}").as_bytes(), b"", &[7; 300]).expect("three drives are left");
        }
        intake.flush().expect("three drives are left");
        assert_eq!(intake.status().cycles[0].drives.iter().filter(|drive| drive.lost).count(), 1);
        for key in written.keys() {
            let found = intake.get(key);
            let is_certain = matches!(&found, Ok(Some(stored)) if stored.certain);
            assert!(!is_certain, "drive {broken}, {}: {found:?}", key.escape_ascii());
        }
    }
}

#[test]
fn a_log_that_cannot_be_read_once_counts_when_it_can_be_again() {
    for drives in [1, 6] {
        let world = World::new(drives);
        let intake = open(&world, 140);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..30);
        drop(intake);
        let mut all = world.files(0).into_iter().chain(world.files(1 % drives)).chain(world.files(2 % drives));
        let (name, bytes) =
            all.find(|(name, bytes)| name.contains(".log") && bytes.len() > 8192).expect("it has a log");
        let drive = (0..drives).find(|drive| world.files(*drive).iter().any(|(other, _)| *other == name));
        let drive = drive.expect("it is on a drive");
        // More than a few sectors.
        (0..bytes.len() as u64 / 4096 + 20).for_each(|sector| world.spoil(drive, &name, sector));
        world.corrupt(drive, &name, |bytes| bytes.resize(bytes.len() + 20 * 4096, 0));
        let accepting = Config { accepts_losses: true, ..config(141) };
        let (intake, _) = Intake::open(world.home(), world.directories(), accepting).expect("the loss is accepted");
        let gone = unreadable(&intake, &written);
        assert_eq!(gone.is_empty(), drives == 6, "{}", gone.len());
        drop(intake);
        let intake = open(&world.kill(world.position()), 142);
        assert_eq!(unreadable(&intake, &written), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn the_end_of_a_log_that_was_cut_off_is_missed_at_every_start_as_long_as_it_is_a_log() {
    let world = World::new(1);
    let intake = open(&world, 150);
    let mut written = Written::new();
    put_many(&intake, &mut written, 0..20);
    drop(intake);
    let name = world.files(0).into_iter().map(|(name, _)| name).find(|name| name.contains(".log"));
    world.corrupt(0, &name.expect("there is a log"), |bytes| bytes.truncate(bytes.len() - 900));
    let gone = unreadable(&open(&world, 151), &written);
    assert!(!gone.is_empty());
    for seed in 152..155 {
        assert_eq!(unreadable(&open(&world, seed), &written), gone);
    }
}

#[test]
fn what_was_removed_while_a_shelf_was_missing_is_gone_when_that_is_there_again() {
    for seed in 160..164 {
        let world = World::new(4);
        let intake = open(&world, seed);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..100);
        intake.flush().expect("the drives work");
        drop(intake);
        let drive = (seed % 4) as usize;
        let shelf = world.files(drive).into_iter().find(|(name, _)| name.contains(".shelf"));
        let Some((name, bytes)) = shelf else { continue };
        world.put_file(drive, &name, None);
        let accepting = Config { accepts_losses: true, ..config(seed + 10) };
        let (intake, _) = Intake::open(world.home(), world.directories(), accepting).expect("the loss is accepted");
        for key in written.keys() {
            intake.delete(key).expect("the drives work");
        }
        intake.flush().expect("the drives work");
        put_many(&intake, &mut Written::new(), 500..700);
        intake.flush().expect("the drives work");
        drop(intake);
        world.put_file(drive, &name, Some(bytes));
        let intake = open(&world, seed + 20);
        for key in written.keys() {
            let found = intake.get(key);
            assert!(!matches!(&found, Ok(Some(stored)) if stored.certain), "{}: {found:?}", key.escape_ascii());
        }
    }
}
