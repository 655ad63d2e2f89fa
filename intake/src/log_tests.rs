//! Tests of the log: torn tails are cut, rot is reported, and no bytes make the decoder panic.

use super::*;
use crate::bytes::crc32c;
use crate::names::{DriveUuid, PoolUuid};
use crate::record::{Kind, Record, decode};
use model::Rng;

const STAMP: u64 = 9;

fn header(previous: Option<Previous>) -> LogHeader {
    let file = FileId { nonce: 1, count: 2 };
    let identity = Identity { pool: PoolUuid(3), drive: DriveUuid(4), file };
    LogHeader { identity, first: Sequence(10), previous, room: 0 }
}

/// A log of batches of three records each, and where each batch begins.
fn log(rng: &mut Rng, batches: u64) -> (Vec<u8>, Vec<usize>) {
    let mut image = header(None).encode();
    let mut begins = Vec::new();
    let mut sequence = 10;
    for _ in 0..batches {
        let durable = image.len() as u64;
        begins.push(image.len());
        for _ in 0..3 {
            let value: Vec<u8> = (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect();
            let key = format!("key {sequence}");
            let (key, sequence_now) = (key.as_bytes(), Sequence(sequence));
            let record = Record { kind: Kind::Put, sequence: sequence_now, key, entry: b"e", value: &value };
            record.encode(STAMP, durable, crc32c(&value), &mut image);
            sequence += 1;
        }
    }
    begins.push(image.len());
    (image, begins)
}

#[test]
fn a_header_comes_back_and_belongs_to_one_file() {
    for previous in [None, Some(Previous { file: FileId { nonce: 7, count: 8 }, bytes: 4096 })] {
        let header = LogHeader { room: 12_345, ..header(previous) };
        let bytes = header.encode();
        assert_eq!(LogHeader::decode(&bytes, header.identity), Ok(header));
        let other = Identity { drive: DriveUuid(5), ..header.identity };
        assert_eq!(LogHeader::decode(&bytes, other), Err(Damage::Elsewhere));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(LogHeader::decode(&damaged, header.identity).is_err());
            assert!(LogHeader::decode(&bytes[..at], header.identity).is_err());
        }
    }
}

#[test]
fn a_log_cut_anywhere_keeps_every_whole_record_before() {
    let (image, begins) = log(&mut Rng::for_thing(1, 0), 5);
    let whole = read(&image, STAMP, Known::default(), 0);
    assert_eq!((whole.records.len(), whole.torn, whole.rot.len()), (15, 0, 0));
    for cut in BLOCK_BYTES..image.len() {
        let contents = read(&image[..cut], STAMP, Known::default(), 0);
        assert!(contents.rot.is_empty(), "a cut is a torn tail");
        let batches = begins.iter().filter(|begin| **begin <= cut).count() - 1;
        assert!(contents.records.len() >= 3 * batches, "nothing that was synced is lost");
        assert_eq!(contents.bytes + contents.torn, cut as u64);
        assert_eq!(contents.records, whole.records[..contents.records.len()]);
    }
}

#[test]
fn damage_in_the_last_batch_is_a_torn_tail_and_damage_before_it_is_rot() {
    let mut rng = Rng::for_thing(2, 0);
    let (image, begins) = log(&mut rng, 5);
    let whole = read(&image, STAMP, Known::default(), 0);
    for at in BLOCK_BYTES..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 1 << rng.below(8);
        let contents = read(&damaged, STAMP, Known::default(), 0);
        let hit = whole.records.iter().rposition(|(offset, _)| *offset as usize <= at).expect("it is in a record");
        if at >= begins[4] {
            assert!(contents.rot.is_empty());
            assert_eq!(contents.records, whole.records[..hit]);
            assert_eq!(contents.bytes, whole.records[hit].0);
            // The next log shows that this one was complete: then it is rot after all.
            let contents = read(&damaged, STAMP, Known::sealed(image.len() as u64), 0);
            assert_eq!((contents.rot.len(), contents.records.len()), (1, 14));
        } else {
            assert_eq!(contents.rot.len(), 1, "byte {at}");
            assert_eq!(contents.rot[0].offset, whole.records[hit].0);
            assert_eq!(contents.records.len(), 14, "all others are there");
            assert_eq!(contents.torn, 0);
        }
    }
}

#[test]
fn rot_of_a_value_names_its_key() {
    let (mut image, _) = log(&mut Rng::for_thing(3, 0), 3);
    let whole = read(&image, STAMP, Known::default(), 0);
    let (offset, head) = whole.records[1];
    assert!(head.value_bytes > 0);
    let record = decode(&image[offset as usize..], STAMP).map(|(_, record)| record.key.to_vec());
    let key = record.expect("it is whole");
    image[offset as usize + crate::record::HEAD_BYTES + key.len() + 2] ^= 1;
    let contents = read(&image, STAMP, Known::default(), 0);
    assert_eq!(contents.rot[0].record, Some((key, head.sequence)));
    assert_eq!(contents.described, [(offset, head)], "what it says is known");
    assert_eq!(contents.records.len(), whole.records.len() - 1);
}

#[test]
fn a_log_that_is_shorter_than_the_next_one_says_has_lost_something() {
    let (image, begins) = log(&mut Rng::for_thing(4, 0), 3);
    let contents = read(&image[..begins[1]], STAMP, Known::sealed(image.len() as u64), 0);
    assert_eq!(contents.records.len(), 3);
    assert_eq!(contents.rot, [Rot { offset: begins[1] as u64, bytes: (image.len() - begins[1]) as u64, record: None }]);
}

#[test]
fn the_rest_of_a_longer_batch_that_failed_is_no_record() {
    let mut rng = Rng::for_thing(5, 0);
    let (long, begins) = log(&mut rng, 3);
    let mut image = long.clone();
    let value = [7; 10];
    let record = Record { kind: Kind::Put, sequence: Sequence(99), key: b"k", entry: b"", value: &value };
    let mut newer = Vec::new();
    // In the place of the last batch, a shorter one that is newer.
    record.encode(STAMP, begins[2] as u64, crc32c(&value), &mut newer);
    image[begins[2]..begins[2] + newer.len()].copy_from_slice(&newer);
    let contents = read(&image, STAMP, Known::default(), 0);
    assert_eq!(contents.records.len(), 7);
    assert_eq!(contents.records[6].1.sequence, Sequence(99));
}

#[test]
fn arbitrary_damage_never_panics_and_never_invents() {
    let mut rng = Rng::for_thing(6, 0);
    let (image, _) = log(&mut rng, 6);
    let whole = read(&image, STAMP, Known::default(), 0);
    for _ in 0..3_000 {
        let mut damaged = image.clone();
        for _ in 0..=rng.below(6) {
            let at = rng.below(damaged.len() as u64) as usize;
            match rng.below(3) {
                0 => damaged[at] = rng.next_u64() as u8,
                1 => damaged.truncate(at.max(BLOCK_BYTES)),
                _ => {
                    let end = (at + rng.below(300) as usize).min(damaged.len());
                    damaged[at..end].fill(0);
                }
            }
        }
        let known = if rng.below(2) == 0 { Known::sealed(image.len() as u64) } else { Known::default() };
        let contents = read(&damaged, STAMP, known, 0);
        assert!(contents.records.iter().all(|record| whole.records.contains(record)));
    }
}

#[test]
fn a_header_from_before_logs_lay_in_used_room_is_read() {
    for previous in [None, Some(Previous { file: FileId { nonce: 7, count: 8 }, bytes: 4096 })] {
        let header = header(previous);
        let bytes = block(MAGIC, NEW_FILES_ONLY, |out| {
            header.identity.put(out);
            out.extend_from_slice(&header.first.0.to_le_bytes());
            if let Some(previous) = header.previous {
                previous.file.put(out);
                out.extend_from_slice(&previous.bytes.to_le_bytes());
            }
        });
        assert_eq!(LogHeader::decode(&bytes, header.identity), Ok(header));
    }
}

/// The stamp of the dead log.
const OLD: u64 = 8;

/// `log` in the room that a longer one left.
fn in_used_room(log: &[u8]) -> Vec<u8> {
    let mut image = header(None).encode();
    let mut sequence = 1;
    while image.len() < 2 * log.len() {
        let value = vec![sequence as u8; 100];
        let record = Record { kind: Kind::Put, sequence: Sequence(sequence), key: b"old", entry: b"", value: &value };
        record.encode(OLD, image.len() as u64, crc32c(&value), &mut image);
        sequence += 1;
    }
    image[..log.len()].copy_from_slice(log);
    image
}

#[test]
fn what_a_dead_log_left_is_neither_record_nor_torn_tail_nor_rot() {
    let (image, begins) = log(&mut Rng::for_thing(7, 0), 5);
    let whole = read(&image, STAMP, Known::default(), 0);
    let room = in_used_room(&image).len() as u64;
    for cut in BLOCK_BYTES..image.len() {
        let contents = read(&in_used_room(&image[..cut]), STAMP, Known::default(), room);
        assert!(contents.rot.is_empty(), "what is not there was not acknowledged");
        let batches = begins.iter().filter(|begin| **begin <= cut).count() - 1;
        assert!(contents.records.len() >= 3 * batches, "nothing that was synced is lost");
        assert_eq!(contents.records, whole.records[..contents.records.len()]);
        if begins.contains(&cut) {
            assert_eq!((contents.bytes, contents.torn), (cut as u64, 0), "the log ends with a whole batch");
        }
    }
}

#[test]
fn damage_before_the_last_batch_is_rot_in_used_room_as_well() {
    let mut rng = Rng::for_thing(8, 0);
    let (image, begins) = log(&mut rng, 5);
    let used = in_used_room(&image);
    for at in BLOCK_BYTES..begins[4] {
        let mut damaged = used.clone();
        damaged[at] ^= 1 << rng.below(8);
        let contents = read(&damaged, STAMP, Known::default(), used.len() as u64);
        assert_eq!((contents.rot.len(), contents.records.len(), contents.torn), (1, 14, 0), "byte {at}");
    }
}

#[test]
fn room_is_known_by_the_first_record_of_a_dead_log() {
    let (old, new) = (FileId { nonce: OLD, count: 0 }, FileId { nonce: STAMP, count: 0 });
    let (image, _) = log(&mut Rng::for_thing(9, 0), 2);
    let used = in_used_room(&image);
    let untouched = in_used_room(&[]);
    assert!(!is_room(&used, [old]), "it has a record of its own");
    assert!(is_room(&in_used_room(&image[..BLOCK_BYTES]), [new, old]));
    assert!(!is_room(&in_used_room(&image[..BLOCK_BYTES]), [new]), "nobody said that what lies in it is dead");
    assert!(!is_room(&untouched, [old]) && !is_room(&[], [old]));
}

#[test]
fn rot_is_named_by_its_key_if_that_is_known() {
    let rot = Rot { offset: 4096, bytes: 200, record: Some((b"pantry/a\xFF".to_vec(), Sequence(29))) };
    assert_eq!(rot.to_string(), "version 29 of the key pantry/a\\xff, in 200 bytes from byte 4096 on");
    assert_eq!(Rot { record: None, ..rot }.to_string(), "200 bytes from byte 4096 on");
}
