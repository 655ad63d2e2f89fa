//! Answers of disks, written down from the standards and from what makers' disks say, and arbitrary ones.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::scsi::{Replay, Reply};
use proptest::prelude::*;

/// A disk in this mode, which counts nothing.
struct In(PowerMode);

impl PowerControl for In {
    fn mode(&self) -> PowerMode {
        self.0.clone()
    }

    fn start(&self) -> Result<(), PowerError> {
        unreachable!("nobody starts a disk to learn its health")
    }

    fn stop(&self) -> Result<(), PowerError> {
        unreachable!("nobody stops a disk to learn its health")
    }
}

/// SMART READ DATA with these attributes (number, raw value of 6 bytes), and a checksum that fits.
fn attributes(attributes: &[(u8, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; SMART_BYTES];
    bytes[0] = 0x10;
    for (at, (number, raw)) in attributes.iter().enumerate() {
        let entry = &mut bytes[TABLE + at * ATTRIBUTE_BYTES..][..ATTRIBUTE_BYTES];
        entry[..5].copy_from_slice(&[*number, 0x33, 0, 100, 100]);
        entry[5..11].copy_from_slice(&raw.to_le_bytes()[..6]);
    }
    let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    bytes[SMART_BYTES - 1] = sum.wrapping_neg();
    bytes
}

/// LOG SENSE's answer of a page with these parameters.
fn page(page: u8, parameters: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![page, 0, 0, 0];
    for (code, value) in parameters {
        bytes.extend(code.to_be_bytes());
        bytes.extend([0x03, value.len() as u8]);
        bytes.extend(*value);
    }
    let length = (bytes.len() - 4) as u16;
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

#[test]
fn attributes_are_read_by_their_numbers_and_their_low_bits() {
    // 29 degrees, lowest 18, highest 44; 31,337 hours, with milliseconds above them.
    let bytes = attributes(&[
        (1, 0),
        (5, 16),
        (9, 0x00_07_00_00_7a_69),
        (4, 1202),
        (194, 0x00_2c_00_12_00_1d),
        (197, 8),
        (198, 2),
        (199, 3),
        (193, 5000),
    ]);
    let expected = Smart {
        reallocated_sectors: Some(16),
        pending_sectors: Some(8),
        uncorrectable: Some(2),
        link_errors: Some(3),
        starts: Some(1202),
        loads: Some(5000),
        power_on_h: Some(31_337),
        temperature_c: Some(29),
        ..Smart::default()
    };
    assert_eq!(of_ata(&bytes), Some(expected));
    let only_one = of_ata(&attributes(&[(5, 0)])).unwrap();
    assert_eq!((only_one.reallocated_sectors, only_one.pending_sectors), (Some(0), None), "silence is not 0");
}

#[test]
fn damaged_and_empty_answers_say_nothing() {
    let mut bytes = attributes(&[(5, 1)]);
    bytes[40] ^= 1;
    assert_eq!(of_ata(&bytes), None, "the checksum");
    assert_eq!(of_ata(&[0; SMART_BYTES]), None);
    assert_eq!(of_ata(&attributes(&[(5, 1)])[..511]), None);
    assert_eq!(of_ata(&attributes(&[])), None);
}

#[test]
fn the_pages_of_a_sas_disk_are_put_together() {
    let awake = In(PowerMode::Active);
    let good = |bytes: &[u8]| [Ok(Reply::good(bytes))];
    let disk = Replay::default()
        .with(Command::log_sense(0x03), good(&page(0x03, &[(0, &[0, 0, 0, 9]), (6, &[0, 0, 0, 0, 0, 0, 1, 4])])))
        .with(Command::log_sense(0x0d), good(&page(0x0d, &[(0, &[0, 31]), (1, &[0, 60])])))
        .with(
            Command::log_sense(0x0e),
            good(&page(
                0x0e,
                &[
                    (1, b"202401"),
                    (3, &[0, 0, 0x75, 0x30]),
                    (4, &[0, 0, 0, 77]),
                    (5, &[0, 9, 0x27, 0xc0]),
                    (6, &[0, 0, 1, 0]),
                ],
            )),
        )
        .with(Command::log_sense(0x2f), good(&page(0x2f, &[(0, &[0x5d, 0x10, 31])])))
        .with(Command::read_grown_defects(), good(&[0, 0x0d, 0, 40]));
    let expected = Smart {
        reallocated_sectors: Some(5),
        uncorrectable: Some(260),
        starts: Some(77),
        starts_rated: Some(30_000),
        loads: Some(256),
        loads_rated: Some(600_000),
        temperature_c: Some(31),
        predicts_failure: Some(true),
        ..Smart::default()
    };
    assert_eq!(read_scsi(&disk, &awake), Ok(expected), "a page that is not there is left out");
    assert_eq!(read_scsi(&Replay::default(), &awake), Err(SmartError::Nothing));
}

#[test]
fn unknown_temperatures_other_pages_and_other_lists_say_nothing() {
    let mut smart = Smart::default();
    add_page(&mut smart, 0x0d, &page(0x0d, &[(0, &[0, 0xff])]));
    add_page(&mut smart, 0x0e, &page(0x0d, &[(4, &[0, 0, 0, 77])]));
    add_page(&mut smart, 0x0e, &page(0x0e, &[(4, &[0; 9])]));
    add_page(&mut smart, 0x0e, &page(0x0e, &[(3, &[0; 4])]));
    add_page(&mut smart, 0x0e, &page(0x0e, &[(4, &[0, 0, 0, 77])])[..9]);
    assert_eq!(smart, Smart::default());
    assert_eq!(grown_defects(&[0, 0x05, 0, 40]), None, "no such list");
    assert_eq!(grown_defects(&[0, 0x0e, 0, 40]), None, "a maker's own format");
    assert_eq!(grown_defects(&[0, 0x08, 0, 40]), Some(10), "short blocks");
    assert_eq!(grown_defects(&[0, 0x0d]), None);
}

#[test]
fn nothing_but_its_mode_is_asked_of_a_disk_that_is_not_known_to_be_awake() {
    for mode in [PowerMode::Standby, PowerMode::Starting, PowerMode::Unknown(PowerError::NoAnswer)] {
        let disk = Replay::default();
        assert_eq!(read_ata(&disk, &In(mode.clone())), Err(SmartError::NotAwake(mode.clone())));
        assert_eq!(read_scsi(&disk, &In(mode.clone())), Err(SmartError::NotAwake(mode)));
        assert_eq!(disk.asked(), []);
    }
    let disk = Replay::default();
    let gone = In(PowerMode::Unknown(TransportError::Gone.into()));
    assert_eq!(read_ata(&disk, &gone), Err(SmartError::Transport(TransportError::Gone)));
    let disk = disk.with(Command::ata_smart_read_data(), [Ok(Reply::good(&attributes(&[(197, 1)])))]);
    assert_eq!(read_ata(&disk, &In(PowerMode::Active)).unwrap().pending_sectors, Some(1));
}

proptest! {
    #[test]
    fn no_answer_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), page in 0u8..64) {
        let _ = of_ata(&bytes);
        let mut smart = Smart::default();
        add_page(&mut smart, page, &bytes);
        let mut right = bytes.clone();
        if let Some(first) = right.first_mut() {
            *first = page;
        }
        add_page(&mut smart, page, &right);
        let _ = grown_defects(&bytes);
    }
}
