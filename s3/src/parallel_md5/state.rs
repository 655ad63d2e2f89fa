//! The MD5 (RFC 1321) of a message so far, which can advance alone or in a lane beside others.
//!
//! Invariant: `held` is the beginning of an incomplete block, `bytes % 64` bytes of it; all bytes before it are in
//! `words`.

/// MD5's block, in bytes.
pub(super) const BLOCK_BYTES: usize = 64;

/// A whole block.
pub(super) type Block = [u8; BLOCK_BYTES];

/// MD5 of the bytes so far.
#[derive(Clone, Debug)]
pub(super) struct Md5State {
    /// A, B, C and D of the RFC. A caller that puts whole blocks through them elsewhere reports that by
    /// [`Md5State::skip`].
    pub words: [u32; 4],
    held: Block,
    bytes: u64,
}

impl Md5State {
    /// MD5 of nothing.
    pub fn new() -> Self {
        Self { words: [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476], held: [0; BLOCK_BYTES], bytes: 0 }
    }

    /// Bytes that are held back until their block is complete.
    pub fn held_bytes(&self) -> usize {
        (self.bytes % BLOCK_BYTES as u64) as usize
    }

    /// Takes the next bytes.
    pub fn update(&mut self, mut data: &[u8]) {
        let held_bytes = self.held_bytes();
        self.bytes += data.len() as u64;
        if held_bytes > 0 {
            let (now, later) = data.split_at(data.len().min(BLOCK_BYTES - held_bytes));
            self.held[held_bytes..held_bytes + now.len()].copy_from_slice(now);
            if held_bytes + now.len() < BLOCK_BYTES {
                return;
            }
            fast_md5::transform(&mut self.words, &self.held);
            data = later;
        }
        let (blocks, rest) = data.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            fast_md5::transform(&mut self.words, block);
        }
        self.held[..rest.len()].copy_from_slice(rest);
    }

    /// Counts `blocks` whole blocks that were put through `words`.
    pub fn skip(&mut self, blocks: usize) {
        assert_eq!(self.held_bytes(), 0, "blocks follow what is whole");
        self.bytes += (blocks * BLOCK_BYTES) as u64;
    }

    /// The digest.
    pub fn finish(mut self) -> [u8; 16] {
        let bits = self.bytes.wrapping_mul(8).to_le_bytes();
        // One bit, zeros up to 8 bytes before a block's end, and the length.
        let zeros = (BLOCK_BYTES + 55 - self.held_bytes()) % BLOCK_BYTES;
        let mut padding = [0; 1 + BLOCK_BYTES + 8];
        padding[0] = 0x80;
        padding[1 + zeros..1 + zeros + 8].copy_from_slice(&bits);
        self.update(&padding[..1 + zeros + 8]);
        let mut digest = [0; 16];
        for (part, word) in digest.chunks_exact_mut(4).zip(self.words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::md5::{Digest, Md5};

    #[test]
    fn every_length_and_cut_gives_the_published_digest() {
        let bytes: Vec<u8> = (0..300_u32).map(|i| (i * 37 % 251) as u8).collect();
        for length in 0..bytes.len() {
            let expected: [u8; 16] = Md5::digest(&bytes[..length]).into();
            for cut in [0, 1, 55, 63, 64, 65, length / 2, length] {
                let (head, tail) = bytes[..length].split_at(cut.min(length));
                let mut state = Md5State::new();
                state.update(head);
                state.update(tail);
                assert_eq!(state.finish(), expected, "{length} bytes cut at {cut}");
            }
        }
    }
}
