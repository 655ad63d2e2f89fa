//! Tests of the index and the footer of packs, with a corpus that is mutated by seed.
#![allow(clippy::unwrap_used)]
use super::*;
use model::Rng;
use proptest::prelude::*;

fn texts() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    proptest::collection::vec((texts(), texts()), 0..3)
}

fn kinds() -> impl Strategy<Value = ChecksumKind> {
    (1u8..=5).prop_map(|code| kind_of(code).unwrap())
}

fn objects() -> impl Strategy<Value = Object> {
    let checksums = (kinds(), texts()).prop_map(|(kind, base64)| Checksum { kind, base64 });
    let numbers = (any::<u64>(), 0u64..1 << 40, any::<u64>());
    let lengths = proptest::collection::vec(0u64..3, 0..9);
    (numbers, texts(), pairs(), pairs(), proptest::collection::vec(checksums, 0..3), lengths).prop_map(
        |((version, bytes, modified_ms), etag, headers, metadata, checksums, lengths)| Object {
            version: VersionId(version),
            bytes: if lengths.is_empty() { bytes } else { lengths.iter().sum() },
            etag,
            modified_ms,
            created_ms: modified_ms,
            headers,
            metadata,
            checksums,
            acl: if modified_ms % 2 == 0 { Acl::Private } else { Acl::PublicRead },
            tags: vec![("a".into(), "b".into()); (version % 3) as usize],
            parts: lengths.into_iter().collect(),
        },
    )
}

fn attributes() -> impl Strategy<Value = MemberAttributes> {
    let retentions = proptest::option::of((any::<bool>(), any::<u64>()).prop_map(|(firm, until_ms)| {
        let mode = if firm { RetentionMode::Compliance } else { RetentionMode::Governance };
        Retention { mode, until_ms }
    }));
    let flags = (any::<bool>(), any::<bool>(), retentions);
    let numbers = (any::<u64>(), any::<u64>());
    (numbers, texts(), texts(), flags).prop_map(|(numbers, owner, storage_class, flags)| {
        let (bucket_created_ms, sequence) = numbers;
        let (is_delete_marker, legal_hold, retention) = flags;
        let parts = Vec::new();
        MemberAttributes {
            bucket_created_ms,
            owner,
            sequence,
            is_delete_marker,
            legal_hold,
            retention,
            storage_class,
            parts,
        }
    })
}

/// Bucket, key, object, checksum and attributes.
type Member = (String, String, Object, u64, MemberAttributes);

fn members() -> impl Strategy<Value = Vec<Member>> {
    proptest::collection::vec((texts(), texts(), objects(), any::<u64>(), attributes()), 0..6)
}

/// An index of these members, with its footer.
fn encode(members: &[Member]) -> (Vec<u8>, PackFooter) {
    let mut bytes = encode_index_header(members.len() as u32).to_vec();
    let mut offset = 0;
    for (bucket, key, object, _, attributes) in members {
        let entry = encode_entry(bucket, key, offset, object, attributes);
        bytes.extend_from_slice(&entry);
        offset += object.bytes;
    }
    for (_, _, _, checksum, _) in members {
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    let footer = PackFooter {
        members: members.len() as u32,
        index_offset: offset,
        index_bytes: bytes.len() as u64,
        index_checksum: crc_fast::crc64_nvme(&bytes),
    };
    (bytes, footer)
}

/// Any bytes are refused by the decoders, or are exactly the encoding of what they decode to.
fn decode_anything(bytes: &[u8]) {
    if let Ok(entries) = parse_index(bytes) {
        let members: Vec<_> = entries
            .into_iter()
            .map(|entry| (entry.bucket, entry.key, entry.object, entry.checksum, entry.attributes))
            .collect();
        assert!(encode(&members).0 == bytes);
    }
    if let Ok(footer) = decode_footer(bytes) {
        assert!(footer.encode() == bytes);
        assert!(footer.payload_bytes() > footer.index_offset);
    }
}

/// Changes `bytes` a little, in a way that `rng` chooses.
fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(bytes.len().max(1) as u64) as usize;
    match rng.below(5) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, rng.below(256) as u8),
        2 if at + 4 <= bytes.len() => bytes[at..at + 4].copy_from_slice(&[0xff; 4]),
        3 if at + 4 <= bytes.len() => bytes[at..at + 4].copy_from_slice(&(rng.below(40) as u32).to_le_bytes()),
        _ if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
        _ => {}
    }
}

fn corpus_member() -> Member {
    let object = Object {
        version: VersionId(4),
        bytes: 99,
        etag: "d41d8cd98f00b204e9800998ecf8427e".into(),
        modified_ms: 1_700_000_000_000,
        created_ms: 1_650_000_000_000,
        headers: vec![("content-type".into(), "image/png".into())],
        metadata: vec![("camera".into(), "box".into()), ("place".into(), String::new())],
        checksums: vec![Checksum { kind: ChecksumKind::Crc32c, base64: "AAAAAA==".into() }],
        acl: Acl::Private,
        tags: Vec::new(),
        parts: PartLengths::default(),
    };
    let retention = Some(Retention { mode: RetentionMode::Governance, until_ms: 1_900_000_000_000 });
    let attributes = MemberAttributes {
        bucket_created_ms: 1_600_000_000_000,
        owner: "root".into(),
        sequence: 4_711,
        legal_hold: true,
        retention,
        storage_class: "STANDARD".into(),
        ..MemberAttributes::default()
    };
    ("photos".to_owned(), "2019/a.png".to_owned(), object, 17, attributes)
}

fn corpus() -> Vec<Vec<u8>> {
    let member = corpus_member();
    let mut in_parts = member.clone();
    in_parts.2.parts = [40, 40, 19].into_iter().collect();
    let checksum = of_raw(ChecksumKind::Crc64Nvme, &[1, 2, 3, 4, 5, 6, 7, 8]);
    in_parts.4.parts = vec![PartDigests { md5: [3; 16], checksum }; 3];
    let (one, footer) = encode(std::slice::from_ref(&member));
    let (none, _) = encode(&[]);
    let (several, _) = encode(&[member.clone(), in_parts, member]);
    vec![none, one, several, footer.encode().to_vec(), Vec::new()]
}

#[test]
fn mutated_indexes_and_footers_never_panic_and_never_mean_two_things() {
    let mut rng = Rng::new(11);
    for seed in corpus() {
        decode_anything(&seed);
        for _ in 0..40_000 {
            let mut bytes = seed.clone();
            for _ in 0..=rng.below(3) {
                mutate(&mut bytes, &mut rng);
            }
            decode_anything(&bytes);
        }
    }
}

#[test]
fn a_footer_beyond_all_lengths_is_refused() {
    let footer = PackFooter { members: 1, index_offset: u64::MAX - 70, index_bytes: 10, index_checksum: 0 };
    assert_eq!(decode_footer(&footer.encode()), Err(FormatError::Field("length")));
}

#[test]
fn an_index_that_promises_more_than_it_has_takes_no_memory() {
    let mut bytes = encode_index_header(u32::MAX).to_vec();
    bytes.extend_from_slice(&[0; 4096]);
    assert_eq!(parse_index(&bytes), Err(FormatError::Field("number of members")));
}

#[test]
fn a_newer_index_or_footer_is_refused_as_such() {
    let (mut index, footer) = encode(&[]);
    index[8] = 4;
    assert_eq!(parse_index(&index), Err(FormatError::Version(4)));
    let mut bytes = footer.encode();
    bytes[8] = 4;
    let crc = crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(decode_footer(&bytes), Err(FormatError::Version(4)));
}

#[test]
fn packs_of_trial_versions_are_refused_as_such() {
    for version in [1, 2] {
        let (mut index, footer) = encode(&[]);
        index[8] = version;
        assert_eq!(parse_index(&index), Err(FormatError::Trial(version.into())));
        let mut bytes = footer.encode();
        bytes[8] = version;
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        let refused = decode_footer(&bytes);
        assert_eq!(refused, Err(FormatError::Trial(version.into())));
        assert!(refused.unwrap_err().to_string().contains("written by an earlier trial version of Larder"));
    }
}

#[test]
fn digests_that_are_not_of_all_parts_are_refused() {
    let checksum = |bytes: &[u8]| of_raw(ChecksumKind::Crc32c, bytes);
    let digests = |count| vec![PartDigests { md5: [9; 16], checksum: checksum(&[1, 2, 3, 4]) }; count];
    let mut member = corpus_member();
    member.2.parts = [40, 40, 19].into_iter().collect();
    member.4.parts = digests(3);
    let entries = parse_index(&encode(std::slice::from_ref(&member)).0).unwrap();
    assert_eq!(entries[0].attributes.parts, digests(3));
    member.4.parts = digests(2);
    let refused = parse_index(&encode(std::slice::from_ref(&member)).0);
    assert_eq!(refused, Err(FormatError::Field("number of digests of parts")));
    // Not checksums of one kind: these have no encoding, so none are written.
    member.4.parts = digests(3);
    member.4.parts[1].checksum = of_raw(ChecksumKind::Sha1, &[0; 20]);
    let entries = parse_index(&encode(std::slice::from_ref(&member)).0).unwrap();
    assert!(entries[0].attributes.parts.is_empty());
}

#[test]
fn parts_that_are_not_all_of_an_object_are_refused() {
    let mut member = corpus_member();
    for lengths in [&[40, 40][..], &[99, 1], &[u64::MAX, 100]] {
        member.2.parts = lengths.iter().copied().collect();
        assert_eq!(parse_index(&encode(std::slice::from_ref(&member)).0), Err(PARTS), "{lengths:?}");
    }
}

proptest! {
    #[test]
    fn any_index_comes_back_as_it_was_written(members in members()) {
        let (bytes, footer) = encode(&members);
        prop_assert_eq!(decode_footer(&footer.encode()), Ok(footer));
        let entries = decode_index(&footer, &bytes).unwrap();
        prop_assert_eq!(entries.len(), members.len());
        for (entry, (bucket, key, object, checksum, attributes)) in entries.iter().zip(&members) {
            prop_assert_eq!((&entry.bucket, &entry.key), (bucket, key));
            prop_assert_eq!((&entry.object, entry.checksum), (object, *checksum));
            prop_assert_eq!(&entry.attributes, attributes);
        }
    }

    #[test]
    fn any_changed_bit_of_an_index_is_noticed(members in members(), place in 0.0..1.0) {
        let (mut bytes, footer) = encode(&members);
        let bit = (place * (8 * bytes.len()) as f64) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(decode_index(&footer, &bytes), Err(FormatError::Checksum));
    }
}
