//! The record: a change of one key, or the mask of a range, with the bytes that describe and hold it. Logs and shelves
//! consist of the same records.
//!
//! ```text
//!  0      4     5   6      8         12        16        24      32       40       44        48     52     56
//!  +------+-----+---+------+---------+---------+---------+-------+--------+--------+---------+------+------+
//!  |magic |kind | 0 |key   |entry    |value    |sequence |stamp  |durable |CRC of  |CRC of   | 0    |CRC of|
//!  |"LREC"|     |   |length|length   |length   |number   |       |        |key,    |value    |      |the 52|
//!  |      |     |   |      |         |         |         |       |        |entry   |         |      |before|
//!  +------+-----+---+------+---------+---------+---------+-------+--------+--------+---------+------+------+
//!  | key | entry | value | zeros up to a multiple of 8
//! ```
//!
//! A length is used only after the checksum of the head matches. `stamp` identifies the file that the record was
//! written to. `durable` is the synced length of the log when the record was written, by which a torn tail is
//! distinguished from rot (see [`crate::log`]).

use crate::bytes::{Damage, Fields, aligned, crc32c};

/// Bytes of the head of a record.
pub const HEAD_BYTES: usize = 56;

/// Maximum length of a key in bytes.
pub const KEY_BYTES_MAX: usize = 4096;

/// The first bytes of every record.
const MAGIC: [u8; 4] = *b"LREC";

/// The number of a change: changes take effect in this order, and each number is given once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The key now has this entry and value.
    Put,
    /// The key is deleted.
    Delete,
    /// All versions of the keys in a range, up to a number, are forgotten: a mask. The key is the first one, the value
    /// the end, which is not in the range (empty: all keys from the first one on), the entry the number.
    Forget,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Put => 1,
            Self::Delete => 2,
            Self::Forget => 3,
        }
    }
}

/// The least key after `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// A record borrowed from its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its number.
    pub sequence: Sequence,
    /// Its key, at most [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The caller's metadata.
    pub entry: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl Record<'_> {
    /// Bytes of the record in a file.
    pub(crate) fn bytes(&self) -> usize {
        aligned(HEAD_BYTES + self.key.len() + self.entry.len() + self.value.len())
    }

    /// Appends the record to `out`. `value_crc` is the CRC-32C of the value.
    pub(crate) fn encode(&self, stamp: u64, durable: u64, value_crc: u32, out: &mut Vec<u8>) {
        assert!(self.key.len() <= KEY_BYTES_MAX, "the length of keys was checked");
        let begin = out.len();
        out.resize(begin + HEAD_BYTES, 0);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.entry);
        let described_crc = crc32c(&out[begin + HEAD_BYTES..]);
        out.extend_from_slice(self.value);
        out.resize(begin + self.bytes(), 0);
        let head = &mut out[begin..begin + HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC);
        head[4] = self.kind.code();
        head[6..8].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        head[8..12].copy_from_slice(&(self.entry.len() as u32).to_le_bytes());
        head[12..16].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        head[16..24].copy_from_slice(&self.sequence.0.to_le_bytes());
        head[24..32].copy_from_slice(&stamp.to_le_bytes());
        head[32..40].copy_from_slice(&durable.to_le_bytes());
        head[40..44].copy_from_slice(&described_crc.to_le_bytes());
        head[44..48].copy_from_slice(&value_crc.to_le_bytes());
        let crc = crc32c(&head[..52]);
        head[52..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The verified head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) sequence: Sequence,
    pub(crate) durable: u64,
    pub(crate) key_bytes: u32,
    pub(crate) entry_bytes: u32,
    pub(crate) value_bytes: u32,
    described_crc: u32,
    value_crc: u32,
}

impl Head {
    /// The head at the start of `bytes`, if it was written to the file of `stamp`.
    pub(crate) fn decode(bytes: &[u8], stamp: u64) -> Result<Self, Damage> {
        let head = bytes.get(..HEAD_BYTES).ok_or(Damage::Short)?;
        if head[..4] != MAGIC {
            return Err(Damage::Magic);
        }
        let (body, crc) = head.split_at(52);
        if crc != crc32c(body).to_le_bytes() {
            return Err(Damage::Checksum);
        }
        let mut fields = Fields(&body[4..]);
        let kind = match fields.u8()? {
            1 => Kind::Put,
            2 => Kind::Delete,
            3 => Kind::Forget,
            _ => return Err(Damage::Field("kind")),
        };
        let padding = fields.u8()?;
        let (key_bytes, entry_bytes, value_bytes) = (fields.u16()?.into(), fields.u32()?, fields.u32()?);
        let (sequence, found, durable) = (Sequence(fields.u64()?), fields.u64()?, fields.u64()?);
        let (described_crc, value_crc) = (fields.u32()?, fields.u32()?);
        if padding != 0 || fields.u32()? != 0 {
            return Err(Damage::Field("padding"));
        }
        if key_bytes as usize > KEY_BYTES_MAX {
            return Err(Damage::Field("key length"));
        }
        if found != stamp {
            return Err(Damage::Elsewhere);
        }
        Ok(Self { kind, sequence, durable, key_bytes, entry_bytes, value_bytes, described_crc, value_crc })
    }

    /// Bytes of the whole record.
    pub(crate) fn bytes(&self) -> usize {
        aligned(HEAD_BYTES + self.key_bytes as usize + self.entry_bytes as usize + self.value_bytes as usize)
    }

    /// The CRC-32C of the value.
    pub(crate) fn value_crc(&self) -> u32 {
        self.value_crc
    }

    /// The key of a record whose value may be damaged.
    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], Damage> {
        let mut rest = Fields(bytes.get(HEAD_BYTES..).ok_or(Damage::Short)?);
        let described = rest.take(self.key_bytes as usize + self.entry_bytes as usize)?;
        if crc32c(described) != self.described_crc {
            return Err(Damage::Checksum);
        }
        Ok(&described[..self.key_bytes as usize])
    }

    /// The record at the start of `bytes`, whose head this is.
    pub(crate) fn record<'a>(&self, bytes: &'a [u8]) -> Result<Record<'a>, Damage> {
        self.key(bytes)?;
        let record = self.verified(bytes)?;
        if crc32c(record.value) != self.value_crc {
            return Err(Damage::Checksum);
        }
        Ok(record)
    }

    /// The same record again, after its checksums were compared.
    pub(crate) fn verified<'a>(&self, bytes: &'a [u8]) -> Result<Record<'a>, Damage> {
        let mut rest = Fields(bytes.get(HEAD_BYTES..self.bytes()).ok_or(Damage::Short)?);
        let (key, entry) = (rest.take(self.key_bytes as usize)?, rest.take(self.entry_bytes as usize)?);
        let value = rest.take(self.value_bytes as usize)?;
        rest.end()?;
        Ok(Record { kind: self.kind, sequence: self.sequence, key, entry, value })
    }
}

/// The record at the start of `bytes`, and its head.
pub(crate) fn decode(bytes: &[u8], stamp: u64) -> Result<(Head, Record<'_>), Damage> {
    let head = Head::decode(bytes, stamp)?;
    Ok((head, head.record(bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Rng;

    fn encoded(rng: &mut Rng) -> Vec<u8> {
        let mut some = |most| (0..rng.below(most)).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
        let (key, entry, value) = (some(40), some(60), some(300));
        let record = Record { kind: Kind::Put, sequence: Sequence(77), key: &key, entry: &entry, value: &value };
        let mut out = Vec::new();
        record.encode(5, 4096, crc32c(&value), &mut out);
        assert_eq!(decode(&out, 5).map(|(_, found)| found), Ok(record));
        out
    }

    #[test]
    fn a_record_comes_back_and_belongs_to_one_file() {
        let out = encoded(&mut Rng::for_thing(1, 0));
        assert_eq!(out.len() % 8, 0);
        assert_eq!(decode(&out, 6), Err(Damage::Elsewhere));
    }

    #[test]
    fn no_changed_byte_and_no_cut_goes_unnoticed() {
        let mut rng = Rng::for_thing(2, 0);
        for _ in 0..200 {
            let out = encoded(&mut rng);
            for at in 0..out.len() {
                let mut damaged = out.clone();
                damaged[at] ^= 1 << rng.below(8);
                assert!(decode(&damaged, 5).is_err(), "byte {at} of {}", out.len());
                assert!(decode(&out[..at], 5).is_err());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic() {
        let mut rng = Rng::for_thing(3, 0);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect();
            if bytes.len() >= HEAD_BYTES {
                // A head that passes its checksum, with impossible fields.
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4] = rng.below(5) as u8;
                let crc = crc32c(&bytes[..52]);
                bytes[52..56].copy_from_slice(&crc.to_le_bytes());
            }
            assert!(decode(&bytes, 5).is_err());
        }
    }
}
