//! Files that are missing, older or another's are noticed by the manifest, and nothing of what they held is answered as
//! if it had never been there.

mod common;

use common::{config, put_many, wait_until};
use intake::medium::memory::{Fault, World};
use intake::{Config, Intake, Loss, OpenError, PutError, ReadError, Sequence};
use model::Rng;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

type Written = BTreeMap<Vec<u8>, Sequence>;
type Files = Vec<(String, Vec<u8>)>;

/// More than the manifest is behind.
const SETTLED: Duration = Duration::from_millis(1_200);

fn setting(seed: u64) -> Config {
    Config { deadline: Duration::from_secs(5), ..config(seed) }
}

fn try_open(world: &World, setting: Config) -> Result<Intake, OpenError> {
    Intake::open(world.home(), world.directories(), setting).map(|(intake, _)| intake)
}

fn open(world: &World, seed: u64) -> Intake {
    try_open(world, setting(seed)).expect("the pool can be opened")
}

/// A pool whose server was killed: some keys in shelves, newer versions of some and further ones in a log. Also the
/// content of the drives at an earlier moment.
struct Killed {
    world: World,
    earlier: Vec<Files>,
    written: Written,
}

fn killed(drives: usize) -> Killed {
    let world = World::new(drives);
    let intake = open(&world, 1);
    let mut written = Written::new();
    put_many(&intake, &mut written, 0..60);
    intake.flush().expect("there is room");
    put_many(&intake, &mut written, 60..62);
    let earlier = (0..=drives).map(|drive| world.files(drive)).collect();
    put_many(&intake, &mut written, 40..100);
    intake.flush().expect("there is room");
    put_many(&intake, &mut written, 20..25);
    put_many(&intake, &mut written, 100..105);
    thread::sleep(SETTLED);
    let world = world.crash(world.position(), &mut Rng::new(1));
    drop(intake);
    Killed { world, earlier, written }
}

fn write(world: &World, drive: usize, name: &str, bytes: &[u8]) {
    let directory = world.directory(drive);
    directory.remove(name).ok();
    directory.create(name).and_then(|file| file.write_at(bytes, 0)).expect("there is room");
}

fn is_kind(name: &str, kind: &str) -> bool {
    name.ends_with(&format!(".{kind}"))
}

/// The files that hold something, by kind.
fn named(world: &World, drive: usize, kind: &str) -> Files {
    world.files(drive).into_iter().filter(|(name, bytes)| is_kind(name, kind) && bytes.len() > 4096).collect()
}

/// The log with the newest record is the one that was written last.
fn newest_log(world: &World, drive: usize) -> Option<(String, Vec<u8>)> {
    named(world, drive, "log").into_iter().max_by_key(|(name, _)| name.clone())
}

/// The keys whose newest version cannot be read. None has an older one, or is said never to have been.
fn unreadable(intake: &Intake, written: &Written, what: &str) -> Vec<Vec<u8>> {
    let mut gone = Vec::new();
    for (key, sequence) in written {
        match intake.get(key) {
            Ok(Some(stored)) if stored.sequence == *sequence => {}
            Ok(Some(stored)) if !stored.certain => gone.push(key.clone()),
            Err(ReadError::Lost) => gone.push(key.clone()),
            other => panic!("{what}: {}: {other:?}", key.escape_ascii()),
        }
    }
    gone
}

/// `world` is refused for the sake of the file `name`; accepted, it answers with errors; and with the file back it has
/// all.
fn lacks(pool: &Killed, world: &World, name: &str, whole: &[u8], what: &str) {
    let refused = try_open(world, setting(10)).err();
    let names_it = |error: &OpenError| error.to_string().contains(name);
    assert!(matches!(&refused, Some(error @ OpenError::Incomplete(_)) if names_it(error)), "{what}: {refused:?}");
    let intake = try_open(world, Config { accepts_losses: true, ..setting(11) }).expect("it is accepted");
    assert!(!unreadable(&intake, &pool.written, what).is_empty(), "{what}");
    assert!(intake.take_losses().iter().any(|loss| matches!(loss, Loss::File { name: lost, .. } if lost == name)));
    drop(intake);
    let intake = open(world, 12);
    assert!(!unreadable(&intake, &pool.written, what).is_empty(), "{what}, opened again");
    drop(intake);
    write(world, 0, name, whole);
    assert_eq!(unreadable(&open(world, 13), &pool.written, what).len(), 0, "{what}, put back");
}

#[test]
fn a_file_that_is_missing_or_anothers_is_named_and_what_it_held_is_answered_with_an_error() {
    let pool = killed(1);
    let again = || pool.world.crash(pool.world.position(), &mut Rng::new(2));
    let shelves = named(&pool.world, 0, "shelf");
    let log = newest_log(&pool.world, 0).expect("there is a log");
    assert!(!shelves.is_empty());
    for (name, whole) in shelves.iter().chain([&log]) {
        let world = again();
        world.directory(0).remove(name).expect("it is there");
        lacks(&pool, &world, name, whole, &format!("{name} is missing"));
    }
    // A shelf in the place of the log, and a log in the place of a shelf.
    let world = again();
    write(&world, 0, &log.0, &shelves[0].1);
    let refused = try_open(&world, Config { needs_all: true, ..setting(10) }).err();
    assert!(matches!(refused, Some(OpenError::Incomplete(_))), "{refused:?}");
    let world = again();
    write(&world, 0, &shelves[0].0, &log.1);
    lacks(&pool, &world, &shelves[0].0, &shelves[0].1, "a log in the place of a shelf");
}

/// The catalog may need a log that is a shelf already. A rotation that lags, or got those changes in a shelf, does not
/// show them.
#[test]
fn a_rotation_without_these_changes_in_a_log_does_not_show_what_a_lost_log_had() {
    let setting = |seed| Config { covered: Some(Sequence(0)), needs_all: true, ..setting(seed) };
    let world = World::new(6);
    let intake = try_open(&world, setting(1)).expect("it is new");
    put_many(&intake, &mut Written::new(), 0..20);
    (0..3).for_each(|drive| world.set_fault(drive, Fault::Full));
    put_many(&intake, &mut Written::new(), 20..120);
    intake.flush().ok();
    drop(intake);
    (0..3).for_each(|drive| world.set_fault(drive, Fault::None));
    let mut retained = 0;
    for drive in 3..6 {
        for (name, _) in named(&world, drive, "log") {
            let world = world.kill(world.position());
            world.directory(drive).remove(&name).expect("it is there");
            match Intake::open(world.home(), world.directories(), setting(2)) {
                Ok((_, opened)) => {
                    assert!(opened.unshown.is_some(), "{name} on drive {drive}");
                    retained += 1;
                }
                Err(error) => assert!(matches!(error, OpenError::Incomplete(_)), "{error}"),
            }
        }
    }
    assert!(retained > 0, "a log was a shelf already");
}

/// A shelf that is there a second time under a name that the manifest does not know: nothing is missing, at any start.
#[test]
fn a_file_that_is_there_twice_costs_nothing_and_stays() {
    let pool = killed(1);
    let world = pool.world.crash(pool.world.position(), &mut Rng::new(2));
    let (name, bytes) = named(&world, 0, "shelf").swap_remove(0);
    let digits = name.find(".shelf").expect("it is a shelf") - 3;
    for (twin, first) in [("fff", 10), ("ffe", 20)] {
        let twin = format!("{}{twin}.shelf", &name[..digits]);
        write(&world, 0, &twin, &bytes);
        for seed in first..first + 5 {
            let intake = try_open(&world, Config { needs_all: true, ..setting(seed) }).expect("nothing is missing");
            assert!(intake.is_whole() && intake.take_losses().is_empty(), "{twin}, seed {seed}");
            assert_eq!(unreadable(&intake, &pool.written, "a twin"), Vec::<Vec<u8>>::new());
            if seed == first + 2 {
                intake.flush().expect("there is room");
            }
        }
        assert!(world.files(0).iter().any(|(name, _)| *name == twin), "an unknown file is not removed");
    }
}

#[test]
fn a_log_that_ends_early_has_lost_what_was_behind_that() {
    let pool = killed(1);
    let (name, whole) = newest_log(&pool.world, 0).expect("there is a log");
    // The file may be longer, since a log before it was.
    let (last, _) = pool.written.iter().max_by_key(|(_, sequence)| **sequence).expect("there are some");
    let end = whole.windows(last.len()).position(|bytes| bytes == last).expect("it is in the log");
    for left in [0, 100, 4096, 4097, usize::midpoint(4096, end), end] {
        let world = pool.world.crash(pool.world.position(), &mut Rng::new(2));
        world.corrupt(0, &name, |bytes| bytes.truncate(left));
        let what = format!("{left} of more than {end} bytes are left");
        let refused = try_open(&world, Config { needs_all: true, ..setting(10) }).err();
        let names_it = |error: &OpenError| error.to_string().contains(&name);
        assert!(matches!(&refused, Some(error @ OpenError::Incomplete(_)) if names_it(error)), "{what}: {refused:?}");
        let intake = open(&world, 11);
        assert!(!unreadable(&intake, &pool.written, &what).is_empty(), "{what}");
        intake.flush().expect("there is room");
        drop(intake);
        assert!(!unreadable(&open(&world, 12), &pool.written, &what).is_empty(), "{what}, opened again");
    }
    // The last bytes are zeros, as if they had never been written.
    let world = pool.world.crash(pool.world.position(), &mut Rng::new(2));
    world.corrupt(0, &name, |bytes| {
        bytes[end / 2..].fill(0);
    });
    assert!(try_open(&world, Config { needs_all: true, ..setting(10) }).is_err());
    assert!(!unreadable(&open(&world, 11), &pool.written, "zeros").is_empty());
}

#[test]
fn a_rotation_that_lacks_a_file_gets_it_back_from_the_other_one() {
    let pool = killed(6);
    for drive in 0..6 {
        for kind in ["shelf", "log"] {
            for (name, _) in named(&pool.world, drive, kind) {
                let world = pool.world.crash(pool.world.position(), &mut Rng::new(2));
                world.directory(drive).remove(&name).expect("it is there");
                all_is_there(&pool, &world, &format!("{name} of drive {drive}"));
            }
        }
        let world = pool.world.crash(pool.world.position(), &mut Rng::new(2));
        for (name, _) in world.files(drive) {
            world.directory(drive).remove(&name).expect("it is there");
        }
        for (name, bytes) in &pool.earlier[drive] {
            write(&world, drive, name, bytes);
        }
        all_is_there(&pool, &world, &format!("drive {drive} is older"));
    }
}

/// `world` has everything, and soon twice, so that each half of it does.
fn all_is_there(pool: &Killed, world: &World, what: &str) {
    let intake = try_open(world, Config { needs_all: true, ..setting(20) });
    let intake = intake.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(unreadable(&intake, &pool.written, what).len(), 0, "{what}");
    assert_eq!(intake.take_losses(), [], "{what}");
    wait_until(|| intake.status().cycles.iter().all(|cycle| !cycle.incomplete));
    intake.flush().expect("there is room");
    drop(intake);
    for (half, drives) in [(21, 0..3), (22, 3..6)] {
        let drives = drives.map(|drive| world.directory(drive)).collect();
        let (half, _) = Intake::open(world.home(), drives, setting(half)).expect("half of it is there");
        assert_eq!(unreadable(&half, &pool.written, what).len(), 0, "half of {what}");
    }
}

#[test]
fn a_manifest_that_is_gone_damaged_or_older_is_noticed() {
    let pool = killed(1);
    let again = || pool.world.crash(pool.world.position(), &mut Rng::new(2));
    let slots: Vec<String> = pool.world.files(1).into_iter().map(|(name, _)| name).collect();
    assert_eq!(slots.len(), 2);
    let needy = |seed| Config { needs_all: true, ..setting(seed) };
    let remove = |world: &World, name: &str| world.directory(1).remove(name).expect("it is there");
    let flip = |world: &World, name: &str| world.corrupt(1, name, |bytes| bytes[60] ^= 1);
    for damage in [&remove as &dyn Fn(&World, &str), &flip] {
        // Of one slot, nothing is lost.
        for name in &slots {
            let world = again();
            damage(&world, name);
            let intake = try_open(&world, needy(10)).expect("one slot is enough");
            assert_eq!(unreadable(&intake, &pool.written, name).len(), 0);
        }
        let world = again();
        for name in &slots {
            damage(&world, name);
        }
        let refused = try_open(&world, needy(10)).err();
        assert!(matches!(refused, Some(OpenError::Manifest(_))), "{refused:?}");
        // A caller that knows what must be there continues, and has a manifest again.
        assert_eq!(unreadable(&open(&world, 11), &pool.written, "made anew").len(), 0);
        try_open(&world, needy(12)).expect("it is there again");
    }
    let world = again();
    drop(open(&world, 10));
    put_many(&open(&world, 11), &mut Written::new(), 500..505);
    for (name, bytes) in pool.world.files(1) {
        write(&world, 1, &name, &bytes);
    }
    let refused = try_open(&world, setting(12)).err();
    let is_older = |error: &OpenError| error.to_string().contains("is older than the files");
    assert!(matches!(&refused, Some(error @ OpenError::Manifest(_)) if is_older(error)), "{refused:?}");
    let accepted = try_open(&world, Config { accepts_losses: true, ..setting(13) }).expect("it is accepted");
    assert_eq!(unreadable(&accepted, &pool.written, "accepted").len(), 0);
}

#[test]
fn a_home_without_room_refuses_and_loses_nothing() {
    for fault in [Fault::Full, Fault::ReadOnly, Fault::Broken] {
        let world = World::new(2);
        let intake = open(&world, 1);
        let mut written = Written::new();
        put_many(&intake, &mut written, 0..30);
        world.set_fault(world.home_drive(), fault);
        let mut put = |number: u64| {
            let key = format!("more/{number}").into_bytes();
            let sequence = intake.put(&key, b"", &[1; 3_000])?;
            written.insert(key, sequence);
            Ok(())
        };
        let refused = (0..50).find_map(|number| put(number).err());
        assert!(matches!(refused, Some(PutError::NoSpace)), "{fault:?}: {refused:?}");
        world.set_fault(world.home_drive(), Fault::None);
        wait_until(|| put(1_000).is_ok());
        assert!(unreadable(&intake, &written, "it goes on").is_empty());
        assert_eq!(intake.take_losses(), []);
        drop(intake);
        assert!(unreadable(&open(&world, 2), &written, "opened again").is_empty());
    }
}

#[test]
fn nothing_is_acknowledged_before_the_home_says_that_a_rotation_is_behind() {
    for recovers in [true, false] {
        let world = World::new(6);
        let deadline = Duration::from_millis(if recovers { 20_000 } else { 300 });
        let intake = try_open(&world, Config { deadline, ..config(1) }).expect("the pool can be opened");
        intake.put(b"first", b"", b"1").expect("there is room");
        world.set_fault(world.home_drive(), Fault::Broken);
        (0..3).for_each(|drive| world.set_fault(drive, Fault::Full));
        let answer = thread::scope(|scope| {
            let put = scope.spawn(|| intake.put(b"second", b"", b"2"));
            thread::sleep(Duration::from_millis(400));
            if recovers {
                assert!(!put.is_finished(), "it waits for the home");
                world.set_fault(world.home_drive(), Fault::None);
            }
            put.join().expect("nothing panics")
        });
        assert!(matches!((recovers, &answer), (true, Ok(_)) | (false, Err(PutError::Unnoted))), "{answer:?}");
        let world = world.crash(world.position(), &mut Rng::new(1));
        drop(intake);
        let intake = open(&world, 2);
        let has = |key: &[u8]| intake.get(key).expect("nothing is damaged").is_some();
        assert!(has(b"first") && (has(b"second") || !recovers));
        assert_eq!(intake.take_losses(), []);
    }
}
