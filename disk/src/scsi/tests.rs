//! Decoders against answers of known disks, and against arbitrary bytes.
#![allow(clippy::unwrap_used)]

use super::*;
use inquiry::Inquiry;
use model::PowerUpInStandby;
use proptest::prelude::*;

/// Sense data as libata makes them after a pass-through with CK_COND: count 0xff, status 0x50.
pub const CHECK_POWER_MODE_ACTIVE: [u8; 22] =
    [0x72, 1, 0, 0x1d, 0, 0, 0, 14, 9, 12, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0x40, 0x50];

#[test]
fn ata_registers_come_out_of_their_descriptor() {
    let sense = Sense::decode(&CHECK_POWER_MODE_ACTIVE).unwrap();
    assert!(sense.is(sense::RECOVERED_ERROR, 0x00, 0x1d));
    assert_eq!(sense.ata, Some(AtaStatus { status: 0x50, error: 0, count: 0xff }));
    assert!(!sense.ata.unwrap().failed());
    // Behind another descriptor (Information, type 0).
    let mut behind = vec![0x72, 1, 0, 0x1d, 0, 0, 0, 14 + 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    behind.extend_from_slice(&CHECK_POWER_MODE_ACTIVE[8..]);
    assert_eq!(Sense::decode(&behind).unwrap().ata, sense.ata);
}

#[test]
fn a_descriptor_that_is_cut_off_gives_no_registers() {
    for bytes in 8..CHECK_POWER_MODE_ACTIVE.len() {
        assert_eq!(Sense::decode(&CHECK_POWER_MODE_ACTIVE[..bytes]).unwrap().ata, None, "{bytes}");
    }
    let mut short = CHECK_POWER_MODE_ACTIVE;
    short[7] = 13;
    assert_eq!(Sense::decode(&short).unwrap().ata, None);
    assert_eq!(Sense::decode(&CHECK_POWER_MODE_ACTIVE[..7]), None);
}

#[test]
fn fixed_format_has_key_and_code_and_no_registers() {
    let fixed = [0x70, 0, 2, 0, 0, 0, 0, 10, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0];
    assert_eq!(Sense::decode(&fixed), Some(Sense { key: 2, asc: 4, ascq: 2, deferred: false, ata: None }));
    let mut deferred = fixed;
    deferred[0] = 0x71;
    assert!(Sense::decode(&deferred).unwrap().deferred);
    assert_eq!(Sense::decode(&[0x7f; 18]), None);
    assert_eq!(Sense::decode(&[]), None);
}

/// A page of vital product data.
fn page(code: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    [&[0, code, high, low], payload].concat()
}

#[test]
fn pages_of_product_data() {
    assert_eq!(inquiry::serial(&page(0x80, b"  ZC1A0BXT  ")), Some("ZC1A0BXT".to_owned()));
    assert_eq!(inquiry::serial(&page(0x80, b"    ")), None);
    assert_eq!(inquiry::serial(&page(0x83, b"ZC1A0BXT")), None, "another page's bytes");
    let naa = [0x01, 0x03, 0, 8, 0x50, 0, 0xc5, 0, 0xa1, 0xb2, 0xc3, 0xd4];
    let port = [0x61, 0x93, 0, 8, 0x50, 0, 0xc5, 0, 0xa1, 0xb2, 0xc3, 0xd5];
    let t10 = [0x02, 0x01, 0, 4, b'S', b'E', b'A', b'G'];
    let all = page(0x83, &[&port[..], &t10, &naa].concat());
    assert_eq!(inquiry::wwn(&all).as_deref(), Some("naa.5000c500a1b2c3d4"), "of the disk, not of its port");
    assert_eq!(inquiry::wwn(&page(0x83, &[&port[..], &t10].concat())), None);
    assert_eq!(inquiry::wwn(&page(0x83, &naa[..11])), None, "a name that is cut off");
    assert_eq!(inquiry::rotation_rpm(&page(0xb1, &[0x1c, 0x20, 0, 0x02])), Some(7200));
    assert_eq!(inquiry::rotation_rpm(&page(0xb1, &[0, 1])), Some(0));
    assert_eq!(inquiry::rotation_rpm(&page(0xb1, &[0, 0])), None);
}

#[test]
fn standard_data_of_scsi_debug() {
    let mut bytes = vec![0, 0, 7, 2, 91, 0, 0, 2];
    bytes.extend_from_slice(b"Linux   scsi_debug      0191");
    let inquiry = Inquiry::decode(&bytes).unwrap();
    assert_eq!((inquiry.device_type, inquiry.vendor.as_str(), inquiry.model.as_str()), (0, "Linux", "scsi_debug"));
    assert_eq!(inquiry.revision, "0191");
    assert_eq!(Inquiry::decode(&bytes[..35]), None);
}

/// An answer to IDENTIFY DEVICE with these words, and a correct checksum.
pub fn identify(words: &[(usize, u16)]) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    let texts = [(10, "            ZC1A0BXT"), (23, "SC60    "), (27, "ST4000VN008-2DR166                      ")];
    for (word, text) in texts {
        for (i, pair) in text.as_bytes().chunks(2).enumerate() {
            bytes[2 * (word + i)] = pair[1];
            bytes[2 * (word + i) + 1] = pair[0];
        }
    }
    for (word, value) in words {
        bytes[2 * word..2 * word + 2].copy_from_slice(&value.to_le_bytes());
    }
    bytes[510] = 0xa5;
    bytes[511] = bytes[..511].iter().fold(0u8, |sum, b| sum.wrapping_sub(*b));
    bytes
}

const FEATURES: (usize, u16) = (83, 0x4000);

#[test]
fn identity_of_an_ata_disk() {
    let words = [FEATURES, (87, 0x4100), (108, 0x5000), (109, 0xc500), (110, 0xa1b2), (111, 0xc3d4), (217, 5980)];
    let identity = AtaIdentity::decode(&identify(&words)).unwrap();
    assert_eq!((identity.model.as_str(), identity.serial.as_str()), ("ST4000VN008-2DR166", "ZC1A0BXT"));
    assert_eq!((identity.firmware.as_str(), identity.rotation_rpm), ("SC60", Some(5980)));
    assert_eq!(identity.wwn.as_deref(), Some("naa.5000c500a1b2c3d4"));
    assert_eq!((identity.apm_level, identity.epc_enabled, identity.incomplete), (None, false, false));
    assert_eq!(identity.power_up_in_standby, PowerUpInStandby::Unsupported);
    let mut damaged = identify(&words);
    damaged[60] ^= 1;
    assert_eq!(AtaIdentity::decode(&damaged), None);
    assert_eq!(AtaIdentity::decode(&[0; 512]), None);
    assert_eq!(AtaIdentity::decode(&identify(&[(0, 0x8580)])), None, "an optical drive");
}

#[test]
fn power_up_in_standby_is_what_the_disk_says() {
    let of = |words: &[(usize, u16)]| AtaIdentity::decode(&identify(words)).unwrap();
    let puis = |words: &[(usize, u16)]| of(words).power_up_in_standby;
    assert_eq!(puis(&[(83, 0x4020)]), PowerUpInStandby::Disabled);
    assert_eq!(puis(&[(83, 0x4020), (86, 0x0020)]), PowerUpInStandby::Enabled);
    assert_eq!(puis(&[(83, 0x4060), (86, 0x0060)]), PowerUpInStandby::EnabledUntilSpunUp);
    // Before the platters turn, word 2 alone may say it.
    assert_eq!(puis(&[(2, 0x37c8)]), PowerUpInStandby::EnabledUntilSpunUp);
    assert_eq!(puis(&[(2, 0xc837)]), PowerUpInStandby::Enabled);
    assert!(of(&[(2, 0x37c8)]).incomplete && !of(&[(2, 0xc837)]).incomplete);
    // Words that are not valid say nothing.
    assert_eq!(puis(&[(83, 0x0020), (86, 0x0020)]), PowerUpInStandby::Unsupported);
}

#[test]
fn timers_of_the_disks_own_are_seen() {
    let identity = |words: &[(usize, u16)]| AtaIdentity::decode(&identify(words)).unwrap();
    let apm = identity(&[(83, 0x4008), (86, 0x0008), (91, 0x0060)]);
    assert_eq!(apm.apm_level, Some(0x60));
    assert!(identity(&[FEATURES, (86, 0x8000), (119, 0x4080), (120, 0x4080)]).epc_enabled);
    assert!(!identity(&[FEATURES, (86, 0x8000), (119, 0x4080), (120, 0x4000)]).epc_enabled);
}

proptest! {
    #[test]
    fn arbitrary_sense_data_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), code in 0x70u8..0x74) {
        Sense::decode(&bytes);
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = code;
        }
        Sense::decode(&bytes);
    }

    #[test]
    fn arbitrary_pages_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..700), page in any::<u8>()) {
        let mut bytes = bytes;
        for page in [page, 0x80, 0x83, 0x89, 0xb1] {
            if bytes.len() > 1 {
                bytes[1] = page;
            }
            Inquiry::decode(&bytes);
            inquiry::serial(&bytes);
            inquiry::wwn(&bytes);
            inquiry::rotation_rpm(&bytes);
            inquiry::ata_identify(&bytes).map(AtaIdentity::decode);
        }
    }

    #[test]
    fn arbitrary_identities_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        AtaIdentity::decode(&bytes);
    }
}
