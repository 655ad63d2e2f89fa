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
    LogHeader { identity, first: Sequence(10), previous }
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
        let header = header(previous);
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
    let whole = read(&image, STAMP, None);
    assert_eq!((whole.records.len(), whole.torn, whole.rot.len()), (15, 0, 0));
    for cut in BLOCK_BYTES..image.len() {
        let contents = read(&image[..cut], STAMP, None);
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
    let whole = read(&image, STAMP, None);
    for at in BLOCK_BYTES..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 1 << rng.below(8);
        let contents = read(&damaged, STAMP, None);
        let hit = whole.records.iter().rposition(|(offset, _)| *offset as usize <= at).expect("it is in a record");
        if at >= begins[4] {
            assert!(contents.rot.is_empty());
            assert_eq!(contents.records, whole.records[..hit]);
            assert_eq!(contents.bytes, whole.records[hit].0);
            // The next log says that this one was complete: then it is rot after all.
            let contents = read(&damaged, STAMP, Some(image.len() as u64));
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
    let whole = read(&image, STAMP, None);
    let (offset, head) = whole.records[1];
    assert!(head.value_bytes > 0);
    let record = decode(&image[offset as usize..], STAMP).map(|(_, record)| record.key.to_vec());
    let key = record.expect("it is whole");
    image[offset as usize + crate::record::HEAD_BYTES + key.len() + 2] ^= 1;
    let contents = read(&image, STAMP, None);
    assert_eq!(contents.rot[0].record, Some((key, head.sequence)));
    assert_eq!(contents.described, [(offset, head)], "what it says is known");
    assert_eq!(contents.records.len(), whole.records.len() - 1);
}

#[test]
fn a_log_that_is_shorter_than_the_next_one_says_has_lost_something() {
    let (image, begins) = log(&mut Rng::for_thing(4, 0), 3);
    let contents = read(&image[..begins[1]], STAMP, Some(image.len() as u64));
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
    let contents = read(&image, STAMP, None);
    assert_eq!(contents.records.len(), 7);
    assert_eq!(contents.records[6].1.sequence, Sequence(99));
}

#[test]
fn arbitrary_damage_never_panics_and_never_invents() {
    let mut rng = Rng::for_thing(6, 0);
    let (image, _) = log(&mut rng, 6);
    let whole = read(&image, STAMP, None);
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
        let sealed = (rng.below(2) == 0).then_some(image.len() as u64);
        let contents = read(&damaged, STAMP, sealed);
        assert!(contents.records.iter().all(|record| whole.records.contains(record)));
    }
}
