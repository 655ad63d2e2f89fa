//! An ATA disk's answer to IDENTIFY DEVICE (ACS-3, 7.12.7): identity, and power habits.

use super::inquiry::{rotation_of, text};
use model::PowerUpInStandby;

const BYTES: usize = 512;
/// In the low byte of word 255: then its high byte makes the sum of all bytes 0.
const CHECKSUM_SIGNATURE: u8 = 0xa5;

/// Identity and power features of an ATA disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtaIdentity {
    /// The model, up to 40 characters.
    pub model: String,
    /// The serial number, up to 20 characters.
    pub serial: String,
    /// The firmware's revision.
    pub firmware: String,
    /// The World Wide Name, in the notation of sysfs, if it has one.
    pub wwn: Option<String>,
    /// Revolutions per minute; 0 if it has no platters, `None` if it does not report it.
    pub rotation_rpm: Option<u16>,
    /// Power-up in standby: the platters wait for a start when the power comes on.
    pub power_up_in_standby: PowerUpInStandby,
    /// The level of Advanced Power Management, if that is on. Below 128 the disk may stop its platters by itself.
    pub apm_level: Option<u8>,
    /// True if the feature set of Extended Power Conditions is on: the disk may stop its platters by its own timers.
    pub epc_enabled: bool,
    /// True if the disk reports no more than this before the platters turn: the rest of the answer is missing.
    pub incomplete: bool,
}

impl AtaIdentity {
    /// Decodes an answer; `None` if it is too short, not from an ATA disk, or fails its checksum.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let words = Words(bytes.get(..BYTES)?);
        let sum = words.0.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
        let damaged = words.0[510] == CHECKSUM_SIGNATURE && sum != 0;
        let packet_device = words.at(0) >> 15 == 1;
        let serial = words.text(10, 19);
        if damaged || packet_device || words.0.iter().all(|b| *b == 0) {
            return None;
        }
        Some(Self {
            model: words.text(27, 46),
            serial,
            firmware: words.text(23, 26),
            wwn: words.wwn(),
            rotation_rpm: rotation_of(words.at(217)),
            power_up_in_standby: words.power_up_in_standby(),
            apm_level: words.enabled(86, 3).then(|| words.at(91) as u8),
            epc_enabled: words.at(86) >> 15 == 1 && words.valid(119) && words.enabled(120, 7),
            incomplete: matches!(words.at(2), 0x37c8 | 0x8c73),
        })
    }
}

/// The answer as 256 words, low byte first.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn at(&self, word: usize) -> u16 {
        u16::from_le_bytes([self.0[2 * word], self.0[2 * word + 1]])
    }

    /// Text in words; each word has its first character in its high byte.
    fn text(&self, first: usize, last: usize) -> String {
        let characters: Vec<u8> = (first..=last).flat_map(|word| self.at(word).to_be_bytes()).collect();
        text(&characters)
    }

    /// True if a word is marked as valid feature bits: 01 in its highest bits.
    fn valid(&self, word: usize) -> bool {
        self.at(word) >> 14 == 1
    }

    /// A bit of words 85, 86 or 120: true if the feature is on. All of them are valid together with word 83.
    fn enabled(&self, word: usize, bit: u32) -> bool {
        self.valid(83) && self.at(word) >> bit & 1 == 1
    }

    fn wwn(&self) -> Option<String> {
        let there = self.valid(87) && self.at(87) >> 8 & 1 == 1;
        let words = [self.at(108), self.at(109), self.at(110), self.at(111)];
        let [a, b, c, d] = words;
        (there && words != [0; 4]).then(|| format!("naa.{a:04x}{b:04x}{c:04x}{d:04x}"))
    }

    fn power_up_in_standby(&self) -> PowerUpInStandby {
        let supported = self.valid(83) && self.at(83) >> 5 & 1 == 1;
        // Word 2 has this, too; if the rest of the answer is missing, it is the only place.
        let (waits, needs_features) = match self.at(2) {
            0x37c8 | 0x738c => (true, true),
            0x8c73 | 0xc837 => (true, false),
            _ => (false, false),
        };
        match (supported || waits, self.enabled(86, 5), waits) {
            (false, _, _) => PowerUpInStandby::Unsupported,
            (true, false, false) => PowerUpInStandby::Disabled,
            _ if needs_features || self.enabled(86, 6) || self.enabled(83, 6) => PowerUpInStandby::EnabledUntilSpunUp,
            _ => PowerUpInStandby::Enabled,
        }
    }
}
