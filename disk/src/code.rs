//! The erasure code: Cauchy Reed-Solomon over GF(2^8), systematic.
//!
//! The polynomial is 0x11d and the parity matrix is inv(i ^ j) for parity row i (from k) and data column j, as in
//! ISA-L's `gf_gen_cauchy1_matrix`; a test compares the library with that, byte by byte, since the encoded data stays
//! on the drives for decades.
//!
//! Invariants: the code works byte by byte, so fragments may have any length that is the same for all fragments of a
//! stripe; with r = 0 there is nothing to encode and nothing can be rebuilt.

use model::Code;
use rustfs_erasure_codec::galois_8::{Field, ReedSolomon};
use rustfs_erasure_codec::{CodecOptions, MatrixMode};

/// Fewer than k fragments of a stripe are there, so it cannot be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fewer than k fragments of the stripe are there")]
pub struct TooFewFragments;

/// Encodes and rebuilds the stripes of one code.
pub struct Codec {
    data: usize,
    parity: usize,
    /// `None` without parity.
    library: Option<ReedSolomon>,
}

impl Codec {
    /// A codec for `code`, which a validated rack guarantees to have k >= 1, k + r <= 255.
    pub fn new(code: Code) -> Self {
        let (data, parity) = (usize::from(code.data), usize::from(code.parity));
        assert!(data >= 1 && data + parity <= 255, "k + r is a code's");
        let options = CodecOptions::builder().matrix_mode(MatrixMode::Cauchy).max_parallel_jobs(1).build();
        let library = (parity > 0).then(|| {
            rustfs_erasure_codec::ReedSolomon::<Field>::with_options(data, parity, options)
                .expect("k and r are within the field")
        });
        Self { data, parity, library }
    }

    /// Fills the r `parity` fragments from the k `data` fragments, all of the same length.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_eq!((data.len(), parity.len()), (self.data, self.parity), "a stripe has k + r fragments");
        let Some(library) = &self.library else { return };
        library.encode_sep(data, parity).expect("fragments of a stripe have the same length");
    }

    /// Rebuilds the fragments that are marked as missing (`false`) from the others, in place.
    pub fn rebuild(&self, stripe: &mut [(&mut [u8], bool)]) -> Result<(), TooFewFragments> {
        assert_eq!(stripe.len(), self.data + self.parity, "a stripe has k + r fragments");
        let there = stripe.iter().filter(|(_, there)| *there).count();
        if there == stripe.len() {
            return Ok(());
        }
        match &self.library {
            Some(library) if there >= self.data => {
                library.reconstruct(stripe).expect("k fragments of the same length rebuild a stripe");
                Ok(())
            }
            _ => Err(TooFewFragments),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use model::Rng;
    use proptest::prelude::*;

    fn code(data: u8, parity: u8) -> Code {
        Code { data, parity, fragment_bytes: 4096 }
    }

    fn random_stripe(rng: &mut Rng, codec: &Codec, len: usize) -> Vec<Vec<u8>> {
        let data: Vec<Vec<u8>> = (0..codec.data).map(|_| (0..len).map(|_| rng.next_u64() as u8).collect()).collect();
        let mut parity = vec![vec![0; len]; codec.parity];
        let data_refs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        codec.encode(&data_refs, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        data.into_iter().chain(parity).collect()
    }

    /// Multiplication in GF(2^8) modulo 0x11d, bit by bit.
    fn times(mut a: u8, mut b: u8) -> u8 {
        let mut product = 0;
        while b > 0 {
            if b & 1 == 1 {
                product ^= a;
            }
            a = (a << 1) ^ if a & 0x80 == 0 { 0 } else { 0x1d };
            b >>= 1;
        }
        product
    }

    #[test]
    fn parity_is_the_cauchy_matrix_that_the_format_states() {
        for (k, r) in [(15_u8, 3_u8), (2, 1), (1, 1), (4, 4), (200, 55)] {
            let codec = Codec::new(code(k, r));
            let stripe = random_stripe(&mut Rng::new(1), &codec, 33);
            for row in k..k + r {
                let by_hand = |at: usize| {
                    (0..k).fold(0, |sum, column| {
                        let inverse = (1..=255).find(|x| times(*x, row ^ column) == 1).unwrap();
                        sum ^ times(inverse, stripe[usize::from(column)][at])
                    })
                };
                let expected: Vec<u8> = (0..33).map(by_hand).collect();
                assert_eq!(stripe[usize::from(row)], expected, "parity row {row} of {k}+{r}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_k_fragments_rebuild_the_rest(
            k in 1_u8..20, r in 0_u8..6, len in 1_usize..70_000, lost in 0_usize..8, seed: u64
        ) {
            let codec = Codec::new(code(k, r));
            let rng = &mut Rng::new(seed);
            let whole = random_stripe(rng, &codec, len);
            let mut damaged = whole.clone();
            let mut there = vec![true; whole.len()];
            for _ in 0..lost {
                let at = rng.below(whole.len() as u64) as usize;
                there[at] = false;
                damaged[at].fill(0xaa);
            }
            let enough = there.iter().filter(|t| !**t).count() <= usize::from(r);
            let mut stripe: Vec<(&mut [u8], bool)> =
                damaged.iter_mut().map(Vec::as_mut_slice).zip(there).collect();
            prop_assert_eq!(codec.rebuild(&mut stripe).is_ok(), enough);
            if enough {
                prop_assert_eq!(damaged, whole);
            }
        }
    }
}
