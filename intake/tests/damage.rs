//! One place of one file is damaged, and the pool is opened again: each acknowledged key is as it was, or an error;
//! never missing, and never an older version. The damage costs no other record, and with two rotations nothing.

mod common;

use common::{config, wait_until};
use intake::medium::memory::World;
use intake::{Config, Intake, OpenError, ReadError, Sequence};
use model::{Rng, Time};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The place of each record, and its key.
type Records = Vec<(Range<usize>, Vec<u8>)>;

/// A pool before it is damaged.
struct Pool {
    world: World,
    /// The last acknowledged change of each key; `None` means that it was removed.
    written: BTreeMap<Vec<u8>, Option<Sequence>>,
    drive: usize,
    name: String,
    bytes: Vec<u8>,
    records: Records,
    /// The end of the first footer: everything after it exists twice.
    enough: usize,
}

/// The clock is past the time for which background work waits for further appends.
fn setting(seed: u64) -> Config {
    let began = Instant::now();
    let clock = move || Time::from_nanos((Duration::from_secs(10) + began.elapsed()).as_nanos() as u64);
    Config { log_bytes: 512 << 10, fan_in: 8, clock: Arc::new(clock), ..config(seed) }
}

fn open(world: &World, seed: u64) -> Intake {
    Intake::open(world.home(), world.directories(), setting(seed)).expect("the pool can be opened").0
}

/// Keys of the older shelf which the newer one says are forgotten.
const FORGOTTEN: [&[u8]; 2] = [b"a first", b"a second"];

/// A key of this length: inner nodes of long ones have few children.
fn key(number: u64, bytes: usize) -> Vec<u8> {
    let mut key = format!("key/{number:05}/").into_bytes();
    key.resize(bytes, b'x');
    key
}

/// True if a file is of this kind.
fn is(name: &str, kind: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, ending)| ending == kind)
}

fn shelves(world: &World, drive: usize) -> Vec<String> {
    let names = world.files(drive).into_iter().map(|(name, _)| name);
    names.filter(|name| is(name, "shelf")).collect()
}

fn records(bytes: &[u8]) -> Records {
    let number =
        |at: usize, length: usize| bytes[at..at + length].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
    let heads = (0..bytes.len() - 56).step_by(8).filter(|at| bytes[*at..].starts_with(b"LREC"));
    let record = |at: usize| {
        let (key, entry, value) = (number(at + 6, 2), number(at + 8, 4), number(at + 12, 4));
        (at..at + (56 + key + entry + value).next_multiple_of(8), bytes[at + 56..at + 56 + key].to_vec())
    };
    heads.map(record).collect()
}

/// Two shelves with versions of the same keys: the newer one is to be damaged.
fn pool(drives: usize, key_bytes: usize, count: u64) -> Pool {
    let world = World::new(drives);
    let intake = open(&world, 7);
    let mut written = BTreeMap::new();
    let mut put = |number: u64, length: usize| {
        let value = vec![number as u8; length];
        let sequence = intake.put(&key(number, key_bytes), b"entry", &value).expect("the drives work");
        written.insert(key(number, key_bytes), Some(sequence));
    };
    (0..count).for_each(|number| put(2 * number, 67));
    let forgotten = FORGOTTEN.map(|key| intake.put(key, b"entry", b"value").expect("the drives work"));
    intake.flush().expect("the drives work");
    let before: Vec<Vec<String>> = (0..drives).map(|drive| shelves(&world, drive)).collect();
    (count / 4..count).for_each(|number| put(2 * number, 74));
    intake.forget(b"a", Some(b"b"), forgotten[1]).expect("the drives work");
    (count / 2..count + 3).for_each(|number| put(2 * number + 1, 81));
    for number in [count / 2, count / 2 + 3, count - 1] {
        intake.delete(&key(2 * number, key_bytes)).expect("the drives work");
        written.insert(key(2 * number, key_bytes), None);
    }
    intake.flush().expect("the drives work");
    drop(intake);
    let new = |drive: usize| shelves(&world, drive).into_iter().find(|name| !before[drive].contains(name));
    let (drive, name) = (0..drives).find_map(|drive| Some((drive, new(drive)?))).expect("there is a new shelf");
    let bytes = world.files(drive).into_iter().find(|(found, _)| *found == name).expect("it is there").1;
    let footers = (0..bytes.len() - 8).step_by(8).filter(|at| bytes[*at..].starts_with(b"LARDSHFT"));
    let footers: Vec<usize> = footers.collect();
    assert_eq!(footers.len(), 2);
    Pool { records: records(&bytes), enough: footers[0] + 4096, world, written, drive, name, bytes }
}

/// The keys that cannot be read. All others are as they were acknowledged.
fn unreadable(intake: &Intake, pool: &Pool, what: &str) -> Vec<Vec<u8>> {
    let mut gone = Vec::new();
    for (key, sequence) in &pool.written {
        match intake.get(key) {
            Err(ReadError::Lost | ReadError::Damaged(_)) => gone.push(key.clone()),
            Ok(Some(stored)) if Some(stored.sequence) == *sequence => {}
            Ok(Some(stored)) if !stored.certain => gone.push(key.clone()),
            Ok(None) if sequence.is_none() => {}
            other => panic!("{what}: {}: {sequence:?}, and not {other:?}", key.escape_ascii()),
        }
    }
    gone
}

impl Pool {
    /// The pool with damage done by `change`.
    fn damaged(&self, change: impl FnOnce(&mut Vec<u8>)) -> World {
        let world = self.world.crash(self.world.position(), &mut Rng::new(1));
        world.corrupt(self.drive, &self.name, change);
        world
    }

    /// The pool with a sector that cannot be read.
    fn spoiled(&self, sector: usize) -> World {
        let world = self.world.crash(self.world.position(), &mut Rng::new(1));
        world.spoil(self.drive, &self.name, sector as u64);
        world
    }

    /// The keys that may be lost if these bytes are damaged: those between the whole records around them.
    fn may_be_lost(&self, damage: &Range<usize>) -> Vec<Vec<u8>> {
        let is_hit = self.records.iter().any(|(at, _)| at.start < damage.end && damage.start < at.end);
        let is_cut = damage.end == usize::MAX && damage.start < self.enough;
        if !is_hit && !is_cut {
            return Vec::new();
        }
        let before = self.records.iter().rfind(|(at, _)| at.end <= damage.start).map(|(_, key)| key);
        let after = self.records.iter().find(|(at, _)| at.start >= damage.end).map(|(_, key)| key);
        let is_between =
            |key: &&Vec<u8>| before.is_none_or(|before| *key > before) && after.is_none_or(|end| *key < end);
        self.written.keys().filter(is_between).cloned().collect()
    }

    /// Opens `world`, twice, and reads all keys before and after the repair.
    fn check(&self, world: &World, damage: &Range<usize>, repairs: bool, what: &str) {
        self.check_opened(&open, world, damage, (repairs, what));
    }

    /// The same with what opens it.
    fn check_opened(
        &self,
        open: &dyn Fn(&World, u64) -> Intake,
        world: &World,
        damage: &Range<usize>,
        (repairs, what): (bool, &str),
    ) {
        let may_be_lost = self.may_be_lost(damage);
        let check = |intake: &Intake, when: &str| {
            let gone = unreadable(intake, self, what);
            let is_dear = gone.iter().find(|key| !may_be_lost.contains(key));
            let is_dear = is_dear.map(|key| key.escape_ascii().to_string());
            assert_eq!(is_dear, None, "{what}, {when}: {} are lost", gone.len());
            gone
        };
        let intake = open(world, 8);
        let gone = check(&intake, "opened");
        if repairs {
            wait_until(|| !shelves(world, self.drive).contains(&self.name));
        }
        assert_eq!(check(&intake, "repaired"), gone, "{what}");
        assert!(gone.is_empty() || intake.status().losses > 0, "{what}: {} are lost in silence", gone.len());
        drop(intake);
        assert_eq!(check(&open(world, 9), "opened again"), gone, "{what}");
    }

    /// Opens `world`, in which nothing is left of the shelf, as if it were missing: that is to be accepted, once.
    fn check_refused(&self, world: &World, what: &str) {
        let refused = Intake::open(world.home(), world.directories(), setting(7)).err();
        let names_it = |error: &OpenError| error.to_string().contains(&self.name);
        assert!(matches!(&refused, Some(error @ OpenError::Incomplete(_)) if names_it(error)), "{what}: {refused:?}");
        let accepting = |world: &World, seed| {
            let setting = Config { accepts_losses: seed == 8, ..setting(seed) };
            Intake::open(world.home(), world.directories(), setting).expect("it is accepted once").0
        };
        self.check_opened(&accepting, world, &(0..usize::MAX), (false, what));
    }

    /// Opens `world`, in which one of two rotations is damaged, twice; and then that rotation alone.
    fn check_both(&self, world: &World, repairs: bool, what: &str) {
        let check = |intake: &Intake, when: &str| {
            assert_eq!(unreadable(intake, self, what).len(), 0, "{what}, {when}");
            assert_eq!((intake.take_losses(), intake.status().losses), (vec![], 0), "{what}, {when}");
        };
        let is_level = |intake: &Intake| intake.status().cycles.iter().all(|cycle| !cycle.incomplete);
        let intake = open(world, 8);
        check(&intake, "opened");
        let is_repaired = || !repairs || !world.files(self.drive).iter().any(|(name, _)| *name == self.name);
        wait_until(|| is_repaired() && is_level(&intake));
        check(&intake, "repaired");
        drop(intake);
        let intake = open(world, 9);
        check(&intake, "opened again");
        wait_until(|| is_level(&intake));
        drop(intake);
        let half = if self.drive < 3 { 0..3 } else { 3..6 };
        let half = half.map(|drive| world.directory(drive)).collect();
        let (half, _) = Intake::open(world.home(), half, setting(10)).expect("half of it is there");
        assert_eq!(unreadable(&half, self, what).len(), 0, "{what}, alone");
    }

    /// Bytes at which the header, inner nodes, tails and footers have something.
    fn edges(&self) -> Vec<usize> {
        let is_record = |at: &usize| self.records.iter().any(|(range, _)| range.contains(at));
        (0..self.bytes.len()).filter(|at| self.bytes[*at] != 0 && !is_record(at)).collect()
    }

    /// True if the byte at `at` has a meaning: zeros between a tail and its footer have none.
    fn is_of_use(&self, at: usize) -> bool {
        self.bytes[at] != 0 || at < 4096 || self.records.iter().any(|(range, _)| range.contains(&at))
    }
}

fn flip(at: usize) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| bytes[at] ^= 1 << (at % 8)
}

#[test]
fn a_bit_anywhere_in_a_shelf_costs_its_record_at_most() {
    for (drives, key_bytes, count) in [(1, 12, 60), (1, 3000, 24), (4, 12, 40)] {
        let pool = pool(drives, key_bytes, count);
        let (sparse, dense) = if key_bytes > 100 { (1201, 401) } else { (61, 7) };
        for at in (0..pool.bytes.len()).step_by(sparse).chain(pool.edges().into_iter().step_by(dense)) {
            let world = pool.damaged(flip(at));
            pool.check(&world, &(at..at + 1), pool.is_of_use(at), &format!("{drives} drives, bit in {at}"));
        }
    }
}

#[test]
fn a_page_or_a_sector_costs_the_records_in_it_at_most() {
    let mut rng = Rng::new(3);
    for (drives, key_bytes, count) in [(1, 12, 60), (1, 3000, 24), (4, 12, 40)] {
        let pool = pool(drives, key_bytes, count);
        for begin in (0..pool.bytes.len()).step_by(4096) {
            let page = begin..(begin + 4096).min(pool.bytes.len());
            let world = pool.damaged(|bytes| bytes[page.clone()].fill(0));
            pool.check(&world, &page, true, &format!("{drives} drives, no page {begin}"));
            let at = (begin + 512 * rng.below(8) as usize).min(pool.bytes.len() - 512);
            let world = pool.damaged(|bytes| bytes[at..at + 512].fill_with(|| rng.next_u64() as u8));
            let repairs = (at..at + 512).any(|at| pool.is_of_use(at));
            pool.check(&world, &(at..at + 512), repairs, &format!("{drives} drives, garbage at {at}"));
        }
    }
}

#[test]
fn a_sector_that_cannot_be_read_costs_the_records_in_it_at_most() {
    for (drives, key_bytes, count) in [(1, 12, 60), (1, 3000, 24), (4, 12, 40)] {
        let pool = pool(drives, key_bytes, count);
        for sector in 0..pool.bytes.len().div_ceil(4096) {
            let place = sector * 4096..(sector + 1) * 4096;
            let what = format!("{drives} drives, bad sector {sector}");
            pool.check(&pool.spoiled(sector), &place, true, &what);
            // The same while it is open.
            let world = pool.spoiled(pool.bytes.len());
            let intake = open(&world, 8);
            world.spoil(pool.drive, &pool.name, sector as u64);
            let (gone, may_be_lost) = (unreadable(&intake, &pool, &what), pool.may_be_lost(&place));
            assert!(gone.iter().all(|key| may_be_lost.contains(key)), "{what}: {} are lost", gone.len());
        }
    }
}

#[test]
fn a_sector_of_a_log_that_cannot_be_read_is_no_failure_of_the_drive() {
    let pool = pool_with_two_logs(3);
    for sector in 0..pool.bytes.len().div_ceil(4096) {
        pool.check(&pool.spoiled(sector), &(0..usize::MAX), false, &format!("bad sector {sector} of a log"));
    }
}

#[test]
fn a_shelf_that_is_cut_off_loses_what_was_cut_off_and_one_that_grew_nothing() {
    let mut rng = Rng::new(4);
    let pool = pool(1, 12, 60);
    let ends = [pool.enough, pool.enough - 1, pool.enough - 4096, pool.bytes.len() - 1, pool.bytes.len() - 4096];
    for length in (4096..pool.bytes.len()).step_by(997).chain(ends).chain([0, 1, 100, 4095]) {
        let world = pool.damaged(|bytes| bytes.truncate(length));
        let what = format!("cut off at {length}");
        if pool.records[0].0.end <= length {
            pool.check(&world, &(length..usize::MAX), true, &what);
        } else {
            pool.check_refused(&world, &what);
        }
    }
    for length in [1, 7, 8, 511, 4096, 10_000, 3 << 20, 10 << 20] {
        let world = pool.damaged(|bytes| bytes.extend((0..length).map(|_| rng.next_u64() as u8)));
        pool.check(&world, &(0..0), true, &format!("grown by {length}"));
        let world = pool.damaged(|bytes| bytes.resize(bytes.len() + length, 0));
        pool.check(&world, &(0..0), true, &format!("grown by {length} zeros"));
    }
}

#[test]
fn both_footers_or_both_tails_cost_no_record() {
    let pool = pool(1, 12, 60);
    let second = pool.bytes.len() - 4096;
    let world = pool.damaged(|bytes| {
        bytes[pool.enough - 4096] ^= 1;
        bytes[second] ^= 1;
    });
    pool.check(&world, &(pool.enough - 1..usize::MAX), true, "both footers");
    let last = pool.edges().into_iter().rfind(|at| *at < pool.enough - 4096).expect("there is a tail");
    let world = pool.damaged(|bytes| {
        bytes[last] ^= 1;
        bytes[pool.enough] ^= 1;
    });
    pool.check(&world, &(0..0), true, "both tails");
}

/// Only a tail has the forgotten ranges.
#[test]
fn damage_of_one_tail_or_one_footer_brings_nothing_back_that_was_forgotten() {
    for drives in [1, 6] {
        let pool = pool(drives, 12, 40);
        let check = |intake: &Intake, what: &str| {
            let is_gone = |key: &&[u8]| matches!(intake.get(key), Ok(None));
            assert!(FORGOTTEN.iter().all(is_gone), "{what}");
        };
        let edges = pool.edges().into_iter().step_by(9).map(|at| at..at + 1);
        let pages = (0..pool.bytes.len()).step_by(4096).map(|at| at..at + 4096);
        for damage in edges.chain(pages.filter(|page| page.start + 4096 >= pool.enough - 4096)) {
            let world = pool.damaged(|bytes| bytes[damage.clone()].iter_mut().for_each(|byte| *byte ^= 0x10));
            let intake = open(&world, 8);
            check(&intake, &format!("damage at {damage:?}"));
            wait_until(|| !shelves(&world, pool.drive).contains(&pool.name));
            check(&intake, &format!("damage at {damage:?}, repaired"));
            drop(intake);
            check(&open(&world, 9), &format!("damage at {damage:?}, opened again"));
        }
    }
}

#[test]
fn with_two_rotations_no_damage_of_a_shelf_costs_anything() {
    let mut rng = Rng::new(5);
    let pool = pool(6, 12, 40);
    for at in (0..pool.bytes.len()).step_by(487).chain(pool.edges().into_iter().step_by(31)) {
        pool.check_both(&pool.damaged(flip(at)), pool.is_of_use(at), &format!("bit in {at}"));
    }
    for begin in (0..pool.bytes.len()).step_by(4096) {
        let page = begin..(begin + 4096).min(pool.bytes.len());
        let world = pool.damaged(|bytes| bytes[page].fill_with(|| rng.next_u64() as u8));
        pool.check_both(&world, true, &format!("garbage in page {begin}"));
    }
    for sector in 0..pool.bytes.len().div_ceil(4096) {
        pool.check_both(&pool.spoiled(sector), true, &format!("bad sector {sector}"));
    }
    for length in [0, 100, 4096, 5000, 9000, pool.enough - 1, pool.bytes.len() - 1] {
        let world = pool.damaged(|bytes| bytes.truncate(length));
        pool.check_both(&world, true, &format!("cut off at {length}"));
    }
}

/// The same for a log.
#[test]
fn with_two_rotations_no_bit_or_sector_of_a_log_costs_anything() {
    for first in [0, 3] {
        let mut pool = pool(6, 12, 30);
        let intake = open(&pool.world, 6);
        for number in 10..40 {
            let sequence = intake.put(&key(number, 12), b"new", &[number as u8; 100]).expect("the drives work");
            pool.written.insert(key(number, 12), Some(sequence));
        }
        drop(intake);
        let log = |drive: usize| {
            let mut files = pool.world.files(drive).into_iter();
            let found = files.find(|(name, bytes)| is(name, "log") && bytes.len() > 5000);
            found.map(|(name, bytes)| (drive, name, bytes))
        };
        let (drive, name, bytes) = (first..first + 3).find_map(log).expect("there is a log");
        (pool.drive, pool.name, pool.bytes) = (drive, name, bytes);
        for at in (0..160).step_by(5).chain((4096..pool.bytes.len()).step_by(29)) {
            pool.check_both(&pool.damaged(flip(at)), false, &format!("drive {drive}, bit in {at} of a log"));
        }
        for sector in 0..pool.bytes.len().div_ceil(4096) {
            pool.check_both(&pool.spoiled(sector), false, &format!("drive {drive}, bad sector {sector} of a log"));
        }
    }
}

/// A pool after it was opened a second time: the first log is next to the second one, which names it.
fn pool_with_two_logs(drives: usize) -> Pool {
    let mut pool = pool(drives, 12, 30);
    let intake = open(&pool.world, 6);
    for number in 10..40 {
        let sequence = intake.put(&key(number, 12), b"new", &[number as u8; 100]).expect("the drives work");
        pool.written.insert(key(number, 12), Some(sequence));
    }
    drop(intake);
    let before = pool.world.position();
    let logs = |world: &World, drive: usize| {
        let files = world.files(drive).into_iter().filter(|(name, bytes)| is(name, "log") && bytes.len() >= 4096);
        files.collect::<Vec<_>>()
    };
    let rotation = 0..3;
    let all = |world: &World| {
        let of = |at: usize| logs(world, at).into_iter().map(move |log| (at, log));
        rotation.clone().flat_map(of).collect::<Vec<_>>().into_iter()
    };
    let (drive, (name, bytes)) = all(&pool.world).max_by_key(|(_, (_, bytes))| bytes.len()).expect("there is a log");
    let old: Vec<_> = all(&pool.world).map(|(_, (name, _))| name).collect();
    open(&pool.world, 12).put(&key(9999, 12), b"", b"").expect("the drives work");
    let worlds = (before..=pool.world.position()).map(|at| pool.world.crash(at, &mut Rng::new(1)));
    let are_two = |world: &World| {
        let names: Vec<_> = all(world).map(|(_, (name, _))| name).collect();
        names.contains(&name) && names.iter().any(|name| !old.contains(name))
    };
    let world = worlds.into_iter().find(are_two).expect("the log outlives the header of the next one");
    Pool { world, drive, name, bytes, records: Vec::new(), enough: usize::MAX, ..pool }
}

#[test]
fn a_log_that_is_cut_off_or_emptied_is_missed_if_the_next_one_names_it() {
    let pool = pool_with_two_logs(3);
    for length in [0, 1, 100, 4095, 4096, 4097, 5000, pool.bytes.len() - 1] {
        let world = pool.damaged(|bytes| bytes.truncate(length));
        assert!(!unreadable(&open(&world, 8), &pool, "cut off").is_empty(), "something of it is newest");
        let world = pool.damaged(|bytes| bytes.truncate(length));
        pool.check(&world, &(length..usize::MAX), false, &format!("log cut off at {length}"));
    }
    let pool = pool_with_two_logs(6);
    for length in [0, 1, 100, 4095, 4096, 4097, 5000, pool.bytes.len() - 1] {
        let world = pool.damaged(|bytes| bytes.truncate(length));
        pool.check_both(&world, false, &format!("log cut off at {length}"));
    }
}

/// A late page over an early one: what the survey cannot put in order is not thrown away.
#[test]
fn a_shelf_with_records_out_of_order_is_not_replaced() {
    let pool = pool(1, 20, 400);
    let world = pool.damaged(|bytes| {
        let last = bytes.len() / 2 / 4096 * 4096;
        bytes.copy_within(last..last + 4096, 8192);
    });
    for seed in [8, 9] {
        let intake = open(&world, seed);
        unreadable(&intake, &pool, "out of order");
        std::thread::sleep(Duration::from_millis(500));
        assert!(shelves(&world, pool.drive).contains(&pool.name), "the damaged shelf stays");
    }
}
