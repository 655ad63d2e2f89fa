//! Tests of packs: plans, sources, and recognising a payload.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::names::staged_name;
use crate::pack_format::{PartDigests, decode_footer, decode_index};
use crate::testing::{run, sample, settle, stage, staging};
use catalog::{Acl, Checksum, ChecksumKind, PartLengths, VersionId};
use disk::Drive;
use proptest::prelude::*;

fn member(slot: u64, bytes: u64) -> PackMember {
    let object = Object {
        version: VersionId(slot),
        bytes,
        etag: format!("{slot:032x}"),
        modified_ms: 1_700_000_000_000 + slot,
        created_ms: 1_700_000_000_000 + slot,
        headers: vec![("content-type".into(), "text/plain".into())],
        metadata: vec![("n".into(), "x".repeat(slot as usize % 50))],
        checksums: if bytes < 1 << 30 { vec![checksum(slot, bytes)] } else { Vec::new() },
        acl: Acl::PublicRead,
        tags: vec![("colour".into(), "blue".into())],
        parts: PartLengths::default(),
    };
    let attributes = MemberAttributes { sequence: 100 + slot, owner: "root".into(), ..MemberAttributes::default() };
    PackMember { bucket: "photos".into(), key: format!("2019/{slot:05}.png"), object, attributes, slots: vec![slot] }
}

/// The checksum of the sample that is staged in `slot`.
fn checksum(slot: u64, bytes: u64) -> Checksum {
    let mut sum = Checksummer::new(ChecksumKind::Crc64Nvme);
    sum.update(&sample(slot, bytes as usize));
    sum.finish()
}

#[test]
fn a_member_that_is_not_what_its_object_was_acknowledged_with_is_named_and_not_packed() {
    run(async {
        let (_, staging) = staging(1 << 20);
        let plan = staged_pack(&staging, &[10, 3 * BLOCK_BYTES, 30]).await;
        let mut members = plan.members().to_vec();
        members[1].object.checksums = vec![checksum(9, 10)];
        let error = payload(&staging, &PackPlan::new(members.clone()).unwrap()).await.err().unwrap();
        assert!(matches!(&error, PackError::MemberMismatch { key, part: 0, slot: 1, .. } if key == "2019/00001.png"));
        assert_eq!(error.bad_slot(), Some(1));
        assert!(error.to_string().contains("s3://photos/2019/00001.png do not have the object's own checksum"));
        // In memory as well.
        for member in &mut members {
            member.slots.clear();
        }
        let bytes = [(0, 10), (1, 3 * BLOCK_BYTES), (2, 30)].map(|(slot, bytes)| Bytes::from(sample(slot, bytes)));
        let made = Arc::new(PackPlan::new(members).unwrap().of_memory(bytes.to_vec()));
        assert!(matches!(yielded(&made).await, Err(PackError::MemberMismatch { slot: 0, .. })));
    });
}

#[test]
fn parts_are_held_against_their_own_checksums_where_the_object_has_none_of_its_bytes() {
    run(async {
        let (_, staging) = staging(1 << 20);
        for (slot, bytes) in [(1, 5000), (2, 70)] {
            stage(&staging, slot, &sample(slot, bytes)).await.unwrap();
        }
        let mut of_parts = member(1, 5070);
        of_parts.slots = vec![1, 2];
        of_parts.object.parts = [5000, 70].into_iter().collect();
        of_parts.object.checksums = vec![Checksum { kind: ChecksumKind::Crc64Nvme, base64: "AAAAAAAAAAA=-2".into() }];
        let digests = |checksum| PartDigests { md5: [1; 16], checksum };
        of_parts.attributes.parts = vec![digests(checksum(1, 5000)), digests(checksum(2, 70))];
        let good = PackPlan::new(vec![of_parts.clone()]).unwrap();
        let (all, _) = payload(&staging, &good).await.unwrap();
        let footer = decode_footer(&all[all.len() - PACK_FOOTER_BYTES..]).unwrap();
        let index = &all[footer.index_offset as usize..all.len() - PACK_FOOTER_BYTES];
        assert_eq!(decode_index(&footer, index).unwrap()[0].attributes, of_parts.attributes);
        of_parts.attributes.parts[1] = digests(checksum(2, 71));
        let bad = PackPlan::new(vec![of_parts]).unwrap();
        assert!(matches!(payload(&staging, &bad).await, Err(PackError::MemberMismatch { part: 2, slot: 2, .. })));
    });
}

/// The payload is the same as from the files, which are not read: a later change of a file has no effect.
#[test]
fn members_that_are_in_memory_are_not_read_again() {
    run(async {
        let (drive, staging) = staging(1 << 24);
        let plan = staged_pack(&staging, &[10, 3 * BLOCK_BYTES + 5, 0, 30]).await;
        let expected = payload(&staging, &plan).await.unwrap();
        let chunks = |slot: u64, bytes: usize| vec![blocks_in(&sample(slot, bytes))];
        let checked = |version| match version {
            1 => Some(chunks(1, 3 * BLOCK_BYTES + 5)),
            2 => Some(vec![vec![]]),
            3 => Some(chunks(3, 29)), // not all of it: it is read
            _ => None,
        };
        let held = Arc::new(plan.clone().hold_with(&staging, checked).unwrap());
        assert_eq!(held.checked(), (2, 3 * BLOCK_BYTES as u64 + 5));
        drive.remove(&staged_name(1)).await.unwrap();
        for _ in 0..2 {
            assert!(yielded(&held).await.unwrap() == expected, "any number of times");
        }
        assert!(payload(&staging, &plan).await.is_err(), "the file is gone");
        assert_eq!(plan.hold(&staging).unwrap().checked(), (0, 0));
    });
}

fn blocks_in(bytes: &[u8]) -> Vec<Bytes> {
    bytes.chunks(BLOCK_BYTES).map(Bytes::copy_from_slice).collect()
}

#[test]
fn a_member_whose_slot_holds_another_version_is_not_packed() {
    run(async {
        let (_, staging) = staging(1 << 20);
        let plan = staged_pack(&staging, &[10]).await;
        staging.free(0).await.unwrap();
        let mut writer = staging.create(0, staging.reserve(10).unwrap()).await.unwrap();
        writer.write(&sample(0, 10)).await.unwrap();
        writer.finish_for(99, 0, "photos", "another").await.unwrap();
        let error = payload(&staging, &plan).await.err().unwrap();
        assert!(matches!(error, PackError::Read(ReadError::AnotherVersion { slot: 0 })), "{error}");
    });
}

/// Stages a member for each length, and plans a pack of them.
async fn staged_pack(staging: &Staging, lengths: &[usize]) -> PackPlan {
    let mut members = Vec::new();
    for (slot, bytes) in lengths.iter().enumerate() {
        let slot = slot as u64;
        stage(staging, slot, &sample(slot, *bytes)).await.unwrap();
        members.push(member(slot, *bytes as u64));
    }
    PackPlan::new(members).unwrap()
}

async fn payload(staging: &Staging, plan: &PackPlan) -> Result<(Vec<u8>, Sealed), PackError> {
    yielded(&Arc::new(plan.clone().hold(staging)?)).await
}

async fn yielded(pack: &Arc<HeldPack>) -> Result<(Vec<u8>, Sealed), PackError> {
    let mut source = PackSource::new(Arc::clone(pack));
    let mut all = Vec::new();
    let mut last = BLOCK_BYTES;
    while let Some(chunk) = source.next().await? {
        assert!(last == BLOCK_BYTES && (1..=BLOCK_BYTES).contains(&chunk.len()), "all but the last are blocks");
        last = chunk.len();
        all.extend_from_slice(&chunk);
    }
    Ok((all, source.sealed().unwrap()))
}

#[test]
fn a_plan_of_nothing_or_of_the_impossible_is_refused() {
    assert!(matches!(PackPlan::new(Vec::new()), Err(PackError::Members(0))));
    assert!(matches!(PackPlan::new(vec![member(1, u64::MAX), member(2, 2)]), Err(PackError::TooLong)));
    assert!(matches!(PackPlan::new(vec![member(1, u64::MAX)]), Err(PackError::TooLong)));
    let mut long = member(3, 1);
    long.object.metadata = vec![("a".into(), "x".repeat(ENTRY_BYTES_MAX))];
    assert!(matches!(PackPlan::new(vec![long]), Err(PackError::EntryTooLong { slot: 3, .. })));
}

#[test]
fn members_that_are_gone_or_not_what_their_record_says_are_named() {
    run(async {
        let (_, staging) = staging(1 << 20);
        let plan = staged_pack(&staging, &[10, 20, 30]).await;
        let mut wrong = plan.members().to_vec();
        wrong[1].object.bytes = 21;
        let wrong = PackPlan::new(wrong).unwrap();
        let error = payload(&staging, &wrong).await.err().unwrap();
        assert!(matches!(error, PackError::MemberLength { slot: 1, staged_bytes: 20, record_bytes: 21 }));
        staging.free(2).await.unwrap();
        assert!(matches!(payload(&staging, &plan).await, Err(PackError::MemberGone { slot: 2 })));
        staging.free(0).await.unwrap();
    });
}

#[test]
fn a_held_pack_is_yielded_twice_though_its_members_are_freed() {
    run(async {
        let (_, staging) = staging(1 << 20);
        let plan = staged_pack(&staging, &[10, 5 * BLOCK_BYTES, 30]).await;
        let pack = Arc::new(plan.hold(&staging).unwrap());
        for slot in 0..3 {
            staging.free(slot).await.unwrap();
        }
        let first = yielded(&pack).await.unwrap();
        assert_eq!(first.0.len() as u64, pack.plan().payload_bytes());
        assert!(first == yielded(&pack).await.unwrap());
        drop(pack);
        settle().await;
        assert_eq!(staging.usage().staged_bytes, 0);
    });
}

#[test]
fn damage_to_a_member_is_noticed_while_packing() {
    run(async {
        let (drive, staging) = staging(1 << 20);
        let plan = staged_pack(&staging, &[10, 3 * BLOCK_BYTES, 30]).await;
        drive.flip_bit(&staged_name(1), BLOCK_BYTES as u64, 1);
        let error = payload(&staging, &plan).await.err().unwrap();
        assert!(matches!(error, PackError::Read(ReadError::Damaged { slot: 1, block: 1 })));
        assert_eq!(error.bad_slot(), Some(1));
        let mut source = PackSource::new(Arc::new(plan.clone().hold(&staging).unwrap()));
        while let Ok(Some(_)) = source.next().await {}
        assert_eq!(source.reading(), Some(1), "the member that cannot be read");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_payload_is_its_members_its_index_and_its_footer(
        lengths in proptest::collection::vec(prop_oneof![0usize..50, 0usize..9 * BLOCK_BYTES, Just(BLOCK_BYTES)], 1..40)
    ) {
        run(async {
            let (_, staging) = staging(1 << 24);
            let plan = staged_pack(&staging, &lengths).await;
            let (all, sealed) = payload(&staging, &plan).await.unwrap();
            assert_eq!(all.len() as u64, plan.payload_bytes());
            assert_eq!(payload(&staging, &plan).await.unwrap(), (all.clone(), sealed));
            let footer = decode_footer(&all[all.len() - PACK_FOOTER_BYTES..]).unwrap();
            assert_eq!(footer.payload_bytes(), plan.payload_bytes());
            let index = &all[footer.index_offset as usize..all.len() - PACK_FOOTER_BYTES];
            let entries = decode_index(&footer, index).unwrap();
            assert_eq!(entries.len(), lengths.len());
            for ((entry, member), offset) in entries.iter().zip(plan.members()).zip(plan.offsets()) {
                let bytes = &all[*offset as usize..][..member.object.bytes as usize];
                assert!(bytes == sample(member.slots[0], bytes.len()));
                assert_eq!((&entry.key, &entry.object, entry.offset), (&member.key, &member.object, *offset));
                assert_eq!(entry.attributes, member.attributes);
                assert_eq!(entry.checksum, crc_fast::crc64_nvme(bytes));
            }
        });
    }
}

#[test]
fn a_pack_of_memory_is_the_pack_of_the_same_files() {
    run(async {
        let (_, staging) = staging(100 << 20);
        let lengths = [0, 5, BLOCK_BYTES, 3 * BLOCK_BYTES + 17, 4096];
        let plan = staged_pack(&staging, &lengths).await;
        let (staged, sealed) = payload(&staging, &plan).await.unwrap();
        let members = plan.members().iter().map(|member| PackMember { slots: Vec::new(), ..member.clone() });
        let bytes = lengths.iter().enumerate().map(|(slot, bytes)| Bytes::from(sample(slot as u64, *bytes))).collect();
        let made = Arc::new(PackPlan::new(members.collect()).unwrap().of_memory(bytes));
        assert_eq!(yielded(&made).await.unwrap(), (staged.clone(), sealed));
        assert_eq!(yielded(&made).await.unwrap(), (staged, sealed), "it can be written again");
    });
}
