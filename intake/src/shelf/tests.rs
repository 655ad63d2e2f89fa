//! Tests of shelves: what was put in comes out, and no damage makes the decoder panic or invent a record.

use super::*;
use crate::bytes::{BLOCK_BYTES, SEAL_OFFSET, crc32c};
use crate::driver::Driver;
use crate::medium::memory::World;
use crate::names::{DriveUuid, Name, PoolUuid};
use crate::record::Kind;
use crate::shelf::build::ShelfBuilder;
use crate::shelf::format::FOOTER_VERSION;
use model::Rng;
use std::collections::BTreeMap;

type Reference = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

fn identity() -> Identity {
    Identity { pool: PoolUuid(1), drive: DriveUuid(2), file: FileId { nonce: 3, count: 4 } }
}

fn reference(rng: &mut Rng, records: u64, value_bytes: u64) -> Reference {
    let record = |rng: &mut Rng| {
        let value = (0..rng.below(value_bytes)).map(|_| rng.next_u64() as u8).collect();
        (format!("key {:06}", 2 * rng.below(4 * records)).into_bytes(), (1 + rng.below(1000), value))
    };
    (0..records).map(|_| record(rng)).collect()
}

fn write(world: &World, reference: &Reference, masks: Vec<Mask>) -> Arc<Drive> {
    let drive = Arc::new(Drive::new(DriveUuid(2), world.directory(0), Driver::Threads));
    let mut builder = ShelfBuilder::begin(&drive, identity(), Access::Stage).expect("memory works");
    for (key, (sequence, value)) in reference {
        let record = Record { kind: Kind::Put, sequence: Sequence(*sequence), key, entry: b"entry", value };
        builder.add(&record, crc32c(value)).expect("memory works");
    }
    builder.finish(masks, vec![FileId { nonce: 8, count: 9 }]).expect("memory works");
    drive
}

fn open(drive: &Arc<Drive>) -> Result<Arc<Shelf>, ReadError> {
    Shelf::open_unfinished(drive, identity()).map(Arc::new)
}

fn all(shelf: &Arc<Shelf>, from: &[u8]) -> Result<Reference, ReadError> {
    let mut cursor = shelf.from(from)?;
    let mut found = Reference::new();
    while let Some(record) = cursor.record()? {
        found.insert(record.key.to_vec(), (record.sequence.0, record.value.to_vec()));
        cursor.advance()?;
    }
    Ok(found)
}

#[test]
fn what_was_put_in_comes_out_from_any_key_on() {
    let mut rng = Rng::for_thing(1, 0);
    for (records, value_bytes) in [(0, 1), (1, 10), (7, 40_000), (300, 300), (20_000, 60)] {
        let world = World::new(1);
        let reference = reference(&mut rng, records, value_bytes);
        let mask = Mask { from: b"a".to_vec(), to: None, up_to: Sequence(5) };
        let shelf = open(&write(&world, &reference, vec![mask.clone()])).expect("it is whole");
        shelf.verify(Access::Stage, || Ok(())).expect("it is whole");
        assert_eq!(shelf.records(), reference.len() as u64);
        assert_eq!((shelf.masks(), shelf.superseded()), (&[mask][..], &[FileId { nonce: 8, count: 9 }][..]));
        assert_eq!(all(&shelf, b"").expect("it is whole"), reference);
        for _ in 0..50 {
            let key = format!("key {:06}", rng.below(8 * records + 2)).into_bytes();
            let expected = reference.range(key.clone()..).map(|(key, value)| (key.clone(), value.clone())).collect();
            let found = all(&shelf, &key).expect("it is whole");
            assert_eq!(found, expected, "from {key:?}");
        }
    }
}

#[test]
fn keys_that_end_otherwise_are_not_looked_for() {
    let world = World::new(1);
    let key = |name: &str, serial: u64| [name.as_bytes(), &serial.to_be_bytes()].concat();
    let names = ["a", "b", "c", "x"].into_iter().zip([70_u64, 50, 90, 61]);
    let mut reference: Reference = names.map(|(name, serial)| (key(name, serial), (serial, vec![1]))).collect();
    reference.insert(b"d".to_vec(), (1, vec![2]));
    let drive = write(&world, &reference, Vec::new());
    let shelf = open(&drive).expect("it is whole");
    for (name, serial, may_have) in [("a", 80, true), ("b", 90, true), ("b", 49, false), ("b", 91, false)] {
        assert_eq!(shelf.may_have(&key(name, serial)), may_have, "{name} {serial}");
    }
    assert!(shelf.may_have(b"d") && shelf.may_have(b"f"), "short keys have no trailer");
}

#[test]
fn bytes_in_a_range_are_counted_by_leaves() {
    let world = World::new(1);
    let reference = reference(&mut Rng::for_thing(2, 0), 20_000, 60);
    let shelf = open(&write(&world, &reference, Vec::new())).expect("it is whole");
    let keys: Vec<_> = reference.keys().cloned().collect();
    let half = Mask { from: Vec::new(), to: Some(keys[keys.len() / 2].clone()), up_to: Sequence(1000) };
    let counted = shelf.bytes_in(&half).expect("it is whole");
    let share = counted as f64 / shelf.bytes as f64;
    assert!((0.45..0.5).contains(&share), "{share}");
}

#[test]
fn damage_is_refused_or_beside_what_is_read() {
    let mut rng = Rng::for_thing(3, 0);
    let world = World::new(1);
    let reference = reference(&mut rng, 2_000, 100);
    let drive = write(&world, &reference, Vec::new());
    let name = Name::Unfinished(identity().file).to_string();
    let whole = world.files(0).remove(0).1;
    for round in 0..2_000 {
        let at = rng.below(whole.len() as u64) as usize;
        world.corrupt(0, &name, |bytes| {
            bytes.clone_from(&whole);
            match round % 4 {
                0 => bytes.truncate(at),
                1 => {
                    let end = (at + 100).min(whole.len());
                    bytes[at..end].fill(0);
                }
                _ => bytes[at] ^= 1 << rng.below(8),
            }
        });
        if let Ok(shelf) = open(&drive)
            && let Ok(found) = all(&shelf, b"")
        {
            assert_eq!(found, reference, "damage at {at}");
        }
    }
}

/// The records of the examples in `corpus/`.
fn example() -> Reference {
    let key = |number: u64| [format!("object {number}").as_bytes(), &(100 + number).to_be_bytes()].concat();
    let value = |number: u64| vec![number as u8; if number.is_multiple_of(4) { 9_000 } else { 20 * number as usize }];
    (0..10).map(|number| (key(number), (1_000 - number, value(number)))).collect()
}

/// The committed example of a version, as it was written by the code of its time.
fn corpus(version: u32) -> Vec<u8> {
    let path = format!("{}/corpus/shelf.v{version}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn shelves_of_every_version_are_read_for_ever() {
    let mask = Mask { from: b"a".to_vec(), to: Some(b"b".to_vec()), up_to: Sequence(5) };
    let world = World::new(1);
    let drive = write(&world, &example(), vec![mask.clone()]);
    let (name, written) = world.files(0).remove(0);
    assert!(written == corpus(FOOTER_VERSION), "what is written changed, and has no version of its own");
    for version in 1..=FOOTER_VERSION {
        world.corrupt(0, &name, |bytes| *bytes = corpus(version));
        let shelf = open(&drive).expect("it is whole");
        assert_eq!((shelf.masks(), shelf.superseded()), (&[mask.clone()][..], &[FileId { nonce: 8, count: 9 }][..]));
        assert!(!shelf.is_worn() && shelf.lost().is_empty(), "version {version}");
        assert_eq!(all(&shelf, b"").expect("it is whole"), example(), "version {version}");
        let unlike = [b"object 3".as_slice(), &50_u64.to_be_bytes()].concat();
        assert_eq!(shelf.may_have(&unlike), version == 1, "version 1 has no trailers");
    }
}

/// No bit costs more than the record it is in, in a file of any version.
#[test]
fn a_bit_of_a_shelf_of_any_version_costs_its_record_at_most() {
    let world = World::new(1);
    let drive = write(&world, &example(), Vec::new());
    let (name, _) = world.files(0).remove(0);
    for version in 1..=FOOTER_VERSION {
        let whole = corpus(version);
        let in_use = (0..whole.len()).filter(|at| whole[*at] != 0);
        for at in in_use.enumerate().filter(|(count, at)| count % 97 == 0 || at % 16 == 9).map(|(_, at)| at) {
            world.corrupt(0, &name, |bytes| {
                bytes.clone_from(&whole);
                bytes[at] ^= 1;
            });
            let medium = drive.directory.open(&name).expect("memory works");
            let shelf = Shelf::open(&drive, medium, identity()).expect("a bit is no matter");
            let shelf = Arc::new(shelf.surveyed(Access::Direct).expect("memory works"));
            let found = all(&shelf, b"").expect("what was surveyed is read");
            let gone: Vec<_> = example().into_iter().filter(|(key, version)| found.get(key) != Some(version)).collect();
            assert!(gone.len() <= 1, "version {version}, bit in {at}: {} are gone", gone.len());
            let is_known =
                |key: &[u8], number| shelf.lost().iter().any(|part| part.may_have(key, Sequence(number - 1)));
            assert!(gone.iter().all(|(key, (number, _))| is_known(key, *number)), "version {version}, bit in {at}");
        }
    }
}

/// The findings of a survey are found again by the next one, together with newer damage.
#[test]
fn a_shelf_that_is_damaged_again_after_its_survey_loses_both_and_says_so() {
    let world = World::new(1);
    let drive = write(&world, &example(), Vec::new());
    let (name, bytes) = world.files(0).remove(0);
    let heads: Vec<usize> = (0..bytes.len() - 4).step_by(8).filter(|at| bytes[*at..].starts_with(b"LREC")).collect();
    let open = || Shelf::open(&drive, drive.directory.open(&name).expect("memory works"), identity());
    let survey = |shelf: &Shelf| shelf.surveyed(Access::Direct).expect("memory works");
    // In the value of one record, and then in the head of another.
    world.corrupt(0, &name, |bytes| bytes[heads[4] + 5_000] ^= 1);
    let once = survey(&open().expect("its edges are whole"));
    assert_eq!((once.records(), once.lost().len()), (9, 1));
    world.corrupt(0, &name, |bytes| bytes[heads[7] + 1] ^= 1);
    let twice = survey(&once);
    let keys: Vec<_> = example().into_iter().collect();
    for (number, (key, (sequence, _))) in keys.iter().enumerate() {
        let is_lost = twice.lost().iter().any(|part| part.may_have(key, Sequence(sequence - 1)));
        assert_eq!(is_lost, [4, 7].contains(&number), "record {number}");
    }
    assert_eq!(twice.records(), 8);
}

#[test]
fn a_shelf_of_a_version_to_come_is_not_taken_for_a_damaged_one() {
    let world = World::new(1);
    let drive = write(&world, &example(), Vec::new());
    let (name, _) = world.files(0).remove(0);
    world.corrupt(0, &name, |bytes| {
        let last = bytes.len() - BLOCK_BYTES;
        let block = &mut bytes[last..];
        block[8..12].copy_from_slice(&(FOOTER_VERSION + 1).to_le_bytes());
        let seal = crc32c(&block[..SEAL_OFFSET]).to_le_bytes();
        block[SEAL_OFFSET..].copy_from_slice(&seal);
    });
    let opened = Shelf::open(&drive, drive.directory.open(&name).expect("memory works"), identity());
    let is_version = |error| matches!(error, ReadError::Damaged(Damage::Version(found)) if found > FOOTER_VERSION);
    assert!(opened.err().is_some_and(is_version));
}
