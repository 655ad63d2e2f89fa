//! MD5 of sixteen messages at once, one in each 32-bit lane of vectors.
//!
//! MD5 is one long chain of dependent steps, so a single message leaves most of a core idle. Sixteen parallel chains do
//! not. The vectors are AVX-512's, AVX2's, SSE's or NEON's; the program chooses at run time, by the processor.

#![allow(clippy::inline_always, reason = "what stays a call of its own is compiled without the vectors' instructions")]

use super::state::Block;
use fearless_simd::{Level, dispatch, prelude::*, u32x16};

/// Messages that are hashed together.
pub(super) const LANES: usize = 16;

/// A, B, C and D of RFC 1321, each for all messages.
pub(super) type Words = [[u32; LANES]; 4];

/// Table T of RFC 1321, section 3.4: the integer part of 2^32 times abs(sin(i)), i from 1 on and in radians.
const T: [[u32; 4]; 16] = [
    [0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee],
    [0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501],
    [0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be],
    [0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821],
    [0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa],
    [0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8],
    [0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed],
    [0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a],
    [0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c],
    [0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70],
    [0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05],
    [0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665],
    [0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039],
    [0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1],
    [0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1],
    [0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391],
];

/// Puts the first `count` blocks of each run through its lane of `words`.
///
/// # Panics
/// If a run has fewer blocks.
pub(super) fn compress(level: Level, words: &mut Words, runs: &[&[Block]; LANES], count: usize) {
    dispatch!(level, simd => compress_with(simd, words, runs, count));
}

/// The number of messages from which hashing them together is faster than one after another, by measurement.
pub(super) fn pay_from(level: Level) -> usize {
    match dispatch!(level, simd => words_in_a_vector(simd)) {
        16.. => 2,
        8.. => 3,
        _ => 5,
    }
}

#[inline(always)]
fn words_in_a_vector<S: Simd>(_: S) -> usize {
    S::u32s::LEN
}

/// One step: `a` becomes `b` plus the rotated sum, at `$word` of the block and `$step` of the table.
macro_rules! step {
    (
        $simd:ident, $block:ident, $mix:ident, $a:ident $b:ident $c:ident $d:ident, $word:expr, $step:expr,
        $turn:literal
    ) => {
        let sum = $a
            + u32x16::splat($simd, const { T.as_flattened()[$step] })
            + $block[const { $word($step) % 16 }]
            + $mix($b, $c, $d);
        $a = $b + ((sum << $turn) | (sum >> (32 - $turn)));
    };
}

/// A round of sixteen steps, in four times four.
macro_rules! round {
    ($simd:ident, $block:ident, $mix:ident, $word:ident, $a:ident $b:ident $c:ident $d:ident,
     $first:literal, [$t0:literal, $t1:literal, $t2:literal, $t3:literal]) => {
        round!(
            @ $simd, $block, $mix, $word, $a $b $c $d, [$t0, $t1, $t2, $t3], $first, $first + 4, $first + 8, $first + 12
        )
    };
    (@ $simd:ident, $block:ident, $mix:ident, $word:ident, $a:ident $b:ident $c:ident $d:ident,
     $turns:tt, $($first:expr),*) => {
        $(round!(@@ $simd, $block, $mix, $word, $a $b $c $d, $turns, $first);)*
    };
    (@@ $simd:ident, $block:ident, $mix:ident, $word:ident, $a:ident $b:ident $c:ident $d:ident,
     [$t0:literal, $t1:literal, $t2:literal, $t3:literal], $first:expr) => {
        step!($simd, $block, $mix, $a $b $c $d, $word, $first, $t0);
        step!($simd, $block, $mix, $d $a $b $c, $word, $first + 1, $t1);
        step!($simd, $block, $mix, $c $d $a $b, $word, $first + 2, $t2);
        step!($simd, $block, $mix, $b $c $d $a, $word, $first + 3, $t3);
    };
}

#[inline(always)]
fn compress_with<S: Simd>(simd: S, words: &mut Words, runs: &[&[Block]; LANES], count: usize) {
    let [mut a, mut b, mut c, mut d] = words.map(|lanes| u32x16::from_slice(simd, &lanes));
    let runs: [&[Block]; LANES] = std::array::from_fn(|lane| &runs[lane][..count]);
    for at in 0..count {
        let block = load(simd, &runs, at);
        let before = [a, b, c, d];
        round!(simd, block, mix_f, word_f, a b c d, 0, [7, 12, 17, 22]);
        round!(simd, block, mix_g, word_g, a b c d, 16, [5, 9, 14, 20]);
        round!(simd, block, mix_h, word_h, a b c d, 32, [4, 11, 16, 23]);
        round!(simd, block, mix_i, word_i, a b c d, 48, [6, 10, 15, 21]);
        (a, b, c, d) = (a + before[0], b + before[1], c + before[2], d + before[3]);
    }
    for (lanes, vector) in words.iter_mut().zip([a, b, c, d]) {
        vector.store_slice(lanes);
    }
}

/// The blocks at `at`: vector `i` has word `i` of every lane's block.
#[inline(always)]
fn load<S: Simd>(simd: S, runs: &[&[Block]; LANES], at: usize) -> [u32x16<S>; 16] {
    // Loops, because closures remain separate calls where vectors are narrow, at a third of the rate.
    let mut square = [u32x16::splat(simd, 0); 16];
    for (row, run) in square.iter_mut().zip(runs) {
        let (words, _) = run[at].as_chunks::<4>();
        let mut line = [0; 16];
        for (to, word) in line.iter_mut().zip(words) {
            *to = u32::from_le_bytes(*word);
        }
        *row = u32x16::from_slice(simd, &line);
    }
    // Four perfect shuffles of the 256 words turn rows into columns.
    for _ in 0..4 {
        let mut next = square;
        for row in 0..8 {
            next[2 * row] = square[row].zip_low(square[row + 8]);
            next[2 * row + 1] = square[row].zip_high(square[row + 8]);
        }
        square = next;
    }
    square
}

/// F of RFC 1321: `c` where `b` has a bit, else `d`.
#[inline(always)]
fn mix_f<S: Simd>(b: u32x16<S>, c: u32x16<S>, d: u32x16<S>) -> u32x16<S> {
    ((c ^ d) & b) ^ d
}

/// G: `b` where `d` has a bit, else `c`.
#[inline(always)]
fn mix_g<S: Simd>(b: u32x16<S>, c: u32x16<S>, d: u32x16<S>) -> u32x16<S> {
    ((b ^ c) & d) ^ c
}

/// H.
#[inline(always)]
fn mix_h<S: Simd>(b: u32x16<S>, c: u32x16<S>, d: u32x16<S>) -> u32x16<S> {
    b ^ c ^ d
}

/// I.
#[inline(always)]
fn mix_i<S: Simd>(b: u32x16<S>, c: u32x16<S>, d: u32x16<S>) -> u32x16<S> {
    c ^ (b | !d)
}

/// The word of the block that a step of the first round takes.
const fn word_f(step: usize) -> usize {
    step
}

/// The same for the second round.
const fn word_g(step: usize) -> usize {
    5 * step + 1
}

/// The same for the third round.
const fn word_h(step: usize) -> usize {
    3 * step + 5
}

/// The same for the fourth round.
const fn word_i(step: usize) -> usize {
    7 * step
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use model::Rng;

    /// Every kind of vector that this processor has.
    fn levels() -> Vec<Level> {
        let best = Level::new();
        #[cfg(target_arch = "x86_64")]
        let lesser =
            [best.as_avx2().map(Level::Avx2), best.as_sse4_2().map(Level::Sse4_2), best.as_sse2().map(Level::Sse2)];
        #[cfg(not(target_arch = "x86_64"))]
        let lesser = [];
        std::iter::once(best).chain(lesser.into_iter().flatten()).collect()
    }

    #[test]
    fn each_lane_gives_what_its_message_gives_alone() {
        let mut rng = Rng::new(7);
        for level in levels() {
            for count in [0, 1, 2, 5, 33] {
                let mut words = Words::default();
                let mut blocks = vec![[[0_u8; 64]; 40]; LANES];
                for message in &mut blocks {
                    message.as_flattened_mut().fill_with(|| rng.next_u64() as u8);
                }
                words.as_flattened_mut().fill_with(|| rng.next_u64() as u32);
                let before = words;
                let runs = std::array::from_fn(|lane| &blocks[lane][..40 - lane % 3]);
                compress(level, &mut words, &runs, count);
                for lane in 0..LANES {
                    let mut expected = before.map(|lanes| lanes[lane]);
                    ::md5::block_api::compress(&mut expected, &blocks[lane][..count]);
                    assert_eq!(words.map(|lanes| lanes[lane]), expected, "{level:?}, lane {lane}, {count} blocks");
                }
            }
        }
    }
}
