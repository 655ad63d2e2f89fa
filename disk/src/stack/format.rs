//! The bytes of a stripe stack: the layout, and the encoding of headers, checksum pages and footers.
//!
//! `docs/format/drives.md` draws it. In short:
//!
//! ```text
//! header | fragments of run 0 | checksum page 0 | fragments of run 1 | checksum page 1 | ... | footer
//! ```
//!
//! Invariants: everything starts at a multiple of 4 KiB; all lengths follow only from the code and the payload's
//! length; every checksum covers the identity of the bytes that it protects, so bytes in the wrong place are as bad as
//! wrong bytes.

use crate::format::{BLOCK_BYTES, BlockDecoder, BlockEncoder, FormatError, crc32c_digest};
use crate::label::RackUuid;
use crate::{FileName, REQUEST_FRAGMENTS_BYTES};
use model::{BlobId, ClassId, Code, DriveId, GroupId};

/// Fragments whose checksums share a page.
pub const RUN_STRIPES: u64 = 960;

const HEADER_MAGIC: [u8; 8] = *b"LARDSTCK";
const PAGE_MAGIC: [u8; 8] = *b"LARDSUMS";
const FOOTER_MAGIC: [u8; 8] = *b"LARDFOOT";
/// Offset of the checksums in their page.
const SUMS_OFFSET: usize = 64;
const BLOCK: u64 = BLOCK_BYTES as u64;

const _: () = assert!(SUMS_OFFSET + RUN_STRIPES as usize * 4 <= BLOCK_BYTES - 4, "a page holds a run's checksums");

/// A blob: everything that determines its stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The rack it belongs to.
    pub rack: RackUuid,
    /// Its number, unique in the rack and never reused.
    pub id: BlobId,
    /// The code it is written in.
    pub code: Code,
    /// Its payload's length. At least 1.
    pub payload_bytes: u64,
}

/// The exact length of each stack of a payload, in bytes. `payload_bytes` must be above 0.
pub fn stack_bytes(code: Code, payload_bytes: u64) -> u64 {
    Shape::new(code, payload_bytes).stack_bytes()
}

/// The name of the stack with index `index` of blob `id`.
pub fn stack_name(id: BlobId, index: u8) -> FileName {
    let name = format!("{:016x}-{:016x}.{index:03}.stack", id.number, id.nonce);
    FileName::new(name).expect("hexadecimal digits make a file name")
}

/// The blob and index of the stack called `name`, if it is the name of a stack.
pub fn stack_of(name: &FileName) -> Option<(BlobId, u8)> {
    let (blob, index) = name.as_str().strip_suffix(".stack")?.split_once('.')?;
    let (number, nonce) = blob.split_once('-')?;
    let blob = BlobId::new(u64::from_str_radix(number, 16).ok()?, u64::from_str_radix(nonce, 16).ok()?);
    let index = index.parse().ok()?;
    (stack_name(blob, index) == *name).then_some((blob, index))
}

/// The name under which stack `index` of blob `id` is regenerated beside the stack that it will replace.
pub fn spare_name(id: BlobId, index: u8) -> FileName {
    let name = format!("{:016x}-{:016x}.{index:03}.spare", id.number, id.nonce);
    FileName::new(name).expect("hexadecimal digits make a file name")
}

/// The blob and index of the stack that is regenerated under `name`, if it is the name of a spare.
pub fn spare_of(name: &FileName) -> Option<(BlobId, u8)> {
    let stem = name.as_str().strip_suffix(".spare")?;
    stack_of(&FileName::new(format!("{stem}.stack"))?)
}

/// The layout of the stacks of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    code: Code,
    payload_bytes: u64,
}

/// Stripes that are moved together: one request to each drive. Never across the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripeBatch {
    pub(crate) first: u64,
    pub(crate) stripes: u64,
}

impl Shape {
    pub(crate) fn new(code: Code, payload_bytes: u64) -> Self {
        assert!(payload_bytes > 0, "a blob has at least one byte");
        assert!(code.data >= 1 && code.fragment_bytes >= 4096 && code.fragment_bytes.is_multiple_of(4096));
        Self { code, payload_bytes }
    }

    /// Stripes of the blob; all but the last are full.
    pub(crate) fn stripes(&self) -> u64 {
        self.payload_bytes.div_ceil(self.code.stripe_bytes())
    }

    pub(crate) fn runs(&self) -> u64 {
        self.stripes().div_ceil(RUN_STRIPES)
    }

    /// Bytes of each fragment of `stripe`. Those of the last stripe are as short as possible for k of them to hold the
    /// rest of the payload in whole blocks of 4 KiB.
    pub(crate) fn fragment_bytes(&self, stripe: u64) -> usize {
        assert!(stripe < self.stripes(), "the blob has no such stripe");
        if stripe + 1 < self.stripes() {
            return self.code.fragment_bytes as usize;
        }
        let rest = self.payload_bytes - stripe * self.code.stripe_bytes();
        rest.div_ceil(u64::from(self.code.data)).next_multiple_of(BLOCK) as usize
    }

    /// Offset of the fragment of `stripe` in its stack.
    pub(crate) fn fragment_offset(&self, stripe: u64) -> u64 {
        assert!(stripe < self.stripes(), "the blob has no such stripe");
        BLOCK + stripe * u64::from(self.code.fragment_bytes) + stripe / RUN_STRIPES * BLOCK
    }

    /// The stripe after the last one of `run`.
    pub(crate) fn run_end(&self, run: u64) -> u64 {
        ((run + 1) * RUN_STRIPES).min(self.stripes())
    }

    /// Offset of the checksum page of `run`.
    pub(crate) fn page_offset(&self, run: u64) -> u64 {
        let last = self.run_end(run) - 1;
        self.fragment_offset(last) + self.fragment_bytes(last) as u64
    }

    pub(crate) fn footer_offset(&self) -> u64 {
        self.page_offset(self.runs() - 1) + BLOCK
    }

    pub(crate) fn stack_bytes(&self) -> u64 {
        self.footer_offset() + BLOCK
    }

    /// Maximum number of stripes in one request.
    pub(crate) fn batch_stripes(&self) -> u64 {
        (REQUEST_FRAGMENTS_BYTES / u64::from(self.code.fragment_bytes)).max(1)
    }

    /// Bytes of fragments in the longest request.
    pub(crate) fn batch_bytes(&self) -> usize {
        let stripes = self.batch_stripes().min(self.stripes());
        if stripes == self.stripes() { self.len(StripeBatch { first: 0, stripes }) } else { self.full(stripes) }
    }

    fn full(&self, stripes: u64) -> usize {
        stripes as usize * self.code.fragment_bytes as usize
    }

    /// The batch from stripe `first` up to `end`, the end of its run, or the maximum size.
    pub(crate) fn batch(&self, first: u64, end: u64) -> StripeBatch {
        let end = end.min(self.run_end(first / RUN_STRIPES)).min(first + self.batch_stripes());
        assert!(first < end, "a batch has at least one stripe");
        StripeBatch { first, stripes: end - first }
    }

    /// Bytes of a batch on each drive.
    pub(crate) fn len(&self, batch: StripeBatch) -> usize {
        self.full(batch.stripes - 1) + self.fragment_bytes(batch.first + batch.stripes - 1)
    }

    /// The place of the fragment of `stripe` in a batch's buffer.
    pub(crate) fn within(&self, batch: StripeBatch, stripe: u64) -> std::ops::Range<usize> {
        assert!(batch.first <= stripe && stripe < batch.end(), "the stripe is one of the batch");
        let start = self.full(stripe - batch.first);
        start..start + self.fragment_bytes(stripe)
    }

    /// Payload bytes of `stripe`, as offsets into the payload.
    pub(crate) fn payload_of(&self, stripe: u64) -> std::ops::Range<u64> {
        let start = stripe * self.code.stripe_bytes();
        start..(start + self.code.stripe_bytes()).min(self.payload_bytes)
    }
}

impl StripeBatch {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.stripes
    }

    pub(crate) fn run(&self) -> u64 {
        self.first / RUN_STRIPES
    }
}

/// A blob's id as stored in every block and checksum: number, then nonce.
fn id_bytes(id: BlobId) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&id.number.to_le_bytes());
    bytes[8..].copy_from_slice(&id.nonce.to_le_bytes());
    bytes
}

/// The checksum of a fragment, which also covers the fragment's identity.
pub(crate) fn fragment_sum(blob: &Blob, index: u8, stripe: u64, fragment: &[u8]) -> u32 {
    let mut identity = [0; 41];
    identity[..16].copy_from_slice(&blob.rack.0);
    identity[16..32].copy_from_slice(&id_bytes(blob.id));
    identity[32..40].copy_from_slice(&stripe.to_le_bytes());
    identity[40] = index;
    let mut digest = crc32c_digest();
    digest.update(&identity);
    digest.update(fragment);
    digest.finalize() as u32
}

/// The origin of a blob, as recorded in its stacks for a recovery without the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The catalog's commit sequence number at the start of the blob: everything with a higher number is newer.
    pub sequence: u64,
    /// The run of the server that wrote the blob, by its random number; 0 if unknown.
    pub run: u64,
    /// Time at which the blob was started, in milliseconds of the Unix epoch.
    pub written_ms: u64,
    /// The group it was written to.
    pub group: GroupId,
    /// The class of that group.
    pub class: ClassId,
}

/// The first block of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The blob it is a stack of.
    pub blob: Blob,
    /// The index among the blob's stacks: below k for data, from k for parity.
    pub index: u8,
    /// The origin of the blob.
    pub provenance: Provenance,
    /// The drive of each of the blob's k + r stacks at the time of writing, in stack order.
    pub drives: Vec<DriveId>,
}

impl Header {
    /// Writes the header into `block`, which must have [`BLOCK_BYTES`] bytes.
    pub fn encode(&self, block: &mut [u8]) {
        let (blob, code, from) = (&self.blob, self.blob.code, &self.provenance);
        assert_eq!(self.drives.len(), code.stacks(), "every stack has its drive");
        assert!(usize::from(self.index) < code.stacks(), "the index is one of the code's stacks");
        let mut writer = BlockEncoder::new(block, HEADER_MAGIC);
        writer.put(&[self.index, code.data, code.parity, 0]);
        writer.put(&blob.rack.0);
        writer.put(&id_bytes(blob.id));
        writer.put(&blob.payload_bytes.to_le_bytes());
        writer.put(&Shape::new(code, blob.payload_bytes).stripes().to_le_bytes());
        writer.put(&code.fragment_bytes.to_le_bytes());
        writer.put(&from.group.0.to_le_bytes());
        writer.put(&from.class.0.to_le_bytes());
        writer.put(&[0; 4]);
        writer.put(&from.sequence.to_le_bytes());
        writer.put(&from.written_ms.to_le_bytes());
        writer.put(&from.run.to_le_bytes());
        for drive in &self.drives {
            writer.put(&drive.0.to_le_bytes());
        }
        writer.seal();
    }

    /// The header in `block`.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut reader = BlockDecoder::open(block, HEADER_MAGIC, "header of a stack")?;
        let [index, data, parity, reserved] = reader.take();
        let rack = RackUuid(reader.take());
        let id = BlobId::new(reader.u64(), reader.u64());
        let payload_bytes = reader.u64();
        let stripes = reader.u64();
        let code = Code { data, parity, fragment_bytes: reader.u32() };
        let (group, class) = (GroupId(reader.u32()), ClassId(reader.u32()));
        check(reserved == 0 && reader.u32() == 0, "reserved bytes")?;
        let (sequence, written_ms, run) = (reader.u64(), reader.u64(), reader.u64());
        let provenance = Provenance { sequence, run, written_ms, group, class };
        let blob = Blob { rack, id, code, payload_bytes };
        check_blob(&blob, index)?;
        check(Shape::new(code, payload_bytes).stripes() == stripes, "number of stripes")?;
        let drives = (0..code.stacks()).map(|_| DriveId(reader.u32())).collect();
        reader.finish()?;
        Ok(Self { blob, index, provenance, drives })
    }
}

/// The last block of a stack, written after everything before it is on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The blob, as in the header.
    pub blob: Blob,
    /// The stack's index, as in the header.
    pub index: u8,
    /// CRC-64/NVME of the payload.
    pub payload_crc64: u64,
    /// The checksum of the header that this footer was written with.
    pub header_crc: u32,
}

impl Footer {
    /// Writes the footer into `block`, which must have [`BLOCK_BYTES`] bytes.
    pub fn encode(&self, block: &mut [u8]) {
        let Blob { rack, id, code, payload_bytes } = self.blob;
        assert!(usize::from(self.index) < code.stacks(), "the index is one of the code's stacks");
        let mut writer = BlockEncoder::new(block, FOOTER_MAGIC);
        writer.put(&[self.index, code.data, code.parity, 0]);
        writer.put(&rack.0);
        writer.put(&id_bytes(id));
        writer.put(&payload_bytes.to_le_bytes());
        writer.put(&self.payload_crc64.to_le_bytes());
        writer.put(&code.fragment_bytes.to_le_bytes());
        writer.put(&self.header_crc.to_le_bytes());
        writer.seal();
    }

    /// The footer in `block`.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut reader = BlockDecoder::open(block, FOOTER_MAGIC, "footer of a stack")?;
        let [index, data, parity, reserved] = reader.take();
        check(reserved == 0, "reserved byte")?;
        let rack = RackUuid(reader.take());
        let id = BlobId::new(reader.u64(), reader.u64());
        let (payload_bytes, payload_crc64) = (reader.u64(), reader.u64());
        let code = Code { data, parity, fragment_bytes: reader.u32() };
        let blob = Blob { rack, id, code, payload_bytes };
        check_blob(&blob, index)?;
        let footer = Self { blob, index, payload_crc64, header_crc: reader.u32() };
        reader.finish()?;
        Ok(footer)
    }
}

/// Checks that a blob of this kind, and this stack of it, can exist.
fn check_blob(blob: &Blob, index: u8) -> Result<(), FormatError> {
    let code = blob.code;
    check(code.data >= 1 && code.stacks() <= 255, "code")?;
    check(usize::from(index) < code.stacks(), "index")?;
    check(code.fragment_bytes >= 4096 && code.fragment_bytes.is_multiple_of(4096), "fragment length")?;
    // Far above the capacity of any drive, and low enough for all lengths that follow from it.
    check((1..1 << 56).contains(&blob.payload_bytes), "payload length")
}

/// The checksums of one run of fragments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumPage {
    /// The rack, as in the header.
    pub rack: RackUuid,
    /// The blob, as in the header.
    pub id: BlobId,
    /// The stack's index, as in the header.
    pub index: u8,
    /// The run's first stripe, a multiple of [`RUN_STRIPES`].
    pub first_stripe: u64,
    /// The checksum of the stack's header.
    pub header_crc: u32,
    /// The checksum of each fragment of the run: 1 to [`RUN_STRIPES`].
    pub sums: Vec<u32>,
}

impl ChecksumPage {
    /// Writes the page into `block`, which must have [`BLOCK_BYTES`] bytes.
    pub fn encode(&self, block: &mut [u8]) {
        assert!((1..=RUN_STRIPES).contains(&(self.sums.len() as u64)), "a page has the checksums of a run");
        assert!(self.first_stripe.is_multiple_of(RUN_STRIPES), "a run begins at a multiple of its length");
        let mut writer = BlockEncoder::new(block, PAGE_MAGIC);
        writer.put(&[self.index, 0, 0, 0]);
        writer.put(&self.rack.0);
        writer.put(&id_bytes(self.id));
        writer.put(&self.first_stripe.to_le_bytes());
        writer.put(&(self.sums.len() as u32).to_le_bytes());
        writer.put(&self.header_crc.to_le_bytes());
        writer.skip_to(SUMS_OFFSET);
        for sum in &self.sums {
            writer.put(&sum.to_le_bytes());
        }
        writer.seal();
    }

    /// The page in `block`.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut reader = BlockDecoder::open(block, PAGE_MAGIC, "checksum page")?;
        let index = reader.u8();
        reader.zeros_to(16)?;
        let rack = RackUuid(reader.take());
        let id = BlobId::new(reader.u64(), reader.u64());
        let first_stripe = reader.u64();
        let (count, header_crc) = (reader.u32(), reader.u32());
        check(first_stripe.is_multiple_of(RUN_STRIPES), "first stripe")?;
        check((1..=RUN_STRIPES).contains(&u64::from(count)), "number of checksums")?;
        reader.zeros_to(SUMS_OFFSET)?;
        let sums = (0..count).map(|_| reader.u32()).collect();
        reader.finish()?;
        Ok(Self { rack, id, index, first_stripe, header_crc, sums })
    }
}

fn check(holds: bool, field: &'static str) -> Result<(), FormatError> {
    if holds { Ok(()) } else { Err(FormatError::Field(field)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const PELICAN: Code = Code { data: 15, parity: 3, fragment_bytes: 128 << 10 };

    #[test]
    fn a_gigabyte_has_the_stacks_that_the_documentation_computes() {
        // 509 stripes, the last of 1,274,880 bytes in fragments of 86,016; header, page and footer.
        let shape = Shape::new(PELICAN, 1_000_000_000);
        assert_eq!(shape.stripes(), 509);
        assert_eq!(shape.fragment_bytes(508), 86_016);
        assert_eq!(stack_bytes(PELICAN, 1_000_000_000), 3 * 4096 + 508 * 131_072 + 86_016);
        assert_eq!(stack_bytes(PELICAN, 1), 4 * 4096);
    }

    #[test]
    fn stacks_are_named_by_blob_and_index() {
        let spare = spare_name(BlobId::new(0xbeef, 0xf00d), 7);
        assert_eq!(spare.as_str(), "000000000000beef-000000000000f00d.007.spare");
        assert_eq!((spare_of(&spare), stack_of(&spare)), (Some((BlobId::new(0xbeef, 0xf00d), 7)), None));
        let name = stack_name(BlobId::new(0xbeef, 0xf00d), 7);
        assert_eq!(spare_of(&name), None);
        assert_eq!(name.as_str(), "000000000000beef-000000000000f00d.007.stack");
        assert_eq!(stack_of(&name), Some((BlobId::new(0xbeef, 0xf00d), 7)));
        for stranger in [
            "larder.label",
            "beef-f00d.007.stack",
            "000000000000beef.007.stack",
            "000000000000beef-000000000000f00d.7.stack",
            "000000000000beef-000000000000f00d.256.stack",
        ] {
            assert_eq!(stack_of(&FileName::new(stranger).unwrap()), None, "{stranger}");
        }
    }

    proptest! {
        #[test]
        fn everything_follows_without_gap_or_overlap(
            k in 1_u8..20, fragment in 1_u32..6, payload in 1_u64..200_000_000
        ) {
            let shape = Shape::new(Code { data: k, parity: 2, fragment_bytes: fragment * 4096 }, payload);
            let (mut at, mut paid, mut stripe) = (4096, 0, 0);
            while stripe < shape.stripes() {
                let batch = shape.batch(stripe, shape.stripes());
                prop_assert_eq!(shape.fragment_offset(stripe), at);
                prop_assert!(shape.len(batch) <= shape.batch_bytes());
                for stripe in batch.first..batch.end() {
                    let range = shape.within(batch, stripe);
                    prop_assert_eq!(at + range.start as u64, shape.fragment_offset(stripe));
                    prop_assert_eq!(shape.payload_of(stripe).start, paid);
                    paid = shape.payload_of(stripe).end;
                    prop_assert!(paid - shape.payload_of(stripe).start <= u64::from(k) * range.len() as u64);
                }
                at += shape.len(batch) as u64;
                stripe = batch.end();
                if stripe == shape.run_end(batch.run()) {
                    prop_assert_eq!(shape.page_offset(batch.run()), at);
                    at += 4096;
                }
            }
            prop_assert_eq!((paid, at), (payload, shape.footer_offset()));
            prop_assert_eq!(at + 4096, shape.stack_bytes());
        }
    }
}
