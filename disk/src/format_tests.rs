//! Every block against any bytes that a drive may return, and against the committed examples in `corpus/`.
//!
//! A fuzz body takes its bytes as they are, and once more with magic, version and checksum repaired: otherwise hardly
//! any random bytes would pass the checksum. Nothing may panic, and everything that decodes must encode to the same
//! bytes again.
#![allow(clippy::unwrap_used)]

use crate::format::{BLOCK_BYTES, FORMAT_VERSION, FormatError, crc32c, seal_of};
use crate::label::{Device, DriveLabel, DriveUuid, Label, RackUuid};
use crate::owner::OwnerMark;
use crate::stack::{Blob, ChecksumPage, Footer, Header, Provenance};
use lineage::{Generation, RunId};
use model::{BlobId, ClassId, Code, DriveId, GroupId, Rng};
use std::path::PathBuf;

fn label(bytes: &[u8]) {
    both(bytes, *b"LARDLABL", DriveLabel::decode, |label, block| block.copy_from_slice(&label.encode()));
}

fn header(bytes: &[u8]) {
    both(bytes, *b"LARDSTCK", Header::decode, Header::encode);
}

fn footer(bytes: &[u8]) {
    both(bytes, *b"LARDFOOT", Footer::decode, Footer::encode);
}

fn checksum_page(bytes: &[u8]) {
    both(bytes, *b"LARDSUMS", ChecksumPage::decode, ChecksumPage::encode);
}

fn owner_mark(bytes: &[u8]) {
    both(bytes, *b"LARDOWNR", OwnerMark::decode, |mark, block| block.copy_from_slice(&mark.encode()));
}

fn both<T>(
    bytes: &[u8],
    magic: [u8; 8],
    decode: impl Fn(&[u8]) -> Result<T, FormatError>,
    encode: impl Fn(&T, &mut [u8]),
) {
    round_trip(bytes, &decode, &encode);
    let mut repaired = bytes.to_vec();
    repaired.resize(BLOCK_BYTES, 0);
    repaired[..8].copy_from_slice(&magic);
    repaired[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let crc = crc32c(&repaired[..BLOCK_BYTES - 4]);
    repaired[BLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    round_trip(&repaired, &decode, &encode);
}

fn round_trip<T>(bytes: &[u8], decode: &impl Fn(&[u8]) -> Result<T, FormatError>, encode: &impl Fn(&T, &mut [u8])) {
    if let Ok(value) = decode(bytes) {
        let mut again = vec![0xff; BLOCK_BYTES];
        encode(&value, &mut again);
        assert!(again == bytes, "what decodes encodes to the same bytes");
    }
}

const BODIES: [fn(&[u8]); 5] = [label, header, footer, checksum_page, owner_mark];

fn block(encode: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    encode(&mut block);
    block
}

/// One of each block, as this version writes it.
fn examples() -> Vec<(&'static str, Vec<u8>)> {
    let rack = RackUuid(*b"sixteen bytes id");
    let (id, index) = (BlobId::new(0x0123_4567_89ab_cdef, 0x0f1e_2d3c_4b5a_6978), 16);
    let code = Code { data: 15, parity: 3, fragment_bytes: 128 << 10 };
    let payload_bytes = 1_000_000_000;
    let blob = Blob { rack, id, code, payload_bytes };
    let (group, class) = (GroupId(41), ClassId(7));
    let provenance =
        Provenance { sequence: 123_456_789, run: 0x0123_4567_89ab_cdef, written_ms: 1_700_000_000_000, group, class };
    let header = Header { blob, index, provenance, drives: (100..118).map(DriveId).collect() };
    let header_crc = seal_of(&block(|block| header.encode(block)));
    let footer = Footer { blob, index, payload_crc64: 0xfedc_ba98_7654_3210, header_crc };
    let sums = (0..509).map(|i| i * 0x0081_0081).collect();
    let page = ChecksumPage { rack, id, index, first_stripe: 960, header_crc, sums };
    let label = Label { rack, rack_name: "cold-1".into(), drive: DriveId(1151) };
    let device = Device::Serial("ZL2ABCDE".into());
    let label = DriveLabel { label, uuid: DriveUuid(*b"one drive's uuid"), labelled_ms: 1_700_000_000_000, device };
    let mark = OwnerMark {
        rack,
        directory: *b"one directory id",
        serial: Generation(7),
        run: RunId(0x0123_4567_89ab_cdef),
        previous: Some(RunId(0x0f1e_2d3c_4b5a_6978)),
        marked_ms: 1_700_000_000_000,
        place: "nas:/srv/larder".into(),
    };
    vec![
        ("owner-mark", mark.encode().to_vec()),
        ("label", label.encode().to_vec()),
        ("header", block(|block| header.encode(block))),
        ("footer", block(|block| footer.encode(block))),
        ("checksum-page", block(|block| page.encode(block))),
    ]
}

fn corpus_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{name}.v{FORMAT_VERSION}"))
}

#[test]
fn the_format_is_still_the_one_of_the_committed_corpus() {
    for (name, bytes) in examples() {
        if std::env::var_os("LARDER_WRITE_CORPUS").is_some() {
            std::fs::write(corpus_file(name), &bytes).unwrap();
        }
        assert!(std::fs::read(corpus_file(name)).unwrap() == bytes, "{name} is written differently now");
    }
}

#[test]
fn each_example_decodes() {
    let [(_, mark), (_, label), (_, header), (_, footer), (_, page)] = examples().try_into().unwrap();
    OwnerMark::decode(&mark).unwrap();
    DriveLabel::decode(&label).unwrap();
    Header::decode(&header).unwrap();
    Footer::decode(&footer).unwrap();
    ChecksumPage::decode(&page).unwrap();
    assert_eq!(Header::decode(&footer), Err(FormatError::Magic { expected: "header of a stack" }));
    assert_eq!(Header::decode(&[0; BLOCK_BYTES]), Err(FormatError::Blank));
    assert_eq!(Header::decode(&header[1..]), Err(FormatError::Length(4095)));
}

#[test]
fn blocks_of_the_trial_version_are_refused_with_a_word_to_the_reader() {
    for (name, decode) in [
        ("label", (|block| DriveLabel::decode(block).map(|_| ())) as fn(&[u8]) -> Result<(), FormatError>),
        ("header", |block| Header::decode(block).map(|_| ())),
        ("footer", |block| Footer::decode(block).map(|_| ())),
        ("checksum-page", |block| ChecksumPage::decode(block).map(|_| ())),
    ] {
        let old = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{name}.v1"));
        let refused = decode(&std::fs::read(old).unwrap());
        assert_eq!(refused, Err(FormatError::Version(1)));
        assert!(refused.unwrap_err().to_string().contains("written by an earlier trial version of Larder"));
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (_, header) = &examples()[1];
    for bit in 0..BLOCK_BYTES * 8 {
        let mut damaged = header.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn no_bytes_make_a_decoder_panic_or_lie() {
    let mut seeds: Vec<Vec<u8>> = examples().into_iter().map(|(_, bytes)| bytes).collect();
    seeds.extend([vec![], vec![0], vec![0xff; BLOCK_BYTES], vec![0; BLOCK_BYTES + 1]]);
    let rng = &mut Rng::new(2026);
    for seed in &seeds {
        for round in 0..5_000 {
            let bytes = if round == 0 { seed.clone() } else { mutated(seed, rng) };
            for body in BODIES {
                body(&bytes);
            }
        }
    }
}

/// A few bytes changed, mostly where the fields are; sometimes cut off or lengthened.
fn mutated(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(4) {
        let reach = if rng.below(8) == 0 { bytes.len() } else { bytes.len().min(128) };
        if reach > 0 {
            let at = rng.below(reach as u64) as usize;
            bytes[at] = [0, 1, 0x7f, 0xff, rng.next_u64() as u8][rng.below(5) as usize];
        }
    }
    if rng.below(16) == 0 {
        bytes.resize(rng.below(2 * BLOCK_BYTES as u64) as usize, 0);
    }
    bytes
}
