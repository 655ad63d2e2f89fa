//! Promises to callers beyond reads and writes: conditions, followers, replay, merges, rotation, real files.

mod common;

use common::{config, put_many, wait_until};
use intake::medium::Directory;
use intake::medium::files::DirectoryOfFiles;
use intake::medium::memory::World;
use intake::medium::overlay::Overlay;
use intake::{Applied, Change, Config, Follower, Intake, Kind, PutError, RETAINED_MAX, Sequence};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The directory below stays as it was, for every use of a pool that is opened read-only.
#[test]
fn a_look_sees_everything_and_changes_nothing() {
    let world = World::new(1);
    let (intake, _) = Intake::open(world.home(), world.directories(), config(1)).expect("it is new");
    let mut written = BTreeMap::new();
    put_many(&intake, &mut written, 0..100);
    intake.flush().expect("there is room");
    put_many(&intake, &mut written, 50..150);
    drop(intake);
    let before = world.files(0);
    let over = vec![Box::new(Overlay::over(world.directory(0))) as Box<dyn Directory>];
    let (look, opened) = Intake::open(world.home(), over, Config { is_look: true, ..config(2) }).expect("it is there");
    assert_eq!((opened.last, opened.torn_bytes), (Sequence(200), 0));
    let found = look.scan(b"", None).map(|item| item.map(|(key, stored)| (key, stored.sequence)));
    assert_eq!(found.collect::<Result<BTreeMap<_, _>, _>>().expect("nothing is damaged"), written);
    drop(look);
    assert!(world.files(0) == before, "looking changes nothing");
}

type Table = Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>;

/// A catalog: the newest entry of each key.
struct Catalog(Table);

impl Follower for Catalog {
    fn apply(&mut self, batch: &[Applied<'_>]) {
        let mut table = self.0.lock().expect("nobody panics");
        for change in batch {
            match change.kind {
                Kind::Put => drop(table.insert(change.key.to_vec(), change.entry.to_vec())),
                _ => drop(table.remove(change.key)),
            }
        }
    }
}

#[test]
fn conditions_are_checked_in_the_order_of_numbers_against_what_follows() {
    let world = World::new(1);
    let table = Table::default();
    let follower = Catalog(Arc::clone(&table));
    let (intake, _) =
        Intake::open_with(world.home(), world.directories(), config(1), |_| Ok(follower)).expect("it is new");
    let intake = Arc::new(intake);
    // Of many that create the same key at once, one succeeds.
    let threads: Vec<_> = (0..8u64)
        .map(|thread| {
            let (intake, table) = (Arc::clone(&intake), Arc::clone(&table));
            std::thread::spawn(move || {
                let create = |round: u64| {
                    let key = format!("key {round}").into_bytes();
                    let change =
                        Change::Put { key: key.clone(), entry: vec![thread as u8], value: vec![1; 100].into() };
                    let table = Arc::clone(&table);
                    let prepare = move |draft: &mut intake::Draft<'_>| {
                        let is_pending = draft.pending(&key).is_some_and(|(_, kind, _)| kind == Kind::Put);
                        let is_there = table.lock().expect("nobody panics").contains_key(&key);
                        draft.entry.push(9);
                        if is_pending || is_there { Err("it exists".into()) } else { Ok(()) }
                    };
                    intake.submit_and_wait(change, Some(Box::new(prepare)))
                };
                (0..200)
                    .filter(|round| match create(*round) {
                        Ok(_) => true,
                        Err(PutError::Refused(_)) => false,
                        Err(error) => panic!("{error}"),
                    })
                    .count()
            })
        })
        .collect();
    let created: usize = threads.into_iter().map(|thread| thread.join().expect("it ends")).sum();
    assert_eq!(created, 200);
    let table = table.lock().expect("nobody panics");
    for (key, entry) in table.iter() {
        assert_eq!(&intake.head(key).expect("it works").expect("it is there").entry, entry);
    }
    assert_eq!(intake.status().accepted, 200);
}

#[test]
fn a_caller_who_never_catches_up_is_refused_and_never_waits_for_ever() {
    let world = World::new(4);
    let follows = Config { covered: Some(Sequence(0)), ..config(1) };
    let (intake, _) = Intake::open(world.home(), world.directories(), follows).expect("it is new");
    let value = vec![7; 1_000];
    let mut accepted = 0;
    let refused = loop {
        match intake.put(format!("key{accepted:08}").as_bytes(), b"", &value) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 100_000, "there is an end to it");
    };
    assert!(matches!(refused, PutError::Retaining), "{refused}");
    assert!(matches!(intake.delete(b"key00000000"), Err(PutError::Retaining)));
    // The last change that was taken may have filled one log while another one was becoming a shelf.
    let retained = intake.status().cycles[0].retained;
    assert!((RETAINED_MAX..RETAINED_MAX + 4).contains(&retained), "{retained}");
    assert!(intake.get(b"key00000000").expect("it can be read").is_some());
    intake.covered(intake.status().last);
    intake.delete(b"key00000000").expect("there is room again");
    assert!(intake.get(b"key00000000").expect("it can be read").is_none());
}

#[test]
fn what_the_caller_does_not_know_is_replayed_in_order_and_its_logs_are_retained() {
    let world = World::new(4);
    let follows = |covered| Config { covered: Some(Sequence(covered)), ..config(covered + 2) };
    let (intake, opened) = Intake::open(world.home(), world.directories(), follows(0)).expect("it is new");
    assert_eq!(opened.replay.count(), 0);
    put_many(&intake, &mut BTreeMap::new(), 0..300);
    intake.delete(b"key/00003").expect("it works");
    intake.flush().expect("it works");
    intake.covered(Sequence(100));
    drop(intake);
    for covered in [100, 250, 301] {
        let (_, opened) = Intake::open(world.home(), world.directories(), follows(covered)).expect("it is there");
        assert_eq!(opened.last, Sequence(301));
        let replayed: Vec<_> = opened.replay.map(|change| change.expect("the logs can be read")).collect();
        assert!(replayed.iter().map(|change| change.sequence.0).eq(covered + 1..=301), "from {covered}");
        assert!(replayed.iter().all(|change| change.kind == Kind::Delete || change.entry == b"entry"));
    }
}

#[test]
fn with_four_drives_no_drive_does_two_things_and_idle_ones_sleep() {
    let world = World::new(4);
    let config = Config { idle_timeout: Some(Duration::from_millis(1)), ..config(3) };
    let (intake, _) = Intake::open(world.home(), world.directories(), config).expect("it is new");
    let mut written = BTreeMap::new();
    for round in 0..20 {
        put_many(&intake, &mut written, 50 * round..50 * round + 50);
        let status = intake.status();
        assert!(status.cycles[0].drives.iter().all(|drive| !drive.stages.contend()), "{status:?}");
    }
    intake.flush().expect("it works");
    let status = intake.status();
    assert!(status.cycles[0].stats.transformed >= 20, "{:?}", status.cycles[0].stats);
    assert!((1..4).map(|drive| world.power(drive).1).sum::<u64>() > 0, "drives slept, and were started again");
    assert_eq!(intake.scan_entries(b"", None).count(), 1000);
}

#[test]
fn what_is_overwritten_and_forgotten_gives_its_room_back() {
    let world = World::new(1);
    let (intake, _) = Intake::open(world.home(), world.directories(), config(4)).expect("it is new");
    let bytes = |world: &World| world.files(0).iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    for _ in 0..40 {
        put_many(&intake, &mut BTreeMap::new(), 0..50);
    }
    intake.flush().expect("it works");
    // Two shelves of each tier at most, with each key once, of 752,000 bytes that were put.
    wait_until(|| bytes(&world) < 150_000);
    let last = intake.put(b"key/99999", b"", b"stays").expect("it works");
    intake.forget(b"key/", Some(b"key/9"), last).expect("it works");
    intake.flush().expect("it works");
    // The label remains, at most two shelves, which are too few to be merged and consist only of their edges, the log
    // on duty, and the room for the next one.
    wait_until(|| bytes(&world) <= LABEL_BYTES + 2 * EDGES_BYTES + 2 * ROOM_BYTES_MAX);
    assert_eq!(intake.scan(b"", None).count(), 1);
}

/// Bytes of a pool's label.
const LABEL_BYTES: usize = 4096;

/// Bytes of an almost empty shelf: header, and tail and footer twice each, in separate pages.
const EDGES_BYTES: usize = 5 * 4096;

/// Bytes that a log takes, be it room alone, with the logs of [`config`].
const ROOM_BYTES_MAX: usize = 2 * (12 << 10);

#[test]
fn a_log_lies_in_the_room_that_a_dead_one_left() {
    let (world, mut reference) = (World::new(1), BTreeMap::new());
    let (intake, _) = Intake::open(world.home(), world.directories(), config(6)).expect("it is new");
    for round in 0..30 {
        put_many(&intake, &mut reference, round * 50..(round + 1) * 50);
        intake.flush().expect("it works");
        // A merge that still looks at a dead log keeps the next one from lying in its room.
        wait_until(|| intake.status().cycles[0].drives.iter().all(|drive| !drive.stages.transforms()));
    }
    // Each round leaves one log at least.
    let made = world.made(0, ".log");
    assert!(made <= 15, "{made} files for 30 logs and more");
    drop(intake);
    let (intake, opened) = Intake::open(world.home(), world.directories(), config(7)).expect("it is there");
    assert_eq!((opened.torn_bytes, intake.take_losses()), (0, Vec::new()), "what a dead log left is no torn tail");
    assert_eq!(intake.scan(b"", None).count(), reference.len());
}

#[test]
fn a_queue_that_is_full_slows_and_then_refuses() {
    let world = World::new(1);
    let config = Config { queue_bytes: 10_000, ..config(5) };
    let (intake, _) = Intake::open(world.home(), world.directories(), config).expect("it is new");
    world.set_fault(0, intake::medium::memory::Fault::Hang);
    let change = || Change::Put { key: b"key".to_vec(), entry: Vec::new(), value: vec![1; 1000].into() };
    let mut acks = Vec::new();
    let mut paces = Vec::new();
    let refused = loop {
        match intake.submit(change(), None) {
            Ok(ack) => acks.push(ack),
            Err(error) => break error,
        }
        paces.push(intake.pace());
    };
    assert!(matches!(refused, PutError::Busy));
    assert!((9..=20).contains(&acks.len()), "{}", acks.len());
    assert!(paces.is_sorted_by_key(|pace| *pace) || paces.contains(&Duration::ZERO));
    assert!(paces.last().is_some_and(|pace| *pace > Duration::from_millis(10)));
    world.set_fault(0, intake::medium::memory::Fault::None);
    assert!(acks.into_iter().all(|ack| ack.wait().is_ok()));
    let long = Change::Put { key: vec![1; 5000], entry: Vec::new(), value: Vec::new().into() };
    assert!(matches!(intake.submit(long, None), Err(PutError::TooLong { what: "key", .. })));
}

#[test]
fn real_files_are_found_again_and_kept_from_others() {
    let folder = tempfile::tempdir().expect("there is room");
    let open = |seed| {
        let directory = |name: &str| DirectoryOfFiles::open(&folder.path().join(name));
        let directories = ["a", "b", "c", "d"].map(|name| Box::new(directory(name).expect("it is free")) as _);
        Intake::open(Box::new(directory("home").expect("it is free")), directories.into(), config(seed))
            .expect("it works")
            .0
    };
    let mut written = BTreeMap::new();
    for seed in 1..4 {
        let intake = open(seed);
        assert!(DirectoryOfFiles::open(&folder.path().join("a")).is_err(), "it is taken");
        put_many(&intake, &mut written, 100 * seed..100 * seed + 100);
        assert!(intake.scan(b"", None).map(|item| item.expect("it is whole").0).eq(written.keys().cloned()));
    }
    let intake = open(9);
    assert_eq!(intake.scan(b"", None).count(), 300);
}
