//! Drives that store nothing and hold every stack of every blob: the bytes are a function of the blob's id.
//!
//! For racks in virtual time that hold far more than memory does. Headers, checksum pages and footers are those of the
//! format, computed when they are read; the payload is computed from blob id and offset ([`synthetic_payload`]), so its
//! receiver can check it without a copy. A [`Drive::pass`] computes nothing at all.
//!
//! Invariants: the same bytes for every read of the same place; nothing can be written, and no file is listed.

use super::format::{Blob, ChecksumPage, Footer, Header, Provenance, RUN_STRIPES, Shape, fragment_sum, stack_of};
use crate::code::Codec;
use crate::format::{BLOCK_BYTES, seal_of};
use crate::label::RackUuid;
use crate::{Buffer, Drive, DriveError, FileName, Space};
use async_trait::async_trait;
use crc_fast::{CrcAlgorithm, Digest};
use model::{BlobId, ClassId, Code, DriveId, GroupId, Rng};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

/// Payload bytes that are computed from one draw.
const WORD_BYTES: u64 = 8;
/// Stripes whose parity is stored: more than all concurrent reads use at once.
const PARITY_STRIPES: usize = 64;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Fills `into` with the payload of blob `id` from `offset` on, a multiple of 8 bytes.
pub fn synthetic_payload(id: BlobId, offset: u64, into: &mut [u8]) {
    assert!(offset.is_multiple_of(WORD_BYTES), "payload is made word by word");
    let base = Rng::for_thing(id.number, id.nonce).next_u64();
    for (word, bytes) in (offset / WORD_BYTES..).zip(into.chunks_mut(WORD_BYTES as usize)) {
        let mixed = (base ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = mixed ^ (mixed >> 29);
        bytes.copy_from_slice(&mixed.to_le_bytes()[..bytes.len()]);
    }
}

/// The content of a rack's synthetic drives: blobs of one length, computed once.
pub struct SyntheticBlobs {
    rack: RackUuid,
    code: Code,
    payload_bytes: u64,
    codec: Codec,
    /// The checksums of blobs that were read.
    checksums: Mutex<BTreeMap<BlobId, Arc<Checksums>>>,
    /// The parity fragments of the most recently read stripes: each drive reads one of them.
    parity: Mutex<VecDeque<Parity>>,
}

/// A stripe of a blob, and its parity fragments.
type Parity = ((BlobId, u64), Arc<Fragments>);
/// Fragments of one stripe.
type Fragments = Vec<Vec<u8>>;

/// The checksums of a blob.
struct Checksums {
    payload_crc64: u64,
    /// By stack, the checksums of its fragments.
    of_stack: Vec<Vec<u32>>,
}

impl SyntheticBlobs {
    /// Blobs of `payload_bytes` bytes each, which must be above 0, of the rack `rack` in this code.
    pub fn new(rack: RackUuid, code: Code, payload_bytes: u64) -> Arc<Self> {
        assert!(payload_bytes > 0, "a blob has at least one byte");
        let (checksums, parity) = (Mutex::default(), Mutex::default());
        Arc::new(Self { rack, code, payload_bytes, codec: Codec::new(code), checksums, parity })
    }

    fn blob(&self, id: BlobId) -> Blob {
        Blob { rack: self.rack, id, code: self.code, payload_bytes: self.payload_bytes }
    }

    fn shape(&self) -> Shape {
        Shape::new(self.code, self.payload_bytes)
    }

    /// The data fragment `index` of `stripe`: its payload, and zeros after the payload's end.
    fn data_fragment(&self, id: BlobId, index: u8, stripe: u64) -> Vec<u8> {
        let (shape, payload) = (self.shape(), self.shape().payload_of(stripe));
        let mut fragment = vec![0; shape.fragment_bytes(stripe)];
        let start = payload.start + u64::from(index) * fragment.len() as u64;
        let filled = payload.end.saturating_sub(start).min(fragment.len() as u64);
        if filled > 0 {
            synthetic_payload(id, start, &mut fragment[..filled as usize]);
        }
        fragment
    }

    fn data(&self, id: BlobId, stripe: u64) -> Fragments {
        (0..self.code.data).map(|index| self.data_fragment(id, index, stripe)).collect()
    }

    fn parity_of(&self, data: &Fragments) -> Fragments {
        let mut parity = vec![vec![0; data[0].len()]; usize::from(self.code.parity)];
        let data: Vec<&[u8]> = data.iter().map(|fragment| &fragment[..]).collect();
        self.codec.encode(&data, &mut parity.iter_mut().map(|fragment| &mut fragment[..]).collect::<Vec<_>>());
        parity
    }

    fn fragment(&self, id: BlobId, index: u8, stripe: u64) -> Vec<u8> {
        if index < self.code.data {
            return self.data_fragment(id, index, stripe);
        }
        let mut made = self.parity.lock();
        let known = made.iter().find(|(of, _)| *of == (id, stripe)).map(|(_, parity)| Arc::clone(parity));
        let parity = known.unwrap_or_else(|| {
            let parity = Arc::new(self.parity_of(&self.data(id, stripe)));
            made.push_back(((id, stripe), Arc::clone(&parity)));
            let excess = made.len().saturating_sub(PARITY_STRIPES);
            made.drain(..excess);
            parity
        });
        parity[usize::from(index - self.code.data)].clone()
    }

    fn header(&self, id: BlobId, index: u8) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        let provenance = Provenance { sequence: 0, run: 0, written_ms: 0, group: GroupId(0), class: ClassId(0) };
        let drives = vec![DriveId(0); self.code.stacks()];
        Header { blob: self.blob(id), index, provenance, drives }.encode(&mut block);
        block
    }

    fn page(&self, id: BlobId, index: u8, run: u64) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        let first_stripe = run * RUN_STRIPES;
        let stripes = first_stripe as usize..self.shape().run_end(run) as usize;
        let sums = self.checksums(id).of_stack[usize::from(index)][stripes].to_vec();
        let header_crc = seal_of(&self.header(id, index));
        ChecksumPage { rack: self.rack, id, index, first_stripe, header_crc, sums }.encode(&mut block);
        block
    }

    fn footer(&self, id: BlobId, index: u8) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        let (payload_crc64, header_crc) = (self.checksums(id).payload_crc64, seal_of(&self.header(id, index)));
        Footer { blob: self.blob(id), index, payload_crc64, header_crc }.encode(&mut block);
        block
    }

    fn checksums(&self, id: BlobId) -> Arc<Checksums> {
        let mut known = self.checksums.lock();
        Arc::clone(known.entry(id).or_insert_with(|| Arc::new(self.compute_checksums(id))))
    }

    fn compute_checksums(&self, id: BlobId) -> Checksums {
        let (blob, shape) = (self.blob(id), self.shape());
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut of_stack = vec![Vec::new(); self.code.stacks()];
        for stripe in 0..shape.stripes() {
            let mut fragments = self.data(id, stripe);
            let payload = shape.payload_of(stripe);
            let mut left = (payload.end - payload.start) as usize;
            for fragment in &fragments {
                digest.update(&fragment[..left.min(fragment.len())]);
                left = left.saturating_sub(fragment.len());
            }
            fragments.extend(self.parity_of(&fragments));
            for (index, (fragment, sums)) in fragments.iter().zip(&mut of_stack).enumerate() {
                sums.push(fragment_sum(&blob, index as u8, stripe, fragment));
            }
        }
        Checksums { payload_crc64: digest.finalize(), of_stack }
    }

    /// The piece of a stack from `at` to the end of its block or fragment.
    fn piece(&self, (id, index): (BlobId, u8), at: u64) -> Vec<u8> {
        let shape = self.shape();
        let run = (0..shape.runs()).find(|run| at <= shape.page_offset(*run));
        let (block, start) = match run {
            None => (self.footer(id, index), shape.footer_offset()),
            _ if at < BLOCK => (self.header(id, index), 0),
            Some(run) if at == shape.page_offset(run) => (self.page(id, index, run), at),
            Some(run) => {
                let in_run = at - shape.fragment_offset(run * RUN_STRIPES);
                let stripe = run * RUN_STRIPES + in_run / u64::from(self.code.fragment_bytes);
                (self.fragment(id, index, stripe), shape.fragment_offset(stripe))
            }
        };
        block[(at - start) as usize..].to_vec()
    }

    fn read(&self, name: &FileName, offset: u64, into: &mut [u8]) -> Result<(), DriveError> {
        let stack = self.stack(name)?;
        if offset + into.len() as u64 > self.shape().stack_bytes() {
            return Err(DriveError::Short(name.clone()));
        }
        let mut filled = 0;
        while filled < into.len() {
            let piece = self.piece(stack, offset + filled as u64);
            let taken = piece.len().min(into.len() - filled);
            into[filled..filled + taken].copy_from_slice(&piece[..taken]);
            filled += taken;
        }
        Ok(())
    }

    fn stack(&self, name: &FileName) -> Result<(BlobId, u8), DriveError> {
        let stack = stack_of(name).filter(|(_, index)| usize::from(*index) < self.code.stacks());
        stack.ok_or_else(|| DriveError::NotFound(name.clone()))
    }
}

/// A drive of [`SyntheticBlobs`]. All drives of a rack have the same content.
pub struct SyntheticDrive {
    blobs: Arc<SyntheticBlobs>,
    capacity_bytes: u64,
}

impl SyntheticDrive {
    /// A drive of this capacity, which `blobs` do not take up.
    pub fn new(blobs: &Arc<SyntheticBlobs>, capacity_bytes: u64) -> Self {
        Self { blobs: Arc::clone(blobs), capacity_bytes }
    }

    fn room(&self) -> Space {
        Space { capacity_bytes: self.capacity_bytes, free_bytes: self.capacity_bytes }
    }
}

fn read_only<T>(what: &str) -> Result<T, DriveError> {
    let source = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
    Err(DriveError::Io { context: format!("{what} on a synthetic drive"), source })
}

#[async_trait]
impl Drive for SyntheticDrive {
    async fn create(&self, _: &FileName, _: u64) -> Result<(), DriveError> {
        read_only("making a file")
    }

    async fn write_at(&self, _: &FileName, _: u64, _: Buffer) -> Result<Buffer, DriveError> {
        read_only("writing")
    }

    async fn read_at(&self, name: &FileName, offset: u64, mut into: Buffer) -> Result<Buffer, DriveError> {
        self.blobs.read(name, offset, &mut into)?;
        Ok(into)
    }

    async fn pass(&self, name: &FileName, offset: u64, bytes: u64) -> Result<(), DriveError> {
        self.blobs.stack(name)?;
        let fits = offset + bytes <= self.blobs.shape().stack_bytes();
        if fits { Ok(()) } else { Err(DriveError::Short(name.clone())) }
    }

    async fn sync(&self, _: &FileName) -> Result<(), DriveError> {
        read_only("syncing")
    }

    async fn remove(&self, _: &FileName) -> Result<(), DriveError> {
        read_only("removing a file")
    }

    async fn replace(&self, _: &FileName, _: &FileName) -> Result<(), DriveError> {
        read_only("replacing a file")
    }

    async fn len(&self, name: &FileName) -> Result<u64, DriveError> {
        self.blobs.stack(name).map(|_| self.blobs.shape().stack_bytes())
    }

    async fn list(&self) -> Result<Vec<FileName>, DriveError> {
        Ok(Vec::new())
    }

    async fn space(&self) -> Result<Space, DriveError> {
        Ok(self.room())
    }

    async fn spin_up(&self) -> Result<(), DriveError> {
        Ok(())
    }

    async fn mount(&self) -> Result<Space, DriveError> {
        Ok(self.room())
    }

    async fn unmount(&self) -> Result<(), DriveError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), DriveError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Policy, StackOutcome, StackReader};
    use super::*;

    const CODE: Code = Code { data: 4, parity: 2, fragment_bytes: 4096 };
    /// Two runs, and a last stripe that is not full.
    const BYTES: u64 = (RUN_STRIPES + 3) * 4 * 4096 + 5_000;

    fn stacks(blobs: &Arc<SyntheticBlobs>, without: &[u8]) -> Vec<(u8, Arc<dyn Drive>)> {
        let drive = |index| (index, Arc::new(SyntheticDrive::new(blobs, 1 << 40)) as Arc<dyn Drive>);
        (0..6).filter(|index| !without.contains(index)).map(drive).collect()
    }

    async fn read(without: &[u8]) -> Vec<u8> {
        let blobs = SyntheticBlobs::new(RackUuid([3; 16]), CODE, BYTES);
        let blob = blobs.blob(BlobId::new(7, 9));
        let mut reader = StackReader::open(blob, stacks(&blobs, without), Policy::All).await.result.unwrap();
        let mut payload = Vec::new();
        reader.read(0..BYTES, &mut payload).await.unwrap();
        assert!(reader.outcomes().iter().all(|outcome| *outcome == StackOutcome::Fine));
        payload
    }

    #[tokio::test]
    async fn the_reader_finds_sound_stacks_of_the_payload_that_the_id_makes() {
        let mut expected = vec![0; BYTES as usize];
        synthetic_payload(BlobId::new(7, 9), 0, &mut expected);
        assert!(read(&[]).await == expected);
        assert!(read(&[0, 3]).await == expected, "parity rebuilds what is missing");
    }
}
