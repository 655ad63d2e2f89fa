//! Packs: the payload of a blob, made of staged files, or of bytes in memory.
//!
//! A payload is the members' bytes in the given order, then the index, then the footer, even for a single member.
//! [`PackPlan`] knows every offset before a byte is read, [`PackSource`] yields the bytes.
//!
//! Invariants: two sources of one plan yield the same bytes, so a write can be retried; every member is verified block
//! by block as it is read, and against its object's own checksum; a source holds two blocks and a few opened small
//! members, and nothing that grows with the payload except 8 bytes for each member. A held pack also holds the bytes
//! that it was given in memory ([`PackPlan::hold_with`]), beside the files of the same members.

use crate::block::BLOCK_BYTES;
use crate::checksum::{Checksummer, whole_checksum};
use crate::names::NamedSlot;
use crate::pack_format::{
    INDEX_HEADER_BYTES, MEMBER_CHECKSUM_BYTES, MemberAttributes, PACK_FOOTER_BYTES, PackFooter, encode_entry,
    encode_index_header,
};
use crate::slots::SlotHold;
use crate::staged_error::ReadError;
use crate::staged_file::StagedReader;
use crate::staging::Staging;
use bytes::Bytes;
use catalog::{Checksum, Object};
use crc_fast::{CrcAlgorithm, Digest};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesOrdered, Stream, StreamExt};
use std::sync::Arc;

/// The most members of a pack.
pub const MEMBERS_MAX: usize = 1 << 20;
/// The longest entry of an index: far above what S3 permits for a key, its metadata and the digests of 10,000 parts.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Pieces that are opened ahead, so that small ones do not wait for each other.
const OPEN_AHEAD: usize = 8;

/// A version that goes into a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackMember {
    /// The bucket it is in.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Its S3 record.
    pub object: Object,
    /// Its further entries in the index.
    pub attributes: MemberAttributes,
    /// The slots of its staged files, whose bytes follow one another: one, or one for each of the object's parts. Empty
    /// for a member in memory.
    pub slots: Vec<u64>,
}

/// The reason that a pack cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A pack without members, or with more than [`MEMBERS_MAX`].
    #[error("a pack cannot have {0} members")]
    Members(usize),
    /// A member's key and metadata are too long for an index.
    #[error("the key and metadata of slot {slot} take {bytes} bytes, and an index has no room for them")]
    EntryTooLong {
        /// The member's first slot; 0 if it is in memory.
        slot: u64,
        /// The length of its entry.
        bytes: usize,
    },
    /// The members are longer than any payload can be.
    #[error("the members together are too long")]
    TooLong,
    /// A member is missing: it was deleted or overwritten, and freed, before the pack was held.
    #[error("slot {slot} is no longer staged")]
    MemberGone {
        /// A slot of the member.
        slot: u64,
    },
    /// A member's staged file does not have the length in its record.
    #[error("slot {slot} holds {staged_bytes} bytes, and its record says {record_bytes}")]
    MemberLength {
        /// A slot of the member.
        slot: u64,
        /// The length of its staged file.
        staged_bytes: u64,
        /// The length in its record.
        record_bytes: u64,
    },
    /// A member's bytes are not those with which its object was acknowledged, though every block of them is as it was
    /// staged.
    #[error(
        "the bytes staged for s3://{bucket}/{key} do not have the object's own checksum, {} {}",
        .expected.kind.name(), .expected.base64
    )]
    MemberMismatch {
        /// The member's bucket.
        bucket: String,
        /// Its key.
        key: String,
        /// The number of its part in question, from 1 on; 0 for the whole member.
        part: u32,
        /// Its first slot, or that of the part.
        slot: u64,
        /// The checksum that it should have.
        expected: Checksum,
    },
    /// A member cannot be read.
    #[error(transparent)]
    Read(ReadError),
}

impl PackMember {
    /// The number of pieces that hold its bytes.
    fn pieces(&self) -> usize {
        self.slots.len().max(1)
    }

    /// The expected checksum of the whole member, or of the piece `piece` if the member as a whole has none.
    fn expected(&self, piece: Option<usize>) -> Option<&Checksum> {
        let whole = whole_checksum(&self.object);
        match piece {
            None => whole,
            Some(_) if whole.is_some() || self.attributes.parts.len() != self.slots.len() => None,
            Some(piece) => self.attributes.parts.get(piece).map(|part| &part.checksum),
        }
    }
}

impl PackError {
    /// The slot of a member that cannot be packed: its staged file is lost or damaged, or its index entry is too long.
    pub fn bad_slot(&self) -> Option<u64> {
        match self {
            Self::MemberGone { slot } | Self::MemberLength { slot, .. } | Self::MemberMismatch { slot, .. } => {
                Some(*slot)
            }
            Self::EntryTooLong { slot, .. } => Some(*slot).filter(|slot| *slot > 0),
            Self::Read(error) => error.slot(),
            Self::Members(_) | Self::TooLong => None,
        }
    }
}

impl From<ReadError> for PackError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotFound { slot } => Self::MemberGone { slot },
            other => Self::Read(other),
        }
    }
}

/// The layout of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackPlan {
    members: Vec<PackMember>,
    offsets: Vec<u64>,
    index_offset: u64,
    index_bytes: u64,
}

/// A pack whose members stay until this is dropped, even if they are freed: from composing until the blob is committed.
pub struct HeldPack {
    plan: PackPlan,
    /// The pieces of all members, in order.
    pieces: Vec<MemberPiece>,
}

/// The bytes of a staged version that was just read and verified: of each of its files, in chunks.
pub type CheckedBytes = Vec<Vec<Bytes>>;

/// A piece of a member.
enum MemberPiece {
    File(StagedPiece),
    /// A staged piece whose bytes are in memory, so it is not read again. Its file stays nevertheless.
    Checked(StagedPiece, Vec<Bytes>),
    Memory(Bytes),
}

impl MemberPiece {
    async fn open(&self) -> Result<BoxStream<'static, Result<Bytes, ReadError>>, PackError> {
        match self {
            Self::File(file) => {
                let reader = file.open().await?;
                Ok(reader.read(0..reader.bytes()))
            }
            Self::Checked(file, chunks) => {
                let bytes: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
                assert_eq!(bytes, file.bytes, "what is in memory is as long as its file");
                Ok(futures::stream::iter(chunks.clone().into_iter().map(Ok)).boxed())
            }
            Self::Memory(bytes) => Ok(blocks_of(bytes.clone()).boxed()),
        }
    }
}

/// `bytes` in blocks.
fn blocks_of(mut bytes: Bytes) -> impl Stream<Item = Result<Bytes, ReadError>> + Send {
    futures::stream::iter(std::iter::from_fn(move || {
        let block = bytes.split_to(BLOCK_BYTES.min(bytes.len()));
        (!block.is_empty()).then_some(Ok(block))
    }))
}

/// A staged file that stays, and the number of a member's bytes that it must hold.
struct StagedPiece {
    hold: SlotHold,
    bytes: u64,
    /// The version, the bucket and the key of its object.
    of: Arc<(u64, String, String)>,
}

impl StagedPiece {
    async fn open(&self) -> Result<StagedReader, PackError> {
        let (version, bucket, key) = &*self.of;
        let reader = self.hold.open().await?.of_version(*version, bucket, key)?;
        let (slot, staged_bytes, record_bytes) = (self.hold.slot(), reader.bytes(), self.bytes);
        if staged_bytes == record_bytes {
            return Ok(reader);
        }
        Err(PackError::MemberLength { slot, staged_bytes, record_bytes })
    }
}

impl HeldPack {
    /// Its plan.
    pub fn plan(&self) -> &PackPlan {
        &self.plan
    }

    /// Staged members in memory, and their bytes: these cost no read of the workshop.
    pub fn checked(&self) -> (u64, u64) {
        let mut pieces = self.pieces.iter();
        let mut checked = (0, 0);
        for member in &self.plan.members {
            let of_member: Vec<&MemberPiece> = pieces.by_ref().take(member.pieces()).collect();
            if of_member.iter().all(|piece| matches!(piece, MemberPiece::Checked(..))) {
                checked = (checked.0 + 1, checked.1 + member.object.bytes);
            }
        }
        checked
    }
}

impl PackPlan {
    /// A pack of `members`, in this order.
    pub fn new(members: Vec<PackMember>) -> Result<Self, PackError> {
        if members.is_empty() || members.len() > MEMBERS_MAX {
            return Err(PackError::Members(members.len()));
        }
        let mut offsets = Vec::with_capacity(members.len());
        let mut index_offset: u64 = 0;
        let mut index_bytes = INDEX_HEADER_BYTES as u64;
        for PackMember { bucket, key, object, attributes, slots } in &members {
            let bytes = encode_entry(bucket, key, index_offset, object, attributes).len();
            if bytes > ENTRY_BYTES_MAX {
                return Err(PackError::EntryTooLong { slot: slots.first().copied().unwrap_or(0), bytes });
            }
            index_bytes += (bytes + MEMBER_CHECKSUM_BYTES) as u64;
            offsets.push(index_offset);
            index_offset = index_offset.checked_add(object.bytes).ok_or(PackError::TooLong)?;
        }
        assert!(offsets.is_sorted(), "members follow one another");
        if index_offset > i64::MAX as u64 {
            return Err(PackError::TooLong);
        }
        Ok(Self { members, offsets, index_offset, index_bytes })
    }

    /// The length of the payload: members, index and footer.
    pub fn payload_bytes(&self) -> u64 {
        self.index_offset + self.index_bytes + PACK_FOOTER_BYTES as u64
    }

    /// The members, in order.
    pub fn members(&self) -> &[PackMember] {
        &self.members
    }

    /// The offset of each member in the payload, in the same order.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Holds the files of all members, so the pack can be yielded any number of times.
    pub fn hold(self, staging: &Staging) -> Result<HeldPack, PackError> {
        self.hold_with(staging, |_| None)
    }

    /// The same, with the bytes of those versions that `checked` has in memory; a piece that is not as long as its
    /// record says is read.
    pub fn hold_with(
        self,
        staging: &Staging,
        checked: impl Fn(u64) -> Option<CheckedBytes>,
    ) -> Result<HeldPack, PackError> {
        let pieces = self.members.iter().flat_map(|PackMember { bucket, key, object, slots, .. }| {
            assert!(!slots.is_empty(), "a member has a file, though it be empty");
            let of = Arc::new((object.version.0, bucket.clone(), key.clone()));
            let in_memory = checked(object.version.0).filter(|pieces| pieces.len() == slots.len());
            let mut in_memory = in_memory.into_iter().flatten();
            slots.iter().zip(1..).map(move |(slot, number)| {
                let part = object.parts.range(number).filter(|_| slots.len() > 1);
                let bytes = part.map_or(object.bytes, |part| part.end - part.start);
                let at = NamedSlot::of(*slot, bucket, key);
                let hold = staging.hold(at).ok_or(PackError::MemberGone { slot: *slot })?;
                let file = StagedPiece { hold, bytes, of: Arc::clone(&of) };
                let is_whole =
                    |chunks: &Vec<Bytes>| chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>() == bytes;
                Ok(match in_memory.next().filter(is_whole) {
                    Some(chunks) => MemberPiece::Checked(file, chunks),
                    None => MemberPiece::File(file),
                })
            })
        });
        Ok(HeldPack { pieces: pieces.collect::<Result<_, PackError>>()?, plan: self })
    }

    /// The pack of members that are in memory; `bytes` has those of each.
    ///
    /// # Panics
    /// If a member is not as long as its record says, or is staged.
    pub fn of_memory(self, bytes: Vec<Bytes>) -> HeldPack {
        assert_eq!(bytes.len(), self.members.len(), "each member has its bytes");
        for (member, bytes) in self.members.iter().zip(&bytes) {
            assert!(member.slots.is_empty(), "a member is in memory or staged");
            assert_eq!(member.object.bytes, bytes.len() as u64, "a member is as long as its record says");
        }
        HeldPack { pieces: bytes.into_iter().map(MemberPiece::Memory).collect(), plan: self }
    }
}

/// The length and checksum of a payload that was yielded in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Its length.
    pub payload_bytes: u64,
    /// CRC-64/NVME of all of it.
    pub checksum: u64,
}

/// Yields the payload of a pack.
pub struct PackSource {
    pack: Arc<HeldPack>,
    stage: SourceStep,
    opening: FuturesOrdered<BoxFuture<'static, Opened>>,
    /// Pieces that were opened or are being opened.
    opened: usize,
    /// CRC-64 of the members that were yielded.
    checksums: Vec<u64>,
    member_digest: Digest,
    /// Compute the checksums that the member and its current piece should have, if these are known.
    member_sum: Option<Checksummer>,
    piece_sum: Option<Checksummer>,
    index_digest: Digest,
    payload_digest: Digest,
    yielded_bytes: u64,
    /// Bytes that are ready, shorter than a block.
    gathered: Vec<u8>,
    /// Bytes that are ready and did not fit into `gathered`.
    left_over: Bytes,
}

/// The bytes of a piece.
type Opened = Result<BoxStream<'static, Result<Bytes, ReadError>>, PackError>;

/// The next step of a source.
enum SourceStep {
    /// The next piece of the member of that number, after `read` pieces; after the last member, the index.
    File { member: usize, read: usize },
    /// More of a piece.
    Bytes { member: usize, read: usize, stream: BoxStream<'static, Result<Bytes, ReadError>> },
    /// The index entry of that member, or the checksums.
    Entry(usize),
    /// The checksums of members from that one on, or the footer.
    Checksums(usize),
    /// Nothing.
    Done,
}

impl PackSource {
    /// A source of the payload of `pack`.
    pub fn new(pack: Arc<HeldPack>) -> Self {
        let digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        Self {
            pack,
            stage: SourceStep::File { member: 0, read: 0 },
            opening: FuturesOrdered::new(),
            opened: 0,
            checksums: Vec::new(),
            member_digest: digest,
            member_sum: None,
            piece_sum: None,
            index_digest: digest,
            payload_digest: digest,
            yielded_bytes: 0,
            gathered: Vec::new(),
            left_over: Bytes::new(),
        }
    }

    /// The next bytes of the payload; all chunks but the last are a block of 1 MiB. `None` at its end.
    ///
    /// After an error, or when the future of a call was dropped, the source is unusable; a new one starts from the
    /// beginning.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PackError> {
        let chunk = loop {
            if let Some(chunk) = self.take_chunk() {
                break chunk;
            }
            match self.next_piece().await? {
                Some(piece) => self.left_over = piece,
                None if self.gathered.is_empty() => return Ok(None),
                None => break Bytes::from(std::mem::take(&mut self.gathered)),
            }
        };
        self.payload_digest.update(&chunk);
        self.yielded_bytes += chunk.len() as u64;
        assert!(self.yielded_bytes <= self.pack.plan.payload_bytes(), "a payload has the length that was planned");
        Ok(Some(chunk))
    }

    /// The number of the member that is being read, or whose reading failed; `None` after the last one.
    pub fn reading(&self) -> Option<usize> {
        match &self.stage {
            SourceStep::File { member, .. } | SourceStep::Bytes { member, .. } => Some(*member),
            SourceStep::Entry(_) | SourceStep::Checksums(_) | SourceStep::Done => None,
        }
    }

    /// Length and checksum of the payload, once all of it was yielded.
    pub fn sealed(&self) -> Option<Sealed> {
        let complete = self.yielded_bytes == self.pack.plan.payload_bytes();
        complete.then(|| Sealed { payload_bytes: self.yielded_bytes, checksum: self.payload_digest.finalize() })
    }

    /// Moves the bytes left over to those gathered; returns a block if that completes one.
    fn take_chunk(&mut self) -> Option<Bytes> {
        if self.gathered.is_empty() && self.left_over.len() == BLOCK_BYTES {
            return Some(std::mem::take(&mut self.left_over));
        }
        let missing = BLOCK_BYTES - self.gathered.len();
        let now = self.left_over.split_to(missing.min(self.left_over.len()));
        if self.gathered.is_empty() && !now.is_empty() {
            self.gathered.reserve_exact(BLOCK_BYTES);
        }
        self.gathered.extend_from_slice(&now);
        (self.gathered.len() == BLOCK_BYTES).then(|| Bytes::from(std::mem::take(&mut self.gathered)))
    }

    /// The next bytes, in pieces as they come: at most a block each. `None` at the end.
    async fn next_piece(&mut self) -> Result<Option<Bytes>, PackError> {
        loop {
            match &mut self.stage {
                SourceStep::File { member, read } => {
                    let (member, read) = (*member, *read);
                    self.begin_file(member, read).await?;
                }
                SourceStep::Bytes { member, read, stream } => {
                    let (member, read) = (*member, *read);
                    if let Some(piece) = stream.next().await {
                        let piece = piece?;
                        self.member_digest.update(&piece);
                        for sum in [&mut self.member_sum, &mut self.piece_sum].into_iter().flatten() {
                            sum.update(&piece);
                        }
                        return Ok(Some(piece));
                    }
                    let sum = self.piece_sum.take();
                    self.check(sum, member, Some(read))?;
                    self.stage = SourceStep::File { member, read: read + 1 };
                }
                SourceStep::Entry(next) => {
                    let next = *next;
                    return Ok(Some(self.index_entry(next)));
                }
                SourceStep::Checksums(next) => {
                    let next = *next;
                    return Ok(Some(self.checksums_or_footer(next)));
                }
                SourceStep::Done => return Ok(None),
            }
        }
    }

    /// Begins the next piece of `member`, after `read` pieces; or the next member, after the last piece.
    async fn begin_file(&mut self, member: usize, read: usize) -> Result<(), PackError> {
        self.open_ahead();
        let pack = Arc::clone(&self.pack);
        self.stage = match pack.plan.members.get(member) {
            None => {
                assert_eq!(self.checksums.len(), member, "every member was read and has its checksum");
                SourceStep::Entry(0)
            }
            Some(of) if read == of.pieces() => {
                let sum = self.member_sum.take();
                self.check(sum, member, None)?;
                self.checksums.push(self.member_digest.finalize_reset());
                SourceStep::File { member: member + 1, read: 0 }
            }
            Some(of) => {
                let sum = |piece| of.expected(piece).map(|expected| Checksummer::new(expected.kind));
                self.piece_sum = sum(Some(read));
                if read == 0 {
                    self.member_sum = sum(None);
                }
                let stream = self.opening.next().await.expect("pieces are opened ahead as long as there are some")?;
                SourceStep::Bytes { member, read, stream }
            }
        };
        Ok(())
    }

    /// Compares `sum`, of a piece of `member` or of all of it, with the expected checksum.
    fn check(&self, sum: Option<Checksummer>, member: usize, piece: Option<usize>) -> Result<(), PackError> {
        let of = &self.pack.plan.members[member];
        let Some((sum, expected)) = sum.zip(of.expected(piece)) else { return Ok(()) };
        if sum.finish() == *expected {
            return Ok(());
        }
        let (bucket, key, expected) = (of.bucket.clone(), of.key.clone(), expected.clone());
        let slot = of.slots.get(piece.unwrap_or(0)).copied().unwrap_or(0);
        let part = piece.map_or(0, |piece| piece as u32 + 1);
        Err(PackError::MemberMismatch { bucket, key, part, slot, expected })
    }

    fn open_ahead(&mut self) {
        while self.opening.len() < OPEN_AHEAD && self.opened < self.pack.pieces.len() {
            let (pack, index) = (Arc::clone(&self.pack), self.opened);
            self.opening.push_back(Box::pin(async move { pack.pieces[index].open().await }));
            self.opened += 1;
        }
    }

    /// Entry `index` of the index, with the index's header before the first.
    fn index_entry(&mut self, index: usize) -> Bytes {
        let members = self.pack.plan.members.len();
        let mut bytes = Vec::new();
        if index == 0 {
            bytes.extend_from_slice(&encode_index_header(members as u32));
        }
        let PackMember { bucket, key, object, attributes, .. } = &self.pack.plan.members[index];
        let entry = encode_entry(bucket, key, self.pack.plan.offsets[index], object, attributes);
        assert!(entry.len() <= ENTRY_BYTES_MAX, "an entry is as long as it was when the pack was planned");
        bytes.extend_from_slice(&entry);
        self.stage = if index + 1 < members { SourceStep::Entry(index + 1) } else { SourceStep::Checksums(0) };
        self.index_digest.update(&bytes);
        bytes.into()
    }

    /// The checksums of members from `first` on, as many as make a block; then the footer.
    fn checksums_or_footer(&mut self, first: usize) -> Bytes {
        let rest = &self.checksums[first..];
        if rest.is_empty() {
            self.stage = SourceStep::Done;
            return Bytes::from_owner(self.footer().encode());
        }
        let now = &rest[..rest.len().min(BLOCK_BYTES / MEMBER_CHECKSUM_BYTES)];
        let bytes: Vec<u8> = now.iter().flat_map(|checksum| checksum.to_le_bytes()).collect();
        self.stage = SourceStep::Checksums(first + now.len());
        self.index_digest.update(&bytes);
        bytes.into()
    }

    fn footer(&self) -> PackFooter {
        assert_eq!(self.opened, self.pack.pieces.len(), "the footer follows when every piece was read");
        let ready_bytes = self.yielded_bytes + (self.gathered.len() + self.left_over.len()) as u64;
        let index_end = self.pack.plan.index_offset + self.pack.plan.index_bytes;
        assert_eq!(ready_bytes, index_end, "members and index have the lengths that were planned");
        PackFooter {
            members: self.pack.plan.members.len() as u32,
            index_offset: self.pack.plan.index_offset,
            index_bytes: self.pack.plan.index_bytes,
            index_checksum: self.index_digest.finalize(),
        }
    }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
